/* SPDX-License-Identifier: MIT */
/* The options of sockets, what can be asked of them, and channels of descriptors. */
#include "transport/sockets.h"

#include <fcntl.h>
#include <sys/eventfd.h>

/* Which channels have an option. */
enum {
    TCP_STREAM = 1,
    TCP6_STREAM = 2,
    UNIX_STREAM = 4,
    TCP_LISTENER = 8,
    UNIX_LISTENER = 16,
    KINDS = 5,
    INET = TCP_STREAM | TCP6_STREAM | TCP_LISTENER,
    ALL = INET | UNIX_STREAM | UNIX_LISTENER,
    LISTENERS = TCP_LISTENER | UNIX_LISTENER,
};

typedef struct option_case {
    weir_option option;
    int64_t value, least, most; /* set, and what may come back */
    unsigned kinds;
    bool is_childs; /* getsockopt on an accepted one shows what was set for children */
    int level, name;
    bool may_lack; /* not every kernel has it, or lets everybody set it */
} option_case;

#define EXACTLY(value) value, value, value

static const option_case cases[] = {
    { WEIR_OPTION_RECEIVE_BUFFER_BYTES, 20000, 20000, 80000, ALL, true, SOL_SOCKET, SO_RCVBUF, 0 },
    { WEIR_OPTION_SEND_BUFFER_BYTES, 20000, 20000, 80000, ALL, true, SOL_SOCKET, SO_SNDBUF, 0 },
    { WEIR_OPTION_RECEIVE_LOW_BYTES, EXACTLY(3), ALL, true, SOL_SOCKET, SO_RCVLOWAT, 0 },
    { WEIR_OPTION_REUSE_ADDRESS, EXACTLY(1), ALL, true, SOL_SOCKET, SO_REUSEADDR, 0 },
    { WEIR_OPTION_REUSE_PORT, EXACTLY(1), INET, true, SOL_SOCKET, SO_REUSEPORT, 0 },
    { WEIR_OPTION_PRIORITY, EXACTLY(5), ALL, true, SOL_SOCKET, SO_PRIORITY, 0 },
    { WEIR_OPTION_MARK, EXACTLY(7), ALL, true, SOL_SOCKET, SO_MARK, true },
    { WEIR_OPTION_BUSY_POLL_NS, EXACTLY(WEIR_US(50)), ALL, true, SOL_SOCKET, SO_BUSY_POLL, true },
    { WEIR_OPTION_INCOMING_CPU, EXACTLY(0), INET, false, SOL_SOCKET, SO_INCOMING_CPU, 0 },
    { WEIR_OPTION_BIND_INTERFACE, EXACTLY(1), INET, true, SOL_SOCKET, SO_BINDTOIFINDEX, true },
    { WEIR_OPTION_TOS, EXACTLY(16), INET, true, IPPROTO_IP, IP_TOS, 0 },
    { WEIR_OPTION_TTL, EXACTLY(33), INET, true, IPPROTO_IP, IP_TTL, 0 },
    { WEIR_OPTION_FREE_BIND, EXACTLY(1), INET, true, IPPROTO_IP, IP_FREEBIND, 0 },
    { WEIR_OPTION_TRANSPARENT, EXACTLY(1), INET, true, IPPROTO_IP, IP_TRANSPARENT, true },
    { WEIR_OPTION_IPV6_ONLY, EXACTLY(1), TCP6_STREAM, false, 0, 0, 0 },
    { WEIR_OPTION_PATH_MTU_DISCOVERY, EXACTLY(2), INET, true, IPPROTO_IP, IP_MTU_DISCOVER, 0 },
    { WEIR_OPTION_BIND_ADDRESS_NO_PORT, EXACTLY(1), TCP_STREAM | TCP6_STREAM, true, IPPROTO_IP,
      IP_BIND_ADDRESS_NO_PORT, 0 },
    { WEIR_OPTION_NO_DELAY, EXACTLY(0), INET, true, IPPROTO_TCP, TCP_NODELAY, 0 },
    { WEIR_OPTION_CORK, EXACTLY(1), INET, true, IPPROTO_TCP, TCP_CORK, 0 },
    { WEIR_OPTION_QUICK_ACK, 0, 0, 1, INET, false, IPPROTO_TCP, TCP_QUICKACK, 0 },
    { WEIR_OPTION_KEEP_ALIVE, EXACTLY(1), INET, true, SOL_SOCKET, SO_KEEPALIVE, 0 },
    { WEIR_OPTION_KEEP_IDLE_NS, EXACTLY(WEIR_SECONDS(77)), INET, true, IPPROTO_TCP, TCP_KEEPIDLE,
      0 },
    { WEIR_OPTION_KEEP_INTERVAL_NS, EXACTLY(WEIR_SECONDS(7)), INET, true, IPPROTO_TCP,
      TCP_KEEPINTVL, 0 },
    { WEIR_OPTION_KEEP_COUNT, EXACTLY(3), INET, true, IPPROTO_TCP, TCP_KEEPCNT, 0 },
    { WEIR_OPTION_USER_TIMEOUT_NS, EXACTLY(WEIR_MS(1234)), INET, true, IPPROTO_TCP,
      TCP_USER_TIMEOUT, 0 },
    { WEIR_OPTION_NOT_SENT_LOW_BYTES, EXACTLY(4096), INET, true, IPPROTO_TCP, TCP_NOTSENT_LOWAT,
      0 },
    { WEIR_OPTION_MAX_SEGMENT_BYTES, 1000, 500, 1000, INET, true, IPPROTO_TCP, TCP_MAXSEG, 0 },
    { WEIR_OPTION_WINDOW_CLAMP_BYTES, 5000, 2000, 5000, INET, true, IPPROTO_TCP, TCP_WINDOW_CLAMP,
      0 },
    { WEIR_OPTION_SYN_COUNT, EXACTLY(3), INET, true, IPPROTO_TCP, TCP_SYNCNT, 0 },
    { WEIR_OPTION_FAST_OPEN_CONNECT, EXACTLY(1), TCP_STREAM | TCP6_STREAM, false, 0, 0, true },
    { WEIR_OPTION_CLOSE_LINGER_NS, EXACTLY(WEIR_SECONDS(4)), ALL, true, SOL_SOCKET, SO_LINGER, 0 },
    { WEIR_OPTION_BACKLOG, EXACTLY(9), LISTENERS, false, 0, 0, 0 },
    { WEIR_OPTION_MAX_CONNECTIONS, EXACTLY(9), LISTENERS, false, 0, 0, 0 },
    { WEIR_OPTION_DEFER_ACCEPT_NS, WEIR_SECONDS(5), WEIR_SECONDS(5), WEIR_SECONDS(7), TCP_LISTENER,
      false, 0, 0, 0 },
    { WEIR_OPTION_FAST_OPEN, EXACTLY(5), TCP_LISTENER, false, 0, 0, true },
    { WEIR_OPTION_MAX_DATAGRAM_BYTES, EXACTLY(9), 0, false, 0, 0, 0 },
    { WEIR_OPTION_DELIVER_TRUNCATED, EXACTLY(1), 0, false, 0, 0, 0 },
    { WEIR_OPTION_RECEIVE_OFFLOAD, EXACTLY(1), 0, false, 0, 0, 0 },
    { WEIR_OPTION_BROADCAST, EXACTLY(1), 0, false, 0, 0, 0 },
    { WEIR_OPTION_MULTICAST_TTL, EXACTLY(3), 0, false, 0, 0, 0 },
    { WEIR_OPTION_MULTICAST_LOOP, EXACTLY(0), 0, false, 0, 0, 0 },
    { WEIR_OPTION_MULTICAST_INTERFACE, EXACTLY(1), 0, false, 0, 0, 0 },
    { WEIR_OPTION_MULTICAST_ALL, EXACTLY(0), 0, false, 0, 0, 0 },
    { WEIR_OPTION_RECEIVE_ORIGINAL, EXACTLY(1), 0, false, 0, 0, 0 },
    { WEIR_OPTION_MAX_DESCRIPTORS, EXACTLY(9), UNIX_STREAM, false, 0, 0, 0 },
};

static weir_channel *channel_of_kind(int kind)
{
    weir_address address = any_address(kind == 1 ? TCP6 : kind == 2 || kind == 4 ? UNIX : TCP);
    return new_channel(kind < 3 ? WEIR_SOCKET_STREAM : WEIR_SOCKET_LISTENER, &address);
}

static bool may_fail(const option_case *it, int code)
{
    return it->may_lack &&
           (code == -EPERM || code == -ENOPROTOOPT || code == -EOPNOTSUPP || code == -ENODEV);
}

/* Sets an option and reads it back, here or on a loop, where nothing may be asserted. */
typedef struct attempt {
    weir_channel *channel;
    const option_case *it;
    unsigned kind;
    bool is_elsewhere; /* neither on its loop nor without one: the code comes too late */
    char problem[256]; /* empty: none */
} attempt;

static bool is_as_set(const attempt *self, int code, int64_t value)
{
    return code == 0 && value >= self->it->least && value <= self->it->most;
}

static int try_option(void *arg)
{
    attempt *self = arg;
    const char *name = weir_option_get_info(self->it->option)->name;
    int64_t value = -2;
    weir_error error = { .code = 0 };
    int set = weir_channel_set_option(self->channel, self->it->option, self->it->value, &error);
    if (self->is_elsewhere)
        settle_calls(self->channel);
    int got = weir_channel_get_option(self->channel, self->it->option, &value);
    bool is_fine;
    if (!(self->it->kinds & self->kind))
        is_fine = got == -ENOPROTOOPT &&
                  (self->is_elsewhere ||
                   (set == -ENOPROTOOPT && strstr(error.message, name) != NULL));
    else
        is_fine = may_fail(self->it, set) || (set == 0 && is_as_set(self, got, value)) ||
                  (self->is_elsewhere && self->it->may_lack);
    if (!is_fine)
        snprintf(self->problem, sizeof self->problem, "%s on a %s: %d %.80s, %d %d", name,
                 weir_channel_kind(self->channel), set, error.message, got, (int)value);
    return 0;
}

/* Before the channel is on a loop, then on it, by the loop and by somebody else. */
static void expect_option(const option_case *it, int kind)
{
    weir_channel *channels[] = { channel_of_kind(kind), channel_of_kind(kind),
                                 channel_of_kind(kind) };
    attempt before = { .channel = channels[0], .it = it, .kind = 1u << kind };
    attempt by_loop = before, by_another = before;
    int64_t value = -2;
    try_option(&before);
    assert_string_equal(before.problem, "");
    bool is_set = weir_channel_get_option(channels[0], it->option, &value) == 0;
    for (size_t i = 0; i < COUNT_OF(channels); i++)
        assert_int_equal(register_it(channels[i]), 0);
    int64_t later = -2;
    assert_int_equal(weir_channel_get_option(channels[0], it->option, &later) == 0, is_set);
    assert_int_equal(later, value); /* the loop takes nothing away */

    by_loop.channel = channels[1];
    call_on(executor_of(channels[1]), try_option, &by_loop);
    assert_string_equal(by_loop.problem, "");
    by_another.channel = channels[2];
    by_another.is_elsewhere = true;
    try_option(&by_another);
    assert_string_equal(by_another.problem, "");
    for (size_t i = 0; i < COUNT_OF(channels); i++)
        end_channel(channels[i]);
}

/* Each option, on each kind of channel, before and after it is on a loop. */
static void every_option_where_it_belongs(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_WARN); /* that another thread's call has failed is logged */
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < COUNT_OF(cases); i++)
            expect_option(&cases[i], kind);
    harness_log_end();
}

static void no_option_is_forgotten_here(void **state)
{
    (void)state;
    for (int option = WEIR_OPTION_RECEIVE_BUFFER_BYTES; option < WEIR_OPTIONS_END; option++) {
        bool is_there = false;
        for (size_t i = 0; i < COUNT_OF(cases); i++)
            is_there |= (int)cases[i].option == option;
        if (!is_there)
            fail_msg("no case for %s", weir_option_get_info((weir_option)option)->name);
    }
}

/* What the kernel counts the option in. */
static int64_t kernels_unit(weir_option option)
{
    switch (option) {
    case WEIR_OPTION_BUSY_POLL_NS:
        return WEIR_US(1);
    case WEIR_OPTION_USER_TIMEOUT_NS:
        return WEIR_MS(1);
    case WEIR_OPTION_KEEP_IDLE_NS:
    case WEIR_OPTION_KEEP_INTERVAL_NS:
        return WEIR_SECONDS(1);
    default:
        return 1;
    }
}

static int64_t kernels_value(int fd, const option_case *it)
{
    if (it->option != WEIR_OPTION_CLOSE_LINGER_NS)
        return number_option(fd, it->level, it->name) * kernels_unit(it->option);
    struct linger linger;
    socklen_t length = sizeof linger;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length), 0);
    return linger.l_onoff ? WEIR_SECONDS(linger.l_linger) : -1;
}

/* Whether the kernel passes it on or weir sets it, an accepted child has it. */
static void children_have_what_was_set_for_them(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        unsigned kind = stream == TCP ? TCP_STREAM : UNIX_STREAM;
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            const option_case *it = &cases[i];
            if (!it->is_childs || !(it->kinds & kind))
                continue;
            server *self = calloc(1, sizeof *self);
            assert_non_null(self);
            new_server(self, stream);
            int code = weir_channel_set_child_option(self->listener, it->option, it->value, NULL);
            start_server(self);
            if (code == 0) {
                int peer = peer_connect(&self->address);
                WAIT_FOR(atomic_load(&self->count) == 1 || stats_of_listener(self).failed > 0);
                if (stats_of_listener(self).failed == 0) {
                    int64_t value = kernels_value(weir_channel_descriptor(self->children[0]), it);
                    if (value < it->least || value > it->most)
                        fail_msg("a %s child has %s %d", stream == TCP ? "tcp" : "unix",
                                 weir_option_get_info(it->option)->name, (int)value);
                }
                assert_true(stats_of_listener(self).failed == 0 || it->may_lack);
                close(peer);
            } else {
                assert_true(may_fail(it, code));
            }
            end_server(self);
        }
    }
}

/* Some of them have nothing to do with the kernel. */
static void children_have_the_channels_options_too(void **state)
{
    (void)state;
    const weir_option_value values[] = {
        { WEIR_OPTION_AUTO_READ, 0 },           { WEIR_OPTION_ALLOW_HALF_CLOSURE, 1 },
        { WEIR_OPTION_WRITE_HIGH_BYTES, 1000 }, { WEIR_OPTION_MAX_OUTBOUND_BYTES, 5000 },
        { WEIR_OPTION_LINGER_NS, WEIR_MS(7) },
    };
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    new_server(self, TCP);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        assert_int_equal(
            weir_channel_set_child_option(self->listener, values[i].option, values[i].value, NULL),
            0);
    start_server(self);
    int peer = peer_connect(&self->address);
    WAIT_FOR(atomic_load(&self->count) == 1);
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        int64_t value = -1;
        assert_int_equal(weir_channel_get_option(self->children[0], values[i].option, &value), 0);
        assert_int_equal(value, values[i].value);
        assert_int_equal(weir_channel_get_option(self->listener, values[i].option, &value), 0);
        assert_int_not_equal(value, values[i].value);
    }
    close(peer);
    end_server(self);
}

/* One that cannot be set is no reason to let the listener go. */
static void a_child_option_that_no_child_can_have(void **state)
{
    (void)state;
    static const weir_option_value none[] = {
        { WEIR_OPTION_REUSE_PORT, 1 }, /* Unix sockets do not have it */
        { WEIR_OPTION_NO_DELAY, 1 },   /* nor that */
        { WEIR_OPTION_BACKLOG, 1 },    /* listeners have it */
        { WEIR_OPTION_BROADCAST, 1 },  /* datagram channels do */
    };
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    new_server(self, UNIX);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        weir_error error = { 0 };
        assert_int_equal(
            weir_channel_set_child_option(self->listener, none[i].option, none[i].value, &error),
            -ENOPROTOOPT);
        assert_non_null(strstr(error.message, weir_option_get_info(none[i].option)->name));
    }
    assert_int_equal(
        weir_channel_set_child_option(self->listener, WEIR_OPTION_MAX_DESCRIPTORS, 1, NULL), 0);
    start_server(self);
    end_server(self);
}

static void what_is_on_without_asking(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= TCP6; stream++) {
        server *self = open_server(stream);
        int fd = weir_channel_descriptor(self->listener);
        assert_int_equal(number_option(fd, SOL_SOCKET, SO_REUSEADDR), 1);
        weir_channel *client = open_client(&self->address, NULL);
        WAIT_FOR(atomic_load(&self->count) == 1);
        int fds[] = { fd, weir_channel_descriptor(client),
                      weir_channel_descriptor(self->children[0]) };
        for (size_t i = 0; i < COUNT_OF(fds); i++) {
            assert_int_equal(number_option(fds[i], IPPROTO_TCP, TCP_NODELAY), 1);
            assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
            assert_true(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
        }
        assert_int_equal(number_option(fds[1], SOL_SOCKET, SO_REUSEADDR), 0);
        end_channel(client);
        end_server(self);
    }
}

/* So that a short time does not become 0, which is none or the kernel's default. */
static void times_are_rounded_up_to_the_kernels_unit(void **state)
{
    (void)state;
    static const struct {
        weir_option option;
        int64_t value, becomes;
    } rows[] = {
        { WEIR_OPTION_KEEP_IDLE_NS, 1, WEIR_SECONDS(1) },
        { WEIR_OPTION_KEEP_IDLE_NS, WEIR_SECONDS(9), WEIR_SECONDS(9) },
        { WEIR_OPTION_KEEP_INTERVAL_NS, WEIR_SECONDS(9) + 1, WEIR_SECONDS(10) },
        { WEIR_OPTION_USER_TIMEOUT_NS, WEIR_US(1500), WEIR_MS(2) },
        { WEIR_OPTION_USER_TIMEOUT_NS, 0, 0 },
        { WEIR_OPTION_CLOSE_LINGER_NS, WEIR_MS(1), WEIR_SECONDS(1) },
        { WEIR_OPTION_CLOSE_LINGER_NS, WEIR_OFF, WEIR_OFF },
    };
    int peer;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t value = -2;
        set_option(channel, rows[i].option, rows[i].value);
        settle_calls(channel);
        assert_int_equal(weir_channel_get_option(channel, rows[i].option, &value), 0);
        assert_int_equal(value, rows[i].becomes);
    }
    assert_int_equal(close_it(channel), 0);
    wait_for_close(channel);
    weir_channel_release(channel);
    close(peer);
}

static void values_out_of_range_and_channels_that_are_closed(void **state)
{
    (void)state;
    int peer;
    int64_t value;
    weir_error error;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_TTL, 0, &error), -EINVAL);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_TTL, 256, &error), -EINVAL);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, -2, &error),
                     -EINVAL);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, 0);
    set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, -1);
    settle_calls(channel);
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, &value), 0);
    assert_int_equal(value, -1);
    assert_int_equal(close_it(channel), 0);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_TTL, 9, &error), WEIR_ECLOSED);
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_TTL, &value), WEIR_ECLOSED);
    wait_for_close(channel);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_TTL, 9, &error), WEIR_ECLOSED);
    weir_channel_release(channel);
    close(peer);
}

/* What fails on the loop is told by the log. */
static void set_from_another_thread(void **state)
{
    (void)state;
    int peer;
    int64_t value;
    harness_log_begin(WEIR_LOG_WARN);
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_BACKLOG, 5, NULL), 0);
    set_option(channel, WEIR_OPTION_TTL, 44);
    settle_calls(channel);
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_TTL, &value), 0);
    assert_int_equal(value, 44);
    assert_true(harness_log_has("backlog is nothing that a tcp channel has"));
    harness_log_end();
    end_channel(channel);
    close(peer);
}

/* Asking --------------------------------------------------------------------------------------- */

static void what_the_kernel_knows_about_a_connection(void **state)
{
    (void)state;
    weir_tcp_info info;
    record seen = { .is_echo = true };
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    peer_send(peer, "0123456789", 10);
    peer_expect_text(peer, "0123456789");
    assert_int_equal(weir_channel_tcp_info(channel, &info), 0);
    assert_int_equal(info.state, TCP_ESTABLISHED);
    assert_int_equal(info.bytes_received, 10);
    assert_true(info.segment_bytes > 0);
    assert_true(info.send_window_segments > 0);
    assert_int_equal(weir_channel_tcp_info(channel, NULL), -EINVAL);
    assert_int_equal(weir_channel_tcp_info(NULL, &info), -EINVAL);
    weir_credentials credentials;
    assert_int_equal(weir_channel_credentials(channel, &credentials), -EOPNOTSUPP);
    assert_int_equal(close_it(channel), 0);
    assert_int_equal(weir_channel_tcp_info(channel, &info), WEIR_ECLOSED);
    wait_for_close(channel);
    weir_channel_release(channel);
    close(peer);
}

static void who_is_at_the_other_end(void **state)
{
    (void)state;
    weir_credentials credentials;
    weir_tcp_info info;
    int peer;
    weir_channel *channel = pair_with(UNIX, NULL, &peer);
    assert_int_equal(weir_channel_credentials(channel, &credentials), 0);
    assert_int_equal(credentials.pid, getpid());
    assert_int_equal(credentials.uid, getuid());
    assert_int_equal(credentials.gid, getgid());
    assert_int_equal(weir_channel_credentials(channel, NULL), -EINVAL);
    assert_int_equal(weir_channel_credentials(NULL, &credentials), -EINVAL);
    assert_int_equal(weir_channel_tcp_info(channel, &info), -EOPNOTSUPP);
    assert_int_equal(close_it(channel), 0);
    assert_int_equal(weir_channel_credentials(channel, &credentials), WEIR_ECLOSED);
    wait_for_close(channel);
    weir_channel_release(channel);
    close(peer);
}

/* Descriptors ---------------------------------------------------------------------------------- */

static void expect_no_channel(weir_socket_kind kind, int fd, int code)
{
    weir_channel *channel = NULL;
    weir_error error = { .code = 0 };
    int flags = fcntl(fd, F_GETFL);
    assert_int_equal(weir_channel_from_descriptor(&channel, kind, fd, &error), code);
    assert_null(channel);
    assert_int_equal(error.code, code);
    assert_true(strlen(error.message) > 0);
    assert_int_equal(fcntl(fd, F_GETFL), flags); /* as it was, and the caller's */
}

static void descriptors_that_are_something_else(void **state)
{
    (void)state;
    weir_address address = any_port();
    int listener = peer_listen(&address, 1), stream = peer_connect(&address);
    int datagram = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int netlink = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int seqpacket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int event = eventfd(0, EFD_CLOEXEC);
    weir_channel *channel = NULL;
    expect_no_channel(WEIR_SOCKET_STREAM, listener, -EINVAL);
    expect_no_channel(WEIR_SOCKET_DATAGRAM, listener, -EINVAL);
    expect_no_channel(WEIR_SOCKET_DATAGRAM, stream, -EINVAL);
    expect_no_channel(WEIR_SOCKET_LISTENER, stream, -EINVAL);
    expect_no_channel(WEIR_SOCKET_STREAM, datagram, -EINVAL);
    expect_no_channel(WEIR_SOCKET_LISTENER, datagram, -EINVAL);
    expect_no_channel(WEIR_SOCKET_DATAGRAM, netlink, -EAFNOSUPPORT);
    expect_no_channel(WEIR_SOCKET_STREAM, seqpacket, -EINVAL);
    expect_no_channel(WEIR_SOCKET_STREAM, event, -ENOTSOCK);
    expect_no_channel(WEIR_SOCKET_STREAM, -1, -EBADF);
    expect_no_channel(WEIR_SOCKET_STREAM, 1 << 20, -EBADF);
    assert_int_equal(weir_channel_from_descriptor(NULL, WEIR_SOCKET_STREAM, stream, NULL), -EINVAL);
    assert_int_equal(weir_channel_from_descriptor(&channel, (weir_socket_kind)7, stream, NULL),
                     -EINVAL);
    close(event);
    close(seqpacket);
    close(netlink);
    close(datagram);
    close(stream);
    close(listener);
}

static void without_memory_a_descriptor_stays_the_callers(void **state)
{
    (void)state;
    weir_address address = any_port();
    int listener = peer_listen(&address, 1), stream = peer_connect(&address);
    for (int kind = WEIR_SOCKET_STREAM; kind <= WEIR_SOCKET_LISTENER; kind++) {
        weir_channel *channel = NULL;
        int fd = kind == WEIR_SOCKET_STREAM ? stream : listener;
        harness_fail_nth("alloc", 1, -ENOMEM);
        assert_int_equal(weir_channel_from_descriptor(&channel, (weir_socket_kind)kind, fd, NULL),
                         -ENOMEM);
        harness_fail_end();
        assert_true(fcntl(fd, F_GETFD) >= 0);
    }
    close(stream);
    close(listener);
}

static void adopted_connections_are_active_at_once(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { .is_echo = true };
        int fds[2];
        peer_pair(stream, fds);
        fcntl(fds[0], F_SETFD, 0);
        weir_channel *channel = adopt(WEIR_SOCKET_STREAM, fds[0]);
        assert_int_equal(weir_channel_descriptor(channel), fds[0]);
        assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
        add_record(channel, &seen);
        assert_int_equal(register_it(channel), 0);
        peer_send(fds[1], "hello", 5);
        peer_expect_text(fds[1], "hello");
        WAIT_FOR(story_has(&seen, "registered active read complete "));
        end_channel(channel);
        peer_expect_eof(fds[1]);
        close(fds[1]);
    }
}

static void adopted_sockets_can_still_be_connected_and_bound(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    weir_channel *channel = adopt(WEIR_SOCKET_STREAM, socket(AF_INET, SOCK_STREAM, 0));
    assert_int_equal(register_it(channel), 0);
    assert_false(weir_channel_is_active(channel));
    assert_int_equal(connect_to(channel, &self->address), 0);
    end_channel(channel);
    channel = adopt(WEIR_SOCKET_LISTENER, socket(AF_INET, SOCK_STREAM, 0));
    weir_address address = any_port();
    assert_int_equal(register_it(channel), 0);
    assert_int_equal(bind_to(channel, &address), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    end_channel(channel);
    end_server(self);
}

static void adopted_listeners_accept_at_once(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        server *self = calloc(1, sizeof *self);
        assert_non_null(self);
        self->address = any_address(stream);
        self->is_echo = true;
        self->records = calloc(MOST_CHILDREN, sizeof *self->records);
        self->listener = adopt(WEIR_SOCKET_LISTENER, peer_listen(&self->address, 5));
        weir_pipeline *pipeline = weir_channel_pipeline(self->listener);
        assert_int_equal(weir_pipeline_add_last(pipeline, "acceptor", &acceptor, self), 0);
        int peer = peer_connect(&self->address);
        assert_int_equal(register_it(self->listener), 0);
        peer_send(peer, "hello", 5);
        peer_expect_text(peer, "hello");
        close(peer);
        weir_address address = self->address;
        end_server(self);
        if (stream == UNIX) /* which somebody else has bound, so it is not taken away */
            assert_int_equal(access(path_of(&address), F_OK), 0);
        forget_path(&address);
    }
}

static void other_channels_have_no_descriptor(void **state)
{
    (void)state;
    weir_address address = address_of("local:nothing");
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, &address);
    assert_int_equal(weir_channel_descriptor(channel), -EBADF);
    assert_int_equal(weir_channel_descriptor(NULL), -EBADF);
    weir_channel_release(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(every_option_where_it_belongs),
        loop_cases(no_option_is_forgotten_here),
        socket_cases(children_have_what_was_set_for_them),
        socket_cases(children_have_the_channels_options_too),
        socket_cases(a_child_option_that_no_child_can_have),
        socket_cases(what_is_on_without_asking),
        socket_cases(times_are_rounded_up_to_the_kernels_unit),
        socket_cases(values_out_of_range_and_channels_that_are_closed),
        socket_cases(set_from_another_thread),
        socket_cases(what_the_kernel_knows_about_a_connection),
        socket_cases(who_is_at_the_other_end),
        loop_cases(descriptors_that_are_something_else),
        loop_cases(without_memory_a_descriptor_stays_the_callers),
        socket_cases(adopted_connections_are_active_at_once),
        socket_cases(adopted_sockets_can_still_be_connected_and_bound),
        socket_cases(adopted_listeners_accept_at_once),
        loop_cases(other_channels_have_no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
