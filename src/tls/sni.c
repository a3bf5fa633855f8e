/* SPDX-License-Identifier: MIT */
/* The handler that chooses a context by the name in the ClientHello. */
#include "tls/engine.h"
#include "tls/hello.h"
#include "tls/place.h"

#include <weir/alloc.h>
#include <weir/decoder.h>
#include <weir/loop.h>
#include <weir/tls_select.h>

#include <errno.h>
#include <inttypes.h>

#define MAX_HELLO 16384
#define MOST_HELLO 65536
#define MOST_RACED ((size_t)2 << 20) /* while somebody chooses, nothing is read */

typedef struct sni sni;

/* Somebody is asked, who may take longer than the handler is there. */
typedef struct question {
    weir_listener listener;
    weir_promise *promise;
    weir_ctx *ctx;    /* NULL: nobody wants to know any more */
    bool is_answered; /* but not used yet */
} question;

struct sni {
    weir_decoder decoder;
    weir_tls_sni *config; /* the handler's argument; its `tls` is for the handler that follows */
    weir_tls_hello hello;
    question *asked;
    weir_hold hold; /* on reads, until there is an answer */
    weir_tls_wait wait;
    weir_ctx_timer settled; /* the channel has a loop again */
    bool is_done;           /* the ClientHello is there */
    bool is_leaving;        /* TLS is about to take its place */
    bool holds_active;      /* on_active came, and has not gone on */
    bool is_read_asked;     /* by others, who have got nothing yet */
};

/* Refusing ------------------------------------------------------------------------------------- */

enum { DECODE_ERROR = 50, UNRECOGNIZED_NAME = 112 };

/* Whether it gets there nobody asks. */
static void send_alert(weir_ctx *ctx, uint8_t description)
{
    const uint8_t alert[] = { 21, 3, 3, 0, 2, 2, description };
    weir_buf *buf = weir_buf_from(alert, sizeof alert);
    weir_promise *promise = weir_channel_promise(weir_ctx_channel(ctx));
    if (buf != NULL)
        weir_ctx_write_and_flush(ctx, &buf->msg, promise);
    else if (promise != NULL)
        weir_promise_set(promise, -ENOMEM);
    weir_promise_release(promise);
}

static void refuse(weir_ctx *ctx, sni *self, int code, const char *message)
{
    if (self->decoder.is_over)
        return;
    self->decoder.is_over = true;
    send_alert(ctx, code == WEIR_ETLS_NAME ? UNRECOGNIZED_NAME : DECODE_ERROR);
    weir_ctx_fail(ctx, code, "%s", message);
    weir_ctx_close(ctx, NULL);
}

static void refuse_name(weir_ctx *ctx, sni *self)
{
    weir_error error;
    weir_error_set(&error, WEIR_ETLS_NAME, "tls", "there is no certificate for %s",
                   self->hello.host[0] != '\0' ? self->hello.host : "a client that names no host");
    refuse(ctx, self, error.code, error.message);
}

/* Choosing ------------------------------------------------------------------------------------- */

static void take_context(weir_ctx *ctx, sni *self, weir_tls_context *context)
{
    if (context == NULL) {
        refuse_name(ctx, self);
        return;
    }
    weir_tls *tls = &self->config->tls;
    self->is_leaving = true;
    tls->context = weir_tls_context_retain(context);
    weir__tls_wait_end(ctx, &self->wait, tls);
    int code = weir__tls_take_place(ctx, tls, self->is_read_asked);
    if (code < 0)
        refuse(ctx, self, code, "no memory for TLS");
}

/* Now there is somebody who encrypts. */
static void tell_active(weir_ctx *ctx, sni *self)
{
    bool holds_active = self->holds_active;
    self->holds_active = false;
    if (holds_active)
        weir_ctx_fire_active(ctx);
}

static void drop_question(question *asked)
{
    weir_promise_release(asked->promise); /* and with it the context, if that is not used */
    weir_free(asked);
}

static void use_answer(weir_ctx *ctx, sni *self)
{
    question *asked = self->asked;
    weir_channel *channel = weir_ctx_channel(ctx);
    self->asked = NULL;
    weir_channel_set_read_hold(channel, &self->hold, false);
    if (!self->decoder.is_over && weir_channel_is_open(channel))
        take_context(ctx, self, weir_future_value(weir_promise_future(asked->promise)));
    drop_question(asked);
}

/* Between two loops no handler can take another's place: what is handed on would go past it. */
static void use_answer_on_loop(weir_ctx *ctx, sni *self)
{
    if (!weir__tls_wait_for_loop(ctx, &self->settled))
        use_answer(ctx, self);
}

static void on_settled(weir_ctx_timer *timer, weir_ctx *ctx)
{
    sni *self = WEIR_CONTAINER(timer, sni, settled);
    use_answer_on_loop(ctx, self);
}

static void on_answer(weir_listener *listener, weir_future *future)
{
    question *asked = WEIR_CONTAINER(listener, question, listener);
    (void)future;
    asked->is_answered = true;
    if (asked->ctx != NULL)
        use_answer_on_loop(asked->ctx, weir_ctx_state(asked->ctx));
    else
        drop_question(asked);
}

/* NULL: the client names none. */
static const char *asked_host(const sni *self)
{
    return self->hello.host[0] != '\0' ? self->hello.host : NULL;
}

static void ask(weir_ctx *ctx, sni *self)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    question *asked = weir_zalloc(sizeof *asked);
    weir_promise *promise = weir_channel_promise(channel);
    if (asked == NULL || promise == NULL) {
        if (promise != NULL)
            weir_promise_set(promise, -ENOMEM);
        weir_promise_release(promise);
        weir_free(asked);
        refuse(ctx, self, -ENOMEM, "no memory to choose a certificate");
        return;
    }
    *asked = (question){ .listener = { .done = on_answer, .dropped = on_answer },
                         .promise = promise,
                         .ctx = ctx };
    self->asked = asked;
    weir_channel_set_read_hold(channel, &self->hold, true);
    weir_future_listen(weir_promise_future(promise), &asked->listener);
    weir_promise_retain(promise);
    self->config->choose(channel, asked_host(self), promise, self->config->arg);
    weir_promise_release(promise);
}

/* Reading -------------------------------------------------------------------------------------- */

/* Nothing is taken: all of it is for the handler that follows. */
static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    sni *self = weir_ctx_state(ctx);
    weir_error error;
    (void)out;
    if (self->is_done)
        return WEIR_DECODED_NOTHING;
    switch (weir__tls_hello_read(&self->hello, in, self->config->max_hello, &error)) {
    case WEIR_TLS_HELLO_DONE:
        self->is_done = true;
        weir_decoder_set_max_message(&self->decoder, MOST_RACED);
        return WEIR_DECODED_NOTHING;
    case WEIR_TLS_HELLO_REFUSED:
        return weir_decoder_refuse(ctx, error.code, "%s", error.message);
    default:
        return WEIR_DECODED_NOTHING;
    }
}

static void sni_on_read(weir_ctx *ctx, weir_msg *msg)
{
    sni *self = weir_ctx_state(ctx);
    bool was_done = self->is_done;
    weir_decoder_on_read(ctx, msg);
    if (!self->is_done || was_done || self->decoder.is_over || weir_ctx_is_removed(ctx))
        return;
    if (self->config->choose != NULL)
        ask(ctx, self);
    else
        take_context(ctx, self, weir_tls_hosts_find(self->config->hosts, asked_host(self)));
}

/* Nobody behind it has got anything. Once the ClientHello is there, nothing more is awaited. */
static void sni_on_read_complete(weir_ctx *ctx)
{
    const sni *self = weir_ctx_state(ctx);
    if (!self->is_done && !self->decoder.is_over)
        weir__tls_need_read(ctx);
}

static void sni_read(weir_ctx *ctx)
{
    sni *self = weir_ctx_state(ctx);
    self->is_read_asked = true;
    weir_ctx_read(ctx);
}

static void sni_on_error(weir_ctx *ctx, const weir_error *error)
{
    sni *self = weir_ctx_state(ctx);
    if (self->decoder.is_over && !self->is_done) { /* what is refused by the decoder */
        self->is_done = true;
        send_alert(ctx, DECODE_ERROR);
    } else if (weir__tls_is_lost(ctx)) {
        self->is_done = self->decoder.is_over = true; /* this is why, and is not told again */
    }
    weir_ctx_fire_error(ctx, error);
}

static void on_time(weir_ctx_timer *timer, weir_ctx *ctx)
{
    sni *self = WEIR_CONTAINER(timer, sni, wait.timer);
    self->is_done = true;
    refuse(ctx, self, -ETIMEDOUT,
           self->asked != NULL ? "no certificate was chosen in time"
                               : "no ClientHello came in time");
}

/* Life ----------------------------------------------------------------------------------------- */

static void begin(weir_ctx *ctx, sni *self)
{
    if (weir__tls_wait_begin(ctx, &self->wait, &self->config->tls) < 0)
        refuse(ctx, self, -ENOMEM, "no memory for a timer");
    else
        weir__tls_need_read(ctx);
}

static void sni_on_active(weir_ctx *ctx)
{
    sni *self = weir_ctx_state(ctx);
    self->holds_active = true;
    begin(ctx, self);
}

static int check(weir_ctx *ctx, const weir_tls_sni *config, weir_error *error)
{
    if (config == NULL || (config->hosts == NULL) == (config->choose == NULL))
        return weir_error_set(error, -EINVAL, "tls", "SNI needs hosts, or somebody who chooses");
    if (config->max_hello > MOST_HELLO)
        return weir_error_set(error, -EINVAL, "tls", "max_hello is %zu, more than %d",
                              config->max_hello, MOST_HELLO);
    if (config->tls.handshake_timeout_ns < WEIR_OFF)
        return weir_error_set(error, -EINVAL, "tls", "handshake_timeout_ns is %" PRId64,
                              config->tls.handshake_timeout_ns);
    if (!weir__tls_is_on_loop(ctx))
        return weir_error_set(error, -EINVAL, "tls", "SNI belongs on the channel's loop");
    return 0;
}

/* A ClientHello may come one byte in a record. */
static size_t most_bytes(size_t hello)
{
    return hello * (WEIR__TLS_HEADER + 1) + WEIR__TLS_RECORD_MOST;
}

static void set_up(sni *self, weir_tls_sni *config)
{
    static const weir_decoder_type type = { .decode = decode };
    if (config->max_hello == 0)
        config->max_hello = MAX_HELLO;
    self->config = config;
    weir_decoder_init(&self->decoder, &type);
    weir_decoder_set_max_message(&self->decoder, most_bytes(config->max_hello));
    self->wait.timer.fire = on_time;
    self->settled.fire = on_settled;
    weir__tls_wait_init(&config->tls);
}

static void sni_added(weir_ctx *ctx)
{
    sni *self = weir_ctx_state(ctx);
    weir_error error;
    int code = check(ctx, weir_ctx_arg(ctx), &error);
    if (code < 0) {
        weir__tls_give_up(ctx, code, error.message);
        return;
    }
    set_up(self, weir_ctx_arg(ctx));
    if (weir_channel_is_active(weir_ctx_channel(ctx)))
        begin(ctx, self);
}

static void forget_question(weir_ctx *ctx, sni *self)
{
    self->asked->ctx = NULL;
    weir_channel_set_read_hold(weir_ctx_channel(ctx), &self->hold, false);
    if (self->asked->is_answered)
        drop_question(self->asked);
    self->asked = NULL;
}

static void sni_removed(weir_ctx *ctx)
{
    sni *self = weir_ctx_state(ctx);
    if (self->asked != NULL)
        forget_question(ctx, self);
    weir__tls_hello_deinit(&self->hello);
    if (weir_channel_is_open(weir_ctx_channel(ctx)))
        tell_active(ctx, self);
    if (self->decoder.type != NULL)
        weir_decoder_removed(ctx); /* which hands on all that was read */
}

/* There is nobody for the handlers behind it. */
static void end(weir_ctx *ctx, sni *self)
{
    if (!self->is_leaving)
        refuse(ctx, self, WEIR_EOF, "the connection ended before a ClientHello was there");
}

static void sni_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        end(ctx, weir_ctx_state(ctx));
    else
        weir_decoder_on_event(ctx, event);
}

static void sni_on_inactive(weir_ctx *ctx)
{
    const sni *self = weir_ctx_state(ctx);
    if (weir_buf_readable(self->decoder.kept) > 0)
        end(ctx, weir_ctx_state(ctx));
    if (!self->holds_active)
        weir_ctx_fire_inactive(ctx);
}

/* Of its `tls`, the context is yet to be found, and the host is for clients. */
static int sni_retain(void *arg)
{
    weir_tls_sni *config = arg;
    config->tls.context = NULL;
    config->tls.host = NULL;
    weir_tls_hosts_retain(config->hosts);
    return 0;
}

static void sni_release(void *arg)
{
    weir_tls_sni *config = arg;
    weir_tls_hosts_release(config->hosts);
    weir__tls_config_release(&config->tls);
}

const weir_handler_type weir_tls_sni_handler = {
    .name = "tls sni",
    .is_upgrade = true,
    .state_size = sizeof(sni),
    .arg_size = sizeof(weir_tls_sni),
    .arg_retain = sni_retain,
    .arg_release = sni_release,
    .added = sni_added,
    .removed = sni_removed,
    .on_active = sni_on_active,
    .held_reads = weir_decoder_held,
    .on_read = sni_on_read,
    .on_read_complete = sni_on_read_complete,
    .on_event = sni_on_event,
    .on_inactive = sni_on_inactive,
    .on_error = sni_on_error,
    .read = sni_read,
    .write = weir__tls_refuse_write,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
