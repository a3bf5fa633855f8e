/* SPDX-License-Identifier: MIT */
/* Servers: how they start, step by step, and end. */
#include "bootstrap/server.h"

#include "base/alloc.h"
#include "channel/channel.h"
#include "exec/group.h"
#include "transport/socket.h"

#include <errno.h>
#include <string.h>

#define MOST_ACCEPTORS 1024

static void open_next(weir_server *server);

/* Counting ------------------------------------------------------------------------------------- */

weir_server *weir_server_retain(weir_server *server)
{
    if (server != NULL)
        atomic_fetch_add_explicit(&server->refs, 1, memory_order_relaxed);
    return server;
}

/* By a child's loop, maybe, so its groups may be gone already. */
static void destroy(weir_server *server)
{
    const weir_server_config *config = &server->config;
    weir__free(server->descriptors);
    weir_addresses_free(server->candidates);
    weir__free((void *)config->options);
    weir__free((void *)config->child_options);
    weir__free((void *)config->attrs);
    weir__free((void *)config->child_attrs);
    weir__free(server->listeners);
    weir__free(server->text);
    pthread_mutex_destroy(&server->lock);
    weir__free(server);
}

void weir_server_release(weir_server *server)
{
    if (server != NULL && atomic_fetch_sub_explicit(&server->refs, 1, memory_order_acq_rel) == 1)
        destroy(server);
}

/* Ending --------------------------------------------------------------------------------------- */

/* Under the lock: whether nothing is left to be waited for. True once, for who ends it. */
static bool claim_end(weir_server *server)
{
    bool is_over = server->is_ending && server->draining == 0 && !server->is_closed;
    server->is_closed |= is_over;
    return is_over;
}

static void be_over(weir_server *server)
{
    pthread_mutex_lock(&server->lock);
    weir_promise_list promises = server->on_closed;
    server->on_closed = (weir_promise_list){ 0 };
    pthread_mutex_unlock(&server->lock);
    weir__promises_complete(&promises, 0);
    weir__future_complete(&server->closed, 0);
    weir_server_release(server); /* it is under way no more */
}

/* Those that waited for the listeners; each may be gone once it has begun. */
static void begin_drains(weir_server *server)
{
    pthread_mutex_lock(&server->lock);
    weir_drain *drain = server->drains;
    server->drains = NULL;
    pthread_mutex_unlock(&server->lock);
    while (drain != NULL) {
        weir_drain *next = weir__drain_next(drain);
        weir__drain_begin(drain);
        drain = next;
    }
}

void weir__server_drained(weir_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->draining--;
    bool is_over = claim_end(server);
    pthread_mutex_unlock(&server->lock);
    if (is_over)
        be_over(server);
}

/* The last listener may be closed by several at once: one of them does the rest. */
static void end_if_closed(weir_server *server)
{
    pthread_mutex_lock(&server->lock);
    bool ends = !server->is_starting && server->listening == 0 && !server->is_ending;
    server->is_ending |= ends;
    bool is_over = ends && claim_end(server);
    pthread_mutex_unlock(&server->lock);
    if (ends)
        begin_drains(server);
    if (is_over)
        be_over(server);
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
    end_if_closed(server);
    weir_channel_release(self->channel); /* and with its last child all of this goes */
}

static void add_stats(weir_listener_stats *to, const weir_channel *channel)
{
    weir_listener_stats from;
    if (weir_channel_listener_stats(channel, &from) < 0)
        return;
    to->accepted += from.accepted;
    to->connections += from.connections;
    to->failed += from.failed;
    to->refused += from.refused;
    to->pauses += from.pauses;
    to->limited += from.limited;
}

void weir__listening_free(void *listening)
{
    weir_listening *self = listening;
    weir_server *server = self->server;
    pthread_mutex_lock(&server->lock);
    if (self->is_known) {
        add_stats(&server->past, self->channel);
        server->listeners[self->index] = NULL;
    }
    pthread_mutex_unlock(&server->lock);
    weir__free(self);
    weir_server_release(server);
}

/* The channels as they are now, each with a reference of its own. */
static void close_listeners(weir_server *server)
{
    for (size_t i = 0; i < weir_server_listener_count(server); i++) {
        weir_channel *channel = weir_server_listener(server, i);
        if (channel != NULL)
            weir_channel_close(channel, NULL);
        weir_channel_release(channel);
    }
    end_if_closed(server);
}

void weir_server_close(weir_server *server, weir_promise *promise)
{
    if (server == NULL) {
        weir__promise_end(promise, -EINVAL);
        return;
    }
    pthread_mutex_lock(&server->lock);
    bool is_closed = server->is_closed;
    server->is_closing = true;
    if (!is_closed)
        weir__promises_add(&server->on_closed, promise);
    pthread_mutex_unlock(&server->lock);
    if (is_closed)
        weir__promise_end(promise, 0);
    else
        close_listeners(server);
}

void weir_server_drain(weir_server *server, int64_t timeout_ms, weir_promise *promise)
{
    weir_drain *drain = server != NULL ? weir__drain_new(server, timeout_ms, promise) : NULL;
    if (drain == NULL) {
        weir__promise_end(promise, server == NULL ? -EINVAL : -ENOMEM);
        weir_server_close(server, NULL);
        return;
    }
    weir__drain_watch_time(drain); /* before it can end */
    pthread_mutex_lock(&server->lock);
    server->is_closing = true;
    server->draining++;
    bool begins = server->is_ending; /* nobody else would begin it */
    if (!begins)
        weir__drain_queue(drain, &server->drains);
    pthread_mutex_unlock(&server->lock);
    if (begins)
        weir__drain_begin(drain);
    close_listeners(server);
}

/* Starting ------------------------------------------------------------------------------------- */

/* Without a word of its own the error says where and what. */
static void fail_start(weir_server *server, int code, const weir_error *error)
{
    weir_error own;
    if (error == NULL) {
        weir_error_set(&own, code, "server", "cannot listen on %s: %s", server->text,
                       weir_error_text(code));
        error = &own;
    }
    weir_promise *started = server->started;
    server->started = NULL;
    pthread_mutex_lock(&server->lock);
    server->is_starting = false;
    server->is_closing = true;
    pthread_mutex_unlock(&server->lock);
    weir_promise_fail_with(started, error);
    weir_promise_release(started);
    close_listeners(server);
}

/* Whichever listener's socket is asked does it for all of them, in the order they were bound. */
static int steer(weir_server *server)
{
    weir_channel *first = weir_server_listener(server, 0);
    int code = first != NULL ? weir__listener_steer(first, (uint32_t)server->wanted) : WEIR_ECLOSED;
    weir_channel_release(first);
    return code;
}

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

static void finish_start(weir_server *server)
{
    int code = server->config.steers_by_cpu && server->wanted > 1 ? steer(server) : 0;
    if (code < 0) {
        fail_start(server, code, NULL);
        return;
    }
    weir_promise *started = server->started;
    server->started = NULL;
    pthread_mutex_lock(&server->lock);
    server->is_starting = false;
    bool is_closing = server->is_closing;
    pthread_mutex_unlock(&server->lock);
    bool is_cancelled = weir_promise_set(started, is_closing ? WEIR_ECLOSED : 0) < 0;
    weir_promise_release(started);
    if (is_cancelled)
        weir_server_close(server, NULL);
    else
        end_if_closed(server);
}

/* It listens: so do the others, on the same port. */
static void go_on(weir_listening *self)
{
    weir_server *server = self->server;
    weir_address address;
    int code = self->index == 0 ? weir_channel_local_address(self->channel, &address) : 0;
    if (code < 0) {
        fail_start(server, code, NULL);
        return;
    }
    if (self->index == 0) {
        pthread_mutex_lock(&server->lock);
        server->address = address;
        server->has_address = true;
        pthread_mutex_unlock(&server->lock);
    }
    if (self->index + 1 < server->wanted)
        open_next(server);
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
        open_next(server);
    } else {
        fail_start(server, code, NULL);
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
    self->on_step.done = done;
    weir_future_listen(weir_promise_future(promise), &self->on_step);
    return promise;
}

static void bind_it(weir_listening *self)
{
    weir_server *server = self->server;
    weir_promise *promise = begin_step(self, on_bound);
    if (promise == NULL) {
        fail_start(server, -ENOMEM, NULL);
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
        fail_start(server, code, NULL); /* what no loop took was closed */
    else if (server->descriptors != NULL)
        go_on(self); /* it listens already */
    else
        bind_it(self);
    weir_channel_release(channel); /* the step's */
}

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
    return weir__channel_open(channel, sys, WEIR_SOCKET_LISTENER, address, error);
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

static void open_next(weir_server *server)
{
    weir_listening *self = NULL;
    weir_error error;
    int code = open_listener(server, &self, &error);
    if (self == NULL) {
        fail_start(server, code, &error);
        return;
    }
    pthread_mutex_lock(&server->lock);
    server->listening++;
    pthread_mutex_unlock(&server->lock);
    weir_channel *channel = weir_channel_retain(self->channel);
    self->on_closed.done = listener_closed;
    weir_future_listen(weir_channel_closed(channel), &self->on_closed);
    weir_promise *promise = begin_step(self, on_registered);
    if (promise == NULL) {
        weir_channel_close(channel, NULL);
        fail_start(server, -ENOMEM, NULL);
    } else {
        weir_group_register(server->config.boss, channel, promise);
    }
    weir_promise_release(promise);
    weir_channel_release(channel);
}

/* Who asks for names, while the answer is not there. */
typedef struct asking {
    weir_listener listener;
    weir_server *server;
} asking;

static void on_resolved(weir_listener *listener, weir_future *future)
{
    asking *self = WEIR_CONTAINER(listener, asking, listener);
    weir_server *server = self->server;
    const weir_addresses *found = weir_future_value(future);
    int code = weir_future_code(future);
    weir__free(self);
    if (code == 0) {
        server->candidates = weir_addresses_new(found->list, found->count);
        code = server->candidates != NULL ? 0 : -ENOMEM;
    }
    if (code == 0)
        open_next(server);
    else
        fail_start(server, code, NULL);
    weir_server_release(server);
}

static int ask(weir_server *server, weir_error *error)
{
    weir_promise *promise = weir_promise_new(NULL);
    asking *self = weir__zalloc(sizeof *self);
    int code = promise != NULL && self != NULL ? 0 : -ENOMEM;
    if (code == 0)
        code = weir_resolve(server->config.boss, server->config.resolver, server->text, promise,
                            error);
    else
        weir_error_set(error, code, "server", "no memory to listen on %s", server->text);
    if (code < 0) {
        weir__promise_end(promise, code);
        weir__free(self);
    } else {
        self->server = weir_server_retain(server);
        self->listener.done = on_resolved;
        weir_future_listen(weir_promise_future(promise), &self->listener);
    }
    weir_promise_release(promise);
    return code;
}

/* Making --------------------------------------------------------------------------------------- */

static int refuse(weir_error *error, const char *what, int value, const char *why)
{
    return weir_error_set(error, -EINVAL, "server", "%s is %d, which is %s", what, value, why);
}

static int check_attrs(const weir_attr_value *attrs, size_t count, weir_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (attrs == NULL || attrs[i].key == NULL || attrs[i].key->destroy != NULL)
            return weir_error_set(error, -EINVAL, "server",
                                  "attribute %zu has no key, or one with a destroy, but would be "
                                  "shared by many channels",
                                  i);
    }
    return 0;
}

/* Loops are made on demand, or have been. */
static bool has_loops(const weir_group *group)
{
    return group == NULL || group->per_channel != NULL || weir_group_loop_at(group, 0) != NULL;
}

static int check_groups(const weir_server_config *config, weir_error *error)
{
    const weir_group *boss = config->boss, *workers = config->workers;
    if (boss == NULL && workers == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no group: set boss or workers");
    if (!has_loops(boss) || !has_loops(workers))
        return weir_error_set(error, -EINVAL, "server", "%s has no event loops, but executors",
                              has_loops(boss) ? "workers" : "boss");
    if (config->keeps_loop && boss != NULL && workers != NULL && boss != workers)
        return weir_error_set(error, -EINVAL, "server",
                              "keeps_loop needs one group to be both boss and workers");
    if (config->keeps_loop && (boss != NULL ? boss : workers)->per_channel != NULL)
        return weir_error_set(error, -EINVAL, "server",
                              "keeps_loop needs loops that can have more than one channel");
    return 0;
}

static int check(const weir_server_config *config, const char *address, weir_error *error)
{
    if (config == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no config");
    if (config->init_child == NULL)
        return weir_error_set(error, -EINVAL, "server",
                              "there is no init_child, so nobody would serve the connections");
    if (address == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no address");
    if (config->acceptors < 0 || config->acceptors > MOST_ACCEPTORS)
        return refuse(error, "acceptors", config->acceptors, "not from 1 to 1024");
    if (config->backlog < 0)
        return refuse(error, "backlog", config->backlog, "negative");
    if (config->max_connections < 0)
        return refuse(error, "max_connections", config->max_connections, "negative");
    int code = check_groups(config, error);
    if (code == 0)
        code = check_attrs(config->attrs, config->attr_count, error);
    return code < 0 ? code : check_attrs(config->child_attrs, config->child_attr_count, error);
}

/* A copy of a list, NULL for an empty one; false without memory. */
static bool copy_list(const void *from, size_t count, size_t size, void *to)
{
    void *copy = NULL;
    if (from != NULL && count > 0) {
        copy = weir__alloc(count * size);
        if (copy != NULL)
            memcpy(copy, from, count * size);
    }
    memcpy(to, &copy, sizeof copy);
    return copy != NULL || from == NULL || count == 0;
}

static weir_server *make(const weir_server_config *config, const char *address)
{
    weir_server *server = weir__zalloc(sizeof *server);
    if (server == NULL)
        return NULL;
    atomic_init(&server->refs, 1);
    pthread_mutex_init(&server->lock, NULL);
    weir__future_init(&server->closed, NULL);
    server->config = *config;
    weir_server_config *own = &server->config;
    own->boss = config->boss != NULL ? config->boss : config->workers;
    own->workers = config->workers != NULL ? config->workers : config->boss;
    bool has_memory = copy_list(config->options, config->option_count, sizeof *config->options,
                                &own->options);
    has_memory &= copy_list(config->child_options, config->child_option_count,
                            sizeof *config->child_options, &own->child_options);
    has_memory &= copy_list(config->attrs, config->attr_count, sizeof *config->attrs, &own->attrs);
    has_memory &= copy_list(config->child_attrs, config->child_attr_count,
                            sizeof *config->child_attrs, &own->child_attrs);
    server->text = weir__strdup(address);
    server->started = weir_promise_new(NULL);
    if (has_memory && server->text != NULL && server->started != NULL)
        return server;
    weir__promise_end(server->started, -ENOMEM);
    weir_promise_release(server->started);
    weir_server_release(server);
    return NULL;
}

/* How many listeners, and from where. */
static int plan(weir_server *server, weir_error *error)
{
    int found = weir__inherited_find(server->text, &server->descriptors, error);
    if (found < 0)
        return found;
    server->wanted = found > 0                      ? (size_t)found
                     : server->config.acceptors > 0 ? (size_t)server->config.acceptors
                                                    : 1;
    server->listeners = weir__zalloc(server->wanted * sizeof(weir_listening *));
    return server->listeners != NULL
               ? 0
               : weir_error_set(error, -ENOMEM, "server", "no memory for %zu listeners",
                                server->wanted);
}

/* What is wrong at once is told so, and nobody hears of the promise. */
static void abandon(weir_server *server, int code)
{
    weir_promise *started = server->started;
    server->started = NULL;
    server->is_starting = false;
    weir_promise_set(started, code);
    weir_promise_release(started);
}

/* Who was told that it is cancelled does not expect a server, however far that has got. */
static void on_told(weir_listener *listener, weir_future *future)
{
    weir_server *server = WEIR_CONTAINER(listener, weir_server, on_told);
    if (weir_future_code(future) == -ECANCELED)
        weir_server_close(server, NULL);
    weir_server_release(server);
}

/* The user's promise ends as the start does. */
static int tell(weir_server *server, weir_promise *promise, weir_future *started, weir_error *error)
{
    if (promise == NULL)
        return 0;
    if (weir_promise_follow(promise, started) < 0)
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", server->text);
    weir_server_retain(server);
    server->on_told.done = on_told;
    weir_future_listen(weir_promise_future(promise), &server->on_told);
    return 0;
}

int weir_server_start(weir_server **out, const weir_server_config *config, const char *address,
                      weir_promise *promise, weir_error *error)
{
    if (out == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no place for the server");
    int code = check(config, address, error);
    if (code < 0)
        return code;
    weir_server *server = make(config, address);
    if (server == NULL)
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", address);
    weir_promise *started = weir_promise_retain(server->started);
    weir_server_retain(server); /* the caller's, besides what is under way */
    server->is_starting = true;
    code = plan(server, error);
    if (code == 0 && server->descriptors != NULL)
        open_next(server);
    else if (code == 0)
        code = ask(server, error);
    if (code < 0)
        abandon(server, code);
    else
        code = tell(server, promise, weir_promise_future(started), error);
    weir_promise_release(started);
    if (code < 0) {
        weir_server_close(server, NULL);
        weir_server_release(server);
        return code;
    }
    *out = server;
    return 0;
}

int weir_server_listen(weir_server **server, const weir_server_config *config, const char *address,
                       weir_error *error)
{
    if (server == NULL || address == NULL)
        return weir_server_start(server, config, address, NULL, error); /* which says why not */
    if (weir_executor_current() != NULL)
        return weir_error_set(error, -EDEADLK, "server",
                              "listening on %s would have to wait for this very thread; use "
                              "weir_server_start here",
                              address);
    weir_promise *promise = weir_promise_new(NULL);
    if (promise == NULL)
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", address);
    weir_server *made = NULL;
    int code = weir_server_start(&made, config, address, promise, error);
    if (code < 0) {
        weir_promise_set(promise, code);
    } else {
        weir_future *future = weir_promise_future(promise);
        code = weir_future_await(future);
        if (code < 0) {
            const weir_error *why = weir_future_error(future);
            if (error != NULL && why != NULL)
                *error = *why;
            else
                weir_error_set(error, code, "server", "cannot listen on %s: %s", address,
                               weir_error_text(code));
            weir_server_close(made, NULL); /* also when it is the waiting that failed */
            weir_server_release(made);
        } else {
            *server = made;
        }
    }
    weir_promise_release(promise);
    return code;
}

/* Looking -------------------------------------------------------------------------------------- */

/* To lock something is no change of it. */
static void lock(const weir_server *server)
{
    pthread_mutex_lock((pthread_mutex_t *)&server->lock);
}

static void unlock(const weir_server *server)
{
    pthread_mutex_unlock((pthread_mutex_t *)&server->lock);
}

int weir_server_address(const weir_server *server, weir_address *address)
{
    if (server == NULL || address == NULL)
        return -EINVAL;
    lock(server);
    bool has_address = server->has_address;
    *address = server->address;
    unlock(server);
    return has_address ? 0 : WEIR_ENOTFOUND;
}

weir_group *weir_server_boss(const weir_server *server)
{
    return server != NULL ? server->config.boss : NULL;
}

weir_group *weir_server_workers(const weir_server *server)
{
    return server != NULL ? server->config.workers : NULL;
}

size_t weir_server_listener_count(const weir_server *server)
{
    if (server == NULL)
        return 0;
    lock(server);
    size_t count = server->count;
    unlock(server);
    return count;
}

weir_channel *weir_server_listener(const weir_server *server, size_t index)
{
    if (server == NULL)
        return NULL;
    lock(server);
    const weir_listening *self = index < server->count ? server->listeners[index] : NULL;
    weir_channel *channel = self != NULL && !self->is_closed ? weir_channel_retain(self->channel)
                                                             : NULL;
    unlock(server);
    return channel;
}

/* Under the lock. */
static void sum_up(const weir_server *server, weir_listener_stats *stats)
{
    *stats = server->past;
    for (size_t i = 0; i < server->count; i++) {
        if (server->listeners[i] != NULL)
            add_stats(stats, server->listeners[i]->channel);
    }
}

uint64_t weir__server_connections(const weir_server *server)
{
    weir_listener_stats stats;
    sum_up(server, &stats);
    return stats.connections;
}

void weir_server_get_stats(const weir_server *server, weir_listener_stats *stats)
{
    *stats = (weir_listener_stats){ 0 };
    if (server == NULL)
        return;
    lock(server);
    sum_up(server, stats);
    unlock(server);
}

weir_future *weir_server_closed(weir_server *server)
{
    return &server->closed;
}
