/* SPDX-License-Identifier: MIT */
/* TLS in a pipeline: the handshake, bytes there and back, and how it ends. */
#include "tls/pair.h"

#include <weir/channel.h>

#include <errno.h>
#include <string.h>

/* The handshake -------------------------------------------------------------------------------- */

static const weir_tls_session *session_of(const pair_end *end)
{
    return weir_future_value(weir_tls_handshake(weir_embedded_channel(end->embedded)));
}

static void bytes_go_there_and_back(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    pair_say(&both, &both.client, "hello");
    pair_say(&both, &both.server, "and back");
    const weir_tls_session *client = session_of(&both.client), *server = session_of(&both.server);
    assert_int_equal(client->version, WEIR_TLS_1_3);
    assert_string_equal(client->cipher, server->cipher);
    assert_false(client->is_server);
    assert_true(server->is_server);
    assert_string_equal(server->host, "localhost");
    assert_non_null(client->peer);
    assert_true(client->peer->is_verified);
    assert_string_equal(client->peer->subject, "CN=localhost");
    assert_null(server->peer);
    pair_finish(&both);
}

static void however_few_bytes_come_at_a_time(void **state)
{
    (void)state;
    for (size_t most = 1; most <= 7; most++) {
        pair both = { .most = most };
        pair_begin(&both);
        pair_shake(&both);
        pair_say(&both, &both.client, "hello");
        pair_say(&both, &both.server, "and back");
        pair_finish(&both);
    }
}

static void the_older_version_works(void **state)
{
    weir_tls_config older = { .max_version = WEIR_TLS_1_2 };
    pair both = { .client.tls.context = pair_client_context(&older) };
    weir_tls_context *context = both.client.tls.context;
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    pair_say(&both, &both.client, "hello");
    assert_int_equal(session_of(&both.server)->version, WEIR_TLS_1_2);
    pair_finish(&both);
    weir_tls_context_release(context);
}

static void what_is_written_before_waits(void **state)
{
    pair both = { 0 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    weir_embedded_write_outbound(both.client.embedded, weir_buf_msg(weir_buf_from("early ", 6)));
    weir_embedded_write_outbound(both.client.embedded, weir_buf_msg(weir_buf_from("bird", 4)));
    weir_embedded_flush(both.client.embedded);
    pair_shake(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "early bird");
    pair_finish(&both);
}

/* The end -------------------------------------------------------------------------------------- */

static void a_close_is_told_and_answered(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *channel = weir_embedded_channel(both.client.embedded);
    weir_channel_close(channel, NULL);
    weir_embedded_run(both.client.embedded);
    assert_true(weir_channel_is_open(channel)); /* until the other side has answered */
    pair_carry(&both);
    assert_false(weir_channel_is_open(channel));
    assert_int_equal(weir_embedded_check(both.client.embedded), 0);
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    pair_finish(&both);
}

static void nobody_waits_for_ever(void **state)
{
    pair both = { .client.tls.close_ms = 300 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *channel = weir_embedded_channel(both.client.embedded);
    weir_channel_close(channel, NULL);
    weir_embedded_advance(both.client.embedded, WEIR_MS(299));
    assert_true(weir_channel_is_open(channel));
    weir_embedded_advance(both.client.embedded, WEIR_MS(1));
    assert_false(weir_channel_is_open(channel));
    pair_finish(&both);
}

static void an_end_without_close_notify_is_told(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_embedded_end_inbound(both.server.embedded, 0);
    pair_expect_error(&both.server, WEIR_ETLS_TRUNCATED);
    assert_false(weir_channel_is_open(weir_embedded_channel(both.server.embedded)));
    pair_finish(&both);
}

static void a_handshake_has_its_time(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    weir_embedded_advance(both.server.embedded, WEIR_MS(9999));
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    weir_embedded_advance(both.server.embedded, WEIR_MS(1));
    pair_expect_error(&both.server, -ETIMEDOUT);
    weir_future *future = weir_tls_handshake(weir_embedded_channel(both.server.embedded));
    assert_int_equal(weir_future_code(future), -ETIMEDOUT);
    pair_finish(&both);
}

/* What is no TLS ------------------------------------------------------------------------------- */

static void expect_refusal(const char *bytes, size_t length, int code)
{
    pair both = { 0 };
    pair_begin(&both);
    weir_embedded_write_inbound_bytes(both.server.embedded, bytes, length);
    pair_expect_error(&both.server, code);
    assert_false(weir_channel_is_open(weir_embedded_channel(both.server.embedded)));
    pair_finish(&both);
}

static void what_is_no_tls_is_refused(void **state)
{
    (void)state;
    expect_refusal("GET / HTTP/1.1\r\n", 16, WEIR_ETLS_HTTP);
    expect_refusal("hello", 5, WEIR_ETLS_PLAIN);
    expect_refusal("\x16\x03\x01\xff\xff", 5, WEIR_ETLS_RECORD);
}

static void an_alert_ends_it(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    weir_embedded_write_inbound_bytes(both.client.embedded, "\x15\x03\x03\x00\x02\x02\x28", 7);
    pair_expect_error(&both.client, WEIR_ETLS_ALERT);
    pair_finish(&both);
}

static void another_host_is_refused(void **state)
{
    pair both = { .client.tls.host = "example.org" };
    (void)state;
    pair_begin(&both);
    pair_carry(&both);
    pair_expect_error(&both.client, WEIR_ETLS_HOST);
    pair_expect_error(&both.server, WEIR_ETLS_ALERT);
    pair_finish(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(bytes_go_there_and_back),
        weir_case(however_few_bytes_come_at_a_time),
        weir_case(the_older_version_works),
        weir_case(what_is_written_before_waits),
        weir_case(a_close_is_told_and_answered),
        weir_case(nobody_waits_for_ever),
        weir_case(an_end_without_close_notify_is_told),
        weir_case(a_handshake_has_its_time),
        weir_case(what_is_no_tls_is_refused),
        weir_case(an_alert_ends_it),
        weir_case(another_host_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
