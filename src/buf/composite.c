/* SPDX-License-Identifier: MIT */
/* Composites: a table of pieces, each a counted part of somebody's storage. */
#include "buf/composite.h"

#include <string.h>

/*
 *   offset
 *     |  index 0
 *     v  v
 *   [ piece | piece |  piece  | room ]       byte positions count from when the table was new,
 *           ^       ^         ^      ^       so dropping at the front changes no entry
 *          end     end       end    end
 *
 * The table lies in a block. Pieces [first, end) are live; only the first one can begin before
 * the offset, none ends at or before it, none is empty. Room is a piece like any other that the
 * writer has not reached.
 */
typedef struct weir_piece {
    weir_block *block;
    uint8_t *bytes;
    uint32_t length;
    uint32_t end; /* the position behind it */
    bool is_read_only;
} weir_piece;

typedef struct piece_table {
    uint32_t first, end, room;
    weir_piece at[];
} piece_table;

#define FIRST_PIECES 7 /* with the table's own fields, just what a 256-byte block holds */

/* Positions are 32 bits: below this offset no capacity can make one overflow. */
#define MAX_OFFSET 0x80000000u

static piece_table *table_of(const weir_buf *buf)
{
    return (piece_table *)buf->block->bytes;
}

static uint32_t start_of(const weir_piece *piece)
{
    return piece->end - piece->length;
}

static weir_block *new_table(size_t pieces)
{
    weir_block *block = weir__block_new(sizeof(piece_table) + pieces * sizeof(weir_piece));
    if (block != NULL) {
        piece_table *table = (piece_table *)block->bytes;
        table->first = table->end = 0;
        table->room = (uint32_t)((block->room - sizeof *table) / sizeof *table->at);
    }
    return block;
}

static weir_buf *new_composite(size_t pieces)
{
    weir_block *block = new_table(pieces);
    return block != NULL ? weir__buf_init(block, block, NULL, 0, WEIR__BUF_COMPOSITE) : NULL;
}

weir_buf *weir_buf_new_composite(void)
{
    return new_composite(FIRST_PIECES);
}

void weir__composite_clear(weir_buf *buf)
{
    piece_table *table = table_of(buf);
    for (uint32_t i = table->first; i < table->end; i++)
        weir__block_release(table->at[i].block);
    table->first = table->end = 0;
}

/* The piece that holds `position`, which lies inside. */
static uint32_t piece_at(const piece_table *table, uint32_t position)
{
    uint32_t low = table->first, high = table->end - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (position < table->at[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

weir_run weir__composite_run(const weir_buf *buf, size_t index)
{
    const piece_table *table = table_of(buf);
    uint32_t position = buf->offset + (uint32_t)index;
    const weir_piece *piece = &table->at[piece_at(table, position)];
    size_t length = piece->end - position;
    /* A borrowed slice ends before its last piece does. */
    if (length > buf->capacity - index)
        length = buf->capacity - index;
    return (weir_run){ piece->bytes + (position - start_of(piece)), length };
}

weir_run weir__composite_run_before(const weir_buf *buf, size_t end)
{
    const piece_table *table = table_of(buf);
    uint32_t position = buf->offset + (uint32_t)end;
    const weir_piece *piece = &table->at[piece_at(table, position - 1)];
    uint32_t start = start_of(piece) > buf->offset ? start_of(piece) : buf->offset;
    return (weir_run){ piece->bytes + (start - start_of(piece)), position - start };
}

bool weir__composite_is_read_only(const weir_buf *buf, size_t index, size_t length)
{
    if (length == 0)
        return false;
    const piece_table *table = table_of(buf);
    uint32_t last = piece_at(table, buf->offset + (uint32_t)(index + length - 1));
    for (uint32_t i = piece_at(table, buf->offset + (uint32_t)index); i <= last; i++) {
        if (table->at[i].is_read_only)
            return true;
    }
    return false;
}

/* Makes sure of `more` free entries at the end of the table. */
static int reserve(weir_buf *buf, size_t more)
{
    piece_table *table = table_of(buf);
    uint32_t live = table->end - table->first;
    if (more <= table->room - table->end)
        return 0;
    /* Worth moving only when at least half is free, so that an entry moves a bounded number of
     * times. */
    if (live + more <= table->room && live <= table->room / 2) {
        memmove(table->at, table->at + table->first, live * sizeof *table->at);
    } else {
        size_t room = (size_t)table->room * 2 > live + more ? (size_t)table->room * 2 : live + more;
        weir_block *block = new_table(room);
        if (block == NULL)
            return -ENOMEM;
        memcpy(((piece_table *)block->bytes)->at, table->at + table->first,
               live * sizeof *table->at);
        if (buf->block != weir__buf_home(buf))
            weir__block_release(buf->block);
        buf->block = block;
        table = table_of(buf);
    }
    table->first = 0;
    table->end = live;
    return 0;
}

/* Takes the reference to the block; the table has a free entry. */
static void append(weir_buf *buf, weir_block *block, uint8_t *bytes, size_t length,
                   bool is_read_only)
{
    piece_table *table = table_of(buf);
    uint32_t end = buf->offset + buf->capacity + (uint32_t)length;
    table->at[table->end++] = (weir_piece){ block, bytes, (uint32_t)length, end, is_read_only };
    buf->capacity += (uint32_t)length;
}

/* Appends a new piece for [from, capacity), in place of what was there; `from` is not below the
 * writer. */
static int append_room(weir_buf *buf, size_t from, size_t capacity)
{
    if (buf->flags & WEIR__BUF_BORROWED)
        return WEIR_ELIMIT;
    weir_block *block = reserve(buf, 1) == 0 ? weir__block_new(capacity - from) : NULL;
    if (block == NULL)
        return -ENOMEM;
    buf->capacity = (uint32_t)from;
    weir__composite_cut(buf);
    append(buf, block, block->bytes, capacity - from, false);
    return 0;
}

int weir__composite_set_capacity(weir_buf *buf, size_t capacity)
{
    return append_room(buf, buf->capacity, capacity);
}

/* How far the room for `length` bytes goes: to where they end, or to a piece that must not be
 * written and that the writer was moved back before. */
static size_t room_end(const weir_buf *buf, size_t length)
{
    size_t end = buf->writer;
    while (end < buf->capacity && end - buf->writer < length &&
           !weir__composite_is_read_only(buf, end, 1))
        end += weir__composite_run(buf, end).length;
    return end;
}

int weir__composite_ensure_writable(weir_buf *buf, size_t length)
{
    size_t end = room_end(buf, length);
    if (length <= end - buf->writer)
        return 0;
    return append_room(buf, end, weir__buf_grown(buf->writer + length, buf->limit));
}

void weir__composite_cut(weir_buf *buf)
{
    if (buf->flags & WEIR__BUF_BORROWED)
        return;
    piece_table *table = table_of(buf);
    uint32_t end = buf->offset + buf->capacity;
    while (table->end > table->first) {
        weir_piece *last = &table->at[table->end - 1];
        if (last->end <= end)
            break;
        /* The first piece may begin with bytes that were dropped; with no others left, it goes. */
        uint32_t start = start_of(last);
        if (start < end && buf->capacity > 0) {
            last->length = end - start;
            last->end = end;
            break;
        }
        weir__block_release(last->block);
        table->end--;
    }
}

/* Counts positions from 0 again, long before they could overflow. */
static void rebase(weir_buf *buf)
{
    piece_table *table = table_of(buf);
    uint32_t base = table->end > table->first ? start_of(&table->at[table->first]) : buf->offset;
    for (uint32_t i = table->first; i < table->end; i++)
        table->at[i].end -= base;
    buf->offset -= base;
}

void weir__composite_drop_front(weir_buf *buf, uint32_t length)
{
    buf->offset += length;
    buf->capacity -= length;
    if (buf->flags & WEIR__BUF_BORROWED)
        return;
    piece_table *table = table_of(buf);
    while (table->first < table->end && table->at[table->first].end <= buf->offset)
        weir__block_release(table->at[table->first++].block);
    if (buf->offset >= MAX_OFFSET)
        rebase(buf);
}

uint8_t *weir__composite_write_ptr(weir_buf *buf, size_t length)
{
    if (length > room_end(buf, length) - buf->writer ||
        weir__buf_run(buf, buf->writer, length).length < length) {
        size_t room = weir__buf_grown(length, buf->limit - buf->writer);
        if (append_room(buf, buf->writer, buf->writer + room) < 0)
            return NULL;
    }
    return weir__composite_run(buf, buf->writer).bytes;
}

/* Pieces ------------------------------------------------------------------------------------ */

static bool has_own_pieces(const weir_buf *buf)
{
    return weir_buf_is_composite(buf) && !(buf->flags & WEIR__BUF_BORROWED);
}

static int check_changeable(const weir_buf *buf)
{
    if (!has_own_pieces(buf))
        return -EINVAL;
    return buf->flags & WEIR__BUF_READ_ONLY ? WEIR_EREADONLY : 0;
}

/* In how many pieces [index, index + length) lies. */
static size_t pieces_in(const weir_buf *buf, size_t index, size_t length)
{
    if (length == 0)
        return 0;
    if (!(buf->flags & WEIR__BUF_COMPOSITE))
        return 1;
    const piece_table *table = table_of(buf);
    return piece_at(table, buf->offset + (uint32_t)(index + length - 1)) -
           piece_at(table, buf->offset + (uint32_t)index) + 1;
}

/* Appends what lies at [index, index + length) of another composite; the entries are reserved. */
static void append_pieces(weir_buf *to, const weir_buf *from, size_t index, size_t length)
{
    const piece_table *table = table_of(from);
    bool all_read_only = (from->flags & WEIR__BUF_READ_ONLY) != 0;
    while (length > 0) {
        weir_run run = weir__buf_run(from, index, length);
        const weir_piece *piece = &table->at[piece_at(table, from->offset + (uint32_t)index)];
        weir__block_retain(piece->block);
        append(to, piece->block, run.bytes, run.length, all_read_only || piece->is_read_only);
        index += run.length;
        length -= run.length;
    }
}

/* Appends the readable bytes of `part` and ends the reference to it; the entries are reserved. */
static void append_part(weir_buf *buf, weir_buf *part)
{
    size_t length = weir_buf_readable(part);
    if (part->flags & WEIR__BUF_COMPOSITE) {
        append_pieces(buf, part, part->reader, length);
        weir_buf_release(part);
        return;
    }
    uint8_t *bytes = part->data + part->reader;
    bool is_read_only = (part->flags & WEIR__BUF_READ_ONLY) != 0;
    append(buf, weir__buf_take_storage(part), bytes, length, is_read_only);
}

/* A borrowed slice has no reference to take. */
static void end_part(weir_buf *part)
{
    if (part != NULL && !(part->flags & WEIR__BUF_BORROWED))
        weir_buf_release(part);
}

int weir_buf_composite_add(weir_buf *composite, weir_buf *part)
{
    size_t length = weir_buf_readable(part);
    int code = check_changeable(composite);
    if (part == NULL || part == composite || (part->flags & WEIR__BUF_BORROWED))
        code = -EINVAL;
    else if (code == 0 && length > composite->limit - composite->writer)
        code = WEIR_ELIMIT;
    else if (code == 0)
        code = reserve(composite, pieces_in(part, part->reader, length));
    if (code < 0 || length == 0) {
        end_part(part);
        return code;
    }
    /* The room behind the writer goes, so that the part joins the content. */
    composite->capacity = composite->writer;
    weir__composite_cut(composite);
    append_part(composite, part);
    composite->writer = composite->capacity;
    return 0;
}

/* The positions behind the entries from `at` on, counted anew. */
static void recount(weir_buf *buf, uint32_t at)
{
    piece_table *table = table_of(buf);
    uint32_t end = at > table->first ? table->at[at - 1].end : buf->offset;
    for (; at < table->end; at++)
        end = table->at[at].end = end + table->at[at].length;
}

static void reverse(weir_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        weir_piece piece = pieces[i];
        pieces[i] = pieces[count - 1 - i];
        pieces[count - 1 - i] = piece;
    }
}

/* The first piece may begin with bytes that were dropped; cut them off so that lengths are true. */
static void trim_first(weir_buf *buf)
{
    piece_table *table = table_of(buf);
    if (table->first == table->end)
        return;
    weir_piece *first = &table->at[table->first];
    uint32_t dropped = buf->offset - start_of(first);
    first->bytes += dropped;
    first->length -= dropped;
}

static uint32_t with(uint32_t index, uint32_t start, uint32_t length)
{
    return index <= start ? index : index + length;
}

int weir_buf_composite_insert(weir_buf *composite, size_t at, weir_buf *part)
{
    size_t count = weir_buf_composite_count(composite);
    if (check_changeable(composite) == 0 && at > count) {
        end_part(part);
        return WEIR_EBOUNDS;
    }
    uint32_t before = (uint32_t)weir_buf_writer(composite);
    int code = weir_buf_composite_add(composite, part);
    size_t added = code == 0 ? weir_buf_composite_count(composite) - count : 0;
    if (added == 0 || at == count)
        return code;

    /* Turn the new pieces, which stand at the end, in front of those from `at` on. */
    trim_first(composite);
    piece_table *table = table_of(composite);
    weir_piece *from = &table->at[table->first + at];
    reverse(from, count - at);
    reverse(from + (count - at), added);
    reverse(from, count - at + added);
    recount(composite, table->first + (uint32_t)at);
    uint32_t start = start_of(from) - composite->offset;
    uint32_t length = composite->writer - before;
    composite->reader = with(composite->reader, start, length);
    composite->reader_mark = with(composite->reader_mark, start, length);
    composite->writer_mark = with(composite->writer_mark, start, length);
    return 0;
}

static uint32_t without(uint32_t index, uint32_t start, uint32_t length)
{
    if (index <= start)
        return index;
    return index < start + length ? start : index - length;
}

int weir_buf_composite_remove(weir_buf *composite, size_t at)
{
    int code = check_changeable(composite);
    if (code < 0)
        return code;
    if (at >= weir_buf_composite_count(composite))
        return WEIR_EBOUNDS;
    trim_first(composite);
    piece_table *table = table_of(composite);
    uint32_t entry = table->first + (uint32_t)at;
    weir_piece piece = table->at[entry];
    uint32_t start = start_of(&piece) - composite->offset;
    memmove(&table->at[entry], &table->at[entry + 1], (table->end - entry - 1) * sizeof *table->at);
    table->end--;
    recount(composite, entry);
    weir__block_release(piece.block);
    composite->capacity -= piece.length;
    composite->reader = without(composite->reader, start, piece.length);
    composite->writer = without(composite->writer, start, piece.length);
    composite->reader_mark = without(composite->reader_mark, start, piece.length);
    composite->writer_mark = without(composite->writer_mark, start, piece.length);
    return 0;
}

size_t weir_buf_composite_count(const weir_buf *composite)
{
    return has_own_pieces(composite) ? pieces_in(composite, 0, composite->writer) : 0;
}

int weir_buf_composite_piece(const weir_buf *composite, size_t at, size_t *index, size_t *length)
{
    if (!has_own_pieces(composite))
        return -EINVAL;
    if (at >= weir_buf_composite_count(composite))
        return WEIR_EBOUNDS;
    const piece_table *table = table_of(composite);
    const weir_piece *piece = &table->at[table->first + at];
    uint32_t start = at > 0 ? start_of(piece) : composite->offset;
    if (index != NULL)
        *index = start - composite->offset;
    uint32_t writer = composite->offset + composite->writer;
    if (length != NULL)
        *length = (piece->end < writer ? piece->end : writer) - start;
    return 0;
}

int weir_buf_composite_consolidate(weir_buf *composite)
{
    if (!has_own_pieces(composite))
        return -EINVAL;
    if (weir_buf_composite_count(composite) < 2)
        return 0;
    size_t length = composite->writer;
    weir_block *block = weir__block_new(length);
    if (block == NULL)
        return -ENOMEM;
    weir_buf_get_bytes(composite, 0, block->bytes, length);
    weir__composite_clear(composite);
    composite->offset = composite->capacity = 0;
    append(composite, block, block->bytes, length, false);
    return 0;
}

int weir__composite_view(const weir_buf *buf, size_t index, size_t length, bool may_be_plain,
                         weir_buf **view)
{
    size_t count = pieces_in(buf, index, length);
    weir_buf *made;
    if (count == 1 && may_be_plain) {
        const piece_table *table = table_of(buf);
        const weir_piece *piece = &table->at[piece_at(table, buf->offset + (uint32_t)index)];
        weir_block *home = weir__block_new(0);
        if (home == NULL)
            return -ENOMEM;
        weir__block_retain(piece->block);
        made = weir__buf_init(home, piece->block, weir__buf_run(buf, index, length).bytes, length,
                              piece->is_read_only ? WEIR__BUF_READ_ONLY : 0);
    } else {
        made = new_composite(count);
        if (made == NULL)
            return -ENOMEM;
        append_pieces(made, buf, index, length);
    }
    made->flags |= buf->flags & WEIR__BUF_READ_ONLY;
    *view = made;
    return 0;
}
