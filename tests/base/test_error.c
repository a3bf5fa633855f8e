/* SPDX-License-Identifier: MIT */
/* Error codes, their names and texts, and the error value. */
#include "harness.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* The whole table: whatever is added to it is checked, too. */
static const struct {
    int code, number;
    const char *name, *text;
} codes[] = {
#define ROW(name, number, text) { name, number, #name, text },
    WEIR_ERRORS(ROW)
#undef ROW
};

#define CODE_COUNT (sizeof codes / sizeof *codes)

static void every_code_of_the_table_has_name_and_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < CODE_COUNT; i++) {
        assert_int_equal(codes[i].code, codes[i].number);
        assert_string_equal(weir_error_name(codes[i].code), codes[i].name);
        assert_string_equal(weir_error_text(codes[i].code), codes[i].text);
        assert_true(codes[i].text[0] != '\0');
    }
    assert_string_equal(weir_error_name(WEIR_ECLOSED), "WEIR_ECLOSED");
    assert_string_equal(weir_error_text(WEIR_EOF), "end of stream");
}

static void codes_are_unique_and_below_every_errno(void **state)
{
    (void)state;
    for (size_t i = 0; i < CODE_COUNT; i++) {
        assert_true(codes[i].code < -4096);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(codes[i].code, codes[j].code);
            assert_string_not_equal(codes[i].name, codes[j].name);
            assert_string_not_equal(codes[i].text, codes[j].text);
        }
    }
}

/* They are part of the binary interface: a number once given stays. */
static void numbers_are_those_of_the_first_release(void **state)
{
    (void)state;
    assert_int_equal(WEIR_EOF, -4097);
    assert_int_equal(WEIR_ECLOSED, -4098);
    assert_int_equal(WEIR_EBOUNDS, -4099);
    assert_int_equal(WEIR_ELIMIT, -4100);
    assert_int_equal(WEIR_EREADONLY, -4101);
    assert_int_equal(WEIR_ENOTFOUND, -4102);
    assert_int_equal(WEIR_ENONAME, -4106);
    assert_int_equal(WEIR_ENAMESERVICE, -4107);
}

static void system_errors_keep_their_names(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *name, *text;
    } errors[] = {
        { EPERM, "EPERM", "Operation not permitted" },
        { EINTR, "EINTR", "Interrupted system call" },
        { ENOMEM, "ENOMEM", "Cannot allocate memory" },
        { EINVAL, "EINVAL", "Invalid argument" },
        { EPIPE, "EPIPE", "Broken pipe" },
        { EAGAIN, "EAGAIN", "Resource temporarily unavailable" },
        { ECONNRESET, "ECONNRESET", "Connection reset by peer" },
        { ECONNREFUSED, "ECONNREFUSED", "Connection refused" },
        { ETIMEDOUT, "ETIMEDOUT", "Connection timed out" },
        { EADDRINUSE, "EADDRINUSE", "Address already in use" },
        { EINPROGRESS, "EINPROGRESS", "Operation now in progress" },
        { EHWPOISON, "EHWPOISON", "Memory page has hardware error" }, /* the last of Linux */
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        assert_string_equal(weir_error_name(-errors[i].number), errors[i].name);
        assert_string_equal(weir_error_text(-errors[i].number), errors[i].text);
    }
}

static void every_errno_has_name_and_text(void **state)
{
    (void)state;
    unsigned known = 0;
    for (int number = 1; number <= EHWPOISON; number++) {
        if (number == 41 || number == 58)
            continue; /* EWOULDBLOCK and EDEADLOCK once; Linux has no such errors */
        assert_int_equal(weir_error_name(-number)[0], 'E');
        assert_string_not_equal(weir_error_text(-number), weir_error_text(-4096));
        known++;
    }
    assert_true(known > 100);
}

static void zero_is_no_error(void **state)
{
    (void)state;
    assert_string_equal(weir_error_name(0), "OK");
    assert_string_equal(weir_error_text(0), "success");
}

static void unknown_codes_say_so(void **state)
{
    (void)state;
    int last = 0;
    for (size_t i = 0; i < CODE_COUNT; i++)
        last = codes[i].code < last ? codes[i].code : last;
    /* Gaps among the errnos, the ends of both ranges, and the wrong sign. */
    const int unknown[] = { -41,      -58,   -(EHWPOISON + 1), -3000,       -4095,    -4096,
                            last - 1, -5000, INT_MIN,          INT_MIN + 1, INT_MAX,  1,
                            EINVAL,   41,    ECONNRESET,       4097,        -WEIR_EOF };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_string_equal(weir_error_name(unknown[i]), "?");
        assert_non_null(weir_error_text(unknown[i]));
        assert_string_equal(weir_error_text(unknown[i]), weir_error_text(INT_MIN));
        assert_true(weir_error_text(unknown[i])[0] != '\0');
    }
    assert_string_not_equal(weir_error_text(INT_MIN), weir_error_text(0));
}

/* The error value ---------------------------------------------------------------------------- */

static void set_fills_and_returns_the_code(void **state)
{
    (void)state;
    weir_error error;
    memset(&error, 0xff, sizeof error);
    assert_int_equal(weir_error_set(&error, -ECONNREFUSED, "connect", "%s:%d", "127.0.0.1", 80),
                     -ECONNREFUSED);
    assert_int_equal(error.code, -ECONNREFUSED);
    assert_string_equal(error.origin, "connect");
    assert_string_equal(error.message, "127.0.0.1:80");
}

static void set_replaces_all_of_what_was(void **state)
{
    (void)state;
    weir_error error;
    weir_error_set(&error, WEIR_ELIMIT, "a_long_origin", "a rather long message");
    assert_int_equal(weir_error_set(&error, 0, "", "%s", ""), 0);
    assert_int_equal(error.code, 0);
    assert_string_equal(error.origin, "");
    assert_string_equal(error.message, "");
    assert_int_equal(weir_error_set(&error, 7, "x", "y"), 7);
    assert_int_equal(error.code, 7);
}

static void set_without_an_error_just_returns(void **state)
{
    (void)state;
    assert_int_equal(weir_error_set(NULL, WEIR_EOF, "read", "%d", 1), WEIR_EOF);
    assert_int_equal(weir_error_set(NULL, 0, NULL, "x"), 0);
}

static void set_without_an_origin_leaves_it_empty(void **state)
{
    (void)state;
    weir_error error;
    memset(&error, 0xff, sizeof error);
    assert_int_equal(weir_error_set(&error, -EIO, NULL, "m"), -EIO);
    assert_string_equal(error.origin, "");
    assert_string_equal(error.message, "m");
}

/* Texts of every length around the room there is: what fits is whole, what does not is cut. */
static void too_long_texts_are_cut_and_terminated(void **state)
{
    (void)state;
    enum { LONGEST = 600 };
    char text[LONGEST + 1];
    weir_error error;
    for (size_t i = 0; i < LONGEST; i++)
        text[i] = (char)('a' + i % 26);
    for (size_t length = 0; length <= LONGEST; length++) {
        char end = text[length];
        text[length] = '\0';
        memset(&error, 0xff, sizeof error);
        assert_int_equal(weir_error_set(&error, -E2BIG, text, "%s", text), -E2BIG);
        size_t in_origin = length < sizeof error.origin ? length : sizeof error.origin - 1;
        size_t in_message = length < sizeof error.message ? length : sizeof error.message - 1;
        assert_int_equal(strnlen(error.origin, sizeof error.origin), in_origin);
        assert_int_equal(strnlen(error.message, sizeof error.message), in_message);
        assert_memory_equal(error.origin, text, in_origin);
        assert_memory_equal(error.message, text, in_message);
        assert_int_equal(error.code, -E2BIG);
        text[length] = end;
    }
}

static void arguments_may_lie_in_the_error_itself(void **state)
{
    (void)state;
    weir_error error;
    weir_error_set(&error, -ENOENT, "open", "no such file");
    assert_int_equal(weir_error_set(&error, -EIO, "load", "%s: %s (%d)", error.origin,
                                    error.message, error.code),
                     -EIO);
    assert_string_equal(error.message, "open: no such file (-2)");
    assert_string_equal(error.origin, "load");
    weir_error_set(&error, -EIO, "again", "%s", error.message);
    assert_string_equal(error.message, "open: no such file (-2)");
    weir_error_set(&error, -EIO, "again", "%s", error.message + 6);
    assert_string_equal(error.message, "no such file (-2)");
}

static void the_origin_may_lie_in_the_error_itself(void **state)
{
    (void)state;
    weir_error error;
    weir_error_set(&error, -ENOENT, "open", "no such file");
    weir_error_set(&error, -EIO, error.message, "the message became the origin");
    assert_string_equal(error.origin, "no such file");
    weir_error_set(&error, -EIO, error.origin, "the origin stays");
    assert_string_equal(error.origin, "no such file");
    assert_string_equal(error.message, "the origin stays");
}

static void errors_are_plain_values(void **state)
{
    (void)state;
    weir_error error, copy;
    weir_error_set(&error, WEIR_EBOUNDS, "peek", "%d", 12);
    copy = error;
    weir_error_set(&error, 0, "", "%s", "");
    assert_int_equal(copy.code, WEIR_EBOUNDS);
    assert_string_equal(copy.origin, "peek");
    assert_string_equal(copy.message, "12");
}

static void nothing_of_it_can_fail(void **state)
{
    (void)state;
    weir_error error;
    harness_fail_nth(NULL, 1, -ENOMEM);
    weir_error_set(&error, WEIR_ELIMIT, "origin", "%200s", "wide");
    assert_string_equal(weir_error_name(error.code), "WEIR_ELIMIT");
    assert_int_equal(harness_fail_end(), 0);
    assert_int_equal(strlen(error.message), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_code_of_the_table_has_name_and_text),
        weir_case(codes_are_unique_and_below_every_errno),
        weir_case(numbers_are_those_of_the_first_release),
        weir_case(system_errors_keep_their_names),
        weir_case(every_errno_has_name_and_text),
        weir_case(zero_is_no_error),
        weir_case(unknown_codes_say_so),
        weir_case(set_fills_and_returns_the_code),
        weir_case(set_replaces_all_of_what_was),
        weir_case(set_without_an_error_just_returns),
        weir_case(set_without_an_origin_leaves_it_empty),
        weir_case(too_long_texts_are_cut_and_terminated),
        weir_case(arguments_may_lie_in_the_error_itself),
        weir_case(the_origin_may_lie_in_the_error_itself),
        weir_case(errors_are_plain_values),
        weir_case(nothing_of_it_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
