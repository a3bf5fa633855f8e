/* SPDX-License-Identifier: MIT */
/* weir-discard: reads and sends nothing (RFC 863). */
#include "common.h"

static void discard_on_read(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    weir_msg_release(msg); /* neither forwarded nor written, so released */
}

static void discard_on_inactive(weir_ctx *ctx)
{
    weir_channel_stats stats;
    weir_channel_get_stats(weir_ctx_channel(ctx), &stats);
    weir_log(WEIR_LOG_INFO, "discard", "%08llx: %llu bytes",
             (unsigned long long)weir_channel_id(weir_ctx_channel(ctx)),
             (unsigned long long)stats.bytes_in);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type discard = {
    .name = "discard",
    .on_read = discard_on_read,
    .on_inactive = discard_on_inactive,
};

static int init_child(weir_channel *ch, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(ch), "discard", &discard, arg);
}

int main(int argc, char **argv)
{
    example self = {
        .name = "weir-discard",
        .about = "Reads and sends nothing. With --log info it logs the bytes received from each "
                 "connection.\n",
        .listen = "127.0.0.1:8009",
        .server.init_child = init_child,
    };
    return example_run(&self, argc, argv);
}
