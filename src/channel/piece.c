/* SPDX-License-Identifier: MIT */
/* Pieces of a stream: no byte follows one that was rejected. */
#include "channel/channel.h"
#include "exec/future.h"

#include <errno.h>

void weir_ctx_write_piece(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    if (msg == NULL) {
        weir__promise_end(promise, -ENOMEM);
        weir_ctx_refuse_write(ctx, NULL, NULL, -ENOMEM);
    } else if (promise == NULL || !weir_promise_set_uncancellable(promise) ||
               weir_future_is_done(weir_promise_future(promise))) {
        weir_ctx_write(ctx, msg, NULL);
    } else {
        weir__promise_guard(promise, &ctx->channel->shared.home);
        weir_ctx_write(ctx, msg, promise);
    }
}
