/* SPDX-License-Identifier: MIT */
/* TLS inbound: from records to a handshake, then to bytes, and how the other side ends. */
#include "tls/connection.h"
#include "tls/context.h"
#include "tls/place.h"

#include <weir/alloc.h>

#include <errno.h>

#define MOST_DECRYPTED ((size_t)64 << 10) /* in one buffer */

/* What came of a step -------------------------------------------------------------------------- */

/* What is told when there is no memory for the words. */
static weir_error no_memory = { -ENOMEM, "tls", "no memory for what came of a handshake" };

static void drop_failure(weir_tls_connection *self)
{
    if (self->failure != &no_memory)
        weir_free(self->failure);
    self->failure = NULL;
}

static weir_decoded refuse(weir_ctx *ctx, const weir_error *error)
{
    return weir_decoder_refuse(ctx, error->code, "%s", error->message);
}

static void note_step(weir_tls_connection *self, weir_tls_step step, const weir_error *error)
{
    if (step == WEIR_TLS_STEP_DONE) {
        self->session = weir__tls_engine_session(self->engine);
        if (self->session == NULL)
            self->failure = &no_memory;
    } else if (step == WEIR_TLS_STEP_FAILED) {
        self->failure = weir_alloc(sizeof *self->failure);
        if (self->failure != NULL)
            *self->failure = *error;
        else
            self->failure = &no_memory;
    }
}

static weir_decoded tell_failure(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_decoded decoded = refuse(ctx, self->failure);
    drop_failure(self);
    return decoded;
}

/* Records -------------------------------------------------------------------------------------- */

/* How many of the bytes are whole records that may be decrypted together. */
static int whole_records(const weir_tls_connection *self, const weir_buf *in, weir_error *error)
{
    size_t index = weir_buf_reader(in), there = weir_buf_readable(in), length = 0;
    uint8_t header[WEIR__TLS_HEADER];
    while (length < MOST_DECRYPTED) {
        size_t left = there - length;
        size_t part = left < sizeof header ? left : sizeof header;
        weir_buf_get_bytes(in, index + length, header, part);
        int next = weir__tls_record_length(header, part, error);
        if (next > 0 && weir__tls_engine_is_renegotiation(self->engine, header[0]))
            next = weir_error_set(error, WEIR_ETLS_RENEGOTIATION, "tls",
                                  "the other side wants to negotiate anew");
        if (next < 0 && length == 0)
            return next;
        if (next <= 0 || (size_t)next > left || length + (size_t)next > MOST_DECRYPTED)
            break;
        length += (size_t)next;
        if (self->phase == WEIR_TLS_SHAKING)
            break; /* what is behind the handshake may be bytes already */
    }
    return (int)length;
}

/* OpenSSL sends the alert for a record that is too long when it sees the header, and offers no
 * other way to send one. What it says of it is not told. */
static void have_it_refused(weir_tls_connection *self, weir_buf *in)
{
    weir_error error;
    weir_buf *out = weir_buf_new(WEIR__TLS_HEADER);
    if (out == NULL)
        return;
    if (self->phase == WEIR_TLS_SHAKING)
        weir__tls_engine_shake(self->engine, in, WEIR__TLS_HEADER, &error);
    else
        weir__tls_engine_decrypt(self->engine, in, WEIR__TLS_HEADER, out, &error);
    weir_buf_release(out);
}

static weir_decoded shake(weir_ctx *ctx, weir_tls_connection *self, weir_buf *in, size_t length)
{
    weir_error error;
    if (self->config->handshake_group != NULL && weir__tls_is_on_loop(ctx))
        return weir_buf_read_slice(in, length, &self->next_in) == 0
                   ? WEIR_DECODED_SKIPPED
                   : weir_decoder_refuse(ctx, -ENOMEM, "no memory for a handshake");
    weir_tls_step step = weir__tls_engine_shake(self->engine, in, length, &error);
    if (step == WEIR_TLS_STEP_FAILED)
        return refuse(ctx, &error);
    note_step(self, step, &error);
    return WEIR_DECODED_SKIPPED;
}

static weir_decoded decrypt(weir_ctx *ctx, weir_tls_connection *self, weir_buf *in, size_t length,
                            weir_msg **msg)
{
    weir_error error;
    weir_buf *out = weir_buf_new(length);
    if (out == NULL)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory for what is read");
    weir_tls_step step = weir__tls_engine_decrypt(self->engine, in, length, out, &error);
    self->is_input_ended |= step == WEIR_TLS_STEP_ENDED;
    bool has_bytes = weir_buf_readable(out) > 0 && !self->is_closing;
    if (has_bytes) {
        *msg = &out->msg;
        note_step(self, step, &error);
        return WEIR_DECODED_MESSAGE;
    }
    weir_buf_release(out);
    return step == WEIR_TLS_STEP_FAILED ? refuse(ctx, &error) : WEIR_DECODED_SKIPPED;
}

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    weir_error error;
    if (self->failure != NULL)
        return tell_failure(ctx, self);
    if (self->session != NULL) {
        *out = &self->session->msg;
        self->session = NULL;
        return WEIR_DECODED_MESSAGE;
    }
    if (self->engine == NULL || self->next_in != NULL || weir_buf_readable(in) == 0)
        return WEIR_DECODED_NOTHING;
    if (self->is_input_ended) { /* behind the end there is nothing */
        weir_buf_skip(in, weir_buf_readable(in));
        return WEIR_DECODED_SKIPPED;
    }
    int length = whole_records(self, in, &error);
    if (length < 0) {
        weir_decoded refused = refuse(ctx, &error); /* first, for it says where the reader is */
        if (length == WEIR_ETLS_RECORD)
            have_it_refused(self, in);
        return refused;
    }
    if (length == 0)
        return WEIR_DECODED_NOTHING;
    return self->phase == WEIR_TLS_SHAKING ? shake(ctx, self, in, (size_t)length)
                                           : decrypt(ctx, self, in, (size_t)length, out);
}

/* What is given to the handlers behind --------------------------------------------------------- */

static void release_session(void *session)
{
    weir_msg_release(session);
}

static void count(weir_tls_connection *self, const weir_tls_session *session)
{
    weir_tls_context *context = self->config->context;
    atomic_fetch_add_explicit(&context->handshakes, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&context->resumed, session->is_resumed, memory_order_relaxed);
}

/* The handshake is done. Takes the reference. */
static void be_open(weir_ctx *ctx, weir_tls_connection *self, weir_msg *session)
{
    if (self->phase != WEIR_TLS_SHAKING) { /* too late */
        weir_msg_release(session);
        return;
    }
    self->phase = WEIR_TLS_OPEN;
    count(self, weir_tls_session_from(session));
    weir_ctx_cancel(ctx, &self->timer);
    if (weir_promise_succeed(self->handshake, weir_msg_retain(session), release_session) < 0)
        weir_msg_release(session); /* somebody has cancelled it */
    weir__tls_send_output(ctx, self);
    weir_ctx_fire_event(ctx, session);
    if (self->phase == WEIR_TLS_OPEN)
        weir__tls_start_output(ctx, self);
}

static bool give(weir_ctx *ctx, weir_msg *msg)
{
    if (msg->type != &weir_tls_session_type) {
        weir_ctx_fire_read(ctx, msg);
        return true;
    }
    weir_tls_connection *self = weir_ctx_state(ctx);
    be_open(ctx, self, msg);
    return !self->is_read_asked;
}

const weir_decoder_type weir__tls_records = { .decode = decode, .give = give };

/* Behind a pass of the decoder ----------------------------------------------------------------- */

static void finish(weir_ctx *ctx, weir_tls_connection *self)
{
    self->is_finishing = true;
    weir_channel_finish(weir_ctx_channel(ctx), NULL);
}

/* The other side has said that no more comes. Without half-closure that is the end of this side,
 * too, behind what was flushed. */
static void tell_end(weir_ctx *ctx, weir_tls_connection *self)
{
    if (!self->is_input_ended || self->is_end_told || self->phase != WEIR_TLS_OPEN)
        return;
    self->is_end_told = true;
    if (self->is_closing)
        weir__tls_close_at_last(ctx, self);
    else if (weir__tls_has_option(ctx, WEIR_OPTION_ALLOW_HALF_CLOSURE))
        weir_ctx_fire_event(ctx, &weir_event_input_closed);
    else
        finish(ctx, self);
}

static void go_on(weir_ctx *ctx, weir_tls_connection *self);

/* Looks at what it has again, as if more had come. */
static void decode_again(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_buf *nothing = weir_buf_new(0);
    if (nothing == NULL) {
        weir__tls_fail_for(ctx, -ENOMEM, "no memory to go on with a handshake");
        return;
    }
    weir_decoder_on_read(ctx, &nothing->msg);
    go_on(ctx, self);
    weir__tls_on_read_complete(ctx);
    if (self->phase == WEIR_TLS_SHAKING && weir_channel_is_input_closed(weir_ctx_channel(ctx)))
        weir__tls_close_input(ctx, self); /* meanwhile */
}

static void on_job_done(weir_tls_job *job, weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    self->engine = job->engine;
    job->engine = NULL;
    self->job = NULL;
    weir_channel_set_read_hold(weir_ctx_channel(ctx), &self->read_hold, false);
    if (self->phase != WEIR_TLS_SHAKING)
        return; /* it has failed meanwhile, or the channel is closed */
    note_step(self, job->step, &job->error);
    decode_again(ctx, self);
}

static void start_job(weir_ctx *ctx, weir_tls_connection *self)
{
    weir_buf *in = self->next_in;
    self->next_in = NULL;
    self->job = weir__tls_job_start(ctx, weir_group_next(self->config->handshake_group),
                                    self->engine, in, on_job_done);
    if (self->job == NULL) {
        weir_buf_release(in);
        weir__tls_fail_for(ctx, -ENOMEM, "no memory for a handshake");
        return;
    }
    self->engine = NULL;
    weir_channel_set_read_hold(weir_ctx_channel(ctx), &self->read_hold, true);
}

static void go_on(weir_ctx *ctx, weir_tls_connection *self)
{
    if (self->phase == WEIR_TLS_OVER)
        return;
    weir__tls_send_output(ctx, self);
    if (self->next_in != NULL && self->phase == WEIR_TLS_SHAKING)
        start_job(ctx, self);
}

void weir__tls_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    weir_decoder_on_read(ctx, msg);
    go_on(ctx, self);
}

/* While a step is away it is not known whether the handshake needs more: that is asked for when the
 * step is back. */
void weir__tls_on_read_complete(weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    self->decoder.has_decoded |= self->job != NULL;
    weir_decoder_on_read_complete(ctx);
    tell_end(ctx, self);
}

/* What the handshake reads is not what somebody asks for meanwhile, who still wants it then. */
void weir__tls_read(weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    if (self->phase <= WEIR_TLS_SHAKING && !weir__tls_has_option(ctx, WEIR_OPTION_AUTO_READ))
        self->is_read_asked = true;
    weir_ctx_read(ctx);
}

/* The end -------------------------------------------------------------------------------------- */

void weir__tls_end_input(weir_ctx *ctx, weir_tls_connection *self)
{
    if (self->decoder.is_over || self->is_input_ended || self->is_closing)
        return;
    if (self->phase == WEIR_TLS_OPEN)
        weir__tls_fail_for(ctx, WEIR_ETLS_TRUNCATED,
                           "the connection ended without close_notify: bytes may be missing");
    else if (self->phase == WEIR_TLS_SHAKING)
        weir__tls_fail_for(ctx, WEIR_EOF,
                           "the other side ended the connection during the handshake");
}

void weir__tls_close_input(weir_ctx *ctx, weir_tls_connection *self)
{
    if (self->job == NULL && self->next_in == NULL)
        weir__tls_end_input(ctx, self);
}

void weir__tls_on_event(weir_ctx *ctx, weir_msg *event)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    if (weir_tls_session_from(event) != NULL) {
        weir_msg_release(event); /* of TLS around this, which is not what the others are behind */
        return;
    }
    if (event != &weir_event_input_closed || self->phase == WEIR_TLS_OVER) {
        weir_ctx_fire_event(ctx, event);
        return;
    }
    if (self->is_closing)
        weir__tls_close_at_last(ctx, self);
    else if (self->is_finishing)
        weir_ctx_fire_event(ctx, event); /* somebody behind may hold that up */
    else
        weir__tls_close_input(ctx, self); /* what was said of the end before is not said again */
}

void weir__tls_drop_input(weir_ctx *ctx, weir_tls_connection *self)
{
    if (self->job != NULL) {
        weir__tls_job_abandon(self->job);
        weir_channel_set_read_hold(weir_ctx_channel(ctx), &self->read_hold, false);
    }
    self->job = NULL;
    if (self->next_in != NULL)
        weir_buf_release(self->next_in);
    self->next_in = NULL;
    if (self->session != NULL)
        weir_msg_release(&self->session->msg);
    self->session = NULL;
    drop_failure(self);
}
