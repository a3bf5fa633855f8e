/* SPDX-License-Identifier: MIT */
/* What OpenSSL asks about sessions that are resumed. */
#ifndef WEIR_TLS_RESUMPTION_H
#define WEIR_TLS_RESUMPTION_H

#include "tls/material.h"

/* Makes an SSL_CTX of this material ask us. */
bool weir__tls_resumption_set(const weir_tls_material *material, SSL_CTX *ssl);

#endif
