/* SPDX-License-Identifier: MIT */
/* Where an edge, or a short read, does not mean what it usually does. */
#include "ops.h"

#include <netinet/tcp.h>

/* A send that waited for its turn, and then for the kernel: epoll has to be told in between. */
static void send_that_waits_for_its_turn_then_for_room(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    turn();
    for (int i = 0; i < WEIR_IO_BATCH; i++)
        assert_int_equal(send_bytes(&a, "x", 1), 1);
    assert_int_equal(send_bytes(&a, "y", 1), WEIR_IO_PENDING);
    fill(a.file.fd);
    turn();
    assert_story("");
    drain(peer);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>1.");
    disown(&a);
    close(peer);
}

static void send_that_was_interrupted_then_waits_for_room(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    kernel.interruptions = 8;
    assert_int_equal(send_bytes(&a, "y", 1), WEIR_IO_PENDING);
    fill(a.file.fd);
    turn();
    drain(peer);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>1.");
    disown(&a);
    close(peer);
}

static void cancel_now(probe *self)
{
    cancel(self);
}

static void fail_next(probe *self, const weir_io_result *result)
{
    (void)self;
    if (result->is_armed)
        kernel.receive_error = -ECONNRESET;
}

/* The kernel tells an error once: what it has said is the final result, though somebody cancels. */
static void an_error_wins_over_a_cancel_at_the_end_of_the_batch(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = fail_next, .in.at_batch_end = cancel_now };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, pattern(2048), 2048);
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<2048 a| a<ECONNRESET.");
    turn();
    assert_story("");
    disown(&a);
    close(peer);
}

static int reset_fd = -1;

static void reset_peer(probe *self, const weir_io_result *result)
{
    (void)result;
    if (reset_fd < 0)
        return;
    reset(reset_fd);
    reset_fd = -1;
    wait_for(self->of, POLLHUP);
}

static void a_reset_is_never_taken_for_the_end_of_the_stream(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = reset_peer, .in.at_batch_end = cancel_now };
    reset_fd = own_server_end(&a);
    receive_always(&a);
    turn();
    write_all(reset_fd, pattern(2048), 2048);
    TURN_UNTIL(a.in.finals == 1);
    assert_int_equal(a.in.last, -ECONNRESET);
    disown(&a);
}

/* A read stops short at the mark of urgent data, though there is more behind it. */
static void data_behind_an_urgent_byte_is_read(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    turn();
    write_all(peer, "abc", 3);
    assert_int_equal(send(peer, "!", 1, MSG_OOB), 1);
    write_all(peer, "def", 3);
    TURN_UNTIL(a.received_length == 6);
    close_owner(&a);
    close(peer);
}

static void send_with_descriptor(int to, const char *text, size_t length)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { .room = { 0 } };
    struct iovec piece = { (void *)(uintptr_t)text, length };
    struct msghdr message = { .msg_iov = &piece,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof control.room };
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &to, sizeof to);
    assert_int_equal(sendmsg(to, &message, 0), (int)length);
}

/* So does one at a descriptor that was passed: who owns such a socket says so. */
static void data_behind_a_boundary_is_read(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    a.file.has_boundaries = true;
    receive_always(&a);
    turn();
    send_with_descriptor(peer, "abc", 3);
    send_with_descriptor(peer, "def", 3);
    TURN_UNTIL(a.received_length == 6);
    close_owner(&a);
    close(peer);
}

/* Traffic for a connection that reads nothing now is no spinning: each event is about something. */
static void traffic_on_a_paused_connection_is_news(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a), yes = 1;
    /* Else each byte waits for the delayed acknowledgement of the one before it. */
    assert_int_equal(setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), 0);
    wait_for_hangup(&a);
    turn();
    for (int i = 0; i < 600; i++) {
        write_all(peer, "x", 1);
        assert_int_equal(poll_for(io, SECOND_NS), 1);
        assert_int_equal(io->type->complete(io), 0);
        assert_int_equal(io->news, 1);
    }
    assert_int_equal(io->type->spinner(io), -1);
    close_owner(&a);
    close(peer);
}

#if HARNESS_MISUSE_ABORTS
static void close_with_a_cancelled_operation(void *arg)
{
    owner *a = arg;
    cancel(&a->in);
    io->type->close_file(io, &a->file); /* its final result has not been told yet */
}

static void closing_before_the_last_result_aborts(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    harness_expect_abort(close_with_a_cancelled_operation, &a, "in_flight");
    close_owner(&a);
    close(peer);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        try_cases(send_that_waits_for_its_turn_then_for_room),
        io_cases(send_that_was_interrupted_then_waits_for_room),
        try_cases(an_error_wins_over_a_cancel_at_the_end_of_the_batch),
        try_cases(a_reset_is_never_taken_for_the_end_of_the_stream),
        io_cases(data_behind_an_urgent_byte_is_read),
        io_cases(data_behind_a_boundary_is_read),
        epoll_case(traffic_on_a_paused_connection_is_news),
#if HARNESS_MISUSE_ABORTS
        io_cases(closing_before_the_last_result_aborts),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
