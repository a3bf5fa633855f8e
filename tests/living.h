/* SPDX-License-Identifier: MIT */
/* Counts the objects that are alive in the process, over public headers only. */
#ifndef WEIR_TESTS_LIVING_H
#define WEIR_TESTS_LIVING_H

#include <weir/alloc.h>
#include <weir/leak.h>
#include <weir/pool.h>

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

typedef struct living {
    uint64_t used_blocks, allocations;
    size_t messages, descriptors, threads;
} living;

/* The entries of a directory; 0 if it cannot be opened. */
static inline size_t count_entries(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

static inline void living_ignore_leak(void *arg, const weir_leak *leak)
{
    (void)arg;
    (void)leak;
}

static inline living living_count(void)
{
    weir_pool_stats pool;
    weir_allocator_stats allocator;
    /* The first trim ends the period that the pool remembers, the second empties the cache. */
    weir_pool_trim();
    weir_pool_trim();
    weir_pool_get_stats(&pool);
    weir_allocator_get_stats(&allocator);
    return (living){
        .used_blocks = pool.used_blocks,
        .allocations = allocator.live,
        .messages = weir_leak_report(living_ignore_leak, NULL),
        .descriptors = count_entries("/proc/self/fd"),
        .threads = count_entries("/proc/self/task"),
    };
}

#endif
