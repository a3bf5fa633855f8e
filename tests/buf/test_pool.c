/* SPDX-License-Identifier: MIT */
/* The pool: blocks are reused, go home from any thread, and none is kept beyond the limit. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define DEFAULT_CACHE_LIMIT ((size_t)8 << 20)
#define SMALLEST 64
#define LARGEST (64 * KIB)

static weir_pool_stats stats_now(void)
{
    weir_pool_stats stats;
    weir_pool_get_stats(&stats);
    return stats;
}

static uint64_t allocations_now(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.allocations;
}

static uint64_t live_now(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.live;
}

/* Asserts how the counters stand, given how they stood when the case began. */
#define assert_stats(since, blocks, bytes, cached)                                                 \
    do {                                                                                           \
        weir_pool_stats stats_here = stats_now();                                                  \
        assert_int_equal(stats_here.used_blocks, (since).used_blocks + (blocks));                  \
        assert_int_equal(stats_here.used_bytes, (since).used_bytes + (bytes));                     \
        assert_int_equal(stats_here.cached_bytes, (since).cached_bytes + (cached));                \
    } while (0)

static void on_another_thread(void *(*fn)(void *arg), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A case that may change the limit, and need not get to the end to undo it. */
#define pool_case(name)                                                                            \
    cmocka_unit_test_setup_teardown(name, harness_remember_what_lives, restore_the_limit)

static int restore_the_limit(void **state)
{
    weir_pool_set_cache_limit(DEFAULT_CACHE_LIMIT);
    return harness_assert_nothing_left(state);
}

/* An array of buffers, to hand to a thread. */
typedef struct herd {
    weir_buf *bufs[256];
    size_t count;
} herd;

static void make_herd(herd *h, size_t count, size_t capacity)
{
    h->count = count;
    for (size_t i = 0; i < count; i++) {
        h->bufs[i] = weir_buf_new(capacity);
        assert_non_null(h->bufs[i]);
    }
}

static void *release_herd(void *arg)
{
    herd *h = arg;
    for (size_t i = 0; i < h->count; i++)
        weir_buf_release(h->bufs[i]);
    return NULL;
}

/* Classes ----------------------------------------------------------------------------------- */

static void every_size_is_reused(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    for (size_t size = SMALLEST; size <= LARGEST; size *= 2) {
        /* The largest and the smallest capacity that is served by blocks of this size. */
        size_t smallest = size == SMALLEST ? 0 : size / 2 + 1;
        weir_buf *buf = weir_buf_new(size);
        assert_stats(since, 1, size, 0);
        assert_int_equal(weir_buf_release(buf), 1);
        assert_stats(since, 0, 0, size);
        uint64_t allocations = allocations_now();
        weir_buf *again = weir_buf_new(smallest);
        assert_ptr_equal(again, buf);
        assert_int_equal(weir_buf_capacity(again), smallest);
        assert_stats(since, 1, size, 0);
        assert_int_equal(weir_buf_release(again), 1);
        /* Neither of its neighbours will do. */
        weir_buf *other = weir_buf_new(size + 1);
        assert_ptr_not_equal(other, buf);
        assert_int_equal(weir_buf_release(other), 1);
        if (smallest > 0) {
            other = weir_buf_new(smallest - 1);
            assert_ptr_not_equal(other, buf);
            assert_int_equal(weir_buf_release(other), 1);
        }
        unsigned expected = smallest > 0 ? 2 : 1;
        if (size == LARGEST)
            expected++; /* a larger one has a small block to live in, too */
        assert_int_equal(allocations_now(), allocations + expected);
        weir_pool_trim();
        weir_pool_trim();
        assert_stats(since, 0, 0, 0);
    }
}

static void large_blocks_are_not_kept(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    /* Such a buffer lives in a small block beside its storage, and that is kept. */
    weir_buf *buf = weir_buf_new(LARGEST + 1);
    weir_buf *larger = weir_buf_new(1000000);
    assert_stats(since, 4, LARGEST + 1 + 1000000 + 2 * SMALLEST, 0);
    assert_int_equal(weir_buf_release(buf), 1);
    assert_stats(since, 2, 1000000 + SMALLEST, SMALLEST);
    assert_int_equal(weir_buf_release(larger), 1);
    assert_stats(since, 0, 0, 2 * SMALLEST);
    weir_pool_trim();
    weir_pool_trim();
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
}

static void counts_every_block_once(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    weir_buf *buf = weir_buf_new(100), *slice, *composite;
    assert_stats(since, 1, 128, 0);
    assert_non_null(weir_buf_retain(buf));
    assert_stats(since, 1, 128, 0);
    assert_int_equal(weir_buf_release(buf), 0);
    assert_int_equal(weir_buf_write_fill(buf, 'x', 100), 0);
    /* A view costs a block of the smallest size to live in. */
    assert_int_equal(weir_buf_retained_slice(buf, 10, 80, &slice), 0);
    assert_stats(since, 2, 128 + 64, 0);
    assert_int_equal(weir_buf_release(buf), 1);
    assert_stats(since, 2, 128 + 64, 0);
    composite = weir_buf_new_composite();
    assert_stats(since, 3, 128 + 64 + 256, 0);
    assert_int_equal(weir_buf_composite_add(composite, slice), 0);
    assert_stats(since, 2, 128 + 256, 64);
    assert_int_equal(weir_buf_release(composite), 1);
    assert_stats(since, 0, 0, 64 + 128 + 256);
}

/* Other threads ----------------------------------------------------------------------------- */

static void block_freed_elsewhere_goes_home(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    make_herd(&h, 3, 500);
    assert_stats(since, 3, 3 * 512, 0);
    on_another_thread(release_herd, &h);
    assert_stats(since, 0, 0, 3 * 512);
    uint64_t allocations = allocations_now();
    weir_buf *again[3];
    for (int i = 0; i < 3; i++) {
        again[i] = weir_buf_new(500);
        assert_true(again[i] == h.bufs[0] || again[i] == h.bufs[1] || again[i] == h.bufs[2]);
    }
    assert_int_equal(allocations_now(), allocations);
    assert_stats(since, 3, 3 * 512, 0);
    for (int i = 0; i < 3; i++)
        weir_buf_release(again[i]);
}

static void *make_and_release_herd(void *arg)
{
    /* With a pool of its own, which must not take in what is another's. */
    weir_buf *own = weir_buf_new(500);
    release_herd(arg);
    weir_buf *next = weir_buf_new(500);
    bool is_anothers = next == ((herd *)arg)->bufs[0];
    weir_buf_release(own);
    weir_buf_release(next);
    return is_anothers ? arg : NULL;
}

static void thread_with_a_pool_sends_home_as_well(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    void *is_anothers;
    pthread_t thread;
    make_herd(&h, 1, 500);
    assert_int_equal(pthread_create(&thread, NULL, make_and_release_herd, &h), 0);
    assert_int_equal(pthread_join(thread, &is_anothers), 0);
    assert_null(is_anothers);
    /* What that thread itself kept went with it. */
    assert_stats(since, 0, 0, 512);
    weir_buf *again = weir_buf_new(500);
    assert_ptr_equal(again, h.bufs[0]);
    weir_buf_release(again);
}

/* The last reference decides, not who made the view. */
static void *slice_and_release(void *arg)
{
    herd *h = arg;
    weir_buf *slice = NULL;
    weir_buf_retained_slice(h->bufs[0], 2, 3, &slice);
    weir_buf_release(h->bufs[0]);
    h->bufs[1] = slice;
    return NULL;
}

static void view_made_elsewhere_keeps_the_storage(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h = { .count = 1 };
    h.bufs[0] = weir_buf_from("0123456789", 10);
    weir_buf *whole = h.bufs[0];
    on_another_thread(slice_and_release, &h);
    assert_stats(since, 2, 64 + 64, 0);
    uint8_t bytes[3];
    assert_int_equal(weir_buf_read_bytes(h.bufs[1], bytes, 3), 0);
    assert_memory_equal(bytes, "234", 3);
    assert_int_equal(weir_buf_release(h.bufs[1]), 1);
    /* The storage is home; the slice's own block had a home that is no more. */
    assert_stats(since, 0, 0, 64);
    weir_buf *again = weir_buf_new(10);
    assert_ptr_equal(again, whole);
    weir_buf_release(again);
}

static void *release_and_tell_allocations(void *arg)
{
    static uint64_t allocations;
    allocations = allocations_now();
    release_herd(arg);
    allocations = allocations_now() - allocations;
    return &allocations;
}

static void thread_without_a_pool_only_releases(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    pthread_t thread;
    void *allocations;
    make_herd(&h, 4, 100);
    h.bufs[4] = weir_buf_new(LARGEST * 2);
    h.count = 5;
    assert_int_equal(pthread_create(&thread, NULL, release_and_tell_allocations, &h), 0);
    assert_int_equal(pthread_join(thread, &allocations), 0);
    /* It needed none of its own for that. */
    assert_int_equal(*(uint64_t *)allocations, 0);
    assert_stats(since, 0, 0, 4 * 128 + SMALLEST);
    weir_pool_trim();
    weir_pool_trim();
    assert_stats(since, 0, 0, 0);
}

static void *trim_here(void *arg)
{
    *(size_t *)arg = weir_pool_trim();
    return NULL;
}

static void thread_without_a_pool_has_nothing_to_trim(void **state)
{
    (void)state;
    size_t trimmed = 77;
    on_another_thread(trim_here, &trimmed);
    assert_int_equal(trimmed, 0);
}

/* Threads that end -------------------------------------------------------------------------- */

static void *make_here(void *arg)
{
    herd *h = arg;
    for (size_t i = 0; i < h->count; i++) {
        h->bufs[i] = weir_buf_new(100 + i);
        weir_buf_write_u64(h->bufs[i], i * 3);
    }
    /* And some that it leaves in its own cache. */
    weir_buf *cached = weir_buf_new(1000), *other = weir_buf_new(3000);
    weir_buf_release(cached);
    weir_buf_release(other);
    return NULL;
}

static void assert_made_there(herd *h)
{
    for (size_t i = 0; i < h->count; i++) {
        uint64_t value;
        assert_int_equal(weir_buf_get_u64(h->bufs[i], 0, &value), 0);
        assert_int_equal(value, i * 3);
        assert_int_equal(weir_buf_write_fill(h->bufs[i], 'x', 50), 0);
    }
}

static void memory_outlives_its_thread(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    herd h = { .count = 20 };
    on_another_thread(make_here, &h);
    assert_stats(since, 20, 20 * 128, 0);
    /* The blocks, and what knows where they come from. */
    assert_int_equal(live_now(), live + 20 + 1);
    assert_made_there(&h);
    for (size_t i = 0; i < h.count; i++) {
        assert_int_equal(weir_buf_release(h.bufs[i]), 1);
        assert_stats(since, 19 - i, (19 - i) * 128, 0);
    }
    assert_int_equal(live_now(), live);
}

static void memory_of_an_ended_thread_is_released_by_another(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    herd h = { .count = 20 };
    on_another_thread(make_here, &h);
    on_another_thread(release_herd, &h);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
    /* Or by one with a pool, that ends, too. */
    on_another_thread(make_here, &h);
    on_another_thread(make_and_release_herd, &h);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
}

static void threads_in_a_row_leave_nothing(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    herd h = { .count = 10 };
    for (int i = 0; i < 200; i++) {
        on_another_thread(make_here, &h);
        assert_made_there(&h);
        release_herd(&h);
        assert_int_equal(live_now(), live);
        assert_stats(since, 0, 0, 0);
    }
}

static pthread_key_t late_key;

/* Runs after the pool's own, whose key is older: the pool is gone already. */
static void end_late(void *arg)
{
    weir_buf_release(arg);
    weir_buf *late = weir_buf_new(100);
    if (late == NULL || weir_buf_write_fill(late, 'x', 5000) < 0)
        abort();
    weir_buf_release(late);
}

static void *begin_late(void *arg)
{
    (void)arg;
    weir_buf *held = weir_buf_new(100);
    pthread_setspecific(late_key, held);
    return NULL;
}

static void thread_may_use_buffers_to_its_very_end(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    assert_int_equal(pthread_key_create(&late_key, end_late), 0);
    on_another_thread(begin_late, NULL);
    assert_int_equal(pthread_key_delete(late_key), 0);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
}

typedef struct meeting {
    pthread_barrier_t barrier;
    herd h;
} meeting;

static void *make_and_wait(void *arg)
{
    meeting *m = arg;
    make_here(&m->h);
    pthread_barrier_wait(&m->barrier);
    pthread_barrier_wait(&m->barrier); /* meanwhile others release */
    return NULL;
}

/* What came home while the thread lived and was not asked for goes when the thread does. */
static void blocks_that_wait_at_home_go_with_the_thread(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    meeting m = { .h.count = 20 };
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&m.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, make_and_wait, &m), 0);
    pthread_barrier_wait(&m.barrier);
    assert_stats(since, 20, 20 * 128, 1024 + 4096);
    release_herd(&m.h);
    assert_stats(since, 0, 0, 20 * 128 + 1024 + 4096);
    pthread_barrier_wait(&m.barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&m.barrier);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
}

static void sums_up_all_threads(void **state)
{
    (void)state;
    enum { THREADS = 5 };
    weir_pool_stats since = stats_now();
    pthread_t threads[THREADS];
    static meeting meetings[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        meetings[i].h.count = 10 + i;
        assert_int_equal(pthread_barrier_init(&meetings[i].barrier, NULL, 2), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_wait, &meetings[i]), 0);
    }
    size_t blocks = 0;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_barrier_wait(&meetings[i].barrier);
        blocks += meetings[i].h.count;
    }
    assert_stats(since, blocks, blocks * 128, THREADS * (1024 + 4096));
    for (size_t i = 0; i < THREADS; i++) {
        pthread_barrier_wait(&meetings[i].barrier);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        pthread_barrier_destroy(&meetings[i].barrier);
    }
    assert_stats(since, blocks, blocks * 128, 0);
    for (size_t i = 0; i < THREADS; i++)
        release_herd(&meetings[i].h);
    assert_stats(since, 0, 0, 0);
}

/* The limit --------------------------------------------------------------------------------- */

static void keeps_no_more_than_the_limit(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    static const size_t limits[] = { 10 * KIB, 1024, 1023, 0 };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        herd h;
        weir_pool_set_cache_limit(limits[i]);
        make_herd(&h, 100, KIB);
        release_herd(&h);
        assert_stats(since, 0, 0, limits[i] / KIB * KIB);
        weir_pool_trim();
        weir_pool_trim();
    }
}

static void limit_is_for_all_sizes_together(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    weir_pool_set_cache_limit(16 * KIB);
    herd h;
    size_t capacity = SMALLEST;
    h.count = 0;
    for (size_t i = 0; i < 110; i++) {
        h.bufs[h.count++] = weir_buf_new(capacity);
        capacity = capacity == LARGEST ? SMALLEST : capacity * 2;
    }
    release_herd(&h);
    uint64_t cached = stats_now().cached_bytes - since.cached_bytes;
    assert_true(cached > 0 && cached <= 16 * KIB);
}

static void lower_limit_takes_effect_at_the_next_release(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    make_herd(&h, 10, KIB);
    weir_buf *late = weir_buf_new(KIB);
    release_herd(&h);
    assert_stats(since, 1, KIB, 10 * KIB);
    weir_pool_set_cache_limit(4 * KIB);
    assert_stats(since, 1, KIB, 10 * KIB);
    weir_buf_release(late);
    assert_stats(since, 0, 0, 10 * KIB);
    /* They are used up before new ones are made, and then not kept again. */
    uint64_t allocations = allocations_now();
    make_herd(&h, 10, KIB);
    assert_int_equal(allocations_now(), allocations);
    release_herd(&h);
    assert_stats(since, 0, 0, 4 * KIB);
}

static void *set_limit_here(void *arg)
{
    weir_pool_set_cache_limit(*(size_t *)arg);
    return NULL;
}

static void limit_holds_for_every_thread(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    size_t limit = 2 * KIB;
    on_another_thread(set_limit_here, &limit);
    make_herd(&h, 10, KIB);
    release_herd(&h);
    assert_stats(since, 0, 0, 2 * KIB);
}

static void limit_holds_for_what_comes_home(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    weir_pool_set_cache_limit(10 * KIB);
    for (int round = 0; round < 3; round++) {
        herd h;
        make_herd(&h, 100, KIB);
        assert_stats(since, 100, 100 * KIB, 0);
        on_another_thread(release_herd, &h);
        assert_stats(since, 0, 0, 10 * KIB);
    }
    weir_pool_set_cache_limit(0);
    herd h;
    make_herd(&h, 20, KIB); /* among them the ten that were waiting */
    on_another_thread(release_herd, &h);
    assert_stats(since, 0, 0, 0);
}

/* One size after the other comes home and is not asked for again: together they obey, too. */
static void limit_holds_however_often_something_comes_home(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    weir_pool_set_cache_limit(16 * KIB);
    for (size_t size = SMALLEST; size <= 8 * KIB; size *= 2) {
        herd h;
        size_t count = 16 * KIB / size < 256 ? 16 * KIB / size : 256;
        make_herd(&h, count, size);
        on_another_thread(release_herd, &h);
        /* It looks for a block of this size, finds none, and takes in what waits. */
        weir_buf *other = weir_buf_new(16 * KIB);
        assert_true(stats_now().cached_bytes - since.cached_bytes <= 16 * KIB);
        weir_buf_release(other);
        assert_true(stats_now().cached_bytes - since.cached_bytes <= 16 * KIB);
    }
}

/* Trimming ---------------------------------------------------------------------------------- */

static void trims_what_was_not_needed(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    make_herd(&h, 10, KIB);
    release_herd(&h);
    /* All were in use since the last trim. */
    assert_int_equal(weir_pool_trim(), 0);
    assert_stats(since, 0, 0, 10 * KIB);
    /* Three of them are needed again, at the same time; seven are not. */
    make_herd(&h, 3, KIB);
    release_herd(&h);
    make_herd(&h, 2, KIB);
    release_herd(&h);
    assert_int_equal(weir_pool_trim(), 7 * KIB);
    assert_stats(since, 0, 0, 3 * KIB);
    assert_int_equal(weir_pool_trim(), 3 * KIB);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(weir_pool_trim(), 0);
}

static void trims_all_sizes(void **state)
{
    (void)state;
    uint64_t live = live_now();
    size_t sum = 0;
    for (size_t size = SMALLEST; size <= LARGEST; size *= 2) {
        weir_buf_release(weir_buf_new(size));
        sum += size;
    }
    assert_int_equal(weir_pool_trim(), 0);
    assert_int_equal(weir_pool_trim(), sum);
    assert_int_equal(live_now(), live);
}

static void trims_what_came_home(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    make_herd(&h, 10, KIB);
    on_another_thread(release_herd, &h);
    size_t trimmed = weir_pool_trim();
    trimmed += weir_pool_trim();
    assert_int_equal(trimmed, 10 * KIB);
    assert_stats(since, 0, 0, 0);
}

static void leaves_what_is_in_use_alone(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abc", 3);
    weir_pool_trim();
    weir_pool_trim();
    uint8_t bytes[3];
    assert_int_equal(weir_buf_get_bytes(buf, 0, bytes, 3), 0);
    assert_memory_equal(bytes, "abc", 3);
    weir_buf_release(buf);
}

/* A thread that never falls idle gives back what is left of a busy hour, too. */
static void busy_thread_gives_back_in_time(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    herd h;
    make_herd(&h, 100, KIB);
    release_herd(&h);
    make_herd(&h, 100, 2 * KIB); /* of another size, which nobody asks for any more */
    release_herd(&h);
    assert_stats(since, 0, 0, 300 * KIB);
    for (int i = 0; i < 50000; i++)
        weir_buf_release(weir_buf_new(KIB));
    assert_true(stats_now().cached_bytes - since.cached_bytes <= 2 * KIB);
}

/* Misuse ------------------------------------------------------------------------------------ */

static void release_twice(void *arg)
{
    weir_buf_release(arg);
    weir_buf_release(arg);
}

static void retain_dead(void *arg)
{
    weir_buf_release(arg);
    weir_buf_retain(arg);
}

/* Whatever its size: what is too large for the pool leaves no trace, but for where the buffer
 * lived. */
static void over_release_is_caught(void **state)
{
    (void)state;
    static const size_t sizes[] = { 3, LARGEST, LARGEST + 1, 1000000 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        weir_buf *buf = weir_buf_new(sizes[i]);
        if (HARNESS_MISUSE_ABORTS) {
            harness_expect_abort(release_twice, buf, "of type buf is dead: released too often");
            harness_expect_abort(retain_dead, buf, "of type buf is dead");
            assert_int_equal(weir_buf_release(buf), 1);
            continue;
        }
        harness_log_begin(WEIR_LOG_ERROR);
        assert_int_equal(weir_buf_release(buf), 1);
        assert_int_equal(weir_buf_release(buf), -EINVAL);
        assert_true(harness_log_has("of type buf is dead: released too often"));
        assert_null(weir_buf_retain(buf));
        assert_int_equal(harness_log_end(), 2);
    }
}

static void *release_twice_here(void *arg)
{
    release_twice(arg);
    return NULL;
}

static void release_twice_elsewhere(void *arg)
{
    pthread_t thread;
    pthread_create(&thread, NULL, release_twice_here, arg);
    pthread_join(thread, NULL);
}

/* On its way home a block still knows that its buffer is dead. */
static void over_release_elsewhere_is_caught(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abc", 3);
    if (HARNESS_MISUSE_ABORTS) {
        harness_expect_abort(release_twice_elsewhere, buf, "of type buf is dead");
        assert_int_equal(weir_buf_release(buf), 1);
    } else {
        harness_log_begin(WEIR_LOG_ERROR);
        release_twice_elsewhere(buf);
        assert_true(harness_log_has("of type buf is dead"));
        assert_int_equal(harness_log_end(), 1);
    }
}

/* The composite took the only reference: the part is dead, though its bytes are not. */
static void add_and_release(void *arg)
{
    weir_buf *composite = weir_buf_new_composite();
    weir_buf_composite_add(composite, arg);
    weir_buf_release(arg);
    weir_buf_release(composite);
}

static void part_of_a_composite_is_dead(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abc", 3);
    if (HARNESS_MISUSE_ABORTS) {
        harness_expect_abort(add_and_release, buf, "of type buf is dead");
        assert_int_equal(weir_buf_release(buf), 1);
    } else {
        harness_log_begin(WEIR_LOG_ERROR);
        add_and_release(buf);
        assert_true(harness_log_has("of type buf is dead"));
        assert_int_equal(harness_log_end(), 1);
    }
}

#if defined(__SANITIZE_ADDRESS__)
static void read_after_release(void *arg)
{
    const uint8_t *bytes = weir_buf_peek(arg, 0, 3);
    weir_buf_release(arg);
    fprintf(stderr, "%d\n", bytes[1]);
}

static void ask_after_release(void *arg)
{
    weir_buf_release(arg);
    fprintf(stderr, "%zu\n", weir_buf_readable(arg));
}

/* Cached is as good as freed. */
static void use_after_release_is_seen_by_the_sanitizer(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abc", 3);
    harness_expect_abort(read_after_release, buf, "use-after-poison");
    harness_expect_abort(ask_after_release, buf, "use-after-poison");
    weir_buf_release(buf);
}
#endif

/* Stress ------------------------------------------------------------------------------------ */

enum { STRESS_THREADS = 4, STRESS_ROUNDS = 10000, SLOTS = 64 };

/* Buffers go through here from whoever made them to whoever finds them. */
static _Atomic(weir_buf *) slots[SLOTS];
static atomic_uint spoilt;

/* Its bytes follow from its first four, so that a reader can tell whether it is whole. */
static weir_buf *make_telling(uint32_t seed, size_t length)
{
    weir_buf *buf = weir_buf_new(length);
    if (buf == NULL || weir_buf_write_u32(buf, seed) < 0)
        abort();
    for (size_t i = 4; i < length; i++)
        weir_buf_write_u8(buf, (uint8_t)(seed + i * 7));
    return buf;
}

static void check_telling(const weir_buf *buf)
{
    uint32_t seed = 0;
    size_t length = weir_buf_writer(buf);
    weir_buf_get_u32(buf, 0, &seed);
    for (size_t i = 4; i < length; i++) {
        uint8_t byte = 0;
        weir_buf_get_u8(buf, i, &byte);
        if (byte != (uint8_t)(seed + i * 7)) {
            atomic_fetch_add(&spoilt, 1);
            return;
        }
    }
}

/* The same bytes in another shape; takes the reference. */
static weir_buf *reshaped(weir_buf *buf, uint32_t shape)
{
    weir_buf *view = NULL, *composite;
    size_t length = weir_buf_writer(buf);
    switch (shape % 4) {
    case 0:
        weir_buf_retained_slice(buf, 0, length, &view);
        weir_buf_release(buf);
        return view;
    case 1:
        composite = weir_buf_new_composite();
        weir_buf_read_slice(buf, length / 2, &view);
        weir_buf_composite_add(composite, view);
        weir_buf_composite_add(composite, buf);
        return composite;
    case 2:
        weir_buf_duplicate(buf, &view);
        weir_buf_release(buf);
        return view;
    default:
        return buf;
    }
}

static void *pass_around(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg;
    for (int round = 0; round < STRESS_ROUNDS; round++) {
        random = random * 1664525 + 1013904223;
        size_t length = 4 + (random >> 20) % (round % 64 == 0 ? 3000 : 100);
        weir_buf *buf = make_telling(random, length);
        buf = reshaped(buf, random >> 8);
        buf = atomic_exchange(&slots[(random >> 12) % SLOTS], buf);
        if (buf != NULL) {
            check_telling(buf);
            weir_buf_release(buf);
        }
        if (round % 1000 == 999)
            weir_pool_trim();
    }
    return NULL;
}

static void many_threads_pass_buffers_around(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    pthread_t threads[STRESS_THREADS];
    atomic_store(&spoilt, 0);
    for (uintptr_t i = 0; i < STRESS_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pass_around, (void *)(i + 1)), 0);
    for (int i = 0; i < STRESS_THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < SLOTS; i++) {
        weir_buf *buf = atomic_exchange(&slots[i], NULL);
        if (buf != NULL) {
            check_telling(buf);
            weir_buf_release(buf);
        }
    }
    assert_int_equal(atomic_load(&spoilt), 0);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
}

/* Threads come and go while others hold what they made. */
static void *live_shortly(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg;
    for (int round = 0; round < 20; round++) {
        random = random * 1664525 + 1013904223;
        weir_buf *buf = make_telling(random, 4 + (random >> 20) % 200);
        buf = atomic_exchange(&slots[(random >> 12) % SLOTS], buf);
        if (buf != NULL) {
            check_telling(buf);
            weir_buf_release(buf);
        }
    }
    return NULL;
}

static void *start_short_lives(void *arg)
{
    uintptr_t seed = (uintptr_t)arg;
    for (uintptr_t i = 0; i < 100; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live_shortly, (void *)(seed * 1000 + i)) != 0)
            abort();
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void threads_end_while_others_hold_their_buffers(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    pthread_t threads[STRESS_THREADS];
    atomic_store(&spoilt, 0);
    for (uintptr_t i = 0; i < STRESS_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, start_short_lives, (void *)(i + 1)), 0);
    for (int i = 0; i < STRESS_THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < SLOTS; i++) {
        weir_buf *buf = atomic_exchange(&slots[i], NULL);
        if (buf != NULL) {
            check_telling(buf);
            weir_buf_release(buf);
        }
    }
    assert_int_equal(atomic_load(&spoilt), 0);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
}

/* Counters are read while others count: a block may be counted too much, but none below zero. */
static void *make_and_release(void *arg)
{
    _Atomic(bool) *is_over = arg;
    while (!atomic_load(is_over))
        weir_buf_release(weir_buf_new(100));
    return NULL;
}

static void counters_never_go_below_zero(void **state)
{
    (void)state;
    static _Atomic(bool) is_over;
    pthread_t thread;
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&thread, NULL, make_and_release, &is_over), 0);
    uint64_t most = 0;
    for (int i = 0; i < 200000; i++) {
        weir_pool_stats now = stats_now();
        most = now.used_bytes > most ? now.used_bytes : most;
        most = now.used_blocks > most ? now.used_blocks : most;
        most = now.cached_bytes > most ? now.cached_bytes : most;
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    assert_true(most < (uint64_t)1 << 40);
}

/* Without the pool -------------------------------------------------------------------------- */

static void bypassed_pool_keeps_nothing(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    assert_int_equal(since.cached_bytes, 0);
    uint64_t live = live_now(), allocations = allocations_now();
    for (unsigned i = 1; i <= 10; i++) {
        weir_buf *buf = weir_buf_new(100);
        /* Just as large as was asked for, so that a sanitizer sees the first byte behind it. */
        assert_stats(since, 1, 100, 0);
        assert_int_equal(allocations_now(), allocations + i);
        assert_int_equal(live_now(), live + 1);
        assert_int_equal(weir_buf_release(buf), 1);
        assert_int_equal(live_now(), live);
        assert_stats(since, 0, 0, 0);
    }
    assert_int_equal(weir_pool_trim(), 0);
}

static void bypassed_pool_keeps_nothing_that_comes_home(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    uint64_t live = live_now();
    herd h;
    make_herd(&h, 10, KIB);
    assert_stats(since, 10, 10 * KIB, 0);
    on_another_thread(release_herd, &h);
    assert_stats(since, 0, 0, 0);
    assert_int_equal(live_now(), live);
}

static void bypassed_pool_is_not_brought_back(void **state)
{
    (void)state;
    weir_pool_stats since = stats_now();
    weir_pool_set_cache_limit(DEFAULT_CACHE_LIMIT);
    weir_buf_release(weir_buf_new(100));
    assert_stats(since, 0, 0, 0);
}

static int run_bypassed(void)
{
    /* Before the pool is first used: it must not count either. */
    weir_pool_set_cache_limit(DEFAULT_CACHE_LIMIT);
    const struct CMUnitTest tests[] = {
        weir_case(bypassed_pool_keeps_nothing),
        weir_case(bypassed_pool_keeps_nothing_that_comes_home),
        weir_case(bypassed_pool_is_not_brought_back),
    };
    return cmocka_run_group_tests_name("bypassed", tests, NULL, NULL);
}

/* Runs this program again, since the environment is read but once. */
static void environment_bypasses_the_pool(void **state)
{
    (void)state;
    extern char **environ;
    char name[] = "test.buf.pool", mode[] = "bypassed";
    char *arguments[] = { name, mode, NULL };
    pid_t child;
    int status;
    fflush(stdout);
    assert_int_equal(setenv("WEIR_POOL", "0", 1), 0);
    int code = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
    unsetenv("WEIR_POOL");
    assert_int_equal(code, 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "bypassed") == 0)
        return run_bypassed();
    unsetenv("WEIR_POOL"); /* what follows is about the pool */
    const struct CMUnitTest tests[] = {
        pool_case(every_size_is_reused),
        pool_case(large_blocks_are_not_kept),
        pool_case(counts_every_block_once),
        pool_case(block_freed_elsewhere_goes_home),
        pool_case(thread_with_a_pool_sends_home_as_well),
        pool_case(view_made_elsewhere_keeps_the_storage),
        pool_case(thread_without_a_pool_only_releases),
        pool_case(thread_without_a_pool_has_nothing_to_trim),
        pool_case(memory_outlives_its_thread),
        pool_case(memory_of_an_ended_thread_is_released_by_another),
        pool_case(threads_in_a_row_leave_nothing),
        pool_case(thread_may_use_buffers_to_its_very_end),
        pool_case(blocks_that_wait_at_home_go_with_the_thread),
        pool_case(sums_up_all_threads),
        pool_case(keeps_no_more_than_the_limit),
        pool_case(limit_is_for_all_sizes_together),
        pool_case(lower_limit_takes_effect_at_the_next_release),
        pool_case(limit_holds_for_every_thread),
        pool_case(limit_holds_for_what_comes_home),
        pool_case(limit_holds_however_often_something_comes_home),
        pool_case(trims_what_was_not_needed),
        pool_case(trims_all_sizes),
        pool_case(trims_what_came_home),
        pool_case(leaves_what_is_in_use_alone),
        pool_case(busy_thread_gives_back_in_time),
        pool_case(over_release_is_caught),
        pool_case(counters_never_go_below_zero),
        pool_case(over_release_elsewhere_is_caught),
        pool_case(part_of_a_composite_is_dead),
#if defined(__SANITIZE_ADDRESS__)
        pool_case(use_after_release_is_seen_by_the_sanitizer),
#endif
        pool_case(many_threads_pass_buffers_around),
        pool_case(threads_end_while_others_hold_their_buffers),
        pool_case(environment_bypasses_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
