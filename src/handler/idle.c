/* SPDX-License-Identifier: MIT */
/* The idle handler. */
#include <weir/idle.h>

#include "channel/arg.h"
#include "channel/channel.h"

#include <weir/clock.h>

#include <errno.h>

enum { KINDS = 3 };

typedef struct idle_handler {
    weir_ctx_timer timer;
    int64_t read_at, flushed_at, sent_at;
    int64_t told_at[KINDS]; /* an event; from then on the next period runs */
    uint64_t came, sent;    /* bytes, when it was looked at last */
    bool was_told[KINDS];   /* since something happened */
    bool has_read;          /* since it was looked at */
    bool is_watching;
} idle_handler;

#define EVENT(idle_kind, first)                                                                    \
    {                                                                                              \
        WEIR_MSG_CONSTANT(&weir_idle_event_type), (idle_kind), (first)                             \
    }

static weir_idle_event events[KINDS][2] = {
    { EVENT(WEIR_IDLE_READER, false), EVENT(WEIR_IDLE_READER, true) },
    { EVENT(WEIR_IDLE_WRITER, false), EVENT(WEIR_IDLE_WRITER, true) },
    { EVENT(WEIR_IDLE_BOTH, false), EVENT(WEIR_IDLE_BOTH, true) },
};

static void event_destroy(weir_msg *msg)
{
    (void)msg; /* never comes: they are constant */
}

const weir_msg_type weir_idle_event_type = { .name = "idle", .destroy = event_destroy };

static int64_t now_of(const weir_ctx *ctx)
{
    return weir_executor_now_ns(weir_ctx_executor(ctx));
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Looking -------------------------------------------------------------------------------------- */

/* Bytes that are relayed do not pass: that they came is seen now, and counts from now on. */
static void look_at_input(weir_ctx *ctx, idle_handler *self, const weir_channel_stats *stats)
{
    if (!self->has_read && stats->bytes_in == self->came)
        return;
    if (!self->has_read)
        self->read_at = now_of(ctx);
    self->has_read = false;
    self->came = stats->bytes_in;
    self->was_told[WEIR_IDLE_READER] = self->was_told[WEIR_IDLE_BOTH] = false;
}

/* The loop knows when something went. For others what was flushed last went at once, unless some of
 * it waits. */
static int64_t sent_at(weir_ctx *ctx, const idle_handler *self, const weir_channel_stats *stats)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    if (weir__channel_is_mine(channel))
        return channel->out.sent_at;
    return stats->pending_bytes > 0 ? now_of(ctx) : later(self->flushed_at, self->sent_at);
}

static void look_at_output(weir_ctx *ctx, idle_handler *self, const weir_channel_stats *stats)
{
    uint64_t sent = weir__channel_sent_bytes(weir_ctx_channel(ctx));
    if (sent == self->sent)
        return;
    self->sent = sent;
    self->sent_at = sent_at(ctx, self, stats);
    self->was_told[WEIR_IDLE_WRITER] = self->was_told[WEIR_IDLE_BOTH] = false;
}

static int64_t active_at(const idle_handler *self, int kind)
{
    if (kind == WEIR_IDLE_BOTH)
        return later(self->read_at, self->sent_at);
    return kind == WEIR_IDLE_READER ? self->read_at : self->sent_at;
}

static int64_t period_of(const weir_ctx *ctx, int kind)
{
    const weir_idle *config = weir_ctx_arg(ctx);
    int64_t times[KINDS] = { config->reader_ns, config->writer_ns, config->both_ns };
    return times[kind];
}

/* Passes the event on when its time is up; returns when it is up next. */
static int64_t look_at(weir_ctx *ctx, idle_handler *self, int kind)
{
    int64_t period = period_of(ctx, kind), now = now_of(ctx);
    int64_t at = later(active_at(self, kind), self->told_at[kind]);
    if (now - at < period)
        return at + period;
    bool is_first = !self->was_told[kind];
    self->was_told[kind] = true;
    self->told_at[kind] = now;
    weir_ctx_fire_event(ctx, &events[kind][is_first].msg);
    return now + period;
}

static void look(weir_ctx *ctx, idle_handler *self)
{
    int64_t next = INT64_MAX;
    weir_channel_stats stats;
    weir_channel_get_stats(weir_ctx_channel(ctx), &stats);
    look_at_input(ctx, self, &stats);
    look_at_output(ctx, self, &stats);
    for (int kind = 0; kind < KINDS && self->is_watching && !weir_ctx_is_removed(ctx); kind++) {
        int64_t due = period_of(ctx, kind) > 0 ? look_at(ctx, self, kind) : INT64_MAX;
        next = due < next ? due : next;
    }
    if (self->is_watching && !weir_ctx_is_removed(ctx) &&
        weir_ctx_schedule(ctx, &self->timer, next - now_of(ctx)) < 0)
        weir_ctx_fail(ctx, -ENOMEM, "no memory for a timer: idleness goes unseen");
}

static void on_time(weir_ctx_timer *timer, weir_ctx *ctx)
{
    look(ctx, WEIR_CONTAINER(timer, idle_handler, timer));
}

/* The handler ---------------------------------------------------------------------------------- */

static void start_watching(weir_ctx *ctx)
{
    idle_handler *self = weir_ctx_state(ctx);
    if (self->is_watching || !weir_channel_is_active(weir_ctx_channel(ctx)))
        return;
    self->is_watching = true;
    self->has_read = true;
    self->sent = weir__channel_sent_bytes(weir_ctx_channel(ctx));
    self->read_at = self->sent_at = now_of(ctx);
    look(ctx, self);
}

#define MAX_NS (INT64_MAX / 4) /* added to a time it does not overflow */

static bool check_config(weir_ctx *ctx, const weir_idle *config)
{
    if (!weir__arg_check_given(ctx, "weir_idle", config) ||
        !weir__arg_check(ctx, "reader_ns", config->reader_ns, WEIR_OFF, MAX_NS) ||
        !weir__arg_check(ctx, "writer_ns", config->writer_ns, WEIR_OFF, MAX_NS) ||
        !weir__arg_check(ctx, "both_ns", config->both_ns, WEIR_OFF, MAX_NS))
        return false;
    bool has_time = config->reader_ns > 0 || config->writer_ns > 0 || config->both_ns > 0;
    if (!has_time)
        weir_ctx_fail(ctx, -EINVAL, "no time is set: reader_ns, writer_ns or both_ns");
    return has_time;
}

static void idle_added(weir_ctx *ctx)
{
    const weir_idle *config = weir_ctx_arg(ctx);
    idle_handler *self = weir_ctx_state(ctx);
    self->timer.fire = on_time;
    if (check_config(ctx, config))
        start_watching(ctx);
}

static void idle_on_active(weir_ctx *ctx)
{
    start_watching(ctx);
    weir_ctx_fire_active(ctx);
}

static void idle_on_inactive(weir_ctx *ctx)
{
    idle_handler *self = weir_ctx_state(ctx);
    self->is_watching = false;
    weir_ctx_cancel(ctx, &self->timer);
    weir_ctx_fire_inactive(ctx);
}

static void idle_on_read_complete(weir_ctx *ctx)
{
    idle_handler *self = weir_ctx_state(ctx);
    self->read_at = now_of(ctx);
    self->has_read = true;
    weir_ctx_fire_read_complete(ctx);
}

static void idle_flush(weir_ctx *ctx)
{
    idle_handler *self = weir_ctx_state(ctx);
    self->flushed_at = now_of(ctx);
    weir_ctx_flush(ctx);
}

const weir_handler_type weir_idle_handler = {
    .name = "idle",
    .state_size = sizeof(idle_handler),
    .arg_size = sizeof(weir_idle),
    .added = idle_added,
    .on_active = idle_on_active,
    .on_read_complete = idle_on_read_complete,
    .on_inactive = idle_on_inactive,
    .flush = idle_flush,
};
