/* SPDX-License-Identifier: MIT */
/* ClientHellos, as a client of OpenSSL sends them, and as none would. */
#ifndef WEIR_TESTS_TLS_HELLOS_H
#define WEIR_TESTS_TLS_HELLOS_H

#include "tls/pair.h"

#include <openssl/ssl.h>

#include <string.h>

typedef struct hello {
    uint8_t bytes[4096];
    size_t length;
} hello;

/* A whole one, in one record, that asks for a host (NULL: none). */
static inline void hello_make(hello *made, const char *host)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl);
    if (host != NULL)
        assert_int_equal(SSL_set_tlsext_host_name(ssl, host), 1);
    SSL_do_handshake(ssl);
    int length = BIO_read(SSL_get_wbio(ssl), made->bytes, sizeof made->bytes);
    assert_true(length > 9 && made->bytes[0] == 22);
    made->length = (size_t)length;
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static inline void hello_put_record(hello *to, const uint8_t *bytes, size_t length)
{
    assert_true(to->length + 5 + length <= sizeof to->bytes);
    const uint8_t header[] = { 22, 3, 1, (uint8_t)(length >> 8), (uint8_t)length };
    memcpy(to->bytes + to->length, header, sizeof header);
    memcpy(to->bytes + to->length + sizeof header, bytes, length);
    to->length += sizeof header + length;
}

/* The same message in two records, cut behind so many bytes. */
static inline void hello_cut(hello *to, const hello *from, size_t at)
{
    to->length = 0;
    hello_put_record(to, from->bytes + 5, at);
    hello_put_record(to, from->bytes + 5 + at, from->length - 5 - at);
}

/* The same with one byte in each record. */
static inline void hello_shred(hello *to, const hello *from)
{
    to->length = 0;
    for (size_t i = 5; i < from->length; i++)
        hello_put_record(to, from->bytes + i, 1);
}

/* A small one of parts: what is behind the compressions is the caller's. */
static inline void hello_build(hello *to, const uint8_t *extensions, size_t length)
{
    uint8_t message[2048] = { 1 };
    size_t at = 4;
    message[at++] = 3, message[at++] = 3;
    at += 32;
    message[at++] = 0;                    /* session */
    message[at++] = 0, message[at++] = 2; /* ciphers */
    message[at++] = 0x13, message[at++] = 1;
    message[at++] = 1, message[at++] = 0; /* compressions */
    if (length > 0)
        memcpy(message + at, extensions, length);
    at += length;
    message[2] = (uint8_t)((at - 4) >> 8), message[3] = (uint8_t)(at - 4);
    to->length = 0;
    hello_put_record(to, message, at);
}

#endif
