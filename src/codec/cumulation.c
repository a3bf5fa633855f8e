/* SPDX-License-Identifier: MIT */
/* Keeping bytes until there are enough of them. */
#include "codec/cumulation.h"

#include <errno.h>

void weir__cumulation_drop(weir_buf **buf)
{
    if (*buf != NULL)
        weir_buf_release(*buf);
    *buf = NULL;
}

/* A few bytes do not keep the large buffer that they came in. */
int weir__cumulation_begin(weir_cumulation kind, weir_buf *rest, weir_buf **to)
{
    size_t length = weir_buf_readable(rest);
    int code = 0;
    *to = NULL;
    if (kind == WEIR_CUMULATION_CHAIN && weir_buf_capacity(rest) / 4 <= length && length > 0) {
        *to = weir_buf_new_composite();
        code = *to != NULL ? weir_buf_composite_add(*to, weir_buf_retain(rest)) : -ENOMEM;
        if (code < 0)
            weir__cumulation_drop(to);
    } else if (length > 0) {
        code = weir_buf_copy(rest, weir_buf_reader(rest), length, to);
    }
    weir_buf_release(rest);
    return code;
}

/* What was read of it makes room, when that is worth the move. */
static void make_room(weir_buf *kept)
{
    if (weir_buf_reader(kept) > weir_buf_readable(kept))
        weir_buf_discard_read(kept); /* a failure leaves it as it is */
}

/* Appends bytes of `from` by copying. */
static int append_copy(weir_buf *to, const weir_buf *from, size_t index, size_t length)
{
    make_room(to);
    uint8_t *room = weir_buf_write_ptr(to, length);
    if (room == NULL)
        return -ENOMEM;
    weir_buf_get_bytes(from, index, room, length);
    return weir_buf_advance_writer(to, length);
}

/* From now on pieces can be added to it. */
static int make_chain(weir_buf **buf)
{
    weir_buf *chain = weir_buf_new_composite();
    int code = chain != NULL ? weir_buf_composite_add(chain, weir_buf_retain(*buf)) : -ENOMEM;
    if (code < 0) {
        weir__cumulation_drop(&chain);
        return code;
    }
    weir_buf_release(*buf);
    *buf = chain;
    return 0;
}

/* The same without copying. A piece that is much smaller than its storage is copied all the same,
 * so that many small ones do not hold a lot of memory. */
static int append_piece(weir_buf **to, const weir_buf *from, size_t index, size_t length)
{
    weir_buf *piece;
    if (weir_buf_capacity(from) / 4 > length)
        return append_copy(*to, from, index, length);
    int code = weir_buf_is_composite(*to) ? 0 : make_chain(to);
    if (code == 0)
        code = weir_buf_retained_slice(from, index, length, &piece);
    if (code < 0)
        return code;
    make_room(*to);
    return weir_buf_composite_add(*to, piece);
}

int weir__cumulation_append(weir_cumulation kind, weir_buf **to, const weir_buf *from, size_t index,
                            size_t length)
{
    return kind == WEIR_CUMULATION_CHAIN ? append_piece(to, from, index, length)
                                         : append_copy(*to, from, index, length);
}
