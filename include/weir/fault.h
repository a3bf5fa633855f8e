/* SPDX-License-Identifier: MIT */
/* The fault hook: lets a test fail any allocation and any system call of weir's. */
#ifndef WEIR_FAULT_H
#define WEIR_FAULT_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

/**
 * Called before every fallible call that weir makes: `call` is "alloc" for memory, "pool"
 * for a buffer from a pool, else the system call's name ("recv", "pthread_create"). Return
 * 0 to let it happen or a negative code to make it fail without happening ("close" alone
 * happens all the same: a descriptor is gone whatever close answers). For calls that move bytes
 * `length` is how many are asked for; lowering it makes a short read or write; otherwise it is
 * NULL. Runs on whichever thread makes the call.
 */
typedef int (*weir_fault_fn)(void *arg, const char *call, size_t *length);

/**
 * Installs the hook, NULL removes it. For tests: set it while no other thread is inside
 * weir. Without a hook each call pays one load and one branch.
 */
WEIR_API void weir_fault_set(weir_fault_fn fn, void *arg);

WEIR_END_DECLS

#endif
