/* SPDX-License-Identifier: MIT */
/* An indexed heap: the smallest key first, equal keys in the order they came. */
#ifndef WEIR_BASE_HEAP_H
#define WEIR_BASE_HEAP_H

#include <weir/node.h>

/* The key beside the pointer: most comparisons then touch the array alone. */
typedef struct weir_heap_entry {
    int64_t key;
    weir_heap_node *node;
} weir_heap_entry;

/* All zero is an empty heap that holds no memory. Of a node, `key` may be read. */
typedef struct weir_heap {
    weir_heap_entry *entries;
    uint32_t count;
    uint32_t room;
    uint64_t next_id;
} weir_heap;

/* Forgets the nodes and frees the memory. */
void weir__heap_deinit(weir_heap *heap);

/* Adds a node that is in no heap. -ENOMEM, and then nothing has changed. */
int weir__heap_push(weir_heap *heap, weir_heap_node *node, int64_t key);

/* The first node, or NULL; pop takes it out. */
static inline weir_heap_node *weir__heap_first(const weir_heap *heap)
{
    return heap->count > 0 ? heap->entries[0].node : NULL;
}

weir_heap_node *weir__heap_pop(weir_heap *heap);

/* Takes a node out from wherever it stands; nothing happens when it is in no heap. */
void weir__heap_remove(weir_heap *heap, weir_heap_node *node);

/* Gives a node in the heap another key; among equal ones it now came last. Cannot fail. */
void weir__heap_update(weir_heap *heap, weir_heap_node *node, int64_t key);

static inline bool weir__heap_contains(const weir_heap_node *node)
{
    return node->place != 0;
}

#endif
