/* SPDX-License-Identifier: MIT */
/* What streams cost: system calls and memory, counted; and the order in which epoll serves them. */
#include "transport/sockets.h"

#include "channel/extras.h"
#include "channel/offload.h"
#include "io/slots.h"
#include "transport/socket.h"

/* The kernel, for a while, with an ear at what is asked of epoll, and events of our choice. */
static struct {
    weir_sys own;
    atomic_uint adds, changes, removals;
    _Atomic(uint32_t) event_mask; /* what is left of each event */
} spy;

static int spy_epoll_ctl(weir_sys *self, int epoll, int operation, int fd,
                         struct epoll_event *event)
{
    if (operation == EPOLL_CTL_ADD)
        atomic_fetch_add(&spy.adds, 1);
    else
        atomic_fetch_add(operation == EPOLL_CTL_MOD ? &spy.changes : &spy.removals, 1);
    return spy.own.epoll_ctl(self, epoll, operation, fd, event);
}

static int spy_epoll_wait(weir_sys *self, int epoll, struct epoll_event *events, int max,
                          int64_t timeout_ns)
{
    int count = spy.own.epoll_wait(self, epoll, events, max, timeout_ns);
    for (int i = 0; i < count; i++)
        events[i].events &= atomic_load(&spy.event_mask);
    return count;
}

/* Before any thread is there. */
static void begin_spying(void)
{
    weir_sys *sys = weir__sys_linux();
    spy.own = *sys;
    atomic_store(&spy.adds, 0);
    atomic_store(&spy.changes, 0);
    atomic_store(&spy.removals, 0);
    atomic_store(&spy.event_mask, UINT32_MAX);
    sys->epoll_ctl = spy_epoll_ctl;
    sys->epoll_wait = spy_epoll_wait;
}

static void end_spying(void)
{
    end_group(group);
    group = NULL;
    *weir__sys_linux() = spy.own;
}

/* Memory --------------------------------------------------------------------------------------- */

/* The numbers in docs/guarantees.md. */
static void a_connection_is_as_large_as_promised(void **state)
{
    (void)state;
    assert_int_equal(sizeof(weir_socket), 712);
    assert_int_equal(2 * sizeof(weir_slot), 32); /* the table doubles */
    assert_int_equal(2 * sizeof(uint32_t) / WEIR_SLOTS_PER_BUCKET, 2);
    assert_int_equal(sizeof(weir_member), 80);
    assert_int_equal(WEIR__CTX_STATE, 80);
    assert_int_equal(sizeof(weir_offload), 488);
    assert_int_equal(sizeof(weir_offloaded), 128);
    assert_int_equal(sizeof(weir_channel_extras), 432);
    assert_int_equal(sizeof(weir_write), 40);
    assert_int_equal(sizeof(weir_io_op), 48);
}

/* Steady state --------------------------------------------------------------------------------- */

typedef struct costs {
    weir_loop_stats loop;
    weir_allocator_stats memory;
} costs;

static costs costs_now(const weir_channel *channel)
{
    costs now = { .loop = stats_of_loop(channel) };
    weir_allocator_get_stats(&now.memory);
    return now;
}

static void a_round_trip_costs_one_receive_and_one_send(void **state)
{
    (void)state;
    enum { FIRST = 200, TRIPS = 1000 }; /* the first until its buffers have their size */
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        record seen = { .is_echo = true };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        for (int i = 0; i < FIRST; i++) {
            peer_send(peer, "ping", 4);
            peer_expect_text(peer, "ping");
        }
        settle(executor_of(channel));
        costs before = costs_now(channel);
        for (int i = 0; i < TRIPS; i++) {
            peer_send(peer, "ping", 4);
            peer_expect_text(peer, "ping");
        }
        WAIT_FOR(atomic_load(&seen.completes) == TRIPS + FIRST);
        costs after = costs_now(channel);
        /* A short read of a Unix stream may have stopped at descriptors, so it looks once more. */
        int looks = stream == UNIX ? 2 : 1;
        assert_int_equal(after.loop.receives - before.loop.receives, TRIPS * looks);
        assert_int_equal(after.loop.sends - before.loop.sends, TRIPS);
        /* As many waits; one that takes long, because the machine is busy, is taken in two, to give
         * memory back in between. */
        uint64_t polls = after.loop.polls - before.loop.polls;
        uint64_t allocations = after.memory.allocations - before.memory.allocations;
        assert_in_range(polls, TRIPS - 1, 2 * TRIPS + 2);
        assert_in_range(allocations, 0, polls > TRIPS + 1 ? 8 * (polls - TRIPS) : 0);
        assert_int_equal(after.loop.controls, before.loop.controls);
        end_channel(channel);
        close(peer);
    }
}

static void many_messages_at_a_time_cost_less(void **state)
{
    (void)state;
    record seen = { .is_echo = true };
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    blocker hold;
    block(&hold, executor_of(channel));
    static char bytes[8000];
    peer_send(peer, bytes, sizeof bytes);
    unblock(&hold);
    size_t got = 0;
    while (got < sizeof bytes) {
        peer_wait(peer, POLLIN);
        got += peer_drain(peer);
    }
    /* Several reads, one flush, one send of all the pieces. */
    weir_loop_stats stats = stats_of_loop(channel);
    assert_in_range(stats.receives, 2, 6);
    assert_int_equal(stats.sends, 1);
    end_channel(channel);
    close(peer);
}

/* Rows of epoll -------------------------------------------------------------------------------- */

static void note_sent(void *arg, weir_future *future)
{
    note(arg, "sent:%d ", weir_future_code(future));
}

/* Fills what the kernel takes, until so much waits in the queue that one call can send it. */
static void fill_up(weir_channel *channel, record *seen)
{
    weir_channel_stats stats;
    for (;;) {
        weir_promise *promise = promise_of(channel);
        assert_int_equal(weir_future_on_done(weir_promise_future(promise), note_sent, seen), 0);
        weir_channel_write_and_flush(channel, pattern_msg(0, 4096), promise);
        settle_calls(channel);
        weir_promise_release(promise);
        weir_channel_get_stats(channel, &stats);
        if (stats.pending_bytes > 0)
            return;
    }
}

static void forget_story(record *seen)
{
    pthread_mutex_lock(&story_lock);
    seen->story[0] = '\0';
    pthread_mutex_unlock(&story_lock);
}

static weir_channel *stuffed_pair(int stream, record *seen, int *peer)
{
    int size = 8192;
    weir_channel *channel = half_pair(stream, seen, peer);
    setsockopt(weir_channel_descriptor(channel), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(*peer, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    assert_int_equal(register_it(channel), 0);
    fill_up(channel, seen);
    forget_story(seen);
    return channel;
}

static void s105_sends_before_it_reads(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    blocker hold;
    weir_channel *channel = stuffed_pair(UNIX, &seen, &peer);
    block(&hold, executor_of(channel));
    peer_drain(peer); /* over a Unix stream there is room at once then, for all that waits */
    peer_send(peer, "now", 3);
    unblock(&hold);
    WAIT_FOR(atomic_load(&seen.completes) == 1 && story_has(&seen, "sent:0"));
    assert_story(&seen, "sent:0 read complete ");
    end_channel(channel);
    close(peer);
}

static void s106_a_hangup_alone_leads_to_a_read(void **state)
{
    (void)state;
    const uint32_t masks[] = { EPOLLHUP, 0 };
    for (size_t i = 0; i < COUNT_OF(masks); i++) {
        record seen = { 0 };
        int peer;
        if (group == NULL)
            assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 2 }, NULL), 0);
        begin_spying();
        weir_channel *channel = pair_with(UNIX, &seen, &peer);
        settle(executor_of(channel));
        atomic_store(&spy.event_mask, masks[i]);
        close(peer);
        wait_for_close(channel);
        assert_story(&seen, "registered active inactive unregistered ");
        atomic_store(&spy.event_mask, UINT32_MAX);
        weir_channel_release(channel);
        end_spying();
    }
}

static void s116_a_partial_write_waits_without_spinning(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    begin_spying();
    weir_channel *channel = stuffed_pair(TCP, &seen, &peer);
    unsigned adds = atomic_load(&spy.adds);
    assert_idle(channel); /* although it wants to write */
    weir_loop_stats before = stats_of_loop(channel);
    weir_channel_write_and_flush(channel, pattern_msg(0, 100000), NULL);
    settle_calls(channel);
    assert_idle(channel);
    weir_channel_stats stats;
    size_t got = 0;
    do {
        got += peer_drain(peer);
        weir_channel_get_stats(channel, &stats);
    } while (stats.pending_bytes > 0);
    while (got < 100000)
        got += peer_drain(peer);
    weir_loop_stats after = stats_of_loop(channel);
    assert_in_range(after.sends - before.sends, 2, 2000);
    assert_idle(channel); /* and nobody tells it that it could */
    assert_int_equal(atomic_load(&spy.changes), 0);
    assert_int_equal(atomic_load(&spy.adds), adds);
    end_channel(channel);
    assert_int_equal(atomic_load(&spy.removals), 0);
    close(peer);
    end_spying();
}

static void s122_nothing_is_asked_before_it_is_active(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port();
    int listener = peer_listen(&address, 1);
    begin_spying();
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, &address);
    add_record(channel, &seen);
    assert_int_equal(register_it(channel), 0);
    settle(executor_of(channel));
    assert_int_equal(atomic_load(&spy.adds), 1); /* what wakes the loop */
    assert_idle(channel);
    assert_int_equal(connect_to(channel, &address), 0);
    int peer = peer_accept(listener);
    peer_send(peer, "x", 1);
    WAIT_FOR(atomic_load(&seen.reads) == 1);
    assert_int_equal(atomic_load(&spy.adds), 2);
    assert_int_equal(atomic_load(&spy.changes), 0);
    end_channel(channel);
    end_spying();
    close(peer);
    close(listener);
}

/* Who has much to say does not keep the others waiting. */
static void sixteen_reads_and_then_the_others(void **state)
{
    (void)state;
    record loud = { 0 }, quiet = { 0 };
    int peers[2], size = 4 * 1024 * 1024;
    weir_channel *first = half_pair(TCP, &loud, &peers[0]);
    weir_channel *second = half_pair(TCP, &quiet, &peers[1]);
    weir_executor *loop = weir_group_at(group, 0);
    setsockopt(weir_channel_descriptor(first), SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    setsockopt(peers[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    weir_promise *promise = promise_of(first);
    weir_channel_register(first, loop, promise);
    assert_int_equal(outcome(promise), 0);
    promise = promise_of(second);
    weir_channel_register(second, loop, promise);
    assert_int_equal(outcome(promise), 0);
    blocker hold;
    block(&hold, loop);
    peer_send_pattern(peers[0], 0, MIB);
    peer_send(peers[1], "me too", 6);
    unblock(&hold);
    WAIT_FOR(atomic_load(&loud.bytes) == MIB && atomic_load(&quiet.bytes) == 6);
    settle(loop);
    assert_in_range(loud.largest_batch, 1, 16);
    assert_int_equal(atomic_load(&quiet.reads), 1);
    end_channel(first);
    end_channel(second);
    close(peers[0]);
    close(peers[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_connection_is_as_large_as_promised),
        epoll_case(a_round_trip_costs_one_receive_and_one_send),
        call_cases(many_messages_at_a_time_cost_less),
        epoll_case(s105_sends_before_it_reads),
        loop_cases(s106_a_hangup_alone_leads_to_a_read),
        loop_cases(s116_a_partial_write_waits_without_spinning),
        epoll_case(s122_nothing_is_asked_before_it_is_active),
        loop_cases(sixteen_reads_and_then_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
