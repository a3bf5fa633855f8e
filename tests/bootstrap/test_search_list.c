/* SPDX-License-Identifier: MIT */
/* The search list. */
#include "bootstrap/name_config.h"
#include "bootstrap/shared.h"

/* "ndots: domain domain" */
static const char *read_list(const char *conf, const char *localdomain, const char *res_options)
{
    static char text[WEIR__SEARCH_MAX * (WEIR__NAME_MAX + 1) + 16];
    static weir_search_list list;
    memset(&list, 0xa5, sizeof list);
    weir__search_list_read(&list, conf, localdomain, res_options);
    int used = snprintf(text, sizeof text, "%u:", list.ndots);
    for (unsigned i = 0; i < list.count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %s", list.domains[i]);
    return text;
}

static void last_search_or_domain_line_counts(void **state)
{
    static const struct {
        const char *conf, *list;
    } cases[] = {
        { "", "1:" },
        { "nameserver 127.0.0.1\n", "1:" },
        { "search a.example b.example\n", "1: a.example b.example" },
        { "search\ta.example  \t b.example \r\n", "1: a.example b.example" },
        { "search a.example", "1: a.example" },
        { "domain a.example b.example\n", "1: a.example" },
        { "domain a.example\nsearch b c\n", "1: b c" },
        { "search b c\ndomain a.example\n", "1: a.example" },
        { "search a\nsearch b\n", "1: b" },
        { "search a\nsearch \n", "1:" },
        { "# search a\n;search b\nsearching c\nsearchd\n search e\nsearch", "1:" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(read_list(cases[i].conf, NULL, NULL), cases[i].list);
}

static void words_that_are_no_domains_are_ignored(void **state)
{
    (void)state;
    assert_string_equal(read_list("search . a.example. b..c .d e.. f/g h_i-j \x80 k\n", NULL, NULL),
                        "1: a.example h_i-j k");
    char conf[600] = "search ";
    memset(conf + 7, 'a', 500);
    for (size_t i = 7; i < 500; i += 50)
        conf[i + 49] = '.';
    strcpy(conf + 7 + WEIR__NAME_MAX + 1, " b\n");
    assert_string_equal(read_list(conf, NULL, NULL), "1: b"); /* it has a byte too many */
    strcpy(conf + 7 + WEIR__NAME_MAX, " b\n");
    assert_int_equal(strlen(read_list(conf, NULL, NULL)), 3 + WEIR__NAME_MAX + 2);
}

static void number_of_domains_is_limited(void **state)
{
    (void)state;
    char conf[512] = "search";
    for (int i = 0; i < WEIR__SEARCH_MAX + 5; i++)
        snprintf(conf + strlen(conf), sizeof conf - strlen(conf), " d%d", i);
    weir_search_list list;
    weir__search_list_read(&list, conf, NULL, NULL);
    assert_int_equal(list.count, WEIR__SEARCH_MAX);
    assert_string_equal(list.domains[WEIR__SEARCH_MAX - 1], "d31");
}

static void options_set_ndots(void **state)
{
    static const struct {
        const char *conf, *list;
    } cases[] = {
        { "options ndots:5\n", "5:" },
        { "options rotate ndots:2 timeout:1\noptions edns0\n", "2:" },
        { "options ndots:0\n", "0:" },
        { "options ndots:2\noptions ndots:3\n", "3:" },
        { "options ndots:16\n", "15:" },
        { "options ndots:4294967297\n", "15:" },
        { "options ndots:\n", "1:" },
        { "options ndots:x ndots:2x ndots:-1 ndots ndots\n", "1:" },
        { "options xndots:4\n", "1:" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(read_list(cases[i].conf, NULL, NULL), cases[i].list);
}

static void environment_overrides_the_file(void **state)
{
    (void)state;
    static const char conf[] = "search a b\noptions ndots:3\n";
    assert_string_equal(read_list(conf, "c d.example", NULL), "3: c d.example");
    assert_string_equal(read_list(conf, "", NULL), "3:");
    assert_string_equal(read_list(conf, NULL, "rotate ndots:4"), "4: a b");
    assert_string_equal(read_list(conf, NULL, ""), "3: a b");
}

/* All names, with a space after each. */
static const char *names_for(const char *conf, const char *host)
{
    static char text[4096];
    weir_search_list list;
    weir_absolute_name name;
    weir__search_list_read(&list, conf, NULL, NULL);
    text[0] = '\0';
    for (unsigned nth = 0; weir__search_list_name(&list, host, nth, name); nth++)
        strcat(strcat(text, name), " ");
    return text;
}

static void names_are_absolute_and_in_order(void **state)
{
    (void)state;
    assert_string_equal(names_for("", "host"), "host. ");
    assert_string_equal(names_for("", "host.a"), "host.a. ");
    assert_string_equal(names_for("search a b\n", "host"), "host.a. host.b. host. ");
    assert_string_equal(names_for("search a b\n", "host.c"), "host.c. host.c.a. host.c.b. ");
    assert_string_equal(names_for("search a b\n", "host."), "host. ");
    assert_string_equal(names_for("search a b\noptions ndots:2\n", "host.c"),
                        "host.c.a. host.c.b. host.c. ");
    assert_string_equal(names_for("search a\noptions ndots:5\n", "host.c."), "host.c. ");
    assert_string_equal(names_for("search a\noptions ndots:0\n", "host"), "host. host.a. ");
}

static void name_that_is_too_long_is_empty(void **state)
{
    (void)state;
    char host[WEIR__NAME_MAX + 1], expected[WEIR__NAME_MAX + 8];
    memset(host, 'a', sizeof host);
    host[WEIR__NAME_MAX] = '\0';
    snprintf(expected, sizeof expected, " %s. ", host);
    assert_string_equal(names_for("search b\n", host), expected);
    host[WEIR__NAME_MAX - 2] = '\0';
    snprintf(expected, sizeof expected, "%s.b. ", host);
    assert_int_equal(strncmp(names_for("search b\n", host), expected, strlen(expected)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(last_search_or_domain_line_counts),
        weir_case(words_that_are_no_domains_are_ignored),
        weir_case(number_of_domains_is_limited),
        weir_case(options_set_ndots),
        weir_case(environment_overrides_the_file),
        weir_case(names_are_absolute_and_in_order),
        weir_case(name_that_is_too_long_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
