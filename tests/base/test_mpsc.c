/* SPDX-License-Identifier: MIT */
/* The queue of many producers and one consumer: order, and nothing lost. */
#include "harness.h"

#include "base/list.h"
#include "base/mpsc.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

typedef struct item {
    unsigned producer;
    unsigned number;
    weir_mpsc_node node;
} item;

static item *item_of(weir_mpsc_node *node)
{
    return node != NULL ? WEIR_CONTAINER(node, item, node) : NULL;
}

static item *pop(weir_mpsc *queue)
{
    return item_of(weir__mpsc_pop(queue));
}

static void begins_empty(void **state)
{
    (void)state;
    weir_mpsc queue;
    weir__mpsc_init(&queue);
    assert_true(weir__mpsc_is_empty(&queue));
    assert_null(weir__mpsc_pop(&queue));
    assert_null(weir__mpsc_pop(&queue));
    assert_true(weir__mpsc_is_empty(&queue));
}

static void the_ends_share_no_cache_line(void **state)
{
    (void)state;
    weir_mpsc queue;
    weir__mpsc_init(&queue);
    assert_true((uintptr_t)&queue.first - (uintptr_t)&queue.newest >= 64);
}

static void gives_back_in_order(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    weir_mpsc queue;
    item items[COUNT];
    weir__mpsc_init(&queue);
    for (int i = 0; i < COUNT; i++) {
        weir__mpsc_push(&queue, &items[i].node);
        assert_false(weir__mpsc_is_empty(&queue));
    }
    for (int i = 0; i < COUNT; i++) {
        assert_false(weir__mpsc_is_empty(&queue));
        assert_ptr_equal(pop(&queue), &items[i]);
    }
    assert_true(weir__mpsc_is_empty(&queue));
    assert_null(pop(&queue));
}

/* Every length in turn. */
static void empties_and_refills(void **state)
{
    (void)state;
    enum { ROUNDS = 2000, MOST = 7 };
    weir_mpsc queue;
    item items[MOST];
    weir__mpsc_init(&queue);
    for (int round = 0; round < ROUNDS; round++) {
        int count = round % (MOST + 1);
        for (int i = 0; i < count; i++)
            weir__mpsc_push(&queue, &items[i].node);
        for (int i = 0; i < count; i++) {
            assert_false(weir__mpsc_is_empty(&queue));
            assert_ptr_equal(pop(&queue), &items[i]);
        }
        assert_true(weir__mpsc_is_empty(&queue));
        assert_null(pop(&queue));
    }
}

/* Never quite empty, so that what is taken over goes behind what was taken before. */
static void goes_round_without_ever_being_empty(void **state)
{
    (void)state;
    enum { ROUNDS = 2000, KEPT = 3 };
    weir_mpsc queue;
    item items[KEPT + 1];
    weir__mpsc_init(&queue);
    for (int i = 0; i < KEPT; i++)
        weir__mpsc_push(&queue, &items[i].node);
    for (int round = 0; round < ROUNDS; round++) {
        weir__mpsc_push(&queue, &items[(round + KEPT) % (KEPT + 1)].node);
        assert_ptr_equal(pop(&queue), &items[round % (KEPT + 1)]);
        assert_false(weir__mpsc_is_empty(&queue));
    }
    for (int i = 0; i < KEPT; i++)
        assert_ptr_equal(pop(&queue), &items[(ROUNDS + i) % (KEPT + 1)]);
    assert_true(weir__mpsc_is_empty(&queue));
}

static void a_node_may_go_in_again_as_soon_as_it_is_out(void **state)
{
    (void)state;
    weir_mpsc queue;
    item one, two;
    weir__mpsc_init(&queue);
    weir__mpsc_push(&queue, &one.node);
    weir__mpsc_push(&queue, &two.node);
    for (int i = 0; i < 1000; i++) {
        assert_ptr_equal(pop(&queue), &one);
        weir__mpsc_push(&queue, &one.node);
        assert_ptr_equal(pop(&queue), &two);
        weir__mpsc_push(&queue, &two.node);
    }
    assert_ptr_equal(pop(&queue), &one);
    assert_ptr_equal(pop(&queue), &two);
    for (int i = 0; i < 1000; i++) {
        weir__mpsc_push(&queue, &one.node);
        assert_ptr_equal(pop(&queue), &one);
    }
    assert_true(weir__mpsc_is_empty(&queue));
}

/* Threads ------------------------------------------------------------------------------------ */

#define PER_PRODUCER 20000u
#define MOST_PRODUCERS 8

typedef struct producer {
    weir_mpsc *queue;
    item *items;
    unsigned index;
    pthread_barrier_t *start;
    pthread_t thread;
} producer;

static void *push_all(void *arg)
{
    producer *self = arg;
    pthread_barrier_wait(self->start);
    for (unsigned i = 0; i < PER_PRODUCER; i++) {
        self->items[i].producer = self->index;
        self->items[i].number = i;
        weir__mpsc_push(self->queue, &self->items[i].node);
        if (i % 1000 == 999)
            sched_yield(); /* so that the queue also falls empty now and then */
    }
    return NULL;
}

static void producers_lose_nothing(unsigned count)
{
    weir_mpsc queue;
    pthread_barrier_t start;
    producer producers[MOST_PRODUCERS];
    unsigned expected[MOST_PRODUCERS] = { 0 }, misplaced = 0;
    weir__mpsc_init(&queue);
    pthread_barrier_init(&start, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        producers[i] = (producer){ &queue, calloc(PER_PRODUCER, sizeof(item)), i, &start, 0 };
        assert_non_null(producers[i].items);
        assert_int_equal(pthread_create(&producers[i].thread, NULL, push_all, &producers[i]), 0);
    }
    pthread_barrier_wait(&start);
    for (unsigned received = 0; received < count * PER_PRODUCER;) {
        item *popped = pop(&queue);
        if (popped == NULL) {
            sched_yield();
            continue;
        }
        received++;
        if (popped->producer >= count || popped->number != expected[popped->producer]++)
            misplaced++;
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(producers[i].thread, NULL);
    pthread_barrier_destroy(&start);
    assert_int_equal(misplaced, 0);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(expected[i], PER_PRODUCER);
        free(producers[i].items);
    }
    assert_true(weir__mpsc_is_empty(&queue));
    assert_null(pop(&queue));
}

static void one_producer_loses_nothing(void **state)
{
    (void)state;
    producers_lose_nothing(1);
}

static void four_producers_lose_nothing(void **state)
{
    (void)state;
    producers_lose_nothing(4);
}

static void eight_producers_lose_nothing(void **state)
{
    (void)state;
    producers_lose_nothing(8);
}

static void *push_new_ones(void *arg)
{
    producer *self = arg;
    pthread_barrier_wait(self->start);
    for (unsigned i = 0; i < PER_PRODUCER; i++) {
        item *made = malloc(sizeof *made);
        if (made == NULL)
            abort();
        made->producer = self->index;
        made->number = i;
        weir__mpsc_push(self->queue, &made->node);
    }
    return NULL;
}

/* Once popped a node is touched by nobody: sanitizers would see it when it is freed at once. */
static void a_popped_node_may_be_freed_at_once(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    weir_mpsc queue;
    pthread_barrier_t start;
    producer producers[COUNT];
    unsigned expected[COUNT] = { 0 }, misplaced = 0;
    weir__mpsc_init(&queue);
    pthread_barrier_init(&start, NULL, COUNT + 1);
    for (unsigned i = 0; i < COUNT; i++) {
        producers[i] = (producer){ &queue, NULL, i, &start, 0 };
        assert_int_equal(pthread_create(&producers[i].thread, NULL, push_new_ones, &producers[i]),
                         0);
    }
    pthread_barrier_wait(&start);
    for (unsigned received = 0; received < COUNT * PER_PRODUCER;) {
        item *popped = pop(&queue);
        if (popped == NULL) {
            sched_yield();
            continue;
        }
        received++;
        if (popped->number != expected[popped->producer]++)
            misplaced++;
        free(popped);
    }
    for (unsigned i = 0; i < COUNT; i++)
        pthread_join(producers[i].thread, NULL);
    pthread_barrier_destroy(&start);
    assert_int_equal(misplaced, 0);
    assert_true(weir__mpsc_is_empty(&queue));
}

/* Two queues and two threads that send the same few nodes to and fro. */

typedef struct player {
    weir_mpsc *mine, *theirs;
    unsigned hits;
} player;

#define RALLY 20000u

static void *play(void *arg)
{
    player *self = arg;
    while (self->hits < RALLY) {
        item *ball = pop(self->mine);
        if (ball == NULL) {
            sched_yield();
            continue;
        }
        ball->number++;
        self->hits++;
        weir__mpsc_push(self->theirs, &ball->node);
    }
    return NULL;
}

static void nodes_go_to_and_fro_between_threads(void **state)
{
    (void)state;
    enum { BALLS = 3 };
    weir_mpsc left, right;
    item balls[BALLS] = { 0 };
    weir__mpsc_init(&left);
    weir__mpsc_init(&right);
    for (int i = 0; i < BALLS; i++)
        weir__mpsc_push(&left, &balls[i].node);
    player first = { &left, &right, 0 }, second = { &right, &left, 0 };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, play, &second), 0);
    play(&first);
    pthread_join(thread, NULL);
    unsigned sum = 0, found = 0;
    for (item *ball; (ball = pop(&left)) != NULL || (ball = pop(&right)) != NULL;) {
        sum += ball->number;
        found++;
    }
    assert_int_equal(found, BALLS);
    assert_int_equal(sum, 2 * RALLY);
    assert_true(weir__mpsc_is_empty(&left));
    assert_true(weir__mpsc_is_empty(&right));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(begins_empty),
        weir_case(the_ends_share_no_cache_line),
        weir_case(gives_back_in_order),
        weir_case(empties_and_refills),
        weir_case(goes_round_without_ever_being_empty),
        weir_case(a_node_may_go_in_again_as_soon_as_it_is_out),
        weir_case(one_producer_loses_nothing),
        weir_case(four_producers_lose_nothing),
        weir_case(eight_producers_lose_nothing),
        weir_case(a_popped_node_may_be_freed_at_once),
        weir_case(nodes_go_to_and_fro_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
