/* SPDX-License-Identifier: MIT */
/* What the files of buf/ share: runs of memory, and the ways a buffer is put together. */
#ifndef WEIR_BUF_BUF_H
#define WEIR_BUF_BUF_H

#include "buf/pool.h"

#include <weir/buf.h>

#include <errno.h>

/*
 * The memory at an index, as far as it goes in one piece. Every function that looks at bytes is
 * a loop over runs, so composites are nobody's special case.
 */
typedef struct weir_run {
    uint8_t *bytes;
    size_t length;
} weir_run;

/* The run at `index`, which is below the capacity, cut to `length`. */
weir_run weir__buf_run(const weir_buf *buf, size_t index, size_t length);

/* The run that ends at `end`, which is above 0 and not above the capacity, cut to its last
 * `length`. */
weir_run weir__buf_run_before(const weir_buf *buf, size_t end, size_t length);

/* The block a buffer lives in. */
static inline weir_block *weir__buf_home(weir_buf *buf)
{
    return (weir_block *)((char *)buf - offsetof(weir_block, buf));
}

/* 0 when [index, index + length) is content, else the code. */
static inline int weir__buf_check(const weir_buf *buf, size_t index, size_t length)
{
    if (buf == NULL)
        return -EINVAL;
    return index <= buf->writer && length <= buf->writer - index ? 0 : WEIR_EBOUNDS;
}

/* Whether `slice` is borrowed from `buf` and nobody else keeps its storage: it is lost when `buf`
 * grows. */
static inline bool weir__buf_is_slice_of(const weir_buf *slice, const weir_buf *buf)
{
    return slice->flags & WEIR__BUF_BORROWED && buf != NULL && slice->block == buf->block &&
           !(buf->flags & WEIR__BUF_BORROWED) && !weir__block_is_shared(buf->block);
}

/* Whether the storage is this view's alone, so that bytes may be moved and room used up in it. */
bool weir__buf_owns_storage(const weir_buf *buf);

/* Initialises the buffer inside `home` as a view of `capacity` bytes; takes both references. */
weir_buf *weir__buf_init(weir_block *home, weir_block *storage, uint8_t *data, size_t capacity,
                         uint32_t flags);

/* A buffer of its own over content of one that is no composite: NULL without memory. */
weir_buf *weir__buf_view(const weir_buf *buf, size_t index, size_t length);

/* What can be read of a buffer that is no composite. */
static inline const uint8_t *weir__buf_bytes(const weir_buf *buf)
{
    return buf->data + buf->reader;
}

/* Ends one reference to a contiguous buffer and returns a reference to its storage instead. */
weir_block *weir__buf_take_storage(weir_buf *buf);

/* The capacity to grow to when `needed` bytes are. */
size_t weir__buf_grown(size_t needed, size_t limit);

/* Copies to [index, index + length), which is inside the capacity, whatever the writer says. */
void weir__buf_put(weir_buf *buf, size_t index, const uint8_t *from, size_t length);

#endif
