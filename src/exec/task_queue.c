/* SPDX-License-Identifier: MIT */
/* The task queue. */
#include "exec/task_queue.h"

#include "base/list.h"

#include <errno.h>
#include <sched.h>

#define LEAST_BOUND 16

void weir__task_queue_init(weir_task_queue *queue, uint32_t bound)
{
    weir__mpsc_init(&queue->mpsc);
    atomic_init(&queue->count, 0);
    queue->bound = bound == 0 || bound >= LEAST_BOUND ? bound : LEAST_BOUND;
    queue->first_back = NULL;
}

int weir__task_queue_push(weir_task_queue *queue, weir_task *task)
{
    if (queue->bound > 0 &&
        atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed) >= queue->bound) {
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
        return -EAGAIN;
    }
    weir__mpsc_push(&queue->mpsc, &task->node);
    return 0;
}

void weir__task_queue_push_always(weir_task_queue *queue, weir_task *task)
{
    if (queue->bound > 0)
        atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed);
    weir__mpsc_push(&queue->mpsc, &task->node);
}

static weir_task *pop_any(weir_task_queue *queue)
{
    weir_mpsc_node *node;
    if (queue->first_back != NULL) {
        weir_task *task = queue->first_back;
        node = atomic_load_explicit(&task->node.next, memory_order_relaxed);
        queue->first_back = node != NULL ? WEIR_CONTAINER(node, weir_task, node) : NULL;
        return task;
    }
    node = weir__mpsc_pop(&queue->mpsc);
    return node != NULL ? WEIR_CONTAINER(node, weir_task, node) : NULL;
}

weir_task *weir__task_queue_pop(weir_task_queue *queue)
{
    weir_task *task = pop_any(queue);
    if (task != NULL && queue->bound > 0)
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
    return task;
}

bool weir__task_queue_is_empty(weir_task_queue *queue)
{
    return queue->first_back == NULL && weir__mpsc_is_empty(&queue->mpsc);
}

/* Where a chain of nodes ends: before the stub, or where a producer has not linked yet. */
static const weir_task *last_of(weir_mpsc_node *node, const weir_mpsc_node *stub)
{
    weir_mpsc_node *next;
    while ((next = atomic_load_explicit(&node->next, memory_order_acquire)) != NULL && next != stub)
        node = next;
    return WEIR_CONTAINER(node, weir_task, node);
}

const weir_task *weir__task_queue_newest(weir_task_queue *queue)
{
    weir_mpsc *mpsc = &queue->mpsc;
    weir_mpsc_node *head = atomic_load_explicit(&mpsc->head, memory_order_acquire);
    if (head != &mpsc->stub)
        return WEIR_CONTAINER(head, weir_task, node);
    /* The stub stands last: what is there lies before it, or was put back. */
    if (mpsc->tail != &mpsc->stub)
        return last_of(mpsc->tail, &mpsc->stub);
    return queue->first_back != NULL ? last_of(&queue->first_back->node, &mpsc->stub) : NULL;
}

static size_t length_of(weir_mpsc_node *node, const weir_mpsc_node *stub)
{
    size_t count = 0;
    for (; node != NULL; node = atomic_load_explicit(&node->next, memory_order_acquire))
        count += node != stub;
    return count;
}

size_t weir__task_queue_count(weir_task_queue *queue)
{
    weir_mpsc_node *back = queue->first_back != NULL ? &queue->first_back->node : NULL;
    return length_of(back, NULL) + length_of(queue->mpsc.tail, &queue->mpsc.stub);
}

void weir__task_queue_take_back(weir_task_queue *queue, weir_task *wanted)
{
    weir_task *first = NULL, *last = NULL;
    for (weir_task *task = NULL; task != wanted;) {
        task = pop_any(queue);
        if (task == NULL) {
            sched_yield(); /* some producer is between its two steps */
            continue;
        }
        if (task == wanted)
            continue;
        atomic_store_explicit(&task->node.next, NULL, memory_order_relaxed);
        if (last != NULL)
            atomic_store_explicit(&last->node.next, &task->node, memory_order_relaxed);
        else
            first = task;
        last = task;
    }
    /* What was put back before and not looked at stays behind what was. */
    if (last != NULL) {
        atomic_store_explicit(&last->node.next,
                              queue->first_back != NULL ? &queue->first_back->node : NULL,
                              memory_order_relaxed);
        queue->first_back = first;
    }
    if (queue->bound > 0)
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
}
