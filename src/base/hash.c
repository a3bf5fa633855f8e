/* SPDX-License-Identifier: MIT */
/* SipHash-2-4, as its authors define it. */
#include "base/hash.h"

#include <string.h>

static uint64_t rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static void mix(weir_hash *hash)
{
    hash->v0 += hash->v1;
    hash->v2 += hash->v3;
    hash->v1 = rotate(hash->v1, 13) ^ hash->v0;
    hash->v3 = rotate(hash->v3, 16) ^ hash->v2;
    hash->v0 = rotate(hash->v0, 32);
    hash->v2 += hash->v1;
    hash->v0 += hash->v3;
    hash->v1 = rotate(hash->v1, 17) ^ hash->v2;
    hash->v3 = rotate(hash->v3, 21) ^ hash->v0;
    hash->v2 = rotate(hash->v2, 32);
}

static void add_word(weir_hash *hash, uint64_t word)
{
    hash->v3 ^= word;
    mix(hash);
    mix(hash);
    hash->v0 ^= word;
}

void weir__hash_init(weir_hash *hash, const uint64_t key[2])
{
    *hash = (weir_hash){
        .v0 = key[0] ^ 0x736f6d6570736575,
        .v1 = key[1] ^ 0x646f72616e646f6d,
        .v2 = key[0] ^ 0x6c7967656e657261,
        .v3 = key[1] ^ 0x7465646279746573,
    };
}

void weir__hash_add(weir_hash *hash, const uint8_t *bytes, size_t length)
{
    while (length > 0) {
        if (hash->length % 8 == 0 && length >= 8) {
            uint64_t word;
            memcpy(&word, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            word = __builtin_bswap64(word);
#endif
            add_word(hash, word);
            hash->length += 8;
            bytes += 8;
            length -= 8;
            continue;
        }
        hash->pending |= (uint64_t)*bytes++ << (8 * (hash->length % 8));
        length--;
        if (++hash->length % 8 == 0) {
            add_word(hash, hash->pending);
            hash->pending = 0;
        }
    }
}

uint64_t weir__hash_end(weir_hash *hash)
{
    add_word(hash, hash->pending | hash->length << 56);
    hash->v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        mix(hash);
    return hash->v0 ^ hash->v1 ^ hash->v2 ^ hash->v3;
}
