/* SPDX-License-Identifier: MIT */
/* Cases of exec/ and loop/: tasks from other threads, trips to the loop and back, sleep. */
#include "bench_exec.h"

#include "peers/peers.h"
#include "peers/work.h"

#include <weir/alloc.h>
#include <weir/future.h>
#include <weir/loop.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A loop ------------------------------------------------------------------------------------- */

static int new_group(weir_group **group, int64_t watchdog_ns, weir_error *error)
{
    weir_group_config config = { .loops = 1, .watchdog_ns = watchdog_ns };
    return weir_group_new(group, &config, error);
}

static void check(int code, const char *what)
{
    if (code < 0)
        bench_fail("%s: %s", what, weir_error_text(code));
}

void bench_call_on_loop(weir_executor *loop, weir_call_fn fn, void *arg)
{
    weir_future *future;
    check(weir_executor_submit(loop, fn, arg, &future), "weir_executor_submit");
    check(weir_future_await(future), "weir_future_await");
    weir_future_release(future);
}

static int pin_loop(void *arg)
{
    (void)arg;
    bench_pin(0);
    return 0;
}

static weir_group *open_loop(weir_executor **loop, int64_t watchdog_ns)
{
    weir_group *group;
    weir_error error;
    int code = new_group(&group, watchdog_ns, &error);
    if (code < 0)
        bench_fail("no loop: %s", weir_error_text(code));
    *loop = weir_group_next(group);
    bench_call_on_loop(*loop, pin_loop, NULL);
    return group;
}

weir_group *bench_open_loop(weir_executor **loop)
{
    return open_loop(loop, WEIR_OFF);
}

void bench_close_loop(weir_group *group)
{
    weir_group_shutdown(group, 0, WEIR_SECONDS(10)); /* there is nothing to be quiet for */
    weir_group_free(group);
}

/* Tasks -------------------------------------------------------------------------------------- */

static void post_job(void *loop, work_job *job)
{
    check(weir_executor_post(loop, &job->task), "weir_executor_post");
}

static int run_job(weir_task *task)
{
    work_job_ran((work_job *)task);
    return 0;
}

static uint64_t allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.allocations;
}

static void exec_tasks(bench_run *run)
{
    weir_executor *loop;
    weir_group *group = bench_open_loop(&loop);
    uint64_t before = allocations();
    work_run_jobs(run, post_job, loop, &(work_job){ .task = { .run = run_job, .name = "job" } });
    if (allocations() != before)
        bench_fail("%llu allocations for tasks that need none",
                   (unsigned long long)(allocations() - before));
    bench_close_loop(group);
}

/* Tasks of the loop's own, one after another, with and without the watchdog. */
typedef struct chain {
    weir_task task;
    weir_executor *loop;
    bench_run *run;
    uint64_t left;
    sem_t done;
} chain;

static int run_link(weir_task *task)
{
    chain *self = (chain *)task;
    if (--self->left > 0)
        return weir_executor_post(self->loop, task);
    bench_stop(self->run);
    sem_post(&self->done);
    return 0;
}

static int run_first_link(weir_task *task)
{
    chain *self = (chain *)task;
    task->run = run_link;
    bench_start(self->run);
    return weir_executor_post(self->loop, task);
}

static void run_chain(bench_run *run, int64_t watchdog_ns)
{
    chain self = { .task = { .run = run_first_link, .name = "link" }, .run = run };
    weir_group *group = open_loop(&self.loop, watchdog_ns);
    self.left = run->count;
    sem_init(&self.done, 0, 0);
    check(weir_executor_post(self.loop, &self.task), "weir_executor_post");
    while (sem_wait(&self.done) < 0) {
    }
    bench_close_loop(group);
    sem_destroy(&self.done);
}

static void exec_watched(bench_run *run)
{
    run_chain(run, WEIR_SECONDS(1));
}

static void exec_unwatched(bench_run *run)
{
    run_chain(run, WEIR_OFF);
}

/* Trips -------------------------------------------------------------------------------------- */

typedef struct trip {
    work_trip work;
    weir_executor *loop;
    weir_task task;
} trip;

static int answer(weir_task *task)
{
    trip *self = (trip *)((char *)task - offsetof(trip, task));
    sem_post(&self->work.answered);
    return 0;
}

static void ask(void *arg)
{
    trip *self = arg;
    weir_executor_post(self->loop, &self->task);
}

static void run_trips(bench_run *run, unsigned cpu)
{
    trip self = { .work = { .ask = ask, .loop = &self, .cpu = cpu },
                  .task = { .run = answer, .name = "trip" } };
    weir_group *group = bench_open_loop(&self.loop);
    sem_init(&self.work.answered, 0, 0);
    work_run_trips(run, &self.work);
    bench_close_loop(group);
    sem_destroy(&self.work.answered);
}

static void exec_trips(bench_run *run)
{
    run_trips(run, BENCH_BUT_FIRST);
}

static void exec_near_trips(bench_run *run)
{
    run_trips(run, 0);
}

/* Sleep -------------------------------------------------------------------------------------- */

typedef struct burst {
    size_t left; /* the loop's */
    sem_t done;
} burst;

static int burst_call(void *arg)
{
    burst *self = arg;
    if (--self->left == 0)
        sem_post(&self->done);
    return 0;
}

static uint64_t wakeups_of(const weir_executor *loop)
{
    weir_executor_stats stats;
    weir_executor_get_stats(loop, &stats);
    return stats.wakeups;
}

static uint64_t burst_once(weir_executor *loop, size_t size)
{
    burst self = { .left = size };
    uint64_t before = wakeups_of(loop);
    sem_init(&self.done, 0, 0);
    for (size_t i = 0; i < size; i++)
        check(weir_executor_execute(loop, burst_call, &self), "weir_executor_execute");
    while (sem_wait(&self.done) < 0) {
    }
    sem_destroy(&self.done);
    return wakeups_of(loop) - before;
}

/* Reports the worst of the round. */
static void exec_burst_wakeups(bench_run *run)
{
    weir_executor *loop;
    weir_group *group = bench_open_loop(&loop);
    uint64_t most = 0;
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        uint64_t wakeups = burst_once(loop, run->size);
        most = wakeups > most ? wakeups : most;
    }
    bench_stop(run);
    bench_report(run, (double)most);
    bench_close_loop(group);
}

static double process_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Of the whole process, this thread's own nap included. */
static void exec_idle_cpu(bench_run *run)
{
    weir_executor *loop;
    weir_group *group = bench_open_loop(&loop);
    bench_start(run);
    double before_ns = process_cpu_ns();
    for (uint64_t i = 0; i < run->count; i++)
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    bench_report(run, (process_cpu_ns() - before_ns) / (double)run->count);
    bench_stop(run);
    bench_close_loop(group);
}

const bench_case bench_exec_cases[] = {
    { "exec.tasks_1", "a task from one producer thread, posted and run", exec_tasks, .batch = 1,
      .size = 1, .peers = { PEER_NETTY(peer_netty_tasks, 1 / 1.3), PEER_UV(peer_uv_tasks, 0.2) } },
    { "exec.tasks_4", "a task from one of four producer threads, posted and run", exec_tasks,
      .batch = 4, .size = 4,
      .peers = { PEER_NETTY(peer_netty_tasks, 1), PEER_UV(peer_uv_tasks, 0.25) } },
    { "exec.watched", "a task that the loop posts to itself, under the watchdog's eyes",
      exec_watched, BENCH_CPU, .peers = { { "no watchdog", exec_unwatched, .target = 1.05 } } },
    { "exec.round_trip_p50", "a thread asks, the loop answers: median", exec_trips, .size = 50,
      .peers = { PEER_UV(peer_uv_trips, 1) } },
    { "exec.round_trip_p99", "a thread asks, the loop answers: 99th percentile", exec_trips,
      .size = 99, .peers = { PEER_UV(peer_uv_trips, 1) } },
    { "exec.near_trip_p50", "the same on one CPU, where no other has to be woken: median",
      exec_near_trips, .size = 50, .peers = { PEER_UV(peer_uv_near_trips, 1) } },
    { "exec.near_trip_p99", "the same on one CPU: 99th percentile", exec_near_trips, .size = 99,
      .peers = { PEER_UV(peer_uv_near_trips, 1) } },
    { "exec.burst_wakeups", "wake-ups for a burst of 100,000 executes, the worst of a round",
      exec_burst_wakeups, .size = 100000, .unit = "wake-ups", .limit = 1000 },
    { "exec.idle_cpu", "CPU time of a process whose loop has nothing to do", exec_idle_cpu,
      .unit = "CPU ns in a second", .limit = 1e6 },
    { 0 },
};
