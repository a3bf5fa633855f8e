/* SPDX-License-Identifier: MIT */
/* Pipelines: the list of contexts, and looking at it. */
#include "channel/pipeline.h"

#include "base/assert.h"
#include "channel/channel.h"
#include "channel/offload.h"
#include "exec/manual.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static weir_channel *channel_of(const weir_pipeline *pipeline)
{
    return pipeline->head.channel;
}

/* `added` may add and remove; the `added` of what it adds runs at once, and removed contexts stay
 * linked. */
void weir__pipeline_call_added(weir_pipeline *pipeline)
{
    for (weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next) {
        if (ctx->state == WEIR_CTX_UNWANTED)
            weir__ctx_remove(ctx);
        else if (ctx->state == WEIR_CTX_NEW)
            weir__ctx_call_added_late(ctx);
    }
}

void weir__pipeline_link(weir_ctx *prev, weir_ctx *ctx)
{
    ctx->prev = prev;
    ctx->next = prev->next;
    /* An event that has passed the next one has passed this place. */
    if (atomic_load_explicit(&ctx->next->has_eof, memory_order_relaxed)) {
        weir__event_note_eof(ctx);
        weir__event_note_eof(weir__ctx_handler(ctx));
    }
    ctx->next->prev = ctx;
    atomic_signal_fence(memory_order_release); /* for a signal handler that walks the list */
    prev->next = ctx;
}

void weir__pipeline_remove_all(weir_pipeline *pipeline)
{
    for (weir_ctx *ctx = pipeline->tail.prev; ctx != &pipeline->head; ctx = ctx->prev)
        weir__ctx_remove_at_end(ctx);
}

void weir__pipeline_free_removed(weir_pipeline *pipeline)
{
    for (weir_ctx *ctx = pipeline->head.next, *next; ctx != &pipeline->tail; ctx = next) {
        next = ctx->next;
        if (weir__ctx_goes_with_channel(ctx))
            weir__ctx_free_linked(ctx);
    }
}

void weir__pipeline_reject_reads(weir_pipeline *pipeline)
{
    pipeline->rejects_reads = true;
    for (weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next) {
        ctx->mask &= ~(1u << WEIR_EV_READ);
        if (weir__ctx_offload(ctx) != NULL)
            weir__offload_reject_reads(weir__ctx_offload(ctx));
    }
}

void weir__pipeline_deinit(weir_pipeline *pipeline)
{
    for (weir_ctx *ctx = pipeline->head.next, *next; ctx != &pipeline->tail; ctx = next) {
        next = ctx->next;
        weir__ctx_free(ctx);
    }
}

/* Finding -------------------------------------------------------------------------------------- */

/* Of a channel that has ended all handlers are being removed. */
static bool is_visible(const weir_ctx *ctx)
{
    return weir__channel_state(ctx->channel) != WEIR_LIFE_ENDED && ctx->state != WEIR_CTX_REMOVED &&
           ctx->state != WEIR_CTX_UNWANTED && !ctx->is_replaced;
}

/* The first visible one from here on; the tail: there is none. */
static weir_ctx *visible_from(weir_ctx *ctx)
{
    while (ctx->next != NULL && !is_visible(ctx))
        ctx = ctx->next;
    return ctx;
}

#define EACH_VISIBLE(ctx, pipeline)                                                                \
    for (weir_ctx *ctx = visible_from((pipeline)->head.next); ctx != &(pipeline)->tail;            \
         ctx = visible_from(ctx->next))

weir_ctx *weir__pipeline_find(const weir_pipeline *pipeline, const char *name)
{
    EACH_VISIBLE(ctx, pipeline)
    {
        if (strcmp(weir__ctx_name(ctx), name) == 0)
            return ctx;
    }
    return NULL;
}

weir_ctx *weir__pipeline_find_type(const weir_pipeline *pipeline, const weir_handler_type *type)
{
    EACH_VISIBLE(ctx, pipeline)
    {
        if (weir__ctx_type(ctx) == type)
            return ctx;
    }
    return NULL;
}

weir_ctx *weir__pipeline_find_number(const weir_pipeline *pipeline, uint32_t number)
{
    EACH_VISIBLE(ctx, pipeline)
    {
        if (ctx->number == number)
            return ctx;
    }
    return NULL;
}

/* Looking -------------------------------------------------------------------------------------- */

/* Also on the thread that steps a manual loop: nothing runs between its steps. */
static bool may_look(const weir_channel *channel)
{
    const weir_loop *loop = weir__channel_loop(channel);
    return weir__channel_is_mine(channel) || weir__manual_is_mine(loop->base.group);
}

static int check(const weir_pipeline *pipeline)
{
    if (pipeline == NULL)
        return -EINVAL;
    return may_look(channel_of(pipeline)) ? 0 : -EPERM;
}

static int describe(const weir_ctx *ctx, weir_handler_info *info)
{
    if (ctx == NULL)
        return WEIR_ENOTFOUND;
    if (info == NULL)
        return 0;
    *info = (weir_handler_info){ .type = weir__ctx_type(ctx), .arg = weir__ctx_member(ctx)->arg };
    info->executor = weir_ctx_executor(weir__ctx_handler(ctx));
    snprintf(info->name, sizeof info->name, "%s", weir__ctx_name(ctx));
    return 0;
}

int weir_pipeline_find(const weir_pipeline *pipeline, const char *name, weir_handler_info *info)
{
    int code = name != NULL ? check(pipeline) : -EINVAL;
    return code == 0 ? describe(weir__pipeline_find(pipeline, name), info) : code;
}

int weir_pipeline_find_type(const weir_pipeline *pipeline, const weir_handler_type *type,
                            weir_handler_info *info)
{
    int code = type != NULL ? check(pipeline) : -EINVAL;
    return code == 0 ? describe(weir__pipeline_find_type(pipeline, type), info) : code;
}

int weir_pipeline_at(const weir_pipeline *pipeline, size_t index, weir_handler_info *info)
{
    int code = check(pipeline);
    if (code < 0)
        return code;
    EACH_VISIBLE(ctx, pipeline)
    {
        if (index-- == 0)
            return describe(ctx, info);
    }
    return WEIR_ENOTFOUND;
}

size_t weir_pipeline_count(const weir_pipeline *pipeline)
{
    size_t count = 0;
    if (check(pipeline) < 0)
        return 0;
    EACH_VISIBLE(ctx, pipeline)
    count++;
    return count;
}

size_t weir_pipeline_names(const weir_pipeline *pipeline, char *to, size_t size)
{
    size_t length = 0;
    if (size > 0)
        *to = '\0';
    if (check(pipeline) < 0)
        return 0;
    EACH_VISIBLE(ctx, pipeline)
    {
        size_t left = length < size ? size - length : 0;
        length += (size_t)snprintf(left > 0 ? to + length : NULL, left, "%s%s",
                                   length > 0 ? ", " : "", weir__ctx_name(ctx));
    }
    return length;
}

weir_ctx *weir_pipeline_ctx(weir_pipeline *pipeline, const char *name)
{
    if (pipeline == NULL || name == NULL)
        return NULL;
    WEIR_ASSERT(may_look(channel_of(pipeline)));
    weir_ctx *ctx = weir__pipeline_find(pipeline, name);
    return ctx != NULL ? weir__ctx_handler(ctx) : NULL;
}

weir_channel *weir_pipeline_channel(weir_pipeline *pipeline)
{
    return pipeline != NULL ? channel_of(pipeline) : NULL;
}
