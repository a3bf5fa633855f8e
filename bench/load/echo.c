/* SPDX-License-Identifier: MIT */
/* Messages over connections that stay. Either each connection has so many on their way, and sends
 * the next when one is back; or they are sent at fixed times whatever comes back, and the time of
 * each counts from when it was due: a server that stalls cannot hide it by slowing the client. */
#include "load.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATTERN_BYTES = 256 * 1024,  /* at least */
    MOST_ON_THEIR_WAY = 1 << 20, /* of all connections, with a fixed rate */
};

#define SILENCE_NS 10000000000u /* then the server has hung */

typedef struct connection {
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
    const wire_type *type;
    wire *wire;
    connection *connections;
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

static void fail(void *arg, const char *what)
{
    echo *self = arg;
    if (!self->has_failed)
        fprintf(stderr, "weir-load: %s: %s\n", self->settings->to, what);
    self->has_failed = true;
    self->span.result->failed++;
}

static size_t next_to_send(void *arg, unsigned which, const uint8_t **bytes)
{
    const echo *self = arg;
    const connection *from = &self->connections[which];
    size_t at = from->sent % self->pattern.size, left = from->to_send - from->sent;
    *bytes = self->pattern.bytes + at;
    if (self->has_failed)
        return 0;
    return left < self->pattern.length - at ? left : self->pattern.length - at;
}

static void note_sent(void *arg, unsigned which, size_t length)
{
    ((echo *)arg)->connections[which].sent += length;
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

/* What was sent is noted a little later, maybe behind its answer. */
static void receive(void *arg, unsigned which, const uint8_t *bytes, size_t length)
{
    echo *self = arg;
    connection *from = &self->connections[which];
    if (from->got + length > from->to_send ||
        !load_pattern_fits(&self->pattern, from->got, bytes, length))
        fail(self, "the answer is not what was sent");
    else
        take_answers(self, from, length);
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
        unsigned which = (unsigned)(self->issued % self->settings->connections);
        issue(self, &self->connections[which], due_ns);
        self->type->send(self->wire, which);
        if (self->on_way > MOST_ON_THEIR_WAY) {
            fail(self, "it does not keep up with that rate: a million messages wait");
            return;
        }
    }
}

/* Running -------------------------------------------------------------------------------------- */

static uint64_t wait_ns(const echo *self)
{
    if (self->settings->rate == 0 || !may_issue(self))
        return SILENCE_NS;
    uint64_t due_ns = due_at(self), now_ns = load_now_ns();
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

static void begin(echo *self)
{
    const load_settings *settings = self->settings;
    load_span_warm_up(&self->span);
    self->zero_ns = load_now_ns();
    for (unsigned i = 0; i < settings->connections && settings->rate == 0; i++) {
        for (unsigned j = 0; j < settings->depth && may_issue(self); j++)
            issue(self, &self->connections[i], load_now_ns());
        self->type->send(self->wire, i);
    }
}

static void turn(echo *self)
{
    if (self->settings->rate > 0)
        issue_due(self);
    if (!self->type->wait(self->wire, wait_ns(self)) &&
        (self->settings->rate == 0 || self->is_over))
        fail(self, "no answer for ten seconds");
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

/* io_uring where there is one, if nobody says otherwise; not through TLS, nor for messages that it
 * would receive in many pieces. */
static bool open_wire(echo *self, const int *fds)
{
    const load_settings *settings = self->settings;
    const wire_user user = { self, next_to_send, note_sent, receive, fail };
    const char *why = "";
    bool is_fit = load_tls_counted() == NULL && settings->size <= WIRE_URING_BYTES;
    self->type = settings->io == LOAD_URING || (settings->io == LOAD_ANY && is_fit) ? &wire_uring
                                                                                    : &wire_epoll;
    self->wire = self->type->open(&user, fds, settings->connections, &why);
    if (self->wire == NULL && settings->io == LOAD_ANY) {
        self->type = &wire_epoll;
        self->wire = self->type->open(&user, fds, settings->connections, &why);
    }
    if (self->wire == NULL)
        fprintf(stderr, "weir-load: there is no io_uring here: %s\n", why);
    self->span.result->io = self->type->name;
    return self->wire != NULL;
}

int load_echo(const load_settings *settings, load_result *result)
{
    unsigned count = settings->connections;
    echo self = {
        .settings = settings,
        .connections = calloc(count, sizeof *self.connections),
    };
    int *fds = calloc(count, sizeof *fds);
    if (self.connections == NULL || fds == NULL)
        abort();
    load_pattern_init(&self.pattern, settings->size, PATTERN_BYTES);
    bool is_connected = load_target_from(&self.target, settings->to) == 0 &&
                        load_span_open(&self.span, settings, result) &&
                        load_target_connect_all(&self.target, fds, count) == 0;
    bool is_open = is_connected && open_wire(&self, fds);
    if (is_open) {
        run(&self);
        self.type->close(self.wire);
    }
    for (unsigned i = 0; i < count && is_connected; i++) {
        load_close(fds[i]);
        free(self.connections[i].times);
    }
    free(fds);
    free(self.connections);
    load_pattern_end(&self.pattern);
    return is_open && !self.has_failed ? 0 : -1;
}
