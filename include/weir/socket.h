/* SPDX-License-Identifier: MIT */
/* Sockets as channels: TCP and Unix streams, listeners, datagrams, and pipes within the process. */
#ifndef WEIR_SOCKET_H
#define WEIR_SOCKET_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/channel.h>
#include <weir/duration.h>
#include <weir/error.h>

#include <sys/types.h>

WEIR_BEGIN_DECLS

/*
 * Servers and clients make their channels themselves, see <weir/server.h> and <weir/client.h>; this
 * is for who wants to do it step by step: make a channel, add handlers, register it with a loop,
 * then bind or connect it.
 */

/*
 * A channel that is bound to the path of a Unix socket takes the file away when it closes, if it is
 * still its own. A socket that was left there by somebody who is gone is replaced; one that a
 * socket of any process is bound to, listening or not, is not, and neither is anything else at the
 * path: -EADDRINUSE. Two who find the same one left behind at the same moment may take it from each
 * other: then the first one's path is the second one's. Names that begin with @ are the kernel's,
 * and leave nothing.
 */

/** The kind of channel that a socket becomes. */
typedef enum weir_socket_kind {
    WEIR_SOCKET_STREAM,   /* TCP, a Unix stream, or local: bytes in order */
    WEIR_SOCKET_LISTENER, /* accepts such streams; its handlers read <weir/accepted.h> */
    WEIR_SOCKET_DATAGRAM, /* UDP, or Unix datagrams; its handlers read <weir/datagram.h> */
} weir_socket_kind;

/** Makes a channel that is neither bound nor connected, and on no loop. `address` is any of the
 * kind that it will have to do with: only its family counts. The caller has the one reference.
 * -EINVAL, -EAFNOSUPPORT for datagrams that are local, -ENOMEM, or what the kernel says (-EMFILE).
 */
WEIR_API int weir_channel_new(weir_channel **channel, weir_socket_kind kind,
                              const weir_address *address, weir_error *error);

/** Makes a channel of a descriptor: connected, bound or listening sockets are active as soon as the
 * channel is registered. The descriptor is the channel's when this succeeds, and made non-blocking
 * and close-on-exec; else it stays the caller's. -EBADF, -ENOTSOCK, -EINVAL when it is not of that
 * kind, -EAFNOSUPPORT, -ENOMEM. */
WEIR_API int weir_channel_from_descriptor(weir_channel **channel, weir_socket_kind kind, int fd,
                                          weir_error *error);

/** The descriptor, to look at: borrowed, and gone when the channel closes. -EBADF when it is, or
 * there is none. Any thread. */
WEIR_API int weir_channel_descriptor(const weir_channel *channel);

/** States of a TCP connection: the kernel's numbers, of which these are two. */
enum {
    WEIR_TCP_ESTABLISHED = 1,
    WEIR_TCP_CLOSED = 7, /* also after a reset */
};

/** What the kernel knows about a TCP connection. */
typedef struct weir_tcp_info {
    uint32_t state; /* WEIR_TCP_CLOSED and so on */
    int64_t round_trip_ns, round_trip_variance_ns;
    uint32_t send_window_segments; /* the congestion window */
    uint32_t segment_bytes;
    uint32_t unacked_segments, lost_segments, retransmitted_segments;
    uint32_t total_retransmissions;
    uint32_t receive_space_bytes;
    uint64_t bytes_acked, bytes_received;
    uint64_t delivery_rate; /* bytes per second */
} weir_tcp_info;

/** -EOPNOTSUPP when it is no TCP channel, WEIR_ECLOSED, or what the kernel says. Any thread. */
WEIR_API int weir_channel_tcp_info(const weir_channel *channel, weir_tcp_info *info);

/** Who is at the other end of a Unix stream, as the kernel has it. */
typedef struct weir_credentials {
    pid_t pid;
    uid_t uid;
    gid_t gid;
} weir_credentials;

/** -EOPNOTSUPP when it is no Unix stream, WEIR_ECLOSED. Any thread. */
WEIR_API int weir_channel_credentials(const weir_channel *channel, weir_credentials *credentials);

/** What a listener has seen. */
typedef struct weir_listener_stats {
    uint64_t accepted;    /* connections that became channels */
    uint64_t connections; /* of those, that are still open */
    uint64_t failed;      /* that were gone before they could be accepted, or got no memory */
    uint64_t refused;     /* that were accepted and closed at once, for want of descriptors */
    uint64_t pauses;      /* how often descriptors or memory ran out */
    uint64_t limited;     /* how often it stopped because of max_connections */
} weir_listener_stats;

/** -EOPNOTSUPP when it is no listener. Any thread. */
WEIR_API int weir_channel_listener_stats(const weir_channel *channel, weir_listener_stats *stats);

WEIR_END_DECLS

#endif
