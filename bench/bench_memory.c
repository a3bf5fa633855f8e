/* SPDX-License-Identifier: MIT */
/* How much memory weir holds. */
#include "bench_memory.h"

#include "bench.h"

#include <weir/alloc.h>

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

#define HEADER 8 /* what glibc keeps of each piece for itself */

static _Atomic(size_t) held_bytes;

static size_t weight(void *memory)
{
    return memory != NULL ? malloc_usable_size(memory) + HEADER : 0;
}

static void *count(void *memory)
{
    held_bytes += weight(memory);
    return memory;
}

static void *counting_alloc(void *arg, size_t size)
{
    (void)arg;
    return count(malloc(size));
}

static void *counting_realloc(void *arg, void *memory, size_t size)
{
    (void)arg;
    size_t before = weight(memory);
    void *moved = realloc(memory, size);
    if (moved != NULL)
        held_bytes -= before;
    return count(moved);
}

static void counting_free(void *arg, void *memory)
{
    (void)arg;
    held_bytes -= weight(memory);
    free(memory);
}

void bench_count_memory(void)
{
    static const weir_allocator counting = { counting_alloc, counting_realloc, counting_free,
                                             NULL };
    static bool is_counted;
    if (!is_counted && weir_allocator_set(&counting) < 0)
        bench_fail("weir_allocator_set failed");
    is_counted = true;
}

size_t bench_held_bytes(void)
{
    return held_bytes;
}
