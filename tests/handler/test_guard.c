/* SPDX-License-Identifier: MIT */
/* Guards: each time that a connection must keep, and the limits. */
#include "bootstrap/servers.h"

#include <weir/embedded.h>
#include <weir/guard.h>

#include <errno.h>
#include <limits.h>
#include <string.h>

static weir_hold hold;

#define OFF                                                                                        \
    .first_byte_ns = WEIR_OFF, .idle_ns = WEIR_OFF, .write_ns = WEIR_OFF, .total_ns = WEIR_OFF,    \
    .expected_ns = WEIR_OFF

static int add_guard(weir_channel *channel, void *arg)
{
    return weir_guard_add(arg, channel);
}

static weir_guard *guard_of(weir_guard_config config)
{
    weir_guard *guard;
    assert_int_equal(weir_guard_new(&guard, &config, NULL), 0);
    return guard;
}

/* The channel keeps the guard. */
static weir_embedded *begin_with(weir_guard *guard)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_guard, .arg = guard };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void read_bytes(weir_embedded *embedded, size_t length)
{
    static const char bytes[1000];
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, bytes, length), 0);
    weir_msg_release(weir_embedded_read_inbound(embedded));
}

static void write_something(weir_embedded *embedded)
{
    weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("x", 1)));
}

static weir_guard_stats guard_stats(weir_guard *guard)
{
    weir_guard_stats stats;
    weir_guard_get_stats(guard, &stats);
    return stats;
}

static bool is_open(weir_embedded *embedded)
{
    return weir_channel_is_open(weir_embedded_channel(embedded));
}

static void end(weir_embedded *embedded, weir_guard *guard)
{
    weir_embedded_finish(embedded, NULL);
    weir_embedded_free(embedded);
    assert_int_equal(guard_stats(guard).connections.open, 0);
    weir_guard_release(guard);
}

/* It is closed after so long, and not before, and the text says why. */
static void expect_cut(weir_embedded *embedded, int64_t ms, const char *text)
{
    weir_error error;
    weir_embedded_advance(embedded, WEIR_MS(ms) - 1);
    assert_true(is_open(embedded));
    weir_embedded_advance(embedded, 1);
    assert_false(is_open(embedded));
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_int_equal(error.code, -ETIMEDOUT);
    assert_string_equal(error.message, text);
}

static void who_says_nothing_is_closed(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ 0 });
    weir_embedded *embedded = begin_with(guard);
    write_something(embedded); /* what we say is no help */
    expect_cut(embedded, 10000, "nothing came, for 10 s");
    assert_int_equal(guard_stats(guard).no_first_byte, 1);
    end(embedded, guard);
}

static void who_does_nothing_is_closed(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ 0 });
    weir_embedded *embedded = begin_with(guard);
    weir_embedded_advance(embedded, WEIR_MS(9999));
    read_bytes(embedded, 1);
    weir_embedded_advance(embedded, WEIR_MS(59999));
    write_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(59999));
    read_bytes(embedded, 1);
    expect_cut(embedded, 60000, "nothing came and nothing went, for 60 s");
    assert_int_equal(guard_stats(guard).idle, 1);
    assert_int_equal(guard_stats(guard).no_first_byte, 0);
    end(embedded, guard);
}

/* What went late counts from when it went. */
static void who_reads_slowly_is_not_idle(void **state)
{
    (void)state;
    weir_guard *guard =
        guard_of((weir_guard_config){ .first_byte_ns = WEIR_OFF, .idle_ns = WEIR_MS(1000) });
    weir_embedded *embedded = begin_with(guard);
    weir_embedded_accept(embedded, 0);
    write_something(embedded);
    weir_embedded_advance(embedded, WEIR_MS(900));
    weir_embedded_accept(embedded, SIZE_MAX);
    weir_embedded_run(embedded);
    weir_msg_release(weir_embedded_read_outbound(embedded));
    expect_cut(embedded, 1000, "nothing came and nothing went, for 1 s");
    end(embedded, guard);
}

static void largest_times_do_not_overflow(void **state)
{
    (void)state;
    weir_guard_config times = { .min_bytes_per_s = INT_MAX, .period_ns = INT64_MAX };
    times.first_byte_ns = times.idle_ns = times.write_ns = times.total_ns = INT64_MAX - 1;
    weir_guard *guard = guard_of(times);
    weir_embedded *embedded = begin_with(guard);
    weir_guard_expect(weir_embedded_channel(embedded));
    weir_embedded_advance(embedded, WEIR_SECONDS(5));
    assert_true(is_open(embedded));
    end(embedded, guard);
}

static void exempt_channel_may_be_silent(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){
        .first_byte_ns = WEIR_MS(1000), .idle_ns = WEIR_MS(1000), .total_ns = WEIR_MS(5000) });
    weir_embedded *embedded = begin_with(guard);
    weir_guard_exempt(weir_embedded_channel(embedded));
    weir_embedded_advance(embedded, WEIR_SECONDS(3600));
    assert_true(is_open(embedded));
    weir_guard_expect(weir_embedded_channel(embedded));
    weir_embedded_advance(embedded, WEIR_SECONDS(3600));
    assert_true(is_open(embedded));
    weir_guard_exempt(NULL);
    end(embedded, guard);
}

/* Though it goes on sending. */
static void who_takes_nothing_is_closed(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ .write_ns = WEIR_MS(1000) });
    weir_embedded *embedded = begin_with(guard);
    weir_embedded_accept(embedded, 0);
    read_bytes(embedded, 1);
    for (int i = 0; i < 4; i++)
        write_something(embedded);
    for (int i = 0; i < 3; i++) {
        weir_embedded_advance(embedded, WEIR_MS(900));
        read_bytes(embedded, 1);
        weir_embedded_accept(embedded, 1);
        weir_embedded_run(embedded);
    }
    assert_true(is_open(embedded));
    for (int i = 0; i < 4; i++) {
        if (is_open(embedded))
            read_bytes(embedded, 1);
        weir_embedded_advance(embedded, WEIR_MS(500));
    }
    assert_false(is_open(embedded));
    assert_int_equal(guard_stats(guard).not_taken, 1);
    end(embedded, guard);
}

static void nothing_lasts_for_ever(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ .total_ns = WEIR_MS(5000) });
    weir_embedded *embedded = begin_with(guard);
    for (int i = 0; i < 4; i++) {
        weir_embedded_advance(embedded, WEIR_MS(1000));
        read_bytes(embedded, 1);
    }
    expect_cut(embedded, 1000, "the connection is open, for 5 s");
    assert_int_equal(guard_stats(guard).too_old, 1);
    end(embedded, guard);
}

static void what_is_expected_has_to_come(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ 0 });
    weir_embedded *embedded = begin_with(guard);
    weir_channel *channel = weir_embedded_channel(embedded);
    read_bytes(embedded, 1);
    weir_embedded_advance(embedded, WEIR_MS(20000)); /* nothing is expected */
    weir_guard_expect(channel);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS(9999));
    weir_guard_has_come(channel);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS(15000));
    weir_guard_expect(channel);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS(5000));
    weir_guard_expect(channel); /* says nothing new */
    weir_embedded_run(embedded);
    for (int i = 0; i < 4; i++) {
        weir_embedded_advance(embedded, WEIR_MS(1000));
        read_bytes(embedded, 1); /* byte by byte is no way out */
    }
    expect_cut(embedded, 1000, "what is expected is not complete, for 10 s");
    assert_int_equal(guard_stats(guard).not_complete, 1);
    end(embedded, guard);
}

static void bytes_come_fast_enough(void **state)
{
    (void)state;
    weir_guard *guard =
        guard_of((weir_guard_config){ OFF, .min_bytes_per_s = 100, .period_ns = WEIR_MS(2000) });
    weir_embedded *embedded = begin_with(guard);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_embedded_advance(embedded, WEIR_MS(50000));
    weir_guard_expect(channel);
    weir_embedded_run(embedded);
    for (int i = 0; i < 10; i++) {
        weir_embedded_advance(embedded, WEIR_MS(1999));
        read_bytes(embedded, 200);
        weir_embedded_advance(embedded, WEIR_MS(1));
        assert_true(is_open(embedded));
    }
    /* Who does not read cannot complain. */
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, false, NULL), 0);
    weir_embedded_advance(embedded, WEIR_MS(20000));
    assert_true(is_open(embedded));
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, true, NULL), 0);
    weir_embedded_advance(embedded, WEIR_MS(2000)); /* in which it began to read */
    read_bytes(embedded, 199);
    expect_cut(embedded, 2000, "fewer bytes come than are expected, for 2 s");
    assert_int_equal(guard_stats(guard).too_slow, 1);
    end(embedded, guard);
}

static int resume(void *arg)
{
    return weir_channel_set_option(arg, WEIR_OPTION_AUTO_READ, true, NULL);
}

/* Nor who did not read for a part of the time, for whatever reason. */
static void who_is_not_read_from_is_not_slow(void **state)
{
    (void)state;
    weir_guard *guard =
        guard_of((weir_guard_config){ OFF, .min_bytes_per_s = 100, .period_ns = WEIR_MS(2000) });
    weir_embedded *embedded = begin_with(guard);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_guard_expect(channel);
    weir_embedded_run(embedded);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, false, NULL), 0);
    weir_embedded_advance(embedded, WEIR_MS(1900));
    assert_int_equal(weir_embedded_call(embedded, resume, channel), 0);
    weir_embedded_advance(embedded, WEIR_MS(1999));
    assert_true(is_open(embedded));
    read_bytes(embedded, 200);
    weir_embedded_advance(embedded, WEIR_MS(1));
    /* It does not read while what it has to say is not taken. */
    assert_int_equal(
        weir_channel_set_option(channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, true, NULL), 0);
    weir_channel_set_write_hold(channel, fresh_hold(&hold), true);
    weir_embedded_run(embedded);
    assert_false(weir_embedded_is_reading(embedded));
    weir_embedded_advance(embedded, WEIR_MS(20000));
    assert_true(is_open(embedded));
    weir_channel_set_write_hold(channel, &hold, false);
    weir_embedded_run(embedded);
    assert_true(weir_embedded_is_reading(embedded));
    weir_embedded_advance(embedded, WEIR_MS(4000));
    assert_false(is_open(embedded));
    weir_embedded_take_error(embedded, NULL);
    assert_int_equal(guard_stats(guard).too_slow, 1);
    end(embedded, guard);
}

static void all_of_it_can_be_off(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){
        OFF, .connections = { .max_total = WEIR_OFF, .max_per_address = WEIR_OFF } });
    weir_embedded *embedded = begin_with(guard);
    weir_guard_expect(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS((int64_t)1 << 36));
    assert_true(is_open(embedded));
    end(embedded, guard);
}

static void those_above_a_limit_are_refused(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ .connections = { .max_total = 1 } });
    weir_embedded *first = begin_with(guard), *second = begin_with(guard);
    assert_true(is_open(first));
    assert_false(is_open(second));
    assert_int_equal(guard_stats(guard).connections.open, 1);
    assert_int_equal(guard_stats(guard).connections.refused_total, 1);
    weir_embedded_finish(second, NULL);
    weir_embedded_free(second);
    end(first, guard);
}

static int add_guard_from(weir_channel *channel, void *arg)
{
    weir_address address;
    assert_int_equal(weir_address_parse(&address, "192.0.2.7:1", NULL), 0);
    assert_int_equal(weir_channel_set_remote_address(channel, &address), 0);
    return weir_guard_add(arg, channel);
}

static void those_above_the_limit_of_an_address_are_refused(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ .connections = { .max_per_address = 2 } });
    weir_embedded_config config = { .init = add_guard_from, .arg = guard };
    weir_embedded *visits[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_embedded_new(&visits[i], &config, NULL), 0);
        assert_true(is_open(visits[i]) == (i < 2));
    }
    assert_int_equal(guard_stats(guard).connections.refused_per_address, 1);
    assert_int_equal(guard_stats(guard).connections.refused_total, 0);
    for (int i = 1; i < 3; i++)
        weir_embedded_free(visits[i]);
    end(visits[0], guard);
}

static void numbers_that_make_no_sense_are_named(void **state)
{
    (void)state;
    static const struct {
        weir_guard_config config;
        const char *text;
    } rows[] = {
        { { .first_byte_ns = -2 }, "first_byte_ns is -2: write -1 or more" },
        { { .idle_ns = -2 }, "idle_ns is -2: write -1 or more" },
        { { .write_ns = -2 }, "write_ns is -2: write -1 or more" },
        { { .total_ns = -2 }, "total_ns is -2: write -1 or more" },
        { { .expected_ns = -2 }, "expected_ns is -2: write -1 or more" },
        { { .min_bytes_per_s = -2 }, "min_bytes_per_s is -2: write -1 or more" },
        { { .period_ns = -1 }, "period_ns is -1: write 0 or more" },
        { { .period_ns = 999999 }, "period_ns is 999999, less than a millisecond" },
        { { .connections.max_total = -2 }, "max_total is -2: write -1 to 2147483647" },
    };
    weir_guard *guard = NULL;
    weir_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(weir_guard_new(&guard, &rows[i].config, &error), -EINVAL);
        assert_string_equal(error.message, rows[i].text);
    }
    assert_int_equal(weir_guard_new(NULL, NULL, &error), -EINVAL);
    assert_int_equal(weir_guard_add(NULL, NULL), -EINVAL);
    assert_null(guard);
    weir_guard_expect(NULL);
    weir_guard_has_come(NULL);
    weir_guard_release(NULL);
}

/* Without a guard nobody hears of what is expected; with one nobody behind it does. */
static unsigned heard;

static void count_event(weir_ctx *ctx, weir_msg *event)
{
    heard++;
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type counter = { .name = "counter", .on_event = count_event };

static void only_the_guard_hears_what_is_expected(void **state)
{
    (void)state;
    weir_guard *guard = guard_of((weir_guard_config){ 0 });
    weir_embedded *embedded = begin_with(guard), *plain;
    heard = 0;
    assert_int_equal(weir_pipeline_add_last(weir_embedded_pipeline(embedded), "c", &counter, NULL),
                     0);
    weir_guard_expect(weir_embedded_channel(embedded));
    weir_guard_has_come(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    assert_int_equal(heard, 0);
    assert_int_equal(weir_embedded_new(&plain, NULL, NULL), 0);
    weir_guard_expect(weir_embedded_channel(plain));
    weir_embedded_run(plain);
    assert_true(is_open(plain));
    weir_embedded_finish(plain, NULL);
    weir_embedded_free(plain);
    end(embedded, guard);
}

/* Whatever a handler does when it hears. */
static bool closes, removes;
static char guard_name[64];

static void misbehave(weir_ctx *ctx, const weir_error *error)
{
    if (closes)
        weir_ctx_close(ctx, NULL);
    if (removes)
        weir_pipeline_remove(weir_channel_pipeline(weir_ctx_channel(ctx)), guard_name, NULL);
    weir_ctx_fire_error(ctx, error);
}

static const weir_handler_type misbehaving = { .name = "misbehaving", .on_error = misbehave };

static void handlers_may_do_anything_meanwhile(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        weir_guard *guard = guard_of((weir_guard_config){ 0 });
        weir_embedded *embedded = begin_with(guard);
        weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
        weir_handler_info info;
        closes = kind & 1;
        removes = kind & 2;
        assert_int_equal(weir_pipeline_at(pipeline, 1, &info), 0);
        snprintf(guard_name, sizeof guard_name, "%s", info.name);
        assert_int_equal(weir_pipeline_add_last(pipeline, "m", &misbehaving, NULL), 0);
        weir_embedded_advance(embedded, WEIR_MS(10000));
        assert_int_equal(guard_stats(guard).no_first_byte, 1);
        assert_true(is_open(embedded) == (kind == 2)); /* who removes it has the channel */
        end(embedded, guard);
    }
}

static void without_memory_nobody_goes_unguarded(void **state)
{
    (void)state;
    bool has_begun = false;
    for (int nth = 1; !has_begun; nth++) {
        weir_guard *guard = NULL;
        weir_embedded *embedded = NULL;
        harness_fail_nth("alloc", (unsigned)nth, -ENOMEM);
        int code = weir_guard_new(&guard, NULL, NULL);
        weir_embedded_config config = { .init = add_guard, .arg = guard };
        if (code == 0)
            code = weir_embedded_new(&embedded, &config, NULL);
        has_begun = harness_fail_end() < (unsigned)nth;
        if (code == 0) {
            weir_embedded_advance(embedded, WEIR_MS(10000));
            assert_false(is_open(embedded));
            weir_embedded_finish(embedded, NULL);
            weir_embedded_free(embedded);
        }
        weir_guard_release(guard);
    }
}

/* Both of its handlers, or none of them and no channel. */
static void half_a_guard_is_none(void **state)
{
    (void)state;
    bool has_begun = false;
    for (int nth = 1; !has_begun; nth++) {
        weir_guard *guard = guard_of((weir_guard_config){ 0 });
        weir_embedded *embedded;
        assert_int_equal(weir_embedded_new(&embedded, NULL, NULL), 0);
        const weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
        size_t before = weir_pipeline_count(pipeline);
        harness_fail_nth("alloc", (unsigned)nth, -ENOMEM);
        int code = weir_guard_add(guard, weir_embedded_channel(embedded));
        weir_embedded_run(embedded);
        has_begun = harness_fail_end() < (unsigned)nth;
        if (code < 0)
            assert_int_equal(weir_pipeline_count(pipeline), before);
        else if (is_open(embedded))
            assert_int_equal(weir_pipeline_count(pipeline), before + 2);
        weir_embedded_take_error(embedded, NULL);
        end(embedded, guard);
    }
}

/* Over sockets -----------------------------------------------------------------------------------
 */

static void children_of_a_server_are_guarded(void **state)
{
    weir_guard *guard = guard_of((weir_guard_config){ .first_byte_ns = WEIR_MS(50) });
    setup self;
    prepare(&self, *state, 1, 1);
    self.config.init = NULL;
    self.config.init_child = add_guard;
    self.config.arg = guard;
    listen_on(&self, EVERYWHERE);
    int peer = dial(self.server);
    hear_end(peer);
    close(peer);
    assert_int_equal(guard_stats(guard).no_first_byte, 1);
    close_all(&self);
    assert_int_equal(guard_stats(guard).connections.open, 0);
    weir_guard_release(guard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(who_says_nothing_is_closed),
        weir_case(who_does_nothing_is_closed),
        weir_case(who_reads_slowly_is_not_idle),
        weir_case(exempt_channel_may_be_silent),
        weir_case(largest_times_do_not_overflow),
        weir_case(who_takes_nothing_is_closed),
        weir_case(nothing_lasts_for_ever),
        weir_case(what_is_expected_has_to_come),
        weir_case(bytes_come_fast_enough),
        weir_case(who_is_not_read_from_is_not_slow),
        weir_case(all_of_it_can_be_off),
        weir_case(those_above_a_limit_are_refused),
        weir_case(those_above_the_limit_of_an_address_are_refused),
        weir_case(numbers_that_make_no_sense_are_named),
        weir_case(only_the_guard_hears_what_is_expected),
        weir_case(handlers_may_do_anything_meanwhile),
        weir_case(without_memory_nobody_goes_unguarded),
        weir_case(half_a_guard_is_none),
        each_backend(children_of_a_server_are_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
