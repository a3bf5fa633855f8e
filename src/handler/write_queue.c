/* SPDX-License-Identifier: MIT */
/* Writes that wait. */
#include "handler/write_queue.h"

#include "base/alloc.h"

#include <errno.h>

static void end_promise(weir_promise *promise, int code)
{
    if (promise != NULL)
        weir_promise_set(promise, code);
    weir_promise_release(promise);
}

int weir__write_queue_add(weir_write_queue *queue, weir_msg *msg, weir_promise *promise,
                          size_t weight)
{
    weir_queued_write *added = weir__alloc(sizeof *added);
    if (added == NULL)
        return -ENOMEM;
    *added = (weir_queued_write){ .msg = msg, .weight = weight };
    if (promise != NULL)
        added->promise = weir_promise_retain(promise);
    if (queue->first == NULL)
        queue->first = added;
    else
        queue->last->next = added;
    queue->last = added;
    if (queue->unflushed == NULL)
        queue->unflushed = added;
    queue->weight += weight;
    return 0;
}

weir_queued_write weir__write_queue_take(weir_write_queue *queue)
{
    weir_queued_write *first = queue->first, taken = *first;
    queue->first = first->next;
    if (queue->unflushed == first)
        queue->unflushed = first->next;
    queue->weight -= first->weight;
    weir__free(first);
    return taken;
}

void weir__write_queue_pass(weir_ctx *ctx, const weir_queued_write *taken)
{
    weir_ctx_write(ctx, taken->msg, taken->promise);
    weir_promise_release(taken->promise);
}

void weir__write_queue_drop(const weir_queued_write *taken, int code)
{
    weir_msg_release(taken->msg);
    end_promise(taken->promise, code);
}

bool weir__write_queue_shutdown(weir_ctx *ctx, weir_write_queue *queue, weir_promise *promise)
{
    if (queue->is_ending) {
        if (promise != NULL)
            weir_promise_set(promise, -EALREADY);
        return false;
    }
    if (queue->first == NULL) {
        weir_ctx_shutdown(ctx, promise);
        return false;
    }
    queue->is_ending = true;
    queue->shutdown_promise = promise != NULL ? weir_promise_retain(promise) : NULL;
    return true;
}

void weir__write_queue_passed(weir_ctx *ctx, weir_write_queue *queue)
{
    weir_promise *promise = queue->shutdown_promise;
    if (!queue->is_ending || queue->first != NULL)
        return;
    queue->is_ending = false;
    queue->shutdown_promise = NULL;
    weir_ctx_shutdown(ctx, promise);
    weir_promise_release(promise);
}

void weir__write_queue_fail_shutdown(weir_write_queue *queue, int code)
{
    weir_promise *promise = queue->shutdown_promise;
    queue->shutdown_promise = NULL;
    queue->is_ending = false;
    end_promise(promise, code);
}
