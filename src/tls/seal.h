/* SPDX-License-Identifier: MIT */
/* From what was written to records. */
#ifndef WEIR_TLS_SEAL_H
#define WEIR_TLS_SEAL_H

#include "tls/engine.h"
#include "tls/writes.h"

/*
 * Encrypts all of `plain`, which is empty then, and adds what is to be sent to `sealed`; the
 * promise of a write goes with the buffer that has its last byte. Small writes share records, long
 * ones fill them. 0; or a negative code, which `error` explains: then what was not encrypted has
 * failed with it.
 */
int weir__tls_seal(weir_tls_engine *engine, weir_tls_writes *plain, weir_tls_writes *sealed,
                   weir_error *error);

#endif
