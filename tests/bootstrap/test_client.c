/* SPDX-License-Identifier: MIT */
/* Clients: every form of address, everything that can go wrong, and the race of a name's addresses.
 */
#include "bootstrap/clients.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>

static weir_channel *connect_to(weir_group *group, record *to, const char *text)
{
    weir_client_config config = { .group = group, .init = to != NULL ? record_init : NULL };
    weir_channel *channel = NULL;
    weir_error error = { 0 };
    config.arg = to;
    config.connect_timeout_ns = INT64_MAX; /* no time overflows */
    if (weir_client_connect(&channel, &config, text, &error) < 0)
        fail_msg("%s", error.message);
    assert_non_null(channel);
    return channel;
}

/* The code and the whole text of a failure. */
static void expect_failure(const weir_client_config *config, const char *text, int code,
                           const char *message)
{
    weir_channel *channel = NULL;
    weir_error error = { 0 };
    assert_int_equal(weir_client_connect(&channel, config, text, &error), code);
    assert_null(channel);
    assert_int_equal(error.code, code);
    assert_string_equal(error.message, message);
    wait_until_idle(config->group);
    assert_int_equal(weir_client_connect(&channel, config, text, NULL), code);
}

static weir_promise *start(const weir_client_config *config, const char *text)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_error error = { 0 };
    assert_int_equal(weir_client_start(config, text, promise, &error), 0);
    assert_int_equal(error.code, 0);
    return promise;
}

static void cancel(weir_promise *promise)
{
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
}

/* Addresses ------------------------------------------------------------------------------------ */

static void expect_connected(weir_group *group, const peer *to)
{
    record seen = { 0 };
    char remote[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    weir_channel *channel = connect_to(group, &seen, to->text);
    int fd = accept_one(to);
    assert_true(weir_channel_is_active(channel));
    assert_int_equal(weir_channel_remote_address(channel, &address), 0);
    weir_address_text(&address, remote, sizeof remote);
    assert_string_equal(remote, to->text);
    assert_int_equal(write(fd, "x", 1), 1);
    close_and_release(channel);
    expect_end(fd);
    WAIT_FOR(atomic_load(&seen.inactives) == 1);
    assert_int_equal(atomic_load(&seen.inits), 1);
    assert_int_equal(atomic_load(&seen.actives), 1);
}

static void every_form_of_address_connects(void **state)
{
    (void)state;
    char path[64], name[64];
    const char *const texts[] = { "127.0.0.1:0", "[::1]:0", path, name };
    make_unix_text(path, "/tmp/");
    make_unix_text(name, "@");
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        for (size_t i = 0; i < COUNT(texts); i++) {
            unlink(path + 5);
            peer to = answering_peer(texts[i]);
            expect_connected(group, &to);
            close_peer(&to);
        }
        unlink(path + 5);
        end_group(group);
    }
}

static void names_connect(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        char text[32];
        snprintf(text, sizeof text, "localhost%s", strrchr(to.text, ':'));
        weir_channel *channel = connect_to(group, NULL, text);
        int fd = accept_one(&to);
        close_and_release(channel);
        expect_end(fd);
        close_peer(&to);
        end_group(group);
    }
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(30)), 0);
}

static weir_server *listen_local(weir_group *group, record *children)
{
    weir_server *server = NULL;
    weir_server_config config = { .boss = group, .init_child = record_init, .arg = children };
    assert_int_equal(weir_server_listen(&server, &config, "local:client", NULL), 0);
    return server;
}

static void close_server(weir_server *server)
{
    weir_server_drain(server, 0, NULL);
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
}

static void addresses_within_the_process_connect(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on), *peers = open_loops(&backends[0]);
        record children = { 0 }, seen = { 0 };
        weir_server *server = listen_local(peers, &children);
        weir_channel *channel = connect_to(group, &seen, "local:client");
        WAIT_FOR(atomic_load(&children.actives) == 1);
        assert_string_equal(weir_channel_kind(channel), "local");
        close_and_release(channel);
        WAIT_FOR(atomic_load(&children.inactives) == 1);
        assert_int_equal(atomic_load(&seen.inits), 1);
        assert_int_equal(atomic_load(&seen.actives), 1);
        close_server(server);
        weir_client_config config = { .group = group };
        expect_failure(&config, "local:client", -ECONNREFUSED,
                       "cannot connect to local:client: Connection refused");
        end_group(group);
        end_group(peers);
    }
}

static void channel_can_be_had_without_a_promise(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        record seen = { 0 };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        assert_int_equal(weir_client_start(&config, to.text, NULL, NULL), 0);
        int fd = accept_one(&to);
        WAIT_FOR(atomic_load(&seen.actives) == 1);
        assert_int_equal(atomic_load(&seen.inactives), 0);
        end_group(group);
        expect_end(fd);
        close_peer(&to);
    }
}

/* Refusals ------------------------------------------------------------------------------------- */

static void refusal_names_the_address(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        weir_client_config config = { .group = group };
        peer none = refusing_peer("127.0.0.1:0");
        char message[512];
        snprintf(message, sizeof message, "cannot connect to %s: Connection refused", none.text);
        expect_failure(&config, none.text, -ECONNREFUSED, message);
        close_peer(&none);
        expect_failure(&config, "unix:/nowhere/sock", -ENOENT,
                       "cannot connect to unix:/nowhere/sock: No such file or directory");
        end_group(group);
    }
}

static void unreachable_hosts_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int code;
        const char *text;
    } cases[] = {
        { "socket", -EAFNOSUPPORT,
          "cannot connect to 127.0.0.1:9: Address family not supported by protocol" },
        { "connect", -EHOSTUNREACH, "cannot connect to 127.0.0.1:9: No route to host" },
        { "connect", -ENETUNREACH, "cannot connect to 127.0.0.1:9: Network is unreachable" },
        { "connect", -EACCES, "cannot connect to 127.0.0.1:9: Permission denied" },
    };
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < COUNT(cases); i++) {
            weir_group *group = open_loops(on);
            weir_client_config config = { .group = group };
            weir_channel *channel = NULL;
            weir_error error;
            fault_begin(cases[i].call, 1, cases[i].code);
            assert_int_equal(weir_client_connect(&channel, &config, "127.0.0.1:9", &error),
                             cases[i].code);
            assert_string_equal(error.message, cases[i].text);
            end_group(group);
            assert_true(fault_end());
        }
    }
}

static void time_for_all_of_it_is_limited(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = hanging_peer("127.0.0.1:0");
        weir_client_config config = { .group = group, .connect_timeout_ns = WEIR_MS(30) };
        size_t before;
        char message[512];
        snprintf(message, sizeof message, "cannot connect to %s: Connection timed out", to.text);
        expect_failure(&config, to.text, -ETIMEDOUT, message);
        wait_until_idle(group);
        before = open_descriptors();
        expect_failure(&config, to.text, -ETIMEDOUT, message);
        wait_until_idle(group);
        assert_int_equal(open_descriptors(), before);
        close_peer(&to);
        end_group(group);
    }
}

static void time_of_the_names_counts(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        names some = NAMES("127.0.0.1:9");
        some.is_late = true;
        weir_client_config config = { .group = group, .connect_timeout_ns = WEIR_MS(20) };
        config.resolver = &some.base;
        weir_promise *promise = start(&config, "example.org:80");
        assert_int_equal(weir_future_await(weir_promise_future(promise)), -ETIMEDOUT);
        assert_string_equal(weir_future_error(weir_promise_future(promise))->message,
                            "cannot connect to example.org:80: Connection timed out");
        answer_late(&some);
        weir_promise_release(promise);
        end_group(group);
    }
}

static void names_that_do_not_resolve_are_told(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        names some = NAMES("");
        weir_client_config config = { .group = group, .resolver = &some.base };
        some.code = WEIR_ENONAME;
        char message[512];
        snprintf(message, sizeof message, "cannot connect to example.org:80: %s",
                 weir_error_text(WEIR_ENONAME));
        expect_failure(&config, "example.org:80", WEIR_ENONAME, message);
        some.code = 0; /* an empty list */
        expect_failure(&config, "example.org:80", WEIR_ENONAME, message);
        some.refusal = -EAGAIN;
        weir_channel *channel = NULL;
        assert_int_equal(weir_client_connect(&channel, &config, "example.org:80", NULL), -EAGAIN);
        assert_int_equal(atomic_load(&some.asked), 5);
        end_group(group);
    }
}

/* What a resolver gives need not be an address. */
static int answer_nothing_usable(weir_resolver *resolver, weir_executor *background,
                                 const char *host, uint16_t port, weir_promise *promise)
{
    static const weir_address none;
    static weir_addresses list = { .count = 1, .list = &none };
    (void)resolver, (void)background, (void)host, (void)port;
    return weir_promise_succeed(promise, &list, NULL);
}

static int answer_null(weir_resolver *resolver, weir_executor *background, const char *host,
                       uint16_t port, weir_promise *promise)
{
    (void)resolver, (void)background, (void)host, (void)port;
    return weir_promise_succeed(promise, NULL, NULL);
}

static void lists_without_an_address_are_refused(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]);
    weir_resolver odd = { .resolve = answer_nothing_usable }, null = { .resolve = answer_null };
    weir_client_config config = { .group = group, .resolver = &odd };
    weir_channel *channel = NULL;
    assert_int_equal(weir_client_connect(&channel, &config, "a:1", NULL), -EINVAL);
    config.resolver = &null;
    assert_int_equal(weir_client_connect(&channel, &config, "a:1", NULL), WEIR_ENONAME);
    end_group(group);
}

static const weir_attr_key plain_key = { .name = "plain" };
static const weir_attr_key owning_key = { .name = "owning", .destroy = free };

static void what_is_wrong_is_said_at_once(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]), *another = open_loops(&backends[0]);
    char long_path[200] = "unix:/";
    memset(long_path + 6, 'x', 150);
    weir_option_value none = { WEIR_OPTIONS_END, 1 }, wrong = { WEIR_OPTION_NO_DELAY, 2 };
    weir_attr_value owned = { &owning_key, NULL }, keyless = { NULL, NULL };
    const struct {
        weir_client_config config;
        const char *text, *says;
    } cases[] = {
        { { .group = group }, "127.0.0.1:70000", "70000" },
        { { .group = group }, "", "''" },
        { { .group = group }, "127.0.0.1", "127.0.0.1" },
        { { .group = group }, "localhost:70000", "70000" },
        { { .group = group }, "127.1:80", "127.1" },
        { { .group = group }, long_path, "unix:/xxx" },
        { { .group = group }, NULL, "address" },
        { { .group = NULL }, "127.0.0.1:1", "group" },
        { { .group = group, .loop = weir_group_loop_at(another, 0) },
          "127.0.0.1:1",
          "none of the group's" },
        { { .group = group, .local = "nonsense" }, "127.0.0.1:1", "nonsense" },
        { { .group = group, .local = "127.0.0.1:70000" }, "127.0.0.1:1", "70000" },
        { { .group = group, .connect_timeout_ns = -5 }, "127.0.0.1:1", "connect_timeout_ns is -5" },
        { { .group = group, .stagger_ns = -7 }, "127.0.0.1:1", "stagger_ns is -7" },
        { { .group = group, .options = &none, .option_count = 1 }, "127.0.0.1:1", "option 0" },
        { { .group = group, .option_count = 1 }, "127.0.0.1:1", "option 0" },
        { { .group = group, .options = &wrong, .option_count = 1 },
          "127.0.0.1:1",
          "no_delay is 2" },
        { { .group = group, .attrs = &owned, .attr_count = 1 }, "127.0.0.1:1", "attribute 0" },
        { { .group = group, .attrs = &keyless, .attr_count = 1 }, "127.0.0.1:1", "attribute 0" },
        { { .group = group, .attr_count = 1 }, "127.0.0.1:1", "attribute 0" },
    };
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel *channel = NULL;
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_error error = { 0 };
        assert_int_equal(weir_client_start(&cases[i].config, cases[i].text, promise, &error),
                         -EINVAL);
        assert_int_equal(error.code, -EINVAL);
        if (strstr(error.message, cases[i].says) == NULL)
            fail_msg("no '%s' in '%s'", cases[i].says, error.message);
        assert_int_equal(weir_client_connect(&channel, &cases[i].config, cases[i].text, &error),
                         -EINVAL);
        assert_int_equal(code_of(promise), -EINPROGRESS);
    }
    assert_int_equal(weir_client_start(NULL, "127.0.0.1:1", promise, NULL), -EINVAL);
    assert_int_equal(
        weir_client_connect(NULL, &(weir_client_config){ .group = group }, "127.0.0.1:1", NULL),
        -EINVAL);
    cancel(promise);
    weir_promise_release(promise);
    end_group(another);
    end_group(group);
}

static void groups_without_loops_are_refused(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    weir_client_config config = { .group = group };
    weir_channel *channel = NULL;
    weir_error error;
    assert_int_equal(weir_client_connect(&channel, &config, "127.0.0.1:1", &error), WEIR_ELOOPTYPE);
    assert_non_null(strstr(error.message, "127.0.0.1:1"));
    end_group(group);
}

static void groups_that_are_full_are_told(void **state)
{
    (void)state;
    weir_group *group = open_group(
        &(weir_group_config){ .io = WEIR_IO_BLOCKING, .max_channels = 1, .watchdog_ns = WEIR_OFF });
    peer to = answering_peer("127.0.0.1:0");
    weir_channel *one = connect_to(group, NULL, to.text), *two = NULL;
    weir_client_config config = { .group = group };
    assert_int_equal(weir_client_connect(&two, &config, to.text, NULL), WEIR_ELIMIT);
    close_and_release(one);
    wait_until_idle(group);
    /* One that fails leaves its loop for the next, too. */
    peer none = refusing_peer("127.0.0.1:0");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_client_connect(&two, &config, none.text, NULL), -ECONNREFUSED);
        wait_until_idle(group);
        assert_int_equal(weir_client_connect(&two, &config, "nonsense", NULL), -EINVAL);
    }
    assert_int_equal(weir_group_count(group), 1);
    two = connect_to(group, NULL, to.text);
    close_and_release(two);
    close_peer(&to);
    close_peer(&none);
    end_group(group);
}

/* The race ------------------------------------------------------------------------------------- */

typedef peer (*runner_fn)(const char *text);

#define MOST_RUNNERS 4
#define RUNNERS(...) ((const runner_fn[MOST_RUNNERS + 1]){ __VA_ARGS__ })

/* A name with addresses of peers, and a client for it on a group that the test drives. */
typedef struct race {
    weir_virtual_clock clock;
    weir_group *group;
    names some;
    char list[512];
    peer runners[MOST_RUNNERS];
    size_t runner_count;
    record seen;
    weir_client_config config;
    weir_promise *promise;
    size_t descriptors; /* before */
} race;

static void add_runner(race *self, const peer *runner)
{
    size_t used = strlen(self->list);
    snprintf(self->list + used, sizeof self->list - used, " %s", runner->text);
}

/* With runners of its own, of the kinds that are listed, before others. */
static void open_race(race *self, const runner_fn *runners)
{
    *self = (race){ 0 };
    for (; runners != NULL && runners[self->runner_count] != NULL; self->runner_count++) {
        peer *own = &self->runners[self->runner_count];
        *own = runners[self->runner_count]("127.0.0.1:0");
        add_runner(self, own);
    }
    self->group = open_manual(&self->clock);
    self->some = NAMES(self->list);
    self->config = (weir_client_config){ .group = self->group, .init = record_init };
    self->config.arg = &self->seen;
    self->config.resolver = &self->some.base;
    step_all(self->group);
}

static void start_race(race *self)
{
    self->descriptors = open_descriptors();
    self->promise = start(&self->config, "example.org:80");
    step_all(self->group);
}

static void pass_ms(race *self, int ms)
{
    weir_virtual_clock_advance(&self->clock, WEIR_MS(ms));
    step_all(self->group);
}

static size_t sockets_of(const race *self)
{
    return open_descriptors() - self->descriptors;
}

static void close_race(race *self)
{
    weir_promise_release(self->promise);
    end_group(self->group);
    for (size_t i = 0; i < self->runner_count; i++)
        close_peer(&self->runners[i]);
}

static uint64_t loop_completions(const race *self)
{
    weir_loop_stats now;
    weir_loop_get_stats(weir_group_loop_at(self->group, 0), &now);
    return now.completions;
}

/* It was the one, and the only one. */
static void expect_winner(race *self, size_t index)
{
    const peer *winner = &self->runners[index];
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    assert_int_equal(code_of(self->promise), 0);
    weir_channel *channel = weir_future_value(weir_promise_future(self->promise));
    assert_non_null(channel);
    assert_int_equal(weir_channel_remote_address(channel, &address), 0);
    weir_address_text(&address, text, sizeof text);
    assert_string_equal(text, winner->text);
    assert_int_equal(sockets_of(self), 1);
    assert_int_equal(atomic_load(&self->seen.inits), 1);
    assert_int_equal(atomic_load(&self->seen.actives), 1);
    int fd = accept_one(winner);
    weir_channel_close(channel, NULL);
    step_all(self->group);
    expect_end(fd);
    assert_int_equal(atomic_load(&self->seen.inactives), 1);
}

static void second_address_is_tried_after_a_while(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer, answering_peer));
    start_race(&it);
    assert_int_equal(sockets_of(&it), 1);
    pass_ms(&it, 249);
    assert_int_equal(sockets_of(&it), 1);
    assert_false(has_waiting(&it.runners[1]));
    assert_int_equal(code_of(it.promise), -EINPROGRESS);
    pass_ms(&it, 1);
    expect_winner(&it, 1);
    pass_ms(&it, 100000);
    assert_int_equal(sockets_of(&it), 0);
    close_race(&it);
}

static void each_address_has_its_time(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer, hanging_peer, hanging_peer, answering_peer));
    it.config.stagger_ns = WEIR_MS(100);
    start_race(&it);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sockets_of(&it), i + 1);
        pass_ms(&it, 99);
        assert_int_equal(sockets_of(&it), i + 1);
        pass_ms(&it, 1);
    }
    expect_winner(&it, 3);
    close_race(&it);
}

static void nobody_is_tried_after_the_end(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer, answering_peer, answering_peer));
    start_race(&it);
    pass_ms(&it, 250);
    expect_winner(&it, 1);
    pass_ms(&it, 1000);
    assert_false(has_waiting(&it.runners[2]));
    assert_int_equal(sockets_of(&it), 0);
    close_race(&it);
}

static void slow_one_may_still_win(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer, hanging_peer));
    start_race(&it);
    pass_ms(&it, 250);
    assert_int_equal(sockets_of(&it), 2);
    close(accept_one(
        &it.runners[0])); /* there is room again: the kernel tries once more within seconds */
    WAIT_FOR_STEPPING(weir_future_is_done(weir_promise_future(it.promise)),
                      weir_loop_run_once(weir_group_loop_at(it.group, 0), WEIR_MS(10)));
    step_all(it.group);
    expect_winner(&it, 0);
    close_race(&it);
}

static void refused_one_is_followed_at_once(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(refusing_peer, answering_peer));
    start_race(&it);
    expect_winner(&it, 1);
    close_race(&it);
}

/* The refused one in the middle does not give the third its time twice. */
static void late_refusal_is_followed_at_once(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer, refusing_peer, answering_peer));
    start_race(&it);
    pass_ms(&it, 250);
    expect_winner(&it, 2);
    close_race(&it);
}

/* Nobody listens there any more: who still tries is refused when the kernel tries once more, which
 * it does within seconds. Waits until there is a next attempt, or an end. */
static void refuse_now(race *self, peer *runner, const peer *next)
{
    shutdown(runner->fd, SHUT_RDWR);
    WAIT_FOR_STEPPING(has_waiting(next),
                      weir_loop_run_once(weir_group_loop_at(self->group, 0), WEIR_MS(10)));
    step_all(self->group);
}

static void without_stagger_each_has_to_fail(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer, answering_peer));
    it.config.stagger_ns = WEIR_OFF;
    start_race(&it);
    pass_ms(&it, 29999);
    assert_int_equal(code_of(it.promise), -EINPROGRESS);
    assert_int_equal(sockets_of(&it), 1);
    pass_ms(&it, 1);
    assert_int_equal(code_of(it.promise), -ETIMEDOUT);
    assert_int_equal(sockets_of(&it), 0);
    assert_false(has_waiting(&it.runners[1]));
    close_race(&it);
}

/* The second one has all of its time, though the first was given up before its own was over. */
static void time_begins_with_each_attempt(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer, hanging_peer, answering_peer));
    start_race(&it);
    pass_ms(&it, 100);
    shutdown(it.runners[0].fd, SHUT_RDWR);
    uint64_t before = loop_completions(&it);
    WAIT_FOR_STEPPING(loop_completions(&it) != before,
                      weir_loop_run_once(weir_group_loop_at(it.group, 0), WEIR_MS(10)));
    step_all(it.group);
    pass_ms(&it, 249);
    assert_int_equal(sockets_of(&it), 1);
    assert_false(has_waiting(&it.runners[2]));
    pass_ms(&it, 1);
    expect_winner(&it, 2);
    close_race(&it);
}

static void without_timeout_it_waits(void **state)
{
    (void)state;
    race it;
    open_race(&it, RUNNERS(hanging_peer));
    it.config.connect_timeout_ns = WEIR_OFF;
    start_race(&it);
    pass_ms(&it, 100000000);
    assert_int_equal(code_of(it.promise), -EINPROGRESS);
    cancel(it.promise);
    step_all(it.group);
    assert_int_equal(sockets_of(&it), 0);
    /* Nobody could ever end the waiting here. */
    weir_channel *channel = NULL;
    assert_int_equal(weir_client_connect(&channel, &it.config, "example.org:80", NULL), -EDEADLK);
    step_all(it.group);
    assert_int_equal(sockets_of(&it), 0);
    close_race(&it);
}

static void all_that_failed_are_listed(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer one = refusing_peer("127.0.0.1:0"), two = refusing_peer("[::1]:0");
        char list[512], message[1024];
        snprintf(list, sizeof list, "%s unix:/nowhere %s", two.text, one.text);
        names some = NAMES(list);
        weir_client_config config = { .group = group, .resolver = &some.base };
        snprintf(message, sizeof message,
                 "cannot connect to example.org:80 (%s: Connection refused; unix:/nowhere: No such "
                 "file or directory; %s: Connection refused)",
                 two.text, one.text);
        expect_failure(&config, "example.org:80", -ECONNREFUSED, message);
        snprintf(list, sizeof list, "unix:/nowhere %s", one.text);
        snprintf(message, sizeof message,
                 "cannot connect to example.org:80 (unix:/nowhere: No such file or directory; %s: "
                 "Connection refused)",
                 one.text);
        expect_failure(&config, "example.org:80", -ENOENT, message);
        close_peer(&one);
        close_peer(&two);
        end_group(group);
    }
}

static void those_that_hang_are_listed_too(void **state)
{
    (void)state;
    race it;
    char message[512];
    open_race(&it, RUNNERS(refusing_peer, hanging_peer));
    harness_log_begin(WEIR_LOG_INFO);
    start_race(&it);
    pass_ms(&it, 30000);
    assert_int_equal(code_of(it.promise), -ETIMEDOUT);
    for (size_t i = 0; i < 2; i++) {
        snprintf(message, sizeof message, "no connection to %s: Connection %s", it.runners[i].text,
                 i == 0 ? "refused" : "timed out");
        assert_true(harness_log_has(message));
    }
    assert_int_equal(harness_log_end(), 2);
    snprintf(message, sizeof message,
             "cannot connect to example.org:80 (%s: Connection refused; %s: Connection timed out)",
             it.runners[0].text, it.runners[1].text);
    assert_string_equal(weir_future_error(weir_promise_future(it.promise))->message, message);
    close_race(&it);
}

/* Sixteen do not fit: that is said, and the log has all of them. */
static void many_addresses_are_cut(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]);
    char list[1024] = "", message[512];
    for (int i = 0; i < 16; i++)
        snprintf(list + strlen(list), 64, " unix:/nowhere/at/all/%d", i);
    names some = NAMES(list);
    weir_client_config config = { .group = group, .resolver = &some.base };
    weir_channel *channel = NULL;
    weir_error error;
    harness_log_begin(WEIR_LOG_INFO);
    assert_int_equal(weir_client_connect(&channel, &config, "example.org:80", &error), -ENOENT);
    assert_string_equal(error.message,
                        "cannot connect to example.org:80 (unix:/nowhere/at/all/0: No such file or "
                        "directory; unix:/nowhere/at/all/1: No such file or directory; "
                        "unix:/nowhere/at/all/2: No such file or directory; and 13 more)");
    for (int i = 0; i < 16; i++) {
        snprintf(message, sizeof message,
                 "example.org:80: no connection to unix:/nowhere/at/all/%d: No such file", i);
        assert_true(harness_log_has(message));
    }
    harness_log_end();
    end_group(group);
}

/* The last one fits if there need not be a word about more. */
static void as_many_as_fit_are_listed(void **state)
{
    (void)state;
    static const char frame[] = "cannot connect to  (unix:/a: No such file or directory; "
                                "unix:/b: No such file or directory)";
    weir_group *group = open_loops(&backends[0]);
    names some = NAMES("unix:/a unix:/b");
    weir_client_config config = { .group = group, .resolver = &some.base };
    weir_channel *channel = NULL;
    weir_error error;
    char name[sizeof error.message] = "";
    size_t fits = sizeof error.message - sizeof frame;
    static const struct {
        size_t more;
        const char *end;
    } cases[] = { { 0, "; unix:/b: No such file or directory)" },
                  { 1, " (unix:/a: No such file or directory; and 1 more)" },
                  { 50, " (2 addresses)" } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t length = fits + cases[i].more;
        for (size_t k = 0; k < length; k++)
            name[k] = k % 50 == 49 ? '.' : 'a';
        snprintf(name + length - 3, 4, ":80");
        assert_int_equal(weir_client_connect(&channel, &config, name, &error), -ENOENT);
        assert_string_equal(error.message + strlen(error.message) - strlen(cases[i].end),
                            cases[i].end);
    }
    end_group(group);
}

/* One loop has room for one descriptor: then one after another, and who hangs is given up in time.
 */
static void one_after_another_when_there_is_room_for_one(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[1]);
    peer slow = hanging_peer("127.0.0.1:0"), refusing = refusing_peer("127.0.0.1:0");
    peer quick = answering_peer("127.0.0.1:0"), last = hanging_peer("127.0.0.1:0");
    char list[512], message[512];
    snprintf(list, sizeof list, "%s %s", slow.text, quick.text);
    names some = NAMES(list);
    weir_client_config config = { .group = group, .resolver = &some.base };
    config.stagger_ns = WEIR_MS(1);
    config.connect_timeout_ns = WEIR_MS(1800);
    weir_channel *channel = NULL;
    assert_int_equal(weir_client_connect(&channel, &config, "example.org:80", NULL), 0);
    assert_true(has_waiting(&quick));
    close_and_release(channel);
    wait_until_idle(group);
    snprintf(list, sizeof list, "%s %s", refusing.text, quick.text);
    config.connect_timeout_ns = 0;
    assert_int_equal(weir_client_connect(&channel, &config, "example.org:80", NULL), 0);
    close_and_release(channel);
    wait_until_idle(group);
    /* The last one is not given up: all of the time is its own. */
    snprintf(list, sizeof list, "%s %s %s", slow.text, refusing.text, last.text);
    snprintf(message, sizeof message,
             "cannot connect to example.org:80 (%s: Connection timed out; %s: Connection refused; "
             "%s: Connection timed out)",
             slow.text, refusing.text, last.text);
    config.connect_timeout_ns = WEIR_MS(1500);
    weir_error error;
    assert_int_equal(weir_client_connect(&channel, &config, "example.org:80", &error), -ETIMEDOUT);
    assert_string_equal(error.message, message);
    close_peer(&slow);
    close_peer(&refusing);
    close_peer(&quick);
    close_peer(&last);
    end_group(group);
}

/* The first of the runners hangs; descriptors are scarce for the second when its time comes. */
static void start_scarce(race *self, const runner_fn *runners, int64_t timeout_ns)
{
    open_race(self, runners);
    self->config.connect_timeout_ns = timeout_ns;
    start_race(self);
    fault_begin("socket", 1, -EMFILE);
    pass_ms(self, 250);
    assert_true(fault_end());
    assert_int_equal(sockets_of(self), 1);
}

static void who_hangs_is_given_up_when_there_is_no_room(void **state)
{
    (void)state;
    static const struct {
        int64_t timeout_ns;
        int share_ms;
    } cases[] = { { 0, 14875 }, { WEIR_MS(1250), 500 }, { WEIR_OFF, 15000 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        race it;
        start_scarce(&it, RUNNERS(hanging_peer, answering_peer), cases[i].timeout_ns);
        pass_ms(&it, cases[i].share_ms - 1);
        assert_int_equal(code_of(it.promise), -EINPROGRESS);
        assert_false(has_waiting(&it.runners[1]));
        pass_ms(&it, 1);
        expect_winner(&it, 1);
        close_race(&it);
    }
}

static void time_is_shared_by_those_that_are_left(void **state)
{
    (void)state;
    race it;
    char message[512];
    start_scarce(&it, RUNNERS(hanging_peer, hanging_peer, refusing_peer), WEIR_MS(3250));
    pass_ms(&it, 999); /* of 3000 for three */
    assert_int_equal(sockets_of(&it), 1);
    fault_begin("socket", 2, -EMFILE); /* that of the third: first it is the second's turn */
    pass_ms(&it, 1);
    pass_ms(&it, 250);
    assert_true(fault_end());
    pass_ms(&it, 874); /* of 1750 for two */
    assert_int_equal(code_of(it.promise), -EINPROGRESS);
    pass_ms(&it, 1);
    assert_int_equal(code_of(it.promise), -ETIMEDOUT);
    snprintf(message, sizeof message,
             "cannot connect to example.org:80 (%s: Connection timed out; %s: Connection timed "
             "out; %s: Connection refused)",
             it.runners[0].text, it.runners[1].text, it.runners[2].text);
    assert_string_equal(weir_future_error(weir_promise_future(it.promise))->message, message);
    close_race(&it);
}

static void cancelling_ends_the_wait_for_room(void **state)
{
    (void)state;
    race it;
    start_scarce(&it, RUNNERS(hanging_peer, answering_peer), 0);
    cancel(it.promise);
    step_all(it.group);
    pass_ms(&it, 100000);
    assert_int_equal(sockets_of(&it), 0);
    assert_false(has_waiting(&it.runners[1]));
    close_race(&it);
}

/* The second cannot begin while the first is under way, for want of what that has. */
static void expect_second_waits(const char *local, const char *call, int code)
{
    race it;
    open_race(&it, RUNNERS(hanging_peer, answering_peer));
    it.config.local = local;
    start_race(&it);
    fault_begin(call, 1, code);
    pass_ms(&it, 250);
    assert_true(fault_end());
    assert_int_equal(sockets_of(&it), 1);
    assert_int_equal(code_of(it.promise), -EINPROGRESS);
    refuse_now(&it, &it.runners[0], &it.runners[1]);
    expect_winner(&it, 1);
    close_race(&it);
}

static void second_waits_for_a_descriptor(void **state)
{
    (void)state;
    expect_second_waits(NULL, "socket", -EMFILE);
}

/* Two attempts cannot have one port at the same time. */
static void second_waits_for_the_local_port(void **state)
{
    (void)state;
    expect_second_waits("127.0.0.1:0", "bind", -EADDRINUSE);
}

static void channels_within_the_process_take_part(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on), *peers = open_loops(&backends[0]);
        record children = { 0 };
        peer quick = answering_peer("127.0.0.1:0"), refusing = refusing_peer("127.0.0.1:0");
        char list[512];
        names some = NAMES(list);
        weir_client_config config = { .group = group, .resolver = &some.base };
        weir_channel *channel = NULL;
        /* One that fails is followed by the next. */
        snprintf(list, sizeof list, "local:nobody %s", quick.text);
        assert_int_equal(weir_client_connect(&channel, &config, "example.org:80", NULL), 0);
        assert_string_equal(weir_channel_kind(channel), "tcp");
        close_and_release(channel);
        /* And the other way round. */
        weir_server *server = listen_local(peers, &children);
        snprintf(list, sizeof list, "%s local:client", refusing.text);
        assert_int_equal(weir_client_connect(&channel, &config, "example.org:80", NULL), 0);
        assert_string_equal(weir_channel_kind(channel), "local");
        close_and_release(channel);
        close_server(server);
        close_peer(&quick);
        close_peer(&refusing);
        end_group(group);
        end_group(peers);
    }
}

/* Setting up ----------------------------------------------------------------------------------- */

static int socket_number(weir_channel *channel, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    assert_int_equal(getsockopt(weir__socket_of(channel)->fd, level, name, &value, &length), 0);
    return value;
}

static void options_and_attributes_are_set(void **state)
{
    (void)state;
    weir_option_value options[] = {
        { WEIR_OPTION_NO_DELAY, 0 },
        { WEIR_OPTION_KEEP_ALIVE, 1 },
        { WEIR_OPTION_RECEIVE_BUFFER_BYTES, 20000 },
        { WEIR_OPTION_AUTO_READ, 0 },
        { WEIR_OPTION_MAX_OUTBOUND_BYTES, 12345 },
        { WEIR_OPTION_CLOSE_LINGER_NS, WEIR_SECONDS(17) },
    };
    int there;
    weir_attr_value attrs[] = { { &plain_key, &there } };
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        weir_client_config config = { .group = group, .options = options };
        config.option_count = COUNT(options);
        config.attrs = attrs;
        config.attr_count = COUNT(attrs);
        weir_channel *channel = NULL;
        assert_int_equal(weir_client_connect(&channel, &config, to.text, NULL), 0);
        assert_int_equal(socket_number(channel, IPPROTO_TCP, TCP_NODELAY), 0);
        assert_int_equal(socket_number(channel, SOL_SOCKET, SO_KEEPALIVE), 1);
        assert_int_equal(socket_number(channel, SOL_SOCKET, SO_RCVBUF), 40000);
        int64_t value;
        assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_AUTO_READ, &value), 0);
        assert_int_equal(value, 0);
        assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, &value),
                         0);
        assert_int_equal(value, 12345);
        assert_ptr_equal(weir_channel_attr(channel, &plain_key), &there);
        assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, &value), 0);
        assert_int_equal(value, WEIR_SECONDS(17));
        assert_int_equal(weir__lingering_ns(weir__socket_of(channel)), WEIR_SECONDS(17));
        close_and_release(channel);
        assert_int_equal(weir_executor_global_wait_idle(WEIR_MS(20000)), 0);
        /* By default. */
        channel = connect_to(group, NULL, to.text);
        assert_int_equal(socket_number(channel, IPPROTO_TCP, TCP_NODELAY), 1);
        close_and_release(channel);
        close_peer(&to);
        end_group(group);
    }
}

/* The largest segment is announced when it connects, and not later. */
static void options_are_set_before_connecting(void **state)
{
    (void)state;
    static const weir_option_value options[] = { { WEIR_OPTION_MAX_SEGMENT_BYTES, 500 } };
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        weir_client_config config = { .group = group, .options = options, .option_count = 1 };
        weir_channel *channel = NULL;
        assert_int_equal(weir_client_connect(&channel, &config, to.text, NULL), 0);
        int fd = accept_one(&to);
        struct tcp_info info;
        socklen_t length = sizeof info;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
        assert_true(info.tcpi_snd_mss <= 500); /* told with the SYN */
        close_and_release(channel);
        expect_end(fd);
        close_peer(&to);
        end_group(group);
    }
}

static void options_that_do_not_fit_fail(void **state)
{
    (void)state;
    static const weir_option_value no_delay = { WEIR_OPTION_NO_DELAY, 1 };
    static const weir_option_value backlog = { WEIR_OPTION_BACKLOG, 1 };
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        char name[64];
        make_unix_text(name, "@option-");
        peer inet = answering_peer("127.0.0.1:0"), other = answering_peer(name);
        weir_client_config config = { .group = group, .options = &no_delay, .option_count = 1 };
        weir_channel *channel = NULL;
        size_t before = open_descriptors();
        record seen = { 0 };
        config.init = record_init;
        config.arg = &seen;
        assert_int_equal(weir_client_connect(&channel, &config, other.text, NULL), -ENOPROTOOPT);
        config.options = &backlog;
        assert_int_equal(weir_client_connect(&channel, &config, inet.text, NULL), -ENOPROTOOPT);
        assert_int_equal(atomic_load(&seen.inits), 0);
        if (on->io != WEIR_IO_BLOCKING) /* a loop of which has descriptors of its own */
            WAIT_FOR(open_descriptors() <= before + 3);
        expect_end(accept_one(&inet));
        expect_end(accept_one(&other));
        close_peer(&inet);
        close_peer(&other);
        end_group(group);
    }
}

static void expect_failed_init(const weir_client_config *config, peer *to, int code)
{
    weir_channel *channel = NULL;
    weir_error error;
    assert_int_equal(weir_client_connect(&channel, config, to->text, &error), code);
    assert_null(channel);
    assert_non_null(strstr(error.message, to->text));
    expect_end(accept_one(to));
}

static void init_that_fails_closes(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        record seen = { .init_code = -EDOM };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        expect_failed_init(&config, &to, -EDOM);
        assert_int_equal(atomic_load(&seen.inits), 1);
        assert_int_equal(atomic_load(&seen.actives), 0);
        close_peer(&to);
        end_group(group);
    }
}

static void unwilling_added(weir_ctx *ctx)
{
    weir_ctx_fail(ctx, -EPROTO, "cannot be added");
}

static const weir_handler_type unwilling_type = { .name = "unwilling", .added = unwilling_added };

static void add_unwilling(record *self, weir_channel *channel)
{
    (void)self;
    weir_pipeline_add_last(weir_channel_pipeline(channel), "filter", &unwilling_type, NULL);
}

static void failed_add_in_init_fails_the_connect(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        record seen = { .in_init = add_unwilling };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        expect_failed_init(&config, &to, -EPROTO);
        assert_int_equal(atomic_load(&seen.inits), 1);
        assert_int_equal(atomic_load(&seen.actives), 0);
        close_peer(&to);
        end_group(group);
    }
}

static int serve_nothing(weir_channel *child, void *arg)
{
    (void)child, (void)arg;
    return 0;
}

static void init_that_fails_within_the_process_is_told(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]);
    weir_server *server = NULL;
    const weir_server_config listens = { .workers = group, .init_child = serve_nothing };
    assert_int_equal(weir_server_listen(&server, &listens, "local:init", NULL), 0);
    record seen = { .init_code = -EDOM };
    weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
    weir_channel *channel = NULL;
    weir_error error;
    assert_int_equal(weir_client_connect(&channel, &config, "local:init", &error), -EDOM);
    assert_non_null(strstr(error.message, "local:init"));
    weir_server_close(server, NULL);
    weir_server_release(server);
    end_group(group);
}

/* Who listens within the process is busy, and the time is up. */
static void time_within_the_process_is_limited(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]), *busy = open_loops(&backends[0]);
    weir_server *server = NULL;
    blocker hold;
    const weir_server_config listens = { .workers = busy, .init_child = serve_nothing };
    assert_int_equal(weir_server_listen(&server, &listens, "local:busy", NULL), 0);
    weir_channel *channel = NULL;
    weir_error error = { 0 };
    static const weir_option_value hour = { WEIR_OPTION_CONNECT_TIMEOUT_NS, WEIR_SECONDS(3600) };
    weir_client_config config = { .group = group, .connect_timeout_ns = WEIR_MS(20) };
    config.options = &hour; /* the channel's own, which is none here */
    config.option_count = 1;
    block(&hold, weir_group_at(busy, 0));
    assert_int_equal(weir_client_connect(&channel, &config, "local:busy", &error), -ETIMEDOUT);
    assert_string_equal(error.message, "cannot connect to local:busy: Connection timed out");
    unblock(&hold);
    weir_server_close(server, NULL);
    weir_server_release(server);
    end_group(group);
    end_group(busy);
}

static uint64_t channels_on(weir_executor *executor)
{
    weir_executor_stats stats;
    weir_executor_get_stats(executor, &stats);
    return stats.channels;
}

static int move_to_the_other_loop(weir_channel *channel, void *arg)
{
    weir_executor *here = weir_executor_current();
    bool is_first = here == weir_group_at(arg, 0);
    weir_channel_move(channel, weir_group_at(arg, is_first ? 1 : 0), NULL);
    return 0;
}

/* Its connector stays on the loop that it was started on. */
static void client_may_move_before_it_is_connected(void **state)
{
    (void)state;
    weir_group *group = NULL, *busy = open_loops(&backends[0]);
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .count = 2 }, NULL), 0);
    peer to = answering_peer("127.0.0.1:0");
    weir_server *server = NULL;
    const weir_server_config listens = { .workers = busy, .init_child = serve_nothing };
    assert_int_equal(weir_server_listen(&server, &listens, "local:moves", NULL), 0);
    for (int i = 0; i < 50; i++) {
        const char *text = i % 2 ? to.text : "local:moves";
        weir_promise *promise = weir_promise_new(NULL);
        weir_client_config config = { .group = group, .init = move_to_the_other_loop };
        config.arg = group;
        config.loop = weir_executor_loop(weir_group_at(group, 0));
        blocker hold;
        block(&hold, weir_group_at(busy, 0)); /* it moves before it is accepted */
        assert_int_equal(weir_client_start(&config, text, promise, NULL), 0);
        if (i % 4 == 0)
            WAIT_FOR(channels_on(weir_group_at(group, 1)) > 0);
        unblock(&hold);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        weir_channel *channel = weir_future_value(weir_promise_future(promise));
        WAIT_FOR(weir_channel_loop(channel) == weir_executor_loop(weir_group_at(group, 1)));
        WAIT_FOR(channels_on(weir_group_at(group, 0)) == 0);
        weir_channel_close(channel, NULL);
        weir_future_await(weir_channel_closed(channel));
        weir_promise_release(promise);
    }
    weir_server_close(server, NULL);
    weir_server_release(server);
    end_group(group);
    end_group(busy);
    close_peer(&to);
}

static void local_address_is_bound(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0"), far = answering_peer("[::1]:0");
        weir_client_config config = { .group = group, .local = "127.0.0.7:0" };
        weir_channel *channel = NULL;
        weir_address local;
        char text[WEIR_ADDRESS_TEXT_MAX];
        assert_int_equal(weir_client_connect(&channel, &config, to.text, NULL), 0);
        assert_int_equal(weir_channel_local_address(channel, &local), 0);
        weir_address_text(&local, text, sizeof text);
        assert_memory_equal(text, "127.0.0.7:", 10);
        close_and_release(channel);
        /* Of another kind. */
        static const char *const others[] = { "127.0.0.1:0", "unix:@x", "local:x" };
        for (size_t i = 0; i < COUNT(others); i++) {
            char message[512];
            config.local = others[i];
            snprintf(message, sizeof message, "cannot connect to %s: %s", far.text,
                     weir_error_text(-EAFNOSUPPORT));
            expect_failure(&config, far.text, -EAFNOSUPPORT, message);
        }
        config.local = "127.0.0.1:0";
        assert_int_equal(weir_client_connect(&channel, &config, "local:x", NULL), -EAFNOSUPPORT);
        config.local = "192.0.2.1:0"; /* nobody's */
        assert_int_equal(weir_client_connect(&channel, &config, to.text, NULL), -EADDRNOTAVAIL);
        close_peer(&to);
        close_peer(&far);
        end_group(group);
    }
}

static void local_path_goes_with_the_channel(void **state)
{
    (void)state;
    struct stat facts;
    char local[64], name[64], nobody[64];
    const char *path = local + strlen("unix:");
    make_unix_text(local, "/tmp/local-");
    make_unix_text(name, "@to-");
    make_unix_text(nobody, "@nobody-");
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer(name);
        weir_client_config config = { .group = group, .local = local };
        for (int i = 0; i < 2; i++) {
            weir_channel *channel = NULL;
            assert_int_equal(weir_client_connect(&channel, &config, to.text, NULL), 0);
            assert_int_equal(stat(path, &facts), 0);
            close_and_release(channel);
            assert_int_equal(stat(path, &facts), -1);
        }
        weir_channel *none = NULL;
        assert_int_equal(weir_client_connect(&none, &config, nobody, NULL), -ECONNREFUSED);
        assert_int_equal(stat(path, &facts), -1);
        close_peer(&to);
        end_group(group);
    }
}

/* The promise ---------------------------------------------------------------------------------- */

static void promise_keeps_the_channel(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        weir_client_config config = { .group = group };
        weir_promise *promise = start(&config, to.text);
        weir_future *future = weir_future_retain(weir_promise_future(promise));
        assert_int_equal(weir_future_await(future), 0);
        weir_channel *channel = weir_future_value(future);
        weir_promise_release(promise);
        weir_channel_close(channel, NULL);
        weir_future_await(weir_channel_closed(channel));
        end_group(group);
        /* It is over, but still there. */
        assert_false(weir_channel_is_open(channel));
        weir_future_release(future);
        close_peer(&to);
    }
}

static int connect_there(void *arg)
{
    weir_client_config config = { .group = arg };
    weir_channel *channel = NULL;
    weir_error error;
    int code = weir_client_connect(&channel, &config, "localhost:1", &error);
    assert_non_null(strstr(error.message, "localhost:1"));
    return code;
}

static void waiting_is_refused_on_threads_of_weir(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]), *executors = new_group_of(1);
    assert_int_equal(call_on(weir_group_next(group), connect_there, group), -EDEADLK);
    assert_int_equal(call_on(weir_group_next(executors), connect_there, group), -EDEADLK);
    /* Where names are asked for: it would wait for itself. */
    assert_int_equal(call_on(weir_group_background(group), connect_there, group), -EDEADLK);
    end_group(executors);
    end_group(group);
}

/* On a loop it can be started, and told there. */
typedef struct on_loop {
    weir_listener done;
    weir_group *group;
    const char *text;
    weir_promise *promise;
    atomic_int code;
    bool was_here;
} on_loop;

static void loop_told(weir_listener *listener, weir_future *future)
{
    on_loop *self = WEIR_CONTAINER(listener, on_loop, done);
    self->was_here = weir_loop_current() != NULL;
    if (weir_future_code(future) == 0)
        weir_channel_close(weir_future_value(future), NULL);
    atomic_store(&self->code, weir_future_code(future));
}

static int start_on_loop(void *arg)
{
    on_loop *self = arg;
    weir_client_config config = { .group = self->group };
    self->promise = weir_promise_new(weir_executor_current());
    self->done.done = loop_told;
    weir_future_listen(weir_promise_future(self->promise), &self->done);
    int code = weir_client_start(&config, self->text, self->promise, NULL);
    weir_promise_release(self->promise);
    return code;
}

static void starting_on_a_loop_is_fine(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on), *mine = open_loops(&backends[0]);
        peer to = answering_peer("127.0.0.1:0");
        on_loop it = { .group = group, .text = to.text, .code = 1 };
        assert_int_equal(call_on(weir_group_next(mine), start_on_loop, &it), 0);
        WAIT_FOR(atomic_load(&it.code) != 1);
        assert_int_equal(atomic_load(&it.code), 0);
        assert_true(it.was_here);
        close_peer(&to);
        end_group(group);
        end_group(mine);
    }
}

/* Cancelling ----------------------------------------------------------------------------------- */

static void cancelled_before_the_start(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        record seen = { 0 };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        weir_promise *promise = weir_promise_new(NULL);
        cancel(promise);
        /* It may have been connected, but then it is closed. */
        assert_int_equal(weir_client_start(&config, to.text, promise, NULL), 0);
        assert_int_equal(code_of(promise), -ECANCELED);
        weir_promise_release(promise);
        end_group(group);
        if (has_waiting(&to))
            expect_end(accept_one(&to));
        assert_int_equal(atomic_load(&seen.actives), atomic_load(&seen.inactives));
        close_peer(&to);
    }
}

static void cancelled_during_the_lookup(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        names some = NAMES("127.0.0.1:9");
        some.is_late = true;
        weir_client_config config = { .group = group, .resolver = &some.base };
        weir_promise *promise = start(&config, "example.org:80");
        cancel(promise);
        weir_promise *late = atomic_load(&some.late);
        /* The question is cancelled, too. */
        assert_int_equal(weir_future_await(weir_promise_future(late)), -ECANCELED);
        answer_late(&some);
        weir_promise_release(promise);
        end_group(group);
    }
}

static void cancelled_while_it_connects(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = hanging_peer("127.0.0.1:0");
        weir_client_config config = { .group = group };
        weir_channel *warm = NULL;
        config.connect_timeout_ns = WEIR_MS(10);
        assert_int_equal(weir_client_connect(&warm, &config, to.text, NULL), -ETIMEDOUT);
        wait_until_idle(group);
        config.connect_timeout_ns = 0;
        size_t before = open_descriptors();
        weir_promise *promise = start(&config, to.text);
        WAIT_FOR(open_descriptors() > before);
        cancel(promise);
        WAIT_FOR(open_descriptors() == before);
        assert_int_equal(code_of(promise), -ECANCELED);
        weir_promise_release(promise);
        close_peer(&to);
        end_group(group);
    }
}

/* In init the channel is there, but the promise is not complete. */
static void cancel_in_init(record *self, weir_channel *channel)
{
    (void)channel;
    cancel(self->arg);
}

static void cancelled_in_the_last_moment(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        weir_promise *promise = weir_promise_new(NULL);
        record seen = { .in_init = cancel_in_init, .arg = promise };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        assert_int_equal(weir_client_start(&config, to.text, promise, NULL), 0);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), -ECANCELED);
        expect_end(accept_one(&to));
        weir_promise_release(promise);
        close_peer(&to);
        end_group(group);
    }
}

/* Whatever the moment: there is a channel for who asked, or no connection. */
static void cancelled_at_any_moment(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        weir_client_config config = { .group = group };
        for (int i = 0; i < 400; i++) {
            weir_promise *promise = start(&config, to.text);
            for (volatile int spin = 0; spin < i * 200; spin++)
                continue;
            if (i % 4 == 0)
                WAIT_FOR(has_waiting(&to)); /* connected by the kernel, not yet by weir */
            weir_future_cancel(weir_promise_future(promise));
            if (weir_future_await(weir_promise_future(promise)) == 0) {
                weir_channel *channel = weir_future_value(weir_promise_future(promise));
                assert_true(weir_channel_is_open(channel));
                close_and_release(weir_channel_retain(channel));
            }
            weir_promise_release(promise);
        }
        end_group(group);
        while (has_waiting(&to))
            expect_end(accept_one(&to));
        close_peer(&to);
    }
}

/* Nobody has the channel of a cancelled promise, so it must not stay open, group or not. */
static void nothing_stays_connected_when_cancelled(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]);
    peer to = answering_peer("127.0.0.1:0");
    weir_client_config config = { .group = group };
    record seen = { 0 };
    config.init = record_init;
    config.arg = &seen;
    for (int i = 0; i < 2000; i++) {
        int before = atomic_load(&seen.actives);
        weir_promise *promise = start(&config, to.text);
        WAIT_FOR(atomic_load(&seen.actives) > before);
        for (volatile int spin = 0; spin < i % 100 * 10; spin++)
            continue;
        weir_future_cancel(weir_promise_future(promise));
        /* Too late to cancel it, the result may still be on its way. */
        if (weir_future_await(weir_promise_future(promise)) == 0)
            weir_channel_close(weir_future_value(weir_promise_future(promise)), NULL);
        weir_promise_release(promise);
        expect_end(accept_one(&to)); /* hangs when somebody has forgotten it */
    }
    close_peer(&to);
    end_group(group);
}

/* Shutting down -------------------------------------------------------------------------------- */

static void shut_down_before_the_start(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        weir_client_config config = { .group = group };
        weir_channel *channel = NULL;
        weir_error error;
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
        weir_future_await(weir_group_terminated(group));
        assert_int_equal(weir_client_connect(&channel, &config, "127.0.0.1:9", &error),
                         WEIR_ESHUTDOWN);
        assert_non_null(strstr(error.message, "127.0.0.1:9"));
        weir_group_free(group);
    }
}

static void shut_down_during_the_lookup(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        names some = NAMES("127.0.0.1:9");
        some.is_late = true;
        weir_client_config config = { .group = group, .resolver = &some.base };
        weir_promise *promise = start(&config, "example.org:80");
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10000)),
                         0); /* nothing takes long */
        weir_group_free(group);
        assert_int_equal(code_of(promise), WEIR_ESHUTDOWN);
        /* What comes too late finds nobody. */
        weir_promise *late = atomic_load(&some.late);
        assert_int_equal(code_of(late), -ECANCELED);
        weir_promise_release(late);
        weir_promise_release(promise);
    }
}

static void shut_down_while_it_connects(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = hanging_peer("127.0.0.1:0");
        weir_client_config config = { .group = group };
        weir_promise *promise = start(&config, to.text);
        weir_group_pending pending = { 0 };
        WAIT_FOR((weir_group_get_pending(group, &pending), pending.channels > 0));
        end_group(group);
        assert_int_equal(code_of(promise), WEIR_ESHUTDOWN);
        assert_non_null(strstr(weir_future_error(weir_promise_future(promise))->message, to.text));
        weir_promise_release(promise);
        close_peer(&to);
    }
}

static void shut_down_in_init(record *self, weir_channel *channel)
{
    (void)channel;
    weir_group_shutdown(self->arg, 0, WEIR_SECONDS(10));
}

static void shut_down_in_the_last_moment(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        record seen = { .in_init = shut_down_in_init, .arg = group };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        weir_promise *promise = start(&config, to.text);
        int code = weir_future_await(weir_promise_future(promise));
        assert_true(code == 0 || code == WEIR_ESHUTDOWN || code == WEIR_ECLOSED);
        weir_group_free(group);
        weir_promise_release(promise);
        expect_end(accept_one(&to));
        close_peer(&to);
    }
}

static atomic_int tellings;

static void count_told(weir_listener *listener, weir_future *future)
{
    (void)listener, (void)future;
    atomic_fetch_add(&tellings, 1);
}

/* Whoever is told of a connection on a thread of no loop's may end the loops. */
static void free_group_when_told(void *arg, weir_future *future)
{
    weir_group **group = arg;
    assert_int_equal(weir_future_code(future), -ECONNREFUSED);
    end_group(*group);
    *group = NULL;
}

static void group_may_be_freed_by_who_is_told(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *executors = new_group_of(1);
        for (int in_background = 0; in_background < 2; in_background++) {
            weir_group *group = open_loops(on);
            peer none = refusing_peer("127.0.0.1:0");
            weir_client_config config = { .group = group };
            weir_promise *promise = weir_promise_new(in_background ? weir_group_background(group)
                                                                   : weir_group_at(executors, 0));
            weir_future *future = weir_promise_future(promise);
            assert_int_equal(weir_future_on_done(future, free_group_when_told, &group), 0);
            assert_int_equal(weir_client_start(&config, none.text, promise, NULL), 0);
            weir_listener told = { .done = count_told };
            atomic_store(&tellings, 0);
            weir_future_listen(future, &told); /* behind the other */
            WAIT_FOR(atomic_load(&tellings) == 1);
            assert_null(group);
            weir_promise_release(promise);
            close_peer(&none);
        }
        end_group(executors);
    }
}

static void shut_down_at_any_moment(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        peer to = answering_peer("127.0.0.1:0");
        for (int i = 0; i < 60; i++) {
            weir_group *group = open_loops(on);
            weir_client_config config = { .group = group };
            weir_promise *promise = start(&config, to.text);
            for (volatile int spin = 0; spin < i * 3000; spin++)
                continue;
            end_group(group);
            assert_true(weir_future_is_done(weir_promise_future(promise)));
            weir_promise_release(promise);
        }
        while (has_waiting(&to))
            expect_end(accept_one(&to));
        close_peer(&to);
    }
}

static void manual_group_is_freed_at_any_step(void **state)
{
    (void)state;
    peer to = answering_peer("127.0.0.1:0"), slow = hanging_peer("127.0.0.1:0");
    for (int hangs = 0; hangs < 2; hangs++) {
        for (int steps = 0; steps < 12; steps++) {
            race it;
            open_race(&it, NULL);
            add_runner(&it, hangs ? &slow : &to);
            it.promise = start(&it.config, "example.org:80");
            for (int i = 0; i < steps; i++)
                weir_group_step(it.group);
            weir_group_shutdown(it.group, 0, 0);
            weir_group_free(it.group);
            assert_true(weir_future_is_done(weir_promise_future(it.promise)));
            assert_int_equal(atomic_load(&it.seen.actives), atomic_load(&it.seen.inactives));
            weir_promise_release(it.promise);
        }
    }
    while (has_waiting(&to))
        expect_end(accept_one(&to));
    close_peer(&to);
    close_peer(&slow);
}

/* Faults --------------------------------------------------------------------------------------- */

/* Everything there is to set up, to a name with two addresses: whatever fails, the promise has one
 * end, and nothing is left. Whether the fault came. */
static bool connect_with_fault(const backend *on, const char *list, unsigned at, int code)
{
    static const weir_option_value options[] = { { WEIR_OPTION_KEEP_ALIVE, 1 },
                                                 { WEIR_OPTION_MAX_OUTBOUND_BYTES, 12345 } };
    int there;
    weir_attr_value attr = { &plain_key, &there };
    record seen = { 0 };
    names some = NAMES(list);
    size_t before = open_descriptors();
    weir_group *group = open_loops(on);
    weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
    config.options = options;
    config.option_count = COUNT(options);
    config.attrs = &attr;
    config.attr_count = 1;
    config.resolver = &some.base;
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    weir_error error = { 0 };
    fault_begin(NULL, at, code);
    int started = weir_client_start(&config, "example.org:80", promise, &error);
    if (started < 0) {
        assert_int_equal(error.code, started);
        assert_int_equal(weir_future_code(future), -EINPROGRESS);
        cancel(promise);
    } else if (weir_future_await(future) == 0) {
        weir_channel_close(weir_future_value(future), NULL);
    }
    end_group(group);
    bool has_come = fault_end();
    weir_promise_release(promise);
    assert_int_equal(open_descriptors(), before);
    return has_come;
}

static void faults_leave_nothing_behind(void **state)
{
    (void)state;
    static const int codes[] = { -ENOMEM, -EMFILE };
    peer refusing = refusing_peer("127.0.0.1:0"), quick = answering_peer("[::1]:0");
    char name[64];
    make_unix_text(name, "@faults-");
    peer path = answering_peer(name);
    char list[512];
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < COUNT(codes); i++) {
            snprintf(list, sizeof list, "%s %s", refusing.text, quick.text);
            unsigned at = 1;
            while (connect_with_fault(on, list, at, codes[i]))
                at++;
            assert_true(at > 20);
            snprintf(list, sizeof list, "local:nobody unix:/nowhere %s", path.text);
            for (at = 1; connect_with_fault(on, list, at, codes[i]); at++)
                continue;
            while (has_waiting(&quick))
                expect_end(accept_one(&quick));
            while (has_waiting(&path))
                expect_end(accept_one(&path));
        }
    }
    close_peer(&refusing);
    close_peer(&quick);
    close_peer(&path);
}

/* Many ----------------------------------------------------------------------------------------- */

#define CLIENTS 50 /* of each of four threads */

typedef struct crowd {
    weir_group *group;
    const char *text;
    record seen;
} crowd;

static void *connect_many(void *arg)
{
    crowd *self = arg;
    weir_client_config config = { .group = self->group, .init = record_init, .arg = &self->seen };
    weir_promise *promises[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        promises[i] = start(&config, self->text);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(weir_future_await(weir_promise_future(promises[i])), 0);
        weir_channel *channel =
            weir_channel_retain(weir_future_value(weir_promise_future(promises[i])));
        weir_promise_release(promises[i]);
        assert_true(weir_channel_is_active(channel));
        close_and_release(channel);
    }
    return NULL;
}

static void many_at_once_from_several_threads(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group_config config = { .io = on->io, .watchdog_ns = WEIR_OFF };
        config.loops = on->io == WEIR_IO_BLOCKING ? 0 : 3;
        weir_group *group = open_group(&config);
        peer to = answering_peer("127.0.0.1:0");
        crowd all = { .group = group, .text = to.text };
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, connect_many, &all), 0);
        for (int i = 0; i < 4 * CLIENTS; i++)
            expect_end(accept_one(&to));
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&all.seen.inits), 4 * CLIENTS);
        assert_int_equal(atomic_load(&all.seen.actives), 4 * CLIENTS);
        close_peer(&to);
        end_group(group);
        assert_int_equal(atomic_load(&all.seen.inactives), 4 * CLIENTS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_form_of_address_connects),
        weir_case(names_connect),
        weir_case(addresses_within_the_process_connect),
        weir_case(channel_can_be_had_without_a_promise),
        weir_case(refusal_names_the_address),
        weir_case(unreachable_hosts_are_told),
        weir_case(time_for_all_of_it_is_limited),
        weir_case(time_of_the_names_counts),
        weir_case(names_that_do_not_resolve_are_told),
        weir_case(lists_without_an_address_are_refused),
        weir_case(what_is_wrong_is_said_at_once),
        weir_case(groups_without_loops_are_refused),
        weir_case(groups_that_are_full_are_told),
        weir_case(second_address_is_tried_after_a_while),
        weir_case(each_address_has_its_time),
        weir_case(nobody_is_tried_after_the_end),
        weir_case(slow_one_may_still_win),
        weir_case(refused_one_is_followed_at_once),
        weir_case(late_refusal_is_followed_at_once),
        weir_case(without_stagger_each_has_to_fail),
        weir_case(time_begins_with_each_attempt),
        weir_case(without_timeout_it_waits),
        weir_case(all_that_failed_are_listed),
        weir_case(those_that_hang_are_listed_too),
        weir_case(many_addresses_are_cut),
        weir_case(as_many_as_fit_are_listed),
        weir_case(one_after_another_when_there_is_room_for_one),
        weir_case(who_hangs_is_given_up_when_there_is_no_room),
        weir_case(time_is_shared_by_those_that_are_left),
        weir_case(cancelling_ends_the_wait_for_room),
        weir_case(second_waits_for_a_descriptor),
        weir_case(channels_within_the_process_take_part),
        weir_case(options_and_attributes_are_set),
        weir_case(options_are_set_before_connecting),
        weir_case(options_that_do_not_fit_fail),
        weir_case(init_that_fails_closes),
        weir_case(failed_add_in_init_fails_the_connect),
        weir_case(init_that_fails_within_the_process_is_told),
        weir_case(time_within_the_process_is_limited),
        weir_case(client_may_move_before_it_is_connected),
        weir_case(local_address_is_bound),
        weir_case(local_path_goes_with_the_channel),
        weir_case(second_waits_for_the_local_port),
        weir_case(promise_keeps_the_channel),
        client_case(waiting_is_refused_on_threads_of_weir),
        weir_case(starting_on_a_loop_is_fine),
        weir_case(cancelled_before_the_start),
        weir_case(cancelled_during_the_lookup),
        weir_case(cancelled_while_it_connects),
        weir_case(cancelled_in_the_last_moment),
        weir_case(cancelled_at_any_moment),
        weir_case(nothing_stays_connected_when_cancelled),
        weir_case(shut_down_before_the_start),
        weir_case(shut_down_during_the_lookup),
        weir_case(shut_down_while_it_connects),
        weir_case(shut_down_in_the_last_moment),
        client_case(group_may_be_freed_by_who_is_told),
        weir_case(shut_down_at_any_moment),
        weir_case(manual_group_is_freed_at_any_step),
        weir_case(faults_leave_nothing_behind),
        weir_case(many_at_once_from_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
