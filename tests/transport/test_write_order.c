/* SPDX-License-Identifier: MIT */
/* Writes without a promise are delivered completely and in order, even if a shutdown, close, move
 * or relay follows in the same callback. */
#include "transport/sockets.h"

#include "transport/socket.h"

#include <weir/relay.h>

#define FOR_EVER_NS WEIR_SECONDS(300) /* longer than any of these may take */
#define LONG 5000

/* Where something is done: while the loop tells of events, or when it runs tasks. */
enum { IN_READ, IN_TASK, PLACES };

/* In how many ways each of these is done. */
typedef struct way {
    int stream, place;
    unsigned messages; /* each flushed */
    bool is_full;      /* the socket takes nothing until the peer reads */
} way;

static void in_every_way(void (*run)(const way *how))
{
    way how;
    for (how.stream = TCP; how.stream <= UNIX; how.stream += UNIX - TCP) {
        for (how.place = 0; how.place < PLACES; how.place++) {
            for (how.messages = 1; how.messages <= 3; how.messages += 2) {
                for (int is_full = 0; is_full < 2; is_full++) {
                    how.is_full = is_full;
                    run(&how);
                }
            }
        }
    }
}

/* Writers -------------------------------------------------------------------------------------- */

/* A channel that writes the pattern, and does something behind that, all in one go. */
typedef struct writer writer;
struct writer {
    /* What it shall do. */
    unsigned messages;
    size_t length;              /* of each */
    void (*then)(writer *self); /* NULL: nothing */
    weir_promise *promise;      /* for that */
    weir_channel *from;
    weir_executor *loop;

    weir_channel *channel;
    int peer, place;
    record seen;
    size_t at;      /* of the pattern */
    size_t past_it; /* bytes that went past the channel */
    uint64_t count; /* of messages */
};

static void write_in_one_go(writer *self)
{
    for (unsigned i = 0; i < self->messages; i++) {
        weir_channel_write_and_flush(self->channel, pattern_msg(self->at, self->length), NULL);
        self->at += self->length;
        self->count++;
    }
    if (self->then != NULL)
        self->then(self);
}

static void write_in_read(record *seen, weir_ctx *ctx, const char *event)
{
    (void)ctx;
    if (strcmp(event, "read") == 0)
        write_in_one_go(seen->arg);
}

static int write_in_task(void *arg)
{
    write_in_one_go(arg);
    return 0;
}

/* When this returns it was done; what has become of it is another question. */
static void go(writer *self)
{
    if (self->place == IN_TASK) {
        call_on(executor_of(self->channel), write_in_task, self);
        return;
    }
    unsigned reads = atomic_load(&self->seen.reads);
    settle(executor_of(self->channel)); /* it knows what to do; a sanitizer does not see sockets */
    peer_send(self->peer, "!", 1);
    WAIT_FOR(atomic_load(&self->seen.reads) == reads + 1);
}

static void make_small(int fd)
{
    int size = 65536; /* less is more than TCP can do with, on a loopback device */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

static void make_both_small(writer *self)
{
    make_small(weir_channel_descriptor(self->channel));
    make_small(self->peer);
}

/* Whether the kernel waits for nothing that could make room by itself. */
static bool is_all_acknowledged(const weir_channel *channel)
{
    weir_tcp_info info;
    return weir_channel_tcp_info(channel, &info) < 0 || info.unacked_segments == 0;
}

/* As much as the kernel takes, past the channel, which knows nothing of it. */
static void fill(writer *self)
{
    uint8_t bytes[4096];
    ssize_t code;
    bool is_over;
    make_both_small(self);
    do {
        fill_pattern(bytes, self->at, sizeof bytes);
        is_over = is_all_acknowledged(self->channel);
        code = send(weir_channel_descriptor(self->channel), bytes, sizeof bytes,
                    MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(code > 0 || errno == EAGAIN);
        self->at += code > 0 ? (size_t)code : 0;
    } while (code > 0 || !is_over);
    self->past_it = self->at;
}

static void open_writer(writer *self, const way *how)
{
    *self = (writer){ .messages = how->messages, .length = 64, .place = how->place };
    self->seen = (record){ .then = write_in_read, .arg = self };
    self->channel = pair_with(how->stream, &self->seen, &self->peer);
    if (how->is_full)
        fill(self);
}

static int is_reading(void *arg)
{
    return weir__socket_of(((writer *)arg)->channel)->in.is_in_flight;
}

/* So that it closes or leaves at once, when it is told to: nothing is under way that has to end
 * first. */
static void stop_reading(writer *self)
{
    if (self->place == IN_READ)
        return;
    set_option(self->channel, WEIR_OPTION_AUTO_READ, 0);
    WAIT_FOR(call_on(executor_of(self->channel), is_reading, self) == 0);
}

static weir_channel_stats stats_of_channel(const weir_channel *channel)
{
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    return stats;
}

static size_t pending_of(const weir_channel *channel)
{
    return stats_of_channel(channel).pending_bytes;
}

static void assert_counted(const writer *self)
{
    weir_channel_stats stats = stats_of_channel(self->channel);
    assert_int_equal(stats.pending_bytes, 0);
    assert_int_equal(stats.bytes_out, self->at - self->past_it);
    assert_int_equal(stats.messages_out, self->count);
}

/* The peer has it all, and the channel finds out. */
static void assert_all_sent(const writer *self)
{
    WAIT_FOR(pending_of(self->channel) == 0);
    settle(executor_of(self->channel));
    assert_counted(self);
}

/* One that is still open: nothing comes any more. */
static void end_writer(writer *self)
{
    assert_all_sent(self);
    assert_int_equal(atomic_load(&self->seen.errors), 0);
    end_channel(self->channel);
    peer_expect_eof(self->peer);
    close(self->peer);
}

/* One that closes by itself. */
static void end_closed(writer *self)
{
    wait_for_close(self->channel);
    assert_counted(self);
    assert_int_equal(atomic_load(&self->seen.errors), 0);
    assert_int_equal(atomic_load(&self->seen.inactives), 1);
    weir_channel_release(self->channel);
}

/* One after another ---------------------------------------------------------------------------- */

static void write_a_hundred_times(const way *how)
{
    writer self;
    if (how->is_full || how->messages > 1)
        return;
    open_writer(&self, how);
    for (unsigned i = 0; i < 100; i++) {
        size_t at = self.at;
        self.messages = 1 + i % 10;
        self.length = 1 + i * 41; /* up to some KiB */
        go(&self);
        peer_expect_pattern(self.peer, at, self.at - at);
    }
    end_writer(&self);
}

static void several_in_one_go_arrive_in_order(void **state)
{
    (void)state;
    in_every_way(write_a_hundred_times);
}

/* A few at a time, so that the loop has many turns between the first and the
 * first that does not go. */
static void what_a_socket_cannot_hold_waits_for_the_peer(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        writer self;
        open_writer(&self, &(way){ .stream = stream, .place = IN_TASK });
        make_both_small(&self);
        while (self.at < 2 * MIB) {
            self.messages = 1 + (unsigned)self.at / 64 % 4;
            go(&self);
        }
        assert_in_range(pending_of(self.channel), 1, 2 * MIB);
        assert_true(stats_of_channel(self.channel).messages_out < self.count);
        peer_expect_pattern(self.peer, 0, self.at);
        end_writer(&self);
    }
}

/* So that there is often one that does not go, or not all of it: the first, or the last of those
 * that went together behind it. */
static void a_peer_that_reads_now_and_then_gets_everything(void **state)
{
    (void)state;
    enum { TIMES = 150, MANY = 32768, LONGEST = 4096 };
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        writer self;
        open_writer(&self, &(way){ .stream = stream, .place = IN_TASK, .messages = 3 });
        make_both_small(&self);
        for (int i = 0; i < TIMES; i++) {
            size_t at = self.at;
            while (pending_of(self.channel) < MANY) {
                self.length = LONGEST - self.count * 31 % (LONGEST / 2);
                go(&self);
            }
            peer_expect_pattern(self.peer, at, self.at - at);
            assert_all_sent(&self);
        }
        end_writer(&self);
    }
}

static void a_burst_of_another_thread_arrives_in_order(void **state)
{
    (void)state;
    enum { BURSTS = 100, MESSAGES = 100 };
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        writer self;
        open_writer(&self, &(way){ .stream = stream, .messages = MESSAGES });
        for (int i = 0; i < BURSTS; i++) {
            size_t at = self.at;
            write_in_one_go(&self);
            peer_expect_pattern(self.peer, at, self.at - at);
        }
        end_writer(&self);
    }
}

static void write_unflushed(writer *self)
{
    weir_channel_write(self->channel, pattern_msg(self->at, self->length), NULL);
}

static void leave_one_unflushed(const way *how)
{
    writer self;
    open_writer(&self, how);
    self.then = write_unflushed;
    go(&self);
    peer_expect_pattern(self.peer, 0, self.at);
    WAIT_FOR(pending_of(self.channel) == self.length);
    settle_calls(self.channel);
    assert_int_equal(peer_drain(self.peer), 0); /* nobody sends that */
    weir_channel_flush(self.channel);
    peer_expect_pattern(self.peer, self.at, self.length);
    self.at += self.length;
    self.count++;
    end_writer(&self);
}

static void what_is_not_flushed_stays_behind(void **state)
{
    (void)state;
    in_every_way(leave_one_unflushed);
}

/* A send waits for the kernel, not for other tasks. */
static void who_waits_does_not_keep_the_loop_busy(void **state)
{
    (void)state;
    enum { TIMES = 100, MOST_TASKS = 10 };
    writer self;
    open_writer(&self, &(way){ .place = IN_TASK, .messages = 2 });
    weir_executor *loop = executor_of(self.channel);
    settle(loop);
    uint64_t before = stats_of(loop).tasks_run;
    for (int i = 0; i < TIMES; i++) {
        size_t at = self.at;
        go(&self);
        peer_expect_pattern(self.peer, at, self.at - at);
    }
    settle(loop);
    assert_in_range(stats_of(loop).tasks_run - before, TIMES, MOST_TASKS * TIMES);
    end_writer(&self);
}

static void a_loop_that_prefers_tasks_sends_what_waits(void **state)
{
    (void)state;
    writer self;
    open_writer(&self, &(way){ .place = IN_TASK, .messages = 3 });
    assert_int_equal(weir_loop_set_io_ratio(weir_channel_loop(self.channel), 100), 0);
    go(&self);
    peer_expect_pattern(self.peer, 0, self.at);
    end_writer(&self);
}

/* Who waits for something behind them ---------------------------------------------------------- */

static void write_with_promise(writer *self)
{
    weir_channel_write_and_flush(self->channel, pattern_msg(self->at, self->length), self->promise);
    self->at += self->length;
    self->count++;
}

static void await_the_last(const way *how)
{
    writer self;
    int there = 0;
    open_writer(&self, how);
    size_t at = self.at;
    self.then = write_with_promise;
    self.promise = promise_of(self.channel);
    go(&self);
    if (how->is_full) {
        settle(executor_of(self.channel));
        if (how->stream == UNIX) /* TCP may move a few bytes by itself, after a while */
            assert_false(weir_future_is_done(weir_promise_future(self.promise)));
        peer_expect_pattern(self.peer, 0, at);
    }
    assert_int_equal(outcome(self.promise), 0);
    if (how->stream == UNIX) { /* there is no way between the two */
        assert_int_equal(ioctl(self.peer, FIONREAD, &there), 0);
        assert_int_equal(there, self.at - at);
    }
    peer_expect_pattern(self.peer, at, self.at - at);
    end_writer(&self);
}

static void a_promise_is_kept_when_all_before_it_has_gone(void **state)
{
    (void)state;
    in_every_way(await_the_last);
}

static atomic_int freed;

static void note_free(void *arg, void *memory)
{
    (void)arg;
    (void)memory;
    atomic_fetch_add(&freed, 1);
}

static void write_wrapped(writer *self)
{
    static uint8_t bytes[64];
    fill_pattern(bytes, self->at, sizeof bytes);
    weir_buf *buf = weir_buf_wrap(bytes, sizeof bytes, note_free, NULL);
    assert_non_null(buf);
    weir_channel_write_and_flush(self->channel, &buf->msg, NULL);
    self->at += sizeof bytes;
    self->count++;
}

static void let_go_of_wrapped(const way *how)
{
    writer self;
    atomic_store(&freed, 0);
    open_writer(&self, how);
    self.messages--; /* it is the only one, or behind others */
    self.then = write_wrapped;
    go(&self);
    if (how->is_full) {
        settle(executor_of(self.channel));
        if (how->stream == UNIX)
            assert_int_equal(atomic_load(&freed), 0);
        peer_expect_pattern(self.peer, 0, self.at);
    }
    WAIT_FOR(atomic_load(&freed) == 1);
    if (!how->is_full)
        peer_expect_pattern(self.peer, 0, self.at);
    end_writer(&self);
    assert_int_equal(atomic_load(&freed), 1);
}

/* Though nothing else happens on the loop, and not before. */
static void memory_is_let_go_of_when_it_was_sent(void **state)
{
    (void)state;
    in_every_way(let_go_of_wrapped);
}

static void close_with_wrapped(const way *how)
{
    writer self;
    if (!how->is_full)
        return;
    atomic_store(&freed, 0);
    open_writer(&self, how);
    self.messages--;
    self.then = write_wrapped;
    go(&self);
    settle(executor_of(self.channel));
    end_channel(self.channel);
    assert_int_equal(atomic_load(&freed), 1);
    close(self.peer);
}

static void memory_is_let_go_of_when_it_cannot_be_sent(void **state)
{
    (void)state;
    in_every_way(close_with_wrapped);
}

/* Ends ----------------------------------------------------------------------------------------- */

static void shut_down(writer *self)
{
    weir_channel_shutdown(self->channel, self->promise);
}

static void write_and_shut_down(const way *how)
{
    writer self;
    open_writer(&self, how);
    self.then = shut_down;
    self.promise = promise_of(self.channel);
    go(&self);
    peer_expect_pattern(self.peer, 0, self.at);
    peer_expect_eof(self.peer);
    assert_int_equal(outcome(self.promise), 0);
    end_writer(&self);
}

static void the_end_of_the_stream_comes_last(void **state)
{
    (void)state;
    in_every_way(write_and_shut_down);
}

static void close_now(writer *self)
{
    weir_channel_close(self->channel, NULL);
}

static void write_and_close(const way *how)
{
    writer self;
    if (how->is_full) /* one attempt is what they get */
        return;
    for (size_t length = 64; length <= LONG; length += LONG - 64) {
        open_writer(&self, how);
        stop_reading(&self);
        self.length = length;
        self.then = close_now;
        go(&self);
        peer_expect_pattern(self.peer, 0, self.at);
        peer_expect_eof(self.peer);
        end_closed(&self);
        close(self.peer);
    }
}

/* More sends than one turn has for a channel: the close comes while the rest waits for the next. */
static void close_sends_what_waits_for_the_next_turn(void **state)
{
    (void)state;
    for (int place = 0; place < PLACES; place++) {
        write_and_close(&(way){ .stream = TCP, .place = place, .messages = 20 });
        write_and_close(&(way){ .stream = UNIX, .place = place, .messages = 20 });
    }
}

static void a_close_comes_behind_what_the_peer_has_room_for(void **state)
{
    (void)state;
    in_every_way(write_and_close);
}

static void write_and_close_lingering(const way *how)
{
    writer self;
    if (how->is_full)
        return;
    open_writer(&self, how);
    set_option(self.channel, WEIR_OPTION_CLOSE_LINGER_NS, FOR_EVER_NS);
    settle_calls(self.channel);
    stop_reading(&self);
    self.then = close_now;
    go(&self);
    peer_expect_pattern(self.peer, 0, self.at);
    peer_expect_eof(self.peer);
    end_closed(&self); /* while the peer has not ended */
    close(self.peer);
}

static void a_close_that_lingers_comes_behind_them(void **state)
{
    (void)state;
    in_every_way(write_and_close_lingering);
}

static void finish(writer *self)
{
    weir_channel_finish(self->channel, self->promise);
}

static void write_and_finish(const way *how, int64_t linger_ns)
{
    writer self;
    open_writer(&self, how);
    set_option(self.channel, WEIR_OPTION_CLOSE_LINGER_NS, linger_ns);
    settle_calls(self.channel);
    self.then = finish;
    self.promise = promise_of(self.channel);
    go(&self);
    peer_expect_pattern(self.peer, 0, self.at);
    peer_expect_eof(self.peer);
    assert_false(weir_future_is_done(weir_promise_future(self.promise)));
    close(self.peer);
    assert_int_equal(outcome(self.promise), 0);
    end_closed(&self);
}

static void write_and_just_finish(const way *how)
{
    write_and_finish(how, -1);
}

static void write_and_finish_lingering(const way *how)
{
    write_and_finish(how, FOR_EVER_NS);
}

static void finishing_comes_behind_them(void **state)
{
    (void)state;
    in_every_way(write_and_just_finish);
}

static void finishing_and_lingering_come_behind_them(void **state)
{
    (void)state;
    in_every_way(write_and_finish_lingering);
}

/* The question and the end of the input come together, so that the answer has not been handed over
 * when the end is told. */
static void answer_before_the_end(const way *how)
{
    writer self;
    blocker stop;
    if (how->place != IN_READ)
        return;
    open_writer(&self, how);
    block(&stop, executor_of(self.channel));
    peer_send(self.peer, "?", 1);
    shutdown(self.peer, SHUT_WR);
    unblock(&stop);
    WAIT_FOR(atomic_load(&self.seen.reads) == 1);
    peer_expect_pattern(self.peer, 0, self.at);
    peer_expect_eof(self.peer);
    end_closed(&self);
    close(self.peer);
}

static void answers_outlive_the_end_of_the_input(void **state)
{
    (void)state;
    in_every_way(answer_before_the_end);
}

static void write_and_end_group(const way *how)
{
    writer self;
    if (how->is_full)
        return;
    if (group == NULL)
        group = new_loops(&(weir_group_config){
            .io = current->io, .loops = current->io != WEIR_IO_BLOCKING, .watchdog_ns = WEIR_OFF });
    open_writer(&self, how);
    stop_reading(&self);
    go(&self);
    end_group(group);
    group = NULL;
    peer_expect_pattern(self.peer, 0, self.at);
    peer_expect_eof(self.peer);
    end_closed(&self);
    close(self.peer);
}

static void the_end_of_the_group_comes_behind_them(void **state)
{
    (void)state;
    in_every_way(write_and_end_group);
}

/* Resets --------------------------------------------------------------------------------------- */

static bool is_lost(int code)
{
    return code == -ECONNRESET || code == -EPIPE;
}

static bool has_heard_of_reset(const weir_channel *channel)
{
    weir_tcp_info info;
    return weir_channel_tcp_info(channel, &info) < 0 || info.state == TCP_CLOSE;
}

/* It does not read, so that nothing but a send finds out. */
static void write_to_one_that_is_gone(const way *how)
{
    writer self;
    if (how->place == IN_READ || how->is_full)
        return;
    for (int has_promise = 0; has_promise < 2; has_promise++) {
        open_writer(&self, how);
        stop_reading(&self);
        self.then = has_promise ? write_with_promise : NULL;
        self.promise = has_promise ? promise_of(self.channel) : NULL;
        peer_reset(self.peer);
        WAIT_FOR(has_heard_of_reset(self.channel));
        go(&self);
        int code = has_promise ? outcome(self.promise) : WEIR_ECLOSED;
        assert_true(is_lost(code) || code == WEIR_ECLOSED);
        wait_for_close(self.channel);
        assert_int_equal(atomic_load(&self.seen.errors), 1);
        assert_true(is_lost(atomic_load(&self.seen.error)));
        assert_int_equal(atomic_load(&self.seen.inactives), 1);
        assert_int_equal(stats_of_channel(self.channel).bytes_out, 0);
        weir_channel_release(self.channel);
    }
}

static void that_the_peer_is_gone_is_told_once(void **state)
{
    (void)state;
    in_every_way(write_to_one_that_is_gone);
}

/* Relays --------------------------------------------------------------------------------------- */

static void relay(writer *self)
{
    weir_relay(self->from, self->channel, self->promise);
}

static int run_relay(void *arg)
{
    relay(arg);
    return 0;
}

/* Once the write is complete. */
static int relay_when_sent(writer *self)
{
    int code = -EBUSY;
    for (int tries = 0; code == -EBUSY; tries++) {
        assert_true(tries < 1000);
        self->promise = promise_of(self->channel);
        call_on(executor_of(self->channel), run_relay, self);
        WAIT_FOR(stats_of_channel(self->channel).pending_bytes == 0);
        weir_future *future = weir_promise_future(self->promise);
        code = weir_future_is_done(future) ? outcome(self->promise) : 0;
    }
    return code;
}

/* A stream on the loop of the writer, whose bytes nobody reads. */
static weir_channel *open_source(const writer *self, int stream, int *client)
{
    weir_channel *channel = half_pair(stream, NULL, client);
    weir_promise *promise = promise_of(channel);
    set_option(channel, WEIR_OPTION_AUTO_READ, 0);
    weir_channel_register(channel, executor_of(self->channel), promise);
    assert_int_equal(outcome(promise), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    return channel;
}

static void write_and_relay(const way *how)
{
    enum { RELAYED = 5000 };
    writer self;
    int client;
    if (how->is_full || how->messages > 1)
        return; /* only when nothing is queued */
    open_writer(&self, how);
    self.from = open_source(&self, how->stream, &client);
    peer_send_pattern(client, self.length, RELAYED);
    go(&self);
    assert_int_equal(relay_when_sent(&self), 0);
    peer_expect_pattern(self.peer, 0, self.length + RELAYED);
    shutdown(client, SHUT_WR);
    peer_expect_eof(self.peer);
    assert_int_equal(outcome(self.promise), 0);
    end_channel(self.channel);
    end_channel(self.from);
    close(client);
    close(self.peer);
}

static void what_is_relayed_comes_behind_them(void **state)
{
    (void)state;
    in_every_way(write_and_relay);
}

static void relay_too_early(const way *how)
{
    writer self;
    int client;
    if (!how->is_full || how->stream != UNIX)
        return; /* TCP may move a few bytes by itself, after a while */
    open_writer(&self, how);
    self.from = open_source(&self, how->stream, &client);
    self.then = relay;
    self.promise = promise_of(self.channel);
    peer_send(client, "not yet", 7);
    go(&self);
    assert_int_equal(outcome(self.promise), -EBUSY);
    peer_expect_pattern(self.peer, 0, self.at);
    end_channel(self.from);
    end_writer(&self);
    close(client);
}

static void nothing_is_relayed_before_them(void **state)
{
    (void)state;
    in_every_way(relay_too_early);
}

/* Moving --------------------------------------------------------------------------------------- */

static void move(writer *self)
{
    weir_channel_move(self->channel, self->loop, self->promise);
}

/* The peer reads so seldom that a Unix socket, which is small here, is often full. */
static void write_and_move(const way *how)
{
    enum { MOVES = 300, MOVES_PER_LOOK = 50 };
    writer self;
    int size = 4096;
    if (how->is_full)
        return;
    open_writer(&self, how);
    if (how->stream == UNIX)
        setsockopt(weir_channel_descriptor(self.channel), SOL_SOCKET, SO_SNDBUF, &size,
                   sizeof size);
    stop_reading(&self);
    self.then = move;
    size_t seen = 0;
    for (size_t i = 1; i <= MOVES; i++) {
        self.loop = weir_group_at(group, i % 2);
        self.promise = promise_of(self.channel);
        go(&self);
        assert_int_equal(outcome(self.promise), 0);
        if (i % MOVES_PER_LOOK == 0) {
            peer_expect_pattern(self.peer, seen, self.at - seen);
            seen = self.at;
        }
    }
    end_writer(&self);
}

static void moved_right_behind_them_it_loses_nothing(void **state)
{
    (void)state;
    in_every_way(write_and_move);
}

/* Much at once --------------------------------------------------------------------------------- */

enum { WRITERS = 300 };

static weir_group *open_writers(writer *all, void (*then)(writer *self))
{
    weir_group *small = new_loops(&(weir_group_config){
        .io = current->io, .loops = 2, .ring_entries = 8, .watchdog_ns = WEIR_OFF });
    for (int i = 0; i < WRITERS; i++) {
        all[i] = (writer){ .messages = 1, .length = 64, .then = then };
        all[i].loop = weir_group_at(small, 1);
        all[i].seen = (record){ .then = write_in_read, .arg = &all[i] };
        all[i].channel = half_pair(UNIX, &all[i].seen, &all[i].peer);
        all[i].promise = promise_of(all[i].channel);
        weir_channel_register(all[i].channel, weir_group_at(small, 0), NULL);
        WAIT_FOR(weir_channel_is_active(all[i].channel));
    }
    return small;
}

/* A loop finds more results than its ring has room for, so that it cannot know at once whether a
 * message went: how many channels are closed for that. */
static unsigned lose_some(void (*then)(writer *self))
{
    writer *all = calloc(WRITERS, sizeof *all);
    unsigned closed = 0;
    blocker stop;
    assert_non_null(all);
    weir_group *small = open_writers(all, then);
    block(&stop, weir_group_at(small, 0));
    for (int i = 0; i < WRITERS; i++)
        peer_send(all[i].peer, "!", 1);
    unblock(&stop);
    for (int i = 0; i < WRITERS; i++) {
        peer_expect_pattern(all[i].peer, 0, 64);
        assert_int_equal(outcome(all[i].promise), 0);
    }
    for (size_t i = 0; i < 2; i++)
        settle(weir_group_at(small, i));
    for (int i = 0; i < WRITERS; i++) {
        closed += !weir_channel_is_open(all[i].channel);
        end_channel(all[i].channel);
        peer_expect_eof(all[i].peer);
        close(all[i].peer);
    }
    end_group(small);
    free(all);
    return closed;
}

static void shut_down_while_much_happens_it_stays_open(void **state)
{
    (void)state;
    assert_int_equal(lose_some(shut_down), 0);
}

static void moved_while_much_happens_it_stays_open(void **state)
{
    (void)state;
    assert_int_equal(lose_some(move), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(several_in_one_go_arrive_in_order),
        socket_cases(what_a_socket_cannot_hold_waits_for_the_peer),
        socket_cases(a_peer_that_reads_now_and_then_gets_everything),
        socket_cases(a_burst_of_another_thread_arrives_in_order),
        socket_cases(what_is_not_flushed_stays_behind),
        loop_cases(who_waits_does_not_keep_the_loop_busy),
        loop_cases(a_loop_that_prefers_tasks_sends_what_waits),
        socket_cases(a_promise_is_kept_when_all_before_it_has_gone),
        socket_cases(memory_is_let_go_of_when_it_was_sent),
        socket_cases(memory_is_let_go_of_when_it_cannot_be_sent),
        socket_cases(the_end_of_the_stream_comes_last),
        socket_cases(a_close_comes_behind_what_the_peer_has_room_for),
        socket_cases(close_sends_what_waits_for_the_next_turn),
        socket_cases(a_close_that_lingers_comes_behind_them),
        socket_cases(finishing_comes_behind_them),
        socket_cases(finishing_and_lingering_come_behind_them),
        socket_cases(answers_outlive_the_end_of_the_input),
        socket_cases(the_end_of_the_group_comes_behind_them),
        socket_cases(that_the_peer_is_gone_is_told_once),
        loop_cases(what_is_relayed_comes_behind_them),
        loop_cases(nothing_is_relayed_before_them),
        loop_cases(moved_right_behind_them_it_loses_nothing),
        loop_cases(shut_down_while_much_happens_it_stays_open),
        loop_cases(moved_while_much_happens_it_stays_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
