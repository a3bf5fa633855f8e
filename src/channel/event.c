/* SPDX-License-Identifier: MIT */
/* Events on their way: from context to context, over those that do not want them. */
#include "base/assert.h"
#include "channel/inbox.h"
#include "channel/offload.h"

#include <weir/buf.h>
#include <weir/log.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Calling ------------------------------------------------------------------------------------ */

static void call_on_error(weir_ctx *ctx, const weir_error *error)
{
    bool was_in_error = ctx->in_error;
    ctx->in_error = true;
    ctx->type->on_error(ctx, error);
    ctx->in_error = was_in_error;
}

/* Inlined with a constant kind, only that case is left. */
static inline __attribute__((always_inline)) void call(weir_ctx *ctx, const weir_event *event)
{
    const weir_handler_type *type = ctx->type;
    switch (event->kind) {
#define CASE(event_kind, callback, parameters, arguments, ...)                                     \
    case WEIR_##event_kind:                                                                        \
        if (WEIR_##event_kind == WEIR_EV_ERROR)                                                    \
            call_on_error(ctx, event->error);                                                      \
        else                                                                                       \
            type->callback arguments;                                                              \
        break;
        WEIR__EVENTS(CASE)
#undef CASE
    case WEIR_EV_ADDED:
        if (type->added != NULL)
            type->added(ctx);
        break;
    case WEIR_EV_REMOVED:
        if (type->removed != NULL)
            type->removed(ctx);
        break;
    }
}

void weir__event_note_eof(weir_ctx *ctx)
{
    atomic_store_explicit(&ctx->has_eof, true, memory_order_relaxed);
}

void weir__event_call(weir_ctx *ctx, const weir_event *event)
{
    if (weir__event_is_eof(event))
        weir__event_note_eof(ctx);
    call(ctx, event);
}

/* Passing on --------------------------------------------------------------------------------- */

/* The tail wants everything inbound and the head everything outbound, so the search ends. An
 * offloaded handler has a neighbour on both sides that wants everything. */
static inline __attribute__((always_inline)) weir_ctx *next_for(weir_ctx *ctx, weir_event_kind kind)
{
    uint32_t bit = 1u << kind;
    if (weir__event_is_inbound(kind)) {
        do
            ctx = ctx->next;
        while ((ctx->mask & bit) == 0);
    } else {
        do
            ctx = ctx->prev;
        while ((ctx->mask & bit) == 0);
    }
    return ctx;
}

/* An offloaded handler receives it later, but not if its boundary lets it pass. */
static __attribute__((cold)) void pass_eof(weir_ctx *from, weir_ctx *to)
{
    for (weir_ctx *ctx = from->next; ctx != to; ctx = ctx->next) {
        weir__event_note_eof(ctx);
        weir__event_note_eof(weir__ctx_handler(ctx));
    }
    weir__event_note_eof(to);
}

static inline __attribute__((always_inline)) void pass(weir_ctx *from, const weir_event *event)
{
    weir_ctx *ctx = next_for(from, event->kind);
    if (weir__event_is_eof(event))
        pass_eof(from, ctx);
    call(ctx, event);
}

void weir__event_pass(weir_ctx *from, const weir_event *event)
{
    pass(from, event);
}

/* Where events begin: inbound ones at the head itself, outbound ones before the tail. */
static inline __attribute__((always_inline)) void enter(weir_channel *channel,
                                                        const weir_event *event)
{
    weir_ctx *head = &channel->pipeline.head;
    if (!weir__event_is_inbound(event->kind))
        pass(&channel->pipeline.tail, event);
    else if (head->mask & 1u << event->kind)
        call(head, event);
    else
        pass(head, event);
}

void weir__event_enter(weir_channel *channel, const weir_event *event)
{
    enter(channel, event);
}

/* A channel that moves is being deregistered already. */
void weir__event_enter_from_outside(weir_channel *channel, const weir_event *event)
{
    if (event->kind == WEIR_OP_DEREGISTER && weir__channel_is_moving(channel))
        weir__promise_end(event->promise, -EALREADY);
    else
        enter(channel, event);
}

/* Passes on an event for a handler. */
static inline __attribute__((always_inline)) void forward(weir_ctx *from, const weir_event *event)
{
    WEIR_ASSERT(weir__ctx_is_here(from));
    pass(from, event);
}

/* What the loop has to make up for, so that somebody knows. */
static uint16_t missed_with(const weir_event *event)
{
    bool has_promise = event->promise != NULL;
    switch (event->kind) {
    case WEIR_OP_FLUSH:
        return WEIR__MISSED_FLUSH;
    case WEIR_OP_READ:
        return WEIR__MISSED_READ;
    case WEIR_EV_READ:
        return WEIR__MISSED_MESSAGE | WEIR__MISSED_CLOSE;
    case WEIR_EV_ERROR:
    case WEIR_OP_CLOSE:
        return WEIR__MISSED_CLOSE;
    case WEIR_OP_WRITE:
        return has_promise ? 0 : WEIR__MISSED_MESSAGE;
    default:
        if (weir__event_is_inbound(event->kind))
            return WEIR__MISSED_OTHER;
        return has_promise ? 0 : WEIR__MISSED_CLOSE;
    }
}

/* One that cannot be carried is mostly one of many: the log has the first, until it is better. */
void weir__event_drop(weir_channel *channel, const weir_event *event, int code)
{
    bool has_promise = event->promise != NULL;
    uint16_t missed = missed_with(event);
    if (event->msg != NULL)
        weir_msg_release(event->msg);
    weir__promise_end(event->promise, code);
    if (missed & WEIR__MISSED_MESSAGE)
        atomic_store_explicit(&channel->inbox.lost, (int16_t)code, memory_order_relaxed);
    if (missed != 0)
        weir__inbox_push_missed(channel, missed);
    if (!has_promise &&
        !atomic_exchange_explicit(&channel->inbox.is_losing, true, memory_order_relaxed))
        weir_log(WEIR_LOG_WARN, "channel", "%08llx: an event was lost, and maybe more: %s",
                 (unsigned long long)channel->id, weir_error_text(code));
}

/* On the loop at once, so that nothing that is written next gets past the gap. */
void weir__event_write_null(weir_channel *channel, weir_promise *promise)
{
    const weir_loop *loop = weir__channel_loop(channel);
    bool is_on_loop = loop != NULL && weir_executor_is_current(&loop->base);
    if (promise != NULL || !is_on_loop)
        weir__event_drop(channel, &(weir_event){ .kind = WEIR_OP_WRITE, .promise = promise },
                         -ENOMEM);
    else if (!weir__channel_is_closing(channel))
        weir__channel_lost(channel, -ENOMEM);
}

/* From the ends ------------------------------------------------------------------------------ */

void weir__pipeline_fire(weir_channel *channel, weir_event_kind kind)
{
    enter(channel, &(weir_event){ .kind = kind });
}

void weir__pipeline_fire_error(weir_channel *channel, const weir_error *error)
{
    enter(channel, &(weir_event){ .kind = WEIR_EV_ERROR, .error = error });
}

void weir__pipeline_fire_code(weir_channel *channel, int code, const char *what)
{
    weir_error error;
    weir_error_set(&error, code, channel->transport->name, "%s: %s", what, weir_error_text(code));
    weir__pipeline_fire_error(channel, &error);
}

void weir__error_set_args(weir_error *error, int code, const char *origin, const char *format,
                          va_list args)
{
    char text[sizeof error->message];
    vsnprintf(text, sizeof text, format, args);
    weir_error_set(error, code < 0 ? code : -EINVAL, origin, "%s", text);
}

/* What handlers call for every message --------------------------------------------------------- */

/* The simple cases are inline, in the header, which knows the beginning of a context. */
_Static_assert(offsetof(weir_ctx, next) == offsetof(weir_ctx_link, next) &&
                   offsetof(weir_ctx, type) == offsetof(weir_ctx_link, type) &&
                   offsetof(weir_ctx, mask) == offsetof(weir_ctx_link, mask) &&
                   offsetof(weir_ctx, is_slow) == offsetof(weir_ctx_link, is_slow),
               "the header's view of it");
_Static_assert(WEIR__ON_READ == 1 << WEIR_EV_READ &&
                   WEIR__ON_READ_COMPLETE == 1 << WEIR_EV_READ_COMPLETE &&
                   WEIR__WRITE == 1 << WEIR_OP_WRITE && WEIR__FLUSH == 1 << WEIR_OP_FLUSH,
               "the header's view of them");

void weir_ctx_fire_read_slowly(weir_ctx *ctx, weir_msg *msg)
{
    if (msg != NULL) {
        forward(ctx, &(weir_event){ .kind = WEIR_EV_READ, .msg = msg });
    } else if (!weir__channel_is_closing(ctx->channel)) {
        weir_ctx_fail(ctx, -ENOMEM, "there was no memory for a message to pass on");
        weir_ctx_close(ctx, NULL);
    }
}

void weir_ctx_fire_read_complete_slowly(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_EV_READ_COMPLETE });
}

void weir_ctx_write_slowly(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    if (msg == NULL)
        weir__event_write_null(ctx->channel, promise);
    else
        forward(ctx, &(weir_event){ .kind = WEIR_OP_WRITE, .msg = msg, .promise = promise });
}

void weir_ctx_write_str(weir_ctx *ctx, const char *string)
{
    weir_buf *buf = string != NULL ? weir_buf_from(string, strlen(string)) : NULL;
    weir_ctx_write(ctx, buf != NULL ? weir_buf_msg(buf) : NULL, NULL);
}

void weir_ctx_writef(weir_ctx *ctx, const char *format, ...)
{
    va_list args;
    weir_buf *buf = weir_buf_new(64);
    va_start(args, format);
    if (buf != NULL && weir_buf_vprintf(buf, format, args) < 0) {
        weir_buf_release(buf);
        buf = NULL;
    }
    va_end(args);
    weir_ctx_write(ctx, buf != NULL ? weir_buf_msg(buf) : NULL, NULL);
}

void weir_ctx_flush_slowly(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_OP_FLUSH });
}

/* What they call now and then ------------------------------------------------------------------ */

void weir_ctx_fire_registered(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_EV_REGISTERED });
}

void weir_ctx_fire_active(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_EV_ACTIVE });
}

void weir_ctx_fire_event(weir_ctx *ctx, weir_msg *event)
{
    if (event != NULL)
        forward(ctx, &(weir_event){ .kind = WEIR_EV_EVENT, .msg = event });
}

void weir_ctx_fire_writability(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_EV_WRITABILITY });
}

void weir_ctx_fire_inactive(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_EV_INACTIVE });
}

void weir_ctx_fire_unregistered(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_EV_UNREGISTERED });
}

void weir_ctx_fire_error(weir_ctx *ctx, const weir_error *error)
{
    if (error != NULL)
        forward(ctx, &(weir_event){ .kind = WEIR_EV_ERROR, .error = error });
}

void weir_ctx_fail(weir_ctx *ctx, int code, const char *format, ...)
{
    weir_error error;
    va_list args;
    WEIR_ASSERT(weir__ctx_is_here(ctx));
    va_start(args, format);
    weir__error_set_args(&error, code, weir__ctx_name(ctx), format != NULL ? format : "failed",
                         args);
    va_end(args);
    if (weir__ctx_fail_added(ctx, &error))
        return;
    if (ctx->type->on_error != NULL && !ctx->in_error && !weir_ctx_is_removed(ctx))
        call_on_error(ctx, &error);
    else
        weir_ctx_fire_error(ctx, &error);
}

void weir_ctx_refuse_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise, int code)
{
    if (msg != NULL)
        weir_msg_release(msg);
    weir__promise_end(promise, code);
    if (promise != NULL || code == WEIR_ECLOSED || !weir_channel_is_open(ctx->channel))
        return;
    if (ctx->is_offloaded) {
        weir__channel_lose(ctx->channel, code); /* before events that it has passed on since */
    } else {
        /* First, so that no handler answers the error with bytes that follow the gap. */
        weir_ctx_close(ctx, NULL);
        weir_ctx_fail(ctx, code, "a write failed: %s", weir_error_text(code));
    }
}

void weir_ctx_bind(weir_ctx *ctx, const weir_address *local, weir_promise *promise)
{
    if (local == NULL)
        weir__promise_end(promise, -EINVAL);
    else
        forward(ctx, &(weir_event){ .kind = WEIR_OP_BIND, .address = local, .promise = promise });
}

void weir_ctx_connect(weir_ctx *ctx, const weir_address *remote, const weir_address *local,
                      weir_promise *promise)
{
    weir_event event = { .kind = WEIR_OP_CONNECT, .promise = promise };
    event.address = remote;
    event.local = local;
    if (remote == NULL)
        weir__promise_end(promise, -EINVAL);
    else
        forward(ctx, &event);
}

void weir_ctx_disconnect(weir_ctx *ctx, weir_promise *promise)
{
    forward(ctx, &(weir_event){ .kind = WEIR_OP_DISCONNECT, .promise = promise });
}

WEIR__HOT void weir_ctx_read(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_OP_READ });
}

void weir_ctx_write_and_flush(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_write(ctx, msg, promise);
    weir_ctx_flush(ctx);
}

void weir_ctx_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    weir__channel_note_end(ctx->channel);
    forward(ctx, &(weir_event){ .kind = WEIR_OP_SHUTDOWN, .promise = promise });
}

void weir_ctx_close(weir_ctx *ctx, weir_promise *promise)
{
    weir__channel_note_end(ctx->channel);
    forward(ctx, &(weir_event){ .kind = WEIR_OP_CLOSE, .promise = promise });
}

void weir_ctx_deregister(weir_ctx *ctx, weir_promise *promise)
{
    forward(ctx, &(weir_event){ .kind = WEIR_OP_DEREGISTER, .promise = promise });
}
