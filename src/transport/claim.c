/* SPDX-License-Identifier: MIT */
/* The path of a Unix socket: nobody else's, and not left behind. */
#include "transport/socket.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

typedef struct weir_claim {
    dev_t device;
    ino_t inode;
    char path[sizeof(struct sockaddr_un)];
} weir_claim;

/*
 * Whether there is a socket at the path that nobody has bound any more: its owner is gone. A
 * datagram socket is sent to ask, whatever kind is there: to one of another kind, listening or not
 * yet, the kernel says EPROTOTYPE, and ECONNREFUSED only where there is none.
 */
static bool is_stale(weir_sys *sys, const char *path, const struct sockaddr *address,
                     socklen_t length)
{
    struct stat facts;
    if (sys->lstat(sys, path, &facts) < 0 || !S_ISSOCK(facts.st_mode))
        return false;
    int probe = sys->socket(sys, AF_UNIX, SOCK_DGRAM, 0);
    if (probe < 0)
        return false;
    int code = sys->connect(sys, probe, address, length);
    sys->close(sys, probe);
    return code == -ECONNREFUSED;
}

int weir__claim_bind(weir_sys *sys, int fd, const weir_address *local, struct weir_claim **claim)
{
    size_t length;
    const struct sockaddr *address = weir_address_sockaddr(local, &length);
    struct sockaddr_un own = { 0 };
    memcpy(&own, address, length < sizeof own ? length : sizeof own);
    if (own.sun_path[0] == '\0') /* abstract: the kernel sees to it */
        return sys->bind(sys, fd, address, (socklen_t)length);
    weir_claim *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    snprintf(self->path, sizeof self->path, "%.*s", (int)sizeof own.sun_path, own.sun_path);
    int code = sys->bind(sys, fd, address, (socklen_t)length);
    if (code == -EADDRINUSE && is_stale(sys, self->path, address, (socklen_t)length)) {
        sys->unlink(sys, self->path);
        code = sys->bind(sys, fd, address, (socklen_t)length);
    }
    struct stat facts;
    if (code == 0 && sys->lstat(sys, self->path, &facts) == 0) {
        self->device = facts.st_dev;
        self->inode = facts.st_ino;
        *claim = self;
    } else {
        weir__free(self);
    }
    return code;
}

/* Somebody may have put another one there meanwhile. */
void weir__claim_end(weir_sys *sys, struct weir_claim *self)
{
    struct stat facts;
    if (self == NULL)
        return;
    if (sys->lstat(sys, self->path, &facts) == 0 && facts.st_dev == self->device &&
        facts.st_ino == self->inode)
        sys->unlink(sys, self->path);
    weir__free(self);
}
