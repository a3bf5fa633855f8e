/* SPDX-License-Identifier: MIT */
/* Encoders: from messages to bytes, and from messages to other messages. */
#ifndef WEIR_ENCODER_H
#define WEIR_ENCODER_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/*
 * The callbacks of a handler that encodes are one line each:
 *
 *     static int encode_point(weir_ctx *ctx, const weir_msg *msg, weir_buf *out)
 *     {
 *         const point *self = (const point *)msg;
 *         int code = weir_buf_write_u32(out, self->x);
 *         return code < 0 ? code : weir_buf_write_u32(out, self->y);
 *     }
 *
 *     static void point_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
 *     {
 *         weir_encode(ctx, msg, promise, &point_type, 8, encode_point);
 *     }
 *
 *     static const weir_handler_type points = { .name = "points", .write = point_write };
 *
 * A codec is a handler that decodes and encodes: with WEIR_DECODER_CALLBACKS and a `write`. What is
 * of another type passes through.
 */

/** Appends what stands for a message. 0, or a negative code. */
typedef int (*weir_encode_fn)(weir_ctx *ctx, const weir_msg *msg, weir_buf *out);

/** In `write`: bytes in the place of a message of that type, in a buffer with room for `size` of
 * them, which grows. When encoding fails, so does the write, and nothing of it is sent. */
WEIR_API void weir_encode(weir_ctx *ctx, weir_msg *msg, weir_promise *promise,
                          const weir_msg_type *type, size_t size, weir_encode_fn encode);

/** Makes another message of one, into `*out`; NULL for none. It may be the same one, retained. 0,
 * or a negative code. */
typedef int (*weir_convert_fn)(weir_ctx *ctx, weir_msg *msg, weir_msg **out);

/** In `write`: another message in the place of one of that type. Where there is none the write has
 * succeeded. When it fails, so does the write. */
WEIR_API void weir_convert_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise,
                                 const weir_msg_type *type, weir_convert_fn convert);

/** In `on_read`: the same for what is read. A failure is told by on_error. */
WEIR_API void weir_convert_read(weir_ctx *ctx, weir_msg *msg, const weir_msg_type *type,
                                weir_convert_fn convert);

WEIR_END_DECLS

#endif
