/* SPDX-License-Identifier: MIT */
/* Groups: making children, choosing among them, and ending them all. */
#include "executors.h"

#include "exec/group.h"
#include "exec/plain.h"

#include <stdio.h>

/* How many ---------------------------------------------------------------------------------- */

static void s007_default_is_two_per_cpu(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    unsetenv("WEIR_LOOPS");
    weir_group *group = new_group(NULL);
    assert_int_equal(weir_group_count(group), 2 * CPU_COUNT(&all));
    end_group(group);

    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    group = new_group_of(0);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(weir_group_count(group), 2);
    end_group(group);
}

static void s007_environment_overrides_the_default(void **state)
{
    (void)state;
    setenv("WEIR_LOOPS", "3", 1);
    weir_group *group = new_group_of(0);
    assert_int_equal(weir_group_count(group), 3);
    end_group(group);
    group = new_group_of(2);
    assert_int_equal(weir_group_count(group), 2);
    end_group(group);
    setenv("WEIR_LOOPS", "", 1);
    group = new_group_of(0);
    assert_true(weir_group_count(group) >= 2);
    end_group(group);
    unsetenv("WEIR_LOOPS");
}

static void s008_negative_count_is_refused_by_name(void **state)
{
    (void)state;
    weir_group *group = NULL;
    weir_error error = { 0 };
    weir_group_config config = { .count = -1 };
    assert_int_equal(weir_group_new_executors(&group, &config, &error), -EINVAL);
    assert_null(group);
    assert_int_equal(error.code, -EINVAL);
    assert_non_null(strstr(error.message, "-1"));
    assert_int_equal(weir_group_new_executors(&group, &config, NULL), -EINVAL);
    config = (weir_group_config){ .count = 1, .max_pending_tasks = -7 };
    assert_int_equal(weir_group_new_executors(&group, &config, &error), -EINVAL);
    assert_non_null(strstr(error.message, "-7"));
    assert_int_equal(weir_group_new_executors(NULL, NULL, NULL), -EINVAL);
}

/* Making ------------------------------------------------------------------------------------- */

typedef struct factory {
    int calls, fail_at, terminated, args_wrong;
    weir_listener ends[8];
    char names[8][16];
    struct factory *self;
} factory;

static factory *current_factory;

static void count_end(weir_listener *listener, weir_future *future)
{
    (void)listener;
    (void)future;
    __atomic_fetch_add(&current_factory->terminated, 1, __ATOMIC_SEQ_CST);
}

static int make_child(void *arg, const weir_executor_config *config, weir_executor **executor)
{
    factory *self = arg;
    self->args_wrong += self->self != self;
    int at = self->calls++;
    if (at == self->fail_at)
        return -EMFILE;
    strncpy(self->names[at], config->name, sizeof self->names[at] - 1);
    int code = weir__plain_executor_new(executor, config);
    if (code < 0)
        return code;
    self->ends[at] = (weir_listener){ .done = count_end };
    weir_future_listen(weir_executor_terminated(*executor), &self->ends[at]);
    return 0;
}

static void factory_begin(factory *self, int fail_at)
{
    *self = (factory){ .fail_at = fail_at, .self = self };
    current_factory = self;
}

static void s014_factory_makes_each_child(void **state)
{
    (void)state;
    factory f;
    factory_begin(&f, -1);
    weir_group *group = NULL;
    weir_group_config config = { .count = 5, .name = "made" };
    assert_int_equal(weir__group_new(&group, &config, make_child, &f, NULL), 0);
    assert_int_equal(f.calls, 5);
    assert_int_equal(f.args_wrong, 0);
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "made-%d", i);
        assert_string_equal(f.names[i], name);
    }
    end_group(group);
    assert_int_equal(f.terminated, 5);
}

static void s015_failing_child_ends_those_before_it(void **state)
{
    (void)state;
    for (int fail_at = 0; fail_at < 5; fail_at++) {
        factory f;
        factory_begin(&f, fail_at);
        weir_group *group = NULL;
        weir_error error = { 0 };
        weir_group_config config = { .count = 5 };
        assert_int_equal(weir__group_new(&group, &config, make_child, &f, &error), -EMFILE);
        assert_null(group);
        assert_int_equal(error.code, -EMFILE);
        assert_non_null(strstr(error.message, "failed to create a child event loop"));
        assert_int_equal(f.calls, fail_at + 1);
        assert_int_equal(f.terminated, fail_at);
    }
}

static void read_comm(char name[32])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)gettid());
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(name, 32, file) == NULL)
        name[0] = '\0';
    if (file != NULL)
        fclose(file);
    name[strcspn(name, "\n")] = '\0';
}

static int tell_comm(void *arg)
{
    read_comm(arg);
    return 0;
}

/* A thread is named by who starts it, maybe only after its first task has begun. */
static void wait_for_comm(weir_executor *executor, const char *expected)
{
    char name[32];
    do
        assert_int_equal(call_on(executor, tell_comm, name), 0);
    while (strcmp(name, expected) != 0);
}

static void s017_threads_come_from_the_hook(void **state)
{
    (void)state;
    starter hook = { .code = 0 };
    weir_group *group = new_group(&(weir_group_config){
        .count = 3, .name = "hooked", .start = starter_start, .start_arg = &hook });
    assert_int_equal(atomic_load(&hook.calls), 0);
    for (size_t i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "hooked-%d", (int)i);
        wait_for_comm(weir_group_at(group, i), name);
        assert_string_equal(hook.names[i], name);
    }
    assert_int_equal(atomic_load(&hook.calls), 3);
    end_group(group);
    starter_join(&hook);
}

static void threads_of_weirs_own_have_names(void **state)
{
    (void)state;
    weir_group *group = new_group(&(weir_group_config){ .count = 1, .name = "own" });
    wait_for_comm(weir_group_at(group, 0), "own-0");
    end_group(group);
}

static int reject_never(void *arg, weir_executor *executor, weir_task *task)
{
    (void)arg;
    (void)executor;
    (void)task;
    return -EIO;
}

static void s027_hook_that_fails_once_is_asked_again(void **state)
{
    (void)state;
    starter hook = { .failures_left = 1, .code = -EAGAIN };
    /* A start that fails so is no full queue. */
    weir_group *group = new_group(&(weir_group_config){
        .count = 2, .start = starter_start, .start_arg = &hook, .reject = reject_never });
    probe p = PROBE, q = PROBE;
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), -EAGAIN);
    assert_int_equal(weir_executor_post(weir_group_at(group, 1), &q.task), 0);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), 0);
    end_group(group);
    starter_join(&hook);
    assert_int_equal(atomic_load(&p.runs), 1);
    assert_int_equal(atomic_load(&q.runs), 1);
}

/* Choosing ----------------------------------------------------------------------------------- */

static size_t next_index(weir_group *group)
{
    weir_executor *child = weir_group_next(group);
    for (size_t i = 0; i < weir_group_count(group); i++) {
        if (weir_group_at(group, i) == child)
            return i;
    }
    return SIZE_MAX;
}

static void s018_power_of_two_goes_by_turns(void **state)
{
    (void)state;
    weir_group *group = new_group_of(8);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(next_index(group), i % 8);
    end_group(group);
}

static void s019_generic_survives_the_counters_wrap(void **state)
{
    (void)state;
    static const uint64_t starts[] = { UINT64_MAX - 8, INT64_MAX - 4, UINT32_MAX - 4, INT32_MAX };
    weir_group *group = new_group_of(3);
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
    weir__group_set_counter(group, UINT64_MAX);
    for (int i = 0; i < 9; i++)
        assert_true(next_index(group) < 3);
    end_group(group);
}

/* Posts a task while the thread is being started, then fails to start it. */
typedef struct poster_in_start {
    starter threads;
    weir_executor *executor;
    probe probe;
    int code; /* of the post */
} poster_in_start;

static int post_and_start(void *start_arg, const char *name, weir_thread_fn body, void *arg)
{
    poster_in_start *self = start_arg;
    if (atomic_load(&self->threads.calls) == 0)
        self->code = weir_executor_post(self->executor, &self->probe.task);
    return starter_start(&self->threads, name, body, arg);
}

/* The post found a started executor and returned 0. */
static void failed_start_for_a_channel_is_retried_for_posted_tasks(void **state)
{
    (void)state;
    for (int failures = 1; failures <= 2; failures++) {
        poster_in_start self = { .threads = { .failures_left = failures, .code = -EAGAIN },
                                 .probe = PROBE,
                                 .code = 1 };
        weir_group *group = new_group(
            &(weir_group_config){ .count = 1, .start = post_and_start, .start_arg = &self });
        self.executor = weir_group_at(group, 0);
        harness_log_begin(WEIR_LOG_ERROR);
        assert_ptr_equal(weir__group_choose(group), self.executor);
        assert_int_equal(self.code, 0);
        assert_int_equal(atomic_load(&self.threads.calls), 2);
        assert_int_equal(harness_log_has("has tasks, but no thread to run them"), failures == 2);
        harness_log_end();
        if (failures == 2)
            assert_ptr_equal(weir__group_choose(group), self.executor);
        WAIT_FOR(atomic_load(&self.probe.runs) == 1);
        end_group(group);
        starter_join(&self.threads);
    }
}

static size_t always(void *chooser_arg, weir_group *group, uint64_t n, size_t count)
{
    (void)group;
    (void)n;
    (void)count;
    return *(size_t *)chooser_arg;
}

static void s020_chooser_follows_the_count_or_the_user(void **state)
{
    (void)state;
    static const char *const names[] = { "power of two", "power of two", "generic",
                                         "power of two", "generic",      "generic" };
    for (int count = 1; count <= 6; count++) {
        weir_group *group = new_group_of(count);
        assert_string_equal(weir_group_chooser_name(group), names[count - 1]);
        end_group(group);
    }
    size_t wish = 2;
    weir_group *group =
        new_group(&(weir_group_config){ .count = 4, .chooser = always, .chooser_arg = &wish });
    assert_string_equal(weir_group_chooser_name(group), "custom");
    for (int i = 0; i < 5; i++)
        assert_int_equal(next_index(group), 2);
    wish = 100;
    assert_int_equal(next_index(group), 0);
    end_group(group);
}

static void least_loaded_is_chosen(void **state)
{
    (void)state;
    weir_group *group = new_group(&(weir_group_config){
        .count = 3, .max_pending_tasks = 16, .chooser = weir_choose_least_loaded });
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(next_index(group), i % 3);
    blocker b[2];
    probe p[3] = { PROBE, PROBE, PROBE };
    block(&b[0], weir_group_at(group, 0));
    block(&b[1], weir_group_at(group, 2));
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p[0].task), 0);
    assert_int_equal(weir_executor_post(weir_group_at(group, 2), &p[1].task), 0);
    assert_int_equal(weir_executor_post(weir_group_at(group, 2), &p[2].task), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(next_index(group), 1);
    unblock(&b[0]);
    unblock(&b[1]);
    end_group(group);
}

/* Looking ------------------------------------------------------------------------------------ */

static void s022_children_are_listed_in_order(void **state)
{
    (void)state;
    weir_group *group = new_group(&(weir_group_config){ .count = 5, .name = "child" });
    assert_int_equal(weir_group_count(group), 5);
    for (size_t i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "child-%d", (int)i);
        assert_string_equal(weir_executor_name(weir_group_at(group, i)), name);
    }
    assert_null(weir_group_at(group, 5));
    assert_null(weir_group_at(group, SIZE_MAX));
    assert_null(weir_group_at(NULL, 0));
    assert_int_equal(weir_group_count(NULL), 0);
    end_group(group);
}

static void s023_child_knows_its_group(void **state)
{
    (void)state;
    weir_group *group = new_group_of(3);
    for (size_t i = 0; i < 3; i++)
        assert_ptr_equal(weir_executor_group(weir_group_at(group, i)), group);
    end_group(group);
}

/* Ending ------------------------------------------------------------------------------------- */

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

static void s021_group_terminates_with_its_last_child(void **state)
{
    (void)state;
    weir_group *group = new_group_of(4);
    group_end e = { .listener = { .done = see_group_end }, .group = group };
    weir_future_listen(weir_group_terminated(group), &e.listener);
    for (size_t i = 0; i < 4; i++) {
        weir_executor *child = weir_group_at(group, i);
        assert_false(weir_future_is_done(weir_group_terminated(group)));
        assert_int_equal(atomic_load(&e.calls), 0);
        assert_int_equal(weir_executor_shutdown(child, 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir_future_await(weir_executor_terminated(child)), 0);
    }
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_group_free(group);
    assert_int_equal(atomic_load(&e.calls), 1);
    assert_true(e.are_all_done);
}

static void bad_shutdown_is_refused(void **state)
{
    (void)state;
    weir_group *group = new_group_of(2);
    assert_int_equal(weir_group_shutdown(NULL, 0, 1), -EINVAL);
    assert_int_equal(weir_group_shutdown(group, 2, 1), -EINVAL);
    assert_int_equal(weir_group_shutdown(group, -1, 1), -EINVAL);
    settle(weir_group_at(group, 0));
    end_group(group);
    weir_group_free(NULL);
}

static int free_group(void *arg)
{
    weir_group_free(arg);
    return 0;
}

static void free_inside(void *arg)
{
    weir_group *group = new_group_of(1);
    (void)arg;
    call_on(weir_group_at(group, 0), free_group, group);
}

static void free_on_its_own_thread_is_misuse(void **state)
{
    (void)state;
    if (HARNESS_MISUSE_ABORTS) {
        harness_expect_abort(free_inside, NULL, "weir_group_free");
        return;
    }
    weir_group *group = new_group_of(1);
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(call_on(weir_group_at(group, 0), free_group, group), 0);
    assert_true(harness_log_has("weir_group_free"));
    assert_int_equal(harness_log_end(), 1);
    settle(weir_group_at(group, 0));
    end_group(group);
}

static void group_is_freed_on_a_thread_of_another(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1), *other = new_group_of(1);
    settle(weir_group_at(other, 0));
    assert_int_equal(weir_group_shutdown(other, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(call_on(weir_group_at(group, 0), free_group, other), 0);
    end_group(group);
}

/* Faults ------------------------------------------------------------------------------------- */

static void without_memory_nothing_is_made(void **state)
{
    (void)state;
    weir_group *group = NULL;
    weir_group_config config = { .count = 4 };
    unsigned seen = UINT32_MAX, n = 0;
    int code;
    do {
        weir_error error = { 0 };
        weir_allocator_stats before, after;
        weir_allocator_get_stats(&before);
        harness_fail_nth("alloc", ++n, -ENOMEM);
        code = weir_group_new_executors(&group, &config, &error);
        seen = harness_fail_end();
        weir_allocator_get_stats(&after);
        assert_int_equal(code, seen >= n ? -ENOMEM : 0);
        if (code < 0) {
            assert_null(group);
            assert_int_equal(error.code, -ENOMEM);
            assert_int_equal(after.live, before.live);
        }
    } while (code < 0);
    assert_true(n > 4);
    settle(weir_group_at(group, 3));
    end_group(group);
}

static void thread_that_does_not_start_is_tried_again(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 4; n++) {
        weir_group *group = new_group_of(4);
        probe probes[4] = { PROBE, PROBE, PROBE, PROBE };
        harness_fail_nth("pthread_create", n, -EAGAIN);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(weir_executor_post(weir_group_at(group, i), &probes[i].task),
                             i + 1 == n ? -EAGAIN : 0);
        assert_int_equal(harness_fail_end(), 4);
        assert_int_equal(weir_executor_get_state(weir_group_at(group, n - 1)),
                         WEIR_EXECUTOR_NOT_STARTED);
        assert_int_equal(weir_executor_post(weir_group_at(group, n - 1), &probes[n - 1].task), 0);
        end_group(group);
        for (int i = 0; i < 4; i++)
            assert_int_equal(atomic_load(&probes[i].runs), 1);
    }
}

static void group_ends_though_no_thread_starts(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 3; n++) {
        weir_group *group = new_group_of(3);
        harness_fail_nth("pthread_create", n, -EAGAIN);
        weir_group_shutdown(group, 0, WEIR_SECONDS(1));
        assert_int_equal(harness_fail_end(), 3);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        weir_group_free(group);
    }
}

static void *shut_down(void *arg)
{
    weir_group_shutdown(arg, 0, WEIR_SECONDS(10));
    return NULL;
}

/* Who shuts down may still be at it when the end has come, and somebody else frees. */
static void freed_while_another_thread_shuts_down(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        weir_group *group = new_group_of(2);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, shut_down, group), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        weir_group_free(group);
        pthread_join(thread, NULL);
    }
}

/* A listener that is added after the end is notified by the thread that adds it
 * -------------------- */

typedef struct late_listener {
    weir_listener listener;
    weir_future *future;
    atomic_bool is_called, is_freed;
} late_listener;

static void on_late(weir_listener *listener, weir_future *future)
{
    late_listener *self = WEIR_CONTAINER(listener, late_listener, listener);
    (void)future;
    atomic_store(&self->is_called, true);
    for (int i = 0; i < 100 && !atomic_load(&self->is_freed); i++)
        usleep(500); /* the group's owner has every chance to free it */
}

static void *listen_late(void *arg)
{
    late_listener *self = arg;
    weir_future_listen(self->future, &self->listener);
    return NULL;
}

/* The address sanitizer notices a future that is gone. */
static void futures_of_a_freed_group_outlive_their_late_listeners(void **state)
{
    (void)state;
    for (int is_executors = 0; is_executors < 2; is_executors++) {
        weir_group *group = new_group_of(1);
        late_listener self = { .listener.done = on_late };
        pthread_t thread;
        self.future = is_executors ? weir_executor_terminated(weir_group_at(group, 0))
                                   : weir_group_terminated(group);
        weir_group_shutdown(group, 0, 0);
        assert_int_equal(weir_future_await(self.future), 0);
        assert_int_equal(pthread_create(&thread, NULL, listen_late, &self), 0);
        WAIT_FOR(atomic_load(&self.is_called));
        weir_group_free(group);
        atomic_store(&self.is_freed, true);
        pthread_join(thread, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(futures_of_a_freed_group_outlive_their_late_listeners),
        weir_case(s007_default_is_two_per_cpu),
        weir_case(s007_environment_overrides_the_default),
        weir_case(s008_negative_count_is_refused_by_name),
        weir_case(s014_factory_makes_each_child),
        weir_case(s015_failing_child_ends_those_before_it),
        weir_case(s017_threads_come_from_the_hook),
        weir_case(threads_of_weirs_own_have_names),
        weir_case(s027_hook_that_fails_once_is_asked_again),
        weir_case(s018_power_of_two_goes_by_turns),
        weir_case(s019_generic_survives_the_counters_wrap),
        weir_case(failed_start_for_a_channel_is_retried_for_posted_tasks),
        weir_case(s020_chooser_follows_the_count_or_the_user),
        weir_case(least_loaded_is_chosen),
        weir_case(s022_children_are_listed_in_order),
        weir_case(s023_child_knows_its_group),
        weir_case(s021_group_terminates_with_its_last_child),
        weir_case(bad_shutdown_is_refused),
        weir_case(free_on_its_own_thread_is_misuse),
        weir_case(group_is_freed_on_a_thread_of_another),
        weir_case(without_memory_nothing_is_made),
        weir_case(thread_that_does_not_start_is_tried_again),
        weir_case(group_ends_though_no_thread_starts),
        weir_case(freed_while_another_thread_shuts_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
