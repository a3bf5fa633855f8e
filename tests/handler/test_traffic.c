/* SPDX-License-Identifier: MIT */
/* Traffic shaping on one channel: rates, order, limits, and every end. */
#include "exec/executors.h"

#include <weir/embedded.h>
#include <weir/file.h>
#include <weir/file_bytes.h>
#include <weir/traffic.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define KIB ((size_t)1024)

/* A shaped channel, and who listens behind the shaping. */
typedef struct world {
    weir_traffic config;
    weir_group *group; /* of the handler, NULL: the loop */
    weir_embedded *embedded;
    weir_channel *channel;
    const char *at; /* the callback in which the listener does this: */
    void (*act)(weir_ctx *ctx);
    unsigned unwritable, writable; /* how often it heard that */
    size_t read;                   /* bytes */
} world;

static void act_at(weir_ctx *ctx, const char *at)
{
    world *self = weir_ctx_arg(ctx);
    if (self->act == NULL || strcmp(self->at, at) != 0)
        return;
    void (*act)(weir_ctx * ctx) = self->act;
    self->act = NULL;
    act(ctx);
}

static void listener_on_read(weir_ctx *ctx, weir_msg *msg)
{
    world *self = weir_ctx_arg(ctx);
    self->read += weir_msg_size(msg);
    weir_msg_release(msg);
    act_at(ctx, "read");
}

static void listener_on_writability(weir_ctx *ctx)
{
    world *self = weir_ctx_arg(ctx);
    if (weir_channel_is_writable(self->channel))
        self->writable++;
    else
        self->unwritable++;
    act_at(ctx, "writability");
}

static void listener_on_inactive(weir_ctx *ctx)
{
    act_at(ctx, "inactive");
    weir_ctx_fire_inactive(ctx);
}

static void listener_on_error(weir_ctx *ctx, const weir_error *error)
{
    act_at(ctx, "error");
    weir_ctx_fire_error(ctx, error);
}

static const weir_handler_type listener_type = {
    .name = "listener",
    .on_read = listener_on_read,
    .on_writability = listener_on_writability,
    .on_inactive = listener_on_inactive,
    .on_error = listener_on_error,
};

/* Nearer to the head than the shaping: what it does, it does inside a write or flush of that. */
static void inner_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    act_at(ctx, "write");
    weir_ctx_write(ctx, msg, promise);
}

static void inner_flush(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
    act_at(ctx, "flush");
}

static const weir_handler_type inner_type = {
    .name = "inner",
    .write = inner_write,
    .flush = inner_flush,
};

static int add_all(weir_channel *channel, void *arg)
{
    world *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config traffic = {
        .type = &weir_traffic_handler,
        .name = "traffic",
        .arg = &self->config,
        .place = WEIR_PLACE_LAST,
        .group = self->group,
    };
    int code = weir_pipeline_add_last(pipeline, "inner", &inner_type, self);
    if (code == 0)
        code = weir_pipeline_add(pipeline, &traffic, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "listener", &listener_type, self);
}

static void begin(world *self)
{
    weir_embedded_config config = { .init = add_all, .arg = self };
    assert_int_equal(weir_embedded_new(&self->embedded, &config, NULL), 0);
    self->channel = weir_embedded_channel(self->embedded);
}

static void end(world *self)
{
    assert_int_equal(weir_embedded_finish(self->embedded, NULL), 0);
    weir_embedded_free(self->embedded);
}

static weir_msg *bytes(size_t size)
{
    weir_buf *buf = weir_buf_new(size);
    assert_int_equal(weir_buf_write_fill(buf, 'x', size), 0);
    return &buf->msg;
}

static weir_msg *text(const char *content)
{
    return &weir_buf_from(content, strlen(content))->msg;
}

static weir_promise *put(world *self, weir_msg *msg)
{
    weir_promise *promise = weir_channel_promise(self->channel);
    weir_channel_write(self->channel, msg, promise);
    weir_embedded_run(self->embedded);
    return promise;
}

static weir_promise *put_and_flush(world *self, weir_msg *msg)
{
    weir_promise *promise = put(self, msg);
    weir_embedded_flush(self->embedded);
    return promise;
}

static int code_of(weir_promise *promise)
{
    return weir_future_code(weir_promise_future(promise));
}

static int end_of(weir_promise *promise)
{
    int code = code_of(promise);
    weir_promise_release(promise);
    return code;
}

/* How many bytes have gone out since. */
static size_t take_sent(world *self)
{
    size_t sent = 0;
    for (weir_msg *msg; (msg = weir_embedded_read_outbound(self->embedded)) != NULL;) {
        sent += weir_msg_size(msg);
        weir_msg_release(msg);
    }
    return sent;
}

static void expect_text(world *self, const char *content)
{
    char sent[256] = { 0 };
    weir_embedded_read_outbound_bytes(self->embedded, sent, sizeof sent - 1);
    assert_string_equal(sent, content);
}

static void pass_time(world *self, int64_t ms)
{
    weir_embedded_advance(self->embedded, WEIR_MS(ms));
}

static weir_traffic_stats stats_of_channel(world *self)
{
    weir_traffic_stats stats;
    weir_shaper_get_stats(weir_channel_shaper(self->channel), &stats);
    return stats;
}

static uint64_t timers(world *self)
{
    weir_executor_stats stats;
    weir_executor_get_stats(weir_embedded_executor(self->embedded), &stats);
    return stats.timers;
}

static void set_limits(world *self, weir_traffic_limits limits)
{
    assert_int_equal(weir_shaper_set_limits(weir_channel_shaper(self->channel), &limits, NULL), 0);
}

static void assert_near(uint64_t value, uint64_t expected)
{
    assert_in_range(value, expected * 98 / 100, expected * 102 / 100 + 1);
}

/* How fast ------------------------------------------------------------------------------------- */

/* Whoever writes as much as there is room for, and for each moment the sum of the bytes: none of
 * the times between two moments has more than it may. */
static void writes_keep_to_the_rate(void **state)
{
    (void)state;
    static const struct {
        int64_t rate, burst;
        size_t size;
    } rows[] = { { 100000, 10000, 1000 },      { 100000, 0, 999 }, { 1000, 1000, 1 },
                 { 1000000, 1, 4096 },         { 777, 777, 13 },   { 50 * KIB * KIB, 0, 64 * KIB },
                 { 1000003, 250000, 17 * KIB } };
    enum { SECONDS = 10, STEP_MS = 10, STEPS = SECONDS * 1000 / STEP_MS };
    static uint64_t sums[STEPS + 1];
    for (size_t i = 0; i < COUNT(rows); i++) {
        world self = { .config.each = { .write_bytes_per_second = rows[i].rate,
                                        .write_burst_bytes = rows[i].burst } };
        int64_t burst = rows[i].burst > 0 ? rows[i].burst : rows[i].rate / 10;
        int64_t most = burst > (int64_t)rows[i].size ? burst : (int64_t)rows[i].size;
        begin(&self);
        uint64_t sum = 0;
        for (int step = 0; step <= STEPS; step++) {
            while (weir_channel_is_writable(self.channel))
                weir_embedded_write_outbound(self.embedded, bytes(rows[i].size));
            sums[step] = sum += take_sent(&self);
            pass_time(&self, STEP_MS);
        }
        assert_near(sums[STEPS], (uint64_t)(rows[i].rate * SECONDS + burst));
        for (int from = 0; from <= STEPS; from++) {
            for (int to = from; to <= STEPS; to += from % 7 + 1) {
                uint64_t passed = sums[to] - (from > 0 ? sums[from - 1] : 0);
                int64_t ms = (int64_t)(to - from + (from > 0)) * STEP_MS;
                assert_true(passed <= (uint64_t)(most + rows[i].rate * ms / 1000 + 1));
            }
        }
        weir_embedded_close(self.embedded);
        take_sent(&self);
        end(&self);
    }
}

static void a_burst_goes_at_once(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000, .write_burst_bytes = 500 } };
    begin(&self);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 10; i++)
            weir_embedded_write_outbound(self.embedded, bytes(100));
        assert_int_equal(take_sent(&self), 500);
        pass_time(&self, 99);
        assert_int_equal(take_sent(&self), 0);
        pass_time(&self, 1);
        assert_int_equal(take_sent(&self), 100);
        pass_time(&self, 5000); /* the rest, and then a rest */
        assert_int_equal(take_sent(&self), 400);
        assert_int_equal(timers(&self), 0);
    }
    end(&self);
}

/* It goes when all of it is allowed, and not later than that. */
static void a_large_message_goes_in_time(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000, .write_burst_bytes = 500 } };
    begin(&self);
    weir_embedded_write_outbound(self.embedded, bytes(2500));
    pass_time(&self, 1999);
    assert_int_equal(take_sent(&self), 0);
    pass_time(&self, 1);
    assert_int_equal(take_sent(&self), 2500);
    weir_embedded_write_outbound(self.embedded, bytes(60000)); /* would take a minute */
    pass_time(&self, 3999);
    assert_int_equal(take_sent(&self), 0);
    pass_time(&self, 1);
    assert_int_equal(take_sent(&self), 60000);
    set_limits(&self,
               (weir_traffic_limits){ .write_bytes_per_second = 1, .max_wait_ns = WEIR_MS(50) });
    weir_embedded_write_outbound(self.embedded, bytes(60000));
    pass_time(&self, 50);
    assert_int_equal(take_sent(&self), 60000);
    end(&self);
}

/* Also when the limits have become such that it would take longer. */
static void slower_limits_do_not_keep_a_message(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000000,
                                    .write_burst_bytes = 1,
                                    .read_bytes_per_second = 1000000,
                                    .read_burst_bytes = 1 } };
    begin(&self);
    weir_embedded_write_outbound(self.embedded, bytes(3000000));
    weir_embedded_write_inbound(self.embedded, bytes(3000000));
    set_limits(&self,
               (weir_traffic_limits){ .write_bytes_per_second = 1, .read_bytes_per_second = 1 });
    pass_time(&self, 999);
    assert_int_equal(take_sent(&self), 0);
    assert_false(weir_embedded_is_reading(self.embedded));
    pass_time(&self, 4001);
    assert_int_equal(take_sent(&self), 3000000);
    assert_true(weir_embedded_is_reading(self.embedded));
    end(&self);
}

static void without_limits_all_passes(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self);
    for (int i = 0; i < 1000; i++)
        weir_embedded_write_outbound(self.embedded, bytes(KIB));
    assert_int_equal(take_sent(&self), 1000 * KIB);
    weir_embedded_write_inbound(self.embedded, bytes(10 * KIB * KIB));
    assert_true(weir_embedded_is_reading(self.embedded));
    assert_int_equal(stats_of_channel(&self).written_bytes, 1000 * KIB);
    assert_int_equal(stats_of_channel(&self).read_bytes, 10 * KIB * KIB);
    end(&self);
}

/* Who asks often gains less than a byte each time. */
static void fractions_of_bytes_add_up(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 100, .write_burst_bytes = 10 } };
    begin(&self);
    for (int ms = 0; ms < 10000; ms++) {
        if (ms % 100 == 0)
            weir_embedded_write_outbound(self.embedded, bytes(20));
        weir_embedded_write_inbound(self.embedded, bytes(1)); /* which looks at both */
        pass_time(&self, 1);
    }
    assert_near(take_sent(&self), 1000 + 10);
    weir_embedded_close(self.embedded);
    end(&self);
}

static void limits_can_be_changed(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000 } };
    begin(&self);
    assert_int_equal(weir_channel_set_water_marks(self.channel, KIB * KIB, KIB * KIB), 0);
    for (int i = 0; i < 2000; i++)
        weir_embedded_write_outbound(self.embedded, bytes(100));
    pass_time(&self, 10000);
    assert_near(take_sent(&self), 10000);
    set_limits(&self, (weir_traffic_limits){ .write_bytes_per_second = 10000 });
    pass_time(&self, 1000);
    take_sent(&self);
    pass_time(&self, 10000);
    assert_near(take_sent(&self), 100000);
    set_limits(&self, (weir_traffic_limits){ .write_bytes_per_second = 200 });
    pass_time(&self, 1000);
    take_sent(&self);
    pass_time(&self, 10000);
    assert_in_range(take_sent(&self), 1900, 2100);
    set_limits(&self, (weir_traffic_limits){ 0 });
    pass_time(&self, 1000);
    assert_true(take_sent(&self) > 50000); /* all of it */
    assert_int_equal(stats_of_channel(&self).delayed_bytes, 0);
    assert_int_equal(timers(&self), 0);
    set_limits(&self, (weir_traffic_limits){ .write_bytes_per_second = 1000 });
    weir_embedded_write_outbound(self.embedded, bytes(100)); /* a burst, as at first */
    assert_int_equal(take_sent(&self), 100);
    weir_embedded_write_outbound(self.embedded, bytes(100));
    assert_int_equal(take_sent(&self), 0);
    pass_time(&self, 100);
    assert_int_equal(take_sent(&self), 100);
    weir_traffic_limits limits;
    weir_shaper_get_limits(weir_channel_shaper(self.channel), &limits);
    assert_int_equal(limits.write_bytes_per_second, 1000);
    end(&self);
}

/* In order ------------------------------------------------------------------------------------- */

static void order_flushes_and_promises_are_kept(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 10, .write_burst_bytes = 3 } };
    begin(&self);
    weir_promise *promises[6];
    const char *words[] = { "a", "bc", "def", "g", "hi", "" };
    for (int i = 0; i < 4; i++)
        promises[i] = put(&self, text(words[i]));
    weir_embedded_flush(self.embedded);
    promises[4] = put(&self, text(words[4]));
    promises[5] = put(&self, text(words[5]));
    expect_text(&self, "abc");
    assert_int_equal(code_of(promises[1]), 0);
    assert_int_equal(code_of(promises[2]), -EINPROGRESS);
    pass_time(&self, 300);
    expect_text(&self, "def");
    assert_int_equal(code_of(promises[2]), 0);
    assert_int_equal(code_of(promises[3]), -EINPROGRESS);
    pass_time(&self, 5000);
    expect_text(&self, "g");
    assert_int_equal(code_of(promises[4]), -EINPROGRESS); /* was not flushed */
    assert_int_equal(timers(&self), 0);
    weir_embedded_flush(self.embedded);
    expect_text(&self, "hi");
    for (int i = 0; i < 6; i++)
        assert_int_equal(end_of(promises[i]), 0);
    end(&self);
}

static void what_is_cancelled_is_left_out(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 10, .write_burst_bytes = 1 } };
    begin(&self);
    weir_promise *first = put_and_flush(&self, text("a"));
    weir_promise *second = put_and_flush(&self, text("bbbbbbbbbbbbbbbbbbbb"));
    weir_promise *third = put_and_flush(&self, text("c"));
    expect_text(&self, "a");
    assert_int_equal(weir_future_cancel(weir_promise_future(second)), 0);
    pass_time(&self, 1000); /* when it looks again, before the second's time */
    expect_text(&self, "c");
    assert_int_equal(end_of(first), 0);
    assert_int_equal(end_of(second), -ECANCELED);
    assert_int_equal(end_of(third), 0);
    end(&self);
}

/* How much ------------------------------------------------------------------------------------- */

static void it_is_unwritable_above_the_mark(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000, .write_burst_bytes = 1 } };
    begin(&self);
    assert_int_equal(weir_channel_set_water_marks(self.channel, 200, 400), 0);
    assert_int_equal(
        weir_channel_set_option(self.channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1, NULL), 0);
    for (int i = 0; i < 4; i++)
        weir_embedded_write_outbound(self.embedded, bytes(100));
    assert_true(weir_channel_is_writable(self.channel));
    assert_true(weir_embedded_is_reading(self.embedded));
    weir_embedded_write_outbound(self.embedded, bytes(1));
    assert_false(weir_channel_is_writable(self.channel));
    assert_false(weir_embedded_is_reading(self.embedded));
    assert_int_equal(self.unwritable, 1);
    pass_time(&self, 100);
    assert_false(weir_channel_is_writable(self.channel)); /* 301 wait */
    pass_time(&self, 100);
    assert_false(weir_channel_is_writable(self.channel)); /* 201 wait */
    pass_time(&self, 100);
    assert_true(weir_channel_is_writable(self.channel));
    assert_true(weir_embedded_is_reading(self.embedded));
    assert_int_equal(self.writable, 1);
    pass_time(&self, 1000);
    assert_int_equal(take_sent(&self), 401);
    assert_int_equal(self.unwritable + self.writable, 2);
    end(&self);
}

static void what_waits_is_limited(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000, .write_burst_bytes = 100 } };
    begin(&self);
    assert_int_equal(
        weir_channel_set_option(self.channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 500, NULL), 0);
    weir_embedded_accept(self.embedded, 0);
    weir_promise *in_channel = put_and_flush(&self, bytes(100));
    weir_promise *fits = put_and_flush(&self, bytes(400));
    assert_int_equal(end_of(put_and_flush(&self, bytes(1))), WEIR_ELIMIT);
    assert_int_equal(end_of(put_and_flush(&self, bytes(501))), WEIR_ELIMIT);
    assert_true(weir_channel_is_open(self.channel));
    weir_embedded_accept(self.embedded, SIZE_MAX);
    weir_embedded_run(self.embedded);
    assert_int_equal(end_of(in_channel), 0);
    weir_promise *fits_now = put_and_flush(&self, bytes(100));
    pass_time(&self, 500);
    assert_int_equal(take_sent(&self), 600);
    assert_int_equal(end_of(fits), 0);
    assert_int_equal(end_of(fits_now), 0);
    assert_int_equal(end_of(put_and_flush(&self, bytes(501))), WEIR_ELIMIT);
    weir_embedded_write_outbound(self.embedded,
                                 bytes(200)); /* does not wait for what does not go */
    pass_time(&self, 200);
    assert_int_equal(take_sent(&self), 200);
    weir_embedded_write_outbound(self.embedded, bytes(501)); /* who has no promise is told */
    weir_error error;
    assert_true(weir_embedded_take_error(self.embedded, &error));
    assert_int_equal(error.code, WEIR_ELIMIT);
    assert_false(weir_channel_is_open(self.channel));
    end(&self);
}

/* A file holds no memory, but its bytes count. */
static weir_msg *file_of(uint64_t length)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    weir_file_region *region = weir_file_region_new(fd, 0, length);
    assert_non_null(region);
    return &region->msg;
}

static void a_file_counts_as_its_length(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000, .write_burst_bytes = 1 } };
    begin(&self);
    weir_embedded_write_outbound(self.embedded, file_of(2001));
    assert_int_equal(stats_of_channel(&self).delayed_bytes, 2001);
    assert_true(weir_channel_is_writable(self.channel));
    pass_time(&self, 1999);
    assert_int_equal(weir_embedded_outbound_count(self.embedded), 0);
    pass_time(&self, 1);
    assert_int_equal(weir_embedded_outbound_count(self.embedded), 1);
    assert_int_equal(stats_of_channel(&self).written_bytes, 2001);
    take_sent(&self);
    end(&self);
}

/* Reading -------------------------------------------------------------------------------------- */

static void reads_keep_to_the_rate(void **state)
{
    (void)state;
    static const struct {
        int64_t rate, burst;
        size_t size;
    } rows[] = { { 100000, 10000, 1000 }, { 1000, 0, 60 }, { 1000000, 64 * KIB, 16 * KIB } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        world self = { .config.each = { .read_bytes_per_second = rows[i].rate,
                                        .read_burst_bytes = rows[i].burst } };
        begin(&self);
        for (int ms = 0; ms < 10000; ms++) {
            while (weir_embedded_is_reading(self.embedded))
                assert_int_equal(weir_embedded_write_inbound(self.embedded, bytes(rows[i].size)),
                                 0);
            pass_time(&self, 1);
        }
        assert_near(self.read, (uint64_t)rows[i].rate * 10 + (uint64_t)rows[i].burst);
        weir_traffic_stats stats = stats_of_channel(&self);
        assert_int_equal(stats.read_bytes, self.read);
        assert_near(stats.read_bytes_per_second, (uint64_t)rows[i].rate);
        assert_true(stats.read_paused_ns > WEIR_SECONDS(9));
        pass_time(&self, 3000);
        assert_true(weir_embedded_is_reading(self.embedded));
        assert_int_equal(timers(&self), 0);
        assert_int_equal(stats_of_channel(&self).reads_paused, 0);
        assert_int_equal(stats_of_channel(&self).read_bytes_per_second, 0);
        end(&self);
    }
}

static bool reads_by_itself(world *self)
{
    int64_t value = -1;
    weir_channel_get_option(self->channel, WEIR_OPTION_AUTO_READ, &value);
    return value == 1;
}

static void set_auto_read(world *self, bool is_auto_read)
{
    weir_channel_set_option(self->channel, WEIR_OPTION_AUTO_READ, is_auto_read, NULL);
    weir_embedded_run(self->embedded);
}

static void auto_read_stays_the_users(void **state)
{
    (void)state;
    world self = { .config.each = { .read_bytes_per_second = 1000, .read_burst_bytes = 1 } };
    begin(&self);
    weir_embedded_write_inbound(self.embedded, bytes(100));
    assert_false(weir_embedded_is_reading(self.embedded));
    assert_true(reads_by_itself(&self));
    assert_int_equal(stats_of_channel(&self).reads_paused, 1);
    set_auto_read(&self, false);
    pass_time(&self, 100);
    assert_false(weir_embedded_is_reading(self.embedded)); /* nobody asked */
    weir_channel_read(self.channel);
    weir_embedded_run(self.embedded);
    assert_true(weir_embedded_is_reading(self.embedded));
    weir_embedded_write_inbound(self.embedded, bytes(100));
    weir_channel_read(self.channel); /* asked for while it is paused */
    weir_embedded_run(self.embedded);
    assert_false(weir_embedded_is_reading(self.embedded));
    pass_time(&self, 100);
    assert_true(weir_embedded_is_reading(self.embedded));
    assert_false(reads_by_itself(&self));
    weir_embedded_write_inbound(self.embedded, bytes(100));
    set_auto_read(&self, true);
    assert_false(weir_embedded_is_reading(self.embedded));
    pass_time(&self, 100);
    assert_true(weir_embedded_is_reading(self.embedded));
    weir_embedded_write_inbound(self.embedded, bytes(100000)); /* would take 100 s */
    pass_time(&self, 3998);
    assert_false(weir_embedded_is_reading(self.embedded));
    pass_time(&self, 2);
    assert_true(weir_embedded_is_reading(self.embedded));
    end(&self);
}

/* Ends ----------------------------------------------------------------------------------------- */

static void a_shutdown_waits(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 10, .write_burst_bytes = 1 } };
    begin(&self);
    weir_promise *shutdown = weir_channel_promise(self.channel);
    weir_promise *first = put(&self, text("ab")), *second = put(&self, text("cd"));
    weir_channel_shutdown(self.channel, shutdown); /* which flushes */
    weir_embedded_run(self.embedded);
    assert_int_equal(end_of(put_and_flush(&self, text("e"))), -EPIPE);
    weir_promise *again = weir_channel_promise(self.channel);
    weir_channel_shutdown(self.channel, again);
    weir_embedded_run(self.embedded);
    assert_int_equal(end_of(again), -EALREADY);
    pass_time(&self, 299);
    expect_text(&self, "ab");
    assert_false(weir_embedded_is_output_shut(self.embedded));
    pass_time(&self, 1);
    expect_text(&self, "cd");
    assert_true(weir_embedded_is_output_shut(self.embedded));
    assert_int_equal(end_of(first), 0);
    assert_int_equal(end_of(second), 0);
    assert_int_equal(end_of(shutdown), 0);
    end(&self);
}

static void finishing_sends_all_of_it(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        world self = { .config.each = { .write_bytes_per_second = 10, .write_burst_bytes = 1 } };
        begin(&self);
        weir_promise *write = put_and_flush(&self, text("abcdefghijklmnopqrstu"));
        if (i == 0)
            weir_channel_finish(self.channel, NULL);
        else
            weir_embedded_end_inbound(self.embedded, 0);
        pass_time(&self, 1999);
        assert_true(weir_channel_is_open(self.channel));
        pass_time(&self, 1);
        expect_text(&self, "abcdefghijklmnopqrstu");
        assert_int_equal(end_of(write), 0);
        pass_time(&self, 5000);
        assert_false(weir_channel_is_open(self.channel));
        end(&self);
    }
}

/* Also when a shutdown is waiting already. */
static void finishing_waits_for_a_shutdown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        world self = { .config.each = { .write_bytes_per_second = 10, .write_burst_bytes = 1 } };
        begin(&self);
        weir_promise *shutdown = i == 0 ? weir_channel_promise(self.channel) : NULL;
        weir_promise *finish = weir_channel_promise(self.channel);
        weir_promise *write = put_and_flush(&self, text("abcdefghij"));
        weir_channel_shutdown(self.channel, shutdown);
        weir_channel_finish(self.channel, finish);
        weir_embedded_run(self.embedded);
        assert_true(weir_channel_is_open(self.channel));
        pass_time(&self, 1000);
        expect_text(&self, "abcdefghij");
        assert_int_equal(end_of(write), 0);
        if (shutdown != NULL)
            assert_int_equal(end_of(shutdown), 0);
        assert_true(weir_channel_is_open(self.channel));
        weir_embedded_end_inbound(self.embedded, 0);
        assert_false(weir_channel_is_open(self.channel));
        assert_int_equal(end_of(finish), 0);
        end(&self);
    }
}

static void act_expect_nothing(weir_ctx *ctx)
{
    weir_traffic_stats stats;
    weir_shaper_get_stats(weir_channel_shaper(weir_ctx_channel(ctx)), &stats);
    assert_int_equal(stats.delayed_messages, 0);
}

static void a_close_fails_what_waits(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 10, .write_burst_bytes = 1 },
                   .at = "inactive",
                   .act = act_expect_nothing };
    begin(&self);
    weir_promise *promises[5];
    promises[0] = put_and_flush(&self, text("a"));
    promises[1] = put_and_flush(&self, text("bc"));
    promises[2] = put(&self, text("de"));
    promises[3] = weir_channel_promise(self.channel);
    weir_embedded_write_inbound(self.embedded, bytes(100));
    weir_channel_shutdown(self.channel, promises[3]);
    weir_channel_close(self.channel, NULL);
    promises[4] = put_and_flush(&self, text("f"));
    weir_embedded_run(self.embedded);
    expect_text(&self, "a");
    assert_int_equal(end_of(promises[0]), 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(end_of(promises[i]), WEIR_ECLOSED);
    assert_true(end_of(promises[4]) < 0);
    assert_int_equal(stats_of_channel(&self).delayed_bytes, 0);
    assert_int_equal(stats_of_channel(&self).delayed_messages, 0);
    assert_int_equal(timers(&self), 0);
    end(&self);
}

static void who_is_removed_hands_all_on(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 10,
                                    .write_burst_bytes = 1,
                                    .read_bytes_per_second = 10 } };
    begin(&self);
    assert_int_equal(weir_channel_set_water_marks(self.channel, 1, 2), 0);
    weir_promise *flushed = put_and_flush(&self, text("abc"));
    weir_promise *unflushed = put(&self, text("def"));
    weir_embedded_write_inbound(self.embedded, bytes(100));
    assert_false(weir_embedded_is_reading(self.embedded));
    assert_int_equal(self.unwritable, 1);
    assert_int_equal(weir_pipeline_remove(weir_embedded_pipeline(self.embedded), "traffic", NULL),
                     0);
    weir_embedded_run(self.embedded);
    expect_text(&self, "abc");
    assert_true(weir_embedded_is_reading(self.embedded));
    assert_int_equal(end_of(flushed), 0);
    assert_int_equal(code_of(unflushed), -EINPROGRESS);
    weir_embedded_flush(self.embedded);
    expect_text(&self, "def");
    assert_int_equal(end_of(unflushed), 0);
    assert_true(weir_channel_is_writable(self.channel));
    assert_int_equal(timers(&self), 0);
    assert_int_equal(stats_of_channel(&self).written_bytes, 6);
    /* It may come back, and knows what was. */
    assert_int_equal(weir_pipeline_add_first(weir_embedded_pipeline(self.embedded), "traffic",
                                             &weir_traffic_handler, &self.config),
                     0);
    weir_embedded_run(self.embedded);
    weir_promise *shutdown = weir_channel_promise(self.channel);
    weir_promise *last = put_and_flush(&self, text("ghi"));
    expect_text(&self, "");
    weir_channel_shutdown(self.channel, shutdown);
    weir_embedded_run(self.embedded);
    assert_int_equal(weir_pipeline_remove(weir_embedded_pipeline(self.embedded), "traffic", NULL),
                     0);
    weir_embedded_run(self.embedded);
    expect_text(&self, "ghi");
    assert_int_equal(end_of(last), 0);
    assert_int_equal(end_of(shutdown), 0);
    assert_true(weir_embedded_is_output_shut(self.embedded));
    end(&self);
}

static void act_close(weir_ctx *ctx)
{
    weir_ctx_close(ctx, NULL);
}

static void act_remove(weir_ctx *ctx)
{
    weir_pipeline_remove(weir_ctx_pipeline(ctx), "traffic", NULL);
}

static void act_write(weir_ctx *ctx)
{
    weir_channel_write_and_flush(weir_ctx_channel(ctx), text("again"), NULL);
}

static void act_shutdown(weir_ctx *ctx)
{
    weir_channel_shutdown(weir_ctx_channel(ctx), NULL);
}

/* Each promise comes to an end, each message goes once or not at all, and nothing is left. */
static void everything_is_allowed_everywhere(void **state)
{
    (void)state;
    static void (*const acts[])(weir_ctx * ctx) = { act_close, act_remove, act_write,
                                                    act_shutdown };
    static const char *const places[] = { "read", "writability", "write", "flush", "inactive" };
    for (size_t i = 0; i < COUNT(acts) * COUNT(places); i++) {
        world self = { .config.each = { .write_bytes_per_second = 1000,
                                        .write_burst_bytes = 10,
                                        .read_bytes_per_second = 1000 },
                       .at = places[i % COUNT(places)] };
        begin(&self);
        assert_int_equal(weir_channel_set_water_marks(self.channel, 20, 40), 0);
        weir_promise *promises[10];
        for (int n = 0; n < 10; n++)
            promises[n] = put_and_flush(&self, text("abcdefghij"));
        self.act = acts[i / COUNT(places)];
        weir_embedded_write_inbound(self.embedded, bytes(1000));
        self.writable = self.unwritable = 0;
        pass_time(&self, 10000);
        weir_embedded_close(self.embedded);
        assert_null(self.act);
        size_t sent = take_sent(&self), expected = 0;
        bool has_failed = false;
        for (int n = 0; n < 10; n++) {
            int code = end_of(promises[n]);
            assert_true(code == 0 || code == WEIR_ECLOSED || code == -EPIPE);
            assert_false(has_failed && code == 0);
            has_failed |= code < 0;
            expected += code == 0 ? 10 : 0;
        }
        if (self.act == NULL && acts[i / COUNT(places)] == act_write && sent == expected + 5)
            sent -= 5;
        assert_int_equal(sent, expected);
        assert_int_equal(stats_of_channel(&self).delayed_bytes, 0);
        assert_int_equal(stats_of_channel(&self).reads_paused, 0);
        weir_embedded_take_error(self.embedded, NULL);
        end(&self);
    }
}

static void close_it(void *arg, weir_future *future)
{
    (void)future;
    weir_channel_close(arg, NULL);
}

static void a_listener_may_close(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000, .write_burst_bytes = 10 } };
    begin(&self);
    weir_promise *promises[3];
    for (int i = 0; i < 3; i++)
        promises[i] = put_and_flush(&self, text("abcdefghij"));
    weir_future_on_done(weir_promise_future(promises[1]), close_it, self.channel);
    pass_time(&self, 1000);
    assert_int_equal(end_of(promises[0]), 0);
    assert_int_equal(end_of(promises[1]), 0);
    assert_int_equal(end_of(promises[2]), WEIR_ECLOSED);
    assert_int_equal(take_sent(&self), 20);
    end(&self);
}

/* Counters and refusals ------------------------------------------------------------------------ */

static void it_counts(void **state)
{
    (void)state;
    world self = { .config.each = { .write_bytes_per_second = 1000, .write_burst_bytes = 100 } };
    begin(&self);
    for (int i = 0; i < 50; i++)
        weir_embedded_write_outbound(self.embedded, bytes(100));
    weir_traffic_stats stats = stats_of_channel(&self);
    assert_int_equal(stats.written_bytes, 100);
    assert_int_equal(stats.delayed_bytes, 4900);
    assert_int_equal(stats.delayed_messages, 49);
    pass_time(&self, 3000);
    stats = stats_of_channel(&self);
    assert_int_equal(stats.written_bytes, 3100);
    assert_in_range(stats.written_bytes_per_second, 950, 1100);
    assert_int_equal(stats.delayed_bytes, 1900);
    assert_int_equal(stats.write_delayed_ns, WEIR_SECONDS(3));
    pass_time(&self, 10000);
    stats = stats_of_channel(&self);
    assert_int_equal(stats.written_bytes, 5000);
    assert_int_equal(stats.written_bytes_per_second, 0);
    assert_int_equal(stats.delayed_bytes + stats.delayed_messages, 0);
    take_sent(&self);
    end(&self);
}

static void limits_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const weir_traffic_limits rows[] = {
        { .read_bytes_per_second = -1 },
        { .write_bytes_per_second = -1 },
        { .read_burst_bytes = -1 },
        { .write_burst_bytes = INT64_MAX },
        { .max_wait_ns = -2 },
        { .max_wait_ns = INT64_MAX },
        { .read_bytes_per_second = ((int64_t)1 << 50) + 1 },
    };
    weir_error error;
    weir_shaper *shaper = NULL;
    for (size_t i = 0; i < COUNT(rows); i++) {
        world self = { .config.each = rows[i] };
        weir_embedded_config config = { .init = add_all, .arg = &self };
        assert_int_equal(weir_embedded_new(&self.embedded, &config, NULL), -EINVAL);
        assert_int_equal(weir_shaper_new(&shaper, &rows[i], &error), -EINVAL);
        assert_non_null(strstr(error.message, "cannot be"));
    }
    assert_int_equal(weir_shaper_new(&shaper, NULL, &error), -EINVAL);
    assert_int_equal(weir_shaper_new(NULL, &rows[0], NULL), -EINVAL);
    assert_int_equal(weir_shaper_set_limits(NULL, &rows[0], NULL), -EINVAL);
    weir_shaper_free(NULL);
}

static int add_without(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &weir_traffic_handler, arg);
}

static void it_needs_a_config_and_the_loop(void **state)
{
    (void)state;
    weir_embedded *embedded;
    weir_error error;
    weir_embedded_config config = { .init = add_without };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), -EINVAL);
    world self = { .group = new_group_of(1) };
    begin(&self);
    WAIT_FOR_STEPPING(weir_embedded_take_error(self.embedded, &error),
                      weir_embedded_run(self.embedded));
    assert_int_equal(error.code, -EINVAL);
    weir_embedded_free(self.embedded);
    end_group(self.group);
}

/* Whichever fails: each promise comes to an end, nothing is out of order, and nothing is left. */
static void every_call_may_fail_once(void **state)
{
    (void)state;
    for (unsigned nth = 1, seen = 1; seen >= nth - 1; nth++) { /* until it fails no more */
        world self = { .config.each = { .write_bytes_per_second = 1000,
                                        .write_burst_bytes = 3,
                                        .read_bytes_per_second = 1000 } };
        weir_promise *promises[4];
        weir_msg *msgs[4] = { text("ab"), text("cd"), text("ef"), text("gh") };
        char sent[9] = { 0 }, expected[9] = { 0 };
        begin(&self);
        for (int i = 0; i < 4; i++)
            promises[i] = weir_channel_promise(self.channel);
        weir_msg *read = bytes(1000);
        harness_fail_nth(NULL, nth, -ENOMEM);
        for (int i = 0; i < 4; i++)
            weir_channel_write(self.channel, msgs[i], promises[i]);
        weir_channel_flush(self.channel);
        weir_embedded_run(self.embedded);
        weir_embedded_write_inbound(self.embedded, read);
        pass_time(&self, 5);
        seen = harness_fail_end();
        weir_embedded_flush(self.embedded); /* if it was the flush that failed */
        pass_time(&self, 2000);
        weir_embedded_read_outbound_bytes(self.embedded, sent, 8);
        for (int i = 0; i < 4; i++) {
            int code = end_of(promises[i]);
            assert_int_not_equal(code, -EINPROGRESS);
            if (code == 0)
                memcpy(expected + strlen(expected), &"abcdefgh"[2 * i], 2);
        }
        assert_string_equal(sent, expected);
        assert_true(weir_embedded_is_reading(self.embedded) || !weir_channel_is_open(self.channel));
        weir_embedded_free(self.embedded);
    }
}

static void it_cannot_be_added_without_memory(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (unsigned nth = 1, seen = 1; seen >= nth - 1; nth++) { /* until it fails no more */
        world self = { 0 };
        weir_embedded_config config = { .init = add_all, .arg = &self };
        harness_fail_nth(NULL, nth, -ENOMEM);
        int code = weir_embedded_new(&self.embedded, &config, NULL);
        seen = harness_fail_end();
        failures += code < 0;
        if (seen < nth)
            assert_int_equal(code, 0);
        if (code < 0)
            continue;
        /* It is served with all of its handlers and a shaper, or not at all. */
        assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(self.embedded)), 3);
        assert_non_null(weir_channel_shaper(weir_embedded_channel(self.embedded)));
        assert_true(weir_channel_is_open(weir_embedded_channel(self.embedded)));
        weir_embedded_free(self.embedded);
    }
    assert_true(failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(writes_keep_to_the_rate),
        weir_case(a_burst_goes_at_once),
        weir_case(a_large_message_goes_in_time),
        weir_case(slower_limits_do_not_keep_a_message),
        weir_case(without_limits_all_passes),
        weir_case(fractions_of_bytes_add_up),
        weir_case(limits_can_be_changed),
        weir_case(order_flushes_and_promises_are_kept),
        weir_case(what_is_cancelled_is_left_out),
        weir_case(it_is_unwritable_above_the_mark),
        weir_case(what_waits_is_limited),
        weir_case(a_file_counts_as_its_length),
        weir_case(reads_keep_to_the_rate),
        weir_case(auto_read_stays_the_users),
        weir_case(a_shutdown_waits),
        weir_case(finishing_sends_all_of_it),
        weir_case(finishing_waits_for_a_shutdown),
        weir_case(a_close_fails_what_waits),
        weir_case(who_is_removed_hands_all_on),
        weir_case(everything_is_allowed_everywhere),
        weir_case(a_listener_may_close),
        weir_case(it_counts),
        weir_case(limits_that_make_no_sense_are_refused),
        weir_case(it_needs_a_config_and_the_loop),
        weir_case(every_call_may_fail_once),
        weir_case(it_cannot_be_added_without_memory),
    };
    return cmocka_run_group_tests_name("handler.traffic", tests, NULL, NULL);
}
