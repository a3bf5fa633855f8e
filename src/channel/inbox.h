/* SPDX-License-Identifier: MIT */
/* The inbox: how calls from other threads get to the loop that a channel is on. */
#ifndef WEIR_CHANNEL_INBOX_H
#define WEIR_CHANNEL_INBOX_H

#include "channel/channel.h"

/* Runs a call on the channel's loop. Any thread. */
void weir__inbox_push(weir_channel *channel, weir_call *call);

/* What has to happen though there is no memory for a call: it does behind those that are there. */
enum {
    WEIR__MISSED_FLUSH = 1,
    WEIR__MISSED_READ = 2,
    WEIR__MISSED_CLOSE = 4,
    WEIR__MISSED_WEIGH = 8,    /* reasons against writing have changed */
    WEIR__MISSED_MESSAGE = 16, /* because of the channel's `lost` */
    WEIR__MISSED_OTHER = 32,   /* cannot be repeated later */
    WEIR__MISSED_PAUSE = 64,   /* reasons against reading have changed */
    WEIR__MISSED_RESET = 128,
    WEIR__MISSED_DRAIN = 256, /* the draining event */
};
void weir__inbox_push_missed(weir_channel *channel, uint16_t missed);

/* Whether a call of the loop thread must wait, because earlier calls are queued. Their thread may
 * have synchronised with the loop since, or the loop thread made them itself when the channel was
 * on another loop. Loop thread only. */
static inline bool weir__inbox_is_waiting(const weir_channel *channel)
{
    bool has_kept = atomic_load_explicit(&channel->inbox.has_kept, memory_order_relaxed);
    if (!has_kept && !atomic_load_explicit(&channel->inbox.is_posted, memory_order_relaxed))
        return false;
    return has_kept || channel->inbox.calls != NULL ||
           atomic_load_explicit(&channel->inbox.head, memory_order_relaxed) != NULL;
}

/* Begins an event where such events begin; `flushes` sends a flush after it. Borrowed
 * arguments are copied; without memory for that the event is dropped, as if it had failed. Any
 * thread. */
void weir__inbox_send(weir_channel *channel, const weir_event *event, bool flushes);

/* The same, but queues the call until the channel has a loop, after the calls that wait already.
 * Only for the owner of the channel. */
void weir__inbox_keep(weir_channel *channel, const weir_event *event, bool flushes);

/* The bytes of writes in the inbox: whether there are too many for another; counts those of an
 * event, if it is a write, and returns how many; and takes them off. Any thread. */
bool weir__inbox_is_over_limit(const weir_channel *channel, const weir_event *event);
size_t weir__inbox_count(weir_channel *channel, const weir_event *event);
void weir__inbox_uncount(weir_channel *channel, size_t weight);

/* Performs the calls in the inbox now, or sends the channel to the loop that it attaches to. By the
 * channel's owner. */
void weir__inbox_drain_here(weir_channel *channel);

/* A weir_task's run and dropped. */
int weir__inbox_run(weir_task *task);
void weir__inbox_dropped(weir_task *task);

/* Copies of events, for who carries them: how much room what is borrowed needs, and the copy, which
 * owns its promise. */
size_t weir__event_room(const weir_event *event);
void weir__event_copy(weir_event *to, const weir_event *from, void *room);

#endif
