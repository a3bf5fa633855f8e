/* SPDX-License-Identifier: MIT */
/* From what was written to records. */
#ifndef WEIR_TLS_SEAL_H
#define WEIR_TLS_SEAL_H

#include "tls/engine.h"
#include "tls/writes.h"

/*
 * Encrypts all of `plain`, which is empty then, and adds what is to be sent to `sealed`. Small
 * writes share records, long ones fill them. The promise of a write goes with an empty buffer
 * behind its last byte: a record that is refused on its way has none, so that it ends the
 * connection, for the other side cannot decrypt what comes behind the gap. 0; or a negative code,
 * which `error` explains: then what was not encrypted has failed with it.
 */
int weir__tls_seal(weir_tls_engine *engine, weir_tls_writes *plain, weir_tls_writes *sealed,
                   weir_error *error);

/* How much of a queue so many bytes of so many writes may need at most. */
size_t weir__tls_sealed_most(size_t bytes, size_t writes);

#endif
