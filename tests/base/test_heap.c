/* SPDX-License-Identifier: MIT */
/* The indexed heap against a sorted array that obeys the same rules in the dullest way. */
#include "harness.h"

#include "base/heap.h"
#include "base/list.h"

#include <errno.h>
#include <string.h>

typedef struct item {
    int number; /* before the node, so that the container is not at the node's own address */
    weir_heap_node node;
} item;

static item *item_of(weir_heap_node *node)
{
    return node != NULL ? WEIR_CONTAINER(node, item, node) : NULL;
}

static void clear_all(item *items, int count)
{
    memset(items, 0, (size_t)count * sizeof *items);
    for (int i = 0; i < count; i++)
        items[i].number = i;
}

static void push(weir_heap *heap, item *pushed, int64_t key)
{
    assert_int_equal(weir__heap_push(heap, &pushed->node, key), 0);
    assert_true(weir__heap_contains(&pushed->node));
    assert_true(pushed->node.key == key);
}

static item *pop(weir_heap *heap)
{
    weir_heap_node *first = weir__heap_first(heap);
    weir_heap_node *popped = weir__heap_pop(heap);
    assert_ptr_equal(popped, first);
    if (popped != NULL)
        assert_false(weir__heap_contains(popped));
    return item_of(popped);
}

/* Pops everything; the numbers must be the expected ones in order. */
static void assert_pops(weir_heap *heap, const int *expected, int count)
{
    for (int i = 0; i < count; i++) {
        item *popped = pop(heap);
        assert_non_null(popped);
        assert_int_equal(popped->number, expected[i]);
    }
    assert_null(pop(heap));
    assert_null(weir__heap_first(heap));
}

static void begins_empty_and_without_memory(void **state)
{
    (void)state;
    weir_allocator_stats before, after;
    weir_heap heap = { 0 };
    weir_heap_node absent = { 0 };
    weir_allocator_get_stats(&before);
    assert_null(weir__heap_first(&heap));
    assert_null(weir__heap_pop(&heap));
    weir__heap_remove(&heap, &absent);
    assert_false(weir__heap_contains(&absent));
    weir__heap_deinit(&heap);
    weir_allocator_get_stats(&after);
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.frees, before.frees);
}

static void the_first_push_makes_room_for_eleven(void **state)
{
    (void)state;
    weir_allocator_stats before, after;
    weir_heap heap = { 0 };
    item items[12];
    clear_all(items, 12);
    weir_allocator_get_stats(&before);
    for (int i = 0; i < 11; i++)
        push(&heap, &items[i], i);
    assert_int_equal(heap.room, 11);
    weir_allocator_get_stats(&after);
    assert_int_equal(after.allocations, before.allocations + 1);
    push(&heap, &items[11], 11);
    assert_true(heap.room > 11);
    weir__heap_deinit(&heap);
}

static void gives_the_smallest_key_first(void **state)
{
    (void)state;
    static const int64_t keys[] = { 5, -3, 9, 0, 7, -8, 2, 100, 1 };
    static const int order[] = { 5, 1, 3, 8, 6, 0, 4, 2, 7 };
    enum { COUNT = 9 };
    weir_heap heap = { 0 };
    item items[COUNT];
    clear_all(items, COUNT);
    for (int i = 0; i < COUNT; i++)
        push(&heap, &items[i], keys[i]);
    assert_int_equal(heap.count, COUNT);
    assert_pops(&heap, order, COUNT);
    weir__heap_deinit(&heap);
}

static void equal_keys_come_in_the_order_they_went(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    weir_heap heap = { 0 };
    item items[COUNT];
    clear_all(items, COUNT);
    /* Three keys, interleaved: each one's items must stay in their own order. */
    for (int i = 0; i < COUNT; i++)
        push(&heap, &items[i], i % 3);
    for (int key = 0; key < 3; key++) {
        for (int i = key; i < COUNT; i += 3)
            assert_int_equal(pop(&heap)->number, i);
    }
    assert_null(pop(&heap));
    weir__heap_deinit(&heap);
}

static void a_node_pushed_again_is_last_among_equals(void **state)
{
    (void)state;
    static const int order[] = { 1, 2, 0 };
    weir_heap heap = { 0 };
    item items[3];
    clear_all(items, 3);
    for (int i = 0; i < 3; i++)
        push(&heap, &items[i], 4);
    assert_int_equal(pop(&heap)->number, 0);
    push(&heap, &items[0], 4);
    assert_pops(&heap, order, 3);
    weir__heap_deinit(&heap);
}

static void the_largest_and_smallest_keys_are_in_order(void **state)
{
    (void)state;
    static const int64_t keys[] = {
        INT64_MAX, 0, INT64_MIN, INT64_MAX - 1, INT64_MIN + 1, INT64_MAX, -1, INT64_MIN, 1
    };
    static const int order[] = { 2, 7, 4, 6, 1, 8, 3, 0, 5 };
    enum { COUNT = 9 };
    weir_heap heap = { 0 };
    item items[COUNT];
    clear_all(items, COUNT);
    for (int i = 0; i < COUNT; i++)
        push(&heap, &items[i], keys[i]);
    assert_pops(&heap, order, COUNT);
    /* From one end of the range to the other by update. */
    push(&heap, &items[0], INT64_MIN);
    push(&heap, &items[1], 0);
    push(&heap, &items[2], INT64_MAX);
    weir__heap_update(&heap, &items[0].node, INT64_MAX);
    weir__heap_update(&heap, &items[2].node, INT64_MIN);
    assert_pops(&heap, (const int[]){ 2, 1, 0 }, 3);
    weir__heap_deinit(&heap);
}

static void removes_from_every_place(void **state)
{
    (void)state;
    enum { COUNT = 30 };
    for (int gone = 0; gone < COUNT; gone++) {
        weir_heap heap = { 0 };
        item items[COUNT];
        clear_all(items, COUNT);
        /* Keys in an order that makes the last entry move up for some and down for others. */
        for (int i = 0; i < COUNT; i++)
            push(&heap, &items[i], i * 17 % COUNT);
        weir__heap_remove(&heap, &items[gone].node);
        assert_false(weir__heap_contains(&items[gone].node));
        assert_int_equal(heap.count, COUNT - 1);
        for (int key = 0; key < COUNT; key++) {
            if (key != gone * 17 % COUNT)
                assert_int_equal(pop(&heap)->number * 17 % COUNT, key);
        }
        assert_null(pop(&heap));
        weir__heap_deinit(&heap);
    }
}

static void removing_an_absent_node_does_nothing(void **state)
{
    (void)state;
    static const int order[] = { 0, 2 };
    weir_heap heap = { 0 };
    item items[4];
    clear_all(items, 4);
    for (int i = 0; i < 3; i++)
        push(&heap, &items[i], i);
    weir__heap_remove(&heap, &items[3].node); /* never was in it */
    weir__heap_remove(&heap, &items[1].node);
    weir__heap_remove(&heap, &items[1].node); /* is no longer */
    assert_int_equal(heap.count, 2);
    assert_pops(&heap, order, 2);
    weir__heap_remove(&heap, &items[0].node); /* was popped */
    assert_int_equal(heap.count, 0);
    weir__heap_deinit(&heap);
}

static void update_moves_among_equals_to_last(void **state)
{
    (void)state;
    weir_heap heap = { 0 };
    item items[6];
    clear_all(items, 6);
    for (int i = 0; i < 6; i++)
        push(&heap, &items[i], 1);
    weir__heap_update(&heap, &items[0].node, 1); /* the same key: still behind the others now */
    assert_ptr_equal(item_of(weir__heap_first(&heap)), &items[1]);
    weir__heap_update(&heap, &items[2].node, 0);
    weir__heap_update(&heap, &items[4].node, 2);
    weir__heap_update(&heap, &items[2].node, 1); /* away and back */
    assert_true(items[4].node.key == 2);
    assert_pops(&heap, (const int[]){ 1, 3, 5, 0, 2, 4 }, 6);
    weir__heap_deinit(&heap);
}

static void deinit_sets_the_nodes_free(void **state)
{
    (void)state;
    enum { COUNT = 25 };
    weir_heap heap = { 0 };
    item items[COUNT];
    clear_all(items, COUNT);
    for (int i = 0; i < COUNT; i++)
        push(&heap, &items[i], -i);
    weir__heap_deinit(&heap);
    assert_null(weir__heap_first(&heap));
    assert_int_equal(heap.count, 0);
    for (int i = 0; i < COUNT; i++)
        assert_false(weir__heap_contains(&items[i].node));
    /* Both the heap and the nodes can be used again. */
    push(&heap, &items[3], 1);
    push(&heap, &items[4], 1);
    assert_pops(&heap, (const int[]){ 3, 4 }, 2);
    weir__heap_deinit(&heap);
    weir__heap_deinit(&heap); /* what is empty stays so */
    assert_null(weir__heap_first(&heap));
}

/* Every growth fails once; afterwards the heap is as it was and the node is free. */
static void failing_growth_changes_nothing(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    weir_heap heap = { 0 };
    item items[COUNT];
    unsigned failures = 0;
    clear_all(items, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const weir_heap before = heap;
        const weir_heap_node node_before = items[i].node;
        harness_fail_nth("alloc", 1, -ENOMEM);
        int code = weir__heap_push(&heap, &items[i].node, i % 7);
        unsigned asked = harness_fail_end();
        if (asked == 0) {
            assert_int_equal(code, 0);
            continue;
        }
        failures++;
        assert_int_equal(code, -ENOMEM);
        assert_false(weir__heap_contains(&items[i].node));
        assert_memory_equal(&heap, &before, sizeof heap);
        assert_memory_equal(&items[i].node, &node_before, sizeof node_before);
        push(&heap, &items[i], i % 7);
    }
    assert_true(failures >= 2); /* the first room and at least one growth */
    for (int key = 0; key < 7; key++) {
        for (int i = key; i < COUNT; i += 7)
            assert_int_equal(pop(&heap)->number, i);
    }
    assert_null(pop(&heap));
    weir__heap_deinit(&heap);
}

static void only_growth_takes_memory(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    weir_heap heap = { 0 };
    item items[COUNT];
    clear_all(items, COUNT);
    for (int i = 0; i < COUNT; i++)
        push(&heap, &items[i], i);
    harness_fail_nth("alloc", 1, -ENOMEM);
    for (int i = 0; i < COUNT; i++)
        weir__heap_update(&heap, &items[i].node, COUNT - i);
    weir__heap_remove(&heap, &items[50].node);
    push(&heap, &items[50], 3);
    while (pop(&heap) != NULL)
        continue;
    assert_int_equal(harness_fail_end(), 0);
    weir__heap_deinit(&heap);
}

/* The model ---------------------------------------------------------------------------------- */

#define MODEL_ROOM 1500

typedef struct model {
    item *items[MODEL_ROOM]; /* sorted: by key, then by who came first */
    int64_t keys[MODEL_ROOM];
    int count;
} model;

static void model_insert(model *m, item *inserted, int64_t key)
{
    int at = m->count++;
    for (; at > 0 && m->keys[at - 1] > key; at--) {
        m->items[at] = m->items[at - 1];
        m->keys[at] = m->keys[at - 1];
    }
    m->items[at] = inserted;
    m->keys[at] = key;
}

static void model_remove(model *m, const item *removed)
{
    int at = 0;
    while (at < m->count && m->items[at] != removed)
        at++;
    if (at == m->count)
        return;
    m->count--;
    for (; at < m->count; at++) {
        m->items[at] = m->items[at + 1];
        m->keys[at] = m->keys[at + 1];
    }
}

static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) % limit);
}

/* `tendency` of 10 steps push where they could also take out; keys lie below `key_range`. */
static void follow_model(uint64_t seed, int steps, uint32_t tendency, uint32_t key_range)
{
    static item items[MODEL_ROOM];
    static model m;
    weir_heap heap = { 0 };
    random_state = seed;
    m.count = 0;
    clear_all(items, MODEL_ROOM);
    for (int step = 0; step < steps; step++) {
        item *chosen = &items[random_below(MODEL_ROOM)];
        int64_t key = (int64_t)random_below(key_range) - key_range / 2;
        bool is_in = weir__heap_contains(&chosen->node);
        uint32_t kind = random_below(20);
        if (random_below(200) == 0)
            weir__heap_sort_up_to(&heap, (int64_t)random_below(key_range) - key_range / 2);
        if (kind < 10) {
            if (!is_in && random_below(10) < tendency) {
                push(&heap, chosen, key);
                model_insert(&m, chosen, key);
            } else if (is_in) {
                weir__heap_update(&heap, &chosen->node, key);
                model_remove(&m, chosen);
                model_insert(&m, chosen, key);
                assert_true(chosen->node.key == key);
            }
        } else if (kind < 14) {
            /* Both present and absent ones. */
            weir__heap_remove(&heap, &chosen->node);
            model_remove(&m, chosen);
            assert_false(weir__heap_contains(&chosen->node));
        } else if (kind < 17) {
            item *popped = pop(&heap);
            assert_ptr_equal(popped, m.count > 0 ? m.items[0] : NULL);
            if (popped != NULL)
                model_remove(&m, popped);
        } else if (!is_in) {
            push(&heap, chosen, key);
            model_insert(&m, chosen, key);
        }
        assert_int_equal(heap.count, m.count);
        assert_ptr_equal(item_of(weir__heap_first(&heap)), m.count > 0 ? m.items[0] : NULL);
    }
    for (int i = 0; i < m.count; i++) {
        item *popped = pop(&heap);
        assert_ptr_equal(popped, m.items[i]);
        assert_true(popped->node.key == m.keys[i]);
    }
    assert_null(pop(&heap));
    weir__heap_deinit(&heap);
}

static void agrees_with_the_model_while_large(void **state)
{
    (void)state;
    follow_model(0x9e3779b97f4a7c15, 40000, 10, 1000000);
    follow_model(0x853c49e6748fea9b, 40000, 10, 500);
}

static void agrees_with_the_model_while_small(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++)
        follow_model(seed * 0x2545f4914f6cdd1d, 4000, 1, 100);
}

static void agrees_with_the_model_on_few_keys(void **state)
{
    (void)state;
    follow_model(0xda942042e4dd58b5, 40000, 10, 3);
    follow_model(0x27bb2ee687b0b0fd, 20000, 8, 1);
}

/* Misuse ------------------------------------------------------------------------------------- */

static void push_a_forged_id(void *arg)
{
    weir_heap *heap = arg;
    static item later;
    heap->next_id = weir__heap_first(heap)->id; /* the next push gets the id of its parent */
    (void)weir__heap_push(heap, &later.node, 5);
}

static void pop_past_a_forged_id(void *arg)
{
    weir_heap *heap = arg;
    /* The second and the third entry are the first one's children and compared when it leaves. */
    heap->entries[2].node->id = heap->entries[1].node->id;
    weir__heap_pop(heap);
}

static void push_again(void *arg)
{
    weir_heap *heap = arg;
    (void)weir__heap_push(heap, weir__heap_first(heap), 1);
}

static void update_an_absent_one(void *arg)
{
    static item absent;
    weir__heap_update(arg, &absent.node, 1);
}

static void remove_from_another_heap(void *arg)
{
    weir_heap *heap = arg;
    weir_heap other = { 0 };
    weir__heap_remove(&other, weir__heap_first(heap));
}

static void misuse_asserts(void **state)
{
    (void)state;
    if (!HARNESS_MISUSE_ABORTS)
        skip();
    weir_heap heap = { 0 };
    item items[4];
    clear_all(items, 4);
    for (int i = 0; i < 4; i++)
        push(&heap, &items[i], 5);
    harness_expect_abort(push_a_forged_id, &heap, "assertion failed");
    harness_expect_abort(pop_past_a_forged_id, &heap, "assertion failed");
    harness_expect_abort(push_again, &heap, "assertion failed");
    harness_expect_abort(update_an_absent_one, &heap, "assertion failed");
    harness_expect_abort(remove_from_another_heap, &heap, "assertion failed");
    assert_pops(&heap, (const int[]){ 0, 1, 2, 3 }, 4);
    weir__heap_deinit(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(begins_empty_and_without_memory),
        weir_case(the_first_push_makes_room_for_eleven),
        weir_case(gives_the_smallest_key_first),
        weir_case(equal_keys_come_in_the_order_they_went),
        weir_case(a_node_pushed_again_is_last_among_equals),
        weir_case(the_largest_and_smallest_keys_are_in_order),
        weir_case(removes_from_every_place),
        weir_case(removing_an_absent_node_does_nothing),
        weir_case(update_moves_among_equals_to_last),
        weir_case(deinit_sets_the_nodes_free),
        weir_case(failing_growth_changes_nothing),
        weir_case(only_growth_takes_memory),
        weir_case(agrees_with_the_model_while_large),
        weir_case(agrees_with_the_model_while_small),
        weir_case(agrees_with_the_model_on_few_keys),
        weir_case(misuse_asserts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
