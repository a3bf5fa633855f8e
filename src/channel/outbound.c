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

/* Ends an entry that is in the queue no more. */
static void end_entry(weir_outbound *queue, weir_spare *spare, weir_write *entry, int code)
{
    weir_promise *promise = entry->promise;
    weir_msg *msg = entry->msg;
    weir__outbound_change_bytes(queue, -weir__write_weight(entry->size));
    if (code == 0)
        count_sent(queue, entry);
    weir__spare_put(spare, entry);
    if (msg != NULL)
        weir_msg_release(msg);
    if (promise != NULL) {
        weir_promise_set(promise, code);
        weir_promise_release(promise);
    }
}

static weir_write *unlink_first(weir_outbound *queue)
{
    weir_write *entry = queue->first;
    queue->first = entry->next;
    if (queue->unflushed == entry)
        queue->unflushed = entry->next;
    queue->is_started = false;
    return entry;
}

void weir__outbound_remove(weir_outbound *queue, weir_spare *spare, int code)
{
    if (weir__outbound_has_flushed(queue))
        end_entry(queue, spare, unlink_first(queue), code);
}

/* Whether the entry may go out; from then on it cannot be cancelled. */
static bool begin_entry(weir_write *entry)
{
    return entry->promise == NULL || weir_promise_set_uncancellable(entry->promise);
}

weir_msg *weir__outbound_current(weir_outbound *queue, weir_spare *spare)
{
    while (weir__outbound_has_flushed(queue)) {
        if (queue->is_started || queue->first->sent > 0 || begin_entry(queue->first)) {
            queue->is_started = true;
            return queue->first->msg;
        }
        end_entry(queue, spare, unlink_first(queue), -ECANCELED);
    }
    return NULL;
}

weir_msg *weir__outbound_take(weir_outbound *queue, weir_spare *spare)
{
    weir_msg *msg = weir__outbound_current(queue, spare);
    if (msg != NULL) {
        queue->first->msg = NULL;
        weir__outbound_remove(queue, spare, 0);
    }
    return msg;
}

/* Takes a cancelled entry out that is behind `before`. */
static void drop_behind(weir_outbound *queue, weir_spare *spare, weir_write *before)
{
    weir_write *entry = before->next;
    before->next = entry->next;
    if (queue->last == entry)
        queue->last = before;
    end_entry(queue, spare, entry, -ECANCELED);
}

weir_msg *weir__outbound_at(weir_outbound *queue, weir_spare *spare, unsigned n)
{
    weir_write *before = queue->first;
    if (n == 0)
        return weir__outbound_current(queue, spare);
    for (unsigned i = 1; i < n && before != queue->unflushed; i++)
        before = before->next;
    while (before != queue->unflushed && before->next != queue->unflushed) {
        if (begin_entry(before->next))
            return before->next->msg;
        drop_behind(queue, spare, before);
    }
    return NULL;
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

/* The same for the first entry, which is begun; those before it that cannot be sent have failed,
 * unless that leaves a gap: then nothing after it may be sent. */
static int pieces_of_first(weir_outbound *queue, weir_spare *spare, struct iovec *pieces, int max)
{
    weir_msg *msg;
    while ((msg = weir__outbound_current(queue, spare)) != NULL && msg->type == &weir_buf_type) {
        int count = pieces_of(queue->first, pieces, max);
        if (count >= 0 || weir__promise_leaves_gap(queue->first->promise))
            return count;
        weir__outbound_remove(queue, spare, count);
    }
    return 0;
}

int weir__outbound_gather(weir_outbound *queue, weir_spare *spare, struct iovec *pieces, int max)
{
    int count = pieces_of_first(queue, spare, pieces, max);
    weir_write *before = queue->first;
    if (count < 0 || !weir__outbound_has_flushed(queue) || before->msg->type != &weir_buf_type)
        return count;
    while (before->next != queue->unflushed && count < max &&
           before->next->msg->type == &weir_buf_type) {
        if (!begin_entry(before->next)) {
            drop_behind(queue, spare, before);
            continue;
        }
        int added = pieces_of(before->next, pieces + count, max - count);
        if (added < 0)
            break; /* it is broken, but what is before it still goes */
        count += added;
        before = before->next;
    }
    return count;
}

void weir__outbound_sent(weir_outbound *queue, weir_spare *spare, size_t bytes)
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
        weir__outbound_remove(queue, spare, 0);
    }
}

bool weir__outbound_fail(weir_outbound *queue, weir_spare *spare, int code)
{
    bool has_lost = false;
    queue->is_failed = true;
    queue->unflushed = queue->first;
    while (queue->first != NULL) {
        has_lost |= queue->first->promise == NULL;
        end_entry(queue, spare, unlink_first(queue), code);
    }
    return has_lost;
}
