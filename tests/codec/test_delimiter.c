/* SPDX-License-Identifier: MIT */
/* Frames that end with certain bytes, and lines. */
#include "codecs.h"

#include <weir/delimiter.h>

/* Lines ---------------------------------------------------------------------------------------- */

static void lines_end_with_lf_or_crlf(void **state)
{
    (void)state;
    static const char input[] = "one\ntwo\r\n\n\r\nthr\ree\n\r\r\nrest";
    weir_delimited lines = { .max_length = 10 };
    weir_embedded *embedded = codec_new(&weir_line_decoder, &lines);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, input, sizeof input - 1), 0);
    codec_expect_text(embedded, "one");
    codec_expect_text(embedded, "two");
    codec_expect_text(embedded, "");
    codec_expect_text(embedded, "");
    codec_expect_text(embedded, "thr\ree");
    codec_expect_text(embedded, "\r");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_error(embedded, WEIR_EOF,
                       "the stream ends inside a message, 4 bytes behind its begin (at byte 22 of "
                       "the stream)");
    codec_end(embedded);
    codec_verify(&weir_line_decoder, &lines, input, sizeof input - 1, 6, 0);
}

static void ends_can_be_kept(void **state)
{
    (void)state;
    weir_delimited lines = { .max_length = 10, .keeps_end = true };
    weir_embedded *embedded = codec_new(&weir_line_decoder, &lines);
    weir_embedded_write_inbound_bytes(embedded, "one\ntwo\r\n", 9);
    codec_expect_text(embedded, "one\n");
    codec_expect_text(embedded, "two\r\n");
    codec_end(embedded);
    codec_verify(&weir_line_decoder, &lines, "one\ntwo\r\n", 9, 2, 0);
}

static void a_last_line_may_have_no_end(void **state)
{
    (void)state;
    weir_delimited lines = { .max_length = 4, .ends_with_stream = true };
    weir_embedded *embedded = codec_new(&weir_line_decoder, &lines);
    weir_embedded_write_inbound_bytes(embedded, "one\nrest", 8);
    codec_expect_text(embedded, "one");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_text(embedded, "rest");
    codec_end(embedded);
    codec_verify(&weir_line_decoder, &lines, "one\nrest", 8, 1, 0);
    codec_verify(&weir_line_decoder, &lines, "one\n", 4, 1, 0);
    codec_verify(&weir_line_decoder, &lines, "one\nrest\r", 9, 1, 0);
}

/* The limit is of the line without its end, whichever end that is. */
static void lines_have_a_limit(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        unsigned messages, errors;
    } rows[] = {
        { "abcd\n", 1, 0 },  { "abcd\r\n", 1, 0 },    { "abcde\n", 0, 1 },
        { "abc\r\n", 1, 0 }, { "abcde\r\n", 0, 1 },   { "abcd\rx\n", 0, 1 },
        { "abcdef", 0, 1 },  { "a\nabcdef\n", 1, 1 }, { "abcd\r\r\n", 0, 1 },
    };
    weir_delimited lines = { .max_length = 4 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        codec_verify(&weir_line_decoder, &lines, rows[i].bytes, strlen(rows[i].bytes),
                     rows[i].messages, rows[i].errors);
    weir_embedded *embedded = codec_new(&weir_line_decoder, &lines);
    weir_embedded_write_inbound_bytes(embedded, "a\nabcdef\nb\n", 11);
    codec_expect_text(embedded, "a");
    codec_expect_error(embedded, WEIR_ELIMIT,
                       "a line is longer than 4 bytes (at byte 2 of the stream)");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
}

static void long_lines_can_be_skipped(void **state)
{
    (void)state;
    static const char input[] = "a\nabcdefghi\r\nb\nabcdefg\nc\n";
    for (weir_oversize oversize = WEIR_OVERSIZE_SKIP; oversize <= WEIR_OVERSIZE_SKIP_FIRST;
         oversize++) {
        weir_delimited lines = { .max_length = 4, .oversize = oversize };
        bool is_late = oversize == WEIR_OVERSIZE_SKIP_FIRST;
        weir_embedded *embedded = codec_new(&weir_line_decoder, &lines);
        weir_embedded_write_inbound_bytes(embedded, input, 9);
        codec_expect_text(embedded, "a");
        assert_int_equal(weir_embedded_check(embedded), is_late ? 0 : WEIR_ELIMIT);
        weir_embedded_write_inbound_bytes(embedded, input + 9, 6);
        codec_expect_error(embedded, WEIR_ELIMIT,
                           is_late ? "a line is longer than 4 bytes (at byte 13 of the stream)"
                                   : "a line is longer than 4 bytes (at byte 2 of the stream)");
        codec_expect_text(embedded, "b");
        codec_end(embedded);
        codec_verify(&weir_line_decoder, &lines, input, sizeof input - 1, 3, 2);
    }
}

/* Also when nothing of it is kept, because its end is a single byte. */
static void a_long_line_that_the_stream_ends_is_told(void **state)
{
    (void)state;
    static const weir_delimiter end = WEIR_DELIMITER("\n");
    for (int kind = 0; kind < 4; kind++) {
        weir_delimited frames = { .max_length = 4,
                                  .oversize = WEIR_OVERSIZE_SKIP_FIRST,
                                  .ends = &end,
                                  .end_count = 1,
                                  .ends_with_stream = kind & 1 };
        const weir_handler_type *type = kind & 2 ? &weir_line_decoder : &weir_delimiter_decoder;
        weir_embedded *embedded = codec_new(type, &frames);
        weir_embedded_write_inbound_bytes(embedded, "a\nabcdefghi", 11);
        codec_expect_text(embedded, "a");
        assert_int_equal(weir_embedded_check(embedded), 0);
        weir_embedded_end_inbound(embedded, 0);
        codec_expect_error(embedded, WEIR_ELIMIT,
                           kind & 2 ? "a line is longer than 4 bytes (at byte 11 of the stream)"
                                    : "a frame is longer than 4 bytes (at byte 11 of the stream)");
        codec_end(embedded);
        codec_verify(type, &frames, "a\nabcdefghi", 11, 1, 0);
    }
}

/* A long line that is skipped is not kept meanwhile. */
static void what_is_skipped_takes_no_memory(void **state)
{
    (void)state;
    weir_delimited lines = { .max_length = 4, .oversize = WEIR_OVERSIZE_SKIP };
    weir_embedded *embedded = codec_new(&weir_line_decoder, &lines);
    char bytes[1000];
    memset(bytes, 'x', sizeof bytes);
    weir_pool_stats before, after;
    weir_embedded_write_inbound_bytes(embedded, bytes, sizeof bytes);
    weir_pool_get_stats(&before);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, bytes, sizeof bytes),
                         WEIR_ELIMIT); /* the one error there was */
    weir_pool_get_stats(&after);
    assert_int_equal(after.used_bytes, before.used_bytes);
    assert_true(weir_embedded_take_error(embedded, NULL));
    weir_embedded_write_inbound_bytes(embedded, "\nab\n", 4);
    codec_expect_text(embedded, "ab");
    codec_end(embedded);
}

/* Delimiters ----------------------------------------------------------------------------------- */

static void of_several_ends_that_counts_which_is_complete_first(void **state)
{
    (void)state;
    static const weir_delimiter ends[] = { WEIR_DELIMITER("\0"), WEIR_DELIMITER("--END--"),
                                           WEIR_DELIMITER("ab"), WEIR_DELIMITER("abc"),
                                           WEIR_DELIMITER("xab") };
    static const char input[] = "one\0two--END--three--EN-END--END--1ab2abc3xab";
    weir_delimited frames = { .max_length = 40, .ends = ends, .end_count = 5 };
    weir_embedded *embedded = codec_new(&weir_delimiter_decoder, &frames);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, input, sizeof input - 1), 0);
    codec_expect_text(embedded, "one");
    codec_expect_text(embedded, "two");
    codec_expect_text(embedded, "three--EN-END");
    codec_expect_text(embedded, "1");
    codec_expect_text(embedded, "2");  /* by "ab": nobody knows yet what comes behind it */
    codec_expect_text(embedded, "c3"); /* by "xab", the longest */
    codec_end(embedded);
    codec_verify(&weir_delimiter_decoder, &frames, input, sizeof input - 1, 6, 0);
}

static void ends_overlap_with_what_is_skipped(void **state)
{
    (void)state;
    static const weir_delimiter ends[] = { WEIR_DELIMITER("<<>>") };
    static const char input[] = "a<<>>123456789<<<>>b<<>>";
    for (weir_oversize oversize = WEIR_OVERSIZE_CLOSE; oversize <= WEIR_OVERSIZE_SKIP_FIRST;
         oversize++) {
        weir_delimited frames = {
            .max_length = 3, .ends = ends, .end_count = 1, .oversize = oversize
        };
        codec_verify(&weir_delimiter_decoder, &frames, input, sizeof input - 1,
                     oversize == WEIR_OVERSIZE_CLOSE ? 1 : 2, 1);
    }
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const weir_delimiter good[] = { WEIR_DELIMITER("x") };
    static const weir_delimiter bad[] = { WEIR_DELIMITER("x"), { "", 0 } };
    static const weir_delimited rows[] = {
        { .ends = good, .end_count = 1 },
        { .max_length = 10 },
        { .max_length = 10, .ends = good },
        { .max_length = 10, .ends = bad, .end_count = 2 },
        { .max_length = SIZE_MAX, .ends = good, .end_count = 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        codec_is_refused(&weir_delimiter_decoder, &rows[i]);
    codec_is_refused(&weir_delimiter_decoder, NULL);
    codec_is_refused(&weir_line_decoder, NULL);
    codec_is_refused(&weir_line_decoder, &(weir_delimited){ .ends = good, .end_count = 1 });
}

/* Byte by byte as well, also while it is skipped. */
static void long_frames_are_looked_at_once(void **state)
{
    (void)state;
    static const weir_delimiter ends[] = { WEIR_DELIMITER("--END--"), WEIR_DELIMITER(";") };
    char bytes[600];
    memset(bytes, '-', sizeof bytes);
    bytes[sizeof bytes - 1] = ';';
    for (int is_skipped = 0; is_skipped <= 1; is_skipped++) {
        weir_delimited frames = { .max_length = is_skipped ? 4 : sizeof bytes,
                                  .oversize = WEIR_OVERSIZE_SKIP,
                                  .ends = ends,
                                  .end_count = 2 };
        codec_verify_briefly(&weir_delimiter_decoder, &frames, bytes, sizeof bytes, !is_skipped,
                             (unsigned)is_skipped);
    }
    bytes[sizeof bytes - 1] = '\n';
    codec_verify_briefly(&weir_line_decoder, &(weir_delimited){ .max_length = sizeof bytes }, bytes,
                         sizeof bytes, 1, 0);
}

/* A buffer of several pieces is the same as one of one. */
static void pieces_are_put_together(void **state)
{
    (void)state;
    weir_delimited lines = { .max_length = 10 };
    weir_embedded *embedded = codec_new(&weir_line_decoder, &lines);
    weir_buf *pieces = weir_buf_new_composite();
    weir_buf_composite_add(pieces, weir_buf_from("on", 2));
    weir_buf_composite_add(pieces, weir_buf_from("e\nt", 3));
    weir_buf_composite_add(pieces, weir_buf_from("wo\n", 3));
    assert_int_equal(weir_embedded_write_inbound(embedded, &pieces->msg), 0);
    codec_expect_text(embedded, "one");
    codec_expect_text(embedded, "two");
    pieces = weir_buf_new_composite();
    weir_buf_composite_add(pieces, weir_buf_from("a\n", 2));
    harness_fail_nth("pool", 1, -ENOMEM);
    assert_int_equal(weir_embedded_write_inbound(embedded, &pieces->msg), -ENOMEM);
    assert_int_equal(harness_fail_end(), 1);
    codec_expect_error(embedded, -ENOMEM, "no memory for what was read");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(lines_end_with_lf_or_crlf),
        weir_case(ends_can_be_kept),
        weir_case(a_last_line_may_have_no_end),
        weir_case(lines_have_a_limit),
        weir_case(long_lines_can_be_skipped),
        weir_case(a_long_line_that_the_stream_ends_is_told),
        weir_case(what_is_skipped_takes_no_memory),
        weir_case(of_several_ends_that_counts_which_is_complete_first),
        weir_case(ends_overlap_with_what_is_skipped),
        weir_case(what_makes_no_sense_is_refused),
        weir_case(long_frames_are_looked_at_once),
        weir_case(pieces_are_put_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
