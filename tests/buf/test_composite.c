/* SPDX-License-Identifier: MIT */
/* Composites: pieces that come and go, in front, behind and in between. */
#include "kinds.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_CACHE_LIMIT ((size_t)8 << 20)

static size_t used_blocks(void)
{
    weir_pool_stats stats;
    weir_pool_get_stats(&stats);
    return stats.used_blocks;
}

static size_t used_bytes(void)
{
    weir_pool_stats stats;
    weir_pool_get_stats(&stats);
    return stats.used_bytes;
}

static weir_buf *text(const char *string)
{
    weir_buf *buf = weir_buf_from(string, strlen(string));
    assert_non_null(buf);
    return buf;
}

/* A composite with one piece for each word. */
static weir_buf *composite_of(const char *words)
{
    weir_buf *composite = weir_buf_new_composite();
    assert_non_null(composite);
    while (*words != '\0') {
        size_t length = strcspn(words, " ");
        assert_int_equal(weir_buf_composite_add(composite, weir_buf_from(words, length)), 0);
        words += length + strspn(words + length, " ");
    }
    return composite;
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

#define assert_text(buf, string) assert_content(buf, string, strlen(string))

/* Asserts that the pieces are just these words. */
#define assert_pieces(composite, words) check_pieces(composite, words, __FILE__, __LINE__)

static void check_pieces(const weir_buf *composite, const char *words, const char *file, int line)
{
    size_t at = 0, count = 0;
    for (; *words != '\0'; count++) {
        size_t length = strcspn(words, " "), index = 777, piece_length = 777;
        char bytes[256];
        if (weir_buf_composite_piece(composite, count, &index, &piece_length) < 0 || index != at ||
            piece_length != length || weir_buf_get_bytes(composite, at, bytes, length) < 0 ||
            memcmp(bytes, words, length) != 0) {
            print_error("piece %zu is not \"%.*s\" but at %zu, %zu long\n", count, (int)length,
                        words, index, piece_length);
            _fail(file, line);
        }
        at += length;
        words += length + strspn(words + length, " ");
    }
    if (weir_buf_composite_count(composite) != count || weir_buf_writer(composite) != at) {
        print_error("%zu pieces and %zu bytes instead of %zu and %zu\n",
                    weir_buf_composite_count(composite), weir_buf_writer(composite), count, at);
        _fail(file, line);
    }
}

/* Adding ------------------------------------------------------------------------------------ */

static void begins_empty(void **state)
{
    (void)state;
    weir_buf *composite = weir_buf_new_composite();
    assert_true(weir_buf_is_composite(composite));
    assert_pieces(composite, "");
    assert_int_equal(weir_buf_capacity(composite), 0);
    assert_int_equal(weir_buf_limit(composite), WEIR_BUF_MAX);
    assert_int_equal(weir_buf_discard_read(composite), 0);
    assert_int_equal(weir_buf_composite_consolidate(composite), 0);
    assert_int_equal(weir_buf_set_capacity(composite, 0), 0);
    assert_int_equal(weir_buf_release(composite), 1);
}

static void adds_what_is_readable(void **state)
{
    (void)state;
    weir_buf *composite = weir_buf_new_composite(), *part = text("..hello,..");
    assert_int_equal(weir_buf_set_writer(part, 8), 0);
    assert_int_equal(weir_buf_skip(part, 2), 0);
    assert_int_equal(weir_buf_composite_add(composite, part), 0);
    assert_int_equal(weir_buf_composite_add(composite, text("world")), 0);
    assert_pieces(composite, "hello, world");
    assert_int_equal(weir_buf_readable(composite), 11);
    assert_int_equal(weir_buf_capacity(composite), 11);
    weir_buf_release(composite);
}

static void adds_without_copying(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc"), *part = text("defgh");
    assert_non_null(weir_buf_retain(part));
    assert_int_equal(weir_buf_skip(part, 1), 0);
    assert_int_equal(weir_buf_composite_add(composite, part), 0);
    assert_int_equal(weir_msg_refs(weir_buf_msg(part)), 1);
    assert_ptr_equal(weir_buf_peek(composite, 3, 4), weir_buf_peek(part, 1, 4));
    assert_int_equal(weir_buf_set_u8(part, 2, 'X'), 0);
    assert_text(composite, "abceXgh");
    assert_int_equal(weir_buf_set_u8(composite, 5, 'Y'), 0);
    assert_text(part, "deXYh");
    /* What the part does with its indices afterwards is its own business. */
    assert_int_equal(weir_buf_clear(part), 0);
    assert_text(composite, "abceXYh");
    assert_int_equal(weir_buf_release(part), 1);
    assert_text(composite, "abceXYh");
    weir_buf_release(composite);
}

/* The storage of a part is taken over as it is: no block beside it. */
static void takes_the_block_of_its_part(void **state)
{
    (void)state;
    size_t before = used_blocks();
    weir_buf *composite = weir_buf_new_composite(), *slice, *whole = text("0123456789");
    assert_int_equal(weir_buf_composite_add(composite, text("abc")), 0);
    assert_int_equal(used_blocks(), before + 3);
    /* Of a slice only the storage stays, which it shared. */
    assert_int_equal(weir_buf_retained_slice(whole, 2, 5, &slice), 0);
    assert_int_equal(used_blocks(), before + 4);
    assert_int_equal(weir_buf_composite_add(composite, slice), 0);
    assert_int_equal(used_blocks(), before + 3);
    assert_pieces(composite, "abc 23456");
    weir_buf_release(whole);
    assert_int_equal(used_blocks(), before + 3);
    assert_pieces(composite, "abc 23456");
    weir_buf_release(composite);
    assert_int_equal(used_blocks(), before);
}

static void empty_part_adds_nothing(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc"), *part = text("xyz");
    size_t before = used_blocks();
    assert_int_equal(weir_buf_skip(part, 3), 0);
    assert_int_equal(weir_buf_composite_add(composite, part), 0);
    assert_int_equal(weir_buf_composite_add(composite, weir_buf_new(100)), 0);
    assert_int_equal(weir_buf_composite_add(composite, weir_buf_new_composite()), 0);
    assert_int_equal(weir_buf_composite_insert(composite, 0, weir_buf_new(100)), 0);
    assert_int_equal(weir_buf_composite_insert(composite, 1, weir_buf_new_composite()), 0);
    assert_pieces(composite, "abc");
    assert_int_equal(used_blocks(), before - 1);
    weir_buf_release(composite);
}

static void composite_part_counts_as_its_pieces(void **state)
{
    (void)state;
    weir_buf *inner = composite_of("..cd ef gh.."), *composite = composite_of("ab");
    assert_int_equal(weir_buf_skip(inner, 2), 0);
    assert_int_equal(weir_buf_set_writer(inner, weir_buf_writer(inner) - 2), 0);
    size_t before = used_blocks();
    assert_int_equal(weir_buf_composite_add(composite, inner), 0);
    assert_pieces(composite, "ab cd ef gh");
    assert_int_equal(used_blocks(), before - 1); /* the inner table is gone */
    /* And again, one level deeper. */
    weir_buf *outer = composite_of("00");
    assert_int_equal(weir_buf_composite_add(outer, composite), 0);
    assert_int_equal(weir_buf_composite_add(outer, text("99")), 0);
    assert_pieces(outer, "00 ab cd ef gh 99");
    weir_buf_release(outer);
}

static void composite_part_may_be_shared(void **state)
{
    (void)state;
    weir_buf *inner = composite_of("ab cd"), *first = composite_of("1"),
             *second = composite_of("2");
    assert_non_null(weir_buf_retain(inner));
    assert_non_null(weir_buf_retain(inner));
    assert_int_equal(weir_buf_composite_add(first, inner), 0);
    assert_int_equal(weir_buf_composite_add(second, inner), 0);
    assert_int_equal(weir_buf_set_u16(inner, 1, 0x5859), 0);
    assert_pieces(first, "1 aX Yd");
    assert_pieces(second, "2 aX Yd");
    assert_int_equal(weir_buf_release(inner), 1);
    assert_int_equal(weir_buf_release(first), 1);
    assert_pieces(second, "2 aX Yd");
    assert_int_equal(weir_buf_release(second), 1);
}

static void slice_of_itself_may_be_added(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc def"), *slice, *duplicate;
    assert_int_equal(weir_buf_retained_slice(composite, 1, 4, &slice), 0);
    assert_int_equal(weir_buf_composite_add(composite, slice), 0);
    assert_pieces(composite, "abc def bc de");
    assert_int_equal(weir_buf_duplicate(composite, &duplicate), 0);
    assert_int_equal(weir_buf_composite_insert(composite, 1, duplicate), 0);
    assert_pieces(composite, "abc abc def bc de def bc de");
    assert_int_equal(weir_buf_set_u8(composite, 0, 'X'), 0);
    assert_pieces(composite, "Xbc Xbc def bc de def bc de");
    weir_buf_release(composite);
}

static void room_is_dropped_when_something_is_added(void **state)
{
    (void)state;
    weir_buf *composite = weir_buf_new_composite();
    assert_int_equal(weir_buf_write_str(composite, "abc"), 0);
    assert_int_equal(weir_buf_ensure_writable(composite, 1000), 0);
    size_t before = used_blocks();
    weir_buf *part = text("def");
    assert_int_equal(weir_buf_composite_add(composite, part), 0);
    assert_pieces(composite, "abc def");
    assert_int_equal(weir_buf_capacity(composite), 6);
    /* The block that was nothing but room is gone. */
    assert_int_equal(used_blocks(), before);
    assert_int_equal(weir_buf_write_str(composite, "ghi"), 0);
    assert_text(composite, "abcdefghi");
    weir_buf_release(composite);
}

static void adds_at_the_writer(void **state)
{
    (void)state;
    for (size_t writer = 0; writer <= 9; writer++) {
        weir_buf *composite = composite_of("abc def ghi");
        char expected[16] = "abcdefghi";
        assert_int_equal(weir_buf_set_writer(composite, writer), 0);
        assert_int_equal(weir_buf_composite_add(composite, text("XYZ")), 0);
        strcpy(expected + writer, "XYZ");
        assert_text(composite, expected);
        assert_int_equal(weir_buf_composite_count(composite), (writer + 2) / 3 + 1);
        weir_buf_release(composite);
    }
}

static void itself_is_refused(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc def");
    for (int i = 0; i < 3; i++) {
        assert_non_null(weir_buf_retain(composite));
        int code = i == 0   ? weir_buf_composite_add(composite, composite)
                   : i == 1 ? weir_buf_composite_insert(composite, 1, composite)
                            : weir_buf_composite_insert(composite, 2, composite);
        assert_int_equal(code, -EINVAL);
        assert_int_equal(weir_msg_refs(weir_buf_msg(composite)), 1); /* that one was taken */
        assert_pieces(composite, "abc def");
    }
    weir_buf_release(composite);
}

/* A part to be refused, with a reference kept to see the other one go. */
static weir_buf *kept_part(void)
{
    weir_buf *part = text("part");
    assert_non_null(weir_buf_retain(part));
    return part;
}

static void assert_taken(weir_buf *part)
{
    assert_text(part, "part");
    assert_int_equal(weir_buf_reader(part), 0);
    assert_int_equal(weir_buf_release(part), 1);
}

static void part_is_released_when_adding_fails(void **state)
{
    (void)state;
    weir_buf *plain = text("abc"), *composite = composite_of("abc def"), *read_only, *part;
    weir_buf borrowed;
    assert_int_equal(weir_buf_read_only(composite, &read_only), 0);
    assert_int_equal(weir_buf_slice(composite, 0, 5, &borrowed), 0);

    part = kept_part();
    assert_int_equal(weir_buf_composite_add(NULL, part), -EINVAL);
    assert_taken(part);
    part = kept_part();
    assert_int_equal(weir_buf_composite_insert(NULL, 0, part), -EINVAL);
    assert_taken(part);
    part = kept_part();
    assert_refused(plain, -EINVAL, weir_buf_composite_add(plain, part));
    assert_taken(part);
    part = kept_part();
    assert_refused(plain, -EINVAL, weir_buf_composite_insert(plain, 0, part));
    assert_taken(part);
    part = kept_part();
    assert_refused(&borrowed, -EINVAL, weir_buf_composite_add(&borrowed, part));
    assert_taken(part);
    part = kept_part();
    assert_refused(read_only, WEIR_EREADONLY, weir_buf_composite_add(read_only, part));
    assert_taken(part);
    part = kept_part();
    assert_refused(read_only, WEIR_EREADONLY, weir_buf_composite_insert(read_only, 1, part));
    assert_taken(part);
    part = kept_part();
    assert_refused(composite, WEIR_EBOUNDS, weir_buf_composite_insert(composite, 3, part));
    assert_taken(part);
    part = kept_part();
    assert_refused(composite, WEIR_EBOUNDS, weir_buf_composite_insert(composite, SIZE_MAX, part));
    assert_taken(part);
    assert_refused(composite, -EINVAL, weir_buf_composite_add(composite, NULL));
    assert_refused(composite, -EINVAL, weir_buf_composite_insert(composite, 1, NULL));
    weir_buf_release(read_only);
    weir_buf_release(composite);
    weir_buf_release(plain);
}

/* It has no reference that could be taken, and would not stay good. */
static void borrowed_part_is_refused(void **state)
{
    (void)state;
    weir_buf *whole = text("abcdef"), *composite = composite_of("abc def"), slice;
    assert_int_equal(weir_buf_slice(whole, 1, 3, &slice), 0);
    assert_refused(composite, -EINVAL, weir_buf_composite_add(composite, &slice));
    assert_refused(composite, -EINVAL, weir_buf_composite_insert(composite, 1, &slice));
    assert_refused(composite, WEIR_EBOUNDS, weir_buf_composite_insert(composite, 3, &slice));
    assert_text(&slice, "bcd");
    weir_buf_release(composite);
    weir_buf_release(whole);
}

static void adds_up_to_its_limit(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc"), *part;
    assert_int_equal(weir_buf_set_limit(composite, 10), 0);
    part = kept_part();
    assert_int_equal(weir_buf_composite_add(composite, part), 0);
    assert_taken(part);
    part = kept_part();
    assert_refused(composite, WEIR_ELIMIT, weir_buf_composite_add(composite, part));
    assert_taken(part);
    part = kept_part();
    assert_refused(composite, WEIR_ELIMIT, weir_buf_composite_insert(composite, 0, part));
    assert_taken(part);
    assert_int_equal(weir_buf_composite_insert(composite, 0, text("XYZ")), 0);
    assert_pieces(composite, "XYZ abc part");
    /* Room does not count: it is dropped. */
    assert_int_equal(weir_buf_set_writer(composite, 6), 0);
    assert_int_equal(weir_buf_composite_add(composite, text("1234")), 0);
    assert_pieces(composite, "XYZ abc 1234");
    weir_buf_release(composite);
}

static void only_composites_have_pieces(void **state)
{
    (void)state;
    weir_buf *plain = text("abcdef"), *composite = composite_of("abc def"), *slice, *read_only;
    weir_buf borrowed;
    size_t index = 7, length = 7;
    assert_int_equal(weir_buf_retained_slice(composite, 0, 2, &slice), 0);
    assert_int_equal(weir_buf_slice(composite, 0, 6, &borrowed), 0);
    weir_buf *others[] = { plain, &borrowed, NULL };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_buf_composite_remove(others[i], 0), -EINVAL);
        assert_int_equal(weir_buf_composite_piece(others[i], 0, &index, &length), -EINVAL);
        assert_int_equal(weir_buf_composite_consolidate(others[i]), -EINVAL);
    }
    assert_int_equal(index, 7);
    assert_int_equal(length, 7);
    assert_int_equal(weir_buf_composite_count(plain), 0);
    assert_int_equal(weir_buf_composite_count(NULL), 0);
    assert_text(plain, "abcdef");
    assert_text(composite, "abcdef");
    /* A read-only one has them, too, to look at. */
    assert_int_equal(weir_buf_read_only(composite, &read_only), 0);
    assert_pieces(read_only, "abc def");
    assert_refused(read_only, WEIR_EREADONLY, weir_buf_composite_remove(read_only, 0));
    weir_buf_release(read_only);
    weir_buf_release(slice);
    weir_buf_release(composite);
    weir_buf_release(plain);
}

/* Inserting and removing -------------------------------------------------------------------- */

static void inserts_before_any_piece(void **state)
{
    (void)state;
    static const char *const expected[] = { "XY abc de f ghi", "abc XY de f ghi", "abc de XY f ghi",
                                            "abc de f XY ghi", "abc de f ghi XY" };
    for (size_t at = 0; at <= 4; at++) {
        weir_buf *composite = composite_of("abc de f ghi");
        assert_int_equal(weir_buf_composite_insert(composite, at, text("XY")), 0);
        assert_pieces(composite, expected[at]);
        assert_int_equal(weir_buf_reader(composite), 0);
        weir_buf_release(composite);
    }
}

static void inserts_all_pieces_of_a_part(void **state)
{
    (void)state;
    static const char *const expected[] = { "1 23 4 abc de f", "abc 1 23 4 de f", "abc de 1 23 4 f",
                                            "abc de f 1 23 4" };
    for (size_t at = 0; at <= 3; at++) {
        weir_buf *composite = composite_of("abc de f");
        assert_int_equal(weir_buf_composite_insert(composite, at, composite_of("1 23 4")), 0);
        assert_pieces(composite, expected[at]);
        weir_buf_release(composite);
    }
}

static void inserting_keeps_indices_on_their_bytes(void **state)
{
    (void)state;
    for (size_t index = 0; index <= 9; index++) {
        weir_buf *composite = composite_of("abc def ghi");
        assert_int_equal(weir_buf_set_reader(composite, index), 0);
        assert_int_equal(weir_buf_mark_reader(composite), 0);
        assert_int_equal(weir_buf_set_writer(composite, index), 0);
        assert_int_equal(weir_buf_mark_writer(composite), 0);
        assert_int_equal(weir_buf_set_writer(composite, 9), 0);
        assert_int_equal(weir_buf_composite_insert(composite, 1, text("1234")), 0);
        assert_pieces(composite, "abc 1234 def ghi");
        /* What is inserted just where an index stands comes behind it: it can be read. */
        size_t expected = index <= 3 ? index : index + 4;
        assert_int_equal(weir_buf_reader(composite), expected);
        assert_int_equal(weir_buf_reset_writer(composite), 0);
        assert_int_equal(weir_buf_writer(composite), expected);
        assert_int_equal(weir_buf_set_reader(composite, 0), 0);
        assert_int_equal(weir_buf_reset_reader(composite), 0);
        assert_int_equal(weir_buf_reader(composite), expected);
        weir_buf_release(composite);
    }
}

static void inserts_behind_what_was_discarded(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc defgh ijk");
    assert_int_equal(weir_buf_skip(composite, 5), 0);
    assert_int_equal(weir_buf_discard_read(composite), 0);
    assert_pieces(composite, "fgh ijk");
    assert_int_equal(weir_buf_composite_insert(composite, 1, text("12")), 0);
    assert_pieces(composite, "fgh 12 ijk");
    assert_int_equal(weir_buf_composite_insert(composite, 0, text("34")), 0);
    assert_pieces(composite, "34 fgh 12 ijk");
    assert_int_equal(weir_buf_composite_remove(composite, 1), 0);
    assert_pieces(composite, "34 12 ijk");
    weir_buf_release(composite);
}

static void inserts_and_drops_room(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc def");
    assert_int_equal(weir_buf_ensure_writable(composite, 100), 0);
    assert_int_equal(weir_buf_write_str(composite, "gh"), 0);
    assert_int_equal(weir_buf_composite_insert(composite, 1, text("12")), 0);
    assert_pieces(composite, "abc 12 def gh");
    assert_int_equal(weir_buf_capacity(composite), 10);
    weir_buf_release(composite);
}

static void removes_any_piece(void **state)
{
    (void)state;
    static const char *const expected[] = { "de f ghi", "abc f ghi", "abc de ghi", "abc de f" };
    for (size_t at = 0; at < 4; at++) {
        weir_buf *composite = composite_of("abc de f ghi");
        size_t before = used_blocks();
        assert_int_equal(weir_buf_composite_remove(composite, at), 0);
        assert_pieces(composite, expected[at]);
        assert_int_equal(weir_buf_capacity(composite), weir_buf_writer(composite));
        assert_int_equal(used_blocks(), before - 1);
        assert_refused(composite, WEIR_EBOUNDS, weir_buf_composite_remove(composite, 3));
        assert_refused(composite, WEIR_EBOUNDS, weir_buf_composite_remove(composite, SIZE_MAX));
        assert_refused(composite, WEIR_EBOUNDS,
                       weir_buf_composite_remove(composite, (size_t)1 << 32));
        /* It goes on as before. */
        assert_int_equal(weir_buf_composite_add(composite, text("end")), 0);
        assert_int_equal(weir_buf_composite_count(composite), 4);
        for (size_t left = 4; left > 0; left--)
            assert_int_equal(weir_buf_composite_remove(composite, left / 2), 0);
        assert_pieces(composite, "");
        assert_int_equal(weir_buf_composite_add(composite, text("new")), 0);
        assert_pieces(composite, "new");
        weir_buf_release(composite);
    }
}

static void removing_keeps_indices_on_their_bytes(void **state)
{
    (void)state;
    /* Where each index goes when the middle one of three pieces does. */
    static const size_t expected[] = { 0, 1, 2, 3, 3, 3, 3, 4, 5, 6 };
    for (size_t index = 0; index <= 9; index++) {
        weir_buf *composite = composite_of("abc def ghi");
        assert_int_equal(weir_buf_set_reader(composite, index), 0);
        assert_int_equal(weir_buf_mark_reader(composite), 0);
        assert_int_equal(weir_buf_set_writer(composite, index), 0);
        assert_int_equal(weir_buf_mark_writer(composite), 0);
        assert_int_equal(weir_buf_set_writer(composite, 9), 0);
        assert_int_equal(weir_buf_composite_remove(composite, 1), 0);
        assert_pieces(composite, "abc ghi");
        assert_int_equal(weir_buf_reader(composite), expected[index]);
        assert_int_equal(weir_buf_reset_writer(composite), 0);
        assert_int_equal(weir_buf_writer(composite), expected[index]);
        assert_int_equal(weir_buf_set_reader(composite, 0), 0);
        assert_int_equal(weir_buf_reset_reader(composite), 0);
        assert_int_equal(weir_buf_reader(composite), expected[index]);
        weir_buf_release(composite);
    }
}

static void removes_a_piece_with_room_behind_it(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc");
    assert_int_equal(weir_buf_write_str(composite, "def"), 0);
    assert_true(weir_buf_writable(composite) > 0);
    assert_int_equal(weir_buf_composite_remove(composite, 0), 0);
    assert_text(composite, "def");
    assert_int_equal(weir_buf_write_str(composite, "ghi"), 0);
    assert_text(composite, "defghi");
    while (weir_buf_composite_count(composite) > 0)
        assert_int_equal(weir_buf_composite_remove(composite, 0), 0);
    assert_text(composite, "");
    assert_int_equal(weir_buf_write_str(composite, "jkl"), 0);
    assert_text(composite, "jkl");
    weir_buf_release(composite);
}

static void tells_its_pieces(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc de f");
    size_t index = 77, length = 77;
    assert_refused(composite, WEIR_EBOUNDS,
                   weir_buf_composite_piece(composite, 3, &index, &length));
    assert_refused(composite, WEIR_EBOUNDS,
                   weir_buf_composite_piece(composite, SIZE_MAX, &index, &length));
    assert_int_equal(index, 77);
    assert_int_equal(length, 77);
    assert_int_equal(weir_buf_composite_piece(composite, 1, &index, NULL), 0);
    assert_int_equal(index, 3);
    assert_int_equal(weir_buf_composite_piece(composite, 1, NULL, &length), 0);
    assert_int_equal(length, 2);
    assert_int_equal(weir_buf_composite_piece(composite, 1, NULL, NULL), 0);
    /* The reader changes nothing, the writer ends the last one. */
    assert_int_equal(weir_buf_set_reader(composite, 2), 0);
    assert_pieces(composite, "abc de f");
    assert_int_equal(weir_buf_set_writer(composite, 4), 0);
    assert_pieces(composite, "abc d");
    assert_int_equal(weir_buf_set_writer(composite, 3), 0);
    assert_pieces(composite, "abc");
    weir_buf_release(composite);
}

static void duplicate_has_pieces_of_its_own(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc de f"), *duplicate;
    assert_int_equal(weir_buf_duplicate(composite, &duplicate), 0);
    assert_int_equal(weir_buf_composite_remove(composite, 1), 0);
    assert_int_equal(weir_buf_composite_add(duplicate, text("12")), 0);
    assert_pieces(composite, "abc f");
    assert_pieces(duplicate, "abc de f 12");
    assert_int_equal(weir_buf_set_u8(composite, 0, 'X'), 0);
    assert_pieces(duplicate, "Xbc de f 12");
    weir_buf_release(composite);
    assert_pieces(duplicate, "Xbc de f 12");
    weir_buf_release(duplicate);
}

/* Consolidating ----------------------------------------------------------------------------- */

static void consolidates_into_one_piece(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("xx abc de f"), *view;
    size_t before = used_blocks();
    assert_int_equal(weir_buf_skip(composite, 2), 0);
    assert_int_equal(weir_buf_discard_read(composite), 0);
    assert_int_equal(weir_buf_set_reader(composite, 2), 0);
    assert_int_equal(weir_buf_mark_reader(composite), 0);
    assert_int_equal(weir_buf_mark_writer(composite), 0);
    assert_int_equal(weir_buf_set_reader(composite, 4), 0);
    assert_int_equal(weir_buf_composite_consolidate(composite), 0);
    assert_pieces(composite, "abcdef");
    assert_non_null(weir_buf_peek(composite, 0, 6));
    assert_int_equal(used_blocks(), before - 3);
    assert_int_equal(weir_buf_reader(composite), 4);
    assert_int_equal(weir_buf_reset_reader(composite), 0);
    assert_int_equal(weir_buf_reader(composite), 2);
    assert_int_equal(weir_buf_reset_writer(composite), 0);
    assert_int_equal(weir_buf_writer(composite), 6);

    assert_int_equal(weir_buf_composite_add(composite, text("ghi")), 0);
    assert_int_equal(weir_buf_retained_slice(composite, 0, 9, &view), 0);
    assert_int_equal(weir_buf_composite_consolidate(composite), 0);
    assert_pieces(composite, "abcdefghi");
    /* A copy: whoever looked at the pieces goes on looking at them. */
    assert_int_equal(weir_buf_fill(composite, 0, 'X', 9), 0);
    assert_text(view, "abcdefghi");
    weir_buf_release(view);
    weir_buf_release(composite);
}

static void one_piece_needs_no_consolidating(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc");
    const uint8_t *bytes = weir_buf_peek(composite, 0, 3);
    assert_int_equal(weir_buf_composite_consolidate(composite), 0);
    assert_ptr_equal(weir_buf_peek(composite, 0, 3), bytes);
    assert_pieces(composite, "abc");
    weir_buf_release(composite);
}

static void consolidates_with_room_behind(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc def");
    assert_int_equal(weir_buf_ensure_writable(composite, 100), 0);
    assert_int_equal(weir_buf_composite_consolidate(composite), 0);
    assert_pieces(composite, "abcdef");
    assert_int_equal(weir_buf_write_str(composite, "ghi"), 0);
    assert_text(composite, "abcdefghi");
    weir_buf_release(composite);
}

static void consolidates_though_it_is_read_only(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc def"), *view;
    assert_int_equal(weir_buf_read_only(composite, &view), 0);
    assert_int_equal(weir_buf_composite_consolidate(view), 0);
    assert_pieces(view, "abcdef");
    assert_pieces(composite, "abc def");
    assert_refused(view, WEIR_EREADONLY, weir_buf_set_u8(view, 0, 'X'));
    weir_buf_release(view);
    weir_buf_release(composite);
}

/* Read-only pieces -------------------------------------------------------------------------- */

/* "abc", then "def" which must not be written, then "ghi". */
static weir_buf *partly_read_only(weir_buf **source)
{
    weir_buf *composite = composite_of("abc"), *view;
    *source = text("def");
    assert_int_equal(weir_buf_read_only(*source, &view), 0);
    assert_int_equal(weir_buf_composite_add(composite, view), 0);
    assert_int_equal(weir_buf_composite_add(composite, text("ghi")), 0);
    assert_pieces(composite, "abc def ghi");
    return composite;
}

static void read_only_piece_refuses_just_its_range(void **state)
{
    (void)state;
    weir_buf *source, *composite = partly_read_only(&source);
    assert_false(weir_buf_is_read_only(composite));
    char expected[] = "abcdefghi";
    for (size_t index = 0; index <= 9; index++) {
        for (size_t length = 1; index + length <= 9; length++) {
            if (index < 6 && index + length > 3) {
                assert_refused(composite, WEIR_EREADONLY,
                               weir_buf_set_bytes(composite, index, "XXXXXXXXX", length));
                assert_refused(composite, WEIR_EREADONLY,
                               weir_buf_fill(composite, index, 'X', length));
                continue;
            }
            memset(expected + index, (int)('0' + length), length);
            assert_int_equal(weir_buf_fill(composite, index, (uint8_t)('0' + length), length), 0);
            assert_text(composite, expected);
        }
    }
    assert_refused(composite, WEIR_EREADONLY, weir_buf_set_u16(composite, 2, 0));
    assert_refused(composite, WEIR_EREADONLY, weir_buf_set_u8(composite, 5, 0));
    assert_int_equal(weir_buf_set_u16(composite, 6, 0x5859), 0);
    /* Appending goes on, and who owns the bytes may still set them. */
    assert_int_equal(weir_buf_write_str(composite, "jkl"), 0);
    assert_int_equal(weir_buf_set_u8(source, 1, 'E'), 0);
    memcpy(expected + 3, "dEfXY", 5);
    uint8_t content[12];
    assert_int_equal(weir_buf_get_bytes(composite, 0, content, 12), 0);
    assert_memory_equal(content, expected, 9);
    assert_memory_equal(content + 9, "jkl", 3);
    weir_buf_release(source);
    weir_buf_release(composite);
}

static void read_only_piece_stays_so_in_views(void **state)
{
    (void)state;
    weir_buf *source, *composite = partly_read_only(&source), *outer = composite_of("12");
    weir_buf borrowed, *views[4];
    assert_int_equal(weir_buf_slice(composite, 2, 5, &borrowed), 0);
    assert_int_equal(weir_buf_duplicate(composite, &views[0]), 0);
    assert_int_equal(weir_buf_retained_slice(composite, 2, 5, &views[1]), 0);
    assert_int_equal(weir_buf_retained_slice(&borrowed, 1, 3, &views[2]), 0); /* just that piece */
    assert_non_null(weir_buf_retain(composite));
    assert_int_equal(weir_buf_composite_insert(outer, 0, composite), 0);
    assert_int_equal(weir_buf_retained_slice(outer, 2, 5, &views[3]), 0);

    assert_refused(&borrowed, WEIR_EREADONLY, weir_buf_fill(&borrowed, 0, 'X', 5));
    assert_int_equal(weir_buf_set_u8(&borrowed, 4, 'G'), 0);
    assert_refused(views[0], WEIR_EREADONLY, weir_buf_set_u8(views[0], 3, 'X'));
    assert_int_equal(weir_buf_set_u8(views[0], 2, 'C'), 0);
    for (int i = 1; i < 4; i++)
        assert_refused(views[i], WEIR_EREADONLY, weir_buf_set_u8(views[i], 1, 'X'));
    assert_true(weir_buf_is_read_only(views[2]));
    assert_text(outer, "abCdefGhi12");
    assert_text(source, "def");
    for (int i = 0; i < 4; i++)
        weir_buf_release(views[i]);
    weir_buf_release(outer);
    weir_buf_release(composite);
    weir_buf_release(source);
}

/* Moving the writer back makes room of content, but not a licence to write where one must not. */
static void read_only_piece_is_no_room(void **state)
{
    /* What such a write answers is not said; that the bytes stay, is. */
    (void)state;
    for (int way = 0; way < 7; way++) {
        weir_buf *source, *composite = partly_read_only(&source);
        assert_int_equal(weir_buf_set_writer(composite, way == 0 ? 0 : 4), 0);
        uint8_t *room;
        switch (way) {
        case 0:
        case 1:
            (void)weir_buf_write_bytes(composite, "XXXXXXXX", 8);
            break;
        case 2:
            (void)weir_buf_write_fill(composite, 'X', 3);
            break;
        case 3:
            (void)weir_buf_write_u16(composite, 0x5858);
            break;
        case 4:
            (void)weir_buf_printf(composite, "XXX");
            break;
        case 5:
            (void)weir_buf_write_buf(composite, composite, 3);
            break;
        default:
            room = weir_buf_write_ptr(composite, 2);
            if (room != NULL)
                memset(room, 'X', 2);
            break;
        }
        assert_text(source, "def");
        weir_buf_release(source);
        weir_buf_release(composite);
    }
}

static void consolidating_makes_a_read_only_piece_settable(void **state)
{
    (void)state;
    weir_buf *source, *composite = partly_read_only(&source);
    assert_int_equal(weir_buf_composite_consolidate(composite), 0);
    assert_int_equal(weir_buf_fill(composite, 2, 'X', 5), 0);
    assert_text(composite, "abXXXXXhi");
    assert_text(source, "def");
    weir_buf_release(source);
    weir_buf_release(composite);
}

/* Discarding -------------------------------------------------------------------------------- */

static void discarding_lets_go_of_whole_pieces(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc de f ghi");
    /* How many pieces are wholly read at each index. */
    static const size_t gone[] = { 0, 0, 0, 1, 1, 2, 3, 3, 3, 4 };
    size_t before = used_blocks();
    for (size_t index = 1; index <= 9; index++) {
        assert_int_equal(weir_buf_skip(composite, 1), 0);
        assert_int_equal(weir_buf_discard_read(composite), 0);
        assert_content(composite, letters + index, 9 - index);
        assert_int_equal(weir_buf_composite_count(composite), 4 - gone[index]);
        assert_int_equal(used_blocks(), before - gone[index]);
    }
    assert_pieces(composite, "");
    assert_int_equal(weir_buf_composite_add(composite, text("new")), 0);
    assert_pieces(composite, "new");
    weir_buf_release(composite);
}

static void cutting_lets_go_of_whole_pieces(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc de f ghi");
    static const size_t left[] = { 0, 1, 1, 1, 2, 2, 3, 4, 4, 4 };
    size_t before = used_blocks();
    for (size_t capacity = 9; capacity-- > 0;) {
        assert_int_equal(weir_buf_set_capacity(composite, capacity), 0);
        assert_content(composite, letters, capacity);
        assert_int_equal(weir_buf_composite_count(composite), left[capacity]);
        assert_int_equal(used_blocks(), before - 4 + left[capacity]);
    }
    weir_buf_release(composite);
}

/* Index 0 in the middle of a piece, and then everything is cleared: nothing of it is left. */
static weir_buf *discarded_and_emptied(int way)
{
    weir_buf *composite = composite_of("abcdef");
    assert_int_equal(weir_buf_skip(composite, 3), 0);
    assert_int_equal(weir_buf_discard_read(composite), 0);
    if (way == 0)
        assert_int_equal(weir_buf_set_capacity(composite, 0), 0);
    else if (way == 1)
        assert_int_equal(weir_buf_clear(composite), 0);
    else
        assert_int_equal(weir_buf_set_writer(composite, 0), 0);
    return composite;
}

static void nothing_is_left_of_an_emptied_piece(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        size_t before = used_blocks();
        weir_buf *composite = discarded_and_emptied(way);
        assert_int_equal(weir_buf_composite_add(composite, text("ghi")), 0);
        assert_pieces(composite, "ghi");
        assert_int_equal(used_blocks(), before + 2);
        weir_buf_release(composite);
    }
}

static void inserts_after_an_emptied_piece(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        weir_buf *composite = discarded_and_emptied(way);
        assert_int_equal(weir_buf_composite_add(composite, text("ghi")), 0);
        assert_int_equal(weir_buf_composite_insert(composite, 0, text("12")), 0);
        assert_text(composite, "12ghi");
        weir_buf_release(composite);
    }
}

static void removes_after_an_emptied_piece(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        weir_buf *composite = discarded_and_emptied(way);
        assert_int_equal(weir_buf_composite_add(composite, text("ghi")), 0);
        assert_int_equal(weir_buf_composite_add(composite, text("jk")), 0);
        assert_int_equal(weir_buf_composite_remove(composite, 0), 0);
        assert_text(composite, "jk");
        weir_buf_release(composite);
    }
}

static void writes_after_an_emptied_piece(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        weir_buf *composite = discarded_and_emptied(way);
        uint8_t *room = weir_buf_write_ptr(composite, 10);
        assert_non_null(room);
        memcpy(room, "0123456789", 10);
        assert_int_equal(weir_buf_advance_writer(composite, 10), 0);
        assert_pieces(composite, "0123456789");
        assert_int_equal(weir_buf_write_str(composite, "abc"), 0);
        assert_text(composite, "0123456789abc");
        weir_buf_release(composite);
    }
}

/* Streams ----------------------------------------------------------------------------------- */

/* What comes in at the back goes out at the front, with about `kept` pieces in between. */
static void stream(size_t kept)
{
    enum { ROUNDS = 20000 };
    weir_buf *composite = weir_buf_new_composite();
    size_t settled = 0;
    uint32_t written = 0, expected = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        weir_buf *part = weir_buf_new(8);
        assert_int_equal(weir_buf_write_u32(part, written++), 0);
        assert_int_equal(weir_buf_write_u32(part, written++), 0);
        assert_int_equal(weir_buf_composite_add(composite, part), 0);
        if (weir_buf_composite_count(composite) <= kept)
            continue;
        /* A piece and a half, then half a piece: the front is inside a piece half the time. */
        for (int i = 0; i < (round % 2 ? 3 : 1); i++) {
            uint32_t value;
            assert_int_equal(weir_buf_read_u32(composite, &value), 0);
            assert_int_equal(value, expected++);
        }
        assert_int_equal(weir_buf_discard_read(composite), 0);
        if (round == ROUNDS / 4)
            settled = used_bytes();
        /* One block more or less lies half read at the front. */
        if (round > ROUNDS / 4)
            assert_true(used_bytes() <= settled + 2 * 64);
    }
    assert_true(settled > 0);
    assert_true(weir_buf_composite_count(composite) <= kept + 1);
    weir_buf_release(composite);
}

static void streams_without_growing(void **state)
{
    (void)state;
    stream(1);
    stream(6);
    stream(7);
    stream(50);
}

static void thousands_of_pieces_keep_their_order(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    weir_buf *composite = weir_buf_new_composite();
    for (uint16_t i = 0; i < COUNT; i++) {
        weir_buf *part = weir_buf_new(2);
        assert_int_equal(weir_buf_write_u16(part, i), 0);
        assert_int_equal(weir_buf_composite_add(composite, part), 0);
    }
    assert_int_equal(weir_buf_composite_count(composite), COUNT);
    for (uint16_t i = 0; i < COUNT; i++) {
        uint16_t value;
        assert_int_equal(weir_buf_get_u16(composite, (size_t)i * 2, &value), 0);
        assert_int_equal(value, i);
    }
    /* Every other one from the front half, all of the rest from the back. */
    for (size_t at = 0; at < COUNT / 4; at++)
        assert_int_equal(weir_buf_composite_remove(composite, at), 0);
    while (weir_buf_composite_count(composite) > COUNT / 4)
        assert_int_equal(
            weir_buf_composite_remove(composite, weir_buf_composite_count(composite) - 1), 0);
    for (uint16_t i = 0; i < COUNT / 4; i++) {
        uint16_t value;
        assert_int_equal(weir_buf_read_u16(composite, &value), 0);
        assert_int_equal(value, i * 2 + 1);
    }
    weir_buf_release(composite);
}

/* Positions --------------------------------------------------------------------------------- */

/* As if nearly 2 GiB had been streamed through it. */
static weir_buf *long_streamed(const char *words, uint32_t short_of)
{
    weir_buf *composite = weir_buf_new_composite();
    composite->offset = 0x80000000u - short_of;
    while (*words != '\0') {
        size_t length = strcspn(words, " ");
        assert_int_equal(weir_buf_composite_add(composite, weir_buf_from(words, length)), 0);
        words += length + strspn(words + length, " ");
    }
    return composite;
}

static void positions_begin_anew_before_they_overflow(void **state)
{
    (void)state;
    for (uint32_t short_of = 1; short_of <= 14; short_of++) {
        weir_buf *composite = long_streamed("abc def ghi jkl", short_of), *slice;
        assert_pieces(composite, "abc def ghi jkl");
        for (size_t index = 1; index <= 12; index++) {
            assert_int_equal(weir_buf_skip(composite, 1), 0);
            assert_int_equal(weir_buf_discard_read(composite), 0);
            assert_content(composite, letters + index, 12 - index);
            assert_int_equal(weir_buf_composite_count(composite), (12 - index + 2) / 3);
            assert_true(composite->offset < 0x80000000u);
        }
        assert_int_equal(weir_buf_composite_add(composite, text("mnopq")), 0);
        assert_int_equal(weir_buf_composite_add(composite, text("rst")), 0);
        assert_pieces(composite, "mnopq rst");
        assert_int_equal(weir_buf_retained_slice(composite, 3, 4, &slice), 0);
        assert_pieces(slice, "pq rs");
        weir_buf_release(slice);
        weir_buf_release(composite);
    }
}

/* All at once, and from inside a piece. */
static void discards_across_the_turning_point(void **state)
{
    (void)state;
    for (size_t discarded = 0; discarded <= 12; discarded++) {
        weir_buf *composite = long_streamed("abc def ghi jkl", 5), *view;
        assert_int_equal(weir_buf_duplicate(composite, &view), 0);
        assert_int_equal(weir_buf_mark_writer(composite), 0);
        assert_int_equal(weir_buf_skip(composite, discarded), 0);
        assert_int_equal(weir_buf_discard_read(composite), 0);
        assert_content(composite, letters + discarded, 12 - discarded);
        assert_text(view, "abcdefghijkl");
        assert_int_equal(weir_buf_write_str(composite, "mno"), 0);
        assert_content(composite, letters + discarded, 15 - discarded);
        assert_int_equal(weir_buf_reset_writer(composite), 0);
        assert_int_equal(weir_buf_writer(composite), 12 - discarded);
        assert_int_equal(weir_buf_composite_insert(composite, 0, text("XY")), 0);
        assert_int_equal(weir_buf_composite_remove(composite, 0), 0);
        assert_content(composite, letters + discarded, 12 - discarded);
        weir_buf_release(view);
        weir_buf_release(composite);
    }
}

/* Writing ----------------------------------------------------------------------------------- */

static void pointer_gets_a_piece_of_its_own(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc");
    assert_int_equal(weir_buf_set_capacity(composite, 6), 0);
    assert_int_equal(weir_buf_set_capacity(composite, 10), 0);
    /* Three bytes, then four: no run of five, so that room makes way. */
    uint8_t *room = weir_buf_write_ptr(composite, 3);
    assert_non_null(room);
    assert_int_equal(weir_buf_capacity(composite), 10);
    room = weir_buf_write_ptr(composite, 5);
    assert_non_null(room);
    assert_text(composite, "abc");
    memcpy(room, "01234", 5);
    assert_int_equal(weir_buf_advance_writer(composite, 5), 0);
    assert_pieces(composite, "abc 01234");
    weir_buf_release(composite);
}

static void pointer_fits_the_limit(void **state)
{
    (void)state;
    weir_buf *composite = composite_of("abc");
    assert_int_equal(weir_buf_set_limit(composite, 20), 0);
    assert_null(weir_buf_write_ptr(composite, 18));
    assert_non_null(weir_buf_write_ptr(composite, 17));
    assert_int_equal(weir_buf_capacity(composite), 20);
    assert_int_equal(weir_buf_write_str(composite, "0123456789abcdefg"), 0);
    assert_null(weir_buf_write_ptr(composite, 1));
    assert_non_null(weir_buf_write_ptr(composite, 0));
    assert_text(composite, "abc0123456789abcdefg");
    weir_buf_release(composite);
}

/* Slices ------------------------------------------------------------------------------------ */

static void slices_outlive_their_composite(void **state)
{
    (void)state;
    size_t before = used_blocks();
    weir_buf *composite = composite_of("abc de f ghi jkl");
    weir_buf *inside, *across, *all;
    assert_int_equal(weir_buf_retained_slice(composite, 1, 2, &inside), 0);
    assert_int_equal(weir_buf_retained_slice(composite, 2, 5, &across), 0);
    assert_int_equal(weir_buf_read_slice(composite, 9, &all), 0);
    assert_int_equal(weir_buf_discard_read(composite), 0);
    assert_pieces(composite, "jkl");
    assert_int_equal(weir_buf_release(composite), 1);
    assert_text(inside, "bc");
    assert_pieces(across, "c de f g");
    assert_pieces(all, "abc de f ghi");
    /* Three slices, two with tables, one plain; and the four pieces they need. */
    assert_int_equal(used_blocks(), before + 3 + 4);
    assert_int_equal(weir_buf_release(all), 1);
    assert_int_equal(weir_buf_set_u8(across, 0, 'C'), 0);
    assert_text(inside, "bC");
    assert_int_equal(weir_buf_release(inside), 1);
    assert_pieces(across, "C de f g");
    assert_int_equal(weir_buf_release(across), 1);
    assert_int_equal(used_blocks(), before);
}

/* Threads ----------------------------------------------------------------------------------- */

static void *release_it(void *arg)
{
    weir_buf_release(arg);
    return NULL;
}

/*
 * Another thread's release is over before the composite passes the memory on: what this proves,
 * only the thread sanitizer can see.
 */
static void part_was_just_released_elsewhere(void **state)
{
    (void)state;
    weir_pool_set_cache_limit(0);
    for (int round = 0; round < 20; round++) {
        weir_buf *composite = weir_buf_new_composite(), *part = text("part");
        pthread_t thread;
        assert_non_null(weir_buf_retain(part));
        assert_int_equal(pthread_create(&thread, NULL, release_it, part), 0);
        WAIT_FOR(weir_msg_refs(weir_buf_msg(part)) == 1);
        assert_int_equal(weir_buf_composite_add(composite, part), 0);
        assert_pieces(composite, "part");
        assert_int_equal(weir_buf_release(composite), 1);
        pthread_join(thread, NULL);
    }
    weir_pool_set_cache_limit(DEFAULT_CACHE_LIMIT);
}

/* A long life ------------------------------------------------------------------------------- */

typedef struct model {
    uint8_t bytes[16384];
    size_t reader, writer;
    uint32_t random;
} model;

static size_t random_below(model *m, size_t bound)
{
    m->random = m->random * 1664525 + 1013904223;
    return (m->random >> 8) % bound;
}

/* A part with a bit to skip in front, of one piece or of several. */
static weir_buf *random_part(model *m, uint8_t *bytes, size_t *length)
{
    *length = random_below(m, 40);
    pattern(bytes, *length, m->random);
    if (random_below(m, 3) > 0) {
        weir_buf *plain = weir_buf_new(*length + 3);
        size_t front = random_below(m, 4);
        assert_int_equal(weir_buf_write_fill(plain, '.', front), 0);
        assert_int_equal(weir_buf_write_bytes(plain, bytes, *length), 0);
        assert_int_equal(weir_buf_skip(plain, front), 0);
        return plain;
    }
    weir_buf *part = weir_buf_new_composite();
    for (size_t at = 0; at < *length;) {
        size_t step = 1 + random_below(m, 9);
        step = step < *length - at ? step : *length - at;
        assert_int_equal(weir_buf_composite_add(part, weir_buf_from(bytes + at, step)), 0);
        at += step;
    }
    return part;
}

static void random_insert(model *m, weir_buf *composite)
{
    uint8_t bytes[64];
    size_t length, start = m->writer;
    size_t count = weir_buf_composite_count(composite);
    weir_buf *part = random_part(m, bytes, &length);
    size_t at = random_below(m, count + 1);
    size_t more = weir_buf_is_composite(part) ? weir_buf_composite_count(part) : length > 0;
    if (at < count)
        assert_int_equal(weir_buf_composite_piece(composite, at, &start, NULL), 0);
    if (at == count && random_below(m, 2) == 0)
        assert_int_equal(weir_buf_composite_add(composite, part), 0);
    else
        assert_int_equal(weir_buf_composite_insert(composite, at, part), 0);
    assert_int_equal(weir_buf_composite_count(composite), count + more);
    memmove(m->bytes + start + length, m->bytes + start, m->writer - start);
    memcpy(m->bytes + start, bytes, length);
    m->writer += length;
    if (m->reader > start)
        m->reader += length;
}

static void random_remove(model *m, weir_buf *composite)
{
    size_t start, length, count = weir_buf_composite_count(composite);
    if (count == 0)
        return;
    size_t at = random_below(m, count);
    assert_int_equal(weir_buf_composite_piece(composite, at, &start, &length), 0);
    assert_int_equal(weir_buf_composite_remove(composite, at), 0);
    memmove(m->bytes + start, m->bytes + start + length, m->writer - start - length);
    m->writer -= length;
    if (m->reader > start)
        m->reader = m->reader < start + length ? start : m->reader - length;
}

static void random_other(model *m, weir_buf *composite)
{
    size_t length;
    switch (random_below(m, 8)) {
    case 0:
    case 7:
        length = random_below(m, m->writer - m->reader + 1);
        assert_int_equal(weir_buf_skip(composite, length), 0);
        assert_int_equal(weir_buf_discard_read(composite), 0);
        m->reader += length;
        memmove(m->bytes, m->bytes + m->reader, m->writer - m->reader);
        m->writer -= m->reader;
        m->reader = 0;
        break;
    case 1:
        length = random_below(m, 100);
        assert_int_equal(weir_buf_write_fill(composite, (uint8_t)length, length), 0);
        memset(m->bytes + m->writer, (int)length, length);
        m->writer += length;
        break;
    case 2:
        m->writer = m->reader + random_below(m, m->writer - m->reader + 1);
        assert_int_equal(weir_buf_set_writer(composite, m->writer), 0);
        break;
    case 3:
        m->reader = random_below(m, m->writer + 1);
        assert_int_equal(weir_buf_set_reader(composite, m->reader), 0);
        break;
    case 4:
        length = random_below(m, weir_buf_capacity(composite) + 1);
        assert_int_equal(weir_buf_set_capacity(composite, length), 0);
        m->writer = m->writer < length ? m->writer : length;
        m->reader = m->reader < m->writer ? m->reader : m->writer;
        break;
    case 5:
        assert_int_equal(weir_buf_composite_consolidate(composite), 0);
        break;
    default:
        assert_int_equal(weir_buf_clear(composite), 0);
        m->reader = m->writer = 0;
        break;
    }
}

/* The pieces lie one behind the other, none empty, and make up the content. */
static void assert_sound(const weir_buf *composite)
{
    size_t at = 0, start, length;
    for (size_t i = 0; i < weir_buf_composite_count(composite); i++, at += length) {
        assert_int_equal(weir_buf_composite_piece(composite, i, &start, &length), 0);
        assert_int_equal(start, at);
        assert_true(length > 0);
        assert_non_null(weir_buf_peek(composite, start, length));
    }
    assert_int_equal(at, weir_buf_writer(composite));
}

static void lives_long_and_at_random(void **state)
{
    (void)state;
    static model m;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        m = (model){ .random = seed };
        weir_buf *composite = weir_buf_new_composite();
        for (int step = 0; step < 1000; step++) {
            size_t choice = random_below(&m, 20);
            if (choice < 12 && m.writer < 8000)
                random_insert(&m, composite);
            else if (choice < 16)
                random_remove(&m, composite);
            else
                random_other(&m, composite);
            assert_content(composite, m.bytes, m.writer);
            assert_int_equal(weir_buf_reader(composite), m.reader);
            assert_sound(composite);
        }
        weir_buf_release(composite);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(begins_empty),
        weir_case(adds_what_is_readable),
        weir_case(adds_without_copying),
        weir_case(takes_the_block_of_its_part),
        weir_case(empty_part_adds_nothing),
        weir_case(composite_part_counts_as_its_pieces),
        weir_case(composite_part_may_be_shared),
        weir_case(slice_of_itself_may_be_added),
        weir_case(room_is_dropped_when_something_is_added),
        weir_case(adds_at_the_writer),
        weir_case(itself_is_refused),
        weir_case(part_is_released_when_adding_fails),
        weir_case(borrowed_part_is_refused),
        weir_case(adds_up_to_its_limit),
        weir_case(only_composites_have_pieces),
        weir_case(inserts_before_any_piece),
        weir_case(inserts_all_pieces_of_a_part),
        weir_case(inserting_keeps_indices_on_their_bytes),
        weir_case(inserts_behind_what_was_discarded),
        weir_case(inserts_and_drops_room),
        weir_case(removes_any_piece),
        weir_case(removing_keeps_indices_on_their_bytes),
        weir_case(removes_a_piece_with_room_behind_it),
        weir_case(tells_its_pieces),
        weir_case(duplicate_has_pieces_of_its_own),
        weir_case(consolidates_into_one_piece),
        weir_case(one_piece_needs_no_consolidating),
        weir_case(consolidates_with_room_behind),
        weir_case(consolidates_though_it_is_read_only),
        weir_case(read_only_piece_refuses_just_its_range),
        weir_case(read_only_piece_stays_so_in_views),
        weir_case(read_only_piece_is_no_room),
        weir_case(consolidating_makes_a_read_only_piece_settable),
        weir_case(discarding_lets_go_of_whole_pieces),
        weir_case(cutting_lets_go_of_whole_pieces),
        weir_case(nothing_is_left_of_an_emptied_piece),
        weir_case(inserts_after_an_emptied_piece),
        weir_case(removes_after_an_emptied_piece),
        weir_case(writes_after_an_emptied_piece),
        weir_case(streams_without_growing),
        weir_case(thousands_of_pieces_keep_their_order),
        weir_case(positions_begin_anew_before_they_overflow),
        weir_case(discards_across_the_turning_point),
        weir_case(pointer_gets_a_piece_of_its_own),
        weir_case(pointer_fits_the_limit),
        weir_case(slices_outlive_their_composite),
        weir_case(part_was_just_released_elsewhere),
        weir_case(lives_long_and_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
