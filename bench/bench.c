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

static uint64_t now_ns(bench_clock clock)
{
    struct timespec now;
    clock_gettime(clock == BENCH_CPU ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_start(bench_run *run)
{
    run->started_ns = now_ns(run->clock);
}

void bench_stop(bench_run *run)
{
    run->taken_ns = now_ns(run->clock) - run->started_ns;
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

void bench_pin(unsigned nth)
{
    unsigned left = nth % bench_cpu_count();
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &cpus) || left-- > 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) < 0)
            bench_fail("cannot pin a thread to CPU %zu: %s", cpu, strerror(errno));
        return;
    }
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

static void relax(void)
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
        relax();
}

/* Rounds ------------------------------------------------------------------------------------ */

static uint64_t round_ns(const bench_case *what, bench_fn fn, uint64_t count)
{
    bench_run run = { .count = count, .size = what->size, .clock = what->clock };
    bench_start(&run);
    fn(&run);
    if (!run.is_stopped)
        bench_stop(&run);
    return run.taken_ns;
}

/* The shortest of a few: another program may have had the CPU for a while. */
static uint64_t least_ns(const bench_case *what, bench_fn fn, uint64_t count, uint64_t enough_ns)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 3 && least >= enough_ns; i++) {
        uint64_t ns = round_ns(what, fn, count);
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

static void run_rounds(const bench_case *what, const bench_settings *settings, bench_result *result)
{
    static double times[1 + BENCH_PEERS][BENCH_MAX_ROUNDS];
    bench_fn fns[1 + BENCH_PEERS] = { what->run };
    uint64_t counts[1 + BENCH_PEERS];
    unsigned sides = 1;
    while (sides <= BENCH_PEERS && what->peers[sides - 1].name != NULL) {
        fns[sides] = what->peers[sides - 1].run;
        sides++;
    }
    for (unsigned i = 0; i < sides; i++)
        counts[i] = calibrate(what, fns[i], (uint64_t)settings->round_ms * 1000000u);

    double batch = what->batch > 0 ? what->batch : 1;
    for (unsigned i = 0; i < sides; i++)
        round_ns(what, fns[i], counts[i]); /* to warm up */
    for (unsigned round = 0; round < settings->rounds; round++) {
        for (unsigned i = 0; i < sides; i++) {
            double ns = (double)round_ns(what, fns[i], counts[i]);
            times[i][round] = ns / ((double)counts[i] * batch);
        }
    }
    /* The ratios first, while the times are in the order of the rounds. */
    for (unsigned i = 1; i < sides; i++)
        result->ratios[i - 1] = ratio_of(times[0], times[i], settings->rounds);
    for (unsigned i = 1; i < sides; i++)
        result->peers[i - 1] = stats_of(times[i], settings->rounds);
    result->own = stats_of(times[0], settings->rounds);
}

/* A process of its own ---------------------------------------------------------------------- */

_Noreturn static void run_child(const bench_case *what, const bench_settings *settings, int fd)
{
    bench_result result = { 0 };
    run_rounds(what, settings, &result);
    /* Less than a pipe holds: it goes in one write. */
    _exit(write(fd, &result, sizeof result) == (ssize_t)sizeof result ? 0 : 1);
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
