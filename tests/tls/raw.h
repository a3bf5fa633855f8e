/* SPDX-License-Identifier: MIT */
/* The other side of an embedded channel, by OpenSSL alone: for what weir would not do. */
#ifndef WEIR_TESTS_TLS_RAW_H
#define WEIR_TESTS_TLS_RAW_H

#include "tls/pair.h"

#include <openssl/ssl.h>

typedef struct raw {
    SSL_CTX *context;
    SSL *ssl;
    weir_embedded *to;
    char heard[1 << 16];
    size_t length; /* of that, which ends with NUL */
    int last;      /* what SSL_get_error said */
} raw;

/* A client, or a server with the certificate of pair_identity, of at most a version (0: any). */
void raw_begin(raw *self, weir_embedded *to, bool is_server, int version);

/* Carries bytes in both directions, and shakes and reads, until nothing moves. */
void raw_carry(raw *self);
void raw_say(raw *self, const char *text);

/* What it would send now, put into the channel. Returns how many bytes. */
size_t raw_send(raw *self);
void raw_end(raw *self);

#endif
