/* SPDX-License-Identifier: MIT */
/* Resetting channels of every kind, and channels whose handlers would wait. */
#include "transport/sockets.h"

#include <weir/datagram.h>
#include <weir/embedded.h>
#include <weir/relay.h>

/* Other kinds ------------------------------------------------------------------------------------
 */

/* Its children go on, and nobody can connect any more. */
static void reset_of_a_listener_closes_it_alone(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        server *self = calloc(1, sizeof *self);
        assert_non_null(self);
        self->is_echo = true;
        new_server(self, stream);
        start_server(self);
        int peer = peer_connect(&self->address);
        WAIT_FOR(atomic_load(&self->count) == 1);
        weir_channel_reset(self->listener);
        wait_for_close(self->listener);
        expect_end_events(&self->record, 1, 1);
        size_t length;
        const struct sockaddr *to = weir_address_sockaddr(&self->address, &length);
        int late = peer_socket(&self->address);
        assert_int_equal(connect(late, to, (socklen_t)length), -1);
        close(late);
        peer_send(peer, "still here", 10);
        peer_expect_text(peer, "still here");
        assert_int_equal(close_it(self->children[0]), 0);
        peer_expect_eof(peer);
        close(peer);
        end_server(self);
    }
}

/* Both the one that is bound and the one that is connected to it. */
static void reset_of_a_datagram_channel_closes_it(void **state)
{
    (void)state;
    for (int is_connected = 0; is_connected < 2; is_connected++) {
        record seen = { 0 };
        weir_address local = any_port();
        weir_channel *channel = new_channel(WEIR_SOCKET_DATAGRAM, &local);
        add_record(channel, &seen);
        assert_int_equal(register_it(channel), 0);
        assert_int_equal(bind_to(channel, &local), 0);
        WAIT_FOR(atomic_load(&seen.actives) == 1);
        if (is_connected) {
            weir_address self = local_of(channel);
            assert_int_equal(connect_to(channel, &self), 0);
        }
        weir_channel_reset(channel);
        release_when_closed(channel);
        expect_end_events(&seen, 1, 1);
    }
}

static void reset_of_an_embedded_channel_sends_nothing(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_embedded *embedded;
    weir_promise *written;
    assert_int_equal(weir_embedded_new(&embedded, NULL, NULL), 0);
    weir_channel *channel = weir_embedded_channel(embedded);
    add_record(channel, &seen);
    weir_embedded_run(embedded);
    weir_embedded_accept(embedded, 0);
    written = promise_of(channel);
    weir_channel_write_and_flush(channel, text_msg("flushed"), written);
    weir_embedded_run(embedded);
    weir_channel_reset(channel);
    weir_embedded_run(embedded);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    expect_end_events(&seen, 1, 1);
    weir_embedded_free(embedded);
}

/* Within the process. */
static void reset_of_a_local_channel_ends_the_other(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = address_of("local:reset");
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    new_server_at(self, &address);
    start_server(self);
    weir_channel *client = open_client(&self->address, &seen);
    WAIT_FOR(atomic_load(&self->count) == 1);
    weir_channel_reset(client);
    release_when_closed(client);
    expect_end_events(&seen, 1, 1);
    wait_for_close(self->children[0]);
    end_server(self);
}

/* Handlers ---------------------------------------------------------------------------------------
 */

/* What would keep a close, a shutdown or a write. */
static void keep_close(weir_ctx *ctx, weir_promise *promise)
{
    atomic_uint *calls = weir_ctx_arg(ctx);
    atomic_fetch_add(calls, 1);
    weir_promise_fail(promise, -EBUSY);
}

static const weir_handler_type stubborn = { .name = "stubborn", .close = keep_close };

static void handlers_are_not_asked(void **state)
{
    (void)state;
    record seen = { 0 };
    atomic_uint calls = 0;
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    assert_int_equal(weir_pipeline_add_last(pipeline, "stubborn", &stubborn, &calls), 0);
    assert_int_equal(register_it(channel), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    assert_int_equal(close_it(channel), -EBUSY);
    weir_channel_reset(channel);
    release_when_closed(channel);
    assert_int_equal(atomic_load(&calls), 1);
    expect_end_events(&seen, 1, 1);
    peer_expect_reset(peer);
    close(peer);
}

/* On another executor, in the middle of an event. */
typedef struct slow_handler {
    atomic_bool is_reached, may_end, is_removed;
} slow_handler;

static void slow_on_read(weir_ctx *ctx, weir_msg *msg)
{
    slow_handler *self = weir_ctx_arg(ctx);
    atomic_store(&self->is_reached, true);
    WAIT_FOR(atomic_load(&self->may_end));
    weir_msg_release(msg);
}

static void slow_removed(weir_ctx *ctx)
{
    atomic_store(&((slow_handler *)weir_ctx_arg(ctx))->is_removed, true);
}

static const weir_handler_type slow = { .name = "slow",
                                        .on_read = slow_on_read,
                                        .removed = slow_removed };

static void add_slow(weir_channel *channel, slow_handler *self, weir_group *elsewhere)
{
    weir_handler_config config = { .type = &slow, .name = "slow", .group = elsewhere, .arg = self };
    assert_int_equal(weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL), 0);
}

/* The peer hears of it at once; the close is complete when the handler is gone. */
static void reset_does_not_wait_for_an_offloaded_handler(void **state)
{
    (void)state;
    slow_handler self = { .may_end = false };
    weir_group *elsewhere = new_group_of(1);
    int peer;
    weir_channel *channel = half_pair(TCP, NULL, &peer);
    add_slow(channel, &self, elsewhere);
    assert_int_equal(register_it(channel), 0);
    peer_send(peer, "x", 1);
    WAIT_FOR(atomic_load(&self.is_reached));
    weir_channel_reset(channel);
    peer_expect_reset(peer);
    close(peer);
    assert_false(weir_future_is_done(weir_channel_closed(channel)));
    assert_false(atomic_load(&self.is_removed));
    atomic_store(&self.may_end, true);
    release_when_closed(channel);
    assert_true(atomic_load(&self.is_removed));
    end_group(elsewhere);
}

/* Holds of handlers on reads and on writes. */
static void reset_does_not_wait_for_holds(void **state)
{
    (void)state;
    for (int is_write = 0; is_write < 2; is_write++) {
        record seen = { 0 };
        weir_hold hold;
        int peer;
        weir_channel *channel = pair_with(TCP, &seen, &peer);
        fresh_hold(&hold);
        if (is_write)
            weir_channel_set_write_hold(channel, &hold, true);
        else
            weir_channel_set_read_hold(channel, &hold, true);
        settle_calls(channel);
        peer_send(peer, "unread", 6);
        weir_channel_reset(channel);
        release_when_closed(channel);
        expect_end_events(&seen, 1, 1);
        peer_expect_reset(peer);
        close(peer);
    }
}

/* Calls of one thread keep their order: a channel that has been reset sends nothing more. */
static void write_after_a_reset_fails(void **state)
{
    (void)state;
    blocker before;
    int peer;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    weir_promise *written = promise_of(channel);
    block(&before, executor_of(channel));
    weir_channel_reset(channel);
    weir_channel_write_and_flush(channel, text_msg("late"), written);
    unblock(&before);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    release_when_closed(channel);
    peer_expect_reset(peer);
    close(peer);
}

/* Relays -----------------------------------------------------------------------------------------
 */

typedef struct relayed_pair {
    record seen[2];
    weir_channel *from, *to;
    int left, right;
    weir_promise *promise;
} relayed_pair;

static int run_relay(void *arg)
{
    relayed_pair *self = arg;
    weir_relay(self->from, self->to, self->promise);
    return 0;
}

static void open_relay(relayed_pair *self)
{
    weir_executor *loop = weir_group_at(group, 0);
    self->from = half_pair(TCP, &self->seen[0], &self->left);
    self->to = half_pair(TCP, &self->seen[1], &self->right);
    weir_channel_register(self->from, loop, NULL);
    weir_channel_register(self->to, loop, NULL);
    WAIT_FOR(weir_channel_is_active(self->from) && weir_channel_is_active(self->to));
    self->promise = promise_of(self->from);
    call_on(loop, run_relay, self);
    peer_send(self->left, "relayed", 7);
    peer_expect_text(self->right, "relayed");
}

/* The relay ends; the other channel is its owner's. */
static void reset_of_a_relayed_channel_ends_the_relay(void **state)
{
    (void)state;
    for (int is_to = 0; is_to < 2; is_to++) {
        relayed_pair self = { .promise = NULL };
        open_relay(&self);
        weir_channel *resets = is_to ? self.to : self.from, *stays = is_to ? self.from : self.to;
        weir_channel_reset(resets);
        assert_int_equal(outcome(self.promise), WEIR_ECLOSED);
        release_when_closed(resets);
        expect_end_events(&self.seen[is_to], 1, 1);
        peer_expect_reset(is_to ? self.right : self.left);
        close(is_to ? self.right : self.left);
        assert_true(weir_channel_is_open(stays));
        assert_int_equal(write_it(stays, text_msg("still here")), 0);
        peer_expect_text(is_to ? self.left : self.right, "still here");
        end_channel(stays);
        close(is_to ? self.left : self.right);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(reset_of_a_listener_closes_it_alone),
        socket_cases(reset_of_a_datagram_channel_closes_it),
        epoll_case(reset_of_an_embedded_channel_sends_nothing),
        socket_cases(reset_of_a_local_channel_ends_the_other),
        socket_cases(handlers_are_not_asked),
        socket_cases(reset_does_not_wait_for_an_offloaded_handler),
        socket_cases(reset_does_not_wait_for_holds),
        socket_cases(write_after_a_reset_fails),
        loop_cases(reset_of_a_relayed_channel_ends_the_relay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
