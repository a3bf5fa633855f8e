/* SPDX-License-Identifier: MIT */
/* The certificate by the name that is asked for. */
#include "tls/certs.h"
#include "tls/hellos.h"
#include "tls/raw.h"

#include <weir/tls_select.h>

#include <errno.h>
#include <stdio.h>

static cert ca, certs[4];
static const char *const names[] = { "a.org", "b.org", "*.b.org", "other" };
static weir_tls_context *contexts[4];
static weir_tls_hosts *with_other, *without;

static int begin(void **state)
{
    cert_make(&ca, &(cert_config){ .name = "a CA", .is_ca = true });
    weir_tls_host list[3];
    for (size_t i = 0; i < 4; i++) {
        char alt[64];
        snprintf(alt, sizeof alt, "DNS:%s", i < 3 ? names[i] : "*.org");
        cert_make(&certs[i], &(cert_config){ .name = names[i], .alt = alt, .issuer = &ca });
        assert_int_equal(
            weir_tls_context_new_server(&contexts[i],
                                        &(weir_tls_config){ .certificate_pem = certs[i].pem,
                                                            .key_pem = certs[i].key_pem,
                                                            .session_lifetime_ns = WEIR_OFF },
                                        NULL),
            0);
        if (i < 3)
            list[i] = (weir_tls_host){ names[i], contexts[i] };
    }
    assert_int_equal(weir_tls_hosts_new(&with_other, list, 3, contexts[3], NULL), 0);
    assert_int_equal(weir_tls_hosts_new(&without, list, 3, NULL, NULL), 0);
    return pair_warm_up(state);
}

static int end(void **state)
{
    (void)state;
    weir_tls_hosts_release(with_other);
    weir_tls_hosts_release(without);
    for (size_t i = 0; i < 4; i++) {
        weir_tls_context_release(contexts[i]);
        cert_free(&certs[i]);
    }
    cert_free(&ca);
    return 0;
}

/* The table ------------------------------------------------------------------------------------ */

static void hosts_are_found(void **state)
{
    (void)state;
    assert_ptr_equal(weir_tls_hosts_find(without, "a.org"), contexts[0]);
    assert_ptr_equal(weir_tls_hosts_find(without, "A.oRg"), contexts[0]);
    assert_ptr_equal(weir_tls_hosts_find(without, "b.org"), contexts[1]);
    assert_ptr_equal(weir_tls_hosts_find(without, "x.B.org"), contexts[2]);
    assert_null(weir_tls_hosts_find(without, "x.y.b.org"));
    assert_null(weir_tls_hosts_find(without, "x.a.org"));
    assert_null(weir_tls_hosts_find(without, "org"));
    assert_null(weir_tls_hosts_find(without, ""));
    assert_null(weir_tls_hosts_find(without, NULL));
    assert_ptr_equal(weir_tls_hosts_find(with_other, NULL), contexts[3]);
    assert_ptr_equal(weir_tls_hosts_find(with_other, "x.y"), contexts[3]);
    assert_null(weir_tls_hosts_find(NULL, "a.org"));
}

static void tables_must_make_sense(void **state)
{
    weir_tls_context *client = pair_client_context(NULL);
    weir_tls_hosts *made;
    weir_error error;
    (void)state;
    const weir_tls_host bad[][2] = {
        { { "a.org", contexts[0] }, { "A.org", contexts[1] } },
        { { "a.org", contexts[0] }, { NULL, contexts[1] } },
        { { "a.org", contexts[0] }, { "b..org", contexts[1] } },
        { { "a.org", contexts[0] }, { "*", contexts[1] } },
        { { "a.org", contexts[0] }, { "a*.org", contexts[1] } },
        { { "a.org", contexts[0] }, { "10.0.0.1", contexts[1] } },
        { { "a.org", contexts[0] }, { "b.org", NULL } },
        { { "a.org", contexts[0] }, { "b.org", client } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(weir_tls_hosts_new(&made, bad[i], 2, NULL, &error), -EINVAL);
        assert_null(made);
    }
    assert_int_equal(weir_tls_hosts_new(&made, NULL, 1, NULL, NULL), -EINVAL);
    assert_int_equal(weir_tls_hosts_new(&made, NULL, 0, client, NULL), -EINVAL);
    assert_int_equal(weir_tls_hosts_new(NULL, NULL, 0, NULL, NULL), -EINVAL);
    assert_int_equal(weir_tls_hosts_new(&made, NULL, 0, contexts[0], NULL), 0);
    weir_tls_hosts_release(weir_tls_hosts_retain(made));
    weir_tls_hosts_release(made);
    weir_tls_hosts_release(NULL);
    weir_tls_context_release(client);
}

/* The handler ---------------------------------------------------------------------------------- */

/* What the handlers behind see. */
typedef struct seen {
    int actives, inactives, sessions, events, reads;
    char host[64];
} seen;

static void seen_on_active(weir_ctx *ctx)
{
    ((seen *)weir_ctx_arg(ctx))->actives++;
    weir_ctx_fire_active(ctx);
}

static void seen_on_inactive(weir_ctx *ctx)
{
    ((seen *)weir_ctx_arg(ctx))->inactives++;
    weir_ctx_fire_inactive(ctx);
}

static void seen_on_event(weir_ctx *ctx, weir_msg *event)
{
    seen *self = weir_ctx_arg(ctx);
    const weir_tls_session *session = weir_tls_session_from(event);
    self->events++;
    if (session != NULL) {
        self->sessions++;
        snprintf(self->host, sizeof self->host, "%s", session->host != NULL ? session->host : "-");
    }
    weir_ctx_fire_event(ctx, event);
}

static void seen_on_read(weir_ctx *ctx, weir_msg *msg)
{
    ((seen *)weir_ctx_arg(ctx))->reads++;
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type seeing = { .name = "seeing",
                                          .on_active = seen_on_active,
                                          .on_inactive = seen_on_inactive,
                                          .on_event = seen_on_event,
                                          .on_read = seen_on_read };

typedef struct duel {
    pair_end server;
    weir_tls_sni sni;
    seen seen;
    raw client;
    int reads; /* of add_counted */
} duel;

static duel *duel_begin_how(const weir_tls_sni *sni, const char *host, weir_init_fn init)
{
    static duel self;
    memset(&self, 0, sizeof self);
    self.sni = *sni;
    self.server = (pair_end){ .first = &weir_tls_sni_handler,
                              .first_arg = &self.sni,
                              .last = &seeing,
                              .last_arg = &self.seen };
    weir_embedded_config config = { .init = init,
                                    .arg = init == pair_init ? (void *)&self.server
                                                             : (void *)&self };
    assert_int_equal(weir_embedded_new(&self.server.embedded, &config, NULL), 0);
    raw_begin(&self.client, self.server.embedded, false, 0);
    if (host != NULL)
        SSL_set_tlsext_host_name(self.client.ssl, host);
    return &self;
}

static duel *duel_begin(const weir_tls_sni *sni, const char *host)
{
    return duel_begin_how(sni, host, pair_init);
}

static void duel_end(duel *self)
{
    raw_end(&self->client);
    weir_embedded_free(self->server.embedded);
    assert_int_equal(self->seen.actives, self->seen.inactives);
}

static void assert_shown(duel *self, size_t which)
{
    X509 *shown = SSL_get0_peer_certificate(self->client.ssl);
    assert_non_null(shown);
    assert_int_equal(X509_cmp(shown, certs[which].x509), 0);
    assert_true(SSL_is_init_finished(self->client.ssl));
    assert_int_equal(self->seen.actives, 1);
    assert_int_equal(self->seen.sessions, 1);
    assert_int_equal(self->seen.events, 1); /* it has not switched to TLS, it began with it */
}

static void each_name_has_its_certificate(void **state)
{
    static const struct {
        const char *host;
        size_t which;
        const char *seen;
    } cases[] = {
        { "a.org", 0, "a.org" },
        { "b.org", 1, "b.org" },
        { "x.b.org", 2, "x.b.org" },
        { "c.org", 3, "c.org" },
        { NULL, 3, "-" },
        { "a.org.", 0, "a.org" },
        { "x.b.org.", 2, "x.b.org" },
        { "c.org.", 3, "c.org" },
        { "127.0.0.1", 3, "-" },
        { "::1", 3, "-" },
        { "[2001:db8::1]", 3, "-" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        duel *self = duel_begin(&(weir_tls_sni){ .hosts = with_other }, cases[i].host);
        assert_int_equal(self->seen.actives, 0);
        raw_carry(&self->client);
        assert_shown(self, cases[i].which);
        assert_string_equal(self->seen.host, cases[i].seen);
        raw_say(&self->client, "hello");
        raw_carry(&self->client);
        char heard[64];
        pair_heard(&self->server, heard, sizeof heard);
        assert_string_equal(heard, "hello");
        duel_end(self);
    }
}

static void unknown_names_are_refused(void **state)
{
    static const char *const hosts[] = { "c.org", NULL, "x.y.b.org", "c.org.", "127.0.0.1", "::1" };
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        duel *self = duel_begin(&(weir_tls_sni){ .hosts = without }, hosts[i]);
        raw_carry(&self->client);
        pair_expect_error(&self->server, WEIR_ETLS_NAME);
        assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
        assert_int_equal(self->seen.actives, 0);
        assert_int_equal(self->client.last, SSL_ERROR_SSL);
        duel_end(self);
    }
}

/* A fatal alert of TLS 1.2's record version is what every version of a client understands. */
static void a_rejected_hello_is_answered_with_one_fatal_alert(void **state)
{
    static const uint8_t unrecognized_name[] = { 21, 3, 3, 0, 2, 2, 112 },
                         decode_error[] = { 21, 3, 3, 0, 2, 2, 50 };
    hello unknown, broken;
    uint8_t sent[64];
    (void)state;
    hello_make(&unknown, "c.org");
    hello_make(&broken, "a..b.org");
    for (int i = 0; i < 2; i++) {
        const hello *from = i == 0 ? &unknown : &broken;
        duel *self = duel_begin(&(weir_tls_sni){ .hosts = without }, NULL);
        weir_embedded_write_inbound_bytes(self->server.embedded, from->bytes, from->length);
        pair_expect_error(&self->server, i == 0 ? WEIR_ETLS_NAME : WEIR_ETLS_RECORD);
        size_t length = weir_embedded_read_outbound_bytes(self->server.embedded, sent, sizeof sent);
        assert_int_equal(length, sizeof decode_error);
        assert_memory_equal(sent, i == 0 ? unrecognized_name : decode_error, length);
        duel_end(self);
    }
}

/* The handshake of a client whose bytes come one by one, and its hello in records of a byte. */
static void a_hello_may_come_in_any_pieces(void **state)
{
    hello whole, shred;
    uint8_t flight[16384];
    size_t expected = 0;
    (void)state;
    hello_make(&whole, "b.org");
    hello_shred(&shred, &whole);
    for (size_t at = 0; at <= whole.length - 5; at++) {
        hello cut = whole;
        if (at > 0 && at < whole.length - 5)
            hello_cut(&cut, &whole, at);
        const hello *sent = at == whole.length - 5 ? &shred : &cut;
        for (size_t step = 1; step <= sent->length;
             step += at < 3 || at + 8 > whole.length ? 97 : 4096) {
            duel *self = duel_begin(&(weir_tls_sni){ .hosts = without }, NULL);
            for (size_t i = 0; i < sent->length; i += step)
                weir_embedded_write_inbound_bytes(self->server.embedded, sent->bytes + i,
                                                  sent->length - i < step ? sent->length - i
                                                                          : step);
            size_t length = weir_embedded_read_outbound_bytes(self->server.embedded, flight,
                                                              sizeof flight);
            assert_int_equal(flight[0], 22); /* ServerHello: it was understood */
            assert_true(length > 500);
            if (expected == 0)
                expected = length;
            assert_true(length + 16 > expected && length < expected + 16);
            assert_int_equal(weir_embedded_check(self->server.embedded), 0);
            duel_end(self);
        }
    }
}

/* None of these gets as far as a context, not even the one for everybody else. */
static void what_is_not_understood_never_falls_back(void **state)
{
    static const uint8_t twice[] = { 0,   20, 0, 0, 0, 6, 0, 4, 0, 0, 1,
                                     'a', 0,  0, 0, 6, 0, 4, 0, 0, 1, 'b' };
    hello whole, built;
    (void)state;
    hello_make(&whole, "a.org");
    hello_build(&built, twice, sizeof twice);
    struct {
        const uint8_t *bytes;
        size_t length;
        int code;
    } cases[] = {
        { (const uint8_t *)"GET / HTTP/1.0\r\n\r\n", 18, WEIR_ETLS_HTTP },
        { (const uint8_t *)"hello", 5, WEIR_ETLS_PLAIN },
        { (const uint8_t *)"\x15\x03\x01\x00\x02\x02\x28", 7, WEIR_ETLS_RECORD },
        { (const uint8_t *)"\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9, WEIR_ETLS_RECORD },
        { (const uint8_t *)"\x16\x03\x01\x00\x04\x01\x01\x00\x00", 9, WEIR_ELIMIT },
        { (const uint8_t *)"\x16\x03\x01\x00\x00", 5, WEIR_ETLS_RECORD },
        { (const uint8_t *)"\x16\x03\x01\xff\xff", 5, WEIR_ETLS_RECORD },
        { built.bytes, built.length, WEIR_ETLS_RECORD },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int single = 0; single < 2; single++) {
            duel *self = duel_begin(&(weir_tls_sni){ .hosts = with_other }, NULL);
            size_t step = single ? 1 : cases[i].length;
            for (size_t at = 0; at < cases[i].length; at += step)
                weir_embedded_write_inbound_bytes(self->server.embedded, cases[i].bytes + at, step);
            pair_expect_error(&self->server, cases[i].code);
            assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
            assert_int_equal(self->seen.actives + self->seen.events + self->seen.reads, 0);
            duel_end(self);
        }
    }
}

static void a_hello_has_its_limit(void **state)
{
    hello whole;
    (void)state;
    hello_make(&whole, "a.org");
    size_t length = whole.length - 5;
    for (int less = 0; less < 2; less++) {
        weir_tls_sni sni = { .hosts = without, .max_hello = length - (size_t)less };
        duel *self = duel_begin(&sni, NULL);
        weir_embedded_write_inbound_bytes(self->server.embedded, whole.bytes, whole.length);
        if (less)
            pair_expect_error(&self->server, WEIR_ELIMIT);
        assert_int_equal(weir_embedded_check(self->server.embedded), 0);
        duel_end(self);
    }
    /* A hello of that many bytes in records of one byte each is still understood. */
    hello shred;
    hello_shred(&shred, &whole);
    duel *self = duel_begin(&(weir_tls_sni){ .hosts = without, .max_hello = length }, NULL);
    for (size_t i = 0; i < shred.length; i++)
        weir_embedded_write_inbound_bytes(self->server.embedded, shred.bytes + i, 1);
    assert_int_equal(weir_embedded_check(self->server.embedded), 0);
    assert_true(weir_embedded_outbound_count(self->server.embedded) > 0);
    duel_end(self);
}

static void expect_no_handler(const weir_tls_sni *sni)
{
    weir_tls_sni copy = *sni;
    pair_end server = { .first = &weir_tls_sni_handler, .first_arg = &copy };
    weir_embedded_config config = { .init = pair_init, .arg = &server };
    if (weir_embedded_new(&server.embedded, &config, NULL) < 0)
        return;
    pair_expect_error(&server, -EINVAL);
    assert_false(weir_channel_is_open(weir_embedded_channel(server.embedded)));
    weir_embedded_free(server.embedded);
}

static void never_choose(weir_channel *channel, const char *host, weir_promise *promise, void *arg)
{
    (void)channel, (void)host, (void)promise, (void)arg;
}

static void a_config_must_make_sense(void **state)
{
    (void)state;
    expect_no_handler(&(weir_tls_sni){ 0 });
    expect_no_handler(&(weir_tls_sni){ .hosts = without, .choose = never_choose });
    expect_no_handler(&(weir_tls_sni){ .hosts = without, .max_hello = 65537 });
    expect_no_handler(&(weir_tls_sni){ .hosts = without, .tls.handshake_timeout_ns = -2 });
}

/* Somebody is asked. */
typedef struct chooser {
    weir_promise *asked;
    char host[64];
    int times;
} chooser;

static void choose_later(weir_channel *channel, const char *host, weir_promise *promise, void *arg)
{
    chooser *self = arg;
    (void)channel;
    self->asked = weir_promise_retain(promise);
    self->times++;
    snprintf(self->host, sizeof self->host, "%s", host != NULL ? host : "-");
}

static void release_context(void *context)
{
    weir_tls_context_release(context);
}

static void choose_now(weir_channel *channel, const char *host, weir_promise *promise, void *arg)
{
    choose_later(channel, host, promise, arg);
    weir_promise_succeed(promise, weir_tls_context_retain(contexts[1]), release_context);
}

static void answer(chooser *self, weir_tls_context *context)
{
    if (context == NULL)
        weir_promise_fail(self->asked, WEIR_ENONAME);
    else
        weir_promise_succeed(self->asked, weir_tls_context_retain(context), release_context);
    weir_promise_release(self->asked);
    self->asked = NULL;
}

static void the_time_counts_from_the_begin(void **state)
{
    hello whole;
    (void)state;
    hello_make(&whole, "a.org");
    duel *self = duel_begin(
        &(weir_tls_sni){ .hosts = without, .tls.handshake_timeout_ns = WEIR_MS(1000) }, NULL);
    weir_embedded_write_inbound_bytes(self->server.embedded, whole.bytes, whole.length - 1);
    weir_embedded_advance(self->server.embedded, WEIR_MS(999));
    assert_int_equal(weir_embedded_check(self->server.embedded), 0);
    weir_embedded_advance(self->server.embedded, WEIR_MS(1));
    pair_expect_error(&self->server, -ETIMEDOUT);
    duel_end(self);
    self = duel_begin(
        &(weir_tls_sni){ .hosts = without, .tls.handshake_timeout_ns = WEIR_MS(1000) }, NULL);
    weir_embedded_advance(self->server.embedded, WEIR_MS(600));
    weir_embedded_write_inbound_bytes(self->server.embedded, whole.bytes, whole.length);
    weir_embedded_advance(self->server.embedded, WEIR_MS(399));
    assert_int_equal(weir_embedded_check(self->server.embedded), 0);
    weir_embedded_advance(self->server.embedded, WEIR_MS(1));
    pair_expect_error(&self->server, -ETIMEDOUT);
    duel_end(self);
}

/* How often it reads, whoever asks for it. */
static void count_read(weir_ctx *ctx)
{
    ++*(int *)weir_ctx_arg(ctx);
    weir_ctx_read(ctx);
}

static const weir_handler_type counting = { .name = "counting", .read = count_read };

static int add_counted(weir_channel *channel, void *arg)
{
    duel *self = arg;
    weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &counting,
                                      &self->reads);
    return code < 0 ? code : pair_init(channel, &self->server);
}

static void without_auto_read_it_reads_until_the_hello_is_there(void **state)
{
    chooser by = { 0 };
    duel *self = duel_begin_how(&(weir_tls_sni){ .choose = choose_later, .arg = &by }, "a.org",
                                add_counted);
    weir_embedded *embedded = self->server.embedded;
    hello whole;
    (void)state;
    assert_true(weir_embedded_is_reading(embedded));
    assert_int_equal(self->reads, 1);
    SSL_do_handshake(self->client.ssl);
    whole.length = (size_t)BIO_read(SSL_get_wbio(self->client.ssl), whole.bytes,
                                    sizeof whole.bytes);
    for (size_t i = 0; i < 2; i++) {
        weir_embedded_write_inbound_bytes(embedded, whole.bytes + i, 1);
        assert_true(weir_embedded_is_reading(embedded));
        assert_int_equal(self->reads, 2 + i);
    }
    weir_embedded_write_inbound_bytes(embedded, whole.bytes + 2, whole.length - 2);
    assert_int_equal(by.times, 1);
    assert_int_equal(self->reads, 3); /* now it waits for something else */
    answer(&by, contexts[0]);
    weir_embedded_run(embedded);
    raw_carry(&self->client);
    assert_shown(self, 0);
    duel_end(self);
}

static void nothing_is_written_before(void **state)
{
    duel *self = duel_begin(&(weir_tls_sni){ .hosts = without }, "a.org");
    weir_channel *channel = weir_embedded_channel(self->server.embedded);
    weir_promise *promise = weir_channel_promise(channel);
    (void)state;
    weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("secret", 6)), promise);
    weir_embedded_run(self->server.embedded);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -ENOTCONN);
    assert_int_equal(weir_embedded_outbound_count(self->server.embedded), 0);
    weir_promise_release(promise);
    raw_carry(&self->client);
    assert_shown(self, 0);
    duel_end(self);
}

static void an_end_before_the_hello_is_told(void **state)
{
    hello whole;
    (void)state;
    hello_make(&whole, "a.org");
    for (int half = 0; half < 2; half++) {
        duel *self = duel_begin(&(weir_tls_sni){ .hosts = without }, NULL);
        weir_channel *channel = weir_embedded_channel(self->server.embedded);
        weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, half, NULL);
        weir_embedded_write_inbound_bytes(self->server.embedded, whole.bytes, 100);
        weir_embedded_end_inbound(self->server.embedded, 0);
        pair_expect_error(&self->server, WEIR_EOF);
        assert_false(weir_channel_is_open(channel));
        assert_int_equal(self->seen.actives, 0);
        duel_end(self);
    }
}

/* Choosing ------------------------------------------------------------------------------------ */

static void somebody_may_choose_at_once(void **state)
{
    static const struct {
        const char *sent, *asked;
    } cases[] = { { "b.org", "b.org" }, { "b.org.", "b.org" }, { "127.0.0.1", "-" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        chooser by = { 0 };
        duel *self = duel_begin(&(weir_tls_sni){ .choose = choose_now, .arg = &by }, cases[i].sent);
        raw_carry(&self->client);
        assert_shown(self, 1);
        assert_string_equal(by.host, cases[i].asked);
        weir_promise_release(by.asked);
        duel_end(self);
    }
}

static void somebody_may_choose_later(void **state)
{
    chooser by = { 0 };
    duel *self = duel_begin(&(weir_tls_sni){ .choose = choose_later, .arg = &by }, NULL);
    (void)state;
    raw_carry(&self->client);
    assert_int_equal(by.times, 1);
    assert_string_equal(by.host, "-");
    assert_false(weir_embedded_is_reading(self->server.embedded));
    weir_embedded_write_inbound_bytes(self->server.embedded, "", 0);
    answer(&by, contexts[0]);
    weir_embedded_run(self->server.embedded);
    assert_true(weir_embedded_is_reading(self->server.embedded));
    raw_carry(&self->client);
    assert_shown(self, 0);
    assert_int_equal(by.times, 1);
    duel_end(self);
}

static void somebody_may_refuse(void **state)
{
    chooser by = { 0 };
    duel *self = duel_begin(&(weir_tls_sni){ .choose = choose_later, .arg = &by }, "a.org");
    (void)state;
    raw_carry(&self->client);
    answer(&by, NULL);
    weir_embedded_run(self->server.embedded);
    pair_expect_error(&self->server, WEIR_ETLS_NAME);
    assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
    duel_end(self);
}

/* The channel closed, the time over, or the end of the input, before the answer. */
static void an_answer_may_come_too_late(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        chooser by = { 0 };
        duel *self = duel_begin(&(weir_tls_sni){ .choose = choose_later, .arg = &by }, "a.org");
        raw_carry(&self->client);
        weir_embedded *embedded = self->server.embedded;
        if (way / 2 == 0)
            weir_embedded_close(embedded);
        else if (way / 2 == 1)
            weir_embedded_advance(embedded, WEIR_SECONDS(10));
        else if (way / 2 == 2)
            weir_embedded_end_inbound(embedded, 0);
        else
            weir_embedded_end_inbound(embedded, -ECONNRESET);
        if (way % 2 == 0) { /* before or behind the end of everything */
            answer(&by, contexts[0]);
            weir_embedded_run(embedded);
        }
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        while (weir_embedded_take_error(embedded, NULL))
            continue;
        assert_int_equal(self->seen.sessions, 0);
        duel_end(self);
        if (way % 2 == 1)
            answer(&by, contexts[0]);
    }
}

/* Who hears that it is refused answers then, when the channel is not closed yet. */
static void answering_on_error(weir_ctx *ctx, const weir_error *error)
{
    answer(weir_ctx_arg(ctx), contexts[0]);
    weir_ctx_fire_error(ctx, error);
}

static const weir_handler_type answering = { .name = "answering", .on_error = answering_on_error };

static void an_answer_behind_a_refusal_is_not_used(void **state)
{
    chooser by = { 0 };
    duel *self = duel_begin(&(weir_tls_sni){ .choose = choose_later, .arg = &by }, "a.org");
    weir_embedded *embedded = self->server.embedded;
    weir_channel *channel = weir_embedded_channel(embedded);
    (void)state;
    weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &answering, &by);
    raw_carry(&self->client);
    weir_embedded_advance(embedded, WEIR_SECONDS(10));
    assert_null(by.asked);
    assert_null(weir_tls_handshake(channel)); /* there was never any TLS */
    assert_int_equal(self->seen.actives, 0);
    pair_expect_error(&self->server, -ETIMEDOUT);
    assert_false(weir_embedded_take_error(embedded, NULL));
    duel_end(self);
}

/* Of one name first, and then of another: the context was chosen by the first. */
static void the_name_may_not_change_on_the_way(void **state)
{
    duel *self = duel_begin(&(weir_tls_sni){ .hosts = with_other }, "a.org");
    (void)state;
    SSL_set1_groups_list(self->client.ssl, "P-521:X25519"); /* the server wants another hello */
    SSL_do_handshake(self->client.ssl);
    raw_send(&self->client);
    SSL_set_tlsext_host_name(self->client.ssl, "b.org");
    raw_carry(&self->client);
    assert_int_equal(self->seen.sessions, 0);
    assert_false(weir_channel_is_open(weir_embedded_channel(self->server.embedded)));
    weir_embedded_take_error(self->server.embedded, NULL);
    duel_end(self);
    self = duel_begin(&(weir_tls_sni){ .hosts = with_other }, "a.org");
    SSL_set1_groups_list(self->client.ssl, "P-521:X25519");
    raw_carry(&self->client);
    assert_shown(self, 0);
    duel_end(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(hosts_are_found),
        weir_case(tables_must_make_sense),
        weir_case(each_name_has_its_certificate),
        weir_case(unknown_names_are_refused),
        weir_case(a_rejected_hello_is_answered_with_one_fatal_alert),
        weir_case(a_hello_may_come_in_any_pieces),
        weir_case(what_is_not_understood_never_falls_back),
        weir_case(a_hello_has_its_limit),
        weir_case(a_config_must_make_sense),
        weir_case(the_time_counts_from_the_begin),
        weir_case(without_auto_read_it_reads_until_the_hello_is_there),
        weir_case(nothing_is_written_before),
        weir_case(an_end_before_the_hello_is_told),
        weir_case(somebody_may_choose_at_once),
        weir_case(somebody_may_choose_later),
        weir_case(somebody_may_refuse),
        weir_case(an_answer_may_come_too_late),
        weir_case(an_answer_behind_a_refusal_is_not_used),
        weir_case(the_name_may_not_change_on_the_way),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
