/* SPDX-License-Identifier: MIT */
/* A stream of JSON objects. */
#include "codecs.h"

#include <weir/json.h>

#include <stdlib.h>

static void verify(const weir_json *json, const char *text, unsigned messages, unsigned errors)
{
    codec_verify(&weir_json_decoder, json, text, strlen(text), messages, errors);
}

static void objects_and_arrays_follow_each_other(void **state)
{
    (void)state;
    static const char input[] = "{} [1,{\"a\":2}]\r\n{\"b\":{\"c\":[]}}{\"d\":\"}\\\"]{\\\\\"}\t ";
    weir_json json = { .max_length = 100 };
    weir_embedded *embedded = codec_new(&weir_json_decoder, &json);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, input, sizeof input - 1), 0);
    codec_expect_text(embedded, "{}");
    codec_expect_text(embedded, "[1,{\"a\":2}]");
    codec_expect_text(embedded, "{\"b\":{\"c\":[]}}");
    codec_expect_text(embedded, "{\"d\":\"}\\\"]{\\\\\"}");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    codec_end(embedded);
    verify(&json, input, 4, 0);
    verify(&json, "  ", 0, 0);
    verify(&json, "{\"a\":", 0, 0);
}

static void elements_of_arrays_can_come_one_by_one(void **state)
{
    (void)state;
    static const char input[] = "[1, \"two, ]\", {\"a\":[3]},[4,5] ,true]{\"b\":[6]} [] [null]";
    weir_json json = { .max_length = 100, .splits_arrays = true };
    weir_embedded *embedded = codec_new(&weir_json_decoder, &json);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, input, sizeof input - 1), 0);
    codec_expect_text(embedded, "1");
    codec_expect_text(embedded, "\"two, ]\"");
    codec_expect_text(embedded, "{\"a\":[3]}");
    codec_expect_text(embedded, "[4,5]");
    codec_expect_text(embedded, "true");
    codec_expect_text(embedded, "{\"b\":[6]}");
    codec_expect_text(embedded, "null");
    codec_end(embedded);
    verify(&json, input, 7, 0);
    embedded = codec_new(&weir_json_decoder, &json);
    weir_embedded_write_inbound_bytes(embedded, "[1, ", 4);
    codec_expect_text(embedded, "1");
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_error(embedded, WEIR_EOF,
                       "the stream ends inside an array (at byte 4 of the stream)");
    codec_end(embedded);
}

static void what_begins_otherwise_is_refused(void **state)
{
    (void)state;
    weir_json json = { .max_length = 100 };
    weir_embedded *embedded = codec_new(&weir_json_decoder, &json);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "{} x", 4), -EBADMSG);
    codec_expect_text(embedded, "{}");
    codec_expect_error(embedded, -EBADMSG,
                       "no JSON object or array: it begins with 0x78 (at byte 3 of the stream)");
    codec_end(embedded);
    verify(&json, "{} x", 1, 1);
    verify(&json, "}", 0, 1);
    verify(&json, "\"a\"", 0, 1);
    codec_is_refused(&weir_json_decoder, NULL);
    codec_is_refused(&weir_json_decoder, &(weir_json){ .splits_arrays = true });
}

static void objects_have_a_limit(void **state)
{
    (void)state;
    weir_json json = { .max_length = 10 };
    verify(&json, "{\"a\":1234}", 1, 0);
    verify(&json, "  {\"a\":1234}", 1, 0);
    verify(&json, "{}{\"a\":12345}", 1, 1);
    weir_embedded *embedded = codec_new(&weir_json_decoder, &json);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "{}{\"a\":12345}", 13),
                     WEIR_ELIMIT);
    codec_expect_text(embedded, "{}");
    codec_expect_error(embedded, WEIR_ELIMIT,
                       "a message is longer than 10 bytes (at byte 2 of the stream)");
    codec_end(embedded);
}

/* Nothing is called for each of them. */
static void depth_costs_nothing(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    weir_json json = { .max_length = 2 * DEPTH };
    char *text = malloc(2 * DEPTH);
    memset(text, '{', DEPTH);
    memset(text + DEPTH, '}', DEPTH);
    weir_embedded *embedded = codec_new(&weir_json_decoder, &json);
    for (size_t at = 0; at < 2 * DEPTH; at += 1000)
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, text + at, 1000), 0);
    codec_expect(embedded, text, 2 * DEPTH);
    codec_end(embedded);
    free(text);
}

/* Opened, and never closed: kept up to the limit, and told when the stream ends. */
static void what_is_only_opened_is_no_object(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH);
    memset(text, '{', DEPTH);
    for (int is_above = 0; is_above <= 1; is_above++) {
        weir_json json = { .max_length = DEPTH - (size_t)is_above };
        weir_embedded *embedded = codec_new(&weir_json_decoder, &json);
        int code = weir_embedded_write_inbound_bytes(embedded, text, DEPTH);
        assert_int_equal(code, is_above ? WEIR_ELIMIT : 0);
        weir_embedded_end_inbound(embedded, 0);
        codec_expect_error(embedded, is_above ? WEIR_ELIMIT : WEIR_EOF,
                           is_above
                               ? "a message is longer than 99999 bytes (at byte 0 of the stream)"
                               : "the stream ends inside a message, 100000 bytes behind its "
                                 "begin (at byte 0 of the stream)");
        codec_end(embedded);
    }
    free(text);
}

/* Byte by byte as well. */
static void a_long_object_is_looked_at_once(void **state)
{
    (void)state;
    char text[500];
    weir_json json = { .max_length = sizeof text };
    memset(text, '{', 250);
    memset(text + 250, '}', 250);
    codec_verify_briefly(&weir_json_decoder, &json, text, sizeof text, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(objects_and_arrays_follow_each_other),
        weir_case(elements_of_arrays_can_come_one_by_one),
        weir_case(what_begins_otherwise_is_refused),
        weir_case(objects_have_a_limit),
        weir_case(depth_costs_nothing),
        weir_case(what_is_only_opened_is_no_object),
        weir_case(a_long_object_is_looked_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
