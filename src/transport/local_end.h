/* SPDX-License-Identifier: MIT */
/* An end of an in-process connection, or a listener: how others call it to its loop. */
#ifndef WEIR_TRANSPORT_LOCAL_END_H
#define WEIR_TRANSPORT_LOCAL_END_H

#include "channel/channel.h"

#include <pthread.h>

/* So many messages are read before others on the loop have their turn. */
#define WEIR__LOCAL_BATCH 16

/*
 * Others touch nothing of an end but its bell: a task that is part of it, and is posted to
 * whichever loop it is on. There the end looks for itself what there is to do. So a ring carries no
 * news, may come once too often, and one for many reasons is enough.
 */
typedef struct weir_local_end weir_local_end;
struct weir_local_end {
    weir_channel base;

    /* Set once. */
    pthread_mutex_t *lock;               /* the pipe's, or that of all listeners */
    void (*answer)(weir_local_end *end); /* the bell has rung; on the loop */

    /* Under the lock. */
    bool is_attached; /* it is on a loop, which holds a reference */
    bool is_rung;     /* the task is on its way, with a reference */
    weir_task task;

    /* The loop's. */
    bool is_delivering;
    bool is_quiet_awaited; /* it wants to leave as soon as it has delivered */
};

void weir__local_end_init(weir_local_end *end, pthread_mutex_t *lock,
                          void (*answer)(weir_local_end *end));

/* Ringing, in two steps: under the lock, whether there is something to post; and after it, which is
 * then a must. Any thread; the end may be NULL. */
bool weir__local_end_lift(weir_local_end *end);
void weir__local_end_ring(weir_local_end *end);

/* Both, for its own. */
void weir__local_end_ring_self(weir_local_end *end);

/* It is closed: nobody rings any more. Under the lock. */
void weir__local_end_mute(weir_local_end *end);

/* Reads a batch of what `next` gives, until that is NULL or the channel does not read any more. The
 * rest follows when others have had their turn. On the loop. */
void weir__local_end_deliver(weir_local_end *end, weir_msg *(*next)(weir_local_end *end));

/* For the table of a transport. */
int weir__local_end_attach(weir_channel *channel);
void weir__local_end_detach(weir_channel *channel);
void weir__local_end_start_reading(weir_channel *channel);
void weir__local_end_stop_reading(weir_channel *channel);
bool weir__local_end_quiesce(weir_channel *channel, bool is_closing);

#endif
