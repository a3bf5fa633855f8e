/* SPDX-License-Identifier: MIT */
/* Handlers on executors of their own: where they run, in which order, and how they come and go. */
#include "harness.h"

#include <weir/clock.h>
#include <weir/embedded.h>
#include <weir/socket.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Numbered messages ---------------------------------------------------------------------------- */

typedef struct number {
    weir_msg msg;
    int value;
} number;

static void number_destroy(weir_msg *msg)
{
    free(msg);
}

static const weir_msg_type number_type = { .name = "number", .destroy = number_destroy };

static weir_msg *number_new(int value)
{
    number *self = malloc(sizeof *self);
    assert_non_null(self);
    weir_msg_init(&self->msg, &number_type);
    self->value = value;
    return &self->msg;
}

/* A scene: a channel and groups that are stepped by hand, so everything has one order ------------
 */

#define GROUPS 3

typedef struct scene {
    weir_embedded *embedded;
    weir_pipeline *pipeline;
    weir_group *groups[GROUPS];
    weir_virtual_clock clock;
    char log[2048];
} scene;

typedef struct spy {
    scene *scene;
    const char *name;
    bool fails_added, fails_reads, answers, closes, leaves;
    bool upgrades;         /* once, as STARTTLS does */
    weir_promise *promise; /* of what it writes or closes */
    weir_ctx *ctx;
} spy;

static void note(scene *self, const char *format, ...) WEIR_PRINTF(2, 3);

static void note(scene *self, const char *format, ...)
{
    size_t length = strlen(self->log);
    va_list args;
    va_start(args, format);
    vsnprintf(self->log + length, sizeof self->log - length, format, args);
    va_end(args);
}

/* What is called anywhere but on the handler's own executor is marked. */
static spy *note_ctx(weir_ctx *ctx, const char *what)
{
    spy *self = weir_ctx_arg(ctx);
    bool is_here = weir_executor_is_current(weir_ctx_executor(ctx));
    note(self->scene, "%s:%s%s ", self->name, what, is_here ? "" : "(elsewhere)");
    return self;
}

static spy *note_msg(weir_ctx *ctx, const char *what, const weir_msg *msg)
{
    char text[32];
    snprintf(text, sizeof text, "%s%d", what, ((const number *)msg)->value);
    return note_ctx(ctx, text);
}

static void spy_added(weir_ctx *ctx)
{
    spy *self = note_ctx(ctx, "added");
    self->ctx = ctx;
    if (self->fails_added)
        weir_ctx_fail(ctx, -EIO, "cannot begin");
}

static void spy_removed(weir_ctx *ctx)
{
    note_ctx(ctx, "removed");
}

static void spy_on_inactive(weir_ctx *ctx)
{
    note_ctx(ctx, "inactive");
    weir_ctx_fire_inactive(ctx);
}

static void spy_on_unregistered(weir_ctx *ctx)
{
    note_ctx(ctx, "unregistered");
    weir_ctx_fire_unregistered(ctx);
}

static const weir_handler_type upgrade = { .name = "upgrade", .is_upgrade = true };

static void spy_on_read(weir_ctx *ctx, weir_msg *msg)
{
    spy *self = note_msg(ctx, "read", msg);
    if (self->answers) {
        weir_ctx_write_and_flush(ctx, msg, self->promise);
        return;
    }
    if (self->leaves) {
        int first = weir_ctx_remove(ctx), second = weir_ctx_remove(ctx);
        note(self->scene, "leaves:%s,%s ", first == 0 ? "0" : weir_error_name(first),
             weir_error_name(second));
    }
    if (self->upgrades)
        weir_pipeline_add_first(weir_ctx_pipeline(ctx), NULL, &upgrade, NULL);
    self->upgrades = false;
    if (self->fails_reads)
        weir_ctx_fail(ctx, -EBADMSG, "dislikes it");
    if (self->closes)
        weir_ctx_close(ctx, self->promise);
    weir_ctx_fire_read(ctx, msg);
}

static void spy_on_event(weir_ctx *ctx, weir_msg *event)
{
    note_msg(ctx, "event", event);
    weir_ctx_fire_event(ctx, event);
}

static void spy_on_error(weir_ctx *ctx, const weir_error *error)
{
    spy *self = note_ctx(ctx, "error");
    note(self->scene, "(%s,%s) ", error->origin, weir_error_name(error->code));
    weir_ctx_fire_error(ctx, error);
}

static void spy_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    note_msg(ctx, "write", msg);
    weir_ctx_write(ctx, msg, promise);
}

static const weir_handler_type spy_type = {
    .name = "spy",
    .added = spy_added,
    .removed = spy_removed,
    .on_inactive = spy_on_inactive,
    .on_unregistered = spy_on_unregistered,
    .on_read = spy_on_read,
    .on_event = spy_on_event,
    .on_error = spy_on_error,
    .write = spy_write,
};

static weir_group *new_executors(int count, bool is_manual, weir_clock *clock)
{
    weir_group *group;
    weir_group_config config = { .count = count, .name = "lane", .is_manual = is_manual };
    config.clock = clock;
    config.watchdog_ns = WEIR_OFF;
    assert_int_equal(weir_group_new_executors(&group, &config, NULL), 0);
    return group;
}

static weir_group *new_loops(int loops)
{
    weir_group *group;
    weir_group_config config = { .loops = loops, .name = "loop", .watchdog_ns = WEIR_OFF };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    return group;
}

static void end_group(weir_group *group)
{
    weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    weir_group_free(group);
}

static void scene_begin(scene *self)
{
    *self = (scene){ .embedded = NULL };
    weir_virtual_clock_init(&self->clock, 0);
    for (int i = 0; i < GROUPS; i++)
        self->groups[i] = new_executors(1, true, &self->clock.clock);
    assert_int_equal(weir_embedded_new(&self->embedded, NULL, NULL), 0);
    self->pipeline = weir_embedded_pipeline(self->embedded);
}

/* Group -1 is the loop. */
static int try_add(scene *self, spy *handler, const char *name, int group)
{
    weir_handler_config config = { .type = &spy_type, .name = name, .arg = handler };
    config.place = WEIR_PLACE_LAST;
    config.group = group >= 0 ? self->groups[group] : NULL;
    handler->scene = self;
    handler->name = name;
    return weir_pipeline_add(self->pipeline, &config, NULL);
}

static void add(scene *self, spy *handler, const char *name, int group)
{
    assert_int_equal(try_add(self, handler, name, group), 0);
}

/* One turn of a group's executor, then the loop takes what came back. */
static void step(scene *self, int group)
{
    weir_group_step(self->groups[group]);
    weir_embedded_run(self->embedded);
}

/* Until nothing is left to do anywhere. */
static void pump(scene *self)
{
    int busy;
    do {
        busy = 0;
        weir_embedded_run(self->embedded);
        for (int i = 0; i < GROUPS; i++)
            busy += weir_group_step(self->groups[i]) > 0;
    } while (busy > 0);
}

static void scene_end(scene *self)
{
    weir_embedded_close(self->embedded);
    pump(self);
    weir_embedded_free(self->embedded);
    self->embedded = NULL;
    for (int i = 0; i < GROUPS; i++) {
        weir_group_shutdown(self->groups[i], 0, 0);
        weir_group_free(self->groups[i]);
    }
}

static void feed(scene *self, int from, int to)
{
    for (int i = from; i <= to; i++)
        weir_embedded_write_inbound(self->embedded, number_new(i));
}

/* Compares; ends the scene first when that fails, so that what it leaves does not disturb others.
 */
static void expect(scene *self, const char *seen, const char *expected)
{
    char copy[sizeof self->log];
    snprintf(copy, sizeof copy, "%s", seen);
    if (strcmp(copy, expected) != 0 && self->embedded != NULL)
        scene_end(self);
    assert_string_equal(copy, expected);
}

/* What came through to the tail since the last time, as "1 2 3 ". */
static void expect_through(scene *self, const char *expected)
{
    char text[256] = "";
    size_t length = 0;
    weir_msg *msg;
    while ((msg = weir_embedded_read_inbound(self->embedded)) != NULL) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%d ",
                                   ((number *)msg)->value);
        weir_msg_release(msg);
    }
    expect(self, text, expected);
}

/* What has happened since the last time. */
static void expect_log(scene *self, const char *expected)
{
    char log[sizeof self->log];
    memcpy(log, self->log, sizeof log);
    self->log[0] = '\0';
    expect(self, log, expected);
}

static void expect_true(scene *self, bool is_true)
{
    expect(self, is_true ? "true" : "false", "true");
}

/* What has happened to one handler, from the beginning of the log. */
static void expect_of(scene *self, const char *name, const char *expected)
{
    char text[sizeof self->log] = "";
    size_t length = strlen(name);
    for (const char *at = self->log; *at != '\0'; at += strcspn(at, " ") + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == ':')
            strncat(text, at + length + 1, strcspn(at + length + 1, " ") + 1);
    }
    expect(self, text, expected);
}

/* Order ---------------------------------------------------------------------------------------- */

static void events_are_carried_to_the_executor_and_back_in_order(void **state)
{
    (void)state;
    scene self;
    spy a = { 0 }, lane = { 0 }, b = { 0 };
    scene_begin(&self);
    add(&self, &a, "a", -1);
    add(&self, &lane, "lane", 0);
    add(&self, &b, "b", -1);
    feed(&self, 1, 2);
    expect_log(&self, "a:added b:added a:read1 a:read2 ");
    weir_group_step(self.groups[0]);
    expect_log(&self, "lane:added lane:read1 lane:read2 ");
    weir_embedded_run(self.embedded);
    expect_log(&self, "b:read1 b:read2 ");
    expect_through(&self, "1 2 ");
    weir_embedded_write_outbound(self.embedded, number_new(3));
    expect_log(&self, "b:write3 ");
    weir_group_step(self.groups[0]);
    expect_log(&self, "lane:write3 ");
    weir_embedded_run(self.embedded);
    expect_log(&self, "a:write3 ");
    scene_end(&self);
}

/* Records weir_ctx_is_input_closed in `added` and with each message, and the event. */
static void eof_added(weir_ctx *ctx)
{
    note_ctx(ctx, weir_ctx_is_input_closed(ctx) ? "added-closed" : "added");
}

static void eof_on_read(weir_ctx *ctx, weir_msg *msg)
{
    note_msg(ctx, weir_ctx_is_input_closed(ctx) ? "closed-read" : "read", msg);
    weir_ctx_fire_read(ctx, msg);
}

static void eof_on_event(weir_ctx *ctx, weir_msg *event)
{
    note_ctx(ctx, weir_ctx_is_input_closed(ctx) ? "event-closed" : "event");
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type eof_type = {
    .name = "eof", .added = eof_added, .on_read = eof_on_read, .on_event = eof_on_event
};

static void add_eof(scene *self, spy *handler, const char *name, int group)
{
    weir_handler_config config = { .type = &eof_type, .name = name, .arg = handler };
    config.place = WEIR_PLACE_LAST;
    config.group = group >= 0 ? self->groups[group] : NULL;
    *handler = (spy){ .scene = self, .name = name };
    assert_int_equal(weir_pipeline_add(self->pipeline, &config, NULL), 0);
    weir_embedded_run(self->embedded);
}

/* The event has its place in the order of the messages, also on its way to an executor. */
static void an_offloaded_handler_finds_the_input_closed_behind_the_last_message(void **state)
{
    (void)state;
    scene self;
    spy lane, after, late_lane, late;
    scene_begin(&self);
    weir_channel_set_option(weir_embedded_channel(self.embedded), WEIR_OPTION_ALLOW_HALF_CLOSURE, 1,
                            NULL);
    add_eof(&self, &lane, "lane", 0);
    add_eof(&self, &after, "after", -1);
    feed(&self, 1, 2);
    weir_embedded_end_inbound(self.embedded, 0);
    expect_log(&self, "after:added ");
    add_eof(&self, &late, "late", -1); /* after the offloaded handler, which EOF has not passed */
    expect_log(&self, "late:added ");
    weir_group_step(self.groups[0]);
    expect_log(&self, "lane:added lane:read1 lane:read2 lane:event-closed ");
    weir_embedded_run(self.embedded);
    expect_log(&self, "after:read1 late:read1 after:read2 late:read2 after:event-closed "
                      "late:event-closed ");
    add_eof(&self, &late_lane, "late_lane", 1);
    pump(&self);
    expect_log(&self, "late_lane:added-closed ");
    expect_through(&self, "1 2 ");
    scene_end(&self);
}

/* Those behind the lane, too: that the channel has ended comes to them by way of it. */
static void every_handler_hears_of_the_end_before_it_is_removed(void **state)
{
    (void)state;
    static const char *const names[] = { "a", "one", "b", "two", "c" };
    static const int groups[] = { -1, 0, -1, 1, -1 };
    scene self;
    spy spies[5] = { { 0 } };
    scene_begin(&self);
    for (int i = 0; i < 5; i++)
        add(&self, &spies[i], names[i], groups[i]);
    pump(&self);
    scene_end(&self);
    for (int i = 0; i < 5; i++)
        expect_of(&self, names[i], "added inactive unregistered removed ");
}

/* The flush that no handler looks at goes past the lane, so it must not go past the write. */
static void a_flush_does_not_overtake_the_write_before_it(void **state)
{
    (void)state;
    scene self;
    spy lane = { 0 };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    pump(&self);
    weir_embedded_write_outbound(self.embedded, number_new(1));
    pump(&self);
    expect_true(&self, weir_embedded_outbound_count(self.embedded) == 1);
    scene_end(&self);
}

static void read_complete_handler(weir_ctx *ctx)
{
    note_ctx(ctx, "complete");
    weir_ctx_fire_read_complete(ctx);
}

/* Its reads come from the other executor, so their end has to wait for them. */
static void the_end_of_a_batch_does_not_overtake_its_reads(void **state)
{
    (void)state;
    static const weir_handler_type batch_type = {
        .name = "batch",
        .on_read = spy_on_read,
        .on_read_complete = read_complete_handler,
    };
    scene self;
    spy lane = { 0 }, b = { 0 };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    b = (spy){ .scene = &self, .name = "b" };
    assert_int_equal(weir_pipeline_add_last(self.pipeline, "b", &batch_type, &b), 0);
    pump(&self);
    self.log[0] = '\0';
    feed(&self, 1, 1);
    pump(&self);
    expect_log(&self, "lane:read1 b:read1 b:complete ");
    scene_end(&self);
}

static void two_lanes_in_a_row_lead_back_to_the_loop(void **state)
{
    (void)state;
    scene self;
    spy one = { 0 }, two = { 0 }, last = { 0 };
    scene_begin(&self);
    add(&self, &one, "one", 0);
    add(&self, &two, "two", 1);
    add(&self, &last, "last", -1);
    pump(&self);
    self.log[0] = '\0';
    feed(&self, 1, 2);
    expect_log(&self, "");
    step(&self, 0);
    expect_log(&self, "one:read1 one:read2 ");
    step(&self, 1);
    expect_log(&self, "two:read1 two:read2 last:read1 last:read2 ");
    expect_through(&self, "1 2 ");
    scene_end(&self);
}

/* Upgrades ------------------------------------------------------------------------------------- */

/* The upgrade is asked for with the first message; the others are from before. */
static void upgrade_fails_while_messages_return(void **state)
{
    (void)state;
    scene self;
    spy lane = { 0 }, last = { .upgrades = true };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    add(&self, &last, "last", -1);
    pump(&self);
    self.log[0] = '\0';
    feed(&self, 1, 3);
    step(&self, 0);
    expect_log(&self, "lane:read1 lane:read2 lane:read3 last:read1 ");
    pump(&self);
    expect_true(&self, !weir_channel_is_open(weir_embedded_channel(self.embedded)));
    expect_of(&self, "lane", "error inactive unregistered removed ");
    expect_of(&self, "last", "error inactive unregistered removed ");
    expect_through(&self, ""); /* nor is the first passed on after that */
    weir_embedded_take_error(self.embedded, NULL);
    scene_end(&self);
}

/* Nor does the handler receive the messages that are posted to it. */
static void upgrade_fails_while_messages_are_posted(void **state)
{
    (void)state;
    scene self;
    spy lane = { 0 }, last = { 0 };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    add(&self, &last, "last", -1);
    pump(&self);
    self.log[0] = '\0';
    feed(&self, 1, 2);
    weir_pipeline_add_first(self.pipeline, NULL, &upgrade, NULL);
    weir_embedded_run(self.embedded);
    expect_true(&self, !weir_channel_is_open(weir_embedded_channel(self.embedded)));
    step(&self, 0);
    pump(&self);
    expect_of(&self, "lane", "error inactive unregistered removed ");
    while (weir_embedded_take_error(self.embedded, NULL))
        ;
    expect_through(&self, "");
    scene_end(&self);
}

/* Two offloaded handlers, each on its own executor, and after them one that upgrades. */
static void begin_with_two_lanes(scene *self, spy spies[3])
{
    static const char *const names[] = { "one", "two", "last" };
    static const int groups[] = { 0, 1, -1 };
    scene_begin(self);
    for (int i = 0; i < 3; i++) {
        spies[i] = (spy){ .upgrades = i == 2 };
        add(self, &spies[i], names[i], groups[i]);
    }
    pump(self);
    self->log[0] = '\0';
}

/* The second message has passed the first executor, and is at the second. */
static void upgrade_fails_with_a_message_at_any_executor(void **state)
{
    (void)state;
    scene self;
    spy spies[3];
    begin_with_two_lanes(&self, spies);
    feed(&self, 1, 2);
    step(&self, 0);
    step(&self, 1);
    expect_log(&self, "one:read1 one:read2 two:read1 two:read2 last:read1 ");
    pump(&self);
    expect_true(&self, !weir_channel_is_open(weir_embedded_channel(self.embedded)));
    while (weir_embedded_take_error(self.embedded, NULL))
        ;
    expect_through(&self, ""); /* nor is the first passed on after that */
    scene_end(&self);
}

static void upgrade_succeeds_with_no_message_in_flight(void **state)
{
    (void)state;
    scene self;
    spy spies[3];
    begin_with_two_lanes(&self, spies);
    feed(&self, 1, 1);
    step(&self, 0);
    step(&self, 1);
    feed(&self, 2, 4);
    pump(&self);
    expect_of(&self, "one", "read1 read2 read3 read4 ");
    expect_of(&self, "two", "read1 read2 read3 read4 ");
    expect_of(&self, "last", "read1 read2 read3 read4 ");
    expect_through(&self, "1 2 3 4 ");
    scene_end(&self);
}

/* The handler that is being called has received its message; only later ones are from before. */
static void offloaded_handler_upgrades_in_its_own_callback(void **state)
{
    (void)state;
    for (int count = 1; count < 3; count++) {
        scene self;
        spy lane = { .upgrades = true };
        scene_begin(&self);
        add(&self, &lane, "lane", 0);
        pump(&self);
        feed(&self, 1, count);
        pump(&self);
        expect_true(&self,
                    weir_channel_is_open(weir_embedded_channel(self.embedded)) == (count == 1));
        while (weir_embedded_take_error(self.embedded, NULL))
            ;
        weir_msg *msg;
        while ((msg = weir_embedded_read_inbound(self.embedded)) != NULL)
            weir_msg_release(msg);
        scene_end(&self);
    }
}

/* Executors ------------------------------------------------------------------------------------ */

static weir_executor *executor_of(weir_pipeline *pipeline, const char *name)
{
    weir_handler_info info;
    assert_int_equal(weir_pipeline_find(pipeline, name, &info), 0);
    return info.executor;
}

static int add_two(weir_channel *channel, void *arg)
{
    static const weir_handler_type quiet_type = { .name = "quiet" };
    weir_handler_config config = { .type = &quiet_type, .group = arg, .place = WEIR_PLACE_LAST };
    config.name = "first";
    int code = weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
    config.name = "second";
    return code < 0 ? code : weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

static void a_channels_handlers_of_one_group_share_an_executor_and_channels_do_not(void **state)
{
    (void)state;
    enum { CHANNELS = 4 };
    weir_group *group = new_executors(CHANNELS, false, NULL);
    weir_embedded *embedded[CHANNELS];
    weir_executor *executors[CHANNELS];
    for (int i = 0; i < CHANNELS; i++) {
        weir_embedded_config config = { .init = add_two, .arg = group };
        assert_int_equal(weir_embedded_new(&embedded[i], &config, NULL), 0);
        weir_pipeline *pipeline = weir_embedded_pipeline(embedded[i]);
        executors[i] = executor_of(pipeline, "first");
        assert_ptr_equal(executor_of(pipeline, "second"), executors[i]);
        assert_ptr_equal(weir_executor_group(executors[i]), group);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(executors[i], executors[j]);
    }
    for (int i = 0; i < CHANNELS; i++)
        weir_embedded_free(embedded[i]);
    weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    weir_group_free(group);
}

/* Coming and going ----------------------------------------------------------------------------- */

static void added_and_removed_run_once_on_the_executor(void **state)
{
    (void)state;
    scene self;
    spy lane = { 0 };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    weir_embedded_run(self.embedded);
    expect_log(&self, "");
    step(&self, 0);
    expect_log(&self, "lane:added ");
    assert_int_equal(weir_pipeline_remove(self.pipeline, "lane", NULL), 0);
    weir_embedded_run(self.embedded);
    expect_log(&self, "");
    step(&self, 0);
    expect_log(&self, "lane:removed ");
    feed(&self, 1, 1);
    pump(&self);
    expect_through(&self, "1 ");
    scene_end(&self);
    expect_log(&self, "");
}

static void a_failing_added_elsewhere_raises_the_error_and_closes(void **state)
{
    (void)state;
    scene self;
    weir_error error = { 0 };
    spy before = { 0 }, lane = { .fails_added = true };
    scene_begin(&self);
    add(&self, &before, "before", -1);
    add(&self, &lane, "lane", 0);
    feed(&self, 1, 2); /* in flight when it fails: no handler gets them */
    pump(&self);
    bool has_error = weir_embedded_take_error(self.embedded, &error);
    expect_log(&self, "before:added before:read1 before:read2 lane:added before:error (lane,EIO) "
                      "before:inactive before:unregistered lane:removed before:removed ");
    expect_through(&self, "");
    bool is_open = weir_channel_is_open(weir_embedded_channel(self.embedded));
    scene_end(&self);
    assert_true(has_error);
    assert_false(is_open);
    assert_int_equal(error.code, -EIO);
    assert_string_equal(error.message, "cannot begin");
}

static void failed_add_elsewhere_with_a_promise_leaves_the_channel_open(void **state)
{
    (void)state;
    for (int has_reads = 0; has_reads < 2; has_reads++) {
        scene self;
        weir_error error = { 0 };
        spy lane = { .fails_added = true, .name = "lane" };
        scene_begin(&self);
        lane.scene = &self;
        weir_handler_config config = { .type = &spy_type, .name = "lane", .arg = &lane };
        config.place = WEIR_PLACE_LAST;
        config.group = self.groups[0];
        config.promise = weir_promise_new(NULL);
        assert_int_equal(weir_pipeline_add(self.pipeline, &config, NULL), 0);
        if (has_reads)
            feed(&self, 1, 2); /* in flight when it fails */
        pump(&self);
        expect_log(&self, "lane:added lane:removed ");
        expect_through(&self, has_reads ? "1 2 " : "");
        assert_int_equal(weir_future_code(weir_promise_future(config.promise)), -EIO);
        assert_true(weir_embedded_take_error(self.embedded, &error));
        assert_int_equal(error.code, -EIO);
        assert_true(weir_channel_is_open(weir_embedded_channel(self.embedded)));
        weir_promise_release(config.promise);
        scene_end(&self);
    }
}

/* Without a loop ------------------------------------------------------------------------------- */

/* One handler is removed by who closes the channel, one on another thread. */
typedef struct unlooped {
    weir_channel *channel;
    atomic_bool is_other_removed, may_return;
    bool was_closed_early;
} unlooped;

static void own_removed(weir_ctx *ctx)
{
    unlooped *self = weir_ctx_arg(ctx);
    WAIT_FOR(atomic_load(&self->is_other_removed));
    for (int i = 0; i < 20 && !self->was_closed_early; i++) {
        usleep(500); /* the other thread has every chance to go on */
        self->was_closed_early = weir_future_is_done(weir_channel_closed(self->channel));
    }
}

static void other_removed(weir_ctx *ctx)
{
    unlooped *self = weir_ctx_arg(ctx);
    WAIT_FOR(atomic_load(&self->may_return));
    atomic_store(&self->is_other_removed, true);
}

static const weir_handler_type own_type = { .name = "own", .removed = own_removed };
static const weir_handler_type other_type = { .name = "other", .removed = other_removed };

static void begin_unlooped(unlooped *self, weir_group *group, bool has_own)
{
    weir_handler_config config = { .type = &other_type, .group = group, .arg = self };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(weir_channel_from_descriptor(&self->channel, WEIR_SOCKET_STREAM, fd, NULL), 0);
    weir_pipeline *pipeline = weir_channel_pipeline(self->channel);
    if (has_own)
        assert_int_equal(weir_pipeline_add_last(pipeline, "own", &own_type, self), 0);
    assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), 0);
    assert_non_null(weir_channel_closed(self->channel));
}

static void closed_without_a_loop_completes_after_every_removed(void **state)
{
    (void)state;
    weir_group *group = new_executors(1, false, NULL);
    for (int i = 0; i < 5; i++) {
        unlooped self = { .may_return = true };
        begin_unlooped(&self, group, true);
        weir_channel_close(self.channel, NULL);
        assert_int_equal(weir_future_await(weir_channel_closed(self.channel)), 0);
        assert_false(self.was_closed_early);
        weir_channel_release(self.channel);
    }
    end_group(group);
}

enum { CLOSERS = 3, CLOSES = 50 };

typedef struct closer {
    weir_channel *channel;
    pthread_t thread;
    weir_promise *promises[CLOSES];
} closer;

static void *close_often(void *arg)
{
    closer *self = arg;
    for (int i = 0; i < CLOSES; i++) {
        self->promises[i] = weir_promise_new(NULL);
        weir_channel_close(self->channel, self->promises[i]);
    }
    return NULL;
}

/* For the thread sanitizer. */
static void close_without_a_loop_may_come_from_any_thread(void **state)
{
    (void)state;
    weir_group *group = new_executors(1, false, NULL);
    for (int round = 0; round < 10; round++) {
        unlooped self = { .may_return = false };
        closer closers[CLOSERS];
        begin_unlooped(&self, group, false);
        weir_channel_close(self.channel, NULL);
        for (int i = 0; i < CLOSERS; i++) {
            closers[i].channel = self.channel;
            pthread_create(&closers[i].thread, NULL, close_often, &closers[i]);
        }
        atomic_store(&self.may_return, true);
        for (int i = 0; i < CLOSERS; i++)
            pthread_join(closers[i].thread, NULL);
        for (int i = 0; i < CLOSERS * CLOSES; i++) {
            weir_promise *promise = closers[i / CLOSES].promises[i % CLOSES];
            assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
            weir_promise_release(promise);
        }
        weir_channel_release(self.channel);
    }
    end_group(group);
}

/* What comes when it has left must not overtake what is still on its way to it. */
static void events_on_their_way_to_a_handler_that_leaves_keep_their_order(void **state)
{
    (void)state;
    scene self;
    spy lane = { 0 };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    pump(&self);
    feed(&self, 1, 3);
    assert_int_equal(weir_pipeline_remove(self.pipeline, "lane", NULL), 0);
    feed(&self, 4, 5);
    pump(&self);
    feed(&self, 6, 6);
    pump(&self);
    expect_through(&self, "1 2 3 4 5 6 ");
    expect_log(&self, "lane:added lane:read1 lane:read2 lane:read3 lane:removed ");
    scene_end(&self);
}

static void check_replaced(int old_group, int new_group)
{
    scene self;
    spy old = { 0 }, new = { 0 };
    scene_begin(&self);
    add(&self, &old, "old", old_group);
    pump(&self);
    feed(&self, 1, 2);
    new = (spy){ .scene = &self, .name = "new" };
    if (new_group < 0) {
        assert_int_equal(weir_pipeline_replace(self.pipeline, "old", "new", &spy_type, &new), 0);
    } else {
        add(&self, &new, "new", new_group);
        assert_int_equal(weir_pipeline_remove(self.pipeline, "old", NULL), 0);
    }
    feed(&self, 3, 4);
    pump(&self);
    char names[16];
    weir_pipeline_names(self.pipeline, names, sizeof names);
    expect(&self, names, "new");
    expect_through(&self, "1 2 3 4 ");
    expect_of(&self, "old", "added read1 read2 removed ");
    expect_of(&self, "new", "added read1 read2 read3 read4 ");
    scene_end(&self);
}

static void a_handler_elsewhere_can_be_replaced_without_losing_order(void **state)
{
    (void)state;
    check_replaced(0, -1);
}

static void one_lane_can_follow_another_without_losing_order(void **state)
{
    (void)state;
    check_replaced(0, 1);
}

static void a_handler_can_remove_itself_on_its_executor(void **state)
{
    (void)state;
    scene self;
    spy lane = { .leaves = true };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    pump(&self);
    feed(&self, 1, 2);
    pump(&self);
    expect_log(&self, "lane:added lane:read1 leaves:0,WEIR_ENOTFOUND lane:read2 leaves:"
                      "WEIR_ENOTFOUND,WEIR_ENOTFOUND lane:removed ");
    expect_true(&self, weir_pipeline_count(self.pipeline) == 0);
    expect_through(&self, "1 2 ");
    scene_end(&self);
    expect_log(&self, "");
}

/* What a handler does there -------------------------------------------------------------------- */

typedef struct heard {
    weir_listener listener;
    weir_executor *on;
    int code, times;
} heard;

static void hear(weir_listener *listener, weir_future *future)
{
    heard *self = WEIR_CONTAINER(listener, heard, listener);
    self->on = weir_executor_current();
    self->code = weir_future_code(future);
    self->times++;
}

static void listen_to(weir_promise *promise, heard *listener)
{
    *listener = (heard){ .listener.done = hear };
    weir_future_listen(weir_promise_future(promise), &listener->listener);
}

static void check_answer(bool is_channels)
{
    scene self;
    heard told;
    spy before = { 0 }, lane = { .answers = true };
    scene_begin(&self);
    weir_executor *loop = weir_embedded_executor(self.embedded);
    weir_executor *executor = weir_group_at(self.groups[0], 0);
    lane.promise = is_channels ? weir_channel_promise(weir_embedded_channel(self.embedded))
                               : weir_promise_new(executor);
    listen_to(lane.promise, &told);
    add(&self, &before, "before", -1);
    add(&self, &lane, "lane", 0);
    pump(&self);
    self.log[0] = '\0';
    feed(&self, 1, 1);
    weir_group_step(self.groups[0]);
    int times_before = told.times;
    pump(&self);
    weir_promise_release(lane.promise);
    expect_log(&self, "before:read1 lane:read1 before:write1 ");
    expect_true(&self, weir_embedded_outbound_count(self.embedded) == 1);
    scene_end(&self);
    assert_int_equal(times_before, 0);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.code, 0);
    assert_ptr_equal(told.on, is_channels ? loop : executor);
}

static void a_write_from_there_tells_the_channels_loop(void **state)
{
    (void)state;
    check_answer(true);
}

static void a_write_from_there_tells_the_executor_that_its_promise_is_bound_to(void **state)
{
    (void)state;
    check_answer(false);
}

static void a_failure_there_is_heard_by_the_handler_first_then_behind_it(void **state)
{
    (void)state;
    scene self;
    weir_error error = { 0 };
    spy a = { 0 }, lane = { .fails_reads = true }, b = { 0 };
    scene_begin(&self);
    add(&self, &a, "a", -1);
    add(&self, &lane, "lane", 0);
    add(&self, &b, "b", -1);
    pump(&self);
    self.log[0] = '\0';
    feed(&self, 1, 1);
    pump(&self);
    expect_log(&self, "a:read1 lane:read1 lane:error (lane,EBADMSG) b:error (lane,EBADMSG) "
                      "b:read1 ");
    bool has_error = weir_embedded_take_error(self.embedded, &error);
    scene_end(&self);
    assert_true(has_error);
    assert_int_equal(error.code, -EBADMSG);
}

static void a_close_from_there_ends_every_handler_in_order(void **state)
{
    (void)state;
    scene self;
    heard told;
    spy a = { 0 }, lane = { .closes = true }, b = { 0 };
    scene_begin(&self);
    lane.promise = weir_channel_promise(weir_embedded_channel(self.embedded));
    listen_to(lane.promise, &told);
    add(&self, &a, "a", -1);
    add(&self, &lane, "lane", 0);
    add(&self, &b, "b", -1);
    pump(&self);
    self.log[0] = '\0';
    feed(&self, 1, 1);
    pump(&self);
    weir_promise_release(lane.promise);
    expect_of(&self, "a", "read1 inactive unregistered removed ");
    expect_of(&self, "lane", "read1 inactive unregistered removed ");
    expect_of(&self, "b", "read1 inactive unregistered removed ");
    scene_end(&self);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.code, 0);
}

/* Timers --------------------------------------------------------------------------------------- */

typedef struct ticker {
    scene *scene;
    weir_ctx_timer timer;
    weir_ctx *ctx;
} ticker;

static void tick(weir_ctx_timer *timer, weir_ctx *ctx)
{
    ticker *self = WEIR_CONTAINER(timer, ticker, timer);
    bool is_here = weir_executor_is_current(weir_ctx_executor(ctx));
    note(self->scene, "tick%s ", is_here && ctx == self->ctx ? "" : "(elsewhere)");
    weir_ctx_fire_read(ctx, number_new(7));
}

static void ticker_added(weir_ctx *ctx)
{
    ticker *self = weir_ctx_arg(ctx);
    self->ctx = ctx;
    self->timer.fire = tick;
    weir_ctx_schedule(ctx, &self->timer, WEIR_MS(10));
}

static void ticker_on_event(weir_ctx *ctx, weir_msg *event)
{
    ticker *self = weir_ctx_arg(ctx);
    weir_ctx_schedule(ctx, &self->timer, WEIR_MS(10));
    weir_msg_release(event);
}

static const weir_handler_type ticker_type = {
    .name = "ticker",
    .added = ticker_added,
    .on_event = ticker_on_event,
};

static void timers_of_a_handler_there_fire_there_and_end_with_it(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self);
    ticker t = { .scene = &self };
    weir_handler_config config = { .type = &ticker_type, .name = "ticker", .arg = &t };
    config.group = self.groups[0];
    assert_int_equal(weir_pipeline_add(self.pipeline, &config, NULL), 0);
    pump(&self);
    weir_virtual_clock_advance(&self.clock, WEIR_MS(9));
    pump(&self);
    expect_log(&self, "");
    weir_virtual_clock_advance(&self.clock, WEIR_MS(1));
    pump(&self);
    expect_log(&self, "tick ");
    expect_through(&self, "7 ");
    weir_pipeline_fire_event(self.pipeline, number_new(0));
    pump(&self);
    assert_int_equal(weir_pipeline_remove(self.pipeline, "ticker", NULL), 0);
    pump(&self);
    weir_virtual_clock_advance(&self.clock, WEIR_MS(20));
    pump(&self);
    expect_log(&self, "");
    scene_end(&self);
}

/* Ends of executors ---------------------------------------------------------------------------- */

static void a_channel_whose_executor_has_ended_is_told_and_closes(void **state)
{
    (void)state;
    scene self;
    weir_error error = { 0 };
    spy a = { 0 }, lane = { 0 }, b = { 0 };
    scene_begin(&self);
    add(&self, &a, "a", -1);
    add(&self, &lane, "lane", 0);
    add(&self, &b, "b", -1);
    pump(&self);
    self.log[0] = '\0';
    weir_group_shutdown(self.groups[0], 0, 0);
    assert_int_equal(weir_future_await(weir_group_terminated(self.groups[0])), 0);
    feed(&self, 1, 1);
    pump(&self);
    bool has_error = weir_embedded_take_error(self.embedded, &error);
    bool is_open = weir_channel_is_open(weir_embedded_channel(self.embedded));
    scene_end(&self);
    expect_of(&self, "a", "read1 inactive unregistered removed ");
    expect_of(&self, "lane", "removed(elsewhere) ");
    expect_of(&self, "b", "error inactive unregistered removed ");
    assert_true(has_error);
    assert_int_equal(error.code, WEIR_ESHUTDOWN);
    assert_false(is_open);
}

static void adding_to_a_terminated_executor_raises_an_error_and_closes(void **state)
{
    (void)state;
    scene self;
    weir_error error = { 0 };
    spy lane = { 0 };
    scene_begin(&self);
    weir_group_shutdown(self.groups[0], 0, 0);
    assert_int_equal(weir_future_await(weir_group_terminated(self.groups[0])), 0);
    int code = try_add(&self, &lane, "lane", 0);
    pump(&self);
    bool has_error = weir_embedded_take_error(self.embedded, &error);
    size_t count = weir_pipeline_count(self.pipeline);
    scene_end(&self);
    assert_int_equal(code, 0); /* it was on its way when that was found out */
    assert_true(has_error);
    assert_int_equal(error.code, WEIR_ESHUTDOWN);
    assert_int_equal(count, 0);
    /* Never added, but its add returned 0; its executor is gone, so the loop calls it. */
    expect_log(&self, "lane:removed(elsewhere) ");
}

/* The calls of a handler whose thread could not be started at first. */
typedef struct latecomer {
    atomic_int added, reads, removed;
} latecomer;

static void latecomer_added(weir_ctx *ctx)
{
    latecomer *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->added, 1);
}

static void latecomer_removed(weir_ctx *ctx)
{
    latecomer *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->removed, 1);
}

static void latecomer_on_read(weir_ctx *ctx, weir_msg *msg)
{
    latecomer *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->reads, 1);
    weir_msg_release(msg);
}

static const weir_handler_type latecomer_type = {
    .name = "latecomer",
    .added = latecomer_added,
    .removed = latecomer_removed,
    .on_read = latecomer_on_read,
};

/* `added` was not delivered, so no later event may be, although there is a thread now. */
static void event_after_one_that_an_executor_rejected_is_not_delivered(void **state)
{
    (void)state;
    scene self;
    weir_error error = { 0 };
    latecomer late = { 0 };
    scene_begin(&self);
    weir_group *group = new_executors(1, false, NULL);
    weir_handler_config config = { .type = &latecomer_type, .arg = &late, .group = group };
    harness_fail_nth("pthread_create", 1, -EAGAIN);
    int code = weir_pipeline_add(self.pipeline, &config, NULL);
    feed(&self, 1, 2);
    pump(&self);
    unsigned tries = harness_fail_end();
    end_group(group); /* what got there has run */
    pump(&self);
    bool is_open = weir_channel_is_open(weir_embedded_channel(self.embedded));
    bool has_error = weir_embedded_take_error(self.embedded, &error);
    scene_end(&self);
    assert_int_equal(code, 0);
    assert_in_range(tries, 1, 2);
    assert_true(has_error);
    assert_false(is_open);
    assert_int_equal(error.code, -EAGAIN);
    assert_int_equal(late.added, 0);
    assert_int_equal(late.reads, 0);
    assert_int_equal(late.removed, 1);
}

/* Memory --------------------------------------------------------------------------------------- */

static size_t occurrences(const char *text, const char *what)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    return count;
}

/* A channel whose lane lives through everything, with the n-th allocation failing: false when there
 * were not that many. */
static bool live_with_failure(unsigned nth)
{
    scene self;
    heard written;
    spy a = { 0 }, lane = { 0 }, b = { .answers = true };
    scene_begin(&self);
    weir_promise *promise = weir_channel_promise(weir_embedded_channel(self.embedded));
    weir_msg *msgs[4];
    for (int i = 0; i < 4; i++)
        msgs[i] = number_new(i);
    listen_to(promise, &written);
    harness_fail_nth("alloc", nth, -ENOMEM);
    bool is_accepted[] = { try_add(&self, &a, "a", -1) == 0, try_add(&self, &lane, "lane", 0) == 0,
                           try_add(&self, &b, "b", -1) == 0 };
    for (int i = 0; i < 3; i++)
        weir_embedded_write_inbound(self.embedded, msgs[i]);
    pump(&self);
    weir_channel_write_and_flush(weir_embedded_channel(self.embedded), msgs[3], promise);
    pump(&self);
    weir_pipeline_fire_error(self.pipeline, -EIO, "to be carried");
    pump(&self);
    weir_embedded_close(self.embedded);
    pump(&self);
    unsigned calls = harness_fail_end();
    weir_promise_release(promise);
    scene_end(&self);
    static const char *const names[] = { "a", "lane", "b" };
    for (int i = 0; i < 3; i++) {
        char added[16], removed[16];
        snprintf(added, sizeof added, "%s:added ", names[i]);
        snprintf(removed, sizeof removed, "%s:removed ", names[i]);
        if (occurrences(self.log, added) > 1 || occurrences(self.log, removed) != is_accepted[i])
            fail_msg("allocation %u: %s", nth, self.log);
    }
    const char *numbers[] = { "b:read0", "b:read1", "b:read2" };
    /* Some may be lost, but then those behind are, too; unless the handler came too late for them.
     */
    bool were_both_there = strstr(self.log, "lane:added") != NULL &&
                           strstr(self.log, "b:added") != NULL;
    for (int i = 1; i < 3 && were_both_there; i++) {
        const char *before = strstr(self.log, numbers[i - 1]), *at = strstr(self.log, numbers[i]);
        if (at != NULL && (before == NULL || at < before))
            fail_msg("allocation %u: %s", nth, self.log);
    }
    assert_int_equal(written.times, 1);
    return calls >= nth;
}

static void any_allocation_may_fail_on_the_way_to_a_lane(void **state)
{
    (void)state;
    unsigned nth = 1;
    harness_log_begin(WEIR_LOG_WARN);
    while (live_with_failure(nth))
        nth++;
    harness_log_end();
    assert_in_range(nth, 10, 1000);
}

/* Writes and flushes take one allocation each: those of the flushes fail. */
static int fail_every_second(void *arg, const char *call, size_t *length)
{
    unsigned *calls = arg;
    (void)length;
    return strcmp(call, "alloc") == 0 && ++*calls % 2 == 0 ? -ENOMEM : 0;
}

static int write_three(void *arg)
{
    weir_channel *channel = weir_embedded_channel(arg);
    unsigned calls = 0;
    weir_fault_set(fail_every_second, &calls);
    for (int i = 0; i < 3; i++) {
        weir_channel_write(channel, number_new(i), NULL);
        weir_channel_flush(channel);
    }
    weir_fault_set(NULL, NULL);
    assert_int_equal(calls, 6);
    return 0;
}

/* There is no second flush. */
static void lack_of_memory_loses_no_flush_on_its_way_to_a_lane(void **state)
{
    (void)state;
    scene self;
    spy lane = { 0 };
    weir_msg *msg;
    int sent = 0;
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    pump(&self);
    weir_embedded_call(self.embedded, write_three, self.embedded);
    pump(&self);
    while ((msg = weir_embedded_read_outbound(self.embedded)) != NULL) {
        assert_int_equal(((number *)msg)->value, sent++);
        weir_msg_release(msg);
    }
    expect_log(&self, "lane:added lane:write0 lane:write1 lane:write2 ");
    assert_int_equal(sent, 3);
    scene_end(&self);
}

/* Without memory to carry anything back -----------------------------------------------------------
 */

static int fail_alloc(void *arg, const char *call, size_t *length)
{
    (void)arg, (void)length;
    return strcmp(call, "alloc") == 0 ? -ENOMEM : 0;
}

/* Its argument says whether it fails: the first message is lost. */
static void lose_on_read(weir_ctx *ctx, weir_msg *msg)
{
    bool *loses = weir_ctx_arg(ctx);
    weir_fault_set(*loses ? fail_alloc : NULL, NULL);
    *loses = false;
    weir_ctx_fire_read(ctx, msg);
    weir_fault_set(NULL, NULL);
}

static void lose_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    bool *loses = weir_ctx_arg(ctx);
    if (!*loses) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    *loses = false;
    weir_fault_set(fail_alloc, NULL);
    weir_ctx_refuse_write(ctx, msg, promise, -EIO);
    weir_fault_set(NULL, NULL);
}

static const weir_handler_type losing_type = { .name = "losing",
                                               .on_read = lose_on_read,
                                               .write = lose_write };

static void begin_losing(scene *self, bool *loses)
{
    weir_handler_config config = { .type = &losing_type, .name = "losing", .arg = loses };
    scene_begin(self);
    config.group = self->groups[0];
    assert_int_equal(weir_pipeline_add(self->pipeline, &config, NULL), 0);
    pump(self);
}

static void expect_closed_by(scene *self, int code)
{
    weir_error error = { 0 };
    bool has_error = weir_embedded_take_error(self->embedded, &error);
    bool is_open = weir_channel_is_open(weir_embedded_channel(self->embedded));
    scene_end(self);
    assert_true(has_error);
    assert_int_equal(error.code, code);
    assert_false(is_open);
}

static void message_lost_on_its_way_back_is_an_error(void **state)
{
    (void)state;
    for (int leaves = 0; leaves < 2; leaves++) {
        scene self;
        bool loses = true;
        begin_losing(&self, &loses);
        harness_log_begin(WEIR_LOG_WARN);
        feed(&self, 1, 1);
        if (leaves) { /* the next one comes after it is removed, and passes it by */
            assert_int_equal(weir_pipeline_remove(self.pipeline, "losing", NULL), 0);
            weir_embedded_run(self.embedded);
        }
        feed(&self, 2, 2);
        pump(&self);
        harness_log_end();
        expect_through(&self, "");
        expect_closed_by(&self, -ENOMEM);
    }
}

static int write_two(void *arg)
{
    weir_channel *channel = weir_embedded_channel(arg);
    weir_channel_write(channel, number_new(1), NULL);
    weir_channel_write_and_flush(channel, number_new(2), NULL);
    return 0;
}

static void no_write_follows_one_that_was_refused_without_memory(void **state)
{
    (void)state;
    scene self;
    bool loses = true;
    begin_losing(&self, &loses);
    harness_log_begin(WEIR_LOG_WARN);
    weir_embedded_call(self.embedded, write_two, self.embedded);
    pump(&self);
    harness_log_end();
    weir_msg *sent = weir_embedded_read_outbound(self.embedded);
    weir_msg_release(sent);
    expect_closed_by(&self, -EIO);
    assert_null(sent);
}

static void pass_inactive(weir_ctx *ctx)
{
    weir_ctx_fire_inactive(ctx);
}

static void pass_flush(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void last_words_removed(weir_ctx *ctx)
{
    weir_ctx_fire_read(ctx, number_new(8));
    weir_ctx_flush(ctx);
}

/* Its executor is gone, so it is removed on the loop, which ends and frees its context at once. */
static void remove_on_the_loop(void)
{
    static const weir_handler_type type = { .name = "last words",
                                            .on_inactive = pass_inactive,
                                            .flush = pass_flush,
                                            .removed = last_words_removed };
    weir_group *loops = new_loops(1), *workers = new_executors(1, false, NULL);
    weir_handler_config config = { .type = &type, .group = workers };
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel *channel;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(weir_channel_from_descriptor(&channel, WEIR_SOCKET_STREAM, fds[0], NULL), 0);
    assert_int_equal(weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL), 0);
    weir_group_register(loops, channel, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    harness_log_begin(WEIR_LOG_WARN);
    weir_group_shutdown(workers, 0, 0);
    assert_int_equal(weir_future_await(weir_group_terminated(workers)), 0);
    weir_group_shutdown(loops, 0, 0); /* it waits for nothing */
    assert_int_equal(weir_future_await(weir_group_terminated(loops)), 0);
    harness_log_end();
    weir_channel_release(channel);
    end_group(loops);
    end_group(workers);
    close(fds[1]);
}

static void handler_removed_on_the_loop_may_pass_events_on(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        remove_on_the_loop();
}

/* Its argument counts what came in order. */
static void answer_on_read(weir_ctx *ctx, weir_msg *msg)
{
    int *seen = weir_ctx_arg(ctx);
    *seen = ((number *)msg)->value == *seen ? *seen + 1 : -1;
    weir_ctx_write(ctx, msg, NULL);
}

static void answer_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

/* One becomes three, as with a decoder. */
static void triple_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_msg_release(msg);
    for (int i = 0; i < 3; i++)
        weir_ctx_fire_read(ctx, number_new(i));
}

/* Three numbers, which come one by one or at once, are answered there, with the n-th allocation
 * failing: false when there were not that many. Either all answers come, or the first of them and
 * then the end. */
static bool answer_with_failure(unsigned nth, bool at_once)
{
    static const weir_handler_type triple_type = { .name = "triple", .on_read = triple_on_read };
    static const weir_handler_type answer_type = {
        .name = "answer",
        .on_read = answer_on_read,
        .on_read_complete = answer_on_read_complete,
    };
    scene self;
    weir_msg *msgs[3], *msg;
    int seen = 0, came = 0;
    bool is_in_order = true;
    scene_begin(&self);
    weir_handler_config config = { .type = &answer_type, .group = self.groups[0] };
    config.place = WEIR_PLACE_LAST;
    config.arg = &seen;
    int count = at_once ? 1 : 3;
    for (int i = 0; i < count; i++)
        msgs[i] = number_new(i);
    if (at_once)
        assert_int_equal(weir_pipeline_add_last(self.pipeline, NULL, &triple_type, NULL), 0);
    harness_fail_nth("alloc", nth, -ENOMEM);
    int code = weir_pipeline_add(self.pipeline, &config, NULL);
    for (int i = 0; i < count; i++)
        weir_embedded_write_inbound(self.embedded, msgs[i]);
    pump(&self);
    unsigned calls = harness_fail_end();
    for (; (msg = weir_embedded_read_outbound(self.embedded)) != NULL; came++) {
        is_in_order = is_in_order && ((number *)msg)->value == came;
        weir_msg_release(msg);
    }
    bool is_open = weir_channel_is_open(weir_embedded_channel(self.embedded));
    scene_end(&self);
    is_in_order = is_in_order && seen >= 0;
    if (!is_in_order || (code == 0 && is_open && came < 3))
        fail_msg("allocation %u: %d answers, %sin order, %s", nth, came, is_in_order ? "" : "not ",
                 is_open ? "open" : "closed");
    return calls >= nth;
}

static void without_memory_answers_from_there_end_without_a_gap(void **state)
{
    (void)state;
    for (int at_once = 0; at_once <= 1; at_once++) {
        unsigned nth = 1;
        harness_log_begin(WEIR_LOG_WARN);
        while (answer_with_failure(nth, at_once))
            nth++;
        harness_log_end();
        assert_in_range(nth, 10, 1000);
    }
}

/* Moves ---------------------------------------------------------------------------------------- */

static void pass_deregister(weir_ctx *ctx, weir_promise *promise)
{
    weir_ctx_deregister(ctx, promise);
}

static const weir_handler_type gate_type = { .name = "gate", .deregister = pass_deregister };

static int code_now(weir_promise *promise)
{
    int code = weir_future_code(weir_promise_future(promise));
    if (code == -EINPROGRESS)
        weir_promise_set(promise, code); /* so that it is not reported as forgotten, too */
    weir_promise_release(promise);
    return code;
}

/* The request itself is on its way to a lane when the next one comes. */
static void two_moves_through_a_lane_both_come_to_an_end(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self);
    weir_channel *channel = weir_embedded_channel(self.embedded);
    weir_executor *loop = weir_embedded_executor(self.embedded);
    weir_handler_config config = { .type = &gate_type, .group = self.groups[0] };
    weir_promise *first = weir_channel_promise(channel), *second = weir_channel_promise(channel);
    assert_int_equal(weir_pipeline_add(self.pipeline, &config, NULL), 0);
    pump(&self);
    weir_channel_move(channel, loop, first);
    weir_channel_move(channel, loop, second);
    pump(&self);
    int codes[2] = { code_now(first), code_now(second) };
    scene_end(&self);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], -EALREADY);
}

/* Both deregistrations are in the lane at once. Whichever was asked for first, the channel ends up
 * where the move takes it. */
static void a_move_and_a_deregistration_through_a_lane_leave_it_on_a_loop(void **state)
{
    (void)state;
    for (int is_move_first = 0; is_move_first < 2; is_move_first++) {
        scene self;
        scene_begin(&self);
        weir_channel *channel = weir_embedded_channel(self.embedded);
        weir_executor *loop = weir_embedded_executor(self.embedded);
        weir_handler_config config = { .type = &gate_type, .group = self.groups[0] };
        weir_promise *move = weir_channel_promise(channel), *leave = weir_channel_promise(channel);
        assert_int_equal(weir_pipeline_add(self.pipeline, &config, NULL), 0);
        pump(&self);
        if (is_move_first)
            weir_channel_move(channel, loop, move);
        weir_channel_deregister(channel, leave);
        if (!is_move_first)
            weir_channel_move(channel, loop, move);
        pump(&self);
        int codes[2] = { code_now(move), code_now(leave) };
        bool is_active = weir_channel_is_active(channel);
        scene_end(&self);
        assert_int_equal(codes[0], 0);
        assert_int_equal(codes[1], is_move_first ? -EALREADY : 0);
        assert_true(is_active);
    }
}

/* Passes the first deregistration on at once, and the second in `pass`. */
typedef struct late_gate {
    weir_task pass;
    weir_ctx *ctx;
    weir_promise *held;
    int seen;
} late_gate;

static void late_deregister(weir_ctx *ctx, weir_promise *promise)
{
    late_gate *self = weir_ctx_arg(ctx);
    self->ctx = ctx;
    if (self->seen++ == 0)
        weir_ctx_deregister(ctx, promise);
    else
        self->held = weir_promise_retain(promise);
}

static const weir_handler_type late_gate_type = { .name = "gate", .deregister = late_deregister };

static int pass_held(weir_task *task)
{
    late_gate *self = WEIR_CONTAINER(task, late_gate, pass);
    weir_ctx_deregister(self->ctx, self->held);
    weir_promise_release(self->held);
    return 0;
}

/* The channel is off its loop while the move's own deregistration is still at the handler. If it
 * went to its new loop now, that deregistration would take it off again, for ever. */
static void move_waits_for_its_own_deregistration(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self);
    late_gate gate = { .pass.run = pass_held };
    weir_channel *channel = weir_embedded_channel(self.embedded);
    weir_executor *loop = weir_embedded_executor(self.embedded);
    weir_handler_config config = { .type = &late_gate_type, .arg = &gate };
    config.group = self.groups[0];
    weir_promise *move = weir_channel_promise(channel), *leave = weir_channel_promise(channel);
    assert_int_equal(weir_pipeline_add(self.pipeline, &config, NULL), 0);
    pump(&self);
    weir_channel_deregister(channel, leave);
    weir_channel_move(channel, loop, move);
    pump(&self);
    int leave_code = code_now(leave);
    int early_code = weir_future_code(weir_promise_future(move));
    assert_int_equal(weir_executor_post(weir_group_at(self.groups[0], 0), &gate.pass), 0);
    pump(&self);
    int move_code = code_now(move);
    bool is_active = weir_channel_is_active(channel);
    scene_end(&self);
    assert_int_equal(leave_code, 0);
    assert_int_equal(early_code, -EINPROGRESS);
    assert_int_equal(move_code, 0);
    assert_true(is_active);
}

static void a_close_while_a_move_is_in_a_lane_ends_its_promise(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self);
    weir_channel *channel = weir_embedded_channel(self.embedded);
    weir_handler_config config = { .type = &gate_type, .group = self.groups[0] };
    weir_promise *promise = weir_channel_promise(channel);
    assert_int_equal(weir_pipeline_add(self.pipeline, &config, NULL), 0);
    pump(&self);
    weir_channel_move(channel, weir_embedded_executor(self.embedded), promise);
    weir_channel_close(channel, NULL);
    pump(&self);
    int code = code_now(promise);
    scene_end(&self);
    assert_int_equal(code, WEIR_ECLOSED);
}

/* With threads --------------------------------------------------------------------------------- */

/* A stage notes on which thread it ran, and checks the order; plain numbers, for the sanitizer. */
typedef struct stage {
    weir_group *group;
    pthread_t thread;
    int seen, disorder, elsewhere, writes, added, removed, inactive;
    sem_t *started, *may_go; /* a job that blocks */
    sem_t *done;             /* it was removed */
    sem_t *passed;           /* a message went through it */
    bool answers;
} stage;

static stage *stage_of(weir_ctx *ctx)
{
    stage *self = weir_ctx_arg(ctx);
    self->elsewhere += !pthread_equal(self->thread, pthread_self());
    return self;
}

static void stage_added(weir_ctx *ctx)
{
    stage *self = weir_ctx_arg(ctx);
    self->thread = pthread_self();
    self->added++;
}

static void stage_removed(weir_ctx *ctx)
{
    stage *self = stage_of(ctx);
    self->removed++;
    if (self->done != NULL)
        sem_post(self->done);
}

static void stage_on_inactive(weir_ctx *ctx)
{
    stage_of(ctx)->inactive++;
    weir_ctx_fire_inactive(ctx);
}

static void stage_on_read(weir_ctx *ctx, weir_msg *msg)
{
    stage *self = stage_of(ctx);
    self->disorder += ((number *)msg)->value != self->seen++;
    if (self->started != NULL) {
        sem_post(self->started);
        sem_wait(self->may_go);
    }
    if (self->answers)
        weir_ctx_write_and_flush(ctx, msg, NULL);
    else
        weir_ctx_fire_read(ctx, msg);
    if (self->passed != NULL)
        sem_post(self->passed);
}

static void stage_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    stage *self = stage_of(ctx);
    self->writes++;
    weir_ctx_write(ctx, msg, promise);
    if (self->passed != NULL)
        sem_post(self->passed);
}

static void wait_for(sem_t *sem, int times)
{
    for (int i = 0; i < times; i++)
        sem_wait(sem);
}

static const weir_handler_type stage_type = {
    .name = "stage",
    .added = stage_added,
    .removed = stage_removed,
    .on_inactive = stage_on_inactive,
    .on_read = stage_on_read,
    .write = stage_write,
};

#define STAGES 3

static int add_stages(weir_channel *channel, void *arg)
{
    stage *stages = arg;
    int code = 0;
    for (int i = 0; code == 0 && i < STAGES; i++) {
        weir_handler_config config = { .type = &stage_type, .arg = &stages[i] };
        config.place = WEIR_PLACE_LAST;
        config.group = stages[i].group;
        code = weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
    }
    return code;
}

static weir_embedded *new_staged(weir_group *loops, stage *stages)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .group = loops, .init = add_stages, .arg = stages };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

/* Too much on its way -------------------------------------------------------------------------- */

/* What was asked for until now has been done: a call that came while others were being performed
 * goes behind what else the loop has to do, so that takes more than one turn. */
static void settle(weir_embedded *embedded)
{
    for (int i = 0; i < 4; i++)
        weir_embedded_run(embedded);
}

/* Lets the executor end one event; when it begins the next, that one is on its way back. */
static void let_one_go(weir_embedded *embedded, stage *worker)
{
    sem_post(worker->may_go);
    sem_wait(worker->started);
    settle(embedded);
}

static void reading_pauses_above_the_bound_and_goes_on_below_half_of_it(void **state)
{
    (void)state;
    enum { EVENTS = 5 };
    weir_group *loops = new_loops(1), *workers = new_executors(1, false, NULL);
    sem_t started, may_go, done;
    bool with[EVENTS + 1], then[EVENTS + 1];
    sem_init(&started, 0, 0);
    sem_init(&may_go, 0, 0);
    sem_init(&done, 0, 0);
    stage stages[STAGES] = { { 0 }, { .group = workers }, { 0 } };
    stages[1].started = &started;
    stages[1].may_go = &may_go;
    stages[1].done = &done;
    weir_embedded *embedded = new_staged(loops, stages);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_MAX_EVENTS_AWAY, 4, NULL), 0);
    settle(embedded);
    for (int away = 1; away <= EVENTS; away++) {
        weir_embedded_write_inbound_part(embedded, number_new(away - 1));
        if (away == 1) { /* it has this one, so what was before, `added` above all, is back */
            sem_wait(&started);
            settle(embedded);
        }
        with[away] = weir_embedded_is_reading(embedded);
    }
    for (int away = EVENTS - 1; away > 0; away--) {
        let_one_go(embedded, &stages[1]);
        then[away] = weir_embedded_is_reading(embedded);
    }
    sem_post(&may_go);
    assert_int_equal(weir_embedded_close(embedded), 0);
    sem_wait(&done);
    weir_embedded_free(embedded);
    end_group(workers);
    end_group(loops);
    assert_true(with[4]);
    assert_false(with[5]);
    assert_false(then[4]);
    assert_false(then[3]);
    assert_true(then[2]);
    assert_int_equal(stages[1].seen, EVENTS);
}

static void s011_a_job_on_another_thread_does_not_hold_up_the_loop(void **state)
{
    (void)state;
    weir_group *loops = new_loops(1), *workers = new_executors(2, false, NULL);
    sem_t started, may_go, done, written;
    sem_init(&started, 0, 0);
    sem_init(&may_go, 0, 0);
    sem_init(&done, 0, 0);
    sem_init(&written, 0, 0);
    stage busy[STAGES] = { { .passed = NULL }, { 0 }, { 0 } };
    busy[1] = (stage){ .group = workers, .started = &started, .may_go = &may_go, .answers = true };
    busy[1].done = &done;
    stage other[STAGES] = { { .answers = true }, { 0 }, { 0 } };
    weir_embedded *a = new_staged(loops, busy), *b = new_staged(loops, other);
    assert_int_equal(weir_embedded_write_inbound(a, number_new(0)), 0);
    sem_wait(&started);
    busy[0].passed = &written; /* its read is through; what comes now is the answer */
    /* The job blocks, and the other channel of the same loop is served meanwhile. */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(weir_embedded_write_inbound(b, number_new(i)), 0);
        weir_msg_release(weir_embedded_read_outbound(b));
    }
    assert_int_equal(weir_embedded_outbound_count(a), 0);
    sem_post(&may_go);
    assert_int_equal(weir_embedded_close(b), 0);
    /* When its answer is written it comes through the first stage, on the loop. */
    sem_wait(&written);
    assert_int_equal(weir_embedded_close(a), 0);
    sem_wait(&done);
    size_t sent = weir_embedded_outbound_count(a);
    weir_embedded_free(a);
    weir_embedded_free(b);
    end_group(workers);
    end_group(loops);
    assert_int_equal(sent, 1);
    assert_int_equal(other[0].seen, 100);
    assert_int_equal(busy[0].writes, 1);
    assert_int_equal(busy[1].seen, 1);
    assert_false(pthread_equal(busy[0].thread, busy[1].thread));
    for (int i = 0; i < STAGES; i++)
        assert_int_equal(busy[i].elsewhere + other[i].elsewhere, 0);
}

static void s154_handlers_run_on_their_group_and_the_order_of_each_channel_holds(void **state)
{
    (void)state;
    enum { CHANNELS = 4, MESSAGES = 2500 };
    weir_group *loops = new_loops(2), *workers = new_executors(2, false, NULL);
    weir_embedded *embedded[CHANNELS];
    stage stages[CHANNELS][STAGES] = { { { 0 } } };
    sem_t done, passed;
    sem_init(&done, 0, 0);
    sem_init(&passed, 0, 0);
    for (int i = 0; i < CHANNELS; i++) {
        stages[i][1].group = workers;
        stages[i][2].passed = &passed;
        for (int j = 0; j < STAGES; j++)
            stages[i][j].done = &done;
        embedded[i] = new_staged(loops, stages[i]);
    }
    for (int n = 0; n < MESSAGES; n++) {
        for (int i = 0; i < CHANNELS; i++)
            weir_pipeline_fire_read(weir_embedded_pipeline(embedded[i]), number_new(n));
    }
    wait_for(&passed, CHANNELS * MESSAGES);
    for (int i = 0; i < CHANNELS; i++) {
        for (int n = 0; n < MESSAGES; n++) {
            weir_msg *msg = weir_embedded_read_inbound(embedded[i]);
            assert_int_equal(((number *)msg)->value, n);
            weir_msg_release(msg);
        }
        assert_int_equal(weir_embedded_close(embedded[i]), 0);
    }
    wait_for(&done, CHANNELS * STAGES);
    for (int i = 0; i < CHANNELS; i++)
        weir_embedded_free(embedded[i]);
    end_group(workers);
    end_group(loops);
    for (int i = 0; i < CHANNELS; i++) {
        assert_false(pthread_equal(stages[i][0].thread, stages[i][1].thread));
        assert_true(pthread_equal(stages[i][0].thread, stages[i][2].thread));
        for (int j = 0; j < STAGES; j++) {
            const stage *self = &stages[i][j];
            assert_int_equal(self->seen, MESSAGES);
            assert_int_equal(self->disorder, 0);
            assert_int_equal(self->elsewhere, 0);
            assert_int_equal(self->added, 1);
            assert_int_equal(self->inactive, 1);
            assert_int_equal(self->removed, 1);
        }
    }
}

static void a_channel_moves_while_events_are_on_their_way(void **state)
{
    (void)state;
    enum { MESSAGES = 300 };
    weir_group *loops = new_loops(2), *workers = new_executors(1, false, NULL);
    sem_t started, may_go, done, passed;
    sem_init(&started, 0, 0);
    sem_init(&may_go, 0, 0);
    sem_init(&done, 0, 0);
    sem_init(&passed, 0, 0);
    stage stages[STAGES] = { { 0 }, { .group = workers }, { 0 } };
    stages[1].started = &started;
    stages[1].may_go = &may_go;
    stages[1].done = &done;
    stages[2].passed = &passed;
    weir_embedded *embedded = new_staged(loops, stages);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *moves[MESSAGES / 10];
    int moved = 0, refused = 0;
    for (int n = 0; n < MESSAGES; n++) {
        weir_pipeline_fire_read(weir_channel_pipeline(channel), number_new(n));
        sem_post(&may_go);
        if (n % 10 != 0)
            continue;
        moves[n / 10] = weir_channel_promise(channel);
        weir_channel_move(channel, weir_group_at(loops, (size_t)(n / 10 + 1) % 2), moves[n / 10]);
    }
    wait_for(&passed, MESSAGES);
    for (int i = 0; i < MESSAGES / 10; i++) { /* refused while the one before is under way */
        weir_future *future = weir_promise_future(moves[i]);
        weir_future_wait(future, WEIR_MS(10000)); /* one that is forgotten fails the case */
        int code = weir_future_code(future);
        moved += code == 0;
        refused += code == -EALREADY || code == WEIR_EREGISTERED;
        weir_promise_release(moves[i]);
    }
    assert_int_equal(weir_embedded_close(embedded), 0);
    sem_wait(&done);
    weir_embedded_free(embedded);
    end_group(workers);
    end_group(loops);
    assert_int_equal(moved + refused, MESSAGES / 10);
    assert_in_range(moved, 1, MESSAGES / 10);
    for (int i = 0; i < STAGES; i++) {
        assert_int_equal(stages[i].seen, MESSAGES);
        assert_int_equal(stages[i].disorder, 0);
        assert_int_equal(stages[i].removed, 1);
    }
    assert_int_equal(stages[1].elsewhere, 0);
}

/* The loop stays with the channel while its handler still works. */
static void check_close_while_busy(bool ends_loops_first)
{
    for (int round = 0; round < 20; round++) {
        weir_group *loops = new_loops(1), *workers = new_executors(1, false, NULL);
        sem_t started, may_go, done;
        sem_init(&started, 0, 0);
        sem_init(&may_go, 0, 0);
        sem_init(&done, 0, 0);
        stage stages[STAGES] = { { 0 }, { .group = workers }, { 0 } };
        stages[1].started = &started;
        stages[1].may_go = &may_go;
        stages[1].done = &done;
        weir_embedded *embedded = new_staged(loops, stages);
        for (int n = 0; n < 3; n++)
            weir_pipeline_fire_read(weir_embedded_pipeline(embedded), number_new(n));
        sem_wait(&started);
        weir_channel_close(weir_embedded_channel(embedded), NULL);
        settle(embedded); /* the loop has heard of it */
        for (int n = 0; n < 3; n++)
            sem_post(&may_go);
        assert_int_equal(weir_embedded_close(embedded), 0);
        if (!ends_loops_first || round % 2 == 0)
            sem_wait(&done); /* the handler's group must outlive the channel, the loop need not */
        weir_embedded_free(embedded);
        end_group(ends_loops_first ? loops : workers);
        end_group(ends_loops_first ? workers : loops);
        assert_int_equal(stages[1].seen, 3);
        for (int i = 0; i < STAGES; i++) {
            assert_int_equal(stages[i].added, 1);
            assert_int_equal(stages[i].removed, 1);
        }
    }
}

static void a_channel_closes_while_its_handler_is_busy_elsewhere(void **state)
{
    (void)state;
    check_close_while_busy(false);
}

static void a_loop_ends_while_a_handler_of_its_channel_is_busy_elsewhere(void **state)
{
    (void)state;
    check_close_while_busy(true);
}

/* Does not return before the loop has abandoned the channel, whose thread this one is from then on.
 */
static void removed_when_abandoned(weir_ctx *ctx)
{
    sem_post(weir_ctx_arg(ctx));
    WAIT_FOR(weir_channel_loop(weir_ctx_channel(ctx)) == NULL);
}

static const weir_handler_type late_type = { .name = "late", .removed = removed_when_abandoned };

static atomic_int heard_done, heard_dropped;

static void count_done(weir_listener *listener, weir_future *future)
{
    (void)listener;
    (void)future;
    atomic_fetch_add(&heard_done, 1);
}

static void count_dropped(weir_listener *listener, weir_future *future)
{
    (void)listener;
    (void)future;
    atomic_fetch_add(&heard_dropped, 1);
}

/* Then nothing of the channel runs on the loop's thread any more: for the thread sanitizer. Its
 * closed future completes on the handler's thread, and calls no listener there. */
static void loop_that_ends_before_removed_returns_lets_the_channel_go(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        weir_group *loops = new_loops(1), *workers = new_executors(1, false, NULL);
        sem_t is_leaving;
        sem_init(&is_leaving, 0, 0);
        weir_embedded *embedded;
        weir_embedded_config config = { .group = loops };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        weir_handler_config late = { .type = &late_type, .arg = &is_leaving, .group = workers };
        assert_int_equal(weir_pipeline_add(weir_embedded_pipeline(embedded), &late, NULL), 0);
        weir_channel *channel = weir_channel_retain(weir_embedded_channel(embedded));
        weir_listener listener = { .done = count_done, .dropped = count_dropped };
        atomic_store(&heard_done, 0);
        atomic_store(&heard_dropped, 0);
        weir_future_listen(weir_channel_closed(channel), &listener);
        weir_channel_close(channel, NULL);
        sem_wait(&is_leaving);
        assert_int_equal(weir_group_shutdown(loops, 0, 0), 0);
        assert_int_equal(weir_future_await(weir_channel_closed(channel)), 0);
        weir_channel_release(channel);
        weir_embedded_free(embedded);
        end_group(loops);
        end_group(workers);
        assert_int_equal(heard_done, 0);
        assert_int_equal(heard_dropped, 1);
        sem_destroy(&is_leaving);
    }
}

/* The handler is still at work when its group has begun to end: `removed` waits for it. */
static void a_group_ends_while_its_handler_is_busy(void **state)
{
    (void)state;
    weir_group *loops = new_loops(1), *workers = new_executors(1, false, NULL);
    sem_t started, may_go;
    sem_init(&started, 0, 0);
    sem_init(&may_go, 0, 0);
    stage stages[STAGES] = { { 0 }, { .group = workers }, { 0 } };
    stages[1].started = &started;
    stages[1].may_go = &may_go;
    weir_embedded *embedded = new_staged(loops, stages);
    weir_pipeline_fire_read(weir_embedded_pipeline(embedded), number_new(0));
    sem_wait(&started);
    weir_group_shutdown(workers, 0, 0);
    weir_channel_close(weir_embedded_channel(embedded), NULL);
    settle(embedded);
    int removed = stages[1].removed;
    sem_post(&may_go);
    assert_int_equal(weir_embedded_close(embedded), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(workers)), 0);
    weir_embedded_free(embedded);
    end_group(loops);
    weir_group_free(workers);
    assert_int_equal(removed, 0);
    for (int i = 0; i < STAGES; i++)
        assert_int_equal(stages[i].removed, 1);
}

/* Misuse --------------------------------------------------------------------------------------- */

static void use_a_lanes_context_on_the_loop(void *arg)
{
    (void)arg;
    scene self;
    spy lane = { 0 };
    scene_begin(&self);
    add(&self, &lane, "lane", 0);
    pump(&self);
    weir_ctx_flush(lane.ctx);
}

static void a_context_belongs_to_its_handlers_executor(void **state)
{
    (void)state;
    if (!HARNESS_MISUSE_ABORTS)
        skip();
    harness_expect_abort(use_a_lanes_context_on_the_loop, NULL, "weir__ctx_is_here");
}

/* Everything at once --------------------------------------------------------------------------- */

enum { STRESS_CHANNELS = 3, STRESS_THREADS = 4, STRESS_STEPS = 400 };

typedef struct stress {
    weir_group *loops, *workers[2];
    weir_channel *channels[STRESS_CHANNELS];
    _Atomic(int) asked, answered, added, removed, accepted;
} stress;

static void visitor_added(weir_ctx *ctx)
{
    ((stress *)weir_ctx_arg(ctx))->added++;
}

static void visitor_removed(weir_ctx *ctx)
{
    ((stress *)weir_ctx_arg(ctx))->removed++;
}

static void visitor_on_read(weir_ctx *ctx, weir_msg *msg)
{
    int *seen = weir_ctx_state(ctx);
    if (++*seen % 3 == 0)
        weir_ctx_write_and_flush(ctx, msg, NULL);
    else
        weir_ctx_fire_read(ctx, msg);
}

static void visitor_on_event(weir_ctx *ctx, weir_msg *event)
{
    int *seen = weir_ctx_state(ctx);
    if (++*seen % 50 == 0)
        weir_ctx_remove(ctx);
    weir_ctx_fire_event(ctx, event);
}

static void visitor_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    ++*(int *)weir_ctx_state(ctx);
    weir_ctx_write(ctx, msg, promise);
}

static const weir_handler_type visitor_type = {
    .name = "visitor",
    .state_size = sizeof(int),
    .added = visitor_added,
    .removed = visitor_removed,
    .on_read = visitor_on_read,
    .on_event = visitor_on_event,
    .write = visitor_write,
    .deregister = pass_deregister,
};

typedef struct answer {
    weir_listener listener;
    stress *all;
} answer;

static void answered(weir_listener *listener, weir_future *future)
{
    answer *self = WEIR_CONTAINER(listener, answer, listener);
    (void)future;
    self->all->answered++;
    free(self);
}

static weir_promise *ask(stress *all, weir_channel *channel)
{
    answer *self = malloc(sizeof *self);
    weir_promise *promise = weir_channel_promise(channel);
    *self = (answer){ .listener.done = answered, .all = all };
    all->asked++;
    weir_future_listen(weir_promise_future(promise), &self->listener);
    return promise;
}

/* With a promise, so a name that is taken or not there does not close the channel. */
static void add_visitor(stress *all, weir_pipeline *pipeline, const char *name, unsigned n,
                        weir_promise *promise)
{
    weir_handler_config config = { .type = &visitor_type, .name = name, .arg = all };
    config.place = n % 2 ? WEIR_PLACE_FIRST : WEIR_PLACE_LAST;
    config.group = n % 3 < 2 ? all->workers[n % 3] : NULL;
    config.promise = promise;
    all->accepted += weir_pipeline_add(pipeline, &config, NULL) == 0;
}

static void replace_by_visitor(stress *all, weir_pipeline *pipeline, const char *name,
                               weir_promise *promise)
{
    weir_handler_config config = { .type = &visitor_type, .name = name, .arg = all };
    config.place = WEIR_PLACE_INSTEAD_OF;
    config.base = name;
    config.promise = promise;
    all->accepted += weir_pipeline_add(pipeline, &config, NULL) == 0;
}

static void do_something(stress *all, weir_channel *channel, unsigned what, unsigned n)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_promise *promise = ask(all, channel);
    char name[8];
    snprintf(name, sizeof name, "v%u", n / 7 % 4);
    switch (what) {
    case 0:
    case 1:
        add_visitor(all, pipeline, name, n, promise);
        weir_promise_release(promise);
        return;
    case 2:
        weir_pipeline_remove(pipeline, name, NULL);
        break;
    case 3:
        replace_by_visitor(all, pipeline, name, promise);
        weir_promise_release(promise);
        return;
    case 4:
        weir_channel_move(channel, weir_group_at(all->loops, n % 2), promise);
        weir_promise_release(promise);
        return;
    case 5:
    case 6:
        weir_channel_write_and_flush(channel, number_new(0), promise);
        weir_promise_release(promise);
        return;
    case 7:
        weir_pipeline_fire_event(pipeline, number_new(0));
        break;
    default:
        weir_pipeline_fire_read(pipeline, number_new(0));
        break;
    }
    weir_promise_set(promise, 0);
    weir_promise_release(promise);
}

typedef struct stressor {
    pthread_t thread;
    stress *all;
    unsigned seed;
} stressor;

static void *run_stressor(void *arg)
{
    stressor *self = arg;
    for (int i = 0; i < STRESS_STEPS; i++) {
        unsigned what = (unsigned)rand_r(&self->seed) / 32 % 10;
        unsigned n = (unsigned)rand_r(&self->seed) / 64;
        do_something(self->all, self->all->channels[n % STRESS_CHANNELS], what, n / 8);
    }
    return NULL;
}

static void anything_from_four_threads_with_lanes_leaves_nothing(void **state)
{
    (void)state;
    stress all = { .loops = new_loops(2) };
    stressor stressors[STRESS_THREADS];
    weir_embedded *embedded[STRESS_CHANNELS];
    for (int i = 0; i < 2; i++)
        all.workers[i] = new_executors(2, false, NULL);
    for (int i = 0; i < STRESS_CHANNELS; i++) {
        weir_embedded_config config = { .group = all.loops };
        assert_int_equal(weir_embedded_new(&embedded[i], &config, NULL), 0);
        all.channels[i] = weir_embedded_channel(embedded[i]);
    }
    for (int i = 0; i < STRESS_THREADS; i++) {
        stressors[i] = (stressor){ .all = &all, .seed = (unsigned)i + 1 };
        assert_int_equal(pthread_create(&stressors[i].thread, NULL, run_stressor, &stressors[i]),
                         0);
    }
    for (int i = 0; i < STRESS_THREADS; i++)
        pthread_join(stressors[i].thread, NULL);
    for (int i = 0; i < STRESS_CHANNELS; i++) {
        assert_int_equal(weir_embedded_close(embedded[i]), 0);
        weir_embedded_free(embedded[i]);
    }
    end_group(all.loops); /* first, for its channels' handlers are with the workers to the end */
    for (int i = 0; i < 2; i++)
        end_group(all.workers[i]);
    assert_int_equal(all.answered, all.asked);
    assert_int_equal(all.removed, all.accepted);
    assert_true(all.added > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(events_are_carried_to_the_executor_and_back_in_order),
        weir_case(an_offloaded_handler_finds_the_input_closed_behind_the_last_message),
        weir_case(every_handler_hears_of_the_end_before_it_is_removed),
        weir_case(a_flush_does_not_overtake_the_write_before_it),
        weir_case(the_end_of_a_batch_does_not_overtake_its_reads),
        weir_case(two_lanes_in_a_row_lead_back_to_the_loop),
        weir_case(upgrade_fails_while_messages_return),
        weir_case(upgrade_fails_while_messages_are_posted),
        weir_case(upgrade_fails_with_a_message_at_any_executor),
        weir_case(upgrade_succeeds_with_no_message_in_flight),
        weir_case(offloaded_handler_upgrades_in_its_own_callback),
        weir_case(a_channels_handlers_of_one_group_share_an_executor_and_channels_do_not),
        weir_case(added_and_removed_run_once_on_the_executor),
        weir_case(a_failing_added_elsewhere_raises_the_error_and_closes),
        weir_case(failed_add_elsewhere_with_a_promise_leaves_the_channel_open),
        weir_case(closed_without_a_loop_completes_after_every_removed),
        weir_case(close_without_a_loop_may_come_from_any_thread),
        weir_case(events_on_their_way_to_a_handler_that_leaves_keep_their_order),
        weir_case(a_handler_elsewhere_can_be_replaced_without_losing_order),
        weir_case(one_lane_can_follow_another_without_losing_order),
        weir_case(a_handler_can_remove_itself_on_its_executor),
        weir_case(a_write_from_there_tells_the_channels_loop),
        weir_case(a_write_from_there_tells_the_executor_that_its_promise_is_bound_to),
        weir_case(a_failure_there_is_heard_by_the_handler_first_then_behind_it),
        weir_case(a_close_from_there_ends_every_handler_in_order),
        weir_case(timers_of_a_handler_there_fire_there_and_end_with_it),
        weir_case(reading_pauses_above_the_bound_and_goes_on_below_half_of_it),
        weir_case(a_channel_whose_executor_has_ended_is_told_and_closes),
        weir_case(adding_to_a_terminated_executor_raises_an_error_and_closes),
        weir_case(event_after_one_that_an_executor_rejected_is_not_delivered),
        weir_case(any_allocation_may_fail_on_the_way_to_a_lane),
        weir_case(lack_of_memory_loses_no_flush_on_its_way_to_a_lane),
        weir_case(message_lost_on_its_way_back_is_an_error),
        weir_case(no_write_follows_one_that_was_refused_without_memory),
        weir_case(handler_removed_on_the_loop_may_pass_events_on),
        weir_case(without_memory_answers_from_there_end_without_a_gap),
        weir_case(two_moves_through_a_lane_both_come_to_an_end),
        weir_case(a_move_and_a_deregistration_through_a_lane_leave_it_on_a_loop),
        weir_case(move_waits_for_its_own_deregistration),
        weir_case(a_close_while_a_move_is_in_a_lane_ends_its_promise),
        weir_case(s011_a_job_on_another_thread_does_not_hold_up_the_loop),
        weir_case(s154_handlers_run_on_their_group_and_the_order_of_each_channel_holds),
        weir_case(a_channel_moves_while_events_are_on_their_way),
        weir_case(a_channel_closes_while_its_handler_is_busy_elsewhere),
        weir_case(a_loop_ends_while_a_handler_of_its_channel_is_busy_elsewhere),
        weir_case(loop_that_ends_before_removed_returns_lets_the_channel_go),
        weir_case(a_group_ends_while_its_handler_is_busy),
        weir_case(a_context_belongs_to_its_handlers_executor),
        weir_case(anything_from_four_threads_with_lanes_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
