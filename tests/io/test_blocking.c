/* SPDX-License-Identifier: MIT */
/* The blocking backend: its one file, what it waits for and what it does not. */
#include "io/ops.h"

/* Nothing is asked about the file, ready as it may be. */
static void assert_waits_for_wakes_alone(void)
{
    assert_quiet();
    assert_int_equal(kernel.polled, 1);
}

/* The one file ------------------------------------------------------------------------------- */

static void a_second_file_is_one_too_many(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int fds[2];
    make_pair(fds);
    int peer = own_half_of_pair(&a);
    weir_io_file second = { 0 };
    assert_int_equal(io->type->attach(io, &second, fds[0]), -EBUSY);
    receive_always(&a); /* which did no harm */
    write_all(peer, "abc", 3);
    assert_int_equal(turn(), 1);
    assert_story("a<3 a|");
    close_owner(&a);
    assert_int_equal(io->type->attach(io, &second, fds[0]), 0);
    io->type->detach(io, &second);
    assert_int_equal(io->type->attach(io, &second, fds[0]), 0);
    io->type->close_file(io, &second);
    assert_int_equal(close(fds[1]), 0);
    assert_int_equal(close(peer), 0);
}

/* It was cancelled after the poll that found it ready. */
static void an_event_for_what_was_cancelled_is_not_told(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    watch_level(&a, WEIR_IO_READABLE);
    write_all(peer, "x", 1);
    assert_int_equal(io->type->poll(io, SECOND_NS), 1);
    cancel(&a.level);
    in_complete++;
    assert_int_equal(io->type->complete(io), 1);
    in_complete--;
    assert_story("a?ECANCELED.");
    assert_waits_for_wakes_alone();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* What it waits for -------------------------------------------------------------------------- */

static void it_waits_for_what_is_armed(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    assert_waits_for_wakes_alone();
    receive_always(&a);
    assert_quiet();
    assert_int_equal(kernel.polled, 2);
    assert_int_equal(kernel.wished, POLLIN | POLLRDHUP);
    size_t filled = fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    assert_quiet();
    assert_int_equal(kernel.wished, POLLIN | POLLRDHUP | POLLOUT);
    assert_int_equal(drain(peer), filled);
    assert_int_equal(turn(), 1);
    assert_story("a>1.");
    assert_quiet();
    assert_int_equal(kernel.wished, POLLIN | POLLRDHUP);
    cancel(&a.in);
    assert_int_equal(turn(), 1);
    assert_story("a<ECANCELED.");
    assert_waits_for_wakes_alone();
    wait_for_hangup(&a);
    assert_quiet();
    assert_int_equal(kernel.polled, 2); /* it comes unasked */
    assert_int_equal(kernel.wished, 0);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void readable_with_nothing_armed_does_not_spin(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    write_all(peer, "abc", 3);
    wait_for(&a, POLLIN);
    assert_waits_for_wakes_alone();
    receive_once(&a);
    assert_int_equal(turn(), 1);
    assert_story("a<3. a|");
    write_all(peer, "de", 2);
    assert_waits_for_wakes_alone();
    receive_once(&a);
    assert_int_equal(turn(), 1);
    assert_story("a<2. a|");
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void hung_up_with_nothing_armed_does_not_spin(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    turn();
    reset(peer);
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<ECONNRESET.");
    assert_waits_for_wakes_alone();
    wait_for_hangup(&a); /* told from memory */
    assert_int_equal(turn(), 1);
    assert_story("a~0.");
    assert_waits_for_wakes_alone();
    assert_int_equal(send_bytes(&a, "x", 1), -EPIPE);
    disown(&a);
}

/* A half-closed connection whose owner waits for the hang-up alone. */
static void a_half_closed_connection_does_not_spin(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    wait_for_hangup(&a);
    turn();
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<0.");
    assert_quiet();
    assert_int_equal(kernel.polled, 2);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void an_urgent_byte_does_not_spin(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    turn();
    write_all(peer, "abc", 3);
    assert_int_equal(send(peer, "!", 1, MSG_OOB), 1);
    TURN_UNTIL(a.received_length == 3);
    wait_for(&a, POLLPRI);
    assert_quiet();
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* One file at a time ------------------------------------------------------------------------- */

static void each_kind_can_be_cancelled(void **state)
{
    (void)state;
    owner a = { .name = "a" }, b = { .name = "b" }, c = { .name = "c" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    wait_for_hangup(&a);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    assert_quiet();
    cancel(&a.in);
    cancel(&a.hangup);
    cancel(&a.out);
    assert_int_equal(turn(), 3);
    assert_story("a<ECANCELED. a~ECANCELED. a>ECANCELED.");
    assert_quiet();
    disown(&a);
    own(&b, listen_on_loopback());
    accept_always(&b);
    assert_quiet();
    cancel(&b.in);
    assert_int_equal(turn(), 1);
    assert_story("b+ECANCELED.");
    disown(&b);
    int c_peer = own_half_of_pair(&c);
    watch_level(&c, WEIR_IO_READABLE | WEIR_IO_WRITABLE);
    assert_int_equal(turn(), 1);
    assert_story("c?2");
    cancel(&c.level);
    assert_int_equal(turn(), 1);
    assert_story("c?ECANCELED.");
    assert_quiet();
    disown(&c);
    assert_int_equal(close(peer), 0);
    assert_int_equal(close(c_peer), 0);
}

static void free_owner(probe *self, const weir_io_result *result)
{
    if (result->is_armed)
        return;
    owner *gone = self->of;
    disown(gone);
    memset(gone, 0x5a, sizeof *gone); /* who still looks at it falls over */
    free(gone);
}

static void the_owner_is_freed_inside_each_final_on_done(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        owner *a = calloc(1, sizeof *a);
        a->name = "a";
        a->in.then = a->hangup.then = free_owner;
        int peer = own_half_of_pair(a);
        if (i == 2)
            wait_for_hangup(a);
        else
            receive_always(a);
        turn();
        if (i == 0) {
            cancel(&a->in);
        } else {
            write_all(peer, "abc", 3);
            assert_int_equal(close(peer), 0);
        }
        turn();
        assert_story(i == 0 ? "a<ECANCELED." : i == 1 ? "a<3 a| a<0." : "a~0.");
        assert_waits_for_wakes_alone();
        if (i == 0)
            assert_int_equal(close(peer), 0);
    }
}

static void sixteen_sends_a_turn(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    turn();
    for (int i = 0; i < WEIR_IO_BATCH; i++)
        assert_int_equal(send_bytes(&a, "x", 1), 1);
    assert_int_equal(send_bytes(&a, "y", 1), WEIR_IO_PENDING);
    assert_int_equal(turn_for(io, SECOND_NS), 1);
    assert_int_equal(kernel.timeout_ns, 0);
    assert_story("a>1.");
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* A poll is for files that are somebody else's. */
static void a_poll_beside_a_receive_is_refused(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    watch_level(&a, WEIR_IO_READABLE);
    assert_int_equal(turn(), 1);
    assert_story("a?EEXIST.");
    write_all(peer, "abc", 3);
    assert_int_equal(turn(), 1);
    assert_story("a<3 a|");
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* When it goes wrong ------------------------------------------------------------------------- */

/* The number is another's by then, and stays that. */
static void a_descriptor_that_somebody_closed_fails_what_waits(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    fill(a.file.fd);
    receive_always(&a);
    wait_for_hangup(&a);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    assert_quiet();
    assert_int_equal(close(a.file.fd), 0);
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(turn(), 3);
    assert_true(harness_log_has("somebody else closed it"));
    assert_int_equal(harness_log_end(), 1);
    assert_story("a<EBADF. a~EBADF. a>EBADF.");
    assert_true(io->news > 0);
    assert_waits_for_wakes_alone();
    assert_int_equal(send_bytes(&a, "x", 1), -EBADF);
    receive_once(&a);
    assert_int_equal(turn(), 1);
    assert_story("a<EBADF.");
    assert_waits_for_wakes_alone();
    int taken = dup(0);
    assert_int_equal(taken, a.file.fd);
    disown(&a);
    assert_int_equal(fcntl(taken, F_GETFD), 0);
    assert_int_equal(close(taken), 0);
    assert_int_equal(close(peer), 0);
}

static void a_closed_poll_fails(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    watch_level(&a, WEIR_IO_READABLE);
    assert_int_equal(close(a.file.fd), 0);
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(turn(), 1);
    harness_log_end();
    assert_story("a?EBADF.");
    assert_waits_for_wakes_alone();
    io->type->detach(io, &a.file);
    assert_int_equal(close(peer), 0);
}

static void a_poll_that_fails_has_no_events(void **state)
{
    (void)state;
    const int codes[] = { -ENOMEM, -EINTR };
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        write_all(peer, "x", 1);
        harness_fail_nth("poll", 1, codes[i]);
        assert_int_equal(io->type->poll(io, SECOND_NS), codes[i]);
        harness_fail_end();
        assert_int_equal(io->type->complete(io), 0);
        assert_int_equal(io->type->rebuild(io), 0);
        assert_int_equal(turn(), 1);
        assert_story("a<1 a|");
    }
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* Without its eventfd it cannot be woken, and says so; what else there is goes on. */
static void a_closed_eventfd_is_told(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    int eventfd = io->type->descriptor(io);
    int kept = dup(eventfd);
    receive_always(&a);
    turn();
    assert_int_equal(close(eventfd), 0);
    assert_int_equal(io->type->poll(io, SECOND_NS), -EBADF);
    assert_int_equal(io->type->rebuild(io), -EBADF);
    assert_int_equal(io->type->complete(io), 0);
    write_all(peer, "x", 1);
    assert_int_equal(io->type->poll(io, SECOND_NS), -EBADF);
    in_complete++;
    assert_int_equal(io->type->complete(io), 1);
    in_complete--;
    assert_story("a<1 a|");
    assert_int_equal(dup2(kept, eventfd), eventfd); /* for who closes it in the end */
    assert_int_equal(close(kept), 0);
    cancel(&a.in);
    in_complete++;
    assert_int_equal(io->type->complete(io), 1);
    in_complete--;
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void a_wake_beside_an_event(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    write_all(peer, "x", 1);
    io->type->wake(io);
    assert_int_equal(io->type->poll(io, -1), 2);
    in_complete++;
    assert_int_equal(io->type->complete(io), 1);
    in_complete--;
    assert_story("a<1 a|");
    assert_quiet(); /* the wake-up was taken */
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        blocking_case(a_second_file_is_one_too_many),
        blocking_case(an_event_for_what_was_cancelled_is_not_told),
        blocking_case(it_waits_for_what_is_armed),
        blocking_case(readable_with_nothing_armed_does_not_spin),
        blocking_case(hung_up_with_nothing_armed_does_not_spin),
        blocking_case(a_half_closed_connection_does_not_spin),
        blocking_case(an_urgent_byte_does_not_spin),
        blocking_case(each_kind_can_be_cancelled),
        blocking_case(the_owner_is_freed_inside_each_final_on_done),
        blocking_case(sixteen_sends_a_turn),
        blocking_case(a_poll_beside_a_receive_is_refused),
        blocking_case(a_descriptor_that_somebody_closed_fails_what_waits),
        blocking_case(a_closed_poll_fails),
        blocking_case(a_poll_that_fails_has_no_events),
        blocking_case(a_closed_eventfd_is_told),
        blocking_case(a_wake_beside_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
