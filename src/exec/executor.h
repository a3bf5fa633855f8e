/* SPDX-License-Identifier: MIT */
/* The executor as a base: what plain executors and event loops share, and what each brings along.
 */
#ifndef WEIR_EXEC_EXECUTOR_H
#define WEIR_EXEC_EXECUTOR_H

#include "base/heap.h"
#include "base/list.h"
#include "base/sys.h"
#include "exec/future.h"
#include "exec/task_queue.h"

#include <weir/clock.h>
#include <weir/executor.h>
#include <weir/group.h>

/* What kind of executor it is. The executor is the first member of a struct of its kind's. */
typedef struct weir_executor_type {
    const char *name;
    bool is_loop; /* no future may be waited for on its thread */

    /* Before there is a thread, by whoever starts it: opens what it needs. NULL: nothing. */
    int (*open)(weir_executor *executor);

    /* The thread's body: turns until weir__executor_confirm_shutdown says that it is over. */
    void (*run)(weir_executor *executor);

    /* Waits until woken, at most `timeout_ns` (negative: for ever). On its thread. */
    void (*wait)(weir_executor *executor, int64_t timeout_ns);

    /* Ends a wait that is going on or about to begin. Any thread. */
    void (*wake)(weir_executor *executor);

    /* The last thing on its thread: closes what was opened. NULL: nothing. */
    void (*close)(weir_executor *executor);

    /* Frees the struct. */
    void (*destroy)(weir_executor *executor);
} weir_executor_type;

/* What one executor is made of. */
typedef struct weir_executor_config {
    const char *name;
    weir_clock *clock; /* NULL: the monotonic one */
    weir_sys *sys;     /* NULL: Linux */
    uint32_t max_pending_tasks;
    weir_reject_fn reject;
    void *reject_arg;
    weir_thread_start_fn start;
    void *start_arg;
    size_t stack_bytes;
} weir_executor_config;

struct weir_executor {
    /* Set once. */
    const weir_executor_type *type;
    weir_group *group;
    weir_clock *clock;
    weir_sys *sys;
    char name[16];
    weir_reject_fn reject;
    void *reject_arg;
    weir_thread_start_fn start;
    void *start_arg;
    size_t stack_bytes;

    /* Any thread's. */
    _Atomic(int) state;
    _Atomic(int) sleep; /* awake, asleep or woken: see executor.c */
    weir_task_queue tasks;
    weir_task_queue tail_tasks;
    _Atomic(int64_t) quiet_ns, timeout_ns; /* of the shutdown */
    weir_future terminated;
    _Atomic(size_t) refs;     /* the owner's, and the thread's */
    pthread_mutex_t end_lock; /* after termination: who drops the tasks that came too late */
    pthread_t thread;
    bool is_joinable; /* it is a thread of weir's own, and started */

    /* Its own thread's. */
    weir_heap timers;
    weir_shutdown_hook *first_hook, **last_hook;
    int64_t now_ns;
    int64_t end_start_ns; /* when it began to end */
    bool is_ending;

    /* Counters: written by its thread, but for the first two. */
    _Atomic(uint64_t) wakeups, rejected;
    _Atomic(uint64_t) tasks_run, passes, timer_count;
    _Atomic(int64_t) last_run_ns;
};

/* Prepares the base part; the owner has a reference. The config is copied, its name cut. */
void weir__executor_init(weir_executor *executor, const weir_executor_type *type,
                         const weir_executor_config *config);

/* Gives a reference back; the last one destroys. The executor has terminated or never started. */
void weir__executor_release(weir_executor *executor);

/* Waits for the end of weir's own thread, after termination; nothing for threads of others. */
void weir__executor_join(weir_executor *executor);

/* Posts what must not be refused, bound or not. WEIR_ESHUTDOWN after termination, or what starting
 * the thread failed with. */
int weir__executor_post_always(weir_executor *executor, weir_task *task);

/* Posts a task once more that found the queue full, without asking for the rejection again. */
int weir__executor_post_again(weir_executor *executor, weir_task *task);

/* Whether the future can be complete only after the executor has ended. */
bool weir__executor_ends_with(weir_executor *executor, const weir_future *future);

/* Whether no future may be waited for on its thread. */
bool weir__executor_is_loop(const weir_executor *executor);

/* For the body of a kind, on the executor's thread --------------------------------------------- */

/* Reads the clock. */
int64_t weir__executor_read_clock(weir_executor *executor);

/* Whether a task waits, in the tail, too. */
bool weir__executor_has_tasks(weir_executor *executor);

/* When the next timer is due, INT64_MAX when there is none. */
int64_t weir__executor_next_deadline_ns(const weir_executor *executor);

/*
 * Goes to sleep unless there is something to do: returns false when there is, else calls the kind's
 * wait until the next timer or `max_ns` (negative: no limit) and returns true.
 */
bool weir__executor_sleep(weir_executor *executor, int64_t max_ns);

/*
 * Moves due timers to the queue and runs tasks, for `budget_ns` (negative: until there is none),
 * then the tail. The clock is read after every 64th task. Whether anything ran.
 */
bool weir__executor_run_tasks(weir_executor *executor, int64_t budget_ns);

/* The same for the tasks that are there now, but none that they add. */
bool weir__executor_run_batch(weir_executor *executor);

/* Whether the body should end; runs what is left and waits for the quiet period on the way. */
bool weir__executor_confirm_shutdown(weir_executor *executor);

#endif
