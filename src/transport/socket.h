/* SPDX-License-Identifier: MIT */
/* What every channel over a socket has, and does alike. */
#ifndef WEIR_TRANSPORT_SOCKET_H
#define WEIR_TRANSPORT_SOCKET_H

#include "channel/channel.h"
#include "io/io.h"

#include <weir/socket.h>

#include <netinet/in.h>

/*
 * The base of streams, listeners and datagram channels. The descriptor is open from the beginning
 * until close; while the channel is on a loop, its backend knows the file.
 *
 *   weir_channel_new          fd is open
 *   attach  (registration)    the loop's backend knows it: it can read, connect and send
 *   quiesce                   all of that is cancelled, and its end awaited
 *   detach  (another loop)    fd is open
 *   close                     fd is closed
 */
typedef struct weir_socket {
    weir_channel channel;
    weir_sys *sys;
    weir_io_file file;
    weir_io_op in;
    struct weir_socket_extras *extras; /* what few sockets need; NULL until then */
    int fd;       /* set once; for any thread, under the channel's lock, while it is open */
    bool is_open; /* under the channel's lock */
    bool is_attached;
    bool is_connected;                /* or bound, or listening: active */
    bool is_peer_known;               /* of a datagram channel: it is connected indeed */
    bool is_quiescing;                /* the channel waits for the end of what is under way */
    bool is_relayed;                  /* what comes in goes somewhere else, see relay.c */
    bool is_relay;                    /* what goes out comes from there */
    bool is_lingering;                /* it waits before it is closed, see lingering.c */
    uint8_t family;                   /* AF_INET, AF_INET6, AF_UNIX */
    _Atomic(uint8_t) max_descriptors; /* others read it */

    /* Of an accepted one, who can still be asked for it when it is closed. */
    bool has_remote;
    in_port_t remote_port;
    uint32_t remote_scope;
    struct in6_addr remote_host; /* or an IPv4 one, in front */
} weir_socket;

typedef struct weir_socket_extras {
    struct weir_claim *claim;         /* of the path it is bound to; NULL: there is none */
    struct weir_sending *sending;     /* of what is not bytes; NULL until there was any */
    struct weir_relaying *relaying;   /* what sends to it in place of the channel, see relay.c */
    struct weir_lingering *lingering; /* for a close that waits; NULL: it does not */
} weir_socket_extras;

static inline weir_socket *weir__socket_of(const weir_channel *channel)
{
    return (weir_socket *)channel;
}

static inline weir_socket *weir__socket_of_in(weir_io_op *op)
{
    return WEIR_CONTAINER(op, weir_socket, in);
}

static inline weir_socket *weir__socket_of_file(weir_io_file *file)
{
    return WEIR_CONTAINER(file, weir_socket, file);
}

static inline weir_io *weir__socket_io(const weir_socket *self)
{
    return weir__channel_loop(&self->channel)->io;
}

/* Prepares a socket, whose descriptor is its own from then on. */
void weir__socket_init(weir_socket *self, const weir_transport *transport, weir_channel *parent,
                       weir_sys *sys, int fd, int family);

/* NULL without memory. */
weir_socket_extras *weir__socket_need_extras(weir_socket *self);

/* The descriptor, which others may be asking something, is not theirs any more: whether it was. */
bool weir__socket_withdraw(weir_socket *self);

/* Functions of a transport. */
int weir__socket_attach(weir_channel *channel);
void weir__socket_detach(weir_channel *channel);
bool weir__socket_is_active(const weir_channel *channel);
bool weir__socket_quiesce(weir_channel *channel, bool is_closing);
void weir__socket_close(weir_channel *channel);
int weir__socket_local_address(const weir_channel *channel, weir_address *address);
int weir__socket_remote_address(const weir_channel *channel, weir_address *address);
void weir__socket_start_reading(weir_channel *channel);
void weir__socket_stop_reading(weir_channel *channel);
int weir__socket_set_option(weir_channel *channel, weir_option option, int64_t value);
int weir__socket_get_option(const weir_channel *channel, weir_option option, int64_t *value);

/* A sender's on_send_cancelled. */
void weir__socket_send_cancelled(weir_io_file *file);

/* The channel's own messages are what a stream sends: after attach, and after a relay. */
void weir__stream_take_sender(weir_socket *self);

/* An operation has ended. Returns true if the channel was quiescing: then the result does not
 * matter, and once nothing is in flight the channel closes or leaves its loop, in this call. */
bool weir__socket_continue_quiesce(weir_socket *self);

/* The batch is over; reads on if that is wished. */
void weir__socket_end_batch(weir_socket *self);

/* Binds the descriptor, and claims the path of a Unix address. 0 or a negative code. */
int weir__socket_bind(weir_socket *self, const weir_address *local);

/* A transport's connect, see connect.c. And the end of one because the channel closes. */
void weir__socket_connect(weir_channel *channel, const weir_address *remote,
                          const weir_address *local, weir_promise *promise);

/* The kernel's word for an option, on a descriptor: 0 or a negative code. sockopt.c */
int weir__sockopt_set(weir_sys *sys, int fd, int family, weir_option option, int64_t value);
int weir__sockopt_get(weir_sys *sys, int fd, int family, weir_option option, int64_t *value);

/* Whether accepted sockets have it from their listener, and whether sockets for that have it. */
bool weir__sockopt_is_inherited(int family, weir_option option);
bool weir__sockopt_is_for(weir_socket_kind kind, int family, weir_option option);

/* The path of a socket file, see claim.c: bound, replacing one that nobody has any more, and
 * taken away with its owner if it is still the same. */
int weir__claim_bind(weir_sys *sys, int fd, const weir_address *local, struct weir_claim **claim);
void weir__claim_end(weir_sys *sys, struct weir_claim *claim);

/* The kinds, each in a file of its own. The descriptor is theirs when they succeed. */
int weir__stream_new(weir_channel **channel, weir_channel *parent, weir_sys *sys, int fd,
                     int family, bool is_connected);
int weir__listener_new(weir_channel **channel, weir_sys *sys, int fd, int family,
                       bool is_listening);
int weir__datagram_new(weir_channel **channel, weir_sys *sys, int fd, int family, bool is_bound);

/* Where it sends to closes: it need not wait for more. */
void weir__relaying_stop(struct weir_relaying *self);

/* A child of a listener is closed. Any thread. */
void weir__listener_child_closed(weir_channel *listener);

/* Of several listeners on one port, that one gets a connection whose number is the CPU's it came in
 * on. -EOPNOTSUPP when it is no TCP listener. Any thread. */
int weir__listener_steer(weir_channel *listener, uint32_t sockets);

/* The option close_linger_ns, see lingering.c: -ENOMEM without the memory that closing must not
 * need; and what it is. */
int weir__lingering_reserve(weir_socket *self);
int weir__lingering_set(weir_socket *self, int64_t ns);
int64_t weir__lingering_ns(const weir_socket *self);

/* The channel closes, and nothing is under way: whether it has to wait for the peer. Then
 * weir__socket_continue_quiesce follows. */
bool weir__lingering_begin(weir_socket *self);

/* Nobody waits any more, nor will the kernel when the descriptor is closed: that is next. */
void weir__lingering_end(weir_socket *self);

/* The same for a descriptor that has the option, and is no channel's. */
void weir__lingering_switch_off(weir_sys *sys, int fd);

/* The same as weir_channel_new, with the system calls of a loop. */
int weir__channel_open(weir_channel **channel, weir_sys *sys, weir_socket_kind kind,
                       const weir_address *address, weir_error *error);
int weir__channel_adopt(weir_channel **channel, weir_sys *sys, weir_socket_kind kind, int fd,
                        weir_error *error);

extern const weir_transport weir__tcp_transport, weir__unix_transport, weir__listener_transport,
    weir__unix_listener_transport, weir__udp_transport, weir__unix_datagram_transport;

#endif
