/* SPDX-License-Identifier: MIT */
/* Closing that waits for the peer: the option close_linger_ns. */
#include "transport/sockets.h"

#include <weir/fault.h>
#include <weir/relay.h>
#include <weir/resolver.h>

#define FOR_EVER_NS WEIR_SECONDS(300) /* longer than any of these may take */

/* Nobody takes these. */
static weir_msg *too_much(void)
{
    weir_buf *buf = weir_buf_new(15 * MIB);
    assert_non_null(buf);
    memset(weir_buf_write_ptr(buf, 15 * MIB), 'x', 15 * MIB);
    assert_int_equal(weir_buf_advance_writer(buf, 15 * MIB), 0);
    return &buf->msg;
}

/* As much as the kernel takes of that is on its way to a peer that does not read. */
static void fill_up(weir_channel *channel)
{
    weir_channel_write_and_flush(channel, too_much(), NULL);
    settle_calls(channel);
}

static weir_channel *full_channel(record *seen, int64_t linger_ns, int *peer)
{
    weir_channel *channel = pair_with(TCP, seen, peer);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, linger_ns);
    fill_up(channel);
    return channel;
}

static bool is_closed(weir_channel *channel)
{
    return weir_future_is_done(weir_channel_closed(channel));
}

/* What the kernel says of the connection: FIN-WAIT-1 once the end of the stream waits for the peer
 * to take what is before it. */
static uint32_t tcp_state(const weir_channel *channel)
{
    weir_tcp_info info;
    return weir_channel_tcp_info(channel, &info) == 0 ? info.state : 0;
}

/* Still, after a look or two. */
static void assert_lingers(weir_channel *channel, uint32_t state)
{
    WAIT_FOR(tcp_state(channel) == state);
    usleep(5000); /* only makes it likelier to be seen if it does not */
    settle(executor_of(channel));
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_CLOSING);
    assert_false(is_closed(channel));
}

static int64_t now_ms(void)
{
    return weir_clock_now_ns(weir_clock_monotonic()) / 1000000;
}

/* Closes it; it waits for the peer. */
static weir_promise *close_lingering(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_close(channel, promise);
    assert_lingers(channel, TCP_FIN_WAIT1);
    return promise;
}

static void closing_one_channel_does_not_stop_the_others(void **state)
{
    (void)state;
    record lost = { 0 }, seen = { .is_echo = true };
    int lazy, peer;
    weir_channel *slow = full_channel(&lost, FOR_EVER_NS, &lazy);
    weir_channel *quick = half_pair(TCP, &seen, &peer);
    weir_channel_register(quick, executor_of(slow), NULL);
    weir_channel_close(slow, NULL);
    WAIT_FOR(weir_channel_get_state(slow) >= WEIR_CHANNEL_CLOSING);
    peer_send(peer, "x", 1);
    peer_expect_text(peer, "x");
    assert_lingers(slow, TCP_FIN_WAIT1);
    close(lazy); /* with bytes in it: that is a reset, and the end of the waiting */
    release_when_closed(slow);
    assert_int_equal(atomic_load(&lost.inactives), 1);
    end_channel(quick);
    close(peer);
}

/* Closed is closed: the future, the promise and the handlers hear of it when it is. */
static void it_is_closed_when_the_peer_has_everything(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = full_channel(&seen, FOR_EVER_NS, &peer);
    weir_promise *promise = promise_of(channel), *late = promise_of(channel);
    weir_promise *again = promise_of(channel);
    weir_channel_close(channel, promise);
    weir_channel_write(channel, text_msg("late"), late);
    assert_int_equal(outcome(late), WEIR_ECLOSED);
    assert_false(weir_future_is_done(weir_promise_future(promise)));
    assert_false(is_closed(channel));
    assert_int_equal(atomic_load(&seen.inactives), 0);
    assert_lingers(channel, TCP_FIN_WAIT1);
    late = promise_of(channel);
    weir_channel_write_and_flush(channel, text_msg("later"), late);
    assert_int_equal(outcome(late), WEIR_ECLOSED);
    weir_channel_close(channel, again);
    assert_true(peer_receive_to_eof(peer) > 0);
    assert_int_equal(outcome(promise), 0);
    assert_int_equal(outcome(again), 0);
    assert_int_equal(weir_channel_descriptor(channel), -EBADF);
    release_when_closed(channel);
    assert_int_equal(atomic_load(&seen.inactives), 1);
    assert_int_equal(atomic_load(&seen.unregistereds), 1);
    close(peer);
}

/* Whoever ended its stream first, and when: both have to be acknowledged. */
static void it_waits_when_the_peer_has_ended_too(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(TCP, &seen, &peer);
        set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
        set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
        settle_calls(channel);
        if (i == 0) {
            shutdown(peer, SHUT_WR);
            WAIT_FOR(atomic_load(&seen.events) == 1);
        }
        fill_up(channel);
        weir_channel_close(channel, NULL);
        if (i != 0)
            assert_lingers(channel, TCP_FIN_WAIT1);
        if (i == 1)
            peer_send(peer, "what nobody reads", 17);
        if (i != 0)
            shutdown(peer, SHUT_WR);
        assert_lingers(channel, i == 0 ? TCP_LAST_ACK : TCP_CLOSING);
        assert_true(peer_receive_to_eof(peer) > 0);
        release_when_closed(channel);
        close(peer);
    }
}

static void without_bytes_it_takes_no_time(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    assert_int_equal(close_it(channel), 0);
    peer_expect_eof(peer);
    release_when_closed(channel);
    close(peer);
}

static void with_zero_it_resets_at_once(void **state)
{
    (void)state;
    int peer;
    char byte;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, 0);
    assert_int_equal(close_it(channel), 0);
    assert_int_equal(recv(peer, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    release_when_closed(channel);
    close(peer);
}

static void unix_sockets_have_nothing_to_wait_for(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = pair_with(UNIX, NULL, &peer);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    fill_up(channel);
    assert_int_equal(close_it(channel), 0);
    assert_true(peer_receive_to_eof(peer) > 0);
    release_when_closed(channel);
    close(peer);
}

static void it_can_be_taken_back(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = full_channel(NULL, FOR_EVER_NS, &peer);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, -1);
    assert_int_equal(close_it(channel), 0); /* and the kernel goes on by itself */
    release_when_closed(channel);
    close(peer);
}

static void reset_ends_a_close_that_waits(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = full_channel(&seen, FOR_EVER_NS, &peer);
    weir_promise *promise = close_lingering(channel);
    weir_channel_reset(channel);
    assert_int_equal(outcome(promise), 0);
    peer_expect_reset(peer);
    release_when_closed(channel);
    assert_int_equal(atomic_load(&seen.inactives), 1);
    close(peer);
}

static int close_and_reset(void *channel)
{
    weir_channel_close(channel, NULL);
    weir_channel_reset(channel);
    weir_channel_reset(channel);
    return 0;
}

static void reset_right_after_close_does_not_wait(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = full_channel(NULL, FOR_EVER_NS, &peer);
    call_on(executor_of(channel), close_and_reset, channel);
    peer_expect_reset(peer);
    release_when_closed(channel);
    close(peer);
}

static atomic_bool is_resetting;

static int count_setsockopt(void *arg, const char *call, size_t *length)
{
    (void)length;
    if (strcmp(call, "setsockopt") == 0 && atomic_load(&is_resetting))
        atomic_fetch_add((atomic_uint *)arg, 1);
    return 0;
}

static void reset_when_closed(record *self, weir_ctx *ctx, const char *event)
{
    (void)self;
    if (strcmp(event, "inactive") != 0 && strcmp(event, "unregistered") != 0)
        return;
    atomic_store(&is_resetting, true);
    weir_channel_reset(weir_ctx_channel(ctx));
    atomic_store(&is_resetting, false);
}

/* Its descriptor may be another connection's by then. */
static void reset_after_the_close_sets_no_socket_option(void **state)
{
    (void)state;
    record seen = { .then = reset_when_closed };
    atomic_uint options = 0;
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    weir_fault_set(count_setsockopt, &options);
    assert_int_equal(close_it(channel), 0);
    release_when_closed(channel);
    weir_fault_set(NULL, NULL);
    assert_int_equal(atomic_load(&seen.inactives), 1);
    assert_int_equal(atomic_load(&seen.unregistereds), 1);
    assert_int_equal(atomic_load(&options), 0);
    close(peer);
}

/* Children have it from their listener, who has it for them or for itself. */
static void children_linger_as_their_listener(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        server *self = calloc(1, sizeof *self);
        new_server(self, TCP);
        if (i == 0)
            set_option(self->listener, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
        else
            assert_int_equal(weir_channel_set_child_option(
                                 self->listener, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS, NULL),
                             0);
        start_server(self);
        int peer = peer_connect(&self->address);
        WAIT_FOR(atomic_load(&self->count) == 1);
        weir_channel *child = self->children[0];
        WAIT_FOR(weir_channel_is_active(child));
        fill_up(child);
        weir_promise *promise = close_lingering(child);
        close(peer);
        assert_int_equal(outcome(promise), 0);
        end_server(self);
    }
}

/* A descriptor that is full, and lingers. */
static int full_descriptor(int *peer)
{
    int fds[2];
    static char bytes[65536];
    struct linger linger = { .l_onoff = 1, .l_linger = (int)(FOR_EVER_NS / WEIR_SECONDS(1)) };
    peer_pair(TCP, fds);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
    while (send(fds[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    *peer = fds[1];
    return fds[0];
}

static void adopted_ones_do_as_they_did_before(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = adopt(WEIR_SOCKET_STREAM, full_descriptor(&peer));
    assert_int_equal(register_it(channel), 0);
    weir_promise *promise = close_lingering(channel);
    assert_false(weir_future_is_done(weir_promise_future(promise)));
    assert_true(peer_receive_to_eof(peer) > 0);
    assert_int_equal(outcome(promise), 0);
    release_when_closed(channel);
    close(peer);
}

/* Nobody waits for it, neither who gives it up nor who closes it; the kernel goes on by itself. */
static void on_no_loop_it_is_closed_at_once(void **state)
{
    (void)state;
    int first, second;
    weir_channel *forgotten = adopt(WEIR_SOCKET_STREAM, full_descriptor(&first));
    weir_channel *closed = adopt(WEIR_SOCKET_STREAM, full_descriptor(&second));
    weir_channel_release(forgotten);
    weir_channel_close(closed, NULL);
    assert_true(is_closed(closed));
    weir_channel_release(closed);
    assert_true(peer_receive_to_eof(first) > 0);
    assert_true(peer_receive_to_eof(second) > 0);
    close(first);
    close(second);
}

typedef struct relay_call {
    weir_channel *from, *to;
    weir_promise *promise;
} relay_call;

static int begin_relay(void *arg)
{
    relay_call *self = arg;
    weir_relay(self->from, self->to, self->promise);
    return 0;
}

/* The relay ends with the closing, and is no reason to believe that that is over. */
static void the_end_of_a_relay_is_not_that_of_the_closing(void **state)
{
    (void)state;
    int source, sink;
    weir_channel *from = pair_with(TCP, NULL, &source);
    weir_channel *to = adopt(WEIR_SOCKET_STREAM, full_descriptor(&sink));
    set_option(to, WEIR_OPTION_AUTO_READ, 0); /* so that nothing else is to be waited for */
    weir_channel_register(to, executor_of(from), NULL);
    WAIT_FOR(weir_channel_is_active(to));
    relay_call call = { from, to, promise_of(from) };
    call_on(executor_of(from), begin_relay, &call);
    settle(executor_of(from));
    weir_channel_close(to, NULL);
    assert_int_equal(outcome(call.promise), WEIR_ECLOSED);
    assert_lingers(to, TCP_FIN_WAIT1);
    assert_true(peer_receive_to_eof(sink) > 0);
    release_when_closed(to);
    end_channel(from);
    close(source);
    close(sink);
}

/* One after another they would take their time together. */
static void each_has_its_own_time(void **state)
{
    (void)state;
    enum { MANY = 24 };
    weir_channel *channels[MANY];
    int peers[MANY];
    for (int i = 0; i < MANY; i++) {
        channels[i] = adopt(WEIR_SOCKET_STREAM, full_descriptor(&peers[i]));
        if (i % 2 == 0)
            set_option(channels[i], WEIR_OPTION_CLOSE_LINGER_NS, WEIR_SECONDS(1));
        assert_int_equal(register_it(channels[i]), 0);
    }
    int64_t begin_ms = now_ms();
    for (int i = 0; i < MANY; i++)
        weir_channel_close(channels[i], NULL);
    for (int i = 0; i < MANY; i += 2)
        release_when_closed(channels[i]);
    assert_in_range(now_ms() - begin_ms, 500, 5000);
    for (int i = 1; i < MANY; i += 2)
        assert_lingers(channels[i], TCP_FIN_WAIT1);
    for (int i = 1; i < MANY; i += 2) {
        assert_true(peer_receive_to_eof(peers[i]) > 0);
        release_when_closed(channels[i]);
    }
    for (int i = 0; i < MANY; i++) {
        if (i % 2 == 0)
            assert_true(peer_receive_to_eof(peers[i]) > 0); /* the kernel goes on by itself */
        close(peers[i]);
    }
}

static void names_are_looked_up_meanwhile(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = full_channel(NULL, FOR_EVER_NS, &peer);
    weir_channel_close(channel, NULL);
    assert_lingers(channel, TCP_FIN_WAIT1);
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(weir_resolve(group, NULL, "localhost:80", promise, NULL), 0);
    assert_int_equal(outcome(promise), 0);
    assert_lingers(channel, TCP_FIN_WAIT1);
    close(peer);
    release_when_closed(channel);
}

/* When it cannot be known what the peer has, nobody waits. */
static void without_an_answer_nobody_waits(void **state)
{
    (void)state;
    static const char *calls[] = { "getsockopt", "shutdown" };
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        int peer;
        weir_channel *channel = full_channel(NULL, FOR_EVER_NS, &peer);
        harness_fail_nth(calls[i], 1, -EIO);
        assert_int_equal(close_it(channel), 0);
        assert_int_equal(harness_fail_end(), 1);
        release_when_closed(channel);
        assert_true(peer_receive_to_eof(peer) > 0);
        close(peer);
    }
}

static int no_memory(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    return strcmp(call, "alloc") == 0 ? -ENOMEM : 0;
}

/* The option does, which is in vain then; closing needs none. */
static void the_option_needs_memory_and_closing_does_not(void **state)
{
    (void)state;
    int64_t linger_ns;
    int peer, fd = full_descriptor(&peer);
    weir_channel *channel;
    harness_fail_nth("alloc", 2, -ENOMEM); /* the first is the channel itself */
    assert_int_equal(weir_channel_from_descriptor(&channel, WEIR_SOCKET_STREAM, fd, NULL), -ENOMEM);
    harness_fail_end();
    assert_int_equal(number_option(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM); /* still the caller's */
    peer_reset(fd);
    close(peer);

    int other;
    channel = half_pair(TCP, NULL, &other);
    for (unsigned nth = 1; nth <= 2; nth++) {
        harness_fail_nth("alloc", nth, -ENOMEM);
        assert_int_equal(
            weir_channel_set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, WEIR_SECONDS(1), NULL),
            -ENOMEM);
        harness_fail_end();
    }
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, &linger_ns), 0);
    assert_int_equal(linger_ns, WEIR_OFF);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    assert_int_equal(register_it(channel), 0);
    fill_up(channel);
    weir_future *closed = weir_channel_closed(channel);
    weir_fault_set(no_memory, NULL);
    weir_channel_close(channel, NULL); /* the loop had no timer before: it cannot have one now */
    assert_int_equal(weir_future_wait(closed, WEIR_MS(PATIENCE_MS)), 0);
    weir_fault_set(NULL, NULL);
    release_when_closed(channel);
    assert_true(peer_receive_to_eof(other) > 0);
    close(other);
}

/* Neither for who lingers already, nor for who has to go because of it. */
static void a_group_that_ends_does_not_wait(void **state)
{
    (void)state;
    record seen[2] = { 0 };
    weir_channel *channels[2];
    int peers[2];
    for (int i = 0; i < 2; i++)
        channels[i] = full_channel(&seen[i], FOR_EVER_NS, &peers[i]);
    weir_channel_close(channels[0], NULL);
    assert_lingers(channels[0], TCP_FIN_WAIT1);
    weir_group_shutdown(group, 0, WEIR_MS(PATIENCE_MS));
    weir_group_free(group);
    group = NULL;
    for (int i = 0; i < 2; i++) {
        assert_true(is_closed(channels[i]));
        assert_int_equal(atomic_load(&seen[i].inactives), 1);
        weir_channel_release(channels[i]);
        assert_true(peer_receive_to_eof(peers[i]) > 0); /* the kernel goes on by itself */
        close(peers[i]);
    }
}

/* One that is stepped by hand lingers between its steps, none of which waits for it. */
static void no_step_waits(void **state)
{
    (void)state;
    weir_group *manual = NULL;
    int64_t longest_ms = 0;
    int peer;
    assert_int_equal(
        weir_group_new(&manual, &(weir_group_config){ .loops = 1, .is_manual = true }, NULL), 0);
    weir_channel *channel = adopt(WEIR_SOCKET_STREAM, full_descriptor(&peer));
    weir_group_register(manual, channel, NULL);
    WAIT_FOR_STEPPING(weir_channel_is_active(channel), weir_group_step(manual));
    weir_channel_close(channel, NULL);
    for (int i = 0; weir_channel_get_state(channel) != WEIR_CHANNEL_UNREGISTERED; i++) {
        int64_t begin_ms = now_ms();
        weir_group_step(manual);
        int64_t taken_ms = now_ms() - begin_ms;
        longest_ms = taken_ms > longest_ms ? taken_ms : longest_ms;
        if (i == 100) {
            assert_int_equal(tcp_state(channel), TCP_FIN_WAIT1);
            assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_CLOSING);
            assert_true(peer_receive_to_eof(peer) > 0);
        }
    }
    assert_in_range(longest_ms, 0, FOR_EVER_NS / WEIR_MS(1) / 20);
    weir_channel_release(channel);
    end_group(manual);
    close(peer);
}

/* What is accepted and no channel is closed at once, though it has the option from its listener. */
static const struct trouble {
    const char *call;
    unsigned nth;
    int code;
} troubles[] = {
    { "alloc", 1, -ENOMEM }, /* the channel */
    { "alloc", 2, -ENOMEM }, /* its extras */
    { "alloc", 3, -ENOMEM }, /* what it waits with */
    { "accept4", 1, -EMFILE },
};
static _Atomic(const struct trouble *) trouble;
static atomic_uint calls, switched_off;

static int make_trouble(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    const struct trouble *made = atomic_load(&trouble);
    if (strcmp(call, "setsockopt") == 0)
        atomic_fetch_add(&switched_off, 1);
    bool is_it = strcmp(call, made->call) == 0;
    return is_it && atomic_fetch_add(&calls, 1) + 1 == made->nth ? made->code : 0;
}

static void who_is_turned_away_is_not_waited_for(void **state)
{
    (void)state;
    server *self = calloc(1, sizeof *self);
    new_server(self, TCP);
    set_option(self->listener, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    start_server(self);
    harness_log_begin(WEIR_LOG_OFF);
    for (size_t i = 0; i < COUNT_OF(troubles); i++) {
        settle_calls(self->listener); /* it has found out that there are no more */
        atomic_store(&trouble, &troubles[i]);
        atomic_store(&calls, 0);
        atomic_store(&switched_off, 0);
        weir_fault_set(make_trouble, NULL);
        int peer = peer_connect(&self->address);
        peer_expect_over(peer);
        weir_fault_set(NULL, NULL);
        assert_int_equal(atomic_load(&switched_off), 1);
        close(peer);
    }
    harness_log_end();
    assert_int_equal(atomic_load(&self->count), 0);
    end_server(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loop_cases(closing_one_channel_does_not_stop_the_others),
        socket_cases(it_is_closed_when_the_peer_has_everything),
        socket_cases(it_waits_when_the_peer_has_ended_too),
        socket_cases(without_bytes_it_takes_no_time),
        socket_cases(with_zero_it_resets_at_once),
        socket_cases(unix_sockets_have_nothing_to_wait_for),
        socket_cases(it_can_be_taken_back),
        socket_cases(reset_ends_a_close_that_waits),
        socket_cases(reset_right_after_close_does_not_wait),
        socket_cases(reset_after_the_close_sets_no_socket_option),
        socket_cases(children_linger_as_their_listener),
        socket_cases(adopted_ones_do_as_they_did_before),
        loop_cases(on_no_loop_it_is_closed_at_once),
        loop_cases(the_end_of_a_relay_is_not_that_of_the_closing),
        socket_cases(each_has_its_own_time),
        loop_cases(names_are_looked_up_meanwhile),
        socket_cases(without_an_answer_nobody_waits),
        loop_cases(the_option_needs_memory_and_closing_does_not),
        socket_cases(a_group_that_ends_does_not_wait),
        loop_cases(no_step_waits),
        call_cases(who_is_turned_away_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
