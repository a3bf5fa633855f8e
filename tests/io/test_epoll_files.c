/* SPDX-License-Identifier: MIT */
/* The epoll backend's files: when epoll is told about them, what is gone, what is moved. */
#include "io/ops.h"

#include <sys/resource.h>

#define MANY 300

/* Registration ------------------------------------------------------------------------------- */

static void added_once_for_connect_send_and_receive(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int listener = listen_on_loopback();
    uint64_t before = value_of(&counters.controls);
    kernel.adds = 0;
    own(&a, sys->socket(sys, AF_INET, SOCK_STREAM, 0));
    assert_int_equal(connect_to(&a, name_of(listener)), WEIR_IO_PENDING);
    TURN_UNTIL(a.out.finals == 1);
    receive_always(&a);
    wait_for_hangup(&a);
    wait_until(listener, POLLIN);
    int peer = accept(listener, NULL, NULL);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "hello", 5), WEIR_IO_PENDING);
    write_all(peer, "abc", 3);
    for (int i = 0; a.out.finals < 2; i++) {
        assert_true(i < 1000);
        drain(peer);
        turn_for(io, SECOND_NS / 1000);
    }
    TURN_UNTIL(a.in.results == 1);
    close_owner(&a);
    assert_int_equal(kernel.adds, 1);
    assert_int_equal(kernel.changes, 0);
    assert_int_equal(kernel.removals, 0); /* closing does that */
    assert_int_equal(value_of(&counters.controls) - before, 1);
    assert_int_equal(close(peer), 0);
    assert_int_equal(close(listener), 0);
}

static void nothing_is_changed_after_the_registration(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    kernel.adds = 0;
    for (int i = 0; i < 100; i++) {
        a.in.op.is_multishot = i % 2 == 0;
        assert_int_equal(submit(&a.in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
        write_all(peer, "x", 1);
        turn();
        assert_int_equal(a.received_length, i + 1);
        if (a.in.is_pending)
            cancel(&a.in);
        turn();
        assert_int_equal(send_bytes(&a, "y", 1), 1);
        assert_int_equal(drain(peer), 1);
    }
    assert_int_equal(kernel.adds, 1);
    assert_int_equal(kernel.changes + kernel.removals, 0);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void a_send_that_never_waits_is_not_added(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    kernel.adds = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(send_bytes(&a, "x", 1), 1);
        turn();
    }
    assert_int_equal(drain(peer), 100);
    assert_int_equal(kernel.adds + kernel.changes + kernel.removals, 0);
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* In epoll, it would report a hang-up at once. */
static void a_fresh_socket_is_not_in_epoll(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    own(&a, sys->socket(sys, AF_INET, SOCK_STREAM, 0));
    assert_int_equal(kernel.adds, 1); /* the wake-up */
    assert_quiet();
    disown(&a);
}

/* Epoll says no: the operation that had to wait fails, in the way of its kind. */
static void epoll_does_not_want_it(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    kernel.refused_fd = a.file.fd;
    kernel.refusal = -ENOSPC;
    receive_always(&a);
    assert_story("");
    assert_true(has_results());
    assert_int_equal(turn(), 1);
    assert_story("a<ENOSPC.");
    wait_for_hangup(&a);
    assert_int_equal(turn(), 1);
    assert_story("a~ENOSPC.");
    size_t filled = fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), -ENOSPC);
    assert_quiet();
    kernel.refused_fd = -1; /* and then it does */
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    assert_int_equal(drain(peer), filled);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>1.");
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void epoll_does_not_want_a_socket_that_connects(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int listener = listen_on_loopback();
    own(&a, sys->socket(sys, AF_INET, SOCK_STREAM, 0));
    kernel.refused_fd = a.file.fd;
    kernel.refusal = -ENOMEM;
    assert_int_equal(connect_to(&a, name_of(listener)), -ENOMEM);
    assert_quiet();
    disown(&a);
    assert_int_equal(close(listener), 0);
}

/* A regular file is never waited for. */
static void a_regular_file_cannot_wait(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    own(&a, open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    receive_always(&a);
    assert_story("");
    assert_int_equal(turn(), 1);
    assert_story("a<EPERM.");
    assert_quiet();
    disown(&a);
}

static void attaching_without_memory_fails(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int fds[2];
    make_pair(fds);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(io->type->attach(io, &a.file, fds[0]), -ENOMEM);
    harness_fail_end();
    own(&a, fds[0]);
    disown(&a);
    assert_int_equal(close(fds[1]), 0);
}

/* Gone --------------------------------------------------------------------------------------- */

static owner *victim, *heir;

/* Closes one file, and attaches another, which gets its descriptor's number and its slot. */
static void replace_victim(void)
{
    int fd = victim->file.fd;
    uint32_t slot = victim->file.slot;
    disown(victim);
    own_in_place_of(heir, fd, slot);
}

static void close_victim(probe *self, const weir_io_result *result)
{
    (void)self;
    (void)result;
    replace_victim();
}

/* Registered, and with nothing armed: it can be closed at any time. */
static int own_registered(owner *self)
{
    int peer = own_half_of_pair(self);
    receive_once(self);
    turn();
    write_all(peer, "x", 1);
    TURN_UNTIL(self->in.finals == 1);
    assert_false(has_results());
    return peer;
}

static void s100_closed_while_another_is_handled_in_the_same_batch(void **state)
{
    (void)state;
    owner a = { .name = "a" }, b = { .name = "b" }, c = { .name = "c" };
    victim = &b;
    heir = &c;
    int a_peer = own_registered(&a), b_peer = own_registered(&b);
    receive_always(&a);
    assert_story("a<1. a| b<1. b|");
    a.in.then = close_victim;
    write_all(a_peer, "x", 1);
    write_all(b_peer, "x", 1);
    assert_int_equal(poll_for(io, 0), 2);
    in_complete++;
    assert_int_equal(io->type->complete(io), 1);
    in_complete--;
    assert_story("a<1 a|"); /* nothing for b, nor for c in its place */
    TURN_UNTIL(c.in.finals == 1);
    assert_story("c<0.");
    assert_int_equal(c.received_length, 0);
    assert_quiet();
    disown(&c);
    close_owner(&a);
    assert_int_equal(close(a_peer), 0);
    assert_int_equal(close(b_peer), 0);
}

/* The event has been fetched but not looked at: its generation says that it is of another. */
static void s100_a_stale_generation_is_dropped_and_counted(void **state)
{
    (void)state;
    owner b = { .name = "b" }, c = { .name = "c" };
    victim = &b;
    heir = &c;
    int peer = own_registered(&b);
    assert_story("b<1. b|");
    write_all(peer, "x", 1);
    assert_int_equal(poll_for(io, 0), 1);
    int fd = b.file.fd;
    replace_victim();
    kernel.receives = 0;
    assert_int_equal(io->type->complete(io), 0);
    assert_int_equal(kernel.receives, 0); /* c is not even looked at */
    assert_int_equal(value_of(&counters.stale), 1);
    assert_int_equal(io->type->spinner(io), fd);
    TURN_UNTIL(c.in.finals == 1);
    assert_story("c<0.");
    assert_int_equal(value_of(&counters.stale), 1);
    disown(&c);
    assert_int_equal(close(peer), 0);
}

static owner *crowd;
static int *crowd_peers;

static void gather_crowd(bool is_registered_only)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 3 * MANY) {
        limit.rlim_cur = 3 * MANY;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    crowd = calloc(MANY, sizeof *crowd);
    crowd_peers = calloc(MANY, sizeof *crowd_peers);
    for (int i = 0; i < MANY; i++) {
        crowd[i].name = "x";
        crowd_peers[i] = own_half_of_pair(&crowd[i]);
    }
    /* Twice, until the array of events has room for all of them. */
    for (int wave = 1; wave <= 2; wave++) {
        for (int i = 0; i < MANY; i++) {
            receive_once(&crowd[i]);
            write_all(crowd_peers[i], "x", 1);
        }
        for (int i = 0; i < MANY; i++)
            TURN_UNTIL(crowd[i].in.finals == wave);
    }
    for (int i = 0; i < MANY && !is_registered_only; i++)
        receive_always(&crowd[i]);
    while (poll_for(io, 0) > 0)
        io->type->complete(io);
    story_length = 0;
    story[0] = '\0';
}

static void leave_crowd(void)
{
    for (int i = 0; i < MANY; i++)
        assert_int_equal(close(crowd_peers[i]), 0);
    free(crowd);
    free(crowd_peers);
}

static void close_crowd(probe *self, const weir_io_result *result)
{
    (void)self;
    (void)result;
    for (int i = 0; i < MANY; i++)
        disown(&crowd[i]);
}

static void cancel_crowd(probe *self, const weir_io_result *result)
{
    (void)self;
    (void)result;
    for (int i = 0; i < MANY; i++)
        cancel(&crowd[i].in);
}

/* All of them have an event in the batch, behind that of the one whose callback ends them. */
static int all_at_once(owner *a, int a_peer)
{
    write_all(a_peer, "a", 1);
    for (int i = 0; i < MANY; i++)
        write_all(crowd_peers[i], "x", 1);
    assert_int_equal(poll_for(io, 0), MANY + 1);
    in_complete++;
    int count = (int)io->type->complete(io);
    in_complete--;
    assert_int_equal(a->in.results, 1);
    return count;
}

static void s101_many_closed_inside_one_callback(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = close_crowd };
    int a_peer = own_half_of_pair(&a);
    receive_always(&a);
    gather_crowd(true);
    kernel.receives = 0;
    assert_int_equal(all_at_once(&a, a_peer), 1);
    assert_story("a<1 a|");
    assert_int_equal(kernel.receives, 1);
    assert_quiet();
    for (int i = 0; i < MANY; i++)
        assert_int_equal(crowd[i].in.results, 2); /* from before */
    leave_crowd();
    close_owner(&a);
    assert_int_equal(close(a_peer), 0);
}

/* The same with operations in flight, which are cancelled: each hears that once, and no data. */
static void s101_many_cancelled_inside_one_callback(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = cancel_crowd };
    int a_peer = own_half_of_pair(&a);
    receive_always(&a);
    gather_crowd(false);
    kernel.receives = 0;
    assert_int_equal(all_at_once(&a, a_peer), 1);
    assert_story("a<1 a|");
    assert_int_equal(kernel.receives, 1);
    assert_int_equal(turn(), MANY);
    expect(MANY, "x<ECANCELED.");
    assert_expected();
    assert_quiet();
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(pending_bytes(crowd[i].file.fd), 1);
        disown(&crowd[i]);
    }
    leave_crowd();
    close_owner(&a);
    assert_int_equal(close(a_peer), 0);
}

static void s102_moved_to_another_backend_while_an_event_is_queued(void **state)
{
    (void)state;
    weir_io *second = NULL;
    weir_io_counters second_counters = { 0 };
    assert_int_equal(weir__epoll_open(&kernel.calls, &second_counters, &second), 0);
    owner a = { .name = "a" };
    int peer = own_registered(&a), fd = a.file.fd;
    assert_story("a<1. a|");
    write_all(peer, "abc", 3);
    assert_int_equal(poll_for(io, 0), 1);
    io->type->detach(io, &a.file);
    own_at(second, &a, fd);
    receive_always(&a);
    assert_int_equal(io->type->complete(io), 0);
    assert_story("");
    assert_int_equal(value_of(&counters.stale), 1);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    assert_int_equal(turn_for(second, 0), 1);
    assert_story("a<3 a|");
    write_all(peer, "d", 1);
    assert_quiet(); /* the first one hears no more of it */
    assert_int_equal(turn_for(second, 0), 1);
    assert_int_equal(value_of(&second_counters.stale), 0);
    close_owner(&a);
    second->type->close(second);
    second->type->destroy(second);
    assert_int_equal(close(peer), 0);
}

/* Somebody has a duplicate, so that epoll still reports: dropped, counted, and without a spin. */
static void a_duplicate_outlives_its_file(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_registered(&a), duplicate = dup(a.file.fd), fd = a.file.fd;
    disown(&a);
    assert_story("a<1. a|");
    for (unsigned i = 1; i <= 3; i++) {
        write_all(peer, "x", 1);
        assert_int_equal(poll_for(io, SECOND_NS), 1);
        assert_int_equal(io->type->complete(io), 0);
        assert_int_equal(value_of(&counters.stale), i);
        assert_int_equal(io->type->spinner(io), fd);
        assert_quiet();
        assert_int_equal(io->type->spinner(io), -1);
    }
    assert_int_equal(close(duplicate), 0);
    assert_int_equal(close(peer), 0);
}

/* A level would come again and again. */
static void a_duplicate_of_a_polled_descriptor_does_not_spin(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int fds[2];
    make_pair(fds);
    own(&a, fds[0]);
    watch_level(&a, WEIR_IO_READABLE);
    int duplicate = dup(fds[0]);
    write_all(fds[1], "x", 1);
    assert_int_equal(turn(), 1);
    cancel(&a.level);
    assert_int_equal(turn(), 1);
    assert_story("a?1 a?ECANCELED.");
    disown(&a);
    assert_quiet();
    assert_int_equal(value_of(&counters.stale), 0);
    assert_int_equal(close(duplicate), 0);
    assert_int_equal(close(fds[1]), 0);
}

/* The array of events ------------------------------------------------------------------------ */

static void s098_no_allocation_per_event(void **state)
{
    (void)state;
    enum { FILES = 50, ROUNDS = 2100, SETTLED = 100 };
    const char *pool = getenv("WEIR_POOL");
    if (pool != NULL && strcmp(pool, "0") == 0)
        skip(); /* every buffer is an allocation */
    owner *files = calloc(FILES, sizeof *files);
    int peers[FILES];
    weir_allocator_stats before, after;
    for (int i = 0; i < FILES; i++) {
        files[i].name = "";
        peers[i] = own_half_of_pair(&files[i]);
        receive_always(&files[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (round == SETTLED) /* all guesses have come down to the smallest */
            weir_allocator_get_stats(&before);
        for (int i = 0; i < FILES; i++)
            write_all(peers[i], "x", 1);
        assert_int_equal(turn(), FILES);
        story_length = 0;
    }
    weir_allocator_get_stats(&after);
    assert_int_equal(after.allocations, before.allocations);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(files[i].received_length, ROUNDS);
        close_owner(&files[i]);
        assert_int_equal(close(peers[i]), 0);
    }
    free(files);
}

/* 64 events fit at first; a poll that is filled makes room for twice as many. */
static void s098_the_array_grows_when_it_is_filled(void **state)
{
    (void)state;
    enum { FILES = 200 };
    owner *files = calloc(FILES, sizeof *files);
    int peers[FILES];
    for (int i = 0; i < FILES; i++) {
        files[i].name = "x";
        peers[i] = own_half_of_pair(&files[i]);
        receive_always(&files[i]);
        write_all(peers[i], "x", 1);
    }
    assert_int_equal(poll_for(io, 0), 64);
    in_complete++;
    assert_int_equal(io->type->complete(io), 64);
    assert_int_equal(poll_for(io, 0), 128);
    assert_int_equal(io->type->complete(io), 128);
    assert_int_equal(poll_for(io, 0), 8);
    assert_int_equal(io->type->complete(io), 8);
    in_complete--;
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(files[i].in.results, 1);
        write_all(peers[i], "x", 1);
    }
    assert_int_equal(poll_for(io, 0), 200); /* all at once */
    in_complete++;
    assert_int_equal(io->type->complete(io), 200);
    in_complete--;
    for (int i = 0; i < FILES; i++) {
        close_owner(&files[i]);
        assert_int_equal(close(peers[i]), 0);
    }
    free(files);
}

/* Without memory to grow, the rest comes with the next poll. */
static void no_memory_for_a_larger_array(void **state)
{
    (void)state;
    enum { FILES = 100 };
    owner *files = calloc(FILES, sizeof *files);
    int peers[FILES];
    for (int i = 0; i < FILES; i++) {
        files[i].name = "x";
        peers[i] = own_half_of_pair(&files[i]);
        receive_always(&files[i]);
        write_all(peers[i], "x", 1);
    }
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(poll_for(io, 0), 64);
    assert_int_equal(harness_fail_end(), 1);
    in_complete++;
    assert_int_equal(io->type->complete(io), 64);
    in_complete--;
    assert_int_equal(turn(), 36);
    assert_quiet();
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(files[i].received_length, 1);
        close_owner(&files[i]);
        assert_int_equal(close(peers[i]), 0);
    }
    free(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        epoll_case(added_once_for_connect_send_and_receive),
        epoll_case(nothing_is_changed_after_the_registration),
        epoll_case(a_send_that_never_waits_is_not_added),
        epoll_case(a_fresh_socket_is_not_in_epoll),
        epoll_case(epoll_does_not_want_it),
        epoll_case(epoll_does_not_want_a_socket_that_connects),
        epoll_case(a_regular_file_cannot_wait),
        epoll_case(attaching_without_memory_fails),
        epoll_case(s100_closed_while_another_is_handled_in_the_same_batch),
        epoll_case(s100_a_stale_generation_is_dropped_and_counted),
        epoll_case(s101_many_closed_inside_one_callback),
        epoll_case(s101_many_cancelled_inside_one_callback),
        epoll_case(s102_moved_to_another_backend_while_an_event_is_queued),
        epoll_case(a_duplicate_outlives_its_file),
        epoll_case(a_duplicate_of_a_polled_descriptor_does_not_spin),
        epoll_case(s098_no_allocation_per_event),
        epoll_case(s098_the_array_grows_when_it_is_filled),
        epoll_case(no_memory_for_a_larger_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
