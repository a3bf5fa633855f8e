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

/* An entry that was taken out of the heap together with many others, and sorted. */
typedef struct weir_heap_sorted {
    int64_t key;
    uint64_t id;
    weir_heap_node *node; /* NULL: removed since */
} weir_heap_sorted;

/* All zero is an empty heap that holds no memory. Of a node, `key` may be read. */
typedef struct weir_heap {
    weir_heap_entry *entries;
    uint32_t count;  /* all nodes; there is always room for as many entries */
    uint32_t heaped; /* those among the entries; the others are sorted */
    uint32_t room;
    uint64_t next_id;
    weir_heap_sorted *sorted; /* the first one at the end; that one is not removed */
    uint32_t sorted_count;
} weir_heap;

/* Forgets the nodes and frees the memory. */
void weir__heap_deinit(weir_heap *heap);

/* Adds a node that is in no heap. -ENOMEM, and then nothing has changed. */
int weir__heap_push(weir_heap *heap, weir_heap_node *node, int64_t key);

/* The first node, or NULL; pop takes it out. */
static inline weir_heap_node *weir__heap_first(const weir_heap *heap)
{
    if (heap->sorted_count == 0)
        return heap->count > 0 ? heap->entries[0].node : NULL;
    const weir_heap_sorted *last = &heap->sorted[heap->sorted_count - 1];
    if (heap->heaped == 0 || heap->entries[0].key > last->key ||
        (heap->entries[0].key == last->key && heap->entries[0].node->id > last->id))
        return last->node;
    return heap->entries[0].node;
}

/*
 * Many nodes with keys up to `limit` will be popped now: takes them out together and sorts them,
 * which touches each of them once, while each single pop would touch one for every level. Does
 * nothing when they are few, when that was done before and is not used up, or without memory.
 */
void weir__heap_sort_up_to(weir_heap *heap, int64_t limit);

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
