/* SPDX-License-Identifier: MIT */
/* The simulated network: each of its troubles is what was asked for, and the rest is as on Linux.
 */
#include "harness.h"

#include <weir/sim.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two hosts, each with a group, and a server that keeps what it gets --------------------------- */

#define MOST_SEEN 8

/* What one end of a connection has seen. */
typedef struct end {
    weir_channel *channel; /* borrowed, while it is active */
    uint8_t bytes[200000];
    size_t count, reads;
    int64_t active_ns, first_ns, last_ns, inactive_ns;
    int error;
    bool is_over, has_input_ended;
} end;

static weir_sim *sim;
static weir_sim_host *here, *there;
static weir_group *clients, *servers;
static weir_server *server;
static end near, far; /* the client's end, and that of the first that was accepted */
static unsigned accepted;
static bool is_echoing, reads_nothing;

static void end_on_active(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    self->channel = weir_ctx_channel(ctx);
    self->active_ns = weir_sim_now_ns(sim);
    weir_ctx_fire_active(ctx);
}

static void end_on_read(weir_ctx *ctx, weir_msg *msg)
{
    end *self = weir_ctx_arg(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    size_t length = weir_buf_readable(buf);
    assert_true(self->count + length <= sizeof self->bytes);
    weir_buf_get_bytes(buf, weir_buf_reader(buf), self->bytes + self->count, length);
    self->count += length;
    self->last_ns = weir_sim_now_ns(sim);
    if (self->reads++ == 0)
        self->first_ns = self->last_ns;
    if (is_echoing && self != &near)
        weir_ctx_write_and_flush(ctx, msg, NULL);
    else
        weir_msg_release(msg);
}

static void end_on_event(weir_ctx *ctx, weir_msg *event)
{
    end *self = weir_ctx_arg(ctx);
    self->has_input_ended |= event == &weir_event_input_closed;
    weir_ctx_fire_event(ctx, event);
}

static void end_on_inactive(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    self->is_over = true;
    self->channel = NULL;
    self->inactive_ns = weir_sim_now_ns(sim);
    weir_ctx_fire_inactive(ctx);
}

static void end_on_error(weir_ctx *ctx, const weir_error *error)
{
    end *self = weir_ctx_arg(ctx);
    if (self->error == 0)
        self->error = error->code;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type end_type = {
    .name = "end",
    .on_active = end_on_active,
    .on_read = end_on_read,
    .on_event = end_on_event,
    .on_inactive = end_on_inactive,
    .on_error = end_on_error,
};

static int init_near(weir_channel *channel, void *arg)
{
    (void)arg;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "end", &end_type, &near);
}

static int init_far(weir_channel *channel, void *arg)
{
    static end others;
    (void)arg;
    end *self = accepted++ == 0 ? &far : &others;
    others.count = 0;
    if (reads_nothing)
        weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "end", &end_type, self);
}

static void open_sim(const weir_sim_config *config)
{
    assert_int_equal(weir_sim_new(&sim, config, NULL), 0);
    assert_int_equal(weir_sim_add_host(sim, &there, "there", "10.0.0.1"), 0);
    assert_int_equal(weir_sim_add_host(sim, &here, "here", "10.0.0.2"), 0);
    assert_int_equal(weir_sim_add_group(there, &servers, NULL, NULL), 0);
    assert_int_equal(weir_sim_add_group(here, &clients, NULL, NULL), 0);
    memset(&near, 0, sizeof near);
    memset(&far, 0, sizeof far);
    accepted = 0;
    is_echoing = reads_nothing = false;
    server = NULL;
}

static void listen_on(const char *address)
{
    weir_error error;
    int code = weir_server_listen(
        &server, &(weir_server_config){ .workers = servers, .init_child = init_far }, address,
        &error);
    if (code < 0)
        fail_msg("%s", error.message);
}

static const weir_client_config *client_config(void)
{
    static weir_client_config config;
    config = (weir_client_config){ .group = clients, .init = init_near };
    return &config;
}

/* Nobody keeps a reference. */
static int connect_to(const char *address)
{
    weir_channel *channel = NULL;
    int code = weir_client_connect(&channel, client_config(), address, NULL);
    weir_channel_release(channel);
    return code;
}

static void close_sim(void)
{
    weir_server_close(server, NULL);
    weir_server_release(server);
    assert_int_equal(weir_sim_finish(sim), 0);
    weir_sim_free(sim);
}

static void close_sim_without_server(void)
{
    assert_int_equal(weir_sim_finish(sim), 0);
    weir_sim_free(sim);
}

/* A server on port 80, and a connection to it. */
static void open_connection(const weir_sim_config *config)
{
    open_sim(config);
    listen_on("10.0.0.1:80");
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    assert_non_null(near.channel);
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 31 ^ i >> 8);
}

static void say(weir_channel *channel, size_t length)
{
    weir_buf *buf = weir_buf_new(length);
    assert_non_null(buf);
    uint8_t *bytes = weir_buf_write_ptr(buf, length);
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at(i);
    weir_buf_advance_writer(buf, length);
    weir_channel_write_and_flush(channel, weir_buf_msg(buf), NULL);
}

static bool far_is_there(void *arg)
{
    (void)arg;
    return far.channel != NULL;
}

static void wait_for_far(void)
{
    assert_int_equal(weir_sim_run_until(sim, far_is_there, NULL, WEIR_SECONDS(10)), 0);
}

static void assert_heard(const end *self, size_t length)
{
    assert_int_equal(self->count, length);
    for (size_t i = 0; i < length; i++)
        assert_int_equal(self->bytes[i], byte_at(i));
}

/* Time ----------------------------------------------------------------------------------------- */

static void everything_takes_the_latency(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .link.latency_ns = WEIR_MS(5) });
    assert_int_equal(near.active_ns, WEIR_MS(10)); /* there and back */
    assert_int_equal(weir_sim_run(sim, WEIR_MS(100)), -EDEADLK);
    assert_int_equal(far.active_ns, WEIR_MS(15));
    assert_int_equal(weir_sim_now_ns(sim), WEIR_MS(15));
    is_echoing = true;
    say(near.channel, 100);
    assert_int_equal(weir_sim_run(sim, WEIR_MS(1000)), -EDEADLK);
    assert_heard(&far, 100);
    assert_int_equal(far.first_ns, WEIR_MS(20));
    assert_heard(&near, 100);
    assert_int_equal(near.first_ns, WEIR_MS(25));
    close_sim();
}

static void a_calm_network_takes_a_tenth_of_a_millisecond(void **state)
{
    (void)state;
    open_connection(NULL);
    assert_int_equal(near.active_ns, 200000);
    close_sim();
    open_connection(&(weir_sim_config){ .link.latency_ns = WEIR_OFF });
    assert_int_equal(near.active_ns, 0);
    close_sim();
}

static void jitter_is_drawn_within_its_range(void **state)
{
    (void)state;
    int64_t least = INT64_MAX, most = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        open_connection(&(weir_sim_config){
            .seed = seed, .link.latency_ns = WEIR_MS(10), .link.jitter_ns = WEIR_MS(10) });
        wait_for_far();
        int64_t start_ns = weir_sim_now_ns(sim);
        say(near.channel, 1);
        assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(1)), -EDEADLK);
        int64_t taken_ns = far.first_ns - start_ns;
        least = taken_ns < least ? taken_ns : least;
        most = taken_ns > most ? taken_ns : most;
        close_sim();
    }
    assert_true(least >= WEIR_MS(10) && least < WEIR_MS(12));
    assert_true(most <= WEIR_MS(20) && most > WEIR_MS(18));
}

static void jitter_does_not_change_the_order(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .seed = 5,
                                        .link.latency_ns = 1000,
                                        .link.jitter_ns = WEIR_MS(50),
                                        .short_read = 0.9,
                                        .short_write = 0.5 });
    say(near.channel, 100000);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(1000)), -EDEADLK);
    assert_heard(&far, 100000);
    assert_true(far.reads > 100);
    close_sim();
}

static void a_slow_link_takes_its_time(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .link.bytes_per_second = 1000 });
    wait_for_far();
    int64_t start_ns = weir_sim_now_ns(sim);
    say(near.channel, 10000);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(100)), -EDEADLK);
    assert_heard(&far, 10000);
    assert_in_range(far.last_ns - start_ns, WEIR_SECONDS(10), WEIR_SECONDS(10) + WEIR_MS(1));
    assert_true(far.first_ns - start_ns < WEIR_SECONDS(2)); /* not all of it at the end */
    close_sim();
}

static void the_clock_stops_where_it_was_told_to(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .link.latency_ns = WEIR_MS(10) });
    wait_for_far();
    int64_t start_ns = weir_sim_now_ns(sim);
    say(near.channel, 1);
    assert_int_equal(weir_sim_run(sim, start_ns + WEIR_MS(9)), 0);
    assert_int_equal(weir_sim_now_ns(sim), start_ns + WEIR_MS(9));
    assert_int_equal(far.count, 0);
    assert_int_equal(weir_sim_run(sim, start_ns + WEIR_MS(10)), 0);
    assert_int_equal(far.count, 1);
    assert_int_equal(weir_sim_run(sim, 0), 0); /* that was long ago */
    assert_int_equal(weir_sim_now_ns(sim), start_ns + WEIR_MS(10));
    close_sim();
}

static int count_call(void *count)
{
    ++*(int *)count;
    return 0;
}

static void timers_fire_at_their_time(void **state)
{
    (void)state;
    int count = 0;
    open_sim(NULL);
    weir_executor *loop = weir_group_at(clients, 0);
    assert_int_equal(weir_executor_schedule(loop, count_call, &count, WEIR_SECONDS(3600), NULL), 0);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(3600) - 1), 0);
    assert_int_equal(count, 0);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(3600)), 0);
    assert_int_equal(count, 1);
    close_sim_without_server();
}

/* Waiting ------------------------------------------------------------------------------------- */

static void what_never_happens_is_said_so(void **state)
{
    (void)state;
    open_sim(NULL);
    listen_on(":80");
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(1)), -EDEADLK);
    assert_int_equal(weir_sim_wait(sim, future, -1), -EDEADLK);
    assert_int_equal(weir_sim_wait(sim, future, WEIR_SECONDS(1)), -EDEADLK);
    assert_int_equal(weir_future_await(future), -EDEADLK);
    int count = 0;
    weir_executor_schedule(weir_group_at(clients, 0), count_call, &count, WEIR_SECONDS(10), NULL);
    assert_int_equal(weir_sim_wait(sim, future, WEIR_SECONDS(1)), -ETIMEDOUT);
    assert_int_equal(weir_sim_now_ns(sim), WEIR_SECONDS(1));
    weir_promise_set(promise, -EIO);
    assert_int_equal(weir_sim_wait(sim, future, 0), 0);
    weir_promise_release(promise);
    close_sim();
}

static bool is_restless;

static int post_again(weir_task *task)
{
    weir_group *other = weir_executor_group(weir_executor_current()) == clients ? servers : clients;
    if (is_restless)
        weir_executor_post(weir_group_at(other, 0), task);
    return 0;
}

static void what_never_ends_is_said_so(void **state)
{
    (void)state;
    open_sim(NULL);
    weir_task task = { .run = post_again };
    is_restless = true;
    weir_executor_post(weir_group_at(clients, 0), &task);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(1)), -ELOOP);
    is_restless = false;
    close_sim_without_server();
}

static int run_inside(void *arg)
{
    int *code = arg;
    weir_group *group;
    code[0] = weir_sim_run(sim, WEIR_SECONDS(1));
    code[1] = weir_sim_add_group(here, &group, NULL, NULL);
    return 0;
}

static void it_is_not_run_from_inside(void **state)
{
    (void)state;
    int codes[2] = { 0 };
    open_sim(NULL);
    weir_executor_schedule(weir_group_at(clients, 0), run_inside, codes, 1000, NULL);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(1)), -EDEADLK);
    assert_int_equal(codes[0], -EDEADLK);
    assert_int_equal(codes[1], -EDEADLK);
    close_sim_without_server();
}

/* Connecting ---------------------------------------------------------------------------------- */

static void nobody_listens(void **state)
{
    (void)state;
    open_sim(&(weir_sim_config){ .link.latency_ns = WEIR_MS(7) });
    assert_int_equal(connect_to("10.0.0.1:80"), -ECONNREFUSED);
    assert_int_equal(weir_sim_now_ns(sim), WEIR_MS(14));
    weir_sim_stats stats;
    weir_sim_get_stats(sim, &stats);
    assert_int_equal(stats.refused, 1);
    close_sim_without_server();
}

static void refused_though_somebody_listens(void **state)
{
    (void)state;
    open_sim(&(weir_sim_config){ .link.refuse = 1 });
    listen_on(":80");
    assert_int_equal(connect_to("10.0.0.1:80"), -ECONNREFUSED);
    weir_sim_set_link(here, there, &(weir_sim_link){ 0 }, NULL);
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    close_sim();
}

static void nobody_is_there(void **state)
{
    (void)state;
    open_sim(&(weir_sim_config){ .timeout_ns = WEIR_SECONDS(40) });
    assert_int_equal(connect_to("10.0.0.77:80"), -ETIMEDOUT);
    assert_int_equal(weir_sim_now_ns(sim), WEIR_SECONDS(30)); /* the client's own patience */
    weir_channel *channel;
    weir_client_config config = *client_config();
    config.connect_timeout_ns = WEIR_OFF;
    assert_int_equal(weir_client_connect(&channel, &config, "10.0.0.77:80", NULL), -ETIMEDOUT);
    assert_int_equal(weir_sim_now_ns(sim), WEIR_SECONDS(70)); /* the network's */
    close_sim_without_server();
}

static void names_are_those_of_hosts(void **state)
{
    (void)state;
    open_sim(NULL);
    assert_int_equal(weir_sim_add_address(there, "fd00::1"), 0);
    listen_on("there:80");
    assert_int_equal(connect_to("there:80"), 0);
    assert_int_equal(connect_to("nowhere:80"), WEIR_ENONAME);
    /* An address of a family that the host does not have itself cannot be reached. */
    assert_int_equal(connect_to("[fd00::1]:80"), -ENETUNREACH);
    close_sim();
}

static void a_listener_for_both_families_sees_both(void **state)
{
    (void)state;
    open_sim(NULL);
    assert_int_equal(weir_sim_add_address(there, "fd00::1"), 0);
    assert_int_equal(weir_sim_add_address(here, "fd00::2"), 0);
    listen_on(":80");
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    wait_for_far();
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    assert_int_equal(weir_channel_remote_address(far.channel, &address), 0);
    assert_true(weir_address_unmap(&address));
    weir_address_set_port(&address, 0);
    weir_address_text(&address, text, sizeof text);
    assert_string_equal(text, "10.0.0.2:0");
    assert_int_equal(weir_channel_local_address(near.channel, &address), 0);
    weir_address_set_port(&address, 0);
    weir_address_text(&address, text, sizeof text);
    assert_string_equal(text, "10.0.0.2:0");
    assert_int_equal(connect_to("[fd00::1]:80"), 0);
    close_sim();
}

static void a_host_reaches_itself_at_once(void **state)
{
    (void)state;
    open_sim(&(weir_sim_config){ .link.latency_ns = WEIR_SECONDS(1) });
    int code = weir_server_listen(
        &server, &(weir_server_config){ .workers = clients, .init_child = init_far },
        "127.0.0.1:80", NULL);
    assert_int_equal(code, 0);
    assert_int_equal(connect_to("127.0.0.1:80"), 0);
    assert_int_equal(weir_sim_now_ns(sim), 0);
    assert_int_equal(connect_to("10.0.0.2:80"), -ECONNREFUSED); /* only on loopback */
    close_sim();
}

static void a_port_is_taken_once(void **state)
{
    (void)state;
    weir_server *second;
    weir_server_config config = { .workers = servers, .init_child = init_far };
    open_sim(NULL);
    config.workers = servers;
    listen_on("10.0.0.1:80");
    assert_int_equal(weir_server_listen(&second, &config, "10.0.0.1:80", NULL), -EADDRINUSE);
    assert_int_equal(weir_server_listen(&second, &config, ":80", NULL), -EADDRINUSE);
    assert_int_equal(weir_server_listen(&second, &config, "10.0.0.2:80", NULL), -EADDRNOTAVAIL);
    assert_int_equal(weir_server_listen(&second, &config, "10.0.0.1:0", NULL), 0);
    weir_address address;
    assert_int_equal(weir_server_address(second, &address), 0);
    assert_true(weir_address_port(&address) >= 32768);
    weir_server_close(second, NULL);
    weir_server_release(second);
    config.workers = clients; /* another host has ports of its own */
    assert_int_equal(weir_server_listen(&second, &config, ":80", NULL), 0);
    weir_server_close(second, NULL);
    weir_server_release(second);
    close_sim();
}

static void several_acceptors_share_a_port(void **state)
{
    (void)state;
    weir_group *bosses;
    open_sim(&(weir_sim_config){ .seed = 3 });
    assert_int_equal(weir_sim_add_group(there, &bosses, &(weir_group_config){ .loops = 2 }, NULL),
                     0);
    weir_server_config config = {
        .boss = bosses, .workers = servers, .init_child = init_far, .acceptors = 2
    };
    assert_int_equal(weir_server_listen(&server, &config, ":80", NULL), 0);
    for (int i = 0; i < 30; i++)
        assert_int_equal(connect_to("10.0.0.1:80"), 0);
    weir_sim_run(sim, WEIR_SECONDS(1));
    for (size_t i = 0; i < 2; i++) {
        weir_channel *listener = weir_server_listener(server, i);
        weir_listener_stats stats;
        assert_int_equal(weir_channel_listener_stats(listener, &stats), 0);
        assert_in_range(stats.accepted, 5, 25);
        weir_channel_release(listener);
    }
    close_sim();
}

static void a_full_backlog_is_asked_again(void **state)
{
    (void)state;
    open_sim(NULL);
    weir_server_config config = {
        .workers = servers, .init_child = init_far, .backlog = 1, .max_connections = 1
    };
    assert_int_equal(weir_server_listen(&server, &config, ":80", NULL), 0);
    weir_promise *promises[5];
    for (int i = 0; i < 5; i++) {
        promises[i] = weir_promise_new(NULL);
        weir_client_start(client_config(), "10.0.0.1:80", promises[i], NULL);
    }
    weir_sim_run(sim, WEIR_SECONDS(5));
    int connected = 0;
    for (int i = 0; i < 5; i++)
        connected += weir_future_is_done(weir_promise_future(promises[i]));
    assert_int_equal(connected, 3); /* one is accepted, two wait, two are not heard */
    weir_sim_run(sim, WEIR_SECONDS(40));
    for (int i = 0; i < 5; i++) {
        assert_true(weir_future_is_done(weir_promise_future(promises[i])));
        connected -= weir_future_code(weir_promise_future(promises[i])) == 0;
        weir_promise_release(promises[i]);
    }
    assert_int_equal(connected, 0);
    close_sim();
}

static void descriptors_run_out(void **state)
{
    (void)state;
    open_sim(NULL);
    listen_on(":80");
    weir_sim_limit_descriptors(there, 4); /* epoll, eventfd, the listener, and its reserve */
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_int_equal(accepted, 0);
    assert_true(near.is_over); /* politely refused */
    weir_listener_stats stats;
    weir_server_get_stats(server, &stats);
    assert_int_equal(stats.refused, 1);
    weir_sim_limit_descriptors(there, 0);
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    weir_sim_run(sim, WEIR_SECONDS(5));
    assert_int_equal(accepted, 1);
    weir_sim_limit_descriptors(here, 3);
    assert_int_equal(connect_to("10.0.0.1:80"), -EMFILE);
    close_sim();
}

static void channels_are_made_by_hand_too(void **state)
{
    (void)state;
    open_sim(NULL);
    listen_on(":80");
    weir_address address;
    weir_channel *channel;
    assert_int_equal(weir_address_parse(&address, "10.0.0.1:80", NULL), 0);
    assert_int_equal(weir_sim_channel_new(here, &channel, WEIR_SOCKET_STREAM, &address, NULL), 0);
    init_near(channel, NULL);
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_register(channel, weir_group_at(clients, 0), NULL);
    weir_channel_connect(channel, &address, NULL, promise);
    assert_int_equal(weir_sim_wait(sim, weir_promise_future(promise), -1), 0);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), 0);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_NO_DELAY, 0, NULL), 0);
    weir_sim_run(sim, WEIR_SECONDS(1));
    int64_t value;
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_NO_DELAY, &value), 0);
    assert_int_equal(value, 0);
    weir_promise_release(promise);
    weir_channel_release(channel);
    close_sim();
}

/* Ends ---------------------------------------------------------------------------------------- */

static void a_lost_connection_is_reset_at_both_ends(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .link.latency_ns = WEIR_MS(5) });
    wait_for_far();
    say(near.channel, 100);
    weir_sim_run(sim, weir_sim_now_ns(sim) + WEIR_MS(1)); /* they are under way */
    assert_int_equal(weir_sim_reset(here, there), 1);
    int64_t start_ns = weir_sim_now_ns(sim);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_int_equal(near.error, -ECONNRESET);
    assert_int_equal(far.error, -ECONNRESET);
    assert_int_equal(far.count, 0);
    assert_int_equal(near.inactive_ns, start_ns + WEIR_MS(5));
    weir_sim_stats stats;
    weir_sim_get_stats(sim, &stats);
    assert_int_equal(stats.resets, 1);
    assert_int_equal(stats.connections, 0);
    close_sim();
}

static void sends_lose_connections_by_chance(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .link.reset = 1 });
    wait_for_far();
    say(near.channel, 100);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_int_equal(near.error, -ECONNRESET);
    assert_int_equal(far.error, -ECONNRESET);
    assert_int_equal(far.count, 0);
    close_sim();
}

static void a_close_is_the_end_of_the_stream(void **state)
{
    (void)state;
    open_connection(NULL);
    say(near.channel, 50000);
    weir_channel_finish(near.channel, NULL);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_heard(&far, 50000);
    assert_true(near.is_over && far.is_over);
    assert_int_equal(near.error, 0);
    assert_int_equal(far.error, 0);
    close_sim();
}

static void who_closes_without_reading_resets(void **state)
{
    (void)state;
    open_sim(NULL);
    reads_nothing = true;
    listen_on(":80");
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    wait_for_far();
    say(near.channel, 10);
    weir_sim_run(sim, WEIR_SECONDS(1));
    weir_channel_close(far.channel, NULL);
    weir_sim_run(sim, WEIR_SECONDS(2));
    assert_int_equal(near.error, -ECONNRESET);
    close_sim();
}

static void linger_0_resets(void **state)
{
    (void)state;
    open_connection(NULL);
    wait_for_far();
    assert_int_equal(weir_channel_set_option(near.channel, WEIR_OPTION_CLOSE_LINGER_NS, 0, NULL),
                     0);
    weir_channel_close(near.channel, NULL);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_int_equal(far.error, -ECONNRESET);
    close_sim();
}

static void linger_waits_for_the_other_side(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .link.latency_ns = WEIR_MS(300) });
    wait_for_far();
    assert_int_equal(
        weir_channel_set_option(near.channel, WEIR_OPTION_CLOSE_LINGER_NS, WEIR_SECONDS(10), NULL),
        0);
    int64_t start_ns = weir_sim_now_ns(sim);
    weir_channel_close(near.channel, NULL);
    weir_sim_run(sim, start_ns + WEIR_SECONDS(5));
    assert_in_range(near.inactive_ns - start_ns, WEIR_MS(300), WEIR_MS(400));
    close_sim();
}

static void each_direction_ends_alone(void **state)
{
    (void)state;
    open_connection(NULL);
    wait_for_far();
    weir_channel_set_option(far.channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1, NULL);
    weir_sim_run(sim, WEIR_MS(500));
    weir_channel_shutdown(near.channel, NULL);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_true(far.has_input_ended);
    assert_false(far.is_over);
    say(far.channel, 1000);
    weir_sim_run(sim, WEIR_SECONDS(2));
    assert_heard(&near, 1000);
    weir_channel_close(far.channel, NULL);
    weir_sim_run(sim, WEIR_SECONDS(3));
    assert_true(near.is_over);
    assert_int_equal(near.error, 0);
    close_sim();
}

/* Partitions ---------------------------------------------------------------------------------- */

static void what_is_cut_waits_until_it_is_mended(void **state)
{
    (void)state;
    open_connection(NULL);
    wait_for_far();
    weir_sim_cut(here, there, -1);
    say(near.channel, 1000);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(50)), 0);
    assert_int_equal(far.count, 0);
    weir_sim_mend(here, there);
    weir_sim_run(sim, WEIR_SECONDS(60));
    assert_heard(&far, 1000);
    assert_in_range(far.first_ns, WEIR_SECONDS(50), WEIR_SECONDS(51));
    close_sim();
}

static void a_cut_for_a_time_mends_itself(void **state)
{
    (void)state;
    open_connection(NULL);
    wait_for_far();
    weir_sim_cut(here, NULL, WEIR_SECONDS(3));
    int64_t start_ns = weir_sim_now_ns(sim);
    is_echoing = true;
    say(near.channel, 1000);
    weir_sim_run(sim, WEIR_SECONDS(60));
    assert_heard(&near, 1000);
    assert_in_range(far.first_ns - start_ns, WEIR_SECONDS(3), WEIR_SECONDS(3) + WEIR_MS(1));
    close_sim();
}

static void a_cut_for_too_long_breaks_the_sender(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .timeout_ns = WEIR_SECONDS(20) });
    wait_for_far();
    weir_sim_cut(there, here, -1);
    say(near.channel, 1000);
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(100)), -EDEADLK);
    assert_int_equal(near.error, -ETIMEDOUT);
    assert_in_range(near.inactive_ns, WEIR_SECONDS(20), WEIR_SECONDS(21));
    assert_false(far.is_over); /* nobody has told it */
    weir_sim_mend(there, here);
    say(far.channel, 10); /* and now somebody does */
    assert_int_equal(weir_sim_run(sim, WEIR_SECONDS(200)), -EDEADLK);
    assert_int_equal(far.error, -ECONNRESET);
    close_sim();
}

static void connecting_through_a_cut(void **state)
{
    (void)state;
    open_sim(NULL);
    listen_on(":80");
    weir_sim_cut(here, there, WEIR_SECONDS(10));
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    assert_in_range(near.active_ns, WEIR_SECONDS(10), WEIR_SECONDS(12));
    weir_sim_cut(here, there, -1);
    assert_int_equal(connect_to("10.0.0.1:80"), -ETIMEDOUT);
    close_sim();
}

static void sends_cut_by_chance(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .seed = 1, .link.cut = 1, .link.cut_ns = WEIR_SECONDS(4) });
    wait_for_far();
    weir_sim_set_link(there, here, &(weir_sim_link){ 0 }, NULL);
    int64_t start_ns = weir_sim_now_ns(sim);
    say(near.channel, 10);
    weir_sim_run(sim, WEIR_SECONDS(100));
    assert_heard(&far, 10);
    assert_in_range(far.first_ns - start_ns, WEIR_MS(1), WEIR_SECONDS(4) + WEIR_MS(1));
    weir_sim_stats stats;
    weir_sim_get_stats(sim, &stats);
    assert_int_equal(stats.cuts, 2); /* the connect, and the send */
    close_sim();
}

/* Slow peers ---------------------------------------------------------------------------------- */

static void who_does_not_read_holds_up_who_sends(void **state)
{
    (void)state;
    open_sim(&(weir_sim_config){ .link.window_bytes = 1000 });
    reads_nothing = true;
    listen_on(":80");
    assert_int_equal(connect_to("10.0.0.1:80"), 0);
    wait_for_far();
    say(near.channel, 150000);
    weir_sim_run(sim, WEIR_SECONDS(1));
    weir_sim_stats stats;
    weir_sim_get_stats(sim, &stats);
    assert_int_equal(stats.bytes_sent, 1000);
    assert_int_equal(stats.bytes_received, 0);
    assert_false(weir_channel_is_writable(near.channel));
    weir_channel_set_option(far.channel, WEIR_OPTION_AUTO_READ, 1, NULL);
    weir_sim_run(sim, WEIR_SECONDS(10));
    assert_heard(&far, 150000);
    assert_true(weir_channel_is_writable(near.channel));
    /* A window each way there and back. */
    assert_true(far.last_ns - far.first_ns >= 100 * 200000);
    close_sim();
}

static void reads_and_writes_are_short_by_chance(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .seed = 9, .short_read = 1, .short_write = 1 });
    is_echoing = true;
    say(near.channel, 50000);
    weir_sim_run(sim, WEIR_SECONDS(10));
    assert_heard(&near, 50000);
    assert_true(near.reads > 5 && far.reads > 5);
    close_sim();
}

static void calls_are_interrupted_by_chance(void **state)
{
    (void)state;
    open_connection(&(weir_sim_config){ .seed = 9, .interrupt = 0.7, .short_read = 0.5 });
    is_echoing = true;
    say(near.channel, 20000);
    weir_sim_run(sim, WEIR_SECONDS(10));
    assert_heard(&near, 20000);
    close_sim();
}

/* The order in which two clients are accepted that come at the same time. */
static bool is_second_first(uint64_t seed, double reorder)
{
    open_sim(&(weir_sim_config){ .seed = seed, .reorder = reorder });
    weir_group *two;
    assert_int_equal(weir_sim_add_group(here, &two, &(weir_group_config){ .loops = 2 }, NULL), 0);
    listen_on(":80");
    weir_client_config config = *client_config();
    config.group = two;
    weir_promise *promises[2];
    for (int i = 0; i < 2; i++) {
        promises[i] = weir_promise_new(NULL);
        config.loop = weir_group_loop_at(two, (size_t)i);
        assert_int_equal(weir_client_start(&config, "10.0.0.1:80", promises[i], NULL), 0);
    }
    weir_sim_run(sim, WEIR_SECONDS(1));
    weir_address first;
    weir_channel *channel = weir_future_value(weir_promise_future(promises[0]));
    assert_int_equal(weir_channel_local_address(channel, &first), 0);
    bool is_second = weir_address_port(&first) != 32768;
    weir_promise_release(promises[0]);
    weir_promise_release(promises[1]);
    close_sim();
    return is_second;
}

static void loops_have_their_turns_in_any_order(void **state)
{
    (void)state;
    int seconds = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        assert_false(is_second_first(seed, 0));
        seconds += is_second_first(seed, 1);
    }
    assert_in_range(seconds, 10, 40);
}

/* Unix sockets -------------------------------------------------------------------------------- */

static void unix_sockets_are_their_hosts(void **state)
{
    (void)state;
    weir_server *second;
    open_sim(NULL);
    listen_on("unix:/run/it");
    assert_int_equal(connect_to("unix:/run/it"), -ENOENT); /* that is another host's */
    weir_client_config config = *client_config();
    weir_server_config same = { .workers = servers, .init_child = init_far };
    config.group = servers;
    weir_channel *channel;
    assert_int_equal(weir_client_connect(&channel, &config, "unix:/run/it", NULL), 0);
    assert_int_equal(weir_sim_now_ns(sim), 0);
    wait_for_far();
    is_echoing = true;
    say(channel, 100000);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_heard(&near, 100000);
    assert_int_equal(weir_server_listen(&second, &same, "unix:/run/it", NULL), -EADDRINUSE);
    weir_server_close(server, NULL);
    weir_sim_run(sim, WEIR_SECONDS(2));
    weir_server_release(server);
    assert_int_equal(weir_server_listen(&server, &same, "unix:/run/it", NULL), 0);
    weir_channel_release(channel);
    assert_int_equal(weir_client_connect(&channel, &config, "unix:@nobody", NULL), -ECONNREFUSED);
    close_sim();
}

/* Datagrams ----------------------------------------------------------------------------------- */

static unsigned datagrams;

static void datagram_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_datagram *in = (weir_datagram *)msg;
    datagrams++;
    assert_int_equal(weir_buf_readable(in->content), 5);
    if (weir_ctx_arg(ctx) != NULL) {
        weir_datagram *answer = weir_datagram_answer(in, weir_buf_from("hello", 5));
        weir_ctx_write_and_flush(ctx, &answer->msg, NULL);
    }
    weir_msg_release(msg);
}

static const weir_handler_type datagram_type = { .name = "datagram", .on_read = datagram_on_read };

static int init_datagram(weir_channel *channel, void *what)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "datagram", &datagram_type, what);
}

static unsigned exchange_datagrams(const weir_sim_config *config)
{
    static char is_server;
    weir_channel *one, *other;
    weir_address to;
    open_sim(config);
    datagrams = 0;
    weir_client_config at = { .group = servers, .init = init_datagram, .arg = &is_server };
    assert_int_equal(weir_client_bind(&one, &at, "10.0.0.1:53", NULL), 0);
    at.group = clients;
    at.arg = NULL;
    assert_int_equal(weir_client_bind(&other, &at, "0.0.0.0:0", NULL), 0);
    weir_address_parse(&to, "10.0.0.1:53", NULL);
    for (int i = 0; i < 10; i++) {
        weir_datagram *datagram = weir_datagram_new(weir_buf_from("hello", 5), &to, NULL);
        weir_channel_write_and_flush(other, &datagram->msg, NULL);
    }
    weir_sim_run(sim, WEIR_SECONDS(1));
    weir_channel_release(one);
    weir_channel_release(other);
    close_sim_without_server();
    return datagrams;
}

static void datagrams_get_lost_and_come_twice(void **state)
{
    (void)state;
    assert_int_equal(exchange_datagrams(NULL), 20);
    assert_int_equal(exchange_datagrams(&(weir_sim_config){ .link.lose = 1 }), 0);
    assert_int_equal(exchange_datagrams(&(weir_sim_config){ .link.duplicate = 1 }),
                     10 * 2 + 20 * 2);
    unsigned some = exchange_datagrams(&(weir_sim_config){ .seed = 4, .link.lose = 0.5 });
    assert_in_range(some, 1, 19);
}

/* Files --------------------------------------------------------------------------------------- */

static void files_are_real(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-sim-XXXXXX";
    uint8_t bytes[50000];
    int fd = mkstemp(path);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = byte_at(i);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    open_connection(NULL);
    weir_file_region *region = weir_file_region_new(fd, 0, sizeof bytes);
    weir_channel_write_and_flush(near.channel, &region->msg, NULL);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_heard(&far, sizeof bytes);
    close_sim();
    unlink(path);
}

/* The trace ----------------------------------------------------------------------------------- */

static unsigned traced;

static void count_line(void *arg, const char *line)
{
    (void)arg;
    assert_null(strchr(line, '\n'));
    traced++;
}

static void the_trace_says_what_happens(void **state)
{
    (void)state;
    traced = 0;
    open_connection(&(weir_sim_config){ .trace = count_line, .trace_bytes = 10000 });
    wait_for_far();
    weir_sim_trace(sim, here, "says %d", 10);
    say(near.channel, 10);
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_string_equal(weir_sim_get_trace(sim), "0.000000000 there #4 bind 10.0.0.1:80\n"
                                                 "0.000000000 there #4 listen\n"
                                                 "0.000000000 here #6 connect 10.0.0.1:80\n"
                                                 "0.000200000 here #6 is connected\n"
                                                 "0.000300000 there #7 accepted from "
                                                 "10.0.0.2:32768\n"
                                                 "0.000300000 here says 10\n"
                                                 "0.000300000 here #6 send 10 of 10\n"
                                                 "0.000400000 there #7 10 bytes arrive\n"
                                                 "0.000400000 there #7 recv 10\n");
    assert_int_equal(traced, 9);
    close_sim();
}

static void the_trace_keeps_the_last_lines(void **state)
{
    (void)state;
    open_sim(&(weir_sim_config){ .trace_bytes = 1000 });
    for (int i = 0; i < 1000; i++)
        weir_sim_trace(sim, NULL, "line %d", i);
    const char *kept = weir_sim_get_trace(sim);
    assert_in_range(strlen(kept), 500, 999);
    assert_memory_equal(kept, "0.000000000 - line 9", 20);
    assert_non_null(strstr(kept, "line 999\n"));
    char longer[2000];
    memset(longer, 'x', sizeof longer);
    weir_sim_trace(sim, NULL, "%.1999s", longer);
    assert_non_null(strstr(weir_sim_get_trace(sim), "xxx"));
    close_sim_without_server();
}

/* Mistakes ------------------------------------------------------------------------------------ */

static void refuse(const weir_sim_config *config, const char *what)
{
    weir_error error;
    assert_int_equal(weir_sim_new(&sim, config, &error), -EINVAL);
    if (strstr(error.message, what) == NULL)
        fail_msg("%s", error.message);
}

static void what_is_out_of_range_is_refused(void **state)
{
    (void)state;
    refuse(&(weir_sim_config){ .link.reset = 1.5 }, "reset is 1.5");
    refuse(&(weir_sim_config){ .link.cut = -1 }, "cut is -1");
    refuse(&(weir_sim_config){ .link.jitter_ns = -5 }, "jitter_ns is -5");
    refuse(&(weir_sim_config){ .link.latency_ns = -5 }, "latency_ns is -5");
    refuse(&(weir_sim_config){ .short_read = 2 }, "short_read is 2");
    refuse(&(weir_sim_config){ .interrupt = 1 }, "interrupt is 1");
    refuse(&(weir_sim_config){ .timeout_ns = -1 }, "timeout_ns is -1");
    assert_int_equal(weir_sim_new(NULL, NULL, NULL), -EINVAL);
    open_sim(NULL);
    assert_int_equal(weir_sim_set_link(here, there, &(weir_sim_link){ .lose = 7 }, NULL), -EINVAL);
    weir_sim_host *host;
    assert_int_equal(weir_sim_add_host(sim, &host, "here", "10.0.0.3"), -EEXIST);
    assert_int_equal(weir_sim_add_host(sim, &host, "new", "10.0.0.2"), -EEXIST);
    assert_int_equal(weir_sim_add_host(sim, &host, "new", "127.0.0.1"), -EINVAL);
    assert_int_equal(weir_sim_add_host(sim, &host, "new", "no address"), -EINVAL);
    assert_int_equal(weir_sim_add_host(sim, &host, "", "10.0.0.3"), -EINVAL);
    assert_int_equal(weir_sim_add_host(sim, &host, NULL, "10.0.0.3"), -EINVAL);
    assert_int_equal(
        weir_sim_add_host(sim, &host, "a name that is longer than it may be", "10.0.0.3"), -EINVAL);
    for (int i = 3; i <= WEIR_SIM_HOSTS; i++) {
        char name[32], address[32];
        snprintf(name, sizeof name, "host%d", i);
        snprintf(address, sizeof address, "10.0.0.%d", i);
        assert_int_equal(weir_sim_add_host(sim, &host, name, address), 0);
    }
    assert_int_equal(weir_sim_add_host(sim, &host, "new", "10.0.1.1"), -ENOSPC);
    for (int i = 1; i < WEIR_SIM_ADDRESSES; i++) {
        char address[32];
        snprintf(address, sizeof address, "10.1.0.%d", i);
        assert_int_equal(weir_sim_add_address(here, address), 0);
    }
    assert_int_equal(weir_sim_add_address(here, "10.2.0.1"), -ENOSPC);
    weir_group *group;
    assert_int_equal(weir_sim_add_group(here, &group, &(weir_group_config){ .loops = -1 }, NULL),
                     -EINVAL);
    close_sim_without_server();
    weir_sim_free(NULL);
}

static void a_forgotten_channel_is_closed_with_its_group(void **state)
{
    (void)state;
    open_connection(NULL);
    wait_for_far();
    assert_int_equal(weir_group_shutdown(clients, 0, WEIR_SECONDS(1)), 0); /* at any time */
    weir_sim_run(sim, WEIR_SECONDS(1));
    assert_true(near.is_over && far.is_over);
    close_sim();
}

static void a_forgotten_descriptor_is_counted(void **state)
{
    (void)state;
    weir_address address;
    weir_channel *channel;
    open_sim(NULL);
    weir_address_parse(&address, "10.0.0.1:80", NULL);
    assert_int_equal(weir_sim_channel_new(here, &channel, WEIR_SOCKET_STREAM, &address, NULL), 0);
    assert_int_equal(weir_sim_finish(sim), 1);
    weir_channel_release(channel);
    assert_int_equal(weir_sim_finish(sim), 0);
    weir_sim_free(sim);
}

/* Every allocation fails once -------------------------------------------------------------------
 */

static bool has_come_back(void *arg)
{
    (void)arg;
    return near.count >= 1000 || near.is_over;
}

/* Whatever fails, it ends, and nothing is left. */
static int exchange(void)
{
    static weir_sim *made;
    weir_sim_host *host = NULL;
    weir_group *group = NULL;
    weir_channel *channel = NULL;
    weir_sim_config config = { .seed = 2, .short_read = 0.5, .trace_bytes = 1000 };
    memset(&near, 0, sizeof near);
    memset(&far, 0, sizeof far);
    accepted = 0;
    is_echoing = true;
    server = NULL;
    int code = weir_sim_new(&made, &config, NULL);
    if (code < 0)
        return code;
    sim = made;
    code = weir_sim_add_host(sim, &host, "host", "10.0.0.1");
    if (code == 0)
        code = weir_sim_add_group(host, &group, NULL, NULL);
    if (code == 0)
        code = weir_server_listen(&server,
                                  &(weir_server_config){ .workers = group, .init_child = init_far },
                                  "10.0.0.1:80", NULL);
    if (code == 0)
        code = weir_client_connect(&channel,
                                   &(weir_client_config){ .group = group, .init = init_near },
                                   "10.0.0.1:80", NULL);
    weir_buf *buf = code == 0 ? weir_buf_new(1000) : NULL;
    if (buf != NULL) {
        weir_buf_write_fill(buf, 7, 1000);
        weir_channel_write_and_flush(channel, weir_buf_msg(buf), NULL);
        code = weir_sim_run_until(sim, has_come_back, NULL, WEIR_SECONDS(1000));
    }
    weir_channel_release(channel);
    if (server != NULL)
        weir_server_close(server, NULL);
    weir_server_release(server);
    weir_sim_free(sim);
    return code;
}

static void any_allocation_may_fail(void **state)
{
    assert_int_equal(exchange(), 0);
    assert_int_equal(near.count, 1000);
    for (unsigned n = 1;; n++) {
        harness_remember_what_lives(state);
        harness_fail_nth("alloc", n, -ENOMEM);
        exchange();
        unsigned seen = harness_fail_end();
        harness_assert_nothing_left(state);
        if (seen < n)
            break;
    }
    assert_int_equal(exchange(), 0);
    assert_int_equal(near.count, 1000);
}

static void any_call_may_fail(void **state)
{
    static const char *const calls[] = {
        "socket", "bind", "listen",    "accept4",       "connect",
        "recv",   "send", "epoll_ctl", "epoll_create1", "eventfd"
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (unsigned n = 1;; n++) {
            harness_remember_what_lives(state);
            harness_fail_nth(calls[i], n, -ENOBUFS);
            exchange();
            unsigned seen = harness_fail_end();
            harness_assert_nothing_left(state);
            if (seen < n)
                break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        weir_case(everything_takes_the_latency),
        weir_case(a_calm_network_takes_a_tenth_of_a_millisecond),
        weir_case(jitter_is_drawn_within_its_range),
        weir_case(jitter_does_not_change_the_order),
        weir_case(a_slow_link_takes_its_time),
        weir_case(the_clock_stops_where_it_was_told_to),
        weir_case(timers_fire_at_their_time),
        weir_case(what_never_happens_is_said_so),
        weir_case(what_never_ends_is_said_so),
        weir_case(it_is_not_run_from_inside),
        weir_case(nobody_listens),
        weir_case(refused_though_somebody_listens),
        weir_case(nobody_is_there),
        weir_case(names_are_those_of_hosts),
        weir_case(a_listener_for_both_families_sees_both),
        weir_case(a_host_reaches_itself_at_once),
        weir_case(a_port_is_taken_once),
        weir_case(several_acceptors_share_a_port),
        weir_case(a_full_backlog_is_asked_again),
        weir_case(descriptors_run_out),
        weir_case(channels_are_made_by_hand_too),
        weir_case(a_lost_connection_is_reset_at_both_ends),
        weir_case(sends_lose_connections_by_chance),
        weir_case(a_close_is_the_end_of_the_stream),
        weir_case(who_closes_without_reading_resets),
        weir_case(linger_0_resets),
        weir_case(linger_waits_for_the_other_side),
        weir_case(each_direction_ends_alone),
        weir_case(what_is_cut_waits_until_it_is_mended),
        weir_case(a_cut_for_a_time_mends_itself),
        weir_case(a_cut_for_too_long_breaks_the_sender),
        weir_case(connecting_through_a_cut),
        weir_case(sends_cut_by_chance),
        weir_case(who_does_not_read_holds_up_who_sends),
        weir_case(reads_and_writes_are_short_by_chance),
        weir_case(calls_are_interrupted_by_chance),
        weir_case(loops_have_their_turns_in_any_order),
        weir_case(unix_sockets_are_their_hosts),
        weir_case(datagrams_get_lost_and_come_twice),
        weir_case(files_are_real),
        weir_case(the_trace_says_what_happens),
        weir_case(the_trace_keeps_the_last_lines),
        weir_case(what_is_out_of_range_is_refused),
        weir_case(a_forgotten_channel_is_closed_with_its_group),
        weir_case(a_forgotten_descriptor_is_counted),
        weir_case(any_allocation_may_fail),
        weir_case(any_call_may_fail),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
