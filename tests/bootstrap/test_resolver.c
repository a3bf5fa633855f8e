/* SPDX-License-Identifier: MIT */
/* Resolving: texts that are addresses, names that are asked for, and lists in the order to try. */
#include "exec/executors.h"

#include "base/sys.h"
#include "exec/blocking_pool.h"

#include <weir/resolver.h>
#include <weir/threads.h>

#include <netinet/in.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MOST 100 /* addresses of one answer, or of one list of texts */

/* Addresses as text, a space between two. */
static size_t read_list(const char *text, weir_address *list)
{
    char copy[8192];
    size_t count = 0;
    char *rest = NULL;
    assert_true(strlen(text) < sizeof copy);
    strcpy(copy, text);
    for (char *one = strtok_r(copy, " ", &rest); one != NULL; one = strtok_r(NULL, " ", &rest)) {
        assert_true(count < MOST);
        if (strcmp(one, "-") == 0)
            list[count++] = (weir_address){ 0 };
        else
            assert_int_equal(weir_address_parse(&list[count++], one, NULL), 0);
    }
    return count;
}

static void assert_list(const weir_addresses *addresses, const char *expected)
{
    char text[8192] = "";
    assert_non_null(addresses);
    for (size_t i = 0; i < addresses->count; i++) {
        char one[WEIR_ADDRESS_TEXT_MAX];
        weir_address_text(&addresses->list[i], one, sizeof one);
        strcat(strcat(text, i > 0 ? " " : ""), one);
    }
    assert_string_equal(text, expected);
}

static weir_addresses *list_of(const char *texts)
{
    weir_address from[MOST];
    return weir_addresses_new(from, read_list(texts, from));
}

/* Lists -------------------------------------------------------------------------------------- */

static void lists_take_turns_between_kinds_without_duplicates(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } cases[] = {
        { "", "" },
        { "-", "" },
        { "1.1.1.1:1", "1.1.1.1:1" },
        { "1.1.1.1:1 2.2.2.2:1 3.3.3.3:1", "1.1.1.1:1 2.2.2.2:1 3.3.3.3:1" },
        { "1.1.1.1:1 [::2]:1", "1.1.1.1:1 [::2]:1" },
        { "[::2]:1 1.1.1.1:1", "[::2]:1 1.1.1.1:1" },
        { "[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1 2.2.2.2:1 3.3.3.3:1",
          "[::1]:1 1.1.1.1:1 [::2]:1 2.2.2.2:1 [::3]:1 3.3.3.3:1" },
        { "1.1.1.1:1 2.2.2.2:1 [::1]:1 [::2]:1 3.3.3.3:1 [::3]:1",
          "1.1.1.1:1 [::1]:1 2.2.2.2:1 [::2]:1 3.3.3.3:1 [::3]:1" },
        /* One side is longer. */
        { "[::1]:1 [::2]:1 [::3]:1 [::4]:1 1.1.1.1:1",
          "[::1]:1 1.1.1.1:1 [::2]:1 [::3]:1 [::4]:1" },
        { "[::1]:1 1.1.1.1:1 2.2.2.2:1 3.3.3.3:1", "[::1]:1 1.1.1.1:1 2.2.2.2:1 3.3.3.3:1" },
        /* What occurs again, wherever that is. */
        { "1.1.1.1:1 1.1.1.1:1", "1.1.1.1:1" },
        { "1.1.1.1:1 [::1]:1 1.1.1.1:1 [::1]:1 2.2.2.2:1 [::1]:1", "1.1.1.1:1 [::1]:1 2.2.2.2:1" },
        { "[::1]:1 [::2]:1 [::1]:1 1.1.1.1:1", "[::1]:1 1.1.1.1:1 [::2]:1" },
        /* Not the same: the port, the interface, the other form. */
        { "1.1.1.1:1 1.1.1.1:2", "1.1.1.1:1 1.1.1.1:2" },
        { "[fe80::1%1]:1 [fe80::1%2]:1 [fe80::1%1]:1", "[fe80::1%1]:1 [fe80::1%2]:1" },
        { "[::ffff:1.1.1.1]:1 1.1.1.1:1", "[::ffff:1.1.1.1]:1 1.1.1.1:1" },
        /* No address, and other kinds. */
        { "- 1.1.1.1:1 - [::1]:1 -", "1.1.1.1:1 [::1]:1" },
        { "unix:/a 1.1.1.1:1 unix:/b local:a", "unix:/a 1.1.1.1:1 unix:/b local:a" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_addresses *addresses = list_of(cases[i].from);
        assert_list(addresses, cases[i].to);
        weir_addresses_free(addresses);
    }
    weir_addresses *none = weir_addresses_new(NULL, 0);
    assert_list(none, "");
    weir_addresses_free(none);
    weir_addresses_free(NULL);
}

/* So many addresses of IPv6, then of IPv4. */
static weir_addresses *list_of_many(int ipv6, int ipv4)
{
    weir_address from[MOST];
    size_t count = 0;
    char text[32];
    for (int i = 0; i < ipv6 + ipv4; i++) {
        snprintf(text, sizeof text, i < ipv6 ? "[::1:%d]:1" : "1.1.1.%d:1", i);
        assert_int_equal(weir_address_parse(&from[count++], text, NULL), 0);
    }
    return weir_addresses_new(from, count);
}

static size_t count_of(const weir_addresses *addresses, weir_address_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < addresses->count; i++)
        count += weir_address_kind_of(&addresses->list[i]) == kind;
    return count;
}

static void lists_have_sixteen_at_most_but_of_both_kinds(void **state)
{
    (void)state;
    static const struct {
        int ipv6, ipv4;
        size_t first, second;
    } cases[] = {
        { 15, 0, 15, 0 }, { 16, 0, 16, 0 }, { 17, 0, 16, 0 }, { 50, 50, 8, 8 },
        { 40, 3, 13, 3 }, { 3, 40, 3, 13 }, { 50, 1, 15, 1 }, { 8, 9, 8, 8 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_addresses *addresses = list_of_many(cases[i].ipv6, cases[i].ipv4);
        assert_int_equal(count_of(addresses, WEIR_ADDRESS_IPV6), cases[i].first);
        assert_int_equal(count_of(addresses, WEIR_ADDRESS_IPV4), cases[i].second);
        weir_addresses_free(addresses);
    }
}

static void lists_need_memory(void **state)
{
    (void)state;
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_null(list_of("1.1.1.1:1"));
    assert_int_equal(harness_fail_end(), 1);
}

/* A name service ----------------------------------------------------------------------------- */

/* The kernel's table with a name service that says what it is told to. */
typedef struct names {
    weir_sys calls; /* first: this is what the group is given */
    int result, error;
    const char *addresses;     /* what it answers, in that order */
    bool has_odd_answers;      /* and among them some that are no IP addresses */
    atomic_bool is_held;       /* it waits */
    atomic_int asked, waiting; /* questions; those that wait now */
    atomic_int lists;          /* given out and not taken back */

    /* Of the last question. */
    char host[300];
    struct addrinfo hints;
    bool has_service;
    weir_executor *executor;
    pthread_t thread;
} names;

static names service;

static void add_answer(struct addrinfo **list, const struct sockaddr *address, size_t length)
{
    struct addrinfo *one = calloc(1, sizeof *one + length);
    assert_non_null(one);
    one->ai_addr = (struct sockaddr *)(one + 1);
    one->ai_addrlen = (socklen_t)length;
    memcpy(one + 1, address, length);
    while (*list != NULL)
        list = &(*list)->ai_next;
    *list = one;
}

static struct addrinfo *make_answers(void)
{
    struct addrinfo *list = NULL;
    weir_address addresses[MOST];
    size_t count = read_list(service.addresses, addresses);
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const struct sockaddr *address = weir_address_sockaddr(&addresses[i], &length);
        if (service.has_odd_answers) {
            struct sockaddr odd = { .sa_family = AF_PACKET };
            add_answer(&list, &odd, sizeof odd);
            add_answer(&list, address, 3);
        }
        add_answer(&list, address, length);
    }
    return list;
}

static int service_getaddrinfo(weir_sys *self, const char *host, const char *name,
                               const struct addrinfo *hints, struct addrinfo **list)
{
    assert_ptr_equal(self, &service.calls);
    atomic_fetch_add(&service.waiting, 1);
    WAIT_FOR(!atomic_load(&service.is_held) || strcmp(host, "quick.example") == 0);
    atomic_fetch_sub(&service.waiting, 1);
    static pthread_mutex_t lock =
        PTHREAD_MUTEX_INITIALIZER; /* questions come from several threads */
    pthread_mutex_lock(&lock);
    snprintf(service.host, sizeof service.host, "%s", host);
    service.hints = *hints;
    service.has_service = name != NULL;
    service.executor = weir_executor_current();
    service.thread = pthread_self();
    pthread_mutex_unlock(&lock);
    if (service.result == 0) {
        *list = make_answers();
        atomic_fetch_add(&service.lists, 1);
    }
    atomic_fetch_add(&service.asked, 1);
    errno = service.error;
    return service.result;
}

static void service_freeaddrinfo(weir_sys *self, struct addrinfo *list)
{
    assert_ptr_equal(self, &service.calls);
    while (list != NULL) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
    atomic_fetch_sub(&service.lists, 1);
}

static weir_group *with_service(weir_group *group, const char *addresses)
{
    service = (names){ .calls = *weir__sys_linux(), .addresses = addresses };
    service.calls.getaddrinfo = service_getaddrinfo;
    service.calls.freeaddrinfo = service_freeaddrinfo;
    weir_group_at(group, 0)->sys = &service.calls;
    return group;
}

static weir_group *new_manual_group(void)
{
    return new_group(&(weir_group_config){ .count = 1, .is_manual = true });
}

/* Its thread ends after an idle second; with it goes what it held. */
static void wait_for_background(void)
{
    assert_int_equal(weir_executor_global_wait_idle(30000000000), 0);
    assert_int_equal(atomic_load(&service.lists), 0);
}

static const weir_addresses *value_of(weir_promise *promise)
{
    return weir_future_value(weir_promise_future(promise));
}

static int code_of(weir_promise *promise)
{
    return weir_future_code(weir_promise_future(promise));
}

/* For promises that stay without a result. */
static void discard(weir_promise *promise)
{
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
}

/* Resolves a text and waits for what becomes of it. */
static weir_promise *resolve(weir_group *group, const char *text)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_error error = { 0 };
    assert_int_equal(weir_resolve(group, NULL, text, promise, &error), 0);
    assert_int_equal(error.code, 0);
    weir_future_await(weir_promise_future(promise));
    return promise;
}

/* Addresses ---------------------------------------------------------------------------------- */

static int never_asked(weir_resolver *resolver, weir_executor *background, const char *host,
                       uint16_t port, weir_promise *promise)
{
    (void)resolver, (void)background, (void)port, (void)promise;
    fail_msg("asked for %s", host);
    return 0;
}

static void addresses_are_answered_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *text, *list;
    } cases[] = {
        { "127.0.0.1:80", "127.0.0.1:80" },
        { "0.0.0.0:0", "0.0.0.0:0" },
        { "255.255.255.255:65535", "255.255.255.255:65535" },
        { "[::1]:8007", "[::1]:8007" },
        { "[2001:db8::1]:1", "[2001:db8::1]:1" },
        { "[fe80::1%1]:80", "[fe80::1%1]:80" },
        { ":8007", "[::]:8007" },
        { "*:8007", "[::]:8007" },
        { "unix:/path/to sock", "unix:/path/to sock" },
        { "unix:80", "unix:80" },
        { "unix:@name", "unix:@name" },
        { "local:name", "local:name" },
        { "local:80", "local:80" },
    };
    weir_resolver never = { .resolve = never_asked };
    weir_group *group = with_service(new_group_of(1), "");
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_promise *promises[2] = { weir_promise_new(NULL), weir_promise_new(NULL) };
        for (int with = 0; with < 2; with++) {
            weir_error error = { .code = 7 };
            assert_int_equal(
                weir_resolve(group, with ? &never : NULL, cases[i].text, promises[with], &error),
                0);
            assert_int_equal(error.code, 7);
            assert_int_equal(code_of(promises[with]), 0);
            assert_list(value_of(promises[with]), cases[i].list);
            weir_promise_release(promises[with]);
        }
    }
    assert_int_equal(atomic_load(&service.asked), 0);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_NOT_STARTED);
    assert_int_equal(weir_executor_global_wait_idle(0), 0);
    end_group(group);
}

static void address_for_a_cancelled_promise_is_dropped(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    assert_int_equal(weir_resolve(group, NULL, "127.0.0.1:80", promise, NULL), 0);
    assert_int_equal(code_of(promise), -ECANCELED);
    assert_null(value_of(promise));
    weir_promise_release(promise);
    end_group(group);
}

#define ZEROS_10 "0000000000"
#define ZEROS_50 ZEROS_10 ZEROS_10 ZEROS_10 ZEROS_10 ZEROS_10
#define ZEROS_100 ZEROS_50 ZEROS_50
#define BYTES_10 "abcdefghi."
#define BYTES_50 BYTES_10 BYTES_10 BYTES_10 BYTES_10 BYTES_10
#define BYTES_250 BYTES_50 BYTES_50 BYTES_50 BYTES_50 BYTES_50

static const struct {
    const char *text, *words; /* the second of them says what to write instead */
} bad[] = {
    { NULL, "NULL for the text|pass one as" },
    { "", "'': it is empty|write an address as" },
    { "example.org", "'example.org': the port is missing|write it after a ':'" },
    { "localhost:", "'localhost:': the port is missing|write it after the ':'" },
    { "example.org:70000", "'example.org:70000': the port is above|write one of 0 to 65535" },
    { "example.org:65536", "above 65535|write one of" },
    { "example.org:99999999999999999999", "above 65535|write one of" },
    { "example.org:abc", "'example.org:abc': the port is not a number|write one of" },
    { "example.org:http", "not a number|write one of" },
    { "example.org:-1", "not a number|write one of" },
    { "example.org:80x", "not a number|write one of" },
    { "example.org:80:90", "more than one ':'|write IPv6 in brackets" },
    { "example.org:80 ", "space or a control character|leave that out" },
    { " example.org:80", "space or a control character|leave that out" },
    { "exa mple.org:80", "'exa mple.org:80': it has a space|leave that out" },
    { "example.org:80\n", "'example.org:80\\x0a': it has|leave that out" },
    { "exa\x01mple.org:80", "'exa\\x01mple.org:80': it has|leave that out" },
    { "\x7f:80", "control character|leave that out" },
    { "exa/mple:80", "'exa/mple:80': it is no address|write one as in" },
    { "user@example.org:80", "no address|write one as in" },
    { "b\xc3\xbc"
      "cher.example:80",
      "no address|write one as in" },
    { "fe80::1%eth0", "more than one ':'|in brackets" },
    { "[localhost]:80", "not an IPv6 address|write one as" },
    { "::1", "more than one ':'|in brackets" },
    { "http://example.org:80", "more than one ':'|write" },
    { "unix:", "name is missing|write unix:/path" },
    { "local:", "name is missing|local:name" },
    { "unix:" ZEROS_100 "00000080", "longer than 107 bytes|write a shorter one" },
    { "local:" ZEROS_100 "00000080", "longer than 107 bytes|write a shorter one" },
    { BYTES_250 "abcd:80", "...': the host has 254 bytes|write one of 253 at most" },
    { BYTES_250 BYTES_250 BYTES_250 ":80", "the host has 750 bytes|write one of 253" },
    /* getaddrinfo would make addresses of these. */
    { "127.1:80", "'127.1:80': a host name does not end in a number|as in 127.0.0.1:8007" },
    { "2130706433:80", "does not end in a number|four numbers" },
    { "0x7f.1:80", "does not end in a number|four numbers" },
    { "0x7f000001:80", "does not end in a number|four numbers" },
    { "0X7F.0.0.0x1:80", "does not end in a number|four numbers" },
    { "0177.0.0.01:80", "does not end in a number|four numbers" },
    { "1.2.3.256:80", "does not end in a number|of 0 to 255" },
    { "1.2.3.4.:80", "does not end in a number|four numbers" },
    { "example.0x1F.:80", "does not end in a number|four numbers" },
    { BYTES_250 "1:80", "...': a host name does not end in a number|as in 127.0.0.1:8007" },
};

static void bad_texts_are_refused_with_what_to_write_instead(void **state)
{
    (void)state;
    weir_resolver never = { .resolve = never_asked };
    weir_group *group = with_service(new_group_of(1), "");
    weir_promise *promise = weir_promise_new(NULL);
    for (size_t i = 0; i < COUNT(bad); i++) {
        char words[128];
        weir_error error = { 0 };
        strcpy(words, bad[i].words);
        char *instead = strchr(words, '|');
        *instead++ = '\0';
        assert_int_equal(weir_resolve(group, NULL, bad[i].text, promise, &error), -EINVAL);
        assert_int_equal(error.code, -EINVAL);
        if (strstr(error.message, words) == NULL || strstr(error.message, instead) == NULL)
            fail_msg("no \"%s\" or no \"%s\" in: %s", words, instead, error.message);
        assert_true(strlen(error.message) + 1 < sizeof error.message); /* it was not cut */
        assert_true(error.origin[0] != '\0');
        assert_int_equal(weir_resolve(group, &never, bad[i].text, promise, NULL), -EINVAL);
        assert_int_equal(code_of(promise), -EINPROGRESS);
    }
    assert_int_equal(atomic_load(&service.asked), 0);
    discard(promise);
    end_group(group);
}

static void group_and_promise_are_needed(void **state)
{
    (void)state;
    weir_error error;
    weir_group *group = new_group_of(1);
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(weir_resolve(NULL, NULL, "127.0.0.1:80", promise, &error), -EINVAL);
    assert_non_null(strstr(error.message, "NULL for the group"));
    assert_int_equal(weir_resolve(group, NULL, "127.0.0.1:80", NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "NULL for the promise"));
    assert_int_equal(weir_resolve(group, NULL, "localhost:80", NULL, NULL), -EINVAL);
    assert_int_equal(code_of(promise), -EINPROGRESS);
    discard(promise);
    end_group(group);
}

/* Names -------------------------------------------------------------------------------------- */

/* The machine's own name service, which knows this name even without a network. */
static void localhost_is_this_machine(void **state)
{
    (void)state;
    for (int is_manual = 0; is_manual < 2; is_manual++) {
        weir_group *group = is_manual ? new_manual_group() : new_group_of(1);
        weir_promise *promise = resolve(group, "localhost:8007");
        assert_int_equal(code_of(promise), 0);
        const weir_addresses *addresses = value_of(promise);
        assert_true(addresses->count > 0);
        for (size_t i = 0; i < addresses->count; i++) {
            assert_true(weir_address_is_loopback(&addresses->list[i]));
            assert_int_equal(weir_address_port(&addresses->list[i]), 8007);
            for (size_t j = 0; j < i; j++)
                assert_false(weir_address_equal(&addresses->list[i], &addresses->list[j]));
        }
        weir_promise_release(promise);
        end_group(group);
    }
    wait_for_background();
}

static void names_are_asked_for_once_and_in_the_background(void **state)
{
    (void)state;
    weir_group *group = with_service(new_group_of(2), "1.1.1.1:0 [::1]:0");
    weir_promise *promise = resolve(group, "www.example-1.org:00443");
    assert_int_equal(code_of(promise), 0);
    assert_list(value_of(promise), "1.1.1.1:443 [::1]:443");
    assert_int_equal(atomic_load(&service.asked), 1);
    assert_string_equal(service.host, "www.example-1.org");
    assert_null(service.executor);
    assert_false(pthread_equal(service.thread, pthread_self()));
    assert_false(service.has_service);
    assert_int_equal(service.hints.ai_family, AF_UNSPEC);
    assert_int_equal(service.hints.ai_socktype, SOCK_STREAM);
    assert_int_equal(service.hints.ai_flags, 0);
    weir_promise_release(promise);
    end_group(group);
    wait_for_background();
}

static void names_of_many_forms_are_asked_for(void **state)
{
    (void)state;
    static const char *const hosts[] = {
        "localhost",
        "a",
        "example.org.",
        "_service._tcp.example.org",
        "UPPER.example",
        "3com",
        "1.2.3.4.example",
        "0xyz",
        "0x",
        "1a.2b",
        "xn--bcher-kva.example",
        "unix.example",
        "local.example",
        "units",
        "unix-1",
        "locale",
        "-",
        ".",
        "a..b",
        "0.0x0g",
        BYTES_250 "abc",
    };
    weir_group *group = with_service(new_manual_group(), "1.1.1.1:0");
    for (size_t i = 0; i < COUNT(hosts); i++) {
        char text[300];
        snprintf(text, sizeof text, "%s:80", hosts[i]);
        weir_promise *promise = resolve(group, text);
        assert_list(value_of(promise), "1.1.1.1:80");
        assert_string_equal(service.host, hosts[i]);
        weir_promise_release(promise);
    }
    assert_int_equal(atomic_load(&service.asked), COUNT(hosts));
    end_group(group);
}

/* As getaddrinfo answers when it is not told a kind of socket: everything three times. */
static void answers_are_put_in_order(void **state)
{
    (void)state;
    weir_group *group = with_service(
        new_manual_group(), "[::1]:0 [::1]:0 [::1]:0 [fe80::2%3]:0 [::1]:0 1.1.1.1:0 1.1.1.1:0 "
                            "2.2.2.2:0 3.3.3.3:0");
    for (int is_odd = 0; is_odd < 2; is_odd++) {
        service.has_odd_answers = is_odd;
        weir_promise *promise = resolve(group, "example.org:80");
        assert_list(value_of(promise), "[::1]:80 1.1.1.1:80 [fe80::2%3]:80 2.2.2.2:80 3.3.3.3:80");
        weir_promise_release(promise);
        assert_int_equal(atomic_load(&service.lists), 0);
    }
    end_group(group);
}

static void failures_say_which(void **state)
{
    (void)state;
    static const struct {
        int result, error, code;
    } cases[] = {
        { EAI_NONAME, 0, WEIR_ENONAME },
        { EAI_NODATA, 0, WEIR_ENONAME },
        { EAI_ADDRFAMILY, 0, WEIR_ENONAME },
        { EAI_AGAIN, EMFILE, WEIR_ENAMESERVICE },
        { EAI_FAIL, 0, WEIR_ENAMESERVICE },
        { EAI_MEMORY, 0, -ENOMEM },
        { EAI_SYSTEM, EMFILE, -EMFILE },
        { EAI_SYSTEM, 0, WEIR_ENAMESERVICE },
        { EAI_FAMILY, 0, WEIR_ENAMESERVICE },
        { 0, 0, WEIR_ENONAME }, /* it knows the name, but no address */
    };
    weir_group *group = with_service(new_manual_group(), "");
    for (size_t i = 0; i < COUNT(cases); i++) {
        service.result = cases[i].result;
        service.error = cases[i].error;
        weir_promise *promise = resolve(group, "example.org:80");
        assert_int_equal(code_of(promise), cases[i].code);
        assert_null(value_of(promise));
        weir_promise_release(promise);
    }
    assert_int_equal(atomic_load(&service.lists), 0);
    assert_string_equal(weir_error_text(WEIR_ENONAME), "host name not found");
    assert_string_equal(weir_error_text(WEIR_ENAMESERVICE), "name service did not answer");
    end_group(group);
}

static void only_odd_answers_are_none(void **state)
{
    (void)state;
    weir_group *group = with_service(new_manual_group(), "unix:/path");
    weir_promise *promise = resolve(group, "example.org:80");
    assert_int_equal(code_of(promise), WEIR_ENONAME);
    assert_int_equal(atomic_load(&service.lists), 0);
    weir_promise_release(promise);
    end_group(group);
}

static void name_service_itself_can_be_made_to_fail(void **state)
{
    (void)state;
    weir_group *group = new_manual_group();
    harness_fail_nth("getaddrinfo", 1, -EIO);
    weir_promise *promise = resolve(group, "localhost:80");
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(code_of(promise), WEIR_ENAMESERVICE);
    weir_promise_release(promise);
    end_group(group);
}

static unsigned lines_with_resolver(const char *value)
{
    weir_group *group = new_manual_group();
    assert_int_equal(setenv("WEIR_RESOLVER", value, 1), 0);
    harness_log_begin(WEIR_LOG_WARN);
    weir_promise *promise = resolve(group, "localhost:80");
    assert_int_equal(code_of(promise), 0);
    weir_promise_release(promise);
    end_group(group);
    return harness_log_end();
}

static void unknown_resolver_in_the_environment_is_logged_once(void **state)
{
    (void)state;
    char before[64] = "";
    const char *set = getenv("WEIR_RESOLVER");
    snprintf(before, sizeof before, "%s", set != NULL ? set : "");
    static const char *const known[] = { "", "auto", "getaddrinfo" };
    for (size_t i = 0; i < COUNT(known); i++)
        assert_int_equal(lines_with_resolver(known[i]), 0);
    assert_int_equal(lines_with_resolver("getadrinfo"), 1);
    assert_true(
        harness_log_has("WEIR_RESOLVER is 'getadrinfo', which is none of auto, getaddrinfo"));
    assert_int_equal(lines_with_resolver("getadrinfo"), 0);
    assert_int_equal(lines_with_resolver("another"), 0);
    assert_int_equal(set != NULL ? setenv("WEIR_RESOLVER", before, 1) : unsetenv("WEIR_RESOLVER"),
                     0);
}

/* Manual groups ------------------------------------------------------------------------------ */

static void manual_group_asks_when_it_is_stepped(void **state)
{
    (void)state;
    weir_group *group = with_service(new_manual_group(), "1.1.1.1:0");
    weir_promise *promise = weir_promise_new(weir_group_at(group, 0));
    assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, NULL), 0);
    assert_int_equal(code_of(promise), -EINPROGRESS);
    assert_int_equal(atomic_load(&service.asked), 0);
    assert_true(weir_group_step(group) > 0);
    assert_int_equal(atomic_load(&service.asked), 1);
    assert_ptr_equal(service.executor, weir_group_background(group));
    assert_list(value_of(promise), "1.1.1.1:80");
    weir_promise_release(promise);
    end_group(group);
}

static void freeing_a_manual_group_cancels_what_was_not_asked(void **state)
{
    (void)state;
    weir_group *group = with_service(new_manual_group(), "1.1.1.1:0");
    weir_promise *promises[3];
    for (int i = 0; i < 3; i++) {
        promises[i] = weir_promise_new(i > 0 ? weir_group_at(group, 0) : NULL);
        assert_int_equal(weir_resolve(group, NULL, "example.org:80", promises[i], NULL), 0);
    }
    /* Nobody may cancel this one, but it is told the same. */
    assert_true(weir_promise_set_uncancellable(promises[2]));
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(code_of(promises[i]), -ECANCELED);
        weir_promise_release(promises[i]);
    }
    assert_int_equal(atomic_load(&service.asked), 0);
}

/* Cancelling and ending ---------------------------------------------------------------------- */

static void cancelled_before_its_turn_is_not_asked_for(void **state)
{
    (void)state;
    weir_group *group = with_service(new_manual_group(), "1.1.1.1:0");
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, NULL), 0);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    while (weir_group_step(group) > 0) {
    }
    assert_int_equal(atomic_load(&service.asked), 0);
    end_group(group);
}

static void forgotten_promise_is_kept_until_the_answer(void **state)
{
    (void)state;
    weir_group *group = with_service(new_manual_group(), "1.1.1.1:0");
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_future_retain(weir_promise_future(promise));
    assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, NULL), 0);
    weir_promise_release(promise);
    assert_int_equal(weir_future_await(future), 0);
    assert_list(weir_future_value(future), "1.1.1.1:80");
    weir_future_release(future);
    end_group(group);
}

static void cancelled_while_asked_drops_the_answer(void **state)
{
    (void)state;
    static const int results[] = { 0, EAI_NONAME };
    weir_group *group = with_service(new_group_of(1), "1.1.1.1:0");
    for (size_t i = 0; i < COUNT(results); i++) {
        service.result = results[i];
        atomic_store(&service.is_held, true);
        weir_promise *promise = weir_promise_new(NULL);
        assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, NULL), 0);
        WAIT_FOR(atomic_load(&service.waiting) == 1);
        assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
        assert_int_equal(code_of(promise), -ECANCELED);
        atomic_store(&service.is_held, false);
        assert_int_equal(weir_executor_global_wait_idle(30000000000), 0);
        assert_int_equal(atomic_load(&service.asked), i + 1);
        assert_int_equal(code_of(promise), -ECANCELED);
        assert_null(value_of(promise));
        weir_promise_release(promise);
    }
    end_group(group);
    wait_for_background();
}

/* A listener that tells where it was called. */
typedef struct hearer {
    weir_listener listener;
    atomic_int calls;
    int code;
    weir_executor *where;
} hearer;

static void hear(weir_listener *listener, weir_future *future)
{
    hearer *self = WEIR_CONTAINER(listener, hearer, listener);
    self->code = weir_future_code(future);
    self->where = weir_executor_current();
    atomic_fetch_add(&self->calls, 1);
}

static void listeners_run_where_the_promise_is_bound_to(void **state)
{
    (void)state;
    weir_group *group = with_service(new_group_of(1), "1.1.1.1:0");
    static const char *const texts[] = { "example.org:80", "1.1.1.1:80" };
    for (size_t i = 0; i < COUNT(texts); i++) {
        hearer h = { .listener = { .done = hear } };
        weir_promise *promise = weir_promise_new(weir_group_at(group, 0));
        weir_future_listen(weir_promise_future(promise), &h.listener);
        assert_int_equal(weir_resolve(group, NULL, texts[i], promise, NULL), 0);
        WAIT_FOR(atomic_load(&h.calls) == 1);
        assert_int_equal(h.code, 0);
        assert_ptr_equal(h.where, weir_group_at(group, 0));
        assert_list(value_of(promise), "1.1.1.1:80");
        weir_promise_release(promise);
    }
    end_group(group);
    wait_for_background();
}

static void group_may_be_freed_while_the_name_service_is_asked(void **state)
{
    (void)state;
    static const int results[] = { 0, EAI_AGAIN };
    for (size_t i = 0; i < COUNT(results); i++) {
        weir_group *group = with_service(new_group_of(1), "1.1.1.1:0");
        service.result = results[i];
        hearer h = { .listener = { .dropped = hear } }; /* its executor is gone by then */
        weir_promise *promise = weir_promise_new(weir_group_at(group, 0));
        weir_future_listen(weir_promise_future(promise), &h.listener);
        atomic_store(&service.is_held, true);
        assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, NULL), 0);
        weir_promise_release(promise); /* now it is the lookup's alone */
        WAIT_FOR(atomic_load(&service.waiting) == 1);
        end_group(group);
        assert_int_equal(atomic_load(&h.calls), 0);
        atomic_store(&service.is_held, false);
        WAIT_FOR(atomic_load(&h.calls) == 1);
        assert_int_equal(h.code, results[i] == 0 ? 0 : WEIR_ENAMESERVICE);
        assert_null(h.where);
        wait_for_background();
    }
}

static void slow_names_do_not_delay_another(void **state)
{
    (void)state;
    weir_group *group = with_service(new_group_of(1), "1.1.1.1:0");
    weir_promise *slow[4];
    atomic_store(&service.is_held, true);
    for (int i = 0; i < 4; i++) {
        slow[i] = weir_promise_new(NULL);
        assert_int_equal(weir_resolve(group, NULL, "slow.example:80", slow[i], NULL), 0);
    }
    WAIT_FOR(atomic_load(&service.waiting) == 4);
    weir_promise *quick = resolve(group, "quick.example:80");
    assert_list(value_of(quick), "1.1.1.1:80");
    weir_promise_release(quick);
    for (int i = 0; i < 4; i++)
        assert_int_equal(code_of(slow[i]), -EINPROGRESS);
    atomic_store(&service.is_held, false);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weir_future_await(weir_promise_future(slow[i])), 0);
        weir_promise_release(slow[i]);
    }
    end_group(group);
    wait_for_background();
}

/* So many threads there are, and no more; the others wait, and one that fails to start costs
 * nothing while there is another. */
static void lookups_run_on_a_bounded_number_of_threads(void **state)
{
    enum { LOOKUPS = WEIR__BLOCKING_THREADS + 8 };
    (void)state;
    weir_group *group = with_service(new_group_of(1), "1.1.1.1:0");
    weir_promise *promises[LOOKUPS];
    size_t threads = count_threads();
    atomic_store(&service.is_held, true);
    for (int i = 0; i < LOOKUPS; i++) {
        promises[i] = weir_promise_new(NULL);
        if (i == 1)
            harness_fail_nth("pthread_create", 1, -EAGAIN);
        assert_int_equal(weir_resolve(group, NULL, "slow.example:80", promises[i], NULL), 0);
        if (i == 1)
            assert_int_equal(harness_fail_end(), 1);
    }
    WAIT_FOR(atomic_load(&service.waiting) == WEIR__BLOCKING_THREADS);
    assert_int_equal(count_threads(), threads + WEIR__BLOCKING_THREADS);
    assert_int_equal(weir_executor_global_wait_idle(1000000), -ETIMEDOUT);
    atomic_store(&service.is_held, false);
    for (int i = 0; i < LOOKUPS; i++) {
        assert_int_equal(weir_future_await(weir_promise_future(promises[i])), 0);
        weir_promise_release(promises[i]);
    }
    end_group(group);
    wait_for_background();
}

/* Resolvers of the user's own ---------------------------------------------------------------- */

typedef struct own_resolver {
    weir_resolver resolver;
    int code;
    char host[300];
    uint16_t port;
    weir_executor *background;
    weir_promise *promise; /* to complete later */
} own_resolver;

static int own_resolve(weir_resolver *resolver, weir_executor *background, const char *host,
                       uint16_t port, weir_promise *promise)
{
    own_resolver *self = WEIR_CONTAINER(resolver, own_resolver, resolver);
    snprintf(self->host, sizeof self->host, "%s", host);
    self->port = port;
    self->background = background;
    if (self->code == 0)
        self->promise = weir_promise_retain(promise);
    return self->code;
}

static void another_resolver_is_asked_instead(void **state)
{
    (void)state;
    own_resolver own = { .resolver = { .resolve = own_resolve } };
    weir_group *group = with_service(new_group_of(1), "1.1.1.1:0");
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(weir_resolve(group, &own.resolver, "example.org:80", promise, NULL), 0);
    assert_string_equal(own.host, "example.org");
    assert_int_equal(own.port, 80);
    assert_ptr_equal(own.background, weir_group_background(group));
    assert_int_equal(code_of(promise), -EINPROGRESS);
    weir_addresses *addresses = list_of("2.2.2.2:80");
    assert_int_equal(weir_promise_succeed(own.promise, addresses, weir_addresses_free), 0);
    weir_promise_release(own.promise);
    assert_list(value_of(promise), "2.2.2.2:80");
    weir_promise_release(promise);
    assert_int_equal(atomic_load(&service.asked), 0);
    end_group(group);
}

static void refusal_of_another_resolver_is_told(void **state)
{
    (void)state;
    own_resolver own = { .resolver = { .resolve = own_resolve }, .code = WEIR_ENAMESERVICE };
    weir_group *group = new_group_of(1);
    weir_promise *promise = weir_promise_new(NULL);
    weir_error error;
    assert_int_equal(weir_resolve(group, &own.resolver, "example.org:80", promise, &error),
                     WEIR_ENAMESERVICE);
    assert_int_equal(error.code, WEIR_ENAMESERVICE);
    assert_string_equal(error.origin, "resolver");
    assert_string_equal(error.message, "'example.org:80': name service did not answer");
    assert_int_equal(weir_resolve(group, &own.resolver, BYTES_250 ":80", promise, &error),
                     WEIR_ENAMESERVICE);
    assert_non_null(strstr(error.message, "...': name service did not answer"));
    assert_int_equal(code_of(promise), -EINPROGRESS);
    discard(promise);
    end_group(group);
}

/* Faults ------------------------------------------------------------------------------------- */

static void address_needs_memory(void **state)
{
    (void)state;
    weir_error error;
    weir_group *group = new_group_of(1);
    weir_promise *promise = weir_promise_new(NULL);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_resolve(group, NULL, "127.0.0.1:80", promise, &error), -ENOMEM);
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(error.code, -ENOMEM);
    assert_non_null(strstr(error.message, "'127.0.0.1:80'"));
    assert_int_equal(code_of(promise), -EINPROGRESS);
    discard(promise);
    end_group(group);
}

static void name_needs_memory_twice(void **state)
{
    (void)state;
    weir_error error;
    weir_group *group = with_service(new_manual_group(), "1.1.1.1:0");
    weir_promise *promise = weir_promise_new(weir_group_at(group, 0));
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, &error), -ENOMEM);
    harness_fail_end();
    assert_non_null(strstr(error.message, "'example.org:80'"));
    assert_int_equal(code_of(promise), -EINPROGRESS);
    harness_fail_nth("alloc", 2, -ENOMEM);
    assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, &error), 0);
    assert_int_equal(weir_group_step(group), 1);
    assert_int_equal(harness_fail_end(), 2);
    assert_int_equal(code_of(promise), -ENOMEM);
    assert_int_equal(atomic_load(&service.lists), 0);
    weir_promise_release(promise);
    end_group(group);
}

static void background_thread_that_does_not_start_is_told(void **state)
{
    (void)state;
    weir_error error;
    weir_group *group = with_service(new_group_of(1), "1.1.1.1:0");
    weir_promise *promise = weir_promise_new(weir_group_at(group, 0));
    assert_int_equal(weir_executor_global_wait_idle(0), 0);
    harness_fail_nth("pthread_create", 1, -EAGAIN);
    assert_int_equal(weir_resolve(group, NULL, "example.org:80", promise, &error), -EAGAIN);
    assert_int_equal(harness_fail_end(), 1);
    assert_non_null(strstr(error.message, "'example.org:80'"));
    assert_int_equal(code_of(promise), -EINPROGRESS);
    discard(promise);
    end_group(group);
    assert_int_equal(atomic_load(&service.asked), 0);
}

/* Several threads ---------------------------------------------------------------------------- */

typedef struct asker {
    weir_group *group;
    int seen, cancelled;
} asker;

/* Every other one is cancelled at once, which may be before, during or after the lookup. */
static void *ask_a_lot(void *arg)
{
    asker *self = arg;
    for (int i = 0; i < 200; i++) {
        weir_promise *promise = weir_promise_new(weir_group_next(self->group));
        hearer h = { .listener = { .done = hear } };
        weir_future_listen(weir_promise_future(promise), &h.listener);
        if (weir_resolve(self->group, NULL, "example.org:80", promise, NULL) < 0)
            weir_promise_fail(promise, -EIO);
        if (i % 2 == 0)
            weir_future_cancel(weir_promise_future(promise));
        WAIT_FOR(atomic_load(&h.calls) == 1);
        self->seen += h.code == 0 && value_of(promise)->count == 2;
        self->cancelled += h.code == -ECANCELED;
        weir_promise_release(promise);
    }
    return NULL;
}

static void several_threads_may_ask_at_once(void **state)
{
    (void)state;
    weir_group *group = with_service(new_group_of(2), "1.1.1.1:0 [::1]:0");
    asker askers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        askers[i] = (asker){ .group = group };
        assert_int_equal(pthread_create(&threads[i], NULL, ask_a_lot, &askers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(askers[i].seen + askers[i].cancelled, 200);
        assert_true(askers[i].seen >= 100);
    }
    end_group(group);
    wait_for_background();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(lists_take_turns_between_kinds_without_duplicates),
        weir_case(lists_have_sixteen_at_most_but_of_both_kinds),
        weir_case(lists_need_memory),
        weir_case(addresses_are_answered_at_once),
        weir_case(address_for_a_cancelled_promise_is_dropped),
        weir_case(bad_texts_are_refused_with_what_to_write_instead),
        weir_case(group_and_promise_are_needed),
        weir_case(localhost_is_this_machine),
        weir_case(names_are_asked_for_once_and_in_the_background),
        weir_case(names_of_many_forms_are_asked_for),
        weir_case(answers_are_put_in_order),
        weir_case(failures_say_which),
        weir_case(only_odd_answers_are_none),
        weir_case(name_service_itself_can_be_made_to_fail),
        weir_case(unknown_resolver_in_the_environment_is_logged_once),
        weir_case(manual_group_asks_when_it_is_stepped),
        weir_case(freeing_a_manual_group_cancels_what_was_not_asked),
        weir_case(cancelled_before_its_turn_is_not_asked_for),
        weir_case(forgotten_promise_is_kept_until_the_answer),
        weir_case(cancelled_while_asked_drops_the_answer),
        weir_case(listeners_run_where_the_promise_is_bound_to),
        weir_case(group_may_be_freed_while_the_name_service_is_asked),
        weir_case(slow_names_do_not_delay_another),
        weir_case(lookups_run_on_a_bounded_number_of_threads),
        weir_case(another_resolver_is_asked_instead),
        weir_case(refusal_of_another_resolver_is_told),
        weir_case(address_needs_memory),
        weir_case(name_needs_memory_twice),
        weir_case(background_thread_that_does_not_start_is_told),
        weir_case(several_threads_may_ask_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
