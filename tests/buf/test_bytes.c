/* SPDX-License-Identifier: MIT */
/* Bytes and text: copied into buffers of every kind, out of them, and onto themselves. */
#include "kinds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define LENGTH 24

/* Opens a subject with a pattern of LENGTH bytes. */
static void open_pattern(subject *s, const kind *of, uint8_t *content, size_t room)
{
    pattern(content, LENGTH, 1);
    subject_open(s, of, content, LENGTH, room);
}

/* Leaves as much to write as there is room now. */
static void forbid_growth(subject *s)
{
    if (s->of->traits & CAN_GROW)
        assert_int_equal(weir_buf_set_limit(s->buf, weir_buf_capacity(s->buf)), 0);
}

/* Bytes out --------------------------------------------------------------------------------- */

static void gets_bytes_from_anywhere(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH], out[LENGTH + 1];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_reader(s.buf, 9), 0);
    for (size_t index = 0; index <= LENGTH; index++) {
        for (size_t length = 0; index + length <= LENGTH; length++) {
            memset(out, 0x11, sizeof out);
            assert_int_equal(weir_buf_get_bytes(s.buf, index, out, length), 0);
            assert_memory_equal(out, content + index, length);
            assert_int_equal(out[length], 0x11);
        }
    }
    assert_int_equal(weir_buf_reader(s.buf), 9);
    range outside[OUTSIDE_COUNT];
    ranges_outside(LENGTH, outside);
    memset(out, 0x11, sizeof out);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        assert_refused(s.buf, WEIR_EBOUNDS,
                       weir_buf_get_bytes(s.buf, outside[i].index, out, outside[i].length));
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], 0x11);
    subject_close(&s);
}

static void reads_bytes_in_turn(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t step = 1; step <= LENGTH; step++) {
        subject s;
        uint8_t content[LENGTH], out[LENGTH];
        open_pattern(&s, of, content, 8);
        size_t at = 0;
        for (; at + step <= LENGTH; at += step) {
            assert_int_equal(weir_buf_read_bytes(s.buf, out, step), 0);
            assert_memory_equal(out, content + at, step);
            assert_int_equal(weir_buf_reader(s.buf), at + step);
        }
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_bytes(s.buf, out, step));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_bytes(s.buf, out, SIZE_MAX));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_bytes(s.buf, out, (size_t)1 << 32));
        assert_int_equal(weir_buf_read_bytes(s.buf, out, 0), 0);
        subject_close(&s);
    }
}

/* Bytes in ---------------------------------------------------------------------------------- */

static void sets_bytes_anywhere(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH], in[LENGTH];
    open_pattern(&s, of, content, 8);
    assert_int_equal(weir_buf_set_reader(s.buf, 9), 0);
    for (size_t index = 0; index <= LENGTH; index++) {
        for (size_t length = 0; index + length <= LENGTH; length++) {
            pattern(in, sizeof in, (unsigned)(index * LENGTH + length));
            memcpy(content + index, in, length);
            assert_int_equal(weir_buf_set_bytes(s.buf, index, in, length), 0);
            assert_content(s.buf, content, LENGTH);
        }
    }
    assert_int_equal(weir_buf_reader(s.buf), 9);
    range outside[OUTSIDE_COUNT];
    ranges_outside(LENGTH, outside);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        assert_refused(s.buf, WEIR_EBOUNDS,
                       weir_buf_set_bytes(s.buf, outside[i].index, in, outside[i].length));
    subject_close(&s);
}

static void sets_bytes_from_itself(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t original[LENGTH], expected[LENGTH];
    open_pattern(&s, of, original, 0);
    for (size_t length = 1; length <= LENGTH; length++) {
        for (size_t from = 0; from + length <= LENGTH; from++) {
            if (weir_buf_peek(s.buf, from, length) == NULL)
                continue; /* in several pieces: no pointer could mean them */
            for (size_t to = 0; to + length <= LENGTH; to++) {
                bool overlaps = from < to + length && to < from + length;
                if (overlaps && of->traits & IS_COMPOSITE)
                    continue; /* that is not promised */
                memcpy(expected, original, LENGTH);
                memmove(expected + to, expected + from, length);
                assert_int_equal(
                    weir_buf_set_bytes(s.buf, to, weir_buf_peek(s.buf, from, length), length), 0);
                assert_content(s.buf, expected, LENGTH);
                assert_int_equal(weir_buf_set_bytes(s.buf, 0, original, LENGTH), 0);
            }
        }
    }
    subject_close(&s);
}

static void writes_bytes_into_its_room(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t step = 1; step <= 16; step++) {
        subject s;
        uint8_t expected[LENGTH + 16];
        open_pattern(&s, of, expected, 16);
        pattern(expected + LENGTH, 16, 77);
        forbid_growth(&s);
        size_t at = 0;
        for (; at + step <= 16; at += step) {
            assert_int_equal(weir_buf_write_bytes(s.buf, expected + LENGTH + at, step), 0);
            assert_content(s.buf, expected, LENGTH + at + step);
        }
        assert_int_equal(weir_buf_reader(s.buf), 0);
        assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_bytes(s.buf, expected, step));
        assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_bytes(s.buf, expected, SIZE_MAX));
        assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_bytes(s.buf, expected, (size_t)1 << 32));
        assert_int_equal(weir_buf_write_bytes(s.buf, expected, 0), 0);
        subject_close(&s);
    }
}

static void grows_as_bytes_are_written(const kind *of, const void *arg)
{
    (void)arg;
    enum { ALL = 200000 };
    uint8_t *all = malloc(ALL);
    assert_non_null(all);
    pattern(all, ALL, 1);
    subject s;
    subject_open(&s, of, all, LENGTH, 5);
    size_t at = LENGTH;
    for (size_t step = 1; at + step <= ALL; step = step * 3 + 1) {
        assert_int_equal(weir_buf_write_bytes(s.buf, all + at, step), 0);
        at += step;
        assert_content(s.buf, all, at);
        assert_true(weir_buf_capacity(s.buf) >= at);
    }
    assert_true(at > 65536);
    subject_close(&s);
    free(all);
}

static void appends_its_own_bytes(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t expected[LENGTH * 2];
    open_pattern(&s, of, expected, LENGTH);
    size_t writer = LENGTH;
    for (size_t from = 0; from < LENGTH; from++) {
        assert_int_equal(weir_buf_write_bytes(s.buf, weir_buf_peek(s.buf, from, 1), 1), 0);
        expected[writer] = expected[from];
        assert_content(s.buf, expected, ++writer);
    }
    subject_close(&s);
}

/* However often it has to move while it copies from itself. */
static void grows_while_it_appends_its_own_bytes(const kind *of, const void *arg)
{
    (void)arg;
    static uint8_t expected[4096];
    subject s;
    open_pattern(&s, of, expected, 0);
    size_t writer = LENGTH;
    for (int round = 0; round < 200; round++) {
        /* As much as lies in one piece, from here and there. */
        size_t from = (size_t)round * 7 % writer, length = 1;
        while (length < 40 && weir_buf_peek(s.buf, from, length + 1) != NULL)
            length++;
        if (writer + length > sizeof expected)
            break;
        const uint8_t *bytes = weir_buf_peek(s.buf, from, length);
        assert_int_equal(weir_buf_write_bytes(s.buf, bytes, length), 0);
        memcpy(expected + writer, expected + from, length);
        writer += length;
        assert_content(s.buf, expected, writer);
    }
    subject_close(&s);
}

/* The same when somebody else holds the storage it moves out of, or nobody does. */
static void grows_once_while_it_appends_all_of_itself(const kind *of, const void *arg)
{
    (void)arg;
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        subject s;
        uint8_t content[4 * LENGTH];
        weir_buf *other = NULL;
        open_pattern(&s, of, content, 0);
        if (is_shared)
            assert_int_equal(weir_buf_duplicate(s.buf, &other), 0);
        for (size_t writer = LENGTH; writer < sizeof content; writer *= 2) {
            memcpy(content + writer, content, writer);
            assert_int_equal(weir_buf_write_bytes(s.buf, weir_buf_peek(s.buf, 0, writer), writer),
                             0);
            assert_content(s.buf, content, writer * 2);
        }
        if (is_shared) {
            assert_content(other, content, LENGTH);
            weir_buf_release(other);
        }
        subject_close(&s);
    }
}

static void refuses_bytes_when_read_only(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    weir_buf *source = weir_buf_from("abcdef", 6);
    for (size_t length = 0; length <= 6; length++) {
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_set_bytes(s.buf, 3, "abcdef", length));
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_fill(s.buf, 3, 1, length));
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_write_bytes(s.buf, "abcdef", length));
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_write_fill(s.buf, 1, length));
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_write_buf(s.buf, source, length));
        assert_refused(s.buf, WEIR_EREADONLY, weir_buf_write_buf(s.buf, s.buf, length));
    }
    assert_content(source, "abcdef", 6);
    assert_int_equal(weir_buf_reader(source), 0);
    assert_refused(s.buf, WEIR_EREADONLY, weir_buf_write_str(s.buf, "abc"));
    assert_refused(s.buf, WEIR_EREADONLY, weir_buf_printf(s.buf, "%d", 1));
    assert_refused(s.buf, WEIR_EREADONLY, weir_buf_printf(s.buf, "%300d", 1));
    assert_refused(s.buf, WEIR_EREADONLY, weir_buf_hex_dump(source, 0, 6, s.buf));
    weir_buf_release(source);
    subject_close(&s);
}

/* From buffer to buffer --------------------------------------------------------------------- */

static void moves_bytes_to_another(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t step = 1; step <= LENGTH; step++) {
        subject s;
        uint8_t content[LENGTH];
        open_pattern(&s, of, content, 8);
        weir_buf *to = weir_buf_new(0);
        size_t at = 0;
        for (; at + step <= LENGTH; at += step) {
            assert_int_equal(weir_buf_write_buf(to, s.buf, step), 0);
            assert_content(to, content, at + step);
            assert_int_equal(weir_buf_reader(s.buf), at + step);
        }
        snapshot before;
        snapshot_take(&before, to);
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_write_buf(to, s.buf, step));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_write_buf(to, s.buf, SIZE_MAX));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_write_buf(to, s.buf, (size_t)1 << 32));
        snapshot_compare(&before, to, __FILE__, __LINE__);
        assert_content(s.buf, content, LENGTH);
        weir_buf_release(to);
        subject_close(&s);
    }
}

/* Every kind into every kind. */
static void takes_bytes_from_another(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t i = 0; i < kinds_count; i++) {
        subject s, from;
        uint8_t expected[LENGTH + 16], source[LENGTH];
        open_pattern(&s, of, expected, 16);
        pattern(source, LENGTH, 50);
        subject_open(&from, &kinds[i], source, LENGTH, 0);
        assert_int_equal(weir_buf_skip(from.buf, 5), 0);
        forbid_growth(&s);
        memcpy(expected + LENGTH, source + 5, 16);
        assert_int_equal(weir_buf_write_buf(s.buf, from.buf, 9), 0);
        assert_int_equal(weir_buf_write_buf(s.buf, from.buf, 7), 0);
        assert_content(s.buf, expected, LENGTH + 16);
        assert_int_equal(weir_buf_reader(from.buf), 5 + 16);
        assert_int_equal(weir_buf_write_buf(s.buf, from.buf, 0), 0);
        snapshot before;
        snapshot_take(&before, from.buf);
        assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_buf(s.buf, from.buf, 1));
        snapshot_compare(&before, from.buf, __FILE__, __LINE__);
        subject_close(&from);
        subject_close(&s);
    }
}

static void moves_its_own_bytes_to_its_end(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t length = 0; length <= LENGTH - 3; length++) {
        subject s;
        uint8_t expected[2 * LENGTH];
        open_pattern(&s, of, expected, LENGTH);
        assert_int_equal(weir_buf_skip(s.buf, 3), 0);
        assert_int_equal(weir_buf_write_buf(s.buf, s.buf, length), 0);
        memcpy(expected + LENGTH, expected + 3, length);
        assert_content(s.buf, expected, LENGTH + length);
        assert_int_equal(weir_buf_reader(s.buf), 3 + length);
        subject_close(&s);
    }
}

static void grows_while_it_moves_its_own_bytes(const kind *of, const void *arg)
{
    (void)arg;
    static uint8_t expected[4096];
    subject s;
    open_pattern(&s, of, expected, 0);
    size_t writer = LENGTH;
    for (int round = 0; round < 6; round++) {
        assert_int_equal(weir_buf_set_reader(s.buf, 0), 0);
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_write_buf(s.buf, s.buf, writer + 1));
        assert_int_equal(weir_buf_write_buf(s.buf, s.buf, writer), 0);
        memcpy(expected + writer, expected, writer);
        writer *= 2;
        assert_content(s.buf, expected, writer);
        assert_int_equal(weir_buf_reader(s.buf), writer / 2);
    }
    subject_close(&s);
}

/* Fills ------------------------------------------------------------------------------------- */

static void fills_anywhere(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    for (size_t index = 0; index <= LENGTH; index++) {
        for (size_t length = 0; index + length <= LENGTH; length++) {
            uint8_t byte = (uint8_t)(index * LENGTH + length);
            memset(content + index, byte, length);
            assert_int_equal(weir_buf_fill(s.buf, index, byte, length), 0);
            assert_content(s.buf, content, LENGTH);
        }
    }
    range outside[OUTSIDE_COUNT];
    ranges_outside(LENGTH, outside);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        assert_refused(s.buf, WEIR_EBOUNDS,
                       weir_buf_fill(s.buf, outside[i].index, 9, outside[i].length));
    subject_close(&s);
}

static void appends_fills(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t expected[LENGTH + 16];
    open_pattern(&s, of, expected, 16);
    forbid_growth(&s);
    size_t writer = LENGTH;
    for (size_t length = 0; length <= 5; length++) {
        assert_int_equal(weir_buf_write_fill(s.buf, (uint8_t)(0xf0 + length), length), 0);
        memset(expected + writer, (int)(0xf0 + length), length);
        writer += length;
        assert_content(s.buf, expected, writer);
    }
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_fill(s.buf, 1, 2));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_fill(s.buf, 1, SIZE_MAX));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_fill(s.buf, 1, (size_t)1 << 32));
    assert_int_equal(weir_buf_write_fill(s.buf, 1, 1), 0);
    subject_close(&s);
}

static void grows_for_fills(const kind *of, const void *arg)
{
    (void)arg;
    static uint8_t expected[LENGTH + 70000];
    subject s;
    open_pattern(&s, of, expected, 3);
    memset(expected + LENGTH, 0x77, 70000);
    assert_int_equal(weir_buf_write_fill(s.buf, 0x77, 100), 0);
    assert_int_equal(weir_buf_write_fill(s.buf, 0x77, 69900), 0);
    assert_content(s.buf, expected, LENGTH + 70000);
    subject_close(&s);
}

/* Text -------------------------------------------------------------------------------------- */

static void appends_strings(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    subject_open(&s, of, "<", 1, 16);
    forbid_growth(&s);
    assert_int_equal(weir_buf_write_str(s.buf, ""), 0);
    assert_int_equal(weir_buf_write_str(s.buf, "hello, "), 0);
    assert_int_equal(weir_buf_write_str(s.buf, "world"), 0);
    assert_content(s.buf, "<hello, world", 13);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_write_str(s.buf, "12345"));
    assert_refused(s.buf, -EINVAL, weir_buf_write_str(s.buf, NULL));
    assert_int_equal(weir_buf_write_str(s.buf, "1234"), 0);
    assert_content(s.buf, "<hello, world1234", 17);
    subject_close(&s);
}

static void gets_strings(const kind *of, const void *arg)
{
    (void)arg;
    static const char content[] = "one two\0three four";
    subject s;
    char text[32];
    subject_open(&s, of, content, sizeof content - 1, 8);
    for (size_t index = 0; index < sizeof content; index++) {
        for (size_t length = 0; index + length < sizeof content; length++) {
            memset(text, '#', sizeof text);
            assert_int_equal(weir_buf_get_str(s.buf, index, length, text, length + 1), 0);
            assert_memory_equal(text, content + index, length);
            assert_int_equal(text[length], '\0');
            assert_int_equal(text[length + 1], '#');
        }
    }
    memset(text, '#', sizeof text);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_get_str(s.buf, 0, 3, text, 3));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_get_str(s.buf, 0, 3, text, 0));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_get_str(s.buf, 0, 0, text, 0));
    assert_refused(s.buf, -EINVAL, weir_buf_get_str(s.buf, 0, 3, NULL, 10));
    range outside[OUTSIDE_COUNT];
    ranges_outside(sizeof content - 1, outside);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        assert_refused(
            s.buf, WEIR_EBOUNDS,
            weir_buf_get_str(s.buf, outside[i].index, outside[i].length, text, sizeof text));
    for (size_t i = 0; i < sizeof text; i++)
        assert_int_equal(text[i], '#');
    subject_close(&s);
}

static void reads_strings(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    char text[32] = "#########";
    subject_open(&s, of, "one two\0three", 13, 8);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_read_str(s.buf, 4, text, 4));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_str(s.buf, 14, text, sizeof text));
    assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_str(s.buf, SIZE_MAX, text, sizeof text));
    assert_refused(s.buf, -EINVAL, weir_buf_read_str(s.buf, 4, NULL, 10));
    assert_string_equal(text, "#########");
    assert_int_equal(weir_buf_read_str(s.buf, 4, text, 5), 0);
    assert_string_equal(text, "one ");
    assert_int_equal(weir_buf_reader(s.buf), 4);
    assert_int_equal(weir_buf_read_str(s.buf, 0, text, 1), 0);
    assert_string_equal(text, "");
    assert_int_equal(weir_buf_read_str(s.buf, 9, text, sizeof text), 0);
    assert_memory_equal(text, "two\0three", 10);
    assert_int_equal(weir_buf_readable(s.buf), 0);
    subject_close(&s);
}

static void reads_terminated_strings(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    char text[16] = "#####";
    subject_open(&s, of, "hello\0\0x\0rest", 13, 8);
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_read_cstr(s.buf, text, 5));
    assert_refused(s.buf, WEIR_ELIMIT, weir_buf_read_cstr(s.buf, text, 0));
    assert_refused(s.buf, -EINVAL, weir_buf_read_cstr(s.buf, NULL, 10));
    assert_string_equal(text, "#####");
    assert_int_equal(weir_buf_read_cstr(s.buf, text, 6), 0);
    assert_string_equal(text, "hello");
    assert_int_equal(weir_buf_reader(s.buf), 6);
    assert_int_equal(weir_buf_read_cstr(s.buf, text, 1), 0);
    assert_string_equal(text, "");
    assert_int_equal(weir_buf_reader(s.buf), 7);
    assert_int_equal(weir_buf_read_cstr(s.buf, text, sizeof text), 0);
    assert_string_equal(text, "x");
    assert_int_equal(weir_buf_reader(s.buf), 9);
    assert_refused(s.buf, WEIR_ENOTFOUND, weir_buf_read_cstr(s.buf, text, sizeof text));
    assert_int_equal(weir_buf_skip(s.buf, 4), 0);
    assert_refused(s.buf, WEIR_ENOTFOUND, weir_buf_read_cstr(s.buf, text, sizeof text));
    assert_string_equal(text, "x");
    subject_close(&s);
}

/* A 0 behind the writer ends nothing. */
static void terminator_in_the_room_does_not_count(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    char text[16] = "#####";
    subject_open(&s, of, "abc\0def", 7, 0);
    assert_int_equal(weir_buf_set_writer(s.buf, 3), 0);
    assert_refused(s.buf, WEIR_ENOTFOUND, weir_buf_read_cstr(s.buf, text, sizeof text));
    assert_int_equal(weir_buf_set_writer(s.buf, 4), 0);
    assert_int_equal(weir_buf_read_cstr(s.buf, text, sizeof text), 0);
    assert_string_equal(text, "abc");
    subject_close(&s);
}

static void prints_short_and_long(const kind *of, const void *arg)
{
    (void)arg;
    /* Around the length up to which no memory is needed to format. */
    static const int lengths[] = { 0, 1, 20, 254, 255, 256, 257, 1000 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        subject s;
        char expected[1100];
        int length = snprintf(expected, sizeof expected, "<%0*d%s", lengths[i], 42, "tail");
        subject_open(&s, of, "<", 1, 1100);
        assert_int_equal(weir_buf_printf(s.buf, "%0*d%s", lengths[i], 42, "tail"), 0);
        assert_content(s.buf, expected, (size_t)length);
        subject_close(&s);
    }
}

static void prints_up_to_its_limit(const kind *of, const void *arg)
{
    (void)arg;
    static const int rooms[] = { 1, 10, 255, 256, 700 };
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        subject s;
        char expected[800];
        int length = snprintf(expected, sizeof expected, "<%*s", rooms[i], "x");
        subject_open(&s, of, "<", 1, (size_t)rooms[i]);
        forbid_growth(&s);
        assert_refused(s.buf, WEIR_ELIMIT, weir_buf_printf(s.buf, "%*s", rooms[i] + 1, "x"));
        assert_int_equal(weir_buf_printf(s.buf, "%*s", rooms[i], "x"), 0);
        assert_content(s.buf, expected, (size_t)length);
        assert_int_equal(weir_buf_printf(s.buf, "%s", ""), 0);
        assert_refused(s.buf, WEIR_ELIMIT, weir_buf_printf(s.buf, "%s", "x"));
        subject_close(&s);
    }
}

static void grows_for_what_it_prints(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    char expected[2048] = "<";
    size_t length = 1;
    subject_open(&s, of, "<", 1, 0);
    for (int width = 1; width < 600; width = width * 2 + 1) {
        length += (size_t)snprintf(expected + length, sizeof expected - length, "%*d|", width, 7);
        assert_int_equal(weir_buf_printf(s.buf, "%*d|", width, 7), 0);
        assert_content(s.buf, expected, length);
    }
    subject_close(&s);
}

static void refuses_what_cannot_be_formatted(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content, 8);
    snapshot before;
    snapshot_take(&before, s.buf);
    /* The C locale has no such character. */
    assert_true(weir_buf_printf(s.buf, "ab%lc", (wint_t)0x20ac) < 0);
    snapshot_compare(&before, s.buf, __FILE__, __LINE__);
    subject_close(&s);
}

/* Without a kind ---------------------------------------------------------------------------- */

static void null_is_refused(void **state)
{
    (void)state;
    char bytes[4] = "###";
    weir_buf *buf = weir_buf_from("abc", 3);
    assert_int_equal(weir_buf_get_bytes(NULL, 0, bytes, 0), -EINVAL);
    assert_int_equal(weir_buf_read_bytes(NULL, bytes, 1), -EINVAL);
    assert_int_equal(weir_buf_set_bytes(NULL, 0, "abc", 0), -EINVAL);
    assert_int_equal(weir_buf_write_bytes(NULL, "abc", 3), -EINVAL);
    assert_int_equal(weir_buf_write_bytes(NULL, NULL, 0), -EINVAL);
    assert_refused(buf, -EINVAL, weir_buf_write_buf(NULL, buf, 2));
    assert_refused(buf, -EINVAL, weir_buf_write_buf(buf, NULL, 0));
    assert_int_equal(weir_buf_write_buf(NULL, NULL, 0), -EINVAL);
    assert_int_equal(weir_buf_fill(NULL, 0, 1, 0), -EINVAL);
    assert_int_equal(weir_buf_write_fill(NULL, 1, 0), -EINVAL);
    assert_int_equal(weir_buf_write_str(NULL, "abc"), -EINVAL);
    assert_int_equal(weir_buf_get_str(NULL, 0, 0, bytes, 4), -EINVAL);
    assert_int_equal(weir_buf_read_str(NULL, 0, bytes, 4), -EINVAL);
    assert_int_equal(weir_buf_read_cstr(NULL, bytes, 4), -EINVAL);
    assert_int_equal(weir_buf_printf(NULL, "%d", 1), -EINVAL);
    assert_int_equal(weir_buf_printf(NULL, "%300d", 1), -EINVAL);
    assert_int_equal(weir_buf_write_cstr(NULL, "abc"), -EINVAL);
    assert_refused(buf, -EINVAL, weir_buf_write_cstr(buf, NULL));
    /* Nor is there memory at NULL to copy from or to. */
    assert_refused(buf, -EINVAL, weir_buf_get_bytes(buf, 0, NULL, 1));
    assert_refused(buf, -EINVAL, weir_buf_read_bytes(buf, NULL, 1));
    assert_refused(buf, -EINVAL, weir_buf_set_bytes(buf, 0, NULL, 1));
    assert_refused(buf, -EINVAL, weir_buf_write_bytes(buf, NULL, 1));
    assert_string_equal(bytes, "###");
    weir_buf_release(buf);
}

static void terminated_strings_come_back(void **state)
{
    (void)state;
    char text[8];
    weir_buf *buf = weir_buf_new(0);
    assert_int_equal(weir_buf_write_cstr(buf, "one"), 0);
    assert_int_equal(weir_buf_write_cstr(buf, ""), 0);
    assert_int_equal(weir_buf_readable(buf), 5);
    assert_int_equal(weir_buf_read_cstr(buf, text, sizeof text), 0);
    assert_string_equal(text, "one");
    assert_int_equal(weir_buf_read_cstr(buf, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(weir_buf_readable(buf), 0);
    weir_buf_release(buf);
}

/* Growing would take the storage away from under the slice. */
static void a_buffer_does_not_take_its_own_slice(void **state)
{
    (void)state;
    weir_buf slice, *plain = weir_buf_from("abcdef", 6), *composite = weir_buf_new_composite();
    weir_buf_write_str(composite, "abcdef");
    weir_buf *both[] = { plain, composite };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_buf_slice(both[i], 1, 4, &slice), 0);
        assert_refused(both[i], -EINVAL, weir_buf_write_buf(both[i], &slice, 4));
        assert_refused(both[i], -EINVAL, weir_buf_hex_dump(&slice, 0, 4, both[i]));
        weir_buf_release(both[i]);
    }
}

/* They begin in the buffer that grows, but are another view's, and so stay where they are. */
static void bytes_of_another_view_may_be_appended(void **state)
{
    (void)state;
    for (size_t from = 0; from <= 9; from++) {
        for (size_t length = 0; from + length <= 10; length++) {
            uint8_t expected[13] = "234";
            weir_buf *whole = weir_buf_from("0123456789", 10), *slice;
            assert_int_equal(weir_buf_retained_slice(whole, 2, 3, &slice), 0);
            assert_int_equal(weir_buf_set_limit(slice, WEIR_BUF_MAX), 0);
            const uint8_t *bytes = weir_buf_peek(whole, from, length);
            assert_int_equal(weir_buf_write_bytes(slice, bytes, length), 0);
            assert_int_equal(weir_buf_get_bytes(whole, from, expected + 3, length), 0);
            assert_content(slice, expected, 3 + length);
            assert_content(whole, "0123456789", 10);
            weir_buf_release(slice);
            weir_buf_release(whole);
        }
    }
}

static void nothing_can_be_copied_from_nowhere(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abc", 3);
    assert_int_equal(weir_buf_write_bytes(buf, NULL, 0), 0);
    assert_int_equal(weir_buf_set_bytes(buf, 1, NULL, 0), 0);
    assert_int_equal(weir_buf_get_bytes(buf, 1, NULL, 0), 0);
    assert_content(buf, "abc", 3);
    weir_buf_release(buf);
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        weir_case(null_is_refused),
        weir_case(terminated_strings_come_back),
        weir_case(a_buffer_does_not_take_its_own_slice),
        weir_case(nothing_can_be_copied_from_nowhere),
        weir_case(bytes_of_another_view_may_be_appended),
    };
    static const kind_case cases[] = {
        for_all(gets_bytes_from_anywhere),
        for_all(reads_bytes_in_turn),
        for_those(sets_bytes_anywhere, 0, IS_READ_ONLY),
        for_those(sets_bytes_from_itself, 0, IS_READ_ONLY),
        for_those(writes_bytes_into_its_room, 0, IS_READ_ONLY),
        for_those(grows_as_bytes_are_written, CAN_GROW, 0),
        for_those(appends_its_own_bytes, 0, IS_READ_ONLY),
        for_those(grows_while_it_appends_its_own_bytes, CAN_GROW, 0),
        for_those(grows_once_while_it_appends_all_of_itself, CAN_GROW, IS_COMPOSITE),
        for_those(refuses_bytes_when_read_only, IS_READ_ONLY, 0),
        for_all(moves_bytes_to_another),
        for_those(takes_bytes_from_another, 0, IS_READ_ONLY),
        for_those(moves_its_own_bytes_to_its_end, 0, IS_READ_ONLY),
        for_those(grows_while_it_moves_its_own_bytes, CAN_GROW, 0),
        for_those(fills_anywhere, 0, IS_READ_ONLY),
        for_those(appends_fills, 0, IS_READ_ONLY),
        for_those(grows_for_fills, CAN_GROW, 0),
        for_those(appends_strings, 0, IS_READ_ONLY),
        for_all(gets_strings),
        for_all(reads_strings),
        for_all(reads_terminated_strings),
        for_all(terminator_in_the_room_does_not_count),
        for_those(prints_short_and_long, 0, IS_READ_ONLY),
        for_those(prints_up_to_its_limit, 0, IS_READ_ONLY),
        for_those(grows_for_what_it_prints, CAN_GROW, 0),
        for_those(refuses_what_cannot_be_formatted, 0, IS_READ_ONLY),
    };
    return kinds_run("bytes", cases, sizeof cases / sizeof *cases, plain,
                     sizeof plain / sizeof *plain);
}
