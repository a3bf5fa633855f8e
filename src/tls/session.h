/* SPDX-License-Identifier: MIT */
/* What came of a handshake, in words. */
#ifndef WEIR_TLS_SESSION_PRIVATE_H
#define WEIR_TLS_SESSION_PRIVATE_H

#include <weir/tls.h>

#include <openssl/ssl.h>

/* All of it is copied. NULL: no memory. `host` is a client's, NULL: none. */
weir_tls_session *weir__tls_session_new(const SSL *ssl, const char *host);

/* Since 1970, as the wall clock says it; 0 for what is no time. */
int64_t weir__tls_seconds_of(const ASN1_TIME *when);

#endif
