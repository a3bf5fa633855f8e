/* SPDX-License-Identifier: MIT */
/* The inbox of a channel. */
#include "channel/inbox.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "channel/lane.h"

#include <errno.h>
#include <string.h>

/*
 * Calls wait in a stack that any thread pushes to. One task, which is part of the channel, takes
 * them to the loop, so the order of each caller's calls holds also when the channel moves.
 *
 * `is_inbox_posted` is a baton: the thread that sets it performs the calls, or posts the task.
 * While it is set the channel is kept alive. A channel is handed to another loop by the holder of
 * the baton alone, on the loop it comes from: if the new loop refuses the task, the channel is
 * still here, and closes here. Once a channel is on no loop, because its loop has terminated or it
 * never had one, the holder performs the calls on its own thread; no other thread does meanwhile.
 */

static void drain(weir_channel *channel);

/* The baton was just taken, or is held: takes the task where the channel is. */
static void post(weir_channel *channel)
{
    if (weir__channel_post(channel, &channel->inbox_task) < 0)
        drain(channel);
}

static void schedule(weir_channel *channel)
{
    if (atomic_exchange_explicit(&channel->is_inbox_posted, true, memory_order_seq_cst))
        return;
    weir_channel_retain(channel);
    post(channel);
}

void weir__inbox_put(weir_channel *channel, weir_call *call)
{
    weir__mpsc_push_to(&channel->inbox, &call->node);
}

void weir__inbox_push(weir_channel *channel, weir_call *call)
{
    weir__inbox_put(channel, call);
    schedule(channel);
}

/* Before it has a loop a channel is its maker's, and what is kept for the loop must not be
 * performed yet; but a close need not wait. */
static void miss_without_loop(weir_channel *channel, uint8_t missed)
{
    if (missed & (WEIR__MISSED_CLOSE | WEIR__MISSED_MESSAGE))
        weir__channel_close_now(channel, NULL);
}

void weir__inbox_push_missed(weir_channel *channel, uint8_t missed)
{
    atomic_fetch_or_explicit(&channel->missed, missed, memory_order_seq_cst);
    if (weir__channel_loop(channel) == NULL && weir__channel_owner(channel) == WEIR_OWNER_ME)
        miss_without_loop(channel, missed);
    else
        schedule(channel);
}

static bool is_going_elsewhere(const weir_channel *channel)
{
    return channel->is_going && !weir_executor_is_current(&channel->going_to->base);
}

void weir__inbox_follow(weir_channel *channel, bool is_here)
{
    if (!is_here) {
        schedule(channel);
    } else if (!atomic_exchange_explicit(&channel->is_inbox_posted, true, memory_order_seq_cst)) {
        weir_channel_retain(channel);
        drain(channel);
    } else if (channel->is_going && !is_going_elsewhere(channel)) {
        weir__channel_arrive(channel); /* the calls come with the task */
    }
}

static bool has_more(weir_channel *channel)
{
    return atomic_load_explicit(&channel->inbox, memory_order_seq_cst) != NULL ||
           atomic_load_explicit(&channel->missed, memory_order_seq_cst) != 0;
}

static void perform_missed_message(weir_channel *channel)
{
    if (!weir__channel_is_closing(channel))
        weir__channel_lost(channel, atomic_load_explicit(&channel->lost, memory_order_relaxed));
}

/* A caller that has lost a message of a stream and goes on must not leave a gap: the calls that it
 * has pushed since then come after this. */
static void look_for_missed_message(weir_channel *channel)
{
    uint8_t missed = atomic_load_explicit(&channel->missed, memory_order_seq_cst);
    if (missed & WEIR__MISSED_MESSAGE && channel->transport->is_stream)
        perform_missed_message(channel);
}

static void perform_missed(weir_channel *channel)
{
    uint8_t missed = atomic_exchange_explicit(&channel->missed, 0, memory_order_seq_cst);
    if (missed == 0 && atomic_load_explicit(&channel->is_losing, memory_order_relaxed))
        atomic_store_explicit(&channel->is_losing, false, memory_order_relaxed);
    if (missed & WEIR__MISSED_WEIGH && !weir__channel_is_closing(channel))
        weir__channel_weigh_anew(channel);
    if (missed & WEIR__MISSED_PAUSE)
        weir__channel_update_reading(channel);
    if (missed & WEIR__MISSED_FLUSH)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_FLUSH });
    if (missed & WEIR__MISSED_READ)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_READ });
    if (missed & WEIR__MISSED_MESSAGE)
        perform_missed_message(channel);
    if (missed & WEIR__MISSED_CLOSE)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_CLOSE });
}

/* From the store of the loop on, other threads may see it; but calls wait for the baton, which goes
 * with the task. True: the channel is the other loop's. False: it has been closed here. */
static bool hand_over(weir_channel *channel)
{
    weir_loop *before = weir__channel_loop(channel), *loop = channel->going_to;
    if (before != NULL)
        weir__executor_retain(&before->base);
    weir__executor_retain(&loop->base);
    weir__channel_set_loop(channel, loop);
    int code = weir__executor_post_always(&loop->base, &channel->inbox_task);
    if (code < 0) {
        weir__channel_set_loop(channel, before);
        weir__channel_not_taken(channel, code);
    }
    weir__executor_release(&loop->base);
    if (before != NULL)
        weir__executor_release(&before->base);
    return code == 0;
}

/* Performs the calls that are there now. False when there is more, for the task's next run: the
 * channel goes to another loop, or has come to this one and its handlers are notified first. */
static bool perform(weir_channel *channel)
{
    size_t count;
    weir_mpsc_node *last;
    if (channel->calls == NULL)
        channel->calls = weir__mpsc_take_from(&channel->inbox, &last, &count);
    while (channel->calls != NULL || channel->is_going) {
        if (is_going_elsewhere(channel))
            return false;
        if (channel->is_going) {
            weir__channel_arrive(channel);
            if (channel->is_news_queued)
                return false;
            continue;
        }
        look_for_missed_message(channel);
        weir_call *call = WEIR_CONTAINER(channel->calls, weir_call, node);
        channel->calls = call->node.next;
        call->run(&channel->home, call);
    }
    /* What was kept while these were performed is still in front of what comes next. */
    channel->has_kept = channel->has_kept &&
                        atomic_load_explicit(&channel->inbox, memory_order_seq_cst) != NULL;
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

/* Gives the baton away when there is nothing left; false when there is, and it is held again. */
static bool let_baton_go(weir_channel *channel)
{
    atomic_store_explicit(&channel->is_inbox_posted, false, memory_order_seq_cst);
    return !has_more(channel) ||
           atomic_exchange_explicit(&channel->is_inbox_posted, true, memory_order_seq_cst);
}

/* The baton is held, and its reference for it. */
static void drain(weir_channel *channel)
{
    for (;;) {
        if (is_going_elsewhere(channel)) {
            if (hand_over(channel))
                return;
        } else if (perform_visited(channel)) {
            if (let_baton_go(channel)) {
                weir_channel_release(channel);
                return;
            }
            /* More calls came: after what else the loop has to do. */
            if (weir__channel_post(channel, &channel->inbox_task) == 0)
                return;
        } else if (!is_going_elsewhere(channel) &&
                   weir__channel_post(channel, &channel->inbox_task) == 0) {
            return;
        }
    }
}

int weir__inbox_run(weir_task *task)
{
    weir_channel *channel = WEIR_CONTAINER(task, weir_channel, inbox_task);
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
    weir_ctx *from;
    weir_event event;
    size_t weight; /* of a write, as counted in inbox_bytes */
    bool flushes;
    _Alignas(8) char room[];
} event_call;

static void run_event(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    event_call *self = WEIR_CONTAINER(call, event_call, call);
    if (self->weight > 0)
        atomic_fetch_sub_explicit(&channel->inbox_bytes, self->weight, memory_order_relaxed);
    if (self->from == NULL)
        weir__event_enter_from_outside(channel, &self->event);
    else if (!weir__lane_refuses(self->from, &self->event))
        weir__event_pass(self->from, &self->event);
    if (self->flushes)
        weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_FLUSH });
    weir_promise_release(self->event.promise);
    weir__free(self);
}

/* Whether what other threads write is more than may be queued. */
static bool is_too_much(const weir_channel *channel, const weir_event *event)
{
    size_t most = (size_t)weir__channel_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES);
    return event->kind == WEIR_OP_WRITE &&
           atomic_load_explicit(&channel->inbox_bytes, memory_order_relaxed) > most;
}

/* What a handler elsewhere passes on must not follow something that was lost: the channel is being
 * closed for that. */
static bool is_behind_a_loss(const weir_ctx *from, const weir_event *event)
{
    return from != NULL && event->kind == WEIR_EV_READ && weir__ctx_lane(from)->is_losing;
}

static void drop_for_memory(weir_channel *channel, const weir_ctx *from, const weir_event *event)
{
    if (from != NULL && event->kind == WEIR_EV_READ)
        weir__ctx_lane(from)->is_losing = true;
    weir__event_drop(channel, event, -ENOMEM);
}

static size_t count_write(weir_channel *channel, const weir_event *event)
{
    size_t weight = weir__write_weight(weir_msg_size(event->msg));
    atomic_fetch_add_explicit(&channel->inbox_bytes, weight, memory_order_relaxed);
    if (weir__channel_pending_bytes(channel) > channel->high_bytes)
        atomic_store_explicit(&channel->is_inbox_full, true, memory_order_release);
    return weight;
}

/* NULL when it cannot be carried, and then it has been dropped. */
static weir_call *new_event_call(weir_channel *channel, weir_ctx *from, const weir_event *event,
                                 bool flushes)
{
    if (is_too_much(channel, event)) {
        weir__event_drop(channel, event, WEIR_ELIMIT);
        return NULL;
    }
    if (is_behind_a_loss(from, event)) {
        weir_msg_release(event->msg);
        return NULL;
    }
    event_call *self = weir__alloc(sizeof *self + weir__event_room(event));
    if (self == NULL) {
        if (from == NULL || !weir__lane_goes_on(from, event))
            drop_for_memory(channel, from, event);
        return NULL;
    }
    *self = (event_call){ .call.run = run_event, .from = from, .flushes = flushes };
    weir__event_copy(&self->event, event, self->room);
    if (event->kind == WEIR_OP_WRITE)
        self->weight = count_write(channel, event);
    return &self->call;
}

void weir__inbox_send(weir_channel *channel, weir_ctx *from, const weir_event *event, bool flushes)
{
    weir_call *call = new_event_call(channel, from, event, flushes);
    if (call != NULL)
        weir__inbox_push(channel, call);
}

void weir__inbox_keep(weir_channel *channel, const weir_event *event, bool flushes)
{
    weir_call *call = new_event_call(channel, NULL, event, flushes);
    if (call == NULL)
        return;
    weir__inbox_put(channel, call);
    channel->has_kept = true;
}
