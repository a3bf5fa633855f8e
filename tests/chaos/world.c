/* SPDX-License-Identifier: MIT */
/* The world of a seed. */
#include "world.h"

#include "action.h"
#include "driver.h"
#include "faults.h"
#include "ledger.h"
#include "leftovers.h"
#include "verdict.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef WEIR_HAS_TLS
static weir_tls_self_signed certificate;
#endif

static void *do_nothing(void *arg)
{
    return arg;
}

/* The first thread brings a helper of the thread sanitizer's along, which stays. */
static void start_first_thread(void)
{
    pthread_t first;
    MUST(pthread_create(&first, NULL, do_nothing, NULL) == 0, "no thread");
    pthread_join(first, NULL);
    usleep(10000);
}

void world_init(void)
{
    start_first_thread();
    record_init();
#ifdef WEIR_HAS_TLS
    weir_error error;
    MUST(weir_tls_self_signed_make(&certificate, "localhost", &error) == 0, "no certificate: %s",
         error.message);
#endif
    faults_install();
}

/* Ends and loops ----------------------------------------------------------------------------- */

bool world_number_end(world *self, end *which)
{
    which->number = atomic_fetch_add_explicit(&self->end_count, 1, memory_order_relaxed);
    return which->number < MAX_ENDS;
}

void world_publish_end(world *self, end *which)
{
    atomic_store_explicit(&self->ends[which->number], which, memory_order_release);
}

/* The end with a number, NULL when there is none yet. */
static end *end_at(const world *self, unsigned number)
{
    return atomic_load_explicit(&self->ends[number], memory_order_acquire);
}

bool world_is_blocking(const world *self, const weir_group *group)
{
    for (unsigned i = 0; i < self->loop_groups; i++) {
        if (self->loops[i].group == group)
            return self->loops[i].io == WEIR_IO_BLOCKING;
    }
    return false;
}

weir_executor *world_any_loop(world *self, dice *d)
{
    const loop_group *at = &self->loops[dice_below(d, self->loop_groups)];
    return at->io != WEIR_IO_BLOCKING ? weir_group_next(at->group) : NULL;
}

/* Opening ------------------------------------------------------------------------------------ */

static weir_io_kind choose_io(world *self)
{
    static const weir_io_kind kinds[] = { WEIR_IO_EPOLL, WEIR_IO_URING, WEIR_IO_EPOLL,
                                          WEIR_IO_URING, WEIR_IO_BLOCKING };
    if (self->settings.io != WEIR_IO_AUTO)
        return self->settings.io;
    return kinds[dice_below(&self->dice, sizeof kinds / sizeof *kinds)];
}

static void open_loops(world *self)
{
    unsigned wanted = dice_between(&self->dice, 1, MAX_LOOP_GROUPS);
    for (unsigned i = 0; i < wanted; i++) {
        loop_group *at = &self->loops[self->loop_groups];
        char name[16];
        snprintf(name, sizeof name, "loops%u", i);
        at->io = choose_io(self);
        weir_group_config config = {
            .loops = at->io == WEIR_IO_BLOCKING ? 0 : (int)dice_between(&self->dice, 1, 3),
            .name = name,
            .io = at->io,
            .watchdog_ns = dice_one_in(&self->dice, 10) ? 0 : WEIR_OFF,
            .ring_buffers = dice_one_in(&self->dice, 2) ? 8 : 0,
            .ring_buffer_bytes = dice_one_in(&self->dice, 2) ? 1024 : 0,
        };
        int code = weir_group_new(&at->group, &config, NULL);
        if (code == 0)
            self->loop_groups++;
        else
            verdict_trace("no group: %s", weir_error_name(code));
    }
}

static void open_tls(world *self)
{
    (void)self;
#ifdef WEIR_HAS_TLS
    weir_tls_config server = { .certificate_pem = certificate.certificate_pem,
                               .key_pem = certificate.key_pem };
    weir_tls_config client = { .ca_pem = certificate.certificate_pem };
    if (weir_tls_context_new_server(&self->tls_server, &server, NULL) < 0)
        self->tls_server = NULL;
    if (weir_tls_context_new_client(&self->tls_client, &client, NULL) < 0)
        self->tls_client = NULL;
#endif
}

/* What fails for a fault is left out; without any of these there is nothing to do. */
static bool open_all(world *self)
{
    weir_group_config executors = { .count = (int)dice_between(&self->dice, 1, 3),
                                    .name = "executors" };
    open_loops(self);
    open_tls(self);
    self->room = weir_channel_group_new();
    self->broadcasts = stream_new(NULL, 200000);
    if (weir_group_new_executors(&self->executors, &executors, NULL) < 0)
        self->executors = NULL;
    if (self->loop_groups == 0 || self->room == NULL || self->executors == NULL)
        return false;
    self->route_count = dice_between(&self->dice, 1, MAX_ROUTES);
    for (unsigned i = 0; i < self->route_count; i++)
        route_open(&self->routes[i], self, i, &self->dice);
    return true;
}

/* Load --------------------------------------------------------------------------------------- */

static void run_load(world *self)
{
    for (unsigned i = 0; i < self->route_count; i++) {
        for (uint32_t left = dice_between(&self->dice, 1, 4); left > 0; left--)
            route_connect(&self->routes[i], &self->dice);
    }
    driver_start_all(self);
    if (self->ends_under_load)
        usleep(dice_below(&self->dice, 60000));
    else
        driver_join_all(self);
}

/* No more actions: waits for those that have begun. */
static void calm_down(world *self)
{
    self->is_calm = true;
    while (self->acting > 0)
        usleep(100);
}

static end *first_unsettled(const world *self)
{
    for (unsigned i = 0; i < MAX_ENDS; i++) {
        end *at = end_at(self, i);
        if (at != NULL && !end_has_settled(at))
            return at;
    }
    return NULL;
}

/* Everything that was written and not ended must arrive, and whoever saw that a channel is not
 * writable must be notified. */
static void settle(world *self)
{
    faults_stop();
    calm_down(self);
    driver_return_loans(self);
    for (unsigned i = 0; i < MAX_ENDS; i++) {
        end *at = end_at(self, i);
        if (at != NULL && at->role == END_HELD)
            action_calm(at);
    }
    verdict_trace("calm");
    for (unsigned ms = 0; first_unsettled(self) != NULL; ms++) {
        if (ms > self->settings.limit_s * 500)
            verdict_fail("end %u has not settled", first_unsettled(self)->number);
        usleep(1000);
    }
}

/* Ending ------------------------------------------------------------------------------------- */

static void end_route(world *self, route *at)
{
    dice *d = &self->dice;
    if (at->server != NULL && dice_percent(d, 60)) {
        bool drains = dice_one_in(d, 2);
        int64_t timeout_ns = WEIR_MS(dice_below(d, 30));
        weir_promise *promise = ledger_promise(drains ? "drain" : "server close", NULL, NULL, NULL,
                                               NULL, 0);
        verdict_trace("route %u: %s", at->number, drains ? "drain" : "server close");
        if (drains)
            weir_server_drain(at->server, timeout_ns, promise);
        else
            weir_server_close(at->server, promise);
        weir_promise_release(promise);
    }
    if (at->pool != NULL && dice_percent(d, 60)) {
        weir_promise *promise = ledger_promise("pool close", NULL, NULL, NULL, NULL, 0);
        weir_connection_pool_close(at->pool, promise);
        weir_promise_release(promise);
    }
}

static void shut_down(world *self, weir_group *group)
{
    int quiet_ms = dice_one_in(&self->dice, 3) ? (int)dice_below(&self->dice, 5) : 0;
    int timeout_ms = quiet_ms + (int)dice_below(&self->dice, dice_one_in(&self->dice, 3) ? 3 : 500);
    verdict_trace("shut down %s: %d, %d ms", group == self->executors ? "executors" : "loops",
                  quiet_ms, timeout_ms);
    weir_group_shutdown(group, WEIR_MS(quiet_ms), WEIR_MS(timeout_ms));
}

static void end_all(world *self)
{
    dice *d = &self->dice;
    self->is_ending = true;
    for (unsigned i = 0; i < self->route_count; i++)
        end_route(self, &self->routes[i]);
    if (dice_one_in(d, 3))
        weir_channel_group_close(self->room, NULL);
    if (dice_one_in(d, 2))
        usleep(dice_below(d, 40000));
    if (dice_one_in(d, 8))
        shut_down(self, self->executors);
    for (unsigned i = 0; i < self->loop_groups; i++)
        shut_down(self, self->loops[i].group);
    if (self->ends_under_load) {
        if (dice_one_in(d, 2))
            usleep(dice_below(d, 20000));
        self->is_calm = true; /* what acts on a group's loops must be over before it is freed */
        driver_join_all(self);
    }
    calm_down(self);
    driver_return_loans(self);
}

/* Groups outlive the servers and pools that use them. */
static void close_route(route *at)
{
    if (at->server != NULL) {
        weir_server_close(at->server, NULL);
        weir_future_await(weir_server_closed(at->server));
    }
    if (at->pool != NULL) {
        weir_promise *promise = weir_promise_new(NULL);
        weir_connection_pool_close(at->pool, promise);
        weir_future_await(weir_promise_future(promise));
        weir_promise_release(promise);
    }
}

/* A channel that is on no loop has to be closed here. */
static void close_ends(world *self)
{
    for (unsigned i = 0; i < MAX_ENDS; i++) {
        end *at = end_at(self, i);
        if (at != NULL && at->role == END_HELD)
            weir_channel_close(at->channel, NULL);
    }
}

static void free_groups(world *self)
{
    for (unsigned i = 0; i < self->loop_groups; i++)
        weir_group_free(self->loops[i].group);
    if (self->executors != NULL)
        weir_group_shutdown(self->executors, 0, WEIR_SECONDS(1));
    weir_group_free(self->executors);
}

/* Callbacks use everything but the servers as long as there are loops. */
static void release_all(world *self)
{
    for (unsigned i = 0; i < self->route_count; i++)
        route_release(&self->routes[i]);
    weir_channel_group_release(self->room);
    self->room = NULL;
#ifdef WEIR_HAS_TLS
    weir_tls_context_release(self->tls_server);
    weir_tls_context_release(self->tls_client);
    self->tls_server = self->tls_client = NULL;
#endif
}

/* Checks ------------------------------------------------------------------------------------- */

static void check_all(world *self)
{
    ledger_check();
    for (unsigned i = 0; i < MAX_ENDS; i++) {
        if (end_at(self, i) != NULL)
            end_check(end_at(self, i));
    }
}

static void forget_all(world *self)
{
    ledger_clear();
    for (unsigned i = 0; i < MAX_ENDS; i++) {
        if (end_at(self, i) != NULL)
            end_free(end_at(self, i));
    }
    stream_free_all();
}

static void print_world(FILE *to, void *arg)
{
    const world *self = arg;
    fprintf(to, "chaos: %u groups:", self->loop_groups);
    for (unsigned i = 0; i < self->loop_groups; i++)
        fprintf(to, " %d", (int)self->loops[i].io);
    fprintf(to, " (1 epoll, 2 uring, 3 blocking); %u faults; %s%s%s\n", faults_count(),
            self->is_calm ? "calm " : "", self->is_ending ? "ending " : "",
            self->ends_under_load ? "ends under load" : "");
    for (unsigned i = 0; i < self->route_count; i++)
        route_print(&self->routes[i], to);
    for (unsigned i = 0; i < MAX_ENDS; i++) {
        if (end_at(self, i) != NULL)
            end_print(end_at(self, i), to);
    }
}

static void log_line(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)arg;
    verdict_trace("log %s: %s: %s", weir_log_level_name(level), origin, line);
}

/* The seed ----------------------------------------------------------------------------------- */

static void choose_faults(world *self)
{
    uint32_t one_in = 0;
    if (dice_percent(&self->dice, 45))
        one_in = dice_one_in(&self->dice, 3) ? dice_between(&self->dice, 30, 300)
                                             : dice_between(&self->dice, 300, 6000);
    if (self->settings.fault_in >= 0)
        one_in = (uint32_t)self->settings.fault_in;
    faults_begin(one_in, self->seed * 1000);
}

static void live(world *self)
{
    choose_faults(self);
    self->driver_count = dice_between(&self->dice, 1, MAX_DRIVERS);
    self->steps = dice_between(&self->dice, 30, 200);
    self->ends_under_load = dice_percent(&self->dice, 40);
    if (open_all(self)) {
        run_load(self);
        if (!self->ends_under_load)
            settle(self);
        end_all(self);
        faults_stop();
        close_ends(self);
        for (unsigned i = 0; i < self->route_count; i++)
            close_route(&self->routes[i]);
    }
    for (unsigned i = 0; i < self->route_count; i++) {
        if (dice_one_in(&self->dice, 2))
            route_release_server(&self->routes[i]);
    }
    free_groups(self);
    driver_return_loans(self); /* of acquires that were completed at the end */
    release_all(self);
    faults_stop();
}

void world_run(uint64_t seed, const settings *how, const char *repeat)
{
    world *self = calloc(1, sizeof *self);
    living before = living_count();
    MUST(self != NULL, "chaos itself has no memory");
    self->seed = seed;
    self->settings = *how;
    self->dice.state = seed * 0x9e3779b97f4a7c15u;
    pthread_mutex_init(&self->lock, NULL);
    weir_log_set(WEIR_LOG_WARN, log_line, NULL);
    verdict_begin(seed, repeat, how->limit_s, print_world, self);
    live(self);
    check_all(self);
    forget_all(self);
    weir_log_set(WEIR_LOG_OFF, NULL, NULL);
    verdict_end();
    leftovers_check(&before);
    pthread_mutex_destroy(&self->lock);
    free(self);
}
