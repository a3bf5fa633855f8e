/* SPDX-License-Identifier: MIT */
/* What the tests of sockets as channels share: a group of loops over each backend, handlers that
 * write down what they see, listeners that take children in, and peers that are plain sockets. */
#ifndef WEIR_TESTS_TRANSPORT_SOCKETS_H
#define WEIR_TESTS_TRANSPORT_SOCKETS_H

#include "loop/loops.h"

#include "base/sys.h"

#include <weir/accepted.h>
#include <weir/socket.h>
#include <weir/threads.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define MIB ((size_t)1024 * 1024)
#define PATIENCE_MS 20000 /* until something that should happen has not */

/* Backends ------------------------------------------------------------------------------------- */

typedef struct backend {
    const char *name;
    weir_io_kind io;
} backend;

enum { EPOLL, URING, BLOCKING, BACKENDS };

static backend backends[] = {
    [EPOLL] = { "epoll", WEIR_IO_EPOLL },
    [URING] = { "uring", WEIR_IO_URING },
    [BLOCKING] = { "blocking", WEIR_IO_BLOCKING }, /* a loop for each channel */
};

static const backend *current;
static weir_group *group; /* two loops, or as many as there are channels */

static inline int begin_case(void **state)
{
    current = *state;
    if (current == &backends[URING] && !harness_has_uring())
        current = &backends[EPOLL];
    harness_remember_what_lives(state);
    weir_group_config config = { .loops = current->io == WEIR_IO_BLOCKING ? 0 : 2 };
    config.io = current->io;
    config.watchdog_ns = WEIR_OFF;
    return weir_group_new(&group, &config, NULL);
}

static inline int end_case(void **state)
{
    if (group != NULL)
        end_group(group);
    group = NULL;
    /* Some look names up in the background, whose thread stays for a while. */
    assert_int_equal(weir_executor_global_wait_idle(WEIR_MS(PATIENCE_MS)), 0);
    return harness_assert_nothing_left(state);
}

/* A case over every backend; one that wants several channels on the same loop; and one about how
 * epoll does it. */
#define case_over(backend, title, name)                                                            \
    {                                                                                              \
        title, name, begin_case, end_case, &backends[backend]                                      \
    }
#define socket_cases(name) loop_cases(name), case_over(BLOCKING, #name "_blocking", name)
#define loop_cases(name) case_over(EPOLL, #name, name), case_over(URING, #name "_uring", name)
#define epoll_case(name) case_over(EPOLL, #name, name)

/* About what single calls answer, which io_uring does without. */
#define call_cases(name) case_over(EPOLL, #name, name), case_over(BLOCKING, #name "_blocking", name)

/* Where a channel gets its loop. */
static inline void put_on_loop(weir_channel *channel, weir_promise *promise)
{
    weir_group_register(group, channel, promise);
}

static inline weir_executor *executor_of(const weir_channel *channel)
{
    return weir_loop_executor(weir_channel_loop(channel));
}

static inline weir_loop_stats stats_of_loop(const weir_channel *channel)
{
    return loop_stats_of(weir_channel_loop(channel));
}

static inline bool is_idle(const weir_channel *channel)
{
    settle(executor_of(channel));
    uint64_t polls = stats_of_loop(channel).polls;
    usleep(20000); /* only makes it likelier to be seen if it is not */
    return stats_of_loop(channel).polls - polls <= 3;
}

/* A loop that has nothing to do does nothing, as soon as the kernel has moved what it can move by
 * itself: bytes that come to one that does not read are edges, too. */
static inline void assert_idle(const weir_channel *channel)
{
    WAIT_FOR(is_idle(channel));
}

/* Bytes ---------------------------------------------------------------------------------------- */

#define STEP_1(n) (uint8_t)((n)*31)
#define STEP_4(n) STEP_1(n), STEP_1((n) + 1), STEP_1((n) + 2), STEP_1((n) + 3)
#define STEP_16(n) STEP_4(n), STEP_4((n) + 4), STEP_4((n) + 8), STEP_4((n) + 12)
#define STEP_64(n) STEP_16(n), STEP_16((n) + 16), STEP_16((n) + 32), STEP_16((n) + 48)
#define STEP_256(n) STEP_64(n), STEP_64((n) + 64), STEP_64((n) + 128), STEP_64((n) + 192)

/*
 * What is at each place of a stream: at * 31 + (at >> 8) * 7 + (at >> 16), so bytes that are lost,
 * twice there or out of order are seen. Up to `length` of them at once, which becomes how many they
 * are: within 256 they go by steps of 31, only the beginning is another (and 31 * 223 is 1). One by
 * one would be dear under a sanitizer, which looks at every access.
 */
static inline const uint8_t *pattern_run(size_t at, size_t *length)
{
    static const uint8_t steps[512] = { STEP_256(0), STEP_256(256) };
    size_t within = at % 256, left = 256 - within;
    uint8_t first = (uint8_t)(((at >> 8) * 7 + (at >> 16)) * 223);
    *length = *length < left ? *length : left;
    return steps + first + within;
}

static inline void fill_pattern(uint8_t *to, size_t at, size_t length)
{
    for (size_t done = 0, count; done < length; done += count) {
        count = length - done;
        const uint8_t *run = pattern_run(at + done, &count);
        memcpy(to + done, run, count);
    }
}

static inline bool is_pattern(const uint8_t *bytes, size_t at, size_t length)
{
    for (size_t done = 0, count; done < length; done += count) {
        count = length - done;
        const uint8_t *run = pattern_run(at + done, &count);
        if (memcmp(bytes + done, run, count) != 0)
            return false;
    }
    return true;
}

static inline weir_msg *pattern_msg(size_t at, size_t length)
{
    weir_buf *buf = weir_buf_new(length);
    assert_non_null(buf);
    uint8_t *to = weir_buf_write_ptr(buf, length);
    assert_non_null(to);
    fill_pattern(to, at, length);
    assert_int_equal(weir_buf_advance_writer(buf, length), 0);
    return &buf->msg;
}

static inline weir_msg *text_msg(const char *text)
{
    weir_buf *buf = weir_buf_from(text, strlen(text));
    assert_non_null(buf);
    return &buf->msg;
}

/* Promises ------------------------------------------------------------------------------------- */

/* The code of a promise that must get one; gives it back. */
static inline int outcome(weir_promise *promise)
{
    weir_future *future = weir_promise_future(promise);
    assert_int_equal(weir_future_wait(future, WEIR_MS(PATIENCE_MS)), 0);
    int code = weir_future_code(future);
    weir_promise_release(promise);
    return code;
}

static inline weir_promise *promise_of(weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    assert_non_null(promise);
    return promise;
}

static inline int register_it(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    put_on_loop(channel, promise);
    return outcome(promise);
}

static inline int bind_to(weir_channel *channel, const weir_address *local)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_bind(channel, local, promise);
    return outcome(promise);
}

static inline int connect_to(weir_channel *channel, const weir_address *remote)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, remote, NULL, promise);
    return outcome(promise);
}

/* All calls on the channel until now have been performed: this one fails behind them. */
static inline void settle_calls(weir_channel *channel)
{
    weir_address none = { 0 };
    assert_int_equal(bind_to(channel, &none), -EINVAL);
}

static inline int close_it(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_close(channel, promise);
    return outcome(promise);
}

static inline int finish_it(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_finish(channel, promise);
    return outcome(promise);
}

static inline int shutdown_it(weir_channel *channel)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_shutdown(channel, promise);
    return outcome(promise);
}

static inline int write_it(weir_channel *channel, weir_msg *msg)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_write_and_flush(channel, msg, promise);
    return outcome(promise);
}

/* Closes it and gives it back; it is over then. */
static inline void end_channel(weir_channel *channel)
{
    assert_int_equal(close_it(channel), 0);
    WAIT_FOR(weir_channel_get_state(channel) == WEIR_CHANNEL_UNREGISTERED);
    weir_channel_release(channel);
}

static inline void wait_for_close(weir_channel *channel)
{
    assert_int_equal(weir_future_wait(weir_channel_closed(channel), WEIR_MS(PATIENCE_MS)), 0);
    WAIT_FOR(weir_channel_get_state(channel) == WEIR_CHANNEL_UNREGISTERED);
}

static inline void release_when_closed(weir_channel *channel)
{
    wait_for_close(channel);
    weir_channel_release(channel);
}

/* Records -------------------------------------------------------------------------------------- */

/* What a channel's handler saw. */
typedef struct record record;
struct record {
    /* What it shall do. */
    bool is_echo;        /* answers with what it gets */
    bool checks_pattern; /* what comes is the pattern from its beginning */
    void (*then)(record *self, weir_ctx *ctx, const char *event); /* on the loop, after noting */
    void *arg;

    atomic_uint actives, reads, completes, events, errors, inactives, unregistereds, writabilities;
    atomic_int error; /* the last */
    atomic_size_t bytes;
    atomic_bool is_wrong; /* not the pattern */
    size_t largest_batch, batch;
    char text[64]; /* the first bytes */
    char story[2048];
};

static pthread_mutex_t story_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void note(record *self, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&story_lock);
    size_t length = strlen(self->story);
    va_start(args, format);
    vsnprintf(self->story + length, sizeof self->story - length, format, args);
    va_end(args);
    pthread_mutex_unlock(&story_lock);
}

static inline void story_of(record *self, char *to, size_t size)
{
    pthread_mutex_lock(&story_lock);
    snprintf(to, size, "%s", self->story);
    pthread_mutex_unlock(&story_lock);
}

static inline bool story_has(record *self, const char *part)
{
    char story[sizeof self->story];
    story_of(self, story, sizeof story);
    return strstr(story, part) != NULL;
}

#define assert_story(record, expected)                                                             \
    do {                                                                                           \
        char seen_[sizeof(record)->story];                                                         \
        story_of(record, seen_, sizeof seen_);                                                     \
        assert_string_equal(seen_, expected);                                                      \
    } while (0)

static inline void saw(weir_ctx *ctx, const char *event, atomic_uint *counter)
{
    record *self = weir_ctx_arg(ctx);
    note(self, "%s ", event);
    if (self->then != NULL)
        self->then(self, ctx, event);
    if (counter != NULL)
        atomic_fetch_add(counter, 1); /* last: what a test waits for */
}

static inline void record_on_registered(weir_ctx *ctx)
{
    saw(ctx, "registered", NULL);
    weir_ctx_fire_registered(ctx);
}

static inline void record_on_active(weir_ctx *ctx)
{
    saw(ctx, "active", &((record *)weir_ctx_arg(ctx))->actives);
    weir_ctx_fire_active(ctx);
}

static inline void look_at(record *self, const weir_buf *buf)
{
    size_t length = weir_buf_readable(buf), at = atomic_load(&self->bytes);
    const uint8_t *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
    if (bytes == NULL || (self->checks_pattern && !is_pattern(bytes, at, length)))
        atomic_store(&self->is_wrong, true);
    for (size_t i = 0; bytes != NULL && i < length && at + i < sizeof self->text - 1; i++)
        self->text[at + i] = (char)bytes[i];
}

static inline void record_on_read(weir_ctx *ctx, weir_msg *msg)
{
    record *self = weir_ctx_arg(ctx);
    size_t length = weir_msg_size(msg);
    if (msg->type == &weir_buf_type)
        look_at(self, (const weir_buf *)msg);
    if (++self->batch > self->largest_batch)
        self->largest_batch = self->batch;
    if (self->is_echo)
        weir_ctx_write(ctx, msg, NULL);
    else
        weir_msg_release(msg);
    saw(ctx, "read", &self->reads);
    atomic_fetch_add(&self->bytes, length);
}

static inline void record_on_read_complete(weir_ctx *ctx)
{
    record *self = weir_ctx_arg(ctx);
    self->batch = 0;
    if (self->is_echo)
        weir_ctx_flush(ctx);
    saw(ctx, "complete", &self->completes);
    weir_ctx_fire_read_complete(ctx);
}

static inline void record_on_event(weir_ctx *ctx, weir_msg *event)
{
    record *self = weir_ctx_arg(ctx);
    saw(ctx, event == &weir_event_input_closed ? "input_closed" : "event", &self->events);
    weir_msg_release(event);
}

static inline void record_on_writability(weir_ctx *ctx)
{
    bool is_writable = weir_channel_is_writable(weir_ctx_channel(ctx));
    saw(ctx, is_writable ? "writable" : "unwritable",
        &((record *)weir_ctx_arg(ctx))->writabilities);
}

static inline void record_on_inactive(weir_ctx *ctx)
{
    saw(ctx, "inactive", &((record *)weir_ctx_arg(ctx))->inactives);
    weir_ctx_fire_inactive(ctx);
}

static inline void record_on_unregistered(weir_ctx *ctx)
{
    saw(ctx, "unregistered", &((record *)weir_ctx_arg(ctx))->unregistereds);
    weir_ctx_fire_unregistered(ctx);
}

static inline void record_on_error(weir_ctx *ctx, const weir_error *error)
{
    record *self = weir_ctx_arg(ctx);
    char event[64];
    snprintf(event, sizeof event, "error:%s", weir_error_name(error->code));
    atomic_store(&self->error, error->code);
    saw(ctx, event, &self->errors);
}

static const weir_handler_type recorder = {
    .name = "recorder",
    .on_registered = record_on_registered,
    .on_active = record_on_active,
    .on_read = record_on_read,
    .on_read_complete = record_on_read_complete,
    .on_event = record_on_event,
    .on_writability = record_on_writability,
    .on_inactive = record_on_inactive,
    .on_unregistered = record_on_unregistered,
    .on_error = record_on_error,
};

static inline void add_record(weir_channel *channel, record *self)
{
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(channel), "recorder", &recorder, self), 0);
}

/* So many events of each kind, and no error. */
static inline void expect_end_events(const record *self, unsigned inactives, unsigned unregistereds)
{
    assert_int_equal(atomic_load(&self->inactives), inactives);
    assert_int_equal(atomic_load(&self->unregistereds), unregistereds);
    if (atomic_load(&self->errors) > 0)
        print_error("%s\n", self->story);
    assert_int_equal(atomic_load(&self->errors), 0);
}

/* Addresses ------------------------------------------------------------------------------------ */

static inline weir_address address_of(const char *text)
{
    weir_address address;
    weir_error error;
    if (weir_address_parse(&address, text, &error) < 0)
        fail_msg("%s", error.message);
    return address;
}

static inline weir_address any_port(void)
{
    return address_of("127.0.0.1:0");
}

/* A path that nobody uses yet. */
static inline weir_address new_path(void)
{
    static int count;
    char text[64];
    snprintf(text, sizeof text, "unix:/tmp/weir-test-%d-%d", (int)getpid(), ++count);
    return address_of(text);
}

static inline const char *path_of(const weir_address *address)
{
    return ((const struct sockaddr_un *)weir_address_sockaddr(address, NULL))->sun_path;
}

static inline weir_address local_of(const weir_channel *channel)
{
    weir_address address;
    assert_int_equal(weir_channel_local_address(channel, &address), 0);
    return address;
}

static inline weir_address name_of_fd(int fd)
{
    struct sockaddr_storage storage;
    socklen_t length = sizeof storage;
    weir_address address;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&storage, &length), 0);
    assert_int_equal(weir_address_from_sockaddr(&address, (struct sockaddr *)&storage, length), 0);
    return address;
}

/* Peers ---------------------------------------------------------------------------------------- */

/* Plain sockets of the test's own thread, which block, but not for ever. */
static inline void peer_wait(int fd, short events)
{
    struct pollfd entry = { .fd = fd, .events = events };
    assert_int_equal(poll(&entry, 1, PATIENCE_MS), 1);
}

static inline int peer_socket(const weir_address *address)
{
    int family = weir_address_sockaddr(address, NULL)->sa_family;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

static inline int peer_connect(const weir_address *address)
{
    size_t length;
    const struct sockaddr *to = weir_address_sockaddr(address, &length);
    int fd = peer_socket(address);
    assert_int_equal(connect(fd, to, (socklen_t)length), 0);
    return fd;
}

/* Refuses connections for as long as it is open, and no other program gets the port. */
static inline int peer_bind(weir_address *address)
{
    size_t length;
    const struct sockaddr *name = weir_address_sockaddr(address, &length);
    int fd = peer_socket(address);
    assert_int_equal(bind(fd, name, (socklen_t)length), 0);
    *address = name_of_fd(fd);
    return fd;
}

static inline int peer_listen(weir_address *address, int backlog)
{
    int fd = peer_bind(address);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static inline int peer_accept(int listener)
{
    peer_wait(listener, POLLIN);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static inline void peer_send(int fd, const void *bytes, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        peer_wait(fd, POLLOUT);
        ssize_t code = send(fd, (const char *)bytes + sent, length - sent, MSG_NOSIGNAL);
        assert_true(code > 0);
        sent += (size_t)code;
    }
}

static inline void peer_send_pattern(int fd, size_t at, size_t length)
{
    uint8_t bytes[4096];
    while (length > 0) {
        size_t part = length < sizeof bytes ? length : sizeof bytes;
        fill_pattern(bytes, at, part);
        peer_send(fd, bytes, part);
        at += part;
        length -= part;
    }
}

static inline void peer_expect_pattern(int fd, size_t at, size_t length)
{
    uint8_t bytes[65536];
    while (length > 0) {
        peer_wait(fd, POLLIN);
        ssize_t code = recv(fd, bytes, length < sizeof bytes ? length : sizeof bytes, 0);
        if (code <= 0)
            fail_msg("recv says %d, errno %d, with %zu bytes to come", (int)code, errno, length);
        assert_true(is_pattern(bytes, at, (size_t)code));
        at += (size_t)code;
        length -= (size_t)code;
    }
}

static inline void peer_expect_text(int fd, const char *text)
{
    char bytes[256];
    size_t length = strlen(text), got = 0;
    assert_true(length < sizeof bytes);
    while (got < length) {
        peer_wait(fd, POLLIN);
        ssize_t code = recv(fd, bytes + got, length - got, 0);
        assert_true(code > 0);
        got += (size_t)code;
    }
    assert_memory_equal(bytes, text, length);
}

static inline void peer_expect_eof(int fd)
{
    char byte;
    peer_wait(fd, POLLIN);
    ssize_t code = recv(fd, &byte, 1, 0);
    if (code != 0)
        fail_msg("recv says %d, errno %d, in place of the end", (int)code, errno);
}

/* Receives up to EOF or an error: 0 or a negative code, after `length` bytes. */
static inline int peer_receive_all(int fd, size_t *length)
{
    char bytes[65536];
    ssize_t code;
    *length = 0;
    do {
        peer_wait(fd, POLLIN);
        code = recv(fd, bytes, sizeof bytes, 0);
        *length += code > 0 ? (size_t)code : 0;
    } while (code > 0);
    return code == 0 ? 0 : -errno;
}

/* Returns the number of bytes before EOF. */
static inline size_t peer_receive_to_eof(int fd)
{
    size_t length;
    assert_int_equal(peer_receive_all(fd, &length), 0);
    return length;
}

/* Bytes may precede the reset: it must not look like EOF after a complete stream. */
static inline void peer_expect_reset(int fd)
{
    size_t length;
    int code = peer_receive_all(fd, &length);
    if (code == 0)
        fail_msg("EOF after %zu bytes in place of a reset", length);
    assert_int_equal(code, -ECONNRESET);
}

/* EOF or a reset, after any bytes. */
static inline void peer_expect_end(int fd)
{
    size_t length;
    int code = peer_receive_all(fd, &length);
    assert_true(code == 0 || code == -ECONNRESET);
}

/* The connection is over, in good order or not. */
static inline void peer_expect_over(int fd)
{
    char byte;
    peer_wait(fd, POLLIN);
    ssize_t code = recv(fd, &byte, 1, 0);
    assert_true(code == 0 || (code < 0 && errno == ECONNRESET));
}

/* Takes what is there: how many bytes. */
static inline size_t peer_drain(int fd)
{
    uint8_t bytes[65536];
    size_t total = 0;
    ssize_t code;
    while ((code = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        total += (size_t)code;
    return total;
}

static inline int number_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &length), 0);
    return value;
}

/* Closes with a reset. */
static inline void peer_reset(int fd)
{
    struct linger linger = { .l_onoff = 1 };
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    assert_int_equal(close(fd), 0);
}

/* Channels ------------------------------------------------------------------------------------- */

static inline weir_channel *new_channel(weir_socket_kind kind, const weir_address *address)
{
    weir_channel *channel = NULL;
    weir_error error;
    if (weir_channel_new(&channel, kind, address, &error) < 0)
        fail_msg("%s", error.message);
    return channel;
}

static inline weir_channel *adopt(weir_socket_kind kind, int fd)
{
    weir_channel *channel = NULL;
    weir_error error;
    if (weir_channel_from_descriptor(&channel, kind, fd, &error) < 0)
        fail_msg("%s", error.message);
    return channel;
}

static inline void set_option(weir_channel *channel, weir_option option, int64_t value)
{
    weir_error error;
    if (weir_channel_set_option(channel, option, value, &error) < 0)
        fail_msg("%s", error.message);
}

/* The kinds of streams. */
enum { TCP, TCP6, UNIX, ABSTRACT, STREAMS };

static inline weir_address any_address(int stream)
{
    static int count;
    char text[64];
    snprintf(text, sizeof text, "unix:@weir-test-%d-%d", (int)getpid(), ++count);
    switch (stream) {
    case TCP:
        return any_port();
    case TCP6:
        return address_of("[::1]:0");
    case UNIX:
        return new_path();
    default:
        return address_of(text);
    }
}

static inline void forget_path(const weir_address *address)
{
    if (weir_address_kind_of(address) == WEIR_ADDRESS_UNIX && path_of(address)[0] != '\0')
        unlink(path_of(address));
}

/* A connection of two plain sockets. */
static inline void peer_pair(int stream, int fds[2])
{
    weir_address address = any_address(stream);
    int listener = peer_listen(&address, 1);
    fds[1] = peer_connect(&address);
    fds[0] = peer_accept(listener);
    close(listener);
    forget_path(&address);
}

/* A connection: one end is a channel, not registered yet, the other one a plain socket. */
static inline weir_channel *half_pair(int stream, record *self, int *peer)
{
    int fds[2];
    peer_pair(stream, fds);
    weir_channel *channel = adopt(WEIR_SOCKET_STREAM, fds[0]);
    if (self != NULL)
        add_record(channel, self);
    *peer = fds[1];
    return channel;
}

/* The same, active. */
static inline weir_channel *pair_with(int stream, record *self, int *peer)
{
    weir_channel *channel = half_pair(stream, self, peer);
    assert_int_equal(register_it(channel), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    return channel;
}

/* Listeners that take their children in -------------------------------------------------------- */

#define MOST_CHILDREN 6000

typedef struct server {
    bool is_echo, checks_pattern;
    bool drops;   /* the message, with the child in it */
    bool lets_be; /* children are kept, but on no loop */
    void (*then)(record *child, weir_ctx *ctx, const char *event);

    weir_channel *listener;
    weir_address address;
    record record;
    weir_channel *children[MOST_CHILDREN];
    record *records; /* of the children */
    atomic_uint count, dropped;
    atomic_int failure; /* of what `then` expects */
} server;

static inline void acceptor_on_read(weir_ctx *ctx, weir_msg *msg)
{
    server *self = weir_ctx_arg(ctx);
    unsigned at = atomic_load(&self->count);
    note(&self->record, "child ");
    weir_channel *child = self->drops || at == MOST_CHILDREN ? NULL : weir_accepted_take(msg);
    weir_msg_release(msg);
    if (child == NULL) {
        atomic_fetch_add(&self->dropped, 1);
        return;
    }
    record *seen = &self->records[at];
    seen->is_echo = self->is_echo;
    seen->checks_pattern = self->checks_pattern;
    seen->then = self->then;
    seen->arg = self;
    self->children[at] = child;
    int code = weir_pipeline_add_last(weir_channel_pipeline(child), "recorder", &recorder, seen);
    if (code < 0)
        weir_channel_close(child, NULL);
    else if (!self->lets_be)
        put_on_loop(child, NULL);
    atomic_fetch_add(&self->count, 1);
}

static const weir_handler_type acceptor = { .name = "acceptor", .on_read = acceptor_on_read };

static inline void new_server_at(server *self, const weir_address *address)
{
    self->address = *address;
    self->records = calloc(MOST_CHILDREN, sizeof *self->records);
    assert_non_null(self->records);
    self->listener = new_channel(WEIR_SOCKET_LISTENER, &self->address);
    weir_pipeline *pipeline = weir_channel_pipeline(self->listener);
    assert_int_equal(weir_pipeline_add_last(pipeline, "acceptor", &acceptor, self), 0);
    add_record(self->listener, &self->record);
}

static inline void new_server(server *self, int stream)
{
    weir_address address = any_address(stream);
    new_server_at(self, &address);
}

static inline void start_server(server *self)
{
    assert_int_equal(register_it(self->listener), 0);
    assert_int_equal(bind_to(self->listener, &self->address), 0);
    self->address = local_of(self->listener);
}

static inline server *open_server(int stream)
{
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    new_server(self, stream);
    start_server(self);
    return self;
}

static inline weir_listener_stats stats_of_listener(const server *self)
{
    weir_listener_stats stats;
    assert_int_equal(weir_channel_listener_stats(self->listener, &stats), 0);
    return stats;
}

static inline void end_server(server *self)
{
    end_channel(self->listener);
    unsigned count = atomic_load(&self->count);
    for (unsigned i = 0; i < count; i++)
        weir_channel_close(self->children[i], NULL);
    for (unsigned i = 0; i < count; i++)
        release_when_closed(self->children[i]);
    free(self->records);
    free(self);
}

static inline weir_channel *open_client(const weir_address *remote, record *self)
{
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, remote);
    if (self != NULL)
        add_record(channel, self);
    assert_int_equal(register_it(channel), 0);
    assert_int_equal(connect_to(channel, remote), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    return channel;
}

#endif
