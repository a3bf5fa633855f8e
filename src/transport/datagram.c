/* SPDX-License-Identifier: MIT */
/* Datagram channels: UDP and Unix. */
#include "base/alloc.h"
#include "base/counter.h"
#include "transport/retry.h"

#include <weir/datagram.h>

#include <errno.h>

#define DEFAULT_BYTES 2048
#define LARGEST_BYTES 65535 /* what the kernel has put together */
#define MOST_REPORTS 16     /* of unreachable ports, in a row, on behalf of one send */

typedef struct datagram_channel {
    weir_socket socket;
    weir_address local; /* while it is connected, the one that is used for that */
    weir_address bound; /* none: it was not, the kernel chooses */
    weir_retry retry;
    _Atomic(uint32_t) max_bytes; /* others read these three */
    _Atomic(bool) delivers_truncated;
    _Atomic(int) multicast_interface; /* for IPv4: the kernel tells only its address, if that */
    bool has_passed_on;               /* something, in this batch */
    bool is_offloading;               /* the kernel may put several together */
    uint8_t reports;                  /* of unreachable ports, in a row */
    _Atomic(uint64_t) truncated, unreachable;
} datagram_channel;

static datagram_channel *datagrams_of(const weir_channel *channel)
{
    return (datagram_channel *)channel;
}

/* What came of a datagram sent before, and says nothing about the next. */
static bool is_report(int code)
{
    return code == -ECONNREFUSED || code == -EHOSTUNREACH || code == -ENETUNREACH ||
           code == -EHOSTDOWN || code == -ENETDOWN || code == -EPROTO || code == -EMSGSIZE ||
           code == -ECONNRESET;
}

static void tell(datagram_channel *self, int report)
{
    weir__pipeline_fire_code(&self->socket.channel, report, "a datagram did not get there");
}

/* Reading -------------------------------------------------------------------------------------- */

static void pass_on(datagram_channel *self, weir_buf *content, const weir_io_result *result,
                    bool is_truncated)
{
    weir_channel *channel = &self->socket.channel;
    weir_datagram *datagram = weir_datagram_new(content, &self->local, NULL);
    if (datagram == NULL) {
        weir_buf_release(content); /* one that was lost on the way, as any other */
        return;
    }
    if (result->address != NULL)
        weir_address_from_sockaddr(&datagram->sender, result->address, result->address_length);
    if (result->recipient != NULL) {
        if (weir_address_port(&self->local) == 0) /* the kernel has chosen one with a send */
            weir__socket_local_address(channel, &self->local);
        datagram->recipient = *result->recipient;
        if (weir_address_port(&datagram->recipient) == 0)
            weir_address_set_port(&datagram->recipient, weir_address_port(&self->local));
    }
    datagram->is_broadcast = result->is_broadcast;
    datagram->is_truncated = is_truncated;
    self->has_passed_on = true;
    weir__channel_read(channel, &datagram->msg, weir_msg_size(&datagram->msg));
}

/* One that is too long is dropped, or cut: by the kernel, unless that has put several together. */
static void pass_on_or_drop(datagram_channel *self, weir_buf *content, const weir_io_result *result)
{
    bool is_too_long = weir_buf_readable(content) > self->max_bytes;
    bool is_truncated = result->is_truncated || is_too_long;
    if (is_truncated)
        weir__counter_add(&self->truncated, 1);
    if (is_truncated && !self->delivers_truncated) {
        weir_buf_release(content);
        return;
    }
    if (is_too_long)
        weir_buf_set_writer(content, weir_buf_reader(content) + self->max_bytes);
    pass_on(self, content, result, is_truncated);
}

/* The kernel has put several together: each is a message of its own. */
static void pass_on_segments(datagram_channel *self, const weir_io_result *result)
{
    while (weir_buf_readable(result->buf) > 0 && !weir__channel_is_closing(&self->socket.channel)) {
        weir_buf *piece;
        size_t left = weir_buf_readable(result->buf);
        size_t length = left < result->segment_bytes ? left : result->segment_bytes;
        if (weir_buf_read_slice(result->buf, length, &piece) < 0)
            break;
        pass_on_or_drop(self, piece, result);
    }
    weir_buf_release(result->buf);
}

static void deliver(datagram_channel *self, const weir_io_result *result)
{
    if (weir__channel_is_closing(&self->socket.channel))
        weir_buf_release(result->buf);
    else if (result->segment_bytes > 0)
        pass_on_segments(self, result);
    else
        pass_on_or_drop(self, result->buf, result);
}

static void datagram_start_reading(weir_channel *channel)
{
    datagram_channel *self = datagrams_of(channel);
    if (self->socket.in.is_in_flight || self->retry.is_waiting)
        return;
    self->socket.in.datagrams.bytes = self->is_offloading ? LARGEST_BYTES : self->max_bytes;
    self->socket.in.datagrams.expected = 0;
    weir__socket_start_reading(channel);
}

static void on_received(weir_io_op *op, const weir_io_result *result)
{
    datagram_channel *self = datagrams_of(&weir__socket_of_in(op)->channel);
    weir_channel *channel = &self->socket.channel;
    if (result->buf != NULL)
        deliver(self, result);
    if (result->is_armed || weir__socket_continue_quiesce(&self->socket) || result->buf != NULL)
        return;
    if (is_report(result->code)) {
        weir__counter_add(&self->unreachable, 1);
        tell(self, result->code);
    } else if (result->code != -ECANCELED) {
        weir__retry_later(&self->retry, &self->socket, result->code);
    }
    if (channel->in.is_reading)
        datagram_start_reading(channel);
}

static void on_batch_end(weir_io_op *op)
{
    weir_channel *channel = &weir__socket_of_in(op)->channel;
    datagram_channel *self = datagrams_of(channel);
    bool has_passed_on = self->has_passed_on;
    self->has_passed_on = false;
    if (has_passed_on && !weir__channel_is_closing(channel))
        weir__channel_read_complete(channel);
    if (channel->in.is_reading)
        datagram_start_reading(channel);
}

/* Sending -------------------------------------------------------------------------------------- */

/* One that does not fit into the pieces ends the batch; the first never will, and then nothing is
 * sent. */
static bool next_datagram(weir_io_file *file, unsigned n, weir_io_datagram *to,
                          struct iovec *pieces, int max)
{
    weir_channel *channel = &weir__socket_of_file(file)->channel;
    const datagram_channel *self = datagrams_of(channel);
    weir_msg *msg = weir__outbound_at(&channel->out.queue, n);
    if (msg == NULL)
        return false;
    const weir_buf *content = (const weir_buf *)msg;
    if (msg->type == &weir_datagram_type) {
        const weir_datagram *datagram = (const weir_datagram *)msg;
        content = datagram->content;
        to->to = weir_address_kind_of(&datagram->recipient) != WEIR_ADDRESS_NONE
                     ? &datagram->recipient
                     : NULL;
        /* From where the socket is bound to they come anyway, and a broadcast address, which that
         * may be, is nobody's to send from. */
        to->from = weir_address_equal(&datagram->sender, &self->local) ? NULL : &datagram->sender;
        to->segment_bytes = datagram->segment_bytes;
    }
    size_t length = weir_buf_readable(content), covered = 0;
    int count = length > 0 ? weir_buf_iovec(content, weir_buf_reader(content), length, pieces, max,
                                            &covered)
                           : 0;
    if (count < 0 || covered < length)
        return false;
    to->piece_count = count;
    return true;
}

/* So many of the first ones went. */
static void account(datagram_channel *self, int sent)
{
    weir_channel *channel = &self->socket.channel;
    for (int i = 0; i < sent; i++)
        weir__outbound_remove(&channel->out.queue, 0);
}

/* The first one failed, alone. */
static void fail_first(datagram_channel *self, int code)
{
    weir_outbound *queue = &self->socket.channel.out.queue;
    if (weir__outbound_has_flushed(queue) && queue->first->promise == NULL)
        queue->lost = code;
    weir__outbound_remove(queue, code);
}

/* Whether it is about one that was sent before: -EMSGSIZE is this one's own fault, and a Unix
 * socket knows at once. */
static bool is_about_another(const datagram_channel *self, int code)
{
    return code != -EMSGSIZE && is_report(code) && self->socket.is_peer_known &&
           self->socket.family != AF_UNIX;
}

static int datagram_gather(weir_io_file *file, weir_io_send *send)
{
    weir_channel *channel = &weir__socket_of_file(file)->channel;
    send->kind = WEIR_IO_SEND_DATAGRAMS;
    if (weir__outbound_current(&channel->out.queue) != NULL)
        return 1;
    weir__channel_sent(channel, 0); /* only cancelled ones were left */
    return 0;
}

/* A report about an earlier datagram has nothing to do with this one, which is tried again; not for
 * ever. */
static void datagram_on_sent(weir_io_file *file, int code)
{
    weir_channel *channel = &weir__socket_of_file(file)->channel;
    datagram_channel *self = datagrams_of(channel);
    bool is_other = code < 0 && is_about_another(self, code) && self->reports < MOST_REPORTS;
    self->reports = is_other ? self->reports + 1 : 0;
    if (is_other) {
        weir__counter_add(&self->unreachable, 1);
        tell(self, code);
    } else {
        if (code > 0)
            account(self, code);
        else
            fail_first(self, code < 0 ? code : -EMSGSIZE);
        weir__channel_sent(channel, 0);
    }
    if (weir__outbound_has_flushed(&channel->out.queue))
        weir__io_send(weir__socket_io(&self->socket), file);
}

static const weir_io_sender datagram_sender = {
    .gather = datagram_gather,
    .next_datagram = next_datagram,
    .on_sent = datagram_on_sent,
    .on_send_cancelled = weir__socket_send_cancelled,
};

static void datagram_flush(weir_channel *channel)
{
    if (weir__outbound_has_flushed(&channel->out.queue))
        weir__io_send(weir__socket_io(weir__socket_of(channel)), &weir__socket_of(channel)->file);
}

static bool datagram_takes(const weir_channel *channel, const weir_msg *msg)
{
    if (msg->type != &weir_datagram_type)
        return false;
    /* Only UDP cuts; the others would send it whole. */
    return ((const weir_datagram *)msg)->segment_bytes == 0 ||
           channel->transport == &weir__udp_transport;
}

/* Binding and connecting ----------------------------------------------------------------------- */

/* A socket for all addresses is told by the kernel which one each datagram was for. */
static void learn_address(datagram_channel *self)
{
    weir_sys *sys = self->socket.sys;
    const int on = 1;
    int fd = self->socket.file.fd;
    weir__socket_local_address(&self->socket.channel, &self->local);
    if (!weir_address_is_any(&self->local))
        return;
    if (self->socket.family == AF_INET6)
        sys->setsockopt(sys, fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
    /* For both families as well: that alone tells a broadcast. */
    sys->setsockopt(sys, fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
}

static int bind_now(datagram_channel *self, const weir_address *local)
{
    int code = weir__socket_bind(&self->socket, local);
    if (code == 0)
        weir__socket_local_address(&self->socket.channel, &self->bound);
    return code;
}

/* A Unix datagram waits in its receiver's queue. Connected, the kernel says when there is room in
 * it; else only that there is none. */
static void note_fullness(datagram_channel *self)
{
    self->socket.file.fails_when_full = self->socket.family == AF_UNIX &&
                                        !self->socket.is_peer_known;
}

static int datagram_attach(weir_channel *channel)
{
    datagram_channel *self = datagrams_of(channel);
    weir_address remote;
    if (self->socket.is_connected) {
        learn_address(self);
        self->socket.is_peer_known = weir__socket_remote_address(channel, &remote) == 0;
        if (!self->socket.is_peer_known)
            self->bound = self->local;
    }
    int code = weir__socket_attach(channel);
    self->socket.file.sender = &datagram_sender;
    note_fullness(self);
    return code;
}

static void datagram_bind(weir_channel *channel, const weir_address *local, weir_promise *promise)
{
    datagram_channel *self = datagrams_of(channel);
    int code = bind_now(self, local);
    if (code == 0) {
        learn_address(self);
        self->socket.is_connected = true;
    }
    weir__promise_end(promise, code);
    if (code == 0)
        weir__channel_activate(channel);
}

/* Only the kernel is asked, who answers at once. */
static void datagram_connect(weir_channel *channel, const weir_address *remote,
                             const weir_address *local, weir_promise *promise)
{
    datagram_channel *self = datagrams_of(channel);
    weir_sys *sys = self->socket.sys;
    size_t length;
    const struct sockaddr *address = weir_address_sockaddr(remote, &length);
    int code = address == NULL ? -EINVAL : 0;
    if (code == 0 && local != NULL)
        code = bind_now(self, local);
    if (code == 0)
        code = sys->connect(sys, self->socket.file.fd, address, (socklen_t)length);
    if (code == 0) {
        learn_address(self);
        self->socket.is_peer_known = self->socket.is_connected = true;
        note_fullness(self);
    }
    weir__promise_end(promise, code);
    if (code == 0)
        weir__channel_activate(channel);
}

/* With the connection the kernel forgets a port that it has chosen itself, also for who was bound
 * to it before: that one gets it back. */
static int keep_port(datagram_channel *self)
{
    weir_socket *socket = &self->socket;
    size_t length;
    const struct sockaddr *address = weir_address_sockaddr(&self->bound, &length);
    weir__socket_local_address(&socket->channel, &self->local);
    if (address == NULL || socket->family == AF_UNIX || weir_address_port(&self->local) != 0)
        return 0;
    return socket->sys->bind(socket->sys, socket->file.fd, address, (socklen_t)length);
}

/* It hears everybody again, at the address that it was bound to. If it was to none, the next send
 * gets it one. */
static void datagram_disconnect(weir_channel *channel, weir_promise *promise)
{
    datagram_channel *self = datagrams_of(channel);
    const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
    int code = self->socket.is_peer_known
                   ? self->socket.sys->connect(self->socket.sys, self->socket.file.fd, &nobody,
                                               sizeof nobody)
                   : -ENOTCONN;
    if (code == 0) {
        self->socket.is_peer_known = false;
        note_fullness(self);
        code = keep_port(self);
        learn_address(self);
    }
    weir__promise_end(promise, code);
}

/* The transport -------------------------------------------------------------------------------- */

static bool datagram_quiesce(weir_channel *channel, bool is_closing)
{
    weir__retry_cancel(&datagrams_of(channel)->retry);
    return weir__socket_quiesce(channel, is_closing);
}

static void datagram_destroy(weir_channel *channel)
{
    weir__free(datagrams_of(channel));
}

static int datagram_set_option(weir_channel *channel, weir_option option, int64_t value)
{
    datagram_channel *self = datagrams_of(channel);
    int code = 0;
    switch (option) {
    case WEIR_OPTION_MAX_DATAGRAM_BYTES:
        self->max_bytes = (uint32_t)value;
        break;
    case WEIR_OPTION_DELIVER_TRUNCATED:
        self->delivers_truncated = value != 0;
        return 0;
    case WEIR_OPTION_RECEIVE_OFFLOAD:
        code = weir__socket_set_option(channel, option, value);
        self->is_offloading = code == 0 ? value != 0 : self->is_offloading;
        break;
    case WEIR_OPTION_MULTICAST_INTERFACE:
        code = weir__socket_set_option(channel, option, value);
        if (code == 0)
            self->multicast_interface = (int)value;
        return code;
    default:
        return weir__socket_set_option(channel, option, value);
    }
    if (self->socket.in.is_in_flight) { /* the next buffers have the other size */
        self->socket.in.datagrams.bytes = self->is_offloading ? LARGEST_BYTES : self->max_bytes;
        weir__socket_stop_reading(channel); /* and begins again */
    }
    return code;
}

static int datagram_get_option(const weir_channel *channel, weir_option option, int64_t *value)
{
    const datagram_channel *self = datagrams_of(channel);
    if (option == WEIR_OPTION_MAX_DATAGRAM_BYTES)
        *value = self->max_bytes;
    else if (option == WEIR_OPTION_DELIVER_TRUNCATED)
        *value = self->delivers_truncated;
    else if (option == WEIR_OPTION_MULTICAST_INTERFACE && self->socket.family == AF_INET)
        *value = self->multicast_interface;
    else
        return weir__socket_get_option(channel, option, value);
    return 0;
}

#define DATAGRAM(transport_name)                                                                   \
    {                                                                                              \
        .name = (transport_name), .attach = datagram_attach, .detach = weir__socket_detach,        \
        .is_active = weir__socket_is_active, .bind = datagram_bind, .connect = datagram_connect,   \
        .disconnect = datagram_disconnect, .start_reading = datagram_start_reading,                \
        .stop_reading = weir__socket_stop_reading, .takes = datagram_takes,                        \
        .flush = datagram_flush, .quiesce = datagram_quiesce, .close = weir__socket_close,         \
        .destroy = datagram_destroy, .local_address = weir__socket_local_address,                  \
        .remote_address = weir__socket_remote_address, .set_option = datagram_set_option,          \
        .get_option = datagram_get_option,                                                         \
    }

const weir_transport weir__udp_transport = DATAGRAM("udp");
const weir_transport weir__unix_datagram_transport = DATAGRAM("unix datagram");

int weir__datagram_new(weir_channel **channel, weir_sys *sys, int fd, int family, bool is_bound)
{
    datagram_channel *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    weir__socket_init(&self->socket,
                      family == AF_UNIX ? &weir__unix_datagram_transport : &weir__udp_transport,
                      NULL, sys, fd, family);
    self->socket.is_connected = is_bound;
    self->socket.in.kind = WEIR_IO_RECEIVE_DATAGRAM;
    self->socket.in.on_done = on_received;
    self->socket.in.on_batch_end = on_batch_end;
    self->max_bytes = DEFAULT_BYTES;
    *channel = &self->socket.channel;
    return 0;
}

int weir_channel_datagram_stats(const weir_channel *channel, weir_datagram_stats *stats)
{
    if (channel == NULL || stats == NULL)
        return -EINVAL;
    if (channel->transport != &weir__udp_transport &&
        channel->transport != &weir__unix_datagram_transport)
        return -EOPNOTSUPP;
    const datagram_channel *self = datagrams_of(channel);
    stats->truncated = atomic_load_explicit(&self->truncated, memory_order_relaxed);
    stats->unreachable = atomic_load_explicit(&self->unreachable, memory_order_relaxed);
    return 0;
}

/* Multicast ------------------------------------------------------------------------------------ */

static int change_membership(weir_channel *channel, const weir_address *group, unsigned interface,
                             const weir_address *source, bool is_joining)
{
    if (channel == NULL || !weir_address_is_multicast(group) ||
        (source != NULL && weir_address_kind_of(source) != weir_address_kind_of(group)))
        return -EINVAL;
    if (channel->transport != &weir__udp_transport)
        return -EOPNOTSUPP;
    weir_socket *self = weir__socket_of(channel);
    size_t length, source_length;
    const struct sockaddr *to = weir_address_sockaddr(group, &length);
    const struct sockaddr *from = weir_address_sockaddr(source, &source_length);
    int level = weir_address_kind_of(group) == WEIR_ADDRESS_IPV4 ? IPPROTO_IP : IPPROTO_IPV6;
    struct group_req all = { .gr_interface = interface };
    struct group_source_req some = { .gsr_interface = interface };
    memcpy(&all.gr_group, to, length);
    memcpy(&some.gsr_group, to, length);
    if (from != NULL)
        memcpy(&some.gsr_source, from, source_length);
    int code = WEIR_ECLOSED;
    weir__channel_lock(channel);
    if (self->is_open && from == NULL)
        code = self->sys->setsockopt(self->sys, self->fd, level,
                                     is_joining ? MCAST_JOIN_GROUP : MCAST_LEAVE_GROUP, &all,
                                     sizeof all);
    else if (self->is_open)
        code = self->sys->setsockopt(
            self->sys, self->fd, level,
            is_joining ? MCAST_JOIN_SOURCE_GROUP : MCAST_LEAVE_SOURCE_GROUP, &some, sizeof some);
    weir__channel_unlock(channel);
    return code;
}

int weir_datagram_join(weir_channel *channel, const weir_address *group, unsigned interface,
                       const weir_address *source)
{
    return change_membership(channel, group, interface, source, true);
}

int weir_datagram_leave(weir_channel *channel, const weir_address *group, unsigned interface,
                        const weir_address *source)
{
    return change_membership(channel, group, interface, source, false);
}
