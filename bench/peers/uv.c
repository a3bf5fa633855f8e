/* SPDX-License-Identifier: MIT */
/* libuv beside weir: tasks from other threads, trips, timers. */
#include "peers/peers.h"
#include "peers/work.h"

#include <stdlib.h>
#include <uv.h>

/* A loop on a thread of its own, and the list that its users put before it ------------------- */

typedef struct mailbox {
    uv_loop_t loop;
    uv_async_t async, quit;
    bench_thread thread;
    pthread_mutex_t lock;
    work_job *first, **last; /* under the lock */
    work_trip trip;
} mailbox;

static void check(int code, const char *what)
{
    if (code < 0)
        bench_fail("libuv: %s: %s", what, uv_strerror(code));
}

static void run_mailbox(void *arg)
{
    mailbox *box = arg;
    uv_run(&box->loop, UV_RUN_DEFAULT);
}

static void on_quit(uv_async_t *async)
{
    mailbox *box = async->data;
    uv_close((uv_handle_t *)&box->async, NULL);
    uv_close((uv_handle_t *)&box->quit, NULL);
}

static mailbox *open_mailbox(uv_async_cb on_async)
{
    mailbox *box = bench_alloc(sizeof *box);
    check(uv_loop_init(&box->loop), "uv_loop_init");
    check(uv_async_init(&box->loop, &box->async, on_async), "uv_async_init");
    check(uv_async_init(&box->loop, &box->quit, on_quit), "uv_async_init");
    box->async.data = box->quit.data = box;
    pthread_mutex_init(&box->lock, NULL);
    box->last = &box->first;
    bench_thread_start(&box->thread, 0, run_mailbox, box);
    return box;
}

static void close_mailbox(mailbox *box)
{
    uv_async_send(&box->quit);
    bench_thread_join(&box->thread);
    check(uv_loop_close(&box->loop), "uv_loop_close");
    pthread_mutex_destroy(&box->lock);
    free(box);
}

/* Tasks -------------------------------------------------------------------------------------- */

static void post_job(void *loop, work_job *job)
{
    mailbox *box = loop;
    job->next = NULL;
    pthread_mutex_lock(&box->lock);
    *box->last = job;
    box->last = &job->next;
    pthread_mutex_unlock(&box->lock);
    uv_async_send(&box->async);
}

static void run_jobs(uv_async_t *async)
{
    mailbox *box = async->data;
    pthread_mutex_lock(&box->lock);
    work_job *job = box->first;
    box->first = NULL;
    box->last = &box->first;
    pthread_mutex_unlock(&box->lock);
    while (job != NULL) {
        work_job *next = job->next;
        work_job_ran(job);
        job = next;
    }
}

void peer_uv_tasks(bench_run *run)
{
    mailbox *box = open_mailbox(run_jobs);
    work_run_jobs(run, post_job, box, &(work_job){ .next = NULL });
    close_mailbox(box);
}

/* Trips -------------------------------------------------------------------------------------- */

static void ask(void *loop)
{
    mailbox *box = loop;
    uv_async_send(&box->async);
}

static void answer(uv_async_t *async)
{
    mailbox *box = async->data;
    sem_post(&box->trip.answered);
}

static void run_trips(bench_run *run, unsigned cpu)
{
    mailbox *box = open_mailbox(answer);
    box->trip.ask = ask;
    box->trip.loop = box;
    box->trip.cpu = cpu;
    sem_init(&box->trip.answered, 0, 0);
    work_run_trips(run, &box->trip);
    sem_destroy(&box->trip.answered);
    close_mailbox(box);
}

void peer_uv_trips(bench_run *run)
{
    run_trips(run, BENCH_BUT_FIRST);
}

void peer_uv_near_trips(bench_run *run)
{
    run_trips(run, 0);
}

/* Timers ------------------------------------------------------------------------------------- */

static unsigned fired;

static void count_fire(uv_timer_t *timer)
{
    (void)timer;
    fired++;
}

static uv_timer_t *new_timers(uv_loop_t *loop, size_t count)
{
    check(uv_loop_init(loop), "uv_loop_init");
    uv_timer_t *timers = bench_alloc(count * sizeof *timers);
    for (size_t i = 0; i < count; i++)
        uv_timer_init(loop, &timers[i]);
    return timers;
}

static void free_timers(uv_loop_t *loop, uv_timer_t *timers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        uv_close((uv_handle_t *)&timers[i], NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    check(uv_loop_close(loop), "uv_loop_close");
    free(timers);
}

static void start_all(uv_timer_t *timers, const uint32_t *delays_ms, size_t count)
{
    for (size_t i = 0; i < count; i++)
        uv_timer_start(&timers[i], count_fire, delays_ms[i], 0);
}

void peer_uv_schedule_cancel(bench_run *run)
{
    uv_loop_t loop;
    uv_timer_t *timers = new_timers(&loop, run->size);
    uint32_t *delays_ms = work_numbers(run->size, WORK_LEAST_FAR_MS, WORK_END_FAR_MS);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        start_all(timers, delays_ms, run->size);
        for (size_t j = 0; j < run->size; j++)
            uv_timer_stop(&timers[j]);
    }
    bench_stop(run);
    free(delays_ms);
    free_timers(&loop, timers, run->size);
}

void peer_uv_reschedule(bench_run *run)
{
    uv_loop_t loop;
    uv_timer_t *timers = new_timers(&loop, run->size);
    uint32_t *delays_ms = work_change_delays_ms(run);
    uint32_t *picks = work_numbers(WORK_CHANGES, 0, (uint32_t)run->size);
    start_all(timers, delays_ms, run->size);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++)
        uv_timer_start(&timers[picks[i % WORK_CHANGES]], count_fire, delays_ms[i % WORK_CHANGES],
                       0);
    bench_stop(run);
    free(picks);
    free(delays_ms);
    free_timers(&loop, timers, run->size);
}

void peer_uv_schedule_fire(bench_run *run)
{
    uv_loop_t loop;
    uv_timer_t *timers = new_timers(&loop, run->size);
    uint32_t *delays_ms = work_numbers(run->size, WORK_LEAST_NEAR_NS, WORK_END_NEAR_NS);
    for (size_t i = 0; i < run->size; i++)
        delays_ms[i] = (delays_ms[i] + 999999) / 1000000;
    fired = 0;
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        uv_update_time(&loop);
        start_all(timers, delays_ms, run->size);
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    bench_stop(run);
    if (fired != run->count * run->size)
        bench_fail("%u timers of libuv's fired", fired);
    free(delays_ms);
    free_timers(&loop, timers, run->size);
}
