/* SPDX-License-Identifier: MIT */
/* The buffer pool: one cache of blocks per thread, in front of the allocator. */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

/*
 * Buffers take their memory from the pool of the thread that makes them and give it back
 * to that pool from whichever thread releases them. A pool keeps a bounded number of bytes
 * for reuse and hands the rest to the allocator. When its thread ends, the memory that
 * others still hold stays valid until they release it. WEIR_POOL=0 in the environment
 * bypasses all of it, so that sanitizers see every buffer as an allocation of its own.
 */

/** Memory held by the pools of all threads. */
typedef struct weir_pool_stats {
    uint64_t used_bytes;   /* in buffers that are alive, of all threads */
    uint64_t cached_bytes; /* kept for reuse, of all threads */
    uint64_t used_blocks;  /* how many blocks the used bytes are in */
} weir_pool_stats;

/**
 * The counters of all threads together. Any thread; exact when no other thread is making
 * or releasing buffers at that moment.
 */
WEIR_API void weir_pool_get_stats(weir_pool_stats *stats);

/**
 * Hands the calling thread's cached blocks that were not needed since the last trim back to
 * the allocator, and returns how many bytes. Executors do it when they were idle for a second; on a
 * thread of your own call it twice to empty the cache.
 */
WEIR_API size_t weir_pool_trim(void);

/**
 * How many bytes each thread may keep for reuse, and how many more may wait for it after other
 * threads released them: 8 MiB unless told, 0 keeps none. Takes effect as blocks are released. Any
 * thread.
 */
WEIR_API void weir_pool_set_cache_limit(size_t bytes);

WEIR_END_DECLS

#endif
