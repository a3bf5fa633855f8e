/* SPDX-License-Identifier: MIT */
/* Executors: how they start, run tasks, are woken, and end with nothing lost. */
#include "executors.h"

/* Starting ----------------------------------------------------------------------------------- */

static void s025_no_thread_before_the_first_task(void **state)
{
    (void)state;
    size_t before = count_threads();
    weir_group *group = new_group_of(8);
    assert_int_equal(count_threads(), before);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_NOT_STARTED);
    settle(weir_group_at(group, 0));
    assert_int_equal(count_threads(), before + 1);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_STARTED);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 1)), WEIR_EXECUTOR_NOT_STARTED);
    end_group(group);
}

typedef struct poster {
    weir_executor *executor;
    pthread_barrier_t *barrier;
    probe probe;
    int code;
} poster;

static void *post_at_once(void *arg)
{
    poster *self = arg;
    pthread_barrier_wait(self->barrier);
    self->code = weir_executor_post(self->executor, &self->probe.task);
    return NULL;
}

static void s026_sixty_four_threads_start_one_thread(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    static poster posters[COUNT];
    starter hook = { .code = 0 };
    weir_group *group =
        new_group(&(weir_group_config){ .count = 1, .start = starter_start, .start_arg = &hook });
    pthread_t threads[COUNT];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, COUNT);
    for (int i = 0; i < COUNT; i++) {
        posters[i] = (poster){ weir_group_at(group, 0), &barrier, PROBE, 1 };
        assert_int_equal(pthread_create(&threads[i], NULL, post_at_once, &posters[i]), 0);
    }
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    end_group(group);
    starter_join(&hook);
    assert_int_equal(atomic_load(&hook.calls), 1);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(posters[i].code, 0);
        assert_int_equal(atomic_load(&posters[i].probe.runs), 1);
    }
}

static void s027_failed_start_can_be_tried_again(void **state)
{
    (void)state;
    starter hook = { .failures_left = 1, .code = -EAGAIN };
    weir_group *group =
        new_group(&(weir_group_config){ .count = 1, .start = starter_start, .start_arg = &hook });
    weir_executor *executor = weir_group_at(group, 0);
    probe p = PROBE;
    assert_int_equal(weir_executor_post(executor, &p.task), -EAGAIN);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
    assert_int_equal(weir_executor_post(executor, &p.task), 0);
    end_group(group);
    starter_join(&hook);
    assert_int_equal(atomic_load(&hook.calls), 2);
    assert_int_equal(atomic_load(&p.runs), 1);
    assert_int_equal(atomic_load(&p.drops), 0);
}

/* The state ---------------------------------------------------------------------------------- */

typedef struct sampler {
    weir_executor *executor;
    atomic_bool is_going;
    bool has_decreased;
    int last;
} sampler;

static void *sample(void *arg)
{
    sampler *self = arg;
    while (self->last != WEIR_EXECUTOR_TERMINATED) {
        int now = (int)weir_executor_get_state(self->executor);
        self->has_decreased |= now < self->last;
        self->last = now;
        atomic_store(&self->is_going, true);
    }
    return NULL;
}

static void s028_state_never_goes_back(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        weir_group *group = new_group_of(1);
        sampler s = { .executor = weir_group_at(group, 0) };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, sample, &s), 0);
        WAIT_FOR(atomic_load(&s.is_going));
        settle(s.executor);
        assert_int_equal(weir_group_shutdown(group, WEIR_MS(1), WEIR_SECONDS(1)), 0);
        pthread_join(thread, NULL);
        weir_group_free(group);
        assert_false(s.has_decreased);
    }
}

typedef struct where {
    weir_executor *own, *sibling;
    bool is_own, is_sibling;
    weir_executor *current;
} where;

static int look_where(void *arg)
{
    where *self = arg;
    self->is_own = weir_executor_is_current(self->own);
    self->is_sibling = weir_executor_is_current(self->sibling);
    self->current = weir_executor_current();
    return 0;
}

static void s029_is_current_on_its_own_thread_only(void **state)
{
    (void)state;
    weir_group *group = new_group_of(2);
    where w = { .own = weir_group_at(group, 0), .sibling = weir_group_at(group, 1) };
    assert_int_equal(call_on(w.own, look_where, &w), 0);
    assert_true(w.is_own);
    assert_false(w.is_sibling);
    assert_ptr_equal(w.current, w.own);
    look_where(&w);
    assert_false(w.is_own);
    assert_null(w.current);
    assert_false(weir_executor_is_current(NULL));
    end_group(group);
}

typedef struct tid_task {
    weir_task task;
    int tid;
} tid_task;

static int tell_tid(weir_task *task)
{
    WEIR_CONTAINER(task, tid_task, task)->tid = (int)gettid();
    return 0;
}

static void s030_all_tasks_run_on_one_thread(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    tid_task *tasks = calloc(COUNT, sizeof *tasks);
    assert_non_null(tasks);
    weir_group *group = new_group_of(1);
    for (int i = 0; i < COUNT; i++) {
        tasks[i].task.run = tell_tid;
        assert_int_equal(weir_executor_post(weir_group_at(group, 0), &tasks[i].task), 0);
    }
    end_group(group);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(tasks[i].tid, tasks[0].tid);
    assert_int_not_equal(tasks[0].tid, gettid());
    free(tasks);
}

/* Kinds of the test's own --------------------------------------------------------------------- */

/* Waits as the plain one, and tells when it does; can be kept in its wait. */
typedef struct gate_executor {
    weir_executor base;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool is_woken;
    atomic_int waits, wakes, opens, closes, destroys;
    atomic_bool stays; /* in its wait, though woken */
    weir_task *late;   /* posted when everything is over */
} gate_executor;

static int gate_open(weir_executor *executor)
{
    atomic_fetch_add(&((gate_executor *)executor)->opens, 1);
    return 0;
}

static bool gate_wait(weir_executor *executor, int64_t timeout_ns)
{
    (void)timeout_ns; /* what uses it has no timers, and no quiet period */
    gate_executor *self = (gate_executor *)executor;
    pthread_mutex_lock(&self->lock);
    atomic_fetch_add(&self->waits, 1);
    while (!self->is_woken)
        pthread_cond_wait(&self->woken, &self->lock);
    self->is_woken = false;
    pthread_mutex_unlock(&self->lock);
    WAIT_FOR(!atomic_load(&self->stays));
    return true;
}

static int gate_wake(weir_executor *executor)
{
    gate_executor *self = (gate_executor *)executor;
    pthread_mutex_lock(&self->lock);
    atomic_fetch_add(&self->wakes, 1);
    self->is_woken = true;
    pthread_cond_signal(&self->woken);
    pthread_mutex_unlock(&self->lock);
    return 0;
}

static bool gate_turn(weir_executor *executor, int64_t max_wait_ns)
{
    weir__executor_sleep(executor, max_wait_ns);
    weir__executor_read_clock(executor);
    return weir__executor_run_batch(executor);
}

static void return_at_once(weir_executor *executor)
{
    (void)executor;
}

static void gate_close(weir_executor *executor)
{
    gate_executor *self = (gate_executor *)executor;
    if (self->late != NULL)
        weir__executor_post_always(executor, self->late);
    atomic_fetch_add(&self->closes, 1);
}

static void gate_destroy(weir_executor *executor)
{
    gate_executor *self = (gate_executor *)executor;
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->woken);
    atomic_fetch_add(&self->destroys, 1);
}

static const weir_executor_type gate_type = {
    .name = "gate",
    .open = gate_open,
    .turn = gate_turn,
    .wait = gate_wait,
    .wake = gate_wake,
    .close = gate_close,
    .destroy = gate_destroy,
};

static const weir_executor_type hasty_type = {
    .name = "hasty",
    .run = return_at_once,
    .wait = gate_wait,
    .wake = gate_wake,
    .destroy = gate_destroy,
};

static weir_executor *gate_init(gate_executor *self, const weir_executor_type *type)
{
    memset(self, 0, sizeof *self);
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->woken, NULL);
    weir__executor_init(&self->base, type, &(weir_executor_config){ .name = type->name });
    return &self->base;
}

static void gate_end(gate_executor *self)
{
    assert_int_equal(weir_executor_shutdown(&self->base, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(&self->base)), 0);
    weir__executor_join(&self->base);
    weir__executor_release(&self->base);
    assert_int_equal(atomic_load(&self->destroys), 1);
}

/* Waits until it is in its wait for the n-th time; the lock says that it really waits. */
static void gate_wait_for_wait(gate_executor *self, int n)
{
    WAIT_FOR(atomic_load(&self->waits) >= n);
    pthread_mutex_lock(&self->lock);
    pthread_mutex_unlock(&self->lock);
}

static void s032_body_that_returns_ends_the_executor(void **state)
{
    (void)state;
    gate_executor hasty;
    weir_executor *executor = gate_init(&hasty, &hasty_type);
    probe p = PROBE;
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(weir_executor_post(executor, &p.task), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_TERMINATED);
    assert_int_equal(atomic_load(&p.runs), 1);
    gate_end(&hasty);
    harness_log_end();
}

static void s033_body_that_forgets_the_shutdown_is_reported(void **state)
{
    (void)state;
    gate_executor hasty;
    weir_executor *executor = gate_init(&hasty, &hasty_type);
    probe p = PROBE;
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(weir_executor_post(executor, &p.task), 0);
    gate_end(&hasty);
    assert_true(harness_log_has("buggy hasty"));
    assert_int_equal(harness_log_end(), 1);
}

static void body_that_confirms_is_not_reported(void **state)
{
    (void)state;
    gate_executor gate;
    harness_log_begin(WEIR_LOG_WARN);
    settle(gate_init(&gate, &gate_type));
    gate_end(&gate);
    assert_int_equal(harness_log_end(), 0);
}

typedef struct end_listener {
    weir_listener listener;
    gate_executor *gate;
    int closes, state;
    bool is_current;
    atomic_int calls;
} end_listener;

static void see_end(weir_listener *listener, weir_future *future)
{
    (void)future;
    end_listener *self = WEIR_CONTAINER(listener, end_listener, listener);
    self->closes = atomic_load(&self->gate->closes);
    self->state = (int)weir_executor_get_state(&self->gate->base);
    self->is_current = weir_executor_is_current(&self->gate->base);
    atomic_fetch_add(&self->calls, 1);
}

static void s035_what_was_opened_is_closed_before_the_future_completes(void **state)
{
    (void)state;
    gate_executor gate;
    settle(gate_init(&gate, &gate_type));
    end_listener l = { .listener = { .done = see_end }, .gate = &gate };
    weir_future_listen(weir_executor_terminated(&gate.base), &l.listener);
    assert_int_equal(atomic_load(&gate.opens), 1);
    assert_int_equal(atomic_load(&gate.closes), 0);
    gate_end(&gate);
    assert_int_equal(atomic_load(&l.calls), 1);
    assert_int_equal(l.closes, 1);
    assert_int_equal(l.state, WEIR_EXECUTOR_TERMINATED);
    assert_true(l.is_current);
}

static void s036_tasks_left_over_are_reported_and_dropped(void **state)
{
    (void)state;
    gate_executor gate;
    probe late = PROBE;
    settle(gate_init(&gate, &gate_type));
    gate.late = &late.task;
    harness_log_begin(WEIR_LOG_WARN);
    gate_end(&gate);
    assert_true(harness_log_has("terminated with 1 tasks left"));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(atomic_load(&late.runs), 0);
    assert_int_equal(atomic_load(&late.drops), 1);
}

/* Shutting down ------------------------------------------------------------------------------- */

typedef struct hook_entry {
    weir_hook hook;
    int *order;
    atomic_int *next;
    int place, runs;
} hook_entry;

static void hook_run(weir_hook *hook)
{
    hook_entry *self = WEIR_CONTAINER(hook, hook_entry, hook);
    self->place = atomic_fetch_add(self->next, 1);
    self->runs++;
}

typedef struct hooks {
    weir_executor *executor;
    hook_entry entries[3];
    atomic_int next;
    int codes[6];
} hooks;

static int add_hooks(void *arg)
{
    hooks *self = arg;
    for (int i = 0; i < 3; i++) {
        self->entries[i] = (hook_entry){ .hook = { .run = hook_run }, .next = &self->next };
        self->codes[i] = weir_executor_add_shutdown_hook(self->executor, &self->entries[i].hook);
    }
    self->codes[3] = weir_executor_add_shutdown_hook(self->executor, &self->entries[0].hook);
    return 0;
}

static int remove_last_hook(void *arg)
{
    hooks *self = arg;
    self->codes[4] = weir_executor_remove_hook(self->executor, &self->entries[2].hook);
    self->codes[5] = weir_executor_remove_hook(self->executor, &self->entries[2].hook);
    return 0;
}

static void s034_what_is_queued_runs_before_the_end(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static probe probes[COUNT];
    weir_group *group = new_group_of(1);
    hooks h = { .executor = weir_group_at(group, 0) };
    assert_int_equal(call_on(h.executor, add_hooks, &h), 0);
    blocker b;
    block(&b, h.executor);
    for (int i = 0; i < COUNT; i++) {
        probes[i] = (probe)PROBE;
        assert_int_equal(weir_executor_post(h.executor, &probes[i].task), 0);
    }
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    unblock(&b);
    weir_group_free(group);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(atomic_load(&probes[i].runs), 1);
        assert_int_equal(atomic_load(&probes[i].drops), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(h.entries[i].runs, 1);
}

static void shutdown_hooks_run_once_in_order(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    hooks h = { .executor = weir_group_at(group, 0) };
    assert_int_equal(call_on(h.executor, add_hooks, &h), 0);
    end_group(group);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(h.codes[i], 0);
        assert_int_equal(h.entries[i].runs, 1);
        assert_int_equal(h.entries[i].place, i);
        assert_false(h.entries[i].hook.node.next);
    }
    assert_int_equal(h.codes[3], -EBUSY);
}

static void removed_hook_does_not_run(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    hooks h = { .executor = weir_group_at(group, 0) };
    assert_int_equal(call_on(h.executor, add_hooks, &h), 0);
    assert_int_equal(call_on(h.executor, remove_last_hook, &h), 0);
    end_group(group);
    assert_int_equal(h.codes[4], 0);
    assert_int_equal(h.codes[5], WEIR_ENOTFOUND);
    assert_int_equal(h.entries[1].runs, 1);
    assert_int_equal(h.entries[2].runs, 0);
}

static void hooks_are_refused_elsewhere(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    weir_hook hook = { .run = hook_run }, empty = { .run = NULL };
    assert_int_equal(weir_executor_add_shutdown_hook(executor, &hook), -EPERM);
    assert_int_equal(weir_executor_remove_hook(executor, &hook), -EPERM);
    assert_int_equal(weir_executor_add_shutdown_hook(executor, &empty), -EINVAL);
    assert_int_equal(weir_executor_add_shutdown_hook(executor, NULL), -EINVAL);
    assert_int_equal(weir_executor_add_shutdown_hook(NULL, &hook), -EINVAL);
    assert_int_equal(weir_executor_remove_hook(executor, NULL), -EINVAL);
    end_group(group);
}

static void s039_ends_when_it_was_quiet_for_the_quiet_period(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, WEIR_SECONDS(1));
    weir_group *group = new_group(&(weir_group_config){ .count = 1, .clock = &clock.clock });
    weir_executor *executor = weir_group_at(group, 0);
    settle(executor);
    assert_int_equal(weir_executor_shutdown(executor, WEIR_MS(300), WEIR_SECONDS(100)), 0);
    wait_for_passes(executor);
    for (int i = 0; i < 10; i++) {
        weir_virtual_clock_advance(&clock, WEIR_MS(299));
        settle(executor); /* so it is still there, and not quiet */
        wait_for_passes(executor);
    }
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_SHUTTING_DOWN);
    weir_virtual_clock_advance(&clock, WEIR_MS(299));
    wait_for_passes(executor);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_SHUTTING_DOWN);
    weir_virtual_clock_advance(&clock, WEIR_MS(1));
    weir_executor_wake(executor);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    weir_group_free(group);
}

/* A task that posts itself again for as long as it may. */
typedef struct restless {
    weir_task task;
    weir_executor *executor;
    atomic_int runs, code;
} restless;

static int restless_run(weir_task *task)
{
    restless *self = WEIR_CONTAINER(task, restless, task);
    atomic_fetch_add(&self->runs, 1);
    atomic_store(&self->code, weir_executor_post(self->executor, task));
    return 0;
}

static void s040_ends_after_the_timeout_though_tasks_keep_coming(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group = new_group(&(weir_group_config){ .count = 1, .clock = &clock.clock });
    restless r = { .task = { .run = restless_run }, .executor = weir_group_at(group, 0) };
    assert_int_equal(weir_executor_post(r.executor, &r.task), 0);
    WAIT_FOR(atomic_load(&r.runs) > 0);
    assert_int_equal(weir_executor_shutdown(r.executor, WEIR_MS(300), WEIR_SECONDS(1)), 0);
    wait_for_passes(r.executor);
    weir_virtual_clock_advance(&clock, WEIR_MS(999));
    wait_for_passes(r.executor);
    assert_int_equal(weir_executor_get_state(r.executor), WEIR_EXECUTOR_SHUTTING_DOWN);
    weir_virtual_clock_advance(&clock, WEIR_MS(1));
    assert_int_equal(weir_future_await(weir_executor_terminated(r.executor)), 0);
    assert_int_equal(atomic_load(&r.code), WEIR_ESHUTDOWN);
    weir_group_free(group);
}

static void s041_without_quiet_period_it_drains_and_ends(void **state)
{
    (void)state;
    weir_virtual_clock clock; /* stands still, so nothing waits for a time */
    weir_virtual_clock_init(&clock, 0);
    weir_group *group = new_group(&(weir_group_config){ .count = 1, .clock = &clock.clock });
    probe probes[10];
    blocker b;
    block(&b, weir_group_at(group, 0));
    for (int i = 0; i < 10; i++) {
        probes[i] = (probe)PROBE;
        assert_int_equal(weir_executor_post(weir_group_at(group, 0), &probes[i].task), 0);
    }
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    unblock(&b);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(atomic_load(&probes[i].runs), 1);
    weir_group_free(group);
}

static void s042_timeout_below_the_quiet_period_is_refused(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    assert_int_equal(weir_executor_shutdown(executor, 2, 1), -EINVAL);
    assert_int_equal(weir_executor_shutdown(executor, -1, 1), -EINVAL);
    assert_int_equal(weir_executor_shutdown(NULL, 0, 1), -EINVAL);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
    settle(executor);
    end_group(group);
}

static void s043_never_started_one_terminates(void **state)
{
    (void)state;
    weir_group *group = new_group_of(2);
    weir_executor *executor = weir_group_at(group, 0);
    assert_false(weir_future_is_done(weir_executor_terminated(executor)));
    assert_int_equal(weir_executor_shutdown(executor, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_TERMINATED);
    end_group(group);
}

static void never_started_one_terminates_without_a_thread(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    harness_fail_nth("pthread_create", 1, -EAGAIN);
    weir_executor_shutdown(weir_group_at(group, 0), 0, WEIR_SECONDS(1));
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    probe p = PROBE;
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), WEIR_ESHUTDOWN);
    weir_group_free(group);
}

typedef struct shutdown_in_task {
    task_with_listener outer;
    weir_group *other;
} shutdown_in_task;

static int shut_down_other(void *arg)
{
    shutdown_in_task *self = arg;
    task_with_listener_begin(&self->outer);
    harness_fail_nth("pthread_create", 1, -EAGAIN);
    weir_group_shutdown(self->other, 0, WEIR_SECONDS(1));
    harness_fail_end();
    task_with_listener_end(&self->outer);
    return weir_future_is_done(weir_group_terminated(self->other)) ? 0 : -EBUSY;
}

static void termination_without_a_thread_runs_no_listeners_of_the_caller(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    shutdown_in_task self = { .other = new_group_of(1) };
    assert_int_equal(call_on(weir_group_at(group, 0), shut_down_other, &self), 0);
    settle(weir_group_at(group, 0));
    assert_listener_ran_after_task(&self.outer);
    weir_group_free(self.other);
    end_group(group);
}

static void second_shutdown_has_no_effect(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    blocker b;
    block(&b, executor);
    assert_int_equal(weir_executor_shutdown(executor, 0, 0), 0);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_SHUTTING_DOWN);
    assert_int_equal(weir_executor_shutdown(executor, WEIR_SECONDS(100), WEIR_SECONDS(200)), 0);
    probe p = PROBE;
    assert_int_equal(weir_executor_post(executor, &p.task), 0);
    unblock(&b);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    assert_int_equal(atomic_load(&p.runs), 1);
    weir_group_free(group);
}

/* Tasks -------------------------------------------------------------------------------------- */

typedef struct numbered {
    weir_task task;
    struct producer *producer;
    int number;
} numbered;

typedef struct producer {
    weir_executor *executor;
    numbered *tasks;
    int count, failed;
    int next;          /* the executor's: which number must come */
    bool out_of_order; /* the executor's */
} producer;

static int check_number(weir_task *task)
{
    numbered *self = WEIR_CONTAINER(task, numbered, task);
    self->producer->out_of_order |= self->number != self->producer->next;
    self->producer->next = self->number + 1;
    return 0;
}

static void *produce(void *arg)
{
    producer *self = arg;
    for (int i = 0; i < self->count; i++) {
        self->tasks[i] = (numbered){ { .run = check_number }, self, i };
        self->failed += weir_executor_post(self->executor, &self->tasks[i].task) != 0;
    }
    return NULL;
}

/* Eight threads post; all of it arrives, and each one's in its order. */
static void produce_all(producer producers[8], int count)
{
    weir_group *group = new_group_of(1);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        producers[i] = (producer){ .executor = weir_group_at(group, 0), .count = count };
        producers[i].tasks = calloc((size_t)count, sizeof *producers[i].tasks);
        assert_non_null(producers[i].tasks);
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    end_group(group);
    for (int i = 0; i < 8; i++)
        free(producers[i].tasks);
}

static void s047_no_task_of_eight_producers_is_lost(void **state)
{
    (void)state;
    producer producers[8];
    produce_all(producers, 20000);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(producers[i].failed, 0);
        assert_int_equal(producers[i].next, 20000);
    }
}

static void s048_tasks_of_one_thread_run_in_order(void **state)
{
    (void)state;
    producer producers[8];
    produce_all(producers, 5000);
    for (int i = 0; i < 8; i++)
        assert_false(producers[i].out_of_order);
}

static weir_group *new_bounded(int bound, weir_reject_fn reject, void *reject_arg)
{
    return new_group(&(weir_group_config){
        .count = 1, .max_pending_tasks = bound, .reject = reject, .reject_arg = reject_arg });
}

/* Fills the queue of a blocked executor. */
static void fill(weir_executor *executor, probe *probes, int count)
{
    for (int i = 0; i < count; i++) {
        probes[i] = (probe)PROBE;
        assert_int_equal(weir_executor_post(executor, &probes[i].task), 0);
    }
}

static void s049_bound_is_at_least_sixteen(void **state)
{
    (void)state;
    static const int bounds[][2] = { { 1, 16 }, { 16, 16 }, { 40, 40 } };
    for (int i = 0; i < 3; i++) {
        weir_group *group = new_bounded(bounds[i][0], NULL, NULL);
        weir_executor *executor = weir_group_at(group, 0);
        probe probes[40], more = PROBE;
        blocker b;
        block(&b, executor);
        fill(executor, probes, bounds[i][1]);
        assert_int_equal(stats_of(executor).tasks_queued, bounds[i][1]);
        assert_int_equal(weir_executor_post(executor, &more.task), -EAGAIN);
        assert_int_equal(stats_of(executor).tasks_queued, bounds[i][1]);
        assert_int_equal(stats_of(executor).tasks_rejected, 1);
        unblock(&b);
        WAIT_FOR(stats_of(executor).tasks_queued == 0);
        assert_int_equal(weir_executor_post(executor, &more.task), 0);
        end_group(group);
        assert_int_equal(atomic_load(&more.runs), 1);
    }
}

typedef struct rejection {
    int code, calls;
    weir_executor *executor;
    weir_task *task;
} rejection;

static int note_rejection(void *reject_arg, weir_executor *executor, weir_task *task)
{
    rejection *self = reject_arg;
    self->calls++;
    self->executor = executor;
    self->task = task;
    return self->code;
}

static void s050_rejection_can_be_handled(void **state)
{
    (void)state;
    rejection r = { .code = -ENOBUFS };
    weir_group *group = new_bounded(16, note_rejection, &r);
    weir_executor *executor = weir_group_at(group, 0);
    probe probes[16], more = PROBE;
    blocker b;
    block(&b, executor);
    fill(executor, probes, 16);
    assert_int_equal(r.calls, 0);
    assert_int_equal(weir_executor_post(executor, &more.task), -ENOBUFS);
    assert_int_equal(r.calls, 1);
    assert_ptr_equal(r.executor, executor);
    assert_ptr_equal(r.task, &more.task);
    r.code = 0;
    assert_int_equal(weir_executor_post(executor, &more.task), 0);
    unblock(&b);
    end_group(group);
    assert_int_equal(atomic_load(&more.runs), 0);
    assert_int_equal(atomic_load(&more.drops), 0);
}

static void s050_backoff_gives_up_after_its_retries(void **state)
{
    (void)state;
    weir_backoff backoff = { .retries = 3, .pause_ns = WEIR_MS(1) };
    weir_group *group = new_bounded(16, weir_reject_with_backoff, &backoff);
    weir_executor *executor = weir_group_at(group, 0);
    probe probes[16], more = PROBE;
    blocker b;
    block(&b, executor);
    fill(executor, probes, 16);
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    assert_int_equal(weir_executor_post(executor, &more.task), -EAGAIN);
    assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns >= WEIR_MS(3));
    unblock(&b);
    end_group(group);
    assert_int_equal(atomic_load(&more.runs), 0);
}

static void *unblock_later(void *arg)
{
    blocker *self = arg;
    atomic_store(&self->may_end, true);
    return NULL;
}

static void s050_backoff_succeeds_when_there_is_room(void **state)
{
    (void)state;
    weir_backoff backoff = { .retries = 1000000, .pause_ns = 10000 };
    weir_group *group = new_bounded(16, weir_reject_with_backoff, &backoff);
    weir_executor *executor = weir_group_at(group, 0);
    probe probes[16], more = PROBE;
    blocker b;
    block(&b, executor);
    fill(executor, probes, 16);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, unblock_later, &b), 0);
    assert_int_equal(weir_executor_post(executor, &more.task), 0);
    pthread_join(thread, NULL);
    end_group(group);
    assert_int_equal(atomic_load(&more.runs), 1);
}

typedef struct self_filler {
    weir_executor *executor;
    probe probes[17];
    int codes[17];
} self_filler;

static int fill_own_queue(void *arg)
{
    self_filler *self = arg;
    for (int i = 0; i < 17; i++) {
        self->probes[i] = (probe)PROBE;
        self->codes[i] = weir_executor_post(self->executor, &self->probes[i].task);
    }
    return 0;
}

static void s050_backoff_does_not_wait_for_itself(void **state)
{
    (void)state;
    weir_backoff backoff = { .retries = 1000000, .pause_ns = WEIR_SECONDS(1) };
    weir_group *group = new_bounded(16, weir_reject_with_backoff, &backoff);
    self_filler f = { .executor = weir_group_at(group, 0) };
    assert_int_equal(call_on(f.executor, fill_own_queue, &f), 0);
    assert_int_equal(f.codes[15], 0);
    assert_int_equal(f.codes[16], -EAGAIN);
    end_group(group);
}

static int return_code(void *arg)
{
    return *(int *)arg;
}

static void s051_null_is_refused(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    weir_task empty = { .run = NULL };
    probe p = PROBE;
    weir_future *future = NULL;
    int code = 0;
    assert_int_equal(weir_executor_post(executor, NULL), -EINVAL);
    assert_int_equal(weir_executor_post(executor, &empty), -EINVAL);
    assert_int_equal(weir_executor_post(NULL, &p.task), -EINVAL);
    assert_int_equal(weir_executor_post_lazy(executor, NULL), -EINVAL);
    assert_int_equal(weir_executor_post_lazy(NULL, &p.task), -EINVAL);
    assert_int_equal(weir_executor_post_tail(executor, NULL), -EINVAL);
    assert_int_equal(weir_executor_post_tail(NULL, &p.task), -EINVAL);
    assert_int_equal(weir_executor_execute(executor, NULL, NULL), -EINVAL);
    assert_int_equal(weir_executor_execute(NULL, return_code, &code), -EINVAL);
    assert_int_equal(weir_executor_submit(executor, NULL, NULL, &future), -EINVAL);
    assert_int_equal(weir_executor_submit(executor, return_code, &code, NULL), -EINVAL);
    assert_int_equal(weir_executor_submit(NULL, return_code, &code, &future), -EINVAL);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
    end_group(group);
}

typedef struct inside_poster {
    gate_executor *gate;
    probe probes[100];
    int wakes_before, wakes_after;
} inside_poster;

static int post_inside(void *arg)
{
    inside_poster *self = arg;
    self->wakes_before = atomic_load(&self->gate->wakes);
    for (int i = 0; i < 100; i++) {
        self->probes[i] = (probe)PROBE;
        weir_executor_post(&self->gate->base, &self->probes[i].task);
    }
    self->wakes_after = atomic_load(&self->gate->wakes);
    return 0;
}

static void s052_post_from_inside_wakes_nobody(void **state)
{
    (void)state;
    gate_executor gate;
    inside_poster p = { .gate = &gate };
    gate_init(&gate, &gate_type);
    settle(&gate.base);
    assert_int_equal(call_on(&gate.base, post_inside, &p), 0);
    gate_end(&gate);
    assert_int_equal(p.wakes_after, p.wakes_before);
    for (int i = 0; i < 100; i++)
        assert_int_equal(atomic_load(&p.probes[i].runs), 1);
}

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void post_from_outside_ends_the_wait(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static int64_t latencies[COUNT];
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    settle(executor);
    for (int i = 0; i < COUNT; i++) {
        wait_for_passes(executor); /* and then it goes back to sleep, for ever */
        int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
        settle(executor);
        latencies[i] = weir_clock_now_ns(weir_clock_monotonic()) - start_ns;
    }
    end_group(group);
    /* The median, because the machine may have others to serve. */
    qsort(latencies, COUNT, sizeof *latencies, by_value);
    assert_true(latencies[COUNT / 2] < WEIR_MS(20));
}

static void plain_one_needs_no_descriptor_to_be_woken(void **state)
{
    (void)state;
    size_t before = count_entries("/proc/self/fd");
    weir_group *group = new_group_of(1);
    for (int i = 0; i < 10; i++)
        settle(weir_group_at(group, 0));
    assert_int_equal(count_entries("/proc/self/fd"), before);
    end_group(group);
}

static void s055_lazy_task_waits_for_another_wake_up(void **state)
{
    (void)state;
    gate_executor gate;
    probe lazy = PROBE;
    settle(gate_init(&gate, &gate_type));
    gate_wait_for_wait(&gate, 1);
    int waits = atomic_load(&gate.waits), wakes = atomic_load(&gate.wakes);
    assert_int_equal(weir_executor_post_lazy(&gate.base, &lazy.task), 0);
    assert_int_equal(atomic_load(&gate.wakes), wakes);
    assert_int_equal(atomic_load(&gate.waits), waits);
    assert_int_equal(atomic_load(&lazy.runs), 0);
    weir_executor_wake(&gate.base);
    WAIT_FOR(atomic_load(&lazy.runs) == 1);
    gate_end(&gate);
}

static void lazy_task_starts_the_thread(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    probe lazy = PROBE;
    assert_int_equal(weir_executor_post_lazy(weir_group_at(group, 0), &lazy.task), 0);
    WAIT_FOR(atomic_load(&lazy.runs) == 1);
    end_group(group);
}

static void s056_wake_up_is_no_task(void **state)
{
    (void)state;
    gate_executor gate;
    settle(gate_init(&gate, &gate_type));
    WAIT_FOR(stats_of(&gate.base).tasks_run == 1);
    for (int i = 0; i < 1000; i++) {
        gate_wait_for_wait(&gate, i + 1);
        weir_executor_wake(&gate.base);
    }
    gate_wait_for_wait(&gate, 1001);
    assert_int_equal(stats_of(&gate.base).tasks_run, 1);
    gate_end(&gate);
}

static void wake_before_the_wait_is_remembered(void **state)
{
    (void)state;
    gate_executor gate;
    blocker b;
    gate_init(&gate, &gate_type);
    block(&b, &gate.base);
    uint64_t passes = stats_of(&gate.base).passes;
    weir_executor_wake(&gate.base);
    assert_int_equal(atomic_load(&gate.wakes), 0); /* it was not asleep */
    unblock(&b);
    gate_wait_for_wait(&gate, 1);
    assert_true(stats_of(&gate.base).passes >= passes + 2);
    gate_end(&gate);
}

static void s057_burst_of_posts_wakes_once(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    gate_executor gate;
    tid_task *tasks = calloc(COUNT, sizeof *tasks);
    assert_non_null(tasks);
    settle(gate_init(&gate, &gate_type));
    atomic_store(&gate.stays, true);
    gate_wait_for_wait(&gate, 1);
    int wakes = atomic_load(&gate.wakes);
    for (int i = 0; i < COUNT; i++) {
        tasks[i].task.run = tell_tid;
        assert_int_equal(weir_executor_post(&gate.base, &tasks[i].task), 0);
    }
    assert_int_equal(atomic_load(&gate.wakes), wakes + 1);
    atomic_store(&gate.stays, false);
    gate_end(&gate);
    for (int i = 0; i < COUNT; i++)
        assert_int_not_equal(tasks[i].tid, 0);
    free(tasks);
}

/* Every accepted task ends in one of run and dropped, and a refused one in neither. */

typedef struct stress_poster {
    weir_executor *executor;
    probe *probes;
    int *codes;
    int count;
    atomic_int *going;
} stress_poster;

static void *post_until_refused(void *arg)
{
    stress_poster *self = arg;
    int i = 0;
    atomic_fetch_add(self->going, 1);
    for (; i < self->count; i++) {
        self->probes[i] = (probe)PROBE;
        self->codes[i] = i % 3 == 0 ? weir_executor_post_tail(self->executor, &self->probes[i].task)
                                    : weir_executor_post(self->executor, &self->probes[i].task);
        if (self->codes[i] < 0)
            break;
    }
    self->count = i < self->count ? i + 1 : i;
    return NULL;
}

static void post_while_it_ends(unsigned round)
{
    enum { THREADS = 4, COUNT = 20000 };
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    stress_poster posters[THREADS];
    pthread_t threads[THREADS];
    atomic_int going = 0;
    if (round % 4 != 0)
        settle(executor);
    for (int i = 0; i < THREADS; i++) {
        posters[i] = (stress_poster){ executor, calloc(COUNT, sizeof(probe)),
                                      calloc(COUNT, sizeof(int)), COUNT, &going };
        assert_int_equal(pthread_create(&threads[i], NULL, post_until_refused, &posters[i]), 0);
    }
    WAIT_FOR(atomic_load(&going) == THREADS);
    assert_int_equal(weir_executor_shutdown(executor, 0, 0), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    weir_group_free(group);
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < posters[i].count; k++) {
            int runs = atomic_load(&posters[i].probes[k].runs);
            int drops = atomic_load(&posters[i].probes[k].drops);
            assert_int_equal(runs + drops, posters[i].codes[k] == 0 ? 1 : 0);
            if (posters[i].codes[k] != 0)
                assert_int_equal(posters[i].codes[k], WEIR_ESHUTDOWN);
        }
        free(posters[i].probes);
        free(posters[i].codes);
    }
}

static void s060_tasks_posted_at_the_end_run_or_are_given_back(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 60; round++)
        post_while_it_ends(round);
}

static int await_own_end(void *arg)
{
    return weir_future_await(weir_executor_terminated(arg));
}

static int await_own_groups_end(void *arg)
{
    return weir_future_wait(weir_group_terminated(weir_executor_group(arg)), WEIR_SECONDS(10));
}

static void s045_awaiting_its_own_end_is_refused(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    assert_int_equal(call_on(executor, await_own_end, executor), -EDEADLK);
    assert_int_equal(call_on(executor, await_own_groups_end, executor), -EDEADLK);
    end_group(group);
}

/* The tail has a bound, too, and nobody is asked to bring its tasks elsewhere. */
static void full_tail_refuses(void **state)
{
    (void)state;
    weir_backoff backoff = { .retries = 3, .pause_ns = 1000 };
    weir_group *group = new_group(&(weir_group_config){ .count = 1,
                                                        .max_pending_tasks = 16,
                                                        .reject = weir_reject_with_backoff,
                                                        .reject_arg = &backoff });
    weir_executor *executor = weir_group_at(group, 0);
    probe probes[17];
    blocker b;
    block(&b, executor);
    for (int i = 0; i < 17; i++) {
        probes[i] = (probe)PROBE;
        assert_int_equal(weir_executor_post_tail(executor, &probes[i].task), i < 16 ? 0 : -EAGAIN);
    }
    unblock(&b);
    end_group(group);
    for (int i = 0; i < 17; i++)
        assert_int_equal(atomic_load(&probes[i].runs), i < 16);
}

static int make_and_release_much(void *arg)
{
    weir_buf *bufs[64];
    for (int i = 0; i < 64; i++)
        bufs[i] = weir_buf_new(4096);
    for (int i = 0; i < 64; i++)
        weir_buf_release(bufs[i]);
    weir_pool_get_stats(arg);
    return 0;
}

static uint64_t cached_bytes(void)
{
    weir_pool_stats stats;
    weir_pool_get_stats(&stats);
    return stats.cached_bytes;
}

static void idle_executor_gives_its_pool_back(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_pool_stats full;
    uint64_t before = cached_bytes();
    assert_int_equal(call_on(weir_group_at(group, 0), make_and_release_much, &full), 0);
    assert_true(full.cached_bytes >= before + 64 * 4096);
    WAIT_FOR(cached_bytes() <= before); /* it comes by itself, after a second */
    end_group(group);
}

static void post_after_the_end_is_refused(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    settle(executor);
    assert_int_equal(weir_executor_shutdown(executor, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    probe p = PROBE;
    int code = 0;
    weir_future *future = NULL;
    assert_int_equal(weir_executor_post(executor, &p.task), WEIR_ESHUTDOWN);
    assert_int_equal(weir_executor_post_lazy(executor, &p.task), WEIR_ESHUTDOWN);
    assert_int_equal(weir_executor_post_tail(executor, &p.task), WEIR_ESHUTDOWN);
    assert_int_equal(weir_executor_execute(executor, return_code, &code), WEIR_ESHUTDOWN);
    assert_int_equal(weir_executor_submit(executor, return_code, &code, &future), WEIR_ESHUTDOWN);
    assert_null(future);
    weir_group_free(group);
    assert_int_equal(atomic_load(&p.runs) + atomic_load(&p.drops), 0);
}

static int fail_run(weir_task *task)
{
    (void)task;
    return -EIO;
}

static void s061_failing_task_is_logged_and_the_next_runs(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    weir_task bad = { .run = fail_run, .name = "bad task" };
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_executor_post(executor, &bad), 0);
    settle(executor);
    end_group(group);
    assert_true(harness_log_has("bad task failed"));
    assert_true(harness_log_has("EIO"));
    assert_int_equal(harness_log_end(), 1);
}

typedef struct ordered {
    weir_task task;
    atomic_int *next;
    int place;
} ordered;

static int take_place(weir_task *task)
{
    ordered *self = WEIR_CONTAINER(task, ordered, task);
    self->place = atomic_fetch_add(self->next, 1);
    return 0;
}

static void s063_tail_runs_after_the_ordinary_tasks(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    atomic_int next = 0;
    ordered tasks[20];
    blocker b;
    block_tail(&b, executor); /* so that what comes now belongs to one pass, the next */
    for (int i = 0; i < 20; i++) {
        tasks[i] = (ordered){ { .run = take_place }, &next, -1 };
        assert_int_equal(i % 2 == 0 ? weir_executor_post_tail(executor, &tasks[i].task)
                                    : weir_executor_post(executor, &tasks[i].task),
                         0);
    }
    unblock(&b);
    WAIT_FOR(atomic_load(&next) == 20);
    end_group(group);
    for (int i = 0; i < 20; i++)
        assert_int_equal(tasks[i].place, i % 2 == 0 ? 10 + i / 2 : i / 2);
}

static void s064_tail_task_alone_runs_at_once(void **state)
{
    (void)state;
    gate_executor gate;
    probe tail = PROBE;
    settle(gate_init(&gate, &gate_type));
    gate_wait_for_wait(&gate, 1);
    assert_int_equal(weir_executor_post_tail(&gate.base, &tail.task), 0);
    WAIT_FOR(atomic_load(&tail.runs) == 1);
    gate_end(&gate);
}

static void posted_again_in_run_it_runs_again(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    restless r = { .task = { .run = restless_run }, .executor = weir_group_at(group, 0) };
    assert_int_equal(weir_executor_post(r.executor, &r.task), 0);
    WAIT_FOR(atomic_load(&r.runs) > 100);
    end_group(group);
}

static void stats_tell_what_was_done(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 7);
    weir_group *group = new_group(&(weir_group_config){ .count = 1, .clock = &clock.clock });
    weir_executor *executor = weir_group_at(group, 0);
    weir_executor_stats stats = stats_of(executor);
    assert_int_equal(stats.tasks_run, 0);
    assert_int_equal(stats.passes, 0);
    probe probes[5];
    fill(executor, probes, 5);
    WAIT_FOR(stats_of(executor).tasks_run == 5);
    wait_for_passes(executor);
    stats = stats_of(executor);
    assert_int_equal(stats.tasks_run, 5);
    assert_int_equal(stats.tasks_rejected, 0);
    assert_int_equal(stats.timers, 0);
    assert_int_equal(stats.last_run_ns, 7);
    weir_virtual_clock_advance(&clock, 5);
    wait_for_passes(executor);
    assert_int_equal(stats_of(executor).last_run_ns, 7); /* nothing ran */
    settle(executor);
    wait_for_passes(executor);
    assert_int_equal(stats_of(executor).last_run_ns, 12);
    end_group(group);
}

static int add_one(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void executed_function_is_called_once(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    atomic_int calls = 0;
    for (int i = 0; i < 100; i++)
        assert_int_equal(weir_executor_execute(weir_group_at(group, 0), add_one, &calls), 0);
    end_group(group);
    assert_int_equal(atomic_load(&calls), 100);
}

static void submitted_function_tells_its_code(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    int codes[] = { 0, -EIO, WEIR_ENOTFOUND };
    for (int i = 0; i < 3; i++)
        assert_int_equal(call_on(weir_group_at(group, 0), return_code, &codes[i]), codes[i]);
    end_group(group);
}

static void cancelled_function_is_not_called(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    atomic_int calls = 0;
    weir_future *future = NULL;
    blocker b;
    block(&b, weir_group_at(group, 0));
    assert_int_equal(weir_executor_submit(weir_group_at(group, 0), add_one, &calls, &future), 0);
    assert_int_equal(weir_future_cancel(future), 0);
    unblock(&b);
    assert_int_equal(weir_future_await(future), -ECANCELED);
    weir_future_release(future);
    end_group(group);
    assert_int_equal(atomic_load(&calls), 0);
}

static void without_memory_nothing_is_called(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    atomic_int calls = 0;
    weir_future *future = NULL;
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_executor_execute(executor, add_one, &calls), -ENOMEM);
    harness_fail_end();
    for (unsigned n = 1; n <= 2; n++) {
        harness_fail_nth("alloc", n, -ENOMEM);
        assert_int_equal(weir_executor_submit(executor, add_one, &calls, &future), -ENOMEM);
        assert_int_equal(harness_fail_end(), n);
        assert_null(future);
    }
    assert_int_equal(call_on(executor, add_one, &calls), 0);
    end_group(group);
    assert_int_equal(atomic_load(&calls), 1);
}

static void knows_its_name(void **state)
{
    (void)state;
    weir_group *group = new_group(&(weir_group_config){ .count = 2, .name = "worker" });
    assert_string_equal(weir_executor_name(weir_group_at(group, 1)), "worker-1");
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s025_no_thread_before_the_first_task),
        weir_case(s026_sixty_four_threads_start_one_thread),
        weir_case(s027_failed_start_can_be_tried_again),
        weir_case(s028_state_never_goes_back),
        weir_case(s029_is_current_on_its_own_thread_only),
        weir_case(s030_all_tasks_run_on_one_thread),
        weir_case(s032_body_that_returns_ends_the_executor),
        weir_case(s033_body_that_forgets_the_shutdown_is_reported),
        weir_case(body_that_confirms_is_not_reported),
        weir_case(s035_what_was_opened_is_closed_before_the_future_completes),
        weir_case(s036_tasks_left_over_are_reported_and_dropped),
        weir_case(s034_what_is_queued_runs_before_the_end),
        weir_case(shutdown_hooks_run_once_in_order),
        weir_case(removed_hook_does_not_run),
        weir_case(hooks_are_refused_elsewhere),
        weir_case(s039_ends_when_it_was_quiet_for_the_quiet_period),
        weir_case(s040_ends_after_the_timeout_though_tasks_keep_coming),
        weir_case(s041_without_quiet_period_it_drains_and_ends),
        weir_case(s042_timeout_below_the_quiet_period_is_refused),
        weir_case(s043_never_started_one_terminates),
        weir_case(s045_awaiting_its_own_end_is_refused),
        weir_case(full_tail_refuses),
        weir_case(idle_executor_gives_its_pool_back),
        weir_case(never_started_one_terminates_without_a_thread),
        weir_case(termination_without_a_thread_runs_no_listeners_of_the_caller),
        weir_case(second_shutdown_has_no_effect),
        weir_case(s047_no_task_of_eight_producers_is_lost),
        weir_case(s048_tasks_of_one_thread_run_in_order),
        weir_case(s049_bound_is_at_least_sixteen),
        weir_case(s050_rejection_can_be_handled),
        weir_case(s050_backoff_gives_up_after_its_retries),
        weir_case(s050_backoff_succeeds_when_there_is_room),
        weir_case(s050_backoff_does_not_wait_for_itself),
        weir_case(s051_null_is_refused),
        weir_case(s052_post_from_inside_wakes_nobody),
        weir_case(post_from_outside_ends_the_wait),
        weir_case(plain_one_needs_no_descriptor_to_be_woken),
        weir_case(s055_lazy_task_waits_for_another_wake_up),
        weir_case(lazy_task_starts_the_thread),
        weir_case(s056_wake_up_is_no_task),
        weir_case(wake_before_the_wait_is_remembered),
        weir_case(s057_burst_of_posts_wakes_once),
        weir_case(s060_tasks_posted_at_the_end_run_or_are_given_back),
        weir_case(post_after_the_end_is_refused),
        weir_case(s061_failing_task_is_logged_and_the_next_runs),
        weir_case(s063_tail_runs_after_the_ordinary_tasks),
        weir_case(s064_tail_task_alone_runs_at_once),
        weir_case(posted_again_in_run_it_runs_again),
        weir_case(stats_tell_what_was_done),
        weir_case(executed_function_is_called_once),
        weir_case(submitted_function_tells_its_code),
        weir_case(cancelled_function_is_not_called),
        weir_case(without_memory_nothing_is_called),
        weir_case(knows_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
