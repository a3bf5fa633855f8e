/* SPDX-License-Identifier: MIT */
/* echo-ev: libev, one watcher to read and one to write per connection. */
#include "peers/listening.h"

#include <errno.h>
#include <ev.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct connection {
    ev_io readable, writable; /* one of them is active */
    char *rest;               /* what the socket did not take; nothing is read meanwhile */
    size_t sent, length;
} connection;

static char buffer[64 * 1024];

static void end(struct ev_loop *loop, connection *self)
{
    ev_io_stop(loop, &self->readable);
    ev_io_stop(loop, &self->writable);
    close(self->readable.fd);
    free(self->rest);
    free(self);
}

static void send_rest(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    connection *self = watcher->data;
    ssize_t sent = send(watcher->fd, self->rest + self->sent, self->length - self->sent,
                        MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN)
            end(loop, self);
        return;
    }
    self->sent += (size_t)sent;
    if (self->sent == self->length) {
        free(self->rest);
        self->rest = NULL;
        ev_io_stop(loop, &self->writable);
        ev_io_start(loop, &self->readable);
    }
}

static void keep_rest(struct ev_loop *loop, connection *self, const char *rest, size_t length)
{
    self->rest = malloc(length);
    if (self->rest == NULL) {
        end(loop, self);
        return;
    }
    memcpy(self->rest, rest, length);
    self->sent = 0;
    self->length = length;
    ev_io_stop(loop, &self->readable);
    ev_io_start(loop, &self->writable);
}

static void echo(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    connection *self = watcher->data;
    ssize_t length = recv(watcher->fd, buffer, sizeof buffer, 0);
    if (length <= 0) {
        if (length == 0 || errno != EAGAIN)
            end(loop, self);
        return;
    }
    ssize_t sent = send(watcher->fd, buffer, (size_t)length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        end(loop, self);
    else if (sent < length)
        keep_rest(loop, self, buffer + (sent < 0 ? 0 : sent),
                  (size_t)(length - (sent < 0 ? 0 : sent)));
}

static void accept_all(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    for (int fd; (fd = accept4(watcher->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        connection *self = calloc(1, sizeof *self);
        if (self == NULL) {
            close(fd);
            continue;
        }
        ev_io_init(&self->readable, echo, fd, EV_READ);
        ev_io_init(&self->writable, send_rest, fd, EV_WRITE);
        self->readable.data = self->writable.data = self;
        ev_io_start(loop, &self->readable);
    }
}

int main(int argc, char **argv)
{
    int fd = listening_open(argc, argv);
    struct ev_loop *loop = ev_default_loop(EVFLAG_AUTO);
    if (loop == NULL) {
        fputs("libev: no loop\n", stderr);
        return 1;
    }
    ev_io listener;
    ev_io_init(&listener, accept_all, fd, EV_READ);
    ev_io_start(loop, &listener);
    listening_announce(fd);
    ev_run(loop, 0);
    return 0;
}
