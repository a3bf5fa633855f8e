/* SPDX-License-Identifier: MIT */
/* The leak detector: what it records in each mode, and how it tells where a message was made. */
#include "harness.h"

#include "base/leak.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave_alone(weir_msg *msg)
{
    (void)msg;
}

static const weir_msg_type apple_type = { "apple", NULL, leave_alone };
static const weir_msg_type pear_type = { "pear", NULL, leave_alone };

/* A case that begins in a mode of its own and gives back the one there was. */

static weir_leak_mode mode_before;

static int begin_recording_all(void **state)
{
    int code = harness_remember_what_lives(state);
    mode_before = weir_leak_get_mode();
    weir_leak_set_mode(WEIR_LEAK_ALL);
    return code;
}

static int end_recording(void **state)
{
    weir_leak_set_mode(mode_before);
    return harness_assert_nothing_left(state);
}

#define leak_case(name) cmocka_unit_test_setup_teardown(name, begin_recording_all, end_recording)

/* What a report said, in its order. */

#define MOST_GROUPS 16

typedef struct report {
    size_t group_count, total;
    struct {
        char type[16];
        size_t count;
        char place[2048];
    } groups[MOST_GROUPS];
} report;

static void note_group(void *arg, const weir_leak *leak)
{
    report *self = arg;
    if (self->group_count < MOST_GROUPS) {
        size_t at = self->group_count;
        snprintf(self->groups[at].type, sizeof self->groups[at].type, "%s", leak->type);
        snprintf(self->groups[at].place, sizeof self->groups[at].place, "%s", leak->place);
        self->groups[at].count = leak->count;
    }
    self->group_count++;
    self->total += leak->count;
}

static const report *make_report(void)
{
    static report made;
    memset(&made, 0, sizeof made);
    size_t count = weir_leak_report(note_group, &made);
    assert_int_equal(count, made.total);
    assert_true(made.group_count <= MOST_GROUPS);
    return &made;
}

/* Places ------------------------------------------------------------------------------------- */

/* Not static, so that the dynamic symbol table and with it a back trace has their names. */
void make_in_the_orchard(weir_msg *msgs, const weir_msg_type *type, const volatile size_t *count);
void make_in_the_garden(weir_msg *msgs, const weir_msg_type *type, const volatile size_t *count);
void walk_to_the_orchard(weir_msg *msgs, const weir_msg_type *type, const volatile size_t *count);

/* The counts are volatile, so that no loop is unrolled into several places. */
__attribute__((noinline)) void make_in_the_orchard(weir_msg *msgs, const weir_msg_type *type,
                                                   const volatile size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        weir_msg_init(&msgs[i], type);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame must be on the stack */
}

__attribute__((noinline)) void make_in_the_garden(weir_msg *msgs, const weir_msg_type *type,
                                                  const volatile size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        weir_msg_init(&msgs[i], type);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void walk_to_the_orchard(weir_msg *msgs, const weir_msg_type *type,
                                                   const volatile size_t *count)
{
    make_in_the_orchard(msgs, type, count);
    __asm__ volatile("" ::: "memory");
}

static void release_all(weir_msg *msgs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(weir_msg_release(&msgs[i]), 1);
}

/* Modes -------------------------------------------------------------------------------------- */

static void mode_is_what_was_set(void **state)
{
    (void)state;
    static const weir_leak_mode modes[] = { WEIR_LEAK_OFF, WEIR_LEAK_SAMPLE, WEIR_LEAK_ALL };
    for (size_t i = 0; i < 3; i++) {
        weir_leak_set_mode(modes[i]);
        assert_int_equal(weir_leak_get_mode(), modes[i]);
    }
}

static void off_records_nothing(void **state)
{
    (void)state;
    weir_msg msgs[300];
    const volatile size_t count = 300;
    weir_leak_set_mode(WEIR_LEAK_OFF);
    make_in_the_garden(msgs, &apple_type, &count);
    assert_int_equal(make_report()->total, 0);
    release_all(msgs, count);
}

static void all_records_every_message(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    weir_msg msgs[COUNT];
    const volatile size_t count = COUNT;
    make_in_the_garden(msgs, &apple_type, &count);
    assert_int_equal(make_report()->total, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(weir_msg_release(&msgs[i]), 1);
        assert_int_equal(weir_leak_report(note_group, &(report){ 0 }), COUNT - 1 - i);
    }
}

static void sample_records_one_in_128(void **state)
{
    (void)state;
    enum { SAMPLES = 10, COUNT = SAMPLES * 128 };
    static weir_msg msgs[COUNT];
    const volatile size_t count = COUNT, half = COUNT / 2;
    weir_leak_set_mode(WEIR_LEAK_SAMPLE);
    make_in_the_garden(msgs, &apple_type, &count);
    assert_int_equal(make_report()->total, SAMPLES);
    release_all(msgs, COUNT);
    assert_int_equal(make_report()->total, 0);
    /* Evenly: each run of 128 has its one. */
    make_in_the_garden(msgs, &apple_type, &half);
    assert_int_equal(make_report()->total, SAMPLES / 2);
    release_all(msgs, COUNT / 2);
}

static void retained_messages_stay_in_the_report(void **state)
{
    (void)state;
    weir_msg msg;
    weir_msg_init(&msg, &pear_type);
    weir_msg_retain(&msg);
    assert_int_equal(weir_msg_release(&msg), 0);
    assert_int_equal(make_report()->total, 1);
    assert_int_equal(weir_msg_release(&msg), 1);
    assert_int_equal(make_report()->total, 0);
}

static void a_new_mode_is_for_what_comes(void **state)
{
    (void)state;
    weir_msg recorded, unrecorded;
    weir_msg_init(&recorded, &apple_type);
    weir_leak_set_mode(WEIR_LEAK_OFF);
    weir_msg_init(&unrecorded, &apple_type);
    assert_int_equal(make_report()->total, 1);
    weir_leak_set_mode(WEIR_LEAK_ALL);
    assert_int_equal(make_report()->total, 1);
    assert_int_equal(weir_msg_release(&unrecorded), 1);
    assert_int_equal(make_report()->total, 1);
    weir_leak_set_mode(WEIR_LEAK_OFF);
    assert_int_equal(weir_msg_release(&recorded), 1);
    assert_int_equal(make_report()->total, 0);
}

/* Reports ------------------------------------------------------------------------------------ */

static void an_empty_report_calls_nobody(void **state)
{
    (void)state;
    report empty = { 0 };
    assert_int_equal(weir_leak_report(note_group, &empty), 0);
    assert_int_equal(empty.group_count, 0);
}

static void groups_are_by_place_and_type_the_largest_first(void **state)
{
    (void)state;
    weir_msg msgs[4][10];
    const volatile size_t counts[4] = { 5, 9, 2, 3 };
    make_in_the_orchard(msgs[0], &apple_type, &counts[0]);
    make_in_the_garden(msgs[1], &apple_type, &counts[1]);
    make_in_the_orchard(msgs[2], &pear_type, &counts[2]);
    walk_to_the_orchard(msgs[3], &apple_type, &counts[3]); /* the same, by another way */

    const report *made = make_report();
    assert_int_equal(made->total, 19);
    assert_int_equal(made->group_count, 4);
    static const struct {
        const char *type, *place;
        size_t count;
    } expected[] = {
        { "apple", "make_in_the_garden", 9 },
        { "apple", "make_in_the_orchard", 5 },
        { "apple", "walk_to_the_orchard", 3 },
        { "pear", "make_in_the_orchard", 2 },
    };
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(made->groups[i].type, expected[i].type);
        assert_int_equal(made->groups[i].count, expected[i].count);
        assert_non_null(strstr(made->groups[i].place, expected[i].place));
    }
    assert_null(strstr(made->groups[0].place, "orchard"));
    assert_null(strstr(made->groups[1].place, "walk"));
    for (size_t i = 0; i < 4; i++)
        release_all(msgs[i], counts[i]);
}

/* From one place by turns, and a second one between them: still one group for each kind. */
static void what_was_made_by_turns_is_grouped_as_well(void **state)
{
    (void)state;
    enum { TURNS = 6 };
    static const weir_msg_type *const types[2] = { &apple_type, &pear_type };
    weir_msg orchard[TURNS * 2], garden[TURNS * 2];
    const volatile size_t one = 1, count = TURNS * 2;
    for (size_t i = 0; i < count; i++) {
        make_in_the_orchard(&orchard[i], types[i % 2], &one);
        if (i % 4 == 0)
            make_in_the_garden(&garden[i], &apple_type, &one);
    }
    const report *made = make_report();
    assert_int_equal(made->group_count, 3);
    assert_int_equal(made->groups[0].count, TURNS);
    assert_int_equal(made->groups[1].count, TURNS);
    assert_string_not_equal(made->groups[0].type, made->groups[1].type);
    assert_string_equal(made->groups[0].place, made->groups[1].place);
    assert_int_equal(made->groups[2].count, TURNS / 2);
    assert_string_equal(made->groups[2].type, "apple");
    assert_non_null(strstr(made->groups[2].place, "make_in_the_garden"));
    release_all(orchard, TURNS * 2);
    for (size_t i = 0; i < TURNS * 2; i += 4)
        release_all(&garden[i], 1);
}

static void the_place_has_a_line_per_frame_innermost_first(void **state)
{
    (void)state;
    weir_msg msg;
    const volatile size_t one = 1;
    walk_to_the_orchard(&msg, &apple_type, &one);
    const report *made = make_report();
    assert_int_equal(made->group_count, 1);
    const char *place = made->groups[0].place;
    const char *maker = strstr(place, "make_in_the_orchard");
    const char *walker = strstr(place, "walk_to_the_orchard");
    assert_non_null(maker);
    assert_non_null(walker);
    assert_true(maker < walker);
    const char *between = strchr(maker, '\n');
    assert_true(between != NULL && between < walker); /* each on a line of its own */
    assert_null(strstr(place, "\n\n"));
    assert_int_not_equal(place[strlen(place) - 1], '\n');
    assert_int_equal(weir_msg_release(&msg), 1);
}

static void buffers_are_messages_too(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_new(100);
    assert_non_null(buf);
    const report *made = make_report();
    assert_int_equal(made->total, 1);
    assert_string_equal(made->groups[0].type, "buf");
    weir_buf_release(buf);
    assert_int_equal(make_report()->total, 0);
}

static void without_a_function_the_groups_are_logged(void **state)
{
    (void)state;
    weir_msg msgs[8];
    const volatile size_t seven = 7, one = 1;
    make_in_the_orchard(msgs, &pear_type, &seven);
    make_in_the_garden(msgs + 7, &apple_type, &one);

    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_leak_report(NULL, NULL), 8);
    assert_true(harness_log_has("warn leak: 7 "));
    assert_true(harness_log_has("pear"));
    assert_true(harness_log_has("make_in_the_orchard"));
    assert_true(harness_log_has("apple"));
    assert_true(harness_log_has("make_in_the_garden"));
    assert_int_equal(harness_log_end(), 2);

    harness_log_begin(WEIR_LOG_ERROR); /* a warning is not for this one */
    assert_int_equal(weir_leak_report(NULL, NULL), 8);
    assert_int_equal(harness_log_end(), 0);

    assert_int_equal(weir_leak_report(NULL, NULL), 8); /* nobody listens */
    release_all(msgs, 8);
}

/* What a callback may do. */

typedef struct releaser {
    weir_msg *msgs;
    size_t count, calls, nested;
} releaser;

static void release_them(void *arg, const weir_leak *leak)
{
    releaser *self = arg;
    (void)leak;
    if (self->calls++ > 0)
        return;
    release_all(self->msgs, self->count);
    /* Also what makes new ones, and asks again. */
    weir_msg other;
    weir_msg_init(&other, &pear_type);
    report inner = { 0 };
    self->nested = weir_leak_report(note_group, &inner);
    assert_int_equal(weir_msg_release(&other), 1);
}

static void messages_may_go_while_they_are_reported(void **state)
{
    (void)state;
    weir_msg msgs[12];
    const volatile size_t seven = 7, five = 5;
    make_in_the_orchard(msgs, &apple_type, &seven);
    make_in_the_garden(msgs + 7, &pear_type, &five);
    releaser callback = { msgs, 12, 0, 0 };
    assert_int_equal(weir_leak_report(release_them, &callback), 12); /* as it was when asked */
    assert_int_equal(callback.calls, 2);
    assert_int_equal(callback.nested, 1);
    assert_int_equal(make_report()->total, 0);
}

/* Records ------------------------------------------------------------------------------------ */

static void dead_records_are_used_again(void **state)
{
    (void)state;
    uint32_t highest = 0;
    for (int i = 0; i < 100000; i++) {
        weir_msg msg;
        weir_msg_init(&msg, &apple_type);
        assert_int_not_equal(msg.track, 0);
        if (msg.track > highest)
            highest = msg.track;
        assert_int_equal(weir_msg_release(&msg), 1);
    }
    /* The table is as long as the highest number: a few thousand, not a hundred thousand. */
    assert_true(highest < 8192);
    assert_int_equal(make_report()->total, 0);
}

static void a_live_record_is_never_used_again(void **state)
{
    (void)state;
    enum { LIVING = 50 };
    weir_msg living[LIVING];
    const volatile size_t count = LIVING;
    make_in_the_orchard(living, &pear_type, &count);
    for (int i = 0; i < 10000; i++) {
        weir_msg msg;
        weir_msg_init(&msg, &apple_type);
        assert_int_equal(weir_msg_release(&msg), 1);
    }
    const report *made = make_report();
    assert_int_equal(made->total, LIVING);
    assert_int_equal(made->group_count, 1);
    assert_string_equal(made->groups[0].type, "pear");
    release_all(living, LIVING);
}

static void make_and_drop(int count)
{
    for (int i = 0; i < count; i++) {
        weir_msg msg;
        weir_msg_init(&msg, &apple_type);
        assert_int_equal(weir_msg_release(&msg), 1);
    }
}

/* Whoever releases once too often is told where the message came from, if not too late. */
static void the_place_of_a_dead_message_is_known_for_a_while(void **state)
{
    (void)state;
    char place[2048];
    weir_msg msg;
    const volatile size_t one = 1;
    make_in_the_orchard(&msg, &pear_type, &one);
    weir__leak_place(&msg, msg.track, place, sizeof place);
    assert_non_null(strstr(place, "make_in_the_orchard"));
    assert_int_equal(weir_msg_release(&msg), 1);
    make_and_drop(1000);
    weir__leak_place(&msg, msg.track, place, sizeof place);
    assert_non_null(strstr(place, "make_in_the_orchard"));
    make_and_drop(10000);
    weir__leak_place(&msg, msg.track, place, sizeof place);
    assert_string_equal(place, "");
}

static void no_record_means_no_place(void **state)
{
    (void)state;
    char place[64] = "old";
    weir_msg msg, other;
    weir_leak_set_mode(WEIR_LEAK_OFF);
    weir_msg_init(&msg, &pear_type);
    weir__leak_place(&msg, msg.track, place, sizeof place);
    assert_string_equal(place, "");
    weir__leak_place(&msg, 0x7fffffff, place, sizeof place); /* a number nobody gave */
    assert_string_equal(place, "");
    weir_leak_set_mode(WEIR_LEAK_ALL);
    weir_msg_init(&other, &pear_type);
    strcpy(place, "old");
    weir__leak_place(&msg, other.track, place, sizeof place); /* another's record */
    assert_string_equal(place, "");
    weir_msg_release(&msg);
    weir_msg_release(&other);
}

static void a_place_that_does_not_fit_is_cut_at_a_line(void **state)
{
    (void)state;
    char whole[4096];
    weir_msg msg;
    const volatile size_t one = 1;
    walk_to_the_orchard(&msg, &apple_type, &one);
    weir__leak_place(&msg, msg.track, whole, sizeof whole);
    size_t length = strlen(whole);
    for (size_t size = 1; size <= length + 2; size++) {
        char part[4096];
        memset(part, 0x7f, sizeof part);
        weir__leak_place(&msg, msg.track, part, size);
        size_t got = strnlen(part, sizeof part);
        assert_true(got < size);
        assert_memory_equal(part, whole, got);
        assert_true(got == 0 || whole[got] == '\n' || whole[got] == '\0');
        assert_int_equal(part[size], 0x7f);
    }
    weir_msg_release(&msg);
}

/* Threads ------------------------------------------------------------------------------------ */

#define THREADS 4

static atomic_bool keep_going;

static void *make_and_drop_many(void *arg)
{
    unsigned *failures = arg;
    for (int i = 0; i < 3000; i++) {
        weir_msg msgs[3];
        for (int m = 0; m < 3; m++)
            weir_msg_init(&msgs[m], m % 2 == 0 ? &apple_type : &pear_type);
        for (int m = 0; m < 3; m++)
            *failures += weir_msg_release(&msgs[m]) != 1;
    }
    return NULL;
}

static void *report_all_the_time(void *arg)
{
    size_t *most = arg;
    while (atomic_load(&keep_going)) {
        report made = { 0 };
        size_t count = weir_leak_report(note_group, &made);
        if (count > *most)
            *most = count;
    }
    return NULL;
}

static void many_threads_make_drop_and_report(void **state)
{
    (void)state;
    pthread_t threads[THREADS], reporter;
    unsigned failures[THREADS] = { 0 };
    size_t most = 0;
    atomic_store(&keep_going, true);
    assert_int_equal(pthread_create(&reporter, NULL, report_all_the_time, &most), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_drop_many, &failures[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&keep_going, false);
    pthread_join(reporter, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(failures[i], 0);
    assert_true(most <= THREADS * 3); /* never more than can have been alive */
    assert_int_equal(make_report()->total, 0);
}

/* The environment ---------------------------------------------------------------------------- */

#define TELL_MODE "--tell-mode"
#define TELL_SET_MODE "--tell-set-mode"
#define TELL_RECORDED "--tell-recorded"

/* What this program does as its own child: its exit status is the answer. */
static int answer(const char *question)
{
    static weir_msg msgs[256];
    if (strcmp(question, TELL_SET_MODE) == 0)
        weir_leak_set_mode(WEIR_LEAK_SAMPLE);
    if (strcmp(question, TELL_RECORDED) != 0)
        return (int)weir_leak_get_mode();
    /* The very first message reads the environment, with nobody having asked for the mode. */
    for (size_t i = 0; i < 256; i++)
        weir_msg_init(&msgs[i], &apple_type);
    size_t count = weir_leak_report(NULL, NULL);
    return count == 256 ? WEIR_LEAK_ALL : count == 2 ? WEIR_LEAK_SAMPLE : count == 0 ? 0 : 99;
}

static int ask_child(const char *question, const char *environment)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (environment != NULL)
            setenv("WEIR_LEAK", environment, 1);
        else
            unsetenv("WEIR_LEAK");
        execl("/proc/self/exe", "test", question, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void the_environment_sets_the_mode_at_start(void **state)
{
    (void)state;
    static const char *const questions[] = { TELL_MODE, TELL_RECORDED };
    const int usual = HARNESS_MISUSE_ABORTS ? WEIR_LEAK_ALL : WEIR_LEAK_OFF;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ask_child(questions[i], NULL), usual);
        assert_int_equal(ask_child(questions[i], "off"), WEIR_LEAK_OFF);
        assert_int_equal(ask_child(questions[i], "sample"), WEIR_LEAK_SAMPLE);
        assert_int_equal(ask_child(questions[i], "all"), WEIR_LEAK_ALL);
        assert_int_equal(ask_child(questions[i], ""), usual);
        assert_int_equal(ask_child(questions[i], "nonsense"), usual);
    }
}

static void a_set_mode_wins_over_the_environment(void **state)
{
    (void)state;
    assert_int_equal(ask_child(TELL_SET_MODE, "off"), WEIR_LEAK_SAMPLE);
    assert_int_equal(ask_child(TELL_SET_MODE, "all"), WEIR_LEAK_SAMPLE);
    assert_int_equal(ask_child(TELL_SET_MODE, NULL), WEIR_LEAK_SAMPLE);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return answer(argv[1]);
    const struct CMUnitTest tests[] = {
        leak_case(mode_is_what_was_set),
        leak_case(off_records_nothing),
        leak_case(all_records_every_message),
        leak_case(sample_records_one_in_128),
        leak_case(retained_messages_stay_in_the_report),
        leak_case(a_new_mode_is_for_what_comes),
        leak_case(an_empty_report_calls_nobody),
        leak_case(groups_are_by_place_and_type_the_largest_first),
        leak_case(what_was_made_by_turns_is_grouped_as_well),
        leak_case(the_place_has_a_line_per_frame_innermost_first),
        leak_case(buffers_are_messages_too),
        leak_case(without_a_function_the_groups_are_logged),
        leak_case(messages_may_go_while_they_are_reported),
        leak_case(dead_records_are_used_again),
        leak_case(a_live_record_is_never_used_again),
        leak_case(the_place_of_a_dead_message_is_known_for_a_while),
        leak_case(no_record_means_no_place),
        leak_case(a_place_that_does_not_fit_is_cut_at_a_line),
        leak_case(many_threads_make_drop_and_report),
        leak_case(the_environment_sets_the_mode_at_start),
        leak_case(a_set_mode_wins_over_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
