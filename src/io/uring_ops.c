/* SPDX-License-Identifier: MIT */
/* What becomes of operations that the kernel performs. */
#include "io/kept.h"
#include "io/ops.h"
#include "io/uring.h"

#include <errno.h>

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

void weir__uring_pause(weir_uring *self, weir_io_op *op)
{
    op->state |= WEIR_OP_PAUSED;
    weir__uring_ask_end(self, op);
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
    weir__uring_forget_end(self, op);
    unsigned state = op->state;
    uint8_t bit = weir__op_is_out(op) ? WEIR_FILE_WRITABLE : WEIR_FILE_READABLE;
    if (state & (WEIR_OP_CANCELLED | WEIR_OP_PAUSED))
        forget_to_ask(self, op);
    op->state = 0;
    self->buffers.users -= weir__uring_needs_buffers(op);
    op->file->withheld &= (uint8_t)~bit;
    op->file->bits |= bit; /* as far as anybody knows */
    return state;
}

/* What was cancelled because its file is lost says so. */
static int last_word(const weir_io_op *op, int code)
{
    return code == -ECANCELED && op->file->error < 0 ? op->file->error : code;
}

/* Whether it says what has become of the connection. */
static bool is_error(int code)
{
    return code < 0 && code != -ECANCELED && code != -ENOBUFS && code != -EINTR &&
           !weir__uring_is_refusal(code);
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

WEIR__HOT inline void weir__uring_end_batch(weir_uring *self)
{
    weir_io *base = &self->base.base;
    weir_io_op *op = self->batch;
    self->batch = NULL;
    self->batch_count = 0;
    self->batch_is_full = false;
    if (op != NULL && base->current != NULL)
        weir__op_end_batch(op);
    base->current = NULL;
}

/* Data: its batch is open from then on, unless it was full. No other is. */
static inline __attribute__((always_inline)) void tell_data(weir_uring *self, weir_io_op *op,
                                                            const weir_io_result *result)
{
    weir_io *base = &self->base.base;
    if (self->batch == NULL) {
        self->batch = op;
        self->buffers.takers += result->buf != NULL;
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
    weir__op_tell(&self->base.base, op, &(weir_io_result){ .code = last_word(op, code) });
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

/* It goes on: at the kernel, or behind what is kept, or in larger pieces. */
static void go_on(weir_uring *self, weir_io_op *op)
{
    if (weir__kept_has(op->file))
        weir__readiness_make_ready(&self->base, op->file);
    else if (op->file->is_bulk)
        weir__readiness_wait_in(&self->base, op);
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
    if (code == 0)
        weir__uring_end_is_known(op->file);
    if (is_error(code) && has_more)
        op->file->kept_code = (int16_t)code; /* behind what is kept */
    if (state & WEIR_OP_CANCELLED) {
        finish_in(self, op, is_error(code) && !has_more ? code : -ECANCELED);
    } else if (has_more || code > 0 || code == -EINTR ||
               (state & WEIR_OP_PAUSED && code == -ECANCELED)) {
        go_on(self, op);
    } else if (weir__uring_is_refusal(code)) {
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

/* Delivers a buffer. False: it was the result of a one-shot receive, which is its owner's again. */
static inline bool complete_buffer(weir_uring *self, weir_io_op *op, int code, unsigned number)
{
    bool is_armed = op->is_multishot, follows_full = self->batch_is_full;
    weir_buf *buf = weir__uring_buffers_take(self, number, (size_t)code);
    if (op->state & WEIR_OP_CANCELLED) {
        weir__kept_add(op->file, buf);
        return true;
    }
    if (!is_armed)
        take_back(self, op);
    tell_data(self, op, &(weir_io_result){ .code = code, .is_armed = is_armed, .buf = buf });
    self->batch_is_full = (uint32_t)code == self->buffers.bytes && self->batch == op;
    if (is_armed && follows_full)
        weir__uring_note_full(self, op);
    return is_armed;
}

static inline void complete_receive(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    unsigned number = flags >> IORING_CQE_BUFFER_SHIFT;
    if (flags & IORING_CQE_F_BUFFER && code > 0) {
        if (!complete_buffer(self, op, code, number))
            return;
    } else if (flags & IORING_CQE_F_BUFFER) {
        weir__uring_buffers_put_back(self, number);
    }
    if (!(flags & IORING_CQE_F_MORE))
        end_armed(self, op, code == -ENOBUFS ? run_out(self) : code);
}

/* Datagrams are copied, for each has a few hundred bytes in front of it; without memory the buffer
 * itself is handed on. */
static void read_datagram(weir_uring *self, const weir_io_op *op, unsigned number, size_t length,
                          weir_io_result *result)
{
    struct io_uring_recvmsg_out *out = weir__uring_buffers_look(self, number);
    char *name = (char *)(out + 1);
    char *control = name + sizeof(struct sockaddr_storage);
    size_t there = length - WEIR_URING_DATAGRAM_ROOM, most = op->datagrams.bytes;
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
        result->buf->reader = WEIR_URING_DATAGRAM_ROOM;
        result->buf->writer = (uint32_t)(WEIR_URING_DATAGRAM_ROOM + taken);
    }
}

/* Those that came are told, even if somebody has enough meanwhile, as with every backend. The
 * buffer goes back when it is not looked at any more. */
static void complete_datagram(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    if (flags & IORING_CQE_F_BUFFER) {
        unsigned number = flags >> IORING_CQE_BUFFER_SHIFT;
        weir_io_result result = { .is_armed = true };
        if (code >= (int)WEIR_URING_DATAGRAM_ROOM) {
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
                weir__uring_pause(self, op);
        }
        code = 1;
    }
    if (!has_more)
        end_armed(self, op, code);
}

/* The way out ---------------------------------------------------------------------------------- */

static void complete_out(weir_uring *self, weir_io_op *op, int code)
{
    if (waits_for_answer(op, code))
        return;
    unsigned state = take_back(self, op);
    if (state & WEIR_OP_CANCELLED && weir__uring_is_undone(code))
        code = -ECANCELED;
    weir__op_finish(&self->base.base, op, last_word(op, code));
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

WEIR__HOT void weir__uring_complete_op(weir_uring *self, weir_io_op *op, int code, unsigned flags)
{
    self->base.base.news++;
    if (self->batch != NULL && self->batch != op)
        weir__uring_end_batch(self); /* whose callbacks may change this one */
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
        if (weir__uring_is_undone(code))
            return; /* as if it were still there */
        take_back(self, op);
        weir__op_finish_later(&self->base.base, op, code);
    } else if (op->kind == WEIR_IO_RECEIVE && code > 0) {
        unsigned number = flags >> IORING_CQE_BUFFER_SHIFT;
        weir__kept_add(op->file, weir__uring_buffers_take(self, number, (size_t)code));
    } else if (op->kind == WEIR_IO_ACCEPT && code >= 0) {
        keep_descriptor(self, op, code);
    } else if (is_error(code) && op->kind == WEIR_IO_RECEIVE) {
        op->file->kept_code = (int16_t)code;
    }
}

void weir__uring_reclaim(weir_uring *self, weir_io_op *op)
{
    unsigned state = take_back(self, op);
    if (state & WEIR_OP_ENDED && is_error(op->code) && op->kind == WEIR_IO_RECEIVE)
        op->file->kept_code = (int16_t)op->code;
    if (state & WEIR_OP_ENDED && weir__op_is_out(op) && !weir__uring_is_undone(op->code))
        weir__op_finish_later(&self->base.base, op, op->code);
    else if (state & WEIR_OP_CANCELLED)
        weir__op_finish_later(&self->base.base, op, -ECANCELED);
    else if (!weir__op_is_out(op))
        weir__readiness_make_ready(&self->base, op->file);
}
