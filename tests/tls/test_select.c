/* SPDX-License-Identifier: MIT */
/* The pipeline by the protocol that was agreed on, and plain text beside TLS. */
#include "tls/raw.h"

#include <weir/tls_select.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What the handlers behind see, in a text. */
typedef struct notes {
    char text[512];
} notes;

static void note(weir_ctx *ctx, const char *text)
{
    notes *self = weir_ctx_arg(ctx);
    size_t length = strlen(self->text);
    snprintf(self->text + length, sizeof self->text - length, "%s ", text);
}

static void notes_on_active(weir_ctx *ctx)
{
    note(ctx, "active");
    weir_ctx_fire_active(ctx);
}

static void notes_on_inactive(weir_ctx *ctx)
{
    note(ctx, "inactive");
    weir_ctx_fire_inactive(ctx);
}

static void notes_on_read(weir_ctx *ctx, weir_msg *msg)
{
    note(ctx, "read");
    weir_ctx_fire_read(ctx, msg);
}

static void notes_on_event(weir_ctx *ctx, weir_msg *event)
{
    note(ctx, weir_tls_session_from(event) != NULL ? "session"
              : event == &weir_event_input_closed  ? "input_closed"
                                                   : "event");
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type noting = { .name = "noting",
                                          .on_active = notes_on_active,
                                          .on_inactive = notes_on_inactive,
                                          .on_read = notes_on_read,
                                          .on_event = notes_on_event };

/* By protocol ---------------------------------------------------------------------------------- */

static notes of_protocol;

static int add_noting(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), arg, &noting, &of_protocol);
}

static int refuse(weir_channel *channel, void *arg)
{
    (void)channel, (void)arg;
    return -EPERM;
}

static void unwilling_added(weir_ctx *ctx)
{
    weir_ctx_fail(ctx, -EPROTO, "cannot be added");
}

static const weir_handler_type unwilling = { .name = "unwilling", .added = unwilling_added };

static int ignore_failure(weir_channel *channel, void *arg)
{
    weir_pipeline_add_last(weir_channel_pipeline(channel), "filter", &unwilling, NULL);
    return add_noting(channel, arg);
}

static const weir_tls_protocol list[] = {
    { "h2", add_noting, (char *)"h2 handler" },
    { "smtp", refuse, NULL },
    { "imap", ignore_failure, (char *)"imap handler" },
    { NULL, add_noting, (char *)"plain handler" },
};
static const weir_tls_protocols known = { list, 4 }, fewer = { list, 3 };

static void expect_protocol(const char *name, const weir_tls_protocols *protocols,
                            const char *handler, int code)
{
    const char *offered[] = { name, NULL };
    weir_tls_config config = { .alpn = offered };
    pair both = { .server = { .last = &weir_tls_protocol_handler,
                              .last_arg = (void *)protocols,
                              .tls.context = pair_server_context(&config) },
                  .client.tls.context = pair_client_context(&config) };
    weir_tls_context *contexts[] = { both.server.tls.context, both.client.tls.context };
    char names[256];
    of_protocol = (notes){ 0 };
    pair_begin(&both);
    pair_carry(&both);
    if (code < 0) {
        pair_expect_error(&both.server, code);
        assert_false(weir_channel_is_open(weir_embedded_channel(both.server.embedded)));
        assert_null(strstr(of_protocol.text, "session"));
    } else {
        weir_pipeline_names(weir_channel_pipeline(weir_embedded_channel(both.server.embedded)),
                            names, sizeof names);
        assert_non_null(strstr(names, handler));
        assert_null(strstr(names, "last")); /* which has gone */
        pair_say(&both, &both.client, "hello");
        assert_string_equal(of_protocol.text, "session read ");
    }
    pair_finish(&both);
    weir_tls_context_release(contexts[0]);
    weir_tls_context_release(contexts[1]);
}

static void the_protocol_makes_up_the_pipeline(void **state)
{
    (void)state;
    expect_protocol("h2", &known, "h2 handler", 0);
    expect_protocol(NULL, &known, "plain handler", 0);
    expect_protocol(NULL, &fewer, NULL, -EPROTONOSUPPORT);
    expect_protocol("spdy", &known, NULL, -EPROTONOSUPPORT);
    expect_protocol("smtp", &known, NULL, -EPERM);
    expect_protocol("imap", &known, NULL, -EPROTO);
    expect_protocol("h2", NULL, NULL, -EPROTONOSUPPORT);
}

/* TLS or not ----------------------------------------------------------------------------------- */

static weir_embedded *optional_open(pair_end *end, notes *seen)
{
    end->tls.context = pair_server_context(NULL);
    end->first = &weir_tls_optional_handler;
    end->first_arg = &end->tls;
    end->last = &noting;
    end->last_arg = seen;
    weir_embedded_config config = { .init = pair_init, .arg = end };
    assert_int_equal(weir_embedded_new(&end->embedded, &config, NULL), 0);
    assert_string_equal(seen->text, "");
    return end->embedded;
}

static weir_embedded *optional_begin(pair_end *end, notes *seen, bool half)
{
    *end = (pair_end){ .allows_half_closure = half };
    return optional_open(end, seen);
}

static weir_embedded *optional_begin_how(pair_end *end, notes *seen, int64_t handshake_timeout_ns,
                                         bool is_auto_read)
{
    *end = (pair_end){ .tls.handshake_timeout_ns = handshake_timeout_ns,
                       .option = { WEIR_OPTION_AUTO_READ, is_auto_read },
                       .has_option = true };
    return optional_open(end, seen);
}

static void optional_end(pair_end *end)
{
    weir_embedded_free(end->embedded);
    weir_tls_context_release(end->tls.context);
}

static void tls_is_recognised(void **state)
{
    notes seen = { 0 };
    pair_end end;
    static raw client;
    (void)state;
    weir_embedded *embedded = optional_begin(&end, &seen, false);
    raw_begin(&client, embedded, false, 0);
    raw_carry(&client);
    assert_true(SSL_is_init_finished(client.ssl));
    raw_say(&client, "hello");
    raw_carry(&client);
    char heard[16];
    pair_heard(&end, heard, sizeof heard);
    assert_string_equal(heard, "hello");
    assert_string_equal(seen.text, "active session read ");
    weir_embedded_close(embedded);
    raw_end(&client);
    optional_end(&end);
}

static void plain_text_passes(void **state)
{
    notes seen = { 0 };
    pair_end end;
    char heard[16];
    (void)state;
    weir_embedded *embedded = optional_begin(&end, &seen, false);
    weir_embedded_write_inbound_bytes(embedded, "", 0); /* says nothing yet */
    assert_string_equal(seen.text, "");
    weir_embedded_write_inbound_bytes(embedded, "G", 1);
    weir_embedded_write_inbound_bytes(embedded, "ET", 2);
    pair_heard(&end, heard, sizeof heard);
    assert_string_equal(heard, "GET");
    assert_null(weir_tls_handshake(weir_embedded_channel(embedded)));
    weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("ok", 2)));
    weir_embedded_flush(embedded);
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, heard, sizeof heard), 2);
    weir_embedded_close(embedded);
    assert_string_equal(seen.text, "active read read inactive ");
    optional_end(&end);
}

static void who_says_nothing_is_not_heard_of(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        notes seen = { 0 };
        pair_end end;
        weir_embedded *embedded = optional_begin(&end, &seen, half);
        weir_embedded_end_inbound(embedded, 0);
        weir_embedded_run(embedded);
        assert_int_equal(weir_embedded_check(embedded), 0);
        if (half) /* it is no TLS, so it is as if there were none */
            assert_string_equal(seen.text, "active input_closed ");
        else
            assert_string_equal(seen.text, "");
        weir_embedded_close(embedded);
        optional_end(&end);
    }
}

static void who_says_nothing_has_his_time(void **state)
{
    static const struct {
        int64_t handshake_timeout_ns;
        int ends_ms;
    } rows[] = { { 0, 10000 }, { WEIR_MS(300), 300 }, { WEIR_OFF, 0 } };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        notes seen = { 0 };
        pair_end end;
        weir_embedded *embedded = optional_begin_how(&end, &seen, rows[i].handshake_timeout_ns,
                                                     true);
        int ms = rows[i].ends_ms > 0 ? rows[i].ends_ms : 1000000;
        weir_embedded_advance(embedded, WEIR_MS(ms - 1));
        weir_embedded_write_inbound_bytes(embedded, "", 0); /* is nothing, too */
        assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
        weir_embedded_advance(embedded, WEIR_MS(1));
        assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)),
                         rows[i].ends_ms == 0);
        if (rows[i].ends_ms > 0)
            pair_expect_error(&end, -ETIMEDOUT);
        assert_string_equal(seen.text, "");
        optional_end(&end);
    }
}

/* But plain text takes as long as it likes. */
static void what_is_left_of_the_time_is_for_the_handshake(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        notes seen = { 0 };
        pair_end end;
        weir_embedded *embedded = optional_begin_how(&end, &seen, WEIR_SECONDS(1), true);
        weir_embedded_advance(embedded, WEIR_MS(600));
        weir_embedded_write_inbound_bytes(embedded, plain ? "G" : "\x16", 1);
        weir_embedded_advance(embedded, WEIR_MS(399));
        assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
        weir_embedded_advance(embedded, WEIR_MS(1));
        if (!plain)
            pair_expect_error(&end, -ETIMEDOUT);
        assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)), plain);
        while (weir_embedded_inbound_count(embedded) > 0)
            weir_msg_release(weir_embedded_read_inbound(embedded));
        optional_end(&end);
    }
}

static void without_auto_read_it_reads_until_it_knows(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        notes seen = { 0 };
        pair_end end;
        weir_embedded *embedded = optional_begin_how(&end, &seen, 0, false);
        assert_true(weir_embedded_is_reading(embedded));
        weir_embedded_write_inbound_bytes(embedded, "", 0);
        assert_true(weir_embedded_is_reading(embedded));
        weir_embedded_write_inbound_bytes(embedded, plain ? "G" : "\x16", 1);
        assert_int_equal(weir_embedded_is_reading(embedded), !plain); /* TLS knows what it needs */
        assert_string_equal(seen.text, plain ? "active read " : "active ");
        while (weir_embedded_inbound_count(embedded) > 0)
            weir_msg_release(weir_embedded_read_inbound(embedded));
        weir_embedded_close(embedded);
        while (weir_embedded_take_error(embedded, NULL)) /* a handshake has begun */
            ;
        optional_end(&end);
    }
}

static void nothing_is_written_before(void **state)
{
    notes seen = { 0 };
    pair_end end;
    (void)state;
    weir_embedded *embedded = optional_begin(&end, &seen, false);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("secret", 6)), promise);
    weir_embedded_run(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -ENOTCONN);
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    weir_promise_release(promise);
    optional_end(&end);
}

static void it_needs_a_context(void **state)
{
    weir_tls none = { 0 };
    pair_end end = { .first = &weir_tls_optional_handler, .first_arg = &none };
    weir_embedded_config config = { .init = pair_init, .arg = &end };
    (void)state;
    if (weir_embedded_new(&end.embedded, &config, NULL) < 0)
        return;
    assert_false(weir_channel_is_open(weir_embedded_channel(end.embedded)));
    pair_expect_error(&end, -EINVAL);
    weir_embedded_free(end.embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(the_protocol_makes_up_the_pipeline),
        weir_case(tls_is_recognised),
        weir_case(plain_text_passes),
        weir_case(who_says_nothing_is_not_heard_of),
        weir_case(who_says_nothing_has_his_time),
        weir_case(what_is_left_of_the_time_is_for_the_handshake),
        weir_case(without_auto_read_it_reads_until_it_knows),
        weir_case(nothing_is_written_before),
        weir_case(it_needs_a_context),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
