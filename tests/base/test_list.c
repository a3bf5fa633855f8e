/* SPDX-License-Identifier: MIT */
/* The intrusive list: its order, its ends, and removal from wherever a node stands. */
#include "harness.h"

#include "base/list.h"

#include <stdio.h>
#include <string.h>

typedef struct item {
    char name; /* before the link, so that the container is not at the node's own address */
    weir_list_node link;
} item;

static char name_of(const weir_list_node *node)
{
    return node != NULL ? WEIR_CONTAINER(node, item, link)->name : '-';
}

/* The list must read as `expected` in both directions, and its ends must agree. */
static void assert_reads(const weir_list *list, const char *expected)
{
    char forwards[32], backwards[32];
    size_t count = strlen(expected), at = 0;
    assert_true(count < sizeof forwards);
    for (weir_list_node *node = weir__list_first(list); node != NULL && at < sizeof forwards - 1;
         node = weir__list_next(list, node)) {
        assert_true(weir__list_is_linked(node));
        forwards[at++] = name_of(node);
    }
    forwards[at] = '\0';
    assert_string_equal(forwards, expected);

    backwards[at] = '\0';
    for (const weir_list_node *node = list->ring.prev; node != &list->ring; node = node->prev) {
        assert_true(at > 0);
        backwards[--at] = name_of(node);
    }
    assert_int_equal(at, 0);
    assert_string_equal(backwards, expected);

    assert_int_equal(name_of(weir__list_first(list)), count > 0 ? expected[0] : '-');
    assert_int_equal(name_of(weir__list_last(list)), count > 0 ? expected[count - 1] : '-');
    assert_int_equal(weir__list_is_empty(list), count == 0);
}

/* Items named a, b, c... in no list. */
static void name_all(item *items, size_t count)
{
    memset(items, 0, count * sizeof *items);
    for (size_t i = 0; i < count; i++)
        items[i].name = (char)('a' + i);
}

static void push_all_back(weir_list *list, item *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        weir__list_push_back(list, &items[i].link);
}

static void begins_empty(void **state)
{
    (void)state;
    weir_list list;
    weir__list_init(&list);
    assert_reads(&list, "");
    assert_null(weir__list_first(&list));
    assert_null(weir__list_last(&list));
    assert_null(weir__list_pop_front(&list));
    assert_true(weir__list_is_empty(&list));
}

static void pushes_go_to_the_end_they_name(void **state)
{
    (void)state;
    weir_list list;
    item items[4];
    name_all(items, 4);
    weir__list_init(&list);
    weir__list_push_back(&list, &items[1].link);
    assert_reads(&list, "b");
    weir__list_push_back(&list, &items[2].link);
    assert_reads(&list, "bc");
    weir__list_push_front(&list, &items[0].link);
    assert_reads(&list, "abc");
    weir__list_push_back(&list, &items[3].link);
    assert_reads(&list, "abcd");
}

static void link_puts_a_node_behind_another(void **state)
{
    (void)state;
    weir_list list;
    item items[4];
    name_all(items, 4);
    weir__list_init(&list);
    push_all_back(&list, items, 2);
    weir__list_link(&items[0].link, &items[2].link);
    assert_reads(&list, "acb");
    weir__list_link(&items[1].link, &items[3].link);
    assert_reads(&list, "acbd");
}

static void nodes_know_whether_they_are_linked(void **state)
{
    (void)state;
    weir_list list;
    item items[1];
    name_all(items, 1);
    weir__list_init(&list);
    assert_false(weir__list_is_linked(&items[0].link));
    weir__list_push_front(&list, &items[0].link);
    assert_true(weir__list_is_linked(&items[0].link));
    weir__list_remove(&items[0].link);
    assert_false(weir__list_is_linked(&items[0].link));
    assert_null(items[0].link.prev);
    assert_null(items[0].link.next);
    assert_reads(&list, "");
}

static void removes_from_every_place(void **state)
{
    (void)state;
    for (size_t at = 0; at < 5; at++) {
        static const char *const left[] = { "bcde", "acde", "abde", "abce", "abcd" };
        weir_list list;
        item items[5];
        name_all(items, 5);
        weir__list_init(&list);
        push_all_back(&list, items, 5);
        weir__list_remove(&items[at].link);
        assert_reads(&list, left[at]);
        assert_false(weir__list_is_linked(&items[at].link));
        weir__list_push_back(&list, &items[at].link);
        assert_int_equal(name_of(weir__list_last(&list)), 'a' + (int)at);
    }
}

static void next_ends_at_the_last(void **state)
{
    (void)state;
    weir_list list;
    item items[2];
    name_all(items, 2);
    weir__list_init(&list);
    push_all_back(&list, items, 2);
    assert_ptr_equal(weir__list_next(&list, &items[0].link), &items[1].link);
    assert_null(weir__list_next(&list, &items[1].link));
}

static void the_node_at_hand_may_leave_during_a_walk(void **state)
{
    (void)state;
    weir_list list;
    item items[6];
    name_all(items, 6);
    weir__list_init(&list);
    push_all_back(&list, items, 6);
    for (weir_list_node *node = weir__list_first(&list), *next; node != NULL; node = next) {
        next = weir__list_next(&list, node);
        if ((name_of(node) - 'a') % 2 == 0)
            weir__list_remove(node);
    }
    assert_reads(&list, "bdf");
}

static void pop_front_takes_in_order(void **state)
{
    (void)state;
    weir_list list;
    item items[5];
    name_all(items, 5);
    weir__list_init(&list);
    push_all_back(&list, items, 5);
    for (int i = 0; i < 5; i++) {
        weir_list_node *node = weir__list_pop_front(&list);
        assert_ptr_equal(node, &items[i].link);
        assert_false(weir__list_is_linked(node));
    }
    assert_reads(&list, "");
    assert_null(weir__list_pop_front(&list));
    /* A ring that was emptied takes nodes as a new one does. */
    weir__list_push_front(&list, &items[3].link);
    assert_reads(&list, "d");
}

static void splice_moves_all_to_the_end(void **state)
{
    (void)state;
    for (size_t of_to = 0; of_to <= 2; of_to++) {
        for (size_t of_from = 0; of_from <= 3; of_from++) {
            weir_list to, from;
            item items[6];
            char expected[8];
            name_all(items, 6);
            weir__list_init(&to);
            weir__list_init(&from);
            push_all_back(&to, items, of_to);
            push_all_back(&from, items + 2, of_from);
            snprintf(expected, sizeof expected, "%.*s%.*s", (int)of_to, "ab", (int)of_from, "cde");

            weir__list_splice_back(&to, &from);
            assert_reads(&to, expected);
            assert_reads(&from, "");

            /* Both go on working, and neither knows of the other any more. */
            weir__list_push_back(&from, &items[5].link);
            assert_reads(&from, "f");
            assert_reads(&to, expected);
            weir__list_splice_back(&to, &from);
            strcat(expected, "f");
            assert_reads(&to, expected);
            assert_reads(&from, "");
        }
    }
}

static void container_leads_back_to_the_item(void **state)
{
    (void)state;
    item one = { .name = 'x' };
    assert_ptr_equal(WEIR_CONTAINER(&one.link, item, link), &one);
    assert_ptr_not_equal((void *)&one, (void *)&one.link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(begins_empty),
        weir_case(pushes_go_to_the_end_they_name),
        weir_case(link_puts_a_node_behind_another),
        weir_case(nodes_know_whether_they_are_linked),
        weir_case(removes_from_every_place),
        weir_case(next_ends_at_the_last),
        weir_case(the_node_at_hand_may_leave_during_a_walk),
        weir_case(pop_front_takes_in_order),
        weir_case(splice_moves_all_to_the_end),
        weir_case(container_leads_back_to_the_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
