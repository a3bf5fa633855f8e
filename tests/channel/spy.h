/* SPDX-License-Identifier: MIT */
/* Handlers that write down what they see, for the tests of pipelines. */
#ifndef WEIR_TESTS_CHANNEL_SPY_H
#define WEIR_TESTS_CHANNEL_SPY_H

#include "harness.h"

#include <weir/embedded.h>
#include <weir/weir.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was seen since the last look, as "a.on_read b.on_read". */
static char spy_trace[4096];

static inline void spy_note(const char *format, ...)
{
    size_t length = strlen(spy_trace);
    va_list args;
    if (length > 0 && length < sizeof spy_trace - 1)
        spy_trace[length++] = ' ';
    va_start(args, format);
    vsnprintf(spy_trace + length, sizeof spy_trace - length, format, args);
    va_end(args);
}

static inline void spy_forget(void)
{
    memset(spy_trace, 0, sizeof spy_trace);
}

static inline void spy_expect(const char *expected, const char *file, int line)
{
    char seen[sizeof spy_trace];
    memcpy(seen, spy_trace, sizeof seen);
    spy_forget();
    _assert_string_equal(seen, expected, file, line);
}

#define assert_trace(expected) spy_expect(expected, __FILE__, __LINE__)

/* What a spy does, once, when it sees the event `at`: its argument, which may be NULL. */
typedef struct spy_act {
    const char *at;
    void (*act)(weir_ctx *ctx);
    bool stops; /* the event ends there */
    bool is_done;
} spy_act;

/* Whether the event goes on. */
static inline bool spy_saw(weir_ctx *ctx, const char *event, const char *what)
{
    spy_act *act = weir_ctx_arg(ctx);
    bool is_time = act != NULL && !act->is_done && strcmp(act->at, event) == 0;
    spy_note("%s.%s%s", weir_ctx_name(ctx), event, what);
    if (!is_time)
        return true;
    act->is_done = true;
    act->act(ctx);
    return !act->stops;
}

#define SPY_PLAIN(event, pass)                                                                     \
    static inline void spy_##event(weir_ctx *ctx)                                                  \
    {                                                                                              \
        if (spy_saw(ctx, #event, ""))                                                              \
            pass(ctx);                                                                             \
    }
#define SPY_MSG(event, pass)                                                                       \
    static inline void spy_##event(weir_ctx *ctx, weir_msg *msg)                                   \
    {                                                                                              \
        if (spy_saw(ctx, #event, ""))                                                              \
            pass(ctx, msg);                                                                        \
        else                                                                                       \
            weir_msg_release(msg);                                                                 \
    }
#define SPY_OP(event, pass)                                                                        \
    static inline void spy_##event(weir_ctx *ctx, weir_promise *promise)                           \
    {                                                                                              \
        if (spy_saw(ctx, #event, ""))                                                              \
            pass(ctx, promise);                                                                    \
        else if (promise != NULL)                                                                  \
            weir_promise_set(promise, 0);                                                          \
    }

static inline void spy_pass_nothing(weir_ctx *ctx)
{
    (void)ctx;
}

SPY_PLAIN(added, spy_pass_nothing)
SPY_PLAIN(removed, spy_pass_nothing)
SPY_PLAIN(on_registered, weir_ctx_fire_registered)
SPY_PLAIN(on_active, weir_ctx_fire_active)
SPY_MSG(on_read, weir_ctx_fire_read)
SPY_PLAIN(on_read_complete, weir_ctx_fire_read_complete)
SPY_MSG(on_event, weir_ctx_fire_event)
SPY_PLAIN(on_writability, weir_ctx_fire_writability)
SPY_PLAIN(on_inactive, weir_ctx_fire_inactive)
SPY_PLAIN(on_unregistered, weir_ctx_fire_unregistered)
SPY_OP(disconnect, weir_ctx_disconnect)
SPY_PLAIN(read, weir_ctx_read)
SPY_PLAIN(flush, weir_ctx_flush)
SPY_OP(shutdown, weir_ctx_shutdown)
SPY_OP(close, weir_ctx_close)
SPY_OP(deregister, weir_ctx_deregister)

static inline void spy_on_error(weir_ctx *ctx, const weir_error *error)
{
    char what[64];
    snprintf(what, sizeof what, "(%s)", weir_error_name(error->code));
    if (spy_saw(ctx, "on_error", what))
        weir_ctx_fire_error(ctx, error);
}

static inline void spy_bind(weir_ctx *ctx, const weir_address *local, weir_promise *promise)
{
    if (spy_saw(ctx, "bind", ""))
        weir_ctx_bind(ctx, local, promise);
}

static inline void spy_connect(weir_ctx *ctx, const weir_address *remote, const weir_address *local,
                               weir_promise *promise)
{
    if (spy_saw(ctx, "connect", ""))
        weir_ctx_connect(ctx, remote, local, promise);
}

static inline void spy_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    if (spy_saw(ctx, "write", "")) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    weir_msg_release(msg);
    if (promise != NULL)
        weir_promise_set(promise, 0);
}

/* What most cases look at: `read` would come again after every batch. */
#define SPY_MOST                                                                                   \
    .added = spy_added, .removed = spy_removed, .on_registered = spy_on_registered,                \
    .on_active = spy_on_active, .on_read = spy_on_read, .on_read_complete = spy_on_read_complete,  \
    .on_event = spy_on_event, .on_writability = spy_on_writability,                                \
    .on_inactive = spy_on_inactive, .on_unregistered = spy_on_unregistered,                        \
    .on_error = spy_on_error, .bind = spy_bind, .connect = spy_connect,                            \
    .disconnect = spy_disconnect, .write = spy_write, .flush = spy_flush,                          \
    .shutdown = spy_shutdown, .close = spy_close, .deregister = spy_deregister

static const weir_handler_type spy = { .name = "spy", SPY_MOST };
static const weir_handler_type spy_all = { .name = "spy_all", SPY_MOST, .read = spy_read };
static const weir_handler_type spy_coming = { .name = "coming", .added = spy_added };
static const weir_handler_type spy_reads = { .name = "reads", .on_read = spy_on_read };
static const weir_handler_type spy_writes = { .name = "writes", .write = spy_write };
static const weir_handler_type spy_errors = { .name = "errors", .on_error = spy_on_error };

/* Messages ------------------------------------------------------------------------------------- */

static inline weir_msg *spy_text(const char *text)
{
    weir_buf *buf = weir_buf_from(text, strlen(text));
    assert_non_null(buf);
    return &buf->msg;
}

/* The message is a buffer with this text; releases it. */
static inline void spy_expect_text(weir_msg *msg, const char *text)
{
    char bytes[64] = { 0 };
    assert_non_null(msg);
    assert_ptr_equal(msg->type, &weir_buf_type);
    size_t size = weir_buf_readable((weir_buf *)msg);
    assert_true(size < sizeof bytes);
    assert_int_equal(weir_buf_read_bytes((weir_buf *)msg, bytes, size), 0);
    weir_msg_release(msg);
    assert_string_equal(bytes, text);
}

/* Numbers, and handlers that say what they take and give. */
typedef struct number {
    weir_msg msg;
    int value;
} number;

static inline void number_destroy(weir_msg *msg)
{
    free(msg);
}

static const weir_msg_type number_type = { .name = "number", .destroy = number_destroy };

static inline weir_msg *number_new(int value)
{
    number *self = malloc(sizeof *self);
    assert_non_null(self);
    weir_msg_init(&self->msg, &number_type);
    self->value = value;
    return &self->msg;
}

static inline int take_number(weir_msg *msg)
{
    assert_ptr_equal(msg->type, &number_type);
    int value = ((number *)msg)->value;
    weir_msg_release(msg);
    return value;
}

static inline void double_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, number_new(2 * take_number(msg)));
}

static inline void print_on_read(weir_ctx *ctx, weir_msg *msg)
{
    char text[32];
    snprintf(text, sizeof text, "<%d>", take_number(msg));
    weir_ctx_fire_read(ctx, spy_text(text));
}

static const weir_handler_type doubler = {
    .name = "doubler",
    .on_read = double_on_read,
    .takes_reads = &number_type,
    .gives_reads = &number_type,
};
static const weir_handler_type printer = {
    .name = "printer",
    .on_read = print_on_read,
    .takes_reads = &number_type,
    .gives_reads = &weir_buf_type,
};

/* Channels ------------------------------------------------------------------------------------- */

/* Handlers of a pipeline, head's side first; ended by one without a type. */
typedef struct spy_entry {
    const char *name;
    const weir_handler_type *type;
    void *arg;
} spy_entry;

static __attribute__((unused)) spy_entry no_handlers[] = { { 0 } };

static inline int spy_add_entries(weir_pipeline *pipeline, const spy_entry *entry)
{
    int code = 0;
    for (; code == 0 && entry->type != NULL; entry++)
        code = weir_pipeline_add_last(pipeline, entry->name, entry->type, entry->arg);
    return code;
}

static inline int spy_init(weir_channel *channel, void *entries)
{
    return spy_add_entries(weir_channel_pipeline(channel), entries);
}

static inline void fail_eio(weir_ctx *ctx)
{
    weir_ctx_fail(ctx, -EIO, "input or output %d", 5);
}

/* One executor, for handlers that are offloaded to it. */
static inline weir_group *open_executors(bool is_manual)
{
    weir_group *group = NULL;
    weir_group_config config = { .count = 1, .is_manual = is_manual, .watchdog_ns = WEIR_OFF };
    assert_int_equal(weir_group_new_executors(&group, &config, NULL), 0);
    return group;
}

/* A channel that is active, with these handlers; what they saw until then is forgotten. */
static inline weir_embedded *spy_open(spy_entry *entries)
{
    weir_embedded *embedded;
    spy_forget();
    weir_embedded_config config = { .init = spy_init, .arg = entries };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    spy_forget();
    return embedded;
}

/* One with these handlers that is on no loop yet. */
static inline weir_embedded *spy_open_unregistered(const spy_entry *entries)
{
    weir_embedded *embedded;
    spy_forget();
    weir_embedded_config config = { .is_unregistered = true };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    assert_int_equal(spy_add_entries(weir_embedded_pipeline(embedded), entries), 0);
    return embedded;
}

static inline void spy_register(weir_embedded *embedded)
{
    weir_channel_register(weir_embedded_channel(embedded), weir_embedded_executor(embedded), NULL);
    assert_int_equal(weir_embedded_run(embedded), 0);
}

/* Nothing is left in it. */
static inline void spy_end(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
    spy_forget();
}

static inline void spy_expect_names(weir_pipeline *pipeline, const char *expected)
{
    char names[256];
    assert_int_equal(weir_pipeline_names(pipeline, names, sizeof names), strlen(expected));
    assert_string_equal(names, expected);
}

/* Calls `fn(embedded)` on the loop. */
static inline int spy_call(weir_embedded *embedded, int (*fn)(void *embedded))
{
    return weir_embedded_call(embedded, fn, embedded);
}

/* An error has reached the tail: its code and origin. */
static inline void spy_expect_error(weir_embedded *embedded, int code, const char *origin)
{
    weir_error error = { .code = 0 };
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_int_equal(error.code, code);
    assert_string_equal(error.origin, origin);
}

#endif
