/* SPDX-License-Identifier: MIT */
/* The pool: per thread a free list for each size, and a way home for blocks freed elsewhere. */
#include "buf/pool.h"

#include "base/alloc.h"
#include "base/counter.h"
#include "base/env.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/sanitizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if WEIR__HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Powers of two from 64 bytes to 64 KiB; what is larger goes to the allocator. */
#define CLASS_COUNT 11
#define SMALLEST_ROOM 64u
_Static_assert(SMALLEST_ROOM << (CLASS_COUNT - 1) == WEIR__LARGEST_POOLED, "the last class");
#define CLASS_LARGE CLASS_COUNT

#define DEFAULT_CACHE_LIMIT ((size_t)8 << 20)

/* Every so many blocks of a class the pool gives back what it had left over. */
#define GETS_PER_TRIM 16384

/*
 * What a thread did, per size class; the last entry is for large blocks. Written by that thread
 * alone, so an increment is a load and a store; read by whoever sums them up. A block may be taken
 * on one thread and released on another: only the sums over all threads mean something.
 */
typedef struct pool_counters {
    _Atomic(uint64_t) blocks[CLASS_COUNT + 1];         /* taken by users; or given back by them */
    _Atomic(uint64_t) from_allocator[CLASS_COUNT + 1]; /* made there; or ended */
    _Atomic(uint64_t) large_bytes; /* in large blocks that users took; or gave */
} pool_counters;

typedef struct pool_counts {
    pool_counters in, out;
} pool_counts;

/* The end of a remote list whose owner is gone: blocks go to the allocator. */
static weir_block closed_list;
#define CLOSED (&closed_list)

struct weir_pool {
    /* The thread's own. */
    weir_block *free[CLASS_COUNT];
    weir_block *idle[CLASS_COUNT]; /* not needed since the last trim: used when `free` is empty */
    size_t free_bytes;             /* of both */
    size_t large_from;             /* blocks of this room or more are the allocator's; 0: all are */
    weir_list_node link;           /* among all pools, under the registry's lock */

    pool_counts counts;

    /* Everybody's, on cache lines of its own: blocks that others released, newest first. */
    char apart[64];
    _Atomic(weir_block *) remote;
    _Atomic(size_t) remote_bytes;

    /* One for the thread, one for each block that has this owner. */
    _Atomic(size_t) refs;
};

/* initial-exec: the pool is asked for at every buffer, and a call into the loader costs as much as
 * the rest. */
static _Thread_local weir_pool *thread_pool __attribute__((tls_model("initial-exec")));

_Thread_local weir_loan weir__loan __attribute__((tls_model("initial-exec")));

static _Atomic(size_t) cache_limit = DEFAULT_CACHE_LIMIT;

static pthread_once_t setup_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end_key;
static int setup_error;
static size_t setup_large_from = WEIR__LARGEST_POOLED + 1;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_list registry = { { &registry.ring, &registry.ring } };
static pool_counts past_counts;     /* of threads that have ended; under the lock */
static pool_counts outsider_counts; /* of threads without a pool: truly atomic */

static uint32_t class_room(unsigned size_class)
{
    return SMALLEST_ROOM << size_class;
}

static unsigned class_for(size_t room)
{
    if (room <= SMALLEST_ROOM)
        return 0;
    return (unsigned)(64 - __builtin_clzll(room - 1)) - 6;
}

/* For what can happen on a thread that never made a buffer and so has no pool to count in. */
#define COUNT_ANYWHERE(field, step)                                                                \
    do {                                                                                           \
        if (__builtin_expect(thread_pool != NULL, 1))                                              \
            weir__counter_add(&thread_pool->counts.field, step);                                   \
        else                                                                                       \
            atomic_fetch_add_explicit(&outsider_counts.field, step, memory_order_relaxed);         \
    } while (0)

/*
 * A cached block is poisoned but for its header and its buffer's message header: those keep telling
 * a late release that the message is dead, until the block is used again.
 */
static void poison(weir_block *block)
{
#if WEIR__HAS_ASAN
    char *from = (char *)&block->buf + sizeof block->buf.msg;
    ASAN_POISON_MEMORY_REGION(from, (size_t)((char *)block->bytes + block->room - from));
#else
    (void)block;
#endif
}

static void unpoison(weir_block *block)
{
#if WEIR__HAS_ASAN
    ASAN_UNPOISON_MEMORY_REGION(block, sizeof *block + block->room);
#else
    (void)block;
#endif
}

static void unref_pool(weir_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) == 1)
        weir__free(pool);
}

/* To the allocator; from any thread. The block is in no list. */
WEIR__BESIDE static void end_block(weir_block *block)
{
    weir_pool *owner = block->owner;
    if (owner != NULL)
        COUNT_ANYWHERE(out.from_allocator[block->size_class], 1);
    unpoison(block);
    weir__free(block);
    if (owner != NULL)
        unref_pool(owner);
}

/* How many bytes there were. */
static size_t end_list(weir_block *block)
{
    size_t bytes = 0;
    while (block != NULL) {
        weir_block *next = block->next;
        bytes += block->room;
        end_block(block);
        block = next;
    }
    return bytes;
}

static inline void keep(weir_pool *pool, weir_block *block, unsigned size_class)
{
    block->next = pool->free[size_class];
    pool->free[size_class] = block;
    pool->free_bytes += block->room;
}

static inline __attribute__((always_inline)) void keep_or_end(weir_pool *pool, weir_block *block,
                                                              unsigned size_class)
{
    if (pool->free_bytes + block->room > atomic_load_explicit(&cache_limit, memory_order_relaxed))
        end_block(block);
    else
        keep(pool, block, size_class);
}

/* NULL: the list is empty. */
static inline weir_block *take(weir_pool *pool, weir_block **list)
{
    weir_block *block = *list;
    if (block != NULL) {
        *list = block->next;
        pool->free_bytes -= block->room;
    }
    return block;
}

/* Brings home what other threads released. */
static void drain_remote(weir_pool *pool)
{
    if (atomic_load_explicit(&pool->remote, memory_order_relaxed) == NULL)
        return;
    weir_block *block = atomic_exchange_explicit(&pool->remote, NULL, memory_order_acquire);
    size_t bytes = 0;
    while (block != NULL) {
        weir_block *next = block->next;
        bytes += block->room;
        keep_or_end(pool, block, block->size_class);
        block = next;
    }
    atomic_fetch_sub_explicit(&pool->remote_bytes, bytes, memory_order_relaxed);
}

static size_t trim_class(weir_pool *pool, unsigned size_class)
{
    size_t bytes = end_list(pool->idle[size_class]);
    pool->idle[size_class] = pool->free[size_class];
    pool->free[size_class] = NULL;
    pool->free_bytes -= bytes;
    return bytes;
}

/* All classes: the one that is busy, and those that have fallen idle. */
WEIR__BESIDE static size_t trim_all(weir_pool *pool)
{
    drain_remote(pool);
    size_t bytes = 0;
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        bytes += trim_class(pool, i);
    return bytes;
}

size_t weir_pool_trim(void)
{
    return thread_pool != NULL ? trim_all(thread_pool) : 0;
}

bool weir__pool_has_cache(void)
{
    const weir_pool *pool = thread_pool;
    return pool != NULL && (pool->free_bytes > 0 ||
                            atomic_load_explicit(&pool->remote, memory_order_relaxed) != NULL);
}

void weir_pool_set_cache_limit(size_t bytes)
{
    atomic_store_explicit(&cache_limit, bytes, memory_order_relaxed);
}

/* Counters ---------------------------------------------------------------------------------- */

static void add_counters(pool_counters *to, pool_counters *from)
{
    for (unsigned i = 0; i <= CLASS_COUNT; i++) {
        weir__counter_add(&to->blocks[i], weir__counter_get(&from->blocks[i]));
        weir__counter_add(&to->from_allocator[i], weir__counter_get(&from->from_allocator[i]));
    }
    weir__counter_add(&to->large_bytes, weir__counter_get(&from->large_bytes));
}

/* Of all threads: what came in, or what went out. Under the lock. */
static pool_counters sum_of(bool in)
{
    pool_counters sum = { 0 };
    add_counters(&sum, in ? &past_counts.in : &past_counts.out);
    add_counters(&sum, in ? &outsider_counts.in : &outsider_counts.out);
    for (weir_list_node *node = weir__list_first(&registry); node != NULL;
         node = weir__list_next(&registry, node)) {
        pool_counts *counts = &WEIR_CONTAINER(node, weir_pool, link)->counts;
        add_counters(&sum, in ? &counts->in : &counts->out);
    }
    return sum;
}

static uint64_t above_zero(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

void weir_pool_get_stats(weir_pool_stats *stats)
{
    if (stats == NULL)
        return;
    pthread_mutex_lock(&registry_lock);
    /* What went out first: a block taken and released in between is then too much, not too little.
     */
    pool_counters out = sum_of(false), in = sum_of(true);
    pthread_mutex_unlock(&registry_lock);

    *stats = (weir_pool_stats){ 0 };
    for (unsigned i = 0; i <= CLASS_COUNT; i++)
        stats->used_blocks += above_zero(weir__counter_get(&in.blocks[i]),
                                         weir__counter_get(&out.blocks[i]));
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        uint64_t used = above_zero(weir__counter_get(&in.blocks[i]),
                                   weir__counter_get(&out.blocks[i]));
        uint64_t all = above_zero(weir__counter_get(&in.from_allocator[i]),
                                  weir__counter_get(&out.from_allocator[i]));
        stats->used_bytes += used * class_room(i);
        stats->cached_bytes += above_zero(all, used) * class_room(i);
    }
    stats->used_bytes += above_zero(weir__counter_get(&in.large_bytes),
                                    weir__counter_get(&out.large_bytes));
}

/* A thread's pool --------------------------------------------------------------------------- */

/* The thread ends: its cache goes to the allocator, the struct when the last block has. */
static void close_pool(void *arg)
{
    weir_pool *pool = arg;
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        end_list(pool->free[i]);
        end_list(pool->idle[i]);
        pool->free[i] = pool->idle[i] = NULL;
    }
    end_list(atomic_exchange_explicit(&pool->remote, CLOSED, memory_order_acquire));

    pthread_mutex_lock(&registry_lock);
    weir__list_remove(&pool->link);
    add_counters(&past_counts.in, &pool->counts.in);
    add_counters(&past_counts.out, &pool->counts.out);
    thread_pool = NULL;
    pthread_mutex_unlock(&registry_lock);
    unref_pool(pool);
}

static void setup(void)
{
    static weir_env_words words = { "WEIR_POOL", { "0", "1", NULL }, false };
    if (weir__env_word(&words, 1) == 0)
        setup_large_from = 0;
    setup_error = pthread_key_create(&thread_end_key, close_pool);
}

__attribute__((noinline, cold)) static weir_pool *open_pool(void)
{
    pthread_once(&setup_once, setup);
    weir_pool *pool = setup_error == 0 ? weir__zalloc(sizeof *pool) : NULL;
    if (pool == NULL)
        return NULL;
    if (pthread_setspecific(thread_end_key, pool) != 0) {
        weir__free(pool);
        return NULL;
    }
    pool->large_from = setup_large_from;
    atomic_init(&pool->refs, 1);
    pthread_mutex_lock(&registry_lock);
    weir__list_push_back(&registry, &pool->link);
    pthread_mutex_unlock(&registry_lock);
    thread_pool = pool;
    return pool;
}

/* What is rare stays out of line, so that taking a block and giving it back need few registers. */

/* Blocks ------------------------------------------------------------------------------------ */

__attribute__((noinline)) static weir_block *make_large(weir_pool *pool, size_t room)
{
    weir_block *block = room <= WEIR_BUF_MAX ? weir__alloc(sizeof *block + room) : NULL;
    if (block == NULL)
        return NULL;
    block->size_class = CLASS_LARGE;
    block->room = (uint32_t)room;
    block->owner = NULL;
    block->wraps = false;
    weir__counter_add(&pool->counts.in.large_bytes, room);
    return block;
}

static weir_block *make_pooled(weir_pool *pool, unsigned size_class)
{
    weir_block *block = weir__alloc(sizeof *block + class_room(size_class));
    if (block == NULL)
        return NULL;
    block->size_class = (uint16_t)size_class;
    block->room = class_room(size_class);
    block->owner = pool;
    block->wraps = false;
    atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
    weir__counter_add(&pool->counts.in.from_allocator[size_class], 1);
    return block;
}

/* Blocks that were used last come first, then idle ones, then those that other threads returned. */
static weir_block *take_or_make(weir_pool *pool, unsigned size_class)
{
    weir_block *block = take(pool, &pool->free[size_class]);
    if (block == NULL)
        block = take(pool, &pool->idle[size_class]);
    if (block == NULL) {
        drain_remote(pool);
        block = take(pool, &pool->free[size_class]);
    }
    return block != NULL ? block : make_pooled(pool, size_class);
}

/* A block goes to its user. */
static inline weir_block *hand_out(weir_block *block)
{
    unpoison(block);
    atomic_store_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

/* Whether the next block of a class, after so many, is the one that trims. */
static inline bool is_trim_due(uint64_t blocks)
{
    return blocks % GETS_PER_TRIM == GETS_PER_TRIM - 1;
}

WEIR__BESIDE weir_block *weir__block_new_slow(size_t room)
{
    if (weir__fault("pool", NULL) < 0)
        return NULL;
    weir_pool *pool = thread_pool != NULL ? thread_pool : open_pool();
    if (pool == NULL)
        return NULL;
    unsigned size_class = room >= pool->large_from ? CLASS_LARGE : class_for(room);
    bool is_large = size_class == CLASS_LARGE;
    weir_block *block = is_large ? make_large(pool, room) : take_or_make(pool, size_class);
    if (block == NULL)
        return NULL;
    _Atomic(uint64_t) *blocks = &pool->counts.in.blocks[size_class];
    if (!is_large && is_trim_due(weir__counter_get(blocks)))
        trim_all(pool);
    weir__counter_add(blocks, 1);
    return hand_out(block);
}

WEIR__HOT inline weir_block *weir__block_cached(size_t room)
{
    weir_pool *pool = thread_pool;
    if (weir__has_faults() || pool == NULL || room > WEIR__LARGEST_POOLED)
        return NULL;
    unsigned size_class = class_for(room);
    _Atomic(uint64_t) *blocks = &pool->counts.in.blocks[size_class];
    uint64_t before = weir__counter_get(blocks);
    if (pool->free[size_class] == NULL || is_trim_due(before))
        return NULL;
    weir_block *block = take(pool, &pool->free[size_class]);
    atomic_store_explicit(blocks, before + 1, memory_order_relaxed);
    return hand_out(block);
}

/* Sends a block home from a thread that is not its owner's. */
__attribute__((noinline)) static void send_home(weir_block *block)
{
    weir_pool *owner = block->owner;
    size_t room = block->room;
    size_t before = atomic_fetch_add_explicit(&owner->remote_bytes, room, memory_order_relaxed);
    if (before + room > atomic_load_explicit(&cache_limit, memory_order_relaxed)) {
        /* The owner seems to have stopped asking: what waits for it is bounded, too. */
        atomic_fetch_sub_explicit(&owner->remote_bytes, room, memory_order_relaxed);
        end_block(block);
        return;
    }
    poison(block);
    weir_block *head = atomic_load_explicit(&owner->remote, memory_order_relaxed);
    do {
        if (head == CLOSED) {
            end_block(block);
            return;
        }
        block->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&owner->remote, &head, block,
                                                    memory_order_release, memory_order_relaxed));
}

/* It is large, or another thread's. */
__attribute__((noinline)) static void put_elsewhere(weir_block *block)
{
    if (block->owner == NULL) {
        COUNT_ANYWHERE(out.blocks[CLASS_LARGE], 1);
        COUNT_ANYWHERE(out.large_bytes, block->room);
        end_block(block);
    } else {
        COUNT_ANYWHERE(out.blocks[block->size_class], 1);
        send_home(block);
    }
}

static inline void put_block(weir_block *block)
{
    weir_pool *pool = thread_pool;
    if (__builtin_expect(pool == NULL || block->owner != pool, 0)) {
        put_elsewhere(block);
        return;
    }
    unsigned size_class = block->size_class;
    weir__counter_add(&pool->counts.out.blocks[size_class], 1);
    poison(block);
    keep_or_end(pool, block, size_class);
}

__attribute__((noinline)) static void free_wrapped(weir_block *block)
{
    const weir_wrapped *wrapped = (const weir_wrapped *)block->bytes;
    block->wraps = false;
    if (wrapped->free_fn != NULL)
        wrapped->free_fn(wrapped->arg, wrapped->memory);
    put_block(block);
}

WEIR__HOT inline void weir__block_free(weir_block *block)
{
    atomic_store_explicit(&block->refs, 0, memory_order_relaxed);
    if (__builtin_expect(block->wraps, 0))
        free_wrapped(block);
    else
        put_block(block);
}
