/* SPDX-License-Identifier: MIT */
/* The load generator's histogram: what it says is never further off than its classes are wide. */
#include "harness.h"

#include "../../bench/load/histogram.h"

static histogram times; /* too much for a stack */

static void begin(void)
{
    times = (histogram){ .total = 0 };
}

static void none(void **state)
{
    (void)state;
    begin();
    assert_int_equal(histogram_percentile(&times, 0.5), 0);
    assert_true(histogram_mean(&times) == 0);
}

static void small_ones_are_exact(void **state)
{
    (void)state;
    begin();
    for (uint64_t ns = 1; ns <= 50; ns++)
        histogram_add(&times, ns);
    assert_int_equal(histogram_percentile(&times, 0.5), 25);
    assert_int_equal(histogram_percentile(&times, 0.98), 49);
    assert_int_equal(histogram_percentile(&times, 1), 50);
    assert_int_equal(times.largest_ns, 50);
    assert_true(histogram_mean(&times) == 25.5);
}

static void each_is_within_its_class(void **state)
{
    (void)state;
    for (uint64_t ns = 1; ns < UINT64_MAX / 3; ns = ns * 2 + ns / 7 + 1) {
        begin();
        histogram_add(&times, ns);
        histogram_add(&times, UINT64_MAX); /* so that the largest does not help */
        uint64_t told = histogram_percentile(&times, 0.5);
        assert_true(told >= ns);
        assert_true(told - ns <= ns / 64);
    }
}

static void percentiles_of_many(void **state)
{
    (void)state;
    begin();
    for (uint64_t i = 1; i <= 100000; i++)
        histogram_add(&times, i * 1000);
    const double shares[] = { 0.001, 0.5, 0.9, 0.99, 0.999 };
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double told = (double)histogram_percentile(&times, shares[i]), right = shares[i] * 1e8;
        assert_true(told >= right && told <= right * (1 + 1.0 / 64));
    }
    assert_int_equal(histogram_percentile(&times, 1), 100000000);
    assert_int_equal(times.total, 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none),
        cmocka_unit_test(small_ones_are_exact),
        cmocka_unit_test(each_is_within_its_class),
        cmocka_unit_test(percentiles_of_many),
    };
    return cmocka_run_group_tests_name("bench.histogram", tests, NULL, NULL);
}
