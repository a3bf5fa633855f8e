/* SPDX-License-Identifier: MIT */
/* Manual groups: stepped by the thread that made them, also while it waits for a future. */
#ifndef WEIR_EXEC_MANUAL_H
#define WEIR_EXEC_MANUAL_H

#include "exec/group.h"

/* Makes the calling thread the group's driver, and starts its children without threads. */
int weir__manual_begin(weir_group *group);

/* The group ends: nobody steps it any more. */
void weir__manual_end(weir_group *group);

/* Whether the group is manual, and the calling thread's. */
bool weir__manual_is_mine(const weir_group *group);

/* Whether one of its executors is being stepped right now. */
bool weir__manual_is_in_turn(const weir_group *group);

/* Whether the calling thread has to step groups while it waits. */
bool weir__manual_is_driver(void);

/* Steps the thread's groups until the future is complete, or the time is up (negative: never). 0,
 * -ETIMEDOUT, or -EDEADLK when with a virtual clock nothing is left to happen. */
int weir__manual_wait(weir_future *future, int64_t timeout_ns);

/* A future that somebody waits for is complete: ends the waits of other threads. */
void weir__manual_wake_waiting(void);

#endif
