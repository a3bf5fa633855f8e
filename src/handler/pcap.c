/* SPDX-License-Identifier: MIT */
/* The pcap handler: the packets that a channel's bytes might have come in. */
#include "handler/pcap.h"

#include "base/address.h"
#include "channel/arg.h"
#include "channel/channel.h"

#include <weir/channel.h>
#include <weir/datagram.h>
#include <weir/descriptors.h>
#include <weir/file.h>

#include <errno.h>
#include <string.h>

enum { OURS, THEIRS, SIDES };

typedef struct pcap_handler {
    weir_pcap_end ends[SIDES];
    uint32_t seq[SIDES]; /* of the next byte */
    bool is_ipv6;
    bool is_datagram;
    bool is_begun;
    bool is_closing;       /* this side closes the channel */
    bool has_ended[SIDES]; /* no more bytes come from there */
} pcap_handler;

/* Addresses ------------------------------------------------------------------------------------ */

static bool is_ip(const weir_address *address)
{
    weir_address_kind kind = weir_address_kind_of(address);
    return kind == WEIR_ADDRESS_IPV4 || kind == WEIR_ADDRESS_IPV6;
}

/* What is not IP stays zero, which is every address. */
static void set_end(weir_pcap_end *end, const weir_address *address, bool is_ipv6)
{
    *end = (weir_pcap_end){ .port = weir_address_port(address) };
    if (weir_address_kind_of(address) == WEIR_ADDRESS_IPV6) {
        struct sockaddr_in6 ipv6 = weir__address_ipv6_of(address);
        memcpy(end->host, &ipv6.sin6_addr, 16);
    } else if (weir_address_kind_of(address) == WEIR_ADDRESS_IPV4) {
        struct sockaddr_in ipv4 = weir__address_ipv4_of(address);
        if (is_ipv6) /* in the form of IPv6 */
            memset(end->host + 10, 0xff, 2);
        memcpy(end->host + (is_ipv6 ? 12 : 0), &ipv4.sin_addr, 4);
    }
}

/* So that each channel is a stream of its own. */
static void make_up_ends(weir_pcap_end ends[SIDES], const weir_channel *channel, int server)
{
    uint64_t id = weir_channel_id(channel);
    uint32_t host = 0xc6120000u | ((uint32_t)(id >> 16) & 0x1ffff); /* of 198.18.0.0/15 */
    weir_pcap_end client = { .port = (uint16_t)id };
    for (int i = 0; i < 4; i++)
        client.host[i] = (uint8_t)(host >> (24 - 8 * i));
    ends[server] = (weir_pcap_end){ .host = { 192, 0, 2, 1 }, .port = 1 };
    ends[!server] = client;
}

/* The side that was connected to. */
static int server_of(const weir_channel *channel)
{
    return weir_channel_parent(channel) != NULL ? OURS : THEIRS;
}

/* The family is the other side's, unless this side has an address of its own in IPv6. */
static bool are_ipv6(const weir_address *ours, const weir_address *theirs)
{
    if (weir_address_kind_of(theirs) == WEIR_ADDRESS_IPV4 && weir_address_is_any(ours))
        return false;
    return weir_address_kind_of(ours) == WEIR_ADDRESS_IPV6 ||
           weir_address_kind_of(theirs) == WEIR_ADDRESS_IPV6;
}

/* Whether they are of IPv6. */
static bool set_ends(weir_pcap_end ends[SIDES], const weir_channel *channel, weir_address *ours,
                     weir_address *theirs)
{
    weir_address_unmap(ours);
    weir_address_unmap(theirs);
    bool is_ipv6 = are_ipv6(ours, theirs);
    if (is_ip(ours) || is_ip(theirs)) {
        set_end(&ends[OURS], ours, is_ipv6);
        set_end(&ends[THEIRS], theirs, is_ipv6);
    } else {
        make_up_ends(ends, channel, server_of(channel));
    }
    return is_ipv6;
}

/* Streams -------------------------------------------------------------------------------------- */

static void put(weir_ctx *ctx, const pcap_handler *self, int from, uint8_t flags,
                const weir_buf *content, size_t at, size_t length)
{
    weir_pcap_packet packet = { .protocol = WEIR__PCAP_TCP, .is_ipv6 = self->is_ipv6 };
    packet.flags = flags;
    packet.from = &self->ends[from];
    packet.to = &self->ends[!from];
    packet.seq = self->seq[from];
    packet.ack = flags & WEIR__TCP_ACK ? self->seq[!from] : 0;
    packet.content = content;
    packet.at = at;
    packet.length = length;
    weir__pcap_put(weir_ctx_arg(ctx), &packet);
}

static void put_flags(weir_ctx *ctx, pcap_handler *self, int from, uint8_t flags)
{
    put(ctx, self, from, flags, NULL, 0, 0);
    if (flags & (WEIR__TCP_SYN | WEIR__TCP_FIN)) /* each counts as a byte */
        self->seq[from]++;
}

static void shake_hands(weir_ctx *ctx, pcap_handler *self)
{
    int server = server_of(weir_ctx_channel(ctx));
    weir__pcap_lock(weir_ctx_arg(ctx));
    put_flags(ctx, self, !server, WEIR__TCP_SYN);
    put_flags(ctx, self, server, WEIR__TCP_SYN | WEIR__TCP_ACK);
    put_flags(ctx, self, !server, WEIR__TCP_ACK);
    weir__pcap_unlock(weir_ctx_arg(ctx));
}

/* The addresses are known from the beginning of a connection on. */
static void begin(weir_ctx *ctx, pcap_handler *self)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    weir_address ours = { 0 }, theirs = { 0 };
    if (self->is_begun)
        return;
    self->is_begun = true;
    weir_channel_local_address(channel, &ours);
    weir_channel_remote_address(channel, &theirs);
    self->is_ipv6 = set_ends(self->ends, channel, &ours, &theirs);
    self->is_datagram = !channel->transport->is_stream;
    if (!self->is_datagram)
        shake_hands(ctx, self);
}

/* The content is NULL for bytes that nobody knows. */
static void record_bytes(weir_ctx *ctx, pcap_handler *self, int from, const weir_buf *content,
                         uint64_t length)
{
    size_t at = weir_buf_reader(content);
    begin(ctx, self);
    if (self->has_ended[from])
        return;
    weir__pcap_lock(weir_ctx_arg(ctx));
    while (length > 0) {
        size_t part = length < WEIR__PCAP_TCP_BYTES ? (size_t)length : WEIR__PCAP_TCP_BYTES;
        length -= part;
        put(ctx, self, from, WEIR__TCP_ACK | (length == 0 ? WEIR__TCP_PSH : 0), content, at, part);
        self->seq[from] += (uint32_t)part;
        put_flags(ctx, self, !from, WEIR__TCP_ACK);
        at += part;
    }
    weir__pcap_unlock(weir_ctx_arg(ctx));
}

static void record_end(weir_ctx *ctx, pcap_handler *self, int from)
{
    if (!self->is_begun || self->is_datagram || self->has_ended[from])
        return;
    self->has_ended[from] = true;
    weir__pcap_lock(weir_ctx_arg(ctx));
    put_flags(ctx, self, from, WEIR__TCP_FIN | WEIR__TCP_ACK);
    put_flags(ctx, self, !from, WEIR__TCP_ACK);
    weir__pcap_unlock(weir_ctx_arg(ctx));
}

static void record_reset(weir_ctx *ctx, pcap_handler *self, int from)
{
    if (!self->is_begun || self->is_datagram || (self->has_ended[OURS] && self->has_ended[THEIRS]))
        return;
    self->has_ended[OURS] = self->has_ended[THEIRS] = true;
    weir__pcap_lock(weir_ctx_arg(ctx));
    put_flags(ctx, self, from, WEIR__TCP_RST | WEIR__TCP_ACK);
    weir__pcap_unlock(weir_ctx_arg(ctx));
}

/* Datagrams ------------------------------------------------------------------------------------ */

/* In as many as it is sent in. */
static void put_datagrams(weir_ctx *ctx, int from, const weir_pcap_end ends[SIDES], bool is_ipv6,
                          const weir_buf *content, size_t segment)
{
    size_t length = weir_buf_readable(content), at = weir_buf_reader(content);
    size_t most = is_ipv6 ? WEIR__PCAP_UDP_BYTES : WEIR__PCAP_UDP_BYTES - 20;
    if (segment == 0 || segment > most)
        segment = most; /* what is longer cannot be sent anyway */
    weir__pcap_lock(weir_ctx_arg(ctx));
    do {
        size_t part = length < segment ? length : segment;
        weir_pcap_packet packet = { .protocol = WEIR__PCAP_UDP, .is_ipv6 = is_ipv6 };
        packet.from = &ends[from];
        packet.to = &ends[!from];
        packet.content = content;
        packet.at = at;
        packet.length = part;
        weir__pcap_put(weir_ctx_arg(ctx), &packet);
        at += part;
        length -= part;
    } while (length > 0);
    weir__pcap_unlock(weir_ctx_arg(ctx));
}

static void record_datagram(weir_ctx *ctx, pcap_handler *self, int from,
                            const weir_datagram *datagram)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    weir_address ours = from == OURS ? datagram->sender : datagram->recipient;
    weir_address theirs = from == OURS ? datagram->recipient : datagram->sender;
    weir_address local = { 0 };
    weir_pcap_end ends[SIDES];
    begin(ctx, self);
    weir_channel_local_address(channel, &local);
    if (weir_address_kind_of(&ours) == WEIR_ADDRESS_NONE)
        ours = local;
    else if (weir_address_port(&ours) == 0)
        weir_address_set_port(&ours, weir_address_port(&local));
    if (weir_address_kind_of(&theirs) == WEIR_ADDRESS_NONE)
        weir_channel_remote_address(channel, &theirs);
    bool is_ipv6 = set_ends(ends, channel, &ours, &theirs);
    put_datagrams(ctx, from, ends, is_ipv6, datagram->content, datagram->segment_bytes);
}

/* The handler ---------------------------------------------------------------------------------- */

static void record_buf(weir_ctx *ctx, pcap_handler *self, int from, const weir_buf *buf)
{
    begin(ctx, self);
    if (self->is_datagram)
        put_datagrams(ctx, from, self->ends, self->is_ipv6, buf, 0);
    else
        record_bytes(ctx, self, from, buf, weir_buf_readable(buf));
}

static void record(weir_ctx *ctx, int from, weir_msg *msg)
{
    pcap_handler *self = weir_ctx_state(ctx);
    if (msg->type == &weir_buf_type)
        record_buf(ctx, self, from, weir_buf_from_msg(msg));
    else if (msg->type == &weir_datagram_type)
        record_datagram(ctx, self, from, (const weir_datagram *)msg);
    else if (msg->type == &weir_descriptors_type)
        record_buf(ctx, self, from, ((const weir_descriptors *)msg)->bytes);
    else if (msg->type == &weir_file_region_type)
        record_bytes(ctx, self, from, NULL, ((const weir_file_region *)msg)->length);
}

static void pcap_added(weir_ctx *ctx)
{
    if (weir__arg_check_given(ctx, "weir_pcap", weir_ctx_arg(ctx)) &&
        weir_channel_is_active(weir_ctx_channel(ctx)))
        begin(ctx, weir_ctx_state(ctx));
}

static void pcap_on_active(weir_ctx *ctx)
{
    begin(ctx, weir_ctx_state(ctx));
    weir_ctx_fire_active(ctx);
}

static void pcap_on_read(weir_ctx *ctx, weir_msg *msg)
{
    record(ctx, THEIRS, msg);
    weir_ctx_fire_read(ctx, msg);
}

static void pcap_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        record_end(ctx, weir_ctx_state(ctx), THEIRS);
    weir_ctx_fire_event(ctx, event);
}

static void pcap_on_error(weir_ctx *ctx, const weir_error *error)
{
    if (error->code == -ECONNRESET)
        record_reset(ctx, weir_ctx_state(ctx), THEIRS);
    weir_ctx_fire_error(ctx, error);
}

static void pcap_on_inactive(weir_ctx *ctx)
{
    pcap_handler *self = weir_ctx_state(ctx);
    int first = self->is_closing ? OURS : THEIRS;
    record_end(ctx, self, first);
    record_end(ctx, self, !first);
    weir_ctx_fire_inactive(ctx);
}

static void pcap_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    record(ctx, OURS, msg);
    weir_ctx_write(ctx, msg, promise);
}

/* The channel also ends by itself, when the other side has: only its loop knows. */
static void record_their_end(weir_ctx *ctx, pcap_handler *self)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    if (weir__channel_is_mine(channel) && weir_channel_is_input_closed(channel))
        record_end(ctx, self, THEIRS);
}

static void pcap_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    pcap_handler *self = weir_ctx_state(ctx);
    record_their_end(ctx, self);
    record_end(ctx, self, OURS);
    weir_ctx_shutdown(ctx, promise);
}

static void pcap_close(weir_ctx *ctx, weir_promise *promise)
{
    pcap_handler *self = weir_ctx_state(ctx);
    int64_t linger_ns = -1;
    weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_CLOSE_LINGER_NS, &linger_ns);
    record_their_end(ctx, self);
    self->is_closing = true;
    if (linger_ns == 0)
        record_reset(ctx, self, OURS);
    weir_ctx_close(ctx, promise);
}

const weir_handler_type weir_pcap_handler = {
    .name = "pcap",
    .state_size = sizeof(pcap_handler),
    .added = pcap_added,
    .on_active = pcap_on_active,
    .on_read = pcap_on_read,
    .on_event = pcap_on_event,
    .on_inactive = pcap_on_inactive,
    .on_error = pcap_on_error,
    .write = pcap_write,
    .shutdown = pcap_shutdown,
    .close = pcap_close,
};
