/* SPDX-License-Identifier: MIT */
/* Listeners of in-process connections, and the names they are found by. */
#ifndef WEIR_TRANSPORT_LOCAL_LISTENER_H
#define WEIR_TRANSPORT_LOCAL_LISTENER_H

#include "transport/local_pipe.h"

#include <weir/socket.h>

/* NULL: no memory. */
weir_channel *weir__local_listener_new(void);

/* Waits for the listener that is bound to the pipe's remote address to accept: 0, or -ECONNREFUSED
 * when nobody is bound there, or too many wait for it. The pipe is settled some time, unless it is
 * withdrawn. */
int weir__local_knock(weir_local_pipe *pipe);

/* An accepted end begins or has closed. */
void weir__local_listener_child_opened(weir_channel *listener);
void weir__local_listener_child_closed(weir_channel *listener);

/* False when the channel is no such listener. */
bool weir__local_listener_stats(const weir_channel *channel, weir_listener_stats *stats);

/* Does not wait any more. */
void weir__local_withdraw(weir_local_pipe *pipe);

#endif
