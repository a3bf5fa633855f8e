/* SPDX-License-Identifier: MIT */
/* Promises and futures: the writer's and the reader's face of one result that comes later. */
#ifndef WEIR_FUTURE_H
#define WEIR_FUTURE_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/executor.h>
#include <weir/node.h>

WEIR_BEGIN_DECLS

/*
 * A result is a code (0 or negative) and a pointer. It is set once, by whoever comes first: the
 * promise's holder, or somebody who cancels. Then the listeners run, in the order they were added,
 * on the executor that the promise is bound to, one after another and never inside each other: a
 * listener that completes another promise only queues that one's listeners. On an executor's thread
 * they run when the task or callback under way returns, never inside the call that caused them.
 *
 * Both faces are counted. Passing a promise to a function does not give it away: the callee retains
 * it for as long as it needs it. A future that an object hands out as a lasting fact (closed,
 * terminated) is part of that object: borrowed, good as long as the object.
 */
typedef struct weir_promise weir_promise;
typedef struct weir_future weir_future;

/* The writer's face -------------------------------------------------------------------------- */

/** A pending promise with one reference. Listeners run on `executor`, whose group may be freed
 * before it (see weir_listener); NULL: on the thread that completes the promise. NULL: no memory.
 */
WEIR_API weir_promise *weir_promise_new(weir_executor *executor);

/** Takes a reference and returns the promise. Thread-safe. */
WEIR_API weir_promise *weir_promise_retain(weir_promise *promise);

/** Gives a reference back. With the last one to the promise (futures do not count) a result that
 * nobody has set is set to -ECANCELED, and in debug builds that is reported: somebody forgot it.
 * NULL is fine. */
WEIR_API void weir_promise_release(weir_promise *promise);

/** Destroys a promise's value, once, when the last reference goes. */
typedef void (*weir_value_free_fn)(void *value);

/** Completes it with success; the promise owns `value` from then on and ends it with `free_fn`
 * (NULL: nothing to do). -EALREADY when it is complete, and then the value stays the caller's. Any
 * thread. */
WEIR_API int weir_promise_succeed(weir_promise *promise, void *value, weir_value_free_fn free_fn);

/** Completes it with a negative code, -EALREADY when it is complete. Never allocates. Any thread.
 */
WEIR_API int weir_promise_fail(weir_promise *promise, int code);

/** The same with words: weir_future_error has a copy of them. Without memory for it there is just
 * the code. */
WEIR_API int weir_promise_fail_with(weir_promise *promise, const weir_error *error);

/** Completes it with 0 or a negative code and no value. */
WEIR_API int weir_promise_set(weir_promise *promise, int code);

/** From now on it cannot be cancelled. False when it already was; then the work should not begin.
 */
WEIR_API bool weir_promise_set_uncancellable(weir_promise *promise);

/** The reader's face of the same result: borrowed, retain it to keep it. */
WEIR_API weir_future *weir_promise_future(weir_promise *promise);

/** Completes `to` when `from` is complete, with its code and value (which stays alive with `to`);
 * cancelling `to` cancels `from`. -ENOMEM, and then neither has changed. */
WEIR_API int weir_promise_follow(weir_promise *to, weir_future *from);

/** When a joined promise completes. */
typedef enum weir_join {
    WEIR_JOIN_ALL, /* complete when all are, with the first failure's code if there is one */
    WEIR_JOIN_FIRST_FAILURE, /* complete as soon as one fails */
} weir_join;

/** Completes `to` according to `how` from `count` futures; none succeeds at once. -ENOMEM, and then
 * nothing has changed. */
WEIR_API int weir_promise_join(weir_promise *to, weir_future *const *futures, size_t count,
                               weir_join how);

/* The reader's face -------------------------------------------------------------------------- */

/** Take and release a reference. Thread-safe. */
WEIR_API weir_future *weir_future_retain(weir_future *future);
WEIR_API void weir_future_release(weir_future *future);

/** A future that is already complete, with 0 or a negative code: constant, no allocation, release
 * it or not. */
WEIR_API weir_future *weir_future_completed(int code);

/** Whether the result is there. Any thread, as all of these. */
WEIR_API bool weir_future_is_done(const weir_future *future);

/** The code, -EINPROGRESS while there is none. */
WEIR_API int weir_future_code(const weir_future *future);

/** The value, NULL when there is none or it failed: borrowed, it lives as long as the future. */
WEIR_API void *weir_future_value(const weir_future *future);

/** Why it failed, in words: NULL when it did not, or nobody said. Borrowed like the value. */
WEIR_API const weir_error *weir_future_error(const weir_future *future);

/** Completes it with -ECANCELED, unless it is complete (-EALREADY) or uncancellable (-EBUSY). */
WEIR_API int weir_future_cancel(weir_future *future);

/** Waits for the result and returns its code. Refused with -EDEADLK on every thread that runs an
 * event loop, and on the thread of the executor the future is bound to. */
WEIR_API int weir_future_await(weir_future *future);

/** Waits at most `timeout_ns` and tells only about the waiting: 0 (there is a result), -ETIMEDOUT,
 * -EDEADLK. */
WEIR_API int weir_future_wait(weir_future *future, int64_t timeout_ns);

/**
 * A callback for a future's completion. Embed it, set `done`, and do not touch it from
 * weir_future_listen until `done` or `dropped` is called, exactly one of which is; then it is yours
 * again.
 *
 * `done` runs on the executor that the future is bound to, and on no other thread. If that executor
 * has terminated, or its thread cannot be started, `dropped` is called instead (NULL: nothing is),
 * on any thread: it may free memory and complete promises, but must not touch what belongs to the
 * executor. A listener that may run anywhere sets both to the same function.
 */
typedef struct weir_listener weir_listener;
struct weir_listener {
    void (*done)(weir_listener *listener, weir_future *future);
    void (*dropped)(weir_listener *listener, weir_future *future); /* or NULL */
    /* weir's: */
    union {
        weir_listener *next;
        weir_notice notice;
    };
    weir_future *future;
};

/** Adds a listener; after completion it is called at once or soon, after those added before it.
 * Never fails. The future stays alive until the listener was called. */
WEIR_API void weir_future_listen(weir_future *future, weir_listener *listener);

/** Called with a completed future, on the executor of its promise. */
typedef void (*weir_done_fn)(void *arg, weir_future *future);

/** The same with an allocation instead of an embedded listener. If the future's executor has
 * terminated, `done` is not called and `arg` stays the caller's: to free it then, embed a listener
 * with `dropped`. -ENOMEM. */
WEIR_API int weir_future_on_done(weir_future *future, weir_done_fn done, void *arg);

WEIR_END_DECLS

#endif
