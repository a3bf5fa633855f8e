/* SPDX-License-Identifier: MIT */
/* SipHash-2-4, fed in pieces: the keyed hash for tables that a peer can fill. */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <weir/api.h>

typedef struct weir_hash {
    uint64_t v0, v1, v2, v3;
    uint64_t pending; /* the bytes of the word that is not full yet */
    uint64_t length;  /* all bytes so far */
} weir_hash;

void weir__hash_init(weir_hash *hash, const uint64_t key[2]);
void weir__hash_add(weir_hash *hash, const uint8_t *bytes, size_t length);
uint64_t weir__hash_end(weir_hash *hash);

#endif
