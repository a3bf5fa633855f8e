/* SPDX-License-Identifier: MIT */
/* Three handlers, one of them with an idle timer: what a small server's connection has. */
#include "scale.h"

static scale_counts *counts_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

/* Passes on what it reads, as a decoder with nothing to decode. */
static void framing_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type framing = { .name = "framing", .on_read = framing_on_read };

/* Idle: a timer that waits all the time. A read only notes when it was; the timer, when it fires,
 * waits for the rest. */
typedef struct idle {
    weir_ctx_timer timer;
    int64_t last_ns;
} idle;

static int64_t now_of(const weir_ctx *ctx)
{
    return weir_executor_now_ns(weir_ctx_executor(ctx));
}

/* Nobody minds when idleness is noticed a little later, but a wake-up for each of thousands of
 * timers a second would cost much more than the timers do: so they fire together, on a tick. */
static int64_t to_next_tick(const weir_ctx *ctx, int64_t delay_ns)
{
    int64_t tick_ns = WEIR_MS(counts_of(ctx)->tick_ms), over_ns = 0;
    if (tick_ns > 0)
        over_ns = (now_of(ctx) + delay_ns) % tick_ns;
    return over_ns > 0 ? delay_ns + tick_ns - over_ns : delay_ns;
}

static void wait_for(weir_ctx *ctx, int64_t delay_ns)
{
    idle *self = weir_ctx_state(ctx);
    int code = weir_ctx_schedule(ctx, &self->timer, to_next_tick(ctx, delay_ns));
    if (code < 0)
        weir_ctx_fail(ctx, code, "no timer: %s", weir_error_text(code));
}

static void idle_fire(weir_ctx_timer *timer, weir_ctx *ctx)
{
    const idle *self = WEIR_CONTAINER(timer, idle, timer);
    int64_t left_ns = self->last_ns + WEIR_SECONDS(SCALE_IDLE_S) - now_of(ctx);
    counts_of(ctx)->timers++;
    wait_for(ctx, left_ns > 0 ? left_ns : WEIR_SECONDS(SCALE_IDLE_S));
}

/* The first time comes early for most, and spread: then as many fire each second as if they had
 * been made over a whole minute. */
static void idle_on_active(weir_ctx *ctx)
{
    idle *self = weir_ctx_state(ctx);
    uint64_t mixed = weir_channel_id(weir_ctx_channel(ctx)) * 0x9e3779b97f4a7c15u;
    self->timer.fire = idle_fire;
    self->last_ns = now_of(ctx) - WEIR_SECONDS(SCALE_IDLE_S); /* as if idle since then */
    wait_for(ctx, (int64_t)(mixed % (uint64_t)WEIR_SECONDS(SCALE_IDLE_S)));
    counts_of(ctx)->active++;
    weir_ctx_fire_active(ctx);
}

static void idle_on_read(weir_ctx *ctx, weir_msg *msg)
{
    idle *self = weir_ctx_state(ctx);
    self->last_ns = now_of(ctx);
    weir_ctx_fire_read(ctx, msg);
}

static void idle_on_inactive(weir_ctx *ctx)
{
    counts_of(ctx)->inactive++;
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type idle_type = {
    .name = "idle",
    .state_size = sizeof(idle),
    .on_active = idle_on_active,
    .on_read = idle_on_read,
    .on_inactive = idle_on_inactive,
};

int scale_add_handlers(weir_channel *channel, scale_counts *counts)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "framing", &framing, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "idle", &idle_type, counts);
}

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static const weir_handler_type echo = {
    .name = "echo",
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
};

int scale_add_echo(weir_channel *channel, void *counts)
{
    int code = scale_add_handlers(channel, counts);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "echo", &echo, NULL);
}
