/* SPDX-License-Identifier: MIT */
/* What the tests of clients share: groups of every backend, peers that answer, refuse or hang,
 * and names with several addresses. */
#ifndef WEIR_TESTS_BOOTSTRAP_CLIENTS_H
#define WEIR_TESTS_BOOTSTRAP_CLIENTS_H

#include "base/sys.h"
#include "bootstrap/shared.h"
#include "transport/socket.h"

#include <weir/client.h>
#include <weir/server.h>
#include <weir/timer.h>

#include <poll.h>
#include <sys/un.h>

/* A case that waits for what is asked in the background, too. */
#define client_case(test)                                                                          \
    cmocka_unit_test_setup_teardown(test, harness_remember_what_lives, assert_nothing_left)

#define FOR_EACH_BACKEND(on)                                                                       \
    for (const backend *on = backends,                                                             \
                       *end_of_##on = backends + COUNT(backends) - !harness_has_uring();           \
         (on) < end_of_##on; (on)++)

static inline weir_group *open_loops(const backend *on)
{
    return loops_of(on, 1);
}

/* A loop that was for one channel is free for the next. */
static inline void wait_until_idle(weir_group *group)
{
    size_t active, idle;
    WAIT_FOR((weir_group_get_channels(group, &active, &idle), active == 0));
}

/* Driven by the test, with a time of its own. */
static inline weir_group *open_manual(weir_virtual_clock *clock)
{
    weir_virtual_clock_init(clock, WEIR_SECONDS(1));
    return open_group(&(weir_group_config){
        .loops = 1, .is_manual = true, .clock = &clock->clock, .watchdog_ns = WEIR_OFF });
}

static inline void step_all(weir_group *group)
{
    while (weir_group_step(group) > 0)
        continue;
}

/* Peers ---------------------------------------------------------------------------------------- */

/* A socket of somebody else's, on an address as text. */
typedef struct peer {
    int fd, filler;
    char text[64];
} peer;

/* A path or a name that no other process has. */
static inline void make_unix_text(char to[64], const char *prefix)
{
    snprintf(to, 64, "unix:%sweir-test-%d", prefix, (int)getpid());
}

static inline int bind_socket(const char *text)
{
    socklen_t length;
    const struct sockaddr *name;
    weir_address address = address_of(text);
    int fd = socket_for(&address, &name, &length);
    assert_int_equal(bind(fd, name, length), 0);
    return fd;
}

static inline void name_peer(peer *self)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    weir_address address;
    assert_int_equal(getsockname(self->fd, (struct sockaddr *)&name, &length), 0);
    assert_int_equal(weir_address_from_sockaddr(&address, (struct sockaddr *)&name, length), 0);
    weir_address_text(&address, self->text, sizeof self->text);
}

/* Connections are made, and wait to be accepted. */
static inline peer answering_peer(const char *text)
{
    peer self = { .fd = bind_socket(text), .filler = -1 };
    assert_int_equal(listen(self.fd, 1000), 0);
    name_peer(&self);
    return self;
}

/* Nobody listens on the port, and nobody else gets it. */
static inline peer refusing_peer(const char *text)
{
    peer self = { .fd = bind_socket(text), .filler = -1 };
    name_peer(&self);
    return self;
}

static inline int connect_plainly(const char *text)
{
    socklen_t length;
    const struct sockaddr *name;
    weir_address address = address_of(text);
    int fd = socket_for(&address, &name, &length);
    assert_int_equal(connect(fd, name, length), 0);
    return fd;
}

/* Its backlog is full, so that nothing is heard from it. */
static inline peer hanging_peer(const char *text)
{
    peer self = { .fd = bind_socket(text), .filler = -1 };
    assert_int_equal(listen(self.fd, 0), 0);
    name_peer(&self);
    self.filler = connect_plainly(self.text);
    return self;
}

static inline void close_peer(peer *self)
{
    close(self->fd);
    if (self->filler >= 0)
        close(self->filler);
}

static inline int accept_one(const peer *self)
{
    int fd = accept4(self->fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static inline bool has_waiting(const peer *self)
{
    struct pollfd wait = { .fd = self->fd, .events = POLLIN };
    return poll(&wait, 1, 0) == 1;
}

/* The other side has closed; waits for it. */
static inline void expect_end(int fd)
{
    char byte;
    ssize_t got = read(fd, &byte, 1);
    assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
    close(fd);
}

static inline size_t open_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

/* Channels ------------------------------------------------------------------------------------- */

/* What became of the channels of a client. */
typedef struct record {
    atomic_int inits, actives, inactives, errors;
    int init_code;
    void (*in_init)(struct record *self, weir_channel *channel);
    void *arg;
} record;

static inline record *record_of(weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static inline void record_on_active(weir_ctx *ctx)
{
    atomic_fetch_add(&record_of(ctx)->actives, 1);
    weir_ctx_fire_active(ctx);
}

static inline void record_on_inactive(weir_ctx *ctx)
{
    atomic_fetch_add(&record_of(ctx)->inactives, 1);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type record_type = {
    .name = "record",
    .on_active = record_on_active,
    .on_inactive = record_on_inactive,
};

static inline int record_init(weir_channel *channel, void *arg)
{
    record *self = arg;
    atomic_fetch_add(&self->inits, 1);
    if (self->in_init != NULL)
        self->in_init(self, channel);
    if (self->init_code < 0)
        return self->init_code;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "record", &record_type, self);
}

static inline void close_and_release(weir_channel *channel)
{
    weir_channel_close(channel, NULL);
    weir_future_await(weir_channel_closed(channel));
    weir_channel_release(channel);
}

/* Names ---------------------------------------------------------------------------------------- */

/* A resolver that knows one list for every name, as text with spaces between. */
typedef struct names {
    weir_resolver base;
    const char *list;
    int refusal;  /* returned at once */
    int code;     /* of the answer */
    bool is_late; /* the answer waits for answer_late */
    atomic_int asked;
    _Atomic(weir_promise *) late;
} names;

static inline int resolve_name(weir_resolver *resolver, weir_executor *background, const char *host,
                               uint16_t port, weir_promise *promise)
{
    names *self = WEIR_CONTAINER(resolver, names, base);
    (void)background, (void)host, (void)port;
    atomic_fetch_add(&self->asked, 1);
    if (self->refusal < 0)
        return self->refusal;
    if (self->is_late)
        atomic_store(&self->late, weir_promise_retain(promise));
    else
        answer_with(promise, self->code, self->list);
    return 0;
}

static inline void answer_late(names *self)
{
    weir_promise *promise = atomic_exchange(&self->late, NULL);
    assert_non_null(promise);
    answer_with(promise, self->code, self->list);
    weir_promise_release(promise);
}

#define NAMES(texts)                                                                               \
    (names)                                                                                        \
    {                                                                                              \
        .base.resolve = resolve_name, .list = (texts)                                              \
    }

#endif
