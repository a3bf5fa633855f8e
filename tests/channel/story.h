/* SPDX-License-Identifier: MIT */
/* What the tests of channels share: a story that handlers and listeners write down in words. */
#ifndef WEIR_TESTS_CHANNEL_STORY_H
#define WEIR_TESTS_CHANNEL_STORY_H

#include "harness.h"

#include <weir/embedded.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words, in the order in which things happened. Any thread. */
typedef struct story {
    pthread_mutex_t lock;
    char text[4096];
} story;

#define STORY                                                                                      \
    (story)                                                                                        \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

static inline void story_add(story *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&self->lock);
    size_t length = strlen(self->text);
    if (length > 0 && length + 1 < sizeof self->text)
        self->text[length++] = ' ';
    vsnprintf(self->text + length, sizeof self->text - length, format, args);
    pthread_mutex_unlock(&self->lock);
    va_end(args);
}

/* What has happened since the last look. */
static inline void story_is(story *self, const char *expected)
{
    char text[sizeof self->text];
    pthread_mutex_lock(&self->lock);
    memcpy(text, self->text, sizeof text);
    self->text[0] = '\0';
    pthread_mutex_unlock(&self->lock);
    assert_string_equal(text, expected);
}

static inline bool story_has(story *self, const char *word)
{
    pthread_mutex_lock(&self->lock);
    bool has = strstr(self->text, word) != NULL;
    pthread_mutex_unlock(&self->lock);
    return has;
}

/* The handler that writes down what it sees; its arg is the story. ---------------------------- */

static inline void recorder_added(weir_ctx *ctx)
{
    story_add(weir_ctx_arg(ctx), "added");
}

static inline void recorder_removed(weir_ctx *ctx)
{
    story_add(weir_ctx_arg(ctx), "removed");
}

static inline void recorder_on_registered(weir_ctx *ctx)
{
    story_add(weir_ctx_arg(ctx), "registered");
    weir_ctx_fire_registered(ctx);
}

static inline void recorder_on_active(weir_ctx *ctx)
{
    story_add(weir_ctx_arg(ctx), "active");
    weir_ctx_fire_active(ctx);
}

static inline void recorder_on_read(weir_ctx *ctx, weir_msg *msg)
{
    char bytes[64] = "";
    weir_buf *buf = (weir_buf *)msg;
    size_t length = weir_buf_readable(buf) < 63 ? weir_buf_readable(buf) : 63;
    weir_buf_get_bytes(buf, weir_buf_reader(buf), bytes, length);
    story_add(weir_ctx_arg(ctx), "read(%s)", bytes);
    weir_msg_release(msg);
}

static inline void recorder_on_read_complete(weir_ctx *ctx)
{
    story_add(weir_ctx_arg(ctx), "complete");
    weir_ctx_fire_read_complete(ctx);
}

static inline void recorder_on_event(weir_ctx *ctx, weir_msg *event)
{
    story_add(weir_ctx_arg(ctx), event == &weir_event_input_closed ? "input_closed" : "event");
    weir_ctx_fire_event(ctx, event);
}

static inline void recorder_on_inactive(weir_ctx *ctx)
{
    story_add(weir_ctx_arg(ctx), "inactive");
    weir_ctx_fire_inactive(ctx);
}

static inline void recorder_on_unregistered(weir_ctx *ctx)
{
    story_add(weir_ctx_arg(ctx), "unregistered");
    weir_ctx_fire_unregistered(ctx);
}

static inline void recorder_on_error(weir_ctx *ctx, const weir_error *error)
{
    story_add(weir_ctx_arg(ctx), "error(%s)", weir_error_name(error->code));
}

static const weir_handler_type recorder = {
    .name = "recorder",
    .added = recorder_added,
    .removed = recorder_removed,
    .on_registered = recorder_on_registered,
    .on_active = recorder_on_active,
    .on_read = recorder_on_read,
    .on_read_complete = recorder_on_read_complete,
    .on_event = recorder_on_event,
    .on_inactive = recorder_on_inactive,
    .on_unregistered = recorder_on_unregistered,
    .on_error = recorder_on_error,
};

static inline int add_recorder(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "recorder", &recorder, arg);
}

/* Who listens to a promise, and writes down "name=code". -------------------------------------- */

typedef struct ear {
    weir_listener listener;
    story *story;
    const char *name;
    weir_executor *executor; /* where it was told */
    int code;
    _Atomic(int) told;
} ear;

static inline void ear_done(weir_listener *listener, weir_future *future)
{
    ear *self = (ear *)listener;
    self->code = weir_future_code(future);
    self->executor = weir_executor_current();
    if (self->story != NULL)
        story_add(self->story, "%s=%s", self->name,
                  self->code == 0 ? "ok" : weir_error_name(self->code));
    self->told++;
}

static inline void ear_listen(ear *self, story *to, const char *name, weir_future *future)
{
    *self = (ear){ .listener.done = ear_done, .story = to, .name = name, .code = -EINPROGRESS };
    weir_future_listen(future, &self->listener);
}

/* A promise of the channel's that is listened to; who gets it releases it. */
static inline weir_promise *ear_promise(ear *self, story *to, const char *name,
                                        weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    assert_non_null(promise);
    ear_listen(self, to, name, weir_promise_future(promise));
    return promise;
}

/* Calls one of the functions that take a channel and a promise, with an ear at the promise. */
typedef void (*promised_fn)(weir_channel *channel, weir_promise *promise);

static inline void call_with_ear(promised_fn fn, weir_channel *channel, ear *at, story *to,
                                 const char *name)
{
    weir_promise *promise = ear_promise(at, to, name, channel);
    fn(channel, promise);
    weir_promise_release(promise);
}

static inline weir_msg *text_msg(const char *text)
{
    weir_buf *buf = weir_buf_from(text, strlen(text));
    assert_non_null(buf);
    return &buf->msg;
}

static inline void write_text(weir_channel *channel, const char *text, ear *at, story *to)
{
    weir_promise *promise = at != NULL ? ear_promise(at, to, text, channel) : NULL;
    weir_channel_write(channel, text_msg(text), promise);
    weir_promise_release(promise);
}

/* All that was sent until now. */
static inline void sent_is(weir_embedded *embedded, const char *expected)
{
    char text[1024] = "";
    weir_embedded_read_outbound_bytes(embedded, text, sizeof text - 1);
    assert_string_equal(text, expected);
}

static inline weir_embedded *open_embedded(const weir_embedded_config *config)
{
    weir_embedded *embedded = NULL;
    assert_int_equal(weir_embedded_new(&embedded, config, NULL), 0);
    return embedded;
}

/* With a recorder that writes the story. */
static inline weir_embedded *open_recorded(story *to)
{
    return open_embedded(&(weir_embedded_config){ .init = add_recorder, .arg = to });
}

/* A channel that was made unconnected becomes active. A weir_call_fn. */
static inline int bind_somewhere(void *channel)
{
    weir_address address = { 0 };
    weir_channel_bind(channel, &address, NULL);
    return 0;
}

/* Groups --------------------------------------------------------------------------------------- */

static inline weir_group *open_group(const weir_group_config *config)
{
    weir_group *group = NULL;
    assert_int_equal(weir_group_new(&group, config, NULL), 0);
    return group;
}

static inline void end_group(weir_group *group)
{
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    weir_group_free(group);
}

/* A loop that has ended, of a group that is still there. */
static inline weir_group *ended_group(bool is_manual)
{
    weir_group *group = open_group(&(weir_group_config){ .loops = 1, .is_manual = is_manual });
    assert_int_equal(weir_group_shutdown(group, 0, 0), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    return group;
}

static inline weir_executor_stats stats_of(weir_executor *executor)
{
    weir_executor_stats stats;
    weir_executor_get_stats(executor, &stats);
    return stats;
}

/* Two loops stepped by hand, at a time that stands still. */
typedef struct pair {
    weir_virtual_clock clock;
    weir_group *group;
    weir_executor *first, *second;
} pair;

static inline void open_pair(pair *self)
{
    weir_virtual_clock_init(&self->clock, 0);
    weir_group_config config = { .loops = 2, .is_manual = true, .watchdog_ns = WEIR_OFF };
    config.clock = &self->clock.clock;
    self->group = open_group(&config);
    self->first = weir_group_at(self->group, 0);
    self->second = weir_group_at(self->group, 1);
}

/* Steps until there is nothing to do at the present time. */
static inline void run_pair(pair *self)
{
    int turns = 0;
    while (weir_group_next_ns(self->group) == 0 && ++turns < 1000)
        weir_group_step(self->group);
    assert_true(turns < 1000);
}

static inline void advance_pair(pair *self, int64_t step_ns)
{
    weir_virtual_clock_advance(&self->clock, step_ns);
    run_pair(self);
}

/* Calls that need a loop, too, with an ear at their promise. */
typedef void (*loop_fn)(weir_channel *channel, weir_executor *loop, weir_promise *promise);

static inline void go_with_ear(loop_fn fn, weir_channel *channel, weir_executor *loop, ear *at,
                               story *to, const char *name)
{
    weir_promise *promise = ear_promise(at, to, name, channel);
    fn(channel, loop, promise);
    weir_promise_release(promise);
}

/* Runs a function on a loop of a pair, and all that comes of it. */
static inline void on_loop(pair *loops, weir_executor *loop, weir_call_fn fn, void *arg)
{
    assert_int_equal(weir_executor_execute(loop, fn, arg), 0);
    run_pair(loops);
}

/* A channel on the first loop of a pair. */
static inline weir_embedded *open_on_pair(pair *loops, story *to)
{
    weir_embedded_config config = { .init = to != NULL ? add_recorder : NULL, .arg = to };
    config.group = loops->group;
    config.is_unregistered = true;
    weir_embedded *e = open_embedded(&config);
    weir_channel_register(weir_embedded_channel(e), loops->first, NULL);
    run_pair(loops);
    if (to != NULL)
        story_is(to, "added registered active");
    return e;
}

static inline void close_on_pair(pair *loops, weir_embedded *e)
{
    run_pair(loops);
    weir_embedded_free(e);
    end_group(loops->group);
}

static inline weir_executor *executor_of(weir_channel *channel)
{
    return weir_loop_executor(weir_channel_loop(channel));
}

#endif
