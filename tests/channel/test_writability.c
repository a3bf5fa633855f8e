/* SPDX-License-Identifier: MIT */
/* Water marks, and writing from inside whatever writing has caused. */
#include "harness.h"

#include "channel/channel.h"

#include <weir/embedded.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOW = 10, HIGH = 20 };

/* A channel with one handler that keeps a diary ------------------------------------------------ */

typedef struct world world;
typedef void (*act_fn)(world *w);

typedef struct watch {
    weir_listener listener;
    world *world;
    char name;
    weir_promise *promise;
    act_fn then; /* what the listener does, after it was noted */
} watch;

struct world {
    weir_embedded *embedded;
    weir_channel *channel;
    act_fn act;                                          /* what the test wants done on the loop */
    act_fn on_writability, on_error, on_write, on_flush; /* reactions, NULL: none */
    bool notes_operations;
    unsigned count;     /* a scenario's own */
    int depth, deepest; /* how far listeners and on_writability are inside each other */
    watch watches[16];
    size_t watched;
    char diary[4096];
};

static void note(world *w, const char *what)
{
    assert_true(strlen(w->diary) + strlen(what) + 2 < sizeof w->diary);
    strcat(strcat(w->diary, what), " ");
}

static void note_code(world *w, const char *what, int code)
{
    char line[64];
    snprintf(line, sizeof line, code == 0 ? "%s" : "%s:%s", what, weir_error_name(code));
    note(w, line);
}

/* On the loop a failed assertion would jump out of it: it is noted, and the diary shows it. */
#define CHECK(w, condition) ((condition) ? (void)0 : note(w, "not(" #condition ")"))

static void react(world *w, act_fn reaction)
{
    w->depth++;
    if (w->depth > w->deepest)
        w->deepest = w->depth;
    if (reaction != NULL)
        reaction(w);
    w->depth--;
}

static world *world_of(weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static void diary_on_writability(weir_ctx *ctx)
{
    world *w = world_of(ctx);
    note(w, weir_channel_is_writable(w->channel) ? "writable" : "unwritable");
    react(w, w->on_writability);
    weir_ctx_fire_writability(ctx);
}

static void diary_on_event(weir_ctx *ctx, weir_msg *event)
{
    world *w = world_of(ctx);
    weir_msg_release(event);
    w->act(w);
    note(w, "|");
}

static void diary_on_error(weir_ctx *ctx, const weir_error *error)
{
    world *w = world_of(ctx);
    note_code(w, "error", error->code);
    react(w, w->on_error);
}

static void diary_on_inactive(weir_ctx *ctx)
{
    note(world_of(ctx), "inactive");
    weir_ctx_fire_inactive(ctx);
}

static void diary_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    world *w = world_of(ctx);
    if (w->on_write != NULL)
        w->on_write(w);
    if (w->notes_operations)
        note(w, "write");
    weir_ctx_write(ctx, msg, promise);
}

static void diary_flush(weir_ctx *ctx)
{
    world *w = world_of(ctx);
    if (w->on_flush != NULL)
        w->on_flush(w);
    if (w->notes_operations)
        note(w, "flush");
    weir_ctx_flush(ctx);
}

static void diary_close(weir_ctx *ctx, weir_promise *promise)
{
    world *w = world_of(ctx);
    if (w->notes_operations)
        note(w, "close");
    weir_ctx_close(ctx, promise);
}

static const weir_handler_type diary = {
    .name = "diary",
    .on_writability = diary_on_writability,
    .on_event = diary_on_event,
    .on_error = diary_on_error,
    .on_inactive = diary_on_inactive,
    .write = diary_write,
    .flush = diary_flush,
    .close = diary_close,
};

static int add_diary(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "diary", &diary, arg);
}

static void set_option(weir_channel *channel, weir_option option, int64_t value)
{
    assert_int_equal(weir_channel_set_option(channel, option, value, NULL), 0);
}

static void set_marks(weir_channel *channel, int64_t low, int64_t high)
{
    set_option(channel, WEIR_OPTION_WRITE_LOW_BYTES, low);
    set_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, high);
}

/* The other side takes `accepted` messages for now. */
static void open_world(world *w, size_t accepted)
{
    weir_embedded_config config = { .init = add_diary, .arg = w };
    assert_int_equal(weir_embedded_new(&w->embedded, &config, NULL), 0);
    w->channel = weir_embedded_channel(w->embedded);
    set_marks(w->channel, LOW, HIGH);
    assert_int_equal(weir_embedded_run(w->embedded), 0);
    assert_int_equal(weir_embedded_accept(w->embedded, accepted), 0);
}

static void forget_watches(world *w)
{
    for (size_t i = 0; i < w->watched; i++)
        weir_promise_release(w->watches[i].promise);
    w->watched = 0;
}

static void close_world(world *w)
{
    forget_watches(w);
    weir_embedded_free(w->embedded);
}

/* What the diary says since the last look. */
static void expect(world *w, const char *diary_text)
{
    assert_string_equal(w->diary, diary_text);
    w->diary[0] = '\0';
}

/* Writing -------------------------------------------------------------------------------------- */

static weir_msg *bytes_of(size_t size)
{
    weir_buf *buf = weir_buf_new(size);
    assert_non_null(buf);
    assert_int_equal(weir_buf_write_fill(buf, 'x', size), 0);
    return weir_buf_msg(buf);
}

static void listened(weir_listener *listener, weir_future *future)
{
    watch *self = WEIR_CONTAINER(listener, watch, listener);
    note_code(self->world, (char[2]){ self->name, '\0' }, weir_future_code(future));
    react(self->world, self->then);
}

static watch *new_watch(world *w, char name, act_fn then)
{
    assert_true(w->watched < sizeof w->watches / sizeof *w->watches);
    watch *self = &w->watches[w->watched++];
    *self = (watch){ { .done = listened }, w, name, weir_channel_promise(w->channel), then };
    assert_non_null(self->promise);
    weir_future_listen(weir_promise_future(self->promise), &self->listener);
    return self;
}

static void put(world *w, char name, size_t size)
{
    weir_channel_write(w->channel, bytes_of(size), new_watch(w, name, NULL)->promise);
}

static void put_then(world *w, char name, size_t size, act_fn then)
{
    weir_channel_write(w->channel, bytes_of(size), new_watch(w, name, then)->promise);
}

static void put_silent(world *w, size_t size)
{
    weir_channel_write(w->channel, bytes_of(size), NULL);
}

static void flush(world *w)
{
    weir_channel_flush(w->channel);
}

static void close_channel(world *w)
{
    weir_channel_close(w->channel, NULL);
}

static size_t pending(const weir_channel *channel)
{
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    return stats.pending_bytes;
}

/* Doing something on the loop: as a task, or inside a handler's callback. ---------------------- */

static int act_as_task(void *arg)
{
    world *w = arg;
    w->act(w);
    note(w, "|");
    return 0;
}

static void do_as_task(world *w, act_fn act)
{
    w->act = act;
    assert_int_equal(weir_embedded_call(w->embedded, act_as_task, w), 0);
}

static void ignore(weir_msg *msg)
{
    (void)msg;
}

static const weir_msg_type signal_type = { .name = "signal", .destroy = ignore };
static weir_msg signal_event = WEIR_MSG_CONSTANT(&signal_type);

static void do_in_callback(world *w, act_fn act)
{
    w->act = act;
    weir_pipeline_fire_event(weir_embedded_pipeline(w->embedded), &signal_event);
    assert_int_equal(weir_embedded_run(w->embedded), 0);
}

static void *act_elsewhere(void *arg)
{
    world *w = arg;
    w->act(w);
    return NULL;
}

/* From another thread; what it asked for has happened when this returns. */
static void do_elsewhere(world *w, act_fn act)
{
    pthread_t thread;
    w->act = act;
    assert_int_equal(pthread_create(&thread, NULL, act_elsewhere, w), 0);
    pthread_join(thread, NULL);
    assert_int_equal(weir_embedded_run(w->embedded), 0);
}

typedef void (*way_fn)(world *w, act_fn act);
static const way_fn ways[] = { do_as_task, do_in_callback };
enum { WAYS = 2 };

/* The marks ------------------------------------------------------------------------------------ */

typedef struct mark_step {
    char what; /* w: writes so many bytes, a: so many messages are accepted */
    size_t count;
    size_t pending, before_unwritable, before_writable;
    const char *diary;
} mark_step;

static size_t step_size;

static void put_step(world *w)
{
    put_silent(w, step_size);
    flush(w);
}

static void take_steps(const mark_step *steps, size_t count)
{
    world w = { .count = 0 };
    open_world(&w, 0);
    for (size_t i = 0; i < count; i++) {
        const mark_step *step = &steps[i];
        step_size = step->count;
        if (step->what == 'w')
            do_as_task(&w, put_step);
        else
            assert_int_equal(weir_embedded_accept(w.embedded, step->count), 0);
        assert_int_equal(pending(w.channel), step->pending);
        assert_int_equal(weir_channel_bytes_before_unwritable(w.channel), step->before_unwritable);
        assert_int_equal(weir_channel_bytes_before_writable(w.channel), step->before_writable);
        assert_int_equal(weir_channel_is_writable(w.channel), step->before_unwritable > 0);
        expect(&w, step->diary);
    }
    close_world(&w);
}

static void each_mark_is_told_once_when_it_is_crossed(void **state)
{
    (void)state;
    static const mark_step steps[] = {
        { 'w', 5, 5, 16, 0, "| " },
        { 'w', 15, 20, 1, 0, "| " }, /* at the high mark: not above */
        { 'w', 1, 21, 0, 11, "| unwritable " },
        { 'w', 4, 25, 0, 15, "| " },
        { 'a', 1, 20, 0, 10, "" }, /* between the marks it stays as it was */
        { 'w', 2, 22, 0, 12, "| " },
        { 'a', 1, 7, 14, 0, "writable " },
        { 'w', 5, 12, 9, 0, "| " }, /* and so it does on the way up */
        { 'w', 8, 20, 1, 0, "| " },
        { 'w', 100, 120, 0, 110, "| unwritable " },
        { 'a', SIZE_MAX, 0, 21, 0, "writable " },
    };
    take_steps(steps, sizeof steps / sizeof *steps);
}

static void at_the_low_mark_it_is_writable_again(void **state)
{
    (void)state;
    static const mark_step steps[] = {
        { 'w', 10, 10, 11, 0, "| " },
        { 'w', 10, 20, 1, 0, "| " },
        { 'w', 1, 21, 0, 11, "| unwritable " },
        { 'a', 1, 11, 0, 1, "" },
        { 'w', 9, 20, 0, 10, "| " },
        { 'a', 1, 10, 11, 0, "writable " },
    };
    take_steps(steps, sizeof steps / sizeof *steps);
}

static void an_empty_message_counts_as_a_byte(void **state)
{
    (void)state;
    static const mark_step steps[] = {
        { 'w', 20, 20, 1, 0, "| " },
        { 'w', 0, 21, 0, 11, "| unwritable " },
        { 'a', 1, 1, 20, 0, "writable " },
        { 'a', 1, 0, 21, 0, "" },
    };
    take_steps(steps, sizeof steps / sizeof *steps);
}

static void cross_and_come_back(world *w)
{
    put(w, 'a', HIGH + 1);
    CHECK(w, !weir_channel_is_writable(w->channel)); /* at once, though nobody was told */
    flush(w);
    CHECK(w, weir_channel_is_writable(w->channel));
}

/* Whoever has seen that it was not writable may wait for this. */
static void crossings_that_undo_each_other_are_told_once(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        ways[i](&w, cross_and_come_back);
        expect(&w, "| writable a ");
        close_world(&w);
    }
}

static void put_too_much(world *w)
{
    put(w, 'a', HIGH + 1);
}

static void cross_twice(world *w)
{
    flush(w);
    put(w, 'b', HIGH + 1);
}

/* Told as unwritable, down and up again in one callback. */
static void coming_back_and_crossing_again_is_told_once(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        ways[i](&w, put_too_much);
        expect(&w, "| unwritable ");
        ways[i](&w, cross_twice);
        expect(&w, "| a unwritable ");
        assert_false(weir_channel_is_writable(w.channel));
        ways[i](&w, flush);
        expect(&w, "| b writable ");
        close_world(&w);
    }
}

/* A writer elsewhere sees its own bytes at once, the loop tells when it has them. */
static void put_and_look(world *w)
{
    put_silent(w, HIGH);
    CHECK(w, weir_channel_bytes_before_unwritable(w->channel) == 1);
    put_silent(w, 1);
    CHECK(w, !weir_channel_is_writable(w->channel));
    CHECK(w, weir_channel_bytes_before_writable(w->channel) == HIGH + 1 - LOW);
    CHECK(w, pending(w->channel) == HIGH + 1);
    CHECK(w, w->diary[0] == '\0');
}

static void bytes_from_another_thread_count_at_once(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    do_elsewhere(&w, put_and_look);
    expect(&w, "unwritable ");
    assert_int_equal(pending(w.channel), HIGH + 1);
    do_elsewhere(&w, flush);
    expect(&w, "writable ");
    assert_int_equal(pending(w.channel), 0);
    close_world(&w);
}

/* Each of these is sent as soon as the loop has it, so the loop's own queue never gets full. */
static void put_three_and_look(world *w)
{
    for (int i = 0; i < 3; i++) {
        CHECK(w, weir_channel_is_writable(w->channel) == (i < 2));
        put_silent(w, HIGH / 2 + 1);
        flush(w);
    }
    CHECK(w, !weir_channel_is_writable(w->channel));
}

static void look_for_room(world *w)
{
    CHECK(w, weir_channel_is_writable(w->channel));
}

/* Or a producer thread that has seen `false` would wait for ever. */
static void unwritable_seen_by_another_thread_is_followed_by_on_writability(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    for (int i = 0; i < 3; i++) {
        do_elsewhere(&w, put_three_and_look);
        expect(&w, "writable ");
        do_elsewhere(&w, look_for_room);
        expect(&w, "");
    }
    close_world(&w);
}

/* Marks that change ---------------------------------------------------------------------------- */

static void put_fifteen(world *w)
{
    put_silent(w, 15);
    flush(w);
}

static void lower_the_high_mark(world *w)
{
    set_option(w->channel, WEIR_OPTION_WRITE_HIGH_BYTES, 14);
}

static void raise_the_high_mark(world *w)
{
    set_option(w->channel, WEIR_OPTION_WRITE_HIGH_BYTES, 100);
}

static void raise_the_low_mark(world *w)
{
    set_option(w->channel, WEIR_OPTION_WRITE_LOW_BYTES, 15);
}

static void marks_may_change_while_bytes_wait(void **state)
{
    (void)state;
    static const way_fn all_ways[] = { do_as_task, do_in_callback, do_elsewhere };
    static const char *const ends[] = { "| ", "| ", "" }; /* of the act itself */
    for (int i = 0; i < 3; i++) {
        world w = { .count = 0 };
        char told[64];
        open_world(&w, 0);
        all_ways[i](&w, put_fifteen);
        expect(&w, ends[i]);
        all_ways[i](&w, lower_the_high_mark);
        snprintf(told, sizeof told, "%sunwritable ", ends[i]);
        expect(&w, told);
        assert_int_equal(weir_channel_bytes_before_writable(w.channel), 5);
        all_ways[i](&w, raise_the_high_mark); /* still above the low one */
        expect(&w, ends[i]);
        assert_false(weir_channel_is_writable(w.channel));
        all_ways[i](&w, raise_the_low_mark);
        snprintf(told, sizeof told, "%swritable ", ends[i]);
        expect(&w, told);
        assert_int_equal(weir_channel_bytes_before_unwritable(w.channel), 86);
        close_world(&w);
    }
}

static void refuse_mark(world *w, weir_option option, int64_t value, const char *text)
{
    weir_error error;
    CHECK(w, weir_channel_set_option(w->channel, option, value, &error) == -EINVAL);
    CHECK(w, strstr(error.message, text) != NULL);
}

static void set_marks_badly(world *w)
{
    refuse_mark(w, WEIR_OPTION_WRITE_LOW_BYTES, HIGH + 1, "write_low_bytes is 21");
    refuse_mark(w, WEIR_OPTION_WRITE_HIGH_BYTES, LOW - 1, "write_high_bytes is 9");
    set_option(w->channel, WEIR_OPTION_WRITE_LOW_BYTES, HIGH); /* the same is allowed */
    set_option(w->channel, WEIR_OPTION_WRITE_LOW_BYTES, LOW);
    set_option(w->channel, WEIR_OPTION_WRITE_HIGH_BYTES, LOW);
}

static void the_low_mark_is_never_above_the_high_one(void **state)
{
    (void)state;
    world w = { .count = 0 };
    int64_t low, high;
    open_world(&w, 0);
    do_as_task(&w, set_marks_badly);
    assert_int_equal(weir_channel_get_option(w.channel, WEIR_OPTION_WRITE_LOW_BYTES, &low), 0);
    assert_int_equal(weir_channel_get_option(w.channel, WEIR_OPTION_WRITE_HIGH_BYTES, &high), 0);
    assert_int_equal(low, LOW);
    assert_int_equal(high, LOW);
    expect(&w, "| ");
    close_world(&w);
}

static void put_too_much_then_pause(world *w)
{
    put_silent(w, HIGH + 1);
    set_option(w->channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1);
}

static void pausing_begins_also_when_it_is_unwritable_already(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        assert_true(weir_embedded_is_reading(w.embedded));
        ways[i](&w, put_too_much_then_pause);
        expect(&w, "| unwritable ");
        assert_false(weir_embedded_is_reading(w.embedded));
        ways[i](&w, flush);
        expect(&w, "| writable ");
        assert_true(weir_embedded_is_reading(w.embedded));
        close_world(&w);
    }
}

/* Holds ---------------------------------------------------------------------------------------- */

#define HOLDS 40
static weir_hold holds[HOLDS];
static weir_hold *hold;
static bool is_held;

static void set_hold(world *w)
{
    CHECK(w, weir_channel_set_write_hold(w->channel, hold, is_held) == 0);
    CHECK(w, !is_held || !weir_channel_is_writable(w->channel));
}

static void hold_writes(world *w, way_fn way, unsigned number, bool is_set)
{
    hold = &holds[number];
    is_held = is_set;
    way(w, set_hold);
}

static void channel_is_writable_once_the_last_hold_is_released(void **state)
{
    (void)state;
    static const way_fn all_ways[] = { do_as_task, do_in_callback, do_elsewhere };
    for (int way = 0; way < 3; way++) {
        const char *end = way < 2 ? "| " : "";
        char told[64];
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        for (unsigned number = 1; number < HOLDS; number++) {
            hold_writes(&w, all_ways[way], number, true);
            snprintf(told, sizeof told, "%s%s", end, number == 1 ? "unwritable " : "");
            expect(&w, told);
            assert_int_equal(weir_channel_bytes_before_unwritable(w.channel), 0);
        }
        for (unsigned number = 1; number < HOLDS; number++) {
            hold_writes(&w, all_ways[way], number, false);
            snprintf(told, sizeof told, "%s%s", end, number == HOLDS - 1 ? "writable " : "");
            expect(&w, told);
            assert_int_equal(weir_channel_is_writable(w.channel), number == HOLDS - 1);
        }
        close_world(&w);
    }
}

static void hold_set_twice_is_set_once(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    assert_int_equal(weir_channel_set_write_hold(w.channel, NULL, true), -EINVAL);
    assert_int_equal(weir_channel_set_write_hold(NULL, &holds[0], true), -EINVAL);
    hold_writes(&w, do_as_task, 0, false);
    expect(&w, "| ");
    hold_writes(&w, do_as_task, 0, true);
    hold_writes(&w, do_as_task, 0, true);
    expect(&w, "| unwritable | ");
    hold_writes(&w, do_as_task, 0, false);
    expect(&w, "| writable ");
    assert_true(weir_channel_is_writable(w.channel));
    close_world(&w);
}

/* As Netty's test of mixed writability. */
static void channel_with_a_hold_stays_unwritable_below_the_mark(void **state)
{
    (void)state;
    static const way_fn all_ways[] = { do_as_task, do_in_callback, do_elsewhere };
    for (int way = 0; way < 3; way++) {
        const char *end = way < 2 ? "| " : "";
        char told[64];
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        do_as_task(&w, put_too_much);
        expect(&w, "| unwritable ");
        hold_writes(&w, all_ways[way], 1, true);
        expect(&w, end);
        do_as_task(&w, flush); /* nothing waits any more, but the hold stands */
        expect(&w, "| a ");
        assert_int_equal(pending(w.channel), 0);
        assert_false(weir_channel_is_writable(w.channel));
        hold_writes(&w, all_ways[way], 1, false);
        snprintf(told, sizeof told, "%swritable ", end);
        expect(&w, told);
        close_world(&w);
    }
}

static void change_holds_and_back(world *w)
{
    CHECK(w, weir_channel_set_write_hold(w->channel, &holds[3], true) == 0);
    CHECK(w, weir_channel_set_write_hold(w->channel, &holds[4], true) == 0);
    CHECK(w, weir_channel_set_write_hold(w->channel, &holds[3], false) == 0);
    CHECK(w, weir_channel_set_write_hold(w->channel, &holds[4], false) == 0);
}

static void holds_set_and_released_fire_writability_once(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    do_as_task(&w, change_holds_and_back);
    do_in_callback(&w, change_holds_and_back);
    do_elsewhere(&w, change_holds_and_back); /* where there is no callback to wait for */
    expect(&w, "| writable | writable writable ");
    close_world(&w);
}

/* Listeners and on_writability wait until the callback returns -----------------------------------
 */

static void write_three_and_flush(world *w)
{
    put(w, 'a', 1);
    put(w, 'b', HIGH);
    note(w, "written");
    flush(w);
    note(w, "flushed");
    put(w, 'c', 1);
    flush(w);
    note(w, "end");
}

static void listeners_run_when_the_outermost_callback_returns(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        ways[i](&w, write_three_and_flush);
        expect(&w, "written flushed end | writable a b c ");
        assert_int_equal(w.deepest, 1);
        close_world(&w);
    }
}

static void write_five(world *w)
{
    for (char name = 'a'; name < 'f'; name++)
        put(w, name, 6);
    flush(w);
}

static void promises_complete_in_the_order_of_the_writes(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, 0);
    do_in_callback(&w, write_five);
    expect(&w, "| unwritable ");
    weir_embedded_accept(w.embedded, 2);
    expect(&w, "a b ");
    weir_embedded_accept(w.embedded, 2); /* what it caused comes in the order it was caused */
    expect(&w, "c d writable ");
    weir_embedded_accept(w.embedded, 2);
    expect(&w, "e ");
    close_world(&w);
}

/* The outermost of several levels: a write inside on_event inside a task. */
static void fire_inside(world *w)
{
    w->act = write_three_and_flush;
    weir_pipeline_fire_event(weir_embedded_pipeline(w->embedded), &signal_event);
    note(w, "outer");
}

static void an_inner_callback_is_not_the_outermost(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    do_as_task(&w, fire_inside);
    expect(&w, "written flushed end | outer | writable a b c ");
    close_world(&w);
}

static void write_again(world *w)
{
    if (++w->count > 3)
        return;
    put_then(w, (char)('a' + w->count), 1, write_again);
    note(w, "written");
    flush(w);
    note(w, "flushed");
}

static void write_with_a_listener_that_writes(world *w)
{
    put_then(w, 'a', 1, write_again);
    put(w, 'z', 1);
    flush(w);
}

static void a_listener_may_write(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        ways[i](&w, write_with_a_listener_that_writes);
        expect(&w, "| a written flushed z b written flushed c written flushed d ");
        assert_int_equal(w.deepest, 1);
        assert_int_equal(weir_embedded_outbound_count(w.embedded), 5);
        close_world(&w);
    }
}

static void write_or_flush_by_turns(world *w)
{
    if (!weir_channel_is_writable(w->channel))
        flush(w);
    else if (++w->count < 4)
        put_silent(w, HIGH + 1);
    note(w, ".");
}

static void on_writability_may_write_and_flush(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .on_writability = write_or_flush_by_turns };
        open_world(&w, SIZE_MAX);
        ways[i](&w, put_too_much);
        expect(&w, "| unwritable . a writable . unwritable . writable . unwritable . writable . "
                   "unwritable . writable . ");
        assert_int_equal(w.deepest, 1);
        assert_int_equal(weir_embedded_outbound_count(w.embedded), 4);
        close_world(&w);
    }
}

/* As Netty's ReentrantChannelTest ----------------------------------------------------------------
 */

static void writability_follows_write_and_flush(void **state)
{
    (void)state;
    world w = { .notes_operations = true };
    open_world(&w, SIZE_MAX);
    do_as_task(&w, put_too_much);
    do_as_task(&w, flush);
    expect(&w, "write | unwritable flush | a writable ");
    close_world(&w);
}

static void flush_if_unwritable(world *w)
{
    if (!weir_channel_is_writable(w->channel))
        flush(w);
}

static void a_flush_in_on_writability_makes_it_writable(void **state)
{
    (void)state;
    world w = { .notes_operations = true, .on_writability = flush_if_unwritable };
    open_world(&w, SIZE_MAX);
    do_as_task(&w, put_too_much);
    expect(&w, "write | unwritable flush a writable ");
    assert_int_equal(w.deepest, 1);
    close_world(&w);
}

static void flush_five_times(world *w)
{
    if (w->count % 100 < 5) {
        w->count += 1;
        flush(w);
    }
}

static void write_five_times(world *w)
{
    if (w->count / 100 < 5) {
        w->count += 100;
        put_silent(w, 1);
    }
}

static void write_and_flush(world *w)
{
    put_silent(w, 1);
    flush(w);
}

static void write_and_flush_may_play_ping_pong(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .notes_operations = true };
        w.on_write = flush_five_times;
        w.on_flush = write_five_times;
        open_world(&w, SIZE_MAX);
        ways[i](&w, write_and_flush);
        expect(&w, "write flush write flush write flush write flush write flush write flush | ");
        assert_int_equal(weir_embedded_outbound_count(w.embedded), 6);
        close_world(&w);
    }
}

static void write_then_close(world *w)
{
    put_then(w, 'a', 5, close_channel);
    flush(w);
    note(w, "end");
}

static void a_listener_may_close(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .notes_operations = true };
        open_world(&w, SIZE_MAX);
        ways[i](&w, write_then_close);
        expect(&w, "write flush end | a close inactive ");
        assert_false(weir_channel_is_open(w.channel));
        assert_int_equal(weir_embedded_outbound_count(w.embedded), 1);
        close_world(&w);
    }
}

static void write_then_close_both(world *w)
{
    put_then(w, 'a', 5, close_channel);
    put_then(w, 'b', 5, close_channel);
    flush(w);
    note(w, "end");
}

static void a_listener_of_a_failed_write_may_close(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .notes_operations = true };
        open_world(&w, SIZE_MAX);
        weir_embedded_fail_sends(w.embedded, -EIO);
        ways[i](&w, write_then_close_both);
        expect(&w, "write write flush end | a:EIO close b:EIO close inactive ");
        assert_int_equal(w.deepest, 1);
        assert_int_equal(weir_embedded_outbound_count(w.embedded), 0);
        close_world(&w);
    }
}

/* Failing -------------------------------------------------------------------------------------- */

static void write_with_promises(world *w)
{
    put(w, 'a', 1);
    put(w, 'b', 1);
    flush(w);
    put(w, 'c', 1);
}

static void write_mixed(world *w)
{
    put(w, 'a', 1);
    put_silent(w, 1);
    put_silent(w, 1);
    put(w, 'b', 1);
    flush(w);
}

static void a_failed_send_fails_all_that_is_queued_and_closes(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, 0);
        do_as_task(&w, write_with_promises);
        expect(&w, "| ");
        weir_embedded_fail_sends(w.embedded, -ECONNRESET);
        ways[i](&w, flush);
        expect(&w, "| a:ECONNRESET b:ECONNRESET c:ECONNRESET inactive ");
        assert_false(weir_channel_is_open(w.channel));
        assert_false(weir_channel_is_writable(w.channel));
        assert_int_equal(pending(w.channel), 0);
        close_world(&w);
    }
}

static void a_loss_that_no_promise_tells_raises_one_error(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        weir_embedded_fail_sends(w.embedded, -EIO);
        ways[i](&w, write_mixed);
        expect(&w, "error:EIO | a:EIO b:EIO inactive ");
        close_world(&w);
    }
}

/* How a program writes: NULL is the message whose allocation failed. */
typedef void (*write_fn)(weir_channel *channel, weir_msg *msg, weir_promise *promise);

static weir_ctx *diary_of(weir_channel *channel)
{
    return weir_pipeline_ctx(weir_channel_pipeline(channel), "diary");
}

static void ctx_write(weir_channel *channel, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_write(diary_of(channel), msg, promise);
}

static void ctx_write_and_flush(weir_channel *channel, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_write_and_flush(diary_of(channel), msg, promise);
}

static void ctx_write_piece(weir_channel *channel, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_write_piece(diary_of(channel), msg, promise);
}

static write_fn write_null;

static void put_null(world *w)
{
    put_silent(w, 1);
    flush(w);
    write_null(w->channel, NULL, NULL);
    put_silent(w, 1); /* must not follow the gap */
    flush(w);
}

static void put_null_with_promise(world *w)
{
    weir_promise *promise = weir_channel_promise(w->channel);
    write_null(w->channel, NULL, promise);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -ENOMEM);
    weir_promise_release(promise);
}

static size_t received(world *w)
{
    size_t count = 0;
    weir_msg *msg;
    while ((msg = weir_embedded_read_outbound(w->embedded)) != NULL) {
        count += weir_msg_size(msg);
        weir_msg_release(msg);
    }
    return count;
}

static void write_null_in(way_fn way, write_fn write)
{
    world w = { .count = 0 };
    write_null = write;
    open_world(&w, SIZE_MAX);
    way(&w, put_null_with_promise);
    assert_true(weir_channel_is_open(w.channel));
    assert_null(strstr(w.diary, "error"));
    way(&w, put_null);
    assert_false(weir_channel_is_open(w.channel));
    assert_non_null(strstr(w.diary, "error:ENOMEM"));
    size_t count = received(&w); /* a close overtakes what another thread has just written */
    assert_true(count == 1 || (way == do_elsewhere && count == 0));
    close_world(&w);
}

static void writing_null_is_a_failed_write(void **state)
{
    (void)state;
    const write_fn writes[] = { weir_channel_write, weir_channel_write_and_flush, ctx_write,
                                ctx_write_and_flush };
    for (int i = 0; i < 4; i++) {
        write_null_in(do_as_task, writes[i]);
        write_null_in(do_in_callback, writes[i]);
        if (i < 2) /* a context belongs to its executor */
            write_null_in(do_elsewhere, writes[i]);
    }
}

static void put_null_piece(world *w)
{
    weir_promise *promise = weir_channel_promise(w->channel);
    write_null(w->channel, NULL, promise);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -ENOMEM);
    weir_promise_release(promise);
    put_silent(w, 1); /* must not follow the gap */
    flush(w);
}

/* With a promise as well: nothing may follow a piece that is missing. */
static void writing_a_null_piece_closes(void **state)
{
    (void)state;
    for (int has_promise = 0; has_promise < 2; has_promise++) {
        world w = { .count = 0 };
        write_null = ctx_write_piece;
        open_world(&w, SIZE_MAX);
        do_as_task(&w, has_promise ? put_null_piece : put_null);
        assert_false(weir_channel_is_open(w.channel));
        assert_non_null(strstr(w.diary, "error:ENOMEM"));
        assert_int_equal(received(&w), has_promise ? 0 : 1);
        close_world(&w);
    }
}

static void read_null(world *w)
{
    weir_ctx_fire_read(diary_of(w->channel), NULL);
}

static void read_null_at_head(world *w)
{
    weir_pipeline_fire_read(weir_channel_pipeline(w->channel), NULL);
}

static void read_null_in(way_fn way, void (*read)(world *w))
{
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    way(&w, read);
    assert_false(weir_channel_is_open(w.channel));
    assert_non_null(strstr(w.diary, "error:ENOMEM"));
    close_world(&w);
}

static void passing_null_on_closes(void **state)
{
    (void)state;
    read_null_in(do_as_task, read_null);
    read_null_in(do_as_task, read_null_at_head);
    read_null_in(do_elsewhere, read_null_at_head);
}

static void write_after_close(world *w)
{
    close_channel(w);
    put(w, 'a', 1);
    put_silent(w, 1);
    flush(w);
    note(w, "end");
}

static void a_write_to_a_closing_channel_fails_quietly(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        ways[i](&w, write_after_close);
        expect(&w, "end | a:WEIR_ECLOSED inactive ");
        assert_int_equal(weir_embedded_outbound_count(w.embedded), 0);
        close_world(&w);
    }
}

static void write_when_cancelled(world *w)
{
    watch *cancelled = new_watch(w, 'a', NULL);
    CHECK(w, weir_future_cancel(weir_promise_future(cancelled->promise)) == 0);
    weir_channel_write(w->channel, bytes_of(5), cancelled->promise);
    CHECK(w, pending(w->channel) == 0);
    put(w, 'b', 1);
    flush(w);
}

static void a_write_whose_promise_was_cancelled_is_dropped(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        ways[i](&w, write_when_cancelled);
        expect(&w, "| a:ECANCELED b ");
        assert_int_equal(weir_embedded_outbound_count(w.embedded), 1);
        close_world(&w);
    }
}

static int cancel_watch(world *w, size_t at)
{
    return weir_future_cancel(weir_promise_future(w->watches[at].promise));
}

static void a_write_that_waits_can_be_cancelled(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, 0);
    do_as_task(&w, write_five);
    expect(&w, "| unwritable ");
    assert_int_equal(cancel_watch(&w, 0), 0);
    assert_int_equal(cancel_watch(&w, 2), 0);
    assert_int_equal(weir_embedded_run(w.embedded), 0);
    expect(&w, "a:ECANCELED c:ECANCELED ");
    weir_embedded_accept(w.embedded, 1); /* b goes; who was cancelled before it counts no more */
    expect(&w, "b ");
    assert_int_equal(pending(w.channel), 18);
    weir_embedded_accept(w.embedded, 2);
    expect(&w, "d e writable ");
    assert_int_equal(weir_embedded_outbound_count(w.embedded), 3);
    close_world(&w);
}

static void write_up_to_the_limit(world *w)
{
    set_option(w->channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 10);
    put(w, 'a', 11);
    put(w, 'b', 4);
    put(w, 'c', 6);
    put(w, 'd', 1);
    put(w, 'e', 0); /* counts as a byte, so there is no room for it either */
    CHECK(w, pending(w->channel) == 10);
    flush(w);
}

static void a_write_above_the_limit_fails(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, 1);
        ways[i](&w, write_up_to_the_limit);
        expect(&w, "| a:WEIR_ELIMIT d:WEIR_ELIMIT e:WEIR_ELIMIT b ");
        assert_true(weir_channel_is_open(w.channel));
        do_as_task(&w, put_too_much); /* 6 are left, and 21 too many */
        expect(&w, "| a:WEIR_ELIMIT ");
        weir_embedded_accept(w.embedded, 1);
        expect(&w, "c ");
        close_world(&w);
    }
}

static void write_too_much_silently(world *w)
{
    set_option(w->channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 10);
    put(w, 'a', 8);
    put_silent(w, 3);
    put(w, 'b', 1);
    flush(w);
}

static void a_write_above_the_limit_without_a_promise_closes(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        world w = { .count = 0 };
        open_world(&w, SIZE_MAX);
        ways[i](&w, write_too_much_silently);
        expect(&w, "error:WEIR_ELIMIT | a:WEIR_ECLOSED b:WEIR_ECLOSED inactive ");
        close_world(&w);
    }
}

/* An answer that tells the other side what went wrong: it fails, too. The depth is bounded here, so
 * that a recursion fails this test instead of the process. */
static void answer_the_error(world *w)
{
    if (w->depth > 20)
        return;
    put_silent(w, 3);
    flush(w);
}

static void an_answer_in_on_error_does_not_recurse(void **state)
{
    (void)state;
    world w = { .on_error = answer_the_error };
    open_world(&w, SIZE_MAX);
    weir_embedded_fail_sends(w.embedded, -EIO);
    do_as_task(&w, write_and_flush);
    assert_int_equal(w.deepest, 1);
    expect(&w, "error:EIO | inactive ");
    close_world(&w);
}

static void an_answer_to_a_full_queue_does_not_recurse(void **state)
{
    (void)state;
    world w = { .on_error = answer_the_error };
    open_world(&w, 0);
    do_as_task(&w, write_too_much_silently);
    assert_int_equal(w.deepest, 1);
    expect(&w, "error:WEIR_ELIMIT | a:WEIR_ECLOSED b:WEIR_ECLOSED inactive ");
    close_world(&w);
}

/* A transport that only counts: for what the embedded one does for a test, at a price ------------
 */

typedef struct sink {
    weir_channel base;
    size_t budget; /* messages it still takes */
    unsigned flushes;
} sink;

static bool sink_is_active(const weir_channel *channel)
{
    return channel != NULL;
}

static void sink_reading(weir_channel *channel)
{
    (void)channel;
}

static void sink_flush(weir_channel *channel)
{
    sink *self = WEIR_CONTAINER(channel, sink, base);
    weir_msg *msg;
    self->flushes++;
    while (self->budget > 0 && (msg = weir__outbound_take(&channel->out.queue)) != NULL) {
        self->budget--;
        weir_msg_release(msg);
    }
    weir__channel_sent(channel, 0);
}

static bool sink_quiesce(weir_channel *channel, bool is_closing)
{
    (void)channel;
    return is_closing || true;
}

static void sink_destroy(weir_channel *channel)
{
    free(WEIR_CONTAINER(channel, sink, base));
}

static const weir_transport sink_transport = {
    .name = "sink",
    .is_stream = true,
    .is_active = sink_is_active,
    .start_reading = sink_reading,
    .stop_reading = sink_reading,
    .flush = sink_flush,
    .quiesce = sink_quiesce,
    .close = sink_reading,
    .destroy = sink_destroy,
};

static void pass_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, msg);
}

static void pass_read_complete(weir_ctx *ctx)
{
    weir_ctx_fire_read_complete(ctx);
}

static void pass_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_write(ctx, msg, promise);
}

static void pass_flush(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static const weir_handler_type passing = {
    .name = "passing",
    .on_read = pass_read,
    .on_read_complete = pass_read_complete,
    .write = pass_write,
    .flush = pass_flush,
};

/* A sink with three handlers and a diary, on the loop of an embedded channel. */
static sink *open_sink(world *w, size_t budget)
{
    open_world(w, SIZE_MAX);
    sink *self = calloc(1, sizeof *self);
    assert_non_null(self);
    weir__channel_init(&self->base, &sink_transport, NULL);
    self->budget = budget;
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            weir_pipeline_add_last(weir_channel_pipeline(&self->base), NULL, &passing, NULL), 0);
    assert_int_equal(add_diary(&self->base, w), 0);
    weir_channel_register(&self->base, weir_embedded_executor(w->embedded), NULL);
    assert_int_equal(weir_embedded_run(w->embedded), 0);
    w->channel = &self->base;
    return self;
}

static void close_sink(world *w, sink *self)
{
    weir_channel_close(&self->base, NULL);
    assert_int_equal(weir_embedded_run(w->embedded), 0);
    forget_watches(w);
    weir_channel_release(&self->base);
    close_world(w);
}

static void close_with_something_flushed(world *w)
{
    sink *self = WEIR_CONTAINER(w->channel, sink, base);
    put(w, 'a', 1);
    put(w, 'b', 1);
    flush(w);
    put(w, 'c', 1);
    put(w, 'd', 1);
    CHECK(w, self->flushes == 1);
    self->budget = 1; /* it can take one more by now, but nobody has tried */
    close_channel(w);
    note(w, "closed");
}

static void what_was_flushed_gets_one_attempt_before_a_close(void **state)
{
    (void)state;
    world w = { .count = 0 };
    sink *self = open_sink(&w, 0);
    do_as_task(&w, close_with_something_flushed);
    expect(&w, "closed | a b:WEIR_ECLOSED c:WEIR_ECLOSED d:WEIR_ECLOSED inactive ");
    assert_int_equal(self->flushes, 2);
    close_sink(&w, self);
}

static void close_with_nothing_flushed(world *w)
{
    put(w, 'a', 1);
    close_channel(w);
}

static void what_was_not_flushed_gets_none(void **state)
{
    (void)state;
    world w = { .count = 0 };
    sink *self = open_sink(&w, 9);
    do_as_task(&w, close_with_nothing_flushed);
    expect(&w, "| a:WEIR_ECLOSED inactive ");
    assert_int_equal(self->flushes, 0);
    assert_int_equal(self->budget, 9);
    close_sink(&w, self);
}

/* Row 116 without a socket: who could not send waits, a flush meanwhile changes nothing, and when
 * there is room it goes on by itself until nothing is left. */
static void partial_output_waits_and_goes_on(void **state)
{
    (void)state;
    world w = { .count = 0 };
    open_world(&w, 2);
    do_as_task(&w, write_five);
    expect(&w, "| unwritable a b ");
    assert_int_equal(weir_embedded_outbound_count(w.embedded), 2);
    assert_int_equal(pending(w.channel), 18);
    do_as_task(&w, flush);
    expect(&w, "| ");
    assert_int_equal(weir_embedded_outbound_count(w.embedded), 2);
    weir_embedded_accept(w.embedded, 1);
    expect(&w, "c ");
    weir_embedded_accept(w.embedded, SIZE_MAX);
    expect(&w, "d e writable ");
    assert_int_equal(weir_embedded_outbound_count(w.embedded), 5);
    assert_int_equal(pending(w.channel), 0);
    do_as_task(&w, write_and_flush); /* and nothing is left in the way */
    assert_int_equal(weir_embedded_outbound_count(w.embedded), 6);
    close_world(&w);
}

/* The steady state -------------------------------------------------------------------------------
 */

enum { STEADY = 10000 };

static uint64_t allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.allocations;
}

static void write_many(world *w)
{
    for (int i = 0; i < STEADY; i++)
        weir_channel_write_and_flush(w->channel, &signal_event, NULL);
}

static void writing_allocates_nothing_when_warm(void **state)
{
    (void)state;
    world w = { .count = 0 };
    sink *self = open_sink(&w, SIZE_MAX);
    do_as_task(&w, write_and_flush);
    unsigned flushes = self->flushes;
    uint64_t before = allocations();
    do_as_task(&w, write_many);
    assert_int_equal(allocations() - before, 0);
    assert_int_equal(self->flushes - flushes, STEADY);
    weir_channel_stats stats;
    weir_channel_get_stats(w.channel, &stats);
    assert_int_equal(stats.messages_out, STEADY + 1);
    close_sink(&w, self);
}

static void take_read(weir_ctx *ctx, weir_msg *msg)
{
    ++*(unsigned *)weir_ctx_arg(ctx);
    weir_msg_release(msg);
}

static const weir_handler_type taking = { .name = "taking", .on_read = take_read };

static void read_many(world *w)
{
    for (int i = 0; i < STEADY; i++) {
        weir__channel_read(w->channel, &signal_event, weir_msg_size(&signal_event));
        weir__channel_read_complete(w->channel);
    }
}

static void reading_allocates_nothing_when_warm(void **state)
{
    (void)state;
    world w = { .count = 0 };
    sink *self = open_sink(&w, SIZE_MAX);
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(w.channel), "taking", &taking, &w.count), 0);
    assert_int_equal(weir_embedded_run(w.embedded), 0);
    do_as_task(&w, read_many);
    uint64_t before = allocations();
    do_as_task(&w, read_many);
    assert_int_equal(allocations() - before, 0);
    assert_int_equal(w.count, 2 * STEADY);
    close_sink(&w, self);
}

/* Threads ----------------------------------------------------------------------------------------
 */

typedef struct watcher {
    weir_channel *channel;
    _Atomic(bool) is_over;
    size_t most;
} watcher;

static void *look_at_room(void *arg)
{
    watcher *self = arg;
    while (!self->is_over) {
        size_t room = weir_channel_bytes_before_unwritable(self->channel);
        if (room > self->most)
            self->most = room;
    }
    return NULL;
}

/* One thread looks while another fills the queue to the mark and above. */
static void there_is_never_more_room_than_the_mark(void **state)
{
    (void)state;
    weir_group *group;
    weir_embedded *embedded;
    pthread_t thread;
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 1 }, NULL), 0);
    assert_int_equal(weir_embedded_new(&embedded, &(weir_embedded_config){ .group = group }, NULL),
                     0);
    watcher self = { .channel = weir_embedded_channel(embedded) };
    set_marks(self.channel, LOW, HIGH);
    assert_int_equal(weir_embedded_run(embedded), 0);
    assert_int_equal(pthread_create(&thread, NULL, look_at_room, &self), 0);
    for (int i = 0; i < 2000; i++) {
        weir_channel_write(self.channel, bytes_of(HIGH), NULL);
        weir_channel_write_and_flush(self.channel, bytes_of(HIGH), NULL);
        assert_int_equal(weir_embedded_run(embedded), 0);
    }
    self.is_over = true;
    pthread_join(thread, NULL);
    assert_true(self.most <= HIGH + 1);
    weir_embedded_free(embedded);
    weir_group_shutdown(group, 0, 0);
    weir_group_free(group);
}

/* This thread steps one loop, with a clock that stands still, and waits for another's thread. */
static void a_channel_on_a_thread_works_beside_a_manual_one(void **state)
{
    (void)state;
    weir_group *group;
    weir_embedded *embedded;
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 1 }, NULL), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(
            weir_embedded_new(&embedded, &(weir_embedded_config){ .group = group }, NULL), 0);
        assert_int_equal(weir_embedded_write_outbound(embedded, bytes_of(5)), 0);
        assert_int_equal(weir_embedded_outbound_count(embedded), 1);
        weir_embedded_free(embedded);
    }
    weir_group_shutdown(group, 0, 0);
    weir_group_free(group);
    close_world(&w);
}

enum { WRITERS = 4, WRITES = 500 };

typedef struct writer {
    weir_hold hold;
    weir_channel *channel;
    uint8_t number;
    weir_promise *promises[WRITES];
    weir_listener listeners[WRITES];
} writer;

static uint32_t told_by[WRITERS];
static writer writers[WRITERS];

static void count_told(weir_listener *listener, weir_future *future)
{
    assert_int_equal(weir_future_code(future), 0);
    for (size_t i = 0; i < WRITERS; i++) {
        if (listener >= writers[i].listeners && listener < writers[i].listeners + WRITES)
            assert_ptr_equal(listener, writers[i].listeners + told_by[i]++);
    }
}

static void *write_numbered(void *arg)
{
    writer *self = arg;
    for (uint32_t i = 0; i < WRITES; i++) {
        weir_buf *buf = weir_buf_new(8);
        weir_buf_write_u8(buf, self->number);
        weir_buf_write_u32(buf, i);
        self->listeners[i] = (weir_listener){ .done = count_told };
        self->promises[i] = weir_channel_promise(self->channel);
        weir_future_listen(weir_promise_future(self->promises[i]), &self->listeners[i]);
        weir_channel_write_and_flush(self->channel, weir_buf_msg(buf), self->promises[i]);
        weir_channel_set_write_hold(self->channel, &self->hold, i % 2 == 0);
    }
    for (uint32_t i = 0; i < WRITES; i++)
        weir_promise_release(self->promises[i]);
    return NULL;
}

static void writes_of_several_threads_keep_each_ones_order(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    uint32_t next[WRITERS] = { 0 };
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    for (uint8_t i = 0; i < WRITERS; i++) {
        told_by[i] = 0;
        writers[i] = (writer){ .channel = w.channel, .number = i };
        assert_int_equal(pthread_create(&threads[i], NULL, write_numbered, &writers[i]), 0);
    }
    while (told_by[0] + told_by[1] + told_by[2] + told_by[3] < WRITERS * WRITES) {
        assert_int_equal(weir_embedded_run(w.embedded), 0);
        w.diary[0] = '\0';
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(weir_embedded_run(w.embedded), 0);
    for (int i = 0; i < WRITERS * WRITES; i++) {
        weir_buf *buf = weir_buf_from_msg(weir_embedded_read_outbound(w.embedded));
        uint8_t who = 0;
        uint32_t number = 0;
        assert_int_equal(weir_buf_read_u8(buf, &who), 0);
        assert_int_equal(weir_buf_read_u32(buf, &number), 0);
        assert_int_equal(number, next[who]++);
        weir_buf_release(buf);
    }
    assert_true(weir_channel_is_writable(w.channel));
    assert_int_equal(pending(w.channel), 0);
    close_world(&w);
}

/* Faults -----------------------------------------------------------------------------------------
 */

enum { FAULT_WRITES = 8 };

/* Message i is i + 1 bytes long; those with an even number have a promise. */
static weir_msg *fault_messages[FAULT_WRITES];

static void write_prepared(world *w)
{
    for (size_t i = 0; i < FAULT_WRITES; i++) {
        weir_msg *msg = fault_messages[i];
        weir_promise *promise = i % 2 == 0 ? w->watches[i / 2].promise : NULL;
        if (i % 4 < 2)
            weir_channel_write(w->channel, msg, promise);
        else
            weir_channel_write_and_flush(w->channel, msg, promise);
    }
}

/* Which messages came out; they must be in order. */
static unsigned take_out(world *w)
{
    unsigned seen = 0;
    weir_msg *msg;
    while ((msg = weir_embedded_read_outbound(w->embedded)) != NULL) {
        unsigned bit = 1u << (weir_msg_size(msg) - 1);
        assert_true(bit > seen);
        seen |= bit;
        weir_msg_release(msg);
    }
    return seen;
}

/* A promise tells the truth, and nothing is lost in silence. */
static void check_fault(world *w)
{
    unsigned seen = take_out(w);
    for (size_t i = 0; i < FAULT_WRITES; i++) {
        bool is_out = seen >> i & 1;
        if (i % 2 == 0)
            assert_int_equal(weir_future_code(weir_promise_future(w->watches[i / 2].promise)) == 0,
                             is_out);
        else if (weir_channel_is_open(w->channel))
            assert_true(is_out);
    }
    for (size_t i = 0; i < w->watched; i++)
        assert_true(weir_future_is_done(weir_promise_future(w->watches[i].promise)));
}

static unsigned fail_one_allocation(way_fn way, unsigned nth)
{
    world w = { .count = 0 };
    open_world(&w, SIZE_MAX);
    for (size_t i = 0; i < FAULT_WRITES; i++) {
        fault_messages[i] = bytes_of(i + 1);
        if (i % 2 == 0)
            new_watch(&w, (char)('a' + i), NULL);
    }
    harness_fail_nth("alloc", nth, -ENOMEM);
    way(&w, write_prepared);
    unsigned seen = harness_fail_end();
    /* What a missing flush has left is made up for by the next one. */
    if (weir_channel_is_open(w.channel))
        do_as_task(&w, flush);
    check_fault(&w);
    close_world(&w);
    return seen;
}

static void every_allocation_may_fail_while_writing(void **state)
{
    (void)state;
    static const way_fn all_ways[] = { do_as_task, do_elsewhere };
    harness_log_begin(WEIR_LOG_WARN);
    for (int way = 0; way < 2; way++) {
        unsigned nth = 1;
        while (fail_one_allocation(all_ways[way], nth) >= nth)
            nth++;
        assert_true(nth > 4); /* else there was nothing to fail */
    }
    harness_log_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(each_mark_is_told_once_when_it_is_crossed),
        weir_case(at_the_low_mark_it_is_writable_again),
        weir_case(an_empty_message_counts_as_a_byte),
        weir_case(crossings_that_undo_each_other_are_told_once),
        weir_case(coming_back_and_crossing_again_is_told_once),
        weir_case(bytes_from_another_thread_count_at_once),
        weir_case(unwritable_seen_by_another_thread_is_followed_by_on_writability),
        weir_case(writing_null_is_a_failed_write),
        weir_case(writing_a_null_piece_closes),
        weir_case(passing_null_on_closes),
        weir_case(marks_may_change_while_bytes_wait),
        weir_case(the_low_mark_is_never_above_the_high_one),
        weir_case(pausing_begins_also_when_it_is_unwritable_already),
        weir_case(channel_is_writable_once_the_last_hold_is_released),
        weir_case(hold_set_twice_is_set_once),
        weir_case(channel_with_a_hold_stays_unwritable_below_the_mark),
        weir_case(holds_set_and_released_fire_writability_once),
        weir_case(listeners_run_when_the_outermost_callback_returns),
        weir_case(promises_complete_in_the_order_of_the_writes),
        weir_case(an_inner_callback_is_not_the_outermost),
        weir_case(a_listener_may_write),
        weir_case(on_writability_may_write_and_flush),
        weir_case(writability_follows_write_and_flush),
        weir_case(a_flush_in_on_writability_makes_it_writable),
        weir_case(write_and_flush_may_play_ping_pong),
        weir_case(a_listener_may_close),
        weir_case(a_listener_of_a_failed_write_may_close),
        weir_case(a_failed_send_fails_all_that_is_queued_and_closes),
        weir_case(a_loss_that_no_promise_tells_raises_one_error),
        weir_case(a_write_to_a_closing_channel_fails_quietly),
        weir_case(a_write_whose_promise_was_cancelled_is_dropped),
        weir_case(a_write_that_waits_can_be_cancelled),
        weir_case(a_write_above_the_limit_fails),
        weir_case(a_write_above_the_limit_without_a_promise_closes),
        weir_case(an_answer_in_on_error_does_not_recurse),
        weir_case(an_answer_to_a_full_queue_does_not_recurse),
        weir_case(what_was_flushed_gets_one_attempt_before_a_close),
        weir_case(what_was_not_flushed_gets_none),
        weir_case(partial_output_waits_and_goes_on),
        weir_case(writing_allocates_nothing_when_warm),
        weir_case(reading_allocates_nothing_when_warm),
        weir_case(there_is_never_more_room_than_the_mark),
        weir_case(writes_of_several_threads_keep_each_ones_order),
        weir_case(every_allocation_may_fail_while_writing),
        weir_case(a_channel_on_a_thread_works_beside_a_manual_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
