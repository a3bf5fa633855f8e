/* SPDX-License-Identifier: MIT */
/* Addresses: from text and back, from the kernel's form and back, and what they say of themselves.
 */
#include "harness.h"

#include <weir/address.h>

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static weir_address parsed(const char *text)
{
    weir_address address;
    weir_error error;
    memset(&address, 0xff, sizeof address);
    if (weir_address_parse(&address, text, &error) != 0)
        fail_msg("%s", error.message);
    return address;
}

/* Its text, which is checked not to touch more than it says. */
static const char *text_of(const weir_address *address)
{
    static char text[WEIR_ADDRESS_TEXT_MAX + 1];
    memset(text, '#', sizeof text);
    size_t length = weir_address_text(address, text, WEIR_ADDRESS_TEXT_MAX);
    assert_true(length < WEIR_ADDRESS_TEXT_MAX);
    assert_int_equal(strlen(text), length);
    assert_int_equal(text[length + 1], '#');
    for (size_t i = 0; i < length; i++)
        assert_in_range(text[i], 0x20, 0x7e);
    return text;
}

static bool is_zeroed(const weir_address *address)
{
    static const uint8_t zeroes[sizeof address->storage];
    return address->length == 0 && memcmp(&address->storage, zeroes, sizeof zeroes) == 0;
}

static weir_address taken(const void *from, size_t length)
{
    weir_address address;
    memset(&address, 0xff, sizeof address);
    assert_int_equal(weir_address_from_sockaddr(&address, from, length), 0);
    return address;
}

/* Text ---------------------------------------------------------------------------------------- */

#define NAME_100                                                                                   \
    "0123456789012345678901234567890123456789012345678901234567890123456789"                       \
    "012345678901234567890123456789"
#define NAME_107 NAME_100 "0123456"
#define ZEROES_10 "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00"
#define ZEROES_107                                                                                 \
    ZEROES_10 ZEROES_10 ZEROES_10 ZEROES_10 ZEROES_10 ZEROES_10 ZEROES_10 ZEROES_10 ZEROES_10      \
        ZEROES_10 "\\x00\\x00\\x00\\x00\\x00\\x00\\x00"

static const struct {
    const char *text, *canonical; /* NULL: the same */
    weir_address_kind kind;
    uint16_t port;
} good[] = {
    { "127.0.0.1:8007", NULL, WEIR_ADDRESS_IPV4, 8007 },
    { "0.0.0.0:0", NULL, WEIR_ADDRESS_IPV4, 0 },
    { "255.255.255.255:65535", NULL, WEIR_ADDRESS_IPV4, 65535 },
    { "1.2.3.4:080", "1.2.3.4:80", WEIR_ADDRESS_IPV4, 80 },
    { "[::1]:8007", NULL, WEIR_ADDRESS_IPV6, 8007 },
    { "[::]:0", NULL, WEIR_ADDRESS_IPV6, 0 },
    { ":8007", "[::]:8007", WEIR_ADDRESS_IPV6, 8007 },
    { "*:8007", "[::]:8007", WEIR_ADDRESS_IPV6, 8007 },
    { ":65535", "[::]:65535", WEIR_ADDRESS_IPV6, 65535 },
    { "[2001:DB8:0:0::1]:1", "[2001:db8::1]:1", WEIR_ADDRESS_IPV6, 1 },
    { "[::ffff:1.2.3.4]:80", NULL, WEIR_ADDRESS_IPV6, 80 },
    { "[::ffff:102:304]:80", "[::ffff:1.2.3.4]:80", WEIR_ADDRESS_IPV6, 80 },
    { "[fe80::1%7]:80", NULL, WEIR_ADDRESS_IPV6, 80 },
    { "[fe80::1%4294967295]:80", NULL, WEIR_ADDRESS_IPV6, 80 },
    { "[fe80::1%0]:80", "[fe80::1]:80", WEIR_ADDRESS_IPV6, 80 },
    { "[fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535", NULL, WEIR_ADDRESS_IPV6,
      65535 },
    { "[0000:0000:0000:0000:0000:ffff:255.255.255.255%4294967295]:1",
      "[::ffff:255.255.255.255%4294967295]:1", WEIR_ADDRESS_IPV6, 1 },
    { "unix:/path/sock", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:relative", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:/with: a space:80", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:\\x20/spaces at ends\\x20", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:\\x40looks-abstract", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:/a\\x5cb\\x0a\\x7f\\xff", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:/\\x41\\x4A\\x4a", "unix:/AJJ", WEIR_ADDRESS_UNIX, 0 },
    { "unix:/caf\xc3\xa9", "unix:/caf\\xc3\\xa9", WEIR_ADDRESS_UNIX, 0 },
    { "unix:" NAME_107, NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:@abstract", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:@@", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:@a\\x00b\\x00", NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:@" NAME_107, NULL, WEIR_ADDRESS_UNIX, 0 },
    { "unix:@" ZEROES_107, NULL, WEIR_ADDRESS_UNIX, 0 },
    { "local:name", NULL, WEIR_ADDRESS_LOCAL, 0 },
    { "local:80", NULL, WEIR_ADDRESS_LOCAL, 0 },
    { "local:@a", NULL, WEIR_ADDRESS_LOCAL, 0 },
    { "local:a\\x09b", NULL, WEIR_ADDRESS_LOCAL, 0 },
    { "local:" NAME_107, NULL, WEIR_ADDRESS_LOCAL, 0 },
};

static void good_texts_are_read_and_written_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        weir_address address = parsed(good[i].text);
        assert_int_equal(weir_address_kind_of(&address), good[i].kind);
        assert_int_equal(weir_address_port(&address), good[i].port);
        const char *text = text_of(&address);
        assert_string_equal(text, good[i].canonical != NULL ? good[i].canonical : good[i].text);
        weir_address again = parsed(text);
        assert_true(weir_address_equal(&address, &again));
    }
}

static const struct {
    const char *text, *word; /* what the message must have in it */
} bad[] = {
    { "", "empty" },
    { "127.0.0.1", "port is missing" },
    { "127.0.0.1:", "port is missing" },
    { "localhost", "port is missing" },
    { "8007", "as in 127.0.0.1:8007 or :8007" },
    { ":", "port is missing" },
    { "*", "port is missing" },
    { "-", "port is missing" },
    { "[::1]", "after the bracket, as in [::1]:8007" },
    { "[::1]:", "port is missing" },
    { "127.0.0.1:65536", "above 65535" },
    { "127.0.0.1:99999999999999999999999", "above 65535" },
    { ":18446744073709551617", "above 65535" },
    { "[::1]:65536", "above 65535" },
    { "127.0.0.1:80x", "not a number" },
    { "127.0.0.1:-1", "not a number" },
    { "127.0.0.1:+80", "not a number" },
    { "127.0.0.1:http", "not a number" },
    { "[::1]:80]", "not a number" },
    { "UNIX:/path", "not a number" },
    { "[::1]80", "comes no ':'" },
    { "[::1] :80", "space" },
    { "[::1:80", "not closed" },
    { "[]:80", "not an IPv6 address" },
    { "[127.0.0.1]:80", "not an IPv6 address" },
    { "[localhost]:80", "not an IPv6 address" },
    { "[[::1]]:80", "comes no ':'" },
    { "[*]:80", "not an IPv6 address" },
    { "[1:2:3:4:5:6:7:8:9]:80", "not an IPv6 address" },
    { "[%lo]:80", "not an IPv6 address" },
    { "[" NAME_107 "]:80", "not an IPv6 address" },
    { "[fe80::1%]:80", "no interface" },
    { "[fe80::1%no-such-one]:80", "no interface" },
    { "[fe80::1%4294967296]:80", "no interface" },
    { "[fe80::1%-1]:80", "no interface" },
    { "[fe80::1%1%1]:80", "no interface" },
    { "::1", "in brackets" },
    { "::1:8007", "in brackets" },
    { "::", "in brackets" },
    { "1.2.3.4:80:90", "more than one ':'" },
    { "http://127.0.0.1:80", "more than one ':'" },
    { "1.2.3:80", "not an IPv4 address" },
    { "1.2.3.4.5:80", "not an IPv4 address" },
    { "1.2.3.256:80", "not an IPv4 address" },
    { "01.2.3.4:80", "leading zeros" },
    { "1.2.3.4000000000000000000000:80", "not an IPv4 address" },
    { "1.2.3.4.............:80", "not an IPv4 address" },
    { "127.0.0.1.example:80", "resolver" },
    { "0x7f.1:80", "resolver" },
    { "localhost:80", "resolver" },
    { "www.example-1.org:80", "resolver" },
    { "1.2.3.4]:80", "no address" },
    { "**:80", "no address" },
    { "a/b:80", "no address" },
    { " 127.0.0.1:80", "space" },
    { "127.0.0.1:80 ", "space" },
    { "127.0.0.1: 80", "space" },
    { "127.0 .0.1:80", "space" },
    { "127.0.0.1:80\n", "control character" },
    { "\t:80", "control character" },
    { ":80\x7f", "control character" },
    { "/path/sock", "begins with unix:" },
    { "@name", "begins with unix:" },
    { "unix:", "name is missing" },
    { "unix:@", "name is missing" },
    { "local:", "name is missing" },
    { "unix: /path", "space at an end" },
    { "unix:/path ", "space at an end" },
    { "unix:@ a", "space at an end" },
    { "local:a ", "\\x20" },
    { "unix:/path\n", "control character" },
    { "unix:/\x7f", "control character" },
    { "unix:/a\\b", "\\x5c" },
    { "unix:/a\\", "\\x5c" },
    { "unix:/a\\x", "\\x5c" },
    { "unix:/a\\x4", "\\x5c" },
    { "unix:/a\\x4g", "\\x5c" },
    { "unix:/a\\xg4", "\\x5c" },
    { "unix:/a\\X41", "\\x5c" },
    { "unix:/a\\x00b", "cannot contain \\x00" },
    { "unix:\\x00a", "unix:@name" },
    { "local:a\\x00", "cannot contain \\x00" },
    { "unix:/" NAME_107, "longer than 107 bytes" },
    { "unix:@" NAME_107 "0", "longer than 107 bytes" },
    { "unix:@" NAME_107 "\\x00", "longer than 107 bytes" },
    { "local:" NAME_107 "0", "longer than 107 bytes" },
    { "unix:/" NAME_100 NAME_100 NAME_100, "longer than 107 bytes" },
};

static void bad_texts_are_refused_with_a_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        weir_address address;
        weir_error error = { 0 };
        memset(&address, 0xff, sizeof address);
        int code = weir_address_parse(&address, bad[i].text, &error);
        if (code != -EINVAL || error.code != -EINVAL)
            fail_msg("%s: %d", bad[i].text, code);
        assert_string_equal(error.origin, "address");
        if (strstr(error.message, bad[i].word) == NULL)
            fail_msg("no \"%s\" in: %s", bad[i].word, error.message);
        assert_true(strlen(error.message) + 1 < sizeof error.message); /* it was not cut */
        assert_true(is_zeroed(&address));
        assert_int_equal(weir_address_parse(&address, bad[i].text, NULL), -EINVAL);
    }
}

static void the_message_names_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *begin;
    } cases[] = {
        { "localhost:80", "'localhost:80': a host" },
        { "unix:/a\\b ", "'unix:/a\\b ': " },
        { "a\nb\x1b\xff", "'a\\x0ab\\x1b\\xff': " },
        { "", "'': " },
        { NAME_100, "'" NAME_100 },
    };
    weir_address address;
    weir_error error;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(weir_address_parse(&address, cases[i].text, &error), -EINVAL);
        size_t length = strlen(cases[i].begin);
        assert_memory_equal(error.message, cases[i].begin, length < 60 ? length : 60);
    }
    assert_non_null(strstr(error.message, "...': "));
    /* Sixty-three bytes are whole, one more is not. */
    char text[65] = { 0 };
    memset(text, 'a', 63);
    weir_address_parse(&address, text, &error);
    assert_null(strstr(error.message, "..."));
    assert_memory_equal(error.message + 1, text, 63);
    text[63] = 'a';
    weir_address_parse(&address, text, &error);
    assert_non_null(strstr(error.message, "a...': "));
}

static void parsing_without_arguments_is_refused(void **state)
{
    (void)state;
    weir_address address;
    weir_error error = { 0 };
    memset(&address, 0xff, sizeof address);
    assert_int_equal(weir_address_parse(&address, NULL, &error), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_non_null(strstr(error.message, "NULL for the text"));
    assert_true(is_zeroed(&address));
    assert_int_equal(weir_address_parse(NULL, "127.0.0.1:80", &error), -EINVAL);
    assert_non_null(strstr(error.message, "NULL for the address"));
    assert_int_equal(weir_address_parse(NULL, NULL, NULL), -EINVAL);
}

static void a_good_text_leaves_the_error_alone(void **state)
{
    (void)state;
    weir_address address;
    weir_error error = { .code = 7, .message = "mine" };
    assert_int_equal(weir_address_parse(&address, ":80", &error), 0);
    assert_int_equal(error.code, 7);
    assert_string_equal(error.message, "mine");
}

static void an_interface_is_known_by_name_or_number(void **state)
{
    (void)state;
    char text[64];
    unsigned lo = if_nametoindex("lo");
    if (lo == 0)
        skip();
    weir_address by_name = parsed("[fe80::1%lo]:80");
    snprintf(text, sizeof text, "[fe80::1%%%u]:80", lo);
    weir_address by_number = parsed(text);
    assert_true(weir_address_equal(&by_name, &by_number));
    assert_string_equal(text_of(&by_name), text);
    weir_address without = parsed("[fe80::1]:80");
    assert_false(weir_address_equal(&by_name, &without));

    struct sockaddr_in6 in6;
    size_t length;
    memcpy(&in6, weir_address_sockaddr(&by_name, &length), sizeof in6);
    assert_int_equal(in6.sin6_scope_id, lo);
}

static void text_is_cut_to_every_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        weir_address address = parsed(good[i].text);
        char whole[WEIR_ADDRESS_TEXT_MAX], part[WEIR_ADDRESS_TEXT_MAX + 2];
        size_t length = weir_address_text(&address, whole, sizeof whole);
        assert_int_equal(weir_address_text(&address, NULL, 0), length);
        for (size_t size = 0; size <= length + 1; size++) {
            memset(part, '#', sizeof part);
            assert_int_equal(weir_address_text(&address, part, size), length);
            assert_int_equal(part[size], '#');
            if (size == 0)
                continue;
            assert_int_equal(strlen(part), size - 1);
            assert_memory_equal(part, whole, size - 1);
        }
    }
    char text[4] = "abc";
    assert_int_equal(weir_address_text(NULL, text, 0), 1);
    assert_string_equal(text, "abc");
    assert_int_equal(weir_address_text(NULL, text, 1), 1);
    assert_string_equal(text, "");
    assert_int_equal(weir_address_text(NULL, NULL, 10), 1);
}

static void none_is_a_dash(void **state)
{
    (void)state;
    weir_address none = { 0 };
    assert_string_equal(text_of(&none), "-");
    assert_string_equal(text_of(NULL), "-");
    assert_int_equal(weir_address_kind_of(&none), WEIR_ADDRESS_NONE);
    assert_int_equal(weir_address_kind_of(NULL), WEIR_ADDRESS_NONE);
}

/* Each byte, alone, first, in the middle and last, in all kinds of names. */
static void any_byte_in_a_name_is_read_back(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "unix:%s",   "unix:%sz", "unix:z%s",  "unix:a%sz", "local:%s",   "local:a%sz",
        "local:%sz", "unix:@%s", "unix:@%sz", "unix:@z%s", "unix:@a%sz",
    };
    for (unsigned byte = 0; byte < 256; byte++) {
        char escaped[8], text[32];
        snprintf(escaped, sizeof escaped, "\\x%02x", byte);
        for (size_t i = 0; i < COUNT(forms); i++) {
            if (byte == 0 && strchr(forms[i], '@') == NULL)
                continue;
            snprintf(text, sizeof text, forms[i], escaped);
            weir_address address = parsed(text), again = parsed(text_of(&address));
            assert_true(weir_address_equal(&address, &again));
            bool is_plain = byte > ' ' && byte < 0x7f && byte != '\\';
            if (strcmp(forms[i], "unix:a%sz") == 0)
                assert_int_equal(strstr(text_of(&address), escaped) == NULL,
                                 is_plain || byte == ' ');
            if (strcmp(forms[i], "unix:@%s") == 0)
                assert_int_equal(strstr(text_of(&address), escaped) == NULL, is_plain);
        }
    }
}

static void escapes_stand_for_their_bytes(void **state)
{
    (void)state;
    weir_address address = parsed("unix:@a\\x00\\xFf\\x0a");
    struct sockaddr_un un;
    size_t length;
    memset(&un, 0xee, sizeof un);
    const struct sockaddr *from = weir_address_sockaddr(&address, &length);
    assert_int_equal(length, offsetof(struct sockaddr_un, sun_path) + 5);
    memcpy(&un, from, length);
    assert_memory_equal(un.sun_path, "\0a\0\xff\n", 5);
}

/* sockaddr ------------------------------------------------------------------------------------ */

static void ipv4_goes_in_and_out(void **state)
{
    (void)state;
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(8007) }, out;
    in.sin_addr.s_addr = htonl(0x0a000102);
    memset(in.sin_zero, 0xff, sizeof in.sin_zero);
    weir_address address = taken(&in, sizeof in), same = parsed("10.0.1.2:8007");
    assert_string_equal(text_of(&address), "10.0.1.2:8007");
    assert_true(weir_address_equal(&address, &same));

    size_t length = 0;
    const struct sockaddr *from = weir_address_sockaddr(&address, &length);
    assert_int_equal(length, sizeof out);
    assert_int_equal((uintptr_t)from % 8, 0);
    assert_true((const uint8_t *)from > (const uint8_t *)&address);
    assert_true((const uint8_t *)from + length <= (const uint8_t *)(&address + 1));
    memcpy(&out, from, sizeof out);
    assert_int_equal(out.sin_family, AF_INET);
    assert_int_equal(out.sin_port, htons(8007));
    assert_int_equal(out.sin_addr.s_addr, htonl(0x0a000102));
}

static void ipv6_goes_in_and_out(void **state)
{
    (void)state;
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(80) }, out;
    in6.sin6_scope_id = 9;
    assert_int_equal(inet_pton(AF_INET6, "fe80::2", &in6.sin6_addr), 1);
    weir_address address = taken(&in6, sizeof in6), same = parsed("[fe80::2%9]:80");
    assert_string_equal(text_of(&address), "[fe80::2%9]:80");
    in6.sin6_flowinfo = htonl(12345); /* left out, or one peer would have many addresses */
    weir_address flowing = taken(&in6, sizeof in6);
    assert_true(weir_address_equal(&address, &same));
    assert_true(weir_address_equal(&address, &flowing));

    size_t length = 0;
    memcpy(&out, weir_address_sockaddr(&flowing, &length), sizeof out);
    assert_int_equal(length, sizeof out);
    assert_int_equal(out.sin6_family, AF_INET6);
    assert_int_equal(out.sin6_port, htons(80));
    assert_int_equal(out.sin6_scope_id, 9);
    assert_int_equal(out.sin6_flowinfo, 0);
    assert_memory_equal(&out.sin6_addr, &in6.sin6_addr, sizeof out.sin6_addr);
}

#define PATH_AT offsetof(struct sockaddr_un, sun_path)

static void unix_goes_in_and_out(void **state)
{
    (void)state;
    struct sockaddr_un un = { .sun_family = AF_UNIX }, out = { 0 };
    size_t length = 0;
    memcpy(un.sun_path, "/tmp/x\0rest", 11);
    weir_address path = parsed("unix:/tmp/x");
    /* With its zero, without it, and with whatever lies behind. */
    for (size_t end = 6; end <= sizeof un.sun_path; end++) {
        weir_address address = taken(&un, PATH_AT + end);
        assert_true(weir_address_equal(&address, &path));
        memcpy(&out, weir_address_sockaddr(&address, &length), sizeof out);
        assert_int_equal(length, PATH_AT + 7);
        assert_int_equal(out.sun_family, AF_UNIX);
        assert_string_equal(out.sun_path, "/tmp/x");
    }
    weir_address shorter = taken(&un, PATH_AT + 5);
    assert_string_equal(text_of(&shorter), "unix:/tmp/");
    assert_false(weir_address_equal(&shorter, &path));
    un.sun_path[0] = '@';
    weir_address only_looks = taken(&un, sizeof un);
    assert_string_equal(text_of(&only_looks), "unix:\\x40tmp/x");
}

static void unix_path_of_one_byte_is_a_path(void **state)
{
    (void)state;
    struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "a" };
    weir_address path = parsed("unix:a");
    for (size_t end = 1; end <= sizeof un.sun_path; end++) {
        weir_address address = taken(&un, PATH_AT + end);
        assert_string_equal(text_of(&address), "unix:a");
        assert_true(weir_address_equal(&address, &path));
    }
}

static void abstract_names_go_in_and_out(void **state)
{
    (void)state;
    struct sockaddr_un un = { .sun_family = AF_UNIX }, out;
    memcpy(un.sun_path, "\0a\0b", 4);
    weir_address address = taken(&un, PATH_AT + 4);
    assert_string_equal(text_of(&address), "unix:@a\\x00b");
    weir_address longer = taken(&un, PATH_AT + 5);
    assert_string_equal(text_of(&longer), "unix:@a\\x00b\\x00");
    assert_false(weir_address_equal(&address, &longer)); /* zeroes count */

    size_t length = 0;
    memset(&out, 0xff, sizeof out);
    const struct sockaddr *from = weir_address_sockaddr(&longer, &length);
    assert_int_equal(length, PATH_AT + 5);
    memcpy(&out, from, length);
    assert_memory_equal(out.sun_path, "\0a\0b\0", 5);

    weir_address empty = taken(&un, PATH_AT + 1);
    assert_string_equal(text_of(&empty), "unix:@");
    memset(&un.sun_path, 0, sizeof un.sun_path);
    weir_address full = taken(&un, sizeof un), same = parsed("unix:@" ZEROES_107);
    assert_true(weir_address_equal(&full, &same));
}

static void an_unnamed_socket_has_the_family_only(void **state)
{
    (void)state;
    struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "ignored" };
    weir_address address = taken(&un, PATH_AT);
    assert_int_equal(weir_address_kind_of(&address), WEIR_ADDRESS_UNIX);
    assert_string_equal(text_of(&address), "unix:");
    size_t length = 0;
    assert_non_null(weir_address_sockaddr(&address, &length));
    assert_int_equal(length, PATH_AT);
    weir_address none = { 0 };
    assert_false(weir_address_equal(&address, &none));
}

/* The kernel takes a path of 108 bytes without a zero, and reports it with one: 111 bytes. */
static void the_longest_path_of_a_peer_is_taken(void **state)
{
    (void)state;
    uint8_t bytes[128];
    sa_family_t family = AF_UNIX;
    size_t length = 0;
    memset(bytes, 'a', sizeof bytes);
    memcpy(bytes, &family, sizeof family);
    weir_address bare = taken(bytes, PATH_AT + 108);
    bytes[PATH_AT + 108] = 0;
    weir_address ended = taken(bytes, PATH_AT + 109);
    assert_true(weir_address_equal(&bare, &ended));
    assert_int_equal(strlen(text_of(&ended)), strlen("unix:") + 108);
    assert_non_null(weir_address_sockaddr(&ended, &length));
    assert_int_equal(length, sizeof(struct sockaddr_un)); /* so that the kernel takes it again */

    memset(bytes + PATH_AT, 0xff, 108);
    weir_address widest = taken(bytes, PATH_AT + 109);
    assert_int_equal(strlen(text_of(&widest)), strlen("unix:") + 4 * 108);
}

static void wrong_lengths_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[160];
    static const struct {
        sa_family_t family;
        int fill;
        size_t from, to; /* the lengths that are fine */
    } families[] = {
        { AF_INET, 0, sizeof(struct sockaddr_in), sizeof bytes },
        { AF_INET6, 0, sizeof(struct sockaddr_in6), sizeof bytes },
        { AF_UNIX, 'a', PATH_AT, PATH_AT + 108 },
        { AF_UNIX, 0, PATH_AT, PATH_AT + 108 },
    };
    for (size_t i = 0; i < COUNT(families); i++) {
        for (size_t length = 0; length <= sizeof bytes; length++) {
            weir_address address;
            memset(&address, 0xff, sizeof address);
            memset(bytes, families[i].fill, sizeof bytes);
            memcpy(bytes, &families[i].family, sizeof families[i].family);
            /* A block of its own, so that reading too far is seen. */
            void *copy = malloc(length != 0 ? length : 1);
            assert_non_null(copy);
            memcpy(copy, bytes, length);
            int code = weir_address_from_sockaddr(&address, copy, length);
            bool is_fine = length >= families[i].from && length <= families[i].to;
            assert_int_equal(code, is_fine ? 0 : -EINVAL);
            assert_int_equal(is_zeroed(&address), !is_fine);
            free(copy);
        }
    }
}

static void other_families_are_refused(void **state)
{
    (void)state;
    for (unsigned number = 0; number <= UINT16_MAX; number++) {
        struct sockaddr_storage storage = { .ss_family = (sa_family_t)number };
        weir_address address;
        memset(&address, 0xff, sizeof address);
        bool is_known = number == AF_INET || number == AF_INET6 || number == AF_UNIX;
        int code = weir_address_from_sockaddr(&address, (const struct sockaddr *)&storage, 100);
        assert_int_equal(code, is_known ? 0 : -EAFNOSUPPORT);
        assert_int_equal(is_zeroed(&address), !is_known);
    }
}

static void sockaddr_without_arguments(void **state)
{
    (void)state;
    struct sockaddr_in in = { .sin_family = AF_INET };
    weir_address address;
    memset(&address, 0xff, sizeof address);
    assert_int_equal(weir_address_from_sockaddr(&address, NULL, 16), -EINVAL);
    assert_true(is_zeroed(&address));
    assert_int_equal(weir_address_from_sockaddr(NULL, (const struct sockaddr *)&in, sizeof in),
                     -EINVAL);

    weir_address local = parsed("local:a"), ip = parsed(":80");
    const weir_address *const without[] = { NULL, &address, &local };
    for (size_t i = 0; i < COUNT(without); i++) {
        size_t length = 99;
        assert_null(weir_address_sockaddr(without[i], &length));
        assert_int_equal(length, 0);
        assert_null(weir_address_sockaddr(without[i], NULL));
    }
    assert_non_null(weir_address_sockaddr(&ip, NULL));
}

static void unaligned_and_own_bytes_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        uint8_t bytes[200];
        weir_address address = parsed(good[i].text), before = address;
        size_t length;
        const struct sockaddr *own = weir_address_sockaddr(&address, &length);
        if (own == NULL)
            continue;
        memcpy(bytes + 1, own, length);
        weir_address copy = taken(bytes + 1, length);
        assert_true(weir_address_equal(&copy, &before));
        assert_int_equal(weir_address_from_sockaddr(&address, own, length), 0);
        assert_true(weir_address_equal(&address, &before));
    }
}

/* What the kernel says of a socket that was bound to the address. */
static weir_address bound_to(const weir_address *address)
{
    struct sockaddr_storage storage;
    socklen_t name_length = sizeof storage;
    size_t length;
    const struct sockaddr *name = weir_address_sockaddr(address, &length);
    sa_family_t family;
    memcpy(&family, name, sizeof family);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, name, (socklen_t)length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&storage, &name_length), 0);
    close(fd);
    return taken(&storage, name_length);
}

static void the_kernel_gives_back_what_it_was_given(void **state)
{
    (void)state;
    char directory[] = "/tmp/weir-address-XXXXXX", text[256];
    assert_non_null(mkdtemp(directory));
    snprintf(text, sizeof text, "unix:%s/a b\\x0a", directory);
    weir_address path = parsed(text), again = bound_to(&path);
    assert_true(weir_address_equal(&path, &again));
    snprintf(text, sizeof text, "%s/a b\n", directory);
    assert_int_equal(unlink(text), 0);
    assert_int_equal(rmdir(directory), 0);

    snprintf(text, sizeof text, "unix:@weir\\x00%d", (int)getpid());
    weir_address abstract = parsed(text);
    again = bound_to(&abstract);
    assert_true(weir_address_equal(&abstract, &again));

    weir_address ip = parsed("127.0.0.1:0");
    again = bound_to(&ip);
    assert_int_not_equal(weir_address_port(&again), 0);
    assert_int_equal(weir_address_set_port(&again, 0), 0);
    assert_true(weir_address_equal(&ip, &again));
}

/* Really 108 bytes, to see that Linux does what weir counts on. */
static void the_kernel_gives_back_the_longest_path(void **state)
{
    (void)state;
    char directory[] = "/tmp/weir-address-XXXXXX", path[109];
    assert_non_null(mkdtemp(directory));
    memset(path, 'a', sizeof path);
    memcpy(path, directory, strlen(directory));
    path[strlen(directory)] = '/';
    path[108] = '\0';
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    memcpy(un.sun_path, path, 108);
    weir_address address = taken(&un, sizeof un), again = bound_to(&address);
    assert_true(weir_address_equal(&address, &again));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

/* Questions ----------------------------------------------------------------------------------- */

static void the_port_can_be_changed(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } cases[] = {
        { "127.0.0.1:0", "127.0.0.1:258" },
        { "[fe80::1%7]:65535", "[fe80::1%7]:258" },
        { "[::ffff:1.2.3.4]:80", "[::ffff:1.2.3.4]:258" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_address address = parsed(cases[i].before), same = parsed(cases[i].after);
        assert_false(weir_address_equal(&address, &same));
        assert_int_equal(weir_address_set_port(&address, 258), 0);
        assert_int_equal(weir_address_port(&address), 258);
        assert_string_equal(text_of(&address), cases[i].after);
        assert_true(weir_address_equal(&address, &same));
    }
}

static void what_has_no_port_gets_none(void **state)
{
    (void)state;
    static const char *const texts[] = { "unix:/a", "unix:@a", "local:a" };
    for (size_t i = 0; i < COUNT(texts); i++) {
        weir_address address = parsed(texts[i]), before = address;
        assert_int_equal(weir_address_set_port(&address, 80), -EINVAL);
        assert_int_equal(weir_address_port(&address), 0);
        assert_true(weir_address_equal(&address, &before));
    }
    weir_address none = { 0 };
    assert_int_equal(weir_address_set_port(&none, 80), -EINVAL);
    assert_true(is_zeroed(&none));
    assert_int_equal(weir_address_set_port(NULL, 80), -EINVAL);
    assert_int_equal(weir_address_port(NULL), 0);
}

static void every_difference_is_seen(void **state)
{
    (void)state;
    static const char *const different[] = {
        "1.2.3.4:80",     "1.2.3.4:81",      "1.2.3.5:80",      "[::ffff:1.2.3.4]:80",
        "[::1]:80",       "[::1%1]:80",      "[::1%2]:80",      "[::1]:81",
        "[::2]:80",       "unix:a",          "unix:b",          "unix:ab",
        "unix:@a",        "unix:@b",         "unix:@ab",        "unix:@a\\x00",
        "unix:\\x40a",    "local:a",         "local:b",         "local:ab",
        "unix:" NAME_107, "unix:@" NAME_107, "local:" NAME_107,
    };
    const uint64_t key[2] = { 1, 2 };
    weir_address none = { 0 };
    assert_true(weir_address_equal(&none, NULL));
    assert_true(weir_address_equal(NULL, NULL));
    assert_true(weir_address_equal(&none, &none));
    assert_int_equal(weir_address_hash(&none, key), weir_address_hash(NULL, key));
    for (size_t i = 0; i < COUNT(different); i++) {
        weir_address a = parsed(different[i]);
        assert_false(weir_address_equal(&a, NULL));
        assert_false(weir_address_equal(&none, &a));
        for (size_t j = 0; j < COUNT(different); j++) {
            weir_address b = parsed(different[j]);
            assert_int_equal(weir_address_equal(&a, &b), i == j);
            assert_int_equal(weir_address_hash(&a, key) == weir_address_hash(&b, key), i == j);
            assert_int_equal(weir_address_hash(&a, NULL) == weir_address_hash(&b, NULL), i == j);
        }
    }
}

static void what_lies_behind_the_address_does_not_count(void **state)
{
    (void)state;
    weir_address a = parsed("local:a"), b = a;
    memset(b.storage.bytes + b.length, 0xff, sizeof b.storage.bytes - b.length);
    assert_true(weir_address_equal(&a, &b));
    assert_int_equal(weir_address_hash(&a, NULL), weir_address_hash(&b, NULL));
    weir_address none = { 0 }, dirty = parsed("1.2.3.4:80");
    dirty.length = 0;
    assert_int_equal(weir_address_kind_of(&dirty), WEIR_ADDRESS_NONE);
    assert_true(weir_address_equal(&none, &dirty));
    assert_int_equal(weir_address_hash(&none, NULL), weir_address_hash(&dirty, NULL));
}

static void the_hash_depends_on_the_key(void **state)
{
    (void)state;
    const uint64_t one[2] = { 1, 2 }, other[2] = { 1, 3 };
    weir_address address = parsed("1.2.3.4:80");
    assert_true(weir_address_hash(&address, one) != weir_address_hash(&address, other));
    assert_true(weir_address_hash(&address, one) != weir_address_hash(&address, NULL));
}

static void the_special_hosts_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_any, is_loopback, is_multicast;
    } cases[] = {
        { "0.0.0.0:80", true, false, false },
        { ":80", true, false, false },
        { "[::ffff:0.0.0.0]:80", true, false, false },
        { "0.0.0.1:80", false, false, false },
        { "[::2]:80", false, false, false },
        { "[::ffff:0.0.0.1]:80", false, false, false },
        { "127.0.0.1:80", false, true, false },
        { "127.0.0.0:80", false, true, false },
        { "127.255.255.255:80", false, true, false },
        { "[::1]:80", false, true, false },
        { "[::ffff:127.1.2.3]:80", false, true, false },
        { "126.255.255.255:80", false, false, false },
        { "128.0.0.0:80", false, false, false },
        { "1.0.0.127:80", false, false, false },
        { "[::127.0.0.1]:80", false, false, false },
        { "[::ffff:128.0.0.1]:80", false, false, false },
        { "224.0.0.0:80", false, false, true },
        { "239.255.255.255:80", false, false, true },
        { "[ff02::1%1]:80", false, false, true },
        { "[ff00::]:80", false, false, true },
        { "[::ffff:224.0.0.1]:80", false, false, true },
        { "223.255.255.255:80", false, false, false },
        { "240.0.0.0:80", false, false, false },
        { "[fe80::1]:80", false, false, false },
        { "unix:/a", false, false, false },
        { "unix:@\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00", false, false, false },
        { "local:a", false, false, false },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_address address = parsed(cases[i].text), before = address;
        if (weir_address_is_any(&address) != cases[i].is_any ||
            weir_address_is_loopback(&address) != cases[i].is_loopback ||
            weir_address_is_multicast(&address) != cases[i].is_multicast)
            fail_msg("%s", cases[i].text);
        assert_true(weir_address_equal(&address, &before));
    }
    weir_address none = { 0 };
    const weir_address *const nothing[] = { NULL, &none };
    for (size_t i = 0; i < COUNT(nothing); i++) {
        assert_false(weir_address_is_any(nothing[i]));
        assert_false(weir_address_is_loopback(nothing[i]));
        assert_false(weir_address_is_multicast(nothing[i]));
    }
}

static void mapped_addresses_become_plain(void **state)
{
    (void)state;
    weir_address address = parsed("[::ffff:1.2.3.4%5]:80"), plain = parsed("1.2.3.4:80");
    assert_true(weir_address_unmap(&address));
    assert_int_equal(weir_address_kind_of(&address), WEIR_ADDRESS_IPV4);
    assert_true(weir_address_equal(&address, &plain));
    assert_string_equal(text_of(&address), "1.2.3.4:80");
    assert_false(weir_address_unmap(&address)); /* not twice */
    assert_true(weir_address_equal(&address, &plain));

    static const char *const others[] = {
        "[::1.2.3.4]:80", "[::fffe:1.2.3.4]:80", "[1::ffff:1.2.3.4]:80", "[::1]:80", "unix:/a",
        "local:a"
    };
    for (size_t i = 0; i < COUNT(others); i++) {
        weir_address other = parsed(others[i]), before = other;
        assert_false(weir_address_unmap(&other));
        assert_true(weir_address_equal(&other, &before));
    }
    weir_address none = { 0 };
    assert_false(weir_address_unmap(&none));
    assert_false(weir_address_unmap(NULL));
}

static void nothing_of_it_can_fail_for_want_of_memory(void **state)
{
    (void)state;
    harness_fail_nth(NULL, 1, -ENOMEM);
    for (size_t i = 0; i < COUNT(good); i++) {
        weir_address address = parsed(good[i].text), copy;
        size_t length;
        const struct sockaddr *from = weir_address_sockaddr(&address, &length);
        assert_int_equal(weir_address_from_sockaddr(&copy, from, length),
                         from != NULL ? 0 : -EINVAL);
        text_of(&address);
    }
    assert_int_equal(harness_fail_end(), 0);
}

/* Part of the binary interface, as are the kinds' numbers. */
static void the_layout_stays(void **state)
{
    (void)state;
    assert_int_equal(sizeof(weir_address), 128);
    assert_int_equal(offsetof(weir_address, storage), 8);
    assert_int_equal(WEIR_ADDRESS_NONE, 0);
    assert_int_equal(WEIR_ADDRESS_IPV4, 1);
    assert_int_equal(WEIR_ADDRESS_IPV6, 2);
    assert_int_equal(WEIR_ADDRESS_UNIX, 3);
    assert_int_equal(WEIR_ADDRESS_LOCAL, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(good_texts_are_read_and_written_back),
        weir_case(bad_texts_are_refused_with_a_reason),
        weir_case(the_message_names_the_text),
        weir_case(parsing_without_arguments_is_refused),
        weir_case(a_good_text_leaves_the_error_alone),
        weir_case(an_interface_is_known_by_name_or_number),
        weir_case(text_is_cut_to_every_size),
        weir_case(none_is_a_dash),
        weir_case(any_byte_in_a_name_is_read_back),
        weir_case(escapes_stand_for_their_bytes),
        weir_case(ipv4_goes_in_and_out),
        weir_case(ipv6_goes_in_and_out),
        weir_case(unix_goes_in_and_out),
        weir_case(unix_path_of_one_byte_is_a_path),
        weir_case(abstract_names_go_in_and_out),
        weir_case(an_unnamed_socket_has_the_family_only),
        weir_case(the_longest_path_of_a_peer_is_taken),
        weir_case(wrong_lengths_are_refused),
        weir_case(other_families_are_refused),
        weir_case(sockaddr_without_arguments),
        weir_case(unaligned_and_own_bytes_are_taken),
        weir_case(the_kernel_gives_back_what_it_was_given),
        weir_case(the_kernel_gives_back_the_longest_path),
        weir_case(the_port_can_be_changed),
        weir_case(what_has_no_port_gets_none),
        weir_case(every_difference_is_seen),
        weir_case(what_lies_behind_the_address_does_not_count),
        weir_case(the_hash_depends_on_the_key),
        weir_case(the_special_hosts_are_known),
        weir_case(mapped_addresses_become_plain),
        weir_case(nothing_of_it_can_fail_for_want_of_memory),
        weir_case(the_layout_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
