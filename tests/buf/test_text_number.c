/* SPDX-License-Identifier: MIT */
/* Numbers that stand in buffers as text, formatted text, and constant bytes. */
#include "kinds.h"

#include <errno.h>
#include <string.h>

typedef struct row {
    const char *text;
    int decimal_digits, hex_digits; /* or a code */
    uint64_t decimal, hex;
} row;

static const row rows[] = {
    { "", -EINVAL, -EINVAL, 0, 0 },
    { "x", -EINVAL, -EINVAL, 0, 0 },
    { " 1", -EINVAL, -EINVAL, 0, 0 },
    { "-1", -EINVAL, -EINVAL, 0, 0 },
    { "+1", -EINVAL, -EINVAL, 0, 0 },
    { "/", -EINVAL, -EINVAL, 0, 0 }, /* the neighbours of digits and letters */
    { ":", -EINVAL, -EINVAL, 0, 0 },
    { "@", -EINVAL, -EINVAL, 0, 0 },
    { "G", -EINVAL, -EINVAL, 0, 0 },
    { "`", -EINVAL, -EINVAL, 0, 0 },
    { "g", -EINVAL, -EINVAL, 0, 0 },
    { "0", 1, 1, 0, 0 },
    { "007;8", 3, 3, 7, 7 },
    { "42\r\n", 2, 2, 42, 0x42 },
    { "9aFz", 1, 3, 9, 0x9af },
    { "fF", -EINVAL, 2, 0, 0xff },
    { "0x1", 1, 1, 0, 0 },
    { "18446744073709551615", 20, -ERANGE, UINT64_MAX, 0 },
    { "18446744073709551616", -ERANGE, -ERANGE, 0, 0 },
    { "99999999999999999999", -ERANGE, -ERANGE, 0, 0 },
    { "ffffffffffffffff", -EINVAL, 16, 0, UINT64_MAX },
    { "10000000000000000", 17, -ERANGE, 10000000000000000, 0 },
};

static void expect_read(subject *s, int (*read)(weir_buf *buf, uint64_t *number), int digits,
                        uint64_t expected)
{
    uint64_t number = 77;
    size_t reader = weir_buf_reader(s->buf);
    assert_int_equal(read(s->buf, &number), digits);
    assert_int_equal(number, digits > 0 ? expected : 77);
    assert_int_equal(weir_buf_reader(s->buf), reader + (digits > 0 ? (size_t)digits : 0));
    assert_int_equal(weir_buf_set_reader(s->buf, reader), 0);
}

static void reads_numbers(const kind *of, const void *arg)
{
    (void)arg;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        subject s;
        subject_open(&s, of, rows[i].text, strlen(rows[i].text), 4);
        expect_read(&s, weir_buf_read_decimal, rows[i].decimal_digits, rows[i].decimal);
        expect_read(&s, weir_buf_read_hex, rows[i].hex_digits, rows[i].hex);
        subject_close(&s);
    }
}

static void gets_numbers_within_a_range(const kind *of, const void *arg)
{
    (void)arg;
    subject s;
    uint64_t number = 77;
    subject_open(&s, of, "ab123456", 8, 4);
    assert_int_equal(weir_buf_get_decimal(s.buf, 2, 3, &number), 3);
    assert_int_equal(number, 123);
    assert_int_equal(weir_buf_get_decimal(s.buf, 5, 99, &number), 3); /* ends with the content */
    assert_int_equal(number, 456);
    assert_int_equal(weir_buf_get_hex(s.buf, 0, 3, &number), 3);
    assert_int_equal(number, 0xab1);
    assert_int_equal(weir_buf_get_hex(s.buf, 0, 0, &number), -EINVAL);
    assert_int_equal(weir_buf_get_hex(s.buf, 8, 1, &number), -EINVAL);
    assert_int_equal(weir_buf_get_hex(s.buf, SIZE_MAX, 1, &number), -EINVAL);
    assert_int_equal(number, 0xab1);
    assert_int_equal(weir_buf_reader(s.buf), 0);
    assert_int_equal(weir_buf_get_decimal(s.buf, 2, 1, NULL), -EINVAL);
    assert_int_equal(weir_buf_get_decimal(NULL, 0, 1, &number), -EINVAL);
    subject_close(&s);
}

static void hash_of_bytes_is_that_of_a_buffer(void **state)
{
    static const uint64_t key[2] = { 1, 2 };
    (void)state;
    weir_buf *buf = weir_buf_from("some bytes", 10);
    assert_non_null(buf);
    assert_int_equal(weir_hash_bytes("some bytes", 10, NULL), weir_buf_hash(buf, NULL));
    assert_int_equal(weir_hash_bytes("some bytes", 10, key), weir_buf_hash(buf, key));
    assert_true(weir_hash_bytes("some bytes", 10, key) != weir_hash_bytes("some bytes", 9, key));
    assert_int_equal(weir_hash_bytes("", 0, NULL), weir_buf_hash(NULL, NULL));
    weir_buf_release(buf);
}

static void constant_bytes_are_not_copied_nor_changed(void **state)
{
    static const char text[] = "always the same";
    (void)state;
    weir_buf *buf = weir_buf_wrap_const(text, sizeof text - 1);
    assert_non_null(buf);
    assert_true(weir_buf_is_read_only(buf));
    assert_ptr_equal(weir_buf_peek(buf, 0, sizeof text - 1), text);
    assert_refused(buf, WEIR_EREADONLY, weir_buf_write_bytes(buf, "x", 1));
    assert_refused(buf, WEIR_EREADONLY, weir_buf_set_bytes(buf, 0, "x", 1));
    assert_int_equal(weir_buf_set_writer(buf, 6), 0);
    assert_refused(buf, WEIR_EREADONLY, weir_buf_write_bytes(buf, "x", 1));
    weir_buf_release(buf);
    assert_null(weir_buf_wrap_const(NULL, 1));
    assert_null(weir_buf_wrap_const(text, SIZE_MAX));
    harness_fail_nth("alloc", 1, -ENOMEM);
    buf = weir_buf_wrap_const(text, 1);
    harness_fail_end();
    weir_buf_release(buf); /* NULL, unless the pool had a block */
}

int main(void)
{
    static const struct CMUnitTest plain[] = {
        weir_case(hash_of_bytes_is_that_of_a_buffer),
        weir_case(constant_bytes_are_not_copied_nor_changed),
    };
    static const kind_case cases[] = {
        for_all(reads_numbers),
        for_all(gets_numbers_within_a_range),
    };
    return kinds_run("text numbers", cases, sizeof cases / sizeof *cases, plain,
                     sizeof plain / sizeof *plain);
}
