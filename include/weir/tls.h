/* SPDX-License-Identifier: MIT */
/* TLS: the handler that encrypts what is written and decrypts what is read. */
#ifndef WEIR_TLS_H
#define WEIR_TLS_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/duration.h>
#include <weir/future.h>
#include <weir/group.h>
#include <weir/handler.h>
#include <weir/tls_context.h>

WEIR_BEGIN_DECLS

/*
 *     static int init_child(weir_channel *channel, void *arg)
 *     {
 *         weir_pipeline *pipeline = weir_channel_pipeline(channel);
 *         int code = weir_pipeline_add_last(pipeline, "tls", &weir_tls_handler,
 *                                           &(weir_tls){ .context = arg });
 *         return code < 0 ? code : weir_pipeline_add_last(pipeline, "echo", &echo, NULL);
 *     }
 */

/** How a connection is encrypted: the handler's argument. An add copies it before it returns, with
 * its host, and retains its context, on any thread: see <weir/pipeline.h>. */
typedef struct weir_tls {
    weir_tls_context *context; /* required; retained as long as the handler is there */

    /* Clients: whom the certificate must be for, a name or an address. Names are told to the
     * server (SNI). Required, unless the context verifies nothing. */
    const char *host;

    int64_t handshake_timeout_ns; /* until it is done; 0: 10 s, WEIR_OFF: none */
    int64_t close_timeout_ns;     /* see below; 0: 1 s, WEIR_OFF: do not wait */
    size_t max_waiting_bytes; /* that are written before the handshake is done; 0: 1 MiB. More are
                                 refused with WEIR_ELIMIT */

    /* Where handshakes compute: its executors, instead of the loop, which a handshake holds up for
     * about a millisecond. A group of weir_group_new_executors, which must outlive the channel. A
     * handler with a group of its own computes there anyway. */
    weir_group *handshake_group;
} weir_tls;

/**
 * TLS, as a client or a server, as the context is; put it nearer to the head than all that is to
 * be encrypted. The handshake begins when the channel is active, or at once when it is: on_active
 * passes at once, and what is written before the handshake is done waits for it. When it is done,
 * the handlers behind get a weir_tls_session as an event; when it fails, on_error says why, and the
 * channel is closed.
 *
 * Writes: buffers, others are refused with -EOPNOTSUPP (for files there is
 * weir_file_bytes_handler). They wait for a flush, and small ones of one flush share a record.
 * A promise is completed when the last byte of its write was sent, encrypted; it can be cancelled
 * until the flush. Records that were encrypted together, up to 48 KiB, are sent as one buffer, and
 * their promises fail together (see <weir/channel.h>). max_outbound_bytes counts encrypted bytes:
 * a write that exceeds it with the overhead of encryption (2 % and a few bytes) fails with
 * WEIR_ELIMIT, and none of it is encrypted. If a handler nearer to the head or the queue rejects an
 * encrypted buffer, the connection closes with that error: the peer could not decrypt the next
 * record. After the records of a write with a promise, handlers nearer to the head get an empty
 * buffer, which has that promise.
 *
 * A shutdown sends close_notify and FIN. A close does, too, and waits up to close_timeout_ns for
 * the peer's close_notify before the channel closes; not when the loop shuts down, and an offloaded
 * handler sends close_notify too late then.
 *
 * Without auto_read the handshake reads by itself, and then no more than was asked for (whoever
 * turns it off in the middle of a handshake, behind on_active, asks once); but bytes
 * that it finds behind its end are given to the handlers unasked; weir_flow_control_handler behind
 * this one keeps them until they are.
 *
 * The end of what is read: with close_notify, weir_event_input_closed or the close, as
 * allow_half_closure says; without one, on_error has WEIR_ETLS_TRUNCATED before that, because bytes
 * may be missing, or what the system says (-ECONNRESET) when the connection is lost; but not when
 * this side itself has closed it.
 *
 * What is wrong is told by on_error, once, and by the future of the handshake, with OpenSSL's
 * reason: WEIR_ETLS_* and -ETIMEDOUT; of a connection that is lost, what the system says
 * (-ECONNRESET), or WEIR_EOF when the other side just ends it in the handshake. Then nothing more
 * is decrypted or encrypted, and the channel closes. The other side hears of it by an alert when it
 * is OpenSSL that refuses something; for what weir refuses itself, as a handshake that takes too
 * long, what is no TLS, or to negotiate anew, there is none: OpenSSL has no call to send one.
 *
 * A channel with this handler cannot be relayed (weir_relay: -EOPNOTSUPP), for the kernel would
 * send as they are the bytes that are to be encrypted.
 *
 * TLS inside of TLS, as through a proxy that speaks it, is two of these, the inner one behind the
 * outer. The event of the outer one ends at the inner one, so that handlers behind hear of what
 * they are in; those between the two hear of the outer.
 *
 * In the middle of a connection (STARTTLS) add it first: a server after it has flushed its answer,
 * a client when it has received the server's. If a handler still holds data from before, which a
 * peer may have put there, the add fails with WEIR_EHELD and the channel closes. A handler that
 * adds it from another thread rejects what it receives until the promise of the add completes. When
 * the handler is removed, it sends close_notify, and everything passes as it is.
 */
extern WEIR_API const weir_handler_type weir_tls_handler;

/* What came of a handshake ------------------------------------------------------------------- */

/** The other side's certificate. */
typedef struct weir_tls_certificate {
    const char *subject, *issuer;      /* as RFC 2253 writes them: "CN=example.org,O=..." */
    const char *serial;                /* in hex */
    int64_t not_before_s, not_after_s; /* since 1970 */
    const uint8_t *der;                /* all of it */
    size_t der_length;
    uint8_t sha256[32]; /* of that */
    bool is_verified;
} weir_tls_certificate;

/** A counted message: the event behind a handshake, and the value of its future. */
typedef struct weir_tls_session {
    weir_msg msg;
    weir_tls_version version;
    const char *cipher; /* "TLS_AES_256_GCM_SHA384" */
    const char *alpn;   /* what both agreed on; NULL: nothing */
    const char *host;   /* the name that the client asked for (SNI), without a trailing dot, or
                           verified; NULL: none, or an address */
    bool is_server;
    bool is_resumed;
    const weir_tls_certificate *peer; /* NULL: it showed none */
} weir_tls_session;

/** The message type of TLS sessions. */
extern WEIR_API const weir_msg_type weir_tls_session_type;

/** The session inside a message, NULL when it is another. */
static inline const weir_tls_session *weir_tls_session_from(const weir_msg *msg)
{
    return msg != NULL && msg->type == &weir_tls_session_type
               ? WEIR__POINTER(const weir_tls_session, msg)
               : NULL;
}

/** Complete when the handshake of a channel is done, with a const weir_tls_session as its value, or
 * has failed, with the error in words: borrowed from the channel. NULL when it has no TLS, or none
 * yet, because the handler waits for the channel's registration. Of several handlers it is that of
 * the one that was added last; retain it when another will be added. Any thread. */
WEIR_API weir_future *weir_tls_handshake(const weir_channel *channel);

WEIR_END_DECLS

#endif
