/* SPDX-License-Identifier: MIT */
/* Giving operations to the kernel, to be performed there. */
#include "base/fault.h"
#include "io/ops.h"
#include "io/uring.h"

#include <errno.h>

#define BUFFER_GROUP 0
#define FEW_PIECES 64 /* with so few left it is time to hand over */

/* It does not wait for room: the kernel might put a thread of its own to that. */
#define HOW_TO_SEND (MSG_NOSIGNAL | MSG_DONTWAIT)

static bool takes_datagrams(const weir_uring *self, const weir_io_op *op)
{
    return op->is_multishot && self->features & WEIR_URING_RECVMSG && self->buffers.ring != NULL &&
           op->datagrams.bytes + WEIR_URING_DATAGRAM_ROOM <= self->buffers.bytes;
}

bool weir__uring_takes(const weir_uring *self, const weir_io_op *op)
{
    if (op->file->error < 0 || op->state & WEIR_OP_REFUSED)
        return false;
    switch ((weir_io_op_kind)op->kind) {
    case WEIR_IO_ACCEPT:
        return self->features & WEIR_URING_ACCEPT;
    case WEIR_IO_RECEIVE:
        return self->features & WEIR_URING_RECEIVE && self->buffers.ring != NULL &&
               op->file->max_descriptors == 0 && !op->file->is_bulk;
    case WEIR_IO_RECEIVE_DATAGRAM:
        return takes_datagrams(self, op);
    case WEIR_IO_SEND:
        return self->features & WEIR_URING_SEND;
    case WEIR_IO_CONNECT: /* a Unix socket knows at once */
        return self->features & WEIR_URING_CONNECT &&
               weir_address_kind_of(op->remote) != WEIR_ADDRESS_UNIX;
    default:
        return false;
    }
}

static void prepare_receive(weir_uring *self, struct io_uring_sqe *entry, const weir_io_op *op)
{
    weir__io_count(&self->base.base.counters->receives);
    io_uring_prep_recv(entry, op->file->fd, NULL, 0, 0);
    if (op->is_multishot && !weir__uring_saw_end(op->file))
        entry->ioprio |= IORING_RECV_MULTISHOT;
    entry->flags |= IOSQE_BUFFER_SELECT;
    entry->buf_group = BUFFER_GROUP;
}

static void prepare_datagrams(weir_uring *self, struct io_uring_sqe *entry, const weir_io_op *op)
{
    static struct msghdr wish = { .msg_namelen = sizeof(struct sockaddr_storage),
                                  .msg_controllen = WEIR_IO_CONTROL_SIZE };
    weir__io_count(&self->base.base.counters->receives);
    io_uring_prep_recvmsg_multishot(entry, op->file->fd, &wish, MSG_CMSG_CLOEXEC);
    entry->flags |= IOSQE_BUFFER_SELECT;
    entry->buf_group = BUFFER_GROUP;
}

static void prepare_accept(struct io_uring_sqe *entry, const weir_io_op *op)
{
    io_uring_prep_accept(entry, op->file->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (op->is_multishot)
        entry->ioprio |= IORING_ACCEPT_MULTISHOT;
}

/* The memory for the pieces is read when they are handed over, which nobody does in between. */
static void prepare_send(weir_uring *self, struct io_uring_sqe *entry, const weir_io_op *op,
                         struct iovec *pieces, int count)
{
    if (count == 1) {
        io_uring_prep_send(entry, op->file->fd, pieces->iov_base, pieces->iov_len, HOW_TO_SEND);
        return;
    }
    struct msghdr *header = &self->headers[self->header_count++];
    *header = (struct msghdr){ .msg_iov = pieces, .msg_iovlen = (size_t)count };
    self->piece_count += (unsigned)count;
    io_uring_prep_sendmsg(entry, op->file->fd, header, HOW_TO_SEND);
}

/* Room for pieces, and for the submission that they belong to: handing over in between would give
 * the pieces' place to the next. */
static bool has_room_to_gather(weir_uring *self)
{
    unsigned room = sizeof self->pieces / sizeof *self->pieces - self->piece_count;
    if (self->room > 0 && room >= FEW_PIECES && self->header_count < WEIR_URING_HEADERS)
        return true;
    return weir__uring_enter(self, 0) == 0 && self->piece_count == 0;
}

/* No event tells the engine what the kernel finds out for itself. */
static int begin(weir_uring *self, weir_io_op *op, struct io_uring_sqe *entry)
{
    uint8_t bit = weir__op_is_out(op) ? WEIR_FILE_WRITABLE : WEIR_FILE_READABLE;
    self->buffers.users += weir__uring_needs_buffers(op);
    entry->user_data = weir__uring_name_of(op);
    op->state = WEIR_OP_AT_KERNEL;
    op->file->withheld |= bit;
    op->file->bits &= (uint8_t)~bit;
    return WEIR_IO_PENDING;
}

/* The fault hook knows these by the names of the calls that they stand for. */
static int ask_fault(const weir_io_op *op)
{
    static const char *const calls[] = {
        [WEIR_IO_ACCEPT] = "accept4",
        [WEIR_IO_RECEIVE] = "recv",
        [WEIR_IO_CONNECT] = "connect",
        [WEIR_IO_RECEIVE_DATAGRAM] = "recvmsg",
    };
    return weir__fault(calls[op->kind], NULL);
}

/* The same, which may make it shorter. */
static int ask_fault_to_send(struct iovec *pieces, int *count)
{
    size_t length = 0, left;
    for (int i = 0; i < *count; i++)
        length += pieces[i].iov_len;
    left = length;
    int code = weir__fault(*count == 1 ? "send" : "sendmsg", &left);
    if (code < 0 || left == length)
        return code;
    for (int i = 0; i < *count; i++) {
        if (pieces[i].iov_len >= left) {
            pieces[i].iov_len = left;
            *count = i + 1;
        }
        left -= pieces[i].iov_len;
    }
    return 0;
}

static int give_send(weir_uring *self, weir_io_op *op)
{
    if (!has_room_to_gather(self))
        return -EAGAIN;
    struct iovec *pieces = self->pieces + self->piece_count;
    unsigned room = sizeof self->pieces / sizeof *self->pieces - self->piece_count;
    int count = op->gather(op, pieces, room < IOV_MAX ? (int)room : IOV_MAX);
    int code = count > 0 ? ask_fault_to_send(pieces, &count) : count;
    if (count <= 0 || code < 0)
        return code;
    struct io_uring_sqe *entry = weir__uring_next(self);
    if (entry == NULL)
        return -EAGAIN;
    weir__io_count(&self->base.base.counters->sends);
    prepare_send(self, entry, op, pieces, count);
    return begin(self, op, entry);
}

static void prepare_connect(struct io_uring_sqe *entry, const weir_io_op *op)
{
    size_t length;
    const struct sockaddr *address = weir_address_sockaddr(op->remote, &length);
    io_uring_prep_connect(entry, op->file->fd, address, (socklen_t)length);
}

static void prepare(weir_uring *self, struct io_uring_sqe *entry, const weir_io_op *op)
{
    switch ((weir_io_op_kind)op->kind) {
    case WEIR_IO_ACCEPT:
        weir__io_count(&self->base.base.counters->accepts);
        prepare_accept(entry, op);
        break;
    case WEIR_IO_RECEIVE:
        prepare_receive(self, entry, op);
        break;
    case WEIR_IO_RECEIVE_DATAGRAM:
        prepare_datagrams(self, entry, op);
        break;
    default:
        prepare_connect(entry, op);
        break;
    }
}

int weir__uring_give(weir_uring *self, weir_io_op *op)
{
    if (op->kind == WEIR_IO_SEND)
        return give_send(self, op);
    int code = ask_fault(op);
    if (code == 0 && weir__uring_needs_buffers(op) && self->buffers.wanted == 0)
        weir__uring_buffers_fill(self);
    bool may_miss_end = op->kind == WEIR_IO_RECEIVE && op->is_multishot;
    bool is_watched = !may_miss_end || code < 0 || weir__uring_watch_end(self, op->file);
    struct io_uring_sqe *entry = code == 0 && is_watched ? weir__uring_next(self) : NULL;
    if (entry == NULL)
        return code < 0 ? code : -EAGAIN;
    prepare(self, entry, op);
    return begin(self, op, entry);
}

bool weir__uring_wait_for_room(weir_uring *self, weir_io_op *op)
{
    struct io_uring_sqe *entry = weir__uring_next(self);
    if (entry == NULL)
        return false;
    io_uring_prep_poll_add(entry, op->file->fd, POLLOUT);
    begin(self, op, entry);
    op->state |= WEIR_OP_WAITS;
    return true;
}
