/* SPDX-License-Identifier: MIT */
/* The listeners of a future: each is notified once, in order, on the thread it was promised. */
#include "base/alloc.h"
#include "exec/executor.h"
#include "exec/future.h"

#include <errno.h>

/*
 * The list of listeners is a stack that any thread pushes to. The end of the stack is its state:
 * NULL while the result is pending; BUSY while a thread notifies the listeners, which also takes
 * those that are pushed meanwhile; CLOSED when all have been notified, and the next to push begins
 * again. So at most one thread notifies, and listeners are called in the order they were added.
 */
static weir_listener busy, closed;
#define BUSY (&busy)
#define CLOSED (&closed)

/* Whether listeners are called, or dropped because their executor has terminated. */
typedef void (*notify_fn)(weir_listener *listener, weir_future *future);

static void call_done(weir_listener *listener, weir_future *future)
{
    listener->done(listener, future);
}

static void call_dropped(weir_listener *listener, weir_future *future)
{
    if (listener->dropped != NULL)
        listener->dropped(listener, future);
}

/* Takes a batch, which has the newest in front, from the oldest on. */
static void notify_batch(weir_future *future, weir_listener *newest, notify_fn notify)
{
    weir_listener *oldest = NULL;
    while (newest != NULL && newest != BUSY) {
        weir_listener *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        weir_listener *next = oldest->next; /* the listener is its owner's again in the call */
        oldest->next = NULL;
        notify(oldest, future);
        oldest = next;
    }
}

static void notify_all(weir_future *future, notify_fn notify)
{
    weir_listener *batch = future->batch;
    for (;;) {
        notify_batch(future, batch, notify);
        weir_listener *end = BUSY;
        if (atomic_compare_exchange_strong_explicit(&future->listeners, &end, CLOSED,
                                                    memory_order_acq_rel, memory_order_relaxed))
            return;
        batch = atomic_exchange_explicit(&future->listeners, BUSY, memory_order_acq_rel);
    }
}

static bool is_here(const weir_future *future)
{
    if (future->home != NULL && future->home->type->is_here != NULL)
        return future->home->type->is_here(future->home);
    return future->executor == NULL || weir_executor_is_current(future->executor);
}

/* What keeps it alive while its listeners run: itself, or the object it is a part of. */
static bool is_part_of_home(const weir_future *future)
{
    return future->home != NULL &&
           atomic_load_explicit(&future->refs, memory_order_relaxed) >= WEIR__FUTURE_IMMORTAL;
}

static void hold(weir_future *future)
{
    if (is_part_of_home(future))
        future->home->type->retain(future->home);
    else
        weir_future_retain(future);
}

static void end_hold(weir_future *future)
{
    if (is_part_of_home(future))
        future->home->type->release(future->home);
    else
        weir_future_release(future);
}

static void go_and_notify(weir_future *future);

/* The executor has terminated, so `done` must not run. */
static void drop_all(weir_notice *notice)
{
    weir_future *future = WEIR_CONTAINER(notice, weir_future, notice);
    notify_all(future, call_dropped);
    end_hold(future);
}

static void notify_if_here(weir_notice *notice)
{
    weir_future *future = WEIR_CONTAINER(notice, weir_future, notice);
    if (future->home != NULL && !is_here(future)) {
        go_and_notify(future); /* its home has moved since */
        return;
    }
    notify_all(future, call_done);
    end_hold(future);
}

static void queue_notice(weir_future *future, void (*run)(weir_notice *notice))
{
    future->notice.run = run;
    weir__notice_queue(&future->notice);
}

/* On the home's thread; or on one that stands in for it, because the home's executor has
 * terminated: that must be done when this returns. */
static void run_at_home(weir_home *home, weir_call *call)
{
    weir_future *future = WEIR_CONTAINER(call, weir_future, call);
    if (home->type->is_here(home)) {
        queue_notice(future, notify_if_here);
        return;
    }
    notify_all(future, call_dropped);
    end_hold(future);
}

/* A constant future has no list of its own. */
static void run_late(weir_notice *notice)
{
    weir_listener *listener = WEIR_CONTAINER(notice, weir_listener, notice);
    listener->done(listener, listener->future);
}

static void tell_late(weir_future *future, weir_listener *listener)
{
    listener->future = future;
    listener->notice.run = run_late;
    weir__notice_queue(&listener->notice);
}

static int run_notify(weir_task *task)
{
    queue_notice(WEIR_CONTAINER(task, weir_future, task), notify_if_here);
    return 0;
}

static void drop_notify(weir_task *task)
{
    queue_notice(WEIR_CONTAINER(task, weir_future, task), drop_all);
}

static void go_and_notify(weir_future *future)
{
    if (is_here(future)) {
        queue_notice(future, notify_if_here);
        return;
    }
    if (future->home != NULL) {
        future->call.run = run_at_home;
        future->home->type->push(future->home, &future->call);
        return;
    }
    future->task = (weir_task){ .run = run_notify, .dropped = drop_notify, .name = "listeners" };
    if (weir__executor_post_always(future->executor, &future->task) < 0)
        queue_notice(future, drop_all);
}

/* This thread has won the right to notify `batch`. */
static void notify(weir_future *future, weir_listener *batch)
{
    future->batch = batch;
    hold(future);
    go_and_notify(future);
}

void weir__listeners_notify(weir_future *future)
{
    weir_listener *batch = atomic_exchange_explicit(&future->listeners, BUSY, memory_order_acq_rel);
    if (batch != NULL) {
        notify(future, batch);
        return;
    }
    /* There was no listener; one may have been added in between. */
    weir_listener *end = BUSY;
    if (!atomic_compare_exchange_strong_explicit(&future->listeners, &end, CLOSED,
                                                 memory_order_acq_rel, memory_order_relaxed))
        notify(future, atomic_exchange_explicit(&future->listeners, BUSY, memory_order_acq_rel));
}

void weir_future_listen(weir_future *future, weir_listener *listener)
{
    if (future == NULL || listener == NULL)
        return;
    if (weir__future_is_constant(future)) {
        tell_late(future, listener);
        return;
    }
    weir_listener *head = atomic_load_explicit(&future->listeners, memory_order_acquire);
    do {
        listener->next = head == CLOSED ? BUSY : head;
    } while (!atomic_compare_exchange_weak_explicit(&future->listeners, &head, listener,
                                                    memory_order_acq_rel, memory_order_acquire));
    /* All listeners before have been notified: this thread notifies the next batch. */
    if (head == CLOSED)
        notify(future, atomic_exchange_explicit(&future->listeners, BUSY, memory_order_acq_rel));
}

typedef struct call_listener {
    weir_listener listener;
    weir_done_fn done;
    void *arg;
} call_listener;

static void run_done_fn(weir_listener *listener, weir_future *future)
{
    call_listener *self = WEIR_CONTAINER(listener, call_listener, listener);
    weir_done_fn done = self->done;
    void *arg = self->arg;
    weir__free(self);
    done(arg, future);
}

static void drop_done_fn(weir_listener *listener, weir_future *future)
{
    (void)future;
    weir__free(WEIR_CONTAINER(listener, call_listener, listener));
}

int weir_future_on_done(weir_future *future, weir_done_fn done, void *arg)
{
    if (future == NULL || done == NULL)
        return -EINVAL;
    call_listener *self = weir__alloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    *self = (call_listener){ { .done = run_done_fn, .dropped = drop_done_fn }, done, arg };
    weir_future_listen(future, &self->listener);
    return 0;
}
