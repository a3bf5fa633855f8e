/* SPDX-License-Identifier: MIT */
/* UTF-8 and Base64. */
#include "codecs.h"

#include <weir/base64.h>
#include <weir/delimiter.h>
#include <weir/utf8.h>

#include <stdio.h>
#include <stdlib.h>

/* UTF-8 ---------------------------------------------------------------------------------------- */

/* Whether the number is a character, and its bytes as the standard has them. */
static size_t bytes_of(uint32_t number, uint8_t *to)
{
    if (number < 0x80) {
        to[0] = (uint8_t)number;
        return 1;
    }
    size_t count = number < 0x800 ? 2 : number < 0x10000 ? 3 : 4;
    static const uint8_t firsts[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = count - 1; i > 0; i--, number >>= 6)
        to[i] = (uint8_t)(0x80 | (number & 0x3f));
    to[0] = (uint8_t)(firsts[count] | number);
    return count;
}

static void every_character_is_one(void **state)
{
    (void)state;
    uint8_t bytes[4];
    for (uint32_t number = 0; number < 0x110000; number++) {
        weir_utf8 text = { 0 };
        size_t count = bytes_of(number, bytes);
        bool is_surrogate = number >= 0xd800 && number <= 0xdfff;
        int code = weir_utf8_check(&text, bytes, count, NULL);
        if (code != (is_surrogate ? -EILSEQ : 0) || (code == 0 && !weir_utf8_is_whole(&text)))
            fail_msg("U+%04x", number);
    }
}

/* Against a slow and simple reader of the standard's table: all pairs, triples of all kinds. */
static bool is_text(const uint8_t *bytes, size_t length)
{
    uint8_t again[4];
    for (size_t at = 0; at < length;) {
        size_t count = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
        uint32_t number = count == 1 ? bytes[at] : bytes[at] & (0xffu >> (count + 1));
        if (count > length - at)
            return false;
        for (size_t i = 1; i < count; i++)
            number = number << 6 | (bytes[at + i] & 0x3f);
        if (number > 0x10ffff || (number >= 0xd800 && number <= 0xdfff) ||
            bytes_of(number, again) != count || memcmp(again, bytes + at, count) != 0)
            return false;
        at += count;
    }
    return true;
}

static bool check_says(const uint8_t *bytes, size_t length)
{
    weir_utf8 text = { 0 };
    return weir_utf8_check(&text, bytes, length, NULL) == 0 && weir_utf8_is_whole(&text);
}

static void what_is_no_text_is_found(void **state)
{
    (void)state;
    static const uint8_t kinds[] = { 0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                     0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                     0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xfe, 0xff };
    enum { KINDS = sizeof kinds };
    uint8_t bytes[4];
    for (uint32_t pair = 0; pair < 0x10000; pair++) {
        bytes[0] = (uint8_t)(pair >> 8);
        bytes[1] = (uint8_t)pair;
        assert_int_equal(check_says(bytes, 2), is_text(bytes, 2));
    }
    for (size_t four = 0; four < (size_t)KINDS * KINDS * KINDS * KINDS; four++) {
        size_t rest = four;
        for (int i = 0; i < 4; i++, rest /= KINDS)
            bytes[i] = kinds[rest % KINDS];
        if (check_says(bytes, 4) != is_text(bytes, 4))
            fail_msg("%02x %02x %02x %02x", bytes[0], bytes[1], bytes[2], bytes[3]);
    }
}

static void the_place_is_told(void **state)
{
    (void)state;
    weir_utf8 text = { 0 };
    size_t at = 0;
    assert_int_equal(weir_utf8_check(&text, "twelve bytes\303", 13, &at), 0);
    assert_false(weir_utf8_is_whole(&text));
    assert_int_equal(weir_utf8_check(&text, "\244 and on\377", 9, &at), -EILSEQ);
    assert_int_equal(at, 8);
    assert_int_equal(weir_utf8_check(NULL, "a", 1, NULL), -EINVAL);
    assert_int_equal(weir_utf8_check(&text, NULL, 1, NULL), -EINVAL);
}

static void a_stream_may_be_cut_inside_a_character(void **state)
{
    (void)state;
    weir_utf8_texts texts = { .is_stream = true };
    weir_embedded *embedded = codec_new(&weir_utf8_handler, &texts);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "a\342\202", 3), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\254b", 2), 0);
    codec_expect_text(embedded, "a\342\202");
    codec_expect_text(embedded, "\254b");
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\342", 1), 0);
    codec_expect_text(embedded, "\342");
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\202c", 2), -EILSEQ);
    codec_expect_error(embedded, -EILSEQ,
                       "a byte that UTF-8 does not have here (at byte 7 of the stream)");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
    embedded = codec_new(&weir_utf8_handler, &texts);
    weir_embedded_write_inbound_bytes(embedded, "a\342", 2);
    codec_expect_text(embedded, "a\342");
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_error(embedded, -EILSEQ,
                       "the stream ends inside a character (at byte 2 of the stream)");
    codec_end(embedded);
}

/* The same byte is told wherever the stream is cut. */
static void what_is_no_text_is_found_across_a_cut(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length, wrong_at;
    } rows[] = {
        { "ab\342\202(", 5, 4 },      { "ab\300\200", 4, 2 },        { "a\355\240\200", 4, 2 },
        { "\360\217\277\277", 4, 1 }, { "a\364\220\200\200", 5, 2 }, { "\342\202\254\254", 4, 3 },
        { "abcdefgh\303a", 10, 9 },
    };
    weir_utf8_texts texts = { .is_stream = true };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t cut = 1; cut <= rows[i].length; cut++) {
            char text[128];
            weir_embedded *embedded = codec_new(&weir_utf8_handler, &texts);
            weir_embedded_write_inbound_bytes(embedded, rows[i].bytes, cut);
            weir_embedded_write_inbound_bytes(embedded, rows[i].bytes + cut, rows[i].length - cut);
            snprintf(text, sizeof text,
                     "a byte that UTF-8 does not have here (at byte %zu of the stream)",
                     rows[i].wrong_at);
            codec_expect_error(embedded, -EILSEQ, text);
            assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
            if (cut <= rows[i].wrong_at) /* what was good */
                codec_expect(embedded, rows[i].bytes, cut);
            codec_end(embedded);
        }
    }
}

static void what_is_no_text_closes_whoever_is_removed(void **state)
{
    (void)state;
    codec_closes_although_removed(codec_new(&weir_utf8_handler, NULL),
                                  &weir_buf_from("\377", 1)->msg, -EILSEQ);
    codec_closes_although_removed(codec_new(&weir_base64_decoder, NULL),
                                  &weir_buf_from("*", 1)->msg, -EBADMSG);
}

static void else_each_buffer_is_a_text(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&weir_utf8_handler, NULL);
    weir_buf *pieces = weir_buf_new_composite();
    weir_buf_composite_add(pieces, weir_buf_from("\342", 1));
    weir_buf_composite_add(pieces, weir_buf_from("\202\254", 2));
    assert_int_equal(weir_embedded_write_inbound(embedded, &pieces->msg), 0);
    codec_expect_text(embedded, "\342\202\254");
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\342\202", 2), -EILSEQ);
    codec_expect_error(embedded, -EILSEQ,
                       "a text ends inside a character (at byte 5 of the stream)");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    codec_end(embedded);
}

/* Base64 --------------------------------------------------------------------------------------- */

static void rows_of_the_standard(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "", "" },
        { "f", "Zg==" },
        { "fo", "Zm8=" },
        { "foo", "Zm9v" },
        { "foob", "Zm9vYg==" },
        { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded = codec_new(&weir_base64_encoder, NULL);
        weir_buf *bytes = weir_buf_from(rows[i][0], strlen(rows[i][0]));
        assert_int_equal(weir_embedded_write_outbound(embedded, &bytes->msg), 0);
        codec_expect_written(embedded, rows[i][1], strlen(rows[i][1]));
        codec_end(embedded);
        embedded = codec_new(&weir_base64_decoder, NULL);
        weir_buf *text = weir_buf_from(rows[i][1], strlen(rows[i][1]));
        assert_int_equal(weir_embedded_write_inbound(embedded, &text->msg), 0);
        codec_expect_text(embedded, rows[i][0]);
        codec_end(embedded);
    }
}

static void bytes_come_back(void **state)
{
    (void)state;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 8));
    for (int kind = 0; kind < 4; kind++) {
        weir_base64 config = { .is_url_safe = kind & 1, .has_no_padding = kind & 2 };
        for (size_t length = 0; length <= sizeof bytes; length++) {
            weir_buf *text = weir_buf_new(0), *again = weir_buf_new(0);
            assert_int_equal(weir_base64_encode(&config, bytes, length, text), 0);
            size_t size = weir_buf_readable(text);
            assert_int_equal(size, kind & 2 ? (length * 4 + 2) / 3 : (length + 2) / 3 * 4);
            const uint8_t *characters = weir_buf_peek(text, 0, size);
            assert_int_equal(weir_base64_decode(&config, characters, size, again, NULL), 0);
            codec_check_bytes(weir_buf_msg(again), bytes, length);
            weir_buf_release(text);
        }
    }
}

/* As little room as it takes, in memory that cannot grow. */
static void base64_takes_no_more_room_than_it_needs(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        weir_base64 config = { .has_no_padding = kind };
        for (size_t length = 0; length < 10; length++) {
            size_t size = kind ? (length * 4 + 2) / 3 : (length + 2) / 3 * 4;
            char text[16], bytes[10];
            weir_buf *to = weir_buf_wrap(text, size, NULL, NULL);
            weir_buf *again = weir_buf_wrap(bytes, length, NULL, NULL);
            weir_buf_clear(to);
            weir_buf_clear(again);
            assert_int_equal(weir_base64_encode(&config, "abcdefghij", length, to), 0);
            assert_int_equal(weir_buf_readable(to), size);
            assert_int_equal(weir_base64_decode(&config, text, size, again, NULL), 0);
            codec_check_bytes(weir_buf_msg(again), "abcdefghij", length);
            weir_buf_release(to);
        }
    }
}

static void there_is_one_text_for_the_same_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_url_safe, has_no_padding;
        int64_t wrong_at; /* -1: it is fine */
    } rows[] = {
        { "Zg==", false, false, -1 },    { "Zg", false, false, 2 },
        { "Zg", false, true, -1 },       { "Zg==", false, true, -1 },
        { "Zg=", false, true, 3 },       { "Zh==", false, false, 1 },
        { "Zm9=", false, false, 2 },     { "Zm9v!", false, true, 5 },
        { "Zm9v!A==", false, false, 4 }, { "Z", false, true, 1 },
        { "====", false, false, 0 },     { "Z===", false, false, 1 },
        { "=", false, true, 1 },         { "Zg==Zg==", false, false, 2 },
        { "Zm 9", false, false, 2 },     { "+/+/", false, false, -1 },
        { "+/+/", true, false, 0 },      { "-_-_", true, false, -1 },
        { "-_-_", false, false, 0 },     { "Zm9\n", false, false, 3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_base64 config = { rows[i].is_url_safe, rows[i].has_no_padding };
        weir_buf *out = weir_buf_from("x", 1);
        size_t at = 0;
        int code = weir_base64_decode(&config, rows[i].text, strlen(rows[i].text), out, &at);
        if (code != (rows[i].wrong_at < 0 ? 0 : -EBADMSG) ||
            (code < 0 && (int64_t)at != rows[i].wrong_at))
            fail_msg("%s: %d at %zu", rows[i].text, code, at);
        if (code < 0)
            assert_int_equal(weir_buf_readable(out), 1);
        weir_buf_release(out);
    }
}

static void what_is_no_base64_closes(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&weir_base64_decoder, NULL);
    weir_buf *pieces = weir_buf_new_composite();
    weir_buf_composite_add(pieces, weir_buf_from("Zm", 2));
    weir_buf_composite_add(pieces, weir_buf_from("9v", 2));
    assert_int_equal(weir_embedded_write_inbound(embedded, &pieces->msg), 0);
    codec_expect_text(embedded, "foo");
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "Zm9*", 4), -EBADMSG);
    codec_expect_error(embedded, -EBADMSG, "a text that is not Base64, at its byte 3");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
}

static int add_lines_of_base64(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "lines", &weir_line_decoder, arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "text", &weir_base64_decoder, NULL);
}

static void nothing_follows_what_is_no_base64(void **state)
{
    (void)state;
    weir_delimited lines = { .max_length = 10 };
    weir_embedded_config config = { .init = add_lines_of_base64, .arg = &lines };
    weir_embedded *embedded;
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "Zm9v\n*\nZm9v\n", 12), -EBADMSG);
    codec_expect_error(embedded, -EBADMSG, "a text that is not Base64, at its byte 1");
    codec_expect_text(embedded, "foo");
    assert_null(weir_embedded_read_inbound(embedded));
    codec_end(embedded);
}

static void base64_without_memory(void **state)
{
    (void)state;
    for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
        weir_embedded *embedded = codec_new(&weir_base64_decoder, NULL);
        weir_buf *pieces = weir_buf_new_composite();
        weir_buf_composite_add(pieces, weir_buf_from("Zm", 2));
        weir_buf_composite_add(pieces, weir_buf_from("9v", 2));
        harness_fail_nth("pool", nth, -ENOMEM);
        int code = weir_embedded_write_inbound(embedded, &pieces->msg);
        calls = harness_fail_end();
        if (code == 0)
            codec_expect_text(embedded, "foo");
        else
            codec_expect_error(embedded, -ENOMEM, "no memory for what a text stands for");
        codec_end(embedded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_character_is_one),
        weir_case(what_is_no_text_is_found),
        weir_case(the_place_is_told),
        weir_case(a_stream_may_be_cut_inside_a_character),
        weir_case(what_is_no_text_is_found_across_a_cut),
        weir_case(what_is_no_text_closes_whoever_is_removed),
        weir_case(else_each_buffer_is_a_text),
        weir_case(rows_of_the_standard),
        weir_case(bytes_come_back),
        weir_case(there_is_one_text_for_the_same_bytes),
        weir_case(base64_takes_no_more_room_than_it_needs),
        weir_case(what_is_no_base64_closes),
        weir_case(nothing_follows_what_is_no_base64),
        weir_case(base64_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
