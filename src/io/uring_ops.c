/* SPDX-License-Identifier: MIT */
/* Operations that the kernel performs itself. */
#include "base/fault.h"
#include "io/kept.h"
#include "io/ops.h"
#include "io/uring.h"

#include <errno.h>
#include <string.h>

#define BUFFER_GROUP 0
#define FEW_PIECES 64 /* with so few left it is time to hand over */

/* What comes in front of a datagram. */
#define DATAGRAM_ROOM                                                                              \
    (sizeof(struct io_uring_recvmsg_out) + sizeof(struct sockaddr_storage) + WEIR_IO_CONTROL_SIZE)

/* Giving --------------------------------------------------------------------------------------- */

static bool takes_datagrams(const weir_uring *self, const weir_io_op *op)
{
    return op->is_multishot && self->features & WEIR_URING_RECVMSG && self->buffers.ring != NULL &&
           op->datagrams.bytes + DATAGRAM_ROOM <= self->buffers.bytes;
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
               op->file->max_descriptors == 0;
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
    if (op->is_multishot)
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

/* The memory for the pieces is read when they are handed over, which nobody does in between. It
 * does not wait for room: the kernel might put a thread of its own to that. */
static void prepare_send(weir_uring *self, struct io_uring_sqe *entry, const weir_io_op *op,
                         struct iovec *pieces, int count)
{
    if (count == 1) {
        io_uring_prep_send(entry, op->file->fd, pieces->iov_base, pieces->iov_len,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    }
    struct msghdr *header = &self->headers[self->header_count++];
    *header = (struct msghdr){ .msg_iov = pieces, .msg_iovlen = (size_t)count };
    self->piece_count += (unsigned)count;
    io_uring_prep_sendmsg(entry, op->file->fd, header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool has_room_to_gather(weir_uring *self)
{
    unsigned room = sizeof self->pieces / sizeof *self->pieces - self->piece_count;
    if (room >= FEW_PIECES && self->header_count < WEIR_URING_HEADERS)
        return true;
    return weir__uring_enter(self, 0) == 0 && self->piece_count == 0;
}

static bool needs_buffers(const weir_io_op *op)
{
    return op->kind == WEIR_IO_RECEIVE || op->kind == WEIR_IO_RECEIVE_DATAGRAM;
}

/* No event tells the engine what the kernel finds out for itself. */
static int begin(weir_uring *self, weir_io_op *op, struct io_uring_sqe *entry)
{
    uint8_t bit = weir__op_is_out(op) ? WEIR_FILE_WRITABLE : WEIR_FILE_READABLE;
    entry->user_data = weir__uring_name_of(op);
    op->state = WEIR_OP_AT_KERNEL;
    op->file->withheld |= bit;
    op->file->bits &= (uint8_t)~bit;
    self->buffers.users += needs_buffers(op);
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
    int code = count > 0 ? ask_fault_to_send(pieces, &count) : 0;
    if (count == 0 || code < 0)
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
    if (code == 0 && needs_buffers(op) && self->buffers.wanted == 0)
        weir__uring_buffers_fill(self);
    struct io_uring_sqe *entry = code == 0 ? weir__uring_next(self) : NULL;
    if (entry == NULL)
        return code < 0 ? code : -EAGAIN;
    prepare(self, entry, op);
    return begin(self, op, entry);
}

/* Ending --------------------------------------------------------------------------------------- */

static bool ask_end(weir_uring *self, weir_io_op *op)
{
    struct io_uring_sqe *entry = weir__uring_next(self);
    if (entry == NULL)
        return false;
    io_uring_prep_cancel64(entry, weir__uring_name_of(op), 0);
    entry->user_data = weir__uring_name_of(op) + WEIR_URING_END;
    op->state |= WEIR_OP_ASKED;
    return true;
}

/* Without room it is asked for in the next turn. */
void weir__uring_ask_end(weir_uring *self, weir_io_op *op)
{
    if (ask_end(self, op))
        return;
    op->next_ended = self->uncancelled;
    self->uncancelled = op;
}

void weir__uring_ask_again(weir_uring *self)
{
    while (self->uncancelled != NULL && ask_end(self, self->uncancelled))
        self->uncancelled = self->uncancelled->next_ended;
}

/* It has ended before anybody could ask. */
static void forget_to_ask(weir_uring *self, const weir_io_op *op)
{
    weir_io_op **place = &self->uncancelled;
    while (*place != NULL && *place != op)
        place = &(*place)->next_ended;
    if (*place != NULL)
        *place = op->next_ended;
}

/* Whether the end of it has to wait for the kernel's answer to who asked for that, which names the
 * operation. */
static bool waits_for_answer(weir_io_op *op, int code)
{
    if (!(op->state & WEIR_OP_ASKED))
        return false;
    op->code = code;
    op->state |= WEIR_OP_ENDED;
    return true;
}

/* The kernel is done with it: what its state was. */
static unsigned take_back(weir_uring *self, weir_io_op *op)
{
    unsigned state = op->state;
    uint8_t bit = weir__op_is_out(op) ? WEIR_FILE_WRITABLE : WEIR_FILE_READABLE;
    if (state & (WEIR_OP_CANCELLED | WEIR_OP_PAUSED))
        forget_to_ask(self, op);
    op->state = 0;
    self->buffers.users -= needs_buffers(op);
    op->file->withheld &= (uint8_t)~bit;
    op->file->bits |= bit; /* as far as anybody knows */
    return state;
}

/* Whether the kernel does not want to perform this one: then the engine finds out why. */
static bool is_refusal(int code)
{
    return code == -EINVAL || code == -EOPNOTSUPP || code == -EAGAIN;
}

static void refuse(weir_uring *self, weir_io_op *op)
{
    op->state = WEIR_OP_REFUSED;
    if (weir__op_is_out(op))
        weir__readiness_wait_out(&self->base, op);
    else
        weir__readiness_wait_in(&self->base, op);
}

/* Batches -------------------------------------------------------------------------------------- */

void weir__uring_end_batch(weir_uring *self)
{
    weir_io *base = &self->base.base;
    weir_io_op *op = self->batch;
    self->batch = NULL;
    self->batch_count = 0;
    if (op != NULL && base->current != NULL)
        weir__op_end_batch(op);
    base->current = NULL;
}

/* Data: its batch is open from then on, unless it was full. */
static void tell_data(weir_uring *self, weir_io_op *op, const weir_io_result *result)
{
    weir_io *base = &self->base.base;
    if (self->batch != op) {
        weir__uring_end_batch(self);
        self->batch = op;
        base->current = op->file;
    }
    weir__op_tell_data(base, op, result);
    if (++self->batch_count == WEIR_IO_BATCH)
        weir__uring_end_batch(self);
}

/* No data: the batch goes before it. */
static void finish_in(weir_uring *self, weir_io_op *op, int code)
{
    weir__op_disarm(op);
    weir__uring_end_batch(self);
    weir__op_tell(&self->base.base, op, &(weir_io_result){ .code = code });
}

/* The way in ----------------------------------------------------------------------------------- */

/* Gives one that is armed, in the completion phase. */
void weir__uring_give_or_end(weir_uring *self, weir_io_op *op)
{
    int code = weir__uring_give(self, op);
    if (code == -EAGAIN || code == -EINTR)
        refuse(self, op);
    else if (code != WEIR_IO_PENDING)
        weir__op_finish_later(&self->base.base, op, code);
}

/* It goes on: at the kernel, or behind what is kept. */
static void go_on(weir_uring *self, weir_io_op *op)
{
    if (weir__kept_has(op->file))
        weir__readiness_make_ready(&self->base, op->file);
    else
        weir__uring_give_or_end(self, op);
}

/* An operation that stays armed has ended at the kernel with this code, though not for its owner.
 */
static void end_armed(weir_uring *self, weir_io_op *op, int code)
{
    if (waits_for_answer(op, code))
        return;
    unsigned state = take_back(self, op);
    bool has_more = weir__kept_has(op->file);
    if (state & WEIR_OP_CANCELLED) {
        bool is_error = code < 0 && code != -ENOBUFS && code != -EINTR && !is_refusal(code);
        if (is_error && code != -ECANCELED && has_more)
            op->file->kept_code = code;
        finish_in(self, op, is_error && !has_more ? code : -ECANCELED);
    } else if (state & WEIR_OP_PAUSED || code > 0 || code == -EINTR) {
        go_on(self, op);
    } else if (is_refusal(code)) {
        refuse(self, op);
    } else {
        finish_in(self, op, code);
    }
}

/* There were no buffers: -EINTR when there are now. */
static int run_out(weir_uring *self)
{
    weir__uring_buffers_grow(self);
    return weir__uring_buffers_fill(self) ? -EINTR : -ENOMEM;
}

static void complete_receive(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    if (flags & IORING_CQE_F_BUFFER && code > 0) {
        unsigned number = flags >> IORING_CQE_BUFFER_SHIFT;
        weir_buf *buf = weir__uring_buffers_take(self, number, (size_t)code);
        weir_io_result result = { .code = code, .is_armed = op->is_multishot, .buf = buf };
        if (op->state & WEIR_OP_CANCELLED) {
            weir__kept_add(op->file, buf);
        } else {
            if (!op->is_multishot)
                take_back(self, op);
            tell_data(self, op, &result);
            if (!result.is_armed)
                return;
        }
    } else if (flags & IORING_CQE_F_BUFFER) {
        weir__uring_buffers_put_back(self, flags >> IORING_CQE_BUFFER_SHIFT);
    }
    if (!(flags & IORING_CQE_F_MORE))
        end_armed(self, op, code == -ENOBUFS ? run_out(self) : code);
}

/* Datagrams are copied, for each has a few hundred bytes in front of it; without memory the buffer
 * itself is handed on. */
static void read_datagram(weir_uring *self, const weir_io_op *op, unsigned number, size_t length,
                          weir_io_result *result)
{
    const struct io_uring_recvmsg_out *out = weir__uring_buffers_look(self, number);
    char *name = (char *)(uintptr_t)(out + 1);
    char *control = name + sizeof(struct sockaddr_storage);
    size_t there = length - DATAGRAM_ROOM, most = op->datagrams.bytes;
    size_t taken = there < most ? there : most;
    struct msghdr message = {
        .msg_name = name,
        .msg_namelen = out->namelen,
        .msg_control = control,
        .msg_controllen = out->controllen,
        .msg_flags = (int)out->flags | (there > most ? MSG_TRUNC : 0),
    };
    weir__io_describe_datagram(&message, &self->base.arena.in.recipients[0], result);
    result->code = (int)taken;
    result->buf = weir_buf_from(control + WEIR_IO_CONTROL_SIZE, taken);
    if (result->buf == NULL) {
        result->buf = weir__uring_buffers_hand_on(self, number);
        result->buf->reader = DATAGRAM_ROOM;
        result->buf->writer = (uint32_t)(DATAGRAM_ROOM + taken);
    }
}

/* Those that came are told, even if somebody has enough meanwhile, as with every backend. The
 * buffer goes back when it is not looked at any more. */
static void complete_datagram(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    if (flags & IORING_CQE_F_BUFFER) {
        unsigned number = flags >> IORING_CQE_BUFFER_SHIFT;
        weir_io_result result = { .is_armed = true };
        if (code >= (int)DATAGRAM_ROOM) {
            read_datagram(self, op, number, (size_t)code, &result);
            tell_data(self, op, &result);
        }
        weir__uring_buffers_put_back(self, number);
    }
    if (!(flags & IORING_CQE_F_MORE))
        end_armed(self, op, code == -ENOBUFS ? run_out(self) : code);
}

static void keep_descriptor(weir_uring *self, weir_io_op *op, int fd)
{
    weir_sys *sys = self->base.base.sys;
    if (weir__kept_add_descriptor(op->file, fd) < 0)
        sys->close(sys, fd); /* without memory nobody could have taken it */
}

/* A burst does not outrun the loop: after a batch the kernel shall stop, and what came by then is
 * told in the next turns. */
static void pause_op(weir_uring *self, weir_io_op *op)
{
    op->state |= WEIR_OP_PAUSED;
    weir__uring_ask_end(self, op);
}

static void complete_accept(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    bool has_more = flags & IORING_CQE_F_MORE;
    if (code >= 0) {
        if (op->state & (WEIR_OP_CANCELLED | WEIR_OP_PAUSED)) {
            keep_descriptor(self, op, code);
        } else {
            struct sockaddr_storage address;
            weir_io_result result = { .code = code, .is_armed = op->is_multishot };
            weir__io_name_peer(&self->base.base, &address, &result);
            if (!op->is_multishot)
                take_back(self, op);
            tell_data(self, op, &result);
            if (!result.is_armed)
                return;
            if (has_more && self->batch == NULL && !(op->state & WEIR_OP_CANCELLED))
                pause_op(self, op);
        }
        code = 1;
    }
    if (!has_more)
        end_armed(self, op, code);
}

/* The way out ---------------------------------------------------------------------------------- */

static void wait_for_room(weir_uring *self, weir_io_op *op)
{
    struct io_uring_sqe *entry = weir__uring_next(self);
    if (entry == NULL) {
        refuse(self, op);
        return;
    }
    io_uring_prep_poll_add(entry, op->file->fd, POLLOUT);
    begin(self, op, entry);
    op->state |= WEIR_OP_WAITS;
}

/* There is room, or an error that sending finds out. */
static void send_again(weir_uring *self, weir_io_op *op)
{
    int code = give_send(self, op);
    if (code == -EAGAIN)
        refuse(self, op);
    else if (code != WEIR_IO_PENDING)
        weir__op_finish(&self->base.base, op, code);
}

static void complete_out(weir_uring *self, weir_io_op *op, int code)
{
    if (waits_for_answer(op, code))
        return;
    unsigned state = take_back(self, op);
    bool is_undone = is_refusal(code) || code == -EINTR || (state & WEIR_OP_WAITS && code >= 0);
    if (is_undone && state & WEIR_OP_CANCELLED)
        weir__op_finish(&self->base.base, op, -ECANCELED);
    else if (state & WEIR_OP_WAITS && code >= 0)
        send_again(self, op);
    else if (code == -EAGAIN && op->kind == WEIR_IO_SEND)
        wait_for_room(self, op);
    else if (is_undone && op->kind == WEIR_IO_SEND)
        refuse(self, op);
    else
        weir__op_finish(&self->base.base, op, code);
}

/* While an operation is on its way from one state to the next the kernel does not find it. */
void weir__uring_complete_end(weir_uring *self, weir_io_op *op, int code)
{
    self->base.base.news++;
    op->state &= (uint8_t)~WEIR_OP_ASKED;
    if (op->state & WEIR_OP_ENDED) {
        if (self->batch != op)
            weir__uring_end_batch(self);
        (weir__op_is_out(op) ? complete_out : end_armed)(self, op, op->code);
    } else if (code == -ENOENT) {
        weir__uring_ask_end(self, op);
    }
}

void weir__uring_complete_op(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    self->base.base.news++;
    if (self->batch != NULL && self->batch != op)
        weir__uring_end_batch(self);
    switch ((weir_io_op_kind)op->kind) {
    case WEIR_IO_RECEIVE:
        complete_receive(self, op, code, flags);
        break;
    case WEIR_IO_ACCEPT:
        complete_accept(self, op, code, flags);
        break;
    case WEIR_IO_RECEIVE_DATAGRAM:
        complete_datagram(self, op, code, flags);
        break;
    default:
        complete_out(self, op, code);
        break;
    }
}

/* Another ring --------------------------------------------------------------------------------- */

void weir__uring_salvage(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    if (weir__op_is_out(op)) {
        take_back(self, op);
        weir__op_finish_later(&self->base.base, op, code);
    } else if (op->kind == WEIR_IO_RECEIVE && code > 0) {
        unsigned number = flags >> IORING_CQE_BUFFER_SHIFT;
        weir__kept_add(op->file, weir__uring_buffers_take(self, number, (size_t)code));
    } else if (op->kind == WEIR_IO_ACCEPT && code >= 0) {
        keep_descriptor(self, op, code);
    } else if (code < 0 && code != -ECANCELED && code != -ENOBUFS && op->kind == WEIR_IO_RECEIVE) {
        op->file->kept_code = code;
    }
}

void weir__uring_reclaim(weir_uring *self, weir_io_op *op)
{
    unsigned state = take_back(self, op);
    if (state & WEIR_OP_CANCELLED)
        weir__op_finish_later(&self->base.base, op, -ECANCELED);
    else if (!weir__op_is_out(op))
        weir__readiness_make_ready(&self->base, op->file);
}
