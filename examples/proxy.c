/* SPDX-License-Identifier: MIT */
/* weir-proxy: connects each client with an upstream server and forwards the bytes both ways.
 *
 *     client  --->  front: [tls] [bridge]  <--->  back: [tls] [bridge]  --->  upstream
 *
 * The bridge is a handler of weir's; TLS is optional on both sides. */
#include "common.h"

#include <inttypes.h>

#define CONNECT_TIMEOUT_NS WEIR_SECONDS(10)

static bool is_copying; /* --copy */

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
    const example *self = arg;
    return example_tls_add(&self->connect_tls, back);
}

static int init_front(weir_channel *front, void *arg)
{
    const example *self = arg;
    const weir_client_config client = {
        .init = init_back,
        .arg = arg,
        .connect_timeout_ns = CONNECT_TIMEOUT_NS,
    };
    const weir_bridge_config bridge = {
        .relay_after_bytes = is_copying ? WEIR_OFF : 0,
        .on_end = log_end,
    };
    weir_error error;
    int code = example_tls_add(&self->tls, front);
    if (code < 0)
        return code;
    code = weir_bridge_connect(front, &client, self->connect, &bridge, &error);
    if (code < 0)
        weir_log(WEIR_LOG_ERROR, "proxy", "%s", error.message);
    return code;
}

int main(int argc, char **argv)
{
    example self = {
        .name = "weir-proxy",
        .about =
            "Connects each client with an upstream server and forwards all bytes and the FIN of\n"
            "each direction. A slow reader slows down its peer. The kernel moves the bytes of\n"
            "large transfers, except with --copy, TLS and --io blocking.\n",
        .listen = "127.0.0.1:8080",
        .connect = "127.0.0.1:8007",
        .server = { .init_child = init_front, .arg = &self },
    };
    self.options = (example_option[]){
        { "connect", "ADDR", "the upstream server", .text = &self.connect },
        { "copy", NULL, "pass the bytes through handlers; --log debug shows them",
          .flag = &is_copying },
        EXAMPLE_TLS_SERVER_OPTIONS(&self.tls),
        { "connect-tls", NULL, "speak TLS with the upstream", .flag = &self.connect_tls.is_wanted },
        EXAMPLE_TLS_CLIENT_OPTIONS(&self.connect_tls),
        { 0 },
    };
    return example_run(&self, argc, argv);
}
