/* SPDX-License-Identifier: MIT */
/* Bridges of channels that exist: adding a bridge, and handlers beside it. */
#include "handler/bridges.h"

#include <weir/fault.h>

/* On another loop the handler of the back channel is added later than the call returns. */
static void add_bridge(couple *both)
{
    assert_int_equal(bridge_couple(both), 0);
    settle(executor_of(both->back));
}

/* Two channels ------------------------------------------------------------------------------------
 */

static void active_channels_are_bridged(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        for (int stream = TCP; stream < STREAMS; stream++) {
            couple self = { .stream = stream, .config.relay_after_bytes = relay_limits[i] };
            open_couple(&self);
            add_bridge(&self);
            pump_to_end(self.client, self.server, MIB, 2 * MIB);
            expect_complete(&self.end, MIB, 2 * MIB);
            end_couple(&self);
        }
    }
}

static void channels_on_no_loop_are_rejected(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { 0 };
        self.front = half_pair(TCP, NULL, &self.client);
        self.back = half_pair(TCP, NULL, &self.server);
        register_half(is_back ? self.front : self.back, 0);
        assert_int_equal(run_bridge(&self), -EINVAL);
        assert_true(weir_channel_is_open(self.front) && weir_channel_is_open(self.back));
        end_couple(&self);
        assert_int_equal(atomic_load(&self.end.ends), 0);
    }
}

static int run_plain_bridge(void *arg)
{
    couple *self = arg;
    return weir_bridge(self->front, self->back, NULL);
}

static void bridge_needs_no_config(void **state)
{
    (void)state;
    couple self = { 0 };
    open_couple(&self);
    assert_int_equal(call_on(executor_of(self.front), run_plain_bridge, &self), 0);
    settle(executor_of(self.back));
    pump_to_end(self.client, self.server, 2 * MIB, 2 * MIB);
    end_couple(&self);
}

static void bridge_sets_the_options_that_it_needs(void **state)
{
    (void)state;
    couple self = { 0 };
    open_couple(&self);
    weir_channel *channels[] = { self.front, self.back };
    for (size_t i = 0; i < COUNT_OF(channels); i++)
        set_option(channels[i], WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1);
    add_bridge(&self);
    pump(self.client, self.server, 1, 1);
    for (size_t i = 0; i < COUNT_OF(channels); i++) {
        int64_t value = -1;
        settle(executor_of(channels[i]));
        weir_channel_get_option(channels[i], WEIR_OPTION_ALLOW_HALF_CLOSURE, &value);
        assert_int_equal(value, 1);
        weir_channel_get_option(channels[i], WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, &value);
        assert_int_equal(value, 0);
    }
    end_couple(&self);
}

/* An add that fails -------------------------------------------------------------------------------
 */

static const weir_handler_type bystander = { .name = "bystander" };

static void take_name(weir_channel *channel)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    assert_int_equal(weir_pipeline_add_last(pipeline, "bridge", &bystander, NULL), 0);
    settle(executor_of(channel));
}

/* On another loop the add fails after the call has returned 0. */
static void name_that_is_taken_closes_both(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { 0 };
        open_couple(&self);
        take_name(is_back ? self.back : self.front);
        bool is_late = is_back && is_apart;
        assert_int_equal(bridge_couple(&self), is_late ? 0 : -EEXIST);
        peer_expect_end(self.client);
        peer_expect_end(self.server);
        wait_for_close(self.front);
        wait_for_close(self.back);
        if (is_late) {
            WAIT_FOR(atomic_load(&self.end.ends) == 1);
            self.end.were_open = false; /* the handler leaves the back channel before the close */
            expect_broken(&self.end);
        }
        assert_int_equal(atomic_load(&self.end.ends), is_late);
        end_couple(&self);
    }
}

static void channel_that_is_bridged_already_is_rejected(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { 0 }, other = { 0 };
        open_couple(&self);
        open_couple(&other);
        add_bridge(&self);
        pump(self.client, self.server, 1000, 1000);
        couple third = { .front = is_back ? other.front : self.front,
                         .back = is_back ? self.back : other.back };
        bool is_late = is_back && is_apart;
        assert_int_equal(bridge_couple(&third), is_late ? 0 : -EEXIST);
        wait_for_close(third.front);
        wait_for_close(third.back);
        expect_broken(&self.end); /* the first one */
        assert_int_equal(atomic_load(&third.end.ends), is_late);
        end_couple(&self);
        end_couple(&other);
    }
}

static void closed_channel_is_rejected_and_closes_the_other(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        couple self = { 0 };
        open_couple(&self);
        weir_executor *loop = executor_of(self.front);
        weir_channel *closed = is_back ? self.back : self.front;
        assert_int_equal(close_it(closed), 0);
        WAIT_FOR(weir_channel_get_state(closed) == WEIR_CHANNEL_UNREGISTERED);
        assert_int_equal(call_on(loop, run_bridge, &self), WEIR_ECLOSED);
        peer_expect_end(self.client);
        peer_expect_end(self.server);
        end_couple(&self);
        assert_int_equal(atomic_load(&self.end.ends), 0);
    }
}

/* It is closing while the bridge is added, on its own loop or on another. */
static int run_close_and_bridge(void *arg)
{
    couple *self = arg;
    weir_channel_close(self->back, NULL);
    return run_bridge(self);
}

static void channel_that_closes_meanwhile_closes_the_other(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        couple self = { 0 };
        open_couple(&self);
        int code = call_on(executor_of(self.front), run_close_and_bridge, &self);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        peer_expect_end(self.client);
        peer_expect_end(self.server);
        wait_for_close(self.front);
        wait_for_close(self.back);
        assert_int_equal(atomic_load(&self.end.ends), code == 0);
        end_couple(&self);
    }
}

/* Never active, so its handlers are not told that it is not any more. */
static void back_channel_that_cannot_connect_closes_the_front_channel(void **state)
{
    (void)state;
    couple self = { 0 };
    weir_address nobody = any_port();
    int refusing = peer_bind(&nobody);
    self.front = half_pair(TCP, NULL, &self.client);
    register_half(self.front, 0);
    self.back = new_channel(WEIR_SOCKET_STREAM, &nobody);
    self.server = -1;
    weir_promise *promise = promise_of(self.back);
    if (is_blocking())
        put_on_loop(self.back, promise);
    else
        weir_channel_register(self.back, weir_group_at(group, is_apart), promise);
    assert_int_equal(outcome(promise), 0);
    add_bridge(&self);
    assert_int_equal(connect_to(self.back, &nobody), -ECONNREFUSED);
    wait_for_close(self.back);
    peer_expect_end(self.client);
    expect_broken(&self.end);
    close(refusing);
    end_couple(&self);
}

/* Every allocation fails once: on_end is called if the call has succeeded, and not if not. */
typedef struct short_of_memory {
    couple couple;
    unsigned at;
    bool has_failed;
} short_of_memory;

static int run_bridge_without_memory(void *arg)
{
    short_of_memory *self = arg;
    harness_fail_nth("alloc", self->at, -ENOMEM);
    int code = run_bridge(&self->couple);
    self->has_failed = harness_fail_end() >= self->at;
    return code;
}

static void call_without_memory_fails_and_calls_nothing_later(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (unsigned at = 1;; at++) {
        short_of_memory self = { .at = at };
        open_couple(&self.couple);
        int code = call_on(executor_of(self.couple.front), run_bridge_without_memory, &self);
        if (code == 0) {
            settle(executor_of(self.couple.back));
            pump(self.couple.client, self.couple.server, 1000, 1000);
            end_streams(self.couple.client, self.couple.server);
        }
        end_couple(&self.couple);
        assert_int_equal(atomic_load(&self.couple.end.ends), code == 0);
        assert_true(code == 0 || code == -ENOMEM);
        failures += code < 0;
        if (!self.has_failed)
            break;
    }
    assert_true(failures >= 3); /* the bridge, and two handlers */
}

/* Handlers beside the bridge ----------------------------------------------------------------------
 */

/* Waits for a line, connects to the upstream that it names, and passes on what follows: from here
 * on the bridge is the last handler. */
typedef struct greeter {
    proxy proxy;
    weir_buf *line;
} greeter;

static void greeter_on_read(weir_ctx *ctx, weir_msg *msg)
{
    greeter *self = weir_ctx_arg(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    uint8_t byte = 0;
    while (byte != '\n' && weir_buf_read_bytes(buf, &byte, 1) == 0)
        continue;
    if (byte != '\n') {
        weir_msg_release(msg);
        return;
    }
    int code = proxy_connect(&self->proxy, weir_ctx_channel(ctx));
    if (code < 0)
        weir_ctx_close(ctx, NULL);
    if (weir_buf_readable(buf) > 0)
        weir_ctx_fire_read(ctx, msg);
    else
        weir_msg_release(msg);
    weir_ctx_remove(ctx);
}

static const weir_handler_type greeter_type = { .name = "greeter", .on_read = greeter_on_read };

static int init_greeter(weir_channel *front, void *arg)
{
    proxy *self = arg;
    atomic_store(&self->front, weir_channel_retain(front));
    return weir_pipeline_add_last(weir_channel_pipeline(front), "greeter", &greeter_type,
                                  WEIR_CONTAINER(self, greeter, proxy));
}

static void last_handler_bridges_and_passes_on_what_is_left(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        for (size_t more = 0; more < 50000; more = more * 3 + 1) {
            greeter self = { .proxy.is_late = is_late, .proxy.config.relay_after_bytes = 1 };
            static uint8_t bytes[65536];
            open_proxy_with(&self.proxy, init_greeter);
            peer_send(self.proxy.client, "connect ", 8);
            memcpy(bytes, "please\n", 7);
            fill_pattern(bytes + 7, 0, more);
            peer_send(self.proxy.client, bytes, 7 + more); /* one message, or several */
            if (is_late)
                answer_upstream(&self.proxy);
            else
                accept_upstream(&self.proxy);
            peer_expect_pattern(self.proxy.server, 0, more);
            peer_send_pattern(self.proxy.client, more, 100000);
            peer_expect_pattern(self.proxy.server, more, 100000);
            end_both_directions(&self.proxy);
            expect_complete(&self.proxy.end, more + 100000, 0);
            atomic_store(&self.proxy.fronts, 1);
            end_proxy(&self.proxy);
        }
    }
}

/* Keeps messages, and passes them on when it is removed. */
typedef struct keeper {
    couple couple;
    weir_msg *kept[1000];
    size_t count;
    atomic_size_t bytes;
} keeper;

static void keeper_on_read(weir_ctx *ctx, weir_msg *msg)
{
    keeper *self = weir_ctx_arg(ctx);
    if (self->count == COUNT_OF(self->kept)) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    self->kept[self->count++] = msg;
    atomic_fetch_add(&self->bytes, weir_msg_size(msg));
}

static void keeper_removed(weir_ctx *ctx)
{
    keeper *self = weir_ctx_arg(ctx);
    for (size_t i = 0; i < self->count; i++)
        weir_ctx_fire_read(ctx, self->kept[i]);
    if (self->count > 0)
        weir_ctx_fire_read_complete(ctx);
    self->count = 0;
}

static const weir_handler_type keeper_type = { .name = "keeper",
                                               .on_read = keeper_on_read,
                                               .removed = keeper_removed };

static void handler_that_is_removed_passes_its_bytes_to_the_bridge(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        static keeper self;
        memset(&self, 0, sizeof self);
        couple *both = &self.couple;
        open_couple(both);
        weir_pipeline *pipeline = weir_channel_pipeline(is_back ? both->back : both->front);
        assert_int_equal(weir_pipeline_add_last(pipeline, "keeper", &keeper_type, &self), 0);
        add_bridge(both);
        int from = is_back ? both->server : both->client;
        int to = is_back ? both->client : both->server;
        for (size_t sent = 0; sent < 100000; sent += 10000) {
            peer_send_pattern(from, sent, 10000);
            WAIT_FOR(atomic_load(&self.bytes) == sent + 10000);
        }
        assert_int_equal(peer_drain(to), 0);
        assert_int_equal(weir_pipeline_remove(pipeline, "keeper", NULL), 0);
        peer_expect_pattern(to, 0, 100000);
        peer_send_pattern(from, 100000, 100000);
        peer_expect_pattern(to, 100000, 100000);
        end_streams(from, to);
        expect_complete(&both->end, is_back ? 0 : 200000, is_back ? 200000 : 0);
        end_couple(both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bridge_cases(active_channels_are_bridged),
        bridge_cases(channels_on_no_loop_are_rejected),
        bridge_cases(bridge_needs_no_config),
        bridge_cases(bridge_sets_the_options_that_it_needs),
        bridge_cases(name_that_is_taken_closes_both),
        bridge_cases(channel_that_is_bridged_already_is_rejected),
        bridge_cases(closed_channel_is_rejected_and_closes_the_other),
        bridge_cases(channel_that_closes_meanwhile_closes_the_other),
        bridge_cases(back_channel_that_cannot_connect_closes_the_front_channel),
        bridge_cases(call_without_memory_fails_and_calls_nothing_later),
        bridge_cases(last_handler_bridges_and_passes_on_what_is_left),
        bridge_cases(handler_that_is_removed_passes_its_bytes_to_the_bridge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
