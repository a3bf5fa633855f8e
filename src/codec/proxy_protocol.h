/* SPDX-License-Identifier: MIT */
/* The PROXY protocol as bytes, for the handlers that speak it. */
#ifndef WEIR_CODEC_PROXY_PROTOCOL_H
#define WEIR_CODEC_PROXY_PROTOCOL_H

#include <weir/proxy_protocol.h>

enum {
    WEIR__PROXY_V1_SIGNATURE = 6, /* "PROXY " */
    WEIR__PROXY_V1_MAX = 107,     /* bytes of a line, its end included */
    WEIR__PROXY_V2_SIGNATURE = 12,
    WEIR__PROXY_V2_BEGIN = 16, /* then the addresses */
    WEIR__PROXY_V2_MAX = WEIR__PROXY_V2_BEGIN + 0xffff,
    WEIR__PROXY_CHECKSUM = 7, /* bytes of a CRC32C, as a TLV */
};

extern const uint8_t weir__proxy_v1_signature[WEIR__PROXY_V1_SIGNATURE];
extern const uint8_t weir__proxy_v2_signature[WEIR__PROXY_V2_SIGNATURE];

/* A header that is being read. */
typedef struct weir_proxy_reading {
    const uint8_t *bytes;
    size_t length;
    size_t at;        /* how far it was read; when something is wrong, where that is */
    weir_error error; /* then */

    /* What came of it. The TLVs lie in `bytes`, with the checksum, if there is one, among them. */
    weir_proxy_header header;
    size_t checksum_at; /* in the TLVs, if the header has_checksum */
} weir_proxy_reading;

/* A whole header of version 1, its line end included, whose signature was recognised: 0, or a
 * negative code. */
int weir__proxy_read_v1(weir_proxy_reading *self);

/* The begin of one of version 2, likewise: how long the header is, or a negative code. And then the
 * whole of it. */
int weir__proxy_read_v2_begin(weir_proxy_reading *self, size_t most);
int weir__proxy_read_v2(weir_proxy_reading *self, bool ignores_checksum);

/* How many bytes the addresses of a family have, which is the upper half of byte 13; -1: no such
 * family. */
int weir__proxy_addresses_size(unsigned family);

/* 1: there is a next one; 0: there is none; -EBADMSG: at tlv->next is none. */
int weir__proxy_step(const uint8_t *tlvs, size_t length, weir_proxy_tlv *tlv);

/* The checksum of a header, as if it was 0 itself, for which it lies at `at`. */
uint32_t weir__proxy_checksum(const uint8_t *header, size_t length, size_t at);

#endif
