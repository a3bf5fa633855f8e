/* SPDX-License-Identifier: MIT */
/* Removing the handler "bridge": the other channel is reset, its own one goes on. */
#include "handler/bridges.h"

static void remove_bridge(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    assert_int_equal(weir_pipeline_remove(weir_channel_pipeline(channel), "bridge", promise), 0);
    assert_int_equal(outcome(promise), 0);
}

/* `sent` bytes were sent until now: the channel reads them, and more. */
static void expect_readable(weir_channel *channel, int peer, uint64_t sent)
{
    WAIT_FOR(stats_of_channel(channel).bytes_in == sent);
    peer_send_pattern(peer, sent, 1000);
    WAIT_FOR(stats_of_channel(channel).bytes_in == sent + 1000);
    assert_true(weir_channel_is_open(channel));
}

/* on_end was called once, though one channel is still open. */
static void expect_left(ending *self)
{
    WAIT_FOR(atomic_load(&self->ends) > 0);
    assert_int_equal(atomic_load(&self->ends), 1);
    assert_int_equal(self->error.code, WEIR_ECLOSED);
}

/* Bridged, also where the back channel gets its handler on a loop of its own. */
static void open_bridged(couple *self, int64_t relay_after_bytes)
{
    *self = (couple){ .config.relay_after_bytes = relay_after_bytes };
    open_couple(self);
    assert_int_equal(bridge_couple(self), 0);
    settle(executor_of(self->back));
}

/* More than the peer takes, so that the channel is not writable and a relay cannot begin. */
static void fill(weir_channel *channel)
{
    set_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 64 * MIB); /* a batch of reads follows */
    weir_channel_write_and_flush(channel, pattern_msg(0, 15 * MIB), NULL);
    WAIT_FOR(!weir_channel_is_writable(channel));
}

static void remove_while_held(int64_t relay_after_bytes, bool is_back)
{
    couple self;
    open_bridged(&self, relay_after_bytes);
    weir_channel *from = is_back ? self.back : self.front;
    int peer = is_back ? self.server : self.client;
    fill(is_back ? self.front : self.back);
    size_t sent = send_until_stuck(peer, 0, 64 * MIB, from);
    assert_true(stats_of_channel(from).bytes_in < sent);
    remove_bridge(from);
    expect_readable(from, peer, sent);
    peer_expect_reset(is_back ? self.client : self.server);
    expect_left(&self.end);
    end_couple(&self);
    assert_int_equal(atomic_load(&self.end.ends), 1);
}

static void channel_that_was_held_is_read_without_the_bridge(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        remove_while_held(relay_limits[i], false);
        remove_while_held(relay_limits[i], true);
    }
}

static void channel_that_was_relayed_is_read_without_the_bridge(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self;
        open_bridged(&self, 1);
        weir_channel *from = is_back ? self.back : self.front;
        int peer = is_back ? self.server : self.client;
        pump(self.client, self.server, 100000, 100000);
        WAIT_FOR(!may_be_relayed() || is_relayed(from));
        remove_bridge(from);
        peer_expect_reset(is_back ? self.client : self.server);
        expect_left(&self.end);
        expect_readable(from, peer, 100000);
        end_couple(&self);
        assert_int_equal(atomic_load(&self.end.ends), 1);
    }
}

/* The back channel is connected, and held until the front channel has joined: its loop is busy. */
static void back_channel_that_was_held_until_the_join_is_read_without_the_bridge(void **state)
{
    (void)state;
    blocker busy;
    proxy self = { .is_late = true };
    open_proxy(&self);
    WAIT_FOR(atomic_load(&self.resolver.promise) != NULL);
    block(&busy, executor_of(self.front));
    answer_upstream(&self);
    WAIT_FOR(atomic_load(&self.back) != NULL && weir_channel_is_active(self.back));
    remove_bridge(self.back);
    peer_send_pattern(self.server, 0, 1000);
    expect_readable(self.back, self.server, 1000);
    unblock(&busy);
    peer_expect_end(self.client);
    expect_left(&self.end);
    end_proxy(&self);
}

static void front_channel_goes_on_when_the_bridge_is_removed_during_connect(void **state)
{
    (void)state;
    proxy self = { .is_late = true, .upstream.connect_timeout_ns = WEIR_OFF };
    open_proxy(&self);
    size_t sent = send_until_stuck(self.client, 0, 64 * MIB, self.front);
    assert_true(stats_of_channel(self.front).bytes_in < sent);
    WAIT_FOR(atomic_load(&self.resolver.promise) != NULL);
    remove_bridge(self.front);
    expect_readable(self.front, self.client, sent);
    answer(&self.resolver, -ECANCELED, NULL);
    weir_channel_close(self.front, NULL);
    expect_left(&self.end);
    end_proxy(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bridge_cases(channel_that_was_held_is_read_without_the_bridge),
        bridge_cases(channel_that_was_relayed_is_read_without_the_bridge),
        bridge_cases(front_channel_goes_on_when_the_bridge_is_removed_during_connect),
        apart_cases(back_channel_that_was_held_until_the_join_is_read_without_the_bridge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
