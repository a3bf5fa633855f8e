/* SPDX-License-Identifier: MIT */
/* Event loops: executors that also wait for the kernel, and groups of them. */
#ifndef WEIR_LOOP_H
#define WEIR_LOOP_H

#include <weir/api.h>
#include <weir/error.h>
#include <weir/executor.h>
#include <weir/group.h>

WEIR_BEGIN_DECLS

/*
 * A loop goes round: it waits for events, handles them, runs tasks and timers for a share of that
 * time, and frees what was deferred. It is an executor: everything of <weir/executor.h> and
 * <weir/timer.h> works with weir_loop_executor. Loops belong to a group, which makes and frees
 * them.
 */
typedef struct weir_loop weir_loop;

/** Makes a group of event loops; the config may be NULL. No thread is started yet. -EINVAL for a
 * number out of range, -ENOMEM; `error` (may be NULL) then names it. weir_group_free ends it. */
WEIR_API int weir_group_new(weir_group **group, const weir_group_config *config, weir_error *error);

/** The next loop of a group as its chooser says, and each of them; NULL when the group's children
 * are not loops, or behind the last. Borrowed. Any thread. */
WEIR_API weir_loop *weir_group_next_loop(weir_group *group);
WEIR_API weir_loop *weir_group_loop_at(const weir_group *group, size_t index);

/** A loop is an executor, and some executors are loops: NULL when this one is none. Any thread. */
WEIR_API weir_executor *weir_loop_executor(weir_loop *loop);
WEIR_API weir_loop *weir_executor_loop(weir_executor *executor);

/** The loop whose thread this is, NULL when it is none's. */
WEIR_API weir_loop *weir_loop_current(void);

/** The time in nanoseconds as of this turn. On the loop's thread. */
WEIR_API int64_t weir_loop_now_ns(const weir_loop *loop);

/** What its backend is: "epoll", for instance. Any thread. */
WEIR_API const char *weir_loop_io_name(const weir_loop *loop);

/** Whether the loop serves one channel at a time, as those of WEIR_IO_BLOCKING do. Thread-safe. */
WEIR_API bool weir_loop_is_for_one_channel(const weir_loop *loop);

/**
 * The share of events in a turn, in percent: after events took t, tasks may take
 * t * (100 - ratio) / ratio, and with 100 as long as there are any; in a turn without events 50
 * microseconds. At least 64 tasks run in any case. -EINVAL unless from 1 to 100. Any thread.
 */
WEIR_API int weir_loop_set_io_ratio(weir_loop *loop, int ratio);

/** What a loop did, readable at any time without a lock. Times are of its own clock. */
typedef struct weir_loop_stats {
    uint64_t turns;
    uint64_t polls;          /* how often it asked the kernel for events */
    int64_t io_ns;           /* spent handling events */
    int64_t task_ns;         /* spent running tasks and timers */
    int64_t longest_turn_ns; /* without the waiting */
    uint64_t tasks_run;
    uint64_t tasks_queued; /* see weir_executor_stats */
    uint64_t timers;       /* that are scheduled */
    uint64_t wakeups;      /* how often a wait was ended from another thread */
    uint64_t rebuilds;     /* of the backend */
    uint64_t channels;     /* channels and watched descriptors */
    uint64_t completions;  /* operations that were done, or done once more */
    uint64_t stale_events; /* for what had been closed in the meantime, and dropped */
    uint64_t receives, sends, accepts, controls; /* system calls of these kinds, or what io_uring
                                                    was asked for in their place */
    uint64_t exhausted; /* how often the buffers for io_uring to receive into ran out */
} weir_loop_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_loop_get_stats(const weir_loop *loop, weir_loop_stats *stats);

/* Driven by hand ----------------------------------------------------------------------------- */

/*
 * A loop of a manual group runs inside somebody else's: poll weir_loop_descriptor for reading, at
 * most for weir_loop_next_ns, then call weir_loop_run_once with 0. All of this on the thread that
 * made the group.
 */

/** One turn, and one of the group's background executor, which waits at most `timeout_ns` for
 * something to do (0: not at all, negative: for ever). 1 when there was something, else 0. -EPERM
 * when the loop has a thread of its own or this is another's, -EDEADLK inside the loop,
 * WEIR_ESHUTDOWN once it has terminated. */
WEIR_API int weir_loop_run_once(weir_loop *loop, int64_t timeout_ns);

/** What becomes readable when the loop has something to do: borrowed. Ask before every poll, for it
 * is another one after the backend was rebuilt. -EPERM as above. */
WEIR_API int weir_loop_descriptor(const weir_loop *loop);

/** How long until it should run though its descriptor is not readable: 0 now, negative never
 * (INT64_MIN: -EPERM as above). */
WEIR_API int64_t weir_loop_next_ns(weir_loop *loop);

WEIR_END_DECLS

#endif
