/* SPDX-License-Identifier: MIT */
/* Groups: a set of executors, or of event loops, that is made, chosen from and ended together. */
#ifndef WEIR_GROUP_H
#define WEIR_GROUP_H

#include <weir/api.h>
#include <weir/clock.h>
#include <weir/duration.h>
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
 * task has been taken care of, which means that its `run` or `dropped` is called some time, else it
 * stays the poster's. Any thread. */
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

/** Where event loops get their input and output done. */
typedef enum weir_io_kind {
    WEIR_IO_AUTO, /* what weir takes to be the best here; WEIR_IO of the environment can say */
    WEIR_IO_EPOLL,
    /* io_uring, Linux 5.13 or newer: weir_group_new fails, and says why, where there is none. What
     * the kernel lacks of it is made up for, each by itself. WEIR_URING_MASK of the environment
     * hides parts of it, or all. */
    WEIR_IO_URING,
    /* A loop, and so a thread, for each channel, which waits for that one descriptor. Loops are
     * made when a channel comes (weir_group_register) and none is idle, so `loops` has to be 0. A
     * second channel, watch or signal on such a loop is refused with -EBUSY. Not for manual groups.
     */
    WEIR_IO_BLOCKING,
} weir_io_kind;

/** The kind of that name, "auto", "epoll", "uring" or "blocking", as WEIR_IO of the environment has
 * them; -EINVAL when there is none. */
WEIR_API int weir_io_kind_from(const char *name);

/** A backend that is not the kernel's, such as the one of <weir/script.h>. */
typedef struct weir_io_source weir_io_source;

/** What a loop does next, instead of what it would do: see weir_strategy_fn. */
typedef enum weir_strategy {
    WEIR_STRATEGY_SELECT,    /* wait for events; only look for them while tasks wait */
    WEIR_STRATEGY_BUSY_WAIT, /* only look for events: costs a whole CPU, and no wake-up is needed */
    WEIR_STRATEGY_CONTINUE,  /* begin the turn again, without looking for events or tasks */
} weir_strategy;

/** Asked by a loop at the beginning of every turn, on its thread. */
typedef struct weir_loop weir_loop;
typedef weir_strategy (*weir_strategy_fn)(void *strategy_arg, weir_loop *loop, bool has_tasks);

/** How a group is made. Zero is the default of everything; the struct is copied. */
typedef struct weir_group_config {
    union {
        int loops; /* how many; 0: WEIR_LOOPS of the environment, else two per CPU */
        int count; /* the same, for who makes executors */
    };
    const char *name;      /* of the threads, with a number behind; NULL: "weir" */
    int max_pending_tasks; /* the bound of each queue, at least 16; 0: none */
    weir_reject_fn reject; /* NULL: -EAGAIN at the bound */
    void *reject_arg;
    weir_chooser_fn chooser; /* NULL: by turns */
    void *chooser_arg;
    weir_thread_start_fn start; /* NULL: a thread of weir's own */
    void *start_arg;
    size_t stack_bytes;  /* of weir's own threads; 0: the system's default */
    bool is_pinned;      /* each of weir's own threads stays on one CPU, by turns */
    bool is_manual;      /* no threads: the maker steps the group, see weir_group_step */
    weir_clock *clock;   /* NULL: the monotonic one; must outlive the group */
    int64_t watchdog_ns; /* log callbacks that run longer, with their handler, channel and back
                            trace (SIGURG interrupts them for it); 0: 1 s for loops, none for
                            executors; WEIR_OFF: none */

    /* For event loops only: */
    weir_io_kind io;
    int ring_entries;          /* of WEIR_IO_URING: operations to be submitted at once; 0: 512 */
    int ring_buffers;          /* of WEIR_IO_URING: the most buffers to receive into; 0: 1024 */
    int ring_buffer_bytes;     /* and how large each is, at least 1024; 0: 16384 */
    int max_channels;          /* of WEIR_IO_BLOCKING: the most at a time; 0: no limit */
    int64_t idle_loop_ns;      /* of WEIR_IO_BLOCKING: how long the thread of a loop without a
                              channel stays; 0: 60 s; WEIR_OFF: as long as the group */
    weir_io_source *io_source; /* a backend of another kind; must outlive the group */
    int io_ratio;    /* the share of io in percent, 1 to 100; 0: 50. See weir_loop_set_io_ratio */
    int64_t task_ns; /* instead of that share, run tasks for so long a turn; 0: as io_ratio says */
    int64_t max_wait_ns; /* the longest a loop waits for events; 0: no limit */
    int spin_limit; /* rebuild the backend after so many fruitless waits in a row, 3 or more; 0:
                       512; WEIR_OFF: never */
    weir_strategy_fn strategy; /* NULL: always WEIR_STRATEGY_SELECT */
    void *strategy_arg;
} weir_group_config;

/** Makes a group of plain executors, for work that must not hold up an event loop. No thread is
 * started yet. The config may be NULL. -EINVAL for a negative number, -ENOMEM; `error` (may be
 * NULL) then says which. */
WEIR_API int weir_group_new_executors(weir_group **group, const weir_group_config *config,
                                      weir_error *error);

/** Shuts the group down if that was not done (no quiet period, 15 s at most), waits for the end and
 * frees. No post may follow. Not on a thread of the group's
 * own, nor of any loop, and for a manual group only on its maker's: the rest is misuse, and does
 * nothing. On another plain executor's thread it is fine, also in a listener; but handlers of the
 * group's channels that run on that very executor cannot hear that it ends, so it takes the whole
 * timeout. NULL is fine. */
WEIR_API void weir_group_free(weir_group *group);

/** The next child, as the chooser says: borrowed. Any thread, as all of these. NULL when the group
 * is WEIR_IO_BLOCKING, for its children are there for one channel each: weir_group_register takes
 * one. */
WEIR_API weir_executor *weir_group_next(weir_group *group);

/** How many children there are, and each of them in the order they were made; NULL behind the last.
 * With WEIR_IO_BLOCKING those that were made until now, which stay; the thread of one that is idle
 * ends after idle_loop_ns, and its next channel or task starts another. */
WEIR_API size_t weir_group_count(const weir_group *group);
WEIR_API weir_executor *weir_group_at(const weir_group *group, size_t index);

/** With WEIR_IO_BLOCKING: how many children have a channel, or tasks that one left, and how many
 * wait for one. Both are 0 for other groups. */
WEIR_API void weir_group_get_channels(weir_group *group, size_t *active, size_t *idle);

/** "power of two", "generic" or "custom": how weir_group_next chooses; "per channel" when it does
 * not. */
WEIR_API const char *weir_group_chooser_name(const weir_group *group);

/** weir_executor_shutdown for all children. An event loop first closes its channels and waits until
 * their handlers are removed, also those on other executors. When the timeout passes, the loop ends
 * all the same: such a handler may still run, and is removed when its executor gets to it;
 * weir_channel_closed completes then. */
WEIR_API int weir_group_shutdown(weir_group *group, int64_t quiet_ns, int64_t timeout_ns);

/** Complete when the last child has terminated: borrowed. */
WEIR_API weir_future *weir_group_terminated(weir_group *group);

/** What keeps a group from having terminated, as of the last pass of each child; with
 * max_pending_tasks set, tasks that came since then count, too. */
typedef struct weir_group_pending {
    size_t children; /* that have not terminated, and of those: */
    uint64_t tasks;  /* that wait to be run */
    uint64_t timers; /* that are scheduled; a shutdown cancels them */
    uint64_t channels;
} weir_group_pending;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_group_get_pending(const weir_group *group, weir_group_pending *pending);

/** An executor for work that may block, on behalf of the group's children: weir_executor_global, or
 * for a manual group one that is stepped with it. Borrowed. */
WEIR_API weir_executor *weir_group_background(weir_group *group);

/* Manual groups ------------------------------------------------------------------------------ */

/*
 * A manual group has no threads. The thread that makes it drives it: with weir_group_step, by
 * waiting for a future (which steps all manual groups of the thread, and with a virtual clock moves
 * that on to the next timer when there is nothing else to do; then -EDEADLK says that nothing ever
 * will be), or from another event loop (weir_loop_run_once). Everybody may post to its children.
 */

/** One turn of every child, and of the group's background executor, without waiting. How many of
 * them did something: 0 when there was nothing to do. -EPERM when the group is not manual or not
 * this thread's. */
WEIR_API int weir_group_step(weir_group *group);

/** How long from now until there will be something to do, unless something happens before: 0 when
 * there is now, negative when there is no timer. -EPERM as above is INT64_MIN here. */
WEIR_API int64_t weir_group_next_ns(weir_group *group);

WEIR_END_DECLS

#endif
