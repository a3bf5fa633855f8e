/* SPDX-License-Identifier: MIT */
/* ClientHellos, in however many pieces, and what is none. */
#include "tls/hellos.h"

#include "tls/hello.h"

#include <errno.h>

#define MOST 16384

/* All at once, or byte by byte; what it says the first time that it is not MORE. */
static weir_tls_hello_state read_all(const uint8_t *bytes, size_t length, size_t step,
                                     char host[256], int *code)
{
    weir_tls_hello found = { 0 };
    weir_tls_hello_state state = WEIR_TLS_HELLO_MORE;
    weir_error error = { 0 };
    weir_buf *in = weir_buf_new(length);
    for (size_t at = 0; at < length && state == WEIR_TLS_HELLO_MORE; at += step) {
        size_t part = length - at < step ? length - at : step;
        weir_buf_write_bytes(in, bytes + at, part);
        state = weir__tls_hello_read(&found, in, MOST, &error);
        assert_int_equal(weir_buf_readable(in), at + part); /* nothing is taken */
    }
    *code = error.code;
    memcpy(host, found.host, 256);
    weir__tls_hello_deinit(&found);
    weir_buf_release(in);
    return state;
}

static void expect_host(const hello *from, const char *host)
{
    char found[256];
    int code;
    for (size_t step = 1; step <= from->length; step = step * 3 + 1) {
        assert_int_equal(read_all(from->bytes, from->length, step, found, &code),
                         WEIR_TLS_HELLO_DONE);
        assert_string_equal(found, host);
        assert_int_equal(read_all(from->bytes, from->length - 1, step, found, &code),
                         WEIR_TLS_HELLO_MORE);
    }
}

static void expect_refusal(const uint8_t *bytes, size_t length, int code)
{
    char found[256];
    for (size_t step = 1; step <= length; step += step < 20 ? 1 : length) {
        int got = 0;
        assert_int_equal(read_all(bytes, length, step, found, &got), WEIR_TLS_HELLO_REFUSED);
        assert_int_equal(got, code);
    }
}

static void the_name_is_found_however_it_is_cut(void **state)
{
    hello whole, cut;
    (void)state;
    hello_make(&whole, "www.example.org");
    expect_host(&whole, "www.example.org");
    for (size_t at = 1; at < whole.length - 5; at++) {
        hello_cut(&cut, &whole, at);
        expect_host(&cut, "www.example.org");
    }
    hello_shred(&cut, &whole);
    expect_host(&cut, "www.example.org");
    hello_make(&whole, NULL);
    expect_host(&whole, "");
    hello_build(&cut, NULL, 0);
    expect_host(&cut, ""); /* from before there were extensions */
}

/* A server_name extension with a list of these bytes. */
static size_t server_name(uint8_t *to, const char *list, size_t length)
{
    const uint8_t begin[] = { 0, 0, 0, (uint8_t)(length + 2), 0, (uint8_t)length };
    memcpy(to, begin, sizeof begin);
    memcpy(to + sizeof begin, list, length);
    return sizeof begin + length;
}

static void build_with(hello *made, const char *list, size_t length, int times)
{
    uint8_t all[1024];
    size_t at = 2;
    for (int i = 0; i < times; i++)
        at += server_name(all + at, list, length);
    all[0] = (uint8_t)((at - 2) >> 8), all[1] = (uint8_t)(at - 2);
    hello_build(made, all, at);
}

static void malformed_server_names_are_rejected(void **state)
{
    static const struct {
        const char *list;
        size_t length;
        const char *host; /* NULL: rejected */
    } cases[] = {
        { "\0\0\4a.bc", 7, "a.bc" },
        { "\0\0\1a", 4, "a" },
        { "\0\0\0", 3, NULL },      /* empty */
        { "\0\0\5a.bc", 7, NULL },  /* longer than there is */
        { "\0\0\3a.bc", 7, NULL },  /* shorter */
        { "\0\0\4a\0bc", 7, NULL }, /* a NUL */
        { "\0\0\4a.b.", 7, "a.b" }, /* a trailing dot */
        { "\0\0\4a.b..", 8, NULL }, /* two of them: the second is outside of the name */
        { "\0\0\4ab..", 7, NULL },
        { "\0\0\1.", 4, NULL },
        { "\0\0\4.a.b", 7, NULL }, /* at the begin */
        { "\0\0\4a..b", 7, NULL }, /* in the middle */
        { "\0\0\4a b ", 7, NULL }, /* spaces */
        { "\0\0\4a/.b", 7, NULL }, /* as in paths */
        { "\0\0\4*.ab", 7, NULL }, /* a wildcard */
        { "\0\0\3::1", 6, "" },    /* addresses name no host */
        { "\0\0\5[::1]", 8, "" },
        { "\0\0\0041.2.", 7, "" },
        { "\0\0\4:::1", 7, NULL }, /* nearly an address */
        { "\0\0\4[::1", 7, NULL },
        { "\0\0\5::1%a", 8, NULL },
        { "\0\0\5::1]:", 8, NULL },
        { "\0\0\4::\0001", 7, NULL },
        { "\0\0\1a\0\0\1b", 8, NULL },  /* two names */
        { "\0\0\2::\0\0\1b", 9, NULL }, /* an address and a name */
        { "\1\0\1a\0\0\1b", 8, "b" },   /* another type, and a name */
        { "\0", 1, NULL },
    };
    hello made;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[256];
        int code = 0;
        build_with(&made, cases[i].list, cases[i].length, 1);
        weir_tls_hello_state got = read_all(made.bytes, made.length, made.length, found, &code);
        if (got != (cases[i].host != NULL ? WEIR_TLS_HELLO_DONE : WEIR_TLS_HELLO_REFUSED))
            fail_msg("case %zu: %d", i, (int)got);
        if (cases[i].host != NULL)
            assert_string_equal(found, cases[i].host);
        else
            expect_refusal(made.bytes, made.length, WEIR_ETLS_RECORD);
    }
    build_with(&made, "\0\0\1a", 4, 2); /* the extension twice */
    expect_refusal(made.bytes, made.length, WEIR_ETLS_RECORD);
    build_with(&made, "\0\0\2::", 5, 2);
    expect_refusal(made.bytes, made.length, WEIR_ETLS_RECORD);
}

/* As OpenSSL's clients send them. */
static void addresses_name_no_host(void **state)
{
    static const char *const addresses[] = { "127.0.0.1",     "10.0.0.255.",    "2001:db8::1",
                                             "[2001:db8::1]", "::ffff:1.2.3.4", "1.2.3" };
    hello whole;
    (void)state;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        hello_make(&whole, addresses[i]);
        expect_host(&whole, "");
    }
    hello_make(&whole, "www.example.org.");
    expect_host(&whole, "www.example.org");
}

static void a_long_name_has_its_limits(void **state)
{
    char list[300] = { 0 };
    hello made;
    char found[256];
    int code;
    (void)state;
    for (size_t length = 60; length < 70; length++) { /* one label */
        memset(list + 3, 'a', length);
        list[2] = (char)length;
        build_with(&made, list, length + 3, 1);
        assert_int_equal(read_all(made.bytes, made.length, 1, found, &code),
                         length <= 63 ? WEIR_TLS_HELLO_DONE : WEIR_TLS_HELLO_REFUSED);
    }
    for (int length = 240; length < 252; length++) { /* colons and digits without end */
        char address[256];
        memset(address, '1', sizeof address);
        address[4] = ':';
        assert_false(weir__tls_read_name(address, (size_t)length, found));
        assert_string_equal(found, "");
    }
    char name[255];
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = i % 2 == 0 ? 'a' : '.';
    assert_true(weir__tls_read_name(name, 253, found));
    assert_int_equal(strlen(found), 253);
    assert_true(weir__tls_read_name(name, 254, found)); /* the last one is a trailing dot */
    assert_int_equal(strlen(found), 253);
    assert_false(weir__tls_read_name(name, 255, found));
}

/* What has no sense at a level may not lead to another reading: every length made wrong. */
static void every_byte_may_be_wrong(void **state)
{
    hello whole;
    char found[256];
    int code;
    (void)state;
    hello_make(&whole, "www.example.org");
    for (size_t at = 0; at < whole.length; at++) {
        for (int bit = 0; bit < 8; bit++) {
            hello changed = whole;
            changed.bytes[at] ^= (uint8_t)(1 << bit);
            weir_tls_hello_state once = read_all(changed.bytes, changed.length, changed.length,
                                                 found, &code);
            assert_int_equal(read_all(changed.bytes, changed.length, 7, found, &code), once);
        }
    }
}

static void what_is_no_hello_is_refused(void **state)
{
    hello whole;
    (void)state;
    hello_make(&whole, "a.org");
    expect_refusal((const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18, WEIR_ETLS_HTTP);
    expect_refusal((const uint8_t *)"hello, world", 12, WEIR_ETLS_PLAIN);
    expect_refusal((const uint8_t *)"\x80\x2e\x01\x00\x02\x00", 6, WEIR_ETLS_PLAIN); /* SSL 2 */
    expect_refusal((const uint8_t *)"\x16\x03\x01\xff\xff", 5, WEIR_ETLS_RECORD);
    expect_refusal((const uint8_t *)"\x15\x03\x01\x00\x02\x02\x28", 7, WEIR_ETLS_RECORD);
    expect_refusal((const uint8_t *)"\x16\x03\x01\x00\x00", 5, WEIR_ETLS_RECORD); /* empty */
    expect_refusal((const uint8_t *)"\x16\x03\x01\x00\x01\x02", 6, WEIR_ETLS_RECORD);
    hello more = { .length = 0 };
    memcpy(more.bytes, whole.bytes, whole.length);
    more.bytes[whole.length] = 1; /* one more byte in its record */
    more.length = whole.length + 1;
    more.bytes[3] = (uint8_t)((more.length - 5) >> 8);
    more.bytes[4] = (uint8_t)(more.length - 5);
    expect_refusal(more.bytes, more.length, WEIR_ETLS_RECORD);
}

/* Nine bytes promise sixteen megabytes. */
static void a_promise_of_much_is_not_believed(void **state)
{
    char found[256];
    int code;
    (void)state;
    expect_refusal((const uint8_t *)"\x16\x03\x01\x00\x04\x01\xff\xff\xff", 9, WEIR_ELIMIT);
    expect_refusal((const uint8_t *)"\x16\x03\x01\x00\x04\x01\x00\x40\x00", 9, WEIR_ELIMIT);
    /* As long as the record is not there, nothing is kept for it. */
    assert_int_equal(
        read_all((const uint8_t *)"\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9, 1, found, &code),
        WEIR_TLS_HELLO_MORE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(the_name_is_found_however_it_is_cut),
        weir_case(malformed_server_names_are_rejected),
        weir_case(addresses_name_no_host),
        weir_case(a_long_name_has_its_limits),
        weir_case(every_byte_may_be_wrong),
        weir_case(what_is_no_hello_is_refused),
        weir_case(a_promise_of_much_is_not_believed),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
