/* SPDX-License-Identifier: MIT */
/* weir-time: tells the time to who connects, and to who sends a datagram. */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

/* The time as text, in a buffer of the caller's; NULL: no memory. */
static weir_buf *tell_time(void)
{
    char text[32];
    time_t now = time(NULL);
    struct tm parts;
    size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ\n", gmtime_r(&now, &parts));
    return weir_buf_from(text, length);
}

/* Over streams: the time, then the end ----------------------------------------------------------*/

static void stream_on_active(weir_ctx *ctx)
{
    weir_buf *answer = tell_time();
    if (answer != NULL)
        weir_ctx_write(ctx, weir_buf_msg(answer), NULL);
    weir_channel_finish(weir_ctx_channel(ctx), NULL); /* sends, then waits for the other's end */
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

/* Over datagrams: one for one ------------------------------------------------------------------ */

/* A question is shorter than its answer, or two such servers could talk to each other for ever. */
static void datagram_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const weir_datagram *question = (weir_datagram *)msg;
    weir_buf *now = tell_time();
    weir_datagram *answer = NULL;
    if (weir_buf_readable(question->content) < weir_buf_readable(now))
        answer = weir_datagram_answer(question, now); /* which takes the buffer */
    if (answer != NULL)
        weir_ctx_write(ctx, &answer->msg, NULL);
    else if (now != NULL)
        weir_buf_release(now);
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

/* What is asked of a channel happens in this order, and fails from the first failure on. */
static int bind_to(weir_channel *channel, weir_group *group, const weir_address *address)
{
    weir_promise *bound = weir_channel_promise(channel);
    if (bound == NULL)
        return -ENOMEM;
    weir_group_register(group, channel, NULL);
    weir_channel_bind(channel, address, bound);
    int code = weir_future_await(weir_promise_future(bound));
    weir_promise_release(bound);
    return code;
}

/* Binds a datagram channel to the port that the server has got. It is closed with its loop. */
static bool answer_datagrams(const example *self)
{
    weir_channel *channel = NULL;
    weir_address address;
    int code = weir_server_address(self->server, &address);
    if (code == 0 && weir_address_port(&address) == 0)
        return true; /* a Unix stream; there is no datagram socket of the same name */
    if (code == 0)
        code = weir_channel_new(&channel, WEIR_SOCKET_DATAGRAM, &address, NULL);
    if (code == 0)
        code = weir_pipeline_add_last(weir_channel_pipeline(channel), "time", &datagram_time, NULL);
    if (code == 0)
        code = bind_to(channel, self->workers, &address);
    if (code < 0)
        fprintf(stderr, "%s: no datagrams: %s\n", self->name, weir_error_text(code));
    weir_channel_release(channel);
    return code == 0;
}

int main(int argc, char **argv)
{
    example self = {
        .name = "weir-time",
        .about = "Tells the time as text, 2024-02-29T12:00:00Z, to whoever connects (nc 127.0.0.1 "
                 "8037)\n"
                 "and, with an IPv4 or IPv6 address, to whoever sends a short datagram to the same "
                 "port\n"
                 "(echo | nc -u 127.0.0.1 8037).\n",
        .listen = "127.0.0.1:8037",
    };
    example_parse(&self, argc, argv);
    bool is_ready = example_listen(&self, &(weir_server_config){ .init_child = init_child }) &&
                    answer_datagrams(&self);
    if (is_ready)
        example_serve(&self);
    example_end(&self);
    return is_ready ? 0 : 1;
}
