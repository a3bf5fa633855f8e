/* SPDX-License-Identifier: MIT */
/* Views and copies: what they share, what they keep to themselves, and how long they live. */
#include "kinds.h"

#include "buf/pool.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define LENGTH 24
#define ROOM 8

/* Opens a subject with a pattern of LENGTH bytes and some room. */
static void open_pattern(subject *s, const kind *of, uint8_t *content)
{
    pattern(content, LENGTH, 1);
    subject_open(s, of, content, LENGTH, ROOM);
}

/* Slices ------------------------------------------------------------------------------------ */

static void slices_any_range(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    assert_int_equal(weir_buf_skip(s.buf, 9), 0);
    for (size_t index = 0; index <= LENGTH; index++) {
        for (size_t length = 0; index + length <= LENGTH; length++) {
            weir_buf slice;
            assert_int_equal(weir_buf_slice(s.buf, index, length, &slice), 0);
            assert_content(&slice, content + index, length);
            assert_int_equal(weir_buf_reader(&slice), 0);
            assert_int_equal(weir_buf_capacity(&slice), length);
            assert_int_equal(weir_buf_max_writable(&slice), 0);
            assert_int_equal(weir_buf_is_read_only(&slice), weir_buf_is_read_only(s.buf));
        }
    }
    assert_int_equal(weir_buf_reader(s.buf), 9);
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

static void retains_slices_of_any_range(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    assert_int_equal(weir_buf_skip(s.buf, 9), 0);
    for (size_t index = 0; index <= LENGTH; index++) {
        for (size_t length = 0; index + length <= LENGTH; length++) {
            weir_buf *slice;
            assert_int_equal(weir_buf_retained_slice(s.buf, index, length, &slice), 0);
            assert_content(slice, content + index, length);
            assert_int_equal(weir_buf_reader(slice), 0);
            assert_int_equal(weir_buf_capacity(slice), length);
            assert_int_equal(weir_buf_limit(slice), length);
            assert_int_equal(weir_buf_is_read_only(slice), weir_buf_is_read_only(s.buf));
            assert_int_equal(weir_msg_refs(weir_buf_msg(slice)), 1);
            assert_int_equal(weir_buf_release(slice), 1);
        }
    }
    assert_int_equal(weir_buf_reader(s.buf), 9);
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

static void reads_slices_in_turn(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t step = 1; step <= LENGTH; step++) {
        subject s;
        uint8_t content[LENGTH];
        open_pattern(&s, of, content);
        weir_buf *slice;
        size_t at = 0;
        for (; at + step <= LENGTH; at += step) {
            assert_int_equal(weir_buf_read_slice(s.buf, step, &slice), 0);
            assert_content(slice, content + at, step);
            assert_int_equal(weir_buf_reader(s.buf), at + step);
            assert_int_equal(weir_buf_release(slice), 1);
        }
        slice = NULL;
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_slice(s.buf, step, &slice));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_slice(s.buf, SIZE_MAX, &slice));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_read_slice(s.buf, (size_t)1 << 32, &slice));
        assert_null(slice);
        assert_int_equal(weir_buf_read_slice(s.buf, 0, &slice), 0);
        assert_content(slice, "", 0);
        assert_int_equal(weir_buf_release(slice), 1);
        subject_close(&s);
    }
}

static void slices_of_slices(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    weir_buf outer, inner, *kept, *kept_inner;
    assert_int_equal(weir_buf_slice(s.buf, 2, 20, &outer), 0);
    assert_int_equal(weir_buf_slice(&outer, 3, 15, &inner), 0);
    assert_content(&inner, content + 5, 15);
    assert_int_equal(weir_buf_retained_slice(&inner, 1, 13, &kept), 0);
    assert_content(kept, content + 6, 13);
    assert_int_equal(weir_buf_retained_slice(kept, 1, 11, &kept_inner), 0);
    assert_int_equal(weir_buf_release(kept), 1);
    assert_content(kept_inner, content + 7, 11);
    /* Not a byte further than the slice, though the storage goes on. */
    assert_refused(&inner, WEIR_EBOUNDS, weir_buf_slice(&inner, 3, 13, &outer));
    kept = NULL;
    assert_refused(&inner, WEIR_EBOUNDS, weir_buf_retained_slice(&inner, 3, 13, &kept));
    assert_refused(kept_inner, WEIR_EBOUNDS, weir_buf_retained_slice(kept_inner, 0, 12, &kept));
    assert_null(kept);
    assert_int_equal(weir_buf_release(kept_inner), 1);
    subject_close(&s);
}

static void views_outside_are_refused(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    range outside[OUTSIDE_COUNT];
    ranges_outside(LENGTH, outside);
    weir_buf slice, *view = NULL;
    memset(&slice, 0x33, sizeof slice);
    for (int i = 0; i < OUTSIDE_COUNT; i++) {
        size_t index = outside[i].index, length = outside[i].length;
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_slice(s.buf, index, length, &slice));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_retained_slice(s.buf, index, length, &view));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_copy(s.buf, index, length, &view));
        assert_null(view);
    }
    for (size_t i = 0; i < sizeof slice; i++)
        assert_int_equal(((unsigned char *)&slice)[i], 0x33);
    assert_refused(s.buf, -EINVAL, weir_buf_slice(s.buf, 0, 1, NULL));
    assert_refused(s.buf, -EINVAL, weir_buf_retained_slice(s.buf, 0, 1, NULL));
    assert_refused(s.buf, -EINVAL, weir_buf_read_slice(s.buf, 1, NULL));
    assert_refused(s.buf, -EINVAL, weir_buf_duplicate(s.buf, NULL));
    assert_refused(s.buf, -EINVAL, weir_buf_read_only(s.buf, NULL));
    assert_refused(s.buf, -EINVAL, weir_buf_copy(s.buf, 0, 1, NULL));
    subject_close(&s);
}

static void writes_inside_a_slice_stay_inside(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t expected[LENGTH];
    open_pattern(&s, of, expected);
    weir_buf slice, *kept;
    assert_int_equal(weir_buf_slice(s.buf, 5, 9, &slice), 0);
    assert_int_equal(weir_buf_clear(&slice), 0);
    assert_int_equal(weir_buf_write_bytes(&slice, "012345678", 9), 0);
    assert_refused(&slice, WEIR_ELIMIT, weir_buf_write_u8(&slice, 'x'));
    memcpy(expected + 5, "012345678", 9);
    assert_content(s.buf, expected, LENGTH);

    assert_int_equal(weir_buf_retained_slice(s.buf, 8, 9, &kept), 0);
    assert_refused(kept, WEIR_ELIMIT, weir_buf_write_u8(kept, 'x'));
    assert_refused(kept, WEIR_EBOUNDS, weir_buf_set_u8(kept, 9, 'x'));
    assert_int_equal(weir_buf_fill(kept, 0, 'f', 9), 0);
    memset(expected + 8, 'f', 9);
    assert_content(s.buf, expected, LENGTH);
    assert_content(&slice, expected + 5, 9);
    weir_buf_release(kept);
    subject_close(&s);
}

/* Duplicates -------------------------------------------------------------------------------- */

static void duplicate_has_indices_of_its_own(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    weir_buf *duplicate;
    assert_int_equal(weir_buf_set_reader(s.buf, 3), 0);
    assert_int_equal(weir_buf_mark_reader(s.buf), 0);
    assert_int_equal(weir_buf_mark_writer(s.buf), 0);
    assert_int_equal(weir_buf_set_reader(s.buf, 7), 0);
    assert_int_equal(weir_buf_duplicate(s.buf, &duplicate), 0);
    assert_content(duplicate, content, LENGTH);
    assert_int_equal(weir_buf_reader(duplicate), 7);
    assert_int_equal(weir_buf_capacity(duplicate), LENGTH);
    assert_int_equal(weir_buf_limit(duplicate), weir_buf_limit(s.buf));
    assert_int_equal(weir_buf_is_read_only(duplicate), weir_buf_is_read_only(s.buf));
    assert_int_equal(weir_msg_refs(weir_buf_msg(duplicate)), 1);

    assert_int_equal(weir_buf_set_reader(duplicate, 12), 0);
    assert_int_equal(weir_buf_set_writer(duplicate, 15), 0);
    assert_int_equal(weir_buf_reader(s.buf), 7);
    assert_int_equal(weir_buf_writer(s.buf), LENGTH);
    assert_int_equal(weir_buf_reset_reader(duplicate), 0);
    assert_int_equal(weir_buf_reader(duplicate), 3);
    assert_int_equal(weir_buf_reset_writer(duplicate), 0);
    assert_int_equal(weir_buf_writer(duplicate), LENGTH);
    assert_int_equal(weir_buf_clear(duplicate), 0);
    assert_int_equal(weir_buf_reset_reader(s.buf), 0);
    assert_int_equal(weir_buf_reader(s.buf), 3);
    assert_content(s.buf, content, LENGTH);
    assert_int_equal(weir_buf_release(duplicate), 1);
    subject_close(&s);
}

/* Two that write on from the same place do not write over each other. */
static void room_is_never_shared(const kind *of, const void *arg)
{
    (void)arg;
    for (int duplicate_first = 0; duplicate_first < 2; duplicate_first++) {
        subject s;
        uint8_t expected[LENGTH + ROOM], other[LENGTH + ROOM];
        open_pattern(&s, of, expected);
        memcpy(other, expected, LENGTH);
        memset(expected + LENGTH, 'a', ROOM);
        memset(other + LENGTH, 'b', ROOM);
        weir_buf *views[2];
        assert_int_equal(weir_buf_duplicate(s.buf, &views[0]), 0);
        assert_int_equal(weir_buf_retained_slice(s.buf, 0, LENGTH, &views[1]), 0);
        if (!duplicate_first)
            assert_int_equal(weir_buf_write_fill(s.buf, 'a', ROOM), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(weir_buf_set_limit(views[i], WEIR_BUF_MAX), 0);
            assert_int_equal(weir_buf_write_fill(views[i], 'b', ROOM), 0);
        }
        if (duplicate_first)
            assert_int_equal(weir_buf_write_fill(s.buf, 'a', ROOM), 0);
        assert_content(s.buf, expected, LENGTH + ROOM);
        for (int i = 0; i < 2; i++) {
            assert_content(views[i], other, LENGTH + ROOM);
            weir_buf_release(views[i]);
        }
        subject_close(&s);
    }
}

/* Sharing ----------------------------------------------------------------------------------- */

static void all_views_see_what_one_sets(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t expected[LENGTH];
    open_pattern(&s, of, expected);
    weir_buf borrowed, *slice, *duplicate, *read_only, *slice_of_duplicate;
    assert_int_equal(weir_buf_slice(s.buf, 3, 17, &borrowed), 0);
    assert_int_equal(weir_buf_retained_slice(s.buf, 2, 20, &slice), 0);
    assert_int_equal(weir_buf_duplicate(s.buf, &duplicate), 0);
    assert_int_equal(weir_buf_read_only(s.buf, &read_only), 0);
    assert_int_equal(weir_buf_retained_slice(duplicate, 1, 21, &slice_of_duplicate), 0);
    const struct {
        weir_buf *buf;
        size_t at; /* its index 0, in the subject's count */
    } writers[] = {
        { s.buf, 0 }, { &borrowed, 3 }, { slice, 2 }, { duplicate, 0 }, { slice_of_duplicate, 1 }
    };
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        uint32_t value = 0x01020304u * (uint32_t)(i + 1);
        for (size_t at = 4; at < 16; at++) {
            for (size_t byte = 0; byte < 4; byte++)
                expected[at + byte] = (uint8_t)(value >> (24 - 8 * byte));
            assert_int_equal(weir_buf_set_u32(writers[i].buf, at - writers[i].at, value), 0);
            assert_content(s.buf, expected, LENGTH);
            assert_content(&borrowed, expected + 3, 17);
            assert_content(slice, expected + 2, 20);
            assert_content(duplicate, expected, LENGTH);
            assert_content(read_only, expected, LENGTH);
            assert_content(slice_of_duplicate, expected + 1, 21);
            value += 0x10101010;
        }
    }
    weir_buf_release(slice);
    weir_buf_release(duplicate);
    weir_buf_release(read_only);
    weir_buf_release(slice_of_duplicate);
    subject_close(&s);
}

/* Growing past the capacity gives the grower storage of its own, whichever view it is. */
static void growing_leaves_the_others_behind(const kind *of, const void *arg)
{
    (void)arg;
    for (int which = 0; which < 3; which++) {
        subject s;
        uint8_t content[LENGTH], expected[LENGTH + 100];
        open_pattern(&s, of, content);
        weir_buf *views[3] = { s.buf };
        assert_int_equal(weir_buf_duplicate(s.buf, &views[1]), 0);
        assert_int_equal(weir_buf_retained_slice(s.buf, 0, LENGTH, &views[2]), 0);
        assert_int_equal(weir_buf_set_limit(views[2], WEIR_BUF_MAX), 0);
        memcpy(expected, content, LENGTH);
        memset(expected + LENGTH, 'x', 100);
        assert_int_equal(weir_buf_write_fill(views[which], 'x', 100), 0);
        assert_int_equal(weir_buf_fill(views[which], 3, 'y', 10), 0);
        memset(expected + 3, 'y', 10);
        assert_content(views[which], expected, LENGTH + 100);
        for (int i = 0; i < 3; i++) {
            if (i != which)
                assert_content(views[i], content, LENGTH);
        }
        weir_buf_release(views[1]);
        weir_buf_release(views[2]);
        assert_content(s.buf, which == 0 ? expected : content, which == 0 ? LENGTH + 100 : LENGTH);
        subject_close(&s);
    }
}

/* A composite keeps its pieces, so only what it appends is its own. */
static void growing_a_composite_adds_nothing_to_its_views(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH], expected[LENGTH + 100];
    open_pattern(&s, of, content);
    weir_buf *duplicate;
    assert_int_equal(weir_buf_duplicate(s.buf, &duplicate), 0);
    memcpy(expected, content, LENGTH);
    memset(expected + LENGTH, 'x', 100);
    assert_int_equal(weir_buf_write_fill(s.buf, 'x', 100), 0);
    assert_content(s.buf, expected, LENGTH + 100);
    assert_content(duplicate, content, LENGTH);
    assert_int_equal(weir_buf_write_fill(duplicate, 'z', 100), 0);
    assert_content(s.buf, expected, LENGTH + 100);
    weir_buf_release(duplicate);
    subject_close(&s);
}

/* Read-only --------------------------------------------------------------------------------- */

static void assert_refuses_all_writing(weir_buf *view, size_t length)
{
    assert_true(weir_buf_is_read_only(view));
    assert_int_equal(weir_buf_max_writable(view), 0);
    assert_refused(view, WEIR_EREADONLY, weir_buf_set_u8(view, 0, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_set_u64(view, 1, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_set_bytes(view, 0, "abcd", 4));
    assert_refused(view, WEIR_EREADONLY, weir_buf_fill(view, 0, 1, length));
    assert_refused(view, WEIR_EREADONLY, weir_buf_write_u8(view, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_write_f64_le(view, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_write_bytes(view, "abcd", 4));
    assert_refused(view, WEIR_EREADONLY, weir_buf_write_buf(view, view, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_write_fill(view, 1, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_write_str(view, "a"));
    assert_refused(view, WEIR_EREADONLY, weir_buf_printf(view, "a"));
    assert_refused(view, WEIR_EREADONLY, weir_buf_ensure_writable(view, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_set_capacity(view, 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_set_capacity(view, length + 1));
    assert_refused(view, WEIR_EREADONLY, weir_buf_discard_read(view));
    assert_null(weir_buf_write_ptr(view, 1));
}

static void read_only_refuses_to_be_written(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    assert_int_equal(weir_buf_skip(s.buf, 2), 0);
    weir_buf *view, *duplicate, *slice, borrowed, *slice_of_borrowed;
    assert_int_equal(weir_buf_read_only(s.buf, &view), 0);
    assert_int_equal(weir_buf_reader(view), 2);
    assert_content(view, content, LENGTH);
    assert_refuses_all_writing(view, LENGTH);
    /* And so do the views of it. */
    assert_int_equal(weir_buf_duplicate(view, &duplicate), 0);
    assert_int_equal(weir_buf_retained_slice(view, 1, 20, &slice), 0);
    assert_int_equal(weir_buf_slice(view, 1, 20, &borrowed), 0);
    assert_int_equal(weir_buf_retained_slice(&borrowed, 0, 9, &slice_of_borrowed), 0);
    assert_refuses_all_writing(duplicate, LENGTH);
    assert_refuses_all_writing(slice, 20);
    assert_refuses_all_writing(&borrowed, 20);
    assert_refuses_all_writing(slice_of_borrowed, 9);
    assert_int_equal(weir_buf_set_limit(slice, WEIR_BUF_MAX), 0);
    assert_refuses_all_writing(slice, 20);
    weir_buf_release(slice_of_borrowed);
    weir_buf_release(duplicate);
    weir_buf_release(slice);
    weir_buf_release(view);
    assert_content(s.buf, content, LENGTH);
    subject_close(&s);
}

/* Copies ------------------------------------------------------------------------------------ */

static void copies_any_range(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    assert_int_equal(weir_buf_skip(s.buf, 9), 0);
    for (size_t index = 0; index <= LENGTH; index++) {
        for (size_t length = 0; index + length <= LENGTH; length++) {
            weir_buf *copy;
            assert_int_equal(weir_buf_copy(s.buf, index, length, &copy), 0);
            assert_content(copy, content + index, length);
            assert_int_equal(weir_buf_reader(copy), 0);
            assert_int_equal(weir_buf_release(copy), 1);
        }
    }
    assert_int_equal(weir_buf_reader(s.buf), 9);
    subject_close(&s);
}

static void copy_has_storage_of_its_own(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH], changed[LENGTH];
    open_pattern(&s, of, content);
    weir_buf *copy;
    assert_int_equal(weir_buf_copy(s.buf, 0, LENGTH, &copy), 0);
    assert_false(weir_buf_is_read_only(copy));
    assert_int_equal(weir_buf_fill(copy, 2, 'c', 20), 0);
    assert_content(s.buf, content, LENGTH);
    memcpy(changed, content, LENGTH);
    memset(changed + 2, 'c', 20);
    if (!(of->traits & IS_READ_ONLY))
        assert_int_equal(weir_buf_fill(s.buf, 0, 's', LENGTH), 0);
    assert_content(copy, changed, LENGTH);
    assert_int_equal(weir_buf_write_fill(copy, 'w', 1000), 0);
    assert_int_equal(weir_buf_release(copy), 1);
    subject_close(&s);
}

/* Lifetimes --------------------------------------------------------------------------------- */

enum { VIEWS = 5 };

static void make_views(weir_buf *buf, weir_buf *views[VIEWS])
{
    weir_buf borrowed;
    assert_int_equal(weir_buf_duplicate(buf, &views[0]), 0);
    assert_int_equal(weir_buf_retained_slice(buf, 0, LENGTH, &views[1]), 0);
    assert_int_equal(weir_buf_read_only(buf, &views[2]), 0);
    assert_int_equal(weir_buf_slice(buf, 0, LENGTH, &borrowed), 0);
    assert_int_equal(weir_buf_retained_slice(&borrowed, 0, LENGTH, &views[3]), 0);
    assert_int_equal(weir_buf_duplicate(&borrowed, &views[4]), 0);
}

static void views_outlive_what_they_view(const kind *of, const void *arg)
{
    (void)arg;
    for (int first = 0; first < VIEWS; first++) {
        subject s;
        uint8_t content[LENGTH + 200];
        weir_buf *views[VIEWS];
        open_pattern(&s, of, content);
        make_views(s.buf, views);
        subject_drop_parent(&s);
        assert_int_equal(weir_buf_release(s.buf), 1);
        /* Something else takes what memory was freed. */
        weir_buf *others[8];
        for (int i = 0; i < 8; i++) {
            others[i] = weir_buf_new(64);
            assert_int_equal(weir_buf_write_fill(others[i], 0xdd, 64), 0);
        }
        for (int i = 0; i < VIEWS; i++)
            assert_content(views[(first + i) % VIEWS], content, LENGTH);
        for (int i = 0; i < VIEWS - 1; i++) {
            assert_int_equal(weir_buf_release(views[(first + i) % VIEWS]), 1);
            assert_content(views[(first + i + 1) % VIEWS], content, LENGTH);
        }
        /* The last of them has the storage for itself, and can go on. */
        weir_buf *last = views[(first + VIEWS - 1) % VIEWS];
        if (!weir_buf_is_read_only(last)) {
            memset(content + LENGTH, 'g', 200);
            assert_int_equal(weir_buf_set_limit(last, WEIR_BUF_MAX), 0);
            for (size_t i = 0; i < 200; i++) {
                assert_int_equal(weir_buf_write_u8(last, 'g'), 0);
                assert_content(last, content, LENGTH + i + 1);
            }
            assert_int_equal(weir_buf_skip(last, 11), 0);
            assert_int_equal(weir_buf_discard_read(last), 0);
            assert_content(last, content + 11, LENGTH + 200 - 11);
        }
        assert_int_equal(weir_buf_release(last), 1);
        for (int i = 0; i < 8; i++)
            weir_buf_release(others[i]);
    }
}

static void lives_on_without_its_parent(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH + ROOM];
    open_pattern(&s, of, content);
    subject_drop_parent(&s);
    assert_content(s.buf, content, LENGTH);
    if (!(of->traits & IS_READ_ONLY)) {
        assert_int_equal(weir_buf_write_bytes(s.buf, "01234567", ROOM), 0);
        memcpy(content + LENGTH, "01234567", ROOM);
        assert_content(s.buf, content, LENGTH + ROOM);
        assert_int_equal(weir_buf_skip(s.buf, 5), 0);
        assert_int_equal(weir_buf_discard_read(s.buf), 0);
        assert_content(s.buf, content + 5, LENGTH + ROOM - 5);
    }
    subject_close(&s);
}

/* Iovecs ------------------------------------------------------------------------------------ */

static void describes_itself_by_iovecs(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    struct iovec iov[LENGTH + 1];
    for (size_t index = 0; index <= LENGTH; index++) {
        for (size_t length = 0; index + length <= LENGTH; length++) {
            size_t covered = 77, at = index;
            int count = weir_buf_iovec(s.buf, index, length, iov, LENGTH + 1, &covered);
            assert_true(count >= 0 && count <= LENGTH);
            assert_int_equal(covered, length);
            for (int i = 0; i < count; i++) {
                assert_true(iov[i].iov_len > 0 && iov[i].iov_len <= LENGTH - at);
                assert_memory_equal(iov[i].iov_base, content + at, iov[i].iov_len);
                /* Borrowed, not copied. */
                assert_ptr_equal(iov[i].iov_base, weir_buf_peek(s.buf, at, iov[i].iov_len));
                at += iov[i].iov_len;
            }
            assert_int_equal(at, index + length);
            if (!(of->traits & IS_COMPOSITE))
                assert_int_equal(count, length > 0);
        }
    }
    subject_close(&s);
}

static void gives_as_many_iovecs_as_asked(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    open_pattern(&s, of, content);
    struct iovec all[LENGTH + 1], iov[LENGTH + 1];
    int count = weir_buf_iovec(s.buf, 1, LENGTH - 2, all, LENGTH + 1, NULL);
    assert_true(count > 0);
    for (int max = 0; max <= count; max++) {
        size_t covered = 77, expected = 0;
        memset(iov, 0x44, sizeof iov);
        assert_int_equal(weir_buf_iovec(s.buf, 1, LENGTH - 2, iov, max, &covered), max);
        for (int i = 0; i < max; i++) {
            assert_ptr_equal(iov[i].iov_base, all[i].iov_base);
            assert_int_equal(iov[i].iov_len, all[i].iov_len);
            expected += iov[i].iov_len;
        }
        assert_int_equal(covered, expected);
        assert_int_equal(((unsigned char *)&iov[max])[0], 0x44);
    }
    range outside[OUTSIDE_COUNT];
    ranges_outside(LENGTH, outside);
    size_t covered = 77;
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        assert_refused(
            s.buf, WEIR_EBOUNDS,
            weir_buf_iovec(s.buf, outside[i].index, outside[i].length, iov, LENGTH, &covered));
    assert_refused(s.buf, -EINVAL, weir_buf_iovec(s.buf, 0, LENGTH, iov, -1, &covered));
    assert_refused(s.buf, -EINVAL, weir_buf_iovec(s.buf, 0, LENGTH, NULL, 4, &covered));
    assert_int_equal(covered, 77);
    subject_close(&s);
}

/* Without a kind ---------------------------------------------------------------------------- */

static void release_it(void *arg)
{
    weir_buf_release(arg);
}

static void retain_it(void *arg)
{
    weir_buf_retain(arg);
}

static void borrowed_slice_is_no_message(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abcdef", 6);
    weir_buf slice;
    assert_int_equal(weir_buf_slice(buf, 1, 3, &slice), 0);
    if (HARNESS_MISUSE_ABORTS) {
        harness_expect_abort(release_it, &slice, "borrowed slice");
        harness_expect_abort(retain_it, &slice, "borrowed slice");
    } else {
        harness_log_begin(WEIR_LOG_ERROR);
        assert_int_equal(weir_buf_release(&slice), -EINVAL);
        assert_null(weir_buf_retain(&slice));
        assert_true(harness_log_has("borrowed slice"));
        assert_int_equal(harness_log_end(), 2);
    }
    assert_content(&slice, "bcd", 3);
    weir_buf_release(buf);
}

static void borrowed_slice_costs_nothing(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abcdef", 6);
    weir_buf slice;
    weir_pool_stats before, after;
    weir_pool_get_stats(&before);
    harness_fail_nth(NULL, 1, -ENOMEM);
    assert_int_equal(weir_buf_slice(buf, 1, 3, &slice), 0);
    assert_int_equal(harness_fail_end(), 0);
    weir_pool_get_stats(&after);
    assert_int_equal(after.used_blocks, before.used_blocks);
    weir_buf_release(buf);
}

/* When nobody else is left to share with, a slice grows where it is. */
static void last_view_grows_in_place(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_new(256);
    assert_int_equal(weir_buf_write_fill(buf, 'a', 256), 0);
    weir_buf *slice;
    assert_int_equal(weir_buf_retained_slice(buf, 16, 16, &slice), 0);
    weir_buf_release(buf);
    assert_int_equal(weir_buf_set_limit(slice, WEIR_BUF_MAX), 0);
    const uint8_t *before = weir_buf_peek(slice, 0, 16);
    harness_fail_nth(NULL, 1, -ENOMEM);
    assert_int_equal(weir_buf_write_fill(slice, 'b', 100), 0);
    assert_int_equal(harness_fail_end(), 0);
    assert_ptr_equal(weir_buf_peek(slice, 0, 116), before);
    weir_buf_release(slice);
}

static void null_is_refused(void **state)
{
    (void)state;
    weir_buf slice, *view = NULL;
    struct iovec iov[1];
    assert_int_equal(weir_buf_slice(NULL, 0, 0, &slice), -EINVAL);
    assert_int_equal(weir_buf_retained_slice(NULL, 0, 0, &view), -EINVAL);
    assert_int_equal(weir_buf_read_slice(NULL, 0, &view), -EINVAL);
    assert_int_equal(weir_buf_duplicate(NULL, &view), -EINVAL);
    assert_int_equal(weir_buf_read_only(NULL, &view), -EINVAL);
    assert_int_equal(weir_buf_copy(NULL, 0, 0, &view), -EINVAL);
    assert_int_equal(weir_buf_iovec(NULL, 0, 0, iov, 1, NULL), -EINVAL);
    assert_null(view);
}

/* Loans ------------------------------------------------------------------------------------- */

static void block_lives_until_its_loan_ends(void **state)
{
    (void)state;
    weir_buf *view, *buf = weir_buf_from("abc", 3);
    weir_block *block = buf->block;
    weir_loan outer = weir__loan_begin(block);
    assert_int_equal(weir_buf_retained_slice(buf, 0, 2, &view), 0);
    assert_int_equal(weir_buf_release(buf), 1);
    assert_memory_equal(weir_buf_peek(view, 0, 2), "ab", 2);
    assert_int_equal(weir_buf_release(view), 1);
    assert_int_equal(atomic_load(&block->refs), weir__loan.spare);
    weir__loan_end(outer); /* releases it: the case ends with as many blocks as before */
}

static void views_outlive_the_loan(void **state)
{
    (void)state;
    weir_buf *view, *buf = weir_buf_from("abc", 3);
    weir_loan outer = weir__loan_begin(buf->block);
    assert_int_equal(weir_buf_retained_slice(buf, 1, 2, &view), 0);
    weir_buf_release(buf);
    weir__loan_end(outer);
    assert_int_equal(atomic_load(&view->block->refs), 1);
    assert_memory_equal(weir_buf_peek(view, 0, 2), "bc", 2);
    weir_buf_release(view);
}

/* All its references are lent, and given back to a loan inside it. */
static void exhausted_loan_keeps_its_block(void **state)
{
    (void)state;
    enum { MANY = (1 << 16) + 8 };
    static weir_buf *views[MANY];
    weir_buf *buf = weir_buf_from("abc", 3);
    weir_block *block = buf->block;
    weir_loan outermost = weir__loan_begin(block);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(weir_buf_retained_slice(buf, 0, 1, &views[i]), 0);
    assert_int_equal(weir__loan.spare, 1);
    weir_loan outer = weir__loan_begin(block);
    weir_buf_release(buf);
    for (size_t i = 0; i < MANY; i++)
        weir_buf_release(views[i]);
    weir__loan_end(outer);
    assert_ptr_equal(weir__loan.block, block);
    assert_int_equal(atomic_load(&block->refs), 1);
    weir__loan_end(outermost);
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        weir_case(borrowed_slice_is_no_message),    weir_case(borrowed_slice_costs_nothing),
        weir_case(last_view_grows_in_place),        weir_case(null_is_refused),
        weir_case(block_lives_until_its_loan_ends), weir_case(views_outlive_the_loan),
        weir_case(exhausted_loan_keeps_its_block),
    };
    static const kind_case cases[] = {
        for_all(slices_any_range),
        for_all(retains_slices_of_any_range),
        for_all(reads_slices_in_turn),
        for_all(slices_of_slices),
        for_all(views_outside_are_refused),
        for_those(writes_inside_a_slice_stay_inside, 0, IS_READ_ONLY),
        for_all(duplicate_has_indices_of_its_own),
        for_those(room_is_never_shared, 0, IS_READ_ONLY),
        for_those(all_views_see_what_one_sets, 0, IS_READ_ONLY),
        for_those(growing_leaves_the_others_behind, CAN_GROW, IS_COMPOSITE),
        for_those(growing_a_composite_adds_nothing_to_its_views, CAN_GROW | IS_COMPOSITE, 0),
        for_all(read_only_refuses_to_be_written),
        for_all(copies_any_range),
        for_all(copy_has_storage_of_its_own),
        for_those(views_outlive_what_they_view, 0, IS_BORROWED),
        for_those(lives_on_without_its_parent, 0, IS_BORROWED),
        for_all(describes_itself_by_iovecs),
        for_all(gives_as_many_iovecs_as_asked),
    };
    return kinds_run("view", cases, sizeof cases / sizeof *cases, plain,
                     sizeof plain / sizeof *plain);
}
