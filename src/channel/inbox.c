/* SPDX-License-Identifier: MIT */
/* The inbox of a channel. */
#include "channel/inbox.h"

#include "base/alloc.h"
#include "channel/extras.h"

#include <errno.h>
#include <string.h>

/*
 * Calls wait in a stack that any thread pushes to. One task, which is part of the channel, takes
 * them to the loop, so the order of each caller's calls holds also when the channel moves.
 *
 * The thread that sets `is_posted` owns the inbox until it clears it: it performs the calls, or
 * posts the task, which then owns it. The channel has a reference for as long. Only the owner moves
 * the channel to another loop, on the loop that it leaves: if the new loop rejects the task, the
 * channel has not moved, and closes here. On no loop, because that has terminated or there never
 * was one, the owner performs the calls on its own thread, and no other thread does meanwhile.
 */

static void drain(weir_channel *channel);

/* Owns the inbox: posts the task to the loop of the channel. */
static void post(weir_channel *channel)
{
    if (weir__channel_post(channel, &channel->inbox.task) < 0)
        drain(channel);
}

static void schedule(weir_channel *channel)
{
    if (atomic_exchange_explicit(&channel->inbox.is_posted, true, memory_order_seq_cst))
        return;
    weir_channel_retain(channel);
    post(channel);
}

void weir__inbox_push(weir_channel *channel, weir_call *call)
{
    weir__mpsc_push_to(&channel->inbox.head, &call->node);
    schedule(channel);
}

/* Before it has a loop a channel is its maker's, and what is kept for the loop must not be
 * performed yet; but a close need not wait. */
static void miss_without_loop(weir_channel *channel, uint16_t missed)
{
    if (missed & WEIR__MISSED_RESET)
        weir__channel_reset_now(channel);
    else if (missed & (WEIR__MISSED_CLOSE | WEIR__MISSED_MESSAGE))
        weir__channel_close_now(channel, NULL);
}

void weir__inbox_push_missed(weir_channel *channel, uint16_t missed)
{
    atomic_fetch_or_explicit(&channel->inbox.missed, missed, memory_order_seq_cst);
    if (weir__channel_loop(channel) == NULL && weir__channel_owner(channel) == WEIR_OWNER_ME)
        miss_without_loop(channel, missed);
    else
        schedule(channel);
}

static bool is_attaching(const weir_channel *channel)
{
    return weir__channel_state(channel) == WEIR_LIFE_ATTACHING;
}

static bool is_for_another_loop(const weir_channel *channel)
{
    return is_attaching(channel) && !weir_executor_is_current(&channel->life.target->base);
}

void weir__inbox_drain_here(weir_channel *channel)
{
    if (!atomic_exchange_explicit(&channel->inbox.is_posted, true, memory_order_seq_cst)) {
        weir_channel_retain(channel);
        drain(channel);
    } else if (is_attaching(channel) && !is_for_another_loop(channel)) {
        weir__channel_arrive(channel); /* the calls come with the task */
    }
}

static bool has_more(weir_channel *channel)
{
    return atomic_load_explicit(&channel->inbox.head, memory_order_seq_cst) != NULL ||
           atomic_load_explicit(&channel->inbox.missed, memory_order_seq_cst) != 0;
}

static void perform_missed_message(weir_channel *channel)
{
    if (!weir__channel_is_closing(channel))
        weir__channel_lost(channel,
                           atomic_load_explicit(&channel->inbox.lost, memory_order_relaxed));
}

/* A reset takes effect before calls that were pushed later. So does the loss of a message of a
 * stream, which closes the channel: later writes must not follow a gap. */
static void perform_missed_before_calls(weir_channel *channel)
{
    uint16_t missed = channel->inbox.due |
                      atomic_load_explicit(&channel->inbox.missed, memory_order_seq_cst);
    if (missed & WEIR__MISSED_RESET)
        weir__channel_reset_now(channel);
    if (missed & WEIR__MISSED_MESSAGE && channel->transport->is_stream)
        perform_missed_message(channel);
}

static void perform_missed(weir_channel *channel)
{
    uint16_t missed = channel->inbox.due;
    channel->inbox.due = 0;
    if (missed & WEIR__MISSED_RESET)
        weir__channel_reset_now(channel);
    if (missed == 0 && atomic_load_explicit(&channel->inbox.is_losing, memory_order_relaxed))
        atomic_store_explicit(&channel->inbox.is_losing, false, memory_order_relaxed);
    if (missed & WEIR__MISSED_WEIGH && !weir__channel_is_closing(channel))
        weir__channel_update_writability_again(channel);
    if (missed & WEIR__MISSED_PAUSE)
        weir__channel_update_reading(channel);
    if (missed & WEIR__MISSED_FLUSH)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_FLUSH });
    if (missed & WEIR__MISSED_READ)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_READ });
    if (missed & WEIR__MISSED_MESSAGE)
        perform_missed_message(channel);
    if (missed & WEIR__MISSED_OTHER)
        weir__channel_recheck(channel);
    if (missed & WEIR__MISSED_DRAIN && !weir__channel_is_closing(channel))
        weir__event_enter(channel,
                          &(weir_event){ .kind = WEIR_EV_EVENT, .msg = &weir_event_draining });
    if (missed & WEIR__MISSED_CLOSE)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_CLOSE });
}

static void set_kept(weir_channel *channel, bool has_kept)
{
    atomic_store_explicit(&channel->inbox.has_kept, has_kept, memory_order_relaxed);
}

/* Other threads see the new loop from the store on, but the task owns the inbox, so calls wait for
 * it. True: the channel belongs to the other loop. False: it has been closed here. */
static bool post_to_target(weir_channel *channel)
{
    weir_loop *before = weir__channel_loop(channel), *loop = channel->life.target;
    if (before != NULL)
        weir__executor_retain(&before->base);
    weir__executor_retain(&loop->base);
    set_kept(channel, true); /* the target loop may call before its task runs */
    weir__channel_set_loop(channel, loop);
    int code = weir__executor_post_always(&loop->base, &channel->inbox.task);
    if (code < 0) {
        weir__channel_set_loop(channel, before);
        weir__channel_reject(channel, code);
    }
    weir__executor_release(&loop->base);
    if (before != NULL)
        weir__executor_release(&before->base);
    return code == 0;
}

static void update_kept(weir_channel *channel)
{
    if (channel->inbox.calls == NULL &&
        atomic_load_explicit(&channel->inbox.head, memory_order_seq_cst) == NULL)
        set_kept(channel, false);
}

/* Takes the bits first: all calls that a thread pushed before it set a bit are then taken as well.
 */
static void take_calls(weir_channel *channel)
{
    size_t count;
    weir_mpsc_node *last;
    channel->inbox.due |= atomic_exchange_explicit(&channel->inbox.missed, 0, memory_order_seq_cst);
    channel->inbox.calls = weir__mpsc_take_from(&channel->inbox.head, &last, &count);
}

/* Performs the calls that are there now. False when there is more, for the task's next run: the
 * channel goes to another loop, or has come to this one and its handlers are notified first. */
static bool perform(weir_channel *channel)
{
    if (channel->inbox.calls == NULL)
        take_calls(channel);
    while (channel->inbox.calls != NULL || is_attaching(channel)) {
        if (is_for_another_loop(channel))
            return false;
        if (is_attaching(channel)) {
            update_kept(channel);
            weir__channel_arrive(channel);
            if (channel->life.is_advancing)
                return channel->inbox.calls == NULL;
            continue;
        }
        perform_missed_before_calls(channel);
        weir_call *call = WEIR_CONTAINER(channel->inbox.calls, weir_call, node);
        channel->inbox.calls = call->node.next;
        call->run(&channel->shared.home, call);
    }
    update_kept(channel); /* calls that were kept meanwhile precede later calls */
    weir__channel_inbox_emptied(channel);
    perform_missed(channel);
    return true;
}

static bool perform_visited(weir_channel *channel)
{
    weir_visit visit;
    weir__visit_begin(&visit, weir__channel_describe, channel);
    bool is_done = perform(channel);
    weir__visit_end(&visit);
    return is_done;
}

/* Gives the inbox up if it is empty. False: there are calls, and the caller owns it again. The
 * owner alone may read `due`, so it does that first. */
static bool give_up_inbox(weir_channel *channel)
{
    bool has_due = channel->inbox.due != 0;
    atomic_store_explicit(&channel->inbox.is_posted, false, memory_order_seq_cst);
    return (!has_due && !has_more(channel)) ||
           atomic_exchange_explicit(&channel->inbox.is_posted, true, memory_order_seq_cst);
}

/* Owns the inbox, with its reference. */
static void drain(weir_channel *channel)
{
    for (;;) {
        if (is_for_another_loop(channel)) {
            if (post_to_target(channel))
                return;
        } else if (perform_visited(channel)) {
            if (give_up_inbox(channel)) {
                weir_channel_release(channel);
                return;
            }
            /* More calls came: after what else the loop has to do. */
            if (weir__channel_post(channel, &channel->inbox.task) == 0)
                return;
        } else if (!is_for_another_loop(channel) &&
                   weir__channel_post(channel, &channel->inbox.task) == 0) {
            return;
        }
    }
}

int weir__inbox_run(weir_task *task)
{
    weir_channel *channel = WEIR_CONTAINER(task, weir_channel, inbox.task);
    if (weir__channel_is_mine(channel))
        drain(channel);
    else
        post(channel);
    return 0;
}

/* On the thread that ends the loop. */
void weir__inbox_dropped(weir_task *task)
{
    weir__inbox_run(task);
}

/* Carrying events ---------------------------------------------------------------------------- */

size_t weir__event_room(const weir_event *event)
{
    return (event->error != NULL ? sizeof *event->error : 0) +
           (event->address != NULL ? sizeof *event->address : 0) +
           (event->local != NULL ? sizeof *event->local : 0);
}

void weir__event_copy(weir_event *to, const weir_event *from, void *room)
{
    *to = *from;
    weir_promise_retain(to->promise);
    weir_address *addresses = room;
    if (from->error != NULL)
        to->error = memcpy(room, from->error, sizeof *from->error);
    if (from->address != NULL)
        to->address = memcpy(addresses++, from->address, sizeof *from->address);
    if (from->local != NULL)
        to->local = memcpy(addresses, from->local, sizeof *from->local);
}

typedef struct event_call {
    weir_call call;
    weir_event event;
    size_t weight; /* of a write, as counted in inbox.bytes */
    bool flushes;
    _Alignas(8) char room[];
} event_call;

static void run_event(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    event_call *self = WEIR_CONTAINER(call, event_call, call);
    weir__inbox_uncount(channel, self->weight);
    weir__event_enter_from_outside(channel, &self->event);
    if (self->flushes)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_FLUSH });
    weir_promise_release(self->event.promise);
    weir__free(self);
}

bool weir__inbox_is_over_limit(const weir_channel *channel, const weir_event *event)
{
    size_t max = (size_t)weir__channel_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES);
    return event->kind == WEIR_OP_WRITE &&
           atomic_load_explicit(&channel->inbox.bytes, memory_order_relaxed) > max;
}

size_t weir__inbox_count(weir_channel *channel, const weir_event *event)
{
    if (event->kind != WEIR_OP_WRITE)
        return 0;
    size_t weight = weir__write_weight(weir_msg_size(event->msg));
    atomic_fetch_add_explicit(&channel->inbox.bytes, weight, memory_order_relaxed);
    if (weir__channel_pending_bytes(channel) > channel->out.high_bytes)
        atomic_store_explicit(&channel->inbox.is_full, true, memory_order_release);
    return weight;
}

void weir__inbox_uncount(weir_channel *channel, size_t weight)
{
    if (weight > 0)
        atomic_fetch_sub_explicit(&channel->inbox.bytes, weight, memory_order_relaxed);
}

/* NULL when it cannot be carried, and then it has been dropped. */
static weir_call *new_event_call(weir_channel *channel, const weir_event *event, bool flushes)
{
    if (weir__inbox_is_over_limit(channel, event)) {
        weir__event_drop(channel, event, WEIR_ELIMIT);
        return NULL;
    }
    event_call *self = weir__alloc(sizeof *self + weir__event_room(event));
    if (self == NULL) {
        weir__event_drop(channel, event, -ENOMEM);
        return NULL;
    }
    *self = (event_call){ .call.run = run_event, .flushes = flushes };
    weir__event_copy(&self->event, event, self->room);
    self->weight = weir__inbox_count(channel, event);
    return &self->call;
}

void weir__inbox_send(weir_channel *channel, const weir_event *event, bool flushes)
{
    weir_call *call = new_event_call(channel, event, flushes);
    if (call != NULL)
        weir__inbox_push(channel, call);
}

void weir__inbox_keep(weir_channel *channel, const weir_event *event, bool flushes)
{
    weir_call *call = new_event_call(channel, event, flushes);
    if (call == NULL)
        return;
    weir__mpsc_push_to(&channel->inbox.head, &call->node);
    set_kept(channel, true);
}
