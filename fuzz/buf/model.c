/* SPDX-License-Identifier: MIT */
/* The model of buffers. */
#include "buf/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROWTH_STEP ((size_t)4 << 20)

static model_store *all_stores;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Stores ------------------------------------------------------------------------------------ */

static model_store *new_store(size_t size)
{
    model_store *store = calloc(1, sizeof *store + 2 * size);
    store->bytes = store->cells;
    store->is_known = store->cells + size;
    store->next = all_stores;
    all_stores = store;
    return store;
}

size_t model_reset(void)
{
    size_t kept = 0;
    while (all_stores != NULL) {
        model_store *store = all_stores;
        all_stores = store->next;
        kept += store->is_lent && !store->is_freed;
        if (!store->is_freed)
            free(store->memory);
        free(store);
    }
    return kept;
}

/* Cells ------------------------------------------------------------------------------------- */

/* The cells at `index`, which is below the capacity, as far as their piece goes. */
static model_piece run_at(const model_view *view, size_t index, size_t length)
{
    const model_piece *piece = view->pieces;
    while (index >= piece->length)
        index -= piece++->length;
    return (model_piece){ piece->store, piece->at + index, least(length, piece->length - index),
                          piece->is_read_only };
}

int model_check(const model_view *view, size_t index, size_t length)
{
    if (!view->is_live)
        return -EINVAL;
    return index <= view->writer && length <= view->writer - index ? 0 : WEIR_EBOUNDS;
}

/* Whether a piece of [index, index + length) is read-only. */
static bool has_read_only(const model_view *view, size_t index, size_t length)
{
    while (length > 0) {
        model_piece run = run_at(view, index, length);
        if (run.is_read_only)
            return true;
        index += run.length;
        length -= run.length;
    }
    return false;
}

int model_check_settable(const model_view *view, size_t index, size_t length)
{
    int code = model_check(view, index, length);
    if (code < 0)
        return code;
    return view->is_read_only || has_read_only(view, index, length) ? WEIR_EREADONLY : 0;
}

void model_get(const model_view *view, size_t index, void *to, size_t length)
{
    for (uint8_t *out = to; length > 0;) {
        model_piece run = run_at(view, index, length);
        memcpy(out, run.store->bytes + run.at, run.length);
        out += run.length;
        index += run.length;
        length -= run.length;
    }
}

static void put(model_view *view, size_t index, const uint8_t *from, size_t length, bool learns)
{
    while (length > 0) {
        model_piece run = run_at(view, index, length);
        for (size_t i = 0; i < run.length; i++) {
            if (learns && run.store->is_known[run.at + i])
                continue;
            run.store->bytes[run.at + i] = from[i];
            run.store->is_known[run.at + i] = true;
        }
        from += run.length;
        index += run.length;
        length -= run.length;
    }
}

void model_put(model_view *view, size_t index, const void *from, size_t length)
{
    put(view, index, from, length, false);
}

void model_learn(model_view *view, size_t index, const void *from, size_t length)
{
    put(view, index, from, length, true);
}

bool model_overlap(const model_view *a, size_t a_index, size_t a_length, const model_view *b,
                   size_t b_index, size_t b_length)
{
    for (size_t a_done = 0; a_done < a_length;) {
        model_piece x = run_at(a, a_index + a_done, a_length - a_done);
        for (size_t b_done = 0; b_done < b_length;) {
            model_piece y = run_at(b, b_index + b_done, b_length - b_done);
            if (x.store == y.store && x.at < y.at + y.length && y.at < x.at + x.length)
                return true;
            b_done += y.length;
        }
        a_done += x.length;
    }
    return false;
}

size_t model_pieces_in(const model_view *view, size_t index, size_t length)
{
    size_t count = 0;
    while (length > 0) {
        model_piece run = run_at(view, index, length);
        index += run.length;
        length -= run.length;
        count++;
    }
    return count;
}

size_t model_count(const model_view *view)
{
    return view->is_live ? model_pieces_in(view, 0, view->writer) : 0;
}

/* Making ------------------------------------------------------------------------------------ */

static void init(model_view *view)
{
    view->is_live = true;
    view->is_composite = view->is_read_only = view->is_borrowed = false;
    view->refs = 1;
    view->reader = view->writer = view->capacity = view->reader_mark = view->writer_mark = 0;
    view->limit = WEIR_BUF_MAX;
    view->count = 0;
}

static void append(model_view *view, model_piece piece)
{
    if (view->count == MODEL_PIECES)
        abort(); /* operations keep below */
    view->pieces[view->count++] = piece;
    view->capacity += piece.length;
}

static void append_new(model_view *view, size_t length)
{
    if (length > 0)
        append(view, (model_piece){ new_store(length), 0, length, false });
}

/* Appends the pieces of [index, index + length). */
static void append_range(model_view *view, const model_view *of, size_t index, size_t length)
{
    while (length > 0) {
        model_piece run = run_at(of, index, length);
        index += run.length;
        length -= run.length;
        run.is_read_only |= of->is_read_only;
        append(view, run);
    }
}

void model_make(model_view *view, size_t capacity)
{
    init(view);
    append_new(view, capacity);
}

void model_make_composite(model_view *view)
{
    init(view);
    view->is_composite = true;
}

model_store *model_wrap(model_view *view, void *memory, size_t length)
{
    init(view);
    model_store *store = new_store(length);
    store->memory = memory;
    if (length > 0)
        append(view, (model_piece){ store, 0, length, false });
    view->writer = length;
    model_put(view, 0, memory, length);
    return store;
}

void model_end(model_view *view)
{
    init(view);
    view->is_live = false;
}

void model_slice(model_view *view, const model_view *of, size_t index, size_t length)
{
    init(view);
    append_range(view, of, index, length);
    view->is_composite = of->is_composite;
    view->is_read_only = of->is_read_only;
    view->writer = view->limit = length;
}

void model_duplicate(model_view *view, const model_view *of)
{
    model_slice(view, of, 0, of->writer);
    view->reader = of->reader;
    view->limit = of->limit;
    view->reader_mark = of->reader_mark;
    view->writer_mark = of->writer_mark;
}

void model_copy(model_view *view, const model_view *of, size_t index, size_t length)
{
    model_make(view, length);
    view->writer = length;
    for (size_t done = 0; done < length;) {
        model_piece run = run_at(of, index + done, length - done);
        model_put(view, done, run.store->bytes + run.at, run.length);
        done += run.length;
    }
}

/* Room -------------------------------------------------------------------------------------- */

static size_t grown(size_t needed, size_t limit)
{
    size_t capacity = 64;
    while (capacity < needed && capacity < GROWTH_STEP)
        capacity *= 2;
    while (needed > GROWTH_STEP && capacity < needed + needed / 4)
        capacity += GROWTH_STEP;
    return least(capacity, limit);
}

/* Moves [from, writer) to the start of a new store, all that the view then has. */
static void move_to_own(model_view *view, size_t from, size_t capacity)
{
    model_piece own = { new_store(capacity), 0, capacity, false };
    size_t length = view->writer - from;
    model_get(view, from, own.store->bytes, length);
    memset(own.store->is_known, true, length);
    view->count = view->capacity = 0;
    if (capacity > 0)
        append(view, own);
}

static void cut(model_view *view, size_t capacity)
{
    while (view->capacity > capacity) {
        model_piece *last = &view->pieces[view->count - 1];
        size_t length = least(last->length, view->capacity - capacity);
        last->length -= length;
        view->capacity -= length;
        if (last->length == 0)
            view->count--;
    }
}

static void drop_front(model_view *view, size_t length)
{
    view->capacity -= length;
    while (length > 0) {
        size_t part = least(length, view->pieces->length);
        view->pieces->at += part;
        view->pieces->length -= part;
        length -= part;
        if (view->pieces->length == 0)
            memmove(view->pieces, view->pieces + 1, --view->count * sizeof *view->pieces);
    }
}

/* How far what may be written goes. */
static size_t room_end(const model_view *view)
{
    size_t end = view->writer;
    while (end < view->capacity) {
        model_piece run = run_at(view, end, view->capacity - end);
        if (run.is_read_only)
            break;
        end += run.length;
    }
    return end;
}

int model_ensure(model_view *view, size_t length)
{
    if (!view->is_live)
        return -EINVAL;
    if (view->is_read_only)
        return WEIR_EREADONLY;
    if (length > view->limit - view->writer)
        return WEIR_ELIMIT;
    size_t end = room_end(view), capacity = grown(view->writer + length, view->limit);
    if (length <= end - view->writer)
        return 0;
    if (view->is_borrowed)
        return WEIR_ELIMIT;
    if (view->is_composite) {
        cut(view, end);
        append_new(view, capacity - end);
    } else {
        move_to_own(view, 0, capacity);
    }
    return 0;
}

bool model_write_ptr(model_view *view, size_t length)
{
    if (!view->is_composite)
        return model_ensure(view, length) == 0;
    if (!view->is_live || view->is_read_only || length > view->limit - view->writer)
        return false;
    if (length <= room_end(view) - view->writer &&
        (length == 0 || run_at(view, view->writer, length).length == length))
        return true;
    if (view->is_borrowed)
        return false;
    cut(view, view->writer);
    append_new(view, grown(length, view->limit - view->writer));
    return true;
}

int model_set_capacity(model_view *view, size_t capacity)
{
    if (!view->is_live)
        return -EINVAL;
    if (view->is_read_only)
        return WEIR_EREADONLY;
    if (capacity > view->limit)
        return WEIR_ELIMIT;
    if (capacity <= view->capacity) {
        cut(view, capacity);
        view->writer = least(view->writer, capacity);
        view->reader = least(view->reader, capacity);
        view->writer_mark = least(view->writer_mark, capacity);
        return 0;
    }
    if (view->is_borrowed)
        return WEIR_ELIMIT;
    if (view->is_composite)
        append_new(view, capacity - view->capacity);
    else
        move_to_own(view, 0, capacity);
    return 0;
}

static size_t moved_down(size_t index, size_t by)
{
    return index > by ? index - by : 0;
}

int model_discard(model_view *view, size_t real_capacity)
{
    if (!view->is_live)
        return -EINVAL;
    if (view->is_read_only)
        return WEIR_EREADONLY;
    size_t dropped = view->reader;
    bool has_moved = !view->is_composite && !view->is_borrowed && real_capacity == view->capacity;
    if (has_moved && dropped > 0)
        move_to_own(view, dropped, view->capacity);
    else
        drop_front(view, dropped);
    view->reader = 0;
    view->writer -= dropped;
    view->reader_mark = moved_down(view->reader_mark, dropped);
    view->writer_mark = moved_down(view->writer_mark, dropped);
    return 0;
}

/* Composites -------------------------------------------------------------------------------- */

int model_check_composite(const model_view *view)
{
    if (!view->is_live || !view->is_composite || view->is_borrowed)
        return -EINVAL;
    return view->is_read_only ? WEIR_EREADONLY : 0;
}

int model_add(model_view *view, const model_view *part)
{
    return model_insert(view, model_count(view), part);
}

static size_t with(size_t index, size_t start, size_t length)
{
    return index > start ? index + length : index;
}

int model_insert(model_view *view, size_t at, const model_view *part)
{
    size_t count = model_count(view);
    int code = model_check_composite(view);
    if (code == 0 && at > count)
        return WEIR_EBOUNDS;
    if (!part->is_live || part->is_borrowed || part == view)
        return -EINVAL;
    if (code < 0)
        return code;
    size_t length = part->writer - part->reader;
    if (length > view->limit - view->writer)
        return WEIR_ELIMIT;
    if (length == 0)
        return 0;

    static model_view before;
    before = *view;
    size_t start = 0;
    for (size_t i = 0; i < at; i++)
        start += before.pieces[i].length;
    start = least(start, before.writer);
    view->count = view->capacity = 0;
    append_range(view, &before, 0, start);
    append_range(view, part, part->reader, length);
    append_range(view, &before, start, before.writer - start);
    view->writer += length;
    if (at < count) {
        view->reader = with(view->reader, start, length);
        view->reader_mark = with(view->reader_mark, start, length);
        view->writer_mark = with(view->writer_mark, start, length);
    }
    return 0;
}

static size_t without(size_t index, size_t start, size_t length)
{
    return index <= start ? index : index < start + length ? start : index - length;
}

int model_remove(model_view *view, size_t at)
{
    int code = model_check_composite(view);
    if (code < 0)
        return code;
    if (at >= model_count(view))
        return WEIR_EBOUNDS;
    size_t start = 0, length = view->pieces[at].length;
    for (size_t i = 0; i < at; i++)
        start += view->pieces[i].length;
    memmove(&view->pieces[at], &view->pieces[at + 1], (--view->count - at) * sizeof *view->pieces);
    view->capacity -= length;
    view->reader = without(view->reader, start, length);
    view->writer = without(view->writer, start, length);
    view->reader_mark = without(view->reader_mark, start, length);
    view->writer_mark = without(view->writer_mark, start, length);
    return 0;
}

int model_consolidate(model_view *view)
{
    int code = model_check_composite(view);
    if (code == -EINVAL)
        return code; /* never WEIR_EREADONLY */
    if (model_count(view) >= 2)
        move_to_own(view, 0, view->writer);
    return 0;
}
