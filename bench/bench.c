/* SPDX-License-Identifier: MIT */
/* Taking the time of a case: how many, how often, on which CPU. */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* For cases --------------------------------------------------------------------------------- */

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t now_ns(bench_clock clock)
{
    return read_clock(clock == BENCH_CPU ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

uint64_t bench_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void bench_start(bench_run *run)
{
    run->started_ns = now_ns(run->clock);
}

uint64_t bench_stop(bench_run *run)
{
    run->taken_ns = now_ns(run->clock) - run->started_ns;
    run->is_stopped = true;
    return run->taken_ns;
}

void bench_report(bench_run *run, double value)
{
    run->value = value;
    run->has_value = true;
}

void bench_take(bench_run *run, uint64_t taken_ns)
{
    run->taken_ns = taken_ns;
    run->is_stopped = true;
}

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "weir-bench: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    _exit(1);
}

void *bench_alloc(size_t size)
{
    size = (size + 63) / 64 * 64;
    void *memory = aligned_alloc(64, size);
    if (memory == NULL)
        bench_fail("no memory for %zu bytes", size);
    return memset(memory, 0, size);
}

/* Threads ----------------------------------------------------------------------------------- */

static cpu_set_t cpus;

void bench_init(void)
{
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0 || CPU_COUNT(&cpus) == 0)
        CPU_SET(0, &cpus);
}

unsigned bench_cpu_count(void)
{
    return (unsigned)CPU_COUNT(&cpus);
}

/* The nth, or all but the first. With one CPU there is no choice. */
static cpu_set_t choose_cpus(unsigned nth)
{
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    unsigned count = bench_cpu_count(), at = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &cpus))
            continue;
        if (nth == BENCH_BUT_FIRST ? at > 0 || count == 1 : at == nth % count)
            CPU_SET(cpu, &chosen);
        at++;
    }
    return chosen;
}

void bench_pin_thread(pid_t thread, unsigned nth)
{
    cpu_set_t chosen = choose_cpus(nth);
    if (sched_setaffinity(thread, sizeof chosen, &chosen) < 0)
        bench_fail("cannot pin a thread: %s", strerror(errno));
}

void bench_pin(unsigned nth)
{
    bench_pin_thread(0, nth);
}

static void *thread_main(void *arg)
{
    bench_thread *thread = arg;
    bench_pin(thread->nth);
    thread->fn(thread->arg);
    return NULL;
}

void bench_thread_start(bench_thread *thread, unsigned nth, void (*fn)(void *arg), void *arg)
{
    thread->nth = nth;
    thread->fn = fn;
    thread->arg = arg;
    int error = pthread_create(&thread->thread, NULL, thread_main, thread);
    if (error != 0)
        bench_fail("cannot start a thread: %s", strerror(error));
}

void bench_thread_join(bench_thread *thread)
{
    pthread_join(thread->thread, NULL);
}

void bench_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void bench_wait(unsigned *turns)
{
    /* The other thread may need this CPU to go on. */
    if (++*turns % 64 == 0)
        sched_yield();
    else
        bench_relax();
}

/* Rounds ------------------------------------------------------------------------------------ */

static bench_run run_round(const bench_case *what, bench_fn fn, uint64_t count)
{
    bench_run run = { .count = count, .size = what->size, .clock = what->clock };
    bench_start(&run);
    fn(&run);
    if (!run.is_stopped)
        bench_stop(&run);
    return run;
}

static double value_of(const bench_case *what, const bench_run *run)
{
    double batch = what->batch > 0 ? what->batch : 1;
    return run->has_value ? run->value : (double)run->taken_ns / ((double)run->count * batch);
}

/* The shortest of a few: another program may have had the CPU for a while. */
static uint64_t least_ns(const bench_case *what, bench_fn fn, uint64_t count, uint64_t enough_ns)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 3 && least >= enough_ns; i++) {
        uint64_t ns = run_round(what, fn, count).taken_ns;
        if (ns < least)
            least = ns;
    }
    return least;
}

/* How many make a round of `wanted_ns`. */
static uint64_t calibrate(const bench_case *what, bench_fn fn, uint64_t wanted_ns)
{
    uint64_t enough_ns = wanted_ns / 8;
    uint64_t count = 1;
    uint64_t ns;
    while ((ns = least_ns(what, fn, count, enough_ns)) < enough_ns && count < (uint64_t)1 << 40)
        count *= 8;
    double fitting = (double)count * (double)wanted_ns / (double)(ns > 0 ? ns : 1);
    return fitting > 1 ? (uint64_t)fitting : 1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between two values where the share falls between them. */
static double quantile(const double *sorted, unsigned count, double share)
{
    double place = share * (count - 1);
    unsigned below = (unsigned)place;
    if (below + 1 >= count)
        return sorted[count - 1];
    return sorted[below] + (place - below) * (sorted[below + 1] - sorted[below]);
}

static bench_stats stats_of(double *times, unsigned count)
{
    qsort(times, count, sizeof *times, by_size);
    double median = quantile(times, count, 0.5);
    double spread = quantile(times, count, 0.9) - quantile(times, count, 0.1);
    return (bench_stats){ median, times[0], times[count - 1], median > 0 ? spread / median : 0 };
}

/* Of neighbours in time: a CPU that is slower for a second is so for both. */
static double ratio_of(const double *own, const double *peers, unsigned count)
{
    static double ratios[BENCH_MAX_ROUNDS];
    for (unsigned i = 0; i < count; i++)
        ratios[i] = own[i] / peers[i];
    return stats_of(ratios, count).median;
}

/* The case, then its peers, with NULL for those that are missing; returns how many that makes. */
static unsigned sides_of(const bench_case *what, bench_fn fns[1 + BENCH_PEERS])
{
    unsigned sides = 1;
    fns[0] = what->run;
    while (sides <= BENCH_PEERS && what->peers[sides - 1].name != NULL) {
        const bench_peer *peer = &what->peers[sides - 1];
        fns[sides++] = peer->run;
    }
    return sides;
}

static void run_rounds(const bench_case *what, const bench_settings *settings, bench_result *result)
{
    static double values[1 + BENCH_PEERS][BENCH_MAX_ROUNDS];
    bench_fn fns[1 + BENCH_PEERS];
    uint64_t counts[1 + BENCH_PEERS];
    unsigned sides = sides_of(what, fns);
    for (unsigned i = 0; i < sides; i++) {
        if (fns[i] != NULL)
            counts[i] = calibrate(what, fns[i], (uint64_t)settings->round_ms * 1000000u);
    }
    for (unsigned i = 0; i < sides; i++) {
        if (fns[i] != NULL)
            run_round(what, fns[i], counts[i]); /* to warm up */
    }
    for (unsigned round = 0; round < settings->rounds; round++) {
        for (unsigned i = 0; i < sides; i++) {
            if (fns[i] == NULL)
                continue;
            bench_run run = run_round(what, fns[i], counts[i]);
            values[i][round] = value_of(what, &run);
        }
    }
    /* The ratios first, while the values are in the order of the rounds. */
    for (unsigned i = 1; i < sides; i++) {
        if (fns[i] == NULL)
            continue;
        result->ratios[i - 1] = ratio_of(values[0], values[i], settings->rounds);
        result->peers[i - 1] = stats_of(values[i], settings->rounds);
    }
    result->own = stats_of(values[0], settings->rounds);
}

/* A process of its own ---------------------------------------------------------------------- */

_Noreturn static void run_child(const bench_case *what, const bench_settings *settings, int fd)
{
    bench_result result = { 0 };
    run_rounds(what, settings, &result);
    /* Less than a pipe holds: it goes in one write. And exit, not _exit: a peer that is a process
     * of its own is waited for, so that it does not disturb the next case. */
    exit(write(fd, &result, sizeof result) == (ssize_t)sizeof result ? 0 : 1);
}

static bool died(const bench_case *what, int status)
{
    if (WIFSIGNALED(status))
        fprintf(stderr, "weir-bench: %s died: %s\n", what->name, strsignal(WTERMSIG(status)));
    else
        fprintf(stderr, "weir-bench: %s failed\n", what->name);
    return false;
}

bool bench_measure(const bench_case *what, const bench_settings *settings, bench_result *result)
{
    int fds[2];
    fflush(stdout);
    if (pipe(fds) < 0)
        bench_fail("cannot make a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        bench_fail("cannot fork: %s", strerror(errno));
    if (child == 0) {
        close(fds[0]);
        run_child(what, settings, fds[1]);
    }
    close(fds[1]);
    ssize_t got = read(fds[0], result, sizeof *result);
    close(fds[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return got == (ssize_t)sizeof *result && status == 0 ? true : died(what, status);
}
