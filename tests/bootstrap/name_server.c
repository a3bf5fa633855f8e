/* SPDX-License-Identifier: MIT */
/* The name server for tests. */
#include "harness.h"

#include "bootstrap/name_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEADER = 12,
    MOST_BYTES = 512,
    MOST_CLIENTS = 16,
    SERVFAIL = 2,
    NXDOMAIN = 3,
    TRUNCATED = 0x200
};

/* A connection, and the bytes of a question that is not complete. */
typedef struct tcp_client {
    int fd; /* -1: none */
    size_t length;
    uint8_t bytes[2 + MOST_BYTES];
} tcp_client;

typedef struct held_question {
    struct held_question *next;
    int at;             /* which socket */
    tcp_client *client; /* NULL: it was asked by UDP */
    struct sockaddr_in from;
    size_t length;
    uint8_t bytes[MOST_BYTES];
} question;

/* Parses a question; false when it is malformed. */
static bool read_question(const question *self, char name[256], unsigned *type, size_t *end)
{
    size_t at = HEADER, used = 0;
    while (at < self->length && self->bytes[at] != 0) {
        size_t label = self->bytes[at++];
        if (label > 63 || at + label > self->length || used + label + 2 > 256)
            return false;
        memcpy(name + used, self->bytes + at, label);
        used += label;
        name[used++] = '.';
        at += label;
    }
    name[used > 0 ? used - 1 : 0] = '\0';
    if (at + 5 > self->length)
        return false;
    *type = (unsigned)self->bytes[at + 1] << 8 | self->bytes[at + 2];
    *end = at + 5;
    return true;
}

static bool begins(const char *name, const char *label)
{
    return strncmp(name, label, strlen(label)) == 0;
}

static const char *address_for(const char *name, unsigned type)
{
    bool is_four = type == NAME_TYPE_A;
    if (begins(name, "here"))
        return is_four ? "127.0.0.1" : "::1";
    if (begins(name, "both") || begins(name, "held") || begins(name, "long") ||
        (begins(name, "four") && is_four) || (begins(name, "six") && !is_four))
        return is_four ? "1.2.3.4" : "2001:db8::1";
    return begins(name, "printer.corp.") && is_four ? "1.2.3.4" : NULL;
}

static bool is_broken(const char *name)
{
    return begins(name, "broken") || strstr(name, ".sick.") != NULL;
}

static bool exists(const char *name)
{
    return address_for(name, NAME_TYPE_A) != NULL || address_for(name, NAME_TYPE_AAAA) != NULL;
}

static bool is_held(const name_server *self, const char *name, unsigned type)
{
    if (atomic_load(&self->releases))
        return false;
    return begins(name, "held") || (begins(name, "here_four_first") && type == NAME_TYPE_AAAA) ||
           (begins(name, "here_six_first") && type == NAME_TYPE_A);
}

static void put(uint8_t **at, uint32_t value, int bytes)
{
    while (bytes-- > 0)
        *(*at)++ = (uint8_t)(value >> 8 * bytes);
}

/* By TCP the length is sent in a segment of its own. */
static void send_reply(const name_server *self, const question *asked, const uint8_t *reply,
                       size_t length)
{
    const uint8_t prefix[2] = { (uint8_t)(length >> 8), (uint8_t)length };
    if (asked->client == NULL) {
        (void)!sendto(self->sockets[asked->at], reply, length, 0,
                      (const struct sockaddr *)&asked->from, sizeof asked->from);
        return;
    }
    (void)!send(asked->client->fd, prefix, sizeof prefix, MSG_NOSIGNAL);
    (void)!send(asked->client->fd, reply, length, MSG_NOSIGNAL);
}

static void answer(name_server *self, const question *asked)
{
    char name[256];
    unsigned type;
    size_t end;
    uint8_t reply[MOST_BYTES + 64], *at = reply + 2, raw[16];
    if (!read_question(asked, name, &type, &end) || begins(name, "dead"))
        return;
    bool is_truncated = begins(name, "long") && asked->client == NULL;
    const char *text = is_truncated || is_broken(name) ? NULL : address_for(name, type);
    unsigned code = is_broken(name) ? SERVFAIL : exists(name) ? 0 : NXDOMAIN;
    memcpy(reply, asked->bytes, end);
    put(&at, 0x8180 | code | (is_truncated ? TRUNCATED : 0), 2);
    put(&at, 1, 2);
    put(&at, text != NULL, 2);
    put(&at, 0, 4);
    at = reply + end;
    if (text != NULL) {
        int size = type == NAME_TYPE_A ? 4 : 16;
        assert_int_equal(inet_pton(type == NAME_TYPE_A ? AF_INET : AF_INET6, text, raw), 1);
        put(&at, 0xc00c, 2); /* the question's name */
        put(&at, type, 2);
        put(&at, 1, 2);
        put(&at, atomic_load(&self->ttl_s), 4);
        put(&at, (uint32_t)size, 2);
        memcpy(at, raw, (size_t)size);
        at += size;
    }
    send_reply(self, asked, reply, (size_t)(at - reply));
}

static void answer_held(name_server *self)
{
    while (self->first_held != NULL) {
        question *next = self->first_held->next;
        answer(self, self->first_held);
        free(self->first_held);
        self->first_held = next;
        atomic_fetch_sub(&self->held, 1);
    }
}

static void take_question(name_server *self, int at)
{
    question asked = { .at = at };
    socklen_t length = sizeof asked.from;
    char name[256];
    unsigned type;
    size_t end;
    ssize_t got = recvfrom(self->sockets[at], asked.bytes, sizeof asked.bytes, 0,
                           (struct sockaddr *)&asked.from, &length);
    asked.length = got > 0 ? (size_t)got : 0;
    if (!read_question(&asked, name, &type, &end))
        return;
    pthread_mutex_lock(&self->lock);
    memcpy(self->last, name, sizeof name);
    pthread_mutex_unlock(&self->lock);
    atomic_fetch_add(&self->second, at);
    atomic_fetch_add(&self->questions, 1);
    if (!is_held(self, name, type)) {
        answer(self, &asked);
        return;
    }
    question *kept = malloc(sizeof *kept);
    *kept = asked;
    kept->next = self->first_held;
    self->first_held = kept;
    atomic_fetch_add(&self->held, 1);
}

static void accept_client(const name_server *self)
{
    int fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; i < MOST_CLIENTS && fd >= 0; i++) {
        if (self->clients[i].fd < 0) {
            self->clients[i] = (tcp_client){ .fd = fd };
            return;
        }
    }
    if (fd >= 0)
        close(fd);
}

/* All complete questions that have arrived. */
static void take_from_client(name_server *self, tcp_client *client)
{
    ssize_t got = recv(client->fd, client->bytes + client->length,
                       sizeof client->bytes - client->length, 0);
    if (got <= 0) {
        close(client->fd);
        client->fd = -1;
        return;
    }
    client->length += (size_t)got;
    while (client->length > 2) {
        question asked = { .client = client };
        asked.length = (size_t)client->bytes[0] << 8 | client->bytes[1];
        assert_true(asked.length <= MOST_BYTES);
        if (client->length < 2 + asked.length)
            return;
        memcpy(asked.bytes, client->bytes + 2, asked.length);
        client->length -= 2 + asked.length;
        memmove(client->bytes, client->bytes + 2 + asked.length, client->length);
        atomic_fetch_add(&self->by_tcp, 1);
        answer(self, &asked);
    }
}

static void *serve(void *arg)
{
    enum { WAKE = 2, LISTENER, CLIENTS, ALL = CLIENTS + MOST_CLIENTS };
    name_server *self = arg;
    char byte = 0;
    while (byte != 'q') {
        struct pollfd fds[ALL] = { { .fd = self->sockets[0] },
                                   { .fd = self->sockets[1] },
                                   [WAKE] = { .fd = self->wake[0] },
                                   [LISTENER] = { .fd = self->listener } };
        for (int i = CLIENTS; i < ALL; i++)
            fds[i].fd = self->clients[i - CLIENTS].fd;
        for (int i = 0; i < ALL; i++)
            fds[i].events = POLLIN;
        poll(fds, ALL, -1);
        for (int i = 0; i < WAKE; i++) {
            if (fds[i].revents != 0)
                take_question(self, i);
        }
        if (fds[WAKE].revents != 0)
            (void)!read(self->wake[0], &byte, 1);
        for (int i = CLIENTS; i < ALL; i++) {
            if (fds[i].revents != 0)
                take_from_client(self, &self->clients[i - CLIENTS]);
        }
        if (fds[LISTENER].revents != 0)
            accept_client(self);
        if (atomic_load(&self->releases))
            answer_held(self);
    }
    return NULL;
}

/* -EADDRINUSE: the port is another's. */
static int bind_to(int type, const char *host, uint16_t *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(*port) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        assert_int_equal(errno, EADDRINUSE);
        close(fd);
        return -EADDRINUSE;
    }
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Whether one port was free for all of its sockets. */
static bool bind_all(name_server *self)
{
    self->port = 0;
    self->sockets[0] = bind_to(SOCK_DGRAM, "127.0.0.1", &self->port);
    self->sockets[1] = bind_to(SOCK_DGRAM, "127.0.0.2", &self->port);
    self->listener = bind_to(SOCK_STREAM, "127.0.0.1", &self->port);
    const int fds[] = { self->sockets[0], self->sockets[1], self->listener };
    bool is_bound = fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0;
    for (int i = 0; i < 3 && !is_bound; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    return is_bound;
}

void name_server_start(name_server *self)
{
    *self = (name_server){ .clients = calloc(MOST_CLIENTS, sizeof(tcp_client)) };
    assert_non_null(self->clients);
    assert_int_equal(pthread_mutex_init(&self->lock, NULL), 0);
    for (int i = 0; i < MOST_CLIENTS; i++)
        self->clients[i].fd = -1;
    atomic_store(&self->ttl_s, 300);
    while (!bind_all(self))
        ;
    assert_int_equal(listen(self->listener, MOST_CLIENTS), 0);
    assert_int_equal(pipe(self->wake), 0);
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
}

static void wake(const name_server *self, char byte)
{
    assert_int_equal(write(self->wake[1], &byte, 1), 1);
}

void name_server_get_last(name_server *self, char name[256])
{
    pthread_mutex_lock(&self->lock);
    memcpy(name, self->last, sizeof self->last);
    pthread_mutex_unlock(&self->lock);
}

void name_server_release(name_server *self)
{
    atomic_store(&self->releases, true);
    wake(self, 'r');
}

void name_server_stop(name_server *self)
{
    wake(self, 'q');
    pthread_join(self->thread, NULL);
    atomic_store(&self->releases, true);
    answer_held(self);
    for (int i = 0; i < 2; i++) {
        close(self->sockets[i]);
        close(self->wake[i]);
    }
    close(self->listener);
    for (int i = 0; i < MOST_CLIENTS; i++) {
        if (self->clients[i].fd >= 0)
            close(self->clients[i].fd);
    }
    free(self->clients);
    pthread_mutex_destroy(&self->lock);
}
