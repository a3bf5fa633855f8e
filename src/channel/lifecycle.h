/* SPDX-License-Identifier: MIT */
/* The life of a channel: its states, and which event leads from which to which. */
#ifndef WEIR_CHANNEL_LIFECYCLE_H
#define WEIR_CHANNEL_LIFECYCLE_H

#include <weir/channel.h>

#include <stdatomic.h>

/*
 *     DETACHED --attach--> ATTACHING --arrive--> ATTACHED --detach--> DETACHING
 *      ^   |                   |                     |                  |  |
 *      '---|-------------------|---------------------|----- leave ------'  |
 *          '-------------------'--------- close -----'---------------------'
 *                                           v
 *                                        CLOSING --stop--> CLOSED --end--> ENDED
 *
 * The table in lifecycle.c has every pair. attach.c and close.c have the work of each
 * state; weir__channel_advance takes the steps that need no event.
 */
typedef enum weir_life_state {
    WEIR_LIFE_DETACHED,  /* on no loop: the first state, and between two loops */
    WEIR_LIFE_ATTACHING, /* on its way to a loop, with its inbox */
    WEIR_LIFE_ATTACHED,  /* on a loop, whose backend knows it */
    WEIR_LIFE_DETACHING, /* leaves its loop once nothing is in flight */
    WEIR_LIFE_CLOSING,   /* waits for operations in flight */
    WEIR_LIFE_CLOSED,    /* the transport is closed; handlers are notified of that */
    WEIR_LIFE_ENDED,     /* the handlers are removed */
} weir_life_state;

typedef enum weir_life_event {
    WEIR_LIFE_ATTACH, /* a loop was chosen */
    WEIR_LIFE_ARRIVE, /* that loop has taken it */
    WEIR_LIFE_DETACH, /* deregistration begins */
    WEIR_LIFE_LEAVE,  /* nothing is in flight */
    WEIR_LIFE_CLOSE,  /* closing begins */
    WEIR_LIFE_STOP,   /* nothing is in flight */
    WEIR_LIFE_END,    /* every event was fired */
    WEIR_LIFE_EVENTS,
} weir_life_event;

static inline weir_life_state weir__life_state(const _Atomic(uint8_t) *state)
{
    return (weir_life_state)atomic_load_explicit(state, memory_order_acquire);
}

/* Takes the step: 0, or the code that says why it cannot be taken, and the state stays. By the
 * owner of the channel. */
int weir__life_step(_Atomic(uint8_t) *state, weir_life_event event);

#endif
