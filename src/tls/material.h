/* SPDX-License-Identifier: MIT */
/* What a config came to: never changed, so that connections can go on with it when another comes.
 */
#ifndef WEIR_TLS_MATERIAL_H
#define WEIR_TLS_MATERIAL_H

#include "tls/credentials.h"

#include <openssl/ssl.h>

#include <pthread.h>
#include <stdatomic.h>

/* OpenSSL 3.0 has locks inside an SSL_CTX that threads get in each other's way at, so each loop has
 * one of its own: as many as there are here, then they share. */
#define WEIR__TLS_SHARDS 64

typedef struct weir_tls_shard {
    _Atomic(const void *) owner; /* the executor; set behind the next one, once */
    SSL_CTX *ssl;
} weir_tls_shard;

typedef struct weir_tls_material {
    _Atomic(uint32_t) refs;
    weir_tls_context *context; /* which outlives it */
    bool is_server;
    weir_tls_config config; /* its strings lie in `texts` */
    char *texts;
    const char **alpn_names;
    weir_tls_credentials credentials;
    unsigned char *alpn; /* as it is sent: each behind its length */
    unsigned alpn_length;
    int64_t session_s; /* 0: sessions are not resumed */
    uint64_t trust;    /* each has another: files may say something else than they did */
    BIO *key_log;
    pthread_mutex_t lock; /* of the shards that are made, and the log */
    weir_tls_shard shards[WEIR__TLS_SHARDS];
} weir_tls_material;

/* Copies the config, reads what it names, and tries whether it can be used. The codes of
 * weir_tls_context_new_server. */
int weir__tls_material_new(weir_tls_material **material, weir_tls_context *context,
                           const weir_tls_config *config, weir_error *error);

weir_tls_material *weir__tls_material_retain(weir_tls_material *material);
void weir__tls_material_release(weir_tls_material *material);

/* The SSL_CTX for the calling thread: borrowed. NULL: it cannot be made, and `error` says why. */
SSL_CTX *weir__tls_material_ssl(weir_tls_material *material, weir_error *error);

#endif
