/* SPDX-License-Identifier: MIT */
/* Durations as text. */
#include "harness.h"

#include <weir/duration.h>

#include <string.h>

static void text_uses_the_unit_that_reads_best(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        const char *text;
    } rows[] = {
        { 0, "0 ns" },
        { 1, "1 ns" },
        { 999, "999 ns" },
        { 1000, "1 us" },
        { 1500, "1.5 us" },
        { 999999, "999.999 us" },
        { WEIR_MS(1), "1 ms" },
        { WEIR_MS(250), "250 ms" },
        { WEIR_MS(1) + 50000, "1.05 ms" },
        { WEIR_MS(1) + 999, "1 ms" }, /* rounded down */
        { WEIR_SECONDS(1) - 1, "999.999 ms" },
        { WEIR_SECONDS(1), "1 s" },
        { WEIR_MS(1500), "1.5 s" },
        { WEIR_SECONDS(10), "10 s" },
        { WEIR_SECONDS(600), "600 s" },
        { -WEIR_MS(20), "-20 ms" },
        { INT64_MAX, "9223372036.854 s" },
        { INT64_MIN, "-9223372036.854 s" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[WEIR_DURATION_TEXT_MAX];
        assert_ptr_equal(weir_duration_text(rows[i].ns, text, sizeof text), text);
        assert_string_equal(text, rows[i].text);
    }
}

static void text_is_cut_to_its_size(void **state)
{
    (void)state;
    char text[8] = "xxxxxxx";
    assert_string_equal(weir_duration_text(WEIR_MS(1500), text, 4), "1.5");
    assert_int_equal(text[4], 'x');
    weir_duration_text(WEIR_MS(1500), text, 0);
    assert_string_equal(text, "1.5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(text_uses_the_unit_that_reads_best),
        weir_case(text_is_cut_to_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
