/* SPDX-License-Identifier: MIT */
/* The ends of bridges: resets, closes, connections that fail, and how on_end tells of them. */
#include "handler/bridges.h"

/* Resets ------------------------------------------------------------------------------------------
 */

enum { FRESH, SPOKEN, RELAYED, STAGES };

/* Nothing was said; both have spoken; much has, so that the kernel relays. */
static void open_at_stage(proxy *self, int stage)
{
    *self = (proxy){ .config.relay_after_bytes = stage == RELAYED ? 1 : WEIR_OFF };
    open_proxy(self);
    WAIT_FOR(atomic_load(&self->back) != NULL);
    expect_connected(self);
    if (stage >= SPOKEN)
        pump(self->client, self->server, 100000, 100000);
    if (stage == RELAYED && may_be_relayed()) {
        WAIT_FOR(is_relayed(self->front));
        WAIT_FOR(is_relayed(self->back));
    }
}

static void reset_of_a_peer_resets_the_other(void **state)
{
    (void)state;
    for (int stage = FRESH; stage < STAGES; stage++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            proxy self;
            open_at_stage(&self, stage);
            reset_peer(is_back ? &self.server : &self.client);
            peer_expect_reset(is_back ? self.client : self.server);
            expect_failed(&self.end, -ECONNRESET);
            end_proxy(&self);
        }
    }
}

/* While the receiver does not read, so that nothing else moves. */
static void reset_of_a_receiver_that_is_full_resets_the_sender(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        proxy self;
        open_small_proxy(&self, relay_limits[i]);
        send_until_stuck(self.client, 0, 64 * MIB, self.front);
        reset_peer(&self.server);
        peer_expect_reset(self.client);
        expect_broken(&self.end);
        end_proxy(&self);
    }
}

/* The direction that is still open must not look complete. */
static void reset_after_the_eof_of_one_peer_resets_the_other(void **state)
{
    (void)state;
    for (int stage = FRESH; stage < STAGES; stage++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            proxy self;
            open_at_stage(&self, stage);
            int *ends = is_back ? &self.server : &self.client;
            int *resets = is_back ? &self.client : &self.server;
            shutdown(*ends, SHUT_WR);
            peer_expect_eof(*resets);
            reset_peer(resets);
            peer_expect_reset(*ends);
            expect_broken(&self.end);
            end_proxy(&self);
        }
    }
}

/* The one who has ended its stream is not read any more; writing tells. */
static void reset_of_a_peer_that_has_ended_is_noticed_when_it_is_written_to(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        proxy self = { .config.relay_after_bytes = WEIR_OFF };
        open_proxy(&self);
        expect_connected(&self);
        int *ends = is_back ? &self.server : &self.client;
        int *writes = is_back ? &self.client : &self.server;
        shutdown(*ends, SHUT_WR);
        peer_expect_eof(*writes);
        reset_peer(ends);
        WAIT_FOR_STEPPING(atomic_load(&self.end.ends) > 0,
                          (send(*writes, "x", 1, MSG_NOSIGNAL), usleep(1000)));
        expect_broken(&self.end);
        end_proxy(&self);
    }
}

static void both_peers_reset(void **state)
{
    (void)state;
    for (int stage = FRESH; stage < STAGES; stage++) {
        proxy self;
        open_at_stage(&self, stage);
        reset_peer(&self.client);
        reset_peer(&self.server);
        expect_broken(&self.end);
        end_proxy(&self);
    }
}

/* Closed by the user ------------------------------------------------------------------------------
 */

enum { CLOSES, RESETS, CLOSINGS };

static void close_by(weir_channel *channel, int how)
{
    if (how == CLOSES)
        weir_channel_close(channel, NULL);
    else
        weir_channel_reset(channel);
}

static void close_of_a_channel_resets_the_other(void **state)
{
    (void)state;
    for (int stage = FRESH; stage < STAGES; stage++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            for (int how = CLOSES; how < CLOSINGS; how++) {
                proxy self;
                open_at_stage(&self, stage);
                close_by(is_back ? self.back : self.front, how);
                peer_expect_reset(is_back ? self.client : self.server);
                if (how == CLOSES)
                    peer_expect_eof(is_back ? self.server : self.client);
                else
                    peer_expect_reset(is_back ? self.server : self.client);
                expect_failed(&self.end, WEIR_ECLOSED);
                assert_ptr_equal(self.end.front, self.front);
                assert_ptr_equal(self.end.back, self.back);
                assert_int_equal(self.end.front_id, weir_channel_id(self.front));
                assert_int_equal(self.end.back_id, weir_channel_id(self.back));
                end_proxy(&self);
            }
        }
    }
}

/* The server has ended its stream, the client has not: what the server got is not all. */
static void close_between_two_eofs_resets_the_other(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        for (int how = CLOSES; how < CLOSINGS; how++) {
            proxy self;
            open_at_stage(&self, SPOKEN);
            int ended = is_back ? self.client : self.server;
            int open = is_back ? self.server : self.client;
            shutdown(ended, SHUT_WR);
            peer_expect_eof(open);
            peer_send_pattern(open, 0, 1000);
            peer_expect_pattern(ended, 0, 1000);
            close_by(is_back ? self.back : self.front, how);
            peer_expect_reset(ended);
            expect_failed(&self.end, WEIR_ECLOSED);
            end_proxy(&self);
        }
    }
}

static void error_of_a_handler_closes_both(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        proxy self;
        open_at_stage(&self, SPOKEN);
        weir_pipeline_fire_error(weir_channel_pipeline(is_back ? self.back : self.front), -EPROTO,
                                 "nonsense");
        peer_expect_reset(is_back ? self.client : self.server);
        expect_failed(&self.end, -EPROTO);
        assert_non_null(strstr(self.end.error.message, "nonsense"));
        end_proxy(&self);
    }
}

static void end_of_the_group_ends_the_bridge(void **state)
{
    (void)state;
    for (int stage = FRESH; stage < STAGES; stage++) {
        proxy self;
        open_at_stage(&self, stage);
        end_group(group);
        assert_int_equal(atomic_load(&self.end.ends), 1);
        assert_true(self.end.error.code < 0);
        peer_expect_end(self.client);
        peer_expect_end(self.server);
        group = NULL;
        end_proxy(&self);
        weir_group_config config = { .loops = is_blocking() ? 0 : 2, .io = current->io };
        config.watchdog_ns = WEIR_OFF;
        assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    }
}

static void end_of_the_group_ends_a_bridge_that_connects(void **state)
{
    (void)state;
    for (int has_bytes = 0; has_bytes < 2; has_bytes++) {
        proxy self = { .is_late = true };
        open_proxy(&self);
        peer_send_pattern(self.client, 0, has_bytes ? 100000 : 0);
        WAIT_FOR(!has_bytes || stats_of_channel(self.front).bytes_in > 60000);
        WAIT_FOR(atomic_load(&self.resolver.promise) != NULL);
        end_group(group);
        answer(&self.resolver, 0, &self.upstream_address);
        WAIT_FOR(atomic_load(&self.end.ends) == 1);
        assert_true(self.end.error.code < 0);
        assert_null(self.end.back);
        group = NULL;
        end_proxy(&self);
        weir_group_config config = { .loops = is_blocking() ? 0 : 2, .io = current->io };
        config.watchdog_ns = WEIR_OFF;
        assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    }
}

/* A close that waits for the peer is cut short by the end of the loop, which frees no handler of
 * it in a later turn. */
static int linger(proxy *self, weir_channel *channel)
{
    (void)self;
    return weir_channel_set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, WEIR_SECONDS(300), NULL);
}

static void end_of_the_loop_during_a_close_leaves_nothing_behind(void **state)
{
    (void)state;
    proxy self = { .is_small = true, .before = linger, .init_back = linger };
    self.config.relay_after_bytes = WEIR_OFF;
    open_proxy(&self);
    expect_connected(&self);
    send_until_stuck(self.client, 0, 64 * MIB, self.front);
    weir_channel_close(self.back, NULL);
    WAIT_FOR(weir_channel_get_state(self.back) >= WEIR_CHANNEL_CLOSING);
    weir_group_shutdown(group, 0, 0);
    weir_group_free(group);
    group = NULL;
    WAIT_FOR(atomic_load(&self.end.ends) == 1);
    end_proxy(&self);
}

/* Failing to connect ------------------------------------------------------------------------------
 */

static void refused_connection_closes_the_front_channel(void **state)
{
    (void)state;
    for (int has_bytes = 0; has_bytes < 2; has_bytes++) {
        char text[WEIR_ADDRESS_TEXT_MAX];
        proxy self = { .text = text, .is_alone = true };
        weir_address nobody = any_port();
        int fd = peer_bind(&nobody);
        weir_address_text(&nobody, text, sizeof text);
        open_proxy(&self);
        self.client = peer_connect(&self.address);
        if (has_bytes)
            send(self.client, "hello", 5, MSG_NOSIGNAL);
        peer_expect_end(self.client);
        expect_failed(&self.end, -ECONNREFUSED);
        assert_non_null(strstr(self.end.error.message, text));
        assert_null(self.end.back);
        assert_int_equal(atomic_load(&self.inits), 0);
        end_proxy(&self);
        close(fd);
    }
}

/* Its backlog is full, so that nothing is heard from it. */
typedef struct hanging {
    int listener, filler;
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX];
} hanging;

static void open_hanging(hanging *self)
{
    self->address = any_port();
    self->listener = peer_listen(&self->address, 0);
    self->filler = peer_connect(&self->address);
    weir_address_text(&self->address, self->text, sizeof self->text);
}

static void close_hanging(hanging *self)
{
    close(self->listener);
    close(self->filler);
}

static void connection_that_times_out_closes_the_front_channel(void **state)
{
    (void)state;
    hanging nobody;
    open_hanging(&nobody);
    proxy self = { .text = nobody.text, .upstream.connect_timeout_ns = WEIR_MS(30) };
    open_proxy(&self);
    peer_expect_end(self.client);
    expect_failed(&self.end, -ETIMEDOUT);
    assert_null(self.end.back);
    end_proxy(&self);
    close_hanging(&nobody);
}

static void name_that_does_not_exist_closes_the_front_channel(void **state)
{
    (void)state;
    proxy self = { .is_late = true };
    open_proxy(&self);
    peer_send_pattern(self.client, 0, 1000);
    answer(&self.resolver, WEIR_ENONAME, NULL);
    peer_expect_end(self.client);
    expect_failed(&self.end, WEIR_ENONAME);
    assert_non_null(strstr(self.end.error.message, "upstream.test"));
    assert_null(self.end.back);
    assert_int_equal(self.end.to_back, 0);
    end_proxy(&self);
}

static int fail_back(proxy *self, weir_channel *back)
{
    (void)self, (void)back;
    return -EPROTO;
}

static void init_of_the_back_channel_that_fails_closes_the_front_channel(void **state)
{
    (void)state;
    proxy self = { .init_back = fail_back };
    open_proxy(&self);
    peer_expect_end(self.client);
    peer_expect_end(self.server);
    expect_failed(&self.end, -EPROTO);
    assert_int_equal(atomic_load(&self.inits), 1);
    end_proxy(&self);
}

/* A handler of the user's takes the name, so the bridge cannot be added after it. */
static const weir_handler_type bystander = { .name = "bystander" };

static int take_name(proxy *self, weir_channel *channel)
{
    (void)self;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "bridge", &bystander, NULL);
}

static void name_that_is_taken_on_the_back_channel_closes_both(void **state)
{
    (void)state;
    proxy self = { .init_back = take_name };
    open_proxy(&self);
    peer_expect_end(self.client);
    peer_expect_end(self.server);
    expect_failed(&self.end, -EEXIST);
    end_proxy(&self);
}

/* Closing while it connects -----------------------------------------------------------------------
 */

enum { USER_CLOSES, USER_RESETS, PEER_RESETS, FRONT_ENDS };

static void end_front(proxy *self, int how)
{
    if (how == PEER_RESETS)
        reset_peer(&self->client);
    else
        close_by(self->front, how == USER_CLOSES ? CLOSES : RESETS);
}

static void close_of_the_front_channel_cancels_the_lookup(void **state)
{
    (void)state;
    for (int how = 0; how < FRONT_ENDS; how++) {
        proxy self = { .is_late = true, .upstream.connect_timeout_ns = WEIR_OFF };
        open_proxy(&self);
        peer_send_pattern(self.client, 0, 3000);
        WAIT_FOR(stats_of_channel(self.front).bytes_in == 3000);
        WAIT_FOR(atomic_load(&self.resolver.promise) != NULL);
        weir_promise *question = atomic_load(&self.resolver.promise);
        end_front(&self, how);
        WAIT_FOR(weir_future_is_done(weir_promise_future(question)));
        assert_int_equal(weir_future_code(weir_promise_future(question)), -ECANCELED);
        expect_broken(&self.end);
        assert_null(self.end.back);
        assert_int_equal(self.end.to_back, 0);
        answer(&self.resolver, 0, &self.upstream_address);
        end_proxy(&self);
    }
}

static void close_of_the_front_channel_cancels_the_connect(void **state)
{
    (void)state;
    for (int how = 0; how < FRONT_ENDS; how++) {
        hanging nobody;
        open_hanging(&nobody);
        proxy self = { .text = nobody.text, .upstream.connect_timeout_ns = WEIR_OFF };
        open_proxy(&self);
        end_front(&self, how);
        expect_broken(&self.end);
        assert_null(self.end.back);
        end_proxy(&self);
        close_hanging(&nobody);
    }
}

/* At any moment: before, during and after the connect. */
static void close_of_the_front_channel_at_any_moment_leaves_nothing_behind(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        proxy self = { 0 };
        open_proxy_with(&self, proxy_init_front);
        for (int pauses = 0; pauses < i; pauses++)
            sched_yield();
        end_front(&self, i % FRONT_ENDS);
        expect_broken(&self.end);
        struct pollfd connected = { .fd = self.listener, .events = POLLIN };
        if (poll(&connected, 1, 0) == 1) { /* the kernel was quicker than the close */
            self.server = peer_accept(self.listener);
            peer_expect_end(self.server);
        }
        end_proxy(&self);
    }
}

/* The back channel is being made when the front channel closes: the promise to connect is cancelled
 * before the back channel has a bridge. */
typedef struct gate {
    proxy proxy;
    atomic_bool is_reached, is_open;
} gate;

static int wait_at_gate(proxy *self, weir_channel *back)
{
    gate *whole = WEIR_CONTAINER(self, gate, proxy);
    (void)back;
    atomic_store(&whole->is_reached, true);
    if (is_apart)
        WAIT_FOR(atomic_load(&whole->is_open));
    else
        weir_channel_close(self->front, NULL);
    return 0;
}

static void close_of_the_front_channel_during_init_of_the_back_ends_once(void **state)
{
    (void)state;
    gate self = { .proxy.init_back = wait_at_gate, .proxy.is_late = true };
    open_proxy(&self.proxy);
    answer_upstream(&self.proxy);
    WAIT_FOR(atomic_load(&self.is_reached));
    weir_channel_close(self.proxy.front, NULL);
    wait_for_close(self.proxy.front);
    usleep(1000); /* only makes it likelier to be seen if it ends too early */
    atomic_store(&self.is_open, true);
    peer_expect_end(self.proxy.server);
    wait_for_close(self.proxy.back);
    expect_broken(&self.proxy.end);
    assert_int_equal(atomic_load(&self.proxy.inits), 1);
    end_proxy(&self.proxy);
}

static int fail_front(proxy *self, weir_channel *front)
{
    (void)self, (void)front;
    return -EPROTO;
}

/* The front channel is never active, so its handlers are not told that it is not any more. */
static void initializer_that_fails_after_the_call_cancels_the_lookup(void **state)
{
    (void)state;
    proxy self = { .is_late = true, .after = fail_front };
    self.upstream.connect_timeout_ns = WEIR_OFF;
    open_proxy(&self);
    peer_expect_end(self.client);
    WAIT_FOR(atomic_load(&self.resolver.promise) != NULL);
    weir_promise *question = atomic_load(&self.resolver.promise);
    WAIT_FOR(weir_future_is_done(weir_promise_future(question)));
    assert_int_equal(weir_future_code(weir_promise_future(question)), -ECANCELED);
    expect_broken(&self.end);
    answer(&self.resolver, 0, &self.upstream_address);
    end_proxy(&self);
}

/* A call that fails -------------------------------------------------------------------------------
 */

/* Neither on_end nor arg_release is called then, whatever the reason: end_proxy looks for that. */
static void call_that_fails_calls_nothing_later(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int refusal, code;
        int64_t timeout_ns;
        int64_t relay_after_bytes;
        int64_t idle_timeout_ns;
    } cases[] = {
        { .text = "nonsense", .code = -EINVAL },
        { .text = "127.0.0.1:70000", .code = -EINVAL },
        { .text = "a.test:80", .refusal = -EAGAIN, .code = -EAGAIN },
        { .text = "a.test:80", .timeout_ns = -7, .code = -EINVAL },
        { .text = "a.test:80", .relay_after_bytes = -7, .code = -EINVAL },
        { .text = "a.test:80", .idle_timeout_ns = -7, .code = -EINVAL },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        proxy self = { .text = cases[i].text };
        self.upstream.resolver = &self.resolver.base;
        self.resolver.refusal = cases[i].refusal;
        self.upstream.connect_timeout_ns = cases[i].timeout_ns;
        self.config.relay_after_bytes = cases[i].relay_after_bytes;
        self.config.idle_timeout_ns = cases[i].idle_timeout_ns;
        open_proxy(&self);
        peer_expect_end(self.client);
        assert_int_equal(self.code, cases[i].code);
        assert_int_equal(self.error.code, cases[i].code);
        assert_true(self.error.message[0] != '\0');
        assert_int_equal(atomic_load(&self.inits), 0);
        end_proxy(&self);
    }
}

/* Arguments that make no sense are told at once, and leave everything as it was. */
typedef struct attempt {
    weir_channel *front, *back;
    const weir_client_config *client;
    const char *text;
    const weir_bridge_config *config;
    bool connects;
    weir_error error;
} attempt;

static int run_attempt(void *arg)
{
    attempt *self = arg;
    if (!self->connects)
        return weir_bridge(self->front, self->back, self->config);
    return weir_bridge_connect(self->front, self->client, self->text, self->config, &self->error);
}

static void arguments_that_make_no_sense_are_rejected(void **state)
{
    (void)state;
    couple self = { 0 };
    open_couple(&self);
    const weir_client_config client = { .group = group };
    const weir_bridge_config bad_idle = { .idle_timeout_ns = -2 };
    const weir_bridge_config bad_relay = { .relay_after_bytes = -2 };
    attempt attempts[] = {
        { .front = NULL, .back = self.back },
        { .front = self.front, .back = NULL },
        { .front = self.front, .back = self.front },
        { .front = self.front, .back = self.back, .config = &bad_idle },
        { .front = self.front, .back = self.back, .config = &bad_relay },
        { .connects = true, .front = NULL, .client = &client, .text = "127.0.0.1:9" },
        { .connects = true, .front = self.front, .client = NULL, .text = "127.0.0.1:9" },
        { .connects = true, .front = NULL, .client = NULL, .text = NULL },
        { .connects = true,
          .front = self.front,
          .client = &client,
          .text = "127.0.0.1:9",
          .config = &bad_idle },
        { .connects = true,
          .front = self.front,
          .client = &client,
          .text = "127.0.0.1:9",
          .config = &bad_relay },
        { .connects = true, .front = self.front, .client = &client, .text = NULL },
    };
    for (size_t i = 0; i < COUNT_OF(attempts); i++) {
        attempt *at = &attempts[i];
        assert_int_equal(call_on(executor_of(self.front), run_attempt, at), -EINVAL);
        assert_int_equal(at->error.code, at->connects ? -EINVAL : 0);
        assert_true(weir_channel_is_open(self.front) && weir_channel_is_open(self.back));
    }
    assert_int_equal(bridge_couple(&self), 0); /* nothing of that is left */
    peer_send(self.client, "through", 7);
    peer_expect_text(self.server, "through");
    end_couple(&self);
    expect_broken(&self.end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bridge_cases(reset_of_a_peer_resets_the_other),
        bridge_cases(reset_of_a_receiver_that_is_full_resets_the_sender),
        bridge_cases(reset_after_the_eof_of_one_peer_resets_the_other),
        bridge_cases(reset_of_a_peer_that_has_ended_is_noticed_when_it_is_written_to),
        bridge_cases(both_peers_reset),
        bridge_cases(close_of_a_channel_resets_the_other),
        bridge_cases(close_between_two_eofs_resets_the_other),
        bridge_cases(error_of_a_handler_closes_both),
        bridge_cases(end_of_the_group_ends_the_bridge),
        bridge_cases(end_of_the_group_ends_a_bridge_that_connects),
        bridge_cases(end_of_the_loop_during_a_close_leaves_nothing_behind),
        bridge_cases(refused_connection_closes_the_front_channel),
        bridge_cases(connection_that_times_out_closes_the_front_channel),
        bridge_cases(name_that_does_not_exist_closes_the_front_channel),
        bridge_cases(init_of_the_back_channel_that_fails_closes_the_front_channel),
        bridge_cases(name_that_is_taken_on_the_back_channel_closes_both),
        bridge_cases(close_of_the_front_channel_cancels_the_lookup),
        bridge_cases(close_of_the_front_channel_cancels_the_connect),
        bridge_cases(close_of_the_front_channel_at_any_moment_leaves_nothing_behind),
        bridge_cases(close_of_the_front_channel_during_init_of_the_back_ends_once),
        bridge_cases(initializer_that_fails_after_the_call_cancels_the_lookup),
        bridge_cases(call_that_fails_calls_nothing_later),
        bridge_cases(arguments_that_make_no_sense_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
