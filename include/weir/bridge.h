/* SPDX-License-Identifier: MIT */
/* Bridges: two connections that pass everything on to each other. */
#ifndef WEIR_BRIDGE_H
#define WEIR_BRIDGE_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/client.h>
#include <weir/duration.h>
#include <weir/error.h>

WEIR_BEGIN_DECLS

/*
 *     client <--> [ front channel ] == bridge == [ back channel ] <--> server
 *
 * A bridge writes to each channel what it reads from the other, in order and without loss. The
 * channels may be on different loops, and each may have handlers of its own, TLS for example: the
 * bridge is a handler at the end of both pipelines, so it passes on what the handlers before it
 * deliver.
 *
 * - Back-pressure: a channel is not read while the other one is not writable.
 * - Half-close: EOF on one channel shuts down the output of the other one. Both close after EOF in
 *   both directions.
 * - Failure: if one channel fails or closes early, the other one is reset (weir_channel_reset), so
 *   its peer cannot mistake a truncated stream for a complete one. Unix and local streams have no
 *   reset: there the peer sees EOF.
 * - Speed: once a direction has moved `relay_after_bytes`, the kernel moves the rest (weir_relay),
 *   if both channels are on one loop and no other handler of theirs reads or writes.
 *
 * Removing the handler "bridge" from one channel resets the other one; the first goes on without
 * it.
 *
 * The bridge sets the options allow_half_closure and pause_when_unwritable of both channels. A
 * limit max_outbound_bytes must leave room for a batch of reads (1 MiB) above the high water mark.
 */

/** How a bridge ended. */
typedef struct weir_bridge_result {
    weir_error error;           /* why it ended early; code 0: both directions reached EOF */
    weir_channel *front, *back; /* borrowed; back is NULL if it was never connected */
    uint64_t bytes_to_back, bytes_to_front;
} weir_bridge_result;

/** Zero is the default of every field. The struct is copied. */
typedef struct weir_bridge_config {
    int64_t idle_timeout_ns;   /* resets both channels if no byte was moved for so long; 0: 600 s,
                                  WEIR_OFF: never */
    int64_t relay_after_bytes; /* 0: 1 MiB, WEIR_OFF: the kernel never relays */

    /* Called once, when each channel has closed or lost the handler, on the thread of the later
     * one. May be NULL. */
    void (*on_end)(void *arg, const weir_bridge_result *result);
    void *arg;
} weir_bridge_config;

/**
 * Bridges two registered channels. Messages that a channel delivers before it has the handler are
 * not passed on: call this before they are active, while they do not read, or from the last
 * handler. A back channel on another loop gets the handler later, so it must not read yet.
 *
 * `config` may be NULL. Returns 0, or -EINVAL, -ENOMEM or the code of an add that failed; in the
 * last case both channels close. Call it on the loop of `front`.
 */
WEIR_API int weir_bridge(weir_channel *front, weir_channel *back, const weir_bridge_config *config);

/**
 * Connects to an address and bridges the new connection with a channel: a proxy in one call, from
 * its init_child. What `front` delivers meanwhile is buffered, at most 64 KiB and one batch of
 * reads.
 *
 * `client` is copied. Its `init` adds handlers of the back channel, on its loop, before the bridge
 * is added. `client->group` NULL means the group of `front`, and `client->loop` NULL its loop, if
 * that serves more than one channel.
 * If the connection fails, `front` closes.
 *
 * Returns 0, or a negative code as weir_client_start and weir_pipeline_add_last do. Call it on the
 * loop of `front`, or in its initializer.
 */
WEIR_API int weir_bridge_connect(weir_channel *front, const weir_client_config *client,
                                 const char *address, const weir_bridge_config *config,
                                 weir_error *error);

WEIR_END_DECLS

#endif
