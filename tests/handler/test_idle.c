/* SPDX-License-Identifier: MIT */
/* The idle handler and the timeout handlers. */
#include "harness.h"

#include <weir/embedded.h>
#include <weir/idle.h>
#include <weir/loop.h>
#include <weir/timeout.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What was heard, as letters: R, W, B, small when it was not the first; and a ping for each, on
 * request. */
typedef struct heard {
    weir_idle idle;
    char text[64];
    size_t count;
    bool pings;
    bool closes;
} heard;

static void heard_on_event(weir_ctx *ctx, weir_msg *event)
{
    heard *self = weir_ctx_arg(ctx);
    const weir_idle_event *idle = weir_idle_event_from(event);
    assert_non_null(idle);
    assert_true(self->count < sizeof self->text - 1);
    self->text[self->count++] = (idle->is_first ? "RWB" : "rwb")[idle->kind];
    if (self->pings)
        weir_ctx_write_and_flush(ctx, weir_buf_msg(weir_buf_from("ping", 4)), NULL);
    if (self->closes)
        weir_ctx_close(ctx, NULL);
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type listener = { .name = "listener", .on_event = heard_on_event };

static int add_both(weir_channel *channel, void *arg)
{
    heard *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "idle", &weir_idle_handler, &self->idle);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "listener", &listener, self);
}

static weir_embedded *begin(heard *self)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_both, .arg = self };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void expect(heard *self, const char *text)
{
    assert_string_equal(self->text, text);
    memset(self->text, 0, sizeof self->text);
    self->count = 0;
}

static void read_something(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "x", 1), 0);
    weir_msg_release(weir_embedded_read_inbound(embedded));
}

static void write_something(weir_embedded *embedded)
{
    weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("x", 1)));
    weir_msg_release(weir_embedded_read_outbound(embedded));
}

static void end(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static void readers_are_idle_when_nothing_comes(void **state)
{
    (void)state;
    heard self = { .idle = { .reader_ns = WEIR_MS(100) } };
    weir_embedded *embedded = begin(&self);
    weir_embedded_advance(embedded, WEIR_MS(99));
    expect(&self, "");
    weir_embedded_advance(embedded, WEIR_MS(1));
    expect(&self, "R");
    weir_embedded_advance(embedded, WEIR_MS(200));
    expect(&self, "rr");
    write_something(embedded);
    read_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(60));
    read_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(99));
    expect(&self, "");
    weir_embedded_advance(embedded, WEIR_MS(1));
    expect(&self, "R");
    end(embedded);
}

static void writers_are_idle_when_nothing_goes(void **state)
{
    (void)state;
    heard self = { .idle = { .writer_ns = WEIR_MS(100) } };
    weir_embedded *embedded = begin(&self);
    weir_embedded_advance(embedded, WEIR_MS(50));
    write_something(embedded);
    read_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(99));
    expect(&self, "");
    weir_embedded_advance(embedded, WEIR_MS(1));
    expect(&self, "W");
    weir_embedded_advance(embedded, WEIR_MS(100));
    expect(&self, "w");
    end(embedded);
}

static void both_means_neither_came_nor_went(void **state)
{
    (void)state;
    heard self = {
        .idle = { .reader_ns = WEIR_MS(300), .writer_ns = WEIR_MS(200), .both_ns = WEIR_MS(100) }
    };
    weir_embedded *embedded = begin(&self);
    weir_embedded_advance(embedded, WEIR_MS(60));
    read_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(60));
    write_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(99));
    expect(&self, "");
    weir_embedded_advance(embedded, WEIR_MS(1));
    expect(&self, "B"); /* at 220 */
    weir_embedded_advance(embedded, WEIR_MS(140));
    expect(&self, "WbR"); /* at 320, 320, 360 */
    end(embedded);
}

/* Output that waits for the other side is not idle as long as some of it goes. */
static void progress_is_observed(void **state)
{
    (void)state;
    heard self = { .idle = { .writer_ns = WEIR_MS(100) } };
    weir_embedded *embedded = begin(&self);
    weir_embedded_accept(embedded, 0);
    for (int i = 0; i < 4; i++)
        weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("x", 1)));
    weir_embedded_advance(embedded, WEIR_MS(50));
    weir_embedded_accept(embedded, 1);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS(99));
    expect(&self, "");
    weir_embedded_advance(embedded, WEIR_MS(1));
    expect(&self, "W"); /* at 150: some had gone at 50 */
    weir_embedded_accept(embedded, SIZE_MAX);
    weir_embedded_run(embedded);
    for (int i = 0; i < 4; i++)
        weir_msg_release(weir_embedded_read_outbound(embedded));
    end(embedded);
}

/* All of it went, at some time between two looks: then the time begins. */
static void what_went_late_is_not_forgotten(void **state)
{
    (void)state;
    heard self = { .idle = { .writer_ns = WEIR_MS(100), .both_ns = WEIR_MS(100) } };
    weir_embedded *embedded = begin(&self);
    weir_embedded_accept(embedded, 0);
    write_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(60));
    weir_embedded_accept(embedded, SIZE_MAX);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS(99));
    expect(&self, "");
    weir_embedded_advance(embedded, WEIR_MS(1));
    expect(&self, "WB"); /* at 160 */
    weir_msg_release(weir_embedded_read_outbound(embedded));
    end(embedded);
}

/* A heartbeat: a ping for each period without anything sent, and none while there is. */
static void s081_heartbeats_are_sent_when_idle_and_not_when_busy(void **state)
{
    (void)state;
    heard self = { .idle = { .writer_ns = WEIR_MS(100) }, .pings = true };
    weir_embedded *embedded = begin(&self);
    weir_embedded_advance(embedded, WEIR_MS(1000));
    expect(&self, "WWWWWWWWWW"); /* each is the first since the ping before it */
    assert_int_equal(weir_embedded_outbound_count(embedded), 10);
    while (weir_embedded_outbound_count(embedded) > 0)
        weir_msg_release(weir_embedded_read_outbound(embedded));
    for (int i = 0; i < 20; i++) {
        write_something(embedded);
        weir_embedded_advance(embedded, WEIR_MS(50));
    }
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    weir_embedded_advance(embedded, WEIR_MS(50));
    assert_int_equal(weir_embedded_outbound_count(embedded), 1);
    weir_msg_release(weir_embedded_read_outbound(embedded));
    end(embedded);
}

/* Whatever is looked for, and whatever comes and goes. */
static void there_is_one_timer(void **state)
{
    (void)state;
    heard self = {
        .idle = { .reader_ns = WEIR_MS(1000), .writer_ns = WEIR_MS(700), .both_ns = WEIR_MS(300) }
    };
    weir_embedded *embedded = begin(&self);
    for (int i = 0; i < 500; i++) {
        weir_executor_stats stats;
        read_something(embedded);
        write_something(embedded);
        weir_embedded_advance(embedded, WEIR_MS(10));
        weir_executor_get_stats(weir_embedded_executor(embedded), &stats);
        assert_int_equal(stats.timers, 1);
    }
    expect(&self, "");
    end(embedded);
}

/* Nothing that comes or goes puts it off: it fires when it would have, and looks. */
static void messages_do_not_touch_the_timer(void **state)
{
    (void)state;
    static const weir_idle idle = { WEIR_MS(100), WEIR_MS(100), WEIR_MS(100) };
    static const weir_timeout timeout = { WEIR_MS(100) };
    static const struct {
        const weir_handler_type *type;
        const void *arg;
    } rows[] = {
        { &weir_idle_handler, &idle },
        { &weir_read_timeout_handler, &timeout },
        { &weir_write_timeout_handler, &timeout },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded;
        assert_int_equal(weir_embedded_new(&embedded, NULL, NULL), 0);
        assert_int_equal(weir_pipeline_add_last(weir_embedded_pipeline(embedded), "watcher",
                                                rows[i].type, (void *)rows[i].arg),
                         0);
        weir_embedded_run(embedded);
        weir_loop *loop = weir_channel_loop(weir_embedded_channel(embedded));
        for (int ms = 0; ms < 100; ms++) {
            assert_int_equal(weir_loop_next_ns(loop), WEIR_MS(100 - ms));
            read_something(embedded);
            write_something(embedded);
            weir_embedded_advance(embedded, WEIR_MS(1));
        }
        assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
        end(embedded);
    }
}

static void who_closes_in_the_event_is_told_no_more(void **state)
{
    (void)state;
    heard self = {
        .idle = { .reader_ns = WEIR_MS(100), .writer_ns = WEIR_MS(100), .both_ns = WEIR_MS(100) },
        .closes = true
    };
    weir_embedded *embedded = begin(&self);
    weir_embedded_advance(embedded, WEIR_MS(1000));
    expect(&self, "RWB"); /* all of the same moment */
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    end(embedded);
}

static int remove_idle(void *arg)
{
    return weir_pipeline_remove(arg, "idle", NULL);
}

static void who_is_removed_watches_no_more(void **state)
{
    (void)state;
    heard self = { .idle = { .reader_ns = WEIR_MS(100) } };
    weir_embedded *embedded = begin(&self);
    weir_embedded_call(embedded, remove_idle, weir_embedded_pipeline(embedded));
    weir_embedded_advance(embedded, WEIR_MS(1000));
    expect(&self, "");
    end(embedded);
}

/* Not before the channel is connected. */
static void the_time_begins_when_it_is_active(void **state)
{
    (void)state;
    heard self = { .idle = { .reader_ns = WEIR_MS(100) } };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_both, .arg = &self, .is_unconnected = true };
    weir_address address;
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_embedded_advance(embedded, WEIR_MS(1000));
    expect(&self, "");
    assert_int_equal(weir_address_parse(&address, "127.0.0.1:1", NULL), 0);
    weir_channel_connect(weir_embedded_channel(embedded), &address, NULL, NULL);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS(100));
    expect(&self, "R");
    end(embedded);
}

static void times_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const weir_idle rows[] = { { 0 },
                                      { .reader_ns = -2 },
                                      { .both_ns = WEIR_MS(5), .writer_ns = -2 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heard self = { .idle = rows[i] };
        weir_embedded *embedded;
        weir_embedded_config config = { .init = add_both, .arg = &self };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), -EINVAL);
    }
}

/* Timeouts ------------------------------------------------------------------------------------- */

typedef struct limited {
    const weir_handler_type *type;
    weir_timeout timeout;
} limited;

static int add_limit(weir_channel *channel, void *arg)
{
    limited *self = arg;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "limit", self->type,
                                  &self->timeout);
}

static weir_embedded *begin_limited(limited *self)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_limit, .arg = self };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void expect_timeout(weir_embedded *embedded, const char *text)
{
    weir_error error;
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_int_equal(error.code, -ETIMEDOUT);
    assert_string_equal(error.message, text);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
}

static void who_sends_nothing_is_closed(void **state)
{
    (void)state;
    limited self = { &weir_read_timeout_handler, { .timeout_ns = WEIR_MS(100) } };
    weir_embedded *embedded = begin_limited(&self);
    for (int i = 0; i < 5; i++) {
        weir_embedded_advance(embedded, WEIR_MS(99));
        read_something(embedded);
    }
    write_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(99));
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    weir_embedded_advance(embedded, WEIR_MS(1));
    expect_timeout(embedded, "nothing was read for 100 ms");
    end(embedded);
}

static void who_takes_nothing_is_closed(void **state)
{
    (void)state;
    limited self = { &weir_write_timeout_handler, { .timeout_ns = WEIR_MS(100) } };
    weir_embedded *embedded = begin_limited(&self);
    weir_embedded_advance(embedded, WEIR_MS(1050)); /* there is nothing to take */
    weir_embedded_accept(embedded, 0);
    for (int i = 0; i < 4; i++)
        weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("x", 1)));
    for (int i = 0; i < 3; i++) {
        weir_embedded_advance(embedded, WEIR_MS(90));
        weir_embedded_accept(embedded, 1);
        weir_embedded_run(embedded);
        weir_msg_release(weir_embedded_read_outbound(embedded));
    }
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    weir_embedded_advance(embedded, WEIR_MS(200));
    expect_timeout(embedded, "the other side has taken nothing for 100 ms");
    end(embedded);
}

/* Whatever a handler does when it hears, and also without memory for the timer. */
static bool removes;

static void misbehave(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_pipeline *pipeline = weir_ctx_pipeline(ctx);
    if (removes)
        assert_int_equal(weir_pipeline_remove(pipeline, "limit", NULL), 0);
    else
        weir_ctx_close(ctx, NULL);
}

static const weir_handler_type misbehaving = { .name = "misbehaving", .on_error = misbehave };

static void handlers_may_do_anything_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        limited self = { i % 2 ? &weir_read_timeout_handler : &weir_write_timeout_handler,
                         { 100 } };
        weir_embedded *embedded = begin_limited(&self);
        removes = i / 2;
        assert_int_equal(
            weir_pipeline_add_last(weir_embedded_pipeline(embedded), "m", &misbehaving, NULL), 0);
        weir_embedded_accept(embedded, 0);
        weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("x", 1)));
        weir_embedded_advance(embedded, WEIR_MS(1000));
        assert_true(weir_channel_is_open(weir_embedded_channel(embedded)) == removes);
        end(embedded);
    }
}

static void without_memory_nobody_goes_unwatched(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool has_begun = false;
        for (unsigned nth = 1; !has_begun; nth++) {
            limited self = { i ? &weir_read_timeout_handler : &weir_write_timeout_handler,
                             { 100 } };
            weir_embedded *embedded = NULL;
            weir_embedded_config config = { .init = add_limit, .arg = &self };
            harness_fail_nth("alloc", nth, -ENOMEM);
            int code = weir_embedded_new(&embedded, &config, NULL);
            has_begun = harness_fail_end() < nth;
            if (code < 0)
                continue;
            weir_embedded_accept(embedded, 0);
            weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("x", 1)));
            weir_embedded_advance(embedded, WEIR_MS(300));
            assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
            weir_embedded_free(embedded);
        }
    }
}

static void a_timeout_needs_a_time(void **state)
{
    (void)state;
    static const int64_t times[] = { 0, -1, INT64_MAX };
    for (size_t i = 0; i < 6; i++) {
        limited self = { i % 2 ? &weir_read_timeout_handler : &weir_write_timeout_handler,
                         { times[i / 2] } };
        weir_embedded *embedded;
        weir_embedded_config config = { .init = add_limit, .arg = &self };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(readers_are_idle_when_nothing_comes),
        weir_case(writers_are_idle_when_nothing_goes),
        weir_case(both_means_neither_came_nor_went),
        weir_case(progress_is_observed),
        weir_case(what_went_late_is_not_forgotten),
        weir_case(s081_heartbeats_are_sent_when_idle_and_not_when_busy),
        weir_case(there_is_one_timer),
        weir_case(messages_do_not_touch_the_timer),
        weir_case(who_closes_in_the_event_is_told_no_more),
        weir_case(who_is_removed_watches_no_more),
        weir_case(the_time_begins_when_it_is_active),
        weir_case(times_that_make_no_sense_are_refused),
        weir_case(who_sends_nothing_is_closed),
        weir_case(who_takes_nothing_is_closed),
        weir_case(handlers_may_do_anything_meanwhile),
        weir_case(without_memory_nobody_goes_unwatched),
        weir_case(a_timeout_needs_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
