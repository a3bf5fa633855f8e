/* SPDX-License-Identifier: MIT */
/* The file bytes handler: files become buffers, in their place, as there is room for them. */
#include "exec/executors.h"

#include <weir/embedded.h>
#include <weir/file.h>
#include <weir/file_bytes.h>
#include <weir/threads.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weir_hold hold;

#define CHUNK 65536

static uint8_t byte_at(size_t at)
{
    return (uint8_t)(at * 7 + (at >> 8) + (at >> 16));
}

/* A region of a file without a name, with bytes that say where they belong. */
static weir_file_region *region_of(size_t length, size_t said)
{
    char path[] = "/tmp/weir-test-file-bytes-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(path);
    uint8_t bytes[4096];
    for (size_t at = 0; at < length; at += sizeof bytes) {
        size_t size = length - at < sizeof bytes ? length - at : sizeof bytes;
        for (size_t i = 0; i < size; i++)
            bytes[i] = byte_at(at + i);
        assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    }
    weir_file_region *region = weir_file_region_new(fd, 0, said);
    assert_non_null(region);
    return region;
}

static int add_file_bytes(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "files", &weir_file_bytes_handler,
                                  arg);
}

static weir_embedded *open_channel(void)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_file_bytes };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

/* Writes without a flush. */
static weir_promise *put(weir_embedded *embedded, weir_msg *msg)
{
    weir_promise *promise = weir_channel_promise(weir_embedded_channel(embedded));
    weir_channel_write(weir_embedded_channel(embedded), msg, promise);
    weir_embedded_run(embedded);
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

static weir_msg *text(const char *bytes)
{
    return &weir_buf_from(bytes, strlen(bytes))->msg;
}

/* The next buffer that goes out is this text, or this part of a file. */
static void expect_text(weir_embedded *embedded, const char *bytes)
{
    weir_msg *msg = weir_embedded_read_outbound(embedded);
    assert_non_null(msg);
    weir_buf *buf = weir_buf_from_msg(msg);
    assert_int_equal(weir_buf_readable(buf), strlen(bytes));
    assert_memory_equal(weir_buf_peek(buf, weir_buf_reader(buf), strlen(bytes)), bytes,
                        strlen(bytes));
    weir_msg_release(msg);
}

static void expect_part(weir_embedded *embedded, size_t at, size_t length)
{
    weir_msg *msg = weir_embedded_read_outbound(embedded);
    assert_non_null(msg);
    assert_ptr_equal(msg->type, &weir_buf_type);
    weir_buf *buf = weir_buf_from_msg(msg);
    assert_int_equal(weir_buf_readable(buf), length);
    const uint8_t *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
    for (size_t i = 0; i < length; i++)
        assert_int_equal(bytes[i], byte_at(at + i));
    weir_msg_release(msg);
}

static void expect_file(weir_embedded *embedded, size_t length)
{
    for (size_t at = 0; at < length; at += CHUNK)
        expect_part(embedded, at, length - at < CHUNK ? length - at : CHUNK);
}

static void close_channel(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static size_t pending_of(weir_embedded *embedded)
{
    weir_channel_stats stats;
    weir_channel_get_stats(weir_embedded_channel(embedded), &stats);
    return stats.pending_bytes;
}

/* In order ------------------------------------------------------------------------------------- */

static void a_file_becomes_buffers_in_its_place(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_promise *promises[6];
    promises[0] = put(embedded, text("before"));
    promises[1] = put(embedded, &region_of(2 * CHUNK + 5, 2 * CHUNK + 5)->msg);
    promises[2] = put(embedded, text("between"));
    promises[3] = put(embedded, &region_of(0, 0)->msg);
    promises[4] = put(embedded, &region_of(1, 1)->msg);
    promises[5] = put(embedded, text("behind"));
    assert_int_equal(weir_embedded_outbound_count(embedded), 0); /* nothing without a flush */
    for (int i = 0; i < 6; i++)
        assert_int_equal(code_of(promises[i]), -EINPROGRESS);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_text(embedded, "before");
    expect_file(embedded, 2 * CHUNK + 5);
    expect_text(embedded, "between");
    expect_text(embedded, "");
    expect_file(embedded, 1);
    expect_text(embedded, "behind");
    for (int i = 0; i < 6; i++)
        assert_int_equal(end_of(promises[i]), 0);
    close_channel(embedded);
}

static void what_is_not_flushed_waits(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_promise *first = put(embedded, &region_of(5 * CHUNK, 5 * CHUNK)->msg);
    assert_int_equal(weir_embedded_accept(embedded, 0), 0);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    weir_promise *second = put(embedded, &region_of(20, 20)->msg);
    weir_promise *third = put(embedded, text("third"));
    assert_int_equal(weir_embedded_accept(embedded, SIZE_MAX), 0);
    weir_embedded_advance(embedded, WEIR_MS(100));
    expect_file(embedded, 5 * CHUNK);
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    assert_int_equal(pending_of(embedded), 0); /* nor on its way */
    assert_int_equal(end_of(first), 0);
    assert_int_equal(code_of(second), -EINPROGRESS);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_file(embedded, 20);
    expect_text(embedded, "third");
    assert_int_equal(end_of(second), 0);
    assert_int_equal(end_of(third), 0);
    close_channel(embedded);
}

/* More than it does at once: the rest comes with the next turns. */
static void a_large_file_comes_in_several_goes(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_promise *promise = put(embedded, &region_of(100 * CHUNK + 1, 100 * CHUNK + 1)->msg);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, 1000000);
    assert_int_equal(weir_embedded_outbound_count(embedded), 101);
    expect_file(embedded, 100 * CHUNK + 1);
    assert_int_equal(end_of(promise), 0);
    close_channel(embedded);
}

/* Writability ---------------------------------------------------------------------------------- */

/* What waits in the channel is a few buffers, however long the file is. */
static void it_waits_for_writability(void **state)
{
    (void)state;
    enum { SIZE = 40 * CHUNK };
    weir_embedded *embedded = open_channel();
    assert_int_equal(weir_embedded_accept(embedded, 0), 0);
    weir_promise *promise = put(embedded, &region_of(SIZE, SIZE)->msg);
    weir_promise *behind = put(embedded, text("behind"));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    for (size_t at = 0; at < SIZE; at += CHUNK) {
        assert_true(pending_of(embedded) <= 3 * CHUNK);
        assert_int_equal(code_of(promise), -EINPROGRESS);
        assert_int_equal(weir_embedded_accept(embedded, 1), 0);
        expect_part(embedded, at, CHUNK);
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    }
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(weir_embedded_accept(embedded, 1), 0);
    expect_text(embedded, "behind");
    assert_int_equal(end_of(behind), 0);
    close_channel(embedded);
}

static void *make_writable(void *channel)
{
    weir_channel_set_write_hold(channel, &hold, false);
    return NULL;
}

static void *make_unwritable(void *channel)
{
    weir_channel_set_write_hold(channel, fresh_hold(&hold), true);
    return NULL;
}

static void on_another_thread(void *(*run)(void *arg), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
    pthread_join(thread, NULL);
}

/* Flushes while another thread has a reason against writing. */
static void flush_at_a_bad_moment(weir_ctx *ctx, weir_msg *event)
{
    on_another_thread(make_unwritable, weir_ctx_channel(ctx));
    weir_ctx_flush(ctx);
    on_another_thread(make_writable, weir_ctx_channel(ctx));
    weir_msg_release(event);
}

static const weir_handler_type flusher = { .name = "flusher", .on_event = flush_at_a_bad_moment };

/* When the loop looks, the reason has gone again, and so there is nothing to tell. */
static void a_reason_that_comes_and_goes_does_not_stop_it(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_pipeline *pipeline = weir_channel_pipeline(weir_embedded_channel(embedded));
    assert_int_equal(weir_pipeline_add_last(pipeline, "flusher", &flusher, NULL), 0);
    weir_promise *promise = put(embedded, &region_of(5 * CHUNK, 5 * CHUNK)->msg);
    weir_pipeline_fire_event(pipeline, text("now"));
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, WEIR_MS(10));
    expect_file(embedded, 5 * CHUNK);
    assert_int_equal(end_of(promise), 0);
    close_channel(embedded);
}

/* How many tasks there were in so long a time. */
static uint64_t tasks_in(weir_embedded *embedded, int duration_ms)
{
    weir_executor_stats before, after;
    weir_executor *executor =
        weir_loop_executor(weir_channel_loop(weir_embedded_channel(embedded)));
    weir_executor_get_stats(executor, &before);
    for (int ms = 0; ms < duration_ms; ms += 5)
        weir_embedded_advance(embedded, WEIR_MS(5));
    weir_executor_get_stats(executor, &after);
    return after.tasks_run - before.tasks_run;
}

/* How often it looks, when nobody lets it go on: 10 ms, then twice as long each time, to 1.28 s. */
static void it_looks_less_and_less_often(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_promise *promise = put(embedded, &region_of(5 * CHUNK, 5 * CHUNK)->msg);
    assert_int_equal(weir_embedded_accept(embedded, 0), 0);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    assert_int_equal(tasks_in(embedded, 10000), 7 + (10000 - 1270) / 1280);
    assert_int_equal(weir_embedded_accept(embedded, SIZE_MAX), 0);
    expect_file(embedded, 5 * CHUNK);
    assert_int_equal(end_of(promise), 0);
    close_channel(embedded);
}

/* Once something went it begins anew, for a file as for another one. */
static void it_looks_often_again_when_something_went(void **state)
{
    (void)state;
    enum { SIZE = 20 * CHUNK };
    weir_embedded *embedded = open_channel();
    weir_promise *promise = put(embedded, &region_of(SIZE, SIZE)->msg);
    assert_int_equal(weir_embedded_accept(embedded, 0), 0);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    tasks_in(embedded, 10000);
    assert_int_equal(weir_embedded_accept(embedded, 5), 0);
    assert_in_range(weir_embedded_outbound_count(embedded), 1, 19);
    assert_int_equal(code_of(promise), -EINPROGRESS);
    assert_int_equal(tasks_in(embedded, 1270), 7);
    assert_int_equal(weir_embedded_accept(embedded, SIZE_MAX), 0);
    expect_file(embedded, SIZE);
    assert_int_equal(end_of(promise), 0);
    close_channel(embedded);
}

/* Ends ----------------------------------------------------------------------------------------- */

static void a_file_that_is_shorter_ends_the_channel(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_promise *promise = put(embedded, &region_of(CHUNK + 10, CHUNK + 11)->msg);
    weir_promise *behind = put(embedded, text("behind"));
    weir_embedded_flush(embedded);
    expect_part(embedded, 0, CHUNK);
    expect_part(embedded, CHUNK, 10);
    assert_int_equal(end_of(promise), WEIR_EOF);
    assert_int_equal(end_of(behind), WEIR_ECLOSED);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    close_channel(embedded);
}

/* Keeps a close until an event comes. */
typedef struct closer {
    weir_promise *promise;
    bool is_asked;
} closer;

static void keep_close(weir_ctx *ctx, weir_promise *promise)
{
    closer *self = weir_ctx_arg(ctx);
    assert_false(self->is_asked);
    *self = (closer){ .promise = weir_promise_retain(promise), .is_asked = true };
}

static void let_close_go(weir_ctx *ctx, weir_msg *event)
{
    closer *self = weir_ctx_arg(ctx);
    weir_ctx_close(ctx, self->promise);
    weir_promise_release(self->promise);
    weir_msg_release(event);
}

static const weir_handler_type closer_type = {
    .name = "closer",
    .close = keep_close,
    .on_event = let_close_go,
};

static int add_closer_and_files(weir_channel *channel, void *arg)
{
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), "closer", &closer_type, arg);
    return code < 0 ? code : add_file_bytes(channel, NULL);
}

/* Neither bytes nor the end: both would be taken for what is missing. */
static void behind_a_gap_nothing_goes_however_long_the_close_takes(void **state)
{
    (void)state;
    for (int has_promise = 0; has_promise < 2; has_promise++) {
        closer late = { 0 };
        weir_embedded *embedded;
        weir_embedded_config config = { .init = add_closer_and_files, .arg = &late };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_promise *file = has_promise ? weir_channel_promise(channel) : NULL;
        weir_channel_write(channel, &region_of(10, 20)->msg, file);
        weir_promise *waiting = put(embedded, text("waiting"));
        weir_embedded_flush(embedded);
        expect_part(embedded, 0, 10);
        assert_true(late.is_asked);
        assert_true(weir_channel_is_open(channel));

        weir_promise *bytes = put(embedded, text("late"));
        weir_promise *another = put(embedded, &region_of(5, 5)->msg);
        weir_channel_write(channel, text("nobody asks"), NULL);
        weir_promise *shutdown = weir_channel_promise(channel);
        weir_channel_shutdown(channel, shutdown);
        weir_channel_shutdown(channel, NULL);
        weir_embedded_flush(embedded);
        weir_embedded_advance(embedded, WEIR_SECONDS(10));
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        assert_int_equal(pending_of(embedded), 0);
        assert_false(weir_embedded_is_output_shut(embedded));
        assert_int_equal(end_of(waiting), WEIR_ECLOSED);
        assert_int_equal(end_of(bytes), WEIR_ECLOSED);
        assert_int_equal(end_of(another), WEIR_ECLOSED);
        assert_int_equal(end_of(shutdown), WEIR_ECLOSED);
        assert_true(weir_channel_is_open(channel));

        weir_pipeline_fire_event(weir_channel_pipeline(channel), text("go"));
        weir_embedded_run(embedded);
        assert_false(weir_channel_is_open(channel));
        weir_error error;
        if (has_promise)
            assert_int_equal(end_of(file), WEIR_EOF);
        else
            assert_true(weir_embedded_take_error(embedded, &error));
        close_channel(embedded);
    }
}

/* The other side has no more questions, and all that went so far is sent. */
static void the_end_of_the_input_waits_for_the_file(void **state)
{
    (void)state;
    enum { SIZE = 40 * CHUNK };
    weir_embedded *embedded = open_channel();
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_channel_set_water_marks(channel, SIZE, 2 * SIZE), 0);
    weir_promise *promise = put(embedded, &region_of(SIZE, SIZE)->msg);
    weir_channel_flush(channel);
    assert_true(weir_embedded_outbound_count(embedded) < SIZE / CHUNK);
    weir_embedded_end_inbound(embedded, 0);
    for (size_t at = 0; at < SIZE; at += CHUNK)
        expect_part(embedded, at, CHUNK);
    assert_int_equal(end_of(promise), 0);
    assert_false(weir_channel_is_open(channel));
    close_channel(embedded);
}

static void without_a_promise_the_error_is_told(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_error error;
    assert_int_equal(weir_embedded_write_outbound(embedded, &region_of(1, 2)->msg), WEIR_EOF);
    expect_part(embedded, 0, 1);
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_string_equal(error.origin, "files");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    close_channel(embedded);
}

static void a_cancelled_file_is_left_out(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_promise *first = put(embedded, &region_of(10, 10)->msg);
    weir_promise *second = put(embedded, &region_of(20, 20)->msg);
    weir_promise *third = put(embedded, text("third"));
    assert_int_equal(weir_future_cancel(weir_promise_future(first)), 0);
    assert_int_equal(weir_future_cancel(weir_promise_future(third)), 0);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_file(embedded, 20);
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    assert_int_equal(end_of(first), -ECANCELED);
    assert_int_equal(end_of(second), 0);
    assert_int_equal(end_of(third), -ECANCELED);
    close_channel(embedded);
}

static void a_shutdown_waits_for_the_file(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_embedded_accept(embedded, 0), 0);
    weir_promise *file = put(embedded, &region_of(5 * CHUNK, 5 * CHUNK)->msg);
    weir_promise *shutdown = weir_channel_promise(channel);
    weir_promise *again = weir_channel_promise(channel);
    weir_channel_shutdown(channel, shutdown);
    weir_channel_shutdown(channel, again);
    weir_promise *late = put(embedded, text("late"));
    assert_int_equal(end_of(again), -EALREADY);
    assert_int_equal(end_of(late), -EPIPE);
    assert_false(weir_embedded_is_output_shut(embedded));
    assert_int_equal(weir_embedded_accept(embedded, SIZE_MAX), 0);
    weir_embedded_advance(embedded, WEIR_MS(20)); /* it seemed full because of the late one */
    expect_file(embedded, 5 * CHUNK);
    assert_int_equal(end_of(file), 0);
    assert_int_equal(end_of(shutdown), 0);
    assert_true(weir_embedded_is_output_shut(embedded));
    close_channel(embedded);
}

static void what_waits_ends_with_the_handler(void **state)
{
    (void)state;
    for (int is_closing = 0; is_closing < 2; is_closing++) {
        weir_embedded *embedded = open_channel();
        weir_channel *channel = weir_embedded_channel(embedded);
        assert_int_equal(weir_embedded_accept(embedded, 0), 0);
        weir_promise *first = put(embedded, &region_of(20 * CHUNK, 20 * CHUNK)->msg);
        weir_promise *second = put(embedded, text("second"));
        weir_promise *shutdown = weir_channel_promise(channel);
        weir_channel_shutdown(channel, shutdown);
        weir_embedded_run(embedded);
        if (is_closing)
            assert_int_equal(weir_embedded_close(embedded), 0);
        else
            assert_int_equal(weir_pipeline_remove(weir_channel_pipeline(channel), "files", NULL),
                             0);
        weir_embedded_run(embedded);
        int expected = is_closing ? WEIR_ECLOSED : -ECANCELED;
        assert_int_equal(end_of(first), expected);
        assert_int_equal(end_of(second), expected);
        assert_int_equal(end_of(shutdown), expected);
        weir_embedded_accept(embedded, SIZE_MAX);
        while (weir_embedded_outbound_count(embedded) > 0)
            weir_msg_release(weir_embedded_read_outbound(embedded));
        close_channel(embedded);
    }
}

/* What waits behind a file does not count for the channel, so it has a limit of its own. */
static void what_waits_is_limited(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 200000, NULL),
                     0);
    weir_promise *file = put(embedded, &region_of(10, 10)->msg);
    weir_promise *fits = put(embedded, &weir_buf_from("x", 1)->msg);
    weir_buf *large = weir_buf_new(199999);
    assert_int_equal(weir_buf_write_fill(large, 'x', 199999), 0);
    weir_promise *does_not = put(embedded, &large->msg);
    assert_int_equal(end_of(does_not), WEIR_ELIMIT);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_file(embedded, 10);
    expect_text(embedded, "x");
    assert_int_equal(end_of(file), 0);
    assert_int_equal(end_of(fits), 0);
    close_channel(embedded);
}

/* Among others ------------------------------------------------------------------------------- */

/* A handler that needs the bytes: it adds one to each. */
static void change_bytes(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    assert_ptr_equal(msg->type, &weir_buf_type);
    weir_buf *buf = weir_buf_from_msg(msg), *changed = weir_buf_new(weir_buf_readable(buf));
    uint8_t byte;
    while (weir_buf_read_bytes(buf, &byte, 1) == 0) {
        byte++;
        weir_buf_write_bytes(changed, &byte, 1);
    }
    weir_msg_release(msg);
    weir_ctx_write(ctx, &changed->msg, promise);
}

static const weir_handler_type changer = { .name = "changer", .write = change_bytes };

static int add_both(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config config = { .type = &weir_file_bytes_handler, .place = WEIR_PLACE_LAST };
    config.group = arg;
    int code = weir_pipeline_add_last(pipeline, "changer", &changer, NULL);
    return code < 0 ? code : weir_pipeline_add(pipeline, &config, NULL);
}

static void a_handler_that_needs_the_bytes_gets_them(void **state)
{
    (void)state;
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_both };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_promise *promise = put(embedded, &region_of(100, 100)->msg);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    uint8_t bytes[100];
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, bytes, sizeof bytes), 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(bytes[i], (uint8_t)(byte_at(i) + 1));
    assert_int_equal(end_of(promise), 0);
    close_channel(embedded);
}

/* The file goes, on an executor of the handler's own; so much has gone out by then. */
static void expect_end(weir_embedded *embedded, weir_group *readers, weir_promise *promise,
                       size_t bytes_out)
{
    static uint8_t bytes[CHUNK];
    size_t length = 0;
    WAIT_FOR_STEPPING(weir_future_is_done(weir_promise_future(promise)),
                      weir_embedded_advance(embedded, 1000));
    assert_int_equal(end_of(promise), 0);
    for (size_t came = 1; came > 0; length += came)
        came = weir_embedded_read_outbound_bytes(embedded, bytes, sizeof bytes);
    assert_int_equal(length, bytes_out);
    weir_embedded_free(embedded);
    assert_int_equal(weir_group_shutdown(readers, 0, WEIR_SECONDS(10)), 0);
    weir_group_free(readers);
    /* If the kernel has dropped a page of the file, another thread has read it. */
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(30)), 0);
}

/* Files are read there, and not on the loop. */
static void it_can_have_an_executor_of_its_own(void **state)
{
    (void)state;
    weir_group *readers = NULL;
    assert_int_equal(weir_group_new_executors(&readers, &(weir_group_config){ .count = 1 }, NULL),
                     0);
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_both, .arg = readers };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_promise *promise = put(embedded, &region_of(30 * CHUNK, 30 * CHUNK)->msg);
    weir_embedded_flush(embedded);
    expect_end(embedded, readers, promise, 30 * CHUNK);
}

/* Runs behind what an executor has to do. */
typedef struct marker {
    weir_task task;
    atomic_bool has_run;
} marker;

static int marker_run(weir_task *task)
{
    atomic_store(&WEIR_CONTAINER(task, marker, task)->has_run, true);
    return 0;
}

/*
 * With what is on its way to the loop the channel seems full; but the loop sends one after the
 * other as they get there, and so it never is.
 */
static void what_is_on_its_way_does_not_stop_it(void **state)
{
    (void)state;
    weir_group *readers = NULL;
    assert_int_equal(weir_group_new_executors(&readers, &(weir_group_config){ .count = 1 }, NULL),
                     0);
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_both, .arg = readers };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_channel_set_water_marks(channel, CHUNK, CHUNK + CHUNK / 2), 0);
    weir_channel_write(channel, &region_of(CHUNK, CHUNK)->msg, NULL);
    weir_channel_flush(channel);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write(channel, &region_of(30 * CHUNK, 30 * CHUNK)->msg, promise);
    weir_channel_flush(channel);
    marker written = { .task = { .run = marker_run, .name = "marker" } };
    assert_int_equal(weir_executor_post(weir_group_at(readers, 0), &written.task), 0);
    WAIT_FOR(atomic_load(&written.has_run)); /* and the loop does nothing meanwhile */
    expect_end(embedded, readers, promise, 31 * CHUNK);
}

/* Whichever fails: each promise comes to an end, and nothing is left. */
static void every_call_may_fail_once(void **state)
{
    (void)state;
    for (unsigned nth = 1, seen = 1; seen >= nth - 1; nth++) { /* until it fails no more */
        weir_embedded *embedded = open_channel();
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_promise *promises[3];
        weir_msg *msgs[3] = { &region_of(3 * CHUNK, 3 * CHUNK)->msg, text("x"),
                              &region_of(20 * CHUNK, 20 * CHUNK)->msg };
        for (int i = 0; i < 3; i++)
            promises[i] = weir_channel_promise(channel);
        harness_fail_nth(NULL, nth, -ENOMEM);
        for (int i = 0; i < 3; i++)
            weir_channel_write(channel, msgs[i], promises[i]);
        weir_embedded_flush(embedded);
        weir_embedded_advance(embedded, 1000);
        seen = harness_fail_end();
        weir_embedded_flush(embedded); /* if it was the flush that failed */
        weir_embedded_advance(embedded, 1000);
        weir_embedded_free(embedded);
        for (int i = 0; i < 3; i++)
            assert_true(end_of(promises[i]) != -EINPROGRESS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_file_becomes_buffers_in_its_place),
        weir_case(what_is_not_flushed_waits),
        weir_case(a_large_file_comes_in_several_goes),
        weir_case(it_waits_for_writability),
        weir_case(a_reason_that_comes_and_goes_does_not_stop_it),
        weir_case(it_looks_less_and_less_often),
        weir_case(it_looks_often_again_when_something_went),
        weir_case(a_file_that_is_shorter_ends_the_channel),
        weir_case(the_end_of_the_input_waits_for_the_file),
        weir_case(behind_a_gap_nothing_goes_however_long_the_close_takes),
        weir_case(without_a_promise_the_error_is_told),
        weir_case(a_cancelled_file_is_left_out),
        weir_case(a_shutdown_waits_for_the_file),
        weir_case(what_waits_ends_with_the_handler),
        weir_case(what_waits_is_limited),
        weir_case(a_handler_that_needs_the_bytes_gets_them),
        weir_case(it_can_have_an_executor_of_its_own),
        weir_case(what_is_on_its_way_does_not_stop_it),
        weir_case(every_call_may_fail_once),
    };
    return cmocka_run_group_tests_name("handler.file_bytes", tests, NULL, NULL);
}
