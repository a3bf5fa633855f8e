/* SPDX-License-Identifier: MIT */
/* Scenarios with TLS between the two. */
#include "torture/tls.h"

#include <weir/tls.h>

#define SMALL 100
#define LARGE 100000 /* some records, and more than a socket takes at once */

/* Both ends, as their channels' initializers need them. */
typedef struct secrets {
    world *world;
    weir_tls_context *server, *client;
    weir_group *handshakes; /* where those are computed; NULL: on the loops */
} secrets;

static secrets own;

static int add_tls(weir_channel *channel, weir_tls_context *context, const char *host)
{
    weir_tls tls = { .context = context, .host = host, .handshake_group = own.handshakes };
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "tls", &weir_tls_handler, &tls);
}

static int add_server_side(weir_channel *channel, void *arg)
{
    (void)arg;
    int code = add_tls(channel, own.server, NULL);
    return code < 0 ? code : add_echo(channel, own.world);
}

static int add_client_side(weir_channel *channel, void *who)
{
    int code = add_tls(channel, own.client, "localhost");
    return code < 0 ? code : add_client(channel, who);
}

static void make_contexts(world *self)
{
    weir_tls_self_signed made;
    own = (secrets){ .world = self, .handshakes = self->helpers };
    note(self, weir_tls_self_signed_make(&made, "localhost", NULL));
    if (is_well(self))
        note(self, weir_tls_context_new_server(
                       &own.server,
                       &(weir_tls_config){ .certificate_pem = made.certificate_pem,
                                           .key_pem = made.key_pem },
                       NULL));
    if (is_well(self))
        note(self, weir_tls_context_new_client(
                       &own.client, &(weir_tls_config){ .ca_pem = made.certificate_pem }, NULL));
}

static void talk(world *self, client *who)
{
    weir_client_config config = { .group = self->clients, .init = add_client_side, .arg = who };
    if (is_well(self))
        note(self, weir_client_connect(&who->channel, &config, self->address, NULL));
    say_last(self, who, SMALL);
    hear(self, who);
    say_last(self, who, LARGE);
    hear(self, who);
    close_client(self, who);
}

/* Without a fault the second one spares itself the certificate. */
static void check_resumed(const world *self)
{
    weir_tls_context_stats stats;
    if (!is_well(self))
        return;
    weir_tls_context_get_stats(own.client, &stats);
    MUST(stats.handshakes == 2 && stats.resumed <= 1 && stats.failed == 0);
}

void run_tls(world *self)
{
    weir_server_config config = { .init_child = add_server_side };
    make_contexts(self);
    serve_with(self, &self->server, &config, "127.0.0.1:0");
    talk(self, &self->one);
    talk(self, &self->other);
    check_resumed(self);
    end_server(self, self->server); /* its children are made with the context */
    self->server = NULL;
    weir_tls_context_release(own.client);
    weir_tls_context_release(own.server);
}

void run_tls_offload(world *self)
{
    make_helpers(self);
    run_tls(self);
}
