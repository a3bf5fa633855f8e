/* SPDX-License-Identifier: MIT */
/* A thread for each task. */
#include "executors.h"

#include <weir/threads.h>

#include <stdio.h>

static weir_threads *new_threads(const char *name, size_t stack_bytes)
{
    weir_threads *threads = NULL;
    assert_int_equal(weir_threads_new(&threads, name, stack_bytes), 0);
    assert_non_null(threads);
    return threads;
}

/* A body that tells where it runs, and stays until it may end. */
typedef struct body {
    int tid;
    char comm[32];
    atomic_bool is_running, may_end;
    atomic_int calls;
} body;

static void read_comm(int tid, char name[32])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(name, 32, file) == NULL)
        name[0] = '\0';
    if (file != NULL)
        fclose(file);
    name[strcspn(name, "\n")] = '\0';
}

static void run_body(void *arg)
{
    body *self = arg;
    self->tid = (int)gettid();
    atomic_fetch_add(&self->calls, 1);
    atomic_store(&self->is_running, true);
    WAIT_FOR(atomic_load(&self->may_end));
}

static void start(weir_threads *threads, const char *name, body *b)
{
    *b = (body){ .tid = 0 };
    assert_int_equal(weir_threads_start(threads, name, run_body, b), 0);
    WAIT_FOR(atomic_load(&b->is_running));
}

/* A thread is named by who starts it; that has happened when the start has returned. */
static void assert_comm(const body *b, const char *expected)
{
    char name[32];
    read_comm(b->tid, name);
    assert_string_equal(name, expected);
}

static void s016_each_task_gets_a_thread_of_its_own(void **state)
{
    (void)state;
    weir_threads *threads = new_threads(NULL, 0);
    size_t before = count_threads();
    body b[3];
    for (int i = 0; i < 3; i++) {
        start(threads, NULL, &b[i]);
        assert_int_equal(weir_threads_count(threads), i + 1);
        assert_int_equal(count_threads(), before + (size_t)i + 1);
        assert_int_not_equal(b[i].tid, gettid());
        for (int k = 0; k < i; k++)
            assert_int_not_equal(b[i].tid, b[k].tid);
    }
    for (int i = 0; i < 3; i++)
        atomic_store(&b[i].may_end, true);
    weir_threads_free(threads);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&b[i].calls), 1);
}

/* One that has ended does not come back for the next task, though the others live. */
static void s016_no_thread_is_used_twice(void **state)
{
    (void)state;
    weir_threads *threads = new_threads(NULL, 0);
    body stays, b[20];
    start(threads, NULL, &stays);
    for (int i = 0; i < 20; i++) {
        start(threads, NULL, &b[i]);
        assert_int_equal(weir_threads_count(threads), 2);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(b[i].tid, b[k].tid);
        atomic_store(&b[i].may_end, true);
        WAIT_FOR(weir_threads_count(threads) == 1);
    }
    atomic_store(&stays.may_end, true);
    weir_threads_free(threads);
}

static void names_are_the_tasks_or_the_default(void **state)
{
    (void)state;
    weir_threads *threads = new_threads("jobs", 0), *nameless = new_threads(NULL, 0);
    body b[3];
    start(threads, NULL, &b[0]);
    start(threads, "special", &b[1]);
    start(nameless, NULL, &b[2]);
    assert_comm(&b[0], "jobs");
    assert_comm(&b[1], "special");
    assert_comm(&b[2], "weir-task");
    for (int i = 0; i < 3; i++)
        atomic_store(&b[i].may_end, true);
    weir_threads_free(threads);
    weir_threads_free(nameless);
}

static void name_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char name[] = "a name that no thread can have";
    weir_threads *threads = new_threads(name, 0);
    memset(name, 'x', sizeof name - 1); /* it was copied */
    body b[2];
    start(threads, NULL, &b[0]);
    start(threads, "another name that is too long", &b[1]);
    assert_comm(&b[0], "a name that no ");
    assert_comm(&b[1], "another name th");
    for (int i = 0; i < 2; i++)
        atomic_store(&b[i].may_end, true);
    weir_threads_free(threads);
}

static void tell_stack(void *arg)
{
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstacksize(&attributes, arg);
        pthread_attr_destroy(&attributes);
    }
}

static void stack_is_as_large_as_asked(void **state)
{
    (void)state;
    size_t size = 0, wanted = (size_t)1 << 20;
    weir_threads *threads = new_threads(NULL, wanted);
    assert_int_equal(weir_threads_start(threads, NULL, tell_stack, &size), 0);
    weir_threads_free(threads);
    assert_in_range(size, wanted, wanted + 65536);
}

static void s017_threads_start_those_of_a_group(void **state)
{
    (void)state;
    weir_threads *threads = new_threads("unused", 0);
    weir_group *group = new_group(&(weir_group_config){
        .count = 3, .name = "from", .start = weir_threads_start, .start_arg = threads });
    assert_int_equal(weir_threads_count(threads), 0);
    blocker b[3];
    int named[3] = { 0 };
    for (size_t i = 0; i < 3; i++) {
        block(&b[i], weir_group_at(group, i));
        assert_int_equal(weir_threads_count(threads), i + 1);
    }
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char name[32];
        read_comm(atoi(entry->d_name), name);
        for (int i = 0; i < 3; i++) {
            char expected[32];
            snprintf(expected, sizeof expected, "from-%d", i);
            named[i] += strcmp(name, expected) == 0;
        }
    }
    closedir(dir);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(named[i], 1);
        unblock(&b[i]);
    }
    end_group(group);
    weir_threads_free(threads);
}

static void bodies_are_waited_for(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    static body b[COUNT];
    weir_threads *threads = new_threads(NULL, 0);
    for (int i = 0; i < COUNT; i++) {
        b[i] = (body){ .may_end = true };
        assert_int_equal(weir_threads_start(threads, NULL, run_body, &b[i]), 0);
    }
    weir_threads_free(threads);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(atomic_load(&b[i].calls), 1);
}

/* Starting from everywhere, also from the bodies themselves. */
typedef struct parent {
    weir_threads *threads;
    body children[8];
    int codes[8];
} parent;

static void start_children(void *arg)
{
    parent *self = arg;
    for (int i = 0; i < 8; i++) {
        self->children[i] = (body){ .may_end = true };
        self->codes[i] = weir_threads_start(self->threads, NULL, run_body, &self->children[i]);
    }
}

static void body_may_start_others(void **state)
{
    (void)state;
    static parent parents[8];
    weir_threads *threads = new_threads(NULL, 0);
    for (int i = 0; i < 8; i++) {
        parents[i] = (parent){ .threads = threads };
        assert_int_equal(weir_threads_start(threads, NULL, start_children, &parents[i]), 0);
    }
    weir_threads_free(threads);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 8; k++) {
            assert_int_equal(parents[i].codes[k], 0);
            assert_int_equal(atomic_load(&parents[i].children[k].calls), 1);
        }
    }
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    body b = { .tid = 0 };
    weir_threads *threads = new_threads(NULL, 0);
    assert_int_equal(weir_threads_new(NULL, "name", 0), -EINVAL);
    assert_int_equal(weir_threads_start(NULL, "name", run_body, &b), -EINVAL);
    assert_int_equal(weir_threads_start(threads, "name", NULL, &b), -EINVAL);
    assert_int_equal(weir_threads_count(threads), 0);
    weir_threads_free(threads);
    weir_threads_free(NULL);
    assert_int_equal(atomic_load(&b.calls), 0);
}

/* Faults ------------------------------------------------------------------------------------- */

static void thread_that_cannot_be_made_is_told(void **state)
{
    (void)state;
    weir_threads *threads = new_threads(NULL, 0);
    body b[3];
    for (int i = 0; i < 3; i++)
        b[i] = (body){ .may_end = true };
    harness_fail_nth("pthread_create", 2, -EAGAIN);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_threads_start(threads, NULL, run_body, &b[i]), i == 1 ? -EAGAIN : 0);
    assert_int_equal(harness_fail_end(), 3);
    assert_int_equal(weir_threads_start(threads, NULL, run_body, &b[1]), 0);
    weir_threads_free(threads);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&b[i].calls), 1);
}

static void without_memory_nothing_starts(void **state)
{
    (void)state;
    weir_threads *threads = NULL;
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_threads_new(&threads, NULL, 0), -ENOMEM);
    harness_fail_end();
    assert_null(threads);
    threads = new_threads(NULL, 0);
    body b = { .may_end = true };
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_threads_start(threads, NULL, run_body, &b), -ENOMEM);
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(weir_threads_count(threads), 0);
    weir_threads_free(threads);
    assert_int_equal(atomic_load(&b.calls), 0);
}

static void group_can_try_again_after_a_failed_start(void **state)
{
    (void)state;
    weir_threads *threads = new_threads(NULL, 0);
    weir_group *group = new_group(
        &(weir_group_config){ .count = 1, .start = weir_threads_start, .start_arg = threads });
    probe p = PROBE;
    harness_fail_nth("pthread_create", 1, -EAGAIN);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), -EAGAIN);
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), 0);
    end_group(group);
    weir_threads_free(threads);
    assert_int_equal(atomic_load(&p.runs), 1);
}

/* Misuse ------------------------------------------------------------------------------------- */

static void free_them(void *arg)
{
    weir_threads_free(arg);
}

static void free_inside(void *arg)
{
    (void)arg;
    weir_threads *threads = new_threads(NULL, 0);
    weir_threads_start(threads, NULL, free_them, threads);
    WAIT_FOR(weir_threads_count(threads) == 0);
}

static void free_on_one_of_them_is_misuse(void **state)
{
    (void)state;
    if (HARNESS_MISUSE_ABORTS) {
        harness_expect_abort(free_inside, NULL, "weir_threads_free");
        return;
    }
    weir_threads *threads = new_threads(NULL, 0);
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(weir_threads_start(threads, NULL, free_them, threads), 0);
    WAIT_FOR(weir_threads_count(threads) == 0);
    assert_true(harness_log_has("weir_threads_free"));
    assert_int_equal(harness_log_end(), 1);
    weir_threads_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s016_each_task_gets_a_thread_of_its_own),
        weir_case(s016_no_thread_is_used_twice),
        weir_case(names_are_the_tasks_or_the_default),
        weir_case(name_that_is_too_long_is_cut),
        weir_case(stack_is_as_large_as_asked),
        weir_case(s017_threads_start_those_of_a_group),
        weir_case(bodies_are_waited_for),
        weir_case(body_may_start_others),
        weir_case(bad_arguments_are_refused),
        weir_case(thread_that_cannot_be_made_is_told),
        weir_case(without_memory_nothing_starts),
        weir_case(group_can_try_again_after_a_failed_start),
        weir_case(free_on_one_of_them_is_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
