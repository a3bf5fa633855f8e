/* SPDX-License-Identifier: MIT */
/* The flush consolidation handler. */
#include <weir/flush_consolidation.h>

#include "channel/arg.h"

#include <weir/channel.h>

#include <errno.h>

#define USUAL_FLUSHES 256

typedef struct flush_consolidation {
    weir_ctx_timer later;
    int64_t held;     /* flushes */
    bool is_in_batch; /* of reads, whose end will come */
} flush_consolidation;

static const weir_flush_consolidation usual;

static const weir_flush_consolidation *config_of(const weir_ctx *ctx)
{
    const weir_flush_consolidation *config = weir_ctx_arg(ctx);
    return config != NULL ? config : &usual;
}

static int64_t most_of(const weir_flush_consolidation *config)
{
    return config->most_flushes > 0 ? config->most_flushes : USUAL_FLUSHES;
}

static void flush_held(weir_ctx *ctx)
{
    flush_consolidation *self = weir_ctx_state(ctx);
    if (self->held == 0)
        return;
    self->held = 0;
    weir_ctx_cancel(ctx, &self->later);
    weir_ctx_flush(ctx);
}

static void on_later(weir_ctx_timer *timer, weir_ctx *ctx)
{
    (void)timer;
    flush_held(ctx);
}

/* Whether it can wait, because somebody will come back for it. What is more than the high water
 * mark cannot: the next write might be too much. */
static bool can_wait(weir_ctx *ctx, flush_consolidation *self)
{
    if (self->held >= most_of(config_of(ctx)) || !weir_channel_is_writable(weir_ctx_channel(ctx)))
        return false;
    if (self->is_in_batch)
        return true;
    /* The first one is enough to come back for all. */
    return config_of(ctx)->is_always &&
           (self->held > 1 || weir_ctx_schedule(ctx, &self->later, 0) == 0);
}

/* The handler ---------------------------------------------------------------------------------- */

static void flush_consolidation_added(weir_ctx *ctx)
{
    flush_consolidation *self = weir_ctx_state(ctx);
    self->later.fire = on_later;
    weir__arg_check(ctx, "most_flushes", config_of(ctx)->most_flushes, 0, INT64_MAX);
}

static void flush_consolidation_removed(weir_ctx *ctx)
{
    flush_held(ctx);
}

static void flush_consolidation_flush(weir_ctx *ctx)
{
    flush_consolidation *self = weir_ctx_state(ctx);
    self->held++;
    if (!can_wait(ctx, self))
        flush_held(ctx);
}

static void flush_consolidation_on_read(weir_ctx *ctx, weir_msg *msg)
{
    flush_consolidation *self = weir_ctx_state(ctx);
    self->is_in_batch = true;
    weir_ctx_fire_read(ctx, msg);
}

/* Many flush at the end of a batch, so what they do there is still a part of it. */
static void flush_consolidation_on_read_complete(weir_ctx *ctx)
{
    flush_consolidation *self = weir_ctx_state(ctx);
    weir_ctx_fire_read_complete(ctx);
    self->is_in_batch = false;
    flush_held(ctx);
}

static void flush_consolidation_on_error(weir_ctx *ctx, const weir_error *error)
{
    flush_held(ctx);
    weir_ctx_fire_error(ctx, error);
}

static void flush_consolidation_on_writability(weir_ctx *ctx)
{
    if (!weir_channel_is_writable(weir_ctx_channel(ctx)))
        flush_held(ctx);
    weir_ctx_fire_writability(ctx);
}

static void flush_consolidation_disconnect(weir_ctx *ctx, weir_promise *promise)
{
    flush_held(ctx);
    weir_ctx_disconnect(ctx, promise);
}

static void flush_consolidation_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    flush_held(ctx);
    weir_ctx_shutdown(ctx, promise);
}

static void flush_consolidation_close(weir_ctx *ctx, weir_promise *promise)
{
    flush_held(ctx);
    weir_ctx_close(ctx, promise);
}

static void flush_consolidation_deregister(weir_ctx *ctx, weir_promise *promise)
{
    flush_held(ctx);
    weir_ctx_deregister(ctx, promise);
}

const weir_handler_type weir_flush_consolidation_handler = {
    .name = "flush consolidation",
    .state_size = sizeof(flush_consolidation),
    .arg_size = sizeof(weir_flush_consolidation),
    .added = flush_consolidation_added,
    .removed = flush_consolidation_removed,
    .on_read = flush_consolidation_on_read,
    .on_read_complete = flush_consolidation_on_read_complete,
    .on_writability = flush_consolidation_on_writability,
    .on_error = flush_consolidation_on_error,
    .disconnect = flush_consolidation_disconnect,
    .flush = flush_consolidation_flush,
    .shutdown = flush_consolidation_shutdown,
    .close = flush_consolidation_close,
    .deregister = flush_consolidation_deregister,
};
