/* SPDX-License-Identifier: MIT */
/* A transport whose other side is a test: what comes out is kept. */
#include "testing/embedded.h"

#include "base/alloc.h"

#include <errno.h>

static weir_embedded *owner_of(const weir_channel *channel)
{
    return ((const embedded_channel *)channel)->owner;
}

static bool keep(weir_list *list, size_t *count, weir_msg *msg, const weir_error *error)
{
    weir_kept *kept = weir__alloc(sizeof *kept);
    if (kept == NULL)
        return false;
    *kept = (weir_kept){ .msg = msg };
    if (error != NULL)
        kept->error = *error;
    weir__list_push_back(list, &kept->node);
    ++*count;
    return true;
}

/* The oldest, or NULL: to be freed. */
weir_kept *weir__kept_take(weir_list *list, size_t *count)
{
    weir_list_node *node = weir__list_pop_front(list);
    if (node == NULL)
        return NULL;
    --*count;
    return WEIR_CONTAINER(node, weir_kept, node);
}

weir_msg *weir__kept_take_msg(weir_list *list, size_t *count)
{
    weir_kept *taken = weir__kept_take(list, count);
    weir_msg *msg = taken != NULL ? taken->msg : NULL;
    weir__free(taken);
    return msg;
}

/* The transport -------------------------------------------------------------------------------- */

static bool embedded_is_active(const weir_channel *channel)
{
    const weir_embedded *self = owner_of(channel);
    return self != NULL && self->is_connected;
}

static void become_active(weir_channel *channel, weir_promise *promise)
{
    weir_embedded *self = owner_of(channel);
    if (self == NULL || self->is_connected) {
        weir__promise_end(promise, -EISCONN);
        return;
    }
    self->is_connected = true;
    weir__promise_end(promise, 0);
    weir__channel_activate(channel);
}

static void embedded_bind(weir_channel *channel, const weir_address *local, weir_promise *promise)
{
    (void)local;
    become_active(channel, promise);
}

static void embedded_connect(weir_channel *channel, const weir_address *remote,
                             const weir_address *local, weir_promise *promise)
{
    (void)remote;
    (void)local;
    become_active(channel, promise);
}

static void set_reading(weir_channel *channel, bool is_reading)
{
    if (owner_of(channel) != NULL)
        owner_of(channel)->is_reading = is_reading;
}

static void embedded_start_reading(weir_channel *channel)
{
    set_reading(channel, true);
}

static void embedded_stop_reading(weir_channel *channel)
{
    set_reading(channel, false);
}

static void embedded_flush(weir_channel *channel)
{
    weir_embedded *self = owner_of(channel);
    weir_msg *msg;
    int code = self != NULL ? self->send_code : 0;
    while (code == 0 && self != NULL && self->accepted > 0 &&
           (msg = weir__outbound_current(&channel->out.queue)) != NULL) {
        if (!keep(&self->outbound, &self->outbound_count, msg, NULL)) {
            code = -ENOMEM; /* it is still in the queue, and fails with it */
            break;
        }
        weir_msg_retain(msg);
        weir__outbound_remove(&channel->out.queue, 0);
        if (self->accepted != SIZE_MAX)
            self->accepted--;
    }
    weir__channel_sent(channel, code);
}

static void embedded_shutdown(weir_channel *channel, weir_promise *promise)
{
    if (owner_of(channel) != NULL)
        owner_of(channel)->is_output_shut = true;
    weir__promise_end(promise, 0);
}

/* Nothing is ever under way. */
static bool embedded_quiesce(weir_channel *channel, bool is_closing)
{
    (void)is_closing;
    set_reading(channel, false);
    return true;
}

static void embedded_close(weir_channel *channel)
{
    set_reading(channel, false);
}

static void embedded_destroy(weir_channel *channel)
{
    weir__free(channel);
}

static bool embedded_unhandled(weir_channel *channel, weir_msg *msg, const weir_error *error)
{
    weir_embedded *self = owner_of(channel);
    if (self == NULL)
        return false;
    return msg != NULL ? keep(&self->inbound, &self->inbound_count, msg, NULL)
                       : keep(&self->errors, &self->error_count, NULL, error);
}

const weir_transport weir__embedded_transport = {
    .name = "embedded",
    .is_stream = true,
    .is_active = embedded_is_active,
    .bind = embedded_bind,
    .connect = embedded_connect,
    .start_reading = embedded_start_reading,
    .stop_reading = embedded_stop_reading,
    .flush = embedded_flush,
    .shutdown = embedded_shutdown,
    .quiesce = embedded_quiesce,
    .close = embedded_close,
    .destroy = embedded_destroy,
    .unhandled = embedded_unhandled,
};
