/* SPDX-License-Identifier: MIT */
/* Sends that the kernel performs. */
#include "base/fault.h"
#include "io/send.h"
#include "io/uring.h"

#include <errno.h>

/*
 *     gather -> [submission] ... enter ... [result] -> on_sent
 *
 * A submission does not wait for free space: the kernel might use a thread of its own for that, and
 * so it is over as soon as the kernel has taken it. When the socket is full, a poll waits for space
 * (POLLED), and the bytes are gathered again. What the kernel does not take as a submission is sent
 * by system calls (io/send.c).
 */
#define HOW_TO_SEND (MSG_NOSIGNAL | MSG_DONTWAIT)
#define MIN_PIECES 64 /* with fewer left it is time to submit */

/* Submitting ----------------------------------------------------------------------------------- */

/* Free pieces, and a free submission for them: to submit in between would free the pieces. */
static bool has_room_to_gather(weir_uring *self)
{
    unsigned room = sizeof self->pieces / sizeof *self->pieces - self->piece_count;
    if (self->room > 0 && room >= MIN_PIECES && self->header_count < WEIR_URING_HEADERS)
        return true;
    return self->is_open && weir__uring_enter(self, 0) == 0 && self->piece_count == 0 &&
           self->room > 0;
}

/* The fault hook, which may make the send shorter. */
static int ask_fault(struct iovec *pieces, int *count)
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

static void prepare(weir_uring *self, struct io_uring_sqe *entry, const weir_io_file *file,
                    struct iovec *pieces, int count)
{
    if (count == 1) {
        io_uring_prep_send(entry, file->fd, pieces->iov_base, pieces->iov_len, HOW_TO_SEND);
    } else {
        struct msghdr *header = &self->headers[self->header_count++];
        *header = (struct msghdr){ .msg_iov = pieces, .msg_iovlen = (size_t)count };
        self->piece_count += (unsigned)count;
        io_uring_prep_sendmsg(entry, file->fd, header, HOW_TO_SEND);
    }
    entry->user_data = (uintptr_t)file + WEIR_URING_SEND_TAG;
}

/* Submits the bytes that the file has: PENDING; or why not, as try_send. -EOPNOTSUPP: they have to
 * be sent by a system call. */
static int submit(weir_uring *self, weir_io_file *file)
{
    weir_io_send send;
    unsigned room = sizeof self->pieces / sizeof *self->pieces - self->piece_count;
    send.kind = WEIR_IO_SEND_BYTES;
    send.pieces = self->pieces + self->piece_count;
    send.max_pieces = room < IOV_MAX ? (int)room : IOV_MAX;
    self->is_gathering = true;
    int count = file->sender->gather(file, &send);
    self->is_gathering = false;
    if (count <= 0)
        return count < 0 ? count : WEIR_SEND_NOTHING;
    /* To gather may release a message whose free_fn submits: then the pieces are overwritten. */
    bool has_submitted = self->room == 0 || send.pieces != self->pieces + self->piece_count;
    if (send.kind != WEIR_IO_SEND_BYTES || has_submitted)
        return -EOPNOTSUPP;
    int code = __builtin_expect(weir__has_faults(), 0) ? ask_fault(send.pieces, &count) : 0;
    if (code < 0)
        return code == -EINTR || code == -EAGAIN ? -EOPNOTSUPP : code;
    weir__io_count(&self->base.base.counters->sends);
    prepare(self, weir__uring_next(self), file, send.pieces, count);
    file->send_state = WEIR_SEND_SUBMITTED;
    return WEIR_IO_PENDING;
}

int weir__uring_try_send(weir_io *base, weir_io_file *file)
{
    weir_uring *self = weir__uring_of(base);
    bool is_submitted = self->features & WEIR_URING_SEND && !file->is_sent_by_calls &&
                        !self->is_gathering && !file->is_send_cancelled && has_room_to_gather(self);
    int code = is_submitted ? submit(self, file) : -EOPNOTSUPP;
    return code == -EOPNOTSUPP ? weir__readiness_try_send(base, file) : code;
}

/* Waiting -------------------------------------------------------------------------------------- */

/* A poll of its own, for one result: the engine's would report every message that is received. */
int weir__uring_wait_to_send(weir_io *base, weir_io_file *file)
{
    weir_uring *self = weir__uring_of(base);
    bool is_full = !(file->bits & WEIR_FILE_WRITABLE) && self->features & WEIR_URING_SEND;
    struct io_uring_sqe *entry = is_full ? weir__uring_next(self) : NULL;
    if (entry == NULL)
        return weir__readiness_wait_to_send(base, file);
    io_uring_prep_poll_add(entry, file->fd, POLLOUT);
    entry->user_data = weir__uring_file_name(self, file, WEIR_URING_FILE_SPACE);
    file->send_state = WEIR_SEND_POLLED;
    return 0;
}

void weir__uring_complete_space(weir_uring *self, uint64_t name)
{
    weir_io_file *file = weir__uring_file_of(self, name);
    if (file == NULL || file->send_state != WEIR_SEND_POLLED)
        return; /* it was cancelled */
    self->base.base.news++;
    file->bits |= WEIR_FILE_WRITABLE;
    weir__send_continue(&self->base.base, file);
}

/* A submission is over when the kernel has taken it: its result follows. */
void weir__uring_cancel_send(weir_io *base, weir_io_file *file)
{
    weir_uring *self = weir__uring_of(base);
    if (file->send_state == WEIR_SEND_WAITING) {
        weir__readiness_cancel_send(base, file);
    } else if (file->send_state == WEIR_SEND_POLLED) {
        weir__uring_end_poll(self, weir__uring_file_name(self, file, WEIR_URING_FILE_SPACE));
        weir__send_end_later(base, file, WEIR_SEND_NOTHING);
    }
}

/* Results -------------------------------------------------------------------------------------- */

WEIR__HOT void weir__uring_complete_send(weir_uring *self, weir_io_file *file, int code)
{
    weir_io *base = &self->base.base;
    base->news++;
    if (__builtin_expect(code == -EAGAIN, 0)) {
        file->bits &= (uint8_t)~WEIR_FILE_WRITABLE;
        code = WEIR_SEND_BLOCKED;
    } else if (__builtin_expect(weir__uring_is_undone(code), 0)) {
        file->is_sent_by_calls |= code != -EINTR;
        weir__send_continue(base, file);
        return;
    }
    weir__send_complete(base, file, code);
}

/* Another ring --------------------------------------------------------------------------------- */

static void try_again(weir_uring *self, weir_io_file *file)
{
    file->send_state = WEIR_SEND_WAITING;
    file->bits |= WEIR_FILE_WRITABLE; /* as far as anybody knows */
    weir__readiness_make_ready(&self->base, file);
}

void weir__uring_salvage_send(weir_uring *self, weir_io_file *file, int code)
{
    if (weir__uring_is_undone(code))
        try_again(self, file);
    else
        weir__send_end_later(&self->base.base, file, code);
}

bool weir__uring_restore_send(weir_uring *self, weir_io_file *file)
{
    bool is_lost = file->send_state == WEIR_SEND_SUBMITTED;
    if (is_lost || file->send_state == WEIR_SEND_POLLED)
        try_again(self, file);
    return !is_lost;
}
