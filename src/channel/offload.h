/* SPDX-License-Identifier: MIT */
/* Offloaded handlers: those with an executor of their own. */
#ifndef WEIR_CHANNEL_OFFLOAD_H
#define WEIR_CHANNEL_OFFLOAD_H

#include "channel/inbox.h"

/*
 *       the loop                                       the executor
 *   -> [boundary] - - - - - weir_offloaded - - - - -> handler's context
 *                                                          | weir_ctx_fire_read, weir_ctx_write
 *   <- [boundary] <- - - the channel's inbox - - - - - [way back]
 *
 * In the pipeline stands the boundary, whose callbacks post each event to the executor. The
 * handler's own context is there, between two neighbours that are the same: the way back, whose
 * callbacks post to the inbox. The loop continues from the boundary. Both queues keep the order, so
 * no event overtakes another. An event that is posted returns to the loop when it was handled; the
 * contexts stay until the last has.
 */

/* How far the handler was when it passed an event on, or had handled one. */
typedef struct weir_progress {
    unsigned reads; /* messages that it has received */
    size_t held;    /* of them: see held_reads of weir_handler_type */
} weir_progress;

/* An event that is posted to the handler, and returns. */
typedef struct weir_offloaded {
    weir_task task;
    weir_call returned;
    struct weir_offload *offload;
    weir_event event;
    weir_progress progress; /* when it returns */
    int code;               /* why it could not be delivered; 0: it was */
    bool continues;         /* when it has returned, it continues from the boundary */
} weir_offloaded;

/* Part of the handler's allocation. */
typedef struct weir_offload {
    weir_member boundary;
    weir_ctx way_back;
    weir_ctx *handler;
    weir_executor *executor;

    /* The loop's. */
    unsigned in_flight;  /* events that have not returned */
    unsigned reads_sent; /* messages that were posted */
    weir_progress progress;
    bool has_gap;     /* a message was not delivered, so no later one must be */
    bool is_optional; /* added with a promise, and no upgrade: the channel goes on if that fails */
    bool is_flush_in_flight; /* `flush` is in use */
    bool owes_flush;         /* and was needed once more */
    bool is_on_loop;         /* `removed` runs there, for want of the executor */
    int rejected;            /* why the executor did not take an event; it gets none after that */

    _Atomic(bool) rejects_reads; /* see weir__offload_reject_reads */

    /* The executor's. */
    unsigned reads;
    bool has_lost;           /* a message did not get back, so no later one must */
    bool is_leaving;         /* it has asked for its removal */
    weir_offloaded *current; /* the handler is being called for it */
    weir_call leave;         /* takes the wish to be removed to the loop */
    weir_list timers;

    /* Two that need no memory: a handler is always removed, and a write without a flush after it
     * would never be sent. */
    weir_offloaded removal, flush;
} weir_offload;

extern const weir_handler_type weir__boundary_type;

/* Where it is in the handler's allocation. */
static inline size_t weir__offload_at(const weir_handler_type *type)
{
    return WEIR__CTX_STATE + ((type->state_size + 15) & ~(size_t)15);
}

/* Of a context in the pipeline; NULL: its handler runs on the loop. */
static inline weir_offload *weir__ctx_offload(const weir_ctx *ctx)
{
    return ctx->type == &weir__boundary_type ? (weir_offload *)ctx : NULL;
}

/* Of an offloaded handler's own context. */
static inline weir_offload *weir__handler_offload(const weir_ctx *ctx)
{
    return (weir_offload *)((char *)ctx + weir__offload_at(ctx->type));
}

/* Prepares the memory, which is zeroed, behind a handler's context. */
void weir__offload_init(weir_ctx *handler, weir_executor *executor);

/* Which events the boundary takes: all of a direction of which the handler wants any, or those it
 * does not want would overtake the others. */
uint32_t weir__offload_mask(const weir_handler_type *type);

/* Posts `added` with the promise of the add, and `removed`. On the loop. */
void weir__offload_add(weir_offload *self, weir_promise *promise);
void weir__offload_remove(weir_offload *self);

/* The handler gets no further message, nor those in flight. On the loop. */
void weir__offload_reject_reads(weir_offload *self);

/* The handler asks for its removal: 0, or WEIR_ENOTFOUND if it has before. On its executor. */
int weir__offload_request_removal(weir_offload *self);

/* How much the handler holds of the messages that were posted, and those it has yet to receive. On
 * the loop. */
size_t weir__offload_held(const weir_offload *self);

/* The offloaded handler of the channel that runs on this thread, and how far it is; NULL: none. */
weir_offload *weir__offload_running(const weir_channel *channel, weir_progress *progress);

/* The executor of a group that serves a channel: NULL without memory. On the loop, or before the
 * channel has one. */
weir_executor *weir__offload_pin(weir_channel *channel, weir_group *group);

#endif
