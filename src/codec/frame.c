/* SPDX-License-Identifier: MIT */
/* Frames of a known length. */
#include "codec/frame.h"

#include "buf/buf.h"

#include <errno.h>
#include <inttypes.h>

static void complain(weir_ctx *ctx, const weir_frame *frame, const weir_frame_rules *rules)
{
    weir_decoder_complain(ctx, WEIR_ELIMIT,
                          "a frame of %" PRIu64 " bytes is above the limit of %zu", frame->length,
                          rules->max_frame);
}

weir_decoded weir__frame_skip(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                              weir_buf *in)
{
    size_t there = weir_buf_readable(in);
    size_t length = frame->left < there ? (size_t)frame->left : there;
    if (length == 0)
        return WEIR_DECODED_NOTHING;
    weir_buf_skip(in, length);
    frame->left -= length;
    if (frame->left > 0)
        return WEIR_DECODED_SKIPPED;
    if (rules->oversize == WEIR_OVERSIZE_SKIP_FIRST)
        complain(ctx, frame, rules);
    frame->length = 0;
    return WEIR_DECODED_SKIPPED;
}

weir_decoded weir__frame_skip_last(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                                   weir_buf *in)
{
    weir_decoded decoded = weir__frame_skip(ctx, frame, rules, in);
    if (decoded != WEIR_DECODED_NOTHING)
        return decoded;
    if (rules->oversize == WEIR_OVERSIZE_SKIP_FIRST)
        complain(ctx, frame, rules);
    *frame = (weir_frame){ 0 };
    return WEIR_DECODED_NOTHING;
}

static weir_decoded begin_to_skip(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                                  weir_buf *in)
{
    if (rules->oversize != WEIR_OVERSIZE_SKIP_FIRST)
        complain(ctx, frame, rules);
    if (rules->oversize == WEIR_OVERSIZE_CLOSE)
        return WEIR_DECODED_REFUSED;
    frame->left = frame->length;
    return weir__frame_skip(ctx, frame, rules, in);
}

weir_decoded weir__frame_begin(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                               uint64_t length, weir_buf *in)
{
    frame->length = length;
    return length > rules->max_frame ? begin_to_skip(ctx, frame, rules, in) : WEIR_DECODED_NOTHING;
}
