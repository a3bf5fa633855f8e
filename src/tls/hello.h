/* SPDX-License-Identifier: MIT */
/* The ClientHello: what a server can know before it has chosen a certificate. */
#ifndef WEIR_TLS_HELLO_H
#define WEIR_TLS_HELLO_H

#include <weir/buf.h>

typedef struct weir_tls_hello {
    weir_buf *message; /* what there is of it, without the records around it; NULL: nothing */
    size_t looked;     /* bytes of the stream that are in it, records and all */
    bool has_server_name;
    char host[256]; /* "": the client has not named one */
} weir_tls_hello;

typedef enum weir_tls_hello_state {
    WEIR_TLS_HELLO_MORE,
    WEIR_TLS_HELLO_DONE,
    WEIR_TLS_HELLO_REFUSED, /* the error says why */
} weir_tls_hello_state;

/* Goes on with the readable bytes of `in`, which begin where the stream does; they are left where
 * they are. No more than `most` bytes are a ClientHello. */
weir_tls_hello_state weir__tls_hello_read(weir_tls_hello *hello, const weir_buf *in, size_t most,
                                          weir_error *error);

/* When it is not needed any more. */
void weir__tls_hello_deinit(weir_tls_hello *hello);

/* Whether it can be the name of a host, and no address. */
bool weir__tls_is_host(const char *name, size_t length);

/* Reads the name a client sends: a trailing dot is removed, and an address names no host (""), for
 * RFC 6066 has no addresses there. False if it is neither a name nor an address. */
bool weir__tls_read_name(const char *name, size_t length, char host[256]);

#endif
