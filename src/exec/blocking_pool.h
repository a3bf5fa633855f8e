/* SPDX-License-Identifier: MIT */
/* Threads for calls that block and cannot be cancelled: getaddrinfo, reading from a disk. */
#ifndef WEIR_EXEC_BLOCKING_POOL_H
#define WEIR_EXEC_BLOCKING_POOL_H

#include "base/list.h"

#include <time.h>

typedef struct weir_sys weir_sys;

/* Two pools, so that a dead name server does not delay files, nor a slow disk names. */
typedef struct weir_blocking_pool weir_blocking_pool;
extern weir_blocking_pool weir__name_pool, weir__file_pool;

#define WEIR__BLOCKING_THREADS 32 /* the maximum in each */

/* Embedded; it is its owner's again when `run` is called. */
typedef struct weir_blocking_call weir_blocking_call;
struct weir_blocking_call {
    void (*run)(weir_blocking_call *call); /* on one of the threads */
    weir_list_node node;
};

/* Runs the call on a free thread, on a new one, or, at the maximum, on the first that is free.
 * 0, or why there is no thread at all. Thread-safe. */
int weir__blocking_pool_run(weir_blocking_pool *pool, weir_sys *sys, weir_blocking_call *call);

/* Waits until no thread of any pool is left: those without a call end at once. 0 or -ETIMEDOUT;
 * -EDEADLK on one of them. */
int weir__blocking_pools_wait_idle(const struct timespec *until);

#endif
