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
    if (child + GRANDCHILDREN > heap->heaped)
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
        if (child >= heap->heaped)
            break;
        prefetch_children(heap, child);
        uint64_t end = child + ARITY < heap->heaped ? child + ARITY : heap->heaped;
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
    for (uint32_t i = 0; i < heap->heaped; i++)
        heap->entries[i].node->place = 0;
    for (uint32_t i = 0; i < heap->sorted_count; i++) {
        if (heap->sorted[i].node != NULL)
            heap->sorted[i].node->place = 0;
    }
    weir__free(heap->sorted);
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

/* Many at once ------------------------------------------------------------------------------- */

/* Fewer are popped one by one. */
#define LEAST_SORTED 64

/* Nodes are fetched into the cache so many before their turn. */
#define AHEAD 16

static bool is_later(const weir_heap_sorted *a, const weir_heap_sorted *b)
{
    return a->key != b->key ? a->key > b->key : a->id > b->id;
}

/* Finds the entries up to `limit`, at most `room` of them: their places, in ascending order. Below
 * an entry that is later, all are. */
static uint32_t find_up_to(const weir_heap *heap, int64_t limit, weir_heap_sorted *found,
                           uint32_t room)
{
    uint32_t count = 0;
    if (heap->heaped > 0 && heap->entries[0].key <= limit)
        found[count++].key = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t child = (uint64_t)found[i].key * ARITY + 1;
        uint64_t end = child + ARITY < heap->heaped ? child + ARITY : heap->heaped;
        for (; child < end && count < room; child++) {
            if (heap->entries[child].key <= limit)
                found[count++].key = (int64_t)child;
        }
    }
    return count;
}

/* Takes them out from the last to the first: what fills a gap belongs below it, for what stands
 * above is earlier. When all are taken, nothing moves. */
static void take_found(weir_heap *heap, weir_heap_sorted *found, uint32_t count)
{
    while (count-- > 0) {
        if (count >= AHEAD)
            __builtin_prefetch(heap->entries[found[count - AHEAD].key].node);
        uint32_t at = (uint32_t)found[count].key;
        weir_heap_entry entry = heap->entries[at];
        weir_heap_entry last = heap->entries[--heap->heaped];
        found[count] = (weir_heap_sorted){ entry.key, entry.node->id, entry.node };
        if (at < heap->heaped)
            sift_down(heap, at, last);
    }
}

/* Merges the two halves of every `2 * width`, the later first. */
static void merge(const weir_heap_sorted *from, weir_heap_sorted *to, uint64_t count,
                  uint64_t width)
{
    for (uint64_t start = 0; start < count; start += 2 * width) {
        uint64_t middle = start + width < count ? start + width : count;
        uint64_t end = middle + width < count ? middle + width : count;
        uint64_t a = start, b = middle;
        for (uint64_t i = start; i < end; i++) {
            bool takes_a = b == end || (a < middle && is_later(&from[a], &from[b]));
            to[i] = takes_a ? from[a++] : from[b++];
        }
    }
}

/* Returns which of the two arrays has the result. */
static weir_heap_sorted *sort(weir_heap_sorted *found, weir_heap_sorted *spare, uint32_t count)
{
    for (uint64_t width = 1; width < count; width *= 2) {
        merge(found, spare, count, width);
        weir_heap_sorted *other = found;
        found = spare;
        spare = other;
    }
    return found;
}

void weir__heap_sort_up_to(weir_heap *heap, int64_t limit)
{
    weir_heap_sorted few[LEAST_SORTED];
    if (heap->sorted_count > 0 || find_up_to(heap, limit, few, LEAST_SORTED) < LEAST_SORTED)
        return;
    weir_heap_sorted *found = weir__alloc(heap->heaped * sizeof *found);
    weir_heap_sorted *spare = weir__alloc(heap->heaped * sizeof *spare);
    if (found == NULL || spare == NULL) {
        weir__free(found);
        weir__free(spare);
        return;
    }
    uint32_t count = find_up_to(heap, limit, found, heap->heaped);
    take_found(heap, found, count);
    heap->sorted = sort(found, spare, count);
    heap->sorted_count = count;
    weir__free(heap->sorted == found ? spare : found);
}

/* With what it is embedded in: that comes soon. */
static void prefetch_node(const weir_heap_node *node)
{
    if (node == NULL)
        return;
    __builtin_prefetch(node, 1);
    __builtin_prefetch((const char *)node + 64, 1);
}

/* Drops what was removed from the end, so that the first one is there; and the memory with the
 * last. */
static void trim_sorted(weir_heap *heap)
{
    while (heap->sorted_count > 0 && heap->sorted[heap->sorted_count - 1].node == NULL)
        heap->sorted_count--;
    if (heap->sorted_count > 0)
        return;
    weir__free(heap->sorted);
    heap->sorted = NULL;
}

static void remove_sorted(weir_heap *heap, const weir_heap_node *node)
{
    WEIR_ASSERT(heap->sorted_count > 0); /* else the node stands in another heap */
    const weir_heap_sorted wanted = { .key = node->key, .id = node->id };
    uint32_t low = 0, high = heap->sorted_count;
    if (heap->sorted[high - 1].node == node)
        low = high - 1; /* a pop */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (is_later(&heap->sorted[middle], &wanted))
            low = middle + 1;
        else
            high = middle;
    }
    WEIR_ASSERT(low < heap->sorted_count && heap->sorted[low].node == node);
    heap->sorted[low].node = NULL;
    trim_sorted(heap);
    if (heap->sorted_count > AHEAD)
        prefetch_node(heap->sorted[heap->sorted_count - AHEAD].node);
}

/* One by one --------------------------------------------------------------------------------- */

static void insert(weir_heap *heap, weir_heap_node *node, int64_t key)
{
    node->key = key;
    node->id = heap->next_id++;
    sift_up(heap, heap->heaped++, (weir_heap_entry){ key, node });
}

int weir__heap_push(weir_heap *heap, weir_heap_node *node, int64_t key)
{
    WEIR_ASSERT(!weir__heap_contains(node));
    if (heap->count == heap->room && grow(heap) < 0)
        return -ENOMEM;
    heap->count++;
    insert(heap, node, key);
    return 0;
}

weir_heap_node *weir__heap_pop(weir_heap *heap)
{
    weir_heap_node *first = weir__heap_first(heap);
    if (first != NULL)
        weir__heap_remove(heap, first);
    return first;
}

/* A sorted node's place is an old one, where another stands by now, or nobody. */
static bool is_heaped(const weir_heap *heap, const weir_heap_node *node)
{
    uint32_t at = node->place - 1;
    return at < heap->heaped && heap->entries[at].node == node;
}

static void remove_heaped(weir_heap *heap, uint32_t at)
{
    weir_heap_entry last = heap->entries[--heap->heaped];
    if (at < heap->heaped)
        settle(heap, at, last);
}

static void take_out(weir_heap *heap, weir_heap_node *node)
{
    if (is_heaped(heap, node))
        remove_heaped(heap, node->place - 1);
    else
        remove_sorted(heap, node);
}

void weir__heap_remove(weir_heap *heap, weir_heap_node *node)
{
    if (!weir__heap_contains(node))
        return;
    take_out(heap, node);
    node->place = 0;
    heap->count--;
}

void weir__heap_update(weir_heap *heap, weir_heap_node *node, int64_t key)
{
    WEIR_ASSERT(weir__heap_contains(node));
    if (is_heaped(heap, node)) {
        node->key = key;
        node->id = heap->next_id++;
        settle(heap, node->place - 1, (weir_heap_entry){ key, node });
    } else {
        remove_sorted(heap, node);
        insert(heap, node, key);
    }
}
