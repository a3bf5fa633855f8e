/* SPDX-License-Identifier: MIT */
/* Connection pools: a bounded number of connections to one address, lent to whoever needs one. */
#ifndef WEIR_CONNECTION_POOL_H
#define WEIR_CONNECTION_POOL_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/client.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/future.h>

WEIR_BEGIN_DECLS

/**
 * Whether a connection that has been idle is still good: completes the promise, at once or later,
 * with 0, or with a negative code, and then the connection is closed and another one is taken. The
 * channel is borrowed. On any thread, several at once; no lock of the pool's is held.
 */
typedef void (*weir_connection_check_fn)(weir_channel *channel, weir_promise *promise, void *arg);

/** Zero is the default of everything but the client's group. The struct and what it points to are
 * copied, but for the group and the resolver, which must outlive the pool. */
typedef struct weir_connection_pool_config {
    weir_client_config client; /* how connections are made; its init is called for each new one */
    int max;                   /* connections at any moment; 0: 16 */
    int max_pending;           /* acquires that wait though nothing is on its way for them; 0: 1024,
                                  WEIR_OFF: none */
    int64_t acquire_timeout_ns; /* how long an acquire waits; 0: 30 s, WEIR_OFF: for ever */
    int64_t idle_timeout_ns;    /* closes a connection that was idle for so long; 0: never */
    int64_t finish_timeout_ns;  /* closes a returned connection that has output left once it sends
                               none of it for this long; 0: 10 s, WEIR_OFF: no limit */
    weir_connection_check_fn check; /* NULL: it is good as long as it is active */
    void *check_arg;
} weir_connection_pool_config;

/*
 * Connections are made when somebody asks for one and none is idle, up to `max`. Who asks then
 * waits: the first to ask is the first to get one. What is given back is lent again, the one that
 * was used last first. A connection that ends leaves the pool by itself, and if it was lent its
 * place is free at once.
 *
 * Pools are counted. With the last reference a pool closes; it is gone when its channels are. All
 * of this may be called on any thread.
 */
typedef struct weir_connection_pool weir_connection_pool;

/** Makes a pool, without connections yet: the caller's reference. -EINVAL for what is wrong with
 * the config, which `error` (may be NULL) names; -ENOMEM. The address is as for
 * weir_client_connect; it is looked at with the first acquire. */
WEIR_API int weir_connection_pool_new(weir_connection_pool **pool,
                                      const weir_connection_pool_config *config,
                                      const char *address, weir_error *error);

/** Take and release a reference. Thread-safe. */
WEIR_API weir_connection_pool *weir_connection_pool_retain(weir_connection_pool *pool);
WEIR_API void weir_connection_pool_release(weir_connection_pool *pool);

/**
 * Asks for a connection. The promise succeeds with a channel, which it keeps a reference to for as
 * long as it lives; or it fails: with WEIR_ELIMIT at once when too many wait, -ETIMEDOUT,
 * WEIR_ECLOSED, -ENOMEM, or with what a connection that was made for those who wait has failed
 * with. Cancelling it gives up the place in the line.
 */
WEIR_API void weir_connection_pool_acquire(weir_connection_pool *pool, weir_promise *promise);

/**
 * Returns a connection to the pool, also a closed one. It is lent again only if it is open both
 * ways, no shutdown or close was requested, it is writable, reads as it did when it was
 * made, and its queue has no output left. Otherwise the pool sends that output and closes it
 * (weir_channel_finish, limited by `finish_timeout_ns`).
 *
 * Wait for the promises of all writes before the call: the pool sees only the channel's own queue.
 * Output that a handler still holds (weir_chunked_handler, weir_traffic_handler, any offloaded
 * handler) is invisible to it, and the next borrower's writes would be queued after that output.
 *
 * The caller keeps its reference. Thread-safe. -EINVAL if the connection is not of this pool or was
 * returned before.
 */
WEIR_API int weir_connection_pool_give_back(weir_connection_pool *pool, weir_channel *channel);

/** Returns a connection that must not be lent again, for example after a protocol error: closes it
 * at once. Otherwise as weir_connection_pool_give_back. */
WEIR_API int weir_connection_pool_discard(weir_connection_pool *pool, weir_channel *channel);

/** Closes the pool: pending and later acquires fail with WEIR_ECLOSED. Idle connections are closed,
 * and so are returned ones that still send: their remaining output is lost. Lent connections are
 * closed when they are returned. The promise (may be NULL) succeeds when weir_channel_closed of the
 * last one is complete: arguments of their handlers can be freed. */
WEIR_API void weir_connection_pool_close(weir_connection_pool *pool, weir_promise *promise);

/** Connections by state, and totals. */
typedef struct weir_connection_pool_stats {
    size_t idle, borrowed;
    size_t connecting; /* being made */
    size_t checking;   /* idle, until the check has told */
    size_t closing;    /* on their way out; they still count for `max` */
    size_t waiting;    /* acquires */
    uint64_t created, closed, timeouts;
} weir_connection_pool_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_connection_pool_get_stats(weir_connection_pool *pool,
                                             weir_connection_pool_stats *stats);

WEIR_END_DECLS

#endif
