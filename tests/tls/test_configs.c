/* SPDX-License-Identifier: MIT */
/* The configs of the TLS handlers: an add copies them with all that they point to, on whichever
 * thread it is made, and retains what they share. */
#include "tls/pair.h"

#include <weir/tls_select.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 1024
#define GARBAGE 0xa5
#define HANDSHAKE_MS 700

/* A config and all that it points to, in one block. */
typedef struct block {
    char *bytes;
    size_t used;
    weir_tls_context *context; /* the only references, besides the copy's */
    weir_tls_hosts *hosts;
} block;

static void *put(block *to, const void *from, size_t length)
{
    char *at = to->bytes + to->used;
    to->used += (length + 15) & ~(size_t)15;
    assert_true(to->used <= BLOCK);
    return memcpy(at, from, length);
}

#define PUT(to, ...) put(to, &(__VA_ARGS__), sizeof(__VA_ARGS__))

static const char *const alpn[] = { "echo", NULL };
static const weir_tls_config agreed = { .alpn = alpn };

static void *server(block *to)
{
    to->context = pair_server_context(&agreed);
    return PUT(to,
               (weir_tls){ .context = to->context, .handshake_timeout_ns = WEIR_MS(HANDSHAKE_MS) });
}

static void *client(block *to)
{
    to->context = pair_client_context(&agreed);
    weir_tls config = { .context = to->context, .handshake_timeout_ns = WEIR_MS(HANDSHAKE_MS) };
    config.host = put(to, "localhost", sizeof "localhost");
    return PUT(to, config);
}

static void *by_name(block *to)
{
    weir_tls_sni config = { .tls.handshake_timeout_ns = WEIR_MS(HANDSHAKE_MS), .max_hello = 8192 };
    to->context = pair_server_context(&agreed);
    weir_tls_host list = { put(to, "localhost", sizeof "localhost"), to->context };
    assert_int_equal(weir_tls_hosts_new(&to->hosts, PUT(to, list), 1, NULL, NULL), 0);
    config.hosts = to->hosts;
    return PUT(to, config);
}

/* Their context is not used, and a host is for clients; so neither needs to be valid. */
static void *by_name_of_nobody(block *to)
{
    weir_tls_sni *config = by_name(to);
    config->tls.context = (weir_tls_context *)to->bytes;
    config->tls.host = put(to, "nobody", sizeof "nobody");
    return config;
}

static void *optional_for_clients_too(block *to)
{
    weir_tls *config = server(to);
    config->host = put(to, "nobody", sizeof "nobody");
    return config;
}

static void noting_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (weir_tls_session_from(event) != NULL)
        ++*(int *)weir_ctx_arg(ctx);
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type noting = { .name = "noting", .on_event = noting_on_event };
static int agreements;

static int add_noting(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "noting", &noting, arg);
}

static int reject(weir_channel *channel, void *arg)
{
    (void)channel, (void)arg;
    return -EPROTONOSUPPORT;
}

static void *protocols(block *to)
{
    weir_tls_protocol list[] = { { NULL, reject, NULL },
                                 { put(to, "h2", sizeof "h2"), reject, NULL },
                                 { put(to, "echo", sizeof "echo"), add_noting, &agreements } };
    const weir_tls_protocol *kept = put(to, list, sizeof list);
    return PUT(to, (weir_tls_protocols){ .list = kept, .count = 3 });
}

typedef struct row {
    const weir_handler_type *type;
    void *(*config)(block *to);
    bool is_client;
    bool is_after_tls; /* a handler of the test has done the encryption */
} row;

static const row rows[] = {
    { .type = &weir_tls_handler, .config = server },
    { .type = &weir_tls_handler, .config = client, .is_client = true },
    { .type = &weir_tls_sni_handler, .config = by_name },
    { .type = &weir_tls_sni_handler, .config = by_name_of_nobody },
    { .type = &weir_tls_optional_handler, .config = server },
    { .type = &weir_tls_optional_handler, .config = optional_for_clients_too },
    { .type = &weir_tls_protocol_handler, .config = protocols, .is_after_tls = true },
};

#define ROWS (sizeof rows / sizeof *rows)

/* Adding --------------------------------------------------------------------------------------- */

typedef enum place { FROM_INIT, BEFORE_REGISTRATION, FROM_ANOTHER_THREAD, PLACES } place;

typedef struct adding {
    const row *row;
    weir_channel *channel;
    weir_tls *tls; /* of the handler before, for `is_after_tls` */
    int code;
} adding;

/* The config is overwritten and freed as soon as the add has returned, and its objects released. */
static int add_row(adding *self)
{
    block memory = { .bytes = malloc(BLOCK) };
    assert_non_null(memory.bytes);
    void *config = self->row->config(&memory);
    int code = weir_pipeline_add_last(weir_channel_pipeline(self->channel), "row", self->row->type,
                                      config);
    memset(memory.bytes, GARBAGE, BLOCK);
    free(memory.bytes);
    weir_tls_hosts_release(memory.hosts);
    weir_tls_context_release(memory.context);
    return code;
}

static int add_tls_and_row(adding *self)
{
    int code = !self->row->is_after_tls
                   ? 0
                   : weir_pipeline_add_last(weir_channel_pipeline(self->channel), "tls",
                                            &weir_tls_handler, self->tls);
    return code < 0 ? code : add_row(self);
}

static int init(weir_channel *channel, void *arg)
{
    adding *self = arg;
    self->channel = channel;
    return add_tls_and_row(self);
}

static void *add_on_thread(void *arg)
{
    adding *self = arg;
    self->code = add_tls_and_row(self);
    return NULL;
}

static void open_with(weir_embedded **made, adding *self, place how)
{
    weir_embedded_config config = { .init = how == FROM_INIT ? init : NULL, .arg = self };
    config.is_unregistered = how == BEFORE_REGISTRATION;
    assert_int_equal(weir_embedded_new(made, &config, NULL), 0);
    self->channel = weir_embedded_channel(*made);
    if (how == BEFORE_REGISTRATION) {
        assert_int_equal(add_tls_and_row(self), 0);
        weir_channel_register(self->channel, weir_embedded_executor(*made), NULL);
    } else if (how == FROM_ANOTHER_THREAD) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, add_on_thread, self), 0);
        pthread_join(thread, NULL);
        assert_int_equal(self->code, 0);
    }
    weir_embedded_run(*made);
}

/* The peer is made by the harness, and so are both contexts, which the caller releases. */
static void open_pair(pair *both, const row *of, place how)
{
    pair_end *end = of->is_client ? &both->client : &both->server;
    pair_end *peer = of->is_client ? &both->server : &both->client;
    *both = (pair){ .client.tls = { .context = pair_client_context(&agreed), .host = "localhost" },
                    .server.tls.context = pair_server_context(&agreed) };
    weir_embedded_config config = { .init = pair_init, .arg = peer };
    assert_int_equal(weir_embedded_new(&peer->embedded, &config, NULL), 0);
    open_with(&end->embedded, &(adding){ .row = of, .tls = &end->tls }, how);
}

/* Cases ---------------------------------------------------------------------------------------- */

static void an_add_copies_the_config(void **state)
{
    (void)state;
    for (place how = FROM_INIT; how < PLACES; how++) {
        for (size_t i = 0; i < ROWS; i++) {
            pair both;
            agreements = 0;
            open_pair(&both, &rows[i], how);
            pair_shake(&both);
            assert_int_equal(agreements, rows[i].is_after_tls);
            pair_say(&both, &both.client, "hello");
            pair_say(&both, &both.server, "hello too");
            pair_finish(&both);
        }
    }
}

/* Nothing arrives, so the handshake lasts as long as the config says. */
static void the_copy_keeps_the_time_limit(void **state)
{
    (void)state;
    for (place how = FROM_INIT; how < PLACES; how++) {
        for (size_t i = 0; i < ROWS; i++) {
            pair both;
            if (rows[i].is_after_tls)
                continue;
            open_pair(&both, &rows[i], how);
            pair_end *end = rows[i].is_client ? &both.client : &both.server;
            weir_embedded_advance(end->embedded, WEIR_MS(HANDSHAKE_MS - 1));
            assert_true(weir_channel_is_open(weir_embedded_channel(end->embedded)));
            weir_embedded_advance(end->embedded, WEIR_MS(1));
            pair_expect_error(end, -ETIMEDOUT);
            pair_finish(&both);
        }
    }
}

/* An add that is never carried out releases what it has copied and retained. */
static void a_channel_that_closes_first_releases_the_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        weir_embedded *embedded;
        weir_embedded_config config = { .is_unregistered = true };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        adding self = { .row = &rows[i], .channel = weir_embedded_channel(embedded) };
        assert_int_equal(add_row(&self), 0);
        weir_channel_close(self.channel, NULL);
        assert_true(weir_future_is_done(weir_channel_closed(self.channel)));
        weir_embedded_free(embedded);
    }
}

/* The nth allocation inside the add fails; that of the config is not counted. */
static int add_without_memory(weir_channel *channel, const row *of, unsigned nth)
{
    block memory = { .bytes = malloc(BLOCK) };
    assert_non_null(memory.bytes);
    void *config = of->config(&memory);
    harness_fail_nth("alloc", nth, -ENOMEM);
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), "row", of->type, config);
    harness_fail_end();
    free(memory.bytes);
    weir_tls_hosts_release(memory.hosts);
    weir_tls_context_release(memory.context);
    return code;
}

static void an_add_without_memory_leaves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        weir_embedded *embedded;
        weir_embedded_config config = { .is_unregistered = true };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        int code = -ENOMEM;
        for (unsigned nth = 1; code == -ENOMEM; nth++) {
            code = add_without_memory(weir_embedded_channel(embedded), &rows[i], nth);
            assert_true(code == 0 || code == -ENOMEM);
            assert_true(code == -ENOMEM || nth > 1);
            assert_true(nth < 10);
            assert_int_equal(weir_pipeline_find(weir_embedded_pipeline(embedded), "row", NULL),
                             code == 0 ? 0 : WEIR_ENOTFOUND);
        }
        weir_embedded_free(embedded);
    }
}

typedef struct wrong {
    weir_tls_protocols config;
    const char *text;
} wrong;

static int add_wrong(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "row", &weir_tls_protocol_handler,
                                  arg);
}

static void protocols_that_make_no_sense_are_rejected(void **state)
{
    static const weir_tls_protocol no_init[] = { { "h2", reject, NULL }, { "h3", NULL, NULL } };
    static const wrong wrongs[] = {
        { { NULL, 1 }, "list is NULL and count is 1" },
        { { no_init, 257 }, "count is 257, but can be from 0 to 256" },
        { { no_init, SIZE_MAX }, "count is 18446744073709551615" },
        { { no_init, 2 }, "init of protocol h3 is NULL" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        weir_embedded *embedded;
        weir_error error;
        weir_embedded_config config = { .init = add_wrong, .arg = (void *)&wrongs[i].config };
        assert_int_equal(weir_embedded_new(&embedded, &config, &error), -EINVAL);
        if (strstr(error.message, wrongs[i].text) == NULL)
            fail_msg("'%s' is not in '%s'", wrongs[i].text, error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(an_add_copies_the_config),
        weir_case(the_copy_keeps_the_time_limit),
        weir_case(a_channel_that_closes_first_releases_the_copy),
        weir_case(an_add_without_memory_leaves_nothing),
        weir_case(protocols_that_make_no_sense_are_rejected),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
