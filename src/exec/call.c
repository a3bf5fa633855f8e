/* SPDX-License-Identifier: MIT */
/* Functions as tasks: executed, submitted with a future, or scheduled for later. */
#include "base/alloc.h"
#include "base/list.h"
#include "exec/future.h"

#include <weir/executor.h>
#include <weir/timer.h>

#include <errno.h>

/* Executed ----------------------------------------------------------------------------------- */

typedef struct call_task {
    weir_task task;
    weir_call_fn fn;
    void *arg;
    weir_promise *promise; /* NULL: nobody wants to know */
} call_task;

/* Calls the function unless its future was cancelled. */
static int call(weir_call_fn fn, void *arg, weir_promise *promise)
{
    if (promise == NULL)
        return fn(arg);
    if (!weir_promise_set_uncancellable(promise))
        return 0;
    int code = fn(arg);
    weir_promise_set(promise, code < 0 ? code : 0);
    return 0; /* told to whoever has the future */
}

static int run_call(weir_task *task)
{
    call_task *self = WEIR_CONTAINER(task, call_task, task);
    call_task copy = *self;
    weir__free(self);
    int code = call(copy.fn, copy.arg, copy.promise);
    weir_promise_release(copy.promise);
    return code;
}

static void drop_call(weir_task *task)
{
    call_task *self = WEIR_CONTAINER(task, call_task, task);
    if (self->promise != NULL)
        weir_future_cancel(weir_promise_future(self->promise));
    weir_promise_release(self->promise);
    weir__free(self);
}

static int post_call(weir_executor *executor, weir_call_fn fn, void *arg, weir_promise *promise)
{
    call_task *self = weir__alloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    self->task = (weir_task){ .run = run_call, .dropped = drop_call, .name = "call" };
    self->fn = fn;
    self->arg = arg;
    self->promise = weir_promise_retain(promise);
    int code = weir_executor_post(executor, &self->task);
    if (code < 0) {
        weir_promise_release(promise);
        weir__free(self);
    }
    return code;
}

int weir_executor_execute(weir_executor *executor, weir_call_fn fn, void *arg)
{
    if (executor == NULL || fn == NULL)
        return -EINVAL;
    return post_call(executor, fn, arg, NULL);
}

/* A promise that was never handed out is not one that was forgotten. */
static void discard(weir_promise *promise)
{
    weir_promise_fail(promise, -ECANCELED);
    weir_promise_release(promise);
}

/* A reference to the future, for the one to the promise. */
static weir_future *reader_of(weir_promise *promise)
{
    weir_future *future = weir_future_retain(weir_promise_future(promise));
    weir_promise_release(promise);
    return future;
}

int weir_executor_submit(weir_executor *executor, weir_call_fn fn, void *arg, weir_future **future)
{
    if (executor == NULL || fn == NULL || future == NULL)
        return -EINVAL;
    weir_promise *promise = weir_promise_new(executor);
    if (promise == NULL)
        return -ENOMEM;
    int code = post_call(executor, fn, arg, promise);
    if (code < 0)
        discard(promise);
    else
        *future = reader_of(promise);
    return code;
}

/* Scheduled ---------------------------------------------------------------------------------- */

typedef struct call_timer {
    weir_timer timer;
    weir_listener cancelled; /* the future was; or is complete */
    weir_call_fn fn;
    void *arg;
    weir_promise *promise;
    _Atomic(int) left; /* of timer and listener */
} call_timer;

static void end_part(call_timer *self)
{
    if (atomic_fetch_sub_explicit(&self->left, 1, memory_order_acq_rel) != 1)
        return;
    weir_promise_release(self->promise);
    weir__free(self);
}

static int fire_call(weir_timer *timer)
{
    call_timer *self = WEIR_CONTAINER(timer, call_timer, timer);
    int code = call(self->fn, self->arg, self->promise);
    end_part(self);
    return code;
}

static void cancel_call(weir_timer *timer)
{
    call_timer *self = WEIR_CONTAINER(timer, call_timer, timer);
    weir_future_cancel(weir_promise_future(self->promise));
    end_part(self);
}

static void future_done(weir_listener *listener, weir_future *future)
{
    call_timer *self = WEIR_CONTAINER(listener, call_timer, cancelled);
    /* Harmless when the timer itself has ended: it then is not scheduled. */
    if (weir_future_code(future) == -ECANCELED)
        weir_timer_cancel(&self->timer);
    end_part(self);
}

int weir_executor_schedule(weir_executor *executor, weir_call_fn fn, void *arg, int64_t delay_ns,
                           weir_future **future)
{
    if (executor == NULL || fn == NULL)
        return -EINVAL;
    call_timer *self = weir__zalloc(sizeof *self);
    weir_promise *promise = self != NULL ? weir_promise_new(executor) : NULL;
    if (promise == NULL) {
        weir__free(self);
        return -ENOMEM;
    }
    self->timer = (weir_timer){ .fire = fire_call, .cancelled = cancel_call, .name = "call" };
    self->cancelled = (weir_listener){ .done = future_done, .dropped = future_done };
    self->fn = fn;
    self->arg = arg;
    self->promise = weir_promise_retain(promise);
    atomic_init(&self->left, 2);
    int code = weir_timer_schedule(&self->timer, executor, delay_ns);
    if (code < 0) {
        weir_promise_release(self->promise);
        weir__free(self);
        discard(promise);
        return code;
    }
    weir_future_listen(weir_promise_future(promise), &self->cancelled);
    weir_future *reader = reader_of(promise);
    if (future != NULL)
        *future = reader;
    else
        weir_future_release(reader);
    return 0;
}
