/* SPDX-License-Identifier: MIT */
/* Fuzzes pipelines: handlers that do, inside any of their callbacks, whatever the input says, and
 * what must hold of their lives, their messages and their promises all the same. */
#include "fuzz.h"

#include <weir/embedded.h>
#include <weir/weir.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_HANDLERS = 64,
    MOST_NAMES = 12, /* few, so that names are met again */
    MOST_PROMISES = 256,
    MOST_STEPS = 400,
    MOST_DEPTH = 6, /* of actions inside actions */
    FAULT_BIT = 0x80,
};

/* What is known of one handler that was added. */
typedef struct life {
    unsigned added, removed;
    unsigned registered, active, inactive, unregistered;
} life;

typedef struct outcome {
    weir_promise *promise;
    unsigned told;
    weir_listener listener;
} outcome;

typedef struct world {
    weir_hold holds[3];
    const uint8_t *at, *end;
    weir_embedded *embedded;
    weir_pipeline *pipeline;
    weir_channel *channel;
    life lives[MOST_HANDLERS];
    unsigned life_count;
    outcome outcomes[MOST_PROMISES];
    unsigned outcome_count;
    unsigned steps, depth;
    unsigned fault_in; /* the n-th allocation from now fails; 0: none does */
} world;

static world w;

/* Any of them may be seen as the handler's state. */
typedef struct state {
    life *self;
    weir_ctx_timer timer;
} state;

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "operation %u: does not hold: %s\n", w.steps, #condition);             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static uint8_t take(void)
{
    return w.at < w.end ? *w.at++ : 0;
}

static int on_fault(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)call;
    (void)length;
    return w.fault_in > 0 && --w.fault_in == 0 ? -ENOMEM : 0;
}

/* Messages and promises ------------------------------------------------------------------------ */

static weir_msg *message(void)
{
    weir_buf *buf = weir_buf_from("12345678", 1 + take() % 8);
    return buf != NULL ? &buf->msg : NULL;
}

static void on_outcome(weir_listener *listener, weir_future *future)
{
    outcome *self = WEIR_CONTAINER(listener, outcome, listener);
    MUST(weir_future_is_done(future));
    self->told++;
    MUST(self->told == 1);
}

/* A promise whose end is checked; sometimes none, and none without memory. */
static weir_promise *promise(void)
{
    if (take() % 2 == 0 || w.outcome_count == MOST_PROMISES)
        return NULL;
    weir_promise *made = weir_channel_promise(w.channel);
    if (made == NULL)
        return NULL;
    outcome *self = &w.outcomes[w.outcome_count++];
    *self = (outcome){ .promise = made, .listener.done = on_outcome };
    weir_future_listen(weir_promise_future(made), &self->listener);
    return made;
}

/* Handlers ------------------------------------------------------------------------------------- */

static const weir_handler_type types[];
static void act(weir_ctx *ctx);

static const char *name_of(uint8_t which)
{
    static const char *const names[MOST_NAMES] = { "a", "b", "c", "d", "e", "f",
                                                   "g", "h", "i", "j", "k", "l" };
    return names[which % MOST_NAMES];
}

static state *state_of(weir_ctx *ctx)
{
    return weir_ctx_state(ctx);
}

/* Every callback but `added` and `removed` comes between the two. */
static void check_alive(weir_ctx *ctx)
{
    MUST(state_of(ctx)->self != NULL);
    MUST(state_of(ctx)->self->added == 1 && state_of(ctx)->self->removed == 0);
}

static void on_added(weir_ctx *ctx)
{
    if (w.life_count == MOST_HANDLERS) {
        weir_ctx_fail(ctx, WEIR_ELIMIT, "enough");
        return;
    }
    state_of(ctx)->self = &w.lives[w.life_count++];
    state_of(ctx)->self->added++;
    act(ctx);
    if (take() % 16 == 15)
        weir_ctx_fail(ctx, -EPROTO, "does not want to");
}

static void on_removed(weir_ctx *ctx)
{
    life *self = state_of(ctx)->self;
    if (self == NULL)
        return; /* one too many */
    self->removed++;
    MUST(self->added == 1 && self->removed == 1);
    act(ctx);
}

static void on_registered(weir_ctx *ctx)
{
    check_alive(ctx);
    MUST(++state_of(ctx)->self->registered == 1);
    act(ctx);
    weir_ctx_fire_registered(ctx);
}

static void on_active(weir_ctx *ctx)
{
    check_alive(ctx);
    MUST(++state_of(ctx)->self->active == 1);
    act(ctx);
    weir_ctx_fire_active(ctx);
}

static void on_inactive(weir_ctx *ctx)
{
    check_alive(ctx);
    MUST(++state_of(ctx)->self->inactive == 1);
    MUST(state_of(ctx)->self->unregistered == 0);
    act(ctx);
    weir_ctx_fire_inactive(ctx);
}

static void on_unregistered(weir_ctx *ctx)
{
    check_alive(ctx);
    MUST(++state_of(ctx)->self->unregistered == 1);
    act(ctx);
    weir_ctx_fire_unregistered(ctx);
}

static void on_read(weir_ctx *ctx, weir_msg *msg)
{
    check_alive(ctx);
    switch (take() % 6) {
    case 0:
        weir_msg_release(msg);
        act(ctx);
        return;
    case 1:
        weir_ctx_write(ctx, msg, promise());
        act(ctx);
        return;
    case 2:
        weir_ctx_fire_read(ctx, weir_msg_retain(msg));
        weir_ctx_fire_read(ctx, msg);
        return;
    default:
        act(ctx);
        weir_ctx_fire_read(ctx, msg);
        act(ctx);
    }
}

static void on_read_complete(weir_ctx *ctx)
{
    check_alive(ctx);
    act(ctx);
    weir_ctx_fire_read_complete(ctx);
}

static void on_event(weir_ctx *ctx, weir_msg *event)
{
    check_alive(ctx);
    act(ctx);
    weir_ctx_fire_event(ctx, event);
}

static void on_writability(weir_ctx *ctx)
{
    check_alive(ctx);
    act(ctx);
    weir_ctx_fire_writability(ctx);
}

static void on_error(weir_ctx *ctx, const weir_error *error)
{
    check_alive(ctx);
    act(ctx);
    if (take() % 2 == 0)
        weir_ctx_fire_error(ctx, error);
}

static void on_write(weir_ctx *ctx, weir_msg *msg, weir_promise *done)
{
    check_alive(ctx);
    act(ctx);
    weir_ctx_write(ctx, msg, done);
    act(ctx);
}

static void on_flush(weir_ctx *ctx)
{
    check_alive(ctx);
    act(ctx);
    weir_ctx_flush(ctx);
}

static void on_close(weir_ctx *ctx, weir_promise *done)
{
    check_alive(ctx);
    act(ctx);
    weir_ctx_close(ctx, done);
}

static void read_outbound(weir_ctx *ctx)
{
    check_alive(ctx);
    act(ctx);
    weir_ctx_read(ctx);
}

static void on_timer(weir_ctx_timer *timer, weir_ctx *ctx)
{
    (void)timer;
    check_alive(ctx);
    act(ctx);
}

/* One that takes part in everything, in one direction only, and in next to nothing. */
static const weir_handler_type types[] = {
    {
        .name = "all",
        .state_size = sizeof(state),
        .added = on_added,
        .removed = on_removed,
        .on_registered = on_registered,
        .on_active = on_active,
        .on_read = on_read,
        .on_read_complete = on_read_complete,
        .on_event = on_event,
        .on_writability = on_writability,
        .on_inactive = on_inactive,
        .on_unregistered = on_unregistered,
        .on_error = on_error,
        .read = read_outbound,
        .write = on_write,
        .flush = on_flush,
        .close = on_close,
    },
    {
        .name = "in",
        .state_size = sizeof(state),
        .added = on_added,
        .removed = on_removed,
        .on_read = on_read,
        .on_read_complete = on_read_complete,
        .on_inactive = on_inactive,
        .on_error = on_error,
    },
    {
        .name = "out",
        .state_size = sizeof(state),
        .added = on_added,
        .removed = on_removed,
        .write = on_write,
        .flush = on_flush,
        .close = on_close,
    },
    { .name = "none", .state_size = sizeof(state), .added = on_added, .removed = on_removed },
};
#define TYPE_COUNT (sizeof types / sizeof *types)

/* Actions -------------------------------------------------------------------------------------- */

static void change_pipeline(uint8_t what)
{
    const char *name = name_of(take()), *base = name_of(take());
    const weir_handler_type *type = &types[take() % TYPE_COUNT];
    switch (what % 6) {
    case 0:
        weir_pipeline_add_first(w.pipeline, name, type, NULL);
        break;
    case 1:
        weir_pipeline_add_last(w.pipeline, name, type, NULL);
        break;
    case 2:
        weir_pipeline_add_before(w.pipeline, base, name, type, NULL);
        break;
    case 3:
        weir_pipeline_add_after(w.pipeline, base, name, type, NULL);
        break;
    case 4:
        weir_pipeline_remove(w.pipeline, name, NULL);
        break;
    default:
        weir_pipeline_replace(w.pipeline, base, name, type, NULL);
        break;
    }
}

/* What a handler does from its place. */
static void act_in_place(weir_ctx *ctx, uint8_t what)
{
    weir_msg *msg;
    switch (what % 8) {
    case 0:
        if ((msg = message()) != NULL)
            weir_ctx_fire_read(ctx, msg);
        break;
    case 1:
        if ((msg = message()) != NULL)
            weir_ctx_write(ctx, msg, promise());
        break;
    case 2:
        weir_ctx_flush(ctx);
        break;
    case 3:
        weir_ctx_close(ctx, promise());
        break;
    case 4:
        weir_ctx_fail(ctx, -EPROTO, "because");
        break;
    case 5:
        weir_ctx_remove(ctx);
        break;
    case 6:
        if (state_of(ctx)->self != NULL && state_of(ctx)->self->removed == 0) {
            state_of(ctx)->timer.fire = on_timer;
            weir_ctx_schedule(ctx, &state_of(ctx)->timer, WEIR_MS(take() % 4));
        }
        break;
    default:
        weir_ctx_shutdown(ctx, promise());
        break;
    }
}

/* What anybody does. */
static void act_on_channel(uint8_t what)
{
    weir_msg *msg;
    switch (what % 9) {
    case 0:
        if ((msg = message()) != NULL)
            weir_channel_write(w.channel, msg, promise());
        break;
    case 1:
        if ((msg = message()) != NULL)
            weir_channel_write_and_flush(w.channel, msg, promise());
        break;
    case 2:
        weir_channel_flush(w.channel);
        break;
    case 3:
        weir_channel_read(w.channel);
        break;
    case 4:
        weir_channel_close(w.channel, promise());
        break;
    case 5:
        weir_channel_set_option(w.channel, WEIR_OPTION_AUTO_READ, take() % 2, NULL);
        break;
    case 6:
        weir_channel_set_write_hold(w.channel, &w.holds[take() % 3], take() % 2);
        break;
    case 7:
        if ((msg = message()) != NULL)
            weir_pipeline_fire_event(w.pipeline, msg);
        break;
    default:
        weir_channel_set_water_marks(w.channel, take() % 16, 16 + take() % 16);
        break;
    }
}

/* Inside a callback; the context is NULL outside of all. */
static void act(weir_ctx *ctx)
{
    if (w.depth >= MOST_DEPTH || w.steps >= MOST_STEPS || w.at == w.end)
        return;
    uint8_t what = take();
    w.steps++;
    w.depth++;
    if (what & FAULT_BIT)
        w.fault_in = 1 + take() % 8;
    what &= 0x7f;
    if (fuzz_is_tracing)
        fprintf(stderr, "%u: %*s%s %u\n", w.steps, (int)w.depth, "",
                ctx != NULL ? weir_ctx_type(ctx)->name : "outside", what);
    if (what < 40)
        change_pipeline(what);
    else if (what < 80 && ctx != NULL)
        act_in_place(ctx, what);
    else if (what < 120)
        act_on_channel(what);
    w.depth--;
}

/* What only the test can do, between all callbacks. */
static void act_outside(void)
{
    weir_msg *msg;
    switch (take() % 10) {
    case 0:
    case 1:
        if ((msg = message()) != NULL)
            weir_embedded_write_inbound(w.embedded, msg);
        break;
    case 2:
        if ((msg = message()) != NULL)
            weir_embedded_write_outbound(w.embedded, msg);
        break;
    case 3:
        weir_embedded_flush(w.embedded);
        break;
    case 4:
        weir_embedded_accept(w.embedded, take() % 4);
        break;
    case 5:
        weir_embedded_advance(w.embedded, WEIR_MS(take() % 8));
        break;
    case 6:
        weir_embedded_fail_sends(w.embedded, take() % 8 == 0 ? -ECONNRESET : 0);
        break;
    case 7:
        weir_embedded_end_inbound(w.embedded, take() % 2 == 0 ? 0 : -ECONNRESET);
        break;
    default:
        act(NULL);
        weir_embedded_run(w.embedded);
        break;
    }
    w.steps++;
    weir_embedded_take_error(w.embedded, NULL);
}

/* One input ------------------------------------------------------------------------------------ */

static uint64_t live_allocations(void)
{
    weir_allocator_stats stats;
    weir_pool_trim();
    weir_pool_trim();
    weir_allocator_get_stats(&stats);
    return stats.live;
}

static void check_ends(void)
{
    for (unsigned i = 0; i < w.life_count; i++) {
        const life *one = &w.lives[i];
        MUST(one->added == 1 && one->removed == 1);
        MUST(one->inactive <= 1 && one->unregistered <= 1);
    }
    for (unsigned i = 0; i < w.outcome_count; i++) {
        MUST(w.outcomes[i].told == 1);
        weir_promise_release(w.outcomes[i].promise);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t live_before = live_allocations();
    memset(&w, 0, sizeof w);
    if (size == 0 || weir_embedded_new(&w.embedded, NULL, NULL) < 0)
        return 0;
    w.at = data;
    w.end = data + size;
    w.channel = weir_channel_retain(weir_embedded_channel(w.embedded));
    w.pipeline = weir_embedded_pipeline(w.embedded);
    weir_fault_set(on_fault, NULL);
    while (w.at < w.end && w.steps < MOST_STEPS)
        act_outside();
    w.at = w.end; /* from here on they do nothing */
    weir_fault_set(NULL, NULL);
    w.fault_in = 0;
    weir_embedded_accept(w.embedded, SIZE_MAX);
    weir_embedded_close(w.embedded);
    weir_embedded_run(w.embedded);
    MUST(!weir_channel_is_open(w.channel));
    weir_embedded_free(w.embedded);
    weir_channel_release(w.channel);
    check_ends();
    MUST(live_allocations() == live_before);
    return 0;
}
