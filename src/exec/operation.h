/* SPDX-License-Identifier: MIT */
/* Operations: asynchronous work of one executor with a promise that any thread may cancel. */
#ifndef WEIR_EXEC_OPERATION_H
#define WEIR_EXEC_OPERATION_H

#include "exec/future.h"

#include <stdatomic.h>

/*
 * An operation is embedded in the state of some work that takes time. It belongs to an executor, to
 * a home (a channel), or to neither: then its owner has a lock.
 *
 *   init      one reference for the work, one for the promise if there is one
 *   watch     from now on `cancelled` may be called
 *   end       the work has ended: completes the promise, gives the work's reference back
 *   destroy   the last reference is gone
 *
 * The owner ends the work exactly once. An executor that terminates calls nothing; so the owner of
 * work that it interrupts ends it there, as a loop's residents do.
 */
typedef struct weir_operation weir_operation;

typedef struct weir_operation_type {
    /* The promise is complete, but the work has not ended: cancels the work, whose end follows, now
     * or later. At most once, on the executor or at the home, and never after the end. Without
     * either: on any thread, maybe while another thread ends the work. */
    void (*cancelled)(weir_operation *operation);

    /* Frees the struct around the operation. Any thread. NULL: it is part of its home. */
    void (*destroy)(weir_operation *operation);
} weir_operation_type;

struct weir_operation {
    const weir_operation_type *type;
    weir_executor *executor; /* a reference; NULL: none */
    weir_home *home;         /* a reference, instead of the executor */
    weir_promise *promise;   /* a reference; NULL: none */
    _Atomic(uint32_t) refs;
    _Atomic(bool) has_ended;
    weir_listener on_promise;
    union { /* takes a cancellation to the executor or to the home */
        weir_task task;
        weir_call call;
    };
};

/* Prepares an operation of an executor (NULL: of none), or of a home. `promise` may be NULL. Never
 * fails. Any thread. */
void weir__operation_init(weir_operation *operation, const weir_operation_type *type,
                          weir_promise *promise, weir_executor *executor);
void weir__operation_init_at(weir_operation *operation, const weir_operation_type *type,
                             weir_promise *promise, weir_home *home);

/* Watches the promise. Once, and also if the work has ended already: only this gives the promise's
 * reference back. On the operation's executor `cancelled` is not called before the present callback
 * has returned. */
void weir__operation_watch(weir_operation *operation);

/* Ends the work with a code, a value, or an error in words: 0, or -EALREADY if the promise was
 * cancelled first; then a value stays the caller's. Without a promise a value is freed at once. The
 * operation may be gone when these return. */
int weir__operation_end(weir_operation *operation, int code);
int weir__operation_succeed(weir_operation *operation, void *value, weir_value_free_fn free_fn);
int weir__operation_fail(weir_operation *operation, const weir_error *error);

/* Whether the work has ended. */
static inline bool weir__operation_has_ended(const weir_operation *operation)
{
    return atomic_load_explicit(&operation->has_ended, memory_order_acquire);
}

/* Takes and gives back a reference, for a part of the work that may outlive its end. Any thread. */
void weir__operation_retain(weir_operation *operation);
void weir__operation_release(weir_operation *operation);

/* A future that the work waits for. Embedded. */
typedef struct weir_awaited weir_awaited;
typedef void (*weir_awaited_fn)(weir_awaited *awaited, weir_future *future);
struct weir_awaited {
    weir_listener listener;
    weir_operation *operation;
    weir_awaited_fn done;
};

/* Calls `done` when the future is complete, also after the end of the work, and holds a reference
 * until then. The future is bound to the operation's executor or home, if it has one. If that has
 * terminated, `done` is not called. */
void weir__operation_await(weir_operation *operation, weir_awaited *awaited, weir_future *future,
                           weir_awaited_fn done);

#endif
