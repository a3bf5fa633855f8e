/* SPDX-License-Identifier: MIT */
/* Writes that a handler holds back, in order. */
#ifndef WEIR_HANDLER_WRITE_QUEUE_H
#define WEIR_HANDLER_WRITE_QUEUE_H

#include <weir/handler.h>

typedef struct weir_queued_write {
    struct weir_queued_write *next;
    weir_msg *msg;
    weir_promise *promise; /* NULL: nobody wants to know */
    size_t weight;
} weir_queued_write;

/*
 *     first       unflushed      last
 *      [m] -> [m] -> [m] -> ...   [m]
 *
 * While there is any, whatever is written goes to the end, and so does a shutdown.
 */
typedef struct weir_write_queue {
    weir_queued_write *first, *unflushed, *last;
    size_t weight;  /* of all */
    bool is_ending; /* a shutdown waits for the end of it */
    weir_promise *shutdown_promise;
} weir_write_queue;

static inline bool weir__write_queue_has_flushed(const weir_write_queue *queue)
{
    return queue->first != queue->unflushed;
}

static inline void weir__write_queue_flush(weir_write_queue *queue)
{
    queue->unflushed = NULL;
}

/* Takes the message, and a reference to the promise: 0; or -ENOMEM, and both are the caller's. */
int weir__write_queue_add(weir_write_queue *queue, weir_msg *msg, weir_promise *promise,
                          size_t weight);

/* The first, which is the caller's from then on. There is one. */
weir_queued_write weir__write_queue_take(weir_write_queue *queue);

/* One that was taken goes on to the next handler, or nowhere. */
void weir__write_queue_pass(weir_ctx *ctx, const weir_queued_write *taken);
void weir__write_queue_drop(const weir_queued_write *taken, int code);

/* A handler's shutdown: it waits for the end of the queue, true; or is over. */
bool weir__write_queue_shutdown(weir_ctx *ctx, weir_write_queue *queue, weir_promise *promise);

/* Shuts when a shutdown has waited, and the queue is empty. */
void weir__write_queue_passed(weir_ctx *ctx, weir_write_queue *queue);

/* The shutdown that waits will not happen. */
void weir__write_queue_fail_shutdown(weir_write_queue *queue, int code);

#endif
