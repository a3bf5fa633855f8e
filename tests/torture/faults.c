/* SPDX-License-Identifier: MIT */
/* What can go wrong with each kind of call, as Linux documents it. */
#include "torture/faults.h"

#include <weir/error.h>

#include <errno.h>
#include <string.h>

enum { MOST_FAULTS = 5 };

/* What would claim something about the descriptor that is not so is missing: after EAGAIN, or a
 * read of less than there is room for, nobody would ever say that there is more. Storms of EAGAIN
 * come from a peer that does not read, and short reads from one that writes byte by byte: see the
 * scenarios. */
static const struct {
    const char *call;
    int faults[MOST_FAULTS];
} table[] = {
    { "alloc", { -ENOMEM } },
    { "pool", { -ENOMEM } },
    { "accept4", { -EMFILE, -ENFILE, -ENOBUFS, -ECONNABORTED, -EINTR } },
    { "bind", { -EADDRINUSE, -EACCES } },
    { "close", { -EIO, -EINTR } },
    { "connect", { -ECONNREFUSED, -ENETUNREACH, -EINTR } },
    { "epoll_create1", { -EMFILE, -ENOMEM } },
    { "epoll_ctl", { -ENOMEM, -ENOSPC } },
    { "epoll_wait", { -EINTR } },
    { "eventfd", { -EMFILE, -ENOMEM } },
    { "getaddrinfo", { -ENOMEM } },
    { "getpeername", { -ENOBUFS } },
    { "getsockname", { -ENOBUFS } },
    { "io_uring_enter", { -EINTR, -EBUSY, -EAGAIN } },
    { "io_uring_register", { -ENOMEM, -EINVAL } },
    { "io_uring_setup", { -ENOMEM } }, /* others would be remembered */
    { "listen", { -EADDRINUSE } },
    { "open", { -EMFILE, -ENOENT } },
    { "pipe2", { -EMFILE } },
    { "poll", { -EINTR } },
    { "pread", { -EIO, FAULT_SHORT } },
    { "pread_cached", { -EAGAIN, -EOPNOTSUPP, FAULT_SHORT } },
    { "pthread_create", { -EAGAIN } },
    { "read", { -EINTR, FAULT_SHORT } },
    { "recv", { -ECONNRESET, -EINTR, -ENOMEM, -ETIMEDOUT } },
    { "recvmmsg", { -EINTR, -ENOMEM } },
    { "recvmsg", { -ECONNRESET, -EINTR, -ENOMEM } },
    { "send", { -ECONNRESET, -EPIPE, -ENOBUFS, -EINTR, FAULT_SHORT } },
    { "sendfile", { -EIO, -EPIPE, -EINTR, FAULT_SHORT } },
    { "sendmmsg", { -ENOBUFS, -EPERM, -EINTR } },
    { "sendmsg", { -ECONNRESET, -EPIPE, -ENOBUFS, -EINTR, FAULT_SHORT } },
    { "setsockopt", { -ENOMEM, -ENOPROTOOPT } },
    { "shutdown", { -ENOTCONN } },
    { "socket", { -EMFILE, -ENFILE, -ENOBUFS } },
    { "splice", { -EPIPE, -EINTR } },
    { "write", { -EINTR } },
};

int fault_at(const char *call, unsigned n)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].call, call) == 0)
            return n < MOST_FAULTS ? table[i].faults[n] : 0;
    }
    return n == 0 ? -EIO : 0;
}

const char *fault_name(int fault)
{
    return fault == FAULT_SHORT ? "short" : weir_error_name(fault);
}

int fault_named(const char *call, const char *name)
{
    int fault;
    for (unsigned n = 0; (fault = fault_at(call, n)) != 0; n++) {
        if (strcmp(fault_name(fault), name) == 0)
            return fault;
    }
    return 0;
}
