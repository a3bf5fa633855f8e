/* SPDX-License-Identifier: MIT */
/* Streams: TCP and Unix connections. */
#include "base/alloc.h"
#include "channel/inbox.h"
#include "transport/sending.h"
#include "transport/socket.h"

#include <errno.h>
#include <linux/tcp.h>
#include <string.h>

/* Of a send that nobody waits for. */
#define MOST_UNAWAITED 4096

/* That one call sends, when the channel closes. */
#define LAST_PIECES 64

/* Reading -------------------------------------------------------------------------------------- */

/* Messages that are not wanted any more are dropped, with what they bring along. */
static void deliver(weir_socket *self, const weir_io_result *result)
{
    weir_msg *msg = weir__received(self->sys, result);
    if (msg == NULL)
        weir__channel_read_ended(&self->channel, -ENOMEM); /* bytes must not be skipped */
    else if (weir__channel_is_closing(&self->channel))
        weir_msg_release(msg);
    else
        weir__channel_read(&self->channel, msg);
}

WEIR__BESIDE static void on_received_otherwise(weir_socket *self, const weir_io_result *result)
{
    if (result->buf != NULL)
        deliver(self, result);
    if (result->is_armed || weir__socket_landed(self) || result->buf != NULL)
        return; /* after the one buffer of a one-shot receive the end of the batch goes on */
    if (result->code == -ECANCELED && self->channel.is_reading)
        weir__socket_start_reading(&self->channel);
    else if (result->code < 0 && result->code != -ECANCELED && self->is_relayed)
        self->file.kept_code =
            (int16_t)result->code; /* for the relay, which has waited for this end */
    else if (result->code != -ECANCELED && !self->is_relayed)
        weir__channel_read_ended(&self->channel, result->code);
}

/* Mostly it is a buffer of many. */
WEIR__HOT static void on_received(weir_io_op *op, const weir_io_result *result)
{
    weir_socket *self = weir__socket_of_in(op);
    if (result->is_armed && result->buf != NULL && result->descriptor_count == 0 &&
        !weir__channel_is_closing(&self->channel))
        weir__channel_read_bytes(&self->channel, result->buf, (size_t)result->code);
    else
        on_received_otherwise(self, result);
}

WEIR__HOT static void on_batch_end(weir_io_op *op)
{
    weir__socket_end_batch(weir__socket_of_in(op));
}

/* Sending -------------------------------------------------------------------------------------- */

static void on_sent(weir_io_op *op, const weir_io_result *result);

static int gather(weir_io_op *op, struct iovec *pieces, int max)
{
    weir_channel *channel = &weir__socket_of_out(op)->channel;
    return weir__outbound_gather(&channel->outbound, channel->spare, pieces, max);
}

static void prepare_bytes(weir_socket *self)
{
    self->out->kind = WEIR_IO_SEND;
    self->out->on_done = on_sent;
    self->out->gather = gather;
}

/* Submits what is first in the queue: the operation's result. */
static int send_first(weir_socket *self, weir_msg *msg)
{
    prepare_bytes(self);
    int code = msg->type == &weir_buf_type ? 0 : weir__sending_prepare(self, msg);
    if (code < 0)
        return code;
    return weir__io_submit(weir__socket_io(self), self->out);
}

/* So much of what is first went: 0, or the code that ends everything. */
static int account(weir_socket *self, int sent)
{
    weir_channel *channel = &self->channel;
    if (self->out->kind != WEIR_IO_SEND)
        return weir__sending_sent(self, sent);
    weir__outbound_sent(&channel->outbound, channel->spare, (size_t)sent);
    return 0;
}

/* What is flushed goes by operations, until one has to wait: its result. */
static int send_by_operations(weir_socket *self)
{
    weir_channel *channel = &self->channel;
    weir_msg *msg;
    int code = 0;
    if (weir__socket_take_out(self) == NULL)
        return -ENOMEM;
    while (code == 0 &&
           (msg = weir__outbound_current(&channel->outbound, channel->spare)) != NULL) {
        code = send_first(self, msg);
        if (code >= 0)
            code = account(self, code);
    }
    weir__socket_give_out_back(self);
    return code == WEIR_IO_PENDING ? 0 : code;
}

/* Whoever frees a message that was sent may wish to move the channel: that has to wait. */
static bool begin_flushing(weir_channel *channel)
{
    bool was_flushing = channel->is_flushing;
    channel->is_flushing = true;
    return was_flushing;
}

static void end_flushing(weir_channel *channel, bool was_flushing)
{
    channel->is_flushing = was_flushing;
    if (!was_flushing && channel->is_leaving)
        weir__channel_try_to_leave(channel);
}

/* Sends what is flushed, of which `code` bytes went already; or that has failed. */
WEIR__BESIDE static void send_rest(weir_socket *self, int code)
{
    weir_channel *channel = &self->channel;
    bool was_flushing = begin_flushing(channel);
    if (code > 0)
        weir__outbound_sent(&channel->outbound, channel->spare, (size_t)code);
    if (code >= 0 || code == -EAGAIN)
        code = send_by_operations(self);
    weir__channel_sent(channel, code);
    end_flushing(channel, was_flushing);
}

/* Silent sends --------------------------------------------------------------------------------- */

/* Whether somebody waits until the first message has gone: its writer, or who cannot write more, or
 * closes. What is long may not go at once, and what has begun goes on as it did. */
static inline bool is_awaited(const weir_channel *channel, size_t length)
{
    return channel->outbound.first->promise != NULL || length > MOST_UNAWAITED ||
           channel->outbound.is_started || channel->outbound.first->sent > 0 ||
           channel->is_output_ended || weir__channel_is_closing(channel) ||
           atomic_load_explicit(&channel->unwritable, memory_order_relaxed) != 0;
}

/* One buffer in one piece, which is not heard of again: whether it is on its way. */
static inline bool send_silently(weir_socket *self, weir_io *io, const uint8_t *bytes,
                                 size_t length)
{
    weir_channel *channel = &self->channel;
    weir_write *entry = channel->outbound.first;
    if (is_awaited(channel, length) ||
        io->type->send_silently(io, &self->file, entry->msg, entry, bytes, length) < 0)
        return false;
    weir__outbound_let_go(&channel->outbound);
    weir__channel_note_sent(channel);
    return true;
}

static void on_settled(weir_io_file *file, void *memory, int code)
{
    weir_channel *channel = &WEIR_CONTAINER(file, weir_socket, file)->channel;
    if (memory != NULL)
        weir__outbound_take_back(&channel->outbound, memory, code);
    if (code < 0)
        channel->outbound.failure = (int16_t)code;
    weir__inbox_push_missed(channel, WEIR__MISSED_SEND);
}

static bool stream_settle(weir_channel *channel)
{
    return weir__socket_settle(weir__socket_of(channel));
}

/* Bytes that are on their way must not be lost with the loop. */
static bool stream_quiesce(weir_channel *channel, bool is_closing)
{
    if (!is_closing && !stream_settle(channel))
        return false;
    return weir__socket_quiesce(channel, is_closing);
}

/* Sending -------------------------------------------------------------------------------------- */

/* Whether nothing else may be sent now: flushed again when that is over. */
static bool waits(weir_socket *self, weir_io *io)
{
    weir_channel *channel = &self->channel;
    if (self->out != NULL)
        return true;
    if (channel->outbound.failure == 0 && !weir__io_is_sending(io, &self->file))
        return false;
    if (weir__channel_is_closing(channel)) /* there is no other time */
        return !weir__socket_settle(self) || channel->outbound.failure != 0;
    weir__inbox_push_missed(channel, WEIR__MISSED_SEND);
    return true;
}

/* One buffer in one piece, as most flushes are, goes straight to the backend. */
WEIR__HOT static void stream_flush(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    weir_io *io = weir__socket_io(self);
    if (self->is_relay && channel->is_output_ended)
        weir__relaying_stop(self->extras->relaying);
    if (!weir__outbound_has_flushed(&channel->outbound) || waits(self, io))
        return;
    size_t length = 0;
    const uint8_t *bytes = weir__outbound_sole(&channel->outbound, &length);
    int code = -EAGAIN;
    if (bytes != NULL && io->type->send_now != NULL) {
        code = io->type->send_now(io, &self->file, bytes, length);
        if (code == (int)length) {
            weir__channel_sent_sole(channel);
            return;
        }
    } else if (bytes != NULL && io->type->send_silently != NULL &&
               send_silently(self, io, bytes, length)) {
        return;
    }
    send_rest(self, code);
}

/* The channel closes, and so what was flushed behind the operation that has ended gets its attempt
 * now. */
static void attempt_rest(weir_socket *self)
{
    weir_channel *channel = &self->channel;
    struct iovec pieces[LAST_PIECES];
    int code = 1;
    while (code > 0) {
        int count = weir__outbound_gather(&channel->outbound, channel->spare, pieces, LAST_PIECES);
        const struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
        code = count > 0 ? self->sys->sendmsg(self->sys, self->file.fd, &message,
                                              MSG_DONTWAIT | MSG_NOSIGNAL)
                         : 0;
        if (code > 0)
            weir__outbound_sent(&channel->outbound, channel->spare, (size_t)code);
    }
}

WEIR__BESIDE static void on_sent_otherwise(weir_socket *self, int code)
{
    weir_channel *channel = &self->channel;
    bool was_flushing = begin_flushing(channel);
    if (code >= 0)
        code = account(self, code);
    if (code >= 0 && weir__channel_is_closing(channel) && self->file.error == 0)
        attempt_rest(self);
    weir__socket_give_out_back(self);
    if (code >= 0)
        weir__channel_sent(channel, 0);
    else if (code != -ECANCELED && !weir__channel_is_closing(channel))
        weir__channel_sent(channel, code);
    if (!weir__socket_landed(self) && code >= 0)
        weir__channel_resume_output(channel);
    end_flushing(channel, was_flushing);
}

/* Mostly it is all of the first message. */
WEIR__HOT static void on_sent(weir_io_op *op, const weir_io_result *result)
{
    weir_socket *self = weir__socket_of_out(op);
    weir_channel *channel = &self->channel;
    if (op->kind != WEIR_IO_SEND || result->code <= 0 || self->is_quiescing ||
        !weir__outbound_is_first(&channel->outbound, (size_t)result->code)) {
        on_sent_otherwise(self, result->code);
        return;
    }
    weir__socket_give_out_back(self);
    weir__channel_sent_sole(channel);
    if (weir__outbound_has_flushed(&channel->outbound))
        weir__channel_resume_output(channel);
}

static bool stream_takes(const weir_channel *channel, const weir_msg *msg)
{
    const weir_socket *self = weir__socket_of(channel);
    return !self->is_relay && (msg->type == &weir_buf_type || weir__sending_takes(self, msg));
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
    weir__socket_stop_reading(channel); /* and begins again, for them */
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
    weir__socket_io(self)->on_settled = on_settled;
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
        .settle = stream_settle, .shutdown = stream_shutdown, .quiesce = stream_quiesce,           \
        .close = stream_close, .destroy = stream_destroy,                                          \
        .local_address = weir__socket_local_address,                                               \
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
        .round_trip_us = facts.tcpi_rtt,
        .round_trip_variance_us = facts.tcpi_rttvar,
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
