/* SPDX-License-Identifier: MIT */
/* Traffic shaping: how fast bytes may come and go, on each channel and on many together. */
#ifndef WEIR_TRAFFIC_H
#define WEIR_TRAFFIC_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/**
 * How fast. A rate of 0 is no limit. After a rest a burst may pass at once: in any time the bytes
 * written are at most a burst, or one message if that is larger, and the rate times the time. 0 for
 * a burst is what the rate allows in a tenth of a second; one of less than what passes in a few
 * milliseconds makes the rate slower, because timers are late.
 *
 * A message is not cut: it goes when all of it is allowed. One that would take longer than
 * max_wait_ns at the rate (WEIR_OFF: no limit; 0: 4 seconds, which is less than the usual
 * linger_ns) counts as so much, so it goes in time and the rate is exceeded. Rates and bursts are
 * at most 2^50.
 */
typedef struct weir_traffic_limits {
    int64_t read_bytes_per_second, read_burst_bytes;
    int64_t write_bytes_per_second, write_burst_bytes;
    int64_t max_wait_ns;
} weir_traffic_limits;

/* Shapers ------------------------------------------------------------------------------------ */

/**
 * What shapes: limits, what is left of them at the moment, and counters. Each channel with the
 * handler below has one of its own, and any number of them, on any loops, can share another one.
 * Who waits for a shared one gets turns, each of one message, in the order of asking. All functions
 * on any thread.
 */
typedef struct weir_shaper weir_shaper;

/** Makes one to be shared; the caller frees it. -EINVAL for limits that are out of range, which
 * `error` (may be NULL) names, -ENOMEM. */
WEIR_API int weir_shaper_new(weir_shaper **shaper, const weir_traffic_limits *limits,
                             weir_error *error);

/** When the channels that use it are closed. NULL is fine. */
WEIR_API void weir_shaper_free(weir_shaper *shaper);

/** Other limits from now on. What waits already goes by them within a second. -EINVAL as above, and
 * then the old ones hold. */
WEIR_API int weir_shaper_set_limits(weir_shaper *shaper, const weir_traffic_limits *limits,
                                    weir_error *error);
WEIR_API void weir_shaper_get_limits(weir_shaper *shaper, weir_traffic_limits *limits);

/** What has passed, since it was made. */
typedef struct weir_traffic_stats {
    uint64_t read_bytes, written_bytes;                       /* that were passed on */
    uint64_t read_bytes_per_second, written_bytes_per_second; /* in about the last second */
    uint64_t delayed_bytes, delayed_messages;                 /* written, and waiting here now */
    uint64_t reads_paused;                                    /* channels, now */
    int64_t read_paused_ns, write_delayed_ns; /* how long channels did not read, and messages
                                                 waited at the front, which is over */
} weir_traffic_stats;

/** The time is that of the loops of its channels, whose clock must still be there if it is not the
 * system's. */
WEIR_API void weir_shaper_get_stats(weir_shaper *shaper, weir_traffic_stats *stats);

/* The handler -------------------------------------------------------------------------------- */

/** What is shaped: each channel by itself, all with the same shaper together, or both. */
typedef struct weir_traffic {
    weir_traffic_limits each; /* at first: weir_channel_shaper changes those of one */
    weir_shaper *shared;      /* NULL: none. An object of many channels: it is not copied, and has
                                 to live until they are closed */
} weir_traffic;

/** The shaper of a channel that has, or had, the handler below, else NULL. Borrowed; it lives as
 * long as the channel. Any thread. */
WEIR_API weir_shaper *weir_channel_shaper(weir_channel *channel);

/**
 * Shapes the traffic of a channel. Add it with a weir_traffic as the argument, which is copied,
 * next to the head, where there are bytes: a message counts as its weir_msg_size, and a file as its
 * length (weir_file_bytes_handler, added after it, sends files as buffers instead). An add fails if
 * a limit is out of range or the handler has an executor of its own. A timer runs only while
 * messages wait.
 *
 * Reading: what was read is passed on, and when it was too much the channel stops reading until it
 * is allowed; the kernel then makes the other side wait. auto_read stays as it is. That the other
 * side has ended is also not seen before.
 *
 * Writing: what is too early waits, in order, with its flushes. When more waits than the channel's
 * high water mark it is not writable, until no more does than the low one; when more would wait
 * here and in the channel than max_outbound_bytes, the write fails with WEIR_ELIMIT. A shutdown,
 * and so weir_channel_finish, comes behind what waits; writes behind that fail with -EPIPE. A
 * cancelled write is left out. A close does not wait: as with what the kernel has not taken, what
 * waits then fails with WEIR_ECLOSED. What waits when the handler is removed is passed on at once.
 * Without memory for a timer nothing waits, and what waited goes.
 */
extern WEIR_API const weir_handler_type weir_traffic_handler;

WEIR_END_DECLS

#endif
