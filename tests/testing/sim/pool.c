/* SPDX-License-Identifier: MIT */
/* A pool of connections to a server that answers when it likes and sometimes hangs up, and those
 * who share it: each answer is for who asked. */
#include "world.h"

#include <errno.h>
#include <string.h>

#define MOST_TRIES 40
#define PATIENCE_NS WEIR_SECONDS(100)

/* The server --------------------------------------------------------------------------------- */

typedef struct answering {
    weir_ctx_timer timer;
    uint64_t questions[4]; /* that wait to be answered: one, for nobody asks twice */
    unsigned count;
    uint64_t part;
    unsigned part_bytes;
} answering;

typedef struct service {
    world *w;
    double hangs_up;
} service;

static uint64_t answer_to(uint64_t question)
{
    return question * 0x9e3779b97f4a7c15 + 1;
}

static void answer_now(weir_ctx_timer *timer, weir_ctx *ctx)
{
    answering *self = WEIR_CONTAINER(timer, answering, timer);
    const service *of = weir_ctx_arg(ctx);
    uint64_t answer = answer_to(self->questions[0]);
    weir_buf *buf = weir_buf_from(&answer, sizeof answer);
    self->count = 0;
    if (buf != NULL)
        weir_ctx_write_and_flush(ctx, weir_buf_msg(buf), NULL);
    if (weir_sim_chance(of->w->sim, of->hangs_up))
        weir_channel_finish(weir_ctx_channel(ctx), NULL);
}

/* Whole numbers out of bytes: true for each. */
static bool take_number(weir_buf *buf, uint64_t *part, unsigned *part_bytes, uint64_t *number)
{
    uint8_t byte;
    while (weir_buf_read_u8(buf, &byte) == 0) {
        memcpy((uint8_t *)part + *part_bytes, &byte, 1);
        if (++*part_bytes < sizeof *part)
            continue;
        *part_bytes = 0;
        *number = *part;
        return true;
    }
    return false;
}

static void service_on_read(weir_ctx *ctx, weir_msg *msg)
{
    answering *self = weir_ctx_state(ctx);
    const service *of = weir_ctx_arg(ctx);
    uint64_t question;
    while (take_number(weir_buf_from_msg(msg), &self->part, &self->part_bytes, &question)) {
        demand(of->w, self->count == 0, "a connection was lent to two at once");
        self->questions[0] = question;
        self->count = 1;
        if (weir_sim_chance(of->w->sim, of->hangs_up)) {
            weir_ctx_close(ctx, NULL);
        } else {
            self->timer.fire = answer_now;
            weir_ctx_schedule(ctx, &self->timer, WEIR_MS(draw_small(of->w, 0, 200)));
        }
    }
    weir_msg_release(msg);
}

static void close_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type service_type = {
    .name = "service",
    .state_size = sizeof(answering),
    .on_read = service_on_read,
    .on_error = close_on_error,
};

static int init_service(weir_channel *channel, void *arg)
{
    service *self = arg;
    int code = add_probe(self->w, channel);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "service",
                                             &service_type, self);
}

/* Those who ask ------------------------------------------------------------------------------ */

typedef struct asker {
    world *w;
    weir_connection_pool *pool;
    unsigned number, total, answered, tries;
    uint64_t question;
    weir_channel *channel; /* that is lent; NULL: none is */
    bool is_waiting;       /* for the answer */
    bool is_over;
    weir_promise *acquire;
    weir_listener on_acquired;
    weir_timer pause;
} asker;

static void ask(asker *self);

static const weir_attr_key asker_key = { .name = "asker" };

static int on_pause(weir_timer *timer)
{
    ask(WEIR_CONTAINER(timer, asker, pause));
    return 0;
}

static void on_pause_cancelled(weir_timer *timer)
{
    WEIR_CONTAINER(timer, asker, pause)->is_over = true;
}

/* With or without the answer: next, or once more. */
static void end_question(asker *self, bool is_answered)
{
    weir_channel *channel = self->channel;
    self->is_waiting = false;
    self->channel = NULL;
    if (channel != NULL) {
        weir_channel_set_attr(channel, &asker_key, NULL);
        int code = weir_connection_pool_give_back(self->pool, channel);
        demand(self->w, code == 0, "a connection could not be given back: %s",
               weir_error_name(code));
        weir_channel_release(channel);
    }
    self->answered += is_answered;
    self->tries = is_answered ? 0 : self->tries + 1;
    if (self->answered == self->total || self->tries == MOST_TRIES) {
        self->is_over = true;
        return;
    }
    self->pause.fire = on_pause;
    self->pause.cancelled = on_pause_cancelled;
    if (weir_timer_schedule(&self->pause, weir_group_at(self->w->clients[0], 0),
                            WEIR_MS(is_answered ? draw_small(self->w, 0, 300) : 500)) < 0)
        self->is_over = true;
}

static void on_acquired(weir_listener *listener, weir_future *future)
{
    asker *self = WEIR_CONTAINER(listener, asker, on_acquired);
    weir_promise *acquire = self->acquire;
    int code = weir_future_code(future);
    self->acquire = NULL;
    if (code == 0) {
        self->channel = weir_channel_retain(weir_future_value(future));
        self->is_waiting = true;
        self->question = weir_sim_random(self->w->sim, UINT64_MAX);
        demand(self->w, weir_channel_attr(self->channel, &asker_key) == NULL,
               "a connection was lent to two at once");
        weir_channel_set_attr(self->channel, &asker_key, self);
        weir_buf *buf = weir_buf_from(&self->question, sizeof self->question);
        if (buf != NULL)
            weir_channel_write_and_flush(self->channel, weir_buf_msg(buf), NULL);
        if (!weir_channel_is_active(self->channel))
            end_question(self, false); /* nobody else would tell */
    } else {
        end_question(self, false);
    }
    weir_promise_release(acquire);
}

static void ask(asker *self)
{
    self->acquire = weir_promise_new(weir_group_at(self->w->clients[0], 0));
    self->on_acquired.done = on_acquired;
    weir_future_listen(weir_promise_future(self->acquire), &self->on_acquired);
    weir_connection_pool_acquire(self->pool, self->acquire);
}

/* Connections -------------------------------------------------------------------------------- */

typedef struct line {
    uint64_t part;
    unsigned part_bytes;
    weir_ctx_timer patience;
} line;

static asker *asker_of(const weir_ctx *ctx)
{
    asker *self = weir_channel_attr(weir_ctx_channel(ctx), &asker_key);
    return self != NULL && self->is_waiting ? self : NULL;
}

static void line_on_read(weir_ctx *ctx, weir_msg *msg)
{
    line *self = weir_ctx_state(ctx);
    world *w = weir_ctx_arg(ctx);
    uint64_t answer;
    while (take_number(weir_buf_from_msg(msg), &self->part, &self->part_bytes, &answer)) {
        asker *who = asker_of(ctx);
        weir_ctx_cancel(ctx, &self->patience);
        if (demand(w, who != NULL, "an answer came that nobody waits for") &&
            demand(w, answer == answer_to(who->question), "asker %u has got another one's answer",
                   who->number))
            end_question(who, true);
    }
    weir_msg_release(msg);
}

static void lose_patience(weir_ctx_timer *timer, weir_ctx *ctx)
{
    world *w = weir_ctx_arg(ctx);
    (void)timer;
    demand(w, !is_sound(w), "a question was not answered for ever");
    weir_ctx_close(ctx, NULL);
}

static void line_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    line *self = weir_ctx_state(ctx);
    self->patience.fire = lose_patience;
    weir_ctx_schedule(ctx, &self->patience, PATIENCE_NS);
    weir_ctx_write(ctx, msg, promise);
}

static void line_on_inactive(weir_ctx *ctx)
{
    asker *who = asker_of(ctx);
    if (who != NULL)
        end_question(who, false);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type line_type = {
    .name = "line",
    .state_size = sizeof(line),
    .on_read = line_on_read,
    .on_inactive = line_on_inactive,
    .on_error = close_on_error,
    .write = line_write,
};

static int init_line(weir_channel *channel, void *arg)
{
    int code = add_probe(arg, channel);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(channel), "line", &line_type, arg);
}

/* The program -------------------------------------------------------------------------------- */

typedef struct party {
    world *w;
    weir_connection_pool *pool;
    size_t max;
    asker askers[MOST_CLIENTS];
    unsigned count;
} party;

static bool are_over(void *arg)
{
    const party *self = arg;
    weir_connection_pool_stats stats;
    weir_connection_pool_get_stats(self->pool, &stats);
    size_t connections = stats.idle + stats.borrowed + stats.connecting + stats.checking +
                         stats.closing;
    demand(self->w, connections <= self->max, "the pool has %zu connections, and may have %zu",
           connections, self->max);
    for (unsigned i = 0; i < self->count; i++) {
        if (!self->askers[i].is_over)
            return false;
    }
    return true;
}

static void end_pool(party *self)
{
    weir_connection_pool_stats stats;
    weir_promise *closed = weir_promise_new(NULL);
    weir_connection_pool_get_stats(self->pool, &stats);
    demand(self->w, stats.borrowed == 0 && stats.waiting == 0,
           "%zu connections are lent, and %zu wait, though nobody needs any", stats.borrowed,
           stats.waiting);
    weir_connection_pool_close(self->pool, closed);
    int code = weir_sim_wait(self->w->sim, weir_promise_future(closed), STALL_NS);
    demand(self->w, code == 0, "the pool was not closed: %s", weir_error_name(code));
    weir_connection_pool_get_stats(self->pool, &stats);
    demand(self->w, stats.created == stats.closed, "%llu connections were made, and %llu closed",
           (unsigned long long)stats.created, (unsigned long long)stats.closed);
    weir_promise_release(closed);
    weir_connection_pool_release(self->pool);
}

static void run(world *w)
{
    service of = { .w = w, .hangs_up = draw(w, 0, 1) ? 0.05 * (double)draw(w, 0, 5) : 0 };
    party all = { .w = w, .count = (unsigned)draw_small(w, 1, MOST_CLIENTS) };
    all.max = (size_t)draw_small(w, 1, 4);
    open_server(w, init_service, &of);
    weir_connection_pool_config config = {
        .client = { .group = w->clients[1], .init = init_line, .arg = w },
        .max = (int)all.max,
        .acquire_timeout_ns = WEIR_MS(draw(w, 0, 1) * 5000),
        .idle_timeout_ns = WEIR_MS(draw(w, 0, 1) * 200),
    };
    int code = weir_connection_pool_new(&all.pool, &config, "server:80", NULL);
    if (!demand(w, code == 0, "no pool: %s", weir_error_name(code)))
        return;
    for (unsigned i = 0; i < all.count; i++) {
        all.askers[i] = (asker){
            .w = w, .pool = all.pool, .number = i, .total = (unsigned)draw_small(w, 1, 20)
        };
        ask(&all.askers[i]);
    }
    run_until(w, are_over, &all);
    for (unsigned i = 0; i < all.count && is_unhurt(w) && w->config.link.refuse == 0; i++)
        demand(w, all.askers[i].answered == all.askers[i].total || config.acquire_timeout_ns > 0,
               "asker %u has got %u of %u answers", i, all.askers[i].answered, all.askers[i].total);
    end_pool(&all);
    end_world(w);
}

const program pool_program = { .name = "pool", .run = run };
