/* SPDX-License-Identifier: MIT */
/* Something before each buffer that is written: its length, in whatever form. */
#ifndef WEIR_CODEC_PREPEND_H
#define WEIR_CODEC_PREPEND_H

#include <weir/handler.h>

#define WEIR__MOST_PREPENDED 8

/* What to put before so many bytes: how many of `to` it took, at most WEIR__MOST_PREPENDED; or a
 * negative code. */
typedef int (*weir_prepend_fn)(weir_ctx *ctx, size_t length, uint8_t *to);

/* In `write`. What is no buffer passes. */
void weir__prepend(weir_ctx *ctx, weir_msg *msg, weir_promise *promise, weir_prepend_fn fn);

#endif
