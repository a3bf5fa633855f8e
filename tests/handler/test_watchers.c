/* SPDX-License-Identifier: MIT */
/* The handlers that watch the time, over sockets that are driven by hand, in a time that stands
 * still: relayed bytes, and channels that move. */
#include "transport/sockets.h"

#include <weir/clock.h>
#include <weir/guard.h>
#include <weir/idle.h>
#include <weir/relay.h>
#include <weir/timeout.h>

#define PERIOD_MS 1000

/* A channel that is watched by all of them, and its other end. */
typedef struct watched {
    weir_channel *channel;
    int peer;
    unsigned events[3]; /* by kind */
    int error;
} watched;

typedef struct world {
    weir_virtual_clock clock;
    weir_guard *guard;
    watched left, right;
} world;

static const weir_idle idle = { WEIR_MS(PERIOD_MS), WEIR_MS(PERIOD_MS), WEIR_MS(PERIOD_MS) };
static const weir_timeout timeout = { WEIR_MS(PERIOD_MS) };

static void count_event(weir_ctx *ctx, weir_msg *event)
{
    watched *self = weir_ctx_arg(ctx);
    const weir_idle_event *told = weir_idle_event_from(event);
    if (told != NULL)
        self->events[told->kind]++;
    weir_ctx_fire_event(ctx, event);
}

static void note_error(weir_ctx *ctx, const weir_error *error)
{
    watched *self = weir_ctx_arg(ctx);
    self->error = error->code;
}

static const weir_handler_type listener = {
    .name = "listener",
    .on_event = count_event,
    .on_error = note_error,
};

static void run(void)
{
    for (int quiet = 0; quiet < 3; quiet++) {
        while (weir_group_step(group) > 0 || weir_group_next_ns(group) == 0)
            quiet = 0;
    }
}

static void pass_time(world *self, int64_t left_ns)
{
    int64_t next_ns;
    run();
    while ((next_ns = weir_group_next_ns(group)) > 0 && next_ns <= left_ns) {
        left_ns -= next_ns;
        weir_virtual_clock_advance(&self->clock, next_ns);
        run();
    }
    weir_virtual_clock_advance(&self->clock, left_ns);
    run();
}

static void open_watched(watched *self, const weir_handler_type *type, const void *arg)
{
    self->channel = half_pair(TCP, NULL, &self->peer);
    weir_pipeline *pipeline = weir_channel_pipeline(self->channel);
    if (type != NULL)
        assert_int_equal(weir_pipeline_add_last(pipeline, "watcher", type, (void *)arg), 0);
    else
        assert_int_equal(weir_guard_add((void *)arg, self->channel), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "listener", &listener, self), 0);
    weir_channel_register(self->channel, weir_group_at(group, 0), NULL);
    run();
    assert_true(weir_channel_is_active(self->channel));
}

static void begin(world *self, const weir_handler_type *type, const void *arg)
{
    end_group(group); /* that one has threads */
    weir_virtual_clock_init(&self->clock, WEIR_SECONDS(1000));
    weir_group_config config = { .loops = 2, .is_manual = true, .clock = &self->clock.clock };
    config.io = current->io;
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    weir_guard_config times = { .first_byte_ns = WEIR_OFF, .idle_ns = WEIR_MS(PERIOD_MS) };
    assert_int_equal(weir_guard_new(&self->guard, &times, NULL), 0);
    open_watched(&self->left, type, type != NULL ? arg : self->guard);
    open_watched(&self->right, type, type != NULL ? arg : self->guard);
}

static void end_watched(watched *self)
{
    weir_channel_close(self->channel, NULL);
    run();
    weir_channel_release(self->channel);
    close(self->peer);
}

static void end(world *self)
{
    end_watched(&self->left);
    end_watched(&self->right);
    weir_guard_release(self->guard);
    end_group(group);
    group = NULL;
}

static int relay_there(void *arg)
{
    world *self = arg;
    weir_relay(self->left.channel, self->right.channel, NULL);
    return 0;
}

/* For a while a byte comes now and then, on the left, and goes to the right. */
static void relay_for_a_while(world *self)
{
    weir_executor_execute(weir_group_at(group, 0), relay_there, self);
    run();
    for (int i = 0; i < 40; i++) {
        peer_send(self->left.peer, "x", 1);
        char byte = 0;
        while (recv(self->right.peer, &byte, 1, MSG_DONTWAIT) != 1)
            run();
        pass_time(self, WEIR_MS(100));
    }
}

static void relayed_bytes_are_not_idle(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, &weir_idle_handler, &idle);
    relay_for_a_while(&self);
    assert_int_equal(self.left.events[WEIR_IDLE_READER], 0);
    assert_int_equal(self.left.events[WEIR_IDLE_BOTH], 0);
    assert_true(self.left.events[WEIR_IDLE_WRITER] >= 3);
    assert_int_equal(self.right.events[WEIR_IDLE_WRITER], 0);
    assert_int_equal(self.right.events[WEIR_IDLE_BOTH], 0);
    assert_true(self.right.events[WEIR_IDLE_READER] >= 3);
    pass_time(&self, WEIR_MS(2 * PERIOD_MS));
    assert_true(self.left.events[WEIR_IDLE_BOTH] > 0);
    assert_true(self.right.events[WEIR_IDLE_BOTH] > 0);
    end(&self);
}

static void relayed_bytes_are_in_time(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, &weir_read_timeout_handler, &timeout);
    weir_pipeline_remove(weir_channel_pipeline(self.right.channel), "watcher", NULL);
    relay_for_a_while(&self);
    assert_int_equal(self.left.error, 0);
    assert_true(weir_channel_is_open(self.left.channel));
    pass_time(&self, WEIR_MS(2 * PERIOD_MS));
    assert_int_equal(self.left.error, -ETIMEDOUT);
    end(&self);
}

static void a_relay_is_not_cut_while_bytes_pass(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, NULL, NULL);
    relay_for_a_while(&self);
    assert_int_equal(self.left.error, 0);
    assert_int_equal(self.right.error, 0);
    pass_time(&self, WEIR_MS(2 * PERIOD_MS));
    assert_int_equal(self.left.error, -ETIMEDOUT);
    assert_int_equal(self.right.error, -ETIMEDOUT);
    end(&self);
}

/* The times go on where the channel is. */
static void who_moves_is_watched(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, &weir_idle_handler, &idle);
    for (unsigned i = 0; i < 10; i++) {
        weir_channel_move(self.left.channel, weir_group_at(group, (i + 1) % 2), NULL);
        pass_time(&self, WEIR_MS(PERIOD_MS / 2));
        for (int kind = 0; kind < 3; kind++)
            assert_int_equal(self.left.events[kind], (i + 1) / 2);
    }
    end(&self);
}

static void who_moves_is_guarded(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, NULL, NULL);
    pass_time(&self, WEIR_MS(PERIOD_MS / 2));
    weir_channel_move(self.left.channel, weir_group_at(group, 1), NULL);
    pass_time(&self, WEIR_MS(PERIOD_MS / 2) - 1);
    assert_int_equal(self.left.error, 0);
    pass_time(&self, 1);
    assert_int_equal(self.left.error, -ETIMEDOUT);
    assert_false(weir_channel_is_open(self.left.channel));
    end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loop_cases(relayed_bytes_are_not_idle),
        loop_cases(relayed_bytes_are_in_time),
        loop_cases(a_relay_is_not_cut_while_bytes_pass),
        loop_cases(who_moves_is_watched),
        loop_cases(who_moves_is_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
