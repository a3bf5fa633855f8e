/* SPDX-License-Identifier: MIT */
/* Where events of others enter a pipeline: what everybody may call, on any thread. */
#include "channel/inbox.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static weir_channel *channel_of(weir_pipeline *pipeline)
{
    return pipeline->head.channel;
}

/* Calls wait while handlers are being added, and while earlier calls wait. */
static inline bool has_to_wait(const weir_channel *channel)
{
    return weir__channel_loop(channel) == NULL || weir__inbox_is_waiting(channel);
}

/* A close promise completes with the others, also when handlers on other executors have still to be
 * removed. Without a loop these may come back on any thread: the inbox keeps them apart. */
static void close_ended_channel(weir_channel *channel, const weir_event *event)
{
    const weir_future *closed = atomic_load_explicit(&channel->shared.closed, memory_order_acquire);
    if (event->promise == NULL || weir_future_is_done(closed))
        weir__promise_end(event->promise, 0);
    else if (weir__channel_loop(channel) != NULL && weir__channel_is_mine(channel))
        weir__channel_close_now(channel, event->promise);
    else
        weir__inbox_send(channel, event, false);
}

/* Starts an event from outside the pipeline. */
static void begin(weir_channel *channel, const weir_event *event, bool flushes)
{
    weir_owner owner = weir__channel_owner(channel);
    if (owner == WEIR_OWNER_NOBODY && event->kind == WEIR_OP_CLOSE) {
        close_ended_channel(channel, event);
    } else if (owner == WEIR_OWNER_NOBODY) {
        if (event->msg != NULL)
            weir_msg_release(event->msg);
        weir__promise_end(event->promise, WEIR_ECLOSED);
    } else if (owner == WEIR_OWNER_OTHERS) {
        weir__inbox_send(channel, event, flushes);
    } else if (__builtin_expect(has_to_wait(channel), 0) && event->kind != WEIR_OP_CLOSE) {
        weir__inbox_keep(channel, event, flushes);
    } else {
        weir__event_enter_from_outside(channel, event);
        if (flushes)
            weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_FLUSH });
    }
}

/* On its loop, and nothing waits that has to go before. */
static inline bool is_straight(const weir_channel *channel)
{
    const weir_loop *loop = weir__channel_loop(channel);
    return loop != NULL && weir_executor_is_current(&loop->base) &&
           !weir__inbox_is_waiting(channel) && weir__channel_state(channel) != WEIR_LIFE_ENDED;
}

/* Later, also on the loop: the caller may be visiting channels. Needs no memory. */
void weir_channel_drain(weir_channel *channel)
{
    if (channel != NULL && !atomic_exchange(&channel->shared.is_draining, true) &&
        weir__channel_owner(channel) != WEIR_OWNER_NOBODY)
        weir__inbox_push_missed(channel, WEIR__MISSED_DRAIN);
}

bool weir_channel_is_draining(const weir_channel *channel)
{
    return channel != NULL &&
           atomic_load_explicit(&channel->shared.is_draining, memory_order_acquire);
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
    if (pipeline == NULL)
        weir_msg_release(msg);
    else if (msg == NULL)
        weir__channel_lose(channel_of(pipeline), -ENOMEM);
    else if (is_straight(channel_of(pipeline)))
        weir_ctx_fire_read(&pipeline->head, msg);
    else
        begin(channel_of(pipeline), &(weir_event){ .kind = WEIR_EV_READ, .msg = msg }, false);
}

void weir_pipeline_fire_read_complete(weir_pipeline *pipeline)
{
    if (pipeline != NULL)
        begin(channel_of(pipeline), &(weir_event){ .kind = WEIR_EV_READ_COMPLETE }, false);
}

void weir_pipeline_fire_error(weir_pipeline *pipeline, int code, const char *format, ...)
{
    weir_error error;
    va_list args;
    if (pipeline == NULL || format == NULL)
        return;
    va_start(args, format);
    weir__error_set_args(&error, code, "pipeline", format, args);
    va_end(args);
    begin(channel_of(pipeline), &(weir_event){ .kind = WEIR_EV_ERROR, .error = &error }, false);
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
    if (channel != NULL && is_straight(channel))
        weir_ctx_read(&channel->pipeline.tail);
    else if (channel != NULL)
        begin(channel, &(weir_event){ .kind = WEIR_OP_READ }, false);
}

static __attribute__((noinline)) void write_from_outside(weir_channel *channel, weir_msg *msg,
                                                         weir_promise *promise, bool flushes)
{
    if (channel == NULL) {
        weir_msg_release(msg);
        weir__promise_end(promise, -EINVAL);
        return;
    }
    if (msg == NULL) {
        weir__event_write_null(channel, promise);
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

static void begin_end(weir_channel *channel, weir_event_kind kind, weir_promise *promise)
{
    if (is_refused(channel, promise))
        return;
    weir__channel_note_end(channel);
    begin(channel, &(weir_event){ .kind = kind, .promise = promise }, false);
}

void weir_channel_shutdown(weir_channel *channel, weir_promise *promise)
{
    begin_end(channel, WEIR_OP_SHUTDOWN, promise);
}

void weir_channel_close(weir_channel *channel, weir_promise *promise)
{
    begin_end(channel, WEIR_OP_CLOSE, promise);
}

void weir_channel_deregister(weir_channel *channel, weir_promise *promise)
{
    if (!is_refused(channel, promise))
        begin(channel, &(weir_event){ .kind = WEIR_OP_DEREGISTER, .promise = promise }, false);
}
