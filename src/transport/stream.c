/* SPDX-License-Identifier: MIT */
/* Streams: TCP and Unix connections. */
#include "base/alloc.h"
#include "transport/sending.h"
#include "transport/socket.h"

#include <errno.h>
#include <linux/tcp.h>
#include <string.h>

/* Reading -------------------------------------------------------------------------------------- */

/* A buffer with descriptors, or one that is not wanted any more. */
WEIR__BESIDE static void deliver_other(weir_socket *self, const weir_io_result *result)
{
    weir_msg *msg = weir__received(self->sys, result);
    if (msg == NULL)
        weir__channel_read_ended(&self->channel, -ENOMEM); /* bytes must not be skipped */
    else if (weir__channel_is_closing(&self->channel))
        weir_msg_release(msg);
    else
        weir__channel_read(&self->channel, msg, weir_msg_size(msg));
}

WEIR__BESIDE static void on_receive_ended(weir_socket *self, const weir_io_result *result)
{
    if (result->code < 0 && result->code != -ECANCELED && self->is_quiescing)
        self->file.kept_code = (int16_t)result->code; /* the kernel reports it once */
    if (weir__socket_continue_quiesce(self) || result->buf != NULL)
        return; /* after the one buffer of a one-shot receive the end of the batch goes on */
    if (result->code == -ECANCELED && self->channel.in.is_reading)
        weir__socket_start_reading(&self->channel);
    else if (result->code < 0 && result->code != -ECANCELED && self->is_relayed)
        self->file.kept_code =
            (int16_t)result->code; /* for the relay, which has waited for this end */
    else if (result->code != -ECANCELED && !self->is_relayed)
        weir__channel_read_ended(&self->channel, result->code);
}

WEIR__HOT static void on_received(weir_io_op *op, const weir_io_result *result)
{
    weir_socket *self = weir__socket_of_in(op);
    bool is_plain = result->descriptor_count == 0 && !weir__channel_is_closing(&self->channel);
    if (result->buf != NULL && is_plain)
        weir__channel_read(&self->channel, &result->buf->msg, (size_t)result->code);
    else if (result->buf != NULL)
        deliver_other(self, result);
    if (!result->is_armed)
        on_receive_ended(self, result);
}

WEIR__HOT static void on_batch_end(weir_io_op *op)
{
    weir__socket_end_batch(weir__socket_of_in(op));
}

/* Sending -------------------------------------------------------------------------------------- */

/* The front of the queue has no bytes of a buffer. */
WEIR__BESIDE static int gather_otherwise(weir_socket *self, weir_io_send *send)
{
    weir_channel *channel = &self->channel;
    weir_outbound *queue = &channel->out.queue;
    weir_msg *msg;
    while ((msg = weir__outbound_current(queue)) != NULL) {
        if (msg->type != &weir_buf_type)
            return weir__sending_prepare(self, msg, send);
        weir__outbound_sent(queue, 0); /* empty messages */
        int count = weir__outbound_gather(queue, send->pieces, send->max_pieces);
        if (count != 0)
            return count;
    }
    weir__channel_sent(channel, 0);
    return 0;
}

WEIR__HOT static int stream_gather(weir_io_file *file, weir_io_send *send)
{
    weir_socket *self = weir__socket_of_file(file);
    int count = weir__outbound_gather(&self->channel.out.queue, send->pieces, send->max_pieces);
    return count != 0 ? count : gather_otherwise(self, send);
}

/* 0, or the code that ends everything. */
static int account(weir_socket *self, int sent)
{
    weir_outbound *queue = &self->channel.out.queue;
    if (queue->first->msg->type != &weir_buf_type)
        return weir__sending_sent(self, sent);
    weir__outbound_sent(queue, (size_t)sent);
    return 0;
}

WEIR__HOT static void stream_on_sent(weir_io_file *file, int code)
{
    weir_socket *self = weir__socket_of_file(file);
    weir_channel *channel = &self->channel;
    if (code >= 0 && weir__outbound_has_flushed(&channel->out.queue))
        code = account(self, code);
    if (code >= 0 || !weir__channel_is_closing(channel))
        weir__channel_sent(channel, code);
    if (code >= 0 && weir__outbound_has_flushed(&channel->out.queue))
        weir__io_send(weir__socket_io(self), file);
}

static const weir_io_sender stream_sender = {
    .gather = stream_gather,
    .on_sent = stream_on_sent,
    .on_send_cancelled = weir__socket_send_cancelled,
};

WEIR__HOT static void stream_flush(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    if (self->is_relay && channel->out.is_ended)
        weir__relaying_stop(self->extras->relaying);
    if (weir__outbound_has_flushed(&channel->out.queue))
        weir__io_send(weir__socket_io(self), &self->file);
}

void weir__stream_take_sender(weir_socket *self)
{
    self->file.sender = &stream_sender;
}

static bool stream_takes(const weir_channel *channel, const weir_msg *msg)
{
    return weir__sending_takes(weir__socket_of(channel), msg);
}

static void stream_shutdown(weir_channel *channel, weir_promise *promise)
{
    weir_socket *self = weir__socket_of(channel);
    int code = self->sys->shutdown(self->sys, self->file.fd, SHUT_WR);
    weir__promise_end(promise, code == -ENOTCONN ? 0 : code); /* the other side knows already */
}

/* A client may choose where it comes from before it connects. */
static void stream_bind(weir_channel *channel, const weir_address *local, weir_promise *promise)
{
    weir__promise_end(promise, weir__socket_bind(weir__socket_of(channel), local));
}

/* Options -------------------------------------------------------------------------------------- */

static int stream_set_option(weir_channel *channel, weir_option option, int64_t value)
{
    weir_socket *self = weir__socket_of(channel);
    if (option != WEIR_OPTION_MAX_DESCRIPTORS || self->family != AF_UNIX)
        return weir__socket_set_option(channel, option, value);
    self->max_descriptors = (uint8_t)value;
    self->file.max_descriptors = (uint8_t)value;
    weir__socket_stop_reading(channel); /* the receive starts again with the new limit */
    return 0;
}

static int stream_get_option(const weir_channel *channel, weir_option option, int64_t *value)
{
    const weir_socket *self = weir__socket_of(channel);
    if (option != WEIR_OPTION_MAX_DESCRIPTORS || self->family != AF_UNIX)
        return weir__socket_get_option(channel, option, value);
    *value = self->max_descriptors;
    return 0;
}

static int stream_attach(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    int code = weir__socket_attach(channel);
    weir__stream_take_sender(self);
    self->file.max_descriptors = self->max_descriptors;
    /* A read stops short behind descriptors, wanted or not, and no edge comes for what follows. */
    self->file.has_boundaries = self->family == AF_UNIX;
    return code;
}

/* Making --------------------------------------------------------------------------------------- */

static void stream_close(weir_channel *channel)
{
    weir__sending_end(weir__socket_of(channel));
    weir__socket_close(channel);
}

static void stream_destroy(weir_channel *channel)
{
    weir__free(weir__socket_of(channel));
}

#define STREAM(transport_name)                                                                     \
    {                                                                                              \
        .name = (transport_name), .is_stream = true, .attach = stream_attach,                      \
        .detach = weir__socket_detach, .is_active = weir__socket_is_active, .bind = stream_bind,   \
        .connect = weir__socket_connect, .start_reading = weir__socket_start_reading,              \
        .stop_reading = weir__socket_stop_reading, .takes = stream_takes, .flush = stream_flush,   \
        .shutdown = stream_shutdown, .quiesce = weir__socket_quiesce, .close = stream_close,       \
        .destroy = stream_destroy, .local_address = weir__socket_local_address,                    \
        .remote_address = weir__socket_remote_address, .set_option = stream_set_option,            \
        .get_option = stream_get_option,                                                           \
    }

const weir_transport weir__tcp_transport = STREAM("tcp");
const weir_transport weir__unix_transport = STREAM("unix");

int weir__stream_new(weir_channel **channel, weir_channel *parent, weir_sys *sys, int fd,
                     int family, bool is_connected)
{
    weir_socket *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    weir__socket_init(self, family == AF_UNIX ? &weir__unix_transport : &weir__tcp_transport,
                      parent, sys, fd, family);
    self->is_connected = is_connected;
    self->in.kind = WEIR_IO_RECEIVE;
    self->in.on_done = on_received;
    self->in.on_batch_end = on_batch_end;
    *channel = &self->channel;
    return 0;
}

/* Looking -------------------------------------------------------------------------------------- */

/* A question to the socket of a channel of that kind. */
static int ask_socket(const weir_channel *channel, const weir_transport *transport, int level,
                      int name, void *to, socklen_t *length)
{
    if (channel == NULL)
        return -EINVAL;
    if (channel->transport != transport)
        return -EOPNOTSUPP;
    const weir_socket *self = weir__socket_of(channel);
    int code = WEIR_ECLOSED;
    weir__channel_lock(channel);
    if (self->is_open)
        code = self->sys->getsockopt(self->sys, self->fd, level, name, to, length);
    weir__channel_unlock(channel);
    return code;
}

int weir_channel_tcp_info(const weir_channel *channel, weir_tcp_info *info)
{
    struct tcp_info facts = { 0 };
    socklen_t length = sizeof facts;
    if (info == NULL)
        return -EINVAL;
    int code = ask_socket(channel, &weir__tcp_transport, IPPROTO_TCP, TCP_INFO, &facts, &length);
    if (code < 0)
        return code;
    *info = (weir_tcp_info){
        .state = facts.tcpi_state,
        .round_trip_ns = WEIR_US((int64_t)facts.tcpi_rtt),
        .round_trip_variance_ns = WEIR_US((int64_t)facts.tcpi_rttvar),
        .send_window_segments = facts.tcpi_snd_cwnd,
        .segment_bytes = facts.tcpi_snd_mss,
        .unacked_segments = facts.tcpi_unacked,
        .lost_segments = facts.tcpi_lost,
        .retransmitted_segments = facts.tcpi_retrans,
        .total_retransmissions = facts.tcpi_total_retrans,
        .receive_space_bytes = facts.tcpi_rcv_space,
        .bytes_acked = facts.tcpi_bytes_acked,
        .bytes_received = facts.tcpi_bytes_received,
        .delivery_rate = facts.tcpi_delivery_rate,
    };
    return 0;
}

int weir_channel_credentials(const weir_channel *channel, weir_credentials *credentials)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (credentials == NULL)
        return -EINVAL;
    int code = ask_socket(channel, &weir__unix_transport, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    if (code == 0)
        *credentials = (weir_credentials){ .pid = peer.pid, .uid = peer.uid, .gid = peer.gid };
    return code;
}
