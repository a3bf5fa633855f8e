/* SPDX-License-Identifier: MIT */
/* The wire by io_uring: receives stay armed and have their buffers provided, and one entry into the
 * kernel sends all that is to be sent and waits for what comes back. */
#include "wire.h"

#ifdef LOAD_HAS_URING
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BUFFERS = 1024, SUBMISSIONS = 1024 };

/* What a submission is about: a connection's number, and one of these behind it. */
enum { RECEIVE, SEND, KINDS };

struct wire {
    wire_user user;
    const int *fds;
    bool *is_sending;     /* by connection: one at a time, or what is short would be mixed up */
    unsigned fresh_sends; /* since the last wait: their results come at once, and are no news */
    struct io_uring ring;
    struct io_uring_buf_ring *supply;
    uint8_t (*buffers)[WIRE_URING_BYTES];
};

static struct io_uring_sqe *next_submission(wire *self)
{
    struct io_uring_sqe *entry;
    while ((entry = io_uring_get_sqe(&self->ring)) == NULL)
        io_uring_submit(&self->ring);
    return entry;
}

static void name(struct io_uring_sqe *entry, unsigned which, unsigned kind)
{
    io_uring_sqe_set_data64(entry, (uint64_t)which * KINDS + kind);
}

static void start_receiving(wire *self, unsigned which)
{
    struct io_uring_sqe *entry = next_submission(self);
    io_uring_prep_recv_multishot(entry, self->fds[which], NULL, 0, 0);
    entry->flags |= IOSQE_BUFFER_SELECT; /* of group 0 */
    name(entry, which, RECEIVE);
}

static void uring_send(wire *self, unsigned which)
{
    const uint8_t *bytes;
    size_t length = self->is_sending[which] ? 0 : self->user.next(self->user.arg, which, &bytes);
    if (length == 0)
        return;
    struct io_uring_sqe *entry = next_submission(self);
    io_uring_prep_send(entry, self->fds[which], bytes, length, MSG_NOSIGNAL);
    name(entry, which, SEND);
    self->is_sending[which] = true;
    self->fresh_sends++;
}

static void give_buffer(wire *self, unsigned number)
{
    io_uring_buf_ring_add(self->supply, self->buffers[number], WIRE_URING_BYTES,
                          (unsigned short)number, io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(self->supply, 1);
}

static void on_received(wire *self, unsigned which, const struct io_uring_cqe *result)
{
    if (result->res > 0) {
        unsigned number = result->flags >> IORING_CQE_BUFFER_SHIFT;
        self->user.received(self->user.arg, which, self->buffers[number], (size_t)result->res);
        give_buffer(self, number);
    } else if (result->res != -ENOBUFS) {
        self->user.failed(self->user.arg, result->res == 0 ? "the server closed a connection"
                                                           : strerror(-result->res));
        return;
    }
    if (!(result->flags & IORING_CQE_F_MORE))
        start_receiving(self, which);
    uring_send(self, which);
}

static void on_sent(wire *self, unsigned which, int code)
{
    self->is_sending[which] = false;
    if (code < 0) {
        self->user.failed(self->user.arg, strerror(-code));
        return;
    }
    self->user.sent(self->user.arg, which, (size_t)code);
    uring_send(self, which);
}

static bool uring_wait(wire *self, uint64_t timeout_ns)
{
    struct __kernel_timespec timeout = { .tv_sec = (int64_t)(timeout_ns / 1000000000),
                                         .tv_nsec = (long long)(timeout_ns % 1000000000) };
    struct io_uring_cqe *result;
    unsigned head, count = 0, wanted = 1 + self->fresh_sends;
    self->fresh_sends = 0;
    int code = io_uring_submit_and_wait_timeout(&self->ring, &result, wanted, &timeout, NULL);
    if (code < 0 && code != -ETIME && code != -EINTR && code != -EAGAIN && code != -EBUSY)
        self->user.failed(self->user.arg, strerror(-code));
    io_uring_for_each_cqe(&self->ring, head, result)
    {
        unsigned which = (unsigned)(result->user_data / KINDS);
        if (result->user_data % KINDS == SEND)
            on_sent(self, which, result->res);
        else
            on_received(self, which, result);
        count++;
    }
    io_uring_cq_advance(&self->ring, count);
    return count > 0 || code != -ETIME;
}

static void free_all(wire *self)
{
    free(self->supply);
    free(self->buffers);
    free(self->is_sending);
    free(self);
}

static void uring_close(wire *self)
{
    io_uring_queue_exit(&self->ring);
    free_all(self);
}

static int provide_buffers(wire *self)
{
    struct io_uring_buf_reg group = { .ring_addr = (uintptr_t)self->supply,
                                      .ring_entries = BUFFERS };
    io_uring_buf_ring_init(self->supply);
    int code = io_uring_register_buf_ring(&self->ring, &group, 0);
    for (unsigned i = 0; i < BUFFERS && code == 0; i++)
        give_buffer(self, i);
    return code;
}

static wire *uring_open(const wire_user *user, const int *fds, unsigned count, const char **why)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
        .cq_entries = 8 * SUBMISSIONS,
    };
    wire *self = calloc(1, sizeof *self);
    if (self == NULL)
        abort();
    self->user = *user;
    self->fds = fds;
    self->is_sending = calloc(count, sizeof *self->is_sending);
    self->supply = aligned_alloc(4096, BUFFERS * sizeof(struct io_uring_buf));
    self->buffers = malloc(BUFFERS * sizeof *self->buffers);
    if (self->is_sending == NULL || self->supply == NULL || self->buffers == NULL)
        abort();
    int code = io_uring_queue_init_params(SUBMISSIONS, &self->ring, &params);
    if (code == 0 && (code = provide_buffers(self)) < 0)
        io_uring_queue_exit(&self->ring);
    if (code < 0) {
        *why = strerror(-code);
        free_all(self);
        return NULL;
    }
    for (unsigned i = 0; i < count; i++)
        start_receiving(self, i);
    return self;
}
#else
static wire *uring_open(const wire_user *user, const int *fds, unsigned count, const char **why)
{
    (void)user, (void)fds, (void)count;
    *why = "it was built without liburing";
    return NULL;
}
#define uring_close NULL
#define uring_send NULL
#define uring_wait NULL
#endif

const wire_type wire_uring = {
    .name = "uring",
    .open = uring_open,
    .close = uring_close,
    .send = uring_send,
    .wait = uring_wait,
};
