/* SPDX-License-Identifier: MIT */
/* The PROXY protocol, sent. */
#include "proxy_headers.h"

static weir_address address_of(const char *text)
{
    weir_address address;
    assert_int_equal(weir_address_parse(&address, text, NULL), 0);
    return address;
}

static weir_proxy_header header_of(int version, const char *source, const char *destination)
{
    return (weir_proxy_header){ .version = version,
                                .source = source != NULL ? address_of(source) : (weir_address){ 0 },
                                .destination = destination != NULL ? address_of(destination)
                                                                   : (weir_address){ 0 } };
}

static void expect_bytes(const weir_proxy_header *header, const void *bytes, size_t length)
{
    weir_buf *out = weir_buf_from("x", 1); /* it is appended */
    weir_buf_skip(out, 1);
    assert_int_equal(weir_proxy_write_header(out, header), 0);
    codec_check_bytes(&out->msg, bytes, length);
}

static void expect_code(const weir_proxy_header *header, int code)
{
    weir_buf *out = weir_buf_new(0);
    assert_int_equal(weir_proxy_write_header(out, header), code);
    assert_int_equal(weir_buf_readable(out), 0);
    weir_buf_release(out);
}

/* Headers -------------------------------------------------------------------------------------- */

static void lines_are_written(void **state)
{
    (void)state;
    static const struct {
        const char *source, *destination, *line;
    } rows[] = {
        { "192.0.2.1:56324", "198.51.100.2:443", V1_LINE },
        { "[2001:db8::1]:1", "[::1]:2", "PROXY TCP6 2001:db8::1 ::1 1 2\r\n" },
        { "[fe80::1%7]:1", "[::1]:2", "PROXY TCP6 fe80::1 ::1 1 2\r\n" },
        { "[::ffff:1.2.3.4]:1", "[::ffff:5.6.7.8]:2", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" },
        { "[::ffff:1.2.3.4]:1", "5.6.7.8:2", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" },
        { "[::ffff:1.2.3.4]:1", "[::1]:2", "PROXY TCP6 ::ffff:1.2.3.4 ::1 1 2\r\n" },
        { NULL, NULL, "PROXY UNKNOWN\r\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_proxy_header header = header_of(1, rows[i].source, rows[i].destination);
        expect_bytes(&header, rows[i].line, strlen(rows[i].line));
    }
    weir_proxy_header header = header_of(1, "1.2.3.4:5", "6.7.8.9:10");
    header.command = WEIR_PROXY_LOCAL;
    expect_bytes(&header, BYTES("PROXY UNKNOWN\r\n"));
}

static void binary_headers_are_written(void **state)
{
    (void)state;
    weir_proxy_header header = header_of(0, "192.0.2.1:56324", "198.51.100.2:443");
    expect_bytes(&header, BYTES(SIGNATURE "\x21\x11\0\xc" IPV4_ADDRESSES));
    header.transport = WEIR_PROXY_DATAGRAM;
    expect_bytes(&header, BYTES(SIGNATURE "\x21\x12\0\xc" IPV4_ADDRESSES));
    header.transport = WEIR_PROXY_UNKNOWN;
    expect_bytes(&header, BYTES(SIGNATURE "\x21\0\0\0"));
    header = (weir_proxy_header){ .command = WEIR_PROXY_LOCAL };
    expect_bytes(&header, BYTES(SIGNATURE "\x20\0\0\0"));
    header = header_of(2, "[2001:db8::1]:65534", "[::1]:1");
    expect_bytes(&header, BYTES(SIGNATURE "\x21\x21\0\x24"
                                          "\x20\1\xd\xb8\0\0\0\0\0\0\0\0\0\0\0\1"
                                          "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1"
                                          "\377\376\0\1"));
}

/* Whatever is written is understood, and written again in the same way. */
static void what_is_written_is_understood(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "1.2.3.4:5", "6.7.8.9:10" },
        { "[2001:db8::1]:5", "[2001:db8::2]:10" },
        { "unix:/run/a", "unix:@name" },
        { "unix:/a\\x0d\\x0ab", "unix:/c" },
        { NULL, NULL },
    };
    for (size_t i = 0; i < 2 * sizeof pairs / sizeof *pairs; i++) {
        weir_proxy_header header = header_of(2, pairs[i / 2][0], pairs[i / 2][1]);
        weir_buf *ssl = weir_buf_from("\1\0\0\0\0", 5), *tlvs = weir_buf_new(0);
        weir_proxy_write_tlv(ssl, WEIR_PROXY_TLV_SSL_VERSION, "TLSv1.3", 7);
        weir_proxy_write_tlv(tlvs, WEIR_PROXY_TLV_AUTHORITY, "example.com", 11);
        weir_proxy_write_tlv(tlvs, WEIR_PROXY_TLV_SSL, weir_buf_peek(ssl, 0, 15), 15);
        weir_proxy_write_tlv(tlvs, WEIR_PROXY_TLV_NOOP, NULL, 0);
        header.tlv_length = weir_buf_readable(tlvs);
        header.tlvs = weir_buf_peek(tlvs, 0, header.tlv_length);
        header.has_checksum = i % 2;
        weir_buf *told = header_text(&header), *out = weir_buf_new(0);
        assert_int_equal(weir_proxy_write_header(out, &header), 0);
        weir_embedded *embedded = proxy_new(NULL);
        assert_int_equal(weir_embedded_write_inbound(embedded, &out->msg), 0);
        codec_expect_text(embedded, "active");
        weir_buf *found = weir_buf_from_msg(weir_embedded_read_inbound(embedded));
        if (pairs[i / 2][0] != NULL) /* else it is `unknown` on the other side */
            assert_true(weir_buf_equal(told, found));
        assert_true(weir_buf_find_bytes(found, 0, weir_buf_readable(found),
                                        BYTES(" 02:example.com 20: >21:TLSv1.3 04:")) > 0);
        weir_buf_release(told);
        weir_buf_release(found);
        weir_buf_release(ssl);
        weir_buf_release(tlvs);
        codec_end(embedded);
    }
}

static void headers_that_make_no_sense_are_not_written(void **state)
{
    (void)state;
    static uint8_t many[70000];
    static const struct {
        int version;
        const char *source, *destination;
        int code;
    } rows[] = {
        { 3, "1.2.3.4:1", "1.2.3.4:1", -EINVAL },
        { -1, "1.2.3.4:1", "1.2.3.4:1", -EINVAL },
        { 1, "1.2.3.4:1", "[::1]:1", -EINVAL },
        { 2, "1.2.3.4:1", "[::1]:1", -EINVAL },
        { 2, "1.2.3.4:1", NULL, -EINVAL },
        { 1, NULL, "1.2.3.4:1", -EINVAL },
        { 2, "unix:/a", "1.2.3.4:1", -EINVAL },
        { 2, "local:a", "local:b", -EAFNOSUPPORT },
        { 1, "local:a", "local:b", -EAFNOSUPPORT },
        /* No name of somebody else's gets into a line of text. */
        { 1, "unix:/a\\x0d\\x0ab", "unix:/c", -EPROTONOSUPPORT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_proxy_header header = header_of(rows[i].version, rows[i].source, rows[i].destination);
        expect_code(&header, rows[i].code);
    }
    weir_proxy_header header = header_of(1, "1.2.3.4:1", "1.2.3.4:1");
    header.transport = WEIR_PROXY_DATAGRAM;
    expect_code(&header, -EPROTONOSUPPORT);
    header = header_of(1, "1.2.3.4:1", "1.2.3.4:1");
    header.has_checksum = true;
    expect_code(&header, -EPROTONOSUPPORT);
    header = (weir_proxy_header){ .tlvs = (const uint8_t *)"\1\0\1", .tlv_length = 3 };
    expect_code(&header, -EINVAL);
    header.version = 1;
    expect_code(&header, -EPROTONOSUPPORT);
    header = (weir_proxy_header){ .tlvs = (const uint8_t *)"\3\0\4abcd", .tlv_length = 7 };
    expect_code(&header, -EINVAL); /* has_checksum makes it */
    header = (weir_proxy_header){ .tlvs = NULL, .tlv_length = 7 };
    expect_code(&header, -EINVAL);
    many[1] = many[2] = 0xff;
    header = (weir_proxy_header){ .tlvs = many, .tlv_length = 65535 + 3 };
    expect_code(&header, WEIR_ELIMIT);
    assert_int_equal(weir_proxy_write_header(NULL, &header), -EINVAL);
}

static void tlvs_have_a_limit(void **state)
{
    (void)state;
    static uint8_t many[65536];
    weir_buf *out = weir_buf_new(0);
    assert_int_equal(weir_proxy_write_tlv(out, 1, many, 65536), WEIR_ELIMIT);
    assert_int_equal(weir_proxy_write_tlv(out, 1, NULL, 1), -EINVAL);
    assert_int_equal(weir_proxy_write_tlv(NULL, 1, "", 0), -EINVAL);
    assert_int_equal(weir_buf_readable(out), 0);
    assert_int_equal(weir_proxy_write_tlv(out, 1, many, 65535), 0);
    assert_int_equal(weir_buf_readable(out), 65538);
    weir_buf_release(out);
}

/* The handler ---------------------------------------------------------------------------------- */

/* Writes when it hears that the channel is active. */
static void greeter_on_active(weir_ctx *ctx)
{
    weir_ctx_write_and_flush(ctx, weir_buf_msg(weir_buf_from("hello", 5)), NULL);
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type greeter = { .name = "greeter", .on_active = greeter_on_active };

static int add_sender(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "codec", &weir_proxy_sender, arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "greeter", &greeter, NULL);
}

static weir_embedded *sender_new(weir_proxy_header *header, bool is_unconnected)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_sender,
                                    .arg = header,
                                    .is_unconnected = is_unconnected };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void connect_it(weir_embedded *embedded)
{
    weir_address address = address_of("127.0.0.1:1");
    weir_channel_connect(weir_embedded_channel(embedded), &address, NULL, NULL);
    weir_embedded_run(embedded);
}

static void expect_sent(weir_embedded *embedded, const char *expected)
{
    char found[512];
    size_t length = weir_embedded_read_outbound_bytes(embedded, found, sizeof found);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(found, expected, length);
}

static void the_header_is_sent_first(void **state)
{
    (void)state;
    weir_proxy_header header = header_of(1, "192.0.2.1:56324", "198.51.100.2:443");
    weir_embedded *embedded = sender_new(&header, false);
    assert_false(has_decoder(embedded)); /* it has left */
    expect_sent(embedded, V1_LINE "hello");
    codec_end(embedded);
}

/* Also before what was written while there was no connection yet. */
static void what_waits_is_sent_behind_it(void **state)
{
    (void)state;
    for (int flushes = 0; flushes <= 1; flushes++) {
        weir_proxy_header header = header_of(1, "192.0.2.1:56324", "198.51.100.2:443");
        weir_embedded *embedded = sender_new(&header, true);
        memset(&header, 0xff, sizeof header); /* it is not needed any more */
        weir_channel *channel = weir_embedded_channel(embedded);
        assert_true(has_decoder(embedded));
        weir_channel_write(channel, weir_buf_msg(weir_buf_from("first ", 6)), NULL);
        if (flushes)
            weir_channel_flush(channel);
        weir_embedded_run(embedded);
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        connect_it(embedded);
        expect_sent(embedded, V1_LINE "first hello");
        assert_false(has_decoder(embedded));
        codec_end(embedded);
    }
}

static void it_is_sent_before_the_end(void **state)
{
    (void)state;
    weir_proxy_header header = header_of(1, NULL, NULL);
    weir_embedded *embedded;
    weir_embedded_config config = { .is_unconnected = true };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_pipeline_add_last(weir_channel_pipeline(channel), "codec",
                                            &weir_proxy_sender, &header),
                     0);
    weir_embedded_run(embedded);
    weir_channel_shutdown(channel, NULL);
    connect_it(embedded);
    expect_sent(embedded, "PROXY UNKNOWN\r\n");
    assert_true(weir_embedded_is_output_shut(embedded));
    codec_end(embedded);
}

/* And when there is never a connection, it is gone with the channel. */
static void it_may_never_be_sent(void **state)
{
    (void)state;
    weir_proxy_header header = header_of(1, NULL, NULL);
    weir_embedded *embedded = sender_new(&header, true);
    codec_end(embedded);
}

static void it_can_be_added_late(void **state)
{
    (void)state;
    weir_proxy_header header = header_of(1, NULL, NULL);
    weir_embedded *embedded = codec_new(&greeter, NULL);
    expect_sent(embedded, "hello");
    assert_int_equal(weir_pipeline_add_first(weir_embedded_pipeline(embedded), "late",
                                             &weir_proxy_sender, &header),
                     0);
    weir_embedded_run(embedded);
    expect_sent(embedded, "PROXY UNKNOWN\r\n");
    codec_end(embedded);
}

static void what_cannot_be_written_cannot_be_added(void **state)
{
    (void)state;
    weir_proxy_header header = header_of(1, "1.2.3.4:1", "[::1]:1");
    codec_is_refused(&weir_proxy_sender, &header);
    codec_is_refused(&weir_proxy_sender, NULL);
}

static void without_memory_it_is_not_added(void **state)
{
    (void)state;
    static uint8_t value[4000];
    weir_buf *tlvs = weir_buf_new(0);
    weir_proxy_write_tlv(tlvs, WEIR_PROXY_TLV_NOOP, value, sizeof value);
    weir_proxy_header header = { .tlvs = weir_buf_peek(tlvs, 0, 4003), .tlv_length = 4003 };
    for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
        weir_embedded *embedded = codec_new(&greeter, NULL);
        expect_sent(embedded, "hello");
        weir_pipeline_add_first(weir_embedded_pipeline(embedded), "late", &weir_proxy_sender,
                                &header);
        harness_fail_nth("pool", nth, -ENOMEM);
        weir_embedded_run(embedded);
        calls = harness_fail_end();
        uint8_t found[8000];
        size_t length = weir_embedded_read_outbound_bytes(embedded, found, sizeof found);
        weir_error error;
        if (weir_embedded_take_error(embedded, &error)) {
            assert_int_equal(error.code, -ENOMEM);
            assert_int_equal(length, 0);
        } else {
            assert_int_equal(length, 16 + 4003);
        }
        codec_end(embedded);
    }
    weir_buf_release(tlvs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(lines_are_written),
        weir_case(binary_headers_are_written),
        weir_case(what_is_written_is_understood),
        weir_case(headers_that_make_no_sense_are_not_written),
        weir_case(tlvs_have_a_limit),
        weir_case(the_header_is_sent_first),
        weir_case(what_waits_is_sent_behind_it),
        weir_case(it_is_sent_before_the_end),
        weir_case(it_may_never_be_sent),
        weir_case(it_can_be_added_late),
        weir_case(what_cannot_be_written_cannot_be_added),
        weir_case(without_memory_it_is_not_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
