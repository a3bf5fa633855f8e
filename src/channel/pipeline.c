/* SPDX-License-Identifier: MIT */
/* Pipelines: the list of contexts, and what can be seen of it. */
#include "channel/pipeline.h"

#include "base/assert.h"
#include "channel/channel.h"
#include "channel/lane.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * The list is changed by the loop alone, under the channel's lock, so that the loop reads it
 * without one and others with it. Whether a handler can be found (`is_listed`) changes in the call
 * that adds or removes it, on any thread: a name is taken or free when the call returns, and who
 * loses a race is told. What another thread adds waits in `arriving` until the loop links it.
 */

static weir_channel *channel_of(const weir_pipeline *pipeline)
{
    return pipeline->head.channel;
}

void weir__pipeline_init(weir_pipeline *pipeline, weir_channel *channel)
{
    weir__ctx_init_end(&pipeline->head, channel, &weir__head_type);
    weir__ctx_init_end(&pipeline->tail, channel, &weir__tail_type);
    pipeline->head.next = &pipeline->tail;
    pipeline->tail.prev = &pipeline->head;
    pipeline->arriving = NULL;
}

void weir__pipeline_call_added(weir_pipeline *pipeline)
{
    /* `added` may add and remove; what it adds is told at once, and removed contexts stay linked.
     */
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
    if (atomic_load_explicit(&ctx->next->eof, memory_order_relaxed) & WEIR__EOF_PASSED)
        atomic_store_explicit(&ctx->eof, WEIR__EOF_PASSED | WEIR__EOF_RECEIVED,
                              memory_order_relaxed);
    ctx->next->prev = ctx;
    atomic_signal_fence(memory_order_release); /* for a signal handler that walks the list */
    prev->next = ctx;
}

bool weir__pipeline_forget_arriving(weir_pipeline *pipeline, const weir_ctx *ctx)
{
    weir_ctx **at = &pipeline->arriving;
    while (*at != NULL && *at != ctx)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = ctx->next;
    return true;
}

/* Links the handlers whose adds are still in the inbox, so that they are removed with the others;
 * run_change finds them gone. The channel is closed: no further add is accepted. Under the lock. */
static void link_arriving(weir_pipeline *pipeline)
{
    while (pipeline->arriving != NULL) {
        weir_ctx *ctx = pipeline->arriving;
        pipeline->arriving = ctx->next;
        weir__pipeline_link(pipeline->tail.prev, ctx);
    }
}

void weir__pipeline_remove_all(weir_pipeline *pipeline)
{
    weir__channel_lock(channel_of(pipeline));
    link_arriving(pipeline);
    for (weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next)
        ctx->is_listed = false;
    weir__channel_unlock(channel_of(pipeline));
    for (weir_ctx *ctx = pipeline->tail.prev; ctx != &pipeline->head; ctx = ctx->prev)
        weir__ctx_remove(ctx);
}

void weir__pipeline_deinit(weir_pipeline *pipeline)
{
    for (weir_ctx *ctx = pipeline->head.next, *next; ctx != &pipeline->tail; ctx = next) {
        next = ctx->next;
        weir__ctx_free(ctx);
    }
}

/* Finding, under the lock ---------------------------------------------------------------------- */

static bool has_name(const weir_ctx *ctx, const char *name)
{
    return ctx->is_listed && strcmp(weir__ctx_name(ctx), name) == 0;
}

weir_ctx *weir__pipeline_find_linked(const weir_pipeline *pipeline, const char *name)
{
    for (weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next) {
        if (has_name(ctx, name))
            return ctx;
    }
    return NULL;
}

weir_ctx *weir__pipeline_find(const weir_pipeline *pipeline, const char *name)
{
    weir_ctx *found = name != NULL ? weir__pipeline_find_linked(pipeline, name) : NULL;
    for (weir_ctx *ctx = pipeline->arriving; name != NULL && found == NULL && ctx != NULL;
         ctx = ctx->next)
        found = has_name(ctx, name) ? ctx : NULL;
    return found;
}

/* The n-th that is listed and of the type (NULL: any), NULL behind the last; counts them. */
static weir_ctx *walk(const weir_pipeline *pipeline, const weir_handler_type *type, size_t *n)
{
    for (weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next) {
        if (ctx->is_listed && (type == NULL || ctx->type == type) && (*n)-- == 0)
            return ctx;
    }
    return NULL;
}

weir_ctx *weir__pipeline_find_type(const weir_pipeline *pipeline, const weir_handler_type *type)
{
    size_t n = 0;
    weir_ctx *found = walk(pipeline, type, &n);
    for (weir_ctx *ctx = pipeline->arriving; found == NULL && ctx != NULL; ctx = ctx->next)
        found = ctx->is_listed && ctx->type == type ? ctx : NULL;
    return found;
}

/* In the list; a handler that was removed stays in it as long as another may refer to it. */
weir_ctx *weir__pipeline_find_serial(weir_pipeline *pipeline, uint32_t serial, bool may_be_removed)
{
    for (weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next) {
        if (ctx->serial == serial && (may_be_removed || ctx->state != WEIR_CTX_REMOVED))
            return ctx;
    }
    return NULL;
}

/* Looking -------------------------------------------------------------------------------------- */

static int describe(const weir_ctx *ctx, weir_handler_info *info)
{
    if (ctx == NULL)
        return WEIR_ENOTFOUND;
    if (info == NULL)
        return 0;
    weir_loop *loop = weir__channel_loop(ctx->channel);
    *info = (weir_handler_info){ .type = ctx->type, .arg = weir__ctx_member(ctx)->arg };
    if (ctx->is_elsewhere)
        info->executor = weir__ctx_lane(ctx)->executor;
    else
        info->executor = loop != NULL ? &loop->base : NULL;
    snprintf(info->name, sizeof info->name, "%s", weir__ctx_name(ctx));
    return 0;
}

int weir_pipeline_find(const weir_pipeline *pipeline, const char *name, weir_handler_info *info)
{
    if (pipeline == NULL || name == NULL)
        return -EINVAL;
    weir__channel_lock(channel_of(pipeline));
    int code = describe(weir__pipeline_find(pipeline, name), info);
    weir__channel_unlock(channel_of(pipeline));
    return code;
}

int weir_pipeline_find_type(const weir_pipeline *pipeline, const weir_handler_type *type,
                            weir_handler_info *info)
{
    size_t n = 0;
    if (pipeline == NULL || type == NULL)
        return -EINVAL;
    weir__channel_lock(channel_of(pipeline));
    int code = describe(walk(pipeline, type, &n), info);
    weir__channel_unlock(channel_of(pipeline));
    return code;
}

int weir_pipeline_at(const weir_pipeline *pipeline, size_t index, weir_handler_info *info)
{
    if (pipeline == NULL)
        return -EINVAL;
    weir__channel_lock(channel_of(pipeline));
    int code = describe(walk(pipeline, NULL, &index), info);
    weir__channel_unlock(channel_of(pipeline));
    return code;
}

size_t weir_pipeline_count(const weir_pipeline *pipeline)
{
    size_t n = SIZE_MAX;
    if (pipeline == NULL)
        return 0;
    weir__channel_lock(channel_of(pipeline));
    walk(pipeline, NULL, &n);
    weir__channel_unlock(channel_of(pipeline));
    return SIZE_MAX - n;
}

size_t weir_pipeline_names(const weir_pipeline *pipeline, char *to, size_t size)
{
    size_t length = 0;
    if (size > 0)
        *to = '\0';
    if (pipeline == NULL)
        return 0;
    weir__channel_lock(channel_of(pipeline));
    for (weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next) {
        size_t left = length < size ? size - length : 0;
        const char *comma = length > 0 ? ", " : "";
        if (!ctx->is_listed)
            continue;
        char *at = left > 0 ? to + length : NULL;
        length += (size_t)snprintf(at, left, "%s%s", comma, weir__ctx_name(ctx));
    }
    weir__channel_unlock(channel_of(pipeline));
    return length;
}

weir_ctx *weir_pipeline_ctx(weir_pipeline *pipeline, const char *name)
{
    if (pipeline == NULL || name == NULL)
        return NULL;
    WEIR_ASSERT(weir__channel_is_mine(channel_of(pipeline)));
    weir__channel_lock(channel_of(pipeline));
    weir_ctx *ctx = weir__pipeline_find_linked(pipeline, name);
    weir__channel_unlock(channel_of(pipeline));
    return ctx;
}

weir_channel *weir_pipeline_channel(weir_pipeline *pipeline)
{
    return pipeline != NULL ? channel_of(pipeline) : NULL;
}
