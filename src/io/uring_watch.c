/* SPDX-License-Identifier: MIT */
/* Polls that watch files, for the engine. */
#include "io/send.h"
#include "io/uring.h"

#include <weir/log.h>

#include <errno.h>

#define EDGES (POLLIN | POLLPRI | POLLOUT | POLLRDHUP)

/* A level is asked for again each time, edges come by themselves. */
int weir__uring_poll_file(weir_uring *self, weir_io_file *file)
{
    struct io_uring_sqe *entry = weir__uring_next(self);
    if (entry == NULL)
        return -EAGAIN;
    weir__io_count(&self->base.base.counters->controls);
    file->bits &= (uint8_t)~WEIR_FILE_LEFT;
    if (file->bits & WEIR_FILE_PLAIN)
        io_uring_prep_poll_add(entry, file->fd, weir__readiness_levels(weir__file_poll(file)));
    else
        io_uring_prep_poll_multishot(entry, file->fd, EDGES);
    entry->user_data = weir__uring_file_name(self, file, WEIR_URING_FILE_POLL);
    return 0;
}

/* What cannot be waited for is always ready, and would be told again and again. */
int weir__uring_watch(weir_io *base, weir_io_file *file)
{
    struct stat facts;
    if (file->bits & WEIR_FILE_PLAIN) {
        int code = base->sys->fstat(base->sys, file->fd, &facts);
        if (code < 0 || S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode))
            return code < 0 ? code : -EPERM;
    }
    return weir__uring_poll_file(weir__uring_of(base), file);
}

/* Past the queue, which has no room. */
static bool end_poll_at_once(weir_uring *self, uint64_t name)
{
    weir_sys *sys = self->base.base.sys;
    struct io_uring_sync_cancel_reg wish = { .addr = name, .fd = -1 };
    return sys->io_uring_register(sys, self->ring.ring_fd, IORING_REGISTER_SYNC_CANCEL, &wish, 1) >=
           0;
}

bool weir__uring_end_poll(weir_uring *self, uint64_t name)
{
    if (!self->is_open)
        return true; /* it went with the ring */
    struct io_uring_sqe *entry = weir__uring_next(self);
    weir__io_count(&self->base.base.counters->controls);
    if (entry == NULL)
        return end_poll_at_once(self, name);
    io_uring_prep_cancel64(entry, name, 0);
    entry->user_data = WEIR_URING_NOTHING;
    return true;
}

void weir__uring_unwatch(weir_io *base, weir_io_file *file)
{
    weir_uring *self = weir__uring_of(base);
    weir__uring_end_poll(self, weir__uring_file_name(self, file, WEIR_URING_FILE_POLL));
    weir__slots_renew(&self->slots, file);
}

static weir_io_op *take_what_the_kernel_has(weir_io_op **place)
{
    weir_io_op *op = *place;
    if (op == NULL || !(op->state & WEIR_OP_AT_KERNEL))
        return NULL;
    *place = NULL;
    return op;
}

static void end_at_kernel(weir_uring *self, weir_io_op **place, weir_io_op *op)
{
    if (op == NULL)
        return;
    *place = op;
    weir__io_cancel(&self->base.base, op);
}

/* What the kernel has ends when the kernel says so. */
void weir__uring_lose(weir_uring *self, weir_io_file *file, int code)
{
    weir_io_op *in = take_what_the_kernel_has(&file->in);
    weir_io_op *out = take_what_the_kernel_has(&file->out);
    weir__readiness_lose(&self->base, file, code);
    if (file->send_state == WEIR_SEND_POLLED)
        weir__send_end_later(&self->base.base, file, code);
    end_at_kernel(self, &file->in, in);
    end_at_kernel(self, &file->out, out);
    weir_log(WEIR_LOG_ERROR, "uring", "descriptor %d is lost: it cannot be watched: %s", file->fd,
             weir_error_text(code));
}

static void poll_again(weir_uring *self, weir_io_file *file)
{
    int code = weir__uring_poll_file(self, file);
    if (code < 0)
        weir__uring_lose(self, file, code);
}

/* A poll that has ended by itself: of a level it always does, and others when their result does not
 * fit. To poll again while that is so would end in the same way, and for all of them for ever. */
static void watch_again(weir_uring *self, uint64_t name)
{
    weir_io_file *file = weir__uring_file_of(self, name);
    if (file == NULL || !(file->bits & WEIR_FILE_WATCHED))
        return;
    if (!weir__uring_has_overflown(self)) {
        poll_again(self, file);
        return;
    }
    file->bits |= WEIR_FILE_LEFT;
    self->has_left = true;
}

/* As many as there is room for the results of: most sockets have one at once, and a poll that has
 * told stays. */
void weir__uring_watch_left(weir_uring *self)
{
    unsigned room = self->ring.cq.ring_entries / 2;
    if (weir__uring_has_overflown(self))
        return;
    self->has_left = false;
    for (uint32_t i = 0; i < self->slots.count; i++) {
        weir_io_file *file = weir__slots_at(&self->slots, i);
        if (file == NULL || !(file->bits & WEIR_FILE_LEFT))
            continue;
        if (room == 0) {
            self->has_left = true;
            return;
        }
        room--;
        file->bits &= (uint8_t)~WEIR_FILE_LEFT;
        if (file->bits & WEIR_FILE_WATCHED)
            poll_again(self, file);
    }
}

/* The kernel passes on what a wake-up says, and does not look. A send to a Unix socket that has no
 * room wakes its own poll that way: so somebody who waits for room looks. */
static int look_for_room(weir_uring *self, const weir_io_file *file, int events)
{
    weir_sys *sys = self->base.base.sys;
    struct pollfd room = { .fd = file->fd, .events = POLLOUT };
    if (!(events & POLLOUT) || file->send_state != WEIR_SEND_WAITING)
        return events;
    return sys->poll(sys, &room, 1, 0) == 0 ? events & ~POLLOUT : events;
}

void weir__uring_complete_poll(weir_uring *self, uint64_t name, int code, unsigned flags)
{
    weir_io_file *file = weir__uring_file_of(self, name);
    bool has_more = flags & IORING_CQE_F_MORE;
    if (file == NULL) {
        if (code >= 0)
            weir__io_count(&self->base.base.counters->stale);
        if (has_more)
            weir__uring_end_poll(self, name);
        return;
    }
    if (code < 0 && code != -ECANCELED) {
        self->base.base.news++;
        weir__uring_lose(self, file, code);
        return;
    }
    if (code >= 0)
        code = look_for_room(self, file, code);
    if (code > 0)
        weir__readiness_event(&self->base, file, (uint32_t)code);
    if (!has_more)
        watch_again(self, name);
}
