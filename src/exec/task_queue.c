/* SPDX-License-Identifier: MIT */
/* The task queue. */
#include "exec/task_queue.h"

#include "base/list.h"

#include <errno.h>

#define LEAST_BOUND 16

void weir__task_queue_init(weir_task_queue *queue, uint32_t bound)
{
    weir__mpsc_init(&queue->mpsc);
    atomic_init(&queue->count, 0);
    queue->bound = bound == 0 || bound >= LEAST_BOUND ? bound : LEAST_BOUND;
    queue->is_bounded = bound > 0;
}

int weir__task_queue_take_place(weir_task_queue *queue)
{
    if (atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed) < queue->bound)
        return 0;
    atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
    return -EAGAIN;
}

void weir__task_queue_push_always(weir_task_queue *queue, weir_task *task, bool is_consumer)
{
    if (queue->bound > 0)
        atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed);
    weir__task_queue_put(queue, task, is_consumer);
}

/* The task of a node that has left the queue. */
static weir_task *leave(weir_task_queue *queue, weir_mpsc_node *node)
{
    if (node == NULL)
        return NULL;
    if (queue->is_bounded)
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
    return WEIR_CONTAINER(node, weir_task, node);
}

weir_task *weir__task_queue_pop(weir_task_queue *queue)
{
    return leave(queue, weir__mpsc_pop(&queue->mpsc));
}

weir_task *weir__task_queue_pop_taken(weir_task_queue *queue)
{
    return leave(queue, weir__mpsc_pop_taken(&queue->mpsc));
}

size_t weir__task_queue_count(weir_task_queue *queue)
{
    weir__mpsc_take(&queue->mpsc);
    return queue->mpsc.taken;
}

bool weir__task_queue_take_back(weir_task_queue *queue, weir_task *wanted)
{
    bool is_removed = weir__mpsc_remove(&queue->mpsc, &wanted->node);
    if (is_removed && queue->bound > 0)
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
    return is_removed;
}

void weir__task_queue_take_out(weir_task_queue *queue, weir_mpsc_node *before, weir_task *task)
{
    weir__mpsc_remove_behind(&queue->mpsc, before, &task->node);
    if (queue->bound > 0)
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
}
