/* SPDX-License-Identifier: MIT */
/* TLS in the place of another handler. */
#include "tls/place.h"

#include <weir/alloc.h>
#include <weir/loop.h>
#include <weir/pipeline.h>

#include <errno.h>
#include <string.h>

weir_tls *weir__tls_config_copy(const weir_tls *config)
{
    weir_tls *copy = weir_alloc(sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *config;
    copy->host = NULL; /* is for clients, and these are servers */
    weir_tls_context_retain(copy->context);
    return copy;
}

void weir__tls_config_free(weir_tls *config)
{
    if (config != NULL)
        weir_tls_context_release(config->context);
    weir_free(config);
}

bool weir__tls_is_on_loop(const weir_ctx *ctx)
{
    weir_loop *loop = weir_channel_loop(weir_ctx_channel(ctx));
    return loop != NULL && weir_ctx_executor(ctx) == weir_loop_executor(loop);
}

/* What fails to be read is told before the channel closes, what fails to be sent behind that. */
bool weir__tls_is_lost(const weir_ctx *ctx)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    return weir_channel_is_input_closed(channel) || !weir_channel_is_open(channel);
}

/* A name that weir gave cannot be given by others; then the new one gets such a one, too. */
int weir__tls_take_place(weir_ctx *ctx, weir_tls *config)
{
    const char *name = weir_ctx_name(ctx);
    return weir_pipeline_replace(weir_ctx_pipeline(ctx), name,
                                 strchr(name, '#') == NULL ? name : NULL, &weir_tls_handler,
                                 config);
}

void weir__tls_give_up(weir_ctx *ctx, int code, const char *message)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_ctx_fail(ctx, code, "%s", message);
    weir_channel_close(channel, NULL);
}

void weir__tls_refuse_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_refuse_write(ctx, msg, promise, -ENOTCONN);
}
