/* SPDX-License-Identifier: MIT */
/* Datagrams: messages with an address, over UDP and Unix datagram sockets. */
#ifndef WEIR_DATAGRAM_H
#define WEIR_DATAGRAM_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/buf.h>
#include <weir/channel.h>
#include <weir/msg.h>

WEIR_BEGIN_DECLS

/**
 * What a datagram channel reads and writes. Read: who sent it, and which address it was sent to:
 * one of this machine's, a multicast group or a broadcast address; with the option receive_original
 * the one that it had before it was redirected here (TPROXY), with its port. Written: `recipient`
 * says where to, none is where the channel is connected to; `sender` says which address of this
 * machine it should come from, none lets the kernel choose. To a connected channel plain buffers
 * can be written, too.
 *
 * On a channel for both families an IPv4 address that is read has the form of IPv6, as with a
 * listener's peers (see weir_address_unmap); in what is written both forms will do.
 *
 * A Unix datagram to somebody whose queue is full fails with -ENOBUFS, unless the channel is
 * connected: then it waits.
 *
 * Datagrams are lost one by one: a write that fails does not close the channel. -EMSGSIZE is one
 * that is too long, or in more than 1,024 pieces. What the other side's machine answers ("port
 * unreachable") is told to a connected channel's on_error as -ECONNREFUSED.
 */
typedef struct weir_datagram {
    weir_msg msg;      /* of type weir_datagram_type */
    weir_buf *content; /* the message's own */
    weir_address sender, recipient;
    uint16_t segment_bytes; /* to be written: not 0 cuts the content into datagrams of so many bytes
                               in the kernel (UDP only, at most 64 of them) */
    bool is_truncated;      /* read, with the option deliver_truncated: it was longer */
    bool is_broadcast;      /* read, by a channel that is bound to all addresses (IPv4) */
} weir_datagram;

/** The message type of datagrams. */
WEIR_API extern const weir_msg_type weir_datagram_type;

/** A datagram to be written, which takes the content; the addresses may be NULL. NULL without
 * memory, and then the content is still the caller's. */
WEIR_API weir_datagram *weir_datagram_new(weir_buf *content, const weir_address *recipient,
                                          const weir_address *sender);

/** The answer to one that was read: to its sender, from the address it was sent to, unless that is
 * a multicast group or a broadcast address. NULL without memory, and then the content is still the
 * caller's. */
WEIR_API weir_datagram *weir_datagram_answer(const weir_datagram *datagram, weir_buf *content);

/** Joins or leaves a multicast group on an interface (its index; 0: the system's choice); with a
 * `source` (else NULL) only what that one sends. -EINVAL when they do not fit together,
 * -EOPNOTSUPP when it is no UDP channel, WEIR_ECLOSED, or what the kernel says. Any thread. */
WEIR_API int weir_datagram_join(weir_channel *channel, const weir_address *group,
                                unsigned interface, const weir_address *source);
WEIR_API int weir_datagram_leave(weir_channel *channel, const weir_address *group,
                                 unsigned interface, const weir_address *source);

/** What a datagram channel has seen. */
typedef struct weir_datagram_stats {
    uint64_t truncated;   /* that were longer than max_datagram_bytes: dropped, or delivered so */
    uint64_t unreachable; /* reports that the other side is not there */
} weir_datagram_stats;

/** -EOPNOTSUPP when it is no datagram channel. Any thread. */
WEIR_API int weir_channel_datagram_stats(const weir_channel *channel, weir_datagram_stats *stats);

WEIR_END_DECLS

#endif
