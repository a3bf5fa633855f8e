/* SPDX-License-Identifier: MIT */
/* The peers that were there when this was configured, as entries of a case's table. */
#ifndef WEIR_BENCH_PEERS_H
#define WEIR_BENCH_PEERS_H

#include "bench.h"

#ifdef BENCH_HAS_UV
#define PEER_UV(fn, target)                                                                        \
    {                                                                                              \
        "libuv", fn, target                                                                        \
    }
#else
#define PEER_UV(fn, target)                                                                        \
    {                                                                                              \
        "libuv", NULL, target                                                                      \
    }
#endif

#ifdef BENCH_HAS_EV
#define PEER_EV(fn, target)                                                                        \
    {                                                                                              \
        "libev", fn, target                                                                        \
    }
#else
#define PEER_EV(fn, target)                                                                        \
    {                                                                                              \
        "libev", NULL, target                                                                      \
    }
#endif

#ifdef BENCH_HAS_NETTY
#define PEER_NETTY(fn, target)                                                                     \
    {                                                                                              \
        "netty", fn, target                                                                        \
    }
#else
#define PEER_NETTY(fn, target)                                                                     \
    {                                                                                              \
        "netty", NULL, target                                                                      \
    }
#endif

void peer_uv_tasks(bench_run *run);
void peer_uv_trips(bench_run *run);
void peer_uv_near_trips(bench_run *run);
void peer_uv_schedule_cancel(bench_run *run);
void peer_uv_reschedule(bench_run *run);
void peer_uv_schedule_fire(bench_run *run);

void peer_ev_schedule_cancel(bench_run *run);
void peer_ev_reschedule(bench_run *run);
void peer_ev_schedule_fire(bench_run *run);

void peer_netty_tasks(bench_run *run);
void peer_netty_schedule_cancel(bench_run *run);
void peer_netty_reschedule(bench_run *run);
void peer_netty_schedule_fire(bench_run *run);
void peer_netty_read(bench_run *run);
void peer_netty_hop(bench_run *run);
void peer_netty_length_field(bench_run *run);

#endif
