/* SPDX-License-Identifier: MIT */
/* Counts the objects that are alive in the process, over public headers only. */
#ifndef WEIR_TESTS_LIVING_H
#define WEIR_TESTS_LIVING_H

#include <weir/alloc.h>
#include <weir/leak.h>
#include <weir/pool.h>

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

/* Whether the kernel has begun to end thread `tid` of this process. */
static inline bool living_is_exiting(const char *tid)
{
    enum { PF_EXITING_FLAG = 0x4 };
    char path[64], stat[512] = "";
    unsigned flags = PF_EXITING_FLAG; /* stays if the entry is gone already */
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        const char *name_end = NULL;
        if (fgets(stat, sizeof stat, file) != NULL)
            name_end = strrchr(stat, ')');
        if (name_end != NULL)
            sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %u", &flags);
        fclose(file);
    }
    return (flags & PF_EXITING_FLAG) != 0;
}

/* The threads of this process. A joined thread can stay in /proc for a moment: it does not count.
 */
static inline size_t count_threads(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.' && !living_is_exiting(entry->d_name);
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
        .threads = count_threads(),
    };
}

#endif
