/* SPDX-License-Identifier: MIT */
/* The chunked handler: inputs are fetched piece by piece, in their place, as there is room. */
#include "exec/executors.h"

#include <weir/chunked.h>
#include <weir/embedded.h>
#include <weir/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 65536

static uint8_t byte_at(size_t at)
{
    return (uint8_t)(at * 7 + (at >> 8) + (at >> 16));
}

/* What an input does, letter by letter: a digit gives as many bytes, "L" says that there are no
 * more, a capital letter from A to J gives its number of bytes as the last, "n" says not now, "r"
 * resumes itself and says not now, "f" fails, "e" gives an empty chunk, "x" is no answer, "c"
 * closes the channel, "m" removes the handler, and "w" writes "written" and flushes; these three go
 * on with the next letter. */
typedef struct script {
    const char *at;
    size_t chunk;      /* bytes that a digit counts; 0: 1 */
    size_t given;      /* bytes */
    int frees;         /* how often it was freed */
    int asked;         /* how often it was asked */
    weir_chunked *own; /* a reference, to resume it */
    weir_channel *channel;
    uint64_t progress[64], total;
    int steps;
    bool closes_in_progress;
} script;

static weir_buf *bytes_of(script *self, size_t length)
{
    weir_buf *buf = weir_buf_new(length);
    for (size_t i = 0; i < length && buf != NULL; i++)
        assert_int_equal(weir_buf_write_u8(buf, byte_at(self->given++)), 0);
    return buf;
}

static weir_buf *written(void)
{
    return weir_buf_from("written", 7);
}

static weir_pulled script_pull(weir_chunked *input, void *arg, weir_buf **chunk)
{
    script *self = arg;
    size_t unit = self->chunk > 0 ? self->chunk : 1;
    self->asked++;
    for (;;) {
        char letter = *self->at;
        assert_int_not_equal(letter, 0); /* it is not asked more often than it should be */
        self->at++;
        if (letter >= '0' && letter <= '9') {
            *chunk = bytes_of(self, (size_t)(letter - '0') * unit);
            return *chunk != NULL ? WEIR_PULLED_CHUNK : weir_chunked_fail(input, -ENOMEM);
        }
        if (letter >= 'A' && letter <= 'J') {
            *chunk = bytes_of(self, (size_t)(letter - 'A' + 1) * unit);
            return *chunk != NULL ? WEIR_PULLED_LAST : weir_chunked_fail(input, -ENOMEM);
        }
        switch (letter) {
        case 'L':
            return WEIR_PULLED_LAST;
        case 'r':
            weir_chunked_resume(input);
            return WEIR_PULLED_NOT_NOW;
        case 'n':
            return WEIR_PULLED_NOT_NOW;
        case 'e':
            *chunk = weir_buf_new(0);
            return WEIR_PULLED_CHUNK;
        case 'x':
            *chunk = weir_buf_new(0);
            return (weir_pulled)17;
        case 'c':
            weir_channel_close(self->channel, NULL);
            break;
        case 'm':
            weir_pipeline_remove(weir_channel_pipeline(self->channel), "chunked", NULL);
            break;
        case 'w':
            weir_channel_write_and_flush(self->channel, &written()->msg, NULL);
            break;
        default:
            return weir_chunked_fail(input, -EIO);
        }
    }
}

static void script_free(void *arg)
{
    script *self = arg;
    self->frees++;
}

static void script_on_progress(weir_chunked *input, void *arg, uint64_t sent, uint64_t total)
{
    script *self = arg;
    assert_non_null(input);
    assert_true(self->steps < 64);
    self->progress[self->steps++] = sent;
    self->total = total;
    if (self->closes_in_progress)
        weir_channel_close(self->channel, NULL);
}

static weir_chunked *input_of(script *self, weir_chunked_config config)
{
    weir_chunked *input;
    config.arg = self;
    config.free = script_free;
    if (config.read == NULL && config.file == NULL)
        config.pull = script_pull;
    assert_int_equal(weir_chunked_new(&input, &config), 0);
    return input;
}

static weir_msg *generator(script *self)
{
    return weir_chunked_msg(input_of(self, (weir_chunked_config){ 0 }));
}

/* The same, with a reference for resuming. */
static weir_msg *kept_generator(script *self)
{
    self->own = input_of(self, (weir_chunked_config){ 0 });
    return weir_msg_retain(weir_chunked_msg(self->own));
}

static void let_go(script *self)
{
    weir_msg_release(weir_chunked_msg(self->own));
    self->own = NULL;
}

static int add_chunked(weir_channel *channel, void *arg)
{
    weir_handler_config config = { .type = &weir_chunked_handler, .name = "chunked" };
    config.place = WEIR_PLACE_LAST;
    config.group = arg;
    return weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

static weir_embedded *open_channel(void)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_chunked };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void close_channel(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
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

static void expect_text(weir_embedded *embedded, const char *bytes)
{
    weir_msg *msg = weir_embedded_read_outbound(embedded);
    weir_buf *buf = weir_buf_from_msg(msg);
    assert_non_null(buf);
    assert_int_equal(weir_buf_readable(buf), strlen(bytes));
    assert_memory_equal(weir_buf_peek(buf, weir_buf_reader(buf), strlen(bytes)), bytes,
                        strlen(bytes));
    weir_msg_release(msg);
}

static void expect_part(weir_embedded *embedded, size_t at, size_t length)
{
    weir_buf *buf = weir_buf_from_msg(weir_embedded_read_outbound(embedded));
    assert_non_null(buf);
    assert_int_equal(weir_buf_readable(buf), length);
    for (size_t i = 0; i < length; i++) {
        uint8_t byte;
        assert_int_equal(weir_buf_read_u8(buf, &byte), 0);
        assert_int_equal(byte, byte_at(at + i));
    }
    weir_buf_release(buf);
}

static size_t pending_of(weir_embedded *embedded)
{
    weir_channel_stats stats;
    weir_channel_get_stats(weir_embedded_channel(embedded), &stats);
    return stats.pending_bytes;
}

static void drop_outbound(weir_embedded *embedded)
{
    while (weir_embedded_outbound_count(embedded) > 0)
        weir_msg_release(weir_embedded_read_outbound(embedded));
}

/* In order ------------------------------------------------------------------------------------- */

static void inputs_become_buffers_in_their_place(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script scripts[3] = { { .at = "123D" }, { .at = "L" }, { .at = "9L" } };
    weir_promise *promises[6];
    promises[0] = put(embedded, text("before"));
    promises[1] = put(embedded, generator(&scripts[0]));
    promises[2] = put(embedded, text("between"));
    promises[3] = put(embedded, generator(&scripts[1]));
    promises[4] = put(embedded, generator(&scripts[2]));
    promises[5] = put(embedded, text("behind"));
    assert_int_equal(scripts[0].asked, 0); /* nothing without a flush */
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(code_of(promises[i]), -EINPROGRESS);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_text(embedded, "before");
    expect_part(embedded, 0, 1);
    expect_part(embedded, 1, 2);
    expect_part(embedded, 3, 3);
    expect_part(embedded, 6, 4);
    expect_text(embedded, "between");
    expect_text(embedded, "");
    expect_part(embedded, 0, 9);
    expect_text(embedded, ""); /* takes the promise along */
    expect_text(embedded, "behind");
    for (int i = 0; i < 6; i++)
        assert_int_equal(end_of(promises[i]), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(scripts[i].frees, 1);
    close_channel(embedded);
}

/* A stream that gives at most `step` bytes at once, "not now" each time its `pause` bytes came. */
typedef struct stream {
    script script; /* first */
    size_t left, step, pause, since;
    int code; /* at the end */
} stream;

static int stream_read(weir_chunked *input, void *arg, void *to, size_t room)
{
    stream *self = arg;
    uint8_t *bytes = to;
    assert_non_null(input);
    if (self->left == 0)
        return self->code;
    if (self->pause > 0 && self->since >= self->pause) {
        self->since = 0;
        return -EAGAIN;
    }
    size_t length = room < self->step ? room : self->step;
    length = length < self->left ? length : self->left;
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at(self->script.given++);
    self->left -= length;
    self->since += length;
    return (int)length;
}

static weir_msg *stream_input(stream *self, size_t chunk_bytes, uint64_t total)
{
    weir_chunked_config config = { .read = stream_read, .chunk_bytes = chunk_bytes };
    config.total_bytes = total;
    self->script.own = input_of(&self->script, config);
    return weir_msg_retain(weir_chunked_msg(self->script.own));
}

/* However little comes at once, chunks are full. */
static void a_stream_is_read_in_full_chunks(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    stream self = { .left = 2500, .step = 7 };
    weir_promise *promise = put(embedded, stream_input(&self, 1000, 2500));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_part(embedded, 0, 1000);
    expect_part(embedded, 1000, 1000);
    expect_part(embedded, 2000, 500);
    assert_int_equal(end_of(promise), 0);
    let_go(&self.script);
    assert_int_equal(self.script.frees, 1);

    self = (stream){ .left = 3 * CHUNK, .step = CHUNK }; /* the end comes alone */
    promise = put(embedded, stream_input(&self, 0, 0));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    for (size_t i = 0; i < 3; i++)
        expect_part(embedded, i * CHUNK, CHUNK);
    expect_text(embedded, "");
    assert_int_equal(end_of(promise), 0);
    let_go(&self.script);
    close_channel(embedded);
}

/* What is counted is its bytes, so a few of them must not come in a large buffer. */
static void what_comes_bit_by_bit_is_passed_on_in_small_buffers(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    stream self = { .left = 20, .step = 5, .pause = 10 };
    weir_promise *promise = put(embedded, stream_input(&self, 0, 0));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    for (size_t i = 0; i < 2; i++) {
        weir_buf *buf = weir_buf_from_msg(weir_embedded_read_outbound(embedded));
        assert_non_null(buf);
        assert_int_equal(weir_buf_readable(buf), 10);
        assert_true(weir_buf_capacity(buf) <= 64);
        weir_buf_release(buf);
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        assert_int_equal(code_of(promise), i == 0 ? -EINPROGRESS : 0);
        weir_chunked_resume(self.script.own);
        weir_embedded_run(embedded);
    }
    assert_int_equal(end_of(promise), 0);
    let_go(&self.script);
    close_channel(embedded);
}

static weir_file_region *region_of(size_t length, uint64_t offset, uint64_t said)
{
    char path[] = "/tmp/weir-test-chunked-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(path);
    for (size_t at = 0; at < length; at++) {
        uint8_t byte = byte_at(at);
        assert_int_equal(write(fd, &byte, 1), 1);
    }
    weir_file_region *region = weir_file_region_new(fd, offset, said);
    assert_non_null(region);
    return region;
}

static void a_file_is_read_in_chunks(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script self = { 0 };
    weir_chunked_config config = { .file = region_of(2600, 100, 2500), .chunk_bytes = 1000 };
    config.on_progress = script_on_progress;
    weir_promise *promise = put(embedded, weir_chunked_msg(input_of(&self, config)));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_part(embedded, 100, 1000);
    expect_part(embedded, 1100, 1000);
    expect_part(embedded, 2100, 500);
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(self.frees, 1);
    assert_int_equal(self.steps, 3);
    assert_int_equal(self.total, 2500);
    close_channel(embedded);
}

/* Flush and writability ------------------------------------------------------------------------ */

static void what_is_not_flushed_is_not_asked(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script first = { .at = "nA" }, second = { .at = "B" };
    weir_promise *promises[2];
    promises[0] = put(embedded, kept_generator(&first));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    promises[1] = put(embedded, generator(&second));
    weir_chunked_resume(first.own);
    weir_embedded_run(embedded);
    expect_part(embedded, 0, 1);
    weir_embedded_advance(embedded, WEIR_MS(5000));
    assert_int_equal(second.asked, 0);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_part(embedded, 0, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(end_of(promises[i]), 0);
    let_go(&first);
    close_channel(embedded);
}

/* The high water mark and a chunk, whatever the input could give. */
static void it_waits_for_writability(void **state)
{
    (void)state;
    enum { UNIT = 10000, HIGH = 35000 };
    weir_embedded *embedded = open_channel();
    weir_channel *channel = weir_embedded_channel(embedded);
    script self = { .at = "1111111111111111111111111111111111111111A", .chunk = UNIT };
    assert_int_equal(weir_channel_set_water_marks(channel, HIGH / 2, HIGH), 0);
    assert_int_equal(weir_embedded_accept(embedded, 0), 0);
    weir_promise *promise = put(embedded, generator(&self));
    weir_promise *behind = put(embedded, text("behind"));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    assert_int_equal(self.asked, 4);
    for (size_t i = 0; i <= 40; i++) {
        assert_true(pending_of(embedded) <= HIGH + UNIT);
        assert_true(self.given <= (i + 4) * UNIT);
        assert_int_equal(code_of(promise), -EINPROGRESS);
        assert_int_equal(weir_embedded_accept(embedded, 1), 0);
        expect_part(embedded, i * UNIT, UNIT);
    }
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(weir_embedded_accept(embedded, 1), 0);
    expect_text(embedded, "behind");
    assert_int_equal(end_of(behind), 0);
    close_channel(embedded);
}

/* Not now -------------------------------------------------------------------------------------- */

static void who_says_not_now_is_asked_when_it_is_resumed(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script self = { .at = "1nn2nC" };
    weir_msg *msg = kept_generator(&self);
    weir_chunked_resume(self.own); /* too early: it does nothing */
    weir_promise *promise = put(embedded, msg);
    weir_promise *behind = put(embedded, text("behind"));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_part(embedded, 0, 1);
    weir_executor_stats stats;
    weir_executor_get_stats(weir_embedded_executor(embedded), &stats);
    assert_int_equal(stats.timers, 0);
    weir_embedded_advance(embedded, WEIR_MS(5000));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    assert_int_equal(self.asked, 2);
    for (int i = 0; i < 3; i++)
        weir_chunked_resume(self.own); /* together they are one */
    assert_int_equal(self.asked, 2);   /* and not inside the call */
    weir_embedded_run(embedded);
    assert_int_equal(self.asked, 3);
    weir_chunked_resume(self.own);
    weir_embedded_run(embedded);
    expect_part(embedded, 1, 2);
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    weir_chunked_resume(self.own);
    weir_embedded_run(embedded);
    expect_part(embedded, 3, 3);
    expect_text(embedded, "behind");
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(end_of(behind), 0);
    weir_chunked_resume(self.own); /* too late */
    weir_embedded_run(embedded);
    assert_int_equal(self.frees, 0);
    let_go(&self);
    assert_int_equal(self.frees, 1);
    close_channel(embedded);
}

/* It does not keep the loop for itself. */
static void who_resumes_itself_is_asked_again(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script self = { .at = "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr1rA" };
    weir_promise *promise = put(embedded, generator(&self));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_part(embedded, 0, 1);
    expect_part(embedded, 1, 1);
    assert_int_equal(end_of(promise), 0);
    close_channel(embedded);
}

static void a_shutdown_waits_for_who_said_not_now(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    weir_channel *channel = weir_embedded_channel(embedded);
    script self = { .at = "1nA" };
    weir_promise *promise = put(embedded, kept_generator(&self));
    weir_promise *shutdown = weir_channel_promise(channel);
    weir_channel_shutdown(channel, shutdown);
    weir_embedded_run(embedded);
    assert_false(weir_embedded_is_output_shut(embedded));
    assert_int_equal(end_of(put(embedded, text("late"))), -EPIPE);
    weir_chunked_resume(self.own);
    weir_embedded_run(embedded);
    assert_true(weir_embedded_is_output_shut(embedded));
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(end_of(shutdown), 0);
    expect_part(embedded, 0, 1);
    expect_part(embedded, 1, 1);
    let_go(&self);
    close_channel(embedded);
}

/* Closed or removed while it waits, with a call to go on under way or not. */
/* Also when that will not come any more, because the handler is gone. */
static void finishing_waits_for_a_shutdown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir_embedded *embedded = open_channel();
        weir_channel *channel = weir_embedded_channel(embedded);
        script self = { .at = "3nB" };
        weir_promise *input = put(embedded, kept_generator(&self));
        weir_promise *shutdown = weir_channel_promise(channel);
        weir_promise *finish = weir_channel_promise(channel);
        weir_channel_shutdown(channel, shutdown);
        weir_channel_finish(channel, finish);
        weir_embedded_run(embedded);
        weir_embedded_advance(embedded, WEIR_SECONDS(60));
        assert_true(weir_channel_is_open(channel));
        if (i == 0)
            weir_chunked_resume(self.own);
        else
            weir_pipeline_remove(weir_embedded_pipeline(embedded), "chunked", NULL);
        weir_embedded_run(embedded);
        weir_embedded_advance(embedded, WEIR_SECONDS(60));
        assert_false(weir_channel_is_open(channel));
        assert_true(weir_embedded_is_output_shut(embedded));
        assert_int_equal(end_of(input), i == 0 ? 0 : -ECANCELED);
        assert_int_equal(end_of(shutdown), i == 0 ? 0 : -ECANCELED);
        assert_int_equal(end_of(finish), 0);
        let_go(&self);
        drop_outbound(embedded);
        close_channel(embedded);
    }
}

static void who_waits_ends_with_the_handler(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        bool is_closed = kind & 1, is_resumed = kind & 2;
        weir_embedded *embedded = open_channel();
        weir_channel *channel = weir_embedded_channel(embedded);
        script self = { .at = "n" }, next = { .at = "" };
        weir_promise *promise = put(embedded, kept_generator(&self));
        weir_promise_release(put(embedded, text("between")));
        weir_promise *behind = put(embedded, generator(&next));
        assert_int_equal(weir_embedded_flush(embedded), 0);
        if (is_closed)
            weir_channel_close(channel, NULL);
        else
            weir_pipeline_remove(weir_channel_pipeline(channel), "chunked", NULL);
        if (is_resumed)
            weir_chunked_resume(self.own);
        weir_embedded_run(embedded);
        weir_chunked_resume(self.own);
        weir_embedded_run(embedded);
        assert_int_equal(end_of(promise), is_closed ? WEIR_ECLOSED : -ECANCELED);
        assert_int_equal(end_of(behind), is_closed ? WEIR_ECLOSED : -ECANCELED);
        assert_int_equal(next.frees, 1);
        let_go(&self);
        assert_int_equal(self.frees, 1);
        assert_int_equal(self.asked, 1);
        close_channel(embedded);
    }
}

/* Progress ------------------------------------------------------------------------------------- */

static void progress_is_what_has_gone(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script self = { .at = "123D" };
    weir_chunked_config config = { .on_progress = script_on_progress, .total_bytes = 10 };
    assert_int_equal(weir_embedded_accept(embedded, 0), 0);
    weir_promise *promise = put(embedded, weir_chunked_msg(input_of(&self, config)));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    static const uint64_t expected[] = { 1, 3, 6, 10 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(self.steps, i);
        assert_int_equal(code_of(promise), -EINPROGRESS);
        assert_int_equal(weir_embedded_accept(embedded, 1), 0);
        assert_int_equal(self.steps, i + 1);
        assert_int_equal(self.progress[i], expected[i]);
        assert_int_equal(self.total, 10);
    }
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(self.frees, 1);
    drop_outbound(embedded);

    script unknown = { .at = "1B" };
    config = (weir_chunked_config){ .on_progress = script_on_progress };
    weir_embedded_accept(embedded, SIZE_MAX);
    weir_embedded_write_outbound(embedded, weir_chunked_msg(input_of(&unknown, config)));
    assert_int_equal(unknown.steps, 2);
    assert_int_equal(unknown.progress[1], 3);
    assert_int_equal(unknown.total, 0);
    drop_outbound(embedded);
    close_channel(embedded);
}

/* A chunk that is not sent is a gap, whether somebody wants to know the progress or not. */
static void a_chunk_that_fails_ends_the_channel(void **state)
{
    (void)state;
    for (int is_last = 0; is_last < 2; is_last++) {
        weir_embedded *embedded = open_channel();
        script self = { .at = is_last ? "A" : "1nA" };
        weir_chunked_config config = { .on_progress = script_on_progress };
        weir_promise *promise = put(embedded, weir_chunked_msg(input_of(&self, config)));
        weir_embedded_fail_sends(embedded, -EIO);
        weir_embedded_flush(embedded);
        assert_int_equal(self.steps, 0);
        assert_int_equal(end_of(promise), is_last ? -EIO : WEIR_ECLOSED);
        assert_int_equal(self.frees, 1);
        weir_error error;
        while (weir_embedded_take_error(embedded, &error))
            assert_int_equal(error.code, -EIO);
        assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)), false);
        close_channel(embedded);
    }
}

/* Errors --------------------------------------------------------------------------------------- */

/* What went stays, what waits fails, and the channel is closed. */
static void an_input_that_fails_ends_the_channel(void **state)
{
    (void)state;
    static const struct row {
        const char *at;
        uint64_t total;
        int code;
        size_t parts;
    } rows[] = {
        { "11f", 0, -EIO, 2 },   { "f", 0, -EIO, 0 },          { "1e", 0, -EPROTO, 1 },
        { "1x", 0, -EPROTO, 1 }, { "11L", 3, WEIR_EOF, 2 },    { "11A", 4, WEIR_EOF, 2 },
        { "L", 3, WEIR_EOF, 0 }, { "112", 3, WEIR_ELIMIT, 2 }, { "11B", 3, WEIR_ELIMIT, 2 },
        { "1rf", 0, -EIO, 1 },
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i / 2];
        bool has_promise = i % 2;
        weir_embedded *embedded = open_channel();
        weir_channel *channel = weir_embedded_channel(embedded);
        script self = { .at = row->at }, next = { .at = "" };
        weir_chunked_config config = { .total_bytes = row->total };
        weir_promise *promise = has_promise ? weir_channel_promise(channel) : NULL;
        weir_channel_write(channel, weir_chunked_msg(input_of(&self, config)), promise);
        weir_promise *behind = put(embedded, text("behind"));
        weir_promise *another = put(embedded, generator(&next));
        weir_embedded_flush(embedded);
        for (size_t part = 0; part < row->parts; part++)
            expect_part(embedded, part, 1);
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        weir_error error;
        assert_int_equal(weir_embedded_take_error(embedded, &error), !has_promise);
        if (has_promise) {
            assert_int_equal(end_of(promise), row->code);
        } else {
            assert_int_equal(error.code, row->code);
            assert_string_equal(error.origin, "chunked");
        }
        assert_int_equal(end_of(behind), WEIR_ECLOSED);
        assert_int_equal(end_of(another), WEIR_ECLOSED);
        assert_int_equal(self.frees, 1);
        assert_int_equal(next.frees, 1);
        assert_false(weir_channel_is_open(channel));
        close_channel(embedded);
    }
}

static int lying_read(weir_chunked *input, void *arg, void *to, size_t room)
{
    (void)input;
    (void)arg;
    (void)to;
    return (int)room + 1;
}

static void a_stream_that_fails_ends_the_channel(void **state)
{
    (void)state;
    for (int is_lying = 0; is_lying < 2; is_lying++) {
        weir_embedded *embedded = open_channel();
        stream self = { .left = 10, .step = 10, .code = -EIO };
        weir_chunked_config config = { .read = is_lying ? lying_read : stream_read };
        config.chunk_bytes = 10;
        weir_promise *promise = put(embedded, weir_chunked_msg(input_of(&self.script, config)));
        weir_embedded_flush(embedded);
        assert_int_equal(end_of(promise), is_lying ? WEIR_EBOUNDS : -EIO);
        if (!is_lying)
            expect_part(embedded, 0, 10);
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        close_channel(embedded);
    }
}

static void what_is_no_input_is_refused(void **state)
{
    (void)state;
    script self = { .at = "" };
    weir_chunked *input;
    weir_chunked_config none = { .arg = &self, .free = script_free };
    weir_chunked_config two = { .pull = script_pull, .read = stream_read, .free = script_free };
    weir_chunked_config large = { .read = stream_read, .chunk_bytes = (size_t)WEIR_BUF_MAX + 1 };
    assert_int_equal(weir_chunked_new(&input, NULL), -EINVAL);
    assert_int_equal(weir_chunked_new(&input, &none), -EINVAL);
    assert_int_equal(weir_chunked_new(&input, &two), -EINVAL);
    assert_int_equal(weir_chunked_new(&input, &large), -EINVAL);
    assert_int_equal(weir_chunked_new(NULL, &none), -EINVAL);
    assert_int_equal(self.frees, 0);
    weir_chunked_resume(NULL);
    assert_null(weir_chunked_msg(NULL));
}

static void an_input_is_written_once(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script self = { .at = "A" };
    weir_promise *first = put(embedded, kept_generator(&self));
    weir_promise *second = put(embedded, weir_msg_retain(weir_chunked_msg(self.own)));
    assert_int_equal(weir_embedded_flush(embedded), 0);
    expect_part(embedded, 0, 1);
    assert_int_equal(end_of(first), 0);
    assert_int_equal(end_of(second), -EALREADY);
    let_go(&self);
    close_channel(embedded);
}

/* Before it was asked; then it goes on. */
static void a_cancelled_input_is_left_out(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script first = { .at = "" }, second = { .at = "1nA" };
    weir_promise *promises[2];
    promises[0] = put(embedded, generator(&first));
    promises[1] = put(embedded, kept_generator(&second));
    assert_int_equal(weir_future_cancel(weir_promise_future(promises[0])), 0);
    assert_int_equal(weir_embedded_flush(embedded), 0);
    assert_int_equal(first.frees, 1);
    expect_part(embedded, 0, 1);
    assert_int_equal(weir_future_cancel(weir_promise_future(promises[1])), -EBUSY);
    weir_chunked_resume(second.own);
    weir_embedded_run(embedded);
    expect_part(embedded, 1, 1);
    assert_int_equal(end_of(promises[0]), -ECANCELED);
    assert_int_equal(end_of(promises[1]), 0);
    let_go(&second);
    close_channel(embedded);
}

/* Inside callbacks ----------------------------------------------------------------------------- */

/* To close, to remove the handler and to write, before each kind of answer. */
static void everything_is_allowed_when_it_is_asked(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "1c1", "1cA", "1cL", "1cn", "1cr", "1cf", "1m1", "1mA", "1mL", "1mn", "1mf", "cm1",
    };
    for (size_t i = 0; i < 2 * sizeof scripts / sizeof *scripts; i++) {
        weir_embedded *embedded = open_channel();
        script self = { .at = scripts[i / 2] }, next = { .at = "A" };
        self.channel = weir_embedded_channel(embedded);
        weir_chunked_config config = { .on_progress = i % 2 ? script_on_progress : NULL };
        weir_promise *promise = put(embedded, weir_chunked_msg(input_of(&self, config)));
        weir_promise *behind = put(embedded, generator(&next));
        weir_embedded_flush(embedded);
        weir_embedded_advance(embedded, WEIR_MS(100));
        assert_true(end_of(promise) != -EINPROGRESS);
        assert_true(end_of(behind) < 0);
        assert_int_equal(self.frees, 1);
        assert_int_equal(next.frees, 1);
        assert_int_equal(next.asked, 0);
        drop_outbound(embedded);
        close_channel(embedded);
    }
}

static void what_is_written_when_it_is_asked_comes_behind_it(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script self = { .at = "w1w2wC" };
    self.channel = weir_embedded_channel(embedded);
    weir_promise *promise = put(embedded, generator(&self));
    weir_embedded_flush(embedded);
    expect_part(embedded, 0, 1);
    expect_part(embedded, 1, 2);
    expect_part(embedded, 3, 3);
    for (int i = 0; i < 3; i++)
        expect_text(embedded, "written");
    assert_int_equal(end_of(promise), 0);
    close_channel(embedded);
}

static void a_close_in_progress_ends_it(void **state)
{
    (void)state;
    weir_embedded *embedded = open_channel();
    script self = { .at = "1nA", .closes_in_progress = true };
    self.channel = weir_embedded_channel(embedded);
    weir_chunked_config config = { .on_progress = script_on_progress };
    weir_promise *promise = put(embedded, weir_chunked_msg(input_of(&self, config)));
    weir_embedded_flush(embedded);
    assert_int_equal(self.steps, 1);
    assert_int_equal(end_of(promise), WEIR_ECLOSED);
    assert_int_equal(self.frees, 1);
    drop_outbound(embedded);
    close_channel(embedded);
}

/* Threads -------------------------------------------------------------------------------------- */

/* Bytes that another thread makes, a few at a time, and says so each time. */
typedef struct producer {
    atomic_size_t made;
    size_t taken, total;
    weir_chunked *input;
    atomic_int frees;
} producer;

static weir_pulled take_made(weir_chunked *input, void *arg, weir_buf **chunk)
{
    producer *self = arg;
    (void)input;
    size_t length = atomic_load(&self->made) - self->taken;
    if (length == 0)
        return WEIR_PULLED_NOT_NOW;
    *chunk = weir_buf_new(length);
    while (length-- > 0)
        weir_buf_write_u8(*chunk, byte_at(self->taken++));
    return self->taken == self->total ? WEIR_PULLED_LAST : WEIR_PULLED_CHUNK;
}

static void producer_free(void *arg)
{
    atomic_fetch_add(&((producer *)arg)->frees, 1);
}

static void *produce(void *arg)
{
    producer *self = arg;
    for (size_t made = 0; made < self->total; made += 3) {
        atomic_store(&self->made, made + 3 < self->total ? made + 3 : self->total);
        weir_chunked_resume(self->input);
        if (made % 64 == 0)
            sched_yield();
    }
    weir_msg_release(weir_chunked_msg(self->input));
    return NULL;
}

static void begin_producing(producer *self, pthread_t *thread)
{
    weir_chunked_config config = { .pull = take_made, .arg = self, .free = producer_free };
    assert_int_equal(weir_chunked_new(&self->input, &config), 0);
    weir_msg_retain(weir_chunked_msg(self->input));
    assert_int_equal(pthread_create(thread, NULL, produce, self), 0);
}

/* All of the bytes go out, in order. */
static void expect_all(weir_embedded *embedded, const weir_promise *promise, size_t total)
{
    size_t at = 0;
    uint8_t bytes[512];
    for (bool is_done = false; !is_done || weir_embedded_outbound_count(embedded) > 0;) {
        is_done = weir_future_is_done(weir_promise_future((weir_promise *)promise));
        weir_embedded_run(embedded);
        size_t came = weir_embedded_read_outbound_bytes(embedded, bytes, sizeof bytes);
        for (size_t i = 0; i < came; i++)
            assert_int_equal(bytes[i], byte_at(at++));
    }
    assert_int_equal(at, total);
}

/* On the channel's loop, on an executor of the handler's own, and while the channel moves from loop
 * to loop. */
static void another_thread_resumes_it(void **state)
{
    (void)state;
    enum { TOTAL = 20000 };
    for (int kind = 0; kind < 3; kind++) {
        weir_group *loops = NULL, *readers = NULL;
        if (kind == 2)
            assert_int_equal(weir_group_new(&loops, &(weir_group_config){ .loops = 2 }, NULL), 0);
        if (kind == 1)
            readers = new_group_of(1);
        weir_embedded *embedded;
        weir_embedded_config config = { .init = add_chunked, .arg = readers, .group = loops };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_promise *promise = weir_channel_promise(channel);
        producer self = { .total = TOTAL };
        pthread_t thread;
        begin_producing(&self, &thread);
        weir_channel_write_and_flush(channel, weir_chunked_msg(self.input), promise);
        for (int i = 0; i < 40 && kind == 2; i++)
            weir_channel_move(channel, weir_group_at(loops, (size_t)i % 2), NULL);
        if (kind == 2) /* what went out can only be looked at when its loop is through with it */
            weir_future_await(weir_promise_future(promise));
        expect_all(embedded, promise, TOTAL);
        pthread_join(thread, NULL);
        assert_int_equal(end_of(promise), 0);
        WAIT_FOR(atomic_load(&self.frees) == 1); /* the message goes a moment later */
        weir_embedded_free(embedded);
        if (kind > 0)
            end_group(kind == 1 ? readers : loops);
    }
}

/* The channel is closed while it is resumed. */
static void another_thread_resumes_what_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        weir_group *readers = i % 2 ? new_group_of(1) : NULL;
        weir_embedded *embedded;
        weir_embedded_config config = { .init = add_chunked, .arg = readers };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_promise *promise = weir_channel_promise(channel);
        producer self = { .total = 2000 };
        pthread_t thread;
        begin_producing(&self, &thread);
        weir_channel_write_and_flush(channel, weir_chunked_msg(self.input), promise);
        for (int turn = 0; turn < i; turn++)
            weir_embedded_run(embedded);
        weir_embedded_close(embedded);
        weir_embedded_free(embedded);
        if (readers != NULL)
            end_group(readers);
        pthread_join(thread, NULL);
        assert_true(end_of(promise) != -EINPROGRESS);
        WAIT_FOR(atomic_load(&self.frees) == 1);
    }
}

/* Over a real socket, to somebody who reads in his own time. */
static void a_socket_takes_it_in_its_own_time(void **state)
{
    (void)state;
    enum { TOTAL = 3000000 };
    int fds[2];
    weir_group *group = NULL;
    weir_channel *channel;
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 1 }, NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(weir_channel_from_descriptor(&channel, WEIR_SOCKET_STREAM, fds[0], NULL), 0);
    assert_int_equal(add_chunked(channel, NULL), 0);
    weir_promise *registered = weir_channel_promise(channel);
    weir_group_register(group, channel, registered);
    assert_int_equal(weir_future_await(weir_promise_future(registered)), 0);
    weir_promise_release(registered);

    stream self = { .left = TOTAL, .step = 5000 };
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write_and_flush(channel, stream_input(&self, 20000, TOTAL), promise);
    static uint8_t bytes[4096];
    for (size_t at = 0; at < TOTAL;) {
        weir_channel_stats stats;
        ssize_t came = read(fds[1], bytes, sizeof bytes);
        assert_true(came > 0);
        for (ssize_t i = 0; i < came; i++)
            assert_int_equal(bytes[i], byte_at(at++));
        weir_channel_get_stats(channel, &stats);
        assert_true(stats.pending_bytes <= 65536 + 20000);
    }
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    let_go(&self.script);
    weir_channel_close(channel, NULL);
    weir_channel_release(channel);
    close(fds[1]);
    end_group(group);
    assert_int_equal(self.script.frees, 1);
}

/* Faults --------------------------------------------------------------------------------------- */

/* Whichever fails: what goes out is a beginning of what was written, each promise comes to an end,
 * each input is freed once. */
static void every_call_may_fail_once(void **state)
{
    (void)state;
    bool has_failed = true;
    for (unsigned nth = 1; has_failed; nth++) {
        weir_embedded *embedded = open_channel();
        weir_channel *channel = weir_embedded_channel(embedded);
        stream bytes = { .left = 300, .step = 40, .pause = 130 };
        script made = { .at = "1r2nC" };
        weir_chunked_config told = { .on_progress = script_on_progress };
        weir_promise *promises[2];
        weir_msg *msgs[2] = { stream_input(&bytes, 100, 300), NULL };
        made.own = input_of(&made, told);
        msgs[1] = weir_msg_retain(weir_chunked_msg(made.own));
        for (int i = 0; i < 2; i++)
            promises[i] = weir_channel_promise(channel);
        harness_fail_nth(NULL, nth, -ENOMEM);
        for (int i = 0; i < 2; i++)
            weir_channel_write(channel, msgs[i], promises[i]);
        for (int i = 0; i < 6; i++) {
            weir_embedded_flush(embedded);
            weir_chunked_resume(bytes.script.own);
            weir_chunked_resume(made.own);
            weir_embedded_advance(embedded, WEIR_MS(20));
        }
        has_failed = harness_fail_end() >= nth;
        weir_embedded_flush(embedded); /* if it was the flush that failed */
        for (int i = 0; i < 6; i++) {
            weir_chunked_resume(bytes.script.own);
            weir_chunked_resume(made.own);
            weir_embedded_advance(embedded, WEIR_MS(20));
        }
        uint8_t sent[400];
        size_t length = weir_embedded_read_outbound_bytes(embedded, sent, sizeof sent);
        size_t first = bytes.script.given > 0 ? 300 : 0; /* or it was not even written */
        for (size_t i = 0; i < length; i++)
            assert_int_equal(sent[i], byte_at(i >= first ? i - first : i));
        weir_embedded_free(embedded);
        for (int i = 0; i < 2; i++)
            assert_true(end_of(promises[i]) != -EINPROGRESS);
        let_go(&bytes.script);
        let_go(&made);
        assert_int_equal(bytes.script.frees, 1);
        assert_int_equal(made.frees, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(inputs_become_buffers_in_their_place),
        weir_case(a_stream_is_read_in_full_chunks),
        weir_case(what_comes_bit_by_bit_is_passed_on_in_small_buffers),
        weir_case(a_file_is_read_in_chunks),
        weir_case(what_is_not_flushed_is_not_asked),
        weir_case(it_waits_for_writability),
        weir_case(who_says_not_now_is_asked_when_it_is_resumed),
        weir_case(who_resumes_itself_is_asked_again),
        weir_case(a_shutdown_waits_for_who_said_not_now),
        weir_case(finishing_waits_for_a_shutdown),
        weir_case(who_waits_ends_with_the_handler),
        weir_case(progress_is_what_has_gone),
        weir_case(a_chunk_that_fails_ends_the_channel),
        weir_case(an_input_that_fails_ends_the_channel),
        weir_case(a_stream_that_fails_ends_the_channel),
        weir_case(what_is_no_input_is_refused),
        weir_case(an_input_is_written_once),
        weir_case(a_cancelled_input_is_left_out),
        weir_case(everything_is_allowed_when_it_is_asked),
        weir_case(what_is_written_when_it_is_asked_comes_behind_it),
        weir_case(a_close_in_progress_ends_it),
        weir_case(another_thread_resumes_it),
        weir_case(another_thread_resumes_what_ends),
        weir_case(a_socket_takes_it_in_its_own_time),
        weir_case(every_call_may_fail_once),
    };
    return cmocka_run_group_tests_name("handler.chunked", tests, NULL, NULL);
}
