/* SPDX-License-Identifier: MIT */
/* The race for a connection. */
#include "bootstrap/client.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "exec/per_channel.h"
#include "loop/loop.h"
#include "transport/socket.h"

#include <weir/timer.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 *   start            on the loop; the names are being looked for
 *   on_resolved      the first address is tried
 *   try_next         when that fails, or takes long, the next one; there may be several at once
 *   conclude         one has won, all have failed, time is up, or nobody wants it any more:
 *                    everything else is cancelled
 *   settle           and when nothing is under way any more, that is told
 *
 * All of it is the loop's, from `start` on. Until a socket has won it is none of any channel's.
 */
typedef struct connector connector;

typedef struct attempt {
    connector *owner;
    const weir_address *address;
    weir_io_file file;
    weir_io_op op;
    int code; /* 0 while nobody knows */
} attempt;

struct connector {
    weir_client_config config; /* with lists of its own */
    weir_address local;
    char *text;
    weir_executor *executor;
    weir_loop *loop;
    weir_promise *promise; /* its listeners run on the loop */
    weir_promise *lookup;
    weir_task start;
    weir_resident resident;
    weir_listener on_promise, on_resolved, on_registered, on_local;
    weir_timer deadline, stagger;

    attempt *attempts;
    weir_addresses addresses; /* the lookup's */
    size_t next;              /* which to try */
    size_t running;           /* attempts under way */
    attempt *winner;
    weir_channel *channel;
    bool is_asking;      /* for the addresses */
    bool is_registering; /* the channel */
    bool is_concluded;
    bool is_promise_done;
    int failure;
};

static void try_next(connector *self);
static void settle(connector *self);

static weir_io *io_of(const connector *self)
{
    return self->loop->io;
}

static void destroy(connector *self)
{
    weir_promise_release(self->promise);
    weir_promise_release(self->lookup);
    weir_channel_release(self->channel);
    weir__client_free_copy(&self->config);
    weir__free(self->attempts);
    weir__free(self->text);
    weir__free(self);
}

/* The end -------------------------------------------------------------------------------------- */

/* Everything that is under way ends, and settle follows. */
static void conclude(connector *self, int failure)
{
    if (self->is_concluded)
        return;
    self->is_concluded = true;
    self->failure = failure;
    weir_timer_cancel(&self->deadline);
    weir_timer_cancel(&self->stagger);
    if (self->is_asking)
        weir_future_cancel(weir_promise_future(self->lookup));
    for (size_t i = 0; i < self->next; i++) {
        if (self->attempts[i].op.is_in_flight)
            weir__io_cancel(io_of(self), &self->attempts[i].op);
    }
    if (self->channel != NULL && failure < 0)
        weir_channel_close(self->channel, NULL);
    settle(self);
}

/* What was tried, and why not. */
static void describe(const connector *self, weir_error *error)
{
    char list[sizeof error->message] = "";
    size_t used = 0;
    for (size_t i = 0; i < self->next && used < sizeof list - 1; i++) {
        char address[WEIR_ADDRESS_TEXT_MAX];
        int code = self->attempts[i].code < 0 ? self->attempts[i].code : self->failure;
        weir_address_text(self->attempts[i].address, address, sizeof address);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s: %s", i > 0 ? "; " : "",
                                 address, weir_error_text(code));
    }
    if (self->next == 0)
        weir_error_set(error, self->failure, "client", "cannot connect to %s: %s", self->text,
                       weir_error_text(self->failure));
    else if (self->next == 1 && strncmp(list, self->text, strlen(self->text)) == 0)
        weir_error_set(error, self->failure, "client", "cannot connect to %s", list);
    else
        weir_error_set(error, self->failure, "client", "cannot connect to %s (%s)", self->text,
                       list);
}

/* Tells, once nothing is under way any more; and when nobody can call back, goes. */
static void settle(connector *self)
{
    if (!self->is_concluded || self->running > 0 || self->is_asking || self->is_registering)
        return;
    if (weir__list_is_linked(&self->resident.node))
        weir__loop_remove(self->loop, &self->resident);
    if (self->is_promise_done) {
        if (self->channel != NULL)
            weir_channel_close(self->channel, NULL); /* it was cancelled in the last moment */
        destroy(self);
        return;
    }
    if (weir_future_is_done(weir_promise_future(self->promise)))
        return; /* its listener is on the way, and will be here again */
    weir_channel *channel = self->channel;
    if (self->failure < 0) {
        weir_error error;
        describe(self, &error);
        weir_promise_fail_with(self->promise, &error);
    } else if (weir_promise_succeed(self->promise, channel, weir__client_release_channel) == 0) {
        self->channel = NULL;
    }
}

/* Complete, by settle, or because somebody has cancelled it. */
static void on_promise(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_promise);
    self->is_promise_done = true;
    if (weir_future_code(future) == 0 || self->is_concluded)
        settle(self);
    else
        conclude(self, weir_future_code(future));
}

static int on_deadline(weir_timer *timer)
{
    conclude(WEIR_CONTAINER(timer, connector, deadline), -ETIMEDOUT);
    return 0;
}

static void evict(weir_resident *resident)
{
    conclude(WEIR_CONTAINER(resident, connector, resident), WEIR_ESHUTDOWN);
}

static const weir_resident_type resident_type = { .evict = evict };

/* The channel ---------------------------------------------------------------------------------- */

static void on_registered(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_registered);
    int code = weir_future_code(future);
    self->is_registering = false;
    if (self->failure == 0)
        self->failure = code;
    settle(self);
}

/* Its loop is this one; the end of that is told. */
static int enter(connector *self, weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    if (promise == NULL)
        return -ENOMEM;
    self->is_registering = true;
    self->on_registered.done = on_registered;
    weir_future_listen(weir_promise_future(promise), &self->on_registered);
    weir_channel_register(channel, self->executor, promise);
    weir_promise_release(promise);
    return 0;
}

/* The socket that has won becomes a channel. */
static int adopt(connector *self, attempt *winner)
{
    weir_sys *sys = self->loop->base.sys;
    int fd = winner->file.fd;
    int family = weir_address_sockaddr(winner->address, NULL)->sa_family;
    io_of(self)->type->detach(io_of(self), &winner->file);
    int code = weir__stream_new(&self->channel, NULL, sys, fd, family, true);
    if (code < 0) {
        sys->close(sys, fd);
        return code;
    }
    code = weir__client_set_up(&self->config, self->channel, true);
    return code < 0 ? code : enter(self, self->channel);
}

static void win(connector *self, attempt *winner)
{
    self->winner = winner;
    int code = adopt(self, winner);
    conclude(self, code);
}

/* Trying --------------------------------------------------------------------------------------- */

static void on_attempt(weir_io_op *op, const weir_io_result *result)
{
    attempt *at = WEIR_CONTAINER(op, attempt, op);
    connector *self = at->owner;
    self->running--;
    if (result->code == 0 && !self->is_concluded) {
        win(self, at);
        return;
    }
    at->code = result->code != -ECANCELED ? result->code : 0;
    io_of(self)->type->close_file(io_of(self), &at->file);
    if (self->is_concluded)
        settle(self);
    else
        try_next(self);
}

static int set_socket_options(const connector *self, int fd, int family)
{
    weir_sys *sys = self->loop->base.sys;
    int code = 0;
    for (size_t i = 0; i < self->config.option_count && code == 0; i++) {
        const weir_option_value *option = &self->config.options[i];
        code = weir__sockopt_set(sys, fd, family, option->option, option->value);
        if (code == -ENOPROTOOPT)
            code = 0; /* the channel's, or none of this family's: it will say so */
    }
    return code;
}

/* A local address of another family is nothing for this one. */
static int bind_local(const connector *self, int fd, int family)
{
    weir_sys *sys = self->loop->base.sys;
    size_t length;
    const struct sockaddr *local = weir_address_sockaddr(&self->local, &length);
    if (local == NULL)
        return 0;
    return local->sa_family == family ? sys->bind(sys, fd, local, (socklen_t)length)
                                      : -EAFNOSUPPORT;
}

/* An open socket, with what it has to have before it connects; or a negative code. */
static int open_socket(const connector *self, int family)
{
    weir_sys *sys = self->loop->base.sys;
    int fd = sys->socket(sys, family, SOCK_STREAM, 0);
    if (fd < 0)
        return fd;
    if (family != AF_UNIX)
        weir__sockopt_set(sys, fd, family, WEIR_OPTION_NO_DELAY, 1);
    int code = set_socket_options(self, fd, family);
    if (code == 0)
        code = bind_local(self, fd, family);
    if (code < 0)
        sys->close(sys, fd);
    return code < 0 ? code : fd;
}

/* WEIR_IO_PENDING, or how it went. -EBUSY when the loop has room for one descriptor only. */
static int begin_attempt(connector *self, attempt *at)
{
    weir_io *io = io_of(self);
    int family = weir_address_sockaddr(at->address, NULL)->sa_family;
    int fd = open_socket(self, family);
    if (fd < 0)
        return fd;
    int code = io->type->attach(io, &at->file, fd);
    if (code < 0) {
        io->sys->close(io->sys, fd);
        return code;
    }
    at->op = (weir_io_op){ .kind = WEIR_IO_CONNECT, .file = &at->file, .remote = at->address };
    at->op.on_done = on_attempt;
    code = weir__io_submit(io, &at->op);
    if (code != WEIR_IO_PENDING && code < 0)
        io->type->close_file(io, &at->file);
    return code;
}

/* Channels within the process have no sockets to race with. */
static void on_local(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_local);
    int code = weir_future_code(future);
    self->running--;
    self->attempts[0].code = code;
    if (self->is_concluded)
        settle(self);
    else
        conclude(self, code);
}

static int begin_local(connector *self, attempt *at)
{
    int code = weir__channel_open(&self->channel, self->loop->base.sys, WEIR_SOCKET_STREAM,
                                  at->address, NULL);
    if (code == 0)
        code = weir__client_set_up(&self->config, self->channel, false);
    weir_promise *promise = code == 0 ? weir_channel_promise(self->channel) : NULL;
    if (promise == NULL)
        return code < 0 ? code : -ENOMEM;
    self->on_local.done = on_local;
    weir_future_listen(weir_promise_future(promise), &self->on_local);
    weir_channel_register(self->channel, self->executor, NULL);
    weir_channel_connect(self->channel, at->address, self->local.length > 0 ? &self->local : NULL,
                         promise);
    weir_promise_release(promise);
    return WEIR_IO_PENDING;
}

static int try_one(connector *self, attempt *at)
{
    return weir_address_kind_of(at->address) == WEIR_ADDRESS_LOCAL ? begin_local(self, at)
                                                                   : begin_attempt(self, at);
}

static int on_stagger(weir_timer *timer)
{
    try_next(WEIR_CONTAINER(timer, connector, stagger));
    return 0;
}

static void wait_a_little(connector *self)
{
    if (self->config.stagger_ms > 0 && self->next < self->addresses.count)
        weir_timer_schedule(&self->stagger, self->executor, WEIR_MS(self->config.stagger_ms));
}

/* A loop may be for one descriptor, or descriptors may have run out: then one after the other. */
static bool has_to_wait(const connector *self, int code)
{
    return self->running > 0 && (code == -EBUSY || code == -EMFILE || code == -ENFILE);
}

static void try_next(connector *self)
{
    weir_timer_cancel(&self->stagger);
    while (self->next < self->addresses.count) {
        attempt *at = &self->attempts[self->next];
        int code = try_one(self, at);
        if (has_to_wait(self, code))
            return;
        self->next++;
        if (code == WEIR_IO_PENDING) {
            self->running++;
            wait_a_little(self);
            return;
        }
        if (code == 0) {
            win(self, at);
            return;
        }
        at->code = code;
    }
    if (self->running == 0)
        conclude(self, self->attempts[0].code);
}

static int prepare_attempts(connector *self, const weir_addresses *found)
{
    if (found == NULL || found->count == 0)
        return WEIR_ENONAME;
    self->attempts = weir__zalloc(found->count * sizeof *self->attempts);
    if (self->attempts == NULL)
        return -ENOMEM;
    self->addresses = *found;
    for (size_t i = 0; i < found->count; i++) {
        self->attempts[i].owner = self;
        self->attempts[i].address = &found->list[i];
    }
    return 0;
}

static void on_resolved(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_resolved);
    int code = weir_future_code(future);
    self->is_asking = false;
    if (self->is_concluded) {
        settle(self);
        return;
    }
    if (code == 0)
        code = prepare_attempts(self, weir_future_value(future));
    if (code < 0)
        conclude(self, code);
    else
        try_next(self);
}

/* Starting ------------------------------------------------------------------------------------- */

static int start(weir_task *task)
{
    connector *self = WEIR_CONTAINER(task, connector, start);
    self->loop = weir_executor_loop(self->executor);
    self->resident.type = &resident_type;
    weir_future_listen(weir_promise_future(self->promise), &self->on_promise);
    int code = weir__loop_add(self->loop, &self->resident);
    if (code == 0 && self->config.connect_timeout_ms > 0)
        code = weir_timer_schedule(&self->deadline, self->executor,
                                   WEIR_MS(self->config.connect_timeout_ms));
    self->is_asking = true;
    weir_future_listen(weir_promise_future(self->lookup), &self->on_resolved);
    if (code < 0)
        conclude(self, code);
    return 0;
}

/* The loop has ended. */
static void start_dropped(weir_task *task)
{
    connector *self = WEIR_CONTAINER(task, connector, start);
    weir_future_cancel(weir_promise_future(self->lookup));
    weir_promise_fail(self->promise, WEIR_ESHUTDOWN);
    destroy(self);
}

static connector *make(const weir_client_config *config, const char *text, weir_executor *executor)
{
    connector *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    bool has_memory = weir__client_copy(&self->config, config);
    self->text = weir__strdup(text);
    self->executor = executor;
    self->promise = weir_promise_new(executor);
    self->lookup = weir_promise_new(executor);
    self->on_promise.done = on_promise;
    self->on_resolved.done = on_resolved;
    self->deadline.fire = on_deadline;
    self->stagger.fire = on_stagger;
    self->start = (weir_task){ .run = start, .dropped = start_dropped };
    if (has_memory && self->text != NULL && self->promise != NULL && self->lookup != NULL)
        return self;
    weir__promise_end(self->promise, -ENOMEM);
    weir__promise_end(self->lookup, -ENOMEM);
    destroy(self);
    return NULL;
}

/* Nobody has heard of it yet. */
static int give_up(connector *self, weir_group *group, int code)
{
    weir_executor *executor = self->executor;
    weir_promise_set(self->promise, code);
    weir_promise_set(self->lookup, code);
    destroy(self);
    weir__group_give_back(group, executor);
    return code;
}

int weir__connector_start(const weir_client_config *config, const char *text,
                          weir_promise **promise, weir_error *error)
{
    weir_executor *executor;
    weir_address local = { 0 };
    int code = config->local != NULL ? weir_address_parse(&local, config->local, error) : 0;
    if (code < 0)
        return code;
    code = weir__group_take(config->group, &executor);
    if (code < 0)
        return weir_error_set(error, code, "client", "cannot connect to %s: %s", text,
                              weir_error_text(code));
    connector *self = make(config, text, executor);
    if (self == NULL) {
        weir__group_give_back(config->group, executor);
        return weir_error_set(error, -ENOMEM, "client", "no memory to connect to %s", text);
    }
    self->local = local;
    code = weir_resolve(config->group, config->resolver, text, self->lookup, error);
    if (code < 0)
        return give_up(self, config->group, code);
    weir_promise *own = weir_promise_retain(self->promise);
    code = weir__executor_post_always(executor, &self->start);
    if (code < 0) {
        weir_promise_release(own);
        weir_error_set(error, code, "client", "cannot connect to %s: %s", text,
                       weir_error_text(code));
        return give_up(self, config->group, code);
    }
    *promise = own;
    return 0;
}
