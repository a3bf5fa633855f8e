/* SPDX-License-Identifier: MIT */
/* The log: who hears what, one line at a time, and what a sink must not do. */
#include "asleep.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A sink that remembers the last line -------------------------------------------------------- */

typedef struct heard {
    unsigned lines;
    weir_log_level level;
    char origin[64];
    char line[8192];
} heard;

static void hear(void *arg, weir_log_level level, const char *origin, const char *line)
{
    heard *self = arg;
    self->lines++;
    self->level = level;
    snprintf(self->origin, sizeof self->origin, "%s", origin);
    snprintf(self->line, sizeof self->line, "%s", line);
}

/* What goes to standard error meanwhile ------------------------------------------------------ */

typedef struct captured {
    int kept_stderr, pipe_fds[2];
    char text[16384];
} captured;

static void capture_begin(captured *capture)
{
    fflush(stderr);
    assert_int_equal(pipe2(capture->pipe_fds, O_NONBLOCK), 0);
    capture->kept_stderr = dup(STDERR_FILENO);
    assert_true(capture->kept_stderr >= 0);
    assert_int_equal(dup2(capture->pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
    close(capture->pipe_fds[1]);
}

static const char *capture_end(captured *capture)
{
    fflush(stderr);
    assert_int_equal(dup2(capture->kept_stderr, STDERR_FILENO), STDERR_FILENO);
    close(capture->kept_stderr);
    size_t length = 0;
    for (ssize_t got; (got = read(capture->pipe_fds[0], capture->text + length,
                                  sizeof capture->text - 1 - length)) > 0;)
        length += (size_t)got;
    close(capture->pipe_fds[0]);
    capture->text[length] = '\0';
    return capture->text;
}

static void level_above_trace_is_trace(void **state)
{
    (void)state;
    heard sink = { 0 };
    assert_int_equal(weir_log_set((weir_log_level)INT_MAX, hear, &sink), 0);
    weir_log(WEIR_LOG_TRACE, "test", "a line");
    assert_int_equal(sink.lines, 1);
    assert_string_equal(sink.line, "a line");
}

static void lines_up_to_the_level_reach_the_sink(void **state)
{
    (void)state;
    for (int threshold = WEIR_LOG_OFF; threshold <= WEIR_LOG_TRACE; threshold++) {
        heard sink = { 0 };
        unsigned expected = 0;
        assert_int_equal(weir_log_set((weir_log_level)threshold, hear, &sink), 0);
        for (int level = WEIR_LOG_ERROR; level <= WEIR_LOG_TRACE; level++) {
            bool reaches = level <= threshold;
            assert_int_equal(weir_log_enabled((weir_log_level)level), reaches);
            weir_log((weir_log_level)level, "test", "level %d", level);
            expected += reaches;
            assert_int_equal(sink.lines, expected);
            if (reaches)
                assert_int_equal(sink.level, level);
        }
    }
}

static void a_line_of_level_off_reaches_nobody(void **state)
{
    (void)state;
    heard sink = { 0 };
    assert_int_equal(weir_log_set(WEIR_LOG_TRACE, hear, &sink), 0);
    assert_false(weir_log_enabled(WEIR_LOG_OFF));
    weir_log(WEIR_LOG_OFF, "test", "nothing");
    assert_int_equal(sink.lines, 0);
}

static void the_sink_gets_origin_and_formatted_line(void **state)
{
    (void)state;
    heard sink = { 0 };
    assert_int_equal(weir_log_set(WEIR_LOG_INFO, hear, &sink), 0);
    weir_log(WEIR_LOG_INFO, "loop", "%s took %d ms, %zu%%", "it", 12, (size_t)50);
    assert_int_equal(sink.lines, 1);
    assert_int_equal(sink.level, WEIR_LOG_INFO);
    assert_string_equal(sink.origin, "loop");
    assert_string_equal(sink.line, "it took 12 ms, 50%");
    weir_log(WEIR_LOG_ERROR, NULL, "from nobody");
    assert_string_equal(sink.origin, "");
    assert_string_equal(sink.line, "from nobody");
}

static void a_sink_that_is_replaced_hears_no_more(void **state)
{
    (void)state;
    heard first = { 0 }, second = { 0 };
    assert_int_equal(weir_log_set(WEIR_LOG_WARN, hear, &first), 0);
    weir_log(WEIR_LOG_WARN, "test", "one");
    assert_int_equal(weir_log_set(WEIR_LOG_DEBUG, hear, &second), 0);
    weir_log(WEIR_LOG_DEBUG, "test", "two");
    assert_int_equal(first.lines, 1);
    assert_string_equal(first.line, "one");
    assert_int_equal(second.lines, 1);
    assert_string_equal(second.line, "two");
}

static void off_or_no_sink_makes_silent(void **state)
{
    (void)state;
    heard sink = { 0 };
    captured capture;
    for (int by_level = 0; by_level < 2; by_level++) {
        assert_int_equal(weir_log_set(WEIR_LOG_TRACE, hear, &sink), 0);
        assert_true(weir_log_enabled(WEIR_LOG_TRACE));
        if (by_level)
            assert_int_equal(weir_log_set(WEIR_LOG_OFF, hear, &sink), 0);
        else
            assert_int_equal(weir_log_set(WEIR_LOG_TRACE, NULL, &sink), 0);
        assert_false(weir_log_enabled(WEIR_LOG_ERROR));
        capture_begin(&capture);
        weir_log(WEIR_LOG_ERROR, "test", "unheard");
        assert_string_equal(capture_end(&capture), "");
    }
    assert_int_equal(sink.lines, 0);
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    enum { LONGEST = 5000 };
    static char text[LONGEST + 1];
    static heard sink;
    for (size_t i = 0; i < LONGEST; i++)
        text[i] = (char)('a' + i % 26);
    assert_int_equal(weir_log_set(WEIR_LOG_INFO, hear, &sink), 0);
    size_t longest = 0;
    for (size_t length = 0; length <= LONGEST; length += 7) {
        weir_log(WEIR_LOG_INFO, "test", "%.*s", (int)length, text);
        size_t got = strlen(sink.line);
        assert_true(got <= length);
        assert_memory_equal(sink.line, text, got);
        if (got == length)
            longest = length; /* so far whole */
    }
    /* A line has room for the place where a message was made, and ends somewhere. */
    assert_true(longest >= 1600);
    assert_true(longest < LONGEST);
}

static void stderr_gets_whole_lines(void **state)
{
    (void)state;
    captured capture;
    assert_int_equal(weir_log_to_stderr(WEIR_LOG_WARN), 0);
    assert_true(weir_log_enabled(WEIR_LOG_WARN));
    assert_false(weir_log_enabled(WEIR_LOG_INFO));
    capture_begin(&capture);
    weir_log(WEIR_LOG_WARN, "first_origin", "first %s", "line");
    weir_log(WEIR_LOG_INFO, "hidden_origin", "hidden line");
    weir_log(WEIR_LOG_ERROR, "second_origin", "second line");
    const char *text = capture_end(&capture);
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);

    const char *end = strchr(text, '\n');
    assert_non_null(end);
    const char *at = strstr(text, "warn");
    assert_true(at != NULL && at < end);
    at = strstr(text, "first_origin");
    assert_true(at != NULL && at < end);
    at = strstr(text, "first line");
    assert_true(at != NULL && at < end);
    assert_null(strstr(text, "hidden"));
    assert_non_null(strstr(end, "error"));
    assert_non_null(strstr(end, "second_origin"));
    assert_non_null(strstr(end, "second line\n"));
    assert_ptr_equal(strchr(end + 1, '\n'), text + strlen(text) - 1);
}

/* From inside the sink ----------------------------------------------------------------------- */

typedef struct meddler {
    heard heard;
    int set_result, stderr_result;
    bool was_enabled;
} meddler;

static void log_again(void *arg, weir_log_level level, const char *origin, const char *line)
{
    meddler *self = arg;
    hear(&self->heard, level, origin, line);
    weir_log(WEIR_LOG_ERROR, "sink", "from inside");
}

static void set_again(void *arg, weir_log_level level, const char *origin, const char *line)
{
    meddler *self = arg;
    hear(&self->heard, level, origin, line);
    self->set_result = weir_log_set(WEIR_LOG_OFF, NULL, NULL);
    self->stderr_result = weir_log_to_stderr(WEIR_LOG_TRACE);
}

static void ask_again(void *arg, weir_log_level level, const char *origin, const char *line)
{
    meddler *self = arg;
    hear(&self->heard, level, origin, line);
    self->was_enabled = weir_log_enabled(WEIR_LOG_ERROR);
}

static void a_line_from_inside_the_sink_is_dropped(void **state)
{
    (void)state;
    static meddler sink;
    assert_int_equal(weir_log_set(WEIR_LOG_TRACE, log_again, &sink), 0);
    for (unsigned i = 1; i <= 3; i++) {
        weir_log(WEIR_LOG_INFO, "test", "from outside");
        assert_int_equal(sink.heard.lines, i);
        assert_string_equal(sink.heard.line, "from outside");
    }
}

static void the_sink_cannot_replace_itself(void **state)
{
    (void)state;
    static meddler sink;
    assert_int_equal(weir_log_set(WEIR_LOG_INFO, set_again, &sink), 0);
    for (unsigned i = 1; i <= 2; i++) {
        sink.set_result = sink.stderr_result = 0;
        weir_log(WEIR_LOG_INFO, "test", "line");
        assert_int_equal(sink.heard.lines, i); /* it is still the one */
        assert_int_equal(sink.set_result, -EDEADLK);
        assert_int_equal(sink.stderr_result, -EDEADLK);
    }
    assert_false(weir_log_enabled(WEIR_LOG_DEBUG));
    /* Outside of it the same thread may. */
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);
}

/* What would be dropped need not be prepared. */
static void nothing_is_enabled_inside_the_sink(void **state)
{
    (void)state;
    static meddler sink;
    sink.was_enabled = true;
    assert_int_equal(weir_log_set(WEIR_LOG_INFO, ask_again, &sink), 0);
    weir_log(WEIR_LOG_INFO, "test", "line");
    assert_int_equal(sink.heard.lines, 1);
    assert_false(sink.was_enabled);
    assert_true(weir_log_enabled(WEIR_LOG_ERROR));
}

/* Threads ------------------------------------------------------------------------------------ */

#define THREADS 4
#define LINES_EACH 2000u

/* Nothing in it is atomic but the check: the log itself must keep two lines apart. */
typedef struct crowd {
    atomic_int inside;
    bool was_crowded;
    unsigned lines, expected[THREADS], misplaced;
} crowd;

static void count_line(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)level;
    crowd *self = arg;
    if (atomic_fetch_add(&self->inside, 1) != 0)
        self->was_crowded = true;
    unsigned thread = (unsigned)atoi(origin), number = (unsigned)atoi(line);
    self->lines++;
    if (thread >= THREADS || number != self->expected[thread]++)
        self->misplaced++;
    atomic_fetch_sub(&self->inside, 1);
}

static void *log_many(void *arg)
{
    const char *origin = arg;
    for (unsigned i = 0; i < LINES_EACH; i++)
        weir_log(WEIR_LOG_INFO, origin, "%u", i);
    return NULL;
}

static void lines_of_several_threads_come_one_at_a_time(void **state)
{
    (void)state;
    static char origins[THREADS][2] = { "0", "1", "2", "3" };
    crowd sink = { 0 };
    pthread_t threads[THREADS];
    assert_int_equal(weir_log_set(WEIR_LOG_INFO, count_line, &sink), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, origins[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_false(sink.was_crowded);
    assert_int_equal(sink.lines, THREADS * LINES_EACH);
    assert_int_equal(sink.misplaced, 0);
}

/* A sink's memory may go as soon as the call that replaced it is back: sanitizers watch. */

static atomic_bool keep_talking;

static void *talk(void *arg)
{
    (void)arg;
    while (atomic_load(&keep_talking))
        weir_log(WEIR_LOG_INFO, "talker", "something");
    return NULL;
}

static void count_only(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)level;
    (void)origin;
    (void)line;
    ++*(unsigned *)arg;
}

static void a_replaced_sink_may_be_freed(void **state)
{
    (void)state;
    pthread_t threads[2];
    unsigned *sink = NULL;
    atomic_store(&keep_talking, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, talk, NULL), 0);
    for (int i = 0; i < 500; i++) {
        unsigned *next = calloc(1, sizeof *next);
        assert_non_null(next);
        assert_int_equal(weir_log_set(WEIR_LOG_INFO, count_only, next), 0);
        free(sink);
        sink = next;
        if (i % 10 == 0)
            sched_yield();
    }
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);
    free(sink);
    atomic_store(&keep_talking, false);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* The same by steps: a sink that stays inside holds up who would replace it. */

typedef struct slow_sink {
    atomic_bool entered, may_leave, left;
    atomic_int setter_tid;
    atomic_bool is_set;
    bool had_left; /* when weir_log_set came back */
} slow_sink;

static void stay_inside(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)level;
    (void)origin;
    (void)line;
    slow_sink *self = arg;
    atomic_store(&self->entered, true);
    WAIT_FOR(atomic_load(&self->may_leave));
    atomic_store(&self->left, true);
}

static void *log_once(void *arg)
{
    (void)arg;
    weir_log(WEIR_LOG_ERROR, "test", "line");
    return NULL;
}

static void *replace_sink(void *arg)
{
    slow_sink *self = arg;
    atomic_store(&self->setter_tid, (int)gettid());
    weir_log_set(WEIR_LOG_OFF, NULL, NULL);
    self->had_left = atomic_load(&self->left);
    atomic_store(&self->is_set, true);
    return NULL;
}

static void set_waits_for_the_sink_that_runs(void **state)
{
    (void)state;
    slow_sink sink = { 0 };
    pthread_t logger, setter;
    assert_int_equal(weir_log_set(WEIR_LOG_ERROR, stay_inside, &sink), 0);
    assert_int_equal(pthread_create(&logger, NULL, log_once, NULL), 0);
    WAIT_FOR(atomic_load(&sink.entered));
    assert_int_equal(pthread_create(&setter, NULL, replace_sink, &sink), 0);
    /* It is inside the call now, or wrongly back from it already. */
    WAIT_FOR(atomic_load(&sink.setter_tid) != 0);
    WAIT_FOR(is_asleep(atomic_load(&sink.setter_tid)) || atomic_load(&sink.is_set));
    atomic_store(&sink.may_leave, true);
    pthread_join(setter, NULL);
    pthread_join(logger, NULL);
    assert_true(sink.had_left);
}

/* Names -------------------------------------------------------------------------------------- */

static void levels_have_names_both_ways(void **state)
{
    (void)state;
    static const char *const names[] = { "off", "error", "warn", "info", "debug", "trace" };
    assert_int_equal(WEIR_LOG_TRACE, 5);
    for (int level = WEIR_LOG_OFF; level <= WEIR_LOG_TRACE; level++) {
        assert_string_equal(weir_log_level_name((weir_log_level)level), names[level]);
        assert_int_equal(weir_log_level_from(names[level]), level);
    }
}

static void unknown_names_and_levels_are_seen(void **state)
{
    (void)state;
    static const char *const wrong[] = { "", " ", "warning", "err", "infox", "of", "5", "?" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(weir_log_level_from(wrong[i]), -EINVAL);
    assert_int_equal(weir_log_level_from(NULL), -EINVAL);
    static const int levels[] = { WEIR_LOG_TRACE + 1, 1000, -1 };
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const char *name = weir_log_level_name((weir_log_level)levels[i]);
        assert_non_null(name);
        assert_int_equal(weir_log_level_from(name), -EINVAL);
    }
}

/* As from a setting that was spelt wrong and not checked. */
static void a_level_that_is_an_error_code_is_silence(void **state)
{
    (void)state;
    heard sink = { 0 };
    assert_int_equal(weir_log_set((weir_log_level)weir_log_level_from("loud"), hear, &sink), 0);
    weir_log(WEIR_LOG_ERROR, "test", "line");
    assert_int_equal(sink.lines, 0);
    assert_false(weir_log_enabled(WEIR_LOG_ERROR));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(level_above_trace_is_trace),
        weir_case(lines_up_to_the_level_reach_the_sink),
        weir_case(a_line_of_level_off_reaches_nobody),
        weir_case(the_sink_gets_origin_and_formatted_line),
        weir_case(a_sink_that_is_replaced_hears_no_more),
        weir_case(off_or_no_sink_makes_silent),
        weir_case(long_lines_are_cut),
        weir_case(stderr_gets_whole_lines),
        weir_case(a_line_from_inside_the_sink_is_dropped),
        weir_case(the_sink_cannot_replace_itself),
        weir_case(nothing_is_enabled_inside_the_sink),
        weir_case(lines_of_several_threads_come_one_at_a_time),
        weir_case(a_replaced_sink_may_be_freed),
        weir_case(set_waits_for_the_sink_that_runs),
        weir_case(levels_have_names_both_ways),
        weir_case(unknown_names_and_levels_are_seen),
        weir_case(a_level_that_is_an_error_code_is_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
