/* SPDX-License-Identifier: MIT */
/* Groups: a set of executors, or of event loops, that is made, chosen from and ended together. */
#ifndef WEIR_GROUP_H
#define WEIR_GROUP_H

#include <weir/api.h>
#include <weir/clock.h>
#include <weir/error.h>
#include <weir/executor.h>

WEIR_BEGIN_DECLS

/** The body of a thread: call it with its argument, once, on a thread of your own. */
typedef void (*weir_thread_fn)(void *arg);

/** Starts a thread that calls `body(arg)`, in place of weir's own way: to pin, count or pool
 * threads. 0, or a negative code, and then `body` must not be called. Any thread. */
typedef int (*weir_thread_start_fn)(void *start_arg, const char *name, weir_thread_fn body,
                                    void *arg);

/** Asked when a task finds its queue at the bound: returns what the post shall return. With 0 the
 * task has been taken care of, else it stays the poster's. Any thread. */
typedef int (*weir_reject_fn)(void *reject_arg, weir_executor *executor, weir_task *task);

/** A weir_reject_fn that tries again, as often and with such pauses as `reject_arg` says, unless on
 * the executor's own thread; then -EAGAIN. */
typedef struct weir_backoff {
    unsigned retries;
    int64_t pause_ns;
} weir_backoff;
WEIR_API int weir_reject_with_backoff(void *backoff, weir_executor *executor, weir_task *task);

/** Which child comes next, of `count`; `n` counts the calls from 0. Any thread, several at once. */
typedef size_t (*weir_chooser_fn)(void *chooser_arg, weir_group *group, uint64_t n, size_t count);

/** A weir_chooser_fn: the child with the fewest tasks waiting, by turns among equals. Wants
 * max_pending_tasks set, for only then tasks are counted. */
WEIR_API size_t weir_choose_least_loaded(void *arg, weir_group *group, uint64_t n, size_t count);

/** How a group is made. Zero is the default of everything; the struct is copied. */
typedef struct weir_executors_config {
    int count;             /* how many; 0: WEIR_LOOPS of the environment, else two per CPU */
    const char *name;      /* of the threads, with a number behind; NULL: "weir" */
    int max_pending_tasks; /* the bound of each queue, at least 16; 0: none */
    weir_reject_fn reject; /* NULL: -EAGAIN at the bound */
    void *reject_arg;
    weir_chooser_fn chooser; /* NULL: by turns */
    void *chooser_arg;
    weir_thread_start_fn start; /* NULL: a thread of weir's own */
    void *start_arg;
    size_t stack_bytes; /* of weir's own threads; 0: the system's default */
    weir_clock *clock;  /* NULL: the monotonic one; must outlive the group */
} weir_executors_config;

/** Makes a group of plain executors, for work that must not hold up an event loop. No thread is
 * started yet. The config may be NULL. -EINVAL for a negative number, -ENOMEM; `error` (may be
 * NULL) then says which. */
WEIR_API int weir_group_new_executors(weir_group **group, const weir_executors_config *config,
                                      weir_error *error);

/** Shuts down, if nobody did, waits for the end and frees. Not on a thread of the group's own: that
 * is misuse, and does nothing. NULL is fine. */
WEIR_API void weir_group_free(weir_group *group);

/** The next child, as the chooser says: borrowed. Any thread, as all of these. */
WEIR_API weir_executor *weir_group_next(weir_group *group);

/** How many children there are, and each of them in the order they were made; NULL behind the last.
 */
WEIR_API size_t weir_group_count(const weir_group *group);
WEIR_API weir_executor *weir_group_at(const weir_group *group, size_t index);

/** "power of two", "generic" or "custom": how weir_group_next chooses. */
WEIR_API const char *weir_group_chooser_name(const weir_group *group);

/** weir_executor_shutdown for all children. */
WEIR_API int weir_group_shutdown(weir_group *group, int64_t quiet_ms, int64_t timeout_ms);

/** Complete when the last child has terminated: borrowed. */
WEIR_API weir_future *weir_group_terminated(weir_group *group);

WEIR_END_DECLS

#endif
