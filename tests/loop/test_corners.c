/* SPDX-License-Identifier: MIT */
/* Corners where executors, futures, groups and loops meet. */
#include "loops.h"

#include <poll.h>

#include <weir/future.h>
#include <weir/signal.h>
#include <weir/threads.h>
#include <weir/timer.h>
#include <weir/watch.h>

#include <signal.h>

static int succeed(void *arg)
{
    (void)arg;
    return 0;
}

static void lasting_futures_cannot_be_cancelled(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    settle(weir_group_at(group, 0));
    assert_int_equal(weir_future_cancel(weir_group_terminated(group)), -EBUSY);
    assert_int_equal(weir_future_cancel(weir_executor_terminated(weir_group_at(group, 0))), -EBUSY);
    weir_promise *follower = weir_promise_new(NULL);
    assert_int_equal(weir_promise_follow(follower, weir_group_terminated(group)), 0);
    assert_int_equal(weir_future_cancel(weir_promise_future(follower)), 0);
    assert_int_equal(weir_future_code(weir_group_terminated(group)), -EINPROGRESS);
    end_group(group);
    weir_promise_release(follower);
}

/* A task that posts itself again, for as long as it may. */
typedef struct restless {
    weir_task task;
    weir_executor *executor;
    atomic_int runs;
} restless;

static int restless_run(weir_task *task)
{
    restless *self = WEIR_CONTAINER(task, restless, task);
    atomic_fetch_add(&self->runs, 1);
    weir_executor_post(self->executor, task);
    return 0;
}

static void s040_with_an_unlimited_share_of_tasks_it_ends_too(void **state)
{
    (void)state;
    weir_group *group = NULL;
    assert_int_equal(
        weir_group_new(&group, &(weir_group_config){ .loops = 1, .io_ratio = 100 }, NULL), 0);
    restless r = { .task = { .run = restless_run }, .executor = weir_group_at(group, 0) };
    assert_int_equal(weir_executor_post(r.executor, &r.task), 0);
    WAIT_FOR(atomic_load(&r.runs) > 1000);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_MS(100)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_group_free(group);
}

static void group_that_was_never_used_is_freed_at_once(void **state)
{
    (void)state;
    weir_group *group = NULL;
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 4 }, NULL), 0);
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    weir_group_free(group);
    assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns < WEIR_SECONDS(1));
}

static void ignore_ready(weir_watch *watch, unsigned events)
{
    (void)watch;
    (void)events;
}

static void shutdown_may_take_for_ever(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, WEIR_SECONDS(1));
    test_pipe p = pipe_open();
    weir_watch watch = { .ready = ignore_ready };
    weir_group *group =
        new_loops(&(weir_group_config){ .loops = 1, .is_manual = true, .clock = &clock.clock });
    assert_int_equal(weir_watch_start(&watch, weir_group_loop_at(group, 0), p.in, WEIR_WATCH_READ),
                     0);
    weir_group_step(group);
    assert_int_equal(weir_group_shutdown(group, 0, INT64_MAX), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    assert_int_equal(weir_clock_now_ns(&clock.clock), WEIR_SECONDS(1));
    weir_group_free(group);
    pipe_close(&p);
}

/* Manual executors inside each other --------------------------------------------------------- */

typedef struct nest {
    weir_group *group;
    weir_promise *first, *second;
    int outer_code, inner_code, later;
} nest;

static int later_task(void *arg)
{
    ((nest *)arg)->later++;
    return 0;
}

static int inner_task(void *arg)
{
    nest *self = arg;
    self->inner_code = weir_future_await(weir_promise_future(self->second));
    weir_promise_set(self->first, 0);
    return 0;
}

static int outer_task(void *arg)
{
    nest *self = arg;
    weir_executor_execute(weir_group_at(self->group, 1), inner_task, self);
    self->outer_code = weir_future_await(weir_promise_future(self->first));
    return 0;
}

/* The inner wait finds everybody in a turn, and what would help behind them: nothing will happen.
 */
static void executor_is_not_stepped_inside_its_own_turn(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    nest n = { .first = weir_promise_new(NULL), .second = weir_promise_new(NULL) };
    n.group =
        new_group(&(weir_group_config){ .count = 2, .is_manual = true, .clock = &clock.clock });
    for (int i = 0; i < 3; i++)
        weir_executor_execute(weir_group_at(n.group, 0), i == 0 ? outer_task : later_task, &n);
    assert_int_equal(weir_group_step(n.group), 1); /* the second one ran inside the first */
    assert_int_equal(n.inner_code, -EDEADLK);
    assert_int_equal(n.outer_code, 0);
    assert_int_equal(n.later, 2);
    weir_promise_set(n.second, 0);
    weir_promise_release(n.first);
    weir_promise_release(n.second);
    weir_group_free(n.group);
}

static void *complete_soon(void *arg)
{
    weir_promise_set(arg, 0);
    return NULL;
}

static int wait_in_task(void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, complete_soon, arg), 0);
    int code = weir_future_await(weir_promise_future(arg));
    pthread_join(thread, NULL);
    return code;
}

static void task_of_the_background_may_wait_for_another_thread(void **state)
{
    (void)state;
    weir_group *group = new_group(&(weir_group_config){ .count = 1, .is_manual = true });
    for (int i = 0; i < 50; i++) {
        weir_promise *promise = weir_promise_new(NULL);
        weir_future *future = NULL;
        assert_int_equal(
            weir_executor_submit(weir_group_background(group), wait_in_task, promise, &future), 0);
        assert_int_equal(weir_future_await(future), 0);
        weir_future_release(future);
        weir_promise_release(promise);
    }
    end_group(group);
}

typedef struct listening {
    weir_listener listener;
    weir_executor *executor;
    int code;
} listening;

static void wait_in_listener(weir_listener *listener, weir_future *future)
{
    (void)future;
    listening *self = WEIR_CONTAINER(listener, listening, listener);
    weir_future *other = NULL;
    weir_promise *follower = weir_promise_new(NULL);
    weir_executor_submit(self->executor, succeed, NULL, &other);
    weir_promise_follow(follower, other);
    self->code = weir_future_await(weir_promise_future(follower));
    weir_promise_release(follower);
    weir_future_release(other);
}

static void listener_may_wait_while_it_steps(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group =
        new_group(&(weir_group_config){ .count = 1, .is_manual = true, .clock = &clock.clock });
    listening l = { .listener = { .done = wait_in_listener }, .executor = weir_group_at(group, 0) };
    weir_promise *promise = weir_promise_new(NULL);
    l.code = 1;
    weir_future_listen(weir_promise_future(promise), &l.listener);
    weir_promise_set(promise, 0);
    assert_int_equal(l.code, 0);
    weir_promise_release(promise);
    weir_group_free(group);
}

static void loop_by_hand_runs_the_background(void **state)
{
    (void)state;
    weir_group *group = NULL;
    probe p = PROBE;
    assert_int_equal(
        weir_group_new(&group, &(weir_group_config){ .loops = 1, .is_manual = true }, NULL), 0);
    weir_loop *loop = weir_group_loop_at(group, 0);
    assert_int_equal(weir_loop_run_once(loop, 0), 0);
    assert_int_equal(weir_loop_next_ns(loop), -1);
    assert_int_equal(weir_executor_post(weir_group_background(group), &p.task), 0);
    struct pollfd fd = { .fd = weir_loop_descriptor(loop), .events = POLLIN };
    assert_int_equal(poll(&fd, 1, 10000), 1); /* its driver hears of it */
    assert_int_equal(weir_loop_next_ns(loop), 0);
    assert_int_equal(weir_loop_run_once(loop, 0), 1);
    assert_int_equal(atomic_load(&p.runs), 1);
    end_group(group);
}

/* Driving a manual group does not mean that waiting for another one moves its clock. */
static void freeing_another_group_leaves_the_clock_alone(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *manual =
        new_group(&(weir_group_config){ .count = 1, .is_manual = true, .clock = &clock.clock });
    weir_group *real = new_group_of(1);
    settle(weir_group_at(real, 0));
    assert_int_equal(weir_group_shutdown(real, 0, WEIR_SECONDS(1)), 0);
    weir_group_free(real);
    assert_int_equal(weir_clock_now_ns(&clock.clock), 0);
    weir_group_free(manual);
}

/* Others ------------------------------------------------------------------------------------- */

static int block_state(void *arg)
{
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    *(int *)arg = sigismember(&blocked, SIGINT) + sigismember(&blocked, SIGTERM);
    return 0;
}

static void threads_of_others_block_signals_too(void **state)
{
    (void)state;
    starter s = { .code = 0 };
    int blocked = 0;
    weir_group *group =
        new_group(&(weir_group_config){ .count = 1, .start = starter_start, .start_arg = &s });
    assert_int_equal(call_on(weir_group_at(group, 0), block_state, &blocked), 0);
    assert_int_equal(blocked, 2);
    end_group(group);
    starter_join(&s);
}

static int never(weir_timer *timer)
{
    (void)timer;
    return 0;
}

static int reschedule(void *arg)
{
    int code = weir_timer_reschedule(arg, WEIR_SECONDS(100));
    return code == 0 ? weir_timer_cancel(arg) : code;
}

/* A timer that never comes does not keep the thread, but is still there when it comes back. */
static void global_executor_keeps_a_timer_without_end(void **state)
{
    (void)state;
    weir_timer timer = { .fire = never };
    weir_executor *global = weir_executor_global();
    assert_int_equal(weir_timer_schedule(&timer, global, INT64_MAX), 0);
    settle(global);
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(30)), 0);
    assert_int_equal(call_on(global, reschedule, &timer), 0);
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(30)), 0);
}

typedef struct once {
    weir_signal signal;
    atomic_int raises, stops;
} once;

static void raised_once(weir_signal *signal, int number)
{
    (void)number;
    atomic_fetch_add(&WEIR_CONTAINER(signal, once, signal)->raises, 1);
    weir_signal_stop(signal);
}

static void once_stopped(weir_signal *signal, int code)
{
    (void)code;
    atomic_fetch_add(&WEIR_CONTAINER(signal, once, signal)->stops, 1);
}

static void signal_that_was_stopped_is_not_raised_again(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    once o = { .signal = { .raised = raised_once, .stopped = once_stopped } };
    blocker b;
    int number = SIGRTMIN + 3;
    assert_int_equal(weir_loop_signal(weir_group_loop_at(group, 0), &o.signal, number), 0);
    settle(weir_group_at(group, 0));
    block(&b, weir_group_at(group, 0));
    for (int i = 0; i < 5; i++)
        assert_int_equal(kill(getpid(), number), 0); /* of this kind each one counts */
    unblock(&b);
    WAIT_FOR(atomic_load(&o.stops) == 1);
    assert_int_equal(atomic_load(&o.raises), 1);
    end_group(group);
    sigset_t left;
    sigemptyset(&left);
    sigaddset(&left, number);
    while (sigtimedwait(&left, NULL, &(struct timespec){ 0 }) > 0) {
    }
    pthread_sigmask(SIG_UNBLOCK, &left, NULL);
}

typedef struct counted {
    weir_hook hook;
    weir_executor *executor;
    atomic_int runs;
} counted;

static void count_run(weir_hook *hook)
{
    atomic_fetch_add(&WEIR_CONTAINER(hook, counted, hook)->runs, 1);
}

static int add_it(void *arg)
{
    counted *self = arg;
    return weir_executor_add_pass_hook(self->executor, &self->hook);
}

static void hook_is_free_again_after_the_end(void **state)
{
    (void)state;
    counted c = { .hook = { .run = count_run } };
    for (int i = 0; i < 2; i++) {
        weir_group *group = new_group_of(1);
        c.executor = weir_group_at(group, 0);
        assert_int_equal(call_on(c.executor, add_it, &c), 0);
        end_group(group);
    }
    assert_true(atomic_load(&c.runs) >= 2);
}

static void bad_number_of_loops_in_the_environment_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "abc", "-1", "0", "3x", "99999999999999999999" };
    const char *before = getenv("WEIR_LOOPS");
    assert_null(before);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weir_error error;
        weir_group *group = NULL;
        setenv("WEIR_LOOPS", bad[i], 1);
        assert_int_equal(weir_group_new(&group, NULL, &error), -EINVAL);
        assert_non_null(strstr(error.message, bad[i]));
    }
    unsetenv("WEIR_LOOPS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(lasting_futures_cannot_be_cancelled),
        weir_case(s040_with_an_unlimited_share_of_tasks_it_ends_too),
        weir_case(group_that_was_never_used_is_freed_at_once),
        weir_case(shutdown_may_take_for_ever),
        weir_case(executor_is_not_stepped_inside_its_own_turn),
        weir_case(task_of_the_background_may_wait_for_another_thread),
        weir_case(listener_may_wait_while_it_steps),
        weir_case(loop_by_hand_runs_the_background),
        weir_case(freeing_another_group_leaves_the_clock_alone),
        weir_case(threads_of_others_block_signals_too),
        weir_case(global_executor_keeps_a_timer_without_end),
        weir_case(signal_that_was_stopped_is_not_raised_again),
        weir_case(hook_is_free_again_after_the_end),
        weir_case(bad_number_of_loops_in_the_environment_is_refused),
    };
    return cmocka_run_group_tests(tests, choose_backend, NULL);
}
