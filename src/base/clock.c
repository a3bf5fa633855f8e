/* SPDX-License-Identifier: MIT */
/* The monotonic clock and the virtual one. */
#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>

static int64_t monotonic_now_ns(weir_clock *clock)
{
    (void)clock;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct timespec weir__clock_until(int64_t timeout_ns)
{
    int64_t until_ns;
    if (timeout_ns < 0 || __builtin_add_overflow(monotonic_now_ns(NULL), timeout_ns, &until_ns))
        until_ns = INT64_MAX;
    return (struct timespec){ .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
}

weir_clock *weir_clock_monotonic(void)
{
    static weir_clock monotonic = { .now_ns = monotonic_now_ns };
    return &monotonic;
}

static int64_t wall_now_ns(weir_clock *clock)
{
    (void)clock;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

weir_clock *weir_clock_wall(void)
{
    static weir_clock wall = { .now_ns = wall_now_ns };
    return &wall;
}

static int64_t virtual_now_ns(weir_clock *clock)
{
    weir_virtual_clock *self = (weir_virtual_clock *)clock;
    atomic_fetch_add_explicit(&self->read_count, 1, memory_order_relaxed);
    return atomic_load_explicit(&self->time_ns, memory_order_acquire);
}

static void virtual_skip(weir_clock *clock, int64_t step_ns)
{
    weir_virtual_clock_advance((weir_virtual_clock *)clock, step_ns);
}

void weir_virtual_clock_init(weir_virtual_clock *clock, int64_t start_ns)
{
    clock->clock = (weir_clock){ .now_ns = virtual_now_ns, .skip = virtual_skip };
    atomic_init(&clock->time_ns, start_ns);
    atomic_init(&clock->read_count, 0);
}

int64_t weir_virtual_clock_advance(weir_virtual_clock *clock, int64_t step_ns)
{
    if (step_ns < 0)
        return -EINVAL;
    int64_t now = atomic_load_explicit(&clock->time_ns, memory_order_relaxed);
    int64_t next;
    do {
        if (__builtin_add_overflow(now, step_ns, &next))
            next = INT64_MAX;
    } while (!atomic_compare_exchange_weak_explicit(&clock->time_ns, &now, next,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return next;
}

uint64_t weir_virtual_clock_reads(const weir_virtual_clock *clock)
{
    return atomic_load_explicit(&clock->read_count, memory_order_relaxed);
}
