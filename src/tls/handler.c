/* SPDX-License-Identifier: MIT */
/* The handler's life: how it begins, fails and goes. */
#include "tls/connection.h"
#include "tls/context.h"
#include "tls/place.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define CLOSE_NS WEIR_SECONDS(1)
#define MAX_WAITING ((size_t)1 << 20)
#define MOST_RACED ((size_t)2 << 20) /* while a step is computed elsewhere, nothing is read */

static void release_promise(void *promise)
{
    weir_promise_release(promise);
}

static const weir_attr_key handshake_key = { .name = "tls handshake", .destroy = release_promise };

weir_future *weir_tls_handshake(const weir_channel *channel)
{
    weir_promise *promise = weir_channel_attr(channel, &handshake_key);
    return promise != NULL ? weir_promise_future(promise) : NULL;
}

bool weir__tls_has_option(weir_ctx *ctx, weir_option option)
{
    int64_t value = 0;
    weir_channel_get_option(weir_ctx_channel(ctx), option, &value);
    return value != 0;
}

/* A handshake that is not done by then never will be; who hears of it finds it counted. */
static void be_over(weir_tls_connection *self)
{
    if (self->phase == WEIR_TLS_SHAKING)
        atomic_fetch_add_explicit(&self->config->context->failed, 1, memory_order_relaxed);
    self->phase = WEIR_TLS_OVER;
}

/* Failing -------------------------------------------------------------------------------------- */

static void fail_handshake(weir_tls_connection *self, const weir_error *error)
{
    if (!weir_future_is_done(weir_promise_future(self->handshake)))
        weir_promise_fail_with(self->handshake, error);
}

/* Whether an error that comes says why the connection is lost. Once it is open, one of a handler
 * nearer to the head may come when the other side has ended, and this side goes on. */
static bool is_loss(weir_ctx *ctx, const weir_tls_connection *self, const weir_error *error)
{
    if (self->phase == WEIR_TLS_OPEN)
        return !self->is_input_ended && weir__tls_is_lost(ctx) &&
               strcmp(error->origin, weir_channel_kind(weir_ctx_channel(ctx))) == 0;
    return self->phase == WEIR_TLS_SHAKING && weir__tls_is_lost(ctx);
}

/* Its own error comes here first. An alert goes out, and everybody who waits hears of it. So they
 * do of why the connection was lost, which is not told again when it is closed. */
static void tls_on_error(weir_ctx *ctx, const weir_error *error)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    if (is_loss(ctx, self, error))
        self->decoder.is_over = true;
    if (self->decoder.is_over && self->phase != WEIR_TLS_OVER) {
        be_over(self);
        fail_handshake(self, error);
        weir__tls_send_last_words(ctx, self);
        weir__tls_let_go(ctx, self, error->code);
    }
    weir_ctx_fire_error(ctx, error);
}

void weir__tls_fail(weir_ctx *ctx, const weir_error *error)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    if (self->decoder.is_over)
        return;
    self->decoder.is_over = true;
    weir_ctx_fail(ctx, error->code, "%s", error->message);
    weir_ctx_close(ctx, NULL);
}

void weir__tls_fail_for(weir_ctx *ctx, int code, const char *message)
{
    weir_error error;
    weir_error_set(&error, code, "tls", "%s", message);
    weir__tls_fail(ctx, &error);
}

/* Beginning ------------------------------------------------------------------------------------ */

static void on_time(weir_ctx_timer *timer, weir_ctx *ctx)
{
    weir_tls_connection *self = WEIR_CONTAINER(timer, weir_tls_connection, timer);
    weir_error error;
    char time[WEIR_DURATION_TEXT_MAX];
    if (self->is_closing) {
        weir__tls_close_at_last(ctx, self);
        return;
    }
    weir_error_set(&error, -ETIMEDOUT, "tls", "the handshake was not done in %s",
                   weir_duration_text(self->config->handshake_timeout_ns, time, sizeof time));
    weir__tls_fail(ctx, &error);
}

/* The port of the server, which is one of the two ends. */
static uint16_t server_port(weir_ctx *ctx, const weir_tls_connection *self)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_address address;
    int code = self->config->context->is_server ? weir_channel_local_address(channel, &address)
                                                : weir_channel_peer_address(channel, &address);
    return code == 0 ? weir_address_port(&address) : 0;
}

static int begin(weir_ctx *ctx, weir_tls_connection *self, weir_error *error)
{
    const weir_tls *config = self->config;
    const weir_tls_peer peer = { .host = config->host, .port = server_port(ctx, self) };
    self->phase = WEIR_TLS_SHAKING;
    int code = weir__tls_engine_new(&self->engine, config->context, &peer, error);
    if (code == 0 && config->handshake_timeout_ns > 0 &&
        weir_ctx_schedule(ctx, &self->timer, config->handshake_timeout_ns) < 0)
        code = weir_error_set(error, -ENOMEM, "tls", "no memory for a timer");
    if (code == 0 && !config->context->is_server &&
        weir__tls_engine_shake(self->engine, NULL, 0, error) == WEIR_TLS_STEP_FAILED)
        code = error->code;
    if (code < 0)
        return code;
    weir__tls_send_output(ctx, self);
    weir__tls_need_read(ctx);
    return 0;
}

/* Behind a handler that has held this back it has begun before; and who hears of it only now has
 * asked for nothing yet. */
static void tls_on_active(weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    weir_error error;
    if (self->phase != WEIR_TLS_WAITING)
        self->is_read_asked = false;
    else if (begin(ctx, self, &error) < 0)
        weir__tls_fail(ctx, &error);
    weir_ctx_fire_active(ctx);
    if (self->phase == WEIR_TLS_SHAKING && !weir_ctx_is_removed(ctx))
        weir__tls_need_read(ctx); /* somebody may have turned auto_read off */
}

static int check(const weir_tls *config, weir_error *error)
{
    if (config == NULL || config->context == NULL)
        return weir_error_set(error, -EINVAL, "tls", "TLS needs a weir_tls with a context");
    if (config->handshake_timeout_ns < WEIR_OFF || config->close_timeout_ns < WEIR_OFF)
        return weir_error_set(error, -EINVAL, "tls",
                              "handshake_timeout_ns is %" PRId64 " and close_timeout_ns %" PRId64,
                              config->handshake_timeout_ns, config->close_timeout_ns);
    if (!config->context->is_server && config->host == NULL &&
        !atomic_load(&config->context->verifies_nothing))
        return weir_error_set(error, -EINVAL, "tls",
                              "a client must say whom it expects: host of weir_tls");
    return 0;
}

static void set_defaults(weir_tls *config)
{
    if (config->handshake_timeout_ns == 0)
        config->handshake_timeout_ns = WEIR__TLS_HANDSHAKE_NS;
    if (config->close_timeout_ns == 0)
        config->close_timeout_ns = CLOSE_NS;
    if (config->max_waiting_bytes == 0)
        config->max_waiting_bytes = MAX_WAITING;
}

static int set_up(weir_ctx *ctx, weir_tls_connection *self, weir_tls *config)
{
    weir_decoder_set_max_message(&self->decoder, MOST_RACED);
    self->timer.fire = on_time;
    set_defaults(config);
    self->config = config;
    self->handshake = weir_channel_promise(weir_ctx_channel(ctx));
    if (self->handshake == NULL)
        return -ENOMEM;
    return weir_channel_set_attr(weir_ctx_channel(ctx), &handshake_key,
                                 weir_promise_retain(self->handshake));
}

static void tls_added(weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    weir_tls *config = weir_ctx_arg(ctx);
    weir_error error;
    weir_decoder_init(&self->decoder, &weir__tls_records);
    int code = check(config, &error);
    if (code == 0 && (code = set_up(ctx, self, config)) < 0)
        weir_error_set(&error, code, "tls", "no memory for TLS");
    if (code < 0) {
        be_over(self);
        self->decoder.is_over = true;
        weir__tls_give_up(ctx, error.code, error.message);
        return;
    }
    if (!weir_channel_is_active(weir_ctx_channel(ctx)))
        return;
    self->is_read_asked = true; /* maybe: rather once too often than never */
    if (begin(ctx, self, &error) < 0) {
        be_over(self);
        fail_handshake(self, &error); /* which its own on_error does not hear of from here */
        weir__tls_fail(ctx, &error);
    }
}

/* Ending --------------------------------------------------------------------------------------- */

static void drop_all(weir_ctx *ctx, weir_tls_connection *self, int code)
{
    weir__tls_pass_sealed(ctx, self);
    weir__tls_let_go(ctx, self, code);
    if (self->handshake != NULL)
        weir_promise_fail(self->handshake, code); /* unless it is complete */
    weir_promise_release(self->handshake);
    self->handshake = NULL;
    weir__tls_drop_input(ctx, self);
    weir__tls_engine_free(self->engine);
    self->engine = NULL;
}

static void tls_removed(weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    bool is_open = weir_channel_is_active(weir_ctx_channel(ctx));
    if (self->config == NULL) { /* `added` has failed or never run */
        self->phase = WEIR_TLS_OVER;
        drop_all(ctx, self, WEIR_ECLOSED);
        return;
    }
    if (is_open && self->phase == WEIR_TLS_OPEN && self->engine != NULL)
        weir__tls_end_output_before_plain(ctx, self);
    bool is_closing = self->is_closing;
    be_over(self);
    drop_all(ctx, self, WEIR_ECLOSED);
    if (is_closing)
        weir__tls_close_at_last(ctx, self);
    weir_decoder_removed(ctx);
}

/* Unless the other side has ended it somebody here has closed it, who is nearer to the head. */
static void tls_on_inactive(weir_ctx *ctx)
{
    weir_tls_connection *self = weir_ctx_state(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    if (weir_channel_get_state(channel) != WEIR_CHANNEL_OPEN &&
        weir_channel_is_input_closed(channel))
        weir__tls_end_input(ctx, self);
    if (self->is_closing)
        weir__tls_close_at_last(ctx, self);
    be_over(self);
    weir__tls_let_go(ctx, self, WEIR_ECLOSED);
    if (self->handshake != NULL)
        weir_promise_fail(self->handshake, WEIR_ECLOSED);
    weir_ctx_fire_inactive(ctx);
}

const weir_handler_type weir_tls_handler = {
    .name = "tls",
    .is_upgrade = true,
    .state_size = sizeof(weir_tls_connection),
    .arg_size = sizeof(weir_tls),
    .arg_retain = weir__tls_config_retain,
    .arg_release = weir__tls_config_release,
    .added = tls_added,
    .removed = tls_removed,
    .on_active = tls_on_active,
    .on_read = weir__tls_on_read,
    .on_read_complete = weir__tls_on_read_complete,
    .on_event = weir__tls_on_event,
    .on_inactive = tls_on_inactive,
    .on_error = tls_on_error,
    .read = weir__tls_read,
    .write = weir__tls_write,
    .flush = weir__tls_flush,
    .shutdown = weir__tls_shutdown,
    .close = weir__tls_close,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
