/* SPDX-License-Identifier: MIT */
/* The ring of the io_uring backend: how it is made, and the one way into the kernel. */
#include "io/uring.h"

#include <errno.h>

#define DEFAULT_ENTRIES 512
#define COMPLETIONS_PER_ENTRY 8

/* Newer than the oldest headers that will do. */
#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL (1U << 7)
#endif

/* Making --------------------------------------------------------------------------------------- */

/* The kernel remembers who made a ring, and interrupts that thread when the ring ends, whatever it
 * waits for by then. So a thread makes it that is gone afterwards. */
typedef struct set_up_call {
    weir_sys *sys;
    unsigned entries;
    struct io_uring_params *params;
    int code;
} set_up_call;

static void *call_set_up(void *arg)
{
    set_up_call *self = arg;
    self->code = self->sys->io_uring_setup(self->sys, self->entries, self->params);
    return NULL;
}

int weir__uring_set_up(weir_sys *sys, unsigned entries, struct io_uring_params *params)
{
    const weir_thread_config config = { .name = "weir-ring", .cpu = WEIR_OFF };
    set_up_call call = { .sys = sys, .entries = entries, .params = params };
    pthread_t thread;
    int code = sys->thread_create(sys, &thread, &config, call_set_up, &call);
    if (code < 0)
        return code;
    pthread_join(thread, NULL);
    return call.code;
}

static int set_up(weir_uring *self, unsigned flags, struct io_uring_params *params)
{
    unsigned entries = self->config.entries > 0 ? self->config.entries : DEFAULT_ENTRIES;
    *params = (struct io_uring_params){
        .flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED,
        .cq_entries = entries * COMPLETIONS_PER_ENTRY,
    };
    return weir__uring_set_up(self->base.base.sys, entries, params);
}

/* The best that the kernel takes, and then plainer ones. Disabled: the thread that enables it is
 * the one that submits, and whoever opens the backend is maybe another. */
static int set_up_best(weir_uring *self, struct io_uring_params *params)
{
    unsigned single = self->features & WEIR_URING_SINGLE ? IORING_SETUP_SINGLE_ISSUER : 0;
    /* The descriptor of a ring that defers its work does not tell of it. */
    bool defers = single != 0 && self->features & WEIR_URING_DEFER && !self->config.is_by_hand;
    unsigned defer = defers ? IORING_SETUP_DEFER_TASKRUN : 0;
    unsigned cooperate = self->features & WEIR_URING_COOPERATE ? IORING_SETUP_COOP_TASKRUN : 0;
    const unsigned flags[] = {
        IORING_SETUP_SUBMIT_ALL | single | (defer != 0 ? defer : cooperate),
        IORING_SETUP_SUBMIT_ALL | cooperate,
        0,
    };
    int fd = -EINVAL;
    for (unsigned i = 0; i < sizeof flags / sizeof *flags && fd == -EINVAL; i++)
        fd = set_up(self, flags[i], params);
    return fd;
}

int weir__uring_make_ring(weir_uring *self)
{
    struct io_uring_params params;
    weir_sys *sys = self->base.base.sys;
    int fd = set_up_best(self, &params);
    if (fd < 0)
        return fd;
    unsigned needed = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE;
    int code = (params.features & needed) == needed ? io_uring_queue_mmap(fd, &params, &self->ring)
                                                    : -ENOSYS;
    if (code < 0) {
        sys->close(sys, fd);
        return code;
    }
    for (unsigned i = 0; i < self->ring.sq.ring_entries; i++)
        self->ring.sq.array[i] = i; /* in their order, for ever */
    self->enter_fd = fd;
    self->enter_flags = IORING_ENTER_GETEVENTS;
    self->room = self->ring.sq.ring_entries;
    self->is_open = true;
    self->is_enabled = self->is_broken = false;
    return 0;
}

/* What the thread has registered is its own: a few, so it is given back. */
void weir__uring_end_ring(weir_uring *self)
{
    weir_sys *sys = self->base.base.sys;
    if (!self->is_open)
        return;
    if (self->enter_flags & IORING_ENTER_REGISTERED_RING) {
        struct io_uring_rsrc_update place = { .offset = (unsigned)self->enter_fd };
        sys->io_uring_register(sys, self->ring.ring_fd, IORING_UNREGISTER_RING_FDS, &place, 1);
    }
    io_uring_queue_exit(&self->ring);
    self->ring = (struct io_uring){ .ring_fd = -1 };
    self->room = 0;
    self->is_open = false;
}

/* Entering ------------------------------------------------------------------------------------- */

/* The thread that does this is the ring's from now on. */
static int enable(weir_uring *self)
{
    weir_sys *sys = self->base.base.sys;
    int code = sys->io_uring_register(sys, self->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
                                      0);
    if (code < 0)
        return code;
    self->is_enabled = true;
    if (self->features & WEIR_URING_REGISTERED) {
        struct io_uring_rsrc_update place = { .offset = UINT32_MAX,
                                              .data = (unsigned)self->ring.ring_fd };
        if (sys->io_uring_register(sys, self->ring.ring_fd, IORING_REGISTER_RING_FDS, &place, 1) ==
            1) {
            self->enter_fd = (int)place.offset;
            self->enter_flags |= IORING_ENTER_REGISTERED_RING;
        }
    }
    return 0;
}

/* Whether the ring itself is the trouble. */
static bool is_fatal(int code)
{
    switch (code) {
    case -EBADF:
    case -EBADFD:
    case -EEXIST: /* it is another thread's */
    case -EFAULT:
    case -EINVAL:
    case -ENXIO:
    case -EOPNOTSUPP:
        return true;
    default: /* no memory for a submission, or results have to be taken first */
        return false;
    }
}

/* Waits for a result, for so long; negative: for ever. */
static int enter(weir_uring *self, unsigned count, int64_t timeout_ns)
{
    weir_sys *sys = self->base.base.sys;
    unsigned wanted = timeout_ns != 0;
    if (timeout_ns <= 0)
        return sys->io_uring_enter(sys, self->enter_fd, count, wanted, self->enter_flags, NULL, 0);
    struct __kernel_timespec time = { .tv_sec = timeout_ns / 1000000000,
                                      .tv_nsec = timeout_ns % 1000000000 };
    struct io_uring_getevents_arg arg = { .ts = (uintptr_t)&time };
    return sys->io_uring_enter(sys, self->enter_fd, count, wanted,
                               self->enter_flags | IORING_ENTER_EXT_ARG, &arg, sizeof arg);
}

/* 0 when there is something, or the time is over. */
int weir__uring_enter(weir_uring *self, int64_t timeout_ns)
{
    struct io_uring_sq *queue = &self->ring.sq;
    int code = !self->is_open ? -EBADF : self->is_enabled ? 0 : enable(self);
    if (code < 0)
        return code;
    io_uring_smp_store_release(queue->ktail, queue->sqe_tail);
    weir__io_count(&self->base.base.counters->polls);
    code = enter(self, queue->sqe_tail - *queue->khead, timeout_ns);
    self->room = queue->ring_entries - (queue->sqe_tail - *queue->khead);
    if (!weir__uring_has_submissions(self))
        self->piece_count = self->header_count = 0;
    if (code >= 0 || code == -ETIME)
        return 0;
    self->is_broken |= is_fatal(code);
    return code;
}

struct io_uring_sqe *weir__uring_make_room(weir_uring *self)
{
    if (!self->is_open || weir__uring_enter(self, 0) < 0 || self->room == 0)
        return NULL;
    return weir__uring_next(self);
}
