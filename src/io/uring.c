/* SPDX-License-Identifier: MIT */
/* The io_uring backend: its files, its turn, and when it begins and ends. */
#include "io/uring.h"

#include "base/alloc.h"
#include "io/kept.h"
#include "io/ops.h"

#include <errno.h>

/* So many results further on memory begins its way: first the operation's, then its file's. While
 * the kernel works, the caches lose what a turn needs. */
#define FAR_AHEAD 4
#define NEAR_AHEAD 2

/* Files -------------------------------------------------------------------------------------- */

static int uring_attach(weir_io *base, weir_io_file *file, int fd)
{
    weir__readiness_attach(file, fd);
    return weir__io_log_twin(base, fd, weir__slots_add(&weir__uring_of(base)->slots, file));
}

/* The kernel holds what it polls: it has to let go, or closing would not close, here or elsewhere.
 */
static void uring_detach(weir_io *base, weir_io_file *file)
{
    weir_uring *self = weir__uring_of(base);
    bool is_polled = file->bits & WEIR_FILE_WATCHED || weir__uring_watches_end(file);
    weir__uring_unwatch_end(self, file); /* by its name of now */
    weir__readiness_unwatch(&self->base, file);
    weir__slots_remove(&self->slots, file);
    weir__readiness_forget(&self->base, file);
    if (is_polled)
        weir__uring_enter(self, 0);
}

static void uring_close_file(weir_io *base, weir_io_file *file)
{
    uring_detach(base, file);
    weir__kept_drop(base->sys, file);
    if (file->error != -EBADF) /* else the number may be another's by now */
        base->sys->close(base->sys, file->fd);
}

/* Operations --------------------------------------------------------------------------------- */

static int uring_submit(weir_io *base, weir_io_op *op)
{
    weir_uring *self = weir__uring_of(base);
    op->state = 0;
    if (!weir__uring_takes(self, op))
        return weir__readiness_submit(base, op);
    weir__op_arm(op);
    if (!weir__op_is_out(op) && weir__kept_has(op->file)) {
        op->file->bits |= WEIR_FILE_READABLE;
        weir__readiness_make_ready(&self->base, op->file);
        return WEIR_IO_PENDING;
    }
    if (!weir__op_is_out(op)) {
        weir__uring_give_or_end(self, op);
        return WEIR_IO_PENDING;
    }
    int code = weir__uring_give(self, op);
    if (code == WEIR_IO_PENDING)
        return code;
    weir__op_end_at_once(op, code);
    op->state = WEIR_OP_REFUSED;
    return code == -EAGAIN || code == -EINTR ? weir__readiness_submit(base, op) : code;
}

/* What was kept is told, or little comes again, and the kernel can go on with it. */
static bool uring_submit_to_kernel(weir_io *base, weir_io_op *op)
{
    weir_uring *self = weir__uring_of(base);
    weir__uring_review_bulk(self, op);
    if (!weir__uring_takes(self, op) && op->file->bits & WEIR_FILE_WATCHED)
        return false;
    if (weir__uring_takes(self, op))
        weir__uring_give_or_end(self, op);
    else
        weir__readiness_wait_in(&self->base, op);
    return true;
}

static void uring_cancel(weir_io *base, weir_io_op *op)
{
    if (!weir__op_is_armed(op))
        return; /* over, or about to be told */
    if (!(op->state & WEIR_OP_AT_KERNEL)) {
        weir__readiness_cancel(base, op);
        return;
    }
    weir__uring_forget_end(weir__uring_of(base), op);
    bool is_ending = op->state & (WEIR_OP_CANCELLED | WEIR_OP_PAUSED);
    op->state |= WEIR_OP_CANCELLED;
    if (op->kind == WEIR_IO_RECEIVE)
        weir__uring_unwatch_end(weir__uring_of(base), op->file);
    if (!is_ending)
        weir__uring_ask_end(weir__uring_of(base), op);
}

/* The turn ----------------------------------------------------------------------------------- */

/* The eventfd is watched for edges and never read: each write is one. */
static void listen_for_wake(weir_uring *self)
{
    struct io_uring_sqe *entry = weir__uring_next(self);
    self->hears_wake = entry != NULL;
    if (entry == NULL)
        return;
    io_uring_prep_poll_multishot(entry, self->base.eventfd, POLLIN);
    entry->user_data = WEIR_URING_WAKE;
}

static bool uring_has_results(const weir_io *base)
{
    const weir_uring *self = (const weir_uring *)base;
    return weir__readiness_has_results(base) || (self->is_open && weir__uring_ready(self) > 0);
}

static int uring_poll(weir_io *base, int64_t timeout_ns)
{
    weir_uring *self = weir__uring_of(base);
    int code = 0;
    base->turn++;
    if (!self->is_open || self->is_broken)
        return -EBADF;
    if (!self->hears_wake)
        listen_for_wake(self);
    if (self->has_left)
        weir__uring_watch_left(self);
    weir__uring_ask_again(self);
    if (weir__uring_ready(self) == 0 || weir__uring_has_submissions(self))
        code = weir__uring_enter(self, uring_has_results(base) ? 0 : timeout_ns);
    unsigned count = weir__uring_ready(self);
    return count > 0 ? (int)count : code;
}

static void uring_flush(weir_io *base)
{
    weir_uring *self = weir__uring_of(base);
    if (self->is_open && weir__uring_has_submissions(self))
        weir__uring_enter(self, 0);
}

static void complete_file(weir_uring *self, const struct io_uring_cqe *result)
{
    uint64_t name = result->user_data;
    if ((name & WEIR_URING_TAGS) == WEIR_URING_FILE_END) {
        weir__uring_complete_file_end(self, name, result->res);
        return;
    }
    weir__uring_end_batch(self);
    if ((name & WEIR_URING_TAGS) == WEIR_URING_FILE_SPACE)
        weir__uring_complete_space(self, name);
    else
        weir__uring_complete_poll(self, name, result->res, result->flags);
}

static void complete_one(weir_uring *self, const struct io_uring_cqe *result)
{
    uint64_t name = result->user_data;
    if ((name & WEIR_URING_TAGS) == 0) {
        weir__uring_complete_op(self, weir__uring_op_of(name), result->res, result->flags);
    } else if (weir__uring_is_send(name)) {
        weir__uring_end_batch(self);
        weir__uring_complete_send(self, weir__uring_address_of(name), result->res);
    } else if (name % 2 == 1) {
        complete_file(self, result);
    } else if (name == WEIR_URING_WAKE) {
        if (!(result->flags & IORING_CQE_F_MORE))
            listen_for_wake(self);
    } else if (name != WEIR_URING_NOTHING) {
        weir__uring_complete_end(self, weir__uring_op_of(name), result->res);
    }
}

/* Fetching what is at no address, or not there any more, does no harm; looking at it does. */
static inline __attribute__((always_inline)) void fetch_ahead(const struct io_uring_cq *queue,
                                                              unsigned at, unsigned end)
{
    uint64_t far = queue->cqes[(at + FAR_AHEAD) & queue->ring_mask].user_data;
    uint64_t near = queue->cqes[(at + NEAR_AHEAD) & queue->ring_mask].user_data;
    __builtin_prefetch(weir__uring_op_of(far), 1);
    bool is_op = near > WEIR_URING_TAGS && (near & (1 | WEIR_URING_SEND_TAG)) == 0;
    if ((int)(end - at) > NEAR_AHEAD && is_op)
        __builtin_prefetch(weir__uring_op_of(near)->file, 1);
}

/* What comes meanwhile, because somebody hands over, is for the next time. */
static void complete_all(weir_uring *self)
{
    struct io_uring_cq *queue = &self->ring.cq;
    unsigned end = io_uring_smp_load_acquire(queue->ktail);
    for (unsigned at = *queue->khead; at != end && self->is_open; at++) {
        struct io_uring_cqe result = queue->cqes[at & queue->ring_mask];
        fetch_ahead(queue, at, end);
        io_uring_smp_store_release(queue->khead, at + 1);
        complete_one(self, &result);
    }
    weir__uring_end_batch(self);
    weir__uring_review_ends(self);
    weir__uring_buffers_review(self);
    if (self->buffers.count < self->buffers.wanted)
        weir__uring_buffers_fill(self);
}

static unsigned uring_complete(weir_io *base)
{
    weir_uring *self = weir__uring_of(base);
    weir_completion phase;
    base->news = 0;
    weir__readiness_begin(&self->base, &phase);
    if (self->is_open)
        complete_all(self);
    return weir__readiness_end(&self->base, &phase);
}

static int uring_descriptor(const weir_io *base)
{
    return ((const weir_uring *)base)->ring.ring_fd;
}

static int uring_spinner(const weir_io *base)
{
    (void)base;
    return -1;
}

/* Opening, rebuilding, closing --------------------------------------------------------------- */

static int open_ring(weir_uring *self)
{
    int code = weir__uring_make_ring(self);
    if (code < 0)
        return code;
    listen_for_wake(self); /* with the first entry into the kernel */
    if (self->features & (WEIR_URING_RECEIVE | WEIR_URING_RECVMSG))
        code = weir__uring_buffers_open(self);
    if (code == -ENOMEM)
        weir__uring_end_ring(self);
    return code == -ENOMEM ? code : 0; /* else it does without */
}

static void close_ring(weir_uring *self)
{
    weir__uring_end_ring(self);
    weir__uring_buffers_close(self);
}

static void uring_close(weir_io *base)
{
    close_ring(weir__uring_of(base));
}

/* What the old ring has done and nobody was told. What did not fit into its queue went with it. */
static void salvage(weir_uring *self)
{
    struct io_uring_cq *queue = &self->ring.cq;
    self->has_gaps |= weir__uring_has_overflown(self);
    unsigned end = io_uring_smp_load_acquire(queue->ktail);
    for (unsigned at = *queue->khead; at != end; at++) {
        const struct io_uring_cqe *result = &queue->cqes[at & queue->ring_mask];
        uint64_t name = result->user_data;
        if (weir__uring_is_send(name))
            weir__uring_salvage_send(self, weir__uring_address_of(name), result->res);
        else if (name > WEIR_URING_TAGS && (name & WEIR_URING_TAGS) == 0)
            weir__uring_salvage(self, weir__uring_op_of(name), result->res, result->flags);
    }
}

static bool is_at_kernel(const weir_io_op *op)
{
    return op != NULL && op->state & WEIR_OP_AT_KERNEL;
}

/* Nobody knows what became of a send that was under way, so its file is lost; what came in waits to
 * be told, and the kernel is asked for more, unless bytes of it may be missing. */
static void restore(weir_uring *self, weir_io_file *file)
{
    bool is_connecting = is_at_kernel(file->out);
    bool is_receiving = is_at_kernel(file->in) && file->in->kind == WEIR_IO_RECEIVE;
    bool is_lost = is_connecting || (is_receiving && self->has_gaps);
    weir__uring_end_is_known(file); /* if it was not, the next receive asks again */
    if (is_at_kernel(file->in))
        weir__uring_reclaim(self, file->in);
    if (is_connecting)
        weir__uring_reclaim(self, file->out);
    is_lost |= !weir__uring_restore_send(self, file);
    if (is_lost || (file->bits & WEIR_FILE_WATCHED && weir__uring_poll_file(self, file) < 0))
        weir__uring_lose(self, file, -EIO);
}

static int uring_rebuild(weir_io *base)
{
    weir_uring *self = weir__uring_of(base);
    if (self->is_open && !self->is_broken)
        return 0;
    if (self->is_open)
        salvage(self);
    close_ring(self);
    self->uncancelled = NULL;
    self->piece_count = self->header_count = 0;
    int code = open_ring(self);
    if (code < 0)
        return code;
    weir__io_count(&base->counters->rebuilds);
    for (uint32_t i = 0; i < self->slots.count; i++) {
        if (weir__slots_at(&self->slots, i) != NULL)
            restore(self, weir__slots_at(&self->slots, i));
    }
    self->has_gaps = false;
    return 0;
}

static void uring_destroy(weir_io *base)
{
    weir_uring *self = weir__uring_of(base);
    uring_close(base);
    weir__readiness_deinit(&self->base);
    weir__slots_deinit(&self->slots);
    weir__free(self);
}

static const weir_io_type uring_type = {
    .name = "uring",
    .attach = uring_attach,
    .detach = uring_detach,
    .close_file = uring_close_file,
    .submit = uring_submit,
    .try_send = weir__uring_try_send,
    .wait_to_send = weir__uring_wait_to_send,
    .cancel_send = weir__uring_cancel_send,
    .cancel = uring_cancel,
    .poll = uring_poll,
    .flush = uring_flush,
    .complete = uring_complete,
    .has_results = uring_has_results,
    .wake = weir__readiness_wake,
    .rebuild = uring_rebuild,
    .spinner = uring_spinner,
    .descriptor = uring_descriptor,
    .close = uring_close,
    .destroy = uring_destroy,
};

int weir__uring_open(weir_sys *sys, weir_io_counters *counters, const weir_uring_config *config,
                     weir_io **out)
{
    int features = weir__uring_features(sys);
    if (features < 0)
        return features;
    weir_uring *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    self->features = (unsigned)features;
    if (config != NULL)
        self->config = *config;
    int code = weir__readiness_init(&self->base, &uring_type, sys, counters);
    self->base.watch = weir__uring_watch;
    self->base.unwatch = weir__uring_unwatch;
    self->base.submit_to_kernel = uring_submit_to_kernel;
    if (code == 0)
        code = open_ring(self);
    if (code < 0) {
        uring_destroy(&self->base.base);
        return code;
    }
    *out = &self->base.base;
    return 0;
}
