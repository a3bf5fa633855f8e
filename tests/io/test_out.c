/* SPDX-License-Identifier: MIT */
/* The way out: connecting, sending, and what comes first. */
#include "io/ops.h"

#include <limits.h>

static int stream_socket(void)
{
    int fd = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    return fd;
}

/* Connecting --------------------------------------------------------------------------------- */

static void s103_connect_is_told_once_and_does_not_spin(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int listener = listen_on_loopback();
    own(&a, stream_socket());
    assert_int_equal(connect_to(&a, name_of(listener)), WEIR_IO_PENDING);
    assert_story("");
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a^0.");
    for (int i = 0; i < 10; i++)
        assert_quiet(); /* it can be written to all the time, and says so once */
    assert_int_equal(send_bytes(&a, "hello", 5), 5);
    assert_int_equal(a.out.finals, 1);
    assert_quiet();
    disown(&a);
    assert_int_equal(close(listener), 0);
}

/* Bound but not listening: nobody else can take the port meanwhile. */
static void s104_a_refused_connect_says_so(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    struct sockaddr_in address = loopback();
    int unheard = stream_socket();
    assert_int_equal(bind(unheard, (struct sockaddr *)&address, sizeof address), 0);
    own(&a, stream_socket());
    int code = connect_to(&a, name_of(unheard));
    if (code == WEIR_IO_PENDING) {
        TURN_UNTIL(a.out.finals == 1);
        assert_story("a^ECONNREFUSED.");
    } else {
        assert_int_equal(code, -ECONNREFUSED);
    }
    assert_quiet();
    disown(&a);
    assert_int_equal(close(unheard), 0);
}

/* A receive beside it fails as well, or finds the end: nothing hangs. */
static void a_refused_connect_with_a_hangup_beside_it(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    struct sockaddr_in address = loopback();
    int unheard = stream_socket();
    assert_int_equal(bind(unheard, (struct sockaddr *)&address, sizeof address), 0);
    own(&a, stream_socket());
    assert_int_equal(connect_to(&a, name_of(unheard)), WEIR_IO_PENDING);
    wait_for_hangup(&a);
    receive_always(&a);
    TURN_UNTIL(a.hangup.finals == 1);
    assert_story("a^ECONNREFUSED. a<0. a~0.");
    assert_quiet();
    disown(&a);
    assert_int_equal(close(unheard), 0);
}

/* Errors that connect answers at once are the result. */
static void a_connect_that_fails_at_once_returns_its_error(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int listener = listen_on_loopback();
    own(&a, stream_socket());
    kernel.connect_error = -ENETUNREACH;
    assert_int_equal(connect_to(&a, name_of(listener)), -ENETUNREACH);
    assert_quiet();
    assert_story("");
    disown(&a);
    assert_int_equal(close(listener), 0);
}

/* An interrupted connect goes on by itself. */
static void an_interrupted_connect_is_waited_for(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int listener = listen_on_loopback();
    own(&a, stream_socket());
    kernel.connect_error = -EINTR;
    assert_int_equal(connect_to(&a, name_of(listener)), WEIR_IO_PENDING);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a^0.");
    disown(&a);
    assert_int_equal(close(listener), 0);
}

static void a_unix_connect_succeeds_at_once(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    sa_family_t family = AF_UNIX;
    struct sockaddr_storage address = { 0 };
    socklen_t length = sizeof address;
    int listener = sys->socket(sys, AF_UNIX, SOCK_STREAM, 0);
    /* The kernel picks a name. */
    assert_int_equal(bind(listener, (struct sockaddr *)&family, sizeof family), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    own(&a, sys->socket(sys, AF_UNIX, SOCK_STREAM, 0));
    weir_address_from_sockaddr(&a.address, (struct sockaddr *)&address, length);
    a.out.op.remote = &a.address;
    assert_int_equal(submit(&a.out, WEIR_IO_CONNECT), 0);
    assert_int_equal(kernel.adds, is_epoll()); /* the wake-up alone */
    assert_quiet();
    assert_story("");
    disown(&a);
    assert_int_equal(close(listener), 0);
}

static void a_cancelled_connect_is_told_once(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int listener = listen_on_loopback();
    own(&a, stream_socket());
    assert_int_equal(connect_to(&a, name_of(listener)), WEIR_IO_PENDING);
    cancel(&a.out);
    cancel(&a.out); /* once more changes nothing */
    assert_story("");
    assert_true(has_results());
    wait_for(&a, POLLOUT); /* it would have succeeded */
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a^ECANCELED.");
    turn();
    assert_quiet();
    assert_story("");
    disown(&a);
    assert_int_equal(close(listener), 0);
}

/* Sending ------------------------------------------------------------------------------------ */

static void a_send_that_fits_is_done_at_once(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    char bytes[16];
    int peer = own_half_of_pair(&a);
    assert_int_equal(send_bytes(&a, "hello", 5), 5);
    assert_int_equal(read(peer, bytes, sizeof bytes), 5);
    assert_memory_equal(bytes, "hello", 5);
    assert_int_equal(a.gathers, 1);
    assert_quiet();
    assert_story("");
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void pieces_are_sent_with_one_call(void **state)
{
    (void)state;
    owner a = { .name = "a", .piece_length = 2 };
    char bytes[4096];
    int peer = own_half_of_pair(&a);
    assert_int_equal(send_bytes(&a, "hello", 5), 5);
    assert_int_equal(kernel.sends, 1);
    assert_int_equal(read(peer, bytes, sizeof bytes), 5);
    assert_memory_equal(bytes, "hello", 5);
    a.piece_length = 1; /* more than the kernel takes: it is asked for no more than that */
    assert_int_equal(send_bytes(&a, pattern(IOV_MAX + 1), IOV_MAX + 1), IOV_MAX);
    assert_int_equal(read(peer, bytes, sizeof bytes), IOV_MAX);
    assert_memory_equal(bytes, pattern(IOV_MAX), IOV_MAX);
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void a_send_waits_until_there_is_room(void **state)
{
    (void)state;
    for (int is_tcp = 0; is_tcp <= 1; is_tcp++) {
        owner a = { .name = "a" };
        int peer = own_half(&a, is_tcp);
        fill(a.file.fd);
        assert_int_equal(send_bytes(&a, "hello", 5), WEIR_IO_PENDING);
        assert_false(has_results());
        turn();
        assert_story("");
        for (int i = 0; a.out.finals == 0; i++) {
            assert_true(i < 1000);
            drain(peer);
            turn_for(io, SECOND_NS / 1000);
        }
        assert_story("a>5.");
        assert_quiet();
        disown(&a);
        assert_int_equal(close(peer), 0);
    }
}

/* What is to be sent is asked for when it can be used: it may have changed meanwhile. */
static void what_is_sent_is_gathered_anew(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "first", 5), WEIR_IO_PENDING);
    a.to_send = "second!";
    a.to_send_length = 7;
    drain(peer);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>7.");
    char bytes[16];
    assert_int_equal(read(peer, bytes, sizeof bytes), 7);
    assert_memory_equal(bytes, "second!", 7);
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void a_short_send_is_a_result_and_the_rest_is_sent_next(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    char bytes[16];
    int peer = own_half_of_pair(&a);
    kernel.most_sent = 3;
    assert_int_equal(send_bytes(&a, "hello world", 11), 3);
    assert_int_equal(send_bytes(&a, "lo world", 8), 3);
    kernel.most_sent = 0;
    assert_int_equal(send_bytes(&a, "world", 5), 5);
    assert_int_equal(read(peer, bytes, sizeof bytes), 11);
    assert_memory_equal(bytes, "hello world", 11);
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void an_interrupted_send_is_made_again(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    kernel.interruptions = 3;
    assert_int_equal(send_bytes(&a, "hello", 5), 5);
    kernel.interruptions = 50; /* more than it has patience for */
    assert_int_equal(send_bytes(&a, "hello", 5), WEIR_IO_PENDING);
    assert_true(has_results()); /* then in the next turn */
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>5.");
    assert_int_equal(drain(peer), 10);
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* 16 sends of one file in a turn; then it waits for the next, and the others have theirs. */
static void sixteen_sends_then_the_next_turn(void **state)
{
    (void)state;
    owner a = { .name = "a" }, b = { .name = "b" };
    int a_peer = own_half_of_pair(&a), b_peer = own_half_of_pair(&b);
    turn();
    for (int i = 0; i < WEIR_IO_BATCH; i++)
        assert_int_equal(send_bytes(&a, "x", 1), 1);
    assert_int_equal(send_bytes(&a, "y", 1), WEIR_IO_PENDING);
    assert_int_equal(send_bytes(&b, "z", 1), 1); /* each file has its own */
    assert_int_equal(drain(a_peer), WEIR_IO_BATCH);
    assert_int_equal(drain(b_peer), 1);
    assert_true(has_results());
    in_complete++;
    assert_int_equal(io->type->complete(io), 0); /* still the same turn */
    in_complete--;
    assert_true(has_results());
    assert_int_equal(turn_for(io, SECOND_NS), 1);
    assert_int_equal(kernel.timeout_ns, 0);
    assert_story("a>1.");
    for (int i = 1; i < WEIR_IO_BATCH; i++)
        assert_int_equal(send_bytes(&a, "x", 1), 1);
    assert_int_equal(send_bytes(&a, "y", 1), WEIR_IO_PENDING);
    assert_int_equal(turn(), 1);
    assert_story("a>1.");
    assert_int_equal(drain(a_peer), WEIR_IO_BATCH + 1);
    assert_quiet();
    disown(&a);
    disown(&b);
    assert_int_equal(close(a_peer), 0);
    assert_int_equal(close(b_peer), 0);
}

static void send_again(probe *self, const weir_io_result *result)
{
    (void)result;
    if (self->results < 10)
        send_bytes(self->of, "more", 4);
}

/* A send from inside on_sent follows when that returns. */
static void sends_from_inside_on_sent(void **state)
{
    (void)state;
    owner a = { .name = "a", .out.then = send_again };
    int peer = own_half_of_pair(&a);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "first", 5), WEIR_IO_PENDING);
    drain(peer);
    TURN_UNTIL(a.out.finals == 10);
    expect(1, "a>5.");
    expect(9, "a>4.");
    assert_expected();
    assert_int_equal(drain(peer), 5 + 9 * 4);
    turn(); /* there is room again, which nobody waits for */
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void a_send_to_nobody_fails_without_a_signal(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    assert_int_equal(close(peer), 0);
    assert_int_equal(send_bytes(&a, "x", 1), -EPIPE);
    a.piece_length = 1;
    assert_int_equal(send_bytes(&a, "xy", 2), -EPIPE);
    assert_quiet();
    disown(&a);
}

static void a_pending_send_fails_when_the_peer_goes(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    turn();
    assert_int_equal(close(peer), 0);
    TURN_UNTIL(a.out.finals == 1);
    /* A Unix peer that leaves with unread bytes resets; the next one hears EPIPE. */
    assert_true(a.out.last == -EPIPE || a.out.last == -ECONNRESET);
    assert_int_equal(send_bytes(&a, "x", 1), -EPIPE);
    disown(&a);
}

/* The hang-up or the error alone, without the bit that says writable. */
static void a_hangup_alone_ends_a_pending_send(void **state)
{
    (void)state;
    const uint32_t what_is_left[] = { EPOLLHUP, EPOLLERR };
    for (size_t i = 0; i < COUNT_OF(what_is_left); i++) {
        owner a = { .name = "a" };
        int peer = own_server_end(&a);
        fill(a.file.fd);
        assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
        turn();
        kernel.event_and = what_is_left[i];
        reset(peer);
        TURN_UNTIL(a.out.finals == 1);
        assert_story("a>ECONNRESET.");
        kernel.event_and = UINT32_MAX;
        assert_quiet();
        disown(&a);
    }
}

static void a_cancelled_send_sends_nothing(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    size_t filled = fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "hello", 5), WEIR_IO_PENDING);
    cancel(&a.out);
    assert_int_equal(drain(peer), filled);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>ECANCELED.");
    turn();
    assert_quiet();
    assert_int_equal(drain(peer), 0);
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* Order -------------------------------------------------------------------------------------- */

/* The peer makes room and sends at once: flushing goes first, it may free memory. */
static void s105_write_before_read(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "hello", 5), WEIR_IO_PENDING);
    turn();
    write_all(peer, "abc", 3);
    drain(peer);
    assert_int_equal(turn(), 2);
    assert_story("a>5. a<3 a|");
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* The same for a connect: active first, then what the peer said at once. */
static void connect_is_told_before_data(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int listener = listen_on_loopback();
    own(&a, stream_socket());
    assert_int_equal(connect_to(&a, name_of(listener)), WEIR_IO_PENDING);
    receive_always(&a);
    wait_until(listener, POLLIN);
    int peer = accept(listener, NULL, NULL);
    write_all(peer, "abc", 3);
    wait_for(&a, POLLIN);
    TURN_UNTIL(a.in.results == 1);
    assert_story("a^0. a<3 a|");
    assert_quiet();
    close_owner(&a);
    assert_int_equal(close(peer), 0);
    assert_int_equal(close(listener), 0);
}

/* Splicing ----------------------------------------------------------------------------------- */

static int splice_in(owner *self, int pipe_end)
{
    self->in.op.splice.fd = pipe_end;
    self->in.op.splice.length = 1 << 16;
    return submit(&self->in, WEIR_IO_SPLICE_IN);
}

static int splice_out(owner *self, int pipe_end, uint32_t length)
{
    self->other.kind = WEIR_IO_SEND_PIPE;
    self->other.fd = pipe_end;
    self->other.length = length;
    return send_now(self);
}

/* What comes in goes out again, through a pipe; when there is no room it waits, and is told the
 * end.
 */
static void bytes_go_round_through_a_pipe(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a), ends[2];
    char bytes[16];
    assert_int_equal(sys->pipe(sys, ends), 0);
    assert_int_equal(splice_in(&a, ends[1]), WEIR_IO_PENDING);
    turn();
    assert_int_equal(a.in.results, 0);
    write_all(peer, "hello", 5);
    TURN_UNTIL(a.in.finals == 1);
    assert_int_equal(a.in.last, 5);
    assert_int_equal(splice_out(&a, ends[0], 5), 5);
    assert_int_equal(recv(peer, bytes, sizeof bytes, MSG_DONTWAIT), 5);
    assert_memory_equal(bytes, "hello", 5);

    size_t before = fill(a.file.fd);
    write_all(peer, "again", 5);
    assert_int_equal(splice_in(&a, ends[1]), WEIR_IO_PENDING);
    TURN_UNTIL(a.in.finals == 2);
    assert_int_equal(splice_out(&a, ends[0], 5), WEIR_IO_PENDING);
    assert_quiet();
    assert_int_equal(drain(peer), before);
    TURN_UNTIL(a.out.finals == 1);
    assert_int_equal(a.out.last, 5);
    assert_int_equal(recv(peer, bytes, sizeof bytes, MSG_DONTWAIT), 5);
    assert_memory_equal(bytes, "again", 5);

    assert_int_equal(splice_in(&a, ends[1]), WEIR_IO_PENDING);
    assert_int_equal(close(peer), 0);
    TURN_UNTIL(a.in.finals == 3);
    assert_int_equal(a.in.last, 0);
    disown(&a);
    close(ends[0]);
    close(ends[1]);
}

/* Datagrams share the memory for pieces of one call: each is offered what those before it left. */
enum { LARGE = 600 };
static struct {
    int asked, sizes[4], offered[4];
} datagrams;

static bool next_datagram(unsigned n, weir_io_datagram *datagram, struct iovec *pieces, int max)
{
    assert_true(n < 4);
    datagrams.asked++;
    datagrams.offered[n] = max;
    if (datagrams.sizes[n] == 0 || datagrams.sizes[n] > max)
        return false;
    for (int i = 0; i < datagrams.sizes[n]; i++)
        pieces[i] = (struct iovec){ .iov_base = (char *)"x", .iov_len = 1 };
    datagram->piece_count = datagrams.sizes[n];
    return true;
}

static void send_pieces_of(const int sizes[4], int expected)
{
    owner a = { .name = "a" };
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds), 0);
    own(&a, fds[0]);
    memset(&datagrams, 0, sizeof datagrams);
    memcpy(datagrams.sizes, sizes, sizeof datagrams.sizes);
    a.next_datagram = next_datagram;
    a.other.kind = WEIR_IO_SEND_DATAGRAMS;
    assert_int_equal(send_now(&a), expected);
    char bytes[2 * IOV_MAX];
    for (int i = 0; i < expected; i++)
        assert_int_equal(recv(fds[1], bytes, sizeof bytes, 0), sizes[i]);
    disown(&a);
    assert_int_equal(close(fds[1]), 0);
}

static void datagrams_are_offered_the_pieces_that_are_left(void **state)
{
    (void)state;
    send_pieces_of((int[4]){ LARGE, LARGE, 0, 0 }, 1); /* the second does not fit */
    assert_int_equal(datagrams.asked, 2);
    assert_int_equal(datagrams.offered[0], IOV_MAX);
    assert_int_equal(datagrams.offered[1], IOV_MAX - LARGE);
    send_pieces_of((int[4]){ LARGE, IOV_MAX - LARGE, 1, 0 }, 2); /* they fill it */
    assert_int_equal(datagrams.asked, 2);
    send_pieces_of((int[4]){ LARGE, IOV_MAX - LARGE - 1, 1, 1 }, 3); /* and so do these */
    assert_int_equal(datagrams.asked, 3);
    assert_int_equal(datagrams.offered[2], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        try_cases(s103_connect_is_told_once_and_does_not_spin),
        io_cases(s104_a_refused_connect_says_so),
        try_cases(a_refused_connect_with_a_hangup_beside_it),
        try_cases(a_connect_that_fails_at_once_returns_its_error),
        io_cases(an_interrupted_connect_is_waited_for),
        io_cases(a_unix_connect_succeeds_at_once),
        try_cases(a_cancelled_connect_is_told_once),
        try_cases(a_send_that_fits_is_done_at_once),
        try_cases(pieces_are_sent_with_one_call),
        call_cases(a_send_waits_until_there_is_room),
        try_cases(what_is_sent_is_gathered_anew),
        try_cases(a_short_send_is_a_result_and_the_rest_is_sent_next),
        try_cases(an_interrupted_send_is_made_again),
        try_loop_cases(sixteen_sends_then_the_next_turn),
        try_cases(sends_from_inside_on_sent),
        try_cases(a_send_to_nobody_fails_without_a_signal),
        try_cases(a_pending_send_fails_when_the_peer_goes),
        io_cases(a_hangup_alone_ends_a_pending_send),
        try_cases(a_cancelled_send_sends_nothing),
        try_cases(s105_write_before_read),
        try_cases(connect_is_told_before_data),
        io_cases(bytes_go_round_through_a_pipe),
        io_cases(datagrams_are_offered_the_pieces_that_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
