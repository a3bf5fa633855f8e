/* SPDX-License-Identifier: MIT */
/* Addresses: sockaddr in and out, and what can be asked of them. */
#include "base/address.h"

#include "base/hash.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert(sizeof(weir_address) == 128, "part of the binary interface");
_Static_assert(sizeof(struct sockaddr_un) <= sizeof(((weir_address *)NULL)->storage),
               "the longest sockaddr has to fit");
_Static_assert(WEIR__PATH_SIZE == WEIR_ADDRESS_NAME_MAX + 1,
               "a path and its terminator, or an abstract name and the zero before it");

/* Bytes in and out ---------------------------------------------------------------------------- */

static void set_bytes(weir_address *address, const void *from, size_t length)
{
    *address = (weir_address){ .length = (uint16_t)length };
    memcpy(address->storage.bytes, from, length);
}

void weir__address_set_ipv4(weir_address *address, struct in_addr host, in_port_t port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr = host, .sin_port = port };
    set_bytes(address, &in, sizeof in);
}

void weir__address_set_ipv6(weir_address *address, struct in6_addr host, uint32_t scope,
                            in_port_t port)
{
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_addr = host, .sin6_scope_id = scope, .sin6_port = port
    };
    set_bytes(address, &in6, sizeof in6);
}

/* A path ends with a zero as far as there is room for one: the kernel does without. */
void weir__address_set_path(weir_address *address, const void *path, size_t length)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    memcpy(un.sun_path, path, length);
    set_bytes(address, &un, WEIR__NAME_AT + length + (length < WEIR__PATH_SIZE ? 1 : 0));
}

void weir__address_set_abstract(weir_address *address, const void *name, size_t length)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    memcpy(un.sun_path + 1, name, length);
    set_bytes(address, &un, WEIR__NAME_AT + 1 + length);
}

void weir__address_set_local(weir_address *address, const void *name, size_t length)
{
    sa_family_t family = WEIR__FAMILY_LOCAL;
    set_bytes(address, &family, sizeof family);
    memcpy(address->storage.bytes + WEIR__NAME_AT, name, length);
    address->length = (uint16_t)(WEIR__NAME_AT + length);
}

struct sockaddr_in weir__address_ipv4_of(const weir_address *address)
{
    struct sockaddr_in in;
    memcpy(&in, address->storage.bytes, sizeof in);
    return in;
}

struct sockaddr_in6 weir__address_ipv6_of(const weir_address *address)
{
    struct sockaddr_in6 in6;
    memcpy(&in6, address->storage.bytes, sizeof in6);
    return in6;
}

weir_address_kind weir_address_kind_of(const weir_address *address)
{
    sa_family_t family = AF_UNSPEC;
    if (address != NULL && address->length >= sizeof family)
        memcpy(&family, address->storage.bytes, sizeof family);
    switch (family) {
    case AF_INET:
        return WEIR_ADDRESS_IPV4;
    case AF_INET6:
        return WEIR_ADDRESS_IPV6;
    case AF_UNIX:
        return WEIR_ADDRESS_UNIX;
    case WEIR__FAMILY_LOCAL:
        return WEIR_ADDRESS_LOCAL;
    default:
        return WEIR_ADDRESS_NONE;
    }
}

/* sockaddr ------------------------------------------------------------------------------------ */

static int take_unix(weir_address *address, const uint8_t *bytes, size_t length)
{
    const uint8_t *name = bytes + WEIR__NAME_AT;
    size_t name_length = length - WEIR__NAME_AT;
    /* One more than there is room for: so the kernel reports a path of 108 bytes, with the zero. */
    if (name_length > WEIR__PATH_SIZE + 1)
        return -EINVAL;
    if (name_length == 0) {
        set_bytes(address, bytes, WEIR__NAME_AT); /* unnamed */
        return 0;
    }
    size_t path_length = strnlen((const char *)name, name_length);
    if (path_length > WEIR__PATH_SIZE || (path_length == 0 && name_length > WEIR__PATH_SIZE))
        return -EINVAL;
    if (path_length > 0)
        weir__address_set_path(address, name, path_length);
    else
        weir__address_set_abstract(address, name + 1, name_length - 1);
    return 0;
}

static int take_ipv4(weir_address *address, const uint8_t *bytes, size_t length)
{
    struct sockaddr_in in;
    if (length < sizeof in)
        return -EINVAL;
    memcpy(&in, bytes, sizeof in);
    weir__address_set_ipv4(address, in.sin_addr, in.sin_port);
    return 0;
}

/* Without the flow label: no text has it, and packets of one peer differ in it. */
static int take_ipv6(weir_address *address, const uint8_t *bytes, size_t length)
{
    struct sockaddr_in6 in6;
    if (length < sizeof in6)
        return -EINVAL;
    memcpy(&in6, bytes, sizeof in6);
    weir__address_set_ipv6(address, in6.sin6_addr, in6.sin6_scope_id, in6.sin6_port);
    return 0;
}

int weir_address_from_sockaddr(weir_address *address, const struct sockaddr *from, size_t length)
{
    if (address == NULL)
        return -EINVAL;
    weir_address result = { 0 }; /* aside, for `from` may lie in the address itself */
    int code = -EINVAL;
    sa_family_t family;
    if (from != NULL && length >= sizeof family) {
        const uint8_t *bytes = (const uint8_t *)from;
        memcpy(&family, bytes, sizeof family);
        code = family == AF_INET    ? take_ipv4(&result, bytes, length)
               : family == AF_INET6 ? take_ipv6(&result, bytes, length)
               : family == AF_UNIX  ? take_unix(&result, bytes, length)
                                    : -EAFNOSUPPORT;
    }
    *address = result;
    return code;
}

const struct sockaddr *weir_address_sockaddr(const weir_address *address, size_t *length)
{
    weir_address_kind kind = weir_address_kind_of(address);
    bool is_known = kind != WEIR_ADDRESS_NONE && kind != WEIR_ADDRESS_LOCAL;
    if (length != NULL)
        *length = is_known ? address->length : 0;
    return is_known ? (const struct sockaddr *)&address->storage : NULL;
}

/* Questions ----------------------------------------------------------------------------------- */

uint16_t weir_address_port(const weir_address *address)
{
    switch (weir_address_kind_of(address)) {
    case WEIR_ADDRESS_IPV4:
        return ntohs(weir__address_ipv4_of(address).sin_port);
    case WEIR_ADDRESS_IPV6:
        return ntohs(weir__address_ipv6_of(address).sin6_port);
    default:
        return 0;
    }
}

int weir_address_set_port(weir_address *address, uint16_t port)
{
    weir_address_kind kind = weir_address_kind_of(address);
    if (kind == WEIR_ADDRESS_IPV4) {
        weir__address_set_ipv4(address, weir__address_ipv4_of(address).sin_addr, htons(port));
    } else if (kind == WEIR_ADDRESS_IPV6) {
        struct sockaddr_in6 in6 = weir__address_ipv6_of(address);
        weir__address_set_ipv6(address, in6.sin6_addr, in6.sin6_scope_id, htons(port));
    } else {
        return -EINVAL;
    }
    return 0;
}

/* Every way to make an address leaves the same bytes for the same address: no flow label, nothing
 * behind a path, zeroes for padding. So bytes are what is compared and hashed. */

static size_t length_of(const weir_address *address)
{
    return weir_address_kind_of(address) != WEIR_ADDRESS_NONE ? address->length : 0;
}

bool weir_address_equal(const weir_address *a, const weir_address *b)
{
    size_t length = length_of(a);
    return length == length_of(b) &&
           (length == 0 || memcmp(a->storage.bytes, b->storage.bytes, length) == 0);
}

uint64_t weir_address_hash(const weir_address *address, const uint64_t key[2])
{
    static const uint64_t fixed_key[2] = { 0, 0 };
    weir_hash hash;
    weir__hash_init(&hash, key != NULL ? key : fixed_key);
    if (length_of(address) > 0)
        weir__hash_add(&hash, address->storage.bytes, address->length);
    return weir__hash_end(&hash);
}

bool weir_address_unmap(weir_address *address)
{
    if (weir_address_kind_of(address) != WEIR_ADDRESS_IPV6)
        return false;
    struct sockaddr_in6 in6 = weir__address_ipv6_of(address);
    if (!IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
        return false;
    struct in_addr in;
    memcpy(&in, in6.sin6_addr.s6_addr + 12, sizeof in);
    weir__address_set_ipv4(address, in, in6.sin6_port);
    return true;
}

/* The host alone, in the machine's order if it is IPv4, in whichever form; NONE for the others. */
static weir_address_kind host_of(const weir_address *address, uint32_t *ipv4, struct in6_addr *ipv6)
{
    weir_address plain = address != NULL ? *address : (weir_address){ 0 };
    weir_address_unmap(&plain);
    switch (weir_address_kind_of(&plain)) {
    case WEIR_ADDRESS_IPV4:
        *ipv4 = ntohl(weir__address_ipv4_of(&plain).sin_addr.s_addr);
        return WEIR_ADDRESS_IPV4;
    case WEIR_ADDRESS_IPV6:
        *ipv6 = weir__address_ipv6_of(&plain).sin6_addr;
        return WEIR_ADDRESS_IPV6;
    default:
        return WEIR_ADDRESS_NONE;
    }
}

bool weir_address_is_any(const weir_address *address)
{
    uint32_t ipv4 = 0;
    struct in6_addr ipv6;
    weir_address_kind kind = host_of(address, &ipv4, &ipv6);
    return kind == WEIR_ADDRESS_IPV4 ? ipv4 == INADDR_ANY
                                     : kind == WEIR_ADDRESS_IPV6 && IN6_IS_ADDR_UNSPECIFIED(&ipv6);
}

bool weir_address_is_loopback(const weir_address *address)
{
    uint32_t ipv4 = 0;
    struct in6_addr ipv6;
    weir_address_kind kind = host_of(address, &ipv4, &ipv6);
    return kind == WEIR_ADDRESS_IPV4 ? ipv4 >> 24 == 127
                                     : kind == WEIR_ADDRESS_IPV6 && IN6_IS_ADDR_LOOPBACK(&ipv6);
}

bool weir_address_is_multicast(const weir_address *address)
{
    uint32_t ipv4 = 0;
    struct in6_addr ipv6;
    weir_address_kind kind = host_of(address, &ipv4, &ipv6);
    return kind == WEIR_ADDRESS_IPV4 ? ipv4 >> 28 == 14
                                     : kind == WEIR_ADDRESS_IPV6 && IN6_IS_ADDR_MULTICAST(&ipv6);
}
