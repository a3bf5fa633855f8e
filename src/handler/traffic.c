/* SPDX-License-Identifier: MIT */
/* The traffic handler. */
#include "channel/arg.h"
#include "channel/channel.h"
#include "exec/executor.h"
#include "handler/traffic_shaper.h"
#include "handler/write_queue.h"

#include <weir/file.h>

#include <errno.h>

#define LONGEST_LOOK_NS WEIR_SECONDS(1) /* somebody may have changed the limits */

/*
 * The first that waits to be written passes one shaper after the other: it takes its turn in the
 * shared one when its own channel's would let it go, so that it does not keep others waiting
 * meanwhile.
 */
typedef struct traffic {
    weir_shaper *shapers[2]; /* the channel's own, and the shared one */
    int shaper_count;

    weir_ctx_timer read_again;
    weir_claim read_claims[2];
    int64_t paused_at;

    weir_write_queue queue;
    weir_claim claims[2]; /* of its first, on its bytes */
    int claim_count;      /* how many of them the first has */
    int stage;            /* how many of them have let it pass */
    int64_t since;        /* when it came to be the first */
    weir_ctx_timer write_again;
    bool is_pumping; /* further up the stack */
    weir_hold read_hold;
    weir_hold write_hold; /* too much waits here */
} traffic;

static int64_t now_of(const weir_ctx *ctx)
{
    return weir_executor_now_ns(weir_ctx_executor(ctx));
}

/* A file holds no memory, and counts nothing there, but its bytes pass all the same. */
static uint64_t bytes_of(const weir_msg *msg)
{
    return msg->type == &weir_file_region_type ? ((const weir_file_region *)msg)->length
                                               : weir_msg_size(msg);
}

static void count_passed(const traffic *self, weir_way way, uint64_t bytes, int64_t now)
{
    for (int i = 0; i < self->shaper_count; i++)
        weir__shaper_passed(self->shapers[i], way, bytes, now);
}

static int look_again(weir_ctx *ctx, weir_ctx_timer *timer, int64_t wait_ns)
{
    return weir_ctx_schedule(ctx, timer, wait_ns < LONGEST_LOOK_NS ? wait_ns : LONGEST_LOOK_NS);
}

/* Reading -------------------------------------------------------------------------------------- */

static void resume_reading(weir_ctx *ctx, traffic *self)
{
    if (!self->read_hold.is_set)
        return;
    weir_ctx_cancel(ctx, &self->read_again);
    for (int i = 0; i < self->shaper_count; i++)
        weir__shaper_resumed(self->shapers[i], now_of(ctx) - self->paused_at);
    weir_channel_set_read_hold(weir_ctx_channel(ctx), &self->read_hold, false);
}

static void pause_reading(weir_ctx *ctx, traffic *self)
{
    if (self->read_hold.is_set)
        return;
    self->paused_at = now_of(ctx);
    for (int i = 0; i < self->shaper_count; i++)
        weir__shaper_paused(self->shapers[i]);
    weir_channel_set_read_hold(weir_ctx_channel(ctx), &self->read_hold, true);
}

/* Reads on when it may, or when there is no memory to wait for that. */
static void read_later(weir_ctx *ctx, traffic *self, int64_t wait_ns)
{
    if (wait_ns > 0 && look_again(ctx, &self->read_again, wait_ns) == 0)
        pause_reading(ctx, self);
    else
        resume_reading(ctx, self);
}

static void on_read_again(weir_ctx_timer *timer, weir_ctx *ctx)
{
    traffic *self = WEIR_CONTAINER(timer, traffic, read_again);
    int64_t longest = 0;
    for (int i = 0; i < self->shaper_count; i++) {
        int64_t wait_ns = weir__shaper_wait(self->shapers[i], WEIR_WAY_READ, &self->read_claims[i],
                                            now_of(ctx));
        longest = wait_ns > longest ? wait_ns : longest;
    }
    read_later(ctx, self, longest);
}

static void traffic_on_read(weir_ctx *ctx, weir_msg *msg)
{
    traffic *self = weir_ctx_state(ctx);
    uint64_t bytes = bytes_of(msg);
    int64_t longest = 0;
    for (int i = 0; i < self->shaper_count; i++) {
        int64_t wait_ns = weir__shaper_claim(self->shapers[i], WEIR_WAY_READ, bytes, now_of(ctx),
                                             &self->read_claims[i]);
        longest = wait_ns > longest ? wait_ns : longest;
    }
    count_passed(self, WEIR_WAY_READ, bytes, now_of(ctx));
    if (longest > 0)
        read_later(ctx, self, longest);
    weir_ctx_fire_read(ctx, msg);
}

/* What waits ----------------------------------------------------------------------------------- */

static void count_delayed(const traffic *self, int64_t bytes, int messages)
{
    for (int i = 0; i < self->shaper_count; i++)
        weir__shaper_delayed(self->shapers[i], bytes, messages);
}

static int append(weir_ctx *ctx, traffic *self, weir_msg *msg, weir_promise *promise)
{
    bool is_first = self->queue.first == NULL;
    int code = weir__write_queue_add(&self->queue, msg, promise,
                                     weir__write_weight(weir_msg_size(msg)));
    if (code < 0)
        return code;
    if (is_first)
        self->since = now_of(ctx);
    count_delayed(self, (int64_t)bytes_of(msg), 1);
    return 0;
}

static weir_queued_write take_first(weir_ctx *ctx, traffic *self)
{
    weir_queued_write taken = weir__write_queue_take(&self->queue);
    int64_t now = now_of(ctx);
    for (int i = 0; i < self->shaper_count; i++)
        weir__shaper_waited(self->shapers[i], now - self->since);
    self->since = now;
    self->stage = self->claim_count = 0;
    count_delayed(self, -(int64_t)bytes_of(taken.msg), -1);
    return taken;
}

/* The bytes that were claimed do not come. */
static void give_back(traffic *self)
{
    for (int i = 0; i < self->claim_count; i++)
        weir__shaper_unclaim(self->shapers[i], WEIR_WAY_WRITE, &self->claims[i]);
    self->stage = self->claim_count = 0;
}

static void drop_first(weir_ctx *ctx, traffic *self, int code)
{
    give_back(self);
    weir_queued_write dropped = take_first(ctx, self);
    weir__write_queue_drop(&dropped, code);
}

static void pass_first(weir_ctx *ctx, traffic *self)
{
    weir_queued_write passed = take_first(ctx, self);
    count_passed(self, WEIR_WAY_WRITE, bytes_of(passed.msg), now_of(ctx));
    weir__write_queue_pass(ctx, &passed);
}

static void tell_writability(weir_ctx *ctx, traffic *self)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    size_t mark = self->write_hold.is_set ? channel->out.low_bytes : channel->out.high_bytes;
    weir_channel_set_write_hold(channel, &self->write_hold, self->queue.weight > mark);
}

/* Writing -------------------------------------------------------------------------------------- */

/* Takes the first message, or one that would be it, past the shapers: 0 when it may pass, or how
 * long it has to wait. */
static int64_t pass_shapers(weir_ctx *ctx, traffic *self, uint64_t bytes)
{
    for (; self->stage < self->shaper_count; self->stage++) {
        weir_shaper *shaper = self->shapers[self->stage];
        weir_claim *claim = &self->claims[self->stage];
        bool is_new = self->claim_count == self->stage;
        int64_t wait_ns = is_new ? weir__shaper_claim(shaper, WEIR_WAY_WRITE, bytes, now_of(ctx),
                                                      claim)
                                 : weir__shaper_wait(shaper, WEIR_WAY_WRITE, claim, now_of(ctx));
        self->claim_count = self->stage + 1;
        if (wait_ns > 0)
            return wait_ns;
    }
    return 0;
}

static bool is_cancelled(const weir_queued_write *first)
{
    return first->promise != NULL && weir_future_is_done(weir_promise_future(first->promise));
}

/* Passes on what is flushed and may pass, and whatever there is no memory for to wait. */
static void pass_some(weir_ctx *ctx, traffic *self)
{
    bool has_passed = false;
    while (weir__write_queue_has_flushed(&self->queue) && !weir_ctx_is_removed(ctx)) {
        if (is_cancelled(self->queue.first)) {
            drop_first(ctx, self, -ECANCELED);
            continue;
        }
        int64_t wait_ns = pass_shapers(ctx, self, bytes_of(self->queue.first->msg));
        if (wait_ns > 0 && look_again(ctx, &self->write_again, wait_ns) == 0)
            break;
        pass_first(ctx, self);
        has_passed = true;
    }
    if (has_passed)
        weir_ctx_flush(ctx);
}

static void pump(weir_ctx *ctx, traffic *self)
{
    if (self->is_pumping || self->queue.first == NULL)
        return;
    self->is_pumping = true;
    pass_some(ctx, self);
    self->is_pumping = false;
    if (weir_ctx_is_removed(ctx))
        return;
    tell_writability(ctx, self);
    weir__write_queue_passed(ctx, &self->queue);
}

static void on_write_again(weir_ctx_timer *timer, weir_ctx *ctx)
{
    pump(ctx, WEIR_CONTAINER(timer, traffic, write_again));
}

/* Keeps a message in its place: 0, or why it cannot. */
static int keep(weir_ctx *ctx, traffic *self, weir_msg *msg, weir_promise *promise)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    size_t weight = weir__write_weight(weir_msg_size(msg));
    int64_t most = 0;
    weir_channel_get_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, &most);
    size_t used = weir__channel_pending_bytes(channel) + self->queue.weight;
    if (used > (size_t)most || weight > (size_t)most - used)
        return WEIR_ELIMIT;
    int code = append(ctx, self, msg, promise);
    if (code == 0)
        tell_writability(ctx, self);
    return code;
}

static void traffic_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    traffic *self = weir_ctx_state(ctx);
    uint64_t bytes = bytes_of(msg);
    if (self->queue.is_ending) {
        weir_ctx_refuse_write(ctx, msg, promise, -EPIPE);
        return;
    }
    bool is_open = weir_channel_is_open(weir_ctx_channel(ctx));
    if (self->queue.first == NULL && (!is_open || pass_shapers(ctx, self, bytes) == 0)) {
        self->stage = self->claim_count = 0;
        count_passed(self, WEIR_WAY_WRITE, bytes, now_of(ctx));
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    int code = keep(ctx, self, msg, promise);
    if (code == 0)
        return;
    if (self->queue.first == NULL)
        give_back(self);
    weir_ctx_refuse_write(ctx, msg, promise, code);
}

static void traffic_flush(weir_ctx *ctx)
{
    traffic *self = weir_ctx_state(ctx);
    weir__write_queue_flush(&self->queue);
    weir_ctx_flush(ctx);
    pump(ctx, self);
}

static void traffic_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    traffic *self = weir_ctx_state(ctx);
    if (weir__write_queue_shutdown(ctx, &self->queue, promise))
        traffic_flush(ctx);
}

/* Coming and going ----------------------------------------------------------------------------- */

static void destroy_shaper(void *value)
{
    weir_shaper_free(value);
}

static const weir_attr_key shaper_key = { .name = "shaper", .destroy = destroy_shaper };

weir_shaper *weir_channel_shaper(weir_channel *channel)
{
    return weir_channel_attr(channel, &shaper_key);
}

/* A channel keeps its shaper, for whoever looks at it. */
static int need_shaper(weir_channel *channel, const weir_traffic_limits *limits, weir_error *error)
{
    weir_shaper *shaper = weir_channel_shaper(channel);
    if (shaper != NULL)
        return weir_shaper_set_limits(shaper, limits, error);
    int code = weir_shaper_new(&shaper, limits, error);
    if (code == 0 && (code = weir_channel_set_attr(channel, &shaper_key, shaper)) < 0)
        weir_error_set(error, code, "traffic", "no memory for a shaper");
    return code;
}

static void add_shaper(weir_ctx *ctx, traffic *self, weir_shaper *shaper)
{
    weir__shaper_set_clock(shaper, weir_ctx_executor(ctx)->clock);
    self->shapers[self->shaper_count++] = shaper;
}

static void traffic_added(weir_ctx *ctx)
{
    traffic *self = weir_ctx_state(ctx);
    const weir_traffic *config = weir_ctx_arg(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_error error;
    self->read_again.fire = on_read_again;
    self->write_again.fire = on_write_again;
    if (!weir__arg_check_given(ctx, "weir_traffic", config))
        return;
    if (!weir__channel_is_mine(channel))
        weir_ctx_fail(ctx, -EINVAL, "a traffic handler belongs on the channel's loop");
    else if (need_shaper(channel, &config->each, &error) < 0)
        weir_ctx_fail(ctx, error.code, "%s", error.message);
    else {
        add_shaper(ctx, self, weir_channel_shaper(channel));
        if (config->shared != NULL)
            add_shaper(ctx, self, config->shared);
    }
}

static void drop_all(weir_ctx *ctx, traffic *self)
{
    while (self->queue.first != NULL)
        drop_first(ctx, self, WEIR_ECLOSED);
    weir__write_queue_fail_shutdown(&self->queue, WEIR_ECLOSED);
}

static void hand_all_on(weir_ctx *ctx, traffic *self)
{
    bool has_flushed = weir__write_queue_has_flushed(&self->queue);
    while (weir__write_queue_has_flushed(&self->queue))
        pass_first(ctx, self);
    if (has_flushed)
        weir_ctx_flush(ctx);
    while (self->queue.first != NULL)
        pass_first(ctx, self);
    weir__write_queue_passed(ctx, &self->queue);
}

/* Nothing waits here any more, neither to be read nor to be written. */
static void let_go(weir_ctx *ctx, traffic *self)
{
    weir_ctx_cancel(ctx, &self->write_again);
    tell_writability(ctx, self);
    resume_reading(ctx, self);
}

static void traffic_removed(weir_ctx *ctx)
{
    traffic *self = weir_ctx_state(ctx);
    if (weir_channel_is_open(weir_ctx_channel(ctx)))
        hand_all_on(ctx, self);
    else
        drop_all(ctx, self);
    let_go(ctx, self);
}

static void traffic_on_inactive(weir_ctx *ctx)
{
    traffic *self = weir_ctx_state(ctx);
    drop_all(ctx, self);
    let_go(ctx, self);
    weir_ctx_fire_inactive(ctx);
}

const weir_handler_type weir_traffic_handler = {
    .name = "traffic",
    .state_size = sizeof(traffic),
    .arg_size = sizeof(weir_traffic),
    .is_single = true,
    .added = traffic_added,
    .removed = traffic_removed,
    .on_read = traffic_on_read,
    .on_inactive = traffic_on_inactive,
    .write = traffic_write,
    .flush = traffic_flush,
    .shutdown = traffic_shutdown,
};
