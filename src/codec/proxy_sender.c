/* SPDX-License-Identifier: MIT */
/* The PROXY protocol: the handler that sends a header. */
#include "base/alloc.h"
#include "channel/arg.h"
#include "codec/proxy_protocol.h"

#include <weir/channel.h>

#include <errno.h>
#include <string.h>

typedef struct proxy_sender {
    weir_buf *header; /* NULL: it was written */
} proxy_sender;

static void send_first(weir_ctx *ctx)
{
    proxy_sender *self = weir_ctx_state(ctx);
    weir_buf *header = self->header;
    self->header = NULL;
    if (header != NULL)
        weir_ctx_write(ctx, &header->msg, NULL);
}

static void send_and_leave(weir_ctx *ctx)
{
    send_first(ctx);
    weir_ctx_flush(ctx);
    weir_ctx_remove(ctx);
}

static void sender_added(weir_ctx *ctx)
{
    proxy_sender *self = weir_ctx_state(ctx);
    if (!weir__arg_check_given(ctx, "weir_proxy_header", weir_ctx_arg(ctx)))
        return;
    self->header = weir_buf_new(WEIR__PROXY_V1_MAX);
    int code = self->header != NULL ? weir_proxy_write_header(self->header, weir_ctx_arg(ctx))
                                    : -ENOMEM;
    if (code < 0)
        weir_ctx_fail(ctx, code, "no PROXY header can be made of that: %s", weir_error_text(code));
    else if (weir_channel_is_active(weir_ctx_channel(ctx)))
        send_and_leave(ctx);
}

static void sender_removed(weir_ctx *ctx)
{
    proxy_sender *self = weir_ctx_state(ctx);
    if (self->header != NULL)
        weir_buf_release(self->header);
    self->header = NULL;
}

static void sender_on_active(weir_ctx *ctx)
{
    send_and_leave(ctx);
    weir_ctx_fire_active(ctx);
}

/* The header goes first, also before writes that are made before the channel is active. */
static void sender_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    send_first(ctx);
    weir_ctx_write(ctx, msg, promise);
}

static void sender_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    send_first(ctx);
    weir_ctx_shutdown(ctx, promise);
}

static int sender_retain(void *arg)
{
    weir_proxy_header *header = arg;
    if (header->tlv_length > WEIR__PROXY_V2_MAX)
        return WEIR_ELIMIT;
    if (header->tlvs == NULL || header->tlv_length == 0)
        return 0;
    uint8_t *tlvs = weir__alloc(header->tlv_length);
    if (tlvs == NULL)
        return -ENOMEM;
    memcpy(tlvs, header->tlvs, header->tlv_length);
    header->tlvs = tlvs;
    return 0;
}

static void sender_release(void *arg)
{
    const weir_proxy_header *header = arg;
    if (header->tlv_length > 0)
        weir__free((void *)header->tlvs);
}

const weir_handler_type weir_proxy_sender = {
    .name = "proxy sender",
    .state_size = sizeof(proxy_sender),
    .arg_size = sizeof(weir_proxy_header),
    .arg_retain = sender_retain,
    .arg_release = sender_release,
    .added = sender_added,
    .removed = sender_removed,
    .on_active = sender_on_active,
    .write = sender_write,
    .shutdown = sender_shutdown,
};
