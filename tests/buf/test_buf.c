/* SPDX-License-Identifier: MIT */
/* Buffers: making them, their indices, their room, and long random lives. */
#include "kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 24
#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)

/* Opens a subject with a pattern of LENGTH bytes. */
static void open_pattern(subject *s, const kind *of, uint8_t content[LENGTH], size_t room)
{
    pattern(content, LENGTH, 1);
    subject_open(s, of, content, LENGTH, room);
}

/* Indices ----------------------------------------------------------------------------------- */

static void begins_with_its_content_readable(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_content(s.buf, content, LENGTH);
    assert_int_equal(weir_buf_reader(s.buf), 0);
    assert_int_equal(weir_buf_readable(s.buf), LENGTH);
    assert_int_equal(weir_buf_capacity(s.buf), LENGTH + 8);
    assert_int_equal(weir_buf_writable(s.buf), 8);
    assert_int_equal(weir_buf_is_read_only(s.buf), (of->traits & IS_READ_ONLY) != 0);
    assert_int_equal(weir_buf_is_composite(s.buf), (of->traits & IS_COMPOSITE) != 0);
    size_t limit = of->traits & CAN_GROW ? WEIR_BUF_MAX : weir_buf_limit(s.buf);
    assert_int_equal(weir_buf_limit(s.buf), limit);
    assert_int_equal(weir_buf_max_writable(s.buf), of->traits & IS_READ_ONLY ? 0 : limit - LENGTH);
    subject_close(&s);
}

static void is_a_message(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    weir_msg *msg = weir_buf_msg(s.buf);
    assert_ptr_equal(msg->type, &weir_buf_type);
    assert_ptr_equal(weir_buf_from_msg(msg), s.buf);
    assert_int_equal(weir_msg_refs(msg), 1);
    assert_int_equal(weir_msg_size(msg), LENGTH);
    assert_int_equal(weir_buf_skip(s.buf, 5), 0);
    assert_int_equal(weir_msg_size(msg), LENGTH - 5);
    assert_ptr_equal(weir_buf_retain(s.buf), s.buf);
    assert_int_equal(weir_msg_refs(msg), 2);
    assert_int_equal(weir_buf_release(s.buf), 0);
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

static void reader_stays_in_the_content(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    for (size_t i = 0; i <= LENGTH; i++) {
        assert_int_equal(weir_buf_set_reader(s.buf, i), 0);
        assert_int_equal(weir_buf_reader(s.buf), i);
        assert_int_equal(weir_buf_readable(s.buf), LENGTH - i);
    }
    assert_int_equal(weir_buf_set_reader(s.buf, 3), 0);
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_set_reader(s.buf, LENGTH + 1));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_set_reader(s.buf, (size_t)1 << 32));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_set_reader(s.buf, SIZE_MAX));
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

static void writer_stays_between_reader_and_capacity(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_reader(s.buf, 5), 0);
    for (size_t i = 5; i <= LENGTH + 8; i++) {
        assert_int_equal(weir_buf_set_writer(s.buf, i), 0);
        assert_int_equal(weir_buf_writer(s.buf), i);
        assert_int_equal(weir_buf_readable(s.buf), i - 5);
        assert_int_equal(weir_buf_writable(s.buf), LENGTH + 8 - i);
    }
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_set_writer(s.buf, 4));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_set_writer(s.buf, LENGTH + 9));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_set_writer(s.buf, (size_t)1 << 32 | 6));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_set_writer(s.buf, SIZE_MAX));
    assert_int_equal(weir_buf_set_writer(s.buf, LENGTH), 0);
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

static void skips_what_is_readable(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH], byte;
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_skip(s.buf, 0), 0);
    assert_int_equal(weir_buf_skip(s.buf, 7), 0);
    assert_int_equal(weir_buf_read_u8(s.buf, &byte), 0);
    assert_int_equal(byte, content[7]);
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_skip(s.buf, LENGTH - 8 + 1));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_skip(s.buf, SIZE_MAX));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_skip(s.buf, SIZE_MAX - 7));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_skip(s.buf, (size_t)1 << 32));
    assert_int_equal(weir_buf_skip(s.buf, LENGTH - 8), 0);
    assert_int_equal(weir_buf_readable(s.buf), 0);
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_skip(s.buf, 1));
    subject_close(&s);
}

static void clear_forgets_indices_and_marks(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_reader(s.buf, 9), 0);
    assert_int_equal(weir_buf_mark_reader(s.buf), 0);
    assert_int_equal(weir_buf_mark_writer(s.buf), 0);
    assert_int_equal(weir_buf_clear(s.buf), 0);
    assert_int_equal(weir_buf_reader(s.buf), 0);
    assert_int_equal(weir_buf_writer(s.buf), 0);
    assert_int_equal(weir_buf_capacity(s.buf), LENGTH + 8);
    /* The marks are at 0 again: a writer's reset would otherwise go to 24, a reader's fail. */
    assert_int_equal(weir_buf_reset_writer(s.buf), 0);
    assert_int_equal(weir_buf_writer(s.buf), 0);
    assert_int_equal(weir_buf_reset_reader(s.buf), 0);
    assert_int_equal(weir_buf_reader(s.buf), 0);
    subject_close(&s);
}

static void goes_back_to_its_marks(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    /* 0 until marked. */
    assert_int_equal(weir_buf_set_reader(s.buf, 4), 0);
    assert_int_equal(weir_buf_reset_reader(s.buf), 0);
    assert_int_equal(weir_buf_reader(s.buf), 0);

    assert_int_equal(weir_buf_set_reader(s.buf, 6), 0);
    assert_int_equal(weir_buf_mark_reader(s.buf), 0);
    assert_int_equal(weir_buf_mark_writer(s.buf), 0);
    assert_int_equal(weir_buf_set_reader(s.buf, 20), 0);
    assert_int_equal(weir_buf_set_writer(s.buf, LENGTH + 3), 0);
    assert_int_equal(weir_buf_reset_reader(s.buf), 0);
    assert_int_equal(weir_buf_reader(s.buf), 6);
    assert_int_equal(weir_buf_reset_writer(s.buf), 0);
    assert_int_equal(weir_buf_writer(s.buf), LENGTH);
    /* A mark serves again and again. */
    assert_int_equal(weir_buf_set_reader(s.buf, 7), 0);
    assert_int_equal(weir_buf_reset_reader(s.buf), 0);
    assert_int_equal(weir_buf_reader(s.buf), 6);
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

static void reset_fails_when_the_other_index_passed(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_reader(s.buf, 10), 0);
    assert_int_equal(weir_buf_mark_reader(s.buf), 0);
    assert_int_equal(weir_buf_set_reader(s.buf, 2), 0);
    assert_int_equal(weir_buf_set_writer(s.buf, 9), 0);
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_reset_reader(s.buf));

    assert_int_equal(weir_buf_mark_writer(s.buf), 0);
    assert_int_equal(weir_buf_set_writer(s.buf, 20), 0);
    assert_int_equal(weir_buf_set_reader(s.buf, 12), 0);
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_reset_writer(s.buf));
    assert_int_equal(weir_buf_set_reader(s.buf, 9), 0);
    assert_int_equal(weir_buf_reset_writer(s.buf), 0);
    assert_int_equal(weir_buf_writer(s.buf), 9);
    subject_close(&s);
}

/* Room -------------------------------------------------------------------------------------- */

static void room_that_is_there_is_enough(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    for (size_t length = 0; length <= 8; length++) {
        assert_int_equal(weir_buf_ensure_writable(s.buf, length), 0);
        assert_int_equal(weir_buf_capacity(s.buf), LENGTH + 8);
    }
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

static void grows_to_powers_of_two(const kind *of, const void *arg)
{
    (void)arg;
    static const struct {
        size_t needed, capacity;
    } steps[] = {
        { 64, 64 },
        { 65, 128 },
        { 128, 128 },
        { 129, 256 },
        { 5000, 8192 },
        { 64 * KIB, 64 * KIB },
        { 64 * KIB + 1, 128 * KIB },
        { 4 * MIB - 1, 4 * MIB },
        { 4 * MIB, 4 * MIB },
        { 4 * MIB + 1, 8 * MIB },
        { 6 * MIB, 8 * MIB },
        { 8 * MIB, 12 * MIB },
        { 16 * MIB, 20 * MIB },
        { 16 * MIB + 1, 24 * MIB },
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        subject s;
        uint8_t content[LENGTH];
        open_pattern(&s, of, content, 8);
        assert_int_equal(weir_buf_set_reader(s.buf, 3), 0);
        assert_int_equal(weir_buf_ensure_writable(s.buf, steps[i].needed - LENGTH), 0);
        assert_int_equal(weir_buf_capacity(s.buf), steps[i].capacity);
        assert_content(s.buf, content, LENGTH);
        assert_int_equal(weir_buf_reader(s.buf), 3);
        subject_close(&s);
    }
}

static void grows_up_to_its_limit(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_limit(s.buf, 200), 0);
    assert_int_equal(weir_buf_max_writable(s.buf), 200 - LENGTH);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_ensure_writable(s.buf, 200 - LENGTH + 1));
    assert_int_equal(weir_buf_ensure_writable(s.buf, 129 - LENGTH), 0);
    assert_int_equal(weir_buf_capacity(s.buf), 200);
    assert_int_equal(weir_buf_write_fill(s.buf, 7, 200 - LENGTH), 0);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_ensure_writable(s.buf, 1));
    assert_int_equal(weir_buf_ensure_writable(s.buf, 0), 0);
    assert_int_equal(weir_buf_max_writable(s.buf), 0);
    subject_close(&s);
}

static void refuses_room_above_its_limit(const kind *of, const void *arg)
{
    (void)arg;
    static const size_t lengths[] = { WEIR_BUF_MAX, WEIR_BUF_MAX + 1, (size_t)1 << 32,
                                      SIZE_MAX - LENGTH, SIZE_MAX };
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_refused(s.buf, WEIR_ELIMIT,
                   weir_buf_ensure_writable(s.buf, weir_buf_max_writable(s.buf) + 1));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_refused(s.buf, WEIR_ELIMIT, weir_buf_ensure_writable(s.buf, lengths[i]));
        snapshot before;
        snapshot_take(&before, s.buf);
        assert_null(weir_buf_write_ptr(s.buf, lengths[i]));
        snapshot_compare(&before, s.buf, __FILE__, __LINE__);
    }
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_set_capacity(s.buf, WEIR_BUF_MAX + 1));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_set_capacity(s.buf, (size_t)1 << 32));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_set_capacity(s.buf, SIZE_MAX));
    subject_close(&s);
}

static void cannot_grow_without_a_limit_to_grow_to(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_max_writable(s.buf), 8);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_ensure_writable(s.buf, 9));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_set_capacity(s.buf, LENGTH + 9));
    assert_null(weir_buf_write_ptr(s.buf, 9));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_fill(s.buf, 1, 9));
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

/* Nothing gives a borrowed slice room that its parent did not: not even what it had itself. */
static void borrowed_never_gets_larger(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_refused(s.buf, -EINVAL, weir_buf_set_limit(s.buf, WEIR_BUF_MAX));
    assert_int_equal(weir_buf_set_capacity(s.buf, LENGTH + 2), 0);
    assert_int_equal(weir_buf_max_writable(s.buf), 2);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_ensure_writable(s.buf, 3));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_set_capacity(s.buf, LENGTH + 3));
    assert_int_equal(weir_buf_skip(s.buf, 10), 0);
    assert_int_equal(weir_buf_discard_read(s.buf), 0);
    assert_content(s.buf, content + 10, LENGTH - 10);
    assert_int_equal(weir_buf_max_writable(s.buf), weir_buf_writable(s.buf));
    assert_refused(s.buf, WEIR_ELIMIT,
                   weir_buf_ensure_writable(s.buf, weir_buf_writable(s.buf) + 1));
    assert_null(weir_buf_write_ptr(s.buf, weir_buf_writable(s.buf) + 1));
    subject_close(&s);
}

static void limit_lies_between_capacity_and_the_largest(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_refused(s.buf, -EINVAL, weir_buf_set_limit(s.buf, LENGTH + 7));
    assert_refused(s.buf, -EINVAL, weir_buf_set_limit(s.buf, 0));
    assert_refused(s.buf, -EINVAL, weir_buf_set_limit(s.buf, WEIR_BUF_MAX + 1));
    assert_refused(s.buf, -EINVAL, weir_buf_set_limit(s.buf, (size_t)1 << 32 | 100));
    assert_refused(s.buf, -EINVAL, weir_buf_set_limit(s.buf, SIZE_MAX));
    static const size_t limits[] = { LENGTH + 8, 100, WEIR_BUF_MAX };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(weir_buf_set_limit(s.buf, limits[i]), 0);
        assert_int_equal(weir_buf_limit(s.buf), limits[i]);
    }
    subject_close(&s);
}

static void capacity_goes_up_exactly(const kind *of, const void *arg)
{
    (void)arg;
    static const size_t capacities[] = { LENGTH + 9, 64, 65, 1000, 1001, 70000, 70001 };
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_reader(s.buf, 3), 0);
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        assert_int_equal(weir_buf_set_capacity(s.buf, capacities[i]), 0);
        assert_int_equal(weir_buf_capacity(s.buf), capacities[i]);
        assert_content(s.buf, content, LENGTH);
        assert_int_equal(weir_buf_reader(s.buf), 3);
    }
    assert_int_equal(weir_buf_set_limit(s.buf, 80000), 0);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_set_capacity(s.buf, 80001));
    /* All of it can be used. */
    uint8_t *all = malloc(70001);
    assert_non_null(all);
    pattern(all, 70001, 1);
    assert_int_equal(weir_buf_write_bytes(s.buf, all + LENGTH, 70001 - LENGTH), 0);
    assert_int_equal(weir_buf_capacity(s.buf), 70001);
    assert_content(s.buf, all, 70001);
    free(all);
    subject_close(&s);
}

static void capacity_goes_down_and_cuts(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_reader(s.buf, 10), 0);
    /* Room only. */
    assert_int_equal(weir_buf_set_capacity(s.buf, LENGTH + 1), 0);
    assert_content(s.buf, content, LENGTH);
    assert_int_equal(weir_buf_capacity(s.buf), LENGTH + 1);
    /* Content, one byte after the other. */
    for (size_t capacity = LENGTH; capacity > 0; capacity--) {
        assert_int_equal(weir_buf_set_capacity(s.buf, capacity - 1), 0);
        assert_int_equal(weir_buf_capacity(s.buf), capacity - 1);
        assert_content(s.buf, content, capacity - 1);
        assert_int_equal(weir_buf_reader(s.buf), capacity - 1 < 10 ? capacity - 1 : 10);
    }
    subject_close(&s);
}

static void capacity_comes_back_as_room(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_capacity(s.buf, 10), 0);
    assert_int_equal(weir_buf_set_capacity(s.buf, LENGTH), 0);
    assert_content(s.buf, content, 10);
    assert_int_equal(weir_buf_write_bytes(s.buf, "0123456789abcd", 14), 0);
    memcpy(content + 10, "0123456789abcd", 14);
    assert_content(s.buf, content, LENGTH);
    assert_int_equal(weir_buf_capacity(s.buf), LENGTH);
    subject_close(&s);
}

static void discards_what_was_read(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t read = 0; read <= LENGTH; read++) {
        subject s;
        uint8_t content[LENGTH];
        open_pattern(&s, of, content, 8);
        assert_int_equal(weir_buf_set_reader(s.buf, 4), 0);
        assert_int_equal(weir_buf_mark_reader(s.buf), 0);
        assert_int_equal(weir_buf_mark_writer(s.buf), 0);
        assert_int_equal(weir_buf_set_reader(s.buf, read), 0);
        assert_int_equal(weir_buf_discard_read(s.buf), 0);
        assert_int_equal(weir_buf_reader(s.buf), 0);
        assert_content(s.buf, content + read, LENGTH - read);
        /* The marks moved along, the reader's no further than to 0. */
        size_t mark = read < 4 ? 4 - read : 0;
        assert_int_equal(weir_buf_reset_reader(s.buf), 0);
        assert_int_equal(weir_buf_reader(s.buf), mark);
        assert_int_equal(weir_buf_set_writer(s.buf, LENGTH - read + 1), 0);
        assert_int_equal(weir_buf_reset_writer(s.buf), 0);
        assert_int_equal(weir_buf_writer(s.buf), LENGTH - read);
        /* The room there was is there still. */
        assert_true(weir_buf_writable(s.buf) >= 8);
        assert_int_equal(weir_buf_write_bytes(s.buf, "12345678", 8), 0);
        uint8_t expected[LENGTH + 8];
        memcpy(expected, content + read, LENGTH - read);
        memcpy(expected + LENGTH - read, "12345678", 8);
        assert_content(s.buf, expected, LENGTH - read + 8);
        subject_close(&s);
    }
}

static void discarded_bytes_of_its_own_become_room(void **state)
{
    (void)state;
    uint8_t content[LENGTH];
    pattern(content, LENGTH, 1);
    weir_buf *buf = weir_buf_from(content, LENGTH);
    assert_int_equal(weir_buf_skip(buf, 10), 0);
    assert_int_equal(weir_buf_discard_read(buf), 0);
    assert_int_equal(weir_buf_capacity(buf), LENGTH);
    assert_int_equal(weir_buf_writable(buf), 10);
    weir_buf_release(buf);
}

/* The bytes that another view sees stay, while the buffer discards and writes on. */
static void discarding_leaves_other_views_alone(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t read = 0; read <= LENGTH; read += 3) {
        subject s;
        uint8_t content[LENGTH + 16];
        open_pattern(&s, of, content, 8);
        weir_buf *slice, *duplicate, *view;
        assert_int_equal(weir_buf_retained_slice(s.buf, 1, LENGTH - 1, &slice), 0);
        assert_int_equal(weir_buf_duplicate(s.buf, &duplicate), 0);
        assert_int_equal(weir_buf_read_only(s.buf, &view), 0);
        assert_int_equal(weir_buf_skip(s.buf, read), 0);
        assert_int_equal(weir_buf_discard_read(s.buf), 0);
        assert_content(slice, content + 1, LENGTH - 1);
        assert_content(duplicate, content, LENGTH);
        assert_content(view, content, LENGTH);
        assert_content(s.buf, content + read, LENGTH - read);
        memcpy(content + LENGTH, "0123456789abcdef", 16);
        size_t more = of->traits & CAN_GROW ? 16 : 8;
        assert_int_equal(weir_buf_write_bytes(s.buf, content + LENGTH, more), 0);
        assert_content(s.buf, content + read, LENGTH - read + more);
        assert_content(slice, content + 1, LENGTH - 1);
        assert_content(duplicate, content, LENGTH);
        assert_content(view, content, LENGTH);
        weir_buf_release(slice);
        weir_buf_release(duplicate);
        weir_buf_release(view);
        subject_close(&s);
    }
}

static void can_be_written_through_a_pointer(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t expected[LENGTH + 8];
    open_pattern(&s, of, expected, 8);
    /* One at a time: so much lies in one run even when each byte is a piece. */
    for (size_t i = 0; i < 8; i++) {
        uint8_t *room = weir_buf_write_ptr(s.buf, 1);
        assert_non_null(room);
        assert_content(s.buf, expected, LENGTH + i);
        *room = expected[LENGTH + i] = (uint8_t)(0xc0 + i);
        assert_int_equal(weir_buf_advance_writer(s.buf, 1), 0);
    }
    assert_content(s.buf, expected, LENGTH + 8);
    assert_non_null(weir_buf_write_ptr(s.buf, 0));
    subject_close(&s);
}

static void grows_for_a_pointer(const kind *of, const void *arg)
{
    (void)arg;
    static const size_t lengths[] = { 9, 100, 1, 500, 3000 };
    subject s;
    static uint8_t expected[8192];
    open_pattern(&s, of, expected, 8);
    size_t writer = LENGTH;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t *room = weir_buf_write_ptr(s.buf, lengths[i]);
        assert_non_null(room);
        assert_content(s.buf, expected, writer);
        assert_true(weir_buf_writable(s.buf) >= lengths[i]);
        pattern(room, lengths[i], (unsigned)i + 3);
        /* Less was filled than asked for. */
        pattern(expected + writer, lengths[i], (unsigned)i + 3);
        size_t filled = lengths[i] - lengths[i] / 5;
        assert_int_equal(weir_buf_advance_writer(s.buf, filled), 0);
        writer += filled;
        assert_content(s.buf, expected, writer);
    }
    subject_close(&s);
}

static void pointer_is_refused_above_the_limit(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 0);
    assert_int_equal(weir_buf_set_limit(s.buf, 100), 0);
    snapshot before;
    snapshot_take(&before, s.buf);
    assert_null(weir_buf_write_ptr(s.buf, 100 - LENGTH + 1));
    snapshot_compare(&before, s.buf, __FILE__, __LINE__);
    assert_non_null(weir_buf_write_ptr(s.buf, 100 - LENGTH));
    assert_int_equal(weir_buf_capacity(s.buf), 100);
    subject_close(&s);
}

static void writer_advances_within_the_capacity(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_advance_writer(s.buf, 9));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_advance_writer(s.buf, (size_t)1 << 32));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_advance_writer(s.buf, SIZE_MAX));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_advance_writer(s.buf, SIZE_MAX - LENGTH + 1));
    assert_int_equal(weir_buf_advance_writer(s.buf, 0), 0);
    assert_int_equal(weir_buf_advance_writer(s.buf, 8), 0);
    assert_int_equal(weir_buf_writer(s.buf), LENGTH + 8);
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_advance_writer(s.buf, 1));
    subject_close(&s);
}

/* Where the piece ends that holds `index`. */
static size_t piece_end(const weir_buf *buf, size_t index)
{
    if (!weir_buf_is_composite(buf))
        return weir_buf_writer(buf);
    size_t start = 0, length = 0;
    for (size_t i = 0; i < weir_buf_composite_count(buf) && start + length <= index; i++)
        assert_int_equal(weir_buf_composite_piece(buf, i, &start, &length), 0);
    return start + length;
}

static void peeks_at_what_lies_in_one_piece(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    weir_buf *retained = NULL;
    const weir_buf *buf = s.buf;
    /* The pieces of a borrowed slice are not told; those of a retained one are the same. */
    if (of->traits & IS_BORROWED) {
        assert_int_equal(weir_buf_retained_slice(s.buf, 0, LENGTH, &retained), 0);
        buf = retained;
    }
    for (size_t index = 0; index < LENGTH; index++) {
        size_t end = piece_end(buf, index);
        for (size_t length = 1; index + length <= LENGTH; length++) {
            const uint8_t *bytes = weir_buf_peek(s.buf, index, length);
            if (index + length > end) {
                assert_null(bytes);
            } else {
                assert_non_null(bytes);
                assert_memory_equal(bytes, content + index, length);
            }
        }
    }
    for (size_t index = 0; index <= LENGTH; index++)
        assert_non_null(weir_buf_peek(s.buf, index, 0));
    range outside[OUTSIDE_COUNT];
    ranges_outside(LENGTH, outside);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        assert_null(weir_buf_peek(s.buf, outside[i].index, outside[i].length));
    if (retained != NULL)
        weir_buf_release(retained);
    subject_close(&s);
}

static void read_only_has_no_room(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_skip(s.buf, 5), 0);
    assert_int_equal(weir_buf_max_writable(s.buf), 0);
    static const size_t lengths[] = { 0, 1, 8, 9, SIZE_MAX };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_ensure_writable(s.buf, lengths[i]));
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_set_capacity(s.buf, lengths[i]));
        snapshot before;
        snapshot_take(&before, s.buf);
        assert_null(weir_buf_write_ptr(s.buf, lengths[i]));
        snapshot_compare(&before, s.buf, __FILE__, __LINE__);
    }
    assert_refused(s.buf, WEIR_EREADONLY, weir_buf_discard_read(s.buf));
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

/* A long life ------------------------------------------------------------------------------- */

typedef struct model {
    uint8_t bytes[8192];
    size_t reader, writer;
    uint32_t random;
    unsigned traits;
    weir_buf *views[4]; /* somebody else looks at the storage now and then */
} model;

/* Below `bound`: a generator of our own, so that every run is the same. */
static size_t random_below(model *m, size_t bound)
{
    m->random = m->random * 1664525 + 1013904223;
    return (m->random >> 8) % bound;
}

static int expected_of_write(const weir_buf *buf, size_t length)
{
    if (weir_buf_is_read_only(buf))
        return WEIR_EREADONLY;
    return length <= weir_buf_max_writable(buf) ? 0 : WEIR_ELIMIT;
}

static void random_write(model *m, weir_buf *buf)
{
    uint8_t bytes[200];
    size_t length = random_below(m, sizeof bytes);
    pattern(bytes, sizeof bytes, m->random);
    int code = expected_of_write(buf, length);
    uint8_t *room;
    switch (random_below(m, 5)) {
    case 0:
        assert_int_equal(weir_buf_write_bytes(buf, bytes, length), code);
        break;
    case 1:
        memset(bytes, (int)length, length);
        assert_int_equal(weir_buf_write_fill(buf, (uint8_t)length, length), code);
        break;
    case 2:
        length = 4;
        code = expected_of_write(buf, length);
        assert_int_equal(weir_buf_write_u32_le(buf, (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                                                        (uint32_t)bytes[2] << 16 |
                                                        (uint32_t)bytes[3] << 24),
                         code);
        break;
    case 3:
        room = weir_buf_write_ptr(buf, length);
        if (room == NULL) {
            /* A borrowed slice may have the room, but not in one run. */
            if (code == 0)
                assert_int_equal(m->traits & (IS_BORROWED | IS_COMPOSITE),
                                 IS_BORROWED | IS_COMPOSITE);
            return;
        }
        assert_int_equal(code, 0);
        memcpy(room, bytes, length);
        assert_int_equal(weir_buf_advance_writer(buf, length), 0);
        break;
    default:
        length = random_below(m, m->writer - m->reader + 1);
        length = length < sizeof bytes ? length : sizeof bytes;
        memcpy(bytes, m->bytes + m->reader, length);
        code = expected_of_write(buf, length);
        assert_int_equal(weir_buf_write_buf(buf, buf, length), code);
        if (code == 0)
            m->reader += length;
        break;
    }
    if (code == 0) {
        memcpy(m->bytes + m->writer, bytes, length);
        m->writer += length;
    }
}

static void random_set(model *m, weir_buf *buf)
{
    uint8_t bytes[100];
    size_t index = random_below(m, m->writer + 1);
    size_t length = random_below(m, m->writer - index + 1) % sizeof bytes;
    int code = weir_buf_is_read_only(buf) ? WEIR_EREADONLY : 0;
    pattern(bytes, sizeof bytes, m->random);
    if (random_below(m, 2) == 0) {
        assert_int_equal(weir_buf_set_bytes(buf, index, bytes, length), code);
    } else {
        memset(bytes, bytes[0], sizeof bytes);
        assert_int_equal(weir_buf_fill(buf, index, bytes[0], length), code);
    }
    if (code == 0)
        memcpy(m->bytes + index, bytes, length);
}

static void random_read(model *m, weir_buf *buf)
{
    uint8_t bytes[8192];
    size_t length = random_below(m, m->writer - m->reader + 1);
    if (random_below(m, 2) == 0) {
        assert_int_equal(weir_buf_read_bytes(buf, bytes, length), 0);
        assert_memory_equal(bytes, m->bytes + m->reader, length);
    } else {
        assert_int_equal(weir_buf_skip(buf, length), 0);
    }
    m->reader += length;
}

static void random_room(model *m, weir_buf *buf)
{
    size_t length;
    bool is_read_only = weir_buf_is_read_only(buf);
    switch (random_below(m, 6)) {
    case 0:
    case 1:
        assert_int_equal(weir_buf_discard_read(buf), is_read_only ? WEIR_EREADONLY : 0);
        if (!is_read_only) {
            memmove(m->bytes, m->bytes + m->reader, m->writer - m->reader);
            m->writer -= m->reader;
            m->reader = 0;
        }
        break;
    case 2:
        length = random_below(m, 1000);
        assert_int_equal(weir_buf_ensure_writable(buf, length), expected_of_write(buf, length));
        break;
    case 3:
        /* Shorter by a few bytes, of room or of content. */
        length = random_below(m, 40);
        length = length < weir_buf_capacity(buf) ? weir_buf_capacity(buf) - length : 0;
        assert_int_equal(weir_buf_set_capacity(buf, length), is_read_only ? WEIR_EREADONLY : 0);
        if (!is_read_only && m->writer > length)
            m->writer = length;
        if (m->reader > m->writer)
            m->reader = m->writer;
        break;
    case 4:
        m->writer = m->reader + random_below(m, m->writer - m->reader + 1);
        assert_int_equal(weir_buf_set_writer(buf, m->writer), 0);
        break;
    default:
        m->reader = random_below(m, m->writer + 1);
        assert_int_equal(weir_buf_set_reader(buf, m->reader), 0);
        break;
    }
}

static void random_view(model *m, weir_buf *buf)
{
    weir_buf **view = &m->views[random_below(m, 4)];
    if (*view != NULL) {
        weir_buf_release(*view);
        *view = NULL;
        return;
    }
    size_t index = random_below(m, m->writer + 1);
    size_t length = random_below(m, m->writer - index + 1);
    switch (random_below(m, 3)) {
    case 0:
        assert_int_equal(weir_buf_duplicate(buf, view), 0);
        assert_content(*view, m->bytes, m->writer);
        break;
    case 1:
        assert_int_equal(weir_buf_retained_slice(buf, index, length, view), 0);
        assert_content(*view, m->bytes + index, length);
        break;
    default:
        assert_int_equal(weir_buf_copy(buf, index, length, view), 0);
        assert_content(*view, m->bytes + index, length);
        break;
    }
}

static void lives_long_and_at_random(const kind *of, const void *arg)
{
    (void)arg;
    static model m;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        m = (model){ .random = seed, .traits = of->traits };
        subject s;
        pattern(m.bytes, 100, 1);
        m.writer = 100;
        subject_open(&s, of, m.bytes, 100, 20);
        for (int step = 0; step < 1500; step++) {
            switch (random_below(&m, 8)) {
            case 0:
            case 1:
            case 2:
                if (m.writer > 6000) {
                    m.writer = m.reader = 0;
                    assert_int_equal(weir_buf_clear(s.buf), 0);
                }
                random_write(&m, s.buf);
                break;
            case 3:
                random_set(&m, s.buf);
                break;
            case 4:
                random_read(&m, s.buf);
                break;
            case 5:
            case 6:
                random_room(&m, s.buf);
                break;
            default:
                random_view(&m, s.buf);
                break;
            }
            assert_int_equal(weir_buf_reader(s.buf), m.reader);
            assert_content(s.buf, m.bytes, m.writer);
        }
        for (int i = 0; i < 4; i++) {
            if (m.views[i] != NULL)
                weir_buf_release(m.views[i]);
        }
        subject_close(&s);
    }
}

/* Making ------------------------------------------------------------------------------------ */

static void new_one_is_empty_with_room(void **state)
{
    (void)state;
    static const size_t capacities[] = { 0, 1, 63, 64, 65, 1000, 65536, 65537, 200000 };
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        weir_buf *buf = weir_buf_new(capacities[i]);
        assert_non_null(buf);
        assert_int_equal(weir_buf_capacity(buf), capacities[i]);
        assert_int_equal(weir_buf_writer(buf), 0);
        assert_int_equal(weir_buf_reader(buf), 0);
        assert_int_equal(weir_buf_limit(buf), WEIR_BUF_MAX);
        assert_int_equal(weir_buf_max_writable(buf), WEIR_BUF_MAX);
        assert_false(weir_buf_is_read_only(buf));
        assert_false(weir_buf_is_composite(buf));
        uint8_t *room = weir_buf_write_ptr(buf, capacities[i]);
        assert_non_null(room);
        memset(room, 0xff, capacities[i]);
        assert_int_equal(weir_buf_capacity(buf), capacities[i]);
        assert_int_equal(weir_buf_release(buf), 1);
    }
}

static void new_one_is_refused_above_the_largest(void **state)
{
    (void)state;
    assert_null(weir_buf_new(WEIR_BUF_MAX + 1));
    assert_null(weir_buf_new((size_t)1 << 32));
    assert_null(weir_buf_new(SIZE_MAX));
    assert_null(weir_buf_new(SIZE_MAX - 100));
    assert_null(weir_buf_from("abc", WEIR_BUF_MAX + 1));
    assert_null(weir_buf_from("abc", SIZE_MAX));
}

static void from_holds_a_copy(void **state)
{
    (void)state;
    char text[] = "abc";
    weir_buf *buf = weir_buf_from(text, 3);
    text[0] = 'x';
    assert_content(buf, "abc", 3);
    weir_buf_release(buf);
    buf = weir_buf_from(NULL, 0);
    assert_non_null(buf);
    assert_content(buf, "", 0);
    weir_buf_release(buf);
    assert_null(weir_buf_from(NULL, 1));
}

typedef struct wrapped_note {
    unsigned freed;
    void *memory;
} wrapped_note;

static void note_free(void *arg, void *memory)
{
    wrapped_note *note = arg;
    note->freed++;
    note->memory = memory;
}

static void wrap_is_full_and_copies_nothing(void **state)
{
    (void)state;
    uint8_t memory[] = "0123456789";
    wrapped_note note = { 0 };
    weir_buf *buf = weir_buf_wrap(memory, 10, note_free, &note);
    assert_content(buf, "0123456789", 10);
    assert_int_equal(weir_buf_capacity(buf), 10);
    assert_ptr_equal(weir_buf_peek(buf, 0, 10), memory);
    assert_int_equal(weir_buf_set_u8(buf, 3, 'x'), 0);
    assert_int_equal(memory[3], 'x');
    memory[4] = 'y';
    assert_content(buf, "012xy56789", 10);
    assert_int_equal(note.freed, 0);
    assert_int_equal(weir_buf_release(buf), 1);
    assert_int_equal(note.freed, 1);
    assert_ptr_equal(note.memory, memory);
}

static void wrapped_memory_goes_with_its_last_view(void **state)
{
    (void)state;
    uint8_t memory[] = "0123456789";
    wrapped_note note = { 0 };
    weir_buf *buf = weir_buf_wrap(memory, 10, note_free, &note);
    weir_buf *slice, *duplicate, *composite = weir_buf_new_composite(), *piece;
    assert_int_equal(weir_buf_retained_slice(buf, 2, 5, &slice), 0);
    assert_int_equal(weir_buf_duplicate(slice, &duplicate), 0);
    assert_int_equal(weir_buf_read_slice(buf, 4, &piece), 0);
    assert_int_equal(weir_buf_composite_add(composite, piece), 0);
    assert_int_equal(weir_buf_release(buf), 1);
    assert_int_equal(weir_buf_release(slice), 1);
    assert_content(duplicate, "23456", 5);
    assert_int_equal(weir_buf_release(duplicate), 1);
    assert_content(composite, "0123", 4);
    assert_int_equal(note.freed, 0);
    assert_int_equal(weir_buf_release(composite), 1);
    assert_int_equal(note.freed, 1);
}

static void growing_moves_out_of_wrapped_memory(void **state)
{
    (void)state;
    uint8_t memory[] = "0123456789";
    wrapped_note note = { 0 };
    weir_buf *buf = weir_buf_wrap(memory, 10, note_free, &note);
    assert_int_equal(weir_buf_write_bytes(buf, "ab", 2), 0);
    assert_int_equal(weir_buf_set_u8(buf, 0, 'x'), 0);
    assert_content(buf, "x123456789ab", 12);
    assert_memory_equal(memory, "0123456789", 11);
    assert_int_equal(weir_buf_release(buf), 1);
    assert_int_equal(note.freed, 1);
}

static void discarding_never_moves_wrapped_bytes(void **state)
{
    (void)state;
    uint8_t memory[] = "0123456789";
    weir_buf *buf = weir_buf_wrap(memory, 10, NULL, NULL);
    assert_int_equal(weir_buf_skip(buf, 4), 0);
    assert_int_equal(weir_buf_discard_read(buf), 0);
    assert_content(buf, "456789", 6);
    assert_memory_equal(memory, "0123456789", 11);
    assert_int_equal(weir_buf_release(buf), 1);
}

static void wrap_takes_nothing_over_when_it_fails(void **state)
{
    (void)state;
    uint8_t memory[1];
    wrapped_note note = { 0 };
    assert_null(weir_buf_wrap(memory, WEIR_BUF_MAX + 1, note_free, &note));
    assert_null(weir_buf_wrap(memory, SIZE_MAX, note_free, &note));
    assert_null(weir_buf_wrap(NULL, 1, note_free, &note));
    assert_int_equal(note.freed, 0);
}

/* As much as there can be: nobody looks at the bytes, so there need not be as many. */
static void wraps_the_largest(void **state)
{
    (void)state;
    uint8_t memory[1];
    weir_buf *buf = weir_buf_wrap(memory, WEIR_BUF_MAX, NULL, NULL);
    assert_non_null(buf);
    assert_int_equal(weir_buf_readable(buf), WEIR_BUF_MAX);
    assert_int_equal(weir_buf_max_writable(buf), 0);
    assert_int_equal(weir_buf_ensure_writable(buf, 1), WEIR_ELIMIT);
    assert_int_equal(weir_buf_write_u8(buf, 1), WEIR_ELIMIT);
    assert_int_equal(weir_buf_skip(buf, WEIR_BUF_MAX), 0);
    assert_int_equal(weir_buf_skip(buf, 1), WEIR_EBOUNDS);
    assert_int_equal(weir_buf_release(buf), 1);
}

static void wraps_nothing_as_well(void **state)
{
    (void)state;
    uint8_t memory[1] = { 'm' };
    wrapped_note note = { 0 };
    weir_buf *buf = weir_buf_wrap(memory, 0, note_free, &note);
    assert_non_null(buf);
    assert_content(buf, "", 0);
    assert_int_equal(weir_buf_capacity(buf), 0);
    assert_int_equal(weir_buf_write_str(buf, "abc"), 0);
    assert_content(buf, "abc", 3);
    assert_int_equal(memory[0], 'm');
    assert_int_equal(weir_buf_release(buf), 1);
    assert_int_equal(note.freed, 1);
}

static void message_of_another_type_is_no_buffer(void **state)
{
    (void)state;
    static const weir_msg_type other_type = { "other", NULL, NULL };
    weir_msg other = WEIR_MSG_CONSTANT(&other_type);
    assert_null(weir_buf_from_msg(&other));
    assert_null(weir_buf_from_msg(NULL));
    assert_null(weir_buf_msg(NULL));
}

static void null_is_refused(void **state)
{
    (void)state;
    assert_null(weir_buf_retain(NULL));
    assert_int_equal(weir_buf_release(NULL), -EINVAL);
    assert_int_equal(weir_buf_readable(NULL), 0);
    assert_int_equal(weir_buf_writable(NULL), 0);
    assert_int_equal(weir_buf_max_writable(NULL), 0);
    assert_int_equal(weir_buf_reader(NULL), 0);
    assert_int_equal(weir_buf_writer(NULL), 0);
    assert_int_equal(weir_buf_capacity(NULL), 0);
    assert_int_equal(weir_buf_limit(NULL), 0);
    assert_false(weir_buf_is_read_only(NULL));
    assert_false(weir_buf_is_composite(NULL));
    assert_int_equal(weir_buf_set_reader(NULL, 0), -EINVAL);
    assert_int_equal(weir_buf_set_writer(NULL, 0), -EINVAL);
    assert_int_equal(weir_buf_skip(NULL, 0), -EINVAL);
    assert_int_equal(weir_buf_clear(NULL), -EINVAL);
    assert_int_equal(weir_buf_mark_reader(NULL), -EINVAL);
    assert_int_equal(weir_buf_reset_reader(NULL), -EINVAL);
    assert_int_equal(weir_buf_mark_writer(NULL), -EINVAL);
    assert_int_equal(weir_buf_reset_writer(NULL), -EINVAL);
    assert_int_equal(weir_buf_ensure_writable(NULL, 0), -EINVAL);
    assert_int_equal(weir_buf_set_capacity(NULL, 0), -EINVAL);
    assert_int_equal(weir_buf_set_limit(NULL, 0), -EINVAL);
    assert_int_equal(weir_buf_discard_read(NULL), -EINVAL);
    assert_null(weir_buf_write_ptr(NULL, 0));
    assert_null(weir_buf_write_ptr(NULL, 1));
    assert_int_equal(weir_buf_advance_writer(NULL, 0), -EINVAL);
    assert_null(weir_buf_peek(NULL, 0, 0));
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        weir_case(new_one_is_empty_with_room),
        weir_case(new_one_is_refused_above_the_largest),
        weir_case(from_holds_a_copy),
        weir_case(wrap_is_full_and_copies_nothing),
        weir_case(wrapped_memory_goes_with_its_last_view),
        weir_case(growing_moves_out_of_wrapped_memory),
        weir_case(discarding_never_moves_wrapped_bytes),
        weir_case(wrap_takes_nothing_over_when_it_fails),
        weir_case(wraps_the_largest),
        weir_case(wraps_nothing_as_well),
        weir_case(message_of_another_type_is_no_buffer),
        weir_case(null_is_refused),
        weir_case(discarded_bytes_of_its_own_become_room),
    };
    static const kind_case cases[] = {
        for_all(begins_with_its_content_readable),
        for_those(is_a_message, 0, IS_BORROWED),
        for_all(reader_stays_in_the_content),
        for_all(writer_stays_between_reader_and_capacity),
        for_all(skips_what_is_readable),
        for_all(clear_forgets_indices_and_marks),
        for_all(goes_back_to_its_marks),
        for_all(reset_fails_when_the_other_index_passed),
        for_those(room_that_is_there_is_enough, 0, IS_READ_ONLY),
        for_those(grows_to_powers_of_two, CAN_GROW, 0),
        for_those(grows_up_to_its_limit, CAN_GROW, 0),
        for_those(refuses_room_above_its_limit, 0, IS_READ_ONLY),
        for_those(cannot_grow_without_a_limit_to_grow_to, 0, IS_READ_ONLY | CAN_GROW),
        for_those(borrowed_never_gets_larger, IS_BORROWED, 0),
        for_those(limit_lies_between_capacity_and_the_largest, 0, IS_BORROWED),
        for_those(capacity_goes_up_exactly, CAN_GROW, 0),
        for_those(capacity_goes_down_and_cuts, 0, IS_READ_ONLY),
        for_those(capacity_comes_back_as_room, 0, IS_READ_ONLY | IS_BORROWED),
        for_those(discards_what_was_read, 0, IS_READ_ONLY),
        for_those(discarding_leaves_other_views_alone, 0, IS_READ_ONLY),
        for_those(can_be_written_through_a_pointer, 0, IS_READ_ONLY),
        for_those(grows_for_a_pointer, CAN_GROW, 0),
        for_those(pointer_is_refused_above_the_limit, CAN_GROW, 0),
        for_all(writer_advances_within_the_capacity),
        for_all(peeks_at_what_lies_in_one_piece),
        for_those(read_only_has_no_room, IS_READ_ONLY, 0),
        for_all(lives_long_and_at_random),
    };
    return kinds_run("buf", cases, sizeof cases / sizeof *cases, plain,
                     sizeof plain / sizeof *plain);
}
