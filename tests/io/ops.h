/* SPDX-License-Identifier: MIT */
/* What the tests of the backends share: a backend on the test's own thread over a kernel that can
 * be told to answer otherwise, and owners of files whose operations write down what they are told.
 */
#ifndef WEIR_TESTS_IO_OPS_H
#define WEIR_TESTS_IO_OPS_H

#include "base/sockets.h"

#include "io/io.h"
#ifdef WEIR_HAS_URING
#include "io/uring.h"
#endif

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND_NS 1000000000

/* The kernel's table, and what it shall answer instead of the kernel. */
typedef struct odd_kernel {
    weir_sys calls; /* first: this is what the backend is given */
    int receives, sends, accepts;
    int adds, removals, changes; /* epoll_ctl */
    int64_t timeout_ns;          /* of the last wait */
    unsigned polled;             /* how many descriptors the last poll was given */
    short wished;                /* and what for, of the second */

    int interruptions;  /* of the next receives, sends, accepts */
    int receive_error;  /* of the next one, once */
    int accept_error;   /* of the next one, once */
    int connect_error;  /* of the next one, once, although it began */
    size_t most_sent;   /* by one call; 0: as many as it takes */
    int refused_fd;     /* epoll does not want it; -1: none */
    int refusal;        /* what it says then */
    uint32_t event_and; /* what is left of each event's bits; 0 bits too */
} odd_kernel;

static odd_kernel kernel;

static inline bool take_interruption(void)
{
    return kernel.interruptions > 0 && kernel.interruptions-- > 0;
}

static inline int take_error(int *error)
{
    int code = *error;
    *error = 0;
    return code;
}

static inline int odd_recv(weir_sys *self, int fd, void *to, size_t length, int flags)
{
    kernel.receives++;
    if (take_interruption())
        return -EINTR;
    int error = take_error(&kernel.receive_error);
    return error < 0 ? error : sys->recv(self, fd, to, length, flags);
}

static inline int odd_send(weir_sys *self, int fd, const void *from, size_t length, int flags)
{
    kernel.sends++;
    if (take_interruption())
        return -EINTR;
    if (kernel.most_sent > 0 && length > kernel.most_sent)
        length = kernel.most_sent;
    return sys->send(self, fd, from, length, flags);
}

static inline int odd_sendmsg(weir_sys *self, int fd, const struct msghdr *message, int flags)
{
    kernel.sends++;
    return take_interruption() ? -EINTR : sys->sendmsg(self, fd, message, flags);
}

static inline int odd_accept(weir_sys *self, int fd, struct sockaddr *address, socklen_t *length)
{
    kernel.accepts++;
    if (take_interruption())
        return -EINTR;
    int error = take_error(&kernel.accept_error);
    return error < 0 ? error : sys->accept(self, fd, address, length);
}

static inline int odd_connect(weir_sys *self, int fd, const struct sockaddr *address,
                              socklen_t length)
{
    int code = sys->connect(self, fd, address, length);
    int error = take_error(&kernel.connect_error);
    return error < 0 ? error : code;
}

static inline int odd_epoll_ctl(weir_sys *self, int epoll, int operation, int fd,
                                struct epoll_event *event)
{
    int *count = operation == EPOLL_CTL_ADD   ? &kernel.adds
                 : operation == EPOLL_CTL_DEL ? &kernel.removals
                                              : &kernel.changes;
    ++*count;
    if (operation == EPOLL_CTL_ADD && fd == kernel.refused_fd)
        return kernel.refusal;
    return sys->epoll_ctl(self, epoll, operation, fd, event);
}

static inline int odd_epoll_wait(weir_sys *self, int epoll, struct epoll_event *events, int max,
                                 int64_t timeout_ns)
{
    kernel.timeout_ns = timeout_ns;
    int count = sys->epoll_wait(self, epoll, events, max, timeout_ns);
    for (int i = 0; i < count; i++)
        events[i].events &= kernel.event_and;
    return count;
}

static inline int odd_poll(weir_sys *self, struct pollfd *fds, unsigned count, int64_t timeout_ns)
{
    kernel.timeout_ns = timeout_ns;
    kernel.polled = count;
    kernel.wished = count > 1 ? fds[1].events : 0;
    int found = sys->poll(self, fds, count, timeout_ns);
    for (unsigned i = 0; i < count; i++)
        fds[i].revents &= (short)kernel.event_and;
    return found;
}

static inline void reset_kernel(void)
{
    kernel = (odd_kernel){ .calls = *sys, .refused_fd = -1, .event_and = UINT32_MAX };
    kernel.calls.recv = odd_recv;
    kernel.calls.send = odd_send;
    kernel.calls.sendmsg = odd_sendmsg;
    kernel.calls.accept = odd_accept;
    kernel.calls.connect = odd_connect;
    kernel.calls.epoll_ctl = odd_epoll_ctl;
    kernel.calls.epoll_wait = odd_epoll_wait;
    kernel.calls.poll = odd_poll;
}

/* The backend -------------------------------------------------------------------------------- */

typedef struct backend {
    const char *name;
    int (*open)(weir_sys *sys, weir_io_counters *counters, weir_io **io);
    const char *wait; /* what it waits with, as the fault hook knows it */
} backend;

enum { EPOLL, BLOCKING, URING, URING_POLL, BACKENDS };

#ifdef WEIR_HAS_URING
static inline int open_uring(weir_sys *with, weir_io_counters *of, weir_io **out)
{
    weir__uring_hide(0);
    return weir__uring_open(with, of, NULL, out);
}

/* Without what the kernel performs itself: it polls, as it would an old kernel. */
static inline int open_uring_poll(weir_sys *with, weir_io_counters *of, weir_io **out)
{
    weir__uring_hide(WEIR_URING_ACCEPT | WEIR_URING_RECEIVE | WEIR_URING_RECVMSG | WEIR_URING_SEND |
                     WEIR_URING_CONNECT);
    return weir__uring_open(with, of, NULL, out);
}
#else
#define open_uring weir__epoll_open
#define open_uring_poll weir__epoll_open
#endif

static backend backends[] = {
    [EPOLL] = { "epoll", weir__epoll_open, "epoll_wait" },
    [BLOCKING] = { "blocking", weir__blocking_open, "poll" },
    [URING] = { "uring", open_uring, "io_uring_enter" },
    [URING_POLL] = { "uring_poll", open_uring_poll, "io_uring_enter" },
};

static const backend *current;

static inline bool is_epoll(void)
{
    return current == &backends[EPOLL];
}

static weir_io *io;
static weir_io_counters counters;

/* What was told, in order: see note() below. */
static char story[16384], expected_story[16384];
static size_t story_length;
static int in_submit, in_complete;

static inline int open_backend(void **state)
{
    current = *state;
    if (current >= &backends[URING] && !harness_has_uring())
        current = &backends[EPOLL];
    use_linux(state);
    reset_kernel();
    memset(&counters, 0, sizeof counters);
    in_submit = in_complete = 0;
    story_length = 0;
    story[0] = expected_story[0] = '\0';
    return current->open(&kernel.calls, &counters, &io);
}

static inline int close_backend(void **state)
{
    io->type->close(io);
    io->type->destroy(io);
    return harness_assert_nothing_left(state);
}

/* A case with an open backend. */
#define io_case_over(backend, title, name)                                                         \
    {                                                                                              \
        title, name, open_backend, close_backend, &backends[backend]                               \
    }

/* Over all of them; over those that try calls, when the case tells turn by turn what comes of that;
 * and over those that make no others, when it looks at the calls. */
#define call_cases(name)                                                                           \
    io_case_over(EPOLL, #name, name), io_case_over(BLOCKING, #name "_blocking", name)
#define try_cases(name) call_cases(name), io_case_over(URING_POLL, #name "_uring_poll", name)
#define io_cases(name) try_cases(name), io_case_over(URING, #name "_uring", name)

/* The same for cases with several files, which the blocking backend does not take. */
#define epoll_case(name) io_case_over(EPOLL, #name, name)
#define try_loop_cases(name) epoll_case(name), io_case_over(URING_POLL, #name "_uring_poll", name)
#define loop_cases(name) try_loop_cases(name), io_case_over(URING, #name "_uring", name)
#define blocking_case(name) io_case_over(BLOCKING, #name, name)

/* The end of a ring interrupts the thread that it belonged to, a little later. */
static inline int poll_for(weir_io *of, int64_t timeout_ns)
{
    int code;
    do
        code = of->type->poll(of, timeout_ns);
    while (code == -EINTR);
    return code;
}

/* One turn: how many results were told. */
static inline int turn_for(weir_io *of, int64_t timeout_ns)
{
    assert_true(poll_for(of, timeout_ns) >= 0);
    in_complete++;
    unsigned count = of->type->complete(of);
    in_complete--;
    return (int)count;
}

static inline int turn(void)
{
    return turn_for(io, 0);
}

static inline bool has_results(void)
{
    return io->type->has_results(io);
}

static inline uint64_t value_of(_Atomic(uint64_t) *counter)
{
    return atomic_load(counter);
}

/* Neither does the backend want to go on, nor has the kernel anything to say. */
static inline void assert_quiet(void)
{
    bool may_hear_of_the_past = current >= &backends[URING]; /* that a poll was cancelled */
    assert_true(!has_results() || may_hear_of_the_past);
    int count = poll_for(io, 0);
    assert_true(count == 0 || (count > 0 && may_hear_of_the_past));
    assert_int_equal(io->type->complete(io), 0);
    assert_false(has_results());
}

/* Turns until a condition holds, for what the kernel does in its own time. */
#define TURN_UNTIL(condition)                                                                      \
    do {                                                                                           \
        for (int turns_ = 0; !(condition); turns_++) {                                             \
            assert_true(turns_ < 1000);                                                            \
            turn_for(io, SECOND_NS / 100);                                                         \
        }                                                                                          \
    } while (0)

/* Owners ------------------------------------------------------------------------------------- */

typedef struct owner owner;
typedef struct probe probe;

/* An operation that writes down what it is told, then does what the test wants. */
struct probe {
    weir_io_op op;
    owner *of;
    bool is_pending;
    int results, batches, finals; /* on_done, on_batch_end, final on_done */
    int last;                     /* code */
    void (*then)(probe *self, const weir_io_result *result);
    void (*at_batch_end)(probe *self);
};

/* The owner of a file. Zero it and give it a name, then own() it. */
struct owner {
    weir_io_file file;
    const char *name; /* in the story */
    weir_io *at;
    probe in, out, level, hangup;
    weir_address address; /* to connect to */
    bool has_to_send;     /* what gather hands out, once: */
    const char *to_send;  /* bytes, piece by piece */
    size_t to_send_length, piece_length;
    weir_io_send other; /* or this, if it is not BYTES */
    bool (*next_datagram)(unsigned n, weir_io_datagram *datagram, struct iovec *pieces, int max);
    void (*at_send_cancelled)(owner *self);
    int gathers, sent_now; /* what was sent inside of weir__io_send */
    size_t received_length;
    unsigned char received[1 << 16]; /* the first of it */
    int accepted[64];
};

/*
 * Appends to the story: owner, operation, code, and a full stop when it was final. A bar is the end
 * of a batch. Operations are < receive, + accept, > send, ^ connect, ? poll, ~ hang-up. "a<5 a|
 * a<0." is five bytes, the end of their batch, the end of the stream.
 */
static inline void note(const probe *self, const char *what)
{
    int length = snprintf(story + story_length, sizeof story - story_length, "%s%s%s",
                          story_length > 0 ? " " : "", self->of->name, what);
    story_length += (size_t)length;
    assert_true(story_length < sizeof story);
}

static inline void assert_story(const char *expected)
{
    assert_string_equal(story, expected);
    story_length = 0;
    story[0] = '\0';
}

/* For long stories: writes down a part of what is expected, so many times, and compares. */
static inline void expect(int times, const char *part)
{
    for (int i = 0; i < times; i++) {
        size_t length = strlen(expected_story);
        snprintf(expected_story + length, sizeof expected_story - length, "%s%s",
                 length > 0 ? " " : "", part);
    }
}

static inline void assert_expected(void)
{
    assert_story(expected_story);
    expected_story[0] = '\0';
}

static inline void note_result(const probe *self, const weir_io_result *result)
{
    static const char signs[] = "+<^?~<<";
    char what[64];
    char sign = signs[self->op.kind];
    const char *stop = result->is_armed ? "" : ".";
    if (result->code < 0)
        snprintf(what, sizeof what, "%c%s%s", sign, weir_error_name(result->code), stop);
    else if (self->op.kind == WEIR_IO_ACCEPT)
        snprintf(what, sizeof what, "%c%s", sign, stop);
    else
        snprintf(what, sizeof what, "%c%d%s", sign, result->code, stop);
    note(self, what);
}

static inline void keep(owner *self, weir_buf *buf)
{
    size_t length = weir_buf_readable(buf);
    size_t room = sizeof self->received - (self->received_length < sizeof self->received
                                               ? self->received_length
                                               : sizeof self->received);
    size_t copied = length < room ? length : room;
    if (copied > 0)
        assert_int_equal(weir_buf_read_bytes(buf, self->received + self->received_length, copied),
                         0);
    self->received_length += length;
    weir_buf_release(buf);
}

static inline void on_done(weir_io_op *op, const weir_io_result *result)
{
    probe *self = WEIR_CONTAINER(op, probe, op);
    assert_int_equal(in_submit, 0);   /* rule 1 */
    assert_int_equal(in_complete, 1); /* rule 2 */
    assert_true(self->is_pending);    /* one final result, and nothing after it */
    assert_int_equal(op->is_in_flight, result->is_armed);
    self->results++;
    self->last = result->code;
    if (!result->is_armed) {
        self->is_pending = false;
        self->finals++;
    }
    if (result->buf != NULL) {
        assert_int_equal(weir_buf_readable(result->buf), result->code);
        keep(self->of, result->buf);
    }
    if (op->kind == WEIR_IO_ACCEPT && result->code >= 0)
        self->of->accepted[(self->results - 1) % 64] = result->code;
    note_result(self, result);
    if (self->then != NULL)
        self->then(self, result);
}

static inline void on_batch_end(weir_io_op *op)
{
    probe *self = WEIR_CONTAINER(op, probe, op);
    assert_int_equal(in_submit, 0);
    assert_int_equal(in_complete, 1);
    self->batches++;
    note(self, "|");
    if (self->at_batch_end != NULL)
        self->at_batch_end(self);
}

static inline int gather(weir_io_file *file, weir_io_send *send)
{
    owner *self = WEIR_CONTAINER(file, owner, file);
    size_t step = self->piece_length > 0 ? self->piece_length : self->to_send_length;
    int count = 0;
    if (!self->has_to_send)
        return 0;
    self->gathers++;
    if (self->other.kind != WEIR_IO_SEND_BYTES) {
        send->kind = self->other.kind;
        send->fd = self->other.fd;
        send->length = self->other.length;
        return 1;
    }
    for (size_t at = 0; at < self->to_send_length && count < send->max_pieces; at += step) {
        size_t left = self->to_send_length - at;
        send->pieces[count++] = (struct iovec){ .iov_base = (char *)(uintptr_t)(self->to_send + at),
                                                .iov_len = left < step ? left : step };
    }
    return count;
}

static inline bool next_datagram_of(weir_io_file *file, unsigned n, weir_io_datagram *datagram,
                                    struct iovec *pieces, int max)
{
    return WEIR_CONTAINER(file, owner, file)->next_datagram(n, datagram, pieces, max);
}

/* The end of a send whose result was not there when weir__io_send returned. */
static inline void note_sent(probe *self, int code)
{
    char what[64];
    assert_int_equal(in_complete, 1);
    assert_true(self->is_pending);
    self->is_pending = false;
    self->results++;
    self->finals++;
    self->last = code;
    if (code < 0)
        snprintf(what, sizeof what, ">%s.", weir_error_name(code));
    else
        snprintf(what, sizeof what, ">%d.", code);
    note(self, what);
}

static inline void on_sent(weir_io_file *file, int code)
{
    owner *self = WEIR_CONTAINER(file, owner, file);
    assert_true(weir__io_is_sending(file));
    self->has_to_send = false;
    if (in_submit > 0) {
        self->sent_now = code;
        return;
    }
    note_sent(&self->out, code);
    if (self->out.then != NULL)
        self->out.then(&self->out, &(weir_io_result){ .code = code });
}

static inline void on_send_cancelled(weir_io_file *file)
{
    owner *self = WEIR_CONTAINER(file, owner, file);
    assert_int_equal(in_submit, 0);
    assert_int_equal(in_complete, 1);
    assert_false(weir__io_is_sending(file));
    if (self->out.is_pending)
        note_sent(&self->out, -ECANCELED);
    if (self->at_send_cancelled != NULL)
        self->at_send_cancelled(self);
}

static const weir_io_sender test_sender = {
    .gather = gather,
    .next_datagram = next_datagram_of,
    .on_sent = on_sent,
    .on_send_cancelled = on_send_cancelled,
};

static inline void own_at(weir_io *at, owner *self, int fd)
{
    self->at = at;
    self->in.of = self->out.of = self->level.of = self->hangup.of = self;
    assert_int_equal(at->type->attach(at, &self->file, fd), 0);
    self->file.sender = &test_sender;
}

static inline void own(owner *self, int fd)
{
    own_at(io, self, fd);
}

static inline void disown(owner *self)
{
    self->at->type->close_file(self->at, &self->file);
}

static inline int submit(probe *self, weir_io_op_kind kind)
{
    self->op.kind = (uint8_t)kind;
    self->op.file = &self->of->file;
    self->op.on_done = on_done;
    self->op.on_batch_end = on_batch_end;
    assert_false(self->is_pending);
    in_submit++;
    int code = weir__io_submit(self->of->at, &self->op);
    in_submit--;
    self->is_pending = code == WEIR_IO_PENDING;
    assert_int_equal(self->op.is_in_flight, self->is_pending);
    return code;
}

static inline void cancel(probe *self)
{
    weir_allocator_stats before, after;
    weir_allocator_get_stats(&before);
    in_submit++;
    if (self->is_pending && !self->op.is_in_flight)
        weir__io_cancel_send(self->of->at, &self->of->file);
    else
        weir__io_cancel(self->of->at, &self->op);
    in_submit--;
    weir_allocator_get_stats(&after);
    assert_int_equal(before.allocations, after.allocations); /* rule 3 */
}

/* Auto-read on, and off. */
static inline void receive_always(owner *self)
{
    self->in.op.is_multishot = true;
    assert_int_equal(submit(&self->in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
}

static inline void receive_once(owner *self)
{
    self->in.op.is_multishot = false;
    assert_int_equal(submit(&self->in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
}

/* For `then`: reads on, one receive after the other, until the stream has ended. */
static inline void receive_again(probe *self, const weir_io_result *result)
{
    if (result->code > 0)
        receive_once(self->of);
}

static inline void accept_always(owner *self)
{
    self->in.op.is_multishot = true;
    assert_int_equal(submit(&self->in, WEIR_IO_ACCEPT), WEIR_IO_PENDING);
}

/* Sends what gather hands out: the result, or PENDING. */
static inline int send_now(owner *self)
{
    assert_false(self->out.is_pending);
    self->has_to_send = true;
    in_submit++;
    weir__io_send(self->at, &self->file);
    in_submit--;
    self->out.is_pending = self->has_to_send;
    return self->has_to_send ? WEIR_IO_PENDING : self->sent_now;
}

static inline int send_bytes(owner *self, const void *bytes, size_t length)
{
    self->to_send = bytes;
    self->to_send_length = length;
    self->other.kind = WEIR_IO_SEND_BYTES;
    return send_now(self);
}

static inline int connect_to(owner *self, struct sockaddr_in address)
{
    weir_address_from_sockaddr(&self->address, (struct sockaddr *)&address, sizeof address);
    self->out.op.remote = &self->address;
    return submit(&self->out, WEIR_IO_CONNECT);
}

static inline void wait_for_hangup(owner *self)
{
    assert_int_equal(submit(&self->hangup, WEIR_IO_HANGUP), WEIR_IO_PENDING);
}

static inline void watch_level(owner *self, unsigned events)
{
    self->level.op.events = events;
    assert_int_equal(submit(&self->level, WEIR_IO_POLL), WEIR_IO_PENDING);
}

/* As rule 8 has it: cancel, wait for the finals, close. Leaves the story empty. */
static inline void close_owner(owner *self)
{
    probe *all[] = { &self->in, &self->out, &self->level, &self->hangup };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        all[i]->then = NULL;
        all[i]->at_batch_end = NULL;
        if (all[i]->is_pending)
            cancel(all[i]);
    }
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        for (int turns = 0; all[i]->is_pending && turns < 10; turns++)
            turn_for(self->at, 0);
        assert_false(all[i]->is_pending);
    }
    disown(self);
    story_length = 0;
    story[0] = '\0';
}

/* Peers -------------------------------------------------------------------------------------- */

/* A new pair, whose first end gets the descriptor and the slot of a file that was closed. The peer
 * closes at once, so that EOF is all that there is to receive. */
static inline void own_in_place_of(owner *self, int fd, uint32_t slot)
{
    int fds[2];
    make_pair(fds);
    if (fds[0] != fd) {
        assert_int_equal(dup2(fds[0], fd), fd);
        assert_int_equal(close(fds[0]), 0);
    }
    own(self, fd);
    assert_int_equal(self->file.slot, slot);
    receive_always(self);
    assert_int_equal(close(fds[1]), 0);
}

/* A Unix pair: the first end belongs to the owner, the second is returned. */
static inline int own_half_of_pair(owner *self)
{
    int fds[2];
    make_pair(fds);
    own(self, fds[0]);
    return fds[1];
}

/* A TCP connection: the server's end belongs to the owner, the client's is returned. */
static inline int own_server_end(owner *self)
{
    connection made = connect_over_loopback();
    assert_int_equal(close(made.listener), 0);
    own(self, made.server);
    return made.client;
}

/* Either, for cases that hold for both. */
static inline int own_half(owner *self, bool is_tcp)
{
    return is_tcp ? own_server_end(self) : own_half_of_pair(self);
}

static inline void write_all(int fd, const void *bytes, size_t length)
{
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
}

/* Bytes that tell where they stand. */
static inline const char *pattern(size_t length)
{
    static char bytes[1 << 20];
    static size_t filled;
    assert_true(length <= sizeof bytes);
    for (; filled < length; filled++)
        bytes[filled] = (char)(filled * 31 + (filled >> 8));
    return bytes;
}

static inline void assert_received(const owner *self, const void *bytes, size_t length)
{
    assert_int_equal(self->received_length, length);
    assert_memory_equal(self->received, bytes,
                        length < sizeof self->received ? length : sizeof self->received);
}

/* Ends a connection with a reset. */
static inline void reset(int fd)
{
    const struct linger now = { .l_onoff = 1, .l_linger = 0 };
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    assert_int_equal(close(fd), 0);
}

/* Waits until the kernel has noticed; the backend does not notice that somebody looked. */
static inline void wait_for(const owner *self, short events)
{
    assert_true(wait_until(self->file.fd, events) & events);
}

/* Fills the way out, so that the next send has to wait. How many bytes that took. */
static inline size_t fill(int fd)
{
    static const char bytes[1 << 16];
    size_t total = 0;
    ssize_t count;
    while ((count = send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
        total += (size_t)count;
    while (send(fd, bytes, 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        total++;
    return total;
}

static inline size_t drain(int fd)
{
    static char bytes[1 << 16];
    size_t total = 0;
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        total += (size_t)count;
    return total;
}

#endif
