/* SPDX-License-Identifier: MIT */
/* Worlds: made from a seed, watched, and ended. */
#include "world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const program *const programs[] = { &echo_program, &chat_program, &proxy_program, &pool_program,
                                    NULL };

bool demand(world *w, bool holds, const char *format, ...)
{
    if (holds || w->failure[0] != '\0')
        return holds;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->failure, sizeof w->failure, format, arguments);
    va_end(arguments);
    weir_sim_trace(w->sim, NULL, "does not hold: %s", w->failure);
    return false;
}

bool is_sound(const world *w)
{
    weir_sim_stats stats;
    weir_sim_get_stats(w->sim, &stats);
    bool has_harm = w->is_refusal_harm && stats.refused > 0;
    return stats.resets == 0 && stats.timeouts == 0 && stats.cuts == 0 && !has_harm;
}

bool is_unhurt(const world *w)
{
    return is_sound(w) && !w->is_limited;
}

int64_t draw(world *w, int64_t least, int64_t most)
{
    return least + (int64_t)weir_sim_random(w->sim, (uint64_t)(most - least + 1));
}

int64_t draw_small(world *w, int64_t least, int64_t most)
{
    while (most > 2 * least + 1 && weir_sim_chance(w->sim, 0.7))
        most = least + (most - least) / 2;
    return draw(w, least, most);
}

int64_t draw_amount(world *w)
{
    int64_t window = w->config.link.window_bytes > 0 ? w->config.link.window_bytes : 65536;
    int64_t most = 30 * window;
    return draw_small(w, 0, most < 100000 ? most : 100000);
}

/* Probes ------------------------------------------------------------------------------------- */

typedef struct probe {
    unsigned registered, active, inactive, unregistered;
} probe;

static world *world_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static void probe_on_registered(weir_ctx *ctx)
{
    probe *self = weir_ctx_state(ctx);
    self->registered++;
    weir_ctx_fire_registered(ctx);
}

static void probe_on_active(weir_ctx *ctx)
{
    probe *self = weir_ctx_state(ctx);
    self->active++;
    demand(world_of(ctx), self->active == 1, "a channel was active %u times", self->active);
    weir_ctx_fire_active(ctx);
}

static void probe_on_read(weir_ctx *ctx, weir_msg *msg)
{
    probe *self = weir_ctx_state(ctx);
    demand(world_of(ctx), self->active == 1 && self->inactive == 0,
           "a channel read before it was active or after it was not");
    weir_ctx_fire_read(ctx, msg);
}

static void probe_on_inactive(weir_ctx *ctx)
{
    probe *self = weir_ctx_state(ctx);
    self->inactive++;
    demand(world_of(ctx), self->inactive == 1, "a channel ended %u times", self->inactive);
    demand(world_of(ctx), self->active == 1, "a channel ended that was never active");
    weir_ctx_fire_inactive(ctx);
}

static void probe_on_unregistered(weir_ctx *ctx)
{
    probe *self = weir_ctx_state(ctx);
    self->unregistered++;
    demand(world_of(ctx), self->unregistered == self->registered,
           "a channel was registered %u times, and left %u times", self->registered,
           self->unregistered);
    weir_ctx_fire_unregistered(ctx);
}

static void probe_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    world *w = world_of(ctx);
    weir_channel_stats stats;
    weir_ctx_write(ctx, msg, promise);
    weir_channel_get_stats(weir_ctx_channel(ctx), &stats);
    demand(w, (int64_t)stats.pending_bytes <= w->max_outbound_bytes,
           "%zu bytes wait to be sent, which is more than max_outbound_bytes, %lld",
           stats.pending_bytes, (long long)w->max_outbound_bytes);
}

static void probe_added(weir_ctx *ctx)
{
    world_of(ctx)->unended++;
}

static void probe_removed(weir_ctx *ctx)
{
    const probe *self = weir_ctx_state(ctx);
    world *w = world_of(ctx);
    w->unended--;
    demand(w, self->active == self->inactive, "a channel was active %u times, and inactive %u",
           self->active, self->inactive);
}

const weir_handler_type probe_type = {
    .name = "probe",
    .state_size = sizeof(probe),
    .added = probe_added,
    .removed = probe_removed,
    .on_registered = probe_on_registered,
    .on_active = probe_on_active,
    .on_read = probe_on_read,
    .on_inactive = probe_on_inactive,
    .on_unregistered = probe_on_unregistered,
    .write = probe_write,
};

int add_probe(world *w, weir_channel *channel)
{
    weir_channel_set_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, w->max_outbound_bytes, NULL);
    if (weir_sim_chance(w->sim, 0.5)) {
        int64_t high = draw_small(w, 1, 65536);
        weir_channel_set_water_marks(channel, (size_t)draw(w, 0, high), (size_t)high);
    }
    return weir_pipeline_add_first(weir_channel_pipeline(channel), "probe", &probe_type, w);
}

/* Making and ending -------------------------------------------------------------------------- */

static void make_hosts(world *w)
{
    int code = weir_sim_add_host(w->sim, &w->server_host, "server", "10.0.0.1");
    if (code == 0)
        code = weir_sim_add_host(w->sim, &w->client_hosts[0], "client", "10.0.0.2");
    if (code == 0)
        code = weir_sim_add_host(w->sim, &w->client_hosts[1], "other", "10.0.0.3");
    if (code == 0)
        code = weir_sim_add_group(w->server_host, &w->servers,
                                  &(weir_group_config){ .loops = (int)draw_small(w, 1, 3) }, NULL);
    for (int i = 0; i < 2 && code == 0; i++)
        code = weir_sim_add_group(w->client_hosts[i], &w->clients[i],
                                  &(weir_group_config){ .loops = 1 + i }, NULL);
    demand(w, code == 0, "no hosts: %s", weir_error_text(code));
}

void open_server(world *w, weir_init_fn init_child, void *arg)
{
    weir_error error = { 0 };
    int code = weir_server_listen(&w->server,
                                  &(weir_server_config){
                                      .workers = w->servers,
                                      .init_child = init_child,
                                      .arg = arg,
                                      .keeps_loop = weir_sim_chance(w->sim, 0.5),
                                      .backlog = (int)draw_small(w, 1, 100),
                                  },
                                  "10.0.0.1:80", &error);
    demand(w, code == 0, "cannot listen: %s", error.message);
    if (weir_sim_chance(w->sim, 0.1)) {
        size_t own = 2 * weir_group_count(w->servers) + 2; /* of the loops and the listener */
        weir_sim_limit_descriptors(w->server_host, own + (size_t)draw(w, 1, 3));
        w->is_limited = true;
    }
}

void run_until(world *w, weir_sim_condition_fn condition, void *arg)
{
    int code = w->failure[0] == '\0' ? weir_sim_run_until(w->sim, condition, arg, 4 * STALL_NS) : 0;
    demand(w, code == 0, "it did not come to an end: %s", weir_error_name(code));
}

void end_world(world *w)
{
    if (w->server != NULL) {
        weir_server_drain(w->server, WEIR_SECONDS(draw(w, 0, 1)), NULL);
        int code = weir_sim_wait(w->sim, weir_server_closed(w->server), STALL_NS);
        demand(w, code == 0, "the server was not closed: %s", weir_error_name(code));
        weir_server_release(w->server);
        w->server = NULL;
    }
    size_t left = weir_sim_finish(w->sim);
    demand(w, left == 0, "%zu descriptors are left", left);
    demand(w, w->unended == 0, "%zu channels have not ended", w->unended);
}

typedef struct living {
    uint64_t blocks, allocations;
} living;

static living count_living(void)
{
    weir_pool_stats pool;
    weir_allocator_stats allocator;
    weir_pool_trim(); /* the first forgets what was in use, the second empties the cache */
    weir_pool_trim();
    weir_pool_get_stats(&pool);
    weir_allocator_get_stats(&allocator);
    return (living){ .blocks = pool.used_blocks, .allocations = allocator.live };
}

bool run_seed(const program *what, uint64_t seed, weir_sim_trace_fn trace, void *trace_arg,
              char failure[256])
{
    world w = { .config = { .trace = trace, .trace_arg = trace_arg } };
    weir_buf_release(weir_buf_new(0)); /* the thread's pool itself stays */
    living before = count_living();
    weir_sim_draw_config(&w.config, seed);
    if (weir_sim_new(&w.sim, &w.config, NULL) == 0) {
        w.max_outbound_bytes = draw_small(&w, 1000000, 16777216);
        make_hosts(&w);
        if (w.failure[0] == '\0')
            what->run(&w);
        end_world(&w);
        weir_sim_free(w.sim);
    } else {
        snprintf(w.failure, sizeof w.failure, "no simulation");
    }
    living after = count_living();
    if (w.failure[0] == '\0' && after.blocks != before.blocks)
        snprintf(w.failure, sizeof w.failure, "%lld buffers are left",
                 (long long)(after.blocks - before.blocks));
    if (w.failure[0] == '\0' && after.allocations != before.allocations)
        snprintf(w.failure, sizeof w.failure, "%lld allocations are left",
                 (long long)(after.allocations - before.allocations));
    memcpy(failure, w.failure, sizeof w.failure);
    return w.failure[0] == '\0';
}
