/* SPDX-License-Identifier: MIT */
/* The engine of the backends that try a call, and wait until the descriptor is ready when the
 * kernel says EAGAIN. How they wait is their own. */
#ifndef WEIR_IO_READINESS_H
#define WEIR_IO_READINESS_H

#include "io/attempt.h"

/* What is known about a file, in its bits. */
enum {
    WEIR_FILE_READABLE = 1,
    WEIR_FILE_WRITABLE = 2,
    WEIR_FILE_HUNG_UP = 4,  /* the peer sends no more: reading goes on to 0 or an error */
    WEIR_FILE_DEAD = 8,     /* nor takes any more, or an error waits */
    WEIR_FILE_WATCHED = 16, /* the backend has been told to watch it */
    WEIR_FILE_PLAIN = 32,   /* watched for its level, on behalf of a poll */
    WEIR_FILE_URGENT = 64,  /* there was urgent data: reads stop short at its mark */
    WEIR_FILE_LEFT = 128,   /* though watched, it is not at the moment: see io/uring_watch.c */
};

/* The first member of such a backend. */
typedef struct weir_readiness {
    weir_io base;
    int eventfd; /* written to by wake */

    /* Has the kernel watch a file, once, when the first of its operations must wait; for its level
     * when it is PLAIN. And takes it out again. NULL for a backend that looks at what is armed
     * whenever it waits. */
    int (*watch)(weir_io *io, weir_io_file *file);
    void (*unwatch)(weir_io *io, weir_io_file *file);

    /* Gives the operation, which was about to be tried, to the kernel: whether it did. NULL: never
     * does. */
    bool (*submit_to_kernel)(weir_io *io, weir_io_op *op);

    weir_list ready; /* files that have an operation and its bit */
    weir_io_arena arena;
} weir_readiness;

/* Opens the eventfd; after a failure, too, deinit is called. */
int weir__readiness_init(weir_readiness *self, const weir_io_type *type, weir_sys *sys,
                         weir_io_counters *counters);
void weir__readiness_deinit(weir_readiness *self);

/* A file comes, and goes. */
void weir__readiness_attach(weir_io_file *file, int fd);
void weir__readiness_forget(weir_readiness *self, weir_io_file *file);

/* An armed operation is to be tried in the next completion phase, or when the file can be written
 * to; and whenever that changes. When the file cannot be watched, it ends. */
void weir__readiness_wait_in(weir_readiness *self, weir_io_op *op);
void weir__readiness_wait_out(weir_readiness *self, weir_io_op *op);

/* The file gets its turn in the next completion phase, if it has an operation and its bit. */
void weir__readiness_make_ready(weir_readiness *self, weir_io_file *file);

/* Nobody watches the file any more. */
void weir__readiness_unwatch(weir_readiness *self, weir_io_file *file);

/* The descriptor is of no use any more: what is armed fails with the code, and what will be. */
void weir__readiness_lose(weir_readiness *self, weir_io_file *file, int code);

/*
 * The completion phase: it begins, then the kernel's events are told, and it ends; each file gets
 * its turn once. `rest` is the caller's for as long: files that were ready before, which come last.
 * The bits of epoll are those of poll.
 */
typedef struct weir_completion {
    weir_list rest;
    bool has_rest;   /* else there is no list */
    uint64_t before; /* completions */
} weir_completion;
static inline void weir__readiness_begin(weir_readiness *self, weir_completion *phase);
void weir__readiness_event(weir_readiness *self, weir_io_file *file, uint32_t events);
static inline unsigned weir__readiness_end(weir_readiness *self, weir_completion *phase);

/* What a poll waits for, with the same bits. */
uint32_t weir__readiness_levels(const weir_io_op *poll);

/* These are of the backend's type. */
int weir__readiness_submit(weir_io *io, weir_io_op *op);
int weir__readiness_try_send(weir_io *io, weir_io_file *file);
int weir__readiness_wait_to_send(weir_io *io, weir_io_file *file);
void weir__readiness_cancel_send(weir_io *io, weir_io_file *file);
void weir__readiness_cancel(weir_io *io, weir_io_op *op);
bool weir__readiness_has_results(const weir_io *io);
void weir__readiness_wake(weir_io *io);

/* What was ready before: first what has ended, and in the end the files. */
void weir__readiness_begin_rest(weir_readiness *self, weir_completion *phase);
void weir__readiness_end_rest(weir_readiness *self, weir_completion *phase);

static inline void weir__readiness_begin(weir_readiness *self, weir_completion *phase)
{
    phase->before = weir__counter_get(&self->base.counters->completions);
    phase->has_rest = self->base.first_ended != NULL || self->base.first_sent != NULL ||
                      !weir__list_is_empty(&self->ready);
    if (phase->has_rest)
        weir__readiness_begin_rest(self, phase);
}

static inline unsigned weir__readiness_end(weir_readiness *self, weir_completion *phase)
{
    if (phase->has_rest)
        weir__readiness_end_rest(self, phase);
    self->base.current = NULL;
    return (unsigned)(weir__counter_get(&self->base.counters->completions) - phase->before);
}

#endif
