/* SPDX-License-Identifier: MIT */
/* Timers: tasks for later, once or again and again. */
#ifndef WEIR_TIMER_H
#define WEIR_TIMER_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/executor.h>
#include <weir/node.h>

WEIR_BEGIN_DECLS

/**
 * Embed it, zero it, set the first three fields. It is weir's from a successful schedule until
 * `fire` of a one-shot timer, or `cancelled`, is called; in both it is yours again, to schedule
 * once more or to free. Both run on the executor's thread,
 * but for a `cancelled` that comes after its end.
 */
typedef struct weir_timer weir_timer;
struct weir_timer {
    int (*fire)(
        weir_timer *timer); /* 0, or a negative code that is logged and ends a periodic one */
    void (*cancelled)(
        weir_timer *timer); /* instead of a fire that will not come any more; may be NULL */
    const char *name;       /* for logs, the watchdog and the debugger; may be NULL */
    /* weir's; what scheduling and cancelling touch is in one cache line with the above: */
    weir_heap_node node; /* its key is the deadline */
    weir_executor *executor;
    WEIR_ATOMIC(uint32_t) state;
    int64_t period_ns; /* 0: once; negative: counted from the end of fire */
    weir_task task;
    weir_mpsc_node *before; /* while it is due: what is in front of its task */
};

/**
 * Fires once, `delay_ns` from now (on the executor's thread: from weir_executor_now_ns, which is
 * the time of the present turn): not earlier, and equal times in the order of scheduling. A
 * negative delay is 0; one too large for the clock never comes. -EINVAL for NULL, -EBUSY when the
 * timer is scheduled already, else as weir_executor_post. Without memory it is -ENOMEM on the
 * executor's thread, and from another one `cancelled` is called. Any thread.
 */
WEIR_API int weir_timer_schedule(weir_timer *timer, weir_executor *executor, int64_t delay_ns);

/** Fires after `delay_ns` and then every `period_ns`, counted from the first time: what a slow
 * `fire` missed is caught up with. -EINVAL for a period that is not positive. */
WEIR_API int weir_timer_schedule_at_rate(weir_timer *timer, weir_executor *executor,
                                         int64_t delay_ns, int64_t period_ns);

/** The same, each time counted from the end of the `fire` before. */
WEIR_API int weir_timer_schedule_with_delay(weir_timer *timer, weir_executor *executor,
                                            int64_t delay_ns, int64_t period_ns);

/** Gives a timer that waits another time; cheaper than to cancel and schedule. -EINVAL when it does
 * not wait. On the executor's thread, else -EPERM. Cannot fail otherwise. */
WEIR_API int weir_timer_reschedule(weir_timer *timer, int64_t delay_ns);

/**
 * No further `fire` begins: `cancelled` is called instead, once. On the executor's thread that has
 * happened when this returns (but for a timer that is in its `fire`, or was scheduled by another
 * thread just now); from another thread it comes soon. -EALREADY when the timer is not scheduled,
 * or was cancelled before. Any thread; cannot fail otherwise.
 */
WEIR_API int weir_timer_cancel(weir_timer *timer);

/** Calls a function later, with a future of what it returns (cancelling it cancels the timer),
 * which the caller releases; `future` may be NULL. -ENOMEM, or as weir_timer_schedule. Any thread.
 */
WEIR_API int weir_executor_schedule(weir_executor *executor, weir_call_fn fn, void *arg,
                                    int64_t delay_ns, weir_future **future);

WEIR_END_DECLS

#endif
