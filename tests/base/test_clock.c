/* SPDX-License-Identifier: MIT */
/* Clocks: the system's, which only goes forward, and the virtual one, which goes when told. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* cmocka compares unsigned; a difference of two times is easier read as a statement. */
#define assert_time(actual, expected) assert_true((int64_t)(actual) == (int64_t)(expected))

static void monotonic_is_one_clock(void **state)
{
    (void)state;
    assert_non_null(weir_clock_monotonic());
    assert_ptr_equal(weir_clock_monotonic(), weir_clock_monotonic());
}

static void the_wall_clock_is_the_kernels(void **state)
{
    (void)state;
    struct timespec before, after;
    assert_ptr_equal(weir_clock_wall(), weir_clock_wall());
    int64_t now = 0;
    do { /* again, if it was set back meanwhile */
        assert_int_equal(clock_gettime(CLOCK_REALTIME, &before), 0);
        now = weir_clock_now_ns(weir_clock_wall());
        assert_int_equal(clock_gettime(CLOCK_REALTIME, &after), 0);
    } while (after.tv_sec < before.tv_sec);
    assert_true(now >= (int64_t)before.tv_sec * 1000000000 + before.tv_nsec);
    assert_true(now <= (int64_t)after.tv_sec * 1000000000 + after.tv_nsec);
}

static void monotonic_never_goes_back(void **state)
{
    (void)state;
    weir_clock *clock = weir_clock_monotonic();
    int64_t first = weir_clock_now_ns(clock), before = first;
    for (int i = 0; i < 100000; i++) {
        int64_t now = weir_clock_now_ns(clock);
        assert_true(now >= before);
        before = now;
    }
    assert_true(before > first);
}

static int64_t kernel_now_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void monotonic_is_the_kernels_in_nanoseconds(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        int64_t before = kernel_now_ns();
        int64_t now = weir_clock_now_ns(weir_clock_monotonic());
        int64_t after = kernel_now_ns();
        assert_true(before <= now && now <= after);
    }
}

static void virtual_stands_still(void **state)
{
    (void)state;
    static const int64_t starts[] = { 0, 1, 1234567890123, -5, INT64_MIN, INT64_MAX };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        weir_virtual_clock clock;
        weir_virtual_clock_init(&clock, starts[i]);
        for (int read = 0; read < 100; read++)
            assert_time(weir_clock_now_ns(&clock.clock), starts[i]);
    }
}

static void virtual_advances_by_the_step(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 1000);
    assert_time(weir_virtual_clock_advance(&clock, 1), 1001);
    assert_time(weir_clock_now_ns(&clock.clock), 1001);
    assert_time(weir_virtual_clock_advance(&clock, 0), 1001);
    assert_time(weir_clock_now_ns(&clock.clock), 1001);
    assert_time(weir_virtual_clock_advance(&clock, 3600000000000), 3600000001001);
    assert_time(weir_clock_now_ns(&clock.clock), 3600000001001);

    weir_virtual_clock_init(&clock, INT64_MIN);
    assert_time(weir_virtual_clock_advance(&clock, INT64_MAX), -1);
    assert_time(weir_virtual_clock_advance(&clock, 1), 0);
}

static void virtual_refuses_to_go_back(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 77);
    assert_time(weir_virtual_clock_advance(&clock, -1), -EINVAL);
    assert_time(weir_virtual_clock_advance(&clock, INT64_MIN), -EINVAL);
    assert_time(weir_clock_now_ns(&clock.clock), 77);
}

static void virtual_stops_at_the_end_of_time(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, INT64_MAX - 10);
    assert_time(weir_virtual_clock_advance(&clock, 9), INT64_MAX - 1);
    assert_time(weir_virtual_clock_advance(&clock, 1), INT64_MAX);
    assert_time(weir_virtual_clock_advance(&clock, 1), INT64_MAX);
    assert_time(weir_virtual_clock_advance(&clock, INT64_MAX), INT64_MAX);
    assert_time(weir_clock_now_ns(&clock.clock), INT64_MAX);

    weir_virtual_clock_init(&clock, 1);
    assert_time(weir_virtual_clock_advance(&clock, INT64_MAX), INT64_MAX);
    assert_time(weir_clock_now_ns(&clock.clock), INT64_MAX);
}

static void virtual_counts_its_reads(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    assert_int_equal(weir_virtual_clock_reads(&clock), 0);
    for (unsigned i = 1; i <= 50; i++) {
        weir_clock_now_ns(&clock.clock);
        assert_int_equal(weir_virtual_clock_reads(&clock), i);
    }
    /* Moving it and asking for the count are no reads. */
    weir_virtual_clock_advance(&clock, 5);
    weir_virtual_clock_advance(&clock, -5);
    assert_int_equal(weir_virtual_clock_reads(&clock), 50);
    weir_virtual_clock_init(&clock, 0);
    assert_int_equal(weir_virtual_clock_reads(&clock), 0);
}

/* Threads ------------------------------------------------------------------------------------ */

#define STEPS 10000

typedef struct mover {
    weir_virtual_clock *clock;
    int64_t step_ns;
    unsigned went_back;
} mover;

static void *move_and_read(void *arg)
{
    mover *self = arg;
    int64_t before = INT64_MIN;
    for (int i = 0; i < STEPS; i++) {
        int64_t moved = weir_virtual_clock_advance(self->clock, self->step_ns);
        int64_t now = weir_clock_now_ns(&self->clock->clock);
        if (moved < before + self->step_ns || now < moved)
            self->went_back++;
        before = now;
    }
    return NULL;
}

static void virtual_loses_no_step_of_several_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    weir_virtual_clock clock;
    pthread_t threads[THREADS];
    mover movers[THREADS];
    weir_virtual_clock_init(&clock, 0);
    for (int i = 0; i < THREADS; i++) {
        movers[i] = (mover){ &clock, i + 1, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, move_and_read, &movers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(movers[i].went_back, 0);
    assert_int_equal(weir_virtual_clock_reads(&clock), THREADS * STEPS);
    assert_time(weir_clock_now_ns(&clock.clock), (1 + 2 + 3 + 4) * STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(monotonic_is_one_clock),     weir_case(the_wall_clock_is_the_kernels),
        weir_case(monotonic_never_goes_back),  weir_case(monotonic_is_the_kernels_in_nanoseconds),
        weir_case(virtual_stands_still),       weir_case(virtual_advances_by_the_step),
        weir_case(virtual_refuses_to_go_back), weir_case(virtual_stops_at_the_end_of_time),
        weir_case(virtual_counts_its_reads),   weir_case(virtual_loses_no_step_of_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
