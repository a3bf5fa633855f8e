/* SPDX-License-Identifier: MIT */
/* The handler: a decoder of records inbound, and a sealer of writes outbound. */
#include "tls/context.h"
#include "tls/engine.h"
#include "tls/job.h"
#include "tls/place.h"
#include "tls/seal.h"

#include <weir/alloc.h>
#include <weir/decoder.h>
#include <weir/loop.h>
#include <weir/tls.h>

#include <errno.h>
#include <string.h>

#define HANDSHAKE_MS 10000
#define CLOSE_MS 1000
#define MAX_WAITING ((size_t)1 << 20)
#define MOST_DECRYPTED ((size_t)64 << 10) /* in one buffer */
#define MOST_RACED ((size_t)2 << 20)      /* while a step is computed elsewhere, nothing is read */
#define REASON_WRITE 30                   /* of weir_channel_set_writable */
#define REASON_READ 3                     /* of weir_channel_set_readable */

typedef enum phase {
    WAITING, /* for the channel to be active */
    SHAKING,
    OPEN,
    OVER, /* it has failed, or is removed: nothing is decrypted or encrypted any more */
} phase;

typedef struct tls {
    weir_decoder decoder;
    weir_tls_context *context;
    char *host; /* NULL: none */
    int handshake_ms, close_ms;
    size_t max_waiting;
    weir_group *group; /* NULL: handshakes are computed here */

    weir_tls_engine *engine; /* NULL: not begun, over, or with the job */
    weir_tls_job *job;       /* NULL: none is away */
    weir_buf *next_in;       /* what a job is to be started with, behind the pass */
    weir_promise *handshake;
    weir_tls_session *session; /* to be told */
    weir_error *failure;       /* to be told, behind what was good */
    weir_tls_writes writes;    /* to be encrypted */
    weir_tls_writes sealed;    /* records, to be passed on */
    weir_promise *shutdown_promise, *close_promise;
    weir_ctx_timer timer; /* of the handshake, then of the close */

    uint8_t phase;
    bool is_flush_wanted; /* once it is open */
    bool is_ending;       /* a shutdown waits for that, too */
    bool is_output_ended; /* close_notify is said */
    bool is_input_ended;  /* and heard */
    bool is_end_told;     /* to the handlers behind */
    bool is_closing;      /* a close waits for the other side's close_notify */
    bool is_held_back;    /* the channel is unwritable because of what waits here */
    bool is_paused;       /* nothing is read until somebody takes what TLS itself has answered */
} tls;

static void release_promise(void *promise)
{
    weir_promise_release(promise);
}

static void release_session(void *session)
{
    weir_msg_release(session);
}

static const weir_attr_key handshake_key = { .name = "tls handshake", .destroy = release_promise };

weir_future *weir_tls_handshake(const weir_channel *channel)
{
    weir_promise *promise = weir_channel_attr(channel, &handshake_key);
    return promise != NULL ? weir_promise_future(promise) : NULL;
}

static bool has_option(weir_ctx *ctx, weir_option option)
{
    int64_t value = 0;
    weir_channel_get_option(weir_ctx_channel(ctx), option, &value);
    return value != 0;
}

/* Failing -------------------------------------------------------------------------------------- */

static void end_promise(weir_promise **promise, int code)
{
    weir_promise *ended = *promise;
    *promise = NULL;
    if (ended != NULL)
        weir_promise_set(ended, code);
    weir_promise_release(ended);
}

/* What is told when there is no memory for the words. */
static weir_error no_memory = { -ENOMEM, "tls", "no memory for what came of a handshake" };

static void drop_failure(tls *self)
{
    if (self->failure != &no_memory)
        weir_free(self->failure);
    self->failure = NULL;
}

static void set_paused(weir_ctx *ctx, tls *self, bool is_paused)
{
    if (self->is_paused == is_paused)
        return;
    self->is_paused = is_paused;
    weir_channel_set_readable(weir_ctx_channel(ctx), REASON_READ, !is_paused);
}

/* All that waited for something to come of it. */
static void let_go(weir_ctx *ctx, tls *self, int code)
{
    weir_ctx_cancel(ctx, &self->timer);
    weir__tls_writes_fail(&self->writes, code);
    end_promise(&self->shutdown_promise, code);
    if (self->is_held_back)
        weir_channel_set_writable(weir_ctx_channel(ctx), REASON_WRITE, true);
    self->is_held_back = self->is_ending = false;
    set_paused(ctx, self, false);
}

/* Whoever gets one of them may come back to this; then it goes on in there, so that records stay in
 * their order. */
static void pass_sealed(weir_ctx *ctx, tls *self)
{
    for (weir_tls_write next; weir__tls_writes_take(&self->sealed, &next);) {
        weir_ctx_write(ctx, &next.buf->msg, next.promise);
        weir_promise_release(next.promise);
    }
}

/* What TLS has to say beside the writes, behind those that are sealed; NULL: nothing. */
static weir_buf *take_output(weir_ctx *ctx, tls *self)
{
    pass_sealed(ctx, self);
    return self->engine != NULL ? weir__tls_engine_take_output(self->engine) : NULL;
}

/* Alerts, close_notify among them. Whether one gets there nobody asks, so it has a promise: without
 * it a peer that has gone would be one more error. */
static void send_last_words(weir_ctx *ctx, tls *self)
{
    weir_buf *out = take_output(ctx, self);
    if (out == NULL)
        return;
    weir_promise *promise = weir_channel_promise(weir_ctx_channel(ctx));
    weir_ctx_write(ctx, &out->msg, promise);
    weir_promise_release(promise);
    weir_ctx_flush(ctx);
}

/* Its own error comes here first. An alert goes out, and everybody who waits hears of it. */
static void tls_on_error(weir_ctx *ctx, const weir_error *error)
{
    tls *self = weir_ctx_state(ctx);
    if (self->decoder.is_over && self->phase != OVER) {
        if (self->phase == SHAKING && !weir_future_is_done(weir_promise_future(self->handshake)))
            weir_promise_fail_with(self->handshake, error);
        self->phase = OVER;
        send_last_words(ctx, self);
        let_go(ctx, self, error->code);
    }
    weir_ctx_fire_error(ctx, error);
}

static void fail(weir_ctx *ctx, const weir_error *error)
{
    tls *self = weir_ctx_state(ctx);
    if (self->decoder.is_over)
        return;
    self->decoder.is_over = true;
    weir_ctx_fail(ctx, error->code, "%s", error->message);
    weir_ctx_close(ctx, NULL);
}

static void fail_for(weir_ctx *ctx, int code, const char *message)
{
    weir_error error;
    weir_error_set(&error, code, "tls", "%s", message);
    fail(ctx, &error);
}

/* Sending -------------------------------------------------------------------------------------- */

static void hold_back(weir_ctx *ctx, tls *self)
{
    int64_t most = 0;
    if (!self->is_held_back)
        weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_WRITE_HIGH_BYTES, &most);
    bool is_much = self->is_held_back ? self->writes.bytes > 0 : self->writes.bytes > (size_t)most;
    if (is_much == self->is_held_back)
        return;
    self->is_held_back = is_much;
    weir_channel_set_writable(weir_ctx_channel(ctx), REASON_WRITE, !is_much);
}

/* Encrypts what was written, and passes it on. What comes back to this meanwhile finds all of it
 * encrypted. */
static void seal(weir_ctx *ctx, tls *self)
{
    weir_error error = { 0 };
    int code = weir__tls_seal(self->engine, &self->writes, &self->sealed, &error);
    pass_sealed(ctx, self);
    if (code < 0)
        fail(ctx, &error);
    else if (self->is_held_back)
        hold_back(ctx, self);
}

/* Handshakes, tickets, and answers to key updates, for which a peer may ask without end. */
static void send_output(weir_ctx *ctx, tls *self)
{
    weir_buf *out = take_output(ctx, self);
    if (out == NULL)
        return;
    weir_ctx_write_and_flush(ctx, &out->msg, NULL);
    if (self->phase == OPEN && !self->is_held_back)
        set_paused(ctx, self, !weir_channel_is_writable(weir_ctx_channel(ctx)));
}

static void tls_on_writability(weir_ctx *ctx)
{
    if (weir_channel_is_writable(weir_ctx_channel(ctx)))
        set_paused(ctx, weir_ctx_state(ctx), false);
    weir_ctx_fire_writability(ctx);
}

static void say_end(weir_ctx *ctx, tls *self)
{
    if (self->phase != OPEN || self->is_output_ended || self->engine == NULL)
        return;
    self->is_output_ended = true;
    weir__tls_engine_close(self->engine);
    send_last_words(ctx, self);
}

static void shut(weir_ctx *ctx, tls *self, weir_promise *promise)
{
    seal(ctx, self);
    say_end(ctx, self);
    weir_ctx_shutdown(ctx, promise);
}

/* Reading -------------------------------------------------------------------------------------- */

static weir_decoded refuse(weir_ctx *ctx, const weir_error *error)
{
    return weir_decoder_refuse(ctx, error->code, "%s", error->message);
}

static void note_step(tls *self, weir_tls_step step, const weir_error *error)
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

static weir_decoded tell_failure(weir_ctx *ctx, tls *self)
{
    weir_decoded decoded = refuse(ctx, self->failure);
    drop_failure(self);
    return decoded;
}

/* How many of the bytes are whole records that may be decrypted together. */
static int whole_records(const tls *self, const weir_buf *in, weir_error *error)
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
        if (self->phase == SHAKING)
            break; /* what is behind the handshake may be bytes already */
    }
    return (int)length;
}

static bool computes_elsewhere(weir_ctx *ctx, const tls *self)
{
    weir_loop *loop = weir_channel_loop(weir_ctx_channel(ctx));
    return self->group != NULL && loop != NULL &&
           weir_ctx_executor(ctx) == weir_loop_executor(loop);
}

static weir_decoded shake(weir_ctx *ctx, tls *self, weir_buf *in, size_t length)
{
    weir_error error;
    if (computes_elsewhere(ctx, self))
        return weir_buf_read_slice(in, length, &self->next_in) == 0
                   ? WEIR_DECODED_SKIPPED
                   : weir_decoder_refuse(ctx, -ENOMEM, "no memory for a handshake");
    weir_tls_step step = weir__tls_engine_shake(self->engine, in, length, &error);
    if (step == WEIR_TLS_STEP_FAILED)
        return refuse(ctx, &error);
    note_step(self, step, &error);
    return WEIR_DECODED_SKIPPED;
}

static weir_decoded decrypt(weir_ctx *ctx, tls *self, weir_buf *in, size_t length, weir_msg **msg)
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
    tls *self = weir_ctx_state(ctx);
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
    if (length < 0)
        return refuse(ctx, &error);
    if (length == 0)
        return WEIR_DECODED_NOTHING;
    return self->phase == SHAKING ? shake(ctx, self, in, (size_t)length)
                                  : decrypt(ctx, self, in, (size_t)length, out);
}

/* The handshake is done. Takes the reference. */
static void be_open(weir_ctx *ctx, tls *self, weir_msg *session)
{
    if (self->phase != SHAKING) { /* too late */
        weir_msg_release(session);
        return;
    }
    self->phase = OPEN;
    weir_ctx_cancel(ctx, &self->timer);
    if (weir_promise_succeed(self->handshake, weir_msg_retain(session), release_session) < 0)
        weir_msg_release(session); /* somebody has cancelled it */
    send_output(ctx, self);
    weir_ctx_fire_event(ctx, session);
    if (self->phase != OPEN)
        return;
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

static bool give(weir_ctx *ctx, weir_msg *msg)
{
    if (msg->type != &weir_tls_session_type) {
        weir_ctx_fire_read(ctx, msg);
        return true;
    }
    be_open(ctx, weir_ctx_state(ctx), msg);
    return false;
}

/* Behind a pass of the decoder ----------------------------------------------------------------- */

static void go_on(weir_ctx *ctx, tls *self);

static void close_at_last(weir_ctx *ctx, tls *self)
{
    weir_promise *promise = self->close_promise;
    self->close_promise = NULL;
    weir_ctx_close(ctx, promise);
    weir_promise_release(promise);
}

/* The other side has said that no more comes. Without half-closure that is the end of this side,
 * too, behind what was flushed. */
static void tell_end(weir_ctx *ctx, tls *self)
{
    if (!self->is_input_ended || self->is_end_told || self->phase != OPEN)
        return;
    self->is_end_told = true;
    if (self->is_closing)
        close_at_last(ctx, self);
    else if (has_option(ctx, WEIR_OPTION_ALLOW_HALF_CLOSURE))
        weir_ctx_fire_event(ctx, &weir_event_input_closed);
    else
        weir_channel_finish(weir_ctx_channel(ctx), NULL);
}

/* Looks at what it has again, as if more had come. */
static void decode_again(weir_ctx *ctx, tls *self)
{
    weir_buf *nothing = weir_buf_new(0);
    if (nothing == NULL) {
        fail_for(ctx, -ENOMEM, "no memory to go on with a handshake");
        return;
    }
    weir_decoder_on_read(ctx, &nothing->msg);
    go_on(ctx, self);
    weir_decoder_on_read_complete(ctx);
    tell_end(ctx, self);
}

static void on_job_done(weir_tls_job *job, weir_ctx *ctx)
{
    tls *self = weir_ctx_state(ctx);
    self->engine = job->engine;
    job->engine = NULL;
    self->job = NULL;
    weir_channel_set_readable(weir_ctx_channel(ctx), REASON_READ, true);
    if (self->phase != SHAKING)
        return; /* it has failed meanwhile, or the channel is closed */
    note_step(self, job->step, &job->error);
    decode_again(ctx, self);
}

static void start_job(weir_ctx *ctx, tls *self)
{
    weir_buf *in = self->next_in;
    self->next_in = NULL;
    self->job = weir__tls_job_start(ctx, weir_group_next(self->group), self->engine, in,
                                    on_job_done);
    if (self->job == NULL) {
        weir_buf_release(in);
        fail_for(ctx, -ENOMEM, "no memory for a handshake");
        return;
    }
    self->engine = NULL;
    weir_channel_set_readable(weir_ctx_channel(ctx), REASON_READ, false);
}

static void go_on(weir_ctx *ctx, tls *self)
{
    if (self->phase == OVER)
        return;
    send_output(ctx, self);
    if (self->next_in != NULL && self->phase == SHAKING)
        start_job(ctx, self);
}

static void tls_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_decoder_on_read(ctx, msg);
    go_on(ctx, weir_ctx_state(ctx));
}

static void tls_on_read_complete(weir_ctx *ctx)
{
    weir_decoder_on_read_complete(ctx);
    tell_end(ctx, weir_ctx_state(ctx));
}

/* Beginning ------------------------------------------------------------------------------------ */

static void on_time(weir_ctx_timer *timer, weir_ctx *ctx)
{
    tls *self = WEIR_CONTAINER(timer, tls, timer);
    weir_error error;
    if (self->is_closing) {
        close_at_last(ctx, self);
        return;
    }
    weir_error_set(&error, -ETIMEDOUT, "tls", "the handshake was not done in %d ms",
                   self->handshake_ms);
    fail(ctx, &error);
}

/* The port of the server, which is one of the two ends. */
static uint16_t server_port(weir_ctx *ctx, const tls *self)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_address address;
    int code = self->context->is_server ? weir_channel_local_address(channel, &address)
                                        : weir_channel_peer_address(channel, &address);
    return code == 0 ? weir_address_port(&address) : 0;
}

static void begin(weir_ctx *ctx, tls *self)
{
    weir_error error;
    if (self->phase != WAITING)
        return;
    const weir_tls_peer peer = { .host = self->host, .port = server_port(ctx, self) };
    self->phase = SHAKING;
    int code = weir__tls_engine_new(&self->engine, self->context, &peer, &error);
    if (code == 0 && self->handshake_ms > 0 &&
        weir_ctx_schedule(ctx, &self->timer, WEIR_MS(self->handshake_ms)) < 0)
        code = weir_error_set(&error, -ENOMEM, "tls", "no memory for a timer");
    if (code == 0 && !self->context->is_server &&
        weir__tls_engine_shake(self->engine, NULL, 0, &error) == WEIR_TLS_STEP_FAILED)
        code = error.code;
    if (code < 0) {
        fail(ctx, &error);
        return;
    }
    send_output(ctx, self);
    if (!has_option(ctx, WEIR_OPTION_AUTO_READ))
        weir_ctx_read(ctx); /* nobody else knows that something is awaited */
}

static void tls_on_active(weir_ctx *ctx)
{
    begin(ctx, weir_ctx_state(ctx));
    weir_ctx_fire_active(ctx);
}

static int check(const weir_tls *config, weir_error *error)
{
    if (config == NULL || config->context == NULL)
        return weir_error_set(error, -EINVAL, "tls", "TLS needs a weir_tls with a context");
    if (config->handshake_ms < WEIR_OFF || config->close_ms < WEIR_OFF)
        return weir_error_set(error, -EINVAL, "tls", "handshake_ms is %d and close_ms %d",
                              config->handshake_ms, config->close_ms);
    if (!config->context->is_server && config->host == NULL &&
        !atomic_load(&config->context->verifies_nothing))
        return weir_error_set(error, -EINVAL, "tls",
                              "a client must say whom it expects: host of weir_tls");
    return 0;
}

static int set_up(weir_ctx *ctx, tls *self, const weir_tls *config)
{
    weir_decoder_set_max_message(&self->decoder, MOST_RACED);
    self->timer.fire = on_time;
    self->handshake_ms = config->handshake_ms == 0 ? HANDSHAKE_MS : config->handshake_ms;
    self->close_ms = config->close_ms == 0 ? CLOSE_MS : config->close_ms;
    self->max_waiting = config->max_waiting_bytes > 0 ? config->max_waiting_bytes : MAX_WAITING;
    self->group = config->handshake_group;
    self->context = weir_tls_context_retain(config->context);
    self->handshake = weir_channel_promise(weir_ctx_channel(ctx));
    if (self->handshake == NULL)
        return -ENOMEM;
    if (config->host != NULL) {
        size_t size = strlen(config->host) + 1;
        self->host = weir_alloc(size);
        if (self->host == NULL)
            return -ENOMEM;
        memcpy(self->host, config->host, size);
    }
    return weir_channel_set_attr(weir_ctx_channel(ctx), &handshake_key,
                                 weir_promise_retain(self->handshake));
}

/* On an executor of its own it stays, and refuses what is written, which may be on its way. */
static void give_up(weir_ctx *ctx, tls *self, const weir_error *error)
{
    self->phase = OVER;
    self->decoder.is_over = true;
    if (weir__tls_is_on_loop(ctx)) {
        weir__tls_give_up(ctx, error->code, error->message);
        return;
    }
    weir_ctx_fire_error(ctx, error);
    weir_ctx_close(ctx, NULL);
}

static void tls_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode, .give = give };
    tls *self = weir_ctx_state(ctx);
    const weir_tls *config = weir_ctx_arg(ctx);
    weir_error error;
    weir_decoder_init(&self->decoder, &type);
    int code = check(config, &error);
    if (code == 0 && (code = set_up(ctx, self, config)) < 0)
        weir_error_set(&error, code, "tls", "no memory for TLS");
    if (code < 0) {
        give_up(ctx, self, &error);
        return;
    }
    if (!weir_channel_is_active(weir_ctx_channel(ctx)))
        return;
    weir_ctx_fire_event(ctx, &weir_event_switched);
    if (self->phase == WAITING)
        begin(ctx, self);
}

/* Ending --------------------------------------------------------------------------------------- */

static void drop_all(weir_ctx *ctx, tls *self, int code)
{
    self->phase = OVER;
    pass_sealed(ctx, self);
    let_go(ctx, self, code);
    if (self->handshake != NULL)
        weir_promise_fail(self->handshake, code); /* unless it is complete */
    weir_promise_release(self->handshake);
    self->handshake = NULL;
    if (self->job != NULL) {
        weir__tls_job_abandon(self->job);
        weir_channel_set_readable(weir_ctx_channel(ctx), REASON_READ, true);
    }
    self->job = NULL;
    if (self->next_in != NULL)
        weir_buf_release(self->next_in);
    self->next_in = NULL;
    if (self->session != NULL)
        weir_msg_release(&self->session->msg);
    self->session = NULL;
    drop_failure(self);
    weir__tls_engine_free(self->engine);
    self->engine = NULL;
    weir_tls_context_release(self->context);
    self->context = NULL;
    weir_free(self->host);
    self->host = NULL;
}

static void tls_removed(weir_ctx *ctx)
{
    tls *self = weir_ctx_state(ctx);
    bool is_open = weir_channel_is_active(weir_ctx_channel(ctx));
    if (self->context == NULL) {
        drop_all(ctx, self, WEIR_ECLOSED); /* it never began */
        return;
    }
    if (is_open && self->phase == OPEN && self->engine != NULL) {
        seal(ctx, self);
        say_end(ctx, self);
    }
    bool is_closing = self->is_closing;
    drop_all(ctx, self, WEIR_ECLOSED);
    if (is_closing)
        close_at_last(ctx, self);
    weir_decoder_removed(ctx);
}

/* The connection has ended. */
static void end_input(weir_ctx *ctx, tls *self)
{
    if (self->decoder.is_over || self->is_input_ended || self->is_closing)
        return;
    if (self->phase == OPEN)
        fail_for(ctx, WEIR_ETLS_TRUNCATED,
                 "the connection ended without close_notify: bytes may be missing");
    else if (self->phase == SHAKING)
        fail_for(ctx, WEIR_EOF, "the connection ended during the handshake");
}

static void tls_on_event(weir_ctx *ctx, weir_msg *event)
{
    tls *self = weir_ctx_state(ctx);
    if (event != &weir_event_input_closed || self->phase == OVER) {
        weir_ctx_fire_event(ctx, event);
        return;
    }
    if (self->is_closing)
        close_at_last(ctx, self);
    end_input(ctx, self); /* what was said of the end before is not said again */
}

static void tls_on_inactive(weir_ctx *ctx)
{
    tls *self = weir_ctx_state(ctx);
    if (weir_channel_get_state(weir_ctx_channel(ctx)) != WEIR_CHANNEL_OPEN)
        end_input(ctx, self);
    if (self->is_closing)
        close_at_last(ctx, self);
    let_go(ctx, self, WEIR_ECLOSED);
    self->phase = OVER;
    if (self->handshake != NULL)
        weir_promise_fail(self->handshake, WEIR_ECLOSED);
    weir_ctx_fire_inactive(ctx);
}

/* Writing -------------------------------------------------------------------------------------- */

static int check_write(weir_ctx *ctx, const tls *self, const weir_buf *buf)
{
    int64_t most = (int64_t)self->max_waiting;
    if (self->phase == OVER || self->is_closing)
        return WEIR_ECLOSED;
    if (self->is_output_ended || self->is_ending)
        return -EPIPE;
    if (buf == NULL)
        return -EOPNOTSUPP;
    size_t bytes = weir_buf_readable(buf) + self->writes.bytes;
    if (self->phase == OPEN && bytes > self->max_waiting)
        weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_MAX_OUTBOUND_BYTES, &most);
    return bytes > (uint64_t)most ? WEIR_ELIMIT : 0;
}

static void tls_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    tls *self = weir_ctx_state(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    int code = check_write(ctx, self, buf);
    if (code == 0)
        code = weir__tls_writes_add(&self->writes, buf, promise);
    if (code < 0)
        weir_ctx_refuse_write(ctx, msg, promise, code);
    else
        hold_back(ctx, self);
}

static void tls_flush(weir_ctx *ctx)
{
    tls *self = weir_ctx_state(ctx);
    if (self->phase == OPEN) {
        if (self->writes.list != NULL)
            seal(ctx, self);
        weir_ctx_flush(ctx);
    } else {
        self->is_flush_wanted = true;
    }
}

static void tls_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    tls *self = weir_ctx_state(ctx);
    if (self->phase == OPEN) {
        shut(ctx, self, promise);
    } else if (self->phase == OVER || self->is_ending) {
        if (promise != NULL)
            weir_promise_set(promise, self->is_ending ? -EALREADY : WEIR_ECLOSED);
    } else {
        self->is_ending = true;
        self->shutdown_promise = promise != NULL ? weir_promise_retain(promise) : NULL;
    }
}

/* Waits for the other side's close_notify, if it has one to say. */
static bool wait_for_end(weir_ctx *ctx, tls *self, weir_promise *promise)
{
    if (self->phase != OPEN || self->is_input_ended || self->is_closing || self->close_ms < 0 ||
        !weir_channel_is_active(weir_ctx_channel(ctx)) ||
        weir_ctx_schedule(ctx, &self->timer, WEIR_MS(self->close_ms)) < 0)
        return false;
    self->is_closing = true;
    self->close_promise = promise != NULL ? weir_promise_retain(promise) : NULL;
    if (!has_option(ctx, WEIR_OPTION_AUTO_READ))
        weir_ctx_read(ctx);
    return true;
}

static void tls_close(weir_ctx *ctx, weir_promise *promise)
{
    tls *self = weir_ctx_state(ctx);
    weir__tls_writes_fail(&self->writes, WEIR_ECLOSED);
    say_end(ctx, self);
    if (wait_for_end(ctx, self, promise))
        return;
    if (self->is_closing) /* who asks again does not want to wait */
        close_at_last(ctx, self);
    self->is_input_ended = true; /* nobody misses what is not heard any more */
    weir_ctx_close(ctx, promise);
}

const weir_handler_type weir_tls_handler = {
    .name = "tls",
    .state_size = sizeof(tls),
    .added = tls_added,
    .removed = tls_removed,
    .on_active = tls_on_active,
    .on_read = tls_on_read,
    .on_read_complete = tls_on_read_complete,
    .on_event = tls_on_event,
    .on_writability = tls_on_writability,
    .on_inactive = tls_on_inactive,
    .on_error = tls_on_error,
    .write = tls_write,
    .flush = tls_flush,
    .shutdown = tls_shutdown,
    .close = tls_close,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
