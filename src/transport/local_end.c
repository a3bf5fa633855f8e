/* SPDX-License-Identifier: MIT */
/* An end of an in-process connection, or a listener: how others call it to its loop. */
#include "transport/local_end.h"

/* The bell ------------------------------------------------------------------------------------- */

/* While it is attached its loop holds it, so who finds it attached under the lock may retain it. */
bool weir__local_end_lift(weir_local_end *end)
{
    if (end == NULL || !end->is_attached || end->is_rung)
        return false;
    end->is_rung = true;
    weir_channel_retain(&end->base);
    return true;
}

/*
 * A loop closes its channels before it ends, so posting fails only when the end is on no loop: it
 * is closed, or between two loops, and will look for itself when it gets there. If it has got there
 * in this moment it counts on the ring that is on its way.
 */
void weir__local_end_ring(weir_local_end *end)
{
    while (weir__channel_post(&end->base, &end->task) < 0) {
        pthread_mutex_lock(end->lock);
        bool is_attached = end->is_attached;
        end->is_rung = is_attached;
        pthread_mutex_unlock(end->lock);
        if (!is_attached) {
            weir_channel_release(&end->base);
            return;
        }
    }
}

void weir__local_end_ring_self(weir_local_end *end)
{
    pthread_mutex_lock(end->lock);
    bool is_lifted = weir__local_end_lift(end);
    pthread_mutex_unlock(end->lock);
    if (is_lifted)
        weir__local_end_ring(end);
}

void weir__local_end_mute(weir_local_end *end)
{
    end->is_attached = false;
}

static weir_local_end *end_of(weir_task *task)
{
    return WEIR_CONTAINER(task, weir_local_end, task);
}

static int run(weir_task *task)
{
    weir_local_end *end = end_of(task);
    if (!weir__channel_is_mine(&end->base)) {
        weir__local_end_ring(end); /* it has moved */
        return 0;
    }
    /* First, so that what comes while it looks rings once more. */
    pthread_mutex_lock(end->lock);
    end->is_rung = false;
    pthread_mutex_unlock(end->lock);
    if (weir__channel_is_attached(&end->base))
        end->answer(end);
    weir_channel_release(&end->base);
    return 0;
}

/* The loop has ended; the channel is elsewhere, or closed. */
static void dropped(weir_task *task)
{
    weir__local_end_ring(end_of(task));
}

void weir__local_end_init(weir_local_end *end, pthread_mutex_t *lock,
                          void (*answer)(weir_local_end *end))
{
    end->lock = lock;
    end->answer = answer;
    end->task = (weir_task){ .run = run, .dropped = dropped, .name = "local channel" };
}

/* Coming and going ----------------------------------------------------------------------------- */

/* Nobody rang while it was on no loop. */
int weir__local_end_attach(weir_channel *channel)
{
    weir_local_end *end = (weir_local_end *)channel;
    pthread_mutex_lock(end->lock);
    end->is_attached = true;
    pthread_mutex_unlock(end->lock);
    weir__local_end_ring_self(end);
    return 0;
}

void weir__local_end_detach(weir_channel *channel)
{
    weir_local_end *end = (weir_local_end *)channel;
    pthread_mutex_lock(end->lock);
    end->is_attached = false;
    pthread_mutex_unlock(end->lock);
}

/* Handing over takes no time, so nothing is ever under way but a batch in the middle of which a
 * handler wants to leave. */
bool weir__local_end_quiesce(weir_channel *channel, bool is_closing)
{
    weir_local_end *end = (weir_local_end *)channel;
    end->is_quiet_awaited = end->is_delivering && !is_closing;
    return !end->is_quiet_awaited;
}

/* Reading -------------------------------------------------------------------------------------- */

void weir__local_end_start_reading(weir_channel *channel)
{
    weir__local_end_ring_self((weir_local_end *)channel);
}

/* The next answer finds out. As long as there is something to read, one is on its way. */
void weir__local_end_stop_reading(weir_channel *channel)
{
    (void)channel;
}

void weir__local_end_deliver(weir_local_end *end, weir_msg *(*next)(weir_local_end *end))
{
    weir_channel *channel = &end->base;
    weir_msg *msg;
    unsigned count = 0;
    end->is_delivering = true;
    while (count < WEIR__LOCAL_BATCH && channel->in.is_reading && (msg = next(end)) != NULL) {
        count++;
        weir__channel_read(channel, msg, weir_msg_size(msg));
    }
    if (count > 0)
        weir__channel_read_complete(channel);
    end->is_delivering = false;
    if (end->is_quiet_awaited) {
        end->is_quiet_awaited = false;
        weir__channel_quiesced(channel);
    } else if (count == WEIR__LOCAL_BATCH && channel->in.is_reading) {
        weir__local_end_ring_self(end);
    }
}
