/* SPDX-License-Identifier: MIT */
/* Opening datagram channels, step by step: find the address, register, bind. */
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
    weir_address address;
    weir_channel *channel;
    weir_listener on_step;
} binder;

static void destroy(binder *self)
{
    weir_channel_release(self->channel);
    weir_promise_release(self->promise);
    weir__client_free_copy(&self->plan.config);
    weir__free(self->text);
    weir__free(self);
}

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
        self->on_step.done = done;
        weir_future_listen(weir_promise_future(promise), &self->on_step);
    }
    return promise;
}

static void on_bound(weir_listener *listener, weir_future *future)
{
    end(WEIR_CONTAINER(listener, binder, on_step), weir_future_code(future));
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
    weir_channel_bind(self->channel, &self->address, promise);
    weir_promise_release(promise);
}

static void on_resolved(weir_listener *listener, weir_future *future)
{
    binder *self = WEIR_CONTAINER(listener, binder, on_step);
    const weir_addresses *found = weir_future_value(future);
    weir_group *group = self->plan.config.group;
    int code = weir_future_code(future);
    if (code == 0 && (found == NULL || found->count == 0))
        code = WEIR_ENONAME;
    if (code == 0) {
        self->address = found->list[0];
        code = weir__channel_open(&self->channel, weir__group_sys(group), WEIR_SOCKET_DATAGRAM,
                                  &self->address, NULL);
    }
    if (code == 0)
        code = weir__client_set_up(&self->plan.config, self->channel, false);
    weir_promise *promise = code == 0 ? begin_step(self, on_registered) : NULL;
    if (promise == NULL) {
        end(self, code < 0 ? code : -ENOMEM);
        return;
    }
    weir_group_register(group, self->channel, promise);
    weir_promise_release(promise);
}

static binder *make(const weir_client_config *config, const char *address, weir_promise *promise)
{
    binder *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    bool has_memory = weir__client_plan(&self->plan, config);
    self->text = weir__strdup(address);
    if (!has_memory || self->text == NULL) {
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
    weir_promise *lookup = self != NULL ? weir_promise_new(NULL) : NULL;
    int code = lookup != NULL
                   ? weir_resolve(config->group, config->resolver, address, lookup, error)
                   : weir_error_set(error, -ENOMEM, "client",
                                    "no memory to open a datagram channel on %s", address);
    if (code < 0) {
        weir__promise_end(lookup, code);
        if (self != NULL)
            destroy(self);
    } else {
        self->on_step.done = on_resolved;
        weir_future_listen(weir_promise_future(lookup), &self->on_step);
    }
    weir_promise_release(lookup);
    return code;
}
