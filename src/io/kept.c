/* SPDX-License-Identifier: MIT */
/* Keeping what came too late, and telling it. */
#include "io/kept.h"

#include "buf/buf.h"
#include "io/ops.h"
#include "io/readiness.h"

#include <errno.h>

_Static_assert((int)WEIR_IO_READABLE == (int)WEIR_FILE_READABLE, "who has something kept has it");

#define DESCRIPTORS_PER_BUFFER 16

/* The chain is a ring, of which the file knows the last. */
void weir__kept_add(weir_io_file *file, weir_buf *buf)
{
    weir_block *block = weir__buf_home(buf);
    if (file->kept == NULL) {
        block->next = block;
    } else {
        block->next = file->kept->next;
        file->kept->next = block;
    }
    file->kept = block;
}

int weir__kept_add_descriptor(weir_io_file *file, int fd)
{
    if (file->kept == NULL || weir_buf_writable(&file->kept->buf) < sizeof fd) {
        weir_buf *buf = weir_buf_new(DESCRIPTORS_PER_BUFFER * sizeof fd);
        if (buf == NULL)
            return -ENOMEM;
        weir__kept_add(file, buf);
        file->keeps_descriptors = true;
    }
    return weir_buf_write_bytes(&file->kept->buf, &fd, sizeof fd);
}

static weir_buf *first_of(const weir_io_file *file)
{
    return &file->kept->next->buf;
}

static weir_buf *take_first(weir_io_file *file)
{
    weir_block *first = file->kept->next;
    file->kept->next = first->next;
    if (file->kept == first)
        file->kept = NULL;
    return &first->buf;
}

static int take_descriptor(weir_io_file *file)
{
    int fd = -1;
    weir_buf_read_bytes(first_of(file), &fd, sizeof fd);
    if (weir_buf_readable(first_of(file)) == 0)
        weir_buf_release(take_first(file));
    file->keeps_descriptors = file->kept != NULL;
    return fd;
}

void weir__kept_drop(weir_sys *sys, weir_io_file *file)
{
    while (file->keeps_descriptors)
        sys->close(sys, take_descriptor(file));
    while (file->kept != NULL)
        weir_buf_release(take_first(file));
    file->kept_code = 0;
}

void weir__io_name_peer(weir_io *io, struct sockaddr_storage *address, weir_io_result *result)
{
    socklen_t length = sizeof *address;
    if (io->sys->getpeername(io->sys, result->code, (struct sockaddr *)address, &length) < 0)
        return;
    result->address = (struct sockaddr *)address;
    result->address_length = length;
}

/* Into the pipe, instead of what the kernel would put there: how much. */
static int pour(weir_io *io, const weir_io_op *op)
{
    weir_buf *buf = first_of(op->file);
    size_t length = weir_buf_readable(buf);
    const void *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
    int code = io->sys->write(io->sys, op->splice.fd, bytes,
                              length < op->splice.length ? length : op->splice.length);
    if (code > 0)
        weir_buf_skip(buf, (size_t)code);
    if (weir_buf_readable(buf) == 0)
        weir_buf_release(take_first(op->file));
    return code;
}

/* The next thing: whether the batch goes on. */
static bool tell_next(weir_io *io, weir_io_op *op)
{
    struct sockaddr_storage address;
    weir_io_result result = { .is_armed = op->is_multishot };
    if (op->kind == WEIR_IO_ACCEPT) {
        result.code = take_descriptor(op->file);
        weir__io_name_peer(io, &address, &result);
    } else if (op->kind == WEIR_IO_SPLICE_IN) {
        result.code = pour(io, op);
        if (result.code == -EAGAIN || result.code == -EINTR)
            return false; /* in the next turn */
    } else {
        result.buf = take_first(op->file);
        result.code = (int)weir_buf_readable(result.buf);
    }
    return weir__op_tell_data(io, op, &result);
}

void weir__kept_tell(weir_io *io, weir_io_op *op)
{
    weir_io_file *file = op->file;
    unsigned count = 0;
    bool goes_on = true;
    while (goes_on && file->kept != NULL && count < WEIR_IO_BATCH) {
        goes_on = tell_next(io, op);
        count++;
    }
    if (goes_on && file->kept == NULL && file->kept_code < 0) {
        int code = file->kept_code;
        file->kept_code = 0;
        weir__op_finish_in(io, op, code, count);
    } else if (io->current == file) {
        weir__op_end_batch(op);
    }
}
