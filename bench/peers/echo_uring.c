/* SPDX-License-Identifier: MIT */
/* echo-uring: liburing with nothing in front of it. Receives stay armed and take their buffers from
 * a ring, answers are sent from those, and one kernel entry does all that is ready. */
#include "peers/listening.h"

#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFERS 1024 /* a power of two */
#define BUFFER_SIZE (16 * 1024)
#define SUBMISSIONS 1024
#define COMPLETIONS 8192

/* Bytes to be sent, in a buffer of the ring or, behind a socket that is full, in memory of their
 * own: so clients that do not read cannot keep the ring's buffers from the others. */
typedef struct piece {
    struct piece *next;
    char *bytes;
    size_t length;
} piece;

typedef struct connection {
    int fd;
    bool is_receiving, is_sending; /* what the kernel has at work */
    bool is_full;                  /* the socket: nothing is received until all is sent */
    bool has_ended, is_broken;
    piece *first, **last; /* only the first is being sent, as sends may be short */
} connection;

/* The low bits of the connection's address as user data say what has completed. */
enum { ACCEPT, RECEIVE, SEND, NOTHING, OPERATIONS };

static struct io_uring ring;
static struct io_uring_buf_ring *supply;
static char buffers[BUFFERS][BUFFER_SIZE];
static piece pieces[BUFFERS];
static unsigned quick_sends; /* completions to come that are no news */
static bool has_waiting;     /* somebody waits for one of those */

static struct io_uring_sqe *next_submission(void)
{
    struct io_uring_sqe *sqe;
    while ((sqe = io_uring_get_sqe(&ring)) == NULL)
        io_uring_submit(&ring);
    return sqe;
}

static uint64_t name_of(connection *owner, unsigned operation)
{
    return (uintptr_t)owner + operation;
}

/* Pieces --------------------------------------------------------------------------------------- */

static bool is_of_ring(const piece *self)
{
    return self >= pieces && self < pieces + BUFFERS;
}

static void give_back(piece *self)
{
    if (!is_of_ring(self)) {
        free(self);
        return;
    }
    size_t id = (size_t)(self - pieces);
    io_uring_buf_ring_add(supply, buffers[id], BUFFER_SIZE, (unsigned short)id,
                          io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(supply, 1);
}

/* The same bytes in memory of their own; the buffer goes back to the ring. */
static piece *copy_out(piece *original)
{
    piece *copy = malloc(sizeof *copy + original->length);
    if (copy != NULL) {
        copy->next = original->next;
        copy->bytes = memcpy(copy + 1, original->bytes, original->length);
        copy->length = original->length;
        give_back(original);
    }
    return copy;
}

static void drop_first(connection *self)
{
    piece *first = self->first;
    self->first = first->next;
    if (self->first == NULL)
        self->last = &self->first;
    give_back(first);
}

/* Operations ----------------------------------------------------------------------------------- */

static void start_accepting(int listener)
{
    struct io_uring_sqe *sqe = next_submission();
    io_uring_prep_multishot_accept(sqe, listener, NULL, NULL, SOCK_CLOEXEC);
    io_uring_sqe_set_data64(sqe, name_of(NULL, ACCEPT));
}

static void start_receiving(connection *self)
{
    struct io_uring_sqe *sqe = next_submission();
    io_uring_prep_recv_multishot(sqe, self->fd, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT; /* of group 0 */
    io_uring_sqe_set_data64(sqe, name_of(self, RECEIVE));
    self->is_receiving = true;
}

static void stop_receiving(connection *self)
{
    struct io_uring_sqe *sqe = next_submission();
    io_uring_prep_cancel64(sqe, name_of(self, RECEIVE), 0);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, name_of(NULL, NOTHING));
}

/* A socket with room takes the bytes in the very submission; a full one is waited for. */
static void start_sending(connection *self)
{
    struct io_uring_sqe *sqe = next_submission();
    io_uring_prep_send(sqe, self->fd, self->first->bytes, self->first->length,
                       MSG_NOSIGNAL | (self->is_full ? MSG_WAITALL : MSG_DONTWAIT));
    io_uring_sqe_set_data64(sqe, name_of(self, SEND));
    self->is_sending = true;
    quick_sends += !self->is_full;
}

static void end(connection *self)
{
    while (self->first != NULL)
        drop_first(self);
    struct io_uring_sqe *sqe = next_submission();
    io_uring_prep_close(sqe, self->fd);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, name_of(NULL, NOTHING));
    free(self);
}

/* Connections ---------------------------------------------------------------------------------- */

static void break_off(connection *self)
{
    self->is_broken = true;
    shutdown(self->fd, SHUT_RDWR); /* which completes what is at work */
}

static void become_full(connection *self)
{
    if (!self->is_full && self->is_receiving)
        stop_receiving(self);
    self->is_full = true;
    for (piece **place = &self->first; *place != NULL; place = &(*place)->next) {
        piece *copy = is_of_ring(*place) ? copy_out(*place) : *place;
        if (copy == NULL) {
            break_off(self);
            return;
        }
        *place = copy;
        self->last = &copy->next;
    }
}

/* Goes on with what is to be done now. */
static void go_on(connection *self)
{
    bool has_finished = self->is_broken || (self->has_ended && self->first == NULL);
    if (has_finished && !self->is_receiving && !self->is_sending) {
        end(self);
        return;
    }
    if (!has_finished) {
        if (!self->is_sending && self->first != NULL)
            start_sending(self);
        if (!self->is_receiving && !self->has_ended && !self->is_full)
            start_receiving(self);
    }
    has_waiting |= self->is_sending && (has_finished || self->has_ended || self->first->next);
}

static void on_accepted(int listener, const struct io_uring_cqe *cqe)
{
    if (!(cqe->flags & IORING_CQE_F_MORE))
        start_accepting(listener);
    if (cqe->res < 0)
        return;
    connection *self = calloc(1, sizeof *self);
    if (self == NULL) {
        close(cqe->res);
        return;
    }
    self->fd = cqe->res;
    self->last = &self->first;
    start_receiving(self);
}

static void on_received(connection *self, const struct io_uring_cqe *cqe)
{
    self->is_receiving = cqe->flags & IORING_CQE_F_MORE;
    if (cqe->res > 0) {
        unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
        piece *received = &pieces[id];
        *received = (piece){ .bytes = buffers[id], .length = (size_t)cqe->res };
        *self->last = received;
        self->last = &received->next;
        if (self->is_full)
            become_full(self); /* the receive was faster than its end */
    } else if (cqe->res == 0) {
        self->has_ended = true;
    } else if (cqe->res != -ENOBUFS && cqe->res != -ECANCELED) {
        break_off(self);
    }
    go_on(self);
}

static void on_sent(connection *self, const struct io_uring_cqe *cqe)
{
    self->is_sending = false;
    quick_sends -= !self->is_full;
    if (cqe->res < 0 && cqe->res != -EAGAIN) {
        break_off(self);
    } else {
        size_t sent = cqe->res < 0 ? 0 : (size_t)cqe->res;
        self->first->bytes += sent;
        self->first->length -= sent;
        if (self->first->length > 0)
            become_full(self);
        else
            drop_first(self);
        self->is_full = self->is_full && self->first != NULL;
    }
    go_on(self);
}

/* The loop ------------------------------------------------------------------------------------- */

static int set_up(void)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
        .cq_entries = COMPLETIONS,
    };
    int code = io_uring_queue_init_params(SUBMISSIONS, &ring, &params);
    if (code < 0)
        return code;
    supply = aligned_alloc(4096, BUFFERS * sizeof(struct io_uring_buf));
    if (supply == NULL)
        return -ENOMEM;
    io_uring_buf_ring_init(supply);
    struct io_uring_buf_reg group = { .ring_addr = (uintptr_t)supply, .ring_entries = BUFFERS };
    code = io_uring_register_buf_ring(&ring, &group, 0);
    if (code < 0)
        return code;
    for (unsigned i = 0; i < BUFFERS; i++)
        give_back(&pieces[i]);
    code = io_uring_register_ring_fd(&ring); /* saves looking the descriptor up in every entry */
    return code < 0 ? code : 0;
}

int main(int argc, char **argv)
{
    int listener = listening_open(argc, argv);
    int code = set_up();
    if (code < 0) {
        fprintf(stderr, "io_uring: %s\n", strerror(-code));
        return 1;
    }
    start_accepting(listener);
    listening_announce(listener);
    for (;;) {
        /* Quick sends complete during submission: waiting for one completion more than those saves
         * a system call. The time limit is for a short send, which nothing else may follow. */
        struct __kernel_timespec limit = { .tv_nsec = 1000000 };
        unsigned head, count = 0;
        struct io_uring_cqe *cqe;
        if (has_waiting || quick_sends == 0)
            io_uring_submit_and_wait(&ring, 1);
        else
            io_uring_submit_and_wait_timeout(&ring, &cqe, quick_sends + 1, &limit, NULL);
        has_waiting = false;
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            unsigned operation = cqe->user_data % OPERATIONS;
            connection *owner = (void *)((char *)io_uring_cqe_get_data(cqe) - operation);
            switch (operation) {
            case ACCEPT:
                on_accepted(listener, cqe);
                break;
            case RECEIVE:
                on_received(owner, cqe);
                break;
            case SEND:
                on_sent(owner, cqe);
                break;
            default:
                break;
            }
            count++;
        }
        io_uring_cq_advance(&ring, count);
    }
}
