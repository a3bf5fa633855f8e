/* SPDX-License-Identifier: MIT */
/* The handler that finds out whether TLS is spoken at all. */
#include "tls/engine.h"
#include "tls/place.h"

#include <weir/tls_select.h>

#include <errno.h>

typedef struct optional {
    weir_tls *tls;      /* the handler's argument; NULL: it is decided */
    bool holds_active;  /* on_active came, and has not gone on */
    bool is_read_asked; /* by others, who have got nothing yet */
    bool is_refused;
    weir_tls_wait wait;
} optional;

static void refuse(weir_ctx *ctx, optional *self, int code, const char *message)
{
    self->is_refused = true;
    weir_ctx_fail(ctx, code, "%s", message);
    weir_ctx_close(ctx, NULL);
}

static void on_time(weir_ctx_timer *timer, weir_ctx *ctx)
{
    refuse(ctx, WEIR_CONTAINER(timer, optional, wait.timer), -ETIMEDOUT,
           "nothing came in time that says whether it is TLS");
}

static void begin(weir_ctx *ctx, optional *self)
{
    if (weir__tls_wait_begin(ctx, &self->wait, self->tls) < 0)
        refuse(ctx, self, -ENOMEM, "no memory for a timer");
    else
        weir__tls_need_read(ctx);
}

static void optional_added(weir_ctx *ctx)
{
    optional *self = weir_ctx_state(ctx);
    weir_tls *config = weir_ctx_arg(ctx);
    int code = weir__tls_is_on_loop(ctx) ? 0 : -EINVAL;
    if (config == NULL || config->context == NULL || config->handshake_timeout_ns < WEIR_OFF)
        code = -EINVAL;
    if (code < 0) {
        weir__tls_give_up(ctx, code, "TLS needs a weir_tls with a context, and the channel's loop");
        return;
    }
    self->tls = config;
    weir__tls_wait_init(config);
    self->wait.timer.fire = on_time;
    if (weir_channel_is_active(weir_ctx_channel(ctx)))
        begin(ctx, self);
}

static void tell_active(weir_ctx *ctx, optional *self)
{
    bool holds_active = self->holds_active;
    self->holds_active = false;
    if (holds_active)
        weir_ctx_fire_active(ctx);
}

static void optional_removed(weir_ctx *ctx)
{
    optional *self = weir_ctx_state(ctx);
    self->tls = NULL;
    if (weir_channel_is_open(weir_ctx_channel(ctx)))
        tell_active(ctx, self);
}

static void optional_on_active(weir_ctx *ctx)
{
    optional *self = weir_ctx_state(ctx);
    self->holds_active = true;
    begin(ctx, self);
}

static void optional_on_inactive(weir_ctx *ctx)
{
    const optional *self = weir_ctx_state(ctx);
    if (!self->holds_active)
        weir_ctx_fire_inactive(ctx);
}

/* Who ends before anything came has no TLS to speak. */
static void optional_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        weir_ctx_remove(ctx);
    weir_ctx_fire_event(ctx, event);
}

/* Nobody behind it has got anything. */
static void optional_on_read_complete(weir_ctx *ctx)
{
    const optional *self = weir_ctx_state(ctx);
    if (!self->is_refused)
        weir__tls_need_read(ctx);
}

static void optional_read(weir_ctx *ctx)
{
    optional *self = weir_ctx_state(ctx);
    self->is_read_asked = true;
    weir_ctx_read(ctx);
}

static void optional_on_read(weir_ctx *ctx, weir_msg *msg)
{
    optional *self = weir_ctx_state(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    uint8_t first;
    if (self->tls == NULL || buf == NULL) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    if (self->is_refused || weir_buf_get_u8(buf, weir_buf_reader(buf), &first) < 0) {
        weir_msg_release(msg); /* an empty one says nothing */
        return;
    }
    int code = 0;
    weir__tls_wait_end(ctx, &self->wait, self->tls);
    if (first == WEIR__TLS_HANDSHAKE)
        code = weir__tls_take_place(ctx, self->tls, self->is_read_asked);
    else
        weir_ctx_remove(ctx);
    if (code == 0) {
        weir_ctx_fire_read(ctx, msg); /* to whoever is behind it now */
        return;
    }
    weir_msg_release(msg);
    refuse(ctx, self, code, "TLS cannot be added");
}

/* The host is for clients, and this is a server. */
static int optional_retain(void *arg)
{
    weir_tls *config = arg;
    config->host = NULL;
    return weir__tls_config_retain(config);
}

const weir_handler_type weir_tls_optional_handler = {
    .name = "tls or not",
    .is_upgrade = true,
    .state_size = sizeof(optional),
    .arg_size = sizeof(weir_tls),
    .arg_retain = optional_retain,
    .arg_release = weir__tls_config_release,
    .added = optional_added,
    .removed = optional_removed,
    .on_active = optional_on_active,
    .on_read = optional_on_read,
    .on_read_complete = optional_on_read_complete,
    .on_event = optional_on_event,
    .on_inactive = optional_on_inactive,
    .read = optional_read,
    .write = weir__tls_refuse_write,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
