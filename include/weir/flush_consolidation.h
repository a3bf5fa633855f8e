/* SPDX-License-Identifier: MIT */
/* Flush consolidation: fewer flushes, and so fewer system calls, for those who flush often. */
#ifndef WEIR_FLUSH_CONSOLIDATION_H
#define WEIR_FLUSH_CONSOLIDATION_H

#include <weir/api.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** How much is put together. */
typedef struct weir_flush_consolidation {
    int64_t most_flushes; /* so many at most become one; 0: 256 */
    bool is_always;       /* also flushes outside a batch of reads, which then wait for the loop to
                             get to its timers: before it waits for anything else */
} weir_flush_consolidation;

/**
 * Holds flushes back while a batch of reads is handled, and does one when it is through, or when
 * most_flushes have come: what answers every message by a write and a flush costs one system call
 * per batch. Put it before (nearer to the head than) the handlers that flush. Its argument is a
 * weir_flush_consolidation, which is copied, or NULL: every default. One that is
 * below 0 cannot be added.
 *
 * No flush is lost: what is held back goes before a close, shutdown, disconnect or deregistration
 * that passes it, before an error is passed on, when the channel turns unwritable, and when the
 * handler is removed. Promises are completed accordingly later, in the same order.
 */
extern WEIR_API const weir_handler_type weir_flush_consolidation_handler;

WEIR_END_DECLS

#endif
