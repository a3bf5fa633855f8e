/* SPDX-License-Identifier: MIT */
/* Threads and chance from the system call seam. */
#include "sockets.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct runner {
    atomic_int tid;
    atomic_bool may_end;
    sigset_t mask;
    size_t stack_bytes;
} runner;

static void *run(void *arg)
{
    runner *self = arg;
    pthread_attr_t attributes;
    pthread_sigmask(SIG_BLOCK, NULL, &self->mask);
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &self->stack_bytes);
        pthread_attr_destroy(&attributes);
    }
    atomic_store(&self->tid, (int)gettid());
    WAIT_FOR(atomic_load(&self->may_end));
    return self;
}

static void read_comm(int tid, char name[32])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(name, 32, file));
    fclose(file);
    name[strcspn(name, "\n")] = '\0';
}

/* Runs a thread and keeps what it saw; `comm` is its name while it ran. */
static runner run_thread(const char *name, size_t stack_bytes, char comm[32])
{
    static runner other;
    pthread_t thread;
    void *result;
    memset(&other, 0, sizeof other);
    weir_thread_config config = { .name = name, .stack_bytes = stack_bytes, .cpu = -1 };
    assert_int_equal(sys->thread_create(sys, &thread, &config, run, &other), 0);
    WAIT_FOR(atomic_load(&other.tid) != 0);
    read_comm(atomic_load(&other.tid), comm);
    atomic_store(&other.may_end, true);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &other);
    return (runner){ .mask = other.mask, .stack_bytes = other.stack_bytes };
}

static void threads_have_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *wish, *name;
    } names[] = {
        { "weir-loop-3", "weir-loop-3" },
        { "fifteen-bytes-x", "fifteen-bytes-x" },
        { "sixteen-bytes-xy", "sixteen-bytes-x" },
        { "a name that is much longer than fits", "a name that is " },
    };
    char comm[32], own[32];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        run_thread(names[i].wish, 0, comm);
        assert_string_equal(comm, names[i].name);
    }
    read_comm((int)gettid(), own);
    run_thread(NULL, 0, comm); /* without one it has its maker's */
    assert_string_equal(comm, own);
}

static void assert_same_mask(const sigset_t *left, const sigset_t *right)
{
    for (int number = 1; number <= SIGRTMAX; number++)
        assert_int_equal(sigismember(left, number), sigismember(right, number));
}

static void threads_have_signals_blocked(void **state)
{
    (void)state;
    char comm[32];
    sigset_t one, before, during, after;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &one, &before);
    pthread_sigmask(SIG_BLOCK, NULL, &during);
    runner seen = run_thread("signals", 0, comm);
    pthread_sigmask(SIG_SETMASK, &before, &after);
    assert_same_mask(&after, &during); /* the maker's own mask is as it was */
    for (int number = 1; number <= SIGRTMAX; number++) {
        /* Two cannot be blocked at all, and those below SIGRTMIN are the C library's. */
        if (number == SIGKILL || number == SIGSTOP || (number >= 32 && number < SIGRTMIN))
            continue;
        /* A thread's own faults must reach the program's handler. */
        bool is_fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                        number == SIGILL || number == SIGTRAP || number == SIGSYS ||
                        number == SIGABRT;
        assert_int_equal(sigismember(&seen.mask, number), is_fault ? 0 : 1);
    }
}

static void threads_have_the_stack_that_was_asked_for(void **state)
{
    (void)state;
    char comm[32];
    pthread_attr_t attributes;
    size_t usual;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_getstacksize(&attributes, &usual), 0);
    pthread_attr_destroy(&attributes);
    static const size_t sizes[] = { (size_t)1 << 20, (size_t)32 << 20 };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        /* The C library may hand out a stack of an earlier thread, up to four times as large. */
        size_t got = run_thread("stack", sizes[i], comm).stack_bytes;
        assert_true(got >= sizes[i] && got <= 4 * sizes[i]);
    }
    assert_true(run_thread("stack", 0, comm).stack_bytes >= usual);
}

static void *note_run(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

static void threads_that_cannot_be_made_are_told(void **state)
{
    (void)state;
    atomic_bool has_run = false;
    pthread_t thread;
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    weir_thread_config small = { .name = "small", .stack_bytes = 1, .cpu = -1 };
    weir_thread_config large = { .name = "large", .stack_bytes = (size_t)1 << 50, .cpu = -1 };
    assert_int_equal(sys->thread_create(sys, &thread, &small, note_run, &has_run), -EINVAL);
    /* No address space is that large. */
    int code = sys->thread_create(sys, &thread, &large, note_run, &has_run);
    assert_true(code == -EAGAIN || code == -ENOMEM);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    assert_same_mask(&after, &before);
    assert_false(atomic_load(&has_run));
}

/* Chance ------------------------------------------------------------------------------------- */

static void random_fills_all_that_was_asked_for(void **state)
{
    (void)state;
    enum { LONGEST = 5000 };
    static unsigned char bytes[LONGEST + 16];
    static const size_t lengths[] = { 0, 1, 8, 255, 256, 257, 512, 1000, 4096, LONGEST };
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        size_t length = lengths[i];
        /* A byte stays zero in one try of 256: in all of twenty it does so never. */
        static unsigned char ever[LONGEST];
        memset(ever, 0, sizeof ever);
        memset(bytes, 0, sizeof bytes);
        for (int tries = 0; tries < 20; tries++) {
            assert_int_equal(sys->random(sys, bytes, length), 0);
            for (size_t at = 0; at < length; at++)
                ever[at] |= bytes[at];
        }
        for (size_t at = 0; at < length; at++)
            assert_int_not_equal(ever[at], 0);
        for (size_t at = length; at < sizeof bytes; at++)
            assert_int_equal(bytes[at], 0);
    }
}

static void random_differs_each_time(void **state)
{
    (void)state;
    unsigned char seen[50][16];
    for (size_t i = 0; i < COUNT_OF(seen); i++) {
        assert_int_equal(sys->random(sys, seen[i], sizeof seen[i]), 0);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(seen[i], seen[j], sizeof seen[i]);
    }
    /* Nor do the pieces of one long answer repeat. */
    unsigned char pieces[4][256];
    assert_int_equal(sys->random(sys, pieces, sizeof pieces), 0);
    for (size_t i = 1; i < 4; i++)
        assert_memory_not_equal(pieces[i], pieces[i - 1], sizeof pieces[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        sys_case(threads_have_their_names),
        sys_case(threads_have_signals_blocked),
        sys_case(threads_have_the_stack_that_was_asked_for),
        sys_case(threads_that_cannot_be_made_are_told),
        sys_case(random_fills_all_that_was_asked_for),
        sys_case(random_differs_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
