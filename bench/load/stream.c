/* SPDX-License-Identifier: MIT */
/* The bytes of a connection: as they are, or through TLS. */
#include "load.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LOAD_HAS_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>

enum { SHAKE_MS = 10000, MOST_SESSIONS = 1024 };

static SSL_CTX *context; /* NULL: plain */
static SSL **streams;    /* by descriptor */
static size_t stream_count;
static SSL_SESSION *sessions[MOST_SESSIONS]; /* to be resumed, each once: 1.3 wants it so */
static size_t session_count;
static load_tls_counts counts;

static void fail(const char *what)
{
    fprintf(stderr, "weir-load: %s: ", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    (void)ssl;
    if (session_count == MOST_SESSIONS)
        return 0;
    sessions[session_count++] = session;
    return 1;
}

static void resume(SSL *ssl)
{
    if (session_count == 0)
        return;
    SSL_SESSION *session = sessions[--session_count];
    SSL_set_session(ssl, session);
    SSL_SESSION_free(session);
}

/* One of each is offered, so that all servers do the same work: those OpenSSL would agree on with
 * itself. */
static bool offer_one_way(void)
{
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") == 1 &&
           SSL_CTX_set1_groups_list(context, "X25519") == 1;
}

void load_use_tls(bool is_resumed)
{
    context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || !offer_one_way())
        fail("no TLS");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (is_resumed) {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(context, keep_session);
    }
}

static SSL *stream_of(int fd)
{
    if ((size_t)fd >= stream_count) {
        size_t count = (size_t)fd * 2 + 64;
        streams = realloc(streams, count * sizeof *streams);
        if (streams == NULL)
            abort();
        memset(streams + stream_count, 0, (count - stream_count) * sizeof *streams);
        stream_count = count;
    }
    if (streams[fd] == NULL) {
        streams[fd] = SSL_new(context);
        if (streams[fd] == NULL || SSL_set_fd(streams[fd], fd) != 1)
            fail("no stream");
        SSL_set_connect_state(streams[fd]);
        resume(streams[fd]);
    }
    return streams[fd];
}

static void say_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    fprintf(stderr, "weir-load: TLS: %s\n", reason != NULL ? reason : "an unknown error");
}

/* What a call came to, as recv and send tell it. */
static ssize_t outcome(SSL *ssl, int result, size_t length)
{
    if (result > 0)
        return (ssize_t)length;
    switch (SSL_get_error(ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        errno = errno != 0 ? errno : ECONNRESET;
        return -1;
    default:
        say_reason();
        errno = EPROTO;
        return -1;
    }
}

ssize_t load_send(int fd, const void *bytes, size_t length)
{
    size_t written = 0;
    if (context == NULL)
        return send(fd, bytes, length, MSG_NOSIGNAL);
    SSL *ssl = stream_of(fd);
    ERR_clear_error();
    errno = 0;
    int result = SSL_write_ex(ssl, bytes, length, &written);
    return outcome(ssl, result, written);
}

ssize_t load_recv(int fd, void *bytes, size_t size)
{
    size_t got = 0;
    if (context == NULL)
        return recv(fd, bytes, size, 0);
    SSL *ssl = stream_of(fd);
    ERR_clear_error();
    errno = 0;
    int result = SSL_read_ex(ssl, bytes, size, &got);
    return outcome(ssl, result, got);
}

bool load_waits_for_bytes(int fd)
{
    return context != NULL && SSL_want_read(stream_of(fd));
}

int load_shake(int fd)
{
    if (context == NULL)
        return 0;
    SSL *ssl = stream_of(fd);
    for (;;) {
        ERR_clear_error();
        int result = SSL_do_handshake(ssl);
        if (result == 1)
            return 0;
        struct pollfd entry = { .fd = fd, .events = SSL_want_read(ssl) ? POLLIN : POLLOUT };
        if (outcome(ssl, result, 0) == 0 || errno != EAGAIN || poll(&entry, 1, SHAKE_MS) != 1)
            return -1;
    }
}

/* By the end of a connection it is known how it began. */
static void end_stream(SSL *ssl)
{
    counts.handshakes += SSL_is_init_finished(ssl) == 1;
    counts.resumed += SSL_session_reused(ssl) == 1;
    ERR_clear_error();
    SSL_shutdown(ssl);
    SSL_free(ssl);
}

void load_close(int fd)
{
    if (context != NULL && (size_t)fd < stream_count && streams[fd] != NULL) {
        end_stream(streams[fd]);
        streams[fd] = NULL;
    }
    close(fd);
}

const load_tls_counts *load_tls_counted(void)
{
    return context != NULL ? &counts : NULL;
}
#else
void load_use_tls(bool is_resumed)
{
    (void)is_resumed;
    fprintf(stderr, "weir-load: it was built without OpenSSL\n");
    exit(1);
}

ssize_t load_send(int fd, const void *bytes, size_t length)
{
    return send(fd, bytes, length, MSG_NOSIGNAL);
}

ssize_t load_recv(int fd, void *bytes, size_t size)
{
    return recv(fd, bytes, size, 0);
}

bool load_waits_for_bytes(int fd)
{
    (void)fd;
    return false;
}

int load_shake(int fd)
{
    (void)fd;
    return 0;
}

void load_close(int fd)
{
    close(fd);
}

const load_tls_counts *load_tls_counted(void)
{
    return NULL;
}
#endif
