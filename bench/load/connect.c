/* SPDX-License-Identifier: MIT */
/* Connect, one message there and back, close; so many at a time. A message of 0 bytes: connect, end
 * the output, wait until the server closes. */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 256, BUFFER_BYTES = 64 * 1024, SILENCE_MS = 10000 };

typedef struct visit {
    int fd; /* -1: none any more */
    uint64_t begun_ns;
    size_t sent, got;
    bool is_said;
} visit;

typedef struct visits {
    const load_settings *settings;
    load_span span;
    load_pattern pattern;
    load_target target;
    int epoll;
    visit *all;
    uint64_t begun, open;
    bool is_over; /* only those that are open are waited for */
    bool has_failed;
} visits;

static void fail(visits *self, const char *what)
{
    if (!self->has_failed)
        fprintf(stderr, "weir-load: %s: %s\n", self->settings->to, what);
    self->has_failed = true;
    self->span.result->failed++;
}

static void begin_visit(visits *self, visit *which)
{
    *which = (visit){ .fd = -1 };
    if (self->is_over || (self->settings->count > 0 && self->begun >= self->settings->count))
        return;
    which->begun_ns = load_now_ns();
    which->fd = load_target_connect(&self->target);
    if (which->fd < 0) {
        fail(self, strerror(errno));
        return;
    }
    self->begun++;
    self->open++;
    struct epoll_event event = { .events = EPOLLOUT, .data.ptr = which };
    epoll_ctl(self->epoll, EPOLL_CTL_ADD, which->fd, &event);
}

static void say_something(visits *self, visit *which)
{
    size_t size = self->settings->size;
    ssize_t code = size == 0 ? shutdown(which->fd, SHUT_WR)
                             : load_send(which->fd, self->pattern.bytes + which->sent,
                                         size - which->sent);
    if (code < 0 && errno != EAGAIN) {
        fail(self, strerror(errno));
        return;
    }
    which->sent += code > 0 ? (size_t)code : 0;
    which->is_said = which->sent == size;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = which };
    if (which->is_said || load_waits_for_bytes(which->fd))
        epoll_ctl(self->epoll, EPOLL_CTL_MOD, which->fd, &event);
}

static void end_visit(visits *self, visit *which)
{
    load_span_add(&self->span, which->begun_ns, load_now_ns());
    load_close(which->fd);
    self->open--;
    begin_visit(self, which);
}

static void hear_the_answer(visits *self, visit *which)
{
    uint8_t bytes[BUFFER_BYTES];
    ssize_t code = load_recv(which->fd, bytes, sizeof bytes);
    if (code < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (code == 0 && self->settings->size == 0) {
        end_visit(self, which);
        return;
    }
    if (code <= 0) {
        fail(self, code == 0 ? "the server closed a connection" : strerror(errno));
        return;
    }
    if (which->got + (size_t)code > self->settings->size ||
        !load_pattern_fits(&self->pattern, which->got, bytes, (size_t)code)) {
        fail(self, "the answer is not what was sent");
        return;
    }
    which->got += (size_t)code;
    if (which->got == self->settings->size)
        end_visit(self, which);
}

static void turn(visits *self)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(self->epoll, events, EVENTS, SILENCE_MS);
    if (count == 0)
        fail(self, "nothing moves for ten seconds");
    for (int i = 0; i < count && !self->has_failed; i++) {
        visit *which = events[i].data.ptr;
        if (!which->is_said)
            say_something(self, which);
        else
            hear_the_answer(self, which);
    }
}

static void run(visits *self)
{
    load_span_warm_up(&self->span);
    for (unsigned i = 0; i < self->settings->connections && !self->has_failed; i++)
        begin_visit(self, &self->all[i]);
    while (!self->has_failed && !load_span_is_over(&self->span, load_now_ns()))
        turn(self);
    load_span_close(&self->span);
    self->is_over = true;
    while (!self->has_failed && self->open > 0)
        turn(self);
}

int load_connect(const load_settings *settings, load_result *result)
{
    visits self = {
        .settings = settings,
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .all = calloc(settings->connections, sizeof *self.all),
    };
    if (self.epoll < 0 || self.all == NULL)
        abort();
    size_t size = settings->size > 0 ? settings->size : 1; /* a pattern has bytes */
    load_pattern_init(&self.pattern, size, size);
    for (unsigned i = 0; i < settings->connections; i++)
        self.all[i].fd = -1;
    bool is_ready = load_target_from(&self.target, settings->to) == 0 &&
                    load_span_open(&self.span, settings, result);
    if (is_ready)
        run(&self);
    for (unsigned i = 0; i < settings->connections; i++) {
        if (self.all[i].fd >= 0)
            load_close(self.all[i].fd);
    }
    close(self.epoll);
    free(self.all);
    load_pattern_end(&self.pattern);
    return is_ready && !self.has_failed ? 0 : -1;
}
