/* SPDX-License-Identifier: MIT */
/* ClientHellos: a byte says how many bytes one may have, the rest is the stream. What comes of it
 * does not depend on how it is cut, and only what was understood gets as far as a choice. */
#include "fuzz.h"

#include "tls/hello.h"

#include <weir/channel.h>
#include <weir/embedded.h>
#include <weir/pool.h>
#include <weir/tls_select.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct outcome {
    weir_tls_hello_state state;
    int code;
    char host[256];
} outcome;

static outcome read_hello(const uint8_t *bytes, size_t length, size_t step, size_t most)
{
    outcome came = { .state = WEIR_TLS_HELLO_MORE };
    weir_tls_hello hello = { 0 };
    weir_error error = { 0 };
    weir_buf *in = weir_buf_new(length);
    for (size_t at = 0; at < length && came.state == WEIR_TLS_HELLO_MORE; at += step) {
        weir_buf_write_bytes(in, bytes + at, length - at < step ? length - at : step);
        came.state = weir__tls_hello_read(&hello, in, most, &error);
    }
    came.code = came.state == WEIR_TLS_HELLO_REFUSED ? error.code : 0;
    if (came.state == WEIR_TLS_HELLO_DONE)
        memcpy(came.host, hello.host, sizeof came.host);
    weir__tls_hello_deinit(&hello);
    weir_buf_release(in);
    return came;
}

/* Refuses everybody, but notes for whom it was asked. */
static void choose(weir_channel *channel, const char *host, weir_promise *promise, void *arg)
{
    outcome *came = arg;
    (void)channel;
    came->state = WEIR_TLS_HELLO_DONE;
    if (host != NULL)
        memcpy(came->host, host, strlen(host) + 1);
    weir_promise_fail(promise, -EPERM);
}

static int add_sni(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "sni", &weir_tls_sni_handler,
                                  arg);
}

static void check_handler(const uint8_t *bytes, size_t length, size_t step, size_t most,
                          const outcome *expected)
{
    outcome came = { .state = WEIR_TLS_HELLO_MORE };
    weir_tls_sni sni = { .choose = choose, .arg = &came, .max_hello = most };
    weir_embedded *embedded;
    weir_error error = { 0 };
    if (weir_embedded_new(&embedded, &(weir_embedded_config){ .init = add_sni, .arg = &sni },
                          NULL) < 0)
        abort();
    for (size_t at = 0; at < length && weir_channel_is_open(weir_embedded_channel(embedded));
         at += step)
        weir_embedded_write_inbound_bytes(embedded, bytes + at,
                                          length - at < step ? length - at : step);
    bool has_failed = weir_embedded_take_error(embedded, &error);
    bool is_open = weir_channel_is_open(weir_embedded_channel(embedded));
    weir_embedded_free(embedded);
    if ((came.state == WEIR_TLS_HELLO_DONE) != (expected->state == WEIR_TLS_HELLO_DONE) ||
        strcmp(came.host, expected->host) != 0 ||
        has_failed != (expected->state != WEIR_TLS_HELLO_MORE) || is_open == has_failed)
        abort();
    if (expected->state == WEIR_TLS_HELLO_REFUSED && error.code != expected->code)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_pool_stats before, after;
    if (size < 2)
        return -1;
    size_t most = data[0] == 0 ? 16384 : (size_t)data[0] * 8;
    weir_pool_get_stats(&before);
    const outcome whole = read_hello(data + 1, size - 1, size, most);
    for (size_t step = 1; step < size; step = step * 5 + 1) {
        const outcome cut = read_hello(data + 1, size - 1, step, most);
        if (cut.state != whole.state || cut.code != whole.code || strcmp(cut.host, whole.host) != 0)
            abort();
    }
    check_handler(data + 1, size - 1, size, most, &whole);
    check_handler(data + 1, size - 1, size > 200 ? 37 : 1, most, &whole);
    weir_pool_get_stats(&after);
    if (before.used_blocks != after.used_blocks)
        abort();
    return 0;
}
