/* SPDX-License-Identifier: MIT */
/* Contexts: a handler's place in a pipeline, from its coming to its going. */
#include "channel/ctx.h"

#include "base/alloc.h"
#include "channel/arg.h"
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

/* Of its being added. On the loop it shares memory with what frees a removed context. */
static weir_promise **promise_of(weir_ctx *ctx)
{
    return ctx->is_elsewhere ? &weir__ctx_lane(ctx)->promise : &weir__ctx_member(ctx)->promise;
}

/* Making --------------------------------------------------------------------------------------- */

static size_t align(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

/* Where the parts of a context are. */
typedef struct ctx_layout {
    size_t arg_at, arg_size, name_at, name_size;
} ctx_layout;

static ctx_layout layout_of(const weir_handler_config *config, bool has_lane)
{
    const weir_handler_type *type = config->type;
    size_t lane_at = weir__ctx_lane_at(type), end = sizeof(weir_member);
    if (has_lane)
        end = lane_at + sizeof(weir_lane);
    else if (type->state_size > 0)
        end = lane_at;
    ctx_layout layout = { .arg_size = config->arg != NULL ? type->arg_size : 0 };
    layout.arg_at = layout.arg_size > 0 ? align(end) : end;
    layout.name_at = layout.arg_at + layout.arg_size;
    layout.name_size = config->name != NULL ? strlen(config->name) + 1
                                            : strlen(type->name) + WEIR__SERIAL_SIZE;
    return layout;
}

/* Copies the config, if it is one. */
static int set_arg(weir_member *member, const weir_handler_config *config, const ctx_layout *layout)
{
    member->arg = config->arg;
    if (layout->arg_size > 0) {
        member->arg = (char *)member + layout->arg_at;
        memcpy(member->arg, config->arg, layout->arg_size);
    }
    return weir__arg_retain(config->type, member->arg);
}

/* One piece of memory: the context, its state, its lane, its config, its name. */
int weir__ctx_new(weir_ctx **out, weir_channel *channel, const weir_handler_config *config)
{
    weir_executor *executor = NULL;
    if (config->group != NULL && config->group->per_channel != NULL)
        return -EINVAL; /* its loops are there for one channel each */
    if (config->group != NULL && (executor = weir__lane_pin(channel, config->group)) == NULL)
        return -ENOMEM;
    ctx_layout layout = layout_of(config, executor != NULL);
    weir_member *member = weir__zalloc(layout.name_at + layout.name_size);
    int code = member != NULL ? set_arg(member, config, &layout) : -ENOMEM;
    if (code < 0) {
        weir__free(member);
        return code;
    }
    weir_ctx *ctx = &member->ctx;
    ctx->type = config->type;
    ctx->channel = channel;
    ctx->is_slow = executor != NULL || IS_CHECKED;
    if (executor != NULL) {
        ctx->is_elsewhere = true;
        weir__lane_init(weir__ctx_lane(ctx), executor);
    }
    *promise_of(ctx) = weir_promise_retain(config->promise);
    member->name = (char *)member + layout.name_at;
    if (config->name != NULL)
        memcpy(member->name, config->name, layout.name_size);
    *out = ctx;
    return 0;
}

void weir__ctx_free(weir_ctx *ctx)
{
    weir_member *member = weir__ctx_member(ctx);
    if (ctx->state <= WEIR_CTX_UNWANTED)
        weir_promise_release(*promise_of(ctx));
    weir__arg_release(ctx->type, member->arg);
    if (ctx->owns_name)
        weir__free(member->name);
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

/* The executor runs `added` before events that are posted later, so the mask can be set now. */
static void add_elsewhere(weir_ctx *ctx)
{
    ctx->state = WEIR_CTX_LIVE;
    ctx->mask = weir__lane_mask(ctx->type);
    weir__lane_send(ctx, &(weir_event){ .kind = WEIR_EV_ADDED });
}

static weir_promise *take_promise(weir_ctx *ctx)
{
    weir_promise *promise = *promise_of(ctx);
    *promise_of(ctx) = NULL;
    return promise;
}

static void complete_added(weir_promise *promise, int code)
{
    weir__promise_end(promise, code);
    weir_promise_release(promise);
}

bool weir__ctx_has_promise(weir_ctx *ctx)
{
    return ctx->state == WEIR_CTX_NEW && *promise_of(ctx) != NULL;
}

bool weir__ctx_fail_promise(weir_ctx *ctx, int code)
{
    bool has_promise = weir__ctx_has_promise(ctx);
    if (has_promise)
        complete_added(take_promise(ctx), code);
    return has_promise;
}

static void added_failed(weir_ctx *ctx, const weir_error *error)
{
    weir_channel *channel = ctx->channel;
    weir__channel_lock(channel);
    ctx->is_listed = false;
    weir__channel_unlock(channel);
    weir__ctx_remove(ctx);
    weir__pipeline_fire_error(channel, error);
}

int weir__ctx_call_added(weir_ctx *ctx, weir_error *error)
{
    error->code = 0;
    tell_switch(ctx);
    if (ctx->state == WEIR_CTX_REMOVED)
        return 0;
    if (ctx->is_elsewhere) {
        add_elsewhere(ctx);
        return 0;
    }
    weir_promise *promise = take_promise(ctx);
    ctx->state = WEIR_CTX_ADDING;
    weir__ctx_member(ctx)->failure = error;
    weir__event_call(ctx, &(weir_event){ .kind = WEIR_EV_ADDED });
    if (ctx->state == WEIR_CTX_ADDING && error->code < 0) {
        added_failed(ctx, error);
    } else if (ctx->state == WEIR_CTX_ADDING) { /* else it is removed, or the channel is over */
        ctx->state = WEIR_CTX_LIVE;
        ctx->mask = weir__handler_mask(ctx->type);
    }
    complete_added(promise, error->code);
    return error->code;
}

void weir__ctx_call_added_late(weir_ctx *ctx)
{
    weir_error error;
    weir_channel *channel = ctx->channel;
    bool has_promise = weir__ctx_has_promise(ctx);
    if (weir__ctx_call_added(ctx, &error) < 0 && !has_promise)
        weir__channel_close_now(channel, NULL);
}

void weir__ctx_added_elsewhere(weir_ctx *ctx, const weir_error *error)
{
    weir_promise *promise = take_promise(ctx);
    bool has_promise = promise != NULL;
    if (error != NULL && ctx->state != WEIR_CTX_REMOVED)
        added_failed(ctx, error);
    complete_added(promise, error != NULL ? error->code : 0);
    if (error != NULL && !has_promise)
        weir__channel_close_now(ctx->channel, NULL);
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

/* Without a loop nothing can come back from another executor: `removed` waits for one, or for the
 * channel's end. */
static bool has_to_wait_for_loop(const weir_ctx *ctx)
{
    return ctx->is_elsewhere && weir__channel_loop(ctx->channel) == NULL &&
           weir__lifecycle_state(&ctx->channel->life) != WEIR_CHANNEL_UNREGISTERED;
}

void weir__ctx_remove(weir_ctx *ctx)
{
    weir_event event = { .kind = WEIR_EV_REMOVED };
    if (ctx->state == WEIR_CTX_REMOVED)
        return;
    if (ctx->state <= WEIR_CTX_UNWANTED && has_to_wait_for_loop(ctx)) {
        ctx->state = WEIR_CTX_UNWANTED;
        return;
    }
    if (ctx->state <= WEIR_CTX_UNWANTED) {
        complete_added(take_promise(ctx),
                       weir__channel_is_closing(ctx->channel) ? WEIR_ECLOSED : -ECANCELED);
    }
    ctx->state = WEIR_CTX_REMOVED;
    free_later(ctx);
    if (ctx->is_elsewhere) {
        /* Events are posted there until none is in flight, so that none overtakes another. */
        weir__lane_send(ctx, &event);
    } else {
        ctx->mask = 0;
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

bool weir_ctx_is_input_closed(const weir_ctx *ctx)
{
    return (atomic_load_explicit(&ctx->eof, memory_order_relaxed) & WEIR__EOF_RECEIVED) != 0;
}
