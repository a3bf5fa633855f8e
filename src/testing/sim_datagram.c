/* SPDX-License-Identifier: MIT */
/* Simulated datagrams: each for itself, in any order, or not at all. */
#include "base/alloc.h"
#include "testing/sim.h"

#include <errno.h>
#include <string.h>

#define LARGEST 65507
#define MOST_WAITING 256 /* at a socket; what is more is dropped */

typedef struct datagram {
    weir_list_node node; /* among those under way, or those that wait to be received */
    weir_sim_event arrival;
    weir_sim *sim;
    weir_sim_host *to_host;
    weir_address from, to;
    size_t length;
    uint8_t bytes[];
} datagram;

static void drop(datagram *self)
{
    weir__sim_event_remove(self->sim, &self->arrival);
    weir__list_remove(&self->node);
    weir__free(self);
}

static bool wants(const weir_sim_socket *socket, const datagram *what)
{
    return socket != NULL && socket->waiting_count < MOST_WAITING &&
           (socket->state != WEIR_SIM_CONNECTED ||
            weir_address_equal(&socket->remote, &what->from));
}

static void on_arrival(weir_sim_event *event)
{
    datagram *self = WEIR_CONTAINER(event, datagram, arrival);
    weir_sim_socket *to = weir__sim_find_socket(self->to_host, SOCK_DGRAM, &self->to, false);
    if (!wants(to, self)) {
        drop(self);
        return;
    }
    WEIR_SIM_NOTE(&to->file, "a datagram of %zu bytes arrives", self->length);
    weir__sim_event_remove(self->sim, &self->arrival);
    weir__list_remove(&self->node);
    weir__list_push_back(&to->waiting, &self->node);
    to->waiting_count++;
    weir__sim_file_news(&to->file);
}

static size_t length_of(const struct msghdr *message)
{
    size_t length = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        length += message->msg_iov[i].iov_len;
    return length;
}

static void copy_in(uint8_t *to, const struct msghdr *message)
{
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        if (message->msg_iov[i].iov_len > 0)
            memcpy(to, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
        to += message->msg_iov[i].iov_len;
    }
}

static int launch(weir_sim_socket *socket, weir_sim_host *host, const weir_address *to,
                  const struct msghdr *message)
{
    weir_sim *sim = socket->file.host->sim;
    size_t length = length_of(message);
    datagram *self = weir__alloc(sizeof *self + length);
    if (self == NULL)
        return -ENOBUFS;
    *self = (datagram){ .sim = sim, .to_host = host, .from = socket->local, .to = *to };
    self->length = length;
    copy_in(self->bytes, message);
    if (weir__sim_event_add(sim, &self->arrival, on_arrival) < 0) {
        weir__free(self);
        return -ENOBUFS;
    }
    weir__list_push_back(&sim->datagrams, &self->node);
    weir__sim_event_set(sim, &self->arrival,
                        sim->now_ns + weir__sim_travel_ns(socket->file.host, host, length));
    return 0;
}

/* What cannot get there is lost, and nobody learns that. */
int weir__sim_datagram_send(weir_sim_socket *socket, const struct msghdr *message)
{
    weir_sim_host *from = socket->file.host;
    weir_sim *sim = from->sim;
    size_t length = length_of(message);
    weir_address to = socket->remote;
    if (message->msg_name != NULL &&
        weir_address_from_sockaddr(&to, message->msg_name, message->msg_namelen) < 0)
        return -EINVAL;
    weir_address_unmap(&to);
    const struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (control != NULL && control->cmsg_level == IPPROTO_UDP)
        return -EOPNOTSUPP; /* several in one */
    if (weir_address_port(&to) == 0)
        return -EDESTADDRREQ;
    if (length > LARGEST)
        return -EMSGSIZE;
    int code = weir__sim_bind_any(socket, &to);
    if (code < 0)
        return code;
    WEIR_SIM_NOTE(&socket->file, "send a datagram of %zu bytes", length);
    sim->stats.datagrams_sent++;
    weir_sim_host *host = weir__sim_find_host(from, &to);
    if (host == NULL)
        return (int)length;
    const weir_sim_link *link = &weir__sim_way(from, host)->link;
    weir__sim_draw_cut(from, host);
    bool is_lost = weir_sim_chance(sim, link->lose) || weir__sim_is_cut(from, host);
    if (!is_lost && weir_sim_chance(sim, link->duplicate))
        launch(socket, host, &to, message);
    code = is_lost ? 0 : launch(socket, host, &to, message);
    return code < 0 ? code : (int)length;
}

static size_t copy_out(const datagram *self, struct msghdr *message)
{
    size_t done = 0;
    for (size_t i = 0; i < message->msg_iovlen && done < self->length; i++) {
        size_t left = self->length - done, room = message->msg_iov[i].iov_len;
        size_t part = room < left ? room : left;
        memcpy(message->msg_iov[i].iov_base, self->bytes + done, part);
        done += part;
    }
    return done;
}

int weir__sim_datagram_receive(weir_sim_socket *socket, struct msghdr *message)
{
    weir_list_node *node = weir__list_first(&socket->waiting);
    if (node == NULL)
        return -EAGAIN;
    datagram *self = WEIR_CONTAINER(node, datagram, node);
    size_t length = copy_out(self, message);
    message->msg_flags = length < self->length ? MSG_TRUNC : 0;
    message->msg_controllen = 0;
    if (message->msg_name != NULL)
        weir__sim_write_address(socket->family, &self->from, message->msg_name,
                                &message->msg_namelen);
    WEIR_SIM_NOTE(&socket->file, "recv a datagram of %zu bytes", length);
    socket->file.host->sim->stats.datagrams_received++;
    socket->waiting_count--;
    drop(self);
    return (int)length;
}

static void drop_all(weir_list *datagrams)
{
    weir_list_node *node;
    while ((node = weir__list_first(datagrams)) != NULL)
        drop(WEIR_CONTAINER(node, datagram, node));
}

void weir__sim_datagrams_drop(weir_sim_socket *socket)
{
    drop_all(&socket->waiting);
}

void weir__sim_datagrams_end(weir_sim *sim)
{
    drop_all(&sim->datagrams);
}
