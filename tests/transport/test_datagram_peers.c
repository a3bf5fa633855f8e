/* SPDX-License-Identifier: MIT */
/* Datagram channels and who is at the other end: connected, gone, full, or not there yet. */
#include "transport/datagrams.h"

/* Connected ------------------------------------------------------------------------------------ */

static uint64_t unreachable_of(const weir_channel *channel)
{
    weir_datagram_stats stats;
    assert_int_equal(weir_channel_datagram_stats(channel, &stats), 0);
    return stats.unreachable;
}

static void a_connected_one_sends_buffers_and_hears_one_only(void **state)
{
    weir_group *group = group_of(state, 2);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    end *stranger = end_bound(group, "127.0.0.1:0");
    weir_address of_a = local_of(a->channel), of_b = local_of(b->channel), remote;
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    assert_int_equal(weir_channel_remote_address(a->channel, &remote), 0);
    assert_address(&remote, &of_b);
    weir_promise *promise = weir_channel_promise(a->channel);
    weir_channel_write_and_flush(a->channel, &text_buf("plain")->msg, promise);
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(send_text(a->channel, "no address", NULL), 0);
    WAIT_FOR(atomic_load(&b->count) == 2);
    assert_true(got(b, 0, "plain") && got(b, 1, "no address"));
    assert_int_equal(send_buf(a->channel, filled_buf(100000, 'x'), NULL), -EMSGSIZE);
    assert_int_equal(unreachable_of(a->channel), 0);
    assert_int_equal(send_text(stranger->channel, "unheard", &of_a), 0);
    assert_int_equal(send_text(b->channel, "heard", &of_a), 0);
    WAIT_FOR(atomic_load(&a->count) == 1);
    assert_true(got(a, 0, "heard"));
    assert_address(&datagram_at(a, 0)->recipient, &of_a);
    promise = weir_channel_promise(a->channel);
    weir_channel_disconnect(a->channel, promise);
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(weir_channel_remote_address(a->channel, &remote), WEIR_ENOTFOUND);
    assert_int_equal(send_text(stranger->channel, "now", &of_a), 0);
    WAIT_FOR(atomic_load(&a->count) == 2);
    assert_true(got(a, 1, "now"));
    assert_int_equal(send_text(a->channel, "to nobody", NULL), -EDESTADDRREQ);
    promise = weir_channel_promise(a->channel);
    weir_channel_disconnect(a->channel, promise);
    assert_int_equal(end_of(promise), -ENOTCONN);
    end_close(a);
    end_close(b);
    end_close(stranger);
    end_group(group);
}

/* While it is connected its address is one, later again any: what was asked is told all the time.
 */
static void after_a_disconnect_the_recipient_is_right(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "0.0.0.0:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel), of_a = local_of(a->channel), to;
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    weir_promise *promise = weir_channel_promise(a->channel);
    weir_channel_disconnect(a->channel, promise);
    assert_int_equal(end_of(promise), 0);
    to = address_of("127.0.0.2:0");
    weir_address_set_port(&to, weir_address_port(&of_a));
    assert_int_equal(send_text(b->channel, "x", &to), 0);
    WAIT_FOR(atomic_load(&a->count) == 1);
    assert_address(&datagram_at(a, 0)->recipient, &to);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Its port was the kernel's choice, and goes with the connection; the next send gets another. */
static void a_disconnected_one_that_was_never_bound_can_be_used(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_open(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    weir_promise *promise = weir_channel_promise(a->channel);
    weir_channel_disconnect(a->channel, promise);
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(send_text(a->channel, "x", &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    weir_address sender = datagram_at(b, 0)->sender, to = address_of("127.0.0.2:0");
    weir_address_set_port(&to, weir_address_port(&sender));
    assert_int_equal(send_text(b->channel, "y", &to), 0);
    WAIT_FOR(atomic_load(&a->count) == 1);
    assert_address(&datagram_at(a, 0)->recipient, &to);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void an_adopted_connected_socket_is_connected(void **state)
{
    weir_group *group = group_of(state, 1);
    end *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    size_t length;
    const struct sockaddr *address = weir_address_sockaddr(&of_b, &length);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, address, (socklen_t)length), 0);
    end *a = end_from(group, WEIR_SOCKET_DATAGRAM, fd);
    WAIT_FOR(weir_channel_is_active(a->channel));
    weir_promise *promise = weir_channel_promise(a->channel);
    weir_channel_write_and_flush(a->channel, &text_buf("x")->msg, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    promise = weir_channel_promise(a->channel);
    weir_channel_disconnect(a->channel, promise);
    assert_int_equal(end_of(promise), 0);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Nobody is there, then somebody is: what is sent then arrives, though the news come late. */
static void nobody_there_is_told_and_later_sends_go_through(void **state)
{
    weir_group *group = group_of(state, 2);
    end *a = end_open(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address_text(&of_b, text, sizeof text);
    end_close(b);
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    assert_int_equal(send_text(a->channel, "anybody?", NULL), 0);
    WAIT_FOR(atomic_load(&a->errors) == 1);
    assert_int_equal(atomic_load(&a->last_error), -ECONNREFUSED);
    assert_int_equal(unreachable_of(a->channel), 1);
    assert_true(weir_channel_is_active(a->channel));
    b = end_bound(group, text);
    for (size_t i = 1; i <= 3; i++) {
        assert_int_equal(send_text(a->channel, "there you are", NULL), 0);
        WAIT_FOR(atomic_load(&b->count) == i);
    }
    end_close(a);
    end_close(b);
    end_group(group);
}

/* The report waits in the socket and comes as the result of a send: that one is sent all the same.
 */
static void a_report_does_not_fail_another_datagram(void **state)
{
    weir_group *group = group_of(state, 2);
    end *a = end_open(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address_text(&of_b, text, sizeof text);
    end_close(b);
    set_option(a->channel, WEIR_OPTION_AUTO_READ, 0);
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    settle_channel(a->channel);
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_text(a->channel, "anybody?", NULL), 0);
    b = end_bound(group, text);
    assert_int_equal(send_text(a->channel, "there", NULL), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    assert_true(got(b, 0, "there"));
    WAIT_FOR(atomic_load(&a->errors) > 0);
    assert_int_equal(atomic_load(&a->last_error), -ECONNREFUSED);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void leave_at_once(weir_ctx *ctx, end *self, int code)
{
    (void)self;
    (void)code;
    weir_ctx_deregister(ctx, NULL);
}

/* While others are queued behind it: they wait, and go from the other loop. */
static void a_report_can_be_answered_by_leaving_the_loop(void **state)
{
    weir_group *group = group_of(state, 2);
    end *a = end_open(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address_text(&of_b, text, sizeof text);
    end_close(b);
    set_option(a->channel, WEIR_OPTION_AUTO_READ, 0);
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    settle_channel(a->channel);
    assert_int_equal(send_text(a->channel, "anybody?", NULL), 0);
    b = end_bound(group, text);
    a->on_error = leave_at_once;
    weir_promise *promises[3];
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(a->channel)));
    for (int i = 0; i < 3; i++)
        promises[i] = write_buf(a->channel, text_buf("behind"), NULL);
    weir_channel_flush(a->channel);
    unblock(&held);
    WAIT_FOR(atomic_load(&a->errors) == 1);
    a->on_error = NULL;
    WAIT_FOR(weir_channel_get_state(a->channel) == WEIR_CHANNEL_OPEN);
    assert_int_equal(put_on(group, a->channel), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(end_of(promises[i]), 0);
    WAIT_FOR(atomic_load(&b->count) == 3);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void close_at_once(weir_ctx *ctx, end *self, int code)
{
    (void)self;
    (void)code;
    weir_ctx_close(ctx, NULL);
}

static void a_report_can_be_answered_by_closing(void **state)
{
    for (int is_reading = 0; is_reading < 2; is_reading++) {
        weir_group *group = group_of(state, 2);
        end *a = end_open(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
        weir_address of_b = local_of(b->channel);
        end_close(b);
        set_option(a->channel, WEIR_OPTION_AUTO_READ, is_reading);
        assert_int_equal(connect_to(a->channel, &of_b), 0);
        settle_channel(a->channel);
        a->on_error = close_at_once;
        weir_promise *promises[40];
        blocker held;
        block(&held, weir_loop_executor(weir_channel_loop(a->channel)));
        for (int i = 0; i < 40; i++) {
            promises[i] = write_buf(a->channel, text_buf("x"), NULL);
            weir_channel_flush(a->channel);
        }
        unblock(&held);
        for (int i = 0; i < 40; i++)
            end_of(promises[i]); /* each comes to an end */
        WAIT_FOR(weir_channel_get_state(a->channel) == WEIR_CHANNEL_UNREGISTERED);
        end_close(a);
        end_group(group);
    }
}

/* It says so by itself, and not about another. */
static void a_unix_receiver_that_is_gone_fails_the_send(void **state)
{
    char there[64];
    path_for(there, sizeof there, "gone");
    weir_group *group = group_of(state, 1);
    end *b = end_bound(group, there), *a = end_open(group, there);
    weir_address of_b = local_of(b->channel);
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    end_close(b);
    assert_int_equal(send_text(a->channel, "x", NULL), -ECONNREFUSED);
    assert_int_equal(atomic_load(&a->errors), 0);
    assert_true(weir_channel_is_active(a->channel));
    end_close(a);
    end_group(group);
}

/* The other side of a pair turns to somebody else, and what it has not read is lost: this one hears
 * that, and goes on. */
static void a_pair_that_is_parted_is_told(void **state)
{
    int fds[2];
    char there[64];
    path_for(there, sizeof there, "third");
    weir_group *group = group_of(state, 1);
    end *third = end_bound(group, there);
    weir_address of_third = local_of(third->channel);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds), 0);
    end *a = end_from(group, WEIR_SOCKET_DATAGRAM, fds[0]);
    end *b = end_from(group, WEIR_SOCKET_DATAGRAM, fds[1]);
    assert_int_equal(send_text(a->channel, "to b", NULL), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    set_option(a->channel, WEIR_OPTION_AUTO_READ, 0);
    settle_channel(a->channel);
    assert_int_equal(send_text(b->channel, "lost", NULL), 0);
    assert_int_equal(connect_to(a->channel, &of_third), 0);
    WAIT_FOR(atomic_load(&b->errors) == 1);
    assert_int_equal(atomic_load(&b->last_error), -ECONNRESET);
    assert_true(weir_channel_is_active(b->channel));
    assert_int_equal(send_text(a->channel, "to the third", NULL), 0);
    WAIT_FOR(atomic_load(&third->count) == 1);
    end_close(a);
    end_close(b);
    end_close(third);
    end_group(group);
}

/* Queued --------------------------------------------------------------------------------------- */

/* A Unix socket that is bound, and that nobody reads. */
static int silent_socket(const char *address)
{
    weir_address local = address_of(address);
    size_t length;
    const struct sockaddr *name = weir_address_sockaddr(&local, &length);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, name, (socklen_t)length), 0);
    return fd;
}

enum { BURST = 100, SIZE = 1000 };

typedef struct burst {
    weir_channel *channel;
    weir_promise *promises[BURST];
} burst;

/* On the loop: each change of writability is then one of the queue's, not of calls in flight. */
static int write_burst(void *arg)
{
    burst *self = arg;
    for (int i = 0; i < BURST; i++) {
        self->promises[i] = write_buf(self->channel, filled_buf(SIZE, i), NULL);
        weir_channel_flush(self->channel);
    }
    return 0;
}

static void a_full_receiver_holds_the_sender_back(void **state)
{
    char there[64];
    path_for(there, sizeof there, "silent");
    weir_group *group = group_of(state, 1);
    int silent = silent_socket(there);
    end *a = end_open(group, there);
    weir_address to = address_of(there);
    assert_int_equal(connect_to(a->channel, &to), 0);
    burst writes = { .channel = a->channel };
    weir_promise **promises = writes.promises;
    weir_executor *loop = weir_loop_executor(weir_channel_loop(a->channel));
    assert_int_equal(call_on(loop, write_burst, &writes), 0);
    assert_false(weir_channel_is_writable(a->channel));
    WAIT_FOR(atomic_load(&a->writabilities) == 1);
    assert_int_equal(weir_future_code(weir_promise_future(promises[0])), 0);
    assert_int_equal(weir_future_code(weir_promise_future(promises[BURST - 1])), -EINPROGRESS);
    char bytes[SIZE];
    for (int i = 0; i < BURST; i++) {
        assert_int_equal(recv(silent, bytes, sizeof bytes, 0), SIZE);
        assert_int_equal(bytes[0], i);
    }
    for (int i = 0; i < BURST; i++)
        assert_int_equal(end_of(promises[i]), 0);
    WAIT_FOR(atomic_load(&a->writabilities) == 2);
    assert_true(weir_channel_is_writable(a->channel));
    end_close(a);
    close(silent);
    unlink(there + strlen("unix:"));
    end_group(group);
}

static void closing_fails_what_is_queued(void **state)
{
    enum { MANY = 40 };
    char there[64];
    path_for(there, sizeof there, "queue");
    weir_group *group = group_of(state, 1);
    int silent = silent_socket(there);
    end *a = end_open(group, there);
    weir_address to = address_of(there);
    assert_int_equal(connect_to(a->channel, &to), 0);
    weir_promise *promises[MANY];
    for (int i = 0; i < MANY; i++) {
        promises[i] = write_buf(a->channel, text_buf("x"), NULL);
        weir_channel_flush(a->channel);
    }
    close_now(a->channel);
    int sent = 0;
    for (int i = 0; i < MANY; i++) {
        int code = end_of(promises[i]);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        assert_true(code < 0 || sent == i); /* in order */
        sent += code == 0;
    }
    char byte;
    int arrived = 0;
    while (recv(silent, &byte, 1, MSG_DONTWAIT) == 1)
        arrived++;
    assert_int_equal(arrived, sent);
    assert_true(sent > 0 && sent < MANY);
    end_close(a);
    close(silent);
    unlink(there + strlen("unix:"));
    end_group(group);
}

static void what_is_flushed_before_it_is_bound_waits(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_open(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    weir_promise *promise = write_buf(a->channel, text_buf("early"), &of_b);
    weir_channel_flush(a->channel);
    settle_channel(a->channel);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -EINPROGRESS);
    assert_int_equal(bind_to(a->channel, "127.0.0.1:0"), 0);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Binding -------------------------------------------------------------------------------------- */

static void an_address_that_is_used_is_refused(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_open(group, "127.0.0.1:0");
    weir_address of_a = local_of(a->channel);
    weir_promise *promise = weir_channel_promise(b->channel);
    weir_channel_bind(b->channel, &of_a, promise);
    assert_int_equal(end_of(promise), -EADDRINUSE);
    assert_false(weir_channel_is_active(b->channel));
    assert_int_equal(bind_to(b->channel, "127.0.0.1:0"), 0);
    assert_int_equal(bind_to(b->channel, "127.0.0.1:0"), -EINVAL);
    assert_true(weir_channel_is_active(b->channel));
    end_close(a);
    end_close(b);
    end_group(group);
}

static void a_stale_path_is_taken_over_and_a_live_one_not(void **state)
{
    char there[64];
    path_for(there, sizeof there, "stale");
    weir_group *group = group_of(state, 1);
    close(silent_socket(there));
    end *a = end_bound(group, there), *b = end_open(group, there);
    assert_int_equal(bind_to(b->channel, there), -EADDRINUSE);
    end_close(b);
    assert_int_equal(access(there + strlen("unix:"), F_OK), 0);
    end_close(a);
    assert_int_equal(access(there + strlen("unix:"), F_OK), -1);
    end_group(group);
}

static void it_is_told_apart_from_others(void **state)
{
    weir_group *group = group_of(state, 1);
    weir_address tcp = address_of("127.0.0.1:0"), local = address_of("local:x");
    weir_channel *stream;
    weir_datagram_stats stats;
    assert_int_equal(weir_channel_new(&stream, WEIR_SOCKET_STREAM, &tcp, NULL), 0);
    assert_int_equal(weir_channel_datagram_stats(stream, &stats), -EOPNOTSUPP);
    assert_int_equal(weir_channel_datagram_stats(NULL, &stats), -EINVAL);
    weir_channel_release(stream);
    assert_int_equal(weir_channel_new(&stream, WEIR_SOCKET_DATAGRAM, &local, NULL), -EAFNOSUPPORT);
    end *a = end_bound(group, "127.0.0.1:0");
    assert_int_equal(weir_channel_datagram_stats(a->channel, NULL), -EINVAL);
    assert_string_equal(weir_channel_kind(a->channel), "udp");
    assert_null(weir_datagram_new(NULL, NULL, NULL));
    end_close(a);
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_BACKEND(a_connected_one_sends_buffers_and_hears_one_only),
        ON_EVERY_BACKEND(after_a_disconnect_the_recipient_is_right),
        ON_EVERY_BACKEND(a_disconnected_one_that_was_never_bound_can_be_used),
        ON_EVERY_BACKEND(an_adopted_connected_socket_is_connected),
        ON_EVERY_BACKEND(nobody_there_is_told_and_later_sends_go_through),
        ON_EVERY_BACKEND(a_report_does_not_fail_another_datagram),
        ON_EVERY_BACKEND(a_report_can_be_answered_by_leaving_the_loop),
        ON_EVERY_BACKEND(a_report_can_be_answered_by_closing),
        ON_EVERY_BACKEND(a_unix_receiver_that_is_gone_fails_the_send),
        ON_EVERY_BACKEND(a_pair_that_is_parted_is_told),
        ON_EVERY_BACKEND(a_full_receiver_holds_the_sender_back),
        ON_EVERY_BACKEND(closing_fails_what_is_queued),
        ON_EVERY_BACKEND(what_is_flushed_before_it_is_bound_waits),
        ON_EVERY_BACKEND(an_address_that_is_used_is_refused),
        ON_EVERY_BACKEND(a_stale_path_is_taken_over_and_a_live_one_not),
        ON_EVERY_BACKEND(it_is_told_apart_from_others),
    };
    return cmocka_run_group_tests_name("transport.datagram_peers", tests, NULL, NULL);
}
