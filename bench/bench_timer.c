/* SPDX-License-Identifier: MIT */
/* Cases of timers, on their loop's thread. */
#include "bench_exec.h"

#include "peers/peers.h"
#include "peers/work.h"

#include <weir/timer.h>

#include <semaphore.h>
#include <stdlib.h>

typedef struct plan {
    bench_run *run;
    weir_executor *loop;
    weir_timer *timers;
    uint32_t *delays; /* of each timer, or of each change */
    int64_t unit_ns;
    uint32_t *picks;      /* reschedule: which timer */
    uint64_t rounds_left; /* schedule_fire */
    size_t fires_left;
    sem_t fired;
} plan;

static plan *the_plan;

static void schedule_all(plan *self)
{
    for (size_t i = 0; i < self->run->size; i++) {
        if (weir_timer_schedule(&self->timers[i], self->loop, self->delays[i] * self->unit_ns) < 0)
            bench_fail("weir_timer_schedule failed");
    }
}

static void cancel_all(plan *self)
{
    for (size_t i = 0; i < self->run->size; i++)
        weir_timer_cancel(&self->timers[i]);
}

static int schedule_and_cancel(void *arg)
{
    plan *self = arg;
    bench_start(self->run);
    for (uint64_t i = 0; i < self->run->count; i++) {
        schedule_all(self);
        cancel_all(self);
    }
    bench_stop(self->run);
    return 0;
}

static int reschedule(void *arg)
{
    plan *self = arg;
    schedule_all(self);
    bench_start(self->run);
    for (uint64_t i = 0; i < self->run->count; i++) {
        weir_timer *timer = &self->timers[self->picks[i % WORK_CHANGES]];
        weir_timer_reschedule(timer, self->delays[i % WORK_CHANGES] * self->unit_ns);
    }
    bench_stop(self->run);
    cancel_all(self);
    return 0;
}

static int schedule_for_fire(void *arg)
{
    plan *self = arg;
    self->rounds_left = self->run->count;
    self->fires_left = self->run->size;
    bench_start(self->run);
    schedule_all(self);
    return 0;
}

static int fire(weir_timer *timer)
{
    (void)timer;
    plan *self = the_plan;
    if (--self->fires_left > 0)
        return 0;
    if (--self->rounds_left > 0) {
        self->fires_left = self->run->size;
        schedule_all(self);
        return 0;
    }
    bench_stop(self->run);
    sem_post(&self->fired);
    return 0;
}

static weir_timer *new_timers(size_t count)
{
    weir_timer *timers = bench_alloc(count * sizeof *timers);
    for (size_t i = 0; i < count; i++)
        timers[i].fire = fire;
    return timers;
}

static void run_plan(plan *self, weir_call_fn fn)
{
    weir_group *group = bench_open_loop(&self->loop);
    the_plan = self;
    self->timers = new_timers(self->run->size);
    bench_call_on_loop(self->loop, fn, self);
    if (fn == schedule_for_fire) {
        while (sem_wait(&self->fired) < 0) {
        }
    }
    bench_close_loop(group);
    free(self->timers);
    free(self->delays);
    free(self->picks);
}

static void timer_schedule_cancel(bench_run *run)
{
    plan self = { .run = run, .unit_ns = WEIR_MS(1) };
    self.delays = work_numbers(run->size, WORK_LEAST_FAR_MS, WORK_END_FAR_MS);
    run_plan(&self, schedule_and_cancel);
}

static void timer_reschedule(bench_run *run)
{
    plan self = { .run = run, .unit_ns = WEIR_MS(1) };
    self.delays = work_change_delays_ms(run);
    self.picks = work_numbers(WORK_CHANGES, 0, (uint32_t)run->size);
    run_plan(&self, reschedule);
}

static void timer_schedule_fire(bench_run *run)
{
    plan self = { .run = run, .unit_ns = 1 };
    self.delays = work_numbers(run->size, WORK_LEAST_NEAR_NS, WORK_END_NEAR_NS);
    sem_init(&self.fired, 0, 0);
    run_plan(&self, schedule_for_fire);
    sem_destroy(&self.fired);
}

#define PEERS(what)                                                                                \
    {                                                                                              \
        PEER_EV(peer_ev_##what, 1.5), PEER_UV(peer_uv_##what, 0.5),                                \
            PEER_NETTY(peer_netty_##what, 0.5)                                                     \
    }

const bench_case bench_timer_cases[] = {
    { "timer.schedule_cancel", "schedule a timer beside up to 1,000,000 others, and cancel it",
      timer_schedule_cancel, BENCH_CPU, .batch = 1000000, .size = 1000000,
      .peers = PEERS(schedule_cancel) },
    { "timer.reschedule", "another time for any one of 10,000 timers", timer_reschedule, BENCH_CPU,
      .size = 10000, .peers = PEERS(reschedule) },
    { "timer.schedule_fire", "schedule a timer beside up to 200,000 others, and fire it",
      timer_schedule_fire, BENCH_CPU, .batch = 200000, .size = 200000,
      .peers = PEERS(schedule_fire) },
    { 0 },
};
