/* SPDX-License-Identifier: MIT */
/* The allocator behind everything: hooks to replace it, counters to watch it. */
#ifndef WEIR_ALLOC_H
#define WEIR_ALLOC_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

/** Where weir gets memory: the meaning of malloc, realloc and free, called from any thread. */
typedef struct weir_allocator {
    void *(*alloc)(void *arg, size_t size);
    void *(*realloc)(void *arg, void *memory, size_t size);
    void (*free)(void *arg, void *memory);
    void *arg;
} weir_allocator;

/**
 * Replaces the allocator (NULL: back to the C library's); the struct is copied. Call it
 * before anything else of weir: -EBUSY while weir holds memory of the present one, which a
 * thread that has made a buffer does until it ends. -EINVAL when a function is missing.
 */
WEIR_API int weir_allocator_set(const weir_allocator *allocator);

/** Counts since the program started. */
typedef struct weir_allocator_stats {
    uint64_t allocations; /* calls that gave memory, a growing realloc(NULL) included */
    uint64_t frees;
    uint64_t failures; /* calls that gave none */
    uint64_t live;     /* allocations - frees */
} weir_allocator_stats;

/** The counters since the start of the process. Any thread. */
WEIR_API void weir_allocator_get_stats(weir_allocator_stats *stats);

/*
 * Memory from where weir gets its own: counted as above, and failing when weir_fault_set says so.
 * For handlers that want theirs to be seen and tested like weir's. Any thread.
 */

/** Uninitialised memory, aligned for everything; NULL when there is none. */
WEIR_API void *weir_alloc(size_t size) __attribute__((malloc, warn_unused_result));

/** Memory of zeroes. */
WEIR_API void *weir_zalloc(size_t size) __attribute__((malloc, warn_unused_result));

/** Gives it back; NULL is fine. */
WEIR_API void weir_free(void *memory);

WEIR_END_DECLS

#endif
