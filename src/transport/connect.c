/* SPDX-License-Identifier: MIT */
/* How a socket gets connected: in time, unless somebody changes their mind. */
#include "transport/socket.h"

#include "base/alloc.h"
#include "channel/extras.h"

#include <weir/timer.h>

#include <errno.h>

/* There from the beginning of a connect until both its end and its promise's were seen. */
typedef struct weir_connecting {
    weir_socket *socket;
    weir_io_op op;
    weir_address remote;
    weir_promise *promise;    /* NULL: nobody waits for it */
    weir_listener on_promise; /* somebody may cancel it */
    weir_timer timer;
    int failure;   /* why it was given up: 0, it was not */
    bool is_over;  /* but for on_promise */
    bool is_heard; /* on_promise was called, or there is no promise */
} weir_connecting;

/* Takes the connect off the socket and completes its promise with the code, which is another one
 * when somebody cancels it in the last moment. */
static int end_connect(weir_connecting *self, int code)
{
    weir_promise *promise = self->promise;
    self->is_over = true;
    weir_timer_cancel(&self->timer);
    if (self->is_heard)
        weir__free(self); /* else on_promise does, which is still to come */
    if (promise == NULL)
        return code;
    if (weir_promise_set(promise, code) < 0 && code == 0)
        code = -ECANCELED;
    weir_promise_release(promise);
    return code;
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
    weir__socket_landed(socket);
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

/* It is complete: by us, or by who cancelled it. */
static void on_promise(weir_listener *listener, weir_future *future)
{
    weir_connecting *self = WEIR_CONTAINER(listener, weir_connecting, on_promise);
    weir_channel *channel = &self->socket->channel;
    (void)future;
    self->is_heard = true;
    if (self->is_over)
        weir__free(self);
    else
        give_up(self, -ECANCELED);
    weir_channel_release(channel);
}

static int begin(weir_connecting *self, const weir_address *local)
{
    weir_socket *socket = self->socket;
    weir_channel *channel = &socket->channel;
    int64_t timeout_ms = weir__channel_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_MS);
    int code = local != NULL ? weir__socket_bind(socket, local) : 0;
    if (code < 0)
        return code;
    self->op = (weir_io_op){ .kind = WEIR_IO_CONNECT, .file = &socket->file };
    self->op.remote = &self->remote;
    self->op.on_done = on_connected;
    code = weir__io_submit(weir__socket_io(socket), &self->op);
    if (code != WEIR_IO_PENDING || timeout_ms == 0)
        return code;
    int timer_code = weir_timer_schedule(&self->timer, &weir__channel_loop(channel)->base,
                                         WEIR_MS(timeout_ms));
    if (timer_code < 0)
        give_up(self, timer_code);
    return code;
}

/* The promise of the caller may have its listeners anywhere; one that follows it has them here. */
static int follow(weir_connecting *self, weir_promise *promise)
{
    weir_channel *channel = &self->socket->channel;
    weir_promise *own = weir_channel_promise(channel);
    int code = own != NULL ? weir_promise_follow(own, weir_promise_future(promise)) : -ENOMEM;
    if (code == 0) {
        self->promise = weir_promise_retain(promise);
        self->on_promise = (weir_listener){ .done = on_promise, .dropped = on_promise };
        weir_channel_retain(channel);
        weir_future_listen(weir_promise_future(own), &self->on_promise);
    } else {
        weir__promise_end(own, code);
    }
    weir_promise_release(own);
    return code;
}

static weir_connecting *prepare(weir_socket *socket, const weir_address *remote,
                                weir_promise *promise)
{
    weir_connecting *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    self->socket = socket;
    self->remote = *remote;
    self->timer.fire = on_timeout;
    self->is_heard = promise == NULL;
    if (promise != NULL && follow(self, promise) < 0) {
        weir__free(self);
        return NULL;
    }
    return self;
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
    weir_connecting *self = prepare(socket, remote, promise);
    if (self == NULL) {
        weir__promise_end(promise, -ENOMEM);
        weir__channel_close_now(channel, NULL);
        return;
    }
    int code = begin(self, local);
    if (code != WEIR_IO_PENDING)
        finish(self, code);
}
