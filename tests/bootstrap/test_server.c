/* SPDX-License-Identifier: MIT */
/* What servers give their channels, what they do with connections, and stepped by hand. */
#include "bootstrap/servers.h"

#include "transport/socket.h"

#include <weir/clock.h>
#include <weir/logging.h>

#include <sys/resource.h>

/* Settings ------------------------------------------------------------------------------------- */

static const weir_attr_key color = { .name = "color" };
static char red[] = "red", blue[] = "blue";

/* What the children had when they were set up. */
typedef struct inspector {
    setup self;
    atomic_int children, listeners;
    int keep_alive, no_delay, listener_receive_bytes;
    const void *child_color, *parent_color, *listener_color;
    char names[128];
} inspector;

static int number_of(weir_channel *channel, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    getsockopt(weir__socket_of(channel)->file.fd, level, name, &value, &length);
    return value;
}

static int inspect_child(weir_channel *child, void *arg)
{
    inspector *self = arg;
    self->keep_alive = number_of(child, SOL_SOCKET, SO_KEEPALIVE);
    self->no_delay = number_of(child, IPPROTO_TCP, TCP_NODELAY);
    self->child_color = weir_channel_attr(child, &color);
    weir_channel *parent = weir_channel_parent(child);
    self->parent_color = weir_channel_attr(parent, &color);
    atomic_fetch_add(&self->children, 1);
    return weir_pipeline_add_last(weir_channel_pipeline(child), "echo", &echo_type,
                                  &self->self.seen);
}

static int inspect_listener(weir_channel *listener, void *arg)
{
    inspector *self = arg;
    self->listener_receive_bytes = number_of(listener, SOL_SOCKET, SO_RCVBUF);
    self->listener_color = weir_channel_attr(listener, &color);
    atomic_fetch_add(&self->listeners, 1);
    return 0;
}

static void s126_listeners_and_children_have_their_own_settings(void **state)
{
    static const weir_option_value options[] = { { WEIR_OPTION_RECEIVE_BUFFER_BYTES, 30000 } };
    static const weir_option_value child_options[] = { { WEIR_OPTION_KEEP_ALIVE, 1 },
                                                       { WEIR_OPTION_NO_DELAY, 0 } };
    static const weir_attr_value attrs[] = { { &color, red } },
                                 child_attrs[] = { { &color, blue } };
    inspector self = { 0 };
    prepare(&self.self, *state, 1, 1);
    weir_server_config *config = &self.self.config;
    config->init = inspect_listener, config->init_child = inspect_child, config->arg = &self;
    config->options = options, config->option_count = COUNT(options);
    config->child_options = child_options, config->child_option_count = COUNT(child_options);
    config->attrs = attrs, config->attr_count = COUNT(attrs);
    config->child_attrs = child_attrs, config->child_attr_count = COUNT(child_attrs);
    listen_on(&self.self, EVERYWHERE);
    assert_int_equal(self.listeners, 1);
    assert_int_equal(self.listener_receive_bytes, 60000); /* the kernel doubles it */
    assert_ptr_equal(self.listener_color, red);
    int fd = dial(self.self.server);
    talk(fd);
    assert_int_equal(self.children, 1);
    assert_int_equal(self.keep_alive, 1);
    assert_int_equal(self.no_delay, 0);
    assert_ptr_equal(self.child_color, blue);
    assert_ptr_equal(self.parent_color, red);
    close(fd);
    close_all(&self.self);
}

static void s127_an_init_child_that_fails_closes_the_one(void **state)
{
    setup self;
    open_server(&self, *state, 1, 1);
    for (int i = 0; i < 5; i++) {
        atomic_store(&self.seen.child_code, i % 2 == 0 ? -EPROTO : 0);
        int fd = dial(self.server);
        if (i % 2 == 0)
            hear_end(fd);
        else
            talk(fd);
        close(fd);
    }
    assert_int_equal(atomic_load(&self.seen.child_inits), 5);
    assert_int_equal(server_stats(self.server).accepted, 5);
    WAIT_FOR(server_stats(self.server).connections == 0);
    close_all(&self);
}

static void unwilling_added(weir_ctx *ctx)
{
    weir_ctx_fail(ctx, -EPROTO, "cannot be added");
}

static const weir_handler_type unwilling_type = { .name = "unwilling", .added = unwilling_added };

static int init_ignoring_a_failure(weir_channel *child, void *arg)
{
    weir_pipeline_add_last(weir_channel_pipeline(child), "filter", &unwilling_type, NULL);
    return init_echo(child, arg);
}

/* A child is never served without a handler that its initializer has asked for. */
static void failed_add_in_init_child_closes_though_it_returns_0(void **state)
{
    setup self;
    prepare(&self, *state, 1, 1);
    self.config.init_child = init_ignoring_a_failure;
    listen_on(&self, EVERYWHERE);
    int fd = dial(self.server);
    hear_end(fd);
    close(fd);
    assert_int_equal(atomic_load(&self.seen.child_inits), 1);
    assert_int_equal(atomic_load(&self.seen.actives), 0);
    WAIT_FOR(server_stats(self.server).connections == 0);
    close_all(&self);
}

static int init_names(weir_channel *child, void *arg)
{
    inspector *self = arg;
    return weir_pipeline_add_last(weir_channel_pipeline(child), "echo", &echo_type,
                                  &self->self.seen);
}

static void names_on_read(weir_ctx *ctx, weir_msg *msg)
{
    inspector *self = weir_ctx_arg(ctx);
    weir_pipeline_names(weir_ctx_pipeline(ctx), self->names, sizeof self->names);
    atomic_fetch_add(&self->listeners, 1);
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type names_type = { .name = "names", .on_read = names_on_read };

static int init_two(weir_channel *listener, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(listener);
    int code = weir_pipeline_add_last(pipeline, "first", &names_type, arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "second", &names_type, arg);
}

static void s128_the_acceptor_comes_after_the_handlers_of_the_user(void **state)
{
    inspector self = { 0 };
    prepare(&self.self, *state, 1, 1);
    self.self.config.init = init_two;
    self.self.config.init_child = init_names;
    self.self.config.arg = &self;
    listen_on(&self.self, EVERYWHERE);
    int fd = dial(self.self.server);
    talk(fd);
    assert_int_equal(atomic_load(&self.listeners), 2);
    assert_memory_equal(self.names, "first, second, acceptor", 23);
    assert_null(strstr(self.names + 23, ",")); /* and nothing behind it, nor an initializer */
    close(fd);
    close_all(&self.self);
}

static void s129_without_workers_connections_are_closed(void **state)
{
    setup self;
    open_server(&self, *state, 1, 1);
    int fd = dial(self.server);
    talk(fd);
    close(fd);
    assert_int_equal(weir_group_shutdown(self.workers, 0, WEIR_SECONDS(10)), 0);
    weir_future_await(weir_group_terminated(self.workers));
    harness_log_begin(WEIR_LOG_WARN);
    for (int i = 0; i < 3; i++) { /* and the listener goes on */
        fd = dial(self.server);
        hear_end(fd);
        close(fd);
    }
    WAIT_FOR(server_stats(self.server).connections == 0);
    assert_int_equal(server_stats(self.server).accepted, 4);
    assert_true(harness_log_end() >= 3);
    close_all(&self);
}

static void s130_the_backlog_gets_to_the_kernel(void **state)
{
    static const int wishes[] = { 0, 1, 7, 300 };
    for (size_t i = 0; i < COUNT(wishes); i++) {
        setup self;
        prepare(&self, *state, 1, 1);
        self.config.backlog = wishes[i];
        listen_on(&self, EVERYWHERE);
        struct tcp_info info = { 0 };
        socklen_t length = sizeof info;
        weir_channel *listener = weir_server_listener(self.server, 0);
        assert_int_equal(
            getsockopt(weir_channel_descriptor(listener), IPPROTO_TCP, TCP_INFO, &info, &length),
            0);
        weir_channel_release(listener);
        unsigned most = 0;
        FILE *file = fopen("/proc/sys/net/core/somaxconn", "r");
        assert_int_equal(fscanf(file, "%u", &most), 1);
        fclose(file);
        unsigned expected = wishes[i] > 0 ? (unsigned)wishes[i] : 4096;
        assert_int_equal(info.tcpi_sacked, expected < most ? expected : most);
        close_all(&self);
    }
}

static int init_logging(weir_channel *listener, void *arg)
{
    static const weir_logging how = { .level = WEIR_LOG_INFO, .origin = "listener" };
    (void)arg;
    return weir_pipeline_add_last(weir_channel_pipeline(listener), "log", &weir_logging_handler,
                                  (void *)(uintptr_t)&how);
}

static void s131_a_logging_handler_tells_of_the_listener(void **state)
{
    static const char *const lines[] = {
        "] REGISTERED",     "] BIND: 127.0.0.1:0", "] ACTIVE",
        "] READ: accepted", "] READ COMPLETE",     "] CLOSE",
        "] INACTIVE",       "] UNREGISTERED",
    };
    setup self;
    prepare(&self, *state, 1, 1);
    self.config.init = init_logging;
    harness_log_begin(WEIR_LOG_INFO);
    listen_on(&self, EVERYWHERE);
    int fd = dial(self.server);
    talk(fd);
    close(fd);
    close_all(&self); /* joins the threads that log */
    for (size_t i = 0; i < COUNT(lines); i++) {
        if (!harness_log_has(lines[i]))
            fail_msg("no line with '%s'", lines[i]);
    }
    char line[64];
    snprintf(line, sizeof line, "%s listener: [", weir_log_level_name(WEIR_LOG_INFO));
    assert_true(harness_log_has(line));
    harness_log_end();
}

/* Executors that are no loops ------------------------------------------------------------------ */

static void s119_a_socket_needs_a_loop(void **state)
{
    (void)state;
    weir_group *executors = new_group_of(1);
    weir_address address = address_of("127.0.0.1:0");
    for (int by_group = 0; by_group < 2; by_group++) {
        weir_channel *channel;
        weir_promise *promise = new_promise();
        assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_STREAM, &address, NULL), 0);
        if (by_group)
            weir_group_register(executors, channel, promise);
        else
            weir_channel_register(channel, weir_group_next(executors), promise);
        assert_int_equal(end_of(promise), WEIR_ELOOPTYPE);
        weir_channel_release(channel);
    }
    end_group(executors);
}

static void s121_a_loop_that_has_ended_closes_the_socket(void **state)
{
    weir_group *loops = loops_of(*state, 1);
    weir_address address = address_of("127.0.0.1:0");
    weir_channel *channel;
    assert_int_equal(weir_group_shutdown(loops, 0, 0), 0);
    weir_future_await(weir_group_terminated(loops));
    assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_STREAM, &address, NULL), 0);
    harness_log_begin(WEIR_LOG_WARN);
    weir_promise *promise = new_promise();
    weir_group_register(loops, channel, promise);
    assert_int_equal(end_of(promise), WEIR_ESHUTDOWN);
    assert_int_equal(weir_future_await(weir_channel_closed(channel)), 0);
    assert_int_equal(weir_channel_descriptor(channel), -EBADF);
    assert_int_equal(harness_log_end(), 1);
    weir_channel_release(channel);
    weir_group_free(loops);
}

/* It brings a connection to an end in good order, whoever closes it; and never passes a close on.
 */
static void finish_instead(weir_ctx *ctx, weir_promise *promise)
{
    weir_channel_finish(weir_ctx_channel(ctx), promise);
}

static const weir_handler_type finisher = { .name = "finisher", .close = finish_instead };

static int init_finisher(weir_channel *child, void *arg)
{
    weir_handler_config config = { .type = &finisher, .group = arg };
    return weir_pipeline_add(weir_channel_pipeline(child), &config, NULL);
}

static void loops_end_beside_a_handler_that_finishes_elsewhere(void **state)
{
    enum { MANY = 20 };
    int fds[MANY];
    setup self;
    weir_group *others;
    weir_group_config config = { .count = 1, .watchdog_ns = WEIR_OFF };
    assert_int_equal(weir_group_new_executors(&others, &config, NULL), 0);
    prepare(&self, *state, 1, 2);
    self.config.init = NULL;
    self.config.init_child = init_finisher;
    self.config.arg = others;
    listen_on(&self, EVERYWHERE);
    for (int i = 0; i < MANY; i++)
        fds[i] = dial(self.server);
    WAIT_FOR(server_stats(self.server).connections == MANY);
    assert_int_equal(weir_group_shutdown(self.workers, 0, WEIR_SECONDS(10)), 0);
    for (int i = 0; i < MANY; i++) {
        hear_end(fds[i]);
        close(fds[i]);
    }
    assert_int_equal(weir_future_await(weir_group_terminated(self.workers)), 0);
    close_all(&self);
    assert_int_equal(weir_group_shutdown(others, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(others)), 0);
    weir_group_free(others);
}

/* Connections ---------------------------------------------------------------------------------- */

static void no_more_connections_than_allowed(void **state)
{
    setup self;
    int fds[6];
    prepare(&self, *state, 1, 2);
    self.config.max_connections = 3;
    listen_on(&self, EVERYWHERE);
    for (int i = 0; i < 6; i++) {
        fds[i] = dial(self.server); /* the backlog takes them */
        say(fds[i], "hello");
    }
    for (int i = 0; i < 3; i++)
        hear(fds[i], "hello");
    WAIT_FOR(server_stats(self.server).limited >= 1);
    for (int i = 3; i < 6; i++) {
        assert_int_equal(server_stats(self.server).accepted, i);
        assert_true(is_silent(fds[i]));
        close(fds[i - 3]); /* makes room for one */
        hear(fds[i], "hello");
        assert_true(server_stats(self.server).connections <= 3);
    }
    for (int i = 3; i < 6; i++)
        close(fds[i]);
    WAIT_FOR(server_stats(self.server).connections == 0);
    assert_int_equal(server_stats(self.server).accepted, 6);
    assert_int_equal(server_stats(self.server).failed, 0);
    close_all(&self);
}

static void connect_locally(weir_group *group, weir_promise *promise)
{
    const weir_client_config config = { .group = group };
    assert_int_equal(weir_client_start(&config, "local:limited", promise, NULL), 0);
}

/* The same within the process. */
static void max_connections_limits_local_connections(void **state)
{
    setup self;
    weir_promise *clients[6];
    weir_group *group = loops_of(&backends[0], 2);
    prepare(&self, *state, 1, 2);
    self.config.max_connections = 3;
    listen_on(&self, "local:limited");
    for (int i = 0; i < 6; i++)
        connect_locally(group, clients[i] = new_promise());
    WAIT_FOR(server_stats(self.server).accepted == 3);
    WAIT_FOR(server_stats(self.server).limited >= 1);
    for (int closed = 0; closed < 6; closed++) {
        int open = 0;
        for (int i = 0; i < 6 && open == 0; i++) {
            weir_channel *channel = clients[i] != NULL && !is_pending(clients[i])
                                        ? weir_future_value(weir_promise_future(clients[i]))
                                        : NULL;
            if (channel == NULL)
                continue;
            open++;
            assert_true(server_stats(self.server).accepted <= (uint64_t)(closed + 3));
            assert_true(server_stats(self.server).connections <= 3);
            weir_channel_close(channel, NULL);
            weir_promise_release(clients[i]);
            clients[i] = NULL;
        }
        if (open == 0)
            closed--; /* the next one has not been accepted yet */
    }
    WAIT_FOR(server_stats(self.server).connections == 0);
    assert_int_equal(server_stats(self.server).accepted, 6);
    assert_int_equal(server_stats(self.server).failed, 0);
    close_all(&self);
    end_group(group);
}

/* Starts all loops but that of this name. */
static int start_all_but_one(void *start_arg, const char *name, weir_thread_fn body, void *arg)
{
    starter *self = start_arg;
    if (strcmp(name, "lame-1") == 0) {
        atomic_fetch_add(&self->calls, 1);
        return -EAGAIN;
    }
    return starter_start(self, name, body, arg);
}

static void loop_without_a_thread_is_passed_over_and_logged_once(void **state)
{
    setup self;
    (void)state;
    starter start = { 0 };
    prepare(&self, &backends[0], 1, 1);
    end_group(self.workers);
    weir_group_config config = { .loops = 3, .name = "lame", .watchdog_ns = WEIR_OFF };
    config.io = WEIR_IO_EPOLL;
    config.start = start_all_but_one;
    config.start_arg = &start;
    self.workers = self.config.workers = open_group(&config);
    listen_on(&self, EVERYWHERE);
    harness_log_begin(WEIR_LOG_WARN);
    for (int i = 0; i < 9; i++) {
        int fd = dial(self.server);
        talk(fd);
        close(fd);
    }
    assert_int_equal(harness_log_end(), 1);
    assert_true(harness_log_has("cannot run: Resource temporarily unavailable"));
    WAIT_FOR(server_stats(self.server).connections == 0);
    /* A client finds a loop that runs as well. */
    for (int i = 0; i < 3; i++) {
        weir_channel *channel = NULL;
        char text[WEIR_ADDRESS_TEXT_MAX];
        weir_address address = address_of_server(self.server);
        weir_address_text(&address, text, sizeof text);
        const weir_client_config client = { .group = self.workers };
        assert_int_equal(weir_client_connect(&channel, &client, text, NULL), 0);
        weir_channel_close(channel, NULL);
        weir_channel_release(channel);
    }
    close_all(&self);
    starter_join(&start);
}

/* They were never accepted, and hear that. */
static void a_listener_closes_with_a_thousand_in_its_backlog(void **state)
{
    enum { THOUSAND = 1000 };
    static int fds[THOUSAND];
    setup self;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    const struct rlimit more = { files.rlim_max, files.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
    prepare(&self, *state, 1, 1);
    self.config.backlog = THOUSAND + 1;
    self.config.max_connections = 1; /* the others wait */
    listen_on(&self, EVERYWHERE);
    int first = dial(self.server);
    talk(first);
    for (int i = 0; i < THOUSAND; i++)
        fds[i] = dial(self.server);
    assert_int_equal(server_stats(self.server).accepted, 1);
    assert_int_equal(close_server(self.server), 0);
    for (int i = 0; i < THOUSAND; i++) {
        hear_end(fds[i]);
        close(fds[i]);
    }
    assert_int_equal(server_stats(self.server).accepted, 1);
    talk(first); /* who was, is served on */
    close(first);
    close_all(&self);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

static void statistics_of_nothing_are_zero(void **state)
{
    (void)state;
    weir_listener_stats stats = server_stats(NULL);
    assert_int_equal(stats.accepted, 0);
    assert_null(weir_server_boss(NULL));
    assert_null(weir_server_workers(NULL));
    assert_null(weir_server_listener(NULL, 0));
    assert_int_equal(weir_server_listener_count(NULL), 0);
    assert_null(weir_server_retain(NULL));
    weir_address address;
    assert_int_equal(weir_server_address(NULL, &address), -EINVAL);
}

/* Whether a connection is served; else it has to be closed. */
static bool is_served(const weir_server *server)
{
    char text[5];
    int fd = dial(server);
    (void)!send(fd, "hello", 5, MSG_NOSIGNAL);
    ssize_t got = recv(fd, text, sizeof text, MSG_WAITALL);
    assert_true(got == 5 || got == 0 || errno == ECONNRESET);
    close(fd);
    return got == 5;
}

/* Of a listener that is there, and of one that is gone. */
static void failed_accepts_are_counted(void **state)
{
    setup self;
    open_server(&self, *state, 1, 1);
    for (uint64_t failed = 1; failed <= 3; failed++) {
        fault_begin("accept4", 1, -ECONNABORTED);
        WAIT_FOR(is_served(self.server) && atomic_load(&the_fault.seen) >= 1);
        fault_end();
        assert_int_equal(server_stats(self.server).failed, failed);
    }
    assert_int_equal(close_server(self.server), 0);
    WAIT_FOR(server_stats(self.server).connections == 0);
    assert_int_equal(server_stats(self.server).failed, 3);
    close_all(&self);
}

/* What runs out costs those who come just then, and nobody afterwards. */
static void faults_while_it_serves_cost_one_connection(void **state)
{
    static const struct {
        const char *call;
        int code;
    } cases[] = { { "alloc", -ENOMEM }, { "accept4", -ECONNABORTED }, { "accept4", -EMFILE } };
    for (size_t c = 0; c < COUNT(cases); c++) {
        for (unsigned nth = 1; nth <= 30; nth++) {
            setup self;
            int served = 0;
            open_server(&self, *state, 1, 1);
            fault_begin(cases[c].call, nth, cases[c].code);
            for (int i = 0; i < 3; i++)
                served += is_served(self.server);
            fault_end();
            /* One that had failed by then may still show its effect. */
            for (int i = 0; i < 2; i++)
                served += is_served(self.server);
            if (cases[c].code == -EMFILE)
                WAIT_FOR(is_served(self.server)); /* all who waited were sent away */
            else if (served < 4)
                fail_msg("%s %u: only %d of 5 were served", cases[c].call, nth, served);
            close_all(&self);
        }
    }
}

/* Stepped by hand ------------------------------------------------------------------------------ */

static void server_and_clients_in_one_thread(void **state)
{
    (void)state;
    setup self;
    memset(&self, 0, sizeof self);
    pthread_mutex_init(&self.seen.lock, NULL);
    weir_group_config config = { .loops = 2, .is_manual = true, .io = WEIR_IO_EPOLL };
    assert_int_equal(weir_group_new(&self.boss, &config, NULL), 0);
    self.config = (weir_server_config){
        .boss = self.boss, .init = init_accepts, .init_child = init_echo, .arg = &self.seen
    };
    self.config.acceptors = 2;
    listen_on(&self, "localhost:0"); /* names are asked for in the same step */
    int fds[5];
    for (int i = 0; i < 5; i++) {
        fds[i] = dial(self.server);
        say(fds[i], "hello");
    }
    WAIT_FOR_STEPPING(atomic_load(&self.seen.reads) >= 5, weir_group_step(self.boss));
    weir_group_step(self.boss);
    for (int i = 0; i < 5; i++)
        hear(fds[i], "hello");
    assert_int_equal(self.seen.child_tid_count, 1);
    weir_promise *promise = new_promise();
    weir_server_drain(self.server, WEIR_SECONDS(3600), promise);
    for (int i = 0; i < 20; i++)
        weir_group_step(self.boss);
    assert_false(weir_future_is_done(weir_promise_future(promise)));
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    assert_int_equal(end_of(promise), 0); /* waiting steps */
    close_all(&self);
}

static void a_drain_runs_on_the_clock_of_its_group(void **state)
{
    (void)state;
    setup self;
    memset(&self, 0, sizeof self);
    pthread_mutex_init(&self.seen.lock, NULL);
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group_config config = {
        .loops = 1, .is_manual = true, .io = WEIR_IO_EPOLL, .clock = &clock.clock
    };
    assert_int_equal(weir_group_new(&self.boss, &config, NULL), 0);
    self.config =
        (weir_server_config){ .boss = self.boss, .init_child = init_echo, .arg = &self.seen };
    listen_on(&self, EVERYWHERE);
    int fd = dial(self.server);
    say(fd, "hello");
    WAIT_FOR_STEPPING(atomic_load(&self.seen.reads) >= 1, weir_group_step(self.boss));
    weir_promise *promise = new_promise();
    weir_server_drain(self.server, WEIR_SECONDS(3600), promise);
    assert_int_equal(end_of(promise), 0); /* an hour later */
    hear(fd, "hello");
    hear_end(fd);
    close(fd);
    close_all(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(s126_listeners_and_children_have_their_own_settings),
        each_backend(s127_an_init_child_that_fails_closes_the_one),
        each_backend(failed_add_in_init_child_closes_though_it_returns_0),
        each_backend(s128_the_acceptor_comes_after_the_handlers_of_the_user),
        each_backend(s129_without_workers_connections_are_closed),
        each_backend(s130_the_backlog_gets_to_the_kernel),
        each_backend(s131_a_logging_handler_tells_of_the_listener),
        epoll_only(s119_a_socket_needs_a_loop),
        each_backend(s121_a_loop_that_has_ended_closes_the_socket),
        each_backend(loops_end_beside_a_handler_that_finishes_elsewhere),
        each_backend(no_more_connections_than_allowed),
        each_backend(max_connections_limits_local_connections),
        epoll_only(loop_without_a_thread_is_passed_over_and_logged_once),
        each_backend(a_listener_closes_with_a_thousand_in_its_backlog),
        epoll_only(statistics_of_nothing_are_zero),
        server_case(failed_accepts_are_counted, 0),
        server_case(failed_accepts_are_counted, 1),
        each_backend(faults_while_it_serves_cost_one_connection),
        epoll_only(server_and_clients_in_one_thread),
        epoll_only(a_drain_runs_on_the_clock_of_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
