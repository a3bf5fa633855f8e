/* SPDX-License-Identifier: MIT */
/* The listeners of a server: opened one after the other, each step on the loop of its channel. */
#include "bootstrap/server.h"

#include "base/alloc.h"
#include "channel/channel.h"
#include "exec/group.h"
#include "transport/socket.h"

#include <errno.h>

/* The end of the start ------------------------------------------------------------------------- */

/* Says where and what: returns the code. */
static int describe(const weir_server *server, int code, weir_error *error)
{
    return weir_error_set(error, code, "server", "cannot listen on %s: %s", server->text,
                          weir_error_text(code));
}

void weir__server_fail_start(weir_server *server, int code, const weir_error *error)
{
    weir_error own;
    if (error == NULL) {
        describe(server, code, &own);
        error = &own;
    }
    pthread_mutex_lock(&server->lock);
    server->is_starting = false;
    server->is_closing = true;
    pthread_mutex_unlock(&server->lock);
    weir__operation_fail(&server->start, error);
    weir__server_close_listeners(server);
}

/* Whichever listener's socket is asked does it for all of them, in the order they were bound. */
static int steer(weir_server *server)
{
    weir_channel *first = weir_server_listener(server, 0);
    int code = first != NULL ? weir__listener_steer(first, (uint32_t)server->wanted) : WEIR_ECLOSED;
    weir_channel_release(first);
    return code;
}

static void finish_start(weir_server *server)
{
    int code = server->config.steers_by_cpu && server->wanted > 1 ? steer(server) : 0;
    if (code < 0) {
        weir__server_fail_start(server, code, NULL);
        return;
    }
    pthread_mutex_lock(&server->lock);
    server->is_starting = false;
    bool is_closing = server->is_closing;
    pthread_mutex_unlock(&server->lock);
    if (weir__operation_end(&server->start, is_closing ? WEIR_ECLOSED : 0) < 0)
        weir_server_close(server, NULL);
    else
        weir__server_end_if_closed(server);
}

/* Binding -------------------------------------------------------------------------------------- */

/* It is tried with another address: then nobody sees this one any more. */
static void forget(weir_listening *self)
{
    weir_server *server = self->server;
    pthread_mutex_lock(&server->lock);
    self->is_known = false;
    server->listeners[self->index] = NULL;
    server->count = self->index;
    pthread_mutex_unlock(&server->lock);
}

/* It listens: so do the others, on the same port. */
static void go_on(weir_listening *self)
{
    weir_server *server = self->server;
    weir_address address;
    int code = self->index == 0 ? weir_channel_local_address(self->channel, &address) : 0;
    if (code < 0) {
        weir__server_fail_start(server, code, NULL);
        return;
    }
    if (self->index == 0) {
        pthread_mutex_lock(&server->lock);
        server->address = address;
        server->has_address = true;
        pthread_mutex_unlock(&server->lock);
    }
    if (self->index + 1 < server->wanted)
        weir__server_open_next(server);
    else
        finish_start(server);
}

/* A name may have addresses that this machine does not. */
static bool has_another(const weir_server *server, int code)
{
    return (code == -EADDRNOTAVAIL || code == -EAFNOSUPPORT) && server->candidates != NULL &&
           !server->has_address && server->next_candidate + 1 < server->candidates->count;
}

static void on_bound(weir_listener *listener, weir_future *future)
{
    weir_listening *self = WEIR_CONTAINER(listener, weir_listening, on_step);
    weir_channel *channel = self->channel;
    weir_server *server = self->server;
    int code = weir_future_code(future);
    if (code == 0) {
        go_on(self);
    } else if (has_another(server, code)) {
        forget(self);
        server->next_candidate++;
        weir_channel_close(self->channel, NULL);
        weir__server_open_next(server);
    } else {
        weir__server_fail_start(server, code, NULL);
    }
    weir_channel_release(channel); /* the step's */
}

/* A step whose end is told to `done`, on the channel's loop. It holds the channel, and so `self`,
 * for that may come after the end of everything else. */
static weir_promise *begin_step(weir_listening *self,
                                void (*done)(weir_listener *listener, weir_future *future))
{
    weir_promise *promise = weir_channel_promise(self->channel);
    if (promise == NULL)
        return NULL;
    weir_channel_retain(self->channel);
    self->on_step = (weir_listener){ .done = done, .dropped = done };
    weir_future_listen(weir_promise_future(promise), &self->on_step);
    return promise;
}

static void bind_it(weir_listening *self)
{
    weir_server *server = self->server;
    weir_promise *promise = begin_step(self, on_bound);
    if (promise == NULL) {
        weir__server_fail_start(server, -ENOMEM, NULL);
        return;
    }
    const weir_address *address = self->index == 0
                                      ? &server->candidates->list[server->next_candidate]
                                      : &server->address;
    weir_channel_bind(self->channel, address, promise);
    weir_promise_release(promise);
}

/* Now that it is on a loop, it is known, and can be closed from any thread. False when the server
 * was closed before. */
static bool make_known(weir_listening *self)
{
    weir_server *server = self->server;
    pthread_mutex_lock(&server->lock);
    bool is_closing = server->is_closing;
    if (!is_closing) {
        self->is_known = true;
        server->listeners[self->index] = self;
        server->count = self->index + 1;
    }
    pthread_mutex_unlock(&server->lock);
    return !is_closing;
}

static void on_registered(weir_listener *listener, weir_future *future)
{
    weir_listening *self = WEIR_CONTAINER(listener, weir_listening, on_step);
    weir_channel *channel = self->channel;
    weir_server *server = self->server;
    int code = weir_future_code(future);
    if (code == 0)
        code = server->init_code;
    if (code == 0 && !make_known(self)) {
        weir_channel_close(self->channel, NULL);
        code = WEIR_ECLOSED;
    }
    if (code < 0)
        weir__server_fail_start(server, code, NULL); /* what no loop took was closed */
    else if (server->descriptors != NULL)
        go_on(self); /* it listens already */
    else
        bind_it(self);
    weir_channel_release(channel); /* the step's */
}

/* Opening -------------------------------------------------------------------------------------- */

/* A socket that somebody else has opened listens, or is of no use. */
static int adopt(weir_server *server, weir_sys *sys, size_t index, weir_channel **channel,
                 weir_error *error)
{
    int fd = server->descriptors[index], is_listening = 0;
    socklen_t length = sizeof is_listening;
    if (sys->getsockopt(sys, fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length) == 0 &&
        !is_listening)
        return weir_error_set(error, -EINVAL, "server",
                              "descriptor %d is a socket that does not listen", fd);
    return weir__channel_adopt(channel, sys, WEIR_SOCKET_LISTENER, fd, error);
}

static int open_channel(weir_server *server, size_t index, weir_channel **channel,
                        weir_error *error)
{
    weir_sys *sys = weir__group_sys(server->config.boss);
    if (server->descriptors != NULL)
        return adopt(server, sys, index, channel, error);
    const weir_address *address = index == 0 ? &server->candidates->list[server->next_candidate]
                                             : &server->address;
    int code = weir__channel_open(channel, sys, WEIR_SOCKET_LISTENER, address, NULL);
    return code < 0 ? describe(server, code, error) : 0;
}

/* Makes the next listener ready to be registered: from then on the channel owns what is returned,
 * which has a reference to the channel until that is closed. */
static int make_listener(weir_server *server, size_t index, weir_listening **out, weir_error *error)
{
    weir_channel *channel;
    int code = open_channel(server, index, &channel, error);
    if (code < 0)
        return code;
    weir_future *closed = weir_channel_closed(channel); /* which is there from now on */
    weir_listening *self = closed != NULL ? weir__zalloc(sizeof *self) : NULL;
    if (self == NULL) {
        weir_channel_release(channel);
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", server->text);
    }
    *self = (weir_listening){ .server = weir_server_retain(server), .index = index };
    self->channel = channel;
    code = weir__acceptor_prepare(self, error);
    if (code < 0) {
        weir_channel_release(channel);
        return code;
    }
    *out = self;
    return 0;
}

static int open_listener(weir_server *server, weir_listening **self, weir_error *error)
{
    pthread_mutex_lock(&server->lock);
    bool is_closing = server->is_closing;
    size_t index = server->count;
    pthread_mutex_unlock(&server->lock);
    if (is_closing)
        return weir_error_set(error, WEIR_ECLOSED, "server",
                              "the server on %s was closed while it started", server->text);
    int code = make_listener(server, index, self, error);
    while (has_another(server, code)) {
        server->next_candidate++;
        code = make_listener(server, index, self, error);
    }
    return code;
}

static void listener_closed(weir_listener *listener, weir_future *future)
{
    weir_listening *self = WEIR_CONTAINER(listener, weir_listening, on_closed);
    weir_server *server = self->server;
    (void)future;
    pthread_mutex_lock(&server->lock);
    server->listening--;
    self->is_closed = true;
    pthread_mutex_unlock(&server->lock);
    weir__server_end_if_closed(server);
    weir_channel_release(self->channel); /* and with its last child all of this goes */
}

void weir__server_open_next(weir_server *server)
{
    weir_listening *self = NULL;
    weir_error error;
    int code = open_listener(server, &self, &error);
    if (self == NULL) {
        weir__server_fail_start(server, code, &error);
        return;
    }
    pthread_mutex_lock(&server->lock);
    server->listening++;
    pthread_mutex_unlock(&server->lock);
    weir_channel *channel = weir_channel_retain(self->channel);
    self->on_closed = (weir_listener){ .done = listener_closed, .dropped = listener_closed };
    weir_future_listen(weir_channel_closed(channel), &self->on_closed);
    weir_promise *promise = begin_step(self, on_registered);
    if (promise == NULL) {
        weir_channel_close(channel, NULL);
        weir__server_fail_start(server, -ENOMEM, NULL);
    } else {
        weir_group_register(server->config.boss, channel, promise);
    }
    weir_promise_release(promise);
    weir_channel_release(channel);
}
