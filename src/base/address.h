/* SPDX-License-Identifier: MIT */
/* How addresses are put together, for who reads and writes them as text. */
#ifndef WEIR_BASE_ADDRESS_H
#define WEIR_BASE_ADDRESS_H

#include <weir/address.h>

#include <netinet/in.h>
#include <stddef.h>
#include <sys/un.h>

/* The family of weir's own names: far from those of the kernel, which counts up from 0. */
#define WEIR__FAMILY_LOCAL 0x7765

/* Where a name begins, in a Unix address and in a local one. */
#define WEIR__NAME_AT offsetof(struct sockaddr_un, sun_path)
#define WEIR__PATH_SIZE sizeof(((struct sockaddr_un *)NULL)->sun_path)

/* Ports in network order; names fit. */
void weir__address_set_ipv4(weir_address *address, struct in_addr host, in_port_t port);
void weir__address_set_ipv6(weir_address *address, struct in6_addr host, uint32_t scope,
                            in_port_t port);
void weir__address_set_path(weir_address *address, const void *path, size_t length);
void weir__address_set_abstract(weir_address *address, const void *name, size_t length);
void weir__address_set_local(weir_address *address, const void *name, size_t length);

struct sockaddr_in weir__address_ipv4_of(const weir_address *address);
struct sockaddr_in6 weir__address_ipv6_of(const weir_address *address);

#endif
