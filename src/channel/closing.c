/* SPDX-License-Identifier: MIT */
/* How a channel closes. */
#include "channel/extras.h"
#include "channel/inbox.h"
#include "channel/registration.h"

static void let_go(weir_channel *channel)
{
    bool was_held = channel->is_held_by_loop;
    channel->is_held_by_loop = false;
    weir__channel_set_loop(channel, NULL);
    if (was_held)
        weir_channel_release(channel);
}

/* `removed` of every handler has run: nothing of weir touches their arguments from here on. */
static void complete_closed(weir_channel *channel)
{
    if (channel->is_closed_told || channel->away > 0)
        return;
    channel->is_closed_told = true;
    weir__promises_complete(&channel->close_promises, 0);
    weir__channel_tell_closed(channel);
    if (channel->is_counted)
        atomic_fetch_sub_explicit(&weir__channel_extras(channel->parent)->children, 1,
                                  memory_order_release);
}

void weir__channel_try_to_go(weir_channel *channel)
{
    weir_loop *loop = weir__channel_loop(channel);
    weir_channel_state state = weir__lifecycle_state(&channel->life);
    if (channel->resting == 0 && (state == WEIR_CHANNEL_OPEN || state == WEIR_CHANNEL_CLOSED))
        weir__channel_queue_news(
            channel); /* it may have waited for that to go elsewhere, or to be over */
    if (weir__lifecycle_state(&channel->life) != WEIR_CHANNEL_UNREGISTERED)
        return;
    complete_closed(channel);
    if (channel->resting > 0 || (channel->away > 0 && !channel->is_abandoned) || loop == NULL)
        return;
    if (weir__list_is_linked(&channel->resident.node))
        weir__loop_remove(loop, &channel->resident);
    let_go(channel);
}

void weir__channel_close_transport(weir_channel *channel)
{
    if (weir__lifecycle_closed(&channel->life) < 0)
        return;
    channel->transport->close(channel);
    weir__outbound_fail(&channel->outbound, channel->spare, WEIR_ECLOSED);
    channel->spare = NULL;
    weir__finish_closed(channel);
    weir__channel_forget_move(channel);
    weir__channel_end_promise(&channel->shutdown_promise, WEIR_ECLOSED);
    weir__channel_end_promise(&channel->loop_promise, WEIR_ECLOSED);
    weir__channel_queue_news(channel);
}

static void close_deferred(weir_deferred *deferred)
{
    weir__channel_close_transport(WEIR_CONTAINER(deferred, weir_channel, deferred));
}

void weir__channel_quiet(weir_channel *channel)
{
    if (weir__channel_is_closing(channel))
        weir__channel_close_transport(channel);
    else
        weir__channel_try_to_leave(channel);
}

void weir__channel_close_now(weir_channel *channel, weir_promise *promise)
{
    weir_channel_state state = weir__lifecycle_state(&channel->life);
    if (state >= WEIR_CHANNEL_CLOSING) {
        if (channel->is_closed_told)
            weir__promise_end(promise, 0);
        else
            weir__promises_add(&channel->close_promises, promise);
        return;
    }
    /* What was flushed gets one attempt; what fails in it finds the channel closing. */
    bool has_flushed = weir__outbound_has_flushed(&channel->outbound);
    weir__lifecycle_begin_close(&channel->life);
    weir__finish_closed(channel);
    weir__promises_add(&channel->close_promises, promise);
    if (state == WEIR_CHANNEL_ACTIVE && has_flushed)
        channel->transport->flush(channel);
    channel->is_reading = false;
    if (state == WEIR_CHANNEL_OPEN) { /* on no loop, so nothing can be under way */
        weir__channel_close_transport(channel);
        if (weir__channel_loop(channel) == NULL)
            weir__inbox_follow(channel, true); /* what waited for a loop fails */
        return;
    }
    if (!channel->transport->quiesce(channel, true))
        return; /* weir__channel_quiet follows */
    channel->deferred.run = close_deferred;
    if (!weir__loop_defer(weir__channel_loop(channel), &channel->deferred))
        weir__channel_close_transport(channel);
}

/* Through the pipeline, for handlers may have last words; but nobody waits for what they wait for.
 */
static void evict(weir_resident *resident)
{
    weir_channel *channel = weir_channel_retain(WEIR_CONTAINER(resident, weir_channel, resident));
    weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_CLOSE });
    weir__channel_close_now(channel, NULL);
    weir_channel_release(channel);
}

/* The loop ends though something is still under way. Its own handlers are removed now, on its
 * thread; those on other executors whenever these get to it. */
static void abandon(weir_resident *resident)
{
    weir_channel *channel = WEIR_CONTAINER(resident, weir_channel, resident);
    weir_channel_retain(channel);
    channel->is_abandoned = true;
    weir__channel_close_transport(channel);
    /* Once it has gone, it belongs to other threads, and no notice of it may run here. */
    if (weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_UNREGISTERED)
        weir__channel_try_to_go(channel);
    else
        weir__channel_queue_news(channel);
    weir_channel_release(channel);
}

const weir_resident_type weir__channel_resident_type = { .evict = evict, .abandon = abandon };

void weir__loop_each_channel(weir_loop *loop, void (*visit)(weir_channel *channel, void *arg),
                             void *arg)
{
    weir_list_node *next;
    for (weir_list_node *node = weir__list_first(&loop->residents); node != NULL; node = next) {
        weir_resident *resident = WEIR_CONTAINER(node, weir_resident, node);
        next = weir__list_next(&loop->residents, node);
        if (resident->type == &weir__channel_resident_type)
            visit(WEIR_CONTAINER(resident, weir_channel, resident), arg);
    }
}
