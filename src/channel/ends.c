/* SPDX-License-Identifier: MIT */
/* The ends of a pipeline: the head, where operations are done, and the tail, where events end. */
#include "base/counter.h"
#include "channel/channel.h"

#include <weir/log.h>

#include <errno.h>

/* The head ------------------------------------------------------------------------------------- */

/* Whether the channel can still do anything; else the promise has failed. */
static bool is_open(weir_channel *channel, weir_promise *promise)
{
    if (!weir__channel_is_closing(channel))
        return true;
    weir__promise_end(promise, WEIR_ECLOSED);
    return false;
}

static void head_on_active(weir_ctx *ctx)
{
    weir_ctx_fire_active(ctx);
    if (ctx->channel->in.is_auto_read)
        weir_ctx_read(&ctx->channel->pipeline.tail);
}

static void head_on_read_complete(weir_ctx *ctx)
{
    weir__channel_fire_read_complete(ctx->channel);
}

static void head_bind(weir_ctx *ctx, const weir_address *local, weir_promise *promise)
{
    weir_channel *channel = ctx->channel;
    if (!is_open(channel, promise))
        return;
    if (channel->transport->bind != NULL)
        channel->transport->bind(channel, local, promise);
    else
        weir__promise_end(promise, -EOPNOTSUPP);
}

static void head_connect(weir_ctx *ctx, const weir_address *remote, const weir_address *local,
                         weir_promise *promise)
{
    weir_channel *channel = ctx->channel;
    if (!is_open(channel, promise))
        return;
    if (channel->transport->connect != NULL)
        channel->transport->connect(channel, remote, local, promise);
    else
        weir__promise_end(promise, -EOPNOTSUPP);
}

static void head_disconnect(weir_ctx *ctx, weir_promise *promise)
{
    weir_channel *channel = ctx->channel;
    if (channel->transport->disconnect == NULL)
        weir__channel_close_now(channel, promise); /* a stream has no other way */
    else if (is_open(channel, promise))
        channel->transport->disconnect(channel, promise);
}

WEIR__HOT static void head_read(weir_ctx *ctx)
{
    weir__channel_read_now(ctx->channel);
}

WEIR__HOT static void head_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir__channel_write_now(ctx->channel, msg, promise);
}

WEIR__HOT static void head_flush(weir_ctx *ctx)
{
    weir__channel_flush_now(ctx->channel);
}

static void head_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    if (is_open(ctx->channel, promise))
        weir__channel_shutdown_now(ctx->channel, promise);
}

static void head_close(weir_ctx *ctx, weir_promise *promise)
{
    weir__channel_close_now(ctx->channel, promise);
}

static void head_deregister(weir_ctx *ctx, weir_promise *promise)
{
    if (is_open(ctx->channel, promise))
        weir__channel_deregister_now(ctx->channel, promise);
}

const weir_handler_type weir__head_type = {
    .name = "head",
    .on_active = head_on_active,
    .on_read_complete = head_on_read_complete,
    .bind = head_bind,
    .connect = head_connect,
    .disconnect = head_disconnect,
    .read = head_read,
    .write = head_write,
    .flush = head_flush,
    .shutdown = head_shutdown,
    .close = head_close,
    .deregister = head_deregister,
};

/* The tail ------------------------------------------------------------------------------------- */

static bool is_taken(weir_channel *channel, weir_msg *msg, const weir_error *error)
{
    return channel->transport->unhandled != NULL &&
           channel->transport->unhandled(channel, msg, error);
}

static void tail_ignore(weir_ctx *ctx)
{
    (void)ctx;
}

static void tail_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_channel *channel = ctx->channel;
    if (!channel->pipeline.rejects_reads && is_taken(channel, msg, NULL))
        return;
    weir__counter_add(&channel->in.discarded, 1);
    weir_log(WEIR_LOG_DEBUG, "pipeline",
             "%08llx: discarded a message of type %s that no handler took",
             (unsigned long long)channel->id, msg->type->name);
    weir_msg_release(msg);
}

static void tail_on_event(weir_ctx *ctx, weir_msg *event)
{
    (void)ctx;
    weir_msg_release(event);
}

/* Peers cause these at will: they must not fill the log. */
static weir_log_level level_of(int code)
{
    bool is_peers = code == -ECONNRESET || code == -EPIPE || code == -ETIMEDOUT ||
                    code == WEIR_EOF || code == WEIR_ECLOSED;
    return is_peers ? WEIR_LOG_INFO : WEIR_LOG_WARN;
}

static void tail_on_error(weir_ctx *ctx, const weir_error *error)
{
    if (!is_taken(ctx->channel, NULL, error))
        weir_log(level_of(error->code), "pipeline",
                 "%08llx: an error that no handler took: %s: %s (%s)",
                 (unsigned long long)ctx->channel->id, error->origin, error->message,
                 weir_error_name(error->code));
}

const weir_handler_type weir__tail_type = {
    .name = "tail",
    .on_registered = tail_ignore,
    .on_active = tail_ignore,
    .on_read = tail_on_read,
    .on_read_complete = tail_ignore,
    .on_event = tail_on_event,
    .on_writability = tail_ignore,
    .on_inactive = tail_ignore,
    .on_unregistered = tail_ignore,
    .on_error = tail_on_error,
};

/* Both ------------------------------------------------------------------------------------------
 */

/* Here, where the compiler knows which callbacks the two have. */
void weir__pipeline_init(weir_pipeline *pipeline, weir_channel *channel)
{
    weir__ctx_init_end(&pipeline->head, channel, &weir__head_type);
    weir__ctx_init_end(&pipeline->tail, channel, &weir__tail_type);
    pipeline->head.next = &pipeline->tail;
    pipeline->tail.prev = &pipeline->head;
}
