/* SPDX-License-Identifier: MIT */
/* The acceptor: the last handler of a listener, which sets up what was accepted and hands it to the
 * workers. */
#include "bootstrap/server.h"

#include "channel/extras.h"

#include <weir/accepted.h>
#include <weir/log.h>

#include <errno.h>

/* The listener keeps its server, and children keep their listener. */
static const weir_attr_key listening_key = { .name = "server", .destroy = weir__listening_free };

bool weir__server_has_accepted(const weir_server *server, const weir_channel *channel)
{
    const weir_listening *by = channel->parent != NULL
                                   ? weir_channel_attr(channel->parent, &listening_key)
                                   : NULL;
    return by != NULL && by->server == server;
}

static int set_attrs(weir_channel *channel, const weir_attr_value *attrs, size_t count)
{
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++)
        code = weir_channel_set_attr(channel, attrs[i].key, attrs[i].value);
    return code;
}

/* Its options it has already, from the listener. */
static void take_in(weir_ctx *ctx, weir_server *server, weir_channel *child)
{
    const weir_server_config *config = &server->config;
    int code = set_attrs(child, config->child_attrs, config->child_attr_count);
    if (code < 0) {
        weir_log(WEIR_LOG_WARN, "server", "%08llx: closed, because it could not be set up: %s",
                 (unsigned long long)weir_channel_id(child), weir_error_text(code));
        weir_channel_close(child, NULL);
        return;
    }
    child->life.needs_init = true;
    if (config->keeps_loop) /* what the loop refuses it closes, and says so */
        weir_channel_register(child, weir_loop_executor(weir_channel_loop(weir_ctx_channel(ctx))),
                              NULL);
    else
        weir_group_register(config->workers, child, NULL);
}

static void acceptor_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_channel *child = weir_accepted_take(msg);
    if (child == NULL) {
        weir_ctx_fire_read(ctx, msg); /* a handler before has something else to say */
        return;
    }
    weir_msg_release(msg);
    take_in(ctx, weir_ctx_arg(ctx), child);
    weir_channel_release(child);
}

static const weir_handler_type acceptor_type = { .name = "acceptor", .on_read = acceptor_on_read };

static int init_listener(weir_channel *listener, void *arg)
{
    weir_server *server = arg;
    const weir_server_config *config = &server->config;
    int code = config->init != NULL ? weir__channel_init_by(listener, config->init, config->arg)
                                    : 0;
    if (code >= 0)
        code = weir_pipeline_add_last(weir_channel_pipeline(listener), NULL, &acceptor_type,
                                      server);
    server->init_code = code;
    return code;
}

/* What a child calls when it gets to its loop. */
static int set_init_child(const weir_server *server, weir_channel *listener)
{
    weir_channel_extras *extras = weir__channel_need_extras(listener);
    if (extras == NULL)
        return -ENOMEM;
    extras->init_child = server->config.init_child;
    extras->init_child_arg = server->config.arg;
    return 0;
}

static int set_options(const weir_server *server, weir_channel *listener, weir_error *error)
{
    const weir_server_config *config = &server->config;
    int code = 0;
    if (server->wanted > 1 && server->descriptors == NULL)
        code = weir_channel_set_option(listener, WEIR_OPTION_REUSE_PORT, 1, error);
    if (code == 0 && config->backlog > 0)
        code = weir_channel_set_option(listener, WEIR_OPTION_BACKLOG, config->backlog, error);
    if (code == 0 && config->max_connections > 0)
        code = weir_channel_set_option(listener, WEIR_OPTION_MAX_CONNECTIONS,
                                       config->max_connections, error);
    if (code == 0)
        code = weir_channel_set_options(listener, config->options, config->option_count, error);
    for (size_t i = 0; i < config->child_option_count && code == 0; i++)
        code = weir_channel_set_child_option(listener, config->child_options[i].option,
                                             config->child_options[i].value, error);
    return code;
}

int weir__acceptor_prepare(weir_listening *listening, weir_error *error)
{
    weir_server *server = listening->server;
    weir_channel *listener = listening->channel;
    const weir_server_config *config = &server->config;
    int code = weir_channel_set_attr(listener, &listening_key, listening);
    if (code == 0) {
        code = set_options(server, listener, error);
        if (code < 0)
            return code;
    }
    if (code == 0)
        code = set_init_child(server, listener);
    if (code == 0)
        code = set_attrs(listener, config->attrs, config->attr_count);
    if (code == 0)
        code = weir_pipeline_add_initializer(weir_channel_pipeline(listener), init_listener,
                                             server);
    return code < 0 ? weir_error_set(error, code, "server", "no listener on %s: %s", server->text,
                                     weir_error_text(code))
                    : 0;
}
