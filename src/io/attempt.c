/* SPDX-License-Identifier: MIT */
/* Trying operations. */
#include "io/attempt.h"

#include "base/address.h"
#include "io/send.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <string.h>

#define MOST_RETRIES 8

/* The way in --------------------------------------------------------------------------------- */

/* Takes the descriptors out of a control message; the kernel may have made more than were asked
 * for, because it counts in whole words: those are closed. */
static void take_descriptors(weir_io *io, weir_io_op *op, struct msghdr *message,
                             weir_io_arena *arena, weir_io_result *result)
{
    unsigned count = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        size_t came = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < came; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
            if (count < op->file->max_descriptors)
                arena->in.descriptors[count++] = fd;
            else
                io->sys->close(io->sys, fd);
        }
    }
    result->descriptors = arena->in.descriptors;
    result->descriptor_count = count;
}

WEIR__BESIDE static int receive_parcel(weir_io *io, weir_io_op *op, weir_io_arena *arena, void *to,
                                       size_t size, weir_io_result *result)
{
    struct iovec piece = { .iov_base = to, .iov_len = size };
    struct msghdr message = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = arena->in.descriptor_control.bytes,
        .msg_controllen = CMSG_SPACE(op->file->max_descriptors * sizeof(int)),
    };
    int code = io->sys->recvmsg(io->sys, op->file->fd, &message, MSG_CMSG_CLOEXEC);
    if (code >= 0)
        take_descriptors(io, op, &message, arena, result);
    return code;
}

static inline int receive_once(weir_io *io, weir_io_op *op, weir_io_arena *arena, void *to,
                               size_t size, weir_io_result *result)
{
    weir__io_count(&io->counters->receives);
    if (__builtin_expect(op->file->max_descriptors > 0, 0))
        return receive_parcel(io, op, arena, to, size, result);
    return io->sys->recv(io->sys, op->file->fd, to, size, 0);
}

WEIR__BESIDE static int receive_again(weir_io *io, weir_io_op *op, weir_io_arena *arena, void *to,
                                      size_t size, weir_io_result *result)
{
    int code = -EINTR;
    for (int i = 1; i < MOST_RETRIES && code == -EINTR; i++)
        code = receive_once(io, op, arena, to, size, result);
    return code;
}

inline int weir__io_receive(weir_io *io, weir_io_op *op, weir_io_arena *arena,
                            weir_io_result *result)
{
    *result = (weir_io_result){ .is_armed = op->is_multishot };
    size_t size = weir__guess_size(&op->guess);
    weir_buf *buf = weir_buf_new(size);
    if (buf == NULL)
        return -ENOMEM;
    uint8_t *to = buf->data; /* nothing is in it yet */
    int code = receive_once(io, op, arena, to, size, result);
    if (__builtin_expect(code == -EINTR, 0))
        code = receive_again(io, op, arena, to, size, result);
    if (code <= 0) {
        weir_buf_release(buf);
        return code;
    }
    buf->writer = (uint32_t)code;
    weir__guess_learn(&op->guess, (size_t)code);
    result->code = code;
    result->buf = buf;
    return code;
}

static int try_accept(weir_io *io, weir_io_op *op, weir_io_arena *arena)
{
    int code = -EINTR;
    weir_io_result *result = &arena->in.results[0];
    struct sockaddr *address = (struct sockaddr *)&arena->in.addresses[0];
    *result = (weir_io_result){ .is_armed = op->is_multishot, .address = address };
    for (int i = 0; i < MOST_RETRIES && code == -EINTR; i++) {
        result->address_length = sizeof arena->in.addresses[0];
        weir__io_count(&io->counters->accepts);
        code = io->sys->accept(io->sys, op->file->fd, address, &result->address_length);
    }
    result->code = code;
    return code >= 0 ? 1 : code;
}

static int try_splice(weir_io *io, weir_io_op *op, weir_io_arena *arena)
{
    int code = -EINTR;
    for (int i = 0; i < MOST_RETRIES && code == -EINTR; i++) {
        weir__io_count(&io->counters->receives);
        code = io->sys->splice(io->sys, op->file->fd, op->splice.fd, op->splice.length,
                               SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    }
    arena->in.results[0] = (weir_io_result){ .code = code, .is_armed = op->is_multishot };
    return code > 0 ? 1 : code;
}

/* Datagrams in ------------------------------------------------------------------------------- */

/* How many get a buffer: as many as came last time, and one more turn doubles that. */
static unsigned room_for(const weir_io_op *op, unsigned max)
{
    unsigned expected = op->datagrams.expected > 0 ? op->datagrams.expected : 1;
    return expected < max ? expected : max;
}

static unsigned prepare_datagrams(weir_io_op *op, weir_io_arena *arena, unsigned max)
{
    unsigned count = 0;
    for (; count < room_for(op, max); count++) {
        weir_buf *buf = weir_buf_new(op->datagrams.bytes);
        if (buf == NULL)
            break;
        arena->in.results[count] = (weir_io_result){ .is_armed = op->is_multishot, .buf = buf };
        arena->in.pieces[count].iov_base = weir_buf_write_ptr(buf, op->datagrams.bytes);
        arena->in.pieces[count].iov_len = op->datagrams.bytes;
        arena->in.headers[count].msg_hdr = (struct msghdr){
            .msg_name = &arena->in.addresses[count],
            .msg_namelen = sizeof arena->in.addresses[count],
            .msg_iov = &arena->in.pieces[count],
            .msg_iovlen = 1,
            .msg_control = arena->in.controls[count].bytes,
            .msg_controllen = sizeof arena->in.controls[count],
        };
    }
    return count;
}

/* To whom it was: the kernel may say it twice, to a socket for both families, or whose datagrams
 * were sent to somebody else; then with a port, which is the better answer. */
static void note_recipient(const struct cmsghdr *at, weir_address *recipient,
                           weir_io_result *result)
{
    const void *data = CMSG_DATA(at);
    bool has_port = result->recipient != NULL && weir_address_port(recipient) != 0;
    if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO) {
        struct in_pktinfo info;
        memcpy(&info, data, sizeof info);
        result->is_broadcast = info.ipi_spec_dst.s_addr != INADDR_ANY &&
                               info.ipi_spec_dst.s_addr != info.ipi_addr.s_addr &&
                               !IN_MULTICAST(ntohl(info.ipi_addr.s_addr));
        if (result->recipient != NULL)
            return;
        weir__address_set_ipv4(recipient, info.ipi_addr, 0);
    } else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_PKTINFO && !has_port) {
        struct in6_pktinfo info;
        memcpy(&info, data, sizeof info);
        bool is_of_a_link = IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr);
        weir__address_set_ipv6(recipient, info.ipi6_addr, is_of_a_link ? info.ipi6_ifindex : 0, 0);
    } else if ((at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_ORIGDSTADDR) ||
               (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_ORIGDSTADDR)) {
        struct sockaddr_storage address;
        size_t length = at->cmsg_len - CMSG_LEN(0);
        memcpy(&address, data, length < sizeof address ? length : sizeof address);
        if (weir_address_from_sockaddr(recipient, (struct sockaddr *)&address, (socklen_t)length) <
            0)
            return;
    } else {
        return;
    }
    result->recipient = recipient;
}

/* What the kernel says about a datagram besides its bytes. */
static void read_control(struct msghdr *message, weir_address *recipient, weir_io_result *result)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level == IPPROTO_UDP && at->cmsg_type == UDP_GRO) {
            int bytes;
            memcpy(&bytes, CMSG_DATA(at), sizeof bytes);
            result->segment_bytes = (uint16_t)bytes;
        } else {
            note_recipient(at, recipient, result);
        }
    }
}

void weir__io_describe_datagram(struct msghdr *message, weir_address *recipient,
                                weir_io_result *result)
{
    result->is_truncated = message->msg_flags & MSG_TRUNC;
    if (message->msg_namelen > 0) {
        result->address = message->msg_name;
        result->address_length = message->msg_namelen;
    }
    read_control(message, recipient, result);
}

static void finish_datagram(weir_io_arena *arena, unsigned n)
{
    weir_io_result *result = &arena->in.results[n];
    size_t length = arena->in.headers[n].msg_len;
    weir_buf_advance_writer(result->buf, length);
    result->code = (int)length;
    weir__io_describe_datagram(&arena->in.headers[n].msg_hdr, &arena->in.recipients[n], result);
}

static int try_datagrams(weir_io *io, weir_io_op *op, weir_io_arena *arena, unsigned max,
                         bool *may_have_more)
{
    int code = -EINTR;
    unsigned room = prepare_datagrams(op, arena, max < WEIR_IO_BATCH ? max : WEIR_IO_BATCH);
    if (room == 0)
        return -ENOMEM;
    for (int i = 0; i < MOST_RETRIES && code == -EINTR; i++) {
        weir__io_count(&io->counters->receives);
        code = io->sys->recvmmsg(io->sys, op->file->fd, arena->in.headers, room, MSG_CMSG_CLOEXEC);
    }
    unsigned came = code > 0 ? (unsigned)code : 0;
    for (unsigned i = 0; i < room; i++) {
        if (i < came)
            finish_datagram(arena, i);
        else
            weir_buf_release(arena->in.results[i].buf);
    }
    op->datagrams.expected = came == room ? 2 * room : came;
    *may_have_more = code < 0 || came == room;
    return code == 0 ? -EAGAIN : code;
}

int weir__io_try_in(weir_io *io, weir_io_op *op, weir_io_arena *arena, unsigned max,
                    bool *may_have_more)
{
    *may_have_more = true;
    switch ((weir_io_op_kind)op->kind) {
    case WEIR_IO_RECEIVE_DATAGRAM:
        return try_datagrams(io, op, arena, max, may_have_more);
    case WEIR_IO_SPLICE_IN:
        return try_splice(io, op, arena);
    default:
        return try_accept(io, op, arena);
    }
}

/* The way out -------------------------------------------------------------------------------- */

static int send_bytes(weir_io *io, const weir_io_file *file, const weir_io_send *send, int count)
{
    weir_sys *sys = io->sys;
    if (count == 1)
        return sys->send(sys, file->fd, send->pieces->iov_base, send->pieces->iov_len,
                         MSG_NOSIGNAL);
    struct msghdr message = { .msg_iov = send->pieces, .msg_iovlen = (size_t)count };
    return sys->sendmsg(sys, file->fd, &message, MSG_NOSIGNAL);
}

/* Adds a control message behind those that are there. */
static void add_control(struct msghdr *message, int level, int type, const void *data, size_t size)
{
    struct cmsghdr *at = (struct cmsghdr *)((char *)message->msg_control + message->msg_controllen);
    *at = (struct cmsghdr){ .cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(size) };
    memcpy(CMSG_DATA(at), data, size);
    message->msg_controllen += CMSG_SPACE(size);
}

static void add_source(struct msghdr *message, const weir_address *from)
{
    if (weir_address_kind_of(from) == WEIR_ADDRESS_IPV4) {
        struct in_pktinfo info = { .ipi_spec_dst = weir__address_ipv4_of(from).sin_addr };
        add_control(message, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    } else if (weir_address_kind_of(from) == WEIR_ADDRESS_IPV6) {
        struct sockaddr_in6 own = weir__address_ipv6_of(from);
        struct in6_pktinfo info = { .ipi6_addr = own.sin6_addr, .ipi6_ifindex = own.sin6_scope_id };
        add_control(message, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
    }
}

static void prepare_datagram(struct msghdr *message, const weir_io_datagram *datagram,
                             struct iovec *pieces, weir_io_control *control)
{
    size_t length;
    *message = (struct msghdr){
        .msg_name = (void *)weir_address_sockaddr(datagram->to, &length),
        .msg_iov = pieces,
        .msg_iovlen = (size_t)datagram->piece_count,
        .msg_control = control->bytes,
    };
    message->msg_namelen = (socklen_t)length;
    if (datagram->from != NULL && !weir_address_is_any(datagram->from))
        add_source(message, datagram->from);
    if (datagram->segment_bytes > 0)
        add_control(message, IPPROTO_UDP, UDP_SEGMENT, &datagram->segment_bytes,
                    sizeof datagram->segment_bytes);
    if (message->msg_controllen == 0)
        message->msg_control = NULL;
}

static int send_datagrams(weir_io *io, weir_io_file *file, weir_io_arena *arena)
{
    unsigned count = 0;
    int used = 0;
    for (; count < WEIR_IO_BATCH && used < IOV_MAX; count++) {
        weir_io_datagram datagram = { 0 };
        struct iovec *pieces = arena->out.pieces + used;
        if (!file->sender->next_datagram(file, count, &datagram, pieces, IOV_MAX - used))
            break;
        prepare_datagram(&arena->out.headers[count].msg_hdr, &datagram, pieces,
                         &arena->out.controls[count]);
        used += datagram.piece_count;
    }
    return io->sys->sendmmsg(io->sys, file->fd, arena->out.headers, count, MSG_NOSIGNAL);
}

static int send_descriptors(weir_io *io, const weir_io_file *file, const weir_io_send *send,
                            weir_io_arena *arena)
{
    struct msghdr message = {
        .msg_iov = send->pieces,
        .msg_iovlen = 1,
        .msg_control = arena->out.descriptor_control.bytes,
    };
    add_control(&message, SOL_SOCKET, SCM_RIGHTS, send->descriptors,
                send->descriptor_count * sizeof(int));
    return io->sys->sendmsg(io->sys, file->fd, &message, MSG_NOSIGNAL);
}

WEIR__BESIDE static int send_other(weir_io *io, weir_io_file *file, const weir_io_send *send,
                                   weir_io_arena *arena)
{
    weir_sys *sys = io->sys;
    switch (send->kind) {
    case WEIR_IO_SEND_DATAGRAMS:
        return send_datagrams(io, file, arena);
    case WEIR_IO_SEND_FILE:
        return sys->sendfile(sys, file->fd, send->fd, send->offset, send->length);
    case WEIR_IO_SEND_PIPE:
        return sys->splice(sys, send->fd, file->fd, (uint32_t)send->length,
                           SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    default:
        return send_descriptors(io, file, send, arena);
    }
}

static inline int send_once(weir_io *io, weir_io_file *file, const weir_io_send *send, int count,
                            weir_io_arena *arena)
{
    weir__io_count(&io->counters->sends);
    return send->kind == WEIR_IO_SEND_BYTES ? send_bytes(io, file, send, count)
                                            : send_other(io, file, send, arena);
}

WEIR__BESIDE static int send_again(weir_io *io, weir_io_file *file, const weir_io_send *send,
                                   int count, weir_io_arena *arena)
{
    int code = -EINTR;
    for (int i = 1; i < MOST_RETRIES && code == -EINTR; i++)
        code = send_once(io, file, send, count, arena);
    return code;
}

inline int weir__io_try_send(weir_io *io, weir_io_file *file, weir_io_arena *arena)
{
    weir_io_send send;
    send.kind = WEIR_IO_SEND_BYTES;
    send.pieces = arena->out.pieces;
    send.max_pieces = IOV_MAX;
    int count = file->sender->gather(file, &send);
    if (count <= 0)
        return count < 0 ? count : WEIR_SEND_NOTHING;
    int code = send_once(io, file, &send, count, arena);
    if (__builtin_expect(code == -EINTR, 0))
        code = send_again(io, file, &send, count, arena);
    return code == -EAGAIN && file->fails_when_full ? -ENOBUFS : code;
}

int weir__io_begin_connect(weir_io *io, weir_io_op *op)
{
    size_t length;
    const struct sockaddr *address = weir_address_sockaddr(op->remote, &length);
    return io->sys->connect(io->sys, op->file->fd, address, (socklen_t)length);
}

int weir__io_connect_result(weir_io *io, weir_io_op *op)
{
    int error = 0;
    socklen_t length = sizeof error;
    int code = io->sys->getsockopt(io->sys, op->file->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return code < 0 ? code : -error;
}
