/* SPDX-License-Identifier: MIT */
/* Every allocation fails once, weir's and OpenSSL's: nothing crashes, hangs or is left. */
#include "tls/pair.h"

#include <weir/tls_select.h>

#include <openssl/crypto.h>
#include <openssl/err.h>

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* OpenSSL's allocations ------------------------------------------------------------------------ */

static atomic_long live, calls, fail_at; /* 0: none fails */

static bool must_fail(void)
{
    long nth = atomic_fetch_add(&calls, 1) + 1;
    return nth == atomic_load(&fail_at);
}

static void *counting_alloc(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    void *made = must_fail() ? NULL : malloc(size);
    atomic_fetch_add(&live, made != NULL);
    return made;
}

static void counting_free(void *block, const char *file, int line)
{
    (void)file, (void)line;
    atomic_fetch_sub(&live, block != NULL);
    free(block);
}

static void *counting_realloc(void *block, size_t size, const char *file, int line)
{
    if (block == NULL)
        return counting_alloc(size, file, line);
    if (size == 0) {
        counting_free(block, file, line);
        return NULL;
    }
    return must_fail() ? NULL : realloc(block, size);
}

/* Scenarios: each returns whether all of it went well ------------------------------------------ */

static const char *const protocols[] = { "h2", NULL };

static bool make_contexts(weir_tls_context **server, weir_tls_context **client,
                          weir_tls_version version)
{
    const weir_tls_config of_server = { .certificate_pem = pair_identity()->certificate_pem,
                                        .key_pem = pair_identity()->key_pem,
                                        .ca_pem = pair_identity()->certificate_pem,
                                        .client_auth = WEIR_TLS_CLIENT_AUTH_OPTIONAL,
                                        .alpn = protocols };
    const weir_tls_config of_client = { .ca_pem = pair_identity()->certificate_pem,
                                        .certificate_pem = pair_identity()->certificate_pem,
                                        .key_pem = pair_identity()->key_pem,
                                        .max_version = version,
                                        .alpn = protocols };
    weir_error error = { 0 };
    *server = *client = NULL;
    int code = weir_tls_context_new_server(server, &of_server, &error);
    if (code == 0)
        code = weir_tls_context_new_client(client, &of_client, &error);
    if (code < 0)
        assert_true(error.code == code && error.message[0] != '\0');
    return code == 0;
}

static weir_tls_version version_wanted;

static bool contexts_scenario(void *arg)
{
    weir_tls_context *server, *client;
    (void)arg;
    bool is_made = make_contexts(&server, &client, version_wanted);
    if (is_made)
        is_made = weir_tls_context_reload(server, NULL, NULL) == 0;
    weir_tls_context_release(server);
    weir_tls_context_release(client);
    return is_made;
}

static bool self_signed_scenario(void *arg)
{
    weir_tls_self_signed own;
    (void)arg;
    return weir_tls_self_signed_make(&own, "example.org", NULL) == 0;
}

static bool is_shaken(const pair_end *end)
{
    weir_future *future = weir_tls_handshake(weir_embedded_channel(end->embedded));
    return future != NULL && weir_future_code(future) == 0;
}

static void send_text(pair_end *end, const char *text)
{
    weir_buf *buf = weir_buf_from(text, strlen(text));
    if (buf == NULL)
        return;
    weir_embedded_write_outbound(end->embedded, &buf->msg);
    weir_embedded_flush(end->embedded);
}

static bool has_heard(pair_end *end, const char *text)
{
    char heard[64] = "";
    pair_heard(end, heard, sizeof heard);
    assert_true(strncmp(text, heard, strlen(heard)) == 0); /* nothing else than was said */
    return strcmp(text, heard) == 0;
}

static void release_context(void *context)
{
    weir_tls_context_release(context);
}

/* How the server comes to its TLS, and where both compute their handshakes. */
typedef enum way {
    AS_ALWAYS,
    BY_NAME,   /* SNI, with a table */
    BY_CHOICE, /* and with somebody who is asked */
    IF_AT_ALL, /* TLS or not */
    ELSEWHERE, /* on a business group */
    WAYS,
} way;

static way way_wanted;
static weir_group *business; /* of ELSEWHERE, which is stepped here */

static void choose(weir_channel *channel, const char *host, weir_promise *promise, void *arg)
{
    weir_tls_context **contexts = arg;
    (void)channel;
    assert_string_equal(host, "localhost");
    if (weir_promise_succeed(promise, weir_tls_context_retain(contexts[0]), release_context) < 0)
        weir_tls_context_release(contexts[0]);
}

/* Carries bytes, and computes, until nothing moves. */
static void carry(pair *both)
{
    bool has_moved;
    do {
        has_moved = pair_carry(both) > 0;
        while (way_wanted == ELSEWHERE && weir_group_step(business) > 0)
            has_moved = true;
        weir_embedded_run(both->client.embedded);
        weir_embedded_run(both->server.embedded);
    } while (has_moved);
}

static bool talk(pair *both)
{
    carry(both);
    if (!is_shaken(&both->client) || !is_shaken(&both->server))
        return false;
    send_text(&both->client, "hello");
    carry(both);
    bool is_fine = has_heard(&both->server, "hello");
    send_text(&both->server, "and back");
    carry(both);
    is_fine &= has_heard(&both->client, "and back");
    weir_channel_close(weir_embedded_channel(both->client.embedded), NULL);
    weir_embedded_run(both->client.embedded);
    carry(both);
    weir_embedded_advance(both->client.embedded, WEIR_SECONDS(1));
    return is_fine && !weir_channel_is_open(weir_embedded_channel(both->client.embedded));
}

static bool is_over_or_silent(const pair_end *end)
{
    weir_channel *channel = weir_embedded_channel(end->embedded);
    weir_future *future = weir_tls_handshake(channel);
    return !weir_channel_is_open(channel) || (future != NULL && weir_future_code(future) == 0);
}

static void end_for_the_other(pair_end *end, const pair_end *other)
{
    if (!weir_channel_is_open(weir_embedded_channel(other->embedded)))
        weir_embedded_end_inbound(end->embedded, 0);
}

/* A connection, all of whose bytes are carried. Behind the time for handshakes it is there, or it
 * is gone. */
static bool connect_and_talk(pair *both)
{
    weir_embedded_config of_client = { .init = pair_init, .arg = &both->client };
    weir_embedded_config of_server = { .init = pair_init, .arg = &both->server };
    bool is_fine = weir_embedded_new(&both->client.embedded, &of_client, NULL) == 0 &&
                   weir_embedded_new(&both->server.embedded, &of_server, NULL) == 0;
    if (is_fine) {
        is_fine = talk(both);
        pair_end *ends[] = { &both->client, &both->server };
        for (size_t i = 0; i < 2; i++) {
            weir_embedded_advance(ends[i]->embedded, WEIR_SECONDS(30));
            if (way_wanted == IF_AT_ALL) /* which waits for who says nothing */
                end_for_the_other(ends[i], ends[1 - i]);
            assert_true(is_over_or_silent(ends[i]));
            is_fine &= !weir_embedded_take_error(ends[i]->embedded, NULL);
        }
    }
    weir_embedded_free(both->client.embedded);
    weir_embedded_free(both->server.embedded);
    return is_fine;
}

static bool connection_scenario(void *arg)
{
    weir_tls_context **contexts = arg;
    pair both = { .client.tls = { .context = contexts[1], .host = "localhost" },
                  .server.tls.context = contexts[0] };
    weir_tls_hosts *hosts = NULL;
    const weir_tls_host list[] = { { "localhost", contexts[0] } };
    if (way_wanted == BY_NAME && weir_tls_hosts_new(&hosts, list, 1, NULL, NULL) < 0)
        return false;
    weir_tls_sni sni = { .hosts = hosts, .arg = contexts };
    sni.choose = way_wanted == BY_CHOICE ? choose : NULL;
    if (way_wanted == BY_NAME || way_wanted == BY_CHOICE) {
        both.server.first = &weir_tls_sni_handler;
        both.server.first_arg = &sni;
    } else if (way_wanted == IF_AT_ALL) {
        both.server.first = &weir_tls_optional_handler;
        both.server.first_arg = &both.server.tls;
    } else if (way_wanted == ELSEWHERE) {
        both.server.tls.handshake_group = both.client.tls.handshake_group = business;
    }
    bool is_fine = connect_and_talk(&both);
    weir_tls_hosts_release(hosts);
    return is_fine;
}

/* Running them --------------------------------------------------------------------------------- */

/* Whose memory is to fail, and when. */
typedef struct fault {
    const char *of;  /* "alloc" or "pool" of weir; NULL: OpenSSL's */
    long nth, count; /* of calls, behind the end */
} fault;

static void arm(const fault *self)
{
    if (self->of != NULL) {
        harness_fail_nth(self->of, (unsigned)self->nth, -ENOMEM);
        return;
    }
    atomic_store(&calls, 0);
    atomic_store(&fail_at, self->nth);
}

static void disarm(fault *self)
{
    atomic_store(&fail_at, 0);
    self->count = self->of == NULL ? atomic_load(&calls) : (long)harness_fail_end();
    ERR_clear_error();
}

static bool run_contexts(fault *with)
{
    arm(with);
    bool is_fine = contexts_scenario(NULL);
    disarm(with);
    return is_fine;
}

static bool run_self_signed(fault *with)
{
    arm(with);
    bool is_fine = self_signed_scenario(NULL);
    disarm(with);
    return is_fine;
}

/* With contexts of its own, for they keep something for each loop. */
static bool run_connection(fault *with)
{
    weir_tls_context *contexts[2];
    assert_true(make_contexts(&contexts[0], &contexts[1], version_wanted));
    arm(with);
    bool is_fine = connection_scenario(contexts);
    disarm(with);
    if (with->nth % 16 == 0)
        assert_true(connection_scenario(contexts)); /* the next time it works */
    weir_tls_context_release(contexts[0]);
    weir_tls_context_release(contexts[1]);
    return is_fine;
}

/* OpenSSL has caches, which may be fuller behind it: what is left again and again is lost. */
static void expect_nothing_left(bool (*run)(fault *), const fault *with)
{
    long left = 1;
    for (int i = 0; i < 4 && left > 0; i++) {
        long before = atomic_load(&live);
        fault again = *with;
        run(&again);
        left = atomic_load(&live) - before;
    }
    if (left > 0)
        fail_msg("%ld of OpenSSL left behind %ld", left, with->nth);
}

static void fail_each(bool (*run)(fault *), const char *of, long step)
{
    for (int i = 0; i < 3; i++) { /* OpenSSL keeps some things from the first time on */
        fault none = { .of = of, .nth = INT_MAX };
        assert_true(run(&none));
    }
    harness_log_begin(WEIR_LOG_ERROR);
    fault with = { .of = of, .nth = 1 };
    for (;; with.nth += step) {
        long before = atomic_load(&live);
        bool is_fine = run(&with);
        long left = atomic_load(&live) - before;
        if (left > 0)
            expect_nothing_left(run, &with);
        if (with.nth > with.count) {
            assert_true(is_fine);
            break;
        }
    }
    harness_log_end();
}

/* There are very many; all of them when there is time. */
static long step_of(long step)
{
    return getenv("WEIR_LONG_TESTS") != NULL ? 1 : step;
}

static void contexts_without_memory_of_weir(void **state)
{
    (void)state;
    fail_each(run_contexts, "alloc", 1);
    fail_each(run_self_signed, "alloc", 1);
}

static void connections_without_memory_of_weir(void **state)
{
    (void)state;
    for (version_wanted = WEIR_TLS_1_2; version_wanted <= WEIR_TLS_1_3; version_wanted++) {
        fail_each(run_connection, "alloc", 1);
        fail_each(run_connection, "pool", 1);
    }
}

static void certificates_without_memory_of_openssl(void **state)
{
    (void)state;
    fail_each(run_self_signed, NULL, step_of(1));
}

static void contexts_without_memory_of_openssl(void **state)
{
    (void)state;
    version_wanted = WEIR_TLS_1_3;
    fail_each(run_contexts, NULL, step_of(211));
}

/* Makes a client's context, or reloads one, with an error of others in OpenSSL's queue. */
static int make_after_error(weir_tls_context *loaded, const weir_tls_config *config, fault *with)
{
    weir_tls_context *made = NULL;
    weir_error error = { 0 };
    ERR_raise(ERR_LIB_SYS, EXDEV);
    arm(with);
    int code = loaded != NULL ? weir_tls_context_reload(loaded, config, &error)
                              : weir_tls_context_new_client(&made, config, &error);
    disarm(with);
    weir_tls_context_release(made);
    assert_null(strstr(error.message, weir_error_text(-EXDEV)));
    assert_true(code == 0 || (code == error.code && code != -EXDEV));
    return code;
}

/* A user's thread may have errors of its own in OpenSSL's queue: a failure reports only its own. */
static void earlier_openssl_errors_are_not_reported(void **state)
{
    const weir_tls_config configs[] = { { .ca_pem = NULL }, /* trusts whom the system trusts */
                                        { .ca_directory = "/" },
                                        { .ca_pem = pair_identity()->certificate_pem } };
    weir_tls_context *loaded = pair_client_context(NULL);
    int failures = 0;
    (void)state;
    for (size_t i = 0; i < 2 * sizeof configs / sizeof *configs; i++) {
        int code = -1;
        for (long nth = 1; code < 0 && nth < 100; nth++) {
            code = make_after_error(i % 2 == 0 ? loaded : NULL, &configs[i / 2],
                                    &(fault){ .nth = nth });
            failures += code < 0;
        }
    }
    weir_tls_context_release(loaded);
    assert_true(failures > 30);
}

static void connections_without_memory_of_openssl(void **state)
{
    (void)state;
    for (version_wanted = WEIR_TLS_1_2; version_wanted <= WEIR_TLS_1_3; version_wanted++)
        fail_each(run_connection, NULL, step_of(23));
}

/* Both versions when there is time for it. */
static void other_ways(const char *of, long step)
{
    version_wanted = getenv("WEIR_LONG_TESTS") != NULL ? WEIR_TLS_1_2 : WEIR_TLS_1_3;
    for (; version_wanted <= WEIR_TLS_1_3; version_wanted++) {
        for (way_wanted = BY_NAME; way_wanted < WAYS; way_wanted++) {
            const weir_group_config config = { .count = 1, .is_manual = true };
            if (way_wanted == ELSEWHERE)
                assert_int_equal(weir_group_new_executors(&business, &config, NULL), 0);
            fail_each(run_connection, of, step);
            if (way_wanted == ELSEWHERE) {
                weir_group_shutdown(business, 0, 0);
                weir_group_free(business);
            }
        }
    }
    way_wanted = AS_ALWAYS;
}

static void other_ways_without_memory_of_weir(void **state)
{
    (void)state;
    other_ways("alloc", 1);
    other_ways("pool", step_of(5));
}

static void other_ways_without_memory_of_openssl(void **state)
{
    (void)state;
    other_ways(NULL, step_of(97));
}

int main(void)
{
    if (CRYPTO_set_mem_functions(counting_alloc, counting_realloc, counting_free) != 1)
        return 1;
    const struct CMUnitTest tests[] = {
        weir_case(contexts_without_memory_of_weir),
        weir_case(connections_without_memory_of_weir),
        weir_case(certificates_without_memory_of_openssl),
        weir_case(contexts_without_memory_of_openssl),
        weir_case(earlier_openssl_errors_are_not_reported),
        weir_case(connections_without_memory_of_openssl),
        weir_case(other_ways_without_memory_of_weir),
        weir_case(other_ways_without_memory_of_openssl),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
