/* SPDX-License-Identifier: MIT */
/* Simulated sockets: their addresses, options and events. */
#include "base/address.h"
#include "base/alloc.h"
#include "testing/sim.h"

#include <errno.h>
#include <linux/tcp.h>
#include <string.h>

#define FIRST_PORT 32768
#define LAST_PORT 60999

/* Addresses ---------------------------------------------------------------------------------- */

void weir__sim_write_address(int family, const weir_address *address, struct sockaddr *to,
                             socklen_t *length)
{
    weir_address mapped = *address;
    if (to == NULL)
        return;
    if (weir_address_kind_of(address) == WEIR_ADDRESS_NONE && family == AF_UNIX)
        weir__address_set_path(&mapped, "", 0);
    if (weir_address_kind_of(address) == WEIR_ADDRESS_IPV4 && family == AF_INET6) {
        struct sockaddr_in own = weir__address_ipv4_of(address);
        struct in6_addr host = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
        memcpy(host.s6_addr + 12, &own.sin_addr, sizeof own.sin_addr);
        weir__address_set_ipv6(&mapped, host, 0, own.sin_port);
    }
    size_t size;
    const struct sockaddr *from = weir_address_sockaddr(&mapped, &size);
    if (from != NULL)
        memcpy(to, from, size < *length ? size : *length);
    *length = (socklen_t)size;
}

static bool is_same_host(const weir_address *a, const weir_address *b)
{
    weir_address one = *a, other = *b;
    weir_address_set_port(&one, 0);
    weir_address_set_port(&other, 0);
    return weir_address_equal(&one, &other);
}

static bool is_unix(const weir_address *address)
{
    return weir_address_kind_of(address) == WEIR_ADDRESS_UNIX;
}

/* Whether what is sent to the address comes to a socket that is bound so. */
static bool takes(const weir_sim_socket *socket, const weir_address *address)
{
    const weir_address *local = &socket->local;
    if (is_unix(local) || is_unix(address))
        return socket->has_path && weir_address_equal(local, address);
    if (weir_address_port(local) != weir_address_port(address))
        return false;
    bool is_other_kind = weir_address_kind_of(local) != weir_address_kind_of(address);
    if (!weir_address_is_any(local))
        return is_same_host(local, address);
    return !is_other_kind ||
           (socket->family == AF_INET6 && !weir__sim_option(socket, IPPROTO_IPV6, IPV6_V6ONLY));
}

#define FOR_EACH_BOUND(socket, host)                                                               \
    for (weir_sim_socket *socket = bound_at(weir__list_first(&(host)->sockets)); (socket) != NULL; \
         (socket) = bound_at(weir__list_next(&(host)->sockets, &(socket)->bound)))

static weir_sim_socket *bound_at(weir_list_node *node)
{
    return node != NULL ? WEIR_CONTAINER(node, weir_sim_socket, bound) : NULL;
}

/* Of several that share a port, any. */
weir_sim_socket *weir__sim_find_socket(weir_sim_host *host, int type, const weir_address *address,
                                       bool is_listening)
{
    weir_sim_socket *found = NULL;
    unsigned count = 0;
    FOR_EACH_BOUND(socket, host)
    {
        if ((type != 0 && socket->type != type) || !takes(socket, address) ||
            (is_listening && socket->state != WEIR_SIM_LISTENING))
            continue;
        count++;
        if (weir_sim_random(host->sim, count) == 0)
            found = socket;
    }
    return found;
}

static bool collides(const weir_sim_socket *one, const weir_sim_socket *other)
{
    if (one->type != other->type && !is_unix(&one->local))
        return false;
    if (!takes(one, &other->local) && !takes(other, &one->local))
        return false;
    return !(weir__sim_option(one, SOL_SOCKET, SO_REUSEPORT) &&
             weir__sim_option(other, SOL_SOCKET, SO_REUSEPORT));
}

static bool is_free(const weir_sim_socket *self)
{
    FOR_EACH_BOUND(socket, self->file.host)
    {
        if (socket != self && collides(self, socket))
            return false;
    }
    return true;
}

static int choose_port(weir_sim_socket *socket)
{
    weir_sim_host *host = socket->file.host;
    for (int i = FIRST_PORT; i <= LAST_PORT; i++) {
        if (host->next_port < FIRST_PORT || host->next_port > LAST_PORT)
            host->next_port = FIRST_PORT;
        weir_address_set_port(&socket->local, host->next_port++);
        if (is_free(socket))
            return 0;
    }
    return -EADDRINUSE;
}

/* Takes what `local` says, with a port if it has none. */
static int take_address(weir_sim_socket *socket)
{
    weir_sim_host *host = socket->file.host;
    bool needs_port = !is_unix(&socket->local) && weir_address_port(&socket->local) == 0;
    socket->has_path = is_unix(&socket->local);
    int code = needs_port ? choose_port(socket) : is_free(socket) ? 0 : -EADDRINUSE;
    if (code < 0) {
        socket->local = (weir_address){ 0 };
        return code;
    }
    socket->inode = ++host->sim->last_inode;
    weir__list_push_back(&host->sockets, &socket->bound);
    return 0;
}

int weir__sim_bind(weir_sim_socket *socket, const weir_address *local)
{
    weir_sim_host *host = socket->file.host;
    if (weir__list_is_linked(&socket->bound) || socket->state != WEIR_SIM_FRESH)
        return -EINVAL;
    socket->local = *local;
    weir_address_unmap(&socket->local);
    if (!is_unix(local) && !weir_address_is_any(local) &&
        weir__sim_find_host(host, &socket->local) != host) {
        socket->local = (weir_address){ 0 };
        return -EADDRNOTAVAIL;
    }
    return take_address(socket);
}

static int choose_host(weir_sim_socket *socket, const weir_address *remote)
{
    const weir_sim_host *host = socket->file.host;
    uint16_t port = weir_address_port(&socket->local);
    weir_address_kind kind = weir_address_kind_of(remote);
    const weir_address *chosen = weir_address_is_loopback(remote) ? remote : NULL;
    for (unsigned i = 0; i < host->address_count && chosen == NULL; i++) {
        if (weir_address_kind_of(&host->addresses[i]) == kind)
            chosen = &host->addresses[i];
    }
    if (chosen == NULL)
        return -ENETUNREACH;
    socket->local = *chosen;
    return weir_address_set_port(&socket->local, port);
}

int weir__sim_bind_any(weir_sim_socket *socket, const weir_address *remote)
{
    bool is_bound = weir__list_is_linked(&socket->bound);
    int code = is_bound && !weir_address_is_any(&socket->local) ? 0 : choose_host(socket, remote);
    return code < 0 || is_bound ? code : take_address(socket);
}

int weir__sim_listen(weir_sim_socket *socket, int backlog)
{
    if (socket->type != SOCK_STREAM ||
        (socket->state != WEIR_SIM_FRESH && socket->state != WEIR_SIM_LISTENING))
        return -EINVAL;
    int code = 0;
    if (!weir__list_is_linked(&socket->bound))
        code = socket->family == AF_UNIX ? -EINVAL : weir__sim_bind_any(socket, &socket->local);
    if (code < 0)
        return code;
    socket->backlog = backlog;
    socket->state = WEIR_SIM_LISTENING;
    return 0;
}

/* Options ------------------------------------------------------------------------------------ */

static const weir_sim_option *find_option(const weir_sim_socket *socket, int level, int name)
{
    for (int i = 0; i < WEIR_SIM_OPTIONS; i++) {
        const weir_sim_option *option = &socket->options[i];
        if (option->level == level && option->name == name)
            return option;
    }
    return NULL;
}

int weir__sim_option(const weir_sim_socket *socket, int level, int name)
{
    const weir_sim_option *option = find_option(socket, level, name);
    return option != NULL ? option->value : 0;
}

/* Most of them have no effect here, but can be read. */
int weir__sim_set_option(weir_sim_socket *socket, int level, int name, const void *value,
                         socklen_t length)
{
    if (level == SOL_SOCKET && name == SO_LINGER && length == sizeof socket->linger) {
        memcpy(&socket->linger, value, sizeof socket->linger);
        return 0;
    }
    weir_sim_option *option = (weir_sim_option *)find_option(socket, level, name);
    if (option == NULL)
        option = (weir_sim_option *)find_option(socket, 0, 0); /* one that is free */
    if (option == NULL || length < sizeof(int))
        return 0;
    *option = (weir_sim_option){ .level = level, .name = name };
    memcpy(&option->value, value, sizeof option->value);
    return 0;
}

static int copy_out(const void *from, size_t size, void *value, socklen_t *length)
{
    size_t part = size < *length ? size : *length;
    memcpy(value, from, part);
    *length = (socklen_t)part;
    return 0;
}

static int answer(weir_sim_socket *socket, int level, int name)
{
    int error = socket->error;
    if (level != SOL_SOCKET)
        return weir__sim_option(socket, level, name);
    switch (name) {
    case SO_ERROR:
        socket->error = 0;
        return error;
    case SO_DOMAIN:
        return socket->family;
    case SO_TYPE:
        return socket->type;
    case SO_ACCEPTCONN:
        return socket->state == WEIR_SIM_LISTENING;
    default:
        return weir__sim_option(socket, level, name);
    }
}

int weir__sim_get_option(weir_sim_socket *socket, int level, int name, void *value,
                         socklen_t *length)
{
    if (level == SOL_SOCKET && name == SO_LINGER)
        return copy_out(&socket->linger, sizeof socket->linger, value, length);
    if (level == IPPROTO_TCP && name == TCP_INFO) {
        struct tcp_info facts = { .tcpi_state = (uint8_t)weir__sim_stream_tcp_state(socket) };
        return copy_out(&facts, sizeof facts, value, length);
    }
    int number = answer(socket, level, name);
    return copy_out(&number, sizeof number, value, length);
}

/* Events ------------------------------------------------------------------------------------- */

static bool has_acceptable(const weir_sim_socket *listener)
{
    for (weir_list_node *node = weir__list_first(&listener->waiting); node != NULL;
         node = weir__list_next(&listener->waiting, node)) {
        if (WEIR_CONTAINER(node, weir_sim_socket, link)->is_acceptable)
            return true;
    }
    return false;
}

/* Who is told that there is no room will be told when there is. */
static uint32_t stream_events(weir_sim_socket *socket)
{
    uint32_t events = socket->error != 0 ? EPOLLERR : 0;
    bool has_bytes = socket->connection != NULL &&
                     socket->connection->pipes[1 - socket->side].unread > 0;
    if (socket->is_shut_in && socket->is_shut_out)
        events |= EPOLLHUP;
    if (socket->is_shut_in)
        events |= EPOLLIN | EPOLLRDHUP;
    if (has_bytes)
        events |= EPOLLIN;
    if (socket->is_shut_out || weir__sim_stream_has_room(socket))
        events |= EPOLLOUT;
    else
        socket->wants_room = true;
    return events;
}

uint32_t weir__sim_socket_events(weir_sim_socket *socket)
{
    if (socket->type == SOCK_DGRAM)
        return weir__list_is_empty(&socket->waiting) ? EPOLLOUT : EPOLLIN | EPOLLOUT;
    switch (socket->state) {
    case WEIR_SIM_FRESH:
        return EPOLLOUT | EPOLLHUP;
    case WEIR_SIM_CONNECTING:
        return 0;
    case WEIR_SIM_LISTENING:
        return has_acceptable(socket) ? EPOLLIN : 0;
    default:
        return stream_events(socket);
    }
}

/* Making and ending -------------------------------------------------------------------------- */

int weir__sim_socket_new(weir_sim_host *host, int family, int type, weir_sim_socket **out)
{
    weir_sim_socket *socket = weir__zalloc(sizeof *socket);
    if (socket == NULL)
        return -ENOMEM;
    socket->file = (weir_sim_file){ .kind = WEIR_SIM_SOCKET, .fd = -1, .host = host };
    socket->family = family;
    socket->type = type;
    weir__list_init(&socket->waiting);
    *out = socket;
    return 0;
}

int weir__sim_shutdown(weir_sim_socket *socket, int how)
{
    if (socket->state != WEIR_SIM_CONNECTED || socket->type != SOCK_STREAM)
        return -ENOTCONN;
    WEIR_SIM_NOTE(&socket->file, "shutdown");
    if (how != SHUT_WR)
        socket->is_shut_in = true;
    if (how != SHUT_RD)
        weir__sim_stream_finish(socket);
    weir__sim_file_news(&socket->file);
    return 0;
}

void weir__sim_socket_free(weir_sim_socket *socket)
{
    if (socket->type == SOCK_DGRAM)
        weir__sim_datagrams_drop(socket);
    else
        weir__sim_listener_end(socket);
    weir__sim_handshake_end(socket);
    if (socket->connection != NULL)
        weir__sim_stream_close(socket);
    if (weir__list_is_linked(&socket->bound))
        weir__list_remove(&socket->bound);
    weir__sim_file_forget(&socket->file);
    weir__free(socket);
}
