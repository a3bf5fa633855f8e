/* SPDX-License-Identifier: MIT */
/* Relaying from one stream to another. */
#include <weir/relay.h>

#include "base/alloc.h"
#include "base/counter.h"
#include "transport/socket.h"

#include <errno.h>

#define PIPE_BYTES 65536 /* what a pipe holds */

/*
 *    from --- in: splice ---> [ pipe ] --- out: splice ---> to
 *
 * By turns: the pipe is filled from one socket and emptied into the other, so that an EAGAIN is
 * always the socket's. Meanwhile the relay is the sender of `to`, and receives in place of `from`.
 */
typedef struct weir_relaying {
    weir_socket *from, *to; /* with references to their channels */
    weir_promise *promise;  /* may be NULL */
    int ends[2];            /* of the pipe: to read from, to write to */
    size_t held;            /* bytes in it */
    weir_hold hold;         /* on reads of `from` */
    weir_io_op in;
    weir_task begin;
    weir_deferred deferred; /* frees it: the backend may still look at an operation */
} relay;

static void destroy(weir_deferred *deferred)
{
    relay *self = WEIR_CONTAINER(deferred, relay, deferred);
    weir_channel_release(&self->from->channel);
    weir_channel_release(&self->to->channel);
    weir__free(self);
}

/* The sockets are their channels' again, which may have waited for that. */
static void end(relay *self, int code)
{
    weir_loop *loop = weir_loop_current();
    weir_sys *sys = self->from->sys;
    sys->close(sys, self->ends[0]);
    sys->close(sys, self->ends[1]);
    self->from->is_relayed = self->to->is_relay = false;
    weir__stream_take_sender(self->to);
    self->to->channel.out.is_lent = false;
    if (self->to->extras != NULL)
        self->to->extras->relaying = NULL;
    weir__promise_end(self->promise, code);
    weir_promise_release(self->promise);
    weir_channel_set_read_hold(&self->from->channel, &self->hold, false);
    weir__socket_continue_quiesce(self->from);
    weir__socket_continue_quiesce(self->to);
    self->deferred.run = destroy;
    if (loop == NULL || !weir__loop_defer(loop, &self->deferred))
        destroy(&self->deferred);
}

/* One that shall be shut down has waited for this. */
static void end_and_resume(relay *self, int code)
{
    weir_channel *to = weir_channel_retain(&self->to->channel);
    end(self, code);
    weir__channel_resume_output(to);
    weir_channel_release(to);
}

static void fail_input(relay *self, int code)
{
    weir_channel *from = weir_channel_retain(&self->from->channel);
    end_and_resume(self, code);
    weir__channel_read_ended(from, code);
    weir_channel_release(from);
}

static void fail_output(relay *self, int code)
{
    weir_channel *to = weir_channel_retain(&self->to->channel);
    end(self, code);
    weir__channel_sent(to, code);
    weir_channel_release(to);
}

/* The input has ended before anybody can read on. */
static void finish(relay *self)
{
    weir_channel *to = weir_channel_retain(&self->to->channel);
    weir__channel_read_ended(&self->from->channel, 0); /* a handler may shut it down for that */
    end_and_resume(self, 0);
    weir_channel_shutdown(to, NULL);
    weir_channel_release(to);
}

static bool has_lost_an_end(const relay *self)
{
    return weir__channel_is_closing(&self->from->channel) ||
           weir__channel_is_closing(&self->to->channel);
}

static void sent(relay *self, int bytes)
{
    self->held -= (size_t)bytes;
    weir__counter_add(&self->to->channel.out.queue.bytes_out, (uint64_t)bytes);
    weir__channel_note_sent(&self->to->channel);
}

static void fill(relay *self)
{
    if (has_lost_an_end(self) || self->to->channel.out.is_ended)
        end_and_resume(self, WEIR_ECLOSED);
    else
        weir__io_submit(weir__socket_io(self->from), &self->in);
}

static relay *relay_of(weir_io_file *file)
{
    return weir__socket_of_file(file)->extras->relaying;
}

static int relay_gather(weir_io_file *file, weir_io_send *send)
{
    send->kind = WEIR_IO_SEND_PIPE;
    send->fd = relay_of(file)->ends[0];
    send->length = relay_of(file)->held;
    return send->length > 0;
}

static void relay_on_sent(weir_io_file *file, int code)
{
    relay *self = relay_of(file);
    if (code >= 0)
        sent(self, code);
    if (weir__channel_is_closing(&self->to->channel))
        end_and_resume(self, WEIR_ECLOSED);
    else if (code < 0)
        fail_output(self, code);
    else if (self->held > 0)
        weir__io_send(weir__socket_io(self->to), file);
    else
        fill(self);
}

/* The channel closes. */
static void relay_on_send_cancelled(weir_io_file *file)
{
    relay *self = relay_of(file);
    end_and_resume(self, WEIR_ECLOSED);
}

static const weir_io_sender relay_sender = {
    .gather = relay_gather,
    .on_sent = relay_on_sent,
    .on_send_cancelled = relay_on_send_cancelled,
};

static void on_in(weir_io_op *op, const weir_io_result *result)
{
    relay *self = WEIR_CONTAINER(op, relay, in);
    bool is_stopped = result->code == -ECANCELED && self->to->channel.out.is_ended;
    if (has_lost_an_end(self) || is_stopped) {
        end_and_resume(self, WEIR_ECLOSED);
    } else if (result->code < 0) {
        fail_input(self, result->code);
    } else if (result->code == 0) {
        finish(self);
    } else {
        self->held = (size_t)result->code;
        weir__counter_add(&self->from->channel.in.bytes, (uint64_t)result->code);
        weir__io_send(weir__socket_io(self->to), &self->to->file);
    }
}

void weir__relaying_stop(relay *self)
{
    if (self->in.is_in_flight)
        weir__io_cancel(weir__socket_io(self->from), &self->in);
}

/* Beginning ------------------------------------------------------------------------------------ */

/* The receive of the channel's own is being cancelled: it ends within a turn. */
static int begin(weir_task *task)
{
    relay *self = WEIR_CONTAINER(task, relay, begin);
    if (has_lost_an_end(self) || !self->from->in.is_in_flight)
        fill(self);
    else if (weir__channel_post(&self->from->channel, &self->begin) < 0)
        end_and_resume(self, WEIR_ECLOSED);
    return 0;
}

static void begin_dropped(weir_task *task)
{
    end_and_resume(WEIR_CONTAINER(task, relay, begin), WEIR_ECLOSED);
}

static bool is_stream(const weir_channel *channel)
{
    return channel->transport == &weir__tcp_transport ||
           channel->transport == &weir__unix_transport;
}

/* Whether a handler must see what goes past it; then `error` says which. */
static int check_handlers(weir_channel *channel, weir_error *error)
{
    weir_handler_info info;
    const weir_pipeline *pipeline = weir_channel_pipeline(channel);
    for (size_t i = 0; weir_pipeline_at(pipeline, i, &info) == 0; i++) {
        if (info.type->is_upgrade)
            return weir_error_set(error, -EOPNOTSUPP, "relay",
                                  "%s must see all bytes, and of a relay it sees none", info.name);
    }
    return 0;
}

static int check(const weir_channel *from, weir_channel *to)
{
    if (from == NULL || to == NULL || from == to)
        return -EINVAL;
    if (!is_stream(from) || !is_stream(to))
        return -EOPNOTSUPP;
    weir_loop *loop = weir__channel_loop(from), *other = weir__channel_loop(to);
    if (loop == NULL || other == NULL)
        return -ENOTCONN;
    if (!weir_executor_is_current(&loop->base))
        return -EPERM;
    if (loop != other)
        return -EXDEV;
    if (!weir_channel_is_active(from) || !weir_channel_is_active(to) || from->in.is_ended ||
        to->out.is_ended)
        return -ENOTCONN;
    return 0;
}

/* A caller may try again then; so it comes after what stays as it is. */
static int check_busy(const weir_channel *from, weir_channel *to)
{
    bool is_busy = weir__socket_of(from)->is_relayed || weir__socket_of(to)->is_relay ||
                   weir__io_is_sending(&weir__socket_of(to)->file) ||
                   !weir__outbound_is_empty(&to->out.queue);
    return is_busy ? -EBUSY : 0;
}

static int start(weir_channel *from, weir_channel *to, weir_promise *promise)
{
    weir_socket_extras *extras = weir__socket_need_extras(weir__socket_of(to));
    relay *self = extras != NULL ? weir__zalloc(sizeof *self) : NULL;
    if (self == NULL)
        return -ENOMEM;
    self->from = weir__socket_of(from);
    self->to = weir__socket_of(to);
    weir_sys *sys = self->from->sys;
    int code = sys->pipe(sys, self->ends);
    if (code < 0) {
        weir__free(self);
        return code;
    }
    self->in = (weir_io_op){ .kind = WEIR_IO_SPLICE_IN, .file = &self->from->file };
    self->in.splice.fd = self->ends[1];
    self->in.splice.length = PIPE_BYTES;
    self->in.on_done = on_in;
    self->to->file.sender = &relay_sender;
    self->begin = (weir_task){ .run = begin, .dropped = begin_dropped, .name = "relay" };
    self->promise = weir_promise_retain(promise);
    weir_channel_retain(from);
    weir_channel_retain(to);
    self->from->is_relayed = self->to->is_relay = true;
    to->out.is_lent = true;
    extras->relaying = self;
    weir_channel_set_read_hold(from, &self->hold, true);
    begin(&self->begin);
    return 0;
}

void weir_relay(weir_channel *from, weir_channel *to, weir_promise *promise)
{
    weir_error error = { .code = 0 };
    int code = check(from, to);
    if (code == 0 && (code = check_handlers(from, &error)) == 0)
        code = check_handlers(to, &error);
    if (code == 0)
        code = check_busy(from, to);
    if (code == 0)
        code = start(from, to, promise);
    if (error.code < 0 && promise != NULL)
        weir_promise_fail_with(promise, &error);
    else if (code < 0)
        weir__promise_end(promise, code);
}
