/* SPDX-License-Identifier: MIT */
/* libev beside weir: timers. */
#include "peers/peers.h"
#include "peers/work.h"

#include <ev.h>
#include <stdlib.h>

static unsigned fired;

static void count_fire(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)timer, (void)events;
    fired++;
}

#define MS 1e-3
#define NS 1e-9

static ev_timer *new_timers(size_t count)
{
    ev_timer *timers = bench_alloc(count * sizeof *timers);
    for (size_t i = 0; i < count; i++)
        ev_init(&timers[i], count_fire);
    return timers;
}

static struct ev_loop *new_loop(void)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    if (loop == NULL)
        bench_fail("no loop of libev's");
    return loop;
}

static void start_all(struct ev_loop *loop, ev_timer *timers, const uint32_t *delays, double unit,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ev_timer_set(&timers[i], delays[i] * unit, 0);
        ev_timer_start(loop, &timers[i]);
    }
}

void peer_ev_schedule_cancel(bench_run *run)
{
    struct ev_loop *loop = new_loop();
    ev_timer *timers = new_timers(run->size);
    uint32_t *delays_ms = work_numbers(run->size, WORK_LEAST_FAR_MS, WORK_END_FAR_MS);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        start_all(loop, timers, delays_ms, MS, run->size);
        for (size_t j = 0; j < run->size; j++)
            ev_timer_stop(loop, &timers[j]);
    }
    bench_stop(run);
    free(delays_ms);
    free(timers);
    ev_loop_destroy(loop);
}

void peer_ev_reschedule(bench_run *run)
{
    struct ev_loop *loop = new_loop();
    ev_timer *timers = new_timers(run->size);
    uint32_t *delays_ms = work_change_delays_ms(run);
    uint32_t *picks = work_numbers(WORK_CHANGES, 0, (uint32_t)run->size);
    start_all(loop, timers, delays_ms, MS, run->size);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        ev_timer *timer = &timers[picks[i % WORK_CHANGES]];
        timer->repeat = delays_ms[i % WORK_CHANGES] * MS;
        ev_timer_again(loop, timer);
    }
    bench_stop(run);
    for (size_t i = 0; i < run->size; i++)
        ev_timer_stop(loop, &timers[i]);
    free(picks);
    free(delays_ms);
    free(timers);
    ev_loop_destroy(loop);
}

void peer_ev_schedule_fire(bench_run *run)
{
    struct ev_loop *loop = new_loop();
    ev_timer *timers = new_timers(run->size);
    uint32_t *delays_ns = work_numbers(run->size, WORK_LEAST_NEAR_NS, WORK_END_NEAR_NS);
    fired = 0;
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        ev_now_update(loop);
        start_all(loop, timers, delays_ns, NS, run->size);
        ev_run(loop, 0);
    }
    bench_stop(run);
    if (fired != run->count * run->size)
        bench_fail("%u timers of libev's fired", fired);
    free(delays_ns);
    free(timers);
    ev_loop_destroy(loop);
}
