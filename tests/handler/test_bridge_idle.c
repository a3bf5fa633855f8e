/* SPDX-License-Identifier: MIT */
/* The idle timeout of bridges, on loops with a virtual clock. */
#include "handler/bridges.h"

/* On loops that this thread drives, with a time of their own. */
typedef struct still {
    couple couple;
} still;

static weir_virtual_clock clock_of_loops; /* the group of the last bridge ends after its case */

/* Waits for a condition, and drives the loops meanwhile. */
#define STEP_FOR(condition)                                                                        \
    WAIT_FOR_STEPPING(condition, (weir_group_step(group), harness_wait_pause(&wait_)))

static void step_all(void)
{
    for (int quiet = 0; quiet < 5;) /* the kernel may take a moment over io_uring */
        quiet = weir_group_step(group) > 0 ? 0 : quiet + 1;
}

static void open_clock(void)
{
    end_group(group);
    weir_virtual_clock_init(&clock_of_loops, WEIR_SECONDS(1));
    weir_group_config config = { .loops = 2, .is_manual = true, .io = current->io };
    config.clock = &clock_of_loops.clock;
    config.watchdog_ns = WEIR_OFF;
    group = new_loops(&config);
}

#define ROOM_BYTES ((size_t)4 * MIB)
#define QUEUED_BYTES ((size_t)1024 * 1024)

/* Before they are bridged: the kernel takes little, the queue of a channel much. */
static void make_roomy(couple *both)
{
    weir_channel *channels[] = { both->front, both->back };
    make_small(both->client);
    make_small(both->server);
    for (size_t i = 0; i < COUNT_OF(channels); i++) {
        make_small(weir_channel_descriptor(channels[i]));
        weir_channel_set_water_marks(channels[i], ROOM_BYTES / 2, ROOM_BYTES);
    }
}

static void open_still(still *self)
{
    couple *both = &self->couple;
    open_clock();
    both->front = half_pair(TCP, NULL, &both->client);
    both->back = half_pair(TCP, NULL, &both->server);
    make_roomy(both);
    weir_channel_register(both->front, weir_group_at(group, 0), NULL);
    weir_channel_register(both->back, weir_group_at(group, is_apart), NULL);
    STEP_FOR(weir_channel_is_active(both->front) && weir_channel_is_active(both->back));
    both->code = 1;
    weir_executor_execute(executor_of(both->front), run_bridge, both);
    STEP_FOR(both->code != 1);
    assert_int_equal(both->code, 0);
    step_all();
}

static void end_still(still *self)
{
    couple *both = &self->couple;
    weir_channel_close(both->front, NULL);
    weir_channel_close(both->back, NULL);
    STEP_FOR(weir_channel_get_state(both->front) == WEIR_CHANNEL_UNREGISTERED &&
             weir_channel_get_state(both->back) == WEIR_CHANNEL_UNREGISTERED);
    assert_int_equal(atomic_load(&both->end.ends), 1);
    weir_channel_release(both->front);
    weir_channel_release(both->back);
    close_peer(&both->client);
    close_peer(&both->server);
}

/* Time passes in so many steps. */
static void pass(int64_t ms, int steps)
{
    for (int i = 0; i < steps; i++) {
        weir_virtual_clock_advance(&clock_of_loops, WEIR_MS(ms) / steps);
        step_all();
    }
}

static void still_send(int from, int to, size_t length)
{
    uint8_t bytes[1000];
    assert_true(length <= sizeof bytes);
    fill_pattern(bytes, 0, length);
    peer_send(from, bytes, length);
    size_t got = 0;
    while (got < length) {
        ssize_t code = -1;
        STEP_FOR((code = recv(to, bytes + got, length - got, MSG_DONTWAIT)) >= 0);
        assert_true(code > 0);
        got += (size_t)code;
    }
    assert_true(is_pattern(bytes, 0, length));
}

static bool is_open(const still *self)
{
    return weir_channel_is_open(self->couple.front) && weir_channel_is_open(self->couple.back) &&
           atomic_load(&self->couple.end.ends) == 0;
}

static void expect_idle_reset(still *self)
{
    couple *both = &self->couple;
    STEP_FOR(atomic_load(&both->end.ends) == 1);
    assert_int_equal(both->end.error.code, -ETIMEDOUT);
    STEP_FOR(weir_channel_get_state(both->front) == WEIR_CHANNEL_UNREGISTERED &&
             weir_channel_get_state(both->back) == WEIR_CHANNEL_UNREGISTERED);
}

/* The time is looked at four times in each, so it takes a quarter longer at most. */
static void idle_bridge_is_reset_after_its_time(void **state)
{
    (void)state;
    for (int has_bytes = 0; has_bytes < 2; has_bytes++) {
        still self = { .couple.config.idle_timeout_ns = WEIR_MS(1000) };
        open_still(&self);
        if (has_bytes)
            still_send(self.couple.client, self.couple.server, 10);
        pass(980, 98);
        assert_true(is_open(&self));
        pass(300, 30);
        expect_idle_reset(&self);
        peer_expect_reset(self.couple.client);
        peer_expect_reset(self.couple.server);
        end_still(&self);
    }
}

static void idle_time_is_ten_minutes_by_default(void **state)
{
    (void)state;
    still self = { .couple.config.idle_timeout_ns = 0 };
    open_still(&self);
    pass(599000, 599);
    assert_true(is_open(&self));
    pass(152000, 152);
    expect_idle_reset(&self);
    end_still(&self);
}

static void idle_time_that_is_off_never_ends_it(void **state)
{
    (void)state;
    still self = { .couple.config.idle_timeout_ns = WEIR_OFF };
    open_still(&self);
    pass(100 * 86400000LL, 1000);
    assert_true(is_open(&self));
    still_send(self.couple.client, self.couple.server, 10);
    end_still(&self);
}

static void traffic_in_one_direction_keeps_the_bridge(void **state)
{
    (void)state;
    for (int is_relaying = 0; is_relaying < 2; is_relaying++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            still self = { .couple.config.idle_timeout_ns = WEIR_MS(1000) };
            self.couple.config.relay_after_bytes = is_relaying ? 1 : WEIR_OFF;
            open_still(&self);
            int from = is_back ? self.couple.server : self.couple.client;
            int to = is_back ? self.couple.client : self.couple.server;
            for (int i = 0; i < 20; i++) {
                still_send(from, to, 1);
                pass(950, 19);
                assert_true(is_open(&self));
            }
            weir_channel *reads = is_back ? self.couple.back : self.couple.front;
            assert_int_equal(weir__socket_of(reads)->is_relayed, is_relaying && !is_apart);
            pass(350, 7);
            expect_idle_reset(&self);
            peer_expect_reset(from);
            peer_expect_reset(to);
            end_still(&self);
        }
    }
}

/* Until so much is queued in the process, all of which the reader has read. */
static void queue_bytes(int from, weir_channel *reads, weir_channel *sends)
{
    uint8_t bytes[16384];
    size_t before = stats_of_channel(reads).bytes_in;
    for (size_t sent = 0; stats_of_channel(sends).pending_bytes < QUEUED_BYTES;) {
        fill_pattern(bytes, sent, sizeof bytes);
        ssize_t code = send(from, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(code > 0 || errno == EAGAIN);
        sent += code > 0 ? (size_t)code : 0;
        assert_true(sent < 64 * MIB);
        STEP_FOR(stats_of_channel(reads).bytes_in - before == sent);
        step_all();
    }
}

/* The peer takes some, so that some more is sent. */
static void drain_until_more_is_sent(int peer, weir_channel *sends)
{
    uint64_t before = stats_of_channel(sends).bytes_out;
    WAIT_FOR_STEPPING(stats_of_channel(sends).bytes_out > before, (peer_drain(peer), step_all()));
}

/* Nothing is read meanwhile. */
static void bytes_that_are_sent_slowly_keep_the_bridge(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        still self = { .couple.config.idle_timeout_ns = WEIR_MS(1000) };
        self.couple.config.relay_after_bytes = WEIR_OFF;
        open_still(&self);
        int from = is_back ? self.couple.server : self.couple.client;
        int to = is_back ? self.couple.client : self.couple.server;
        weir_channel *reads = is_back ? self.couple.back : self.couple.front;
        weir_channel *sends = is_back ? self.couple.front : self.couple.back;
        queue_bytes(from, reads, sends);
        uint64_t bytes_in = stats_of_channel(reads).bytes_in;
        for (int i = 0; i < 5; i++) {
            drain_until_more_is_sent(to, sends);
            pass(950, 19);
            assert_true(is_open(&self));
        }
        assert_int_equal(stats_of_channel(reads).bytes_in, bytes_in);
        assert_true(stats_of_channel(sends).pending_bytes > 0);
        pass(350, 7);
        expect_idle_reset(&self);
        end_still(&self);
    }
}

/* One direction has ended, so one of the two channels could close in good order. */
static void idle_bridge_is_reset_after_one_eof(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        still self = { .couple.config.idle_timeout_ns = WEIR_MS(1000) };
        open_still(&self);
        int ended = is_back ? self.couple.server : self.couple.client;
        int open = is_back ? self.couple.client : self.couple.server;
        still_send(ended, open, 10);
        shutdown(ended, SHUT_WR);
        char byte;
        STEP_FOR(recv(open, &byte, 1, MSG_DONTWAIT) == 0);
        pass(950, 19);
        assert_true(is_open(&self));
        pass(400, 8);
        expect_idle_reset(&self);
        peer_expect_reset(ended);
        end_still(&self);
    }
}

/* Both peers have ended their output, and one channel has closed. The peer of the other one never
 * reads what is queued for it. */
static void idle_time_counts_when_one_channel_has_closed(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        still self = { .couple.config.idle_timeout_ns = WEIR_MS(1000) };
        self.couple.config.relay_after_bytes = WEIR_OFF;
        open_still(&self);
        int slow = is_back ? self.couple.client : self.couple.server;
        int quick = is_back ? self.couple.server : self.couple.client;
        weir_channel *sends = is_back ? self.couple.front : self.couple.back;
        weir_channel *closes = is_back ? self.couple.back : self.couple.front;
        queue_bytes(quick, closes, sends);
        shutdown(slow, SHUT_WR);
        shutdown(quick, SHUT_WR);
        STEP_FOR(weir_channel_get_state(closes) == WEIR_CHANNEL_UNREGISTERED);
        pass(950, 19);
        assert_true(weir_channel_is_open(sends));
        assert_int_equal(atomic_load(&self.couple.end.ends), 0);
        pass(350, 7);
        expect_idle_reset(&self);
        peer_expect_reset(slow);
        end_still(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loops_cases(idle_bridge_is_reset_after_its_time),
        loops_cases(idle_time_is_ten_minutes_by_default),
        loops_cases(idle_time_that_is_off_never_ends_it),
        loops_cases(traffic_in_one_direction_keeps_the_bridge),
        loops_cases(bytes_that_are_sent_slowly_keep_the_bridge),
        loops_cases(idle_bridge_is_reset_after_one_eof),
        loops_cases(idle_time_counts_when_one_channel_has_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
