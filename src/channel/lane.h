/* SPDX-License-Identifier: MIT */
/* Handlers on executors of their own: events are carried there and back. */
#ifndef WEIR_CHANNEL_LANE_H
#define WEIR_CHANNEL_LANE_H

#include "channel/inbox.h"

/* An event on its way to a handler elsewhere, and back as a sign that it has been there. */
typedef struct weir_parcel {
    weir_task task;
    weir_call back;
    weir_ctx *ctx;
    weir_event event;
    int code;     /* why it could not be delivered; 0: it was */
    bool goes_on; /* when it is back, the event goes on from the handler's place */
} weir_parcel;

/* Memory after the parcel for copies of the event's error and addresses. */
static inline void *weir__parcel_room(weir_parcel *parcel)
{
    return parcel + 1;
}

/* What a context has that is not on the loop: part of its allocation. */
typedef struct weir_lane {
    weir_executor *executor;

    /* The loop's. */
    unsigned away;      /* parcels that are not back */
    unsigned switching; /* with weir_event_switched, among them */
    bool is_missing;    /* a message did not get there, so those behind it must not either */
    bool is_optional;   /* added with a promise, and no switch: the channel goes on if that fails */
    bool is_flush_away; /* the parcel `flush` is in use */
    bool owes_flush;    /* it was needed once more meanwhile */
    bool is_on_loop;    /* `removed` runs there, for want of the executor */
    int rejected;       /* why the executor did not take a parcel; it gets none after that */
    weir_promise *promise; /* of its being added; NULL */

    /* Both have it: how many of the latter have not got there. */
    _Atomic(unsigned) switches;

    /* The executor's. */
    bool is_adding, is_failed, is_removed;
    bool is_losing;       /* a message did not get back from there: the same */
    weir_parcel *current; /* what it is being called for */
    weir_error *failure;  /* where a failing `added` says so */
    weir_list timers;

    /* Two that need no memory: a handler is always removed, and a write without a flush after it
     * would never be sent. */
    weir_parcel removal, flush;
} weir_lane;

/* Where it is in that, and it, NULL when there is none. */
static inline size_t weir__ctx_lane_at(const weir_handler_type *type)
{
    return WEIR__CTX_STATE + ((type->state_size + 15) & ~(size_t)15);
}

static inline weir_lane *weir__ctx_lane(const weir_ctx *ctx)
{
    return ctx->is_elsewhere ? (weir_lane *)((char *)ctx + weir__ctx_lane_at(ctx->type)) : NULL;
}

/* Which events are carried to a handler: all of a way on which it wants any, or those it does not
 * want would overtake the others. */
uint32_t weir__lane_mask(const weir_handler_type *type);

void weir__lane_init(weir_lane *lane, weir_executor *executor);

/* Carries an event to the handler of a context. On the loop. */
void weir__lane_send(weir_ctx *ctx, const weir_event *event);

/* Sends an event on with what the handler of a context is being called for: false when that cannot
 * be. On its executor. */
bool weir__lane_goes_on(weir_ctx *ctx, const weir_event *event);

/* A message that a handler elsewhere passes on, but which is from before a switch that has not come
 * past it: true, and it is released and the channel closed. On the loop. */
bool weir__lane_refuses(weir_ctx *ctx, const weir_event *event);

/* The executor of a group that serves a channel: NULL without memory. On the loop, or before the
 * channel has one. */
weir_executor *weir__lane_pin(weir_channel *channel, weir_group *group);

/* Whether this is the thread on which a context may be used. */
bool weir__ctx_is_here(const weir_ctx *ctx);

/* A handler fails inside its `added`: true, and the error is kept, when that is so. */
bool weir__ctx_fail_added(weir_ctx *ctx, const weir_error *error);

#endif
