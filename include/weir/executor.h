/* SPDX-License-Identifier: MIT */
/* Executors: one thread that runs tasks, plain, timed and tail; the base of every event loop. */
#ifndef WEIR_EXECUTOR_H
#define WEIR_EXECUTOR_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/node.h>

WEIR_BEGIN_DECLS

/*
 * An executor belongs to a group (<weir/group.h>), which makes and frees it. Its thread starts with
 * the first task. Unless a function says otherwise, any thread may call it.
 */
typedef struct weir_executor weir_executor;
typedef struct weir_future weir_future;
typedef struct weir_group weir_group;
typedef struct weir_promise weir_promise;

/* Tasks -------------------------------------------------------------------------------------- */

/**
 * Something to do on an executor's thread. Embed it and set the first three fields. It is weir's
 * from a successful post until `run` or `dropped` is called, exactly one of which is; in both it is
 * yours again, to post once more or to free.
 */
typedef struct weir_task weir_task;
struct weir_task {
    int (*run)(weir_task *task); /* 0, or a negative code that is logged */
    void (*dropped)(
        weir_task *task); /* instead of run, when the executor ends first; may be NULL */
    const char *name;     /* for logs, the watchdog and the debugger: a literal, or NULL */
    weir_mpsc_node node;  /* weir's */
};

/**
 * Hands a task over; tasks that one thread posts run in that order. Starts the executor's thread
 * if need be. When it fails the task stays the caller's: -EINVAL for NULL, -EAGAIN when the queue
 * is at its bound (max_pending_tasks of the group), WEIR_ESHUTDOWN after shutdown, or what starting
 * the thread failed with. No allocation.
 */
WEIR_API int weir_executor_post(weir_executor *executor, weir_task *task);

/** The same without waking the executor: the task runs when something else does. */
WEIR_API int weir_executor_post_lazy(weir_executor *executor, weir_task *task);

/** The same for after the ordinary tasks: it runs when a pass over them is through. The group's
 * rejection is not asked at the bound: -EAGAIN. */
WEIR_API int weir_executor_post_tail(weir_executor *executor, weir_task *task);

/** A function with its argument: 0, or a negative code. */
typedef int (*weir_call_fn)(void *arg);

/** Posts a function, for an allocation; it is not called when the executor ends first (post a task
 * with `dropped` when `arg` has to be freed then). -EINVAL for NULL, -ENOMEM, or as
 * weir_executor_post. */
WEIR_API int weir_executor_execute(weir_executor *executor, weir_call_fn fn, void *arg);

/** The same with a future of what the function returns, cancelled when it is not called. The caller
 * releases the future, which may outlive the executor (its listeners are dropped then).
 * Cancelling it keeps a function from being called that has not begun. */
WEIR_API int weir_executor_submit(weir_executor *executor, weir_call_fn fn, void *arg,
                                  weir_future **future);

/** The same for a promise of the caller's, bound to any executor or channel, which gets the code of
 * the function. If this fails, the promise stays pending. */
WEIR_API int weir_executor_submit_to(weir_executor *executor, weir_call_fn fn, void *arg,
                                     weir_promise *promise);

/** Ends a wait of the executor's, or the next one, though there is nothing to do. */
WEIR_API void weir_executor_wake(weir_executor *executor);

/** Whether the calling thread is the executor's. */
WEIR_API bool weir_executor_is_current(const weir_executor *executor);

/** The executor whose thread this is, NULL when it is none's. */
WEIR_API weir_executor *weir_executor_current(void);

/* State -------------------------------------------------------------------------------------- */

/** In the order they follow each other. An executor never returns to an earlier state, with one
 * exception: a loop of a blocking group goes from STARTED back to NOT_STARTED when it is idle
 * (idle_loop_ns of the group), until the next task or channel. */
typedef enum weir_executor_state {
    WEIR_EXECUTOR_NOT_STARTED,   /* no thread; the next task starts one */
    WEIR_EXECUTOR_STARTED,       /* runs tasks */
    WEIR_EXECUTOR_SHUTTING_DOWN, /* still runs and takes tasks, until the quiet period is over */
    WEIR_EXECUTOR_SHUTDOWN,      /* takes none any more, runs what is left */
    WEIR_EXECUTOR_TERMINATED,    /* has no thread any more */
} weir_executor_state;

/** The present state. Thread-safe. */
WEIR_API weir_executor_state weir_executor_get_state(const weir_executor *executor);

/**
 * Begins to end: as soon as no task was run for `quiet_ns`, and at the latest after `timeout_ns`,
 * it takes no more tasks and its thread ends; one that never started starts for that. Timers are
 * cancelled at once. Asynchronous; a second call has no effect. -EINVAL when quiet is negative or
 * the timeout below it.
 */
WEIR_API int weir_executor_shutdown(weir_executor *executor, int64_t quiet_ns, int64_t timeout_ns);

/** Complete when the executor has terminated: borrowed. Its listeners run on the thread that ends.
 */
WEIR_API weir_future *weir_executor_terminated(weir_executor *executor);

/** The group it belongs to; NULL for the global and background executors. */
WEIR_API weir_group *weir_executor_group(const weir_executor *executor);

/** Its name, which its thread has, too. */
WEIR_API const char *weir_executor_name(const weir_executor *executor);

/** The time in nanoseconds as of the executor's last look at its clock. On its thread. */
WEIR_API int64_t weir_executor_now_ns(const weir_executor *executor);

/** A function that an executor calls on its thread. Embed it, zero it, set `run`. */
typedef struct weir_hook weir_hook;
struct weir_hook {
    void (*run)(weir_hook *hook);
    weir_list_node node; /* weir's, as the next one */
    weir_executor *executor;
};

/** Has a hook called once while the executor shuts down; it is yours again in the call. Hooks are
 * called in the order of adding. On the executor's thread: -EPERM elsewhere. -EBUSY when it is
 * added already. */
WEIR_API int weir_executor_add_shutdown_hook(weir_executor *executor, weir_hook *hook);

/** Has a hook called after every pass over the tasks, behind the tail, also when there was none:
 * for statistics, and what has to happen once a turn. The rest as above. */
WEIR_API int weir_executor_add_pass_hook(weir_executor *executor, weir_hook *hook);

/** Takes a hook away, of either kind; it may do that to itself. -EPERM off the executor's thread,
 * WEIR_ENOTFOUND when it is not added. */
WEIR_API int weir_executor_remove_hook(weir_executor *executor, weir_hook *hook);

/** What an executor did and has to do, readable at any time. */
typedef struct weir_executor_stats {
    uint64_t tasks_run;      /* ordinary, timed and tail */
    uint64_t tasks_queued;   /* how many wait: exact with a bound, else what the last pass left */
    uint64_t tasks_rejected; /* posts refused */
    uint64_t timers;         /* how many are scheduled */
    uint64_t channels;       /* how many channels and watched descriptors a loop has */
    uint64_t wakeups;        /* how often a wait was ended from outside */
    uint64_t passes;         /* how often it went through its tasks */
    int64_t last_run_ns;     /* when a task last ran */
} weir_executor_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_executor_get_stats(const weir_executor *executor, weir_executor_stats *stats);

WEIR_END_DECLS

#endif
