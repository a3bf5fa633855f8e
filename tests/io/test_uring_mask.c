/* SPDX-License-Identifier: MIT */
/* What WEIR_URING_MASK of the environment hides. It is read once, so each case is a process of its
 * own. */
#include "io/ops.h"

#include <sys/wait.h>

#define NONE_HERE 77

static int run_masked(const char *mask, void (*check)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("WEIR_URING_MASK", mask, 1);
        harness_log_begin(WEIR_LOG_WARN);
        check();
        _exit(harness_log_end() > 0 ? 2 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NONE_HERE)
        skip();
    return WEXITSTATUS(status);
}

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(1);                                                                              \
    } while (0)

static unsigned features(void)
{
    int found = weir__uring_features(weir__sys_linux());
    if (found < 0 && getenv("WEIR_ACCEPT_NO_URING") != NULL)
        _exit(NONE_HERE);
    REQUIRE(found >= 0);
    return (unsigned)found;
}

static void check_two(void)
{
    REQUIRE((features() & (WEIR_URING_ACCEPT | WEIR_URING_SEND)) == 0);
    REQUIRE(features() & WEIR_URING_RECEIVE);
    weir__uring_hide(WEIR_URING_RECEIVE);
    REQUIRE(!(features() & WEIR_URING_RECEIVE));
    weir__uring_hide(0);
    REQUIRE(features() & WEIR_URING_RECEIVE);
}

static void check_nothing(void)
{
    REQUIRE(features() & WEIR_URING_ACCEPT);
}

static void check_all(void)
{
    weir_error error;
    weir_group *group = NULL;
    weir_io *opened = NULL;
    weir_io_counters counts = { 0 };
    weir_group_config config = { .io = WEIR_IO_URING };
    REQUIRE(weir_group_new(&group, &config, &error) == -ENOSYS);
    REQUIRE(strstr(error.message, "WEIR_URING_MASK") != NULL);
    REQUIRE(weir__uring_open(weir__sys_linux(), &counts, NULL, &opened) == -ENOSYS);
    config.io = WEIR_IO_AUTO;
    REQUIRE(weir_group_new(&group, &config, &error) == 0);
    REQUIRE(strcmp(weir_loop_io_name(weir_group_loop_at(group, 0)), "epoll") == 0);
    weir_group_free(group);
}

static void check_unknown(void)
{
    REQUIRE(!(features() & WEIR_URING_SEND));
    REQUIRE(features() & WEIR_URING_ACCEPT);
    REQUIRE(harness_log_has("'teleport'"));
    REQUIRE(harness_log_has("accept receive"));
}

static void parts_are_hidden(void **state)
{
    (void)state;
    assert_int_equal(run_masked("accept,send", check_two), 0);
    assert_int_equal(run_masked("", check_nothing), 0);
    assert_int_equal(run_masked(",,", check_nothing), 0);
}

static void all_of_it_is_hidden(void **state)
{
    (void)state;
    assert_int_equal(run_masked("all", check_all), 0);
    assert_int_equal(run_masked("send,all", check_all), 0);
}

static void what_nobody_knows_is_told_once(void **state)
{
    (void)state;
    assert_int_equal(run_masked("send,teleport", check_unknown), 2); /* that is, it was logged */
}

int main(void)
{
    unsetenv("WEIR_URING_MASK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_hidden),
        cmocka_unit_test(all_of_it_is_hidden),
        cmocka_unit_test(what_nobody_knows_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
