/* SPDX-License-Identifier: MIT */
/* Messages over connections that stay. Either each connection has so many on their way, and sends
 * the next when one is back; or they are sent at fixed times whatever comes back, and the time of
 * each counts from when it was due: a server that stalls cannot hide it by slowing the client. */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 256,
    BUFFER_BYTES = 256 * 1024,
    MOST_ON_THEIR_WAY = 1 << 20, /* of all connections, with a fixed rate */
    SILENCE_MS = 10000,          /* then the server has hung */
};

typedef struct connection {
    int fd;
    bool waits_for_room;
    size_t got;      /* bytes, of all messages */
    size_t sent;     /* likewise */
    size_t to_send;  /* likewise: what is to be sent by now */
    uint64_t *times; /* of those on their way, a ring */
    size_t first, count, room;
} connection;

typedef struct echo {
    const load_settings *settings;
    load_span span;
    load_pattern pattern;
    load_target target;
    int epoll;
    connection *connections;
    uint8_t *buffer;
    uint64_t issued;  /* messages, of all connections */
    uint64_t on_way;  /* likewise */
    uint64_t zero_ns; /* when the first of a fixed rate is due */
    bool is_over;     /* only what is on its way is waited for */
    bool has_failed;
} echo;

/* The times of those on their way -------------------------------------------------------------- */

static void grow(connection *self)
{
    size_t room = self->room > 0 ? self->room * 2 : 16;
    uint64_t *times = malloc(room * sizeof *times);
    if (times == NULL)
        abort();
    for (size_t i = 0; i < self->count; i++)
        times[i] = self->times[(self->first + i) & (self->room - 1)];
    free(self->times);
    self->times = times;
    self->first = 0;
    self->room = room;
}

static void push_time(connection *self, uint64_t ns)
{
    if (self->count == self->room)
        grow(self);
    self->times[(self->first + self->count++) & (self->room - 1)] = ns;
}

static uint64_t pop_time(connection *self)
{
    uint64_t ns = self->times[self->first];
    self->first = (self->first + 1) & (self->room - 1);
    self->count--;
    return ns;
}

/* Sending -------------------------------------------------------------------------------------- */

static void fail(echo *self, const char *what)
{
    if (!self->has_failed)
        fprintf(stderr, "weir-load: %s: %s\n", self->settings->to, what);
    self->has_failed = true;
    self->span.result->failed++;
}

static void watch_for(const echo *self, connection *which, bool waits_for_room)
{
    struct epoll_event event = {
        .events = EPOLLIN | (waits_for_room ? (uint32_t)EPOLLOUT : 0),
        .data.ptr = which,
    };
    which->waits_for_room = waits_for_room;
    epoll_ctl(self->epoll, EPOLL_CTL_MOD, which->fd, &event);
}

static void send_some(echo *self, connection *which)
{
    const load_pattern *pattern = &self->pattern;
    while (which->sent < which->to_send) {
        size_t at = which->sent % pattern->size, left = which->to_send - which->sent;
        size_t length = left < pattern->length - at ? left : pattern->length - at;
        ssize_t code = load_send(which->fd, pattern->bytes + at, length);
        if (code < 0 && errno == EAGAIN)
            break;
        if (code < 0) {
            fail(self, strerror(errno));
            return;
        }
        which->sent += (size_t)code;
    }
    bool waits = which->sent < which->to_send;
    if (waits != which->waits_for_room)
        watch_for(self, which, waits);
}

static void issue(echo *self, connection *which, uint64_t due_ns)
{
    push_time(which, due_ns);
    which->to_send += self->settings->size;
    self->issued++;
    self->on_way++;
}

static bool may_issue(const echo *self)
{
    return !self->is_over && (self->settings->count == 0 || self->issued < self->settings->count);
}

/* Receiving ------------------------------------------------------------------------------------ */

static void take_answers(echo *self, connection *which, size_t length)
{
    size_t size = self->settings->size, before = which->got / size;
    which->got += length;
    size_t whole = which->got / size - before;
    if (whole == 0)
        return;
    uint64_t now_ns = load_now_ns();
    for (; whole > 0; whole--) {
        load_span_add(&self->span, pop_time(which), now_ns);
        self->on_way--;
        if (self->settings->rate == 0 && may_issue(self))
            issue(self, which, now_ns);
    }
}

static void receive(echo *self, connection *which)
{
    ssize_t code = load_recv(which->fd, self->buffer, BUFFER_BYTES);
    if (code < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (code <= 0)
        fail(self, code == 0 ? "the server closed a connection" : strerror(errno));
    else if (which->got + (size_t)code > which->sent ||
             !load_pattern_fits(&self->pattern, which->got, self->buffer, (size_t)code))
        fail(self, "the answer is not what was sent");
    else
        take_answers(self, which, (size_t)code);
}

/* A fixed rate --------------------------------------------------------------------------------- */

static uint64_t due_at(const echo *self)
{
    return self->zero_ns + (uint64_t)((double)self->issued * 1e9 / self->settings->rate);
}

static void issue_due(echo *self)
{
    uint64_t now_ns = load_now_ns();
    for (uint64_t due_ns; may_issue(self) && (due_ns = due_at(self)) <= now_ns;) {
        connection *which = &self->connections[self->issued % self->settings->connections];
        issue(self, which, due_ns);
        if (!which->waits_for_room)
            send_some(self, which);
        if (self->on_way > MOST_ON_THEIR_WAY) {
            fail(self, "it does not keep up with that rate: a million messages wait");
            return;
        }
    }
}

/* Running -------------------------------------------------------------------------------------- */

static int wait_for_events(const echo *self, struct epoll_event *events)
{
    struct timespec timeout = { .tv_sec = SILENCE_MS / 1000 };
    if (self->settings->rate > 0 && may_issue(self)) {
        uint64_t due_ns = due_at(self), now_ns = load_now_ns();
        uint64_t wait_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        timeout = (struct timespec){ .tv_sec = (time_t)(wait_ns / 1000000000),
                                     .tv_nsec = (long)(wait_ns % 1000000000) };
    }
    return epoll_pwait2(self->epoll, events, EVENTS, &timeout, NULL);
}

static void begin(echo *self)
{
    const load_settings *settings = self->settings;
    load_span_warm_up(&self->span);
    self->zero_ns = load_now_ns();
    for (unsigned i = 0; i < settings->connections && settings->rate == 0; i++) {
        for (unsigned j = 0; j < settings->depth && may_issue(self); j++)
            issue(self, &self->connections[i], load_now_ns());
        send_some(self, &self->connections[i]);
    }
}

static void turn(echo *self)
{
    struct epoll_event events[EVENTS];
    if (self->settings->rate > 0)
        issue_due(self);
    int count = wait_for_events(self, events);
    if (count == 0 && (self->settings->rate == 0 || self->is_over))
        fail(self, "no answer for ten seconds");
    for (int i = 0; i < count && !self->has_failed; i++) {
        connection *which = events[i].data.ptr;
        receive(self, which);
        if (which->sent < which->to_send)
            send_some(self, which);
    }
}

static void run(echo *self)
{
    begin(self);
    while (!self->has_failed && !load_span_is_over(&self->span, load_now_ns()))
        turn(self);
    load_span_close(&self->span);
    self->is_over = true;
    while (!self->has_failed && self->on_way > 0) /* a close now would be a reset */
        turn(self);
}

static int add_connections(echo *self, int *fds)
{
    unsigned count = self->settings->connections;
    if (load_target_connect_all(&self->target, fds, count) < 0)
        return -1;
    for (unsigned i = 0; i < count; i++) {
        connection *which = &self->connections[i];
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = which };
        which->fd = fds[i];
        epoll_ctl(self->epoll, EPOLL_CTL_ADD, which->fd, &event);
    }
    return 0;
}

int load_echo(const load_settings *settings, load_result *result)
{
    echo self = {
        .settings = settings,
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .connections = calloc(settings->connections, sizeof *self.connections),
        .buffer = malloc(BUFFER_BYTES),
    };
    int *fds = calloc(settings->connections, sizeof *fds);
    if (self.epoll < 0 || self.connections == NULL || self.buffer == NULL || fds == NULL)
        abort();
    load_pattern_init(&self.pattern, settings->size, BUFFER_BYTES);
    bool is_connected = load_target_from(&self.target, settings->to) == 0 &&
                        load_span_open(&self.span, settings, result) &&
                        add_connections(&self, fds) == 0;
    if (is_connected)
        run(&self);
    for (unsigned i = 0; i < settings->connections && is_connected; i++) {
        load_close(fds[i]);
        free(self.connections[i].times);
    }
    close(self.epoll);
    free(fds);
    free(self.buffer);
    free(self.connections);
    load_pattern_end(&self.pattern);
    return is_connected && !self.has_failed ? 0 : -1;
}
