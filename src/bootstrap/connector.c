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
 * All of it is the loop's, from `start` on, but for `on_promise`. Until a socket has won it is none
 * of any channel's.
 */
typedef struct connector connector;

typedef struct attempt {
    connector *owner;
    const weir_address *address;
    weir_io_file file;
    weir_io_op op;
    struct weir_claim *claim; /* of the path it comes from */
    weir_channel *channel;    /* within the process, in place of a socket: while it connects */
    weir_listener on_local;
    int code; /* 0 while nobody knows */
} attempt;

struct connector {
    weir_client_config config; /* with lists of its own, and an init that calls the next */
    weir_init_fn init;
    void *init_arg;
    weir_address local;
    char *text;
    weir_executor *executor;
    weir_loop *loop;
    _Atomic(int) parts;    /* of the two that have to be over: the loop's, and the promise's */
    weir_promise *promise; /* the caller's; NULL: nobody wants to know */
    weir_promise *end;     /* told on the loop, when the promise is complete or would be */
    weir_promise *lookup;
    weir_task start;
    weir_resident resident;
    weir_listener on_promise, on_end, on_resolved, on_registered;
    weir_notice after_news; /* of the channel */
    weir_timer deadline, stagger;

    attempt *attempts;
    weir_addresses addresses; /* the lookup's */
    size_t next;              /* which to try */
    size_t running;           /* attempts under way */
    weir_channel *channel;    /* of the one that has won */
    bool is_asking;           /* for the addresses */
    bool is_entering;         /* the channel comes to the loop, and is told so */
    bool is_concluded;
    bool is_told;
    bool is_end_heard; /* on_end was called */
    int failure, init_code;
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
    weir_promise_release(self->end);
    weir_promise_release(self->lookup);
    weir_channel_release(self->channel);
    weir__client_free_copy(&self->config);
    weir__free(self->attempts);
    weir__free(self->text);
    weir__free(self);
}

/* The end -------------------------------------------------------------------------------------- */

static void end_part(connector *self)
{
    if (atomic_fetch_sub_explicit(&self->parts, 1, memory_order_acq_rel) == 1)
        destroy(self);
}

/* An attempt that is of no use any more. */
static void cancel_attempt(connector *self, attempt *at)
{
    if (at->op.is_in_flight)
        weir__io_cancel(io_of(self), &at->op);
    if (at->channel != NULL)
        weir_channel_close(at->channel, NULL);
}

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
    for (size_t i = 0; i < self->next; i++)
        cancel_attempt(self, &self->attempts[i]);
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

/* Who has cancelled in the last moment does not want the channel, and nobody else has it. */
static void tell(connector *self)
{
    weir_channel *channel = self->channel;
    self->is_told = true;
    self->channel = NULL;
    if (self->failure == 0 &&
        weir_promise_succeed(self->promise, channel, weir__client_release_channel) == 0)
        return;
    if (self->failure < 0) {
        weir_error error;
        describe(self, &error);
        weir_promise_fail_with(self->promise, &error);
    }
    if (channel != NULL && (self->failure < 0 || self->promise != NULL))
        weir_channel_close(channel, NULL);
    weir_channel_release(channel);
}

/* Tells, once nothing is under way any more; and when nobody can call back, goes. */
static void settle(connector *self)
{
    if (!self->is_concluded || self->running > 0 || self->is_asking || self->is_entering)
        return;
    if (weir__list_is_linked(&self->resident.node))
        weir__loop_remove(self->loop, &self->resident);
    tell(self);
    if (self->is_end_heard)
        end_part(self);
    else
        weir_promise_set(self->end, 0);
}

/* The promise is complete, by settle, or because somebody has cancelled it. Any thread. */
static void on_promise(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_promise);
    (void)future;
    weir_future_cancel(weir_promise_future(self->end));
    end_part(self);
}

/* The same, on the loop. */
static void on_end(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_end);
    (void)future;
    self->is_end_heard = true;
    if (self->is_told)
        end_part(self);
    else
        conclude(self, -ECANCELED);
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

/* Its failure would otherwise just close the channel. */
static int init_channel(weir_channel *channel, void *arg)
{
    connector *self = arg;
    self->init_code = self->init(channel, self->init_arg);
    return self->init_code;
}

static void on_entered(weir_notice *notice)
{
    connector *self = WEIR_CONTAINER(notice, connector, after_news);
    self->is_entering = false;
    settle(self);
}

/* That it is active is what the channel is told next; who waits for the promise shall find it so.
 */
static void wait_for_news(connector *self)
{
    self->is_entering = true;
    self->after_news.run = on_entered;
    weir__notice_queue(&self->after_news);
}

static void on_registered(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_registered);
    int code = weir_future_code(future);
    if (self->failure == 0)
        self->failure = self->init_code < 0 ? self->init_code : code;
    wait_for_news(self);
}

/* Its loop is this one; the end of that is told. */
static int enter(connector *self, weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    if (promise == NULL)
        return -ENOMEM;
    self->is_entering = true;
    self->on_registered.done = on_registered;
    weir_future_listen(weir_promise_future(promise), &self->on_registered);
    weir_channel_register(channel, self->executor, promise);
    weir_promise_release(promise);
    return 0;
}

static void end_claim(const connector *self, attempt *at)
{
    weir__claim_end(self->loop->base.sys, at->claim);
    at->claim = NULL;
}

/* The path goes with the channel from here on. */
static int hand_claim_over(const connector *self, attempt *winner)
{
    if (winner->claim == NULL)
        return 0;
    weir_socket_extras *extras = weir__socket_need_extras(weir__socket_of(self->channel));
    if (extras == NULL) {
        end_claim(self, winner);
        return -ENOMEM;
    }
    extras->claim = winner->claim;
    winner->claim = NULL;
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
        end_claim(self, winner);
        sys->close(sys, fd);
        return code;
    }
    code = hand_claim_over(self, winner);
    if (code == 0)
        code = weir__client_set_up(&self->config, self->channel, true);
    return code < 0 ? code : enter(self, self->channel);
}

static void win(connector *self, attempt *winner)
{
    int code = adopt(self, winner);
    conclude(self, code);
}

/* Trying --------------------------------------------------------------------------------------- */

static void close_attempt(connector *self, attempt *at)
{
    end_claim(self, at);
    io_of(self)->type->close_file(io_of(self), &at->file);
}

/* What was cancelled after the end has not failed by itself. */
static void end_attempt(connector *self, attempt *at, int code)
{
    if (!self->is_concluded) {
        at->code = code;
        try_next(self);
        return;
    }
    at->code = code != -ECANCELED && code != WEIR_ECLOSED ? code : 0;
    settle(self);
}

static void on_attempt(weir_io_op *op, const weir_io_result *result)
{
    attempt *at = WEIR_CONTAINER(op, attempt, op);
    connector *self = at->owner;
    int code = result->code;
    self->running--;
    if (code == 0 && !self->is_concluded) {
        win(self, at);
        return;
    }
    close_attempt(self, at);
    end_attempt(self, at, code);
}

static int set_socket_options(const connector *self, int fd, int family)
{
    weir_sys *sys = self->loop->base.sys;
    int code = 0;
    for (size_t i = 0; i < self->config.option_count && code == 0; i++) {
        const weir_option_value *option = &self->config.options[i];
        if (option->option == WEIR_OPTION_CLOSE_LINGER_S)
            continue; /* who loses is closed at once; the channel will have it */
        code = weir__sockopt_set(sys, fd, family, option->option, option->value);
        if (code == -ENOPROTOOPT)
            code = 0; /* the channel's, or none of this family's: it will say so */
    }
    return code;
}

/* A local address of another family is nothing for this one. */
static int bind_local(const connector *self, attempt *at, int fd, int family)
{
    weir_sys *sys = self->loop->base.sys;
    size_t length;
    const struct sockaddr *local = weir_address_sockaddr(&self->local, &length);
    if (weir_address_kind_of(&self->local) == WEIR_ADDRESS_NONE)
        return 0;
    if (local == NULL || local->sa_family != family)
        return -EAFNOSUPPORT;
    return family == AF_UNIX ? weir__claim_bind(sys, fd, &self->local, &at->claim)
                             : sys->bind(sys, fd, local, (socklen_t)length);
}

/* An open socket, with what it has to have before it connects; or a negative code. */
static int open_socket(const connector *self, attempt *at, int family)
{
    weir_sys *sys = self->loop->base.sys;
    int fd = sys->socket(sys, family, SOCK_STREAM, 0);
    if (fd < 0)
        return fd;
    if (family != AF_UNIX)
        weir__sockopt_set(sys, fd, family, WEIR_OPTION_NO_DELAY, 1);
    int code = set_socket_options(self, fd, family);
    if (code == 0)
        code = bind_local(self, at, fd, family);
    if (code < 0)
        sys->close(sys, fd);
    return code < 0 ? code : fd;
}

/* WEIR_IO_PENDING, or how it went. -EBUSY when the loop has room for one descriptor only. */
static int begin_attempt(connector *self, attempt *at)
{
    weir_io *io = io_of(self);
    const struct sockaddr *address = weir_address_sockaddr(at->address, NULL);
    int fd = address != NULL ? open_socket(self, at, address->sa_family) : -EINVAL;
    if (fd < 0)
        return fd;
    int code = io->type->attach(io, &at->file, fd);
    if (code < 0) {
        end_claim(self, at);
        io->sys->close(io->sys, fd);
        return code;
    }
    at->op = (weir_io_op){ .kind = WEIR_IO_CONNECT, .file = &at->file, .remote = at->address };
    at->op.on_done = on_attempt;
    code = weir__io_submit(io, &at->op);
    if (code != WEIR_IO_PENDING && code < 0)
        close_attempt(self, at);
    return code;
}

/* Channels within the process have no sockets to race with. */
static void on_local(weir_listener *listener, weir_future *future)
{
    attempt *at = WEIR_CONTAINER(listener, attempt, on_local);
    connector *self = at->owner;
    weir_channel *channel = at->channel;
    int code = weir_future_code(future);
    self->running--;
    at->channel = NULL;
    if (code == 0 && !self->is_concluded) {
        self->channel = channel;
        wait_for_news(self);
        conclude(self, 0);
        return;
    }
    weir_channel_close(channel, NULL);
    weir_channel_release(channel);
    end_attempt(self, at, self->init_code < 0 ? self->init_code : code);
}

static int begin_local(connector *self, attempt *at)
{
    weir_channel *channel = NULL;
    int code = weir__channel_open(&channel, self->loop->base.sys, WEIR_SOCKET_STREAM, at->address,
                                  NULL);
    if (code == 0)
        code = weir__client_set_up(&self->config, channel, false);
    weir_promise *promise = code == 0 ? weir_channel_promise(channel) : NULL;
    if (promise == NULL) {
        weir_channel_release(channel);
        return code < 0 ? code : -ENOMEM;
    }
    at->channel = channel;
    at->on_local.done = on_local;
    weir_future_listen(weir_promise_future(promise), &at->on_local);
    weir_channel_register(channel, self->executor, NULL);
    weir_channel_connect(channel, at->address, self->local.length > 0 ? &self->local : NULL,
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

/* A loop may be for one descriptor, descriptors may have run out, or the local port may be taken by
 * the attempt before: then one after the other. */
static bool has_to_wait(const connector *self, int code)
{
    return self->running > 0 &&
           (code == -EBUSY || code == -EMFILE || code == -ENFILE || code == -EADDRINUSE);
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
    weir_future_listen(weir_promise_future(self->end), &self->on_end);
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
    weir__promise_end(self->promise, WEIR_ESHUTDOWN);
    weir_promise_set(self->end, WEIR_ESHUTDOWN);
    end_part(self);
}

static connector *make(const weir_client_config *config, const char *text, weir_executor *executor)
{
    connector *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    bool has_memory = weir__client_copy(&self->config, config);
    self->init = config->init;
    self->init_arg = config->arg;
    if (config->init != NULL)
        self->config.init = init_channel;
    self->config.arg = self;
    self->text = weir__strdup(text);
    self->executor = executor;
    self->end = weir_promise_new(executor);
    self->lookup = weir_promise_new(executor);
    self->on_promise.done = on_promise;
    self->on_end.done = on_end;
    self->on_resolved.done = on_resolved;
    self->deadline.fire = on_deadline;
    self->stagger.fire = on_stagger;
    self->start = (weir_task){ .run = start, .dropped = start_dropped };
    if (has_memory && self->text != NULL && self->end != NULL && self->lookup != NULL)
        return self;
    weir__promise_end(self->end, -ENOMEM);
    weir__promise_end(self->lookup, -ENOMEM);
    destroy(self);
    return NULL;
}

static void give_loop_back(const weir_client_config *config, weir_executor *executor)
{
    if (config->loop == NULL)
        weir__group_give_back(config->group, executor);
}

/* Nobody has heard of it yet. */
static int give_up(connector *self, int code)
{
    weir_promise_set(self->end, code);
    weir_promise_set(self->lookup, code);
    give_loop_back(&self->config, self->executor);
    destroy(self);
    return code;
}

static int refuse(weir_error *error, int code, const char *text)
{
    return weir_error_set(error, code, "client", "cannot connect to %s: %s", text,
                          weir_error_text(code));
}

/* From here on it is the loop's; but the promise may be complete at any time. */
static int hand_over(connector *self, weir_promise *promise)
{
    self->promise = weir_promise_retain(promise);
    atomic_init(&self->parts, promise != NULL ? 2 : 1);
    int code = weir__executor_post_always(self->executor, &self->start);
    if (code == 0 && promise != NULL)
        weir_future_listen(weir_promise_future(promise), &self->on_promise);
    return code;
}

static int take_loop(const weir_client_config *config, weir_executor **executor)
{
    if (config->loop != NULL) {
        *executor = weir_loop_executor(config->loop);
        return weir_executor_group(*executor) == config->group ? 0 : -EINVAL;
    }
    int code = weir__group_take(config->group, executor);
    return code == 0 && weir_executor_loop(*executor) == NULL ? WEIR_ELOOPTYPE : code;
}

int weir__connector_start(const weir_client_config *config, const char *text, weir_promise *promise,
                          weir_error *error)
{
    weir_executor *executor;
    weir_address local = { 0 };
    int code = config->local != NULL ? weir_address_parse(&local, config->local, error) : 0;
    if (code < 0)
        return code;
    code = take_loop(config, &executor);
    if (code < 0)
        return refuse(error, code, text);
    connector *self = make(config, text, executor);
    if (self == NULL) {
        give_loop_back(config, executor);
        return weir_error_set(error, -ENOMEM, "client", "no memory to connect to %s", text);
    }
    self->local = local;
    code = weir_resolve(config->group, config->resolver, text, self->lookup, error);
    if (code < 0)
        return give_up(self, code);
    code = hand_over(self, promise);
    return code < 0 ? give_up(self, refuse(error, code, text)) : 0;
}
