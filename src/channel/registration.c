/* SPDX-License-Identifier: MIT */
/* How a channel comes to a loop, leaves it, and goes to another. */
#include "channel/registration.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "channel/inbox.h"
#include "channel/timer.h"
#include "exec/executor.h"
#include "exec/per_channel.h"

#include <weir/log.h>

#include <errno.h>

/* It does not get to the loop that a group keeps for it. */
static void give_place_back(weir_channel *channel)
{
    if (!channel->has_place)
        return;
    channel->has_place = false;
    weir__group_give_back(channel->place->group, channel->place);
}

/* A move on its way keeps the loop it goes to. */
static void plan_move(weir_channel_extras *extras, weir_loop *loop, weir_promise *promise)
{
    weir__executor_retain(&loop->base);
    extras->move_to = loop;
    extras->move_promise = weir_promise_retain(promise);
}

static void forget_move(weir_channel_extras *extras, int code)
{
    weir_loop *loop = extras->move_to;
    extras->move_to = NULL;
    give_place_back(extras->channel);
    weir__channel_end_promise(&extras->move_promise, code);
    weir__executor_release(&loop->base);
}

bool weir__channel_is_moving(const weir_channel *channel)
{
    const weir_channel_extras *extras = weir__channel_extras(channel);
    return extras != NULL && extras->move_to != NULL;
}

void weir__channel_forget_move(weir_channel *channel)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    if (extras != NULL && extras->move_to != NULL)
        forget_move(extras, WEIR_ECLOSED);
}

/* Coming --------------------------------------------------------------------------------------- */

#define NOT_TAKEN "closed by force, because no event loop took it"

/* It has got to the loop it was handed to, or does not get there. */
static void end_going(weir_channel *channel)
{
    weir_loop *loop = channel->going_to;
    channel->is_going = false;
    weir__executor_release(&loop->base);
}

/* Row 121. */
void weir__channel_not_taken(weir_channel *channel, int code)
{
    weir_promise *promise = channel->loop_promise;
    channel->loop_promise = NULL;
    if (channel->is_going)
        end_going(channel);
    give_place_back(channel);
    weir_log(WEIR_LOG_WARN, "channel", "%08llx: " NOT_TAKEN ": %s", (unsigned long long)channel->id,
             weir_error_text(code));
    if (weir__lifecycle_begin_close(&channel->life) == 0)
        weir__channel_close_transport(channel);
    weir__promise_end(promise, code);
    weir_promise_release(promise);
}

static int attach(weir_channel *channel, weir_loop *loop)
{
    int code = weir__loop_add(loop, &channel->resident);
    if (code == 0 && channel->transport->attach != NULL) {
        code = channel->transport->attach(channel);
        if (code < 0)
            weir__loop_remove(loop, &channel->resident);
    }
    return code;
}

void weir__channel_arrive(weir_channel *channel)
{
    weir_loop *loop = channel->going_to;
    if (weir__channel_loop(channel) != loop)
        weir__channel_set_loop(channel, loop);
    end_going(channel); /* the channel itself holds its loop */
    if (weir__channel_is_closing(channel)) {
        give_place_back(channel);
        weir__channel_end_promise(&channel->loop_promise, WEIR_ECLOSED);
        return;
    }
    int code = attach(channel, loop);
    if (code < 0) {
        weir__channel_not_taken(channel, code);
        return;
    }
    channel->has_place = false; /* it is there, and the loop knows */
    if (!channel->is_held_by_loop) {
        channel->is_held_by_loop = true;
        weir_channel_retain(channel);
    }
    channel->spare = &loop->writes;
    weir__lifecycle_register(&channel->life);
    weir__channel_resume_timers(channel);
    /* `added` may begin the next step already. */
    weir_promise *promise = channel->loop_promise;
    channel->loop_promise = NULL;
    channel->is_settling = true;
    weir__pipeline_call_added(&channel->pipeline);
    channel->is_settling = false;
    weir__channel_end_promise(&promise, 0);
    weir__channel_queue_news(channel);
    weir__channel_try_to_leave(channel);
}

/* It is on no loop, and goes to this one now. */
static void hand_over(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    if (weir__lifecycle_state(&channel->life) >= WEIR_CHANNEL_CLOSING) {
        give_place_back(channel);
        weir__promise_end(promise, WEIR_ECLOSED);
        return;
    }
    if (channel->is_going) {
        weir__promise_end(promise, WEIR_EREGISTERED);
        return;
    }
    channel->loop_promise = weir_promise_retain(promise);
    weir__executor_retain(&loop->base);
    channel->going_to = loop;
    channel->is_going = true;
    weir__inbox_follow(channel, true);
}

/* Something is still to be told on this thread. */
static void hand_over_later(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    if (extras == NULL)
        give_place_back(channel);
    if (extras == NULL || extras->move_to != NULL) {
        weir__promise_end(promise, extras == NULL ? -ENOMEM : WEIR_EREGISTERED);
        return;
    }
    plan_move(extras, loop, promise);
    weir__channel_queue_news(channel);
}

/* On the loop that the channel was on, or, before the first, by who made it. */
static void register_now(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    weir_channel_state state = weir__lifecycle_state(&channel->life);
    /* From a loop it leaves when no callback of its is under way any more. */
    bool is_busy = weir__channel_loop(channel) != NULL || channel->is_writability_queued;
    if (state == WEIR_CHANNEL_OPEN && is_busy)
        hand_over_later(channel, loop, promise);
    else if (state == WEIR_CHANNEL_OPEN)
        hand_over(channel, loop, promise);
    else
        weir__promise_end(promise, state >= WEIR_CHANNEL_CLOSING ? WEIR_ECLOSED : WEIR_EREGISTERED);
}

/* Whether it may go to a loop: it is on none, and on its way to none. */
static int check_free(const weir_channel *channel)
{
    weir_channel_state state = weir__lifecycle_state(&channel->life);
    bool is_going = channel->is_going || weir__channel_is_moving(channel);
    if (state >= WEIR_CHANNEL_CLOSING)
        return WEIR_ECLOSED;
    return state == WEIR_CHANNEL_OPEN && !is_going ? 0 : WEIR_EREGISTERED;
}

static const char *why_not_taken(int code)
{
    return code == WEIR_ELIMIT      ? "too many channels"
           : code == WEIR_ESHUTDOWN ? "the group is shutting down"
                                    : weir_error_text(code);
}

/* NULL when it is none. */
static weir_loop *need_loop(weir_executor *executor, weir_promise *promise)
{
    weir_loop *loop = weir_executor_loop(executor);
    if (loop == NULL) {
        weir_log(WEIR_LOG_WARN, "channel", "incompatible event loop type: %s, a %s executor",
                 weir_executor_name(executor), executor->type->name);
        weir__promise_end(promise, WEIR_ELOOPTYPE);
    }
    return loop;
}

static void register_with_group_now(weir_channel *channel, weir_group *group, weir_promise *promise)
{
    int code = check_free(channel);
    weir_executor *executor = NULL;
    if (code < 0) {
        weir__promise_end(promise, code);
        return;
    }
    code = weir__group_take(group, &executor);
    if (code < 0) {
        weir_log(WEIR_LOG_WARN, "channel", "%08llx: " NOT_TAKEN ": %s",
                 (unsigned long long)channel->id, why_not_taken(code));
        weir__channel_close_now(channel, NULL);
        weir__promise_end(promise, code);
        return;
    }
    weir_loop *loop = need_loop(executor, promise);
    if (loop == NULL)
        return;
    channel->place = executor;
    channel->has_place = true;
    register_now(channel, loop, promise);
}

static void move_now(weir_channel *channel, weir_loop *loop, weir_promise *promise);

/* Where it shall go. */
typedef struct goal {
    weir_loop *loop;
    weir_group *group; /* instead: to a loop of it */
    bool is_move;
} goal;

static void go_now(weir_channel *channel, goal to, weir_promise *promise)
{
    if (to.group != NULL)
        register_with_group_now(channel, to.group, promise);
    else if (to.is_move)
        move_now(channel, to.loop, promise);
    else
        register_now(channel, to.loop, promise);
}

typedef struct loop_call {
    weir_call call;
    goal to;
    weir_promise *promise;
} loop_call;

static void retain_goal(goal to)
{
    if (to.group != NULL)
        weir__group_retain(to.group);
    else
        weir__executor_retain(&to.loop->base);
}

static void release_goal(goal to)
{
    if (to.group != NULL)
        weir__group_release(to.group);
    else
        weir__executor_release(&to.loop->base);
}

static void run_loop_call(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    loop_call *self = WEIR_CONTAINER(call, loop_call, call);
    go_now(channel, self->to, self->promise);
    release_goal(self->to);
    weir_promise_release(self->promise);
    weir__free(self);
}

static void go(weir_channel *channel, goal to, weir_promise *promise)
{
    weir_owner owner = weir__channel_owner(channel);
    if (owner == WEIR_OWNER_NOBODY) {
        weir__promise_end(promise, WEIR_ECLOSED);
        return;
    }
    if (owner == WEIR_OWNER_ME) {
        go_now(channel, to, promise);
        return;
    }
    loop_call *call = weir__alloc(sizeof *call);
    if (call == NULL) {
        weir__promise_end(promise, -ENOMEM);
        if (promise == NULL)
            weir__inbox_push_missed(channel, WEIR__MISSED_CLOSE); /* nobody would know */
        return;
    }
    *call = (loop_call){ .call.run = run_loop_call, .to = to };
    retain_goal(to);
    call->promise = weir_promise_retain(promise);
    weir__inbox_push(channel, &call->call);
}

static void go_to(weir_channel *channel, weir_executor *executor, weir_promise *promise,
                  bool is_move)
{
    if (channel == NULL || executor == NULL) {
        weir__promise_end(promise, -EINVAL);
        return;
    }
    weir_loop *loop = need_loop(executor, promise);
    if (loop != NULL)
        go(channel, (goal){ .loop = loop, .is_move = is_move }, promise);
}

void weir_group_register(weir_group *group, weir_channel *channel, weir_promise *promise)
{
    if (group == NULL || channel == NULL)
        weir__promise_end(promise, -EINVAL);
    else if (group->per_channel == NULL) /* a call on its way keeps the loop, if not the group */
        go_to(channel, weir__group_choose(group), promise, false);
    else
        go(channel, (goal){ .group = group }, promise);
}

void weir_channel_register(weir_channel *channel, weir_executor *loop, weir_promise *promise)
{
    go_to(channel, loop, promise, false);
}

/* Leaving -------------------------------------------------------------------------------------- */

void weir__channel_try_to_leave(weir_channel *channel)
{
    if (!channel->is_leaving || channel->is_settling || channel->is_batch_open ||
        channel->resting > 0 || weir__channel_is_closing(channel) ||
        !channel->transport->quiesce(channel, false))
        return;
    channel->is_leaving = false;
    channel->pauses &= (uint8_t)~WEIR__PAUSE_LEAVING;
    if (channel->transport->detach != NULL)
        channel->transport->detach(channel);
    weir__channel_stop_timers(channel);
    channel->spare = NULL;
    weir__loop_remove(weir__channel_loop(channel), &channel->resident);
    weir__lifecycle_deregister(&channel->life);
    weir__channel_end_promise(&channel->loop_promise, 0);
    /* The loop's reference goes when everything is told; until then the news hold one. */
    weir__channel_queue_news(channel);
    if (channel->is_held_by_loop) {
        channel->is_held_by_loop = false;
        weir_channel_release(channel);
    }
}

void weir__channel_deregister_now(weir_channel *channel, weir_promise *promise)
{
    if (weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_OPEN || channel->is_leaving) {
        weir__promise_end(promise, -EALREADY);
        return;
    }
    channel->is_leaving = true;
    channel->loop_promise = weir_promise_retain(promise);
    weir__channel_set_pause(channel, WEIR__PAUSE_LEAVING, true);
    weir__channel_try_to_leave(channel);
}

/* Moving --------------------------------------------------------------------------------------- */

/* Off its loop, does it know where to go? */
void weir__channel_go_elsewhere(weir_channel *channel)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    if (extras == NULL || extras->move_to == NULL ||
        weir__lifecycle_state(&channel->life) != WEIR_CHANNEL_OPEN)
        return;
    if (extras->is_leave_pending)
        return; /* it would take the channel off its new loop; on_leave goes on */
    if (channel->is_news_queued)
        return; /* then it will be asked again, when nothing is left to be told here */
    if (channel->resting > 0)
        return; /* this loop frees handlers of its; when that is done, there is news */
    if (channel->is_writability_queued) {
        weir__channel_queue_news(channel); /* behind what is still to be told here */
        return;
    }
    weir_loop *loop = extras->move_to;
    weir_promise *promise = extras->move_promise;
    extras->move_to = NULL;
    extras->move_promise = NULL;
    hand_over(channel, loop, promise);
    weir__executor_release(&loop->base);
    weir_promise_release(promise);
}

/* A handler may keep it from leaving. If another deregistration was faster, it is off its loop all
 * the same. */
static void on_leave(weir_listener *listener, weir_future *future)
{
    weir_channel_extras *extras = WEIR_CONTAINER(listener, weir_channel_extras, on_leave);
    weir_channel *channel = extras->channel;
    int code = weir_future_code(future);
    bool is_off = weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_OPEN;
    extras->is_leave_pending = false;
    if (code == -EALREADY && is_off)
        code = 0;
    if (code == 0 && !is_off)
        code = -ECANCELED; /* a handler said so, but it is not true */
    if (code < 0 && extras->move_to != NULL)
        forget_move(extras, code);
    else if (is_off && extras->move_to != NULL)
        weir__channel_queue_news(channel);
    weir_channel_release(channel);
}

static void move_now(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    if (weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_OPEN) {
        register_now(channel, loop, promise);
        return;
    }
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    weir_promise *leave = extras != NULL ? weir_channel_promise(channel) : NULL;
    bool is_closing = weir__channel_is_closing(channel);
    if (leave == NULL || is_closing || channel->is_leaving || extras->move_to != NULL) {
        weir__promise_end(promise, is_closing ? WEIR_ECLOSED : leave == NULL ? -ENOMEM : -EALREADY);
        weir__promise_end(leave, -ECANCELED);
        weir_promise_release(leave);
        return;
    }
    plan_move(extras, loop, promise);
    extras->on_leave = (weir_listener){ .done = on_leave, .dropped = on_leave };
    extras->is_leave_pending = true;
    weir_channel_retain(channel);
    weir_future_listen(weir_promise_future(leave), &extras->on_leave);
    weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_DEREGISTER, .promise = leave });
    weir_promise_release(leave);
}

void weir_channel_move(weir_channel *channel, weir_executor *loop, weir_promise *promise)
{
    go_to(channel, loop, promise, true);
}
