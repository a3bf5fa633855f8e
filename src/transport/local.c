/* SPDX-License-Identifier: MIT */
/* Channels between loops of one process: the two ends of a connection. */
#include "transport/local.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "exec/operation.h"
#include "transport/local_listener.h"

#include <errno.h>

enum {
    CONNECTING, /* the side of who connects */
    ACCEPTED,
};

typedef struct local_channel {
    weir_local_end end;

    /* Set once. */
    weir_local_pipe *pipe;
    unsigned side;

    /* The loop's. */
    bool is_connecting, is_connected, is_flushing, is_flush_requested;
    bool is_over;         /* there is nothing in the pipe any more, nor will be */
    unsigned next, count; /* of those that were taken from the pipe and not read: */
    weir_msg *taken[WEIR__LOCAL_BATCH];
    weir_operation connecting;
    weir_ctx_timer timeout;

    weir_address local, remote; /* under the channel's lock; none: unknown */
} local_channel;

/* Reading -------------------------------------------------------------------------------------- */

static weir_msg *next_message(weir_local_end *end)
{
    local_channel *self = (local_channel *)end;
    if (self->next == self->count) {
        self->next = 0;
        self->count = weir__local_pipe_take(self->pipe, self->side, self->taken, WEIR__LOCAL_BATCH,
                                            &self->is_over);
    }
    return self->next < self->count ? self->taken[self->next++] : NULL;
}

static bool has_read_everything(const local_channel *self)
{
    return self->is_over && self->next == self->count;
}

/* Writing -------------------------------------------------------------------------------------- */

/*
 * The other end is gone, with what is to be sent. What it sent before is read first, and then the
 * end of that says it all; but an end that does not read would never find out, and one that does
 * not read because it cannot write would wait for ever.
 */
static void reset_unless_reading(local_channel *self)
{
    weir_channel *channel = &self->end.base;
    bool will_find_out = channel->in.is_reading && !has_read_everything(self);
    if (!weir__channel_is_closing(channel) && !will_find_out)
        weir__channel_sent(channel, -ECONNRESET);
}

static void flush_once(local_channel *self)
{
    weir_channel *channel = &self->end.base;
    weir_outbound *queue = &channel->out.queue;
    weir_local_parcel parcels[WEIR__PIPE_MESSAGES];
    unsigned to = !self->side, room, count = 0;
    size_t room_bytes, bytes = 0;
    weir_msg *msg;
    if (!weir__local_pipe_room(self->pipe, to, &room, &room_bytes)) {
        reset_unless_reading(self);
        return;
    }
    while (count < room && bytes < room_bytes && (msg = weir__outbound_take(queue)) != NULL) {
        parcels[count] = (weir_local_parcel){ .msg = msg, .size = weir_msg_size(msg) };
        bytes += parcels[count++].size;
    }
    if (count > 0)
        weir__local_pipe_put(self->pipe, to, parcels, count, weir__outbound_has_flushed(queue));
    weir__channel_sent(channel, 0);
}

/* A flush inside a flush waits for its end: a message that is dropped may flush in its free_fn. */
static void local_flush(weir_channel *channel)
{
    local_channel *self = (local_channel *)channel;
    self->is_flush_requested = true;
    if (self->is_flushing)
        return;
    self->is_flushing = true;
    while (self->is_flush_requested) {
        self->is_flush_requested = false;
        flush_once(self);
    }
    self->is_flushing = false;
}

static void local_shutdown(weir_channel *channel, weir_promise *promise)
{
    local_channel *self = (local_channel *)channel;
    weir__local_pipe_end(self->pipe, !self->side);
    weir__promise_end(promise, 0);
}

/* Connecting ----------------------------------------------------------------------------------- */

/* Returns the code, or -ECANCELED if it was cancelled at the last moment. */
static int end_connecting(local_channel *self, int code)
{
    if (!self->is_connecting)
        return code;
    self->is_connecting = false;
    weir_ctx_cancel(&self->end.base.pipeline.head, &self->timeout);
    if (code < 0)
        weir__local_withdraw(self->pipe); /* a listener that accepts it now finds it closed */
    bool is_cancelled = weir__operation_end(&self->connecting, code) < 0;
    return code == 0 && is_cancelled ? -ECANCELED : code;
}

static void finish_connecting(local_channel *self, int code)
{
    weir_channel *channel = &self->end.base;
    if (end_connecting(self, code) < 0) {
        weir__channel_close_now(channel, NULL);
        return;
    }
    self->is_connected = true;
    weir__channel_activate(channel);
}

static void on_timeout(weir_ctx_timer *timer, weir_ctx *head)
{
    (void)head;
    finish_connecting(WEIR_CONTAINER(timer, local_channel, timeout), -ETIMEDOUT);
}

/* Unless the listener has accepted it before, whose child is closed then. */
static void cancelled(weir_operation *connecting)
{
    weir__local_pipe_settle(WEIR_CONTAINER(connecting, local_channel, connecting)->pipe,
                            -ECANCELED);
}

static const weir_operation_type connecting_type = { .cancelled = cancelled };

/* Whether the listener has accepted or refused it. */
static void look_for_outcome(local_channel *self)
{
    int code = weir__local_pipe_outcome(self->pipe);
    if (code != -EINPROGRESS)
        finish_connecting(self, code);
}

static int check_connect(const local_channel *self, const weir_address *remote,
                         const weir_address *local)
{
    weir_address_kind kind = weir_address_kind_of(local);
    if (self->is_connected || self->is_connecting)
        return self->is_connected ? -EISCONN : -EALREADY;
    if (weir_address_kind_of(remote) != WEIR_ADDRESS_LOCAL)
        return -EAFNOSUPPORT;
    return kind == WEIR_ADDRESS_LOCAL || kind == WEIR_ADDRESS_NONE ? 0 : -EAFNOSUPPORT;
}

/* Both may be NULL. */
static void set_addresses(local_channel *self, const weir_address *local,
                          const weir_address *remote)
{
    weir__channel_lock(&self->end.base);
    if (weir_address_kind_of(local) == WEIR_ADDRESS_LOCAL)
        self->local = *local;
    if (remote != NULL)
        self->remote = *remote;
    weir__channel_unlock(&self->end.base);
}

static int schedule_timeout(local_channel *self)
{
    weir_channel *channel = &self->end.base;
    int64_t timeout_ns = weir__channel_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_NS);
    self->timeout.fire = on_timeout;
    if (timeout_ns <= 0)
        return 0;
    return weir_ctx_schedule(&channel->pipeline.head, &self->timeout, timeout_ns);
}

static void local_connect(weir_channel *channel, const weir_address *remote,
                          const weir_address *local, weir_promise *promise)
{
    local_channel *self = (local_channel *)channel;
    int code = check_connect(self, remote, local);
    if (code == 0)
        code = schedule_timeout(self);
    if (code < 0) {
        weir__promise_end(promise, code);
        return;
    }
    set_addresses(self, local, remote);
    self->is_connecting = true;
    self->pipe->local = self->local;
    self->pipe->remote = *remote;
    weir__operation_init_at(&self->connecting, &connecting_type, promise, &channel->shared.home);
    weir__operation_watch(&self->connecting);
    code = weir__local_knock(self->pipe);
    if (code < 0)
        finish_connecting(self, code);
}

/* Only a name to be told. */
static void local_bind(weir_channel *channel, const weir_address *local, weir_promise *promise)
{
    local_channel *self = (local_channel *)channel;
    int code = self->is_connected || self->is_connecting           ? -EINVAL
               : weir_address_kind_of(local) != WEIR_ADDRESS_LOCAL ? -EAFNOSUPPORT
                                                                   : 0;
    if (code == 0)
        set_addresses(self, local, NULL);
    weir__promise_end(promise, code);
}

/* The rest of the transport -------------------------------------------------------------------- */

/* Somebody rang: the other end has sent, or read, or ended, or is connected. */
static void answer(weir_local_end *end)
{
    local_channel *self = (local_channel *)end;
    weir_channel *channel = &end->base;
    if (self->is_connecting)
        look_for_outcome(self);
    if (!self->is_connected)
        return;
    weir__local_end_deliver(end, next_message);
    if (channel->in.is_reading && has_read_everything(self))
        weir__channel_read_ended(channel, 0);
    if (weir__outbound_has_flushed(&channel->out.queue))
        weir__channel_resume_output(channel);
}

static bool local_is_active(const weir_channel *channel)
{
    return ((const local_channel *)channel)->is_connected;
}

static void local_close(weir_channel *channel)
{
    local_channel *self = (local_channel *)channel;
    end_connecting(self, WEIR_ECLOSED);
    weir__local_pipe_leave(self->pipe, self->side);
    while (self->next < self->count)
        weir_msg_release(self->taken[self->next++]);
    if (channel->parent != NULL)
        weir__local_listener_child_closed(channel->parent);
}

static void local_destroy(weir_channel *channel)
{
    weir__local_pipe_release(((local_channel *)channel)->pipe);
    weir__free(channel);
}

static int copy_address(const weir_channel *channel, const weir_address *from, weir_address *to)
{
    weir__channel_lock(channel);
    *to = *from;
    weir__channel_unlock(channel);
    return weir_address_kind_of(to) == WEIR_ADDRESS_LOCAL ? 0 : WEIR_ENOTFOUND;
}

static int local_local_address(const weir_channel *channel, weir_address *address)
{
    return copy_address(channel, &((const local_channel *)channel)->local, address);
}

static int local_remote_address(const weir_channel *channel, weir_address *address)
{
    return copy_address(channel, &((const local_channel *)channel)->remote, address);
}

static const weir_transport local_transport = {
    .name = "local",
    .is_stream = true,
    .attach = weir__local_end_attach,
    .detach = weir__local_end_detach,
    .is_active = local_is_active,
    .bind = local_bind,
    .connect = local_connect,
    .start_reading = weir__local_end_start_reading,
    .stop_reading = weir__local_end_stop_reading,
    .flush = local_flush,
    .shutdown = local_shutdown,
    .quiesce = weir__local_end_quiesce,
    .close = local_close,
    .destroy = local_destroy,
    .local_address = local_local_address,
    .remote_address = local_remote_address,
};

/* Takes the reference to the pipe. */
static weir_channel *new_end(weir_local_pipe *pipe, unsigned side, weir_channel *parent)
{
    local_channel *self = weir__zalloc(sizeof *self);
    if (self == NULL) {
        weir__local_pipe_release(pipe);
        return NULL;
    }
    weir__channel_init(&self->end.base, &local_transport, parent);
    weir__local_end_init(&self->end, &pipe->lock, answer);
    self->pipe = pipe;
    self->side = side;
    weir__local_pipe_join(pipe, side, &self->end);
    return &self->end.base;
}

weir_channel *weir__local_child_new(weir_channel *parent, weir_local_pipe *pipe)
{
    weir_channel *child = new_end(weir__local_pipe_retain(pipe), ACCEPTED, parent);
    if (child == NULL)
        return NULL;
    local_channel *self = (local_channel *)child;
    weir__local_listener_child_opened(parent);
    self->is_connected = true;
    self->local = pipe->remote;
    self->remote = pipe->local;
    child->out.pauses_when_unwritable = true; /* unless the listener's options say otherwise */
    if (weir__channel_inherit(child) == 0)
        return child;
    weir_channel_release(child);
    return NULL;
}

int weir__local_new(weir_channel **channel, bool is_listener)
{
    weir_local_pipe *pipe = !is_listener ? weir__local_pipe_new() : NULL;
    *channel = is_listener    ? weir__local_listener_new()
               : pipe != NULL ? new_end(pipe, CONNECTING, NULL)
                              : NULL;
    return *channel != NULL ? 0 : -ENOMEM;
}
