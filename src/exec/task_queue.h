/* SPDX-License-Identifier: MIT */
/* A queue of tasks: many producers, one consumer, and a bound when one is asked for. */
#ifndef WEIR_EXEC_TASK_QUEUE_H
#define WEIR_EXEC_TASK_QUEUE_H

#include "base/mpsc.h"

#include <weir/executor.h>

typedef struct weir_task_queue {
    uint32_t bound;          /* 0: none */
    _Atomic(uint32_t) count; /* how many are in it; kept only with a bound */
    weir_mpsc mpsc;          /* its first field is the producers', as these are */
    bool is_bounded;         /* the consumer's copy: it should not look at what producers write */
} weir_task_queue;

/* `bound` above 0 is raised to 16, so that weir's own tasks always find room. */
void weir__task_queue_init(weir_task_queue *queue, uint32_t bound);

/* Counts one more; -EAGAIN at the bound. */
int weir__task_queue_take_place(weir_task_queue *queue);

static inline void weir__task_queue_put(weir_task_queue *queue, weir_task *task, bool is_consumer)
{
    if (is_consumer)
        weir__mpsc_append(&queue->mpsc, &task->node);
    else
        weir__mpsc_push(&queue->mpsc, &task->node);
}

/* Any thread; who is the consumer says so. -EAGAIN when the queue is at its bound. */
static inline int weir__task_queue_push(weir_task_queue *queue, weir_task *task, bool is_consumer)
{
    int code = queue->bound > 0 ? weir__task_queue_take_place(queue) : 0;
    if (code == 0)
        weir__task_queue_put(queue, task, is_consumer);
    return code;
}

/* The consumer's own, for a task that may be taken out again: the same, and what is in front of it,
 * NULL for nothing. */
static inline int weir__task_queue_append(weir_task_queue *queue, weir_task *task,
                                          weir_mpsc_node **before)
{
    int code = queue->bound > 0 ? weir__task_queue_take_place(queue) : 0;
    if (code == 0)
        *before = weir__mpsc_append(&queue->mpsc, &task->node);
    return code;
}

/* The same for tasks that must not be refused. */
void weir__task_queue_push_always(weir_task_queue *queue, weir_task *task, bool is_consumer);

/* Consumer only. NULL when there is none; the second one, when there is none that it has taken
 * over. */
weir_task *weir__task_queue_pop(weir_task_queue *queue);
weir_task *weir__task_queue_pop_taken(weir_task_queue *queue);

/* Consumer only. A queue that is not empty has then been taken over. */
static inline bool weir__task_queue_is_empty(weir_task_queue *queue)
{
    return weir__mpsc_is_empty(&queue->mpsc);
}

/* Any thread. Whether there is a task that the consumer has not taken over yet. */
static inline bool weir__task_queue_has_new(const weir_task_queue *queue)
{
    return atomic_load_explicit(&queue->mpsc.newest, memory_order_seq_cst) != NULL;
}

/* Consumer only. How many there are now; and how many of those it has taken over already, which
 * costs nothing to know. */
size_t weir__task_queue_count(weir_task_queue *queue);
static inline size_t weir__task_queue_taken(const weir_task_queue *queue)
{
    return queue->mpsc.taken;
}

/* Consumer only, and slow. Removes a task and keeps the order of the others. False if it has been
 * popped. */
bool weir__task_queue_take_back(weir_task_queue *queue, weir_task *task);

/* Consumer only, and quick: of one that was appended. Whoever keeps what is in front of the next
 * one has a new one to keep. */
void weir__task_queue_take_out(weir_task_queue *queue, weir_mpsc_node *before, weir_task *task);

#endif
