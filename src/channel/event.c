/* SPDX-License-Identifier: MIT */
/* Events on their way: from context to context, over those that do not want them. */
#include "base/assert.h"
#include "channel/inbox.h"
#include "channel/lane.h"

#include <weir/log.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

uint32_t weir__handler_mask(const weir_handler_type *type)
{
#define BIT(kind, callback) ((uint32_t)(type->callback != NULL) << (kind))
    return BIT(WEIR_EV_REGISTERED, on_registered) | BIT(WEIR_EV_ACTIVE, on_active) |
           BIT(WEIR_EV_READ, on_read) | BIT(WEIR_EV_READ_COMPLETE, on_read_complete) |
           BIT(WEIR_EV_EVENT, on_event) | BIT(WEIR_EV_WRITABILITY, on_writability) |
           BIT(WEIR_EV_INACTIVE, on_inactive) | BIT(WEIR_EV_UNREGISTERED, on_unregistered) |
           BIT(WEIR_EV_ERROR, on_error) | BIT(WEIR_OP_BIND, bind) | BIT(WEIR_OP_CONNECT, connect) |
           BIT(WEIR_OP_DISCONNECT, disconnect) | BIT(WEIR_OP_READ, read) |
           BIT(WEIR_OP_WRITE, write) | BIT(WEIR_OP_FLUSH, flush) | BIT(WEIR_OP_SHUTDOWN, shutdown) |
           BIT(WEIR_OP_CLOSE, close) | BIT(WEIR_OP_DEREGISTER, deregister);
#undef BIT
}

/* Calling ------------------------------------------------------------------------------------ */

static void call_on_error(weir_ctx *ctx, const weir_error *error)
{
    bool was_in_error = ctx->in_error;
    ctx->in_error = true;
    ctx->type->on_error(ctx, error);
    ctx->in_error = was_in_error;
}

/* One line for each kind; inlined with a constant kind, only that line is left. */
static inline __attribute__((always_inline)) void call(weir_ctx *ctx, const weir_event *event)
{
    const weir_handler_type *type = ctx->type;
    switch (event->kind) {
    case WEIR_EV_REGISTERED:
        type->on_registered(ctx);
        break;
    case WEIR_EV_ACTIVE:
        type->on_active(ctx);
        break;
    case WEIR_EV_READ:
        type->on_read(ctx, event->msg);
        break;
    case WEIR_EV_READ_COMPLETE:
        type->on_read_complete(ctx);
        break;
    case WEIR_EV_EVENT:
        type->on_event(ctx, event->msg);
        break;
    case WEIR_EV_WRITABILITY:
        type->on_writability(ctx);
        break;
    case WEIR_EV_INACTIVE:
        type->on_inactive(ctx);
        break;
    case WEIR_EV_UNREGISTERED:
        type->on_unregistered(ctx);
        break;
    case WEIR_EV_ERROR:
        call_on_error(ctx, event->error);
        break;
    case WEIR_OP_BIND:
        type->bind(ctx, event->address, event->promise);
        break;
    case WEIR_OP_CONNECT:
        type->connect(ctx, event->address, event->local, event->promise);
        break;
    case WEIR_OP_DISCONNECT:
        type->disconnect(ctx, event->promise);
        break;
    case WEIR_OP_READ:
        type->read(ctx);
        break;
    case WEIR_OP_WRITE:
        type->write(ctx, event->msg, event->promise);
        break;
    case WEIR_OP_FLUSH:
        type->flush(ctx);
        break;
    case WEIR_OP_SHUTDOWN:
        type->shutdown(ctx, event->promise);
        break;
    case WEIR_OP_CLOSE:
        type->close(ctx, event->promise);
        break;
    case WEIR_OP_DEREGISTER:
        type->deregister(ctx, event->promise);
        break;
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

static inline bool is_eof(const weir_event *event)
{
    return event->kind == WEIR_EV_EVENT && event->msg == &weir_event_input_closed;
}

static void note_eof(weir_ctx *ctx, uint8_t how)
{
    atomic_fetch_or_explicit(&ctx->eof, how, memory_order_relaxed);
}

void weir__event_call(weir_ctx *ctx, const weir_event *event)
{
    if (is_eof(event))
        note_eof(ctx, WEIR__EOF_RECEIVED);
    call(ctx, event);
}

/* Passing on --------------------------------------------------------------------------------- */

/* The tail wants everything inbound and the head everything outbound, so the search ends. */
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

/* A handler on another executor receives it when that gets to it; those without on_event do not. */
static __attribute__((cold)) void pass_eof(weir_ctx *from, weir_ctx *to)
{
    for (weir_ctx *ctx = from->next; ctx != to; ctx = ctx->next)
        note_eof(ctx, WEIR__EOF_PASSED | WEIR__EOF_RECEIVED);
    note_eof(to, to->is_elsewhere ? WEIR__EOF_PASSED : WEIR__EOF_PASSED | WEIR__EOF_RECEIVED);
}

static inline __attribute__((always_inline)) void pass(weir_ctx *from, const weir_event *event)
{
    weir_ctx *ctx = next_for(from, event->kind);
    if (is_eof(event))
        pass_eof(from, ctx);
    if (__builtin_expect(ctx->is_elsewhere, 0))
        weir__lane_send(ctx, event);
    else
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

/* Not for one that is removed on the loop: its context may be gone when the inbox gets to it. */
static bool goes_through_inbox(const weir_ctx *from)
{
    const weir_lane *lane = weir__ctx_lane(from);
    return lane != NULL && !lane->is_on_loop;
}

/* What a handler passes on: from elsewhere that goes through the inbox. */
static inline __attribute__((always_inline)) void forward(weir_ctx *from, const weir_event *event)
{
    WEIR_ASSERT(weir__ctx_is_here(from));
    if (__builtin_expect(from->is_elsewhere, 0) && goes_through_inbox(from))
        weir__inbox_send(from->channel, from, event, false);
    else
        pass(from, event);
}

/* What the loop has to make up for, so that somebody knows. */
static uint8_t missed_with(const weir_event *event)
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
    uint8_t missed = missed_with(event);
    if (event->msg != NULL)
        weir_msg_release(event->msg);
    weir__promise_end(event->promise, code);
    if (missed & WEIR__MISSED_MESSAGE)
        atomic_store_explicit(&channel->lost, (int16_t)code, memory_order_relaxed);
    if (missed != 0)
        weir__inbox_push_missed(channel, missed);
    if (!has_promise && !atomic_exchange_explicit(&channel->is_losing, true, memory_order_relaxed))
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
    char name[sizeof error.origin];
    va_list args;
    WEIR_ASSERT(weir__ctx_is_here(ctx));
    weir__ctx_copy_name(ctx, name, sizeof name);
    va_start(args, format);
    weir__error_set_args(&error, code, name, format != NULL ? format : "failed", args);
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
    if (ctx->is_elsewhere) {
        weir__channel_lose(ctx->channel, code); /* before events that it has passed on since */
    } else {
        /* First, so that no handler answers the error with bytes that follow the gap. */
        weir_ctx_close(ctx, NULL);
        weir_ctx_fail(ctx, code, "a write failed: %s", weir_error_text(code));
    }
}

void weir_ctx_refuse_switch(weir_ctx *ctx, const char *format, ...)
{
    weir_error error;
    va_list args;
    va_start(args, format);
    weir__error_set_args(&error, WEIR_ETLS_SWITCHED, "", format, args);
    va_end(args);
    weir_ctx_fail(ctx, error.code, "%s from before the switch", error.message);
    weir_ctx_close(ctx, NULL);
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

WEIR__BESIDE static void read_slowly(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_OP_READ });
}

/* As the inline ones: it comes with every batch. */
WEIR__HOT void weir_ctx_read(weir_ctx *ctx)
{
    weir_ctx *to = ctx->is_slow ? NULL : next_for(ctx, WEIR_OP_READ);
    if (to != NULL && !to->is_slow)
        to->type->read(to);
    else
        read_slowly(ctx);
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
