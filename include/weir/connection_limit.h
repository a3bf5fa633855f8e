/* SPDX-License-Identifier: MIT */
/* How many may be connected at once, in all and from one address. */
#ifndef WEIR_CONNECTION_LIMIT_H
#define WEIR_CONNECTION_LIMIT_H

#include <weir/api.h>
#include <weir/error.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** Zero is the default of everything. */
typedef struct weir_connection_limit_config {
    int max_total;       /* 0: 65,536; WEIR_OFF: any number */
    int max_per_address; /* 0: 256; WEIR_OFF: any number. Not for what has no IP address, as Unix
                            sockets */

    /* How many bits of an address count: those who have the same are one. */
    int ipv4_bits; /* 0: 32 */
    int ipv6_bits; /* 0: 64, which is what one customer has at least */
} weir_connection_limit_config;

/** Counted; any number of channels on any loops share one. It knows only those addresses from which
 * connections are open. */
typedef struct weir_connection_limit weir_connection_limit;

/** Makes one: the caller's reference. -EINVAL for a number out of range, which `error` (may be
 * NULL) names; -ENOMEM. Any thread, as all of these. */
WEIR_API int weir_connection_limit_new(weir_connection_limit **limit,
                                       const weir_connection_limit_config *config,
                                       weir_error *error);

/** Take and release a reference. Thread-safe. */
WEIR_API weir_connection_limit *weir_connection_limit_retain(weir_connection_limit *limit);
WEIR_API void weir_connection_limit_release(weir_connection_limit *limit);

/** Counters of a connection limit. */
typedef struct weir_connection_limit_stats {
    size_t open;                                 /* connections that are counted now */
    size_t addresses;                            /* that they come from */
    uint64_t refused_total, refused_per_address; /* for which limit */
    uint64_t refused_no_memory;                  /* because they could not be counted */
} weir_connection_limit_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_connection_limit_get_stats(weir_connection_limit *limit,
                                              weir_connection_limit_stats *stats);

/**
 * Counts the channel from when it hears that it is active until it is closed, or the handler is
 * removed. What is above a limit is closed at once, and the handlers behind it hear nothing of that
 * connection but that they were added and removed, and on_registered and on_unregistered.
 *
 * Behind a weir_proxy_decoder it counts clients, once they are known, before it the connections of
 * proxies: put one there for the total, and one behind for each address.
 *
 * Add it with a weir_connection_limit as the argument, of which it keeps a reference, before the
 * channel is active, as in `init_child`. Added later it counts at once.
 */
extern WEIR_API const weir_handler_type weir_connection_limit_handler;

WEIR_END_DECLS

#endif
