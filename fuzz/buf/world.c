/* SPDX-License-Identifier: MIT */
/* Slots, the input, and the comparison of buffers with their models. */
#include "buf/world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Telling ----------------------------------------------------------------------------------- */

int slot_number(const world *w, const slot *s)
{
    return s == &w->borrowed ? -1 : (int)(s - w->slots);
}

void say(const world *w, const slot *s, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%4d: ", w->number);
    if (s == &w->borrowed)
        fprintf(stderr, "[slice of %d] ", slot_number(w, w->lender));
    else
        fprintf(stderr, "[%d] ", slot_number(w, s));
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", s->buf == NULL ? "  (NULL)" : "");
}

void fail(const world *w, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "operation %d, %s: ", w->number, w->operation);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n(WEIR_FUZZ_TRACE=1 shows the calls)\n");
    abort();
}

void expect(world *w, const char *what, int64_t actual, int64_t expected)
{
    if (actual != expected)
        fail(w, "%s is %lld, the model says %lld", what, (long long)actual, (long long)expected);
}

/* The input --------------------------------------------------------------------------------- */

uint8_t take(world *w)
{
    return w->at < w->end ? *w->at++ : 0;
}

/* All above what memory there could be: never a number that a buffer might try to reach. */
static size_t absurd(uint8_t byte)
{
    static const size_t sizes[8] = {
        SIZE_MAX,        SIZE_MAX - 1,          (size_t)1 << 31, ((size_t)1 << 31) + 1,
        (size_t)1 << 32, ((size_t)1 << 32) + 1, (size_t)1 << 63, SIZE_MAX - 0x7fffffff,
    };
    return sizes[byte & 7];
}

size_t take_size(world *w, size_t max)
{
    uint8_t byte = take(w);
    if (byte >= 0xf8)
        return absurd(byte);
    if (byte >= 0xf0)
        return max + 1 + (byte & 7);
    size_t size = max < 0xf0 ? byte : (size_t)byte << 8 | take(w);
    return size % (max + 1);
}

size_t take_length(world *w, const slot *s)
{
    uint8_t byte = take(w);
    if (byte >= 0xf8)
        return absurd(byte);
    size_t length = byte < 0xc0 ? byte & 0x3f : (size_t)(byte - 0xc0) * 40;
    return length < MAX_CONTENT - s->view.writer ? length : 0;
}

size_t take_capacity(world *w)
{
    uint8_t byte = take(w);
    if (byte >= 0xf8)
        return absurd(byte);
    if (byte >= 0xf4 && !w->was_big) {
        w->was_big = true;
        return byte & 1 ? 70000 : ((size_t)4 << 20) + byte;
    }
    return byte < 0xa0 ? byte : (size_t)(byte - 0xa0) * 50;
}

const uint8_t *take_bytes(world *w, size_t length)
{
    /* A few values in regular order give searches something to stumble over. */
    uint8_t seed = take(w);
    for (size_t i = 0; i < length && i < sizeof w->bytes; i++)
        w->bytes[i] = seed < 0x60 ? (uint8_t)((i + seed) * i % 3) : w->next_byte++;
    return w->bytes;
}

slot *take_slot(world *w)
{
    slot *s = &w->slots[take(w) % SLOT_COUNT];
    if (s == w->lender)
        s = s == w->slots ? w->slots + 1 : s - 1;
    return s;
}

/* Memory that fails ------------------------------------------------------------------------- */

int on_fault(void *arg, const char *call, size_t *length)
{
    world *w = arg;
    (void)call;
    (void)length;
    if (w->fault_in == 0 || --w->fault_in > 0)
        return 0;
    w->has_failed = true;
    return -ENOMEM;
}

bool ran_out(world *w, bool says_no_memory)
{
    if (w->has_failed != says_no_memory)
        fail(w, w->has_failed ? "memory was refused, but it does not say so"
                              : "says there is no memory, but there was");
    w->has_failed = false;
    return says_no_memory;
}

/* Slots ------------------------------------------------------------------------------------- */

void lose_reference(slot *s)
{
    if (s->view.is_live && --s->view.refs == 0) {
        model_end(&s->view);
        s->buf = NULL;
    }
}

void empty(world *w, slot *s)
{
    while (s->view.is_live) {
        expect(w, "weir_buf_release", weir_buf_release(s->buf), s->view.refs == 1);
        lose_reference(s);
    }
}

void put_in(world *w, slot *to, weir_buf *buf, const model_view *view)
{
    empty(w, to);
    if (buf == NULL)
        fail(w, "gave no buffer");
    to->buf = buf;
    to->view = *view;
}

static void check_indices(world *w, const slot *s)
{
    const weir_buf *buf = s->buf;
    const model_view *view = &s->view;
    expect(w, "reader", (int64_t)weir_buf_reader(buf), (int64_t)view->reader);
    expect(w, "writer", (int64_t)weir_buf_writer(buf), (int64_t)view->writer);
    expect(w, "capacity", (int64_t)weir_buf_capacity(buf), (int64_t)view->capacity);
    expect(w, "limit", (int64_t)weir_buf_limit(buf), (int64_t)view->limit);
    /* A mark shows only when somebody goes back to it; its field tells at once. */
    expect(w, "reader_mark", buf->reader_mark, (int64_t)view->reader_mark);
    expect(w, "writer_mark", buf->writer_mark, (int64_t)view->writer_mark);
    expect(w, "readable", (int64_t)weir_buf_readable(buf), (int64_t)(view->writer - view->reader));
    expect(w, "writable", (int64_t)weir_buf_writable(buf),
           (int64_t)(view->capacity - view->writer));
    size_t end = view->is_read_only  ? view->writer
                 : view->is_borrowed ? view->capacity
                                     : view->limit;
    expect(w, "max_writable", (int64_t)weir_buf_max_writable(buf), (int64_t)(end - view->writer));
    expect(w, "is_read_only", weir_buf_is_read_only(buf), view->is_read_only);
    expect(w, "is_composite", weir_buf_is_composite(buf), view->is_composite);
    if (!view->is_borrowed)
        expect(w, "refs", weir_msg_refs(&buf->msg), view->refs);
    expect(w, "msg_size", (int64_t)weir_msg_size(&buf->msg),
           (int64_t)(view->writer - view->reader));
}

static void check_piece(world *w, const slot *s, size_t at, size_t index, size_t length)
{
    const model_piece *piece = &s->view.pieces[at];
    const uint8_t *bytes = weir_buf_peek(s->buf, index, length);
    if (piece->store->is_freed)
        fail(w, "slot %d views memory that was given back", slot_number(w, s));
    if (bytes == NULL)
        fail(w, "slot %d: [%zu, +%zu) is not one run", slot_number(w, s), index, length);
    for (size_t i = 0; memcmp(bytes, piece->store->bytes + piece->at, length) != 0; i++) {
        if (bytes[i] != piece->store->bytes[piece->at + i])
            fail(w, "slot %d: byte %zu is %02x, the model says %02x", slot_number(w, s), index + i,
                 bytes[i], piece->store->bytes[piece->at + i]);
    }
    if (!s->view.is_composite || s->view.is_borrowed)
        return;
    size_t real_index = SIZE_MAX, real_length = SIZE_MAX;
    expect(w, "composite_piece", weir_buf_composite_piece(s->buf, at, &real_index, &real_length),
           0);
    expect(w, "a piece's index", (int64_t)real_index, (int64_t)index);
    expect(w, "a piece's length", (int64_t)real_length, (int64_t)length);
    if (index > 0 && weir_buf_peek(s->buf, index - 1, 2) != NULL)
        fail(w, "slot %d: no piece begins at %zu", slot_number(w, s), index);
}

void check(world *w, const slot *s)
{
    if (!s->view.is_live)
        return;
    check_indices(w, s);
    size_t index = 0, count = 0;
    while (index < s->view.writer) {
        size_t length = s->view.pieces[count].length;
        if (length > s->view.writer - index)
            length = s->view.writer - index;
        check_piece(w, s, count++, index, length);
        index += length;
    }
    expect(w, "composite_count", (int64_t)weir_buf_composite_count(s->buf),
           s->view.is_composite && !s->view.is_borrowed ? (int64_t)count : 0);
}
