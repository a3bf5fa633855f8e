/* SPDX-License-Identifier: MIT */
/* A server that sends back what it gets, and clients that compare. */
#include "world.h"

static void on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
    weir_ctx_fire_read_complete(ctx);
}

static void on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type echo_type = {
    .name = "echo",
    .on_read = on_read,
    .on_read_complete = on_read_complete,
    .on_error = on_error,
};

int init_echo(weir_channel *channel, void *arg)
{
    int code = add_probe(arg, channel);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(channel), "echo", &echo_type, NULL);
}

static void run(world *w)
{
    crowd all = { .count = (unsigned)draw_small(w, 1, MOST_CLIENTS) };
    open_server(w, init_echo, w);
    crowd_talk(&all, w, "10.0.0.1:80");
    end_world(w);
}

const program echo_program = { .name = "echo", .run = run };
