/* SPDX-License-Identifier: MIT */
/* TLS outbound: from what is written to records, and how this side ends. */
#include "tls/connection.h"
#include "tls/place.h"
#include "tls/seal.h"

#include <weir/alloc.h>

#include <errno.h>

/* Records on their way ------------------------------------------------------------------------- */

/* Whoever gets one of them may come back to this; then it goes on in there, so that records stay in
 * their order. */
void weir__tls_pass_sealed(weir_ctx *ctx, weir_tls_connection *self)
{
    for (weir_tls_write next; weir__tls_writes_take(&self->sealed, &next);) {
        weir_ctx_write(ctx, &next.buf->msg, next.promise);
        weir_promise_release(next.promise);
    }
}

/* What TLS has to say beside the writes, behind those that are sealed; NULL: nothing. */
static weir_buf *take_output(weir_ctx *ctx, weir_tls_connection *self)
{
    weir__tls_pass_sealed(ctx, self);
    return self->engine != NULL ? weir__tls_engine_take_output(self->engine) : NULL;
}

/* Alerts, close_notify among them. Whether one gets there nobody asks, so it has a promise: without
 * it a peer that has gone would be one more error. */
void weir__tls_send_last_words(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_buf *out = take_output(ctx, self);
    if (out == NULL)
        return;
    weir_promise *promise = weir_channel_promise(weir_ctx_channel(ctx));
    weir_ctx_write(ctx, &out->msg, promise);
    weir_promise_release(promise);
    weir_ctx_flush(ctx);
}

/* Whether the other side takes too little. That the channel is not writable for somebody's reason
 * says nothing about it: one that waits for a handshake behind this one needs what is read. */
static bool is_queue_full(weir_ctx *ctx)
{
    return weir_channel_bytes_before_writable(weir_ctx_channel(ctx)) > 0;
}

/* Nothing is read until what is queued by now is sent, or never will be. */
typedef struct pause {
    weir_listener listener;
    weir_channel *channel;
    weir_hold hold;
} pause;

static void end_pause(weir_listener *listener, weir_future *future)
{
    pause *self = WEIR_CONTAINER(listener, pause, listener);
    (void)future;
    weir_channel_set_read_hold(self->channel, &self->hold, false);
    weir_channel_release(self->channel);
    weir_free(self);
}

/* An empty message behind the others tells when they are sent. It is the channel's, not this
 * handler's, which may be elsewhere, or gone by then. */
static void pause_reading(weir_ctx *ctx)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    pause *self = weir_alloc(sizeof *self);
    weir_promise *promise = weir_channel_promise(channel);
    weir_buf *mark = weir_buf_new(0);
    if (self != NULL && promise != NULL && mark != NULL) {
        *self = (pause){ .listener = { .done = end_pause, .dropped = end_pause },
                         .channel = weir_channel_retain(channel) };
        weir_channel_set_read_hold(channel, &self->hold, true);
        weir_future_listen(weir_promise_future(promise), &self->listener);
        weir_ctx_write_and_flush(ctx, &mark->msg, promise);
        weir_promise_release(promise);
        return;
    }
    if (promise != NULL)
        weir_promise_set(promise, -ENOMEM);
    weir_promise_release(promise);
    if (mark != NULL)
        weir_buf_release(mark);
    weir_free(self);
    weir__tls_fail_for(ctx, -ENOMEM, "no memory to wait until an answer is sent");
}

void weir__tls_send_output(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_buf *out = take_output(ctx, self);
    if (out == NULL)
        return;
    weir_ctx_write_and_flush(ctx, &out->msg, NULL);
    if (self->phase == WEIR_TLS_OPEN && is_queue_full(ctx))
        pause_reading(ctx);
}

/* Sealing -------------------------------------------------------------------------------------- */

static void hold_back(weir_ctx *ctx, weir_tls_connection *self)
{
    int64_t max = 0;
    weir_hold *hold = &self->write_hold;
    if (!hold->is_set)
        weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_WRITE_HIGH_BYTES, &max);
    hold->needs_reads = true; /* the handshake does */
    weir_channel_set_write_hold(weir_ctx_channel(ctx), hold, self->writes.bytes > (size_t)max);
}

/* Encrypts what was written, and passes it on. What comes back to this meanwhile finds all of it
 * encrypted. */
static void seal(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_error error = { 0 };
    int code = weir__tls_seal(self->engine, &self->writes, &self->sealed, &error);
    weir__tls_pass_sealed(ctx, self);
    if (code < 0)
        weir__tls_fail(ctx, &error);
    else if (self->write_hold.is_set)
        hold_back(ctx, self);
}

/* Has the engine make a close_notify: false when there was one, or nothing to end. */
static bool end_engine(weir_tls_connection *self)
{
    if (self->phase != WEIR_TLS_OPEN || self->is_output_ended || self->engine == NULL)
        return false;
    self->is_output_ended = true;
    weir__tls_engine_close(self->engine);
    return true;
}

static void say_end(weir_ctx *ctx, weir_tls_connection *self)
{
    if (end_engine(self))
        weir__tls_send_last_words(ctx, self);
}

void weir__tls_end_output(weir_ctx *ctx, weir_tls_connection *self)
{
    seal(ctx, self);
    say_end(ctx, self);
}

void weir__tls_end_output_before_plain(weir_ctx *ctx, weir_tls_connection *self)
{
    seal(ctx, self);
    weir_buf *out = end_engine(self) ? take_output(ctx, self) : NULL;
    if (out == NULL)
        return;
    weir_ctx_write_piece(ctx, &out->msg, NULL);
    weir_ctx_flush(ctx);
}

static void shut(weir_ctx *ctx, weir_tls_connection *self, weir_promise *promise)
{
    weir__tls_end_output(ctx, self);
    weir_ctx_shutdown(ctx, promise);
}

void weir__tls_start_output(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_promise *promise = self->shutdown_promise;
    self->shutdown_promise = NULL;
    bool is_ending = self->is_ending, is_flush_wanted = self->is_flush_wanted;
    self->is_ending = self->is_flush_wanted = false;
    if (is_ending)
        shut(ctx, self, promise);
    else if (is_flush_wanted)
        seal(ctx, self);
    weir_promise_release(promise);
    if (is_flush_wanted)
        weir_ctx_flush(ctx);
}

/* Writes --------------------------------------------------------------------------------------- */

/* Also when it is encrypted: what is refused then would be a gap, which ends the connection. */
static bool has_room(weir_ctx *ctx, const weir_tls_connection *self, size_t bytes)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_channel_stats stats;
    int64_t most = 0;
    weir_channel_get_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, &most);
    weir_channel_get_stats(channel, &stats);
    size_t writes = weir__tls_writes_count(&self->writes) + 1;
    return stats.pending_bytes + weir__tls_sealed_most(bytes, writes) <= (uint64_t)most;
}

static int check_write(weir_ctx *ctx, const weir_tls_connection *self, const weir_buf *buf)
{
    if (self->phase == WEIR_TLS_OVER || self->is_closing)
        return WEIR_ECLOSED;
    if (self->is_output_ended || self->is_ending)
        return -EPIPE;
    if (buf == NULL)
        return -EOPNOTSUPP;
    size_t bytes = weir_buf_readable(buf) + self->writes.bytes;
    if (self->phase != WEIR_TLS_OPEN && bytes > self->config->max_waiting_bytes)
        return WEIR_ELIMIT;
    return has_room(ctx, self, bytes) ? 0 : WEIR_ELIMIT;
}

void weir__tls_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    int code = check_write(ctx, self, buf);
    if (code == 0)
        code = weir__tls_writes_add(&self->writes, buf, promise);
    if (code < 0)
        weir_ctx_refuse_write(ctx, msg, promise, code);
    else
        hold_back(ctx, self);
}

void weir__tls_flush(weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    if (self->phase == WEIR_TLS_OPEN) {
        if (self->writes.list != NULL)
            seal(ctx, self);
        weir_ctx_flush(ctx);
    } else {
        self->is_flush_wanted = true;
    }
}

/* The end -------------------------------------------------------------------------------------- */

/* Without half-closure the channel asks for this when the other side has ended. To a handshake that
 * is the end: what it waits for does not come any more. */
void weir__tls_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    if (self->phase == WEIR_TLS_OPEN && self->is_closing) {
        shut(ctx, self, NULL); /* writes since the close have not been sent */
        if (promise != NULL)
            weir_promise_set(promise, WEIR_ECLOSED);
    } else if (self->phase == WEIR_TLS_OPEN) {
        shut(ctx, self, promise);
    } else if (self->phase == WEIR_TLS_OVER || self->is_ending) {
        if (promise != NULL)
            weir_promise_set(promise, self->is_ending ? -EALREADY : WEIR_ECLOSED);
    } else {
        self->is_ending = true;
        self->shutdown_promise = promise != NULL ? weir_promise_retain(promise) : NULL;
    }
    if (self->phase == WEIR_TLS_SHAKING && weir_channel_is_input_closed(weir_ctx_channel(ctx)))
        weir__tls_close_input(ctx, self);
}

void weir__tls_close_at_last(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_promise *promise = self->close_promise;
    self->close_promise = NULL;
    weir_ctx_close(ctx, promise);
    weir_promise_release(promise);
}

/* Waits for the other side's close_notify, if it has one to say. */
static bool wait_for_end(weir_ctx *ctx, weir_tls_connection *self, weir_promise *promise)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    bool can_hear = weir_channel_is_active(channel) && !weir_channel_is_input_closed(channel);
    if (self->phase != WEIR_TLS_OPEN || self->is_input_ended || self->is_closing ||
        self->config->close_timeout_ns < 0 || !can_hear ||
        weir_ctx_schedule(ctx, &self->timer, self->config->close_timeout_ns) < 0)
        return false;
    self->is_closing = true;
    self->close_promise = promise != NULL ? weir_promise_retain(promise) : NULL;
    if (!weir__tls_has_option(ctx, WEIR_OPTION_AUTO_READ))
        weir_ctx_read(ctx);
    return true;
}

void weir__tls_close(weir_ctx *ctx, weir_promise *promise)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    weir__tls_writes_fail(&self->writes, WEIR_ECLOSED);
    say_end(ctx, self);
    if (wait_for_end(ctx, self, promise))
        return;
    if (self->is_closing) /* who asks again does not want to wait */
        weir__tls_close_at_last(ctx, self);
    self->is_input_ended = true; /* nobody misses what is not heard any more */
    weir_ctx_close(ctx, promise);
}

static void end_promise(weir_promise **promise, int code)
{
    weir_promise *ended = *promise;
    *promise = NULL;
    if (ended != NULL)
        weir_promise_set(ended, code);
    weir_promise_release(ended);
}

void weir__tls_let_go(weir_ctx *ctx, weir_tls_connection *self, int code)
{
    weir_ctx_cancel(ctx, &self->timer);
    weir__tls_writes_fail(&self->writes, code);
    end_promise(&self->shutdown_promise, code);
    weir_channel_set_write_hold(weir_ctx_channel(ctx), &self->write_hold, false);
    self->is_ending = false;
}
