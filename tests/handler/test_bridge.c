/* SPDX-License-Identifier: MIT */
/* Bridges: what passes them, what slows them down, and all the ways they may end. */
#include "handler/bridges.h"

#include <weir/fault.h>
#include <weir/logging.h>

/* One direction through a proxy: its peers, and its channels. */
typedef struct direction {
    int from, to;
    weir_channel *reads, *writes;
    size_t sent;
} direction;

static direction direction_of(proxy *self, bool is_back)
{
    if (is_back)
        return (direction){ self->server, self->client, self->back, self->front, 0 };
    return (direction){ self->client, self->server, self->front, self->back, 0 };
}

/* Connected; the peer that does not read has stopped the other one. */
static direction open_stuck(proxy *self, int64_t relay_after_bytes, bool is_back)
{
    open_small_proxy(self, relay_after_bytes);
    direction way = direction_of(self, is_back);
    way.sent = send_until_stuck(way.from, 0, 64 * MIB, way.reads);
    return way;
}

/* Bytes ------------------------------------------------------------------------------------------
 */

static void bytes_arrive_in_both_directions(void **state)
{
    (void)state;
    for (int stream = TCP; stream < STREAMS; stream++) {
        proxy self = { .stream = stream };
        open_proxy(&self);
        for (int i = 0; i < 10; i++) {
            peer_send(self.client, "ping", 4);
            peer_expect_text(self.server, "ping");
            peer_send(self.server, "pong!", 5);
            peer_expect_text(self.client, "pong!");
        }
        end_both_directions(&self);
        expect_complete(&self.end, 40, 50);
        end_proxy(&self);
    }
}

static void many_bytes_arrive_in_order_in_both_directions_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
            proxy self = { .stream = stream, .config.relay_after_bytes = relay_limits[i] };
            open_proxy(&self);
            pump_to_end(self.client, self.server, 5 * MIB + 1, 6 * MIB + 7);
            expect_complete(&self.end, 5 * MIB + 1, 6 * MIB + 7);
            end_proxy(&self);
        }
    }
}

static void bytes_of_one_direction_arrive_while_the_other_is_silent(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            proxy self = { .config.relay_after_bytes = relay_limits[i] };
            open_proxy(&self);
            size_t there = is_back ? 0 : 3 * MIB, back = is_back ? 3 * MIB : 0;
            pump(self.client, self.server, there, back);
            end_both_directions(&self);
            expect_complete(&self.end, there, back);
            end_proxy(&self);
        }
    }
}

/* Messages that come one by one, each flushed, so that the relay begins between any two of them. */
static void pieces_of_any_size_arrive_in_order_when_the_relay_begins(void **state)
{
    (void)state;
    for (int times = 0; times < 20; times++) {
        proxy self = { .config.relay_after_bytes = 1 + times * 777 };
        size_t at = 0, got = 0;
        open_proxy(&self);
        for (size_t i = 1; i <= 60; i++) {
            size_t part = (i * i * 37 + (size_t)times) % 4000 + 1;
            peer_send_pattern(self.client, at, part);
            at += part;
            if (i % 4 != 0)
                continue;
            peer_expect_pattern(self.server, got, at - got);
            got = at;
        }
        end_both_directions(&self);
        expect_complete(&self.end, at, 0);
        end_proxy(&self);
    }
}

/* Both peers send from the first moment, before the bridge is joined. */
static void bytes_that_are_sent_at_once_arrive_in_order(void **state)
{
    (void)state;
    for (size_t times = 0; times < 20; times++) {
        proxy self = { .config.relay_after_bytes = relay_limits[times % COUNT_OF(relay_limits)],
                       .is_alone = true };
        open_proxy(&self);
        self.client = peer_connect(&self.address);
        peer_send_pattern(self.client, 0, 3000);
        accept_upstream(&self);
        peer_send_pattern(self.server, 0, 2000);
        shutdown(self.server, SHUT_WR);
        peer_send_pattern(self.client, 3000, 70000);
        shutdown(self.client, SHUT_WR);
        peer_expect_pattern(self.server, 0, 73000);
        peer_expect_eof(self.server);
        peer_expect_pattern(self.client, 0, 2000);
        peer_expect_eof(self.client);
        expect_complete(&self.end, 73000, 2000);
        end_proxy(&self);
    }
}

static void server_that_speaks_first_is_heard(void **state)
{
    (void)state;
    for (int is_closing = 0; is_closing < 2; is_closing++) {
        proxy self = { 0 };
        open_proxy(&self);
        peer_send_pattern(self.server, 0, MIB);
        if (is_closing)
            close_peer(&self.server); /* at once, so both have to get through to a client alone */
        peer_expect_pattern(self.client, 0, MIB);
        if (is_closing)
            peer_expect_eof(self.client);
        else
            end_both_directions(&self);
        if (is_closing)
            shutdown(self.client, SHUT_WR);
        expect_complete(&self.end, 0, MIB);
        end_proxy(&self);
    }
}

/* Channels within the process, whose messages are not copied. */
static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void echo_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        weir_ctx_shutdown(ctx, NULL);
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type echo = {
    .name = "echo",
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
    .on_event = echo_on_event,
};

static int add_echo(weir_channel *child, void *arg)
{
    (void)arg;
    weir_channel_set_option(child, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    return weir_pipeline_add_last(weir_channel_pipeline(child), "echo", &echo, NULL);
}

static void upstream_within_the_process_is_bridged(void **state)
{
    (void)state;
    weir_server *upstream;
    weir_server_config config = { .boss = group, .init_child = add_echo };
    assert_int_equal(weir_server_listen(&upstream, &config, "local:bridge", NULL), 0);
    proxy self = { .text = "local:bridge", .config.relay_after_bytes = 1 };
    open_proxy(&self);
    flow there_and_back = { .fd = self.client, .to_send = MIB, .to_get = MIB };
    there_and_back.ends = there_and_back.expects_eof = true;
    run_flows(&there_and_back, 1);
    expect_complete(&self.end, MIB, MIB);
    end_proxy(&self);
    weir_server_close(upstream, NULL);
    weir_future_await(weir_server_closed(upstream));
    weir_server_release(upstream);
}

/* The kernel's relay ------------------------------------------------------------------------------
 */

/* A byte through and back to the first: then the loop has handled what came before. */
static void exchange(proxy *self)
{
    peer_send(self->client, "x", 1);
    peer_expect_text(self->server, "x");
}

static void kernel_relays_from_the_limit_on(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        proxy self = { .config.relay_after_bytes = 1000 };
        open_proxy(&self);
        expect_connected(&self); /* two bytes back */
        direction way = direction_of(&self, is_back);
        size_t before = is_back ? 2 : 0;
        peer_send_pattern(way.from, 0, 999 - before);
        peer_expect_pattern(way.to, 0, 999 - before);
        settle(executor_of(way.reads));
        assert_false(is_relayed(way.reads));
        peer_send_pattern(way.from, 999 - before, 1);
        peer_expect_pattern(way.to, 999 - before, 1);
        if (may_be_relayed())
            WAIT_FOR(is_relayed(way.reads));
        uint64_t messages = stats_of_channel(way.reads).messages_in;
        for (size_t at = 1000 - before; at < 3000; at += 100) {
            peer_send_pattern(way.from, at, 100);
            peer_expect_pattern(way.to, at, 100);
        }
        settle(executor_of(way.reads));
        assert_int_equal(is_relayed(way.reads), may_be_relayed());
        assert_true((stats_of_channel(way.reads).messages_in == messages) == may_be_relayed());
        assert_false(is_relayed(way.writes));
        end_proxy(&self);
    }
}

static void kernel_does_not_relay_below_the_default_limit(void **state)
{
    (void)state;
    proxy self = { 0 };
    open_proxy(&self);
    pump(self.client, self.server, MIB - 1, MIB - 1);
    settle(executor_of(self.front));
    assert_false(is_relayed(self.front));
    assert_false(is_relayed(self.back));
    exchange(&self);
    if (may_be_relayed())
        WAIT_FOR(is_relayed(self.front));
    assert_false(is_relayed(self.back));
    end_proxy(&self);
}

static void kernel_never_relays_when_it_is_off(void **state)
{
    (void)state;
    proxy self = { .config.relay_after_bytes = WEIR_OFF };
    open_proxy(&self);
    pump(self.client, self.server, 3 * MIB, 3 * MIB);
    settle(executor_of(self.front));
    settle(executor_of(self.back));
    assert_false(is_relayed(self.front));
    assert_false(is_relayed(self.back));
    end_proxy(&self);
}

/* A handler that needs the bytes, before the bridge. */
typedef struct watcher {
    proxy proxy;
    bool is_front, is_back; /* where it is */
    bool writes_only;
    atomic_size_t seen;
} watcher;

static watcher *watcher_of(weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static void watch_on_read(weir_ctx *ctx, weir_msg *msg)
{
    atomic_fetch_add(&watcher_of(ctx)->seen, weir_msg_size(msg));
    weir_ctx_fire_read(ctx, msg);
}

static void watch_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    atomic_fetch_add(&watcher_of(ctx)->seen, weir_msg_size(msg));
    weir_ctx_write(ctx, msg, promise);
}

static const weir_handler_type reads_watcher = { .name = "reads", .on_read = watch_on_read };
static const weir_handler_type writes_watcher = { .name = "writes", .write = watch_write };

static int add_watcher(watcher *self, weir_channel *channel)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "watcher",
                                  self->writes_only ? &writes_watcher : &reads_watcher, self);
}

static int watch_front(proxy *self, weir_channel *front)
{
    watcher *whole = WEIR_CONTAINER(self, watcher, proxy);
    return whole->is_front ? add_watcher(whole, front) : 0;
}

static int watch_back(proxy *self, weir_channel *back)
{
    watcher *whole = WEIR_CONTAINER(self, watcher, proxy);
    return whole->is_back ? add_watcher(whole, back) : 0;
}

static void handler_that_needs_the_bytes_sees_all_of_them(void **state)
{
    (void)state;
    for (int place = 0; place < 2; place++) {
        for (int writes_only = 0; writes_only < 2; writes_only++) {
            watcher self = { .is_front = place == 0, .is_back = place == 1 };
            self.writes_only = writes_only;
            self.proxy.config.relay_after_bytes = 1;
            self.proxy.before = watch_front;
            self.proxy.init_back = watch_back;
            open_proxy(&self.proxy);
            pump_to_end(self.proxy.client, self.proxy.server, 2 * MIB, 3 * MIB);
            expect_complete(&self.proxy.end, 2 * MIB, 3 * MIB);
            bool sees_there = (place == 0) != writes_only;
            assert_int_equal(atomic_load(&self.seen), sees_there ? 2 * MIB : 3 * MIB);
            end_proxy(&self.proxy);
        }
    }
}

static int log_front(proxy *self, weir_channel *front)
{
    (void)self;
    return weir_pipeline_add_last(weir_channel_pipeline(front), "log", &weir_logging_handler, NULL);
}

static void logged_channel_is_bridged_without_a_relay(void **state)
{
    (void)state;
    proxy self = { .config.relay_after_bytes = 1, .before = log_front };
    open_proxy(&self);
    pump(self.client, self.server, MIB, MIB);
    assert_false(is_relayed(self.front));
    assert_false(is_relayed(self.back));
    end_both_directions(&self);
    expect_complete(&self.end, MIB, MIB);
    end_proxy(&self);
}

/* One that only hears of events does not keep the kernel from relaying. */
static void note_event(weir_ctx *ctx, weir_msg *event)
{
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type events_watcher = { .name = "events", .on_event = note_event };

static int watch_events(proxy *self, weir_channel *front)
{
    (void)self;
    return weir_pipeline_add_last(weir_channel_pipeline(front), "events", &events_watcher, NULL);
}

static void handler_of_events_does_not_prevent_the_relay(void **state)
{
    (void)state;
    proxy self = { .config.relay_after_bytes = 1, .before = watch_events };
    open_proxy(&self);
    exchange(&self);
    WAIT_FOR(is_relayed(self.front));
    end_proxy(&self);
}

/* Early bytes -------------------------------------------------------------------------------------
 */

static void early_bytes_wait_for_the_upstream(void **state)
{
    (void)state;
    proxy self = { .is_late = true };
    open_proxy(&self);
    peer_send_pattern(self.client, 0, 5000);
    WAIT_FOR(stats_of_channel(self.front).bytes_in == 5000);
    peer_send_pattern(self.client, 5000, 300);
    WAIT_FOR(stats_of_channel(self.front).bytes_in == 5300);
    answer_upstream(&self);
    peer_expect_pattern(self.server, 0, 5300);
    peer_send_pattern(self.client, 5300, 1000);
    peer_expect_pattern(self.server, 5300, 1000);
    end_both_directions(&self);
    expect_complete(&self.end, 6300, 0);
    end_proxy(&self);
}

#define BATCH_BYTES ((size_t)16 * 65536) /* of reads */
#define EARLY_BYTES ((size_t)64 * 1024)

static void early_bytes_beyond_the_limit_pause_reading(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        proxy self = { .is_late = true, .is_small = true };
        self.config.relay_after_bytes = relay_limits[i];
        open_proxy(&self);
        size_t sent = send_until_stuck(self.client, 0, 64 * MIB, self.front);
        assert_true(sent < 64 * MIB);
        assert_in_range(stats_of_channel(self.front).bytes_in, EARLY_BYTES,
                        EARLY_BYTES + BATCH_BYTES);
        answer_upstream(&self);
        peer_expect_pattern(self.server, 0, sent);
        pump(self.client, self.server, 3 * MIB, MIB);
        end_both_directions(&self);
        expect_complete(&self.end, sent + 3 * MIB, MIB);
        end_proxy(&self);
    }
}

static void early_eof_follows_the_early_bytes(void **state)
{
    (void)state;
    for (int has_bytes = 0; has_bytes < 2; has_bytes++) {
        for (int is_closed = 0; is_closed < 2; is_closed++) {
            size_t sent = has_bytes ? 60000 : 0;
            proxy self = { .is_late = true };
            open_proxy(&self);
            peer_send_pattern(self.client, 0, sent);
            if (is_closed)
                close_peer(&self.client);
            else
                shutdown(self.client, SHUT_WR);
            WAIT_FOR(weir_channel_is_input_closed(self.front));
            assert_true(weir_channel_is_open(self.front));
            answer_upstream(&self);
            peer_expect_pattern(self.server, 0, sent);
            peer_expect_eof(self.server);
            if (!is_closed) {
                pump(self.server, self.client, 100000, 0);
                shutdown(self.server, SHUT_WR);
                peer_expect_eof(self.client);
            }
            close_peer(&self.server);
            expect_complete(&self.end, sent, is_closed ? 0 : 100000);
            end_proxy(&self);
        }
    }
}

/* More of them than are buffered, and then the end. */
static void early_eof_behind_many_bytes_is_seen_later(void **state)
{
    (void)state;
    proxy self = { .is_late = true };
    open_proxy(&self);
    size_t sent = send_until_stuck(self.client, 0, 64 * MIB, self.front);
    shutdown(self.client, SHUT_WR);
    answer_upstream(&self);
    peer_expect_pattern(self.server, 0, sent);
    peer_expect_eof(self.server);
    close_peer(&self.server);
    peer_expect_eof(self.client);
    expect_complete(&self.end, sent, 0);
    end_proxy(&self);
}

/* Back-pressure -----------------------------------------------------------------------------------
 */

/* What the kernel keeps of a connection with small buffers, at both of its ends. */
#define KERNEL_BYTES ((size_t)1024 * 1024)
#define WRITE_HIGH_BYTES ((size_t)65536)

static void expect_bounded(weir_channel *from, weir_channel *to)
{
    uint64_t in = stats_of_channel(from).bytes_in, out = stats_of_channel(to).bytes_out;
    assert_in_range(stats_of_channel(to).pending_bytes, 0, WRITE_HIGH_BYTES + 2 * BATCH_BYTES);
    assert_true(in - out <= WRITE_HIGH_BYTES + 2 * BATCH_BYTES);
    assert_true(in <= KERNEL_BYTES + WRITE_HIGH_BYTES + 2 * BATCH_BYTES);
}

static void peer_that_does_not_read_stops_the_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            proxy self;
            direction way = open_stuck(&self, relay_limits[i], is_back);
            assert_true(way.sent < 64 * MIB);
            expect_bounded(way.reads, way.writes);
            pump(way.to, way.from, 3000, 0); /* the other direction goes on */
            peer_expect_pattern(way.to, 0, way.sent);
            peer_send_pattern(way.from, way.sent, 1000); /* and so does this one */
            peer_expect_pattern(way.to, way.sent, 1000);
            end_both_directions(&self);
            size_t there = is_back ? 3000 : way.sent + 1000;
            size_t back = is_back ? way.sent + 1000 : 3000;
            expect_complete(&self.end, there, back + 2);
            end_proxy(&self);
        }
    }
}

static void peers_that_do_not_read_stop_each_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        proxy self;
        open_small_proxy(&self, relay_limits[i]);
        size_t there = send_until_stuck(self.client, 0, 64 * MIB, self.front);
        size_t back = send_until_stuck(self.server, 0, 64 * MIB, self.back);
        assert_true(there < 64 * MIB && back < 64 * MIB);
        expect_bounded(self.front, self.back);
        expect_bounded(self.back, self.front);
        flow flows[] = {
            { .fd = self.client, .to_send = there + MIB, .sent = there, .to_get = back + 2 * MIB },
            { .fd = self.server, .to_send = back + 2 * MIB, .sent = back, .to_get = there + MIB },
        };
        run_flows(flows, 2);
        end_both_directions(&self);
        expect_complete(&self.end, there + MIB, back + 2 * MIB + 2);
        end_proxy(&self);
    }
}

/* Full, empty, and full again, many times. */
static void peer_that_reads_now_and_then_gets_everything(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        static uint8_t bytes[700000];
        proxy self = { .is_small = true, .config.relay_after_bytes = relay_limits[i] };
        size_t sent = 0, got = 0;
        open_proxy(&self);
        for (int times = 0; times < 40; times++) {
            ssize_t code;
            do {
                fill_pattern(bytes, sent, sizeof bytes);
                code = send(self.client, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
                sent += code > 0 ? (size_t)code : 0;
            } while (code > 0);
            size_t part = (size_t)(times * times * 1009) % sizeof bytes;
            part = part < sent - got ? part : sent - got;
            peer_expect_pattern(self.server, got, part);
            got += part;
        }
        shutdown(self.client, SHUT_WR);
        peer_expect_pattern(self.server, got, sent - got);
        peer_expect_eof(self.server);
        close_peer(&self.server);
        expect_complete(&self.end, sent, 0);
        end_proxy(&self);
    }
}

/* Half-closes -------------------------------------------------------------------------------------
 */

static void eof_of_one_direction_leaves_the_other_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
                proxy self = { .stream = stream, .config.relay_after_bytes = relay_limits[i] };
                open_proxy(&self);
                direction way = direction_of(&self, is_back);
                peer_send_pattern(way.from, 0, 100);
                shutdown(way.from, SHUT_WR);
                peer_expect_pattern(way.to, 0, 100);
                peer_expect_eof(way.to);
                pump(way.to, way.from, 2 * MIB, 0);
                assert_true(weir_channel_is_open(self.front) && weir_channel_is_open(self.back));
                assert_int_equal(atomic_load(&self.end.ends), 0);
                shutdown(way.to, SHUT_WR);
                peer_expect_eof(way.from);
                expect_complete(&self.end, is_back ? 2 * MIB : 100, is_back ? 100 : 2 * MIB);
                end_proxy(&self);
            }
        }
    }
}

static void eof_without_bytes_ends_the_bridge(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        proxy self = { 0 };
        open_proxy(&self);
        if (how == 0) {
            end_both_directions(&self);
        } else { /* at once, in both orders */
            shutdown(how == 1 ? self.client : self.server, SHUT_WR);
            shutdown(how == 1 ? self.server : self.client, SHUT_WR);
            peer_expect_eof(self.client);
            peer_expect_eof(self.server);
        }
        expect_complete(&self.end, 0, 0);
        end_proxy(&self);
    }
}

/* What was written goes before the end, however slowly it is read. */
static void eof_comes_behind_all_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        proxy self;
        size_t sent = open_stuck(&self, relay_limits[i], false).sent;
        shutdown(self.client, SHUT_WR);
        peer_expect_pattern(self.server, 0, sent);
        peer_expect_eof(self.server);
        peer_send(self.server, "thanks", 6);
        peer_expect_text(self.client, "thanks");
        shutdown(self.server, SHUT_WR);
        peer_expect_eof(self.client);
        expect_complete(&self.end, sent, 8);
        end_proxy(&self);
    }
}

/* Both have said everything, and the front channel is closed, while the back channel has much to
 * send. */
static void slow_peer_gets_everything_when_both_have_ended(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(relay_limits); i++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            proxy self;
            direction way = open_stuck(&self, relay_limits[i], is_back);
            shutdown(way.to, SHUT_WR);
            peer_expect_eof(way.from);
            shutdown(way.from, SHUT_WR);
            peer_expect_pattern(way.to, 0, way.sent);
            peer_expect_eof(way.to);
            expect_complete(&self.end, is_back ? 0 : way.sent, is_back ? way.sent + 2 : 2);
            end_proxy(&self);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bridge_cases(bytes_arrive_in_both_directions),
        bridge_cases(many_bytes_arrive_in_order_in_both_directions_at_once),
        bridge_cases(bytes_of_one_direction_arrive_while_the_other_is_silent),
        bridge_cases(pieces_of_any_size_arrive_in_order_when_the_relay_begins),
        bridge_cases(bytes_that_are_sent_at_once_arrive_in_order),
        bridge_cases(server_that_speaks_first_is_heard),
        bridge_cases(upstream_within_the_process_is_bridged),
        bridge_cases(kernel_relays_from_the_limit_on),
        bridge_cases(kernel_does_not_relay_below_the_default_limit),
        bridge_cases(kernel_never_relays_when_it_is_off),
        bridge_cases(handler_that_needs_the_bytes_sees_all_of_them),
        bridge_cases(logged_channel_is_bridged_without_a_relay),
        together_cases(handler_of_events_does_not_prevent_the_relay),
        bridge_cases(early_bytes_wait_for_the_upstream),
        bridge_cases(early_bytes_beyond_the_limit_pause_reading),
        bridge_cases(early_eof_follows_the_early_bytes),
        bridge_cases(early_eof_behind_many_bytes_is_seen_later),
        bridge_cases(peer_that_does_not_read_stops_the_other),
        bridge_cases(peers_that_do_not_read_stop_each_other),
        bridge_cases(peer_that_reads_now_and_then_gets_everything),
        bridge_cases(eof_of_one_direction_leaves_the_other_open),
        bridge_cases(eof_without_bytes_ends_the_bridge),
        bridge_cases(eof_comes_behind_all_bytes),
        bridge_cases(slow_peer_gets_everything_when_both_have_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
