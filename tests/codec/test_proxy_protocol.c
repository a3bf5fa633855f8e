/* SPDX-License-Identifier: MIT */
/* The PROXY protocol, received. */
#include "proxy_headers.h"

static void write_bytes(weir_embedded *embedded, const void *bytes, size_t length)
{
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, bytes, length), 0);
}

/* What is told of a header, who is at the other side then, and that it goes on behind it. */
static void expect_header(const weir_proxy_decoding *config, const void *bytes, size_t length,
                          const char *told, const char *remote)
{
    weir_embedded *embedded = proxy_new(config);
    write_bytes(embedded, bytes, length);
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, told);
    assert_null(weir_embedded_read_inbound(embedded));
    expect_remote(embedded, remote);
    assert_false(has_decoder(embedded));
    write_bytes(embedded, "rest", 4);
    codec_expect_text(embedded, "rest");
    codec_end(embedded);
}

static void expect_refusal(const weir_proxy_decoding *config, const void *bytes, size_t length,
                           int code, const char *text)
{
    weir_embedded *embedded = proxy_new(config);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, bytes, length), code);
    codec_expect_error(embedded, code, text);
    assert_null(weir_embedded_read_inbound(embedded));
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    expect_remote(embedded, "-");
    codec_end(embedded);
    verify_proxy_how(config, bytes, length, 0, 1, true);
}

/* Version 1 ------------------------------------------------------------------------------------ */

#define FULL "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"

static void lines_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *line, *told, *remote;
    } rows[] = {
        { V1_LINE, V1_TEXT, "192.0.2.1:56324" },
        { "PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n", "v1 0.0.0.0:0 to 255.255.255.255:65535",
          "0.0.0.0:0" },
        { "PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "v1 [2001:db8::1]:1 to [::1]:2",
          "[2001:db8::1]:1" },
        { "PROXY TCP6 2001:DB8::A ::ffff:1.2.3.4 1 2\r\n",
          "v1 [2001:db8::a]:1 to [::ffff:1.2.3.4]:2", "[2001:db8::a]:1" },
        { "PROXY TCP6 " FULL " " FULL " 65535 65535\r\n", "v1 [" FULL "]:65535 to [" FULL "]:65535",
          "[" FULL "]:65535" },
        { "PROXY UNKNOWN\r\n", "v1 - to - unknown", "-" },
        { "PROXY UNKNOWN \r\n", "v1 - to - unknown", "-" },
        { "PROXY UNKNOWN " FULL " " FULL " 65535 65535\r\n", "v1 - to - unknown", "-" },
    };
    assert_int_equal(strlen(rows[7].line), 107); /* the longest there is */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_header(NULL, rows[i].line, strlen(rows[i].line), rows[i].told, rows[i].remote);
}

static void lines_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char no_ipv4[] = "no IPv4 address in a PROXY header";
    static const char no_ipv6[] = "no IPv6 address in a PROXY header";
    static const char no_port[] = "no port in a PROXY header";
    static const char no_protocol[] = "neither TCP4, TCP6 nor UNKNOWN in a PROXY header";
    static const char no_end[] = "no line end (\\r\\n) in the 107 bytes of a PROXY header";
    static const struct {
        const char *line, *what;
        size_t at;
    } rows[] = {
        { "PROXY \r\n", no_protocol, 6 },
        { "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n", no_protocol, 6 },
        { "PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n", no_protocol, 6 },
        { "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n", no_protocol, 6 },
        { "PROXY UNKNOWNS\r\n", no_protocol, 6 },
        { "PROXY TCP4\r\n", no_ipv4, 10 },
        { "PROXY TCP4 \r\n", no_protocol, 6 },
        { "PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n", no_ipv4, 11 },
        { "PROXY TCP4 1.2.3.4\t1.2.3.4 1 2\r\n", no_ipv4, 11 },
        /* Numbers that are wrong, or written in another way. */
        { "PROXY TCP4 1.2.3.256 1.2.3.4 1 2\r\n", no_ipv4, 11 },
        { "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n", no_ipv4, 11 },
        { "PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n", no_ipv4, 11 },
        { "PROXY TCP4 1.2.3.4 1.2.3.04 1 2\r\n", no_ipv4, 19 },
        { "PROXY TCP4 * 1.2.3.4 1 2\r\n", no_ipv4, 11 },
        { "PROXY TCP4 localhost 1.2.3.4 1 2\r\n", no_ipv4, 11 },
        { "PROXY TCP4 1.2.3.4:5 1.2.3.4 1 2\r\n", no_ipv4, 11 },
        /* Families that are not the one. */
        { "PROXY TCP4 ::1 ::1 1 2\r\n", no_ipv4, 11 },
        { "PROXY TCP4 1.2.3.4 ::1 1 2\r\n", no_ipv4, 19 },
        { "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", no_ipv6, 11 },
        { "PROXY TCP6 ::1 1.2.3.4 1 2\r\n", no_ipv6, 15 },
        { "PROXY TCP6 ::1%lo ::1 1 2\r\n", no_ipv6, 11 },
        { "PROXY TCP6 [::1] ::1 1 2\r\n", no_ipv6, 11 },
        { "PROXY TCP6 ::1]:5 ::1 1 2\r\n", no_ipv6, 11 },
        { "PROXY TCP6 ::12345 ::1 1 2\r\n", no_ipv6, 11 },
        { "PROXY TCP6 " FULL ":ffff:ffff:ffff ::1 1 2\r\n", no_ipv6, 11 },
        /* Ports. */
        { "PROXY TCP4 1.2.3.4 5.6.7.8\r\n", no_port, 26 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", no_port, 28 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n", no_port, 27 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 1 99999\r\n", no_port, 29 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 1 4294967297\r\n", no_port, 29 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n", no_port, 27 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 00 2\r\n", no_port, 27 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 -1 2\r\n", no_port, 27 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n", no_port, 27 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8  1 2\r\n", no_port, 27 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n", no_port, 29 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n", "more than two ports in a PROXY header", 31 },
        /* Line ends. */
        { "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n", no_end, 30 },
        { "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\r\n", no_end, 30 },
        { "PROXY UNKNOWN\nGET / HTTP/1.1\r\n", no_end, 13 },
        { "PROXY UNKNOWN " FULL " " FULL " 65535 655355\r\n", no_end, 106 },
        { "PROXY UNKNOWN " FULL " " FULL " 65535 65535 no end in sight", no_end, 106 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[160];
        snprintf(text, sizeof text, "%s (at byte %zu of the stream)", rows[i].what, rows[i].at);
        expect_refusal(NULL, rows[i].line, strlen(rows[i].line), -EBADMSG, text);
    }
    expect_refusal(NULL, BYTES("PROXY TCP4 1.2.3.4\0 1.2.3.4 1 2\r\n"), -EBADMSG,
                   "no IPv4 address in a PROXY header (at byte 11 of the stream)");
    /* A word does not end with a 0 in it. */
    expect_refusal(NULL, BYTES("PROXY TCP4\0 1.2.3.4 1.2.3.4 1 2\r\n"), -EBADMSG,
                   "neither TCP4, TCP6 nor UNKNOWN in a PROXY header (at byte 6 of the stream)");
    expect_refusal(NULL, BYTES("PROXY TCP6\0x ::1 ::2 1 2\r\n"), -EBADMSG,
                   "neither TCP4, TCP6 nor UNKNOWN in a PROXY header (at byte 6 of the stream)");
    expect_refusal(NULL, BYTES("PROXY UNKNOWN\0 ::1\r\n"), -EBADMSG,
                   "neither TCP4, TCP6 nor UNKNOWN in a PROXY header (at byte 6 of the stream)");
}

/* Version 2 ------------------------------------------------------------------------------------ */

static void binary_headers_are_understood(void **state)
{
    (void)state;
    raw self;
    raw_begin(&self, 0x21, 0x11, 12);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    expect_header(NULL, self.bytes, self.length, V2_TEXT, "192.0.2.1:56324");
    raw_begin(&self, 0x21, 0x12, 12);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    expect_header(NULL, self.bytes, self.length, V2_TEXT " by datagrams", "192.0.2.1:56324");
    raw_begin(&self, 0x21, 0x21, 36);
    raw_add(&self, BYTES("\x20\1\xd\xb8\0\0\0\0\0\0\0\0\0\0\0\1"
                         "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1"
                         "\377\376\0\1"));
    expect_header(NULL, self.bytes, self.length, "v2 [2001:db8::1]:65534 to [::1]:1",
                  "[2001:db8::1]:65534");
    raw_begin(&self, 0x21, 0, 0);
    expect_header(NULL, self.bytes, self.length, "v2 - to - unknown", "-");
}

static void unix_addresses_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        const char *text;
    } rows[] = {
        { BYTES("/run/a"), "unix:/run/a" },
        { BYTES("/run/a\0and what was there before"), "unix:/run/a" },
        { BYTES("\0name"), "unix:@name" },
        { BYTES(""), "unix:" },
        { BYTES("/\r\nx"), "unix:/\\x0d\\x0ax" },
        { BYTES(
              "/3456789012345678901234567890123456789012345678901234567890123456789012345678901234"
              "5678901234567890123456789"),
          "unix:/3456789012345678901234567890123456789012345678901234567890123456789012345678901234"
          "5678901234567890123456789" }, /* all 108 bytes, without an end */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const uint8_t zeros[108];
        raw self;
        char told[512];
        raw_begin(&self, 0x21, 0x31, 216);
        raw_add(&self, rows[i].bytes, rows[i].length);
        raw_add(&self, zeros, 108 - rows[i].length);
        raw_add(&self, BYTES("/b"));
        raw_add(&self, zeros, 106);
        snprintf(told, sizeof told, "v2 %s to unix:/b", rows[i].text);
        expect_header(NULL, self.bytes, self.length, told, rows[i].text);
    }
}

/* Health checks of the proxy: whatever is in it, the other side is the peer itself. */
static void a_local_header_says_nothing(void **state)
{
    (void)state;
    raw self;
    raw_begin(&self, 0x20, 0, 0);
    expect_header(NULL, self.bytes, self.length, "v2 - to - unknown local", "-");
    raw_begin(&self, 0x20, 0x11, 12);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    expect_header(NULL, self.bytes, self.length, "v2 - to - unknown local", "-");
    raw_begin(&self, 0x20, 0xff, 5);
    raw_add(&self, BYTES("\3\377\377\0\0"));
    expect_header(NULL, self.bytes, self.length, "v2 - to - unknown local", "-");
}

static void binary_headers_that_are_none_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint8_t command, family;
        size_t length;
        const char *text;
    } rows[] = {
        { 0x22, 0x11, 12, "an unknown command 0x22 in a PROXY header (at byte 12 of the stream)" },
        { 0x11, 0x11, 12, "an unknown command 0x11 in a PROXY header (at byte 12 of the stream)" },
        { 0x31, 0x11, 12, "an unknown command 0x31 in a PROXY header (at byte 12 of the stream)" },
        { 0xa1, 0x11, 12, "an unknown command 0xa1 in a PROXY header (at byte 12 of the stream)" },
        { 0x21, 0x10, 12, "an unknown family 0x10 in a PROXY header (at byte 13 of the stream)" },
        { 0x21, 0x01, 12, "an unknown family 0x01 in a PROXY header (at byte 13 of the stream)" },
        { 0x21, 0x13, 12, "an unknown family 0x13 in a PROXY header (at byte 13 of the stream)" },
        { 0x21, 0x41, 12, "an unknown family 0x41 in a PROXY header (at byte 13 of the stream)" },
        { 0x21, 0xf1, 12, "an unknown family 0xf1 in a PROXY header (at byte 13 of the stream)" },
        { 0x21, 0x11, 11,
          "a PROXY header with 11 bytes for addresses of 12 (at byte 14 of the stream)" },
        { 0x21, 0x11, 0,
          "a PROXY header with 0 bytes for addresses of 12 (at byte 14 of the stream)" },
        { 0x21, 0x22, 35,
          "a PROXY header with 35 bytes for addresses of 36 (at byte 14 of the stream)" },
        { 0x21, 0x31, 215,
          "a PROXY header with 215 bytes for addresses of 216 (at byte 14 of the stream)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        raw self;
        raw_begin(&self, rows[i].command, rows[i].family, rows[i].length);
        raw_add(&self, "an address that is long enough for it", 36);
        expect_refusal(NULL, self.bytes, self.length, -EBADMSG, rows[i].text);
    }
}

/* Nothing is kept for it, and nothing waited for: the first 16 bytes tell. A length with its
 * highest bit set is no small or negative one. */
static void long_headers_are_refused_at_once(void **state)
{
    (void)state;
    static const struct {
        size_t length, max_bytes;
        const char *text;
    } rows[] = {
        { 65535, 0,
          "a PROXY header of 65551 bytes is above the limit of 4096 (at byte 14 of the stream)" },
        { 0xff80, 0,
          "a PROXY header of 65424 bytes is above the limit of 4096 (at byte 14 of the stream)" },
        { 0x8000, 0,
          "a PROXY header of 32784 bytes is above the limit of 4096 (at byte 14 of the stream)" },
        { 4081, 0,
          "a PROXY header of 4097 bytes is above the limit of 4096 (at byte 14 of the stream)" },
        { 12, 27,
          "a PROXY header of 28 bytes is above the limit of 27 (at byte 14 of the stream)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_proxy_decoding config = { .max_bytes = rows[i].max_bytes };
        raw self;
        raw_begin(&self, 0x21, 0x11, rows[i].length);
        expect_refusal(&config, self.bytes, self.length, WEIR_ELIMIT, rows[i].text);
        raw_begin(&self, 0x20, 0, rows[i].length);
        expect_refusal(&config, self.bytes, self.length, WEIR_ELIMIT, rows[i].text);
    }
}

/* If the limit allows it. */
static void the_longest_header_is_understood(void **state)
{
    (void)state;
    static raw self;
    static uint8_t value[65535 - 12 - 3];
    weir_proxy_decoding config = { .max_bytes = 1 << 20 };
    raw_begin(&self, 0x21, 0x11, 65535);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    raw_add_tlv(&self, WEIR_PROXY_TLV_NOOP, value, sizeof value);
    assert_int_equal(self.length, 65551);
    weir_embedded *embedded = proxy_new(&config);
    weir_pool_stats before, after;
    weir_pool_get_stats(&before);
    write_bytes(embedded, self.bytes, 16);
    weir_pool_get_stats(&after);
    assert_true(after.used_bytes < before.used_bytes + 1024); /* nothing on its word alone */
    for (size_t at = 16; at < self.length; at += 5)
        write_bytes(embedded, self.bytes + at, self.length - at < 5 ? self.length - at : 5);
    codec_expect_text(embedded, "active");
    weir_msg_release(weir_embedded_read_inbound(embedded));
    expect_remote(embedded, "192.0.2.1:56324");
    codec_end(embedded);
}

/* TLVs ----------------------------------------------------------------------------------------- */

static void tlvs_are_shown_flat(void **state)
{
    (void)state;
    raw self;
    raw_begin(&self, 0x21, 0x11, 0);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    raw_add_tlv(&self, WEIR_PROXY_TLV_ALPN, "h2", 2);
    raw_add_tlv(&self, WEIR_PROXY_TLV_SSL,
                BYTES("\1\0\0\0\0"
                      "\x21\0\7TLSv1.3"
                      "\x22\0\0"
                      "\x20\0\1x"     /* no deeper: this is a value as any */
                      "\3\0\4abcd")); /* and this no checksum */
    raw_add_tlv(&self, WEIR_PROXY_TLV_SSL, BYTES("\0\0\0\0\0"));
    raw_add_tlv(&self, 0xee, "last", 4);
    raw_end(&self);
    expect_header(NULL, self.bytes, self.length,
                  V2_TEXT " 01:h2 20: >21:TLSv1.3 >22: >20:x >03:abcd 20: ee:last",
                  "192.0.2.1:56324");
    raw_add(&self, "GET /", 5);
    verify_proxy(NULL, self.bytes, self.length, 7, 0);
    raw_begin(&self, 0x21, 0, 0);
    raw_add_tlv(&self, WEIR_PROXY_TLV_UNIQUE_ID, "7", 1);
    raw_end(&self);
    expect_header(NULL, self.bytes, self.length, "v2 - to - unknown 05:7", "-");
}

static void one_of_a_type_can_be_found(void **state)
{
    (void)state;
    static const uint8_t tlvs[] = "\1\0\2h2\x20\0\x9\1\0\0\0\1\x22\0\1c\1\0\1x";
    weir_proxy_header header = { .tlvs = tlvs, .tlv_length = sizeof tlvs - 1 };
    weir_proxy_tlv tlv;
    assert_true(weir_proxy_find_tlv(&header, WEIR_PROXY_TLV_ALPN, &tlv));
    assert_int_equal(tlv.length, 2);
    assert_true(weir_proxy_find_tlv(&header, WEIR_PROXY_TLV_SSL, &tlv));
    assert_int_equal(tlv.length, 9);
    assert_int_equal(tlv.value[0], WEIR_PROXY_SSL_USED);
    assert_true(weir_proxy_find_tlv(&header, WEIR_PROXY_TLV_SSL_COMMON_NAME, &tlv));
    assert_int_equal(tlv.depth, 1);
    assert_memory_equal(tlv.value, "c", 1);
    assert_false(weir_proxy_find_tlv(&header, WEIR_PROXY_TLV_NETNS, &tlv));
    assert_false(weir_proxy_next_tlv(&header, &tlv)); /* it stays at the end */
    header.tlv_length = 6;
    assert_false(weir_proxy_find_tlv(&header, WEIR_PROXY_TLV_SSL, &tlv)); /* cut */
}

static void tlvs_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length, at;
    } rows[] = {
        { BYTES("\1"), 28 },
        { BYTES("\1\0"), 28 },
        { BYTES("\1\0\1"), 28 },
        { BYTES("\1\377\377"), 28 },
        { BYTES("\1\0\1a\2\0\2b"), 32 },
        { BYTES("\x20\0\4\0\0\0\0"), 28 },             /* SSL without its five bytes */
        { BYTES("\x20\0\6\0\0\0\0\0\x21"), 36 },       /* half a TLV inside */
        { BYTES("\x20\0\x8\0\0\0\0\0\x21\0\1x"), 36 }, /* one that would reach out of it */
        { BYTES("\x20\0\x9\0\0\0\0\0\x21\0\2x\4\0\0"), 36 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        raw self;
        char text[128];
        raw_begin(&self, 0x21, 0x11, 0);
        raw_add(&self, BYTES(IPV4_ADDRESSES));
        raw_add(&self, rows[i].bytes, rows[i].length);
        raw_end(&self);
        snprintf(text, sizeof text,
                 "a TLV that does not fit its PROXY header (at byte %zu of the stream)",
                 rows[i].at);
        expect_refusal(NULL, self.bytes, self.length, -EBADMSG, text);
    }
}

/* However deep they are said to be, they are looked at once, and without a stack. */
static void nested_tlvs_are_no_recursion(void **state)
{
    (void)state;
    static raw self;
    weir_proxy_decoding config = { .max_bytes = 65551 };
    size_t inside = 65535 - 12;
    raw_begin(&self, 0x21, 0x11, 65535);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    while (inside >= 8) {
        uint8_t begin[8] = { WEIR_PROXY_TLV_SSL, (uint8_t)((inside - 3) >> 8),
                             (uint8_t)(inside - 3) };
        raw_add(&self, begin, sizeof begin);
        inside -= 8;
    }
    raw_add_tlv(&self, WEIR_PROXY_TLV_NOOP, "", 0);
    assert_int_equal(self.length, 65551);
    weir_embedded *embedded = proxy_new(&config);
    write_bytes(embedded, self.bytes, self.length);
    codec_expect_text(embedded, "active");
    weir_buf *told = weir_buf_from_msg(weir_embedded_read_inbound(embedded));
    assert_true(weir_buf_find_bytes(told, 0, weir_buf_readable(told), BYTES(" 20: >20:")) > 0);
    weir_buf_release(told);
    codec_end(embedded);
}

/* A header of 35 bytes with the checksum that another implementation, bit by bit, has made. */
static void add_checksum(raw *self)
{
    uint32_t sum = UINT32_MAX;
    raw_add_tlv(self, WEIR_PROXY_TLV_CRC32C, "\0\0\0\0", 4);
    raw_end(self);
    for (size_t i = 0; i < self->length; i++) {
        sum ^= self->bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78 : 0);
    }
    for (int i = 0; i < 4; i++)
        self->bytes[self->length - 4 + (size_t)i] = (uint8_t)(~sum >> (24 - 8 * i));
}

static void checksums_are_compared(void **state)
{
    (void)state;
    static const char wrong[] = "a PROXY header with a wrong checksum (at byte 34 of the stream)";
    weir_proxy_decoding careless = { .ignores_checksum = true };
    raw self;
    raw_begin(&self, 0x21, 0x11, 0);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    raw_add_tlv(&self, WEIR_PROXY_TLV_NOOP, "", 0);
    add_checksum(&self);
    expect_header(NULL, self.bytes, self.length, V2_TEXT " with a checksum 04:", "192.0.2.1:56324");
    for (size_t at = 16; at < self.length; at++) {
        if (at >= 28 && at < 34)
            continue; /* then it is no such header any more */
        raw changed = self;
        changed.bytes[at] ^= 1;
        expect_refusal(NULL, changed.bytes, changed.length, -EBADMSG, wrong);
    }
    self.bytes[19] = 9;
    expect_header(&careless, self.bytes, self.length,
                  "v2 192.0.2.9:56324 to 198.51.100.2:443 with a checksum 04:", "192.0.2.9:56324");
    raw_begin(&self, 0x21, 0x11, 0);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    raw_add_tlv(&self, WEIR_PROXY_TLV_CRC32C, "abc", 3);
    raw_end(&self);
    expect_refusal(&careless, self.bytes, self.length, -EBADMSG,
                   "no checksum, or a second one, in a PROXY header (at byte 28 of the stream)");
    raw_begin(&self, 0x21, 0x11, 0);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    add_checksum(&self);
    raw_add_tlv(&self, WEIR_PROXY_TLV_CRC32C, "abcd", 4);
    raw_end(&self);
    expect_refusal(&careless, self.bytes, self.length, -EBADMSG,
                   "no checksum, or a second one, in a PROXY header (at byte 35 of the stream)");
}

/* Streams -------------------------------------------------------------------------------------- */

static void however_it_comes_it_is_the_same(void **state)
{
    (void)state;
    weir_proxy_decoding optional = { .is_optional = true };
    raw self;
    raw_begin(&self, 0x21, 0x11, 12);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    raw_add(&self, "hello", 5);
    verify_proxy(NULL, self.bytes, self.length, 7, 0);
    verify_proxy(&optional, self.bytes, self.length, 7, 0);
    verify_proxy(NULL, BYTES(V1_LINE "hello"), 7, 0);
    verify_proxy(&optional, BYTES(V1_LINE "hello"), 7, 0);
    verify_proxy(&optional, BYTES("PROXIED"), 8, 0);
    verify_proxy(&optional, BYTES("\r\n\r\n\0\r\nQUIT"), 0, 0); /* may still become one */
    verify_proxy(NULL, BYTES("PROXY UNKNOWN\r\r\n"), 0, 1);
    verify_proxy(NULL, BYTES(SIGNATURE "\x21\x11\0\xe" IPV4_ADDRESSES "\1\0"), 0, 1);
    verify_proxy(&optional, BYTES("\r\n\r\n\0\r\nQUIt\nhello"), 18, 0);
    verify_proxy(&optional, BYTES("GET / HTTP/1.1\r\n\r\n"), 19, 0);
}

static int get_looked_at(void *arg)
{
    weir_ctx *ctx = weir_pipeline_ctx(weir_embedded_pipeline(arg), "codec");
    return (int)((const weir_decoder *)weir_ctx_state(ctx))->looked_at;
}

/* Byte by byte costs no more than as a whole. */
static void bytes_are_looked_at_once(void **state)
{
    (void)state;
    static raw self;
    static uint8_t value[4000];
    raw_begin(&self, 0x21, 0x11, 0);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    raw_add_tlv(&self, WEIR_PROXY_TLV_NOOP, value, sizeof value);
    raw_end(&self);
    weir_embedded *embedded = proxy_new(NULL);
    for (size_t at = 0; at < self.length - 1; at++)
        write_bytes(embedded, self.bytes + at, 1);
    assert_in_range(weir_embedded_call(embedded, get_looked_at, embedded), 1, 3 * self.length);
    weir_embedded_free(embedded);
}

static void a_header_that_ends_too_early_is_told(void **state)
{
    (void)state;
    for (size_t length = 0; length < sizeof V1_LINE - 1; length++) {
        weir_embedded *embedded = proxy_new(NULL);
        char text[128];
        write_bytes(embedded, V1_LINE, length);
        weir_embedded_end_inbound(embedded, 0);
        snprintf(text, sizeof text,
                 "the stream ends inside a PROXY header (at byte %zu of the stream)", length);
        if (length > 0)
            codec_expect_error(embedded, WEIR_EOF, text);
        assert_false(weir_embedded_take_error(embedded, NULL)); /* who just looks in is no error */
        codec_end(embedded);
    }
}

static void what_has_to_begin_with_a_header_does(void **state)
{
    (void)state;
    expect_refusal(NULL, BYTES("GET / HTTP/1.1\r\n"), -EBADMSG,
                   "no PROXY header begins with 0x47 here (at byte 0 of the stream)");
    expect_refusal(NULL, BYTES("PROXy TCP4"), -EBADMSG,
                   "no PROXY header begins with 0x79 here (at byte 4 of the stream)");
    expect_refusal(NULL, BYTES("PROXY\tTCP4"), -EBADMSG,
                   "no PROXY header begins with 0x09 here (at byte 5 of the stream)");
    expect_refusal(NULL, BYTES("\r\n\r\n\0\r\nQUIT\r"), -EBADMSG,
                   "no PROXY header begins with 0x0d here (at byte 11 of the stream)");
}

static void what_need_not_passes_as_it_is(void **state)
{
    (void)state;
    weir_proxy_decoding config = { .is_optional = true };
    weir_embedded *embedded = proxy_new(&config);
    write_bytes(embedded, "PRO", 3);
    assert_null(weir_embedded_read_inbound(embedded)); /* it may become one */
    write_bytes(embedded, "SE", 2);
    codec_expect_text(embedded, "active"); /* it is the peer itself */
    codec_expect_text(embedded, "PROSE");
    expect_remote(embedded, "-");
    assert_false(has_decoder(embedded));
    write_bytes(embedded, V1_LINE, sizeof V1_LINE - 1); /* later ones are none */
    codec_expect_text(embedded, V1_LINE);
    expect_remote(embedded, "-");
    codec_end(embedded);
    /* What begins as one has to be one. */
    expect_refusal(&config, BYTES("PROXY TCP9\r\n"), -EBADMSG,
                   "neither TCP4, TCP6 nor UNKNOWN in a PROXY header (at byte 6 of the stream)");
    embedded = proxy_new(&config);
    write_bytes(embedded, "PROX", 4);
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, "PROX"); /* it has not become one */
    codec_end(embedded);
}

/* More than is kept of anything else. */
static void large_reads_pass(void **state)
{
    (void)state;
    static char bytes[3 << 20];
    for (int optional = 0; optional <= 1; optional++) {
        weir_proxy_decoding config = { .is_optional = optional };
        weir_embedded *embedded = proxy_new(&config);
        memset(bytes, 'x', sizeof bytes);
        if (!optional)
            memcpy(bytes, V1_LINE, sizeof V1_LINE - 1);
        write_bytes(embedded, bytes, sizeof bytes);
        codec_expect_text(embedded, "active");
        if (!optional)
            codec_expect_text(embedded, V1_TEXT);
        size_t skipped = optional ? 0 : sizeof V1_LINE - 1;
        codec_expect(embedded, bytes + skipped, sizeof bytes - skipped);
        codec_end(embedded);
    }
}

static void versions_can_be_refused(void **state)
{
    (void)state;
    weir_proxy_decoding no_v1 = { .refuses_v1 = true }, no_v2 = { .refuses_v2 = true };
    raw self;
    raw_begin(&self, 0x21, 0x11, 12);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    expect_header(&no_v1, self.bytes, self.length, V2_TEXT, "192.0.2.1:56324");
    expect_header(&no_v2, BYTES(V1_LINE), V1_TEXT, "192.0.2.1:56324");
    expect_refusal(&no_v1, BYTES(V1_LINE), -EBADMSG,
                   "no PROXY header begins with 0x50 here (at byte 0 of the stream)");
    expect_refusal(&no_v2, self.bytes, self.length, -EBADMSG,
                   "no PROXY header begins with 0x0d here (at byte 0 of the stream)");
    codec_is_refused(&weir_proxy_decoder,
                     &(weir_proxy_decoding){ .refuses_v1 = true, .refuses_v2 = true });
    codec_is_refused(&weir_proxy_decoder, &(weir_proxy_decoding){ .max_bytes = 15 });
}

/* Who asks for each read gets what is behind the header, in however many reads that came. */
static void reads_are_asked_for(void **state)
{
    (void)state;
    weir_embedded *embedded = proxy_new(NULL);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, false, NULL), 0);
    weir_embedded_run(embedded);
    assert_false(weir_embedded_is_reading(embedded));
    weir_channel_read(channel);
    weir_embedded_run(embedded);
    for (size_t at = 0; at < sizeof V1_LINE - 1; at++) {
        assert_true(weir_embedded_is_reading(embedded));
        write_bytes(embedded, &V1_LINE[at], 1);
    }
    assert_true(weir_embedded_is_reading(embedded));
    write_bytes(embedded, "x", 1);
    assert_false(weir_embedded_is_reading(embedded));
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, V1_TEXT);
    codec_expect_text(embedded, "x");
    codec_end(embedded);
}

/* Handlers that do things when they are told --------------------------------------------------- */

typedef enum deed { READS_MORE, REMOVES_IT, CLOSES } deed;

static void do_it(weir_ctx *ctx)
{
    const deed *what = weir_ctx_arg(ctx);
    weir_pipeline *pipeline = weir_ctx_pipeline(ctx);
    if (*what == READS_MORE)
        weir_pipeline_fire_read(pipeline, weir_buf_msg(weir_buf_from("more", 4)));
    else if (*what == REMOVES_IT)
        assert_int_equal(weir_pipeline_remove(pipeline, "codec", NULL), 0);
    else
        weir_ctx_close(ctx, NULL);
}

static void doer_on_active(weir_ctx *ctx)
{
    do_it(ctx);
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type doer = { .name = "doer", .on_active = doer_on_active };

static weir_embedded *proxy_and_doer(deed *what)
{
    weir_embedded *embedded = proxy_new(NULL);
    assert_int_equal(weir_pipeline_add_last(weir_embedded_pipeline(embedded), "doer", &doer, what),
                     0);
    weir_embedded_run(embedded);
    return embedded;
}

static void what_comes_while_it_is_told_comes_behind(void **state)
{
    (void)state;
    deed what = READS_MORE;
    weir_embedded *embedded = proxy_and_doer(&what);
    write_bytes(embedded, BYTES(V1_LINE "rest"));
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, V1_TEXT);
    codec_expect_text(embedded, "restmore");
    codec_end(embedded);
}

static void who_is_told_may_take_it_out_or_close(void **state)
{
    (void)state;
    deed what = REMOVES_IT;
    weir_embedded *embedded = proxy_and_doer(&what);
    write_bytes(embedded, BYTES(V1_LINE "rest"));
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, "rest");
    codec_expect_text(embedded, V1_TEXT);
    codec_end(embedded);
    what = CLOSES;
    embedded = proxy_and_doer(&what);
    weir_embedded_write_inbound_bytes(embedded, BYTES(V1_LINE "rest"));
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, V1_TEXT);
    assert_null(weir_embedded_read_inbound(embedded));
    codec_end(embedded);
}

/* With the event everything is said: who hears of it may do the same. */
static void doer_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (weir_proxy_event_from(event) != NULL)
        do_it(ctx);
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type late_doer = { .name = "doer", .on_event = doer_on_event };

static void who_gets_the_event_may_do_the_same(void **state)
{
    (void)state;
    static const char *const rests[] = { "restmore", "rest", NULL };
    for (deed what = READS_MORE; what <= CLOSES; what++) {
        weir_embedded *embedded = proxy_new(NULL);
        weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
        assert_int_equal(weir_pipeline_add_last(pipeline, "doer", &late_doer, &what), 0);
        weir_embedded_run(embedded);
        weir_embedded_write_inbound_bytes(embedded, BYTES(V1_LINE "rest"));
        codec_expect_text(embedded, "active");
        codec_expect_text(embedded, V1_TEXT);
        if (rests[what] != NULL)
            codec_expect_text(embedded, rests[what]);
        assert_false(has_decoder(embedded));
        codec_end(embedded);
    }
}

/* On an executor of its own, where even leaving takes memory: what is behind the header goes on, or
 * the channel is closed. Each allocation fails once. */
static int add_elsewhere(weir_channel *channel, void *arg)
{
    weir_handler_config config = { .type = &weir_proxy_decoder, .name = "codec", .group = arg };
    config.place = WEIR_PLACE_LAST;
    return weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

static void run_both(weir_embedded *embedded, weir_group *group)
{
    for (int i = 0; i < 10; i++) {
        weir_embedded_run(embedded);
        weir_group_step(group);
    }
    weir_embedded_run(embedded);
}

static void it_can_have_an_executor_of_its_own(void **state)
{
    (void)state;
    for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
        weir_group *group;
        weir_embedded *embedded;
        weir_group_config executors = { .count = 1, .is_manual = true };
        assert_int_equal(weir_group_new_executors(&group, &executors, NULL), 0);
        weir_embedded_config config = { .init = add_elsewhere, .arg = group };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        run_both(embedded, group);
        weir_buf *read = weir_buf_from(BYTES(V1_LINE "rest"));
        harness_fail_nth("alloc", nth, -ENOMEM);
        weir_embedded_write_inbound(embedded, &read->msg);
        run_both(embedded, group);
        calls = harness_fail_end();
        if (weir_channel_is_open(weir_embedded_channel(embedded))) {
            assert_false(has_decoder(embedded));
            expect_remote(embedded, "192.0.2.1:56324");
        }
        if (calls < nth) /* it has not failed */
            codec_expect_text(embedded, "rest");
        weir_embedded_close(embedded);
        run_both(embedded, group);
        weir_embedded_free(embedded);
        weir_group_shutdown(group, 0, 0);
        weir_group_free(group);
    }
}

/* Somebody takes it out: then it is as if it had never been there. */
static void what_was_held_goes_on_without_it(void **state)
{
    (void)state;
    weir_embedded *embedded = proxy_new(NULL);
    write_bytes(embedded, "PROX", 4);
    assert_null(weir_embedded_read_inbound(embedded));
    assert_int_equal(weir_pipeline_remove(weir_embedded_pipeline(embedded), "codec", NULL), 0);
    weir_embedded_run(embedded);
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, "PROX");
    codec_end(embedded);
}

/* Half a connection: the other side has ended, and may still be answered. */
static void an_end_of_input_is_an_end(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *heard;
        bool is_optional;
        int code;
    } rows[] = {
        { "", NULL, false, 0 },      { "PROX", NULL, false, WEIR_EOF },   { "", "", true, 0 },
        { "PROX", "PROX", true, 0 }, { "PROXY T", NULL, true, WEIR_EOF },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_proxy_decoding config = { .is_optional = rows[i].is_optional };
        weir_embedded *embedded = proxy_new(&config);
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
        write_bytes(embedded, rows[i].bytes, strlen(rows[i].bytes));
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), rows[i].code);
        assert_int_equal(weir_embedded_take_error(embedded, NULL), rows[i].code < 0);
        assert_int_equal(weir_channel_is_open(channel), rows[i].heard != NULL);
        if (rows[i].heard != NULL)
            codec_expect_text(embedded, "active");
        if (rows[i].heard != NULL && *rows[i].heard != '\0')
            codec_expect_text(embedded, rows[i].heard);
        codec_end(embedded);
    }
}

/* Each allocation fails once: the client is known, or the channel is told and closed. */
static void without_memory_nobody_is_somebody_else(void **state)
{
    (void)state;
    static const char *const calls_that_fail[] = { "pool", "alloc" };
    raw self;
    raw_begin(&self, 0x21, 0x11, 12);
    raw_add(&self, BYTES(IPV4_ADDRESSES));
    raw_add(&self, "rest", 4);
    for (unsigned i = 0, failed = 0; i < 2; i++, failed = 0) {
        for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
            weir_embedded *embedded = codec_new(&weir_proxy_decoder, NULL);
            weir_buf *reads[] = { weir_buf_from(self.bytes, 20),
                                  weir_buf_from(self.bytes + 20, self.length - 20) };
            harness_fail_nth(calls_that_fail[i], nth, -ENOMEM);
            int code = weir_embedded_write_inbound(embedded, &reads[0]->msg);
            int second = weir_embedded_write_inbound(embedded, &reads[1]->msg);
            calls = harness_fail_end();
            if (weir_channel_is_open(weir_embedded_channel(embedded))) {
                assert_int_equal(code | second, 0);
                expect_remote(embedded, "192.0.2.1:56324");
                weir_msg *rest = weir_embedded_read_inbound(embedded);
                if (rest != NULL) /* the test's end had no memory for it */
                    codec_check_bytes(rest, "rest", 4);
            } else {
                failed++;
                assert_int_equal(weir_embedded_inbound_count(embedded), 0);
                weir_embedded_take_error(embedded, NULL);
            }
            weir_embedded_free(embedded);
        }
        assert_true(failed >= 1);
    }
}

/* Time ----------------------------------------------------------------------------------------- */

static void expect_timeout(weir_embedded *embedded, int64_t ms, const char *text)
{
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_embedded_advance(embedded, WEIR_MS(ms) - 1), 0);
    assert_int_equal(weir_embedded_check(embedded), 0);
    assert_true(weir_channel_is_open(channel));
    weir_embedded_advance(embedded, 1);
    codec_expect_error(embedded, -ETIMEDOUT, text);
    assert_false(weir_channel_is_open(channel));
    assert_null(weir_embedded_read_inbound(embedded)); /* on_active was not fired */
    codec_end(embedded);
}

static void a_header_that_takes_too_long_closes_the_channel(void **state)
{
    (void)state;
    expect_timeout(proxy_new(NULL), 5000, "no complete PROXY header within 5 s, only 0 bytes");
    const weir_proxy_decoding given = { .is_optional = true, .header_timeout_ns = WEIR_MS(700) };
    expect_timeout(proxy_new(&given), 700, "no complete PROXY header within 700 ms, only 0 bytes");

    /* Bytes that drip in do not make it longer. */
    weir_embedded *embedded = proxy_new(NULL);
    for (size_t i = 0; i < 4; i++) {
        write_bytes(embedded, &V1_LINE[i], 1);
        weir_embedded_advance(embedded, WEIR_SECONDS(1));
    }
    expect_timeout(embedded, 1000, "no complete PROXY header within 5 s, only 4 bytes");
}

static void the_time_of_a_header_ends_with_the_header(void **state)
{
    (void)state;
    weir_embedded *embedded = proxy_new(NULL);
    weir_embedded_advance(embedded, WEIR_MS(5000) - 1);
    write_bytes(embedded, V1_LINE, sizeof V1_LINE - 1);
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, V1_TEXT);
    weir_embedded_advance(embedded, WEIR_SECONDS(60));
    assert_int_equal(weir_embedded_check(embedded), 0);
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
}

static void a_header_may_take_any_time_if_that_is_wished(void **state)
{
    (void)state;
    const weir_proxy_decoding patient = { .header_timeout_ns = WEIR_OFF };
    weir_embedded *embedded = proxy_new(&patient);
    weir_embedded_advance(embedded, WEIR_SECONDS(86400));
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    write_bytes(embedded, V1_LINE, sizeof V1_LINE - 1);
    codec_expect_text(embedded, "active");
    codec_expect_text(embedded, V1_TEXT);
    codec_end(embedded);
}

/* The time begins when it is added, if the channel is active by then, else when that is so. */
static void the_time_of_a_header_begins_when_the_channel_is_active(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        weir_embedded *embedded;
        weir_embedded_config config = { .is_unconnected = !is_late };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        if (is_late)
            weir_embedded_advance(embedded, WEIR_SECONDS(60));
        assert_int_equal(weir_pipeline_add_first(weir_embedded_pipeline(embedded), NULL,
                                                 &weir_proxy_decoder, NULL),
                         0);
        weir_embedded_run(embedded);
        if (!is_late) {
            weir_embedded_advance(embedded, WEIR_SECONDS(60));
            weir_address any = { 0 };
            assert_int_equal(weir_address_parse(&any, "127.0.0.1:1", NULL), 0);
            weir_channel_connect(weir_embedded_channel(embedded), &any, NULL, NULL);
            weir_embedded_run(embedded);
        }
        assert_true(weir_channel_is_active(weir_embedded_channel(embedded)));
        expect_timeout(embedded, 5000, "no complete PROXY header within 5 s, only 0 bytes");
    }
}

static void without_memory_for_its_time_no_header_is_awaited(void **state)
{
    (void)state;
    bool has_closed = false;
    for (unsigned nth = 1, calls = nth; nth <= calls; nth++) {
        weir_embedded *embedded;
        weir_embedded_config config = { .init = NULL };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        assert_int_equal(weir_pipeline_add_first(weir_embedded_pipeline(embedded), NULL,
                                                 &weir_proxy_decoder, NULL),
                         0);
        harness_fail_nth(NULL, nth, -ENOMEM);
        weir_embedded_run(embedded);
        calls = harness_fail_end();
        bool is_open = weir_channel_is_open(weir_embedded_channel(embedded));
        has_closed |= !is_open;
        if (is_open) { /* then it has its timer */
            weir_embedded_advance(embedded, WEIR_MS(5000));
            assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        }
        while (weir_embedded_take_error(embedded, NULL))
            ;
        codec_end(embedded);
    }
    assert_true(has_closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(lines_are_understood),
        weir_case(lines_that_are_none_are_refused),
        weir_case(binary_headers_are_understood),
        weir_case(unix_addresses_are_understood),
        weir_case(a_local_header_says_nothing),
        weir_case(binary_headers_that_are_none_are_refused),
        weir_case(long_headers_are_refused_at_once),
        weir_case(the_longest_header_is_understood),
        weir_case(tlvs_are_shown_flat),
        weir_case(one_of_a_type_can_be_found),
        weir_case(tlvs_that_do_not_fit_are_refused),
        weir_case(nested_tlvs_are_no_recursion),
        weir_case(checksums_are_compared),
        weir_case(however_it_comes_it_is_the_same),
        weir_case(bytes_are_looked_at_once),
        weir_case(a_header_that_ends_too_early_is_told),
        weir_case(what_has_to_begin_with_a_header_does),
        weir_case(what_need_not_passes_as_it_is),
        weir_case(large_reads_pass),
        weir_case(versions_can_be_refused),
        weir_case(reads_are_asked_for),
        weir_case(what_comes_while_it_is_told_comes_behind),
        weir_case(who_is_told_may_take_it_out_or_close),
        weir_case(who_gets_the_event_may_do_the_same),
        weir_case(it_can_have_an_executor_of_its_own),
        weir_case(what_was_held_goes_on_without_it),
        weir_case(an_end_of_input_is_an_end),
        weir_case(without_memory_nobody_is_somebody_else),
        weir_case(a_header_that_takes_too_long_closes_the_channel),
        weir_case(the_time_of_a_header_ends_with_the_header),
        weir_case(a_header_may_take_any_time_if_that_is_wished),
        weir_case(the_time_of_a_header_begins_when_the_channel_is_active),
        weir_case(without_memory_for_its_time_no_header_is_awaited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
