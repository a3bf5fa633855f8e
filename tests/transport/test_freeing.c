/* SPDX-License-Identifier: MIT */
/* Destructors of sent messages: they run in the middle of a send and may call anything of the
 * channel. */
#include "transport/sockets.h"

#include <weir/fault.h>

/* A channel whose messages call `act` when they are freed. */
typedef struct sender sender;
struct sender {
    weir_channel *channel;
    int peer;
    record seen;
    void (*act)(sender *self); /* NULL: none */
    size_t length;             /* of a message in bytes */
    unsigned messages;         /* flushed together */
    size_t at;                 /* position in the pattern */
    unsigned moves;
    atomic_int freed;
};

typedef struct wrapped {
    sender *of;
    uint8_t bytes[];
} wrapped;

static void on_free(void *arg, void *memory)
{
    sender *self = ((wrapped *)arg)->of;
    (void)memory;
    free(arg);
    if (self->act != NULL)
        self->act(self);
    atomic_fetch_add(&self->freed, 1);
}

/* Writes one message without a flush. */
static void write_one(sender *self)
{
    wrapped *memory = malloc(sizeof *memory + self->length);
    assert_non_null(memory);
    memory->of = self;
    fill_pattern(memory->bytes, self->at, self->length);
    weir_buf *buf = weir_buf_wrap(memory->bytes, self->length, on_free, memory);
    assert_non_null(buf);
    self->at += self->length;
    weir_channel_write(self->channel, &buf->msg, NULL);
}

static int send_some(void *arg)
{
    sender *self = arg;
    for (unsigned i = 0; i < self->messages; i++)
        write_one(self);
    weir_channel_flush(self->channel);
    return 0;
}

/* One short message, several gathered into one send, and messages that need several sends. */
static const struct {
    size_t length;
    unsigned messages;
} shapes[] = { { 64, 1 }, { 64, 3 }, { 3000, 5 }, { MIB, 1 }, { 100000, 7 } };

static void open_sender(sender *self, int stream, size_t shape, void (*act)(sender *self))
{
    *self = (sender){ .act = act, .length = shapes[shape].length };
    self->messages = shapes[shape].messages;
    self->channel = pair_with(stream, &self->seen, &self->peer);
}

static void for_all(void (*run)(int stream, size_t shape))
{
    for (size_t shape = 0; shape < COUNT_OF(shapes); shape++) {
        run(TCP, shape);
        run(UNIX, shape);
    }
}

/* Moving --------------------------------------------------------------------------------------- */

static void move_on(sender *self)
{
    weir_channel_move(self->channel, weir_group_at(group, ++self->moves % 2), NULL);
}

static void move_in_the_middle(int stream, size_t shape)
{
    enum { TIMES = 20 };
    sender self;
    open_sender(&self, stream, shape, move_on);
    for (int i = 0; i < TIMES; i++) {
        size_t before = self.at;
        call_on(executor_of(self.channel), send_some, &self);
        peer_expect_pattern(self.peer, before, self.length * self.messages);
        WAIT_FOR(atomic_load(&self.freed) == (i + 1) * (int)self.messages);
        settle_calls(self.channel);
    }
    end_channel(self.channel);
    close(self.peer);
}

static void move_in_destructor_keeps_all_bytes(void **state)
{
    (void)state;
    for_all(move_in_the_middle);
}

/* Writing -------------------------------------------------------------------------------------- */

enum { WRITES = 24 };

static void write_on(sender *self)
{
    if (self->at < WRITES * self->length) {
        write_one(self);
        weir_channel_flush(self->channel);
    }
}

static void write_in_the_middle(int stream, size_t shape)
{
    sender self;
    open_sender(&self, stream, shape, write_on);
    call_on(executor_of(self.channel), send_some, &self);
    peer_expect_pattern(self.peer, 0, WRITES * self.length);
    WAIT_FOR(atomic_load(&self.freed) == WRITES);
    end_channel(self.channel);
    close(self.peer);
}

static void write_in_destructor_keeps_order(void **state)
{
    (void)state;
    for_all(write_in_the_middle);
}

/* Ending --------------------------------------------------------------------------------------- */

static void close_at_once(sender *self)
{
    self->act = NULL;
    weir_channel_close(self->channel, NULL);
}

static void shut_down(sender *self)
{
    self->act = NULL;
    weir_channel_shutdown(self->channel, NULL);
}

static void finish(sender *self)
{
    self->act = NULL;
    weir_channel_finish(self->channel, NULL);
}

static void end_in_the_middle(int stream, size_t shape)
{
    static void (*const acts[])(sender * self) = { close_at_once, shut_down, finish };
    for (size_t i = 0; i < COUNT_OF(acts); i++) {
        sender self;
        open_sender(&self, stream, shape, acts[i]);
        call_on(executor_of(self.channel), send_some, &self);
        if (acts[i] == close_at_once) { /* as much as the socket buffer took */
            peer_drain(self.peer);
        } else {
            peer_expect_pattern(self.peer, 0, self.at);
            peer_expect_eof(self.peer);
        }
        close(self.peer);
        weir_channel_close(self.channel, NULL);
        wait_for_close(self.channel);
        WAIT_FOR(atomic_load(&self.freed) == (int)self.messages);
        weir_channel_release(self.channel);
    }
}

static void close_shutdown_finish_in_destructor(void **state)
{
    (void)state;
    for_all(end_in_the_middle);
}

/* Failed sends -----------------------------------------------------------------------------------
 */

static int fail_once(void *arg, const char *call, size_t *length)
{
    (void)length;
    bool is_send = strcmp(call, "send") == 0 || strcmp(call, "sendmsg") == 0;
    return is_send && atomic_exchange((atomic_bool *)arg, false) ? -ENOBUFS : 0;
}

static void flush_only(sender *self)
{
    weir_channel_flush(self->channel);
}

/* Messages of a failed send are freed as well. Whatever their destructors do, the peer must not
 * receive bytes that follow the lost ones. */
static void fail_in_the_middle(size_t shape, void (*act)(sender *self))
{
    sender self;
    atomic_bool fails = true;
    char byte;
    open_sender(&self, UNIX, shape, act);
    weir_fault_set(fail_once, &fails);
    call_on(executor_of(self.channel), send_some, &self);
    wait_for_close(self.channel);
    weir_fault_set(NULL, NULL);
    assert_false(atomic_load(&fails));
    assert_int_equal(recv(self.peer, &byte, 1, 0), 0);
    assert_int_equal(atomic_load(&self.seen.error), -ENOBUFS);
    weir_channel_release(self.channel);
    close(self.peer);
}

static void failed_send_is_followed_by_no_byte(void **state)
{
    static void (*const acts[])(sender * self) = { write_on, flush_only, close_at_once, shut_down };
    (void)state;
    for (size_t shape = 0; shape < COUNT_OF(shapes); shape++)
        for (size_t i = 0; i < COUNT_OF(acts); i++)
            fail_in_the_middle(shape, acts[i]);
}

/* Cancelled writes ------------------------------------------------------------------------------
 */

/* Two channels of one loop: freeing a message of the first one sends on the second. */
typedef struct neighbours {
    weir_channel *first, *second;
    int first_peer, second_peer;
    record first_seen, second_seen;
    bool closes; /* freeing it closes the first one, too */
    weir_promise *cancelled;
    atomic_int freed;
} neighbours;

/* In two pieces, which need memory of the backend's. */
static const char *const other_texts[] = { "bytes of ", "another connection" };
static const char other_text[] = "bytes of another connection";

static void on_free_cancelled(void *arg, void *memory)
{
    neighbours *self = arg;
    (void)memory;
    weir_channel_write(self->second, text_msg(other_texts[0]), NULL);
    weir_channel_write_and_flush(self->second, text_msg(other_texts[1]), NULL);
    if (self->closes)
        weir_channel_close(self->first, NULL);
    atomic_fetch_add(&self->freed, 1);
}

static weir_msg *cancelled_msg(neighbours *self)
{
    static char memory[] = "cancelled";
    return weir_buf_msg(weir_buf_wrap(memory, sizeof memory - 1, on_free_cancelled, self));
}

/* On the loop: one, a write that is cancelled, three. */
static int send_around_cancelled(void *arg)
{
    neighbours *self = arg;
    weir_channel_write(self->first, text_msg("one"), NULL);
    weir_channel_write(self->first, cancelled_msg(self), self->cancelled);
    weir_channel_write(self->first, text_msg("three"), NULL);
    weir_future_cancel(weir_promise_future(self->cancelled));
    weir_channel_flush(self->first);
    return 0;
}

/* The cancelled one is the first. */
static int send_after_cancelled(void *arg)
{
    neighbours *self = arg;
    weir_channel_write(self->first, cancelled_msg(self), self->cancelled);
    weir_channel_write(self->first, text_msg("one"), NULL);
    weir_channel_write(self->first, text_msg("three"), NULL);
    weir_future_cancel(weir_promise_future(self->cancelled));
    weir_channel_flush(self->first);
    return 0;
}

static weir_channel *pair_on_first_loop(record *seen, int *peer)
{
    weir_channel *channel = half_pair(TCP, seen, peer);
    weir_promise *promise = promise_of(channel);
    weir_channel_register(channel, weir_group_at(group, 0), promise);
    assert_int_equal(outcome(promise), 0);
    return channel;
}

static void send_beside(int (*send)(void *arg), bool closes)
{
    neighbours self = { .closes = closes };
    self.first = pair_on_first_loop(&self.first_seen, &self.first_peer);
    self.second = pair_on_first_loop(&self.second_seen, &self.second_peer);
    self.cancelled = promise_of(self.first);
    call_on(executor_of(self.first), send, &self);
    peer_expect_text(self.second_peer, other_text);
    if (closes) {
        wait_for_close(self.first);
        peer_drain(self.first_peer); /* maybe what was written besides */
        peer_expect_over(self.first_peer);
    } else {
        peer_expect_text(self.first_peer, "onethree");
        close_it(self.first);
    }
    assert_int_equal(atomic_load(&self.freed), 1);
    weir_promise_release(self.cancelled);
    weir_channel_release(self.first);
    end_channel(self.second);
    close(self.first_peer);
    close(self.second_peer);
}

static void cancelled_message_that_sends_elsewhere_mixes_no_bytes(void **state)
{
    (void)state;
    send_beside(send_around_cancelled, false);
    send_beside(send_after_cancelled, false);
}

static void cancelled_message_that_closes_its_channel_ends_it(void **state)
{
    (void)state;
    send_beside(send_around_cancelled, true);
    send_beside(send_after_cancelled, true);
}

/* Three channels send together, some are only read. Freeing a cancelled message of the second one
 * stops reading those, which needs submissions: a small ring has no space for them. */
enum { SENDERS = 3, READ_ONLY = 4, CROWD = SENDERS + READ_ONLY };

typedef struct crowd {
    int entries, holds;
    bool fails; /* the next system call to submit */
    weir_group *group;
    weir_channel *channels[CROWD];
    int peers[CROWD];
    record seen[CROWD];
    weir_hold read_holds[CROWD];
    weir_promise *cancelled;
    atomic_bool is_failing;
} crowd;

static int fail_to_enter(void *arg, const char *call, size_t *length)
{
    (void)length;
    bool is_enter = strcmp(call, "io_uring_enter") == 0;
    return is_enter && atomic_exchange(&((crowd *)arg)->is_failing, false) ? -EAGAIN : 0;
}

static void stop_reading(void *arg, void *memory)
{
    crowd *self = arg;
    (void)memory;
    for (int i = SENDERS; i < SENDERS + self->holds; i++)
        weir_channel_set_read_hold(self->channels[i], fresh_hold(&self->read_holds[i]), true);
    atomic_store(&self->is_failing, self->fails);
}

static void write_letters(weir_channel *channel, const char *letters)
{
    for (char text[2] = ""; *letters != '\0'; letters++) {
        text[0] = *letters;
        weir_channel_write(channel, text_msg(text), NULL);
    }
    weir_channel_flush(channel);
}

static int send_in_crowd(void *arg)
{
    static char memory[] = "cancelled";
    crowd *self = arg;
    weir_buf *buf = weir_buf_wrap(memory, sizeof memory - 1, stop_reading, self);
    write_letters(self->channels[0], "abc");
    weir_channel_write(self->channels[1], &buf->msg, self->cancelled);
    weir_future_cancel(weir_promise_future(self->cancelled));
    write_letters(self->channels[1], "de");
    write_letters(self->channels[2], "fghi");
    return 0;
}

/* Each has received something, so that its receive is submitted. */
static void open_crowd(crowd *self)
{
    weir_group_config config = { .loops = 1, .io = current->io, .ring_entries = self->entries };
    config.watchdog_ns = WEIR_OFF;
    assert_int_equal(weir_group_new(&self->group, &config, NULL), 0);
    for (int i = 0; i < CROWD; i++) {
        self->channels[i] = half_pair(TCP, &self->seen[i], &self->peers[i]);
        weir_channel_register(self->channels[i], weir_group_at(self->group, 0), NULL);
        peer_send(self->peers[i], "x", 1);
        WAIT_FOR(atomic_load(&self->seen[i].bytes) == 1);
    }
    self->cancelled = promise_of(self->channels[1]);
}

static void end_crowd(crowd *self)
{
    weir_promise_release(self->cancelled);
    for (int i = 0; i < CROWD; i++) {
        end_channel(self->channels[i]);
        close(self->peers[i]);
    }
    end_group(self->group);
}

static void send_with_ring(int entries, int holds, bool fails)
{
    crowd self = { .entries = entries, .holds = holds, .fails = fails };
    open_crowd(&self);
    weir_fault_set(fail_to_enter, &self);
    call_on(weir_group_at(self.group, 0), send_in_crowd, &self);
    peer_expect_text(self.peers[0], "abc");
    peer_expect_text(self.peers[1], "de");
    peer_expect_text(self.peers[2], "fghi");
    weir_fault_set(NULL, NULL);
    end_crowd(&self);
}

static void cancelled_message_that_fills_the_ring_mixes_no_bytes(void **state)
{
    (void)state;
    for (int entries = 1; entries <= 8; entries *= 2) {
        for (int holds = 0; holds <= READ_ONLY; holds++) {
            send_with_ring(entries, holds, false);
            send_with_ring(entries, holds, true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loop_cases(cancelled_message_that_sends_elsewhere_mixes_no_bytes),
        loop_cases(cancelled_message_that_closes_its_channel_ends_it),
        loop_cases(cancelled_message_that_fills_the_ring_mixes_no_bytes),
        loop_cases(move_in_destructor_keeps_all_bytes),
        socket_cases(write_in_destructor_keeps_order),
        socket_cases(close_shutdown_finish_in_destructor),
        socket_cases(failed_send_is_followed_by_no_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
