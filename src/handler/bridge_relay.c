/* SPDX-License-Identifier: MIT */
/* The relay of a bridge: the kernel moves the bytes of a side that has passed on many. */
#include "handler/bridge.h"

#include <weir/buf.h>
#include <weir/relay.h>

#include <errno.h>

/* Only the statistics of the channel count the bytes that the kernel relays. */
uint64_t weir__bridge_bytes(weir_bridge_side *self)
{
    weir_channel_stats stats;
    if (self->relay != WEIR__RELAY_RUNNING)
        return self->bytes;
    weir_channel_get_stats(weir__bridge_channel(self), &stats);
    return self->bytes + stats.bytes_in - self->relayed_bytes_before;
}

/* The relay would bypass a handler that reads or writes messages. */
static bool has_other_handler(const weir_channel *channel)
{
    weir_handler_info info;
    const weir_pipeline *pipeline = weir_channel_pipeline((weir_channel *)channel);
    for (size_t i = 0; weir_pipeline_at(pipeline, i, &info) == 0; i++) {
        if (info.type != &weir__bridge_type &&
            (info.type->on_read != NULL || info.type->write != NULL))
            return true;
    }
    return false;
}

static bool may_relay(weir_bridge_side *self)
{
    weir_channel *from = weir__bridge_channel(self), *to = weir__bridge_other_channel(self);
    return weir_channel_loop(from) == weir_channel_loop(to) && !has_other_handler(from) &&
           !has_other_handler(to);
}

static void end_relay(weir_listener *listener, weir_future *future)
{
    weir_bridge_side *self = WEIR_CONTAINER(listener, weir_bridge_side, on_relayed);
    int code = weir_future_code(future);
    uint64_t bytes = weir__bridge_bytes(self);
    bool was_running = self->relay == WEIR__RELAY_RUNNING;
    self->relay = WEIR__RELAY_REJECTED;
    self->bytes = bytes;
    if (was_running && code < 0 && code != WEIR_ECLOSED) {
        weir__bridge_set_error(self->pair, code, "bridge", weir_error_text(code));
        weir_channel_reset(weir__bridge_other_channel(self));
    }
    weir__bridge_release(self->pair);
}

static void start_relay(weir_bridge_side *self)
{
    weir_channel_stats stats;
    weir_channel *from = weir__bridge_channel(self), *to = weir__bridge_other_channel(self);
    weir_promise *promise = weir_channel_promise(from);
    self->relay = WEIR__RELAY_REJECTED;
    if (promise == NULL)
        return;
    weir_channel_get_stats(from, &stats);
    self->relayed_bytes_before = stats.bytes_in;
    weir__bridge_retain(self->pair);
    weir_relay(from, to, promise);
    if (!weir_future_is_done(weir_promise_future(promise))) {
        self->relay = WEIR__RELAY_RUNNING;
        weir__bridge_start_peer_checks(self);
    }
    self->on_relayed = (weir_listener){ .done = end_relay, .dropped = end_relay };
    weir_future_listen(weir_promise_future(promise), &self->on_relayed);
    weir_promise_release(promise);
}

/* The empty write has completed. Runs on the loop of the channel that is read: it owns the promise.
 */
static void on_drained(weir_listener *listener, weir_future *future)
{
    weir_bridge_side *self = WEIR_CONTAINER(listener, weir_bridge_side, on_drained);
    self->relay = WEIR__RELAY_REJECTED;
    if (weir_future_code(future) == 0 && may_relay(self))
        start_relay(self);
    weir__bridge_set_hold(self, &self->relay_hold, false);
    weir__bridge_release(self->pair);
}

static void dropped_drained(weir_listener *listener, weir_future *future)
{
    (void)future;
    weir__bridge_release(WEIR_CONTAINER(listener, weir_bridge_side, on_drained)->pair);
}

/* Starts the relay once all earlier writes to the other channel are sent: an empty write completes
 * after them. */
static void prepare_relay(weir_bridge_side *self)
{
    weir_channel *to = weir__bridge_other_channel(self);
    weir_promise *promise = may_relay(self) ? weir_channel_promise(weir__bridge_channel(self))
                                            : NULL;
    weir_buf *empty = promise != NULL ? weir_buf_new(0) : NULL;
    self->relay = WEIR__RELAY_REJECTED;
    if (promise == NULL)
        return;
    if (empty == NULL) {
        weir_promise_fail(promise, -ENOMEM);
        weir_promise_release(promise);
        return;
    }
    self->relay = WEIR__RELAY_WAITING;
    weir__bridge_set_hold(self, &self->relay_hold, true);
    weir__bridge_retain(self->pair);
    self->on_drained = (weir_listener){ .done = on_drained, .dropped = dropped_drained };
    weir_future_listen(weir_promise_future(promise), &self->on_drained);
    weir_channel_write_and_flush(to, weir_buf_msg(empty), promise);
    weir_promise_release(promise);
}

void weir__bridge_relay_if_due(weir_bridge_side *self)
{
    int64_t limit = self->pair->config.relay_after_bytes;
    if (self->relay == WEIR__RELAY_OFF && limit != WEIR_OFF && self->bytes >= (uint64_t)limit)
        prepare_relay(self);
}
