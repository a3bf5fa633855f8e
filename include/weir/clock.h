/* SPDX-License-Identifier: MIT */
/* Clocks: where executors get the time, so that tests can hand them their own. */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include <weir/api.h>
#include <weir/duration.h>

WEIR_BEGIN_DECLS

/** A clock: nanoseconds since some fixed point, never running backwards. */
typedef struct weir_clock weir_clock;
struct weir_clock {
    int64_t (*now_ns)(weir_clock *clock); /* any thread */

    /* For a clock that does not run by itself: moves it forward by that much, on behalf of who
     * waits for something that time will bring. NULL: waiting is enough. */
    void (*skip)(weir_clock *clock, int64_t step_ns);

    /* How long until something happens that no timer knows of, for a clock with a world of its own:
     * 0 when it is there, negative when nothing will. NULL: nothing ever does. */
    int64_t (*next_ns)(weir_clock *clock);
};

/** What the clock says. */
static inline int64_t weir_clock_now_ns(weir_clock *clock)
{
    return clock->now_ns(clock);
}

/** The system's monotonic clock. Never freed. */
WEIR_API weir_clock *weir_clock_monotonic(void);

/** The system's wall clock, in nanoseconds since 1970: for what people read. It may be set, also
 * backwards, so no executor can have it. Never freed. */
WEIR_API weir_clock *weir_clock_wall(void);

/**
 * A clock that stands still until somebody moves it, and counts how often it was asked.
 * Put it where it outlives what uses it; the fields are weir's.
 */
typedef struct weir_virtual_clock {
    weir_clock clock; /* pass &virtual_clock.clock on */
    WEIR_ATOMIC(int64_t) time_ns;
    WEIR_ATOMIC(uint64_t) read_count;
} weir_virtual_clock;

/** Starts a virtual clock at `start_ns`. */
WEIR_API void weir_virtual_clock_init(weir_virtual_clock *clock, int64_t start_ns);

/** Moves it forward and returns the new time; threads that wait have to be woken to notice. -EINVAL
 * for a negative step. Stops at INT64_MAX. */
WEIR_API int64_t weir_virtual_clock_advance(weir_virtual_clock *clock, int64_t step_ns);

/** How often it was read. */
WEIR_API uint64_t weir_virtual_clock_reads(const weir_virtual_clock *clock);

WEIR_END_DECLS

#endif
