/* SPDX-License-Identifier: MIT */
/* The epoll backend: waits for edges. What there is to do then is in readiness.c. */
#include "base/alloc.h"
#include "io/kept.h"
#include "io/readiness.h"
#include "io/send.h"
#include "io/slots.h"

#include <weir/log.h>

#include <errno.h>

#define FIRST_EVENTS 64
#define MOST_EVENTS 4096

#define EDGES (EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET)

typedef struct epoll_io {
    weir_readiness base;
    int epoll;

    struct epoll_event *events;
    int event_room, event_count;

    weir_slots slots; /* a file's key is what epoll is given; 0 is the wake-up */
    int spinner;
} epoll_io;

/* Files -------------------------------------------------------------------------------------- */

static int epoll_attach(weir_io *base, weir_io_file *file, int fd)
{
    weir__readiness_attach(file, fd);
    return weir__io_log_twin(base, fd, weir__slots_add(&((epoll_io *)base)->slots, file));
}

static int control(epoll_io *io, int operation, weir_io_file *file, uint32_t events)
{
    weir_io *base = &io->base.base;
    struct epoll_event event = { .events = events, .data.u64 = weir__slots_key(&io->slots, file) };
    weir__io_count(&base->counters->controls);
    return base->sys->epoll_ctl(base->sys, io->epoll, operation, file->fd, &event);
}

/* A file's operations share one registration for all edges, which is never changed. */
static int epoll_watch(weir_io *base, weir_io_file *file)
{
    bool is_plain = file->bits & WEIR_FILE_PLAIN;
    return control((epoll_io *)base, EPOLL_CTL_ADD, file,
                   is_plain ? weir__readiness_levels(weir__file_poll(file)) : EDGES);
}

static void epoll_unwatch(weir_io *base, weir_io_file *file)
{
    control((epoll_io *)base, EPOLL_CTL_DEL, file, 0);
}

static void forget(epoll_io *io, weir_io_file *file)
{
    weir__slots_remove(&io->slots, file);
    weir__readiness_forget(&io->base, file);
}

static void epoll_detach(weir_io *base, weir_io_file *file)
{
    weir__readiness_unwatch((weir_readiness *)base, file);
    forget((epoll_io *)base, file);
}

/* Closing takes it out of epoll, too, unless the descriptor was duplicated: then what still comes
 * is of an old generation. But a level would come again and again. */
static void epoll_close_file(weir_io *base, weir_io_file *file)
{
    if (file->bits & WEIR_FILE_PLAIN)
        weir__readiness_unwatch((weir_readiness *)base, file);
    forget((epoll_io *)base, file);
    weir__kept_drop(base->sys, file);
    if (file->error != -EBADF) /* else the number may be another's by now */
        base->sys->close(base->sys, file->fd);
}

/* Waiting ------------------------------------------------------------------------------------ */

/* Without memory it stays as it is, and what does not fit comes next time. */
static void grow_events(epoll_io *io)
{
    int room = io->event_room > 0 ? io->event_room * 2 : FIRST_EVENTS;
    struct epoll_event *events = weir__realloc(io->events, (size_t)room * sizeof *events);
    if (events == NULL)
        return;
    io->events = events;
    io->event_room = room;
}

WEIR__HOT static int epoll_poll(weir_io *base, int64_t timeout_ns)
{
    epoll_io *io = (epoll_io *)base;
    base->turn++;
    io->spinner = -1;
    weir__io_count(&base->counters->polls);
    int count = base->sys->epoll_wait(base->sys, io->epoll, io->events, io->event_room,
                                      weir__readiness_has_results(base) ? 0 : timeout_ns);
    io->event_count = count > 0 ? count : 0;
    if (count == -EBADF || count == -EINVAL)
        io->epoll = -1; /* somebody closed it: the number may be another's by now */
    if (count == io->event_room && count < MOST_EVENTS)
        grow_events(io);
    return count;
}

/* The kernel knows files by their keys. */
static void complete_event(epoll_io *io, const struct epoll_event *event)
{
    if (event->data.u64 == 0)
        return;
    weir_io_file *file = weir__slots_find(&io->slots, event->data.u64);
    if (file == NULL) {
        weir__io_count(&io->base.base.counters->stale);
        io->spinner = weir__slots_fd(&io->slots, event->data.u64);
        return;
    }
    weir__readiness_event(&io->base, file, event->events);
}

WEIR__HOT static unsigned epoll_complete(weir_io *base)
{
    epoll_io *io = (epoll_io *)base;
    weir_completion phase;
    base->news = 0;
    weir__readiness_begin(&io->base, &phase);
    for (int i = 0; i < io->event_count; i++)
        complete_event(io, &io->events[i]);
    io->event_count = 0;
    return weir__readiness_end(&io->base, &phase);
}

static int epoll_descriptor(const weir_io *base)
{
    return ((const epoll_io *)base)->epoll;
}

static int epoll_spinner(const weir_io *base)
{
    return ((const epoll_io *)base)->spinner;
}

/* Opening, rebuilding, closing --------------------------------------------------------------- */

static int open_epoll(epoll_io *io)
{
    weir_sys *sys = io->base.base.sys;
    int fd = sys->epoll_create(sys);
    if (fd < 0)
        return fd;
    /* The eventfd is watched for edges and never read: each write is one. */
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = 0 };
    weir__io_count(&io->base.base.counters->controls);
    int code = sys->epoll_ctl(sys, fd, EPOLL_CTL_ADD, io->base.eventfd, &event);
    if (code < 0) {
        sys->close(sys, fd);
        return code;
    }
    io->epoll = fd;
    return 0;
}

/* What waits on a file that the new epoll does not want fails; the others know nothing of it. */
static void lose(epoll_io *io, weir_io_file *file, int code)
{
    weir__readiness_lose(&io->base, file, code);
    weir_log(WEIR_LOG_ERROR, "epoll",
             "descriptor %d is lost: it could not be moved to a new epoll: %s", file->fd,
             weir_error_text(code));
}

/* What was ready is reported anew by the new one, so nothing is missed in between. */
static int epoll_rebuild(weir_io *base)
{
    epoll_io *io = (epoll_io *)base;
    int old = io->epoll;
    int code = open_epoll(io);
    if (code < 0)
        return code;
    weir__io_count(&base->counters->rebuilds);
    for (uint32_t i = 0; i < io->slots.count; i++) {
        weir_io_file *file = weir__slots_at(&io->slots, i);
        if (file == NULL || !(file->bits & WEIR_FILE_WATCHED))
            continue;
        code = epoll_watch(base, file);
        if (code < 0)
            lose(io, file, code);
    }
    io->event_count = 0;
    if (old >= 0)
        base->sys->close(base->sys, old);
    return 0;
}

static void epoll_close(weir_io *base)
{
    epoll_io *io = (epoll_io *)base;
    if (io->epoll >= 0)
        base->sys->close(base->sys, io->epoll);
    io->epoll = -1;
}

static void epoll_destroy(weir_io *base)
{
    epoll_io *io = (epoll_io *)base;
    epoll_close(base);
    weir__readiness_deinit(&io->base);
    weir__free(io->events);
    weir__slots_deinit(&io->slots);
    weir__free(io);
}

static const weir_io_type epoll_type = {
    .name = "epoll",
    .attach = epoll_attach,
    .detach = epoll_detach,
    .close_file = epoll_close_file,
    .submit = weir__readiness_submit,
    .try_send = weir__readiness_try_send,
    .wait_to_send = weir__readiness_wait_to_send,
    .cancel_send = weir__readiness_cancel_send,
    .cancel = weir__readiness_cancel,
    .poll = epoll_poll,
    .complete = epoll_complete,
    .has_results = weir__readiness_has_results,
    .wake = weir__readiness_wake,
    .rebuild = epoll_rebuild,
    .spinner = epoll_spinner,
    .descriptor = epoll_descriptor,
    .close = epoll_close,
    .destroy = epoll_destroy,
};

int weir__epoll_open(weir_sys *sys, weir_io_counters *counters, weir_io **out)
{
    epoll_io *io = weir__zalloc(sizeof *io);
    if (io == NULL)
        return -ENOMEM;
    int code = weir__readiness_init(&io->base, &epoll_type, sys, counters);
    io->base.watch = epoll_watch;
    io->base.unwatch = epoll_unwatch;
    io->epoll = io->spinner = -1;
    grow_events(io);
    if (code == 0)
        code = io->events == NULL ? -ENOMEM : open_epoll(io);
    if (code < 0) {
        epoll_destroy(&io->base.base);
        return code;
    }
    *out = &io->base.base;
    return 0;
}
