/* SPDX-License-Identifier: MIT */
/* The version that runs is the one that the headers name. */
#include "harness.h"

#include <stdio.h>

static void says_what_the_headers_say(void **state)
{
    (void)state;
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR,
             WEIR_VERSION_PATCH);
    assert_string_equal(weir_version(), expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(says_what_the_headers_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
