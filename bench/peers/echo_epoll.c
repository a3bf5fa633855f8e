/* SPDX-License-Identifier: MIT */
/* echo-epoll: epoll with nothing in front of it, the limit that libraries are measured against.
 * Edge-triggered, which is the cheaper way: a connection is added once and never changed, and the
 * kernel does not look again at what it has told. */
#include "peers/listening.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS 16 /* of one connection, before others have their turn */
#define EVENTS 1024

typedef struct connection {
    int fd;
    char *rest; /* what the socket did not take, or NULL; nothing is read meanwhile */
    size_t sent, length;
} connection;

typedef enum verdict { ENDED, WAIT, DRAINED, GO_ON } verdict;

static int poller;
static const uint32_t interest = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
static char buffer[64 * 1024];

static verdict send_rest(connection *self)
{
    ssize_t sent = send(self->fd, self->rest + self->sent, self->length - self->sent, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN ? WAIT : ENDED;
    self->sent += (size_t)sent;
    if (self->sent < self->length)
        return WAIT;
    free(self->rest);
    self->rest = NULL;
    return GO_ON;
}

static verdict keep_rest(connection *self, const char *rest, size_t length)
{
    self->rest = malloc(length);
    if (self->rest == NULL)
        return ENDED;
    memcpy(self->rest, rest, length);
    self->sent = 0;
    self->length = length;
    return WAIT;
}

static verdict echo(connection *self)
{
    ssize_t length = recv(self->fd, buffer, sizeof buffer, 0);
    if (length <= 0)
        return length < 0 && errno == EAGAIN ? WAIT : ENDED;
    ssize_t sent = send(self->fd, buffer, (size_t)length, MSG_NOSIGNAL);
    if (sent == length)
        return (size_t)length < sizeof buffer ? DRAINED : GO_ON;
    if (sent < 0 && errno != EAGAIN)
        return ENDED;
    sent = sent < 0 ? 0 : sent;
    return keep_rest(self, buffer + sent, (size_t)(length - sent));
}

static void serve(connection *self, uint32_t events)
{
    verdict next = self->rest != NULL ? send_rest(self) : GO_ON;
    /* Nothing comes after a short read but the end, which has no edge of its own if it came along
     * with the bytes. */
    for (int round = 0; next == GO_ON || (next == DRAINED && (events & EPOLLRDHUP)); round++) {
        if (round == ROUNDS) { /* this tells anew what is ready, behind all others */
            struct epoll_event event = { .events = interest, .data.ptr = self };
            next = epoll_ctl(poller, EPOLL_CTL_MOD, self->fd, &event) == 0 ? WAIT : ENDED;
        } else {
            next = echo(self);
        }
    }
    if (next == ENDED) {
        close(self->fd);
        free(self->rest);
        free(self);
    }
}

static void accept_all(int listener)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        connection *self = calloc(1, sizeof *self);
        struct epoll_event event = { .events = interest, .data.ptr = self };
        if (self == NULL || epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0) {
            close(fd);
            free(self);
            continue;
        }
        self->fd = fd;
    }
}

int main(int argc, char **argv)
{
    int listener = listening_open(argc, argv);
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
                serve(events[i].data.ptr, events[i].events);
        }
    }
}
