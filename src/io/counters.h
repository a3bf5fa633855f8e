/* SPDX-License-Identifier: MIT */
/* What a backend counts, and how one is made, for who reads it without the rest of the io
 * interface. */
#ifndef WEIR_IO_COUNTERS_H
#define WEIR_IO_COUNTERS_H

#include "base/counter.h"

#include <stdbool.h>

/* What every backend counts, by its loop's thread; any thread may read. */
typedef struct weir_io_counters {
    _Atomic(uint64_t) polls;                    /* how often the kernel was asked for events */
    _Atomic(uint64_t) completions;              /* calls of on_done */
    _Atomic(uint64_t) stale;                    /* events for what is no longer there */
    _Atomic(uint64_t) controls;                 /* changes of what the kernel watches: epoll_ctl */
    _Atomic(uint64_t) receives, sends, accepts; /* system calls */
    _Atomic(uint64_t) rebuilds;
    _Atomic(uint64_t) exhausted; /* provided buffers ran out */
} weir_io_counters;

/* How large the io_uring backend is: 0 is the default of each. */
typedef struct weir_uring_config {
    unsigned entries;      /* that can be submitted at once */
    unsigned buffers;      /* the most that wait to be received into */
    unsigned buffer_bytes; /* how large each of them is */
    bool is_by_hand;       /* somebody waits for its descriptor */
} weir_uring_config;

#endif
