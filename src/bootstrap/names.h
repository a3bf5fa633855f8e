/* SPDX-License-Identifier: MIT */
/* Name services: getaddrinfo on threads of its own, and c-ares on event loops. */
#ifndef WEIR_BOOTSTRAP_NAMES_H
#define WEIR_BOOTSTRAP_NAMES_H

#include <weir/group.h>
#include <weir/resolver.h>

/*
 * A host to look up. `promise` is completed with its addresses, each with the port. A caller that
 * can use more of them later sets `rest`: if some may follow, *rest is a promise for them, bound
 * like the first and the caller's to release, and completes later, with addresses or without.
 * Cancelling a promise cancels its lookup.
 */
typedef struct weir_name_query {
    weir_group *group;
    const char *host; /* the caller's */
    uint16_t port;
    weir_promise *promise;
    weir_promise **rest;
} weir_name_query;

/* A name service: 0, and then the promises are completed some time; or a negative code. Any
 * thread. */
typedef int (*weir_name_service)(const weir_name_query *query);

int weir__getaddrinfo_start(const weir_name_query *query);

/* Looks the name up with c-ares, on the loop that the promise is bound to, or on the group's first.
 * That has to be one that weir__cares_serves. */
int weir__cares_start(const weir_name_query *query);

/* Whether the lookup has a loop with a thread, the kernel's sockets and time, and room for several
 * descriptors, as c-ares needs. Other lookups, such as those of manual groups and simulated
 * networks, use getaddrinfo of their own weir_sys. */
bool weir__cares_serves(const weir_name_query *query);

/* weir_resolve with the query's `rest`. */
int weir__resolve(weir_resolver *resolver, const char *text, weir_name_query *query,
                  weir_error *error);

/* For tests: what replaces /etc/resolv.conf and, unless NULL, /etc/hosts, kept by the caller, and
 * the port of the servers, and how long the first try waits, 0 for the default; before the group's
 * first lookup. -ENOMEM, or -EOPNOTSUPP without c-ares. */
int weir__cares_set_up(weir_group *group, const char *resolv_conf, const char *hosts, uint16_t port,
                       int timeout_ms);

#endif
