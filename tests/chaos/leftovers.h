/* SPDX-License-Identifier: MIT */
/* Leftovers: what is alive in the process, counted before and after a seed. */
#ifndef CHAOS_LEFTOVERS_H
#define CHAOS_LEFTOVERS_H

#include <stddef.h>
#include <stdint.h>

typedef struct leftovers {
    uint64_t used_blocks, allocations;
    size_t messages, descriptors, threads;
} leftovers;

/* Counts what is alive now. */
leftovers leftovers_count(void);

/* Fails the seed if more is alive than before. */
void leftovers_check(const leftovers *before);

#endif
