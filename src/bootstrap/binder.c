/* SPDX-License-Identifier: MIT */
/* Opening datagram channels, step by step: find the addresses, and for each until
 * one is this machine's: register, bind. */
#include "bootstrap/client.h"

#include "base/alloc.h"
#include "channel/channel.h"
#include "exec/group.h"
#include "transport/socket.h"

#include <errno.h>

typedef struct binder {
    weir_client_plan plan;
    char *text;
    weir_promise *promise; /* the caller's */
    weir_promise *lookup;  /* has the addresses */
    size_t next;           /* which of them is tried */
    weir_channel *channel;
    weir_listener on_step;
} binder;

static void destroy(binder *self)
{
    weir_channel_release(self->channel);
    weir_promise_release(self->promise);
    weir_promise_release(self->lookup);
    weir__client_end_plan(&self->plan);
    weir__free(self->text);
    weir__free(self);
}

/* Also when it was cancelled: then nobody has the channel. */
static void end(binder *self, int code)
{
    weir_error error;
    weir_error_set(&error, code, "client", "cannot open a datagram channel on %s: %s", self->text,
                   weir_error_text(code));
    if (code < 0)
        weir_promise_fail_with(self->promise, &error);
    else if (weir_promise_succeed(self->promise, self->channel, weir__client_release_channel) == 0)
        self->channel = NULL; /* the promise's */
    if (self->channel != NULL)
        weir_channel_close(self->channel, NULL);
    destroy(self);
}

/* A step whose end is told to `done`, on the channel's loop. */
static weir_promise *begin_step(binder *self,
                                void (*done)(weir_listener *listener, weir_future *future))
{
    weir_promise *promise = weir_channel_promise(self->channel);
    if (promise != NULL) {
        self->on_step = (weir_listener){ .done = done, .dropped = done };
        weir_future_listen(weir_promise_future(promise), &self->on_step);
    }
    return promise;
}

static const weir_addresses *found(const binder *self)
{
    return weir_future_value(weir_promise_future(self->lookup));
}

static void open_next(binder *self);

/* A name may have addresses that this machine does not. */
static void end_or_try_another(binder *self, int code)
{
    bool is_elsewhere = code == -EADDRNOTAVAIL || code == -EAFNOSUPPORT;
    if (!is_elsewhere || self->next + 1 >= found(self)->count) {
        end(self, code);
        return;
    }
    if (self->channel != NULL)
        weir_channel_close(self->channel, NULL);
    weir_channel_release(self->channel);
    self->channel = NULL;
    self->next++;
    open_next(self);
}

static void on_bound(weir_listener *listener, weir_future *future)
{
    end_or_try_another(WEIR_CONTAINER(listener, binder, on_step), weir_future_code(future));
}

static void on_registered(weir_listener *listener, weir_future *future)
{
    binder *self = WEIR_CONTAINER(listener, binder, on_step);
    int code = self->plan.init_code < 0 ? self->plan.init_code : weir_future_code(future);
    weir_promise *promise = code == 0 ? begin_step(self, on_bound) : NULL;
    if (promise == NULL) {
        end(self, code < 0 ? code : -ENOMEM);
        return;
    }
    weir_channel_bind(self->channel, &found(self)->list[self->next], promise);
    weir_promise_release(promise);
}

static int open_channel(binder *self)
{
    weir_sys *sys = weir__group_sys(self->plan.config.group);
    int code = weir__channel_open(&self->channel, sys, WEIR_SOCKET_DATAGRAM,
                                  &found(self)->list[self->next], NULL);
    return code < 0 ? code : weir__client_set_up(&self->plan.config, self->channel, false);
}

static void open_next(binder *self)
{
    int code = open_channel(self);
    weir_promise *promise = code == 0 ? begin_step(self, on_registered) : NULL;
    if (promise == NULL) {
        end_or_try_another(self, code < 0 ? code : -ENOMEM);
        return;
    }
    weir_group_register(self->plan.config.group, self->channel, promise);
    weir_promise_release(promise);
}

static void on_resolved(weir_listener *listener, weir_future *future)
{
    binder *self = WEIR_CONTAINER(listener, binder, on_step);
    int code = weir_future_code(future);
    if (code == 0 && (found(self) == NULL || found(self)->count == 0))
        code = WEIR_ENONAME;
    if (code == 0)
        open_next(self);
    else
        end(self, code);
}

static binder *make(const weir_client_config *config, const char *address, weir_promise *promise)
{
    binder *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    bool has_memory = weir__client_plan(&self->plan, config);
    self->text = weir__strdup(address);
    self->lookup = weir_promise_new(NULL);
    if (!has_memory || self->text == NULL || self->lookup == NULL) {
        weir__promise_end(self->lookup, -ENOMEM);
        self->plan.init_release = NULL;
        destroy(self);
        return NULL;
    }
    self->promise = weir_promise_retain(promise);
    return self;
}

int weir_client_start_bind(const weir_client_config *config, const char *address,
                           weir_promise *promise, weir_error *error)
{
    int bad = weir__client_check(config, address, error);
    if (bad < 0)
        return bad;
    if (promise == NULL)
        return weir_error_set(error, -EINVAL, "client",
                              "without a promise nobody would have the channel");
    binder *self = make(config, address, promise);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "client",
                              "no memory to open a datagram channel on %s", address);
    int code = weir_resolve(config->group, config->resolver, address, self->lookup, error);
    if (code < 0) {
        weir__promise_end(self->lookup, code);
        self->plan.init_release = NULL;
        destroy(self);
        return code;
    }
    self->on_step.done = on_resolved;
    weir_future_listen(weir_promise_future(self->lookup), &self->on_step);
    return 0;
}
