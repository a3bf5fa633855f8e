/* SPDX-License-Identifier: MIT */
/* The sockets of c-ares, as descriptors that a loop watches. */
#include "bootstrap/cares.h"

#include "base/alloc.h"

#include <weir/watch.h>

#include <errno.h>

#define TRIES 3

typedef struct ares_socket {
    weir_watch watch;
    weir_ares_lookup *of;
    weir_sys *sys;
    weir_list_node node;
    int fd;
    bool is_watched;
    bool is_closed; /* by c-ares; the descriptor follows when the watch has stopped */
} ares_socket;

static ares_socket *find(weir_ares_lookup *self, int fd)
{
    weir_list_node *node = weir__list_first(&self->sockets);
    while (node != NULL && WEIR_CONTAINER(node, ares_socket, node)->fd != fd)
        node = weir__list_next(&self->sockets, node);
    return node != NULL ? WEIR_CONTAINER(node, ares_socket, node) : NULL;
}

/* The system's way to fail. */
static int answer(int code)
{
    if (code >= 0)
        return code;
    errno = -code;
    return -1;
}

static void end(ares_socket *self)
{
    weir_ares_lookup *of = self->of;
    self->sys->close(self->sys, self->fd);
    weir__free(self);
    weir__operation_release(&of->operation);
}

static void on_ready(weir_watch *watch, unsigned events)
{
    ares_socket *self = WEIR_CONTAINER(watch, ares_socket, watch);
    weir_ares_lookup *of = self->of;
    bool reads = (events & (WEIR_WATCH_READ | WEIR_WATCH_HANGUP)) != 0;
    weir__operation_retain(&of->operation);
    ares_process_fd(of->channel, reads ? self->fd : ARES_SOCKET_BAD,
                    (events & WEIR_WATCH_WRITE) != 0 ? self->fd : ARES_SOCKET_BAD);
    weir__ares_lookup_proceed(of);
    weir__operation_release(&of->operation);
}

/* After a close; or the loop ends, and then c-ares closes it later. */
static void on_stopped(weir_watch *watch, int code)
{
    ares_socket *self = WEIR_CONTAINER(watch, ares_socket, watch);
    (void)code;
    self->is_watched = false;
    if (self->is_closed)
        end(self);
}

/* Socket functions for c-ares -------------------------------------------------------------------
 */

static ares_socket_t open_socket(int family, int type, int protocol, void *arg)
{
    weir_ares_lookup *of = arg;
    weir_sys *sys = of->loop->base.sys;
    ares_socket *self = weir__zalloc(sizeof *self);
    int fd = self != NULL ? sys->socket(sys, family, type, protocol) : -ENOMEM;
    if (fd < 0) {
        weir__free(self);
        return answer(fd);
    }
    self->watch.ready = on_ready;
    self->watch.stopped = on_stopped;
    self->of = of;
    self->sys = sys;
    self->fd = fd;
    weir__list_push_back(&of->sockets, &self->node);
    weir__operation_retain(&of->operation);
    return fd;
}

static int close_socket(ares_socket_t fd, void *arg)
{
    ares_socket *self = find(arg, fd);
    if (self == NULL) {
        errno = EBADF;
        return -1;
    }
    weir__list_remove(&self->node);
    self->is_closed = true;
    if (self->is_watched)
        weir_watch_stop(&self->watch);
    else
        end(self);
    return 0;
}

static int connect_socket(ares_socket_t fd, const struct sockaddr *address, ares_socklen_t length,
                          void *arg)
{
    weir_sys *sys = ((weir_ares_lookup *)arg)->loop->base.sys;
    return answer(sys->connect(sys, fd, address, length));
}

static ares_ssize_t receive(ares_socket_t fd, void *to, size_t length, int flags,
                            struct sockaddr *from, ares_socklen_t *from_length, void *arg)
{
    weir_sys *sys = ((weir_ares_lookup *)arg)->loop->base.sys;
    struct iovec piece = { .iov_base = to, .iov_len = length };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_name = from };
    message.msg_namelen = from_length != NULL ? *from_length : 0;
    int code = sys->recvmsg(sys, fd, &message, flags);
    if (code >= 0 && from_length != NULL)
        *from_length = message.msg_namelen;
    return answer(code);
}

static ares_ssize_t send_pieces(ares_socket_t fd, const struct iovec *pieces, int count, void *arg)
{
    weir_sys *sys = ((weir_ares_lookup *)arg)->loop->base.sys;
    struct msghdr message = { .msg_iov = (struct iovec *)pieces, .msg_iovlen = (size_t)count };
    return answer(sys->sendmsg(sys, fd, &message, MSG_NOSIGNAL));
}

/* Neither comes before a close. */
static void on_interest(void *arg, ares_socket_t fd, int reads, int writes)
{
    weir_ares_lookup *of = arg;
    ares_socket *self = find(of, fd);
    unsigned events = (reads ? WEIR_WATCH_READ : 0u) | (writes ? WEIR_WATCH_WRITE : 0u);
    if (self == NULL || events == 0)
        return;
    if (self->is_watched) {
        weir_watch_change(&self->watch, events);
        return;
    }
    int code = weir_watch_start(&self->watch, of->loop, fd, events);
    self->is_watched = code == 0;
    if (code < 0)
        of->failure = code;
}

int weir__ares_sockets_open(weir_ares_lookup *self)
{
    const weir_names *names = self->names;
    static const struct ares_socket_functions functions = {
        .asocket = open_socket,
        .aclose = close_socket,
        .aconnect = connect_socket,
        .arecvfrom = receive,
        .asendv = send_pieces,
    };
    char lookups[] = "b"; /* DNS: the hosts file is read before */
    struct ares_options options = {
        .resolvconf_path = (char *)names->paths.resolv_conf,
        .timeout = names->timeout_ms,
        .tries = TRIES,
        .udp_port = names->port,
        .tcp_port = names->port,
        .sock_state_cb = on_interest,
        .sock_state_cb_data = self,
        .lookups = lookups,
    };
    int mask = ARES_OPT_RESOLVCONF | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
               ARES_OPT_LOOKUPS | (names->port != 0 ? ARES_OPT_UDP_PORT | ARES_OPT_TCP_PORT : 0);
    weir__list_init(&self->sockets);
    int status = ares_init_options(&self->channel, &options, mask);
    if (status == ARES_SUCCESS)
        ares_set_socket_functions(self->channel, &functions, self);
    return status;
}
