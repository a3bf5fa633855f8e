/* SPDX-License-Identifier: MIT */
/* Misuse by the caller: an assertion in debug builds, a logged line in release builds. */
#ifndef WEIR_BASE_ASSERT_H
#define WEIR_BASE_ASSERT_H

#include <weir/api.h>

/*
 * Reports that `function` was misused. In a debug build it prints to standard error and aborts;
 * in a release build it logs an error and returns, and the caller returns a negative code.
 */
void weir__misuse(const char *function, const char *format, ...) WEIR_PRINTF(2, 3);

/* What must hold inside weir whatever a caller or peer does; gone in release builds. */
#ifdef WEIR_DEBUG
#define WEIR_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : weir__misuse(__func__, "assertion failed: %s", #condition))
#else
#define WEIR_ASSERT(condition) ((void)sizeof(condition))
#endif

#endif
