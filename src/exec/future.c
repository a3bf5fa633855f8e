/* SPDX-License-Identifier: MIT */
/* Promises and futures: one result, set once. */
#include "exec/future.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "exec/executor.h"
#include "exec/manual.h"

#include <weir/log.h>

#include <errno.h>
#include <pthread.h>

enum {
    PENDING,
    UNCANCELLABLE, /* pending, but only its promise's holder may complete it */
    SETTING,       /* somebody has won and writes the result */
    DONE,
    STATE = 3,
    WAITED = 4, /* beside the state: some thread waits */
};

static uint32_t state_of(const weir_future *future)
{
    return atomic_load_explicit(&future->state, memory_order_acquire) & STATE;
}

/* The result --------------------------------------------------------------------------------- */

static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_done = PTHREAD_COND_INITIALIZER;

/* Wins the right to set the result, from any of the states in `from_uncancellable`'s reach. */
static int begin(weir_future *future, bool may_be_uncancellable)
{
    uint32_t state = atomic_load_explicit(&future->state, memory_order_relaxed);
    do {
        if ((state & STATE) == UNCANCELLABLE && !may_be_uncancellable)
            return -EBUSY;
        if ((state & STATE) >= SETTING)
            return -EALREADY;
    } while (!atomic_compare_exchange_weak_explicit(&future->state, &state,
                                                    (state & WAITED) | SETTING,
                                                    memory_order_relaxed, memory_order_relaxed));
    return 0;
}

static void set_done(weir_future *future)
{
    uint32_t before = atomic_exchange_explicit(&future->state, DONE, memory_order_acq_rel);
    if (before & WAITED) {
        pthread_mutex_lock(&wait_lock);
        pthread_cond_broadcast(&wait_done);
        pthread_mutex_unlock(&wait_lock);
        weir__manual_wake_waiting();
    }
}

/* A thread that sees the result may write to the stream at once. From another thread that is
 * carried to the stream, so the rejection is sent there first. On the stream's own thread it calls
 * handlers, which must find the promise complete; no call of another thread gets between. */
static __attribute__((noinline)) void set_done_guarded(weir_future *future)
{
    weir_home *stream = future->stream;
    bool is_rejected = future->code < 0, is_here = stream->type->is_here(stream);
    int code = future->code;
    future->stream = NULL;
    if (is_rejected && !is_here)
        stream->type->piece_rejected(stream, code);
    set_done(future);
    if (is_rejected && is_here)
        stream->type->piece_rejected(stream, code);
    stream->type->release(stream);
}

static void finish(weir_future *future, int code, void *value, weir_value_free_fn free_fn)
{
    future->code = code;
    future->value = value;
    future->free_value = free_fn;
    if (__builtin_expect(future->stream != NULL, 0))
        set_done_guarded(future);
    else
        set_done(future);
    weir__listeners_notify(future);
}

static int complete(weir_future *future, int code, void *value, weir_value_free_fn free_fn)
{
    int won = begin(future, true);
    if (won == 0)
        finish(future, code, value, free_fn);
    return won;
}

/* Not inlined: a test has the linker call another function in its place. */
__attribute__((noinline)) int weir_promise_succeed(weir_promise *promise, void *value,
                                                   weir_value_free_fn free_fn)
{
    return promise != NULL ? complete(&promise->future, 0, value, free_fn) : -EINVAL;
}

int weir_promise_set(weir_promise *promise, int code)
{
    if (promise == NULL || code > 0)
        return -EINVAL;
    return complete(&promise->future, code, NULL, NULL);
}

int weir_promise_fail(weir_promise *promise, int code)
{
    return code < 0 ? weir_promise_set(promise, code) : -EINVAL;
}

int weir_promise_fail_with(weir_promise *promise, const weir_error *error)
{
    if (promise == NULL || error == NULL || error->code >= 0)
        return -EINVAL;
    weir_error *copy = weir__alloc(sizeof *copy);
    if (copy != NULL)
        *copy = *error;
    int code = complete(&promise->future, error->code, copy, weir__free);
    if (code < 0)
        weir__free(copy);
    return code;
}

int weir__future_copy(weir_future *to, weir_future *from)
{
    int won = begin(to, true);
    if (won == 0) {
        to->source = weir_future_retain(from);
        finish(to, from->code, from->value, NULL);
    }
    return won;
}

int weir__future_complete(weir_future *future, int code)
{
    return complete(future, code, NULL, NULL);
}

bool weir_promise_set_uncancellable(weir_promise *promise)
{
    if (promise == NULL)
        return false;
    weir_future *future = &promise->future;
    uint32_t state = atomic_load_explicit(&future->state, memory_order_acquire);
    for (;;) {
        switch (state & STATE) {
        case PENDING:
            if (atomic_compare_exchange_weak_explicit(&future->state, &state,
                                                      (state & WAITED) | UNCANCELLABLE,
                                                      memory_order_acquire, memory_order_acquire))
                return true;
            break;
        case UNCANCELLABLE:
            return true;
        case DONE:
            return future->code != -ECANCELED;
        default: /* SETTING lasts for a few instructions of another thread */
            state = atomic_load_explicit(&future->state, memory_order_acquire);
        }
    }
}

int weir_future_cancel(weir_future *future)
{
    if (future == NULL)
        return -EINVAL;
    int won = begin(future, false);
    if (won == 0)
        finish(future, -ECANCELED, NULL, NULL);
    return won;
}

bool weir_future_is_done(const weir_future *future)
{
    return future != NULL && state_of(future) == DONE;
}

int weir_future_code(const weir_future *future)
{
    if (future == NULL)
        return -EINVAL;
    return state_of(future) == DONE ? future->code : -EINPROGRESS;
}

void *weir_future_value(const weir_future *future)
{
    return weir_future_is_done(future) && future->code == 0 ? future->value : NULL;
}

const weir_error *weir_future_error(const weir_future *future)
{
    return weir_future_is_done(future) && future->code < 0 ? future->value : NULL;
}

/* Waiting ------------------------------------------------------------------------------------ */

bool weir__future_is_others_work(const weir_future *future)
{
    if (future->home != NULL && future->home->type->is_manual != NULL)
        return !future->home->type->is_manual(future->home);
    return future->executor != NULL && !future->executor->is_manual;
}

static bool may_wait_for(const weir_future *future)
{
    weir_executor *current = weir_executor_current();
    if (current == NULL)
        return true;
    return current != future->executor && !weir__executor_is_loop(current) &&
           !weir__executor_ends_with(current, future);
}

/* The blocking wait, under a name that a stack trace shows. */
static int wait_for_result(weir_future *future, const struct timespec *until)
{
    int error = 0;
    pthread_mutex_lock(&wait_lock);
    uint32_t state = atomic_fetch_or_explicit(&future->state, WAITED, memory_order_acq_rel);
    while ((state & STATE) != DONE && error == 0) {
        error = pthread_cond_clockwait(&wait_done, &wait_lock, CLOCK_MONOTONIC, until);
        state = atomic_load_explicit(&future->state, memory_order_acquire);
    }
    pthread_mutex_unlock(&wait_lock);
    return (state & STATE) == DONE ? 0 : -error;
}

/* What is done meanwhile tells its listeners, though this thread may be telling some right now. */
static int wait_by_stepping(weir_future *future, int64_t timeout_ns)
{
    atomic_fetch_or_explicit(&future->state, WAITED, memory_order_acq_rel);
    weir_notices outer = weir__notices_enter();
    int code = weir__manual_wait(future, timeout_ns);
    weir__notices_leave(outer);
    return code;
}

/* `timeout_ns` negative: for ever. */
static int wait_for(weir_future *future, int64_t timeout_ns)
{
    if (future == NULL)
        return -EINVAL;
    if (weir_future_is_done(future))
        return 0;
    if (!may_wait_for(future))
        return -EDEADLK;
    weir__notices_run(); /* the result may depend on them */
    if (weir_future_is_done(future))
        return 0;
    return weir__manual_is_driver() ? wait_by_stepping(future, timeout_ns)
                                    : weir__future_wait_here(future, timeout_ns);
}

int weir__future_wait_here(weir_future *future, int64_t timeout_ns)
{
    struct timespec until = weir__clock_until(timeout_ns);
    return wait_for_result(future, &until);
}

int weir_future_wait(weir_future *future, int64_t timeout_ns)
{
    return wait_for(future, timeout_ns > 0 ? timeout_ns : 0);
}

int weir_future_await(weir_future *future)
{
    int code = wait_for(future, -1);
    return code == 0 ? weir_future_code(future) : code;
}

/* Counting ----------------------------------------------------------------------------------- */

static void init(weir_future *future, weir_executor *executor, uint32_t refs)
{
    *future = (weir_future){ .executor = executor };
    atomic_init(&future->refs, refs);
}

void weir__future_init(weir_future *future, weir_home *object)
{
    init(future, NULL, WEIR__FUTURE_IMMORTAL);
    future->home = object;
    atomic_init(&future->state, UNCANCELLABLE); /* it tells what has happened to its object */
}

weir_promise *weir_promise_new(weir_executor *executor)
{
    weir_promise *promise = weir__alloc(sizeof *promise);
    if (promise != NULL) {
        if (executor != NULL)
            weir__executor_retain(executor);
        init(&promise->future, executor, 1);
        atomic_init(&promise->writers, 1);
        atomic_init(&promise->is_listed, false);
    }
    return promise;
}

void weir__promises_add(weir_promise_list *list, weir_promise *promise)
{
    if (promise == NULL ||
        atomic_exchange_explicit(&promise->is_listed, true, memory_order_acq_rel))
        return;
    weir_promise **last = &list->first; /* there are hardly ever more than one */
    while (*last != NULL)
        last = &(*last)->next;
    promise->next = NULL;
    *last = weir_promise_retain(promise);
}

void weir__promises_complete(weir_promise_list *list, int code)
{
    while (list->first != NULL) {
        weir_promise *promise = list->first;
        list->first = promise->next;
        atomic_store_explicit(&promise->is_listed, false, memory_order_release);
        weir_promise_set(promise, code);
        weir_promise_release(promise);
    }
}

weir_promise *weir__promise_new_at(weir_home *home)
{
    weir_promise *promise = weir_promise_new(NULL);
    if (promise != NULL)
        promise->future.home = home;
    return promise;
}

void weir__promise_guard(weir_promise *promise, weir_home *stream)
{
    if (promise->future.stream != NULL)
        return;
    stream->type->retain(stream);
    promise->future.stream = stream;
}

weir_future *weir_promise_future(weir_promise *promise)
{
    return promise != NULL ? &promise->future : NULL;
}

weir_future *weir_future_retain(weir_future *future)
{
    if (future != NULL &&
        atomic_load_explicit(&future->refs, memory_order_relaxed) < WEIR__FUTURE_IMMORTAL)
        atomic_fetch_add_explicit(&future->refs, 1, memory_order_relaxed);
    return future;
}

weir_promise *weir_promise_retain(weir_promise *promise)
{
    if (promise != NULL) {
        atomic_fetch_add_explicit(&promise->writers, 1, memory_order_relaxed);
        weir_future_retain(&promise->future);
    }
    return promise;
}

void weir_future_release(weir_future *future)
{
    /* A loop: a future may hold the last reference to the one its value came from, and so on. */
    while (future != NULL &&
           atomic_load_explicit(&future->refs, memory_order_relaxed) < WEIR__FUTURE_IMMORTAL &&
           atomic_fetch_sub_explicit(&future->refs, 1, memory_order_acq_rel) == 1) {
        weir_future *source = future->source;
        if (future->home != NULL)
            future->home->type->release(future->home);
        if (future->executor != NULL)
            weir__executor_release(future->executor);
        if (future->free_value != NULL)
            future->free_value(future->value);
        weir__free(future);
        future = source;
    }
}

void weir_promise_release(weir_promise *promise)
{
    if (promise == NULL)
        return;
    /* The last who could complete it goes: who waits is told that nobody will. */
    if (atomic_fetch_sub_explicit(&promise->writers, 1, memory_order_acq_rel) == 1 &&
        begin(&promise->future, true) == 0) {
#ifdef WEIR_DEBUG
        weir_log(WEIR_LOG_ERROR, "promise", "%p was dropped without a result", (void *)promise);
#endif
        finish(&promise->future, -ECANCELED, NULL, NULL);
    }
    weir_future_release(&promise->future);
}

/* A listener that is allocated. */
/* Constants ---------------------------------------------------------------------------------- */

/* The futures that are always complete: success, and each code there is. */
#define ERRNO_COUNT 134
#define OWN_COUNT 64
static weir_future constants[ERRNO_COUNT + OWN_COUNT];

bool weir__future_is_constant(const weir_future *future)
{
    return future >= constants && future < constants + ERRNO_COUNT + OWN_COUNT;
}

static void init_constant(weir_future *future, int code)
{
    init(future, NULL, WEIR__FUTURE_IMMORTAL);
    future->code = code;
    atomic_init(&future->state, DONE);
}

static void init_constants(void)
{
    for (int i = 0; i < ERRNO_COUNT; i++)
        init_constant(&constants[i], -i);
    for (int i = 0; i < OWN_COUNT; i++)
        init_constant(&constants[ERRNO_COUNT + i], WEIR_EOF - i);
}

weir_future *weir_future_completed(int code)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_constants);
    if (code <= 0 && code > -ERRNO_COUNT)
        return &constants[-code];
    if (code <= WEIR_EOF && code > WEIR_EOF - OWN_COUNT)
        return &constants[ERRNO_COUNT + (WEIR_EOF - code)];
    return &constants[EINVAL];
}
