/* SPDX-License-Identifier: MIT */
/* The system call seam over real descriptors: what each call does, and how it tells a failure. */
#include "sockets.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

/* An address in no file system, of this process alone. */
static struct sockaddr_un unix_address(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "weir-test-%d-%s", (int)getpid(),
             name);
    return address;
}

static bool is_close_on_exec(int fd)
{
    return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

static bool is_non_blocking(int fd)
{
    return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

static void every_call_is_there(void **state)
{
    (void)state;
    void (*calls[sizeof(weir_sys) / sizeof(void (*)(void))])(void);
    _Static_assert(sizeof calls == sizeof(weir_sys), "the table holds functions alone");
    memcpy(calls, sys, sizeof calls);
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        assert_true(calls[i] != NULL);
    assert_ptr_equal(weir__sys_linux(), sys);
}

static void tcp_connects_talks_and_ends(void **state)
{
    (void)state;
    char bytes[16];
    int listener = listen_on_loopback();
    int client = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = name_of(listener), from, peer;
    assert_int_not_equal(address.sin_port, 0);
    assert_int_equal(sys->accept(sys, listener, NULL, NULL), -EAGAIN);

    int code = sys->connect(sys, client, (struct sockaddr *)&address, sizeof address);
    assert_true(code == 0 || code == -EINPROGRESS);
    assert_true(wait_until(client, POLLOUT) & POLLOUT);
    int error = -1;
    socklen_t length = sizeof error;
    assert_int_equal(sys->getsockopt(sys, client, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    assert_int_equal(error, 0);

    wait_until(listener, POLLIN);
    length = sizeof from;
    int server = sys->accept(sys, listener, (struct sockaddr *)&from, &length);
    assert_true(server >= 0);
    assert_int_equal(length, sizeof from);
    assert_int_equal(from.sin_port, name_of(client).sin_port);
    length = sizeof peer;
    assert_int_equal(sys->getpeername(sys, client, (struct sockaddr *)&peer, &length), 0);
    assert_int_equal(peer.sin_port, address.sin_port);

    assert_int_equal(sys->recv(sys, server, bytes, sizeof bytes, 0), -EAGAIN);
    assert_int_equal(sys->send(sys, client, "hello", 5, MSG_NOSIGNAL), 5);
    wait_until(server, POLLIN);
    assert_int_equal(sys->recv(sys, server, bytes, sizeof bytes, MSG_PEEK), 5);
    assert_int_equal(sys->recv(sys, server, bytes, 2, 0), 2);
    assert_memory_equal(bytes, "he", 2);
    assert_int_equal(sys->read(sys, server, bytes, sizeof bytes), 3);
    assert_memory_equal(bytes, "llo", 3);
    assert_int_equal(sys->write(sys, server, "bye", 3), 3);

    assert_int_equal(sys->shutdown(sys, server, SHUT_WR), 0);
    wait_until(client, POLLIN);
    assert_int_equal(sys->recv(sys, client, bytes, sizeof bytes, 0), 3);
    wait_until(client, POLLIN);
    assert_int_equal(sys->recv(sys, client, bytes, sizeof bytes, 0), 0);
    close_all((connection){ listener, client, server });
}

static void unix_sockets_connect_too(void **state)
{
    (void)state;
    struct sockaddr_un address = unix_address("listener"), peer;
    char bytes[8];
    int listener = sys->socket(sys, AF_UNIX, SOCK_STREAM, 0);
    int client = sys->socket(sys, AF_UNIX, SOCK_STREAM, 0);
    assert_true(listener >= 0 && client >= 0);
    assert_int_equal(sys->connect(sys, client, (struct sockaddr *)&address, sizeof address),
                     -ECONNREFUSED);
    assert_int_equal(sys->bind(sys, listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(sys->listen(sys, listener, 4), 0);
    assert_int_equal(sys->connect(sys, client, (struct sockaddr *)&address, sizeof address), 0);
    int server = sys->accept(sys, listener, NULL, NULL);
    assert_true(server >= 0);
    socklen_t length = sizeof peer;
    assert_int_equal(sys->getpeername(sys, client, (struct sockaddr *)&peer, &length), 0);
    assert_memory_equal(&peer, &address, sizeof peer);
    assert_int_equal(sys->send(sys, client, "abc", 3, 0), 3);
    assert_int_equal(sys->recv(sys, server, bytes, sizeof bytes, 0), 3);
    assert_memory_equal(bytes, "abc", 3);
    close_all((connection){ listener, client, server });
}

static void messages_scatter_and_gather(void **state)
{
    (void)state;
    struct sockaddr_in address = loopback(), from;
    int receiver = sys->socket(sys, AF_INET, SOCK_DGRAM, 0);
    int sender = sys->socket(sys, AF_INET, SOCK_DGRAM, 0);
    assert_true(receiver >= 0 && sender >= 0);
    assert_int_equal(sys->bind(sys, receiver, (struct sockaddr *)&address, sizeof address), 0);
    address = name_of(receiver);

    char one[] = "abc", two[] = "defgh", three[4], four[4];
    struct iovec out[] = { { one, 3 }, { two, 5 } }, in[] = { { three, 4 }, { four, 4 } };
    struct msghdr sent = {
        .msg_name = &address, .msg_namelen = sizeof address, .msg_iov = out, .msg_iovlen = 2
    };
    struct msghdr received = {
        .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = in, .msg_iovlen = 2
    };
    assert_int_equal(sys->recvmsg(sys, receiver, &received, 0), -EAGAIN);
    assert_int_equal(sys->sendmsg(sys, sender, &sent, 0), 8);
    wait_until(receiver, POLLIN);
    assert_int_equal(sys->recvmsg(sys, receiver, &received, 0), 8);
    assert_memory_equal(three, "abcd", 4);
    assert_memory_equal(four, "efgh", 4);
    assert_int_equal(received.msg_namelen, sizeof from);
    assert_int_equal(from.sin_port, name_of(sender).sin_port);
    assert_int_equal(received.msg_flags & MSG_TRUNC, 0);
    assert_int_equal(sys->close(sys, receiver), 0);
    assert_int_equal(sys->close(sys, sender), 0);
}

static void options_are_set_and_read(void **state)
{
    (void)state;
    int fd = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    int on = 1, value = -1;
    socklen_t length = sizeof value;
    assert_int_equal(sys->getsockopt(sys, fd, SOL_SOCKET, SO_REUSEADDR, &value, &length), 0);
    assert_int_equal(value, 0);
    assert_int_equal(sys->setsockopt(sys, fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(sys->getsockopt(sys, fd, SOL_SOCKET, SO_REUSEADDR, &value, &length), 0);
    assert_int_equal(value, 1);
    assert_int_equal(length, sizeof value);
    assert_int_equal(sys->close(sys, fd), 0);
}

static void eventfd_counts(void **state)
{
    (void)state;
    uint64_t value = 0;
    int fd = sys->eventfd(sys, 3);
    assert_true(fd >= 0);
    assert_int_equal(sys->read(sys, fd, &value, sizeof value), 8);
    assert_int_equal(value, 3);
    assert_int_equal(sys->read(sys, fd, &value, sizeof value), -EAGAIN);
    value = 4;
    assert_int_equal(sys->write(sys, fd, &value, sizeof value), 8);
    assert_int_equal(sys->write(sys, fd, &value, sizeof value), 8);
    assert_int_equal(sys->read(sys, fd, &value, sizeof value), 8);
    assert_int_equal(value, 8);
    assert_int_equal(sys->close(sys, fd), 0);
}

static void descriptors_are_close_on_exec_and_non_blocking(void **state)
{
    (void)state;
    connection made = connect_over_loopback();
    const int sockets[] = { made.listener, made.client, made.server };
    for (size_t i = 0; i < COUNT_OF(sockets); i++) {
        assert_true(is_close_on_exec(sockets[i]));
        assert_true(is_non_blocking(sockets[i]));
    }
    int event = sys->eventfd(sys, 0), epoll = sys->epoll_create(sys);
    assert_true(is_close_on_exec(event));
    assert_true(is_non_blocking(event));
    assert_true(is_close_on_exec(epoll));
    assert_int_equal(sys->close(sys, event), 0);
    assert_int_equal(sys->close(sys, epoll), 0);
    close_all(made);
}

/* Lengths above INT_MAX are cut rather than refused: an answer is an int. */
static void enormous_lengths_are_cut(void **state)
{
    (void)state;
    static char small[64];
    const size_t room = (size_t)8 << 20; /* more than a socket takes at once */
    char *large = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(large, MAP_FAILED);
    int fds[2];
    make_pair(fds);
    assert_int_equal(sys->send(sys, fds[0], "hello", 5, 0), 5);
    assert_int_equal(sys->recv(sys, fds[1], small, SIZE_MAX, 0), 5);
    assert_int_equal(sys->write(sys, fds[0], "hello", 5), 5);
    assert_int_equal(sys->read(sys, fds[1], small, SIZE_MAX), 5);
    assert_memory_equal(small, "hello", 5);
    int sent = sys->send(sys, fds[0], large, SIZE_MAX, 0);
    assert_true(sent > 0 && (size_t)sent < room);
    int written = sys->write(sys, fds[1], large, SIZE_MAX);
    assert_true(written > 0 && (size_t)written < room);
    close_pair(fds);
    munmap(large, room);
}

/* Failing for real --------------------------------------------------------------------------- */

static void failures_are_negative_codes(void **state)
{
    (void)state;
    char byte = 0;
    struct iovec iov = { &byte, 1 };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
    struct epoll_event event = { .events = EPOLLIN };
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    struct sockaddr *name = (struct sockaddr *)&address;
    int value = 0;

    assert_int_equal(sys->close(sys, -1), -EBADF);
    assert_int_equal(sys->read(sys, -1, &byte, 1), -EBADF);
    assert_int_equal(sys->write(sys, -1, &byte, 1), -EBADF);
    assert_int_equal(sys->epoll_ctl(sys, -1, EPOLL_CTL_ADD, 0, &event), -EBADF);
    assert_int_equal(sys->epoll_wait(sys, -1, &event, 1, 0), -EBADF);
    assert_int_equal(sys->socket(sys, 12345, SOCK_STREAM, 0), -EAFNOSUPPORT);
    assert_int_equal(sys->bind(sys, -1, name, length), -EBADF);
    assert_int_equal(sys->listen(sys, -1, 1), -EBADF);
    assert_int_equal(sys->accept(sys, -1, NULL, NULL), -EBADF);
    assert_int_equal(sys->connect(sys, -1, name, length), -EBADF);
    assert_int_equal(sys->shutdown(sys, -1, SHUT_RD), -EBADF);
    assert_int_equal(sys->getsockopt(sys, -1, SOL_SOCKET, SO_ERROR, &value, &length), -EBADF);
    assert_int_equal(sys->setsockopt(sys, -1, SOL_SOCKET, SO_DEBUG, &value, sizeof value), -EBADF);
    assert_int_equal(sys->getsockname(sys, -1, name, &length), -EBADF);
    assert_int_equal(sys->getpeername(sys, -1, name, &length), -EBADF);
    assert_int_equal(sys->recv(sys, -1, &byte, 1, 0), -EBADF);
    assert_int_equal(sys->send(sys, -1, &byte, 1, 0), -EBADF);
    assert_int_equal(sys->recvmsg(sys, -1, &message, 0), -EBADF);
    assert_int_equal(sys->sendmsg(sys, -1, &message, 0), -EBADF);
}

static void sockets_tell_what_is_wrong(void **state)
{
    (void)state;
    char byte = 0;
    int value = 0;
    socklen_t length = sizeof value;
    connection made = connect_over_loopback();
    struct sockaddr_in taken = name_of(made.listener), peer;
    int fd = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    assert_int_equal(sys->bind(sys, fd, (struct sockaddr *)&taken, sizeof taken), -EADDRINUSE);
    assert_int_equal(sys->accept(sys, fd, NULL, NULL), -EINVAL);
    assert_int_equal(sys->shutdown(sys, fd, SHUT_WR), -ENOTCONN);
    assert_int_equal(sys->send(sys, fd, &byte, 1, MSG_NOSIGNAL), -EPIPE);
    assert_int_equal(sys->getsockopt(sys, fd, IPPROTO_TCP, 9999, &value, &length), -ENOPROTOOPT);
    length = sizeof peer;
    assert_int_equal(sys->getpeername(sys, fd, (struct sockaddr *)&peer, &length), -ENOTCONN);
    assert_int_equal(sys->connect(sys, made.server, (struct sockaddr *)&taken, sizeof taken),
                     -EISCONN);
    assert_int_equal(sys->close(sys, fd), 0);
    assert_int_equal(sys->close(sys, fd), -EBADF);
    close_all(made);
}

static void a_refused_connection_says_so(void **state)
{
    (void)state;
    int unheard = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    int client = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback();
    /* Bound but not listening: nobody else can take the port meanwhile. */
    assert_int_equal(sys->bind(sys, unheard, (struct sockaddr *)&address, sizeof address), 0);
    address = name_of(unheard);
    int code = sys->connect(sys, client, (struct sockaddr *)&address, sizeof address);
    if (code == -EINPROGRESS) {
        int error = 0;
        socklen_t length = sizeof error;
        wait_until(client, POLLOUT);
        assert_int_equal(sys->getsockopt(sys, client, SOL_SOCKET, SO_ERROR, &error, &length), 0);
        code = -error;
    }
    assert_int_equal(code, -ECONNREFUSED);
    assert_int_equal(sys->close(sys, unheard), 0);
    assert_int_equal(sys->close(sys, client), 0);
}

/* With no descriptor left, whatever makes one says so. */
static void too_many_descriptors_are_told(void **state)
{
    (void)state;
    connection made = { .listener = listen_on_loopback(), .server = -1 };
    struct sockaddr_in address = name_of(made.listener);
    made.client = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    int code = sys->connect(sys, made.client, (struct sockaddr *)&address, sizeof address);
    assert_true(code == 0 || code == -EINPROGRESS);
    wait_until(made.listener, POLLIN);

    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int event = sys->eventfd(sys, 0), epoll = sys->epoll_create(sys);
    int fd = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    int accepted = sys->accept(sys, made.listener, NULL, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(event, -EMFILE);
    assert_int_equal(epoll, -EMFILE);
    assert_int_equal(fd, -EMFILE);
    assert_int_equal(accepted, -EMFILE);

    made.server = sys->accept(sys, made.listener, NULL, NULL); /* it was not lost */
    assert_true(made.server >= 0);
    close_all(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        sys_case(every_call_is_there),
        sys_case(tcp_connects_talks_and_ends),
        sys_case(unix_sockets_connect_too),
        sys_case(messages_scatter_and_gather),
        sys_case(options_are_set_and_read),
        sys_case(eventfd_counts),
        sys_case(descriptors_are_close_on_exec_and_non_blocking),
        sys_case(enormous_lengths_are_cut),
        sys_case(failures_are_negative_codes),
        sys_case(sockets_tell_what_is_wrong),
        sys_case(a_refused_connection_says_so),
        sys_case(too_many_descriptors_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
