/* SPDX-License-Identifier: MIT */
/* Clients: connections to an address or a name, and how they are set up. */
#ifndef WEIR_CLIENT_H
#define WEIR_CLIENT_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/channel.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/future.h>
#include <weir/group.h>
#include <weir/pipeline.h>
#include <weir/resolver.h>

WEIR_BEGIN_DECLS

/** Zero is the default of everything but the group. The struct and the lists in it are copied. */
typedef struct weir_client_config {
    weir_group *group; /* of the connection's loop; must outlive it */
    weir_loop *loop;   /* which of the group: that of another channel, say; NULL: as it chooses */
    weir_init_fn init; /* adds handlers, on the loop; may be NULL */
    void *arg;
    void (*arg_release)(void *arg); /* called once with `arg` when `init` can no longer run, on any
                                       thread; not if the call fails. May be NULL */

    const weir_option_value *options;
    size_t option_count;
    const weir_attr_value *attrs; /* their keys have no `destroy` */
    size_t attr_count;

    const char *local; /* where to come from, as 10.0.0.1:0 or unix:/path; NULL: anywhere */
    int64_t connect_timeout_ns; /* for all of it, names included; 0: 30 s, WEIR_OFF: none */
    int64_t stagger_ns; /* until the next address is tried as well; 0: 250 ms, WEIR_OFF: until the
                           one before has failed */
    weir_resolver *resolver; /* for host names; NULL: the system's */
} weir_client_config;

/**
 * Connects and waits until it is. The address is 127.0.0.1:80, [::1]:80, example.org:80,
 * unix:/path, unix:@name or local:name. All addresses of a name are tried, one kind after another,
 * the next one when the one before has failed or has not answered for a while (RFC 8305); the first
 * that answers becomes the channel, which the others never were. Where only one can be tried at a
 * time (WEIR_IO_BLOCKING has one descriptor per loop; descriptors may have run out; a port in
 * `local` is there once), one that does not answer is given up for the next after `stagger_ns` and
 * an equal share of the time that is left (of 30 s without a timeout); the last one has all of the
 * rest.
 *
 * 0, and `channel` is the caller's reference; or a negative code, and `error` (may be NULL) lists
 * the addresses that were tried, and why not, as many as it has room for ("and 3 more"); each that
 * failed is logged at level info, also when another one answers. The codes: -ECONNREFUSED,
 * -ETIMEDOUT, -EHOSTUNREACH, -EINVAL for a text or a number that is none, WEIR_ENONAME,
 * WEIR_ESHUTDOWN, WEIR_ELOOPTYPE for a group without event loops, -EAFNOSUPPORT when `local` is of
 * another kind, -ENOMEM, -EMFILE. Of several the code is the first one's. -EDEADLK on a thread of
 * weir's.
 */
WEIR_API int weir_client_connect(weir_channel **channel, const weir_client_config *config,
                                 const char *address, weir_error *error);

/** Begins to. The promise succeeds with the channel, a weir_channel that it keeps a reference to
 * for as long as it lives: retain it. Or it fails, and weir_future_error says why. Cancelling it
 * ends the attempts, and closes what was connected in that moment. It may be NULL. A negative code
 * at once for what is wrong with the config or the text; then the promise is left alone. Any
 * thread. */
WEIR_API int weir_client_start(const weir_client_config *config, const char *address,
                               weir_promise *promise, weir_error *error);

/* Datagrams ---------------------------------------------------------------------------------- */

/**
 * Opens a datagram channel (UDP, or a Unix datagram socket) on an address of this machine and waits
 * until it is bound: 0.0.0.0:37, [::]:37, unix:/path; port 0 is any that is free. What it reads and
 * writes is in <weir/datagram.h>; to have one peer only, weir_channel_connect it. Addresses of a
 * name that this machine does not have are passed over, in their order: so `init` may see channels
 * that are closed before they are active. Of the config the group, init, arg, options, attrs and
 * the resolver count. 0 and the caller's reference, or a negative code as above; -EADDRINUSE.
 */
WEIR_API int weir_client_bind(weir_channel **channel, const weir_client_config *config,
                              const char *address, weir_error *error);

/** Begins to; the promise, which may not be NULL, is as above. Cancelling it does not hurry
 * anything, but the channel is closed once it is open. Any thread. */
WEIR_API int weir_client_start_bind(const weir_client_config *config, const char *address,
                                    weir_promise *promise, weir_error *error);

WEIR_END_DECLS

#endif
