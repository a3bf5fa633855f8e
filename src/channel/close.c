/* SPDX-License-Identifier: MIT */
/* How a channel closes, and what advances its life. */
#include "channel/extras.h"
#include "channel/inbox.h"

/* Advancing ------------------------------------------------------------------------------------ */

void weir__channel_fire(weir_channel *channel, weir_event_kind kind)
{
    weir_visit visit;
    weir__visit_begin(&visit, weir__channel_describe, channel);
    weir__pipeline_fire(channel, kind);
    weir__visit_end(&visit);
}

/* Takes the next step, if one can be taken: each may be the last on this thread. */
static bool take_step(weir_channel *channel)
{
    switch (weir__channel_state(channel)) {
    case WEIR_LIFE_ATTACHED:
        return weir__attach_advance(channel);
    case WEIR_LIFE_DETACHING:
    case WEIR_LIFE_DETACHED:
        return weir__detach_advance(channel);
    case WEIR_LIFE_CLOSED:
    case WEIR_LIFE_ENDED:
        return weir__close_advance(channel);
    case WEIR_LIFE_ATTACHING: /* arrives by its inbox */
    case WEIR_LIFE_CLOSING:   /* waits for weir__channel_quiesced */
        break;
    }
    return false;
}

static void advance(weir_channel *channel)
{
    channel->life.is_advancing = false;
    while (take_step(channel)) {
    }
    weir_channel_release(channel);
}

static void run_notice(weir_notice *notice)
{
    advance(WEIR_CONTAINER(notice, weir_channel, life.notice));
}

static void run_call(weir_home *home, weir_call *call)
{
    (void)call;
    advance(weir__channel_at(home));
}

/* Without a loop, events of offloaded handlers return on any thread: the inbox serialises them and
 * this. */
void weir__channel_advance(weir_channel *channel)
{
    if (channel->life.is_advancing)
        return;
    channel->life.is_advancing = true;
    weir_channel_retain(channel);
    if (weir__channel_loop(channel) == NULL && weir__channel_is_closing(channel)) {
        channel->life.call.run = run_call;
        weir__inbox_push(channel, &channel->life.call);
        return;
    }
    channel->life.notice.run = run_notice;
    weir__channel_queue_notice(channel, &channel->life.notice);
}

/* Closing -------------------------------------------------------------------------------------- */

void weir__channel_close_transport(weir_channel *channel)
{
    if (weir__life_step(&channel->life.state, WEIR_LIFE_STOP) < 0)
        return;
    channel->transport->close(channel);
    weir__outbound_fail(&channel->out.queue, WEIR_ECLOSED);
    channel->out.queue.spare = NULL;
    weir__finish_closed(channel);
    weir__channel_end_promise(&channel->out.shutdown_promise, WEIR_ECLOSED);
    weir__channel_end_promise(&channel->life.detach_promise, WEIR_ECLOSED);
    weir__channel_advance(channel);
}

static void close_deferred(weir_deferred *deferred)
{
    weir__channel_close_transport(WEIR_CONTAINER(deferred, weir_channel, life.deferred));
}

void weir__channel_quiesced(weir_channel *channel)
{
    if (weir__channel_is_closing(channel))
        weir__channel_close_transport(channel);
    else
        weir__channel_advance(channel);
}

/* Ends the operations in flight; the transport is closed when they have, but not in this turn. */
static void quiesce_and_close(weir_channel *channel)
{
    if (!channel->transport->quiesce(channel, true))
        return; /* weir__channel_quiesced follows */
    channel->life.deferred.run = close_deferred;
    if (!weir__loop_defer(weir__channel_loop(channel), &channel->life.deferred))
        weir__channel_close_transport(channel);
}

static void add_close_promise(weir_channel *channel, weir_promise *promise)
{
    if (channel->life.is_closed_told)
        weir__promise_end(promise, 0);
    else
        weir__promises_add(&channel->life.close_promises, promise);
}

static void close_with(weir_channel *channel, weir_promise *promise, bool sends)
{
    bool is_attached = weir__channel_is_attached(channel);
    bool is_active = weir__channel_is_active(channel);
    /* Flushed writes get one attempt; those that fail in it find the channel closing. */
    bool has_flushed = sends && weir__outbound_has_flushed(&channel->out.queue);
    if (weir__life_step(&channel->life.state, WEIR_LIFE_CLOSE) < 0) {
        add_close_promise(channel, promise);
        return;
    }
    weir__channel_forget_target(channel, WEIR_ECLOSED);
    weir__finish_closed(channel);
    weir__promises_add(&channel->life.close_promises, promise);
    if (is_active && has_flushed)
        channel->transport->flush(channel);
    channel->in.is_reading = false;
    if (is_attached) {
        quiesce_and_close(channel);
        return;
    }
    weir__channel_close_transport(channel);
    if (weir__channel_loop(channel) == NULL)
        weir__inbox_drain_here(channel); /* what waited for a loop fails */
}

void weir__channel_close_now(weir_channel *channel, weir_promise *promise)
{
    close_with(channel, promise, true);
}

/* Whatever is no socket closes without a reset. */
void weir__channel_reset_now(weir_channel *channel)
{
    const weir_transport *transport = channel->transport;
    if (transport->set_option != NULL)
        transport->set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS,
                              0); /* close without waiting for the peer */
    if (!weir__channel_is_closing(channel))
        close_with(channel, NULL, false);
}

void weir_channel_reset(weir_channel *channel)
{
    weir_owner owner = channel != NULL ? weir__channel_owner(channel) : WEIR_OWNER_NOBODY;
    if (owner == WEIR_OWNER_ME)
        weir__channel_reset_now(channel);
    else if (owner == WEIR_OWNER_OTHERS)
        weir__inbox_push_missed(channel, WEIR__MISSED_RESET);
}

/* Closed --------------------------------------------------------------------------------------- */

/* The turn in which its handlers were removed is over, and then the turn after. */
static void free_handlers(weir_deferred *deferred)
{
    weir_channel *channel = WEIR_CONTAINER(deferred, weir_channel, life.deferred);
    if (!channel->life.is_resting) {
        channel->life.is_resting = true;
        weir__loop_defer(weir_loop_current(), deferred);
        return;
    }
    weir__pipeline_free_removed(&channel->pipeline);
    channel->life.removed_contexts--;
    weir__channel_advance(channel);
    weir_channel_release(channel);
}

/* Without a loop there is nobody to wait for: they are freed with the channel. */
static void remove_handlers(weir_channel *channel)
{
    weir_loop *loop = weir__channel_loop(channel);
    channel->life.deferred.run = free_handlers;
    if (loop != NULL && weir__loop_defer(loop, &channel->life.deferred)) {
        channel->life.removed_contexts++; /* all of them as one */
        weir_channel_retain(channel);
    }
    weir__pipeline_remove_all(&channel->pipeline);
}

/* The events have to return from offloaded handlers before the handlers are removed. */
static bool fire_end(weir_channel *channel)
{
    if (channel->life.is_active_told) {
        channel->life.is_active_told = false;
        weir__channel_fire(channel, WEIR_EV_INACTIVE);
        return true;
    }
    if (channel->life.is_registered_told) {
        channel->life.is_registered_told = false;
        weir__channel_fire(channel, WEIR_EV_UNREGISTERED);
        return true;
    }
    if (channel->life.offloaded_events > 0 && !channel->life.is_abandoned)
        return false;
    weir__life_step(&channel->life.state, WEIR_LIFE_END);
    remove_handlers(channel);
    return true;
}

static bool has_pending_adds(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->inbox.pending_adds, memory_order_seq_cst) > 0;
}

/* `removed` of every handler has run: nothing of weir touches their arguments from here on. */
static void complete_closed(weir_channel *channel)
{
    if (channel->life.is_closed_told || channel->life.offloaded_events > 0)
        return;
    channel->life.is_closed_told = true;
    weir__promises_complete(&channel->life.close_promises, 0);
    weir__channel_complete_closed(channel);
    if (channel->life.is_counted)
        atomic_fetch_sub_explicit(&weir__channel_extras(channel->parent)->children, 1,
                                  memory_order_release);
}

/* It leaves its loop when that has freed every handler; but a loop that ends does not wait for
 * those on other executors. */
static void complete_and_leave_loop(weir_channel *channel)
{
    weir_loop *loop = weir__channel_loop(channel);
    if (has_pending_adds(channel))
        return;
    complete_closed(channel);
    if (channel->life.removed_contexts > 0 || loop == NULL ||
        (channel->life.offloaded_events > 0 && !channel->life.is_abandoned))
        return;
    bool was_held = channel->life.is_held;
    channel->life.is_held = false;
    if (weir__list_is_linked(&channel->life.member.node))
        weir__loop_remove(loop, &channel->life.member);
    weir__channel_set_loop(channel, NULL);
    if (was_held)
        weir_channel_release(channel);
}

bool weir__close_advance(weir_channel *channel)
{
    if (weir__channel_state(channel) == WEIR_LIFE_CLOSED)
        return fire_end(channel);
    complete_and_leave_loop(channel);
    return false;
}

/* The end of the loop -------------------------------------------------------------------------- */

/* Through the pipeline, for handlers may have last words; but it does not wait for them. */
static void on_loop_shutdown(weir_resident *member)
{
    weir_channel *channel = weir_channel_retain(WEIR_CONTAINER(member, weir_channel, life.member));
    weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_CLOSE });
    weir__channel_close_now(channel, NULL);
    weir_channel_release(channel);
}

/* The loop ends though something is in flight. Its own handlers are removed now, on its thread;
 * those on other executors whenever these get to it. */
static void on_loop_gone(weir_resident *member)
{
    weir_channel *channel = WEIR_CONTAINER(member, weir_channel, life.member);
    weir_channel_retain(channel);
    channel->life.is_abandoned = true;
    weir__channel_close_transport(channel);
    /* Once it has left, it belongs to other threads, and no notice of it may run here. */
    if (weir__channel_state(channel) == WEIR_LIFE_ENDED)
        complete_and_leave_loop(channel);
    else
        weir__channel_advance(channel);
    weir_channel_release(channel);
}

const weir_resident_type weir__channel_member_type = { .evict = on_loop_shutdown,
                                                       .abandon = on_loop_gone };

void weir__loop_each_channel(weir_loop *loop, void (*visit)(weir_channel *channel, void *arg),
                             void *arg)
{
    weir_list_node *next;
    for (weir_list_node *node = weir__list_first(&loop->residents); node != NULL; node = next) {
        weir_resident *member = WEIR_CONTAINER(node, weir_resident, node);
        next = weir__list_next(&loop->residents, node);
        if (member->type == &weir__channel_member_type)
            visit(WEIR_CONTAINER(member, weir_channel, life.member), arg);
    }
}
