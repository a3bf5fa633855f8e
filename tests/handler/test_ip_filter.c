/* SPDX-License-Identifier: MIT */
/* The ip filter: its rules, and when it looks. */
#include "gates.h"

#include <weir/ip_filter.h>

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static weir_ip_filter *filter_of(const weir_ip_rule *rules, size_t count, weir_ip_verdict otherwise)
{
    weir_ip_filter *filter = NULL;
    weir_error error;
    weir_ip_filter_config config = { .rules = rules, .rule_count = count, .otherwise = otherwise };
    if (weir_ip_filter_new(&filter, &config, &error) < 0)
        fail_msg("%s", error.message);
    return filter;
}

static weir_ip_verdict judge(const weir_ip_filter *filter, const char *text)
{
    weir_address address = address_of(text);
    return weir_ip_filter_judge(filter, &address);
}

/* Rules ---------------------------------------------------------------------------------------- */

static void the_smallest_network_counts(void **state)
{
    (void)state;
    static const weir_ip_rule rules[] = {
        { "10.1.2.3", WEIR_IP_REJECT },
        { "10.0.0.0/8", WEIR_IP_ACCEPT },
        { "10.1.0.0/16", WEIR_IP_REJECT },
        { "10.1.2.0/24", WEIR_IP_ACCEPT },
        { "2001:db8::/32", WEIR_IP_ACCEPT },
        { "2001:db8:1::/48", WEIR_IP_REJECT },
        { "10.1.0.0/16", WEIR_IP_REJECT }, /* once more, in the same sense */
        { "::ffff:192.168.0.0/112", WEIR_IP_ACCEPT },
    };
    weir_ip_filter *filter = filter_of(rules, COUNT(rules), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "10.255.255.255:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "10.0.0.0:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "11.0.0.0:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "9.255.255.255:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "10.1.0.1:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "10.1.3.0:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "10.1.2.2:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "10.1.2.4:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "10.1.2.3:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "[::ffff:10.1.2.4]:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "192.168.7.7:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "192.169.7.7:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "[2001:db8::1]:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "[2001:db8:1:ffff::1]:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "[2001:db8:2::1]:1"), WEIR_IP_ACCEPT);
    assert_int_equal(judge(filter, "[2001:db9::1]:1"), WEIR_IP_REJECT);
    assert_int_equal(judge(filter, "unix:/a"), WEIR_IP_REJECT);
    assert_int_equal(weir_ip_filter_judge(filter, NULL), WEIR_IP_REJECT);
    weir_ip_filter_release(filter);
}

static void all_of_a_family(void **state)
{
    (void)state;
    static const weir_ip_rule rules[] = { { "::/0", WEIR_IP_ACCEPT } };
    static const weir_ip_rule other[] = { { "0.0.0.0/0", WEIR_IP_ACCEPT } };
    weir_ip_filter *six = filter_of(rules, 1, WEIR_IP_REJECT);
    weir_ip_filter *four = filter_of(other, 1, WEIR_IP_REJECT);
    weir_ip_filter *none = filter_of(NULL, 0, WEIR_IP_ACCEPT);
    static const struct {
        const char *address;
        bool is_six, is_four;
    } rows[] = {
        { "1.2.3.4:5", false, true }, { "[::ffff:1.2.3.4]:5", false, true },
        { "[::1]:5", true, false },   { "[::1.2.3.4]:5", true, false },
        { "unix:/a", false, false },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(judge(six, rows[i].address), rows[i].is_six);
        assert_int_equal(judge(four, rows[i].address), rows[i].is_four);
        assert_int_equal(judge(none, rows[i].address), WEIR_IP_ACCEPT);
    }
    weir_ip_filter_release(six);
    weir_ip_filter_release(four);
    weir_ip_filter_release(none);
}

static void what_is_no_rule_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *network, *message;
    } rows[] = {
        { "10.0.0.1/8", "'10.0.0.1/8': bits are set behind the first 8: write 10.0.0.0/8, or the "
                        "address alone" },
        { "2001:db8::1/64", "'2001:db8::1/64': bits are set behind the first 64: write "
                            "2001:db8::/64, or the address alone" },
        { "::ffff:10.0.0.1/104", "'::ffff:10.0.0.1/104': bits are set behind the first 8: write "
                                 "10.0.0.0/8, or the address alone" },
        { "128.0.0.0/0", "'128.0.0.0/0': bits are set behind the first 0: write 0.0.0.0/0, or the "
                         "address alone" },
        { "10.0.0.0/33", "'10.0.0.0/33': what follows the '/' is no number from 0 to 32: write one "
                         "as in 10.0.0.0/8" },
        { "::/129", "'::/129': what follows the '/' is no number from 0 to 128: write one as in "
                    "2001:db8::/32" },
        { "10.0.0.0/", NULL },
        { "10.0.0.0/08", NULL },
        { "10.0.0.0/-1", NULL },
        { "10.0.0.0/8 ", NULL },
        { "10.0.0.0/4294967304", NULL },
        { "10.0.0.0/8/8", NULL },
        { "10.0.0/8", NULL },
        { "10/8", NULL },
        { "/8", NULL },
        { "", NULL },
        { "localhost", NULL },
        { "*", NULL },
        { "fe80::1%1", NULL },
        { "[::1]", NULL },
        { "::1]:5", NULL },
        { "1.2.3.4:80", NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        weir_ip_rule rule[] = { { "10.0.0.0/8", WEIR_IP_ACCEPT }, { rows[i].network, 0 } };
        weir_ip_filter_config config = { .rules = rule, .rule_count = 2 };
        weir_ip_filter *filter;
        weir_error error;
        assert_int_equal(weir_ip_filter_new(&filter, &config, &error), -EINVAL);
        assert_non_null(strstr(error.message, rows[i].network));
        if (rows[i].message != NULL)
            assert_string_equal(error.message, rows[i].message);
    }
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    weir_ip_filter *filter;
    weir_error error;
    static const weir_ip_rule twice[] = { { "10.0.0.0/8", WEIR_IP_ACCEPT },
                                          { "11.0.0.0/8", WEIR_IP_ACCEPT },
                                          { "::ffff:10.0.0.0/104", WEIR_IP_REJECT } };
    static const weir_ip_rule asks[] = { { "10.0.0.0/8", WEIR_IP_ASK } };
    static const weir_ip_rule strange[] = { { "10.0.0.0/8", (weir_ip_verdict)7 } };
    static const weir_ip_rule missing[] = { { NULL, WEIR_IP_ACCEPT } };
    const weir_ip_filter_config rows[] = {
        { .rules = twice, .rule_count = 3 },   { .rules = asks, .rule_count = 1 },
        { .rules = strange, .rule_count = 1 }, { .rules = missing, .rule_count = 1 },
        { .rules = NULL, .rule_count = 1 },    { .otherwise = WEIR_IP_ASK },
        { .otherwise = (weir_ip_verdict)9 },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(weir_ip_filter_new(&filter, &rows[i], &error), -EINVAL);
    assert_int_equal(weir_ip_filter_new(&filter, &rows[0], &error), -EINVAL);
    assert_non_null(strstr(error.message, "another rule for the same network"));
    assert_int_equal(weir_ip_filter_new(NULL, &rows[0], NULL), -EINVAL);
    assert_int_equal(weir_ip_filter_new(&filter, NULL, NULL), -EINVAL);
    weir_ip_filter_config enormous = { .rules = twice, .rule_count = SIZE_MAX / 8 };
    assert_int_equal(weir_ip_filter_new(&filter, &enormous, NULL), -ENOMEM);
    harness_fail_nth("alloc", 1, -ENOMEM);
    int code = weir_ip_filter_new(&filter, &(weir_ip_filter_config){ .otherwise = 1 }, &error);
    harness_fail_end();
    assert_int_equal(code, -ENOMEM);
}

/* A model ----------------------------------------------------------------------------------------
 */

/* Networks bit by bit, in a list, all of which are looked at. */
typedef struct network {
    bool is_ipv6;
    uint8_t bytes[16];
    unsigned length;
    weir_ip_verdict verdict;
    char text[96];
} network;

static uint64_t chance = 7;

static unsigned random_below(unsigned limit)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (unsigned)(chance % limit);
}

static bool bit_of(const uint8_t *bytes, unsigned bit)
{
    return bytes[bit / 8] >> (7 - bit % 8) & 1;
}

/* Few different bytes, so that networks lie inside each other. */
static void random_host(bool is_ipv6, uint8_t *bytes)
{
    static const uint8_t values[] = { 0, 0, 1, 127, 128, 254, 255, 255 };
    memset(bytes, 0, 16);
    for (unsigned i = 0; i < (is_ipv6 ? 16 : 4); i++)
        bytes[i] = random_below(20) > 0 ? values[random_below(8)] : (uint8_t)random_below(256);
    if (is_ipv6)
        bytes[0] = (uint8_t)(0x20 | random_below(2)); /* no IPv4 in another form */
}

static void host_text(bool is_ipv6, const uint8_t *bytes, char *to, size_t size)
{
    assert_non_null(inet_ntop(is_ipv6 ? AF_INET6 : AF_INET, bytes, to, (socklen_t)size));
}

static void random_network(network *self)
{
    char host[64];
    self->is_ipv6 = random_below(2);
    random_host(self->is_ipv6, self->bytes);
    self->length = random_below(self->is_ipv6 ? 129 : 33);
    for (unsigned bit = self->length; bit < 128; bit++)
        self->bytes[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
    self->verdict = random_below(2) ? WEIR_IP_ACCEPT : WEIR_IP_REJECT;
    host_text(self->is_ipv6, self->bytes, host, sizeof host);
    snprintf(self->text, sizeof self->text, "%s/%u", host, self->length);
}

static bool contains(const network *self, bool is_ipv6, const uint8_t *bytes)
{
    if (self->is_ipv6 != is_ipv6)
        return false;
    for (unsigned bit = 0; bit < self->length; bit++) {
        if (bit_of(self->bytes, bit) != bit_of(bytes, bit))
            return false;
    }
    return true;
}

static weir_ip_verdict model_judge(const network *all, size_t count, bool is_ipv6,
                                   const uint8_t *bytes, weir_ip_verdict otherwise)
{
    const network *best = NULL;
    for (size_t i = 0; i < count; i++) {
        if (contains(&all[i], is_ipv6, bytes) && (best == NULL || all[i].length > best->length))
            best = &all[i];
    }
    return best != NULL ? best->verdict : otherwise;
}

enum { MOST_NETWORKS = 300 };

static size_t random_networks(network *all, weir_ip_rule *rules, size_t wanted)
{
    size_t count = 0;
    for (size_t i = 0; i < wanted; i++) {
        bool is_new = true;
        random_network(&all[count]);
        for (size_t j = 0; j < count && is_new; j++)
            is_new = strcmp(all[j].text, all[count].text) != 0;
        if (is_new) {
            rules[count] = (weir_ip_rule){ all[count].text, all[count].verdict };
            count++;
        }
    }
    return count;
}

/* Any address, or one at the edge of a network. */
static bool random_address(const network *all, size_t count, uint8_t *bytes)
{
    const network *near = count > 0 && random_below(3) > 0 ? &all[random_below((unsigned)count)]
                                                           : NULL;
    bool is_ipv6 = near != NULL ? near->is_ipv6 : random_below(2);
    random_host(is_ipv6, bytes);
    if (near == NULL)
        return is_ipv6;
    for (unsigned bit = 0; bit < near->length; bit++) {
        bytes[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
        bytes[bit / 8] |= (uint8_t)(bit_of(near->bytes, bit) ? 0x80 >> bit % 8 : 0);
    }
    unsigned bit = random_below(is_ipv6 ? 128 : 32);
    if (random_below(2))
        bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
    return is_ipv6;
}

static void random_rules_agree_with_the_model(void **state)
{
    (void)state;
    static network all[MOST_NETWORKS];
    static weir_ip_rule rules[MOST_NETWORKS];
    for (int round = 0; round < 200; round++) {
        size_t count = random_networks(all, rules, random_below(MOST_NETWORKS));
        weir_ip_verdict otherwise = round % 2 ? WEIR_IP_ACCEPT : WEIR_IP_REJECT;
        weir_ip_filter *filter = filter_of(rules, count, otherwise);
        for (int i = 0; i < 300; i++) {
            uint8_t bytes[16];
            char host[64], text[96];
            bool is_ipv6 = random_address(all, count, bytes);
            host_text(is_ipv6, bytes, host, sizeof host);
            snprintf(text, sizeof text,
                     is_ipv6 ? "[%s]:1"
                     : i % 2 ? "[::ffff:%s]:1"
                             : "%s:1",
                     host);
            weir_ip_verdict expected = model_judge(all, count, is_ipv6, bytes, otherwise);
            if (is_ipv6 && strstr(host, "::ffff:") == host)
                continue; /* that is IPv4 */
            if (judge(filter, text) != expected)
                fail_msg("%s of %zu rules in round %d", text, count, round);
        }
        weir_ip_filter_release(filter);
    }
}

/* Channels ---------------------------------------------------------------------------------------
 */

static const weir_ip_rule some[] = { { "192.0.2.0/24", WEIR_IP_ACCEPT },
                                     { "192.0.2.66", WEIR_IP_REJECT } };

static void expect_counts(const weir_ip_filter *filter, uint64_t accepted, uint64_t rejected)
{
    weir_ip_filter_stats stats;
    weir_ip_filter_get_stats(filter, &stats);
    assert_int_equal(stats.accepted, accepted);
    assert_int_equal(stats.rejected, rejected);
}

static void it_looks_when_the_channel_is_active(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        bool is_accepted;
    } rows[] = {
        { "192.0.2.1:5", true }, { "192.0.2.66:5", false }, { "[::1]:5", false }, { NULL, false }
    };
    for (size_t i = 0; i < COUNT(rows) * 2; i++) {
        weir_ip_filter *filter = filter_of(some, COUNT(some), WEIR_IP_REJECT);
        visit self = { .gate = &weir_ip_filter_handler,
                       .gate_arg = filter,
                       .from = rows[i / 2].from,
                       .is_unconnected = i % 2 };
        visit_begin(&self);
        if (i % 2) {
            visit_expect(&self, "");
            expect_counts(filter, 0, 0);
            weir_address address = address_of("192.0.2.1:1");
            weir_channel_connect(weir_embedded_channel(self.embedded), &address, NULL, NULL);
            weir_embedded_run(self.embedded);
        }
        bool is_accepted = rows[i / 2].is_accepted;
        expect_counts(filter, is_accepted, !is_accepted);
        assert_int_equal(visit_is_open(&self), is_accepted);
        assert_false(has_gate(&self)); /* it has left, or the channel is over */
        visit_expect(&self, is_accepted ? "A" : "");
        visit_read(&self, "x");
        visit_expect(&self, is_accepted ? "RC" : "");
        weir_ip_filter_release(filter); /* the handler had its own */
        weir_embedded_close(self.embedded);
        visit_expect(&self, is_accepted ? "I" : "");
        visit_end(&self);
    }
}

#define HEADER(source) "PROXY TCP4 " source " 198.51.100.2 56324 443\r\n"

/* Behind the decoder it is the client who is judged, whoever the proxy is. */
static void behind_a_proxy_it_waits_for_the_header(void **state)
{
    (void)state;
    static const struct {
        const char *from, *bytes;
        bool is_accepted;
    } rows[] = {
        { "203.0.113.1:5", HEADER("192.0.2.1") "rest", true },
        { "192.0.2.1:5", HEADER("203.0.113.1") "rest", false },
        { "192.0.2.1:5", "PROXY UNKNOWN\r\nrest", true }, /* then it is the proxy itself */
        { "203.0.113.1:5", "PROXY UNKNOWN\r\nrest", false },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        weir_ip_filter *filter = filter_of(some, COUNT(some), WEIR_IP_REJECT);
        visit self = { .gate = &weir_ip_filter_handler,
                       .gate_arg = filter,
                       .from = rows[i].from,
                       .has_decoder = true };
        visit_begin(&self);
        visit_expect(&self, "");
        visit_read(&self, "PROXY");
        visit_expect(&self, "");
        assert_true(visit_is_open(&self));
        expect_counts(filter, 0, 0);
        visit_read(&self, rows[i].bytes + 5);
        bool is_accepted = rows[i].is_accepted;
        expect_counts(filter, is_accepted, !is_accepted);
        assert_int_equal(visit_is_open(&self), is_accepted);
        visit_expect(&self, is_accepted ? "APRCC" : "");
        visit_end(&self);
        weir_ip_filter_release(filter);
    }
}

/* Before the decoder it is the proxy: only those that are known may say who the client is. */
static void before_the_decoder_it_judges_the_proxy(void **state)
{
    (void)state;
    for (int is_known = 0; is_known <= 1; is_known++) {
        weir_ip_filter *filter = filter_of(some, COUNT(some), WEIR_IP_REJECT);
        visit self = { .gate = &weir_ip_filter_handler,
                       .gate_arg = filter,
                       .from = is_known ? "192.0.2.1:5" : "203.0.113.1:5",
                       .is_unconnected = true };
        visit_begin(&self);
        assert_int_equal(weir_pipeline_add_after(weir_embedded_pipeline(self.embedded), "gate",
                                                 "proxy", &weir_proxy_decoder, NULL),
                         0);
        weir_address address = address_of("192.0.2.1:1");
        weir_channel_connect(weir_embedded_channel(self.embedded), &address, NULL, NULL);
        weir_embedded_run(self.embedded);
        assert_int_equal(visit_is_open(&self), is_known);
        visit_read(&self, HEADER("203.0.113.7") "rest");
        visit_expect(&self, is_known ? "APRCC" : "");
        visit_end(&self);
        weir_ip_filter_release(filter);
    }
}

/* Who has no header to the end was never there for those behind; what is wrong with it is told. */
static void a_bad_header_is_told_without_a_connection(void **state)
{
    (void)state;
    weir_ip_filter *filter = filter_of(some, COUNT(some), WEIR_IP_REJECT);
    visit self = { .gate = &weir_ip_filter_handler, .gate_arg = filter, .has_decoder = true };
    visit_begin(&self);
    visit_read(&self, "GET / HTTP/1.1\r\n");
    visit_expect(&self, "E");
    assert_false(visit_is_open(&self));
    visit_end(&self);
    expect_counts(filter, 0, 0);
    weir_ip_filter_release(filter);
}

/* Somebody takes the decoder out: what comes then is judged by the peer. */
static void without_the_decoder_the_peer_is_judged(void **state)
{
    (void)state;
    for (int is_known = 0; is_known <= 1; is_known++) {
        weir_ip_filter *filter = filter_of(some, COUNT(some), WEIR_IP_REJECT);
        visit self = { .gate = &weir_ip_filter_handler,
                       .gate_arg = filter,
                       .from = is_known ? "192.0.2.1:5" : "203.0.113.1:5",
                       .has_decoder = true };
        visit_begin(&self);
        visit_read(&self, "PRO");
        weir_pipeline_remove(weir_embedded_pipeline(self.embedded), "proxy", NULL);
        weir_embedded_run(self.embedded);
        visit_expect(&self, is_known ? "ARC" : "");
        assert_int_equal(visit_is_open(&self), is_known);
        visit_end(&self);
        weir_ip_filter_release(filter);
    }
}

/* Those behind it have heard that it is active: they hear the end, and nothing in between. */
static void it_can_be_added_late(void **state)
{
    (void)state;
    static const weir_ip_rule nobody[] = { { "0.0.0.0/0", WEIR_IP_REJECT } };
    weir_ip_filter *filter = filter_of(some, COUNT(some), WEIR_IP_REJECT);
    weir_ip_filter *closed = filter_of(nobody, 1, WEIR_IP_REJECT);
    visit self = { .gate = &weir_ip_filter_handler, .gate_arg = filter, .from = "192.0.2.1:5" };
    visit_begin(&self);
    visit_expect(&self, "A");
    weir_pipeline *pipeline = weir_embedded_pipeline(self.embedded);
    assert_int_equal(weir_pipeline_add_first(pipeline, "late", &weir_ip_filter_handler, filter), 0);
    weir_embedded_run(self.embedded);
    visit_expect(&self, "");
    expect_counts(filter, 2, 0);
    assert_int_equal(weir_pipeline_add_first(pipeline, "later", &weir_ip_filter_handler, closed),
                     0);
    weir_embedded_run(self.embedded);
    visit_expect(&self, "I");
    assert_false(visit_is_open(&self));
    visit_end(&self);
    weir_ip_filter_release(filter);
    weir_ip_filter_release(closed);
}

static bool ask_port(weir_channel *channel, const weir_address *address, void *arg)
{
    atomic_int *asked = arg;
    assert_non_null(channel);
    atomic_fetch_add(asked, 1);
    return weir_address_port(address) == 5;
}

static void somebody_may_be_asked(void **state)
{
    (void)state;
    atomic_int asked = 0;
    static const weir_ip_rule rules[] = { { "10.0.0.0/8", WEIR_IP_ASK },
                                          { "11.0.0.0/8", WEIR_IP_ACCEPT } };
    static const struct {
        const char *from;
        bool is_accepted, is_asked;
    } rows[] = { { "10.1.1.1:5", true, true },
                 { "10.1.1.1:6", false, true },
                 { "11.1.1.1:6", true, false },
                 { "12.1.1.1:6", false, false } };
    weir_ip_filter *filter;
    weir_ip_filter_config config = {
        .rules = rules, .rule_count = 2, .ask = ask_port, .arg = &asked
    };
    assert_int_equal(weir_ip_filter_new(&filter, &config, NULL), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        visit self = { .gate = &weir_ip_filter_handler, .gate_arg = filter, .from = rows[i].from };
        atomic_store(&asked, 0);
        visit_begin(&self);
        visit_expect(&self, rows[i].is_accepted ? "A" : "");
        assert_int_equal(atomic_load(&asked), rows[i].is_asked);
        visit_end(&self);
    }
    expect_counts(filter, 2, 2);
    weir_ip_filter_release(filter);
}

static void it_needs_a_filter(void **state)
{
    (void)state;
    gate_needs_an_argument(&weir_ip_filter_handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(the_smallest_network_counts),
        weir_case(all_of_a_family),
        weir_case(what_is_no_rule_is_named),
        weir_case(what_makes_no_sense_is_refused),
        weir_case(random_rules_agree_with_the_model),
        weir_case(it_looks_when_the_channel_is_active),
        weir_case(behind_a_proxy_it_waits_for_the_header),
        weir_case(before_the_decoder_it_judges_the_proxy),
        weir_case(a_bad_header_is_told_without_a_connection),
        weir_case(without_the_decoder_the_peer_is_judged),
        weir_case(it_can_be_added_late),
        weir_case(somebody_may_be_asked),
        weir_case(it_needs_a_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
