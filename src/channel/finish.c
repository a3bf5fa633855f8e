/* SPDX-License-Identifier: MIT */
/* Closing in good order: shutdown, wait for the other side, close. */
#include "base/alloc.h"
#include "base/counter.h"
#include "channel/extras.h"
#include "channel/inbox.h"

#include <errno.h>

static weir_channel_extras *finishing(const weir_channel *channel)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    return extras != NULL && extras->is_finishing ? extras : NULL;
}

bool weir__channel_is_finishing(const weir_channel *channel)
{
    return finishing(channel) != NULL;
}

void weir__ctx_close_unless_finishing(weir_ctx *ctx)
{
    if (weir_ctx_is_removed(ctx) || !weir__channel_is_finishing(ctx->channel))
        weir_ctx_close(ctx, NULL);
}

static void close_at_last(weir_channel *channel)
{
    weir_channel_extras *extras = finishing(channel);
    weir_promise *promise = extras->finish_promise;
    extras->finish_promise = NULL;
    weir_channel_close(channel, promise);
    weir_promise_release(promise);
}

static void linger_fire(weir_ctx_timer *timer, weir_ctx *head)
{
    (void)timer;
    close_at_last(weir_ctx_channel(head));
}

/* Everything is sent, and the other side knows: now it is its turn. As the timer is the head's, it
 * goes with the channel. */
void weir__finish_output_shut(weir_channel *channel)
{
    weir_channel_extras *extras = finishing(channel);
    int64_t linger_ns = weir__channel_option(channel, WEIR_OPTION_LINGER_NS);
    if (extras == NULL || extras->is_lingering || weir__channel_is_closing(channel))
        return;
    extras->is_lingering = true;
    extras->linger.fire = linger_fire;
    if (channel->in.is_ended || linger_ns == 0 ||
        weir_ctx_schedule(&channel->pipeline.head, &extras->linger, linger_ns) < 0)
        close_at_last(channel);
}

uint64_t weir__channel_sent_bytes(const weir_channel *channel)
{
    const weir_write *first = weir__channel_is_mine(channel) ? channel->out.queue.first : NULL;
    return weir__counter_get(&channel->out.queue.bytes_out) + (first != NULL ? first->sent : 0);
}

/* Who reads slowly is waited for, who does not read any more is not. */
static void look_for_progress(weir_ctx_timer *timer, weir_ctx *head)
{
    weir_channel *channel = weir_ctx_channel(head);
    weir_channel_extras *extras = finishing(channel);
    int64_t linger_ns = weir__channel_option(channel, WEIR_OPTION_LINGER_NS);
    bool has_progress = weir__channel_sent_bytes(channel) != extras->sent_before;
    extras->sent_before = weir__channel_sent_bytes(channel);
    if (!has_progress || weir_ctx_schedule(head, timer, linger_ns) < 0)
        weir__channel_close_now(channel, NULL);
}

/* False without memory for a timer. */
static bool begin_looking(weir_channel *channel, weir_channel_extras *extras, int64_t linger_ns)
{
    extras->sent_before = weir__channel_sent_bytes(channel);
    extras->linger.fire = look_for_progress;
    return weir_ctx_schedule(&channel->pipeline.head, &extras->linger, linger_ns) == 0;
}

/* Whether a handler has something to say to a shutdown: it may hold bytes that were flushed. */
static bool has_last_words(const weir_channel *channel)
{
    const weir_ctx *first = channel->pipeline.tail.prev;
    while ((first->mask & 1u << WEIR_OP_SHUTDOWN) == 0)
        first = first->prev;
    return first != &channel->pipeline.head;
}

void weir__finish_input_ended(weir_channel *channel)
{
    bool has_answers = weir__outbound_has_flushed(&channel->out.queue) || channel->out.is_lent ||
                       has_last_words(channel);
    int64_t linger_ns = weir__channel_option(channel, WEIR_OPTION_LINGER_NS);
    weir_channel_extras *extras = has_answers && linger_ns > 0 ? weir__channel_need_extras(channel)
                                                               : NULL;
    if (extras == NULL || !begin_looking(channel, extras, linger_ns)) {
        weir__channel_close_now(channel, NULL);
        return;
    }
    extras->is_finishing = true;
    weir_channel_shutdown(channel, NULL); /* and when that is done, it closes */
}

static bool begin_shutdown(weir_channel *channel, weir_channel_extras *extras);

static void shut_again(weir_ctx_timer *timer, weir_ctx *head)
{
    weir_channel *channel = weir_ctx_channel(head);
    (void)timer;
    if (!channel->out.is_ended && !begin_shutdown(channel, finishing(channel)))
        close_at_last(channel);
}

/* Somebody's shutdown waits in a handler, for bytes that have to go first. When it gets to the
 * head, that goes on here; but it may also fail there, so this looks now and then. False without
 * memory.
 */
static bool wait_for_another(weir_channel *channel, weir_channel_extras *extras)
{
    extras->linger.fire = shut_again;
    return channel->out.is_ended ||
           weir_ctx_schedule(&channel->pipeline.head, &extras->linger, WEIR_SECONDS(1)) == 0;
}

/* A shutdown that fails, or that a handler forgets, ends it as well; one that a handler has done in
 * its own way counts as done. */
static void on_shutdown(weir_listener *listener, weir_future *future)
{
    weir_channel_extras *extras = WEIR_CONTAINER(listener, weir_channel_extras, on_shutdown);
    weir_channel *channel = extras->channel;
    int code = weir_future_code(future);
    if (code >= 0 || weir__channel_is_closing(channel))
        weir__finish_output_shut(channel);
    else if (code != -EALREADY || !wait_for_another(channel, extras))
        close_at_last(channel);
    weir_channel_release(channel);
}

void weir__finish_closed(weir_channel *channel)
{
    weir_channel_extras *extras = finishing(channel);
    if (extras == NULL)
        return;
    weir_ctx_cancel(&channel->pipeline.head, &extras->linger);
    weir_promise *promise = extras->finish_promise;
    extras->finish_promise = NULL;
    weir__promises_add(&channel->life.close_promises, promise);
    weir_promise_release(promise);
}

/* Through the pipeline, for handlers may have something to say at the end. */
static bool begin_shutdown(weir_channel *channel, weir_channel_extras *extras)
{
    weir_promise *promise = weir_channel_promise(channel);
    if (promise == NULL)
        return false;
    extras->on_shutdown = (weir_listener){ .done = on_shutdown, .dropped = on_shutdown };
    weir_channel_retain(channel);
    weir_future_listen(weir_promise_future(promise), &extras->on_shutdown);
    weir_channel_shutdown(channel, promise);
    weir_promise_release(promise);
    return true;
}

/* On the loop. */
static void finish_now(weir_channel *channel, weir_promise *promise)
{
    if (weir__channel_is_closing(channel)) {
        weir__channel_close_now(channel, promise); /* handlers know, and may be asking for this */
        return;
    }
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    if (extras == NULL || !weir__channel_was_active(channel)) {
        weir_channel_close(channel, promise); /* nothing to bring to an end, or no memory for it */
        return;
    }
    if (extras->is_finishing) {
        weir__promise_end(promise, -EALREADY);
        return;
    }
    extras->is_finishing = true;
    extras->finish_promise = weir_promise_retain(promise);
    /* It reads from here on, however much is left to send: if the peer finishes as well, and both
     * stopped reading until they are writable, neither would ever be. */
    weir_channel_set_read_hold(channel, &channel->in.unwritable_hold, false);
    if (channel->out.is_shut)
        weir__finish_output_shut(channel);
    else if (!channel->out.is_ended && !begin_shutdown(channel, extras))
        close_at_last(channel);
}

typedef struct finish_call {
    weir_call call;
    weir_promise *promise;
} finish_call;

static void run_finish(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    finish_call *self = WEIR_CONTAINER(call, finish_call, call);
    finish_now(channel, self->promise);
    weir_promise_release(self->promise);
    weir__free(self);
}

void weir_channel_finish(weir_channel *channel, weir_promise *promise)
{
    if (channel == NULL) {
        weir__promise_end(promise, -EINVAL);
        return;
    }
    weir_owner owner = weir__channel_owner(channel);
    if (owner == WEIR_OWNER_NOBODY) {
        weir_channel_close(channel, promise);
        return;
    }
    if (owner == WEIR_OWNER_ME) {
        finish_now(channel, promise);
        return;
    }
    finish_call *call = weir__alloc(sizeof *call);
    if (call == NULL) {
        weir_channel_close(channel, promise);
        return;
    }
    *call = (finish_call){ .call.run = run_finish, .promise = weir_promise_retain(promise) };
    weir__inbox_push(channel, &call->call);
}
