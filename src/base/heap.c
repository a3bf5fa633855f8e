/* SPDX-License-Identifier: MIT */
/* The indexed heap. Eight children a node: each level costs a visit to a node somewhere in memory,
 * to tell it its place, so few levels are worth some more comparisons. */
#include "base/heap.h"

#include "base/alloc.h"
#include "base/assert.h"

#include <errno.h>

#define ARITY 8
#define GRANDCHILDREN ((uint64_t)ARITY * ARITY)
#define FIRST_ROOM 11

static bool comes_before(const weir_heap_entry *a, const weir_heap_entry *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    WEIR_ASSERT(a->node->id != b->node->id || a->node == b->node);
    return a->node->id < b->node->id;
}

static void put(weir_heap *heap, uint32_t at, weir_heap_entry entry)
{
    heap->entries[at] = entry;
    entry.node->place = at + 1;
}

static void sift_up(weir_heap *heap, uint32_t at, weir_heap_entry entry)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / ARITY;
        if (!comes_before(&entry, &heap->entries[parent]))
            break;
        put(heap, at, heap->entries[parent]);
        at = parent;
    }
    put(heap, at, entry);
}

/* One of these is next, whichever child it is: in a large heap they come from far away. */
static void prefetch_children(const weir_heap *heap, uint64_t first)
{
    uint64_t child = first * ARITY + 1;
    if (child + GRANDCHILDREN > heap->count)
        return;
    for (uint64_t i = 0; i < GRANDCHILDREN; i += 64 / sizeof *heap->entries)
        __builtin_prefetch(&heap->entries[child + i]);
}

static inline __attribute__((always_inline)) uint64_t lesser(const weir_heap *heap, uint64_t i,
                                                             uint64_t j)
{
    const weir_heap_entry *a = &heap->entries[i], *b = &heap->entries[j];
    if (__builtin_expect(a->key == b->key, 0))
        return comes_before(a, b) ? i : j;
    return a->key < b->key ? i : j;
}

/* Which of the entries from `child` to `end` comes first. A full set is decided in rounds, which
 * the processor can do side by side, and without a branch to guess. */
static uint64_t least_of(const weir_heap *heap, uint64_t child, uint64_t end)
{
    if (end - child == ARITY) {
        uint64_t a = lesser(heap, child, child + 1), b = lesser(heap, child + 2, child + 3);
        uint64_t c = lesser(heap, child + 4, child + 5), d = lesser(heap, child + 6, child + 7);
        return lesser(heap, lesser(heap, a, b), lesser(heap, c, d));
    }
    uint64_t least = child;
    while (++child < end)
        least = lesser(heap, least, child);
    return least;
}

static void sift_down(weir_heap *heap, uint32_t at, weir_heap_entry entry)
{
    for (;;) {
        uint64_t child = (uint64_t)at * ARITY + 1;
        if (child >= heap->count)
            break;
        prefetch_children(heap, child);
        uint64_t end = child + ARITY < heap->count ? child + ARITY : heap->count;
        uint64_t least = least_of(heap, child, end);
        if (!comes_before(&heap->entries[least], &entry))
            break;
        put(heap, at, heap->entries[least]);
        at = (uint32_t)least;
    }
    put(heap, at, entry);
}

/* Puts an entry where the one at `at` was, up or down from there. */
static void settle(weir_heap *heap, uint32_t at, weir_heap_entry entry)
{
    if (at > 0 && comes_before(&entry, &heap->entries[(at - 1) / ARITY]))
        sift_up(heap, at, entry);
    else
        sift_down(heap, at, entry);
}

void weir__heap_deinit(weir_heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++)
        heap->entries[i].node->place = 0;
    weir__free(heap->entries);
    *heap = (weir_heap){ .next_id = heap->next_id };
}

static int grow(weir_heap *heap)
{
    /* The place of a node is one above its index and must fit 32 bits. */
    uint64_t room = heap->room == 0 ? FIRST_ROOM : (uint64_t)heap->room * 2;
    if (room >= UINT32_MAX)
        return -ENOMEM;
    weir_heap_entry *entries = weir__realloc(heap->entries, room * sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    heap->entries = entries;
    heap->room = (uint32_t)room;
    return 0;
}

int weir__heap_push(weir_heap *heap, weir_heap_node *node, int64_t key)
{
    WEIR_ASSERT(!weir__heap_contains(node));
    if (heap->count == heap->room && grow(heap) < 0)
        return -ENOMEM;
    node->key = key;
    node->id = heap->next_id++;
    sift_up(heap, heap->count++, (weir_heap_entry){ key, node });
    return 0;
}

weir_heap_node *weir__heap_pop(weir_heap *heap)
{
    weir_heap_node *first = weir__heap_first(heap);
    if (first != NULL)
        weir__heap_remove(heap, first);
    return first;
}

void weir__heap_remove(weir_heap *heap, weir_heap_node *node)
{
    if (!weir__heap_contains(node))
        return;
    uint32_t at = node->place - 1;
    WEIR_ASSERT(at < heap->count && heap->entries[at].node == node);
    node->place = 0;
    weir_heap_entry last = heap->entries[--heap->count];
    if (last.node != node)
        settle(heap, at, last);
}

void weir__heap_update(weir_heap *heap, weir_heap_node *node, int64_t key)
{
    WEIR_ASSERT(weir__heap_contains(node) && heap->entries[node->place - 1].node == node);
    node->key = key;
    node->id = heap->next_id++;
    settle(heap, node->place - 1, (weir_heap_entry){ key, node });
}
