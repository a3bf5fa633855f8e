/* SPDX-License-Identifier: MIT */
/* What all tests share. */
#include "harness.h"

#include "living.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Waiting ----------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define WAIT_SECONDS 180
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define WAIT_SECONDS 180
#endif
#endif
#ifndef WAIT_SECONDS
#define WAIT_SECONDS 20
#endif

/* As many looks take about a tenth of a millisecond; longer waits need not be noticed at once. */
#define LOOKS_WITHOUT_SLEEP 100

int64_t harness_wait_limit_ns = WAIT_SECONDS * INT64_C(1000000000);

static pid_t case_thread; /* a forked child's is another */

__attribute__((constructor)) static void prepare_waits(void)
{
    case_thread = gettid();
    const char *seconds = getenv("WEIR_TEST_WAIT_S");
    if (seconds != NULL)
        harness_wait_limit_ns = atoll(seconds) * INT64_C(1000000000);
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void harness_wait_check(harness_wait *wait)
{
    int64_t now_ns = monotonic_ns();
    if (wait->start_ns == 0)
        wait->start_ns = now_ns;
    if (now_ns - wait->start_ns < harness_wait_limit_ns)
        return;
    double seconds = (double)harness_wait_limit_ns / 1e9;
    if (gettid() == case_thread) {
        print_error("waited %g s for: %s\n", seconds, wait->text);
        _fail(wait->file, wait->line);
    }
    fprintf(stderr, "%s:%d: waited %g s for: %s\n", wait->file, wait->line, seconds, wait->text);
    abort();
}

int harness_wait_pause(harness_wait *wait)
{
    if (++wait->looks <= LOOKS_WITHOUT_SLEEP)
        return sched_yield();
    return nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

#ifdef HARNESS_TSAN_SUPPRESSIONS
/* The thread sanitizer asks for it; TSAN_OPTIONS of the environment goes before. */
const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
    return "suppressions=" HARNESS_TSAN_SUPPRESSIONS;
}
#endif

/* What lives ------------------------------------------------------------------------------- */

static living before;

static void print_leak(void *arg, const weir_leak *leak)
{
    (void)arg;
    print_error("%zu live messages of type %s, made at\n%s\n", leak->count, leak->type,
                leak->place);
}

static void *run_nothing(void *arg)
{
    return arg;
}

/* With the first thread of the process the thread sanitizer starts a helper, which stays. */
static void start_first_thread(void)
{
    static bool is_done;
    pthread_t thread;
    if (is_done)
        return;
    is_done = true;
    assert_int_equal(pthread_create(&thread, NULL, run_nothing, NULL), 0);
    pthread_join(thread, NULL);
}

/* The thread of the global executor ends by itself about a second after its last task. */
static size_t wait_for_threads(size_t expected)
{
    size_t threads;
    for (int tries = 0; (threads = count_threads()) != expected && tries < 3000; tries++)
        usleep(1000);
    return threads;
}

/* For a tool under which a case cannot hold, and which says why: see tools/valgrind. */
__attribute__((constructor)) static void leave_out(void)
{
    const char *pattern = getenv("WEIR_TEST_SKIP");
    if (pattern != NULL)
        cmocka_set_skip_filter(pattern);
}

int harness_remember_what_lives(void **state)
{
    (void)state;
    start_first_thread();
    /* The thread's pool itself stays; make it now, so that it counts as having been there. */
    weir_buf_release(weir_buf_new(0));
    before = living_count();
    return 0;
}

int harness_assert_nothing_left(void **state)
{
    (void)state;
    weir_fault_set(NULL, NULL);
    weir_log_set(WEIR_LOG_OFF, NULL, NULL);
    living now = living_count();
    if (now.messages != before.messages)
        weir_leak_report(print_leak, NULL);
    assert_int_equal(now.messages, before.messages);
    assert_int_equal(now.used_blocks, before.used_blocks);
    assert_int_equal(now.allocations, before.allocations);
    assert_int_equal(now.descriptors, before.descriptors);
    assert_int_equal(wait_for_threads(before.threads), before.threads);
    return 0;
}

/* Misuse ------------------------------------------------------------------------------------ */

void harness_expect_abort(void (*fn)(void *arg), void *arg, const char *text)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipe_fds[1], STDERR_FILENO);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        fn(arg);
        _exit(0);
    }
    close(pipe_fds[1]);
    char output[16384];
    size_t length = 0;
    ssize_t got;
    while (length < sizeof output - 1 &&
           (got = read(pipe_fds[0], output + length, sizeof output - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = '\0';
    close(pipe_fds[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        fail_msg("the child went on; it wrote:\n%s", output);
    if (strstr(output, text) == NULL)
        fail_msg("no \"%s\" in what the child wrote:\n%s", text, output);
}

/* Faults ------------------------------------------------------------------------------------ */

/* Loops ask, too, on threads of their own. */
static _Atomic(const char *) fail_call;
static _Atomic(unsigned) fail_at, fail_seen;
static _Atomic(int) fail_code;

static int fail_one(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    const char *wanted = fail_call;
    if (wanted != NULL && strcmp(call, wanted) != 0)
        return 0;
    return ++fail_seen == fail_at ? fail_code : 0;
}

void harness_fail_nth(const char *call, unsigned nth, int code)
{
    fail_call = call;
    fail_at = nth;
    fail_seen = 0;
    fail_code = code;
    weir_fault_set(fail_one, NULL);
}

unsigned harness_fail_end(void)
{
    weir_fault_set(NULL, NULL);
    return fail_seen;
}

/* Log --------------------------------------------------------------------------------------- */

static char log_text[65536];
static size_t log_length;
static unsigned log_lines;

static void keep_line(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)arg;
    log_lines++;
    int length = snprintf(log_text + log_length, sizeof log_text - log_length, "%s %s: %s\n",
                          weir_log_level_name(level), origin, line);
    if (length > 0 && (size_t)length < sizeof log_text - log_length)
        log_length += (size_t)length;
}

void harness_log_begin(weir_log_level level)
{
    log_length = 0;
    log_lines = 0;
    log_text[0] = '\0';
    assert_int_equal(weir_log_set(level, keep_line, NULL), 0);
}

bool harness_log_has(const char *text)
{
    return strstr(log_text, text) != NULL;
}

unsigned harness_log_end(void)
{
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);
    return log_lines;
}

/* Some of the tests ---------------------------------------------------------------------------- */

/* Lines that a case does not keep are not printed. */
__attribute__((constructor)) static void be_silent(void)
{
    weir_log_set(WEIR_LOG_OFF, NULL, NULL);
}

/* A program runs those of its tests that WEIR_TEST_FILTER of the environment matches. */
__attribute__((constructor)) static void take_filter(void)
{
    const char *filter = getenv("WEIR_TEST_FILTER");
    if (filter != NULL)
        cmocka_set_test_filter(filter);
}

/* io_uring ----------------------------------------------------------------------------------- */

bool harness_has_uring(void)
{
#ifdef WEIR_HAS_URING
    weir_group *group = NULL;
    weir_error error;
    int code = weir_group_new(&group, &(weir_group_config){ .io = WEIR_IO_URING, .loops = 1 },
                              &error);
    weir_group_free(group);
    if (code < 0 && getenv("WEIR_ACCEPT_NO_URING") == NULL)
        print_error("%s; WEIR_ACCEPT_NO_URING=1 would do without\n", error.message);
    return code == 0 || getenv("WEIR_ACCEPT_NO_URING") == NULL;
#else
    return false;
#endif
}
