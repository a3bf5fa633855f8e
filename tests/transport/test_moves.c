/* SPDX-License-Identifier: MIT */
/* Channels that move between loops, or are registered again, while something else happens to them.
 */
#include "transport/sockets.h"

static weir_executor *loop_at(size_t index)
{
    return weir_group_at(group, index);
}

static void register_on(weir_channel *channel, size_t index)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_register(channel, loop_at(index), promise);
    assert_int_equal(outcome(promise), 0);
    WAIT_FOR(weir_channel_is_active(channel));
}

/* Writability ------------------------------------------------------------------------------------
 */

enum { MUCH = 100000 }; /* above the high water mark */

static void write_much(weir_channel *channel)
{
    weir_channel_write_and_flush(channel, pattern_msg(0, MUCH), NULL);
}

static void end_moved(weir_channel *channel, int peer)
{
    peer_expect_pattern(peer, 0, MUCH);
    WAIT_FOR(weir_channel_is_active(channel));
    assert_ptr_equal(executor_of(channel), loop_at(1));
    end_channel(channel);
    close(peer);
}

/* The channel turns unwritable on no loop, so the loop that it has left fires the event. */
static void register_after_deregister(bool is_busy)
{
    record seen = { 0 };
    blocker busy = { .task = { .run = NULL } };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    register_on(channel, 0);
    weir_promise *left = promise_of(channel), *registered = promise_of(channel);
    weir_channel_deregister(channel, left);
    assert_int_equal(outcome(left), 0);
    if (is_busy)
        block(&busy, loop_at(0));
    weir_channel_register(channel, loop_at(1), registered);
    write_much(channel);
    if (is_busy)
        unblock(&busy);
    assert_int_equal(outcome(registered), 0);
    end_moved(channel, peer);
}

static void register_completes_when_a_write_between_loops_exceeds_the_mark(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        register_after_deregister(i % 2 == 1);
}

static weir_hold write_hold;

static void change_writability(record *self, weir_ctx *ctx, const char *event)
{
    bool by_hold = self->arg != NULL;
    weir_channel *channel = weir_ctx_channel(ctx);
    if (strcmp(event, "unregistered") != 0)
        return;
    self->then = NULL; /* not when it closes */
    if (by_hold)
        weir_channel_set_write_hold(channel, &write_hold, true);
    else
        write_much(channel);
}

typedef void (*leave_fn)(weir_channel *channel, weir_promise *promise);

static void leave_by_move(weir_channel *channel, weir_promise *promise)
{
    weir_channel_move(channel, loop_at(1), promise);
}

static void leave_by_register(weir_channel *channel, weir_promise *promise)
{
    weir_channel_deregister(channel, NULL);
    weir_channel_register(channel, loop_at(1), promise);
}

static void leave_with_change(leave_fn leave, bool by_hold)
{
    record seen = { .then = change_writability, .arg = by_hold ? &write_hold : NULL };
    int peer;
    fresh_hold(&write_hold);
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    register_on(channel, 0);
    weir_promise *promise = promise_of(channel);
    leave(channel, promise);
    assert_int_equal(outcome(promise), 0);
    WAIT_FOR(story_has(&seen, "unwritable"));
    if (by_hold) {
        weir_channel_set_write_hold(channel, &write_hold, false);
        write_much(channel);
    }
    end_moved(channel, peer);
}

static void move_completes_when_on_unregistered_changes_writability(void **state)
{
    (void)state;
    for (int by_hold = 0; by_hold < 2; by_hold++) {
        leave_with_change(leave_by_move, by_hold);
        leave_with_change(leave_by_register, by_hold);
    }
}

/* Resets -----------------------------------------------------------------------------------------
 */

/* The kernel reports two events at once: a message, whose handler moves the other channel, and then
 * the reset of that one. */
typedef struct neighbours {
    weir_channel *moved, *mover;
    int moved_peer, mover_peer;
    record moved_seen, mover_seen;
    weir_promise *promise; /* of the move */
} neighbours;

static void move_neighbour(record *self, weir_ctx *ctx, const char *event)
{
    neighbours *both = self->arg;
    (void)ctx;
    if (strcmp(event, "read") == 0 && both->promise != NULL)
        weir_channel_move(both->moved, loop_at(1), both->promise);
}

/* Has received something, so that its loop waits for more. */
static weir_channel *open_receiving(record *seen, int *peer)
{
    weir_channel *channel = half_pair(TCP, seen, peer);
    set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1); /* EOF would be an event */
    register_on(channel, 0);
    peer_send(*peer, "half of", 7);
    WAIT_FOR(atomic_load(&seen->bytes) == 7);
    return channel;
}

static void open_neighbours(neighbours *self)
{
    *self = (neighbours){ .mover_seen = { .then = move_neighbour, .arg = self } };
    self->mover = open_receiving(&self->mover_seen, &self->mover_peer);
    self->moved = open_receiving(&self->moved_seen, &self->moved_peer);
}

static void reset_and_move(neighbours *self)
{
    blocker busy;
    block(&busy, loop_at(0));
    self->promise = promise_of(self->moved);
    peer_send(self->mover_peer, "go", 2);
    peer_reset(self->moved_peer);
    unblock(&busy);
}

/* Whether the move began before the error was reported. */
static bool reset_during_move(void)
{
    neighbours self;
    open_neighbours(&self);
    reset_and_move(&self);
    int moved = outcome(self.promise);
    wait_for_close(self.moved);
    assert_int_equal(atomic_load(&self.moved_seen.error), -ECONNRESET);
    assert_int_equal(atomic_load(&self.moved_seen.errors), 1);
    assert_int_equal(atomic_load(&self.moved_seen.events), 0);
    assert_int_equal(atomic_load(&self.moved_seen.inactives), 1);
    weir_channel_release(self.moved);
    end_channel(self.mover);
    close(self.mover_peer);
    return moved == 0;
}

static void reset_during_move_is_reported_as_an_error(void **state)
{
    (void)state;
    int moves = 0;
    for (int i = 0; i < 10; i++)
        moves += reset_during_move();
    assert_true(moves > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loop_cases(register_completes_when_a_write_between_loops_exceeds_the_mark),
        loop_cases(move_completes_when_on_unregistered_changes_writability),
        loop_cases(reset_during_move_is_reported_as_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
