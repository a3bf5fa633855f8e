/* SPDX-License-Identifier: MIT */
/* The memory seam: hooks, counters, and the fault hook in front of them. */
#include "base/alloc.h"

#include "base/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void *libc_alloc(void *arg, size_t size)
{
    (void)arg;
    return malloc(size);
}

static void *libc_realloc(void *arg, void *memory, size_t size)
{
    (void)arg;
    return realloc(memory, size);
}

static void libc_free(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

static const weir_allocator libc_allocator = { libc_alloc, libc_realloc, libc_free, NULL };

/* Written only while no memory is out, so readers need no order. */
static weir_allocator current = { libc_alloc, libc_realloc, libc_free, NULL };

static _Atomic(uint64_t) allocations, frees, failures;

static void count(_Atomic(uint64_t) *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

int weir_allocator_set(const weir_allocator *allocator)
{
    const weir_allocator *next = allocator != NULL ? allocator : &libc_allocator;
    if (next->alloc == NULL || next->realloc == NULL || next->free == NULL)
        return -EINVAL;
    if (atomic_load(&allocations) != atomic_load(&frees))
        return -EBUSY;
    current = *next;
    return 0;
}

void weir_allocator_get_stats(weir_allocator_stats *stats)
{
    if (stats == NULL)
        return;
    /* Frees first: a call in between then makes live too large, not negative. */
    stats->frees = atomic_load(&frees);
    stats->allocations = atomic_load(&allocations);
    stats->failures = atomic_load(&failures);
    stats->live = stats->allocations - stats->frees;
}

void *weir__alloc(size_t size)
{
    /* malloc(0) may answer NULL, which would look like a failure. */
    void *memory = weir__fault("alloc", NULL) == 0 ? current.alloc(current.arg, size > 0 ? size : 1)
                                                   : NULL;
    count(memory != NULL ? &allocations : &failures);
    return memory;
}

void *weir__zalloc(size_t size)
{
    void *memory = weir__alloc(size);
    return memory != NULL ? memset(memory, 0, size) : NULL;
}

void *weir__realloc(void *memory, size_t size)
{
    if (memory == NULL)
        return weir__alloc(size);
    void *moved = weir__fault("alloc", NULL) == 0
                      ? current.realloc(current.arg, memory, size > 0 ? size : 1)
                      : NULL;
    if (moved == NULL)
        count(&failures);
    return moved;
}

void weir__free(void *memory)
{
    if (memory == NULL)
        return;
    current.free(current.arg, memory);
    count(&frees); /* last: it lets weir_allocator_set replace what was just called */
}

char *weir__strdup(const char *string)
{
    size_t size = strlen(string) + 1;
    char *copy = weir__alloc(size);
    return copy != NULL ? memcpy(copy, string, size) : NULL;
}

/* For others ----------------------------------------------------------------------------------- */

void *weir_alloc(size_t size)
{
    return weir__alloc(size);
}

void *weir_zalloc(size_t size)
{
    return weir__zalloc(size);
}

void weir_free(void *memory)
{
    weir__free(memory);
}
