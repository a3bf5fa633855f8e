/* SPDX-License-Identifier: MIT */
/* The timeout handlers. */
#include <weir/timeout.h>

#include "base/counter.h"
#include "channel/arg.h"
#include "channel/channel.h"

#include <weir/clock.h>

#include <errno.h>
#include <inttypes.h>

#define MAX_NS (INT64_MAX / 4) /* added to a time it does not overflow */

typedef struct timeout_handler {
    weir_ctx_timer timer;
    int64_t since;    /* when there was something last */
    uint64_t bytes;   /* that were read or sent, when it was looked at last */
    bool has_waiting; /* output, then */
    bool has_read;    /* since then */
    bool is_over;
} timeout_handler;

static int64_t now_of(const weir_ctx *ctx)
{
    return weir_executor_now_ns(weir_ctx_executor(ctx));
}

static int64_t period_of(const weir_ctx *ctx)
{
    const weir_timeout *config = weir_ctx_arg(ctx);
    return config->timeout_ns;
}

/* Both ----------------------------------------------------------------------------------------- */

static void time_out(weir_ctx *ctx, timeout_handler *self, const char *what)
{
    const weir_timeout *config = weir_ctx_arg(ctx);
    char time[WEIR_DURATION_TEXT_MAX];
    self->is_over = true;
    weir_ctx_fail(ctx, -ETIMEDOUT, "%s for %s", what,
                  weir_duration_text(config->timeout_ns, time, sizeof time));
    if (!weir_ctx_is_removed(ctx))
        weir_ctx_close(ctx, NULL);
}

/* Waits for the rest of the time. Without memory for a timer nobody would watch. */
static void wait_on(weir_ctx *ctx, timeout_handler *self)
{
    int64_t left = self->since + period_of(ctx) - now_of(ctx);
    if (weir_ctx_schedule(ctx, &self->timer, left > 0 ? left : 0) < 0)
        time_out(ctx, self, "no memory for a timer to watch it");
}

static void start_watching(weir_ctx *ctx)
{
    timeout_handler *self = weir_ctx_state(ctx);
    if (self->since > 0 || self->is_over || !weir_channel_is_active(weir_ctx_channel(ctx)))
        return;
    self->since = now_of(ctx);
    self->bytes = weir__counter_get(&weir_ctx_channel(ctx)->in.bytes);
    wait_on(ctx, self);
}

static void begin(weir_ctx *ctx, void (*fire)(weir_ctx_timer *timer, weir_ctx *ctx))
{
    const weir_timeout *config = weir_ctx_arg(ctx);
    timeout_handler *self = weir_ctx_state(ctx);
    self->timer.fire = fire;
    if (!weir__arg_check_given(ctx, "weir_timeout", config) ||
        !weir__arg_check(ctx, "timeout_ns", config->timeout_ns, 1, MAX_NS))
        return;
    if (!weir__channel_is_mine(weir_ctx_channel(ctx)))
        weir_ctx_fail(ctx, -EINVAL, "a timeout handler belongs on the channel's loop");
    else
        start_watching(ctx);
}

static void timeout_on_active(weir_ctx *ctx)
{
    start_watching(ctx);
    weir_ctx_fire_active(ctx);
}

static void timeout_on_inactive(weir_ctx *ctx)
{
    timeout_handler *self = weir_ctx_state(ctx);
    self->is_over = true;
    weir_ctx_cancel(ctx, &self->timer);
    weir_ctx_fire_inactive(ctx);
}

/* Reading -------------------------------------------------------------------------------------- */

static void look_at_reads(weir_ctx_timer *timer, weir_ctx *ctx)
{
    timeout_handler *self = WEIR_CONTAINER(timer, timeout_handler, timer);
    uint64_t came = weir__counter_get(&weir_ctx_channel(ctx)->in.bytes);
    if (!self->has_read && came != self->bytes)
        self->since = now_of(ctx); /* they were relayed, and did not pass */
    self->has_read = false;
    self->bytes = came;
    if (now_of(ctx) - self->since < period_of(ctx))
        wait_on(ctx, self);
    else
        time_out(ctx, self, "nothing was read");
}

static void read_added(weir_ctx *ctx)
{
    begin(ctx, look_at_reads);
}

static void read_on_read_complete(weir_ctx *ctx)
{
    timeout_handler *self = weir_ctx_state(ctx);
    self->since = now_of(ctx);
    self->has_read = true;
    weir_ctx_fire_read_complete(ctx);
}

const weir_handler_type weir_read_timeout_handler = {
    .name = "read timeout",
    .state_size = sizeof(timeout_handler),
    .arg_size = sizeof(weir_timeout),
    .added = read_added,
    .on_active = timeout_on_active,
    .on_read_complete = read_on_read_complete,
    .on_inactive = timeout_on_inactive,
};

/* Writing -------------------------------------------------------------------------------------- */

static void look_at_writes(weir_ctx_timer *timer, weir_ctx *ctx)
{
    timeout_handler *self = WEIR_CONTAINER(timer, timeout_handler, timer);
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    uint64_t sent = weir__channel_sent_bytes(channel);
    if (!self->has_waiting || sent != self->bytes)
        self->since = now_of(ctx);
    self->has_waiting = stats.pending_bytes > 0 && weir__outbound_has_flushed(&channel->out.queue);
    self->bytes = sent;
    if (!self->has_waiting)
        self->since = now_of(ctx);
    if (now_of(ctx) - self->since < period_of(ctx))
        wait_on(ctx, self);
    else
        time_out(ctx, self, "the other side has taken nothing");
}

static void write_added(weir_ctx *ctx)
{
    begin(ctx, look_at_writes);
}

const weir_handler_type weir_write_timeout_handler = {
    .name = "write timeout",
    .state_size = sizeof(timeout_handler),
    .arg_size = sizeof(weir_timeout),
    .added = write_added,
    .on_active = timeout_on_active,
    .on_inactive = timeout_on_inactive,
};
