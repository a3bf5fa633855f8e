/* SPDX-License-Identifier: MIT */
/* Operations on bytes and text. */
#include "buf/world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Out --------------------------------------------------------------------------------------- */

#define UNTOUCHED 0xa5

static size_t take_range(world *w, const slot *s, size_t *index)
{
    *index = take_size(w, s->view.writer);
    return take_size(w, *index <= s->view.writer ? s->view.writer - *index : 0);
}

/* w->other must hold the content at the index when the call went well, else be untouched. */
static void check_copied(world *w, const slot *s, size_t index, size_t length, int code)
{
    static uint8_t content[MAX_CONTENT];
    memset(content, UNTOUCHED, sizeof content);
    if (code == 0)
        model_get(&s->view, index, content, length);
    if (memcmp(content, w->other, code == 0 ? length : sizeof content) != 0)
        fail(w, "wrong bytes at [%zu, +%zu)", index, length);
}

void op_get_bytes(world *w, slot *s)
{
    size_t index, length = take_range(w, s, &index);
    memset(w->other, UNTOUCHED, sizeof w->other);
    SAY("get_bytes(%zu, %zu)", index, length);
    int code = weir_buf_get_bytes(s->buf, index, w->other, length);
    expect(w, "the code", code, model_check(&s->view, index, length));
    check_copied(w, s, index, length, code);
}

void op_read_bytes(world *w, slot *s)
{
    size_t reader = s->view.reader, length = take_size(w, s->view.writer - reader);
    memset(w->other, UNTOUCHED, sizeof w->other);
    SAY("read_bytes(%zu)", length);
    int code = weir_buf_read_bytes(s->buf, w->other, length);
    expect(w, "the code", code, model_check(&s->view, reader, length));
    check_copied(w, s, reader, length, code);
    if (code == 0)
        s->view.reader += length;
}

/* The room for a string: mostly enough. */
static size_t take_string_size(world *w, size_t length)
{
    uint8_t byte = take(w);
    size_t size = byte & 1 ? length + 1 + byte % 8 : byte;
    return size < sizeof w->other ? size : sizeof w->other;
}

static int check_string(world *w, const slot *s, size_t index, size_t length, size_t size, int code)
{
    int expected = model_check(&s->view, index, length);
    if (expected == 0 && length >= size)
        expected = WEIR_ELIMIT;
    expect(w, "the code", code, expected);
    check_copied(w, s, index, length, code);
    if (code == 0)
        expect(w, "the terminator", w->other[length], 0);
    return code;
}

void op_get_str(world *w, slot *s)
{
    size_t index, length = take_range(w, s, &index), size = take_string_size(w, length);
    memset(w->other, UNTOUCHED, sizeof w->other);
    SAY("get_str(%zu, %zu, size %zu)", index, length, size);
    int code = weir_buf_get_str(s->buf, index, length, (char *)w->other, size);
    check_string(w, s, index, length, size, code);
}

void op_read_str(world *w, slot *s)
{
    size_t reader = s->view.reader, length = take_size(w, s->view.writer - reader);
    size_t size = take_string_size(w, length);
    memset(w->other, UNTOUCHED, sizeof w->other);
    SAY("read_str(%zu, size %zu)", length, size);
    int code = weir_buf_read_str(s->buf, length, (char *)w->other, size);
    if (check_string(w, s, reader, length, size, code) == 0)
        s->view.reader += length;
}

void op_read_cstr(world *w, slot *s)
{
    size_t reader = s->view.reader, readable = s->view.writer - reader;
    model_get(&s->view, reader, w->bytes, readable);
    const uint8_t *end = memchr(w->bytes, 0, readable);
    size_t length = end != NULL ? (size_t)(end - w->bytes) : 0;
    size_t size = take_string_size(w, length);
    memset(w->other, UNTOUCHED, sizeof w->other);
    SAY("read_cstr(size %zu)", size);
    int code = weir_buf_read_cstr(s->buf, (char *)w->other, size);
    if (s->buf != NULL && end == NULL)
        expect(w, "the code", code, WEIR_ENOTFOUND);
    else if (check_string(w, s, reader, length, size, code) == 0)
        s->view.reader += length + 1;
}

/* In ---------------------------------------------------------------------------------------- */

/* The model writes as the buffer did. */
static void check_written(world *w, slot *s, const uint8_t *bytes, size_t length, int code)
{
    if (ran_out(w, code == -ENOMEM))
        return;
    expect(w, "the code", code, model_ensure(&s->view, length));
    if (code < 0)
        return;
    model_put(&s->view, s->view.writer, bytes, length);
    s->view.writer += length;
}

void op_set_bytes(world *w, slot *s)
{
    size_t index, length = take_range(w, s, &index);
    const uint8_t *bytes = take_bytes(w, length);
    SAY("set_bytes(%zu, %zu)", index, length);
    int code = weir_buf_set_bytes(s->buf, index, bytes, length);
    expect(w, "the code", code, model_check_settable(&s->view, index, length));
    if (code == 0)
        model_put(&s->view, index, bytes, length);
}

void op_write_bytes(world *w, slot *s)
{
    size_t length = take_length(w, s);
    const uint8_t *bytes = take_bytes(w, length);
    SAY("write_bytes(%zu)", length);
    check_written(w, s, bytes, length, weir_buf_write_bytes(s->buf, bytes, length));
}

/* Content of some buffer, perhaps the subject, as one run; a copy of it is in w->bytes. */
static const uint8_t *take_own(world *w, const slot *from, size_t *index, size_t *length)
{
    *length = take_range(w, from, index);
    const uint8_t *own = weir_buf_peek(from->buf, *index, *length);
    if (own != NULL)
        memcpy(w->bytes, own, *length);
    return own;
}

void op_set_own_bytes(world *w, slot *s)
{
    const slot *from = take(w) & 1 ? s : take_slot(w);
    size_t from_index, length, index = take_size(w, s->view.writer);
    const uint8_t *own = take_own(w, from, &from_index, &length);
    if (own == NULL)
        return;
    /* Where a composite is set, the bytes must not lie. */
    if (s->view.is_composite && model_check(&s->view, index, length) == 0 &&
        model_overlap(&s->view, index, length, &from->view, from_index, length))
        return;
    SAY("set_bytes(%zu, peek([%d], %zu, %zu), %zu)", index, slot_number(w, from), from_index,
        length, length);
    int code = weir_buf_set_bytes(s->buf, index, own, length);
    expect(w, "the code", code, model_check_settable(&s->view, index, length));
    if (code == 0)
        model_put(&s->view, index, w->bytes, length);
}

/* Where the writer was moved back, the room may be content that another buffer still sees: when
 * the source lies there, what comes of the copy is nobody's promise. */
static void check_overlap(world *w, slot *s, size_t index, size_t length, const slot *from,
                          size_t from_index, size_t from_length)
{
    if (!model_overlap(&s->view, index, length, &from->view, from_index, from_length))
        return;
    expect(w, "get_bytes", weir_buf_get_bytes(s->buf, index, w->other, length), 0);
    model_put(&s->view, index, w->other, length);
}

void op_write_own_bytes(world *w, slot *s)
{
    const slot *from = take(w) & 1 ? s : take_slot(w);
    size_t from_index, length;
    const uint8_t *own = take_own(w, from, &from_index, &length);
    if (own == NULL || length > MAX_CONTENT - s->view.writer)
        return;
    SAY("write_bytes(peek([%d], %zu, %zu), %zu)", slot_number(w, from), from_index, length, length);
    size_t index = s->view.writer;
    int code = weir_buf_write_bytes(s->buf, own, length);
    check_written(w, s, w->bytes, length, code);
    if (code == 0)
        check_overlap(w, s, index, length, from, from_index, length);
}

void op_write_buf(world *w, slot *s)
{
    slot *from = take(w) & 1 ? s : take_slot(w);
    size_t length = take_size(w, from->view.writer - from->view.reader);
    size_t index = s->view.writer, reader = from->view.reader;
    if (length <= MAX_CONTENT && length > MAX_CONTENT - index)
        return;
    SAY("write_buf([%d], %zu)", slot_number(w, from), length);
    int code = weir_buf_write_buf(s->buf, from->buf, length);
    if (ran_out(w, code == -ENOMEM))
        return;
    int expected = model_check(&from->view, reader, length);
    if (expected == 0)
        expected = model_ensure(&s->view, length);
    expect(w, "the code", code, expected);
    if (code < 0)
        return;
    model_get(&from->view, reader, w->bytes, length);
    s->view.writer += length;
    from->view.reader += length;
    model_put(&s->view, index, w->bytes, length);
    check_overlap(w, s, index, length, from, reader, length);
}

void op_fill(world *w, slot *s)
{
    size_t index, length = take_range(w, s, &index);
    uint8_t byte = take(w);
    SAY("fill(%zu, %02x, %zu)", index, byte, length);
    int code = weir_buf_fill(s->buf, index, byte, length);
    expect(w, "the code", code, model_check_settable(&s->view, index, length));
    if (code < 0)
        return;
    memset(w->bytes, byte, length);
    model_put(&s->view, index, w->bytes, length);
}

void op_write_fill(world *w, slot *s)
{
    size_t length = take_length(w, s);
    uint8_t byte = take(w);
    memset(w->bytes, byte, length < sizeof w->bytes ? length : 0);
    SAY("write_fill(%02x, %zu)", byte, length);
    check_written(w, s, w->bytes, length, weir_buf_write_fill(s->buf, byte, length));
}

/* Text -------------------------------------------------------------------------------------- */

/* A string in w->bytes; returns its length. */
static size_t take_text(world *w, const slot *s)
{
    size_t length = take_length(w, s);
    if (length > MAX_CONTENT - 1)
        length = 0;
    for (size_t i = 0; i < length; i++)
        w->bytes[i] = (uint8_t)('a' + w->next_byte++ % 26);
    w->bytes[length] = '\0';
    return length;
}

void op_write_str(world *w, slot *s)
{
    size_t length = take_text(w, s);
    SAY("write_str(%zu characters)", length);
    int code = weir_buf_write_str(s->buf, (const char *)w->bytes);
    check_written(w, s, w->bytes, length, code);
}

void op_printf(world *w, slot *s)
{
    size_t length = take_text(w, s);
    SAY("printf(%zu characters)", length);
    int code = weir_buf_printf(s->buf, "%s", (const char *)w->bytes);
    check_written(w, s, w->bytes, length, code);
}

/* The dump ---------------------------------------------------------------------------------- */

#define EDGE "+--------+-------------------------------------------------+----------------+\n"
#define HEAD                                                                                       \
    "         +-------------------------------------------------+\n"                               \
    "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n" EDGE

/* Writes the table of `length` bytes to `to` and returns how long it is. */
static size_t dump(const uint8_t *bytes, size_t length, char *to)
{
    char *at = stpcpy(to, HEAD);
    for (size_t line = 0; line < length; line += 16) {
        at += sprintf(at, "|%08zx|", line);
        for (size_t i = line; i < line + 16; i++)
            at += i < length ? sprintf(at, " %02x", bytes[i]) : sprintf(at, "   ");
        at = stpcpy(at, " |");
        for (size_t i = line; i < line + 16; i++)
            *at++ = i >= length ? ' ' : bytes[i] < 0x20 || bytes[i] > 0x7e ? '.' : (char)bytes[i];
        at = stpcpy(at, "|\n");
    }
    return (size_t)(stpcpy(at, EDGE) - to);
}

#define MAX_DUMPED 512

void op_hex_dump(world *w, slot *s)
{
    static char text[sizeof HEAD + (MAX_DUMPED / 16 + 2) * sizeof EDGE];
    slot *out = take_slot(w);
    size_t index, length = take_range(w, s, &index);
    if (length <= MAX_CONTENT && length > MAX_DUMPED)
        length = MAX_DUMPED;
    if (out->view.writer + sizeof text > MAX_CONTENT)
        return;
    SAY("hex_dump(%zu, %zu, [%d])", index, length, slot_number(w, out));
    int code = weir_buf_hex_dump(s->buf, index, length, out->buf);
    int expected = model_check(&s->view, index, length);
    if (expected < 0 || s == out) {
        expect(w, "the code", code, expected < 0 ? expected : -EINVAL);
        return;
    }
    model_get(&s->view, index, w->bytes, length);
    size_t text_length = dump(w->bytes, length, text), start = out->view.writer;
    check_written(w, out, (const uint8_t *)text, text_length, code);
    if (code == 0)
        check_overlap(w, out, start, text_length, s, index, length);
}
