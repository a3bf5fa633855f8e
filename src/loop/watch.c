/* SPDX-License-Identifier: MIT */
/* Watches: a poll operation on a descriptor that is somebody else's. */
#include "loop/loop.h"

#include "io/io.h"

#include <weir/watch.h>

#include <errno.h>

/*
 * Where a watch is. Its task carries it to the loop's thread, to start or to stop; a stop that
 * comes while it is on its way to start leaves its wish in the state.
 *
 *   IDLE -> STARTING -> ACTIVE --> ENDING -----> IDLE
 *              |           `-> STOPPING --->
 *              `-> NOT_STARTING ----------->
 */
enum {
    IDLE,
    PREPARING,    /* weir_watch_start is at it */
    STARTING,     /* its task is on its way to submit the poll */
    NOT_STARTING, /* the same, but it was stopped before */
    ACTIVE,
    ENDING,   /* the poll's final result ends it */
    STOPPING, /* its task is on its way, and ends it, or the poll's final result after that */
};

/* What a watch keeps in its room. */
typedef struct watch_room {
    weir_io_file file;
    weir_io_op op;
    weir_resident resident;
    weir_watch *watch;
    bool is_changing; /* the poll is cancelled, to be submitted with other events */
} watch_room;

_Static_assert(sizeof(watch_room) <= sizeof(((weir_watch *)NULL)->room), "it has to fit");

static watch_room *room_of(weir_watch *watch)
{
    return (watch_room *)watch->room;
}

static bool change(weir_watch *watch, int from, int to)
{
    return atomic_compare_exchange_strong_explicit(&watch->state, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

bool weir__watch_is_active(const weir_watch *watch)
{
    return atomic_load_explicit(&watch->state, memory_order_acquire) == ACTIVE;
}

/* The watch is its owner's again. */
static void end(weir_watch *watch, int code)
{
    atomic_store_explicit(&watch->state, IDLE, memory_order_release);
    if (watch->stopped != NULL)
        watch->stopped(watch, code);
}

static void cancel_poll(weir_watch *watch)
{
    weir__io_cancel(watch->loop->io, &room_of(watch)->op);
}

static void submit_poll(weir_watch *watch)
{
    watch_room *room = room_of(watch);
    room->is_changing = false;
    room->op.events = watch->events;
    weir__io_submit(watch->loop->io, &room->op);
}

static void on_done(weir_io_op *op, const weir_io_result *result)
{
    watch_room *room = WEIR_CONTAINER(op, watch_room, op);
    weir_watch *watch = room->watch;
    bool is_active = atomic_load_explicit(&watch->state, memory_order_acquire) == ACTIVE;
    if (result->is_armed) {
        if (is_active)
            watch->ready(watch, (unsigned)result->code);
        return;
    }
    if (room->is_changing && is_active && watch->code == 0) {
        submit_poll(watch);
        return;
    }
    if (result->code != -ECANCELED)
        watch->code = result->code;
    watch->loop->io->type->detach(watch->loop->io, &room->file);
    weir__loop_remove(watch->loop, &room->resident);
    change(watch, ACTIVE, ENDING);
    if (atomic_load_explicit(&watch->state, memory_order_acquire) == ENDING)
        end(watch, watch->code);
}

static void evict(weir_resident *resident)
{
    weir_watch *watch = WEIR_CONTAINER(resident, watch_room, resident)->watch;
    watch->code = WEIR_ESHUTDOWN;
    cancel_poll(watch);
}

static const weir_resident_type resident_type = { .evict = evict };

/* On the loop's thread. */
static int begin(weir_watch *watch)
{
    weir_loop *loop = watch->loop;
    watch_room *room = room_of(watch);
    *room = (watch_room){ .watch = watch, .resident.type = &resident_type };
    room->op = (weir_io_op){ .kind = WEIR_IO_POLL, .file = &room->file, .on_done = on_done };
    int code = loop->io->type->attach(loop->io, &room->file, watch->fd);
    if (code < 0)
        return code;
    code = weir__loop_add(loop, &room->resident);
    if (code < 0) {
        loop->io->type->detach(loop->io, &room->file);
        return code;
    }
    submit_poll(watch);
    return 0;
}

static int run_task(weir_task *task)
{
    weir_watch *watch = WEIR_CONTAINER(task, weir_watch, task);
    if (change(watch, STARTING, ACTIVE)) {
        int code = begin(watch);
        /* A stop may have come from elsewhere just now; then its task ends it. */
        if (code < 0 && change(watch, ACTIVE, STARTING))
            end(watch, code);
        else if (code < 0)
            watch->code = code;
        return 0;
    }
    bool has_started = change(watch, STOPPING, ENDING);
    if (has_started && room_of(watch)->op.is_in_flight)
        cancel_poll(watch);
    else
        end(watch, watch->code);
    return 0;
}

/* The loop ended with the task in its queue; so the poll is not in flight any more. */
static void drop_task(weir_task *task)
{
    end(WEIR_CONTAINER(task, weir_watch, task), WEIR_ESHUTDOWN);
}

int weir_watch_start(weir_watch *watch, weir_loop *loop, int fd, unsigned events)
{
    if (watch == NULL || watch->ready == NULL || loop == NULL || fd < 0 ||
        events & ~(unsigned)(WEIR_WATCH_READ | WEIR_WATCH_WRITE))
        return -EINVAL;
    if (!change(watch, IDLE, PREPARING))
        return -EBUSY;
    watch->loop = loop;
    watch->fd = fd;
    watch->events = events;
    watch->code = 0;
    watch->task = (weir_task){ .run = run_task, .dropped = drop_task, .name = "watch" };
    atomic_store_explicit(&watch->state, STARTING, memory_order_release);
    bool is_here = weir_executor_is_current(&loop->base);
    int code = is_here ? begin(watch) : weir_executor_post(&loop->base, &watch->task);
    if (code < 0) {
        if (change(watch, STARTING, IDLE))
            return code;
        end(watch, 0); /* somebody was quick to stop it, and waits for that */
    } else if (is_here && !change(watch, STARTING, ACTIVE)) {
        atomic_store_explicit(&watch->state, ENDING, memory_order_release); /* the same */
        cancel_poll(watch);
    }
    return 0;
}

int weir_watch_change(weir_watch *watch, unsigned events)
{
    if (watch == NULL || events & ~(unsigned)(WEIR_WATCH_READ | WEIR_WATCH_WRITE) ||
        atomic_load_explicit(&watch->state, memory_order_acquire) != ACTIVE)
        return -EINVAL;
    if (!weir_executor_is_current(&watch->loop->base))
        return -EPERM;
    watch->events = events;
    room_of(watch)->is_changing = true;
    cancel_poll(watch);
    return 0;
}

int weir_watch_stop(weir_watch *watch)
{
    int state = watch != NULL ? atomic_load_explicit(&watch->state, memory_order_acquire) : IDLE;
    while (state == STARTING || state == ACTIVE) {
        bool is_here = weir_executor_is_current(&watch->loop->base);
        int next = state == STARTING ? NOT_STARTING : is_here ? ENDING : STOPPING;
        if (!atomic_compare_exchange_weak_explicit(&watch->state, &state, next,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        if (next == ENDING)
            cancel_poll(watch);
        else if (next == STOPPING &&
                 weir__executor_post_always(&watch->loop->base, &watch->task) < 0)
            end(watch, WEIR_ESHUTDOWN);
        return 0;
    }
    return watch != NULL ? -EALREADY : -EINVAL;
}
