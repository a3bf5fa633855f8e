/* SPDX-License-Identifier: MIT */
/* Contexts: making, adding and removing them. */
#include "channel/ctx.h"

#include "base/alloc.h"
#include "channel/arg.h"
#include "channel/inbox.h"
#include "channel/offload.h"
#include "channel/timer.h"
#include "exec/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Making --------------------------------------------------------------------------------------- */

static size_t align(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

/* Where the parts of a context are. */
typedef struct ctx_layout {
    size_t arg_at, arg_size, name_at, name_size;
} ctx_layout;

static ctx_layout layout_of(const weir_handler_config *config, bool is_offloaded)
{
    const weir_handler_type *type = config->type;
    size_t offload_at = weir__offload_at(type), end = sizeof(weir_member);
    if (is_offloaded)
        end = offload_at + sizeof(weir_offload);
    else if (type->state_size > 0)
        end = offload_at;
    ctx_layout layout = { .arg_size = config->arg != NULL ? type->arg_size : 0 };
    layout.arg_at = layout.arg_size > 0 ? align(end) : end;
    layout.name_at = layout.arg_at + layout.arg_size;
    layout.name_size = config->name != NULL ? strlen(config->name) + 1
                                            : strlen(type->name) + WEIR__NUMBER_SIZE;
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

static void set_name(weir_member *member, const weir_handler_config *config,
                     const ctx_layout *layout)
{
    char *name = (char *)member + layout->name_at;
    if (config->name != NULL)
        memcpy(name, config->name, layout->name_size);
    member->name = name;
}

/* The context in the pipeline, once the handler's own is ready. */
static weir_ctx *offload(weir_member *member, weir_executor *executor)
{
    weir__offload_init(&member->ctx, executor);
    weir_member *boundary = &weir__handler_offload(&member->ctx)->boundary;
    boundary->arg = member->arg;
    boundary->name = member->name;
    return &boundary->ctx;
}

/* One piece of memory: the context, its state, its offload, its config, its name. */
int weir__ctx_new(weir_ctx **out, weir_channel *channel, const weir_handler_config *config)
{
    weir_executor *executor = NULL;
    if (config->group != NULL && config->group->per_channel != NULL)
        return -EINVAL; /* its loops are there for one channel each */
    if (config->group != NULL && (executor = weir__offload_pin(channel, config->group)) == NULL)
        return -ENOMEM;
    ctx_layout layout = layout_of(config, executor != NULL);
    weir_member *member = weir__zalloc(layout.name_at + layout.name_size);
    int code = member != NULL ? set_arg(member, config, &layout) : -ENOMEM;
    if (code < 0) {
        weir__free(member);
        return code;
    }
    member->ctx.type = config->type;
    member->ctx.channel = channel;
    member->ctx.is_slow = WEIR__CTX_IS_CHECKED;
    set_name(member, config, &layout);
    *out = executor != NULL ? offload(member, executor) : &member->ctx;
    weir__ctx_member(*out)->promise = weir_promise_retain(config->promise);
    return 0;
}

/* TYPE#NUMBER. By hand, because every accepted connection gets one, and snprintf took a tenth of
 * its instructions. */
void weir__ctx_set_number(weir_ctx *ctx, uint32_t number)
{
    char digits[WEIR__NUMBER_SIZE], *first = digits + sizeof digits;
    char *name = (char *)weir__ctx_name(ctx);
    ctx->number = number;
    if (*name != '\0')
        return;
    *--first = '\0';
    do
        *--first = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    *--first = '#';
    memcpy(stpcpy(name, weir__ctx_type(ctx)->name), first,
           (size_t)(digits + sizeof digits - first));
}

void weir__ctx_free(weir_ctx *ctx)
{
    weir_ctx *handler = weir__ctx_handler(ctx);
    if (ctx->state <= WEIR_CTX_UNWANTED)
        weir_promise_release(weir__ctx_member(ctx)->promise);
    weir__arg_release(handler->type, weir__ctx_member(handler)->arg);
    weir__free(handler);
}

weir_ctx *weir__ctx_handler(const weir_ctx *ctx)
{
    const weir_offload *offloaded = weir__ctx_offload(ctx);
    return offloaded != NULL ? offloaded->handler : (weir_ctx *)ctx;
}

/* Adding ------------------------------------------------------------------------------------- */

size_t weir__ctx_held(const weir_ctx *ctx)
{
    bool is_asked = ctx->state == WEIR_CTX_LIVE && ctx->type->held_reads != NULL;
    return is_asked ? ctx->type->held_reads(ctx) : 0;
}

void weir__ctx_run_added(weir_ctx *ctx, weir_error *error)
{
    error->code = 0;
    ctx->state = WEIR_CTX_ADDING;
    weir__ctx_member(ctx)->failure = error;
    weir__event_call(ctx, &(weir_event){ .kind = WEIR_EV_ADDED });
    if (ctx->state != WEIR_CTX_ADDING)
        return; /* it is removed, or the channel has closed */
    ctx->state = error->code < 0 ? WEIR_CTX_FAILED : WEIR_CTX_LIVE;
    ctx->mask = error->code < 0 ? 0 : weir__handler_mask(ctx->type);
    if (!ctx->is_offloaded && ctx->channel->pipeline.rejects_reads)
        ctx->mask &= ~(1u << WEIR_EV_READ);
}

bool weir__ctx_fail_added(weir_ctx *ctx, const weir_error *error)
{
    bool is_adding = ctx->state == WEIR_CTX_ADDING;
    if (is_adding && weir__ctx_member(ctx)->failure->code == 0) /* the first one counts */
        *weir__ctx_member(ctx)->failure = *error;
    return is_adding;
}

static weir_promise *take_promise(weir_ctx *ctx)
{
    weir_promise *promise = weir__ctx_member(ctx)->promise;
    weir__ctx_member(ctx)->promise = NULL;
    return promise;
}

static void complete_added(weir_promise *promise, int code)
{
    weir__promise_end(promise, code);
    weir_promise_release(promise);
}

bool weir__ctx_has_promise(weir_ctx *ctx)
{
    return ctx->state == WEIR_CTX_NEW && weir__ctx_member(ctx)->promise != NULL;
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
    weir__ctx_remove(ctx);
    weir__pipeline_fire_error(channel, error);
}

/* The executor runs `added` before events that are posted later, so the mask can be set now. */
static void add_offloaded(weir_offload *offloaded)
{
    weir_ctx *ctx = &offloaded->boundary.ctx;
    weir_promise *promise = take_promise(ctx);
    ctx->state = WEIR_CTX_LIVE;
    ctx->mask = weir__offload_mask(offloaded->handler->type);
    weir__offload_add(offloaded, promise);
    weir_promise_release(promise);
}

int weir__ctx_call_added(weir_ctx *ctx, weir_error *error)
{
    weir_offload *offloaded = weir__ctx_offload(ctx);
    error->code = 0;
    if (offloaded != NULL) {
        add_offloaded(offloaded);
        return 0;
    }
    weir_promise *promise = take_promise(ctx);
    weir__ctx_run_added(ctx, error);
    if (ctx->state == WEIR_CTX_FAILED)
        added_failed(ctx, error);
    complete_added(promise, error->code);
    return error->code;
}

void weir__ctx_call_added_late(weir_ctx *ctx)
{
    weir_error error;
    weir_channel *channel = ctx->channel;
    bool closes = !weir__ctx_has_promise(ctx) || ctx->has_replaced;
    if (weir__ctx_call_added(ctx, &error) < 0 && closes)
        weir__channel_close_now(channel, NULL);
}

void weir__ctx_added_there(weir_ctx *ctx, weir_promise *promise, const weir_error *error)
{
    if (error != NULL && ctx->state != WEIR_CTX_REMOVED)
        added_failed(ctx, error);
    weir__promise_end(promise, error != NULL ? error->code : 0);
    if (error != NULL && (promise == NULL || ctx->has_replaced))
        weir__channel_close_now(ctx->channel, NULL);
}

/* Removing ----------------------------------------------------------------------------------- */

void weir__ctx_free_linked(weir_ctx *ctx)
{
    ctx->prev->next = ctx->next;
    ctx->next->prev = ctx->prev;
    weir__ctx_free(ctx);
}

/* The turn in which it was removed is over, and then the turn after. */
static void rest(weir_deferred *deferred)
{
    weir_ctx *ctx = &WEIR_CONTAINER(deferred, weir_member, deferred)->ctx;
    if (!ctx->is_resting) {
        ctx->is_resting = true;
        weir__loop_defer(weir_loop_current(), deferred);
        return;
    }
    weir_channel *channel = weir_channel_retain(ctx->channel);
    deferred->run = NULL;
    channel->life.removed_contexts--;
    weir__ctx_returned(ctx);
    weir__channel_recheck(channel);
    weir_channel_release(channel);
}

void weir__ctx_returned(weir_ctx *ctx)
{
    const weir_offload *offloaded = weir__ctx_offload(ctx);
    if (ctx->state != WEIR_CTX_REMOVED || (offloaded != NULL && offloaded->in_flight > 0))
        return;
    ctx->mask = 0;
    if (ctx->is_resting && weir__ctx_member(ctx)->deferred.run == NULL) {
        weir_channel *channel = ctx->channel;
        weir__ctx_free_linked(ctx);
        weir_channel_release(channel);
    }
}

/* Without a loop there is nobody to wait for: it goes with the channel. */
static void free_later(weir_ctx *ctx)
{
    weir_loop *loop = weir__channel_loop(ctx->channel);
    weir_deferred *deferred = &weir__ctx_member(ctx)->deferred;
    deferred->run = rest;
    if (loop == NULL || !weir__loop_defer(loop, deferred)) {
        deferred->run = NULL;
        return;
    }
    weir_channel_retain(ctx->channel);
    ctx->channel->life.removed_contexts++;
}

bool weir__ctx_goes_with_channel(const weir_ctx *ctx)
{
    const weir_offload *offloaded = weir__ctx_offload(ctx);
    return ctx->state == WEIR_CTX_REMOVED && weir__ctx_member(ctx)->deferred.run == NULL &&
           (offloaded == NULL || offloaded->in_flight == 0);
}

/* Without a loop no event can return from an executor: `removed` waits for one, or for the end of
 * the channel. */
static bool has_to_wait_for_loop(const weir_ctx *ctx)
{
    return weir__ctx_offload(ctx) != NULL && weir__channel_loop(ctx->channel) == NULL &&
           weir__channel_state(ctx->channel) != WEIR_LIFE_ENDED;
}

void weir__ctx_run_removed(weir_ctx *ctx)
{
    ctx->state = WEIR_CTX_REMOVED;
    ctx->mask = 0;
    weir__ctx_timers_cancel(ctx);
    weir__event_call(ctx, &(weir_event){ .kind = WEIR_EV_REMOVED });
}

static void remove_ctx(weir_ctx *ctx, bool goes_with_channel)
{
    weir_offload *offloaded = weir__ctx_offload(ctx);
    if (ctx->state == WEIR_CTX_REMOVED)
        return;
    if (ctx->state <= WEIR_CTX_UNWANTED && has_to_wait_for_loop(ctx)) {
        ctx->state = WEIR_CTX_UNWANTED;
        return;
    }
    if (ctx->state <= WEIR_CTX_UNWANTED)
        complete_added(take_promise(ctx),
                       weir__channel_is_closing(ctx->channel) ? WEIR_ECLOSED : -ECANCELED);
    ctx->state = WEIR_CTX_REMOVED;
    weir__ctx_member(ctx)->deferred = (weir_deferred){ .run = NULL };
    if (!goes_with_channel)
        free_later(ctx);
    if (offloaded != NULL)
        weir__offload_remove(offloaded); /* until that returns events are posted: none overtakes */
    else
        weir__ctx_run_removed(ctx);
}

void weir__ctx_remove(weir_ctx *ctx)
{
    remove_ctx(ctx, false);
}

void weir__ctx_remove_at_end(weir_ctx *ctx)
{
    remove_ctx(ctx, true);
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
    if (ctx->is_offloaded)
        return weir__handler_offload(ctx)->executor;
    return loop != NULL ? &loop->base : NULL;
}

bool weir_ctx_is_removed(const weir_ctx *ctx)
{
    return ctx->state == WEIR_CTX_REMOVED;
}

bool weir_ctx_is_input_closed(const weir_ctx *ctx)
{
    return atomic_load_explicit(&ctx->has_eof, memory_order_relaxed);
}

/* It has ended, or could not begin: the thread that performs the last calls stands in for it. */
static bool has_no_thread(const weir_executor *executor)
{
    weir_executor_state state = weir_executor_get_state(executor);
    return state == WEIR_EXECUTOR_TERMINATED || state == WEIR_EXECUTOR_NOT_STARTED;
}

bool weir__ctx_is_here(const weir_ctx *ctx)
{
    if (!ctx->is_offloaded && weir__channel_loop(ctx->channel) == NULL)
        return true;
    const weir_executor *executor = weir_ctx_executor(ctx);
    return weir_executor_is_current(executor) || has_no_thread(executor);
}
