/* SPDX-License-Identifier: MIT */
/* Every kind of buffer there is, made to order. */
#include "kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Around the bytes of views, to see whether somebody writes beside them. */
#define FRONT_GUARD 5
#define BACK_GUARD 7
#define GUARD_BYTE 0xa5

void pattern(uint8_t *to, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        to[i] = (uint8_t)((i + seed) * 0x9d + (i >> 8) + 0x5b);
}

/* Making ------------------------------------------------------------------------------------ */

/* Plain storage with guards around the bytes. */
static weir_buf *guarded(const uint8_t *bytes, size_t length)
{
    weir_buf *buf = weir_buf_new(length + FRONT_GUARD + BACK_GUARD);
    assert_non_null(buf);
    assert_int_equal(weir_buf_write_fill(buf, GUARD_BYTE, FRONT_GUARD), 0);
    assert_int_equal(weir_buf_write_bytes(buf, bytes, length), 0);
    assert_int_equal(weir_buf_write_fill(buf, GUARD_BYTE, BACK_GUARD), 0);
    return buf;
}

static void assert_guards(const uint8_t *front, const uint8_t *back)
{
    for (int i = 0; i < FRONT_GUARD; i++)
        assert_int_equal(front[i], GUARD_BYTE);
    for (int i = 0; i < BACK_GUARD; i++)
        assert_int_equal(back[i], GUARD_BYTE);
}

typedef struct guarded_memory {
    size_t length;
    uint8_t bytes[];
} guarded_memory;

static void free_guarded(void *arg, void *memory)
{
    guarded_memory *wrapped = arg;
    assert_ptr_equal(memory, wrapped->bytes + FRONT_GUARD);
    assert_guards(wrapped->bytes, wrapped->bytes + FRONT_GUARD + wrapped->length);
    free(wrapped);
}

static weir_buf *wrap_copy(const uint8_t *bytes, size_t length)
{
    guarded_memory *wrapped = malloc(sizeof *wrapped + FRONT_GUARD + length + BACK_GUARD);
    assert_non_null(wrapped);
    wrapped->length = length;
    memset(wrapped->bytes, GUARD_BYTE, FRONT_GUARD + length + BACK_GUARD);
    memcpy(wrapped->bytes + FRONT_GUARD, bytes, length);
    weir_buf *buf = weir_buf_wrap(wrapped->bytes + FRONT_GUARD, length, free_guarded, wrapped);
    assert_non_null(buf);
    return buf;
}

static weir_buf *slice_of_guarded(const uint8_t *bytes, size_t length)
{
    weir_buf *slice;
    weir_buf *whole = guarded(bytes, length);
    assert_int_equal(weir_buf_retained_slice(whole, FRONT_GUARD, length, &slice), 0);
    weir_buf_release(whole);
    return slice;
}

static weir_buf *new_composite(void)
{
    weir_buf *composite = weir_buf_new_composite();
    assert_non_null(composite);
    return composite;
}

/* A composite whose pieces are `step` bytes long and lie side by side in one block. */
static weir_buf *in_steps(const uint8_t *bytes, size_t length, size_t step)
{
    weir_buf *composite = new_composite();
    weir_buf *whole = weir_buf_from(bytes, length);
    assert_non_null(whole);
    for (size_t at = 0; at < length; at += step) {
        weir_buf *piece;
        size_t left = length - at;
        assert_int_equal(weir_buf_read_slice(whole, left < step ? left : step, &piece), 0);
        assert_int_equal(weir_buf_composite_add(composite, piece), 0);
    }
    weir_buf_release(whole);
    return composite;
}

static void make_pooled(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = weir_buf_from(bytes, length);
}

/* Its storage is no longer the block it lives in. */
static void make_grown(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = weir_buf_new(0);
    assert_int_equal(weir_buf_set_capacity(s->buf, length + 1000), 0);
    assert_int_equal(weir_buf_write_bytes(s->buf, bytes, length), 0);
    assert_int_equal(weir_buf_set_capacity(s->buf, length), 0);
}

/* Its first byte is not the first of its storage, because it once had to leave bytes in place. */
static void make_shifted(subject *s, const uint8_t *bytes, size_t length)
{
    weir_buf *other;
    s->buf = weir_buf_new(length + 9);
    assert_int_equal(weir_buf_write_fill(s->buf, GUARD_BYTE, 9), 0);
    assert_int_equal(weir_buf_write_bytes(s->buf, bytes, length), 0);
    assert_int_equal(weir_buf_duplicate(s->buf, &other), 0);
    assert_int_equal(weir_buf_skip(s->buf, 9), 0);
    assert_int_equal(weir_buf_discard_read(s->buf), 0);
    weir_buf_release(other);
}

/* Its block is beyond the size classes of the pool. */
static void make_large(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = weir_buf_new(100000);
    assert_int_equal(weir_buf_write_bytes(s->buf, bytes, length), 0);
    assert_int_equal(weir_buf_set_capacity(s->buf, length), 0);
}

static void make_wrapped(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = wrap_copy(bytes, length);
}

static void make_slice(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = guarded(bytes, length);
    s->is_guarded = true;
    assert_int_equal(weir_buf_retained_slice(s->parent, FRONT_GUARD, length, &s->buf), 0);
}

static void make_growing_slice(subject *s, const uint8_t *bytes, size_t length)
{
    make_slice(s, bytes, length);
    assert_int_equal(weir_buf_set_limit(s->buf, WEIR_BUF_MAX), 0);
}

static void make_borrowed(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = guarded(bytes, length);
    s->is_guarded = true;
    assert_int_equal(weir_buf_slice(s->parent, FRONT_GUARD, length, &s->borrowed), 0);
    s->buf = &s->borrowed;
}

static void make_duplicate(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = weir_buf_from(bytes, length);
    assert_int_equal(weir_buf_duplicate(s->parent, &s->buf), 0);
}

static void make_read_only(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = weir_buf_from(bytes, length);
    assert_int_equal(weir_buf_read_only(s->parent, &s->buf), 0);
}

static void make_composite_one(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = new_composite();
    assert_int_equal(weir_buf_composite_add(s->buf, weir_buf_from(bytes, length)), 0);
}

static void make_composite_bytes(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = in_steps(bytes, length, 1);
}

static void make_composite_threes(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = in_steps(bytes, length, 3);
}

/* Pieces of odd lengths and of all kinds of storage. */
static void make_composite_mixed(subject *s, const uint8_t *bytes, size_t length)
{
    static const size_t lengths[] = { 1, 2, 5, 3, 7, 4, 11 };
    s->buf = new_composite();
    for (unsigned i = 0; length > 0; i++) {
        size_t step = lengths[i % 7] < length ? lengths[i % 7] : length;
        weir_buf *part = i % 4 == 0   ? weir_buf_from(bytes, step)
                         : i % 4 == 1 ? wrap_copy(bytes, step)
                         : i % 4 == 2 ? slice_of_guarded(bytes, step)
                                      : in_steps(bytes, step, 2);
        assert_int_equal(weir_buf_composite_add(s->buf, part), 0);
        bytes += step;
        length -= step;
    }
}

/* Its index 0 lies inside its first piece, and others were dropped before that. */
static void make_composite_discarded(subject *s, const uint8_t *bytes, size_t length)
{
    uint8_t junk[FRONT_GUARD];
    memset(junk, GUARD_BYTE, sizeof junk);
    s->buf = new_composite();
    assert_int_equal(weir_buf_composite_add(s->buf, weir_buf_from(junk, sizeof junk)), 0);
    weir_buf *rest = guarded(bytes, length);
    assert_int_equal(weir_buf_set_writer(rest, FRONT_GUARD + length), 0);
    while (weir_buf_readable(rest) > 0) {
        weir_buf *piece;
        size_t step = weir_buf_readable(rest) < 7 ? weir_buf_readable(rest) : 7;
        assert_int_equal(weir_buf_read_slice(rest, step, &piece), 0);
        assert_int_equal(weir_buf_composite_add(s->buf, piece), 0);
    }
    weir_buf_release(rest);
    assert_int_equal(weir_buf_skip(s->buf, sizeof junk + FRONT_GUARD), 0);
    assert_int_equal(weir_buf_discard_read(s->buf), 0);
}

/* Nobody added anything: the pieces are room that was written. */
static void make_composite_written(subject *s, const uint8_t *bytes, size_t length)
{
    s->buf = new_composite();
    for (size_t at = 0; at < length; at += 5) {
        size_t step = length - at < 5 ? length - at : 5;
        assert_int_equal(weir_buf_set_capacity(s->buf, at + step), 0);
        assert_int_equal(weir_buf_write_bytes(s->buf, bytes + at, step), 0);
    }
}

static weir_buf *composite_of_guarded(const uint8_t *bytes, size_t length)
{
    weir_buf *whole = guarded(bytes, length);
    weir_buf *composite = new_composite();
    while (weir_buf_readable(whole) > 0) {
        weir_buf *piece;
        size_t step = weir_buf_readable(whole) < 4 ? weir_buf_readable(whole) : 4;
        assert_int_equal(weir_buf_read_slice(whole, step, &piece), 0);
        assert_int_equal(weir_buf_composite_add(composite, piece), 0);
    }
    weir_buf_release(whole);
    return composite;
}

static void make_composite_slice(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = composite_of_guarded(bytes, length);
    s->is_guarded = true;
    assert_int_equal(weir_buf_retained_slice(s->parent, FRONT_GUARD, length, &s->buf), 0);
}

static void make_composite_borrowed(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = composite_of_guarded(bytes, length);
    s->is_guarded = true;
    assert_int_equal(weir_buf_slice(s->parent, FRONT_GUARD, length, &s->borrowed), 0);
    s->buf = &s->borrowed;
}

static void make_composite_duplicate(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = in_steps(bytes, length, 3);
    assert_int_equal(weir_buf_duplicate(s->parent, &s->buf), 0);
}

static void make_composite_read_only(subject *s, const uint8_t *bytes, size_t length)
{
    s->parent = in_steps(bytes, length, 3);
    assert_int_equal(weir_buf_read_only(s->parent, &s->buf), 0);
}

const kind kinds[] = {
    { "pooled", CAN_GROW, make_pooled },
    { "grown", CAN_GROW, make_grown },
    { "shifted", CAN_GROW, make_shifted },
    { "large", CAN_GROW, make_large },
    { "wrapped", CAN_GROW, make_wrapped },
    { "slice", 0, make_slice },
    { "growing_slice", CAN_GROW, make_growing_slice },
    { "borrowed", IS_BORROWED, make_borrowed },
    { "duplicate", CAN_GROW, make_duplicate },
    { "read_only", IS_READ_ONLY, make_read_only },
    { "composite_one", CAN_GROW | IS_COMPOSITE, make_composite_one },
    { "composite_bytes", CAN_GROW | IS_COMPOSITE, make_composite_bytes },
    { "composite_threes", CAN_GROW | IS_COMPOSITE, make_composite_threes },
    { "composite_mixed", CAN_GROW | IS_COMPOSITE, make_composite_mixed },
    { "composite_discarded", CAN_GROW | IS_COMPOSITE, make_composite_discarded },
    { "composite_written", CAN_GROW | IS_COMPOSITE, make_composite_written },
    { "composite_slice", IS_COMPOSITE, make_composite_slice },
    { "composite_borrowed", IS_COMPOSITE | IS_BORROWED, make_composite_borrowed },
    { "composite_duplicate", CAN_GROW | IS_COMPOSITE, make_composite_duplicate },
    { "composite_read_only", IS_COMPOSITE | IS_READ_ONLY, make_composite_read_only },
};

const size_t kinds_count = sizeof kinds / sizeof *kinds;

void subject_open(subject *s, const kind *of, const void *content, size_t length, size_t room)
{
    *s = (subject){ .of = of };
    uint8_t *bytes = malloc(length + room + 1);
    assert_non_null(bytes);
    memcpy(bytes, content, length);
    memset(bytes + length, 0xee, room);
    of->make(s, bytes, length + room);
    free(bytes);
    assert_non_null(s->buf);
    assert_int_equal(weir_buf_set_writer(s->buf, length), 0);
}

void subject_drop_parent(subject *s)
{
    if (s->parent != NULL)
        weir_buf_release(s->parent);
    s->parent = NULL;
}

void subject_close(subject *s)
{
    if (s->parent != NULL && s->is_guarded) {
        uint8_t front[FRONT_GUARD], back[BACK_GUARD];
        assert_int_equal(weir_buf_get_bytes(s->parent, 0, front, sizeof front), 0);
        assert_int_equal(weir_buf_get_bytes(s->parent, weir_buf_writer(s->parent) - sizeof back,
                                            back, sizeof back),
                         0);
        assert_guards(front, back);
    }
    if (!(s->of->traits & IS_BORROWED))
        assert_int_equal(weir_buf_release(s->buf), 1);
    subject_drop_parent(s);
}

/* Looking ----------------------------------------------------------------------------------- */

void kinds_assert_content(const weir_buf *buf, const void *bytes, size_t length, const char *file,
                          int line)
{
    const uint8_t *expected = bytes;
    if (weir_buf_writer(buf) != length) {
        print_error("%zu bytes of content instead of %zu\n", weir_buf_writer(buf), length);
        _fail(file, line);
    }
    uint8_t *content = malloc(length + 1);
    assert_non_null(content);
    int code = weir_buf_get_bytes(buf, 0, content, length);
    size_t at = 0;
    while (code == 0 && at < length && content[at] == expected[at])
        at++;
    if (code < 0)
        print_error("the content cannot be read: %s\n", weir_error_name(code));
    else if (at < length)
        print_error("byte %zu is 0x%02x instead of 0x%02x\n", at, content[at], expected[at]);
    free(content);
    if (code < 0 || at < length)
        _fail(file, line);
}

void snapshot_take(snapshot *shot, const weir_buf *buf)
{
    *shot = (snapshot){
        .reader = weir_buf_reader(buf),
        .writer = weir_buf_writer(buf),
        .capacity = weir_buf_capacity(buf),
        .limit = weir_buf_limit(buf),
        .reader_mark = buf->reader_mark,
        .writer_mark = buf->writer_mark,
        .pieces = weir_buf_composite_count(buf),
    };
    assert_true(shot->writer <= sizeof shot->content);
    assert_int_equal(weir_buf_get_bytes(buf, 0, shot->content, shot->writer), 0);
}

void snapshot_compare(const snapshot *shot, const weir_buf *buf, const char *file, int line)
{
    const struct {
        const char *name;
        size_t before, now;
    } fields[] = {
        { "reader", shot->reader, weir_buf_reader(buf) },
        { "writer", shot->writer, weir_buf_writer(buf) },
        { "capacity", shot->capacity, weir_buf_capacity(buf) },
        { "limit", shot->limit, weir_buf_limit(buf) },
        { "reader mark", shot->reader_mark, buf->reader_mark },
        { "writer mark", shot->writer_mark, buf->writer_mark },
        { "number of pieces", shot->pieces, weir_buf_composite_count(buf) },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].before == fields[i].now)
            continue;
        print_error("the %s went from %zu to %zu\n", fields[i].name, fields[i].before,
                    fields[i].now);
        _fail(file, line);
    }
    kinds_assert_content(buf, shot->content, shot->writer, file, line);
}

void ranges_outside(size_t length, range ranges[OUTSIDE_COUNT])
{
    const size_t wrap = (size_t)1 << 32;
    const range outside[OUTSIDE_COUNT] = {
        { length + 1, 0 },
        { length, 1 },
        { 0, length + 1 },
        { 1, length },
        { SIZE_MAX, 0 },
        { SIZE_MAX, 1 },
        { SIZE_MAX, SIZE_MAX },
        { 0, SIZE_MAX },
        { 1, SIZE_MAX },
        { length, SIZE_MAX - length + 1 },
        { wrap, 0 },
        { 0, wrap },
        { wrap, 1 },
        { 1, wrap + 1 },
    };
    memcpy(ranges, outside, sizeof outside);
}

/* Running ----------------------------------------------------------------------------------- */

typedef struct pairing {
    const kind_case *the_case;
    const kind *of;
    char name[96];
} pairing;

static void run_pairing(void **state)
{
    const pairing *pair = *state;
    pair->the_case->run(pair->of, pair->the_case->arg);
}

int kinds_run(const char *group, const kind_case *cases, size_t case_count,
              const struct CMUnitTest *plain, size_t plain_count)
{
    size_t count = plain_count, pair_count = 0;
    struct CMUnitTest *tests = calloc(plain_count + case_count * kinds_count, sizeof *tests);
    pairing *pairs = calloc(case_count * kinds_count, sizeof *pairs);
    if (tests == NULL || pairs == NULL)
        return 1;
    memcpy(tests, plain, plain_count * sizeof *tests);
    for (size_t i = 0; i < case_count * kinds_count; i++) {
        const kind_case *c = &cases[i / kinds_count];
        const kind *of = &kinds[i % kinds_count];
        if ((of->traits & c->needs) != c->needs || (of->traits & c->excludes) != 0)
            continue;
        pairing *pair = &pairs[pair_count++];
        *pair = (pairing){ .the_case = c, .of = of };
        snprintf(pair->name, sizeof pair->name, "%s__%s", c->name, of->name);
        tests[count++] = (struct CMUnitTest){ pair->name, run_pairing, harness_remember_what_lives,
                                              harness_assert_nothing_left, pair };
    }
    int failed = _cmocka_run_group_tests(group, tests, count, NULL, NULL);
    free(pairs);
    free(tests);
    return failed;
}
