/* SPDX-License-Identifier: MIT */
/* The system call behind each operation, made once and without waiting: what backends share that
 * find out by trying. */
#ifndef WEIR_IO_ATTEMPT_H
#define WEIR_IO_ATTEMPT_H

#include "io/io.h"

/*
 * Each returns what the operation's result says, or -EAGAIN when it would have to wait, and counts.
 * A call that was interrupted is made again, a few times; then -EINTR.
 */

/* Accepts, or receives into a new buffer of the guessed size: fills in the result. `*was_filled` is
 * whether there may be more. */
int weir__io_try_in(weir_io *io, weir_io_op *op, weir_io_result *result,
                    struct sockaddr_storage *address, bool *was_filled);

/* Sends what the operation gathers; `pieces` has room for `max` of them. */
int weir__io_try_send(weir_io *io, weir_io_op *op, struct iovec *pieces, int max);

/* Whether a connect has succeeded that was in progress. */
int weir__io_connect_result(weir_io *io, weir_io_op *op);

/* Whether a result of an accept or receive brings something. */
static inline bool weir__io_is_data(const weir_io_op *op, int code)
{
    return op->kind == WEIR_IO_ACCEPT ? code >= 0 : code > 0;
}

#endif
