/* SPDX-License-Identifier: MIT */
/* One connection's TLS, from records to bytes and back: all that is asked of OpenSSL. */
#ifndef WEIR_TLS_ENGINE_H
#define WEIR_TLS_ENGINE_H

#include <weir/buf.h>
#include <weir/tls.h>

typedef struct weir_tls_engine weir_tls_engine;

/* What came of a step. */
typedef enum weir_tls_step {
    WEIR_TLS_STEP_MORE,   /* it has taken what it was given, and needs more */
    WEIR_TLS_STEP_DONE,   /* the handshake is */
    WEIR_TLS_STEP_ENDED,  /* the other side sends no more: close_notify */
    WEIR_TLS_STEP_FAILED, /* the error says why; from then on every step fails */
} weir_tls_step;

/* Whom it is with. */
typedef struct weir_tls_peer {
    const char *host; /* a client's: whom the server must be; NULL: anybody */
    uint16_t port;    /* the server's, on both sides: what sessions are bound to */
} weir_tls_peer;

/* Makes one. It keeps the context. -ENOMEM, -EINVAL for a host that can be none, or what OpenSSL
 * says. */
int weir__tls_engine_new(weir_tls_engine **engine, weir_tls_context *context,
                         const weir_tls_peer *peer, weir_error *error);
void weir__tls_engine_free(weir_tls_engine *engine);

/* Goes on with the handshake: with the next `length` bytes of `in`, which are whole records, or to
 * begin it with none. Any thread, one at a time, as all of these. */
weir_tls_step weir__tls_engine_shake(weir_tls_engine *engine, weir_buf *in, size_t length,
                                     weir_error *error);

/* Decrypts the next `length` bytes of `in`, which are whole records, to the end of `out`, which has
 * room for as many. */
weir_tls_step weir__tls_engine_decrypt(weir_tls_engine *engine, weir_buf *in, size_t length,
                                       weir_buf *out, weir_error *error);

/* Encrypts bytes; `more` is how many will follow at once, to make room for them as well. */
weir_tls_step weir__tls_engine_encrypt(weir_tls_engine *engine, const void *bytes, size_t length,
                                       size_t more, weir_error *error);

/* Says close_notify, when the handshake is done. */
void weir__tls_engine_close(weir_tls_engine *engine);

/* What is to be sent, in a buffer that is the caller's; NULL: nothing. */
weir_buf *weir__tls_engine_take_output(weir_tls_engine *engine);
size_t weir__tls_engine_output(const weir_tls_engine *engine);

/* What came of the handshake, when it is done: with one reference. NULL: no memory. */
weir_tls_session *weir__tls_engine_session(weir_tls_engine *engine);

/* The name under which a client's sessions are kept; NULL: they are not. */
const char *weir__tls_engine_server(const weir_tls_engine *engine);

/* Binds a server's sessions to the name that a client asks for, as it says it: no bytes are none.
 * Before OpenSSL looks for a session. False without memory. */
bool weir__tls_engine_bind(weir_tls_engine *engine, const unsigned char *name, size_t length);

/* A client's name for the server (NULL: none), as often as it says it: false for another than
 * before, or without memory. */
bool weir__tls_engine_note_name(weir_tls_engine *engine, const char *name);

/* Records ----------------------------------------------------------------------------------------
 */

enum {
    WEIR__TLS_HEADER = 5,
    WEIR__TLS_RECORD_MOST = 16384 + 2048, /* behind the header */
    WEIR__TLS_PLAIN_MOST = 16384,         /* bytes in a record */
    WEIR__TLS_OVERHEAD = 32,              /* of one: 5 before it, up to 25 behind */
    WEIR__TLS_HANDSHAKE = 22,             /* type of record */
};

/* The length of the record at `bytes`, with its header; 0 while there is too little of it to tell,
 * or what is wrong with it, also in words. */
int weir__tls_record_length(const uint8_t *bytes, size_t there, weir_error *error);

/* Whether a record of this type makes no sense at this point, for what it would begin is refused.
 */
bool weir__tls_engine_is_renegotiation(const weir_tls_engine *engine, uint8_t type);

#endif
