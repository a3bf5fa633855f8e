/* SPDX-License-Identifier: MIT */
/* Guards: times that a connection must keep. */
#include <weir/guard.h>

#include "base/alloc.h"
#include "base/counter.h"
#include "base/time_sum.h"
#include "channel/channel.h"

#include <weir/clock.h>
#include <weir/pipeline.h>

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>

/* What a connection is closed for. */
typedef enum reason {
    NO_FIRST_BYTE,
    IDLE,
    NOT_TAKEN,
    TOO_OLD,
    NOT_COMPLETE,
    TOO_SLOW,
    REASONS,
} reason;

#define NS_PER_S ((uint64_t)1000000000)
#define NEVER INT64_MAX /* a time */

struct weir_guard {
    _Atomic(uint32_t) refs;
    int64_t after[REASONS]; /* in ns */
    uint64_t min_bytes;     /* in a period */
    weir_connection_limit *connections;
    _Atomic(uint64_t) closed[REASONS];
};

typedef struct guard_handler {
    weir_ctx_timer timer;
    weir_guard *guard;
    int64_t begun_at, read_at, sent_at;
    int64_t waiting_since;  /* output, of which nothing went; NEVER: none was waiting */
    int64_t expected_since; /* NEVER: nothing is */
    int64_t period_from;    /* and the bytes that were there then */
    uint64_t read_before;
    uint64_t read;       /* bytes that passed */
    uint64_t came, sent; /* bytes of the channel, when it was looked at last */
    bool has_read;       /* since then */
    bool is_over;
} guard_handler;

static int64_t now_of(const weir_ctx *ctx)
{
    return weir_executor_now_ns(weir_ctx_executor(ctx));
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Times ---------------------------------------------------------------------------------------- */

/* Bytes that are relayed do not pass: that they came is seen now, and counts from now on. */
static void look_at_input(const weir_ctx *ctx, guard_handler *self)
{
    uint64_t came = weir__counter_get(&weir_ctx_channel(ctx)->in.bytes);
    if (!self->has_read && came != self->came)
        self->read_at = now_of(ctx);
    self->has_read = false;
    self->came = came;
}

/* What went since it was looked at last, and whether some waits. */
static void look_at_output(const weir_ctx *ctx, guard_handler *self)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    uint64_t sent = weir__channel_sent_bytes(channel);
    bool is_waiting = weir__outbound_has_flushed(&channel->out.queue);
    if (sent != self->sent)
        self->sent_at = channel->out.sent_at;
    if (!is_waiting)
        self->waiting_since = NEVER;
    else if (sent != self->sent || self->waiting_since == NEVER)
        self->waiting_since = now_of(ctx);
    self->sent = sent;
}

static void begin_period(const weir_ctx *ctx, guard_handler *self)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    channel->in.has_stopped = !channel->in.is_reading;
    self->period_from = now_of(ctx);
    self->read_before = self->read;
}

/* A period in which enough came, or in which nobody read for a while, is followed by the next. */
static void look_at_rate(const weir_ctx *ctx, guard_handler *self)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    bool has_read_all_along = channel->in.is_auto_read && !channel->in.has_stopped;
    if (!has_read_all_along || self->read - self->read_before >= self->guard->min_bytes)
        begin_period(ctx, self);
}

/* Since when a time runs; NEVER: it does not. */
static int64_t since(const guard_handler *self, reason why)
{
    switch (why) {
    case NO_FIRST_BYTE:
        return self->read == 0 ? self->begun_at : NEVER;
    case IDLE:
        return later(self->read_at, self->sent_at);
    case NOT_TAKEN:
        return self->waiting_since;
    case TOO_OLD:
        return self->begun_at;
    case NOT_COMPLETE:
        return self->expected_since;
    default:
        return self->expected_since != NEVER ? self->period_from : NEVER;
    }
}

static int64_t due_at(const guard_handler *self, reason why)
{
    int64_t from = since(self, why), after = self->guard->after[why];
    return from == NEVER || after == NEVER ? NEVER : weir__time_sum(from, after);
}

static void cut(weir_ctx *ctx, guard_handler *self, reason why)
{
    static const char *const texts[REASONS] = {
        [NO_FIRST_BYTE] = "nothing came",
        [IDLE] = "nothing came and nothing went",
        [NOT_TAKEN] = "the peer takes nothing of what waits for it",
        [TOO_OLD] = "the connection is open",
        [NOT_COMPLETE] = "what is expected is not complete",
        [TOO_SLOW] = "fewer bytes come than are expected",
    };
    self->is_over = true;
    atomic_fetch_add_explicit(&self->guard->closed[why], 1, memory_order_relaxed);
    char time[WEIR_DURATION_TEXT_MAX];
    weir_ctx_fail(ctx, -ETIMEDOUT, "%s, for %s", texts[why],
                  weir_duration_text(self->guard->after[why], time, sizeof time));
    if (!weir_ctx_is_removed(ctx))
        weir_ctx_close(ctx, NULL);
}

/* Nobody would guard it. */
static void refuse(weir_ctx *ctx, guard_handler *self, int code, const char *why)
{
    self->is_over = true;
    weir_ctx_fail(ctx, code, "the connection cannot be guarded: %s", why);
    if (!weir_ctx_is_removed(ctx))
        weir_ctx_close(ctx, NULL);
}

/* Looks whether a time is over, and waits for the next. */
static void look(weir_ctx *ctx, guard_handler *self)
{
    int64_t next = NEVER, now = now_of(ctx);
    look_at_input(ctx, self);
    look_at_output(ctx, self);
    if (now >= due_at(self, TOO_SLOW))
        look_at_rate(ctx, self);
    for (int why = 0; why < REASONS; why++) {
        int64_t due = due_at(self, (reason)why);
        if (due <= now) {
            cut(ctx, self, (reason)why);
            return;
        }
        next = due < next ? due : next;
    }
    /* Output may begin to wait at any time, and nobody tells. */
    if (self->guard->after[NOT_TAKEN] < next - now)
        next = now + self->guard->after[NOT_TAKEN];
    if (next == NEVER)
        return;
    if (weir_ctx_schedule(ctx, &self->timer, next - now) < 0)
        refuse(ctx, self, -ENOMEM, "no memory for a timer");
}

static void on_time(weir_ctx_timer *timer, weir_ctx *ctx)
{
    guard_handler *self = WEIR_CONTAINER(timer, guard_handler, timer);
    if (!self->is_over)
        look(ctx, self);
}

/* Expecting ------------------------------------------------------------------------------------ */

static void event_destroy(weir_msg *msg)
{
    (void)msg; /* never comes: they are constant */
}

static const weir_msg_type event_type = { .name = "guard", .destroy = event_destroy };
static weir_msg expect_event = WEIR_MSG_CONSTANT(&event_type);
static weir_msg has_come_event = WEIR_MSG_CONSTANT(&event_type);
static weir_msg exempt_event = WEIR_MSG_CONSTANT(&event_type);

void weir_guard_expect(weir_channel *channel)
{
    if (channel != NULL)
        weir_pipeline_fire_event(weir_channel_pipeline(channel), &expect_event);
}

void weir_guard_has_come(weir_channel *channel)
{
    if (channel != NULL)
        weir_pipeline_fire_event(weir_channel_pipeline(channel), &has_come_event);
}

void weir_guard_exempt(weir_channel *channel)
{
    if (channel != NULL)
        weir_pipeline_fire_event(weir_channel_pipeline(channel), &exempt_event);
}

static void end_times(weir_ctx *ctx, guard_handler *self)
{
    self->is_over = true;
    weir_ctx_cancel(ctx, &self->timer);
}

static void begin_to_expect(weir_ctx *ctx, guard_handler *self)
{
    if (self->is_over || self->expected_since != NEVER)
        return;
    self->expected_since = now_of(ctx);
    begin_period(ctx, self);
    look(ctx, self);
}

static void guard_on_event(weir_ctx *ctx, weir_msg *event)
{
    guard_handler *self = weir_ctx_state(ctx);
    if (event == &expect_event)
        begin_to_expect(ctx, self);
    else if (event == &has_come_event)
        self->expected_since = NEVER; /* the timer finds out */
    else if (event == &exempt_event)
        end_times(ctx, self);
    else
        weir_ctx_fire_event(ctx, event);
}

/* The handler ---------------------------------------------------------------------------------- */

/* Before this handler: who is above a limit is not heard of. */
static int add_limit(weir_ctx *ctx, const guard_handler *self, weir_error *error)
{
    weir_handler_config config = {
        .type = &weir_connection_limit_handler,
        .arg = self->guard->connections,
        .place = WEIR_PLACE_BEFORE,
        .base = weir_ctx_name(ctx),
    };
    return weir_pipeline_add(weir_ctx_pipeline(ctx), &config, error);
}

static void guard_added(weir_ctx *ctx)
{
    guard_handler *self = weir_ctx_state(ctx);
    weir_error error;
    self->guard = weir_ctx_arg(ctx);
    self->timer.fire = on_time;
    self->waiting_since = self->expected_since = NEVER;
    if (!weir__channel_is_mine(weir_ctx_channel(ctx))) {
        weir_ctx_fail(ctx, -EINVAL, "a guard belongs on the channel's loop");
        return;
    }
    if (add_limit(ctx, self, &error) < 0) {
        refuse(ctx, self, error.code, error.message);
        return;
    }
    self->begun_at = self->read_at = now_of(ctx);
    self->sent = weir__channel_sent_bytes(weir_ctx_channel(ctx));
    self->has_read = true;
    look(ctx, self);
}

static void guard_on_read(weir_ctx *ctx, weir_msg *msg)
{
    guard_handler *self = weir_ctx_state(ctx);
    self->read += weir_msg_size(msg);
    weir_ctx_fire_read(ctx, msg);
}

static void guard_on_read_complete(weir_ctx *ctx)
{
    guard_handler *self = weir_ctx_state(ctx);
    self->read_at = now_of(ctx);
    self->has_read = true;
    weir_ctx_fire_read_complete(ctx);
}

static void guard_on_inactive(weir_ctx *ctx)
{
    end_times(ctx, weir_ctx_state(ctx));
    weir_ctx_fire_inactive(ctx);
}

static int guard_retain(void *arg)
{
    weir_guard_retain(arg);
    return 0;
}

static void guard_release(void *arg)
{
    weir_guard_release(arg);
}

static const weir_handler_type guard_handler_type = {
    .name = "guard",
    .state_size = sizeof(guard_handler),
    .arg_retain = guard_retain,
    .arg_release = guard_release,
    .added = guard_added,
    .on_read = guard_on_read,
    .on_read_complete = guard_on_read_complete,
    .on_event = guard_on_event,
    .on_inactive = guard_on_inactive,
};

int weir_guard_add(weir_guard *guard, weir_channel *channel)
{
    if (guard == NULL || channel == NULL)
        return -EINVAL;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &guard_handler_type, guard);
}

/* Making --------------------------------------------------------------------------------------- */

static int64_t time_of(int64_t ns, int64_t by_default)
{
    ns = ns == 0 ? by_default : ns;
    return ns == WEIR_OFF ? NEVER : ns;
}

static int check(const weir_guard_config *config, weir_error *error)
{
    const struct {
        const char *name;
        int64_t value, least;
    } rows[] = {
        { "first_byte_ns", config->first_byte_ns, WEIR_OFF },
        { "idle_ns", config->idle_ns, WEIR_OFF },
        { "write_ns", config->write_ns, WEIR_OFF },
        { "total_ns", config->total_ns, WEIR_OFF },
        { "expected_ns", config->expected_ns, WEIR_OFF },
        { "min_bytes_per_s", config->min_bytes_per_s, WEIR_OFF },
        { "period_ns", config->period_ns, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value < rows[i].least)
            return weir_error_set(error, -EINVAL, "guard",
                                  "%s is %" PRId64 ": write %" PRId64 " or more", rows[i].name,
                                  rows[i].value, rows[i].least);
    }
    if (config->period_ns > 0 && config->period_ns < WEIR_MS(1))
        return weir_error_set(error, -EINVAL, "guard",
                              "period_ns is %" PRId64 ", less than a millisecond",
                              config->period_ns);
    return 0;
}

static void set_times(weir_guard *self, const weir_guard_config *config)
{
    int64_t period = time_of(config->period_ns, WEIR_SECONDS(5));
    uint64_t rate = config->min_bytes_per_s > 0 ? (uint64_t)config->min_bytes_per_s : 0;
    self->after[NO_FIRST_BYTE] = time_of(config->first_byte_ns, WEIR_SECONDS(10));
    self->after[IDLE] = time_of(config->idle_ns, WEIR_SECONDS(60));
    self->after[NOT_TAKEN] = time_of(config->write_ns, WEIR_SECONDS(30));
    self->after[TOO_OLD] = time_of(config->total_ns, WEIR_OFF);
    self->after[NOT_COMPLETE] = time_of(config->expected_ns, WEIR_SECONDS(10));
    self->after[TOO_SLOW] = rate > 0 ? period : NEVER;
    unsigned __int128 bytes = (unsigned __int128)rate * (uint64_t)period / NS_PER_S;
    self->min_bytes = bytes < UINT64_MAX ? (uint64_t)bytes : UINT64_MAX;
}

int weir_guard_new(weir_guard **guard, const weir_guard_config *config, weir_error *error)
{
    static const weir_guard_config normal;
    config = config != NULL ? config : &normal;
    if (guard == NULL)
        return weir_error_set(error, -EINVAL, "guard", "there is no place for it");
    int code = check(config, error);
    weir_connection_limit *connections = NULL;
    if (code == 0)
        code = weir_connection_limit_new(&connections, &config->connections, error);
    if (code < 0)
        return code;
    weir_guard *self = weir__zalloc(sizeof *self);
    if (self == NULL) {
        weir_connection_limit_release(connections);
        return weir_error_set(error, -ENOMEM, "guard", "no memory");
    }
    atomic_init(&self->refs, 1);
    self->connections = connections;
    set_times(self, config);
    *guard = self;
    return 0;
}

weir_guard *weir_guard_retain(weir_guard *guard)
{
    if (guard != NULL)
        atomic_fetch_add_explicit(&guard->refs, 1, memory_order_relaxed);
    return guard;
}

void weir_guard_release(weir_guard *guard)
{
    if (guard == NULL || atomic_fetch_sub_explicit(&guard->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_connection_limit_release(guard->connections);
    weir__free(guard);
}

void weir_guard_get_stats(weir_guard *guard, weir_guard_stats *stats)
{
    uint64_t closed[REASONS];
    for (int why = 0; why < REASONS; why++)
        closed[why] = atomic_load_explicit(&guard->closed[why], memory_order_relaxed);
    *stats = (weir_guard_stats){
        .no_first_byte = closed[NO_FIRST_BYTE],
        .idle = closed[IDLE],
        .not_taken = closed[NOT_TAKEN],
        .too_old = closed[TOO_OLD],
        .not_complete = closed[NOT_COMPLETE],
        .too_slow = closed[TOO_SLOW],
    };
    weir_connection_limit_get_stats(guard->connections, &stats->connections);
}
