/* SPDX-License-Identifier: MIT */
/* Closing in good order: shutdown, wait for the other side, close. */
#include "base/alloc.h"
#include "channel/extras.h"
#include "channel/inbox.h"
#include "exec/executor.h"

#include <errno.h>

static weir_channel_extras *finishing(weir_channel *channel)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    return extras != NULL && extras->is_finishing ? extras : NULL;
}

bool weir__channel_is_finishing(weir_channel *channel)
{
    return finishing(channel) != NULL;
}

static void close_at_last(weir_channel *channel)
{
    weir_channel_extras *extras = finishing(channel);
    weir_promise *promise = extras->finish_promise;
    extras->finish_promise = NULL;
    weir_channel_close(channel, promise);
    weir_promise_release(promise);
}

static int linger_fire(weir_timer *timer)
{
    weir_channel_extras *extras = WEIR_CONTAINER(timer, weir_channel_extras, linger);
    extras->is_lingering = false;
    close_at_last(extras->channel);
    weir_channel_release(extras->channel);
    return 0;
}

static void linger_cancelled(weir_timer *timer)
{
    weir_channel_extras *extras = WEIR_CONTAINER(timer, weir_channel_extras, linger);
    extras->is_lingering = false;
    weir_channel_release(extras->channel);
}

static void start_lingering(weir_channel *channel, weir_channel_extras *extras)
{
    int64_t linger_ms = weir__channel_option(channel, WEIR_OPTION_LINGER_MS);
    weir_loop *loop = weir__channel_loop(channel);
    if (channel->is_input_ended || linger_ms == 0) {
        close_at_last(channel);
        return;
    }
    extras->linger = (weir_timer){ .fire = linger_fire, .cancelled = linger_cancelled };
    extras->linger.name = "linger";
    extras->is_lingering = true;
    weir_channel_retain(channel);
    if (weir_timer_schedule(&extras->linger, &loop->base, WEIR_MS(linger_ms)) == 0)
        return;
    extras->is_lingering = false;
    weir_channel_release(channel);
    close_at_last(channel);
}

static void on_shutdown(weir_listener *listener, weir_future *future)
{
    weir_channel_extras *extras = WEIR_CONTAINER(listener, weir_channel_extras, on_shutdown);
    weir_channel *channel = extras->channel;
    if (weir__channel_is_closing(channel))
        weir_channel_close(channel, NULL);
    else if (weir_future_code(future) < 0)
        close_at_last(channel);
    else
        start_lingering(channel, extras);
    weir_channel_release(channel);
}

void weir__finish_input_ended(weir_channel *channel)
{
    weir_channel_extras *extras = finishing(channel);
    if (extras != NULL && extras->is_lingering)
        close_at_last(channel);
}

void weir__finish_closed(weir_channel *channel)
{
    weir_channel_extras *extras = finishing(channel);
    if (extras == NULL)
        return;
    if (extras->is_lingering)
        weir_timer_cancel(&extras->linger);
    weir_promise *promise = extras->finish_promise;
    extras->finish_promise = NULL;
    weir__promise_end(promise, 0);
    weir_promise_release(promise);
}

/* On the loop. */
static void finish_now(weir_channel *channel, weir_promise *promise)
{
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    weir_promise *shutdown = extras != NULL ? weir_channel_promise(channel) : NULL;
    bool is_active = weir_channel_is_active(channel);
    if (shutdown == NULL || !is_active || extras->is_finishing) {
        /* There is nothing to bring to an end, or no memory to do so, or it is under way. */
        if (extras != NULL && extras->is_finishing && !weir__channel_is_closing(channel))
            weir__promise_end(promise, -EALREADY);
        else
            weir_channel_close(channel, promise);
        weir__promise_end(shutdown, -ECANCELED);
        weir_promise_release(shutdown);
        return;
    }
    extras->is_finishing = true;
    extras->channel = channel;
    extras->finish_promise = weir_promise_retain(promise);
    extras->on_shutdown.done = on_shutdown;
    weir_channel_retain(channel);
    weir_future_listen(weir_promise_future(shutdown), &extras->on_shutdown);
    weir_channel_shutdown(channel, shutdown);
    weir_promise_release(shutdown);
}

typedef struct finish_call {
    weir_call call;
    weir_promise *promise;
} finish_call;

static void run_finish(weir_channel *channel, weir_call *call)
{
    finish_call *self = WEIR_CONTAINER(call, finish_call, call);
    finish_now(channel, self->promise);
    weir_promise_release(self->promise);
    weir__free(self);
}

void weir_channel_finish(weir_channel *channel, weir_promise *promise)
{
    if (channel == NULL) {
        weir__promise_end(promise, -EINVAL);
        return;
    }
    if (weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_UNREGISTERED) {
        weir__promise_end(promise, 0);
        return;
    }
    if (weir__channel_is_mine(channel)) {
        finish_now(channel, promise);
        return;
    }
    finish_call *call = weir__alloc(sizeof *call);
    if (call == NULL) {
        weir_channel_close(channel, promise);
        return;
    }
    *call = (finish_call){ .call.run = run_finish, .promise = weir_promise_retain(promise) };
    weir__inbox_push(channel, &call->call);
}
