/* SPDX-License-Identifier: MIT */
/* Sessions that are resumed, and those that must not be. */
#include "tls/certs.h"
#include "tls/context.h"
#include "tls/engine.h"
#include "tls/life.h"
#include "tls/raw.h"
#include "tls/tickets.h"

#include <stdio.h>
#include <string.h>

static cert ca, leaf;

static int begin(void **state)
{
    cert_make(&ca, &(cert_config){ .name = "a CA", .is_ca = true });
    cert_make(&leaf, &(cert_config){ .name = "leaf", .alt = "DNS:localhost", .issuer = &ca });
    return pair_warm_up(state);
}

static int end(void **state)
{
    (void)state;
    cert_free(&ca);
    cert_free(&leaf);
    cert_forget_files();
    return 0;
}

/* A connection of these contexts, so many seconds by the clocks of the loops: whether it was
 * resumed, on which both must agree. */
static bool connect_at(weir_tls_context *server, weir_tls_context *client, int64_t when_s)
{
    pair both = { .server = { .tls.context = server, .begins_ns = WEIR_SECONDS(when_s) },
                  .client = { .tls.context = client, .begins_ns = WEIR_SECONDS(when_s) } };
    pair_begin(&both);
    pair_shake(&both);
    pair_say(&both, &both.server, "hello"); /* and the tickets before it */
    const weir_tls_session *here =
        weir_future_value(weir_tls_handshake(weir_embedded_channel(both.server.embedded)));
    const weir_tls_session *there =
        weir_future_value(weir_tls_handshake(weir_embedded_channel(both.client.embedded)));
    bool is_resumed = there->is_resumed;
    assert_int_equal(here->is_resumed, is_resumed);
    assert_true(there->peer != NULL && there->peer->is_verified);
    assert_true(here->host != NULL && strcmp(here->host, "localhost") == 0);
    pair_finish(&both);
    return is_resumed;
}

static bool connect_them(weir_tls_context *server, weir_tls_context *client)
{
    return connect_at(server, client, 0);
}

static void sessions_are_resumed(void **state)
{
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        weir_tls_context *server =
            pair_server_context(&(weir_tls_config){ .max_version = version });
        weir_tls_context *client = pair_client_context(NULL);
        weir_tls_context_stats stats;
        assert_false(connect_them(server, client));
        for (int i = 0; i < 3; i++)
            assert_true(connect_them(server, client));
        weir_tls_context_get_stats(server, &stats);
        assert_int_equal(stats.handshakes, 4);
        assert_int_equal(stats.resumed, 3);
        weir_tls_context_get_stats(client, &stats);
        assert_int_equal(stats.resumed, 3);
        weir_tls_context_release(server);
        weir_tls_context_release(client);
    }
}

static void they_can_be_off_on_either_side(void **state)
{
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        for (int side = 0; side < 2; side++) {
            weir_tls_config off = { .max_version = version, .session_lifetime_ns = WEIR_OFF };
            weir_tls_config on = { .max_version = version };
            weir_tls_context *server = pair_server_context(side == 0 ? &off : &on);
            weir_tls_context *client = pair_client_context(side == 1 ? &off : &on);
            assert_false(connect_them(server, client));
            assert_false(connect_them(server, client));
            weir_tls_context_release(server);
            weir_tls_context_release(client);
        }
    }
}

static void copy_keys(weir_tls_context *to, const weir_tls_context *from)
{
    memcpy(to->tickets.keys, from->tickets.keys, sizeof to->tickets.keys);
    to->tickets.count = from->tickets.count;
}

/* Another context, perhaps with the keys of the first. */
static void expect_strangers(bool share_keys)
{
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        weir_tls_config config = { .max_version = version };
        weir_tls_context *server = pair_server_context(&config);
        weir_tls_context *other = pair_server_context(&config);
        weir_tls_context *client = pair_client_context(NULL);
        assert_false(connect_them(server, client));
        if (share_keys)
            copy_keys(other, server);
        assert_false(connect_them(other, client));
        weir_tls_context_release(server);
        weir_tls_context_release(other);
        weir_tls_context_release(client);
    }
}

static void another_context_does_not_know_them(void **state)
{
    (void)state;
    expect_strangers(false);
}

/* With the keys of another, but not who it is: the session is bound to the context all the same. */
static void keys_alone_do_not_help(void **state)
{
    (void)state;
    expect_strangers(true);
}

/* From one way of asking clients who they are to another: in the same context, or in one that has
 * the keys, at no port, as with sockets of the file system. */
static void expect_another_policy(weir_tls_version version, weir_tls_client_auth from,
                                  weir_tls_client_auth to, bool is_same_context)
{
    weir_tls_config own = { .certificate_pem = leaf.pem, .key_pem = leaf.key_pem };
    weir_tls_config config = { .max_version = version, .ca_pem = ca.pem, .client_auth = from };
    weir_tls_context *server = pair_server_context(&config);
    config.client_auth = to;
    weir_tls_context *other = pair_server_context(&config);
    weir_tls_context *client = pair_client_context(&own);
    assert_false(connect_them(server, client));
    assert_true(connect_them(server, client));
    config.certificate_pem = pair_identity()->certificate_pem;
    config.key_pem = pair_identity()->key_pem;
    if (is_same_context)
        assert_int_equal(weir_tls_context_reload(server, &config, NULL), 0);
    else
        copy_keys(other, server);
    assert_false(connect_them(is_same_context ? server : other, client));
    weir_tls_context_release(server);
    weir_tls_context_release(other);
    weir_tls_context_release(client);
}

static void another_policy_does_not_know_them(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * 3 * 3 * 2; i++) {
        weir_tls_version version = i % 2 == 0 ? WEIR_TLS_1_2 : WEIR_TLS_1_3;
        weir_tls_client_auth from = (weir_tls_client_auth)(i / 2 % 3);
        weir_tls_client_auth to = (weir_tls_client_auth)(i / 6 % 3);
        if (from != to)
            expect_another_policy(version, from, to, i >= 18);
    }
}

/* Engines know the port. */
static bool engines_resume(weir_tls_context *server, weir_tls_context *client, uint16_t at,
                           uint16_t to)
{
    weir_tls_engine *ends[2];
    weir_tls_step steps[2] = { WEIR_TLS_STEP_MORE, WEIR_TLS_STEP_MORE };
    assert_int_equal(weir__tls_engine_new(&ends[0], client,
                                          &(weir_tls_peer){ .host = "localhost", .port = to },
                                          NULL),
                     0);
    assert_int_equal(weir__tls_engine_new(&ends[1], server, &(weir_tls_peer){ .port = at }, NULL),
                     0);
    steps[0] = weir__tls_engine_shake(ends[0], NULL, 0, NULL);
    for (int i = 0; i < 8; i++) {
        int from = i % 2, towards = 1 - from;
        weir_buf *carried = weir__tls_engine_take_output(ends[from]);
        if (carried == NULL)
            continue;
        weir_buf *plain = weir_buf_new(4096);
        if (steps[towards] == WEIR_TLS_STEP_DONE)
            weir__tls_engine_decrypt(ends[towards], carried, weir_buf_readable(carried), plain,
                                     NULL);
        else
            steps[towards] = weir__tls_engine_shake(ends[towards], carried,
                                                    weir_buf_readable(carried), NULL);
        weir_buf_release(plain);
        weir_buf_release(carried);
    }
    assert_int_equal(steps[0], WEIR_TLS_STEP_DONE);
    assert_int_equal(steps[1], WEIR_TLS_STEP_DONE);
    weir_tls_session *session = weir__tls_engine_session(ends[1]);
    bool is_resumed = session->is_resumed;
    weir_msg_release(&session->msg);
    weir__tls_engine_close(ends[0]); /* what was cut off is not resumed */
    weir__tls_engine_close(ends[1]);
    weir__tls_engine_free(ends[0]);
    weir__tls_engine_free(ends[1]);
    return is_resumed;
}

static void another_port_does_not_know_them(void **state)
{
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        weir_tls_context *server =
            pair_server_context(&(weir_tls_config){ .max_version = version });
        weir_tls_context *client = pair_client_context(NULL);
        assert_false(engines_resume(server, client, 443, 443));
        assert_true(engines_resume(server, client, 443, 443));
        assert_false(engines_resume(server, client, 8443, 443)); /* what listens there is another */
        assert_false(engines_resume(server, client, 8444, 8444));
        weir_tls_context_release(server);
        weir_tls_context_release(client);
    }
}

/* A client of OpenSSL, which resumes a session under any name; it leaves the next one there.
 * Returns whether it was resumed. */
static bool resumes_at(int64_t when_s, weir_tls_context *context, int version, const char *name,
                       SSL_SESSION **session)
{
    pair_end server = { .tls = { .context = context, .handshake_timeout_ns = WEIR_OFF } };
    weir_embedded_config config = { .init = pair_init, .arg = &server };
    static raw client;
    assert_int_equal(weir_embedded_new(&server.embedded, &config, NULL), 0);
    weir_embedded_advance(server.embedded, WEIR_SECONDS(when_s));
    raw_begin(&client, server.embedded, false, version);
    if (name != NULL)
        assert_int_equal(SSL_set_tlsext_host_name(client.ssl, name), 1);
    if (*session != NULL)
        assert_int_equal(SSL_set_session(client.ssl, *session), 1);
    raw_carry(&client);
    assert_true(SSL_is_init_finished(client.ssl));
    const weir_tls_session *told =
        weir_future_value(weir_tls_handshake(weir_embedded_channel(server.embedded)));
    assert_true(name == NULL ? told->host == NULL : strcmp(told->host, name) == 0);
    bool is_resumed = SSL_session_reused(client.ssl) == 1;
    assert_int_equal(told->is_resumed, is_resumed);
    SSL_SESSION_free(*session);
    *session = SSL_get1_session(client.ssl);
    SSL_shutdown(client.ssl); /* what is cut off is not resumed */
    raw_carry(&client);
    raw_end(&client);
    weir_embedded_free(server.embedded);
    return is_resumed;
}

static bool resumes_as(weir_tls_context *context, int version, const char *name,
                       SSL_SESSION **session)
{
    return resumes_at(0, context, version, name, session);
}

static void another_name_does_not_know_them(void **state)
{
    static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_tls_context *server = pair_server_context(NULL);
        SSL_SESSION *session = NULL;
        assert_false(resumes_as(server, versions[i], "a.example.org", &session));
        assert_true(resumes_as(server, versions[i], "a.example.org", &session));
        assert_false(resumes_as(server, versions[i], "b.example.org", &session));
        assert_true(resumes_as(server, versions[i], "b.example.org", &session));
        assert_false(resumes_as(server, versions[i], NULL, &session));
        assert_true(resumes_as(server, versions[i], NULL, &session));
        assert_false(resumes_as(server, versions[i], "a.example.org", &session));
        SSL_SESSION_free(session);
        weir_tls_context_release(server);
    }
}

/* Whom one trusts ------------------------------------------------------------------------------ */

static void reloading_a_certificate_keeps_them(void **state)
{
    (void)state;
    weir_tls_context *server = pair_server_context(NULL), *client = pair_client_context(NULL);
    assert_false(connect_them(server, client));
    assert_int_equal(weir_tls_context_reload(server, NULL, NULL), 0);
    assert_true(connect_them(server, client));
    weir_tls_context_release(server);
    weir_tls_context_release(client);
}

/* As the same, or as another config, or as the same file with others in it. */
static void trusting_others_ends_them(void **state)
{
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        for (int way = 0; way < 3; way++) {
            const char *path = cert_file("trusted.pem", ca.pem);
            weir_tls_config config = { .ca_file = path,
                                       .max_version = version,
                                       .client_auth = WEIR_TLS_CLIENT_AUTH_OPTIONAL };
            weir_tls_config own = { .certificate_pem = leaf.pem, .key_pem = leaf.key_pem };
            weir_tls_context *server = pair_server_context(&config);
            weir_tls_context *client = pair_client_context(&own);
            assert_false(connect_them(server, client));
            assert_true(connect_them(server, client));
            weir_tls_config nobody = { 0 };
            assert_int_equal(weir_tls_context_reload(client, &nobody, NULL), 0);
            assert_int_equal(
                weir_tls_context_reload(
                    client, &(weir_tls_config){ .ca_pem = pair_identity()->certificate_pem }, NULL),
                0);
            assert_false(connect_them(server, client)); /* the client's were forgotten */
            assert_true(connect_them(server, client));
            config.certificate_pem = pair_identity()->certificate_pem;
            config.key_pem = pair_identity()->key_pem;
            if (way == 1)
                config.client_auth = WEIR_TLS_CLIENT_AUTH_NONE;
            if (way == 2)
                cert_file("trusted.pem", leaf.pem);
            assert_int_equal(weir_tls_context_reload(server, way == 2 ? NULL : &config, NULL), 0);
            assert_false(connect_them(server, client));
            weir_tls_context_release(server);
            weir_tls_context_release(client);
        }
    }
}

/* A ticket that is still on its way when its connection's server is not trusted any more. */
static void a_late_ticket_does_not_count(void **state)
{
    weir_tls_context *server = pair_server_context(NULL), *client = pair_client_context(NULL);
    pair both = { .server.tls.context = server, .client.tls.context = client }, again = both;
    (void)state;
    pair_begin(&both);
    pair_carry_to(&both, &both.server);
    pair_carry_to(&both, &both.client);
    pair_carry_to(&both, &both.server); /* which has answered with tickets */
    assert_int_equal(weir_tls_context_reload(client, &(weir_tls_config){ .ca_pem = ca.pem }, NULL),
                     0);
    pair_carry(&both);
    pair_begin(&again);
    pair_carry(&again);
    pair_expect_error(&again.client, WEIR_ETLS_SELF_SIGNED);
    pair_expect_error(&again.server, WEIR_ETLS_ALERT);
    pair_finish(&again);
    pair_finish(&both);
    weir_tls_context_release(server);
    weir_tls_context_release(client);
}

/* How long --------------------------------------------------------------------------------------
 */

/* Each time with another ticket, and all of them from one handshake. */
static void expect_life_of_100(const weir_tls_config *servers, const weir_tls_config *clients)
{
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        weir_tls_config config = *servers;
        config.max_version = version;
        weir_tls_context *server = pair_server_context(&config);
        weir_tls_context *client = pair_client_context(clients);
        assert_false(connect_at(server, client, 1));
        assert_true(connect_at(server, client, 45));
        assert_true(connect_at(server, client, 90));
        assert_true(connect_at(server, client, 100));
        assert_false(connect_at(server, client, 101));
        assert_true(connect_at(server, client, 200)); /* of the second one */
        assert_false(connect_at(server, client, 201));
        weir_tls_context_release(server);
        weir_tls_context_release(client);
    }
}

static void a_server_counts_from_the_whole_handshake(void **state)
{
    (void)state;
    expect_life_of_100(&(weir_tls_config){ .session_lifetime_ns = WEIR_SECONDS(100) },
                       &(weir_tls_config){ 0 });
}

static void a_client_counts_from_the_whole_handshake(void **state)
{
    (void)state;
    expect_life_of_100(&(weir_tls_config){ 0 },
                       &(weir_tls_config){ .session_lifetime_ns = WEIR_SECONDS(100) });
}

/* A ticket that comes late is not younger for that. */
static void a_late_ticket_counts_from_the_handshake(void **state)
{
    weir_tls_context *server = pair_server_context(NULL);
    weir_tls_context *client =
        pair_client_context(&(weir_tls_config){ .session_lifetime_ns = WEIR_SECONDS(100) });
    (void)state;
    for (int late = 0; late < 2; late++) {
        pair both = { .server.tls.context = server, .client.tls.context = client };
        pair_begin(&both);
        pair_carry_to(&both, &both.server);
        pair_carry_to(&both, &both.client);
        pair_carry_to(&both, &both.server); /* which has answered with tickets */
        weir_embedded_advance(both.client.embedded, WEIR_SECONDS(90));
        pair_carry(&both);
        pair_finish(&both);
        assert_int_equal(connect_at(server, client, 99 + late), late == 0);
        weir_tls_context_reload(client, NULL, NULL); /* which forgets them */
    }
    weir_tls_context_release(server);
    weir_tls_context_release(client);
}

static void clients_are_told_what_is_left(void **state)
{
    static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_tls_context *server =
            pair_server_context(&(weir_tls_config){ .session_lifetime_ns = WEIR_SECONDS(100) });
        SSL_SESSION *session = NULL;
        assert_false(resumes_at(0, server, versions[i], NULL, &session));
        assert_int_equal(SSL_SESSION_get_ticket_lifetime_hint(session), 100);
        assert_true(resumes_at(60, server, versions[i], NULL, &session));
        if (versions[i] == TLS1_3_VERSION) /* in 1.2 OpenSSL says nothing of it */
            assert_int_equal(SSL_SESSION_get_ticket_lifetime_hint(session), 40);
        SSL_SESSION_free(session);
        weir_tls_context_release(server);
    }
}

/* A certificate and its CA: the one that expires first does after half an hour. */
typedef struct brief {
    cert ca, leaf;
    weir_virtual_clock clock;
} brief;

static void make_brief(brief *made, long ca_s, long leaf_s)
{
    cert_make(&made->ca, &(cert_config){ .name = "brief", .is_ca = true, .until_s = ca_s });
    cert_make(&made->leaf,
              &(cert_config){
                  .name = "leaf", .alt = "DNS:localhost", .issuer = &made->ca, .until_s = leaf_s });
    weir_virtual_clock_init(&made->clock, weir_clock_now_ns(weir_clock_wall()));
}

static void free_brief(brief *made)
{
    cert_free(&made->ca);
    cert_free(&made->leaf);
}

/* With certificates that a whole handshake would take, so that it only shows whether there is one:
 * OpenSSL asks another clock. */
static void expect_expiry(weir_tls_context *server, weir_tls_context *client, brief *made)
{
    assert_false(connect_them(server, client));
    assert_true(connect_them(server, client));
    weir_virtual_clock_advance(&made->clock, WEIR_SECONDS(1790));
    assert_true(connect_them(server, client));
    weir_virtual_clock_advance(&made->clock, WEIR_SECONDS(10));
    assert_false(connect_them(server, client));
    weir_tls_context_release(server);
    weir_tls_context_release(client);
}

static void a_client_that_has_expired_is_verified_anew(void **state)
{
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        for (int is_ca = 0; is_ca < 2; is_ca++) {
            brief made;
            make_brief(&made, is_ca ? 1800 : 3600, is_ca ? 3600 : 1800);
            weir_tls_context *server = pair_server_context(
                &(weir_tls_config){ .ca_pem = made.ca.pem,
                                    .client_auth = WEIR_TLS_CLIENT_AUTH_REQUIRED,
                                    .max_version = version });
            weir_tls_context *client = pair_client_context(&(weir_tls_config){
                .certificate_pem = made.leaf.pem, .key_pem = made.leaf.key_pem });
            server->wall = &made.clock.clock;
            expect_expiry(server, client, &made);
            free_brief(&made);
        }
    }
}

static void a_server_that_has_expired_is_verified_anew(void **state)
{
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        for (int is_ca = 0; is_ca < 2; is_ca++) {
            brief made;
            weir_tls_context *server, *client;
            make_brief(&made, is_ca ? 1800 : 3600, is_ca ? 3600 : 1800);
            assert_int_equal(
                weir_tls_context_new_server(&server,
                                            &(weir_tls_config){ .certificate_pem = made.leaf.pem,
                                                                .key_pem = made.leaf.key_pem,
                                                                .max_version = version },
                                            NULL),
                0);
            assert_int_equal(weir_tls_context_new_client(
                                 &client, &(weir_tls_config){ .ca_pem = made.ca.pem }, NULL),
                             0);
            client->wall = &made.clock.clock;
            expect_expiry(server, client, &made);
            free_brief(&made);
        }
    }
}

/* Keys ----------------------------------------------------------------------------------------- */

static int apply(weir_tls_tickets *tickets, unsigned char name[16], bool is_encrypting,
                 int64_t now_s)
{
    unsigned char iv[16] = { 0 };
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = EVP_MAC_CTX_new(hmac);
    int result = weir__tls_tickets_apply(tickets, name, iv, cipher, mac, is_encrypting,
                                         now_s * 1000000000);
    EVP_MAC_CTX_free(mac);
    EVP_MAC_free(hmac);
    EVP_CIPHER_CTX_free(cipher);
    return result;
}

static void keys_change_with_time(void **state)
{
    weir_tls_tickets tickets;
    unsigned char first[16], second[16], name[16], never[16] = "nobody's";
    (void)state;
    weir__tls_tickets_init(&tickets);
    weir__tls_tickets_set_life(&tickets, 100);
    assert_int_equal(apply(&tickets, first, true, 1000), 1);
    assert_int_equal(apply(&tickets, name, true, 1049), 1);
    assert_memory_equal(first, name, 16);
    assert_int_equal(apply(&tickets, second, true, 1050), 1);
    assert_memory_not_equal(first, second, 16);
    assert_int_equal(apply(&tickets, second, false, 1099), 1);
    assert_int_equal(apply(&tickets, first, false, 1099), 2); /* good, but make another */
    assert_int_equal(apply(&tickets, never, false, 1099), 0);
    assert_int_equal(apply(&tickets, first, false, 1148), 2); /* 99 behind the last one with it */
    assert_int_equal(apply(&tickets, first, false, 1149), 2);
    assert_int_equal(apply(&tickets, first, false, 1150), 0);
    assert_int_equal(apply(&tickets, second, false, 1199), 2);
    weir__tls_tickets_deinit(&tickets);
}

/* Whether a secret is nowhere among the keys. */
static bool is_wiped(const weir_tls_tickets *tickets, const weir_tls_ticket_key *key)
{
    return memmem(tickets->keys, sizeof tickets->keys, key->secret, sizeof key->secret) == NULL &&
           memmem(tickets->keys, sizeof tickets->keys, key->mac_secret, sizeof key->mac_secret) ==
               NULL;
}

/* Nobody came for long, so that there were no newer ones in their place. */
static void old_keys_are_wiped(void **state)
{
    weir_tls_tickets tickets;
    unsigned char name[16];
    (void)state;
    for (int is_encrypting = 0; is_encrypting < 2; is_encrypting++) {
        weir__tls_tickets_init(&tickets);
        weir__tls_tickets_set_life(&tickets, 100);
        assert_int_equal(apply(&tickets, name, true, 1000), 1);
        weir_tls_ticket_key first = tickets.keys[0];
        assert_int_equal(apply(&tickets, name, true, 1149), 1);
        weir_tls_ticket_key second = tickets.keys[0];
        assert_false(is_wiped(&tickets, &first));
        memcpy(name, first.name, sizeof name);
        assert_int_equal(apply(&tickets, name, is_encrypting, 1150), is_encrypting);
        assert_true(is_wiped(&tickets, &first));
        assert_false(is_wiped(&tickets, &second));
        memcpy(name, second.name, sizeof name);
        assert_int_equal(apply(&tickets, name, is_encrypting, 1299), is_encrypting);
        assert_true(is_wiped(&tickets, &second));
        assert_int_equal(tickets.count, 1); /* the one that was made just now */
        weir__tls_tickets_deinit(&tickets);
    }
}

static void keys_that_nobody_needs_are_wiped(void **state)
{
    weir_tls_config own = { .certificate_pem = leaf.pem, .key_pem = leaf.key_pem }, off = own;
    weir_tls_context *server = pair_server_context(NULL), *client = pair_client_context(NULL);
    (void)state;
    off.session_lifetime_ns = WEIR_OFF;
    assert_false(connect_them(server, client));
    weir_tls_ticket_key key = server->tickets.keys[0];
    assert_int_equal(weir_tls_context_reload(server, &own, NULL), 0);
    assert_false(is_wiped(&server->tickets, &key));
    assert_int_equal(weir_tls_context_reload(server, &off, NULL), 0);
    assert_true(is_wiped(&server->tickets, &key));
    weir_tls_context_release(server);
    weir_tls_context_release(client);
}

/* Clients that come back, by the clock of the loop: with the key of before, and the one before. */
static void keys_change_with_the_loops_time(void **state)
{
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        weir_tls_context *server = pair_server_context(&(weir_tls_config){
            .session_lifetime_ns = WEIR_SECONDS(1000), .max_version = version });
        weir_tls_context *busy = pair_client_context(NULL), *late = pair_client_context(NULL);
        unsigned char first[16];
        assert_false(connect_at(server, busy, 1));
        assert_false(connect_at(server, late, 500));
        memcpy(first, server->tickets.keys[0].name, sizeof first);
        assert_true(connect_at(server, busy, 500));
        assert_memory_equal(server->tickets.keys[0].name, first, sizeof first);
        assert_true(connect_at(server, busy, 501)); /* with the old key, and a ticket of the new */
        assert_memory_not_equal(server->tickets.keys[0].name, first, sizeof first);
        assert_true(connect_at(server, busy, 1000));
        assert_false(connect_at(server, busy, 1001)); /* its time is over; there is a third key */
        assert_true(connect_at(server, late, 1499));  /* with the oldest */
        assert_memory_equal(server->tickets.keys[2].name, first, sizeof first);
        weir_tls_context_release(server);
        weir_tls_context_release(busy);
        weir_tls_context_release(late);
    }
}

/* The client's table --------------------------------------------------------------------------- */

static void a_client_keeps_one_for_each_of_256(void **state)
{
    weir_tls_sessions sessions;
    weir_clock *wall = weir_clock_wall();
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    char name[32];
    (void)state;
    weir__tls_sessions_init(&sessions);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 400; i++) {
            SSL_SESSION *session = SSL_SESSION_new();
            weir__tls_life_note(ssl, session);
            snprintf(name, sizeof name, "host%d:443", i);
            weir__tls_sessions_put(&sessions, 0, name, session);
        }
    }
    assert_int_equal(sessions.count, 256);
    assert_null(weir__tls_sessions_get(&sessions, 0, "host143:443", 100, wall));
    SSL_SESSION *found = weir__tls_sessions_get(&sessions, 0, "host144:443", 100, wall);
    assert_non_null(found);
    SSL_SESSION_free(found);
    assert_int_equal(sessions.count, 256);
    assert_null(weir__tls_sessions_get(&sessions, 0, "host144:443", 0, wall));
    assert_int_equal(sessions.count, 255); /* one that is too old is not kept */
    weir__tls_sessions_deinit(&sessions);
    SSL_free(ssl);
    SSL_CTX_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(sessions_are_resumed),
        weir_case(they_can_be_off_on_either_side),
        weir_case(another_context_does_not_know_them),
        weir_case(keys_alone_do_not_help),
        weir_case(another_policy_does_not_know_them),
        weir_case(another_port_does_not_know_them),
        weir_case(another_name_does_not_know_them),
        weir_case(reloading_a_certificate_keeps_them),
        weir_case(trusting_others_ends_them),
        weir_case(a_late_ticket_does_not_count),
        weir_case(a_server_counts_from_the_whole_handshake),
        weir_case(a_client_counts_from_the_whole_handshake),
        weir_case(a_late_ticket_counts_from_the_handshake),
        weir_case(clients_are_told_what_is_left),
        weir_case(a_client_that_has_expired_is_verified_anew),
        weir_case(a_server_that_has_expired_is_verified_anew),
        weir_case(keys_change_with_time),
        weir_case(old_keys_are_wiped),
        weir_case(keys_that_nobody_needs_are_wiped),
        weir_case(keys_change_with_the_loops_time),
        weir_case(a_client_keeps_one_for_each_of_256),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
