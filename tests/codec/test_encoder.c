/* SPDX-License-Identifier: MIT */
/* Encoders and converters. */
#include "codecs.h"

#include <weir/decoder.h>
#include <weir/encoder.h>

#include <stdlib.h>

/* A message that is no buffer. */
typedef struct point {
    weir_msg msg;
    uint32_t x, y;
} point;

static void point_destroy(weir_msg *msg)
{
    free(msg);
}

static const weir_msg_type point_type = { .name = "point", .destroy = point_destroy };

static weir_msg *new_point(uint32_t x, uint32_t y)
{
    point *self = malloc(sizeof *self);
    assert_non_null(self);
    weir_msg_init(&self->msg, &point_type);
    self->x = x;
    self->y = y;
    return &self->msg;
}

/* Points below the axis cannot be encoded. */
static int encode_point(weir_ctx *ctx, const weir_msg *msg, weir_buf *out)
{
    const point *self = (const point *)msg;
    (void)ctx;
    int code = weir_buf_write_u32(out, self->x);
    if (code < 0 || self->y > INT32_MAX)
        return code < 0 ? code : -ERANGE;
    return weir_buf_write_u32(out, self->y);
}

static void point_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_encode(ctx, msg, promise, &point_type, 4, encode_point);
}

static const weir_handler_type points = { .name = "points", .write = point_write };

static void messages_become_bytes(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&points, NULL);
    assert_int_equal(weir_embedded_write_outbound(embedded, new_point(1, 2)), 0);
    codec_expect_written(embedded, "\0\0\0\1\0\0\0\2", 8);
    assert_int_equal(weir_embedded_write_outbound(embedded, &weir_buf_from("abc", 3)->msg), 0);
    codec_expect_written(embedded, "abc", 3);
    codec_end(embedded);
}

static void what_cannot_be_encoded_closes(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&points, NULL);
    assert_int_equal(weir_embedded_write_outbound(embedded, new_point(1, UINT32_MAX)), -ERANGE);
    codec_expect_error(embedded, -ERANGE, "a write failed: Numerical result out of range");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
}

typedef struct writing {
    weir_channel *channel;
    weir_promise *promise;
} writing;

static int write_point(void *arg)
{
    writing *self = arg;
    weir_channel_write_and_flush(self->channel, new_point(1, UINT32_MAX), self->promise);
    return 0;
}

/* Who has a promise decides himself. */
static void a_promise_hears_of_it_instead(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&points, NULL);
    writing self = { weir_embedded_channel(embedded),
                     weir_promise_new(weir_embedded_executor(embedded)) };
    weir_embedded_call(embedded, write_point, &self);
    weir_embedded_run(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(self.promise)), -ERANGE);
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    weir_promise_release(self.promise);
    codec_end(embedded);
}

static void without_memory_the_write_fails(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&points, NULL);
    weir_msg *msg = new_point(1, 2);
    harness_fail_nth("pool", 1, -ENOMEM);
    assert_int_equal(weir_embedded_write_outbound(embedded, msg), -ENOMEM);
    assert_true(harness_fail_end() >= 1);
    codec_expect_error(embedded, -ENOMEM, "a write failed: Cannot allocate memory");
    codec_end(embedded);
}

/* Swaps the coordinates; a point without x is dropped, and one without y refused. */
static int swap(weir_ctx *ctx, weir_msg *msg, weir_msg **out)
{
    const point *self = (const point *)msg;
    (void)ctx;
    if (self->y == 0)
        return -EDOM;
    if (self->x != 0)
        *out = new_point(self->y, self->x);
    return 0;
}

static void swapper_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_convert_write(ctx, msg, promise, &point_type, swap);
}

static void swapper_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_convert_read(ctx, msg, &point_type, swap);
}

static const weir_handler_type swapper = {
    .name = "swapper",
    .on_read = swapper_on_read,
    .write = swapper_write,
};

static void expect_point(weir_msg *msg, uint32_t x, uint32_t y)
{
    assert_non_null(msg);
    assert_ptr_equal(msg->type, &point_type);
    assert_int_equal(((point *)msg)->x, x);
    assert_int_equal(((point *)msg)->y, y);
    weir_msg_release(msg);
}

static void messages_become_other_messages(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&swapper, NULL);
    assert_int_equal(weir_embedded_write_inbound(embedded, new_point(1, 2)), 0);
    expect_point(weir_embedded_read_inbound(embedded), 2, 1);
    assert_int_equal(weir_embedded_write_outbound(embedded, new_point(3, 4)), 0);
    expect_point(weir_embedded_read_outbound(embedded), 4, 3);
    assert_int_equal(weir_embedded_write_inbound(embedded, new_point(0, 2)), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, new_point(0, 2)), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "abc", 3), 0);
    codec_expect_text(embedded, "abc");
    assert_int_equal(weir_embedded_write_outbound(embedded, &weir_buf_from("abc", 3)->msg), 0);
    codec_expect_written(embedded, "abc", 3);
    codec_end(embedded);
}

static void what_cannot_be_converted_is_told(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&swapper, NULL);
    assert_int_equal(weir_embedded_write_inbound(embedded, new_point(1, 0)), -EDOM);
    codec_expect_error(embedded, -EDOM,
                       "a message could not be converted: Numerical argument out of domain");
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    assert_int_equal(weir_embedded_write_outbound(embedded, new_point(1, 0)), -EDOM);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    assert_true(weir_embedded_take_error(embedded, NULL));
    codec_end(embedded);
}

/* A codec is both: points as bytes on one side of it, as points on the other. */
static weir_decoded decode_point(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    uint32_t x, y;
    (void)ctx;
    if (weir_buf_readable(in) < 8 || weir_buf_read_u32(in, &x) < 0 || weir_buf_read_u32(in, &y) < 0)
        return WEIR_DECODED_NOTHING;
    *out = new_point(x, y);
    return WEIR_DECODED_MESSAGE;
}

static void point_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode_point, .max_message = 8 };
    weir_decoder_init(weir_ctx_state(ctx), &type);
}

static const weir_handler_type point_codec = {
    .name = "points",
    .state_size = sizeof(weir_decoder),
    .added = point_added,
    WEIR_DECODER_CALLBACKS,
    .write = point_write,
};

static void a_codec_decodes_and_encodes(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&point_codec, NULL);
    assert_int_equal(weir_embedded_write_outbound(embedded, new_point(1, 2)), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\0\0\0\3\0", 5), 0);
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\0\0\4", 3), 0);
    codec_expect_written(embedded, "\0\0\0\1\0\0\0\2", 8);
    expect_point(weir_embedded_read_inbound(embedded), 3, 4);
    codec_end(embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(messages_become_bytes),          weir_case(what_cannot_be_encoded_closes),
        weir_case(a_promise_hears_of_it_instead),  weir_case(without_memory_the_write_fails),
        weir_case(messages_become_other_messages), weir_case(what_cannot_be_converted_is_told),
        weir_case(a_codec_decodes_and_encodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
