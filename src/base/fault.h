/* SPDX-License-Identifier: MIT */
/* Asks the fault hook before a call that may fail. */
#ifndef WEIR_BASE_FAULT_H
#define WEIR_BASE_FAULT_H

#include <weir/fault.h>

#include <stdatomic.h>

extern _Atomic(weir_fault_fn) weir__fault_fn;

int weir__fault_ask(const char *call, size_t *length);

static inline bool weir__has_faults(void)
{
    return __builtin_expect(atomic_load_explicit(&weir__fault_fn, memory_order_relaxed) != NULL, 0);
}

/* 0: go ahead, with `*length` perhaps lowered; negative: fail with that code instead. */
static inline int weir__fault(const char *call, size_t *length)
{
    return weir__has_faults() ? weir__fault_ask(call, length) : 0;
}

#endif
