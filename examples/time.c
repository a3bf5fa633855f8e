/* SPDX-License-Identifier: MIT */
/* weir-time: sends the time to each client that connects, and in answer to datagrams. */
#include "common.h"

#include <stdio.h>
#include <time.h>

/* The time as text, in a buffer owned by the caller; NULL: no memory. */
static weir_buf *new_time_text(void)
{
    char text[32];
    time_t now = time(NULL);
    struct tm parts;
    size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ\n", gmtime_r(&now, &parts));
    return weir_buf_from(text, length);
}

/* Streams: the time, then FIN ------------------------------------------------------------------ */

static void stream_on_active(weir_ctx *ctx)
{
    weir_buf *answer = new_time_text();
    if (answer != NULL)
        weir_ctx_write(ctx, weir_buf_msg(answer), NULL);
    weir_channel_finish(weir_ctx_channel(ctx), NULL); /* sends, then waits for the peer's FIN */
    weir_ctx_fire_active(ctx);
}

static void stream_on_read(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    weir_msg_release(msg);
}

static const weir_handler_type stream_time = {
    .name = "stream-time",
    .on_active = stream_on_active,
    .on_read = stream_on_read,
};

static int init_child(weir_channel *ch, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(ch), "time", &stream_time, arg);
}

/* Datagrams: one for each ---------------------------------------------------------------------- */

/* A question must be shorter than its answer, or two such servers could answer each other without
 * end. */
static void datagram_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const weir_datagram *question = (weir_datagram *)msg;
    weir_buf *text = new_time_text();
    weir_datagram *answer = NULL;
    if (weir_buf_readable(question->content) < weir_buf_readable(text))
        answer = weir_datagram_answer(question, text); /* takes ownership of the text */
    if (answer != NULL)
        weir_ctx_write(ctx, &answer->msg, NULL);
    else if (text != NULL)
        weir_buf_release(text);
    weir_msg_release(msg);
}

static void datagram_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static const weir_handler_type datagram_time = {
    .name = "datagram-time",
    .on_read = datagram_on_read,
    .on_read_complete = datagram_on_read_complete,
};

static int init_datagrams(weir_channel *ch, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(ch), "time", &datagram_time, arg);
}

/* Binds a datagram channel to the port of the server. It is closed with its loop. */
static int bind_datagrams(weir_app *app, const weir_address *address, weir_error *error)
{
    weir_client_config config = { .group = weir_app_workers(app), .init = init_datagrams };
    weir_channel *channel;
    char text[WEIR_ADDRESS_TEXT_MAX];
    if (weir_address_port(address) == 0)
        return 0; /* a Unix stream: no datagram socket can have the same name */
    weir_address_text(address, text, sizeof text);
    int code = weir_client_bind(&channel, &config, text, error);
    if (code == 0)
        weir_channel_release(channel);
    return code;
}

int main(int argc, char **argv)
{
    example self = {
        .name = "weir-time",
        .about = "Sends the time as text, 2024-02-29T12:00:00Z, to each client that connects\n"
                 "(nc 127.0.0.1 8037). On an IPv4 or IPv6 address it also answers short datagrams\n"
                 "to the same port (echo | nc -u 127.0.0.1 8037).\n",
        .listen = "127.0.0.1:8037",
        .server.init_child = init_child,
        .on_start = bind_datagrams,
    };
    return example_run(&self, argc, argv);
}
