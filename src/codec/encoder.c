/* SPDX-License-Identifier: MIT */
/* Encoders and converters. */
#include <weir/encoder.h>

#include <errno.h>

void weir_encode(weir_ctx *ctx, weir_msg *msg, weir_promise *promise, const weir_msg_type *type,
                 size_t size, weir_encode_fn encode)
{
    if (msg->type != type) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    weir_buf *out = weir_buf_new(size);
    int code = out != NULL ? encode(ctx, msg, out) : -ENOMEM;
    if (code < 0) {
        weir_buf_release(out);
        weir_ctx_refuse_write(ctx, msg, promise, code);
        return;
    }
    weir_msg_release(msg);
    weir_ctx_write(ctx, &out->msg, promise);
}

void weir_convert_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise,
                        const weir_msg_type *type, weir_convert_fn convert)
{
    weir_msg *out = NULL;
    if (msg->type != type) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    int code = convert(ctx, msg, &out);
    if (code < 0) {
        weir_ctx_refuse_write(ctx, msg, promise, code);
        return;
    }
    weir_msg_release(msg);
    if (out != NULL)
        weir_ctx_write(ctx, out, promise);
    else if (promise != NULL)
        weir_promise_set(promise, 0);
}

void weir_convert_read(weir_ctx *ctx, weir_msg *msg, const weir_msg_type *type,
                       weir_convert_fn convert)
{
    weir_msg *out = NULL;
    if (msg->type != type) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    int code = convert(ctx, msg, &out);
    if (code < 0)
        weir_ctx_fail(ctx, code, "a message could not be converted: %s", weir_error_text(code));
    else if (out != NULL)
        weir_ctx_fire_read(ctx, out);
    weir_msg_release(msg);
}
