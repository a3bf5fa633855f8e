/* SPDX-License-Identifier: MIT */
/* Listeners: backlogs in batches, and errors that lose nobody. */
#include "io/ops.h"

static int listen_with(int backlog)
{
    int fd = listen_on_loopback();
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static int start_client(struct sockaddr_in address)
{
    int fd = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    int code = sys->connect(sys, fd, (struct sockaddr *)&address, sizeof address);
    assert_true(code == 0 || code == -EINPROGRESS);
    wait_until(fd, POLLOUT);
    return fd;
}

static void a_backlog_of_40_comes_as_16_16_8(void **state)
{
    (void)state;
    int clients[40];
    owner a = { .name = "a" };
    own(&a, listen_with(64));
    accept_always(&a);
    for (int i = 0; i < 40; i++)
        clients[i] = start_client(name_of(a.file.fd));
    assert_int_equal(turn(), 16);
    assert_true(has_results());
    assert_int_equal(turn_for(io, SECOND_NS), 16);
    assert_int_equal(kernel.timeout_ns, 0);
    assert_int_equal(turn(), 8);
    for (int i = 0; i < 3; i++) {
        expect(i < 2 ? 16 : 8, "a+");
        expect(1, "a|");
    }
    assert_expected();
    assert_int_equal(value_of(&counters.accepts), 41); /* the last heard EAGAIN */
    assert_quiet();
    for (int i = 0; i < 40; i++) {
        assert_int_equal(close(a.accepted[i]), 0);
        assert_int_equal(close(clients[i]), 0);
    }
    close_owner(&a);
}

static struct sockaddr_in told_address;

static void remember_address(probe *self, const weir_io_result *result)
{
    (void)self;
    if (result->code < 0)
        return;
    assert_int_equal(result->address_length, sizeof told_address);
    memcpy(&told_address, result->address, sizeof told_address);
}

static void accept_tells_who_it_is_and_survives_interruptions(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = remember_address };
    own(&a, listen_with(16));
    accept_always(&a);
    int client = start_client(name_of(a.file.fd));
    kernel.interruptions = 5;
    assert_int_equal(turn(), 1);
    assert_story("a+ a|");
    assert_int_equal(told_address.sin_port, name_of(client).sin_port);
    assert_true(fcntl(a.accepted[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(close(a.accepted[0]), 0);
    assert_int_equal(close(client), 0);
    client = start_client(name_of(a.file.fd));
    kernel.interruptions = 50;
    TURN_UNTIL(a.in.results == 2);
    assert_story("a+ a|");
    assert_int_equal(close(a.accepted[1]), 0);
    assert_int_equal(close(client), 0);
    close_owner(&a);
}

/* An error is final, and what waits in the backlog is found when accepting goes on. */
static void an_accept_error_is_final_and_loses_nobody(void **state)
{
    (void)state;
    const int errors[] = { -ECONNABORTED, -EMFILE, -ENOBUFS, -EPROTO };
    owner a = { .name = "a" };
    own(&a, listen_with(16));
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        char expected[64];
        accept_always(&a);
        int client = start_client(name_of(a.file.fd));
        kernel.accept_error = errors[i];
        assert_int_equal(turn(), 1);
        snprintf(expected, sizeof expected, "a+%s.", weir_error_name(errors[i]));
        assert_story(expected);
        assert_quiet();
        a.in.results = 0;
        accept_always(&a);
        assert_int_equal(turn(), 1); /* without another edge */
        assert_story("a+ a|");
        assert_int_equal(close(a.accepted[0]), 0);
        assert_int_equal(close(client), 0);
        cancel(&a.in);
        turn();
        assert_story("a+ECANCELED.");
    }
    disown(&a);
}

static void fail_next_accept(probe *self, const weir_io_result *result)
{
    (void)self;
    (void)result;
    kernel.accept_error = -EMFILE;
}

static void an_accept_error_in_the_middle_ends_the_batch_first(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = fail_next_accept };
    own(&a, listen_with(16));
    accept_always(&a);
    int clients[] = { start_client(name_of(a.file.fd)), start_client(name_of(a.file.fd)) };
    assert_int_equal(turn(), 2);
    assert_story("a+ a| a+EMFILE.");
    kernel.accept_error = 0;
    assert_int_equal(close(a.accepted[0]), 0);
    a.in.results = 0;
    a.in.then = NULL;
    accept_always(&a);
    assert_int_equal(turn(), 1);
    assert_story("a+ a|");
    assert_int_equal(close(a.accepted[0]), 0);
    for (size_t i = 0; i < COUNT_OF(clients); i++)
        assert_int_equal(close(clients[i]), 0);
    close_owner(&a);
}

/* Accepting one at a time leaves the others in the backlog. */
static void accept_once_takes_one(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    own(&a, listen_with(16));
    int first = start_client(name_of(a.file.fd)), second = start_client(name_of(a.file.fd));
    for (int i = 0; i < 2; i++) {
        a.in.op.is_multishot = false;
        assert_int_equal(submit(&a.in, WEIR_IO_ACCEPT), WEIR_IO_PENDING);
        assert_int_equal(turn(), 1);
        assert_story("a+. a|");
        assert_quiet();
    }
    assert_int_equal(close(a.accepted[0]), 0);
    assert_int_equal(close(a.accepted[1]), 0);
    assert_int_equal(close(first), 0);
    assert_int_equal(close(second), 0);
    disown(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        try_cases(a_backlog_of_40_comes_as_16_16_8),
        io_cases(accept_tells_who_it_is_and_survives_interruptions),
        try_cases(an_accept_error_is_final_and_loses_nobody),
        try_cases(an_accept_error_in_the_middle_ends_the_batch_first),
        io_cases(accept_once_takes_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
