/* SPDX-License-Identifier: MIT */
/* The ends of what is received, which receives that stay armed may miss. */
#include "io/ops.h"
#include "io/uring.h"

#include <errno.h>

/*
 * The kernel goes back to waiting when it has received all that was there, and trusts that whatever
 * comes next wakes it. It has already been woken for an end that came with the data, in several
 * ways: when both came before it looked (kernels before 2026), between its first look and the wait,
 * or behind 128 other wake-ups. Then nobody hears of that end, or of a reset, ever.
 *
 * So beside each receive that stays armed there is a poll for the end alone, which data do not
 * wake. Mostly the receive has told everything by then, or in the same turn. When it has not, it
 * begins anew, and takes one buffer at a time from then on: the kernel looks before each of those
 * waits, and finds the end.
 */
enum {
    END_UNWATCHED,
    END_WATCHED,
    END_SEEN, /* for good: what looks like an end for ever would be seen again and again */
};

bool weir__uring_watch_end(weir_uring *self, weir_io_file *file)
{
    if (file->end != END_UNWATCHED)
        return true;
    struct io_uring_sqe *entry = weir__uring_next(self);
    if (entry == NULL)
        return false;
    io_uring_prep_poll_add(entry, file->fd, POLLRDHUP);
    entry->user_data = weir__uring_file_name(self, file, WEIR_URING_FILE_END);
    file->end = END_WATCHED;
    return true;
}

bool weir__uring_watches_end(const weir_io_file *file)
{
    return file->end == END_WATCHED;
}

bool weir__uring_saw_end(const weir_io_file *file)
{
    return file->end == END_SEEN;
}

/* What could not be asked for is asked for again when the file goes, by its name of then. */
void weir__uring_unwatch_end(weir_uring *self, weir_io_file *file)
{
    if (file->end == END_WATCHED &&
        weir__uring_end_poll(self, weir__uring_file_name(self, file, WEIR_URING_FILE_END)))
        file->end = END_UNWATCHED;
}

void weir__uring_end_is_known(weir_io_file *file)
{
    if (file->end == END_WATCHED)
        file->end = END_UNWATCHED;
}

/* One that was taken back says so, or was faster; then there may be another one by now, which is as
 * good as this one. */
void weir__uring_complete_file_end(weir_uring *self, uint64_t name, int code)
{
    weir_io_file *file = weir__uring_file_of(self, name);
    if (file == NULL || code == -ECANCELED || file->end != END_WATCHED)
        return;
    weir_io_op *op = file->in;
    file->end = END_SEEN;
    self->base.base.news++;
    if (op == NULL || op->kind != WEIR_IO_RECEIVE || !op->is_multishot ||
        op->state != WEIR_OP_AT_KERNEL)
        return;
    op->state |= WEIR_OP_TOLD;
    op->next_ended = self->told;
    self->told = op;
}

void weir__uring_forget_end(weir_uring *self, weir_io_op *op)
{
    weir_io_op **place = &self->told;
    if (!(op->state & WEIR_OP_TOLD))
        return;
    while (*place != op)
        place = &(*place)->next_ended;
    *place = op->next_ended;
    op->state &= (uint8_t)~WEIR_OP_TOLD;
}

void weir__uring_review_ends(weir_uring *self)
{
    while (self->told != NULL) {
        weir_io_op *op = self->told;
        weir__uring_forget_end(self, op);
        weir__uring_pause(self, op);
    }
}
