/* SPDX-License-Identifier: MIT */
/* weir-proxy: passes on what it reads, both ways, no faster than the slower side takes it.
 *
 *     client  --->  front: [tls] [proxy] [relay]        back: [tls] [relay]  --->  upstream
 *             <---                               <--->                       <---
 *
 * `front` is the channel of the client. When it is there, `proxy` connects another one, `back`;
 * then each has a `relay`, with the other channel as its argument. If both are on one loop, and
 * nobody wants to see the bytes, they go from one to the other inside the kernel (weir_relay), and
 * the handlers only learn of the end. Else `relay` reads and writes them; then the two may be on
 * different loops, so it speaks to the other channel by functions that any thread may call. TLS is
 * there if it is wanted on that side. */
#include "common.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 10000
#define LOOK_MS 5000 /* how often to look whether a connection is still one */

static const example *wanted; /* set by main, before there are other threads */

/* Relay: from this channel to the other -------------------------------------------------------- */

/*
 * Neither channel reads by itself. After each batch of reads a relay asks the other one for
 * more_wanted: has the other channel room for more? That is answered on the other one's loop, where
 * it cannot change meanwhile: by a read at once, or by one when there is room again.
 */
static const weir_msg_type more_wanted_type = { .name = "more wanted" };
static weir_msg more_wanted = WEIR_MSG_CONSTANT(&more_wanted_type);

/* The other channel has gone before its time: so does this one, and whoever is there learns that
 * what it got is not all. */
static const weir_msg_type reset_type = { .name = "reset" };
static weir_msg reset = WEIR_MSG_CONSTANT(&reset_type);

typedef struct relay {
    bool is_asked;        /* the other side waits for room on this channel */
    bool is_output_ended; /* the other side has said everything */
    bool has_failed;
    weir_ctx_timer look;
} relay;

static weir_channel *other_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static void relay_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_channel_write(other_of(ctx), msg, NULL);
}

static void relay_on_read_complete(weir_ctx *ctx)
{
    weir_channel_flush(other_of(ctx));
    weir_pipeline_fire_event(weir_channel_pipeline(other_of(ctx)), &more_wanted);
}

static void answer_if_room(weir_ctx *ctx)
{
    relay *self = weir_ctx_state(ctx);
    if (!self->is_asked || !weir_channel_is_writable(weir_ctx_channel(ctx)))
        return;
    self->is_asked = false;
    weir_channel_read(other_of(ctx));
}

/* Not by way of TLS, which would say that this is the good end of everything. */
static void break_off(weir_ctx *ctx)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_ctx *tls = weir_pipeline_ctx(weir_channel_pipeline(channel), "tls");
    weir_channel_set_option(channel, WEIR_OPTION_CLOSE_LINGER_S, 0, NULL);
    weir_ctx_close(tls != NULL ? tls : ctx, NULL);
}

static void relay_on_event(weir_ctx *ctx, weir_msg *event)
{
    relay *self = weir_ctx_state(ctx);
    if (event == &more_wanted) {
        self->is_asked = true;
        answer_if_room(ctx);
    } else if (event == &reset) {
        break_off(ctx);
    } else {
        if (event == &weir_event_input_closed)
            weir_channel_shutdown(other_of(ctx), NULL); /* sends all, then the end */
        weir_ctx_fire_event(ctx, event);
    }
}

static void relay_on_writability(weir_ctx *ctx)
{
    answer_if_room(ctx);
    weir_ctx_fire_writability(ctx);
}

static void relay_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    relay *self = weir_ctx_state(ctx);
    self->is_output_ended = true;
    weir_ctx_shutdown(ctx, promise);
}

static void relay_on_error(weir_ctx *ctx, const weir_error *error)
{
    relay *self = weir_ctx_state(ctx);
    self->has_failed = true;
    weir_log(WEIR_LOG_INFO, "proxy", "%08llx: %s",
             (unsigned long long)weir_channel_id(weir_ctx_channel(ctx)), error->message);
}

/* In good order, the other one still sends what it has got. */
static void relay_on_inactive(weir_ctx *ctx)
{
    relay *self = weir_ctx_state(ctx);
    if (self->is_output_ended && !self->has_failed)
        weir_channel_finish(other_of(ctx), NULL);
    else
        weir_pipeline_fire_event(weir_channel_pipeline(other_of(ctx)), &reset);
    weir_ctx_fire_inactive(ctx);
}

/* Who does not read does not hear of a reset either; and if the other side never takes what it has
 * got, this one never reads. The kernel knows. (Once the output has ended, this may be the good end
 * of both ways, with something left to be read.) */
static void look(weir_ctx_timer *timer, weir_ctx *ctx)
{
    relay *self = weir_ctx_state(ctx);
    weir_tcp_info info;
    if (!self->is_output_ended && weir_channel_tcp_info(weir_ctx_channel(ctx), &info) == 0 &&
        info.state == TCP_CLOSE)
        weir_ctx_close(ctx, NULL);
    else
        weir_ctx_schedule(ctx, timer, WEIR_MS(LOOK_MS));
}

/* A client may have said everything, and closed its TLS, before there was a connection to pass it
 * on to. */
static void relay_added(weir_ctx *ctx)
{
    relay *self = weir_ctx_state(ctx);
    if (weir_ctx_is_input_closed(ctx))
        weir_channel_shutdown(other_of(ctx), NULL);
    self->look.fire = look;
    weir_ctx_schedule(ctx, &self->look, WEIR_MS(LOOK_MS));
}

static void relay_removed(weir_ctx *ctx)
{
    weir_channel_release(other_of(ctx));
}

static const weir_handler_type relay_type = {
    .name = "relay",
    .state_size = sizeof(relay),
    .on_read = relay_on_read,
    .on_read_complete = relay_on_read_complete,
    .on_event = relay_on_event,
    .on_writability = relay_on_writability,
    .on_inactive = relay_on_inactive,
    .on_error = relay_on_error,
    .shutdown = relay_shutdown,
    .added = relay_added,
    .removed = relay_removed,
};

/* From now on `from` knows `to`. */
static int add_relay(weir_channel *from, weir_channel *to)
{
    weir_channel_retain(to);
    int code = weir_pipeline_add_last(weir_channel_pipeline(from), "relay", &relay_type, to);
    if (code < 0)
        weir_channel_release(to);
    return code;
}

/* A handler does, to show them or for TLS. */
static bool needs_bytes(void)
{
    return wanted->is_copying || wanted->tls.is_wanted || wanted->connect_tls.is_wanted;
}

/* From now on what `from` reads goes to `to`: in the kernel, unless that refuses, which it does at
 * once. */
static void start_relay(weir_channel *from, weir_channel *to)
{
    weir_promise *refusal = needs_bytes() ? NULL : weir_channel_promise(from);
    if (refusal != NULL)
        weir_relay(from, to, refusal);
    if (refusal == NULL || weir_future_is_done(weir_promise_future(refusal)))
        weir_channel_read(from);
    weir_promise_release(refusal);
}

/* Proxy: a way to the upstream for each client ------------------------------------------------- */

/* The sides end one after the other, and read only when they are asked to. */
static const weir_option_value options[] = {
    { WEIR_OPTION_ALLOW_HALF_CLOSURE, true },
    { WEIR_OPTION_AUTO_READ, false },
    { WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, false }, /* one direction does not hold up the other */
};
#define OPTION_COUNT (sizeof options / sizeof *options)

/* TLS reads until its handshake is done, and may find bytes behind that. They wait until a relay
 * asks for them. */
static int add_tls(weir_channel *channel, const example_tls *tls)
{
    int code = example_tls_add(tls, channel);
    if (code < 0 || !tls->is_wanted)
        return code;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "flow",
                                  &weir_flow_control_handler, NULL);
}

/* What a handler that needs the bytes looks like: this one shows them, if anybody looks at the
 * log. */
static int add_logging(weir_channel *channel)
{
    weir_logging shown = { .level = WEIR_LOG_DEBUG, .origin = "proxy", .is_hex = true };
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "log", &weir_logging_handler,
                                  &shown);
}

static int init_back(weir_channel *back, void *front)
{
    int code = add_tls(back, &wanted->connect_tls);
    if (code == 0 && wanted->is_copying)
        code = add_logging(back);
    return code < 0 ? code : add_relay(back, front);
}

/* On the loop of `front`. */
static void on_connected(void *arg, weir_future *future)
{
    weir_channel *front = arg, *back = weir_future_value(future);
    const weir_error *error = weir_future_error(future);
    int code = weir_future_code(future);
    if (code < 0)
        weir_log(WEIR_LOG_ERROR, "proxy", "%s",
                 error != NULL ? error->message : weir_error_text(code));
    else
        code = add_relay(front, back); /* fails when the client has gone */
    if (code == 0 && !weir_channel_is_active(back))
        code = WEIR_ECLOSED; /* `front` could not be told */
    if (code == 0) {
        start_relay(front, back);
        start_relay(back, front);
    } else {
        weir_channel_close(front, NULL);
        if (back != NULL)
            weir_channel_close(back, NULL);
    }
    weir_channel_release(front);
}

/* Where `back` is to be: with `front`, if a loop of that kind takes two. */
static weir_loop *loop_for_back(const weir_channel *front)
{
    weir_loop *loop = weir_channel_loop(front);
    return strcmp(weir_loop_io_name(loop), "blocking") != 0 ? loop : NULL;
}

static int connect_back(weir_channel *front)
{
    weir_client_config config = {
        .group = wanted->workers,
        .loop = loop_for_back(front),
        .init = init_back,
        .arg = front,
        .options = options,
        .option_count = OPTION_COUNT,
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
    };
    weir_promise *promise = weir_channel_promise(front);
    if (promise == NULL)
        return -ENOMEM;
    weir_channel_retain(front); /* for on_connected, and for init_back, which comes before */
    int code = weir_future_on_done(weir_promise_future(promise), on_connected, front);
    if (code < 0) {
        weir_channel_release(front);
        weir_promise_fail(promise, code);
    } else {
        weir_error error;
        if (weir_client_start(&config, wanted->connect, promise, &error) < 0)
            weir_promise_fail_with(promise, &error);
    }
    weir_promise_release(promise);
    return code;
}

static void proxy_on_active(weir_ctx *ctx)
{
    int code = connect_back(weir_ctx_channel(ctx));
    if (code < 0) {
        weir_log(WEIR_LOG_ERROR, "proxy", "%s", weir_error_text(code));
        weir_ctx_close(ctx, NULL);
    }
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type proxy = { .name = "proxy", .on_active = proxy_on_active };

static int init_child(weir_channel *front, void *arg)
{
    (void)arg;
    int code = add_tls(front, &wanted->tls);
    if (code == 0 && wanted->is_copying)
        code = add_logging(front);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(front), "proxy", &proxy, NULL);
}

int main(int argc, char **argv)
{
    example self = {
        .name = "weir-proxy",
        .about =
            "Connects whoever connects to it with another server, and passes on all bytes and the\n"
            "end of each direction. A slow reader slows down the other side. The bytes stay in "
            "the\n"
            "kernel, except with --copy, TLS and --io blocking.\n",
        .listen = "127.0.0.1:8080",
        .connect = "127.0.0.1:8007",
        .has_copy = true,
        .has_tls = true,
    };
    example_parse(&self, argc, argv);
    wanted = &self;
    weir_server_config config = {
        .init_child = init_child,
        .child_options = options,
        .child_option_count = OPTION_COUNT,
    };
    bool is_ready = example_listen(&self, &config);
    if (is_ready)
        example_serve(&self);
    example_end(&self);
    return is_ready ? 0 : 1;
}
