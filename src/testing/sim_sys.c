/* SPDX-License-Identifier: MIT */
/* The system calls of a simulated host, each behind the fault hook. What has nothing to do with the
 * network stays Linux's. */
#include "base/alloc.h"
#include "base/fault.h"
#include "testing/sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static weir_sim_host *host_of(weir_sys *sys)
{
    return (weir_sim_host *)sys;
}

static weir_sim *sim_of(weir_sys *sys)
{
    return host_of(sys)->sim;
}

/* Leaves the calling function with the fault's code, or with EINTR when that is drawn. */
#define FAULT(call, length)                                                                        \
    do {                                                                                           \
        int fault_ = weir__fault(call, length);                                                    \
        if (fault_ < 0)                                                                            \
            return fault_;                                                                         \
    } while (0)
#define FAULT_OR_INTERRUPT(sys, call, length)                                                      \
    do {                                                                                           \
        FAULT(call, length);                                                                       \
        if (weir_sim_chance(sim_of(sys), sim_of(sys)->config.interrupt))                           \
            return -EINTR;                                                                         \
    } while (0)

/* Finds the socket, or leaves the calling function. */
#define FIND_SOCKET(sys, fd, socket)                                                               \
    weir_sim_socket *socket = weir__sim_socket_at(sim_of(sys), fd);                                \
    if (socket == NULL)                                                                            \
    return weir__sim_file_at(sim_of(sys), fd) != NULL ? -ENOTSOCK : -EBADF

/* Descriptors -------------------------------------------------------------------------------- */

static int sys_close(weir_sys *sys, int fd)
{
    if (fd < WEIR_SIM_FIRST_FD)
        return weir__sys_linux()->close(weir__sys_linux(), fd);
    int code = weir__sim_close(sim_of(sys), fd);
    FAULT("close", NULL);
    return code;
}

static int sys_read(weir_sys *sys, int fd, void *to, size_t length)
{
    weir_sim_file *file = weir__sim_file_at(sim_of(sys), fd);
    FAULT("read", &length);
    if (file == NULL)
        return weir__sys_linux()->read(weir__sys_linux(), fd, to, length);
    weir_sim_eventfd *self = (weir_sim_eventfd *)file;
    if (file->kind != WEIR_SIM_EVENTFD || length < sizeof self->count)
        return -EINVAL;
    if (self->count == 0)
        return -EAGAIN;
    memcpy(to, &self->count, sizeof self->count);
    self->count = 0;
    return sizeof self->count;
}

static int sys_write(weir_sys *sys, int fd, const void *from, size_t length)
{
    weir_sim_file *file = weir__sim_file_at(sim_of(sys), fd);
    uint64_t count;
    FAULT("write", &length);
    if (file == NULL)
        return weir__sys_linux()->write(weir__sys_linux(), fd, from, length);
    if (file->kind != WEIR_SIM_EVENTFD || length < sizeof count)
        return -EINVAL;
    memcpy(&count, from, sizeof count);
    ((weir_sim_eventfd *)file)->count += count;
    weir__sim_file_news(file);
    return sizeof count;
}

static int sys_eventfd(weir_sys *sys, unsigned count)
{
    FAULT("eventfd", NULL);
    return weir__sim_eventfd_open(host_of(sys), count);
}

static int sys_epoll_create(weir_sys *sys)
{
    FAULT("epoll_create1", NULL);
    return weir__sim_epoll_open(host_of(sys));
}

static int sys_epoll_ctl(weir_sys *sys, int epoll, int operation, int fd, struct epoll_event *event)
{
    FAULT("epoll_ctl", NULL);
    return weir__sim_epoll_control(sim_of(sys), epoll, operation, fd, event);
}

/* Time does not pass here: whoever steps the loops sees to that. */
static int sys_epoll_wait(weir_sys *sys, int epoll, struct epoll_event *events, int max,
                          int64_t timeout_ns)
{
    (void)timeout_ns;
    FAULT("epoll_wait", NULL);
    return weir__sim_epoll_wait(sim_of(sys), epoll, events, max);
}

static int sys_poll(weir_sys *sys, struct pollfd *fds, unsigned count, int64_t timeout_ns)
{
    (void)sys;
    (void)timeout_ns;
    FAULT("poll", NULL);
    for (unsigned i = 0; i < count; i++)
        fds[i].revents = 0;
    return 0;
}

/* Sockets ------------------------------------------------------------------------------------ */

static void note_address(const weir_sim_socket *socket, const char *what,
                         const weir_address *address, int code)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    bool is_failure = code < 0 && code != -EINPROGRESS;
    if (!weir__sim_is_traced(socket->file.host->sim))
        return;
    weir_address_text(address, text, sizeof text);
    weir__sim_note(&socket->file, "%s %s%s%s", what, text, is_failure ? ": " : "",
                   is_failure ? weir_error_name(code) : "");
}

static bool is_simulated(int family, int type)
{
    return family == AF_UNIX || ((family == AF_INET || family == AF_INET6) &&
                                 (type == SOCK_STREAM || type == SOCK_DGRAM));
}

static int sys_socket(weir_sys *sys, int family, int type, int protocol)
{
    weir_sim_socket *made;
    (void)protocol;
    FAULT("socket", NULL);
    if (!is_simulated(family, type))
        return -EOPNOTSUPP;
    int code = weir__sim_socket_new(host_of(sys), family, type, &made);
    if (code < 0)
        return code;
    int fd = weir__sim_file_open(host_of(sys), &made->file, WEIR_SIM_SOCKET);
    if (fd < 0)
        weir__sim_socket_free(made);
    return fd;
}

static int sys_bind(weir_sys *sys, int fd, const struct sockaddr *address, socklen_t length)
{
    weir_address local;
    FAULT("bind", NULL);
    FIND_SOCKET(sys, fd, socket);
    int code = weir_address_from_sockaddr(&local, address, length);
    if (code == 0 && socket->family == AF_UNIX && socket->type == SOCK_DGRAM)
        code = -EOPNOTSUPP;
    if (code == 0)
        code = weir__sim_bind(socket, &local);
    note_address(socket, "bind", code == 0 ? &socket->local : &local, code);
    return code;
}

static int sys_listen(weir_sys *sys, int fd, int backlog)
{
    FAULT("listen", NULL);
    FIND_SOCKET(sys, fd, socket);
    WEIR_SIM_NOTE(&socket->file, "listen");
    return weir__sim_listen(socket, backlog);
}

static int sys_accept(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length)
{
    weir_sim_socket *child = NULL;
    FAULT_OR_INTERRUPT(sys, "accept4", NULL);
    FIND_SOCKET(sys, fd, socket);
    int code = weir__sim_accept(socket, &child);
    if (code < 0)
        return code;
    weir__sim_write_address(child->family, &child->remote, address, length);
    note_address(child, "accepted from", &child->remote, 0);
    return code;
}

static int sys_connect(weir_sys *sys, int fd, const struct sockaddr *address, socklen_t length)
{
    weir_address remote;
    FAULT("connect", NULL);
    FIND_SOCKET(sys, fd, socket);
    int code = weir_address_from_sockaddr(&remote, address, length);
    if (code == 0)
        code = weir__sim_connect(socket, &remote);
    note_address(socket, "connect", &remote, code);
    return code;
}

static int sys_shutdown(weir_sys *sys, int fd, int how)
{
    FAULT("shutdown", NULL);
    FIND_SOCKET(sys, fd, socket);
    return weir__sim_shutdown(socket, how);
}

static int sys_getsockopt(weir_sys *sys, int fd, int level, int name, void *value,
                          socklen_t *length)
{
    FAULT("getsockopt", NULL);
    FIND_SOCKET(sys, fd, socket);
    return weir__sim_get_option(socket, level, name, value, length);
}

static int sys_setsockopt(weir_sys *sys, int fd, int level, int name, const void *value,
                          socklen_t length)
{
    FAULT("setsockopt", NULL);
    FIND_SOCKET(sys, fd, socket);
    return weir__sim_set_option(socket, level, name, value, length);
}

static int sys_getsockname(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length)
{
    FAULT("getsockname", NULL);
    FIND_SOCKET(sys, fd, socket);
    weir__sim_write_address(socket->family, &socket->local, address, length);
    return 0;
}

static int sys_getpeername(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length)
{
    FAULT("getpeername", NULL);
    FIND_SOCKET(sys, fd, socket);
    if (socket->state != WEIR_SIM_CONNECTED)
        return -ENOTCONN;
    weir__sim_write_address(socket->family, &socket->remote, address, length);
    return 0;
}

/* Bytes -------------------------------------------------------------------------------------- */

static int sys_recv(weir_sys *sys, int fd, void *to, size_t length, int flags)
{
    (void)flags;
    FAULT_OR_INTERRUPT(sys, "recv", &length);
    FIND_SOCKET(sys, fd, socket);
    return weir__sim_stream_receive(socket, to, length);
}

static int sys_send(weir_sys *sys, int fd, const void *from, size_t length, int flags)
{
    (void)flags;
    FAULT_OR_INTERRUPT(sys, "send", &length);
    FIND_SOCKET(sys, fd, socket);
    struct iovec piece = { .iov_base = (void *)from, .iov_len = length };
    return weir__sim_stream_send(socket, &piece, 1);
}

static int sys_recvmsg(weir_sys *sys, int fd, struct msghdr *message, int flags)
{
    (void)flags;
    FAULT_OR_INTERRUPT(sys, "recvmsg", NULL);
    FIND_SOCKET(sys, fd, socket);
    if (socket->type == SOCK_DGRAM)
        return weir__sim_datagram_receive(socket, message);
    message->msg_controllen = 0;
    return weir__sim_stream_receive(socket, message->msg_iov->iov_base, message->msg_iov->iov_len);
}

static int sys_sendmsg(weir_sys *sys, int fd, const struct msghdr *message, int flags)
{
    (void)flags;
    FAULT_OR_INTERRUPT(sys, "sendmsg", NULL);
    FIND_SOCKET(sys, fd, socket);
    if (socket->type == SOCK_DGRAM)
        return weir__sim_datagram_send(socket, message);
    if (message->msg_controllen > 0)
        return -EOPNOTSUPP; /* descriptors */
    return weir__sim_stream_send(socket, message->msg_iov, message->msg_iovlen);
}

static int sys_recvmmsg(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    (void)flags;
    FAULT_OR_INTERRUPT(sys, "recvmmsg", NULL);
    FIND_SOCKET(sys, fd, socket);
    for (unsigned i = 0; i < count; i++) {
        int code = weir__sim_datagram_receive(socket, &messages[i].msg_hdr);
        if (code < 0)
            return i > 0 ? (int)i : code;
        messages[i].msg_len = (unsigned)code;
    }
    return (int)count;
}

static int sys_sendmmsg(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    (void)flags;
    FAULT_OR_INTERRUPT(sys, "sendmmsg", NULL);
    FIND_SOCKET(sys, fd, socket);
    for (unsigned i = 0; i < count; i++) {
        int code = weir__sim_datagram_send(socket, &messages[i].msg_hdr);
        if (code < 0)
            return i > 0 ? (int)i : code;
        messages[i].msg_len = (unsigned)code;
    }
    return (int)count;
}

/* A file is real, the socket is not: so the bytes have to come this way. */
static int sys_sendfile(weir_sys *sys, int to, int from, uint64_t offset, size_t length)
{
    uint8_t bytes[16384];
    FAULT_OR_INTERRUPT(sys, "sendfile", &length);
    FIND_SOCKET(sys, to, socket);
    weir_sys *linux_calls = weir__sys_linux();
    int came = linux_calls->pread(linux_calls, from, bytes,
                                  length < sizeof bytes ? length : sizeof bytes, offset);
    struct iovec piece = { .iov_base = bytes, .iov_len = came > 0 ? (size_t)came : 0 };
    return came <= 0 ? came : weir__sim_stream_send(socket, &piece, 1);
}

static int sys_pipe(weir_sys *sys, int ends[2])
{
    (void)sys;
    (void)ends;
    return -ENOSYS;
}

static int sys_splice(weir_sys *sys, int from, int to, size_t length, unsigned flags)
{
    (void)sys;
    (void)from;
    (void)to;
    (void)length;
    (void)flags;
    return -ENOSYS;
}

static int sys_signalfd(weir_sys *sys, const sigset_t *signals)
{
    (void)sys;
    (void)signals;
    return -ENOSYS;
}

/* Paths and names ---------------------------------------------------------------------------- */

static weir_sim_socket *find_path(weir_sys *sys, const char *path)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    snprintf(text, sizeof text, "unix:%s", path);
    if (weir_address_parse(&address, text, NULL) < 0)
        return NULL;
    return weir__sim_find_socket(host_of(sys), 0, &address, false);
}

static int sys_lstat(weir_sys *sys, const char *path, struct stat *facts)
{
    FAULT("lstat", NULL);
    const weir_sim_socket *found = find_path(sys, path);
    if (found == NULL)
        return -ENOENT;
    *facts = (struct stat){ .st_mode = S_IFSOCK | 0777, .st_ino = found->inode };
    return 0;
}

static int sys_unlink(weir_sys *sys, const char *path)
{
    FAULT("unlink", NULL);
    weir_sim_socket *found = find_path(sys, path);
    if (found == NULL)
        return -ENOENT;
    found->has_path = false;
    return 0;
}

/* An answer, and the address in it. */
typedef struct answer {
    struct addrinfo info;
    struct sockaddr_storage address;
} answer;

static void sys_freeaddrinfo(weir_sys *sys, struct addrinfo *list)
{
    (void)sys;
    weir__free(list);
}

static int sys_getaddrinfo(weir_sys *sys, const char *name, const char *service,
                           const struct addrinfo *hints, struct addrinfo **list)
{
    (void)service;
    (void)hints;
    if (weir__fault("getaddrinfo", NULL) < 0)
        return EAI_AGAIN;
    const weir_sim_host *found = weir__sim_find_name(sim_of(sys), name);
    if (found == NULL)
        return EAI_NONAME;
    answer *answers = weir__zalloc(found->address_count * sizeof *answers);
    if (answers == NULL)
        return EAI_MEMORY;
    for (unsigned i = 0; i < found->address_count; i++) {
        answer *own = &answers[i];
        own->info.ai_addr = (struct sockaddr *)&own->address;
        own->info.ai_addrlen = sizeof own->address;
        own->info.ai_next = i + 1 < found->address_count ? &answers[i + 1].info : NULL;
        weir__sim_write_address(AF_UNSPEC, &found->addresses[i], own->info.ai_addr,
                                &own->info.ai_addrlen);
        own->info.ai_family = own->address.ss_family;
        own->info.ai_socktype = SOCK_STREAM;
    }
    *list = &answers->info;
    return 0;
}

static int sys_random(weir_sys *sys, void *to, size_t length)
{
    FAULT("getrandom", NULL);
    for (size_t i = 0; i < length; i++)
        ((uint8_t *)to)[i] = (uint8_t)weir_sim_random(sim_of(sys), 256);
    return 0;
}

void weir__sim_sys_init(weir_sim_host *host)
{
    weir_sys *sys = &host->sys;
    *sys = *weir__sys_linux();
    sys->close = sys_close;
    sys->read = sys_read;
    sys->write = sys_write;
    sys->eventfd = sys_eventfd;
    sys->epoll_create = sys_epoll_create;
    sys->epoll_ctl = sys_epoll_ctl;
    sys->epoll_wait = sys_epoll_wait;
    sys->poll = sys_poll;
    sys->signalfd = sys_signalfd;
    sys->socket = sys_socket;
    sys->bind = sys_bind;
    sys->listen = sys_listen;
    sys->accept = sys_accept;
    sys->connect = sys_connect;
    sys->shutdown = sys_shutdown;
    sys->getsockopt = sys_getsockopt;
    sys->setsockopt = sys_setsockopt;
    sys->getsockname = sys_getsockname;
    sys->getpeername = sys_getpeername;
    sys->recv = sys_recv;
    sys->send = sys_send;
    sys->recvmsg = sys_recvmsg;
    sys->sendmsg = sys_sendmsg;
    sys->recvmmsg = sys_recvmmsg;
    sys->sendmmsg = sys_sendmmsg;
    sys->sendfile = sys_sendfile;
    sys->pipe = sys_pipe;
    sys->splice = sys_splice;
    sys->lstat = sys_lstat;
    sys->unlink = sys_unlink;
    sys->getaddrinfo = sys_getaddrinfo;
    sys->freeaddrinfo = sys_freeaddrinfo;
    sys->random = sys_random;
}
