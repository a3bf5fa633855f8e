/* SPDX-License-Identifier: MIT */
/* A loop of weir's for a case to use. */
#ifndef WEIR_BENCH_EXEC_H
#define WEIR_BENCH_EXEC_H

#include "bench.h"

#include <weir/group.h>

/* A group with one loop, which has started, is pinned to the first CPU, and sleeps or is about to.
 */
weir_group *bench_open_loop(weir_executor **loop);
void bench_close_loop(weir_group *group);

/* Calls a function on the loop's thread, and returns when it has returned. */
void bench_call_on_loop(weir_executor *loop, weir_call_fn fn, void *arg);

#endif
