/* SPDX-License-Identifier: MIT */
/* TLS in the place of another handler. */
#include "tls/place.h"

#include <weir/alloc.h>
#include <weir/loop.h>
#include <weir/pipeline.h>

#include <errno.h>
#include <string.h>

int weir__tls_config_retain(void *arg)
{
    weir_tls *config = arg;
    if (config->host != NULL) {
        size_t size = strlen(config->host) + 1;
        char *host = weir_alloc(size);
        if (host == NULL)
            return -ENOMEM;
        config->host = memcpy(host, config->host, size);
    }
    weir_tls_context_retain(config->context);
    return 0;
}

void weir__tls_config_release(void *arg)
{
    const weir_tls *config = arg;
    weir_tls_context_release(config->context);
    weir_free((void *)config->host);
}

void weir__tls_wait_init(weir_tls *config)
{
    if (config->handshake_timeout_ns == 0)
        config->handshake_timeout_ns = WEIR__TLS_HANDSHAKE_NS;
}

int weir__tls_wait_begin(weir_ctx *ctx, weir_tls_wait *wait, const weir_tls *config)
{
    wait->begun_ns = weir_executor_now_ns(weir_ctx_executor(ctx));
    if (config->handshake_timeout_ns <= 0)
        return 0;
    return weir_ctx_schedule(ctx, &wait->timer, config->handshake_timeout_ns) < 0 ? -ENOMEM : 0;
}

void weir__tls_wait_end(weir_ctx *ctx, const weir_tls_wait *wait, weir_tls *config)
{
    int64_t passed = weir_executor_now_ns(weir_ctx_executor(ctx)) - wait->begun_ns;
    int64_t left = config->handshake_timeout_ns - passed;
    if (config->handshake_timeout_ns > 0)
        config->handshake_timeout_ns = left > 0 ? left : 1;
}

void weir__tls_need_read(weir_ctx *ctx)
{
    int64_t reads_by_itself = 1;
    weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, &reads_by_itself);
    if (!reads_by_itself)
        weir_ctx_read(ctx);
}

bool weir__tls_is_on_loop(const weir_ctx *ctx)
{
    weir_loop *loop = weir_channel_loop(weir_ctx_channel(ctx));
    return loop != NULL && weir_ctx_executor(ctx) == weir_loop_executor(loop);
}

bool weir__tls_wait_for_loop(weir_ctx *ctx, weir_ctx_timer *timer)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    if (!weir_channel_is_open(channel) || weir_channel_is_active(channel))
        return false;
    if (weir_ctx_schedule(ctx, timer, 0) < 0)
        weir_channel_close(channel, NULL);
    return true;
}

/* What fails to be read is told before the channel closes, what fails to be sent behind that. */
bool weir__tls_is_lost(const weir_ctx *ctx)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    return weir_channel_is_input_closed(channel) || !weir_channel_is_open(channel);
}

/* A name that weir gave cannot be given by others; then the new one gets such a one, too. */
int weir__tls_take_place(weir_ctx *ctx, weir_tls *config, bool is_read_asked)
{
    const char *name = weir_ctx_name(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    int code = weir_pipeline_replace(weir_ctx_pipeline(ctx), name,
                                     strchr(name, '#') == NULL ? name : NULL, &weir_tls_handler,
                                     config);
    if (code == 0 && is_read_asked)
        weir_channel_read(channel);
    return code;
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
