/* SPDX-License-Identifier: MIT */
/* relay-epoll: epoll with nothing in front of it, the limit that a proxy is measured against. It
 * connects each client with the server, and copies the bytes of each direction through a buffer.
 * Edge-triggered, as echo-epoll. */
#include "peers/listening.h"

#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS 16 /* of one direction, before others have their turn */
#define EVENTS 1024
#define BUFFER_BYTES (64 * 1024)

typedef struct pair pair;

/* A socket, and what was read from it for the other one. */
typedef struct side {
    pair *pair;
    struct side *other;
    int fd;
    bool is_readable, is_writable; /* until the kernel says EAGAIN */
    bool has_hung_up;              /* the end follows the bytes: a short read is not the last */
    bool is_input_ended, is_output_ended;
    size_t at, length; /* of what waits in the buffer; nothing is read meanwhile */
    char buffer[BUFFER_BYTES];
} side;

struct pair {
    side front, back;
    pair *next; /* of the closed ones */
    bool is_connected;
    bool is_closed;
};

static const uint32_t interest = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
static int poller;
static struct sockaddr_in upstream;
static pair *spare, *closed; /* a closed one may have events yet, and is spare after those */

/* Pairs ---------------------------------------------------------------------------------------- */

static void init_side(side *self, pair *of, side *other, int fd)
{
    memset(self, 0, offsetof(side, buffer));
    self->pair = of;
    self->other = other;
    self->fd = fd;
}

static pair *new_pair(int front, int back)
{
    pair *self = spare;
    if (self != NULL)
        spare = self->next;
    else
        self = malloc(sizeof *self);
    if (self == NULL)
        return NULL;
    init_side(&self->front, self, &self->back, front);
    init_side(&self->back, self, &self->front, back);
    self->is_connected = self->is_closed = false;
    return self;
}

static void close_pair(pair *self)
{
    close(self->front.fd);
    close(self->back.fd);
    self->is_closed = true;
    self->next = closed;
    closed = self;
}

/* After a failure both clients must see that what they got is not all: a reset says so. */
static void reset_pair(pair *self)
{
    const struct linger reset = { .l_onoff = 1, .l_linger = 0 };
    setsockopt(self->front.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    setsockopt(self->back.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close_pair(self);
}

static void reuse_closed(void)
{
    while (closed != NULL) {
        pair *self = closed;
        closed = self->next;
        self->next = spare;
        spare = self;
    }
}

/* Copying -------------------------------------------------------------------------------------- */

/* Each returns false when the pair has failed. */
static bool read_side(side *from)
{
    ssize_t length = recv(from->fd, from->buffer, sizeof from->buffer, 0);
    if (length < 0) {
        from->is_readable = false;
        return errno == EAGAIN;
    }
    from->is_input_ended = length == 0;
    from->is_readable = length == sizeof from->buffer || (length > 0 && from->has_hung_up);
    from->at = 0;
    from->length = (size_t)length;
    return true;
}

static bool write_side(side *from, side *to)
{
    ssize_t sent = send(to->fd, from->buffer + from->at, from->length, MSG_NOSIGNAL);
    if (sent < 0) {
        to->is_writable = false;
        return errno == EAGAIN;
    }
    to->is_writable = (size_t)sent == from->length;
    from->at += (size_t)sent;
    from->length -= (size_t)sent;
    return true;
}

static bool end_output(side *to)
{
    to->is_output_ended = true;
    return shutdown(to->fd, SHUT_WR) == 0;
}

/* Has the kernel report again what is ready, after all others. */
static bool ask_again(side *of)
{
    struct epoll_event event = { .events = interest, .data.ptr = of };
    return epoll_ctl(poller, EPOLL_CTL_MOD, of->fd, &event) == 0;
}

static bool copy(side *from, side *to)
{
    bool is_well = true;
    for (int round = 0; is_well; round++) {
        if (from->length > 0 && to->is_writable)
            is_well = write_side(from, to);
        else if (from->length > 0)
            return true;
        else if (from->is_input_ended)
            return to->is_output_ended || end_output(to);
        else if (!from->is_readable)
            return true;
        else if (round >= 2 * ROUNDS)
            return ask_again(from);
        else
            is_well = read_side(from);
    }
    return false;
}

static void relay(pair *self)
{
    if (!copy(&self->front, &self->back) || !copy(&self->back, &self->front))
        reset_pair(self);
    else if (self->front.is_output_ended && self->back.is_output_ended)
        close_pair(self);
}

static void serve(side *self, uint32_t events)
{
    if (self->pair->is_closed)
        return;
    self->is_readable |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    self->is_writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    self->has_hung_up |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (events & EPOLLERR) {
        reset_pair(self->pair);
        return;
    }
    self->pair->is_connected |= self == &self->pair->back && (events & EPOLLOUT);
    if (self->pair->is_connected)
        relay(self->pair);
}

/* Connecting ----------------------------------------------------------------------------------- */

static int connect_upstream(void)
{
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&upstream, sizeof upstream) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

static bool watch_side(side *self)
{
    struct epoll_event event = { .events = interest, .data.ptr = self };
    return epoll_ctl(poller, EPOLL_CTL_ADD, self->fd, &event) == 0;
}

static void accept_all(int listener)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        int back = connect_upstream();
        pair *self = back >= 0 ? new_pair(fd, back) : NULL;
        if (self != NULL && watch_side(&self->front) && watch_side(&self->back))
            continue;
        if (self != NULL) {
            close_pair(self);
            continue;
        }
        close(fd);
        if (back >= 0)
            close(back);
    }
}

static void loop(int listener)
{
    static struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == NULL)
                accept_all(listener);
            else
                serve(events[i].data.ptr, events[i].events);
        }
        reuse_closed();
    }
}

static int parse(int argc, char **argv)
{
    static const struct option switches[] = {
        { "listen", required_argument, NULL, 'l' },
        { "connect", required_argument, NULL, 'c' },
        { 0 },
    };
    const char *listen = "127.0.0.1:8008", *connect = "127.0.0.1:8007";
    bool is_understood = true;
    for (int which; (which = getopt_long(argc, argv, "", switches, NULL)) != -1;) {
        if (which == 'l')
            listen = optarg;
        else if (which == 'c')
            connect = optarg;
        else
            is_understood = false;
    }
    if (!is_understood || optind != argc) {
        fprintf(stderr, "usage: relay-epoll [--listen ADDRESS:PORT] [--connect ADDRESS:PORT]\n");
        exit(2);
    }
    upstream = listening_address("--connect", connect);
    return listening_open_at(listen);
}

int main(int argc, char **argv)
{
    int listener = parse(argc, argv);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) < 0) {
        perror("epoll");
        return 1;
    }
    listening_announce(listener);
    loop(listener);
}
