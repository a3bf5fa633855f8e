/* SPDX-License-Identifier: MIT */
/* Giving operations to the kernel, to be performed there. */
#include "base/fault.h"
#include "io/ops.h"
#include "io/uring.h"

#include <errno.h>

#define BUFFER_GROUP 0

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
