/* SPDX-License-Identifier: MIT */
/* Resetting a channel: the peer learns that it has not got everything. */
#include "transport/sockets.h"

#include <weir/fault.h>

#define FOR_EVER_NS WEIR_SECONDS(300) /* longer than any of these may take */
#define PENDING_BYTES (8 * MIB)

/* Connections ------------------------------------------------------------------------------------
 */

/* A channel and its peer. */
typedef struct connection {
    int stream;
    bool is_full; /* the kernel takes no more */
    record seen;
    weir_channel *channel;
    int peer;
    weir_promise *written; /* of a pending write, or NULL */
} connection;

static void open_half(connection *self)
{
    self->channel = half_pair(self->stream, &self->seen, &self->peer);
}

static void write_much(connection *self)
{
    self->written = promise_of(self->channel);
    weir_channel_write_and_flush(self->channel, pattern_msg(0, PENDING_BYTES), self->written);
}

static void open_active(connection *self)
{
    self->channel = pair_with(self->stream, &self->seen, &self->peer);
    if (!self->is_full)
        return;
    write_much(self);
    peer_wait(self->peer, POLLIN);
    settle_calls(self->channel);
}

static int write_outcome(connection *self)
{
    weir_promise *written = self->written;
    self->written = NULL;
    return outcome(written);
}

static bool has_reset(const connection *self)
{
    return self->stream == TCP || self->stream == TCP6;
}

/* A peer of TCP sees a reset, any other one EOF. */
static void expect_peer_end(connection *self)
{
    if (has_reset(self))
        peer_expect_reset(self->peer);
    else
        peer_receive_to_eof(self->peer);
    close(self->peer);
}

/* The pending write fails, if there is one, and the channel closes. */
static void expect_closed(connection *self)
{
    if (self->written != NULL)
        assert_int_equal(write_outcome(self), WEIR_ECLOSED);
    release_when_closed(self->channel);
}

static void expect_closed_once(connection *self)
{
    expect_closed(self);
    expect_end_events(&self->seen, 1, 1);
}

static void expect_reset(connection *self)
{
    expect_closed_once(self);
    expect_peer_end(self);
}

static int run_reset(void *arg)
{
    weir_channel_reset(arg);
    return 0;
}

/* Active channels --------------------------------------------------------------------------------
 */

static void reset_fails_pending_writes_and_is_seen_by_the_peer(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        connection self = { .stream = stream, .is_full = true };
        open_active(&self);
        weir_promise *queued = promise_of(self.channel), *late = promise_of(self.channel);
        weir_channel_write(self.channel, text_msg("never flushed"), queued);
        settle_calls(self.channel);
        weir_channel_reset(self.channel);
        weir_channel_write_and_flush(self.channel, text_msg("late"), late);
        assert_int_equal(outcome(queued), WEIR_ECLOSED);
        assert_int_equal(outcome(late), WEIR_ECLOSED);
        expect_reset(&self);
    }
}

/* A close sends what was flushed, if the kernel takes it; a reset does not. */
static int run_flush_and_reset(void *arg)
{
    weir_channel_write(arg, text_msg("queued"), NULL);
    weir_channel_reset(arg);
    return 0;
}

static void reset_sends_nothing_that_is_queued(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        connection self = { .stream = stream };
        size_t length;
        open_active(&self);
        call_on(executor_of(self.channel), run_flush_and_reset, self.channel);
        int code = peer_receive_all(self.peer, &length);
        assert_int_equal(code, has_reset(&self) ? -ECONNRESET : 0);
        assert_int_equal(length, 0);
        expect_closed_once(&self);
        close(self.peer);
    }
}

static void reset_without_writes(int stream, bool has_unread)
{
    connection self = { .stream = stream };
    weir_hold hold;
    size_t length;
    open_active(&self);
    weir_channel_set_read_hold(self.channel, fresh_hold(&hold), has_unread);
    settle_calls(self.channel);
    peer_send(self.peer, "unread", has_unread ? 6 : 0);
    weir_channel_reset(self.channel);
    expect_closed_once(&self);
    int code = peer_receive_all(self.peer, &length);
    assert_true(code == -ECONNRESET || (code == 0 && !has_reset(&self)));
    close(self.peer);
}

static void quiet_channel_is_reset(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        reset_without_writes(stream, false);
        reset_without_writes(stream, true);
    }
}

/* The peer has ended its output; what this side still had to send is missing all the same. */
static void peer_that_has_ended_its_output_sees_the_reset(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        connection self = { .stream = TCP, .is_full = is_full };
        open_active(&self);
        set_option(self.channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
        settle_calls(self.channel);
        shutdown(self.peer, SHUT_WR);
        WAIT_FOR(atomic_load(&self.seen.events) == 1);
        weir_channel_reset(self.channel);
        expect_reset(&self);
    }
}

/* After EOF a channel without half-closure sends what is flushed, as long as the peer reads. */
static void reset_ends_a_close_that_follows_eof(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    open_active(&self);
    set_option(self.channel, WEIR_OPTION_LINGER_NS, WEIR_SECONDS(86400));
    shutdown(self.peer, SHUT_WR);
    WAIT_FOR(weir_channel_is_input_closed(self.channel));
    weir_channel_reset(self.channel);
    expect_reset(&self);
}

/* A shutdown that waits for the queue fails, and no FIN is sent. */
static void reset_fails_a_pending_shutdown(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    open_active(&self);
    weir_promise *shut = promise_of(self.channel);
    weir_channel_shutdown(self.channel, shut);
    weir_channel_reset(self.channel);
    assert_int_equal(outcome(shut), WEIR_ECLOSED);
    expect_closed(&self);
    expect_peer_end(&self);
}

/* Other moments ----------------------------------------------------------------------------------
 */

static void reset_before_registration_closes_without_events(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        connection self = { .stream = stream };
        open_half(&self);
        self.written = promise_of(self.channel);
        weir_channel_write_and_flush(self.channel, text_msg("early"), self.written);
        weir_channel_reset(self.channel);
        assert_int_equal(write_outcome(&self), WEIR_ECLOSED);
        expect_peer_end(&self);
        assert_int_equal(register_it(self.channel), WEIR_ECLOSED);
        expect_closed(&self);
        expect_end_events(&self.seen, 0, 0);
    }
}

/* Resets it after so many yields, before or after the call of `promise` completes. */
static void reset_meanwhile(connection *self, weir_promise *promise, int yields)
{
    for (int i = 0; i < yields; i++)
        sched_yield();
    weir_channel_reset(self->channel);
    int code = outcome(promise);
    assert_true(code == 0 || code == WEIR_ECLOSED);
    expect_closed(self);
}

static void reset_during_registration_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        connection self = { .stream = TCP };
        open_half(&self);
        weir_promise *promise = promise_of(self.channel);
        put_on_loop(self.channel, promise);
        reset_meanwhile(&self, promise, i % 10);
        assert_int_equal(atomic_load(&self.seen.inactives), atomic_load(&self.seen.actives));
        expect_peer_end(&self);
    }
}

static void reset_of_a_channel_that_has_left_its_loop(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    open_active(&self);
    weir_promise *left = promise_of(self.channel);
    weir_channel_deregister(self.channel, left);
    assert_int_equal(outcome(left), 0);
    weir_channel_reset(self.channel);
    expect_closed(&self);
    assert_int_equal(atomic_load(&self.seen.inactives), 1);
    expect_peer_end(&self);
}

static void reset_during_a_move_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        connection self = { .stream = TCP };
        open_active(&self);
        weir_promise *moved = promise_of(self.channel);
        weir_channel_move(self.channel, weir_group_at(group, (size_t)i % 2), moved);
        reset_meanwhile(&self, moved, i % 10);
        assert_int_equal(atomic_load(&self.seen.inactives), 1);
        expect_peer_end(&self);
    }
}

/* Its backlog is full, so that nothing is heard from it. */
static void reset_fails_a_connect(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port();
    int listener = peer_listen(&address, 0), filler = peer_connect(&address);
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, &address);
    add_record(channel, &seen);
    set_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_NS, 0);
    assert_int_equal(register_it(channel), 0);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &address, NULL, promise);
    settle(executor_of(channel));
    assert_false(weir_future_is_done(weir_promise_future(promise)));
    weir_channel_reset(channel);
    assert_int_equal(outcome(promise), WEIR_ECLOSED);
    release_when_closed(channel);
    expect_end_events(&seen, 0, 1);
    close(filler);
    close(listener);
}

static void reset_after_a_close_changes_nothing(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        connection self = { .stream = stream };
        open_active(&self);
        assert_int_equal(write_it(self.channel, text_msg("all of it")), 0);
        assert_int_equal(close_it(self.channel), 0);
        weir_channel_reset(self.channel);
        WAIT_FOR(weir_channel_get_state(self.channel) == WEIR_CHANNEL_UNREGISTERED);
        weir_channel_reset(self.channel);
        peer_expect_text(self.peer, "all of it");
        peer_receive_to_eof(self.peer);
        close(self.peer);
        expect_closed_once(&self);
    }
    weir_channel_reset(NULL);
}

static void second_reset_changes_nothing(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    open_active(&self);
    weir_promise *closed = promise_of(self.channel);
    weir_channel_reset(self.channel);
    weir_channel_reset(self.channel);
    weir_channel_close(self.channel, closed);
    weir_channel_reset(self.channel);
    assert_int_equal(outcome(closed), 0);
    expect_reset(&self);
}

/* A finish that sends slowly, or that waits for the peer's end, is over at once. */
static void reset_ends_a_finish(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        connection self = { .stream = TCP, .is_full = is_full };
        open_active(&self);
        weir_promise *finished = promise_of(self.channel);
        set_option(self.channel, WEIR_OPTION_LINGER_NS, WEIR_SECONDS(86400));
        weir_channel_finish(self.channel, finished);
        settle_calls(self.channel);
        if (!is_full)
            peer_expect_eof(self.peer);
        assert_false(weir_future_is_done(weir_promise_future(finished)));
        weir_channel_reset(self.channel);
        assert_int_equal(outcome(finished), 0);
        expect_closed_once(&self);
        if (is_full)
            expect_peer_end(&self);
        else
            close(self.peer);
    }
}

/* close_linger_ns ---------------------------------------------------------------------------------
 */

static void reset_does_not_wait_for_the_peer(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    open_active(&self);
    set_option(self.channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    settle_calls(self.channel);
    weir_channel_reset(self.channel);
    expect_reset(&self);
}

static void reset_ends_a_close_that_waits_for_the_peer(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    open_active(&self);
    weir_promise *closed = promise_of(self.channel);
    set_option(self.channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    weir_channel_close(self.channel, closed);
    assert_int_equal(write_outcome(&self), WEIR_ECLOSED);
    WAIT_FOR(weir_channel_get_state(self.channel) == WEIR_CHANNEL_CLOSING);
    assert_false(weir_future_is_done(weir_promise_future(closed)));
    weir_channel_reset(self.channel);
    assert_int_equal(outcome(closed), 0);
    expect_reset(&self);
}

/* What a listener accepts next does not inherit the option that resets. */
static void reset_of_a_child_leaves_the_others_alone(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    int peers[3];
    for (unsigned i = 0; i < COUNT_OF(peers); i++) {
        peers[i] = peer_connect(&self->address);
        WAIT_FOR(atomic_load(&self->count) == i + 1);
        if (i == 1)
            weir_channel_reset(self->children[1]);
    }
    peer_expect_reset(peers[1]);
    close(peers[1]);
    for (unsigned i = 0; i < COUNT_OF(peers); i += 2) {
        WAIT_FOR(weir_channel_is_active(self->children[i]));
        int fd = weir_channel_descriptor(self->children[i]);
        struct linger linger = { .l_onoff = -1 };
        socklen_t length = sizeof linger;
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length), 0);
        assert_int_equal(linger.l_onoff, 0);
        assert_int_equal(close_it(self->children[i]), 0);
        peer_receive_to_eof(peers[i]);
        close(peers[i]);
    }
    end_server(self);
}

/* Threads ----------------------------------------------------------------------------------------
 */

static void reset_now(record *self, weir_ctx *ctx, const char *event)
{
    if (strcmp(event, self->arg) == 0)
        weir_channel_reset(weir_ctx_channel(ctx));
}

static void reset_inside_an_event_closes_once(void **state)
{
    (void)state;
    static const char *const events[] = { "registered", "active",   "read",
                                          "complete",   "inactive", "unregistered" };
    for (size_t i = 0; i < COUNT_OF(events); i++) {
        connection self = { .stream = TCP };
        self.seen.then = reset_now;
        self.seen.arg = (void *)(uintptr_t)events[i];
        open_half(&self);
        put_on_loop(self.channel, NULL);
        if (i >= 2)
            peer_send(self.peer, "x", 1);
        if (i >= 4) {
            WAIT_FOR(atomic_load(&self.seen.completes) > 0);
            weir_channel_reset(self.channel);
        }
        expect_peer_end(&self);
        expect_closed(&self);
        expect_end_events(&self.seen, i > 0, 1);
    }
}

static void reset_on_another_loop_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        connection self = { .stream = TCP };
        open_half(&self);
        weir_channel_register(self.channel, weir_group_at(group, 0), NULL);
        WAIT_FOR(weir_channel_is_active(self.channel));
        write_much(&self);
        call_on(weir_group_at(group, (size_t)i), run_reset, self.channel);
        expect_reset(&self);
    }
}

static void *reset_in_thread(void *arg)
{
    weir_channel_reset(arg);
    return NULL;
}

static void resets_and_writes_of_many_threads_end_once(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        connection self = { .stream = TCP };
        pthread_t threads[3];
        open_active(&self);
        for (size_t k = 0; k < COUNT_OF(threads); k++)
            assert_int_equal(pthread_create(&threads[k], NULL, reset_in_thread, self.channel), 0);
        write_much(&self);
        for (size_t k = 0; k < COUNT_OF(threads); k++)
            pthread_join(threads[k], NULL);
        expect_reset(&self);
    }
}

/* Faults -----------------------------------------------------------------------------------------
 */

static int fail_named(void *arg, const char *call, size_t *length)
{
    (void)length;
    return strcmp(call, arg) == 0 ? -ENOMEM : 0;
}

/* Calls of that name fail while it is reset and closes. */
static void reset_with_fault(connection *self, const char *call)
{
    open_active(self);
    settle(executor_of(self->channel));
    weir_fault_set(fail_named, (void *)(uintptr_t)call);
    weir_channel_reset(self->channel);
    int code = write_outcome(self);
    WAIT_FOR(weir_channel_get_state(self->channel) == WEIR_CHANNEL_UNREGISTERED);
    weir_fault_set(NULL, NULL);
    assert_int_equal(code, WEIR_ECLOSED);
}

static void reset_needs_no_memory(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    reset_with_fault(&self, "alloc");
    expect_reset(&self);
}

static void reset_closes_though_the_option_cannot_be_set(void **state)
{
    (void)state;
    connection self = { .stream = TCP, .is_full = true };
    reset_with_fault(&self, "setsockopt");
    expect_closed_once(&self);
    peer_receive_to_eof(self.peer); /* all that is left to do */
    close(self.peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(reset_fails_pending_writes_and_is_seen_by_the_peer),
        socket_cases(reset_sends_nothing_that_is_queued),
        socket_cases(quiet_channel_is_reset),
        socket_cases(peer_that_has_ended_its_output_sees_the_reset),
        socket_cases(reset_ends_a_close_that_follows_eof),
        socket_cases(reset_fails_a_pending_shutdown),
        socket_cases(reset_before_registration_closes_without_events),
        socket_cases(reset_during_registration_closes),
        socket_cases(reset_of_a_channel_that_has_left_its_loop),
        loop_cases(reset_during_a_move_closes),
        socket_cases(reset_fails_a_connect),
        socket_cases(reset_after_a_close_changes_nothing),
        socket_cases(second_reset_changes_nothing),
        socket_cases(reset_ends_a_finish),
        socket_cases(reset_does_not_wait_for_the_peer),
        socket_cases(reset_ends_a_close_that_waits_for_the_peer),
        socket_cases(reset_of_a_child_leaves_the_others_alone),
        socket_cases(reset_inside_an_event_closes_once),
        loop_cases(reset_on_another_loop_closes),
        socket_cases(resets_and_writes_of_many_threads_end_once),
        socket_cases(reset_needs_no_memory),
        socket_cases(reset_closes_though_the_option_cannot_be_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
