/* SPDX-License-Identifier: MIT */
/* Bridges: a handler at the end of two pipelines that passes messages from one to the other. */
#include "handler/bridge.h"

#include <weir/alloc.h>
#include <weir/socket.h>

#include <errno.h>

#define DEFAULT_IDLE_NS WEIR_SECONDS(600)
#define DEFAULT_RELAY_BYTES (1 << 20)
#define IDLE_CHECKS 4                 /* in one idle_timeout_ns */
#define PEER_CHECK_NS WEIR_SECONDS(5) /* while a channel is not read */

static weir_bridge_side *side_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

/* The end of a bridge -------------------------------------------------------------------------- */

void weir__bridge_retain(weir_bridge_pair *self)
{
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
}

void weir__bridge_release(weir_bridge_pair *self)
{
    if (atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_channel_release(weir__bridge_channel(&self->sides[WEIR__FRONT]));
    weir_channel_release(weir__bridge_channel(&self->sides[WEIR__BACK]));
    weir_promise_release(self->connecting);
    weir_free(self);
}

void weir__bridge_set_error(weir_bridge_pair *self, int code, const char *origin,
                            const char *message)
{
    if (!atomic_exchange_explicit(&self->has_error, true, memory_order_acq_rel))
        weir_error_set(&self->error, code, origin, "%s", message);
}

static void report(weir_bridge_pair *self)
{
    weir_bridge_result result = {
        .error = self->error,
        .front = weir__bridge_channel(&self->sides[WEIR__FRONT]),
        .back = weir__bridge_channel(&self->sides[WEIR__BACK]),
        .bytes_to_back = weir__bridge_bytes(&self->sides[WEIR__FRONT]),
        .bytes_to_front = weir__bridge_bytes(&self->sides[WEIR__BACK]),
    };
    if (self->config.on_end != NULL)
        self->config.on_end(self->config.arg, &result);
}

static void leave(weir_bridge_pair *self)
{
    if (atomic_fetch_sub_explicit(&self->open_ends, 1, memory_order_acq_rel) == 1)
        report(self);
}

/* Passing on ----------------------------------------------------------------------------------- */

void weir__bridge_set_hold(weir_bridge_side *self, weir_hold *hold, bool is_set)
{
    weir_channel *channel = weir__bridge_channel(self);
    if (channel != NULL)
        weir_channel_set_read_hold(channel, hold, is_set);
}

void weir__bridge_pass_message(weir_bridge_side *self, weir_msg *msg)
{
    if (weir__bridge_has_left(weir__bridge_other_side(self))) {
        weir_msg_release(msg);
        return;
    }
    self->bytes += weir_msg_size(msg);
    weir_channel_write(weir__bridge_other_channel(self), msg, NULL);
}

/* A channel that is not read receives no reset of its peer: ask the kernel. */
static void check_peer(weir_ctx_timer *timer, weir_ctx *ctx)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_tcp_info info;
    if (!side_of(ctx)->hold.is_set && side_of(ctx)->relay != WEIR__RELAY_RUNNING)
        return;
    if (weir_channel_tcp_info(channel, &info) == 0 && info.state == WEIR_TCP_CLOSED)
        weir_channel_reset(channel);
    else
        weir_ctx_schedule(ctx, timer, PEER_CHECK_NS);
}

void weir__bridge_start_peer_checks(weir_bridge_side *self)
{
    self->peer_check.fire = check_peer;
    weir_ctx_schedule(self->ctx, &self->peer_check, PEER_CHECK_NS);
}

/* If two threads each make a change and call this, the second one sees the change of the first. */
static void synchronise(weir_bridge_pair *self)
{
    atomic_fetch_add_explicit(&self->refs, 0, memory_order_acq_rel);
}

/* Sets the hold before it asks again: if the other channel becomes writable in between, either its
 * loop clears the hold or this does. */
static void hold_until_writable(weir_bridge_side *self)
{
    weir_channel *to = weir__bridge_other_channel(self);
    if (weir_channel_is_writable(to))
        return;
    weir__bridge_set_hold(self, &self->hold, true);
    synchronise(self->pair);
    if (weir_channel_is_writable(to)) {
        weir__bridge_set_hold(self, &self->hold, false);
        return;
    }
    weir__bridge_start_peer_checks(self);
}

void weir__bridge_end_batch(weir_bridge_side *self)
{
    weir_channel_flush(weir__bridge_other_channel(self));
    hold_until_writable(self);
    weir__bridge_relay_if_due(self);
}

void weir__bridge_pass_eof(weir_bridge_side *self)
{
    atomic_store_explicit(&self->has_eof, true, memory_order_release);
    if (self->is_joined && !weir__bridge_has_left(weir__bridge_other_side(self)))
        weir_channel_shutdown(weir__bridge_other_channel(self), NULL);
}

/* The handler ---------------------------------------------------------------------------------- */

/* Each side checks the bytes of both channels, because one channel may close before the other. */
static void check_idle(weir_ctx_timer *timer, weir_ctx *ctx)
{
    weir_bridge_side *self = side_of(ctx);
    weir_bridge_pair *pair = self->pair;
    uint64_t moved = 0;
    for (int i = WEIR__FRONT; i <= WEIR__BACK; i++) {
        weir_channel_stats stats = { 0 };
        if (weir__bridge_channel(&pair->sides[i]) != NULL)
            weir_channel_get_stats(weir__bridge_channel(&pair->sides[i]), &stats);
        moved += stats.bytes_in + stats.bytes_out;
    }
    self->idle_checks = moved == self->moved ? self->idle_checks + 1 : 0;
    self->moved = moved;
    if (self->idle_checks < IDLE_CHECKS) {
        weir_ctx_schedule(ctx, timer, pair->config.idle_timeout_ns / IDLE_CHECKS);
        return;
    }
    weir__bridge_set_error(pair, -ETIMEDOUT, "bridge",
                           "idle timeout: no byte was sent or received");
    weir_channel_reset(weir_ctx_channel(ctx));
}

static void bridge_added(weir_ctx *ctx)
{
    weir_bridge_side *self = side_of(ctx);
    weir_bridge_pair *pair = self->pair;
    weir_channel *channel = weir_ctx_channel(ctx);
    self->ctx = ctx;
    weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    weir_channel_set_option(channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, false, NULL);
    if (pair->config.idle_timeout_ns != WEIR_OFF) {
        self->idle_check.fire = check_idle;
        weir_ctx_schedule(ctx, &self->idle_check, pair->config.idle_timeout_ns / IDLE_CHECKS);
    }
    if (weir_ctx_is_input_closed(ctx))
        weir__bridge_pass_eof(self);
}

static void bridge_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_bridge_side *self = side_of(ctx);
    if (self->is_joined)
        weir__bridge_pass_message(self, msg);
    else
        weir__bridge_buffer_early(self, msg);
}

static void bridge_on_read_complete(weir_ctx *ctx)
{
    weir_bridge_side *self = side_of(ctx);
    if (self->is_joined)
        weir__bridge_end_batch(self);
}

static void bridge_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        weir__bridge_pass_eof(side_of(ctx));
    weir_ctx_fire_event(ctx, event);
}

static void bridge_on_writability(weir_ctx *ctx)
{
    weir_bridge_side *self = side_of(ctx);
    synchronise(self->pair);
    if (weir_channel_is_writable(weir_ctx_channel(ctx)))
        weir__bridge_set_hold(weir__bridge_other_side(self), &weir__bridge_other_side(self)->hold,
                              false);
    weir_ctx_fire_writability(ctx);
}

static void bridge_on_error(weir_ctx *ctx, const weir_error *error)
{
    weir__bridge_set_error(side_of(ctx)->pair, error->code, error->origin, error->message);
    side_of(ctx)->has_failed = true;
    weir_channel_reset(weir_ctx_channel(ctx));
}

/* The end is regular after EOF in both directions. A channel that closes by its EOF fires no
 * input-closed event, so this asks the channel. */
static bool is_regular_end(weir_bridge_side *self)
{
    if (self->has_failed || !weir_channel_is_input_closed(weir__bridge_channel(self)))
        return false;
    atomic_store_explicit(&self->has_eof, true, memory_order_release);
    return atomic_load_explicit(&weir__bridge_other_side(self)->has_eof, memory_order_acquire);
}

/* The channel of a side has closed, or was never active. */
static void end_side(weir_bridge_side *self)
{
    weir_bridge_pair *pair = self->pair;
    weir_channel *to = weir__bridge_has_left(weir__bridge_other_side(self))
                           ? NULL
                           : weir__bridge_other_channel(self);
    bool is_regular = is_regular_end(self);
    if (self->has_ended)
        return;
    self->has_ended = true;
    if (!is_regular)
        weir__bridge_set_error(pair, WEIR_ECLOSED, "bridge",
                               "a channel closed before the end of its stream");
    if (self == &pair->sides[WEIR__FRONT] && pair->connecting != NULL)
        weir_future_cancel(weir_promise_future(pair->connecting));
    if (to != NULL && is_regular)
        weir_channel_finish(to, NULL);
    else if (to != NULL)
        weir_channel_reset(to);
}

static void bridge_on_inactive(weir_ctx *ctx)
{
    end_side(side_of(ctx));
    weir_ctx_fire_inactive(ctx);
}

static void bridge_removed(weir_ctx *ctx)
{
    weir_bridge_side *self = side_of(ctx);
    weir__bridge_drop_early(self);
    if (weir_channel_is_open(weir__bridge_channel(self)))
        atomic_store_explicit(&self->has_left, true, memory_order_release);
    end_side(self);
    weir__bridge_set_hold(self, &self->hold, false);
    weir__bridge_set_hold(self, &self->early_hold, false);
    weir__bridge_set_hold(self, &self->relay_hold, false);
    leave(self->pair);
}

static size_t bridge_held(const weir_ctx *ctx)
{
    return side_of(ctx)->first_early != NULL;
}

static int side_retain(void *arg)
{
    weir__bridge_retain(((weir_bridge_side *)arg)->pair);
    return 0;
}

static void side_release(void *arg)
{
    weir__bridge_release(((weir_bridge_side *)arg)->pair);
}

const weir_handler_type weir__bridge_type = {
    .name = "bridge",
    .is_single = true,
    .arg_retain = side_retain,
    .arg_release = side_release,
    .held_reads = bridge_held,
    .added = bridge_added,
    .removed = bridge_removed,
    .on_read = bridge_on_read,
    .on_read_complete = bridge_on_read_complete,
    .on_event = bridge_on_event,
    .on_writability = bridge_on_writability,
    .on_error = bridge_on_error,
    .on_inactive = bridge_on_inactive,
};

/* Creation ------------------------------------------------------------------------------------- */

static void init_side(weir_bridge_pair *self, int which)
{
    weir_bridge_side *at = &self->sides[which];
    at->pair = self;
    at->last_early = &at->first_early;
}

static int check_config(const weir_bridge_config *config)
{
    bool is_idle_valid = config->idle_timeout_ns >= 0 || config->idle_timeout_ns == WEIR_OFF;
    bool is_relay_valid = config->relay_after_bytes >= 0 || config->relay_after_bytes == WEIR_OFF;
    return is_idle_valid && is_relay_valid ? 0 : -EINVAL;
}

int weir__bridge_new(weir_bridge_pair **made, const weir_bridge_config *config)
{
    weir_bridge_config chosen = config != NULL ? *config : (weir_bridge_config){ 0 };
    int code = check_config(&chosen);
    if (code < 0)
        return code;
    weir_bridge_pair *self = weir_zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    if (chosen.idle_timeout_ns == 0)
        chosen.idle_timeout_ns = DEFAULT_IDLE_NS;
    if (chosen.relay_after_bytes == 0)
        chosen.relay_after_bytes = DEFAULT_RELAY_BYTES;
    self->config = chosen;
    atomic_init(&self->refs, 1);
    atomic_init(&self->open_ends, 1);
    init_side(self, WEIR__FRONT);
    init_side(self, WEIR__BACK);
    *made = self;
    return 0;
}

/* A closed channel is accepted as well: the handler that is added to it ends the bridge. */
bool weir__bridge_accepts(const weir_channel *channel)
{
    return channel != NULL &&
           (weir_channel_loop(channel) != NULL || !weir_channel_is_open(channel));
}

int weir__bridge_add_side(weir_bridge_side *self, weir_channel *channel)
{
    atomic_fetch_add_explicit(&self->pair->open_ends, 1, memory_order_relaxed);
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), "bridge", &weir__bridge_type,
                                      self);
    if (code < 0)
        leave(self->pair);
    return code;
}

void weir__bridge_end_making(weir_bridge_pair *self)
{
    leave(self);
    weir__bridge_release(self);
}

int weir__bridge_fail_making(weir_bridge_pair *self, int code)
{
    self->config.on_end = NULL;
    weir__bridge_end_making(self);
    return code;
}

int weir_bridge(weir_channel *front, weir_channel *back, const weir_bridge_config *config)
{
    weir_bridge_pair *self;
    bool is_valid = weir__bridge_accepts(front) && weir__bridge_accepts(back) && front != back;
    int code = is_valid ? weir__bridge_new(&self, config) : -EINVAL;
    if (code < 0)
        return code;
    weir__bridge_set_channel(&self->sides[WEIR__FRONT], front);
    weir__bridge_set_channel(&self->sides[WEIR__BACK], back);
    self->sides[WEIR__FRONT].is_joined = self->sides[WEIR__BACK].is_joined = true;
    code = weir__bridge_add_side(&self->sides[WEIR__BACK], back);
    if (code == 0)
        code = weir__bridge_add_side(&self->sides[WEIR__FRONT], front);
    if (code < 0) {
        weir_channel_close(front, NULL);
        weir_channel_close(back, NULL);
        return weir__bridge_fail_making(self, code);
    }
    weir__bridge_end_making(self);
    return 0;
}
