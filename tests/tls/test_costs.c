/* SPDX-License-Identifier: MIT */
/* What a connection that is idle costs in memory, beside OpenSSL alone. */
#include "tls/raw.h"

#include <weir/alloc.h>

#include <openssl/crypto.h>

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Bytes that are held, by whom. */
static atomic_long of_weir, of_openssl;

static void *counted_alloc(atomic_long *held, size_t size)
{
    void *made = malloc(size);
    atomic_fetch_add(held, (long)malloc_usable_size(made));
    return made;
}

static void counted_free(atomic_long *held, void *memory)
{
    atomic_fetch_sub(held, (long)malloc_usable_size(memory));
    free(memory);
}

static void *counted_realloc(atomic_long *held, void *memory, size_t size)
{
    long before = (long)malloc_usable_size(memory);
    void *made = realloc(memory, size);
    if (made != NULL)
        atomic_fetch_add(held, (long)malloc_usable_size(made) - before);
    return made;
}

static void *weir_gets(void *held, size_t size)
{
    return counted_alloc(held, size);
}

static void *weir_gets_again(void *held, void *memory, size_t size)
{
    return counted_realloc(held, memory, size);
}

static void weir_gives(void *held, void *memory)
{
    counted_free(held, memory);
}

static void *openssl_gets(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return counted_alloc(&of_openssl, size);
}

static void *openssl_gets_again(void *memory, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return counted_realloc(&of_openssl, memory, size);
}

static void openssl_gives(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    counted_free(&of_openssl, memory);
}

/* Connections ---------------------------------------------------------------------------------- */

enum { CONNECTIONS = 32 };

typedef struct costs {
    long weir, openssl; /* bytes of both ends of a connection */
} costs;

static costs now(void)
{
    return (costs){ atomic_load(&of_weir), atomic_load(&of_openssl) };
}

static costs since(costs before)
{
    costs behind = now();
    return (costs){ (behind.weir - before.weir) / CONNECTIONS,
                    (behind.openssl - before.openssl) / CONNECTIONS };
}

static void pass(weir_ctx *ctx)
{
    weir_ctx_fire_active(ctx);
}

/* With TLS, that has been used a little, or with a handler that does nothing. */
static costs cost_of_pairs(bool has_tls)
{
    static const weir_handler_type nothing = { .name = "nothing", .on_active = pass };
    static pair all[CONNECTIONS];
    weir_tls_context *server = pair_server_context(NULL), *client = pair_client_context(NULL);
    costs result = { 0 };
    for (int round = 0; round < 2; round++) { /* the first for what is kept for the next */
        costs before = now();
        for (size_t i = 0; i < CONNECTIONS; i++) {
            all[i] = (pair){ .server.tls.context = server, .client.tls.context = client };
            if (!has_tls)
                all[i].server.first = all[i].client.first = &nothing;
            pair_begin(&all[i]);
            if (has_tls)
                pair_shake(&all[i]);
            pair_say(&all[i], &all[i].client, "hello");
            pair_say(&all[i], &all[i].server, "and back");
        }
        result = since(before);
        for (size_t i = 0; i < CONNECTIONS; i++)
            pair_finish(&all[i]);
    }
    weir_tls_context_release(server);
    weir_tls_context_release(client);
    return result;
}

/* Two of OpenSSL's that talk through pipes in memory, as sparing as it can be. */
static void shake_alone(SSL *ssl[2], SSL_CTX *contexts[2])
{
    char byte;
    BIO *pipes[2];
    assert_int_equal(BIO_new_bio_pair(&pipes[0], 32768, &pipes[1], 32768), 1);
    for (int i = 0; i < 2; i++) {
        ssl[i] = SSL_new(contexts[i]);
        SSL_set_bio(ssl[i], pipes[i], pipes[i]);
    }
    SSL_set_connect_state(ssl[0]);
    SSL_set_accept_state(ssl[1]);
    for (int i = 0; i < 20; i++)
        SSL_do_handshake(ssl[i % 2]);
    assert_int_equal(SSL_write(ssl[1], "x", 1), 1);
    assert_int_equal(SSL_read(ssl[0], &byte, 1), 1); /* the tickets before it, too */
}

/* Without the pipes. */
static long cost_of_openssl_alone(void)
{
    static SSL *all[CONNECTIONS][2];
    raw ends[2];
    long result = 0;
    for (int i = 0; i < 2; i++) {
        raw_begin(&ends[i], NULL, i == 1, 0);
        SSL_CTX_set_mode(ends[i].context, SSL_MODE_RELEASE_BUFFERS);
    }
    SSL_CTX *contexts[] = { ends[0].context, ends[1].context };
    for (int round = 0; round < 2; round++) {
        costs before = now();
        for (size_t i = 0; i < CONNECTIONS; i++) {
            shake_alone(all[i], contexts);
            for (int j = 0; j < 2; j++)
                SSL_set_bio(all[i][j], NULL, NULL);
        }
        result = since(before).openssl;
        for (size_t i = 0; i < CONNECTIONS; i++) {
            SSL_free(all[i][0]);
            SSL_free(all[i][1]);
        }
    }
    raw_end(&ends[0]);
    raw_end(&ends[1]);
    return result;
}

/* The number in docs/guarantees.md, for the two ends of a connection. */
static void an_idle_connection_costs_little_more_than_openssl(void **state)
{
    (void)state;
    costs with = cost_of_pairs(true), without = cost_of_pairs(false);
    long alone = cost_of_openssl_alone(), own = with.weir - without.weir;
    if (own > 2 * 2048 || own + with.openssl > alone * 6 / 5)
        fail_msg("%ld bytes of weir's and %ld of OpenSSL's, which alone has %ld", own, with.openssl,
                 alone);
}

int main(void)
{
    const weir_allocator counting = { weir_gets, weir_gets_again, weir_gives, &of_weir };
    if (weir_allocator_set(&counting) < 0 ||
        CRYPTO_set_mem_functions(openssl_gets, openssl_gets_again, openssl_gives) != 1)
        return 1;
    const struct CMUnitTest tests[] = {
        weir_case(an_idle_connection_costs_little_more_than_openssl),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
