/* SPDX-License-Identifier: MIT */
/* What flows through a channel: reading, writing, and how much of it. */
#include "base/counter.h"
#include "channel/extras.h"
#include "channel/inbox.h"

#include <weir/buf.h>
#include <weir/log.h>

#include <errno.h>

/* Reading -------------------------------------------------------------------------------------- */

void weir__channel_update_reading(weir_channel *channel)
{
    bool is_wanted = (channel->in.is_wanted || channel->in.is_in_batch) &&
                     weir__channel_is_running(channel) && channel->in.holds == 0 &&
                     !channel->in.is_ended;
    if (is_wanted == channel->in.is_reading)
        return;
    channel->in.is_reading = is_wanted;
    channel->in.has_stopped = true;
    if (is_wanted)
        channel->transport->start_reading(channel);
    else
        channel->transport->stop_reading(channel);
}

void weir__channel_read_now(weir_channel *channel)
{
    channel->in.is_wanted = true;
    if (!channel->in.is_reading)
        weir__channel_update_reading(channel);
}

void weir__channel_set_auto_read(weir_channel *channel, bool is_auto_read)
{
    bool was_auto_read = channel->in.is_auto_read;
    channel->in.is_auto_read = is_auto_read;
    if (is_auto_read && !was_auto_read) {
        weir_channel_read(channel);
    } else if (!is_auto_read && was_auto_read) {
        channel->in.is_wanted = false;
        channel->in.is_in_batch = false;
        weir__channel_update_reading(channel);
    }
}

/* False: it was set or released already. */
static bool change_hold(weir_hold *hold, bool is_set)
{
    return atomic_exchange_explicit(&hold->is_set, is_set, memory_order_relaxed) != is_set;
}

int weir_channel_set_read_hold(weir_channel *channel, weir_hold *hold, bool is_set)
{
    if (channel == NULL || hold == NULL)
        return -EINVAL;
    if (!change_hold(hold, is_set))
        return 0;
    uint16_t step = is_set ? 1 : UINT16_MAX;
    uint16_t before = atomic_fetch_add_explicit(&channel->in.holds, step, memory_order_relaxed);
    if (before != 0 && (uint16_t)(before + step) != 0)
        return 0; /* others hold it as well */
    weir_owner owner = weir__channel_owner(channel);
    if (owner == WEIR_OWNER_ME)
        weir__channel_update_reading(channel);
    else if (owner == WEIR_OWNER_OTHERS)
        weir__inbox_push_missed(channel, WEIR__MISSED_PAUSE);
    return 0;
}

/* A request for reads is used up by the first of a batch; one that comes meanwhile is for the
 * next. */
void weir__channel_read(weir_channel *channel, weir_msg *msg, size_t size)
{
    if (!channel->in.is_in_batch) {
        channel->in.is_in_batch = true;
        channel->in.is_wanted = false;
    }
    channel->in.is_batch_open = true;
    weir__counter_add(&channel->in.messages, 1);
    weir__counter_add(&channel->in.bytes, size);
    weir_ctx_fire_read(&channel->pipeline.head, msg);
}

/* What the head does at the end of a batch. */
WEIR__HOT void weir__channel_fire_read_complete(weir_channel *channel)
{
    weir_ctx_fire_read_complete(&channel->pipeline.head);
    if (channel->in.is_auto_read)
        weir_ctx_read(&channel->pipeline.tail);
}

void weir__channel_read_complete(weir_channel *channel)
{
    channel->in.is_in_batch = channel->in.is_batch_open = false;
    weir__channel_fire_read_complete(channel);
    if (!channel->in.is_wanted)
        weir__channel_update_reading(channel);
    weir__channel_recheck(channel);
}

void weir__channel_read_ended(weir_channel *channel, int code)
{
    if (channel->in.is_ended || weir__channel_is_closing(channel))
        return;
    channel->in.is_ended = true;
    weir__channel_update_reading(channel);
    if (code < 0) {
        weir__pipeline_fire_code(channel, code, "reading failed");
        weir__channel_close_now(channel, NULL);
    } else if (channel->out.is_shut) {
        weir__channel_close_now(channel, NULL);
    } else if (!channel->in.allows_half_closure && !weir__channel_is_finishing(channel)) {
        weir__finish_input_ended(channel);
    } else {
        weir__event_enter(channel,
                          &(weir_event){ .kind = WEIR_EV_EVENT, .msg = &weir_event_input_closed });
    }
}

/* Writing -------------------------------------------------------------------------------------- */

__attribute__((cold)) void weir__channel_lost(weir_channel *channel, int code)
{
    /* First, so that a handler that answers with another write does not lose that, too. */
    if (channel->transport->is_stream)
        weir__channel_close_now(channel, NULL);
    if (channel->out.is_telling_loss)
        return; /* a datagram in answer to the error is lost as well: once is enough */
    channel->out.is_telling_loss = true;
    weir__pipeline_fire_code(channel, code, "a message was lost");
    channel->out.is_telling_loss = false;
}

static bool is_unwritable(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->out.unwritable, memory_order_relaxed) != 0;
}

/* Mostly it is below the mark and was before. */
static inline void update_writability_if_needed(weir_channel *channel)
{
    if (__builtin_expect(weir__outbound_bytes(&channel->out.queue) > channel->out.high_bytes ||
                             is_unwritable(channel),
                         0))
        weir__channel_update_writability(channel);
}

/* Whether the transport can send such a message; a stream that a relay sends to takes none. */
static inline bool takes(const weir_channel *channel, const weir_msg *msg)
{
    const weir_transport *transport = channel->transport;
    if (transport->flush == NULL || channel->out.is_lent)
        return false;
    return msg->type == &weir_buf_type || transport->takes == NULL ||
           transport->takes(channel, msg);
}

/* 0 when the message may be queued. */
static inline int check_write(weir_channel *channel, const weir_msg *msg, size_t size,
                              weir_promise *promise)
{
    size_t room = (size_t)weir__channel_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES);
    size_t bytes = weir__outbound_bytes(&channel->out.queue);
    if (weir__channel_is_closing(channel))
        return WEIR_ECLOSED;
    if (channel->out.is_ended)
        return -EPIPE;
    if (!takes(channel, msg))
        return -EOPNOTSUPP;
    if (bytes > room || weir__write_weight(size) > room - bytes)
        return WEIR_ELIMIT;
    if (promise == NULL || !weir_future_is_done(weir_promise_future(promise)))
        return 0;
    if (weir_future_code(weir_promise_future(promise)) != -ECANCELED)
        weir_log(WEIR_LOG_ERROR, "channel",
                 "%08llx: a write was dropped, because its promise was complete before",
                 (unsigned long long)channel->id);
    return -ECANCELED;
}

/* Out of the way: what an error needs on the stack is not for every write. */
static __attribute__((noinline, cold)) void refuse_write(weir_channel *channel, weir_msg *msg,
                                                         weir_promise *promise, int code)
{
    /* Promises are completed in the order of the writes: this one behind those that the close
     * fails. */
    if (code == WEIR_ECLOSED && promise != NULL && !weir__outbound_is_empty(&channel->out.queue) &&
        weir__outbound_add(&channel->out.queue, msg, 0, promise) == 0)
        return;
    weir_msg_release(msg);
    weir__promise_end(promise, code);
    if (promise == NULL && code != WEIR_ECLOSED)
        weir__channel_lost(channel, code);
}

void weir__channel_write_now(weir_channel *channel, weir_msg *msg, weir_promise *promise)
{
    bool is_buf = msg->type == &weir_buf_type;
    size_t size = is_buf ? weir_buf_readable((const weir_buf *)msg) : weir_msg_size(msg);
    int code = check_write(channel, msg, size, promise);
    if (code == 0)
        code = weir__outbound_add(&channel->out.queue, msg, size, promise);
    if (code == 0)
        update_writability_if_needed(channel);
    else
        refuse_write(channel, msg, promise, code);
}

static void shut_output(weir_channel *channel)
{
    weir_promise *promise = channel->out.shutdown_promise;
    channel->out.shutdown_promise = NULL;
    channel->out.is_shut = true;
    if (channel->transport->shutdown != NULL)
        channel->transport->shutdown(channel, promise);
    else
        weir__promise_end(promise, -EOPNOTSUPP);
    weir_promise_release(promise);
    if (channel->in.is_ended)
        weir__channel_close_now(channel, NULL);
    else
        weir__finish_output_shut(channel);
}

static void shut_output_when_sent(weir_channel *channel)
{
    if (!channel->out.is_ended || channel->out.is_shut || channel->out.is_lent ||
        !weir__outbound_is_empty(&channel->out.queue) || !weir__channel_is_active(channel))
        return;
    shut_output(channel);
}

__attribute__((noinline)) void weir__channel_resume_output(weir_channel *channel)
{
    bool has_work = weir__outbound_has_flushed(&channel->out.queue) &&
                    weir__channel_is_running(channel);
    if (has_work || (channel->out.is_lent && weir__channel_is_active(channel)))
        channel->transport->flush(channel); /* which tells what it has sent */
    else
        shut_output_when_sent(channel);
}

/* What is flushed before the channel is connected goes out when it is. */
void weir__channel_flush_now(weir_channel *channel)
{
    if (weir__channel_is_closing(channel))
        return; /* what was flushed before has had its attempt, the rest fails */
    weir__outbound_flush(&channel->out.queue);
    if (weir__channel_is_running(channel) && !weir__outbound_is_empty(&channel->out.queue))
        channel->transport->flush(channel);
    else
        weir__channel_resume_output(channel);
}

static __attribute__((noinline, cold)) void sending_failed(weir_channel *channel, int code)
{
    weir_outbound *queue = &channel->out.queue;
    channel->out.is_ended = true; /* a handler that is notified must not leave a gap */
    bool has_lost = weir__outbound_fail(queue, code);
    weir__channel_update_writability(channel);
    weir__channel_close_now(channel, NULL);
    if (has_lost)
        weir__pipeline_fire_code(channel, code, "sending failed");
}

WEIR__HOT inline void weir__channel_sent(weir_channel *channel, int code)
{
    if (code < 0) {
        sending_failed(channel, code);
        return;
    }
    weir__channel_note_sent(channel);
    update_writability_if_needed(channel);
    if (__builtin_expect(channel->out.queue.lost < 0, 0)) {
        int lost = channel->out.queue.lost;
        channel->out.queue.lost = 0;
        weir__channel_lost(channel, lost);
    }
    shut_output_when_sent(channel);
}

void weir__channel_shutdown_now(weir_channel *channel, weir_promise *promise)
{
    if (channel->out.is_ended) {
        weir__promise_end(promise, channel->out.is_shut ? 0 : -EALREADY);
        return;
    }
    channel->out.is_ended = true;
    channel->out.shutdown_promise = weir_promise_retain(promise);
    weir__channel_flush_now(channel);
}

/* Writability ---------------------------------------------------------------------------------- */

/* Also when it is by now as it was before: somebody may have seen that it was not writable, and
 * wait to hear that it is. */
void weir__channel_fire_writability(weir_notice *notice)
{
    weir_channel *channel = WEIR_CONTAINER(notice, weir_channel, out.writability);
    channel->out.is_writability_queued = false;
    channel->out.is_told_unwritable = is_unwritable(channel);
    weir_visit visit;
    weir__visit_begin(&visit, weir__channel_describe, channel);
    if (!weir__channel_is_closing(channel))
        weir__pipeline_fire(channel, WEIR_EV_WRITABILITY);
    weir__visit_end(&visit);
    weir__channel_recheck(channel);
    weir_channel_release(channel);
}

static void queue_writability(weir_channel *channel)
{
    if (channel->out.is_writability_queued)
        return;
    channel->out.is_writability_queued = true;
    weir_channel_retain(channel);
    weir__channel_queue_notice(channel, &channel->out.writability);
}

static bool pauses_reading(const weir_channel *channel)
{
    uint32_t reasons = atomic_load_explicit(&channel->out.unwritable, memory_order_relaxed);
    return channel->out.pauses_when_unwritable && (reasons & WEIR__PAUSES_READING) != 0 &&
           !weir__channel_is_finishing(channel);
}

void weir__channel_update_writability(weir_channel *channel)
{
    size_t bytes = weir__outbound_bytes(&channel->out.queue);
    if (bytes > channel->out.high_bytes)
        atomic_fetch_or_explicit(&channel->out.unwritable, WEIR__ABOVE_MARK, memory_order_relaxed);
    else if (bytes <= channel->out.low_bytes && is_unwritable(channel))
        atomic_fetch_and_explicit(&channel->out.unwritable, ~(uint32_t)WEIR__ABOVE_MARK,
                                  memory_order_relaxed);
    weir_hold *hold = &channel->in.unwritable_hold;
    if (hold->is_set || channel->out.pauses_when_unwritable)
        weir_channel_set_read_hold(channel, hold, pauses_reading(channel));
    if (channel->out.is_told_unwritable != is_unwritable(channel))
        queue_writability(channel);
}

/* Another thread may have seen the channel unwritable for a moment that is over by now: fires
 * on_writability once more for it. While the channel is unwritable its end will fire it. */
void weir__channel_update_writability_again(weir_channel *channel)
{
    weir__channel_update_writability(channel);
    if (!is_unwritable(channel))
        queue_writability(channel);
}

int weir_channel_set_write_hold(weir_channel *channel, weir_hold *hold, bool is_set)
{
    if (channel == NULL || hold == NULL)
        return -EINVAL;
    if (!change_hold(hold, is_set))
        return 0;
    uint32_t step = hold->needs_reads ? WEIR__HOLD_NEEDING_READS : WEIR__HOLD;
    step = is_set ? step : -step;
    uint32_t before = atomic_fetch_add_explicit(&channel->out.unwritable, step,
                                                memory_order_relaxed);
    uint32_t now = before + step;
    if (!before == !now && !(before & WEIR__PAUSES_READING) == !(now & WEIR__PAUSES_READING))
        return 0; /* others decide */
    weir_owner owner = weir__channel_owner(channel);
    if (owner == WEIR_OWNER_ME)
        weir__channel_update_writability(channel);
    else if (owner == WEIR_OWNER_OTHERS)
        weir__inbox_push_missed(channel, WEIR__MISSED_WEIGH);
    return 0;
}

/* For other threads with what they have written, and the loop has not seen yet; handlers are told
 * about the queue alone, and so that is what they see. */
size_t weir__channel_pending_bytes(const weir_channel *channel)
{
    size_t bytes = weir__outbound_bytes(&channel->out.queue);
    if (!weir__channel_is_mine(channel))
        bytes += atomic_load_explicit(&channel->inbox.bytes, memory_order_relaxed);
    return bytes;
}

/* A writer on another thread that has posted too much sets this before it posts, so the loop sees
 * it with the write: every `false` that a caller can see here is followed by an on_writability. */
static bool is_inbox_full(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->inbox.is_full, memory_order_acquire) &&
           !weir__channel_is_mine(channel);
}

void weir__channel_inbox_emptied(weir_channel *channel)
{
    if (!atomic_load_explicit(&channel->inbox.is_full, memory_order_relaxed))
        return;
    atomic_store_explicit(&channel->inbox.is_full, false, memory_order_release);
    if (!weir__channel_is_closing(channel))
        weir__channel_update_writability_again(channel);
}

bool weir_channel_is_writable(const weir_channel *channel)
{
    return channel != NULL && !is_unwritable(channel) && !is_inbox_full(channel) &&
           !weir__channel_is_closing(channel);
}

size_t weir_channel_bytes_before_unwritable(const weir_channel *channel)
{
    if (!weir_channel_is_writable(channel))
        return 0;
    size_t high = channel->out.high_bytes, bytes = weir__channel_pending_bytes(channel);
    return bytes <= high ? high - bytes + 1 : 1;
}

size_t weir_channel_bytes_before_writable(const weir_channel *channel)
{
    if (channel == NULL)
        return 0;
    size_t pending = weir__channel_pending_bytes(channel);
    bool is_above = atomic_load_explicit(&channel->out.unwritable, memory_order_relaxed) &
                        WEIR__ABOVE_MARK ||
                    pending > channel->out.high_bytes;
    return is_above && pending > channel->out.low_bytes ? pending - channel->out.low_bytes : 0;
}
