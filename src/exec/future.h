/* SPDX-License-Identifier: MIT */
/* The struct behind both faces of a result, for who embeds one. */
#ifndef WEIR_EXEC_FUTURE_H
#define WEIR_EXEC_FUTURE_H

#include "exec/notice.h"

#include <weir/future.h>

#include <stdatomic.h>

/* Where listeners run that go with something which can move from executor to executor: a channel.
 */
typedef struct weir_home weir_home;

/* Something to do there, embedded in its owner. */
typedef struct weir_call weir_call;
struct weir_call {
    weir_mpsc_node node;
    void (*run)(weir_home *home, weir_call *call);
};

/* An object that a future is a part of, and which no thread leads, has retain and release alone: it
 * lives while listeners of the future are notified, wherever that is. */
typedef struct weir_home_type {
    bool (*is_here)(weir_home *home); /* they may run on this thread, now; NULL: on any */
    /* Runs a call there, exactly once, in order with others and never beside them; on another
     * thread only if the executor has terminated or cannot start. Any thread. */
    void (*push)(weir_home *home, weir_call *call);
    bool (*is_manual)(weir_home *home); /* this thread itself brings about what happens there */
    /* A promise failed that was marked by weir__promise_guard. On the thread that has failed it. */
    void (*piece_rejected)(weir_home *home, int code);
    void (*retain)(weir_home *home);
    void (*release)(weir_home *home); /* also when a promise that was bound to it is gone */
} weir_home_type;
struct weir_home {
    const weir_home_type *type;
};

struct weir_future {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) state;
    int code;
    weir_executor *executor; /* where listeners run; NULL: where it is completed */
    weir_home *home;         /* instead of the executor */
    weir_home *stream;       /* of a guarded promise; NULL: it is none */
    void *value;
    weir_value_free_fn free_value;
    weir_future *source;                /* whom the value was taken from, kept alive for it */
    _Atomic(weir_listener *) listeners; /* newest first */
    /* While its listeners are being notified: */
    weir_listener *batch; /* those taken off the list */
    weir_notice notice;   /* queued on the thread where they run */
    union {
        weir_task task; /* takes it to its executor */
        weir_call call; /* or to its home */
    };
};

struct weir_promise {
    weir_future future;
    _Atomic(uint32_t) writers; /* of the references, those to the promise */
    _Atomic(bool) is_listed;   /* it waits in a list of those that are completed together */
    weir_promise *next;        /* in that */
};

/* References from here on are not counted: constants, and futures that are part of an object. */
#define WEIR__FUTURE_IMMORTAL 0x80000000u

/* Whether it is one of weir_future_completed. */
bool weir__future_is_constant(const weir_future *future);

/* Notifies the listeners: the result is set. listener.c */
void weir__listeners_notify(weir_future *future);

/* A list of promises to complete together, in order, for who must not allocate. Retains what it
 * takes; one that waits in such a list already is completed by that. */
typedef struct weir_promise_list {
    weir_promise *first;
} weir_promise_list;

void weir__promises_add(weir_promise_list *list, weir_promise *promise);
void weir__promises_complete(weir_promise_list *list, int code);

/* Completes `to` with the result of `from`, which is complete, and keeps that alive for the value.
 * -EALREADY. */
int weir__future_copy(weir_future *to, weir_future *from);

/* A pending future that is part of an object: counting leaves it alone, the object's owner ends it.
 */
void weir__future_init(weir_future *future, weir_home *object);

/* Whether it may be that another thread completes it while this one waits. */
bool weir__future_is_others_work(const weir_future *future);

/* A pending promise that is bound to a home, and takes a reference to it over. NULL: no memory. */
weir_promise *weir__promise_new_at(weir_home *home);

/* The write of this promise is a piece of a stream. If it fails, `stream` is notified at once,
 * before the listeners, so that no byte follows the gap. The caller holds the promise, which is
 * pending and cannot be cancelled, and has not passed it on. */
void weir__promise_guard(weir_promise *promise, weir_home *stream);

/* Whether the stream has a gap when a write with this promise fails. */
static inline bool weir__promise_leaves_gap(const weir_promise *promise)
{
    return promise == NULL || promise->future.stream != NULL;
}

/* The result of something whose promise may be NULL. */
static inline void weir__promise_end(weir_promise *promise, int code)
{
    if (promise != NULL)
        weir_promise_set(promise, code);
}

/* Waits on this thread alone, without stepping manual groups: 0 or -ETIMEDOUT. */
int weir__future_wait_here(weir_future *future, int64_t timeout_ns);

/* Completes an embedded one; -EALREADY. Never allocates. */
int weir__future_complete(weir_future *future, int code);

#endif
