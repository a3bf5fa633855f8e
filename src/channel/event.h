/* SPDX-License-Identifier: MIT */
/* Events: what travels a pipeline, and how it gets from one context to the next. */
#ifndef WEIR_CHANNEL_EVENT_H
#define WEIR_CHANNEL_EVENT_H

#include <weir/pipeline.h>

#include <stdarg.h>

/* The events, each a bit of a context's mask. Inbound ones first. */
typedef enum weir_event_kind {
    WEIR_EV_REGISTERED,
    WEIR_EV_ACTIVE,
    WEIR_EV_READ,
    WEIR_EV_READ_COMPLETE,
    WEIR_EV_EVENT,
    WEIR_EV_WRITABILITY,
    WEIR_EV_INACTIVE,
    WEIR_EV_UNREGISTERED,
    WEIR_EV_ERROR,
    WEIR_OP_BIND,
    WEIR_OP_CONNECT,
    WEIR_OP_DISCONNECT,
    WEIR_OP_READ,
    WEIR_OP_WRITE,
    WEIR_OP_FLUSH,
    WEIR_OP_SHUTDOWN,
    WEIR_OP_CLOSE,
    WEIR_OP_DEREGISTER,
    /* Only to carry it to a handler elsewhere. */
    WEIR_EV_ADDED,
    WEIR_EV_REMOVED,
} weir_event_kind;

/* An event with whatever goes with it. The message is owned, the rest borrowed. */
typedef struct weir_event {
    weir_event_kind kind;
    weir_msg *msg;
    weir_promise *promise;
    const weir_error *error;
    const weir_address *address, *local;
} weir_event;

static inline bool weir__event_is_inbound(weir_event_kind kind)
{
    return kind <= WEIR_EV_ERROR;
}

/* Which events a handler wants. */
uint32_t weir__handler_mask(const weir_handler_type *type);

/* Passes an event on from a context, or from the ends of the pipeline. On the loop. */
void weir__event_pass(weir_ctx *from, const weir_event *event);

/* Begins an event where such events begin. On the loop. */
void weir__event_enter(weir_channel *channel, const weir_event *event);

/* A write of NULL: the allocation of the message has failed, and so has the write. Any thread. */
void weir__event_write_null(weir_channel *channel, weir_promise *promise);

/* The same for a call of the user's. */
void weir__event_enter_from_outside(weir_channel *channel, const weir_event *event);

/* Has the handler of a context called, on the present thread. */
void weir__event_call(weir_ctx *ctx, const weir_event *event);

/* Ends an event that cannot get any further. */
void weir__event_drop(weir_channel *channel, const weir_event *event, int code);

/* weir_error_set with the arguments in a list; a code that is not negative counts as -EINVAL. */
void weir__error_set_args(weir_error *error, int code, const char *origin, const char *format,
                          va_list args);

/* From the ends. On the loop. */
void weir__pipeline_fire(weir_channel *channel, weir_event_kind kind);
void weir__pipeline_fire_error(weir_channel *channel, const weir_error *error);
void weir__pipeline_fire_code(weir_channel *channel, int code, const char *what);

#endif
