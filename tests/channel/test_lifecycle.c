/* SPDX-License-Identifier: MIT */
/* The life of a channel as a state machine: every state and every step, and what has to be told. */
#include "harness.h"

#include "channel/lifecycle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef int (*step_fn)(weir_lifecycle *life);

static const step_fn steps[] = {
    weir__lifecycle_register,    weir__lifecycle_activate, weir__lifecycle_deregister,
    weir__lifecycle_begin_close, weir__lifecycle_closed,
};

enum { STEPS = sizeof steps / sizeof *steps, STATES = WEIR_CHANNEL_UNREGISTERED + 1 };

/* What a step answers, and the state after it. */
typedef struct answer {
    int code;
    weir_channel_state state;
} answer;

static const answer answers[STATES][STEPS] = {
    [WEIR_CHANNEL_OPEN] = { { 0, WEIR_CHANNEL_REGISTERED },
                            { -EINVAL, WEIR_CHANNEL_OPEN },
                            { -EALREADY, WEIR_CHANNEL_OPEN },
                            { 0, WEIR_CHANNEL_CLOSING },
                            { -EINVAL, WEIR_CHANNEL_OPEN } },
    [WEIR_CHANNEL_REGISTERED] = { { WEIR_EREGISTERED, WEIR_CHANNEL_REGISTERED },
                                  { 0, WEIR_CHANNEL_ACTIVE },
                                  { 0, WEIR_CHANNEL_OPEN },
                                  { 0, WEIR_CHANNEL_CLOSING },
                                  { -EINVAL, WEIR_CHANNEL_REGISTERED } },
    [WEIR_CHANNEL_ACTIVE] = { { WEIR_EREGISTERED, WEIR_CHANNEL_ACTIVE },
                              { -EALREADY, WEIR_CHANNEL_ACTIVE },
                              { 0, WEIR_CHANNEL_OPEN },
                              { 0, WEIR_CHANNEL_CLOSING },
                              { -EINVAL, WEIR_CHANNEL_ACTIVE } },
    [WEIR_CHANNEL_CLOSING] = { { WEIR_ECLOSED, WEIR_CHANNEL_CLOSING },
                               { WEIR_ECLOSED, WEIR_CHANNEL_CLOSING },
                               { WEIR_ECLOSED, WEIR_CHANNEL_CLOSING },
                               { -EALREADY, WEIR_CHANNEL_CLOSING },
                               { 0, WEIR_CHANNEL_CLOSED } },
    [WEIR_CHANNEL_CLOSED] = { { WEIR_ECLOSED, WEIR_CHANNEL_CLOSED },
                              { WEIR_ECLOSED, WEIR_CHANNEL_CLOSED },
                              { WEIR_ECLOSED, WEIR_CHANNEL_CLOSED },
                              { -EALREADY, WEIR_CHANNEL_CLOSED },
                              { -EINVAL, WEIR_CHANNEL_CLOSED } },
    [WEIR_CHANNEL_UNREGISTERED] = { { WEIR_ECLOSED, WEIR_CHANNEL_UNREGISTERED },
                                    { WEIR_ECLOSED, WEIR_CHANNEL_UNREGISTERED },
                                    { WEIR_ECLOSED, WEIR_CHANNEL_UNREGISTERED },
                                    { -EALREADY, WEIR_CHANNEL_UNREGISTERED },
                                    { -EINVAL, WEIR_CHANNEL_UNREGISTERED } },
};

static void every_step_in_every_state_has_its_answer(void **state)
{
    (void)state;
    for (int from = 0; from < STATES; from++) {
        for (int i = 0; i < STEPS; i++) {
            weir_lifecycle life = { .state = (uint8_t)from };
            assert_int_equal(steps[i](&life), answers[from][i].code);
            assert_int_equal(weir__lifecycle_state(&life), answers[from][i].state);
        }
    }
}

static const char *const news_names[] = {
    [WEIR_NEWS_NONE] = "-",
    [WEIR_NEWS_REGISTERED] = "registered",
    [WEIR_NEWS_ACTIVE] = "active",
    [WEIR_NEWS_AGAIN] = "again",
    [WEIR_NEWS_INACTIVE] = "inactive",
    [WEIR_NEWS_UNREGISTERED] = "unregistered",
    [WEIR_NEWS_OVER] = "over",
};

static void tell_all(weir_lifecycle *life, char *told, size_t size)
{
    weir_news news;
    for (int i = 0; i < 10 && (news = weir__lifecycle_news(life)) != WEIR_NEWS_NONE; i++) {
        size_t length = strlen(told);
        snprintf(told + length, size - length, "%s%s", length > 0 ? " " : "", news_names[news]);
    }
    assert_int_equal(weir__lifecycle_news(life), WEIR_NEWS_NONE);
}

/* Walks a life of steps: r(egister), a(ctivate), d(eregister), c(lose begins), C(losed), and t:
 * everything is told. */
static void walk(const char *path, const char *expected)
{
    static const char letters[] = "radcC";
    weir_lifecycle life = { .state = WEIR_CHANNEL_OPEN };
    char told[256] = "";
    for (const char *at = path; *at != '\0'; at++) {
        if (*at == 't')
            tell_all(&life, told, sizeof told);
        else
            assert_int_equal(steps[strchr(letters, *at) - letters](&life), 0);
    }
    if (strcmp(told, expected) != 0)
        fail_msg("%s tells \"%s\", not \"%s\"", path, told, expected);
}

static void nothing_is_told_of_a_channel_that_is_only_open(void **state)
{
    (void)state;
    walk("t", "");
    walk("ct", "");
}

static void coming_to_a_loop_is_told_once_and_in_order(void **state)
{
    (void)state;
    walk("rt", "registered");
    walk("rat", "registered active");
    walk("rtat", "registered active");
    walk("rattt", "registered active");
}

static void while_closing_nothing_is_told(void **state)
{
    (void)state;
    walk("rct", "");
    walk("ract", "");
    walk("ratct", "registered active");
}

static void closing_tells_what_was_told_before_backwards(void **state)
{
    (void)state;
    walk("cCt", "over");
    walk("rcCt", "over");
    walk("rtcCt", "registered unregistered over");
    walk("racCt", "over");
    walk("rtacCt", "registered unregistered over");
    walk("ratcCt", "registered active inactive unregistered over");
    walk("ratcCttt", "registered active inactive unregistered over");
}

static void an_active_channel_on_its_next_loop_is_not_told_to_be_active_again(void **state)
{
    (void)state;
    walk("ratdt", "registered active unregistered");
    walk("ratdtrt", "registered active unregistered registered");
    walk("ratdtrat", "registered active unregistered registered again");
    walk("ratdtratdtrat",
         "registered active unregistered registered again unregistered registered again");
}

static void who_was_not_active_when_it_left_is_told_when_it_is(void **state)
{
    (void)state;
    walk("rtdtrat", "registered unregistered registered active");
    walk("rdtrat", "registered active");
    walk("radtrat", "registered active");
}

static void closing_off_the_loop_still_tells_of_the_end(void **state)
{
    (void)state;
    walk("ratdtcCt", "registered active unregistered inactive over");
    walk("rtdtcCt", "registered unregistered over");
    walk("ratdcCt", "registered active inactive unregistered over");
    walk("ratdtrcCt", "registered active unregistered inactive over");
    walk("ratdtracCt", "registered active unregistered inactive over");
    walk("ratdtratcCt",
         "registered active unregistered registered again inactive unregistered over");
}

static void the_last_news_end_the_life(void **state)
{
    (void)state;
    weir_lifecycle life = { .state = WEIR_CHANNEL_CLOSED };
    assert_int_equal(weir__lifecycle_news(&life), WEIR_NEWS_OVER);
    assert_int_equal(weir__lifecycle_state(&life), WEIR_CHANNEL_UNREGISTERED);
    assert_int_equal(weir__lifecycle_news(&life), WEIR_NEWS_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_step_in_every_state_has_its_answer),
        weir_case(nothing_is_told_of_a_channel_that_is_only_open),
        weir_case(coming_to_a_loop_is_told_once_and_in_order),
        weir_case(while_closing_nothing_is_told),
        weir_case(closing_tells_what_was_told_before_backwards),
        weir_case(an_active_channel_on_its_next_loop_is_not_told_to_be_active_again),
        weir_case(who_was_not_active_when_it_left_is_told_when_it_is),
        weir_case(closing_off_the_loop_still_tells_of_the_end),
        weir_case(the_last_news_end_the_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
