/* SPDX-License-Identifier: MIT */
/* The event loop, for the layers above it. */
#ifndef WEIR_LOOP_LOOP_H
#define WEIR_LOOP_LOOP_H

#include "base/spare.h"
#include "exec/executor.h"
#include "io/counters.h"

#include <weir/loop.h>
#include <weir/timer.h>
#include <weir/watch.h>

typedef struct weir_io weir_io;

/* What lives on a loop and has to go before it: a channel, a watched descriptor. Embedded. */
typedef struct weir_resident weir_resident;
typedef struct weir_resident_type {
    void (*evict)(weir_resident *resident);   /* the loop ends: close, and leave. Called once. */
    void (*abandon)(weir_resident *resident); /* it did not in time; may be NULL */
} weir_resident_type;
struct weir_resident {
    const weir_resident_type *type;
    weir_list_node node;
};

/* Called at the end of the turn, when no callback is under way any more. Embedded. */
typedef struct weir_deferred weir_deferred;
struct weir_deferred {
    void (*run)(weir_deferred *deferred);
    weir_deferred *next;
};

/* How a loop is made: what is checked and has its defaults. */
typedef struct weir_loop_config {
    weir_io_kind io;
    weir_io_source *io_source;
    struct weir_uring_config uring;
    int io_ratio;
    int64_t task_ns; /* 0: as the ratio says */
    int64_t max_wait_ns;
    int64_t idle_ns;     /* without residents, its thread ends after that; 0: never */
    unsigned spin_limit; /* 0: never */
    weir_strategy_fn strategy;
    void *strategy_arg;
} weir_loop_config;

struct weir_loop {
    weir_executor base;
    weir_loop_config config;
    _Atomic(int) io_ratio;

    /* Its own thread's; the backend may be woken by all. */
    weir_io *io;
    weir_list residents, evicted;
    weir_task vacancy; /* after the last resident's tasks: see weir__loop_remove */
    bool is_vacancy_posted;
    weir_timer idle; /* of a loop for one channel, while it has none */
    weir_deferred *first_deferred, **last_deferred;
    bool has_ended; /* nothing is deferred any more */
    unsigned spins; /* waits in a row that ended early, with nothing to show */
    struct {
        int code;
        int64_t timeout_ns, start_ns;
        bool is_woken;
    } last_poll;
    /* A turn with events and tasks leaves its end to be timed by the next one. */
    bool is_turn_open;
    int64_t turn_start_ns, tasks_start_ns;

    weir_spare writes; /* memory of channels' outbound queues */

    /* Counters. */
    weir_io_counters io_counters;
    _Atomic(uint64_t) turns, io_ns, task_ns, longest_turn_ns;
};

int weir__loop_new(weir_loop **loop, const weir_executor_config *executor,
                   const weir_loop_config *config);

/* On the loop's thread: a resident comes and goes. WEIR_ESHUTDOWN when the loop is ending. When the
 * last has gone, and the tasks are done that there were then, a loop that was made for one channel
 * is free for another. */
int weir__loop_add(weir_loop *loop, weir_resident *resident);
void weir__loop_remove(weir_loop *loop, weir_resident *resident);

/* The loop shuts down: evicts every resident, true if there were any; and unlinks and abandons
 * those that have not left in time. */
bool weir__loop_evict_all(weir_loop *loop);
void weir__loop_abandon_all(weir_loop *loop);

/* Prepares the lists; and starts the time after which the thread of a loop for one channel ends. */
void weir__loop_init_residents(weir_loop *loop);
void weir__loop_begin_idle(weir_loop *loop);

/* Whether `ready` may be called. */
bool weir__watch_is_active(const weir_watch *watch);

/* On the loop's thread: false, and it is not, when the loop has had its last turn, or this is
 * another thread. */
bool weir__loop_defer(weir_loop *loop, weir_deferred *deferred);

#endif
