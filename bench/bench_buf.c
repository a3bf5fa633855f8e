/* SPDX-License-Identifier: MIT */
/* Cases of buf/: making and releasing, looking, numbers, views and composites. */
#include "bench.h"

#include <weir/buf.h>

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Making and releasing `size` bytes --------------------------------------------------------- */

static void alloc_one(bench_run *run)
{
    for (uint64_t i = 0; i < run->count; i++) {
        weir_buf *buf = bench_hide(weir_buf_new(run->size));
        weir_buf_release(buf);
    }
}

static void malloc_one(bench_run *run)
{
    for (uint64_t i = 0; i < run->count; i++) {
        void *memory = bench_hide(malloc(run->size));
        free(memory);
    }
}

#define ALIVE 64

static void alloc_many(bench_run *run)
{
    weir_buf *alive[ALIVE];
    for (uint64_t i = 0; i < run->count; i++) {
        for (size_t j = 0; j < ALIVE; j++)
            alive[j] = bench_hide(weir_buf_new(run->size));
        for (size_t j = 0; j < ALIVE; j++)
            weir_buf_release(alive[j]);
    }
}

static void malloc_many(bench_run *run)
{
    void *alive[ALIVE];
    for (uint64_t i = 0; i < run->count; i++) {
        for (size_t j = 0; j < ALIVE; j++)
            alive[j] = bench_hide(malloc(run->size));
        for (size_t j = 0; j < ALIVE; j++)
            free(alive[j]);
    }
}

/* glibc as it can be told to be: by itself it gives the memory back to the kernel in every turn. */
static void malloc_many_kept(bench_run *run)
{
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    bench_start(run);
    malloc_many(run);
    bench_stop(run);
    mallopt(M_TRIM_THRESHOLD, 128 << 10); /* what it was */
    malloc_trim(0);
}

/* Made on one thread, released on another --------------------------------------------------- */

#define SLOTS 256

/* One producer, one consumer. Each looks at the other's end only when its last look is used up. */
typedef struct ring {
    _Alignas(64) _Atomic(uint64_t) head; /* the producer's */
    uint64_t seen_tail;
    _Alignas(64) _Atomic(uint64_t) tail; /* the consumer's */
    uint64_t seen_head;
    _Alignas(64) void *slots[SLOTS];
} ring;

typedef struct crossing {
    ring ring;
    pthread_barrier_t begin, end;
    uint64_t count;
} crossing;

static void ring_push(ring *r, void *item)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    unsigned turns = 0;
    while (head - r->seen_tail == SLOTS) {
        r->seen_tail = atomic_load_explicit(&r->tail, memory_order_acquire);
        if (head - r->seen_tail == SLOTS)
            bench_wait(&turns);
    }
    r->slots[head % SLOTS] = item;
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

static void *ring_pop(ring *r)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    unsigned turns = 0;
    while (r->seen_head == tail) {
        r->seen_head = atomic_load_explicit(&r->head, memory_order_acquire);
        if (r->seen_head == tail)
            bench_wait(&turns);
    }
    void *item = r->slots[tail % SLOTS];
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
    return item;
}

static void release_there(void *arg)
{
    crossing *cross = arg;
    pthread_barrier_wait(&cross->begin);
    for (uint64_t i = 0; i < cross->count; i++)
        weir_buf_release(ring_pop(&cross->ring));
    pthread_barrier_wait(&cross->end);
}

static void free_there(void *arg)
{
    crossing *cross = arg;
    pthread_barrier_wait(&cross->begin);
    for (uint64_t i = 0; i < cross->count; i++)
        free(ring_pop(&cross->ring));
    pthread_barrier_wait(&cross->end);
}

static void make_here(crossing *cross, size_t size)
{
    for (uint64_t i = 0; i < cross->count; i++)
        ring_push(&cross->ring, bench_hide(weir_buf_new(size)));
}

static void malloc_here(crossing *cross, size_t size)
{
    for (uint64_t i = 0; i < cross->count; i++)
        ring_push(&cross->ring, bench_hide(malloc(size)));
}

static void run_crossing(bench_run *run, void (*here)(crossing *cross, size_t size),
                         void (*there)(void *arg))
{
    crossing *cross = bench_alloc(sizeof *cross);
    bench_thread thread;
    cross->count = run->count;
    pthread_barrier_init(&cross->begin, NULL, 2);
    pthread_barrier_init(&cross->end, NULL, 2);
    bench_pin(0);
    bench_thread_start(&thread, 1, there, cross);
    pthread_barrier_wait(&cross->begin);
    bench_start(run);
    here(cross, run->size);
    pthread_barrier_wait(&cross->end);
    bench_stop(run);
    bench_thread_join(&thread);
    pthread_barrier_destroy(&cross->begin);
    pthread_barrier_destroy(&cross->end);
    free(cross);
}

static void cross_thread(bench_run *run)
{
    run_crossing(run, make_here, release_there);
}

static void cross_thread_malloc(bench_run *run)
{
    run_crossing(run, malloc_here, free_there);
}

/* Looking for the end of a line, which stands at the end of `size` bytes -------------------- */

#define PIECES 4

static uint8_t *line(size_t size)
{
    uint8_t *bytes = bench_alloc(size);
    memset(bytes, 'a', size);
    memcpy(bytes + size - 2, "\r\n", 2);
    return bytes;
}

static weir_buf *line_buf(size_t size)
{
    uint8_t *bytes = line(size);
    weir_buf *buf = weir_buf_from(bytes, size);
    free(bytes);
    return buf;
}

static weir_buf *line_composite(size_t size)
{
    uint8_t *bytes = line(size);
    weir_buf *buf = weir_buf_new_composite();
    for (size_t i = 0; i < PIECES; i++)
        weir_buf_composite_add(buf, weir_buf_from(bytes + i * (size / PIECES), size / PIECES));
    free(bytes);
    if (weir_buf_composite_count(buf) != PIECES)
        bench_fail("a composite of %d pieces has %zu", PIECES, weir_buf_composite_count(buf));
    return buf;
}

static void find_in(bench_run *run, weir_buf *buf)
{
    int64_t expected = (int64_t)run->size - 2;
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        const weir_buf *in = bench_hide(buf);
        if (weir_buf_find_bytes(in, 0, run->size, "\r\n", 2) != expected)
            bench_fail("the end of the line was not found");
    }
    bench_stop(run);
    weir_buf_release(buf);
}

static void find_crlf(bench_run *run)
{
    find_in(run, line_buf(run->size));
}

static void find_crlf_composite(bench_run *run)
{
    find_in(run, line_composite(run->size));
}

static void memchr_cr(bench_run *run)
{
    /* In a buffer, too: the same bytes, at the same alignment. */
    weir_buf *buf = line_buf(run->size);
    const uint8_t *bytes = weir_buf_peek(buf, 0, run->size);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        const uint8_t *in = bench_hide((void *)(uintptr_t)bytes);
        if (memchr(in, '\r', run->size) != in + run->size - 2)
            bench_fail("the end of the line was not found");
    }
    bench_stop(run);
    weir_buf_release(buf);
}

/* Numbers: NUMBERS of them, through a buffer of just that room ------------------------------ */

#define NUMBERS 1024

static void read_u32(bench_run *run)
{
    weir_buf *buf = weir_buf_new(NUMBERS * 4);
    weir_buf_write_fill(buf, 7, NUMBERS * 4);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        weir_buf_set_reader(buf, 0);
        for (size_t j = 0; j < NUMBERS; j++) {
            uint32_t number = 0;
            if (weir_buf_read_u32(buf, &number) < 0)
                bench_fail("a number could not be read");
            bench_hide_u32(number);
        }
    }
    bench_stop(run);
    weir_buf_release(buf);
}

static void load_u32(bench_run *run)
{
    uint8_t *bytes = bench_alloc(NUMBERS * 4);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        const uint8_t *at = bench_hide(bytes);
        for (size_t j = 0; j < NUMBERS; j++, at += 4) {
            uint32_t number;
            memcpy(&number, at, sizeof number);
            bench_hide_u32(__builtin_bswap32(number));
        }
    }
    bench_stop(run);
    free(bytes);
}

static void write_u32(bench_run *run)
{
    weir_buf *buf = weir_buf_new(NUMBERS * 4);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        weir_buf_clear(buf);
        for (uint32_t j = 0; j < NUMBERS; j++) {
            if (weir_buf_write_u32(buf, bench_hide_u32(j)) < 0)
                bench_fail("a number could not be written");
        }
        bench_hide(buf);
    }
    bench_stop(run);
    weir_buf_release(buf);
}

static void store_u32(bench_run *run)
{
    uint8_t *bytes = bench_alloc(NUMBERS * 4);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        uint8_t *at = bench_hide(bytes);
        for (uint32_t j = 0; j < NUMBERS; j++, at += 4) {
            uint32_t number = __builtin_bswap32(bench_hide_u32(j));
            memcpy(at, &number, sizeof number);
        }
        bench_hide(bytes);
    }
    bench_stop(run);
    free(bytes);
}

/* Views ------------------------------------------------------------------------------------- */

static void retained_slice(bench_run *run)
{
    weir_buf *buf = line_buf(run->size);
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        weir_buf *slice = NULL;
        weir_buf_retained_slice(bench_hide(buf), 16, run->size - 32, &slice);
        weir_buf_release(bench_hide(slice));
    }
    bench_stop(run);
    weir_buf_release(buf);
}

/* As an aggregator does with what it receives: each part is fresh and nobody else's. */
static void composite_add(bench_run *run)
{
    for (uint64_t i = 0; i < run->count; i++) {
        weir_buf *composite = weir_buf_new_composite();
        for (size_t j = 0; j < 8; j++) {
            weir_buf *part = weir_buf_new(run->size);
            weir_buf_advance_writer(part, run->size);
            weir_buf_composite_add(composite, bench_hide(part));
        }
        weir_buf_release(bench_hide(composite));
    }
}

const bench_case bench_buf_cases[] = {
    { "buf.alloc_256", "make and release a buffer of 256 bytes", alloc_one, BENCH_CPU, .size = 256,
      .peers = { { "malloc+free", malloc_one, 1.5 } } },
    { "buf.alloc_4k_64", "make and release 4 KiB, with up to 64 alive", alloc_many, BENCH_CPU,
      .batch = ALIVE, .size = 4096,
      .peers = { { "malloc+free", malloc_many, 0.05 }, { "malloc, kept", malloc_many_kept, 0 } } },
    { "buf.alloc_64k_64", "make and release 64 KiB, with up to 64 alive", alloc_many, BENCH_CPU,
      .batch = ALIVE, .size = 65536,
      .peers = { { "malloc+free", malloc_many, 0.05 }, { "malloc, kept", malloc_many_kept, 0 } } },
    { "buf.cross_thread_256", "make 256 bytes here, release them on another thread", cross_thread,
      .size = 256, .peers = { { "malloc+free", cross_thread_malloc, 0.5 } } },
    { "buf.find_crlf_4k", "find \\r\\n at the end of 4 KiB", find_crlf, BENCH_CPU, .size = 4096,
      .peers = { { "memchr", memchr_cr, 1.3 } } },
    { "buf.find_crlf_composite", "find \\r\\n at the end of 4 KiB in 4 pieces", find_crlf_composite,
      BENCH_CPU, .size = 4096, .peers = { { "memchr", memchr_cr, 0 } } },
    { "buf.read_u32", "read a number from a buffer of 4 KiB", read_u32, BENCH_CPU, .batch = NUMBERS,
      .peers = { { "load+bswap", load_u32, 0 } } },
    { "buf.write_u32", "write a number to a buffer of 4 KiB", write_u32, BENCH_CPU,
      .batch = NUMBERS, .peers = { { "bswap+store", store_u32, 0 } } },
    { "buf.retained_slice", "make and release a slice", retained_slice, BENCH_CPU, .size = 4096 },
    { "buf.composite_add", "make a composite, add 8 new buffers of 64 bytes, release it",
      composite_add, BENCH_CPU, .size = 64 },
    { 0 },
};
