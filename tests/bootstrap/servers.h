/* SPDX-License-Identifier: MIT */
/* What the tests of servers share: each case over every backend, an echo server that counts, and
 * clients that are plain sockets. */
#ifndef WEIR_TESTS_BOOTSTRAP_SERVERS_H
#define WEIR_TESTS_BOOTSTRAP_SERVERS_H

#include "bootstrap/shared.h"

#include <weir/loop.h>
#include <weir/server.h>
#include <weir/socket.h>
#include <weir/threads.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/time.h>
#include <sys/un.h>

/* Cases --------------------------------------------------------------------------------------- */

static inline int begin_server_case(void **state)
{
    *state = (void *)(uintptr_t)there_is(*state);
    return harness_remember_what_lives(state);
}

#define server_case(test, index)                                                                   \
    {                                                                                              \
#test, test, begin_server_case, assert_nothing_left, (void *)(uintptr_t)&backends[index]   \
    }

/* A case that is run over every backend: its state is the backend. */
#define each_backend(test) server_case(test, 0), server_case(test, 1), server_case(test, 2)

/* What speaks of numbers of loops, or of loops that are stepped. */
#define epoll_only(test) server_case(test, 0)

/* Addresses and clients ------------------------------------------------------------------------ */

static inline weir_address address_of_server(const weir_server *server)
{
    weir_address address;
    assert_int_equal(weir_server_address(server, &address), 0);
    return address;
}

/* The same port on another host, as text with a %u. */
static inline weir_address on_port_of(const weir_server *server, const char *format)
{
    char text[64];
    weir_address address = address_of_server(server);
    snprintf(text, sizeof text, format, weir_address_port(&address));
    return address_of(text);
}

/* A connection, or the negative error. */
static inline int try_dial(const weir_address *address)
{
    socklen_t length;
    const struct sockaddr *name;
    int fd = socket_for(address, &name, &length);
    struct timeval patience = { .tv_sec = 60 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, name, length) == 0)
        return fd;
    int code = -errno;
    close(fd);
    return code;
}

static inline int dial(const weir_server *server)
{
    weir_address address = address_of_server(server);
    int fd = try_dial(&address);
    assert_true(fd >= 0);
    return fd;
}

static inline void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static inline void hear(int fd, const char *expected)
{
    char text[256];
    size_t length = strlen(expected);
    assert_true(length < sizeof text);
    assert_int_equal(recv(fd, text, length, MSG_WAITALL), (ssize_t)length);
    assert_memory_equal(text, expected, length);
}

/* Echo there and back. */
static inline void talk(int fd)
{
    say(fd, "hello");
    hear(fd, "hello");
}

/* The other side has closed, one way or the other. */
static inline void hear_end(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, 0);
    if (got < 0 && errno == ECONNRESET)
        got = 0;
    assert_int_equal(got, 0);
}

/* Nothing has come, and the other side has not closed, until now. */
static inline bool is_silent(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* An echo server that counts ------------------------------------------------------------------- */

/* What the callbacks of a server's channels have seen. */
typedef struct witness {
    atomic_int inits, child_inits, actives, reads, inactives, errors;
    atomic_int child_code; /* what init_child returns, without adding anything */
    atomic_int drains;
    atomic_bool leaves; /* children close when they are drained */
    pthread_mutex_t lock;
    int accept_tids[64], child_tids[64]; /* each once */
    size_t accept_tid_count, child_tid_count;
} witness;

static inline void note_tid(witness *seen, int *tids, size_t *count)
{
    int tid = (int)gettid();
    size_t i = 0;
    pthread_mutex_lock(&seen->lock);
    while (i < *count && tids[i] != tid)
        i++;
    if (i == *count && i < 64)
        tids[(*count)++] = tid;
    pthread_mutex_unlock(&seen->lock);
}

static inline void note_child_tid(witness *seen)
{
    note_tid(seen, seen->child_tids, &seen->child_tid_count);
}

static inline void echo_on_active(weir_ctx *ctx)
{
    witness *seen = weir_ctx_arg(ctx);
    note_child_tid(seen);
    atomic_fetch_add(&seen->actives, 1);
    weir_ctx_fire_active(ctx);
}

static inline void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    witness *seen = weir_ctx_arg(ctx);
    note_child_tid(seen);
    atomic_fetch_add(&seen->reads, 1);
    weir_ctx_write(ctx, msg, NULL);
}

static inline void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static inline void echo_on_inactive(weir_ctx *ctx)
{
    witness *seen = weir_ctx_arg(ctx);
    note_child_tid(seen);
    atomic_fetch_add(&seen->inactives, 1);
    weir_ctx_fire_inactive(ctx);
}

static inline void echo_on_error(weir_ctx *ctx, const weir_error *error)
{
    witness *seen = weir_ctx_arg(ctx);
    (void)error;
    atomic_fetch_add(&seen->errors, 1);
    weir_ctx_close(ctx, NULL);
}

static inline void echo_on_event(weir_ctx *ctx, weir_msg *event)
{
    witness *seen = weir_ctx_arg(ctx);
    if (event == &weir_event_draining) {
        atomic_fetch_add(&seen->drains, 1);
        if (atomic_load(&seen->leaves))
            weir_ctx_close(ctx, NULL);
    }
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type echo_type = {
    .name = "echo",
    .on_active = echo_on_active,
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
    .on_event = echo_on_event,
    .on_inactive = echo_on_inactive,
    .on_error = echo_on_error,
};

static inline int init_echo(weir_channel *child, void *arg)
{
    witness *seen = arg;
    note_child_tid(seen);
    atomic_fetch_add(&seen->child_inits, 1);
    int code = atomic_load(&seen->child_code);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(child), "echo", &echo_type, arg);
}

static inline void accepts_on_read(weir_ctx *ctx, weir_msg *msg)
{
    witness *seen = weir_ctx_arg(ctx);
    note_tid(seen, seen->accept_tids, &seen->accept_tid_count);
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type accepts_type = { .name = "accepts", .on_read = accepts_on_read };

static inline int init_accepts(weir_channel *listener, void *arg)
{
    witness *seen = arg;
    atomic_fetch_add(&seen->inits, 1);
    return weir_pipeline_add_last(weir_channel_pipeline(listener), "accepts", &accepts_type, arg);
}

/* Groups and a server with them. */
typedef struct setup {
    weir_group *boss, *workers;
    witness seen;
    weir_server_config config;
    weir_server *server;
} setup;

#define EVERYWHERE "127.0.0.1:0"

static inline void prepare(setup *self, const backend *with, int bosses, int workers)
{
    memset(self, 0, sizeof *self);
    pthread_mutex_init(&self->seen.lock, NULL);
    self->boss = loops_of(with, bosses);
    self->workers = workers > 0 ? loops_of(with, workers) : NULL;
    self->config = (weir_server_config){
        .boss = self->boss,
        .workers = self->workers,
        .init = init_accepts,
        .init_child = init_echo,
        .arg = &self->seen,
    };
}

static inline void listen_on(setup *self, const char *address)
{
    weir_error error = { 0 };
    int code = weir_server_listen(&self->server, &self->config, address, &error);
    if (code < 0)
        fail_msg("%s: %s", address, error.message);
    assert_non_null(self->server);
}

static inline void open_server(setup *self, const backend *with, int bosses, int workers)
{
    prepare(self, with, bosses, workers);
    listen_on(self, EVERYWHERE);
}

static inline int close_server(weir_server *server)
{
    weir_promise *promise = new_promise();
    weir_server_close(server, promise);
    return end_of(promise);
}

static inline void free_groups(setup *self)
{
    end_group(self->boss);
    if (self->workers != NULL)
        end_group(self->workers);
    pthread_mutex_destroy(&self->seen.lock);
}

static inline void close_all(setup *self)
{
    if (self->server != NULL) {
        assert_int_equal(close_server(self->server), 0);
        assert_int_equal(weir_future_await(weir_server_closed(self->server)), 0);
    }
    weir_server_release(self->server);
    free_groups(self);
}

/* The connections that are open, as the server has it. */
static inline weir_listener_stats server_stats(const weir_server *server)
{
    weir_listener_stats stats;
    weir_server_get_stats(server, &stats);
    return stats;
}

/* A resolver that answers when it is told to -----------------------------------------------------
 */

typedef struct late_resolver {
    weir_resolver base;
    atomic_int questions;
    int refusal; /* what it says at once */
    _Atomic(weir_promise *) promise;
    char host[64];
    uint16_t port;
} late_resolver;

static inline int late_resolve(weir_resolver *resolver, weir_executor *background, const char *host,
                               uint16_t port, weir_promise *promise)
{
    late_resolver *self = WEIR_CONTAINER(resolver, late_resolver, base);
    (void)background;
    if (self->refusal < 0)
        return self->refusal;
    snprintf(self->host, sizeof self->host, "%s", host);
    self->port = port;
    atomic_store(&self->promise, weir_promise_retain(promise));
    atomic_fetch_add(&self->questions, 1);
    return 0;
}

static inline int answer(late_resolver *self, int code, const char *texts)
{
    weir_promise *promise = atomic_exchange(&self->promise, NULL);
    assert_non_null(promise);
    code = answer_with(promise, code, texts);
    weir_promise_release(promise);
    return code;
}

#define LATE_RESOLVER                                                                              \
    (late_resolver)                                                                                \
    {                                                                                              \
        .base = { late_resolve }                                                                   \
    }

#endif
