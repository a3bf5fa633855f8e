/* SPDX-License-Identifier: MIT */
/* Collecting the addresses of a name, for a list in the order in which to try them. */
#ifndef WEIR_BOOTSTRAP_ADDRESSES_H
#define WEIR_BOOTSTRAP_ADDRESSES_H

#include <weir/resolver.h>

/* Addresses in the order of arrival: those of the first one's kind, and the others. */
typedef struct weir_candidates {
    size_t count[2];
    weir_address list[2][WEIR_ADDRESSES_MAX];
} weir_candidates;

/* Adds one, unless it is there already, is none, or there is no free space. */
void weir__candidates_add(weir_candidates *candidates, const weir_address *address);

/* A list that alternates between both kinds; NULL without memory. */
weir_addresses *weir__candidates_list(const weir_candidates *candidates);

/* Completes a promise with a list, or frees the list if the promise was cancelled. */
void weir__addresses_succeed(weir_promise *promise, weir_addresses *addresses);

/* Completes a promise with the addresses of both families, each with the port: 0 or -ENOMEM. */
int weir__candidates_succeed(const weir_candidates *ipv6, const weir_candidates *ipv4,
                             uint16_t port, weir_promise *promise);

#endif
