/* SPDX-License-Identifier: MIT */
/* The verdict on a seed. */
#include "verdict.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

enum { TRACE_LINES = 4096, TRACE_SHOWN = 80, LINE_SIZE = 160 };

static struct {
    uint64_t seed;
    const char *repeat;
    unsigned limit_s;
    void (*dump)(FILE *to, void *arg);
    void *arg;

    atomic_bool is_verbose;
    atomic_bool is_failing;
    /* No lock: a trace that orders the threads would hide data races from the thread sanitizer. */
    atomic_uint next_line;
    char lines[TRACE_LINES][LINE_SIZE];

    pthread_t watcher;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over;
} verdict = { .lock = PTHREAD_MUTEX_INITIALIZER };

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void verdict_set_verbose(bool is_verbose)
{
    verdict.is_verbose = is_verbose;
}

void verdict_trace(const char *format, ...)
{
    unsigned at = atomic_fetch_add_explicit(&verdict.next_line, 1, memory_order_relaxed);
    char *line = verdict.lines[at % TRACE_LINES];
    int used = snprintf(line, LINE_SIZE, "%d ", (int)gettid());
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, LINE_SIZE - (size_t)used, format, args);
    va_end(args);
    if (atomic_load_explicit(&verdict.is_verbose, memory_order_relaxed))
        fprintf(stderr, "  %.6f %s\n", seconds_now(), line);
}

/* The other threads go on meanwhile, and what is printed may change under it. */
#if defined(__SANITIZE_THREAD__)
#define RACES __attribute__((no_sanitize("thread")))

void AnnotateIgnoreReadsBegin(const char *file, int line);

/* Also in functions of the C library; until the process ends, which is soon. */
static void ignore_races(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}
#else
#define RACES

static void ignore_races(void)
{
}
#endif

RACES static void print_state(void)
{
    unsigned end = verdict.next_line;
    ignore_races();
    for (unsigned i = end > TRACE_SHOWN ? end - TRACE_SHOWN : 0; i < end; i++)
        fprintf(stderr, "  %s\n", verdict.lines[i % TRACE_LINES]);
    if (verdict.dump != NULL)
        verdict.dump(stderr, verdict.arg);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
/* A sanitizer ends the process after its report. Only the trace: the state may be what is broken.
 */
RACES static void on_sanitizer_report(void)
{
    if (atomic_exchange(&verdict.is_failing, true))
        return;
    fprintf(stderr, "chaos: seed %" PRIu64 ": a sanitizer has reported the above; before it:\n",
            verdict.seed);
    verdict.dump = NULL;
    print_state();
    fflush(stderr);
}

static void catch_sanitizer(void)
{
    __sanitizer_set_death_callback(on_sanitizer_report);
}
#else
static void catch_sanitizer(void)
{
}
#endif

RACES _Noreturn void verdict_fail(const char *format, ...)
{
    if (atomic_exchange(&verdict.is_failing, true))
        pause(); /* another thread reports already */
    va_list args;
    va_start(args, format);
    fprintf(stderr, "chaos: seed %" PRIu64 " failed: ", verdict.seed);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nchaos: repeat with: %s\n", verdict.repeat);
    print_state();
    fprintf(stderr, "chaos: seed %" PRIu64 " failed, see above; repeat with: %s\n", verdict.seed,
            verdict.repeat);
    fflush(stderr);
    abort();
}

/* Waits for the end of the seed, and fails it when that takes too long. */
static void *watch(void *arg)
{
    (void)arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += verdict.limit_s;
    pthread_mutex_lock(&verdict.lock);
    int code = 0;
    while (!verdict.is_over && code == 0)
        code = pthread_cond_timedwait(&verdict.changed, &verdict.lock, &until);
    bool is_over = verdict.is_over;
    pthread_mutex_unlock(&verdict.lock);
    if (!is_over)
        verdict_fail("it has not ended after %u s", verdict.limit_s);
    return NULL;
}

void verdict_begin(uint64_t seed, const char *repeat, unsigned limit_s,
                   void (*dump)(FILE *to, void *arg), void *arg)
{
    verdict.seed = seed;
    verdict.repeat = repeat;
    verdict.limit_s = limit_s;
    verdict.dump = dump;
    verdict.arg = arg;
    verdict.next_line = 0;
    verdict.is_over = false;
    catch_sanitizer();
    pthread_cond_init(&verdict.changed, NULL);
    if (pthread_create(&verdict.watcher, NULL, watch, NULL) != 0)
        verdict_fail("no thread for the watchdog");
}

void verdict_end(void)
{
    pthread_mutex_lock(&verdict.lock);
    verdict.is_over = true;
    pthread_cond_signal(&verdict.changed);
    pthread_mutex_unlock(&verdict.lock);
    pthread_join(verdict.watcher, NULL);
    pthread_cond_destroy(&verdict.changed);
    verdict.dump = NULL; /* there is nothing left to print */
}
