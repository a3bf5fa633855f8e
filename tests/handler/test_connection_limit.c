/* SPDX-License-Identifier: MIT */
/* Connection limits: who is counted, as whom, and until when. */
#include "gates.h"

#include <weir/connection_limit.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static weir_connection_limit *limit_of(int total, int per_address)
{
    weir_connection_limit *limit = NULL;
    weir_connection_limit_config config = { .max_total = total, .max_per_address = per_address };
    assert_int_equal(weir_connection_limit_new(&limit, &config, NULL), 0);
    return limit;
}

static weir_connection_limit_stats stats_of(weir_connection_limit *limit)
{
    weir_connection_limit_stats stats;
    weir_connection_limit_get_stats(limit, &stats);
    return stats;
}

static void expect_open(weir_connection_limit *limit, size_t open, size_t addresses)
{
    weir_connection_limit_stats stats = stats_of(limit);
    assert_int_equal(stats.open, open);
    assert_int_equal(stats.addresses, addresses);
}

static void expect_refused(weir_connection_limit *limit, uint64_t total, uint64_t per_address,
                           uint64_t no_memory)
{
    weir_connection_limit_stats stats = stats_of(limit);
    assert_int_equal(stats.refused_total, total);
    assert_int_equal(stats.refused_per_address, per_address);
    assert_int_equal(stats.refused_no_memory, no_memory);
}

static visit come(weir_connection_limit *limit, const char *from)
{
    visit self = { .gate = &weir_connection_limit_handler, .gate_arg = limit, .from = from };
    return self;
}

/* Somebody comes, and stays if that is possible: whether it is. */
static bool stays(visit *self, weir_connection_limit *limit, const char *from)
{
    *self = come(limit, from);
    visit_begin(self);
    bool is_open = visit_is_open(self);
    visit_expect(self, is_open ? "A" : "");
    if (!is_open)
        visit_end(self);
    return is_open;
}

static void one_address_has_so_many(void **state)
{
    (void)state;
    weir_connection_limit *limit = limit_of(0, 2);
    visit a, b, c, d, other;
    assert_true(stays(&a, limit, "192.0.2.1:1"));
    assert_true(stays(&b, limit, "192.0.2.1:2"));
    expect_open(limit, 2, 1);
    assert_false(stays(&c, limit, "192.0.2.1:3"));
    assert_false(stays(&c, limit, "[::ffff:192.0.2.1]:3")); /* the same in another form */
    expect_refused(limit, 0, 2, 0);
    expect_open(limit, 2, 1);
    assert_true(stays(&other, limit, "192.0.2.2:1"));
    expect_open(limit, 3, 2);
    weir_embedded_close(a.embedded);
    visit_expect(&a, "I");
    expect_open(limit, 2, 2);
    visit_end(&a);
    expect_open(limit, 2, 2); /* once */
    assert_true(stays(&c, limit, "192.0.2.1:3"));
    assert_false(stays(&d, limit, "192.0.2.1:4"));
    visit_end(&b);
    visit_end(&c);
    visit_end(&other);
    expect_open(limit, 0, 0);
    weir_connection_limit_release(limit);
}

static void all_together_have_so_many(void **state)
{
    (void)state;
    weir_connection_limit *limit = limit_of(2, WEIR_OFF);
    visit a, b, c;
    assert_true(stays(&a, limit, "192.0.2.1:1"));
    assert_true(stays(&b, limit, NULL)); /* without an address, too */
    assert_false(stays(&c, limit, "192.0.2.2:1"));
    expect_refused(limit, 1, 0, 0);
    expect_open(limit, 2, 0); /* nobody asks where they come from */
    visit_end(&a);
    assert_true(stays(&c, limit, "192.0.2.2:1"));
    visit_end(&b);
    visit_end(&c);
    weir_connection_limit_release(limit);
}

/* Above both limits it is the total that counts, and what is refused is not counted as anything. */
static void who_is_refused_is_not_counted(void **state)
{
    (void)state;
    weir_connection_limit *limit = limit_of(2, 1);
    visit a, b, c;
    assert_true(stays(&a, limit, "192.0.2.1:1"));
    for (int i = 0; i < 5; i++)
        assert_false(stays(&b, limit, "192.0.2.1:2"));
    expect_open(limit, 1, 1);
    assert_true(stays(&b, limit, "192.0.2.2:1"));
    assert_false(stays(&c, limit, "192.0.2.3:1"));
    expect_refused(limit, 1, 5, 0);
    expect_open(limit, 2, 2);
    visit_end(&a);
    visit_end(&b);
    weir_connection_limit_release(limit);
}

/* Keeps the channel from closing, as one that lingers. */
static void slow_close(weir_ctx *ctx, weir_promise *promise)
{
    (void)ctx;
    (void)promise;
}

static const weir_handler_type slow = { .name = "slow", .close = slow_close };

static void who_is_refused_is_not_counted_while_it_closes(void **state)
{
    (void)state;
    weir_connection_limit *limit = limit_of(0, 1);
    visit a, b = come(limit, "192.0.2.1:2");
    assert_true(stays(&a, limit, "192.0.2.1:1"));
    b.is_unconnected = true;
    visit_begin(&b);
    weir_pipeline *pipeline = weir_embedded_pipeline(b.embedded);
    assert_int_equal(weir_pipeline_add_first(pipeline, "slow", &slow, NULL), 0);
    weir_address address = address_of("127.0.0.1:1");
    weir_channel_connect(weir_embedded_channel(b.embedded), &address, NULL, NULL);
    weir_embedded_run(b.embedded);
    assert_true(visit_is_open(&b));
    expect_open(limit, 1, 1);
    visit_read(&b, "x"); /* and nothing of it is heard */
    visit_expect(&b, "");
    assert_int_equal(weir_pipeline_remove(pipeline, "slow", NULL), 0);
    visit_end(&b);
    visit_end(&a);
    expect_open(limit, 0, 0);
    weir_connection_limit_release(limit);
}

static void networks_count_as_one(void **state)
{
    (void)state;
    static const struct {
        int ipv4_bits, ipv6_bits;
        const char *one, *other;
        bool is_same;
    } rows[] = {
        { 0, 0, "[2001:db8::1]:1", "[2001:db8::ffff:1]:1", true },
        { 0, 0, "[2001:db8:0:1::1]:1", "[2001:db8:0:2::1]:1", false },
        { 0, 128, "[2001:db8::1]:1", "[2001:db8::2]:1", false },
        { 0, 48, "[2001:db8:0:1::1]:1", "[2001:db8:0:2::1]:1", true },
        { 0, 63, "[2001:db8:0:2::1]:1", "[2001:db8:0:3::1]:1", true },
        { 0, 63, "[2001:db8:0:1::1]:1", "[2001:db8:0:2::1]:1", false },
        { 0, 1, "[2001:db8::1]:1", "1.2.3.4:1", false },
        { 0, 0, "1.2.3.4:1", "1.2.3.5:1", false },
        { 24, 0, "1.2.3.4:1", "1.2.3.5:1", true },
        { 24, 0, "1.2.3.4:1", "[::ffff:1.2.3.5]:1", true },
        { 24, 0, "1.2.3.4:1", "1.2.4.4:1", false },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        weir_connection_limit *limit;
        weir_connection_limit_config config = { .max_per_address = 1,
                                                .ipv4_bits = rows[i].ipv4_bits,
                                                .ipv6_bits = rows[i].ipv6_bits };
        visit one, other;
        assert_int_equal(weir_connection_limit_new(&limit, &config, NULL), 0);
        assert_true(stays(&one, limit, rows[i].one));
        assert_int_equal(stays(&other, limit, rows[i].other), !rows[i].is_same);
        if (!rows[i].is_same)
            visit_end(&other);
        visit_end(&one);
        weir_connection_limit_release(limit);
    }
}

/* A client is counted as itself, once it is known; before the decoder all are. */
static void behind_a_proxy_the_client_is_counted(void **state)
{
    (void)state;
    weir_connection_limit *clients = limit_of(WEIR_OFF, 1), *all = limit_of(3, WEIR_OFF);
    visit visits[4];
    for (int i = 0; i < 4; i++) {
        visits[i] = come(clients, "203.0.113.1:5"); /* the proxy */
        visits[i].has_decoder = true;
        visits[i].is_unconnected = true;
        visit_begin(&visits[i]);
        weir_embedded *embedded = visits[i].embedded;
        assert_int_equal(weir_pipeline_add_first(weir_embedded_pipeline(embedded), "all",
                                                 &weir_connection_limit_handler, all),
                         0);
        weir_address address = address_of("192.0.2.1:1");
        weir_channel_connect(weir_embedded_channel(embedded), &address, NULL, NULL);
        weir_embedded_run(embedded);
        visit_expect(&visits[i], "");
        assert_int_equal(visit_is_open(&visits[i]), i < 3);
    }
    expect_open(all, 3, 0);
    expect_refused(all, 1, 0, 0);
    expect_open(clients, 0, 0);
    visit_read(&visits[0], "PROXY TCP4 192.0.2.1 198.51.100.2 1 443\r\nrest");
    visit_expect(&visits[0], "APRCC");
    visit_read(&visits[1], "PROXY TCP4 192.0.2.1 198.51.100.2 2 443\r\nrest");
    visit_expect(&visits[1], "");
    assert_false(visit_is_open(&visits[1]));
    visit_read(&visits[2], "PROXY TCP4 192.0.2.2 198.51.100.2 2 443\r\n");
    visit_expect(&visits[2], "APC");
    expect_open(clients, 2, 2);
    expect_open(all, 2, 0);
    expect_refused(clients, 0, 1, 0);
    for (int i = 0; i < 4; i++)
        visit_end(&visits[i]);
    expect_open(clients, 0, 0);
    expect_open(all, 0, 0);
    weir_connection_limit_release(clients);
    weir_connection_limit_release(all);
}

/* Between the decoder and its header: the proxy is counted, then the client in its place. */
static void who_is_counted_late_is_counted_as_the_client(void **state)
{
    (void)state;
    weir_connection_limit *limit = limit_of(0, 1);
    visit proxy, one = come(limit_of(0, 0), "203.0.113.1:5");
    assert_true(stays(&proxy, limit, "192.0.2.9:1"));
    one.has_decoder = true;
    visit_begin(&one);
    assert_int_equal(weir_pipeline_add_after(weir_embedded_pipeline(one.embedded), "proxy", "late",
                                             &weir_connection_limit_handler, limit),
                     0);
    weir_embedded_run(one.embedded);
    expect_open(limit, 2, 2);
    visit_read(&one, "PROXY TCP4 192.0.2.9 198.51.100.2 1 443\r\nrest");
    assert_false(visit_is_open(&one));
    expect_open(limit, 1, 1);
    visit_end(&one);
    visit_end(&proxy);
    weir_connection_limit_release(one.gate_arg);
    weir_connection_limit_release(limit);
}

/* However it ends, it is counted no more, once. */
static void ends_of_all_kinds(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        weir_connection_limit *limit = limit_of(0, 0);
        visit a = come(limit, "192.0.2.1:1");
        visit_begin(&a);
        expect_open(limit, 1, 1);
        weir_pipeline *pipeline = weir_embedded_pipeline(a.embedded);
        if (how == 0)
            weir_embedded_end_inbound(a.embedded, 0);
        else if (how == 1)
            weir_embedded_end_inbound(a.embedded, -ECONNRESET);
        else if (how == 2)
            weir_pipeline_remove(pipeline, "gate", NULL);
        else
            weir_channel_close(weir_embedded_channel(a.embedded), NULL);
        weir_embedded_run(a.embedded);
        expect_open(limit, 0, 0);
        visit_end(&a);
        expect_open(limit, 0, 0);
        weir_connection_limit_release(limit);
    }
}

static void it_can_be_added_late(void **state)
{
    (void)state;
    weir_connection_limit *limit = limit_of(0, 1);
    visit a = come(limit, "192.0.2.1:1");
    visit_begin(&a);
    assert_int_equal(weir_pipeline_add_first(weir_embedded_pipeline(a.embedded), "late",
                                             &weir_connection_limit_handler, limit),
                     0);
    weir_embedded_run(a.embedded);
    assert_false(visit_is_open(&a)); /* the second of its address */
    visit_expect(&a, "AI");
    expect_open(limit, 0, 0);
    visit_end(&a);
    weir_connection_limit_release(limit);
}

/* The last reference may be that of a channel. */
static void channels_keep_it(void **state)
{
    (void)state;
    weir_connection_limit *limit = limit_of(0, 0);
    visit a = come(limit, "192.0.2.1:1");
    visit_begin(&a);
    weir_connection_limit_release(limit);
    visit_end(&a);
}

/* Many addresses: the table grows, also when it has no memory to, and forgets them all. */
static void tables_grow_and_empty(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static visit all[MANY];
    weir_connection_limit *limit = limit_of(0, 1);
    for (int i = 0; i < MANY; i++) {
        char from[32];
        snprintf(from, sizeof from, "10.%d.%d.1:5", i / 100, i % 100);
        assert_true(stays(&all[i], limit, from));
        visit again;
        assert_false(stays(&again, limit, from));
    }
    expect_open(limit, MANY, MANY);
    for (int i = 0; i < MANY; i++)
        visit_end(&all[(i * 7) % MANY]);
    expect_open(limit, 0, 0);
    weir_connection_limit_release(limit);
}

/* Each allocation fails once: who cannot be counted is refused, and nothing is miscounted. */
static void without_memory_nobody_comes_in_uncounted(void **state)
{
    (void)state;
    for (unsigned at = 0; at <= 64; at += 64) { /* with a table that has room, and one that grows */
        for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
            static visit all[64];
            weir_connection_limit *limit = limit_of(0, 1);
            for (unsigned i = 0; i < at; i++) {
                char from[32];
                snprintf(from, sizeof from, "10.0.%u.1:5", i);
                assert_true(stays(&all[i], limit, from));
            }
            visit self = come(limit, "192.0.2.1:1");
            self.is_unconnected = true;
            visit_begin(&self);
            weir_address address = address_of("127.0.0.1:1");
            weir_channel_connect(weir_embedded_channel(self.embedded), &address, NULL, NULL);
            harness_fail_nth("alloc", nth, -ENOMEM);
            weir_embedded_run(self.embedded);
            calls = harness_fail_end();
            weir_connection_limit_stats stats = stats_of(limit);
            assert_int_equal(stats.open, at + visit_is_open(&self));
            assert_int_equal(stats.addresses, at + visit_is_open(&self));
            assert_int_equal(stats.refused_no_memory, !visit_is_open(&self));
            visit_end(&self);
            for (unsigned i = 0; i < at; i++)
                visit_end(&all[i]);
            expect_open(limit, 0, 0);
            weir_connection_limit_release(limit);
        }
    }
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const weir_connection_limit_config rows[] = {
        { .max_total = -2 }, { .max_per_address = -2 }, { .ipv4_bits = -1 },
        { .ipv4_bits = 33 }, { .ipv6_bits = -1 },       { .ipv6_bits = 129 },
    };
    weir_connection_limit *limit;
    weir_error error;
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(weir_connection_limit_new(&limit, &rows[i], &error), -EINVAL);
    assert_string_equal(error.message, "ipv6_bits is 129: write 0 to 128");
    assert_int_equal(weir_connection_limit_new(NULL, NULL, NULL), -EINVAL);
    static const char *const calls[] = { "alloc", "alloc", "getrandom" };
    for (unsigned i = 0; i < COUNT(calls); i++) {
        harness_fail_nth(calls[i], i == 1 ? 2 : 1, -ENOMEM);
        int code = weir_connection_limit_new(&limit, NULL, &error);
        harness_fail_end();
        assert_int_equal(code, -ENOMEM);
    }
    gate_needs_an_argument(&weir_connection_limit_handler);
}

/* Threads -------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 150, MOST = 3 };

typedef struct crowd {
    weir_connection_limit *limit;
    atomic_int inside, most_inside, refused;
} crowd;

/* Comes and goes, on a loop of its own, from one of two addresses. */
static void *come_and_go(void *arg)
{
    crowd *self = arg;
    for (int i = 0; i < ROUNDS; i++) {
        visit one = come(self->limit, i % 2 ? "192.0.2.1:1" : "[2001:db8::1]:1");
        visit_begin(&one);
        if (visit_is_open(&one)) {
            int inside = atomic_fetch_add(&self->inside, 1) + 1;
            int most = atomic_load(&self->most_inside);
            while (inside > most &&
                   !atomic_compare_exchange_weak(&self->most_inside, &most, inside))
                continue;
            sched_yield();
            atomic_fetch_sub(&self->inside, 1);
        } else {
            atomic_fetch_add(&self->refused, 1);
        }
        weir_embedded_free(one.embedded);
    }
    return NULL;
}

static void loops_share_one(void **state)
{
    (void)state;
    crowd self = { .limit = limit_of(MOST, 2) };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &self), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_in_range(atomic_load(&self.most_inside), 1, MOST);
    expect_open(self.limit, 0, 0);
    weir_connection_limit_stats stats = stats_of(self.limit);
    assert_int_equal(stats.refused_total + stats.refused_per_address, atomic_load(&self.refused));
    weir_connection_limit_release(self.limit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(one_address_has_so_many),
        weir_case(all_together_have_so_many),
        weir_case(who_is_refused_is_not_counted),
        weir_case(who_is_refused_is_not_counted_while_it_closes),
        weir_case(networks_count_as_one),
        weir_case(behind_a_proxy_the_client_is_counted),
        weir_case(who_is_counted_late_is_counted_as_the_client),
        weir_case(ends_of_all_kinds),
        weir_case(it_can_be_added_late),
        weir_case(channels_keep_it),
        weir_case(tables_grow_and_empty),
        weir_case(without_memory_nobody_comes_in_uncounted),
        weir_case(numbers_out_of_range_are_refused),
        weir_case(loops_share_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
