/* SPDX-License-Identifier: MIT */
/* Frames behind their length as a varint. */
#include <weir/varint.h>

#include "buf/buf.h"
#include "channel/arg.h"
#include "codec/frame.h"
#include "codec/prepend.h"

#include <errno.h>

#define MOST_BYTES 5 /* for 32 bits */

typedef struct varint_decoder {
    weir_decoder decoder;
    size_t header; /* bytes of the length */
    weir_frame frame;
} varint_decoder;

/* The length at the reader, when all of it is there. */
static weir_decoded read_length(weir_ctx *ctx, varint_decoder *self, const weir_buf *in)
{
    size_t there = weir_buf_readable(in);
    there = there < MOST_BYTES ? there : MOST_BYTES;
    const uint8_t *bytes = weir__buf_bytes(in);
    uint64_t value = 0;
    for (size_t i = 0; i < there; i++) {
        weir_decoder_looked(&self->decoder, 1);
        value |= (uint64_t)(bytes[i] & 0x7f) << (7 * i);
        if (bytes[i] & 0x80)
            continue;
        if (value > UINT32_MAX)
            break;
        self->header = i + 1;
        self->frame.length = value + self->header;
        return WEIR_DECODED_NOTHING;
    }
    return there < MOST_BYTES ? WEIR_DECODED_NOTHING
                              : weir_decoder_refuse(ctx, -EBADMSG, "a length of more than 32 bits");
}

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    varint_decoder *self = weir_ctx_state(ctx);
    const weir_varint *config = weir_ctx_arg(ctx);
    weir_frame_rules rules = { .max_frame = config->max_frame, .oversize = config->oversize };
    if (weir__frame_is_skipping(&self->frame))
        return weir__frame_skip(ctx, &self->frame, &rules, in);
    if (self->frame.length == 0) {
        weir_decoded decoded = read_length(ctx, self, in);
        if (self->frame.length == 0)
            return decoded;
    }
    rules.strip = self->header;
    return weir__frame_take(ctx, &self->frame, &rules, self->frame.length, in, out);
}

static weir_decoded decode_last(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    varint_decoder *self = weir_ctx_state(ctx);
    const weir_varint *config = weir_ctx_arg(ctx);
    weir_frame_rules rules = { .max_frame = config->max_frame, .oversize = config->oversize };
    return weir__frame_is_skipping(&self->frame)
               ? weir__frame_skip_last(ctx, &self->frame, &rules, in)
               : decode(ctx, in, out);
}

static bool is_inside(const weir_ctx *ctx)
{
    const varint_decoder *self = weir_ctx_state(ctx);
    return weir__frame_is_skipping(&self->frame);
}

static void decoder_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = {
        .decode = decode,
        .decode_last = decode_last,
        .is_inside = is_inside,
    };
    const weir_varint *config = weir_ctx_arg(ctx);
    weir_decoder *decoder = weir_ctx_state(ctx);
    weir_decoder_init(decoder, &type);
    if (weir__arg_check_given(ctx, "weir_varint", config) &&
        weir__arg_check_size(ctx, "max_frame", config->max_frame, 1, WEIR_BUF_MAX) &&
        weir__arg_check(ctx, "oversize", config->oversize, 0, WEIR_OVERSIZE_SKIP_FIRST))
        /* Its own limit is the one that counts, as soon as the length is known. */
        weir_decoder_set_max_message(decoder, config->max_frame > MOST_BYTES ? config->max_frame
                                                                             : MOST_BYTES);
}

const weir_handler_type weir_varint_decoder = {
    .name = "varint",
    .state_size = sizeof(varint_decoder),
    .arg_size = sizeof(weir_varint),
    .added = decoder_added,
    WEIR_DECODER_CALLBACKS,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};

/* Encoding ------------------------------------------------------------------------------------- */

static int encode_length(weir_ctx *ctx, size_t length, uint8_t *to)
{
    int count = 0;
    (void)ctx;
    for (; length >= 0x80; length >>= 7)
        to[count++] = (uint8_t)(length | 0x80);
    to[count++] = (uint8_t)length;
    return count;
}

static void prepender_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir__prepend(ctx, msg, promise, encode_length);
}

const weir_handler_type weir_varint_prepender = {
    .name = "varint prepender",
    .write = prepender_write,
};
