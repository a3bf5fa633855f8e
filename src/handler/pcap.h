/* SPDX-License-Identifier: MIT */
/* Packets in a pcap file, for the handler that makes them up. */
#ifndef WEIR_HANDLER_PCAP_H
#define WEIR_HANDLER_PCAP_H

#include <weir/buf.h>
#include <weir/pcap.h>

enum {
    WEIR__PCAP_TCP = 6, /* as in an IP header */
    WEIR__PCAP_UDP = 17,
};

enum {
    WEIR__TCP_FIN = 1, /* as in a TCP header */
    WEIR__TCP_SYN = 2,
    WEIR__TCP_RST = 4,
    WEIR__TCP_PSH = 8,
    WEIR__TCP_ACK = 16,
};

/* The most bytes in one packet, whatever its headers are. */
#define WEIR__PCAP_TCP_BYTES ((size_t)65535 - 60)
#define WEIR__PCAP_UDP_BYTES ((size_t)65535 - 8)

/* A host and a port. */
typedef struct weir_pcap_end {
    uint8_t host[16]; /* in network order; four of them for IPv4 */
    uint16_t port;
} weir_pcap_end;

typedef struct weir_pcap_packet {
    bool is_ipv6;
    uint8_t protocol;
    uint8_t flags; /* TCP only, as the next two */
    uint32_t seq, ack;
    const weir_pcap_end *from, *to;
    const weir_buf *content; /* `length` bytes of it, from the index `at` on; NULL: nobody knows */
    size_t at, length;
} weir_pcap_packet;

/* Packets between the two have the same time, and no others among them. */
void weir__pcap_lock(weir_pcap *pcap);
void weir__pcap_put(weir_pcap *pcap, const weir_pcap_packet *packet);
void weir__pcap_unlock(weir_pcap *pcap);

#endif
