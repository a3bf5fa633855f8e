/* SPDX-License-Identifier: MIT */
/* What OpenSSL says is wrong, as weir's errors. */
#ifndef WEIR_TLS_FAILURE_H
#define WEIR_TLS_FAILURE_H

#include <weir/error.h>

/* Before a call whose failure is told by one of these: what is in the thread's queue is old. */
void weir__tls_failure_clear(void);

/* What the queue has, which is empty then, behind the words of the caller. `code` is for what has
 * no better one. Returns the code. `error` may be NULL. */
int weir__tls_failure(weir_error *error, int code, const char *format, ...) WEIR_PRINTF(3, 4);

/* Why a certificate was refused, an X509_V_ERR_ of OpenSSL. */
int weir__tls_failure_of_certificate(weir_error *error, long reason, const char *host);

#endif
