/* SPDX-License-Identifier: MIT */
/* The timers of event loops: how a loop takes many that are due at once. */
#include "loops.h"

#include "exec/per_channel.h"

/* A loop moves so many due timers to its queue at a time, and sorts the others first. */
#define AT_ONCE 64

static const weir_io_kind kinds[] = { WEIR_IO_EPOLL, WEIR_IO_URING, WEIR_IO_BLOCKING };

/* A loop with a clock that the test moves; timers that note when their turn was. */
typedef struct bench {
    weir_virtual_clock clock;
    weir_group *group;
    weir_executor *executor;
    int next;        /* place; the loop's own thread */
    int64_t slow_ns; /* what each of them takes */
    atomic_int ran;
} bench;

typedef struct clockwork {
    weir_timer timer;
    bench *b;
    struct clockwork *follower; /* scheduled by the fire, as due as can be */
    struct clockwork *victim;   /* cancelled by the fire */
    int place, fires, cancels;
} clockwork;

static int clockwork_fire(weir_timer *timer)
{
    clockwork *self = WEIR_CONTAINER(timer, clockwork, timer);
    self->fires++;
    self->place = self->b->next++;
    weir_virtual_clock_advance(&self->b->clock, self->b->slow_ns);
    if (self->follower != NULL)
        weir_timer_schedule(&self->follower->timer, self->b->executor, 0);
    if (self->victim != NULL)
        weir_timer_cancel(&self->victim->timer);
    atomic_fetch_add(&self->b->ran, 1);
    return 0;
}

static void clockwork_cancelled(weir_timer *timer)
{
    clockwork *self = WEIR_CONTAINER(timer, clockwork, timer);
    self->cancels++;
    atomic_fetch_add(&self->b->ran, 1);
}

static clockwork new_clockwork(bench *b)
{
    return (clockwork){ .timer = { .fire = clockwork_fire, .cancelled = clockwork_cancelled },
                        .b = b,
                        .place = -1 };
}

static void bench_begin(bench *self, weir_io_kind io, int64_t slow_ns)
{
    if (io == WEIR_IO_URING && !harness_has_uring())
        io = WEIR_IO_EPOLL;
    *self = (bench){ .slow_ns = slow_ns };
    weir_virtual_clock_init(&self->clock, WEIR_SECONDS(100));
    self->group = new_loops(&(weir_group_config){ .io = io,
                                                  .loops = io == WEIR_IO_BLOCKING ? 0 : 1,
                                                  .clock = &self->clock.clock,
                                                  .watchdog_ns = WEIR_OFF });
    if (io == WEIR_IO_BLOCKING)
        assert_int_equal(weir__group_take(self->group, &self->executor), 0);
    else
        self->executor = weir_group_at(self->group, 0);
}

static void bench_end(bench *self, weir_io_kind io)
{
    if (io == WEIR_IO_BLOCKING)
        weir__group_give_back(self->group, self->executor);
    end_group(self->group);
}

/* Moves the clock, so that all of them are due in one turn, and waits until they have run. */
static void bench_advance(bench *self, int64_t step_ns, int count)
{
    settle(self->executor);
    weir_virtual_clock_advance(&self->clock, step_ns);
    WAIT_FOR_STEPPING(atomic_load(&self->ran) == count,
                      (weir_executor_wake(self->executor), sched_yield()));
    settle(self->executor);
}

/* Deadlines in no order, each of them many times. */
static void fire_many(weir_io_kind io, int count, int64_t slow_ns)
{
    bench b;
    clockwork *timers = calloc((size_t)count, sizeof *timers);
    assert_non_null(timers);
    bench_begin(&b, io, slow_ns);
    int tens = count / 10;
    for (int i = 0; i < count; i++) {
        timers[i] = new_clockwork(&b);
        assert_int_equal(weir_timer_schedule(&timers[i].timer, b.executor, 1 + i * 7 % 10), 0);
    }
    bench_advance(&b, 10, count);
    bench_end(&b, io);
    for (int i = 0; i < count; i++) {
        assert_int_equal(timers[i].fires, 1);
        assert_int_equal(timers[i].place, i * 7 % 10 * tens + i / 10);
    }
    free(timers);
}

static void s071_many_due_timers_of_a_loop_fire_by_deadline_then_by_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fire_many(kinds[i], AT_ONCE / 10 * 10, 0);
        fire_many(kinds[i], 2 * AT_ONCE / 10 * 10, 0);
        fire_many(kinds[i], 5000, 0);
    }
}

/* The share of a turn ends before all have fired: the others follow in later turns. */
static void s071_due_timers_keep_their_order_over_several_turns(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        fire_many(kinds[i], 5000, 1000);
}

/* What is scheduled meanwhile is due later than all that were due before; what is cancelled
 * meanwhile does not fire, though it stands among those that are sorted. */
static void s071_due_timers_keep_their_order_while_others_come_and_are_cancelled(void **state)
{
    (void)state;
    enum { COUNT = 1000, NEW = COUNT / 4 };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bench b;
        clockwork *timers = calloc(COUNT + NEW, sizeof *timers);
        assert_non_null(timers);
        bench_begin(&b, kinds[k], 0);
        for (int i = 0; i < COUNT + NEW; i++)
            timers[i] = new_clockwork(&b);
        for (int i = 0; i < COUNT; i++) {
            if (i % 4 == 0)
                timers[i].follower = &timers[COUNT + i / 4];
            if (i % 4 == 1 && i + COUNT / 2 < COUNT)
                timers[i].victim = &timers[i + COUNT / 2 + 2];
            assert_int_equal(weir_timer_schedule(&timers[i].timer, b.executor, 1 + i % 2), 0);
        }
        bench_advance(&b, 10, COUNT + NEW);
        bench_end(&b, kinds[k]);
        int fires = 0, cancels = 0, last[3] = { -1, -1, -1 };
        for (int i = 0; i < COUNT + NEW; i++) {
            assert_int_equal(timers[i].fires + timers[i].cancels, 1);
            cancels += timers[i].cancels;
            fires += timers[i].fires;
            if (timers[i].fires == 0)
                continue;
            int *before = i >= COUNT ? &last[2] : &last[i % 2];
            assert_true(timers[i].place > *before); /* as they were scheduled */
            *before = timers[i].place;
        }
        assert_int_equal(cancels, COUNT / 8);
        /* Those of the first deadline, those of the second, those that came meanwhile. */
        for (int i = 0; i < COUNT; i++) {
            if (timers[i].fires > 0)
                assert_true(i % 2 == 0 ? timers[i].place < COUNT / 2
                                       : timers[i].place < fires - NEW);
        }
        assert_int_equal(last[2], fires - 1);
        free(timers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s071_many_due_timers_of_a_loop_fire_by_deadline_then_by_order),
        weir_case(s071_due_timers_keep_their_order_over_several_turns),
        weir_case(s071_due_timers_keep_their_order_while_others_come_and_are_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
