/* SPDX-License-Identifier: MIT */
/* What the connections of a context share. */
#ifndef WEIR_TLS_CONTEXT_PRIVATE_H
#define WEIR_TLS_CONTEXT_PRIVATE_H

#include "tls/material.h"
#include "tls/sessions.h"
#include "tls/tickets.h"

#include <weir/clock.h>
#include <weir/tls_context.h>

#include <pthread.h>
#include <stdatomic.h>

struct weir_tls_context {
    _Atomic(uint32_t) refs;
    bool is_server;
    unsigned char id[16]; /* what its sessions are bound to */
    weir_clock *wall;     /* by which the certificates of sessions expire */
    _Atomic(bool) verifies_nothing;

    pthread_mutex_t reloading; /* held by a whole reload, outside of the other one */
    pthread_mutex_t lock;      /* of the next one */
    weir_tls_material *material;

    _Atomic(uint64_t) trusts;   /* how often it was said whom to trust */
    weir_tls_tickets tickets;   /* a server's */
    weir_tls_sessions sessions; /* a client's */

    _Atomic(uint64_t) handshakes, resumed, failed, reloads;
};

/* What the config came to, as of now, with a reference. */
weir_tls_material *weir__tls_context_material(weir_tls_context *context);

#endif
