/* SPDX-License-Identifier: MIT */
/* TLS: who we are and whom we trust, shared by any number of connections. */
#ifndef WEIR_TLS_CONTEXT_H
#define WEIR_TLS_CONTEXT_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/error.h>

WEIR_BEGIN_DECLS

/*
 * A library of its own, weir-tls, beside weir: CMake's component `tls` with the target weir::tls,
 * and weir-tls for pkg-config. It is built when OpenSSL 3 is there.
 *
 * A server's context with a certificate for trying things out:
 *
 *     weir_tls_self_signed own;
 *     weir_tls_context *context;
 *     weir_tls_self_signed_make(&own, "localhost", &error);
 *     weir_tls_context_new_server(&context,
 *                                 &(weir_tls_config){ .certificate_pem = own.certificate_pem,
 *                                                     .key_pem = own.key_pem }, &error);
 */
typedef struct weir_tls_context weir_tls_context;

/** A version of TLS. */
typedef enum weir_tls_version {
    WEIR_TLS_1_2 = 2,
    WEIR_TLS_1_3 = 3,
} weir_tls_version;

/** Whether a server asks its clients for certificates. */
typedef enum weir_tls_client_auth {
    WEIR_TLS_CLIENT_AUTH_NONE,
    WEIR_TLS_CLIENT_AUTH_OPTIONAL, /* who shows none is let in; who shows a bad one is not */
    WEIR_TLS_CLIENT_AUTH_REQUIRED,
} weir_tls_client_auth;

/** Zero is the default of everything. Strings are copied. What is PEM can be a file or a text in
 * memory; both for the same thing is -EINVAL. */
typedef struct weir_tls_config {
    /* Who we are: a certificate, behind it those that lead to whom the other side trusts, and its
     * key. A server needs both; a client, when servers ask who it is. */
    const char *certificate_file, *certificate_pem;
    const char *key_file, *key_pem;
    const char *key_password; /* of an encrypted key; nobody is asked for it */

    /* Whom we trust to say who the other side is. Without any of these a client trusts whom the
     * system trusts, and with them these alone. A server that asks for certificates must say. */
    const char *ca_file, *ca_pem;
    const char *ca_directory; /* of files that are named by hash, as `openssl rehash` does it */
    weir_tls_client_auth client_auth;

    weir_tls_version min_version; /* 0: 1.2, which is the oldest there is here */
    weir_tls_version max_version; /* 0: the newest */
    const char *ciphers;       /* for 1.2, as OpenSSL names them. NULL: those with forward secrecy
                                  and authenticated encryption */
    const char *cipher_suites; /* for 1.3. NULL: all */
    const char *groups;        /* of key exchange, the best first. NULL: X25519, P-256, P-384 */

    /* What is spoken inside, by preference of the one who says it, with NULL behind the last: "h2",
     * "http/1.1". A server takes the first of its own that the client has, and refuses a client
     * that has others only. */
    const char *const *alpn;

    /* How long a session can be resumed, which saves most of a handshake: with the same context, at
     * the same port, under the same name (SNI). It counts from the whole handshake, in which the
     * other side was verified, however often the session is resumed, and ends earlier when one of
     * the certificates expires by which it was; then there is a whole handshake again. 0: 7,200;
     * WEIR_OFF: not at all. The keys of the tickets live in this process, for this context, and are
     * changed twice in that time. Clients keep one session for each host and port, for at most 256
     * of them. */
    int64_t session_lifetime_ns;

    /* A file to which the secrets of every connection are appended, so that Wireshark can read
     * them; so can everybody else who has the file, which is made for its owner alone (0600). It
     * must be a regular file: -EINVAL; a symbolic link is -ELOOP, another user's file -EPERM or
     * -EACCES. NULL: none. */
    const char *key_log_file;
} weir_tls_config;

/**
 * Makes a context, with one reference. `error` (may be NULL) names the file and what is wrong, in
 * OpenSSL's words where those are the best there are: -EINVAL for what makes no sense, what opening
 * a file says, WEIR_ETLS_PEM for what is no certificate or key, WEIR_ETLS_PASSWORD for an encrypted
 * key without the right password, WEIR_ETLS_KEY for one that does not belong to the certificate,
 * -ENOMEM. It reads files, so not on a loop that has better things to do. Any thread, as all of
 * these.
 */
WEIR_API int weir_tls_context_new_server(weir_tls_context **context, const weir_tls_config *config,
                                         weir_error *error);

/** The same for a client, who verifies the certificate of the server and that it is for the host
 * that was meant: by its alternative names alone, not by a common name. The config may be NULL. */
WEIR_API int weir_tls_context_new_client(weir_tls_context **context, const weir_tls_config *config,
                                         weir_error *error);

/** Takes a reference and returns the context. Thread-safe. */
WEIR_API weir_tls_context *weir_tls_context_retain(weir_tls_context *context);

/** NULL is fine. Connections keep it as long as they need it. */
WEIR_API void weir_tls_context_release(weir_tls_context *context);

/** Takes another config; or, with NULL, reads the same files again, because a certificate was
 * renewed. Handshakes that begin from then on use it, connections live on. Sessions of before can
 * be resumed with a server that asks for no certificates; where somebody is trusted, that may be
 * somebody else now, and they are forgotten. When it fails, with the codes of above, everything
 * stays as it was. Reloads of several threads happen one behind the other, so it may wait for
 * another one, and for the files that one reads. */
WEIR_API int weir_tls_context_reload(weir_tls_context *context, const weir_tls_config *config,
                                     weir_error *error);

/** From now on this client's context takes anybody for the server that was meant: whoever is in
 * between can read and change everything. For tests. -EINVAL for a server's. */
WEIR_API int weir_tls_context_dangerously_verify_nothing(weir_tls_context *context);

/** What handshakes came to, since the context was made. Each that begins, which it does with the
 * connection, is counted in one of the first and the third when it is over. What SNI refuses, or
 * loses, before it has chosen a context is counted nowhere. */
typedef struct weir_tls_context_stats {
    uint64_t handshakes; /* that were completed, resumed ones included */
    uint64_t resumed;
    uint64_t failed; /* that were not: refused by either side, too slow, no TLS at all (plain HTTP),
                        with the connection lost or closed before they were done */
    uint64_t reloads;
} weir_tls_context_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_tls_context_get_stats(const weir_tls_context *context,
                                         weir_tls_context_stats *stats);

/* For development ---------------------------------------------------------------------------- */

/** A certificate that nobody has signed but its own key, as PEM. */
typedef struct weir_tls_self_signed {
    char certificate_pem[2048];
    char key_pem[512];
} weir_tls_self_signed;

/** Makes one for a host name or an address ("localhost" is for 127.0.0.1 and ::1, too), good for a
 * year. Clients take it when it is their ca_pem. -EINVAL for a name that cannot be one; -ENOMEM; or
 * WEIR_ETLS with OpenSSL's words. No allocation of weir's; wipe the key when it is not needed. */
WEIR_API int weir_tls_self_signed_make(weir_tls_self_signed *made, const char *host,
                                       weir_error *error);

WEIR_END_DECLS

#endif
