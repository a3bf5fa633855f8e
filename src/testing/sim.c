/* SPDX-License-Identifier: MIT */
/* Simulations: their hosts and groups, their clock, and how they run. */
#include "testing/sim.h"
#include "testing/random.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "exec/executor.h"
#include "exec/group.h"
#include "transport/socket.h"

#include <weir/timer.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_TIMEOUT_NS WEIR_SECONDS(120)
#define SHUTDOWN_TIMEOUT_NS WEIR_SECONDS(60)

/* Rounds without any time passing, after which something goes on for ever. */
#define MOST_ROUNDS 200000

/* Chance ------------------------------------------------------------------------------------- */

uint64_t weir_sim_random(weir_sim *sim, uint64_t limit)
{
    return limit > 1 ? weir__random_next(&sim->random) % limit : 0;
}

static bool is_drawn(uint64_t *state, double chance)
{
    return chance > 0 && (double)(weir__random_next(state) >> 11) * 0x1p-53 < chance;
}

bool weir_sim_chance(weir_sim *sim, double chance)
{
    return is_drawn(&sim->random, chance);
}

static double draw_chance(uint64_t *state, double most)
{
    return is_drawn(state, 0.5) ? (double)(weir__random_next(state) >> 11) * 0x1p-53 * most : 0;
}

/* From `least` to `most`, the small ones as likely as the large ones. */
static int64_t draw_size(uint64_t *state, int64_t least, int64_t most)
{
    int64_t limit = least;
    while (limit < most && is_drawn(state, 0.8))
        limit *= 2;
    return least + (int64_t)(weir__random_next(state) % (uint64_t)limit);
}

void weir_sim_draw_config(weir_sim_config *config, uint64_t seed)
{
    uint64_t state = ~seed; /* the simulation itself begins with the seed */
    config->seed = seed;
    config->link = (weir_sim_link){
        .latency_ns = draw_size(&state, 1000, WEIR_MS(50)),
        .jitter_ns = is_drawn(&state, 0.5) ? draw_size(&state, 1000, WEIR_MS(100)) : 0,
        .bytes_per_second = is_drawn(&state, 0.2) ? draw_size(&state, 10000, 100000000) : 0,
        .window_bytes = is_drawn(&state, 0.5) ? draw_size(&state, 1, 1048576) : 0,
        .reset = is_drawn(&state, 0.3) ? draw_chance(&state, 0.02) : 0,
        .refuse = is_drawn(&state, 0.3) ? draw_chance(&state, 0.2) : 0,
        .cut = is_drawn(&state, 0.3) ? draw_chance(&state, 0.01) : 0,
        .cut_ns = draw_size(&state, WEIR_MS(1), WEIR_SECONDS(60)),
        .lose = draw_chance(&state, 0.2),
        .duplicate = draw_chance(&state, 0.1),
    };
    config->short_read = draw_chance(&state, 0.9);
    config->short_write = draw_chance(&state, 0.9);
    config->reorder = draw_chance(&state, 1);
    config->interrupt = is_drawn(&state, 0.3) ? draw_chance(&state, 0.9) : 0;
}

/* The clock and events ----------------------------------------------------------------------- */

static weir_sim *sim_of_clock(weir_clock *clock)
{
    return WEIR_CONTAINER(clock, weir_sim, clock);
}

static int64_t clock_now_ns(weir_clock *clock)
{
    return sim_of_clock(clock)->now_ns;
}

static void clock_skip(weir_clock *clock, int64_t step_ns)
{
    weir_sim *sim = sim_of_clock(clock);
    if (__builtin_add_overflow(sim->now_ns, step_ns, &sim->now_ns))
        sim->now_ns = INT64_MAX;
    weir__sim_catch_up(sim);
}

static int64_t clock_next_ns(weir_clock *clock)
{
    return weir__sim_next_ns(sim_of_clock(clock));
}

int weir__sim_event_add(weir_sim *sim, weir_sim_event *event, void (*happen)(weir_sim_event *event))
{
    event->happen = happen;
    return weir__heap_push(&sim->events, &event->node, WEIR_SIM_NEVER);
}

void weir__sim_event_set(weir_sim *sim, weir_sim_event *event, int64_t at_ns)
{
    if (event->node.key != at_ns)
        weir__heap_update(&sim->events, &event->node, at_ns);
}

void weir__sim_event_remove(weir_sim *sim, weir_sim_event *event)
{
    weir__heap_remove(&sim->events, &event->node);
}

/* Each sets itself to another time, or goes. */
void weir__sim_catch_up(weir_sim *sim)
{
    weir_heap_node *first;
    while ((first = weir__heap_first(&sim->events)) != NULL && first->key <= sim->now_ns) {
        weir_sim_event *event = WEIR_CONTAINER(first, weir_sim_event, node);
        event->happen(event);
    }
}

int64_t weir__sim_next_ns(weir_sim *sim)
{
    const weir_heap_node *first = weir__heap_first(&sim->events);
    if (sim->ready_count > 0)
        return 0;
    if (first == NULL || first->key == WEIR_SIM_NEVER)
        return -1;
    return first->key > sim->now_ns ? first->key - sim->now_ns : 0;
}

/* Running ------------------------------------------------------------------------------------ */

static bool is_over(const weir_executor *executor)
{
    return weir_executor_get_state(executor) == WEIR_EXECUTOR_TERMINATED;
}

static int64_t sooner(int64_t a_ns, int64_t b_ns)
{
    if (a_ns < 0 || b_ns < 0)
        return a_ns < 0 ? b_ns : a_ns;
    return a_ns < b_ns ? a_ns : b_ns;
}

/* How long a loop or background has nothing to do; negative: for ever. */
static int64_t quiet_ns(weir_sim *sim, weir_executor *executor)
{
    if (is_over(executor))
        return -1;
    int fd = executor->type->descriptor(executor); /* of a loop: its epoll */
    weir_sim_file *file = weir__sim_file_at(sim, fd);
    if (file != NULL && weir__sim_file_events(file) & EPOLLIN)
        return 0;
    return weir__executor_next_ns(executor);
}

/* One turn, unless there is nothing to do; how long that is so. */
static int64_t step_if_busy(weir_sim *sim, weir_executor *executor)
{
    int64_t left_ns = quiet_ns(sim, executor);
    if (left_ns == 0) {
        sim->stats.steps++;
        weir__executor_step(executor, 0);
    }
    return left_ns;
}

static void shuffle(weir_sim *sim)
{
    for (size_t i = sim->loop_count; i > 1; i--) {
        size_t other = (size_t)weir_sim_random(sim, i);
        weir_executor *executor = sim->loops[i - 1];
        sim->loops[i - 1] = sim->loops[other];
        sim->loops[other] = executor;
    }
}

/* A turn for all that have something to do: 0 when any had; else how long nothing will happen,
 * negative: for ever. */
static int64_t step_all(weir_sim *sim)
{
    weir__sim_catch_up(sim);
    if (sim->loop_count > 1 && weir_sim_chance(sim, sim->config.reorder))
        shuffle(sim);
    int64_t soonest_ns = -1;
    for (size_t i = 0; i < sim->loop_count; i++)
        soonest_ns = sooner(soonest_ns, step_if_busy(sim, sim->loops[i]));
    for (size_t i = 0; i < sim->group_count; i++)
        soonest_ns = sooner(soonest_ns, step_if_busy(sim, sim->groups[i]->background));
    return sooner(soonest_ns, weir__sim_next_ns(sim));
}

static int run(weir_sim *sim, weir_sim_condition_fn condition, void *arg, int64_t until_ns)
{
    if (weir_executor_current() != NULL)
        return -EDEADLK;
    unsigned rounds = 0;
    while (!condition(arg)) {
        int64_t left_ns = step_all(sim);
        if (left_ns == 0) {
            if (++rounds == MOST_ROUNDS)
                return -ELOOP;
            continue;
        }
        rounds = 0;
        if (left_ns < 0)
            return -EDEADLK;
        if (until_ns >= 0 && sim->now_ns + left_ns > until_ns) {
            if (until_ns > sim->now_ns)
                clock_skip(&sim->clock, until_ns - sim->now_ns);
            return -ETIMEDOUT;
        }
        clock_skip(&sim->clock, left_ns);
    }
    return 0;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static bool is_done(void *future)
{
    return weir_future_is_done(future);
}

static int64_t time_in(const weir_sim *sim, int64_t step_ns)
{
    int64_t until_ns;
    if (step_ns < 0 || __builtin_add_overflow(sim->now_ns, step_ns, &until_ns))
        return -1;
    return until_ns;
}

int weir_sim_run(weir_sim *sim, int64_t until_ns)
{
    int code = run(sim, never, NULL, until_ns > 0 ? until_ns : 0);
    bool is_there = sim->now_ns >= until_ns && code != -ELOOP && weir_executor_current() == NULL;
    return is_there ? 0 : code;
}

int weir_sim_wait(weir_sim *sim, weir_future *future, int64_t timeout_ns)
{
    return run(sim, is_done, future, time_in(sim, timeout_ns));
}

int weir_sim_run_until(weir_sim *sim, weir_sim_condition_fn condition, void *arg,
                       int64_t timeout_ns)
{
    return run(sim, condition, arg, time_in(sim, timeout_ns));
}

weir_clock *weir_sim_clock(weir_sim *sim)
{
    return &sim->clock;
}

int64_t weir_sim_now_ns(const weir_sim *sim)
{
    return sim->now_ns;
}

void weir_sim_get_stats(const weir_sim *sim, weir_sim_stats *stats)
{
    *stats = sim->stats;
    stats->descriptors = sim->file_count;
}

/* Groups ------------------------------------------------------------------------------------- */

static int open_io(weir_io_source *source, weir_sys *sys, weir_io_counters *counters, weir_io **io)
{
    (void)source;
    return weir__epoll_open(sys, counters, io);
}

/* Room for one more group with so many loops. */
static int make_room(weir_sim *sim, size_t loops)
{
    weir_group **groups = weir__realloc(sim->groups, (sim->group_count + 1) * sizeof(weir_group *));
    if (groups == NULL)
        return -ENOMEM;
    sim->groups = groups;
    weir_executor **all = weir__realloc(sim->loops,
                                        (sim->loop_count + loops) * sizeof(weir_executor *));
    if (all == NULL)
        return -ENOMEM;
    sim->loops = all;
    return 0;
}

int weir_sim_add_group(weir_sim_host *host, weir_group **group, const weir_group_config *config,
                       weir_error *error)
{
    weir_sim *sim = host->sim;
    weir_group_config own = { 0 };
    if (config != NULL)
        own = *config;
    own.loops = own.loops == 0 ? 1 : own.loops;
    own.name = own.name != NULL ? own.name : host->name;
    own.is_manual = true;
    own.io = WEIR_IO_EPOLL;
    own.io_source = &host->source;
    own.clock = &sim->clock;
    own.watchdog_ns = WEIR_OFF;
    if (weir_executor_current() != NULL)
        return weir_error_set(error, -EDEADLK, "sim", "a callback cannot add a group");
    int code = own.loops > 0 ? make_room(sim, (size_t)own.loops) : 0;
    if (code < 0)
        return weir_error_set(error, code, "sim", "no memory for a group of %d loops", own.loops);
    code = weir_group_new(group, &own, error);
    if (code < 0)
        return code;
    sim->groups[sim->group_count++] = *group;
    for (size_t i = 0; i < weir_group_count(*group); i++)
        sim->loops[sim->loop_count++] = weir_group_at(*group, i);
    return 0;
}

int weir_sim_channel_new(weir_sim_host *host, weir_channel **channel, weir_socket_kind kind,
                         const weir_address *address, weir_error *error)
{
    return weir__channel_open(channel, &host->sys, kind, address, error);
}

/* Making and ending -------------------------------------------------------------------------- */

int weir_sim_new(weir_sim **out, const weir_sim_config *config, weir_error *error)
{
    weir_sim_config own = { 0 };
    if (config != NULL)
        own = *config;
    int code = out != NULL ? weir__sim_config_check(&own, error) : -EINVAL;
    if (code < 0)
        return code;
    weir_sim *sim = weir__zalloc(sizeof *sim);
    char *kept = own.trace_bytes > 0 ? weir__zalloc(own.trace_bytes) : NULL;
    if (sim == NULL || (kept == NULL && own.trace_bytes > 0)) {
        weir__free(kept);
        weir__free(sim);
        return weir_error_set(error, -ENOMEM, "sim", "no memory for a simulation");
    }
    sim->clock = (weir_clock){ clock_now_ns, clock_skip, clock_next_ns };
    sim->config = own;
    if (own.timeout_ns == 0)
        sim->config.timeout_ns = DEFAULT_TIMEOUT_NS;
    sim->random = own.seed;
    sim->kept = kept;
    weir__list_init(&sim->connections);
    weir__list_init(&sim->datagrams);
    *out = sim;
    return 0;
}

int weir_sim_add_host(weir_sim *sim, weir_sim_host **out, const char *name, const char *address)
{
    if (name == NULL || *name == '\0' || strlen(name) >= sizeof sim->hosts[0]->name)
        return -EINVAL;
    if (weir__sim_find_name(sim, name) != NULL)
        return -EEXIST;
    if (sim->host_count == WEIR_SIM_HOSTS)
        return -ENOSPC;
    weir_sim_host *host = weir__zalloc(sizeof *host);
    if (host == NULL)
        return -ENOMEM;
    weir__sim_sys_init(host);
    host->source = (weir_io_source){ .name = "sim", .open = open_io, .sys = &host->sys };
    host->sim = sim;
    host->index = sim->host_count;
    weir__list_init(&host->sockets);
    snprintf(host->name, sizeof host->name, "%s", name);
    for (unsigned i = 0; i < WEIR_SIM_HOSTS; i++) {
        host->ways[i].link = i == host->index ? (weir_sim_link){ 0 } : sim->config.link;
        weir__sim_link_complete(&host->ways[i].link, i == host->index);
    }
    int code = weir_sim_add_address(host, address);
    if (code < 0) {
        weir__free(host);
        return code;
    }
    sim->hosts[sim->host_count++] = host;
    *out = host;
    return 0;
}

static void end_groups(weir_sim *sim)
{
    for (size_t i = 0; i < sim->group_count; i++)
        weir_group_shutdown(sim->groups[i], 0, SHUTDOWN_TIMEOUT_NS);
    for (size_t i = 0; i < sim->group_count; i++)
        weir_sim_wait(sim, weir_group_terminated(sim->groups[i]), -1);
    for (size_t i = 0; i < sim->group_count; i++)
        weir_group_free(sim->groups[i]);
    sim->group_count = sim->loop_count = 0;
}

size_t weir_sim_finish(weir_sim *sim)
{
    if (weir_executor_current() != NULL) {
        weir__misuse(__func__, "called from inside a callback");
        return SIZE_MAX;
    }
    end_groups(sim);
    for (size_t i = 0; i < sim->file_room; i++) {
        if (sim->files[i] != NULL)
            WEIR_SIM_NOTE(sim->files[i], "is left open");
    }
    return sim->file_count;
}

void weir_sim_free(weir_sim *sim)
{
    if (sim == NULL || weir_sim_finish(sim) == SIZE_MAX)
        return;
    for (size_t i = 0; i < sim->file_room; i++) {
        if (sim->files[i] != NULL)
            weir__sim_close(sim, sim->files[i]->fd);
    }
    weir__sim_datagrams_end(sim);
    for (unsigned i = 0; i < sim->host_count; i++)
        weir__free(sim->hosts[i]);
    weir__heap_deinit(&sim->events);
    weir__free(sim->files);
    weir__free(sim->groups);
    weir__free(sim->loops);
    weir__sim_trace_free(sim);
    weir__free(sim);
}
