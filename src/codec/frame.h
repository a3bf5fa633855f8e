/* SPDX-License-Identifier: MIT */
/* A frame whose length is known before its end is there: what decoders do with it. */
#ifndef WEIR_CODEC_FRAME_H
#define WEIR_CODEC_FRAME_H

#include "buf/buf.h"

#include <weir/decoder.h>

typedef struct weir_frame {
    uint64_t length; /* with its header; 0: not known yet */
    uint64_t left;   /* of it to skip, because it is too long */
} weir_frame;

typedef struct weir_frame_rules {
    size_t max_frame;
    size_t strip; /* bytes at its begin that are not passed on */
    weir_oversize oversize;
} weir_frame_rules;

/* Whether the rest of a long frame has to be skipped before anything else. */
static inline bool weir__frame_is_skipping(const weir_frame *frame)
{
    return frame->left > 0;
}

/* Skips as much of it as is there: what the decoder returns. */
weir_decoded weir__frame_skip(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                              weir_buf *in);

/* The same when no more will come: a frame that was to be told behind its end is told now. */
weir_decoded weir__frame_skip_last(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                                   weir_buf *in);

/* A frame of which something is missing, or that is too long. */
weir_decoded weir__frame_begin(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                               uint64_t length, weir_buf *in);

/* The frame of so many bytes at the reader of one run of memory, as far as it is there: what the
 * decoder returns. Until all of it is there its length is `frame->length`. */
static inline weir_decoded weir__frame_take(weir_ctx *ctx, weir_frame *frame,
                                            const weir_frame_rules *rules, uint64_t length,
                                            weir_buf *in, weir_msg **out)
{
    if (length > in->writer - in->reader || length > rules->max_frame)
        return weir__frame_begin(ctx, frame, rules, length, in);
    weir_buf *taken = weir__buf_view(in, in->reader + rules->strip, length - rules->strip);
    if (taken == NULL)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory for a frame");
    in->reader += (uint32_t)length;
    frame->length = 0;
    *out = &taken->msg;
    return WEIR_DECODED_MESSAGE;
}

#endif
