/* SPDX-License-Identifier: MIT */
/* The moment from which nothing of weir touches a handler's argument: every future that waits for
 * channels completes after `removed`, on whichever executor that runs. */
#include "bootstrap/servers.h"

#include <weir/channel_group.h>
#include <weir/client.h>
#include <weir/connection_pool.h>

#include <unistd.h>

/* A handler whose argument is freed by the case, not by `removed`. */
typedef struct argument {
    atomic_int active, inside, removed;
    atomic_bool is_held; /* `removed` does not return */
} argument;

static void guest_on_active(weir_ctx *ctx)
{
    argument *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->active, 1);
    weir_ctx_fire_active(ctx);
}

/* Takes its time, so that a future that does not wait for it completes first. */
static void guest_removed(weir_ctx *ctx)
{
    argument *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->inside, 1);
    usleep(5000);
    WAIT_FOR(!atomic_load(&self->is_held));
    atomic_fetch_sub(&self->inside, 1);
    atomic_fetch_add(&self->removed, 1);
}

static const weir_handler_type guest_type = {
    .name = "guest",
    .on_active = guest_on_active,
    .removed = guest_removed,
};

/* A server, and clients that have the handler; or the children have it. */
typedef struct scene {
    setup server;
    weir_group *loops, *elsewhere; /* of the handler, NULL: the channel's loop */
    argument *argument;
} scene;

static int init_guest(weir_channel *channel, void *arg)
{
    scene *self = arg;
    weir_handler_config config = { .type = &guest_type, .name = "guest" };
    config.group = self->elsewhere;
    config.arg = self->argument;
    return weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

static void open_scene_with(scene *self, const backend *with, bool is_elsewhere,
                            weir_init_fn init_child)
{
    const weir_group_config executors = { .count = 1 };
    *self = (scene){ .argument = calloc(1, sizeof *self->argument) };
    prepare(&self->server, with, 1, 1);
    self->loops = loops_of(with, 1);
    if (is_elsewhere)
        assert_int_equal(weir_group_new_executors(&self->elsewhere, &executors, NULL), 0);
    if (init_child != NULL) {
        self->server.config.init_child = init_child;
        self->server.config.arg = self;
        self->server.config.init = NULL;
    }
    listen_on(&self->server, EVERYWHERE);
}

static void open_scene(scene *self, const backend *with, bool is_elsewhere, bool is_childs)
{
    open_scene_with(self, with, is_elsewhere, is_childs ? init_guest : NULL);
}

static void close_scene(scene *self)
{
    if (self->server.server != NULL)
        close_all(&self->server);
    else
        free_groups(&self->server);
    end_group(self->loops);
    if (self->elsewhere != NULL)
        end_group(self->elsewhere);
}

static weir_client_config client_of(scene *self)
{
    return (weir_client_config){ .group = self->loops, .init = init_guest, .arg = self };
}

static void address_text(const scene *self, char *text, size_t size)
{
    weir_address address = address_of_server(self->server.server);
    weir_address_text(&address, text, size);
}

static weir_channel *connect_to(scene *self)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_client_config config = client_of(self);
    weir_channel *channel = NULL;
    address_text(self, text, sizeof text);
    assert_int_equal(weir_client_connect(&channel, &config, text, NULL), 0);
    WAIT_FOR(atomic_load(&self->argument->active) > 0);
    return channel;
}

/* What waited is complete: the argument is the program's again. */
static void free_argument(scene *self, int count)
{
    assert_int_equal(atomic_load(&self->argument->inside), 0);
    assert_int_equal(atomic_load(&self->argument->removed), count);
    free(self->argument);
    self->argument = NULL;
}

/* Ways to wait --------------------------------------------------------------------------------- */

static void by_closed_future(scene *self)
{
    weir_channel *channel = connect_to(self);
    weir_channel_close(channel, NULL);
    assert_int_equal(weir_future_await(weir_channel_closed(channel)), 0);
    free_argument(self, 1);
    weir_channel_release(channel);
}

static void by_close_promise(scene *self)
{
    weir_channel *channel = connect_to(self);
    weir_promise *promise = new_promise();
    weir_channel_close(channel, promise);
    assert_int_equal(end_of(promise), 0);
    free_argument(self, 1);
    weir_channel_release(channel);
}

static void by_finish_promise(scene *self)
{
    weir_channel *channel = connect_to(self);
    weir_promise *promise = new_promise();
    weir_channel_finish(channel, promise);
    assert_int_equal(end_of(promise), 0);
    free_argument(self, 1);
    weir_channel_release(channel);
}

static void by_channel_group(scene *self)
{
    weir_channel_group *all = weir_channel_group_new();
    weir_channel *channels[3];
    weir_promise *promise = new_promise();
    for (int i = 0; i < 3; i++) {
        channels[i] = connect_to(self);
        assert_int_equal(weir_channel_group_add(all, channels[i]), 0);
    }
    weir_channel_group_close_all(all, promise);
    assert_int_equal(end_of(promise), 0);
    free_argument(self, 3);
    for (int i = 0; i < 3; i++)
        weir_channel_release(channels[i]);
    weir_channel_group_release(all);
}

static void by_pool(scene *self)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_connection_pool_config config = { .client = client_of(self) };
    weir_connection_pool *pool = NULL;
    weir_promise *borrowed = new_promise(), *closed = new_promise();
    address_text(self, text, sizeof text);
    assert_int_equal(weir_connection_pool_new(&pool, &config, text, NULL), 0);
    weir_connection_pool_acquire(pool, borrowed);
    assert_int_equal(weir_future_await(weir_promise_future(borrowed)), 0);
    weir_channel *channel = weir_future_value(weir_promise_future(borrowed));
    assert_int_equal(weir_connection_pool_give_back(pool, channel), 0);
    weir_promise_release(borrowed);
    weir_connection_pool_close(pool, closed);
    assert_int_equal(end_of(closed), 0);
    free_argument(self, 1);
    weir_connection_pool_release(pool);
}

static void by_group(scene *self)
{
    weir_channel *channel = connect_to(self);
    weir_group_shutdown(self->loops, 0, WEIR_SECONDS(10));
    assert_int_equal(weir_future_await(weir_group_terminated(self->loops)), 0);
    free_argument(self, 1);
    weir_channel_release(channel);
}

static const struct {
    const char *name;
    void (*wait)(scene *self);
} ways[] = {
    { "weir_channel_closed", by_closed_future },
    { "weir_channel_close", by_close_promise },
    { "weir_channel_finish", by_finish_promise },
    { "weir_channel_group_close_all", by_channel_group },
    { "weir_connection_pool_close", by_pool },
    { "weir_group_terminated", by_group },
};

static void clients_are_waited_for_until_removed_has_returned(void **state)
{
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
        for (size_t i = 0; i < COUNT(ways); i++) {
            scene self;
            open_scene(&self, *state, is_elsewhere, false);
            ways[i].wait(&self);
            close_scene(&self);
        }
    }
}

/* A server's children ----------------------------------------------------------------------------
 */

static void drain(scene *self, bool waits_for_promise)
{
    weir_server *server = self->server.server;
    weir_promise *promise = waits_for_promise ? new_promise() : NULL;
    weir_server_drain(server, 0, promise);
    if (waits_for_promise)
        assert_int_equal(end_of(promise), 0);
    else
        assert_int_equal(weir_future_await(weir_server_closed(server)), 0);
}

static void children_are_waited_for_until_removed_has_returned(void **state)
{
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
        for (int waits_for_promise = 0; waits_for_promise < 2; waits_for_promise++) {
            scene self;
            open_scene(&self, *state, is_elsewhere, true);
            int fds[3];
            for (int i = 0; i < 3; i++)
                fds[i] = dial(self.server.server);
            WAIT_FOR(atomic_load(&self.argument->active) == 3);
            drain(&self, waits_for_promise);
            free_argument(&self, 3);
            for (int i = 0; i < 3; i++)
                close(fds[i]);
            weir_server_release(self.server.server);
            self.server.server = NULL;
            close_scene(&self);
        }
    }
}

/* Leaves the workers for a loop of another group. */
static void mover_on_active(weir_ctx *ctx)
{
    scene *self = weir_ctx_arg(ctx);
    weir_channel_move(weir_ctx_channel(ctx), weir_group_at(self->loops, 0), NULL);
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type mover_type = { .name = "mover", .on_active = mover_on_active };

static int init_moving_guest(weir_channel *channel, void *arg)
{
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), "mover", &mover_type, arg);
    return code < 0 ? code : init_guest(channel, arg);
}

static uint64_t connections_of(weir_server *server)
{
    weir_listener_stats stats;
    weir_server_get_stats(server, &stats);
    return stats.connections;
}

/* No connection is open any more, and none was ever found on the workers' loops. */
static void drain_waits_for_handlers_of_children_on_other_loops(void **state)
{
    (void)state;
    scene self;
    open_scene_with(&self, &backends[0], true, init_moving_guest);
    int fd = dial(self.server.server);
    WAIT_FOR(atomic_load(&self.argument->active) == 1);
    atomic_store(&self.argument->is_held, true);
    close(fd);
    WAIT_FOR(atomic_load(&self.argument->inside) == 1);
    WAIT_FOR(connections_of(self.server.server) == 0);
    weir_promise *promise = new_promise();
    weir_server_drain(self.server.server, -1, promise);
    assert_int_equal(weir_future_wait(weir_promise_future(promise), WEIR_MS(50)), -ETIMEDOUT);
    atomic_store(&self.argument->is_held, false);
    assert_int_equal(end_of(promise), 0);
    free_argument(&self, 1);
    weir_server_release(self.server.server);
    self.server.server = NULL;
    close_scene(&self);
}

/* The timeout of the workers ends a drain as well, but not with success. */
static void drain_fails_when_workers_end_before_handlers_are_removed(void **state)
{
    (void)state;
    scene self;
    open_scene(&self, &backends[0], true, true);
    int fd = dial(self.server.server);
    WAIT_FOR(atomic_load(&self.argument->active) == 1);
    atomic_store(&self.argument->is_held, true);
    weir_promise *promise = new_promise();
    weir_server_drain(self.server.server, 0, promise);
    WAIT_FOR(atomic_load(&self.argument->inside) == 1);
    weir_group_shutdown(self.server.workers, 0, WEIR_MS(20));
    assert_int_equal(end_of(promise), -ETIMEDOUT);
    atomic_store(&self.argument->is_held, false);
    WAIT_FOR(atomic_load(&self.argument->removed) == 1);
    free_argument(&self, 1);
    close(fd);
    weir_server_release(self.server.server);
    self.server.server = NULL;
    close_scene(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(clients_are_waited_for_until_removed_has_returned),
        each_backend(children_are_waited_for_until_removed_has_returned),
        weir_case(drain_waits_for_handlers_of_children_on_other_loops),
        weir_case(drain_fails_when_workers_end_before_handlers_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
