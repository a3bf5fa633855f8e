/* SPDX-License-Identifier: MIT */
/* Bytes of several reads, kept as one buffer. */
#ifndef WEIR_CODEC_CUMULATION_H
#define WEIR_CODEC_CUMULATION_H

#include <weir/decoder.h>

/* What is left of a read, in a buffer of one's own, to which more can be appended: others may hold
 * the read itself, or views of it. Takes the reference, also when there is no memory (-ENOMEM);
 * `*to` is NULL for an empty one. */
int weir__cumulation_begin(weir_cumulation kind, weir_buf *rest, weir_buf **to);

/* Appends bytes of another buffer, which stays the caller's, by copying or as a piece. -ENOMEM, and
 * everything is as it was. */
int weir__cumulation_append(weir_cumulation kind, weir_buf **to, const weir_buf *from, size_t index,
                            size_t length);

/* Gives one back, if there is one. */
void weir__cumulation_drop(weir_buf **buf);

#endif
