/* SPDX-License-Identifier: MIT */
/* What the tests of event loops share: groups of loops, pipes, and watches that count. */
#ifndef WEIR_TESTS_LOOP_LOOPS_H
#define WEIR_TESTS_LOOP_LOOPS_H

#include "exec/executors.h"

#include "io/io.h"
#include "loop/loop.h"

#include <weir/loop.h>
#include <weir/signal.h>
#include <weir/timer.h>
#include <weir/watch.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* These programs run once more with WEIR_IO=uring, where there is io_uring. */
static inline bool is_over_uring(void)
{
    const char *wish = getenv("WEIR_IO");
    return wish != NULL && strcmp(wish, "uring") == 0;
}

/* The calls that open the backend of a loop, and that begin to watch a descriptor. */
static inline const char *opening_call(void)
{
    return is_over_uring() ? "io_uring_setup" : "epoll_create1";
}

static inline const char *watching_call(void)
{
    return is_over_uring() ? "fstat" : "epoll_ctl";
}

static inline int choose_backend(void **state)
{
    (void)state;
    if (is_over_uring() && !harness_has_uring())
        unsetenv("WEIR_IO");
    return 0;
}

static inline weir_group *new_loops(const weir_group_config *config)
{
    weir_group *group = NULL;
    assert_int_equal(weir_group_new(&group, config, NULL), 0);
    assert_non_null(group);
    return group;
}

static inline weir_group *new_loops_of(int count)
{
    return new_loops(&(weir_group_config){ .loops = count });
}

static inline weir_loop_stats loop_stats_of(const weir_loop *loop)
{
    weir_loop_stats stats;
    weir_loop_get_stats(loop, &stats);
    return stats;
}

/* A pipe that never blocks. */
typedef struct test_pipe {
    int in, out; /* read from in, write to out */
} test_pipe;

static inline test_pipe pipe_open(void)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    return (test_pipe){ fds[0], fds[1] };
}

static inline void pipe_close(test_pipe *p)
{
    if (p->in >= 0)
        close(p->in);
    if (p->out >= 0)
        close(p->out);
    p->in = p->out = -1;
}

static inline void pipe_put(const test_pipe *p, size_t count)
{
    char bytes[256];
    memset(bytes, 'x', sizeof bytes);
    assert_true(count <= sizeof bytes);
    assert_int_equal(write(p->out, bytes, count), (ssize_t)count);
}

/* A watch that counts, and reads so many bytes whenever it is ready. */
typedef struct probe_watch {
    weir_watch watch;
    size_t bytes; /* to read at a time; 0: none */
    atomic_size_t taken;
    atomic_int readies, stops, code;
    atomic_uint events; /* of the last time */
    atomic_int tid, stop_tid;
    /* What else to do in ready: 0 to say nothing. */
    void (*then)(struct probe_watch *self);
    atomic_int then_code;
} probe_watch;

static inline void probe_watch_ready(weir_watch *watch, unsigned events)
{
    probe_watch *self = WEIR_CONTAINER(watch, probe_watch, watch);
    char bytes[256];
    ssize_t got = self->bytes > 0 ? read(watch->fd, bytes, self->bytes) : 0;
    atomic_store(&self->events, events);
    atomic_store(&self->tid, (int)gettid());
    atomic_fetch_add(&self->readies, 1);
    atomic_fetch_add(&self->taken, got > 0 ? (size_t)got : 0); /* last: what a test waits for */
    if (self->then != NULL)
        self->then(self);
}

static inline void probe_watch_stopped(weir_watch *watch, int code)
{
    probe_watch *self = WEIR_CONTAINER(watch, probe_watch, watch);
    atomic_store(&self->code, code);
    atomic_store(&self->stop_tid, (int)gettid());
    atomic_fetch_add(&self->stops, 1);
}

#define PROBE_WATCH(reads)                                                                         \
    (probe_watch)                                                                                  \
    {                                                                                              \
        .watch = { .ready = probe_watch_ready, .stopped = probe_watch_stopped }, .bytes = (reads), \
        .code = 1                                                                                  \
    }

/* A timer that counts. */
typedef struct probe_timer {
    weir_timer timer;
    atomic_int fires, cancels;
} probe_timer;

static inline int probe_timer_fire(weir_timer *timer)
{
    atomic_fetch_add(&WEIR_CONTAINER(timer, probe_timer, timer)->fires, 1);
    return 0;
}

static inline void probe_timer_cancelled(weir_timer *timer)
{
    atomic_fetch_add(&WEIR_CONTAINER(timer, probe_timer, timer)->cancels, 1);
}

#define PROBE_TIMER                                                                                \
    (probe_timer)                                                                                  \
    {                                                                                              \
        .timer = {.fire = probe_timer_fire, .cancelled = probe_timer_cancelled, .name = "probe" }  \
    }

static inline int tell_tid_of(void *arg)
{
    *(int *)arg = (int)gettid();
    return 0;
}

static inline int tid_on(weir_executor *executor)
{
    int tid = 0;
    assert_int_equal(call_on(executor, tell_tid_of, &tid), 0);
    return tid;
}

#endif
