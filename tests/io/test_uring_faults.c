/* SPDX-License-Identifier: MIT */
/* What the kernel refuses of io_uring. */
#include "io/rings.h"

/* Each call that can fail does, in turn: a code, and nothing is left. */
static void opening_fails_at_every_call(void **state)
{
    (void)state;
    if (!harness_has_uring())
        skip();
    sys = weir__sys_linux();
    static const int failures[] = { -ENOMEM, -EMFILE, -EPERM };
    weir__uring_features(sys); /* is asked once */
    for (size_t i = 0; i < COUNT_OF(failures); i++) {
        unsigned nth = 1, made;
        for (;; nth++) {
            weir_io *opened = NULL;
            weir_io_counters counts = { 0 };
            harness_fail_nth(NULL, nth, failures[i]);
            int code = open_uring(sys, &counts, &opened);
            made = harness_fail_end();
            if (code == 0) {
                opened->type->close(opened);
                opened->type->destroy(opened);
            } else {
                assert_null(opened);
            }
            if (made < nth)
                break;
        }
        assert_true(nth > 4);
    }
}

/* Tenth of the rings is one too many for the limit of locked memory. */
static int fail_eleventh(void *arg, const char *call, size_t *length)
{
    (void)length;
    return strcmp(call, "io_uring_setup") == 0 && ++*(int *)arg > 10 ? -ENOMEM : 0;
}

static int do_nothing(weir_task *task)
{
    (void)task;
    return 0;
}

static void who_starts_a_loop_is_told_that_it_has_no_ring(void **state)
{
    (void)state;
    if (!harness_has_uring())
        skip();
    enum { LOOPS = 12 };
    weir_group *group = NULL;
    weir_task tasks[LOOPS];
    int rings = 0;
    assert_int_equal(
        weir_group_new(
            &group,
            &(weir_group_config){ .io = WEIR_IO_URING, .loops = LOOPS, .watchdog_ns = WEIR_OFF },
            NULL),
        0);
    weir_fault_set(fail_eleventh, &rings);
    for (size_t i = 0; i < LOOPS; i++) {
        tasks[i] = (weir_task){ .run = do_nothing };
        assert_int_equal(weir_executor_post(weir_group_at(group, i), &tasks[i]),
                         i < 10 ? 0 : -ENOMEM);
    }
    weir_fault_set(NULL, NULL);
    assert_int_equal(weir_executor_post(weir_group_at(group, 11), &tasks[11]), 0);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    weir_group_free(group);
}

/* The kernel has no ring of buffers for it: then it tries, as other backends do. */
static void without_buffers_it_receives_all_the_same(void)
{
    harness_fail_nth("io_uring_register", 1, -EINVAL);
    open_small(0, 0, 0);
    assert_int_equal(harness_fail_end(), 1);
    assert_null(weir__uring_of(io)->buffers.ring);
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    write_all(peer, pattern(30000), 30000);
    TURN_UNTIL(a.received_length == 30000);
    assert_received(&a, pattern(30000), 30000);
    for (int i = 0; i < 3; i++)
        turn();
    assert_quiet();
    end_pair(&a, peer);
}

/* A ring that is of no use any more -------------------------------------------------------------
 */

static void rebuild(void)
{
    harness_log_begin(WEIR_LOG_OFF);
    assert_int_equal(io->type->rebuild(io), 0);
    harness_log_end();
}

static void break_ring(void)
{
    harness_fail_nth("io_uring_enter", 1, -EBADF);
    assert_int_equal(io->type->poll(io, 0), -EBADF);
    harness_fail_end();
    assert_int_equal(io->type->poll(io, 0), -EBADF);
}

static void what_came_before_the_ring_broke_is_told(void)
{
    owner a = { .name = "a" }, b = { .name = "b" }, c = { .name = "c" };
    int peer = own_half_of_pair(&a), c_peer = own_half_of_pair(&c);
    own(&b, listen_on_loopback());
    struct sockaddr_in address = name_of(b.file.fd);
    receive_always(&a);
    accept_always(&b);
    watch_level(&c, WEIR_IO_READABLE);
    turn();
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    write_all(peer, "before", 6);
    WAIT_FOR(poll_for(io, 0) >= 2);
    harness_fail_nth("io_uring_enter", 1, -EBADF);
    io->type->wake(io);
    cancel(&c.level);                       /* there is something to hand over */
    assert_true(io->type->poll(io, 0) > 0); /* what there is goes first */
    harness_fail_end();
    assert_int_equal(io->type->poll(io, 0), -EBADF);
    rebuild();
    write_all(peer, "behind", 6);
    TURN_UNTIL(a.received_length == 12 && b.in.results == 1 && c.level.finals == 1);
    assert_received(&a, "beforebehind", 12);
    assert_int_equal(value_of(&counters.rebuilds), 1);
    close(b.accepted[0]);
    close(client);
    story_length = 0;
    close_owner(&a);
    close_owner(&b);
    close_owner(&c);
    close(peer);
    close(c_peer);
}

static void a_send_under_way_is_lost_with_its_file(void)
{
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    break_ring();
    rebuild();
    TURN_UNTIL(a.out.finals == 1 && a.in.finals == 1);
    assert_int_equal(a.out.last, -EIO);
    assert_int_equal(a.in.last, -EIO);
    assert_int_equal(send_bytes(&a, "x", 1), -EIO);
    story_length = 0;
    disown(&a);
    close(peer);
}

/* That there is space was all that the kernel had found out: the bytes are still to be sent. */
static void waiting_for_space_outlives_the_ring(void)
{
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "twelve bytes", 12), WEIR_IO_PENDING);
    for (int i = 0; i < 3; i++)
        turn();
    assert_story("");
    drain(peer);
    WAIT_FOR_STEPPING(has_results(), assert_true(poll_for(io, SECOND_NS / 100) >= 0));
    receive_always(&a); /* there is something to hand over */
    harness_fail_nth("io_uring_enter", 1, -EBADF);
    io->type->flush(io);
    assert_int_equal(harness_fail_end(), 1);
    rebuild();
    TURN_UNTIL(a.out.finals == 1);
    assert_int_equal(a.out.last, 12);
    assert_int_equal(drain(peer), 12);
    close_owner(&a);
    close(peer);
}

/* Results that the kernel had no room for go with the ring, and what they told of is missing. */
static bool is_whole_or_lost(const owner *all, int count, size_t length)
{
    for (int i = 0; i < count; i++) {
        if (all[i].received_length < length && all[i].in.finals == 0)
            return false;
    }
    return true;
}

static void what_overflowed_is_lost_with_its_file(void)
{
    enum { MANY = 300, LENGTH = 5 };
    open_small(2, 0, 0);
    int peers[MANY], lost = 0;
    owner *all = receive_from_peers(peers, MANY);
    turn();
    for (int i = 0; i < MANY; i++)
        write_all(peers[i], pattern(LENGTH), LENGTH);
    const struct io_uring_sq *queue = &weir__uring_of(io)->ring.sq;
    do {
        io->type->wake(io);
        cancel(&all[lost].in); /* there is something to hand over */
        assert_true(poll_for(io, 0) >= 0);
    } while (!(*queue->kflags & IORING_SQ_CQ_OVERFLOW) && ++lost < MANY);
    assert_true(lost < MANY);
    harness_fail_nth("io_uring_enter", 1, -EBADF);
    cancel(&all[lost + 1].in);
    io->type->flush(io);
    assert_int_equal(harness_fail_end(), 1);
    rebuild();
    TURN_UNTIL((story_length = 0, is_whole_or_lost(all, MANY, LENGTH)));
    lost = 0;
    for (int i = 0; i < MANY; i++)
        lost += all[i].in.last == -EIO;
    assert_true(lost > 0);
    end_pairs(all, peers, MANY);
}

static void what_was_cancelled_is_cancelled(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    cancel(&a.in);
    break_ring();
    rebuild();
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<ECANCELED.");
    disown(&a);
    close(peer);
}

static void a_ring_that_cannot_be_made_is_tried_again(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    break_ring();
    harness_fail_nth("io_uring_setup", 1, -ENOMEM);
    assert_int_equal(io->type->rebuild(io), -ENOMEM);
    harness_fail_end();
    assert_int_equal(io->type->poll(io, 0), -EBADF);
    rebuild();
    write_all(peer, "hello", 5);
    TURN_UNTIL(a.received_length == 5);
    end_pair(&a, peer);
}

/* The kernel has no room just now -----------------------------------------------------------------
 */

static void what_passes_is_no_reason_to_rebuild(void)
{
    static const int codes[] = { -EAGAIN, -EBUSY, -ENOMEM, -EINTR };
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        harness_fail_nth("io_uring_enter", 1, codes[i]);
        assert_int_equal(io->type->poll(io, 0), codes[i]);
        harness_fail_end();
        assert_int_equal(io->type->rebuild(io), 0);
        write_all(peer, "x", 1);
        TURN_UNTIL(a.received_length == i + 1);
    }
    assert_int_equal(value_of(&counters.rebuilds), 0);
    end_pair(&a, peer);
}

static int fail_enter(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    return strcmp(call, "io_uring_enter") == 0 ? -EAGAIN : 0;
}

/* The queue is full, and the kernel does not take it: cancelling waits for the next turn. */
static void a_cancel_that_finds_no_room_is_not_forgotten(void)
{
    enum { MANY = 600 }; /* more than the queue holds */
    int peers[MANY];
    owner *all = receive_from_peers(peers, MANY);
    turn();
    weir_fault_set(fail_enter, NULL);
    for (int i = 0; i < MANY; i++)
        cancel(&all[i].in);
    weir_fault_set(NULL, NULL);
    for (int i = 0; i < MANY; i++) {
        TURN_UNTIL(all[i].in.finals == 1);
        assert_int_equal(all[i].in.last, -ECANCELED);
        story_length = 0;
    }
    end_pairs(all, peers, MANY);
}

/* The same when it is submitted: it fails, or is done without the kernel's help. */
static void a_submit_that_finds_no_room_ends(void)
{
    enum { MANY = 600 };
    int peers[MANY], pending = 0;
    weir_fault_set(fail_enter, NULL);
    owner *all = receive_from_peers(peers, MANY);
    weir_fault_set(NULL, NULL);
    turn();
    turn();
    for (int i = 0; i < MANY; i++) {
        pending += all[i].in.is_pending;
        assert_true(all[i].in.is_pending || all[i].in.last == -EAGAIN);
    }
    assert_in_range(pending, 100, MANY - 1);
    end_pairs(all, peers, MANY);
}

/* One file cannot be watched any more, and the kernel is at its other operations: they end when it
 * says so, and then it is not at them any more. */
static void what_the_kernel_has_of_a_lost_file_ends_later(void)
{
    open_small(1, 0, 0);
    owner a = { .name = "a" }, b = { .name = "b" };
    owner *const both[] = { &a, &b };
    int peers[2];
    for (size_t i = 0; i < 2; i++) {
        peers[i] = receive_from_peer(both[i]);
        fill(both[i]->file.fd);
        assert_int_equal(send_bytes(both[i], "x", 1), WEIR_IO_PENDING);
        watch_level(both[i], WEIR_IO_READABLE);
        for (int turns = 0; turns < 3; turns++)
            turn();
    }
    for (size_t i = 0; i < 2; i++)
        write_all(peers[i], "x", 1);
    WAIT_FOR(poll_for(io, SECOND_NS / 100) >= 4);
    harness_log_begin(WEIR_LOG_OFF);
    weir_fault_set(fail_enter, NULL);
    in_complete++;
    io->type->complete(io);
    in_complete--;
    weir_fault_set(NULL, NULL);
    harness_log_end();
    owner *lost = a.file.error < 0 ? &a : &b;
    assert_int_equal(lost->file.error, -EAGAIN);
    assert_true(lost->in.is_pending && lost->out.is_pending);
    TURN_UNTIL(lost->in.finals == 1 && lost->out.finals == 1 && lost->level.finals == 1);
    assert_int_equal(lost->in.last, -EAGAIN);
    assert_int_equal(lost->out.last, -EAGAIN);
    assert_int_equal(lost->level.last, -EAGAIN);
    write_all(peers[lost == &b], "y", 1);
    wait_for(lost, POLLIN);
    turn();
    assert_int_equal(pending_bytes(lost->file.fd), 1);
    end_pair(&a, peers[0]);
    end_pair(&b, peers[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(opening_fails_at_every_call),
        weir_case(who_starts_a_loop_is_told_that_it_has_no_ring),
        uring_case(without_buffers_it_receives_all_the_same),
        uring_case(what_came_before_the_ring_broke_is_told),
        uring_case(a_send_under_way_is_lost_with_its_file),
        uring_case(waiting_for_space_outlives_the_ring),
        uring_case(what_overflowed_is_lost_with_its_file),
        uring_case(what_was_cancelled_is_cancelled),
        uring_case(a_ring_that_cannot_be_made_is_tried_again),
        uring_case(what_passes_is_no_reason_to_rebuild),
        uring_case(a_cancel_that_finds_no_room_is_not_forgotten),
        uring_case(a_submit_that_finds_no_room_ends),
        uring_case(what_the_kernel_has_of_a_lost_file_ends_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
