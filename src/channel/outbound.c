/* SPDX-License-Identifier: MIT */
/* The outbound queue. */
#include "channel/outbound.h"

#include "base/counter.h"
#include "exec/future.h"

#include <weir/buf.h>

#include <errno.h>

void weir__outbound_flush(weir_outbound *queue)
{
    if (!queue->is_failed)
        queue->unflushed = NULL;
}

static inline void count_sent(weir_outbound *queue, const weir_write *entry)
{
    weir__counter_add(&queue->messages_out, 1);
    weir__counter_add(&queue->bytes_out, entry->size);
}

static __attribute__((noinline)) void complete_promise(weir_promise *promise, int code)
{
    weir_promise_set(promise, code);
    weir_promise_release(promise);
}

/* Ends an entry that is no longer in the queue. */
static inline void end_entry(weir_outbound *queue, weir_write *entry, int code)
{
    weir_promise *promise = entry->promise;
    weir_msg *msg = entry->msg;
    weir__outbound_change_bytes(queue, -weir__write_weight(entry->size));
    if (code == 0)
        count_sent(queue, entry);
    weir__spare_put(queue->spare, entry);
    if (msg != NULL)
        weir_msg_release(msg);
    if (promise != NULL)
        complete_promise(promise, code);
}

static inline void end_first(weir_outbound *queue, int code)
{
    weir_write *entry = queue->first;
    queue->first = entry->next;
    if (queue->unflushed == entry)
        queue->unflushed = entry->next;
    end_entry(queue, entry, code);
}

WEIR__BESIDE void weir__outbound_remove(weir_outbound *queue, int code)
{
    if (weir__outbound_has_flushed(queue))
        end_first(queue, code);
}

/* Whether the entry may be sent; from then on it cannot be cancelled. A promise that someone sets
 * to -ECANCELED once bytes are out does not take back the others. */
static inline bool begin_entry(weir_write *entry)
{
    return entry->promise == NULL || entry->sent > 0 ||
           weir_promise_set_uncancellable(entry->promise);
}

/* The first entry that is flushed and not cancelled; NULL if there is none. */
static inline weir_write *begin_first(weir_outbound *queue)
{
    while (weir__outbound_has_flushed(queue)) {
        if (begin_entry(queue->first))
            return queue->first;
        weir__outbound_remove(queue, -ECANCELED);
    }
    return NULL;
}

weir_msg *weir__outbound_current(weir_outbound *queue)
{
    const weir_write *entry = begin_first(queue);
    return entry != NULL ? entry->msg : NULL;
}

weir_msg *weir__outbound_take(weir_outbound *queue)
{
    weir_write *entry = begin_first(queue);
    if (entry == NULL)
        return NULL;
    weir_msg *msg = entry->msg;
    entry->msg = NULL;
    end_first(queue, 0);
    return msg;
}

weir_msg *weir__outbound_at(weir_outbound *queue, unsigned n)
{
    weir_write *entry = queue->first;
    if (n == 0)
        return weir__outbound_current(queue);
    for (unsigned i = 0; i < n && entry != queue->unflushed; i++)
        entry = entry->next;
    return entry != queue->unflushed && begin_entry(entry) ? entry->msg : NULL;
}

/* The bytes of a buffer that are left to send, in at most `max` pieces. WEIR_EBOUNDS if its writer
 * has taken bytes out of it since. */
static inline int pieces_of(const weir_write *entry, struct iovec *pieces, int max)
{
    const weir_buf *buf = (const weir_buf *)entry->msg;
    size_t at = buf->reader + entry->sent, left = entry->size - entry->sent;
    if (at + left > buf->writer)
        return WEIR_EBOUNDS;
    if (left == 0 || max == 0)
        return 0;
    if (buf->flags & WEIR__BUF_COMPOSITE)
        return weir_buf_iovec(buf, at, left, pieces, max, NULL);
    *pieces = (struct iovec){ buf->data + at, left };
    return 1;
}

/* Adds the pieces of the buffers that come after an entry: how many there are then. It releases no
 * message, which might gather for another channel into the same memory: so a cancelled entry ends
 * it, and is removed once it is the first. */
static __attribute__((noinline)) int gather_after(weir_outbound *queue, weir_write *entry,
                                                  struct iovec *pieces, int count, int max)
{
    while (entry->next != queue->unflushed && count < max &&
           entry->next->msg->type == &weir_buf_type && begin_entry(entry->next)) {
        int added = pieces_of(entry->next, pieces + count, max - count);
        if (added < 0)
            break; /* it is broken, but what is before it is still sent */
        count += added;
        entry = entry->next;
    }
    return count;
}

/* An entry that cannot be sent fails, unless that leaves a gap: then no later one may be sent. */
WEIR__HOT int weir__outbound_gather(weir_outbound *queue, struct iovec *pieces, int max)
{
    weir_write *first;
    while ((first = begin_first(queue)) != NULL && first->msg->type == &weir_buf_type) {
        int count = pieces_of(first, pieces, max);
        if (count >= 0 && first->next != queue->unflushed)
            return gather_after(queue, first, pieces, count, max);
        if (count >= 0 || weir__promise_leaves_gap(first->promise))
            return count;
        weir__outbound_remove(queue, count);
    }
    return 0;
}

WEIR__HOT void weir__outbound_sent(weir_outbound *queue, size_t bytes)
{
    while (weir__outbound_has_flushed(queue)) {
        weir_write *entry = queue->first;
        size_t left = entry->size - entry->sent;
        if (bytes < left) {
            entry->sent += bytes;
            return;
        }
        if (left == 0 && (entry->msg->type != &weir_buf_type || !begin_entry(entry)))
            return; /* nothing says that this one has been sent */
        bytes -= left;
        end_first(queue, 0);
    }
}

bool weir__outbound_fail(weir_outbound *queue, int code)
{
    bool has_lost = false;
    queue->is_failed = true;
    queue->unflushed = queue->first;
    while (queue->first != NULL) {
        has_lost |= queue->first->promise == NULL;
        end_first(queue, code);
    }
    return has_lost;
}
