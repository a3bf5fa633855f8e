/* SPDX-License-Identifier: MIT */
/* How servers end: closing, and seeing their connections off. */
#include "bootstrap/servers.h"

#include <weir/client.h>

#define MANY 20

static weir_promise *begin_drain(weir_server *server, int64_t timeout_ns)
{
    weir_promise *promise = new_promise();
    weir_server_drain(server, timeout_ns, promise);
    return promise;
}

/* Connections that have been served once. */
static void dial_many(setup *self, int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        fds[i] = dial(self->server);
        talk(fds[i]);
    }
}

static void close_many(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* Closing -------------------------------------------------------------------------------------- */

static void connections_outlive_the_listeners(void **state)
{
    setup self;
    int fds[MANY];
    open_server(&self, *state, 2, 2);
    dial_many(&self, fds, MANY);
    weir_address address = address_of_server(self.server);
    assert_int_equal(server_stats(self.server).connections, MANY);
    assert_int_equal(close_server(self.server), 0);
    assert_int_equal(try_dial(&address), -ECONNREFUSED);
    assert_null(weir_server_listener(self.server, 0));
    for (int i = 0; i < MANY; i++)
        talk(fds[i]);
    /* They still count. */
    assert_int_equal(server_stats(self.server).connections, MANY);
    assert_int_equal(server_stats(self.server).accepted, MANY);
    close_many(fds, MANY);
    WAIT_FOR(atomic_load(&self.seen.inactives) == MANY);
    WAIT_FOR(server_stats(self.server).connections == 0);
    assert_int_equal(server_stats(self.server).accepted, MANY);
    close_all(&self); /* once more is fine */
}

static void every_close_has_its_promise(void **state)
{
    setup self;
    weir_promise *promises[5];
    open_server(&self, *state, 1, 1);
    for (size_t i = 0; i < COUNT(promises); i++) {
        promises[i] = new_promise();
        weir_server_close(self.server, promises[i]);
    }
    for (size_t i = 0; i < COUNT(promises); i++)
        assert_int_equal(end_of(promises[i]), 0);
    weir_promise *none = new_promise();
    weir_server_close(NULL, none);
    assert_int_equal(end_of(none), -EINVAL);
    none = new_promise();
    weir_server_drain(NULL, 0, none);
    assert_int_equal(end_of(none), -EINVAL);
    weir_server_close(NULL, NULL);
    weir_server_release(NULL);
    close_all(&self);
}

static void it_listens_without_a_reference(void **state)
{
    setup self;
    open_server(&self, *state, 1, 1);
    weir_channel *listener = weir_server_listener(self.server, 0);
    weir_address address = address_of_server(self.server);
    weir_server_release(self.server);
    self.server = NULL;
    int fd = try_dial(&address);
    talk(fd);
    weir_promise *promise = new_promise();
    weir_channel_close(listener, promise);
    assert_int_equal(end_of(promise), 0);
    weir_channel_release(listener);
    talk(fd);
    close(fd);
    close_all(&self);
}

static void listeners_that_are_closed_end_the_server(void **state)
{
    setup self;
    prepare(&self, *state, 2, 1);
    self.config.acceptors = 2;
    listen_on(&self, EVERYWHERE);
    for (size_t i = 0; i < 2; i++) {
        weir_channel *listener = weir_server_listener(self.server, i);
        assert_false(weir_future_is_done(weir_server_closed(self.server)));
        weir_channel_close(listener, NULL);
        weir_channel_release(listener);
    }
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    close_all(&self);
}

static void the_end_of_the_boss_ends_the_server(void **state)
{
    setup self;
    open_server(&self, *state, 1, 1);
    int fd = dial(self.server);
    talk(fd);
    assert_int_equal(weir_group_shutdown(self.boss, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    talk(fd);
    close(fd);
    close_all(&self);
}

/* Draining ------------------------------------------------------------------------------------- */

static void a_drain_of_nothing_ends_at_once(void **state)
{
    static const int64_t timeouts[] = { 0, WEIR_MS(1), WEIR_SECONDS(3600), -1 };
    for (size_t i = 0; i < COUNT(timeouts); i++) {
        setup self;
        open_server(&self, *state, 1, 2);
        assert_int_equal(end_of(begin_drain(self.server, timeouts[i])), 0);
        assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
        /* Afterwards, too; and no timer is left behind. */
        assert_int_equal(end_of(begin_drain(self.server, timeouts[i])), 0);
        weir_group_pending pending;
        do {
            weir_group_get_pending(self.workers, &pending);
        } while (pending.timers > 0);
        close_all(&self);
    }
}

static void drain_notifies_each_connection_once(void **state)
{
    setup self;
    int fds[MANY];
    open_server(&self, *state, 1, 3);
    dial_many(&self, fds, MANY);
    weir_promise *promise = begin_drain(self.server, WEIR_OFF);
    WAIT_FOR(atomic_load(&self.seen.drains) == MANY);
    weir_promise *second = begin_drain(self.server, WEIR_SECONDS(3600));
    for (int i = 0; i < MANY; i++) {
        talk(fds[i]); /* a handler that does not know the event goes on */
        close(fds[i]);
    }
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(end_of(second), 0);
    assert_int_equal(atomic_load(&self.seen.drains), MANY);
    close_all(&self);
}

static void idle_connections_that_leave_end_the_drain(void **state)
{
    setup self;
    int fds[MANY];
    open_server(&self, *state, 1, 3);
    atomic_store(&self.seen.leaves, true);
    dial_many(&self, fds, MANY);
    assert_int_equal(end_of(begin_drain(self.server, WEIR_OFF)), 0);
    assert_int_equal(atomic_load(&self.seen.drains), MANY);
    for (int i = 0; i < MANY; i++)
        hear_end(fds[i]);
    close_many(fds, MANY);
    close_all(&self);
}

static void drain_without_time_and_close_do_not_notify(void **state)
{
    setup self;
    open_server(&self, *state, 1, 1);
    int fd = dial(self.server);
    talk(fd);
    assert_int_equal(close_server(self.server), 0);
    talk(fd);
    assert_int_equal(end_of(begin_drain(self.server, 0)), 0);
    assert_int_equal(atomic_load(&self.seen.drains), 0);
    hear_end(fd);
    close(fd);
    close_all(&self);
}

static void swallow_close(weir_ctx *ctx, weir_promise *promise)
{
    (void)ctx;
    (void)promise;
}

static const weir_handler_type swallower_type = { .name = "swallower", .close = swallow_close };

static int init_swallower(weir_channel *child, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(child), "swallower", &swallower_type, arg);
}

/* Whatever a handler does, a drain ends. */
static void drain_resets_connections_that_do_not_close(void **state)
{
    setup self;
    char byte;
    prepare(&self, *state, 1, 1);
    self.config.init_child = init_swallower;
    listen_on(&self, EVERYWHERE);
    int fd = dial(self.server);
    WAIT_FOR(server_stats(self.server).connections == 1);
    assert_int_equal(end_of(begin_drain(self.server, 0)), 0);
    assert_int_equal(recv(fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close(fd);
    close_all(&self);
}

static void a_drain_with_no_time_closes_all(void **state)
{
    setup self;
    int fds[MANY];
    open_server(&self, *state, 1, 3);
    dial_many(&self, fds, MANY);
    assert_int_equal(end_of(begin_drain(self.server, 0)), 0);
    assert_int_equal(server_stats(self.server).connections, 0);
    for (int i = 0; i < MANY; i++)
        hear_end(fds[i]);
    close_many(fds, MANY);
    close_all(&self);
}

static void a_drain_waits_for_connections(void **state)
{
    for (int64_t timeout = -1; timeout < WEIR_SECONDS(1000); timeout += WEIR_SECONDS(600)) {
        setup self;
        int fds[MANY];
        open_server(&self, *state, 1, 3);
        dial_many(&self, fds, MANY);
        weir_address address = address_of_server(self.server);
        weir_promise *promise = begin_drain(self.server, timeout), *closed = new_promise();
        weir_server_close(self.server, closed);
        int fd;
        while ((fd = try_dial(&address)) >= 0) /* its listeners are closed soon */
            close(fd);
        for (int i = 0; i < MANY; i++) {
            talk(fds[i]);
            assert_true(is_pending(promise));
            assert_false(weir_future_is_done(weir_server_closed(self.server)));
            close(fds[i]);
        }
        assert_int_equal(end_of(promise), 0);
        assert_int_equal(end_of(closed), 0);
        assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
        assert_int_equal(server_stats(self.server).connections, 0);
        close_all(&self);
    }
}

static void a_close_does_not_wait_for_a_drain(void **state)
{
    setup self;
    open_server(&self, *state, 1, 1);
    int fd = dial(self.server);
    talk(fd);
    weir_promise *drained = begin_drain(self.server, -1);
    for (int i = 0; i < 2; i++) { /* while the listener closes, and when it has */
        assert_int_equal(close_server(self.server), 0);
        assert_null(weir_server_listener(self.server, 0));
        talk(fd); /* connections go on */
        assert_true(is_pending(drained));
        assert_false(weir_future_is_done(weir_server_closed(self.server)));
    }
    assert_int_equal(end_of(begin_drain(self.server, 0)), 0); /* which ends the other */
    hear_end(fd);
    assert_int_equal(end_of(drained), 0);
    close(fd);
    close_all(&self);
}

static void a_drain_closes_when_the_time_is_up(void **state)
{
    setup self;
    int fds[MANY];
    open_server(&self, *state, 1, 3);
    dial_many(&self, fds, MANY);
    weir_promise *promise = begin_drain(self.server, WEIR_MS(20));
    for (int i = 0; i < MANY; i++)
        hear_end(fds[i]);
    assert_int_equal(end_of(promise), 0);
    close_many(fds, MANY);
    close_all(&self);
}

static void a_drain_can_have_all_the_time_there_is(void **state)
{
    setup self;
    int fd;
    open_server(&self, *state, 1, 1);
    dial_many(&self, &fd, 1);
    weir_promise *promise = begin_drain(self.server, INT64_MAX);
    weir_future_wait(weir_promise_future(promise), 50000000);
    assert_true(is_pending(promise));
    close(fd);
    assert_int_equal(end_of(promise), 0);
    close_all(&self);
}

static void a_shorter_drain_ends_a_longer_one(void **state)
{
    setup self;
    int fds[3];
    open_server(&self, *state, 1, 2);
    dial_many(&self, fds, 3);
    weir_promise *forever = begin_drain(self.server, -1),
                 *hour = begin_drain(self.server, WEIR_SECONDS(3600));
    talk(fds[0]);
    assert_true(is_pending(forever) && is_pending(hour));
    weir_promise *now = begin_drain(self.server, WEIR_MS(10));
    assert_int_equal(end_of(now), 0);
    assert_int_equal(end_of(hour), 0);
    assert_int_equal(end_of(forever), 0);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    close_many(fds, 3);
    close_all(&self);
}

static void a_drain_after_the_close_finds_them(void **state)
{
    setup self;
    int fds[3];
    open_server(&self, *state, 1, 2);
    dial_many(&self, fds, 3);
    assert_int_equal(close_server(self.server), 0);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    weir_promise *promise = begin_drain(self.server, -1);
    talk(fds[2]);
    assert_true(is_pending(promise));
    assert_int_equal(end_of(begin_drain(self.server, 0)), 0);
    assert_int_equal(end_of(promise), 0);
    for (int i = 0; i < 3; i++)
        hear_end(fds[i]);
    close_many(fds, 3);
    close_all(&self);
}

static void a_drain_needs_no_reference(void **state)
{
    setup self;
    int fds[3];
    open_server(&self, *state, 1, 2);
    dial_many(&self, fds, 3);
    weir_promise *promise = begin_drain(self.server, -1);
    weir_server_release(self.server);
    self.server = NULL;
    close_many(fds, 3);
    assert_int_equal(end_of(promise), 0);
    close_all(&self);
}

static void a_drain_minds_its_own_connections(void **state)
{
    setup self;
    weir_server *other = NULL;
    open_server(&self, *state, 1, 2);
    assert_int_equal(weir_server_listen(&other, &self.config, EVERYWHERE, NULL), 0);
    int mine = dial(self.server), others = dial(other);
    talk(mine);
    talk(others);
    assert_int_equal(end_of(begin_drain(self.server, 0)), 0);
    hear_end(mine);
    talk(others);
    assert_int_equal(end_of(begin_drain(other, 0)), 0);
    hear_end(others);
    close(mine);
    close(others);
    weir_server_release(other);
    close_all(&self);
}

/* The server drains inside a callback of one of its connections. */
typedef struct drainer {
    setup self;
    _Atomic(weir_server *) server; /* which the loop's thread uses */
    weir_promise *promise;
} drainer;

static void drains_on_read(weir_ctx *ctx, weir_msg *msg)
{
    drainer *self = weir_ctx_arg(ctx);
    weir_msg_release(msg);
    weir_server_drain(self->server, 0, self->promise);
}

static const weir_handler_type drains_type = { .name = "drains", .on_read = drains_on_read };

static int init_drains(weir_channel *child, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(child), "drains", &drains_type, arg);
}

static void a_handler_may_drain(void **state)
{
    drainer self = { .promise = new_promise() };
    prepare(&self.self, *state, 1, 2);
    self.self.config.init = NULL;
    self.self.config.init_child = init_drains;
    self.self.config.arg = &self;
    listen_on(&self.self, EVERYWHERE);
    self.server = self.self.server;
    int fds[4];
    for (int i = 0; i < 4; i++)
        fds[i] = dial(self.self.server);
    say(fds[1], "now");
    assert_int_equal(end_of(self.promise), 0);
    for (int i = 0; i < 4; i++)
        hear_end(fds[i]);
    close_many(fds, 4);
    close_all(&self.self);
}

static void a_drain_survives_the_end_of_the_workers(void **state)
{
    for (int late = 0; late < 2; late++) {
        setup self;
        int fds[3];
        open_server(&self, *state, 1, 2);
        dial_many(&self, fds, 3);
        weir_promise *promise = late ? NULL : begin_drain(self.server, WEIR_SECONDS(3600));
        assert_int_equal(weir_group_shutdown(self.workers, 0, WEIR_SECONDS(10)), 0);
        if (late)
            promise = begin_drain(self.server, WEIR_SECONDS(3600));
        assert_int_equal(end_of(promise), 0);
        for (int i = 0; i < 3; i++)
            hear_end(fds[i]);
        close_many(fds, 3);
        close_all(&self);
    }
}

static void groups_may_be_freed_in_any_order_after_the_end(void **state)
{
    for (int i = 0; i < 20; i++) {
        setup self;
        int fds[4];
        open_server(&self, *state, 1, 2);
        dial_many(&self, fds, 4);
        weir_server_drain(self.server, 0, NULL);
        assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
        weir_server_release(self.server);
        self.server = NULL;
        free_groups(&self); /* the boss first */
        close_many(fds, 4);
    }
}

/* Children that move from loop to loop with every message. */
typedef struct mover {
    setup self;
    atomic_uint next;
} mover;

static void moves_on_read(weir_ctx *ctx, weir_msg *msg)
{
    mover *self = weir_ctx_arg(ctx);
    weir_executor *to = weir_group_at(self->self.workers, atomic_fetch_add(&self->next, 1) % 3);
    weir_channel_write_and_flush(weir_ctx_channel(ctx), msg, NULL);
    weir_channel_move(weir_ctx_channel(ctx), to, NULL);
}

static const weir_handler_type moves_type = { .name = "moves", .on_read = moves_on_read };

static int init_moves(weir_channel *child, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(child), "moves", &moves_type, arg);
}

typedef struct talker {
    pthread_t thread;
    int fd;
    atomic_bool ends;
    int ended_early;
} talker;

static void *talk_on(void *arg)
{
    talker *self = arg;
    char text[8];
    while (!atomic_load(&self->ends) && !self->ended_early) {
        if (send(self->fd, "x", 1, MSG_NOSIGNAL) != 1 || recv(self->fd, text, 1, 0) != 1)
            self->ended_early = 1;
    }
    close(self->fd);
    return NULL;
}

static void children_that_move_are_not_lost(void **state)
{
    for (int round = 0; round < 20; round++) {
        mover self = { 0 };
        talker talkers[2] = { 0 };
        prepare(&self.self, *state, 1, 3);
        self.self.config.init = NULL;
        self.self.config.init_child = init_moves;
        self.self.config.arg = &self;
        listen_on(&self.self, EVERYWHERE);
        for (size_t i = 0; i < COUNT(talkers); i++) {
            talkers[i].fd = dial(self.self.server);
            pthread_create(&talkers[i].thread, NULL, talk_on, &talkers[i]);
        }
        WAIT_FOR(server_stats(self.self.server).accepted == COUNT(talkers));
        /* The drain, which waits as long as they go on. */
        weir_promise *promise = begin_drain(self.self.server,
                                            round % 2 == 0 ? -1 : WEIR_SECONDS(3600));
        for (int i = 0; i < 20; i++) {
            weir_future_wait(weir_promise_future(promise), 1000000);
            assert_true(is_pending(promise));
        }
        bool cuts = round % 4 >= 2;
        weir_promise *cut = cuts ? begin_drain(self.self.server, 0) : NULL;
        for (size_t i = 0; i < COUNT(talkers); i++) {
            if (!cuts)
                atomic_store(&talkers[i].ends, true);
            pthread_join(talkers[i].thread, NULL);
            assert_int_equal(talkers[i].ended_early, cuts);
        }
        if (cuts)
            assert_int_equal(end_of(cut), 0);
        assert_int_equal(end_of(promise), 0);
        assert_int_equal(server_stats(self.self.server).connections, 0);
        close_all(&self.self);
    }
}

/* Out of reach --------------------------------------------------------------------------------- */

/* Children that leave the workers as soon as they are active. */
typedef struct leaver {
    setup self;
    weir_group *elsewhere; /* NULL: off any loop */
    _Atomic(weir_channel *) child;
    atomic_int left;
} leaver;

static void has_left(void *arg, weir_future *future)
{
    leaver *self = arg;
    assert_int_equal(weir_future_code(future), 0);
    atomic_fetch_add(&self->left, 1);
}

static void leaves_on_active(weir_ctx *ctx)
{
    leaver *self = weir_ctx_arg(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    if (atomic_load(&self->child) == NULL) {
        weir_promise *promise = weir_channel_promise(channel);
        atomic_store(&self->child, weir_channel_retain(channel));
        weir_future_on_done(weir_promise_future(promise), has_left, self);
        if (self->elsewhere != NULL)
            weir_channel_move(channel, weir_group_at(self->elsewhere, 0), promise);
        else
            weir_channel_deregister(channel, promise);
        weir_promise_release(promise);
    }
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type leaves_type = { .name = "leaves", .on_active = leaves_on_active };

static int init_leaves(weir_channel *child, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(child), "leaves", &leaves_type, arg);
}

static void stays_on_active(weir_ctx *ctx)
{
    leaver *self = weir_ctx_arg(ctx);
    atomic_store(&self->child, weir_channel_retain(weir_ctx_channel(ctx)));
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type stays_type = { .name = "stays", .on_active = stays_on_active };

static int init_stays(weir_channel *child, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(child), "stays", &stays_type, arg);
}

/* A server on an address, one child of which has left. The other end of it is the caller's. */
static weir_channel *open_leaver(leaver *self, const char *address, bool goes_elsewhere)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    *self = (leaver){ 0 };
    prepare(&self->self, &backends[0], 1, 2);
    self->elsewhere = goes_elsewhere ? loops_of(&backends[0], 1) : NULL;
    self->self.config.init = NULL;
    self->self.config.init_child = init_leaves;
    self->self.config.arg = self;
    listen_on(&self->self, address);
    weir_address where = address_of_server(self->self.server);
    weir_address_text(&where, text, sizeof text);
    weir_channel *client;
    const weir_client_config config = { .group = self->self.boss };
    assert_int_equal(weir_client_connect(&client, &config, text, NULL), 0);
    WAIT_FOR(atomic_load(&self->left) == 1);
    return client;
}

static void close_leaver(leaver *self, weir_channel *client)
{
    weir_channel_close(self->child, NULL);
    assert_int_equal(weir_future_await(weir_channel_closed(self->child)), 0);
    weir_channel_release(self->child);
    weir_channel_close(client, NULL);
    assert_int_equal(weir_future_await(weir_channel_closed(client)), 0);
    weir_channel_release(client);
    close_all(&self->self);
    if (self->elsewhere != NULL)
        end_group(self->elsewhere);
}

static const char *const leaver_addresses[] = { EVERYWHERE, "local:leaver" };

static void what_has_left_the_workers_does_not_hold_up_a_drain(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_WARN);
    for (int i = 0; i < 2; i++) {
        leaver leavers[2]; /* each looks for its connection for a second, so both at once */
        weir_channel *clients[2];
        weir_promise *drains[2];
        for (int at = 0; at < 2; at++) {
            clients[at] = open_leaver(&leavers[at], leaver_addresses[at], i == 0);
            drains[at] = begin_drain(leavers[at].self.server, 1);
        }
        for (int at = 0; at < 2; at++) {
            leaver *self = &leavers[at];
            assert_int_equal(end_of(drains[at]), -ETIMEDOUT);
            assert_true(harness_log_has("ends without 1 connections"));
            assert_int_equal(weir_future_await(weir_server_closed(self->self.server)), 0);
            assert_false(weir_future_is_done(weir_channel_closed(self->child)));
            close_leaver(self, clients[at]);
        }
    }
    harness_log_end();
}

/* One that stays until it is told to leave. */
static weir_channel *open_late_leaver(leaver *self)
{
    *self = (leaver){ 0 };
    prepare(&self->self, &backends[0], 1, 2);
    self->elsewhere = loops_of(&backends[0], 1);
    self->self.config.init = NULL;
    self->self.config.init_child = init_stays;
    self->self.config.arg = self;
    listen_on(&self->self, EVERYWHERE);
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address where = address_of_server(self->self.server);
    weir_address_text(&where, text, sizeof text);
    weir_channel *client;
    const weir_client_config config = { .group = self->self.boss };
    assert_int_equal(weir_client_connect(&client, &config, text, NULL), 0);
    WAIT_FOR(atomic_load(&self->child) != NULL);
    return client;
}

static void move_elsewhere(leaver *self)
{
    weir_promise *promise = new_promise();
    weir_channel_move(self->child, weir_group_at(self->elsewhere, 0), promise);
    assert_int_equal(end_of(promise), 0);
}

static void what_leaves_while_it_is_drained_does_not_hold_it_up(void **state)
{
    (void)state;
    leaver self;
    weir_channel *client = open_late_leaver(&self);
    weir_promise *hour = begin_drain(self.self.server, WEIR_SECONDS(3600));
    move_elsewhere(&self);
    weir_promise *promise = begin_drain(self.self.server, WEIR_MS(200));
    assert_int_equal(end_of(promise), -ETIMEDOUT);
    assert_true(is_pending(hour));
    weir_group_shutdown(self.self.workers, 0, WEIR_SECONDS(1));
    assert_int_equal(end_of(hour), -ETIMEDOUT);
    assert_int_equal(weir_future_await(weir_server_closed(self.self.server)), 0);
    assert_false(weir_future_is_done(weir_channel_closed(self.child)));
    close_leaver(&self, client);
}

static void what_has_left_the_workers_is_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        leaver self;
        weir_channel *client = open_leaver(&self, leaver_addresses[i / 2], i % 2 == 0);
        weir_promise *forever = begin_drain(self.self.server, -1);
        weir_promise *hour = begin_drain(self.self.server, WEIR_SECONDS(3600));
        assert_int_equal(close_server(self.self.server), 0);
        for (int walks = 0; walks < 20; walks++) {
            weir_future_wait(weir_promise_future(forever), 5000000);
            assert_true(is_pending(forever) && is_pending(hour));
        }
        weir_channel_close(self.child, NULL);
        assert_int_equal(end_of(forever), 0);
        assert_int_equal(end_of(hour), 0);
        close_leaver(&self, client);
    }
}

static void what_comes_back_in_time_is_closed(void **state)
{
    (void)state;
    leaver self;
    weir_channel *client = open_leaver(&self, EVERYWHERE, true);
    weir_promise *promise = begin_drain(self.self.server, -1), *moved = new_promise();
    weir_channel_move(self.child, weir_group_at(self.self.workers, 1), moved);
    assert_int_equal(end_of(moved), 0);
    assert_true(is_pending(promise));
    assert_int_equal(end_of(begin_drain(self.self.server, 0)), 0);
    assert_int_equal(end_of(promise), 0);
    assert_true(weir_future_is_done(weir_channel_closed(self.child)));
    close_leaver(&self, client);
}

/* While connections are being accepted --------------------------------------------------------- */

typedef struct dialler {
    pthread_t thread;
    weir_address address;
    atomic_bool ends;
    int made;
} dialler;

static void *dial_on(void *arg)
{
    dialler *self = arg;
    while (!atomic_load(&self->ends)) {
        int fd = try_dial(&self->address);
        if (fd < 0)
            break;
        self->made++;
        if (self->made % 3 == 0)
            (void)!send(fd, "x", 1, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static void what_is_being_accepted_is_drained_too(void **state)
{
    for (int round = 0; round < 10; round++) {
        setup self;
        dialler diallers[2] = { 0 };
        prepare(&self, *state, 2, 2);
        self.config.acceptors = 2;
        listen_on(&self, EVERYWHERE);
        for (size_t i = 0; i < COUNT(diallers); i++) {
            diallers[i].address = address_of_server(self.server);
            pthread_create(&diallers[i].thread, NULL, dial_on, &diallers[i]);
        }
        WAIT_FOR(server_stats(self.server).accepted >= 20);
        assert_int_equal(end_of(begin_drain(self.server, WEIR_MS(round % 2))), 0);
        weir_listener_stats stats = server_stats(self.server);
        assert_int_equal(stats.connections, 0);
        for (size_t i = 0; i < COUNT(diallers); i++) {
            atomic_store(&diallers[i].ends, true);
            pthread_join(diallers[i].thread, NULL);
        }
        assert_int_equal(server_stats(self.server).accepted, stats.accepted);
        close_all(&self);
    }
}

static void *drain_from_elsewhere(void *arg)
{
    weir_server_drain(arg, WEIR_MS(5), NULL);
    return NULL;
}

static void closing_and_draining_may_race(void **state)
{
    for (int i = 0; i < 200; i++) {
        setup self;
        pthread_t thread;
        open_server(&self, *state, 1, 1);
        pthread_create(&thread, NULL, drain_from_elsewhere, self.server);
        weir_promise *closed = new_promise(), *drained = new_promise();
        weir_server_close(self.server, closed);
        weir_server_drain(self.server, WEIR_SECONDS(3600), drained);
        assert_int_equal(end_of(closed), 0);
        assert_int_equal(end_of(drained), 0);
        pthread_join(thread, NULL);
        close_all(&self);
    }
}

static void a_drain_without_memory_closes(void **state)
{
    for (unsigned nth = 1, is_over = 0; !is_over; nth++) {
        setup self;
        int fds[3];
        open_server(&self, *state, 1, 2);
        dial_many(&self, fds, 3);
        weir_promise *promise = new_promise();
        fault_begin("alloc", nth, -ENOMEM);
        weir_server_drain(self.server, WEIR_MS(5), promise);
        int code = end_of(promise);
        is_over = !fault_end();
        assert_true(code == 0 || code == -ENOMEM);
        if (code == 0) {
            for (int i = 0; i < 3; i++)
                hear_end(fds[i]);
        }
        assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
        close_many(fds, 3);
        close_all(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(connections_outlive_the_listeners),
        each_backend(every_close_has_its_promise),
        each_backend(it_listens_without_a_reference),
        each_backend(listeners_that_are_closed_end_the_server),
        each_backend(the_end_of_the_boss_ends_the_server),
        each_backend(a_drain_of_nothing_ends_at_once),
        each_backend(drain_notifies_each_connection_once),
        each_backend(idle_connections_that_leave_end_the_drain),
        each_backend(drain_without_time_and_close_do_not_notify),
        each_backend(drain_resets_connections_that_do_not_close),
        each_backend(a_drain_with_no_time_closes_all),
        each_backend(a_drain_waits_for_connections),
        each_backend(a_close_does_not_wait_for_a_drain),
        each_backend(a_drain_closes_when_the_time_is_up),
        each_backend(a_drain_can_have_all_the_time_there_is),
        each_backend(a_shorter_drain_ends_a_longer_one),
        each_backend(a_drain_after_the_close_finds_them),
        each_backend(a_drain_needs_no_reference),
        each_backend(a_drain_minds_its_own_connections),
        each_backend(a_handler_may_drain),
        each_backend(a_drain_survives_the_end_of_the_workers),
        each_backend(groups_may_be_freed_in_any_order_after_the_end),
        epoll_only(children_that_move_are_not_lost),
        epoll_only(what_has_left_the_workers_does_not_hold_up_a_drain),
        epoll_only(what_leaves_while_it_is_drained_does_not_hold_it_up),
        epoll_only(what_has_left_the_workers_is_waited_for),
        epoll_only(what_comes_back_in_time_is_closed),
        each_backend(what_is_being_accepted_is_drained_too),
        each_backend(closing_and_draining_may_race),
        each_backend(a_drain_without_memory_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
