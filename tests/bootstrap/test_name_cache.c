/* SPDX-License-Identifier: MIT */
/* The cache of DNS answers. */
#include "bootstrap/name_cache.h"
#include "bootstrap/shared.h"

#include <weir/timer.h>

static weir_candidates some(const char *text)
{
    weir_candidates found = { 0 };
    weir_address address;
    if (text != NULL) {
        assert_int_equal(weir_address_parse(&address, text, NULL), 0);
        weir__candidates_add(&found, &address);
    }
    return found;
}

static void put(weir_name_cache *cache, const char *host, const char *text, uint32_t ttl_s,
                int64_t now_ns)
{
    weir_candidates found = some(text);
    weir__name_cache_put(cache, host, AF_INET, &found, ttl_s, now_ns);
}

/* The first address, "" for none of a host that is known, NULL for one that is not. */
static const char *get(weir_name_cache *cache, const char *host, int64_t now_ns)
{
    static char text[WEIR_ADDRESS_TEXT_MAX];
    weir_candidates found;
    if (!weir__name_cache_find(cache, host, AF_INET, now_ns, &found))
        return NULL;
    text[0] = '\0';
    if (found.count[0] > 0)
        weir_address_text(&found.list[0][0], text, sizeof text);
    return text;
}

static void entries_expire_with_their_lifetime(void **state)
{
    (void)state;
    weir_name_cache cache = { .key = { 1, 2 } };
    assert_null(get(&cache, "a.example", 0));
    put(&cache, "a.example", "1.1.1.1:0", 10, WEIR_SECONDS(100));
    put(&cache, "b.example", "2.2.2.2:0", 0, WEIR_SECONDS(100));
    assert_string_equal(get(&cache, "A.Example", WEIR_SECONDS(110) - 1), "1.1.1.1:0");
    assert_null(get(&cache, "b.example", WEIR_SECONDS(100)));
    assert_null(get(&cache, "a.exampl", WEIR_SECONDS(100)));
    assert_null(get(&cache, "a.example", WEIR_SECONDS(110)));
    assert_int_equal(cache.count, 0);
    weir__name_cache_clear(&cache);
}

static void lifetimes_are_limited(void **state)
{
    (void)state;
    weir_name_cache cache = { .key = { 1, 2 } };
    put(&cache, "long.example", "1.1.1.1:0", UINT32_MAX, 0);
    put(&cache, "none.example", NULL, 3600, 0);
    assert_string_equal(get(&cache, "long.example", WEIR_SECONDS(WEIR__NAME_TTL_MAX_S) - 1),
                        "1.1.1.1:0");
    assert_null(get(&cache, "long.example", WEIR_SECONDS(WEIR__NAME_TTL_MAX_S)));
    assert_string_equal(get(&cache, "none.example", WEIR_SECONDS(WEIR__NAME_TTL_ABSENT_S) - 1), "");
    assert_null(get(&cache, "none.example", WEIR_SECONDS(WEIR__NAME_TTL_ABSENT_S)));
    weir__name_cache_clear(&cache);
}

static void later_answer_replaces_the_earlier(void **state)
{
    (void)state;
    weir_name_cache cache = { .key = { 1, 2 } };
    put(&cache, "a.example", "1.1.1.1:0", 10, 0);
    put(&cache, "A.example", "2.2.2.2:0", 20, 0);
    assert_int_equal(cache.count, 1);
    assert_string_equal(get(&cache, "a.example", WEIR_SECONDS(15)), "2.2.2.2:0");
    put(&cache, "a.example", "3.3.3.3:0", 0, 0); /* which is not to be kept */
    assert_null(get(&cache, "a.example", 0));
    weir__name_cache_clear(&cache);
    assert_null(get(&cache, "a.example", 0));
}

static void families_are_separate_answers(void **state)
{
    (void)state;
    weir_name_cache cache = { .key = { 1, 2 } };
    weir_candidates four = some("1.1.1.1:0"), none = some(NULL), found;
    weir__name_cache_put(&cache, "a.example", AF_INET, &four, 300, 0);
    assert_false(weir__name_cache_find(&cache, "a.example", AF_INET6, 0, &found));
    weir__name_cache_put(&cache, "a.example", AF_INET6, &none, 300, 0);
    assert_int_equal(cache.count, 2);
    assert_true(weir__name_cache_find(&cache, "a.example", AF_INET6, 0, &found));
    assert_int_equal(found.count[0], 0);
    int64_t later_ns = WEIR_SECONDS(WEIR__NAME_TTL_ABSENT_S);
    assert_false(weir__name_cache_find(&cache, "a.example", AF_INET6, later_ns, &found));
    assert_string_equal(get(&cache, "a.example", later_ns), "1.1.1.1:0");
    weir__name_cache_clear(&cache);
}

static void full_cache_drops_the_entry_not_used_for_longest(void **state)
{
    (void)state;
    char host[32];
    weir_name_cache cache = { .key = { 1, 2 } };
    for (int i = 0; i < WEIR__NAME_CACHE_MAX; i++) {
        snprintf(host, sizeof host, "h%d.example", i);
        put(&cache, host, "1.1.1.1:0", 10, 0);
    }
    assert_non_null(get(&cache, "h0.example", 0));
    for (int i = 0; i < 3; i++) {
        snprintf(host, sizeof host, "more%d.example", i);
        put(&cache, host, "1.1.1.1:0", 10, 0);
        assert_int_equal(cache.count, WEIR__NAME_CACHE_MAX);
    }
    assert_non_null(get(&cache, "h0.example", 0));
    for (int i = 1; i < 4; i++) {
        snprintf(host, sizeof host, "h%d.example", i);
        assert_null(get(&cache, host, 0));
    }
    assert_non_null(get(&cache, "h4.example", 0));
    weir__name_cache_clear(&cache);
}

static void without_memory_nothing_is_kept(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 2; nth++) {
        weir_name_cache cache = { .key = { 1, 2 } };
        harness_fail_nth("alloc", nth, -ENOMEM);
        put(&cache, "a.example", "1.1.1.1:0", 10, 0);
        assert_int_equal(harness_fail_end(), nth);
        assert_null(get(&cache, "a.example", 0));
        put(&cache, "a.example", "1.1.1.1:0", 10, 0);
        assert_non_null(get(&cache, "a.example", 0));
        weir__name_cache_clear(&cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(entries_expire_with_their_lifetime),
        weir_case(lifetimes_are_limited),
        weir_case(later_answer_replaces_the_earlier),
        weir_case(families_are_separate_answers),
        weir_case(full_cache_drops_the_entry_not_used_for_longest),
        weir_case(without_memory_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
