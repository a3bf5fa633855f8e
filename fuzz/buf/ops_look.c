/* SPDX-License-Identifier: MIT */
/* Operations that look at content: runs of memory, finding, comparing, hashing. */
#include "buf/world.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* A range, sometimes all there is, and if it is content, that content in w->bytes. */
static int take_content(world *w, const slot *s, size_t *index, size_t *length)
{
    bool is_all = take(w) % 4 == 0;
    *index = is_all ? 0 : take_size(w, s->view.writer);
    *length = is_all                     ? s->view.writer
              : *index <= s->view.writer ? take_size(w, s->view.writer - *index)
                                         : take_size(w, 0);
    int code = model_check(&s->view, *index, *length);
    if (code == 0)
        model_get(&s->view, *index, w->bytes, *length);
    return code;
}

/* Runs of memory ---------------------------------------------------------------------------- */

void op_peek(world *w, slot *s)
{
    size_t index, length;
    int expected = take_content(w, s, &index, &length);
    SAY("peek(%zu, %zu)", index, length);
    const uint8_t *bytes = weir_buf_peek(s->buf, index, length);
    bool is_one = expected == 0 && model_pieces_in(&s->view, index, length) <= 1;
    expect(w, "being one run", bytes != NULL, is_one);
    if (bytes != NULL && memcmp(bytes, w->bytes, length) != 0)
        fail(w, "wrong bytes");
}

void op_iovec(world *w, slot *s)
{
    struct iovec iov[MODEL_PIECES];
    size_t index, length, covered = SIZE_MAX;
    int expected = take_content(w, s, &index, &length), max = take(w) % (MODEL_PIECES + 1);
    SAY("iovec(%zu, %zu, max %d)", index, length, max);
    int count = weir_buf_iovec(s->buf, index, length, iov, max, &covered);
    if (expected == 0) {
        size_t pieces = model_pieces_in(&s->view, index, length);
        expected = pieces < (size_t)max ? (int)pieces : max;
    }
    expect(w, "the count", count, expected);
    size_t done = 0;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len == 0 || iov[i].iov_len > length - done ||
            memcmp(iov[i].iov_base, w->bytes + done, iov[i].iov_len) != 0)
            fail(w, "wrong bytes in iovec %d", i);
        done += iov[i].iov_len;
    }
    expect(w, "covered", (int64_t)covered, count < 0 ? -1 : (int64_t)done);
    if (count >= 0 && count < max)
        expect(w, "what was covered", (int64_t)done, (int64_t)length);
}

/* Finding ----------------------------------------------------------------------------------- */

typedef bool (*fits_fn)(const uint8_t *at, const uint8_t *sequence, size_t length);

static bool fits_sequence(const uint8_t *at, const uint8_t *sequence, size_t length)
{
    return memcmp(at, sequence, length) == 0;
}

static bool fits_above(const uint8_t *at, const uint8_t *sequence, size_t length)
{
    (void)length;
    return *at > *sequence;
}

/* The first or last place in w->bytes that fits, as an index in the buffer; or the code. */
static int64_t search(const world *w, size_t index, size_t length, fits_fn fits,
                      const uint8_t *sequence, size_t sequence_length, bool from_end)
{
    if (sequence_length > length)
        return WEIR_ENOTFOUND;
    size_t starts = length - sequence_length + 1;
    for (size_t i = 0; i < starts; i++) {
        size_t at = from_end ? starts - 1 - i : i;
        if (fits(w->bytes + at, sequence, sequence_length))
            return (int64_t)(index + at);
    }
    return WEIR_ENOTFOUND;
}

/* A byte to look for, mostly one that is there. */
static uint8_t take_sought(world *w, size_t length)
{
    uint8_t byte = take(w);
    return byte < 0xc0 && length > 0 && length <= MAX_CONTENT ? w->bytes[byte % length] : byte;
}

void op_find(world *w, slot *s)
{
    size_t index, length;
    int code = take_content(w, s, &index, &length);
    uint8_t byte = take_sought(w, length);
    bool from_end = take(w) & 1;
    SAY("find%s(%zu, %zu, %02x)", from_end ? "_last" : "", index, length, byte);
    int64_t found = from_end ? weir_buf_find_last(s->buf, index, length, byte)
                             : weir_buf_find(s->buf, index, length, byte);
    int64_t expected = code < 0 ? code
                                : search(w, index, length, fits_sequence, &byte, 1, from_end);
    expect(w, "the place", found, expected);
}

/* A sequence to look for: mostly content, often what lies across the end of a piece, sometimes with
 * a byte changed. */
static void take_sequence(world *w, const slot *s, uint8_t *sequence, size_t length)
{
    size_t from = take_size(w, s->view.writer);
    uint8_t how = take(w);
    if (how & 1) {
        from = 0;
        for (size_t i = 0; s->view.count > 0 && i <= how / 16 % s->view.count; i++)
            from += s->view.pieces[i].length;
        size_t before = length > 0 ? how / 2 % length : 0;
        from = from > before ? from - before : 0;
    }
    memset(sequence, 0, length);
    if (model_check(&s->view, from, length) == 0)
        model_get(&s->view, from, sequence, length);
    if (length > 0 && how % 8 == 2)
        sequence[how / 8 % length] ^= how;
}

void op_find_bytes(world *w, slot *s)
{
    uint8_t sequence[16];
    size_t index, length, sequence_length = take(w) % sizeof sequence;
    int code = take_content(w, s, &index, &length);
    bool from_end = take(w) & 1;
    take_sequence(w, s, sequence, sequence_length);
    SAY("find%s_bytes(%zu, %zu, %zu bytes)", from_end ? "_last" : "", index, length,
        sequence_length);
    int64_t found = from_end
                        ? weir_buf_find_last_bytes(s->buf, index, length, sequence, sequence_length)
                        : weir_buf_find_bytes(s->buf, index, length, sequence, sequence_length);
    int64_t expected = code;
    if (code == 0 && sequence_length == 0)
        expected = -EINVAL;
    else if (code == 0)
        expected = search(w, index, length, fits_sequence, sequence, sequence_length, from_end);
    expect(w, "the place", found, expected);
}

/* What a predicate was asked: it sees every byte in order, up to the one it takes. */
typedef struct asked {
    size_t count;
    uint8_t above;
    uint8_t bytes[MAX_CONTENT];
} asked;

static bool is_above(void *arg, uint8_t byte)
{
    asked *a = arg;
    a->bytes[a->count++] = byte;
    return byte > a->above;
}

void op_find_if(world *w, slot *s)
{
    static asked a;
    size_t index, length;
    int code = take_content(w, s, &index, &length);
    a.count = 0;
    a.above = take_sought(w, length);
    bool from_end = take(w) & 1;
    SAY("find%s_if(%zu, %zu, above %02x)", from_end ? "_last" : "", index, length, a.above);
    int64_t found = from_end ? weir_buf_find_last_if(s->buf, index, length, is_above, &a)
                             : weir_buf_find_if(s->buf, index, length, is_above, &a);
    int64_t expected = code;
    if (code == 0)
        expected = search(w, index, length, fits_above, &a.above, 1, from_end);
    expect(w, "the place", found, expected);
    for (size_t i = 0; i < a.count; i++) {
        if (a.bytes[i] != w->bytes[from_end ? length - 1 - i : i])
            fail(w, "asked out of order at %zu", i);
    }
}

/* Comparing --------------------------------------------------------------------------------- */

void op_compare(world *w, slot *s)
{
    const slot *with = take_slot(w);
    size_t length = s->view.writer - s->view.reader;
    size_t with_length = with->view.writer - with->view.reader;
    model_get(&s->view, s->view.reader, w->bytes, length);
    model_get(&with->view, with->view.reader, w->other, with_length);
    int order = memcmp(w->bytes, w->other, length < with_length ? length : with_length);
    if (order == 0)
        order = length < with_length ? -1 : length > with_length;
    SAY("compare([%d])", slot_number(w, with));
    expect(w, "compare", weir_buf_compare(s->buf, with->buf), order < 0 ? -1 : order > 0);
    expect(w, "compare the other way", weir_buf_compare(with->buf, s->buf),
           order < 0 ? 1 : -(order > 0));
    expect(w, "equal", weir_buf_equal(s->buf, with->buf), order == 0);
}

void op_hash(world *w, slot *s)
{
    size_t length = s->view.writer - s->view.reader;
    model_get(&s->view, s->view.reader, w->bytes, length);
    uint64_t key[2] = { take(w), take(w) };
    const uint64_t *used = key[0] & 1 ? key : NULL;
    SAY("hash()");
    uint64_t hash = weir_buf_hash(s->buf, used);
    /* The same bytes in one piece, beside the faults. */
    unsigned fault_in = w->fault_in;
    w->fault_in = 0;
    weir_buf *plain = weir_buf_from(w->bytes, length);
    w->fault_in = fault_in;
    expect(w, "the hash", (int64_t)hash, (int64_t)weir_buf_hash(plain, used));
    weir_buf_release(plain);
}
