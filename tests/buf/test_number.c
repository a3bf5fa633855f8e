/* SPDX-License-Identifier: MIT */
/* Numbers in buffers: every type, in both byte orders, in every kind of buffer. */
#include "kinds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * All types behind one face: a number is 64 bits, sign-extended when its type has a sign, the
 * representation when it is a float. What is expected is computed here, a byte at a time.
 */
typedef struct number {
    const char *name;
    unsigned width; /* in bits */
    bool is_little, is_signed;
    int (*get)(const weir_buf *buf, size_t index, uint64_t *bits);
    int (*set)(weir_buf *buf, size_t index, uint64_t bits);
    int (*read)(weir_buf *buf, uint64_t *bits);
    int (*write)(weir_buf *buf, uint64_t bits);
} number;

#define INTEGER_BITS(value) ((uint64_t)(value))
#define INTEGER_FROM(type, bits) ((type)(bits))
#define FLOAT_BITS(value) bits_of_float(value)
#define FLOAT_FROM(type, bits) float_from(bits)
#define DOUBLE_BITS(value) bits_of_double(value)
#define DOUBLE_FROM(type, bits) double_from(bits)

static uint64_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_from(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_from(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits go in as well, so that a call that fails can be seen to leave the value alone. */
#define FACE(name, type, REPRESENTATION)                                                           \
    static int get_##name(const weir_buf *buf, size_t index, uint64_t *bits)                       \
    {                                                                                              \
        type value = REPRESENTATION##_FROM(type, *bits);                                           \
        int code = weir_buf_get_##name(buf, index, &value);                                        \
        *bits = REPRESENTATION##_BITS(value);                                                      \
        return code;                                                                               \
    }                                                                                              \
    static int set_##name(weir_buf *buf, size_t index, uint64_t bits)                              \
    {                                                                                              \
        return weir_buf_set_##name(buf, index, REPRESENTATION##_FROM(type, bits));                 \
    }                                                                                              \
    static int read_##name(weir_buf *buf, uint64_t *bits)                                          \
    {                                                                                              \
        type value = REPRESENTATION##_FROM(type, *bits);                                           \
        int code = weir_buf_read_##name(buf, &value);                                              \
        *bits = REPRESENTATION##_BITS(value);                                                      \
        return code;                                                                               \
    }                                                                                              \
    static int write_##name(weir_buf *buf, uint64_t bits)                                          \
    {                                                                                              \
        return weir_buf_write_##name(buf, REPRESENTATION##_FROM(type, bits));                      \
    }

FACE(u8, uint8_t, INTEGER)
FACE(i8, int8_t, INTEGER)
FACE(u16, uint16_t, INTEGER)
FACE(i16, int16_t, INTEGER)
FACE(u24, uint32_t, INTEGER)
FACE(i24, int32_t, INTEGER)
FACE(u32, uint32_t, INTEGER)
FACE(i32, int32_t, INTEGER)
FACE(u64, uint64_t, INTEGER)
FACE(i64, int64_t, INTEGER)
FACE(f32, float, FLOAT)
FACE(f64, double, DOUBLE)
FACE(u16_le, uint16_t, INTEGER)
FACE(i16_le, int16_t, INTEGER)
FACE(u24_le, uint32_t, INTEGER)
FACE(i24_le, int32_t, INTEGER)
FACE(u32_le, uint32_t, INTEGER)
FACE(i32_le, int32_t, INTEGER)
FACE(u64_le, uint64_t, INTEGER)
FACE(i64_le, int64_t, INTEGER)
FACE(f32_le, float, FLOAT)
FACE(f64_le, double, DOUBLE)

#define NUMBER(name, width, is_little, is_signed)                                                  \
    {                                                                                              \
#name, width, is_little, is_signed, get_##name, set_##name, read_##name, write_##name      \
    }

static const number numbers[] = {
    NUMBER(u8, 8, false, false),     NUMBER(i8, 8, false, true),
    NUMBER(u16, 16, false, false),   NUMBER(i16, 16, false, true),
    NUMBER(u24, 24, false, false),   NUMBER(i24, 24, false, true),
    NUMBER(u32, 32, false, false),   NUMBER(i32, 32, false, true),
    NUMBER(u64, 64, false, false),   NUMBER(i64, 64, false, true),
    NUMBER(f32, 32, false, false),   NUMBER(f64, 64, false, false),
    NUMBER(u16_le, 16, true, false), NUMBER(i16_le, 16, true, true),
    NUMBER(u24_le, 24, true, false), NUMBER(i24_le, 24, true, true),
    NUMBER(u32_le, 32, true, false), NUMBER(i32_le, 32, true, true),
    NUMBER(u64_le, 64, true, false), NUMBER(i64_le, 64, true, true),
    NUMBER(f32_le, 32, true, false), NUMBER(f64_le, 64, true, false),
};

#define NUMBER_COUNT (sizeof numbers / sizeof *numbers)

static uint64_t decoded(const number *n, const uint8_t *bytes)
{
    uint64_t bits = 0;
    unsigned size = n->width / 8;
    for (unsigned i = 0; i < size; i++)
        bits = bits * 256 + bytes[n->is_little ? size - 1 - i : i];
    if (n->is_signed && n->width < 64 && bits >= (uint64_t)1 << (n->width - 1))
        bits -= (uint64_t)1 << n->width;
    return bits;
}

static void encode(const number *n, uint64_t bits, uint8_t *bytes)
{
    unsigned size = n->width / 8;
    for (unsigned i = 0; i < size; i++) {
        bytes[n->is_little ? i : size - 1 - i] = (uint8_t)(bits % 256);
        bits /= 256;
    }
}

#define CONTENT_LENGTH 48
#define UNTOUCHED 0x55

/* Bytes from which every type reads numbers of both signs, and NaNs and a -0.0 in both orders. */
static void fill_content(uint8_t content[CONTENT_LENGTH])
{
    static const uint8_t special[] = { 0x7f, 0xc0, 0x01, 0x02, 0x01, 0xc0, 0x7f, 0x80, 0,    0, 0,
                                       0,    0,    0,    0,    0x80, 0x7f, 0xff, 0xff, 0xff, 0, 1 };
    pattern(content, CONTENT_LENGTH, 0);
    memcpy(content + 13, special, sizeof special);
}

static void gets_it_anywhere(const number *n, const weir_buf *buf, const uint8_t *content)
{
    size_t size = n->width / 8, writer = weir_buf_writer(buf);
    for (size_t i = 0; i + size <= writer; i++) {
        uint64_t bits = UNTOUCHED;
        assert_int_equal(n->get(buf, i, &bits), 0);
        assert_int_equal(bits, decoded(n, content + i));
    }
    static const size_t beyond[] = { 0, 1, CONTENT_LENGTH, SIZE_MAX - 100, (size_t)1 << 32 };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        uint64_t bits = UNTOUCHED;
        assert_refused(buf, WEIR_EBOUNDS, n->get(buf, writer - size + 1 + beyond[i], &bits));
        assert_int_equal(bits, UNTOUCHED);
    }
}

static void reads(const kind *of, const void *arg)
{
    const number *n = arg;
    size_t size = n->width / 8;
    uint8_t content[CONTENT_LENGTH];
    fill_content(content);
    subject s;
    /* With room that looks like content, which must not be handed out. */
    subject_open(&s, of, content, CONTENT_LENGTH, 16);
    gets_it_anywhere(n, s.buf, content);
    for (size_t start = 0; start < size; start++) {
        assert_int_equal(weir_buf_set_reader(s.buf, start), 0);
        size_t at = start;
        uint64_t bits;
        for (; at + size <= CONTENT_LENGTH; at += size) {
            bits = UNTOUCHED;
            assert_int_equal(n->read(s.buf, &bits), 0);
            assert_int_equal(bits, decoded(n, content + at));
            assert_int_equal(weir_buf_reader(s.buf), at + size);
        }
        bits = UNTOUCHED;
        assert_refused(s.buf, WEIR_EBOUNDS, n->read(s.buf, &bits));
        assert_int_equal(bits, UNTOUCHED);
    }
    /* What lies before the reader is still content. */
    gets_it_anywhere(n, s.buf, content);
    subject_close(&s);
}

/* Among them, for the float types: NaNs with something to say, -0.0, infinity, the smallest. */
static const uint64_t values[] = {
    0,
    1,
    0x0102030405060708,
    0xfedcba9876543210,
    0xffffffffffffffff,
    0x80,
    0x8000,
    0x7fffff,
    0xff800000,
    0x7f800001ull << 32 | 0x80000000,
    0x7fc01234,
    0xffc00001,
    0x7f800000,
    0x7ff8000000012345,
    0xfff8dead0000beef,
    0x8000000000000000,
    0x7ff0000000000000,
};

#define VALUE_COUNT (sizeof values / sizeof *values)

static void sets(const kind *of, const void *arg)
{
    const number *n = arg;
    size_t size = n->width / 8;
    uint8_t content[CONTENT_LENGTH];
    fill_content(content);
    subject s;
    subject_open(&s, of, content, CONTENT_LENGTH, 16);
    assert_int_equal(weir_buf_set_reader(s.buf, 7), 0);
    for (size_t i = 0; i + size <= CONTENT_LENGTH; i++) {
        uint64_t bits = values[i % VALUE_COUNT];
        encode(n, bits, content + i);
        assert_int_equal(n->set(s.buf, i, bits), 0);
        assert_content(s.buf, content, CONTENT_LENGTH);
    }
    assert_int_equal(weir_buf_reader(s.buf), 7);
    static const size_t beyond[] = { 0, 1, CONTENT_LENGTH, SIZE_MAX - 100, (size_t)1 << 32 };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        assert_refused(s.buf, WEIR_EBOUNDS,
                       n->set(s.buf, CONTENT_LENGTH - size + 1 + beyond[i], 1));
    subject_close(&s);
}

static void writes(const kind *of, const void *arg)
{
    const number *n = arg;
    size_t size = n->width / 8;
    for (size_t start = 0; start < size; start++) {
        uint8_t expected[8 + VALUE_COUNT * 8];
        pattern(expected, start, 0);
        subject s;
        subject_open(&s, of, expected, start, VALUE_COUNT * size);
        size_t at = start;
        for (size_t i = 0; i < VALUE_COUNT; i++, at += size) {
            encode(n, values[i], expected + at);
            assert_int_equal(n->write(s.buf, values[i]), 0);
            assert_content(s.buf, expected, at + size);
        }
        for (size_t i = 0; i < VALUE_COUNT; i++) {
            uint64_t bits = UNTOUCHED;
            assert_int_equal(n->get(s.buf, start + i * size, &bits), 0);
            assert_int_equal(bits, decoded(n, expected + start + i * size));
        }
        assert_int_equal(weir_buf_reader(s.buf), 0);
        subject_close(&s);
    }
}

static void writes_beyond_its_capacity(const kind *of, const void *arg)
{
    const number *n = arg;
    size_t size = n->width / 8;
    uint8_t expected[1024];
    pattern(expected, 5, 0);
    subject s;
    subject_open(&s, of, expected, 5, size - 1);
    size_t at = 5;
    for (size_t i = 0; at + size <= sizeof expected; i++, at += size) {
        encode(n, values[i % VALUE_COUNT], expected + at);
        assert_int_equal(n->write(s.buf, values[i % VALUE_COUNT]), 0);
    }
    assert_content(s.buf, expected, at);
    subject_close(&s);
}

static void writes_up_to_its_limit(const kind *of, const void *arg)
{
    const number *n = arg;
    size_t size = n->width / 8;
    uint8_t expected[24];
    pattern(expected, sizeof expected, 0);
    subject s;
    subject_open(&s, of, expected, 5, size + (size - 1));
    if (of->traits & CAN_GROW)
        assert_int_equal(weir_buf_set_limit(s.buf, weir_buf_capacity(s.buf)), 0);
    encode(n, values[2], expected + 5);
    assert_int_equal(n->write(s.buf, values[2]), 0);
    assert_refused(s.buf, WEIR_ELIMIT, n->write(s.buf, values[3]));
    assert_content(s.buf, expected, 5 + size);
    subject_close(&s);
}

static void refuses_to_write(const kind *of, const void *arg)
{
    const number *n = arg;
    uint8_t content[CONTENT_LENGTH];
    fill_content(content);
    subject s;
    subject_open(&s, of, content, CONTENT_LENGTH, 16);
    for (size_t i = 0; i + n->width / 8 <= CONTENT_LENGTH; i++)
        assert_refused(s.buf, WEIR_EREADONLY, n->set(s.buf, i, 0));
    assert_refused(s.buf, WEIR_EREADONLY, n->write(s.buf, 0));
    subject_close(&s);
}

/* Without a kind ---------------------------------------------------------------------------- */

static void null_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        uint64_t bits = UNTOUCHED;
        assert_int_equal(numbers[i].get(NULL, 0, &bits), -EINVAL);
        assert_int_equal(numbers[i].read(NULL, &bits), -EINVAL);
        assert_int_equal(bits, UNTOUCHED);
        assert_int_equal(numbers[i].set(NULL, 0, 1), -EINVAL);
        assert_int_equal(numbers[i].write(NULL, 1), -EINVAL);
    }
}

/* A few by hand, so that the tables above cannot be wrong in the same way as the code. */
static void reads_what_one_would_expect(void **state)
{
    (void)state;
    static const uint8_t bytes[] = { 0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8 };
    weir_buf *buf = weir_buf_from(bytes, sizeof bytes);
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u24, u32;
    int32_t i24, i32;
    uint64_t u64;
    int64_t i64;
    assert_int_equal(weir_buf_get_u8(buf, 1, &u8), 0);
    assert_int_equal(u8, 0xfe);
    assert_int_equal(weir_buf_get_i8(buf, 1, &i8), 0);
    assert_int_equal(i8, -2);
    assert_int_equal(weir_buf_get_u16(buf, 0, &u16), 0);
    assert_int_equal(u16, 0xfffe);
    assert_int_equal(weir_buf_get_i16_le(buf, 0, &i16), 0);
    assert_int_equal(i16, -257);
    assert_int_equal(weir_buf_get_u24(buf, 0, &u24), 0);
    assert_int_equal(u24, 0xfffefd);
    assert_int_equal(weir_buf_get_i24(buf, 0, &i24), 0);
    assert_int_equal(i24, -259);
    assert_int_equal(weir_buf_get_i24_le(buf, 0, &i24), 0);
    assert_int_equal(i24, -131329);
    assert_int_equal(weir_buf_get_u32_le(buf, 0, &u32), 0);
    assert_int_equal(u32, 0xfcfdfeff);
    assert_int_equal(weir_buf_get_i32(buf, 0, &i32), 0);
    assert_int_equal(i32, -66052);
    assert_int_equal(weir_buf_get_u64(buf, 0, &u64), 0);
    assert_int_equal(u64, 0xfffefdfcfbfaf9f8);
    assert_int_equal(weir_buf_get_i64_le(buf, 0, &i64), 0);
    assert_int_equal(i64, -506097522914230529);
    weir_buf_release(buf);
}

static void writes_what_one_would_expect(void **state)
{
    (void)state;
    static const uint8_t expected[] = {
        0x12, 0x34,                                     /* u16 */
        0x34, 0x12,                                     /* u16_le */
        0xff, 0xff, 0xfe,                               /* i24 -2 */
        0x56, 0x34, 0x12,                               /* u24_le, the top byte is left out */
        0x3f, 0xc0, 0x00, 0x00,                         /* f32 1.5 */
        0x00, 0x00, 0x00, 0x80,                         /* f32_le -0.0 */
        0xc0, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* f64 -2.5 */
    };
    weir_buf *buf = weir_buf_new(0);
    assert_int_equal(weir_buf_write_u16(buf, 0x1234), 0);
    assert_int_equal(weir_buf_write_u16_le(buf, 0x1234), 0);
    assert_int_equal(weir_buf_write_i24(buf, -2), 0);
    assert_int_equal(weir_buf_write_u24_le(buf, 0xff123456), 0);
    assert_int_equal(weir_buf_write_f32(buf, 1.5f), 0);
    assert_int_equal(weir_buf_write_f32_le(buf, -0.0f), 0);
    assert_int_equal(weir_buf_write_f64(buf, -2.5), 0);
    assert_content(buf, expected, sizeof expected);
    weir_buf_release(buf);
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        weir_case(null_is_refused),
        weir_case(reads_what_one_would_expect),
        weir_case(writes_what_one_would_expect),
    };
    static const struct {
        const char *format;
        void (*run)(const kind *of, const void *arg);
        unsigned needs, excludes;
    } shapes[] = {
        { "reads_%s", reads, 0, 0 },
        { "sets_%s", sets, 0, IS_READ_ONLY },
        { "writes_%s", writes, 0, IS_READ_ONLY },
        { "writes_%s_beyond_its_capacity", writes_beyond_its_capacity, CAN_GROW, 0 },
        { "writes_%s_up_to_its_limit", writes_up_to_its_limit, 0, IS_READ_ONLY },
        { "refuses_to_write_%s", refuses_to_write, IS_READ_ONLY, 0 },
    };
    enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };
    static kind_case cases[NUMBER_COUNT * SHAPE_COUNT];
    static char names[NUMBER_COUNT * SHAPE_COUNT][64];
    for (size_t i = 0; i < NUMBER_COUNT * SHAPE_COUNT; i++) {
        const number *n = &numbers[i % NUMBER_COUNT];
        size_t shape = i / NUMBER_COUNT;
        snprintf(names[i], sizeof names[i], shapes[shape].format, n->name);
        cases[i] = (kind_case){ names[i], shapes[shape].run, shapes[shape].needs,
                                shapes[shape].excludes, n };
    }
    return kinds_run("number", cases, NUMBER_COUNT * SHAPE_COUNT, plain,
                     sizeof plain / sizeof *plain);
}
