/* SPDX-License-Identifier: MIT */
/* TLS over real sockets and in-process channels, with threads: on the loop, with handshakes that
 * are computed elsewhere, and on an executor of its own. */
#include "tls/raw.h"
#include "tls/town.h"

#include <weir/relay.h>
#include <weir/sim.h>

#include <pthread.h>
#include <string.h>

/* Bytes there and back ------------------------------------------------------------------------- */

static void echo_over(const backend *io, place where, const char *address)
{
    town self;
    town_open(&self, io, where, address);
    town_echo(&self);
    town_close(&self);
}

static void s133_an_echo_over_sockets(void **state)
{
    for (place where = ON_LOOP; where <= ALL_ELSEWHERE; where++)
        echo_over(*state, where, "127.0.0.1:0");
}

static void an_echo_in_the_process(void **state)
{
    for (place where = ON_LOOP; where <= ALL_ELSEWHERE; where++)
        echo_over(*state, where, "local:tls");
}

static void an_echo_over_a_path(void **state)
{
    char path[64];
    snprintf(path, sizeof path, "unix:@weir-test-tls-%d", (int)getpid());
    echo_over(*state, ON_LOOP, path);
    echo_over(*state, HANDSHAKE_ELSEWHERE, path);
}

typedef struct passing {
    weir_channel *from, *to;
    weir_promise *promise;
    bool is_busy; /* something waits to be sent, as while a handshake is under way */
} passing;

static int relay_past_tls(void *arg)
{
    passing *self = arg;
    if (self->is_busy) {
        weir_ctx *tls = weir_pipeline_ctx(weir_channel_pipeline(self->to), "tls");
        weir_ctx_write(tls, weir_buf_msg(weir_buf_from("x", 1)), NULL);
    }
    weir_relay(self->from, self->to, self->promise);
    return 0;
}

static void nothing_is_relayed_past_it(void **state)
{
    town self;
    caller by[2];
    for (place where = ON_LOOP; where <= ALL_ELSEWHERE; where++) {
        town_open(&self, *state, where, "127.0.0.1:0");
        weir_channel *ends[] = { town_call(&self, &by[0]), town_call(&self, &by[1]) };
        passing both = { ends[0], ends[1], weir_channel_promise(ends[0]), false };
        WAIT_FOR(weir_channel_is_active(ends[0]) && weir_channel_is_active(ends[1]));
        call_on(weir_group_at(self.clients, 0), relay_past_tls, &both);
        assert_int_equal(weir_future_code(weir_promise_future(both.promise)), -EOPNOTSUPP);
        assert_non_null(weir_future_error(weir_promise_future(both.promise)));
        weir_promise_release(both.promise);
        for (size_t i = 0; i < 2; i++) {
            town_say(ends[i], 1000);
            WAIT_FOR(atomic_load(&by[i].heard) == 1000);
            town_hang_up(ends[i]);
        }
        town_close(&self);
    }
}

/* -EBUSY would say that trying again may help. */
static void a_relay_past_tls_is_rejected_for_good_also_while_it_sends(void **state)
{
    town self;
    caller by[2];
    town_open(&self, *state, ON_LOOP, "127.0.0.1:0");
    weir_channel *ends[] = { town_call(&self, &by[0]), town_call(&self, &by[1]) };
    passing both = { ends[0], ends[1], weir_channel_promise(ends[0]), true };
    WAIT_FOR(weir_channel_is_active(ends[0]) && weir_channel_is_active(ends[1]));
    call_on(weir_group_at(self.clients, 0), relay_past_tls, &both);
    assert_int_equal(weir_future_code(weir_promise_future(both.promise)), -EOPNOTSUPP);
    weir_promise_release(both.promise);
    for (size_t i = 0; i < 2; i++)
        town_hang_up(ends[i]);
    town_close(&self);
}

/* On an executor, and slow to be read --------------------------------------------------------- */

typedef struct remote {
    weir_tls tls;
    weir_group *others;
    weir_embedded *embedded;
    raw enemy;
} remote;

static int init_remote(weir_channel *channel, void *arg)
{
    remote *self = arg;
    return town_add_tls(channel, "tls", &self->tls, self->others);
}

/* What is on its way to the executor and back gets there. */
static void settle_remote(remote *self)
{
    for (int i = 0; i < 3; i++) {
        wait_for_passes(weir_group_at(self->others, 0));
        weir_embedded_run(self->embedded);
    }
}

static void carry_there_and_back(remote *self)
{
    for (int i = 0; i < 5; i++) {
        raw_carry(&self->enemy);
        settle_remote(self);
    }
}

/* The promise of the add fails, also if the handler is offloaded, and no byte is sent in the clear.
 */
static void bad_config_fails_the_promise_of_the_add(void **state)
{
    (void)state;
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
        remote self = { .others = new_group_of(1) };
        weir_tls nothing = { .context = NULL };
        assert_int_equal(weir_embedded_new(&self.embedded, NULL, NULL), 0);
        weir_channel *channel = weir_embedded_channel(self.embedded);
        weir_promise *promise = weir_promise_new(NULL), *write = weir_promise_new(NULL);
        weir_handler_config config = { .type = &weir_tls_handler, .name = "tls", .arg = &nothing };
        config.promise = promise;
        config.group = is_elsewhere ? self.others : NULL;
        assert_int_equal(weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL), 0);
        weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("plain", 5)), write);
        weir_embedded_run(self.embedded); /* which starts the executor */
        if (is_elsewhere)
            settle_remote(&self);
        assert_int_equal(weir_future_code(weir_promise_future(promise)), -EINVAL);
        assert_true(weir_future_code(weir_promise_future(write)) < 0);
        assert_int_equal(weir_embedded_outbound_count(self.embedded), 0);
        assert_false(weir_channel_is_open(channel));
        weir_error error;
        assert_true(weir_embedded_take_error(self.embedded, &error));
        assert_int_equal(error.code, -EINVAL);
        weir_promise_release(promise);
        weir_promise_release(write);
        weir_embedded_free(self.embedded);
        end_group(self.others);
    }
}

static void remote_begin(remote *self)
{
    weir_embedded_config config = { .init = init_remote, .arg = self };
    *self = (remote){ .others = new_group_of(1), .tls.context = pair_server_context(NULL) };
    assert_int_equal(weir_embedded_new(&self->embedded, &config, NULL), 0);
    settle_remote(self);
    raw_begin(&self->enemy, self->embedded, false, TLS1_3_VERSION);
    carry_there_and_back(self);
    assert_true(SSL_is_init_finished(self->enemy.ssl));
}

static void remote_end(remote *self)
{
    raw_end(&self->enemy);
    weir_embedded_free(self->embedded);
    weir_tls_context_release(self->tls.context);
    end_group(self->others);
}

static void answers_to_key_updates_are_bounded_elsewhere(void **state)
{
    static remote self;
    size_t count;
    (void)state;
    remote_begin(&self);
    weir_embedded_accept(self.embedded, 0);
    for (count = 0; count < 200 && weir_embedded_is_reading(self.embedded); count++) {
        for (int i = 0; i < 100; i++) {
            SSL_key_update(self.enemy.ssl, SSL_KEY_UPDATE_REQUESTED);
            SSL_do_handshake(self.enemy.ssl);
        }
        raw_send(&self.enemy);
        settle_remote(&self);
    }
    assert_true(count < 200);
    weir_embedded_accept(self.embedded, SIZE_MAX);
    settle_remote(&self);
    assert_true(weir_embedded_is_reading(self.embedded));
    raw_say(&self.enemy, "still in step");
    carry_there_and_back(&self);
    assert_int_equal(weir_embedded_inbound_count(self.embedded), 1);
    weir_msg_release(weir_embedded_read_inbound(self.embedded));
    assert_int_equal(weir_embedded_check(self.embedded), 0);
    remote_end(&self);
}

/* Refuses what has bytes, from the second on. */
static void write_once(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    int *left = weir_ctx_arg(ctx);
    if (weir_msg_size(msg) > 0 && (*left)-- <= 0)
        weir_ctx_refuse_write(ctx, msg, promise, -ENOBUFS);
    else
        weir_ctx_write(ctx, msg, promise);
}

static int add_once(void *arg)
{
    static const weir_handler_type once = { .name = "once", .write = write_once };
    static int left;
    left = 1;
    return weir_pipeline_add_first(weir_channel_pipeline(arg), "once", &once, &left);
}

static void a_record_that_is_refused_ends_the_connection_elsewhere(void **state)
{
    static remote self;
    weir_promise *promises[3];
    (void)state;
    remote_begin(&self);
    weir_channel *channel = weir_embedded_channel(self.embedded);
    assert_int_equal(weir_embedded_call(self.embedded, add_once, channel), 0);
    for (size_t i = 0; i < 3; i++) { /* one behind another, before anybody can know */
        promises[i] = weir_channel_promise(channel);
        weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("record", 6)),
                                     promises[i]);
    }
    carry_there_and_back(&self);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(weir_future_code(weir_promise_future(promises[i])) == 0, i == 0);
        weir_promise_release(promises[i]);
    }
    assert_false(weir_channel_is_open(channel));
    pair_expect_error(&(pair_end){ .embedded = self.embedded }, -ENOBUFS);
    assert_string_equal(self.enemy.heard, "record");
    assert_int_not_equal(self.enemy.last, SSL_ERROR_SSL); /* and nothing it cannot decrypt */
    remote_end(&self);
}

/* While a step is away ------------------------------------------------------------------------- */

static int remove_tls(void *arg)
{
    return weir_pipeline_remove(weir_channel_pipeline(arg), "tls", NULL);
}

/* A connection whose server waits with its first step, for both threads of the executors are held.
 */
typedef struct waiting {
    town town;
    caller by;
    blocker held[2];
    weir_channel *client;
} waiting;

static void wait_in_handshake(waiting *self, const backend *io)
{
    town_open(&self->town, io, HANDSHAKE_ELSEWHERE, "127.0.0.1:0");
    block(&self->held[0], weir_group_at(self->town.others, 0));
    block(&self->held[1], weir_group_at(self->town.others, 1));
    self->client = town_call(&self->town, &self->by);
    WAIT_FOR(atomic_load(&self->town.accepted_count) == 1);
}

static void go_on(waiting *self)
{
    unblock(&self->held[0]);
    unblock(&self->held[1]);
}

static void end_waiting(waiting *self)
{
    town_hang_up(self->client);
    town_close(&self->town);
}

/* What becomes of the two handshakes. */
static int handshake_of(weir_channel *channel)
{
    weir_future *future = weir_tls_handshake(channel);
    WAIT_FOR(weir_future_is_done(future));
    return weir_future_code(future);
}

static uint64_t bytes_in(const weir_channel *channel)
{
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    return stats.bytes_in;
}

static void something_happens_meanwhile(void **state)
{
    for (int way = 0; way < 4; way++) {
        waiting self;
        wait_in_handshake(&self, *state);
        weir_channel *server = self.town.accepted, *client = self.client;
        WAIT_FOR(weir_channel_is_active(server) && bytes_in(server) > 0);
        weir_executor *loop = weir_loop_executor(weir_channel_loop(server));
        wait_for_passes(loop); /* the ClientHello is with the job */
        assert_false(weir_future_is_done(weir_tls_handshake(server)));
        if (way == 0)
            weir_channel_close(server, NULL);
        else if (way == 1)
            assert_int_equal(call_on(loop, remove_tls, server), 0);
        else if (way == 2)
            weir_channel_close(client, NULL);
        else
            town_say(client, 1);
        wait_for_passes(loop);
        if (way < 2) /* who ends it here does not wait for the job */
            WAIT_FOR(weir_future_is_done(weir_tls_handshake(server)));
        assert_int_equal(weir_future_is_done(weir_tls_handshake(server)), way < 2);
        go_on(&self);
        int code = handshake_of(server);
        if (way == 2) /* what it answers may be what finds out */
            assert_true(code == WEIR_EOF || code == -ECONNRESET || code == -EPIPE);
        else
            assert_int_equal(code, way < 2 ? WEIR_ECLOSED : 0);
        WAIT_FOR(weir_channel_is_open(server) == (way == 1 || way == 3));
        if (way == 0)
            assert_int_equal(handshake_of(client), WEIR_EOF);
        else if (way == 2)
            assert_int_equal(handshake_of(client), WEIR_ECLOSED);
        else if (way == 3)
            WAIT_FOR(atomic_load(&self.by.heard) == 1);
        weir_tls_context_stats stats;
        weir_tls_context_get_stats(self.town.contexts[0], &stats);
        assert_int_equal(stats.failed, way < 3);
        assert_int_equal(stats.handshakes, way == 3);
        end_waiting(&self);
    }
}

/* What a step holds that has not begun is freed with the handler, however busy its executor is. */
static void an_abandoned_step_is_cancelled(void **state)
{
    waiting self;
    weir_pool_stats blocked, after;
    wait_in_handshake(&self, *state);
    weir_channel *server = self.town.accepted;
    WAIT_FOR(weir_channel_is_active(server) && bytes_in(server) > 0);
    weir_executor *loop = weir_loop_executor(weir_channel_loop(server));
    wait_for_passes(loop); /* the ClientHello is with the job */
    assert_int_equal(call_on(loop, remove_tls, server), 0);
    wait_for_passes(loop);
    weir_pool_get_stats(&blocked);
    go_on(&self);
    for (size_t i = 0; i < 2; i++)
        wait_for_passes(weir_group_at(self.town.others, i));
    wait_for_passes(loop);
    weir_pool_get_stats(&after);
    assert_int_equal(after.used_blocks, blocked.used_blocks);
    end_waiting(&self);
}

static void the_loops_end_meanwhile(void **state)
{
    waiting self;
    wait_in_handshake(&self, *state);
    for (int i = 0; i < 50; i++)
        wait_for_passes(weir_group_at(self.town.clients, 0) != NULL
                            ? weir_group_at(self.town.clients, 0)
                            : weir_loop_executor(weir_channel_loop(self.client)));
    assert_int_equal(weir_group_shutdown(self.town.loops, 0, WEIR_SECONDS(1)), 0);
    weir_future_wait(weir_group_terminated(self.town.loops), WEIR_MS(300));
    go_on(&self);
    end_waiting(&self);
}

static void loops_that_end_say_goodbye(void **state)
{
    for (place where = ON_LOOP; where <= HANDSHAKE_ELSEWHERE; where++) {
        town self;
        caller by;
        town_open(&self, *state, where, "127.0.0.1:0");
        weir_channel *client = town_call(&self, &by);
        town_say(client, 1000);
        WAIT_FOR(atomic_load(&by.heard) == 1000);
        assert_int_equal(weir_group_shutdown(self.loops, 0, WEIR_SECONDS(1)), 0);
        WAIT_FOR(atomic_load(&by.inactives) == 1);
        /* It has ended, and is not cut; what the caller says to that may meet nobody. */
        assert_int_not_equal(atomic_load(&by.last_error), WEIR_ETLS_TRUNCATED);
        town_hang_up(client);
        town_close(&self);
    }
}

static void executors_that_have_ended_are_done_without(void **state)
{
    town self;
    caller by;
    town_open(&self, *state, HANDSHAKE_ELSEWHERE, "127.0.0.1:0");
    assert_int_equal(weir_group_shutdown(self.others, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(self.others)), 0);
    weir_channel *client = town_call(&self, &by);
    assert_int_equal(handshake_of(client), 0); /* the loop computes itself */
    town_say(client, 1000);
    WAIT_FOR(atomic_load(&by.heard) == 1000);
    town_hang_up(client);
    town_close(&self);
}

static void reloading_goes_on_beside_handshakes(void **state)
{
    enum { CALLERS = 20 };
    town self;
    caller callers[CALLERS];
    town_open(&self, *state, HANDSHAKE_ELSEWHERE, "127.0.0.1:0");
    for (size_t i = 0; i < CALLERS; i++) {
        weir_channel *channel = town_call(&self, &callers[i]);
        assert_int_equal(weir_tls_context_reload(self.contexts[i % 2], NULL, NULL), 0);
        town_say(channel, 10);
        WAIT_FOR(atomic_load(&callers[i].heard) == 10 || atomic_load(&callers[i].errors) > 0);
        assert_int_equal(atomic_load(&callers[i].last_error), 0);
        town_hang_up(channel);
    }
    town_close(&self);
}

/* Two threads that reload both contexts, each as if it were alone, until they are told to stop. */
typedef struct reloader {
    pthread_t thread;
    town *town;
    weir_tls_config other;
    atomic_bool *must_stop;
    uint64_t reloads; /* of the server's */
    int code;         /* the first that is not as it should be */
} reloader;

static void *reload_on_and_on(void *arg)
{
    reloader *self = arg;
    const weir_tls_config wrong = { .session_lifetime_ns = -5 };
    do {
        weir_tls_context **contexts = self->town->contexts;
        int codes[] = { weir_tls_context_reload(contexts[0], &self->other, NULL),
                        weir_tls_context_reload(contexts[0], NULL, NULL),
                        weir_tls_context_reload(contexts[1], NULL, NULL) };
        for (size_t i = 0; i < 3; i++)
            self->code = self->code != 0 ? self->code : codes[i];
        if (weir_tls_context_reload(contexts[0], &wrong, NULL) != -EINVAL)
            self->code = -EPROTO;
        self->reloads += 2;
    } while (!atomic_load(self->must_stop));
    return NULL;
}

static void two_threads_reload_beside_handshakes(void **state)
{
    enum { CALLERS = 20 };
    town self;
    caller callers[CALLERS];
    reloader reloaders[2];
    atomic_bool must_stop = false;
    weir_tls_context_stats stats;
    town_open(&self, *state, HANDSHAKE_ELSEWHERE, "127.0.0.1:0");
    for (size_t i = 0; i < 2; i++) {
        reloaders[i] = (reloader){ .town = &self, .must_stop = &must_stop };
        reloaders[i].other = (weir_tls_config){
            .certificate_pem = pair_identity()->certificate_pem,
            .key_pem = pair_identity()->key_pem,
            .max_version = i == 0 ? WEIR_TLS_1_2 : WEIR_TLS_1_3, /* so that it can be seen */
        };
        pthread_create(&reloaders[i].thread, NULL, reload_on_and_on, &reloaders[i]);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        weir_channel *channel = town_call(&self, &callers[i]);
        town_say(channel, 10);
        WAIT_FOR(atomic_load(&callers[i].heard) == 10 || atomic_load(&callers[i].errors) > 0);
        assert_int_equal(atomic_load(&callers[i].last_error), 0);
        town_hang_up(channel);
    }
    atomic_store(&must_stop, true);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(reloaders[i].thread, NULL);
        assert_int_equal(reloaders[i].code, 0);
    }
    weir_tls_context_get_stats(self.contexts[0], &stats);
    assert_int_equal(stats.reloads, reloaders[0].reloads + reloaders[1].reloads);
    assert_int_equal(stats.handshakes, CALLERS);
    assert_int_equal(stats.failed, 0);
    town_close(&self);
}

/* What cannot encrypt is taken out of the pipeline, and nothing goes out in the clear meanwhile. */
typedef struct leaker {
    weir_tls tls;
    weir_group *group;
} leaker;

static void leaker_on_active(weir_ctx *ctx)
{
    weir_ctx_write_and_flush(ctx, weir_buf_msg(weir_buf_from("secret", 6)), NULL);
    weir_ctx_fire_active(ctx);
}

static void leaker_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)ctx, (void)error;
}

static const weir_handler_type leaking = { .name = "leaking",
                                           .on_active = leaker_on_active,
                                           .on_error = leaker_on_error };

static int init_leaker(weir_channel *channel, void *arg)
{
    leaker *self = arg;
    int code = town_add_tls(channel, "tls", &self->tls, self->group);
    if (code == 0)
        code = weir_pipeline_add_last(weir_channel_pipeline(channel), "leaking", &leaking, NULL);
    weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("secret", 6)), NULL);
    return code;
}

static void nothing_goes_out_in_the_clear(void **state)
{
    weir_group *others = new_group_of(1), *clients = loops_of(*state, 1);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof name;
    assert_int_equal(bind(listener, (struct sockaddr *)&name, length), 0);
    assert_int_equal(listen(listener, 10), 0);
    getsockname(listener, (struct sockaddr *)&name, &length);
    for (int i = 0; i < 40; i++) {
        leaker self = { .group = i % 2 == 0 ? others : NULL }; /* without a context */
        weir_client_config config = { .group = clients, .init = init_leaker, .arg = &self };
        weir_channel *channel = NULL;
        char address[32], heard[16];
        snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(name.sin_port));
        harness_log_begin(WEIR_LOG_ERROR);
        int code = weir_client_connect(&channel, &config, address, NULL);
        if (code == 0) {
            int fd = accept(listener, NULL, NULL);
            assert_int_equal(recv(fd, heard, sizeof heard, 0) > 0, 0);
            close(fd);
            town_hang_up(channel);
        }
        harness_log_end();
        struct pollfd left = { .fd = listener, .events = POLLIN };
        while (poll(&left, 1, 0) > 0) { /* of those that were closed before they were told of */
            int fd = accept(listener, NULL, NULL);
            assert_int_equal(recv(fd, heard, sizeof heard, 0) > 0, 0);
            close(fd);
        }
    }
    close(listener);
    end_group(clients);
    end_group(others);
}

/* The network is slow and cuts as it likes; no thread, and no time but the simulation's. */
static void an_echo_over_the_simulated_network(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        town self = { .place = ON_LOOP };
        caller by;
        weir_sim *sim;
        weir_sim_host *here, *there;
        self.contexts[0] = pair_server_context(NULL);
        self.contexts[1] = pair_client_context(NULL);
        self.tls.context = self.contexts[0];
        weir_sim_config config = { .seed = seed,
                                   .link.jitter_ns = WEIR_MS(5),
                                   .short_read = 0.5,
                                   .short_write = 0.5,
                                   .reorder = 0.3,
                                   .interrupt = 0.1 };
        assert_int_equal(weir_sim_new(&sim, &config, NULL), 0);
        assert_int_equal(weir_sim_add_host(sim, &there, "server", "10.0.0.1"), 0);
        assert_int_equal(weir_sim_add_host(sim, &here, "client", "10.0.0.2"), 0);
        assert_int_equal(weir_sim_add_group(there, &self.loops, NULL, NULL), 0);
        assert_int_equal(weir_sim_add_group(here, &self.clients, NULL, NULL), 0);
        weir_server_config served = { .workers = self.loops,
                                      .init_child = town_init_child,
                                      .arg = &self };
        assert_int_equal(weir_server_listen(&self.server, &served, ":443", NULL), 0);
        snprintf(self.address, sizeof self.address, "server:443");
        weir_channel *channel = town_call(&self, &by);
        town_say(channel, 300000);
        weir_sim_run(sim, WEIR_SECONDS(60));
        assert_int_equal(atomic_load(&by.last_error), 0);
        assert_int_equal(atomic_load(&by.heard), 300000);
        assert_int_equal(atomic_load(&by.wrong), 0);
        weir_channel_close(channel, NULL);
        weir_sim_run(sim, WEIR_SECONDS(10));
        assert_int_equal(atomic_load(&self.inactives), 1);
        assert_int_equal(atomic_load(&self.errors), 0);
        weir_channel_release(channel);
        weir_channel_release(self.accepted);
        weir_server_release(self.server);
        weir_sim_free(sim);
        weir_tls_context_release(self.contexts[0]);
        weir_tls_context_release(self.contexts[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(s133_an_echo_over_sockets),
        each_backend(an_echo_in_the_process),
        each_backend(an_echo_over_a_path),
        epoll_only(nothing_is_relayed_past_it),
        epoll_only(a_relay_past_tls_is_rejected_for_good_also_while_it_sends),
        weir_case(bad_config_fails_the_promise_of_the_add),
        weir_case(answers_to_key_updates_are_bounded_elsewhere),
        weir_case(a_record_that_is_refused_ends_the_connection_elsewhere),
        each_backend(something_happens_meanwhile),
        epoll_only(an_abandoned_step_is_cancelled),
        epoll_only(the_loops_end_meanwhile),
        each_backend(loops_that_end_say_goodbye),
        each_backend(executors_that_have_ended_are_done_without),
        epoll_only(reloading_goes_on_beside_handshakes),
        epoll_only(two_threads_reload_beside_handshakes),
        each_backend(nothing_goes_out_in_the_clear),
        weir_case(an_echo_over_the_simulated_network),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
