/* SPDX-License-Identifier: MIT */
/* What the tests of in-process channels share: a listener that accepts, and clients. */
#ifndef WEIR_TESTS_TRANSPORT_LOCALS_H
#define WEIR_TESTS_TRANSPORT_LOCALS_H

#include "channel/story.h"

#include "transport/local.h"

#include <weir/accepted.h>

static inline weir_address name_of(const char *text)
{
    weir_address address;
    assert_int_equal(weir_address_parse(&address, text, NULL), 0);
    return address;
}

static inline weir_channel *new_local(bool is_listener)
{
    weir_channel *channel = NULL;
    assert_int_equal(weir__local_new(&channel, is_listener), 0);
    return channel;
}

/* A message with a number, which counts as so many bytes. */
typedef struct number {
    weir_msg msg;
    uint32_t value;
    size_t size;
} number;

static inline size_t number_size(const weir_msg *msg)
{
    return ((const number *)msg)->size;
}

static inline void number_destroy(weir_msg *msg)
{
    free(msg);
}

static const weir_msg_type number_type = { "number", number_size, number_destroy };

static inline weir_msg *new_number(uint32_t value, size_t size)
{
    number *self = malloc(sizeof *self);
    assert_non_null(self);
    weir_msg_init(&self->msg, &number_type);
    self->value = value;
    self->size = size;
    return &self->msg;
}

/* The listener's side -------------------------------------------------------------------------- */

/* Accepts: each child gets its handlers and goes to the loop for children. */
typedef struct server {
    weir_channel *listener;
    weir_executor *children; /* NULL: children are dropped */
    int (*init)(weir_channel *child, void *arg);
    void *arg;
    weir_channel *child; /* the last one, with a reference */
    _Atomic(int) accepted, batches, in_batch, most_in_batch, errors;
} server;

static inline void server_on_read(weir_ctx *ctx, weir_msg *msg)
{
    server *self = weir_ctx_arg(ctx);
    self->in_batch++;
    if (self->children != NULL) {
        weir_channel *child = weir_accepted_take(msg);
        if (self->init != NULL && self->init(child, self->arg) < 0)
            self->errors++;
        weir_channel_register(child, self->children, NULL);
        weir_channel_release(self->child);
        self->child = child;
    }
    weir_msg_release(msg);
    self->accepted++;
}

static inline void server_on_read_complete(weir_ctx *ctx)
{
    server *self = weir_ctx_arg(ctx);
    self->batches++;
    if (self->in_batch > self->most_in_batch)
        self->most_in_batch = self->in_batch;
    self->in_batch = 0;
    weir_ctx_fire_read_complete(ctx);
}

static inline void server_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    ((server *)weir_ctx_arg(ctx))->errors++;
}

static const weir_handler_type acceptor = {
    .name = "acceptor",
    .on_read = server_on_read,
    .on_read_complete = server_on_read_complete,
    .on_error = server_on_error,
};

/* A listener on a loop that is not bound yet. */
static inline void server_make(server *self, weir_executor *loop)
{
    self->listener = new_local(true);
    weir_pipeline *pipeline = weir_channel_pipeline(self->listener);
    assert_int_equal(weir_pipeline_add_last(pipeline, "acceptor", &acceptor, self), 0);
    weir_channel_register(self->listener, loop, NULL);
}

static inline void server_open(server *self, weir_executor *loop, const char *name)
{
    weir_address address = name_of(name);
    server_make(self, loop);
    weir_channel_bind(self->listener, &address, NULL);
}

static inline void server_end(server *self)
{
    weir_channel_close(self->listener, NULL);
    weir_channel_release(self->listener);
    if (self->child != NULL)
        weir_channel_close(self->child, NULL);
    weir_channel_release(self->child);
    self->listener = self->child = NULL;
}

/* The connecting side -------------------------------------------------------------------------- */

static inline weir_channel *new_client(weir_executor *loop, int (*init)(weir_channel *, void *),
                                       void *arg)
{
    weir_channel *channel = new_local(false);
    if (init != NULL)
        assert_int_equal(init(channel, arg), 0);
    weir_channel_register(channel, loop, NULL);
    return channel;
}

static inline void connect_to(weir_channel *channel, const char *name, ear *at, story *to)
{
    weir_address address = name_of(name);
    weir_promise *promise = at != NULL ? ear_promise(at, to, "connect", channel) : NULL;
    weir_channel_connect(channel, &address, NULL, promise);
    weir_promise_release(promise);
}

static inline void client_end(weir_channel *channel)
{
    weir_channel_close(channel, NULL);
    weir_channel_release(channel);
}

/* Handlers ------------------------------------------------------------------------------------- */

static inline void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static inline void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
    weir_ctx_fire_read_complete(ctx);
}

static inline void echo_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type echo = { .name = "echo",
                                        .on_read = echo_on_read,
                                        .on_read_complete = echo_on_read_complete,
                                        .on_error = echo_on_error };

static inline int add_echo(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "echo", &echo, arg);
}

/* Counts numbers, which have to come one after the other. */
typedef struct counter {
    _Atomic(uint32_t) next;
    _Atomic(uint32_t) wrong, completes, most_in_batch, ends, errors;
    uint32_t in_batch;
    weir_msg *last; /* not kept, only compared */
} counter;

static inline void counter_on_read(weir_ctx *ctx, weir_msg *msg)
{
    counter *self = weir_ctx_arg(ctx);
    self->last = msg;
    self->in_batch++;
    if (msg->type != &number_type || ((number *)msg)->value != self->next)
        self->wrong++;
    weir_msg_release(msg);
    self->next++;
}

static inline void counter_on_read_complete(weir_ctx *ctx)
{
    counter *self = weir_ctx_arg(ctx);
    if (self->in_batch > self->most_in_batch)
        self->most_in_batch = self->in_batch;
    self->in_batch = 0;
    self->completes++;
    weir_ctx_fire_read_complete(ctx);
}

static inline void counter_on_inactive(weir_ctx *ctx)
{
    ((counter *)weir_ctx_arg(ctx))->ends++;
    weir_ctx_fire_inactive(ctx);
}

static inline void counter_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    ((counter *)weir_ctx_arg(ctx))->errors++;
}

static const weir_handler_type counts = { .name = "counts",
                                          .on_read = counter_on_read,
                                          .on_read_complete = counter_on_read_complete,
                                          .on_inactive = counter_on_inactive,
                                          .on_error = counter_on_error };

static inline int add_counter(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "counts", &counts, arg);
}

static inline void send_numbers(weir_channel *channel, uint32_t from, uint32_t to, size_t size)
{
    for (uint32_t i = from; i < to; i++)
        weir_channel_write(channel, new_number(i, size), NULL);
    weir_channel_flush(channel);
}

static inline size_t pending_of(const weir_channel *channel)
{
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    return stats.pending_bytes;
}

#endif
