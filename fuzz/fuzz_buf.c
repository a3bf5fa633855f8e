/* SPDX-License-Identifier: MIT */
/* Fuzzes buffers: sequences of operations against a model that knows who shares what. */
#include "buf/input.h"
#include "buf/world.h"
#include "fuzz.h"

#include <weir/alloc.h>
#include <weir/fault.h>
#include <weir/pool.h>

typedef struct operation {
    const char *name;
    operation_fn run;
} operation;

static const operation operations[] = {
#define OPERATION(name, weight) { #name, op_##name },
    OPERATIONS(OPERATION)
#undef OPERATION
};

#define OPERATION_COUNT (sizeof operations / sizeof *operations)

/* Operations by the state of their subject, for the fuzzer to strive for beside the branches. */
#define STATES 128
static uint8_t seen[OPERATION_COUNT][STATES] __attribute__((section("__libfuzzer_extra_counters")));

/* Makes w->borrowed a slice of the slot's content, or of such a slice. */
static slot *borrow(world *w, slot *lender)
{
    const weir_buf *from = lender->buf;
    static model_view first;
    first = lender->view;
    w->lender = lender;
    for (int depth = 1 + take(w) % 2; depth > 0; depth--) {
        size_t index = take_size(w, first.writer), length = 0;
        if (index <= first.writer)
            length = take_size(w, first.writer - index);
        int code = weir_buf_slice(from, index, length, &w->borrowed_buf);
        expect(w, "weir_buf_slice", code, model_check(&first, index, length));
        if (code < 0)
            return NULL;
        model_slice(&w->borrowed.view, &first, index, length);
        w->borrowed.view.is_borrowed = true;
        w->borrowed.buf = &w->borrowed_buf;
        first = w->borrowed.view;
        from = &w->borrowed_buf;
    }
    check(w, &w->borrowed);
    return &w->borrowed;
}

/* A fresh slice is full and begins at 0: mostly something happens to it before the operation. */
static void prepare_slice(world *w)
{
    static const operation_fn steps[] = { op_set_reader, op_set_writer, op_set_capacity,
                                          op_discard_read, op_mark_writer };
    for (int left = take(w) % 3; left > 0; left--) {
        steps[take(w) % (sizeof steps / sizeof *steps)](w, &w->borrowed);
        check(w, &w->borrowed);
    }
}

static unsigned state_of(const model_view *view)
{
    if (!view->is_live)
        return 0;
    unsigned state = 1;
    const bool traits[] = {
        view->is_composite,
        view->is_read_only,
        view->reader > 0,
        view->count > 1,
        view->writer < view->capacity,
        view->limit < WEIR_BUF_MAX,
    };
    for (unsigned i = 0; i < sizeof traits; i++)
        state |= (unsigned)traits[i] << (i + 1);
    return state;
}

static void run_operation(world *w)
{
    const operation *o = &operations[take(w) % OPERATION_COUNT];
    uint8_t which = take(w);
    if (!(which & SUBJECT_IS_SAME))
        w->subject = &w->slots[which % SLOT_COUNT];
    slot *subject = w->subject;
    w->number++;
    w->lender = NULL;
    w->operation = "slice";
    if (which & SUBJECT_IS_SLICE)
        subject = borrow(w, subject);
    if (subject == NULL)
        return;
    if (subject == &w->borrowed)
        prepare_slice(w);
    w->operation = o->name;
    seen[o - operations][state_of(&subject->view)] = 1;
    o->run(w, subject);
    if (w->has_failed)
        fail(w, "asked for memory, which it has no need of");
    for (slot *s = w->slots; s < w->slots + SLOT_COUNT; s++)
        check(w, s);
    if (w->lender != NULL)
        check(w, &w->borrowed);
}

static uint64_t live_allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.live;
}

static void check_nothing_lives(world *w, uint64_t live_before, bool has_cache)
{
    weir_pool_stats stats;
    weir_pool_get_stats(&stats);
    w->operation = "end";
    expect(w, "used_blocks", (int64_t)stats.used_blocks, 0);
    expect(w, "used_bytes", (int64_t)stats.used_bytes, 0);
    if (has_cache)
        return;
    expect(w, "cached_bytes", (int64_t)stats.cached_bytes, 0);
    expect(w, "live allocations", (int64_t)live_allocations(), (int64_t)live_before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w;
    w.subject = w.slots;
    w.number = 0;
    w.fault_in = 0;
    w.next_byte = 0;
    w.has_failed = w.was_big = w.was_elsewhere = false;

    bool has_cache = size == 0 || !(data[0] & MODE_NO_CACHE);
    weir_pool_set_cache_limit(has_cache ? (size_t)1 << 20 : 0);
    if (!has_cache) {
        /* The first forgets what was in use until now, the second empties the cache. */
        weir_pool_trim();
        weir_pool_trim();
    }
    uint64_t live_before = live_allocations();

    weir_fault_set(on_fault, &w);
    for (const uint8_t *at = data + 1; at < data + size && w.number < MAX_RECORDS;) {
        size_t left = (size_t)(data + size - at);
        w.at = at;
        w.end = at += left < RECORD_SIZE ? left : RECORD_SIZE;
        run_operation(&w);
    }
    weir_fault_set(NULL, NULL);
    for (slot *s = w.slots; s < w.slots + SLOT_COUNT; s++) {
        empty(&w, s);
        for (slot *left = s + 1; left < w.slots + SLOT_COUNT; left++)
            check(&w, left);
    }
    check_nothing_lives(&w, live_before, has_cache);
    expect(&w, "wrapped memory not given back", (int64_t)model_reset(), 0);
    return 0;
}
