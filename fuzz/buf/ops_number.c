/* SPDX-License-Identifier: MIT */
/* Operations on numbers, all widths in both orders. */
#include "buf/world.h"

#include <errno.h>
#include <string.h>

/* X(name, type, bytes, order, kind) */
#define NUMBERS(X)                                                                                 \
    X(u8, uint8_t, 1, BIG, UNSIGNED)                                                               \
    X(i8, int8_t, 1, BIG, SIGNED)                                                                  \
    X(u16, uint16_t, 2, BIG, UNSIGNED)                                                             \
    X(i16, int16_t, 2, BIG, SIGNED)                                                                \
    X(u24, uint32_t, 3, BIG, UNSIGNED)                                                             \
    X(i24, int32_t, 3, BIG, SIGNED)                                                                \
    X(u32, uint32_t, 4, BIG, UNSIGNED)                                                             \
    X(i32, int32_t, 4, BIG, SIGNED)                                                                \
    X(u64, uint64_t, 8, BIG, UNSIGNED)                                                             \
    X(i64, int64_t, 8, BIG, SIGNED)                                                                \
    X(f32, float, 4, BIG, UNSIGNED)                                                                \
    X(f64, double, 8, BIG, UNSIGNED)                                                               \
    X(u16_le, uint16_t, 2, LITTLE, UNSIGNED)                                                       \
    X(i16_le, int16_t, 2, LITTLE, SIGNED)                                                          \
    X(u24_le, uint32_t, 3, LITTLE, UNSIGNED)                                                       \
    X(i24_le, int32_t, 3, LITTLE, SIGNED)                                                          \
    X(u32_le, uint32_t, 4, LITTLE, UNSIGNED)                                                       \
    X(i32_le, int32_t, 4, LITTLE, SIGNED)                                                          \
    X(u64_le, uint64_t, 8, LITTLE, UNSIGNED)                                                       \
    X(i64_le, int64_t, 8, LITTLE, SIGNED)                                                          \
    X(f32_le, float, 4, LITTLE, UNSIGNED)                                                          \
    X(f64_le, double, 8, LITTLE, UNSIGNED)

enum { BIG, LITTLE };
enum { UNSIGNED, SIGNED };

/* The accessors of a type behind one signature: values go as their bits, in this machine's order,
 * which is little. */
typedef struct number {
    const char *name;
    size_t size, type_size;
    int order, kind;
    int (*get)(const weir_buf *buf, size_t index, uint64_t *bits);
    int (*read)(weir_buf *buf, uint64_t *bits);
    int (*set)(weir_buf *buf, size_t index, uint64_t bits);
    int (*write)(weir_buf *buf, uint64_t bits);
} number;

#define ACCESSORS(name, type, size, order, kind)                                                   \
    static int get_##name(const weir_buf *buf, size_t index, uint64_t *bits)                       \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, bits, sizeof value);                                                        \
        int code = weir_buf_get_##name(buf, index, &value);                                        \
        memcpy(bits, &value, sizeof value);                                                        \
        return code;                                                                               \
    }                                                                                              \
    static int read_##name(weir_buf *buf, uint64_t *bits)                                          \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, bits, sizeof value);                                                        \
        int code = weir_buf_read_##name(buf, &value);                                              \
        memcpy(bits, &value, sizeof value);                                                        \
        return code;                                                                               \
    }                                                                                              \
    static int set_##name(weir_buf *buf, size_t index, uint64_t bits)                              \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, &bits, sizeof value);                                                       \
        return weir_buf_set_##name(buf, index, value);                                             \
    }                                                                                              \
    static int write_##name(weir_buf *buf, uint64_t bits)                                          \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, &bits, sizeof value);                                                       \
        return weir_buf_write_##name(buf, value);                                                  \
    }
NUMBERS(ACCESSORS)

static const number numbers[] = {
#define NUMBER(name, type, size, order, kind)                                                      \
    { #name, size, sizeof(type), order, kind, get_##name, read_##name, set_##name, write_##name },
    NUMBERS(NUMBER)
};

static const number *take_number(world *w)
{
    return &numbers[take(w) % (sizeof numbers / sizeof *numbers)];
}

static uint64_t take_bits(world *w)
{
    uint64_t bits = 0;
    memcpy(&bits, take_bytes(w, sizeof bits), sizeof bits);
    return bits;
}

/* Between a number's bits and its bytes in a buffer; each is the other's reverse. */
static void order_bytes(const number *n, const uint8_t *from, uint8_t *to)
{
    for (size_t i = 0; i < n->size; i++)
        to[n->order == LITTLE ? i : n->size - 1 - i] = from[i];
}

/* What reading must give; the bits that the type does not have stay as they were. */
static uint64_t expected_bits(const number *n, const slot *s, size_t index, uint64_t before)
{
    uint8_t raw[8], value[8];
    model_get(&s->view, index, raw, n->size);
    order_bytes(n, raw, value);
    bool is_negative = n->kind == SIGNED && (value[n->size - 1] & 0x80);
    memset(value + n->size, is_negative ? 0xff : 0, sizeof value - n->size);
    memcpy(&before, value, n->type_size);
    return before;
}

/* Reading ----------------------------------------------------------------------------------- */

static int check_read(world *w, const number *n, const slot *s, size_t index, int code,
                      uint64_t bits, uint64_t before)
{
    int expected = model_check(&s->view, index, n->size);
    expect(w, "the code", code, expected);
    if (expected == 0)
        before = expected_bits(n, s, index, before);
    expect(w, "the number", (int64_t)bits, (int64_t)before);
    return code;
}

void op_get_number(world *w, slot *s)
{
    const number *n = take_number(w);
    size_t index = take_size(w, s->view.writer);
    uint64_t before = take_bits(w), bits = before;
    SAY("get_%s(%zu)", n->name, index);
    int code = n->get(s->buf, index, &bits);
    check_read(w, n, s, index, code, bits, before);
}

void op_read_number(world *w, slot *s)
{
    const number *n = take_number(w);
    uint64_t before = take_bits(w), bits = before;
    SAY("read_%s()", n->name);
    int code = n->read(s->buf, &bits);
    if (check_read(w, n, s, s->view.reader, code, bits, before) == 0)
        s->view.reader += n->size;
}

/* Writing ----------------------------------------------------------------------------------- */

void op_set_number(world *w, slot *s)
{
    const number *n = take_number(w);
    size_t index = take_size(w, s->view.writer);
    uint64_t bits = take_bits(w);
    uint8_t raw[8];
    SAY("set_%s(%zu, %llx)", n->name, index, (unsigned long long)bits);
    int code = n->set(s->buf, index, bits);
    expect(w, "the code", code, model_check_settable(&s->view, index, n->size));
    order_bytes(n, (const uint8_t *)&bits, raw);
    if (code == 0)
        model_put(&s->view, index, raw, n->size);
}

void op_write_number(world *w, slot *s)
{
    const number *n = take_number(w);
    uint64_t bits = take_bits(w);
    uint8_t raw[8];
    if (s->view.writer + n->size > MAX_CONTENT)
        return;
    SAY("write_%s(%llx)", n->name, (unsigned long long)bits);
    int code = n->write(s->buf, bits);
    if (ran_out(w, code == -ENOMEM))
        return;
    expect(w, "the code", code, model_ensure(&s->view, n->size));
    if (code < 0)
        return;
    order_bytes(n, (const uint8_t *)&bits, raw);
    model_put(&s->view, s->view.writer, raw, n->size);
    s->view.writer += n->size;
}
