/* SPDX-License-Identifier: MIT */
/* Looking at content: finding, comparing, hashing and dumping it, whatever pieces it lies in. */
#include "kinds.h"

#include <errno.h>
#include <string.h>

/* Finding ----------------------------------------------------------------------------------- */

/* What a search must say, computed the simple way; `sequence` is not empty. */
static int64_t first_of(const uint8_t *content, size_t index, size_t length, const void *sequence,
                        size_t sequence_length)
{
    for (size_t at = index; at + sequence_length <= index + length; at++) {
        if (memcmp(content + at, sequence, sequence_length) == 0)
            return (int64_t)at;
    }
    return WEIR_ENOTFOUND;
}

static int64_t last_of(const uint8_t *content, size_t index, size_t length, const void *sequence,
                       size_t sequence_length)
{
    for (size_t end = index + length; end >= index + sequence_length; end--) {
        if (memcmp(content + end - sequence_length, sequence, sequence_length) == 0)
            return (int64_t)(end - sequence_length);
    }
    return WEIR_ENOTFOUND;
}

static void finds_bytes_in_any_range(const kind *of, const void *arg)
{
    (void)arg;
    static const char content[] = "abcabcdabcdeabcdefz";
    static const char wanted[] = "abcdefzx";
    const uint8_t *bytes = (const uint8_t *)content;
    size_t all = sizeof content - 1;
    subject s;
    subject_open(&s, of, content, all, 0);
    for (const char *byte = wanted; *byte != '\0'; byte++) {
        for (size_t index = 0; index <= all; index++) {
            for (size_t length = 0; index + length <= all; length++) {
                assert_int_equal(weir_buf_find(s.buf, index, length, (uint8_t)*byte),
                                 first_of(bytes, index, length, byte, 1));
                assert_int_equal(weir_buf_find_last(s.buf, index, length, (uint8_t)*byte),
                                 last_of(bytes, index, length, byte, 1));
            }
        }
    }
    subject_close(&s);
}

static void finds_nothing_in_its_room(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    subject_open(&s, of, "aaaaaaaaaaaaxyz", 15, 0);
    assert_int_equal(weir_buf_set_writer(s.buf, 12), 0);
    assert_int_equal(weir_buf_find(s.buf, 0, 12, 'x'), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_last(s.buf, 0, 12, 'x'), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_bytes(s.buf, 0, 12, "ax", 2), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_bytes(s.buf, 0, 12, "aaax", 4), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, 12, "ax", 2), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_set_writer(s.buf, 13), 0);
    assert_int_equal(weir_buf_find(s.buf, 0, 13, 'x'), 12);
    assert_int_equal(weir_buf_find_bytes(s.buf, 0, 13, "aaax", 4), 9);
    assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, 13, "ax", 2), 11);
    subject_close(&s);
}

/* Two letters make near-misses everywhere; all short sequences of them, in all ranges. */
static void finds_sequences_in_any_range(const kind *of, const void *arg)
{
    (void)arg;
    static const char content[] = "abaababbaabaaabbabab";
    const uint8_t *bytes = (const uint8_t *)content;
    size_t all = sizeof content - 1;
    subject s;
    subject_open(&s, of, content, all, 4);
    for (unsigned letters = 2; letters < 64; letters++) {
        char sequence[6];
        size_t sequence_length = 0;
        for (unsigned bits = letters; bits > 1; bits >>= 1)
            sequence[sequence_length++] = bits & 1 ? 'b' : 'a';
        for (size_t index = 0; index <= all; index++) {
            for (size_t length = 0; index + length <= all; length++) {
                assert_int_equal(
                    weir_buf_find_bytes(s.buf, index, length, sequence, sequence_length),
                    first_of(bytes, index, length, sequence, sequence_length));
                assert_int_equal(
                    weir_buf_find_last_bytes(s.buf, index, length, sequence, sequence_length),
                    last_of(bytes, index, length, sequence, sequence_length));
            }
        }
    }
    subject_close(&s);
}

static void finds_long_sequences(const kind *of, const void *arg)
{
    (void)arg;
    enum { ALL = 200, LONG = 60 };
    uint8_t content[ALL], sequence[ALL + 1];
    pattern(content, ALL, 1);
    subject s;
    subject_open(&s, of, content, ALL, 0);
    for (size_t at = 0; at + LONG <= ALL; at++) {
        memcpy(sequence, content + at, LONG);
        assert_int_equal(weir_buf_find_bytes(s.buf, 0, ALL, sequence, LONG), at);
        assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, ALL, sequence, LONG), at);
        /* Whole in the range, or not at all. */
        assert_int_equal(weir_buf_find_bytes(s.buf, at, LONG, sequence, LONG), at);
        assert_int_equal(weir_buf_find_last_bytes(s.buf, at, LONG, sequence, LONG), at);
        assert_int_equal(weir_buf_find_bytes(s.buf, 0, at + LONG - 1, sequence, LONG),
                         WEIR_ENOTFOUND);
        assert_int_equal(weir_buf_find_last_bytes(s.buf, at + 1, ALL - at - 1, sequence, LONG),
                         WEIR_ENOTFOUND);
        /* All but its last byte, all but its first. */
        sequence[LONG - 1] ^= 1;
        assert_int_equal(weir_buf_find_bytes(s.buf, 0, ALL, sequence, LONG), WEIR_ENOTFOUND);
        assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, ALL, sequence, LONG), WEIR_ENOTFOUND);
        sequence[LONG - 1] ^= 1;
        sequence[0] ^= 1;
        assert_int_equal(weir_buf_find_bytes(s.buf, 0, ALL, sequence, LONG), WEIR_ENOTFOUND);
        assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, ALL, sequence, LONG), WEIR_ENOTFOUND);
    }
    memcpy(sequence, content, ALL);
    assert_int_equal(weir_buf_find_bytes(s.buf, 0, ALL, sequence, ALL), 0);
    assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, ALL, sequence, ALL), 0);
    assert_int_equal(weir_buf_find_bytes(s.buf, 0, ALL, sequence, ALL + 1), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, ALL, sequence, ALL + 1), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_bytes(s.buf, 0, ALL, sequence, SIZE_MAX), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_last_bytes(s.buf, 0, ALL, sequence, SIZE_MAX), WEIR_ENOTFOUND);
    subject_close(&s);
}

typedef struct asking {
    uint8_t wanted;
    uint8_t asked[64];
    size_t count;
} asking;

static bool ask(void *arg, uint8_t byte)
{
    asking *a = arg;
    a->asked[a->count++] = byte;
    return byte == a->wanted;
}

static void asks_in_order(const kind *of, const void *arg)
{
    (void)arg;
    enum { ALL = 20 };
    uint8_t content[ALL];
    pattern(content, ALL, 1);
    subject s;
    subject_open(&s, of, content, ALL, 4);
    for (size_t index = 0; index < ALL; index++) {
        for (size_t length = 1; index + length <= ALL; length++) {
            for (size_t at = index; at < index + length; at++) {
                asking forward = { .wanted = content[at] }, backward = forward;
                assert_int_equal(weir_buf_find_if(s.buf, index, length, ask, &forward), at);
                assert_int_equal(forward.count, at - index + 1);
                assert_memory_equal(forward.asked, content + index, forward.count);
                assert_int_equal(weir_buf_find_last_if(s.buf, index, length, ask, &backward), at);
                assert_int_equal(backward.count, index + length - at);
                for (size_t i = 0; i < backward.count; i++)
                    assert_int_equal(backward.asked[i], content[index + length - 1 - i]);
            }
        }
    }
    asking nothing = { .wanted = 0xee }; /* what the room is filled with */
    assert_int_equal(weir_buf_find_if(s.buf, 0, ALL, ask, &nothing), WEIR_ENOTFOUND);
    assert_int_equal(nothing.count, ALL);
    assert_int_equal(weir_buf_find_last_if(s.buf, 0, ALL, ask, &nothing), WEIR_ENOTFOUND);
    assert_int_equal(nothing.count, 2 * ALL);
    assert_int_equal(weir_buf_find_if(s.buf, 3, 0, ask, &nothing), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_find_last_if(s.buf, 3, 0, ask, &nothing), WEIR_ENOTFOUND);
    assert_int_equal(nothing.count, 2 * ALL);
    subject_close(&s);
}

static void searches_outside_are_refused(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    subject_open(&s, of, "abcabcabc", 9, 4);
    range outside[OUTSIDE_COUNT];
    ranges_outside(9, outside);
    asking nothing = { .wanted = 'a' };
    for (int i = 0; i < OUTSIDE_COUNT; i++) {
        size_t index = outside[i].index, length = outside[i].length;
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_find(s.buf, index, length, 'a'));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_find_last(s.buf, index, length, 'a'));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_find_bytes(s.buf, index, length, "ab", 2));
        assert_refused(s.buf, WEIR_EBOUNDS,
                       weir_buf_find_last_bytes(s.buf, index, length, "ab", 2));
        assert_refused(s.buf, WEIR_EBOUNDS, weir_buf_find_if(s.buf, index, length, ask, &nothing));
        assert_refused(s.buf, WEIR_EBOUNDS,
                       weir_buf_find_last_if(s.buf, index, length, ask, &nothing));
    }
    assert_int_equal(nothing.count, 0);
    assert_refused(s.buf, -EINVAL, weir_buf_find_bytes(s.buf, 0, 9, "ab", 0));
    assert_refused(s.buf, -EINVAL, weir_buf_find_last_bytes(s.buf, 0, 9, "ab", 0));
    assert_refused(s.buf, -EINVAL, weir_buf_find_bytes(s.buf, 0, 9, NULL, 2));
    assert_refused(s.buf, -EINVAL, weir_buf_find_last_bytes(s.buf, 0, 9, NULL, 2));
    assert_refused(s.buf, -EINVAL, weir_buf_find_if(s.buf, 0, 9, NULL, NULL));
    assert_refused(s.buf, -EINVAL, weir_buf_find_last_if(s.buf, 0, 9, NULL, NULL));
    subject_close(&s);
}

/* Comparing --------------------------------------------------------------------------------- */

#define LENGTH 40

static void compares_with_every_kind(const kind *of, const void *arg)
{
    (void)arg;
    uint8_t content[LENGTH], changed[LENGTH];
    pattern(content, LENGTH, 1);
    for (size_t i = 0; i < kinds_count; i++) {
        subject s, other;
        subject_open(&s, of, content, LENGTH, 3);
        subject_open(&other, &kinds[i], content, LENGTH, 0);
        assert_int_equal(weir_buf_compare(s.buf, other.buf), 0);
        assert_true(weir_buf_equal(s.buf, other.buf));
        assert_int_equal(weir_buf_hash(s.buf, NULL), weir_buf_hash(other.buf, NULL));
        subject_close(&other);
        for (size_t at = 0; at < LENGTH; at++) {
            memcpy(changed, content, LENGTH);
            changed[at] ^= 0x80; /* the sign of a char, not of a byte */
            int order = content[at] < changed[at] ? -1 : 1;
            subject_open(&other, &kinds[i], changed, LENGTH, 0);
            assert_int_equal(weir_buf_compare(s.buf, other.buf), order);
            assert_int_equal(weir_buf_compare(other.buf, s.buf), -order);
            assert_false(weir_buf_equal(s.buf, other.buf));
            assert_true(weir_buf_hash(s.buf, NULL) != weir_buf_hash(other.buf, NULL));
            subject_close(&other);
        }
        subject_close(&s);
    }
}

static void shorter_comes_first(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint8_t content[LENGTH];
    pattern(content, LENGTH, 1);
    weir_buf *whole = weir_buf_from(content, LENGTH);
    for (size_t length = 0; length < LENGTH; length++) {
        subject_open(&s, of, content, length, LENGTH - length);
        assert_int_equal(weir_buf_compare(s.buf, whole), -1);
        assert_int_equal(weir_buf_compare(whole, s.buf), 1);
        assert_false(weir_buf_equal(s.buf, whole));
        assert_int_equal(weir_buf_compare(s.buf, NULL), length > 0);
        assert_int_equal(weir_buf_compare(NULL, s.buf), length > 0 ? -1 : 0);
        assert_int_equal(weir_buf_equal(s.buf, NULL), length == 0);
        assert_int_equal(weir_buf_equal(NULL, s.buf), length == 0);
        subject_close(&s);
    }
    /* The first difference decides, not the length. */
    subject_open(&s, of, "b", 1, 0);
    weir_buf *longer = weir_buf_from("abcdef", 6);
    assert_int_equal(weir_buf_compare(s.buf, longer), 1);
    assert_int_equal(weir_buf_compare(longer, s.buf), -1);
    subject_close(&s);
    weir_buf_release(longer);
    weir_buf_release(whole);
}

static void compares_what_is_readable(const kind *of, const void *arg)
{
    (void)arg;
    uint8_t content[LENGTH];
    pattern(content, LENGTH, 1);
    subject s;
    subject_open(&s, of, content, LENGTH, 3);
    for (size_t reader = 0; reader <= LENGTH; reader++) {
        weir_buf *rest = weir_buf_from(content + reader, LENGTH - reader);
        assert_int_equal(weir_buf_set_reader(s.buf, reader), 0);
        assert_true(weir_buf_equal(s.buf, rest));
        assert_int_equal(weir_buf_compare(s.buf, rest), 0);
        assert_int_equal(weir_buf_hash(s.buf, NULL), weir_buf_hash(rest, NULL));
        weir_buf_release(rest);
    }
    assert_true(weir_buf_equal(s.buf, NULL));
    assert_int_equal(weir_buf_hash(s.buf, NULL), weir_buf_hash(NULL, NULL));
    subject_close(&s);
}

static void hashes_as_the_authors_of_siphash_do(const kind *of, const void *arg)
{
    (void)arg;
    /* The bytes 0, 1, 2... under the key 0, 1, ... 15: the paper's example and its neighbours. */
    static const struct {
        size_t length;
        uint64_t hash;
    } vectors[] = {
        { 0, 0x726fdb47dd0e0e31 },
        { 1, 0x74f839c593dc67fd },
        { 8, 0x93f5f5799a932462 },
        { 15, 0xa129ca6149be45e5 },
    };
    static const uint64_t key[2] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };
    uint8_t content[15];
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        subject s;
        subject_open(&s, of, content, vectors[i].length, 2);
        assert_int_equal(weir_buf_hash(s.buf, key), vectors[i].hash);
        subject_close(&s);
    }
}

static void hash_depends_on_bytes_and_key_only(const kind *of, const void *arg)
{
    (void)arg;
    static const uint64_t keys[][2] = { { 1, 0 }, { 0, 1 }, { 1, 1 } };
    uint8_t content[100];
    pattern(content, sizeof content, 1);
    for (size_t length = 0; length <= sizeof content; length += 7) {
        subject s;
        subject_open(&s, of, content, length, 5);
        weir_buf *plain = weir_buf_from(content, length);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(weir_buf_hash(s.buf, keys[i]), weir_buf_hash(plain, keys[i]));
            assert_true(weir_buf_hash(s.buf, keys[i]) != weir_buf_hash(s.buf, keys[(i + 1) % 3]));
        }
        weir_buf_release(plain);
        subject_close(&s);
    }
}

/* Dumping ----------------------------------------------------------------------------------- */

#define RULER                                                                                      \
    "         +-------------------------------------------------+\n"                               \
    "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n"                               \
    "+--------+-------------------------------------------------+----------------+\n"
#define FOOT "+--------+-------------------------------------------------+----------------+\n"

static void dumps_a_table(const kind *of, const void *arg)
{
    (void)arg;
    static const char content[] = "GET / HTTP/1.1\r\nHost: weir\r\n\x7f\x80\xff ~";
    static const char expected[] = RULER
        "|00000000| 47 45 54 20 2f 20 48 54 54 50 2f 31 2e 31 0d 0a |GET / HTTP/1.1..|\n"
        "|00000010| 48 6f 73 74 3a 20 77 65 69 72 0d 0a 7f 80 ff 20 |Host: weir..... |\n"
        "|00000020| 7e                                              |~               |\n" FOOT;
    subject s;
    subject_open(&s, of, content, sizeof content - 1, 5);
    weir_buf *out = weir_buf_new(0);
    assert_int_equal(weir_buf_hex_dump(s.buf, 0, sizeof content - 1, out), 0);
    assert_content(out, expected, sizeof expected - 1);
    assert_content(s.buf, content, sizeof content - 1);
    weir_buf_release(out);
    subject_close(&s);
}

static void dumps_a_range(const kind *of, const void *arg)
{
    (void)arg;
    static const char content[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    static const char expected[] =
        "so: " RULER
        "|00000000| 37 38 39 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d |789abcdefghijklm|\n" FOOT;
    static const char nothing[] = RULER FOOT;
    subject s;
    subject_open(&s, of, content, sizeof content - 1, 5);
    weir_buf *out = weir_buf_from("so: ", 4);
    assert_int_equal(weir_buf_hex_dump(s.buf, 7, 16, out), 0);
    assert_content(out, expected, sizeof expected - 1);
    assert_int_equal(weir_buf_clear(out), 0);
    assert_int_equal(weir_buf_hex_dump(s.buf, 7, 0, out), 0);
    assert_content(out, nothing, sizeof nothing - 1);
    range outside[OUTSIDE_COUNT];
    ranges_outside(sizeof content - 1, outside);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        assert_refused(out, WEIR_EBOUNDS,
                       weir_buf_hex_dump(s.buf, outside[i].index, outside[i].length, out));
    assert_refused(s.buf, -EINVAL, weir_buf_hex_dump(s.buf, 0, 4, NULL));
    assert_refused(s.buf, -EINVAL, weir_buf_hex_dump(s.buf, 0, 4, s.buf));
    weir_buf_release(out);
    subject_close(&s);
}

/* The table is written into any kind, whole or not at all, and needs no byte more than it has. */
static void takes_a_dump(const kind *of, const void *arg)
{
    (void)arg;
    static const char expected[] =
        "<" RULER "|00000000| 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70 |abcdefghijklmnop|\n"
        "|00000010| 71 72 73 74 75 76 77 78 79 7a 30 31 32 33 34 35 |qrstuvwxyz012345|\n" FOOT;
    size_t length = sizeof expected - 1;
    weir_buf *dumped = weir_buf_from("abcdefghijklmnopqrstuvwxyz012345", 32);
    for (size_t missing = 0; missing < 2; missing++) {
        subject s;
        subject_open(&s, of, "<", 1, length - 1 - missing);
        if (of->traits & CAN_GROW)
            assert_int_equal(weir_buf_set_limit(s.buf, length - missing), 0);
        if (missing) {
            assert_refused(s.buf, WEIR_ELIMIT, weir_buf_hex_dump(dumped, 0, 32, s.buf));
        } else {
            assert_int_equal(weir_buf_hex_dump(dumped, 0, 32, s.buf), 0);
            assert_content(s.buf, expected, length);
        }
        subject_close(&s);
    }
    weir_buf_release(dumped);
}

/* Without a kind ---------------------------------------------------------------------------- */

static void null_is_refused(void **state)
{
    (void)state;
    weir_buf *buf = weir_buf_from("abc", 3);
    asking nothing = { 0 };
    assert_int_equal(weir_buf_find(NULL, 0, 0, 1), -EINVAL);
    assert_int_equal(weir_buf_find_last(NULL, 0, 0, 1), -EINVAL);
    assert_int_equal(weir_buf_find_bytes(NULL, 0, 0, "a", 1), -EINVAL);
    assert_int_equal(weir_buf_find_last_bytes(NULL, 0, 0, "a", 1), -EINVAL);
    assert_int_equal(weir_buf_find_if(NULL, 0, 0, ask, &nothing), -EINVAL);
    assert_int_equal(weir_buf_find_last_if(NULL, 0, 0, ask, &nothing), -EINVAL);
    assert_refused(buf, -EINVAL, weir_buf_hex_dump(NULL, 0, 0, buf));
    assert_int_equal(weir_buf_hex_dump(NULL, 0, 0, NULL), -EINVAL);
    weir_buf_release(buf);
}

static void null_is_empty(void **state)
{
    (void)state;
    weir_buf *empty = weir_buf_new(10);
    assert_int_equal(weir_buf_compare(NULL, NULL), 0);
    assert_true(weir_buf_equal(NULL, NULL));
    assert_int_equal(weir_buf_compare(NULL, empty), 0);
    assert_true(weir_buf_equal(empty, NULL));
    assert_int_equal(weir_buf_hash(NULL, NULL), weir_buf_hash(empty, NULL));
    weir_buf_release(empty);
}

static void finds_across_thousands_of_pieces(void **state)
{
    (void)state;
    enum { ALL = 20000 };
    weir_buf *composite = weir_buf_new_composite();
    weir_buf *whole = weir_buf_new(ALL);
    assert_int_equal(weir_buf_write_fill(whole, 'a', ALL), 0);
    assert_int_equal(weir_buf_set_bytes(whole, ALL - 6, "bcdabc", 6), 0);
    while (weir_buf_readable(whole) > 0) {
        weir_buf *piece;
        size_t step = weir_buf_readable(whole) < 3 ? weir_buf_readable(whole) : 3;
        assert_int_equal(weir_buf_read_slice(whole, step, &piece), 0);
        assert_int_equal(weir_buf_composite_add(composite, piece), 0);
    }
    assert_int_equal(weir_buf_find(composite, 0, ALL, 'b'), ALL - 6);
    assert_int_equal(weir_buf_find_bytes(composite, 0, ALL, "aaabcd", 6), ALL - 9);
    assert_int_equal(weir_buf_find_bytes(composite, 0, ALL, "aabcd", 5), ALL - 8);
    assert_int_equal(weir_buf_find_last_bytes(composite, 0, ALL, "abc", 3), ALL - 3);
    assert_int_equal(weir_buf_find_last_bytes(composite, 0, ALL - 1, "abc", 3), ALL - 7);
    assert_int_equal(weir_buf_find_last_bytes(composite, 0, ALL - 5, "abc", 3), WEIR_ENOTFOUND);
    assert_int_equal(weir_buf_set_reader(whole, 0), 0);
    assert_true(weir_buf_equal(whole, composite));
    assert_int_equal(weir_buf_hash(whole, NULL), weir_buf_hash(composite, NULL));
    weir_buf_release(composite);
    weir_buf_release(whole);
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        weir_case(null_is_refused),
        weir_case(null_is_empty),
        weir_case(finds_across_thousands_of_pieces),
    };
    static const kind_case cases[] = {
        for_all(finds_bytes_in_any_range),
        for_all(finds_nothing_in_its_room),
        for_all(finds_sequences_in_any_range),
        for_all(finds_long_sequences),
        for_all(asks_in_order),
        for_all(searches_outside_are_refused),
        for_all(compares_with_every_kind),
        for_all(shorter_comes_first),
        for_all(compares_what_is_readable),
        for_all(hashes_as_the_authors_of_siphash_do),
        for_all(hash_depends_on_bytes_and_key_only),
        for_all(dumps_a_table),
        for_all(dumps_a_range),
        for_those(takes_a_dump, 0, IS_READ_ONLY),
    };
    return kinds_run("search", cases, sizeof cases / sizeof *cases, plain,
                     sizeof plain / sizeof *plain);
}
