/* SPDX-License-Identifier: MIT */
/* A frame whose length is known before its end is there: what decoders do with it. */
#ifndef WEIR_CODEC_FRAME_H
#define WEIR_CODEC_FRAME_H

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

/* The frame of the known length at the reader of one run of memory, as far as it is there: what the
 * decoder returns. */
weir_decoded weir__frame_take(weir_ctx *ctx, weir_frame *frame, const weir_frame_rules *rules,
                              weir_buf *in, weir_msg **out);

#endif
