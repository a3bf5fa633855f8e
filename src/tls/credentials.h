/* SPDX-License-Identifier: MIT */
/* Certificates, keys and who is trusted, read from files or texts. */
#ifndef WEIR_TLS_CREDENTIALS_H
#define WEIR_TLS_CREDENTIALS_H

#include <weir/tls_context.h>

#include <openssl/ssl.h>

/* What OpenSSL made of them; any may be NULL. */
typedef struct weir_tls_credentials {
    X509 *certificate;
    STACK_OF(X509) * chain; /* behind the certificate */
    EVP_PKEY *key;
    X509_STORE *trusted;
    STACK_OF(X509_NAME) * trusted_names; /* what a server tells its clients */
} weir_tls_credentials;

/* Reads what the config says: 0, or what weir_tls_context_new_server promises. */
int weir__tls_credentials_read(weir_tls_credentials *credentials, const weir_tls_config *config,
                               bool is_server, weir_error *error);

void weir__tls_credentials_free(weir_tls_credentials *credentials);

#endif
