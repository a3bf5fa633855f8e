/* SPDX-License-Identifier: MIT */
/* How servers start: configs, addresses, names, and everything that can go wrong meanwhile. */
#include "bootstrap/servers.h"

#include <weir/threads.h>

/* Configs -------------------------------------------------------------------------------------- */

static void nothing(void *value)
{
    (void)value;
}

static void bad_configs_are_refused_with_the_value(void **state)
{
    static const weir_attr_key counted = { .name = "counted", .destroy = nothing };
    static const weir_attr_value counted_attrs[] = { { &counted, NULL } };
    static const weir_attr_value no_key[] = { { NULL, NULL } };
    static const weir_option_value bad_option[] = { { WEIR_OPTION_TTL, 256 } };
    setup self;
    prepare(&self, *state, 1, 1);
    weir_group *executors = new_group_of(1);
    weir_server_config good = self.config;
    const struct {
        const char *text; /* in the message */
        weir_server_config config;
    } cases[] = {
#define BAD(part, ...) { part, { .boss = self.boss, .init_child = init_echo, __VA_ARGS__ } }
        { "no group", { .init_child = init_echo } },
        { "no init_child", { .boss = self.boss } },
        BAD("acceptors is -1", .acceptors = -1),
        BAD("acceptors is 1025", .acceptors = 1025),
        BAD("backlog is -7", .backlog = -7),
        BAD("max_connections is -3", .max_connections = -3),
        BAD("keeps_loop", .workers = self.workers, .keeps_loop = true),
        BAD("attribute 0", .attrs = counted_attrs, .attr_count = 1),
        BAD("attribute 0", .attrs = no_key, .attr_count = 1),
        BAD("attribute 0", .attrs = NULL, .attr_count = 1),
        BAD("attribute 0", .child_attrs = counted_attrs, .child_attr_count = 1),
        BAD("no event loops", .workers = executors),
        { "no event loops",
          { .boss = executors, .workers = self.workers, .init_child = init_echo } },
#undef BAD
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_server *server = NULL;
        weir_error error = { 0 };
        weir_promise *promise = new_promise();
        assert_int_equal(weir_server_listen(&server, &cases[i].config, EVERYWHERE, &error),
                         -EINVAL);
        assert_null(server);
        if (strstr(error.message, cases[i].text) == NULL)
            fail_msg("no '%s' in '%s'", cases[i].text, error.message);
        assert_int_equal(weir_server_start(&server, &cases[i].config, EVERYWHERE, promise, NULL),
                         -EINVAL);
        assert_int_equal(weir_future_code(weir_promise_future(promise)), -EINPROGRESS);
        weir_promise_set(promise, 0); /* it was left alone */
        weir_promise_release(promise);
    }
    weir_error error = { 0 };
    assert_int_equal(weir_server_listen(&self.server, NULL, EVERYWHERE, &error), -EINVAL);
    assert_int_equal(weir_server_listen(&self.server, &good, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "no address"));
    error.message[0] = '\0';
    assert_int_equal(weir_server_listen(NULL, &good, EVERYWHERE, &error), -EINVAL);
    assert_true(error.message[0] != '\0');
    error.message[0] = '\0';
    assert_int_equal(weir_server_start(NULL, &good, EVERYWHERE, NULL, &error), -EINVAL);
    assert_true(error.message[0] != '\0');
    /* What only the listener can tell. */
    good.options = bad_option;
    good.option_count = 1;
    assert_int_equal(weir_server_listen(&self.server, &good, EVERYWHERE, &error), -EINVAL);
    assert_non_null(strstr(error.message, "256"));
    end_group(executors);
    close_all(&self);
}

static void a_loop_for_each_channel_cannot_be_kept(void **state)
{
    const backend *with = *state;
    setup self;
    weir_error error = { 0 };
    prepare(&self, with, 2, 0);
    self.config.keeps_loop = true;
    int code = weir_server_listen(&self.server, &self.config, EVERYWHERE, &error);
    if (with->io == WEIR_IO_BLOCKING) {
        assert_int_equal(code, -EINVAL);
        assert_non_null(strstr(error.message, "keeps_loop"));
    } else {
        assert_int_equal(code, 0);
    }
    close_all(&self);
}

static void the_config_is_copied(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    static const weir_attr_key key = { .name = "key" };
    weir_option_value options[] = { { WEIR_OPTION_RECEIVE_BUFFER_BYTES, 20000 } };
    weir_option_value child_options[] = { { WEIR_OPTION_KEEP_ALIVE, 1 } };
    weir_attr_value attrs[] = { { &key, &self } }, child_attrs[] = { { &key, &self } };
    weir_server_config config = self.config;
    config.options = options, config.option_count = 1;
    config.child_options = child_options, config.child_option_count = 1;
    config.attrs = attrs, config.attr_count = 1;
    config.child_attrs = child_attrs, config.child_attr_count = 1;
    char address[] = EVERYWHERE;
    assert_int_equal(weir_server_listen(&self.server, &config, address, NULL), 0);
    memset(&config, 0xff, sizeof config);
    memset(options, 0xff, sizeof options);
    memset(child_options, 0xff, sizeof child_options);
    memset(attrs, 0xff, sizeof attrs);
    memset(child_attrs, 0xff, sizeof child_attrs);
    memset(address, 'x', sizeof address - 1);
    int fd = dial(self.server);
    talk(fd);
    close(fd);
    assert_ptr_equal(weir_server_boss(self.server), self.boss);
    assert_ptr_equal(weir_server_workers(self.server), self.workers);
    close_all(&self);
}

/* Addresses ------------------------------------------------------------------------------------ */

static void every_form_of_address_serves(void **state)
{
    static const struct {
        const char *address;
        const char *clients[2]; /* with the port, or NULL: the server's own address */
    } cases[] = {
        { "127.0.0.1:0", { "127.0.0.1:%u" } },    { "[::1]:0", { "[::1]:%u" } },
        { ":0", { "127.0.0.1:%u", "[::1]:%u" } }, { "*:0", { "[::1]:%u", "127.0.0.1:%u" } },
        { "0.0.0.0:0", { "127.0.0.1:%u" } },      { "localhost:0", { NULL } },
        { "unix:@weir-test-%d", { NULL } },       { "unix:/tmp/weir-test-%d.sock", { NULL } },
    };
    char path[64], text[64];
    snprintf(path, sizeof path, "/tmp/weir-test-%d.sock", (int)getpid());
    for (size_t i = 0; i < COUNT(cases); i++) {
        setup self;
        prepare(&self, *state, 1, 1);
        snprintf(text, sizeof text, cases[i].address, (int)getpid());
        listen_on(&self, text);
        weir_address address = address_of_server(self.server);
        bool is_ip = weir_address_kind_of(&address) != WEIR_ADDRESS_UNIX;
        assert_int_equal(weir_address_port(&address) != 0, is_ip);
        for (int c = 0; c < 2 && (c == 0 || cases[i].clients[c] != NULL); c++) {
            if (cases[i].clients[c] != NULL)
                address = on_port_of(self.server, cases[i].clients[c]);
            int fd = try_dial(&address);
            assert_true(fd >= 0);
            talk(fd);
            close(fd);
        }
        close_all(&self);
        assert_int_equal(access(path, F_OK), -1);
    }
}

/* The other end of a local connection: what it hears. */
typedef struct local_client {
    atomic_int reads, inactives;
} local_client;

static void local_on_read(weir_ctx *ctx, weir_msg *msg)
{
    local_client *self = weir_ctx_arg(ctx);
    weir_msg_release(msg);
    atomic_fetch_add(&self->reads, 1);
}

static void local_on_inactive(weir_ctx *ctx)
{
    local_client *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->inactives, 1);
}

static const weir_handler_type local_type = { .name = "client",
                                              .on_read = local_on_read,
                                              .on_inactive = local_on_inactive };

static void local_addresses_serve(void **state)
{
    setup self;
    local_client heard = { 0 };
    prepare(&self, *state, 1, 1);
    self.config.backlog = 50; /* which it has as others do */
    listen_on(&self, "local:server");
    weir_address address = address_of_server(self.server);
    assert_int_equal(weir_address_kind_of(&address), WEIR_ADDRESS_LOCAL);
    weir_channel *client;
    assert_int_equal(weir_channel_new(&client, WEIR_SOCKET_STREAM, &address, NULL), 0);
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(client), "client", &local_type, &heard), 0);
    weir_promise *promise = new_promise();
    weir_group_register(self.workers, client, NULL);
    weir_channel_connect(client, &address, NULL, promise);
    assert_int_equal(end_of(promise), 0);
    weir_channel_write_and_flush(client, &weir_buf_from("hello", 5)->msg, NULL);
    WAIT_FOR(atomic_load(&heard.reads) == 1);
    promise = new_promise();
    weir_server_drain(self.server, 0, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&heard.inactives) == 1);
    weir_channel_release(client);
    close_all(&self);
}

static void addresses_that_are_none_are_told_at_once(void **state)
{
    static const struct {
        const char *address, *text;
    } cases[] = {
        { "", "''" },
        { "127.0.0.1", "127.0.0.1" },
        { "127.0.0.1:65536", "65536" },
        { "127.0.0.1:70000", "127.0.0.1:70000" },
        { "127.0.0.1:x", "127.0.0.1:x" },
        { "unix:", "unix:" },
        { "local:", "local:" },
        { "a b:80", "a b:80" },
        { "fd:", "fd:" },
        { "fd:x", "fd:x" },
        { "fd:-1", "fd:-1" },
        { "fd:99999999999", "99999999999" },
    };
    setup self;
    prepare(&self, *state, 1, 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_error error = { 0 };
        weir_promise *promise = new_promise();
        assert_int_equal(
            weir_server_start(&self.server, &self.config, cases[i].address, promise, &error),
            -EINVAL);
        assert_int_equal(error.code, -EINVAL);
        if (strstr(error.message, cases[i].text) == NULL)
            fail_msg("no '%s' in '%s'", cases[i].text, error.message);
        assert_null(self.server);
        assert_false(weir_future_is_done(weir_promise_future(promise)));
        weir_promise_set(promise, 0);
        weir_promise_release(promise);
        weir_error waited = { 0 };
        assert_int_equal(weir_server_listen(&self.server, &self.config, cases[i].address, &waited),
                         -EINVAL);
        assert_string_equal(waited.message, error.message);
    }
    char too_long[200] = "unix:/";
    memset(too_long + 6, 'x', sizeof too_long - 7);
    too_long[sizeof too_long - 1] = '\0';
    weir_error error = { 0 };
    assert_int_equal(weir_server_listen(&self.server, &self.config, too_long, &error), -EINVAL);
    assert_non_null(strstr(error.message, "107"));
    assert_non_null(strstr(error.message, "unix:/xxx"));
    close_all(&self);
}

static void assert_refused(setup *self, const char *address, int code, const char *text)
{
    weir_error error = { 0 };
    weir_server *server = NULL;
    assert_int_equal(weir_server_listen(&server, &self->config, address, &error), code);
    assert_int_equal(error.code, code);
    assert_null(server);
    if (strstr(error.message, text) == NULL || strstr(error.message, weir_error_text(code)) == NULL)
        fail_msg("no '%s' and '%s' in '%s'", text, weir_error_text(code), error.message);
}

static void s125_an_address_in_use_fails_with_its_name(void **state)
{
    setup self;
    char text[WEIR_ADDRESS_TEXT_MAX];
    open_server(&self, *state, 1, 1);
    weir_address address = address_of_server(self.server);
    weir_address_text(&address, text, sizeof text);
    assert_refused(&self, text, -EADDRINUSE, text);
    /* Begun, it tells the promise. */
    weir_promise *promise = new_promise();
    weir_server *second = NULL;
    assert_int_equal(weir_server_start(&second, &self.config, text, promise, NULL), 0);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), -EADDRINUSE);
    const weir_error *error = weir_future_error(weir_promise_future(promise));
    assert_non_null(error);
    assert_non_null(strstr(error->message, text));
    weir_promise_release(promise);
    assert_int_equal(weir_future_await(weir_server_closed(second)), 0);
    assert_int_equal(weir_server_address(second, &address), WEIR_ENOTFOUND);
    weir_server_release(second);
    int fd = dial(self.server); /* the first has not suffered */
    talk(fd);
    close(fd);
    close_all(&self);
}

static void what_the_kernel_refuses_has_the_address_in_it(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    assert_refused(&self, "203.0.113.77:0", -EADDRNOTAVAIL, "203.0.113.77:0");
    assert_refused(&self, "unix:/no/such/folder/sock", -ENOENT, "unix:/no/such/folder/sock");
    fault_begin("bind", 1, -EACCES);
    assert_refused(&self, "127.0.0.1:1", -EACCES, "127.0.0.1:1");
    fault_begin("socket", 1, -EAFNOSUPPORT); /* a machine without that family */
    assert_refused(&self, "[::1]:0", -EAFNOSUPPORT, "[::1]:0");
    fault_begin("listen", 1, -EADDRINUSE);
    assert_refused(&self, "127.0.0.1:0", -EADDRINUSE, "127.0.0.1:0");
    fault_begin("getsockname", 1, -ENOBUFS); /* else nobody would know the port */
    weir_error error;
    assert_true(weir_server_listen(&self.server, &self.config, EVERYWHERE, &error) < 0);
    fault_end();
    close_all(&self);
}

static void s125_to_listen_is_to_start_and_to_wait(void **state)
{
    setup self;
    weir_address address;
    prepare(&self, *state, 1, 1);
    weir_promise *promise = new_promise();
    assert_int_equal(weir_server_start(&self.server, &self.config, EVERYWHERE, promise, NULL), 0);
    assert_int_equal(end_of(promise), 0);
    assert_int_equal(weir_server_address(self.server, &address), 0);
    assert_int_equal(weir_server_listener_count(self.server), 1);
    assert_int_equal(weir_future_wait(weir_server_closed(self.server), 1000000), -ETIMEDOUT);
    weir_channel *listener = weir_server_listener(self.server, 0);
    assert_true(weir_channel_is_active(listener));
    weir_channel_release(listener);
    assert_null(weir_server_listener(self.server, 1));
    int fd = dial(self.server);
    talk(fd);
    close(fd);
    close_all(&self);
}

typedef struct deadlock {
    setup *self;
    weir_error error;
} deadlock;

static int listen_there(void *arg)
{
    deadlock *self = arg;
    weir_server *server = NULL;
    int code = weir_server_listen(&server, &self->self->config, EVERYWHERE, &self->error);
    assert_null(server);
    return code;
}

static void waiting_is_refused_on_threads_of_weir(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    weir_group *loops = loops_of(&backends[0], 1), *executors = new_group_of(1);
    deadlock tries[2] = { { .self = &self }, { .self = &self } };
    assert_int_equal(call_on(weir_group_next(loops), listen_there, &tries[0]), -EDEADLK);
    assert_int_equal(call_on(weir_group_next(executors), listen_there, &tries[1]), -EDEADLK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tries[i].error.code, -EDEADLK);
        assert_non_null(strstr(tries[i].error.message, EVERYWHERE));
    }
    end_group(loops);
    end_group(executors);
    close_all(&self);
}

/* Names ---------------------------------------------------------------------------------------- */

static weir_promise *start_late(setup *self, late_resolver *resolver, const backend *with)
{
    *resolver = LATE_RESOLVER;
    prepare(self, with, 2, 1);
    self->config.resolver = &resolver->base;
    weir_promise *promise = new_promise();
    assert_int_equal(weir_server_start(&self->server, &self->config, "some.host:0", promise, NULL),
                     0);
    assert_int_equal(atomic_load(&resolver->questions), 1);
    assert_string_equal(resolver->host, "some.host");
    return promise;
}

static void names_are_asked_for(void **state)
{
    setup self;
    late_resolver resolver;
    weir_address address;
    weir_promise *promise = start_late(&self, &resolver, *state);
    assert_int_equal(weir_server_address(self.server, &address), WEIR_ENOTFOUND);
    assert_int_equal(weir_server_listener_count(self.server), 0);
    answer(&resolver, 0, "127.0.0.1:0");
    assert_int_equal(end_of(promise), 0);
    int fd = dial(self.server);
    talk(fd);
    close(fd);
    close_all(&self);
}

static void names_that_nobody_knows_fail_with_the_name(void **state)
{
    setup self;
    late_resolver resolver;
    weir_promise *promise = start_late(&self, &resolver, *state);
    answer(&resolver, WEIR_ENONAME, NULL);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), WEIR_ENONAME);
    assert_non_null(
        strstr(weir_future_error(weir_promise_future(promise))->message, "some.host:0"));
    weir_promise_release(promise);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    weir_server_release(self.server);
    self.server = NULL;
    self.config.resolver = NULL; /* nor does the system */
    assert_refused(&self, "no.such.host.invalid:0", WEIR_ENONAME, "no.such.host.invalid:0");
    self.config.resolver = &resolver.base;
    resolver.refusal = -EIO; /* at once: then there is no server */
    promise = new_promise();
    assert_int_equal(weir_server_start(&self.server, &self.config, "some.host:0", promise, NULL),
                     -EIO);
    assert_null(self.server);
    weir_promise_set(promise, 0);
    weir_promise_release(promise);
    close_all(&self);
}

static void addresses_that_are_not_here_are_passed_over(void **state)
{
    for (int acceptors = 1; acceptors <= 3; acceptors++) {
        setup self;
        late_resolver resolver = LATE_RESOLVER;
        prepare(&self, *state, 2, 1);
        self.config.resolver = &resolver.base;
        self.config.acceptors = acceptors;
        weir_promise *promise = new_promise();
        assert_int_equal(
            weir_server_start(&self.server, &self.config, "some.host:0", promise, NULL), 0);
        answer(&resolver, 0, "203.0.113.77:0 [2001:db8::1]:0 127.0.0.1:0 127.0.0.2:0");
        assert_int_equal(end_of(promise), 0);
        assert_int_equal(weir_server_listener_count(self.server), acceptors);
        /* Those that failed have been closed long ago. */
        for (int i = 0; i < acceptors; i++) {
            weir_channel *listener = weir_server_listener(self.server, (size_t)i);
            assert_non_null(listener);
            assert_true(weir_channel_is_active(listener));
            weir_channel_release(listener);
        }
        weir_address expected = on_port_of(self.server, "127.0.0.1:%u"),
                     address = address_of_server(self.server);
        assert_true(weir_address_equal(&address, &expected));
        int fd = dial(self.server);
        talk(fd);
        close(fd);
        assert_int_equal(server_stats(self.server).accepted, 1);
        close_all(&self);
    }
}

static void when_no_address_is_here_it_fails(void **state)
{
    setup self;
    late_resolver resolver;
    weir_promise *promise = start_late(&self, &resolver, *state);
    answer(&resolver, 0, "203.0.113.77:0 203.0.113.78:0");
    assert_int_equal(end_of(promise), -EADDRNOTAVAIL);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    close_all(&self);
}

static void a_name_can_have_an_address_of_no_family_here(void **state)
{
    setup self;
    late_resolver resolver;
    weir_promise *promise = start_late(&self, &resolver, *state);
    fault_begin("socket", 1, -EAFNOSUPPORT);
    answer(&resolver, 0, "[::1]:0 127.0.0.1:0");
    assert_int_equal(end_of(promise), 0);
    fault_end();
    int fd = dial(self.server);
    talk(fd);
    close(fd);
    close_all(&self);
}

/* Ended while it starts ------------------------------------------------------------------------ */

static void a_start_can_be_cancelled(void **state)
{
    setup self;
    late_resolver resolver;
    weir_promise *promise = start_late(&self, &resolver, *state);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    answer(&resolver, 0, "127.0.0.1:0");
    assert_int_equal(end_of(promise), -ECANCELED);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    close_all(&self);
}

static void a_cancelled_start_that_fails_closes(void **state)
{
    setup self;
    late_resolver resolver;
    weir_promise *promise = start_late(&self, &resolver, *state);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    answer(&resolver, WEIR_ENAMESERVICE, NULL);
    assert_int_equal(end_of(promise), -ECANCELED);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    close_all(&self);
}

static void a_promise_that_was_cancelled_before_starts_nothing(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    weir_promise *promise = new_promise();
    weir_future_cancel(weir_promise_future(promise));
    assert_int_equal(weir_server_start(&self.server, &self.config, EVERYWHERE, promise, NULL), 0);
    assert_int_equal(end_of(promise), -ECANCELED);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    close_all(&self);
}

static void *cancel_from_elsewhere(void *arg)
{
    weir_future_cancel(weir_promise_future(arg));
    return NULL;
}

static void who_is_told_of_a_cancellation_has_no_server(void **state)
{
    for (int i = 0; i < 200; i++) {
        setup self;
        pthread_t thread;
        prepare(&self, *state, 1, 1);
        weir_promise *promise = new_promise();
        pthread_create(&thread, NULL, cancel_from_elsewhere, promise);
        assert_int_equal(weir_server_start(&self.server, &self.config, EVERYWHERE, promise, NULL),
                         0);
        pthread_join(thread, NULL);
        int code = end_of(promise);
        assert_true(code == 0 || code == -ECANCELED);
        if (code < 0)
            assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
        close_all(&self);
    }
}

static void closing_while_it_starts_ends_both(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        setup self;
        late_resolver resolver;
        weir_promise *promise = start_late(&self, &resolver, *state), *closed = new_promise();
        if (kind % 2 == 0)
            weir_server_close(self.server, closed);
        else
            weir_server_drain(self.server, WEIR_MS(10), closed);
        if (kind >= 2) { /* nobody keeps it */
            weir_server_release(self.server);
            self.server = NULL;
        }
        answer(&resolver, 0, "127.0.0.1:0");
        assert_int_equal(end_of(promise), WEIR_ECLOSED);
        assert_int_equal(end_of(closed), 0);
        close_all(&self);
    }
}

/* Does something inside the nth call of a name. */
typedef struct interruption {
    const char *call;
    atomic_int countdown;
    weir_server *server;
    weir_promise *closed;
} interruption;

static int interrupt(void *arg, const char *call, size_t *length)
{
    interruption *self = arg;
    (void)length;
    if (strcmp(call, self->call) == 0 && atomic_fetch_sub(&self->countdown, 1) == 1)
        weir_server_close(self->server, self->closed);
    return 0;
}

static void it_can_be_closed_at_every_step_of_its_start(void **state)
{
    static const char *const calls[] = { "socket", "setsockopt", "alloc",
                                         "bind",   "listen",     "getsockname" };
    for (size_t c = 0; c < COUNT(calls); c++) {
        for (int nth = 1, was_early = 1; was_early; nth++) {
            setup self;
            late_resolver resolver;
            weir_promise *promise = start_late(&self, &resolver, *state);
            self.config.acceptors = 2;
            interruption cut = { .call = calls[c], .server = self.server, .countdown = nth };
            cut.closed = new_promise();
            weir_fault_set(interrupt, &cut);
            answer(&resolver, 0, "127.0.0.1:0");
            int code = end_of(promise);
            was_early = atomic_load(&cut.countdown) <= 0;
            weir_fault_set(NULL, NULL);
            if (!was_early)
                weir_server_close(self.server, cut.closed);
            else
                assert_true(code == WEIR_ECLOSED || code == 0);
            assert_int_equal(end_of(cut.closed), 0);
            close_all(&self);
        }
    }
}

static void *close_from_elsewhere(void *arg)
{
    weir_server_close(arg, NULL);
    return NULL;
}

static void closing_may_race_with_the_start(void **state)
{
    for (int i = 0; i < 200; i++) {
        setup self;
        pthread_t thread;
        prepare(&self, *state, 1, 1);
        self.config.acceptors = 2;
        weir_promise *promise = new_promise();
        assert_int_equal(weir_server_start(&self.server, &self.config, EVERYWHERE, promise, NULL),
                         0);
        pthread_create(&thread, NULL, close_from_elsewhere, self.server);
        int code = end_of(promise);
        assert_true(code == 0 || code == WEIR_ECLOSED);
        assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
        pthread_join(thread, NULL);
        close_all(&self);
    }
}

/* Failures ------------------------------------------------------------------------------------- */

static void s124_without_a_descriptor_the_promise_fails(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    fault_begin("socket", 1, -EMFILE);
    weir_promise *promise = new_promise();
    assert_int_equal(weir_server_start(&self.server, &self.config, EVERYWHERE, promise, NULL), 0);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), -EMFILE);
    assert_non_null(weir_future_error(weir_promise_future(promise)));
    weir_promise_release(promise);
    fault_end();
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    weir_server_release(self.server);
    listen_on(&self, EVERYWHERE); /* and now it is there */
    close_all(&self);
}

static int init_badly(weir_channel *listener, void *arg)
{
    (void)listener;
    (void)arg;
    return -EBADMSG;
}

static void s124_an_init_that_fails_closes_the_listener(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    self.config.init = init_badly;
    weir_error error = { 0 };
    weir_promise *promise = new_promise();
    assert_int_equal(weir_server_start(&self.server, &self.config, EVERYWHERE, promise, NULL), 0);
    assert_int_equal(end_of(promise), -EBADMSG);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    weir_server_release(self.server);
    self.server = NULL;
    assert_int_equal(weir_server_listen(&self.server, &self.config, EVERYWHERE, &error), -EBADMSG);
    assert_non_null(strstr(error.message, EVERYWHERE));
    close_all(&self);
}

static void s124_a_boss_that_has_ended_registers_nothing(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    assert_int_equal(weir_group_shutdown(self.boss, 0, 0), 0);
    weir_future_await(weir_group_terminated(self.boss));
    weir_promise *promise = new_promise();
    assert_int_equal(weir_server_start(&self.server, &self.config, EVERYWHERE, promise, NULL), 0);
    assert_int_equal(end_of(promise), WEIR_ESHUTDOWN);
    assert_int_equal(weir_future_await(weir_server_closed(self.server)), 0);
    close_all(&self);
}

/* One start with a fault, from groups to groups; returns whether it came to that. */
static bool start_with_fault(const backend *with, const char *address, int acceptors,
                             const char *call, unsigned nth, int code)
{
    setup self;
    prepare(&self, with, 2, 1);
    self.config.acceptors = acceptors;
    static const weir_attr_key key = { .name = "key" };
    const weir_attr_value attrs[] = { { &key, &self } };
    const weir_option_value options[] = { { WEIR_OPTION_RECEIVE_BUFFER_BYTES, 20000 } };
    self.config.attrs = self.config.child_attrs = attrs;
    self.config.attr_count = self.config.child_attr_count = 1;
    self.config.options = self.config.child_options = options;
    self.config.option_count = self.config.child_option_count = 1;
    weir_promise *promise = new_promise(), *drained = new_promise();
    fault_begin(call, nth, code);
    int result = weir_server_start(&self.server, &self.config, address, promise, NULL);
    if (result < 0)
        weir_promise_set(promise, result);
    result = end_of(promise);
    if (result == 0) {
        assert_int_equal(weir_server_listener_count(self.server), acceptors);
        weir_address where = address_of_server(self.server);
        assert_true(weir_address_port(&where) != 0);
    }
    if (self.server == NULL)
        weir_promise_set(drained, 0);
    else
        weir_server_drain(self.server, WEIR_MS(1), drained);
    int end = end_of(drained);
    assert_true(end == 0 || end == code);
    bool has_come = fault_end();
    close_all(&self);
    return has_come;
}

static void start_with_every_fault(const backend *with, const char *call, int code)
{
    for (int acceptors = 1; acceptors <= 2; acceptors++) {
        unsigned nth = 1;
        while (start_with_fault(with, "127.0.0.1:0", acceptors, call, nth, code))
            nth++;
        nth = 1;
        while (acceptors == 1 && start_with_fault(with, "localhost:0", 1, call, nth, code))
            nth++;
    }
}

static void every_allocation_may_fail(void **state)
{
    start_with_every_fault(*state, "alloc", -ENOMEM);
}

static void every_system_call_may_fail(void **state)
{
    static const struct {
        const char *call;
        int code;
    } cases[] = {
        { "socket", -EMFILE },         { "setsockopt", -ENOPROTOOPT }, { "bind", -EADDRINUSE },
        { "listen", -EADDRINUSE },     { "getsockname", -ENOBUFS },    { "eventfd", -EMFILE },
        { "pthread_create", -EAGAIN }, { "epoll_ctl", -ENOSPC },       { "epoll_create1", -EMFILE },
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        start_with_every_fault(*state, cases[i].call, cases[i].code);
}

/* -EPERM is -1: the smallest code there is. */
static void socket_that_is_not_permitted_fails_the_start_with_the_address(void **state)
{
    static const int codes[] = { -EPERM, -EMFILE, -EAFNOSUPPORT };
    setup self;
    prepare(&self, *state, 1, 1);
    for (size_t i = 0; i < COUNT(codes); i++) {
        weir_error error = { 0 };
        char message[128];
        fault_begin("socket", 1, codes[i]);
        assert_int_equal(weir_server_listen(&self.server, &self.config, "127.0.0.1:0", &error),
                         codes[i]);
        assert_true(fault_end());
        assert_null(self.server);
        assert_int_equal(error.code, codes[i]);
        snprintf(message, sizeof message, "cannot listen on 127.0.0.1:0: %s",
                 weir_error_text(codes[i]));
        assert_string_equal(error.message, message);
    }
    close_all(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(bad_configs_are_refused_with_the_value),
        each_backend(a_loop_for_each_channel_cannot_be_kept),
        each_backend(the_config_is_copied),
        each_backend(every_form_of_address_serves),
        each_backend(socket_that_is_not_permitted_fails_the_start_with_the_address),
        epoll_only(local_addresses_serve),
        each_backend(addresses_that_are_none_are_told_at_once),
        each_backend(s125_an_address_in_use_fails_with_its_name),
        each_backend(what_the_kernel_refuses_has_the_address_in_it),
        each_backend(s125_to_listen_is_to_start_and_to_wait),
        each_backend(waiting_is_refused_on_threads_of_weir),
        each_backend(names_are_asked_for),
        each_backend(names_that_nobody_knows_fail_with_the_name),
        each_backend(addresses_that_are_not_here_are_passed_over),
        each_backend(when_no_address_is_here_it_fails),
        each_backend(a_name_can_have_an_address_of_no_family_here),
        each_backend(a_start_can_be_cancelled),
        each_backend(a_cancelled_start_that_fails_closes),
        each_backend(a_promise_that_was_cancelled_before_starts_nothing),
        each_backend(who_is_told_of_a_cancellation_has_no_server),
        each_backend(closing_while_it_starts_ends_both),
        each_backend(it_can_be_closed_at_every_step_of_its_start),
        each_backend(closing_may_race_with_the_start),
        each_backend(s124_without_a_descriptor_the_promise_fails),
        each_backend(s124_an_init_that_fails_closes_the_listener),
        each_backend(s124_a_boss_that_has_ended_registers_nothing),
        each_backend(every_allocation_may_fail),
        each_backend(every_system_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
