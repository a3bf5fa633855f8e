/* SPDX-License-Identifier: MIT */
/* Memory runs out at every point where a buffer asks for some: nothing changes, nothing leaks. */
#include "kinds.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 24
#define MUCH 150000 /* more than any kind has in store */

static void empty_the_cache(void)
{
    weir_pool_trim();
    weir_pool_trim();
}

static size_t used_blocks(void)
{
    weir_pool_stats stats;
    weir_pool_get_stats(&stats);
    return stats.used_blocks;
}

/* Operations -------------------------------------------------------------------------------- */

/* Something that asks for memory: on `buf`, perhaps with a part, perhaps making another one. */
typedef struct operation {
    const char *name;
    int (*attempt)(weir_buf *buf, weir_buf *part, weir_buf **made);
    weir_buf *(*make_part)(void);
    bool takes_part; /* a reference to it, however it ends */
    unsigned needs, excludes;
} operation;

#define ATTEMPT(name) static int name(weir_buf *buf, weir_buf *part, weir_buf **made)
#define UNUSED ((void)part, (void)made)

ATTEMPT(ensure_writable)
{
    UNUSED;
    return weir_buf_ensure_writable(buf, MUCH);
}

ATTEMPT(set_capacity)
{
    UNUSED;
    return weir_buf_set_capacity(buf, MUCH);
}

ATTEMPT(write_ptr)
{
    UNUSED;
    uint8_t *room = weir_buf_write_ptr(buf, MUCH);
    if (room == NULL)
        return -ENOMEM;
    pattern(room, MUCH, 5);
    return weir_buf_advance_writer(buf, MUCH);
}

ATTEMPT(write_bytes)
{
    UNUSED;
    static uint8_t bytes[MUCH];
    pattern(bytes, MUCH, 6);
    return weir_buf_write_bytes(buf, bytes, MUCH);
}

ATTEMPT(write_fill)
{
    UNUSED;
    return weir_buf_write_fill(buf, 'f', MUCH);
}

ATTEMPT(write_str)
{
    UNUSED;
    static char string[MUCH + 1];
    memset(string, 's', MUCH);
    return weir_buf_write_str(buf, string);
}

ATTEMPT(print)
{
    UNUSED;
    return weir_buf_printf(buf, "%*d", MUCH, 1);
}

ATTEMPT(write_buf)
{
    (void)made;
    return weir_buf_write_buf(buf, part, MUCH);
}

ATTEMPT(hex_dump)
{
    (void)made;
    return weir_buf_hex_dump(part, 0, MUCH / 4, buf);
}

ATTEMPT(retained_slice)
{
    (void)part;
    return weir_buf_retained_slice(buf, 3, LENGTH - 5, made);
}

ATTEMPT(retained_slice_of_one_byte)
{
    (void)part;
    return weir_buf_retained_slice(buf, 3, 1, made);
}

ATTEMPT(retained_slice_of_nothing)
{
    (void)part;
    return weir_buf_retained_slice(buf, 3, 0, made);
}

ATTEMPT(read_slice)
{
    (void)part;
    return weir_buf_read_slice(buf, 11, made);
}

ATTEMPT(duplicate)
{
    (void)part;
    return weir_buf_duplicate(buf, made);
}

ATTEMPT(read_only)
{
    (void)part;
    return weir_buf_read_only(buf, made);
}

ATTEMPT(copy)
{
    (void)part;
    return weir_buf_copy(buf, 3, LENGTH - 5, made);
}

ATTEMPT(composite_add)
{
    (void)made;
    return weir_buf_composite_add(buf, part);
}

ATTEMPT(composite_insert)
{
    (void)made;
    return weir_buf_composite_insert(buf, 0, part);
}

static weir_buf *much(void)
{
    weir_buf *part = weir_buf_new(MUCH);
    assert_int_equal(weir_buf_write_fill(part, 'p', MUCH), 0);
    return part;
}

/* So many pieces that no table has the entries for them. */
static weir_buf *many_pieces(void)
{
    weir_buf *part = weir_buf_new_composite();
    for (int i = 0; i < 300; i++)
        assert_int_equal(weir_buf_composite_add(part, weir_buf_from("piece", 5)), 0);
    return part;
}

static const operation operations[] = {
    { "ensure_writable", ensure_writable, NULL, false, CAN_GROW, 0 },
    { "set_capacity", set_capacity, NULL, false, CAN_GROW, 0 },
    { "write_ptr", write_ptr, NULL, false, CAN_GROW, 0 },
    { "write_bytes", write_bytes, NULL, false, CAN_GROW, 0 },
    { "write_fill", write_fill, NULL, false, CAN_GROW, 0 },
    { "write_str", write_str, NULL, false, CAN_GROW, 0 },
    { "printf", print, NULL, false, CAN_GROW, 0 },
    { "write_buf", write_buf, much, false, CAN_GROW, 0 },
    { "hex_dump", hex_dump, much, false, CAN_GROW, 0 },
    { "retained_slice", retained_slice, NULL, false, 0, 0 },
    { "retained_slice_of_one_byte", retained_slice_of_one_byte, NULL, false, 0, 0 },
    { "retained_slice_of_nothing", retained_slice_of_nothing, NULL, false, 0, 0 },
    { "read_slice", read_slice, NULL, false, 0, 0 },
    { "duplicate", duplicate, NULL, false, 0, 0 },
    { "read_only", read_only, NULL, false, 0, 0 },
    { "copy", copy, NULL, false, 0, 0 },
    { "composite_add", composite_add, many_pieces, true, IS_COMPOSITE | CAN_GROW, 0 },
    { "composite_insert", composite_insert, many_pieces, true, IS_COMPOSITE | CAN_GROW, 0 },
};

#define OPERATION_COUNT (sizeof operations / sizeof *operations)

/* What an operation works on, and what came of it. */
typedef struct scene {
    subject s;
    weir_buf *part, *made;
} scene;

static void set_scene(scene *now, const kind *of, const operation *o)
{
    uint8_t content[LENGTH];
    pattern(content, LENGTH, 1);
    subject_open(&now->s, of, content, LENGTH, 3);
    assert_int_equal(weir_buf_set_reader(now->s.buf, 2), 0);
    assert_int_equal(weir_buf_mark_reader(now->s.buf), 0);
    now->part = o->make_part != NULL ? o->make_part() : NULL;
    now->made = NULL;
    empty_the_cache();
}

static int attempt(scene *now, const operation *o)
{
    if (o->takes_part)
        assert_non_null(weir_buf_retain(now->part));
    return o->attempt(now->s.buf, now->part, &now->made);
}

static void clear_scene(scene *now)
{
    if (now->part != NULL)
        assert_int_equal(weir_buf_release(now->part), 1);
    if (now->made != NULL)
        assert_int_equal(weir_buf_release(now->made), 1);
    subject_close(&now->s);
}

static void assert_same_outcome(const scene *now, const scene *good)
{
    assert_true(weir_buf_equal(now->s.buf, good->s.buf));
    assert_int_equal(weir_buf_reader(now->s.buf), weir_buf_reader(good->s.buf));
    assert_int_equal(weir_buf_writer(now->s.buf), weir_buf_writer(good->s.buf));
    assert_int_equal(weir_buf_capacity(now->s.buf), weir_buf_capacity(good->s.buf));
    assert_true(weir_buf_equal(now->made, good->made));
    assert_true(weir_buf_equal(now->part, good->part));
}

/* Fails the first call for memory, then the second, until there are no more. */
static void survives(const kind *of, const void *arg)
{
    const operation *o = arg;
    size_t blocks = used_blocks();
    scene good, now;
    set_scene(&good, of, o);
    assert_int_equal(attempt(&good, o), 0);
    size_t good_blocks = used_blocks();
    unsigned nth = 1;
    for (;; nth++) {
        set_scene(&now, of, o);
        snapshot before;
        snapshot_take(&before, now.s.buf);
        size_t part_reader = weir_buf_reader(now.part), part_writer = weir_buf_writer(now.part);
        harness_fail_nth(NULL, nth, -ENOMEM);
        int code = attempt(&now, o);
        if (harness_fail_end() < nth) {
            assert_int_equal(code, 0);
            break;
        }
        assert_int_equal(code, -ENOMEM);
        snapshot_compare(&before, now.s.buf, __FILE__, __LINE__);
        assert_null(now.made);
        assert_int_equal(weir_buf_reader(now.part), part_reader);
        assert_int_equal(weir_buf_writer(now.part), part_writer);
        if (o->takes_part)
            assert_int_equal(weir_msg_refs(weir_buf_msg(now.part)), 1);
        /* The next try works. */
        assert_int_equal(attempt(&now, o), 0);
        assert_same_outcome(&now, &good);
        clear_scene(&now);
        assert_int_equal(used_blocks(), good_blocks);
    }
    assert_true(nth > 1); /* else it was no test */
    assert_same_outcome(&now, &good);
    clear_scene(&now);
    clear_scene(&good);
    assert_int_equal(used_blocks(), blocks);
}

/* Making ------------------------------------------------------------------------------------ */

static unsigned freed;

static void count_free(void *arg, void *memory)
{
    (void)arg;
    (void)memory;
    freed++;
}

static uint8_t wrapped_memory[10];

static weir_buf *make_one(int which)
{
    switch (which) {
    case 0:
        return weir_buf_new(0);
    case 1:
        return weir_buf_new(1000);
    case 2:
        return weir_buf_new(MUCH);
    case 3:
        return weir_buf_from("abc", 3);
    case 4:
        return weir_buf_wrap(wrapped_memory, sizeof wrapped_memory, count_free, NULL);
    default:
        return weir_buf_new_composite();
    }
}

static void making_fails_cleanly(void **state)
{
    (void)state;
    for (int which = 0; which < 6; which++) {
        size_t blocks = used_blocks();
        unsigned nth = 1;
        freed = 0;
        for (;; nth++) {
            empty_the_cache();
            harness_fail_nth(NULL, nth, -ENOMEM);
            weir_buf *buf = make_one(which);
            if (harness_fail_end() < nth) {
                assert_non_null(buf);
                assert_int_equal(weir_buf_release(buf), 1);
                break;
            }
            assert_null(buf);
            assert_int_equal(freed, 0); /* what was not wrapped is the caller's still */
            assert_int_equal(used_blocks(), blocks);
        }
        /* From the pool, and then from the allocator; what is large needs two blocks. */
        assert_int_equal(nth, which == 2 ? 5 : 3);
        assert_int_equal(freed, which == 4);
    }
}

/* The pool of a thread is made with its first buffer. */
typedef struct first_try {
    unsigned nth, calls;
    bool failed, next_failed;
} first_try;

static void *make_first(void *arg)
{
    first_try *try = arg;
    harness_fail_nth(NULL, try->nth, -ENOMEM);
    weir_buf *buf = weir_buf_new(100);
    try->calls = harness_fail_end();
    try->failed = buf == NULL;
    weir_buf *next = weir_buf_new(100);
    try->next_failed = next == NULL;
    if (buf != NULL)
        weir_buf_release(buf);
    if (next != NULL)
        weir_buf_release(next);
    return NULL;
}

static void first_buffer_of_a_thread_fails_cleanly(void **state)
{
    (void)state;
    for (unsigned nth = 1;; nth++) {
        first_try try = { .nth = nth };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, make_first, &try), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_false(try.next_failed);
        if (try.calls < nth) {
            assert_false(try.failed);
            assert_int_equal(nth, 4); /* the pool, its memory, the block's */
            break;
        }
        assert_true(try.failed);
    }
}

/* Composites -------------------------------------------------------------------------------- */

static weir_buf *composite_with(unsigned pieces)
{
    weir_buf *composite = weir_buf_new_composite();
    for (unsigned i = 0; i < pieces; i++)
        assert_int_equal(weir_buf_composite_add(composite, weir_buf_from("abc", 3)), 0);
    return composite;
}

/* Whatever the table's room is, one of these adds finds it full. */
static void adding_one_piece_fails_cleanly(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (unsigned pieces = 0; pieces < 70; pieces++) {
        for (int way = 0; way < 3; way++) {
            weir_buf *composite = composite_with(pieces), *part = weir_buf_from("xyz", 3);
            assert_non_null(weir_buf_retain(part));
            empty_the_cache();
            snapshot before;
            snapshot_take(&before, composite);
            harness_fail_nth(NULL, 1, -ENOMEM);
            int code = way == 0   ? weir_buf_composite_add(composite, part)
                       : way == 1 ? weir_buf_composite_insert(composite, pieces / 2, part)
                                  : weir_buf_composite_insert(composite, pieces, part);
            unsigned calls = harness_fail_end();
            assert_int_equal(code, calls > 0 ? -ENOMEM : 0);
            if (calls > 0) {
                failures++;
                snapshot_compare(&before, composite, __FILE__, __LINE__);
                assert_int_equal(weir_msg_refs(weir_buf_msg(part)), 1);
                assert_non_null(weir_buf_retain(part));
                assert_int_equal(weir_buf_composite_add(composite, part), 0);
            }
            assert_int_equal(weir_buf_composite_count(composite), pieces + 1);
            assert_int_equal(weir_buf_writer(composite), 3 * pieces + 3);
            assert_int_equal(weir_buf_release(part), 1);
            weir_buf_release(composite);
        }
    }
    /* And the table grew by more than one entry at a time. */
    assert_in_range(failures, 3, 30);
}

/* A full table has to grow before the room can be added to it: two ways to fail. */
static void writing_to_a_full_composite_fails_cleanly(void **state)
{
    (void)state;
    unsigned most = 0;
    for (unsigned pieces = 1; pieces < 20; pieces++) {
        unsigned nth = 1;
        for (;; nth++) {
            weir_buf *composite = composite_with(pieces);
            empty_the_cache();
            snapshot before;
            snapshot_take(&before, composite);
            harness_fail_nth(NULL, nth, -ENOMEM);
            int code = nth % 2 ? weir_buf_write_u64(composite, 1)
                               : weir_buf_write_fill(composite, 0, 8);
            unsigned calls = harness_fail_end();
            if (calls >= nth) {
                assert_int_equal(code, -ENOMEM);
                snapshot_compare(&before, composite, __FILE__, __LINE__);
                assert_int_equal(weir_buf_write_u64(composite, 1), 0);
            }
            assert_int_equal(weir_buf_writer(composite), 3 * pieces + 8);
            weir_buf_release(composite);
            if (calls < nth)
                break;
        }
        most = nth > most ? nth : most;
    }
    assert_int_equal(most, 5);
}

static void consolidating_fails_cleanly(void **state)
{
    (void)state;
    unsigned nth = 1;
    for (;; nth++) {
        weir_buf *composite = composite_with(5);
        empty_the_cache();
        snapshot before;
        snapshot_take(&before, composite);
        harness_fail_nth(NULL, nth, -ENOMEM);
        int code = weir_buf_composite_consolidate(composite);
        unsigned calls = harness_fail_end();
        if (calls >= nth) {
            assert_int_equal(code, -ENOMEM);
            snapshot_compare(&before, composite, __FILE__, __LINE__);
            assert_int_equal(weir_buf_composite_consolidate(composite), 0);
        }
        assert_int_equal(weir_buf_composite_count(composite), 1);
        assert_content(composite, before.content, before.writer);
        weir_buf_release(composite);
        if (calls < nth)
            break;
    }
    assert_int_equal(nth, 3);
}

/* Numbers ----------------------------------------------------------------------------------- */

static void number_that_needs_growth_fails_cleanly(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 2; nth++) {
        uint8_t content[64];
        pattern(content, sizeof content, 1);
        weir_buf *buf = weir_buf_from(content, sizeof content);
        empty_the_cache();
        harness_fail_nth(NULL, nth, -ENOMEM);
        assert_refused(buf, -ENOMEM, weir_buf_write_u24_le(buf, 1));
        assert_int_equal(harness_fail_end(), nth);
        assert_int_equal(weir_buf_write_u24_le(buf, 0x030201), 0);
        assert_int_equal(weir_buf_writer(buf), 67);
        weir_buf_release(buf);
    }
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        weir_case(making_fails_cleanly),
        weir_case(first_buffer_of_a_thread_fails_cleanly),
        weir_case(adding_one_piece_fails_cleanly),
        weir_case(writing_to_a_full_composite_fails_cleanly),
        weir_case(consolidating_fails_cleanly),
        weir_case(number_that_needs_growth_fails_cleanly),
    };
    static kind_case cases[OPERATION_COUNT];
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        cases[i] = (kind_case){ operations[i].name, survives, operations[i].needs,
                                operations[i].excludes, &operations[i] };
    return kinds_run("faults", cases, OPERATION_COUNT, plain, sizeof plain / sizeof *plain);
}
