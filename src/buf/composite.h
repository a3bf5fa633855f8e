/* SPDX-License-Identifier: MIT */
/* Composites: several pieces of storage that act as one run of bytes. */
#ifndef WEIR_BUF_COMPOSITE_H
#define WEIR_BUF_COMPOSITE_H

#include "buf/buf.h"

/* The memory at `index`, as far as its piece goes. */
weir_run weir__composite_run(const weir_buf *buf, size_t index);

/* The memory that ends at `end`, from where its piece begins. */
weir_run weir__composite_run_before(const weir_buf *buf, size_t end);

/* Whether a piece at [index, index + length) must not be written. */
bool weir__composite_is_read_only(const weir_buf *buf, size_t index, size_t length);

/* Releases all pieces. */
void weir__composite_clear(weir_buf *buf);

/* Appends room until there are `capacity` bytes, which is above what there is. */
int weir__composite_set_capacity(weir_buf *buf, size_t capacity);

/* Makes sure of room for `length` bytes, which the limit allows. */
int weir__composite_ensure_writable(weir_buf *buf, size_t length);

/* Drops the pieces, and the part of a piece, behind the capacity. */
void weir__composite_cut(weir_buf *buf);

/* Drops the first `length` bytes; the capacity goes down with them. */
void weir__composite_drop_front(weir_buf *buf, uint32_t length);

/* `length` bytes of room in one piece, above 0, which the caller has made sure the limit allows. */
uint8_t *weir__composite_write_ptr(weir_buf *buf, size_t length);

/* A buffer that views [index, index + length): another composite, or, if it may be, a plain one.
 * Its indices are the caller's to set. */
int weir__composite_view(const weir_buf *buf, size_t index, size_t length, bool may_be_plain,
                         weir_buf **view);

#endif
