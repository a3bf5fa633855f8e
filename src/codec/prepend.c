/* SPDX-License-Identifier: MIT */
/* Something before each buffer that is written. */
#include "codec/prepend.h"

#include <weir/buf.h>

#include <errno.h>

/* In one message with it, so that neither goes without the other. The message is not copied; its
 * reference goes with the call. */
static int put_before(weir_buf *body, const uint8_t *bytes, size_t count, weir_buf **out)
{
    weir_buf *both = weir_buf_new_composite(), *prefix = weir_buf_from(bytes, count);
    int code = both != NULL && prefix != NULL ? 0 : -ENOMEM;
    if (code == 0)
        code = weir_buf_composite_add(both, prefix);
    else if (prefix != NULL)
        weir_buf_release(prefix);
    if (code == 0)
        code = weir_buf_composite_add(both, body);
    else
        weir_buf_release(body);
    if (code < 0 && both != NULL)
        weir_buf_release(both);
    *out = both;
    return code;
}

void weir__prepend(weir_ctx *ctx, weir_msg *msg, weir_promise *promise, weir_prepend_fn fn)
{
    uint8_t bytes[WEIR__MOST_PREPENDED];
    weir_buf *body = weir_buf_from_msg(msg), *both;
    if (body == NULL) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    int count = fn(ctx, weir_buf_readable(body), bytes);
    if (count < 0) {
        weir_ctx_refuse_write(ctx, msg, promise, count);
        return;
    }
    int code = put_before(body, bytes, (size_t)count, &both);
    if (code < 0)
        weir_ctx_refuse_write(ctx, NULL, promise, code);
    else
        weir_ctx_write(ctx, &both->msg, promise);
}
