/* SPDX-License-Identifier: MIT */
/* A guard for a server's connections: against peers that take and do not give. */
#ifndef WEIR_GUARD_H
#define WEIR_GUARD_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/connection_limit.h>
#include <weir/duration.h>
#include <weir/error.h>

WEIR_BEGIN_DECLS

/*
 * One call in `init_child`, and a connection cannot be held open for nothing:
 *
 *     static int init_child(weir_channel *channel, void *arg)
 *     {
 *         int code = weir_guard_add(arg, channel);
 *         return code < 0 ? code : weir_pipeline_add_last(weir_channel_pipeline(channel), ...);
 *     }
 */

/** Time limits, and what counts as too slow. Zero is the default of everything, WEIR_OFF
 * switches one off. */
typedef struct weir_guard_config {
    weir_connection_limit_config connections; /* in all, and from one address */

    int64_t first_byte_ns; /* until the first byte came; 0: 10 s */
    int64_t idle_ns;       /* nothing came and nothing went for so long; 0: 60 s */
    int64_t write_ns;      /* what was flushed waits, and the peer takes nothing of it; 0: 30 s */
    int64_t total_ns;      /* from the begin to the end, whatever happens; 0: any time */

    /* While something is expected of the peer, which only the protocol knows, see
     * weir_guard_expect. */
    int64_t expected_ns; /* until all of it is there; 0: 10 s */
    int min_bytes_per_s; /* in every period; 0: any number */
    int64_t period_ns;   /* 1 ms or more; 0: 5 s */
} weir_guard_config;

/** Counted; the connections of any number of servers and loops share one. */
typedef struct weir_guard weir_guard;

/** Makes one: the caller's reference. -EINVAL for a number out of range, which `error` (may be
 * NULL) names; -ENOMEM. Any thread, as all of these. */
WEIR_API int weir_guard_new(weir_guard **guard, const weir_guard_config *config, weir_error *error);

/** Take and release a reference. Thread-safe. */
WEIR_API weir_guard *weir_guard_retain(weir_guard *guard);
WEIR_API void weir_guard_release(weir_guard *guard);

/** Connections that were closed, and why. */
typedef struct weir_guard_stats {
    uint64_t no_first_byte;
    uint64_t idle;
    uint64_t not_taken; /* output */
    uint64_t too_old;
    uint64_t not_complete; /* what was expected, in expected_ns */
    uint64_t too_slow;     /* below min_bytes_per_s */
    weir_connection_limit_stats connections;
} weir_guard_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_guard_get_stats(weir_guard *guard, weir_guard_stats *stats);

/**
 * Guards a channel: adds a weir_connection_limit_handler and a handler that watches the times, at
 * the end of its pipeline, so call it before adding the others; but behind a weir_proxy_decoder,
 * for the clients to be counted. The times run from then on, also while the decoder waits for its
 * header. When one is over, on_error says -ETIMEDOUT and which, and the channel is closed. Of who
 * is above a limit the handlers behind hear nothing.
 *
 * The guard is kept until the channel is gone. 0, or the codes of weir_pipeline_add_last. Both
 * handlers are the loop's. They have one timer, which nothing that is read or sent touches, so a
 * time may be over a moment later, and not taken output up to twice as long.
 */
WEIR_API int weir_guard_add(weir_guard *guard, weir_channel *channel);

/**
 * From now on something is expected of the peer, for example the header of a request whose first
 * bytes are there: expected_ns and min_bytes_per_s run, until weir_guard_has_come says that it is
 * complete. Bytes count that come while the channel reads by itself: when it does not, for any part
 * of a period, that begins anew, for then nobody can tell whether the peer is slow. Calling it
 * again changes nothing; on a channel without a guard nothing happens. Any thread; on the channel's
 * loop it takes effect at once.
 */
WEIR_API void weir_guard_expect(weir_channel *channel);
WEIR_API void weir_guard_has_come(weir_channel *channel);

/** Ends all time limits of a channel, for a trusted peer or a protocol that may be silent for long.
 * The channel still counts for the connection limits. Without a guard it does nothing. Thread-safe,
 * as above. */
WEIR_API void weir_guard_exempt(weir_channel *channel);

WEIR_END_DECLS

#endif
