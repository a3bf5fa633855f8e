/* SPDX-License-Identifier: MIT */
/* A proxy between clients and a server that sends back what it gets: who is slow slows down the
 * other side, and the end of each direction is passed on. */
#include "world.h"

#include <errno.h>

/* Reads only when the other side has room, so that no more than one batch is ever kept. */
static const weir_option_value options[] = {
    { WEIR_OPTION_ALLOW_HALF_CLOSURE, true },
    { WEIR_OPTION_AUTO_READ, false },
    { WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, false },
};
#define OPTION_COUNT (sizeof options / sizeof *options)

/* One side: its argument is the other one's channel, to which it has a reference. Both are on one
 * loop. */
typedef struct side {
    bool has_ended; /* it sends no more */
} side;

static weir_channel *other_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static void side_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_channel_write(other_of(ctx), msg, NULL);
}

static void side_on_read_complete(weir_ctx *ctx)
{
    weir_channel *other = other_of(ctx);
    weir_channel_flush(other);
    if (weir_channel_is_writable(other))
        weir_ctx_read(ctx); /* else its on_writability asks */
}

static void side_on_writability(weir_ctx *ctx)
{
    if (weir_channel_is_writable(weir_ctx_channel(ctx)))
        weir_channel_read(other_of(ctx));
}

static void side_on_event(weir_ctx *ctx, weir_msg *event)
{
    side *self = weir_ctx_state(ctx);
    if (event == &weir_event_input_closed) {
        self->has_ended = true;
        weir_channel_shutdown(other_of(ctx), NULL);
    }
    weir_ctx_fire_event(ctx, event);
}

static void side_on_inactive(weir_ctx *ctx)
{
    weir_channel_finish(other_of(ctx), NULL);
}

static void side_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static void side_removed(weir_ctx *ctx)
{
    weir_channel_release(other_of(ctx));
}

static const weir_handler_type side_type = {
    .name = "side",
    .state_size = sizeof(side),
    .on_read = side_on_read,
    .on_read_complete = side_on_read_complete,
    .on_writability = side_on_writability,
    .on_event = side_on_event,
    .on_inactive = side_on_inactive,
    .on_error = side_on_error,
    .removed = side_removed,
};

static int add_side(weir_channel *channel, weir_channel *other)
{
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), "side", &side_type,
                                      weir_channel_retain(other));
    if (code < 0)
        weir_channel_release(other);
    return code;
}

/* The front: a client has come, and gets a way to the server. -------------------------------- */

/* Its argument while there is none yet. */
typedef struct proxy {
    world *w;
    weir_group *group;
} proxy;

static void on_connected(void *arg, weir_future *future)
{
    weir_channel *front = arg, *back = weir_future_value(future);
    int code = weir_future_code(future);
    if (code == 0)
        code = add_side(front, back);
    if (code == 0)
        code = add_side(back, front);
    if (code == 0 && (!weir_channel_is_active(back) || !weir_channel_is_active(front)))
        code = WEIR_ECLOSED;
    if (code == 0) {
        weir_channel_read(front);
        weir_channel_read(back);
    } else {
        weir_channel_close(front, NULL);
        if (back != NULL)
            weir_channel_close(back, NULL);
    }
    weir_channel_release(front);
}

static int init_back(weir_channel *channel, void *arg)
{
    return add_probe(arg, channel);
}

static void front_on_active(weir_ctx *ctx)
{
    const proxy *self = weir_ctx_arg(ctx);
    weir_channel *front = weir_ctx_channel(ctx);
    weir_promise *promise = weir_channel_promise(front);
    weir_client_config config = { .group = self->group,
                                  .loop = weir_channel_loop(front),
                                  .init = init_back,
                                  .arg = self->w,
                                  .options = options,
                                  .option_count = OPTION_COUNT };
    weir_future_on_done(weir_promise_future(promise), on_connected, weir_channel_retain(front));
    int code = weir_client_start(&config, "server:80", promise, NULL);
    if (code < 0)
        weir_promise_fail(promise, code);
    weir_promise_release(promise);
}

static const weir_handler_type front_type = { .name = "front", .on_active = front_on_active };

static int init_front(weir_channel *channel, void *arg)
{
    proxy *self = arg;
    int code = add_probe(self->w, channel);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(channel), "front", &front_type, self);
}

static void run(world *w)
{
    crowd all = { .count = (unsigned)draw_small(w, 1, 4) };
    proxy here = { .w = w };
    weir_sim_host *host;
    weir_server *front = NULL;
    w->is_refusal_harm = true;
    open_server(w, init_echo, w);
    weir_sim_add_host(w->sim, &host, "proxy", "10.0.0.9");
    weir_sim_add_group(host, &here.group, &(weir_group_config){ .loops = (int)draw(w, 1, 2) },
                       NULL);
    int code = weir_server_listen(&front,
                                  &(weir_server_config){ .workers = here.group,
                                                         .init_child = init_front,
                                                         .arg = &here,
                                                         .child_options = options,
                                                         .child_option_count = OPTION_COUNT },
                                  ":8080", NULL);
    if (!demand(w, code == 0, "the proxy cannot listen: %s", weir_error_name(code)))
        return;
    crowd_talk(&all, w, "10.0.0.9:8080");
    weir_server_close(front, NULL);
    weir_server_release(front);
    end_world(w);
}

const program proxy_program = { .name = "proxy", .run = run };
