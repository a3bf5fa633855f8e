/* SPDX-License-Identifier: MIT */
/* How much memory weir holds, as the heap counts it. */
#ifndef WEIR_BENCH_MEMORY_H
#define WEIR_BENCH_MEMORY_H

#include <stddef.h>

/* Before weir allocates anything. */
void bench_count_memory(void);

size_t bench_held_bytes(void);

#endif
