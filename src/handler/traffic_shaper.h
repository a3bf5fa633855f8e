/* SPDX-License-Identifier: MIT */
/* Shapers, for the handler that asks them. */
#ifndef WEIR_HANDLER_TRAFFIC_SHAPER_H
#define WEIR_HANDLER_TRAFFIC_SHAPER_H

#include <weir/clock.h>
#include <weir/traffic.h>

typedef enum weir_way {
    WEIR_WAY_READ,
    WEIR_WAY_WRITE,
} weir_way;

/* A claim to bytes: when everything up to `upto` is allowed they may pass. */
typedef struct weir_claim {
    int64_t upto, bytes;
} weir_claim;

/* Takes a turn at the end of the line; returns how long it is until the bytes may pass: 0 when they
 * may. Any thread, as all of these; `now_ns` is the time of the caller's loop. */
int64_t weir__shaper_claim(weir_shaper *shaper, weir_way way, uint64_t bytes, int64_t now_ns,
                           weir_claim *claim);

/* How long it is by now. */
int64_t weir__shaper_wait(weir_shaper *shaper, weir_way way, weir_claim *claim, int64_t now_ns);

/* Gives a claim back that was not made use of. */
void weir__shaper_unclaim(weir_shaper *shaper, weir_way way, const weir_claim *claim);

/* What happened, for the counters. */
void weir__shaper_passed(weir_shaper *shaper, weir_way way, uint64_t bytes, int64_t now_ns);
void weir__shaper_delayed(weir_shaper *shaper, int64_t bytes, int messages);
void weir__shaper_waited(weir_shaper *shaper, int64_t time_ns);
void weir__shaper_paused(weir_shaper *shaper);
void weir__shaper_resumed(weir_shaper *shaper, int64_t time_ns);

/* Where the time is read for the counters. */
void weir__shaper_set_clock(weir_shaper *shaper, weir_clock *clock);

#endif
