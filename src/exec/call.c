/* SPDX-License-Identifier: MIT */
/* Functions as tasks: executed, submitted with a future, or scheduled for later. */
#include "base/alloc.h"
#include "base/list.h"
#include "exec/operation.h"

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

int weir_executor_submit_to(weir_executor *executor, weir_call_fn fn, void *arg,
                            weir_promise *promise)
{
    if (executor == NULL || fn == NULL || promise == NULL)
        return -EINVAL;
    return post_call(executor, fn, arg, promise);
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
    weir_operation operation;
    weir_timer timer;
    weir_call_fn fn;
    void *arg;
} call_timer;

static void end_timer(weir_timer *timer, int code)
{
    weir__operation_end(&WEIR_CONTAINER(timer, call_timer, timer)->operation, code);
}

static int fire_call(weir_timer *timer)
{
    const call_timer *self = WEIR_CONTAINER(timer, call_timer, timer);
    int code = 0;
    if (weir_promise_set_uncancellable(self->operation.promise))
        code = self->fn(self->arg);
    end_timer(timer, code < 0 ? code : 0);
    return 0;
}

static void timer_cancelled(weir_timer *timer)
{
    end_timer(timer, -ECANCELED);
}

/* Harmless if the timer ends in this moment: then it is not scheduled. */
static void cancel_timer(weir_operation *operation)
{
    weir_timer_cancel(&WEIR_CONTAINER(operation, call_timer, operation)->timer);
}

static void destroy_timer(weir_operation *operation)
{
    weir__free(WEIR_CONTAINER(operation, call_timer, operation));
}

static const weir_operation_type timer_type = { .cancelled = cancel_timer,
                                                .destroy = destroy_timer };

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
    self->timer = (weir_timer){ .fire = fire_call, .cancelled = timer_cancelled, .name = "call" };
    self->fn = fn;
    self->arg = arg;
    weir__operation_init(&self->operation, &timer_type, promise, NULL);
    int code = weir_timer_schedule(&self->timer, executor, delay_ns);
    if (code < 0)
        weir__operation_end(&self->operation, -ECANCELED);
    weir__operation_watch(&self->operation);
    weir_future *reader = reader_of(promise);
    if (code == 0 && future != NULL)
        *future = reader;
    else
        weir_future_release(reader);
    return code;
}
