/* SPDX-License-Identifier: MIT */
/* Buffers that wait to be encrypted, with their promises. */
#ifndef WEIR_TLS_WRITES_H
#define WEIR_TLS_WRITES_H

#include <weir/buf.h>
#include <weir/future.h>

typedef struct weir_tls_write {
    weir_buf *buf;
    size_t length; /* when it was written: whoever keeps a reference may change the buffer */
    weir_promise *promise; /* NULL: nobody wants to know */
} weir_tls_write;

/* A list in a buffer of the pool, so that a write allocates nothing; NULL: none wait. */
typedef struct weir_tls_writes {
    weir_buf *list;
    size_t bytes; /* in all of them */
} weir_tls_writes;

/* Takes the buffer, and a reference to the promise: 0; or -ENOMEM, and both are the caller's. */
int weir__tls_writes_add(weir_tls_writes *writes, weir_buf *buf, weir_promise *promise);

/* The first that waits, whose references are the caller's from then on: false when there is none.
 */
bool weir__tls_writes_take(weir_tls_writes *writes, weir_tls_write *taken);

/* How many there are. */
size_t weir__tls_writes_count(const weir_tls_writes *writes);

/* All of them end with a code, and are not written. */
void weir__tls_writes_fail(weir_tls_writes *writes, int code);

#endif
