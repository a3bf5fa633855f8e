/* SPDX-License-Identifier: MIT */
/* Timers: from scheduling to firing, and how any thread can cancel at any moment. */
#include "exec/timer.h"

#include "base/assert.h"
#include "base/time_sum.h"

#include <errno.h>

/*
 * Where a timer is. Its task carries it to the executor's thread, in three roles: to be armed, to
 * fire, to be disarmed; so it is in the queue in at most one of them. A cancel that finds it there
 * leaves its wish in the state, for the task to find.
 *
 *   IDLE -> ARMING -> ARMED -> DUE -> IDLE, fire           once
 *              |        |       |--> FIRING -> ARMED       periodic
 *              v        v       v       v
 *        ARMING_C.  DISARMING  DUE_C.  FIRING_C.           cancelled, all -> IDLE
 */
enum {
    IDLE,
    ARMING,           /* its task is on its way to put it into the heap */
    ARMED,            /* in the heap */
    DUE,              /* its time has come, its task waits to run */
    FIRING,           /* in fire, and will be armed again */
    ARMING_CANCELLED, /* the same, with a cancel to be found */
    DUE_CANCELLED,
    FIRING_CANCELLED,
    DISARMING, /* its task is on its way to take it out of the heap */
};

static bool change(weir_timer *timer, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(&timer->state, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static uint32_t state_of(const weir_timer *timer)
{
    return atomic_load_explicit(&timer->state, memory_order_acquire);
}

static weir_timer *timer_of(weir_heap_node *node)
{
    return WEIR_CONTAINER(node, weir_timer, node);
}

static void count_timers(weir_executor *executor)
{
    atomic_store_explicit(&executor->timer_count, executor->timers.count, memory_order_relaxed);
}

/* The timer is its owner's again. */
static void end_cancelled(weir_timer *timer)
{
    atomic_store_explicit(&timer->state, IDLE, memory_order_release);
    if (timer->cancelled != NULL)
        timer->cancelled(timer);
}

/* Puts it into the heap; its state says that nobody else does. */
static int arm(weir_timer *timer)
{
    weir_executor *executor = timer->executor;
    if (weir_executor_get_state(executor) >= WEIR_EXECUTOR_SHUTTING_DOWN)
        return WEIR_ESHUTDOWN;
    int code = weir__heap_push(&executor->timers, &timer->node, timer->node.key);
    count_timers(executor);
    return code;
}

static void disarm(weir_timer *timer)
{
    weir__heap_remove(&timer->executor->timers, &timer->node);
    count_timers(timer->executor);
}

static int fire_periodic(weir_timer *timer)
{
    int code = timer->fire(timer);
    weir_executor *executor = timer->executor;
    timer->node.key = timer->period_ns > 0
                          ? weir__time_sum(timer->node.key, timer->period_ns)
                          : weir__time_sum(weir__executor_read_clock(executor), -timer->period_ns);
    if (code < 0 || !change(timer, FIRING, ARMED)) {
        end_cancelled(timer);
    } else if (arm(timer) < 0) {
        /* No memory, or no time any more. A cancel may have come from elsewhere just now; then its
         * task ends it. */
        if (change(timer, ARMED, FIRING))
            end_cancelled(timer);
    }
    return code;
}

static int run_timer(weir_task *task)
{
    weir_timer *timer = WEIR_CONTAINER(task, weir_timer, task);
    switch (state_of(timer)) {
    case ARMING:
        if (change(timer, ARMING, ARMED) && arm(timer) == 0)
            return 0;
        if (!change(timer, ARMED, ARMING) && state_of(timer) == DISARMING)
            return 0; /* cancelled just now, by a task that is on its way */
        end_cancelled(timer);
        return 0;
    case DUE:
        if (timer->period_ns != 0 && change(timer, DUE, FIRING))
            return fire_periodic(timer);
        if (timer->period_ns == 0 && change(timer, DUE, IDLE))
            return timer->fire(timer);
        end_cancelled(timer);
        return 0;
    default: /* one of the cancelled */
        disarm(timer);
        end_cancelled(timer);
        return 0;
    }
}

/* The executor ended with the task still in its queue. */
static void drop_timer(weir_task *task)
{
    end_cancelled(WEIR_CONTAINER(task, weir_timer, task));
}

/* Scheduling --------------------------------------------------------------------------------- */

static void prepare(weir_timer *timer, weir_executor *executor, int64_t now_ns, int64_t delay_ns,
                    int64_t period_ns)
{
    timer->executor = executor;
    timer->node.key = weir__time_sum(now_ns, delay_ns > 0 ? delay_ns : 0);
    timer->period_ns = period_ns;
}

static void prepare_task(weir_timer *timer)
{
    timer->task = (weir_task){ .run = run_timer, .dropped = drop_timer, .name = timer->name };
}

/* On the executor's thread nobody else can be about to schedule or cancel a timer that is idle. */
static int schedule_inside(weir_timer *timer, weir_executor *executor, int64_t delay_ns,
                           int64_t period_ns)
{
    if (state_of(timer) != IDLE)
        return -EBUSY;
    prepare(timer, executor, executor->now_ns, delay_ns, period_ns);
    int code = arm(timer);
    if (code == 0)
        atomic_store_explicit(&timer->state, ARMED, memory_order_release);
    return code;
}

static int schedule(weir_timer *timer, weir_executor *executor, int64_t delay_ns, int64_t period_ns)
{
    if (timer == NULL || timer->fire == NULL || executor == NULL)
        return -EINVAL;
    if (weir_executor_is_current(executor))
        return schedule_inside(timer, executor, delay_ns, period_ns);
    if (!change(timer, IDLE, ARMING))
        return -EBUSY;
    prepare(timer, executor, weir_clock_now_ns(executor->clock), delay_ns, period_ns);
    prepare_task(timer);
    int code = weir_executor_post(executor, &timer->task);
    if (code >= 0 || change(timer, ARMING, IDLE))
        return code;
    end_cancelled(timer); /* somebody was quick, and was told that it is cancelled */
    return 0;
}

int weir_timer_schedule(weir_timer *timer, weir_executor *executor, int64_t delay_ns)
{
    return schedule(timer, executor, delay_ns, 0);
}

int weir_timer_schedule_at_rate(weir_timer *timer, weir_executor *executor, int64_t delay_ns,
                                int64_t period_ns)
{
    return period_ns > 0 ? schedule(timer, executor, delay_ns, period_ns) : -EINVAL;
}

int weir_timer_schedule_with_delay(weir_timer *timer, weir_executor *executor, int64_t delay_ns,
                                   int64_t period_ns)
{
    return period_ns > 0 ? schedule(timer, executor, delay_ns, -period_ns) : -EINVAL;
}

/* Its time has come, but not its turn: on the executor's thread nobody else can be at it, but for a
 * cancel, which finds the task gone. Nobody searches the queue, which is long when thousands of
 * connections with timers are closed at once: each due timer knows what is in front of it. */
static void take_from_queue(weir_timer *timer)
{
    weir_mpsc_node *next = timer->task.node.next;
    weir_task *follower = next != NULL ? WEIR_CONTAINER(next, weir_task, node) : NULL;
    if (follower != NULL && follower->run == run_timer)
        WEIR_CONTAINER(follower, weir_timer, task)->before = timer->before;
    weir__task_queue_take_out(&timer->executor->tasks, timer->before, &timer->task);
}

/* The heap has had room for it until just now. */
static int rearm(weir_timer *timer, int64_t delay_ns)
{
    weir_executor *executor = timer->executor;
    /* In this order: who finds it armed may post its task. */
    take_from_queue(timer);
    if (!change(timer, DUE, ARMED)) {
        end_cancelled(timer); /* from elsewhere, just now */
        return -EINVAL;
    }
    timer->node.key = weir__time_sum(executor->now_ns, delay_ns);
    int code = arm(timer);
    if (code < 0 && change(timer, ARMED, FIRING))
        end_cancelled(timer);
    return code;
}

int weir_timer_reschedule(weir_timer *timer, int64_t delay_ns)
{
    uint32_t state = timer != NULL ? state_of(timer) : IDLE;
    int64_t wait_ns = delay_ns > 0 ? delay_ns : 0;
    if (state != DUE && (state != ARMED || !weir__heap_contains(&timer->node)))
        return -EINVAL;
    if (!weir_executor_is_current(timer->executor))
        return -EPERM;
    if (state == DUE)
        return rearm(timer, wait_ns);
    weir__heap_update(&timer->executor->timers, &timer->node,
                      weir__time_sum(timer->executor->now_ns, wait_ns));
    return 0;
}

int weir_timer_cancel(weir_timer *timer)
{
    if (timer == NULL)
        return -EINVAL;
    for (;;) {
        switch (state_of(timer)) {
        case ARMING:
            if (change(timer, ARMING, ARMING_CANCELLED))
                return 0;
            break;
        case DUE:
            if (weir_executor_is_current(timer->executor)) {
                take_from_queue(timer);
                end_cancelled(timer);
                return 0;
            }
            if (change(timer, DUE, DUE_CANCELLED))
                return 0;
            break;
        case FIRING:
            if (change(timer, FIRING, FIRING_CANCELLED))
                return 0;
            break;
        case ARMED:
            if (!change(timer, ARMED, DISARMING))
                break;
            if (weir_executor_is_current(timer->executor)) {
                disarm(timer);
                end_cancelled(timer);
                return 0;
            }
            prepare_task(timer);
            if (weir__executor_post_always(timer->executor, &timer->task) < 0)
                end_cancelled(timer);
            return 0;
        default:
            return -EALREADY;
        }
    }
}

/* For the executor --------------------------------------------------------------------------- */

WEIR__HOT bool weir__timers_move_due(weir_executor *executor, unsigned most)
{
    unsigned moved = 0;
    weir_heap_node *first;
    while ((first = weir__heap_first(&executor->timers)) != NULL &&
           first->key <= executor->now_ns) {
        weir_timer *timer = timer_of(first);
        if (moved++ == most) {
            weir__heap_sort_up_to(&executor->timers, executor->now_ns);
            return false;
        }
        /* The task is pushed first: the queue may be full, and then the timer stays where it is. */
        if (state_of(timer) == ARMED) {
            if (!change(timer, ARMED, DUE))
                continue;
            prepare_task(timer);
            if (weir__task_queue_append(&executor->tasks, &timer->task, &timer->before) < 0) {
                /* A cancel may have come in between, and found it due. */
                if (!change(timer, DUE, ARMED)) {
                    disarm(timer);
                    end_cancelled(timer);
                    continue;
                }
                return false;
            }
        }
        /* Else somebody is cancelling it: its task comes and finds it out of the heap. */
        disarm(timer);
    }
    return true;
}

void weir__timers_cancel_all(weir_executor *executor)
{
    weir_heap_node *first;
    while ((first = weir__heap_first(&executor->timers)) != NULL) {
        weir_timer *timer = timer_of(first);
        if (change(timer, ARMED, DISARMING)) {
            disarm(timer);
            end_cancelled(timer);
        } else {
            disarm(timer); /* somebody was faster: its task is on its way */
        }
    }
}
