/* SPDX-License-Identifier: MIT */
/* Manual groups: no threads, stepped by their maker, also while that waits for a future. */
#include "base/asleep.h"
#include "loop/loops.h"

#define HOUR_NS WEIR_SECONDS(3600)

/* Of what a group is made, and which clock it has. */
typedef enum kind {
    PLAIN,
    LOOPS,
    KINDS,
} kind;

static weir_group *new_manual(kind of, int count, weir_virtual_clock *clock)
{
    weir_group_config config = { .count = count,
                                 .name = "manual",
                                 .is_manual = true,
                                 .clock = clock != NULL ? &clock->clock : NULL };
    return of == LOOPS ? new_loops(&config) : new_group(&config);
}

static int64_t time_of(weir_virtual_clock *clock)
{
    return weir_clock_now_ns(&clock->clock);
}

/* A virtual clock that starts at an odd time, or NULL for the real one. */
static weir_virtual_clock *start_clock(weir_virtual_clock *clock, bool is_virtual)
{
    weir_virtual_clock_init(clock, 12345);
    return is_virtual ? clock : NULL;
}

#define FOR_EACH_KIND_AND_CLOCK(of, clock)                                                         \
    for (kind of = PLAIN; of < KINDS; of++)                                                        \
        for (int is_virtual_ = 0; is_virtual_ < 2; is_virtual_++)                                  \
            for (weir_virtual_clock room_, *clock = start_clock(&room_, is_virtual_),              \
                                           *once_ = &room_;                                        \
                 once_ != NULL; once_ = NULL)

/* Stepping ----------------------------------------------------------------------------------- */

typedef struct here {
    weir_task task;
    weir_executor *executor, *current;
    int tid, runs;
} here;

static int look_here(weir_task *task)
{
    here *self = WEIR_CONTAINER(task, here, task);
    self->current = weir_executor_current();
    self->tid = (int)gettid();
    self->runs++;
    return 0;
}

static void step_runs_what_was_posted(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        size_t threads = count_threads();
        weir_group *group = new_manual(of, 3, clock);
        assert_int_equal(weir_group_step(group), 0);
        here h[3];
        for (size_t i = 0; i < 3; i++) {
            weir_executor *child = weir_group_at(group, i);
            assert_int_equal(weir_executor_get_state(child), WEIR_EXECUTOR_STARTED);
            h[i] = (here){ .task = { .run = look_here }, .executor = child };
        }
        assert_int_equal(weir_executor_post(h[0].executor, &h[0].task), 0);
        assert_int_equal(weir_executor_post(h[2].executor, &h[2].task), 0);
        assert_int_equal(h[0].runs, 0);
        assert_int_equal(weir_group_step(group), 2); /* of three */
        assert_int_equal(weir_executor_post(h[1].executor, &h[1].task), 0);
        assert_int_equal(weir_group_step(group), 1);
        assert_int_equal(weir_group_step(group), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(h[i].runs, 1);
            assert_int_equal(h[i].tid, gettid());
            assert_ptr_equal(h[i].current, h[i].executor);
        }
        assert_null(weir_executor_current());
        assert_int_equal(count_threads(), threads);
        end_group(group);
    }
}

static void tail_and_lazy_tasks_are_run_by_steps(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 1, clock);
        weir_executor *executor = weir_group_at(group, 0);
        probe lazy = PROBE, tail = PROBE;
        assert_int_equal(weir_executor_post_lazy(executor, &lazy.task), 0);
        assert_int_equal(weir_group_next_ns(group), 0);
        assert_int_equal(weir_group_step(group), 1);
        assert_int_equal(weir_executor_post_tail(executor, &tail.task), 0);
        assert_int_equal(weir_group_next_ns(group), 0);
        weir_group_step(group);
        assert_int_equal(atomic_load(&lazy.runs), 1);
        assert_int_equal(atomic_load(&tail.runs), 1);
        end_group(group);
    }
}

static void next_ns_tells_how_long_to_wait(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 2, clock);
        weir_executor *executor = weir_group_at(group, 1);
        assert_true(weir_group_next_ns(group) < 0);
        assert_true(weir_group_next_ns(group) != INT64_MIN);
        probe p = PROBE;
        assert_int_equal(weir_executor_post(executor, &p.task), 0);
        assert_int_equal(weir_group_next_ns(group), 0);
        weir_group_step(group);
        assert_true(weir_group_next_ns(group) < 0);
        weir_executor_wake(executor);
        assert_int_equal(weir_group_next_ns(group), 0);
        assert_int_equal(weir_group_step(group), 0); /* and that was all */
        assert_true(weir_group_next_ns(group) < 0);
        end_group(group);
    }
}

static void next_ns_tells_of_timers(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 2, clock);
        probe_timer late = PROBE_TIMER, soon = PROBE_TIMER;
        assert_int_equal(weir_timer_schedule(&late.timer, weir_group_at(group, 0), 2 * HOUR_NS), 0);
        assert_int_equal(weir_timer_schedule(&soon.timer, weir_group_at(group, 1), HOUR_NS), 0);
        while (weir_group_step(group) > 0) {
        }
        if (clock != NULL) {
            assert_int_equal(weir_group_next_ns(group), HOUR_NS);
            weir_virtual_clock_advance(clock, HOUR_NS - 1);
            assert_int_equal(weir_group_step(group), 0);
            assert_int_equal(weir_group_next_ns(group), 1);
            weir_virtual_clock_advance(clock, 1);
            assert_int_equal(weir_group_next_ns(group), 0);
            assert_int_equal(weir_group_step(group), 1);
            assert_int_equal(atomic_load(&soon.fires), 1);
            assert_int_equal(weir_group_next_ns(group), HOUR_NS);
        } else {
            assert_in_range(weir_group_next_ns(group), HOUR_NS - WEIR_SECONDS(50), HOUR_NS);
        }
        end_group(group);
        assert_int_equal(atomic_load(&late.cancels), 1);
        assert_int_equal(atomic_load(&late.fires), 0);
        assert_int_equal(atomic_load(&soon.fires) + atomic_load(&soon.cancels), 1);
    }
}

/* Who may ------------------------------------------------------------------------------------ */

typedef struct stranger {
    weir_group *group;
    int code;
    int64_t next_ns;
} stranger;

static void *step_from_elsewhere(void *arg)
{
    stranger *self = arg;
    self->code = weir_group_step(self->group);
    self->next_ns = weir_group_next_ns(self->group);
    return NULL;
}

static void other_threads_may_not_step(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        stranger s = { .group = new_manual(of, 1, NULL) };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, step_from_elsewhere, &s), 0);
        pthread_join(thread, NULL);
        assert_int_equal(s.code, -EPERM);
        assert_true(s.next_ns == INT64_MIN);
        end_group(s.group);
    }
}

static void groups_with_threads_cannot_be_stepped(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    assert_int_equal(weir_group_step(group), -EPERM);
    assert_true(weir_group_next_ns(group) == INT64_MIN);
    assert_int_equal(weir_group_step(NULL), -EPERM);
    assert_true(weir_group_next_ns(NULL) == INT64_MIN);
    end_group(group);
}

typedef struct nested {
    weir_task task;
    weir_group *group;
    probe own, others;
    int steps, own_runs, others_runs;
} nested;

static int step_inside(weir_task *task)
{
    nested *self = WEIR_CONTAINER(task, nested, task);
    weir_executor_post(weir_group_at(self->group, 0), &self->own.task);
    weir_executor_post(weir_group_at(self->group, 1), &self->others.task);
    self->steps = weir_group_step(self->group);
    self->own_runs = atomic_load(&self->own.runs);
    self->others_runs = atomic_load(&self->others.runs);
    return 0;
}

/* Its own executor cannot go on before the callback returns. */
static void step_inside_a_callback_leaves_its_own_executor_alone(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 2, clock);
        nested n = {
            .task = { .run = step_inside }, .group = group, .own = PROBE, .others = PROBE
        };
        assert_int_equal(weir_executor_post(weir_group_at(group, 0), &n.task), 0);
        weir_group_step(group);
        assert_int_equal(n.own_runs, 0);
        assert_int_equal(n.others_runs, 1);
        assert_int_equal(n.steps, 1);
        end_group(group);
        assert_int_equal(atomic_load(&n.own.runs), 1);
        assert_int_equal(atomic_load(&n.others.runs), 1);
    }
}

static int step_other_group(void *arg)
{
    task_with_listener *self = arg;
    probe p = PROBE;
    weir_group *group = new_manual(PLAIN, 1, NULL);
    task_with_listener_begin(self);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), 0);
    assert_int_equal(weir_group_step(group), 1);
    task_with_listener_end(self);
    end_group(group);
    return 0;
}

static void step_inside_a_task_runs_no_listeners_of_its_executor(void **state)
{
    (void)state;
    task_with_listener self;
    weir_group *group = new_group_of(1);
    assert_int_equal(call_on(weir_group_at(group, 0), step_other_group, &self), 0);
    settle(weir_group_at(group, 0));
    assert_listener_ran_after_task(&self);
    end_group(group);
}

static void *free_elsewhere(void *arg)
{
    weir_group_free(arg);
    return NULL;
}

static void free_on_another_thread(void *arg)
{
    (void)arg;
    pthread_t thread;
    weir_group *group = new_manual(PLAIN, 1, NULL);
    pthread_create(&thread, NULL, free_elsewhere, group);
    pthread_join(thread, NULL);
}

static void free_on_another_thread_is_misuse(void **state)
{
    (void)state;
    if (HARNESS_MISUSE_ABORTS) {
        harness_expect_abort(free_on_another_thread, NULL, "weir_group_free");
        return;
    }
    weir_group *group = new_manual(PLAIN, 1, NULL);
    pthread_t thread;
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(pthread_create(&thread, NULL, free_elsewhere, group), 0);
    pthread_join(thread, NULL);
    assert_true(harness_log_has("weir_group_free"));
    assert_int_equal(harness_log_end(), 1);
    end_group(group);
}

/* Waiting ------------------------------------------------------------------------------------ */

static int return_it(void *arg)
{
    return *(int *)arg;
}

static void await_steps(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 2, clock);
        int codes[] = { 0, -EIO };
        assert_int_equal(call_on(weir_group_at(group, 0), return_it, &codes[0]), 0);
        assert_int_equal(call_on(weir_group_at(group, 1), return_it, &codes[1]), -EIO);
        end_group(group);
    }
}

static void await_moves_a_virtual_clock_on(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 2, start_clock(&clock, true));
        int64_t start_ns = time_of(&clock);
        int codes[] = { 0, -EIO };
        weir_future *late = NULL, *soon = NULL;
        assert_int_equal(
            weir_executor_schedule(weir_group_at(group, 0), return_it, &codes[0], HOUR_NS, &late),
            0);
        assert_int_equal(weir_executor_schedule(weir_group_at(group, 1), return_it, &codes[1],
                                                HOUR_NS / 2, &soon),
                         0);
        assert_int_equal(weir_future_await(late), 0);
        assert_int_equal(time_of(&clock), start_ns + HOUR_NS);
        assert_int_equal(weir_future_code(soon), -EIO);
        weir_future_release(late);
        weir_future_release(soon);
        end_group(group);
    }
}

static void await_waits_for_real_timers(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_group *group = new_manual(of, 1, NULL);
        int code = -EIO;
        weir_future *future = NULL;
        int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
        assert_int_equal(
            weir_executor_schedule(weir_group_at(group, 0), return_it, &code, WEIR_MS(30), &future),
            0);
        assert_int_equal(weir_future_await(future), -EIO);
        assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns >= WEIR_MS(30));
        weir_future_release(future);
        end_group(group);
    }
}

static void timeout_of_a_wait_is_in_virtual_time(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 1, start_clock(&clock, true));
        weir_promise *promise = weir_promise_new(NULL);
        probe_timer t = PROBE_TIMER;
        int64_t start_ns = time_of(&clock);
        assert_int_equal(weir_timer_schedule(&t.timer, weir_group_at(group, 0), HOUR_NS), 0);
        weir_future *future = weir_promise_future(promise);
        assert_int_equal(weir_future_wait(future, HOUR_NS - 1), -ETIMEDOUT);
        assert_int_equal(time_of(&clock), start_ns + HOUR_NS - 1);
        assert_int_equal(atomic_load(&t.fires), 0);
        assert_int_equal(weir_future_wait(future, WEIR_SECONDS(5)), -ETIMEDOUT);
        assert_int_equal(time_of(&clock), start_ns + HOUR_NS - 1 + WEIR_SECONDS(5));
        assert_int_equal(atomic_load(&t.fires), 1);
        assert_int_equal(weir_future_wait(future, 0), -ETIMEDOUT);
        assert_int_equal(time_of(&clock), start_ns + HOUR_NS - 1 + WEIR_SECONDS(5));
        weir_promise_set(promise, 0);
        assert_int_equal(weir_future_wait(future, 0), 0);
        weir_promise_release(promise);
        end_group(group);
    }
}

static void timeout_of_a_wait_is_in_real_time(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_group *group = new_manual(of, 1, NULL);
        weir_promise *promise = weir_promise_new(NULL);
        int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
        assert_int_equal(weir_future_wait(weir_promise_future(promise), WEIR_MS(30)), -ETIMEDOUT);
        assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns >= WEIR_MS(30));
        weir_promise_set(promise, 0);
        weir_promise_release(promise);
        end_group(group);
    }
}

/* Posts itself again until a time is over. */
typedef struct restless {
    weir_task task;
    weir_executor *executor;
    int64_t until_ns;
    int runs;
} restless;

static int restless_run(weir_task *task)
{
    restless *self = WEIR_CONTAINER(task, restless, task);
    self->runs++;
    if (weir_clock_now_ns(weir_clock_monotonic()) < self->until_ns)
        weir_executor_post(self->executor, task);
    return 0;
}

static void timeout_comes_though_there_is_always_something_to_do(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_group *group = new_manual(of, 1, NULL);
        weir_promise *promise = weir_promise_new(NULL);
        int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
        restless r = { .task = { .run = restless_run },
                       .executor = weir_group_at(group, 0),
                       .until_ns = start_ns + WEIR_SECONDS(3) };
        assert_int_equal(weir_executor_post(r.executor, &r.task), 0);
        assert_int_equal(weir_future_wait(weir_promise_future(promise), WEIR_MS(20)), -ETIMEDOUT);
        int64_t taken_ns = weir_clock_now_ns(weir_clock_monotonic()) - start_ns;
        weir_promise_set(promise, 0);
        weir_promise_release(promise);
        end_group(group);
        assert_true(r.runs > 1);
        assert_true(taken_ns < WEIR_SECONDS(2));
    }
}

static void waiting_for_what_never_comes_is_refused(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 2, start_clock(&clock, true));
        weir_promise *promise = weir_promise_new(NULL);
        int64_t start_ns = time_of(&clock);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), -EDEADLK);
        assert_int_equal(time_of(&clock), start_ns);
        /* What there is to do is done before. */
        probe p = PROBE;
        probe_timer t = PROBE_TIMER;
        assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), 0);
        assert_int_equal(weir_timer_schedule(&t.timer, weir_group_at(group, 1), HOUR_NS), 0);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), -EDEADLK);
        assert_int_equal(atomic_load(&p.runs), 1);
        assert_int_equal(atomic_load(&t.fires), 1);
        weir_promise_set(promise, -EIO);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), -EIO);
        weir_promise_release(promise);
        end_group(group);
    }
}

typedef struct inner_wait {
    weir_executor *sibling;
    int code;
} inner_wait;

static int wait_inside(void *arg)
{
    inner_wait *self = arg;
    int code = -EIO;
    weir_future *future = NULL;
    if (weir_executor_submit(self->sibling, return_it, &code, &future) < 0)
        return -1;
    self->code = weir_future_await(future);
    weir_future_cancel(future);
    weir_future_release(future);
    return 0;
}

/* An executor's callback may wait for another executor, a loop's for nothing. */
static void callback_may_wait_unless_it_is_a_loops(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 2, clock);
        inner_wait w = { .sibling = weir_group_at(group, 1) };
        assert_int_equal(call_on(weir_group_at(group, 0), wait_inside, &w), 0);
        assert_int_equal(w.code, of == LOOPS ? -EDEADLK : -EIO);
        w = (inner_wait){ .sibling = weir_group_at(group, 0) };
        assert_int_equal(call_on(weir_group_at(group, 0), wait_inside, &w), 0);
        assert_int_equal(w.code, -EDEADLK); /* of itself nobody ever waits */
        end_group(group);
    }
}

/* From other threads -------------------------------------------------------------------------- */

typedef struct helper {
    int waiter_tid;
    weir_executor *executor;
    weir_promise *promise;
    probe probe;
    atomic_bool is_over;
} helper;

static int complete_promise(weir_task *task)
{
    helper *self = WEIR_CONTAINER(WEIR_CONTAINER(task, probe, task), helper, probe);
    weir_promise_set(self->promise, -EIO);
    return probe_run(task);
}

static void *post_when_it_sleeps(void *arg)
{
    helper *self = arg;
    WAIT_FOR(is_asleep(self->waiter_tid));
    weir_executor_post(self->executor, &self->probe.task);
    return NULL;
}

static void *complete_when_it_sleeps(void *arg)
{
    helper *self = arg;
    WAIT_FOR(is_asleep(self->waiter_tid));
    weir_promise_set(self->promise, -EIO);
    return NULL;
}

static void woken_by(void *(*body)(void *arg), kind of, int count)
{
    weir_group *group = new_manual(of, count, NULL);
    helper h = { .waiter_tid = (int)gettid(),
                 .executor = weir_group_at(group, (size_t)count - 1),
                 .promise = weir_promise_new(NULL),
                 .probe = PROBE };
    h.probe.task.run = complete_promise;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, &h), 0);
    assert_int_equal(weir_future_await(weir_promise_future(h.promise)), -EIO);
    pthread_join(thread, NULL);
    weir_promise_release(h.promise);
    end_group(group);
}

static void post_from_another_thread_ends_a_wait(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        woken_by(post_when_it_sleeps, PLAIN, 2);
        woken_by(post_when_it_sleeps, LOOPS, 2);
    }
}

static void completion_by_another_thread_ends_a_wait(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        woken_by(complete_when_it_sleeps, PLAIN, 2);
        woken_by(complete_when_it_sleeps, LOOPS, 2);
    }
}

/* More than fit into one look at them all. */
static void post_to_the_last_of_many_ends_a_wait(void **state)
{
    (void)state;
    woken_by(post_when_it_sleeps, PLAIN, 70);
    woken_by(post_when_it_sleeps, LOOPS, 70);
    woken_by(complete_when_it_sleeps, PLAIN, 70);
}

typedef struct poster {
    weir_group *group;
    atomic_int *left;
    weir_promise *promise;
    int failed;
} poster;

typedef struct counted {
    weir_task task;
    poster *poster;
} counted;

static int count_down(weir_task *task)
{
    counted *self = WEIR_CONTAINER(task, counted, task);
    poster *by = self->poster;
    free(self);
    if (atomic_fetch_sub(by->left, 1) == 1)
        weir_promise_set(by->promise, 0);
    return 0;
}

enum { POSTERS = 4, POSTS = 3000 };

static void *post_many(void *arg)
{
    poster *self = arg;
    for (int i = 0; i < POSTS; i++) {
        counted *task = malloc(sizeof *task);
        *task = (counted){ { .run = count_down }, self };
        weir_executor *executor = weir_group_next(self->group);
        self->failed += weir_executor_post(executor, &task->task) != 0;
        if (i % 100 == 0)
            sched_yield();
    }
    return NULL;
}

static void no_post_is_missed_while_it_waits(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_group *group = new_manual(of, 3, NULL);
        atomic_int left = POSTERS * POSTS;
        weir_promise *promise = weir_promise_new(NULL);
        poster posters[POSTERS];
        pthread_t threads[POSTERS];
        for (int i = 0; i < POSTERS; i++) {
            posters[i] = (poster){ .group = group, .left = &left, .promise = promise };
            assert_int_equal(pthread_create(&threads[i], NULL, post_many, &posters[i]), 0);
        }
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        for (int i = 0; i < POSTERS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(posters[i].failed, 0);
        }
        assert_int_equal(atomic_load(&left), 0);
        weir_promise_release(promise);
        end_group(group);
    }
}

/* Several on one thread ------------------------------------------------------------------------ */

typedef struct ball {
    weir_task task;
    weir_executor *sides[2];
    int hits;
    weir_promise *promise;
} ball;

static int hit(weir_task *task)
{
    ball *self = WEIR_CONTAINER(task, ball, task);
    if (++self->hits == 100)
        weir_promise_set(self->promise, 0);
    else
        weir_executor_post(self->sides[self->hits % 2], task);
    return 0;
}

static void two_groups_of_a_thread_talk_to_each_other(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *left = new_manual(of, 1, clock), *right = new_manual(PLAIN, 2, clock);
        ball b = { .task = { .run = hit },
                   .sides = { weir_group_at(left, 0), weir_group_at(right, 1) },
                   .promise = weir_promise_new(NULL) };
        assert_int_equal(weir_executor_post(b.sides[0], &b.task), 0);
        assert_int_equal(weir_future_await(weir_promise_future(b.promise)), 0);
        assert_int_equal(b.hits, 100);
        /* A timer of either counts. */
        if (clock != NULL) {
            int code = -EIO;
            weir_future *future = NULL;
            assert_int_equal(weir_executor_schedule(b.sides[1], return_it, &code, HOUR_NS, &future),
                             0);
            assert_int_equal(weir_future_await(future), -EIO);
            weir_future_release(future);
        }
        weir_promise_release(b.promise);
        end_group(left);
        assert_int_equal(weir_group_step(right), 0);
        end_group(right);
    }
}

static int free_group(void *arg)
{
    weir_group_free(arg);
    return 0;
}

typedef struct freer {
    weir_task task;
    weir_group *victim;
    atomic_bool is_freed;
} freer;

static int free_victim(weir_task *task)
{
    freer *self = WEIR_CONTAINER(task, freer, task);
    weir_group_free(self->victim);
    atomic_store(&self->is_freed, true);
    return 0;
}

typedef struct rescuer {
    helper h;
    freer f;
    atomic_bool was_needed;
} rescuer;

static void *complete_after_the_free(void *arg)
{
    rescuer *self = arg;
    WAIT_FOR(atomic_load(&self->f.is_freed) && is_asleep(self->h.waiter_tid));
    weir_promise_set(self->h.promise, -EIO);
    int64_t end_ns = weir_clock_now_ns(weir_clock_monotonic()) + WEIR_SECONDS(5);
    while (!atomic_load(&self->h.is_over) && weir_clock_now_ns(weir_clock_monotonic()) < end_ns)
        sched_yield();
    if (!atomic_load(&self->h.is_over)) {
        atomic_store(&self->was_needed, true);
        weir_executor_post(self->h.executor, &self->h.probe.task);
    }
    return NULL;
}

/* A wait of the thread is not over because the group is gone that was there first. */
static void group_may_be_freed_while_its_thread_waits(void **state)
{
    (void)state;
    weir_group *victim = new_manual(PLAIN, 1, NULL), *group = new_manual(PLAIN, 1, NULL);
    assert_int_equal(weir_group_shutdown(victim, 0, WEIR_SECONDS(1)), 0);
    rescuer r = { .h = { .waiter_tid = (int)gettid(),
                         .executor = weir_group_at(group, 0),
                         .promise = weir_promise_new(NULL),
                         .probe = PROBE },
                  .f = { .task = { .run = free_victim }, .victim = victim } };
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &r.f.task), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, complete_after_the_free, &r), 0);
    assert_int_equal(weir_future_await(weir_promise_future(r.h.promise)), -EIO);
    atomic_store(&r.h.is_over, true);
    pthread_join(thread, NULL);
    weir_promise_release(r.h.promise);
    end_group(group);
    assert_false(atomic_load(&r.was_needed));
}

static void group_is_freed_by_a_callback_of_another(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_group *first = new_manual(PLAIN, 1, start_clock(&clock, true));
    weir_group *second = new_manual(PLAIN, 1, &clock);
    assert_int_equal(call_on(weir_group_at(first, 0), free_group, second), 0);
    end_group(first);
}

/* The background ------------------------------------------------------------------------------- */

static void background_is_stepped_with_the_group(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        size_t threads = count_threads();
        weir_group *group = new_manual(of, 1, clock), *other = new_manual(of, 1, clock);
        weir_executor *background = weir_group_background(group);
        assert_ptr_not_equal(background, weir_group_background(other));
        assert_null(weir_executor_loop(background));
        here h = { .task = { .run = look_here } };
        assert_int_equal(weir_executor_post(background, &h.task), 0);
        assert_int_equal(weir_group_next_ns(group), 0);
        assert_int_equal(weir_group_step(other), 0);
        assert_int_equal(weir_group_step(group), 1);
        assert_int_equal(h.runs, 1);
        assert_int_equal(h.tid, gettid());
        assert_ptr_equal(h.current, background);
        int code = -EIO;
        assert_int_equal(call_on(background, return_it, &code), -EIO);
        if (clock != NULL) {
            weir_future *future = NULL;
            assert_int_equal(weir_executor_schedule(background, return_it, &code, HOUR_NS, &future),
                             0);
            assert_int_equal(weir_future_await(future), -EIO);
            weir_future_release(future);
        }
        assert_int_equal(count_threads(), threads);
        end_group(group);
        end_group(other);
    }
}

/* What is left in it runs, or is cancelled, when the group goes. */
static void background_ends_with_the_group(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 1, start_clock(&clock, true));
        probe p = PROBE;
        probe_timer t = PROBE_TIMER;
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        assert_int_equal(weir_executor_post(weir_group_background(group), &p.task), 0);
        assert_int_equal(
            weir_timer_schedule(&t.timer, weir_group_background(group), WEIR_SECONDS(1)), 0);
        weir_group_free(group);
        assert_int_equal(atomic_load(&p.runs), 1);
        assert_int_equal(atomic_load(&t.cancels), 1);
    }
}

/* Ending --------------------------------------------------------------------------------------- */

static void free_runs_tasks_and_cancels_timers_without_a_quiet_period(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 2, start_clock(&clock, true));
        int64_t start_ns = time_of(&clock);
        probe p[20];
        probe_timer t = PROBE_TIMER;
        assert_int_equal(weir_timer_schedule(&t.timer, weir_group_at(group, 0), HOUR_NS), 0);
        for (int i = 0; i < 20; i++) {
            p[i] = (probe)PROBE;
            assert_int_equal(weir_executor_post(weir_group_next(group), &p[i].task), 0);
        }
        weir_group_free(group);
        assert_int_equal(time_of(&clock), start_ns); /* there is no quiet period */
        for (int i = 0; i < 20; i++)
            assert_int_equal(atomic_load(&p[i].runs), 1);
        assert_int_equal(atomic_load(&t.cancels), 1);
        assert_int_equal(atomic_load(&t.fires), 0);
    }
}

static weir_executor_state state_of(weir_group *group)
{
    return weir_executor_get_state(weir_group_at(group, 0));
}

static void step_all(weir_group *group)
{
    while (weir_group_step(group) > 0) {
    }
}

static void s034_what_is_queued_runs_before_the_end_of_a_manual_one(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static probe probes[COUNT];
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 1, clock);
        for (int i = 0; i < COUNT; i++) {
            probes[i] = (probe)PROBE;
            assert_int_equal(weir_executor_post(weir_group_at(group, 0), &probes[i].task), 0);
        }
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
        assert_int_equal(weir_group_next_ns(group), 0);
        assert_int_equal(atomic_load(&probes[0].runs), 0);
        step_all(group);
        assert_int_equal(state_of(group), WEIR_EXECUTOR_TERMINATED);
        assert_true(weir_future_is_done(weir_group_terminated(group)));
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(atomic_load(&probes[i].runs), 1);
        weir_group_free(group);
    }
}

static void s039_manual_one_ends_when_it_was_quiet(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 1, start_clock(&clock, true));
        weir_executor *executor = weir_group_at(group, 0);
        int64_t start_ns = time_of(&clock);
        assert_int_equal(weir_group_shutdown(group, WEIR_MS(300), WEIR_SECONDS(100)), 0);
        step_all(group);
        for (int i = 0; i < 10; i++) {
            probe p = PROBE;
            weir_virtual_clock_advance(&clock, WEIR_MS(100));
            assert_int_equal(weir_executor_post(executor, &p.task), 0);
            step_all(group);
            assert_int_equal(atomic_load(&p.runs), 1);
            assert_int_equal(state_of(group), WEIR_EXECUTOR_SHUTTING_DOWN);
        }
        assert_int_equal(weir_group_next_ns(group), WEIR_MS(300));
        weir_virtual_clock_advance(&clock, WEIR_MS(300) - 1);
        step_all(group);
        assert_int_equal(state_of(group), WEIR_EXECUTOR_SHUTTING_DOWN);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        assert_int_equal(time_of(&clock) - start_ns, WEIR_MS(1300));
        weir_group_free(group);
    }
}

static int post_again(weir_task *task)
{
    here *self = WEIR_CONTAINER(task, here, task);
    self->runs++;
    self->tid = weir_executor_post(self->executor, task);
    return 0;
}

static void s040_manual_one_ends_after_the_timeout(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 1, start_clock(&clock, true));
        here endless = { .task = { .run = post_again }, .executor = weir_group_at(group, 0) };
        assert_int_equal(weir_executor_post(endless.executor, &endless.task), 0);
        assert_int_equal(weir_group_shutdown(group, WEIR_MS(300), WEIR_SECONDS(1)), 0);
        weir_group_step(group);
        weir_virtual_clock_advance(&clock, WEIR_MS(1000) - 1);
        for (int i = 0; i < 100; i++)
            assert_int_equal(weir_group_step(group), 1);
        assert_int_equal(state_of(group), WEIR_EXECUTOR_SHUTTING_DOWN);
        weir_virtual_clock_advance(&clock, 1);
        for (int i = 0; i < 10; i++)
            weir_group_step(group);
        assert_int_equal(state_of(group), WEIR_EXECUTOR_TERMINATED);
        assert_int_equal(endless.tid, WEIR_ESHUTDOWN);
        weir_group_free(group);
    }
}

static void s044_timers_of_a_manual_one_are_cancelled(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 1, clock);
        probe_timer timers[3];
        for (int i = 0; i < 3; i++) {
            timers[i] = PROBE_TIMER;
            assert_int_equal(
                weir_timer_schedule(&timers[i].timer, weir_group_at(group, 0), HOUR_NS + i), 0);
        }
        step_all(group);
        assert_int_equal(weir_group_shutdown(group, WEIR_MS(100), WEIR_SECONDS(10)), 0);
        weir_group_step(group);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(atomic_load(&timers[i].cancels), 1);
            assert_int_equal(atomic_load(&timers[i].fires), 0);
        }
        assert_int_equal(state_of(group), WEIR_EXECUTOR_SHUTTING_DOWN);
        weir_group_free(group);
    }
}

static void after_the_end_nothing_is_taken_or_stepped(void **state)
{
    (void)state;
    FOR_EACH_KIND_AND_CLOCK(of, clock)
    {
        weir_group *group = new_manual(of, 1, clock);
        weir_executor *executor = weir_group_at(group, 0);
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        probe p = PROBE;
        probe_timer t = PROBE_TIMER;
        assert_int_equal(weir_executor_post(executor, &p.task), WEIR_ESHUTDOWN);
        assert_int_equal(weir_executor_post_tail(executor, &p.task), WEIR_ESHUTDOWN);
        assert_int_equal(weir_timer_schedule(&t.timer, executor, 0), WEIR_ESHUTDOWN);
        assert_int_equal(weir_group_step(group), 0);
        assert_true(weir_group_next_ns(group) < 0);
        weir_executor_wake(executor);
        weir_group_free(group);
        assert_int_equal(atomic_load(&p.runs) + atomic_load(&p.drops), 0);
        assert_int_equal(atomic_load(&t.fires) + atomic_load(&t.cancels), 0);
    }
}

/* A shutdown hook that takes its time. */
typedef struct slow_hook {
    weir_hook hook;
    weir_virtual_clock *clock;
    weir_executor *executor;
} slow_hook;

static void take_50_ms(weir_hook *hook)
{
    weir_virtual_clock_advance(WEIR_CONTAINER(hook, slow_hook, hook)->clock, WEIR_MS(50));
}

static int add_slow_hook(void *arg)
{
    slow_hook *self = arg;
    return weir_executor_add_shutdown_hook(self->executor, &self->hook);
}

static void quiet_period_begins_after_the_last_shutdown_hook(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 1, start_clock(&clock, true));
        slow_hook slow = { .hook.run = take_50_ms, .clock = &clock };
        slow.executor = weir_group_at(group, 0);
        assert_int_equal(call_on(slow.executor, add_slow_hook, &slow), 0);
        int64_t start_ns = time_of(&clock);
        assert_int_equal(weir_group_shutdown(group, WEIR_MS(100), WEIR_SECONDS(10)), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        assert_int_equal(time_of(&clock) - start_ns, WEIR_MS(150));
        weir_group_free(group);
    }
}

/* A hook that posts in the pass which finds that the quiet period is over. */
typedef struct late_hook {
    weir_hook hook;
    weir_virtual_clock *clock;
    weir_executor *executor;
    int64_t from_ns;
    probe probe;
    int posts, code;
    atomic_bool is_over;
    atomic_bool was_needed;
} late_hook;

static void post_at_the_last_moment(weir_hook *hook)
{
    late_hook *self = WEIR_CONTAINER(hook, late_hook, hook);
    if (self->posts == 0 && time_of(self->clock) >= self->from_ns) {
        self->posts++;
        self->code = weir_executor_post(self->executor, &self->probe.task);
    }
}

static int add_late_hook(void *arg)
{
    late_hook *self = arg;
    return weir_executor_add_pass_hook(self->executor, &self->hook);
}

static int remove_late_hook(void *arg)
{
    late_hook *self = arg;
    return weir_executor_remove_hook(self->executor, &self->hook);
}

static void *move_the_clock_after_all(void *arg)
{
    late_hook *self = arg;
    int64_t end_ns = weir_clock_now_ns(weir_clock_monotonic()) + WEIR_SECONDS(3);
    while (!atomic_load(&self->is_over) && weir_clock_now_ns(weir_clock_monotonic()) < end_ns)
        sched_yield();
    if (!atomic_load(&self->is_over)) {
        atomic_store(&self->was_needed, true);
        weir_virtual_clock_advance(self->clock, WEIR_SECONDS(100));
    }
    return NULL;
}

/* The step that ends an executor does not wait, whatever slips in at the last moment. */
static void task_at_the_last_moment_does_not_block_a_step(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_virtual_clock clock;
        weir_group *group = new_manual(of, 1, start_clock(&clock, true));
        late_hook l = { .hook = { .run = post_at_the_last_moment },
                        .clock = &clock,
                        .executor = weir_group_at(group, 0),
                        .from_ns = time_of(&clock) + WEIR_MS(300),
                        .probe = PROBE,
                        .code = 1 };
        assert_int_equal(call_on(l.executor, add_late_hook, &l), 0);
        assert_int_equal(weir_group_shutdown(group, WEIR_MS(300), WEIR_SECONDS(10)), 0);
        step_all(group);
        weir_virtual_clock_advance(&clock, WEIR_MS(300));
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, move_the_clock_after_all, &l), 0);
        weir_group_step(group);
        atomic_store(&l.is_over, true);
        pthread_join(thread, NULL);
        if (state_of(group) < WEIR_EXECUTOR_TERMINATED)
            call_on(l.executor, remove_late_hook, &l);
        weir_group_free(group);
        assert_int_equal(l.code, 0);
        assert_int_equal(atomic_load(&l.probe.runs), 1);
        assert_false(atomic_load(&l.was_needed));
    }
}

/* Faults --------------------------------------------------------------------------------------- */

static void group_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    for (kind of = PLAIN; of < KINDS; of++) {
        weir_group_config config = { .count = 3, .is_manual = true };
        unsigned n = 0, seen;
        do {
            weir_group *group = NULL;
            weir_error error = { 0 };
            size_t fds = count_entries("/proc/self/fd");
            weir_allocator_stats before, after;
            weir_allocator_get_stats(&before);
            harness_fail_nth(NULL, ++n, -ENOMEM);
            int code = of == LOOPS ? weir_group_new(&group, &config, &error)
                                   : weir_group_new_executors(&group, &config, &error);
            seen = harness_fail_end();
            if (seen < n) {
                assert_int_equal(code, 0);
                end_group(group);
                break;
            }
            assert_int_equal(code, -ENOMEM);
            assert_null(group);
            assert_int_equal(error.code, -ENOMEM);
            weir_allocator_get_stats(&after);
            assert_int_equal(after.live, before.live);
            assert_int_equal(count_entries("/proc/self/fd"), fds);
            /* The thread is nobody's driver any more. */
            weir_promise *promise = weir_promise_new(NULL);
            assert_int_equal(weir_future_wait(weir_promise_future(promise), 1), -ETIMEDOUT);
            weir_promise_set(promise, 0);
            weir_promise_release(promise);
        } while (true);
        assert_true(n > (of == LOOPS ? 12 : 6));
    }
}

static int succeed(void *arg)
{
    (void)arg;
    return 0;
}

static void each_group_may_have_a_clock_of_its_own(void **state)
{
    (void)state;
    weir_virtual_clock first, second;
    weir_virtual_clock_init(&first, 0);
    weir_virtual_clock_init(&second, 0);
    weir_group *a =
        new_group(&(weir_group_config){ .count = 1, .is_manual = true, .clock = &first.clock });
    weir_group *b =
        new_group(&(weir_group_config){ .count = 1, .is_manual = true, .clock = &second.clock });
    weir_future *future = NULL;
    assert_int_equal(
        weir_executor_schedule(weir_group_at(b, 0), succeed, NULL, WEIR_SECONDS(1), &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
    /* Time passes for everybody. */
    assert_int_equal(weir_clock_now_ns(&first.clock), WEIR_SECONDS(1));
    assert_int_equal(weir_clock_now_ns(&second.clock), WEIR_SECONDS(1));
    weir_promise *never = weir_promise_new(NULL);
    assert_int_equal(weir_future_wait(weir_promise_future(never), WEIR_SECONDS(1)), -ETIMEDOUT);
    weir_promise_set(never, 0);
    weir_promise_release(never);
    weir_group_free(a);
    weir_group_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(step_runs_what_was_posted),
        weir_case(tail_and_lazy_tasks_are_run_by_steps),
        weir_case(next_ns_tells_how_long_to_wait),
        weir_case(next_ns_tells_of_timers),
        weir_case(other_threads_may_not_step),
        weir_case(groups_with_threads_cannot_be_stepped),
        weir_case(step_inside_a_callback_leaves_its_own_executor_alone),
        weir_case(step_inside_a_task_runs_no_listeners_of_its_executor),
        weir_case(free_on_another_thread_is_misuse),
        weir_case(await_steps),
        weir_case(await_moves_a_virtual_clock_on),
        weir_case(await_waits_for_real_timers),
        weir_case(timeout_of_a_wait_is_in_virtual_time),
        weir_case(timeout_of_a_wait_is_in_real_time),
        weir_case(timeout_comes_though_there_is_always_something_to_do),
        weir_case(waiting_for_what_never_comes_is_refused),
        weir_case(callback_may_wait_unless_it_is_a_loops),
        weir_case(post_from_another_thread_ends_a_wait),
        weir_case(completion_by_another_thread_ends_a_wait),
        weir_case(post_to_the_last_of_many_ends_a_wait),
        weir_case(no_post_is_missed_while_it_waits),
        weir_case(two_groups_of_a_thread_talk_to_each_other),
        weir_case(group_may_be_freed_while_its_thread_waits),
        weir_case(group_is_freed_by_a_callback_of_another),
        weir_case(background_is_stepped_with_the_group),
        weir_case(background_ends_with_the_group),
        weir_case(free_runs_tasks_and_cancels_timers_without_a_quiet_period),
        weir_case(s034_what_is_queued_runs_before_the_end_of_a_manual_one),
        weir_case(s039_manual_one_ends_when_it_was_quiet),
        weir_case(s040_manual_one_ends_after_the_timeout),
        weir_case(s044_timers_of_a_manual_one_are_cancelled),
        weir_case(after_the_end_nothing_is_taken_or_stepped),
        weir_case(quiet_period_begins_after_the_last_shutdown_hook),
        weir_case(task_at_the_last_moment_does_not_block_a_step),
        weir_case(group_that_cannot_be_made_leaves_nothing),
        weir_case(each_group_may_have_a_clock_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
