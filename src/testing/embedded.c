/* SPDX-License-Identifier: MIT */
/* The embedded channel, in a test's hands. */
#include "testing/embedded.h"

#include "base/alloc.h"
#include "base/leak.h"
#include "channel/inbox.h"
#include "testing/script_io.h"

#include <weir/buf.h>
#include <weir/clock.h>
#include <weir/embedded.h>
#include <weir/script.h>
#include <weir/timer.h>

#include <errno.h>

/* So many turns without an end, and something posts itself again and again. */
#define MOST_TURNS 1000

/* Of ten milliseconds each, for what other threads have to finish. */
#define MOST_WAITS 1000

weir_channel *weir_embedded_channel(weir_embedded *self)
{
    return self != NULL ? self->channel : NULL;
}

weir_pipeline *weir_embedded_pipeline(weir_embedded *self)
{
    return self != NULL ? weir_channel_pipeline(self->channel) : NULL;
}

weir_executor *weir_embedded_executor(weir_embedded *self)
{
    return self != NULL ? self->executor : NULL;
}

/* Running -------------------------------------------------------------------------------------- */

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* Inside a handler nothing can be waited for. */
static bool is_inside(void)
{
    return weir_loop_current() != NULL;
}

int weir_embedded_run(weir_embedded *self)
{
    if (self == NULL)
        return -EINVAL;
    if (is_inside())
        return -EDEADLK;
    if (!self->owns_group)
        return weir_embedded_call(self, nothing, NULL);
    for (int i = 0; i < MOST_TURNS; i++) {
        if (weir_group_next_ns(self->group) != 0)
            return 0;
        weir_group_step(self->group);
    }
    return -ELOOP;
}

int weir_embedded_advance(weir_embedded *self, int64_t step_ns)
{
    if (self == NULL || step_ns < 0)
        return -EINVAL;
    if (is_inside())
        return -EDEADLK;
    if (!self->owns_group)
        return -EPERM;
    int code = weir_embedded_run(self);
    int64_t next_ns;
    while (code == 0 && (next_ns = weir_group_next_ns(self->group)) > 0 && next_ns <= step_ns) {
        step_ns -= next_ns;
        weir_virtual_clock_advance(&self->clock, next_ns);
        code = weir_embedded_run(self);
    }
    weir_virtual_clock_advance(&self->clock, step_ns);
    return code == 0 ? weir_embedded_run(self) : code;
}

typedef struct embedded_call {
    weir_task task;
    weir_call_fn fn;
    void *arg;
    int code;
    bool is_done;
} embedded_call;

static int run_call(weir_task *task)
{
    embedded_call *call = WEIR_CONTAINER(task, embedded_call, task);
    call->code = call->fn(call->arg);
    call->is_done = true;
    return 0;
}

static void drop_call(weir_task *task)
{
    embedded_call *call = WEIR_CONTAINER(task, embedded_call, task);
    call->code = WEIR_ESHUTDOWN;
    call->is_done = true;
}

static int call_by_stepping(weir_embedded *self, weir_call_fn fn, void *arg)
{
    embedded_call call = { .fn = fn, .arg = arg };
    call.task = (weir_task){ .run = run_call, .dropped = drop_call, .name = "embedded call" };
    int code = weir_executor_post(self->executor, &call.task);
    if (code < 0)
        return code;
    while (!call.is_done)
        weir_group_step(self->group);
    code = weir_embedded_run(self);
    return code < 0 ? code : call.code;
}

/* A call in the channel's inbox, so that it comes behind what was asked of it before. */
typedef struct inbox_call {
    weir_call call;
    weir_call_fn fn;
    void *arg;
    int code;
    weir_promise *promise;
} inbox_call;

static void run_inbox_call(weir_home *home, weir_call *call)
{
    (void)home;
    inbox_call *self = WEIR_CONTAINER(call, inbox_call, call);
    weir_promise *promise = self->promise; /* when it is set, the call is gone */
    self->code = self->fn(self->arg);
    weir_promise_set(promise, 0);
    weir_promise_release(promise);
}

static int call_through_inbox(weir_embedded *self, weir_call_fn fn, void *arg)
{
    weir_loop *loop = weir_channel_loop(self->channel);
    weir_promise *promise = weir_promise_new(loop != NULL ? &loop->base : NULL);
    if (promise == NULL)
        return -ENOMEM;
    inbox_call call = { { .run = run_inbox_call }, fn, arg, 0, weir_promise_retain(promise) };
    weir__inbox_push(self->channel, &call.call);
    weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return call.code;
}

int weir_embedded_call(weir_embedded *self, weir_call_fn fn, void *arg)
{
    if (self == NULL || fn == NULL)
        return -EINVAL;
    if (is_inside())
        return -EDEADLK;
    return self->owns_group ? call_by_stepping(self, fn, arg) : call_through_inbox(self, fn, arg);
}

/* In and out ----------------------------------------------------------------------------------- */

typedef struct inbound {
    weir_embedded *self;
    weir_msg *msg;
    bool ends_batch;
} inbound;

static int read_here(void *arg)
{
    inbound *in = arg;
    weir_channel *channel = in->self->channel;
    if (weir__channel_is_closing(channel))
        return WEIR_ECLOSED;
    if (in->msg != NULL)
        weir__channel_read(channel, in->msg, weir_msg_size(in->msg));
    in->msg = NULL;
    if (in->ends_batch)
        weir__channel_read_complete(channel);
    return 0;
}

static int hand_in(weir_embedded *self, weir_msg *msg, bool ends_batch)
{
    inbound in = { self, msg, ends_batch };
    if (self == NULL || (msg == NULL && !ends_batch)) {
        weir_msg_release(msg);
        return -EINVAL;
    }
    int code = weir_embedded_call(self, read_here, &in);
    if (in.msg != NULL)
        weir_msg_release(in.msg);
    return code < 0 ? code : weir_embedded_check(self);
}

int weir_embedded_write_inbound(weir_embedded *self, weir_msg *msg)
{
    return msg != NULL ? hand_in(self, msg, true) : -EINVAL;
}

int weir_embedded_write_inbound_part(weir_embedded *self, weir_msg *msg)
{
    return hand_in(self, msg, false);
}

int weir_embedded_end_batch(weir_embedded *self)
{
    return hand_in(self, NULL, true);
}

int weir_embedded_write_inbound_bytes(weir_embedded *self, const void *bytes, size_t length)
{
    weir_buf *buf = weir_buf_from(bytes, length);
    return buf != NULL ? weir_embedded_write_inbound(self, &buf->msg) : -ENOMEM;
}

typedef struct input_end {
    weir_embedded *self;
    int code;
} input_end;

static int end_here(void *arg)
{
    const input_end *end = arg;
    weir__channel_read_ended(end->self->channel, end->code);
    return 0;
}

int weir_embedded_end_inbound(weir_embedded *self, int code)
{
    if (self == NULL || code > 0)
        return -EINVAL;
    int result = weir_embedded_call(self, end_here, &(input_end){ self, code });
    return result < 0 ? result : weir_embedded_check(self);
}

weir_msg *weir_embedded_read_inbound(weir_embedded *self)
{
    return self != NULL ? weir__kept_take_msg(&self->inbound, &self->inbound_count) : NULL;
}

weir_msg *weir_embedded_read_outbound(weir_embedded *self)
{
    return self != NULL ? weir__kept_take_msg(&self->outbound, &self->outbound_count) : NULL;
}

size_t weir_embedded_read_outbound_bytes(weir_embedded *self, void *to, size_t room)
{
    size_t length = 0;
    weir_list_node *node;
    while (self != NULL && length < room && (node = weir__list_first(&self->outbound)) != NULL) {
        weir_kept *first = WEIR_CONTAINER(node, weir_kept, node);
        weir_buf *buf = (weir_buf *)first->msg;
        size_t size = first->msg->type == &weir_buf_type ? weir_buf_readable(buf) : 0;
        size_t part = size < room - length ? size : room - length;
        if (part > 0)
            weir_buf_read_bytes(buf, (char *)to + length, part);
        length += part;
        if (part == size)
            weir_msg_release(weir__kept_take_msg(&self->outbound, &self->outbound_count));
    }
    return length;
}

size_t weir_embedded_inbound_count(const weir_embedded *self)
{
    return self->inbound_count;
}

size_t weir_embedded_outbound_count(const weir_embedded *self)
{
    return self->outbound_count;
}

/* Runs, and says what is wrong. */
static int settle(weir_embedded *self)
{
    int code = weir_embedded_run(self);
    return code < 0 ? code : weir_embedded_check(self);
}

int weir_embedded_write_outbound(weir_embedded *self, weir_msg *msg)
{
    if (self == NULL || msg == NULL || is_inside()) {
        weir_msg_release(msg);
        return is_inside() ? -EDEADLK : -EINVAL;
    }
    bool is_open = weir_channel_is_open(self->channel);
    weir_channel_write_and_flush(self->channel, msg, NULL);
    int code = settle(self);
    return code < 0 || is_open ? code : WEIR_ECLOSED;
}

int weir_embedded_flush(weir_embedded *self)
{
    if (self == NULL)
        return -EINVAL;
    if (is_inside())
        return -EDEADLK;
    weir_channel_flush(self->channel);
    return settle(self);
}

static int resume_here(void *arg)
{
    weir_embedded *self = arg;
    if (!weir__channel_is_closing(self->channel))
        weir__channel_resume_output(self->channel);
    return 0;
}

int weir_embedded_accept(weir_embedded *self, size_t messages)
{
    if (self == NULL)
        return -EINVAL;
    if (is_inside())
        return -EDEADLK;
    self->accepted = messages;
    int code = weir_embedded_call(self, resume_here, self);
    return code < 0 ? code : weir_embedded_check(self);
}

void weir_embedded_fail_sends(weir_embedded *self, int code)
{
    self->send_code = code < 0 ? code : 0;
}

bool weir_embedded_is_reading(const weir_embedded *self)
{
    return self->is_reading;
}

bool weir_embedded_is_output_shut(const weir_embedded *self)
{
    return self->is_output_shut;
}

/* Errors and the end --------------------------------------------------------------------------- */

int weir_embedded_check(const weir_embedded *self)
{
    const weir_list_node *node = self != NULL ? weir__list_first(&self->errors) : NULL;
    return node != NULL ? WEIR_CONTAINER(node, weir_kept, node)->error.code : 0;
}

bool weir_embedded_take_error(weir_embedded *self, weir_error *error)
{
    weir_kept *taken = self != NULL ? weir__kept_take(&self->errors, &self->error_count) : NULL;
    if (taken == NULL)
        return false;
    if (error != NULL)
        *error = taken->error;
    weir__free(taken);
    return true;
}

int weir_embedded_close(weir_embedded *self)
{
    if (self == NULL)
        return -EINVAL;
    if (is_inside())
        return -EDEADLK;
    weir_channel_close(self->channel, NULL);
    if (!self->owns_group)
        return weir_future_await(weir_channel_closed(self->channel));
    return weir_embedded_run(self);
}

/* Messages that the test has not read and the leak detector counts as well. */
static size_t count_since(const weir_list *list, uint64_t first)
{
    size_t count = 0;
    for (weir_list_node *node = weir__list_first(list); node != NULL;
         node = weir__list_next(list, node))
        count += weir__leak_is_since(WEIR_CONTAINER(node, weir_kept, node)->msg, first);
    return count;
}

/* Messages that were alive before are not this channel's: they are neither counted nor logged. */
static size_t count_leaked(const weir_embedded *self)
{
    uint64_t first = self->first_serial;
    if (weir_leak_get_mode() != WEIR_LEAK_ALL)
        return 0;
    size_t known = count_since(&self->inbound, first) + count_since(&self->outbound, first);
    size_t alive = weir__leak_count_since(first);
    if (alive <= known)
        return 0;
    weir__leak_report_since(first, NULL, NULL);
    return alive - known;
}

size_t weir_embedded_finish(weir_embedded *self, weir_embedded_report *report)
{
    if (self == NULL)
        return 0;
    weir_embedded_close(self);
    weir_embedded_report left = { .inbound = self->inbound_count,
                                  .outbound = self->outbound_count,
                                  .errors = self->error_count,
                                  .leaked = count_leaked(self) };
    if (report != NULL)
        *report = left;
    return left.inbound + left.outbound + left.errors + left.leaked;
}

/* Making and freeing --------------------------------------------------------------------------- */

static int open_group(weir_embedded *self, weir_error *error)
{
    int code = weir_script_new(&self->script);
    if (code < 0)
        return weir_error_set(error, code, "embedded", "no memory for its loop");
    weir_virtual_clock_init(&self->clock, 0);
    weir_group_config config = { .loops = 1, .name = "embedded", .is_manual = true };
    config.clock = &self->clock.clock;
    config.io_source = weir_script_source(self->script);
    config.watchdog_ns = WEIR_OFF;
    self->owns_group = true;
    return weir_group_new(&self->group, &config, error);
}

/* Keeps the code, which nobody else does. */
static int run_init(weir_channel *channel, void *arg)
{
    weir_embedded *self = arg;
    return self->init_code = weir__channel_init_by(channel, self->init, self->init_arg);
}

static int open_channel(weir_embedded *self, const weir_embedded_config *config)
{
    embedded_channel *channel = weir__zalloc(sizeof *channel);
    if (channel == NULL)
        return -ENOMEM;
    weir__channel_init(&channel->base, &weir__embedded_transport, config->parent);
    channel->owner = self;
    self->channel = &channel->base;
    int code = weir_channel_closed(self->channel) != NULL ? weir__channel_inherit(self->channel)
                                                          : -ENOMEM;
    if (code < 0 || config->init == NULL)
        return code;
    self->init = config->init;
    self->init_arg = config->arg;
    return weir_pipeline_add_initializer(&channel->base.pipeline, run_init, self);
}

static int start(weir_embedded *self, const weir_embedded_config *config, weir_error *error)
{
    if (config->is_unregistered)
        return 0;
    weir_channel_register(self->channel, self->executor, NULL);
    int code = weir_embedded_run(self);
    if (code == 0)
        code = self->init_code;
    if (code == 0)
        return 0;
    /* The first error that reached the tail says more than the code. */
    weir_error first;
    if (weir_embedded_take_error(self, &first) && first.code == code)
        return weir_error_set(error, code, first.origin, "%s", first.message);
    return weir_error_set(error, code, "embedded", "its initialisation failed: %s",
                          weir_error_text(code));
}

int weir_embedded_new(weir_embedded **out, const weir_embedded_config *config, weir_error *error)
{
    static const weir_embedded_config defaults = { .init = NULL };
    config = config != NULL ? config : &defaults;
    if (out == NULL)
        return weir_error_set(error, -EINVAL, "embedded", "there is nowhere to put it");
    weir_embedded *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "embedded", "no memory");
    weir__list_init(&self->inbound);
    weir__list_init(&self->outbound);
    weir__list_init(&self->errors);
    self->accepted = SIZE_MAX;
    self->is_connected = !config->is_unconnected;
    self->first_serial = weir__leak_next_serial();
    self->group = config->group;
    int code = self->group != NULL ? 0 : open_group(self, error);
    if (code == 0) {
        self->executor = weir_group_next(self->group);
        code = self->executor != NULL ? open_channel(self, config) : -EINVAL;
        if (code < 0)
            weir_error_set(error, code, "embedded", "%s",
                           self->executor == NULL ? "its group has no loop for it"
                                                  : "no memory for its channel");
    }
    if (code == 0)
        code = start(self, config, error);
    if (code < 0)
        weir_embedded_free(self);
    else
        *out = self;
    return code;
}

/* Handlers on executors of their own may still have something of the channel's. */
static void wait_for_handlers_elsewhere(weir_embedded *self)
{
    weir_loop *loop = weir_executor_loop(self->executor);
    for (int i = 0; self->owns_group && i < MOST_WAITS; i++) {
        if (weir_channel_loop(self->channel) == NULL)
            return;
        weir_loop_run_once(loop, WEIR_MS(10));
    }
}

static int disown(void *arg)
{
    weir_embedded *self = arg;
    ((embedded_channel *)self->channel)->owner = NULL;
    return 0;
}

/* A handler may hold a close back, for a time that does not pass any more. */
static int close_now(void *arg)
{
    weir_embedded *self = arg;
    if (weir_channel_is_open(self->channel))
        weir__channel_close_now(self->channel, NULL);
    return 0;
}

void weir_embedded_free(weir_embedded *self)
{
    weir_msg *msg;
    if (self == NULL)
        return;
    if (self->channel != NULL) {
        if (weir_channel_loop(self->channel) != NULL) {
            weir_embedded_close(self);
            weir_embedded_call(self, close_now, self);
        }
        wait_for_handlers_elsewhere(self);
        if (weir_channel_loop(self->channel) == NULL || weir_embedded_call(self, disown, self) < 0)
            disown(self);
        weir_channel_release(self->channel);
    }
    if (self->owns_group) {
        weir_embedded_run(self);
        weir_group_shutdown(self->group, 0, 0);
        weir_group_free(self->group);
        weir__script_wait_until_free(self->script);
        weir_script_free(self->script);
    }
    while ((msg = weir_embedded_read_inbound(self)) != NULL ||
           (msg = weir_embedded_read_outbound(self)) != NULL)
        weir_msg_release(msg);
    while (weir_embedded_take_error(self, NULL)) {
    }
    weir__free(self);
}
