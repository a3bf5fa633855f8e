/* SPDX-License-Identifier: MIT */
/* Frames that say how long they are. */
#include "codecs.h"

#include <weir/length_field.h>

#include <errno.h>

#define BODY "HELLO, WORLD"

/* The table in the header, and its like in the other byte order and every width. */
static void layouts(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        weir_length_field field;
        size_t passed_at; /* where what is passed on begins; it ends with the frame */
    } rows[] = {
        { "\0\14" BODY, 14, { .width = 2 }, 0 },
        { "\0\14" BODY, 14, { .width = 2, .strip = 2 }, 2 },
        { "\0\16" BODY, 14, { .width = 2, .adjustment = -2 }, 0 },
        { "\312\376\0\0\14" BODY, 17, { .offset = 2, .width = 3 }, 0 },
        { "\0\0\14\312\376" BODY, 17, { .width = 3, .adjustment = 2 }, 0 },
        { "\312\0\14\376" BODY, 16, { .offset = 1, .width = 2, .adjustment = 1, .strip = 3 }, 3 },
        { "\312\0\20\376" BODY, 16, { .offset = 1, .width = 2, .adjustment = -3, .strip = 3 }, 3 },
        { "\14" BODY, 13, { .width = 1 }, 0 },
        { "\0\0\0\14" BODY, 16, { .width = 0 }, 0 },
        { "\14\0" BODY, 14, { .width = 2, .is_little_endian = true }, 0 },
        { "\14\0\0" BODY, 15, { .width = 3, .is_little_endian = true }, 0 },
        { "\0\0\0\0\0\0\0\14" BODY, 20, { .width = 8, .strip = 8 }, 8 },
        { "\14\0\0\0\0\0\0\0" BODY, 20, { .width = 8, .is_little_endian = true, .strip = 20 }, 20 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_length_field field = rows[i].field;
        field.max_frame = rows[i].length; /* and no more */
        weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
        char twice[64];
        memcpy(twice, rows[i].bytes, rows[i].length);
        memcpy(twice + rows[i].length, rows[i].bytes, rows[i].length);
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, twice, 2 * rows[i].length), 0);
        for (int n = 0; n < 2; n++)
            codec_expect(embedded, rows[i].bytes + rows[i].passed_at,
                         rows[i].length - rows[i].passed_at);
        codec_end(embedded);
        codec_verify(&weir_length_field_decoder, &field, twice, 2 * rows[i].length, 2, 0);
    }
}

static void empty_frames_are_frames(void **state)
{
    (void)state;
    weir_length_field field = { .max_frame = 10, .width = 1, .strip = 1 };
    codec_verify(&weir_length_field_decoder, &field, "\0\0\1a\0", 5, 4, 0);
}

static void what_makes_no_length_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        weir_length_field field;
        const char *text;
    } rows[] = {
        { "\0\1a",
          3,
          { .width = 2, .adjustment = -2 },
          "1 in a length field, which -2 makes no length (at byte 0 of the stream)" },
        { "\377\377\377\377\377\377\377\377",
          8,
          { .width = 8 },
          "-1 in a length field, which +0 makes no length (at byte 0 of the stream)" },
        { "\177\377\377\377\377\377\377\377",
          8,
          { .width = 8, .adjustment = 1 },
          "9223372036854775807 in a length field, which +1 makes no length (at byte 0 of the "
          "stream)" },
        { "\177\377\377\377\377\377\377\371",
          8,
          { .width = 8 },
          "9223372036854775801 in a length field, which +0 makes no length (at byte 0 of the "
          "stream)" },
        { "\1a",
          2,
          { .width = 1, .strip = 4 },
          "a frame of 2 bytes, of which 4 are to be stripped (at byte 0 of the stream)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_length_field field = rows[i].field;
        field.max_frame = 100;
        weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, rows[i].bytes, rows[i].length),
                         -EBADMSG);
        codec_expect_error(embedded, -EBADMSG, rows[i].text);
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        codec_end(embedded);
        codec_verify(&weir_length_field_decoder, &field, rows[i].bytes, rows[i].length, 0, 1);
    }
}

/* Told at once, on the word of the length alone; nothing was made ready for it. */
static void too_long_frames_close(void **state)
{
    (void)state;
    weir_length_field field = { .max_frame = 6 };
    weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\0\0\0\2ab\177\377\377\377", 10),
                     WEIR_ELIMIT);
    codec_expect_error(embedded, WEIR_ELIMIT,
                       "a frame of 2147483651 bytes is above the limit of 6 (at byte 6 of the "
                       "stream)");
    codec_expect(embedded, "\0\0\0\2ab", 6);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
    codec_verify(&weir_length_field_decoder, &field, "\0\0\0\2ab\0\0\0\3abc", 13, 1, 1);
}

/* A frame that may be as long, of which nothing has come: memory comes with the bytes. */
static void a_length_alone_takes_no_memory(void **state)
{
    (void)state;
    weir_length_field field = { .max_frame = (size_t)64 << 20 };
    weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
    weir_pool_stats before, after;
    weir_pool_get_stats(&before);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\2\0\0\0ab", 6), 0);
    weir_pool_get_stats(&after);
    assert_true(after.used_bytes < before.used_bytes + 1024);
    weir_embedded_free(embedded);
}

static void too_long_frames_can_be_skipped(void **state)
{
    (void)state;
    for (weir_oversize oversize = WEIR_OVERSIZE_SKIP; oversize <= WEIR_OVERSIZE_SKIP_FIRST;
         oversize++) {
        weir_length_field field = { .max_frame = 4, .width = 1, .oversize = oversize };
        weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
        bool is_late = oversize == WEIR_OVERSIZE_SKIP_FIRST;
        weir_embedded_write_inbound_bytes(embedded, "\1a\5bcd", 6);
        codec_expect(embedded, "\1a", 2);
        assert_int_equal(weir_embedded_check(embedded), is_late ? 0 : WEIR_ELIMIT);
        weir_embedded_write_inbound_bytes(embedded, "ef\3ghi", 6);
        codec_expect_error(embedded, WEIR_ELIMIT,
                           is_late ? "a frame of 6 bytes is above the limit of 4 (at byte 8 of the "
                                     "stream)"
                                   : "a frame of 6 bytes is above the limit of 4 (at byte 2 of the "
                                     "stream)");
        codec_expect(embedded, "\3ghi", 4);
        codec_end(embedded);
        codec_verify(&weir_length_field_decoder, &field, "\1a\5bcdef\3ghi\6abcdef\0", 20, 3, 2);
    }
}

static void a_too_long_frame_that_is_cut_off_is_told(void **state)
{
    (void)state;
    weir_length_field field = { .max_frame = 4, .width = 1, .oversize = WEIR_OVERSIZE_SKIP_FIRST };
    weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
    weir_embedded_write_inbound_bytes(embedded, "\1a\5bcd", 6);
    weir_embedded_end_inbound(embedded, 0);
    codec_expect(embedded, "\1a", 2);
    codec_expect_error(embedded, WEIR_ELIMIT,
                       "a frame of 6 bytes is above the limit of 4 (at byte 6 of the stream)");
    codec_end(embedded);
    codec_verify(&weir_length_field_decoder, &field, "\1a\5bcd", 6, 1, 0);
}

static void a_frame_that_is_cut_off_is_told(void **state)
{
    (void)state;
    weir_length_field field = { .max_frame = 10, .width = 1 };
    weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
    weir_embedded_write_inbound_bytes(embedded, "\5abc", 4);
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_error(embedded, WEIR_EOF,
                       "the stream ends inside a message, 4 bytes behind its begin (at byte 0 of "
                       "the stream)");
    codec_end(embedded);
}

static void fields_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const weir_length_field rows[] = {
        { .width = 2 },
        { .max_frame = 100, .width = 5 },
        { .max_frame = 100, .width = 9 },
        { .max_frame = 100, .width = 2, .strip = 101 },
        { .max_frame = 100, .width = 4, .offset = 97 },
        { .max_frame = (size_t)WEIR_BUF_MAX + 1 },
        { .max_frame = 3, .width = 4 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        codec_is_refused(&weir_length_field_decoder, &rows[i]);
    codec_is_refused(&weir_length_field_decoder, NULL);
    codec_is_refused(&weir_length_prepender_handler, NULL);
    codec_is_refused(&weir_length_prepender_handler, &(weir_length_prepender){ .width = 6 });
}

/* A hundred thousand frames, a small allocation each, and no byte copied. */
static void frames_cost_one_small_block(void **state)
{
    (void)state;
    weir_length_field field = { .max_frame = 100, .width = 4 };
    weir_embedded *embedded = codec_new(&weir_length_field_decoder, &field);
    weir_buf *read = weir_buf_new(16384);
    for (int i = 0; i < 240; i++) {
        weir_buf_write_u32(read, 64);
        weir_buf_write_fill(read, (uint8_t)i, 64);
    }
    const uint8_t *bytes = weir_buf_peek(read, 0, 68);
    weir_pool_stats before, after;
    weir_pool_get_stats(&before);
    assert_int_equal(weir_embedded_write_inbound(embedded, &read->msg), 0);
    weir_pool_get_stats(&after);
    assert_int_equal(after.used_blocks - before.used_blocks, 240);
    for (int i = 0; i < 240; i++) {
        weir_buf *frame = weir_buf_from_msg(weir_embedded_read_inbound(embedded));
        assert_ptr_equal(weir_buf_peek(frame, 0, 68), bytes + (size_t)i * 68);
        weir_buf_release(frame);
    }
    codec_end(embedded);
}

/* Encoding ------------------------------------------------------------------------------------- */

static void lengths_are_prepended(void **state)
{
    (void)state;
    static const struct {
        weir_length_prepender prepender;
        const char *bytes;
        size_t length;
    } rows[] = {
        { { .width = 1 }, "\3", 1 },
        { { .width = 2 }, "\0\3", 2 },
        { { .width = 3, .counts_itself = true }, "\0\0\6", 3 },
        { { .width = 0 }, "\0\0\0\3", 4 },
        { { .width = 8, .adjustment = -1 }, "\0\0\0\0\0\0\0\2", 8 },
        { { .width = 4, .is_little_endian = true, .adjustment = 256 }, "\3\1\0\0", 4 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded = codec_new(&weir_length_prepender_handler, &rows[i].prepender);
        assert_int_equal(weir_embedded_write_outbound(embedded, &weir_buf_from("abc", 3)->msg), 0);
        char both[16];
        memcpy(both, rows[i].bytes, rows[i].length);
        memcpy(both + rows[i].length, "abc", 3);
        codec_expect_written(embedded, both, rows[i].length + 3); /* one message */
        codec_end(embedded);
    }
}

static void lengths_that_do_not_fit_fail_the_write(void **state)
{
    (void)state;
    static const weir_length_prepender rows[] = {
        { .width = 1 },
        { .width = 4, .adjustment = -257 },
        { .width = 8, .adjustment = INT64_MAX },
        { .width = 1, .adjustment = -256, .counts_itself = true, .is_little_endian = true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded = codec_new(&weir_length_prepender_handler, &rows[i]);
        weir_buf *body = weir_buf_new(256);
        weir_buf_write_fill(body, 'x', 256);
        int code = weir_embedded_write_outbound(embedded, &body->msg);
        if (i < 3) {
            assert_int_equal(code, -EMSGSIZE);
            codec_expect_error(embedded, -EMSGSIZE, "a write failed: Message too long");
            assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        } else { /* 256 - 256 + 1 */
            assert_int_equal(code, 0);
            weir_buf *both = weir_buf_from_msg(weir_embedded_read_outbound(embedded));
            uint8_t length = 0;
            assert_int_equal(weir_buf_read_u8(both, &length), 0);
            assert_int_equal(length, 1);
            assert_int_equal(weir_buf_readable(both), 256);
            weir_buf_release(both);
        }
        codec_end(embedded);
    }
}

/* Each allocation fails once: the length and what it is of go together, or not at all. */
static void without_memory_nothing_is_prepended(void **state)
{
    (void)state;
    weir_length_prepender prepender = { .width = 2 };
    unsigned failed = 0;
    for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
        weir_embedded *embedded = codec_new(&weir_length_prepender_handler, &prepender);
        weir_buf *body = weir_buf_from("abc", 3);
        harness_fail_nth("pool", nth, -ENOMEM);
        int code = weir_embedded_write_outbound(embedded, &body->msg);
        calls = harness_fail_end();
        if (code == 0) {
            codec_expect_written(embedded, "\0\3abc", 5);
        } else {
            failed++;
            codec_expect_error(embedded, -ENOMEM, "a write failed: Cannot allocate memory");
            assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        }
        codec_end(embedded);
    }
    assert_true(failed >= 2);
}

/* Writes with a promise, which is cancelled before or after. */
typedef struct cancelling {
    weir_promise *promise;
    weir_channel *channel;
    weir_executor *executor;
    bool is_early;
} cancelling;

static int write_and_cancel(void *arg)
{
    cancelling *self = arg;
    self->promise = weir_promise_new(self->executor);
    if (self->is_early)
        weir_future_cancel(weir_promise_future(self->promise));
    weir_channel_write(self->channel, &weir_buf_from("abc", 3)->msg, self->promise);
    if (!self->is_early)
        weir_future_cancel(weir_promise_future(self->promise));
    weir_channel_flush(self->channel);
    return 0;
}

static void a_length_never_goes_alone(void **state)
{
    (void)state;
    weir_length_prepender prepender = { .width = 1 };
    for (int is_early = 0; is_early <= 1; is_early++) {
        weir_embedded *embedded = codec_new(&weir_length_prepender_handler, &prepender);
        cancelling self = { .channel = weir_embedded_channel(embedded),
                            .executor = weir_embedded_executor(embedded),
                            .is_early = is_early };
        weir_embedded_call(embedded, write_and_cancel, &self);
        weir_embedded_run(embedded);
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        assert_int_equal(weir_future_code(weir_promise_future(self.promise)), -ECANCELED);
        weir_promise_release(self.promise);
        codec_end(embedded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(layouts),
        weir_case(empty_frames_are_frames),
        weir_case(what_makes_no_length_is_refused),
        weir_case(too_long_frames_close),
        weir_case(a_length_alone_takes_no_memory),
        weir_case(too_long_frames_can_be_skipped),
        weir_case(a_too_long_frame_that_is_cut_off_is_told),
        weir_case(a_frame_that_is_cut_off_is_told),
        weir_case(fields_that_make_no_sense_are_refused),
        weir_case(frames_cost_one_small_block),
        weir_case(lengths_are_prepended),
        weir_case(lengths_that_do_not_fit_fail_the_write),
        weir_case(without_memory_nothing_is_prepended),
        weir_case(a_length_never_goes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
