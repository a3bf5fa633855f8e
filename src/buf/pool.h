/* SPDX-License-Identifier: MIT */
/* Blocks: counted storage from the pool of the thread that asks. */
#ifndef WEIR_BUF_POOL_H
#define WEIR_BUF_POOL_H

#include <weir/buf.h>
#include <weir/pool.h>

#include <stdatomic.h>

typedef struct weir_pool weir_pool;

/*
 *   weir_block
 *   +--------+----------+---------------------------+
 *   | header | weir_buf |  bytes                    |
 *   +--------+----------+---------------------------+
 *
 * One piece of memory with its own count. Room for a weir_buf comes with every block, so that a
 * buffer and its storage are one allocation. The struct stays while anything refers to the
 * block: the buffer that lives in it, or another that views its bytes.
 */
struct weir_block {
    _Atomic(uint32_t) refs;
    uint16_t size_class;
    bool wraps;       /* the bytes hold a weir_wrapped: the storage is somebody else's memory */
    uint32_t room;    /* how many bytes there are */
    weir_pool *owner; /* whose cache it returns to; NULL: the allocator's */
    weir_block *next; /* while it is in a cache */
    weir_buf buf;
    _Alignas(16) uint8_t bytes[];
};

typedef struct weir_wrapped {
    weir_buf_free_fn free_fn;
    void *arg;
    void *memory;
} weir_wrapped;

/* The largest room that the pool keeps blocks of. */
#define WEIR__LARGEST_POOLED ((size_t)64 << 10)

/* A block with one reference and at least `room` bytes, not initialised: one that the thread's pool
 * has at hand, else NULL; any other way, NULL when there is no memory. The first is in line. */
weir_block *weir__block_cached(size_t room);
weir_block *weir__block_new_slow(size_t room);

/* Both: NULL when there is no memory. */
static inline weir_block *weir__block_new(size_t room)
{
    weir_block *block = weir__block_cached(room);
    return block != NULL ? block : weir__block_new_slow(room);
}

/* Whether the calling thread's pool keeps anything that a trim could give back. */
bool weir__pool_has_cache(void);

/* The last reference went. */
void weir__block_free(weir_block *block);

/* Of two views on two threads each holds a reference, so whoever loads 1 is alone with the block.
 */
static inline bool weir__block_is_shared(const weir_block *block)
{
    return atomic_load_explicit(&block->refs, memory_order_acquire) != 1;
}

/*
 * References in hand: before it makes many views of one block, a thread takes a lot of references
 * at once, and then counts its views of the block here, without a locked instruction each. One of
 * them is never lent, so the block stays until the loan ends.
 */
typedef struct weir_loan {
    weir_block *block; /* NULL: none */
    uint32_t spare;
} weir_loan;

extern _Thread_local weir_loan weir__loan __attribute__((tls_model("initial-exec")));

/* Ends with weir__loan_end, which gets what this returned: loans are inside each other. */
static inline weir_loan weir__loan_begin(weir_block *block)
{
    enum { MANY = 1 << 16 };
    weir_loan outer = weir__loan;
    atomic_fetch_add_explicit(&block->refs, MANY, memory_order_relaxed);
    weir__loan = (weir_loan){ block, MANY };
    return outer;
}

static inline void weir__loan_end(weir_loan outer)
{
    weir_loan loan = weir__loan;
    weir__loan = outer;
    if (atomic_load_explicit(&loan.block->refs, memory_order_acquire) != loan.spare) {
        if (atomic_fetch_sub_explicit(&loan.block->refs, loan.spare, memory_order_release) !=
            loan.spare)
            return;
        /* As in weir__block_release. */
        (void)atomic_load_explicit(&loan.block->refs, memory_order_acquire);
    }
    weir__block_free(loan.block);
}

/* Locked even for a count of 1: two threads may be making views of one buffer that both hold. */
static inline void weir__block_retain(weir_block *block)
{
    if (block == weir__loan.block && weir__loan.spare > 1)
        weir__loan.spare--;
    else
        atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
}

/* Gives a reference back to the thread's loan; false if that is of another block. */
static inline bool weir__loan_return(const weir_block *block)
{
    if (block != weir__loan.block)
        return false;
    weir__loan.spare++;
    return true;
}

static inline void weir__block_release(weir_block *block)
{
    if (weir__loan_return(block))
        return;
    if (weir__block_is_shared(block)) {
        if (atomic_fetch_sub_explicit(&block->refs, 1, memory_order_release) != 1)
            return;
        /* The others left in between: this load pairs with their decrements. */
        (void)atomic_load_explicit(&block->refs, memory_order_acquire);
    }
    weir__block_free(block);
}

#endif
