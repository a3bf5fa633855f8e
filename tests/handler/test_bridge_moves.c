/* SPDX-License-Identifier: MIT */
/* Bridged channels that move to other loops, or leave theirs. */
#include "handler/bridges.h"

/* Takes a channel off its loop, and puts it on one of the group, which may be the same. */
static void leave_loop(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_deregister(channel, promise);
    assert_int_equal(outcome(promise), 0);
}

/* On another loop a handler is added later than the call returns. */
static void add_bridge(couple *both)
{
    assert_int_equal(bridge_couple(both), 0);
    settle(executor_of(both->back));
}

static void begin_move(weir_channel *channel, size_t loop, weir_promise *promise)
{
    if (is_blocking()) {
        leave_loop(channel);
        put_on_loop(channel, promise);
    } else {
        weir_channel_move(channel, weir_group_at(group, loop % 2), promise);
    }
}

static void move_to(weir_channel *channel, size_t loop)
{
    weir_promise *promise = promise_of(channel);
    begin_move(channel, loop, promise);
    assert_int_equal(outcome(promise), 0);
}

/* Moves one of the two, or both at once. */
static void move_some(couple *both, size_t i)
{
    weir_promise *moved[] = { promise_of(both->front), promise_of(both->back) };
    if (i % 3 != 1)
        begin_move(both->front, i / 2, moved[0]);
    if (i % 3 != 0)
        begin_move(both->back, i / 5, moved[1]);
    if (i % 3 == 1)
        weir_promise_set(moved[0], 0);
    if (i % 3 == 0)
        weir_promise_set(moved[1], 0);
    assert_int_equal(outcome(moved[0]), 0);
    assert_int_equal(outcome(moved[1]), 0);
}

/* A channel that moves to the loop that writes to it. */
typedef struct newcomer {
    record record;
    weir_channel *channel;
    weir_loop *to;
    atomic_bool has_left, has_written;
} newcomer;

static void wait_for_write(record *seen, weir_ctx *ctx, const char *event)
{
    newcomer *self = seen->arg;
    (void)ctx;
    if (strcmp(event, "unregistered") != 0 || atomic_load(&self->has_left))
        return;
    atomic_store(&self->has_left, true);
    WAIT_FOR(atomic_load(&self->has_written));
}

static int run_two_writes(void *arg)
{
    newcomer *self = arg;
    WAIT_FOR(atomic_load(&self->has_left));
    weir_channel_write_and_flush(self->channel, text_msg("first "), NULL);
    atomic_store(&self->has_written, true);
    WAIT_FOR(weir_channel_loop(self->channel) == self->to);
    weir_channel_write_and_flush(self->channel, text_msg("second"), NULL);
    return 0;
}

/* The first write is sent to the loop that the channel leaves, the second one is on its own. */
static void writes_of_a_loop_keep_their_order_when_the_channel_moves_to_it(void **state)
{
    (void)state;
    int peer;
    static newcomer self; /* the channel outlives a case that fails */
    self = (newcomer){ .to = weir_group_loop_at(group, 1) };
    self.record = (record){ .then = wait_for_write, .arg = &self };
    self.channel = half_pair(TCP, &self.record, &peer);
    register_half(self.channel, 0);
    weir_channel_move(self.channel, weir_loop_executor(self.to), NULL);
    call_on(weir_loop_executor(self.to), run_two_writes, &self);
    peer_expect_text(peer, "first second");
    end_channel(self.channel);
    close(peer);
}

#define PART_BYTES ((size_t)40000)

static void bytes_in_flight_arrive_in_order_during_moves(void **state)
{
    (void)state;
    couple self = { .config.relay_after_bytes = WEIR_OFF };
    open_couple(&self);
    add_bridge(&self);
    size_t at = 0;
    for (size_t i = 0; i < 60; i++, at += PART_BYTES) {
        peer_send_pattern(self.client, at, PART_BYTES);
        peer_send_pattern(self.server, at, PART_BYTES);
        move_some(&self, i);
        peer_expect_pattern(self.server, at, PART_BYTES);
        peer_expect_pattern(self.client, at, PART_BYTES);
    }
    end_streams(self.client, self.server);
    expect_complete(&self.end, at, at);
    end_couple(&self);
}

/* The hold on the reads of one channel is set and released while either of them moves. */
static void full_bridge_loses_nothing_during_moves(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { .config.relay_after_bytes = WEIR_OFF };
        open_couple(&self);
        add_bridge(&self);
        int from = is_back ? self.server : self.client, to = is_back ? self.client : self.server;
        weir_channel *reads = is_back ? self.back : self.front;
        size_t sent = 0, got = 0;
        for (size_t i = 0; i < 12; i++) {
            sent = send_until_stuck(from, sent, sent + 16 * MIB, reads);
            move_some(&self, i);
            peer_expect_pattern(to, got, (sent - got) / 2);
            got += (sent - got) / 2;
            move_some(&self, i + 7);
        }
        shutdown(from, SHUT_WR);
        peer_expect_pattern(to, got, sent - got);
        peer_expect_eof(to);
        shutdown(to, SHUT_WR);
        peer_expect_eof(from);
        expect_complete(&self.end, is_back ? 0 : sent, is_back ? sent : 0);
        end_couple(&self);
    }
}

/* A relay that is about to begin does or does not, and the move happens before or after it. */
static void move_when_the_relay_begins_loses_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 40; i++) {
        couple self = { .config.relay_after_bytes = PART_BYTES };
        open_couple(&self);
        add_bridge(&self);
        weir_channel *moves = i % 2 == 0 ? self.front : self.back;
        weir_promise *moved = promise_of(moves);
        peer_send_pattern(self.client, 0, PART_BYTES + i);
        if (i % 4 < 2)
            peer_send_pattern(self.server, 0, 1000);
        if (i % 8 < 4)
            peer_expect_pattern(self.server, 0, PART_BYTES + i);
        begin_move(moves, i / 2 % 2 == 0, moved);
        if (i % 8 >= 4)
            peer_expect_pattern(self.server, 0, PART_BYTES + i);
        peer_send_pattern(self.client, PART_BYTES + i, PART_BYTES);
        peer_expect_pattern(self.server, PART_BYTES + i, PART_BYTES);
        shutdown(self.client, SHUT_WR);
        peer_expect_eof(self.server);
        if (i % 4 >= 2)
            peer_send_pattern(self.server, 0, 1000);
        peer_expect_pattern(self.client, 0, 1000);
        shutdown(self.server, SHUT_WR);
        peer_expect_eof(self.client);
        expect_complete(&self.end, 2 * PART_BYTES + i, 1000);
        int code = outcome(moved);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        end_couple(&self);
    }
}

/* The move waits for the end of both relays; the bytes do not. */
static void move_waits_while_the_kernel_relays_both_directions(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { .config.relay_after_bytes = 1 };
        open_couple(&self);
        add_bridge(&self);
        pump(self.client, self.server, 1000, 1000);
        WAIT_FOR(is_relayed(self.front) && is_relayed(self.back));
        weir_channel *moves = is_back ? self.back : self.front;
        weir_promise *moved = promise_of(moves);
        weir_channel_move(moves, weir_group_at(group, 1), moved);
        peer_send_pattern(self.client, 0, PART_BYTES);
        peer_send_pattern(self.server, 0, PART_BYTES);
        peer_expect_pattern(self.server, 0, PART_BYTES);
        peer_expect_pattern(self.client, 0, PART_BYTES);
        assert_false(weir_future_is_done(weir_promise_future(moved)));
        pump_to_end(self.client, self.server, MIB, MIB);
        expect_complete(&self.end, 1000 + PART_BYTES + MIB, 1000 + PART_BYTES + MIB);
        int code = outcome(moved);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        end_couple(&self);
    }
}

/* The answer to a request that is relayed: its channel leaves the loop when the request ends. */
static void move_while_one_direction_is_relayed_completes_both(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { .config.relay_after_bytes = 1000 };
        open_couple(&self);
        add_bridge(&self);
        peer_send_pattern(self.client, 0, 1000);
        peer_expect_pattern(self.server, 0, 1000);
        WAIT_FOR(is_relayed(self.front));
        weir_channel *moves = is_back ? self.back : self.front;
        weir_promise *moved = promise_of(moves);
        weir_channel_move(moves, weir_group_at(group, 1), moved);
        peer_send_pattern(self.server, 0, 999);
        peer_send_pattern(self.client, 1000, PART_BYTES);
        peer_expect_pattern(self.server, 1000, PART_BYTES);
        shutdown(self.client, SHUT_WR);
        peer_expect_eof(self.server);
        peer_expect_pattern(self.client, 0, 999);
        peer_send_pattern(self.server, 999, MIB);
        peer_expect_pattern(self.client, 999, MIB);
        shutdown(self.server, SHUT_WR);
        peer_expect_eof(self.client);
        expect_complete(&self.end, 1000 + PART_BYTES, 999 + MIB);
        assert_int_equal(outcome(moved), 0);
        end_couple(&self);
    }
}

/* Two channels that come to the same loop may be relayed, and others may not. */
static void kernel_relays_when_both_channels_are_on_one_loop(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { .config.relay_after_bytes = PART_BYTES };
        open_couple(&self);
        add_bridge(&self);
        pump(self.client, self.server, 1000, 1000);
        move_to(is_back ? self.back : self.front, is_apart ? !is_back : 1);
        bool is_together = weir_channel_loop(self.front) == weir_channel_loop(self.back);
        assert_int_equal(is_together, is_apart);
        peer_send_pattern(self.client, 1000, PART_BYTES);
        peer_expect_pattern(self.server, 1000, PART_BYTES);
        settle(executor_of(self.front));
        if (is_together)
            WAIT_FOR(is_relayed(self.front));
        assert_int_equal(is_relayed(self.front), is_together);
        peer_send_pattern(self.client, 1000 + PART_BYTES, PART_BYTES);
        peer_expect_pattern(self.server, 1000 + PART_BYTES, PART_BYTES);
        end_streams(self.client, self.server);
        expect_complete(&self.end, 1000 + 2 * PART_BYTES, 1000);
        end_couple(&self);
    }
}

/* What is written to it waits, and only so much. */
static void channel_without_a_loop_holds_up_the_other(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { .config.relay_after_bytes = WEIR_OFF };
        open_couple(&self);
        add_bridge(&self);
        pump(self.client, self.server, 1000, 1000);
        int from = is_back ? self.client : self.server, to = is_back ? self.server : self.client;
        weir_channel *leaves = is_back ? self.back : self.front;
        weir_channel *reads = is_back ? self.front : self.back;
        leave_loop(leaves);
        size_t sent = send_until_stuck(from, 1000, 64 * MIB, reads);
        assert_true(sent < 64 * MIB);
        assert_in_range(stats_of_channel(reads).bytes_in, 1000, 4 * MIB);
        assert_int_equal(peer_drain(to), 0);
        register_half(leaves, 1);
        peer_expect_pattern(to, 1000, sent - 1000);
        end_streams(self.client, self.server);
        expect_complete(&self.end, is_back ? sent : 1000, is_back ? 1000 : sent);
        end_couple(&self);
    }
}

/* EOF and resets reach a channel that is on no loop when they have to. */
static void end_of_one_channel_reaches_one_without_a_loop(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        for (int is_reset = 0; is_reset < 2; is_reset++) {
            couple self = { 0 };
            open_couple(&self);
            add_bridge(&self);
            pump(self.client, self.server, 1000, 1000);
            int *ends = is_back ? &self.client : &self.server;
            int *other = is_back ? &self.server : &self.client;
            weir_channel *leaves = is_back ? self.back : self.front;
            weir_channel *closes = is_back ? self.front : self.back;
            leave_loop(leaves);
            if (is_reset)
                reset_peer(ends);
            else
                peer_send(*ends, "bye", 3), shutdown(*ends, SHUT_WR);
            WAIT_FOR(is_reset ? !weir_channel_is_open(closes)
                              : weir_channel_is_input_closed(closes));
            if (!is_reset || weir_channel_is_open(leaves))
                weir_channel_register(leaves, executor_of(closes), NULL);
            if (is_reset)
                peer_expect_reset(*other);
            else
                peer_expect_text(*other, "bye"), peer_expect_eof(*other);
            end_couple(&self);
            assert_int_equal(atomic_load(&self.end.ends), 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        together_cases(writes_of_a_loop_keep_their_order_when_the_channel_moves_to_it),
        bridge_cases(bytes_in_flight_arrive_in_order_during_moves),
        bridge_cases(full_bridge_loses_nothing_during_moves),
        bridge_cases(move_when_the_relay_begins_loses_nothing),
        together_cases(move_waits_while_the_kernel_relays_both_directions),
        together_cases(move_while_one_direction_is_relayed_completes_both),
        loops_cases(kernel_relays_when_both_channels_are_on_one_loop),
        bridge_cases(channel_without_a_loop_holds_up_the_other),
        loops_cases(end_of_one_channel_reaches_one_without_a_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
