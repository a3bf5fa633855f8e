/* SPDX-License-Identifier: MIT */
/* How a channel gets to a loop, leaves it, and moves to another. */
#include "base/alloc.h"
#include "channel/extras.h"
#include "channel/inbox.h"
#include "channel/timer.h"
#include "exec/executor.h"
#include "exec/per_channel.h"

#include <weir/log.h>

#include <errno.h>

/* The target ----------------------------------------------------------------------------------- */

/* A channel that attaches or moves keeps its target. */
static void set_target(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    weir__executor_retain(&loop->base);
    channel->life.target = loop;
    channel->life.target_promise = weir_promise_retain(promise);
    channel->life.has_target = true;
}

/* A group may have kept a loop that a channel does not get to. */
static void give_place_back(weir_channel *channel, weir_executor *executor)
{
    if (channel->life.has_place)
        weir__group_give_back(executor->group, executor);
    channel->life.has_place = false;
}

/* It has got there, or will not: returns the promise of that. */
static weir_promise *take_target(weir_channel *channel)
{
    weir_loop *loop = channel->life.target;
    weir_promise *promise = channel->life.target_promise;
    channel->life.has_target = false;
    give_place_back(channel, &loop->base);
    weir__executor_release(&loop->base);
    return promise;
}

void weir__channel_forget_target(weir_channel *channel, int code)
{
    if (!channel->life.has_target)
        return;
    weir_promise *promise = take_target(channel);
    weir__channel_end_promise(&promise, code);
}

/* Attaching ------------------------------------------------------------------------------------ */

static void log_rejected(const weir_channel *channel, const char *why)
{
    weir_log(WEIR_LOG_WARN, "channel", "%08llx: closed by force, because no event loop took it: %s",
             (unsigned long long)channel->id, why);
}

void weir__channel_reject(weir_channel *channel, int code)
{
    weir_promise *promise = take_target(channel);
    log_rejected(channel, weir_error_text(code));
    weir__channel_close_now(channel, NULL);
    weir__channel_end_promise(&promise, code);
}

static int attach(weir_channel *channel, weir_loop *loop)
{
    int code = weir__loop_add(loop, &channel->life.member);
    if (code == 0 && channel->transport->attach != NULL) {
        code = channel->transport->attach(channel);
        if (code < 0)
            weir__loop_remove(loop, &channel->life.member);
    }
    return code;
}

void weir__channel_arrive(weir_channel *channel)
{
    weir_loop *loop = channel->life.target;
    if (weir__channel_loop(channel) != loop)
        weir__channel_set_loop(channel, loop);
    int code = attach(channel, loop);
    if (code < 0) {
        weir__channel_reject(channel, code);
        return;
    }
    channel->life.has_place = false; /* it is there, and the loop knows */
    weir_promise *promise = take_target(channel);
    channel->life.is_held = true; /* by the loop, until it has left */
    weir_channel_retain(channel);
    channel->out.queue.spare = &loop->writes;
    weir__life_step(&channel->life.state, WEIR_LIFE_ARRIVE);
    weir__channel_resume_timers(channel);
    weir__pipeline_call_added(&channel->pipeline);
    if (channel->life.needs_init)
        weir__channel_init_child(channel);
    weir__channel_end_promise(&promise, 0);
    weir__channel_advance(channel);
}

/* Continues reads and writes that waited for the loop, or for the channel to be active. */
static void resume(weir_channel *channel, bool is_moved)
{
    if (channel->in.is_wanted || (is_moved && channel->in.is_auto_read))
        weir__channel_read_now(channel);
    if (weir__outbound_has_flushed(&channel->out.queue) || channel->out.is_ended)
        weir__channel_resume_output(channel);
}

/* A transport that is connected or bound makes the channel active, on each loop that it gets to. */
bool weir__attach_advance(weir_channel *channel)
{
    const weir_transport *transport = channel->transport;
    if (!channel->life.is_registered_told) {
        channel->life.is_registered_told = true;
        weir__channel_fire(channel, WEIR_EV_REGISTERED);
        if (transport->is_active == NULL || !transport->is_active(channel) ||
            !weir__channel_is_attached(channel))
            return true;
        channel->life.is_active = true;
        if (channel->life.is_active_told)
            resume(channel, true);
        return true;
    }
    if (!channel->life.is_active || channel->life.is_active_told)
        return false;
    channel->life.is_active_told = true;
    weir__channel_fire(channel, WEIR_EV_ACTIVE);
    resume(channel, false);
    return true;
}

void weir__channel_activate(weir_channel *channel)
{
    if (!weir__channel_is_attached(channel))
        return;
    channel->life.is_active = true;
    weir__channel_advance(channel);
}

/* Notices of a channel run on the loop that it is on. */
static bool has_no_notice(const weir_channel *channel)
{
    return !channel->out.is_writability_queued && !channel->life.is_advancing;
}

/* It is on no loop, and goes to its target now, with its inbox. */
static void begin_attaching(weir_channel *channel)
{
    weir__life_step(&channel->life.state, WEIR_LIFE_ATTACH);
    weir__inbox_drain_here(channel);
}

/* 0 if the channel may go to a loop: it is on none or leaves it, and is on its way to none. */
static int check_free(const weir_channel *channel)
{
    weir_life_state state = weir__channel_state(channel);
    bool is_free = state == WEIR_LIFE_DETACHED || state == WEIR_LIFE_DETACHING;
    if (state >= WEIR_LIFE_CLOSING)
        return WEIR_ECLOSED;
    return is_free && !channel->life.has_target ? 0 : WEIR_EREGISTERED;
}

/* On the loop that the channel was on, or, before the first, by its maker. It leaves a loop when no
 * callback of it is under way there any more. */
static void attach_to(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    set_target(channel, loop, promise);
    if (weir__channel_loop(channel) == NULL && has_no_notice(channel))
        begin_attaching(channel);
    else
        weir__channel_advance(channel);
}

static void register_now(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    int code = check_free(channel);
    if (code < 0)
        weir__promise_end(promise, code);
    else
        attach_to(channel, loop, promise);
}

static const char *why_rejected(int code)
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
        log_rejected(channel, why_rejected(code));
        weir__channel_close_now(channel, NULL);
        weir__promise_end(promise, code);
        return;
    }
    weir_loop *loop = need_loop(executor, promise);
    if (loop == NULL)
        return;
    channel->life.has_place = true;
    attach_to(channel, loop, promise);
}

/* Detaching ------------------------------------------------------------------------------------ */

static bool is_quiet(weir_channel *channel)
{
    return !channel->in.is_batch_open && channel->life.removed_contexts == 0 &&
           channel->transport->quiesce(channel, false);
}

/* The listeners of the promise run before on_unregistered. */
static void leave(weir_channel *channel)
{
    if (channel->transport->detach != NULL)
        channel->transport->detach(channel);
    weir__channel_stop_timers(channel);
    channel->out.queue.spare = NULL;
    weir__loop_remove(weir__channel_loop(channel), &channel->life.member);
    weir__life_step(&channel->life.state, WEIR_LIFE_LEAVE);
    channel->life.is_active = false;
    weir__channel_end_promise(&channel->life.detach_promise, 0);
    weir__channel_advance(channel);
    channel->life.is_held = false;
    weir_channel_release(channel);
}

/* The old loop frees removed handlers, and fires what is to be fired, before the channel goes; and
 * the deregistration of a move must not take it off its new loop. */
static bool may_go(const weir_channel *channel)
{
    const weir_channel_extras *extras = weir__channel_extras(channel);
    return channel->life.has_target && channel->life.removed_contexts == 0 &&
           has_no_notice(channel) && (extras == NULL || !extras->is_leave_pending);
}

bool weir__detach_advance(weir_channel *channel)
{
    if (weir__channel_state(channel) == WEIR_LIFE_DETACHING) {
        if (!is_quiet(channel))
            return weir__attach_advance(channel); /* meanwhile */
        leave(channel);
        return false;
    }
    if (channel->life.is_registered_told) {
        channel->life.is_registered_told = false;
        weir__channel_fire(channel, WEIR_EV_UNREGISTERED);
        return true;
    }
    if (may_go(channel))
        begin_attaching(channel); /* and from then on it is another thread's */
    return false;
}

void weir__channel_deregister_now(weir_channel *channel, weir_promise *promise)
{
    int code = weir__life_step(&channel->life.state, WEIR_LIFE_DETACH);
    if (code < 0) {
        weir__promise_end(promise, code);
        return;
    }
    channel->life.detach_promise = weir_promise_retain(promise);
    weir__channel_update_reading(channel);
    weir__channel_advance(channel);
}

/* Moving --------------------------------------------------------------------------------------- */

/* A handler may keep it from leaving. If another deregistration was faster, it is off its loop all
 * the same. */
static void on_leave(weir_listener *listener, weir_future *future)
{
    weir_channel_extras *extras = WEIR_CONTAINER(listener, weir_channel_extras, on_leave);
    weir_channel *channel = extras->channel;
    int code = weir_future_code(future);
    bool is_off = weir__channel_state(channel) == WEIR_LIFE_DETACHED;
    extras->is_leave_pending = false;
    if (code == 0 || code == -EALREADY)
        code = is_off ? 0 : code == 0 ? -ECANCELED : code; /* or a handler says so, untruly */
    if (code < 0)
        weir__channel_forget_target(channel, code);
    else
        weir__channel_advance(channel);
    weir_channel_release(channel);
}

static void begin_move(weir_channel *channel, weir_channel_extras *extras, weir_promise *leave)
{
    extras->on_leave = (weir_listener){ .done = on_leave, .dropped = on_leave };
    extras->is_leave_pending = true;
    weir_channel_retain(channel);
    weir_future_listen(weir_promise_future(leave), &extras->on_leave);
    weir__event_enter(channel, &(weir_event){ .kind = WEIR_OP_DEREGISTER, .promise = leave });
}

static void move_now(weir_channel *channel, weir_loop *loop, weir_promise *promise)
{
    weir_life_state state = weir__channel_state(channel);
    if (state != WEIR_LIFE_ATTACHED) {
        register_now(channel, loop, promise);
        return;
    }
    if (channel->life.has_target) {
        weir__promise_end(promise, -EALREADY);
        return;
    }
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    weir_promise *leave = extras != NULL ? weir_channel_promise(channel) : NULL;
    if (leave == NULL) {
        weir__promise_end(promise, -ENOMEM);
        return;
    }
    set_target(channel, loop, promise);
    begin_move(channel, extras, leave);
    weir_promise_release(leave);
}

/* From any thread ------------------------------------------------------------------------------ */

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
    loop_call *self = WEIR_CONTAINER(call, loop_call, call);
    go_now(weir__channel_at(home), self->to, self->promise);
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
            weir__inbox_push_missed(channel, WEIR__MISSED_CLOSE); /* no caller would know */
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

void weir_channel_move(weir_channel *channel, weir_executor *loop, weir_promise *promise)
{
    go_to(channel, loop, promise, true);
}
