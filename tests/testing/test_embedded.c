/* SPDX-License-Identifier: MIT */
/* The embedded channel itself: what a user's test relies on. */
#include "harness.h"

#include <weir/embedded.h>
#include <weir/timer.h>
#include <weir/verifier.h>

#include <errno.h>
#include <limits.h>
#include <string.h>

static weir_embedded *open_embedded(weir_init_fn init, void *arg)
{
    weir_embedded *embedded = NULL;
    assert_int_equal(
        weir_embedded_new(&embedded, &(weir_embedded_config){ .init = init, .arg = arg }, NULL), 0);
    return embedded;
}

static weir_msg *bytes(const char *text)
{
    weir_buf *buf = weir_buf_from(text, strlen(text));
    assert_non_null(buf);
    return &buf->msg;
}

static void assert_text(weir_msg *msg, const char *text)
{
    char content[64] = { 0 };
    assert_non_null(msg);
    assert_ptr_equal(msg->type, &weir_buf_type);
    assert_int_equal(weir_buf_read_bytes((weir_buf *)msg, content, weir_msg_size(msg)), 0);
    assert_string_equal(content, text);
    weir_msg_release(msg);
}

/* In and out ----------------------------------------------------------------------------------- */

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    weir_embedded *embedded = open_embedded(NULL, NULL);
    assert_int_equal(weir_embedded_write_inbound(embedded, bytes("in 1")), 0);
    assert_int_equal(weir_embedded_write_inbound(embedded, bytes("in 2")), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("out 1")), 0);
    assert_int_equal(weir_embedded_inbound_count(embedded), 2);
    assert_int_equal(weir_embedded_outbound_count(embedded), 1);
    assert_text(weir_embedded_read_inbound(embedded), "in 1");
    assert_text(weir_embedded_read_inbound(embedded), "in 2");
    assert_null(weir_embedded_read_inbound(embedded));
    assert_text(weir_embedded_read_outbound(embedded), "out 1");
    assert_null(weir_embedded_read_outbound(embedded));
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static void what_is_not_flushed_stays(void **state)
{
    (void)state;
    weir_embedded *embedded = open_embedded(NULL, NULL);
    weir_channel_write(weir_embedded_channel(embedded), bytes("later"), NULL);
    assert_int_equal(weir_embedded_run(embedded), 0);
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    assert_text(weir_embedded_read_outbound(embedded), "later");
    weir_embedded_free(embedded);
}

static void bytes_come_out_in_any_portion(void **state)
{
    (void)state;
    char to[16] = { 0 };
    weir_embedded *embedded = open_embedded(NULL, NULL);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("abc")), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("")), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("defg")), 0);
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, to, 5), 5);
    assert_memory_equal(to, "abcde", 5);
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, to, sizeof to), 2);
    assert_memory_equal(to, "fg", 2);
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, to, sizeof to), 0);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static void slow_other_side_takes_what_it_is_told(void **state)
{
    (void)state;
    weir_embedded *embedded = open_embedded(NULL, NULL);
    assert_int_equal(weir_embedded_accept(embedded, 1), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("a")), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("b")), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("c")), 0);
    assert_int_equal(weir_embedded_outbound_count(embedded), 1);
    assert_int_equal(weir_embedded_accept(embedded, 1), 0);
    assert_int_equal(weir_embedded_outbound_count(embedded), 2);
    assert_int_equal(weir_embedded_accept(embedded, SIZE_MAX), 0);
    assert_int_equal(weir_embedded_outbound_count(embedded), 3);
    weir_embedded_free(embedded); /* which releases what nobody took */
}

/* Batches -------------------------------------------------------------------------------------- */

typedef struct counts {
    int reads, completes;
} counts;

static void counting_on_read(weir_ctx *ctx, weir_msg *msg)
{
    counts *self = weir_ctx_arg(ctx);
    self->reads++;
    weir_msg_release(msg);
}

static void counting_on_read_complete(weir_ctx *ctx)
{
    counts *self = weir_ctx_arg(ctx);
    self->completes++;
}

static const weir_handler_type counting = {
    .name = "counting",
    .on_read = counting_on_read,
    .on_read_complete = counting_on_read_complete,
};

static int add_counting(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &counting, arg);
}

static void batch_ends_when_it_is_told(void **state)
{
    (void)state;
    counts seen = { 0 };
    weir_embedded *embedded = open_embedded(add_counting, &seen);
    assert_int_equal(weir_embedded_write_inbound_part(embedded, bytes("a")), 0);
    assert_int_equal(weir_embedded_write_inbound_part(embedded, bytes("b")), 0);
    assert_int_equal(seen.completes, 0);
    assert_int_equal(weir_embedded_end_batch(embedded), 0);
    assert_int_equal(weir_embedded_write_inbound(embedded, bytes("c")), 0);
    assert_int_equal(seen.reads, 3);
    assert_int_equal(seen.completes, 2);
    weir_embedded_free(embedded);
}

/* Errors --------------------------------------------------------------------------------------- */

static void failing_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_msg_release(msg);
    weir_ctx_fail(ctx, -EBADMSG, "message %d", ++*(int *)weir_ctx_arg(ctx));
}

static const weir_handler_type failing = { .name = "failing", .on_read = failing_on_read };

static int add_failing(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "failing", &failing, arg);
}

static void errors_are_kept_in_order(void **state)
{
    (void)state;
    int count = 0;
    weir_error error;
    weir_embedded_report report;
    weir_embedded *embedded = open_embedded(add_failing, &count);
    assert_int_equal(weir_embedded_check(embedded), 0);
    assert_false(weir_embedded_take_error(embedded, &error));
    assert_int_equal(weir_embedded_write_inbound(embedded, bytes("x")), -EBADMSG);
    assert_int_equal(weir_embedded_write_inbound(embedded, bytes("y")), -EBADMSG);
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_string_equal(error.message, "message 1");
    assert_string_equal(error.origin, "failing");
    assert_int_equal(weir_embedded_check(embedded), -EBADMSG);
    assert_int_equal(weir_embedded_finish(embedded, &report), 1);
    assert_int_equal(report.errors, 1);
    assert_true(weir_embedded_take_error(embedded, NULL));
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

/* Time ----------------------------------------------------------------------------------------- */

typedef struct ticker {
    weir_ctx_timer timer;
    int64_t times_ns[8];
    int count;
} ticker;

static void tick(weir_ctx_timer *timer, weir_ctx *ctx)
{
    ticker *self = WEIR_CONTAINER(timer, ticker, timer);
    self->times_ns[self->count++] = weir_executor_now_ns(weir_ctx_executor(ctx));
    if (self->count < 8)
        weir_ctx_schedule(ctx, timer, WEIR_SECONDS(1));
}

static void ticker_added(weir_ctx *ctx)
{
    ticker *self = weir_ctx_arg(ctx);
    self->timer.fire = tick;
    weir_ctx_schedule(ctx, &self->timer, WEIR_SECONDS(1));
}

static const weir_handler_type ticking = { .name = "ticking", .added = ticker_added };

static int add_ticking(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &ticking, arg);
}

static void time_stands_still_until_it_is_moved(void **state)
{
    (void)state;
    ticker self = { .count = 0 };
    weir_embedded *embedded = open_embedded(add_ticking, &self);
    assert_int_equal(weir_embedded_run(embedded), 0);
    assert_int_equal(self.count, 0);
    assert_int_equal(weir_embedded_advance(embedded, WEIR_SECONDS(1) - 1), 0);
    assert_int_equal(self.count, 0);
    assert_int_equal(weir_embedded_advance(embedded, 1), 0);
    assert_int_equal(self.count, 1);
    assert_int_equal(weir_embedded_advance(embedded, WEIR_SECONDS(3)), 0);
    assert_int_equal(self.count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(self.times_ns[i], WEIR_SECONDS(i + 1));
    assert_int_equal(weir_embedded_advance(embedded, -1), -EINVAL);
    weir_embedded_free(embedded);
}

static int post_again(weir_task *task)
{
    return weir_executor_post(weir_executor_current(), task);
}

static void run_that_never_ends_is_told(void **state)
{
    (void)state;
    weir_task task = { .run = post_again };
    weir_embedded *embedded = open_embedded(NULL, NULL);
    assert_int_equal(weir_executor_post(weir_embedded_executor(embedded), &task), 0);
    assert_int_equal(weir_embedded_run(embedded), -ELOOP);
    weir_embedded_free(embedded);
}

/* The end -------------------------------------------------------------------------------------- */

static weir_msg *forgotten;

static void forgetful_on_read(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    forgotten = msg;
}

static const weir_handler_type forgetful = { .name = "forgetful", .on_read = forgetful_on_read };

static int add_forgetful(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &forgetful, arg);
}

static void finish_tells_what_is_left(void **state)
{
    (void)state;
    weir_leak_mode mode = weir_leak_get_mode();
    weir_leak_set_mode(WEIR_LEAK_ALL);
    weir_embedded_report report;
    weir_embedded *embedded = open_embedded(add_forgetful, NULL);
    assert_int_equal(weir_embedded_write_inbound(embedded, bytes("lost")), 0);
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), bytes("released by the tail"));
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("sent")), 0);
    assert_int_equal(weir_embedded_finish(embedded, &report), 2);
    assert_int_equal(report.leaked, 1);
    assert_int_equal(report.outbound, 1);
    assert_int_equal(report.inbound, 0);
    weir_msg_release(forgotten);
    weir_msg_release(weir_embedded_read_outbound(embedded));
    assert_int_equal(weir_embedded_finish(embedded, &report), 0);
    weir_embedded_free(embedded);
    weir_leak_set_mode(mode);
}

/* Messages of a test's own that live longer are no leaks of the channel, and hide none. */
static void finish_reports_messages_made_since_alone(void **state)
{
    (void)state;
    weir_leak_mode mode = weir_leak_get_mode();
    weir_leak_set_mode(WEIR_LEAK_ALL);
    weir_embedded_report report;
    weir_msg *before[2] = { bytes("before 1"), bytes("before 2") };
    weir_embedded *embedded = open_embedded(NULL, NULL);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_embedded_finish(embedded, &report), 0);
    assert_int_equal(harness_log_end(), 0);
    weir_msg_release(before[0]); /* one fewer is alive than when the channel was made */
    weir_msg *leak = bytes("leak");
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_embedded_finish(embedded, &report), 1);
    assert_int_equal(report.leaked, 1);
    assert_true(harness_log_has("1 live messages"));
    assert_int_equal(harness_log_end(), 1);
    weir_msg_release(leak);
    weir_msg_release(before[1]);
    weir_embedded_free(embedded);
    weir_leak_set_mode(mode);
}

/* An earlier message that was not read does not hide a later leak. */
static void finish_counts_a_queued_message_from_before_once(void **state)
{
    (void)state;
    weir_leak_mode mode = weir_leak_get_mode();
    weir_leak_set_mode(WEIR_LEAK_ALL);
    weir_embedded_report report;
    weir_msg *before = bytes("before");
    weir_embedded *embedded = open_embedded(NULL, NULL);
    assert_int_equal(weir_embedded_write_inbound(embedded, before), 0);
    weir_msg *leak = bytes("leak");
    assert_int_equal(weir_embedded_finish(embedded, &report), 2);
    assert_int_equal(report.inbound, 1);
    assert_int_equal(report.leaked, 1);
    weir_msg_release(leak);
    weir_embedded_free(embedded);
    weir_leak_set_mode(mode);
}

static int init_nothing(weir_channel *channel, void *arg)
{
    (void)channel;
    (void)arg;
    return 0;
}

static void verifier_logs_no_leaks_of_its_own(void **state)
{
    (void)state;
    weir_verifier_report report;
    weir_verifier_config config = {
        .init = init_nothing, .input = "input", .length = 5, .is_stream = true
    };
    harness_log_begin(WEIR_LOG_WARN);
    int code = weir_verify(&config, &report, NULL);
    unsigned lines = harness_log_end();
    assert_int_equal(code, 0);
    assert_true(report.runs > 100);
    assert_int_equal(lines, 0);
}

static void closed_one_takes_nothing(void **state)
{
    (void)state;
    weir_embedded *embedded = open_embedded(NULL, NULL);
    assert_int_equal(weir_embedded_close(embedded), 0);
    assert_int_equal(weir_embedded_write_inbound(embedded, bytes("x")), WEIR_ECLOSED);
    assert_int_equal(weir_embedded_write_outbound(embedded, bytes("x")), WEIR_ECLOSED);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static int refuse(weir_channel *channel, void *arg)
{
    (void)channel;
    (void)arg;
    return -EACCES;
}

static void failing_init_fails_the_making(void **state)
{
    (void)state;
    weir_embedded *embedded = NULL;
    weir_error error;
    weir_embedded_config config = { .init = refuse };
    assert_int_equal(weir_embedded_new(&embedded, &config, &error), -EACCES);
    assert_non_null(strstr(error.message, "initialis"));
    assert_null(embedded);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    weir_error error;
    weir_embedded *embedded = open_embedded(NULL, NULL);
    assert_int_equal(weir_embedded_new(NULL, NULL, &error), -EINVAL);
    assert_int_equal(weir_embedded_write_inbound(embedded, NULL), -EINVAL);
    assert_int_equal(weir_embedded_write_inbound(NULL, bytes("x")), -EINVAL);
    assert_int_equal(weir_embedded_write_outbound(embedded, NULL), -EINVAL);
    assert_int_equal(weir_embedded_write_outbound(NULL, bytes("x")), -EINVAL);
    assert_int_equal(weir_embedded_end_inbound(embedded, 1), -EINVAL);
    assert_int_equal(weir_embedded_call(embedded, NULL, NULL), -EINVAL);
    assert_int_equal(weir_embedded_run(NULL), -EINVAL);
    weir_embedded_free(NULL);
    weir_embedded_free(embedded);
}

static void channel_may_outlive_it(void **state)
{
    (void)state;
    weir_embedded *embedded = open_embedded(NULL, NULL);
    weir_channel *channel = weir_channel_retain(weir_embedded_channel(embedded));
    weir_embedded_free(embedded);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    weir_channel_write(channel, bytes("x"), NULL);
    weir_channel_release(channel);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    unsigned calls = UINT_MAX;
    for (unsigned n = 1; n <= calls; n++) {
        weir_embedded *embedded = NULL;
        counts seen = { 0 };
        weir_embedded_config config = { .init = add_counting, .arg = &seen };
        harness_fail_nth("alloc", n, -ENOMEM);
        if (weir_embedded_new(&embedded, &config, NULL) == 0) {
            weir_embedded_write_inbound_bytes(embedded, "x", 1);
            weir_embedded_write_outbound(embedded, &weir_event_input_closed);
            weir_embedded_free(embedded);
        }
        if (harness_fail_end() < n)
            calls = n;
    }
    assert_true(calls > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(what_goes_in_comes_out),
        weir_case(what_is_not_flushed_stays),
        weir_case(bytes_come_out_in_any_portion),
        weir_case(slow_other_side_takes_what_it_is_told),
        weir_case(batch_ends_when_it_is_told),
        weir_case(errors_are_kept_in_order),
        weir_case(time_stands_still_until_it_is_moved),
        weir_case(run_that_never_ends_is_told),
        weir_case(finish_tells_what_is_left),
        weir_case(finish_reports_messages_made_since_alone),
        weir_case(finish_counts_a_queued_message_from_before_once),
        weir_case(verifier_logs_no_leaks_of_its_own),
        weir_case(closed_one_takes_nothing),
        weir_case(failing_init_fails_the_making),
        weir_case(bad_arguments_are_refused),
        weir_case(channel_may_outlive_it),
        weir_case(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
