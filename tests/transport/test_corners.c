/* SPDX-License-Identifier: MIT */
/* Corners of sockets where two things meet. */
#include "transport/sockets.h"

#include <weir/datagram.h>
#include <weir/file.h>

#include <net/if.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* A group that is freed while a registration with it is on its way. */
static void registration_with_a_group_that_is_freed_meanwhile(void **state)
{
    (void)state;
    weir_group *workers = new_loops_of(1);
    record seen = { 0 };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    assert_int_equal(register_it(channel), 0);
    weir_executor *old = executor_of(channel);
    weir_promise *left = promise_of(channel);
    weir_channel_deregister(channel, left);
    assert_int_equal(outcome(left), 0);
    /* The loop it was on is busy. */
    blocker stop;
    block(&stop, old);
    weir_promise *promise = promise_of(channel);
    weir_group_register(workers, channel, promise);
    weir_group_shutdown(workers, 0, WEIR_SECONDS(1));
    weir_group_free(workers);
    unblock(&stop);
    assert_int_equal(outcome(promise), WEIR_ESHUTDOWN);
    weir_channel_close(channel, NULL);
    wait_for_close(channel);
    weir_channel_release(channel);
    close(peer);
}

static void deregister_in_first_read(record *self, weir_ctx *ctx, const char *event)
{
    if (strcmp(event, "read") == 0 && atomic_load(&self->reads) == 0)
        weir_channel_deregister(weir_ctx_channel(ctx), NULL);
}

/* Without auto_read: the batch in which it leaves the loop has its end, and was one. */
static void one_read_is_one_batch_also_when_the_channel_leaves_in_it(void **state)
{
    (void)state;
    record seen = { .then = deregister_in_first_read };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    set_option(channel, WEIR_OPTION_AUTO_READ, 0);
    assert_int_equal(register_it(channel), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    weir_channel_read(channel);
    peer_send(peer, "one", 3);
    WAIT_FOR(atomic_load(&seen.completes) == 1);
    WAIT_FOR(weir_channel_get_state(channel) == WEIR_CHANNEL_OPEN);
    assert_int_equal(register_it(channel), 0);
    weir_channel_read(channel);
    peer_send(peer, "two", 3);
    WAIT_FOR(atomic_load(&seen.completes) == 2);
    peer_send(peer, "three", 5);
    assert_idle(channel); /* nobody asked for a third */
    assert_int_equal(atomic_load(&seen.reads), 2);
    assert_int_equal(atomic_load(&seen.completes), 2);
    weir_channel_read(channel);
    WAIT_FOR(atomic_load(&seen.completes) == 3);
    assert_string_equal(seen.text, "onetwothree");
    end_channel(channel);
    close(peer);
}

/* What has come by then goes with the channel: to another loop, of another kind, or nowhere when it
 * is closed on none. */
static void what_came_before_it_left_is_not_lost(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    weir_group *others = new_loops_of(1);
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        record seen = { .then = deregister_in_first_read, .checks_pattern = true };
        int peer;
        weir_channel *channel = half_pair(TCP, &seen, &peer);
        peer_send_pattern(peer, 0, BYTES);
        assert_int_equal(register_it(channel), 0);
        WAIT_FOR(atomic_load(&seen.unregistereds) == 1);
        assert_in_range(atomic_load(&seen.bytes), 1, BYTES);
        if (!is_closed) {
            weir_promise *promise = promise_of(channel);
            weir_group_register(others, channel, promise);
            assert_int_equal(outcome(promise), 0);
            WAIT_FOR(atomic_load(&seen.bytes) == BYTES);
            assert_false(atomic_load(&seen.is_wrong));
        }
        weir_channel_close(channel, NULL);
        wait_for_close(channel);
        weir_channel_release(channel);
        close(peer);
    }
    end_group(others);
}

static void stop_and_leave_in_first_read(record *self, weir_ctx *ctx, const char *event)
{
    if (strcmp(event, "read") != 0 || atomic_load(&self->reads) > 0)
        return;
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 1, NULL);
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 0, NULL);
    weir_channel_deregister(weir_ctx_channel(ctx), NULL);
}

/* Also when nobody wants to read any more, with a read in flight behind it (auto_read) or none:
 * what has begun on the loop has its end there. */
static void a_batch_ends_before_the_channel_leaves(void **state)
{
    (void)state;
    for (int is_auto_read = 0; is_auto_read < 2; is_auto_read++) {
        record seen = { .then = stop_and_leave_in_first_read };
        int peer;
        weir_channel *channel = half_pair(TCP, &seen, &peer);
        set_option(channel, WEIR_OPTION_AUTO_READ, is_auto_read);
        assert_int_equal(register_it(channel), 0);
        weir_channel_read(channel);
        peer_send(peer, "one", 3);
        WAIT_FOR(atomic_load(&seen.unregistereds) == 1);
        assert_story(&seen, "registered active read complete unregistered ");
        assert_int_equal(register_it(channel), 0);
        weir_channel_read(channel);
        peer_send(peer, "two", 3);
        WAIT_FOR(atomic_load(&seen.completes) == 2);
        assert_string_equal(seen.text, "onetwo");
        end_channel(channel);
        close(peer);
    }
}

/* SIGPIPE by sendfile, on a thread that is not weir's. */
static void send_file_to_nobody(void)
{
    weir_group *manual = NULL;
    if (weir_group_new(&manual, &(weir_group_config){ .loops = 1, .is_manual = true }, NULL) < 0)
        _exit(10);
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
        _exit(11);
    weir_channel *channel = NULL;
    if (weir_channel_from_descriptor(&channel, WEIR_SOCKET_STREAM, fds[0], NULL) < 0)
        _exit(12);
    weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
    weir_group_register(manual, channel, NULL);
    for (int i = 0; i < 5; i++)
        weir_group_step(manual);
    close(fds[1]);
    weir_file_region *region = NULL;
    if (weir_file_region_open(&region, "/proc/self/exe", 0, 0, NULL) < 0)
        _exit(13);
    weir_channel_write_and_flush(channel, &region->msg, NULL);
    for (int i = 0; i < 5; i++)
        weir_group_step(manual);
    _exit(weir_channel_is_open(channel) ? 14 : 0);
}

static void a_file_for_a_peer_that_is_gone_does_not_kill_the_process(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        send_file_to_nobody();
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("killed by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int bound_datagrams(const char *name, struct sockaddr_un *to, socklen_t *length)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *to = (struct sockaddr_un){ .sun_family = AF_UNIX };
    snprintf(to->sun_path + 1, sizeof to->sun_path - 1, "weir-test-%d-%s", (int)getpid(), name);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(to->sun_path + 1));
    assert_int_equal(bind(fd, (struct sockaddr *)to, *length), 0);
    return fd;
}

static void fill_up(int fd, const struct sockaddr_un *to, socklen_t length)
{
    while (sendto(fd, "x", 1, MSG_DONTWAIT, (const struct sockaddr *)to, length) == 1)
        ;
}

static void empty(int fd)
{
    char bytes[16];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

/* The limit of connections is lowered while the listener listens. */
static void a_limit_that_is_set_later_holds(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    int first = peer_connect(&self->address);
    WAIT_FOR(atomic_load(&self->count) == 1);
    set_option(self->listener, WEIR_OPTION_MAX_CONNECTIONS, 1);
    settle_calls(self->listener);
    int second = peer_connect(&self->address);
    usleep(100000);
    weir_listener_stats stats = stats_of_listener(self);
    print_message("limited %llu times, %llu connections, at most 1\n",
                  (unsigned long long)stats.limited, (unsigned long long)stats.connections);
    end_server(self);
    close(first);
    close(second);
    assert_int_equal(stats.connections, 1);
}

/* Joining from another thread while the channel moves (tsan). */
static atomic_bool is_over;

static void *join_and_leave(void *arg)
{
    weir_address mc = address_of("224.0.0.251:5353");
    while (!atomic_load(&is_over)) {
        weir_datagram_join(arg, &mc, if_nametoindex("lo"), NULL);
        weir_datagram_leave(arg, &mc, if_nametoindex("lo"), NULL);
    }
    return NULL;
}

static void groups_are_joined_while_the_channel_moves(void **state)
{
    (void)state;
    weir_address any = any_port();
    weir_channel *channel = new_channel(WEIR_SOCKET_DATAGRAM, &any);
    assert_int_equal(register_it(channel), 0);
    assert_int_equal(bind_to(channel, &any), 0);
    atomic_store(&is_over, false);
    pthread_t thread;
    pthread_create(&thread, NULL, join_and_leave, channel);
    for (int i = 0; i < 200; i++) {
        weir_promise *promise = promise_of(channel);
        weir_channel_move(channel, weir_group_at(group, (size_t)i % 2), promise);
        outcome(promise);
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    end_channel(channel);
}

/* Options are read on any thread (tsan). */
static void options_are_read_by_another_thread(void **state)
{
    (void)state;
    server *self = open_server(TCP);
    int64_t value;
    for (int i = 1; i < 200; i++) {
        set_option(self->listener, WEIR_OPTION_BACKLOG, i);
        weir_channel_get_option(self->listener, WEIR_OPTION_BACKLOG, &value);
    }
    settle_calls(self->listener);
    end_server(self);
    int peer;
    weir_channel *channel = pair_with(UNIX, NULL, &peer);
    for (int i = 1; i < 200; i++) {
        set_option(channel, WEIR_OPTION_MAX_DESCRIPTORS, i);
        weir_channel_get_option(channel, WEIR_OPTION_MAX_DESCRIPTORS, &value);
    }
    settle_calls(channel);
    end_channel(channel);
    close(peer);
}

/* A listener that systemd made: its children wait for no acknowledgements. */
static void children_of_an_adopted_listener_have_no_delay(void **state)
{
    (void)state;
    server *self = calloc(1, sizeof *self);
    self->address = any_port();
    self->records = calloc(MOST_CHILDREN, sizeof *self->records);
    self->listener = adopt(WEIR_SOCKET_LISTENER, peer_listen(&self->address, 10));
    weir_pipeline *pipeline = weir_channel_pipeline(self->listener);
    assert_int_equal(weir_pipeline_add_last(pipeline, "acceptor", &acceptor, self), 0);
    assert_int_equal(register_it(self->listener), 0);
    int peer = peer_connect(&self->address);
    WAIT_FOR(atomic_load(&self->count) == 1);
    int64_t value = -1;
    weir_channel_get_option(self->children[0], WEIR_OPTION_NO_DELAY, &value);
    end_server(self);
    close(peer);
    assert_int_equal(value, 1);
}

/* The reserve comes back. */
static void outage(server *self)
{
    struct rlimit limit, none;
    blocker hold;
    block(&hold, executor_of(self->listener));
    int peer = peer_connect(&self->address);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    int highest = dup(0);
    close(highest);
    none.rlim_cur = (rlim_t)highest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    uint64_t pauses = stats_of_listener(self).pauses;
    unblock(&hold);
    WAIT_FOR(stats_of_listener(self).pauses > pauses);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(peer);
}

static void the_reserve_is_made_again_when_there_are_descriptors(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_WARN);
    server *self = open_server(TCP);
    settle(weir_group_at(group, 0));
    settle(weir_group_at(group, 1));
    harness_fail_nth("eventfd", 1, -EMFILE); /* another thread was faster */
    outage(self);
    harness_fail_end();
    int peer = peer_connect(&self->address);
    WAIT_FOR(atomic_load(&self->count) >= 1); /* there are plenty again */
    uint64_t refused = stats_of_listener(self).refused;
    outage(self);
    uint64_t later = stats_of_listener(self).refused;
    close(peer);
    end_server(self);
    harness_log_end();
    assert_int_equal(refused, 1);
    assert_int_equal(later, 2);
}

/* The answer to a multicast, in the form of IPv6. */
static void answer_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_buf *content = weir_buf_from("answer", 6);
    weir_datagram *answer = weir_datagram_answer((weir_datagram *)msg, content);
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address_text(&((weir_datagram *)msg)->recipient, text, sizeof text);
    print_message("was sent to %s\n", text);
    weir_msg_release(msg);
    weir_ctx_write_and_flush(ctx, &answer->msg, weir_ctx_arg(ctx));
}

static const weir_handler_type answerer = { .name = "answerer", .on_read = answer_on_read };

static void answer_to(const char *own, const char *group_address, const char *to)
{
    weir_address local = address_of(own);
    weir_channel *channel = new_channel(WEIR_SOCKET_DATAGRAM, &local);
    weir_promise *promise = promise_of(channel);
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(channel), "answerer", &answerer, promise), 0);
    assert_int_equal(register_it(channel), 0);
    assert_int_equal(bind_to(channel, &local), 0);
    if (group_address != NULL) {
        weir_address mc = address_of(group_address);
        int joined = weir_datagram_join(channel, &mc, if_nametoindex("lo"), NULL);
        print_message("join: %d\n", joined);
    }
    local = local_of(channel);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    struct ip_mreqn interface = { .imr_ifindex = (int)if_nametoindex("lo") };
    setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface);
    struct sockaddr_in name = { .sin_family = AF_INET,
                                .sin_port = htons(weir_address_port(&local)),
                                .sin_addr.s_addr = inet_addr(to) };
    assert_int_equal(sendto(fd, "?", 1, 0, (struct sockaddr *)&name, sizeof name), 1);
    int waited = weir_future_wait(weir_promise_future(promise), WEIR_MS(2000));
    int code = waited == 0 ? weir_future_code(weir_promise_future(promise)) : waited;
    print_message("the answer's code: %d\n", code);
    end_channel(channel);
    weir_promise_release(promise);
    close(fd);
    assert_int_equal(code, 0);
}

static void a_multicast_is_answered_by_a_channel_for_both(void **state)
{
    (void)state;
    answer_to("[::]:0", "224.0.0.251:1", "224.0.0.251");
}

static weir_promise *send_to(weir_channel *channel, const struct sockaddr_un *to, socklen_t length)
{
    weir_address address;
    weir_promise *promise = promise_of(channel);
    assert_int_equal(weir_address_from_sockaddr(&address, (const struct sockaddr *)to, length), 0);
    weir_datagram *datagram = weir_datagram_new((weir_buf *)text_msg("hello"), &address, NULL);
    assert_non_null(datagram);
    weir_channel_write_and_flush(channel, &datagram->msg, promise);
    return promise;
}

/* A queue that is full with what others have sent: the kernel does not say when there is room. */
static void a_full_receiver_holds_up_nobody_else(void **state)
{
    (void)state;
    struct sockaddr_un full, other;
    socklen_t full_length, other_length;
    int full_fd = bound_datagrams("full", &full, &full_length);
    int other_fd = bound_datagrams("other", &other, &other_length);
    int filler = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    fill_up(filler, &full, full_length);
    char name[64];
    snprintf(name, sizeof name, "unix:@weir-corners-%d-own", (int)getpid());
    weir_address own = address_of(name);
    weir_channel *channel = new_channel(WEIR_SOCKET_DATAGRAM, &own);
    assert_int_equal(register_it(channel), 0);
    assert_int_equal(bind_to(channel, &own), 0);
    weir_promise *first = send_to(channel, &full, full_length);
    weir_promise *second = send_to(channel, &other, other_length);
    assert_int_equal(outcome(first), -ENOBUFS);
    assert_int_equal(outcome(second), 0);
    assert_idle(channel);
    peer_expect_text(other_fd, "hello");
    empty(full_fd);
    assert_int_equal(outcome(send_to(channel, &full, full_length)), 0);
    peer_expect_text(full_fd, "hello");
    end_channel(channel);
    close(full_fd);
    close(other_fd);
    close(filler);
}

/* Connected, the kernel says when there is room. */
static void a_full_receiver_that_is_connected(void **state)
{
    (void)state;
    struct sockaddr_un full;
    socklen_t length;
    int full_fd = bound_datagrams("full", &full, &length);
    int filler = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    fill_up(filler, &full, length);
    weir_address to;
    assert_int_equal(weir_address_from_sockaddr(&to, (struct sockaddr *)&full, length), 0);
    weir_channel *channel = new_channel(WEIR_SOCKET_DATAGRAM, &to);
    assert_int_equal(register_it(channel), 0);
    assert_int_equal(connect_to(channel, &to), 0);
    weir_promise *promise = promise_of(channel);
    weir_channel_write_and_flush(channel, text_msg("x"), promise);
    settle_calls(channel);
    uint64_t polls = stats_of_loop(channel).polls;
    usleep(100000);
    polls = stats_of_loop(channel).polls - polls;
    empty(full_fd);
    int code = outcome(promise);
    end_channel(channel);
    close(full_fd);
    close(filler);
    assert_int_equal(code, 0);
    assert_true(polls < 20);
}

/* The other side ends its stream while answers are on their way. */
static void answers_on_their_way_outlive_the_end_of_the_input(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    record seen = { 0 };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    assert_int_equal(register_it(channel), 0);
    weir_promise *promise = promise_of(channel);
    weir_channel_write_and_flush(channel, pattern_msg(0, BYTES), promise);
    settle_calls(channel); /* before the end of the input is */
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    peer_expect_pattern(peer, 0, BYTES);
    peer_expect_eof(peer);
    assert_int_equal(outcome(promise), 0);
    wait_for_close(channel);
    assert_int_equal(atomic_load(&seen.errors), 0);
    weir_channel_release(channel);
    close(peer);
}

static void who_does_not_read_the_answers_is_not_waited_for(void **state)
{
    (void)state;
    record seen = { 0 };
    int peer;
    weir_channel *channel = half_pair(TCP, &seen, &peer);
    set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(50));
    assert_int_equal(register_it(channel), 0);
    weir_promise *promise = promise_of(channel);
    weir_channel_write_and_flush(channel, pattern_msg(0, 8 << 20), promise);
    settle_calls(channel);
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    assert_int_equal(outcome(promise), WEIR_ECLOSED);
    wait_for_close(channel);
    weir_channel_release(channel);
    close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(answers_on_their_way_outlive_the_end_of_the_input),
        socket_cases(who_does_not_read_the_answers_is_not_waited_for),
        loop_cases(registration_with_a_group_that_is_freed_meanwhile),
        loop_cases(a_file_for_a_peer_that_is_gone_does_not_kill_the_process),
        socket_cases(a_limit_that_is_set_later_holds),
        loop_cases(groups_are_joined_while_the_channel_moves),
        socket_cases(options_are_read_by_another_thread),
        socket_cases(children_of_an_adopted_listener_have_no_delay),
        loop_cases(a_multicast_is_answered_by_a_channel_for_both),
        socket_cases(one_read_is_one_batch_also_when_the_channel_leaves_in_it),
        socket_cases(a_batch_ends_before_the_channel_leaves),
        socket_cases(what_came_before_it_left_is_not_lost),
        socket_cases(a_full_receiver_holds_up_nobody_else),
        socket_cases(a_full_receiver_that_is_connected),
        epoll_case(the_reserve_is_made_again_when_there_are_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
