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

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(small_writes_of_a_flush_share_a_record),
        weir_case(bulk_fills_records),
        weir_case(writes_of_all_sizes_stay_in_order),
        weir_case(composites_are_sealed_whole),
        weir_case(promises_complete_in_order_and_once),
        weir_case(a_write_can_be_cancelled_until_the_flush),
        weir_case(what_is_cancelled_before_the_handshake_is_not_sent),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
