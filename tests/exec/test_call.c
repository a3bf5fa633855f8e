/* SPDX-License-Identifier: MIT */
/* Functions on executors: executed, submitted with a future, scheduled for later. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

static weir_executor *make_executor(const weir_group_config *config)
{
    weir_group *group = NULL;
    weir_group_config one = config != NULL ? *config : (weir_group_config){ 0 };
    one.count = 1;
    assert_int_equal(weir_group_new_executors(&group, &one, NULL), 0);
    return weir_group_at(group, 0);
}

static void end_executor(weir_executor *executor)
{
    weir_group *group = weir_executor_group(executor);
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
}

/* Runs a function on the executor's thread, and waits for it and for everything posted before. */
static void run_on(weir_executor *executor, weir_call_fn fn, void *arg)
{
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(executor, fn, arg, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
}

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void flush(weir_executor *executor)
{
    run_on(executor, nothing, NULL);
}

/* A function that remembers its calls, and as the how manieth of a row it was called. */
typedef struct work {
    unsigned calls;
    int result;
    weir_executor *where;
    unsigned *row;
    unsigned place;
} work;

static int do_work(void *arg)
{
    work *w = arg;
    w->calls++;
    w->where = weir_executor_current();
    if (w->row != NULL)
        w->place = ++*w->row;
    return w->result;
}

/* A function that keeps the executor busy, from when this returns until the gate opens. */
typedef struct gate {
    sem_t entered, opened;
} gate;

static int pass_gate(void *arg)
{
    gate *g = arg;
    sem_post(&g->entered);
    while (sem_wait(&g->opened) < 0) {
    }
    return 0;
}

static void gate_close(gate *g, weir_executor *executor)
{
    sem_init(&g->entered, 0, 0);
    sem_init(&g->opened, 0, 0);
    assert_int_equal(weir_executor_execute(executor, pass_gate, g), 0);
    while (sem_wait(&g->entered) < 0) {
    }
}

static void gate_open(gate *g, weir_executor *executor)
{
    sem_post(&g->opened);
    flush(executor);
    sem_destroy(&g->entered);
    sem_destroy(&g->opened);
}

static void keep_place(void *arg, weir_future *future)
{
    work *w = arg;
    w->calls++;
    w->result = weir_future_code(future);
    w->where = weir_executor_current();
}

/* Executed ----------------------------------------------------------------------------------- */

static void executed_functions_run_in_order_on_the_thread(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    unsigned row = 0;
    work works[COUNT] = { 0 };
    weir_executor *executor = make_executor(NULL);
    for (int i = 0; i < COUNT; i++) {
        works[i].row = &row;
        assert_int_equal(weir_executor_execute(executor, do_work, &works[i]), 0);
    }
    flush(executor);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(works[i].calls, 1);
        assert_int_equal(works[i].place, i + 1);
        assert_ptr_equal(works[i].where, executor);
    }
    end_executor(executor);
}

static void executed_functions_run_before_the_end(void **state)
{
    (void)state;
    work w = { 0 };
    weir_executor *executor = make_executor(NULL);
    assert_int_equal(weir_executor_execute(executor, do_work, &w), 0);
    end_executor(executor);
    assert_int_equal(w.calls, 1);
}

static void executed_failure_is_logged(void **state)
{
    (void)state;
    work w = { .result = -EPIPE };
    weir_executor *executor = make_executor(NULL);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_executor_execute(executor, do_work, &w), 0);
    flush(executor);
    assert_true(harness_log_has("EPIPE"));
    assert_int_equal(harness_log_end(), 1);
    end_executor(executor);
}

static void null_is_refused(void **state)
{
    (void)state;
    weir_future *future = NULL;
    weir_executor *executor = make_executor(NULL);
    assert_int_equal(weir_executor_execute(NULL, nothing, NULL), -EINVAL);
    assert_int_equal(weir_executor_execute(executor, NULL, NULL), -EINVAL);
    assert_int_equal(weir_executor_submit(NULL, nothing, NULL, &future), -EINVAL);
    assert_int_equal(weir_executor_submit(executor, NULL, NULL, &future), -EINVAL);
    assert_int_equal(weir_executor_submit(executor, nothing, NULL, NULL), -EINVAL);
    assert_int_equal(weir_executor_schedule(NULL, nothing, NULL, 0, &future), -EINVAL);
    assert_int_equal(weir_executor_schedule(executor, NULL, NULL, 0, &future), -EINVAL);
    assert_null(future);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
    end_executor(executor);
}

static void after_the_end_everything_is_refused(void **state)
{
    (void)state;
    work w = { 0 };
    weir_future *future = NULL;
    weir_executor *executor = make_executor(NULL);
    harness_log_begin(WEIR_LOG_WARN);
    weir_executor_shutdown(executor, 0, WEIR_SECONDS(1));
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    assert_int_equal(weir_executor_execute(executor, do_work, &w), WEIR_ESHUTDOWN);
    assert_int_equal(weir_executor_submit(executor, do_work, &w, &future), WEIR_ESHUTDOWN);
    assert_int_equal(weir_executor_schedule(executor, do_work, &w, 0, &future), WEIR_ESHUTDOWN);
    assert_int_equal(weir_executor_schedule(executor, do_work, &w, 0, NULL), WEIR_ESHUTDOWN);
    assert_null(future);
    end_executor(executor);
    assert_int_equal(w.calls, 0);
    assert_int_equal(harness_log_end(), 0); /* no promise counts as forgotten */
}

static void at_the_bound_everything_is_refused(void **state)
{
    (void)state;
    enum { BOUND = 16 };
    work taken = { 0 }, refused = { 0 };
    gate g;
    weir_future *future = NULL;
    weir_executor *executor = make_executor(&(weir_group_config){ .max_pending_tasks = BOUND });
    harness_log_begin(WEIR_LOG_WARN);
    gate_close(&g, executor);
    for (int i = 0; i < BOUND; i++)
        assert_int_equal(weir_executor_execute(executor, do_work, &taken), 0);
    assert_int_equal(weir_executor_execute(executor, do_work, &refused), -EAGAIN);
    assert_int_equal(weir_executor_submit(executor, do_work, &refused, &future), -EAGAIN);
    assert_int_equal(weir_executor_schedule(executor, do_work, &refused, 0, &future), -EAGAIN);
    assert_null(future);
    sem_post(&g.opened);
    end_executor(executor);
    sem_destroy(&g.entered);
    sem_destroy(&g.opened);
    assert_int_equal(taken.calls, BOUND);
    assert_int_equal(refused.calls, 0);
    assert_int_equal(harness_log_end(), 0);
}

/* Submitted ---------------------------------------------------------------------------------- */

static void submitted_result_is_what_the_function_returns(void **state)
{
    (void)state;
    const int results[][2] = {
        { 0, 0 }, { -EPIPE, -EPIPE }, { WEIR_EOF, WEIR_EOF }, { -ECANCELED, -ECANCELED }, { 7, 0 }
    };
    weir_executor *executor = make_executor(NULL);
    harness_log_begin(WEIR_LOG_WARN);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        weir_future *submitted = NULL, *scheduled = NULL;
        work a = { .result = results[i][0] }, b = { .result = results[i][0] };
        assert_int_equal(weir_executor_submit(executor, do_work, &a, &submitted), 0);
        assert_int_equal(weir_executor_schedule(executor, do_work, &b, 0, &scheduled), 0);
        assert_int_equal(weir_future_await(submitted), results[i][1]);
        assert_int_equal(weir_future_await(scheduled), results[i][1]);
        assert_int_equal(a.calls, 1);
        assert_int_equal(b.calls, 1);
        assert_ptr_equal(a.where, executor);
        assert_ptr_equal(b.where, executor);
        weir_future_release(submitted);
        weir_future_release(scheduled);
    }
    end_executor(executor);
    assert_int_equal(harness_log_end(), 0); /* who has the future has the failure */
}

static void submitted_future_tells_on_the_executor(void **state)
{
    (void)state;
    work listener = { 0 }, w = { .result = -EIO };
    gate g;
    weir_future *future = NULL;
    weir_executor *executor = make_executor(NULL);
    gate_close(&g, executor);
    assert_int_equal(weir_executor_submit(executor, do_work, &w, &future), 0);
    assert_int_equal(weir_future_code(future), -EINPROGRESS);
    weir_future_on_done(future, keep_place, &listener);
    gate_open(&g, executor);
    assert_int_equal(listener.calls, 1);
    assert_int_equal(listener.result, -EIO);
    assert_ptr_equal(listener.where, executor);
    weir_future_release(future);
    end_executor(executor);
}

static void submitted_function_runs_without_its_future(void **state)
{
    (void)state;
    work a = { 0 }, b = { 0 }, c = { 0 };
    gate g;
    weir_future *future = NULL;
    weir_executor *executor = make_executor(NULL);
    harness_log_begin(WEIR_LOG_WARN);
    gate_close(&g, executor);
    assert_int_equal(weir_executor_submit(executor, do_work, &a, &future), 0);
    weir_future_release(future);
    assert_int_equal(weir_executor_schedule(executor, do_work, &b, 0, &future), 0);
    weir_future_release(future);
    assert_int_equal(weir_executor_schedule(executor, do_work, &c, 0, NULL), 0);
    assert_int_equal(weir_executor_schedule(executor, nothing, NULL, 0, &future), 0);
    gate_open(&g, executor);
    assert_int_equal(weir_future_await(future), 0); /* the others were due before it */
    weir_future_release(future);
    end_executor(executor);
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 1);
    assert_int_equal(c.calls, 1);
    assert_int_equal(harness_log_end(), 0);
}

static void submitted_and_cancelled_it_is_not_called(void **state)
{
    (void)state;
    work w = { 0 }, listener = { 0 };
    gate g;
    weir_future *future = NULL;
    weir_executor *executor = make_executor(NULL);
    gate_close(&g, executor);
    assert_int_equal(weir_executor_submit(executor, do_work, &w, &future), 0);
    weir_future_on_done(future, keep_place, &listener);
    assert_int_equal(weir_future_cancel(future), 0);
    gate_open(&g, executor);
    assert_int_equal(weir_future_code(future), -ECANCELED);
    assert_int_equal(w.calls, 0);
    assert_int_equal(listener.calls, 1);
    assert_ptr_equal(listener.where, executor);
    weir_future_release(future);
    end_executor(executor);
}

static void submitted_to_a_promise_the_code_gets_there(void **state)
{
    (void)state;
    weir_executor *executor = make_executor(NULL), *other = make_executor(NULL);
    work w = { .result = -EIO }, listener = { 0 };
    weir_promise *promise = weir_promise_new(other);
    weir_future_on_done(weir_promise_future(promise), keep_place, &listener);
    assert_int_equal(weir_executor_submit_to(executor, do_work, &w, promise), 0);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), -EIO);
    flush(executor); /* which has posted the listener by then */
    flush(other);
    assert_int_equal(w.calls, 1);
    assert_ptr_equal(w.where, executor);
    assert_int_equal(listener.calls, 1);
    assert_ptr_equal(listener.where, other);
    weir_promise_release(promise);
    end_executor(executor);
    end_executor(other);
}

static void submitted_to_a_cancelled_promise_it_is_not_called(void **state)
{
    (void)state;
    work w = { 0 };
    gate g;
    weir_executor *executor = make_executor(NULL);
    weir_promise *promise = weir_promise_new(NULL);
    gate_close(&g, executor);
    assert_int_equal(weir_executor_submit_to(executor, do_work, &w, promise), 0);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    gate_open(&g, executor);
    assert_int_equal(w.calls, 0);
    weir_promise_release(promise);
    end_executor(executor);
}

/* NULL, no memory, an executor that has ended. */
static void refused_submissions_leave_the_promise_pending(void **state)
{
    (void)state;
    work w = { 0 };
    weir_executor *executor = make_executor(NULL);
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(weir_executor_submit_to(NULL, do_work, &w, promise), -EINVAL);
    assert_int_equal(weir_executor_submit_to(executor, NULL, &w, promise), -EINVAL);
    assert_int_equal(weir_executor_submit_to(executor, do_work, &w, NULL), -EINVAL);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_executor_submit_to(executor, do_work, &w, promise), -ENOMEM);
    harness_fail_end();
    assert_int_equal(weir_executor_shutdown(executor, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    assert_int_equal(weir_executor_submit_to(executor, do_work, &w, promise), WEIR_ESHUTDOWN);
    assert_int_equal(weir_promise_set(promise, 0), 0);
    weir_promise_release(promise);
    end_executor(executor);
    assert_int_equal(w.calls, 0);
}

static void begun_it_cannot_be_cancelled(void **state)
{
    (void)state;
    for (int is_scheduled = 0; is_scheduled < 2; is_scheduled++) {
        gate g;
        weir_future *future = NULL;
        weir_executor *executor = make_executor(NULL);
        sem_init(&g.entered, 0, 0);
        sem_init(&g.opened, 0, 0);
        int code = is_scheduled ? weir_executor_schedule(executor, pass_gate, &g, 0, &future)
                                : weir_executor_submit(executor, pass_gate, &g, &future);
        assert_int_equal(code, 0);
        while (sem_wait(&g.entered) < 0) {
        }
        assert_int_equal(weir_future_cancel(future), -EBUSY);
        assert_false(weir_future_is_done(future));
        sem_post(&g.opened);
        assert_int_equal(weir_future_await(future), 0);
        weir_future_release(future);
        end_executor(executor);
        sem_destroy(&g.entered);
        sem_destroy(&g.opened);
    }
}

/* From inside of the executor. */

typedef struct inside {
    weir_executor *executor;
    work submitted, scheduled;
    weir_future *submitted_future, *scheduled_future;
    int submit_code, schedule_code, await_code;
    int64_t delay_ns;
    bool cancels;
} inside;

static int call_inside(void *arg)
{
    inside *i = arg;
    i->submit_code = weir_executor_submit(i->executor, do_work, &i->submitted,
                                          &i->submitted_future);
    i->schedule_code = weir_executor_schedule(i->executor, do_work, &i->scheduled, i->delay_ns,
                                              &i->scheduled_future);
    i->await_code = weir_future_await(i->submitted_future);
    if (i->cancels) {
        weir_future_cancel(i->submitted_future);
        weir_future_cancel(i->scheduled_future);
    }
    return 0;
}

static void executor_may_call_on_itself(void **state)
{
    (void)state;
    for (int cancels = 0; cancels < 2; cancels++) {
        inside i = { .executor = make_executor(NULL), .cancels = cancels };
        run_on(i.executor, call_inside, &i);
        assert_int_equal(i.submit_code, 0);
        assert_int_equal(i.schedule_code, 0);
        assert_int_equal(i.await_code, -EDEADLK);
        assert_int_equal(weir_future_await(i.submitted_future), cancels ? -ECANCELED : 0);
        assert_int_equal(weir_future_await(i.scheduled_future), cancels ? -ECANCELED : 0);
        assert_int_equal(i.submitted.calls, !cancels);
        assert_int_equal(i.scheduled.calls, !cancels);
        weir_future_release(i.submitted_future);
        weir_future_release(i.scheduled_future);
        end_executor(i.executor);
    }
}

/* Ended first -------------------------------------------------------------------------------- */

/*
 * An executor whose thread cannot be started, and that is shut down by somebody while it is tried:
 * what others have posted meanwhile is dropped.
 */
typedef struct stillborn {
    weir_executor *executor;
    work first, executed, submitted, scheduled, listener;
    weir_future *submitted_future, *scheduled_future;
    int codes[4];
} stillborn;

static int fail_to_start(void *start_arg, const char *name, weir_thread_fn body, void *arg)
{
    (void)name;
    (void)body;
    (void)arg;
    stillborn *s = start_arg;
    s->codes[0] = weir_executor_execute(s->executor, do_work, &s->executed);
    s->codes[1] = weir_executor_submit(s->executor, do_work, &s->submitted, &s->submitted_future);
    s->codes[2] = weir_executor_schedule(s->executor, do_work, &s->scheduled, 0,
                                         &s->scheduled_future);
    weir_future_on_done(s->submitted_future, keep_place, &s->listener);
    s->codes[3] = weir_executor_shutdown(s->executor, 0, WEIR_SECONDS(1));
    return -EAGAIN;
}

static void ended_before_the_call_it_is_cancelled(void **state)
{
    (void)state;
    stillborn s = { 0 };
    s.executor = make_executor(&(weir_group_config){ .start = fail_to_start, .start_arg = &s });
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(weir_executor_execute(s.executor, do_work, &s.first), -EAGAIN);
    for (int i = 0; i < 4; i++)
        assert_int_equal(s.codes[i], 0);
    assert_int_equal(weir_future_await(s.submitted_future), -ECANCELED);
    assert_int_equal(weir_future_await(s.scheduled_future), -ECANCELED);
    assert_int_equal(s.listener.calls, 1);
    assert_int_equal(s.listener.result, -ECANCELED);
    weir_future_release(s.submitted_future);
    weir_future_release(s.scheduled_future);
    end_executor(s.executor);
    assert_int_equal(s.first.calls + s.executed.calls + s.submitted.calls + s.scheduled.calls, 0);
    assert_int_equal(harness_log_end(), 0);
}

static void shutdown_cancels_what_is_scheduled(void **state)
{
    (void)state;
    work w = { 0 }, forgotten = { 0 }, listener = { 0 };
    weir_future *future = NULL;
    weir_executor *executor = make_executor(NULL);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_executor_schedule(executor, do_work, &w, WEIR_SECONDS(1000), &future), 0);
    assert_int_equal(
        weir_executor_schedule(executor, do_work, &forgotten, WEIR_SECONDS(1000), NULL), 0);
    weir_future_on_done(future, keep_place, &listener);
    flush(executor);
    assert_false(weir_future_is_done(future));
    end_executor(executor);
    assert_int_equal(weir_future_await(future), -ECANCELED);
    assert_int_equal(listener.calls, 1);
    assert_ptr_equal(listener.where, executor);
    assert_int_equal(w.calls + forgotten.calls, 0);
    weir_future_release(future);
    assert_int_equal(harness_log_end(), 0);
}

/* Scheduled ---------------------------------------------------------------------------------- */

static void scheduled_functions_wait_for_their_time(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    const int64_t delays_ns[COUNT] = { 30, 10, 20, 10 };
    const unsigned places[COUNT] = { 4, 1, 3, 2 };
    unsigned row = 0;
    work works[COUNT] = { 0 };
    weir_future *futures[COUNT];
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 1000);
    weir_executor *executor = make_executor(&(weir_group_config){ .clock = &clock.clock });
    for (int i = 0; i < COUNT; i++) {
        works[i].row = &row;
        assert_int_equal(weir_executor_schedule(executor, do_work, &works[i],
                                                WEIR_SECONDS(delays_ns[i]), &futures[i]),
                         0);
    }
    weir_virtual_clock_advance(&clock, WEIR_SECONDS(10) - 1);
    flush(executor);
    assert_int_equal(row, 0);
    weir_virtual_clock_advance(&clock, 1);
    weir_executor_wake(executor);
    assert_int_equal(weir_future_await(futures[3]), 0);
    assert_false(weir_future_is_done(futures[2]));
    weir_virtual_clock_advance(&clock, WEIR_SECONDS(20));
    weir_executor_wake(executor);
    assert_int_equal(weir_future_await(futures[0]), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(weir_future_code(futures[i]), 0);
        assert_int_equal(works[i].calls, 1);
        assert_int_equal(works[i].place, places[i]);
        weir_future_release(futures[i]);
    }
    end_executor(executor);
}

static void scheduled_for_the_past_it_runs_soon(void **state)
{
    (void)state;
    const int64_t delays_ns[] = { 0, -1, INT64_MIN };
    weir_executor *executor = make_executor(NULL);
    for (size_t i = 0; i < sizeof delays_ns / sizeof *delays_ns; i++) {
        work w = { 0 };
        weir_future *future = NULL;
        assert_int_equal(weir_executor_schedule(executor, do_work, &w, delays_ns[i], &future), 0);
        assert_int_equal(weir_future_await(future), 0);
        assert_int_equal(w.calls, 1);
        weir_future_release(future);
    }
    end_executor(executor);
}

static uint64_t count_timers(weir_executor *executor)
{
    weir_executor_stats stats;
    flush(executor);
    weir_executor_get_stats(executor, &stats);
    return stats.timers;
}

static void scheduled_and_cancelled_it_is_not_called(void **state)
{
    (void)state;
    const int64_t delays_ns[] = { WEIR_SECONDS(1000), INT64_MAX };
    weir_executor *executor = make_executor(NULL);
    for (size_t i = 0; i < sizeof delays_ns / sizeof *delays_ns; i++) {
        work w = { 0 }, listener = { 0 };
        weir_future *future = NULL;
        assert_int_equal(weir_executor_schedule(executor, do_work, &w, delays_ns[i], &future), 0);
        weir_future_on_done(future, keep_place, &listener);
        assert_int_equal(count_timers(executor), 1);
        assert_int_equal(weir_future_cancel(future), 0);
        assert_int_equal(weir_future_cancel(future), -EALREADY);
        assert_int_equal(count_timers(executor), 0);
        assert_int_equal(weir_future_code(future), -ECANCELED);
        assert_int_equal(listener.calls, 1);
        assert_int_equal(w.calls, 0);
        weir_future_release(future);
    }
    end_executor(executor);
}

static void executor_may_cancel_what_it_has_scheduled(void **state)
{
    (void)state;
    inside i = { .executor = make_executor(NULL), .delay_ns = WEIR_SECONDS(1000), .cancels = true };
    run_on(i.executor, call_inside, &i);
    assert_int_equal(count_timers(i.executor), 0);
    assert_int_equal(weir_future_code(i.scheduled_future), -ECANCELED);
    assert_int_equal(i.scheduled.calls, 0);
    weir_future_release(i.submitted_future);
    weir_future_release(i.scheduled_future);
    end_executor(i.executor);
}

/* Cancelling from another thread while it is called: one of the two. */

static void race_cancel(bool is_scheduled)
{
    enum { ROUNDS = 1000 };
    work *works = calloc(ROUNDS, sizeof *works);
    weir_executor *executor = make_executor(NULL);
    flush(executor);
    for (int i = 0; i < ROUNDS; i++) {
        weir_future *future = NULL;
        int code = is_scheduled ? weir_executor_schedule(executor, do_work, &works[i], 0, &future)
                                : weir_executor_submit(executor, do_work, &works[i], &future);
        assert_int_equal(code, 0);
        for (int pause = 0; pause < i % 50; pause++)
            weir_clock_now_ns(weir_clock_monotonic());
        int cancelled = weir_future_cancel(future);
        assert_int_equal(weir_future_await(future), cancelled == 0 ? -ECANCELED : 0);
        works[i].result = cancelled;
        weir_future_release(future);
    }
    end_executor(executor);
    for (int i = 0; i < ROUNDS; i++)
        assert_int_equal(works[i].calls, works[i].result != 0);
    free(works);
}

static void submitted_it_is_called_or_cancelled(void **state)
{
    (void)state;
    race_cancel(false);
}

static void scheduled_it_is_called_or_cancelled(void **state)
{
    (void)state;
    race_cancel(true);
}

/* Memory ------------------------------------------------------------------------------------- */

/* Each of these fails with its n-th fallible call, the start of the thread included. */
static int try_execute(weir_executor *executor, work *w, weir_future **future)
{
    *future = weir_future_completed(0);
    return weir_executor_execute(executor, do_work, w);
}

static int try_submit(weir_executor *executor, work *w, weir_future **future)
{
    return weir_executor_submit(executor, do_work, w, future);
}

static void what_fails_changes_nothing(int (*try_call)(weir_executor *, work *, weir_future **),
                                       unsigned expected_calls)
{
    unsigned calls = 1;
    for (unsigned nth = 1; nth <= expected_calls + 1; nth++) {
        work w = { 0 };
        weir_future *future = NULL;
        weir_executor *executor = make_executor(NULL);
        harness_fail_nth(NULL, nth, -ENOMEM);
        int code = try_call(executor, &w, &future);
        calls = harness_fail_end();
        assert_int_equal(code, nth <= expected_calls ? -ENOMEM : 0);
        if (code == 0)
            weir_future_release(future);
        end_executor(executor);
        assert_int_equal(w.calls, code == 0);
    }
    assert_int_equal(calls, expected_calls);
}

static void execute_without_memory_changes_nothing(void **state)
{
    (void)state;
    what_fails_changes_nothing(try_execute, 2);
}

static void submit_without_memory_changes_nothing(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_WARN);
    what_fails_changes_nothing(try_submit, 3);
    assert_int_equal(harness_log_end(), 0);
}

static void schedule_without_memory_fails_or_is_cancelled(void **state)
{
    (void)state;
    enum { HERE = 2, THERE = 3 }; /* allocations on this thread, and the executor's beside them */
    harness_log_begin(WEIR_LOG_WARN);
    for (unsigned nth = 1; nth <= THERE + 1; nth++) {
        work w = { 0 };
        weir_future *future = NULL;
        weir_executor *executor = make_executor(NULL);
        flush(executor);
        harness_fail_nth("alloc", nth, -ENOMEM);
        int code = weir_executor_schedule(executor, do_work, &w, 0, &future);
        assert_int_equal(code, nth <= HERE ? -ENOMEM : 0);
        if (code == 0)
            assert_int_equal(weir_future_await(future), nth <= THERE ? -ECANCELED : 0);
        assert_int_equal(harness_fail_end(), nth <= THERE ? nth : THERE);
        weir_future_release(future);
        end_executor(executor);
        assert_int_equal(w.calls, nth > THERE);
    }
    assert_int_equal(harness_log_end(), 0);
}

static int schedule_inside(void *arg)
{
    inside *i = arg;
    i->schedule_code = weir_executor_schedule(i->executor, do_work, &i->scheduled, 0,
                                              &i->scheduled_future);
    return 0;
}

static void executor_without_memory_schedules_nothing(void **state)
{
    (void)state;
    enum { ALLOCATIONS = 3, OWN = 2 }; /* of the scheduling, behind those of run_on */
    harness_log_begin(WEIR_LOG_WARN);
    for (unsigned nth = 1; nth <= ALLOCATIONS + 1; nth++) {
        inside i = { .executor = make_executor(NULL) };
        flush(i.executor);
        harness_fail_nth("alloc", OWN + nth, -ENOMEM);
        run_on(i.executor, schedule_inside, &i);
        if (i.scheduled_future != NULL)
            assert_int_equal(weir_future_await(i.scheduled_future), 0);
        harness_fail_end();
        assert_int_equal(i.schedule_code, nth <= ALLOCATIONS ? -ENOMEM : 0);
        assert_int_equal(i.scheduled_future != NULL, nth > ALLOCATIONS);
        weir_future_release(i.scheduled_future);
        end_executor(i.executor);
        assert_int_equal(i.scheduled.calls, nth > ALLOCATIONS);
    }
    assert_int_equal(harness_log_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(executed_functions_run_in_order_on_the_thread),
        weir_case(executed_functions_run_before_the_end),
        weir_case(executed_failure_is_logged),
        weir_case(null_is_refused),
        weir_case(after_the_end_everything_is_refused),
        weir_case(at_the_bound_everything_is_refused),
        weir_case(submitted_result_is_what_the_function_returns),
        weir_case(submitted_future_tells_on_the_executor),
        weir_case(submitted_function_runs_without_its_future),
        weir_case(submitted_and_cancelled_it_is_not_called),
        weir_case(submitted_to_a_promise_the_code_gets_there),
        weir_case(submitted_to_a_cancelled_promise_it_is_not_called),
        weir_case(refused_submissions_leave_the_promise_pending),
        weir_case(begun_it_cannot_be_cancelled),
        weir_case(executor_may_call_on_itself),
        weir_case(ended_before_the_call_it_is_cancelled),
        weir_case(shutdown_cancels_what_is_scheduled),
        weir_case(scheduled_functions_wait_for_their_time),
        weir_case(scheduled_for_the_past_it_runs_soon),
        weir_case(scheduled_and_cancelled_it_is_not_called),
        weir_case(executor_may_cancel_what_it_has_scheduled),
        weir_case(submitted_it_is_called_or_cancelled),
        weir_case(scheduled_it_is_called_or_cancelled),
        weir_case(execute_without_memory_changes_nothing),
        weir_case(submit_without_memory_changes_nothing),
        weir_case(schedule_without_memory_fails_or_is_cancelled),
        weir_case(executor_without_memory_schedules_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
