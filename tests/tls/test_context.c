/* SPDX-License-Identifier: MIT */
/* Contexts: from files and from memory, what is wrong with them, reloading, and whom they trust. */
#include "tls/certs.h"
#include "tls/pair.h"

#include <weir/channel.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a config comes to ----------------------------------------------------------------------- */

static cert ca, leaf, other;

static int make_certificates(void **state)
{
    (void)state;
    cert_make(&ca, &(cert_config){ .name = "a CA", .is_ca = true });
    cert_make(&leaf, &(cert_config){ .name = "leaf", .alt = "DNS:localhost", .issuer = &ca });
    cert_make(&other, &(cert_config){ .name = "other", .alt = "DNS:localhost" });
    cert_directory();
    pair_identity();
    return 0;
}

static int forget_certificates(void **state)
{
    (void)state;
    cert_free(&ca);
    cert_free(&leaf);
    cert_free(&other);
    cert_forget_files();
    return 0;
}

static void expect_server(const weir_tls_config *config, int code, const char *words)
{
    weir_tls_context *context = (weir_tls_context *)1;
    weir_error error = { 0 };
    assert_int_equal(weir_tls_context_new_server(&context, config, NULL), code);
    if (code == 0)
        weir_tls_context_release(context);
    int got = weir_tls_context_new_server(&context, config, &error);
    if (got != code || (code < 0 && strstr(error.message, words) == NULL))
        fail_msg("%s: %s", weir_error_name(got), error.message);
    if (code < 0) {
        assert_null(context);
        assert_int_equal(error.code, code);
    }
    weir_tls_context_release(context);
}

static void expect_client(const weir_tls_config *config, int code, const char *words)
{
    weir_tls_context *context = NULL;
    weir_error error = { 0 };
    int got = weir_tls_context_new_client(&context, config, &error);
    if (got != code || (code < 0 && strstr(error.message, words) == NULL))
        fail_msg("%s: %s", weir_error_name(got), error.message);
    weir_tls_context_release(context);
}

#define OWN .certificate_pem = leaf.pem, .key_pem = leaf.key_pem

static void files_and_texts_are_read(void **state)
{
    char chain[8192];
    (void)state;
    snprintf(chain, sizeof chain, "%s%s", leaf.pem, ca.pem);
    const char *certificate = cert_file("chain.pem", chain);
    const char *key = cert_file("key.pem", leaf.key_pem);
    const char *trusted = cert_file("ca.pem", ca.pem);
    expect_server(&(weir_tls_config){ OWN }, 0, "");
    expect_server(&(weir_tls_config){ .certificate_file = certificate, .key_file = key }, 0, "");
    expect_server(&(weir_tls_config){ .certificate_file = certificate, .key_pem = leaf.key_pem }, 0,
                  "");
    expect_server(&(weir_tls_config){ OWN, .ca_file = trusted }, 0, "");
    expect_server(&(weir_tls_config){ OWN, .ca_directory = cert_directory() }, 0, "");
    expect_client(NULL, 0, "");
    expect_client(&(weir_tls_config){ OWN, .ca_pem = ca.pem }, 0, "");
}

static void what_makes_no_sense_is_told(void **state)
{
    static const char *const empty[] = { "h2", "", NULL };
    char text[300];
    const char *long_name[] = { text, NULL };
    (void)state;
    memset(text, 'a', 299);
    text[299] = '\0';
    expect_server(NULL, -EINVAL, "certificate");
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem }, -EINVAL, "key");
    expect_server(&(weir_tls_config){ OWN, .certificate_file = "x" }, -EINVAL, "both");
    expect_server(&(weir_tls_config){ OWN, .key_file = "x" }, -EINVAL, "both");
    expect_server(&(weir_tls_config){ OWN, .ca_pem = ca.pem, .ca_file = "x" }, -EINVAL, "both");
    expect_server(&(weir_tls_config){ OWN, .min_version = 1 }, -EINVAL, "min_version is 1");
    expect_server(&(weir_tls_config){ OWN, .max_version = 4 }, -EINVAL, "max_version 4");
    expect_server(
        &(weir_tls_config){ OWN, .min_version = WEIR_TLS_1_3, .max_version = WEIR_TLS_1_2 },
        -EINVAL, "min_version is 3");
    expect_server(&(weir_tls_config){ OWN, .client_auth = 7 }, -EINVAL, "client_auth is 7");
    expect_server(&(weir_tls_config){ OWN, .client_auth = WEIR_TLS_CLIENT_AUTH_REQUIRED }, -EINVAL,
                  "whom to trust");
    expect_server(&(weir_tls_config){ OWN, .session_lifetime_ns = -2 }, -EINVAL,
                  "session_lifetime_ns");
    expect_server(&(weir_tls_config){ OWN, .alpn = empty }, -EINVAL, "0 bytes");
    expect_server(&(weir_tls_config){ OWN, .alpn = long_name }, -EINVAL, "299 bytes");
    expect_server(&(weir_tls_config){ OWN, .ciphers = "no such cipher" }, -EINVAL, "cipher");
    expect_server(&(weir_tls_config){ OWN, .cipher_suites = "no such suite" }, -EINVAL, "cipher");
    expect_server(&(weir_tls_config){ OWN, .groups = "no such group" }, -EINVAL, "OpenSSL refuses");
    expect_client(&(weir_tls_config){ .certificate_pem = leaf.pem }, -EINVAL, "key");
    expect_client(&(weir_tls_config){ .key_pem = leaf.key_pem }, -EINVAL, "certificate");
    expect_client(
        &(weir_tls_config){ .client_auth = WEIR_TLS_CLIENT_AUTH_OPTIONAL, .ca_pem = ca.pem },
        -EINVAL, "for servers");
    assert_int_equal(weir_tls_context_new_server(NULL, NULL, NULL), -EINVAL);
}

static void what_cannot_be_read_is_told(void **state)
{
    char half[8192];
    (void)state;
    const char *nowhere = cert_file("nowhere.pem", NULL);
    const char *garbage = cert_file("garbage.pem", "this is no certificate\n");
    const char *empty = cert_file("empty.pem", "");
    expect_server(&(weir_tls_config){ .certificate_file = nowhere, .key_pem = leaf.key_pem },
                  -ENOENT, nowhere);
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem, .key_file = nowhere }, -ENOENT,
                  nowhere);
    expect_server(&(weir_tls_config){ OWN, .ca_file = nowhere }, -ENOENT, nowhere);
    expect_client(&(weir_tls_config){ .ca_file = nowhere }, -ENOENT, nowhere);
    expect_client(&(weir_tls_config){ .ca_directory = nowhere }, -ENOENT, nowhere);
    expect_client(&(weir_tls_config){ .ca_directory = garbage }, -ENOTDIR, garbage);
    expect_server(&(weir_tls_config){ OWN, .key_log_file = "/nowhere/log" }, -ENOENT,
                  "/nowhere/log");
    expect_server(&(weir_tls_config){ .certificate_file = garbage, .key_pem = leaf.key_pem },
                  WEIR_ETLS_PEM, garbage);
    expect_server(&(weir_tls_config){ .certificate_file = empty, .key_pem = leaf.key_pem },
                  WEIR_ETLS_PEM, "no start line");
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem, .key_file = garbage },
                  WEIR_ETLS_PEM, garbage);
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem, .key_pem = leaf.pem },
                  WEIR_ETLS_PEM, "key");
    expect_client(&(weir_tls_config){ .ca_pem = "" }, WEIR_ETLS_PEM, "trusted");
    /* A good one, and half of another behind it. */
    snprintf(half, sizeof half, "%s%.*s", leaf.pem, 100, ca.pem);
    expect_server(&(weir_tls_config){ .certificate_pem = half, .key_pem = leaf.key_pem },
                  WEIR_ETLS_PEM, "certificate");
    expect_client(&(weir_tls_config){ .ca_pem = half }, WEIR_ETLS_PEM, "certificate");
    if (geteuid() != 0) {
        const char *secret = cert_file("secret.pem", leaf.key_pem);
        chmod(secret, 0);
        expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem, .key_file = secret },
                      -EACCES, secret);
    }
}

static void a_key_must_fit(void **state)
{
    char locked[1024];
    (void)state;
    cert_key_with_password(&leaf, "sesame", locked, sizeof locked);
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem, .key_pem = other.key_pem },
                  WEIR_ETLS_KEY, "does not belong");
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem, .key_pem = locked },
                  WEIR_ETLS_PASSWORD, "no key_password");
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem,
                                      .key_pem = locked,
                                      .key_password = "guess" },
                  WEIR_ETLS_PASSWORD, "does not fit");
    expect_server(
        &(weir_tls_config){ .certificate_pem = leaf.pem, .key_pem = locked, .key_password = "" },
        WEIR_ETLS_PASSWORD, "does not fit");
    expect_server(&(weir_tls_config){ .certificate_pem = leaf.pem,
                                      .key_pem = locked,
                                      .key_password = "sesame" },
                  0, "");
}

static void a_certificate_for_development(void **state)
{
    static const char *const bad[] = { "", "a b", "a,DNS:b", "a\nb", "a:b", "a..b", "-", "*" };
    static const char *const good[] = { "example.org", "*.example.org", "10.0.0.1", "::1" };
    weir_tls_self_signed own;
    weir_error error;
    (void)state;
    assert_int_equal(weir_tls_self_signed_make(&own, NULL, &error), -EINVAL);
    assert_int_equal(weir_tls_self_signed_make(NULL, "localhost", &error), -EINVAL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int code = weir_tls_self_signed_make(&own, bad[i], &error);
        if (code != -EINVAL)
            fail_msg("'%s' is %d", bad[i], code);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(weir_tls_self_signed_make(&own, good[i], &error), 0);
}

/* Whom they trust ------------------------------------------------------------------------------ */

/* A handshake of a server that has a certificate with a client that expects a host and trusts. */
static int handshake_with(const cert *shown, const char *host, const weir_tls_config *trust,
                          weir_error *error)
{
    pair both = { .client.tls.host = host };
    weir_tls_config config = { .certificate_pem = shown->pem, .key_pem = shown->key_pem };
    assert_int_equal(weir_tls_context_new_server(&both.server.tls.context, &config, NULL), 0);
    assert_int_equal(weir_tls_context_new_client(&both.client.tls.context, trust, NULL), 0);
    weir_tls_context *contexts[] = { both.server.tls.context, both.client.tls.context };
    pair_begin(&both);
    pair_carry(&both);
    weir_future *future = weir_tls_handshake(weir_embedded_channel(both.client.embedded));
    int code = weir_future_code(future);
    if (code < 0) {
        assert_true(weir_embedded_take_error(both.client.embedded, error));
        assert_int_equal(error->code, code);
        assert_non_null(weir_future_error(future));
        assert_false(weir_channel_is_open(weir_embedded_channel(both.client.embedded)));
        pair_expect_error(&both.server, WEIR_ETLS_ALERT);
    }
    pair_finish(&both);
    weir_tls_context_release(contexts[0]);
    weir_tls_context_release(contexts[1]);
    return code;
}

static void expect_handshake(const cert *shown, const char *host, const cert *trusted, int code,
                             const char *words)
{
    weir_error error = { 0 };
    int got = handshake_with(shown, host, &(weir_tls_config){ .ca_pem = trusted->pem }, &error);
    if (got != code || (code < 0 && strstr(error.message, words) == NULL))
        fail_msg("%s for %s: %s", weir_error_name(got), host, error.message);
}

static void the_chain_and_the_host_are_verified(void **state)
{
    cert old, young, named, wild, addressed, common, nameless;
    (void)state;
    cert_make(&old, &(cert_config){ .name = "old",
                                    .alt = "DNS:localhost",
                                    .issuer = &ca,
                                    .from_s = -7200,
                                    .until_s = -3600 });
    cert_make(&young, &(cert_config){ .name = "young",
                                      .alt = "DNS:localhost",
                                      .issuer = &ca,
                                      .from_s = 3600,
                                      .until_s = 7200 });
    cert_make(&named, &(cert_config){ .name = "x", .alt = "DNS:a.example.org", .issuer = &ca });
    cert_make(&wild, &(cert_config){ .name = "x", .alt = "DNS:*.example.org", .issuer = &ca });
    cert_make(&addressed,
              &(cert_config){ .name = "x", .alt = "IP:10.0.0.1,IP:fd00::1", .issuer = &ca });
    cert_make(&common,
              &(cert_config){ .name = "a.example.org", .alt = "DNS:b.example.org", .issuer = &ca });
    cert_make(&nameless, &(cert_config){ .name = "a.example.org", .issuer = &ca });
    expect_handshake(&leaf, "localhost", &ca, 0, "");
    expect_handshake(&leaf, "LocalHost", &ca, 0, "");
    expect_handshake(&leaf, "localhost.", &ca, 0, "");
    expect_handshake(&other, "localhost", &other, 0, "");
    expect_handshake(&old, "localhost", &ca, WEIR_ETLS_EXPIRED, "expired");
    expect_handshake(&young, "localhost", &ca, WEIR_ETLS_EXPIRED, "not yet valid");
    expect_handshake(&other, "localhost", &ca, WEIR_ETLS_SELF_SIGNED, "self-signed");
    expect_handshake(&leaf, "localhost", &other, WEIR_ETLS_UNTRUSTED, "issuer");
    expect_handshake(&leaf, "example.org", &ca, WEIR_ETLS_HOST, "example.org");
    expect_handshake(&leaf, "127.0.0.1", &ca, WEIR_ETLS_HOST, "IP address");
    expect_handshake(&named, "a.example.org", &ca, 0, "");
    expect_handshake(&named, "b.example.org", &ca, WEIR_ETLS_HOST, "ostname mismatch");
    expect_handshake(&common, "a.example.org", &ca, WEIR_ETLS_HOST, "ostname mismatch");
    expect_handshake(&nameless, "a.example.org", &ca, WEIR_ETLS_HOST, "ostname mismatch");
    expect_handshake(&wild, "a.example.org", &ca, 0, "");
    expect_handshake(&wild, "a.b.example.org", &ca, WEIR_ETLS_HOST, "mismatch");
    expect_handshake(&wild, "example.org", &ca, WEIR_ETLS_HOST, "mismatch");
    expect_handshake(&addressed, "10.0.0.1", &ca, 0, "");
    expect_handshake(&addressed, "fd00::1", &ca, 0, "");
    expect_handshake(&addressed, "10.0.0.2", &ca, WEIR_ETLS_HOST, "mismatch");
    cert *all[] = { &old, &young, &named, &wild, &addressed, &common, &nameless };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cert_free(all[i]);
}

static void trust_comes_from_files_and_directories(void **state)
{
    weir_error error;
    (void)state;
    const char *file = cert_file("trusted.pem", ca.pem);
    assert_int_equal(
        handshake_with(&leaf, "localhost", &(weir_tls_config){ .ca_file = file }, &error), 0);
    assert_int_equal(handshake_with(&leaf, "localhost",
                                    &(weir_tls_config){ .ca_directory = cert_directory() }, &error),
                     WEIR_ETLS_UNTRUSTED);
    cert_file(cert_hashed_name(&ca), ca.pem);
    assert_int_equal(handshake_with(&leaf, "localhost",
                                    &(weir_tls_config){ .ca_directory = cert_directory() }, &error),
                     0);
    /* The system has never heard of it. */
    assert_int_equal(handshake_with(&leaf, "localhost", NULL, &error), WEIR_ETLS_UNTRUSTED);
}

/* A host that can be none: nothing of it gets as far as a certificate. */
static void a_host_must_be_one(void **state)
{
    static const char *const hosts[] = { "",          ".",     ".example.org",   "a b",
                                         "a..b",      "[::1]", "a.example.org/", "*.example.org",
                                         "10.0.0.300" };
    weir_tls_context *context = pair_client_context(NULL);
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        pair both = { .client.tls = { .context = context, .host = hosts[i] } };
        pair_begin(&both);
        weir_error error = { 0 };
        if (!weir_embedded_take_error(both.client.embedded, &error) || error.code != -EINVAL)
            fail_msg("'%s': %s", hosts[i], error.message);
        assert_int_equal(weir_embedded_outbound_count(both.client.embedded), 0);
        assert_false(weir_channel_is_open(weir_embedded_channel(both.client.embedded)));
        pair_finish(&both);
    }
    weir_tls_context_release(context);
}

static void verifying_nothing_takes_anybody(void **state)
{
    weir_tls_context *context = pair_client_context(NULL);
    weir_tls_context *server = pair_server_context(NULL);
    (void)state;
    assert_int_equal(weir_tls_context_dangerously_verify_nothing(server), -EINVAL);
    assert_int_equal(weir_tls_context_dangerously_verify_nothing(NULL), -EINVAL);
    assert_int_equal(weir_tls_context_dangerously_verify_nothing(context), 0);
    pair both = { .client.tls = { .context = context, .host = "example.org" },
                  .server.tls.context = server };
    pair_begin(&both);
    pair_shake(&both);
    const weir_tls_session *session =
        weir_future_value(weir_tls_handshake(weir_embedded_channel(both.client.embedded)));
    assert_non_null(session->peer);
    assert_false(session->peer->is_verified);
    pair_finish(&both);
    weir_tls_context_release(server);
    weir_tls_context_release(context);
}

/* Clients that say who they are ---------------------------------------------------------------- */

typedef struct auth_case {
    weir_tls_client_auth auth;
    const cert *shown; /* NULL: none */
    weir_tls_version version;
    int code;
} auth_case;

static void expect_auth(const auth_case *one)
{
    pair both = { 0 };
    weir_tls_config server = { .ca_pem = ca.pem, .client_auth = one->auth };
    weir_tls_config client = { .max_version = one->version };
    if (one->shown != NULL) {
        client.certificate_pem = one->shown->pem;
        client.key_pem = one->shown->key_pem;
    }
    both.server.tls.context = pair_server_context(&server);
    both.client.tls.context = pair_client_context(&client);
    weir_tls_context *contexts[] = { both.server.tls.context, both.client.tls.context };
    pair_begin(&both);
    pair_carry(&both);
    weir_future *future = weir_tls_handshake(weir_embedded_channel(both.server.embedded));
    if (weir_future_code(future) != one->code)
        fail_msg("%s with %d, version %d", weir_error_name(weir_future_code(future)),
                 (int)one->auth, (int)one->version);
    if (one->code < 0) {
        pair_expect_error(&both.server, one->code);
        pair_expect_error(&both.client, WEIR_ETLS_ALERT);
    } else {
        const weir_tls_session *session = weir_future_value(future);
        bool is_asked = one->auth != WEIR_TLS_CLIENT_AUTH_NONE;
        assert_int_equal(session->peer != NULL, is_asked && one->shown != NULL);
        assert_true(session->peer == NULL || session->peer->is_verified);
        pair_say(&both, &both.client, "hello");
    }
    pair_finish(&both);
    weir_tls_context_release(contexts[0]);
    weir_tls_context_release(contexts[1]);
}

static void clients_are_asked_who_they_are(void **state)
{
    cert old;
    (void)state;
    cert_make(&old,
              &(cert_config){ .name = "old", .issuer = &ca, .from_s = -7200, .until_s = -3600 });
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        const auth_case cases[] = {
            { WEIR_TLS_CLIENT_AUTH_NONE, NULL, version, 0 },
            { WEIR_TLS_CLIENT_AUTH_NONE, &leaf, version, 0 },
            { WEIR_TLS_CLIENT_AUTH_OPTIONAL, NULL, version, 0 },
            { WEIR_TLS_CLIENT_AUTH_OPTIONAL, &leaf, version, 0 },
            { WEIR_TLS_CLIENT_AUTH_OPTIONAL, &other, version, WEIR_ETLS_SELF_SIGNED },
            { WEIR_TLS_CLIENT_AUTH_REQUIRED, NULL, version, WEIR_ETLS_NO_CERTIFICATE },
            { WEIR_TLS_CLIENT_AUTH_REQUIRED, &leaf, version, 0 },
            { WEIR_TLS_CLIENT_AUTH_REQUIRED, &other, version, WEIR_ETLS_SELF_SIGNED },
            { WEIR_TLS_CLIENT_AUTH_REQUIRED, &old, version, WEIR_ETLS_EXPIRED },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            expect_auth(&cases[i]);
    }
    cert_free(&old);
}

/* What both agree on --------------------------------------------------------------------------- */

static void expect_agreement(const weir_tls_config *server, const weir_tls_config *client, int code,
                             const char *alpn)
{
    pair both = { .server.tls.context = pair_server_context(server),
                  .client.tls.context = pair_client_context(client) };
    weir_tls_context *contexts[] = { both.server.tls.context, both.client.tls.context };
    pair_begin(&both);
    pair_carry(&both);
    weir_future *future = weir_tls_handshake(weir_embedded_channel(both.server.embedded));
    if (weir_future_code(future) != code)
        fail_msg("%s", weir_error_name(weir_future_code(future)));
    if (code == 0) {
        const weir_tls_session *here = weir_future_value(future),
                               *there = weir_future_value(
                                   weir_tls_handshake(weir_embedded_channel(both.client.embedded)));
        assert_true(alpn == NULL ? here->alpn == NULL && there->alpn == NULL
                                 : strcmp(here->alpn, alpn) == 0 && strcmp(there->alpn, alpn) == 0);
    }
    weir_embedded_take_error(both.server.embedded, NULL);
    weir_embedded_take_error(both.client.embedded, NULL);
    pair_finish(&both);
    weir_tls_context_release(contexts[0]);
    weir_tls_context_release(contexts[1]);
}

static void alpn_is_agreed_on_or_refused(void **state)
{
    static const char *const web[] = { "h2", "http/1.1", NULL },
                             *const old[] = { "http/1.1", NULL },
                             *const back[] = { "http/1.1", "h2", NULL },
                             *const smtp[] = { "smtp", NULL }, *const none[] = { NULL };
    (void)state;
    expect_agreement(&(weir_tls_config){ .alpn = web }, &(weir_tls_config){ .alpn = back }, 0,
                     "h2");
    expect_agreement(&(weir_tls_config){ .alpn = web }, &(weir_tls_config){ .alpn = old }, 0,
                     "http/1.1");
    expect_agreement(&(weir_tls_config){ .alpn = web }, NULL, 0, NULL);
    expect_agreement(&(weir_tls_config){ .alpn = none }, &(weir_tls_config){ .alpn = web }, 0,
                     NULL);
    expect_agreement(NULL, &(weir_tls_config){ .alpn = web }, 0, NULL);
    expect_agreement(&(weir_tls_config){ .alpn = web }, &(weir_tls_config){ .alpn = smtp },
                     WEIR_ETLS_AGREEMENT, NULL);
}

static void versions_ciphers_and_groups_must_meet(void **state)
{
    (void)state;
    expect_agreement(&(weir_tls_config){ .min_version = WEIR_TLS_1_3 },
                     &(weir_tls_config){ .max_version = WEIR_TLS_1_2 }, WEIR_ETLS_AGREEMENT, NULL);
    expect_agreement(&(weir_tls_config){ .ciphers = "ECDHE-ECDSA-AES128-GCM-SHA256",
                                         .max_version = WEIR_TLS_1_2 },
                     &(weir_tls_config){ .ciphers = "ECDHE-ECDSA-AES256-GCM-SHA384" },
                     WEIR_ETLS_AGREEMENT, NULL);
    expect_agreement(&(weir_tls_config){ .cipher_suites = "TLS_AES_128_GCM_SHA256",
                                         .min_version = WEIR_TLS_1_3 },
                     &(weir_tls_config){ .cipher_suites = "TLS_AES_256_GCM_SHA384" },
                     WEIR_ETLS_AGREEMENT, NULL);
    expect_agreement(&(weir_tls_config){ .groups = "X25519", .min_version = WEIR_TLS_1_3 },
                     &(weir_tls_config){ .groups = "P-256" }, WEIR_ETLS_AGREEMENT, NULL);
    expect_agreement(&(weir_tls_config){ .groups = "P-384" },
                     &(weir_tls_config){ .groups = "X25519:P-384" }, 0, NULL);
}

/* Counting ------------------------------------------------------------------------------------- */

typedef void (*failing)(pair *both);

static void fail_by_time(pair *both)
{
    weir_embedded_advance(both->server.embedded, WEIR_SECONDS(10));
}

static void fail_by_http(pair *both)
{
    weir_embedded_write_inbound_bytes(both->server.embedded, "GET / HTTP/1.1\r\n", 16);
}

static void fail_by_reset(pair *both)
{
    weir_embedded_end_inbound(both->server.embedded, -ECONNRESET);
}

static void fail_by_end(pair *both)
{
    weir_embedded_end_inbound(both->server.embedded, 0);
}

static void fail_by_alert(pair *both)
{
    weir_embedded_write_inbound_bytes(both->server.embedded, "\x15\x03\x03\x00\x02\x02\x28", 7);
}

static void fail_by_close(pair *both)
{
    weir_channel_close(weir_embedded_channel(both->server.embedded), NULL);
    weir_embedded_run(both->server.embedded);
}

static int remove_tls(void *channel)
{
    return weir_pipeline_remove(weir_channel_pipeline(channel), "tls", NULL);
}

static void fail_by_removal(pair *both)
{
    weir_channel *channel = weir_embedded_channel(both->server.embedded);
    weir_embedded_call(both->server.embedded, remove_tls, channel);
}

static void every_handshake_is_counted_once(void **state)
{
    static const failing ways[] = { fail_by_time,  fail_by_http,  fail_by_reset,  fail_by_end,
                                    fail_by_alert, fail_by_close, fail_by_removal };
    weir_tls_context *server = pair_server_context(NULL);
    weir_tls_context_stats stats;
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pair both = { .server.tls.context = server };
        pair_begin(&both);
        ways[i](&both);
        weir_tls_context_get_stats(server, &stats);
        assert_int_equal(stats.failed, i + 1);
        weir_embedded_take_error(both.server.embedded, NULL);
        pair_finish(&both);
        weir_tls_context_get_stats(server, &stats);
        assert_int_equal(stats.failed, i + 1); /* and not again with the channel */
        assert_int_equal(stats.handshakes, i);
        pair good = { .server.tls.context = server };
        pair_begin(&good);
        pair_shake(&good);
        pair_finish(&good);
        weir_tls_context_get_stats(server, &stats);
        assert_int_equal(stats.handshakes, i + 1);
    }
    assert_int_equal(stats.failed, sizeof ways / sizeof *ways);
    weir_tls_context_release(server);
}

/* Reloading ------------------------------------------------------------------------------------ */

static void assert_serial(pair *both, const cert *expected)
{
    const weir_tls_session *session =
        weir_future_value(weir_tls_handshake(weir_embedded_channel(both->client.embedded)));
    unsigned char *der = NULL;
    int length = i2d_X509(expected->x509, &der);
    assert_int_equal(session->peer->der_length, length);
    assert_memory_equal(session->peer->der, der, (size_t)length);
    OPENSSL_free(der);
}

static void reloading_is_for_those_who_come(void **state)
{
    cert renewed;
    weir_error error;
    weir_tls_context_stats stats;
    (void)state;
    cert_make(&renewed, &(cert_config){ .name = "leaf", .alt = "DNS:localhost", .issuer = &ca });
    weir_tls_config config = { .certificate_file = cert_file("own.pem", leaf.pem),
                               .key_file = cert_file("own.key", leaf.key_pem),
                               .session_lifetime_ns = WEIR_OFF };
    weir_tls_context *server, *client;
    assert_int_equal(weir_tls_context_new_server(&server, &config, NULL), 0);
    assert_int_equal(
        weir_tls_context_new_client(&client, &(weir_tls_config){ .ca_pem = ca.pem }, NULL), 0);
    pair before = { .server.tls.context = server, .client.tls.context = client }, behind = before,
         waits = before;
    pair_begin(&before);
    pair_shake(&before);
    pair_begin(&waits); /* the server has its certificate from then on */
    cert_file("own.pem", renewed.pem);
    assert_int_equal(weir_tls_context_reload(server, NULL, &error), WEIR_ETLS_KEY);
    cert_file("own.key", renewed.key_pem);
    assert_int_equal(weir_tls_context_reload(server, NULL, &error), 0);
    assert_int_equal(
        weir_tls_context_reload(server, &(weir_tls_config){ .session_lifetime_ns = -5 }, NULL),
        -EINVAL);
    assert_int_equal(weir_tls_context_reload(NULL, NULL, NULL), -EINVAL);
    pair_begin(&behind);
    pair_shake(&behind);
    pair_shake(&waits);
    assert_serial(&before, &leaf);
    assert_serial(&waits, &leaf);
    assert_serial(&behind, &renewed);
    pair_say(&before, &before.client, "still there");
    pair_say(&before, &before.server, "so am I");
    weir_tls_context_get_stats(server, &stats);
    assert_int_equal(stats.reloads, 1);
    assert_int_equal(stats.handshakes, 3);
    assert_int_equal(stats.failed, 0);
    pair_finish(&before);
    pair_finish(&waits);
    pair_finish(&behind);
    weir_tls_context_release(server);
    weir_tls_context_release(client);
    cert_free(&renewed);
}

/* A reload on a thread of its own. */
typedef struct reloader {
    weir_tls_context *context;
    const weir_tls_config *config;
    pthread_t thread;
    atomic_int id; /* of the thread */
    atomic_bool is_done;
    int code;
} reloader;

static void *run_reloader(void *arg)
{
    reloader *self = arg;
    atomic_store(&self->id, gettid());
    self->code = weir_tls_context_reload(self->context, self->config, NULL);
    atomic_store(&self->is_done, true);
    return NULL;
}

/* Whether it waits for something. */
static bool is_asleep(reloader *self)
{
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&self->id));
    FILE *file = atomic_load(&self->id) != 0 ? fopen(path, "r") : NULL;
    if (file == NULL)
        return false;
    bool is_read = fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    fclose(file);
    return is_read && state == 'S';
}

/* The first one reads a file that is not there yet, and the second one has all that it needs. */
static void the_last_reload_counts(void **state)
{
    (void)state;
    const char *path = cert_file("slow.pem", leaf.pem);
    weir_tls_context *server;
    weir_tls_config slow = { .certificate_file = path, .key_pem = leaf.key_pem };
    weir_tls_config next = { .certificate_pem = leaf.pem,
                             .key_pem = leaf.key_pem,
                             .max_version = WEIR_TLS_1_2 };
    assert_int_equal(weir_tls_context_new_server(&server, &slow, NULL), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    reloader first = { .context = server }, second = { .context = server, .config = &next };
    assert_int_equal(pthread_create(&first.thread, NULL, run_reloader, &first), 0);
    int fifo = open(path, O_WRONLY); /* once it is opened on the other side */
    assert_true(fifo >= 0);
    assert_int_equal(pthread_create(&second.thread, NULL, run_reloader, &second), 0);
    WAIT_FOR(atomic_load(&second.is_done) || is_asleep(&second));
    assert_int_equal(write(fifo, leaf.pem, strlen(leaf.pem)), strlen(leaf.pem));
    close(fifo);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    assert_int_equal(first.code, 0);
    assert_int_equal(second.code, 0);
    weir_tls_context *client;
    assert_int_equal(
        weir_tls_context_new_client(&client, &(weir_tls_config){ .ca_pem = ca.pem }, NULL), 0);
    pair both = { .server.tls.context = server, .client.tls.context = client };
    pair_begin(&both);
    pair_shake(&both);
    const weir_tls_session *session =
        weir_future_value(weir_tls_handshake(weir_embedded_channel(both.server.embedded)));
    assert_int_equal(session->version, WEIR_TLS_1_2);
    pair_finish(&both);
    weir_tls_context_release(server);
    weir_tls_context_release(client);
}

/* The key log ---------------------------------------------------------------------------------- */

static void the_key_log_is_for_its_owner(void **state)
{
    char line[512];
    int lines = 0, secrets = 0;
    struct stat about;
    (void)state;
    const char *path = cert_file("keys.log", NULL);
    weir_tls_config config = { .key_log_file = path };
    int changes = inotify_init1(IN_NONBLOCK);
    assert_true(inotify_add_watch(changes, cert_directory(), IN_ATTRIB) >= 0);
    mode_t before = umask(0);
    pair both = { .server.tls.context = pair_server_context(&config) };
    umask(before);
    assert_int_equal(read(changes, line, sizeof line), -1); /* it is so from the beginning */
    close(changes);
    weir_tls_context *context = both.server.tls.context;
    pair_begin(&both);
    pair_shake(&both);
    pair_finish(&both);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    FILE *log = fopen(path, "r");
    while (fgets(line, sizeof line, log) != NULL) {
        lines++;
        secrets += strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0 ||
                   strncmp(line, "SERVER_TRAFFIC_SECRET_0 ", 24) == 0;
    }
    fclose(log);
    assert_true(lines >= 4);
    assert_int_equal(secrets, 2);
    weir_tls_context_release(context);
}

static void expect_no_key_log(const char *path, int code, const char *words)
{
    weir_error error = { 0 };
    weir_tls_context *context;
    weir_tls_config config = { .key_log_file = path };
    assert_int_equal(weir_tls_context_new_client(&context, &config, &error), code);
    if (strstr(error.message, path) == NULL || strstr(error.message, words) == NULL)
        fail_msg("%s", error.message);
}

/* It is never there for others to open, and whoever has it open keeps it: so what was there before
 * is made one's own, and what leads elsewhere is refused. */
static void the_key_log_goes_nowhere_else(void **state)
{
    struct stat about;
    weir_tls_context *context;
    (void)state;
    const char *path = cert_file("was-there.log", "before\n"), *link = cert_file("link.log", NULL);
    const char *fifo = cert_file("fifo.log", NULL), *dangling = cert_file("dangling.log", NULL);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(symlink("nowhere", dangling), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    expect_no_key_log(link, -ELOOP, "symbolic link");
    expect_no_key_log(dangling, -ELOOP, "symbolic link");
    expect_no_key_log(fifo, -EINVAL, "no regular file");
    expect_no_key_log("/dev/null", -EINVAL, "no regular file");
    expect_no_key_log(cert_directory(), -EISDIR, "directory");
    const char *foreign = cert_file("foreign.log", "theirs\n");
    if (chown(foreign, geteuid() + 1, (gid_t)-1) == 0) /* as who may give files away */
        expect_no_key_log(foreign, -EPERM, "not permitted");
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0666); /* through the link it was not touched */
    assert_int_equal(
        weir_tls_context_new_client(&context, &(weir_tls_config){ .key_log_file = path }, NULL), 0);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(about.st_size, strlen("before\n"));
    weir_tls_context_release(context);
}

/* A program that is started does not get it. */
static void the_key_log_is_not_inherited(void **state)
{
    char link[64], target[256];
    bool is_found = false;
    (void)state;
    const char *path = cert_file("inherited.log", NULL);
    weir_tls_context *context = pair_server_context(&(weir_tls_config){ .key_log_file = path });
    for (int fd = 0; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length < 0 || (target[length] = '\0', strcmp(target, path)) != 0)
            continue;
        is_found = true;
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    assert_true(is_found);
    weir_tls_context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(files_and_texts_are_read),
        weir_case(what_makes_no_sense_is_told),
        weir_case(what_cannot_be_read_is_told),
        weir_case(a_key_must_fit),
        weir_case(a_certificate_for_development),
        weir_case(the_chain_and_the_host_are_verified),
        weir_case(trust_comes_from_files_and_directories),
        weir_case(a_host_must_be_one),
        weir_case(verifying_nothing_takes_anybody),
        weir_case(clients_are_asked_who_they_are),
        weir_case(alpn_is_agreed_on_or_refused),
        weir_case(versions_ciphers_and_groups_must_meet),
        weir_case(every_handshake_is_counted_once),
        weir_case(reloading_is_for_those_who_come),
        weir_case(the_last_reload_counts),
        weir_case(the_key_log_is_for_its_owner),
        weir_case(the_key_log_goes_nowhere_else),
        weir_case(the_key_log_is_not_inherited),
    };
    return cmocka_run_group_tests(tests, make_certificates, forget_certificates);
}
