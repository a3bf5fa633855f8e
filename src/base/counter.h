/* SPDX-License-Identifier: MIT */
/* Counters that one thread writes, and any may read. */
#ifndef WEIR_BASE_COUNTER_H
#define WEIR_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

/* No locked instruction, for there is only one writer. To count down, add a negative step. */
static inline void weir__counter_add(_Atomic(uint64_t) *counter, uint64_t step)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + step, memory_order_relaxed);
}

static inline uint64_t weir__counter_get(const _Atomic(uint64_t) *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
