/* SPDX-License-Identifier: MIT */
/* Files that so much comes in from that provided buffers do not pay. */
#include "io/uring.h"

/*
 * A message of many buffers costs a result for each of them, and the kernel fills the one that was
 * used longest ago, which is in no cache any more. So when more follows a full buffer, the file is
 * received from as with epoll: when it is readable, straight into the buffer that was released
 * last, as large as what comes. When less comes again, the kernel receives again.
 */

/* Back to the kernel: the end of two polls, of the file and of its end, then the next poll for
 * that, and the receive. There is room for all of them, or for none. */
#define SUBMISSIONS_TO_CHANGE 4

void weir__uring_note_full(weir_uring *self, weir_io_op *op)
{
    if (self->has_no_bulk || op->state != WEIR_OP_AT_KERNEL ||
        self->buffers.bytes >= WEIR__LARGEST_GUESS ||
        self->ring.sq.ring_entries < SUBMISSIONS_TO_CHANGE)
        return;
    op->file->is_bulk = true;
    weir__guess_most(&op->guess);
    weir__uring_pause(self, op);
}

/* Whether the engine has to watch the file for any other operation. */
static bool is_watched_for_others(const weir_io_file *file)
{
    return file->send_state == WEIR_SEND_WAITING || file->send_state == WEIR_SEND_POLLED ||
           file->level != NULL;
}

void weir__uring_review_bulk(weir_uring *self, weir_io_op *op)
{
    weir_io_file *file = op->file;
    if (!file->is_bulk || op->kind != WEIR_IO_RECEIVE ||
        weir__guess_size(&op->guess) > self->buffers.bytes || self->room < SUBMISSIONS_TO_CHANGE)
        return;
    file->is_bulk = false;
    if (is_watched_for_others(file))
        return;
    weir__uring_unwatch_end(self, file); /* by its name of now */
    weir__readiness_unwatch(&self->base, file);
}
