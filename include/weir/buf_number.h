/* SPDX-License-Identifier: MIT */
/* The typed accessors of buffers, inline: included by <weir/buf.h>, which explains them. */
#ifndef WEIR_BUF_NUMBER_H
#define WEIR_BUF_NUMBER_H

#include <weir/buf.h>

#include <string.h>

WEIR_BEGIN_DECLS

/*
 * The three ways to the bytes. Each decides the common case, one run of memory with enough in it,
 * by a few comparisons, and leaves composites, growth and every refusal to the function it falls
 * back on.
 */
static inline int weir__buf_load(const weir_buf *buf, size_t index, uint8_t *to, size_t size)
{
    if (buf != NULL && !(buf->flags & WEIR__BUF_COMPOSITE) && index <= buf->writer &&
        size <= buf->writer - index) {
        memcpy(to, buf->data + index, size);
        return 0;
    }
    return weir_buf_get_bytes(buf, index, to, size);
}

static inline int weir__buf_store(weir_buf *buf, size_t index, const uint8_t *from, size_t size)
{
    if (buf != NULL && !(buf->flags & (WEIR__BUF_COMPOSITE | WEIR__BUF_READ_ONLY)) &&
        index <= buf->writer && size <= buf->writer - index) {
        memcpy(buf->data + index, from, size);
        return 0;
    }
    return weir_buf_set_bytes(buf, index, from, size);
}

static inline int weir__buf_append(weir_buf *buf, const uint8_t *from, size_t size)
{
    if (buf != NULL && !(buf->flags & (WEIR__BUF_COMPOSITE | WEIR__BUF_READ_ONLY)) &&
        size <= buf->capacity - buf->writer) {
        memcpy(buf->data + buf->writer, from, size);
        buf->writer += WEIR__CAST(uint32_t, size);
        return 0;
    }
    return weir_buf_write_bytes(buf, from, size);
}

/*
 * Byte orders. Written out by size: of a loop over bytes compilers do not reliably make the one
 * load or store that it is.
 */

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define WEIR__BUF_SWAP_be(bits, value) (value)
#define WEIR__BUF_SWAP_le(bits, value) __builtin_bswap##bits(value)
#else
#define WEIR__BUF_SWAP_be(bits, value) __builtin_bswap##bits(value)
#define WEIR__BUF_SWAP_le(bits, value) (value)
#endif

#define WEIR__BUF_ORDER(order, bits)                                                               \
    static inline uint64_t weir__load_##order##bits(const uint8_t *at)                             \
    {                                                                                              \
        uint##bits##_t value;                                                                      \
        memcpy(&value, at, sizeof value);                                                          \
        return WEIR__BUF_SWAP_##order(bits, value);                                                \
    }                                                                                              \
    static inline void weir__store_##order##bits(uint8_t *at, uint64_t value)                      \
    {                                                                                              \
        uint##bits##_t swapped = WEIR__BUF_SWAP_##order(bits, WEIR__CAST(uint##bits##_t, value));  \
        memcpy(at, &swapped, sizeof swapped);                                                      \
    }

WEIR__BUF_ORDER(be, 16)
WEIR__BUF_ORDER(be, 32)
WEIR__BUF_ORDER(be, 64)
WEIR__BUF_ORDER(le, 16)
WEIR__BUF_ORDER(le, 32)
WEIR__BUF_ORDER(le, 64)

static inline uint64_t weir__load_be8(const uint8_t *at)
{
    return at[0];
}

static inline void weir__store_be8(uint8_t *at, uint64_t value)
{
    at[0] = WEIR__CAST(uint8_t, value);
}

static inline uint64_t weir__load_be24(const uint8_t *at)
{
    return WEIR__CAST(uint64_t, at[0]) << 16 | WEIR__CAST(uint64_t, at[1]) << 8 | at[2];
}

static inline void weir__store_be24(uint8_t *at, uint64_t value)
{
    at[0] = WEIR__CAST(uint8_t, value >> 16);
    at[1] = WEIR__CAST(uint8_t, value >> 8);
    at[2] = WEIR__CAST(uint8_t, value);
}

static inline uint64_t weir__load_le24(const uint8_t *at)
{
    return WEIR__CAST(uint64_t, at[2]) << 16 | WEIR__CAST(uint64_t, at[1]) << 8 | at[0];
}

static inline void weir__store_le24(uint8_t *at, uint64_t value)
{
    at[0] = WEIR__CAST(uint8_t, value);
    at[1] = WEIR__CAST(uint8_t, value >> 8);
    at[2] = WEIR__CAST(uint8_t, value >> 16);
}

/* From the bits that were read to the number, and back. */

#define WEIR__BUF_TO_UNSIGNED(type, bits, width) WEIR__CAST(type, bits)
#define WEIR__BUF_TO_SIGNED(type, bits, width)                                                     \
    WEIR__CAST(type, WEIR__CAST(int64_t, (bits) << (64 - (width))) >> (64 - (width)))
#define WEIR__BUF_TO_FLOAT(type, bits, width) weir__float_from_bits(WEIR__CAST(uint32_t, bits))
#define WEIR__BUF_TO_DOUBLE(type, bits, width) weir__double_from_bits(bits)
#define WEIR__BUF_FROM_INTEGER(value) WEIR__CAST(uint64_t, value)
#define WEIR__BUF_FROM_FLOAT(value) weir__bits_from_float(value)
#define WEIR__BUF_FROM_DOUBLE(value) weir__bits_from_double(value)

static inline float weir__float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double weir__double_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t weir__bits_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint64_t weir__bits_from_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define WEIR__BUF_NUMBER(name, type, width, order, to_number, from_number)                         \
    static inline int weir_buf_get_##name(const weir_buf *buf, size_t index, type *value)          \
    {                                                                                              \
        uint8_t raw[(width) / 8];                                                                  \
        int code = weir__buf_load(buf, index, raw, sizeof raw);                                    \
        if (code < 0)                                                                              \
            return code;                                                                           \
        *value = to_number(type, weir__load_##order##width(raw), width);                           \
        return 0;                                                                                  \
    }                                                                                              \
    static inline int weir_buf_read_##name(weir_buf *buf, type *value)                             \
    {                                                                                              \
        int code = weir_buf_get_##name(buf, weir_buf_reader(buf), value);                          \
        if (code < 0)                                                                              \
            return code;                                                                           \
        buf->reader += (width) / 8;                                                                \
        return 0;                                                                                  \
    }                                                                                              \
    static inline int weir_buf_set_##name(weir_buf *buf, size_t index, type value)                 \
    {                                                                                              \
        uint8_t raw[(width) / 8];                                                                  \
        weir__store_##order##width(raw, from_number(value));                                       \
        return weir__buf_store(buf, index, raw, sizeof raw);                                       \
    }                                                                                              \
    static inline int weir_buf_write_##name(weir_buf *buf, type value)                             \
    {                                                                                              \
        uint8_t raw[(width) / 8];                                                                  \
        weir__store_##order##width(raw, from_number(value));                                       \
        return weir__buf_append(buf, raw, sizeof raw);                                             \
    }

/** Numbers at an index (get, set) or at the reader or writer, which moves (read, write):
 * big-endian, and little-endian where the name ends in _le. Codes as weir_buf_get_bytes and the
 * like. */
WEIR__BUF_NUMBER(u8, uint8_t, 8, be, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i8, int8_t, 8, be, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)

WEIR__BUF_NUMBER(u16, uint16_t, 16, be, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i16, int16_t, 16, be, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(u24, uint32_t, 24, be, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i24, int32_t, 24, be, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(u32, uint32_t, 32, be, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i32, int32_t, 32, be, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(u64, uint64_t, 64, be, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i64, int64_t, 64, be, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(f32, float, 32, be, WEIR__BUF_TO_FLOAT, WEIR__BUF_FROM_FLOAT)
WEIR__BUF_NUMBER(f64, double, 64, be, WEIR__BUF_TO_DOUBLE, WEIR__BUF_FROM_DOUBLE)

WEIR__BUF_NUMBER(u16_le, uint16_t, 16, le, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i16_le, int16_t, 16, le, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(u24_le, uint32_t, 24, le, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i24_le, int32_t, 24, le, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(u32_le, uint32_t, 32, le, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i32_le, int32_t, 32, le, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(u64_le, uint64_t, 64, le, WEIR__BUF_TO_UNSIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(i64_le, int64_t, 64, le, WEIR__BUF_TO_SIGNED, WEIR__BUF_FROM_INTEGER)
WEIR__BUF_NUMBER(f32_le, float, 32, le, WEIR__BUF_TO_FLOAT, WEIR__BUF_FROM_FLOAT)
WEIR__BUF_NUMBER(f64_le, double, 64, le, WEIR__BUF_TO_DOUBLE, WEIR__BUF_FROM_DOUBLE)

#undef WEIR__BUF_NUMBER
#undef WEIR__BUF_ORDER
#undef WEIR__BUF_SWAP_be
#undef WEIR__BUF_SWAP_le
#undef WEIR__BUF_TO_UNSIGNED
#undef WEIR__BUF_TO_SIGNED
#undef WEIR__BUF_TO_FLOAT
#undef WEIR__BUF_TO_DOUBLE
#undef WEIR__BUF_FROM_INTEGER
#undef WEIR__BUF_FROM_FLOAT
#undef WEIR__BUF_FROM_DOUBLE

WEIR_END_DECLS

#endif
