/* SPDX-License-Identifier: MIT */
/* How simulated streams get connected. */
#include "testing/sim.h"

#include <errno.h>
#include <string.h>

/* When nobody answers, TCP asks again. */
#define ASK_AGAIN_NS 1000000000

/*
 *      client                                     listener
 *      connect: CONNECTING  ---- ask ---->        a child, which is not to be accepted yet
 *      answered: CONNECTED  <--- answer ---
 *                           ---- confirm -->      now it is
 *
 * A client that was refused learns that with the answer, too. `step` of the client is the first
 * two, that of the child the last.
 */

static weir_sim_host *host_of(const weir_sim_socket *socket)
{
    return socket->file.host;
}

static void set_step(weir_sim_socket *socket, int64_t at_ns)
{
    weir__sim_event_set(host_of(socket)->sim, &socket->step, at_ns);
}

static int64_t now_of(const weir_sim_socket *socket)
{
    return host_of(socket)->sim->now_ns;
}

static void give_up(weir_sim_socket *socket, int error)
{
    weir_sim_stats *stats = &host_of(socket)->sim->stats;
    stats->refused += error == ECONNREFUSED;
    stats->timeouts += error == ETIMEDOUT;
    set_step(socket, WEIR_SIM_NEVER);
    weir__sim_stream_break(socket, error);
}

static weir_sim_socket *peer_of(const weir_sim_socket *socket)
{
    return socket->connection != NULL ? socket->connection->ends[1 - socket->side] : NULL;
}

/* Who gives up has never been there. */
static void drop_child(weir_sim_socket *client)
{
    weir_sim_socket *child = peer_of(client);
    if (child != NULL && child->listener != NULL && !child->is_acceptable)
        weir__sim_socket_free(child);
}

/* Nobody answers: later, or not at all any more. */
static void try_again(weir_sim_socket *socket, int64_t at_ns)
{
    if (now_of(socket) < socket->give_up_ns) {
        set_step(socket, at_ns < socket->give_up_ns ? at_ns : socket->give_up_ns);
        return;
    }
    drop_child(socket);
    give_up(socket, ETIMEDOUT);
}

static bool is_full(const weir_sim_socket *listener)
{
    return listener->waiting_count > listener->backlog;
}

static void on_step(weir_sim_event *event);

static int add_child(weir_sim_socket *listener, weir_sim_socket *client, weir_sim_socket **out)
{
    weir_sim_socket *child;
    int code = weir__sim_socket_new(host_of(listener), listener->family, SOCK_STREAM, &child);
    if (code < 0)
        return code;
    code = weir__sim_event_add(host_of(child)->sim, &child->step, on_step);
    if (code == 0)
        code = weir__sim_connection_new(client, child);
    if (code < 0) {
        weir__sim_socket_free(child);
        return code;
    }
    child->state = WEIR_SIM_CONNECTED;
    child->local = client->remote;
    child->remote = client->local;
    child->linger = listener->linger;
    memcpy(child->options, listener->options, sizeof child->options);
    child->listener = listener;
    weir__list_push_back(&listener->waiting, &child->link);
    listener->waiting_count++;
    *out = child;
    return 0;
}

/* The question has come to where it went. */
static void ask(weir_sim_socket *client)
{
    weir_sim_host *from = host_of(client), *to = weir__sim_find_host(from, &client->remote);
    weir_sim_socket *child = NULL;
    int64_t later_ns = now_of(client) + ASK_AGAIN_NS;
    if (to == NULL || weir__sim_is_cut(from, to)) {
        try_again(client, later_ns);
        return;
    }
    weir_sim_socket *listener = weir__sim_find_socket(to, SOCK_STREAM, &client->remote, true);
    bool is_unlucky = weir_sim_chance(from->sim, weir__sim_way(from, to)->link.refuse);
    client->is_refused = listener == NULL || is_unlucky;
    if (!client->is_refused && (is_full(listener) || add_child(listener, client, &child) < 0)) {
        try_again(client, later_ns);
        return;
    }
    int64_t answer_ns = now_of(client) + weir__sim_travel_ns(to, from, 0);
    set_step(client, answer_ns);
    if (child != NULL) /* what it sends comes behind the answer */
        child->connection->pipes[child->side].last_ns = answer_ns;
}

static void answered(weir_sim_socket *client)
{
    weir_sim_host *from = host_of(client), *to = weir__sim_find_host(from, &client->remote);
    if (weir__sim_is_cut(to, from)) {
        try_again(client, weir__sim_retry_ns(to, from));
        return;
    }
    if (client->is_refused) {
        give_up(client, ECONNREFUSED);
        return;
    }
    weir_sim_socket *child = peer_of(client);
    int64_t confirm_ns = now_of(client) + weir__sim_travel_ns(from, to, 0);
    WEIR_SIM_NOTE(&client->file, "is connected");
    set_step(client, WEIR_SIM_NEVER);
    client->state = WEIR_SIM_CONNECTED;
    client->connection->pipes[client->side].last_ns = confirm_ns;
    weir__sim_file_news(&client->file);
    if (child != NULL)
        set_step(child, confirm_ns);
}

void weir__sim_offer(weir_sim_socket *child)
{
    child->is_acceptable = true;
    weir__sim_file_news(&child->listener->file);
}

static void confirm(weir_sim_socket *child)
{
    weir_sim_connection *connection = child->connection;
    weir_sim_host *from = connection->hosts[1 - child->side], *to = connection->hosts[child->side];
    if (weir__sim_is_cut(from, to)) {
        set_step(child, weir__sim_retry_ns(from, to));
        return;
    }
    set_step(child, WEIR_SIM_NEVER);
    weir__sim_offer(child);
}

static void on_step(weir_sim_event *event)
{
    weir_sim_socket *socket = WEIR_CONTAINER(event, weir_sim_socket, step);
    if (socket->listener != NULL)
        confirm(socket);
    else if (socket->state != WEIR_SIM_CONNECTING)
        set_step(socket, WEIR_SIM_NEVER); /* it was reset meanwhile */
    else if (socket->connection != NULL || socket->is_refused)
        answered(socket);
    else
        ask(socket);
}

/* Unix sockets: nothing takes any time. */
static int connect_by_path(weir_sim_socket *client)
{
    weir_sim_host *host = host_of(client);
    weir_sim_socket *child, *found = weir__sim_find_socket(host, 0, &client->remote, false);
    if (found == NULL) {
        size_t length;
        const struct sockaddr *address = weir_address_sockaddr(&client->remote, &length);
        bool is_abstract = length > sizeof(sa_family_t) && address->sa_data[0] == '\0';
        return is_abstract ? -ECONNREFUSED : -ENOENT;
    }
    if (found->type != client->type)
        return -EPROTOTYPE;
    if (found->state != WEIR_SIM_LISTENING ||
        weir_sim_chance(host->sim, weir__sim_way(host, host)->link.refuse))
        return -ECONNREFUSED;
    if (is_full(found))
        return -EAGAIN;
    int code = add_child(found, client, &child);
    if (code < 0)
        return code;
    client->state = WEIR_SIM_CONNECTED;
    weir__sim_offer(child);
    return 0;
}

int weir__sim_connect(weir_sim_socket *socket, const weir_address *remote)
{
    weir_sim_host *host = host_of(socket);
    if (socket->state != WEIR_SIM_FRESH && socket->type == SOCK_STREAM)
        return socket->state == WEIR_SIM_CONNECTING  ? -EALREADY
               : socket->state == WEIR_SIM_CONNECTED ? -EISCONN
                                                     : -EINVAL;
    socket->remote = *remote;
    weir_address_unmap(&socket->remote);
    if (socket->family == AF_UNIX)
        return connect_by_path(socket);
    int code = weir__sim_bind_any(socket, &socket->remote);
    if (code < 0)
        return code;
    if (socket->type == SOCK_DGRAM) {
        socket->state = WEIR_SIM_CONNECTED;
        return 0;
    }
    code = weir__sim_event_add(host->sim, &socket->step, on_step);
    if (code < 0)
        return code;
    weir_sim_host *to = weir__sim_find_host(host, &socket->remote);
    if (to != NULL)
        weir__sim_draw_cut(host, to);
    socket->state = WEIR_SIM_CONNECTING;
    socket->give_up_ns = host->sim->now_ns + host->sim->config.timeout_ns;
    set_step(socket, host->sim->now_ns + (to != NULL ? weir__sim_travel_ns(host, to, 0) : 0));
    host->sim->stats.connects++;
    return -EINPROGRESS;
}

static weir_sim_socket *first_acceptable(const weir_sim_socket *listener)
{
    for (weir_list_node *node = weir__list_first(&listener->waiting); node != NULL;
         node = weir__list_next(&listener->waiting, node)) {
        weir_sim_socket *child = WEIR_CONTAINER(node, weir_sim_socket, link);
        if (child->is_acceptable)
            return child;
    }
    return NULL;
}

int weir__sim_accept(weir_sim_socket *listener, weir_sim_socket **child)
{
    if (listener->state != WEIR_SIM_LISTENING)
        return -EINVAL;
    *child = first_acceptable(listener);
    if (*child == NULL)
        return -EAGAIN;
    int fd = weir__sim_file_open(host_of(listener), &(*child)->file, WEIR_SIM_SOCKET);
    if (fd >= 0) {
        weir__sim_handshake_end(*child);
        host_of(listener)->sim->stats.accepts++;
    }
    return fd;
}

void weir__sim_handshake_end(weir_sim_socket *socket)
{
    if (socket->state == WEIR_SIM_CONNECTING)
        drop_child(socket);
    weir__sim_event_remove(host_of(socket)->sim, &socket->step);
    if (socket->listener == NULL)
        return;
    weir__list_remove(&socket->link);
    socket->listener->waiting_count--;
    socket->listener = NULL;
}

void weir__sim_listener_end(weir_sim_socket *listener)
{
    weir_list_node *node;
    while ((node = weir__list_first(&listener->waiting)) != NULL)
        weir__sim_socket_free(WEIR_CONTAINER(node, weir_sim_socket, link));
}
