/* SPDX-License-Identifier: MIT */
/* Which bytes share a record, and which promises go with them. */
#include "tls/pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MUCH (1 << 20)

static char pattern[MUCH];

static int begin(void **state)
{
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (char)('a' + i % 23);
    return pair_warm_up(state);
}

/* What is sent, in records ----------------------------------------------------------------------*/

typedef struct sent {
    uint8_t bytes[2 * MUCH];
    size_t length, records, largest, smallest;
} sent;

static sent *take_sent(const pair_end *from)
{
    static sent self;
    self.records = self.largest = 0;
    self.smallest = SIZE_MAX;
    self.length = weir_embedded_read_outbound_bytes(from->embedded, self.bytes, sizeof self.bytes);
    for (size_t at = 0; at < self.length;) {
        size_t length = (size_t)self.bytes[at + 3] << 8 | self.bytes[at + 4];
        assert_int_equal(self.bytes[at], 23);
        self.largest = length > self.largest ? length : self.largest;
        self.smallest = length < self.smallest ? length : self.smallest;
        self.records++;
        at += 5 + length;
    }
    return &self;
}

static void hand_to(const sent *self, const pair_end *to)
{
    weir_embedded_write_inbound_bytes(to->embedded, self->bytes, self->length);
}

static void expect_pattern(pair_end *end, size_t length)
{
    static char heard[MUCH + 1];
    assert_int_equal(pair_heard(end, heard, sizeof heard), length);
    assert_memory_equal(heard, pattern, length);
}

static void small_writes_of_a_flush_share_a_record(void **state)
{
    pair both = { 0 };
    weir_promise *promises[100];
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    for (size_t i = 0; i < 100; i++)
        promises[i] = pair_write(&both.client, pattern + i * 100, 100);
    assert_int_equal(weir_embedded_outbound_count(both.client.embedded), 0);
    weir_embedded_flush(both.client.embedded);
    sent *seen = take_sent(&both.client);
    assert_int_equal(seen->records, 1);
    hand_to(seen, &both.server);
    expect_pattern(&both.server, 10000);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(pair_code_of(promises[i]), 0);
    pair_finish(&both);
}

static void bulk_fills_records(void **state)
{
    static const size_t lengths[] = { 1,     4095,  4096,  16383,  16384,
                                      16385, 49152, 49153, 100000, MUCH - 1 };
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pair both = { 0 };
        pair_begin(&both);
        pair_shake(&both);
        weir_promise *promise = pair_write(&both.client, pattern, lengths[i]);
        weir_embedded_flush(both.client.embedded);
        sent *seen = take_sent(&both.client);
        assert_int_equal(seen->records, (lengths[i] + 16383) / 16384);
        assert_true(seen->largest <= 16384 + 17);
        hand_to(seen, &both.server);
        expect_pattern(&both.server, lengths[i]);
        assert_int_equal(pair_code_of(promise), 0);
        pair_finish(&both);
    }
}

/* However large and small ones follow each other, the bytes are the same, and in order. */
static void writes_of_all_sizes_stay_in_order(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 60; round++) {
        pair both = { 0 };
        weir_promise *promises[200];
        size_t count = 0, all = 0;
        pair_begin(&both);
        if (round % 2 == 0)
            pair_shake(&both);
        while (count < 40 && all < MUCH / 2) {
            size_t length = (size_t)rand() % (rand() % 3 == 0 ? 40000 : 300);
            if (rand() % 20 == 0)
                length = 0;
            promises[count++] = pair_write(&both.client, pattern + all, length);
            all += length;
            if (rand() % 5 == 0)
                weir_embedded_flush(both.client.embedded);
        }
        weir_embedded_flush(both.client.embedded);
        pair_carry(&both);
        expect_pattern(&both.server, all);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(pair_code_of(promises[i]), 0);
        pair_finish(&both);
    }
}

/* Pieces of a composite are bytes like others. */
static void composites_are_sealed_whole(void **state)
{
    static const size_t pieces[] = { 1, 5000, 30, 20000, 0, 4096, 2, 2, 60000, 7 };
    pair both = { 0 };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_buf *whole = weir_buf_new_composite();
    size_t all = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        weir_buf *piece = weir_buf_from(pattern + all, pieces[i]);
        assert_int_equal(weir_buf_composite_add(whole, piece), 0);
        all += pieces[i];
    }
    weir_embedded_write_outbound(both.client.embedded, weir_buf_msg(whole));
    weir_embedded_flush(both.client.embedded);
    pair_carry(&both);
    expect_pattern(&both.server, all);
    pair_finish(&both);
}

/* Any buffer may be the one there is no memory for: small writes that are gathered, a record, the
 * list of promises. All of them complete, and the connection fails or is as good as before. */
static void oom_while_sealing_fails_every_write_and_leaks_nothing(void **state)
{
    enum { WRITES = 12 };
    static const size_t lengths[] = { 100, 300, 5000, 20 };
    unsigned failed = 0, count = 1;
    (void)state;
    for (unsigned nth = 1; nth <= count; nth++) {
        pair both = { 0 };
        weir_promise *promises[WRITES];
        pair_begin(&both);
        pair_shake(&both);
        for (size_t i = 0; i < WRITES; i++)
            promises[i] = pair_write(&both.client, pattern, lengths[i % 4]);
        harness_log_begin(WEIR_LOG_ERROR);
        harness_fail_nth("pool", nth, -ENOMEM);
        weir_embedded_flush(both.client.embedded);
        count = harness_fail_end() + 1; /* and once with all of it there */
        harness_log_end();
        bool is_open = weir_channel_is_open(weir_embedded_channel(both.client.embedded));
        weir_error error = { 0 };
        assert_int_equal(weir_embedded_take_error(both.client.embedded, &error), !is_open);
        assert_int_equal(error.code, is_open ? 0 : -ENOMEM);
        for (size_t i = 0; i < WRITES; i++) {
            assert_true(weir_future_is_done(weir_promise_future(promises[i])));
            int code = pair_code_of(promises[i]);
            assert_true(is_open ? code == 0 : code == -ENOMEM || code == WEIR_ECLOSED);
        }
        failed += !is_open;
        pair_finish(&both);
    }
    assert_true(failed > 3);
}

/* Promises ------------------------------------------------------------------------------------- */

typedef struct order {
    weir_listener listener;
    int *next, place, times;
} order;

static void on_done(weir_listener *listener, weir_future *future)
{
    order *self = WEIR_CONTAINER(listener, order, listener);
    (void)future;
    self->place = (*self->next)++;
    self->times++;
}

static void promises_complete_in_order_and_once(void **state)
{
    enum { COUNT = 50 };
    (void)state;
    for (int way = 0; way < 3; way++) { /* sent, failed by the network, closed */
        pair both = { 0 };
        weir_promise *promises[COUNT];
        order orders[COUNT] = { 0 };
        int next = 0;
        pair_begin(&both);
        pair_shake(&both);
        for (size_t i = 0; i < COUNT; i++) {
            promises[i] = pair_write(&both.client, pattern, i % 7 == 0 ? 20000 : i * 10);
            orders[i] = (order){ .listener.done = on_done, .next = &next };
            weir_future_listen(weir_promise_future(promises[i]), &orders[i].listener);
        }
        if (way == 1)
            weir_embedded_fail_sends(both.client.embedded, -EPIPE);
        if (way < 2)
            weir_embedded_flush(both.client.embedded);
        else
            weir_embedded_close(both.client.embedded);
        weir_embedded_run(both.client.embedded);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(orders[i].times, 1);
            assert_int_equal(orders[i].place, i);
            int code = pair_code_of(promises[i]);
            assert_int_equal(code<0, way> 0);
        }
        while (weir_embedded_take_error(both.client.embedded, NULL))
            continue;
        pair_finish(&both);
    }
}

/* Whatever a close cuts off: a write that succeeded can be decrypted by the peer. */
static void a_successful_promise_means_that_all_bytes_were_sent(void **state)
{
    enum { COUNT = 24 };
    static const size_t lengths[] = { 10, 6000, 20000, 300, 50000, 0 };
    size_t succeeded = 0, failed = 0;
    (void)state;
    for (size_t accepted = 0; accepted < COUNT * 2; accepted++) {
        static char heard[MUCH];
        pair both = { 0 };
        weir_promise *promises[COUNT];
        size_t all = 0, good = 0, ends[COUNT];
        pair_begin(&both);
        pair_shake(&both);
        weir_embedded_accept(both.client.embedded, accepted);
        for (size_t i = 0; i < COUNT; i++) {
            promises[i] = pair_write(&both.client, pattern + all, lengths[i % 6]);
            ends[i] = all += lengths[i % 6];
            if (i % 5 == 4)
                weir_embedded_flush(both.client.embedded);
        }
        weir_channel_close(weir_embedded_channel(both.client.embedded), NULL);
        weir_embedded_advance(both.client.embedded, WEIR_SECONDS(2));
        for (size_t i = 0; i < COUNT; i++) {
            int code = pair_code_of(promises[i]);
            succeeded += code == 0, failed += code < 0;
            if (code == 0)
                good = ends[i];
        }
        pair_carry_to(&both, &both.server);
        size_t length = pair_heard(&both.server, heard, sizeof heard);
        assert_true(length >= good);
        assert_memory_equal(heard, pattern, length);
        while (weir_embedded_take_error(both.server.embedded, NULL))
            continue;
        pair_finish(&both);
    }
    assert_true(succeeded > COUNT && failed > COUNT);
}

static void a_write_can_be_cancelled_until_the_flush(void **state)
{
    pair both = { 0 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_promise *first = pair_write(&both.client, "one ", 4),
                 *second = pair_write(&both.client, "two ", 4),
                 *third = pair_write(&both.client, "three", 5);
    assert_int_equal(weir_future_cancel(weir_promise_future(second)), 0);
    weir_embedded_accept(both.client.embedded, 0);
    weir_embedded_flush(both.client.embedded);
    assert_int_equal(weir_future_cancel(weir_promise_future(first)), -EBUSY);
    assert_int_equal(weir_future_cancel(weir_promise_future(third)), -EBUSY);
    weir_embedded_accept(both.client.embedded, SIZE_MAX);
    pair_carry(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "one three");
    assert_int_equal(pair_code_of(first), 0);
    assert_int_equal(pair_code_of(second), -ECANCELED);
    assert_int_equal(pair_code_of(third), 0);
    pair_finish(&both);
}

/* All of it cancelled: then there is nothing to send. */
static void what_is_cancelled_before_the_handshake_is_not_sent(void **state)
{
    pair both = { 0 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    weir_promise *promise = pair_write(&both.client, "secret", 6);
    weir_embedded_flush(both.client.embedded);
    weir_future_cancel(weir_promise_future(promise));
    pair_shake(&both);
    assert_int_equal(pair_heard(&both.server, heard, sizeof heard), 0);
    assert_int_equal(pair_code_of(promise), -ECANCELED);
    pair_say(&both, &both.client, "and on");
    pair_finish(&both);
}

/* What is refused ------------------------------------------------------------------------------ */

static void what_is_too_much_is_refused_before_it_is_encrypted(void **state)
{
    static const size_t lengths[] = { 1, 100, 1500, 3900, 4096, 4097, 20000 };
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pair both = { 0 };
        weir_promise *promises[100];
        size_t count = 0, accepted = 0;
        pair_begin_with(&both, WEIR_OPTION_MAX_OUTBOUND_BYTES, 50000);
        pair_shake(&both);
        weir_embedded_accept(both.client.embedded, 0);
        for (size_t length = lengths[i]; count < 100; count++) {
            promises[count] = pair_write(&both.client, pattern + accepted, length);
            if (count % 3 == 0)
                weir_embedded_flush(both.client.embedded);
            if (!weir_future_is_done(weir_promise_future(promises[count])))
                accepted += length;
        }
        weir_embedded_flush(both.client.embedded);
        assert_true(accepted > 0 && accepted < 50000);
        weir_embedded_accept(both.client.embedded, SIZE_MAX);
        weir_embedded_run(both.client.embedded);
        for (size_t n = 0, sum = 0; n < count; n++) {
            bool is_refused = (sum += lengths[i]) > accepted;
            assert_int_equal(pair_code_of(promises[n]), is_refused ? WEIR_ELIMIT : 0);
        }
        pair_carry(&both);
        expect_pattern(&both.server, accepted);
        pair_say(&both, &both.client, "and on");
        pair_finish(&both);
    }
}

/* A handler nearer to the head that lets so many writes of bytes through. */
typedef struct gate {
    int open;
    weir_error error; /* the first that TLS has told */
} gate;

static void gate_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    gate *self = weir_ctx_arg(ctx);
    if (weir_msg_size(msg) > 0 && self->open-- <= 0)
        weir_ctx_refuse_write(ctx, msg, promise, -ENOBUFS);
    else
        weir_ctx_write(ctx, msg, promise);
}

static void gate_on_error(weir_ctx *ctx, const weir_error *error)
{
    gate *self = weir_ctx_arg(ctx);
    if (self->error.code == 0)
        self->error = *error;
    weir_ctx_fire_error(ctx, error);
}

static const weir_handler_type gate_below = { .name = "gate", .write = gate_write };
static const weir_handler_type gate_behind = { .name = "behind", .on_error = gate_on_error };

static int add_gate(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_first(pipeline, "gate", &gate_below, arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "behind", &gate_behind, arg);
}

typedef struct gated {
    weir_channel *channel;
    gate *gate;
} gated;

static int add_gate_now(void *arg)
{
    gated *self = arg;
    return add_gate(self->channel, self->gate);
}

static void a_record_that_is_refused_below_ends_the_connection(void **state)
{
    (void)state;
    pair both = { 0 };
    gate self = { .open = 1 };
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *channel = weir_embedded_channel(both.client.embedded);
    weir_embedded_call(both.client.embedded, add_gate_now, &(gated){ channel, &self });
    weir_promise *promises[3];
    for (size_t i = 0; i < 3; i++) {
        promises[i] = pair_write(&both.client, pattern, 100);
        weir_embedded_flush(both.client.embedded);
    }
    assert_int_equal(pair_code_of(promises[0]), 0);
    assert_true(pair_code_of(promises[1]) < 0);
    assert_true(pair_code_of(promises[2]) < 0);
    assert_int_equal(self.error.code, -ENOBUFS);
    assert_false(weir_channel_is_open(channel));
    pair_expect_error(&both.client, -ENOBUFS);
    assert_false(weir_embedded_take_error(both.client.embedded, NULL));
    pair_carry(&both);
    expect_pattern(&both.server, 100); /* and no record that it could not decrypt */
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    pair_finish(&both);
}

static int remove_tls_and_write(void *arg)
{
    gated *self = arg;
    int code = weir_pipeline_remove(weir_channel_pipeline(self->channel), "tls", NULL);
    self->gate->open = 1; /* for the next write */
    weir_channel_write_and_flush(self->channel, weir_buf_msg(weir_buf_from("plain", 5)), NULL);
    return code;
}

/* Without its close_notify the peer would take plain bytes for a record. */
static void close_notify_that_is_rejected_on_removal_closes(void **state)
{
    (void)state;
    pair both = { 0 };
    gate self = { .open = 0 };
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *channel = weir_embedded_channel(both.client.embedded);
    weir_embedded_call(both.client.embedded, add_gate_now, &(gated){ channel, &self });
    weir_embedded_call(both.client.embedded, remove_tls_and_write, &(gated){ channel, &self });
    weir_embedded_run(both.client.embedded);
    assert_int_equal(weir_embedded_outbound_count(both.client.embedded), 0);
    assert_false(weir_channel_is_open(channel));
    pair_expect_error(&both.client, -ENOBUFS);
    pair_finish(&both);
}

/* Somebody keeps the buffer, and takes bytes out of it before the flush. */
static void a_buffer_that_has_become_shorter_is_not_sent(void **state)
{
    pair both = { 0 };
    char heard[64];
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel *channel = weir_embedded_channel(both.client.embedded);
    weir_buf *kept = weir_buf_from("shorter", 7), *longer = weir_buf_new(16);
    weir_buf_write_bytes(longer, "long", 4);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write(channel, weir_buf_msg(weir_buf_retain(kept)), promise);
    weir_channel_write(channel, weir_buf_msg(weir_buf_retain(longer)), NULL);
    weir_embedded_run(both.client.embedded);
    weir_buf_skip(kept, 5);
    weir_buf_write_bytes(longer, "er", 2);
    weir_embedded_flush(both.client.embedded);
    assert_int_equal(pair_code_of(promise), WEIR_EBOUNDS);
    assert_true(weir_channel_is_writable(channel));
    pair_carry(&both);
    pair_heard(&both.server, heard, sizeof heard);
    assert_string_equal(heard, "long"); /* as it was when it was written */
    /* Without a promise there is nobody to tell but everybody. */
    weir_channel_write(channel, weir_buf_msg(weir_buf_retain(longer)), NULL);
    weir_embedded_run(both.client.embedded);
    weir_buf_skip(longer, 1);
    weir_embedded_flush(both.client.embedded);
    pair_expect_error(&both.client, WEIR_EBOUNDS);
    weir_buf_release(kept);
    weir_buf_release(longer);
    pair_finish(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(small_writes_of_a_flush_share_a_record),
        weir_case(bulk_fills_records),
        weir_case(writes_of_all_sizes_stay_in_order),
        weir_case(composites_are_sealed_whole),
        weir_case(oom_while_sealing_fails_every_write_and_leaks_nothing),
        weir_case(promises_complete_in_order_and_once),
        weir_case(a_successful_promise_means_that_all_bytes_were_sent),
        weir_case(a_write_can_be_cancelled_until_the_flush),
        weir_case(what_is_cancelled_before_the_handshake_is_not_sent),
        weir_case(what_is_too_much_is_refused_before_it_is_encrypted),
        weir_case(a_record_that_is_refused_below_ends_the_connection),
        weir_case(close_notify_that_is_rejected_on_removal_closes),
        weir_case(a_buffer_that_has_become_shorter_is_not_sent),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
