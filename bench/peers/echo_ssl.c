/* SPDX-License-Identifier: MIT */
/* echo-ssl: OpenSSL over epoll with nothing in front of either, the limit for TLS. As echo-epoll,
 * with sockets that OpenSSL reads and writes itself. Beside --listen it takes --cert and --key. */
#include "peers/listening.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 1024

typedef struct connection {
    int fd;
    SSL *ssl;
    char *rest; /* what the socket did not take, or NULL; nothing is read meanwhile */
    size_t length;
} connection;

typedef enum verdict { ENDED, WAIT, GO_ON } verdict;

static int poller;
static SSL_CTX *context;
static char buffer[64 * 1024];

static verdict verdict_of(const connection *self, int result)
{
    int reason = SSL_get_error(self->ssl, result);
    return reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE ? WAIT : ENDED;
}

static verdict send_rest(connection *self)
{
    size_t written;
    int result = SSL_write_ex(self->ssl, self->rest, self->length, &written);
    if (result != 1)
        return verdict_of(self, result);
    free(self->rest);
    self->rest = NULL;
    return GO_ON;
}

static verdict echo(connection *self)
{
    size_t length, written;
    int result = SSL_read_ex(self->ssl, buffer, sizeof buffer, &length);
    if (result != 1)
        return verdict_of(self, result);
    result = SSL_write_ex(self->ssl, buffer, length, &written);
    if (result == 1)
        return GO_ON;
    verdict next = verdict_of(self, result);
    if (next == ENDED || (self->rest = malloc(length)) == NULL)
        return ENDED;
    memcpy(self->rest, buffer, length);
    self->length = length;
    return WAIT;
}

static void serve(connection *self)
{
    ERR_clear_error();
    verdict next = self->rest != NULL ? send_rest(self) : GO_ON;
    while (next == GO_ON)
        next = echo(self);
    if (next == WAIT)
        return;
    SSL_shutdown(self->ssl);
    SSL_free(self->ssl);
    close(self->fd);
    free(self->rest);
    free(self);
}

static void accept_all(int listener)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        connection *self = calloc(1, sizeof *self);
        SSL *ssl = SSL_new(context);
        struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                     .data.ptr = self };
        if (self == NULL || ssl == NULL || SSL_set_fd(ssl, fd) != 1 ||
            epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0) {
            close(fd);
            SSL_free(ssl);
            free(self);
            continue;
        }
        SSL_set_accept_state(ssl);
        self->fd = fd;
        self->ssl = ssl;
    }
}

/* Takes the switches that only this one has out of the list. */
static int take_files(int argc, char **argv, const char **certificate, const char **key)
{
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        const char **to = strcmp(argv[i], "--cert") == 0  ? certificate
                          : strcmp(argv[i], "--key") == 0 ? key
                                                          : NULL;
        if (to != NULL && i + 1 < argc)
            *to = argv[++i];
        else
            argv[kept++] = argv[i];
    }
    return kept;
}

static void fail(const char *what)
{
    fprintf(stderr, "echo-ssl: %s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void make_context(const char *certificate, const char *key)
{
    static const unsigned char id[] = "echo";
    context = SSL_CTX_new(TLS_server_method());
    if (context == NULL || SSL_CTX_set_session_id_context(context, id, sizeof id) != 1)
        fail("no context");
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
        fail("--cert has no certificate");
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        fail("--key has no key of that certificate");
    SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1); /* a record by one read instead of two */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
}

int main(int argc, char **argv)
{
    const char *certificate = NULL, *key = NULL;
    argc = take_files(argc, argv, &certificate, &key);
    if (certificate == NULL || key == NULL) {
        fprintf(stderr, "usage: echo-ssl --cert FILE --key FILE [--listen ADDRESS:PORT]\n");
        return 2;
    }
    int listener = listening_open(argc, argv);
    make_context(certificate, key);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) < 0) {
        perror("epoll");
        return 1;
    }
    listening_announce(listener);
    static struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == NULL)
                accept_all(listener);
            else
                serve(events[i].data.ptr);
        }
    }
}
