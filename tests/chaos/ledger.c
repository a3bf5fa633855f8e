/* SPDX-License-Identifier: MIT */
/* The ledger of promises. */
#include "ledger.h"

#include "tenure.h"
#include "verdict.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct entry entry;
struct entry {
    weir_listener listener;
    const char *what;
    weir_channel *channel;   /* the promise keeps its memory */
    weir_executor *executor; /* to compare with */
    ledger_fn fn;
    void *arg;
    uint32_t number;
    atomic_uint completions;
    entry *next;
};

enum { OFFERS = 32 };

static _Atomic(entry *) entries;
static _Atomic(weir_future *) offers[OFFERS];

static void complete(weir_listener *listener, weir_future *future)
{
    entry *self = WEIR_CONTAINER(listener, entry, listener);
    unsigned before = atomic_fetch_add_explicit(&self->completions, 1, memory_order_relaxed);
    MUST(before == 0, "the promise of a %s completed %u times", self->what, before + 1);
    MUST(weir_future_is_done(future), "the promise of a %s has a listener called early",
         self->what);
    if (self->fn != NULL)
        self->fn(self->arg, self->number, future);
}

static void on_done(weir_listener *listener, weir_future *future)
{
    entry *self = WEIR_CONTAINER(listener, entry, listener);
    if (self->executor != NULL)
        MUST(weir_executor_is_current(self->executor),
             "the promise of a %s is notified on another thread than its executor's", self->what);
    if (self->channel != NULL && channel_has_thread(self->channel))
        MUST(weir_loop_current() == weir_channel_loop(self->channel),
             "the promise of a %s is notified on another thread than the loop's", self->what);
    complete(listener, future);
}

weir_promise *ledger_promise(const char *what, weir_channel *channel, weir_executor *executor,
                             ledger_fn fn, void *arg, uint32_t number)
{
    weir_promise *promise = channel != NULL ? weir_channel_promise(channel)
                                            : weir_promise_new(executor);
    entry *self = promise != NULL ? calloc(1, sizeof *self) : NULL;
    if (self == NULL)
        return NULL;
    *self = (entry){ .what = what, .fn = fn, .arg = arg, .number = number };
    self->channel = channel;
    self->executor = channel != NULL ? NULL : executor;
    self->listener.done = on_done;
    self->listener.dropped = complete;
    /* No lock, and no more order than the list needs, as in verdict.c. */
    self->next = atomic_load_explicit(&entries, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&entries, &self->next, self, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
    weir_future_listen(weir_promise_future(promise), &self->listener);
    return promise;
}

void ledger_offer(weir_promise *promise, dice *d)
{
    weir_future *future = weir_future_retain(weir_promise_future(promise));
    weir_future *old = atomic_exchange(&offers[dice_below(d, OFFERS)], future);
    if (old != NULL)
        weir_future_release(old);
}

void ledger_cancel_any(dice *d)
{
    weir_future *future = atomic_exchange(&offers[dice_below(d, OFFERS)], NULL);
    if (future == NULL)
        return;
    int code = weir_future_cancel(future);
    verdict_trace("cancel: %s", weir_error_name(code));
    weir_future_release(future);
}

void ledger_check(void)
{
    for (entry *at = entries; at != NULL; at = at->next)
        MUST(at->completions == 1, "the promise of a %s completed %u times", at->what,
             at->completions);
}

void ledger_clear(void)
{
    for (size_t i = 0; i < OFFERS; i++) {
        weir_future *old = atomic_exchange(&offers[i], NULL);
        if (old != NULL)
            weir_future_release(old);
    }
    while (entries != NULL) {
        entry *first = entries;
        entries = first->next;
        free(first);
    }
}
