/* SPDX-License-Identifier: MIT */
/* Hosts as bytes that can be compared, cut and hashed, of both families in one order. */
#ifndef WEIR_HANDLER_HOST_KEY_H
#define WEIR_HANDLER_HOST_KEY_H

#include "base/address.h"

#include <string.h>

/* The family, then the host in network order, then zeros. */
typedef struct weir_host_key {
    uint8_t bytes[1 + 16];
} weir_host_key;

enum { WEIR__HOST_TAG_BITS = 8 };

/* The bits behind the first so many are 0 from now on. */
static inline void weir__host_mask(uint8_t *bytes, size_t size, unsigned bits)
{
    for (size_t i = 0; i < size; i++) {
        unsigned left = bits > i * 8 ? bits - (unsigned)i * 8 : 0;
        unsigned kept = bytes[i] & (0xff00u >> (left < 8 ? left : 8));
        bytes[i] = (uint8_t)kept;
    }
}

/* False when it is no IP address. IPv4 in the form of IPv6 is IPv4, unless `keeps_form`. */
static inline bool weir__host_key_of(const weir_address *address, bool keeps_form,
                                     weir_host_key *key)
{
    weir_address plain = address != NULL ? *address : (weir_address){ 0 };
    struct in6_addr in6;
    struct in_addr in;
    if (!keeps_form)
        weir_address_unmap(&plain);
    *key = (weir_host_key){ 0 };
    switch (weir_address_kind_of(&plain)) {
    case WEIR_ADDRESS_IPV4:
        in = weir__address_ipv4_of(&plain).sin_addr;
        key->bytes[0] = 4;
        memcpy(key->bytes + 1, &in, sizeof in);
        return true;
    case WEIR_ADDRESS_IPV6:
        in6 = weir__address_ipv6_of(&plain).sin6_addr;
        key->bytes[0] = 6;
        memcpy(key->bytes + 1, &in6, sizeof in6);
        return true;
    default:
        return false;
    }
}

#endif
