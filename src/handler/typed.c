/* SPDX-License-Identifier: MIT */
/* The typed handler. */
#include <weir/typed.h>

#include "channel/arg.h"

#include <errno.h>

static void typed_added(weir_ctx *ctx)
{
    const weir_typed *typed = weir_ctx_arg(ctx);
    if (weir__arg_check_given(ctx, "weir_typed", typed) &&
        weir__arg_check_given(ctx, "type", typed->type) && typed->on_message == NULL)
        weir_ctx_fail(ctx, -EINVAL, "on_message is NULL");
}

static void typed_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const weir_typed *typed = weir_ctx_arg(ctx);
    if (msg->type != typed->type) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    typed->on_message(ctx, msg);
    weir_msg_release(msg);
}

const weir_handler_type weir_typed_handler = {
    .name = "typed",
    .arg_size = sizeof(weir_typed),
    .added = typed_added,
    .on_read = typed_on_read,
};

void *weir_typed_arg(const weir_ctx *ctx)
{
    const weir_typed *typed = weir_ctx_arg(ctx);
    return typed->arg;
}
