/* SPDX-License-Identifier: MIT */
/* What came of a handshake, in words. */
#ifndef WEIR_TLS_SESSION_PRIVATE_H
#define WEIR_TLS_SESSION_PRIVATE_H

#include <weir/tls.h>

#include <openssl/ssl.h>

/* All of it is copied. NULL: no memory. `host` is a client's, NULL: none. */
weir_tls_session *weir__tls_session_new(const SSL *ssl, const char *host);

#endif
