/* SPDX-License-Identifier: MIT */
/* The queue's gap: what the consumer sees while a producer is between its two steps. */
#include "harness.h"

#include "base/list.h"

#include <stdatomic.h>

/* The queue's exchange goes through here, where another thread's steps can come in between. */

typedef struct weir_mpsc_node weir_mpsc_node;

static void (*before_exchange)(void); /* called once */

static weir_mpsc_node *exchange(_Atomic(weir_mpsc_node *) *object, weir_mpsc_node *desired)
{
    void (*meanwhile)(void) = before_exchange;
    before_exchange = NULL;
    if (meanwhile != NULL)
        meanwhile();
    return atomic_exchange(object, desired);
}

#undef atomic_exchange_explicit
#define atomic_exchange_explicit(object, desired, order) exchange(object, desired)

#include "base/mpsc.h"

typedef struct item {
    int number; /* before the node, so that the container is not at the node's own address */
    weir_mpsc_node node;
} item;

static item *pop(weir_mpsc *queue)
{
    weir_mpsc_node *node = weir__mpsc_pop(queue);
    return node != NULL ? WEIR_CONTAINER(node, item, node) : NULL;
}

/* The two steps of a push, one at a time, as a producer takes them. */

static weir_mpsc_node *begin_push(weir_mpsc *queue, item *pushed)
{
    atomic_store_explicit(&pushed->node.next, NULL, memory_order_relaxed);
    return atomic_exchange_explicit(&queue->head, &pushed->node, memory_order_acq_rel);
}

static void end_push(weir_mpsc_node *before, item *pushed)
{
    atomic_store_explicit(&before->next, &pushed->node, memory_order_release);
}

static void gap_in_an_empty_queue(void **state)
{
    (void)state;
    weir_mpsc queue;
    item one;
    weir__mpsc_init(&queue);
    weir_mpsc_node *before = begin_push(&queue, &one);
    for (int i = 0; i < 3; i++) {
        assert_null(pop(&queue));
        assert_false(weir__mpsc_is_empty(&queue));
    }
    end_push(before, &one);
    assert_false(weir__mpsc_is_empty(&queue));
    assert_ptr_equal(pop(&queue), &one);
    assert_true(weir__mpsc_is_empty(&queue));
    assert_null(pop(&queue));
}

/* What lies before the gap comes out, but for the one node that the paused producer will write to.
 */
static void gap_behind_others(void **state)
{
    (void)state;
    weir_mpsc queue;
    item items[4];
    weir__mpsc_init(&queue);
    for (int i = 0; i < 3; i++)
        weir__mpsc_push(&queue, &items[i].node);
    weir_mpsc_node *before = begin_push(&queue, &items[3]);
    assert_ptr_equal(before, &items[2].node);
    assert_ptr_equal(pop(&queue), &items[0]);
    assert_ptr_equal(pop(&queue), &items[1]);
    for (int i = 0; i < 3; i++) {
        assert_null(pop(&queue));
        assert_false(weir__mpsc_is_empty(&queue));
    }
    end_push(before, &items[3]);
    assert_ptr_equal(pop(&queue), &items[2]);
    assert_ptr_equal(pop(&queue), &items[3]);
    assert_true(weir__mpsc_is_empty(&queue));
}

static void pushes_behind_a_gap_wait_for_it(void **state)
{
    (void)state;
    weir_mpsc queue;
    item paused, later[3];
    weir__mpsc_init(&queue);
    weir_mpsc_node *before = begin_push(&queue, &paused);
    for (int i = 0; i < 3; i++)
        weir__mpsc_push(&queue, &later[i].node);
    assert_null(pop(&queue));
    assert_false(weir__mpsc_is_empty(&queue));
    end_push(before, &paused);
    assert_ptr_equal(pop(&queue), &paused);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(pop(&queue), &later[i]);
    assert_true(weir__mpsc_is_empty(&queue));
}

static void two_gaps_close_in_either_order(void **state)
{
    (void)state;
    for (int second_first = 0; second_first < 2; second_first++) {
        weir_mpsc queue;
        item first, between, second;
        weir__mpsc_init(&queue);
        weir_mpsc_node *before_first = begin_push(&queue, &first);
        weir__mpsc_push(&queue, &between.node);
        weir_mpsc_node *before_second = begin_push(&queue, &second);
        assert_null(pop(&queue));
        if (second_first) {
            end_push(before_second, &second);
            assert_null(pop(&queue));
            end_push(before_first, &first);
            assert_ptr_equal(pop(&queue), &first);
            assert_ptr_equal(pop(&queue), &between);
        } else {
            end_push(before_first, &first);
            assert_ptr_equal(pop(&queue), &first);
            assert_null(pop(&queue)); /* the second gap is right behind it */
            assert_false(weir__mpsc_is_empty(&queue));
            end_push(before_second, &second);
            assert_ptr_equal(pop(&queue), &between);
        }
        assert_ptr_equal(pop(&queue), &second);
        assert_true(weir__mpsc_is_empty(&queue));
    }
}

/*
 * The narrowest place: the consumer has seen that its node is the last, and a producer takes its
 * place before the consumer's stub does. Then the stub stands behind the paused node.
 */

static weir_mpsc *contended;
static item latecomer;
static weir_mpsc_node *before_latecomer;

static void come_late(void)
{
    before_latecomer = begin_push(contended, &latecomer);
}

static void gap_that_opens_while_the_stub_goes_in(void **state)
{
    (void)state;
    weir_mpsc queue;
    item last;
    weir__mpsc_init(&queue);
    weir__mpsc_push(&queue, &last.node);
    contended = &queue;
    before_exchange = come_late;
    assert_null(pop(&queue));
    assert_null(before_exchange); /* it has been in there */
    assert_ptr_equal(before_latecomer, &last.node);
    for (int i = 0; i < 3; i++) {
        assert_null(pop(&queue));
        assert_false(weir__mpsc_is_empty(&queue));
    }
    end_push(before_latecomer, &latecomer);
    assert_ptr_equal(pop(&queue), &last);
    assert_false(weir__mpsc_is_empty(&queue));
    assert_ptr_equal(pop(&queue), &latecomer);
    assert_true(weir__mpsc_is_empty(&queue));
    assert_null(pop(&queue));
}

static void push_late(void)
{
    weir__mpsc_push(contended, &latecomer.node);
}

static void push_that_comes_while_the_stub_goes_in(void **state)
{
    (void)state;
    weir_mpsc queue;
    item last;
    weir__mpsc_init(&queue);
    weir__mpsc_push(&queue, &last.node);
    contended = &queue;
    before_exchange = push_late;
    assert_ptr_equal(pop(&queue), &last);
    assert_false(weir__mpsc_is_empty(&queue));
    assert_ptr_equal(pop(&queue), &latecomer);
    assert_true(weir__mpsc_is_empty(&queue));
    assert_null(pop(&queue));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(gap_in_an_empty_queue),
        weir_case(gap_behind_others),
        weir_case(pushes_behind_a_gap_wait_for_it),
        weir_case(two_gaps_close_in_either_order),
        weir_case(gap_that_opens_while_the_stub_goes_in),
        weir_case(push_that_comes_while_the_stub_goes_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
