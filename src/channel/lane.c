/* SPDX-License-Identifier: MIT */
/* Handlers on executors of their own. */
#include "channel/lane.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "channel/timer.h"
#include "exec/executor.h"

#include <weir/log.h>

#include <errno.h>

/*
 *      loop                                executor
 *   weir__lane_send  --- parcel --->   run_parcel: the handler
 *                                        weir_ctx_fire_read ---.
 *   continue from the context <-- inbox: event call -----------'
 *   come_back        <-- inbox: the parcel itself
 *
 * Everything goes through two queues that keep the order, so the order of events holds. The list of
 * contexts is the loop's alone. A context stays until its last parcel is back.
 *
 * weir_event_switched has its place in that order, too. But the switch has been made when it sets
 * out, so each message that is still before it, on either way, is refused.
 */

void weir__lane_init(weir_lane *lane, weir_executor *executor)
{
    lane->executor = executor;
    weir__list_init(&lane->timers);
}

uint32_t weir__lane_mask(const weir_handler_type *type)
{
    uint32_t inbound = (2u << WEIR_EV_ERROR) - 1, all = (2u << WEIR_OP_DEREGISTER) - 1;
    uint32_t wanted = weir__handler_mask(type), mask = 0;
    if (wanted & inbound)
        mask |= inbound;
    if (wanted & (all & ~inbound))
        mask |= all & ~inbound;
    return mask;
}

/* It has ended, or could not begin: whoever performs the last calls stands in for it. */
static bool is_nobody(const weir_executor *executor)
{
    weir_executor_state state = weir_executor_get_state(executor);
    return state == WEIR_EXECUTOR_TERMINATED || state == WEIR_EXECUTOR_NOT_STARTED;
}

bool weir__ctx_is_here(const weir_ctx *ctx)
{
    if (ctx->is_elsewhere) {
        const weir_executor *executor = weir__ctx_lane(ctx)->executor;
        return weir_executor_is_current(executor) || is_nobody(executor);
    }
    return weir__channel_is_mine(ctx->channel) ||
           is_nobody(&weir__channel_loop(ctx->channel)->base);
}

bool weir__ctx_fail_added(weir_ctx *ctx, const weir_error *error)
{
    weir_lane *lane = weir__ctx_lane(ctx);
    bool is_adding = lane != NULL ? lane->is_adding : ctx->state == WEIR_CTX_ADDING;
    weir_error *failure = lane != NULL ? lane->failure : weir__ctx_member(ctx)->failure;
    if (is_adding && failure->code == 0) /* the first one counts */
        *failure = *error;
    return is_adding;
}

/* Under the lock. */
static weir_executor *pinned(const weir_channel_extras *extras, const weir_group *group)
{
    const weir_pin *pin = extras->pins;
    while (pin != NULL && pin->group != group)
        pin = pin->next;
    return pin != NULL ? pin->executor : NULL;
}

/* The one that serves the channel already, or the group's next. Its chooser is the user's, so it is
 * not asked under the lock. */
weir_executor *weir__lane_pin(weir_channel *channel, weir_group *group)
{
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    if (extras == NULL)
        return NULL;
    weir__channel_lock(channel);
    weir_executor *executor = pinned(extras, group);
    weir__channel_unlock(channel);
    weir_pin *pin = executor == NULL ? weir__alloc(sizeof *pin) : NULL;
    if (pin == NULL)
        return executor;
    weir_executor *chosen = weir_group_next(group);
    weir__channel_lock(channel);
    executor = pinned(extras, group);
    if (executor == NULL) {
        *pin = (weir_pin){ extras->pins, group, chosen };
        extras->pins = pin;
        pin = NULL;
        executor = chosen;
    }
    weir__channel_unlock(channel);
    weir__free(pin);
    return executor;
}

/* On the loop ---------------------------------------------------------------------------------- */

static void count_away(weir_ctx *ctx, int step)
{
    weir_channel *channel = ctx->channel;
    int64_t most = weir__channel_option(channel, WEIR_OPTION_MAX_EVENTS_AWAY);
    channel->away += (uint32_t)step;
    weir__ctx_lane(ctx)->away += (unsigned)step;
    if (channel->away > most)
        weir__channel_set_pause(channel, WEIR__PAUSE_AWAY, true);
    else if (channel->away <= most / 2)
        weir__channel_set_pause(channel, WEIR__PAUSE_AWAY, false);
}

static void end_channel(weir_ctx *ctx, int code)
{
    weir_error error;
    weir_channel *channel = ctx->channel;
    if (weir__channel_is_closing(channel))
        return;
    weir_error_set(&error, code, ctx->type->name, "could not be reached on its executor: %s",
                   weir_error_text(code));
    weir__event_pass(ctx, &(weir_event){ .kind = WEIR_EV_ERROR, .error = &error });
    weir__channel_close_now(channel, NULL);
}

static bool is_switch(const weir_event *event)
{
    return event->kind == WEIR_EV_EVENT && event->msg == &weir_event_switched;
}

static void count_switching(weir_ctx *ctx, int step)
{
    weir__channel_extras(ctx->channel)->switching += (unsigned)step;
    weir__ctx_lane(ctx)->switching += (unsigned)step;
}

/* The event is on its way to a handler, or to one before it. */
static bool is_before_switch(const weir_ctx *ctx)
{
    const weir_channel_extras *extras = weir__channel_extras(ctx->channel);
    if (extras->switching == 0)
        return false;
    while (ctx != NULL && (!ctx->is_elsewhere || weir__ctx_lane(ctx)->switching == 0))
        ctx = ctx->prev;
    return ctx != NULL;
}

/* As a handler does that keeps a message; what is behind it must not get further either. */
static void refuse_switch(weir_ctx *ctx, weir_msg *msg)
{
    weir_error error;
    weir_lane *lane = weir__ctx_lane(ctx);
    weir_msg_release(msg);
    if (lane->is_missing || weir__channel_is_closing(ctx->channel))
        return;
    lane->is_missing = true;
    weir_error_set(&error, WEIR_ETLS_SWITCHED, ctx->type->name,
                   "a message on its way to it or from it, from before the switch");
    weir__event_pass(ctx, &(weir_event){ .kind = WEIR_EV_ERROR, .error = &error });
    weir__event_pass(ctx, &(weir_event){ .kind = WEIR_OP_CLOSE });
}

bool weir__lane_refuses(weir_ctx *ctx, const weir_event *event)
{
    bool is_refused = event->kind == WEIR_EV_READ && is_before_switch(ctx);
    if (is_refused)
        refuse_switch(ctx, event->msg);
    return is_refused;
}

/* The executor has ended, or there is no memory. What a handler was to see must not go past it
 * unseen, or it would wait for that for ever: the channel ends. But that it has ended goes on. */
static void not_delivered(weir_ctx *ctx, const weir_event *event, int code)
{
    weir_error error;
    weir_channel *channel = ctx->channel;
    switch (event->kind) {
    case WEIR_EV_READ:
        weir__ctx_lane(ctx)->is_missing = true;
        weir_msg_release(event->msg);
        end_channel(ctx, code);
        break;
    case WEIR_EV_EVENT:
        weir_msg_release(event->msg);
        end_channel(ctx, code);
        break;
    case WEIR_EV_REGISTERED:
    case WEIR_EV_ACTIVE:
    case WEIR_EV_READ_COMPLETE:
    case WEIR_EV_WRITABILITY:
        weir__event_pass(ctx, event);
        end_channel(ctx, code);
        break;
    case WEIR_EV_ERROR:
        weir__event_pass(ctx, event);
        weir__channel_close_now(channel, NULL);
        break;
    case WEIR_EV_ADDED:
        weir_error_set(&error, code, ctx->type->name, "could not be added on its executor: %s",
                       weir_error_text(code));
        weir__ctx_added_elsewhere(ctx, &error);
        break;
    case WEIR_EV_REMOVED:
        /* Its executor has terminated, or has no thread: none can be using its state. */
        weir__ctx_lane(ctx)->is_removed = true;
        weir__ctx_lane(ctx)->is_on_loop = true;
        weir__ctx_timers_cancel(ctx);
        weir__event_call(ctx, event);
        break;
    case WEIR_OP_WRITE:
        weir__event_drop(channel, event, code);
        break;
    default:
        weir__event_pass(ctx, event); /* to close, above all, must go on */
        break;
    }
}

static void flush_is_back(weir_ctx *ctx)
{
    weir_lane *lane = weir__ctx_lane(ctx);
    bool owes_flush = lane->owes_flush;
    lane->is_flush_away = lane->owes_flush = false;
    if (owes_flush)
        weir__lane_send(ctx, &(weir_event){ .kind = WEIR_OP_FLUSH });
}

static void come_back(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    weir_parcel *parcel = WEIR_CONTAINER(call, weir_parcel, back);
    weir_ctx *ctx = parcel->ctx;
    weir_lane *lane = weir__ctx_lane(ctx);
    const weir_error *failure = weir__parcel_room(parcel);
    if (parcel->code == WEIR_ETLS_SWITCHED)
        refuse_switch(ctx, parcel->event.msg);
    else if (parcel->code < 0)
        not_delivered(ctx, &parcel->event, parcel->code);
    else if (parcel->goes_on && !weir__lane_refuses(ctx, &parcel->event))
        weir__event_pass(ctx, &parcel->event);
    else if (parcel->event.kind == WEIR_EV_ADDED)
        weir__ctx_added_elsewhere(ctx, failure->code < 0 ? failure : NULL);
    weir_promise_release(parcel->event.promise);
    if (is_switch(&parcel->event))
        count_switching(ctx, -1);
    if (parcel == &lane->flush)
        flush_is_back(ctx);
    else if (parcel != &lane->removal)
        weir__free(parcel);
    count_away(ctx, -1);
    weir__ctx_returned(ctx);
    weir__channel_try_to_go(channel);
    weir_channel_release(channel);
}

/* On the executor ------------------------------------------------------------------------------ */

/* It has set out before a switch that has been made since. Which the handler is just being called
 * for when that happens is its own, but what it passes on then is refused on the loop. */
static bool is_from_before(weir_lane *lane, const weir_event *event)
{
    if (is_switch(event))
        atomic_fetch_sub_explicit(&lane->switches, 1, memory_order_relaxed);
    return event->kind == WEIR_EV_READ &&
           atomic_load_explicit(&lane->switches, memory_order_relaxed) > 0;
}

static void call_handler(weir_ctx *ctx, weir_parcel *parcel)
{
    weir_lane *lane = weir__ctx_lane(ctx);
    if (is_from_before(lane, &parcel->event)) {
        parcel->code = WEIR_ETLS_SWITCHED;
        return;
    }
    switch (parcel->event.kind) {
    case WEIR_EV_ADDED:
        lane->failure = weir__parcel_room(parcel);
        lane->failure->code = 0;
        lane->is_adding = true;
        weir__event_call(ctx, &parcel->event);
        lane->is_adding = false;
        lane->is_failed = lane->failure->code < 0;
        break;
    case WEIR_EV_REMOVED:
        lane->is_removed = true;
        weir__ctx_timers_cancel(ctx);
        weir__event_call(ctx, &parcel->event);
        break;
    default:
        if (lane->is_failed &&
            !lane->is_optional) { /* nothing may go past it: the channel closes */
            parcel->code = WEIR_ECLOSED;
            break;
        }
        if (parcel->event.kind == WEIR_EV_READ && lane->is_losing) {
            parcel->code = WEIR_ECLOSED; /* no message follows a lost one */
            break;
        }
        /* What it has no callback for was carried all the same, so that it keeps its place; and
         * what came too late for a handler that is leaving passes it by. */
        parcel->goes_on = lane->is_removed || lane->is_failed ||
                          (weir__handler_mask(ctx->type) & 1u << parcel->event.kind) == 0;
        if (parcel->goes_on)
            break;
        lane->current = parcel;
        weir__event_call(ctx, &parcel->event);
        lane->current = NULL;
        break;
    }
}

/* With it goes what keeps the channel alive, and with that the loop: both are held until this
 * thread has stopped touching them. */
static void send_back(weir_parcel *parcel)
{
    weir_channel *channel = weir_channel_retain(parcel->ctx->channel);
    weir_loop *loop = weir__channel_retain_loop(channel);
    weir__inbox_push(channel, &parcel->back);
    weir_channel_release(channel);
    if (loop != NULL)
        weir__executor_release(&loop->base);
}

static int run_parcel(weir_task *task)
{
    weir_parcel *parcel = WEIR_CONTAINER(task, weir_parcel, task);
    weir_visit visit;
    weir__visit_begin(&visit, weir__ctx_describe, parcel->ctx);
    call_handler(parcel->ctx, parcel);
    weir__visit_end(&visit);
    send_back(parcel);
    return 0;
}

static void drop_parcel(weir_task *task)
{
    weir_parcel *parcel = WEIR_CONTAINER(task, weir_parcel, task);
    parcel->code = WEIR_ESHUTDOWN;
    send_back(parcel);
}

/* Without memory to carry it: an event with nothing but its name, which is what the handler was
 * called for, can go back with the parcel. */
bool weir__lane_goes_on(weir_ctx *ctx, const weir_event *event)
{
    weir_parcel *parcel = weir__ctx_lane(ctx)->current;
    bool is_bare = event->msg == NULL && event->promise == NULL && event->error == NULL;
    if (parcel == NULL || !is_bare || parcel->event.kind != event->kind)
        return false;
    parcel->goes_on = true;
    return true;
}

/* Sending -------------------------------------------------------------------------------------- */

static weir_parcel *new_parcel(weir_ctx *ctx, const weir_event *event)
{
    weir_lane *lane = weir__ctx_lane(ctx);
    if (event->kind == WEIR_EV_REMOVED)
        return &lane->removal;
    size_t room = event->kind == WEIR_EV_ADDED ? sizeof(weir_error) : weir__event_room(event);
    weir_parcel *parcel = weir__alloc(sizeof *parcel + room);
    if (parcel == NULL && event->kind == WEIR_OP_FLUSH && !lane->is_flush_away) {
        lane->is_flush_away = true;
        parcel = &lane->flush;
    }
    return parcel;
}

void weir__lane_send(weir_ctx *ctx, const weir_event *event)
{
    if (event->kind == WEIR_EV_ADDED)
        weir__ctx_lane(ctx)->is_optional = weir__ctx_lane(ctx)->promise != NULL &&
                                           !ctx->type->is_switch;
    if (event->kind == WEIR_EV_READ && weir__ctx_lane(ctx)->is_missing) {
        weir_msg_release(event->msg); /* the channel is being closed for the one before */
        return;
    }
    weir_parcel *parcel = new_parcel(ctx, event);
    if (parcel == NULL && event->kind == WEIR_OP_FLUSH) {
        weir__ctx_lane(ctx)->owes_flush = true;
        return;
    }
    if (parcel == NULL) {
        not_delivered(ctx, event, -ENOMEM);
        return;
    }
    *parcel = (weir_parcel){ .ctx = ctx, .back.run = come_back };
    parcel->task =
        (weir_task){ .run = run_parcel, .dropped = drop_parcel, .name = ctx->type->name };
    weir__event_copy(&parcel->event, event, weir__parcel_room(parcel));
    count_away(ctx, 1);
    if (is_switch(event)) {
        count_switching(ctx, 1);
        atomic_fetch_add_explicit(&weir__ctx_lane(ctx)->switches, 1, memory_order_relaxed);
    }
    weir_channel_retain(ctx->channel);
    weir_lane *lane = weir__ctx_lane(ctx);
    /* An executor without a thread may get one for the next parcel, which must not come first. */
    if (lane->rejected == 0)
        lane->rejected = weir__executor_post_always(lane->executor, &parcel->task);
    if (lane->rejected < 0) {
        parcel->code = lane->rejected;
        weir__inbox_push(ctx->channel, &parcel->back); /* behind what is on its way back */
    }
}
