/* SPDX-License-Identifier: MIT */
/* The outbound queue: messages that were written, and how far they have got. */
#ifndef WEIR_CHANNEL_OUTBOUND_H
#define WEIR_CHANNEL_OUTBOUND_H

#include "base/spare.h"

#include <weir/future.h>
#include <weir/msg.h>

#include <errno.h>
#include <stdatomic.h>
#include <sys/uio.h>

/*
 *     first                    unflushed        last
 *       |                          |              |
 *      [m] -> [m] -> [m] -> ...   [m] -> [m] ->  [m]
 *       `------- flushed -------'  `-- written ---'
 *        `sent` of its bytes went
 *
 * Messages are sent from the front; a flush moves `unflushed` behind the last. An entry is memory
 * from the loop's spares, so that a write allocates nothing once the loop is warm, and a queue that
 * is empty holds nothing. All of it is the channel's loop's.
 */
typedef struct weir_write weir_write;
struct weir_write {
    weir_write *next;
    weir_msg *msg;
    weir_promise *promise; /* may be NULL */
    size_t size;           /* of the message, when it was written */
    size_t sent;           /* bytes of it; the message itself is not changed, others may share it */
};

typedef struct weir_outbound {
    weir_write *first, *unflushed, *last;
    weir_spare *spare;     /* the loop's, for entries, while the channel is on one */
    _Atomic(size_t) bytes; /* of all that is in it; others read it, too */
    bool is_failed;        /* a flush has no effect any more: bytes before are lost */
    int lost; /* why a message without a promise could not be sent; the owner's to tell */
    _Atomic(uint64_t) bytes_out, messages_out; /* that were sent */
} weir_outbound;

/* An empty message counts, too: somebody could queue any number of them. */
static inline size_t weir__write_weight(size_t size)
{
    return size > 0 ? size : 1;
}

/* Marks every message in it as flushed. No effect after weir__outbound_fail. */
void weir__outbound_flush(weir_outbound *queue);

/* The first message to send, NULL when there is none; those that were cancelled are dropped. From
 * now on this one cannot be. */
weir_msg *weir__outbound_current(weir_outbound *queue);

/* The n-th message to send, counted from 0, after those before it have been asked for: NULL if
 * there is none, or it was cancelled. With 0 the same as above. */
weir_msg *weir__outbound_at(weir_outbound *queue, unsigned n);

/* The bytes of flushed buffers from the front, in at most `max` pieces: how many there are. Stops
 * before a message of another type. Gathered messages cannot be cancelled any more. WEIR_EBOUNDS
 * when bytes of the first one are gone: no later message may be sent. */
int weir__outbound_gather(weir_outbound *queue, struct iovec *pieces, int max);

/* So many bytes from the front went: completes what they complete, and empty messages behind. */
void weir__outbound_sent(weir_outbound *queue, size_t bytes);

/* The first message is through, or has failed with a code. */
void weir__outbound_remove(weir_outbound *queue, int code);

/* Takes the first message out without an end of its own: it is the caller's, and its promise
 * succeeds. NULL when nothing is flushed. */
weir_msg *weir__outbound_take(weir_outbound *queue);

/* Fails every message, in order, and sends no other: a destructor that flushes or closes the
 * channel must not send the messages after a lost one. True if one of them had no promise. */
bool weir__outbound_fail(weir_outbound *queue, int code);

static inline bool weir__outbound_has_flushed(const weir_outbound *queue)
{
    return queue->first != queue->unflushed;
}

static inline bool weir__outbound_is_empty(const weir_outbound *queue)
{
    return queue->first == NULL;
}

static inline size_t weir__outbound_bytes(const weir_outbound *queue)
{
    return atomic_load_explicit(&queue->bytes, memory_order_relaxed);
}

static inline void weir__outbound_change_bytes(weir_outbound *queue, size_t step)
{
    atomic_store_explicit(&queue->bytes, weir__outbound_bytes(queue) + step, memory_order_relaxed);
}

/* Takes the message, whose size is known, in an entry from the spares, and the promise. */
static inline void weir__outbound_put(weir_outbound *queue, weir_write *entry, weir_msg *msg,
                                      size_t size, weir_promise *promise)
{
    entry->next = NULL;
    entry->msg = msg;
    entry->promise = promise;
    entry->size = size;
    entry->sent = 0;
    if (queue->first == NULL)
        queue->first = entry;
    else
        queue->last->next = entry;
    queue->last = entry;
    if (queue->unflushed == NULL)
        queue->unflushed = entry;
    weir__outbound_change_bytes(queue, weir__write_weight(size));
}

/* The same, and retains the promise. -ENOMEM, and then the message is the caller's. */
static inline int weir__outbound_add(weir_outbound *queue, weir_msg *msg, size_t size,
                                     weir_promise *promise)
{
    weir_write *entry = weir__spare_get(queue->spare, sizeof *entry);
    if (entry == NULL)
        return -ENOMEM;
    weir__outbound_put(queue, entry, msg, size, weir_promise_retain(promise));
    return 0;
}

#endif
