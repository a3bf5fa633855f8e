/* SPDX-License-Identifier: MIT */
/* The work that weir's loops and their peers are given: the same tasks, trips and delays for all.
 */
#ifndef WEIR_BENCH_WORK_H
#define WEIR_BENCH_WORK_H

#include "bench.h"

#include <weir/executor.h>

#include <semaphore.h>

/* Tasks: some producers, one loop ------------------------------------------------------------ */

/*
 * Each producer has WORK_WINDOW tasks that go round, so that none is allocated while the clock runs
 * and no side can win by letting its queue grow. A loop has the first CPU for itself, its producers
 * share the others, for weir and the peers alike: left to itself the kernel sometimes puts both on
 * one CPU, where nothing has to travel between caches, and a round's time is a matter of luck.
 */
#define WORK_WINDOW 8192

typedef struct work_job work_job;
typedef struct work_source work_source;

/* A cache line each: what a user's object with a task in it is at least. */
struct work_job {
    _Alignas(64) union {
        weir_task task;
        work_job *next; /* the peers' */
    };
    work_source *from;
};

/* What is measured: hands a job to the loop, on a producer's thread. */
typedef void (*work_post_fn)(void *loop, work_job *job);

/* The time of `run->count` jobs from each of `run->size` producers, until the last has run. Each
 * job is made like `model`. */
void work_run_jobs(bench_run *run, work_post_fn post, void *loop, const work_job *model);

/* On the loop's thread: the job has run, and is its producer's again. */
void work_job_ran(work_job *job);

/* Trips: a thread asks, the loop answers ----------------------------------------------------- */

typedef struct work_trip {
    sem_t answered; /* the loop posts it: one futex call, the same for all */
    void (*ask)(void *loop);
    void *loop;
    unsigned cpu; /* where the thread is: BENCH_BUT_FIRST, or 0 beside the loop */
} work_trip;

/* Keeps all CPUs from falling asleep as long as the process lives, with threads that run only when
 * nobody else wants to: waking a CPU takes longer than all that is to be measured. */
void work_stay_awake(void);

/* Reports the percentile `run->size` of `run->count` trips. */
void work_run_trips(bench_run *run, work_trip *trip);

/* Timers ------------------------------------------------------------------------------------- */

/* Random numbers from `least` to below `end`, the same in every run and in NettyPeer.java; to be
 * freed. */
uint32_t *work_numbers(size_t count, uint32_t least, uint32_t end);

/* Delays that do not come while the clock runs: whole milliseconds, because libuv has no others. */
#define WORK_LEAST_FAR_MS 100000
#define WORK_END_FAR_MS 1100000

/* Delays that are over when the last timer is scheduled, so that firing is work without waiting.
 * Each library gets them as finely as it takes them, libuv rounded up. */
#define WORK_LEAST_NEAR_NS 0
#define WORK_END_NEAR_NS 1000000

/* The changes of a reschedule, which go round; and their delays, of which there is one for each
 * timer besides. */
#define WORK_CHANGES 65536
uint32_t *work_change_delays_ms(const bench_run *run);

/* Pipelines ---------------------------------------------------------------------------------- */

/* What is measured: the CPU nanoseconds of `count` messages through so many handlers and a last one
 * that takes them. */
typedef uint64_t (*work_pass_fn)(void *arg, size_t handlers, uint64_t count);

/* Reports what one handler costs: the time with `many` of them less that with `few`. */
void work_run_difference(bench_run *run, size_t few, size_t many, work_pass_fn pass, void *arg);

/* Of the hop: one handler is there in both, so that how a message gets in and out is not in it. */
#define WORK_FEW_HOPS 1
#define WORK_MANY_HOPS 8

#endif
