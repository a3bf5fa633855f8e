/* SPDX-License-Identifier: MIT */
/* Resetting a channel: the peer learns that it has not got everything. */
#include "transport/sockets.h"

#include <weir/fault.h>

#define FOR_EVER_S 300 /* longer than any of these may take */
#define PENDING_BYTES (8 * MIB)

/* Peers ------------------------------------------------------------------------------------------
 */

/* What recv says after the last byte: 0, or a negative code. */
static int end_of_stream(int fd, size_t *length)
{
    static char bytes[65536];
    ssize_t code;
    *length = 0;
    do {
        peer_wait(fd, POLLIN);
        code = recv(fd, bytes, sizeof bytes, 0);
        *length += code > 0 ? (size_t)code : 0;
    } while (code > 0);
    return code == 0 ? 0 : -errno;
}

static void expect_reset(int fd)
{
    size_t length;
    assert_int_equal(end_of_stream(fd, &length), -ECONNRESET);
    close(fd);
}

static void expect_eof(int fd)
{
    size_t length;
    assert_int_equal(end_of_stream(fd, &length), 0);
    close(fd);
}

static bool has_reset(int stream)
{
    return stream == TCP || stream == TCP6;
}

/* A peer of TCP sees a reset, any other one EOF. */
static void expect_end(int fd, int stream)
{
    if (has_reset(stream))
        expect_reset(fd);
    else
        expect_eof(fd);
}

/* Channels ---------------------------------------------------------------------------------------
 */

static void end_closed(weir_channel *channel)
{
    wait_for_close(channel);
    weir_channel_release(channel);
}

static void expect_ends(const record *seen, unsigned inactives, unsigned unregistereds)
{
    assert_int_equal(atomic_load(&seen->inactives), inactives);
    assert_int_equal(atomic_load(&seen->unregistereds), unregistereds);
    assert_int_equal(atomic_load(&seen->errors), 0);
}

/* More than the kernel takes. */
static weir_promise *write_much(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_write_and_flush(channel, pattern_msg(0, PENDING_BYTES), promise);
    return promise;
}

static weir_channel *full_channel(int stream, record *seen, int *peer, weir_promise **written)
{
    weir_channel *channel = pair_with(stream, seen, peer);
    *written = write_much(channel);
    peer_wait(*peer, POLLIN);
    settle_calls(channel);
    return channel;
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
        record seen = { 0 };
        int peer;
        weir_promise *flushed;
        weir_channel *channel = full_channel(stream, &seen, &peer, &flushed);
        weir_promise *queued = promise_of(channel), *late = promise_of(channel);
        weir_channel_write(channel, text_msg("never flushed"), queued);
        settle_calls(channel);
        weir_channel_reset(channel);
        weir_channel_write_and_flush(channel, text_msg("late"), late);
        assert_int_equal(outcome(flushed), WEIR_ECLOSED);
        assert_int_equal(outcome(queued), WEIR_ECLOSED);
        assert_int_equal(outcome(late), WEIR_ECLOSED);
        end_closed(channel);
        expect_ends(&seen, 1, 1);
        expect_end(peer, stream);
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
        record seen = { 0 };
        size_t length;
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        call_on(executor_of(channel), run_flush_and_reset, channel);
        assert_int_equal(end_of_stream(peer, &length), has_reset(stream) ? -ECONNRESET : 0);
        assert_int_equal(length, 0);
        end_closed(channel);
        expect_ends(&seen, 1, 1);
        close(peer);
    }
}

static void quiet_channel_is_reset(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        for (int has_unread = 0; has_unread < 2; has_unread++) {
            record seen = { 0 };
            weir_hold hold;
            int peer;
            weir_channel *channel = pair_with(stream, &seen, &peer);
            weir_channel_set_read_hold(channel, fresh_hold(&hold), has_unread);
            settle_calls(channel);
            peer_send(peer, "unread", has_unread ? 6 : 0);
            weir_channel_reset(channel);
            end_closed(channel);
            expect_ends(&seen, 1, 1);
            size_t length;
            int code = end_of_stream(peer, &length);
            assert_true(code == -ECONNRESET || (code == 0 && !has_reset(stream)));
            close(peer);
        }
    }
}

/* The peer has ended its output; what this side still had to send is missing all the same. */
static void peer_that_has_ended_its_output_sees_the_reset(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        record seen = { 0 };
        int peer;
        weir_promise *written = NULL;
        weir_channel *channel = is_full ? full_channel(TCP, &seen, &peer, &written)
                                        : pair_with(TCP, &seen, &peer);
        set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
        settle_calls(channel);
        shutdown(peer, SHUT_WR);
        WAIT_FOR(atomic_load(&seen.events) == 1);
        weir_channel_reset(channel);
        if (is_full)
            assert_int_equal(outcome(written), WEIR_ECLOSED);
        end_closed(channel);
        expect_ends(&seen, 1, 1);
        expect_reset(peer);
    }
}

/* After EOF a channel without half-closure sends what is flushed, as long as the peer reads. */
static void reset_ends_a_close_that_follows_eof(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    set_option(channel, WEIR_OPTION_LINGER_MS, 86400000);
    shutdown(peer, SHUT_WR);
    WAIT_FOR(weir_channel_is_input_closed(channel));
    weir_channel_reset(channel);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    end_closed(channel);
    expect_ends(&seen, 1, 1);
    expect_reset(peer);
}

/* A shutdown that waits for the queue fails, and no FIN is sent. */
static void reset_fails_a_pending_shutdown(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    weir_promise *shut = promise_of(channel);
    weir_channel_shutdown(channel, shut);
    weir_channel_reset(channel);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    assert_int_equal(outcome(shut), WEIR_ECLOSED);
    end_closed(channel);
    expect_reset(peer);
}

/* Other moments ----------------------------------------------------------------------------------
 */

static void reset_before_registration_closes_without_events(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = half_pair(stream, &seen, &peer);
        weir_promise *written = promise_of(channel);
        weir_channel_write_and_flush(channel, text_msg("early"), written);
        weir_channel_reset(channel);
        assert_int_equal(outcome(written), WEIR_ECLOSED);
        expect_end(peer, stream);
        assert_int_equal(register_it(channel), WEIR_ECLOSED);
        end_closed(channel);
        expect_ends(&seen, 0, 0);
    }
}

static void reset_during_registration_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = half_pair(TCP, &seen, &peer);
        weir_promise *promise = promise_of(channel);
        put_on_loop(channel, promise);
        for (int pauses = 0; pauses < i % 10; pauses++)
            sched_yield();
        weir_channel_reset(channel);
        int code = outcome(promise);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        end_closed(channel);
        assert_int_equal(atomic_load(&seen.inactives), atomic_load(&seen.actives));
        expect_reset(peer);
    }
}

static void reset_of_a_channel_that_has_left_its_loop(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    weir_promise *left = promise_of(channel);
    weir_channel_deregister(channel, left);
    assert_int_equal(outcome(left), 0);
    weir_channel_reset(channel);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    end_closed(channel);
    assert_int_equal(atomic_load(&seen.inactives), 1);
    expect_reset(peer);
}

static void reset_during_a_move_closes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 50; i++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(TCP, &seen, &peer);
        weir_promise *moved = promise_of(channel);
        weir_channel_move(channel, weir_group_at(group, i % 2), moved);
        for (size_t pauses = 0; pauses < i % 10; pauses++)
            sched_yield();
        weir_channel_reset(channel);
        int code = outcome(moved);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        end_closed(channel);
        assert_int_equal(atomic_load(&seen.inactives), 1);
        expect_reset(peer);
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
    set_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_MS, 0);
    assert_int_equal(register_it(channel), 0);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &address, NULL, promise);
    settle(executor_of(channel));
    assert_false(weir_future_is_done(weir_promise_future(promise)));
    weir_channel_reset(channel);
    assert_int_equal(outcome(promise), WEIR_ECLOSED);
    end_closed(channel);
    expect_ends(&seen, 0, 1);
    close(filler);
    close(listener);
}

static void reset_after_a_close_changes_nothing(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        assert_int_equal(write_it(channel, text_msg("all of it")), 0);
        assert_int_equal(close_it(channel), 0);
        weir_channel_reset(channel);
        WAIT_FOR(weir_channel_get_state(channel) == WEIR_CHANNEL_UNREGISTERED);
        weir_channel_reset(channel);
        peer_expect_text(peer, "all of it");
        expect_eof(peer);
        end_closed(channel);
        expect_ends(&seen, 1, 1);
    }
    weir_channel_reset(NULL);
}

static void second_reset_changes_nothing(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    weir_promise *closed = promise_of(channel);
    weir_channel_reset(channel);
    weir_channel_reset(channel);
    weir_channel_close(channel, closed);
    weir_channel_reset(channel);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    assert_int_equal(outcome(closed), 0);
    end_closed(channel);
    expect_ends(&seen, 1, 1);
    expect_reset(peer);
}

/* A finish that sends slowly, or that waits for the peer's end, is over at once. */
static void reset_ends_a_finish(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        record seen = { 0 };
        int peer;
        weir_promise *written = NULL;
        weir_channel *channel = is_full ? full_channel(TCP, &seen, &peer, &written)
                                        : pair_with(TCP, &seen, &peer);
        weir_promise *finished = promise_of(channel);
        set_option(channel, WEIR_OPTION_LINGER_MS, 86400000);
        weir_channel_finish(channel, finished);
        settle_calls(channel);
        if (!is_full)
            peer_expect_eof(peer);
        assert_false(weir_future_is_done(weir_promise_future(finished)));
        weir_channel_reset(channel);
        assert_int_equal(outcome(finished), 0);
        if (is_full)
            assert_int_equal(outcome(written), WEIR_ECLOSED);
        end_closed(channel);
        expect_ends(&seen, 1, 1);
        if (is_full)
            expect_reset(peer);
        else
            close(peer);
    }
}

/* close_linger_s ---------------------------------------------------------------------------------
 */

static void reset_does_not_wait_for_the_peer(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_S, FOR_EVER_S);
    settle_calls(channel);
    weir_channel_reset(channel);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    end_closed(channel);
    expect_ends(&seen, 1, 1);
    expect_reset(peer);
}

static void reset_ends_a_close_that_waits_for_the_peer(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    weir_promise *closed = promise_of(channel);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_S, FOR_EVER_S);
    weir_channel_close(channel, closed);
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    WAIT_FOR(weir_channel_get_state(channel) == WEIR_CHANNEL_CLOSING);
    assert_false(weir_future_is_done(weir_promise_future(closed)));
    weir_channel_reset(channel);
    assert_int_equal(outcome(closed), 0);
    end_closed(channel);
    expect_ends(&seen, 1, 1);
    expect_reset(peer);
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
    expect_reset(peers[1]);
    for (unsigned i = 0; i < COUNT_OF(peers); i += 2) {
        WAIT_FOR(weir_channel_is_active(self->children[i]));
        int fd = weir_channel_descriptor(self->children[i]);
        struct linger linger = { .l_onoff = -1 };
        socklen_t length = sizeof linger;
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length), 0);
        assert_int_equal(linger.l_onoff, 0);
        assert_int_equal(close_it(self->children[i]), 0);
        expect_eof(peers[i]);
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
        record seen = { .then = reset_now, .arg = (void *)(uintptr_t)events[i] };
        int peer;
        weir_channel *channel = half_pair(TCP, &seen, &peer);
        put_on_loop(channel, NULL);
        if (i >= 2)
            peer_send(peer, "x", 1);
        if (i >= 4) {
            WAIT_FOR(atomic_load(&seen.completes) > 0);
            weir_channel_reset(channel);
        }
        expect_reset(peer);
        end_closed(channel);
        expect_ends(&seen, i > 0, 1);
    }
}

static void reset_on_another_loop_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = half_pair(TCP, &seen, &peer);
        weir_channel_register(channel, weir_group_at(group, 0), NULL);
        WAIT_FOR(weir_channel_is_active(channel));
        weir_promise *written = write_much(channel);
        call_on(weir_group_at(group, (size_t)i), run_reset, channel);
        assert_int_equal(outcome(written), WEIR_ECLOSED);
        end_closed(channel);
        expect_ends(&seen, 1, 1);
        expect_reset(peer);
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
        record seen = { 0 };
        pthread_t threads[3];
        int peer;
        weir_channel *channel = pair_with(TCP, &seen, &peer);
        for (size_t k = 0; k < COUNT_OF(threads); k++)
            assert_int_equal(pthread_create(&threads[k], NULL, reset_in_thread, channel), 0);
        weir_promise *written = write_much(channel);
        for (size_t k = 0; k < COUNT_OF(threads); k++)
            pthread_join(threads[k], NULL);
        assert_int_equal(outcome(written), WEIR_ECLOSED);
        end_closed(channel);
        expect_ends(&seen, 1, 1);
        expect_reset(peer);
    }
}

/* Faults -----------------------------------------------------------------------------------------
 */

static int fail_memory(void *arg, const char *call, size_t *length)
{
    (void)length;
    return strcmp(call, arg) == 0 ? -ENOMEM : 0;
}

static void reset_needs_no_memory(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    settle(executor_of(channel));
    weir_fault_set(fail_memory, (void *)(uintptr_t) "alloc");
    weir_channel_reset(channel);
    int code = outcome(written);
    WAIT_FOR(weir_channel_get_state(channel) == WEIR_CHANNEL_UNREGISTERED);
    weir_fault_set(NULL, NULL);
    assert_int_equal(code, WEIR_ECLOSED);
    end_closed(channel);
    expect_ends(&seen, 1, 1);
    expect_reset(peer);
}

static void reset_closes_though_the_option_cannot_be_set(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_promise *written;
    weir_channel *channel = full_channel(TCP, &seen, &peer, &written);
    settle(executor_of(channel));
    weir_fault_set(fail_memory, (void *)(uintptr_t) "setsockopt");
    weir_channel_reset(channel);
    int code = outcome(written);
    wait_for_close(channel);
    weir_fault_set(NULL, NULL);
    assert_int_equal(code, WEIR_ECLOSED);
    end_closed(channel);
    expect_ends(&seen, 1, 1);
    expect_eof(peer); /* all that is left to do */
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
