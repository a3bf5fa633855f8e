/* SPDX-License-Identifier: MIT */
/* The system call behind each operation, made once and without waiting: what backends share that
 * find out by trying. */
#ifndef WEIR_IO_ATTEMPT_H
#define WEIR_IO_ATTEMPT_H

#include "io/io.h"

#include <limits.h>

#define WEIR_IO_MOST_DESCRIPTORS 253 /* that Linux takes in one message */
#define WEIR_IO_CONTROL_SIZE 192     /* of what comes and goes with a datagram */

typedef struct weir_io_control {
    _Alignas(struct cmsghdr) char bytes[WEIR_IO_CONTROL_SIZE];
} weir_io_control;

typedef struct weir_io_descriptor_control {
    _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(WEIR_IO_MOST_DESCRIPTORS * sizeof(int))];
} weir_io_descriptor_control;

/* What the calls need besides the operation: one for each backend, so that no channel holds any.
 * The two ways are apart, because somebody who is told what came may send. */
typedef struct weir_io_arena {
    struct {
        weir_io_result results[WEIR_IO_BATCH];
        struct sockaddr_storage addresses[WEIR_IO_BATCH];
        weir_address recipients[WEIR_IO_BATCH];
        struct mmsghdr headers[WEIR_IO_BATCH];
        struct iovec pieces[WEIR_IO_BATCH];
        weir_io_control controls[WEIR_IO_BATCH];
        weir_io_descriptor_control descriptor_control;
        int descriptors[WEIR_IO_MOST_DESCRIPTORS];
    } in;
    struct {
        struct iovec pieces[IOV_MAX];
        struct mmsghdr headers[WEIR_IO_BATCH];
        weir_io_control controls[WEIR_IO_BATCH];
        weir_io_descriptor_control descriptor_control;
    } out;
} weir_io_arena;

/*
 * Each counts its calls. One that was interrupted is made again, a few times; then -EINTR.
 */

/* Receives from a stream: the code of the result, which is filled in when there are bytes; 0 at the
 * end, or -EAGAIN when it would have to wait. */
int weir__io_receive(weir_io *io, weir_io_op *op, weir_io_arena *arena, weir_io_result *result);

/* Accepts, splices, or receives datagrams: how many results there are in the arena, at most `max`;
 * or the code of the final one (0: the end of the stream), or -EAGAIN when it would have to wait.
 * `*may_have_more` is whether another try makes sense. */
int weir__io_try_in(weir_io *io, weir_io_op *op, weir_io_arena *arena, unsigned max,
                    bool *may_have_more);

/* Fills in what the kernel says about a datagram besides its bytes. */
void weir__io_describe_datagram(struct msghdr *message, weir_address *recipient,
                                weir_io_result *result);

/* Sends what the file's sender has: the result, -EAGAIN when it would have to wait, or
 * WEIR_SEND_NOTHING. */
int weir__io_try_send(weir_io *io, weir_io_file *file, weir_io_arena *arena);

/* Begins to connect, and says whether a connect has succeeded that was in progress. */
int weir__io_begin_connect(weir_io *io, weir_io_op *op);
int weir__io_connect_result(weir_io *io, weir_io_op *op);

#endif
