/* SPDX-License-Identifier: MIT */
/* The life of a channel: which state follows which, and what has to be told of it. */
#ifndef WEIR_CHANNEL_LIFECYCLE_H
#define WEIR_CHANNEL_LIFECYCLE_H

#include <weir/channel.h>

#include <stdatomic.h>

/*
 *   OPEN --register--> REGISTERED --activate--> ACTIVE
 *    ^ |                   |   |                 |  |
 *    | '------.    .-------'   '---. .-----------'  |
 *    |        |    |     deregister| |              |
 *    '--------|----|---------------'-'              |
 *             v    v                                v
 *            CLOSING <------------- close ----------'
 *               |
 *             closed, and nothing is under way any more
 *               v
 *            CLOSED --everything told--> UNREGISTERED
 *
 * A state changes at once, handlers are told later: what was told of, and what is, differ for a
 * while, and weir__lifecycle_news says what to tell next.
 */
typedef struct weir_lifecycle {
    _Atomic(uint8_t) state; /* weir_channel_state; only the owner writes it, any thread reads */
    bool is_told_registered;
    bool is_told_active;
    bool was_active; /* it has been, before it was deregistered */
} weir_lifecycle;

typedef enum weir_news {
    WEIR_NEWS_NONE,
    WEIR_NEWS_REGISTERED,
    WEIR_NEWS_ACTIVE,
    WEIR_NEWS_AGAIN, /* on another loop, and still active: nothing to tell, but reading goes on */
    WEIR_NEWS_INACTIVE,
    WEIR_NEWS_UNREGISTERED,
    WEIR_NEWS_OVER, /* the channel is closed, and everything has been told */
} weir_news;

static inline weir_channel_state weir__lifecycle_state(const weir_lifecycle *life)
{
    return (weir_channel_state)atomic_load_explicit(&life->state, memory_order_acquire);
}

/* The steps: 0, or the code that says why not. */
int weir__lifecycle_register(weir_lifecycle *life);
int weir__lifecycle_activate(weir_lifecycle *life);
int weir__lifecycle_deregister(weir_lifecycle *life);
int weir__lifecycle_begin_close(weir_lifecycle *life);
int weir__lifecycle_closed(weir_lifecycle *life);

/* What to tell now, and it counts as told. */
weir_news weir__lifecycle_news(weir_lifecycle *life);

#endif
