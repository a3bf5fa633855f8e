/* SPDX-License-Identifier: MIT */
/* Bridges: a handler at the end of two pipelines that passes messages from one to the other. */
#include <weir/bridge.h>

#include <weir/alloc.h>
#include <weir/buf.h>
#include <weir/relay.h>
#include <weir/socket.h>

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define DEFAULT_IDLE_MS 600000
#define DEFAULT_RELAY_BYTES (1 << 20)
#define MAX_EARLY_BYTES ((size_t)64 * 1024)
#define IDLE_CHECKS 4      /* in one idle_timeout_ms */
#define PEER_CHECK_MS 5000 /* while a channel is not read */

/*
 * Each channel belongs to a side, with its handler. A side is its loop's, but for what is atomic.
 *
 *   bridge_new       the sides, with a reference for each handler
 *   added            the handler owns its side
 *   join             the side knows the other channel: messages that waited are passed on
 *   on_inactive      the other channel finishes, or is reset
 *   removed          the last of the two reports the end
 */
typedef struct bridge bridge;

typedef struct early_message {
    struct early_message *next;
    weir_msg *msg;
} early_message;

/* What the kernel does with the input of a side. */
typedef enum relay_state {
    RELAY_OFF,     /* not yet */
    RELAY_WAITING, /* until everything that was written to the other channel is sent */
    RELAY_RUNNING,
    RELAY_REJECTED,
} relay_state;

typedef struct side {
    bridge *bridge;
    weir_ctx *ctx;                   /* of its handler, once that is added */
    _Atomic(weir_channel *) channel; /* a reference; NULL: it is not connected yet */
    weir_hold hold;                  /* on reads, while the other channel is not writable */
    weir_hold early_hold;            /* on reads: of the front, while too much waits for the back
                                        channel; of the back, until the front has joined */
    weir_hold relay_hold;            /* on reads, while RELAY_WAITING */
    bool is_joined;                  /* messages go to the other channel */
    _Atomic(bool) has_eof;
    _Atomic(bool) has_left; /* the handler was removed from the open channel */
    relay_state relay;
    uint64_t bytes;                /* that were passed on */
    uint64_t relayed_bytes_before; /* bytes_in of the channel when the kernel began to relay */
    weir_ctx_timer peer_check, idle;
    uint64_t moved;  /* bytes of both channels, at the last idle check */
    int idle_checks; /* in a row that found no byte moved */
    weir_listener on_drained, on_relayed;
    bool has_failed, has_ended;
    early_message *first_early, **last_early;
    size_t early_bytes;
} side;

enum { FRONT, BACK };

static const weir_handler_type bridge_type;

struct bridge {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) open_ends; /* handlers, the call that makes the bridge, and what may yet call
                                    init_back; the last of them reports */
    side sides[2];
    weir_bridge_config config;
    weir_promise *connecting; /* with the back channel; NULL: it was there already */
    weir_listener on_connected;
    weir_init_fn init; /* of the back channel */
    void *init_arg;
    void (*init_release)(void *arg);
    _Atomic(bool) has_error;
    weir_error error; /* the first one; written by the thread that set has_error */
};

static side *side_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static side *other_side(side *self)
{
    bridge *of = self->bridge;
    return self == &of->sides[FRONT] ? &of->sides[BACK] : &of->sides[FRONT];
}

static weir_channel *channel_of(side *self)
{
    return atomic_load_explicit(&self->channel, memory_order_acquire);
}

static void set_channel(side *self, weir_channel *channel)
{
    atomic_store_explicit(&self->channel, weir_channel_retain(channel), memory_order_release);
}

/* The end of a bridge -------------------------------------------------------------------------- */

static void retain(bridge *self)
{
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
}

static void release(bridge *self)
{
    if (atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_channel_release(channel_of(&self->sides[FRONT]));
    weir_channel_release(channel_of(&self->sides[BACK]));
    weir_promise_release(self->connecting);
    weir_free(self);
}

/* The first error counts. */
static void set_error(bridge *self, int code, const char *origin, const char *message)
{
    if (!atomic_exchange_explicit(&self->has_error, true, memory_order_acq_rel))
        weir_error_set(&self->error, code, origin, "%s", message);
}

/* What the kernel has moved since the relay began is in the statistics of the channel alone. */
static uint64_t bytes_of(side *self)
{
    weir_channel_stats stats;
    if (self->relay != RELAY_RUNNING)
        return self->bytes;
    weir_channel_get_stats(channel_of(self), &stats);
    return self->bytes + stats.bytes_in - self->relayed_bytes_before;
}

static void report(bridge *self)
{
    weir_bridge_result result = {
        .error = self->error,
        .front = channel_of(&self->sides[FRONT]),
        .back = channel_of(&self->sides[BACK]),
        .bytes_to_back = bytes_of(&self->sides[FRONT]),
        .bytes_to_front = bytes_of(&self->sides[BACK]),
    };
    if (self->config.on_end != NULL)
        self->config.on_end(self->config.arg, &result);
}

static void leave(bridge *self)
{
    if (atomic_fetch_sub_explicit(&self->open_ends, 1, memory_order_acq_rel) == 1)
        report(self);
}

/* Passing on ----------------------------------------------------------------------------------- */

static void set_hold(side *self, weir_hold *hold, bool is_set)
{
    weir_channel *channel = channel_of(self);
    if (channel != NULL)
        weir_channel_set_read_hold(channel, hold, is_set);
}

/* Keeps a message until the other channel is connected. */
static void keep(weir_ctx *ctx, side *self, weir_msg *msg)
{
    early_message *entry = weir_alloc(sizeof *entry);
    if (entry == NULL) {
        weir_msg_release(msg);
        weir_ctx_fail(ctx, -ENOMEM, "no memory to buffer a message for the other channel");
        return;
    }
    self->early_bytes += weir_msg_size(msg);
    *entry = (early_message){ .msg = msg };
    *self->last_early = entry;
    self->last_early = &entry->next;
    if (self->early_bytes > MAX_EARLY_BYTES)
        set_hold(self, &self->early_hold, true);
}

static weir_msg *take_early(side *self)
{
    early_message *entry = self->first_early;
    if (entry == NULL)
        return NULL;
    weir_msg *msg = entry->msg;
    self->first_early = entry->next;
    if (self->first_early == NULL)
        self->last_early = &self->first_early;
    weir_free(entry);
    return msg;
}

static bool has_left(side *self)
{
    return atomic_load_explicit(&self->has_left, memory_order_acquire);
}

static void pass_on(side *self, weir_msg *msg)
{
    if (has_left(other_side(self))) {
        weir_msg_release(msg);
        return;
    }
    self->bytes += weir_msg_size(msg);
    weir_channel_write(channel_of(other_side(self)), msg, NULL);
}

/* A channel that is not read does not notice a reset of its peer; the kernel knows of it. */
static void check_peer(weir_ctx_timer *timer, weir_ctx *ctx)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_tcp_info info;
    if (!side_of(ctx)->hold.is_set && side_of(ctx)->relay != RELAY_RUNNING)
        return;
    if (weir_channel_tcp_info(channel, &info) == 0 && info.state == WEIR_TCP_CLOSED)
        weir_channel_reset(channel);
    else
        weir_ctx_schedule(ctx, timer, WEIR_MS(PEER_CHECK_MS));
}

static void begin_peer_checks(side *self)
{
    self->peer_check.fire = check_peer;
    weir_ctx_schedule(self->ctx, &self->peer_check, WEIR_MS(PEER_CHECK_MS));
}

/* Of two threads that call this, each after a change of its own, the later one sees the change of
 * the earlier one. */
static void synchronise(bridge *self)
{
    atomic_fetch_add_explicit(&self->refs, 0, memory_order_acq_rel);
}

/* The hold comes first: if the other channel becomes writable in between, its loop releases the
 * hold, or this sees it. */
static void hold_until_writable(side *self)
{
    weir_channel *to = channel_of(other_side(self));
    if (weir_channel_is_writable(to))
        return;
    set_hold(self, &self->hold, true);
    synchronise(self->bridge);
    if (weir_channel_is_writable(to)) {
        set_hold(self, &self->hold, false);
        return;
    }
    begin_peer_checks(self);
}

static void pass_eof(side *self)
{
    atomic_store_explicit(&self->has_eof, true, memory_order_release);
    if (self->is_joined && !has_left(other_side(self)))
        weir_channel_shutdown(channel_of(other_side(self)), NULL);
}

/* Relaying by the kernel ----------------------------------------------------------------------- */

/* Handlers that see the bytes would be bypassed. */
static bool has_other_handler(const weir_channel *channel)
{
    weir_handler_info info;
    const weir_pipeline *pipeline = weir_channel_pipeline((weir_channel *)channel);
    for (size_t i = 0; weir_pipeline_at(pipeline, i, &info) == 0; i++) {
        if (info.type != &bridge_type && (info.type->on_read != NULL || info.type->write != NULL))
            return true;
    }
    return false;
}

static bool may_relay(side *self)
{
    weir_channel *from = channel_of(self), *to = channel_of(other_side(self));
    return weir_channel_loop(from) == weir_channel_loop(to) && !has_other_handler(from) &&
           !has_other_handler(to);
}

static void end_relay(weir_listener *listener, weir_future *future)
{
    side *self = WEIR_CONTAINER(listener, side, on_relayed);
    int code = weir_future_code(future);
    uint64_t bytes = bytes_of(self);
    bool was_running = self->relay == RELAY_RUNNING;
    self->relay = RELAY_REJECTED;
    self->bytes = bytes;
    if (was_running && code < 0 && code != WEIR_ECLOSED) {
        set_error(self->bridge, code, "bridge", weir_error_text(code));
        weir_channel_reset(channel_of(other_side(self)));
    }
    release(self->bridge);
}

static void start_relay(side *self)
{
    weir_channel_stats stats;
    weir_channel *from = channel_of(self), *to = channel_of(other_side(self));
    weir_promise *promise = weir_channel_promise(from);
    self->relay = RELAY_REJECTED;
    if (promise == NULL)
        return;
    weir_channel_get_stats(from, &stats);
    self->relayed_bytes_before = stats.bytes_in;
    retain(self->bridge);
    weir_relay(from, to, promise);
    if (!weir_future_is_done(weir_promise_future(promise))) {
        self->relay = RELAY_RUNNING;
        begin_peer_checks(self);
    }
    self->on_relayed = (weir_listener){ .done = end_relay, .dropped = end_relay };
    weir_future_listen(weir_promise_future(promise), &self->on_relayed);
    weir_promise_release(promise);
}

/* Everything that was written to the other channel is sent, or will never be. On the loop of the
 * channel that is read, as the promise is its own. */
static void on_drained(weir_listener *listener, weir_future *future)
{
    side *self = WEIR_CONTAINER(listener, side, on_drained);
    self->relay = RELAY_REJECTED;
    if (weir_future_code(future) == 0 && may_relay(self))
        start_relay(self);
    set_hold(self, &self->relay_hold, false);
    release(self->bridge);
}

static void dropped_drained(weir_listener *listener, weir_future *future)
{
    (void)future;
    release(WEIR_CONTAINER(listener, side, on_drained)->bridge);
}

/* The relay begins when nothing is in flight to the other channel: an empty write says when. */
static void prepare_relay(side *self)
{
    weir_channel *to = channel_of(other_side(self));
    weir_promise *promise = may_relay(self) ? weir_channel_promise(channel_of(self)) : NULL;
    weir_buf *empty = promise != NULL ? weir_buf_new(0) : NULL;
    self->relay = RELAY_REJECTED;
    if (promise == NULL)
        return;
    if (empty == NULL) {
        weir_promise_fail(promise, -ENOMEM);
        weir_promise_release(promise);
        return;
    }
    self->relay = RELAY_WAITING;
    set_hold(self, &self->relay_hold, true);
    retain(self->bridge);
    self->on_drained = (weir_listener){ .done = on_drained, .dropped = dropped_drained };
    weir_future_listen(weir_promise_future(promise), &self->on_drained);
    weir_channel_write_and_flush(to, weir_buf_msg(empty), promise);
    weir_promise_release(promise);
}

static void relay_if_due(side *self)
{
    int64_t limit = self->bridge->config.relay_after_bytes;
    if (self->relay == RELAY_OFF && limit != WEIR_OFF && self->bytes >= (uint64_t)limit)
        prepare_relay(self);
}

/* A batch of messages was passed on. */
static void end_batch(side *self)
{
    weir_channel_flush(channel_of(other_side(self)));
    hold_until_writable(self);
    relay_if_due(self);
}

/* The handler ---------------------------------------------------------------------------------- */

/* Each side looks after both channels, for one may close before the other. */
static void check_idle(weir_ctx_timer *timer, weir_ctx *ctx)
{
    side *self = side_of(ctx);
    bridge *of = self->bridge;
    uint64_t moved = 0;
    for (int i = FRONT; i <= BACK; i++) {
        weir_channel_stats stats = { 0 };
        if (channel_of(&of->sides[i]) != NULL)
            weir_channel_get_stats(channel_of(&of->sides[i]), &stats);
        moved += stats.bytes_in + stats.bytes_out;
    }
    self->idle_checks = moved == self->moved ? self->idle_checks + 1 : 0;
    self->moved = moved;
    if (self->idle_checks < IDLE_CHECKS) {
        weir_ctx_schedule(ctx, timer, WEIR_MS(of->config.idle_timeout_ms) / IDLE_CHECKS);
        return;
    }
    set_error(of, -ETIMEDOUT, "bridge", "nothing was sent or received for too long");
    weir_channel_reset(weir_ctx_channel(ctx));
}

static void bridge_added(weir_ctx *ctx)
{
    side *self = side_of(ctx);
    bridge *of = self->bridge;
    weir_channel *channel = weir_ctx_channel(ctx);
    self->ctx = ctx;
    weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    weir_channel_set_option(channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, false, NULL);
    if (of->config.idle_timeout_ms != WEIR_OFF) {
        self->idle.fire = check_idle;
        weir_ctx_schedule(ctx, &self->idle, WEIR_MS(of->config.idle_timeout_ms) / IDLE_CHECKS);
    }
    if (weir_ctx_is_input_closed(ctx))
        pass_eof(self);
}

static void bridge_on_read(weir_ctx *ctx, weir_msg *msg)
{
    side *self = side_of(ctx);
    if (self->is_joined)
        pass_on(self, msg);
    else
        keep(ctx, self, msg);
}

static void bridge_on_read_complete(weir_ctx *ctx)
{
    side *self = side_of(ctx);
    if (self->is_joined)
        end_batch(self);
}

static void bridge_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        pass_eof(side_of(ctx));
    weir_ctx_fire_event(ctx, event);
}

static void bridge_on_writability(weir_ctx *ctx)
{
    side *self = side_of(ctx);
    synchronise(self->bridge);
    if (weir_channel_is_writable(weir_ctx_channel(ctx)))
        set_hold(other_side(self), &other_side(self)->hold, false);
    weir_ctx_fire_writability(ctx);
}

static void bridge_on_error(weir_ctx *ctx, const weir_error *error)
{
    set_error(side_of(ctx)->bridge, error->code, error->origin, error->message);
    side_of(ctx)->has_failed = true;
    weir_channel_reset(weir_ctx_channel(ctx));
}

/* The end is regular after EOF in both directions. The channel's own EOF is no event if it is the
 * last step of closing. */
static bool is_regular_end(side *self)
{
    if (self->has_failed || !weir_channel_is_input_closed(channel_of(self)))
        return false;
    atomic_store_explicit(&self->has_eof, true, memory_order_release);
    return atomic_load_explicit(&other_side(self)->has_eof, memory_order_acquire);
}

/* The channel of a side has closed, or was never active. */
static void end_side(side *self)
{
    bridge *of = self->bridge;
    weir_channel *to = has_left(other_side(self)) ? NULL : channel_of(other_side(self));
    bool is_regular = is_regular_end(self);
    if (self->has_ended)
        return;
    self->has_ended = true;
    if (!is_regular)
        set_error(of, WEIR_ECLOSED, "bridge", "a channel closed before the end of its stream");
    if (self == &of->sides[FRONT] && of->connecting != NULL)
        weir_future_cancel(weir_promise_future(of->connecting));
    if (to != NULL && is_regular)
        weir_channel_finish(to, NULL);
    else if (to != NULL)
        weir_channel_reset(to);
}

static void bridge_on_inactive(weir_ctx *ctx)
{
    end_side(side_of(ctx));
    weir_ctx_fire_inactive(ctx);
}

static void bridge_removed(weir_ctx *ctx)
{
    side *self = side_of(ctx);
    weir_msg *msg;
    while ((msg = take_early(self)) != NULL)
        weir_msg_release(msg);
    if (weir_channel_is_open(channel_of(self)))
        atomic_store_explicit(&self->has_left, true, memory_order_release);
    end_side(self);
    set_hold(self, &self->hold, false);
    set_hold(self, &self->early_hold, false);
    set_hold(self, &self->relay_hold, false);
    leave(self->bridge);
}

static size_t bridge_held(const weir_ctx *ctx)
{
    return side_of(ctx)->first_early != NULL;
}

static int side_retain(void *arg)
{
    retain(((side *)arg)->bridge);
    return 0;
}

static void side_release(void *arg)
{
    release(((side *)arg)->bridge);
}

static const weir_handler_type bridge_type = {
    .name = "bridge",
    .is_single = true,
    .arg_retain = side_retain,
    .arg_release = side_release,
    .held_reads = bridge_held,
    .added = bridge_added,
    .removed = bridge_removed,
    .on_read = bridge_on_read,
    .on_read_complete = bridge_on_read_complete,
    .on_event = bridge_on_event,
    .on_writability = bridge_on_writability,
    .on_error = bridge_on_error,
    .on_inactive = bridge_on_inactive,
};

/* Making --------------------------------------------------------------------------------------- */

static void init_side(bridge *self, int which)
{
    side *at = &self->sides[which];
    at->bridge = self;
    at->last_early = &at->first_early;
}

static int check_config(const weir_bridge_config *config)
{
    bool is_idle_valid = config->idle_timeout_ms >= 0 || config->idle_timeout_ms == WEIR_OFF;
    bool is_relay_valid = config->relay_after_bytes >= 0 || config->relay_after_bytes == WEIR_OFF;
    return is_idle_valid && is_relay_valid ? 0 : -EINVAL;
}

/* One reference, the caller's. */
static int bridge_new(bridge **made, const weir_bridge_config *config)
{
    weir_bridge_config chosen = config != NULL ? *config : (weir_bridge_config){ 0 };
    int code = check_config(&chosen);
    if (code < 0)
        return code;
    bridge *self = weir_zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    if (chosen.idle_timeout_ms == 0)
        chosen.idle_timeout_ms = DEFAULT_IDLE_MS;
    if (chosen.relay_after_bytes == 0)
        chosen.relay_after_bytes = DEFAULT_RELAY_BYTES;
    self->config = chosen;
    atomic_init(&self->refs, 1);
    atomic_init(&self->open_ends, 1);
    init_side(self, FRONT);
    init_side(self, BACK);
    *made = self;
    return 0;
}

/* It was at least: adding a handler tells about a channel that has closed. */
static bool was_registered(const weir_channel *channel)
{
    return channel != NULL &&
           (weir_channel_loop(channel) != NULL || !weir_channel_is_open(channel));
}

static int add_side(side *self, weir_channel *channel)
{
    atomic_fetch_add_explicit(&self->bridge->open_ends, 1, memory_order_relaxed);
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), "bridge", &bridge_type, self);
    if (code < 0)
        leave(self->bridge);
    return code;
}

/* The call that has made the bridge ends, or the attempt to connect; what it has added goes on. */
static void end_making(bridge *self)
{
    leave(self);
    release(self);
}

/* A call that fails reports nothing later. */
static int fail_making(bridge *self, int code)
{
    self->config.on_end = NULL;
    end_making(self);
    return code;
}

int weir_bridge(weir_channel *front, weir_channel *back, const weir_bridge_config *config)
{
    bridge *self;
    bool is_valid = was_registered(front) && was_registered(back) && front != back;
    int code = is_valid ? bridge_new(&self, config) : -EINVAL;
    if (code < 0)
        return code;
    set_channel(&self->sides[FRONT], front);
    set_channel(&self->sides[BACK], back);
    self->sides[FRONT].is_joined = self->sides[BACK].is_joined = true;
    code = add_side(&self->sides[BACK], back);
    if (code == 0)
        code = add_side(&self->sides[FRONT], front);
    if (code < 0) {
        weir_channel_close(front, NULL);
        weir_channel_close(back, NULL);
        return fail_making(self, code);
    }
    end_making(self);
    return 0;
}

/* Connecting ----------------------------------------------------------------------------------- */

/* On the loop of the back channel, before it is active. */
static int init_back(weir_channel *channel, void *arg)
{
    bridge *self = arg;
    side *back = &self->sides[BACK];
    int code = self->init != NULL ? self->init(channel, self->init_arg) : 0;
    if (code < 0)
        return code;
    set_channel(back, channel);
    back->is_joined = true;
    set_hold(back, &back->early_hold, true);
    return add_side(back, channel);
}

static void release_init(void *arg)
{
    bridge *self = arg;
    if (self->init_release != NULL)
        self->init_release(self->init_arg);
    end_making(self);
}

/* On the loop of the front channel: messages go to the back channel from here on. The back channel
 * is read after that: its EOF must not close the front channel while early messages wait. */
static void join(side *front)
{
    weir_msg *msg;
    front->is_joined = true;
    while ((msg = take_early(front)) != NULL)
        pass_on(front, msg);
    end_batch(front);
    if (atomic_load_explicit(&front->has_eof, memory_order_relaxed))
        pass_eof(front);
    set_hold(front, &front->early_hold, false);
    set_hold(other_side(front), &other_side(front)->early_hold, false);
}

static void on_connected(weir_listener *listener, weir_future *future)
{
    bridge *self = WEIR_CONTAINER(listener, bridge, on_connected);
    side *front = &self->sides[FRONT];
    weir_channel *channel = channel_of(front);
    const weir_error *error = weir_future_error(future);
    int code = weir_future_code(future);
    if (code < 0) {
        set_error(self, code, "bridge", error != NULL ? error->message : weir_error_text(code));
        if (!has_left(front))
            weir_channel_close(channel, NULL);
    } else if (front->has_ended || !weir_channel_is_open(channel)) {
        weir_channel_reset(weir_future_value(future));
    } else {
        join(front);
    }
    end_making(self);
}

/* The loop of the front channel has terminated. */
static void dropped_connected(weir_listener *listener, weir_future *future)
{
    bridge *self = WEIR_CONTAINER(listener, bridge, on_connected);
    if (weir_future_code(future) == 0)
        weir_channel_reset(weir_future_value(future));
    end_making(self);
}

static int start_connecting(bridge *self, const weir_client_config *client, const char *address,
                            weir_error *error)
{
    weir_channel *front = channel_of(&self->sides[FRONT]);
    weir_client_config config = *client;
    self->init = client->init;
    self->init_arg = client->arg;
    self->init_release = client->arg_release;
    config.init = init_back;
    config.arg = self;
    config.arg_release = release_init;
    if (config.loop == NULL && !weir_loop_is_for_one_channel(weir_channel_loop(front)))
        config.loop = weir_channel_loop(front);
    retain(self);
    atomic_fetch_add_explicit(&self->open_ends, 1, memory_order_relaxed);
    int code = weir_client_start(&config, address, self->connecting, error);
    if (code < 0) {
        end_making(self);
        weir_pipeline_remove(weir_channel_pipeline(front), "bridge", NULL);
    }
    return code;
}

int weir_bridge_connect(weir_channel *front, const weir_client_config *client, const char *address,
                        const weir_bridge_config *config, weir_error *error)
{
    bridge *self;
    int code = was_registered(front) && client != NULL ? bridge_new(&self, config) : -EINVAL;
    if (code < 0)
        return weir_error_set(error, code, "bridge", "cannot bridge a channel with %s: %s",
                              address != NULL ? address : "nothing", weir_error_text(code));
    set_channel(&self->sides[FRONT], front);
    self->connecting = weir_channel_promise(front);
    code = self->connecting != NULL ? add_side(&self->sides[FRONT], front) : -ENOMEM;
    if (code < 0)
        weir_error_set(error, code, "bridge", "cannot add the bridge to the channel: %s",
                       weir_error_text(code));
    else
        code = start_connecting(self, client, address, error);
    if (code < 0)
        return fail_making(self, code);
    self->on_connected = (weir_listener){ .done = on_connected, .dropped = dropped_connected };
    weir_future_listen(weir_promise_future(self->connecting), &self->on_connected);
    return 0;
}
