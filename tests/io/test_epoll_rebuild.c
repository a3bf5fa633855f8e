/* SPDX-License-Identifier: MIT */
/* A backend itself: opened, woken up, replaced, and without what it needs. */
#include "io/ops.h"

#include <pthread.h>

#define FILES 50

static owner *files;
static int peers[FILES];

static void own_files(void)
{
    files = calloc(FILES, sizeof *files);
    for (int i = 0; i < FILES; i++) {
        files[i].name = "x";
        peers[i] = own_half_of_pair(&files[i]);
        receive_always(&files[i]);
    }
    turn();
}

static void close_files(void)
{
    for (int i = 0; i < FILES; i++) {
        close_owner(&files[i]);
        assert_int_equal(close(peers[i]), 0);
    }
    free(files);
}

/* Each of them gets a byte and answers it, but for one (or -1). */
static void assert_echo_except(int lost)
{
    char byte;
    for (int i = 0; i < FILES; i++) {
        if (i == lost)
            continue;
        int results = files[i].in.results;
        write_all(peers[i], "x", 1);
        TURN_UNTIL(files[i].in.results > results);
        assert_int_equal(files[i].in.last, 1);
        assert_int_equal(send_bytes(&files[i], "y", 1), 1);
        assert_int_equal(read(peers[i], &byte, 1), 1);
    }
    story_length = 0;
    story[0] = '\0';
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Rebuilding --------------------------------------------------------------------------------- */

static void all_files_move_to_a_new_epoll(void **state)
{
    (void)state;
    own_files();
    int old = io->type->descriptor(io);
    size_t descriptors = count_descriptors();
    kernel.adds = 0;
    assert_int_equal(io->type->rebuild(io), 0);
    assert_int_not_equal(io->type->descriptor(io), old);
    assert_int_equal(fcntl(old, F_GETFD), -1);
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(kernel.adds, FILES + 1);
    assert_int_equal(value_of(&counters.rebuilds), 1);
    assert_echo_except(-1);
    for (int i = 0; i < FILES; i++)
        assert_int_equal(files[i].in.finals, 0); /* they know nothing of it */
    close_files();
}

static void s087_what_cannot_be_moved_fails_alone(void **state)
{
    (void)state;
    enum { LOST = 17 };
    own_files();
    owner *lost = &files[LOST];
    lost->name = "lost";
    wait_for_hangup(lost);
    size_t filled = fill(lost->file.fd);
    assert_int_equal(send_bytes(lost, "z", 1), WEIR_IO_PENDING);
    turn();
    kernel.refused_fd = lost->file.fd;
    kernel.refusal = -ENOSPC;
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(io->type->rebuild(io), 0);
    assert_true(harness_log_has("is lost"));
    assert_int_equal(harness_log_end(), 1);
    assert_story(""); /* told in the completion phase */
    assert_true(has_results());
    assert_int_equal(turn(), 3);
    assert_story("lost<ENOSPC. lost~ENOSPC. lost>ENOSPC.");
    assert_int_equal(lost->file.error, -ENOSPC);
    assert_echo_except(LOST);

    /* Whatever it tries from now on fails with that, although epoll would want it again. */
    kernel.refused_fd = -1;
    assert_int_equal(drain(peers[LOST]), filled);
    assert_int_equal(send_bytes(lost, "z", 1), -ENOSPC);
    assert_int_equal(connect_to(lost, loopback()), -ENOSPC);
    receive_always(lost);
    wait_for_hangup(lost);
    watch_level(lost, WEIR_IO_READABLE);
    assert_int_equal(turn(), 3);
    assert_story("lost<ENOSPC. lost~ENOSPC. lost?ENOSPC.");
    turn();
    assert_quiet();
    close_files();
}

/* The first, the last, and several of them. */
static void s087_whichever_cannot_be_moved(void **state)
{
    (void)state;
    own_files();
    const int lost[] = { 0, FILES - 1, 25 };
    for (size_t i = 0; i < COUNT_OF(lost); i++) {
        kernel.refused_fd = files[lost[i]].file.fd;
        kernel.refusal = -ENOMEM;
        harness_log_begin(WEIR_LOG_ERROR);
        assert_int_equal(io->type->rebuild(io), 0);
        harness_log_end();
        TURN_UNTIL(files[lost[i]].in.finals == 1);
        assert_int_equal(files[lost[i]].in.last, -ENOMEM);
    }
    kernel.refused_fd = -1;
    int finals = 0;
    for (int i = 0; i < FILES; i++)
        finals += files[i].in.finals;
    assert_int_equal(finals, 3);
    close_files();
}

static void assert_rebuild_fails(const char *call)
{
    int old = io->type->descriptor(io);
    size_t descriptors = count_descriptors();
    harness_fail_nth(call, 1, -EMFILE);
    assert_int_equal(io->type->rebuild(io), -EMFILE);
    harness_fail_end();
    assert_int_equal(io->type->descriptor(io), old);
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(value_of(&counters.rebuilds), 0);
    assert_echo_except(-1);
}

static void a_rebuild_that_fails_leaves_the_old_one(void **state)
{
    (void)state;
    own_files();
    assert_rebuild_fails("epoll_create1");
    assert_rebuild_fails("epoll_ctl");
    close_files();
}

/* Events that were fetched, or that came meanwhile, are reported anew. */
static void a_rebuild_loses_no_event(void **state)
{
    (void)state;
    owner a = { .name = "a" }, b = { .name = "b" };
    int a_peer = own_half_of_pair(&a), b_peer = own_half_of_pair(&b);
    receive_always(&a);
    receive_always(&b);
    turn();
    write_all(a_peer, "abc", 3);
    assert_int_equal(poll_for(io, 0), 1);
    write_all(b_peer, "abcd", 4);
    assert_int_equal(io->type->rebuild(io), 0);
    io->type->wake(io);
    assert_int_equal(turn(), 2);
    assert_int_equal(a.received_length, 3);
    assert_int_equal(b.received_length, 4);
    assert_quiet();
    close_owner(&a);
    close_owner(&b);
    assert_int_equal(close(a_peer), 0);
    assert_int_equal(close(b_peer), 0);
}

/* A level stays a level, an edge an edge, and who was not added is not. */
static void a_rebuild_keeps_the_way_of_watching(void **state)
{
    (void)state;
    owner level = { .name = "l" }, edge = { .name = "e" }, idle = { .name = "i" };
    int level_peer = own_half_of_pair(&level), edge_peer = own_half_of_pair(&edge);
    own(&idle, sys->socket(sys, AF_INET, SOCK_STREAM, 0));
    watch_level(&level, WEIR_IO_READABLE);
    receive_once(&edge);
    turn();
    kernel.adds = 0;
    assert_int_equal(io->type->rebuild(io), 0);
    assert_int_equal(kernel.adds, 3); /* with the wake-up */
    turn();
    write_all(level_peer, "x", 1);
    write_all(edge_peer, "xy", 2);
    assert_int_equal(turn(), 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(turn(), 1);
    assert_int_equal(level.level.results, 4);
    assert_int_equal(edge.in.results, 1);
    cancel(&level.level);
    turn();
    assert_quiet();
    close_owner(&level);
    close_owner(&edge);
    disown(&idle);
    assert_int_equal(close(level_peer), 0);
    assert_int_equal(close(edge_peer), 0);
}

/* The epoll is closed behind its back: poll says so, and a rebuild mends it. */
static void a_rebuild_mends_a_closed_epoll(void **state)
{
    (void)state;
    own_files();
    assert_int_equal(close(io->type->descriptor(io)), 0);
    assert_int_equal(poll_for(io, 0), -EBADF);
    assert_int_equal(io->type->complete(io), 0);
    int taken = dup(0); /* somebody else has the number by now, and keeps it */
    assert_int_equal(io->type->rebuild(io), 0);
    assert_int_equal(close(taken), 0);
    assert_echo_except(-1);
    close_files();
}

/* An interrupted poll says so and has no events. */
static void an_interrupted_poll_has_no_events(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, "x", 1);
    harness_fail_nth(current->wait, 1, -EINTR);
    assert_int_equal(io->type->poll(io, 0), -EINTR);
    harness_fail_end();
    assert_int_equal(io->type->complete(io), 0);
    assert_int_equal(turn(), 1);
    assert_story("a<1 a|");
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* Waking up ---------------------------------------------------------------------------------- */

static void *wake_after_a_while(void *arg)
{
    (void)arg;
    usleep(20000);
    io->type->wake(io);
    return NULL;
}

static void wake_ends_a_poll(void **state)
{
    (void)state;
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread, NULL, wake_after_a_while, NULL), 0);
        assert_int_equal(poll_for(io, -1), 1);
        assert_int_equal(io->type->complete(io), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_quiet();
    }
}

static void wake_before_a_poll_ends_it(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        io->type->wake(io);
    assert_int_equal(poll_for(io, -1), 1); /* however many they were */
    assert_int_equal(io->type->complete(io), 0);
    assert_int_equal(io->type->spinner(io), -1);
    assert_quiet();
    assert_int_equal(io->type->rebuild(io), 0);
    turn();
    io->type->wake(io);
    assert_int_equal(poll_for(io, -1), 1);
    io->type->complete(io);
    assert_quiet();
}

static void wake_survives_an_interruption(void **state)
{
    (void)state;
    harness_fail_nth("write", 1, -EINTR);
    io->type->wake(io);
    assert_int_equal(harness_fail_end(), 2);
    assert_int_equal(poll_for(io, -1), 1);
    io->type->complete(io);
}

static int fail_every_write(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    return strcmp(call, "write") == 0 ? -EIO : 0;
}

static void a_wake_that_fails_is_told(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_ERROR);
    weir_fault_set(fail_every_write, NULL);
    io->type->wake(io);
    weir_fault_set(NULL, NULL);
    assert_true(harness_log_has("cannot wake a loop up"));
    assert_int_equal(harness_log_end(), 1);
    assert_quiet();
}

/* Another thread may be about to wake a loop that ends. Its descriptor has to stay open until the
 * backend is destroyed: else the write fails, or reaches a file that got the number since. */
static void wake_after_close_writes_to_nothing_else(void **state)
{
    (void)state;
    int fds[2];
    io->type->close(io);
    make_pair(fds);
    harness_log_begin(WEIR_LOG_DEBUG);
    io->type->wake(io);
    io->type->close(io);
    assert_int_equal(harness_log_end(), 0);
    struct pollfd both[2] = { { .fd = fds[0], .events = POLLIN },
                              { .fd = fds[1], .events = POLLIN } };
    assert_int_equal(poll(both, 2, 0), 0);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

static void poll_waits_as_long_as_it_was_told(void **state)
{
    (void)state;
    int64_t start = weir_clock_now_ns(weir_clock_monotonic());
    assert_int_equal(poll_for(io, 20000000), 0);
    int64_t elapsed = weir_clock_now_ns(weir_clock_monotonic()) - start;
    assert_true(elapsed >= 20000000);
    assert_int_equal(kernel.timeout_ns, 20000000);
    assert_true(value_of(&counters.polls) >= 1);
}

/* Opening ------------------------------------------------------------------------------------ */

/* Each call that can fail does, in turn: a code, and nothing is left (weir_case sees to that). */
static void check_opening(const backend *which, unsigned calls, int failure)
{
    unsigned nth = 1, made;
    sys = weir__sys_linux();
    for (;; nth++) {
        weir_io *opened = NULL;
        weir_io_counters counts = { 0 };
        weir_allocator_stats before, after;
        size_t descriptors = count_descriptors();
        weir_allocator_get_stats(&before);
        harness_fail_nth(NULL, nth, failure);
        int code = which->open(sys, &counts, &opened);
        made = harness_fail_end();
        if (code == 0) {
            assert_true(made < nth);
            assert_string_equal(opened->type->name, which->name);
            opened->type->close(opened);
            opened->type->destroy(opened);
            break;
        }
        weir_allocator_get_stats(&after);
        assert_true(code == failure || code == -ENOMEM);
        assert_null(opened);
        assert_int_equal(after.live, before.live);
        assert_int_equal(count_descriptors(), descriptors);
    }
    assert_int_equal(nth - 1, calls);
}

static void opening_fails_at_every_call(void **state)
{
    (void)state;
    const int codes[] = { -ENOMEM, -EMFILE };
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        /* two allocations, eventfd, epoll_create1, epoll_ctl */
        check_opening(&backends[EPOLL], 5, codes[i]);
        check_opening(&backends[BLOCKING], 2, codes[i]); /* an allocation, eventfd */
    }
}

static void destroying_also_closes(void **state)
{
    (void)state;
    int count = harness_has_uring() ? BACKENDS : URING;
    for (int i = 0; i < count; i++) {
        weir_io *opened = NULL;
        weir_io_counters counts = { 0 };
        assert_int_equal(backends[i].open(weir__sys_linux(), &counts, &opened), 0);
        opened->type->destroy(opened);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        epoll_case(all_files_move_to_a_new_epoll),
        epoll_case(s087_what_cannot_be_moved_fails_alone),
        epoll_case(s087_whichever_cannot_be_moved),
        epoll_case(a_rebuild_that_fails_leaves_the_old_one),
        epoll_case(a_rebuild_loses_no_event),
        epoll_case(a_rebuild_keeps_the_way_of_watching),
        epoll_case(a_rebuild_mends_a_closed_epoll),
        io_cases(an_interrupted_poll_has_no_events),
        io_cases(wake_ends_a_poll),
        call_cases(wake_before_a_poll_ends_it),
        io_cases(wake_survives_an_interruption),
        io_cases(a_wake_that_fails_is_told),
        io_cases(wake_after_close_writes_to_nothing_else),
        call_cases(poll_waits_as_long_as_it_was_told),
        weir_case(opening_fails_at_every_call),
        weir_case(destroying_also_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
