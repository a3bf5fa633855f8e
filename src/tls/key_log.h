/* SPDX-License-Identifier: MIT */
/* The file for the secrets of connections. */
#ifndef WEIR_TLS_KEY_LOG_H
#define WEIR_TLS_KEY_LOG_H

#include <weir/error.h>

#include <openssl/bio.h>

/* Opens it to append to it; nobody else may read what it makes, nor what was there. -EINVAL for
 * what is no regular file, -ELOOP for a symbolic link, or what opening it says. */
int weir__tls_key_log_open(BIO **log, const char *path, weir_error *error);

#endif
