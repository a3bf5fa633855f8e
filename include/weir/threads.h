/* SPDX-License-Identifier: MIT */
/* Threads that are not an executor's alone: one for each task, and the global executor. */
#ifndef WEIR_THREADS_H
#define WEIR_THREADS_H

#include <weir/api.h>
#include <weir/error.h>
#include <weir/executor.h>
#include <weir/group.h>

WEIR_BEGIN_DECLS

/**
 * Gives every task that it starts a new thread of its own: for what blocks, or as the `start` of a
 * group whose threads you want to be made in one place.
 */
typedef struct weir_threads weir_threads;

/** `name` is for threads that are started without one; may be NULL, is copied. `stack_bytes` 0: the
 * system's default. -EINVAL, -ENOMEM. */
WEIR_API int weir_threads_new(weir_threads **threads, const char *name, size_t stack_bytes);

/** Calls `body(arg)` once on a new thread with that name (NULL: the default). Is a
 * weir_thread_start_fn, `threads` being its first argument. -ENOMEM, -EAGAIN when the system has no
 * more threads. Any thread. */
WEIR_API int weir_threads_start(void *threads, const char *name, weir_thread_fn body, void *arg);

/** How many are running. Any thread. */
WEIR_API size_t weir_threads_count(weir_threads *threads);

/** Waits until all have ended and frees. Not on one of them: that is misuse. NULL is fine. */
WEIR_API void weir_threads_free(weir_threads *threads);

/**
 * The one executor of the whole process, for small jobs that have no other place. Its thread starts
 * with the first task and ends after a second without any; the next task starts a new one. It
 * cannot be shut down (-EPERM).
 */
WEIR_API weir_executor *weir_executor_global(void);

/** Waits until the global executor has no thread, and neither a name lookup nor a file read has
 * one, at most `timeout_ns`: 0, -ETIMEDOUT, or -EDEADLK on such a thread. For the end of a program:
 * a thread without tasks and timers ends at once then. */
WEIR_API int weir_executor_global_wait_idle(int64_t timeout_ns);

WEIR_END_DECLS

#endif
