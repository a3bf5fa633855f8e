/* SPDX-License-Identifier: MIT */
/* The handler that makes up a pipeline for the protocol that was agreed on. */
#include <weir/channel.h>
#include <weir/tls_select.h>

#include <errno.h>
#include <string.h>

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static const weir_tls_protocol *find(const weir_tls_protocols *known, const char *name)
{
    for (size_t i = 0; known != NULL && i < known->count; i++) {
        if (is_same(known->list[i].name, name))
            return &known->list[i];
    }
    return NULL;
}

static void protocol_on_event(weir_ctx *ctx, weir_msg *event)
{
    const weir_tls_session *session = weir_tls_session_from(event);
    if (session == NULL) {
        weir_ctx_fire_event(ctx, event);
        return;
    }
    const char *name = session->alpn;
    const weir_tls_protocol *protocol = find(weir_ctx_arg(ctx), name);
    int code = protocol != NULL ? protocol->init(weir_ctx_channel(ctx), protocol->arg)
                                : -EPROTONOSUPPORT;
    if (code < 0) {
        weir_ctx_fail(ctx, code, "no handlers for %s", name != NULL ? name : "no protocol");
        weir_msg_release(event);
        weir_ctx_close(ctx, NULL);
        return;
    }
    weir_ctx_fire_event(ctx, event);
    weir_ctx_remove(ctx);
}

const weir_handler_type weir_tls_protocol_handler = {
    .name = "tls protocol",
    .on_event = protocol_on_event,
};
