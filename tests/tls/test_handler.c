/* SPDX-License-Identifier: MIT */
/* TLS in a pipeline: the handshake, bytes there and back, and how it ends. */
#include "tls/notes.h"
#include "tls/raw.h"

#include <weir/channel.h>
#include <weir/delimiter.h>
#include <weir/flow_control.h>

#include <errno.h>
#include <stdio.h>
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
    pair both = { .client.tls.close_timeout_ns = WEIR_MS(300) };
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

/* What the handlers behind see ----------------------------------------------------------------- */

static void events_come_in_their_order(void **state)
{
    notes seen = { 0 };
    pair both = { .client = { .last = &noting, .last_arg = &seen } };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    pair_say(&both, &both.server, "hello");
    weir_channel_close(weir_embedded_channel(both.server.embedded), NULL);
    weir_embedded_run(both.server.embedded);
    pair_carry(&both);
    weir_embedded_end_inbound(both.client.embedded, 0);
    assert_string_equal(seen.text, "active session read inactive ");
    pair_finish(&both);
}

static void the_errors_of_others_do_not_end_a_handshake(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    weir_pipeline_fire_error(weir_channel_pipeline(weir_embedded_channel(both.server.embedded)),
                             -EILSEQ, "another's");
    weir_embedded_run(both.server.embedded);
    pair_expect_error(&both.server, -EILSEQ);
    pair_shake(&both);
    pair_say(&both, &both.client, "hello");
    pair_finish(&both);
}

/* Without what it needs ------------------------------------------------------------------------ */

/* What is behind TLS says a secret at once: it must not go out, and nobody may come in. */
static void expect_nothing_plain(const weir_tls *tls, int code)
{
    notes seen = { .says = "secret" };
    pair_end end = { .tls = *tls, .last = &noting, .last_arg = &seen };
    char sent[64];
    pair both = { .client = end };
    weir_embedded_config config = { .init = pair_init, .arg = &both.client };
    weir_error error;
    int made = weir_embedded_new(&both.client.embedded, &config, &error);
    if (made < 0) { /* the initializer was told */
        assert_int_equal(made, code);
        return;
    }
    assert_int_equal(weir_embedded_read_outbound_bytes(both.client.embedded, sent, sizeof sent), 0);
    assert_false(weir_channel_is_open(weir_embedded_channel(both.client.embedded)));
    assert_true(weir_embedded_take_error(both.client.embedded, NULL));
    weir_embedded_free(both.client.embedded);
}

static void without_tls_nothing_goes_out(void **state)
{
    weir_tls_context *context = pair_client_context(NULL);
    (void)state;
    expect_nothing_plain(&(weir_tls){ 0 }, -EINVAL);
    expect_nothing_plain(&(weir_tls){ .context = context }, -EINVAL);
    expect_nothing_plain(&(weir_tls){ .context = context, .host = "a", .handshake_timeout_ns = -2 },
                         -EINVAL);
    expect_nothing_plain(&(weir_tls){ .context = context, .host = "a", .close_timeout_ns = -2 },
                         -EINVAL);
    expect_nothing_plain(&(weir_tls){ .context = context, .host = ".a" }, -EINVAL);
    weir_tls_context_release(context);
}

/* Writes --------------------------------------------------------------------------------------- */

static weir_promise *write_text(pair_end *end, const char *text)
{
    return pair_write(end, text, strlen(text));
}

static void what_waits_is_bounded(void **state)
{
    pair both = { .client.tls.max_waiting_bytes = 10 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    weir_promise *first = write_text(&both.client, "12345678"),
                 *more = write_text(&both.client, "abc"), *last = write_text(&both.client, "90");
    assert_int_equal(pair_code_of(more), WEIR_ELIMIT);
    weir_embedded_flush(both.client.embedded);
    assert_false(weir_future_is_done(weir_promise_future(first)));
    pair_shake(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "1234567890");
    assert_int_equal(pair_code_of(first), 0);
    assert_int_equal(pair_code_of(last), 0);
    pair_finish(&both);
}

static void what_is_not_flushed_waits_on(void **state)
{
    pair both = { 0 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    weir_promise *promise = write_text(&both.client, "later");
    pair_shake(&both);
    assert_int_equal(pair_heard(&both.server, heard, sizeof heard), 0);
    weir_embedded_flush(both.client.embedded);
    pair_carry(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "later");
    assert_int_equal(pair_code_of(promise), 0);
    pair_finish(&both);
}

static void a_failed_handshake_ends_what_waits(void **state)
{
    pair both = { .client.tls.host = "example.org" };
    (void)state;
    pair_begin(&both);
    weir_promise *promise = write_text(&both.client, "secret");
    weir_promise *shut = weir_channel_promise(weir_embedded_channel(both.client.embedded));
    weir_embedded_flush(both.client.embedded);
    weir_channel_shutdown(weir_embedded_channel(both.client.embedded), shut);
    weir_embedded_run(both.client.embedded);
    assert_int_equal(pair_code_of(write_text(&both.client, "more")), -EPIPE);
    pair_carry(&both);
    assert_int_equal(pair_code_of(promise), WEIR_ETLS_HOST);
    assert_int_equal(pair_code_of(shut), WEIR_ETLS_HOST);
    pair_expect_error(&both.client, WEIR_ETLS_HOST);
    pair_expect_error(&both.server, WEIR_ETLS_ALERT);
    assert_int_equal(pair_code_of(write_text(&both.client, "more")), WEIR_ECLOSED);
    pair_finish(&both);
}

static void a_close_ends_what_waits(void **state)
{
    (void)state;
    for (int is_shaken = 0; is_shaken < 2; is_shaken++) {
        pair both = { 0 };
        pair_begin(&both);
        if (is_shaken)
            pair_shake(&both);
        weir_promise *promise = write_text(&both.client, "secret");
        weir_promise *closed = weir_channel_promise(weir_embedded_channel(both.client.embedded));
        weir_channel_close(weir_embedded_channel(both.client.embedded), closed);
        weir_embedded_run(both.client.embedded);
        assert_int_equal(pair_code_of(promise), WEIR_ECLOSED);
        assert_int_equal(pair_code_of(write_text(&both.client, "more")), WEIR_ECLOSED);
        pair_carry(&both);
        assert_int_equal(pair_code_of(closed), 0);
        weir_embedded_take_error(both.server.embedded, NULL);
        pair_finish(&both);
    }
}

static void what_is_no_buffer_is_refused(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *channel = weir_embedded_channel(both.client.embedded);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write(channel, &weir_event_input_closed, promise);
    weir_embedded_run(both.client.embedded);
    assert_int_equal(pair_code_of(promise), -EOPNOTSUPP);
    pair_finish(&both);
}

static void what_waits_makes_it_unwritable(void **state)
{
    pair both = { 0 };
    static char much[70000];
    (void)state;
    memset(much, 'x', sizeof much - 1);
    pair_begin(&both);
    weir_channel *channel = weir_embedded_channel(both.client.embedded);
    weir_promise *promise = write_text(&both.client, much);
    assert_false(weir_channel_is_writable(channel));
    weir_embedded_flush(both.client.embedded);
    assert_false(weir_channel_is_writable(channel));
    pair_shake(&both);
    assert_true(weir_channel_is_writable(channel));
    assert_int_equal(pair_code_of(promise), 0);
    /* A peer that takes nothing, behind the handshake. */
    while (weir_embedded_inbound_count(both.server.embedded) > 0)
        weir_msg_release(weir_embedded_read_inbound(both.server.embedded));
    weir_embedded_accept(both.client.embedded, 0);
    promise = write_text(&both.client, much);
    weir_embedded_flush(both.client.embedded);
    assert_false(weir_channel_is_writable(channel));
    weir_embedded_accept(both.client.embedded, SIZE_MAX);
    assert_true(weir_channel_is_writable(channel));
    assert_int_equal(pair_code_of(promise), 0);
    pair_finish(&both);
}

/* What waits for the handshake makes the channel unwritable, and the handshake waits for reads. */
static void much_that_waits_does_not_keep_the_handshake_from_reading(void **state)
{
    static const char much[70000];
    pair both = { 0 };
    (void)state;
    pair_begin_with(&both, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1);
    weir_channel *channel = weir_embedded_channel(both.server.embedded);
    weir_promise *promise = pair_write(&both.server, much, sizeof much);
    weir_embedded_flush(both.server.embedded);
    assert_false(weir_channel_is_writable(channel));
    assert_true(weir_embedded_is_reading(both.server.embedded));
    weir_hold hold = { .needs_reads = false };
    weir_channel_set_write_hold(channel, &hold, true);
    weir_embedded_run(both.server.embedded);
    assert_false(weir_embedded_is_reading(both.server.embedded)); /* others still count */
    weir_channel_set_write_hold(channel, &hold, false);
    weir_embedded_run(both.server.embedded);
    assert_true(weir_embedded_is_reading(both.server.embedded));
    pair_shake(&both);
    assert_int_equal(pair_code_of(promise), 0);
    assert_true(weir_channel_is_writable(channel));
    pair_finish(&both);
}

/* Reading by hand ------------------------------------------------------------------------------ */

static void the_handshake_reads_by_itself(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin_with(&both, WEIR_OPTION_AUTO_READ, 0);
    weir_promise *promise = write_text(&both.client, "hello");
    weir_embedded_flush(both.client.embedded);
    for (int i = 0; i < 10; i++) { /* only what is asked for gets there */
        if (weir_embedded_is_reading(both.server.embedded))
            pair_carry_to(&both, &both.server);
        if (weir_embedded_is_reading(both.client.embedded))
            pair_carry_to(&both, &both.client);
    }
    assert_int_equal(
        weir_future_code(weir_tls_handshake(weir_embedded_channel(both.client.embedded))), 0);
    assert_int_equal(pair_code_of(promise), 0);
    pair_finish(&both);
}

/* The end -------------------------------------------------------------------------------------- */

static void ask_added(weir_ctx *ctx)
{
    notes *self = weir_ctx_arg(ctx);
    if (weir_ctx_is_input_closed(ctx))
        strcat(self->text, "closed ");
}

/* A proxy adds its handler when the connection to its upstream is there. The peer may have said
 * everything before that; flow control keeps its bytes, and with them the end. */
static void a_handler_added_after_close_notify_finds_the_input_closed(void **state)
{
    weir_handler_type asking = noting;
    (void)state;
    asking.added = ask_added;
    for (int has_bytes = 0; has_bytes < 2; has_bytes++) {
        notes seen = { 0 };
        pair both = { .client.allows_half_closure = true,
                      .server = { .allows_half_closure = true,
                                  .last = &weir_flow_control_handler,
                                  .has_option = true,
                                  .option = { WEIR_OPTION_AUTO_READ, false } } };
        pair_begin(&both);
        pair_shake(&both);
        weir_channel *server = weir_embedded_channel(both.server.embedded);
        if (has_bytes)
            weir_promise_release(write_text(&both.client, "all there is"));
        weir_channel_shutdown(weir_embedded_channel(both.client.embedded), NULL);
        weir_embedded_run(both.client.embedded);
        pair_carry(&both);
        assert_int_equal(
            weir_pipeline_add_last(weir_channel_pipeline(server), "asking", &asking, &seen), 0);
        weir_embedded_run(both.server.embedded);
        assert_string_equal(seen.text, has_bytes ? "" : "closed ");
        assert_false(weir_channel_is_input_closed(server)); /* TCP has no FIN yet */
        weir_channel_read(server);
        weir_embedded_run(both.server.embedded);
        assert_string_equal(seen.text, has_bytes ? "read input_closed " : "closed ");
        char heard[64];
        pair_heard(&both.server, heard, sizeof heard);
        assert_string_equal(heard, has_bytes ? "all there is" : "");
        pair_finish(&both);
    }
}

static void one_direction_ends_before_the_other(void **state)
{
    notes seen = { 0 };
    pair both = { .client.allows_half_closure = true,
                  .server = { .allows_half_closure = true, .last = &noting, .last_arg = &seen } };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *client = weir_embedded_channel(both.client.embedded);
    weir_promise *shut = weir_channel_promise(client);
    weir_channel_shutdown(client, shut);
    weir_embedded_run(both.client.embedded);
    assert_int_equal(pair_code_of(shut), 0);
    assert_true(weir_embedded_is_output_shut(both.client.embedded));
    assert_int_equal(pair_code_of(write_text(&both.client, "more")), -EPIPE);
    pair_carry(&both);
    weir_embedded_end_inbound(both.server.embedded, 0); /* the FIN behind it */
    assert_string_equal(seen.text, "active session input_closed ");
    pair_say(&both, &both.server, "still here");
    weir_channel_shutdown(weir_embedded_channel(both.server.embedded), NULL);
    weir_embedded_run(both.server.embedded);
    pair_carry(&both);
    weir_embedded_end_inbound(both.client.embedded, 0);
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    assert_int_equal(weir_embedded_check(both.client.embedded), 0);
    assert_false(weir_channel_is_open(client));
    pair_finish(&both);
}

static void a_shutdown_waits_for_the_handshake(void **state)
{
    pair both = { 0 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    weir_promise *promise = write_text(&both.client, "last words");
    weir_channel *client = weir_embedded_channel(both.client.embedded);
    weir_promise *shut = weir_channel_promise(client);
    weir_embedded_flush(both.client.embedded);
    weir_channel_shutdown(client, shut);
    weir_embedded_run(both.client.embedded);
    assert_false(weir_future_is_done(weir_promise_future(shut)));
    pair_carry(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "last words");
    assert_int_equal(pair_code_of(promise), 0);
    assert_int_equal(pair_code_of(shut), 0);
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    pair_finish(&both);
}

static void truncation_is_told_with_half_closure_too(void **state)
{
    notes seen = { 0 };
    pair both = { .server = { .allows_half_closure = true, .last = &noting, .last_arg = &seen } };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_embedded_end_inbound(both.server.embedded, 0);
    assert_string_equal(seen.text, "active session WEIR_ETLS_TRUNCATED inactive ");
    pair_expect_error(&both.server, WEIR_ETLS_TRUNCATED);
    pair_finish(&both);
}

/* Behind close_notify and half a record. */
static void a_record_that_is_cut_off_is_truncation(void **state)
{
    pair both = { 0 };
    char bytes[512];
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_embedded_write_outbound(both.client.embedded, weir_buf_msg(weir_buf_from("hello", 5)));
    weir_embedded_flush(both.client.embedded);
    size_t length = weir_embedded_read_outbound_bytes(both.client.embedded, bytes, sizeof bytes);
    weir_embedded_write_inbound_bytes(both.server.embedded, bytes, length - 1);
    weir_embedded_end_inbound(both.server.embedded, 0);
    pair_expect_error(&both.server, WEIR_ETLS_TRUNCATED);
    pair_finish(&both);
}

static void nothing_is_heard_behind_a_close(void **state)
{
    pair both = { 0 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel_close(weir_embedded_channel(both.client.embedded), NULL);
    weir_embedded_write_outbound(both.server.embedded, weir_buf_msg(weir_buf_from("hello", 5)));
    weir_embedded_flush(both.server.embedded);
    pair_carry(&both);
    assert_int_equal(pair_heard(&both.client, heard, sizeof heard), 0);
    assert_false(weir_channel_is_open(weir_embedded_channel(both.client.embedded)));
    assert_int_equal(weir_embedded_check(both.client.embedded), 0);
    pair_finish(&both);
}

static void whoever_closes_twice_does_not_wait(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *client = weir_embedded_channel(both.client.embedded);
    weir_promise *first = weir_channel_promise(client), *second = weir_channel_promise(client);
    weir_channel_close(client, first);
    weir_embedded_run(both.client.embedded);
    assert_true(weir_channel_is_open(client));
    weir_channel_close(client, second);
    weir_embedded_run(both.client.embedded);
    assert_false(weir_channel_is_open(client));
    assert_int_equal(pair_code_of(first), 0);
    assert_int_equal(pair_code_of(second), 0);
    pair_finish(&both);
}

/* Writes after the close were rejected, so it cannot say that everything was sent. */
static void shutdown_fails_while_a_close_waits(void **state)
{
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *client = weir_embedded_channel(both.client.embedded);
    weir_promise *written = weir_channel_promise(client), *shut = weir_channel_promise(client);
    weir_channel_close(client, NULL);
    weir_channel_write(client, weir_buf_msg(weir_buf_from("late", 4)), written);
    weir_channel_shutdown(client, shut);
    weir_embedded_run(both.client.embedded);
    assert_true(weir_channel_is_open(client));
    assert_int_equal(pair_code_of(written), WEIR_ECLOSED);
    assert_int_equal(pair_code_of(shut), WEIR_ECLOSED);
    pair_finish(&both);
}

static void waiting_can_be_off(void **state)
{
    pair both = { .client.tls = { .close_timeout_ns = WEIR_OFF,
                                  .handshake_timeout_ns = WEIR_OFF } };
    (void)state;
    pair_begin(&both);
    weir_embedded_advance(both.client.embedded, WEIR_SECONDS(3600));
    pair_shake(&both);
    weir_embedded_close(both.client.embedded);
    assert_false(weir_channel_is_open(weir_embedded_channel(both.client.embedded)));
    pair_carry(&both);
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    pair_finish(&both);
}

/* Removal -------------------------------------------------------------------------------------- */

static int remove_tls(void *arg)
{
    return weir_pipeline_remove(weir_channel_pipeline(arg), "tls", NULL);
}

static void removed_it_says_goodbye_and_lets_everything_pass(void **state)
{
    pair both = { .client.allows_half_closure = true, .server.allows_half_closure = true };
    char heard[64];
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_promise *promise = write_text(&both.client, "sealed");
    assert_int_equal(weir_embedded_call(both.client.embedded, remove_tls,
                                        weir_embedded_channel(both.client.embedded)),
                     0);
    assert_int_equal(pair_code_of(promise), 0);
    pair_carry(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "sealed");
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    assert_int_equal(pair_code_of(write_text(&both.client, "plain")), -EINPROGRESS);
    weir_embedded_flush(both.client.embedded);
    assert_int_equal(weir_embedded_read_outbound_bytes(both.client.embedded, heard, sizeof heard),
                     5);
    assert_memory_equal(heard, "plain", 5);
    pair_finish(&both);
}

static void removed_early_nothing_that_waits_goes_out(void **state)
{
    pair both = { 0 };
    char sent[4096];
    (void)state;
    pair_begin(&both);
    weir_promise *promise = write_text(&both.client, "secret");
    weir_embedded_flush(both.client.embedded);
    weir_embedded_call(both.client.embedded, remove_tls,
                       weir_embedded_channel(both.client.embedded));
    size_t length = weir_embedded_read_outbound_bytes(both.client.embedded, sent, sizeof sent);
    assert_null(memmem(sent, length, "secret", 6));
    assert_int_equal(pair_code_of(promise), WEIR_ECLOSED);
    assert_int_equal(
        weir_future_code(weir_tls_handshake(weir_embedded_channel(both.client.embedded))),
        WEIR_ECLOSED);
    pair_finish(&both);
}

static void leave(weir_ctx *ctx, const weir_tls_session *session)
{
    (void)session;
    weir_pipeline_remove(weir_ctx_pipeline(ctx), "tls", NULL);
}

static void close_it(weir_ctx *ctx, const weir_tls_session *session)
{
    (void)session;
    weir_ctx_close(ctx, NULL);
}

/* What waited goes first, encrypted, when the handler goes, and not when all is closed; both ways
 * the other side hears that this is the end. */
static void it_can_go_when_it_is_done(void **state)
{
    void (*const ways[])(weir_ctx *, const weir_tls_session *) = { leave, close_it };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        notes seen = { .on_session = ways[i] }, heard = { 0 };
        pair both = { .client = { .last = &noting, .last_arg = &seen },
                      .server = {
                          .last = &noting, .last_arg = &heard, .allows_half_closure = true } };
        char text[16];
        pair_begin(&both);
        weir_promise *promise = write_text(&both.client, "early");
        weir_embedded_flush(both.client.embedded);
        pair_carry(&both);
        weir_embedded_run(both.client.embedded);
        assert_int_equal(pair_code_of(promise), i == 0 ? 0 : WEIR_ECLOSED);
        pair_heard(&both.server, text, sizeof text);
        assert_string_equal(text, i == 0 ? "early" : "");
        assert_string_equal(heard.text, i == 0 ? "active session read input_closed "
                                               : "active session input_closed ");
        bool has_tls =
            weir_pipeline_find(weir_channel_pipeline(weir_embedded_channel(both.client.embedded)),
                               "tls", NULL) == 0;
        assert_int_equal(has_tls, i == 1);
        assert_int_equal(weir_embedded_check(both.server.embedded), 0);
        pair_finish(&both);
    }
}

/* STARTTLS ------------------------------------------------------------------------------------- */

typedef struct starter {
    weir_tls tls;
    int lines;
} starter;

/* The first line asks for TLS. */
static void starter_on_read(weir_ctx *ctx, weir_msg *msg)
{
    starter *self = weir_ctx_arg(ctx);
    if (self->lines++ > 0) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    weir_msg_release(msg);
    weir_ctx_write_and_flush(ctx, weir_buf_msg(weir_buf_from("go\n", 3)), NULL);
    weir_pipeline_add_first(weir_ctx_pipeline(ctx), "tls", &weir_tls_handler, &self->tls);
}

static const weir_handler_type starting = { .name = "starting", .on_read = starter_on_read };

static int add_starter(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    static const weir_delimited lines = { .max_length = 100 };
    int code = weir_pipeline_add_last(pipeline, "lines", &weir_line_decoder, (void *)&lines);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "starter", &starting, arg);
}

static void tls_can_start_in_the_middle(void **state)
{
    starter server = { .tls.context = pair_server_context(NULL) };
    weir_embedded_config config = { .init = add_starter, .arg = &server };
    static raw client;
    char heard[16];
    weir_embedded *embedded;
    (void)state;
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_embedded_write_inbound_bytes(embedded, "STARTTLS\n", 9);
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, heard, sizeof heard), 3);
    raw_begin(&client, embedded, false, 0);
    raw_carry(&client);
    assert_true(SSL_is_init_finished(client.ssl));
    raw_say(&client, "hello\nwor");
    raw_carry(&client);
    raw_say(&client, "ld\n");
    raw_carry(&client);
    assert_int_equal(weir_embedded_inbound_count(embedded), 2);
    raw_end(&client);
    assert_int_equal(weir_embedded_check(embedded), 0);
    weir_embedded_free(embedded);
    weir_tls_context_release(server.tls.context);
}

static void starttls_fails_with_bytes_from_before(void **state)
{
    static const char *const inputs[] = { "STARTTLS\nRSET\n", "STARTTLS\nR", "STARTTLS\n\n" };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (size_t cut = 1; cut <= strlen(inputs[i]) - 9; cut++) {
            starter server = { .tls.context = pair_server_context(NULL) };
            weir_embedded_config config = { .init = add_starter, .arg = &server };
            weir_embedded *embedded;
            weir_error error = { 0 };
            assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
            weir_embedded_write_inbound_bytes(embedded, inputs[i], 8);
            weir_embedded_write_inbound_bytes(embedded, inputs[i] + 8, 1 + cut);
            assert_true(weir_embedded_take_error(embedded, &error));
            assert_int_equal(error.code, WEIR_EHELD);
            assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
            assert_int_equal(weir_embedded_inbound_count(embedded), 0);
            weir_embedded_free(embedded);
            weir_tls_context_release(server.tls.context);
        }
    }
}

/* Enemies -------------------------------------------------------------------------------------- */

static const uint8_t *last_record(raw *enemy, size_t *length)
{
    static uint8_t bytes[1 << 15];
    int got = BIO_read(SSL_get_wbio(enemy->ssl), bytes, sizeof bytes);
    assert_true(got > 5);
    *length = (size_t)got;
    return bytes;
}

typedef struct duel {
    pair_end server;
    raw enemy;
    notes seen;
} duel;

static duel *duel_begin(int version)
{
    static duel self;
    memset(&self, 0, sizeof self);
    self.server = (pair_end){ .tls.context = pair_server_context(NULL),
                              .last = &noting,
                              .last_arg = &self.seen };
    weir_embedded_config config = { .init = pair_init, .arg = &self.server };
    assert_int_equal(weir_embedded_new(&self.server.embedded, &config, NULL), 0);
    raw_begin(&self.enemy, self.server.embedded, false, version);
    raw_carry(&self.enemy);
    assert_true(SSL_is_init_finished(self.enemy.ssl));
    return &self;
}

static void duel_end(duel *self, int code)
{
    if (code < 0) {
        pair_expect_error(&self->server, code);
        assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
    }
    assert_int_equal(weir_embedded_check(self->server.embedded), 0);
    raw_end(&self->enemy);
    weir_embedded_free(self->server.embedded);
    weir_tls_context_release(self->server.tls.context);
}

static void a_garbled_record_is_refused(void **state)
{
    static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };
    (void)state;
    for (size_t v = 0; v < 2; v++) {
        for (size_t at = 0; at < 40; at += 3) {
            duel *self = duel_begin(versions[v]);
            size_t length;
            raw_say(&self->enemy, "hello, hello, hello, hello, hello");
            uint8_t *bytes = (uint8_t *)(uintptr_t)last_record(&self->enemy, &length);
            if (at == 3 || at < 3) { /* the header */
                duel_end(self, 0);
                continue;
            }
            bytes[at % length] ^= 0x40;
            weir_embedded_write_inbound_bytes(self->server.embedded, bytes, length);
            if (at == 4)
                weir_embedded_write_inbound_bytes(self->server.embedded, bytes, length);
            duel_end(self, WEIR_ETLS_RECORD);
        }
    }
}

/* Good bytes come out before what is wrong behind them in the same read. */
static void what_was_good_comes_before_what_was_not(void **state)
{
    duel *self = duel_begin(0);
    uint8_t both[512];
    size_t length, more;
    char heard[64];
    (void)state;
    raw_say(&self->enemy, "good");
    memcpy(both, last_record(&self->enemy, &length), 64);
    raw_say(&self->enemy, "bad");
    memcpy(both + length, last_record(&self->enemy, &more), 64);
    both[length + more - 1] ^= 1;
    weir_embedded_write_inbound_bytes(self->server.embedded, both, length + more);
    pair_heard(&self->server, heard, sizeof heard);
    assert_string_equal(heard, "good");
    duel_end(self, WEIR_ETLS_RECORD);
}

static int last_alert;

static void note_alert(const SSL *ssl, int where, int value)
{
    (void)ssl;
    if (where & SSL_CB_READ && where & SSL_CB_ALERT)
        last_alert = value & 0xff;
}

static void the_other_side_hears_that_a_record_is_too_long(void **state)
{
    static const uint8_t header[] = { 23, 3, 3, 0xff, 0xff };
    const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };
    weir_error error;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        duel *self = duel_begin(versions[i]);
        SSL_set_info_callback(self->enemy.ssl, note_alert);
        last_alert = 0;
        weir_embedded_write_inbound_bytes(self->server.embedded, header, sizeof header);
        raw_carry(&self->enemy);
        assert_int_equal(last_alert, SSL_AD_RECORD_OVERFLOW);
        assert_true(weir_embedded_take_error(self->server.embedded, &error));
        assert_int_equal(error.code, WEIR_ETLS_RECORD);
        assert_non_null(strstr(error.message, "65535 bytes"));
        assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
        duel_end(self, 0);
    }
    pair both = { 0 }; /* and in the handshake */
    uint8_t alert[64];
    pair_begin(&both);
    pair_carry_to(&both, &both.server);
    pair_carry_to(&both, &both.client);
    weir_embedded_read_outbound_bytes(both.server.embedded, alert, sizeof alert);
    weir_embedded_write_inbound_bytes(both.server.embedded, header, sizeof header);
    assert_true(weir_embedded_read_outbound_bytes(both.server.embedded, alert, sizeof alert) > 5);
    pair_expect_error(&both.server, WEIR_ETLS_RECORD);
    weir_embedded_take_error(both.client.embedded, NULL);
    pair_finish(&both);
}

/* That something was wrong is told also without memory for the words: it is no good end. */
static void what_was_not_good_is_told_without_memory(void **state)
{
    (void)state;
    unsigned count = 1;
    for (unsigned nth = 1; nth <= count; nth++) {
        duel *self = duel_begin(0);
        uint8_t both[512];
        size_t length, more;
        char heard[64];
        raw_say(&self->enemy, "good");
        memcpy(both, last_record(&self->enemy, &length), 64);
        raw_say(&self->enemy, "bad");
        memcpy(both + length, last_record(&self->enemy, &more), 64);
        both[length + more - 1] ^= 1;
        weir_buf *buf = weir_buf_from(both, length + more);
        harness_log_begin(WEIR_LOG_ERROR);
        harness_fail_nth("alloc", nth, -ENOMEM);
        weir_embedded_write_inbound(self->server.embedded, &buf->msg);
        count = harness_fail_end() + 1; /* and once with all of it there */
        harness_log_end();
        weir_embedded_advance(self->server.embedded, WEIR_SECONDS(20));
        if (strstr(self->seen.text, "WEIR_ETLS_RECORD inactive") == NULL &&
            strstr(self->seen.text, "ENOMEM inactive") == NULL)
            fail_msg("%u: %s", nth, self->seen.text);
        assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
        pair_heard(&self->server, heard, sizeof heard);
        while (weir_embedded_take_error(self->server.embedded, NULL))
            continue;
        duel_end(self, 0);
    }
}

static void renegotiation_is_refused(void **state)
{
    duel *self = duel_begin(TLS1_2_VERSION);
    (void)state;
    SSL_renegotiate(self->enemy.ssl);
    SSL_do_handshake(self->enemy.ssl);
    assert_true(raw_send(&self->enemy) > 0);
    duel_end(self, WEIR_ETLS_RENEGOTIATION);
}

static void a_server_cannot_ask_for_it_either(void **state)
{
    pair_end client = { .tls = { .context = pair_client_context(NULL), .host = "localhost" } };
    weir_embedded_config config = { .init = pair_init, .arg = &client };
    static raw server;
    (void)state;
    assert_int_equal(weir_embedded_new(&client.embedded, &config, NULL), 0);
    raw_begin(&server, client.embedded, true, TLS1_2_VERSION);
    raw_carry(&server);
    SSL_renegotiate(server.ssl);
    SSL_do_handshake(server.ssl);
    assert_true(raw_send(&server) > 0);
    pair_expect_error(&client, WEIR_ETLS_RENEGOTIATION);
    raw_end(&server);
    weir_embedded_free(client.embedded);
    weir_tls_context_release(client.tls.context);
}

static void a_fatal_alert_ends_an_open_connection(void **state)
{
    duel *self = duel_begin(TLS1_2_VERSION);
    size_t length;
    (void)state;
    /* As the other side would refuse what it got. */
    weir_embedded_write_outbound(self->server.embedded, weir_buf_msg(weir_buf_from("hello", 5)));
    weir_embedded_flush(self->server.embedded);
    uint8_t bytes[128];
    length = weir_embedded_read_outbound_bytes(self->server.embedded, bytes, sizeof bytes);
    bytes[length - 1] ^= 1;
    BIO_write(SSL_get_rbio(self->enemy.ssl), bytes, (int)length);
    SSL_read(self->enemy.ssl, bytes, 1);
    assert_true(raw_send(&self->enemy) > 0);
    duel_end(self, WEIR_ETLS_ALERT);
}

static void empty_records_and_warnings_do_not_go_on_for_ever(void **state)
{
    duel *self = duel_begin(0);
    uint8_t bytes[4096];
    size_t length = 0;
    (void)state;
    for (int i = 0; i < 600; i++, length += 6) /* ChangeCipherSpec, which 1.3 ignores */
        memcpy(bytes + length, "\x14\x03\x03\x00\x01\x01", 6);
    weir_embedded_write_inbound_bytes(self->server.embedded, bytes, length);
    assert_true(weir_embedded_take_error(self->server.embedded, NULL));
    assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
    duel_end(self, 0);
}

/* Each asks for an answer. */
static void answers_to_key_updates_are_bounded(void **state)
{
    duel *self = duel_begin(TLS1_3_VERSION);
    weir_channel *channel = weir_embedded_channel(self->server.embedded);
    int64_t most = 0;
    size_t count = 0;
    (void)state;
    weir_channel_get_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, &most);
    for (; count < 100; count++) {
        SSL_key_update(self->enemy.ssl, SSL_KEY_UPDATE_REQUESTED);
        SSL_do_handshake(self->enemy.ssl);
        raw_send(&self->enemy);
    }
    raw_carry(&self->enemy);
    raw_say(&self->enemy, "still in step");
    raw_carry(&self->enemy);
    char heard[64];
    pair_heard(&self->server, heard, sizeof heard);
    assert_string_equal(heard, "still in step");
    weir_embedded_write_outbound(self->server.embedded, weir_buf_msg(weir_buf_from("yes", 3)));
    weir_embedded_flush(self->server.embedded);
    raw_carry(&self->enemy);
    assert_string_equal(self->enemy.heard, "yes");
    /* Nobody takes the answers: then no more is read, until they are taken, whatever else there is
     * against writing. */
    weir_hold hold = { .needs_reads = false };
    for (int i = 0; i < 2; i++) {
        weir_channel_set_write_hold(channel, &hold, i == 1);
        weir_embedded_run(self->server.embedded);
        weir_embedded_accept(self->server.embedded, 0);
        for (count = 0; count < 20000 && weir_embedded_is_reading(self->server.embedded); count++) {
            SSL_key_update(self->enemy.ssl, SSL_KEY_UPDATE_REQUESTED);
            SSL_do_handshake(self->enemy.ssl);
            raw_send(&self->enemy);
        }
        assert_true(count < 20000);
        weir_embedded_accept(self->server.embedded, SIZE_MAX);
        assert_true(weir_embedded_is_reading(self->server.embedded));
    }
    duel_end(self, 0);
}

/* Behind the own close_notify nothing may be sent, whatever the other side asks for. */
static void a_key_update_behind_the_end_is_not_answered(void **state)
{
    duel *self = duel_begin(TLS1_3_VERSION);
    (void)state;
    weir_channel *channel = weir_embedded_channel(self->server.embedded);
    weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1, NULL);
    weir_channel_shutdown(channel, NULL);
    weir_embedded_run(self->server.embedded);
    SSL_key_update(self->enemy.ssl, SSL_KEY_UPDATE_REQUESTED);
    raw_say(&self->enemy, "hello");
    raw_send(&self->enemy);
    char heard[64];
    pair_heard(&self->server, heard, sizeof heard);
    assert_string_equal(heard, "hello");
    assert_int_equal(weir_embedded_check(self->server.embedded), 0);
    assert_true(weir_channel_is_open(channel));
    duel_end(self, 0);
}

static void early_data_is_not_offered(void **state)
{
    duel *self = duel_begin(TLS1_3_VERSION);
    (void)state;
    SSL_SESSION *session = SSL_get1_session(self->enemy.ssl);
    assert_int_equal(SSL_SESSION_get_max_early_data(session), 0);
    SSL_SESSION_free(session);
    duel_end(self, 0);
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
        weir_case(events_come_in_their_order),
        weir_case(the_errors_of_others_do_not_end_a_handshake),
        weir_case(without_tls_nothing_goes_out),
        weir_case(what_waits_is_bounded),
        weir_case(what_is_not_flushed_waits_on),
        weir_case(a_failed_handshake_ends_what_waits),
        weir_case(a_close_ends_what_waits),
        weir_case(what_is_no_buffer_is_refused),
        weir_case(what_waits_makes_it_unwritable),
        weir_case(much_that_waits_does_not_keep_the_handshake_from_reading),
        weir_case(the_handshake_reads_by_itself),
        weir_case(a_handler_added_after_close_notify_finds_the_input_closed),
        weir_case(one_direction_ends_before_the_other),
        weir_case(a_shutdown_waits_for_the_handshake),
        weir_case(truncation_is_told_with_half_closure_too),
        weir_case(a_record_that_is_cut_off_is_truncation),
        weir_case(nothing_is_heard_behind_a_close),
        weir_case(whoever_closes_twice_does_not_wait),
        weir_case(shutdown_fails_while_a_close_waits),
        weir_case(waiting_can_be_off),
        weir_case(removed_it_says_goodbye_and_lets_everything_pass),
        weir_case(removed_early_nothing_that_waits_goes_out),
        weir_case(it_can_go_when_it_is_done),
        weir_case(tls_can_start_in_the_middle),
        weir_case(starttls_fails_with_bytes_from_before),
        weir_case(a_garbled_record_is_refused),
        weir_case(what_was_good_comes_before_what_was_not),
        weir_case(the_other_side_hears_that_a_record_is_too_long),
        weir_case(what_was_not_good_is_told_without_memory),
        weir_case(renegotiation_is_refused),
        weir_case(a_server_cannot_ask_for_it_either),
        weir_case(a_fatal_alert_ends_an_open_connection),
        weir_case(empty_records_and_warnings_do_not_go_on_for_ever),
        weir_case(answers_to_key_updates_are_bounded),
        weir_case(a_key_update_behind_the_end_is_not_answered),
        weir_case(early_data_is_not_offered),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
