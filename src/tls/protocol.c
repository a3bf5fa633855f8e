/* SPDX-License-Identifier: MIT */
/* The handler that makes up a pipeline for the protocol that was agreed on. */
#include <weir/alloc.h>
#include <weir/channel.h>
#include <weir/tls_select.h>

#include <errno.h>
#include <string.h>

#define MAX_PROTOCOLS 256

static bool has_list(const weir_tls_protocols *config)
{
    return config->list != NULL && config->count > 0 && config->count <= MAX_PROTOCOLS;
}

/* The list and its names become one block. A list that cannot be is left to `added`. */
static int protocols_retain(void *arg)
{
    weir_tls_protocols *config = arg;
    size_t size = config->count * sizeof *config->list;
    if (!has_list(config))
        return 0;
    for (size_t i = 0; i < config->count; i++)
        size += config->list[i].name != NULL ? strlen(config->list[i].name) + 1 : 0;
    weir_tls_protocol *list = weir_alloc(size);
    if (list == NULL)
        return -ENOMEM;
    char *names = (char *)(list + config->count);
    for (size_t i = 0; i < config->count; i++) {
        list[i] = config->list[i];
        if (list[i].name == NULL)
            continue;
        size_t length = strlen(list[i].name) + 1;
        list[i].name = memcpy(names, list[i].name, length);
        names += length;
    }
    config->list = list;
    return 0;
}

static void protocols_release(void *arg)
{
    const weir_tls_protocols *config = arg;
    if (has_list(config))
        weir_free((void *)config->list);
}

static void protocol_added(weir_ctx *ctx)
{
    const weir_tls_protocols *config = weir_ctx_arg(ctx);
    if (config == NULL || config->count == 0)
        return;
    if (!has_list(config)) {
        weir_ctx_fail(ctx, -EINVAL, "list is %s and count is %zu, but can be from 0 to %d",
                      config->list != NULL ? "given" : "NULL", config->count, MAX_PROTOCOLS);
        return;
    }
    for (size_t i = 0; i < config->count; i++) {
        if (config->list[i].init == NULL) {
            weir_ctx_fail(ctx, -EINVAL, "init of protocol %s is NULL",
                          config->list[i].name != NULL ? config->list[i].name : "NULL");
            return;
        }
    }
}

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
    int code = protocol != NULL ? weir_pipeline_add_initializer(weir_ctx_pipeline(ctx),
                                                                protocol->init, protocol->arg)
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
    .arg_size = sizeof(weir_tls_protocols),
    .arg_retain = protocols_retain,
    .arg_release = protocols_release,
    .added = protocol_added,
    .on_event = protocol_on_event,
};
