/* SPDX-License-Identifier: MIT */
/* Every call of the system call seam can be failed by its name, and then is not made. */
#include "sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

#define UNTOUCHED 0x55
#define HELLO 5 /* bytes that wait in the pair */

/* Something for every call to work on. */
typedef struct bench {
    int pair[2];  /* the second has HELLO bytes to read */
    int fresh;    /* a socket without a name */
    int bound;    /* one that does not listen yet */
    int listener; /* one with a connection to accept, which is: */
    int client;
    struct sockaddr_in listening;
    int epoll, ready, unwatched; /* eventfds; the first is watched */
    int spare;                   /* to be closed */
    char path[32];               /* of a file with 16 bytes, which is open as: */
    int file;
    int blocking;       /* an eventfd as others make them */
    size_t descriptors; /* how many there are */

    unsigned char bytes[16]; /* all UNTOUCHED */
    struct sockaddr_in address;
    struct epoll_event event;
    int value;
    atomic_bool has_run;
    pthread_t thread;
} bench;

static void bench_open(bench *b)
{
    struct sockaddr_in any = loopback();
    memset(b, 0, sizeof *b);
    make_pair(b->pair);
    assert_int_equal(write(b->pair[0], "hello", HELLO), HELLO);
    b->fresh = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    b->bound = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(sys->bind(sys, b->bound, (struct sockaddr *)&any, sizeof any), 0);
    b->listener = listen_on_loopback();
    b->listening = name_of(b->listener);
    b->client = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    int code = sys->connect(sys, b->client, (struct sockaddr *)&b->listening, sizeof b->listening);
    assert_true(code == 0 || code == -EINPROGRESS);
    wait_until(b->listener, POLLIN);
    b->epoll = sys->epoll_create(sys);
    b->ready = sys->eventfd(sys, 1);
    b->unwatched = sys->eventfd(sys, 0);
    struct epoll_event event = { .events = EPOLLIN };
    assert_int_equal(sys->epoll_ctl(sys, b->epoll, EPOLL_CTL_ADD, b->ready, &event), 0);
    b->spare = sys->eventfd(sys, 0);
    b->blocking = eventfd(0, 0);
    snprintf(b->path, sizeof b->path, "/tmp/weir-test-XXXXXX");
    b->file = mkstemp(b->path);
    assert_int_equal(write(b->file, "0123456789abcdef", sizeof b->bytes), sizeof b->bytes);
    b->descriptors = count_descriptors();
    memset(b->bytes, UNTOUCHED, sizeof b->bytes);
    memset(&b->address, UNTOUCHED, sizeof b->address);
    memset(&b->event, UNTOUCHED, sizeof b->event);
    b->value = UNTOUCHED;
}

static void bench_close(bench *b)
{
    const int all[] = { b->pair[0], b->pair[1], b->fresh,     b->bound, b->listener, b->client,
                        b->epoll,   b->ready,   b->unwatched, b->spare, b->blocking, b->file };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        close(all[i]); /* one of them may be closed already */
    unlink(b->path);
}

/* Each call once, and how one sees that it was made. */

static int do_close(bench *b)
{
    return sys->close(sys, b->spare);
}

static bool spare_is_gone(bench *b)
{
    return fcntl(b->spare, F_GETFD) < 0;
}

static int do_read(bench *b)
{
    return sys->read(sys, b->pair[1], b->bytes, sizeof b->bytes);
}

static bool was_read(bench *b)
{
    return pending_bytes(b->pair[1]) != HELLO || b->bytes[0] != UNTOUCHED;
}

static int do_write(bench *b)
{
    return sys->write(sys, b->pair[1], "abc", 3);
}

static bool was_written(bench *b)
{
    return pending_bytes(b->pair[0]) != 0;
}

static int do_eventfd(bench *b)
{
    (void)b;
    return sys->eventfd(sys, 0);
}

static bool a_descriptor_was_made(bench *b)
{
    return count_descriptors() != b->descriptors;
}

static int do_epoll_create(bench *b)
{
    (void)b;
    return sys->epoll_create(sys);
}

static int do_epoll_ctl(bench *b)
{
    struct epoll_event event = { .events = EPOLLIN };
    return sys->epoll_ctl(sys, b->epoll, EPOLL_CTL_ADD, b->unwatched, &event);
}

static bool is_watched(bench *b)
{
    struct epoll_event event = { .events = EPOLLIN };
    return epoll_ctl(b->epoll, EPOLL_CTL_MOD, b->unwatched, &event) == 0;
}

static int do_epoll_wait(bench *b)
{
    return sys->epoll_wait(sys, b->epoll, &b->event, 1, 0);
}

static bool was_told(bench *b)
{
    struct epoll_event untouched;
    memset(&untouched, UNTOUCHED, sizeof untouched);
    return memcmp(&b->event, &untouched, sizeof untouched) != 0;
}

static int open_ring(void)
{
    struct io_uring_params params = { 0 };
    return (int)syscall(SYS_io_uring_setup, 1, &params);
}

static int do_uring_setup(bench *b)
{
    (void)b;
    struct io_uring_params params = { 0 };
    return sys->io_uring_setup(sys, 1, &params);
}

/* The ring is told to probe, which writes; and entered without anything to do. */
static int do_uring_register(bench *b)
{
    struct io_uring_probe probe = { 0 };
    int ring = open_ring();
    int code = sys->io_uring_register(sys, ring, IORING_REGISTER_PROBE, &probe, 0);
    b->has_run = probe.last_op > 0;
    close(ring);
    return code;
}

static int do_uring_enter(bench *b)
{
    int ring = open_ring();
    int code = sys->io_uring_enter(sys, ring, 0, 0, 0, NULL, 0);
    b->has_run = code == 0;
    close(ring);
    return code;
}

static bool has_run(bench *b)
{
    return atomic_load(&b->has_run);
}

static int do_socket(bench *b)
{
    (void)b;
    return sys->socket(sys, AF_INET, SOCK_DGRAM, 0);
}

static int do_bind(bench *b)
{
    struct sockaddr_in any = loopback();
    return sys->bind(sys, b->fresh, (struct sockaddr *)&any, sizeof any);
}

/* Both binding and connecting give a socket a port. */
static bool has_a_port(bench *b)
{
    return name_of(b->fresh).sin_port != 0;
}

static int do_listen(bench *b)
{
    return sys->listen(sys, b->bound, 1);
}

static bool listens(bench *b)
{
    int value = -1;
    socklen_t length = sizeof value;
    assert_int_equal(getsockopt(b->bound, SOL_SOCKET, SO_ACCEPTCONN, &value, &length), 0);
    return value != 0;
}

static int do_accept(bench *b)
{
    return sys->accept(sys, b->listener, NULL, NULL);
}

static int do_connect(bench *b)
{
    int code = sys->connect(sys, b->fresh, (struct sockaddr *)&b->listening, sizeof b->listening);
    return code == -EINPROGRESS ? 0 : code;
}

static int do_shutdown(bench *b)
{
    return sys->shutdown(sys, b->pair[0], SHUT_WR);
}

static bool is_shut(bench *b)
{
    struct pollfd entry = { .fd = b->pair[1], .events = POLLRDHUP };
    return poll(&entry, 1, 0) != 0;
}

static int do_getsockopt(bench *b)
{
    socklen_t length = sizeof b->value;
    return sys->getsockopt(sys, b->fresh, SOL_SOCKET, SO_TYPE, &b->value, &length);
}

static bool value_was_written(bench *b)
{
    return b->value != UNTOUCHED;
}

static int do_setsockopt(bench *b)
{
    const int on = 1;
    return sys->setsockopt(sys, b->fresh, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static bool keeps_alive(bench *b)
{
    int value = -1;
    socklen_t length = sizeof value;
    assert_int_equal(getsockopt(b->fresh, SOL_SOCKET, SO_KEEPALIVE, &value, &length), 0);
    return value != 0;
}

static int do_poll(bench *b)
{
    struct pollfd fd = { .fd = b->ready, .events = POLLIN };
    int code = sys->poll(sys, &fd, 1, 1000000000);
    b->value = fd.revents;
    return code;
}

static bool was_polled(bench *b)
{
    return b->value == POLLIN;
}

static int do_signalfd(bench *b)
{
    (void)b;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    return sys->signalfd(sys, &signals);
}

static int do_getsockname(bench *b)
{
    socklen_t length = sizeof b->address;
    return sys->getsockname(sys, b->bound, (struct sockaddr *)&b->address, &length);
}

static int do_getpeername(bench *b)
{
    socklen_t length = sizeof b->address;
    return sys->getpeername(sys, b->client, (struct sockaddr *)&b->address, &length);
}

static bool address_was_written(bench *b)
{
    struct sockaddr_in untouched;
    memset(&untouched, UNTOUCHED, sizeof untouched);
    return memcmp(&b->address, &untouched, sizeof untouched) != 0;
}

static int do_recv(bench *b)
{
    return sys->recv(sys, b->pair[1], b->bytes, sizeof b->bytes, 0);
}

static int do_send(bench *b)
{
    return sys->send(sys, b->pair[1], "abc", 3, 0);
}

static int do_recvmsg(bench *b)
{
    struct iovec iov[] = { { b->bytes, 4 }, { b->bytes + 4, sizeof b->bytes - 4 } };
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };
    return sys->recvmsg(sys, b->pair[1], &message, 0);
}

static int do_sendmsg(bench *b)
{
    char text[] = "abc";
    struct iovec iov[] = { { text, 1 }, { text + 1, 2 } };
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };
    return sys->sendmsg(sys, b->pair[1], &message, 0);
}

static int do_own(bench *b)
{
    return sys->own(sys, b->blocking);
}

static bool is_owned(bench *b)
{
    return fcntl(b->blocking, F_GETFL) & O_NONBLOCK && fcntl(b->blocking, F_GETFD) & FD_CLOEXEC;
}

static int do_recvmmsg(bench *b)
{
    struct iovec iov = { b->bytes, sizeof b->bytes };
    struct mmsghdr message = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };
    return sys->recvmmsg(sys, b->pair[1], &message, 1, 0);
}

static int do_sendmmsg(bench *b)
{
    char text[] = "abc";
    struct iovec iov = { text, 3 };
    struct mmsghdr message = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };
    return sys->sendmmsg(sys, b->pair[1], &message, 1, 0);
}

static int do_open(bench *b)
{
    return sys->open(sys, b->path, O_RDONLY);
}

static int do_fstat(bench *b)
{
    struct stat facts = { .st_size = 0 };
    int code = sys->fstat(sys, b->file, &facts);
    b->value = (int)facts.st_size;
    return code;
}

static int do_lstat(bench *b)
{
    struct stat facts = { .st_size = 0 };
    int code = sys->lstat(sys, b->path, &facts);
    b->value = (int)facts.st_size;
    return code;
}

static bool was_measured(bench *b)
{
    return b->value == sizeof b->bytes;
}

static int do_unlink(bench *b)
{
    return sys->unlink(sys, b->path);
}

static bool is_unlinked(bench *b)
{
    return access(b->path, F_OK) != 0;
}

static int do_pread(bench *b)
{
    return sys->pread(sys, b->file, b->bytes, sizeof b->bytes, 0);
}

static int do_pread_cached(bench *b)
{
    return sys->pread_cached(sys, b->file, b->bytes, sizeof b->bytes, 0);
}

static int do_sendfile(bench *b)
{
    return sys->sendfile(sys, b->pair[1], b->file, 0, 3);
}

static int do_pipe(bench *b)
{
    (void)b;
    int ends[2];
    int code = sys->pipe(sys, ends);
    if (code == 0)
        close(ends[1]);
    return code == 0 ? ends[0] : code;
}

static int do_splice(bench *b)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    int code = sys->splice(sys, ends[0], b->pair[1], 3, 0);
    close(ends[0]);
    close(ends[1]);
    return code;
}

static void *note_run(void *arg)
{
    atomic_store(&((bench *)arg)->has_run, true);
    return NULL;
}

static int do_thread_create(bench *b)
{
    int code = sys->thread_create(sys, &b->thread,
                                  &(weir_thread_config){ .name = "noted", .cpu = -1 }, note_run, b);
    if (code == 0)
        pthread_join(b->thread, NULL);
    return code;
}

static int do_random(bench *b)
{
    return sys->random(sys, b->bytes, sizeof b->bytes);
}

static bool bytes_were_written(bench *b)
{
    for (size_t i = 0; i < sizeof b->bytes; i++) {
        if (b->bytes[i] != UNTOUCHED)
            return true;
    }
    return false;
}

static const struct {
    const char *call;
    int (*invoke)(bench *b);
    bool (*was_made)(bench *b);
    size_t length; /* how many bytes the hook is told; 0: it gets none */
} calls[] = {
    { "close", do_close, spare_is_gone, 0 },
    { "fcntl", do_own, is_owned, 0 },
    { "read", do_read, was_read, 16 },
    { "write", do_write, was_written, 3 },
    { "eventfd", do_eventfd, a_descriptor_was_made, 0 },
    { "epoll_create1", do_epoll_create, a_descriptor_was_made, 0 },
    { "epoll_ctl", do_epoll_ctl, is_watched, 0 },
    { "epoll_wait", do_epoll_wait, was_told, 0 },
    { "poll", do_poll, was_polled, 0 },
    { "signalfd", do_signalfd, a_descriptor_was_made, 0 },
    { "io_uring_setup", do_uring_setup, a_descriptor_was_made, 0 },
    { "io_uring_enter", do_uring_enter, has_run, 0 },
    { "io_uring_register", do_uring_register, has_run, 0 },
    { "socket", do_socket, a_descriptor_was_made, 0 },
    { "bind", do_bind, has_a_port, 0 },
    { "listen", do_listen, listens, 0 },
    { "accept4", do_accept, a_descriptor_was_made, 0 },
    { "connect", do_connect, has_a_port, 0 },
    { "shutdown", do_shutdown, is_shut, 0 },
    { "getsockopt", do_getsockopt, value_was_written, 0 },
    { "setsockopt", do_setsockopt, keeps_alive, 0 },
    { "getsockname", do_getsockname, address_was_written, 0 },
    { "getpeername", do_getpeername, address_was_written, 0 },
    { "recv", do_recv, was_read, 16 },
    { "send", do_send, was_written, 3 },
    { "recvmsg", do_recvmsg, was_read, 16 },
    { "sendmsg", do_sendmsg, was_written, 3 },
    { "recvmmsg", do_recvmmsg, was_read, 0 },
    { "sendmmsg", do_sendmmsg, was_written, 0 },
    { "open", do_open, a_descriptor_was_made, 0 },
    { "fstat", do_fstat, was_measured, 0 },
    { "lstat", do_lstat, was_measured, 0 },
    { "unlink", do_unlink, is_unlinked, 0 },
    { "pread", do_pread, bytes_were_written, 16 },
    { "pread_cached", do_pread_cached, bytes_were_written, 16 },
    { "sendfile", do_sendfile, was_written, 3 },
    { "pipe2", do_pipe, a_descriptor_was_made, 0 },
    { "splice", do_splice, was_written, 3 },
    { "pthread_create", do_thread_create, has_run, 0 },
    { "getrandom", do_random, bytes_were_written, 0 },
};

#define NAMES 2 /* getaddrinfo, which has codes of its own, and freeaddrinfo, which cannot fail */

_Static_assert(COUNT_OF(calls) + NAMES == sizeof(weir_sys) / sizeof(void (*)(void)),
               "every call of the table is in this one");

/* What the hook is asked, and what it answers. */
typedef struct question {
    const char *call; /* the last one asked about */
    unsigned asked;
    size_t length; /* 0: none was given */
    int answer;
} question;

static int answer_question(void *arg, const char *call, size_t *length)
{
    question *self = arg;
    self->call = call;
    self->asked++;
    self->length = length != NULL ? *length : 0;
    return self->answer;
}

static void a_fault_is_returned_and_the_call_not_made(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        /* Codes that no such call would give by itself. */
        static const int faults[] = { -EUCLEAN, WEIR_ELIMIT };
        for (size_t f = 0; f < COUNT_OF(faults); f++) {
            bench b;
            question asked = { .answer = faults[f] };
            bench_open(&b);
            weir_fault_set(answer_question, &asked);
            int result = calls[i].invoke(&b);
            weir_fault_set(NULL, NULL);
            assert_int_equal(result, faults[f]);
            assert_int_equal(asked.asked, 1);
            assert_string_equal(asked.call, calls[i].call);
            assert_int_equal(asked.length, calls[i].length);
            /* A close cannot be undone by calling it failed: the descriptor is gone either way. */
            assert_int_equal(calls[i].was_made(&b), calls[i].invoke == do_close);
            bench_close(&b);
        }
    }
}

static void a_hook_that_agrees_lets_it_happen(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        bench b;
        question asked = { 0 };
        bench_open(&b);
        assert_false(calls[i].was_made(&b));
        weir_fault_set(answer_question, &asked);
        int result = calls[i].invoke(&b);
        weir_fault_set(NULL, NULL);
        assert_true(result >= 0);
        assert_int_equal(asked.asked, 1);
        assert_string_equal(asked.call, calls[i].call);
        assert_true(calls[i].was_made(&b));
        if (calls[i].was_made == a_descriptor_was_made)
            assert_int_equal(sys->close(sys, result), 0);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        sys_case(a_fault_is_returned_and_the_call_not_made),
        sys_case(a_hook_that_agrees_lets_it_happen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
