/* SPDX-License-Identifier: MIT */
/* Threads that are inside a post: an executor's memory outlives them. */
#ifndef WEIR_EXEC_POSTERS_H
#define WEIR_EXEC_POSTERS_H

#include <weir/executor.h>
#include <weir/node.h>

#include <stdatomic.h>

/* Of exec/executor.h. */
void weir__executor_retain(weir_executor *executor);
void weir__executor_release(weir_executor *executor);

/*
 * A task can run, and the user's program free the group, before the post that brought the task has
 * returned on its own thread. So a thread names the executor here while it posts to it, and the
 * last release of an executor waits until no thread names it. Naming it costs two plain stores;
 * they need no fence, because a thread that frees the group after the task has run sees all stores
 * before the push.
 */
typedef struct weir_poster {
    _Atomic(weir_executor *) executor; /* NULL: none */
    weir_list_node node;
    bool is_listed;
} weir_poster;

/* initial-exec, as it is needed at every post. */
extern _Thread_local weir_poster weir__poster __attribute__((tls_model("initial-exec")));

/* Has other threads see this one's record; false without memory. */
bool weir__poster_list(void);

/* A post in progress: the executor that the thread named before, because a post may call user code
 * that posts; or this executor, retained, if the record could not be listed. */
typedef struct weir_posting {
    weir_executor *outer, *retained;
} weir_posting;

/* Whether other threads see this one's record. */
static inline bool weir__poster_is_listed(void)
{
    return weir__poster.is_listed;
}

/* Begins a post of a thread whose record is listed. */
static inline weir_posting weir__poster_begin_listed(weir_executor *executor)
{
    weir_posting posting = { .outer = atomic_load_explicit(&weir__poster.executor,
                                                           memory_order_relaxed) };
    atomic_store_explicit(&weir__poster.executor, executor, memory_order_relaxed);
    return posting;
}

/* The same for any thread. */
static inline weir_posting weir__poster_begin(weir_executor *executor)
{
    bool is_listed = weir__poster_is_listed() || weir__poster_list();
    weir_posting posting = weir__poster_begin_listed(executor);
    if (!is_listed) {
        weir__executor_retain(executor);
        posting.retained = executor;
    }
    return posting;
}

static inline void weir__poster_end(weir_posting posting)
{
    atomic_store_explicit(&weir__poster.executor, posting.outer, memory_order_release);
    if (__builtin_expect(posting.retained != NULL, 0))
        weir__executor_release(posting.retained);
}

/* Waits until no other thread names the executor. */
void weir__posters_wait(const weir_executor *executor);

#endif
