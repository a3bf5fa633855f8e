/* SPDX-License-Identifier: MIT */
/* A protocol upgrade (STARTTLS) fails while a decoder holds bytes from before it. */
#include "codec/codecs.h"

#include <weir/base64.h>
#include <weir/channel.h>
#include <weir/delimiter.h>
#include <weir/fixed_length.h>
#include <weir/json.h>
#include <weir/length_field.h>
#include <weir/proxy_protocol.h>
#include <weir/utf8.h>
#include <weir/varint.h>

#include <stdio.h>

static void drop_messages(weir_embedded *embedded)
{
    weir_msg *msg;
    while ((msg = weir_embedded_read_inbound(embedded)) != NULL)
        weir_msg_release(msg);
}

static const weir_delimited short_lines = { .max_length = 4, .oversize = WEIR_OVERSIZE_SKIP_FIRST };
static const weir_delimiter lf = WEIR_DELIMITER("\n");
static const weir_delimited short_frames = {
    .max_length = 4,
    .ends = &lf,
    .end_count = 1,
    .oversize = WEIR_OVERSIZE_SKIP_FIRST,
};
static const weir_length_field short_fields = {
    .max_frame = 4,
    .width = 1,
    .oversize = WEIR_OVERSIZE_SKIP_FIRST,
};
static const weir_varint short_varints = { .max_frame = 4, .oversize = WEIR_OVERSIZE_SKIP_FIRST };
static const weir_fixed_length threes = { .length = 3 };
static const weir_json arrays = { .max_length = 100, .splits_arrays = true };
static const weir_utf8_texts stream = { .is_stream = true };

#define BEGIN 1 /* of a message, of which no byte is left */

static const struct {
    const weir_handler_type *type;
    const void *config;
    const char *input;
    size_t held;
} rows[] = {
    { &weir_line_decoder, &short_lines, "abc\n", 0 },
    { &weir_line_decoder, &short_lines, "abc\nd", 1 },
    { &weir_line_decoder, &short_lines, "abcdefgh", 1 }, /* it may be half of an end */
    { &weir_delimiter_decoder, &short_frames, "abcdefgh", BEGIN },
    { &weir_delimiter_decoder, &short_frames, "abcdefgh\n", 0 },
    { &weir_length_field_decoder, &short_fields, "\1a", 0 },
    { &weir_length_field_decoder, &short_fields, "\2a", 2 },
    { &weir_length_field_decoder, &short_fields, "\7abc", BEGIN },
    { &weir_length_field_decoder, &short_fields, "\7abcdefg", 0 },
    { &weir_varint_decoder, &short_varints, "\1a", 0 },
    { &weir_varint_decoder, &short_varints, "\2a", 2 },
    { &weir_varint_decoder, &short_varints, "\7abc", BEGIN },
    { &weir_fixed_length_decoder, &threes, "abc", 0 },
    { &weir_fixed_length_decoder, &threes, "abcde", 2 },
    { &weir_json_decoder, &arrays, "{}", 0 },
    { &weir_json_decoder, &arrays, "{", 1 },
    { &weir_json_decoder, &arrays, "[{}", BEGIN },
    { &weir_json_decoder, &arrays, "[{}]", 0 },
    { &weir_utf8_handler, &stream, "\xc3\xa4", 0 },
    { &weir_utf8_handler, &stream, "a\xc3", 1 },
    { &weir_base64_decoder, NULL, "YWJj", 0 },
    { &weir_proxy_decoder, NULL, "PROXY TCP4", 10 },
};

static void upgrade_fails_while_a_decoder_holds_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded = codec_new(rows[i].type, rows[i].config);
        weir_embedded_write_inbound_bytes(embedded, rows[i].input, strlen(rows[i].input));
        while (weir_embedded_take_error(embedded, NULL)) /* of what is too long */
            ;
        drop_messages(embedded);
        codec_upgrade(embedded, rows[i].held);
        assert_int_equal(weir_embedded_inbound_count(embedded), 0);
        weir_embedded_free(embedded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(upgrade_fails_while_a_decoder_holds_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
