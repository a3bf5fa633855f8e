/* SPDX-License-Identifier: MIT */
/* Bridges to an address: messages wait in the front channel's side until the back is connected. */
#include "handler/bridge.h"

#include <weir/alloc.h>

#include <errno.h>

#define MAX_EARLY_BYTES ((size_t)64 * 1024)

struct weir_early_message {
    weir_early_message *next;
    weir_msg *msg;
};

void weir__bridge_buffer_early(weir_bridge_side *self, weir_msg *msg)
{
    weir_early_message *entry = weir_alloc(sizeof *entry);
    if (entry == NULL) {
        weir_msg_release(msg);
        weir_ctx_fail(self->ctx, -ENOMEM, "no memory to buffer a message for the other channel");
        return;
    }
    self->early_bytes += weir_msg_size(msg);
    *entry = (weir_early_message){ .msg = msg };
    *self->last_early = entry;
    self->last_early = &entry->next;
    if (self->early_bytes > MAX_EARLY_BYTES)
        weir__bridge_set_hold(self, &self->early_hold, true);
}

static weir_msg *take_early(weir_bridge_side *self)
{
    weir_early_message *entry = self->first_early;
    if (entry == NULL)
        return NULL;
    weir_msg *msg = entry->msg;
    self->first_early = entry->next;
    if (self->first_early == NULL)
        self->last_early = &self->first_early;
    weir_free(entry);
    return msg;
}

void weir__bridge_drop_early(weir_bridge_side *self)
{
    weir_msg *msg;
    while ((msg = take_early(self)) != NULL)
        weir_msg_release(msg);
}

/* Runs on the loop of the back channel, before it is active. */
static int init_back(weir_channel *channel, void *arg)
{
    weir_bridge_pair *self = arg;
    weir_bridge_side *back = &self->sides[WEIR__BACK];
    int code = self->init != NULL ? self->init(channel, self->init_arg) : 0;
    if (code < 0)
        return code;
    weir__bridge_set_channel(back, channel);
    back->is_joined = true;
    weir__bridge_set_hold(back, &back->early_hold, true);
    return weir__bridge_add_side(back, channel);
}

static void release_init(void *arg)
{
    weir_bridge_pair *self = arg;
    if (self->init_release != NULL)
        self->init_release(self->init_arg);
    weir__bridge_end_making(self);
}

/* Passes the early messages to the back channel and everything after them. The back channel is read
 * from then on: its EOF must not close the front channel while early messages wait. */
static void front_join(weir_bridge_side *front)
{
    weir_bridge_side *back = weir__bridge_other_side(front);
    weir_msg *msg;
    front->is_joined = true;
    while ((msg = take_early(front)) != NULL)
        weir__bridge_pass_message(front, msg);
    weir__bridge_end_batch(front);
    if (atomic_load_explicit(&front->has_eof, memory_order_relaxed))
        weir__bridge_pass_eof(front);
    weir__bridge_set_hold(front, &front->early_hold, false);
    weir__bridge_set_hold(back, &back->early_hold, false);
}

static void on_connected(weir_listener *listener, weir_future *future)
{
    weir_bridge_pair *self = WEIR_CONTAINER(listener, weir_bridge_pair, on_connected);
    weir_bridge_side *front = &self->sides[WEIR__FRONT];
    weir_channel *channel = weir__bridge_channel(front);
    const weir_error *error = weir_future_error(future);
    int code = weir_future_code(future);
    if (code < 0) {
        weir__bridge_set_error(self, code, "bridge",
                               error != NULL ? error->message : weir_error_text(code));
        if (!weir__bridge_has_left(front))
            weir_channel_close(channel, NULL);
    } else if (front->has_ended || !weir_channel_is_open(channel)) {
        weir_channel_reset(weir_future_value(future));
    } else {
        front_join(front);
    }
    weir__bridge_end_making(self);
}

/* The loop of the front channel has terminated. */
static void dropped_connected(weir_listener *listener, weir_future *future)
{
    weir_bridge_pair *self = WEIR_CONTAINER(listener, weir_bridge_pair, on_connected);
    if (weir_future_code(future) == 0)
        weir_channel_reset(weir_future_value(future));
    weir__bridge_end_making(self);
}

static int start_connecting(weir_bridge_pair *self, const weir_client_config *client,
                            const char *address, weir_error *error)
{
    weir_channel *front = weir__bridge_channel(&self->sides[WEIR__FRONT]);
    weir_client_config config = *client;
    self->init = client->init;
    self->init_arg = client->arg;
    self->init_release = client->arg_release;
    config.init = init_back;
    config.arg = self;
    config.arg_release = release_init;
    if (config.group == NULL && weir_channel_loop(front) != NULL)
        config.group = weir_executor_group(weir_loop_executor(weir_channel_loop(front)));
    if (config.loop == NULL && !weir_loop_is_for_one_channel(weir_channel_loop(front)))
        config.loop = weir_channel_loop(front);
    weir__bridge_retain(self);
    atomic_fetch_add_explicit(&self->open_ends, 1, memory_order_relaxed);
    int code = weir_client_start(&config, address, self->connecting, error);
    if (code < 0) {
        weir__bridge_end_making(self);
        weir_pipeline_remove(weir_channel_pipeline(front), "bridge", NULL);
    }
    return code;
}

int weir_bridge_connect(weir_channel *front, const weir_client_config *client, const char *address,
                        const weir_bridge_config *config, weir_error *error)
{
    weir_bridge_pair *self;
    int code = weir__bridge_accepts(front) && client != NULL ? weir__bridge_new(&self, config)
                                                             : -EINVAL;
    if (code < 0)
        return weir_error_set(error, code, "bridge", "cannot bridge a channel with %s: %s",
                              address != NULL ? address : "nothing", weir_error_text(code));
    weir__bridge_set_channel(&self->sides[WEIR__FRONT], front);
    self->connecting = weir_channel_promise(front);
    code = self->connecting != NULL ? weir__bridge_add_side(&self->sides[WEIR__FRONT], front)
                                    : -ENOMEM;
    if (code < 0)
        weir_error_set(error, code, "bridge", "cannot add the bridge to the channel: %s",
                       weir_error_text(code));
    else
        code = start_connecting(self, client, address, error);
    if (code < 0)
        return weir__bridge_fail_making(self, code);
    self->on_connected = (weir_listener){ .done = on_connected, .dropped = dropped_connected };
    weir_future_listen(weir_promise_future(self->connecting), &self->on_connected);
    return 0;
}
