/* SPDX-License-Identifier: MIT */
/* Operations: the way of a cancellation to the executor, and the memory until all have seen it. */
#include "exec/operation.h"

#include "base/assert.h"
#include "exec/executor.h"

/* References --------------------------------------------------------------------------------- */

void weir__operation_retain(weir_operation *operation)
{
    atomic_fetch_add_explicit(&operation->refs, 1, memory_order_relaxed);
}

void weir__operation_release(weir_operation *operation)
{
    if (atomic_fetch_sub_explicit(&operation->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_executor *executor = operation->executor;
    weir_home *home = operation->home;
    weir_promise_release(operation->promise);
    if (operation->type->destroy != NULL)
        operation->type->destroy(operation);
    if (executor != NULL)
        weir__executor_release(executor);
    if (home != NULL)
        home->type->release(home);
}

/* Cancelling --------------------------------------------------------------------------------- */

static bool is_here(const weir_operation *operation)
{
    if (operation->home != NULL)
        return operation->home->type->is_here(operation->home);
    return operation->executor == NULL || weir_executor_is_current(operation->executor);
}

static void cancel_here(weir_operation *operation)
{
    if (!weir__operation_has_ended(operation))
        operation->type->cancelled(operation);
    weir__operation_release(operation);
}

static int run_cancel(weir_task *task)
{
    cancel_here(WEIR_CONTAINER(task, weir_operation, task));
    return 0;
}

static void drop_cancel(weir_task *task)
{
    weir__operation_release(WEIR_CONTAINER(task, weir_operation, task));
}

/* On another thread than the home's if its executor has terminated. */
static void cancel_at_home(weir_home *home, weir_call *call)
{
    weir_operation *operation = WEIR_CONTAINER(call, weir_operation, call);
    if (home->type->is_here(home))
        cancel_here(operation);
    else
        weir__operation_release(operation);
}

static void cancel_there(weir_operation *operation)
{
    if (operation->home != NULL) {
        operation->call.run = cancel_at_home;
        operation->home->type->push(operation->home, &operation->call);
        return;
    }
    operation->task = (weir_task){ .run = run_cancel, .dropped = drop_cancel, .name = "cancel" };
    if (weir__executor_post_always(operation->executor, &operation->task) < 0)
        weir__operation_release(operation);
}

/* By the end of the work, or because it was cancelled. On any thread: where the promise is bound.
 */
static void on_promise(weir_listener *listener, weir_future *future)
{
    weir_operation *operation = WEIR_CONTAINER(listener, weir_operation, on_promise);
    (void)future;
    if (weir__operation_has_ended(operation) || is_here(operation))
        cancel_here(operation);
    else
        cancel_there(operation);
}

static void init(weir_operation *operation, const weir_operation_type *type, weir_promise *promise)
{
    *operation = (weir_operation){ .type = type, .promise = weir_promise_retain(promise) };
    operation->on_promise = (weir_listener){ .done = on_promise, .dropped = on_promise };
    atomic_init(&operation->refs, promise != NULL ? 2 : 1);
    atomic_init(&operation->has_ended, false);
}

void weir__operation_init(weir_operation *operation, const weir_operation_type *type,
                          weir_promise *promise, weir_executor *executor)
{
    init(operation, type, promise);
    operation->executor = executor;
    if (executor != NULL)
        weir__executor_retain(executor);
}

void weir__operation_init_at(weir_operation *operation, const weir_operation_type *type,
                             weir_promise *promise, weir_home *home)
{
    init(operation, type, promise);
    operation->home = home;
    home->type->retain(home);
}

void weir__operation_watch(weir_operation *operation)
{
    if (operation->promise != NULL)
        weir_future_listen(weir_promise_future(operation->promise), &operation->on_promise);
}

/* Ending ------------------------------------------------------------------------------------- */

/* First, so that the completion of the promise is not taken for a cancellation. */
static void set_ended(weir_operation *operation)
{
    WEIR_ASSERT(!weir__operation_has_ended(operation));
    atomic_store_explicit(&operation->has_ended, true, memory_order_release);
}

/* Without a promise nothing refuses the result. */
static int release_with(weir_operation *operation, int result)
{
    result = operation->promise != NULL ? result : 0;
    weir__operation_release(operation);
    return result;
}

int weir__operation_end(weir_operation *operation, int code)
{
    set_ended(operation);
    return release_with(operation, weir_promise_set(operation->promise, code));
}

int weir__operation_succeed(weir_operation *operation, void *value, weir_value_free_fn free_fn)
{
    set_ended(operation);
    if (operation->promise == NULL && free_fn != NULL)
        free_fn(value);
    return release_with(operation, weir_promise_succeed(operation->promise, value, free_fn));
}

int weir__operation_fail(weir_operation *operation, const weir_error *error)
{
    set_ended(operation);
    return release_with(operation, weir_promise_fail_with(operation->promise, error));
}

/* Waiting ------------------------------------------------------------------------------------ */

static void on_awaited(weir_listener *listener, weir_future *future)
{
    weir_awaited *self = WEIR_CONTAINER(listener, weir_awaited, listener);
    weir_operation *operation = self->operation;
    self->done(self, future);
    weir__operation_release(operation);
}

static void drop_awaited(weir_listener *listener, weir_future *future)
{
    (void)future;
    weir__operation_release(WEIR_CONTAINER(listener, weir_awaited, listener)->operation);
}

void weir__operation_await(weir_operation *operation, weir_awaited *awaited, weir_future *future,
                           weir_awaited_fn done)
{
    weir__operation_retain(operation);
    *awaited = (weir_awaited){ .operation = operation, .done = done };
    awaited->listener = (weir_listener){ .done = on_awaited, .dropped = drop_awaited };
    weir_future_listen(future, &awaited->listener);
}
