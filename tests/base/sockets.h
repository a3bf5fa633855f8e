/* SPDX-License-Identifier: MIT */
/* What the tests of the system call seam share: the kernel's table, and sockets on the loopback. */
#ifndef WEIR_TESTS_BASE_SOCKETS_H
#define WEIR_TESTS_BASE_SOCKETS_H

#include "harness.h"

#include "base/sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static weir_sys *sys;

static inline int use_linux(void **state)
{
    sys = weir__sys_linux();
    return harness_remember_what_lives(state);
}

#define sys_case(name) cmocka_unit_test_setup_teardown(name, use_linux, harness_assert_nothing_left)

static inline struct sockaddr_in loopback(void)
{
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static inline struct sockaddr_in name_of(int fd)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    assert_int_equal(sys->getsockname(sys, fd, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(length, sizeof address);
    return address;
}

static inline short wait_until(int fd, short events)
{
    struct pollfd entry = { .fd = fd, .events = events };
    assert_int_equal(poll(&entry, 1, 10000), 1);
    return entry.revents;
}

static inline int pending_bytes(int fd)
{
    int count = -1;
    assert_int_equal(ioctl(fd, FIONREAD, &count), 0);
    return count;
}

/* A listener, and a connection through it. */
typedef struct connection {
    int listener, client, server;
} connection;

static inline int listen_on_loopback(void)
{
    struct sockaddr_in address = loopback();
    int fd = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(sys->bind(sys, fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(sys->listen(sys, fd, 16), 0);
    return fd;
}

static inline connection connect_over_loopback(void)
{
    connection made = { .listener = listen_on_loopback() };
    struct sockaddr_in address = name_of(made.listener);
    made.client = sys->socket(sys, AF_INET, SOCK_STREAM, 0);
    assert_true(made.client >= 0);
    int code = sys->connect(sys, made.client, (struct sockaddr *)&address, sizeof address);
    assert_true(code == 0 || code == -EINPROGRESS);
    wait_until(made.listener, POLLIN);
    made.server = sys->accept(sys, made.listener, NULL, NULL);
    assert_true(made.server >= 0);
    wait_until(made.client, POLLOUT);
    return made;
}

static inline void close_all(connection made)
{
    assert_int_equal(sys->close(sys, made.client), 0);
    assert_int_equal(sys->close(sys, made.server), 0);
    assert_int_equal(sys->close(sys, made.listener), 0);
}

/* Two connected Unix sockets, not blocking. */
static inline void make_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static inline void close_pair(const int fds[2])
{
    assert_int_equal(sys->close(sys, fds[0]), 0);
    assert_int_equal(sys->close(sys, fds[1]), 0);
}

#endif
