/* SPDX-License-Identifier: MIT */
/* The end of loops that have channels: each of them is closed, once, on its own thread. */
#include "transport/sockets.h"

enum { EACH = 4, KINDS = 5, CHANNELS = EACH * KINDS };
enum { IDLE, WRITING, NOT_READING, DATAGRAM, NOT_CONNECTED };

/* A channel, and what becomes of it. */
typedef struct citizen {
    record seen;
    weir_channel *channel;
    weir_promise *write; /* of what the peer does not read */
    int peer;
    atomic_bool was_elsewhere; /* a callback ran on another thread than the loop's */
} citizen;

static void look_where(record *seen, weir_ctx *ctx, const char *event)
{
    citizen *self = seen->arg;
    (void)event;
    if (!weir_executor_is_current(executor_of(weir_ctx_channel(ctx))))
        atomic_store(&self->was_elsewhere, true);
}

static void settle_in(citizen *self, int kind)
{
    weir_address any = any_port();
    self->peer = -1;
    self->seen.then = look_where;
    self->seen.arg = self;
    if (kind < DATAGRAM) {
        self->channel = half_pair(TCP, &self->seen, &self->peer);
        if (kind == NOT_READING)
            set_option(self->channel, WEIR_OPTION_AUTO_READ, 0);
    } else {
        self->channel = new_channel(kind == DATAGRAM ? WEIR_SOCKET_DATAGRAM : WEIR_SOCKET_STREAM,
                                    &any);
        add_record(self->channel, &self->seen);
    }
    assert_int_equal(register_it(self->channel), 0);
    if (kind == DATAGRAM)
        assert_int_equal(bind_to(self->channel, &any), 0);
    if (kind != NOT_CONNECTED)
        WAIT_FOR(weir_channel_is_active(self->channel));
    if (kind == WRITING) {
        self->write = promise_of(self->channel);
        weir_channel_write_and_flush(self->channel, pattern_msg(0, 8 * MIB), self->write);
        peer_wait(self->peer, POLLIN);
    }
    if (kind == NOT_READING)
        peer_send(self->peer, "unread", 6);
}

/* Its future, its callbacks and its peer all say that it is closed. */
static void assert_closed_once(citizen *self, int kind)
{
    assert_false(weir_channel_is_open(self->channel));
    assert_int_equal(weir_channel_get_state(self->channel), WEIR_CHANNEL_UNREGISTERED);
    assert_true(weir_future_is_done(weir_channel_closed(self->channel)));
    assert_int_equal(atomic_load(&self->seen.actives), kind != NOT_CONNECTED);
    assert_int_equal(atomic_load(&self->seen.inactives), kind != NOT_CONNECTED);
    assert_int_equal(atomic_load(&self->seen.unregistereds), 1);
    assert_false(atomic_load(&self->was_elsewhere));
    if (kind == WRITING) {
        assert_int_equal(outcome(self->write), WEIR_ECLOSED);
        peer_drain(self->peer);
    }
    if (self->peer >= 0) {
        peer_expect_over(self->peer);
        close(self->peer);
    }
    weir_channel_release(self->channel);
}

/* The time limit is longer than a wait of the test: no loop ends by that. */
static void end_loops(void)
{
    int limit_ms = (int)(2 * harness_wait_limit_ns / WEIR_MS(1));
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_MS(limit_ms)), 0);
    WAIT_FOR(weir_future_is_done(weir_group_terminated(group)));
    weir_group_free(group);
    group = NULL;
}

static void s038_shutdown_closes_every_channel_once(void **state)
{
    (void)state;
    citizen *all = calloc(CHANNELS, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < CHANNELS; i++)
        settle_in(&all[i], i % KINDS);
    end_loops();
    for (int i = 0; i < CHANNELS; i++)
        assert_closed_once(&all[i], i % KINDS);
    free(all);
}

/* A listener is closed, and so are the children it has accepted. */
static void s038_shutdown_closes_listeners_and_their_children(void **state)
{
    (void)state;
    enum { CLIENTS = 5 };
    int peers[CLIENTS];
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->is_echo = true;
    new_server(self, TCP);
    start_server(self);
    for (int i = 0; i < CLIENTS; i++) {
        peers[i] = peer_connect(&self->address);
        peer_send(peers[i], "hello", 5);
        peer_expect_text(peers[i], "hello");
    }
    end_loops();
    assert_int_equal(weir_channel_get_state(self->listener), WEIR_CHANNEL_UNREGISTERED);
    assert_int_equal(atomic_load(&self->record.inactives), 1);
    assert_int_equal(atomic_load(&self->record.unregistereds), 1);
    assert_int_equal(atomic_load(&self->count), CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(atomic_load(&self->records[i].inactives), 1);
        assert_int_equal(atomic_load(&self->records[i].unregistereds), 1);
        assert_int_equal(weir_channel_get_state(self->children[i]), WEIR_CHANNEL_UNREGISTERED);
        peer_expect_over(peers[i]);
        close(peers[i]);
        weir_channel_release(self->children[i]);
    }
    weir_channel_release(self->listener);
    free(self->records);
    free(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(s038_shutdown_closes_every_channel_once),
        socket_cases(s038_shutdown_closes_listeners_and_their_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
