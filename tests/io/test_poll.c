/* SPDX-License-Identifier: MIT */
/* Operations that wait for somebody else: polls, and hang-ups. */
#include "io/ops.h"

static probe *other;

static void cancel_self(probe *self, const weir_io_result *result)
{
    if (result->is_armed)
        cancel(self);
}

static void cancel_other(probe *self, const weir_io_result *result)
{
    (void)self;
    (void)result;
    cancel(other);
}

/* Polls -------------------------------------------------------------------------------------- */

static void poll_tells_the_level(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    own(&a, fds[0]);
    watch_level(&a, WEIR_IO_READABLE);
    assert_quiet();
    write_all(fds[1], "x", 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(turn(), 1); /* as long as nobody reads it */
        assert_story("a?1");
        assert_false(has_results());
    }
    char byte;
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_quiet();
    assert_int_equal(kernel.receives, 0); /* it is somebody else's */
    close_owner(&a);
    assert_int_equal(close(fds[1]), 0);
}

static void poll_tells_what_was_asked_for(void **state)
{
    (void)state;
    owner a = { .name = "a" }, b = { .name = "b" }, c = { .name = "c" };
    int peers[] = { own_half_of_pair(&a), own_half_of_pair(&b), own_half_of_pair(&c) };
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        write_all(peers[i], "x", 1);
    watch_level(&a, WEIR_IO_WRITABLE);
    watch_level(&b, WEIR_IO_READABLE | WEIR_IO_WRITABLE);
    watch_level(&c, 0);
    assert_int_equal(turn(), 2);
    assert_story("a?2 b?3");
    close_owner(&a);
    close_owner(&b);
    close_owner(&c);
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        assert_int_equal(close(peers[i]), 0);
}

static void poll_tells_a_hangup_unasked(void **state)
{
    (void)state;
    owner a = { .name = "a" }, b = { .name = "b" };
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    own(&a, fds[0]);
    watch_level(&a, 0);
    assert_int_equal(close(fds[1]), 0);
    assert_int_equal(turn(), 1);
    assert_story("a?4");
    assert_int_equal(turn(), 1);
    close_owner(&a);

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    own(&b, fds[1]);
    watch_level(&b, WEIR_IO_WRITABLE);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(turn(), 1);
    assert_story("b?6");
    close_owner(&b);
    assert_quiet();
}

static void a_cancelled_poll_is_watched_no_more(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    kernel.adds = 0;
    watch_level(&a, WEIR_IO_READABLE);
    write_all(peer, "x", 1);
    assert_int_equal(turn(), 1);
    cancel(&a.level);
    assert_int_equal(kernel.removals, is_epoll());
    assert_int_equal(turn(), 1);
    assert_story("a?1 a?ECANCELED.");
    assert_quiet();
    watch_level(&a, WEIR_IO_WRITABLE); /* and in again, for something else */
    assert_int_equal(turn(), 1);
    assert_story("a?2");
    assert_int_equal(kernel.adds, is_epoll() ? 2 : 0);
    close_owner(&a);
    assert_int_equal(kernel.removals, is_epoll() ? 2 : 0);
    assert_int_equal(close(peer), 0);
}

static void a_poll_is_cancelled_inside_on_done(void **state)
{
    (void)state;
    owner a = { .name = "a", .level.then = cancel_self };
    owner b = { .name = "b", .level.then = cancel_other }, c = { .name = "c" };
    int peers[] = { own_half_of_pair(&a), own_half_of_pair(&b), own_half_of_pair(&c) };
    other = &c.level;
    watch_level(&a, WEIR_IO_READABLE);
    watch_level(&b, WEIR_IO_READABLE);
    watch_level(&c, WEIR_IO_READABLE);
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        write_all(peers[i], "x", 1);
    assert_int_equal(turn(), 2); /* c's event is in this batch, and is not told */
    assert_story("a?1 b?1");
    b.level.then = NULL;
    assert_int_equal(turn(), 3);
    assert_story("a?ECANCELED. c?ECANCELED. b?1");
    cancel(&b.level);
    assert_int_equal(turn(), 1);
    assert_story("b?ECANCELED.");
    assert_quiet();
    assert_int_equal(drain(c.file.fd), 1);
    watch_level(&c, WEIR_IO_READABLE); /* what was noted for c is forgotten */
    assert_quiet();
    cancel(&c.level);
    assert_int_equal(turn(), 1);
    disown(&a);
    disown(&b);
    disown(&c);
    for (size_t i = 0; i < COUNT_OF(peers); i++)
        assert_int_equal(close(peers[i]), 0);
}

static void a_regular_file_cannot_be_polled(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    own(&a, open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    watch_level(&a, WEIR_IO_READABLE);
    assert_story("");
    assert_int_equal(turn(), 1);
    assert_story("a?EPERM.");
    assert_quiet();
    assert_int_equal(kernel.removals, 0);
    disown(&a);
}

/* Hang-ups ----------------------------------------------------------------------------------- */

static void a_hangup_needs_both_ways_to_end(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    wait_for_hangup(&a);
    turn();
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    wait_for(&a, POLLRDHUP);
    assert_int_equal(turn(), 0);
    assert_quiet(); /* one way is open, and nobody reads the other */
    assert_int_equal(shutdown(a.file.fd, SHUT_WR), 0);
    TURN_UNTIL(a.hangup.finals == 1);
    assert_story("a~0.");
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* With auto-read off a connection that ends is noticed, and what it said last is kept. */
static void a_hangup_without_a_receive_keeps_the_data(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    wait_for_hangup(&a);
    turn();
    write_all(peer, "abc", 3);
    assert_int_equal(close(peer), 0);
    TURN_UNTIL(a.hangup.finals == 1);
    assert_story("a~0.");
    assert_quiet();
    receive_always(&a);
    assert_int_equal(turn(), 2);
    assert_story("a<3 a| a<0.");
    assert_quiet();
    disown(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        io_cases(poll_tells_the_level),
        loop_cases(poll_tells_what_was_asked_for),
        io_cases(poll_tells_a_hangup_unasked),
        io_cases(a_cancelled_poll_is_watched_no_more),
        loop_cases(a_poll_is_cancelled_inside_on_done),
        loop_cases(a_regular_file_cannot_be_polled),
        io_cases(a_hangup_needs_both_ways_to_end),
        io_cases(a_hangup_without_a_receive_keeps_the_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
