/* SPDX-License-Identifier: MIT */
/* The logging handler. */
#include <weir/logging.h>

#include "base/alloc.h"
#include "channel/arg.h"

#include <weir/buf.h>
#include <weir/channel.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES 1024 /* of a buffer that are shown */

static weir_log_level level_of(const weir_logging *config)
{
    return config != NULL && config->level != WEIR_LOG_OFF ? config->level : WEIR_LOG_DEBUG;
}

static const char *origin_of(const weir_logging *config)
{
    return config != NULL && config->origin != NULL ? config->origin : "logging";
}

static bool is_logged(const weir_ctx *ctx)
{
    return weir_log_enabled(level_of(weir_ctx_arg(ctx)));
}

WEIR_PRINTF(2, 3)
static void say(const weir_ctx *ctx, const char *format, ...)
{
    const weir_logging *config = weir_ctx_arg(ctx);
    const weir_channel *channel = weir_ctx_channel(ctx);
    char what[512], local[WEIR_ADDRESS_TEXT_MAX], remote[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    weir_channel_local_address(channel, &address);
    weir_address_text(&address, local, sizeof local);
    weir_channel_remote_address(channel, &address);
    weir_address_text(&address, remote, sizeof remote);
    weir_log(level_of(config), origin_of(config), "[%08llx, L:%s, R:%s] %s",
             (unsigned long long)weir_channel_id(channel), local, remote, what);
}

static void say_event(const weir_ctx *ctx, const char *event)
{
    if (is_logged(ctx))
        say(ctx, "%s", event);
}

/* One line of the log for each of the table. */
static void log_table(const weir_logging *config, const char *table, size_t length)
{
    while (length > 0) {
        const char *end = memchr(table, '\n', length);
        size_t line = end != NULL ? (size_t)(end - table) : length;
        weir_log(level_of(config), origin_of(config), "%.*s", (int)line, table);
        line += end != NULL;
        table += line;
        length -= line;
    }
}

static void show_bytes(const weir_ctx *ctx, const weir_buf *buf)
{
    const weir_logging *config = weir_ctx_arg(ctx);
    size_t size = weir_buf_readable(buf);
    size_t shown = size < MOST_BYTES ? size : MOST_BYTES;
    weir_buf *table = weir_buf_new((size_t)MOST_BYTES * 5);
    if (table != NULL && weir_buf_hex_dump(buf, weir_buf_reader(buf), shown, table) == 0) {
        size_t length = weir_buf_readable(table);
        log_table(config, (const char *)weir_buf_peek(table, weir_buf_reader(table), length),
                  length);
        if (shown < size)
            weir_log(level_of(config), origin_of(config), "and %zu bytes more", size - shown);
    }
    if (table != NULL)
        weir_msg_release(&table->msg);
}

static void say_msg(const weir_ctx *ctx, const char *event, const weir_msg *msg)
{
    const weir_logging *config = weir_ctx_arg(ctx);
    if (!is_logged(ctx))
        return;
    if (msg->type != &weir_buf_type) {
        say(ctx, "%s: %s, %zu bytes", event, msg->type->name, weir_msg_size(msg));
        return;
    }
    say(ctx, "%s: %zu bytes", event, weir_msg_size(msg));
    if (config != NULL && config->is_hex && weir_msg_size(msg) > 0)
        show_bytes(ctx, (const weir_buf *)msg);
}

/* Lifecycle and inbound ------------------------------------------------------------------------ */

static void logging_on_registered(weir_ctx *ctx)
{
    say_event(ctx, "REGISTERED");
    weir_ctx_fire_registered(ctx);
}

static void logging_on_active(weir_ctx *ctx)
{
    say_event(ctx, "ACTIVE");
    weir_ctx_fire_active(ctx);
}

static void logging_on_read(weir_ctx *ctx, weir_msg *msg)
{
    say_msg(ctx, "READ", msg);
    weir_ctx_fire_read(ctx, msg);
}

static void logging_on_read_complete(weir_ctx *ctx)
{
    say_event(ctx, "READ COMPLETE");
    weir_ctx_fire_read_complete(ctx);
}

static void logging_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (is_logged(ctx))
        say(ctx, "EVENT: %s", event->type->name);
    weir_ctx_fire_event(ctx, event);
}

static void logging_on_writability(weir_ctx *ctx)
{
    if (is_logged(ctx))
        say(ctx, "WRITABILITY CHANGED: %s",
            weir_channel_is_writable(weir_ctx_channel(ctx)) ? "writable" : "not writable");
    weir_ctx_fire_writability(ctx);
}

static void logging_on_inactive(weir_ctx *ctx)
{
    say_event(ctx, "INACTIVE");
    weir_ctx_fire_inactive(ctx);
}

static void logging_on_unregistered(weir_ctx *ctx)
{
    say_event(ctx, "UNREGISTERED");
    weir_ctx_fire_unregistered(ctx);
}

static void logging_on_error(weir_ctx *ctx, const weir_error *error)
{
    if (is_logged(ctx))
        say(ctx, "ERROR: %s: %s (%s)", error->origin, error->message, weir_error_name(error->code));
    weir_ctx_fire_error(ctx, error);
}

/* Outbound ------------------------------------------------------------------------------------- */

static void say_address(const weir_ctx *ctx, const char *event, const weir_address *address)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    if (!is_logged(ctx))
        return;
    weir_address_text(address, text, sizeof text);
    say(ctx, "%s: %s", event, text);
}

static void logging_bind(weir_ctx *ctx, const weir_address *local, weir_promise *promise)
{
    say_address(ctx, "BIND", local);
    weir_ctx_bind(ctx, local, promise);
}

static void logging_connect(weir_ctx *ctx, const weir_address *remote, const weir_address *local,
                            weir_promise *promise)
{
    say_address(ctx, "CONNECT", remote);
    weir_ctx_connect(ctx, remote, local, promise);
}

static void logging_disconnect(weir_ctx *ctx, weir_promise *promise)
{
    say_event(ctx, "DISCONNECT");
    weir_ctx_disconnect(ctx, promise);
}

static void logging_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    say_msg(ctx, "WRITE", msg);
    weir_ctx_write(ctx, msg, promise);
}

static void logging_flush(weir_ctx *ctx)
{
    say_event(ctx, "FLUSH");
    weir_ctx_flush(ctx);
}

static void logging_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    say_event(ctx, "SHUTDOWN");
    weir_ctx_shutdown(ctx, promise);
}

static void logging_close(weir_ctx *ctx, weir_promise *promise)
{
    say_event(ctx, "CLOSE");
    weir_ctx_close(ctx, promise);
}

static void logging_deregister(weir_ctx *ctx, weir_promise *promise)
{
    say_event(ctx, "DEREGISTER");
    weir_ctx_deregister(ctx, promise);
}

static void logging_added(weir_ctx *ctx)
{
    const weir_logging *config = weir_ctx_arg(ctx);
    if (config != NULL)
        weir__arg_check(ctx, "level", config->level, WEIR_LOG_OFF, WEIR_LOG_TRACE);
}

static int logging_retain(void *arg)
{
    weir_logging *config = arg;
    if (config->origin == NULL)
        return 0;
    config->origin = weir__strdup(config->origin);
    return config->origin != NULL ? 0 : -ENOMEM;
}

static void logging_release(void *arg)
{
    const weir_logging *config = arg;
    weir__free((void *)config->origin);
}

const weir_handler_type weir_logging_handler = {
    .name = "logging",
    .arg_size = sizeof(weir_logging),
    .arg_retain = logging_retain,
    .arg_release = logging_release,
    .added = logging_added,
    .on_registered = logging_on_registered,
    .on_active = logging_on_active,
    .on_read = logging_on_read,
    .on_read_complete = logging_on_read_complete,
    .on_event = logging_on_event,
    .on_writability = logging_on_writability,
    .on_inactive = logging_on_inactive,
    .on_unregistered = logging_on_unregistered,
    .on_error = logging_on_error,
    .bind = logging_bind,
    .connect = logging_connect,
    .disconnect = logging_disconnect,
    .write = logging_write,
    .flush = logging_flush,
    .shutdown = logging_shutdown,
    .close = logging_close,
    .deregister = logging_deregister,
};
