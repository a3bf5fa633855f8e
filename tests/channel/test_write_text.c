/* SPDX-License-Identifier: MIT */
/* Writing text: strings and formats of handlers; and values of promises that are counted. */
#include "harness.h"

#include <weir/buf.h>
#include <weir/embedded.h>
#include <weir/future.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef void (*speak_fn)(weir_ctx *ctx);

static void speaker_on_event(weir_ctx *ctx, weir_msg *event)
{
    speak_fn *speak = weir_ctx_arg(ctx);
    (*speak)(ctx);
    weir_ctx_flush(ctx);
    weir_msg_release(event);
}

static const weir_handler_type speaker_type = { .name = "speaker", .on_event = speaker_on_event };

static int init_speaker(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "speaker", &speaker_type, arg);
}

static weir_embedded *let_speak(speak_fn *speak)
{
    weir_embedded *embedded = NULL;
    weir_embedded_config config = { .init = init_speaker, .arg = speak };
    weir_buf *event = weir_buf_from("go", 2);
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_pipeline_fire_event(weir_channel_pipeline(weir_embedded_channel(embedded)),
                             weir_buf_msg(event));
    weir_embedded_run(embedded);
    return embedded;
}

static void expect_spoken(speak_fn speak, const char *text)
{
    char said[2048] = "";
    weir_embedded *embedded = let_speak(&speak);
    size_t length = weir_embedded_read_outbound_bytes(embedded, said, sizeof said);
    assert_int_equal(length, strlen(text));
    assert_memory_equal(said, text, length);
    weir_embedded_free(embedded);
}

static void write_strings(weir_ctx *ctx)
{
    weir_ctx_write_str(ctx, "HTTP/1.1 ");
    weir_ctx_write_str(ctx, "");
    weir_ctx_writef(ctx, "%d %s\r\n", 404, "Not Found");
}

static void write_long_text(weir_ctx *ctx)
{
    weir_ctx_writef(ctx, "%01000d", 7);
}

static void strings_and_formats_are_written_in_order(void **state)
{
    char zeros[1001];
    (void)state;
    expect_spoken(write_strings, "HTTP/1.1 404 Not Found\r\n");
    snprintf(zeros, sizeof zeros, "%01000d", 7);
    expect_spoken(write_long_text, zeros);
}

static void write_without_memory(weir_ctx *ctx)
{
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_ctx_writef(ctx, "%0300d", 7); /* too long for the stack */
    harness_fail_end();
    weir_ctx_write_str(ctx, "after the gap");
}

static void write_null(weir_ctx *ctx)
{
    weir_ctx_write_str(ctx, NULL);
    weir_ctx_write_str(ctx, "after the gap");
}

/* As with every lost write of a stream, no later byte is sent. */
static void text_without_memory_closes_the_stream(void **state)
{
    (void)state;
    static speak_fn speaks[] = { write_without_memory, write_null };
    for (size_t i = 0; i < sizeof speaks / sizeof *speaks; i++) {
        weir_error error;
        weir_embedded *embedded = let_speak(&speaks[i]);
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        assert_true(weir_embedded_take_error(embedded, &error));
        assert_int_equal(error.code, -ENOMEM);
        weir_embedded_free(embedded);
    }
}

static void promise_releases_a_counted_value(void **state)
{
    (void)state;
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(
        weir_promise_succeed(promise, weir_buf_from("value", 5), weir_msg_release_value), 0);
    weir_promise_release(promise);

    weir_embedded *embedded = NULL;
    assert_int_equal(weir_embedded_new(&embedded, &(weir_embedded_config){ 0 }, NULL), 0);
    promise = weir_promise_new(NULL);
    weir_channel *channel = weir_channel_retain(weir_embedded_channel(embedded));
    assert_int_equal(weir_promise_succeed(promise, channel, weir_channel_release_value), 0);
    weir_promise_release(promise);
    weir_embedded_free(embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(strings_and_formats_are_written_in_order),
        weir_case(text_without_memory_closes_the_stream),
        weir_case(promise_releases_a_counted_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
