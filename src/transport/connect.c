/* SPDX-License-Identifier: MIT */
/* Connecting a socket, with a time limit, until its promise is cancelled. */
#include "transport/socket.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "exec/operation.h"

#include <weir/timer.h>

#include <errno.h>

typedef struct weir_connecting {
    weir_operation operation;
    weir_socket *socket;
    weir_io_op op;
    weir_address remote;
    weir_timer timer;
    int failure; /* why it was cancelled; 0: it was not */
} weir_connecting;

/* Returns the code, or -ECANCELED if it was cancelled at the last moment. */
static int end_connect(weir_connecting *self, int code)
{
    weir_timer_cancel(&self->timer);
    bool is_cancelled = weir__operation_end(&self->operation, code) < 0;
    return code == 0 && is_cancelled ? -ECANCELED : code;
}

static void finish(weir_connecting *self, int code)
{
    weir_socket *socket = self->socket;
    weir_channel *channel = &socket->channel;
    if (weir__channel_is_closing(channel))
        code = WEIR_ECLOSED;
    else if (self->failure < 0)
        code = self->failure;
    code = end_connect(self, code);
    if (weir__channel_is_closing(channel))
        return;
    if (code < 0) {
        weir__channel_close_now(channel, NULL);
        return;
    }
    socket->is_connected = true;
    weir__channel_activate(channel);
}

static void on_connected(weir_io_op *op, const weir_io_result *result)
{
    weir_connecting *self = WEIR_CONTAINER(op, weir_connecting, op);
    weir_socket *socket = self->socket;
    finish(self, result->code);
    weir__socket_continue_quiesce(socket);
}

static void give_up(weir_connecting *self, int code)
{
    self->failure = code;
    weir__io_cancel(weir__socket_io(self->socket), &self->op);
}

static int on_timeout(weir_timer *timer)
{
    give_up(WEIR_CONTAINER(timer, weir_connecting, timer), -ETIMEDOUT);
    return 0;
}

static void cancelled(weir_operation *operation)
{
    give_up(WEIR_CONTAINER(operation, weir_connecting, operation), -ECANCELED);
}

static void destroy(weir_operation *operation)
{
    weir__free(WEIR_CONTAINER(operation, weir_connecting, operation));
}

static const weir_operation_type operation_type = { .cancelled = cancelled, .destroy = destroy };

static int begin(weir_connecting *self, const weir_address *local)
{
    weir_socket *socket = self->socket;
    weir_channel *channel = &socket->channel;
    int64_t timeout_ns = weir__channel_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_NS);
    int code = local != NULL ? weir__socket_bind(socket, local) : 0;
    if (code < 0)
        return code;
    self->op = (weir_io_op){ .kind = WEIR_IO_CONNECT, .file = &socket->file };
    self->op.remote = &self->remote;
    self->op.on_done = on_connected;
    code = weir__io_submit(weir__socket_io(socket), &self->op);
    if (code != WEIR_IO_PENDING || timeout_ns <= 0)
        return code;
    int timer_code = weir_timer_schedule(&self->timer, &weir__channel_loop(channel)->base,
                                         timeout_ns);
    if (timer_code < 0)
        give_up(self, timer_code);
    return code;
}

void weir__socket_connect(weir_channel *channel, const weir_address *remote,
                          const weir_address *local, weir_promise *promise)
{
    weir_socket *socket = weir__socket_of(channel);
    int refusal = socket->file.out != NULL ? -EALREADY : socket->is_connected ? -EISCONN : 0;
    if (weir_address_sockaddr(remote, NULL) == NULL)
        refusal = -EINVAL;
    if (refusal < 0) {
        weir__promise_end(promise, refusal);
        return;
    }
    weir_connecting *self = weir__zalloc(sizeof *self);
    if (self == NULL) {
        weir__promise_end(promise, -ENOMEM);
        weir__channel_close_now(channel, NULL);
        return;
    }
    self->socket = socket;
    self->remote = *remote;
    self->timer.fire = on_timeout;
    weir__operation_init_at(&self->operation, &operation_type, promise, &channel->shared.home);
    weir__operation_watch(&self->operation);
    int code = begin(self, local);
    if (code != WEIR_IO_PENDING)
        finish(self, code);
}
