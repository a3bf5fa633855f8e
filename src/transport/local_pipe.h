/* SPDX-License-Identifier: MIT */
/* What lies between two ends of an in-process connection. */
#ifndef WEIR_TRANSPORT_LOCAL_PIPE_H
#define WEIR_TRANSPORT_LOCAL_PIPE_H

#include "transport/local_end.h"

/* What may be on its way in one direction; the rest waits in the writer's queue. A message that is
 * larger goes alone. */
#define WEIR__PIPE_MESSAGES 64
#define WEIR__PIPE_BYTES 65536

typedef struct weir_local_parcel {
    weir_msg *msg;
    size_t size; /* when it was sent */
} weir_local_parcel;

/* One direction. */
typedef struct weir_local_way {
    weir_local_parcel parcels[WEIR__PIPE_MESSAGES]; /* a ring */
    unsigned first, count;
    size_t bytes;
    bool is_ended;   /* no more comes */
    bool is_waiting; /* the writer has more, and wants to hear when there is room */
} weir_local_way;

/*
 *                 ways[1] -> [m][m][m] ->
 *    ends[0]                                 ends[1]
 *  connecting     <- [m] <-      ways[0]    accepted
 *
 * Counted: each end has a reference until its memory goes. An end is in it until it is closed.
 */
typedef struct weir_local_pipe {
    _Atomic(uint32_t) refs;
    pthread_mutex_t lock;

    /* Under the lock. */
    weir_local_end *ends[2];
    weir_local_way ways[2]; /* by where they lead to */
    int outcome;            /* of connecting: -EINPROGRESS, then 0 or why not */

    /* Under the lock of all listeners. */
    weir_list_node node; /* in the list of those that wait for a listener */
    struct weir_local_listener *listener;

    /* Set before anybody else sees it. */
    weir_address local, remote; /* as the connecting end sees them; the first may be none */
} weir_local_pipe;

/* NULL: no memory. */
weir_local_pipe *weir__local_pipe_new(void);
weir_local_pipe *weir__local_pipe_retain(weir_local_pipe *pipe);
void weir__local_pipe_release(weir_local_pipe *pipe);

/* An end comes to its side; and goes, for good: what was on its way there is released, and the
 * other end finds out when it has read what is left. Any thread. */
void weir__local_pipe_join(weir_local_pipe *pipe, unsigned side, weir_local_end *end);
void weir__local_pipe_leave(weir_local_pipe *pipe, unsigned side);

/* Decides how connecting ends, and tells the connecting end: false when that was decided before.
 * Any thread. */
bool weir__local_pipe_settle(weir_local_pipe *pipe, int outcome);
int weir__local_pipe_outcome(weir_local_pipe *pipe);

/* How much may be sent to a side now; nothing when there is no room, and then the other side rings
 * when there is. False: that end is gone. */
bool weir__local_pipe_room(weir_local_pipe *pipe, unsigned to, unsigned *messages, size_t *bytes);

/* Sends what there was room for. `has_more`: the rest waits for room. */
void weir__local_pipe_put(weir_local_pipe *pipe, unsigned to, const weir_local_parcel *parcels,
                          unsigned count, bool has_more);

/* No more is sent there. */
void weir__local_pipe_end(weir_local_pipe *pipe, unsigned to);

/* Takes at most `most` messages that have come to a side: how many; and whether there is an end
 * behind those. */
unsigned weir__local_pipe_take(weir_local_pipe *pipe, unsigned side, weir_msg **messages,
                               unsigned most, bool *is_over);

#endif
