/* SPDX-License-Identifier: MIT */
/* Watches: descriptors that are somebody else's, from the start to exactly one end. */
#include "loops.h"

#include <weir/channel.h>
#include <weir/socket.h>

#include <stdio.h>
#include <sys/socket.h>

static void start(probe_watch *w, weir_group *group, int fd, unsigned events)
{
    assert_int_equal(weir_watch_start(&w->watch, weir_group_loop_at(group, 0), fd, events), 0);
}

static void stop(probe_watch *w)
{
    assert_int_equal(weir_watch_stop(&w->watch), 0);
    WAIT_FOR(atomic_load(&w->stops) == 1);
}

static uint64_t channels_of(weir_group *group)
{
    settle(weir_group_at(group, 0));
    return loop_stats_of(weir_group_loop_at(group, 0)).channels;
}

/* Being called ------------------------------------------------------------------------------- */

static void s099_pipe_calls_its_callback_and_tells_its_end(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    int tid = tid_on(weir_group_at(group, 0));
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(100);
    start(&w, group, p.in, WEIR_WATCH_READ);
    assert_int_equal(channels_of(group), 1);
    assert_int_equal(atomic_load(&w.readies), 0);
    for (int i = 1; i <= 10; i++) {
        pipe_put(&p, 3);
        WAIT_FOR(atomic_load(&w.taken) == 3 * (size_t)i);
    }
    assert_int_equal(atomic_load(&w.readies), 10);
    assert_int_equal(atomic_load(&w.events), WEIR_WATCH_READ);
    assert_int_equal(atomic_load(&w.tid), tid);
    assert_int_equal(atomic_load(&w.stops), 0);
    stop(&w);
    assert_int_equal(atomic_load(&w.code), 0);
    assert_int_equal(atomic_load(&w.stop_tid), tid);
    pipe_put(&p, 1);
    assert_int_equal(channels_of(group), 0);
    assert_int_equal(atomic_load(&w.readies), 10);
    pipe_close(&p);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 1);
}

static void s099_is_called_again_while_it_is_not_drained(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1), idle = PROBE_WATCH(0);
    pipe_put(&p, 50); /* before it is watched */
    start(&w, group, p.in, WEIR_WATCH_READ);
    WAIT_FOR(atomic_load(&w.taken) == 50);
    assert_int_equal(atomic_load(&w.readies), 50);
    stop(&w);
    pipe_put(&p, 1);
    start(&idle, group, p.in, WEIR_WATCH_READ);
    WAIT_FOR(atomic_load(&idle.readies) > 50);
    settle(weir_group_at(group, 0)); /* which keeps no task from running */
    stop(&idle);
    pipe_close(&p);
    end_group(group);
}

static void writable_is_told(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    static char much[1 << 17];
    while (write(p.out, much, sizeof much) > 0) {
    }
    start(&w, group, p.out, WEIR_WATCH_WRITE);
    settle(weir_group_at(group, 0));
    settle(weir_group_at(group, 0));
    assert_int_equal(atomic_load(&w.readies), 0);
    while (read(p.in, much, sizeof much) > 0) {
    }
    WAIT_FOR(atomic_load(&w.readies) > 0);
    assert_int_equal(atomic_load(&w.events), WEIR_WATCH_WRITE);
    stop(&w);
    pipe_close(&p);
    end_group(group);
}

static void hangup_is_told_unasked(void **state)
{
    (void)state;
    for (unsigned asked = 0; asked <= WEIR_WATCH_READ; asked += WEIR_WATCH_READ) {
        weir_group *group = new_loops_of(1);
        test_pipe p = pipe_open();
        probe_watch w = PROBE_WATCH(10);
        start(&w, group, p.in, asked);
        settle(weir_group_at(group, 0));
        assert_int_equal(atomic_load(&w.readies), 0);
        close(p.out);
        p.out = -1;
        WAIT_FOR(atomic_load(&w.readies) > 0);
        assert_true(atomic_load(&w.events) & WEIR_WATCH_HANGUP);
        stop(&w);
        pipe_close(&p);
        end_group(group);
    }
}

static void both_ends_of_a_socket_are_watched_at_once(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    probe_watch a = PROBE_WATCH(10), b = PROBE_WATCH(10);
    start(&a, group, fds[0], WEIR_WATCH_READ);
    start(&b, group, fds[1], WEIR_WATCH_READ);
    assert_int_equal(write(fds[0], "12345", 5), 5);
    assert_int_equal(write(fds[1], "123", 3), 3);
    WAIT_FOR(atomic_load(&a.taken) == 3 && atomic_load(&b.taken) == 5);
    stop(&a);
    stop(&b);
    close(fds[0]);
    close(fds[1]);
    end_group(group);
}

/* Changing ----------------------------------------------------------------------------------- */

typedef struct changer {
    probe_watch *w;
    unsigned events;
} changer;

static int change(void *arg)
{
    changer *self = arg;
    return weir_watch_change(&self->w->watch, self->events);
}

static int change_on_loop(weir_group *group, probe_watch *w, unsigned events)
{
    changer c = { w, events };
    return call_on(weir_group_at(group, 0), change, &c);
}

static void change_waits_for_something_else(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    probe_watch w = PROBE_WATCH(0);
    start(&w, group, fds[0], WEIR_WATCH_READ);
    settle(weir_group_at(group, 0));
    assert_int_equal(atomic_load(&w.readies), 0);
    assert_int_equal(change_on_loop(group, &w, WEIR_WATCH_WRITE), 0);
    WAIT_FOR(atomic_load(&w.readies) > 0);
    assert_int_equal(atomic_load(&w.events), WEIR_WATCH_WRITE);
    assert_int_equal(change_on_loop(group, &w, 0), 0);
    settle(weir_group_at(group, 0));
    settle(weir_group_at(group, 0));
    int before = atomic_load(&w.readies);
    assert_int_equal(write(fds[1], "1", 1), 1);
    settle(weir_group_at(group, 0));
    assert_int_equal(atomic_load(&w.readies), before);
    assert_int_equal(change_on_loop(group, &w, WEIR_WATCH_READ | WEIR_WATCH_WRITE), 0);
    WAIT_FOR(atomic_load(&w.events) == (WEIR_WATCH_READ | WEIR_WATCH_WRITE));
    assert_int_equal(atomic_load(&w.stops), 0);
    assert_int_equal(channels_of(group), 1);
    stop(&w);
    assert_int_equal(atomic_load(&w.code), 0);
    close(fds[0]);
    close(fds[1]);
    end_group(group);
}

static void change_to_nothing(probe_watch *self)
{
    atomic_store(&self->then_code, weir_watch_change(&self->watch, 0));
}

static void change_from_inside_ready(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    w.then = change_to_nothing;
    pipe_put(&p, 1);
    start(&w, group, p.in, WEIR_WATCH_READ);
    WAIT_FOR(atomic_load(&w.readies) == 1);
    for (int i = 0; i < 10; i++)
        settle(weir_group_at(group, 0));
    assert_int_equal(atomic_load(&w.readies), 1);
    assert_int_equal(atomic_load(&w.then_code), 0);
    stop(&w);
    pipe_close(&p);
    end_group(group);
}

static int change_and_stop(void *arg)
{
    probe_watch *self = arg;
    int code = weir_watch_change(&self->watch, WEIR_WATCH_READ);
    return code < 0 ? code : weir_watch_stop(&self->watch);
}

static void stop_right_after_a_change(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    start(&w, group, p.in, 0);
    pipe_put(&p, 1);
    assert_int_equal(call_on(weir_group_at(group, 0), change_and_stop, &w), 0);
    WAIT_FOR(atomic_load(&w.stops) == 1);
    assert_int_equal(atomic_load(&w.code), 0);
    assert_int_equal(atomic_load(&w.readies), 0);
    pipe_close(&p);
    end_group(group);
}

static void bad_changes_are_refused(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    assert_int_equal(change_on_loop(group, &w, WEIR_WATCH_READ), -EINVAL);
    assert_int_equal(weir_watch_change(NULL, WEIR_WATCH_READ), -EINVAL);
    start(&w, group, p.in, WEIR_WATCH_READ);
    settle(weir_group_at(group, 0));
    assert_int_equal(weir_watch_change(&w.watch, WEIR_WATCH_READ), -EPERM);
    assert_int_equal(change_on_loop(group, &w, WEIR_WATCH_HANGUP), -EINVAL);
    assert_int_equal(change_on_loop(group, &w, 128), -EINVAL);
    stop(&w);
    assert_int_equal(change_on_loop(group, &w, WEIR_WATCH_READ), -EINVAL);
    pipe_close(&p);
    end_group(group);
}

/* Stopping ----------------------------------------------------------------------------------- */

static void stop_inside(probe_watch *self)
{
    atomic_store(&self->then_code, weir_watch_stop(&self->watch));
    if (atomic_load(&self->stops) != 0)
        atomic_store(&self->then_code, -1000); /* from inside, which must not be */
}

static void stop_from_inside_ready(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    w.then = stop_inside;
    pipe_put(&p, 1);
    start(&w, group, p.in, WEIR_WATCH_READ);
    WAIT_FOR(atomic_load(&w.stops) == 1);
    settle(weir_group_at(group, 0));
    assert_int_equal(atomic_load(&w.then_code), 0);
    assert_int_equal(atomic_load(&w.readies), 1);
    assert_int_equal(atomic_load(&w.code), 0);
    assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
    pipe_close(&p);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 1);
}

static int stop_task(void *arg)
{
    probe_watch *self = arg;
    int code = weir_watch_stop(&self->watch);
    return atomic_load(&self->stops) == 0 ? code : -1000;
}

static void stop_on_the_loops_thread(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    start(&w, group, p.in, WEIR_WATCH_READ);
    assert_int_equal(call_on(weir_group_at(group, 0), stop_task, &w), 0);
    WAIT_FOR(atomic_load(&w.stops) == 1);
    assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
    pipe_close(&p);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 1);
}

static void stop_before_it_has_started(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    pipe_put(&p, 1);
    probe_watch w = PROBE_WATCH(0);
    blocker b;
    block(&b, weir_group_at(group, 0));
    start(&w, group, p.in, WEIR_WATCH_READ);
    assert_int_equal(weir_watch_stop(&w.watch), 0);
    assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
    assert_int_equal(atomic_load(&w.stops), 0);
    unblock(&b);
    WAIT_FOR(atomic_load(&w.stops) == 1);
    assert_int_equal(atomic_load(&w.code), 0);
    assert_int_equal(atomic_load(&w.readies), 0);
    assert_int_equal(channels_of(group), 0);
    pipe_close(&p);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 1);
}

static void second_stop_is_refused(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
    assert_int_equal(weir_watch_stop(NULL), -EINVAL);
    start(&w, group, p.in, WEIR_WATCH_READ);
    settle(weir_group_at(group, 0));
    blocker b;
    block(&b, weir_group_at(group, 0));
    assert_int_equal(weir_watch_stop(&w.watch), 0);
    assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
    unblock(&b);
    WAIT_FOR(atomic_load(&w.stops) == 1);
    assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
    pipe_close(&p);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 1);
}

/* A stop that comes from another thread while weir_watch_start runs on the loop's. */
typedef struct racing_start {
    probe_watch w;
    weir_loop *loop;
    int fd, stop_code;
    bool is_stopped;
} racing_start;

static void *stop_elsewhere(void *arg)
{
    racing_start *self = arg;
    self->stop_code = weir_watch_stop(&self->w.watch);
    return NULL;
}

static int stop_in_between(void *arg, const char *call, size_t *length)
{
    (void)length;
    racing_start *self = arg;
    pthread_t thread;
    if (strcmp(call, watching_call()) == 0 && !self->is_stopped &&
        pthread_create(&thread, NULL, stop_elsewhere, self) == 0) {
        self->is_stopped = true;
        pthread_join(thread, NULL);
    }
    return 0;
}

static int start_with_a_stop_in_between(void *arg)
{
    racing_start *self = arg;
    weir_fault_set(stop_in_between, self);
    int code = weir_watch_start(&self->w.watch, self->loop, self->fd, WEIR_WATCH_READ);
    weir_fault_set(NULL, NULL);
    return code;
}

static void stop_during_the_start_is_not_forgotten(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    racing_start r = { .w = PROBE_WATCH(0), .loop = weir_group_loop_at(group, 0), .fd = p.in };
    assert_int_equal(call_on(weir_group_at(group, 0), start_with_a_stop_in_between, &r), 0);
    assert_true(r.is_stopped);
    if (r.stop_code == -EALREADY) /* it was not started yet: that would be an answer, too */
        assert_int_equal(weir_watch_stop(&r.w.watch), 0);
    settle(weir_group_at(group, 0));
    settle(weir_group_at(group, 0));
    int stops = atomic_load(&r.w.stops);
    end_group(group);
    pipe_close(&p);
    assert_int_equal(stops, 1);
    assert_int_equal(atomic_load(&r.w.stops), 1);
}

/* Starting again ----------------------------------------------------------------------------- */

static void stopped_watch_starts_again(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(2);
    test_pipe p[2] = { pipe_open(), pipe_open() };
    probe_watch w = PROBE_WATCH(10);
    for (int i = 0; i < 20; i++) {
        weir_loop *loop = weir_group_loop_at(group, (size_t)i / 2 % 2);
        assert_int_equal(weir_watch_start(&w.watch, loop, p[i % 2].in, WEIR_WATCH_READ), 0);
        assert_int_equal(weir_watch_start(&w.watch, loop, p[i % 2].in, WEIR_WATCH_READ), -EBUSY);
        pipe_put(&p[i % 2], 2);
        WAIT_FOR(atomic_load(&w.taken) == 2 * (size_t)(i + 1));
        assert_int_equal(weir_watch_stop(&w.watch), 0);
        WAIT_FOR(atomic_load(&w.stops) == i + 1);
        assert_int_equal(atomic_load(&w.code), 0);
    }
    pipe_close(&p[0]);
    pipe_close(&p[1]);
    end_group(group);
}

typedef struct again {
    weir_watch watch;
    int starts, fd;
    atomic_int readies, stops, failed;
} again;

static void again_ready(weir_watch *watch, unsigned events)
{
    (void)events;
    again *self = WEIR_CONTAINER(watch, again, watch);
    atomic_fetch_add(&self->readies, 1);
    if (weir_watch_stop(watch) != 0)
        atomic_fetch_add(&self->failed, 1);
}

static void again_stopped(weir_watch *watch, int code)
{
    again *self = WEIR_CONTAINER(watch, again, watch);
    if (code == 0 && --self->starts > 0 &&
        weir_watch_start(watch, weir_loop_current(), self->fd, WEIR_WATCH_READ) != 0)
        atomic_fetch_add(&self->failed, 1);
    atomic_fetch_add(&self->stops, 1);
}

static void starts_again_from_inside_stopped(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    pipe_put(&p, 1);
    again a = { .watch = { .ready = again_ready, .stopped = again_stopped },
                .starts = 10,
                .fd = p.in };
    assert_int_equal(
        weir_watch_start(&a.watch, weir_group_loop_at(group, 0), p.in, WEIR_WATCH_READ), 0);
    WAIT_FOR(atomic_load(&a.stops) == 10);
    assert_int_equal(atomic_load(&a.readies), 10);
    assert_int_equal(atomic_load(&a.failed), 0);
    pipe_close(&p);
    end_group(group);
}

/* In `stopped` the watch is its owner's: may be freed, and the descriptor closed. */
typedef struct heap_watch {
    weir_watch watch;
    atomic_int *stops;
} heap_watch;

static void heap_ready(weir_watch *watch, unsigned events)
{
    (void)events;
    weir_watch_stop(watch);
}

static void heap_stopped(weir_watch *watch, int code)
{
    (void)code;
    heap_watch *self = WEIR_CONTAINER(watch, heap_watch, watch);
    atomic_int *stops = self->stops;
    close(watch->fd);
    free(self);
    atomic_fetch_add(stops, 1);
}

static void watch_is_freed_when_it_has_stopped(void **state)
{
    (void)state;
    atomic_int stops = 0;
    weir_group *group = new_loops_of(1);
    test_pipe p[4];
    heap_watch *w[4];
    blocker b;
    for (int i = 0; i < 4; i++) {
        p[i] = pipe_open();
        w[i] = malloc(sizeof *w[i]);
        *w[i] = (heap_watch){ .watch = { .ready = heap_ready, .stopped = heap_stopped },
                              .stops = &stops };
        if (i == 3) {
            settle(weir_group_at(group, 0));
            block(&b, weir_group_at(group, 0));
        }
        assert_int_equal(
            weir_watch_start(&w[i]->watch, weir_group_loop_at(group, 0), p[i].in, WEIR_WATCH_READ),
            0);
    }
    assert_int_equal(weir_watch_stop(&w[3]->watch), 0); /* before it started */
    unblock(&b);
    WAIT_FOR(atomic_load(&stops) == 1);
    pipe_put(&p[0], 1); /* by itself */
    WAIT_FOR(atomic_load(&stops) == 2);
    assert_int_equal(weir_watch_stop(&w[1]->watch), 0); /* from here */
    WAIT_FOR(atomic_load(&stops) == 3);
    end_group(group); /* and by the loop's end */
    assert_int_equal(atomic_load(&stops), 4);
    for (int i = 0; i < 4; i++) {
        p[i].in = -1;
        pipe_close(&p[i]);
    }
}

static void watch_without_stopped_ends_all_the_same(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w[3] = { PROBE_WATCH(0), PROBE_WATCH(0), PROBE_WATCH(0) };
    test_pipe q[2] = { pipe_open(), pipe_open() };
    int fds[3] = { p.in, q[0].in, q[1].in };
    for (int i = 0; i < 3; i++) {
        w[i].watch.stopped = NULL;
        start(&w[i], group, fds[i], WEIR_WATCH_READ);
    }
    assert_int_equal(channels_of(group), 3);
    assert_int_equal(weir_watch_stop(&w[0].watch), 0);
    settle(weir_group_at(group, 0));
    assert_int_equal(channels_of(group), 2);
    end_group(group);
    pipe_close(&p);
    pipe_close(&q[0]);
    pipe_close(&q[1]);
}

/* What goes wrong ---------------------------------------------------------------------------- */

static int open_regular_file(void)
{
    char path[] = "/tmp/weir-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

static void regular_file_is_told_to_be_impossible(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    int fd = open_regular_file();
    probe_watch w = PROBE_WATCH(0);
    start(&w, group, fd, WEIR_WATCH_READ);
    WAIT_FOR(atomic_load(&w.stops) == 1);
    assert_int_equal(atomic_load(&w.code), -EPERM);
    assert_int_equal(atomic_load(&w.readies), 0);
    assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
    assert_int_equal(channels_of(group), 0);
    close(fd);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 1);
}

typedef struct start_args {
    probe_watch *w;
    weir_loop *loop;
    int fd;
} start_args;

static int start_it(void *arg)
{
    start_args *self = arg;
    return weir_watch_start(&self->w->watch, self->loop, self->fd, WEIR_WATCH_READ);
}

/* The same on the loop's thread: what the kernel says comes with the completions. */
static void regular_file_on_the_loops_thread(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    probe_watch w = PROBE_WATCH(0);
    start_args args = { &w, weir_group_loop_at(group, 0), open_regular_file() };
    assert_int_equal(call_on(weir_group_at(group, 0), start_it, &args), 0);
    WAIT_FOR(atomic_load(&w.stops) == 1);
    assert_int_equal(w.code, -EPERM);
    end_group(group);
    close(args.fd);
}

static void starts_on_the_loops_thread(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(10);
    start_args args = { &w, weir_group_loop_at(group, 0), p.in };
    assert_int_equal(call_on(weir_group_at(group, 0), start_it, &args), 0);
    assert_int_equal(call_on(weir_group_at(group, 0), start_it, &args), -EBUSY);
    assert_int_equal(channels_of(group), 1);
    pipe_put(&p, 7);
    WAIT_FOR(atomic_load(&w.taken) == 7);
    stop(&w);
    pipe_close(&p);
    end_group(group);
}

static void what_the_kernel_refuses_is_told(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0), same = PROBE_WATCH(0), bad = PROBE_WATCH(0);
    start(&w, group, p.in, WEIR_WATCH_READ);
    start(&same, group, p.in, WEIR_WATCH_READ);
    WAIT_FOR(atomic_load(&same.stops) == 1);
    assert_int_equal(atomic_load(&same.code), -EEXIST);
    start_args args = { &same, weir_group_loop_at(group, 0), p.in };
    assert_int_equal(call_on(weir_group_at(group, 0), start_it, &args), -EEXIST);
    assert_int_equal(atomic_load(&same.stops), 1);
    start(&bad, group, 1000000, WEIR_WATCH_READ);
    WAIT_FOR(atomic_load(&bad.stops) == 1);
    assert_int_equal(atomic_load(&bad.code), -EBADF);
    pipe_put(&p, 1);
    WAIT_FOR(atomic_load(&w.readies) > 0); /* which is as before */
    stop(&w);
    pipe_close(&p);
    end_group(group);
}

/* The channel would send and receive what the watch waits for. It fails to register, and the log
 * names the descriptor. */
static void channel_of_a_watched_descriptor_is_rejected(void **state)
{
    (void)state;
    int fds[2];
    char text[64];
    weir_group *group = new_loops_of(1);
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel *channel = NULL;
    probe_watch w = PROBE_WATCH(0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    snprintf(text, sizeof text, "descriptor %d is rejected", fds[0]);
    start(&w, group, fds[0], WEIR_WATCH_READ);
    settle(weir_group_at(group, 0));
    assert_int_equal(weir_channel_from_descriptor(&channel, WEIR_SOCKET_STREAM, fds[0], NULL), 0);
    harness_log_begin(WEIR_LOG_WARN);
    weir_channel_register(channel, weir_group_at(group, 0), promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), -EEXIST);
    bool is_named = harness_log_has(text);
    stop(&w);
    harness_log_end();
    assert_true(is_named);
    weir_promise_release(promise);
    weir_channel_release(channel);
    close(fds[1]);
    end_group(group);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    weir_loop *loop = weir_group_loop_at(group, 0);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    assert_int_equal(weir_watch_start(NULL, loop, p.in, WEIR_WATCH_READ), -EINVAL);
    assert_int_equal(weir_watch_start(&w.watch, NULL, p.in, WEIR_WATCH_READ), -EINVAL);
    assert_int_equal(weir_watch_start(&w.watch, loop, -1, WEIR_WATCH_READ), -EINVAL);
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, WEIR_WATCH_HANGUP), -EINVAL);
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, 8), -EINVAL);
    w.watch.ready = NULL;
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, WEIR_WATCH_READ), -EINVAL);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_NOT_STARTED);
    pipe_close(&p);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 0);
}

static void start_that_finds_no_thread_is_told(void **state)
{
    (void)state;
    const char *const calls[] = { "pthread_create", opening_call(), "eventfd", "alloc" };
    for (int i = 0; i < 4; i++) {
        weir_group *group = new_loops_of(1);
        test_pipe p = pipe_open();
        probe_watch w = PROBE_WATCH(1);
        harness_fail_nth(calls[i], 1, -ENOMEM);
        assert_int_equal(
            weir_watch_start(&w.watch, weir_group_loop_at(group, 0), p.in, WEIR_WATCH_READ),
            -ENOMEM);
        harness_fail_end();
        assert_int_equal(weir_watch_stop(&w.watch), -EALREADY);
        start(&w, group, p.in, WEIR_WATCH_READ);
        pipe_put(&p, 1);
        WAIT_FOR(atomic_load(&w.taken) == 1);
        stop(&w);
        pipe_close(&p);
        end_group(group);
    }
}

typedef struct failing_start {
    start_args args;
    const char *call;
    int code;
    bool was_asked;
} failing_start;

static int start_it_with_a_fault(void *arg)
{
    failing_start *self = arg;
    harness_fail_nth(self->call, 1, -ENOMEM);
    self->code = start_it(&self->args);
    self->was_asked = harness_fail_end() > 0;
    return 0;
}

static void without_memory_it_does_not_start(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1);
    failing_start f = { .args = { &w, weir_group_loop_at(group, 0), p.in }, .call = "alloc" };
    assert_int_equal(call_on(weir_group_at(group, 0), start_it_with_a_fault, &f), 0);
    assert_true(f.was_asked);
    assert_int_equal(f.code, -ENOMEM);
    assert_int_equal(channels_of(group), 0);
    assert_int_equal(atomic_load(&w.stops), 0);
    start(&w, group, p.in, WEIR_WATCH_READ);
    pipe_put(&p, 1);
    WAIT_FOR(atomic_load(&w.taken) == 1);
    stop(&w);
    pipe_close(&p);
    end_group(group);
}

/* The loop's end ------------------------------------------------------------------------------ */

static void s038_shutdown_stops_every_watch_once(void **state)
{
    (void)state;
    enum { COUNT = 20 };
    weir_group *group = new_loops_of(1);
    int tid = tid_on(weir_group_at(group, 0));
    test_pipe p[COUNT];
    probe_watch w[COUNT];
    for (int i = 0; i < COUNT; i++) {
        p[i] = pipe_open();
        w[i] = PROBE_WATCH(0);
        start(&w[i], group, p[i].in, WEIR_WATCH_READ);
    }
    assert_int_equal(channels_of(group), COUNT);
    for (int i = 0; i < COUNT; i += 2)
        pipe_put(&p[i], 1); /* half of them are ready all the time */
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(atomic_load(&w[i].stops), 1);
        assert_int_equal(atomic_load(&w[i].code), WEIR_ESHUTDOWN);
        assert_int_equal(atomic_load(&w[i].stop_tid), tid);
        assert_int_equal(weir_watch_stop(&w[i].watch), -EALREADY);
    }
    assert_int_equal(loop_stats_of(weir_group_loop_at(group, 0)).channels, 0);
    probe_watch late = PROBE_WATCH(0);
    assert_int_equal(
        weir_watch_start(&late.watch, weir_group_loop_at(group, 0), p[0].in, WEIR_WATCH_READ),
        WEIR_ESHUTDOWN);
    weir_group_free(group);
    for (int i = 0; i < COUNT; i++) {
        pipe_close(&p[i]);
        assert_int_equal(atomic_load(&w[i].stops), 1);
    }
    assert_int_equal(atomic_load(&late.stops), 0);
}

static void no_watch_starts_while_the_loop_ends(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0), inside = PROBE_WATCH(0);
    start_args args = { &inside, weir_group_loop_at(group, 0), p.in };
    blocker b;
    block(&b, weir_group_at(group, 0));
    start(&w, group, p.in, WEIR_WATCH_READ);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(weir_group_at(group, 0), start_it, &args, &future), 0);
    unblock(&b);
    assert_int_equal(weir_future_await(future), WEIR_ESHUTDOWN);
    weir_future_release(future);
    weir_group_free(group);
    pipe_close(&p);
    assert_int_equal(atomic_load(&w.stops), 1);
    assert_int_equal(atomic_load(&w.code), WEIR_ESHUTDOWN);
    assert_int_equal(atomic_load(&inside.stops), 0);
}

enum { RACERS = 6 };

typedef struct stopper {
    probe_watch *watches;
    pthread_barrier_t *barrier;
    int refused;
} stopper;

static void *stop_all(void *arg)
{
    stopper *self = arg;
    pthread_barrier_wait(self->barrier);
    for (int i = 0; i < RACERS; i++)
        self->refused += weir_watch_stop(&self->watches[i].watch) != 0;
    return NULL;
}

static void stops_race_with_the_end(int round)
{
    weir_group *group = new_loops_of(1);
    test_pipe p[RACERS];
    static probe_watch w[RACERS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 3);
    stopper s[2] = { { w, &barrier, 0 }, { w, &barrier, 0 } };
    pthread_t threads[2];
    settle(weir_group_at(group, 0));
    for (int i = 0; i < RACERS; i++) {
        p[i] = pipe_open();
        if (i % 2 == 0)
            pipe_put(&p[i], 1);
        w[i] = PROBE_WATCH(0);
        start(&w[i], group, p[i].in, WEIR_WATCH_READ);
    }
    if (round % 2 == 0)
        settle(weir_group_at(group, 0)); /* else some are on their way to start */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, stop_all, &s[i]), 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < round % 7; i++)
        sched_yield();
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    weir_group_free(group);
    pthread_barrier_destroy(&barrier);
    int by_stop = 0;
    for (int i = 0; i < RACERS; i++) {
        int code = atomic_load(&w[i].code);
        assert_int_equal(atomic_load(&w[i].stops), 1);
        assert_true(code == 0 || code == WEIR_ESHUTDOWN);
        by_stop += code == 0;
        pipe_close(&p[i]);
    }
    /* What ended by a stop had one that was not refused. */
    assert_true(by_stop <= 2 * RACERS - s[0].refused - s[1].refused);
}

static void each_ends_once_though_stops_race_with_the_end(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++)
        stops_race_with_the_end(round);
}

/* Stops from another thread while the watch is called all the time, and starts again. */
static void *stop_often(void *arg)
{
    again *self = arg;
    for (int i = 0; i < 2000; i++) {
        weir_watch_stop(&self->watch);
        if (i % 10 == 0)
            sched_yield();
    }
    return NULL;
}

static void stay_ready(weir_watch *watch, unsigned events)
{
    (void)events;
    atomic_fetch_add(&WEIR_CONTAINER(watch, again, watch)->readies, 1);
}

static void stops_from_elsewhere_and_starts_from_stopped(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    test_pipe p = pipe_open();
    pipe_put(&p, 1);
    again a = { .watch = { .ready = stay_ready, .stopped = again_stopped },
                .starts = 1000000,
                .fd = p.in };
    assert_int_equal(
        weir_watch_start(&a.watch, weir_group_loop_at(group, 0), p.in, WEIR_WATCH_READ), 0);
    WAIT_FOR(atomic_load(&a.readies) > 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_often, &a), 0);
    pthread_join(thread, NULL);
    WAIT_FOR(atomic_load(&a.stops) > 0);
    for (int i = 0; i < 3; i++)
        settle(weir_group_at(group, 0)); /* what the last stop began is over then */
    int stops = atomic_load(&a.stops);
    end_group(group);
    assert_int_equal(atomic_load(&a.stops), stops + 1); /* it had started again, every time */
    assert_int_equal(atomic_load(&a.failed), 0);
    pipe_close(&p);
}

/* Residents ----------------------------------------------------------------------------------- */

typedef struct lodger {
    weir_resident resident;
    weir_deferred deferred;
    weir_loop *loop;
    bool stays;
    int evictions, tid, code;
} lodger;

static void leave(weir_deferred *deferred)
{
    lodger *self = WEIR_CONTAINER(deferred, lodger, deferred);
    weir__loop_remove(self->loop, &self->resident);
}

static void lodger_evict(weir_resident *resident)
{
    lodger *self = WEIR_CONTAINER(resident, lodger, resident);
    self->evictions++;
    self->tid = (int)gettid();
    self->deferred.run = leave;
    if (!self->stays)
        weir__loop_defer(self->loop, &self->deferred);
}

static int move_in(void *arg)
{
    lodger *self = arg;
    static const weir_resident_type type = { .evict = lodger_evict };
    self->resident.type = &type;
    return self->code = weir__loop_add(self->loop, &self->resident);
}

static void residents_are_evicted_at_shutdown(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    int tid = tid_on(weir_group_at(group, 0));
    lodger l[5];
    for (int i = 0; i < 5; i++) {
        l[i] = (lodger){ .loop = weir_group_loop_at(group, 0) };
        assert_int_equal(call_on(weir_group_at(group, 0), move_in, &l[i]), 0);
    }
    assert_int_equal(channels_of(group), 5);
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(3)), 0);
    weir_group_free(group);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(l[i].evictions, 1);
        assert_int_equal(l[i].tid, tid);
    }
    /* They left at once, so nobody had to wait for the timeout. */
    assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns < WEIR_SECONDS(2));
}

/* One that does not leave keeps the loop, but not for longer than the timeout. */
static void resident_that_stays_is_complained_about(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group =
        new_loops(&(weir_group_config){ .loops = 1, .is_manual = true, .clock = &clock.clock });
    lodger l = { .loop = weir_group_loop_at(group, 0), .stays = true };
    assert_int_equal(call_on(weir_group_at(group, 0), move_in, &l), 0);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
    for (int i = 0; i < 10; i++)
        weir_group_step(group);
    weir_virtual_clock_advance(&clock, WEIR_MS(999));
    weir_group_step(group);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_SHUTTING_DOWN);
    weir_virtual_clock_advance(&clock, WEIR_MS(1));
    weir_group_step(group);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_TERMINATED);
    assert_true(harness_log_has("1 channels that did not close"));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(l.evictions, 1);
    weir_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s099_pipe_calls_its_callback_and_tells_its_end),
        weir_case(s099_is_called_again_while_it_is_not_drained),
        weir_case(writable_is_told),
        weir_case(hangup_is_told_unasked),
        weir_case(both_ends_of_a_socket_are_watched_at_once),
        weir_case(change_waits_for_something_else),
        weir_case(change_from_inside_ready),
        weir_case(stop_right_after_a_change),
        weir_case(bad_changes_are_refused),
        weir_case(stop_from_inside_ready),
        weir_case(stop_on_the_loops_thread),
        weir_case(stop_before_it_has_started),
        weir_case(second_stop_is_refused),
        weir_case(stop_during_the_start_is_not_forgotten),
        weir_case(stopped_watch_starts_again),
        weir_case(starts_again_from_inside_stopped),
        weir_case(watch_is_freed_when_it_has_stopped),
        weir_case(watch_without_stopped_ends_all_the_same),
        weir_case(regular_file_is_told_to_be_impossible),
        weir_case(regular_file_on_the_loops_thread),
        weir_case(starts_on_the_loops_thread),
        weir_case(what_the_kernel_refuses_is_told),
        weir_case(channel_of_a_watched_descriptor_is_rejected),
        weir_case(bad_arguments_are_refused),
        weir_case(start_that_finds_no_thread_is_told),
        weir_case(without_memory_it_does_not_start),
        weir_case(s038_shutdown_stops_every_watch_once),
        weir_case(no_watch_starts_while_the_loop_ends),
        weir_case(each_ends_once_though_stops_race_with_the_end),
        weir_case(stops_from_elsewhere_and_starts_from_stopped),
        weir_case(residents_are_evicted_at_shutdown),
        weir_case(resident_that_stays_is_complained_about),
    };
    return cmocka_run_group_tests(tests, choose_backend, NULL);
}
