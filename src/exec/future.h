/* SPDX-License-Identifier: MIT */
/* The struct behind both faces of a result, for who embeds one. */
#ifndef WEIR_EXEC_FUTURE_H
#define WEIR_EXEC_FUTURE_H

#include "exec/notice.h"

#include <weir/future.h>

#include <stdatomic.h>

struct weir_future {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) state;
    int code;
    weir_executor *executor; /* where listeners run; NULL: where it is completed */
    void *value;
    weir_value_free_fn free_value;
    weir_future *source;                /* whom the value was taken from, kept alive for it */
    _Atomic(weir_listener *) listeners; /* newest first */
    /* While its listeners are being told: */
    weir_listener *batch; /* those taken off the list */
    weir_notice notice;   /* that they are to be told */
    weir_task task;       /* carries it to its executor */
};

struct weir_promise {
    weir_future future;
    _Atomic(uint32_t) writers; /* of the references, those to the promise */
};

/* Completes `to` with the result of `from`, which is complete, and keeps that alive for the value.
 * -EALREADY. */
int weir__future_copy(weir_future *to, weir_future *from);

/* A pending future that is part of an object: counting leaves it alone, the object's owner ends it.
 */
void weir__future_init(weir_future *future, weir_executor *executor);

/* Waits on this thread alone, without stepping manual groups: 0 or -ETIMEDOUT. */
int weir__future_wait_here(weir_future *future, int64_t timeout_ns);

/* Completes an embedded one; -EALREADY. Never allocates. */
int weir__future_complete(weir_future *future, int code);

#endif
