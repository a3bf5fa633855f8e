/* SPDX-License-Identifier: MIT */
/* Two embedded channels with TLS between them. */
#include "tls/pair.h"

#include <weir/channel.h>

#include <string.h>

const weir_tls_self_signed *pair_identity(void)
{
    static weir_tls_self_signed own;
    if (own.key_pem[0] == '\0')
        assert_int_equal(weir_tls_self_signed_make(&own, "localhost", NULL), 0);
    return &own;
}

weir_tls_context *pair_server_context(const weir_tls_config *config)
{
    weir_tls_config filled = config != NULL ? *config : (weir_tls_config){ 0 };
    weir_tls_context *context;
    weir_error error;
    filled.certificate_pem = pair_identity()->certificate_pem;
    filled.key_pem = pair_identity()->key_pem;
    if (weir_tls_context_new_server(&context, &filled, &error) < 0)
        fail_msg("%s", error.message);
    return context;
}

weir_tls_context *pair_client_context(const weir_tls_config *config)
{
    weir_tls_config filled = config != NULL ? *config : (weir_tls_config){ 0 };
    weir_tls_context *context;
    weir_error error;
    filled.ca_pem = pair_identity()->certificate_pem;
    if (weir_tls_context_new_client(&context, &filled, &error) < 0)
        fail_msg("%s", error.message);
    return context;
}

int pair_init(weir_channel *channel, void *arg)
{
    pair_end *end = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, end->allows_half_closure,
                            NULL);
    if (end->has_option)
        weir_channel_set_option(channel, end->option.option, end->option.value, NULL);
    int code = end->first != NULL
                   ? weir_pipeline_add_last(pipeline, "first", end->first, end->first_arg)
                   : weir_pipeline_add_last(pipeline, "tls", &weir_tls_handler, &end->tls);
    if (code == 0 && end->last != NULL)
        code = weir_pipeline_add_last(pipeline, "last", end->last, end->last_arg);
    return code;
}

static void begin_end(pair_end *end)
{
    weir_embedded_config config = { .init = pair_init, .arg = end };
    config.is_unregistered = end->begins_ns > 0;
    assert_int_equal(weir_embedded_new(&end->embedded, &config, NULL), 0);
    if (end->begins_ns == 0)
        return;
    weir_embedded_advance(end->embedded, end->begins_ns);
    weir_channel_register(weir_embedded_channel(end->embedded),
                          weir_embedded_executor(end->embedded), NULL);
    weir_embedded_run(end->embedded);
}

void pair_begin(pair *both)
{
    both->server.tls.context = both->server.tls.context != NULL
                                   ? weir_tls_context_retain(both->server.tls.context)
                                   : pair_server_context(NULL);
    both->client.tls.context = both->client.tls.context != NULL
                                   ? weir_tls_context_retain(both->client.tls.context)
                                   : pair_client_context(NULL);
    if (both->client.tls.host == NULL)
        both->client.tls.host = "localhost";
    begin_end(&both->server);
    begin_end(&both->client);
}

void pair_begin_with(pair *both, weir_option option, int64_t value)
{
    both->client.has_option = both->server.has_option = true;
    both->client.option = both->server.option = (weir_option_value){ option, value };
    pair_begin(both);
}

int pair_warm_up(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    pair_finish(&both);
    return 0;
}

static size_t carry_one_way(const pair *both, const pair_end *from, const pair_end *to)
{
    static uint8_t bytes[1 << 20];
    size_t length = weir_embedded_read_outbound_bytes(from->embedded, bytes, sizeof bytes);
    size_t most = both->most > 0 ? both->most : sizeof bytes;
    for (size_t at = 0, part; at < length; at += part) {
        part = length - at < most ? length - at : most;
        if (weir_channel_is_open(weir_embedded_channel(to->embedded)))
            weir_embedded_write_inbound_bytes(to->embedded, bytes + at, part);
    }
    return length;
}

size_t pair_carry(pair *both)
{
    size_t all = 0, carried;
    do {
        carried = carry_one_way(both, &both->client, &both->server) +
                  carry_one_way(both, &both->server, &both->client);
        all += carried;
    } while (carried > 0);
    return all;
}

size_t pair_carry_to(pair *both, pair_end *to)
{
    return carry_one_way(both, to == &both->client ? &both->server : &both->client, to);
}

static void assert_shaken(const pair_end *end)
{
    weir_future *future = weir_tls_handshake(weir_embedded_channel(end->embedded));
    assert_non_null(future);
    if (weir_future_code(future) < 0 && weir_future_error(future) != NULL)
        fail_msg("%s", weir_future_error(future)->message);
    assert_int_equal(weir_future_code(future), 0);
    assert_non_null(weir_future_value(future));
}

void pair_shake(pair *both)
{
    pair_carry(both);
    assert_shaken(&both->client);
    assert_shaken(&both->server);
}

size_t pair_heard(pair_end *end, char *to, size_t size)
{
    size_t all = 0;
    for (weir_msg *msg; (msg = weir_embedded_read_inbound(end->embedded)) != NULL;) {
        weir_buf *buf = weir_buf_from_msg(msg);
        assert_non_null(buf);
        size_t length = weir_buf_readable(buf);
        assert_true(all + length < size);
        weir_buf_get_bytes(buf, weir_buf_reader(buf), to + all, length);
        all += length;
        weir_buf_release(buf);
    }
    to[all] = '\0';
    return all;
}

void pair_say(pair *both, pair_end *from, const char *text)
{
    char heard[4096];
    pair_end *to = from == &both->client ? &both->server : &both->client;
    weir_embedded_write_outbound(from->embedded, weir_buf_msg(weir_buf_from(text, strlen(text))));
    weir_embedded_flush(from->embedded);
    pair_carry(both);
    pair_heard(to, heard, sizeof heard);
    assert_string_equal(heard, text);
}

weir_promise *pair_write(pair_end *end, const void *bytes, size_t length)
{
    weir_channel *channel = weir_embedded_channel(end->embedded);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write(channel, weir_buf_msg(weir_buf_from(bytes, length)), promise);
    weir_embedded_run(end->embedded);
    return promise;
}

int pair_code_of(weir_promise *promise)
{
    int code = weir_future_code(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

void pair_expect_error(pair_end *end, int code)
{
    weir_error error;
    assert_true(weir_embedded_take_error(end->embedded, &error));
    if (error.code != code)
        fail_msg("%s instead of %s: %s", weir_error_name(error.code), weir_error_name(code),
                 error.message);
}

void pair_finish(pair *both)
{
    weir_embedded_free(both->client.embedded);
    weir_embedded_free(both->server.embedded);
    weir_tls_context_release(both->client.tls.context);
    weir_tls_context_release(both->server.tls.context);
}
