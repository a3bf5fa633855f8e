/* SPDX-License-Identifier: MIT */
/* In-process channels between loops with threads of their own. */
#include "transport/locals.h"

/* A listener and its children on two loops, and a loop for clients. */
typedef struct town {
    weir_group *boss, *workers, *clients;
    server server;
} town;

static void open_town(town *self, int (*init)(weir_channel *, void *), void *arg)
{
    *self = (town){ .server = { .init = init, .arg = arg } };
    self->boss = open_group(&(weir_group_config){ .loops = 1 });
    self->workers = open_group(&(weir_group_config){ .loops = 2 });
    self->clients = open_group(&(weir_group_config){ .loops = 2 });
    self->server.children = weir_group_at(self->workers, 0);
    server_make(&self->server, weir_group_at(self->boss, 0));
    weir_address name = name_of("local:town");
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_bind(self->server.listener, &name, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
}

static weir_channel *open_client(town *self, int (*init)(weir_channel *, void *), void *arg)
{
    weir_channel *client = new_client(weir_group_at(self->clients, 0), init, arg);
    weir_address name = name_of("local:town");
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_connect(client, &name, NULL, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    return client;
}

static void close_town(town *self)
{
    end_group(self->clients);
    end_group(self->boss);
    end_group(self->workers);
    weir_channel_release(self->server.listener);
    weir_channel_release(self->server.child);
}

/* Sends numbers from its loop whenever the channel is writable. */
typedef struct sender {
    counter counter; /* of those that come back */
    uint32_t next, count;
    bool is_sending;
} sender;

/* What it flushes may make room at once, of which nobody is told; a limit lets others run, too. */
static void send_more(weir_ctx *ctx)
{
    sender *self = weir_ctx_arg(ctx);
    uint32_t most = self->counter.next + 100000;
    if (self->is_sending)
        return;
    self->is_sending = true;
    while (self->next < self->count && self->next < most &&
           weir_channel_is_writable(weir_ctx_channel(ctx))) {
        weir_ctx_write(ctx, new_number(self->next++, 1024), NULL);
        weir_ctx_flush(ctx);
    }
    self->is_sending = false;
}

static void sender_on_active(weir_ctx *ctx)
{
    send_more(ctx);
    weir_ctx_fire_active(ctx);
}

static void sender_on_writability(weir_ctx *ctx)
{
    send_more(ctx);
}

static void sender_on_read_complete(weir_ctx *ctx)
{
    counter_on_read_complete(ctx);
    send_more(ctx);
}

static const weir_handler_type sends = { .name = "sends",
                                         .on_active = sender_on_active,
                                         .on_writability = sender_on_writability,
                                         .on_read = counter_on_read,
                                         .on_read_complete = sender_on_read_complete,
                                         .on_inactive = counter_on_inactive,
                                         .on_error = counter_on_error };

static int add_sender(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "sends", &sends, arg);
}

static void a_hundred_thousand_messages_come_in_order(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    town t;
    counter seen = { 0 };
    sender sender_state = { .count = COUNT };
    open_town(&t, add_counter, &seen);
    weir_channel *client = open_client(&t, add_sender, &sender_state);
    WAIT_FOR(seen.next == COUNT);
    assert_int_equal(seen.wrong, 0);
    assert_true(seen.most_in_batch <= 16);
    weir_channel_release(client);
    close_town(&t);
}

static void the_same_comes_back_from_an_echo(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    for (int same = 0; same < 2; same++) {
        town t;
        sender sender_state = { .count = COUNT };
        open_town(&t, add_echo, NULL);
        if (same)
            t.server.children = weir_group_at(t.clients, 0);
        weir_channel *client = open_client(&t, add_sender, &sender_state);
        WAIT_FOR(sender_state.counter.next == COUNT);
        assert_int_equal(sender_state.counter.wrong, 0);
        weir_channel_release(client);
        close_town(&t);
    }
}

static void move_and_wait(weir_channel *channel, weir_executor *loop)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_move(channel, loop, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
}

/* The numbers go round for as long as the ends move. */
static void moves_lose_nothing(void **state)
{
    (void)state;
    enum { MOVES = 1000 };
    town t;
    sender sender_state = { .count = UINT32_MAX };
    open_town(&t, add_echo, NULL);
    weir_channel *client = open_client(&t, add_sender, &sender_state);
    WAIT_FOR(t.server.accepted == 1);
    for (int i = 0; i < MOVES; i++) {
        bool is_client = i % 2 == 0;
        weir_group *group = is_client ? t.clients : t.workers;
        weir_channel *channel = is_client ? client : t.server.child;
        move_and_wait(channel, weir_group_at(group, (size_t)(i / 2 + 1) % 2));
    }
    uint32_t reached = sender_state.counter.next;
    WAIT_FOR(sender_state.counter.next > reached + 1000); /* it still goes round */
    assert_int_equal(sender_state.counter.wrong, 0);
    assert_int_equal(sender_state.counter.errors, 0);
    weir_channel_release(client);
    close_town(&t);
}

/* Whichever loop ends first, while both ends send: the other end sees the end, and nothing is left.
 */
static void loops_end_in_any_order(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        town t;
        sender sender_state = { .count = UINT32_MAX };
        counter *seen = &sender_state.counter;
        open_town(&t, add_echo, NULL);
        weir_channel *client = open_client(&t, add_sender, &sender_state);
        WAIT_FOR(seen->next > (uint32_t)i * 10);
        weir_group *groups[3] = { t.boss, t.workers, t.clients };
        for (int k = 0; k < 3; k++) {
            end_group(groups[(i + (i / 3 % 2 ? 3 - k : k)) % 3]);
            if (k == 0 && i % 3 == 1 && i / 3 % 2 == 0)
                WAIT_FOR(seen->ends == 1); /* its own loop is still there */
        }
        assert_int_equal(seen->ends, 1);
        assert_int_equal(seen->wrong, 0);
        assert_int_equal(weir_channel_get_state(client), WEIR_CHANNEL_UNREGISTERED);
        weir_channel_release(client);
        weir_channel_release(t.server.listener);
        weir_channel_release(t.server.child);
    }
}

/* Off its loop, which ends: what is written to it is kept, and it can still go elsewhere. */
static void an_end_outlives_its_loop(void **state)
{
    (void)state;
    town t;
    counter seen = { 0 };
    open_town(&t, add_counter, &seen);
    weir_group *other = open_group(&(weir_group_config){ .loops = 1 });
    weir_channel *client = open_client(&t, NULL, NULL);
    WAIT_FOR(t.server.accepted == 1 && weir_channel_is_active(t.server.child));
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_deregister(t.server.child, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    send_numbers(client, 0, 20, 1);
    end_group(t.workers);
    send_numbers(client, 20, 40, 1);
    move_and_wait(t.server.child, weir_group_at(other, 0));
    WAIT_FOR(seen.next == 40);
    assert_int_equal(seen.wrong, 0);
    weir_channel_release(client);
    end_group(other);
    end_group(t.boss);
    end_group(t.clients);
    weir_channel_release(t.server.listener);
    weir_channel_release(t.server.child);
}

static bool lift(weir_channel *channel)
{
    weir_local_end *end = (weir_local_end *)channel;
    pthread_mutex_lock(end->lock);
    bool is_lifted = weir__local_end_lift(end);
    pthread_mutex_unlock(end->lock);
    return is_lifted;
}

/* Somebody was about to ring, and the loop has ended before. */
static void a_ring_that_comes_too_late_is_none(void **state)
{
    (void)state;
    town t;
    counter seen = { 0 };
    open_town(&t, add_counter, &seen);
    weir_group *other = open_group(&(weir_group_config){ .loops = 1 });
    weir_channel *client = open_client(&t, NULL, NULL);
    WAIT_FOR(t.server.accepted == 1 && weir_channel_is_active(t.server.child));
    WAIT_FOR(lift(t.server.child));
    WAIT_FOR(lift(t.server.listener));
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_deregister(t.server.child, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    end_group(t.workers);
    end_group(t.boss);
    weir__local_end_ring((weir_local_end *)t.server.child);
    weir__local_end_ring((weir_local_end *)t.server.listener);
    move_and_wait(t.server.child, weir_group_at(other, 0));
    send_numbers(client, 0, 20, 1);
    WAIT_FOR(seen.next == 20);
    end_group(other);
    end_group(t.clients);
    weir_channel_release(client);
    weir_channel_release(t.server.listener);
    weir_channel_release(t.server.child);
}

/* Holds a loop up until something is so. */
typedef struct gate {
    _Atomic(bool) is_open;
    weir_channel *channel; /* NULL, or it has to be on this loop: */
    weir_executor *loop;
} gate;

static int wait_at_gate(void *arg)
{
    gate *self = arg;
    WAIT_FOR(self->channel != NULL
                 ? executor_of(self->channel) == self->loop && weir_channel_is_active(self->channel)
                 : self->is_open);
    return 0;
}

static int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* What was posted to a loop until now has run. */
static void catch_up(weir_executor *loop)
{
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(loop, do_nothing, NULL, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
}

/* The channel has got to its new loop, and counts on a ring that is still on the old one. */
static void a_ring_follows_a_channel_that_has_moved(void **state)
{
    (void)state;
    town t;
    counter seen = { 0 };
    open_town(&t, add_counter, &seen);
    weir_executor *old = weir_group_at(t.workers, 0), *new = weir_group_at(t.workers, 1);
    weir_channel *client = open_client(&t, NULL, NULL);
    WAIT_FOR(t.server.accepted == 1 && weir_channel_is_active(t.server.child));
    catch_up(old); /* or its task may still be on its way, and be posted again behind the gates */
    gate first = { .is_open = false }, second = { .channel = t.server.child, .loop = new };
    assert_int_equal(weir_executor_execute(old, wait_at_gate, &first), 0);
    weir_channel_move(t.server.child, new, NULL);
    assert_int_equal(weir_executor_execute(old, wait_at_gate, &second), 0);
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_write_and_flush(client, new_number(0, 1), promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    catch_up(weir_group_at(t.clients, 0)); /* now it has rung */
    first.is_open = true;
    WAIT_FOR(seen.next == 1);
    weir_channel_release(client);
    close_town(&t);
}

/* Clients of several threads, while listeners of one name come and go. */
enum { CLIENTS = 300, CALLERS = 3 };

typedef struct caller {
    weir_group *group;
    int succeeded, refused, others;
} caller;

static void *call_again_and_again(void *arg)
{
    caller *self = arg;
    weir_address name = name_of("local:busy");
    for (int i = 0; i < CLIENTS; i++) {
        weir_channel *client = new_client(weir_group_next(self->group), NULL, NULL);
        weir_promise *promise = weir_promise_new(NULL);
        weir_channel_connect(client, &name, NULL, promise);
        if (i % 5 == 0)
            weir_future_cancel(weir_promise_future(promise));
        int code = weir_future_await(weir_promise_future(promise));
        self->succeeded += code == 0;
        self->refused += code == -ECONNREFUSED;
        self->others += code != 0 && code != -ECONNREFUSED && code != -ECANCELED;
        weir_channel_write_and_flush(client, new_number(0, 1), NULL);
        weir_promise_release(promise);
        client_end(client);
    }
    return NULL;
}

static void listeners_come_and_go_under_the_clients(void **state)
{
    (void)state;
    weir_group *group = open_group(&(weir_group_config){ .loops = 3 });
    caller callers[CALLERS] = { 0 };
    pthread_t threads[CALLERS];
    _Atomic(bool) is_over = false;
    int rounds = 0, accepted = 0, succeeded = 0;
    for (int i = 0; i < CALLERS; i++) {
        callers[i].group = group;
        assert_int_equal(pthread_create(&threads[i], NULL, call_again_and_again, &callers[i]), 0);
    }
    while (!is_over) {
        server side = { .children = weir_group_next(group), .init = add_counter };
        counter seen = { 0 };
        side.arg = &seen;
        server_make(&side, weir_group_next(group));
        weir_address name = name_of("local:busy");
        weir_promise *promise = weir_promise_new(NULL);
        weir_channel_bind(side.listener, &name, promise);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        weir_promise_release(promise);
        weir_channel *listener = weir_channel_retain(side.listener);
        weir_executor *elsewhere = weir_group_next(group);
        weir_channel_move(listener, elsewhere, NULL);
        if (++rounds >= 50) {
            for (int i = 0; i < CALLERS; i++)
                pthread_join(threads[i], NULL);
            is_over = true;
        }
        weir_promise *closed = weir_promise_new(NULL);
        weir_channel_close(listener, closed);
        assert_int_equal(weir_future_await(weir_promise_future(closed)), 0);
        weir_promise_release(closed);
        /* Its children have handlers that look at this round's counter. */
        WAIT_FOR(weir_channel_get_state(listener) == WEIR_CHANNEL_UNREGISTERED);
        accepted += side.accepted;
        if (is_over) {
            end_group(group);
        } else {
            WAIT_FOR(seen.ends >= (uint32_t)side.accepted);
        }
        weir_channel_release(listener);
        weir_channel_release(side.listener);
        weir_channel_release(side.child);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(callers[i].others, 0);
        succeeded += callers[i].succeeded;
    }
    assert_true(accepted >= succeeded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_hundred_thousand_messages_come_in_order),
        weir_case(the_same_comes_back_from_an_echo),
        weir_case(moves_lose_nothing),
        weir_case(loops_end_in_any_order),
        weir_case(an_end_outlives_its_loop),
        weir_case(a_ring_that_comes_too_late_is_none),
        weir_case(a_ring_follows_a_channel_that_has_moved),
        weir_case(listeners_come_and_go_under_the_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
