/* SPDX-License-Identifier: MIT */
/* Whether this kernel's receives, which stay armed, tell of an end that came at once with data. */
#include "io/uring.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#define ENTRIES 4
#define BUFFERS 2
#define BUFFER_BYTES 16

typedef struct end_trial {
    weir_sys *sys;
    int answer; /* as of weir__uring_tells_ends */
} end_trial;

/* A wake-up for data and one for the end, before the kernel has looked: an old one looks once,
 * finds the data, and waits on. So only what is deferred can be tried: the rest was before that. */
static int try_out(weir_sys *sys, struct io_uring *ring, const int *sockets)
{
    char buffers[BUFFERS][BUFFER_BYTES];
    struct __kernel_timespec at_once = { 0 };
    struct io_uring_cqe *result;
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    io_uring_prep_provide_buffers(entry, buffers, BUFFER_BYTES, BUFFERS, 0, 0);
    entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
    entry = io_uring_get_sqe(ring);
    io_uring_prep_recv_multishot(entry, sockets[0], NULL, 0, 0);
    entry->flags |= IOSQE_BUFFER_SELECT;
    if (io_uring_submit_and_get_events(ring) != 2)
        return 0;
    int code = sys->send(sys, sockets[1], "", 1, MSG_NOSIGNAL);
    if (code == 1)
        code = sys->shutdown(sys, sockets[1], SHUT_WR);
    if (code < 0)
        return code;
    io_uring_submit_and_wait_timeout(ring, &result, BUFFERS, &at_once, NULL);
    return io_uring_cq_ready(ring) == 2 && ring->cq.cqes[0].res == 1 && ring->cq.cqes[1].res == 0;
}

static void *find_out(void *arg)
{
    end_trial *self = arg;
    int sockets[2];
    struct io_uring ring;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0) {
        self->answer = -errno;
        return NULL;
    }
    if (io_uring_queue_init(ENTRIES, &ring,
                            IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) == 0) {
        self->answer = try_out(self->sys, &ring, sockets);
        io_uring_queue_exit(&ring);
    }
    self->sys->close(self->sys, sockets[0]);
    self->sys->close(self->sys, sockets[1]);
    return NULL;
}

/* By a thread of its own, as a ring is made: see uring_ring.c. */
int weir__uring_tells_ends(weir_sys *sys)
{
    const weir_thread_config config = { .name = "weir-ring", .cpu = WEIR_OFF };
    end_trial trial = { .sys = sys };
    pthread_t thread;
    int code = sys->thread_create(sys, &thread, &config, find_out, &trial);
    if (code < 0)
        return code;
    pthread_join(thread, NULL);
    return trial.answer;
}
