/* SPDX-License-Identifier: MIT */
/* Listeners: what they accept, in which order, and what they do when they cannot. */
#include "transport/sockets.h"

#include <sys/resource.h>

static server *new_quiet_server(int stream)
{
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    new_server(self, stream);
    return self;
}

static void wait_for_children(server *self, unsigned count)
{
    WAIT_FOR(atomic_load(&self->count) >= count);
}

/* Binding -------------------------------------------------------------------------------------- */

static void s125_a_used_port_fails_the_promise(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= TCP6; stream++) {
        server *first = open_server(stream);
        weir_channel *second = new_channel(WEIR_SOCKET_LISTENER, &first->address);
        assert_int_equal(register_it(second), 0);
        assert_int_equal(bind_to(second, &first->address), -EADDRINUSE);
        assert_int_equal(weir_channel_get_state(second), WEIR_CHANNEL_REGISTERED);
        /* It may try another one. */
        weir_address other = any_address(stream);
        assert_int_equal(bind_to(second, &other), 0);
        end_channel(second);
        int peer = peer_connect(&first->address);
        wait_for_children(first, 1);
        close(peer);
        end_server(first);
    }
}

static void bound_once_and_not_again(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    weir_address other = any_port();
    assert_int_equal(bind_to(self->listener, &other), -EINVAL);
    WAIT_FOR(atomic_load(&self->record.actives) == 1);
    weir_address now = local_of(self->listener);
    assert_true(weir_address_equal(&now, &self->address));
    end_server(self);
}

static void what_a_listener_cannot_do(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    weir_address address = any_port();
    weir_tcp_info info;
    weir_credentials credentials;
    assert_int_equal(connect_to(self->listener, &address), -EOPNOTSUPP);
    assert_int_equal(write_it(self->listener, text_msg("x")), -EOPNOTSUPP);
    assert_int_equal(weir_channel_remote_address(self->listener, &address), WEIR_ENOTFOUND);
    assert_int_equal(weir_channel_tcp_info(self->listener, &info), -EOPNOTSUPP);
    assert_int_equal(weir_channel_credentials(self->listener, &credentials), -EOPNOTSUPP);
    assert_int_equal(shutdown_it(self->listener), -EOPNOTSUPP);
    end_server(self);
}

static void s130_the_backlog_is_the_kernels(void **state)
{
    (void)state;
    struct tcp_info info = { 0 };
    socklen_t length = sizeof info;
    server *self = new_quiet_server(TCP);
    set_option(self->listener, WEIR_OPTION_BACKLOG, 77);
    start_server(self);
    int fd = weir_channel_descriptor(self->listener);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    assert_int_equal(info.tcpi_sacked, 77);
    set_option(self->listener, WEIR_OPTION_BACKLOG, 5);
    settle_calls(self->listener);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    assert_int_equal(info.tcpi_sacked, 5);
    end_server(self);
}

/* Accepting ------------------------------------------------------------------------------------ */

static void s117_children_come_in_batches(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        int peers[40];
        char expected[1024] = "registered active ";
        blocker hold;
        server *self = open_server(stream);
        self->drops = true;
        block(&hold, executor_of(self->listener));
        for (size_t i = 0; i < COUNT_OF(peers); i++)
            peers[i] = peer_connect(&self->address);
        unblock(&hold);
        WAIT_FOR(atomic_load(&self->record.completes) == 3);
        for (size_t i = 1; i <= COUNT_OF(peers); i++) {
            size_t length = strlen(expected);
            bool is_last = i % 16 == 0 || i == COUNT_OF(peers);
            snprintf(expected + length, sizeof expected - length, "child %s",
                     is_last ? "complete " : "");
        }
        assert_story(&self->record, expected);
        assert_int_equal(stats_of_listener(self).accepted, COUNT_OF(peers));
        for (size_t i = 0; i < COUNT_OF(peers); i++) {
            peer_expect_eof(peers[i]); /* nobody took it out of the message */
            close(peers[i]);
        }
        assert_int_equal(stats_of_listener(self).connections, 0);
        end_server(self);
    }
}

static void children_know_both_addresses_also_when_they_are_closed(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= TCP6; stream++) {
        server *self = open_server(stream);
        int peer = peer_connect(&self->address);
        wait_for_children(self, 1);
        weir_channel *child = self->children[0];
        weir_address name = name_of_fd(peer), remote;
        assert_ptr_equal(weir_channel_parent(child), self->listener);
        assert_string_equal(weir_channel_kind(child), "tcp");
        remote = local_of(child);
        assert_true(weir_address_equal(&remote, &self->address));
        assert_int_equal(weir_channel_remote_address(child, &remote), 0);
        assert_true(weir_address_equal(&remote, &name));
        peer_reset(peer);
        wait_for_close(child);
        assert_int_equal(weir_channel_remote_address(child, &remote), 0);
        assert_true(weir_address_equal(&remote, &name));
        assert_int_equal(weir_channel_local_address(child, &remote), WEIR_ENOTFOUND);
        end_server(self);
    }
}

static void both_families_come_to_one_listener(void **state)
{
    (void)state;
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->address = address_of(":0");
    self->records = calloc(MOST_CHILDREN, sizeof *self->records);
    self->listener = new_channel(WEIR_SOCKET_LISTENER, &self->address);
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(self->listener), "acceptor", &acceptor, self),
        0);
    start_server(self);
    weir_address four = address_of("127.0.0.1:0"), six = address_of("[::1]:0"), remote;
    weir_address_set_port(&four, weir_address_port(&self->address));
    weir_address_set_port(&six, weir_address_port(&self->address));
    int peers[2] = { peer_connect(&four), -1 };
    wait_for_children(self, 1);
    peers[1] = peer_connect(&six);
    wait_for_children(self, 2);
    assert_int_equal(weir_channel_remote_address(self->children[0], &remote), 0);
    assert_true(weir_address_unmap(&remote));
    weir_address name = name_of_fd(peers[0]);
    assert_true(weir_address_equal(&remote, &name));
    close(peers[0]);
    close(peers[1]);
    end_server(self);
}

static void without_auto_read_one_read_is_one_child(void **state)
{
    (void)state;
    int peers[3];
    server *self = new_quiet_server(TCP);
    set_option(self->listener, WEIR_OPTION_AUTO_READ, 0);
    start_server(self);
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        peers[i] = peer_connect(&self->address);
    assert_idle(self->listener);
    assert_int_equal(atomic_load(&self->count), 0);
    for (unsigned i = 1; i <= 2; i++) {
        weir_channel_read(self->listener);
        WAIT_FOR(atomic_load(&self->record.completes) == i);
        assert_idle(self->listener);
        assert_int_equal(atomic_load(&self->count), i);
    }
    set_option(self->listener, WEIR_OPTION_AUTO_READ, 1);
    wait_for_children(self, 3);
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        close(peers[i]);
    end_server(self);
}

static void close_listener(record *seen, weir_ctx *ctx, const char *event)
{
    server *self = seen->arg;
    (void)ctx;
    if (strcmp(event, "registered") == 0)
        weir_channel_close(self->listener, NULL);
}

static void children_live_without_their_listener(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    self->is_echo = true;
    settle_calls(self->listener); /* which has seen that */
    int peer = peer_connect(&self->address);
    wait_for_children(self, 1);
    assert_int_equal(close_it(self->listener), 0);
    peer_send(peer, "still here", 10);
    peer_expect_text(peer, "still here");
    close(peer);
    end_server(self);

    /* One of them closes it. */
    self = open_server(TCP);
    self->then = close_listener;
    settle_calls(self->listener);
    peer = peer_connect(&self->address);
    wait_for_close(self->listener);
    close(peer);
    end_server(self);
}

static void closed_inside_its_own_callbacks_do(record *seen, weir_ctx *ctx, const char *event)
{
    if (strcmp(event, seen->arg) == 0)
        weir_ctx_close(ctx, NULL);
}

static void closed_inside_its_own_callbacks(void **state)
{
    (void)state;
    const char *events[] = { "registered", "active", "complete", "inactive", "unregistered" };
    for (size_t i = 0; i < COUNT_OF(events); i++) {
        server *self = new_quiet_server(TCP);
        self->record.then = closed_inside_its_own_callbacks_do;
        self->record.arg = (void *)events[i];
        int peer = -1;
        assert_int_equal(register_it(self->listener), 0);
        int code = bind_to(self->listener, &self->address);
        assert_true(code == 0 || (code == WEIR_ECLOSED && i == 0));
        if (i == 2) {
            self->address = local_of(self->listener);
            peer = peer_connect(&self->address);
        } else if (i > 2) {
            weir_channel_close(self->listener, NULL);
        }
        wait_for_close(self->listener);
        if (peer >= 0)
            close(peer);
        end_server(self);
    }
}

/* The kernel resets those that nobody has accepted. */
static void closed_with_a_thousand_waiting(void **state)
{
    (void)state;
    enum { PEERS = 1000 };
    static int peers[PEERS];
    blocker hold;
    server *self = open_server(TCP);
    block(&hold, executor_of(self->listener));
    for (int i = 0; i < PEERS; i++)
        peers[i] = peer_connect(&self->address);
    weir_channel_close(self->listener, NULL);
    unblock(&hold);
    wait_for_close(self->listener);
    assert_in_range(stats_of_listener(self).accepted, 0, 64);
    end_server(self);
    for (int i = 0; i < PEERS; i++) {
        peer_expect_over(peers[i]);
        close(peers[i]);
    }
}

/* Connections that are gone -------------------------------------------------------------------- */

static void reset_while_they_waited(void **state)
{
    (void)state;
    int peers[20];
    blocker hold;
    server *self = open_server(TCP);
    block(&hold, executor_of(self->listener));
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        peers[i] = peer_connect(&self->address);
    for (size_t i = 0; i < COUNT_OF(peers); i++) {
        if (i % 2 == 0)
            peer_reset(peers[i]);
    }
    unblock(&hold);
    wait_for_children(self, 10);
    WAIT_FOR(stats_of_listener(self).failed + stats_of_listener(self).accepted == 20);
    for (size_t i = 1; i < COUNT_OF(peers); i += 2)
        close(peers[i]);
    int last = peer_connect(&self->address);
    wait_for_children(self, (unsigned)stats_of_listener(self).accepted);
    close(last);
    end_server(self);
}

/* What accept answers, for so many times. */
static struct {
    atomic_int code, times;
    atomic_uint calls;
} odd_accept;

static int fail_accept(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    if (strcmp(call, "accept4") != 0)
        return 0;
    atomic_fetch_add(&odd_accept.calls, 1);
    return atomic_load(&odd_accept.times) > 0 && atomic_fetch_sub(&odd_accept.times, 1) > 0
               ? atomic_load(&odd_accept.code)
               : 0;
}

static void nothing_stops_a_listener(void **state)
{
    (void)state;
    const struct {
        int code;
        bool is_pause;
    } cases[] = {
        { -ECONNABORTED, false }, { -EPROTO, false },      { -EPERM, false },
        { -ENETDOWN, false },     { -ENETUNREACH, false }, { -EHOSTDOWN, false },
        { -EHOSTUNREACH, false }, { -ENONET, false },      { -ENOPROTOOPT, false },
        { -EOPNOTSUPP, false },   { -ETIMEDOUT, false },   { -ENOBUFS, true },
        { -ENOMEM, true },        { -EINVAL, true },       { -EMFILE, true },
        { -ENFILE, true },
    };
    weir_fault_set(fail_accept, NULL);
    server *self = open_server(TCP);
    for (unsigned i = 0; i < COUNT_OF(cases); i++) {
        weir_listener_stats before = stats_of_listener(self), after;
        atomic_store(&odd_accept.code, cases[i].code);
        atomic_store(&odd_accept.times, 3);
        int peer = peer_connect(&self->address);
        WAIT_FOR(stats_of_listener(self).accepted + stats_of_listener(self).refused >
                 before.accepted + before.refused);
        WAIT_FOR(atomic_load(&odd_accept.times) <= 0);
        after = stats_of_listener(self);
        assert_int_equal(after.failed - before.failed, cases[i].is_pause ? 0 : 3);
        assert_true(cases[i].is_pause == (after.pauses > before.pauses));
        close(peer);
    }
    end_server(self);
    weir_fault_set(NULL, NULL);
}

/* Without descriptors -------------------------------------------------------------------------- */

static void the_reserve_tells_those_who_find_no_descriptor(void **state)
{
    (void)state;
    enum { PEERS = 10 };
    int peers[PEERS];
    struct rlimit limit, none;
    blocker hold;
    harness_log_begin(WEIR_LOG_WARN);
    server *self = open_server(TCP);
    self->is_echo = true;
    settle(weir_group_at(group, 0)); /* their own descriptors are there */
    settle(weir_group_at(group, 1));
    block(&hold, executor_of(self->listener));
    for (int i = 0; i < PEERS; i++)
        peers[i] = peer_connect(&self->address);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    int highest = dup(0);
    close(highest);
    none.rlim_cur = (rlim_t)highest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    unblock(&hold);
    /* Nobody is left waiting: each is told. */
    for (int i = 0; i < PEERS; i++)
        peer_expect_over(peers[i]);
    WAIT_FOR(stats_of_listener(self).pauses >= 1);
    weir_listener_stats stats = stats_of_listener(self);
    assert_int_equal(stats.refused, PEERS);
    assert_int_equal(stats.accepted, 0);
    uint64_t polls = stats_of_loop(self->listener).polls;
    int64_t began_ns = weir_clock_now_ns(weir_clock_monotonic());
    usleep(50000);
    polls = stats_of_loop(self->listener).polls - polls;
    int64_t took_ms = (weir_clock_now_ns(weir_clock_monotonic()) - began_ns) / WEIR_MS(1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_in_range(polls, 0, 5 + 3 * took_ms / 100); /* it is at rest, and tries every 100 ms */
    for (int i = 0; i < PEERS; i++)
        close(peers[i]);
    int peer = peer_connect(&self->address);
    peer_send(peer, "again", 5);
    peer_expect_text(peer, "again"); /* by itself */
    close(peer);
    assert_true(harness_log_has("reads nothing for 100 ms: Too many open files"));
    end_server(self);
    harness_log_end();
}

/* While it rests, it can be closed, moved, and told to read or not to. */
static void what_happens_during_a_pause(void **state)
{
    (void)state;
    weir_fault_set(fail_accept, NULL);
    for (int what = 0; what < 5; what++) {
        server *self = open_server(TCP);
        atomic_store(&odd_accept.code, -ENOBUFS);
        atomic_store(&odd_accept.times, 1);
        int peer = peer_connect(&self->address);
        WAIT_FOR(stats_of_listener(self).pauses == 1);
        weir_promise *promise = promise_of(self->listener);
        switch (what) {
        case 0:
            weir_channel_close(self->listener, promise);
            break;
        case 1:
            set_option(self->listener, WEIR_OPTION_AUTO_READ, 0);
            set_option(self->listener, WEIR_OPTION_AUTO_READ, 1);
            weir_promise_set(promise, 0);
            break;
        case 2:
            weir_channel_deregister(self->listener, promise);
            WAIT_FOR(weir_channel_get_state(self->listener) == WEIR_CHANNEL_OPEN);
            weir_channel_register(self->listener, weir_group_next(group), NULL);
            break;
        case 3:
            weir_channel_move(self->listener, weir_group_next(group), promise);
            break;
        default:
            weir_channel_read(self->listener);
            weir_promise_set(promise, 0);
            break;
        }
        assert_int_equal(outcome(promise), 0);
        if (what > 0)
            wait_for_children(self, 1);
        close(peer);
        end_server(self);
    }
    weir_fault_set(NULL, NULL);
}

/* The limit ------------------------------------------------------------------------------------ */

static void no_more_than_so_many_connections(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        int peers[6];
        server *self = new_quiet_server(stream);
        set_option(self->listener, WEIR_OPTION_MAX_CONNECTIONS, 2);
        start_server(self);
        for (size_t i = 0; i < COUNT_OF(peers); i++)
            peers[i] = peer_connect(&self->address);
        wait_for_children(self, 2);
        WAIT_FOR(stats_of_listener(self).limited == 1);
        assert_idle(self->listener);
        assert_int_equal(stats_of_listener(self).connections, 2);
        assert_int_equal(atomic_load(&self->count), 2);
        for (unsigned i = 0; i < 2; i++) { /* one closes, one comes */
            close(peers[i]);
            wait_for_children(self, 3 + i);
            WAIT_FOR(stats_of_listener(self).limited == 2 + i);
            assert_idle(self->listener);
            assert_int_equal(atomic_load(&self->count), 3 + i);
            assert_int_equal(stats_of_listener(self).connections, 2);
        }
        /* One more is allowed; and then any number. */
        set_option(self->listener, WEIR_OPTION_MAX_CONNECTIONS, 3);
        wait_for_children(self, 5);
        WAIT_FOR(stats_of_listener(self).limited == 4);
        assert_idle(self->listener);
        assert_int_equal(atomic_load(&self->count), 5);
        set_option(self->listener, WEIR_OPTION_MAX_CONNECTIONS, 0);
        wait_for_children(self, 6);
        for (size_t i = 2; i < COUNT_OF(peers); i++)
            close(peers[i]);
        WAIT_FOR(stats_of_listener(self).connections == 0);
        end_server(self);
    }
}

/* Children that nobody registers count until their last reference goes. */
static void the_limit_counts_what_is_on_no_loop(void **state)
{
    (void)state;
    int peers[3];
    server *self = new_quiet_server(TCP);
    self->lets_be = true;
    set_option(self->listener, WEIR_OPTION_MAX_CONNECTIONS, 1);
    start_server(self);
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        peers[i] = peer_connect(&self->address);
    for (unsigned i = 0; i < COUNT_OF(peers); i++) {
        wait_for_children(self, i + 1);
        assert_idle(self->listener);
        assert_int_equal(atomic_load(&self->count), i + 1);
        assert_int_equal(stats_of_listener(self).connections, 1);
        weir_channel_close(self->children[i], NULL); /* on this thread */
    }
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        close(peers[i]);
    end_server(self);
}

static void close_after_a_read(record *seen, weir_ctx *ctx, const char *event)
{
    server *self = seen->arg;
    if (stats_of_listener(self).connections > 4)
        atomic_store(&self->failure, -1);
    if (strcmp(event, "complete") == 0)
        weir_ctx_close(ctx, NULL);
}

/* Children close on both loops at once, and the listener goes from one to the other. */
static void the_limit_holds_while_many_come_and_go(void **state)
{
    (void)state;
    enum { PEERS = 600 };
    static int peers[PEERS];
    server *self = new_quiet_server(TCP);
    self->then = close_after_a_read;
    set_option(self->listener, WEIR_OPTION_MAX_CONNECTIONS, 4);
    start_server(self);
    for (int i = 0; i < PEERS; i++) {
        peers[i] = peer_connect(&self->address);
        peer_send(peers[i], "x", 1);
        if (i % 10 == 0) {
            weir_promise *promise = promise_of(self->listener);
            weir_channel_move(self->listener, weir_group_at(group, (size_t)(i / 10 % 2)), promise);
            assert_int_equal(outcome(promise), 0);
        }
    }
    for (int i = 0; i < PEERS; i++) {
        peer_expect_over(peers[i]);
        close(peers[i]);
    }
    wait_for_children(self, PEERS);
    WAIT_FOR(stats_of_listener(self).connections == 0);
    assert_int_equal(atomic_load(&self->failure), 0);
    assert_int_equal(stats_of_listener(self).accepted, PEERS);
    end_server(self);
}

/* Moving --------------------------------------------------------------------------------------- */

static void moved_while_they_come(void **state)
{
    (void)state;
    enum { PEERS = 200 };
    static int peers[PEERS];
    server *self = open_server(TCP);
    self->is_echo = true;
    for (int i = 0; i < PEERS; i++) {
        weir_promise *promise = promise_of(self->listener);
        weir_channel_move(self->listener, weir_group_at(group, (size_t)(i % 2)), promise);
        peers[i] = peer_connect(&self->address);
        peer_send(peers[i], "x", 1);
        assert_int_equal(outcome(promise), 0);
    }
    for (int i = 0; i < PEERS; i++) {
        peer_expect_text(peers[i], "x");
        close(peers[i]);
    }
    assert_int_equal(stats_of_listener(self).accepted, PEERS);
    end_server(self);
}

/* Other ends ----------------------------------------------------------------------------------- */

static void children_of_a_group_that_has_ended_are_closed(void **state)
{
    (void)state;
    weir_group *other = new_loops(&(weir_group_config){ .loops = 1, .watchdog_ns = WEIR_OFF });
    weir_group *own = group;
    server *self = open_server(TCP);
    settle(weir_group_at(other, 0));
    assert_int_equal(weir_group_shutdown(other, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(other)), 0);
    group = other; /* where children are put */
    settle_calls(self->listener);
    for (unsigned i = 1; i <= 3; i++) {
        int peer = peer_connect(&self->address);
        peer_expect_over(peer);
        close(peer);
        WAIT_FOR(stats_of_listener(self).accepted == i);
        wait_for_children(self, i);
    }
    WAIT_FOR(stats_of_listener(self).connections == 0);
    group = own;
    end_server(self);
    weir_group_free(other);
}

static void the_loops_end_while_they_come(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    int peers[20];
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        peers[i] = peer_connect(&self->address);
    end_group(group);
    group = NULL;
    for (size_t i = 0; i < COUNT_OF(peers); i++) {
        peer_expect_over(peers[i]);
        close(peers[i]);
    }
    assert_int_equal(weir_channel_get_state(self->listener), WEIR_CHANNEL_UNREGISTERED);
    assert_int_equal(stats_of_listener(self).connections, 0);
    end_server(self);
}

static void only_listeners_have_their_numbers(void **state)
{
    (void)state;
    weir_listener_stats stats;
    int peer;
    weir_channel *channel = half_pair(TCP, NULL, &peer);
    assert_int_equal(weir_channel_listener_stats(channel, &stats), -EOPNOTSUPP);
    assert_int_equal(weir_channel_listener_stats(NULL, &stats), -EINVAL);
    weir_channel_release(channel);
    close(peer);
    server *self = open_server(TCP);
    assert_int_equal(weir_channel_listener_stats(self->listener, NULL), -EINVAL);
    end_server(self);
}

static void a_message_gives_its_channel_once(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_new(1);
    assert_null(weir_accepted_take(&buf->msg));
    assert_null(weir_accepted_take(NULL));
    weir_buf_release(buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(s125_a_used_port_fails_the_promise),
        socket_cases(bound_once_and_not_again),
        socket_cases(what_a_listener_cannot_do),
        socket_cases(s130_the_backlog_is_the_kernels),
        socket_cases(s117_children_come_in_batches),
        socket_cases(children_know_both_addresses_also_when_they_are_closed),
        socket_cases(both_families_come_to_one_listener),
        socket_cases(without_auto_read_one_read_is_one_child),
        socket_cases(children_live_without_their_listener),
        socket_cases(closed_inside_its_own_callbacks),
        socket_cases(closed_with_a_thousand_waiting),
        socket_cases(reset_while_they_waited),
        call_cases(nothing_stops_a_listener),
        epoll_case(the_reserve_tells_those_who_find_no_descriptor),
        epoll_case(what_happens_during_a_pause),
        socket_cases(no_more_than_so_many_connections),
        socket_cases(the_limit_counts_what_is_on_no_loop),
        loop_cases(the_limit_holds_while_many_come_and_go),
        loop_cases(moved_while_they_come),
        loop_cases(children_of_a_group_that_has_ended_are_closed),
        socket_cases(the_loops_end_while_they_come),
        socket_cases(only_listeners_have_their_numbers),
        socket_cases(a_message_gives_its_channel_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
