/* SPDX-License-Identifier: MIT */
/* weir-echo: sends back the bytes that it receives. README.md shows it without options. */
#include "common.h"

#include <stdio.h>

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL); /* the message goes with the call */
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void echo_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        weir_ctx_shutdown(ctx, NULL); /* once the last answer is sent */
    weir_ctx_fire_event(ctx, event);
}

static void echo_on_error(weir_ctx *ctx, const weir_error *error)
{
    fprintf(stderr, "echo: %s\n", error->message);
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type echo = {
    .name = "echo",
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
    .on_event = echo_on_event,
    .on_error = echo_on_error,
};

static int init_child(weir_channel *ch, void *arg)
{
    weir_channel_set_option(ch, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    return weir_pipeline_add_last(weir_channel_pipeline(ch), "echo", &echo, arg);
}

static bool expects_proxy; /* --proxy-protocol */

/* Logs the addresses in the proxy's header. */
static void proxied_on_event(weir_ctx *ctx, weir_msg *event)
{
    const weir_proxy_event *proxy = weir_proxy_event_from(event);
    char client[WEIR_ADDRESS_TEXT_MAX], wanted[WEIR_ADDRESS_TEXT_MAX], peer[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    if (proxy != NULL) {
        weir_channel_remote_address(weir_ctx_channel(ctx), &address);
        weir_address_text(&address, client, sizeof client);
        weir_channel_peer_address(weir_ctx_channel(ctx), &address);
        weir_address_text(&address, peer, sizeof peer);
        weir_address_text(&proxy->header.destination, wanted, sizeof wanted);
        weir_log(WEIR_LOG_INFO, "echo", "%s wants to %s, through %s (PROXY v%d%s)", client, wanted,
                 peer, proxy->header.version,
                 proxy->header.command == WEIR_PROXY_LOCAL ? ", local" : "");
    }
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type proxied = { .name = "proxied", .on_event = proxied_on_event };

/* A proxy's header is not encrypted. */
static int init_with_options(weir_channel *ch, void *arg)
{
    const example *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(ch);
    int code = 0;
    if (expects_proxy)
        code = weir_pipeline_add_last(pipeline, "proxy", &weir_proxy_decoder, NULL);
    if (expects_proxy && code == 0)
        code = weir_pipeline_add_last(pipeline, "proxied", &proxied, NULL);
    if (code == 0)
        code = example_tls_add(&self->tls, ch);
    return code < 0 ? code : init_child(ch, NULL);
}

int main(int argc, char **argv)
{
    example self = {
        .name = "weir-echo",
        .about = "Sends back the bytes that it receives, over TCP or Unix streams. Try it with\n"
                 "nc 127.0.0.1 8007 or weir-echo-client.\n",
        .listen = "127.0.0.1:8007",
        .server = { .init_child = init_with_options, .arg = &self },
    };
    self.options = (example_option[]){
        { "proxy-protocol", NULL, "expect a PROXY header; --log info logs the client's address",
          .flag = &expects_proxy },
        EXAMPLE_TLS_SERVER_OPTIONS(&self.tls),
        { 0 },
    };
    return example_run(&self, argc, argv);
}
