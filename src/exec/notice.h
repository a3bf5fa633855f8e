/* SPDX-License-Identifier: MIT */
/* What is told when the callback under way on this thread has returned, in order. */
#ifndef WEIR_EXEC_NOTICE_H
#define WEIR_EXEC_NOTICE_H

#include <weir/node.h>

/*
 * Nobody who completes a promise finds somebody else's code run inside the call: on an executor's
 * thread listeners wait until the task or the handler of an event returns. On other threads nothing
 * is under way, so they are told at once. Either way one after another, never inside each other.
 */

typedef struct weir_notices {
    weir_notice *first, *last;
    bool is_running;
} weir_notices;

/* initial-exec: it is looked at after every task. */
extern _Thread_local weir_notices weir__notices __attribute__((tls_model("initial-exec")));

/* Puts a notice at the end of this thread's. It is its owner's again when `run` is called. */
void weir__notice_queue(weir_notice *notice);

void weir__notices_run_all(void);

/* Begins an empty queue for callbacks that run inside one of another executor's, whose listeners
 * have to wait until it returns; and runs its remaining notices, then restores the outer queue. */
weir_notices weir__notices_enter(void);
void weir__notices_leave(weir_notices outer);

/* A callback has returned. */
static inline void weir__notices_run(void)
{
    if (__builtin_expect(weir__notices.first != NULL, 0))
        weir__notices_run_all();
}

#endif
