/* SPDX-License-Identifier: MIT */
/* The wire by epoll, plain or through TLS. */
#include "load.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 256, BUFFER_BYTES = 256 * 1024 };

struct wire {
    wire_user user;
    const int *fds;
    int epoll;
    bool *waits_for_room;
    uint8_t *buffer;
};

static void watch_for(wire *self, unsigned which, bool waits_for_room)
{
    struct epoll_event event = {
        .events = EPOLLIN | (waits_for_room ? (uint32_t)EPOLLOUT : 0),
        .data.u32 = which,
    };
    self->waits_for_room[which] = waits_for_room;
    epoll_ctl(self->epoll, EPOLL_CTL_MOD, self->fds[which], &event);
}

static void send_some(wire *self, unsigned which)
{
    const uint8_t *bytes;
    size_t length;
    while ((length = self->user.next(self->user.arg, which, &bytes)) > 0) {
        ssize_t code = load_send(self->fds[which], bytes, length);
        if (code < 0 && errno == EAGAIN)
            break;
        if (code < 0) {
            self->user.failed(self->user.arg, strerror(errno));
            return;
        }
        self->user.sent(self->user.arg, which, (size_t)code);
    }
    if ((length > 0) != self->waits_for_room[which])
        watch_for(self, which, length > 0);
}

static void epoll_send(wire *self, unsigned which)
{
    if (!self->waits_for_room[which])
        send_some(self, which);
}

static void receive(wire *self, unsigned which)
{
    ssize_t code = load_recv(self->fds[which], self->buffer, BUFFER_BYTES);
    if (code < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (code <= 0)
        self->user.failed(self->user.arg,
                          code == 0 ? "the server closed a connection" : strerror(errno));
    else
        self->user.received(self->user.arg, which, self->buffer, (size_t)code);
}

static bool epoll_wait_for(wire *self, uint64_t timeout_ns)
{
    struct epoll_event events[EVENTS];
    struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000),
                                .tv_nsec = (long)(timeout_ns % 1000000000) };
    int count = epoll_pwait2(self->epoll, events, EVENTS, &timeout, NULL);
    for (int i = 0; i < count; i++) {
        receive(self, events[i].data.u32);
        send_some(self, events[i].data.u32);
    }
    return count != 0;
}

static void epoll_close(wire *self)
{
    close(self->epoll);
    free(self->waits_for_room);
    free(self->buffer);
    free(self);
}

static wire *epoll_open(const wire_user *user, const int *fds, unsigned count, const char **why)
{
    (void)why;
    wire *self = malloc(sizeof *self);
    if (self == NULL)
        abort();
    *self = (wire){
        .user = *user,
        .fds = fds,
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .waits_for_room = calloc(count, sizeof *self->waits_for_room),
        .buffer = malloc(BUFFER_BYTES),
    };
    if (self->epoll < 0 || self->waits_for_room == NULL || self->buffer == NULL)
        abort();
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };
        epoll_ctl(self->epoll, EPOLL_CTL_ADD, fds[i], &event);
    }
    return self;
}

const wire_type wire_epoll = {
    .name = "epoll",
    .open = epoll_open,
    .close = epoll_close,
    .send = epoll_send,
    .wait = epoll_wait_for,
};
