/* SPDX-License-Identifier: MIT */
/* Streams over real sockets: reading, writing and their ends. */
#include "transport/sockets.h"

#include "io/guess.h"

/* Reading -------------------------------------------------------------------------------------- */

/* What the guess of buffer sizes should be, beside what it is. */
typedef struct guesses {
    weir_guess guess;
    atomic_uint wrong;
} guesses;

static void guess_on_read(weir_ctx *ctx, weir_msg *msg)
{
    guesses *self = weir_ctx_arg(ctx);
    const weir_buf *buf = (const weir_buf *)msg;
    if (weir_buf_capacity(buf) < weir__guess_size(&self->guess) ||
        weir_buf_readable(buf) > weir__guess_size(&self->guess))
        atomic_fetch_add(&self->wrong, 1);
    weir__guess_learn(&self->guess, weir_buf_readable(buf));
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type guesser = { .name = "guesser", .on_read = guess_on_read };

static void s107_buffers_follow_what_comes(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        guesses guessed = { 0 };
        record seen = { .checks_pattern = true };
        int peer;
        weir_channel *channel = half_pair(stream, &seen, &peer);
        assert_int_equal(
            weir_pipeline_add_first(weir_channel_pipeline(channel), "guesser", &guesser, &guessed),
            0);
        assert_int_equal(weir__guess_size(&guessed.guess), 2048);
        assert_int_equal(register_it(channel), 0);
        size_t at = 0;
        const size_t sizes[] = { 100, 2048, 100000, 300000, 10, 10, 10, 10, 4000, 1 };
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            peer_send_pattern(peer, at, sizes[i]);
            at += sizes[i];
            WAIT_FOR(atomic_load(&seen.bytes) == at);
        }
        assert_int_equal(atomic_load(&guessed.wrong), 0);
        assert_false(atomic_load(&seen.is_wrong));
        end_channel(channel);
        close(peer);
    }
}

static void s108_no_more_than_sixteen_reads_at_a_time(void **state)
{
    (void)state;
    record seen = { .checks_pattern = true };
    int peer, size = 4 * 1024 * 1024;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    setsockopt(weir_channel_descriptor(channel), SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    setsockopt(peer, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    peer_send_pattern(peer, 0, MIB);
    assert_int_equal(register_it(channel), 0);
    WAIT_FOR(atomic_load(&seen.bytes) == MIB);
    settle(executor_of(channel));
    assert_int_equal(seen.largest_batch, 16);
    assert_true(atomic_load(&seen.completes) >= 2);
    assert_false(atomic_load(&seen.is_wrong));
    end_channel(channel);
    close(peer);
}

static void s109_one_completion_for_each_batch(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        for (unsigned i = 1; i <= 20; i++) {
            peer_send(peer, "0123456789", 10);
            WAIT_FOR(atomic_load(&seen.completes) == i);
        }
        assert_int_equal(atomic_load(&seen.reads), 20);
        assert_false(story_has(&seen, "complete complete"));
        end_channel(channel);
        close(peer);
    }
}

static void s110_the_end_of_the_stream_closes(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        peer_send(peer, "last", 4);
        close(peer);
        wait_for_close(channel);
        assert_story(&seen, "registered active read complete inactive unregistered ");
        assert_string_equal(seen.text, "last");
        weir_channel_release(channel);
    }
}

/* Data and end come as one event, of any length. */
static void nothing_is_lost_before_the_end(void **state)
{
    (void)state;
    const size_t lengths[] = { 1, 2047, 2048, 2049, 32768, 40000 };
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        record seen = { .checks_pattern = true };
        int peer;
        weir_channel *channel = half_pair(i % 2 == 0 ? TCP : UNIX, &seen, &peer);
        peer_send_pattern(peer, 0, lengths[i]);
        close(peer);
        assert_int_equal(register_it(channel), 0);
        wait_for_close(channel);
        assert_int_equal(atomic_load(&seen.bytes), lengths[i]);
        assert_false(atomic_load(&seen.is_wrong));
        assert_int_equal(atomic_load(&seen.errors), 0);
        weir_channel_release(channel);
    }
}

/* Both come while the channel begins to read. With WEIR_LONG_TESTS often enough to meet every
 * moment of that. */
static void an_end_that_comes_with_the_data_is_told(void **state)
{
    (void)state;
    int rounds = getenv("WEIR_LONG_TESTS") != NULL ? 200000 : 500;
    for (int i = 0; i < rounds; i++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(i % 16 == 0 ? TCP : UNIX, &seen, &peer);
        assert_int_equal(send(peer, "last", 4, MSG_NOSIGNAL), 4);
        shutdown(peer, SHUT_WR);
        wait_for_close(channel);
        assert_int_equal(atomic_load(&seen.bytes), 4);
        weir_channel_release(channel);
        close(peer);
    }
}

static void s111_half_closed_it_still_answers(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = half_pair(stream, &seen, &peer);
        set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
        assert_int_equal(register_it(channel), 0);
        shutdown(peer, SHUT_WR);
        WAIT_FOR(atomic_load(&seen.events) == 1);
        assert_idle(channel);
        assert_story(&seen, "registered active input_closed ");
        weir_promise *written = promise_of(channel);
        weir_channel_write_and_flush(channel, pattern_msg(0, MIB), written);
        peer_expect_pattern(peer, 0, MIB);
        assert_int_equal(outcome(written), 0);
        assert_true(weir_channel_is_active(channel));
        assert_int_equal(shutdown_it(channel), 0); /* now both have ended */
        wait_for_close(channel);
        peer_expect_eof(peer);
        close(peer);
        weir_channel_release(channel);
    }
}

static void s111_without_the_option_it_closes(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        shutdown(peer, SHUT_WR);
        wait_for_close(channel);
        assert_story(&seen, "registered active inactive unregistered ");
        peer_expect_eof(peer);
        close(peer);
        weir_channel_release(channel);
    }
}

/* The other way round: this side says that it ends, and goes on reading. */
static void it_reads_on_after_its_own_end(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { .checks_pattern = true };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        assert_int_equal(shutdown_it(channel), 0);
        peer_expect_eof(peer);
        assert_int_equal(write_it(channel, text_msg("too late")), -EPIPE);
        peer_send_pattern(peer, 0, MIB);
        WAIT_FOR(atomic_load(&seen.bytes) == MIB);
        assert_true(weir_channel_is_active(channel));
        assert_false(atomic_load(&seen.is_wrong));
        close(peer);
        wait_for_close(channel);
        assert_int_equal(atomic_load(&seen.errors), 0);
        weir_channel_release(channel);
    }
}

static void s112_without_auto_read_nothing_is_read(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    set_option(channel, WEIR_OPTION_AUTO_READ, 0);
    assert_int_equal(register_it(channel), 0);
    peer_send(peer, "waiting", 7);
    WAIT_FOR(atomic_load(&seen.actives) == 1);
    assert_idle(channel);
    assert_int_equal(atomic_load(&seen.reads), 0);
    assert_int_equal(stats_of_loop(channel).receives, 0);
    set_option(channel, WEIR_OPTION_AUTO_READ, 1);
    WAIT_FOR(atomic_load(&seen.bytes) == 7);

    /* Switched off again, with more coming. */
    set_option(channel, WEIR_OPTION_AUTO_READ, 0);
    settle_calls(channel);
    weir_loop_stats before = stats_of_loop(channel);
    for (int i = 0; i < 100; i++)
        peer_send(peer, "more", 4);
    assert_idle(channel);
    weir_loop_stats after = stats_of_loop(channel);
    assert_int_equal(after.receives, before.receives);
    assert_int_equal(after.controls, before.controls);
    assert_in_range(after.polls - before.polls, 0, 110); /* an edge for each at most */
    assert_int_equal(atomic_load(&seen.bytes), 7);
    end_channel(channel);
    close(peer);
}

static void read_again(record *self, weir_ctx *ctx, const char *event)
{
    atomic_int *left = self->arg;
    if (strcmp(event, "complete") == 0 && atomic_load(left) > 0) {
        atomic_fetch_sub(left, 1);
        weir_ctx_read(ctx);
    }
}

static void s113_a_read_inside_is_one_more_batch(void **state)
{
    (void)state;
    atomic_int left = 1;
    record seen = { .then = read_again, .arg = &left };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    set_option(channel, WEIR_OPTION_AUTO_READ, 0);
    assert_int_equal(register_it(channel), 0);
    static char bytes[100000];
    peer_send(peer, bytes, sizeof bytes);
    assert_idle(channel);
    assert_int_equal(atomic_load(&seen.reads), 0);
    weir_channel_read(channel); /* and one more of its own */
    WAIT_FOR(atomic_load(&seen.completes) == 2);
    assert_idle(channel);
    assert_int_equal(atomic_load(&seen.completes), 2);
    assert_int_equal(atomic_load(&seen.reads), 2);
    weir_channel_read(channel);
    WAIT_FOR(atomic_load(&seen.completes) == 3);
    assert_idle(channel);
    assert_int_equal(atomic_load(&seen.completes), 3);
    end_channel(channel);
    close(peer);
}

static void stop_reading(record *self, weir_ctx *ctx, const char *event)
{
    (void)self;
    if (strcmp(event, "read") == 0)
        weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 0, NULL);
}

/* Switched off in the middle of a batch, what is left stays where it is, in order. */
static void auto_read_switched_off_inside_a_read(void **state)
{
    (void)state;
    record seen = { .then = stop_reading, .checks_pattern = true };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    peer_send_pattern(peer, 0, 50000);
    assert_int_equal(register_it(channel), 0);
    WAIT_FOR(atomic_load(&seen.completes) == 1);
    for (unsigned i = 2; atomic_load(&seen.bytes) < 50000; i++) {
        assert_idle(channel);
        assert_int_equal(atomic_load(&seen.reads), i - 1);
        set_option(channel, WEIR_OPTION_AUTO_READ, 1);
        WAIT_FOR(atomic_load(&seen.completes) == i);
    }
    assert_false(atomic_load(&seen.is_wrong));
    end_channel(channel);
    close(peer);
}

static void s114_data_then_the_error_then_the_end(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    peer_send(peer, "0123456789", 10);
    peer_reset(peer);
    assert_int_equal(register_it(channel), 0);
    wait_for_close(channel);
    assert_string_equal(seen.text, "0123456789");
    assert_story(&seen, "registered active read complete error:ECONNRESET inactive unregistered ");
    weir_channel_release(channel);
}

/* Resets at other moments ---------------------------------------------------------------------- */

static void reset_before_the_first_read(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    peer_reset(peer);
    wait_for_close(channel);
    assert_story(&seen, "registered active error:ECONNRESET inactive unregistered ");
    weir_channel_release(channel);
}

static void reset_in_the_middle_of_a_write(void **state)
{
    (void)state;
    for (int has_promise = 0; has_promise < 2; has_promise++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(TCP, &seen, &peer);
        enum { WRITES = 4 };
        weir_promise *promises[WRITES] = { 0 };
        for (size_t i = 0; i < WRITES; i++) {
            promises[i] = has_promise ? promise_of(channel) : NULL;
            weir_channel_write_and_flush(channel, pattern_msg(0, 3 * MIB), promises[i]);
        }
        peer_wait(peer, POLLIN);
        settle(executor_of(channel));
        peer_reset(peer);
        wait_for_close(channel);
        int last = 0;
        for (size_t i = 0; has_promise && i < WRITES; i++) {
            int code = outcome(promises[i]);
            assert_true(code == -ECONNRESET || code == -EPIPE || code == WEIR_ECLOSED ||
                        (code == 0 && last == 0)); /* the kernel may have had the first */
            last = code;
        }
        assert_true(last < 0 || !has_promise);
        /* Either way notices, and says so once. */
        int error = atomic_load(&seen.error);
        assert_true(error == -ECONNRESET || error == -EPIPE || (has_promise && error == 0));
        assert_in_range(atomic_load(&seen.errors), 0, 2);
        assert_int_equal(atomic_load(&seen.inactives), 1);
        weir_channel_release(channel);
    }
}

static void reset_after_the_half_close(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
    assert_int_equal(register_it(channel), 0);
    shutdown(peer, SHUT_WR);
    WAIT_FOR(atomic_load(&seen.events) == 1);
    peer_reset(peer);
    /* Whoever writes notices; the first may still be on its way. */
    int code = 0;
    while (code == 0)
        code = write_it(channel, text_msg("anybody?"));
    assert_true(code == -EPIPE || code == -ECONNRESET || code == WEIR_ECLOSED);
    wait_for_close(channel);
    assert_int_equal(atomic_load(&seen.inactives), 1);
    weir_channel_release(channel);
}

static void reset_while_it_finishes(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    weir_promise *finished = promise_of(channel);
    weir_channel_write(channel, pattern_msg(0, 8 * MIB), NULL);
    weir_channel_finish(channel, finished);
    peer_wait(peer, POLLIN);
    peer_reset(peer);
    assert_int_equal(outcome(finished), 0);
    wait_for_close(channel);
    weir_channel_release(channel);
}

/* Writing -------------------------------------------------------------------------------------- */

static void written_flushed_and_closed_at_once(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        int peer;
        weir_channel *channel = pair_with(stream, NULL, &peer);
        weir_channel_write(channel, text_msg("0123456789"), NULL);
        weir_channel_flush(channel);
        weir_channel_close(channel, NULL);
        peer_expect_text(peer, "0123456789");
        peer_expect_eof(peer);
        wait_for_close(channel);
        weir_channel_release(channel);
        close(peer);
    }
}

static void what_was_not_flushed_fails_with_the_close(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    weir_promise *promise = promise_of(channel);
    weir_channel_write(channel, text_msg("never"), promise);
    weir_channel_close(channel, NULL);
    assert_int_equal(outcome(promise), WEIR_ECLOSED);
    peer_expect_eof(peer);
    wait_for_close(channel);
    assert_int_equal(write_it(channel, text_msg("x")), WEIR_ECLOSED);
    weir_channel_release(channel);
    close(peer);
}

/* All of it, then the end; and closed when the other side has ended, too. */
static void finished_in_good_order(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        weir_promise *finished = promise_of(channel);
        weir_channel_write(channel, pattern_msg(0, 8 * MIB), NULL);
        weir_channel_finish(channel, finished);
        peer_expect_pattern(peer, 0, 8 * MIB);
        peer_expect_eof(peer);
        assert_false(weir_future_is_done(weir_promise_future(finished)));
        peer_send(peer, "bye", 3);
        WAIT_FOR(atomic_load(&seen.bytes) == 3);
        close(peer);
        assert_int_equal(outcome(finished), 0);
        wait_for_close(channel);
        assert_int_equal(atomic_load(&seen.errors), 0);
        weir_channel_release(channel);
    }
}

static void finishing_has_an_end_of_its_own(void **state)
{
    (void)state;
    int peer;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(20));
    assert_int_equal(finish_it(channel), 0); /* although the peer never ends */
    peer_expect_eof(peer);
    wait_for_close(channel);
    weir_channel_release(channel);
    close(peer);
}

/* Many small pieces, whole and composite, with a kernel that takes little at a time. */
static void pieces_of_all_sizes_arrive_in_order(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        int peer, size = 4096;
        weir_channel *channel = half_pair(stream, NULL, &peer);
        setsockopt(weir_channel_descriptor(channel), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        set_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 1 << 30);
        assert_int_equal(register_it(channel), 0);
        size_t at = 0;
        weir_promise *last = promise_of(channel);
        for (unsigned i = 0; i < 5000; i++) {
            size_t length = i % 100 == 99 ? 20000 : i % 37;
            weir_msg *msg = pattern_msg(at, length);
            at += length;
            if (i % 3 == 0) {
                weir_buf *composite = weir_buf_new_composite();
                assert_non_null(composite);
                assert_int_equal(weir_buf_composite_add(composite, (weir_buf *)msg), 0);
                for (size_t k = 0; k < 5; k++) {
                    weir_msg *part = pattern_msg(at, k * 7);
                    at += k * 7;
                    assert_int_equal(weir_buf_composite_add(composite, (weir_buf *)part), 0);
                }
                msg = &composite->msg;
            }
            weir_channel_write(channel, msg, NULL);
            if (i % 50 == 0)
                weir_channel_flush(channel);
        }
        weir_channel_write_and_flush(channel, pattern_msg(at, 1), last);
        peer_expect_pattern(peer, 0, at + 1);
        assert_int_equal(outcome(last), 0);
        end_channel(channel);
        close(peer);
    }
}

static void empty_messages_are_sent_as_nothing(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        int peer;
        weir_channel *channel = pair_with(stream, NULL, &peer);
        assert_int_equal(write_it(channel, pattern_msg(0, 0)), 0);
        weir_channel_write(channel, pattern_msg(0, 0), NULL);
        weir_channel_write(channel, pattern_msg(0, 5), NULL);
        weir_channel_write(channel, pattern_msg(0, 0), NULL);
        assert_int_equal(write_it(channel, &weir_buf_new_composite()->msg), 0);
        peer_expect_pattern(peer, 0, 5);
        end_channel(channel);
        peer_expect_eof(peer);
        close(peer);
    }
}

static void destroy_nothing(weir_msg *msg)
{
    (void)msg;
}

static void what_no_stream_can_send_is_refused(void **state)
{
    (void)state;
    static const weir_msg_type type = { .name = "odd", .destroy = destroy_nothing };
    static weir_msg odd = WEIR_MSG_CONSTANT(&type);
    int peer;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    assert_int_equal(write_it(channel, &odd), -EOPNOTSUPP);
    assert_int_equal(write_it(channel, text_msg("fine")), 0);
    peer_expect_text(peer, "fine");
    end_channel(channel);
    close(peer);
}

/* A peer that never reads ---------------------------------------------------------------------- */

static size_t pending_of(const weir_channel *channel)
{
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    return stats.pending_bytes;
}

/* What weir holds for those that write: bytes in buffers, and allocations of any kind. */
typedef struct holding {
    uint64_t bytes, allocations;
} holding;

static holding what_is_held(void)
{
    weir_pool_stats pool;
    weir_allocator_stats allocator;
    weir_pool_get_stats(&pool);
    weir_allocator_get_stats(&allocator);
    return (holding){ pool.used_bytes, allocator.live };
}

#define MUCH (100 * MIB)

/* Sends as long as the kernel takes any, and the child has not had enough. */
static size_t offer_much(int peer, const weir_channel *child)
{
    static char bytes[65536];
    size_t offered = 0;
    for (int quiet = 0; offered < MUCH && (quiet < 20 || weir_channel_is_writable(child));) {
        ssize_t code = send(peer, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (code < 0 && errno != EAGAIN)
            break;
        offered += code > 0 ? (size_t)code : 0;
        quiet = code > 0 ? 0 : quiet + 1;
        if (code < 0)
            poll(&(struct pollfd){ .fd = peer, .events = POLLOUT }, 1, 10);
    }
    return offered;
}

/* A peer that only sends, and an echo that cannot get rid of its answers. */
static void an_echo_that_nobody_reads_stops_reading(void **state)
{
    (void)state;
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->is_echo = true;
    new_server(self, TCP);
    start_server(self);
    int peer = peer_connect(&self->address);
    WAIT_FOR(atomic_load(&self->count) == 1);
    weir_channel *child = self->children[0];
    WAIT_FOR(weir_channel_is_active(child));
    holding before = what_is_held();
    size_t offered = offer_much(peer, child);
    assert_true(offered < MUCH);
    assert_false(weir_channel_is_writable(child));
    assert_true(weir_channel_is_active(child));
    assert_int_equal(atomic_load(&self->records[0].errors), 0); /* it did not come to the limit */
    assert_idle(child);
    size_t taken = atomic_load(&self->records[0].bytes);
    assert_in_range(pending_of(child), 1, 2 * MIB); /* a batch above the mark */
    assert_in_range(what_is_held().bytes, 0, before.bytes + 4 * MIB);
    /* However much waits for it, it reads no more. */
    offered += offer_much(peer, child);
    assert_idle(child);
    assert_int_equal(atomic_load(&self->records[0].bytes), taken);
    /* It goes on when the peer reads. */
    size_t got = 0;
    while (got < offered) {
        peer_wait(peer, POLLIN);
        got += peer_drain(peer);
    }
    assert_int_equal(got, offered);
    WAIT_FOR(weir_channel_is_writable(child));
    close(peer);
    end_server(self);
}

#define FLOOD_BYTES ((size_t)65536)
#define FLOOD_WRITES (MUCH / FLOOD_BYTES)
#define FLOOD_LIMIT (4 * MIB)

/* Writes much to one that does not get rid of it, and how much of that was there at most. */
typedef struct flood {
    weir_channel *channel;
    weir_promise *promises[FLOOD_WRITES];
    holding before;
    size_t most_pending;
    holding most;
} flood;

static int write_flood(void *arg)
{
    flood *self = arg;
    for (size_t i = 0; i < FLOOD_WRITES; i++) {
        weir_channel_write_and_flush(self->channel, pattern_msg(0, FLOOD_BYTES), self->promises[i]);
        holding now = what_is_held();
        size_t pending = pending_of(self->channel);
        self->most_pending = pending > self->most_pending ? pending : self->most_pending;
        self->most.bytes = now.bytes > self->most.bytes ? now.bytes : self->most.bytes;
        self->most.allocations = now.allocations > self->most.allocations ? now.allocations
                                                                          : self->most.allocations;
    }
    return 0;
}

/* How many of the writes were refused, each with the code that says why. */
static size_t refused_of(flood *self)
{
    size_t refused = 0;
    for (size_t i = 0; i < FLOOD_WRITES; i++) {
        int code = weir_future_code(weir_promise_future(self->promises[i]));
        assert_true(code == 0 || code == -EINPROGRESS || code == WEIR_ELIMIT);
        refused += code == WEIR_ELIMIT;
    }
    return refused;
}

/* Its loop takes what it writes at once; for others it is on its way as well, which has the same
 * limit, and one message above it. */
enum { BY_ITS_LOOP, BY_ANOTHER_THREAD, WHILE_THE_LOOP_IS_BUSY, WRITERS };

static void flood_by(int writer)
{
    record seen = { 0 };
    int peer;
    blocker stop;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    flood *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->channel = channel;
    set_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, FLOOD_LIMIT);
    settle_calls(channel);
    for (size_t i = 0; i < FLOOD_WRITES; i++)
        self->promises[i] = promise_of(channel);
    self->before = what_is_held();
    if (writer == BY_ITS_LOOP) {
        call_on(executor_of(channel), write_flood, self);
    } else if (writer == BY_ANOTHER_THREAD) {
        write_flood(self);
    } else {
        block(&stop, executor_of(channel));
        write_flood(self);
        unblock(&stop);
    }
    size_t limit = writer == BY_ITS_LOOP         ? FLOOD_LIMIT
                   : writer == BY_ANOTHER_THREAD ? 2 * FLOOD_LIMIT + FLOOD_BYTES
                                                 : FLOOD_LIMIT + FLOOD_BYTES;
    assert_in_range(self->most_pending, FLOOD_LIMIT / 2, limit);
    assert_in_range(self->most.bytes - self->before.bytes, FLOOD_LIMIT / 2, 2 * limit);
    assert_in_range(self->most.allocations - self->before.allocations, 0, FLOOD_WRITES / 2);
    settle_calls(channel);
    assert_in_range(pending_of(channel), 0, FLOOD_LIMIT);
    size_t refused = refused_of(self), taken = FLOOD_WRITES - refused;
    assert_true(refused * FLOOD_BYTES >= 70 * MIB); /* the kernel has some, too */
    assert_true(weir_channel_is_active(channel));   /* who has a promise decides what follows */
    assert_int_equal(atomic_load(&seen.errors), 0);

    /* What was taken arrives, each whole. */
    for (size_t i = 0; i < taken; i++)
        peer_expect_pattern(peer, 0, FLOOD_BYTES);
    WAIT_FOR(weir_channel_is_writable(channel));
    for (size_t i = 0; i < FLOOD_WRITES; i++) {
        int code = outcome(self->promises[i]);
        assert_true(code == 0 || code == WEIR_ELIMIT);
    }
    end_channel(channel);
    peer_expect_eof(peer);
    close(peer);
    free(self);
}

static void a_hundred_mebibytes_for_a_peer_that_never_reads(void **state)
{
    (void)state;
    for (int writer = 0; writer < WRITERS; writer++)
        flood_by(writer);
}

/* Nobody hears of a write without a promise, so bytes would be missing. */
static void more_than_the_limit_without_a_promise_closes(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    for (unsigned i = 0; i < 24; i++)
        weir_channel_write_and_flush(channel, pattern_msg(0, MIB), NULL);
    wait_for_close(channel);
    assert_true(story_has(&seen, "error:WEIR_ELIMIT"));
    weir_channel_release(channel);
    close(peer);
}

/* Closing -------------------------------------------------------------------------------------- */

static void close_at(record *self, weir_ctx *ctx, const char *event)
{
    if (strcmp(event, self->arg) == 0)
        weir_ctx_close(ctx, NULL);
}

static void closed_inside_any_callback(void **state)
{
    (void)state;
    const char *events[] = { "registered", "active",       "read",         "complete",
                             "inactive",   "unregistered", "input_closed", "unwritable" };
    for (size_t i = 0; i < COUNT_OF(events); i++) {
        record seen = { .then = close_at, .arg = (void *)events[i] };
        int peer;
        weir_channel *channel = half_pair(i % 2 == 0 ? TCP : UNIX, &seen, &peer);
        set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, strcmp(events[i], "input_closed") == 0);
        assert_int_equal(register_it(channel), 0);
        if (strcmp(events[i], "unwritable") == 0)
            weir_channel_write_and_flush(channel, pattern_msg(0, 12 * MIB), NULL);
        send(peer, "hello", 5, MSG_NOSIGNAL); /* it may be closed already */
        shutdown(peer, SHUT_WR);
        wait_for_close(channel);
        assert_in_range(atomic_load(&seen.inactives), 0, 1);
        assert_int_equal(atomic_load(&seen.inactives), atomic_load(&seen.actives));
        weir_channel_release(channel);
        close(peer);
    }
}

static void count_close(weir_listener *listener, weir_future *future);

typedef struct close_counter {
    weir_listener listener;
    atomic_uint closes;
} close_counter;

static void count_close(weir_listener *listener, weir_future *future)
{
    (void)future;
    atomic_fetch_add(&WEIR_CONTAINER(listener, close_counter, listener)->closes, 1);
}

static void closed_from_many_sides_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        record seen = { 0 };
        close_counter counter = { .listener.done = count_close };
        int peer;
        weir_channel *channel = pair_with(i % 2 == 0 ? TCP : UNIX, &seen, &peer);
        weir_future_listen(weir_channel_closed(channel), &counter.listener);
        weir_promise *first = promise_of(channel), *second = promise_of(channel);
        weir_channel_write_and_flush(channel, pattern_msg(0, MIB), NULL);
        if (i % 3 == 0)
            weir_channel_close(channel, first);
        peer_reset(peer);
        if (i % 3 == 1)
            weir_channel_close(channel, first);
        weir_channel_close(channel, second);
        if (i % 3 == 2)
            weir_channel_finish(channel, first);
        assert_int_equal(outcome(first), 0);
        assert_int_equal(outcome(second), 0);
        wait_for_close(channel);
        WAIT_FOR(atomic_load(&counter.closes) == 1);
        assert_int_equal(atomic_load(&seen.inactives), 1);
        assert_int_equal(atomic_load(&seen.unregistereds), 1);
        weir_channel_release(channel);
    }
}

/* The last reference is the loop's: the channel goes on, and goes when it is closed. */
static void forgotten_it_lives_until_the_peer_goes(void **state)
{
    (void)state;
    record seen = { .is_echo = true };
    int peer;
    weir_channel *channel = pair_with(TCP, &seen, &peer);
    weir_channel_release(channel);
    peer_send(peer, "alive", 5);
    peer_expect_text(peer, "alive");
    close(peer);
    WAIT_FOR(atomic_load(&seen.unregistereds) == 1);
}

static void addresses_of_a_client(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        server *self = open_server(stream);
        weir_channel *client = new_channel(WEIR_SOCKET_STREAM, &self->address);
        weir_address address;
        assert_int_equal(weir_channel_remote_address(client, &address), WEIR_ENOTFOUND);
        assert_int_equal(register_it(client), 0);
        assert_int_equal(connect_to(client, &self->address), 0);
        assert_int_equal(weir_channel_remote_address(client, &address), 0);
        assert_true(weir_address_equal(&address, &self->address));
        if (stream <= TCP6) {
            WAIT_FOR(atomic_load(&self->count) == 1);
            weir_address own = local_of(client);
            assert_int_equal(weir_channel_remote_address(self->children[0], &address), 0);
            assert_true(weir_address_equal(&address, &own));
        }
        assert_int_equal(close_it(client), 0);
        assert_int_equal(weir_channel_local_address(client, &address), WEIR_ENOTFOUND);
        assert_int_equal(weir_channel_remote_address(client, &address), WEIR_ENOTFOUND);
        end_channel(client);
        end_server(self);
    }
}

/* Moving --------------------------------------------------------------------------------------- */

static void *feed(void *arg)
{
    peer_send_pattern(*(int *)arg, 0, 4 * MIB);
    return NULL;
}

static void moved_a_thousand_times_without_losing_a_byte(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        record seen = { .is_echo = true, .checks_pattern = true };
        pthread_t feeder;
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        assert_int_equal(pthread_create(&feeder, NULL, feed, &peer), 0);
        size_t got = 0, moves = 0;
        weir_promise *moving = NULL;
        while (got < 4 * MIB || moves < 1000) {
            uint8_t bytes[8192];
            ssize_t code = recv(peer, bytes, sizeof bytes, MSG_DONTWAIT);
            assert_true(code > 0 || (code < 0 && errno == EAGAIN));
            if (code > 0) {
                assert_true(is_pattern(bytes, got, (size_t)code));
                got += (size_t)code;
            }
            if (moving != NULL && weir_future_is_done(weir_promise_future(moving))) {
                assert_int_equal(outcome(moving), 0);
                moving = NULL;
                moves++;
            }
            if (moving == NULL && moves < 1000) {
                moving = promise_of(channel);
                weir_channel_move(channel, weir_group_at(group, moves % 2), moving);
            }
            if (code < 0)
                sched_yield();
        }
        pthread_join(feeder, NULL);
        assert_int_equal(got, 4 * MIB);
        assert_false(atomic_load(&seen.is_wrong));
        assert_int_equal(atomic_load(&seen.actives), 1);
        end_channel(channel);
        assert_int_equal(atomic_load(&seen.inactives), 1);
        close(peer);
    }
}

/* A send waits, and the peer resets while the channel leaves. */
static void reset_while_it_moves(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(TCP, i % 2 == 0 ? &seen : NULL, &peer);
        weir_channel_write_and_flush(channel, pattern_msg(0, 8 * MIB), NULL);
        peer_wait(peer, POLLIN);
        weir_promise *moved = promise_of(channel), *closed = promise_of(channel);
        weir_channel_move(channel, weir_group_at(group, (size_t)(i / 2 % 2)), moved);
        peer_reset(peer);
        int code = outcome(moved);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        weir_channel_close(channel, closed);
        if (i % 2 == 0)
            wait_for_close(channel); /* its handler writes into `seen` */
        weir_channel_release(channel);
        assert_int_equal(outcome(closed), 0);
    }
}

static bool is_pending(weir_promise *promise)
{
    return !weir_future_is_done(weir_promise_future(promise));
}

/* Reads what the peer sends it, after which every write until now has been performed. */
static void let_it_read(weir_channel *channel, record *seen, int peer)
{
    unsigned completes = atomic_load(&seen->completes);
    settle_calls(channel);
    peer_send(peer, "?", 1);
    WAIT_FOR(atomic_load(&seen->completes) > completes);
    settle_calls(channel);
}

static void s115_no_byte_leaves_the_socket_before_the_flush(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        weir_promise *first = promise_of(channel), *late = promise_of(channel);
        weir_channel_write(channel, text_msg("a"), NULL);
        weir_channel_write(channel, text_msg("b"), first);
        let_it_read(channel, &seen, peer);
        assert_int_equal(peer_drain(peer), 0);
        assert_true(is_pending(first));
        weir_channel_flush(channel);
        weir_channel_write(channel, text_msg("c"), late); /* after the flush */
        peer_expect_text(peer, "ab");
        assert_int_equal(outcome(first), 0);
        let_it_read(channel, &seen, peer);
        assert_int_equal(peer_drain(peer), 0);
        assert_true(is_pending(late));
        weir_channel_flush(channel);
        peer_expect_text(peer, "c");
        assert_int_equal(outcome(late), 0);
        end_channel(channel);
        close(peer);
    }
}

/* The send that waits for room takes along nothing that was written after the flush. */
static void s115_send_that_waited_stops_at_the_flush(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        int peer;
        weir_channel *channel = pair_with(stream, &seen, &peer);
        weir_promise *flushed = promise_of(channel), *late = promise_of(channel);
        set_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, 64 * MIB);
        weir_channel_write_and_flush(channel, pattern_msg(0, 8 * MIB), flushed);
        weir_channel_write(channel, pattern_msg(8 * MIB, 10), late);
        let_it_read(channel, &seen, peer);
        assert_true(is_pending(flushed)); /* the peer has not read yet */
        peer_expect_pattern(peer, 0, 8 * MIB);
        assert_int_equal(outcome(flushed), 0);
        let_it_read(channel, &seen, peer);
        assert_int_equal(peer_drain(peer), 0);
        assert_true(is_pending(late));
        weir_channel_flush(channel);
        peer_expect_pattern(peer, 8 * MIB, 10);
        assert_int_equal(outcome(late), 0);
        end_channel(channel);
        close(peer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        call_cases(s107_buffers_follow_what_comes),
        socket_cases(s108_no_more_than_sixteen_reads_at_a_time),
        socket_cases(s109_one_completion_for_each_batch),
        socket_cases(s110_the_end_of_the_stream_closes),
        socket_cases(nothing_is_lost_before_the_end),
        socket_cases(an_end_that_comes_with_the_data_is_told),
        socket_cases(s111_half_closed_it_still_answers),
        socket_cases(s111_without_the_option_it_closes),
        socket_cases(it_reads_on_after_its_own_end),
        loop_cases(s112_without_auto_read_nothing_is_read),
        socket_cases(s113_a_read_inside_is_one_more_batch),
        socket_cases(auto_read_switched_off_inside_a_read),
        socket_cases(s114_data_then_the_error_then_the_end),
        socket_cases(s115_no_byte_leaves_the_socket_before_the_flush),
        socket_cases(s115_send_that_waited_stops_at_the_flush),
        socket_cases(reset_before_the_first_read),
        socket_cases(reset_in_the_middle_of_a_write),
        socket_cases(reset_after_the_half_close),
        socket_cases(reset_while_it_finishes),
        socket_cases(written_flushed_and_closed_at_once),
        socket_cases(what_was_not_flushed_fails_with_the_close),
        socket_cases(finished_in_good_order),
        socket_cases(finishing_has_an_end_of_its_own),
        socket_cases(pieces_of_all_sizes_arrive_in_order),
        socket_cases(empty_messages_are_sent_as_nothing),
        socket_cases(what_no_stream_can_send_is_refused),
        socket_cases(an_echo_that_nobody_reads_stops_reading),
        socket_cases(a_hundred_mebibytes_for_a_peer_that_never_reads),
        socket_cases(more_than_the_limit_without_a_promise_closes),
        socket_cases(closed_inside_any_callback),
        socket_cases(closed_from_many_sides_at_once),
        socket_cases(forgotten_it_lives_until_the_peer_goes),
        socket_cases(addresses_of_a_client),
        loop_cases(moved_a_thousand_times_without_losing_a_byte),
        loop_cases(reset_while_it_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
