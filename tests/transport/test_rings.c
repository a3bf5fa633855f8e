/* SPDX-License-Identifier: MIT */
/* What the users of channels see of the memory behind a backend: of its buffers, which they may
 * hold longer than it lives, and of rings that cannot be had. */
#include "transport/sockets.h"

#include <weir/fault.h>

/* What is held ----------------------------------------------------------------------------------
 */

#define MOST_HELD 2048

typedef struct holder {
    weir_msg *held[MOST_HELD];
    size_t count;
    atomic_size_t bytes;
    size_t expected; /* that the thread which releases them finds */
    bool is_wrong;
} holder;

static void hold(weir_ctx *ctx, weir_msg *msg)
{
    holder *self = weir_ctx_arg(ctx);
    assert_true(self->count < MOST_HELD);
    self->held[self->count++] = msg;
    atomic_fetch_add(&self->bytes, weir_buf_readable((weir_buf *)msg));
}

static const weir_handler_type holds = { .name = "holder", .on_read = hold };

static void *look_and_release(void *arg)
{
    holder *self = arg;
    size_t at = 0;
    for (size_t i = 0; i < self->count; i++) {
        weir_buf *buf = (weir_buf *)self->held[i];
        size_t length = weir_buf_readable(buf);
        const uint8_t *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
        self->is_wrong |= bytes == NULL || !is_pattern(bytes, at, length);
        at += length;
        weir_buf_release(buf);
    }
    self->is_wrong |= at != self->expected;
    return NULL;
}

/* Short ones, which io_uring copies, and long ones, which are its own buffers, more than it has. */
static void what_is_held_outlives_its_loop(void **state)
{
    (void)state;
    static const size_t lengths[] = { 10, 5000, 900, MIB, 1 };
    static holder self;
    pthread_t thread;
    int peer;
    memset(&self, 0, sizeof self);
    weir_channel *channel = half_pair(TCP, NULL, &peer);
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(channel), "holder", &holds, &self), 0);
    assert_int_equal(register_it(channel), 0);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        peer_send_pattern(peer, self.expected, lengths[i]);
        self.expected += lengths[i];
        WAIT_FOR(atomic_load(&self.bytes) == self.expected);
    }
    end_channel(channel);
    close(peer);
    end_group(group);
    group = NULL;
    assert_int_equal(pthread_create(&thread, NULL, look_and_release, &self), 0);
    pthread_join(thread, NULL);
    assert_false(self.is_wrong);
}

/* What was sent is let go of by itself, when nothing else happens on the loop and nobody asked to
 * be told. */
static void note_free(void *arg, void *memory)
{
    (void)memory;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void what_was_sent_is_let_go_of(void **state)
{
    (void)state;
    enum { MESSAGES = 20 };
    static char bytes[] = "twelve bytes";
    record seen = { 0 };
    atomic_int freed = 0;
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    for (int i = 0; i < MESSAGES; i++) {
        weir_buf *buf = weir_buf_wrap(bytes, 12, note_free, &freed);
        assert_non_null(buf);
        weir_channel_write_and_flush(channel, &buf->msg, NULL);
        WAIT_FOR(atomic_load(&freed) == i + 1);
        peer_expect_text(peer, bytes);
    }
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    assert_int_equal(stats.pending_bytes, 0);
    end_channel(channel);
    close(peer);
}

/* So that there is nothing left to flush when all is read. */
static void flush_what_was_read(record *self, weir_ctx *ctx, const char *event)
{
    (void)self;
    if (strcmp(event, "read") == 0)
        weir_ctx_flush(ctx);
}

/* How often the loop asked the kernel for one answer after the other. */
static uint64_t polls_of_answers(const weir_channel *channel, int peer, int answered)
{
    uint64_t before = stats_of_loop(channel).polls;
    for (int i = 0; i < answered; i++) {
        peer_send(peer, "word", 4);
        peer_expect_text(peer, "word");
    }
    return stats_of_loop(channel).polls - before;
}

/* A message is one poll with epoll, two with io_uring: the result of its send is the second. */
static void a_flush_too_many_costs_no_poll(void **state)
{
    (void)state;
    enum { MESSAGES = 100, TRIES = 50 };
    uint64_t polls_of_one = current->io == WEIR_IO_URING ? 2 : 1;
    uint64_t most = polls_of_one * MESSAGES + MESSAGES / 2;
    uint64_t least = UINT64_MAX;
    int peer;
    record seen = { .is_echo = true, .then = flush_what_was_read };
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    for (int i = 0; i < TRIES && least > most; i++) {
        uint64_t polls = polls_of_answers(channel, peer, MESSAGES);
        least = polls < least ? polls : least;
    }
    assert_in_range(least, 1, most);
    end_channel(channel);
    close(peer);
}

/* Rings that cannot be had ----------------------------------------------------------------------
 */

enum { LOOPS = 12, RINGS = 10 };

static int refuse_more_rings(void *arg, const char *call, size_t *length)
{
    (void)length;
    bool is_ring = strcmp(call, "io_uring_setup") == 0;
    return is_ring && atomic_fetch_add((atomic_int *)arg, 1) >= RINGS ? -ENOMEM : 0;
}

/* Whoever brings a channel to a loop that has no ring is told that it failed, the others go on. */
static void a_channel_is_told_that_its_loop_has_no_ring(void **state)
{
    (void)state;
    if (current->io != WEIR_IO_URING)
        skip();
    weir_group *many = NULL;
    weir_group_config config = { .io = WEIR_IO_URING, .loops = LOOPS, .watchdog_ns = WEIR_OFF };
    weir_channel *channels[LOOPS];
    record seen[LOOPS] = { 0 };
    int peers[LOOPS];
    atomic_int rings = 0;
    assert_int_equal(weir_group_new(&many, &config, NULL), 0);
    weir_fault_set(refuse_more_rings, &rings);
    for (size_t i = 0; i < LOOPS; i++) {
        channels[i] = half_pair(TCP, &seen[i], &peers[i]);
        weir_promise *promise = promise_of(channels[i]);
        weir_channel_register(channels[i], weir_group_at(many, i), promise);
        int code = outcome(promise);
        assert_int_equal(code, i < RINGS ? 0 : -ENOMEM);
    }
    weir_fault_set(NULL, NULL);
    for (size_t i = 0; i < LOOPS; i++) {
        if (i < RINGS) {
            peer_send(peers[i], "hello", 5);
            WAIT_FOR(atomic_load(&seen[i].bytes) == 5);
        }
        end_channel(channels[i]);
        close(peers[i]);
    }
    end_group(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(what_is_held_outlives_its_loop),
        socket_cases(what_was_sent_is_let_go_of),
        loop_cases(a_flush_too_many_costs_no_poll),
        case_over(URING, "a_channel_is_told_that_its_loop_has_no_ring_uring",
                  a_channel_is_told_that_its_loop_has_no_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
