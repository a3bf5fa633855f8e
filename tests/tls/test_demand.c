/* SPDX-License-Identifier: MIT */
/* TLS on a channel that reads when it is asked to, and one that does not wait when it closes. */
#include "tls/pair.h"

#include "exec/executors.h"

#include <weir/channel.h>
#include <weir/tls_select.h>

#include <errno.h>

static void reads_on_demand(weir_ctx *ctx)
{
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, false, NULL);
}

static const weir_handler_type on_demand = { .name = "on demand", .added = reads_on_demand };

/* As a proxy does, until it has somebody to pass on to. */
static void stops_reading(weir_ctx *ctx)
{
    reads_on_demand(ctx);
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type stopping = { .name = "stopping", .on_active = stops_reading };

static void the_handshake_reads_by_itself(void **state)
{
    static const weir_handler_type *const types[] = { &on_demand, &stopping };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pair both = { .client.last = types[i], .server.last = types[i] };
        pair_begin(&both);
        assert_true(weir_embedded_is_reading(both.client.embedded));
        assert_true(weir_embedded_is_reading(both.server.embedded));
        both.most = 1; /* however often it takes */
        pair_shake(&both);
        pair_say(&both, &both.client, "hello");
        pair_finish(&both);
    }
}

/* Both are served as long as they read, and no longer. */
static void carry_what_is_asked_for(pair *both)
{
    for (int i = 0; i < 100; i++) {
        if (weir_embedded_is_reading(both->server.embedded))
            pair_carry_to(both, &both->server);
        if (weir_embedded_is_reading(both->client.embedded))
            pair_carry_to(both, &both->client);
        weir_embedded_run(both->client.embedded);
        weir_embedded_run(both->server.embedded);
    }
}

/* Whether both handshakes are done. */
static bool is_shaken(const pair *both)
{
    return weir_future_is_done(weir_tls_handshake(weir_embedded_channel(both->client.embedded))) &&
           weir_future_is_done(weir_tls_handshake(weir_embedded_channel(both->server.embedded)));
}

/* Before the channel is active, and before it is known with which certificate, or whether at all.
 */
static void asks_early(weir_ctx *ctx)
{
    weir_ctx_read(ctx);
    weir_ctx_fire_registered(ctx);
}

static const weir_handler_type early = {
    .name = "early",
    .added = reads_on_demand,
    .on_registered = asks_early,
};

static void check_early(const weir_handler_type *first, void *arg, weir_tls_context *context)
{
    char heard[16];
    pair both = { .server = { .last = &early, .first = first, .first_arg = arg } };
    both.server.tls.context = context;
    pair_begin(&both);
    carry_what_is_asked_for(&both);
    assert_true(is_shaken(&both));
    weir_embedded_write_outbound(both.client.embedded, weir_buf_msg(weir_buf_from("hello", 5)));
    weir_embedded_flush(both.client.embedded);
    carry_what_is_asked_for(&both);
    assert_int_equal(pair_heard(&both.server, heard, sizeof heard), 5);
    assert_false(weir_embedded_is_reading(both.server.embedded));
    pair_finish(&both);
}

static void what_was_asked_for_early_is_read_behind_the_handshake(void **state)
{
    weir_tls_sni sni = { 0 };
    weir_tls_context *context = pair_server_context(NULL);
    weir_tls tls = { .context = context };
    (void)state;
    assert_int_equal(weir_tls_hosts_new(&sni.hosts, NULL, 0, context, NULL), 0);
    check_early(NULL, NULL, context);
    check_early(&weir_tls_sni_handler, &sni, context);
    check_early(&weir_tls_optional_handler, &tls, context);
    weir_tls_hosts_release(sni.hosts);
    weir_tls_context_release(context);
}

static void no_more_is_read_than_was_asked_for(void **state)
{
    weir_group *others = new_group_of(1);
    (void)state;
    for (int way = 0; way < 8; way++) {
        bool is_asked = way & 1;
        weir_tls_context *old = pair_server_context(
            &(weir_tls_config){ .max_version = way & 2 ? WEIR_TLS_1_2 : WEIR_TLS_1_3 });
        pair both = { .client.last = &on_demand,
                      .server = { .last = &on_demand, .tls.context = old } };
        if (way & 4)
            both.client.tls.handshake_group = both.server.tls.handshake_group = others;
        pair_begin(&both);
        if (is_asked)
            weir_channel_read(weir_embedded_channel(both.server.embedded));
        weir_embedded_run(both.server.embedded);
        for (int i = 0; i < 10000 && !is_shaken(&both); i++) {
            carry_what_is_asked_for(&both);
            settle(weir_group_at(others, 0));
        }
        assert_true(is_shaken(&both));
        carry_what_is_asked_for(&both);
        assert_false(weir_embedded_is_reading(both.client.embedded));
        assert_int_equal(weir_embedded_is_reading(both.server.embedded), is_asked);
        if (!is_asked) {
            weir_channel_read(weir_embedded_channel(both.server.embedded));
            weir_embedded_run(both.server.embedded);
            assert_true(weir_embedded_is_reading(both.server.embedded));
        }
        pair_say(&both, &both.client, "hello");
        assert_false(weir_embedded_is_reading(both.server.embedded));
        pair_finish(&both);
        weir_tls_context_release(old);
    }
    end_group(others);
}

static int add_tls(void *end)
{
    weir_channel *channel = weir_embedded_channel(((pair_end *)end)->embedded);
    return weir_pipeline_add_first(weir_channel_pipeline(channel), "tls", &weir_tls_handler,
                                   &((pair_end *)end)->tls);
}

static void what_was_asked_for_before_tls_is_read_behind_the_handshake(void **state)
{
    pair both = { .server.first = &on_demand };
    char heard[16];
    (void)state;
    pair_begin(&both);
    weir_channel_read(weir_embedded_channel(both.server.embedded));
    weir_embedded_run(both.server.embedded);
    assert_int_equal(weir_embedded_call(both.server.embedded, add_tls, &both.server), 0);
    carry_what_is_asked_for(&both);
    assert_true(is_shaken(&both));
    weir_embedded_write_outbound(both.client.embedded, weir_buf_msg(weir_buf_from("hello", 5)));
    weir_embedded_flush(both.client.embedded);
    carry_what_is_asked_for(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "hello");
    pair_finish(&both);
}

static void who_does_not_wait_is_told_of_no_truncation(void **state)
{
    pair both = { .client.tls.close_timeout_ns = WEIR_OFF };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel_close(weir_embedded_channel(both.client.embedded), NULL);
    weir_embedded_run(both.client.embedded);
    assert_false(weir_channel_is_open(weir_embedded_channel(both.client.embedded)));
    assert_int_equal(weir_embedded_check(both.client.embedded), 0);
    pair_carry(&both);
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    pair_finish(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(the_handshake_reads_by_itself),
        weir_case(what_was_asked_for_early_is_read_behind_the_handshake),
        weir_case(no_more_is_read_than_was_asked_for),
        weir_case(what_was_asked_for_before_tls_is_read_behind_the_handshake),
        weir_case(who_does_not_wait_is_told_of_no_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
