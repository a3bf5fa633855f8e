/* SPDX-License-Identifier: MIT */
/* The bookkeeping of operations that every backend does alike: who is armed, who is told, in which
 * order. */
#ifndef WEIR_IO_OPS_H
#define WEIR_IO_OPS_H

#include "exec/notice.h"
#include "io/io.h"

/* Prepares the base of a backend. */
void weir__io_init(weir_io *io, const weir_io_type *type, weir_sys *sys,
                   weir_io_counters *counters);

/* The code of an attach that was rejected; -EEXIST is logged with the descriptor, for the code
 * alone says neither which one it is nor what exists. */
int weir__io_log_twin(const weir_io *io, int fd, int code);

/* A file goes, maybe inside one of its callbacks. */
void weir__io_forget(weir_io *io, const weir_io_file *file);

/* Where its file keeps an operation of this kind. */
weir_io_op **weir__op_place(const weir_io_op *op);

/* Whether it is armed: neither over, nor about to be told. */
static inline bool weir__op_is_armed(const weir_io_op *op)
{
    return op->is_in_flight && *weir__op_place(op) == op;
}

/* It is the backend's from now on, and waits for what its kind waits for; or does so no more. */
void weir__op_arm(weir_io_op *op);
void weir__op_disarm(weir_io_op *op);

/* It is its owner's again, with the result that submit returns. */
int weir__op_end_at_once(weir_io_op *op, int code);

/* It is its owner's again. */
static inline void weir__op_land(weir_io_op *op)
{
    op->is_in_flight = false;
    op->file->in_flight--;
}

/* Calls on_done; with the final result it is its owner's again. */
static inline void weir__op_tell(weir_io *io, weir_io_op *op, const weir_io_result *result)
{
    weir__io_count(&io->counters->completions);
    if (!result->is_armed)
        weir__op_land(op);
    op->on_done(op, result);
    weir__notices_run();
}

/* The final result, told at once; or in the next completion phase, for who is inside submit or
 * cancel. */
void weir__op_finish(weir_io *io, weir_io_op *op, int code);
void weir__op_finish_later(weir_io *io, weir_io_op *op, int code);
void weir__io_tell_ended(weir_io *io);

/* For accept and receive. Data: false when the batch ends with it. */
static inline bool weir__op_tell_data(weir_io *io, weir_io_op *op, const weir_io_result *result)
{
    weir_io_file *file = op->file;
    if (!op->is_multishot)
        weir__op_disarm(op);
    weir__op_tell(io, op, result);
    return result->is_armed && io->current == file && file->in == op;
}

/* No data: the end of a batch of `count` goes before it. The kernel has told it, and will not do so
 * again: it is the final result, even if somebody cancels now. */
void weir__op_finish_in(weir_io *io, weir_io_op *op, int code, unsigned count);

static inline void weir__op_end_batch(weir_io_op *op)
{
    if (op->on_batch_end == NULL)
        return;
    op->on_batch_end(op);
    weir__notices_run();
}

/* Whether the file may send once more in this turn; counts it. */
static inline bool weir__io_take_send(weir_io *io, weir_io_file *file)
{
    if (file->send_turn != (uint16_t)io->turn) {
        file->send_turn = (uint16_t)io->turn;
        file->sends = 0;
    }
    if (file->sends == WEIR_IO_BATCH)
        return false;
    file->sends++;
    return true;
}

/* What is armed besides the two ways; NULL: nothing of that kind. */
static inline weir_io_op *weir__file_poll(const weir_io_file *file)
{
    return file->level != NULL && file->level->kind == WEIR_IO_POLL ? file->level : NULL;
}

static inline weir_io_op *weir__file_hangup(const weir_io_file *file)
{
    return file->level != NULL && file->level->kind == WEIR_IO_HANGUP ? file->level : NULL;
}

/* Whether an operation may finish inside submit. */
static inline bool weir__op_is_out(const weir_io_op *op)
{
    return op->kind == WEIR_IO_CONNECT;
}

#endif
