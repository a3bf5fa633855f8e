/* SPDX-License-Identifier: MIT */
/* An intrusive queue: any number of producers, lock-free, and one consumer. */
#ifndef WEIR_BASE_MPSC_H
#define WEIR_BASE_MPSC_H

#include <weir/node.h>

#include <stdatomic.h>

/*
 *   consumer                                       producers
 *      |                                               |
 *    first -> [a] -> [b] -> [c] <- last     [d] <- [e] <- newest
 *
 * Producers push onto a stack, with one compare-and-swap. When the consumer has used up what it
 * took before, it takes the whole stack with one exchange and turns it round. Nobody but the
 * consumer takes anything out, so a node cannot come back under a producer's hands.
 */
typedef struct weir_mpsc {
    _Atomic(weir_mpsc_node *) newest; /* the producers' */
    char apart[56];                   /* keeps the two ends on different cache lines */
    weir_mpsc_node *first, *last;     /* the consumer's */
    size_t taken;                     /* how many those are */
} weir_mpsc;

static inline void weir__mpsc_init(weir_mpsc *queue)
{
    atomic_init(&queue->newest, NULL);
    queue->first = queue->last = NULL;
    queue->taken = 0;
}

/* The producers' end alone, for who keeps what it takes elsewhere. Any thread pushes; the consumer
 * takes everything, in the order of pushing: NULL when there is nothing. */
static inline void weir__mpsc_push_to(_Atomic(weir_mpsc_node *) *newest, weir_mpsc_node *node)
{
    weir_mpsc_node *before = atomic_load_explicit(newest, memory_order_relaxed);
    do {
        node->next = before;
    } while (!atomic_compare_exchange_weak_explicit(newest, &before, node, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

static inline weir_mpsc_node *weir__mpsc_take_from(_Atomic(weir_mpsc_node *) *newest,
                                                   weir_mpsc_node **last, size_t *count)
{
    weir_mpsc_node *node = atomic_exchange_explicit(newest, NULL, memory_order_acquire);
    weir_mpsc_node *first = NULL;
    *last = node;
    *count = 0;
    while (node != NULL) {
        weir_mpsc_node *next = node->next;
        node->next = first;
        first = node;
        node = next;
        ++*count;
    }
    return first;
}

/* Any thread. The node belongs to the queue until it is popped. */
static inline void weir__mpsc_push(weir_mpsc *queue, weir_mpsc_node *node)
{
    weir__mpsc_push_to(&queue->newest, node);
}

/* Consumer only. Takes over what was pushed until now. */
static inline void weir__mpsc_take(weir_mpsc *queue)
{
    if (atomic_load_explicit(&queue->newest, memory_order_seq_cst) == NULL)
        return;
    size_t count;
    weir_mpsc_node *last, *first = weir__mpsc_take_from(&queue->newest, &last, &count);
    if (queue->first == NULL)
        queue->first = first;
    else
        queue->last->next = first;
    queue->last = last;
    queue->taken += count;
}

/* Consumer only. Pushes a node itself, behind all that was pushed until now, which is cheaper; and
 * says which is in front of it, NULL when there is none. */
static inline weir_mpsc_node *weir__mpsc_append(weir_mpsc *queue, weir_mpsc_node *node)
{
    weir__mpsc_take(queue);
    weir_mpsc_node *before = queue->first != NULL ? queue->last : NULL;
    node->next = NULL;
    if (before == NULL)
        queue->first = node;
    else
        before->next = node;
    queue->last = node;
    queue->taken++;
    return before;
}

/* Consumer only. Of what it has taken over; NULL when there is none. */
static inline weir_mpsc_node *weir__mpsc_pop_taken(weir_mpsc *queue)
{
    weir_mpsc_node *node = queue->first;
    if (node != NULL) {
        queue->first = node->next;
        queue->taken--;
    }
    return node;
}

/* Consumer only. NULL when there is none. */
static inline weir_mpsc_node *weir__mpsc_pop(weir_mpsc *queue)
{
    if (queue->first == NULL)
        weir__mpsc_take(queue);
    return weir__mpsc_pop_taken(queue);
}

/* Consumer only, and slow. Removes a node; false if it is not in the queue. */
static inline bool weir__mpsc_remove(weir_mpsc *queue, weir_mpsc_node *node)
{
    weir_mpsc_node *before = NULL;
    weir__mpsc_take(queue);
    for (weir_mpsc_node **at = &queue->first; *at != NULL; before = *at, at = &(*at)->next) {
        if (*at != node)
            continue;
        *at = node->next;
        if (queue->last == node)
            queue->last = before;
        queue->taken--;
        return true;
    }
    return false;
}

/* Consumer only. Takes out a node that it has appended, and that `before` was in front of. When
 * that has been popped since, this one is the first, and nobody looks at it. */
static inline void weir__mpsc_remove_behind(weir_mpsc *queue, weir_mpsc_node *before,
                                            weir_mpsc_node *node)
{
    if (queue->first == node)
        queue->first = node->next;
    else
        before->next = node->next;
    if (queue->last == node)
        queue->last = before;
    queue->taken--;
}

/* Consumer only. Takes over what it finds, so the next calls need not look at the producers' end.
 */
static inline bool weir__mpsc_is_empty(weir_mpsc *queue)
{
    if (queue->first == NULL)
        weir__mpsc_take(queue);
    return queue->first == NULL;
}

#endif
