/* SPDX-License-Identifier: MIT */
/* The global executor: one for all, whose thread comes and goes. */
#include "executors.h"

#include <weir/threads.h>
#include <weir/timer.h>

#define LONG_NS WEIR_SECONDS(30)

/* The thread of the global executor ends when it is idle, and at once if a caller waits for it. */
static void wait_until_idle(void)
{
    assert_int_equal(weir_executor_global_wait_idle(LONG_NS), 0);
}

static int tell_tid(void *arg)
{
    *(int *)arg = (int)gettid();
    return 0;
}

static int tid_of_global(void)
{
    int tid = 0;
    assert_int_equal(call_on(weir_executor_global(), tell_tid, &tid), 0);
    return tid;
}

static int look_current(void *arg)
{
    *(weir_executor **)arg = weir_executor_current();
    return 0;
}

static void tasks_run_on_one_thread(void **state)
{
    (void)state;
    weir_executor *global = weir_executor_global(), *current = NULL;
    assert_non_null(global);
    assert_ptr_equal(weir_executor_global(), global);
    assert_string_equal(weir_executor_name(global), "weir-global");
    assert_null(weir_executor_group(global));
    size_t threads = count_threads();
    int tid = tid_of_global();
    assert_int_not_equal(tid, gettid());
    for (int i = 0; i < 100; i++)
        assert_int_equal(tid_of_global(), tid);
    assert_int_equal(count_threads(), threads + 1);
    assert_int_equal(call_on(global, look_current, &current), 0);
    assert_ptr_equal(current, global);
    probe tail = PROBE;
    assert_int_equal(weir_executor_post_tail(global, &tail.task), 0);
    WAIT_FOR(atomic_load(&tail.runs) == 1);
    wait_until_idle();
}

static void thread_ends_after_an_idle_second_and_another_comes(void **state)
{
    (void)state;
    size_t threads = count_threads();
    int before = tid_of_global();
    int64_t idle_ns = weir_clock_now_ns(weir_clock_monotonic());
    assert_int_equal(count_threads(), threads + 1);
    WAIT_FOR(count_threads() == threads);
    assert_true(weir_clock_now_ns(weir_clock_monotonic()) - idle_ns >= WEIR_MS(900));
    assert_int_not_equal(tid_of_global(), before);
    assert_int_equal(count_threads(), threads + 1);
    wait_until_idle();
}

/* The second is for the next task; a caller that waits for the end expects none. On a busy machine
 * the fastest of some counts. */
static void idle_wait_ends_an_idle_thread_at_once(void **state)
{
    (void)state;
    int64_t fastest_ns = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        blocker b;
        block(&b, weir_executor_global());
        unblock(&b);
        int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
        wait_until_idle();
        int64_t took_ns = weir_clock_now_ns(weir_clock_monotonic()) - start_ns;
        fastest_ns = took_ns < fastest_ns ? took_ns : fastest_ns;
    }
    assert_true(fastest_ns < WEIR_MS(900));
}

static void idle_wait_tells_when_its_time_is_up(void **state)
{
    (void)state;
    blocker b;
    block(&b, weir_executor_global());
    assert_int_equal(weir_executor_global_wait_idle(0), -ETIMEDOUT);
    assert_int_equal(weir_executor_global_wait_idle(WEIR_MS(20)), -ETIMEDOUT);
    unblock(&b);
    wait_until_idle();
    assert_int_equal(weir_executor_global_wait_idle(0), 0);
}

static int wait_idle_inside(void *arg)
{
    (void)arg;
    return weir_executor_global_wait_idle(LONG_NS);
}

static void idle_wait_on_its_own_thread_is_refused(void **state)
{
    (void)state;
    assert_int_equal(call_on(weir_executor_global(), wait_idle_inside, NULL), -EDEADLK);
    wait_until_idle();
}

/* A timer keeps the thread, for longer than a second. */
typedef struct tid_timer {
    weir_timer timer;
    int tid;
    atomic_int fires, cancels;
} tid_timer;

static int tid_timer_fire(weir_timer *timer)
{
    tid_timer *self = WEIR_CONTAINER(timer, tid_timer, timer);
    self->tid = (int)gettid();
    atomic_fetch_add(&self->fires, 1);
    return 0;
}

static void tid_timer_cancelled(weir_timer *timer)
{
    atomic_fetch_add(&WEIR_CONTAINER(timer, tid_timer, timer)->cancels, 1);
}

static void timer_keeps_its_thread(void **state)
{
    (void)state;
    int tid = tid_of_global();
    tid_timer t = { .timer = { .fire = tid_timer_fire } };
    assert_int_equal(weir_timer_schedule(&t.timer, weir_executor_global(), WEIR_MS(1300)), 0);
    assert_int_equal(weir_executor_global_wait_idle(WEIR_MS(1150)), -ETIMEDOUT);
    assert_int_equal(atomic_load(&t.fires), 0);
    WAIT_FOR(atomic_load(&t.fires) == 1);
    assert_int_equal(t.tid, tid);
    wait_until_idle();
}

static void cancelled_timer_does_not_keep_it(void **state)
{
    (void)state;
    tid_timer t = { .timer = { .fire = tid_timer_fire, .cancelled = tid_timer_cancelled } };
    assert_int_equal(weir_timer_schedule(&t.timer, weir_executor_global(), WEIR_SECONDS(3600)), 0);
    assert_int_equal(weir_timer_cancel(&t.timer), 0);
    wait_until_idle();
    assert_int_equal(atomic_load(&t.cancels), 1);
    assert_int_equal(atomic_load(&t.fires), 0);
}

/* The task that wants a timer may be the one that brings the thread. */
static void timer_starts_a_thread(void **state)
{
    (void)state;
    assert_int_equal(weir_executor_global_wait_idle(0), 0);
    tid_timer t = { .timer = { .fire = tid_timer_fire } };
    assert_int_equal(weir_timer_schedule(&t.timer, weir_executor_global(), WEIR_MS(5)), 0);
    WAIT_FOR(atomic_load(&t.fires) == 1);
    wait_until_idle();
}

static void cannot_be_shut_down(void **state)
{
    (void)state;
    weir_executor *global = weir_executor_global();
    assert_int_equal(weir_executor_shutdown(global, 0, WEIR_SECONDS(1)), -EPERM);
    settle(global);
    assert_int_equal(weir_executor_shutdown(global, 0, WEIR_SECONDS(1)), -EPERM);
    assert_int_equal(weir_executor_get_state(global), WEIR_EXECUTOR_STARTED);
    assert_false(weir_future_is_done(weir_executor_terminated(global)));
    settle(global);
    wait_until_idle();
}

static void thread_that_does_not_start_is_told(void **state)
{
    (void)state;
    weir_executor *global = weir_executor_global();
    assert_int_equal(weir_executor_global_wait_idle(0), 0);
    probe p[3] = { PROBE, PROBE, PROBE };
    harness_fail_nth("pthread_create", 1, -EAGAIN);
    assert_int_equal(weir_executor_post(global, &p[0].task), -EAGAIN);
    assert_int_equal(harness_fail_end(), 1);
    harness_fail_nth("pthread_create", 1, -EPERM);
    assert_int_equal(weir_executor_post_tail(global, &p[1].task), -EPERM);
    assert_int_equal(harness_fail_end(), 1);
    harness_fail_nth("pthread_create", 1, -EAGAIN);
    weir_executor_wake(global); /* nobody to tell */
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(weir_executor_global_wait_idle(0), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(atomic_load(&p[i].runs) + atomic_load(&p[i].drops), 0);
    /* They stayed the poster's, who may try again. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_executor_post(global, &p[i].task), 0);
    settle(global);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&p[i].runs), 1);
    wait_until_idle();
}

/* A task that is accepted while the other's thread cannot be had, and is not forgotten. */
typedef struct late_post {
    weir_executor *executor;
    int (*post)(weir_executor *executor, weir_task *task);
    probe probe;
    int code;
    bool is_done;
} late_post;

static void *post_late(void *arg)
{
    late_post *self = arg;
    self->code = self->post(self->executor, &self->probe.task);
    return NULL;
}

static int fail_with_a_post_in_between(void *arg, const char *call, size_t *length)
{
    (void)length;
    late_post *self = arg;
    if (self->is_done || strcmp(call, "pthread_create") != 0)
        return 0;
    self->is_done = true;
    pthread_t thread;
    if (pthread_create(&thread, NULL, post_late, self) == 0)
        pthread_join(thread, NULL);
    return -EAGAIN;
}

/* The other task may be in the other queue. */
static void start_fails_with_a_post_in_between(weir_executor *executor, bool is_tail)
{
    late_post late = { .executor = executor, .probe = PROBE, .code = 1 };
    late.post = is_tail ? weir_executor_post_tail : weir_executor_post;
    probe p = PROBE;
    weir_fault_set(fail_with_a_post_in_between, &late);
    assert_int_equal(weir_executor_post(executor, &p.task), -EAGAIN);
    weir_fault_set(NULL, NULL);
    assert_true(late.is_done);
    assert_int_equal(late.code, 0);
    WAIT_FOR(atomic_load(&late.probe.runs) == 1); /* without another post */
    assert_int_equal(atomic_load(&p.runs), 0);
}

static void task_that_came_meanwhile_is_not_forgotten(void **state)
{
    (void)state;
    for (int is_tail = 0; is_tail < 2; is_tail++) {
        start_fails_with_a_post_in_between(weir_executor_global(), is_tail);
        wait_until_idle();
        weir_group *group = new_group_of(1);
        start_fails_with_a_post_in_between(weir_group_at(group, 0), is_tail);
        end_group(group);
    }
}

/* Eight threads post around the moment at which the thread ends. */
typedef struct visitor {
    pthread_barrier_t *barrier;
    unsigned seed;
    int failed;
} visitor;

static void *visit(void *arg)
{
    enum { ROUNDS = 3, POSTS = 200 };
    visitor *self = arg;
    weir_executor *global = weir_executor_global();
    static const int64_t pauses_ns[] = { WEIR_MS(1000), WEIR_MS(999), WEIR_MS(1001) };
    for (int round = 0; round < ROUNDS; round++) {
        probe probes[POSTS];
        pthread_barrier_wait(self->barrier);
        for (int i = 0; i < POSTS; i++) {
            probes[i] = (probe)PROBE;
            self->failed += weir_executor_post(global, &probes[i].task) != 0;
        }
        for (int i = 0; i < POSTS; i++)
            WAIT_FOR(atomic_load(&probes[i].runs) == 1);
        /* The pause is the subject: as long as the thread stays. */
        int64_t pause_ns = pauses_ns[round] + rand_r(&self->seed) % 200000;
        struct timespec pause = { .tv_sec = pause_ns / 1000000000,
                                  .tv_nsec = pause_ns % 1000000000 };
        nanosleep(&pause, NULL);
        probe last = PROBE;
        self->failed += weir_executor_post(global, &last.task) != 0;
        WAIT_FOR(atomic_load(&last.runs) == 1);
    }
    return NULL;
}

static void posts_from_eight_threads_while_it_comes_and_goes(void **state)
{
    (void)state;
    visitor visitors[8];
    pthread_t threads[8];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++) {
        visitors[i] = (visitor){ .barrier = &barrier, .seed = (unsigned)i };
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &visitors[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(visitors[i].failed, 0);
    }
    pthread_barrier_destroy(&barrier);
    wait_until_idle();
}

static void is_the_background_of_groups_with_threads(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    assert_ptr_equal(weir_group_background(group), weir_executor_global());
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(tasks_run_on_one_thread),
        weir_case(thread_ends_after_an_idle_second_and_another_comes),
        weir_case(idle_wait_ends_an_idle_thread_at_once),
        weir_case(idle_wait_tells_when_its_time_is_up),
        weir_case(idle_wait_on_its_own_thread_is_refused),
        weir_case(timer_keeps_its_thread),
        weir_case(cancelled_timer_does_not_keep_it),
        weir_case(timer_starts_a_thread),
        weir_case(cannot_be_shut_down),
        weir_case(thread_that_does_not_start_is_told),
        weir_case(task_that_came_meanwhile_is_not_forgotten),
        weir_case(posts_from_eight_threads_while_it_comes_and_goes),
        weir_case(is_the_background_of_groups_with_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
