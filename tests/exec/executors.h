/* SPDX-License-Identifier: MIT */
/* What the tests of executors share: groups of one, tasks that count, and one that holds the
 * thread. */
#ifndef WEIR_TESTS_EXEC_EXECUTORS_H
#define WEIR_TESTS_EXEC_EXECUTORS_H

#include "harness.h"
#include "living.h"

#include "base/list.h"
#include "exec/executor.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline weir_group *new_group(const weir_group_config *config)
{
    weir_group *group = NULL;
    assert_int_equal(weir_group_new_executors(&group, config, NULL), 0);
    assert_non_null(group);
    return group;
}

static inline weir_group *new_group_of(int count)
{
    return new_group(&(weir_group_config){ .count = count });
}

static inline void end_group(weir_group *group)
{
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    weir_group_free(group);
}

/* A task that counts what happened to it. */
typedef struct probe {
    weir_task task;
    atomic_int runs, drops;
} probe;

static inline int probe_run(weir_task *task)
{
    atomic_fetch_add(&WEIR_CONTAINER(task, probe, task)->runs, 1);
    return 0;
}

static inline void probe_dropped(weir_task *task)
{
    atomic_fetch_add(&WEIR_CONTAINER(task, probe, task)->drops, 1);
}

#define PROBE                                                                                      \
    (probe)                                                                                        \
    {                                                                                              \
        .task = {.run = probe_run, .dropped = probe_dropped, .name = "probe" }                     \
    }

/* Runs a task and waits until it ran: what was posted before has run, too. */
static inline void settle(weir_executor *executor)
{
    probe last = PROBE;
    assert_int_equal(weir_executor_post(executor, &last.task), 0);
    WAIT_FOR(atomic_load(&last.runs) == 1);
}

/* A task that keeps the executor's thread until it may end. */
typedef struct blocker {
    weir_task task;
    atomic_bool is_running, may_end, has_ended;
} blocker;

static inline int blocker_run(weir_task *task)
{
    blocker *self = WEIR_CONTAINER(task, blocker, task);
    atomic_store(&self->is_running, true);
    WAIT_FOR(atomic_load(&self->may_end));
    atomic_store(&self->has_ended, true);
    return 0;
}

static inline void block(blocker *self, weir_executor *executor)
{
    *self = (blocker){ .task = { .run = blocker_run, .name = "blocker" } };
    assert_int_equal(weir_executor_post(executor, &self->task), 0);
    WAIT_FOR(atomic_load(&self->is_running));
}

/* The same from the tail. */
static inline void block_tail(blocker *self, weir_executor *executor)
{
    *self = (blocker){ .task = { .run = blocker_run, .name = "blocker" } };
    assert_int_equal(weir_executor_post_tail(executor, &self->task), 0);
    WAIT_FOR(atomic_load(&self->is_running));
}

static inline void unblock(blocker *self)
{
    atomic_store(&self->may_end, true);
    WAIT_FOR(atomic_load(&self->has_ended));
}

/* Calls a function on an executor's thread and returns what it returned. */
static inline int call_on(weir_executor *executor, weir_call_fn fn, void *arg)
{
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(executor, fn, arg, &future), 0);
    int code = weir_future_await(future);
    weir_future_release(future);
    return code;
}

static inline weir_executor_stats stats_of(const weir_executor *executor)
{
    weir_executor_stats stats;
    weir_executor_get_stats(executor, &stats);
    return stats;
}

/* Waits until the executor has gone through its tasks once more, from the start. */
static inline void wait_for_passes(weir_executor *executor)
{
    uint64_t passes = stats_of(executor).passes;
    weir_executor_wake(executor);
    WAIT_FOR_STEPPING(stats_of(executor).passes >= passes + 2,
                      (weir_executor_wake(executor), sched_yield()));
}

/* Completes a promise of the current executor's in the middle of a task, and notes where the
 * listener runs. */
typedef struct task_with_listener {
    weir_listener listener;
    weir_promise *promise;
    weir_executor *executor;
    bool is_in_task;
    int calls, calls_in_task, calls_elsewhere;
} task_with_listener;

static inline void note_listener_call(weir_listener *listener, weir_future *future)
{
    (void)future;
    task_with_listener *self = WEIR_CONTAINER(listener, task_with_listener, listener);
    self->calls++;
    self->calls_in_task += self->is_in_task;
    self->calls_elsewhere += !weir_executor_is_current(self->executor);
}

static inline void task_with_listener_begin(task_with_listener *self)
{
    *self = (task_with_listener){ .listener.done = note_listener_call, .is_in_task = true };
    self->executor = weir_executor_current();
    self->promise = weir_promise_new(self->executor);
    assert_non_null(self->promise);
    weir_future_listen(weir_promise_future(self->promise), &self->listener);
    weir_promise_set(self->promise, 0);
}

static inline void task_with_listener_end(task_with_listener *self)
{
    weir_promise_release(self->promise);
    self->is_in_task = false;
}

static inline void assert_listener_ran_after_task(const task_with_listener *self)
{
    assert_int_equal(self->calls, 1);
    assert_int_equal(self->calls_in_task, 0);
    assert_int_equal(self->calls_elsewhere, 0);
}

/* A way to start threads that can fail, and counts. Join when the group is gone. */
typedef struct starter {
    atomic_int calls, failures_left, started;
    int code; /* of a failure */
    pthread_t threads[16];
    char names[16][16];
    struct starter_body {
        weir_thread_fn body;
        void *arg;
    } bodies[16];
} starter;

static inline void *starter_body(void *arg)
{
    struct starter_body *body = arg;
    body->body(body->arg);
    return NULL;
}

static inline int starter_start(void *start_arg, const char *name, weir_thread_fn body, void *arg)
{
    starter *self = start_arg;
    atomic_fetch_add(&self->calls, 1);
    if (atomic_load(&self->failures_left) > 0) {
        atomic_fetch_sub(&self->failures_left, 1);
        return self->code;
    }
    int at = atomic_fetch_add(&self->started, 1);
    self->bodies[at] = (struct starter_body){ body, arg };
    strncpy(self->names[at], name, sizeof self->names[at] - 1);
    int error = pthread_create(&self->threads[at], NULL, starter_body, &self->bodies[at]);
    if (error == 0)
        pthread_setname_np(self->threads[at], name);
    return -error;
}

static inline void starter_join(starter *self)
{
    for (int i = 0; i < atomic_load(&self->started); i++)
        pthread_join(self->threads[i], NULL);
}

#endif
