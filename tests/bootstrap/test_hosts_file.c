/* SPDX-License-Identifier: MIT */
/* The hosts file. */
#include "base/alloc.h"
#include "bootstrap/hosts_file.h"
#include "bootstrap/shared.h"

static int init_file(weir_hosts_file *file, const char *text)
{
    char *copy = weir__alloc(strlen(text) + 1);
    if (copy == NULL)
        return -ENOMEM;
    int code = weir__hosts_file_init(file, strcpy(copy, text));
    if (code < 0)
        weir__free(copy);
    return code;
}

static void append(char *to, const weir_candidates *found)
{
    for (size_t i = 0; i < found->count[0]; i++) {
        char one[WEIR_ADDRESS_TEXT_MAX];
        weir_address_text(&found->list[0][i], one, sizeof one);
        strcat(strcat(to, one), " ");
    }
    assert_int_equal(found->count[1], 0); /* one family each */
}

/* The addresses, those of IPv6 first, with a space after each. */
static const char *look_up(const weir_hosts_file *file, const char *host)
{
    static char text[WEIR_ADDRESSES_MAX * 2 * WEIR_ADDRESS_TEXT_MAX];
    weir_candidates ipv6 = { 0 }, ipv4 = { 0 };
    bool is_found = weir__hosts_file_find(file, host, &ipv6, &ipv4);
    text[0] = '\0';
    append(text, &ipv6);
    append(text, &ipv4);
    assert_int_equal(is_found, text[0] != '\0');
    return text;
}

static void every_name_of_a_line_has_its_address(void **state)
{
    (void)state;
    weir_hosts_file file;
    assert_int_equal(init_file(&file, "# a comment 10.0.0.9 no\n"
                                      "10.0.0.1 one.example one\n"
                                      "\n"
                                      "  \t10.0.0.2\tTWO \t two.example # three\n"
                                      "10.0.0.3 four#five\r\n"
                                      "2001:db8::1 six\r\n"
                                      "10.0.0.4\n"
                                      "10.0.0.5 last"),
                     0);
    assert_string_equal(look_up(&file, "one"), "10.0.0.1:0 ");
    assert_string_equal(look_up(&file, "ONE.example"), "10.0.0.1:0 ");
    assert_string_equal(look_up(&file, "one.example."), "10.0.0.1:0 ");
    assert_string_equal(look_up(&file, "two"), "10.0.0.2:0 ");
    assert_string_equal(look_up(&file, "two.example"), "10.0.0.2:0 ");
    assert_string_equal(look_up(&file, "four"), "10.0.0.3:0 ");
    assert_string_equal(look_up(&file, "six"), "[2001:db8::1]:0 ");
    assert_string_equal(look_up(&file, "last"), "10.0.0.5:0 ");
    static const char *const absent[] = { "three", "five",  "no",           "10.0.0.9", "on",
                                          "onee",  "one..", "two.example2", "a",        "." };
    for (size_t i = 0; i < COUNT(absent); i++)
        assert_string_equal(look_up(&file, absent[i]), "");
    weir__hosts_file_free(&file);
}

static void name_on_several_lines_has_all_addresses(void **state)
{
    (void)state;
    weir_hosts_file file;
    assert_int_equal(init_file(&file, "10.0.0.2 multi\n::2 multi\n10.0.0.3 other multi\n"
                                      "10.0.0.2 multi\n10.0.0.1 Multi\n"),
                     0);
    assert_string_equal(look_up(&file, "multi"), "[::2]:0 10.0.0.2:0 10.0.0.3:0 10.0.0.1:0 ");
    weir__hosts_file_free(&file);

    char text[1024] = "", line[32];
    for (int i = 0; i < WEIR_ADDRESSES_MAX + 4; i++) {
        snprintf(line, sizeof line, "10.0.0.%d multi\n", i);
        strcat(text, line);
    }
    weir_candidates ipv6 = { 0 }, ipv4 = { 0 };
    assert_int_equal(init_file(&file, text), 0);
    assert_true(weir__hosts_file_find(&file, "multi", &ipv6, &ipv4));
    assert_int_equal(ipv4.count[0], WEIR_ADDRESSES_MAX);
    weir__hosts_file_free(&file);
}

static void line_without_a_valid_address_is_ignored(void **state)
{
    (void)state;
    weir_hosts_file file;
    assert_int_equal(init_file(&file, "10.0.0 a\n10.0.0.256 a\nb a\n::g a\n1.2.3.4:80 a\n* a\n"),
                     0);
    assert_string_equal(look_up(&file, "a"), "");
    weir__hosts_file_free(&file);
}

static void localhost_without_an_entry_is_the_loopback(void **state)
{
    (void)state;
    weir_hosts_file file;
    assert_int_equal(init_file(&file, ""), 0);
    assert_string_equal(look_up(&file, "localhost"), "[::1]:0 127.0.0.1:0 ");
    assert_string_equal(look_up(&file, "a.LocalHost."), "[::1]:0 127.0.0.1:0 ");
    assert_string_equal(look_up(&file, "notlocalhost"), "");
    assert_string_equal(look_up(&file, "localhost.example"), "");
    weir__hosts_file_free(&file);
    assert_int_equal(init_file(&file, "127.0.0.9 localhost\n"), 0);
    assert_string_equal(look_up(&file, "localhost"), "127.0.0.9:0 ");
    weir__hosts_file_free(&file);
}

static void large_file_is_searched_by_its_index(void **state)
{
    enum { LINES = 150000 };
    (void)state;
    size_t used = 0, size = (size_t)LINES * 40;
    char *text = weir__alloc(size), host[40];
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        used += (size_t)snprintf(text + used, size - used, "10.1.2.3 ad%d.tracker.example\n", i);
    weir_hosts_file file;
    assert_int_equal(weir__hosts_file_init(&file, text), 0);
    assert_int_equal(file.count, LINES);
    for (int i = 0; i < LINES; i += 7) {
        weir_candidates ipv6 = { 0 }, ipv4 = { 0 };
        snprintf(host, sizeof host, "AD%d.tracker.example", i);
        assert_true(weir__hosts_file_find(&file, host, &ipv6, &ipv4));
    }
    uint32_t longest = 0;
    for (uint32_t i = 0; i <= file.mask; i++) {
        uint32_t length = 0;
        for (uint32_t at = file.buckets[i]; at != 0; at = file.entries[at - 1].next)
            length++;
        longest = length > longest ? length : longest;
    }
    assert_true(longest < 16);
    weir__hosts_file_free(&file);
}

static void out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    weir_hosts_file file;
    for (unsigned nth = 1; nth <= 3; nth++) {
        harness_fail_nth("alloc", nth, -ENOMEM);
        int code = init_file(&file, "10.0.0.1 a\n");
        harness_fail_end();
        assert_int_equal(code, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_name_of_a_line_has_its_address),
        weir_case(name_on_several_lines_has_all_addresses),
        weir_case(line_without_a_valid_address_is_ignored),
        weir_case(localhost_without_an_entry_is_the_loopback),
        weir_case(large_file_is_searched_by_its_index),
        weir_case(out_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
