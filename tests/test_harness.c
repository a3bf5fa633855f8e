/* SPDX-License-Identifier: MIT */
/* The harness itself: a wait that lasts too long fails and names its condition. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool is_set;

static void *set_it(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

static void wait_ends_when_another_thread_makes_its_condition_true(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&is_set, false);
    assert_int_equal(pthread_create(&thread, NULL, set_it, &is_set), 0);
    WAIT_FOR(atomic_load(&is_set));
    assert_true(is_set);
    pthread_join(thread, NULL);
}

static void wait_calls_its_step_until_the_condition_holds(void **state)
{
    (void)state;
    int steps = 0;
    WAIT_FOR_STEPPING(steps == 1000, steps++);
    assert_int_equal(steps, 1000);
}

static void wait_checks_its_condition_before_the_first_step(void **state)
{
    (void)state;
    int steps = 0;
    WAIT_FOR_STEPPING(true, steps++);
    assert_int_equal(steps, 0);
}

/* In a program of its own, which may fail -------------------------------------------------------
 */

static void cannot_succeed(void **state)
{
    (void)state;
    atomic_int apples = 3;
    harness_wait_limit_ns = WEIR_MS(20);
    WAIT_FOR_STEPPING(atomic_load(&apples) > 4, sched_yield());
    _exit(99); /* a wait that timed out does not return */
}

static void runs_after_the_failed_one(void **state)
{
    (void)state;
    printf("the next case ran\n");
}

static int run_failing_cases(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cannot_succeed),
        cmocka_unit_test(runs_after_the_failed_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Standard output and error of this program, started again with `argument`; its exit status. */
static int run_again(const char *argument, char *output, size_t room)
{
    char command[512];
    char self[256] = "";
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "env -u WEIR_TEST_FILTER '%s' %s 2>&1", self, argument);
    FILE *from = popen(command, "re");
    assert_non_null(from);
    output[fread(output, 1, room - 1, from)] = '\0';
    return pclose(from);
}

static void wait_past_its_limit_fails_the_case_and_names_the_condition(void **state)
{
    (void)state;
    char output[8192];
    int status = run_again("fail", output, sizeof output);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1); /* one case failed */
    assert_non_null(strstr(output, "waited 0.02 s for: atomic_load(&apples) > 4"));
    assert_non_null(strstr(output, "test_harness.c:"));
    assert_non_null(strstr(output, "the next case ran"));
}

/* Where no case can be left: abort --------------------------------------------------------------
 */

static void *wait_in_vain(void *arg)
{
    atomic_int pears = 2;
    WAIT_FOR(atomic_load(&pears) == 7);
    return arg;
}

static void wait_on_another_thread(void *arg)
{
    pthread_t thread;
    harness_wait_limit_ns = WEIR_MS(20);
    if (pthread_create(&thread, NULL, wait_in_vain, arg) == 0)
        pthread_join(thread, NULL);
}

static void wait_past_its_limit_on_another_thread_aborts_with_the_condition(void **state)
{
    (void)state;
    harness_expect_abort(wait_on_another_thread, NULL,
                         "waited 0.02 s for: atomic_load(&pears) == 7");
    harness_expect_abort(wait_on_another_thread, NULL, "test_harness.c:");
}

static void wait_in_child(void *arg)
{
    harness_wait_limit_ns = WEIR_MS(20);
    wait_in_vain(arg);
}

/* A jump out of the case would continue the parent's cases in the child. */
static void wait_past_its_limit_in_a_child_process_aborts(void **state)
{
    (void)state;
    harness_expect_abort(wait_in_child, NULL, "waited 0.02 s for: atomic_load(&pears) == 7");
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return run_failing_cases();
    const struct CMUnitTest tests[] = {
        weir_case(wait_ends_when_another_thread_makes_its_condition_true),
        weir_case(wait_calls_its_step_until_the_condition_holds),
        weir_case(wait_checks_its_condition_before_the_first_step),
        weir_case(wait_past_its_limit_fails_the_case_and_names_the_condition),
        weir_case(wait_past_its_limit_on_another_thread_aborts_with_the_condition),
        weir_case(wait_past_its_limit_in_a_child_process_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
