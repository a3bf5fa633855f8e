/* SPDX-License-Identifier: MIT */
/* Frames of a fixed length, and behind a varint. */
#include "codecs.h"

#include <weir/delimiter.h>
#include <weir/fixed_length.h>
#include <weir/json.h>
#include <weir/length_field.h>
#include <weir/varint.h>

/* Fixed length --------------------------------------------------------------------------------- */

static void all_frames_are_as_long(void **state)
{
    (void)state;
    weir_fixed_length fixed = { .length = 3 };
    weir_embedded *embedded = codec_new(&weir_fixed_length_decoder, &fixed);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "abcdefgh", 8), 0);
    codec_expect_text(embedded, "abc");
    codec_expect_text(embedded, "def");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_error(embedded, WEIR_EOF,
                       "the stream ends inside a message, 2 bytes behind its begin (at byte 6 of "
                       "the stream)");
    codec_end(embedded);
    codec_verify(&weir_fixed_length_decoder, &fixed, "abcdefghi", 9, 3, 0);
    fixed.length = 1;
    codec_verify(&weir_fixed_length_decoder, &fixed, "abcdef", 6, 6, 0);
    codec_is_refused(&weir_fixed_length_decoder, NULL);
    codec_is_refused(&weir_fixed_length_decoder, &(weir_fixed_length){ 0 });
    codec_is_refused(&weir_fixed_length_decoder,
                     &(weir_fixed_length){ .length = (size_t)WEIR_BUF_MAX + 1 });
}

/* Varint --------------------------------------------------------------------------------------- */

static void lengths_are_varints(void **state)
{
    (void)state;
    weir_varint varint = { .max_frame = 400 };
    char input[310] = "\5hello\0\254\2";
    memset(input + 9, 'x', 300);
    weir_embedded *embedded = codec_new(&weir_varint_decoder, &varint);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, input, 309), 0);
    codec_expect_text(embedded, "hello");
    codec_expect_text(embedded, "");
    codec_expect(embedded, input + 9, 300);
    codec_end(embedded);
    codec_verify(&weir_varint_decoder, &varint, input, 309, 3, 0);
    /* Longer than need be. */
    codec_verify(&weir_varint_decoder, &varint, "\201\200\0a\200\200\200\200\0", 9, 2, 0);
}

static void lengths_have_32_bits(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int code;
        const char *text;
    } rows[] = {
        { "\377\377\377\377\17", WEIR_ELIMIT,
          "a frame of 4294967300 bytes is above the limit of 400 (at byte 0 of the stream)" },
        { "\377\377\377\377\20", -EBADMSG,
          "a length of more than 32 bits (at byte 0 of the stream)" },
        { "\377\377\377\377\377", -EBADMSG,
          "a length of more than 32 bits (at byte 0 of the stream)" },
    };
    weir_varint varint = { .max_frame = 400 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded = codec_new(&weir_varint_decoder, &varint);
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, rows[i].bytes, 5),
                         rows[i].code);
        codec_expect_error(embedded, rows[i].code, rows[i].text);
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        codec_end(embedded);
        codec_verify(&weir_varint_decoder, &varint, rows[i].bytes, 5, 0, 1);
    }
}

static void long_ones_can_be_skipped(void **state)
{
    (void)state;
    weir_varint varint = { .max_frame = 4, .oversize = WEIR_OVERSIZE_SKIP };
    codec_verify(&weir_varint_decoder, &varint, "\3abc\4abcd\1a", 11, 2, 1);
    varint.oversize = WEIR_OVERSIZE_SKIP_FIRST;
    codec_verify(&weir_varint_decoder, &varint, "\3abc\4abcd\1a", 11, 2, 1);
    codec_verify(&weir_varint_decoder, &varint, "\3abc\4ab", 7, 1, 0);
    codec_is_refused(&weir_varint_decoder, NULL);
    codec_is_refused(&weir_varint_decoder, &(weir_varint){ 0 });
}

static void varints_are_prepended(void **state)
{
    (void)state;
    static const struct {
        size_t length;
        const char *bytes;
        size_t count;
    } rows[] = {
        { 0, "\0", 1 },           { 127, "\177", 1 },         { 128, "\200\1", 2 },
        { 16383, "\377\177", 2 }, { 16384, "\200\200\1", 3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded = codec_new(&weir_varint_prepender, NULL);
        weir_buf *body = weir_buf_new(rows[i].length);
        weir_buf_write_fill(body, 'x', rows[i].length);
        assert_int_equal(weir_embedded_write_outbound(embedded, &body->msg), 0);
        weir_buf *both = weir_buf_from_msg(weir_embedded_read_outbound(embedded));
        char found[4];
        assert_int_equal(weir_buf_readable(both), rows[i].count + rows[i].length);
        assert_int_equal(weir_buf_read_bytes(both, found, rows[i].count), 0);
        assert_memory_equal(found, rows[i].bytes, rows[i].count);
        weir_buf_release(both);
        codec_end(embedded);
    }
}

/* All of them ---------------------------------------------------------------------------------- */

/* Each allocation fails once: all three frames come, or what is missing is told and the channel is
 * closed. */
static void without_memory_they_say_so(void **state)
{
    (void)state;
    static const weir_fixed_length fixed = { .length = 4 };
    static const weir_varint varint = { .max_frame = 10 };
    static const weir_length_field field = { .max_frame = 10, .width = 1 };
    static const weir_delimited lines = { .max_length = 10 };
    static const weir_json json = { .max_length = 10 };
    static const struct {
        const weir_handler_type *type;
        const void *config;
        const char *bytes;
    } rows[] = {
        { &weir_fixed_length_decoder, &fixed, "abcdefghijkl" },
        { &weir_varint_decoder, &varint, "\3abc\3def\3ghi" },
        { &weir_length_field_decoder, &field, "\3abc\3def\3ghi" },
        { &weir_line_decoder, &lines, "abc\ndef\nghi\n" },
        { &weir_json_decoder, &json, "{12}{34}{56}" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned failed = 0;
        for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
            weir_embedded *embedded = codec_new(rows[i].type, rows[i].config);
            weir_buf *reads[] = { weir_buf_from(rows[i].bytes, 6),
                                  weir_buf_from(rows[i].bytes + 6, 6) };
            size_t frames = 0;
            harness_fail_nth("pool", nth, -ENOMEM);
            for (int n = 0; n < 2; n++)
                weir_embedded_write_inbound(embedded, &reads[n]->msg);
            calls = harness_fail_end();
            for (weir_msg *msg; (msg = weir_embedded_read_inbound(embedded)) != NULL; frames++)
                weir_msg_release(msg);
            weir_error error = { 0 };
            bool has_failed = weir_embedded_take_error(embedded, &error);
            assert_int_equal(error.code, has_failed ? -ENOMEM : 0);
            assert_true(has_failed ? frames < 3 : frames == 3);
            assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)), !has_failed);
            failed += has_failed;
            codec_end(embedded);
        }
        assert_true(failed >= 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(all_frames_are_as_long), weir_case(lengths_are_varints),
        weir_case(lengths_have_32_bits),   weir_case(long_ones_can_be_skipped),
        weir_case(varints_are_prepended),  weir_case(without_memory_they_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
