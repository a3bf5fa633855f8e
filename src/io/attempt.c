/* SPDX-License-Identifier: MIT */
/* Trying operations. */
#include "io/attempt.h"

#include <errno.h>

#define MOST_RETRIES 8

static int receive(weir_io *io, weir_io_op *op, weir_buf *buf, size_t size)
{
    int code = -EINTR;
    uint8_t *to = weir_buf_write_ptr(buf, size);
    for (int i = 0; i < MOST_RETRIES && code == -EINTR; i++) {
        weir__io_count(&io->counters->receives);
        code = io->sys->recv(io->sys, op->file->fd, to, size, 0);
    }
    return code;
}

static int try_receive(weir_io *io, weir_io_op *op, weir_io_result *result, bool *was_filled)
{
    size_t size = weir__guess_size(&op->guess);
    weir_buf *buf = weir_buf_new(size);
    int code = buf != NULL ? receive(io, op, buf, size) : -ENOMEM;
    if (code <= 0) {
        weir_buf_release(buf);
        return code;
    }
    weir_buf_advance_writer(buf, (size_t)code);
    weir__guess_learn(&op->guess, (size_t)code);
    *was_filled = (size_t)code == size;
    result->buf = buf;
    return code;
}

static int try_accept(weir_io *io, weir_io_op *op, weir_io_result *result,
                      struct sockaddr_storage *address)
{
    int code = -EINTR;
    result->address = (struct sockaddr *)address;
    for (int i = 0; i < MOST_RETRIES && code == -EINTR; i++) {
        result->address_length = sizeof *address;
        weir__io_count(&io->counters->accepts);
        code = io->sys->accept(io->sys, op->file->fd, (struct sockaddr *)address,
                               &result->address_length);
    }
    return code;
}

int weir__io_try_in(weir_io *io, weir_io_op *op, weir_io_result *result,
                    struct sockaddr_storage *address, bool *was_filled)
{
    *was_filled = true;
    return op->kind == WEIR_IO_RECEIVE ? try_receive(io, op, result, was_filled)
                                       : try_accept(io, op, result, address);
}

int weir__io_try_send(weir_io *io, weir_io_op *op, struct iovec *pieces, int max)
{
    int code = -EINTR;
    weir_sys *sys = io->sys;
    int count = op->gather(op, pieces, max);
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
    for (int i = 0; i < MOST_RETRIES && code == -EINTR; i++) {
        weir__io_count(&io->counters->sends);
        code = count == 1
                   ? sys->send(sys, op->file->fd, pieces->iov_base, pieces->iov_len, MSG_NOSIGNAL)
                   : sys->sendmsg(sys, op->file->fd, &message, MSG_NOSIGNAL);
    }
    return code;
}

int weir__io_connect_result(weir_io *io, weir_io_op *op)
{
    int error = 0;
    socklen_t length = sizeof error;
    int code = io->sys->getsockopt(io->sys, op->file->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return code < 0 ? code : -error;
}
