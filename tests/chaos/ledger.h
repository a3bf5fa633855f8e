/* SPDX-License-Identifier: MIT */
/* The ledger of promises: each that is given to weir must complete, once, on the right thread. */
#ifndef CHAOS_LEDGER_H
#define CHAOS_LEDGER_H

#include "dice.h"

#include <weir/channel.h>
#include <weir/future.h>

/* Called when the promise is complete, or its executor has ended: on any thread. */
typedef void (*ledger_fn)(void *arg, uint32_t number, weir_future *future);

/* A promise with one reference, the caller's: bound to the channel, or else to the executor, or to
 * none. `what` names it in reports, `fn` may be NULL. NULL without memory. */
weir_promise *ledger_promise(const char *what, weir_channel *channel, weir_executor *executor,
                             ledger_fn fn, void *arg, uint32_t number);

/* Keeps the future of a promise to be cancelled some time; and cancels one. */
void ledger_offer(weir_promise *promise, dice *d);
void ledger_cancel_any(dice *d);

/* When all threads have ended: fails the seed unless each promise completed once. */
void ledger_check(void);

/* Forgets all promises. */
void ledger_clear(void);

#endif
