/* SPDX-License-Identifier: MIT */
/* Certificates of every kind, made for a test. */
#ifndef WEIR_TESTS_TLS_CERTS_H
#define WEIR_TESTS_TLS_CERTS_H

#include "harness.h"

#include <openssl/x509.h>

typedef struct cert {
    X509 *x509;
    EVP_PKEY *key;
    char pem[4096], key_pem[512];
} cert;

/* What it is to be. Zero: of nobody, valid now, signed by itself, no CA. */
typedef struct cert_config {
    const char *name;     /* the common name */
    const char *alt;      /* "DNS:a.org,IP:10.0.0.1"; NULL: none */
    const cert *issuer;   /* NULL: itself */
    long from_s, until_s; /* from now on; 0: an hour ago, in an hour */
    bool is_ca;
} cert_config;

void cert_make(cert *made, const cert_config *config);
void cert_free(cert *made);

/* The key once more, under a password. */
void cert_key_with_password(const cert *of, const char *password, char *to, size_t size);

/* A directory of this process's own, and files in it; all of it is gone with the last call. */
const char *cert_directory(void);
const char *cert_file(const char *name, const char *text);
void cert_forget_files(void);

/* The name that OpenSSL looks for in a directory of trusted certificates. */
const char *cert_hashed_name(const cert *of);

#endif
