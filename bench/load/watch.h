/* SPDX-License-Identifier: MIT */
/* What another process costs between two moments: its CPU time, which share of that it was in user
 * mode (by sampling), how often it entered the kernel, and its memory. Needs the rights of perf for
 * the share and the entries; what cannot be had is negative. */
#ifndef WEIR_LOAD_WATCH_H
#define WEIR_LOAD_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct watch watch;

typedef struct watch_result {
    double cpu_ns;     /* of all its threads */
    double user_share; /* 0 to 1; by perf's samples, or by the kernel's ticks */
    int64_t samples;   /* behind that; of ticks, 0 */
    int64_t entries;   /* system calls */
    int64_t resident_kib;
} watch_result;

/* NULL, with a line on standard error, when there is no such process. */
watch *watch_begin(pid_t pid);

/* From here on. Only the threads that it has now are watched. */
void watch_start(watch *self);

void watch_stop(watch *self, watch_result *result);

/* What is its own memory now, without the pages of files. */
int64_t watch_resident_kib(const watch *self);

void watch_end(watch *self);

#endif
