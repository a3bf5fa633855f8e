/* SPDX-License-Identifier: MIT */
/* The bookkeeping of operations. */
#include "io/ops.h"

#include "base/assert.h"

#include <weir/log.h>

#include <errno.h>

void weir__io_init(weir_io *io, const weir_io_type *type, weir_sys *sys, weir_io_counters *counters)
{
    *io = (weir_io){ .type = type, .sys = sys, .counters = counters };
    io->last_ended = &io->first_ended;
    io->last_sent = &io->first_sent;
}

int weir__io_log_twin(const weir_io *io, int fd, int code)
{
    if (code == -EEXIST)
        weir_log(WEIR_LOG_WARN, io->type->name,
                 "descriptor %d is rejected: it is registered with this loop already", fd);
    return code;
}

void weir__io_forget(weir_io *io, const weir_io_file *file)
{
    if (io->current == file)
        io->current = NULL;
    if (io->finishing == file)
        io->finishing = NULL;
}

weir_io_op **weir__op_place(const weir_io_op *op)
{
    weir_io_file *file = op->file;
    if (weir__op_is_out(op))
        return &file->out;
    return op->kind == WEIR_IO_POLL || op->kind == WEIR_IO_HANGUP ? &file->level : &file->in;
}

void weir__op_arm(weir_io_op *op)
{
    WEIR_ASSERT(*weir__op_place(op) == NULL && !op->is_in_flight);
    *weir__op_place(op) = op;
    op->is_in_flight = true;
    op->file->in_flight++;
}

void weir__op_disarm(weir_io_op *op)
{
    *weir__op_place(op) = NULL;
}

int weir__op_end_at_once(weir_io_op *op, int code)
{
    weir__op_disarm(op);
    weir__op_land(op);
    return code;
}

/* The batch of another file may be open meanwhile, so `current` stays. */
static void tell_final(weir_io *io, weir_io_op *op, int code)
{
    io->finishing = op->file;
    weir__op_tell(io, op, &(weir_io_result){ .code = code });
    io->finishing = NULL;
}

void weir__op_finish(weir_io *io, weir_io_op *op, int code)
{
    weir__op_disarm(op);
    tell_final(io, op, code);
}

void weir__op_finish_later(weir_io *io, weir_io_op *op, int code)
{
    weir__op_disarm(op);
    op->code = code;
    op->next_ended = NULL;
    *io->last_ended = op;
    io->last_ended = &op->next_ended;
}

/* Those that are there now; what ends meanwhile waits for the next time. */
void weir__io_tell_ended(weir_io *io)
{
    weir_io_op *op = io->first_ended;
    io->first_ended = NULL;
    io->last_ended = &io->first_ended;
    while (op != NULL) {
        weir_io_op *next = op->next_ended; /* it is its owner's again when it is told */
        tell_final(io, op, op->code);
        op = next;
    }
}

void weir__op_finish_in(weir_io *io, weir_io_op *op, int code, unsigned count)
{
    weir__op_disarm(op);
    if (count > 0)
        weir__op_end_batch(op);
    tell_final(io, op, code);
}
