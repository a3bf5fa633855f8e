/* SPDX-License-Identifier: MIT */
/* The life of a channel. */
#include "channel/lifecycle.h"

#include <errno.h>

static int move_to(weir_lifecycle *life, weir_channel_state state)
{
    atomic_store_explicit(&life->state, (uint8_t)state, memory_order_release);
    return 0;
}

int weir__lifecycle_register(weir_lifecycle *life)
{
    weir_channel_state state = weir__lifecycle_state(life);
    if (state >= WEIR_CHANNEL_CLOSING)
        return WEIR_ECLOSED;
    if (state != WEIR_CHANNEL_OPEN)
        return WEIR_EREGISTERED;
    return move_to(life, WEIR_CHANNEL_REGISTERED);
}

int weir__lifecycle_activate(weir_lifecycle *life)
{
    weir_channel_state state = weir__lifecycle_state(life);
    if (state >= WEIR_CHANNEL_CLOSING)
        return WEIR_ECLOSED;
    if (state != WEIR_CHANNEL_REGISTERED)
        return state == WEIR_CHANNEL_ACTIVE ? -EALREADY : -EINVAL;
    return move_to(life, WEIR_CHANNEL_ACTIVE);
}

int weir__lifecycle_deregister(weir_lifecycle *life)
{
    weir_channel_state state = weir__lifecycle_state(life);
    if (state >= WEIR_CHANNEL_CLOSING)
        return WEIR_ECLOSED;
    if (state == WEIR_CHANNEL_OPEN)
        return -EALREADY;
    life->was_active = life->is_told_active;
    return move_to(life, WEIR_CHANNEL_OPEN);
}

int weir__lifecycle_begin_close(weir_lifecycle *life)
{
    if (weir__lifecycle_state(life) >= WEIR_CHANNEL_CLOSING)
        return -EALREADY;
    return move_to(life, WEIR_CHANNEL_CLOSING);
}

int weir__lifecycle_closed(weir_lifecycle *life)
{
    if (weir__lifecycle_state(life) != WEIR_CHANNEL_CLOSING)
        return -EINVAL;
    return move_to(life, WEIR_CHANNEL_CLOSED);
}

weir_news weir__lifecycle_news(weir_lifecycle *life)
{
    weir_channel_state state = weir__lifecycle_state(life);
    bool is_on_loop = state == WEIR_CHANNEL_REGISTERED || state == WEIR_CHANNEL_ACTIVE;
    bool is_closed = state >= WEIR_CHANNEL_CLOSED;
    if (is_on_loop && !life->is_told_registered) {
        life->is_told_registered = true;
        return WEIR_NEWS_REGISTERED;
    }
    if (state == WEIR_CHANNEL_ACTIVE && life->was_active) {
        life->was_active = false;
        return WEIR_NEWS_AGAIN;
    }
    if (state == WEIR_CHANNEL_ACTIVE && !life->is_told_active) {
        life->is_told_active = true;
        return WEIR_NEWS_ACTIVE;
    }
    if (is_closed && life->is_told_active) {
        life->is_told_active = false;
        return WEIR_NEWS_INACTIVE;
    }
    if ((is_closed || state == WEIR_CHANNEL_OPEN) && life->is_told_registered) {
        life->is_told_registered = false;
        return WEIR_NEWS_UNREGISTERED;
    }
    if (state == WEIR_CHANNEL_CLOSED) {
        move_to(life, WEIR_CHANNEL_UNREGISTERED);
        return WEIR_NEWS_OVER;
    }
    return WEIR_NEWS_NONE;
}
