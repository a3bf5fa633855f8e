/* SPDX-License-Identifier: MIT */
/* Spare memory of one size: what is given back is kept for the next, up to a limit. One thread. */
#ifndef WEIR_BASE_SPARE_H
#define WEIR_BASE_SPARE_H

#include "base/alloc.h"

#include <stddef.h>

typedef struct weir_spare {
    void **first;
    unsigned count;
} weir_spare;

#define WEIR__MOST_SPARES 1024

/* `size` is the same for all of a spare. NULL: no memory. The spare may be NULL, too. */
static inline void *weir__spare_get(weir_spare *spare, size_t size)
{
    if (spare == NULL || spare->first == NULL)
        return weir__alloc(size);
    void **memory = spare->first;
    spare->first = (void **)*memory;
    spare->count--;
    return memory;
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
