/* SPDX-License-Identifier: MIT */
/* Loops: what executors promise, with a poller in the middle; and groups of loops. */
#include "loops.h"

#include "exec/executor.h"
#include "exec/group.h"

#include <weir/fault.h>

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* Without the watchdog, whose thread would be counted. */
static weir_group *new_bare_loops(int count)
{
    return new_loops(&(weir_group_config){ .loops = count, .watchdog_ns = WEIR_OFF });
}

/* Freeing a group under a post ----------------------------------------------------------------- */

typedef struct slow_post {
    weir_task task;
    weir_executor *executor;
    pthread_t thread;
    weir_timer timer; /* wakes the loop again and again until it has run the task */
    _Atomic(bool) has_run, has_freed, has_held, was_freed_under_it;
} slow_post;

static int note_run(weir_task *task)
{
    WEIR_CONTAINER(task, slow_post, task)->has_run = true;
    return 0;
}

static int schedule_soon(void *timer)
{
    return weir_timer_schedule(timer, weir_executor_current(), WEIR_MS(5));
}

static int wake_until_it_has_run(weir_timer *timer)
{
    return WEIR_CONTAINER(timer, slow_post, timer)->has_run ? 0 : schedule_soon(timer);
}

/* The poster is about to wake the loop, which has been woken by a timer since and has run the
 * task. It gives the main thread every chance to free the group first. */
static int hold_the_wake(void *arg, const char *call, size_t *length)
{
    slow_post *self = arg;
    (void)length;
    if (strcmp(call, "write") != 0 || !pthread_equal(pthread_self(), self->thread))
        return 0;
    WAIT_FOR(self->has_run);
    self->has_held = true;
    for (int i = 0; i < 50 && !self->has_freed; i++)
        usleep(1000);
    self->was_freed_under_it = self->has_freed;
    return 0;
}

static void *post_slowly(void *arg)
{
    slow_post *self = arg;
    self->thread = pthread_self();
    assert_int_equal(weir_executor_post(self->executor, &self->task), 0);
    return NULL;
}

/* Whether the post had to wake the loop: otherwise it happened to be awake. */
static bool free_under_a_slow_post(void)
{
    weir_group *group = new_bare_loops(1);
    slow_post self = { .task = { .run = note_run },
                       .executor = weir_group_at(group, 0),
                       .timer = { .fire = wake_until_it_has_run } };
    pthread_t thread;
    weir_future *scheduled;
    assert_int_equal(weir_executor_submit(self.executor, schedule_soon, &self.timer, &scheduled),
                     0);
    assert_int_equal(weir_future_await(scheduled), 0);
    weir_future_release(scheduled);
    weir_fault_set(hold_the_wake, &self);
    assert_int_equal(pthread_create(&thread, NULL, post_slowly, &self), 0);
    WAIT_FOR(self.has_run);
    weir_group_shutdown(group, 0, 0);
    weir_group_free(group);
    self.has_freed = true;
    pthread_join(thread, NULL);
    weir_fault_set(NULL, NULL);
    assert_false(self.was_freed_under_it);
    return self.has_held;
}

static void group_is_freed_after_the_posts_to_it_have_returned(void **state)
{
    (void)state;
    bool has_held = false;
    for (int i = 0; i < 20 && !has_held; i++)
        has_held = free_under_a_slow_post();
    assert_true(has_held);
}

/* Groups of loops ------------------------------------------------------------------------------ */

static void s007_default_is_two_loops_per_cpu(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    unsetenv("WEIR_LOOPS");
    weir_group *group = new_loops(NULL);
    assert_int_equal(weir_group_count(group), 2 * CPU_COUNT(&all));
    end_group(group);
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    group = new_loops_of(0);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(weir_group_count(group), 2);
    end_group(group);
    setenv("WEIR_LOOPS", "3", 1);
    group = new_loops_of(0);
    unsetenv("WEIR_LOOPS");
    assert_int_equal(weir_group_count(group), 3);
    end_group(group);
}

/* What a config says wrong, and what the message has to hold. */
typedef struct bad_config {
    weir_group_config config;
    const char *name, *value;
} bad_config;

static void s008_bad_numbers_are_refused_by_name(void **state)
{
    (void)state;
    static const bad_config bad[] = {
        { { .loops = -1 }, "count", "-1" },
        { { .max_pending_tasks = -7 }, "max_pending_tasks", "-7" },
        { { .io_ratio = -3 }, "io_ratio", "-3" },
        { { .io_ratio = 101 }, "io_ratio", "101" },
        { { .task_ns = -4 }, "task_ns", "-4" },
        { { .max_wait_ns = -5 }, "max_wait_ns", "-5" },
        { { .spin_limit = 2 }, "spin_limit", "2" },
        { { .spin_limit = -9 }, "spin_limit", "-9" },
        { { .watchdog_ns = -6 }, "watchdog_ns", "-6" },
        { { .io = (weir_io_kind)77 }, "io", "77" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weir_group *group = NULL;
        weir_error error = { 0 };
        assert_int_equal(weir_group_new(&group, &bad[i].config, &error), -EINVAL);
        assert_int_equal(weir_group_new(&group, &bad[i].config, NULL), -EINVAL);
        assert_null(group);
        assert_int_equal(error.code, -EINVAL);
        assert_non_null(strstr(error.message, bad[i].name));
        assert_non_null(strstr(error.message, bad[i].value));
    }
    assert_int_equal(weir_group_new(NULL, NULL, NULL), -EINVAL);
}

static void numbers_at_their_limits_are_taken(void **state)
{
    (void)state;
    static const weir_group_config good[] = {
        { .loops = 1, .io_ratio = 1 },
        { .loops = 1, .io_ratio = 100 },
        { .loops = 1, .spin_limit = 3 },
        { .loops = 1, .spin_limit = WEIR_OFF, .max_wait_ns = WEIR_OFF, .watchdog_ns = WEIR_OFF },
        { .loops = 1, .task_ns = WEIR_MS(5), .max_wait_ns = WEIR_MS(5), .io = WEIR_IO_EPOLL },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        weir_group *group = new_loops(&good[i]);
        settle(weir_group_at(group, 0));
        end_group(group);
    }
}

static void environment_chooses_the_io(void **state)
{
    (void)state;
    static const char *const good[] = { "epoll", "auto", "" };
    char before[16];
    snprintf(before, sizeof before, "%s", getenv("WEIR_IO") != NULL ? getenv("WEIR_IO") : "");
    for (int i = 0; i < 3; i++) {
        setenv("WEIR_IO", good[i], 1);
        weir_group *group = new_loops_of(1);
        assert_string_equal(weir_loop_io_name(weir_group_loop_at(group, 0)), "epoll");
        settle(weir_group_at(group, 0));
        end_group(group);
    }
    setenv("WEIR_IO", "nonsense", 1);
    weir_group *group = NULL;
    weir_error error = { 0 };
    weir_group_config config = { .loops = 1 };
    assert_int_equal(weir_group_new(&group, &config, &error), -EINVAL);
    assert_null(group);
    assert_int_equal(error.code, -EINVAL);
    assert_non_null(strstr(error.message, "nonsense"));
    assert_non_null(strstr(error.message, "WEIR_IO"));
    config.io = WEIR_IO_EPOLL; /* who says what he wants does not ask the environment */
    assert_int_equal(weir_group_new(&group, &config, &error), 0);
    end_group(group);
    group = new_group_of(1); /* nor do executors without io */
    end_group(group);
    setenv("WEIR_IO", before, 1);
}

typedef struct factory {
    int calls, fail_at;
    weir_loop_config config;
    atomic_int terminated;
    weir_listener ends[8];
    struct factory *self;
} factory;

static factory *current_factory;

static void count_end(weir_listener *listener, weir_future *future)
{
    (void)listener;
    (void)future;
    atomic_fetch_add(&current_factory->terminated, 1);
}

static int make_loop(void *arg, const weir_executor_config *config, weir_executor **executor)
{
    factory *self = arg;
    assert_ptr_equal(self->self, self);
    int at = self->calls++;
    if (at == self->fail_at)
        return -EMFILE;
    weir_loop *loop = NULL;
    int code = weir__loop_new(&loop, config, &self->config);
    if (code < 0)
        return code;
    *executor = weir_loop_executor(loop);
    self->ends[at] = (weir_listener){ .done = count_end };
    weir_future_listen(weir_executor_terminated(*executor), &self->ends[at]);
    return 0;
}

static void factory_begin(factory *self, int fail_at)
{
    *self = (factory){ .fail_at = fail_at, .self = self, .config = { .io_ratio = 50 } };
    current_factory = self;
}

static void s014_factory_makes_each_loop(void **state)
{
    (void)state;
    factory f;
    factory_begin(&f, -1);
    weir_group *group = NULL;
    weir_group_config config = { .loops = 5 };
    assert_int_equal(weir__group_new(&group, &config, make_loop, &f, NULL), 0);
    assert_int_equal(f.calls, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_non_null(weir_group_loop_at(group, i));
        settle(weir_group_at(group, i));
    }
    end_group(group);
    assert_int_equal(atomic_load(&f.terminated), 5);
}

static void s015_failing_loop_ends_those_before_it(void **state)
{
    (void)state;
    for (int fail_at = 0; fail_at < 5; fail_at++) {
        size_t threads = count_threads(), fds = count_entries("/proc/self/fd");
        factory f;
        factory_begin(&f, fail_at);
        weir_group *group = NULL;
        weir_error error = { 0 };
        weir_group_config config = { .loops = 5, .watchdog_ns = WEIR_OFF };
        assert_int_equal(weir__group_new(&group, &config, make_loop, &f, &error), -EMFILE);
        assert_null(group);
        assert_non_null(strstr(error.message, "failed to create a child event loop"));
        assert_int_equal(f.calls, fail_at + 1);
        assert_int_equal(atomic_load(&f.terminated), fail_at);
        assert_int_equal(count_entries("/proc/self/fd"), fds);
        WAIT_FOR(count_threads() == threads);
    }
}

static size_t next_index(weir_group *group)
{
    weir_loop *loop = weir_group_next_loop(group);
    for (size_t i = 0; i < weir_group_count(group); i++) {
        if (weir_group_loop_at(group, i) == loop)
            return i;
    }
    return SIZE_MAX;
}

static void s018_power_of_two_loops_go_by_turns(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(8);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(next_index(group), i % 8);
    end_group(group);
}

static void s019_generic_choice_of_loops_survives_the_wrap(void **state)
{
    (void)state;
    static const uint64_t starts[] = { UINT64_MAX - 8, INT64_MAX - 4, UINT32_MAX - 4, INT32_MAX };
    weir_group *group = new_loops_of(3);
    for (int s = 0; s < 4; s++) {
        int hits[3] = { 0 };
        weir__group_set_counter(group, starts[s]);
        for (int i = 0; i < 9; i++) {
            size_t at = next_index(group);
            assert_true(at < 3);
            hits[at]++;
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(hits[i], 3);
    }
    end_group(group);
}

static size_t always_two(void *chooser_arg, weir_group *group, uint64_t n, size_t count)
{
    (void)chooser_arg;
    (void)group;
    (void)n;
    (void)count;
    return 2;
}

static void s020_chooser_of_loops_follows_the_count_or_the_user(void **state)
{
    (void)state;
    weir_group *four = new_loops_of(4), *five = new_loops_of(5);
    weir_group *custom = new_loops(&(weir_group_config){ .loops = 4, .chooser = always_two });
    assert_string_equal(weir_group_chooser_name(four), "power of two");
    assert_string_equal(weir_group_chooser_name(five), "generic");
    assert_string_equal(weir_group_chooser_name(custom), "custom");
    for (int i = 0; i < 5; i++)
        assert_int_equal(next_index(custom), 2);
    end_group(four);
    end_group(five);
    end_group(custom);
}

typedef struct group_end {
    weir_listener listener;
    weir_group *group;
    atomic_int calls;
    bool are_all_done;
} group_end;

static void see_group_end(weir_listener *listener, weir_future *future)
{
    (void)future;
    group_end *self = WEIR_CONTAINER(listener, group_end, listener);
    self->are_all_done = true;
    for (size_t i = 0; i < weir_group_count(self->group); i++)
        self->are_all_done &=
            weir_future_is_done(weir_executor_terminated(weir_group_at(self->group, i)));
    atomic_fetch_add(&self->calls, 1);
}

static void s021_group_terminates_with_its_last_loop(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(3);
    group_end e = { .listener = { .done = see_group_end }, .group = group };
    weir_future_listen(weir_group_terminated(group), &e.listener);
    for (size_t i = 0; i < 3; i++) {
        assert_false(weir_future_is_done(weir_group_terminated(group)));
        assert_int_equal(weir_executor_shutdown(weir_group_at(group, i), 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir_future_await(weir_executor_terminated(weir_group_at(group, i))), 0);
    }
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_group_free(group);
    assert_int_equal(atomic_load(&e.calls), 1);
    assert_true(e.are_all_done);
}

static void s022_loops_are_listed_in_order(void **state)
{
    (void)state;
    weir_group *group = new_loops(&(weir_group_config){ .loops = 5, .name = "loop" });
    for (size_t i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "loop-%d", (int)i);
        weir_executor *executor = weir_group_at(group, i);
        assert_string_equal(weir_executor_name(executor), name);
        assert_ptr_equal(weir_loop_executor(weir_group_loop_at(group, i)), executor);
        assert_ptr_equal(weir_executor_loop(executor), weir_group_loop_at(group, i));
    }
    assert_null(weir_group_loop_at(group, 5));
    assert_null(weir_group_loop_at(NULL, 0));
    assert_null(weir_group_next_loop(NULL));
    end_group(group);
}

static void s023_loop_knows_its_group(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(3);
    for (size_t i = 0; i < 3; i++)
        assert_ptr_equal(weir_executor_group(weir_group_at(group, i)), group);
    end_group(group);
}

static void executors_are_no_loops(void **state)
{
    (void)state;
    weir_group *group = new_group_of(2);
    assert_null(weir_executor_loop(weir_group_at(group, 0)));
    assert_null(weir_group_loop_at(group, 0));
    assert_null(weir_group_next_loop(group));
    assert_null(weir_executor_loop(NULL));
    assert_null(weir_loop_executor(NULL));
    assert_null(weir_loop_current());
    end_group(group);
}

static void s024_each_registration_is_one_choice(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(3);
    test_pipe p[6];
    probe_watch w[6];
    for (int i = 0; i < 6; i++) {
        p[i] = pipe_open();
        w[i] = PROBE_WATCH(10);
        assert_int_equal(
            weir_watch_start(&w[i].watch, weir_group_next_loop(group), p[i].in, WEIR_WATCH_READ),
            0);
    }
    for (size_t i = 0; i < 3; i++) {
        settle(weir_group_at(group, i));
        assert_int_equal(loop_stats_of(weir_group_loop_at(group, i)).channels, 2);
    }
    for (int i = 0; i < 6; i++) {
        pipe_put(&p[i], 1);
        WAIT_FOR(atomic_load(&w[i].readies) == 1);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&w[i].tid), atomic_load(&w[i + 3].tid));
        assert_int_not_equal(atomic_load(&w[i].tid), atomic_load(&w[(i + 1) % 3].tid));
    }
    end_group(group);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(atomic_load(&w[i].stops), 1);
        pipe_close(&p[i]);
    }
}

/* Threads -------------------------------------------------------------------------------------- */

static int tell_affinity(void *arg)
{
    return sched_getaffinity(0, sizeof(cpu_set_t), arg) == 0 ? 0 : -errno;
}

static void pinned_loops_stay_on_one_cpu_each(void **state)
{
    (void)state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int cpus[CPU_SETSIZE], count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &all))
            cpus[count++] = cpu;
    }
    weir_group *group = new_loops(&(weir_group_config){ .loops = 5, .is_pinned = true });
    for (size_t i = 0; i < 5; i++) {
        cpu_set_t own;
        assert_int_equal(call_on(weir_group_at(group, i), tell_affinity, &own), 0);
        assert_int_equal(CPU_COUNT(&own), 1);
        assert_true(CPU_ISSET((size_t)cpus[i % (size_t)count], &own)); /* by turns */
    }
    end_group(group);
    group = new_loops_of(1);
    cpu_set_t own;
    assert_int_equal(call_on(weir_group_at(group, 0), tell_affinity, &own), 0);
    assert_true(CPU_EQUAL(&own, &all));
    end_group(group);
}

static void s025_no_thread_before_the_first_task_of_a_loop(void **state)
{
    (void)state;
    size_t threads = count_threads(), fds = count_entries("/proc/self/fd");
    weir_group *group = new_bare_loops(8);
    assert_int_equal(count_threads(), threads);
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    settle(weir_group_at(group, 0));
    assert_int_equal(count_threads(), threads + 1);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_STARTED);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 1)), WEIR_EXECUTOR_NOT_STARTED);
    /* A registration is a reason, too. */
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1);
    assert_int_equal(
        weir_watch_start(&w.watch, weir_group_loop_at(group, 1), p.in, WEIR_WATCH_READ), 0);
    assert_int_equal(count_threads(), threads + 2);
    end_group(group);
    pipe_close(&p);
}

typedef struct starting {
    weir_executor *executor;
    pthread_barrier_t *barrier;
    probe probe;
    int code;
} starting;

static void *post_at_once(void *arg)
{
    starting *self = arg;
    pthread_barrier_wait(self->barrier);
    self->code = weir_executor_post(self->executor, &self->probe.task);
    return NULL;
}

static void s026_sixteen_threads_start_one_thread_of_a_loop(void **state)
{
    (void)state;
    enum { COUNT = 16 };
    static starting s[COUNT];
    starter hook = { .code = 0 };
    weir_group *group =
        new_loops(&(weir_group_config){ .loops = 1, .start = starter_start, .start_arg = &hook });
    pthread_t threads[COUNT];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, COUNT);
    for (int i = 0; i < COUNT; i++) {
        s[i] = (starting){ weir_group_at(group, 0), &barrier, PROBE, 1 };
        assert_int_equal(pthread_create(&threads[i], NULL, post_at_once, &s[i]), 0);
    }
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    end_group(group);
    starter_join(&hook);
    assert_int_equal(atomic_load(&hook.calls), 1);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(s[i].code, 0);
        assert_int_equal(atomic_load(&s[i].probe.runs), 1);
    }
}

static void s027_failed_start_of_a_loop_can_be_tried_again(void **state)
{
    (void)state;
    starter hook = { .failures_left = 1, .code = -EAGAIN };
    size_t fds = count_entries("/proc/self/fd");
    weir_group *group =
        new_loops(&(weir_group_config){ .loops = 1, .start = starter_start, .start_arg = &hook });
    weir_executor *executor = weir_group_at(group, 0);
    probe p = PROBE;
    assert_int_equal(weir_executor_post(executor, &p.task), -EAGAIN);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    assert_int_equal(weir_executor_post(executor, &p.task), 0);
    end_group(group);
    starter_join(&hook);
    assert_int_equal(atomic_load(&hook.calls), 2);
    assert_int_equal(atomic_load(&p.runs), 1);
}

/* The poller is opened before the thread: that can fail as well. */
static void s027_failed_poller_of_a_loop_can_be_tried_again(void **state)
{
    (void)state;
    const char *const calls[] = { opening_call(), "eventfd",
                                  is_over_uring() ? "io_uring_setup" : "epoll_ctl", "alloc",
                                  "pthread_create" };
    for (int i = 0; i < 5; i++) {
        weir_group *group = new_loops_of(1);
        weir_executor *executor = weir_group_at(group, 0);
        size_t fds = count_entries("/proc/self/fd");
        probe p = PROBE;
        harness_fail_nth(calls[i], 1, -ENOMEM);
        assert_int_equal(weir_executor_post(executor, &p.task), -ENOMEM);
        harness_fail_end();
        assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
        assert_int_equal(count_entries("/proc/self/fd"), fds);
        assert_int_equal(weir_executor_post(executor, &p.task), 0);
        end_group(group);
        assert_int_equal(atomic_load(&p.runs), 1);
        assert_int_equal(atomic_load(&p.drops), 0);
    }
}

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

static void s028_state_of_a_loop_never_goes_back(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        weir_group *group = new_loops_of(1);
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
    weir_executor *own, *sibling, *current;
    bool is_own, is_sibling;
    weir_loop *loop;
} where;

static int look_where(void *arg)
{
    where *self = arg;
    self->is_own = weir_executor_is_current(self->own);
    self->is_sibling = weir_executor_is_current(self->sibling);
    self->current = weir_executor_current();
    self->loop = weir_loop_current();
    return 0;
}

static void s029_loop_is_current_on_its_own_thread_only(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(2);
    where w = { .own = weir_group_at(group, 0), .sibling = weir_group_at(group, 1) };
    assert_int_equal(call_on(w.own, look_where, &w), 0);
    assert_true(w.is_own);
    assert_false(w.is_sibling);
    assert_ptr_equal(w.current, w.own);
    assert_ptr_equal(w.loop, weir_group_loop_at(group, 0));
    look_where(&w);
    assert_false(w.is_own);
    assert_null(w.current);
    assert_null(w.loop);
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

static void s030_all_tasks_of_a_loop_run_on_one_thread(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    tid_task *tasks = calloc(COUNT, sizeof *tasks);
    assert_non_null(tasks);
    weir_group *group = new_loops_of(1);
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

/* Bodies --------------------------------------------------------------------------------------- */

static void return_at_once(weir_executor *executor)
{
    (void)executor;
}

/* The loop's kind, changed before it starts. */
static weir_executor_type changed_type;

static weir_executor_type *change_type(weir_executor *executor)
{
    changed_type = *executor->type;
    executor->type = &changed_type;
    return &changed_type;
}

static void s032_body_that_returns_ends_the_loop(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    change_type(executor)->run = return_at_once;
    probe p = PROBE;
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(weir_executor_post(executor, &p.task), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_TERMINATED);
    weir_group_free(group);
    harness_log_end();
    assert_int_equal(atomic_load(&p.runs), 1);
}

static void s033_body_of_a_loop_that_forgets_the_shutdown_is_reported(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    change_type(weir_group_at(group, 0))->run = return_at_once;
    harness_log_begin(WEIR_LOG_ERROR);
    probe p = PROBE;
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_group_free(group);
    assert_int_equal(harness_log_end(), 1);
    assert_true(harness_log_has("buggy loop"));
}

static void loop_that_confirms_is_not_reported(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_WARN);
    weir_group *group = new_loops_of(1);
    settle(weir_group_at(group, 0));
    end_group(group);
    assert_int_equal(harness_log_end(), 0);
}

typedef struct hook_entry {
    weir_hook hook;
    weir_executor *executor;
    int runs;
} hook_entry;

static void count_hook(weir_hook *hook)
{
    WEIR_CONTAINER(hook, hook_entry, hook)->runs++;
}

static int add_shutdown_hook(void *arg)
{
    hook_entry *self = arg;
    return weir_executor_add_shutdown_hook(self->executor, &self->hook);
}

static void s034_what_is_queued_runs_before_the_end_of_a_loop(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static probe probes[COUNT];
    weir_group *group = new_loops_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    hook_entry h = { .hook = { .run = count_hook }, .executor = executor };
    assert_int_equal(call_on(executor, add_shutdown_hook, &h), 0);
    blocker b;
    block(&b, executor);
    for (int i = 0; i < COUNT; i++) {
        probes[i] = (probe)PROBE;
        assert_int_equal(weir_executor_post(executor, &probes[i].task), 0);
    }
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    unblock(&b);
    weir_group_free(group);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(atomic_load(&probes[i].runs), 1);
    assert_int_equal(h.runs, 1);
}

typedef struct end_listener {
    weir_listener listener;
    weir_executor *executor;
    int epoll, epoll_code, state;
    bool is_current;
    atomic_int calls;
} end_listener;

static void see_end(weir_listener *listener, weir_future *future)
{
    (void)future;
    end_listener *self = WEIR_CONTAINER(listener, end_listener, listener);
    self->epoll_code = fcntl(self->epoll, F_GETFD);
    self->state = (int)weir_executor_get_state(self->executor);
    self->is_current = weir_executor_is_current(self->executor);
    atomic_fetch_add(&self->calls, 1);
}

static int tell_epoll(void *arg)
{
    end_listener *self = arg;
    weir_io *io = ((weir_loop *)self->executor)->io;
    self->epoll = io->type->descriptor(io);
    return 0;
}

static void s035_epoll_is_closed_before_the_future_completes(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    end_listener l = { .listener = { .done = see_end }, .executor = weir_group_at(group, 0) };
    assert_int_equal(call_on(l.executor, tell_epoll, &l), 0);
    assert_int_not_equal(fcntl(l.epoll, F_GETFD), -1);
    weir_future_listen(weir_executor_terminated(l.executor), &l.listener);
    end_group(group);
    assert_int_equal(atomic_load(&l.calls), 1);
    assert_int_equal(l.epoll_code, -1);
    assert_int_equal(l.state, WEIR_EXECUTOR_TERMINATED);
    assert_true(l.is_current);
}

static probe late_probe;
static void (*close_of_loops)(weir_executor *executor);

static void close_with_a_late_task(weir_executor *executor)
{
    weir__executor_post_always(executor, &late_probe.task);
    close_of_loops(executor);
}

static void s036_tasks_left_over_by_a_loop_are_reported(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    weir_executor_type *type = change_type(weir_group_at(group, 0));
    late_probe = (probe)PROBE;
    close_of_loops = type->close;
    type->close = close_with_a_late_task;
    settle(weir_group_at(group, 0));
    harness_log_begin(WEIR_LOG_WARN);
    end_group(group);
    assert_int_equal(harness_log_end(), 1);
    assert_true(harness_log_has("terminated with 1 tasks left"));
    assert_int_equal(atomic_load(&late_probe.runs), 0);
    assert_int_equal(atomic_load(&late_probe.drops), 1);
}

/* Shutting down ---------------------------------------------------------------------------------
 */

static void s039_loop_ends_when_it_was_quiet_for_the_quiet_period(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, WEIR_SECONDS(1));
    weir_group *group = new_loops(&(weir_group_config){ .loops = 1, .clock = &clock.clock });
    weir_executor *executor = weir_group_at(group, 0);
    settle(executor);
    assert_int_equal(weir_executor_shutdown(executor, WEIR_MS(300), WEIR_SECONDS(100)), 0);
    wait_for_passes(executor);
    for (int i = 0; i < 10; i++) {
        weir_virtual_clock_advance(&clock, WEIR_MS(299));
        settle(executor);
        wait_for_passes(executor);
    }
    weir_virtual_clock_advance(&clock, WEIR_MS(299));
    wait_for_passes(executor);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_SHUTTING_DOWN);
    weir_virtual_clock_advance(&clock, WEIR_MS(1));
    weir_executor_wake(executor);
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    weir_group_free(group);
}

/* Once with the clock on the wall, as the row has it. */
static void s039_loop_ends_in_real_time_after_the_quiet_period(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    settle(weir_group_at(group, 0));
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    assert_int_equal(weir_group_shutdown(group, WEIR_MS(100), WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    int64_t taken_ns = weir_clock_now_ns(weir_clock_monotonic()) - start_ns;
    assert_in_range(taken_ns, WEIR_MS(100), WEIR_MS(5000));
    weir_group_free(group);
}

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

static void s040_loop_ends_after_the_timeout_though_tasks_keep_coming(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group = new_loops(&(weir_group_config){ .loops = 1, .clock = &clock.clock });
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

static void s041_loop_without_quiet_period_drains_and_ends(void **state)
{
    (void)state;
    weir_virtual_clock clock; /* stands still, so nothing waits for a time */
    weir_virtual_clock_init(&clock, 0);
    weir_group *group = new_loops(&(weir_group_config){ .loops = 1, .clock = &clock.clock });
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

static void s042_timeout_of_a_loop_below_the_quiet_period_is_refused(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    assert_int_equal(weir_executor_shutdown(executor, 2, 1), -EINVAL);
    assert_int_equal(weir_group_shutdown(group, -1, 1), -EINVAL);
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
    settle(executor);
    end_group(group);
}

static void s043_never_started_loop_terminates(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(2);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_group_free(group);
    const char *const calls[] = { "pthread_create", opening_call(), "eventfd", "alloc" };
    for (int i = 0; i < 4; i++) { /* even when it cannot start */
        group = new_loops_of(1);
        harness_fail_nth(calls[i], 1, -ENOMEM);
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        assert_true(harness_fail_end() > 0);
        probe p = PROBE;
        assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), WEIR_ESHUTDOWN);
        weir_group_free(group);
    }
}

static void s044_timers_of_a_loop_are_cancelled_at_shutdown(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    probe_timer timers[3];
    for (int i = 0; i < 3; i++) {
        timers[i] = PROBE_TIMER;
        assert_int_equal(
            weir_timer_schedule(&timers[i].timer, weir_group_at(group, 0), WEIR_SECONDS(3600)), 0);
    }
    settle(weir_group_at(group, 0));
    assert_int_equal(stats_of(weir_group_at(group, 0)).timers, 3);
    end_group(group);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&timers[i].cancels), 1);
        assert_int_equal(atomic_load(&timers[i].fires), 0);
    }
}

static int await_it(void *arg)
{
    return weir_future_await(arg);
}

static int wait_for_it(void *arg)
{
    return weir_future_wait(arg, WEIR_SECONDS(10));
}

static void s045_loop_refuses_to_await_its_own_end(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    assert_int_equal(call_on(executor, await_it, weir_executor_terminated(executor)), -EDEADLK);
    assert_int_equal(call_on(executor, await_it, weir_group_terminated(group)), -EDEADLK);
    end_group(group);
}

/* On a loop's thread no future at all is waited for, not even a stranger's. */
static void no_future_is_awaited_on_a_loops_thread(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(2), *plain = new_group_of(1);
    weir_promise *free_one = weir_promise_new(NULL);
    weir_promise *bound = weir_promise_new(weir_group_at(plain, 0));
    weir_future *futures[] = { weir_promise_future(free_one), weir_promise_future(bound),
                               weir_executor_terminated(weir_group_at(group, 1)),
                               weir_group_terminated(plain) };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(call_on(weir_group_at(group, 0), await_it, futures[i]), -EDEADLK);
        assert_int_equal(call_on(weir_group_at(group, 0), wait_for_it, futures[i]), -EDEADLK);
    }
    weir_promise_set(free_one, 0);
    weir_promise_set(bound, 0);
    assert_int_equal(call_on(weir_group_at(group, 0), await_it, futures[0]), 0); /* is there */
    weir_promise_release(free_one);
    weir_promise_release(bound);
    end_group(plain);
    end_group(group);
}

static int free_group(void *arg)
{
    weir_group_free(arg);
    return 0;
}

static void free_inside(void *other)
{
    weir_group *group = new_loops_of(1);
    call_on(weir_group_at(group, 0), free_group, other != NULL ? other : group);
}

static void free_on_a_loops_thread_is_misuse(void **state)
{
    (void)state;
    if (!HARNESS_MISUSE_ABORTS)
        return;
    harness_expect_abort(free_inside, NULL, "weir_group_free");
    weir_group *other = new_loops_of(1);
    harness_expect_abort(free_inside, other, "weir_group_free");
    end_group(other);
}

static void pending_tells_what_keeps_it(void **state)
{
    (void)state;
    weir_group *group = new_loops(&(weir_group_config){ .loops = 2, .max_pending_tasks = 100 });
    weir_executor *executor = weir_group_at(group, 1);
    weir_group_pending pending;
    probe_timer timers[2] = { PROBE_TIMER, PROBE_TIMER };
    probe probes[3];
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_timer_schedule(&timers[i].timer, executor, WEIR_SECONDS(3600)), 0);
    assert_int_equal(
        weir_watch_start(&w.watch, weir_group_loop_at(group, 1), p.in, WEIR_WATCH_READ), 0);
    settle(executor);
    blocker b;
    block(&b, executor);
    for (int i = 0; i < 3; i++) {
        probes[i] = (probe)PROBE;
        assert_int_equal(weir_executor_post(executor, &probes[i].task), 0);
    }
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(100)), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(weir_group_at(group, 0))), 0);
    weir_group_get_pending(group, &pending);
    assert_int_equal(pending.children, 1);
    assert_int_equal(pending.tasks, 3);
    assert_int_equal(pending.timers, 2);
    assert_int_equal(pending.channels, 1);
    assert_false(weir_future_is_done(weir_group_terminated(group)));
    unblock(&b);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_group_get_pending(group, &pending);
    assert_int_equal(pending.children, 0);
    assert_int_equal(pending.tasks + pending.timers + pending.channels, 0);
    weir_group_free(group);
    pipe_close(&p);
    assert_int_equal(atomic_load(&w.stops), 1);
}

/* Between two passes of a shutdown, also without a bound. */
typedef struct pending_looker {
    weir_task task, look;
    weir_executor *executor;
    probe more[4];
    weir_group_pending seen;
} pending_looker;

static int look_at_pending(weir_task *task)
{
    pending_looker *self = WEIR_CONTAINER(task, pending_looker, look);
    weir_group_get_pending(weir_executor_group(self->executor), &self->seen);
    return 0;
}

static int post_more(weir_task *task)
{
    pending_looker *self = WEIR_CONTAINER(task, pending_looker, task);
    self->look.run = look_at_pending;
    weir_executor_post(self->executor, &self->look);
    for (int i = 0; i < 4; i++) {
        self->more[i] = (probe)PROBE;
        weir_executor_post(self->executor, &self->more[i].task);
    }
    return 0;
}

static void pending_counts_tasks_as_of_the_last_pass(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group =
        new_loops(&(weir_group_config){ .loops = 1, .is_manual = true, .clock = &clock.clock });
    pending_looker l = { .task = { .run = post_more }, .executor = weir_group_at(group, 0) };
    weir_group_pending after;
    assert_int_equal(weir_group_shutdown(group, WEIR_MS(100), WEIR_SECONDS(1)), 0);
    weir_group_step(group);
    assert_int_equal(weir_executor_post(l.executor, &l.task), 0);
    weir_group_step(group);
    weir_group_step(group);
    weir_group_get_pending(group, &after);
    weir_group_free(group);
    assert_int_equal(l.seen.children, 1);
    assert_int_equal(l.seen.tasks, 5);
    assert_int_equal(after.children, 1);
    assert_int_equal(after.tasks, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(atomic_load(&l.more[i].runs), 1);
}

/* Passes ----------------------------------------------------------------------------------------
 */

typedef struct pass_hook {
    weir_hook hook;
    weir_executor *executor;
    atomic_uint runs;
    uint64_t first_pass; /* as the stats say in the first call */
    bool removes_itself;
    struct pass_hook *removes;
    int code;
} pass_hook;

static void count_pass(weir_hook *hook)
{
    pass_hook *self = WEIR_CONTAINER(hook, pass_hook, hook);
    if (atomic_fetch_add(&self->runs, 1) == 0)
        self->first_pass = stats_of(self->executor).passes;
    if (self->removes_itself)
        self->code = weir_executor_remove_hook(self->executor, hook);
    if (self->removes != NULL) {
        self->code = weir_executor_remove_hook(self->executor, &self->removes->hook);
        self->removes = NULL;
    }
}

static int add_pass_hook(void *arg)
{
    pass_hook *self = arg;
    return weir_executor_add_pass_hook(self->executor, &self->hook);
}

static int remove_pass_hook(void *arg)
{
    pass_hook *self = arg;
    return weir_executor_remove_hook(self->executor, &self->hook);
}

/* Stepped by hand, so that passes can be counted. */
static weir_group *new_manual(void)
{
    return new_loops(&(weir_group_config){ .loops = 1, .is_manual = true });
}

static void s065_hook_is_called_once_a_pass_of_a_loop(void **state)
{
    (void)state;
    weir_group *group = new_manual();
    weir_executor *executor = weir_group_at(group, 0);
    pass_hook h = { .hook = { .run = count_pass }, .executor = executor };
    assert_int_equal(call_on(executor, add_pass_hook, &h), 0);
    uint64_t passes = stats_of(executor).passes;
    unsigned runs = atomic_load(&h.runs);
    for (int i = 0; i < 50; i++) {
        probe p = PROBE;
        if (i % 3 == 0)
            assert_int_equal(weir_executor_post(executor, &p.task), 0);
        weir_group_step(group);
        assert_int_equal(atomic_load(&p.runs), i % 3 == 0);
    }
    assert_int_equal(stats_of(executor).passes - passes, 50);
    assert_int_equal(atomic_load(&h.runs) - runs, 50);
    /* And taken away it is not any more. */
    assert_int_equal(call_on(executor, remove_pass_hook, &h), 0);
    runs = atomic_load(&h.runs);
    weir_group_step(group);
    assert_int_equal(atomic_load(&h.runs), runs);
    assert_int_equal(call_on(executor, remove_pass_hook, &h), WEIR_ENOTFOUND);
    end_group(group);
}

static void s065_hooks_of_a_running_loop_count_its_passes(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    pass_hook h = { .hook = { .run = count_pass }, .executor = executor };
    assert_int_equal(call_on(executor, add_pass_hook, &h), 0);
    for (int i = 0; i < 100; i++)
        settle(executor);
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    /* The first call is in the pass that adds it, before that is counted. */
    assert_int_equal(stats_of(executor).passes, h.first_pass + atomic_load(&h.runs));
    weir_group_free(group);
}

static int add_five_hooks(void *arg)
{
    int code = 0;
    for (int i = 0; i < 5 && code == 0; i++)
        code = add_pass_hook((pass_hook *)arg + i);
    return code;
}

static void s065_hook_may_remove_itself_or_another(void **state)
{
    (void)state;
    weir_group *group = new_manual();
    weir_executor *executor = weir_group_at(group, 0);
    pass_hook h[5];
    for (int i = 0; i < 5; i++)
        h[i] = (pass_hook){ .hook = { .run = count_pass }, .executor = executor, .code = 1 };
    h[0].removes_itself = true;
    h[1].removes = &h[2]; /* the next */
    h[4].removes = &h[3]; /* the one before */
    assert_int_equal(call_on(executor, add_five_hooks, h), 0);
    unsigned passes = atomic_load(&h[1].runs);
    for (int i = 0; i < 10; i++)
        weir_group_step(group);
    /* What was removed may come again. */
    assert_int_equal(call_on(executor, add_pass_hook, &h[2]), 0);
    weir_group_step(group);
    end_group(group);
    assert_int_equal(h[0].code, 0);
    assert_int_equal(h[1].code, 0);
    assert_int_equal(h[4].code, 0);
    assert_int_equal(atomic_load(&h[0].runs), 1);
    assert_true(atomic_load(&h[1].runs) > passes + 10);
    assert_int_equal(atomic_load(&h[4].runs), atomic_load(&h[1].runs));
    assert_in_range(atomic_load(&h[2].runs), 1, atomic_load(&h[1].runs) - 10);
    assert_int_equal(atomic_load(&h[3].runs), 1);
}

static void s069_hook_is_called_on_an_empty_pass_of_a_loop(void **state)
{
    (void)state;
    weir_group *group = new_manual();
    weir_executor *executor = weir_group_at(group, 0);
    pass_hook h = { .hook = { .run = count_pass }, .executor = executor };
    assert_int_equal(call_on(executor, add_pass_hook, &h), 0);
    while (weir_group_step(group) > 0) {
    }
    unsigned runs = atomic_load(&h.runs);
    uint64_t tasks = stats_of(executor).tasks_run;
    assert_int_equal(weir_group_step(group), 0); /* there was nothing to do */
    assert_int_equal(atomic_load(&h.runs), runs + 1);
    assert_int_equal(stats_of(executor).tasks_run, tasks);
    end_group(group);
}

static void s069_hook_is_called_on_an_empty_pass_of_an_executor(void **state)
{
    (void)state;
    weir_group *group = new_group(&(weir_group_config){ .count = 1, .is_manual = true });
    weir_executor *executor = weir_group_at(group, 0);
    pass_hook h = { .hook = { .run = count_pass }, .executor = executor };
    assert_int_equal(call_on(executor, add_pass_hook, &h), 0);
    while (weir_group_step(group) > 0) {
    }
    unsigned runs = atomic_load(&h.runs);
    assert_int_equal(weir_group_step(group), 0);
    assert_int_equal(atomic_load(&h.runs), runs + 1);
    end_group(group);
}

/* The tail goes before the hooks, and both before what is deferred. */
typedef struct order {
    weir_task task, tail;
    weir_hook hook;
    weir_deferred deferred[3];
    weir_executor *executor;
    char text[16];
} order;

static void note(order *self, char what)
{
    self->text[strlen(self->text)] = what;
}

static void order_deferred(weir_deferred *deferred)
{
    order *self = WEIR_CONTAINER(deferred, order, deferred[0]);
    note(self, '1');
}

static void order_second(weir_deferred *deferred)
{
    note(WEIR_CONTAINER(deferred, order, deferred[1]), '2');
}

static void order_third(weir_deferred *deferred)
{
    note(WEIR_CONTAINER(deferred, order, deferred[2]), '3');
}

static int order_tail(weir_task *task)
{
    order *self = WEIR_CONTAINER(task, order, tail);
    note(self, 't');
    self->deferred[2].run = order_third;
    weir__loop_defer(weir_loop_current(), &self->deferred[2]);
    return 0;
}

static void order_hook(weir_hook *hook)
{
    order *self = WEIR_CONTAINER(hook, order, hook);
    note(self, 'h');
    weir_executor_remove_hook(self->executor, hook);
}

static int order_run(weir_task *task)
{
    order *self = WEIR_CONTAINER(task, order, task);
    self->deferred[0].run = order_deferred;
    self->deferred[1].run = order_second;
    weir__loop_defer(weir_loop_current(), &self->deferred[0]);
    weir__loop_defer(weir_loop_current(), &self->deferred[1]);
    weir_executor_add_pass_hook(self->executor, &self->hook);
    weir_executor_post_tail(self->executor, &self->tail);
    note(self, 'r');
    return 0;
}

static void deferred_runs_last_and_in_order(void **state)
{
    (void)state;
    weir_group *group = new_manual();
    order o = { .task = { .run = order_run },
                .tail = { .run = order_tail },
                .hook = { .run = order_hook },
                .executor = weir_group_at(group, 0) };
    assert_int_equal(weir_executor_post(o.executor, &o.task), 0);
    assert_int_equal(weir_group_step(group), 1);
    assert_string_equal(o.text, "rth123");
    weir_group_step(group);
    assert_string_equal(o.text, "rth123");
    end_group(group);
}

/* What was deferred by the last task still runs. */
static int defer_late(weir_task *task)
{
    order *self = WEIR_CONTAINER(task, order, task);
    self->deferred[0].run = order_deferred;
    weir__loop_defer(weir_loop_current(), &self->deferred[0]);
    note(self, 'r');
    return 0;
}

static void deferred_by_the_last_task_runs_before_the_end(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    order o = { .task = { .run = defer_late }, .executor = weir_group_at(group, 0) };
    blocker b;
    block(&b, o.executor);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_executor_post(o.executor, &o.task), 0);
    unblock(&b);
    weir_group_free(group);
    assert_string_equal(o.text, "r1");
}

/* Looking ---------------------------------------------------------------------------------------
 */

static void stats_tell_what_a_loop_did(void **state)
{
    (void)state;
    weir_group *group = new_manual();
    weir_loop *loop = weir_group_loop_at(group, 0);
    weir_loop_stats stats = loop_stats_of(loop);
    assert_int_equal(stats.turns, 0);
    uint64_t polls = stats.polls;
    assert_int_equal(polls, is_over_uring()); /* a manual ring submits its wake-up at once */
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(10);
    probe_timer t = PROBE_TIMER;
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, WEIR_WATCH_READ), 0);
    assert_int_equal(weir_timer_schedule(&t.timer, weir_group_at(group, 0), WEIR_SECONDS(9)), 0);
    weir_group_step(group);
    weir_group_step(group);
    pipe_put(&p, 1);
    weir_group_step(group);
    stats = loop_stats_of(loop);
    assert_int_equal(stats.turns, 3);
    assert_int_equal(stats.polls - polls, 3);
    assert_int_equal(stats.tasks_run, 2);
    assert_int_equal(stats.timers, 1);
    assert_int_equal(stats.channels, 1);
    assert_int_equal(stats.completions, 1);
    assert_int_equal(stats.wakeups, 1);
    assert_int_equal(stats.rebuilds, 0);
    end_group(group);
    pipe_close(&p);
}

static int tell_now(void *arg)
{
    *(int64_t *)arg = weir_loop_now_ns(weir_loop_current());
    return 0;
}

static void now_is_the_clock_of_the_turn(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 4711);
    weir_group *group = new_loops(&(weir_group_config){ .loops = 1, .clock = &clock.clock });
    int64_t now_ns = 0;
    assert_int_equal(call_on(weir_group_at(group, 0), tell_now, &now_ns), 0);
    assert_int_equal(now_ns, 4711);
    end_group(group);
}

static void io_ratio_can_be_changed(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(1);
    weir_loop *loop = weir_group_loop_at(group, 0);
    assert_int_equal(weir_loop_set_io_ratio(loop, 1), 0);
    assert_int_equal(weir_loop_set_io_ratio(loop, 100), 0);
    assert_int_equal(weir_loop_set_io_ratio(loop, 0), -EINVAL);
    assert_int_equal(weir_loop_set_io_ratio(loop, 101), -EINVAL);
    assert_int_equal(weir_loop_set_io_ratio(loop, -1), -EINVAL);
    assert_int_equal(weir_loop_set_io_ratio(NULL, 50), -EINVAL);
    settle(weir_group_at(group, 0));
    end_group(group);
}

/* Every accepted task ends in one of run and dropped, also when a poller is in the middle. */
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
        self->codes[i] = weir_executor_post(self->executor, &self->probes[i].task);
        if (self->codes[i] < 0)
            break;
    }
    self->count = i < self->count ? i + 1 : i;
    return NULL;
}

static void post_while_it_ends(unsigned round)
{
    enum { THREADS = 3, COUNT = 20000 };
    weir_group *group = new_loops_of(1);
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
            int ends = atomic_load(&posters[i].probes[k].runs) +
                       atomic_load(&posters[i].probes[k].drops);
            assert_int_equal(ends, posters[i].codes[k] == 0 ? 1 : 0);
        }
        free(posters[i].probes);
        free(posters[i].codes);
    }
}

static void s060_tasks_posted_at_the_end_of_a_loop_are_not_lost(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; round++)
        post_while_it_ends(round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(group_is_freed_after_the_posts_to_it_have_returned),
        weir_case(s007_default_is_two_loops_per_cpu),
        weir_case(s008_bad_numbers_are_refused_by_name),
        weir_case(numbers_at_their_limits_are_taken),
        weir_case(environment_chooses_the_io),
        weir_case(s014_factory_makes_each_loop),
        weir_case(s015_failing_loop_ends_those_before_it),
        weir_case(s018_power_of_two_loops_go_by_turns),
        weir_case(s019_generic_choice_of_loops_survives_the_wrap),
        weir_case(s020_chooser_of_loops_follows_the_count_or_the_user),
        weir_case(s021_group_terminates_with_its_last_loop),
        weir_case(s022_loops_are_listed_in_order),
        weir_case(s023_loop_knows_its_group),
        weir_case(executors_are_no_loops),
        weir_case(s024_each_registration_is_one_choice),
        weir_case(pinned_loops_stay_on_one_cpu_each),
        weir_case(s025_no_thread_before_the_first_task_of_a_loop),
        weir_case(s026_sixteen_threads_start_one_thread_of_a_loop),
        weir_case(s027_failed_start_of_a_loop_can_be_tried_again),
        weir_case(s027_failed_poller_of_a_loop_can_be_tried_again),
        weir_case(s028_state_of_a_loop_never_goes_back),
        weir_case(s029_loop_is_current_on_its_own_thread_only),
        weir_case(s030_all_tasks_of_a_loop_run_on_one_thread),
        weir_case(s032_body_that_returns_ends_the_loop),
        weir_case(s033_body_of_a_loop_that_forgets_the_shutdown_is_reported),
        weir_case(loop_that_confirms_is_not_reported),
        weir_case(s034_what_is_queued_runs_before_the_end_of_a_loop),
        weir_case(s035_epoll_is_closed_before_the_future_completes),
        weir_case(s036_tasks_left_over_by_a_loop_are_reported),
        weir_case(s039_loop_ends_when_it_was_quiet_for_the_quiet_period),
        weir_case(s039_loop_ends_in_real_time_after_the_quiet_period),
        weir_case(s040_loop_ends_after_the_timeout_though_tasks_keep_coming),
        weir_case(s041_loop_without_quiet_period_drains_and_ends),
        weir_case(s042_timeout_of_a_loop_below_the_quiet_period_is_refused),
        weir_case(s043_never_started_loop_terminates),
        weir_case(s044_timers_of_a_loop_are_cancelled_at_shutdown),
        weir_case(s045_loop_refuses_to_await_its_own_end),
        weir_case(no_future_is_awaited_on_a_loops_thread),
        weir_case(free_on_a_loops_thread_is_misuse),
        weir_case(pending_tells_what_keeps_it),
        weir_case(pending_counts_tasks_as_of_the_last_pass),
        weir_case(s065_hook_is_called_once_a_pass_of_a_loop),
        weir_case(s065_hooks_of_a_running_loop_count_its_passes),
        weir_case(s065_hook_may_remove_itself_or_another),
        weir_case(s069_hook_is_called_on_an_empty_pass_of_a_loop),
        weir_case(s069_hook_is_called_on_an_empty_pass_of_an_executor),
        weir_case(deferred_runs_last_and_in_order),
        weir_case(deferred_by_the_last_task_runs_before_the_end),
        weir_case(stats_tell_what_a_loop_did),
        weir_case(now_is_the_clock_of_the_turn),
        weir_case(io_ratio_can_be_changed),
        weir_case(s060_tasks_posted_at_the_end_of_a_loop_are_not_lost),
    };
    return cmocka_run_group_tests(tests, choose_backend, NULL);
}
