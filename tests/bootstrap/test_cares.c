/* SPDX-License-Identifier: MIT */
/* Names by c-ares, with a name server of the test's own. */
#include "bootstrap/cares.h"
#include "bootstrap/clients.h"
#include "bootstrap/name_server.h"
#include "bootstrap/names.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* A group whose loops ask the server, by a resolv.conf and a hosts file that the test writes. */
typedef struct scene {
    name_server server;
    weir_group *group;
    char conf[64], hosts[64];
} scene;

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_conf(const scene *self, const char *text)
{
    write_file(self->conf, text);
}

static weir_group *open_asking_group(const scene *self, int loops, weir_io_kind io, int timeout_ms)
{
    weir_group *group =
        open_group(&(weir_group_config){ .loops = loops, .io = io, .watchdog_ns = WEIR_OFF });
    assert_int_equal(
        weir__cares_set_up(group, self->conf, self->hosts, self->server.port, timeout_ms), 0);
    return group;
}

static void open_scene(scene *self)
{
    name_server_start(&self->server);
    snprintf(self->conf, sizeof self->conf, "/tmp/weir-resolv-%d", (int)getpid());
    snprintf(self->hosts, sizeof self->hosts, "/tmp/weir-hosts-%d", (int)getpid());
    write_conf(self, "nameserver 127.0.0.1\n");
    write_file(self->hosts, "127.0.0.1 localhost\n");
    self->group = open_asking_group(self, 2, WEIR_IO_EPOLL, 0);
}

static void close_scene(scene *self)
{
    if (self->group != NULL)
        end_group(self->group);
    name_server_stop(&self->server);
    unlink(self->conf);
    unlink(self->hosts);
}

static weir_promise *ask_for(weir_group *group, const char *text)
{
    weir_promise *promise = new_promise();
    assert_int_equal(weir_resolve(group, NULL, text, promise, NULL), 0);
    return promise;
}

/* Of each question, three times: time enough for a name server on a busy machine. */
#define UNHURRIED_MS 250

/* Addresses with a space between two, or the code. */
static void expect(weir_promise *promise, int code, const char *list)
{
    char text[1024] = "";
    assert_int_equal(weir_future_await(weir_promise_future(promise)), code);
    const weir_addresses *found = weir_future_value(weir_promise_future(promise));
    for (size_t i = 0; code == 0 && i < found->count; i++) {
        char one[WEIR_ADDRESS_TEXT_MAX];
        weir_address_text(&found->list[i], one, sizeof one);
        strcat(strcat(text, i > 0 ? " " : ""), one);
    }
    assert_string_equal(text, list);
    weir_promise_release(promise);
}

#define BOTH "[2001:db8::1]:80 1.2.3.4:80"

/* Answers -------------------------------------------------------------------------------------- */

static void both_families_are_asked_for(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.questions), 2);
    expect(ask_for(self.group, "four.example:80"), 0, "1.2.3.4:80");
    expect(ask_for(self.group, "six.example.:80"), 0, "[2001:db8::1]:80");
    expect(ask_for(self.group, "nothing.example:80"), WEIR_ENONAME, "");
    expect(ask_for(self.group, "broken.example:80"), WEIR_ENAMESERVICE, "");
    close_scene(&self);
}

static void localhost_asks_no_server(void **state)
{
    (void)state;
    static const char *const texts[] = { "localhost:80", "LocalHost.:80", "a.localhost:80" };
    scene self;
    open_scene(&self);
    for (size_t i = 0; i < COUNT(texts); i++) {
        weir_promise *promise = ask_for(self.group, texts[i]);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        const weir_addresses *found = weir_future_value(weir_promise_future(promise));
        bool is_loopback = true;
        for (size_t at = 0; at < found->count; at++) {
            char one[WEIR_ADDRESS_TEXT_MAX];
            weir_address_text(&found->list[at], one, sizeof one);
            is_loopback &= strncmp(one, "127.", 4) == 0 || strcmp(one, "[::1]:80") == 0;
        }
        assert_true(found->count > 0 && is_loopback);
        weir_promise_release(promise);
    }
    assert_int_equal(atomic_load(&self.server.questions), 0);
    close_scene(&self);
}

/* One that has an entry has only the families of that; one without has both. */
static void localhost_has_the_families_of_the_hosts_file(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    expect(ask_for(self.group, "localhost:80"), 0, "127.0.0.1:80");
    expect(ask_for(self.group, "no-entry.localhost:80"), 0, "[::1]:80 127.0.0.1:80");
    unlink(self.hosts);
    expect(ask_for(self.group, "localhost:80"), 0, "[::1]:80 127.0.0.1:80");
    close_scene(&self);
}

static void hosts_file_answers_before_servers(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    write_file(self.hosts, "10.0.0.1 both.example other\n10.0.0.2 x both.example\n");
    expect(ask_for(self.group, "both.example:80"), 0, "10.0.0.1:80 10.0.0.2:80");
    expect(ask_for(self.group, "Both.example.:80"), 0, "10.0.0.1:80 10.0.0.2:80");
    assert_int_equal(atomic_load(&self.server.questions), 0);
    close_scene(&self);
}

/* Also for a name that the cache has. */
static void changed_hosts_file_is_read_again(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    const weir_name_config *before = weir__names_of(self.group)->config;
    expect(ask_for(self.group, "four.example:80"), 0, "1.2.3.4:80");
    assert_ptr_equal(weir__names_of(self.group)->config, before); /* it is read once */
    write_file(self.hosts, "10.9.8.7 both.example\n");
    expect(ask_for(self.group, "both.example:80"), 0, "10.9.8.7:80");
    write_file(self.hosts, "");
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    close_scene(&self);
}

/* Others ------------------------------------------------------------------------------------------
 */

static void slow_and_dead_names_do_not_delay_others(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    weir_promise *slow[4], *dead[4];
    char text[64];
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "held%d.example:80", i);
        slow[i] = ask_for(self.group, text);
        snprintf(text, sizeof text, "dead%d.example:80", i);
        dead[i] = ask_for(self.group, text);
    }
    WAIT_FOR(atomic_load(&self.server.held) == 8);
    weir_promise *local = ask_for(self.group, "localhost:80");
    assert_int_equal(weir_future_await(weir_promise_future(local)), 0);
    weir_promise_release(local);
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    for (int i = 0; i < 4; i++) {
        assert_true(is_pending(slow[i]));
        assert_true(is_pending(dead[i]));
    }
    name_server_release(&self.server);
    for (int i = 0; i < 4; i++) {
        expect(slow[i], 0, BOTH);
        assert_int_equal(weir_future_cancel(weir_promise_future(dead[i])), 0);
        weir_promise_release(dead[i]);
    }
    close_scene(&self);
}

/* A server that is gone: the kernel says so, or the next one is asked. */
static void second_server_answers_for_one_that_is_gone(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    write_conf(&self, "nameserver 127.0.0.3\nnameserver 127.0.0.2\n");
    end_group(self.group);
    self.group = open_asking_group(&self, 1, WEIR_IO_EPOLL, 2000);
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.second), 2);
    close_scene(&self);
}

static void lookups_beyond_the_limit_wait_in_order(void **state)
{
    enum { LOOKUPS = WEIR__CARES_MAX + 20 };
    static weir_promise *promises[LOOKUPS];
    (void)state;
    scene self;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    const struct rlimit more = { files.rlim_max, files.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
    open_scene(&self);
    for (int i = 0; i < LOOKUPS; i++) {
        char text[64];
        snprintf(text, sizeof text, "held%d.example:80", i);
        promises[i] = ask_for(self.group, text);
    }
    WAIT_FOR(atomic_load(&self.server.held) >= 2 * WEIR__CARES_MAX);
    /* Some of those that wait are not wanted any more. */
    for (int i = WEIR__CARES_MAX; i < LOOKUPS; i += 2)
        assert_int_equal(weir_future_cancel(weir_promise_future(promises[i])), 0);
    name_server_release(&self.server);
    for (int i = 0; i < LOOKUPS; i++) {
        bool is_cancelled = i >= WEIR__CARES_MAX && (i - WEIR__CARES_MAX) % 2 == 0;
        expect(promises[i], is_cancelled ? -ECANCELED : 0, is_cancelled ? "" : BOTH);
    }
    close_scene(&self);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

/* Threads that use a group's names for the first time, as closely together as they can. */
typedef struct first_users {
    weir_group *group;
    atomic_int ready;
    _Atomic(weir_names *) names;
} first_users;

enum { FIRST_USERS = 2 };

static void *use_names_first(void *arg)
{
    first_users *self = arg;
    atomic_fetch_add(&self->ready, 1);
    while (atomic_load(&self->ready) < FIRST_USERS)
        ;
    weir_names *mine = weir__names_of(self->group), *other = NULL;
    assert_non_null(mine);
    if (!atomic_compare_exchange_strong(&self->names, &other, mine))
        assert_ptr_equal(mine, other);
    return NULL;
}

/* The thread sanitizer checks the rest. */
static void concurrent_first_lookups_share_names(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        pthread_t threads[FIRST_USERS];
        const weir_group_config config = { .loops = 1, .watchdog_ns = WEIR_OFF };
        first_users self = { .group = open_group(&config) };
        for (int n = 0; n < FIRST_USERS; n++)
            assert_int_equal(pthread_create(&threads[n], NULL, use_names_first, &self), 0);
        for (int n = 0; n < FIRST_USERS; n++)
            assert_int_equal(pthread_join(threads[n], NULL), 0);
        end_group(self.group);
    }
}

/* The cache ---------------------------------------------------------------------------------------
 */

static void answers_are_kept_for_their_lifetime(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    expect(ask_for(self.group, "BOTH.example:443"), 0, "[2001:db8::1]:443 1.2.3.4:443");
    assert_int_equal(atomic_load(&self.server.questions), 2);
    expect(ask_for(self.group, "nothing.example:80"), WEIR_ENONAME, "");
    expect(ask_for(self.group, "nothing.example:80"), WEIR_ENONAME, "");
    assert_int_equal(atomic_load(&self.server.questions), 4);
    atomic_store(&self.server.ttl_s, 0);
    expect(ask_for(self.group, "four.example:80"), 0, "1.2.3.4:80");
    expect(ask_for(self.group, "four.example:80"), 0, "1.2.3.4:80");
    assert_int_equal(atomic_load(&self.server.questions), 7); /* that it has no AAAA is known */
    int before = atomic_load(&self.server.questions);
    expect(ask_for(self.group, "broken.example:80"), WEIR_ENAMESERVICE, "");
    int after = atomic_load(&self.server.questions);
    assert_true(after > before);
    expect(ask_for(self.group, "broken.example:80"), WEIR_ENAMESERVICE, "");
    assert_true(atomic_load(&self.server.questions) > after); /* is no answer to keep */
    close_scene(&self);
}

static void changed_resolv_conf_is_read_again(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.second), 0);
    write_conf(&self, "# the other one\nnameserver 127.0.0.2\n");
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.second), 2);
    unlink(self.conf); /* none is like an empty one: the local host is asked */
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.second), 2);
    close_scene(&self);
}

/* The servers of before answer when the file has changed already. */
static void answer_from_before_a_reload_is_not_cached(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    weir_promise *old = ask_for(self.group, "held.example:80");
    WAIT_FOR(atomic_load(&self.server.held) == 2);
    write_conf(&self, "# the other one\nnameserver 127.0.0.2\n");
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.second), 2);
    name_server_release(&self.server);
    expect(old, 0, BOTH);
    expect(ask_for(self.group, "held.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.second), 4);
    close_scene(&self);
}

static bool is_cached(const scene *self, const char *name, int family, int64_t later_ns)
{
    weir_names *shared = weir__names_of(self->group);
    weir_candidates found;
    pthread_mutex_lock(&shared->lock);
    bool is_found = weir__name_cache_find(
        &shared->cache, name, family, weir_clock_now_ns(weir_clock_monotonic()) + later_ns, &found);
    pthread_mutex_unlock(&shared->lock);
    return is_found;
}

static void absent_family_is_cached_no_longer_than_an_absent_name(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    expect(ask_for(self.group, "four.example:80"), 0, "1.2.3.4:80");
    assert_true(is_cached(&self, "four.example.", AF_INET6, 0));
    assert_false(
        is_cached(&self, "four.example.", AF_INET6, WEIR_SECONDS(WEIR__NAME_TTL_ABSENT_S)));
    assert_true(is_cached(&self, "four.example.", AF_INET, WEIR_SECONDS(250)));
    /* The family that has expired is asked for again, and no other. */
    assert_int_equal(atomic_load(&self.server.questions), 2);
    expect(ask_for(self.group, "four.example:80"), 0, "1.2.3.4:80");
    assert_int_equal(atomic_load(&self.server.questions), 3);
    close_scene(&self);
}

static void expect_last_name(scene *self, const char *expected)
{
    char name[256];
    name_server_get_last(&self->server, name);
    assert_string_equal(name, expected);
}

/* How many questions are asked for a name that does not exist. */
static int questions_for(const scene *self, const char *text)
{
    int before = atomic_load(&self->server.questions);
    expect(ask_for(self->group, text), WEIR_ENONAME, "");
    return atomic_load(&self->server.questions) - before;
}

/* c-ares has search domains, too, which it must not use: those of the file, or in their absence the
 * domain of the machine's own name. */
static void only_names_of_the_search_list_are_asked_for(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    assert_int_equal(questions_for(&self, "none.example:80"), 2);
    expect_last_name(&self, "none.example");
    assert_int_equal(questions_for(&self, "none:80"), 2);
    expect_last_name(&self, "none");
    write_conf(&self, "nameserver 127.0.0.1\nsearch a.example b.example\noptions ndots:3\n");
    assert_int_equal(questions_for(&self, "none.example:80"), 6);
    expect_last_name(&self, "none.example"); /* has few dots: it is the last one */
    assert_int_equal(questions_for(&self, "none.b.c.example:80"), 6);
    expect_last_name(&self, "none.b.c.example.b.example");
    assert_int_equal(questions_for(&self, "other.:80"), 2);
    setenv("LOCALDOMAIN", "c.example", 1);
    setenv("RES_OPTIONS", "ndots:1", 1);
    write_conf(&self, "nameserver 127.0.0.1\nsearch a.example b.example\n");
    assert_int_equal(questions_for(&self, "none.example:80"), 4);
    expect_last_name(&self, "none.example.c.example");
    unsetenv("LOCALDOMAIN");
    unsetenv("RES_OPTIONS");
    close_scene(&self);
}

static void search_continues_after_a_server_failure(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    write_conf(&self, "nameserver 127.0.0.1\nsearch sick.example corp.example\n");
    expect(ask_for(self.group, "printer:80"), 0, "1.2.3.4:80");
    /* Nothing is found: it may be in the domain whose servers fail, and is asked for again. */
    expect(ask_for(self.group, "none:80"), WEIR_ENAMESERVICE, "");
    expect_last_name(&self, "none");
    int before = atomic_load(&self.server.questions);
    expect(ask_for(self.group, "none:80"), WEIR_ENAMESERVICE, "");
    assert_true(atomic_load(&self.server.questions) > before);
    write_conf(&self, "nameserver 127.0.0.1\nsearch sick.example\noptions ndots:5\n");
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    close_scene(&self);
}

/* The time of all tries is spent once, not once for each domain. */
static void search_ends_when_no_server_answers(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    end_group(self.group);
    self.group = open_asking_group(&self, 1, WEIR_IO_EPOLL, 20);
    write_conf(&self, "nameserver 127.0.0.1\nsearch a.example b.example\n");
    expect(ask_for(self.group, "dead:80"), WEIR_ENAMESERVICE, "");
    expect_last_name(&self, "dead.a.example");
    close_scene(&self);
}

static void search_domains_are_tried_in_order(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    write_conf(&self, "nameserver 127.0.0.1\nsearch first.example corp.example\n");
    expect(ask_for(self.group, "printer:80"), 0, "1.2.3.4:80");
    assert_int_equal(atomic_load(&self.server.questions), 4);
    /* With a dot the name itself comes first. */
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    assert_int_equal(atomic_load(&self.server.questions), 6);
    /* A family that a name does not have is not looked for in the next domain. */
    write_conf(&self, "nameserver 127.0.0.1\nsearch first.example second.example\n");
    expect(ask_for(self.group, "four:80"), 0, "1.2.3.4:80");
    assert_int_equal(atomic_load(&self.server.questions), 8);
    /* An absolute name is tried once. */
    expect(ask_for(self.group, "printer.:80"), WEIR_ENONAME, "");
    assert_int_equal(atomic_load(&self.server.questions), 10);
    expect(ask_for(self.group, "none:80"), WEIR_ENONAME, "");
    assert_int_equal(atomic_load(&self.server.questions), 16);
    close_scene(&self);
}

/* Connecting --------------------------------------------------------------------------------------
 */

static void connect_by(weir_group *group, const char *name, const peer *to, weir_promise *promise)
{
    char text[128];
    const weir_client_config config = { .group = group };
    snprintf(text, sizeof text, "%s:%s", name, strrchr(to->text, ':') + 1);
    assert_int_equal(weir_client_start(&config, text, promise, NULL), 0);
}

static void expect_connected(weir_promise *promise, const peer *to)
{
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_channel *channel = weir_future_value(weir_promise_future(promise));
    close(accept_one(to));
    weir_channel_close(channel, NULL);
    weir_promise_release(promise);
}

static void connecting_starts_with_the_family_that_has_answered(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    peer four = answering_peer("127.0.0.1:0"), six = answering_peer("[::1]:0");
    /* The question for the other family gets no answer. */
    weir_promise *promise = new_promise();
    connect_by(self.group, "here_four_first.example", &four, promise);
    expect_connected(promise, &four);
    promise = new_promise();
    connect_by(self.group, "here_six_first.example", &six, promise);
    expect_connected(promise, &six);
    WAIT_FOR(atomic_load(&self.server.held) == 2);
    close_scene(&self);
    close_peer(&four);
    close_peer(&six);
}

/* The next connect asks only for the family that is not known. */
static void answer_is_cached_when_the_connect_wins_before_the_other(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    peer six = answering_peer("[::1]:0");
    for (int n = 1; n <= 3; n++) {
        weir_promise *promise = new_promise();
        connect_by(self.group, "here_six_first.example", &six, promise);
        expect_connected(promise, &six);
        WAIT_FOR(atomic_load(&self.server.held) == n);
        assert_int_equal(atomic_load(&self.server.questions), 1 + n);
    }
    close_scene(&self);
    close_peer(&six);
}

static void count_refusals(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)level, (void)origin;
    if (strstr(line, "no connection to") != NULL)
        atomic_fetch_add((atomic_int *)arg, 1);
}

/* The first address has no listener. */
static void family_that_answers_later_joins_the_race(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    peer four = answering_peer("127.0.0.1:0"), six = answering_peer("[::1]:0");
    weir_promise *promises[2] = { new_promise(), new_promise() };
    atomic_int refusals = 0;
    assert_int_equal(weir_log_set(WEIR_LOG_INFO, count_refusals, &refusals), 0);
    connect_by(self.group, "here_six_first.example", &four, promises[0]);
    connect_by(self.group, "here_four_first.example", &six, promises[1]);
    WAIT_FOR(atomic_load(&self.server.held) == 2);
    WAIT_FOR(atomic_load(&refusals) == 2);
    assert_true(is_pending(promises[0]));
    assert_true(is_pending(promises[1]));
    name_server_release(&self.server);
    expect_connected(promises[0], &four);
    expect_connected(promises[1], &six);
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);
    close_scene(&self);
    close_peer(&four);
    close_peer(&six);
}

static void connect_fails_when_no_address_of_either_family_answers(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    peer refusing = refusing_peer("127.0.0.1:0");
    weir_promise *promise = new_promise();
    connect_by(self.group, "here_six_first.example", &refusing, promise);
    WAIT_FOR(atomic_load(&self.server.held) == 1);
    name_server_release(&self.server);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), -ECONNREFUSED);
    const weir_error *error = weir_future_error(weir_promise_future(promise));
    assert_non_null(strstr(error->message, "127.0.0.1"));
    assert_non_null(strstr(error->message, "[::1]"));
    weir_promise_release(promise);
    close_scene(&self);
    close_peer(&refusing);
}

/* The end -----------------------------------------------------------------------------------------
 */

static void cancelled_lookups_end_at_once(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    size_t fds = count_entries("/proc/self/fd");
    weir_promise *promises[8];
    for (int i = 0; i < 8; i++)
        promises[i] = ask_for(self.group, i % 2 ? "held.example:80" : "dead.example:80");
    WAIT_FOR(atomic_load(&self.server.questions) == 16);
    assert_true(count_entries("/proc/self/fd") > fds);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(weir_future_cancel(weir_promise_future(promises[i])), 0);
        weir_promise_release(promises[i]);
    }
    size_t most = fds + 2; /* the loops' own */
    WAIT_FOR(count_entries("/proc/self/fd") <= most);
    /* A connect that is cancelled, while the other family is still asked for, too. */
    peer hanging = hanging_peer("[::1]:0");
    weir_promise *promise = new_promise();
    connect_by(self.group, "here_six_first.example", &hanging, promise);
    WAIT_FOR(atomic_load(&self.server.held) >= 9);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    close_scene(&self);
    close_peer(&hanging);
}

static void lookups_in_flight_fail_when_their_loop_ends(void **state)
{
    (void)state;
    for (int is_connect = 0; is_connect < 2; is_connect++) {
        scene self;
        open_scene(&self);
        peer to = answering_peer("127.0.0.1:0");
        weir_promise *promises[4];
        for (int i = 0; i < 4; i++) {
            promises[i] = new_promise();
            if (is_connect)
                connect_by(self.group, "held.example", &to, promises[i]);
            else
                assert_int_equal(
                    weir_resolve(self.group, NULL, "held.example:80", promises[i], NULL), 0);
        }
        WAIT_FOR(atomic_load(&self.server.held) == 8);
        end_group(self.group);
        self.group = NULL;
        for (int i = 0; i < 4; i++)
            assert_int_equal(end_of(promises[i]), WEIR_ESHUTDOWN);
        close_scene(&self);
        close_peer(&to);
    }
}

static void lookup_works_on_every_backend_with_several_descriptors(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    FOR_EACH_BACKEND(on)
    {
        if (on->io == WEIR_IO_BLOCKING)
            continue;
        weir_group *group = open_asking_group(&self, 1, on->io, 0);
        expect(ask_for(group, "both.example:80"), 0, BOTH);
        expect(ask_for(group, "nothing.example:80"), WEIR_ENONAME, "");
        end_group(group);
    }
    close_scene(&self);
}

/* The bytes of both answers are only in what TCP brings, of which the length is a segment alone. */
static void truncated_answer_is_asked_for_again_by_tcp(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    FOR_EACH_BACKEND(on)
    {
        if (on->io == WEIR_IO_BLOCKING)
            continue; /* its lookups are getaddrinfo's */
        weir_group *group = open_asking_group(&self, 1, on->io, 0);
        atomic_store(&self.server.questions, 0);
        atomic_store(&self.server.by_tcp, 0);
        expect(ask_for(group, "long.example:80"), 0, BOTH);
        assert_int_equal(atomic_load(&self.server.questions), 2);
        assert_int_equal(atomic_load(&self.server.by_tcp), 2);
        expect(ask_for(group, "long.example:80"), 0, BOTH); /* which is kept like any other */
        assert_int_equal(atomic_load(&self.server.by_tcp), 2);
        end_group(group);
    }
    close_scene(&self);
}

/* The environment can ask for getaddrinfo; and so do groups that are not the kernel's alone. */
static void getaddrinfo_serves_when_asked_for(void **state)
{
    (void)state;
    scene self;
    weir_virtual_clock clock;
    open_scene(&self);
    setenv("WEIR_RESOLVER", "getaddrinfo", 1);
    fault_begin("getaddrinfo", 1, -EIO);
    weir_promise *promise = ask_for(self.group, "localhost:80");
    assert_int_equal(end_of(promise), WEIR_ENAMESERVICE);
    assert_true(fault_end());
    unsetenv("WEIR_RESOLVER");
    weir_group *manual = open_manual(&clock);
    promise = new_promise();
    weir_name_query query = { .group = manual, .promise = promise };
    assert_false(weir__cares_serves(&query));
    query.group = self.group;
    assert_true(weir__cares_serves(&query));
    weir_future_cancel(weir_promise_future(promise));
    weir_promise_release(promise);
    end_group(manual);
    close_scene(&self);
}

/* Faults ------------------------------------------------------------------------------------------
 */

static bool ask_with_fault(scene *self, const char *text, const char *call, unsigned nth, int code)
{
    weir_group *group = open_asking_group(self, 1, WEIR_IO_EPOLL, UNHURRIED_MS);
    weir_promise *promise = new_promise();
    settle(weir_group_at(group, 0));
    fault_begin(call, nth, code);
    int started = weir_resolve(group, NULL, text, promise, NULL);
    if (started < 0)
        weir_promise_fail(promise, started);
    weir_future_await(weir_promise_future(promise));
    bool is_reached = fault_end();
    int got = weir_future_code(weir_promise_future(promise));
    if (!is_reached)
        assert_int_equal(got, 0);
    else
        assert_true(got == 0 || got == code || got == WEIR_ENAMESERVICE);
    weir_promise_release(promise);
    end_group(group);
    return is_reached;
}

static void every_fault_fails_one_lookup_at_most(void **state)
{
    static const struct {
        const char *call;
        int code;
    } cases[] = {
        { "alloc", -ENOMEM },  { "socket", -EMFILE },    { "connect", -ENETUNREACH },
        { "sendmsg", -EPERM }, { "epoll_ctl", -ENOSPC }, { "open", -EMFILE },
        { "fstat", -EIO },     { "pread", -EIO },
    };
    (void)state;
    scene self;
    open_scene(&self);
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        const char *text = i % 2 ? "long.example:80"
                                 : "both.example:80"; /* with TCP, and without */
        unsigned nth = 1;
        while (ask_with_fault(&self, text, cases[i / 2].call, nth, cases[i / 2].code))
            nth++;
        assert_true(nth > 1);
    }
    close_scene(&self);
}

/* c-ares' own allocations. */
static atomic_int ares_allocations, ares_fails_at;

static bool ares_may(void)
{
    return atomic_fetch_add(&ares_allocations, 1) + 1 != atomic_load(&ares_fails_at);
}

static void *ares_alloc(size_t size)
{
    return ares_may() ? malloc(size) : NULL;
}

static void *ares_again(void *old, size_t size)
{
    return ares_may() ? realloc(old, size) : NULL;
}

static void out_of_memory_in_the_library_fails_the_lookup(void **state)
{
    (void)state;
    scene self;
    open_scene(&self);
    end_group(self.group);
    self.group = open_asking_group(&self, 1, WEIR_IO_EPOLL, UNHURRIED_MS);
    expect(ask_for(self.group, "both.example:80"), 0, BOTH);
    for (int nth = 1;; nth++) {
        char text[64];
        snprintf(text, sizeof text, "both%d.example:80", nth);
        weir_promise *promise = new_promise();
        atomic_store(&ares_allocations, 0);
        atomic_store(&ares_fails_at, nth);
        assert_int_equal(weir_resolve(self.group, NULL, text, promise, NULL), 0);
        weir_future_await(weir_promise_future(promise));
        atomic_store(&ares_fails_at, 0);
        int code = weir_future_code(weir_promise_future(promise));
        assert_true(code == 0 || code == -ENOMEM || code == WEIR_ENAMESERVICE ||
                    code == WEIR_ENONAME);
        weir_promise_release(promise);
        if (atomic_load(&ares_allocations) < nth)
            break;
    }
    close_scene(&self);
}

int main(void)
{
    /* Before the first use, as c-ares wants it. */
    ares_library_init_mem(ARES_LIB_INIT_ALL, ares_alloc, free, ares_again);
    const struct CMUnitTest tests[] = {
        weir_case(both_families_are_asked_for),
        weir_case(localhost_asks_no_server),
        weir_case(localhost_has_the_families_of_the_hosts_file),
        weir_case(hosts_file_answers_before_servers),
        weir_case(changed_hosts_file_is_read_again),
        weir_case(slow_and_dead_names_do_not_delay_others),
        weir_case(second_server_answers_for_one_that_is_gone),
        weir_case(lookups_beyond_the_limit_wait_in_order),
        weir_case(concurrent_first_lookups_share_names),
        weir_case(answers_are_kept_for_their_lifetime),
        weir_case(changed_resolv_conf_is_read_again),
        weir_case(answer_from_before_a_reload_is_not_cached),
        weir_case(absent_family_is_cached_no_longer_than_an_absent_name),
        weir_case(only_names_of_the_search_list_are_asked_for),
        weir_case(search_continues_after_a_server_failure),
        weir_case(search_ends_when_no_server_answers),
        weir_case(search_domains_are_tried_in_order),
        client_case(connecting_starts_with_the_family_that_has_answered),
        client_case(answer_is_cached_when_the_connect_wins_before_the_other),
        client_case(family_that_answers_later_joins_the_race),
        client_case(connect_fails_when_no_address_of_either_family_answers),
        weir_case(cancelled_lookups_end_at_once),
        client_case(lookups_in_flight_fail_when_their_loop_ends),
        weir_case(lookup_works_on_every_backend_with_several_descriptors),
        weir_case(truncated_answer_is_asked_for_again_by_tcp),
        client_case(getaddrinfo_serves_when_asked_for),
        weir_case(every_fault_fails_one_lookup_at_most),
        weir_case(out_of_memory_in_the_library_fails_the_lookup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
