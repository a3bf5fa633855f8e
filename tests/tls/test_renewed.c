/* SPDX-License-Identifier: MIT */
/* Sessions that are resumed again and again, with tickets that are renewed on the way. */
#include "tls/context.h"
#include "tls/pair.h"

/* A connection from begin to end; whether it was resumed. */
static bool connect_once(weir_tls_context *client, weir_tls_context *server)
{
    pair both = { .client.tls.context = client, .server.tls.context = server };
    pair_begin(&both);
    pair_shake(&both);
    pair_say(&both, &both.client, "hello");
    pair_say(&both, &both.server, "and back");
    weir_future *future = weir_tls_handshake(weir_embedded_channel(both.client.embedded));
    const weir_tls_session *session = weir_future_value(future);
    bool is_resumed = session->is_resumed;
    weir_channel_close(weir_embedded_channel(both.client.embedded), NULL);
    pair_carry(&both);
    pair_finish(&both);
    return is_resumed;
}

/* The next ticket is made with another key. */
static void change_key(weir_tls_context *server)
{
    for (int i = 0; i < server->tickets.count; i++)
        server->tickets.keys[i].made_ns -= server->tickets.change_ns;
}

static void check(weir_tls_version version)
{
    weir_tls_context *client = pair_client_context(&(weir_tls_config){ .max_version = version });
    weir_tls_context *server = pair_server_context(NULL);
    assert_false(connect_once(client, server));
    for (int i = 0; i < 6; i++) {
        if (i % 2 == 0)
            change_key(server);
        assert_true(connect_once(client, server));
    }
    weir_tls_context_release(client);
    weir_tls_context_release(server);
}

static void the_older_version_goes_on(void **state)
{
    (void)state;
    check(WEIR_TLS_1_2);
}

static void the_newer_version_goes_on(void **state)
{
    (void)state;
    check(WEIR_TLS_1_3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(the_older_version_goes_on),
        weir_case(the_newer_version_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
