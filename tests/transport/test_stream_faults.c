/* SPDX-License-Identifier: MIT */
/* Streams and listeners that lose the ground under their feet: no memory, failing calls, and
 * connections that are cut at random. */
#include "transport/nth_fault.h"
#include "transport/sockets.h"

/* Every call fails once ------------------------------------------------------------------------ */

/* What the test itself asks for may fail as well. */
static int may_fail(weir_promise *promise)
{
    weir_future *future = weir_promise_future(promise);
    if (weir_future_wait(future, WEIR_MS(PATIENCE_MS)) != 0)
        fail_msg("a promise has no end when %s fails, number %u", nth.name, nth.at);
    int code = weir_future_code(future);
    weir_promise_release(promise);
    return code;
}

static void echo_once(int stream)
{
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->is_echo = true;
    new_server(self, stream);
    set_option(self->listener, WEIR_OPTION_MAX_CONNECTIONS, 1);
    weir_promise *promise = promise_of(self->listener);
    put_on_loop(self->listener, promise);
    int code = may_fail(promise);
    if (code == 0) {
        promise = promise_of(self->listener);
        weir_channel_bind(self->listener, &self->address, promise);
        code = may_fail(promise);
    }
    weir_address address;
    if (code == 0 && weir_channel_local_address(self->listener, &address) == 0) {
        record seen = { .checks_pattern = true };
        weir_channel *client = new_channel(WEIR_SOCKET_STREAM, &address);
        enum { PROMISES = 3 };
        weir_promise *promises[PROMISES];
        add_record(client, &seen);
        for (size_t i = 0; i < PROMISES; i++)
            promises[i] = promise_of(client);
        put_on_loop(client, promises[0]);
        weir_channel_connect(client, &address, NULL, promises[1]);
        weir_channel_write(client, pattern_msg(0, 100000), NULL);
        weir_channel_write_and_flush(client, pattern_msg(100000, 1), NULL);
        /* It comes back whole, or one of the two has closed. */
        int64_t end_ms = PATIENCE_MS;
        while (atomic_load(&seen.bytes) < 100001 && weir_channel_is_open(client)) {
            usleep(200);
            if (--end_ms == 0)
                fail_msg("it hangs when %s fails, number %u: %zu bytes came back", nth.name, nth.at,
                         (size_t)atomic_load(&seen.bytes));
        }
        assert_false(atomic_load(&seen.is_wrong));
        weir_channel_set_option(client, WEIR_OPTION_LINGER_NS, WEIR_MS(100),
                                NULL); /* if it is open */
        weir_channel_finish(client, promises[2]);
        for (size_t i = 0; i < PROMISES; i++)
            may_fail(promises[i]);
        wait_for_close(client);
        assert_int_equal(atomic_load(&seen.inactives), atomic_load(&seen.actives));
        weir_channel_release(client);
    }
    weir_address path = self->address;
    end_server(self);
    forget_path(&path);
}

static void each_call_fails_once_over(int stream)
{
    is_test_thread = true;
    unsigned failures = 0;
    for (nth.at = 1;; nth.at++) {
        atomic_store(&nth.seen, 0);
        atomic_store(&nth.has_failed, false);
        nth.name[0] = '\0';
        weir_fault_set(fail_nth, NULL);
        weir_group_config config = { .loops = current->io == WEIR_IO_BLOCKING ? 0 : 2 };
        config.io = current->io;
        config.watchdog_ns = WEIR_OFF;
        group = new_loops(&config);
        echo_once(stream);
        end_group(group);
        group = NULL;
        weir_fault_set(NULL, NULL);
        if (!atomic_load(&nth.has_failed))
            break;
        failures++;
        assert_true(nth.at < 3000);
    }
    print_message("%u calls failed, each once\n", failures);
}

static void every_call_fails_once(void **state)
{
    (void)state;
    end_group(group);
    group = NULL;
    harness_log_begin(WEIR_LOG_OFF);
    each_call_fails_once_over(TCP);
    each_call_fails_once_over(UNIX);
    harness_log_end();
}

/* Cut at random -------------------------------------------------------------------------------- */

static unsigned random_number(unsigned *seed, unsigned below)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 16) % below;
}

typedef struct client {
    weir_channel *channel;
    int peer; /* or a plain socket */
    record seen;
    weir_listener listener;
    atomic_uint closes;
} client;

static void count_close(weir_listener *listener, weir_future *future)
{
    (void)future;
    atomic_fetch_add(&WEIR_CONTAINER(listener, client, listener)->closes, 1);
}

static void open_some_client(client *self, const weir_address *address, unsigned *seed)
{
    *self = (client){ .peer = -1 };
    if (random_number(seed, 2) == 0) {
        size_t length;
        const struct sockaddr *to = weir_address_sockaddr(address, &length);
        self->peer = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(self->peer >= 0);
        (void)connect(self->peer, to, (socklen_t)length);
        send(self->peer, "hello", 5, MSG_NOSIGNAL);
        return;
    }
    self->channel = new_channel(WEIR_SOCKET_STREAM, address);
    add_record(self->channel, &self->seen);
    self->listener.done = count_close;
    weir_future_listen(weir_channel_closed(self->channel), &self->listener);
    put_on_loop(self->channel, NULL);
    weir_channel_connect(self->channel, address, NULL, NULL);
    weir_channel_write_and_flush(self->channel, pattern_msg(0, random_number(seed, 30000)), NULL);
}

static void cut(client *self, unsigned *seed)
{
    unsigned how = random_number(seed, 4);
    if (self->peer >= 0) {
        if (how == 0)
            peer_reset(self->peer);
        else
            close(self->peer);
        return;
    }
    if (how == 0)
        weir_channel_set_option(self->channel, WEIR_OPTION_CLOSE_LINGER_NS, 0, NULL);
    if (how == 1)
        weir_channel_shutdown(self->channel, NULL);
    if (how == 2)
        weir_channel_finish(self->channel, NULL);
    weir_channel_close(self->channel, NULL);
    wait_for_close(self->channel);
    WAIT_FOR(atomic_load(&self->closes) == 1);
    assert_int_equal(atomic_load(&self->closes), 1);
    assert_int_equal(atomic_load(&self->seen.inactives), atomic_load(&self->seen.actives));
    weir_channel_release(self->channel);
}

/* The server's children, which nobody keeps. */
static atomic_uint born, dead;

static void count_registered(weir_ctx *ctx)
{
    atomic_fetch_add(&born, 1);
    weir_ctx_fire_registered(ctx);
}

static void count_unregistered(weir_ctx *ctx)
{
    atomic_fetch_add(&dead, 1);
    weir_ctx_fire_unregistered(ctx);
}

static void echo_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void echo_error(weir_ctx *ctx, const weir_error *error)
{
    (void)ctx;
    (void)error;
}

static const weir_handler_type echoer = {
    .name = "echoer",
    .on_registered = count_registered,
    .on_unregistered = count_unregistered,
    .on_read = echo_read,
    .on_read_complete = echo_complete,
    .on_error = echo_error,
};

static void take_child(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    weir_channel *child = weir_accepted_take(msg);
    weir_msg_release(msg);
    weir_pipeline_add_last(weir_channel_pipeline(child), "echoer", &echoer, NULL);
    put_on_loop(child, NULL);
    weir_channel_release(child);
}

static const weir_handler_type taker = { .name = "taker", .on_read = take_child };

/* How many are open at a time, how many are cut, and for how long at least. */
typedef struct churn {
    unsigned at_once, cuts;
    int64_t duration_ns;
} churn;

/* With WEIR_LONG_TESTS 5,000 at once for 30 seconds; else what a busy machine can do beside other
 * tests. Over the blocking backend each of them has a thread, or two. */
static churn wanted_churn(void)
{
    bool is_long = getenv("WEIR_LONG_TESTS") != NULL, is_blocking = current->io == WEIR_IO_BLOCKING;
    return (churn){
        .at_once = is_long && !is_blocking ? 5000 : 64,
        .cuts = is_blocking ? 250 : 2500,
        .duration_ns = is_long ? WEIR_SECONDS(30) : 0,
    };
}

static bool are_loops_idle(void)
{
    uint64_t before[2], most = 0;
    size_t count = weir_group_count(group);
    for (size_t i = 0; i < count; i++)
        before[i] = loop_stats_of(weir_group_loop_at(group, i)).turns;
    usleep(20000); /* only makes it likelier to be seen if they are not */
    for (size_t i = 0; i < count; i++) {
        uint64_t turns = loop_stats_of(weir_group_loop_at(group, i)).turns - before[i];
        most = turns > most ? turns : most;
    }
    return most <= 3;
}

static void opened_and_cut_at_random(void **state)
{
    (void)state;
    churn wanted = wanted_churn();
    client *clients = calloc(wanted.at_once, sizeof *clients);
    assert_non_null(clients);
    unsigned seed = 42;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        atomic_store(&born, 0);
        atomic_store(&dead, 0);
        weir_address address = any_address(stream);
        weir_channel *listener = new_channel(WEIR_SOCKET_LISTENER, &address);
        weir_pipeline *pipeline = weir_channel_pipeline(listener);
        assert_int_equal(weir_pipeline_add_last(pipeline, "taker", &taker, NULL), 0);
        assert_int_equal(register_it(listener), 0);
        assert_int_equal(bind_to(listener, &address), 0);
        address = local_of(listener);
        for (unsigned i = 0; i < wanted.at_once; i++)
            open_some_client(&clients[i], &address, &seed);
        int64_t end_ns = weir_clock_now_ns(weir_clock_monotonic()) + wanted.duration_ns;
        unsigned cuts = 0;
        while (cuts < wanted.cuts || weir_clock_now_ns(weir_clock_monotonic()) < end_ns) {
            client *self = &clients[random_number(&seed, wanted.at_once)];
            cut(self, &seed);
            open_some_client(self, &address, &seed);
            cuts++;
        }
        for (unsigned i = 0; i < wanted.at_once; i++)
            cut(&clients[i], &seed);
        weir_listener_stats stats;
        WAIT_FOR(weir_channel_listener_stats(listener, &stats) == 0 && stats.connections == 0);
        assert_true(stats.accepted > 0);
        WAIT_FOR(atomic_load(&born) == atomic_load(&dead));
        assert_idle(listener); /* nobody goes round for nothing */
        if (current->io != WEIR_IO_BLOCKING)
            WAIT_FOR(are_loops_idle());
        if (current->io == WEIR_IO_EPOLL) {
            weir_loop_stats loop = stats_of_loop(listener);
            assert_in_range(loop.polls, 0, 200 * (cuts + wanted.at_once));
        }
        end_channel(listener);
    }
    free(clients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(every_call_fails_once),
        socket_cases(opened_and_cut_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
