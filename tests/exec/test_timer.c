/* SPDX-License-Identifier: MIT */
/* Timers: when they fire, how they are cancelled, and that each schedule ends in one of the two. */
#include "executors.h"

#include <weir/timer.h>

#define START_NS WEIR_SECONDS(100)

/* One executor with a clock that the test moves. */
typedef struct bench {
    weir_virtual_clock clock;
    weir_group *group;
    weir_executor *executor;
} bench;

static void bench_begin(bench *self, int bound)
{
    weir_virtual_clock_init(&self->clock, START_NS);
    self->group = new_group(&(weir_group_config){
        .count = 1, .clock = &self->clock.clock, .max_pending_tasks = bound });
    self->executor = weir_group_at(self->group, 0);
}

/* Moves the clock and waits until the executor has seen it and done what is due. */
static void bench_advance(bench *self, int64_t step_ns)
{
    weir_virtual_clock_advance(&self->clock, step_ns);
    wait_for_passes(self->executor);
    settle(self->executor);
}

typedef struct clockwork {
    weir_timer timer;
    atomic_int fires, cancels;
    atomic_int *next; /* gives out places, when there is one */
    int place, fail_at, cancel_at, last_code;
    weir_virtual_clock *clock; /* moved by each fire, when there is one */
    int64_t slow_ns;
} clockwork;

static int clockwork_fire(weir_timer *timer)
{
    clockwork *self = WEIR_CONTAINER(timer, clockwork, timer);
    if (self->next != NULL)
        self->place = atomic_fetch_add(self->next, 1);
    if (self->clock != NULL)
        weir_virtual_clock_advance(self->clock, self->slow_ns);
    int fires = atomic_fetch_add(&self->fires, 1) + 1;
    if (fires == self->cancel_at)
        self->last_code = weir_timer_cancel(timer);
    return fires == self->fail_at ? -EIO : 0;
}

static void clockwork_cancelled(weir_timer *timer)
{
    atomic_fetch_add(&WEIR_CONTAINER(timer, clockwork, timer)->cancels, 1);
}

#define CLOCKWORK                                                                                  \
    (clockwork)                                                                                    \
    {                                                                                              \
        .timer = {.fire = clockwork_fire, .cancelled = clockwork_cancelled, .name = "clockwork" }  \
    }

static int fires_of(clockwork *self)
{
    return atomic_load(&self->fires);
}

static int cancels_of(clockwork *self)
{
    return atomic_load(&self->cancels);
}

static void s071_timers_fire_by_deadline_then_by_order(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static clockwork timers[COUNT];
    bench b;
    bench_begin(&b, 0);
    atomic_int next = 0;
    for (int i = 0; i < COUNT; i++) {
        timers[i] = CLOCKWORK;
        timers[i].next = &next;
        int64_t delay_ns = 1 + i * 7 % 10;
        assert_int_equal(weir_timer_schedule(&timers[i].timer, b.executor, delay_ns), 0);
    }
    settle(b.executor);
    bench_advance(&b, 10);
    end_group(b.group);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(timers[i].fires, 1);
        assert_int_equal(timers[i].place, (i * 7 % 10) * 100 + i / 10);
    }
}

/* Two nodes with one key and, which cannot be, one id. */
static void forge_equal_ids(void *arg)
{
    (void)arg;
    weir_heap heap = { .next_id = 0 };
    weir_heap_node first = { .place = 0 }, second = { .place = 0 };
    weir__heap_push(&heap, &first, 5);
    heap.next_id = 0;
    weir__heap_push(&heap, &second, 5);
}

static void s072_two_timers_with_one_id_are_a_bug(void **state)
{
    (void)state;
    if (HARNESS_MISUSE_ABORTS)
        harness_expect_abort(forge_equal_ids, NULL, "node->id");
}

static void s073_no_memory_before_the_first_timer(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    settle(b.executor);
    weir_allocator_stats before, between, after;
    weir_allocator_get_stats(&before);
    settle(b.executor);
    weir_allocator_get_stats(&between);
    assert_int_equal(between.live, before.live);
    static clockwork timers[11];
    for (int i = 0; i < 11; i++) {
        timers[i] = CLOCKWORK;
        assert_int_equal(weir_timer_schedule(&timers[i].timer, b.executor, 1), 0);
    }
    settle(b.executor);
    weir_allocator_get_stats(&after);
    assert_int_equal(after.allocations, before.allocations + 1);
    end_group(b.group);
}

static void s075_negative_delay_is_none(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork negative = CLOCKWORK, least = CLOCKWORK;
    assert_int_equal(weir_timer_schedule(&negative.timer, b.executor, -WEIR_SECONDS(5)), 0);
    assert_int_equal(weir_timer_schedule(&least.timer, b.executor, INT64_MIN), 0);
    WAIT_FOR(fires_of(&negative) == 1 && fires_of(&least) == 1);
    end_group(b.group);
    assert_int_equal(cancels_of(&negative), 0);
}

static void s076_huge_delay_never_comes(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork huge = CLOCKWORK, large = CLOCKWORK;
    assert_int_equal(weir_timer_schedule(&huge.timer, b.executor, INT64_MAX), 0);
    assert_int_equal(weir_timer_schedule(&large.timer, b.executor, INT64_MAX - START_NS - 1), 0);
    settle(b.executor);
    bench_advance(&b, WEIR_SECONDS(1000000000));
    assert_int_equal(stats_of(b.executor).timers, 2);
    end_group(b.group);
    assert_int_equal(fires_of(&huge) + fires_of(&large), 0);
    assert_int_equal(cancels_of(&huge), 1);
    assert_int_equal(cancels_of(&large), 1);
}

static void s077_not_before_its_time(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    assert_int_equal(weir_timer_schedule(&t.timer, b.executor, 100), 0);
    settle(b.executor);
    bench_advance(&b, 99);
    assert_int_equal(fires_of(&t), 0);
    assert_int_equal(stats_of(b.executor).timers, 1);
    bench_advance(&b, 1);
    assert_int_equal(fires_of(&t), 1);
    assert_int_equal(stats_of(b.executor).timers, 0);
    end_group(b.group);
    assert_int_equal(cancels_of(&t), 0);
}

static void s078_timers_beyond_the_bound_come_in_the_next_pass(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    static clockwork timers[COUNT];
    bench b;
    bench_begin(&b, 16);
    atomic_int next = 0;
    for (int i = 0; i < COUNT; i++) {
        timers[i] = CLOCKWORK;
        timers[i].next = &next;
        assert_int_equal(weir_timer_schedule(&timers[i].timer, b.executor, 1), 0);
        settle(b.executor);
    }
    weir_virtual_clock_advance(&b.clock, 1);
    weir_executor_wake(b.executor);
    WAIT_FOR(atomic_load(&next) == COUNT);
    end_group(b.group);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(timers[i].fires, 1);
        assert_int_equal(timers[i].place, i);
    }
}

static void s079_rate_catches_up(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    assert_int_equal(weir_timer_schedule_at_rate(&t.timer, b.executor, 50, 100), 0);
    settle(b.executor);
    bench_advance(&b, 50);
    assert_int_equal(fires_of(&t), 1);
    bench_advance(&b, 99);
    assert_int_equal(fires_of(&t), 1);
    bench_advance(&b, 1);
    assert_int_equal(fires_of(&t), 2);
    weir_virtual_clock_advance(&b.clock, 500);
    weir_executor_wake(b.executor);
    WAIT_FOR(fires_of(&t) == 7);
    bench_advance(&b, 99);
    assert_int_equal(fires_of(&t), 7);
    end_group(b.group);
    assert_int_equal(cancels_of(&t), 1);
}

static void s079_delay_does_not_catch_up(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    t.clock = &b.clock;
    t.slow_ns = 500; /* each fire takes this long */
    assert_int_equal(weir_timer_schedule_with_delay(&t.timer, b.executor, 50, 100), 0);
    settle(b.executor);
    bench_advance(&b, 50);
    assert_int_equal(fires_of(&t), 1);
    bench_advance(&b, 99);
    assert_int_equal(fires_of(&t), 1);
    bench_advance(&b, 1);
    assert_int_equal(fires_of(&t), 2);
    bench_advance(&b, 0);
    assert_int_equal(fires_of(&t), 2);
    end_group(b.group);
    assert_int_equal(cancels_of(&t), 1);
}

static void failing_periodic_timer_ends(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    t.fail_at = 2;
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_timer_schedule_at_rate(&t.timer, b.executor, 0, 10), 0);
    settle(b.executor);
    bench_advance(&b, 100);
    WAIT_FOR(cancels_of(&t) == 1);
    assert_int_equal(fires_of(&t), 2);
    end_group(b.group);
    assert_true(harness_log_has("clockwork failed"));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(cancels_of(&t), 1);
}

static void s080_cancelled_timers_leave_the_heap_and_do_not_fire(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    clockwork *timers = calloc(COUNT, sizeof *timers);
    assert_non_null(timers);
    bench b;
    bench_begin(&b, 0);
    for (int i = 0; i < COUNT; i++) {
        timers[i] = CLOCKWORK;
        assert_int_equal(weir_timer_schedule(&timers[i].timer, b.executor, 1 + i % 100), 0);
    }
    settle(b.executor);
    assert_int_equal(stats_of(b.executor).timers, COUNT);
    for (int i = 0; i < COUNT; i += 2)
        assert_int_equal(weir_timer_cancel(&timers[i].timer), 0);
    settle(b.executor);
    assert_int_equal(stats_of(b.executor).timers, COUNT / 2);
    bench_advance(&b, 100);
    end_group(b.group);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(timers[i].fires, i % 2);
        assert_int_equal(timers[i].cancels, 1 - i % 2);
    }
    free(timers);
}

typedef struct inside {
    weir_executor *executor;
    clockwork timer;
    int codes[6], cancels, fires;
} inside;

static int cancel_inside(void *arg)
{
    inside *self = arg;
    self->codes[0] = weir_timer_schedule(&self->timer.timer, self->executor, 10);
    self->codes[1] = weir_timer_schedule(&self->timer.timer, self->executor, 10);
    self->codes[2] = weir_timer_cancel(&self->timer.timer);
    self->cancels = cancels_of(&self->timer);
    self->codes[3] = weir_timer_cancel(&self->timer.timer);
    self->codes[4] = weir_timer_schedule(&self->timer.timer, self->executor, 10);
    return 0;
}

static void s080_cancel_from_inside_has_happened_when_it_returns(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    inside i = { .executor = b.executor, .timer = CLOCKWORK };
    assert_int_equal(call_on(b.executor, cancel_inside, &i), 0);
    assert_int_equal(i.codes[0], 0);
    assert_int_equal(i.codes[1], -EBUSY);
    assert_int_equal(i.codes[2], 0);
    assert_int_equal(i.cancels, 1);
    assert_int_equal(i.codes[3], -EALREADY);
    assert_int_equal(i.codes[4], 0);
    bench_advance(&b, 10);
    assert_int_equal(fires_of(&i.timer), 1);
    end_group(b.group);
    assert_int_equal(cancels_of(&i.timer), 1);
}

static void second_cancel_is_told(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    assert_int_equal(weir_timer_cancel(&t.timer), -EALREADY);
    assert_int_equal(weir_timer_cancel(NULL), -EINVAL);
    assert_int_equal(weir_timer_schedule(&t.timer, b.executor, 1), 0);
    blocker holder;
    block(&holder, b.executor);
    assert_int_equal(weir_timer_cancel(&t.timer), 0);
    assert_int_equal(weir_timer_cancel(&t.timer), -EALREADY);
    assert_int_equal(cancels_of(&t), 0);
    unblock(&holder);
    bench_advance(&b, 10);
    assert_int_equal(fires_of(&t), 0);
    assert_int_equal(cancels_of(&t), 1);
    assert_int_equal(weir_timer_cancel(&t.timer), -EALREADY);
    end_group(b.group);
    assert_int_equal(cancels_of(&t), 1);
}

static void cancelled_before_it_is_armed(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    blocker holder;
    block(&holder, b.executor);
    assert_int_equal(weir_timer_schedule(&t.timer, b.executor, 0), 0);
    assert_int_equal(weir_timer_schedule(&t.timer, b.executor, 0), -EBUSY);
    assert_int_equal(weir_timer_cancel(&t.timer), 0);
    assert_int_equal(weir_timer_cancel(&t.timer), -EALREADY);
    unblock(&holder);
    settle(b.executor);
    assert_int_equal(fires_of(&t), 0);
    assert_int_equal(cancels_of(&t), 1);
    end_group(b.group);
}

static void cancel_in_fire_ends_a_periodic_timer(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork periodic = CLOCKWORK, once = CLOCKWORK;
    periodic.cancel_at = 3;
    once.cancel_at = 1;
    assert_int_equal(weir_timer_schedule_at_rate(&periodic.timer, b.executor, 0, 10), 0);
    assert_int_equal(weir_timer_schedule(&once.timer, b.executor, 0), 0);
    settle(b.executor);
    bench_advance(&b, 1000);
    WAIT_FOR(cancels_of(&periodic) == 1);
    end_group(b.group);
    assert_int_equal(periodic.last_code, 0);
    assert_int_equal(fires_of(&periodic), 3);
    assert_int_equal(cancels_of(&periodic), 1);
    assert_int_equal(once.last_code, -EALREADY);
    assert_int_equal(fires_of(&once), 1);
    assert_int_equal(cancels_of(&once), 0);
}

static int reschedule_inside(void *arg)
{
    inside *self = arg;
    self->codes[0] = weir_timer_schedule(&self->timer.timer, self->executor, 10);
    self->codes[1] = weir_timer_reschedule(&self->timer.timer, 100);
    return 0;
}

static void rescheduled_timer_fires_at_its_new_time(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    inside i = { .executor = b.executor, .timer = CLOCKWORK };
    assert_int_equal(weir_timer_reschedule(&i.timer.timer, 1), -EINVAL);
    assert_int_equal(weir_timer_reschedule(NULL, 1), -EINVAL);
    assert_int_equal(call_on(b.executor, reschedule_inside, &i), 0);
    assert_int_equal(i.codes[0], 0);
    assert_int_equal(i.codes[1], 0);
    assert_int_equal(weir_timer_reschedule(&i.timer.timer, 1), -EPERM);
    bench_advance(&b, 99);
    assert_int_equal(fires_of(&i.timer), 0);
    bench_advance(&b, 1);
    assert_int_equal(fires_of(&i.timer), 1);
    end_group(b.group);
    assert_int_equal(cancels_of(&i.timer), 0);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    weir_timer empty = { .fire = NULL };
    assert_int_equal(weir_timer_schedule(NULL, b.executor, 0), -EINVAL);
    assert_int_equal(weir_timer_schedule(&empty, b.executor, 0), -EINVAL);
    assert_int_equal(weir_timer_schedule(&t.timer, NULL, 0), -EINVAL);
    assert_int_equal(weir_timer_schedule_at_rate(&t.timer, b.executor, 0, 0), -EINVAL);
    assert_int_equal(weir_timer_schedule_at_rate(&t.timer, b.executor, 0, -1), -EINVAL);
    assert_int_equal(weir_timer_schedule_with_delay(&t.timer, b.executor, 0, 0), -EINVAL);
    assert_int_equal(weir_timer_schedule_with_delay(&t.timer, b.executor, 0, INT64_MIN), -EINVAL);
    assert_int_equal(weir_executor_get_state(b.executor), WEIR_EXECUTOR_NOT_STARTED);
    end_group(b.group);
    assert_int_equal(weir_timer_cancel(&t.timer), -EALREADY);
}

static void s044_shutdown_cancels_what_waits(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork timers[3] = { CLOCKWORK, CLOCKWORK, CLOCKWORK };
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_timer_schedule(&timers[i].timer, b.executor, 1 + i), 0);
    settle(b.executor);
    end_group(b.group);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fires_of(&timers[i]), 0);
        assert_int_equal(cancels_of(&timers[i]), 1);
        assert_int_equal(weir_timer_cancel(&timers[i].timer), -EALREADY);
    }
}

static void schedule_after_the_end_is_refused(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    assert_int_equal(weir_group_shutdown(b.group, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(b.group)), 0);
    assert_int_equal(weir_timer_schedule(&t.timer, b.executor, 0), WEIR_ESHUTDOWN);
    assert_int_equal(weir_timer_cancel(&t.timer), -EALREADY);
    weir_group_free(b.group);
    assert_int_equal(fires_of(&t) + cancels_of(&t), 0);
}

static void without_memory_it_is_cancelled(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    clockwork t = CLOCKWORK;
    settle(b.executor);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_timer_schedule(&t.timer, b.executor, 1), 0);
    settle(b.executor);
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(cancels_of(&t), 1);
    assert_int_equal(weir_timer_schedule(&t.timer, b.executor, 1), 0);
    settle(b.executor);
    bench_advance(&b, 1);
    end_group(b.group);
    assert_int_equal(fires_of(&t), 1);
    assert_int_equal(cancels_of(&t), 1);
}

static int add_one(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void function_is_called_later(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 0);
    atomic_int calls = 0;
    weir_future *first = NULL, *second = NULL;
    assert_int_equal(weir_executor_schedule(b.executor, add_one, &calls, 10, &first), 0);
    assert_int_equal(weir_executor_schedule(b.executor, add_one, &calls, 10, &second), 0);
    assert_int_equal(weir_executor_schedule(b.executor, add_one, &calls, 10, NULL), 0);
    settle(b.executor);
    assert_int_equal(weir_future_cancel(second), 0);
    bench_advance(&b, 10);
    assert_int_equal(weir_future_await(first), 0);
    assert_int_equal(weir_future_await(second), -ECANCELED);
    weir_future_release(first);
    weir_future_release(second);
    end_group(b.group);
    assert_int_equal(atomic_load(&calls), 2);
}

/* Eight threads schedule and cancel, and with no regard for what the executor is doing. */

enum { THREADS = 8, TIMERS = 64, ROUNDS = 60 };

typedef struct juggler {
    weir_executor *executor;
    clockwork timers[TIMERS];
    unsigned seed;
    int accepted, unexpected;
} juggler;

static void *juggle(void *arg)
{
    juggler *self = arg;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < TIMERS; i++) {
            weir_timer *timer = &self->timers[i].timer;
            int64_t delay_ns = (int64_t)(rand_r(&self->seed) % 4) * 20000;
            int code = weir_timer_schedule(timer, self->executor, delay_ns);
            self->accepted += code == 0;
            self->unexpected += code != 0 && code != -EBUSY;
        }
        for (int i = 0; i < TIMERS; i++) {
            int code = rand_r(&self->seed) % 2 ? weir_timer_cancel(&self->timers[i].timer) : 0;
            self->unexpected += code != 0 && code != -EALREADY;
        }
    }
    return NULL;
}

static void s074_eight_threads_schedule_and_cancel(void **state)
{
    (void)state;
    static juggler jugglers[THREADS];
    weir_group *group = new_group_of(1);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        jugglers[i] = (juggler){ .executor = weir_group_at(group, 0), .seed = i + 1 };
        for (int k = 0; k < TIMERS; k++)
            jugglers[i].timers[k] = CLOCKWORK;
        assert_int_equal(pthread_create(&threads[i], NULL, juggle, &jugglers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    end_group(group);
    for (int i = 0; i < THREADS; i++) {
        int ends = 0;
        for (int k = 0; k < TIMERS; k++)
            ends += fires_of(&jugglers[i].timers[k]) + cancels_of(&jugglers[i].timers[k]);
        assert_int_equal(jugglers[i].unexpected, 0);
        assert_int_equal(ends, jugglers[i].accepted);
    }
}

enum { CROWD = 100 };

typedef struct crowd {
    weir_executor *executor;
    atomic_int next;
    clockwork timers[CROWD];
} crowd;

static int schedule_crowd(void *arg)
{
    crowd *self = arg;
    for (int i = 0; i < CROWD; i++) {
        self->timers[i] = CLOCKWORK;
        self->timers[i].next = &self->next;
        weir_timer_schedule(&self->timers[i].timer, self->executor, 1 + i / 10);
    }
    return 0;
}

/* All are due, but the queue takes 16: the others are put back, and come in order, pass by pass. */
static void s078_queue_of_sixteen_takes_sixteen_timers_a_pass(void **state)
{
    (void)state;
    static crowd c;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group = new_group(&(weir_group_config){
        .count = 1, .is_manual = true, .clock = &clock.clock, .max_pending_tasks = 16 });
    c.executor = weir_group_at(group, 0);
    atomic_store(&c.next, 0);
    assert_int_equal(weir_executor_execute(c.executor, schedule_crowd, &c), 0);
    assert_int_equal(weir_group_step(group), 1);
    weir_virtual_clock_advance(&clock, 100);
    for (int fired = 16; fired < CROWD; fired += 16) {
        assert_int_equal(weir_group_step(group), 1);
        assert_int_equal(atomic_load(&c.next), fired);
        assert_int_equal(stats_of(c.executor).timers, CROWD - fired);
    }
    assert_int_equal(weir_group_step(group), 1);
    assert_int_equal(weir_group_step(group), 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(c.timers[i].place, i);
    weir_group_free(group);
}

/* Due, but not yet its turn ---------------------------------------------------------------------
 */

/* A task that stands before the timer in the queue, on an executor that is stepped by hand. */
typedef struct overtaker {
    weir_virtual_clock clock;
    weir_group *group;
    weir_executor *executor;
    weir_call_fn act;
    bool shuts_down;
    clockwork *due, *other; /* `other` comes due together with it, behind it */
    int code, cancels;      /* what the act returned, and what had been told by then */
    size_t timers_before;   /* that waited for their time */
} overtaker;

static int cancel_due(void *arg)
{
    return weir_timer_cancel(&((overtaker *)arg)->due->timer);
}

static int reschedule_due(void *arg)
{
    return weir_timer_reschedule(&((overtaker *)arg)->due->timer, 50);
}

static int overtake(void *arg)
{
    overtaker *self = arg;
    self->timers_before = stats_of(self->executor).timers;
    if (self->shuts_down)
        assert_int_equal(weir_group_shutdown(self->group, 0, 0), 0);
    self->code = self->act(self);
    self->cancels = cancels_of(self->due);
    if (self->act == cancel_due) {
        free(self->due);
        self->due = NULL;
    }
    return 0;
}

static int schedule_both(void *arg)
{
    overtaker *self = arg;
    assert_int_equal(weir_timer_schedule(&self->due->timer, self->executor, 10), 0);
    return weir_timer_schedule(&self->other->timer, self->executor, 10);
}

/* The timers come due in the pass in which the task runs, and stand behind it. */
static void overtaker_begin(overtaker *self, weir_call_fn act, int bound)
{
    weir_virtual_clock_init(&self->clock, START_NS);
    self->group = new_group(&(weir_group_config){
        .count = 1, .is_manual = true, .clock = &self->clock.clock, .max_pending_tasks = bound });
    self->executor = weir_group_at(self->group, 0);
    self->act = act;
    self->due = malloc(sizeof *self->due);
    self->other = malloc(sizeof *self->other);
    assert_true(self->due != NULL && self->other != NULL);
    *self->due = CLOCKWORK;
    *self->other = CLOCKWORK;
    assert_int_equal(weir_executor_execute(self->executor, schedule_both, self), 0);
    assert_int_equal(weir_group_step(self->group), 1);
    assert_int_equal(stats_of(self->executor).timers, 2);
    weir_virtual_clock_advance(&self->clock, 10);
    assert_int_equal(weir_executor_execute(self->executor, overtake, self), 0);
}

static void overtaker_end(overtaker *self)
{
    assert_int_equal(weir_group_shutdown(self->group, 0, 0), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(self->group)), 0);
    weir_group_free(self->group);
    free(self->due);
    free(self->other);
}

static const int bounds[] = { 0, 16 };

static void a_due_timer_is_cancelled_at_once_and_may_be_freed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        overtaker o = { .shuts_down = false };
        overtaker_begin(&o, cancel_due, bounds[i]);
        assert_int_equal(weir_group_step(o.group), 1);
        assert_int_equal(o.timers_before, 0); /* it was due */
        assert_int_equal(o.code, 0);
        assert_int_equal(o.cancels, 1);
        assert_int_equal(fires_of(o.other), 1);
        assert_int_equal(stats_of(o.executor).tasks_queued, 0);
        assert_int_equal(weir_group_step(o.group), 0);
        overtaker_end(&o);
    }
}

static void a_due_timer_that_is_rescheduled_fires_once_at_its_new_time(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        overtaker o = { .shuts_down = false };
        overtaker_begin(&o, reschedule_due, bounds[i]);
        assert_int_equal(weir_group_step(o.group), 1);
        assert_int_equal(o.timers_before, 0);
        assert_int_equal(o.code, 0);
        assert_int_equal(fires_of(o.due), 0);
        assert_int_equal(fires_of(o.other), 1);
        assert_int_equal(stats_of(o.executor).tasks_queued, 0);
        assert_int_equal(stats_of(o.executor).timers, 1);
        weir_virtual_clock_advance(&o.clock, 49);
        weir_group_step(o.group);
        assert_int_equal(fires_of(o.due), 0);
        weir_virtual_clock_advance(&o.clock, 1);
        weir_group_step(o.group);
        assert_int_equal(fires_of(o.due), 1);
        weir_virtual_clock_advance(&o.clock, 1000);
        weir_group_step(o.group);
        assert_int_equal(fires_of(o.due), 1);
        assert_int_equal(cancels_of(o.due), 0);
        overtaker_end(&o);
    }
}

static void a_due_timer_is_cancelled_at_once_during_shutdown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        overtaker o = { .shuts_down = true };
        overtaker_begin(&o, cancel_due, bounds[i]);
        assert_int_equal(weir_group_step(o.group), 1);
        assert_int_equal(o.timers_before, 0);
        assert_int_equal(o.code, 0);
        assert_int_equal(o.cancels, 1);
        overtaker_end(&o);
    }
}

/* There is no later any more: it is cancelled instead. */
static void a_due_timer_that_is_rescheduled_during_shutdown_is_cancelled(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        overtaker o = { .shuts_down = true };
        overtaker_begin(&o, reschedule_due, bounds[i]);
        assert_int_equal(weir_group_step(o.group), 1);
        assert_int_equal(o.timers_before, 0);
        assert_int_equal(o.code, WEIR_ESHUTDOWN);
        assert_int_equal(o.cancels, 1);
        weir_virtual_clock_advance(&o.clock, 1000);
        weir_group_step(o.group);
        assert_int_equal(fires_of(o.due), 0);
        assert_int_equal(cancels_of(o.due), 1);
        overtaker_end(&o);
    }
}

/* What was taken out of a full queue makes room. */
static int cancel_crowd(void *arg)
{
    crowd *self = arg;
    int cancelled = 0;
    for (int i = 0; i < CROWD; i++)
        cancelled += weir_timer_cancel(&self->timers[i].timer) == 0;
    return cancelled == CROWD ? 0 : -EINVAL;
}

static void due_timers_that_are_cancelled_make_room_in_the_queue(void **state)
{
    (void)state;
    static crowd c;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group = new_group(&(weir_group_config){
        .count = 1, .is_manual = true, .clock = &clock.clock, .max_pending_tasks = 16 });
    c.executor = weir_group_at(group, 0);
    atomic_store(&c.next, 0);
    assert_int_equal(weir_executor_execute(c.executor, schedule_crowd, &c), 0);
    assert_int_equal(weir_group_step(group), 1);
    weir_virtual_clock_advance(&clock, 100);
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(c.executor, cancel_crowd, &c, &future), 0);
    weir_group_step(group);
    assert_int_equal(weir_future_code(future), 0);
    weir_future_release(future);
    assert_int_equal(atomic_load(&c.next), 0);
    assert_int_equal(stats_of(c.executor).tasks_queued, 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(cancels_of(&c.timers[i]), 1);
    for (int i = 0; i < 16; i++)
        assert_int_equal(weir_executor_execute(c.executor, add_one, &c.next), 0);
    assert_int_equal(weir_executor_execute(c.executor, add_one, &c.next), -EAGAIN);
    weir_group_step(group);
    assert_int_equal(atomic_load(&c.next), 16);
    weir_group_free(group);
}

/* Each that fires cancels or reschedules some of those behind it, which are freed or fire again;
 * some tasks stand between them. */
enum { LINE = 200, LINE_ROUNDS = 200 };

typedef struct line line;
typedef struct line_timer {
    weir_timer timer;
    line *of;
    int nth;
    bool was_moved; /* to later */
} line_timer;

struct line {
    weir_executor *executor;
    unsigned random;
    line_timer *waiting[LINE]; /* NULL: it has ended */
    int last, ended, tasks;    /* which fired last */
};

static unsigned next_random(line *self, unsigned below)
{
    self->random = self->random * 1103515245u + 12345u;
    return (self->random >> 16) % below;
}

static void line_timer_end(line_timer *self)
{
    self->of->waiting[self->nth] = NULL;
    self->of->ended++;
    free(self);
}

static void line_timer_cancelled(weir_timer *timer)
{
    line_timer_end(WEIR_CONTAINER(timer, line_timer, timer));
}

static int count_task(void *arg)
{
    ((line *)arg)->tasks++;
    return 0;
}

static void disturb(line *self)
{
    for (unsigned i = next_random(self, 6); i > 0; i--) {
        line_timer *victim = self->waiting[next_random(self, LINE)];
        if (victim == NULL || victim->was_moved)
            continue;
        victim->was_moved = next_random(self, 3) == 0;
        if (victim->was_moved)
            assert_int_equal(weir_timer_reschedule(&victim->timer, 100), 0);
        else
            assert_int_equal(weir_timer_cancel(&victim->timer), 0);
    }
}

static int line_timer_fire(weir_timer *timer)
{
    line_timer *self = WEIR_CONTAINER(timer, line_timer, timer);
    line *all = self->of;
    if (!self->was_moved) {
        assert_true(self->nth > all->last);
        all->last = self->nth;
    }
    line_timer_end(self);
    disturb(all);
    return weir_executor_execute(all->executor, count_task, all);
}

static int schedule_line(void *arg)
{
    line *self = arg;
    for (int i = 0; i < LINE; i++) {
        line_timer *timer = malloc(sizeof *timer);
        assert_non_null(timer);
        *timer = (line_timer){
            .timer = { .fire = line_timer_fire, .cancelled = line_timer_cancelled },
            .of = self,
            .nth = i,
        };
        self->waiting[i] = timer;
        assert_int_equal(weir_timer_schedule(&timer->timer, self->executor, 10), 0);
    }
    return 0;
}

static int disturb_line(void *arg)
{
    disturb(arg);
    return 0;
}

static void due_timers_leave_the_queue_in_any_order_and_the_others_keep_theirs(void **state)
{
    (void)state;
    for (unsigned round = 0; round < LINE_ROUNDS; round++) {
        weir_virtual_clock clock;
        weir_virtual_clock_init(&clock, START_NS);
        weir_group *group =
            new_group(&(weir_group_config){ .count = 1, .is_manual = true, .clock = &clock.clock });
        line l = { .executor = weir_group_at(group, 0), .random = round, .last = -1 };
        assert_int_equal(weir_executor_execute(l.executor, schedule_line, &l), 0);
        weir_group_step(group);
        weir_virtual_clock_advance(&clock, 10);
        assert_int_equal(weir_executor_execute(l.executor, disturb_line, &l), 0);
        for (int i = 0; i < 10; i++) {
            weir_group_step(group);
            weir_virtual_clock_advance(&clock, 100);
        }
        assert_int_equal(l.ended, LINE);
        assert_int_equal(stats_of(l.executor).tasks_queued, 0);
        assert_int_equal(stats_of(l.executor).timers, 0);
        weir_group_free(group);
    }
}

/* As when a server with very many connections closes them all: a search of the queue for each would
 * take until this test is ended for taking too long. */
enum { MULTITUDE = 300000 };

typedef struct multitude {
    weir_executor *executor;
    weir_timer *timers;
    int cancelled;
} multitude;

static int never_fires(weir_timer *timer)
{
    (void)timer;
    return -EIO;
}

static int cancel_multitude(void *arg)
{
    multitude *self = arg;
    for (int i = MULTITUDE - 1; i >= 0; i--)
        self->cancelled += weir_timer_cancel(&self->timers[i]) == 0;
    return 0;
}

static int schedule_multitude(void *arg)
{
    multitude *self = arg;
    for (int i = 0; i < MULTITUDE; i++)
        assert_int_equal(weir_timer_schedule(&self->timers[i], self->executor, 10), 0);
    return 0;
}

static void a_multitude_of_due_timers_is_cancelled_without_a_search(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, START_NS);
    weir_group *group =
        new_group(&(weir_group_config){ .count = 1, .is_manual = true, .clock = &clock.clock });
    multitude m = { .executor = weir_group_at(group, 0),
                    .timers = calloc(MULTITUDE, sizeof *m.timers) };
    assert_non_null(m.timers);
    for (int i = 0; i < MULTITUDE; i++)
        m.timers[i].fire = never_fires;
    assert_int_equal(weir_executor_execute(m.executor, schedule_multitude, &m), 0);
    weir_group_step(group);
    weir_virtual_clock_advance(&clock, 10);
    assert_int_equal(weir_executor_execute(m.executor, cancel_multitude, &m), 0);
    weir_group_step(group);
    assert_int_equal(m.cancelled, MULTITUDE);
    assert_int_equal(stats_of(m.executor).tasks_queued, 0);
    weir_group_free(group);
    free(m.timers);
}

/* One thread reschedules what is due, another one cancels: each schedule ends in one of the two. */
enum { DUES = 64, DUE_ROUNDS = 200 };

typedef struct rush {
    weir_executor *executor;
    clockwork timers[DUES];
    int accepted; /* the executor's */
    atomic_bool may_end;
} rush;

static int reschedule_rush(weir_timer *first)
{
    rush *self = WEIR_CONTAINER(first, rush, timers[0].timer);
    for (int i = 1; i < DUES; i++)
        weir_timer_reschedule(&self->timers[i].timer, i % 2 * 1000);
    return clockwork_fire(first);
}

static int schedule_rush(void *arg)
{
    rush *self = arg;
    for (int i = 0; i < DUES; i++)
        self->accepted += weir_timer_schedule(&self->timers[i].timer, self->executor, 0) == 0;
    return 0;
}

static void *cancel_rush(void *arg)
{
    rush *self = arg;
    while (!atomic_load(&self->may_end)) {
        for (int i = DUES - 1; i > 0; i--)
            weir_timer_cancel(&self->timers[i].timer);
    }
    return NULL;
}

static void due_timers_are_rescheduled_while_another_thread_cancels(void **state)
{
    (void)state;
    static rush r;
    pthread_t thread;
    weir_group *group = new_group_of(1);
    r = (rush){ .executor = weir_group_at(group, 0) };
    for (int i = 0; i < DUES; i++)
        r.timers[i] = CLOCKWORK;
    r.timers[0].timer.fire = reschedule_rush;
    assert_int_equal(pthread_create(&thread, NULL, cancel_rush, &r), 0);
    for (int i = 0; i < DUE_ROUNDS; i++)
        assert_int_equal(call_on(r.executor, schedule_rush, &r), 0);
    atomic_store(&r.may_end, true);
    pthread_join(thread, NULL);
    end_group(group);
    int ends = 0;
    for (int i = 0; i < DUES; i++)
        ends += fires_of(&r.timers[i]) + cancels_of(&r.timers[i]);
    assert_int_equal(ends, r.accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s071_timers_fire_by_deadline_then_by_order),
        weir_case(s072_two_timers_with_one_id_are_a_bug),
        weir_case(s073_no_memory_before_the_first_timer),
        weir_case(s075_negative_delay_is_none),
        weir_case(s076_huge_delay_never_comes),
        weir_case(s077_not_before_its_time),
        weir_case(s078_timers_beyond_the_bound_come_in_the_next_pass),
        weir_case(s079_rate_catches_up),
        weir_case(s079_delay_does_not_catch_up),
        weir_case(failing_periodic_timer_ends),
        weir_case(s080_cancelled_timers_leave_the_heap_and_do_not_fire),
        weir_case(s080_cancel_from_inside_has_happened_when_it_returns),
        weir_case(second_cancel_is_told),
        weir_case(cancelled_before_it_is_armed),
        weir_case(cancel_in_fire_ends_a_periodic_timer),
        weir_case(rescheduled_timer_fires_at_its_new_time),
        weir_case(bad_arguments_are_refused),
        weir_case(s044_shutdown_cancels_what_waits),
        weir_case(schedule_after_the_end_is_refused),
        weir_case(without_memory_it_is_cancelled),
        weir_case(function_is_called_later),
        weir_case(s074_eight_threads_schedule_and_cancel),
        weir_case(s078_queue_of_sixteen_takes_sixteen_timers_a_pass),
        weir_case(a_due_timer_is_cancelled_at_once_and_may_be_freed),
        weir_case(a_due_timer_that_is_rescheduled_fires_once_at_its_new_time),
        weir_case(a_due_timer_is_cancelled_at_once_during_shutdown),
        weir_case(a_due_timer_that_is_rescheduled_during_shutdown_is_cancelled),
        weir_case(due_timers_that_are_cancelled_make_room_in_the_queue),
        weir_case(due_timers_leave_the_queue_in_any_order_and_the_others_keep_theirs),
        weir_case(a_multitude_of_due_timers_is_cancelled_without_a_search),
        weir_case(due_timers_are_rescheduled_while_another_thread_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
