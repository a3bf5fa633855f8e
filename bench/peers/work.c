/* SPDX-License-Identifier: MIT */
/* The work: producers within their windows, trips and their percentiles, random numbers. */
#include "peers/work.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Tasks -------------------------------------------------------------------------------------- */

#define GIVE_BACK 64 /* how many the loop runs before it tells the producer */

typedef struct work_flow {
    work_post_fn post;
    void *loop;
    pthread_barrier_t ready, begin;
    uint64_t left; /* the loop's: how many are to be run */
    sem_t done;
} work_flow;

struct work_source {
    _Alignas(64) _Atomic(uint64_t) returned; /* by the loop */
    _Alignas(64) work_flow *flow;
    uint64_t count;
    bench_thread thread;
    _Alignas(64) uint64_t ran; /* the loop's */
    _Alignas(64) work_job jobs[WORK_WINDOW];
};

void work_job_ran(work_job *job)
{
    work_source *from = job->from;
    work_flow *flow = from->flow;
    if (++from->ran % GIVE_BACK == 0)
        atomic_store_explicit(&from->returned, from->ran, memory_order_release);
    if (--flow->left == 0)
        sem_post(&flow->done);
}

static void wait_for_room(work_source *self, uint64_t sent, uint64_t *returned)
{
    unsigned turns = 0;
    while (sent - *returned == WORK_WINDOW) {
        *returned = atomic_load_explicit(&self->returned, memory_order_acquire);
        if (sent - *returned == WORK_WINDOW)
            bench_wait(&turns);
    }
}

static void produce(void *arg)
{
    work_source *self = arg;
    work_post_fn post = self->flow->post;
    void *loop = self->flow->loop;
    uint64_t returned = 0;
    pthread_barrier_wait(&self->flow->ready);
    pthread_barrier_wait(&self->flow->begin);
    for (uint64_t sent = 0; sent < self->count; sent++) {
        wait_for_room(self, sent, &returned);
        post(loop, &self->jobs[sent % WORK_WINDOW]);
    }
}

static work_source *start_sources(work_flow *flow, const bench_run *run, const work_job *model)
{
    work_source *all = bench_alloc(run->size * sizeof *all);
    for (size_t i = 0; i < run->size; i++) {
        all[i].flow = flow;
        all[i].count = run->count;
        for (size_t j = 0; j < WORK_WINDOW; j++) {
            all[i].jobs[j] = *model;
            all[i].jobs[j].from = &all[i];
        }
        bench_thread_start(&all[i].thread, BENCH_BUT_FIRST, produce, &all[i]);
    }
    return all;
}

void work_run_jobs(bench_run *run, work_post_fn post, void *loop, const work_job *model)
{
    work_flow flow = { .post = post, .loop = loop, .left = run->count * run->size };
    sem_init(&flow.done, 0, 0);
    pthread_barrier_init(&flow.ready, NULL, (unsigned)run->size + 1);
    pthread_barrier_init(&flow.begin, NULL, (unsigned)run->size + 1);
    work_source *all = start_sources(&flow, run, model);
    pthread_barrier_wait(&flow.ready);
    bench_start(run);
    pthread_barrier_wait(&flow.begin);
    while (sem_wait(&flow.done) < 0) {
    }
    bench_stop(run);
    for (size_t i = 0; i < run->size; i++)
        bench_thread_join(&all[i].thread);
    pthread_barrier_destroy(&flow.ready);
    pthread_barrier_destroy(&flow.begin);
    sem_destroy(&flow.done);
    free(all);
}

/* Trips -------------------------------------------------------------------------------------- */

static void spin(void *arg)
{
    (void)arg;
    struct sched_param none = { 0 };
    if (sched_setscheduler(0, SCHED_IDLE, &none) < 0)
        bench_fail("cannot run a thread at idle priority: %s", strerror(errno));
    for (;;)
        bench_relax();
}

void work_stay_awake(void)
{
    static bench_thread threads[CPU_SETSIZE];
    static bool is_awake;
    for (unsigned i = 0; !is_awake && i < bench_cpu_count(); i++)
        bench_thread_start(&threads[i], i, spin, NULL);
    is_awake = true;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void work_run_trips(bench_run *run, work_trip *trip)
{
    uint64_t *times = bench_alloc(run->count * sizeof *times);
    bench_pin(trip->cpu);
    work_stay_awake();
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        uint64_t asked_ns = bench_now_ns();
        trip->ask(trip->loop);
        while (sem_wait(&trip->answered) < 0) {
        }
        times[i] = bench_now_ns() - asked_ns;
    }
    bench_stop(run);
    qsort(times, run->count, sizeof *times, by_size);
    bench_report(run, (double)times[(run->count - 1) * run->size / 100]);
    free(times);
}

/* Timers ------------------------------------------------------------------------------------- */

uint32_t *work_numbers(size_t count, uint32_t least, uint32_t end)
{
    uint64_t random = 88172645463325252u;
    uint32_t *numbers = bench_alloc(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = least + (uint32_t)(bench_random(&random) >> 33) % (end - least);
    return numbers;
}

uint32_t *work_change_delays_ms(const bench_run *run)
{
    size_t count = run->size > WORK_CHANGES ? run->size : WORK_CHANGES;
    return work_numbers(count, WORK_LEAST_FAR_MS, WORK_END_FAR_MS);
}

/* Pipelines ---------------------------------------------------------------------------------- */

#define SLICES 8 /* by turns, so that a CPU that changes its speed does so for both */

void work_run_difference(bench_run *run, size_t few, size_t many, work_pass_fn pass, void *arg)
{
    uint64_t few_ns = 0, many_ns = 0;
    for (uint64_t i = 0; i < SLICES; i++) {
        uint64_t count = run->count * (i + 1) / SLICES - run->count * i / SLICES;
        few_ns += pass(arg, few, count);
        many_ns += pass(arg, many, count);
    }
    bench_take(run, few_ns + many_ns);
    bench_report(run,
                 ((double)many_ns - (double)few_ns) / ((double)run->count * (double)(many - few)));
}
