/* SPDX-License-Identifier: MIT */
/* What lies between two ends of an in-process connection. */
#include "transport/local_pipe.h"

#include "base/alloc.h"

#include <errno.h>

weir_local_pipe *weir__local_pipe_new(void)
{
    weir_local_pipe *pipe = weir__zalloc(sizeof *pipe);
    if (pipe == NULL)
        return NULL;
    atomic_init(&pipe->refs, 1);
    pthread_mutex_init(&pipe->lock, NULL); /* which cannot fail here */
    pipe->outcome = -EINPROGRESS;
    return pipe;
}

weir_local_pipe *weir__local_pipe_retain(weir_local_pipe *pipe)
{
    atomic_fetch_add_explicit(&pipe->refs, 1, memory_order_relaxed);
    return pipe;
}

void weir__local_pipe_release(weir_local_pipe *pipe)
{
    if (atomic_fetch_sub_explicit(&pipe->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&pipe->lock);
    weir__free(pipe);
}

/* Unlocks, and rings an end if it was lifted: no lock is held while anything of a channel is
 * called.
 */
static void unlock_and_ring(weir_local_pipe *pipe, weir_local_end *end)
{
    bool is_lifted = weir__local_end_lift(end);
    pthread_mutex_unlock(&pipe->lock);
    if (is_lifted)
        weir__local_end_ring(end);
}

/* Ends ----------------------------------------------------------------------------------------- */

void weir__local_pipe_join(weir_local_pipe *pipe, unsigned side, weir_local_end *end)
{
    pthread_mutex_lock(&pipe->lock);
    pipe->ends[side] = end;
    pthread_mutex_unlock(&pipe->lock);
}

static weir_local_parcel pop(weir_local_way *way)
{
    weir_local_parcel parcel = way->parcels[way->first];
    way->first = (way->first + 1) % WEIR__PIPE_MESSAGES;
    way->count--;
    way->bytes -= parcel.size;
    return parcel;
}

void weir__local_pipe_leave(weir_local_pipe *pipe, unsigned side)
{
    weir_msg *messages[WEIR__PIPE_MESSAGES];
    unsigned count = 0;
    pthread_mutex_lock(&pipe->lock);
    weir__local_end_mute(pipe->ends[side]);
    pipe->ends[side] = NULL;
    pipe->ways[!side].is_ended = true;
    while (pipe->ways[side].count > 0)
        messages[count++] = pop(&pipe->ways[side]).msg;
    unlock_and_ring(pipe, pipe->ends[!side]);
    while (count > 0)
        weir_msg_release(messages[--count]);
}

bool weir__local_pipe_settle(weir_local_pipe *pipe, int outcome)
{
    pthread_mutex_lock(&pipe->lock);
    bool is_mine = pipe->outcome == -EINPROGRESS;
    if (is_mine)
        pipe->outcome = outcome;
    unlock_and_ring(pipe, is_mine ? pipe->ends[0] : NULL);
    return is_mine;
}

int weir__local_pipe_outcome(weir_local_pipe *pipe)
{
    pthread_mutex_lock(&pipe->lock);
    int outcome = pipe->outcome;
    pthread_mutex_unlock(&pipe->lock);
    return outcome;
}

/* Messages ------------------------------------------------------------------------------------- */

bool weir__local_pipe_room(weir_local_pipe *pipe, unsigned to, unsigned *messages, size_t *bytes)
{
    weir_local_way *way = &pipe->ways[to];
    pthread_mutex_lock(&pipe->lock);
    bool is_there = pipe->ends[to] != NULL;
    *messages = WEIR__PIPE_MESSAGES - way->count;
    *bytes = way->bytes < WEIR__PIPE_BYTES ? WEIR__PIPE_BYTES - way->bytes : 0;
    way->is_waiting = *messages == 0 || *bytes == 0;
    pthread_mutex_unlock(&pipe->lock);
    return is_there;
}

void weir__local_pipe_put(weir_local_pipe *pipe, unsigned to, const weir_local_parcel *parcels,
                          unsigned count, bool has_more)
{
    weir_local_way *way = &pipe->ways[to];
    pthread_mutex_lock(&pipe->lock);
    bool is_there = pipe->ends[to] != NULL; /* it may just have gone */
    for (unsigned i = 0; is_there && i < count; i++) {
        way->parcels[(way->first + way->count++) % WEIR__PIPE_MESSAGES] = parcels[i];
        way->bytes += parcels[i].size;
    }
    way->is_waiting = has_more;
    unlock_and_ring(pipe, pipe->ends[to]);
    for (unsigned i = 0; !is_there && i < count; i++)
        weir_msg_release(parcels[i].msg);
}

void weir__local_pipe_end(weir_local_pipe *pipe, unsigned to)
{
    pthread_mutex_lock(&pipe->lock);
    pipe->ways[to].is_ended = true;
    unlock_and_ring(pipe, pipe->ends[to]);
}

/* Half of it, so that the two do not call each other for every message. */
static bool has_room_again(const weir_local_way *way)
{
    return way->count <= WEIR__PIPE_MESSAGES / 2 && way->bytes <= WEIR__PIPE_BYTES / 2;
}

unsigned weir__local_pipe_take(weir_local_pipe *pipe, unsigned side, weir_msg **messages,
                               unsigned most, bool *is_over)
{
    weir_local_way *way = &pipe->ways[side];
    unsigned count = 0;
    pthread_mutex_lock(&pipe->lock);
    while (count < most && way->count > 0)
        messages[count++] = pop(way).msg;
    *is_over = way->is_ended && way->count == 0;
    bool wakes_writer = way->is_waiting && has_room_again(way);
    way->is_waiting = way->is_waiting && !wakes_writer;
    unlock_and_ring(pipe, wakes_writer ? pipe->ends[!side] : NULL);
    return count;
}
