/* SPDX-License-Identifier: MIT */
/* Something before each buffer that is written. */
#include "codec/prepend.h"

#include <weir/buf.h>

#include <errno.h>

/* In a buffer of its own: the message is not copied. */
static int make_prefix(weir_ctx *ctx, size_t length, weir_prepend_fn fn, weir_buf **prefix)
{
    uint8_t bytes[WEIR__MOST_PREPENDED];
    int count = fn(ctx, length, bytes);
    if (count < 0)
        return count;
    *prefix = weir_buf_from(bytes, (size_t)count);
    return *prefix != NULL ? 0 : -ENOMEM;
}

void weir__prepend(weir_ctx *ctx, weir_msg *msg, weir_promise *promise, weir_prepend_fn fn)
{
    const weir_buf *body = weir_buf_from_msg(msg);
    weir_buf *prefix;
    if (body == NULL) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    /* Once its length is on its way, the message cannot be taken back. */
    int code = promise == NULL || weir_promise_set_uncancellable(promise) ? 0 : -ECANCELED;
    if (code == 0)
        code = make_prefix(ctx, weir_buf_readable(body), fn, &prefix);
    if (code < 0) {
        weir_ctx_refuse_write(ctx, msg, promise, code);
        return;
    }
    weir_ctx_write(ctx, &prefix->msg, NULL);
    weir_ctx_write(ctx, msg, promise);
}
