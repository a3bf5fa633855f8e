/* SPDX-License-Identifier: MIT */
/* Frames that are all as long. */
#include <weir/fixed_length.h>

#include "channel/arg.h"
#include "codec/frame.h"

#include <errno.h>

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    const weir_fixed_length *config = weir_ctx_arg(ctx);
    weir_frame frame = { 0 };
    weir_frame_rules rules = { .max_frame = config->length };
    return weir__frame_take(ctx, &frame, &rules, config->length, in, out);
}

static void added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode };
    const weir_fixed_length *config = weir_ctx_arg(ctx);
    weir_decoder *decoder = weir_ctx_state(ctx);
    weir_decoder_init(decoder, &type);
    if (weir__arg_check_given(ctx, "weir_fixed_length", config) &&
        weir__arg_check_size(ctx, "length", config->length, 1, WEIR_BUF_MAX))
        weir_decoder_set_max_message(decoder, config->length);
}

const weir_handler_type weir_fixed_length_decoder = {
    .name = "fixed length",
    .state_size = sizeof(weir_decoder),
    .arg_size = sizeof(weir_fixed_length),
    .added = added,
    WEIR_DECODER_CALLBACKS,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
