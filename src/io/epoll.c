/* SPDX-License-Identifier: MIT */
/* The epoll backend: tries the call, and waits for an edge when the kernel says EAGAIN. */
#include "base/alloc.h"
#include "base/assert.h"
#include "io/attempt.h"
#include "io/ops.h"
#include "io/slots.h"

#include <weir/log.h>

#include <errno.h>
#include <string.h>

#define FIRST_EVENTS 64
#define MOST_EVENTS 4096
#define MOST_WAKES 8 /* tries to write to the eventfd, which is not supposed to fail */

/* What is known about a file, in its bits. */
enum {
    READABLE = 1,
    WRITABLE = 2,
    HUNG_UP = 4, /* the peer sends no more: reading goes on to 0 or an error, for no edge comes */
    DEAD = 8,    /* nor takes any more, or an error waits */
    ADDED = 16,  /* epoll knows it */
    PLAIN = 32,  /* watched for its level, on behalf of a poll */
    URGENT = 64, /* there was urgent data: reads stop short at its mark */
};

#define EDGES (EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET)

typedef struct epoll_io {
    weir_io base;
    int epoll;
    int eventfd;

    struct epoll_event *events;
    int event_room, event_count;

    weir_slots slots; /* a file's key is what epoll is given; 0 is the wake-up */

    weir_list ready; /* files that have an operation and its bit */
    int spinner;
    weir_io_arena arena;
} epoll_io;

/* Files -------------------------------------------------------------------------------------- */

static int epoll_attach(weir_io *base, weir_io_file *file, int fd)
{
    *file = (weir_io_file){ .fd = fd, .bits = WRITABLE }; /* until it says no */
    return weir__slots_add(&((epoll_io *)base)->slots, file);
}

static int control(epoll_io *io, int operation, weir_io_file *file, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.u64 = weir__slots_key(&io->slots, file) };
    weir__io_count(&io->base.counters->controls);
    return io->base.sys->epoll_ctl(io->base.sys, io->epoll, operation, file->fd, &event);
}

static void remove_from_epoll(epoll_io *io, weir_io_file *file)
{
    if (file->bits & ADDED)
        control(io, EPOLL_CTL_DEL, file, 0);
    file->bits &= ~(unsigned)(ADDED | PLAIN);
}

static void forget(epoll_io *io, weir_io_file *file)
{
    WEIR_ASSERT(file->in_flight == 0);
    weir__slots_remove(&io->slots, file);
    if (weir__list_is_linked(&file->ready))
        weir__list_remove(&file->ready);
    if (io->base.current == file)
        io->base.current = NULL;
}

static void epoll_detach(weir_io *base, weir_io_file *file)
{
    remove_from_epoll((epoll_io *)base, file);
    forget((epoll_io *)base, file);
}

/* Closing takes it out of epoll, too, unless the descriptor was duplicated: then what still comes
 * is of an old generation. But a level would come again and again. */
static void epoll_close_file(weir_io *base, weir_io_file *file)
{
    epoll_io *io = (epoll_io *)base;
    if (file->bits & PLAIN)
        remove_from_epoll(io, file);
    forget(io, file);
    base->sys->close(base->sys, file->fd);
}

/* Added once, when the first operation must wait: a socket that is not connected would report a
 * hang-up at once. */
static int ensure_added(epoll_io *io, weir_io_file *file)
{
    if (file->bits & ADDED)
        return 0;
    int code = control(io, EPOLL_CTL_ADD, file, EDGES);
    if (code == 0)
        file->bits |= ADDED;
    return code;
}

/* The way out -------------------------------------------------------------------------------- */

/* Sends what it can; -EAGAIN when that has to wait. */
static int send_now(epoll_io *io, weir_io_op *op)
{
    int code = weir__io_try_out(&io->base, op, &io->arena);
    if (code == -EAGAIN)
        op->file->bits &= ~(unsigned)WRITABLE;
    return code == -EINTR ? -EAGAIN : code; /* then in the next turn */
}

static void complete_out(epoll_io *io, weir_io_file *file)
{
    weir_io_op *op = file->out;
    if (op->kind == WEIR_IO_CONNECT) {
        weir__op_finish(&io->base, op, weir__io_connect_result(&io->base, op));
    } else if (weir__io_take_send(&io->base, file)) {
        int code = send_now(io, op);
        /* It may have waited for its turn so far, and not for the kernel. */
        int added = code == -EAGAIN && !(file->bits & WRITABLE) ? ensure_added(io, file) : 0;
        if (code != -EAGAIN || added < 0)
            weir__op_finish(&io->base, op, added < 0 ? added : code);
    }
}

/* The way in --------------------------------------------------------------------------------- */

/* Whether a short read does not mean that there is no more. */
static bool reads_on(const weir_io_file *file)
{
    return file->bits & (HUNG_UP | URGENT) || file->has_boundaries;
}

static void complete_in(epoll_io *io, weir_io_file *file)
{
    weir_io_op *op = file->in;
    unsigned count = 0;
    bool goes_on = true;
    while (goes_on && file->bits & READABLE && count < WEIR_IO_BATCH) {
        bool may_have_more;
        unsigned room = op->is_multishot ? WEIR_IO_BATCH - count : 1;
        int came = weir__io_try_in(&io->base, op, &io->arena, room, &may_have_more);
        if (came == -EINTR)
            break; /* then in the next turn */
        if (came == -EAGAIN || (!may_have_more && !reads_on(file)))
            file->bits &= ~(unsigned)READABLE;
        if (came == -EAGAIN)
            break;
        if (came <= 0) {
            weir__op_finish_in(&io->base, op, came, count);
            return;
        }
        count += (unsigned)came;
        /* All of them, even if somebody has enough meanwhile: the kernel has them no more, and the
         * operation is there until its final result was told. */
        for (int i = 0; i < came; i++)
            goes_on = weir__op_tell_data(&io->base, op, &io->arena.in.results[i]);
    }
    if (count > 0 && io->base.current == file)
        weir__op_end_batch(op);
}

/* The completion phase ----------------------------------------------------------------------- */

static bool can_go_on(const weir_io_file *file)
{
    return (file->out != NULL && file->bits & WRITABLE) ||
           (file->in != NULL && file->bits & READABLE) ||
           (file->hangup != NULL && file->bits & DEAD) || (file->poll != NULL && file->events != 0);
}

static void make_ready(epoll_io *io, weir_io_file *file)
{
    if (can_go_on(file) && !weir__list_is_linked(&file->ready))
        weir__list_push_back(&io->ready, &file->ready);
}

static void complete_poll(epoll_io *io, weir_io_file *file)
{
    int events = file->events;
    file->events = 0;
    weir__op_tell(&io->base, file->poll, &(weir_io_result){ .code = events, .is_armed = true });
}

/* Connect and send go first: they may free memory. Any callback may be the file's last. */
static void complete_file(epoll_io *io, weir_io_file *file)
{
    io->base.current = file;
    if (file->poll != NULL && file->events != 0)
        complete_poll(io, file);
    if (io->base.current == file && file->out != NULL && file->bits & WRITABLE)
        complete_out(io, file);
    if (io->base.current == file && file->in != NULL && file->bits & READABLE)
        complete_in(io, file);
    if (io->base.current == file && file->hangup != NULL && file->bits & DEAD)
        weir__op_finish(&io->base, file->hangup, 0);
    if (io->base.current == file)
        make_ready(io, file);
    io->base.current = NULL;
}

static uint8_t level_of(uint32_t events)
{
    return (uint8_t)((events & EPOLLIN ? WEIR_IO_READABLE : 0) |
                     (events & EPOLLOUT ? WEIR_IO_WRITABLE : 0) |
                     (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) ? WEIR_IO_HUNG_UP : 0));
}

/* An event without any bit also leads to a read, which finds out. */
static unsigned bits_of(uint32_t events)
{
    unsigned bits = 0;
    if (events & EPOLLOUT)
        bits |= WRITABLE;
    if (events & EPOLLIN || events == 0)
        bits |= READABLE;
    if (events & EPOLLPRI)
        bits |= READABLE | URGENT;
    if (events & EPOLLRDHUP)
        bits |= READABLE | HUNG_UP;
    if (events & (EPOLLERR | EPOLLHUP))
        bits |= READABLE | WRITABLE | HUNG_UP | DEAD;
    return bits;
}

/* What poll found becomes bits, before any callback can change what there is. */
static void note_event(epoll_io *io, const struct epoll_event *event)
{
    if (event->data.u64 == 0)
        return;
    weir_io_file *file = weir__slots_find(&io->slots, event->data.u64);
    if (file == NULL) {
        weir__io_count(&io->base.counters->stale);
        io->spinner = weir__slots_fd(&io->slots, event->data.u64);
        return;
    }
    io->base.news++;
    if (file->bits & PLAIN)
        file->events |= level_of(event->events);
    else
        file->bits |= bits_of(event->events);
    make_ready(io, file);
}

static unsigned epoll_complete(weir_io *base)
{
    epoll_io *io = (epoll_io *)base;
    uint64_t before = atomic_load_explicit(&base->counters->completions, memory_order_relaxed);
    io->base.news = 0;
    for (int i = 0; i < io->event_count; i++)
        note_event(io, &io->events[i]);
    io->event_count = 0;
    weir__io_tell_ended(base);
    /* Those that are ready now; who comes back waits for the next turn. */
    weir_list todo;
    weir_list_node *node;
    weir__list_init(&todo);
    weir__list_splice_back(&todo, &io->ready);
    while ((node = weir__list_pop_front(&todo)) != NULL)
        complete_file(io, WEIR_CONTAINER(node, weir_io_file, ready));
    return (unsigned)(atomic_load_explicit(&base->counters->completions, memory_order_relaxed) -
                      before);
}

/* Submitting --------------------------------------------------------------------------------- */

/* For operations that never finish inside submit. */
static int begin_waiting(epoll_io *io, weir_io_op *op, int code)
{
    if (code < 0)
        weir__op_finish_later(&io->base, op, code);
    else
        make_ready(io, op->file);
    return WEIR_IO_PENDING;
}

/* What a poll has epoll watch. */
static uint32_t levels_of(const weir_io_op *op)
{
    return (op->events & WEIR_IO_READABLE ? EPOLLIN | EPOLLRDHUP : 0) |
           (op->events & WEIR_IO_WRITABLE ? EPOLLOUT : 0);
}

static int submit_poll(epoll_io *io, weir_io_op *op)
{
    weir_io_file *file = op->file;
    int code = control(io, EPOLL_CTL_ADD, file, levels_of(op));
    if (code == 0)
        file->bits |= ADDED | PLAIN;
    return begin_waiting(io, op, code);
}

/* For operations that wait for their turn, or for the kernel. */
static int wait_for_out(epoll_io *io, weir_io_op *op)
{
    int code = op->file->bits & WRITABLE ? 0 : ensure_added(io, op->file);
    if (code < 0)
        return weir__op_end_at_once(op, code);
    make_ready(io, op->file);
    return WEIR_IO_PENDING;
}

static int submit_send(epoll_io *io, weir_io_op *op)
{
    if (op->file->bits & WRITABLE && weir__io_take_send(&io->base, op->file)) {
        int code = send_now(io, op);
        if (code != -EAGAIN)
            return weir__op_end_at_once(op, code);
    }
    return wait_for_out(io, op);
}

static int submit_connect(epoll_io *io, weir_io_op *op)
{
    int code = weir__io_begin_connect(&io->base, op);
    if (code != -EINPROGRESS && code != -EINTR)
        return weir__op_end_at_once(op, code);
    op->file->bits &= ~(unsigned)WRITABLE;
    return wait_for_out(io, op);
}

static int epoll_submit(weir_io *base, weir_io_op *op)
{
    epoll_io *io = (epoll_io *)base;
    weir_io_file *file = op->file;
    WEIR_ASSERT(*weir__op_place(op) == NULL && !op->is_in_flight);
    weir__op_arm(op);
    if (file->error < 0)
        return weir__op_is_out(op) ? weir__op_end_at_once(op, file->error)
                                   : begin_waiting(io, op, file->error);
    switch (op->kind) {
    case WEIR_IO_CONNECT:
        return submit_connect(io, op);
    case WEIR_IO_POLL:
        return submit_poll(io, op);
    default:
        return weir__op_is_out(op) ? submit_send(io, op)
                                   : begin_waiting(io, op, ensure_added(io, file));
    }
}

static void epoll_cancel(weir_io *base, weir_io_op *op)
{
    epoll_io *io = (epoll_io *)base;
    if (!weir__op_is_armed(op))
        return; /* over, or about to be told */
    if (op->kind == WEIR_IO_POLL) {
        remove_from_epoll(io, op->file);
        op->file->events = 0;
    }
    weir__op_finish_later(&io->base, op, -ECANCELED);
}

/* Waiting ------------------------------------------------------------------------------------ */

static bool epoll_has_results(const weir_io *base)
{
    const epoll_io *io = (const epoll_io *)base;
    return !weir__list_is_empty(&io->ready) || !weir__list_is_empty(&io->base.ended);
}

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

static int epoll_poll(weir_io *base, int64_t timeout_ns)
{
    epoll_io *io = (epoll_io *)base;
    io->base.turn++;
    io->spinner = -1;
    weir__io_count(&base->counters->polls);
    int count = base->sys->epoll_wait(base->sys, io->epoll, io->events, io->event_room,
                                      epoll_has_results(base) ? 0 : timeout_ns);
    io->event_count = count > 0 ? count : 0;
    if (count == -EBADF || count == -EINVAL)
        io->epoll = -1; /* somebody closed it: the number may be another's by now */
    if (count == io->event_room && count < MOST_EVENTS)
        grow_events(io);
    return count;
}

static void epoll_wake(weir_io *base)
{
    /* The eventfd is watched for edges and never read: each write is one. */
    const uint64_t one = 1;
    epoll_io *io = (epoll_io *)base;
    int code = -EINTR;
    for (int i = 0; i < MOST_WAKES && code < 0; i++)
        code = base->sys->write(base->sys, io->eventfd, &one, sizeof one);
    if (code < 0)
        weir_log(WEIR_LOG_ERROR, "epoll",
                 "cannot wake a loop up: writing to its eventfd failed: %s", weir_error_text(code));
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
    weir_sys *sys = io->base.sys;
    int fd = sys->epoll_create(sys);
    if (fd < 0)
        return fd;
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = 0 };
    weir__io_count(&io->base.counters->controls);
    int code = sys->epoll_ctl(sys, fd, EPOLL_CTL_ADD, io->eventfd, &event);
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
    enum { OPS = 4 };
    weir_io_op *ops[OPS] = { file->in, file->out, file->poll, file->hangup };
    file->error = code;
    file->bits &= ~(unsigned)(ADDED | PLAIN);
    for (int i = 0; i < OPS; i++) {
        if (ops[i] != NULL)
            weir__op_finish_later(&io->base, ops[i], code);
    }
    weir_log(WEIR_LOG_ERROR, "epoll",
             "descriptor %d is lost: it could not be moved to a new epoll: %s", file->fd,
             weir_error_text(code));
}

static uint32_t interest_of(const weir_io_file *file)
{
    return file->bits & PLAIN ? levels_of(file->poll) : EDGES;
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
        weir_io_file *file = io->slots.slots[i].file;
        if (file == NULL || !(file->bits & ADDED))
            continue;
        code = control(io, EPOLL_CTL_ADD, file, interest_of(file));
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
    if (io->eventfd >= 0)
        base->sys->close(base->sys, io->eventfd);
    weir__free(io->events);
    weir__slots_deinit(&io->slots);
    weir__free(io);
}

static const weir_io_type epoll_type = {
    .name = "epoll",
    .attach = epoll_attach,
    .detach = epoll_detach,
    .close_file = epoll_close_file,
    .submit = epoll_submit,
    .cancel = epoll_cancel,
    .poll = epoll_poll,
    .complete = epoll_complete,
    .has_results = epoll_has_results,
    .wake = epoll_wake,
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
    weir__io_init(&io->base, &epoll_type, sys, counters);
    io->epoll = io->spinner = -1;
    weir__list_init(&io->ready);
    grow_events(io);
    io->eventfd = sys->eventfd(sys, 0);
    int code = io->events == NULL ? -ENOMEM : io->eventfd < 0 ? io->eventfd : open_epoll(io);
    if (code < 0) {
        epoll_destroy(&io->base);
        return code;
    }
    *out = &io->base;
    return 0;
}
