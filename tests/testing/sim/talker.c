/* SPDX-License-Identifier: MIT */
/* Clients that say something, and know what they should hear. */
#include "world.h"

#include <errno.h>
#include <string.h>

typedef struct state {
    weir_ctx_timer stall, resume;
} state;

static talker *talker_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

/* Saying ------------------------------------------------------------------------------------- */

static weir_buf *next_words(talker *self, size_t length)
{
    uint8_t *bytes;
    weir_buf *buf = weir_buf_new(length);
    if (buf == NULL || (bytes = weir_buf_write_ptr(buf, length)) == NULL)
        return buf;
    for (size_t i = 0; i < length; i++)
        bytes[i] = pattern(self->number, self->sent + i);
    weir_buf_advance_writer(buf, length);
    return buf;
}

static void say_something(weir_ctx *ctx)
{
    talker *self = talker_of(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    bool has_said = false;
    while (self->sent < self->total && weir_channel_is_writable(channel) &&
           (int64_t)(self->sent - self->received) < self->ahead && !self->is_over) {
        uint64_t left = self->total - self->sent;
        int64_t most = left < 20000 ? (int64_t)left : 20000;
        weir_buf *words = next_words(self, (size_t)draw_small(self->w, 1, most));
        if (words == NULL)
            break;
        self->sent += weir_buf_readable(words);
        weir_ctx_write(ctx, weir_buf_msg(words), NULL);
        has_said = true;
    }
    if (has_said)
        weir_ctx_flush(ctx);
    if (self->sent == self->total && self->shuts_down) {
        self->shuts_down = false;
        weir_ctx_shutdown(ctx, NULL);
    }
}

/* Hearing ------------------------------------------------------------------------------------ */

static void leave(weir_ctx *ctx)
{
    talker *self = talker_of(ctx);
    if (self->finishes)
        weir_channel_finish(weir_ctx_channel(ctx), NULL);
    else
        weir_ctx_close(ctx, NULL);
}

/* What has come back was sent. */
static void demand_nothing_queued(weir_ctx *ctx)
{
    weir_channel_stats stats;
    weir_channel_get_stats(weir_ctx_channel(ctx), &stats);
    demand(talker_of(ctx)->w, stats.pending_bytes == 0,
           "%zu bytes are counted as waiting, though all were sent", stats.pending_bytes);
}

static void resume(weir_ctx_timer *timer, weir_ctx *ctx)
{
    (void)timer;
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 1, NULL);
}

/* Does not want to read any more; and does again, at once or later. */
static void dither(weir_ctx *ctx)
{
    talker *self = talker_of(ctx);
    state *own = weir_ctx_state(ctx);
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 0, NULL);
    own->resume.fire = resume;
    if (weir_sim_chance(self->w->sim, 0.5))
        resume(&own->resume, ctx);
    else
        weir_ctx_schedule(ctx, &own->resume, WEIR_MS(draw_small(self->w, 0, 100)));
}

static void on_read(weir_ctx *ctx, weir_msg *msg)
{
    talker *self = talker_of(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    size_t length = weir_buf_readable(buf);
    const uint8_t *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
    demand(self->w, self->received + length <= self->sent,
           "client %u has heard more than it said: %llu bytes, %llu", self->number,
           (unsigned long long)(self->received + length), (unsigned long long)self->sent);
    size_t same = 0;
    while (same < length && bytes[same] == pattern(self->number, self->received + same))
        same++;
    demand(self->w, same == length, "client %u has heard something else than it said, at byte %llu",
           self->number, (unsigned long long)(self->received + same));
    self->received += length;
    weir_msg_release(msg);
    self->progress_ns = weir_sim_now_ns(self->w->sim);
    if (self->received == self->sent)
        demand_nothing_queued(ctx);
    if (self->dithers && weir_sim_chance(self->w->sim, 0.2))
        dither(ctx);
    if (self->received >= self->quits_at)
        weir_ctx_close(ctx, NULL);
    else if (self->received == self->total && !self->waits)
        leave(ctx);
}

static void on_read_complete(weir_ctx *ctx)
{
    talker *self = talker_of(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    say_something(ctx);
    if (self->reads_by_hand)
        weir_ctx_read(ctx);
    if (self->moves && weir_sim_chance(self->w->sim, 0.1))
        weir_channel_move(channel, weir_group_next(self->group), NULL);
}

static void on_writability(weir_ctx *ctx)
{
    say_something(ctx);
}

/* Its course --------------------------------------------------------------------------------- */

/* Whoever hears nothing for so long is left by the network, or by a mistake. */
static void on_stall(weir_ctx_timer *timer, weir_ctx *ctx)
{
    talker *self = talker_of(ctx);
    int64_t quiet_ns = weir_sim_now_ns(self->w->sim) - self->progress_ns;
    if (quiet_ns < STALL_NS) {
        weir_ctx_schedule(ctx, timer, STALL_NS - quiet_ns);
        return;
    }
    demand(self->w, !is_sound(self->w),
           "client %u waits for ever: has said %llu of %llu, heard %llu", self->number,
           (unsigned long long)self->sent, (unsigned long long)self->total,
           (unsigned long long)self->received);
    weir_ctx_close(ctx, NULL);
}

static void on_active(weir_ctx *ctx)
{
    talker *self = talker_of(ctx);
    state *own = weir_ctx_state(ctx);
    own->stall.fire = on_stall;
    self->progress_ns = weir_sim_now_ns(self->w->sim);
    weir_ctx_schedule(ctx, &own->stall, STALL_NS);
    if (self->reads_by_hand)
        weir_ctx_read(ctx);
    if (self->total == 0)
        leave(ctx);
    else
        say_something(ctx);
}

static void on_error(weir_ctx *ctx, const weir_error *error)
{
    talker *self = talker_of(ctx);
    if (self->error == 0)
        self->error = error->code;
    weir_ctx_close(ctx, NULL);
}

/* With half closure it is told that no more comes, and has nothing to wait for. */
static void on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        weir_ctx_close(ctx, NULL);
    weir_ctx_fire_event(ctx, event);
}

static void on_inactive(weir_ctx *ctx)
{
    talker *self = talker_of(ctx);
    self->is_over = true;
    if (is_unhurt(self->w) && self->received < self->quits_at)
        demand(self->w, self->received == self->total,
               "client %u has heard %llu of %llu bytes, and the end (%s)", self->number,
               (unsigned long long)self->received, (unsigned long long)self->total,
               weir_error_name(self->error));
}

static const weir_handler_type talker_type = {
    .name = "talker",
    .state_size = sizeof(state),
    .on_active = on_active,
    .on_read = on_read,
    .on_read_complete = on_read_complete,
    .on_writability = on_writability,
    .on_event = on_event,
    .on_inactive = on_inactive,
    .on_error = on_error,
};

static int init(weir_channel *channel, void *arg)
{
    talker *self = arg;
    if (self->reads_by_hand)
        weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
    if (self->shuts_down)
        weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1, NULL);
    int code = add_probe(self->w, channel);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "talker", &talker_type,
                                             self);
}

static void on_connect(weir_listener *listener, weir_future *future)
{
    talker *self = WEIR_CONTAINER(listener, talker, on_connect);
    int code = weir_future_code(future);
    self->is_connected = code == 0;
    if (code < 0) {
        self->is_over = true;
        self->error = code;
        demand(self->w, !is_unhurt(self->w) || self->w->config.link.refuse > 0,
               "client %u could not connect: %s", self->number, weir_error_name(code));
    }
}

void talker_start(talker *self, world *w, unsigned number, const char *address)
{
    weir_error error = { 0 };
    uint64_t total = (uint64_t)draw_amount(w);
    *self = (talker){
        .w = w,
        .number = number,
        .group = w->clients[draw(w, 0, 1)],
        .address = address,
        .total = total,
        .quits_at = weir_sim_chance(w->sim, 0.1) ? (uint64_t)draw(w, 0, (int64_t)total)
                                                 : UINT64_MAX,
        .ahead = draw_small(w, 1, 100000),
        .reads_by_hand = weir_sim_chance(w->sim, 0.3),
        .dithers = weir_sim_chance(w->sim, 0.3),
        .shuts_down = weir_sim_chance(w->sim, 0.3),
        .finishes = weir_sim_chance(w->sim, 0.5),
        .moves = weir_sim_chance(w->sim, 0.3),
        .connect = weir_promise_new(NULL),
        .on_connect.done = on_connect,
    };
    weir_client_config config = { .group = self->group, .init = init, .arg = self };
    self->dithers &= !self->reads_by_hand;
    self->waits = self->shuts_down && total > 0 && weir_sim_chance(w->sim, 0.5);
    if (!demand(w, self->connect != NULL, "no memory"))
        return;
    weir_future_listen(weir_promise_future(self->connect), &self->on_connect);
    int code = weir_client_start(&config, address, self->connect, &error);
    if (!demand(w, code == 0, "client %u cannot begin: %s", number, error.message))
        weir_promise_fail(self->connect, code);
    weir_promise_release(self->connect);
}

bool talker_is_over(const talker *self)
{
    return self->is_over;
}

/* Crowds --------------------------------------------------------------------------------------- */

static bool are_over(void *arg)
{
    const crowd *self = arg;
    for (unsigned i = 0; i < self->count; i++) {
        if (!talker_is_over(&self->talkers[i]))
            return false;
    }
    return true;
}

void crowd_talk(crowd *self, world *w, const char *address)
{
    for (unsigned i = 0; i < self->count; i++)
        talker_start(&self->talkers[i], w, i, address);
    run_until(w, are_over, self);
}
