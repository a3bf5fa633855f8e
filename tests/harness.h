/* SPDX-License-Identifier: MIT */
/* What all tests share: nothing may be left alive, and misuse must abort. */
#ifndef WEIR_TESTS_HARNESS_H
#define WEIR_TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <weir/weir.h>

/*
 * A case that must leave nothing behind: no block of a pool in use, no live message, no allocation,
 * no descriptor, no thread beyond what there was when it began.
 */
#define weir_case(name)                                                                            \
    cmocka_unit_test_setup_teardown(name, harness_remember_what_lives, harness_assert_nothing_left)

int harness_remember_what_lives(void **state);
int harness_assert_nothing_left(void **state);

/*
 * Runs `fn(arg)` in a child process, which must end by abort (or by a sanitizer's report) after
 * writing `text` to standard error.
 */
void harness_expect_abort(void (*fn)(void *arg), void *arg, const char *text);

/* Fails the n-th (from 1) fallible call named `call` (NULL: of any name), once, with `code`. */
void harness_fail_nth(const char *call, unsigned nth, int code);

/* Ends the failing; returns how many calls of that name were made since. */
unsigned harness_fail_end(void);

/* Keeps the lines that weir logs, up to `level`, instead of printing them. */
void harness_log_begin(weir_log_level level);

/* Whether a kept line contains `text`. */
bool harness_log_has(const char *text);

/* Ends the keeping; returns how many lines there were. */
unsigned harness_log_end(void);

/*
 * Waits until `condition` holds, which another thread brings about. After `harness_wait_limit_ns`
 * the case fails and names file, line and condition. On any thread but the one that runs the cases,
 * and in a child process, it aborts instead: only the case's own thread can jump out of the case.
 */
#define WAIT_FOR(condition) HARNESS_WAIT(condition, #condition, harness_wait_pause(&wait_))

/* The same for a condition that `step`, called between two looks at it, helps to bring about. */
#define WAIT_FOR_STEPPING(condition, step) HARNESS_WAIT(condition, #condition, step)

#define HARNESS_WAIT(condition, condition_text, step)                                              \
    do {                                                                                           \
        harness_wait wait_ = { .file = __FILE__, .line = __LINE__, .text = condition_text };       \
        while (!(condition)) {                                                                     \
            harness_wait_check(&wait_);                                                            \
            (void)(step);                                                                          \
        }                                                                                          \
    } while (0)

typedef struct harness_wait {
    const char *file, *text;
    int line;
    unsigned looks;
    int64_t start_ns; /* 0: it has not waited yet */
} harness_wait;

/* Fails or aborts once the limit has passed since the first call. */
void harness_wait_check(harness_wait *wait);

/* Yields the processor; sleeps after many looks, so that a wait takes little from the tests beside
 * it. */
int harness_wait_pause(harness_wait *wait);

/* How long a wait lasts at most: 20 s, 180 s under a sanitizer, or the seconds in the environment
 * variable WEIR_TEST_WAIT_S. */
extern int64_t harness_wait_limit_ns;

/* Whether there is io_uring, to test with. Where there should be, and is refused, true: the tests
 * then fail, unless WEIR_ACCEPT_NO_URING in the environment says that this is fine. */
bool harness_has_uring(void);

/* Whether misuse aborts: debug builds. */
#ifdef WEIR_DEBUG
#define HARNESS_MISUSE_ABORTS 1
#else
#define HARNESS_MISUSE_ABORTS 0
#endif

/* A hold that is not set, whatever an earlier case has left. */
static inline weir_hold *fresh_hold(weir_hold *hold)
{
    *hold = (weir_hold){ .needs_reads = false };
    return hold;
}

#endif
