/* SPDX-License-Identifier: MIT */
/* Spare memory of one size: what is given back is kept for the next, up to a limit. One thread. */
#ifndef WEIR_BASE_SPARE_H
#define WEIR_BASE_SPARE_H

#include "base/alloc.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct weir_spare {
    void **first;
    unsigned count;
} weir_spare;

#define WEIR__MOST_SPARES 1024

/* Whether there is one at hand, which then can be taken. The spare may be NULL, here and below. */
static inline bool weir__spare_has(const weir_spare *spare)
{
    return spare != NULL && spare->first != NULL;
}

static inline void *weir__spare_take(weir_spare *spare)
{
    void **memory = spare->first;
    spare->first = (void **)*memory;
    spare->count--;
    return memory;
}

/* `size` is the same for all of a spare. NULL: no memory. */
static inline void *weir__spare_get(weir_spare *spare, size_t size)
{
    return weir__spare_has(spare) ? weir__spare_take(spare) : weir__alloc(size);
}

static inline void weir__spare_put(weir_spare *spare, void *memory)
{
    if (spare == NULL || spare->count == WEIR__MOST_SPARES) {
        weir__free(memory);
        return;
    }
    *(void **)memory = (void *)spare->first;
    spare->first = memory;
    spare->count++;
}

static inline void weir__spare_deinit(weir_spare *spare)
{
    while (spare->first != NULL) {
        void **memory = spare->first;
        spare->first = (void **)*memory;
        weir__free((void *)memory);
    }
    spare->count = 0;
}

#endif
