/* SPDX-License-Identifier: MIT */
/* Cases of base/: the queue between threads, the heap of timers, the reference count. */
#include "bench.h"

#include "base/heap.h"
#include "base/list.h"
#include "base/mpsc.h"

#include <weir/msg.h>

#include <stdlib.h>

/* Queues: `size` producers, each with messages that go round, and one consumer -------------- */

#define WINDOW 1024  /* messages of a producer */
#define GIVE_BACK 64 /* how many the consumer takes before it tells */

typedef struct producer producer;

typedef struct message {
    weir_mpsc_node node;
    weir_list_node link; /* the peers' */
    producer *from;
} message;

typedef struct mailbox {
    weir_mpsc mpsc;
    _Alignas(64) pthread_mutex_t lock;
    weir_list list;  /* under the lock */
    weir_list taken; /* the consumer's: what it took in one go */
} mailbox;

typedef void (*push_fn)(mailbox *box, message *msg);
typedef message *(*pop_fn)(mailbox *box);

struct producer {
    _Alignas(64) _Atomic(uint64_t) returned; /* by the consumer */
    _Alignas(64) mailbox *box;
    push_fn push;
    pthread_barrier_t *begin;
    uint64_t count;
    uint64_t popped; /* the consumer's */
    bench_thread thread;
    message messages[WINDOW];
};

static void mpsc_push(mailbox *box, message *msg)
{
    weir__mpsc_push(&box->mpsc, &msg->node);
}

static message *mpsc_pop(mailbox *box)
{
    weir_mpsc_node *node = weir__mpsc_pop(&box->mpsc);
    return node != NULL ? WEIR_CONTAINER(node, message, node) : NULL;
}

static void locked_push(mailbox *box, message *msg)
{
    pthread_mutex_lock(&box->lock);
    weir__list_push_back(&box->list, &msg->link);
    pthread_mutex_unlock(&box->lock);
}

static message *locked_pop(mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    weir_list_node *link = weir__list_pop_front(&box->list);
    pthread_mutex_unlock(&box->lock);
    return link != NULL ? WEIR_CONTAINER(link, message, link) : NULL;
}

/* Locks only when what it took before is used up. */
static message *locked_pop_all(mailbox *box)
{
    if (weir__list_is_empty(&box->taken)) {
        pthread_mutex_lock(&box->lock);
        weir__list_splice_back(&box->taken, &box->list);
        pthread_mutex_unlock(&box->lock);
    }
    weir_list_node *link = weir__list_pop_front(&box->taken);
    return link != NULL ? WEIR_CONTAINER(link, message, link) : NULL;
}

static void produce(void *arg)
{
    producer *self = arg;
    push_fn push = self->push;
    uint64_t returned = 0;
    pthread_barrier_wait(self->begin);
    for (uint64_t sent = 0; sent < self->count; sent++) {
        unsigned turns = 0;
        while (sent - returned == WINDOW) {
            returned = atomic_load_explicit(&self->returned, memory_order_acquire);
            if (sent - returned == WINDOW)
                bench_wait(&turns);
        }
        push(self->box, &self->messages[sent % WINDOW]);
    }
}

static void consume(mailbox *box, pop_fn pop, uint64_t count)
{
    unsigned turns = 0;
    while (count > 0) {
        message *msg = pop(box);
        if (msg == NULL) {
            bench_wait(&turns);
            continue;
        }
        count--;
        producer *from = msg->from;
        if (++from->popped % GIVE_BACK == 0)
            atomic_store_explicit(&from->returned, from->popped, memory_order_release);
    }
}

static void run_queue(bench_run *run, push_fn push, pop_fn pop)
{
    size_t producers = run->size;
    pthread_barrier_t begin;
    mailbox *box = bench_alloc(sizeof *box);
    producer *all = bench_alloc(producers * sizeof *all);
    weir__mpsc_init(&box->mpsc);
    weir__list_init(&box->list);
    weir__list_init(&box->taken);
    pthread_mutex_init(&box->lock, NULL);
    pthread_barrier_init(&begin, NULL, (unsigned)producers + 1);
    bench_pin(0);
    for (size_t i = 0; i < producers; i++) {
        all[i].box = box;
        all[i].push = push;
        all[i].begin = &begin;
        all[i].count = run->count;
        for (size_t j = 0; j < WINDOW; j++)
            all[i].messages[j].from = &all[i];
        /* The consumer has a CPU for itself, as an event loop would. */
        unsigned others = bench_cpu_count() > 1 ? bench_cpu_count() - 1 : 1;
        bench_thread_start(&all[i].thread, 1 + (unsigned)i % others, produce, &all[i]);
    }
    pthread_barrier_wait(&begin);
    bench_start(run);
    consume(box, pop, run->count * producers);
    bench_stop(run);
    for (size_t i = 0; i < producers; i++)
        bench_thread_join(&all[i].thread);
    pthread_barrier_destroy(&begin);
    pthread_mutex_destroy(&box->lock);
    free(all);
    free(box);
}

static void queue_mpsc(bench_run *run)
{
    run_queue(run, mpsc_push, mpsc_pop);
}

static void queue_locked(bench_run *run)
{
    run_queue(run, locked_push, locked_pop);
}

static void queue_locked_all(bench_run *run)
{
    run_queue(run, locked_push, locked_pop_all);
}

/* The heap, with `size` entries alive ------------------------------------------------------- */

#define KEY_RANGE 1000000000u /* as timers within the next second */

static weir_heap_node *fill_heap(weir_heap *heap, size_t count, uint64_t *random)
{
    weir_heap_node *nodes = bench_alloc(count * sizeof *nodes);
    for (size_t i = 0; i < count; i++) {
        if (weir__heap_push(heap, &nodes[i], (int64_t)(bench_random(random) % KEY_RANGE)) < 0)
            bench_fail("no memory for a heap of %zu", count);
    }
    return nodes;
}

/* A timer fires and is set again. */
static void heap_push_pop(bench_run *run)
{
    uint64_t random = 88172645463325252u;
    weir_heap heap = { 0 };
    weir_heap_node *nodes = fill_heap(&heap, run->size, &random);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        weir_heap_node *first = weir__heap_pop(&heap);
        weir__heap_push(&heap, first, first->key + (int64_t)(bench_random(&random) % KEY_RANGE));
    }
    bench_stop(run);
    weir__heap_deinit(&heap);
    free(nodes);
}

/* A timer is cancelled before it fires and set anew. */
static void heap_push_remove(bench_run *run)
{
    uint64_t random = 88172645463325252u;
    weir_heap heap = { 0 };
    weir_heap_node *nodes = fill_heap(&heap, run->size, &random);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        weir_heap_node *any = &nodes[bench_random(&random) % run->size];
        weir__heap_remove(&heap, any);
        weir__heap_push(&heap, any, (int64_t)(bench_random(&random) % KEY_RANGE));
    }
    bench_stop(run);
    weir__heap_deinit(&heap);
    free(nodes);
}

/* Messages ---------------------------------------------------------------------------------- */

static void note_destroy(weir_msg *msg)
{
    (void)msg;
}

static const weir_msg_type note_type = { "note", NULL, note_destroy };

static void msg_retain_release(bench_run *run)
{
    weir_msg msg;
    weir_msg_init(&msg, &note_type);
    for (uint64_t i = 0; i < run->count; i++) {
        weir_msg *at = bench_hide(&msg);
        weir_msg_release(weir_msg_retain(at));
    }
    if (weir_msg_refs(&msg) != 1)
        bench_fail("retain and release do not balance");
    weir_msg_release(&msg);
}

static void atomic_up_down(bench_run *run)
{
    _Atomic(uint32_t) refs = 1;
    for (uint64_t i = 0; i < run->count; i++) {
        _Atomic(uint32_t) *at = bench_hide(&refs);
        atomic_fetch_add_explicit(at, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(at, 1, memory_order_acq_rel);
    }
}

const bench_case bench_base_cases[] = {
    { "base.mpsc_1", "a message from one producer thread, pushed and popped", queue_mpsc,
      .batch = 1, .size = 1,
      .peers = { { "mutex, one", queue_locked, 0 }, { "mutex, all", queue_locked_all, 0 } } },
    { "base.mpsc_4", "a message from one of four producer threads, pushed and popped", queue_mpsc,
      .batch = 4, .size = 4,
      .peers = { { "mutex, one", queue_locked, 0 }, { "mutex, all", queue_locked_all, 0 } } },
    { "base.heap_push_pop_1k", "pop the first of 1,000 and push it with a later key", heap_push_pop,
      BENCH_CPU, .size = 1000 },
    { "base.heap_push_pop_1m", "pop the first of 1,000,000 and push it with a later key",
      heap_push_pop, BENCH_CPU, .size = 1000000 },
    { "base.heap_push_remove_1k", "remove any one of 1,000 and push it with another key",
      heap_push_remove, BENCH_CPU, .size = 1000 },
    { "base.heap_push_remove_1m", "remove any one of 1,000,000 and push it with another key",
      heap_push_remove, BENCH_CPU, .size = 1000000 },
    { "msg.retain_release", "one more reference, and back", msg_retain_release, BENCH_CPU,
      .peers = { { "atomic add+sub", atomic_up_down, 0 } } },
    { 0 },
};
