/* SPDX-License-Identifier: MIT */
/* weir-proxy: connects each client with an upstream server and passes everything on, both ways.
 *
 *     client  --->  front: [tls] [bridge]  <--->  back: [tls] [bridge]  --->  upstream
 *
 * The bridge is a handler of weir's; TLS is there if it is wanted on that side. */
#include "common.h"

#include <inttypes.h>

#define CONNECT_TIMEOUT_MS 10000

static const example *wanted; /* set by main, before there are other threads */

static void log_end(void *arg, const weir_bridge_result *result)
{
    weir_log_level level = result->back == NULL     ? WEIR_LOG_ERROR
                           : result->error.code < 0 ? WEIR_LOG_INFO
                                                    : WEIR_LOG_DEBUG;
    (void)arg;
    weir_log(level, "proxy",
             "%08" PRIx64 ": %" PRIu64 " bytes to the upstream, %" PRIu64 " back: %s",
             weir_channel_id(result->front), result->bytes_to_back, result->bytes_to_front,
             result->error.code < 0 ? result->error.message : "complete");
}

static int init_back(weir_channel *back, void *arg)
{
    (void)arg;
    return example_tls_add(&wanted->connect_tls, back);
}

static int init_front(weir_channel *front, void *arg)
{
    (void)arg;
    const weir_client_config client = {
        .group = wanted->workers,
        .init = init_back,
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
    };
    const weir_bridge_config bridge = {
        .relay_after_bytes = wanted->is_copying ? WEIR_OFF : 0,
        .on_end = log_end,
    };
    weir_error error;
    int code = example_tls_add(&wanted->tls, front);
    if (code < 0)
        return code;
    code = weir_bridge_connect(front, &client, wanted->connect, &bridge, &error);
    if (code < 0)
        weir_log(WEIR_LOG_ERROR, "proxy", "%s", error.message);
    return code;
}

int main(int argc, char **argv)
{
    example self = {
        .name = "weir-proxy",
        .about =
            "Connects whoever connects to it with another server, and passes on all bytes and the\n"
            "end of each direction. A slow reader slows down the other side. The kernel moves the\n"
            "bytes of large transfers, except with --copy, TLS and --io blocking.\n",
        .listen = "127.0.0.1:8080",
        .connect = "127.0.0.1:8007",
        .has_copy = true,
        .has_tls = true,
    };
    example_parse(&self, argc, argv);
    wanted = &self;
    weir_server_config config = { .init_child = init_front };
    bool is_ready = example_listen(&self, &config);
    if (is_ready)
        example_serve(&self);
    example_end(&self);
    return is_ready ? 0 : 1;
}
