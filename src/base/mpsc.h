/* SPDX-License-Identifier: MIT */
/* An intrusive queue: any number of producers, wait-free, and one consumer. */
#ifndef WEIR_BASE_MPSC_H
#define WEIR_BASE_MPSC_H

#include <weir/node.h>

#include <stdatomic.h>

/*
 *   consumer                                producers
 *      |                                        |
 *     tail -> [a] -> [b] -> [c]       [d] <- head
 *                              ^^^^^^^^
 *                   d's producer is between its two steps
 *
 * A producer takes its place with one exchange of `head`, then links the node before it to
 * its own. Between the two the chain is broken there: the consumer gets what lies before the
 * gap, but for the last node, and the rest as soon as that producer goes on. A stub keeps the
 * chain from ever being empty.
 */
typedef struct weir_mpsc {
    _Atomic(weir_mpsc_node *) head; /* the producers' end */
    char apart[64];                 /* keeps the two ends on different cache lines */
    weir_mpsc_node *tail;           /* the consumer's end */
    weir_mpsc_node stub;
} weir_mpsc;

static inline void weir__mpsc_init(weir_mpsc *queue)
{
    atomic_init(&queue->stub.next, NULL);
    atomic_init(&queue->head, &queue->stub);
    queue->tail = &queue->stub;
}

/* Any thread. The node belongs to the queue until it is popped. */
static inline void weir__mpsc_push(weir_mpsc *queue, weir_mpsc_node *node)
{
    atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
    /* Release: the node's contents before its place. Acquire: the node before was initialised. And
     * in one order with whatever flag a sleeping consumer sets before it looks once more. */
    weir_mpsc_node *before = atomic_exchange_explicit(&queue->head, node, memory_order_seq_cst);
    atomic_store_explicit(&before->next, node, memory_order_release);
}

/*
 * Consumer only. NULL when the queue is empty, and also when the next node or the one behind it
 * comes from a producer between its two steps: weir__mpsc_is_empty tells the two apart.
 */
static inline weir_mpsc_node *weir__mpsc_pop(weir_mpsc *queue)
{
    weir_mpsc_node *tail = queue->tail;
    weir_mpsc_node *next = atomic_load_explicit(&tail->next, memory_order_acquire);
    if (tail == &queue->stub) {
        if (next == NULL)
            return NULL;
        queue->tail = tail = next;
        next = atomic_load_explicit(&tail->next, memory_order_acquire);
    }
    if (next == NULL) {
        /* The last node cannot leave without one behind it: put the stub there. */
        if (tail != atomic_load_explicit(&queue->head, memory_order_acquire))
            return NULL;
        weir__mpsc_push(queue, &queue->stub);
        next = atomic_load_explicit(&tail->next, memory_order_acquire);
        if (next == NULL)
            return NULL;
    }
    queue->tail = next;
    return tail;
}

/* Consumer only. A push that has begun counts as in the queue. */
static inline bool weir__mpsc_is_empty(weir_mpsc *queue)
{
    return queue->tail == &queue->stub &&
           atomic_load_explicit(&queue->head, memory_order_seq_cst) == &queue->stub;
}

#endif
