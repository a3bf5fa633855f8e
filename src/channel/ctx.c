/* SPDX-License-Identifier: MIT */
/* Contexts: a handler's place in a pipeline, from its coming to its going. */
#include "channel/ctx.h"

#include "base/alloc.h"
#include "channel/inbox.h"
#include "channel/lane.h"
#include "channel/timer.h"
#include "exec/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whether every event that is passed on is checked to be on the right thread. */
#ifdef WEIR_DEBUG
#define IS_CHECKED true
#else
#define IS_CHECKED false
#endif

void weir__ctx_init_end(weir_ctx *ctx, weir_channel *channel, const weir_handler_type *type)
{
    *ctx = (weir_ctx){ .type = type, .channel = channel, .state = WEIR_CTX_LIVE };
    ctx->mask = weir__handler_mask(type);
    ctx->is_slow = IS_CHECKED;
}

/* One piece of memory: the context, its state, its lane, its name. */
int weir__ctx_new(weir_ctx **out, weir_channel *channel, const weir_handler_config *config)
{
    weir_executor *executor = NULL;
    if (config->group != NULL && config->group->per_channel != NULL)
        return -EINVAL; /* its loops are there for one channel each */
    if (config->group != NULL && (executor = weir__lane_pin(channel, config->group)) == NULL)
        return -ENOMEM;
    size_t lane_at = weir__ctx_lane_at(config->type);
    size_t name_at = executor != NULL               ? lane_at + sizeof(weir_lane)
                     : config->type->state_size > 0 ? lane_at
                                                    : sizeof(weir_member);
    size_t name_size = config->name != NULL ? strlen(config->name) + 1
                                            : strlen(config->type->name) + WEIR__SERIAL_SIZE;
    weir_member *member = weir__zalloc(name_at + name_size);
    if (member == NULL)
        return -ENOMEM;
    weir_ctx *ctx = &member->ctx;
    ctx->type = config->type;
    ctx->channel = channel;
    ctx->is_slow = executor != NULL || IS_CHECKED;
    if (executor != NULL) {
        ctx->is_elsewhere = true;
        weir__lane_init(weir__ctx_lane(ctx), executor);
    }
    member->arg = config->arg;
    member->name = (char *)member + name_at;
    if (config->name != NULL)
        memcpy(member->name, config->name, name_size);
    *out = ctx;
    return 0;
}

void weir__ctx_free(weir_ctx *ctx)
{
    if (ctx->owns_name)
        weir__free(weir__ctx_member(ctx)->name);
    weir__free(ctx);
}

void weir__ctx_copy_name(const weir_ctx *ctx, char *to, size_t size)
{
    weir__channel_lock(ctx->channel);
    snprintf(to, size, "%s", weir__ctx_name(ctx));
    weir__channel_unlock(ctx->channel);
}

/* Coming: on the loop -------------------------------------------------------------------------- */

/* Nothing comes between: what the handlers behind it were about to pass on is refused. For one
 * elsewhere it would be too late when it is told of its coming. */
static void tell_switch(weir_ctx *ctx)
{
    weir_event event = { .kind = WEIR_EV_EVENT, .msg = &weir_event_switched };
    if (ctx->type->is_switch && !ctx->is_heir && weir__channel_was_active(ctx->channel))
        weir__event_pass(ctx, &event);
}

void weir__ctx_call_added(weir_ctx *ctx)
{
    weir_error failure = { .code = 0 };
    weir_event event = { .kind = WEIR_EV_ADDED };
    tell_switch(ctx);
    if (ctx->state == WEIR_CTX_REMOVED)
        return;
    if (ctx->is_elsewhere) {
        /* What is carried to it comes behind its `added`, so it can have events from now on. */
        ctx->state = WEIR_CTX_LIVE;
        ctx->mask = weir__lane_mask(ctx->type);
        weir__lane_send(ctx, &event);
        return;
    }
    ctx->state = WEIR_CTX_ADDING;
    weir__ctx_member(ctx)->failure = &failure;
    weir__event_call(ctx, &event);
    if (ctx->state != WEIR_CTX_ADDING)
        return; /* it has removed itself, or the channel is over */
    if (failure.code < 0) {
        weir__ctx_added_failed(ctx, &failure);
        return;
    }
    ctx->state = WEIR_CTX_LIVE;
    ctx->mask = weir__handler_mask(ctx->type);
}

void weir__ctx_added_failed(weir_ctx *ctx, const weir_error *error)
{
    weir_channel *channel = ctx->channel;
    weir_error copy = *error;
    if (ctx->state == WEIR_CTX_REMOVED)
        return;
    weir__channel_lock(channel);
    ctx->is_listed = false;
    weir__channel_unlock(channel);
    weir__ctx_remove(ctx);
    weir__pipeline_fire_error(channel, &copy);
}

/* Leaving: on the loop ------------------------------------------------------------------------- */

static void unlink_and_free(weir_ctx *ctx)
{
    weir_channel *channel = ctx->channel;
    weir__channel_lock(channel);
    ctx->prev->next = ctx->next;
    ctx->next->prev = ctx->prev;
    weir__channel_unlock(channel);
    weir__ctx_free(ctx);
    weir_channel_release(channel);
}

/* What other threads add may be meant to stand beside it. */
static bool is_referred_to(const weir_ctx *ctx)
{
    weir_channel *channel = ctx->channel;
    weir__channel_lock(channel);
    bool is_expected = channel->pipeline.arriving != NULL;
    weir__channel_unlock(channel);
    const weir_loop *loop = weir__channel_loop(channel);
    bool runs_tasks = weir_executor_get_state(&loop->base) < WEIR_EXECUTOR_SHUTDOWN;
    return is_expected && runs_tasks &&
           weir__lifecycle_state(&channel->life) != WEIR_CHANNEL_UNREGISTERED;
}

/* The turn in which it was removed is over, and then the turn after. */
static void rest(weir_deferred *deferred)
{
    weir_ctx *ctx = &WEIR_CONTAINER(deferred, weir_member, deferred)->ctx;
    if (!ctx->is_resting || is_referred_to(ctx)) {
        ctx->is_resting = true;
        weir__loop_defer(weir_loop_current(), deferred);
        return;
    }
    weir_channel *channel = weir_channel_retain(ctx->channel);
    deferred->run = NULL;
    channel->resting--;
    weir__ctx_returned(ctx);
    weir__channel_try_to_leave(channel);
    weir__channel_try_to_go(channel);
    weir_channel_release(channel);
}

void weir__ctx_returned(weir_ctx *ctx)
{
    if (ctx->state != WEIR_CTX_REMOVED || (ctx->is_elsewhere && weir__ctx_lane(ctx)->away > 0))
        return;
    ctx->mask = 0;
    if (ctx->is_resting && weir__ctx_member(ctx)->deferred.run == NULL)
        unlink_and_free(ctx);
}

/* Without a loop there is nobody to wait for: it goes with the channel. */
static void free_later(weir_ctx *ctx)
{
    weir_loop *loop = weir__channel_loop(ctx->channel);
    weir_deferred *deferred = &weir__ctx_member(ctx)->deferred;
    *deferred = (weir_deferred){ .run = rest };
    if (loop == NULL || !weir__loop_defer(loop, deferred))
        return;
    weir_channel_retain(ctx->channel);
    ctx->channel->resting++;
}

void weir__ctx_remove(weir_ctx *ctx)
{
    weir_event event = { .kind = WEIR_EV_REMOVED };
    bool is_told = ctx->state != WEIR_CTX_NEW; /* who was not told that it came is not told now */
    if (ctx->state == WEIR_CTX_REMOVED)
        return;
    ctx->state = WEIR_CTX_REMOVED;
    free_later(ctx);
    /* To a handler elsewhere events are carried until none is on its way, so that none overtakes.
     */
    if (!ctx->is_elsewhere || !is_told)
        ctx->mask = 0;
    if (!is_told)
        return;
    if (ctx->is_elsewhere) {
        weir__lane_send(ctx, &event);
    } else {
        weir__ctx_timers_cancel(ctx);
        weir__event_call(ctx, &event);
    }
}

/* Looking -------------------------------------------------------------------------------------- */

void *weir_ctx_state(const weir_ctx *ctx)
{
    return ctx->type->state_size > 0 ? (char *)ctx + WEIR__CTX_STATE : NULL;
}

const char *weir_ctx_name(const weir_ctx *ctx)
{
    return weir__ctx_name(ctx);
}

void *weir_ctx_arg(const weir_ctx *ctx)
{
    return weir__ctx_member(ctx)->arg;
}

const weir_handler_type *weir_ctx_type(const weir_ctx *ctx)
{
    return ctx->type;
}

weir_channel *weir_ctx_channel(const weir_ctx *ctx)
{
    return ctx->channel;
}

weir_pipeline *weir_ctx_pipeline(const weir_ctx *ctx)
{
    return &ctx->channel->pipeline;
}

weir_executor *weir_ctx_executor(const weir_ctx *ctx)
{
    weir_loop *loop = weir__channel_loop(ctx->channel);
    if (ctx->is_elsewhere)
        return weir__ctx_lane(ctx)->executor;
    return loop != NULL ? &loop->base : NULL;
}

bool weir_ctx_is_removed(const weir_ctx *ctx)
{
    return ctx->is_elsewhere ? weir__ctx_lane(ctx)->is_removed : ctx->state == WEIR_CTX_REMOVED;
}
