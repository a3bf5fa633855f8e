/* SPDX-License-Identifier: MIT */
/* The blocking backend: one thread, one descriptor. It waits in ppoll for what is armed, and what
 * there is to do then is in readiness.c. */
#include "base/alloc.h"
#include "io/kept.h"
#include "io/readiness.h"
#include "io/send.h"

#include <weir/log.h>

#include <errno.h>

typedef struct blocking_io {
    weir_readiness base;
    weir_io_file *file; /* the one, NULL while there is none */
    short events;       /* what the last poll said about it */
    bool is_deaf;       /* somebody closed the eventfd */
} blocking_io;

/* The file ----------------------------------------------------------------------------------- */

static int blocking_attach(weir_io *base, weir_io_file *file, int fd)
{
    blocking_io *io = (blocking_io *)base;
    if (io->file != NULL)
        return weir__io_log_twin(base, fd, io->file->fd == fd ? -EEXIST : -EBUSY);
    weir__readiness_attach(file, fd);
    io->file = file;
    return 0;
}

static void blocking_detach(weir_io *base, weir_io_file *file)
{
    blocking_io *io = (blocking_io *)base;
    weir__readiness_forget(&io->base, file);
    io->file = NULL;
    io->events = 0;
}

static void blocking_close_file(weir_io *base, weir_io_file *file)
{
    blocking_detach(base, file);
    weir__kept_drop(base->sys, file);
    if (file->error != -EBADF) /* else the number may be another's by now */
        base->sys->close(base->sys, file->fd);
}

/* Waiting ------------------------------------------------------------------------------------ */

/* What to wait for: levels, and so only those that somebody waits for. A hang-up comes unasked, and
 * nobody but these wants to hear of it: false when there is nobody. */
static bool wish_of(const weir_io_file *file, short *events)
{
    bool waits_in = file->in != NULL && !(file->bits & WEIR_FILE_READABLE);
    bool has_out = file->out != NULL || file->send_state == WEIR_SEND_WAITING;
    bool waits_out = has_out && !(file->bits & WEIR_FILE_WRITABLE);
    bool waits_hangup = weir__file_hangup(file) != NULL && !(file->bits & WEIR_FILE_DEAD);
    *events = (short)((waits_in ? POLLIN | POLLRDHUP : 0) | (waits_out ? POLLOUT : 0));
    if (weir__file_poll(file) != NULL)
        *events = (short)weir__readiness_levels(weir__file_poll(file));
    return waits_in || waits_out || waits_hangup || weir__file_poll(file) != NULL;
}

/* It says so until it is read. */
static int hear_wake(blocking_io *io, short events)
{
    uint64_t count;
    weir_sys *sys = io->base.base.sys;
    if (events & POLLNVAL)
        io->is_deaf = true;
    else if (events != 0)
        sys->read(sys, io->base.eventfd, &count, sizeof count);
    return io->is_deaf ? -EBADF : 0;
}

static int blocking_poll(weir_io *base, int64_t timeout_ns)
{
    blocking_io *io = (blocking_io *)base;
    struct pollfd fds[2] = { { .fd = io->base.eventfd, .events = POLLIN } };
    unsigned count = 1;
    base->turn++;
    if (io->file != NULL && wish_of(io->file, &fds[1].events)) {
        fds[1].fd = io->file->fd;
        count = 2;
    }
    weir__io_count(&base->counters->polls);
    int found = base->sys->poll(base->sys, fds, count,
                                weir__readiness_has_results(base) ? 0 : timeout_ns);
    io->events = fds[1].revents;
    int code = hear_wake(io, fds[0].revents);
    return code < 0 ? code : found;
}

/* Somebody closed the descriptor, which nobody could wait for any more. */
static void lose(blocking_io *io)
{
    weir__readiness_lose(&io->base, io->file, -EBADF);
    io->base.base.news++;
    weir_log(WEIR_LOG_ERROR, "blocking", "descriptor %d is lost: somebody else closed it",
             io->file->fd);
}

static unsigned blocking_complete(weir_io *base)
{
    blocking_io *io = (blocking_io *)base;
    weir_completion phase;
    base->news = 0;
    if (io->events & POLLNVAL) {
        lose(io);
        io->events = 0;
    }
    weir__readiness_begin(&io->base, &phase);
    short events = io->events; /* none, when the file has gone meanwhile */
    io->events = 0;
    if (events != 0)
        weir__readiness_event(&io->base, io->file, (uint32_t)events);
    return weir__readiness_end(&io->base, &phase);
}

/* There is nothing at the kernel to be replaced, and what wakes it is known to other threads. */
static int blocking_rebuild(weir_io *base)
{
    return ((blocking_io *)base)->is_deaf ? -EBADF : 0;
}

static int blocking_spinner(const weir_io *base)
{
    (void)base;
    return -1;
}

static int blocking_descriptor(const weir_io *base)
{
    return ((const blocking_io *)base)->base.eventfd;
}

/* Opening and closing ------------------------------------------------------------------------ */

/* What there is at the kernel is needed as long as somebody may call wake. */
static void blocking_close(weir_io *base)
{
    (void)base;
}

static void blocking_destroy(weir_io *base)
{
    weir__readiness_deinit((weir_readiness *)base);
    weir__free(base);
}

static const weir_io_type blocking_type = {
    .name = "blocking",
    .attach = blocking_attach,
    .detach = blocking_detach,
    .close_file = blocking_close_file,
    .submit = weir__readiness_submit,
    .try_send = weir__readiness_try_send,
    .wait_to_send = weir__readiness_wait_to_send,
    .cancel_send = weir__readiness_cancel_send,
    .cancel = weir__readiness_cancel,
    .poll = blocking_poll,
    .complete = blocking_complete,
    .has_results = weir__readiness_has_results,
    .wake = weir__readiness_wake,
    .rebuild = blocking_rebuild,
    .spinner = blocking_spinner,
    .descriptor = blocking_descriptor,
    .close = blocking_close,
    .destroy = blocking_destroy,
};

int weir__blocking_open(weir_sys *sys, weir_io_counters *counters, weir_io **out)
{
    blocking_io *io = weir__zalloc(sizeof *io);
    if (io == NULL)
        return -ENOMEM;
    int code = weir__readiness_init(&io->base, &blocking_type, sys, counters);
    if (code < 0) {
        blocking_destroy(&io->base.base);
        return code;
    }
    *out = &io->base.base;
    return 0;
}
