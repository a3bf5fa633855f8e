/* SPDX-License-Identifier: MIT */
/* Channels between loops of one process, without the kernel. */
#ifndef WEIR_TRANSPORT_LOCAL_H
#define WEIR_TRANSPORT_LOCAL_H

#include "transport/local_pipe.h"

/*
 * A listener is bound to a name, "local:name", and reads weir_accepted messages; the other kind
 * connects to such a name. What one end of a connection writes and flushes the other reads:
 * messages of any type, the same objects. A connect fails, and closes the channel, with
 * -ECONNREFUSED when nobody is bound there, too many wait to be accepted, or the listener closes;
 * -ETIMEDOUT; -ECANCELED. Writing to an end that is gone fails with -ECONNRESET, as soon as all
 * that it had sent is read, or at once when nobody reads. A name of its own, by bind or connect, is
 * only what the other side is told: it need not be free.
 */

/* A channel that is on no loop, neither bound nor connected, and the reference to it: 0, -ENOMEM.
 */
int weir__local_new(weir_channel **channel, bool is_listener);

/* How many connects may wait while the listener does not read, unless the option backlog says
 * otherwise. */
#define WEIR__LOCAL_BACKLOG 128

/* For the listener: the accepted end of a pipe, with its options. NULL: no memory. */
weir_channel *weir__local_child_new(weir_channel *parent, weir_local_pipe *pipe);

#endif
