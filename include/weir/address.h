/* SPDX-License-Identifier: MIT */
/* Addresses: where a channel listens, connects to or hears from, as a value and as text. */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include <weir/api.h>
#include <weir/error.h>

WEIR_BEGIN_DECLS

struct sockaddr;

/** What an address names. */
typedef enum weir_address_kind {
    WEIR_ADDRESS_NONE,  /* nothing: what a zeroed address is */
    WEIR_ADDRESS_IPV4,  /* 127.0.0.1:8007 */
    WEIR_ADDRESS_IPV6,  /* [::1]:8007 */
    WEIR_ADDRESS_UNIX,  /* unix:/path/sock, or unix:@name in Linux's abstract namespace */
    WEIR_ADDRESS_LOCAL, /* local:name, which no kernel knows: channels within this process */
} weir_address_kind;

/** The longest path or name, in bytes. */
#define WEIR_ADDRESS_NAME_MAX 107

/** Room for the text of any address, its terminator included. */
#define WEIR_ADDRESS_TEXT_MAX 440

/**
 * An address: copy it, keep it, put it on the stack; zero is "no address". It owns nothing, and
 * whatever is below allocates nothing and may be called on any thread. The fields are weir's.
 * Where an address is only looked at, NULL counts as "no address".
 */
typedef struct weir_address {
    uint16_t length; /* of what is used of `storage`, a sockaddr */
    union {
        uint64_t alignment;
        uint8_t bytes[120];
    } storage;
} weir_address;

/**
 * Reads an address from text, in one of these forms:
 *
 *     127.0.0.1:8007      IPv4
 *     [::1]:8007          IPv6, always in brackets
 *     [fe80::1%eth0]:80   with the interface, by name or by number
 *     :8007  *:8007       every address of this machine, IPv6 and IPv4: the same as [::]:8007
 *     unix:/path/sock     a path, up to WEIR_ADDRESS_NAME_MAX bytes
 *     unix:@name          an abstract name, likewise
 *     local:name          within this process, likewise
 *
 * In a path or name \xNN stands for any byte; backslashes, control characters, and spaces at
 * either end have to be written so. Zero bytes are for abstract names only.
 *
 * Else -EINVAL, `error` (NULL allowed) says what is wrong and what to write instead, and `address`
 * is zeroed. Host names are refused: they need a resolver. Only looking up an interface's name asks
 * the system; nothing waits.
 */
WEIR_API int weir_address_parse(weir_address *address, const char *text, weir_error *error);

/**
 * Writes the address as text, and like snprintf returns the length that all of it has; what does
 * not fit in `size` bytes is cut, and if size > 0 it is terminated. Printable ASCII only. Parsing
 * reads it back as an equal address, except for what has no name, and so cannot be asked for ("-"
 * is none, "unix:" an unnamed socket, "unix:@" the empty abstract name), and for a peer's path that
 * is longer than WEIR_ADDRESS_NAME_MAX, by one byte, which Linux lets happen.
 */
WEIR_API size_t weir_address_text(const weir_address *address, char *to, size_t size);

/** What the address names. */
WEIR_API weir_address_kind weir_address_kind_of(const weir_address *address);

/** The port of an IPv4 or IPv6 address; 0 for others. */
WEIR_API uint16_t weir_address_port(const weir_address *address);

/** Changes the port. -EINVAL if it is neither an IPv4 nor an IPv6 address. */
WEIR_API int weir_address_set_port(weir_address *address, uint16_t port);

/** Whether both are the same: kind, host, port and interface, or name. An IPv4 address is not
 * equal to its form as IPv6; see weir_address_unmap. */
WEIR_API bool weir_address_equal(const weir_address *a, const weir_address *b);

/** A hash that is equal for equal addresses. With a secret random `key` peers cannot choose
 * addresses that collide; NULL: a fixed one, the same in every process. */
WEIR_API uint64_t weir_address_hash(const weir_address *address, const uint64_t key[2]);

/** Whether the host is 0.0.0.0 or ::, every address of this machine. */
WEIR_API bool weir_address_is_any(const weir_address *address);

/** Whether the host is this machine: 127.0.0.0/8 or ::1. */
WEIR_API bool weir_address_is_loopback(const weir_address *address);

/** Whether the host is a multicast group: 224.0.0.0/4 or ff00::/8. */
WEIR_API bool weir_address_is_multicast(const weir_address *address);

/** Turns an IPv4 address in the form of IPv6, [::ffff:1.2.3.4]:80, as a listener for both families
 * sees its peers, into 1.2.3.4:80, and says whether it was one; others stay as they are. The three
 * questions above look through that form by themselves. */
WEIR_API bool weir_address_unmap(weir_address *address);

/**
 * Copies what a system call or another library gave, `length` bytes of it. -EINVAL if that is too
 * short for its family or no address of it, -EAFNOSUPPORT for families other than IPv4, IPv6 and
 * Unix; then `address` is zeroed. An IPv6 flow label is left out. `from` may lie unaligned.
 */
WEIR_API int weir_address_from_sockaddr(weir_address *address, const struct sockaddr *from,
                                        size_t length);

/**
 * The address for a system call; NULL, and length 0, if it is none or local. Borrowed: it lies
 * inside `address`, and is to be copied out by memcpy rather than looked into. `length` may be
 * NULL.
 */
WEIR_API const struct sockaddr *weir_address_sockaddr(const weir_address *address, size_t *length);

WEIR_END_DECLS

#endif
