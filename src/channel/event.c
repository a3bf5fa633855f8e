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
    const struct {
        weir_event_kind kind;
        bool is_there;
    } callbacks[] = {
        { WEIR_EV_REGISTERED, type->on_registered != NULL },
        { WEIR_EV_ACTIVE, type->on_active != NULL },
        { WEIR_EV_READ, type->on_read != NULL },
        { WEIR_EV_READ_COMPLETE, type->on_read_complete != NULL },
        { WEIR_EV_EVENT, type->on_event != NULL },
        { WEIR_EV_WRITABILITY, type->on_writability != NULL },
        { WEIR_EV_INACTIVE, type->on_inactive != NULL },
        { WEIR_EV_UNREGISTERED, type->on_unregistered != NULL },
        { WEIR_EV_ERROR, type->on_error != NULL },
        { WEIR_OP_BIND, type->bind != NULL },
        { WEIR_OP_CONNECT, type->connect != NULL },
        { WEIR_OP_DISCONNECT, type->disconnect != NULL },
        { WEIR_OP_READ, type->read != NULL },
        { WEIR_OP_WRITE, type->write != NULL },
        { WEIR_OP_FLUSH, type->flush != NULL },
        { WEIR_OP_SHUTDOWN, type->shutdown != NULL },
        { WEIR_OP_CLOSE, type->close != NULL },
        { WEIR_OP_DEREGISTER, type->deregister != NULL },
    };
    uint32_t mask = 0;
    for (size_t i = 0; i < sizeof callbacks / sizeof *callbacks; i++)
        mask |= (uint32_t)callbacks[i].is_there << callbacks[i].kind;
    return mask;
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

void weir__event_call(weir_ctx *ctx, const weir_event *event)
{
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

static inline __attribute__((always_inline)) void pass(weir_ctx *from, const weir_event *event)
{
    weir_ctx *ctx = next_for(from, event->kind);
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

/* What a handler passes on: from elsewhere that goes through the inbox. */
static inline __attribute__((always_inline)) void forward(weir_ctx *from, const weir_event *event)
{
    WEIR_ASSERT(weir__ctx_is_here(from));
    if (__builtin_expect(from->is_elsewhere, 0))
        weir__inbox_send(from->channel, from, event, false);
    else
        pass(from, event);
}

void weir__event_drop(weir_channel *channel, const weir_event *event, int code)
{
    bool has_promise = event->promise != NULL;
    if (event->msg != NULL)
        weir_msg_release(event->msg);
    weir__promise_end(event->promise, code);
    switch (event->kind) {
    case WEIR_OP_FLUSH:
        weir__inbox_push_missed(channel, WEIR__MISSED_FLUSH);
        break;
    case WEIR_OP_READ:
        weir__inbox_push_missed(channel, WEIR__MISSED_READ);
        break;
    case WEIR_OP_WRITE:
        if (!has_promise)
            weir__inbox_push_missed(channel, WEIR__MISSED_WRITE);
        break;
    case WEIR_EV_READ:
    case WEIR_EV_ERROR:
    case WEIR_OP_CLOSE:
        weir__inbox_push_missed(channel, WEIR__MISSED_CLOSE);
        break;
    default:
        /* Nobody would ever know that it is missing. */
        if (!has_promise && !weir__event_is_inbound(event->kind))
            weir__inbox_push_missed(channel, WEIR__MISSED_CLOSE);
        break;
    }
    if (!has_promise)
        weir_log(WEIR_LOG_WARN, "channel", "%08llx: an event was lost: %s",
                 (unsigned long long)channel->id, weir_error_text(code));
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

static weir_channel *channel_of(weir_pipeline *pipeline)
{
    return pipeline->head.channel;
}

/* As long as its handlers have not been added nothing shall go past them, nor before what waited
 * for that. */
static inline bool waits_for_loop(const weir_channel *channel)
{
    return weir__channel_loop(channel) == NULL || channel->has_kept;
}

/* Starts an event of somebody's outside the pipeline. */
static inline __attribute__((always_inline)) void begin(weir_channel *channel,
                                                        const weir_event *event, bool flushes)
{
    weir_owner owner = weir__channel_owner(channel);
    if (owner == WEIR_OWNER_NOBODY) {
        /* There is no pipeline any more, and closing it has succeeded. */
        if (event->msg != NULL)
            weir_msg_release(event->msg);
        weir__promise_end(event->promise, event->kind == WEIR_OP_CLOSE ? 0 : WEIR_ECLOSED);
    } else if (owner == WEIR_OWNER_OTHERS) {
        weir__inbox_send(channel, NULL, event, flushes);
    } else if (__builtin_expect(waits_for_loop(channel), 0) && event->kind != WEIR_OP_CLOSE) {
        weir__inbox_keep(channel, event, flushes);
    } else {
        enter(channel, event);
        if (flushes)
            enter(channel, &(weir_event){ .kind = WEIR_OP_FLUSH });
    }
}

void weir_pipeline_fire_event(weir_pipeline *pipeline, weir_msg *event)
{
    if (pipeline == NULL || event == NULL)
        weir_msg_release(event);
    else
        begin(channel_of(pipeline), &(weir_event){ .kind = WEIR_EV_EVENT, .msg = event }, false);
}

void weir_pipeline_fire_read(weir_pipeline *pipeline, weir_msg *msg)
{
    if (pipeline == NULL || msg == NULL)
        weir_msg_release(msg);
    else
        begin(channel_of(pipeline), &(weir_event){ .kind = WEIR_EV_READ, .msg = msg }, false);
}

void weir_pipeline_fire_read_complete(weir_pipeline *pipeline)
{
    if (pipeline != NULL)
        begin(channel_of(pipeline), &(weir_event){ .kind = WEIR_EV_READ_COMPLETE }, false);
}

static void set_error(weir_error *error, int code, const char *origin, const char *format,
                      va_list args)
{
    char text[sizeof error->message];
    vsnprintf(text, sizeof text, format, args);
    weir_error_set(error, code < 0 ? code : -EINVAL, origin, "%s", text);
}

void weir_pipeline_fire_error(weir_pipeline *pipeline, int code, const char *format, ...)
{
    weir_error error;
    va_list args;
    if (pipeline == NULL || format == NULL)
        return;
    va_start(args, format);
    set_error(&error, code, "pipeline", format, args);
    va_end(args);
    begin(channel_of(pipeline), &(weir_event){ .kind = WEIR_EV_ERROR, .error = &error }, false);
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
    if (msg != NULL)
        forward(ctx, &(weir_event){ .kind = WEIR_EV_READ, .msg = msg });
}

void weir_ctx_fire_read_complete_slowly(weir_ctx *ctx)
{
    forward(ctx, &(weir_event){ .kind = WEIR_EV_READ_COMPLETE });
}

void weir_ctx_write_slowly(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    if (msg == NULL)
        weir__promise_end(promise, -EINVAL);
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
    set_error(&error, code, name, format != NULL ? format : "failed", args);
    va_end(args);
    if (weir__ctx_fail_added(ctx, &error))
        return;
    if (ctx->type->on_error != NULL && !ctx->in_error && !weir_ctx_is_removed(ctx))
        call_on_error(ctx, &error);
    else
        weir_ctx_fire_error(ctx, &error);
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

void weir_ctx_read(weir_ctx *ctx)
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
    forward(ctx, &(weir_event){ .kind = WEIR_OP_SHUTDOWN, .promise = promise });
}

void weir_ctx_close(weir_ctx *ctx, weir_promise *promise)
{
    forward(ctx, &(weir_event){ .kind = WEIR_OP_CLOSE, .promise = promise });
}

void weir_ctx_deregister(weir_ctx *ctx, weir_promise *promise)
{
    forward(ctx, &(weir_event){ .kind = WEIR_OP_DEREGISTER, .promise = promise });
}

/* What everybody calls ----------------------------------------------------------------------- */

/* NULL for a channel completes the promise, too: nobody shall wait for it in vain. */
static bool is_refused(const weir_channel *channel, weir_promise *promise)
{
    if (channel == NULL)
        weir__promise_end(promise, -EINVAL);
    return channel == NULL;
}

void weir_channel_bind(weir_channel *channel, const weir_address *local, weir_promise *promise)
{
    if (!is_refused(local != NULL ? channel : NULL, promise))
        begin(channel, &(weir_event){ .kind = WEIR_OP_BIND, .address = local, .promise = promise },
              false);
}

void weir_channel_connect(weir_channel *channel, const weir_address *remote,
                          const weir_address *local, weir_promise *promise)
{
    weir_event event = { .kind = WEIR_OP_CONNECT, .promise = promise };
    event.address = remote;
    event.local = local;
    if (!is_refused(remote != NULL ? channel : NULL, promise))
        begin(channel, &event, false);
}

void weir_channel_disconnect(weir_channel *channel, weir_promise *promise)
{
    if (!is_refused(channel, promise))
        begin(channel, &(weir_event){ .kind = WEIR_OP_DISCONNECT, .promise = promise }, false);
}

void weir_channel_read(weir_channel *channel)
{
    if (channel != NULL)
        begin(channel, &(weir_event){ .kind = WEIR_OP_READ }, false);
}

/* On its loop, and nothing waits that has to go before. */
static inline bool is_straight(const weir_channel *channel)
{
    const weir_loop *loop = weir__channel_loop(channel);
    return loop != NULL && weir_executor_is_current(&loop->base) && !channel->has_kept &&
           weir__lifecycle_state(&channel->life) != WEIR_CHANNEL_UNREGISTERED;
}

static __attribute__((noinline)) void write_from_outside(weir_channel *channel, weir_msg *msg,
                                                         weir_promise *promise, bool flushes)
{
    if (channel == NULL || msg == NULL) {
        weir_msg_release(msg);
        weir__promise_end(promise, -EINVAL);
        return;
    }
    begin(channel, &(weir_event){ .kind = WEIR_OP_WRITE, .msg = msg, .promise = promise }, flushes);
}

void weir_channel_write(weir_channel *channel, weir_msg *msg, weir_promise *promise)
{
    if (channel != NULL && is_straight(channel) && msg != NULL)
        weir_ctx_write(&channel->pipeline.tail, msg, promise);
    else
        write_from_outside(channel, msg, promise, false);
}

void weir_channel_flush(weir_channel *channel)
{
    if (channel != NULL && is_straight(channel))
        weir_ctx_flush(&channel->pipeline.tail);
    else if (channel != NULL)
        begin(channel, &(weir_event){ .kind = WEIR_OP_FLUSH }, false);
}

void weir_channel_write_and_flush(weir_channel *channel, weir_msg *msg, weir_promise *promise)
{
    if (channel == NULL || !is_straight(channel) || msg == NULL) {
        write_from_outside(channel, msg, promise, true);
        return;
    }
    weir_ctx_write(&channel->pipeline.tail, msg, promise);
    weir_ctx_flush(&channel->pipeline.tail);
}

void weir_channel_shutdown(weir_channel *channel, weir_promise *promise)
{
    if (!is_refused(channel, promise))
        begin(channel, &(weir_event){ .kind = WEIR_OP_SHUTDOWN, .promise = promise }, false);
}

void weir_channel_close(weir_channel *channel, weir_promise *promise)
{
    if (!is_refused(channel, promise))
        begin(channel, &(weir_event){ .kind = WEIR_OP_CLOSE, .promise = promise }, false);
}

void weir_channel_deregister(weir_channel *channel, weir_promise *promise)
{
    if (!is_refused(channel, promise))
        begin(channel, &(weir_event){ .kind = WEIR_OP_DEREGISTER, .promise = promise }, false);
}
