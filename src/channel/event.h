/* SPDX-License-Identifier: MIT */
/* Events: what travels a pipeline, and how it gets from one context to the next. */
#ifndef WEIR_CHANNEL_EVENT_H
#define WEIR_CHANNEL_EVENT_H

#include <weir/channel.h>

#include <stdarg.h>

/*
 * Every event as X(kind, callback, parameters, arguments, fields...): the callback of a handler
 * type, its parameters, how a weir_event supplies them, and how it holds them.
 */
#define WEIR__INBOUND_EVENTS(X)                                                                    \
    X(EV_REGISTERED, on_registered, (weir_ctx * ctx), (ctx), )                                     \
    X(EV_ACTIVE, on_active, (weir_ctx * ctx), (ctx), )                                             \
    X(EV_READ, on_read, (weir_ctx * ctx, weir_msg * msg), (ctx, event->msg), .msg = msg)           \
    X(EV_READ_COMPLETE, on_read_complete, (weir_ctx * ctx), (ctx), )                               \
    X(EV_EVENT, on_event, (weir_ctx * ctx, weir_msg * msg), (ctx, event->msg), .msg = msg)         \
    X(EV_WRITABILITY, on_writability, (weir_ctx * ctx), (ctx), )                                   \
    X(EV_INACTIVE, on_inactive, (weir_ctx * ctx), (ctx), )                                         \
    X(EV_UNREGISTERED, on_unregistered, (weir_ctx * ctx), (ctx), )                                 \
    X(EV_ERROR, on_error, (weir_ctx * ctx, const weir_error *error), (ctx, event->error),          \
      .error = error)

#define WEIR__OUTBOUND_EVENTS(X)                                                                   \
    X(OP_BIND, bind, (weir_ctx * ctx, const weir_address *address, weir_promise *promise),         \
      (ctx, event->address, event->promise), .address = address, .promise = promise)               \
    X(OP_CONNECT, connect,                                                                         \
      (weir_ctx * ctx, const weir_address *address, const weir_address *local,                     \
       weir_promise *promise),                                                                     \
      (ctx, event->address, event->local, event->promise), .address = address, .local = local,     \
      .promise = promise)                                                                          \
    X(OP_DISCONNECT, disconnect, (weir_ctx * ctx, weir_promise * promise), (ctx, event->promise),  \
      .promise = promise)                                                                          \
    X(OP_READ, read, (weir_ctx * ctx), (ctx), )                                                    \
    X(OP_WRITE, write, (weir_ctx * ctx, weir_msg * msg, weir_promise * promise),                   \
      (ctx, event->msg, event->promise), .msg = msg, .promise = promise)                           \
    X(OP_FLUSH, flush, (weir_ctx * ctx), (ctx), )                                                  \
    X(OP_SHUTDOWN, shutdown, (weir_ctx * ctx, weir_promise * promise), (ctx, event->promise),      \
      .promise = promise)                                                                          \
    X(OP_CLOSE, close, (weir_ctx * ctx, weir_promise * promise), (ctx, event->promise),            \
      .promise = promise)                                                                          \
    X(OP_DEREGISTER, deregister, (weir_ctx * ctx, weir_promise * promise), (ctx, event->promise),  \
      .promise = promise)

#define WEIR__EVENTS(X) WEIR__INBOUND_EVENTS(X) WEIR__OUTBOUND_EVENTS(X)

/* Each event is a bit of a context's mask. */
typedef enum weir_event_kind {
#define WEIR__EVENT_KIND(kind, ...) WEIR_##kind,
    WEIR__EVENTS(WEIR__EVENT_KIND)
#undef WEIR__EVENT_KIND
    /* Not in masks: the life of a handler on another executor. */
    WEIR_EV_ADDED,
    WEIR_EV_REMOVED,
} weir_event_kind;

#define WEIR__INBOUND_MASK ((2u << WEIR_EV_ERROR) - 1)
#define WEIR__OUTBOUND_MASK (((2u << WEIR_OP_DEREGISTER) - 1) & ~WEIR__INBOUND_MASK)

/* An event with its arguments. The message is owned, the others are borrowed. */
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

static inline bool weir__event_is_eof(const weir_event *event)
{
    return event->kind == WEIR_EV_EVENT && event->msg == &weir_event_input_closed;
}

/* Which events a handler wants: the callbacks that it has. */
static inline uint32_t weir__handler_mask(const weir_handler_type *type)
{
#define WEIR__EVENT_BIT(kind, callback, ...) (uint32_t)(type->callback != NULL) << WEIR_##kind |
    return WEIR__EVENTS(WEIR__EVENT_BIT) 0;
#undef WEIR__EVENT_BIT
}

/* Passes an event on from a context, or from the ends of the pipeline. On the loop. */
void weir__event_pass(weir_ctx *from, const weir_event *event);

/* Begins an event where such events begin. On the loop. */
void weir__event_enter(weir_channel *channel, const weir_event *event);

/* A write of NULL: the allocation of the message has failed, and so has the write. Any thread. */
void weir__event_write_null(weir_channel *channel, weir_promise *promise);

/* The same as weir__event_enter for a call of the user's. */
void weir__event_enter_from_outside(weir_channel *channel, const weir_event *event);

/* Calls the handler of a context, on the present thread. */
void weir__event_call(weir_ctx *ctx, const weir_event *event);

/* weir_event_input_closed has reached the handler, or its place in the pipeline. Any thread. */
void weir__event_note_eof(weir_ctx *ctx);

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
