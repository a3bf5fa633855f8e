/* SPDX-License-Identifier: MIT */
/* Timers of handlers: they go where the handler is. */
#include "channel/timer.h"

#include "base/assert.h"
#include "channel/extras.h"
#include "channel/offload.h"
#include "exec/executor.h"

#include <errno.h>

enum {
    IDLE,
    WAITING,
    STOPPED, /* its channel is between two loops */
};

static weir_list *list_of(weir_ctx *ctx)
{
    if (ctx->is_offloaded)
        return &weir__handler_offload(ctx)->timers;
    weir_channel_extras *extras = weir__channel_extras(ctx->channel);
    return extras != NULL ? &extras->timers : NULL;
}

static void take_out(weir_ctx_timer *timer)
{
    weir__list_remove(&timer->node);
    timer->state = IDLE;
}

static int fire(weir_timer *base)
{
    weir_ctx_timer *timer = WEIR_CONTAINER(base, weir_ctx_timer, timer);
    weir_ctx *ctx = timer->ctx;
    take_out(timer);
    /* A channel is freed at the end of the turn. */
    weir_visit visit;
    if (ctx->is_offloaded)
        weir__visit_begin(&visit, weir__ctx_describe, ctx);
    else
        weir__visit_begin(&visit, weir__channel_describe, ctx->channel);
    timer->fire(timer, ctx);
    weir__visit_end(&visit);
    return 0;
}

/* Cancelled here, or by the end of the loop; unless it is to go on elsewhere. */
static void cancelled(weir_timer *base)
{
    weir_ctx_timer *timer = WEIR_CONTAINER(base, weir_ctx_timer, timer);
    if (timer->state == WAITING)
        take_out(timer);
}

static int start(weir_ctx *ctx, weir_ctx_timer *timer, int64_t delay_ns)
{
    timer->timer = (weir_timer){ .fire = fire, .cancelled = cancelled, .name = ctx->type->name };
    return weir_timer_schedule(&timer->timer, weir_ctx_executor(ctx), delay_ns);
}

int weir_ctx_schedule(weir_ctx *ctx, weir_ctx_timer *timer, int64_t delay_ns)
{
    if (ctx == NULL || timer == NULL || timer->fire == NULL || weir_ctx_is_removed(ctx))
        return -EINVAL;
    WEIR_ASSERT(weir__ctx_is_here(ctx));
    if (timer->state == WAITING)
        return weir_timer_reschedule(&timer->timer, delay_ns);
    if (timer->state == STOPPED) {
        timer->left_ns = delay_ns;
        return 0;
    }
    if (!ctx->is_offloaded && weir__channel_need_extras(ctx->channel) == NULL)
        return -ENOMEM;
    /* Between two loops it waits for the next. */
    bool is_stopped = !ctx->is_offloaded && weir__channel_state(ctx->channel) < WEIR_LIFE_ATTACHED;
    int code = is_stopped ? 0 : start(ctx, timer, delay_ns);
    if (code < 0)
        return code;
    timer->ctx = ctx;
    timer->left_ns = delay_ns;
    timer->state = is_stopped ? STOPPED : WAITING;
    weir__list_push_back(list_of(ctx), &timer->node);
    return 0;
}

void weir_ctx_cancel(weir_ctx *ctx, weir_ctx_timer *timer)
{
    if (ctx == NULL || timer == NULL || timer->state == IDLE)
        return;
    WEIR_ASSERT(weir__ctx_is_here(ctx));
    if (timer->state == WAITING)
        weir_timer_cancel(&timer->timer);
    else
        take_out(timer);
}

void weir__ctx_timers_cancel(weir_ctx *ctx)
{
    weir_list *timers = list_of(ctx);
    weir_list_node *node = timers != NULL ? weir__list_first(timers) : NULL;
    while (node != NULL) {
        weir_ctx_timer *timer = WEIR_CONTAINER(node, weir_ctx_timer, node);
        node = weir__list_next(timers, node);
        if (timer->ctx == ctx)
            weir_ctx_cancel(ctx, timer);
    }
}

static weir_list *timers_of(weir_channel *channel)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    return extras != NULL ? &extras->timers : NULL;
}

void weir__channel_stop_timers(weir_channel *channel)
{
    weir_list *timers = timers_of(channel);
    weir_list_node *node = timers != NULL ? weir__list_first(timers) : NULL;
    for (; node != NULL; node = weir__list_next(timers, node)) {
        weir_ctx_timer *timer = WEIR_CONTAINER(node, weir_ctx_timer, node);
        weir_executor *executor = timer->timer.executor;
        timer->left_ns = timer->timer.node.key - weir_executor_now_ns(executor);
        timer->state = STOPPED;
        weir_timer_cancel(&timer->timer);
    }
}

void weir__channel_resume_timers(weir_channel *channel)
{
    int failure = 0;
    weir_list *timers = timers_of(channel);
    weir_list_node *node = timers != NULL ? weir__list_first(timers) : NULL;
    while (node != NULL) {
        weir_ctx_timer *timer = WEIR_CONTAINER(node, weir_ctx_timer, node);
        node = weir__list_next(timers, node);
        int code = start(timer->ctx, timer, timer->left_ns);
        if (code == 0) {
            timer->state = WAITING;
            continue;
        }
        take_out(timer);
        failure = code;
    }
    /* Better a handler that hears of it than a time-out that never comes; when the list is through,
     * for it may change it. */
    if (failure < 0)
        weir__pipeline_fire_code(channel, failure, "a timer could not be moved to another loop");
}
