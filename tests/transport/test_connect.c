/* SPDX-License-Identifier: MIT */
/* How streams get connected, and how they do not. */
#include "transport/sockets.h"

/* A listener that takes no more: connecting to it goes on until somebody gives up. */
typedef struct full_listener {
    weir_address address;
    int listener, filler;
} full_listener;

static full_listener open_full_listener(void)
{
    full_listener self = { .address = any_port() };
    size_t length;
    self.listener = peer_listen(&self.address, 0);
    const struct sockaddr *to = weir_address_sockaddr(&self.address, &length);
    self.filler = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int code = connect(self.filler, to, (socklen_t)length);
    assert_true(code == 0 || errno == EINPROGRESS);
    peer_wait(self.listener, POLLIN); /* which has a backlog of this one */
    return self;
}

static void close_full_listener(full_listener *self)
{
    close(self->filler);
    close(self->listener);
}

static weir_channel *new_client(const weir_address *address, record *seen)
{
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, address);
    if (seen != NULL)
        add_record(channel, seen);
    assert_int_equal(register_it(channel), 0);
    return channel;
}

/* It was closed because of the failure, and its handlers were told nothing else. */
static void expect_failed(weir_channel *channel, record *seen)
{
    wait_for_close(channel);
    assert_story(seen, "registered unregistered ");
    assert_false(weir_channel_is_active(channel));
    assert_int_equal(weir_channel_descriptor(channel), -EBADF);
    weir_channel_release(channel);
}

/* Success -------------------------------------------------------------------------------------- */

static void s103_connected_is_told_once_and_does_not_spin(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        weir_address address = any_address(stream);
        int listener = peer_listen(&address, 1);
        weir_channel *channel = open_client(&address, &seen);
        int peer = peer_accept(listener);
        WAIT_FOR(atomic_load(&seen.actives) == 1);
        assert_idle(channel);
        assert_story(&seen, "registered active ");
        end_channel(channel);
        assert_story(&seen, "registered active inactive unregistered ");
        peer_expect_eof(peer);
        close(peer);
        close(listener);
        forget_path(&address);
    }
}

static void note_connected(void *arg, weir_future *future)
{
    note(arg, "connected:%d ", weir_future_code(future));
}

static void the_promise_is_told_before_the_handlers(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port();
    int listener = peer_listen(&address, 1);
    weir_channel *channel = new_client(&address, &seen);
    weir_promise *promise = promise_of(channel);
    assert_int_equal(weir_future_on_done(weir_promise_future(promise), note_connected, &seen), 0);
    weir_channel_connect(channel, &address, NULL, promise);
    assert_int_equal(outcome(promise), 0);
    WAIT_FOR(atomic_load(&seen.actives) == 1);
    assert_story(&seen, "registered connected:0 active ");
    end_channel(channel);
    close(listener);
}

static void what_was_asked_for_early_happens_in_order(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port();
    int listener = peer_listen(&address, 1);
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, &address);
    weir_promise *promise = promise_of(channel), *finished = promise_of(channel);
    add_record(channel, &seen);
    weir_channel_connect(channel, &address, NULL, promise);
    weir_channel_write(channel, text_msg("hello "), NULL);
    weir_channel_write_and_flush(channel, text_msg("there"), NULL);
    weir_channel_shutdown(channel, finished);
    assert_int_equal(register_it(channel), 0);
    int peer = peer_accept(listener);
    peer_expect_text(peer, "hello there");
    peer_expect_eof(peer);
    assert_int_equal(outcome(promise), 0);
    assert_int_equal(outcome(finished), 0);
    close(peer);
    wait_for_close(channel);
    assert_int_equal(atomic_load(&seen.errors), 0);
    weir_channel_release(channel);
    close(listener);
}

static void close_it_now(record *self, weir_ctx *ctx, const char *event)
{
    if (strcmp(event, self->arg) == 0)
        weir_ctx_close(ctx, NULL);
}

static void closed_while_it_is_told_that_it_is_connected(void **state)
{
    (void)state;
    const char *events[] = { "registered", "active", "inactive" };
    for (size_t i = 0; i < COUNT_OF(events); i++) {
        record seen = { .then = close_it_now, .arg = (void *)events[i] };
        weir_address address = any_port();
        int listener = peer_listen(&address, 1);
        weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, &address);
        weir_promise *promise = promise_of(channel);
        add_record(channel, &seen);
        weir_channel_connect(channel, &address, NULL, promise);
        put_on_loop(channel, NULL);
        int code = outcome(promise);
        assert_true(code == (i == 0 ? WEIR_ECLOSED : 0));
        if (i == 2)
            weir_channel_close(channel, NULL);
        wait_for_close(channel);
        assert_int_equal(atomic_load(&seen.actives), i > 0);
        assert_int_equal(atomic_load(&seen.inactives), i > 0);
        weir_channel_release(channel);
        close(listener);
    }
}

static void it_comes_from_where_it_shall(void **state)
{
    (void)state;
    weir_address address = any_port(), local = address_of("127.0.0.2:0"), name;
    int listener = peer_listen(&address, 1);
    weir_channel *channel = new_client(&address, NULL);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &address, &local, promise);
    assert_int_equal(outcome(promise), 0);
    name = local_of(channel);
    assert_int_not_equal(weir_address_port(&name), 0);
    weir_address_set_port(&local, weir_address_port(&name));
    assert_true(weir_address_equal(&name, &local));
    assert_int_equal(weir_channel_remote_address(channel, &name), 0);
    assert_true(weir_address_equal(&name, &address));
    end_channel(channel);

    /* Bound before, in a step of its own. */
    channel = new_client(&address, NULL);
    local = address_of("127.0.0.3:0");
    assert_int_equal(bind_to(channel, &local), 0);
    assert_int_equal(connect_to(channel, &address), 0);
    name = local_of(channel);
    weir_address_set_port(&name, 0);
    assert_true(weir_address_equal(&name, &local));
    assert_int_equal(bind_to(channel, &local), -EINVAL); /* too late, but nothing is lost */
    assert_true(weir_channel_is_active(channel));
    end_channel(channel);
    close(listener);
}

static void a_second_connect_fails_alone(void **state)
{
    (void)state;
    record seen = { 0 };
    full_listener full = open_full_listener();
    weir_channel *channel = new_client(&full.address, &seen);
    weir_promise *first = promise_of(channel), *second = promise_of(channel);
    weir_channel_connect(channel, &full.address, NULL, first);
    weir_channel_connect(channel, &full.address, NULL, second);
    assert_int_equal(outcome(second), -EALREADY);
    assert_false(weir_future_is_done(weir_promise_future(first)));
    assert_int_equal(close_it(channel), 0);
    assert_int_equal(outcome(first), WEIR_ECLOSED);
    expect_failed(channel, &seen);
    close_full_listener(&full);

    weir_address address = any_port();
    int listener = peer_listen(&address, 1);
    channel = open_client(&address, NULL);
    assert_int_equal(connect_to(channel, &address), -EISCONN);
    assert_true(weir_channel_is_active(channel));
    end_channel(channel);
    close(listener);
}

static void a_closed_channel_connects_no_more(void **state)
{
    (void)state;
    weir_address address = any_port();
    weir_channel *channel = new_client(&address, NULL);
    assert_int_equal(close_it(channel), 0);
    assert_int_equal(connect_to(channel, &address), WEIR_ECLOSED);
    wait_for_close(channel);
    assert_int_equal(connect_to(channel, &address), WEIR_ECLOSED);
    weir_channel_release(channel);
}

/* Failure -------------------------------------------------------------------------------------- */

static void s104_refused_fails_the_promise_and_closes(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        weir_address address = any_address(stream);
        int refusing = peer_bind(&address);
        weir_channel *channel = new_client(&address, &seen);
        assert_int_equal(connect_to(channel, &address), -ECONNREFUSED);
        expect_failed(channel, &seen);
        close(refusing);
        forget_path(&address);
    }
}

static void refused_without_a_promise_closes_as_well(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port();
    int refusing = peer_bind(&address);
    weir_channel *channel = new_client(&address, &seen);
    weir_promise *write = promise_of(channel);
    weir_channel_write_and_flush(channel, text_msg("never"), write);
    weir_channel_connect(channel, &address, NULL, NULL);
    assert_int_equal(outcome(write), WEIR_ECLOSED);
    expect_failed(channel, &seen);
    close(refusing);
}

static void a_path_that_is_not_there_is_not_found(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = new_path();
    weir_channel *channel = new_client(&address, &seen);
    assert_int_equal(connect_to(channel, &address), -ENOENT);
    expect_failed(channel, &seen);
}

static void a_full_path_says_so_at_once(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = new_path();
    int listener = peer_listen(&address, 0);
    int filler = peer_connect(&address);
    weir_channel *channel = new_client(&address, &seen);
    assert_int_equal(connect_to(channel, &address), -EAGAIN);
    expect_failed(channel, &seen);
    close(filler);
    close(listener);
    forget_path(&address);
}

static void an_address_of_another_family_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *own, *other;
    } cases[] = {
        { "127.0.0.1:0", "[::1]:9" },
        { "127.0.0.1:0", "unix:/tmp/weir-test-nothing" },
        { "unix:/tmp/weir-test-nothing", "127.0.0.1:9" },
        { "[::1]:0", "unix:@weir-test-nothing" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        record seen = { 0 };
        weir_address own = address_of(cases[i].own), other = address_of(cases[i].other);
        weir_channel *channel = new_client(&own, &seen);
        int code = connect_to(channel, &other);
        assert_true(code == -EAFNOSUPPORT || code == -EINVAL);
        expect_failed(channel, &seen);
    }
}

static void an_address_that_no_kernel_knows_changes_nothing(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port(), none = { 0 }, local = address_of("local:somewhere");
    int listener = peer_listen(&address, 1);
    weir_channel *channel = new_client(&address, &seen);
    assert_int_equal(connect_to(channel, &none), -EINVAL);
    assert_int_equal(connect_to(channel, &local), -EINVAL);
    assert_int_equal(connect_to(channel, NULL), -EINVAL);
    assert_int_equal(bind_to(channel, &none), -EINVAL);
    assert_int_equal(connect_to(channel, &address), 0);
    end_channel(channel);
    close(listener);
}

static void a_local_address_that_is_not_ours_fails_it(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port(), local = address_of("192.0.2.1:0");
    int listener = peer_listen(&address, 1);
    weir_channel *channel = new_client(&address, &seen);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &address, &local, promise);
    assert_int_equal(outcome(promise), -EADDRNOTAVAIL);
    expect_failed(channel, &seen);
    close(listener);
}

static void it_gives_up_in_time(void **state)
{
    (void)state;
    record seen = { 0 };
    full_listener full = open_full_listener();
    weir_channel *channel = new_client(&full.address, &seen);
    set_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_NS, WEIR_MS(30));
    assert_int_equal(connect_to(channel, &full.address), -ETIMEDOUT);
    expect_failed(channel, &seen);
    close_full_listener(&full);
}

static void without_a_timeout_it_waits(void **state)
{
    (void)state;
    record seen = { 0 };
    full_listener full = open_full_listener();
    weir_channel *channel = new_client(&full.address, &seen);
    set_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_NS, 0);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &full.address, NULL, promise);
    settle_calls(channel);
    close(peer_accept(full.listener)); /* the kernel asks again after a second */
    int peer = peer_accept(full.listener);
    assert_int_equal(outcome(promise), 0);
    end_channel(channel);
    close(peer);
    close_full_listener(&full);
}

/* Changing one's mind -------------------------------------------------------------------------- */

static void cancelled_before_it_began(void **state)
{
    (void)state;
    for (int stream = 0; stream < STREAMS; stream++) {
        record seen = { 0 };
        weir_address address = any_address(stream);
        int listener = peer_listen(&address, 1);
        weir_channel *channel = new_client(&address, &seen);
        weir_promise *promise = promise_of(channel);
        assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
        weir_channel_connect(channel, &address, NULL, promise);
        assert_int_equal(outcome(promise), -ECANCELED);
        expect_failed(channel, &seen);
        close(listener);
        forget_path(&address);
    }
}

static void cancelled_while_it_goes_on(void **state)
{
    (void)state;
    record seen = { 0 };
    full_listener full = open_full_listener();
    weir_channel *channel = new_client(&full.address, &seen);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &full.address, NULL, promise);
    settle_calls(channel);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    assert_int_equal(outcome(promise), -ECANCELED);
    expect_failed(channel, &seen);
    close_full_listener(&full);
}

static void closed_while_it_goes_on(void **state)
{
    (void)state;
    record seen = { 0 };
    full_listener full = open_full_listener();
    weir_channel *channel = new_client(&full.address, &seen);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &full.address, NULL, promise);
    settle_calls(channel);
    assert_int_equal(close_it(channel), 0);
    assert_int_equal(outcome(promise), WEIR_ECLOSED);
    expect_failed(channel, &seen);
    close_full_listener(&full);
}

/* The loops end while it goes on. */
static void shut_down_while_it_goes_on(void **state)
{
    (void)state;
    record seen = { 0 };
    full_listener full = open_full_listener();
    weir_channel *channel = new_client(&full.address, &seen);
    weir_promise *promise = promise_of(channel);
    weir_channel_connect(channel, &full.address, NULL, promise);
    settle_calls(channel);
    end_group(group);
    group = NULL;
    assert_int_equal(outcome(promise), WEIR_ECLOSED);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    weir_channel_release(channel);
    close_full_listener(&full);
}

/* Whatever wins: who hears of success has a connection, who hears of the end has none. */
static void cancelled_at_any_moment(void **state)
{
    (void)state;
    weir_address address = any_port();
    int listener = peer_listen(&address, 1024);
    unsigned successes = 0;
    for (unsigned i = 0; i < 400; i++) {
        record seen = { 0 };
        weir_channel *channel = new_client(&address, &seen);
        weir_promise *promise = promise_of(channel);
        weir_channel_connect(channel, &address, NULL, promise);
        for (volatile unsigned pause = 0; pause < i % 40 * 25; pause++)
            ;
        int cancelled = weir_future_cancel(weir_promise_future(promise));
        int code = outcome(promise);
        assert_true(cancelled == 0 ? code == -ECANCELED : code == 0);
        if (code == 0) {
            WAIT_FOR(atomic_load(&seen.actives) == 1);
            assert_true(weir_channel_is_active(channel));
            weir_channel_close(channel, NULL);
            successes++;
        }
        wait_for_close(channel);
        assert_int_equal(atomic_load(&seen.actives), code == 0);
        weir_channel_release(channel);
    }
    print_message("%u of 400 were faster than the cancelling\n", successes);
    close(listener);
}

/* Moving --------------------------------------------------------------------------------------- */

static int move_it(weir_channel *channel, weir_promise **promise)
{
    weir_executor *to = weir_group_at(group, 0);
    if (to == executor_of(channel))
        to = weir_group_at(group, 1);
    *promise = promise_of(channel);
    weir_channel_move(channel, to, *promise);
    return 0;
}

/* A connect cannot be taken along, so the move waits for its end; here that is the timeout. */
static void moved_while_it_goes_on_and_fails(void **state)
{
    (void)state;
    for (int has_handler = 0; has_handler < 2; has_handler++) {
        record seen = { 0 };
        full_listener full = open_full_listener();
        weir_channel *channel = new_client(&full.address, has_handler ? &seen : NULL);
        weir_promise *promise = promise_of(channel), *moved;
        set_option(channel, WEIR_OPTION_CONNECT_TIMEOUT_NS, WEIR_MS(50));
        weir_channel_connect(channel, &full.address, NULL, promise);
        move_it(channel, &moved);
        weir_channel_release(channel);
        assert_int_equal(outcome(promise), -ETIMEDOUT);
        assert_int_equal(outcome(moved), WEIR_ECLOSED);
        close_full_listener(&full);
    }
}

static void moved_while_it_goes_on_and_succeeds(void **state)
{
    (void)state;
    record seen = { 0 };
    full_listener full = open_full_listener();
    weir_channel *channel = new_client(&full.address, &seen);
    weir_promise *promise = promise_of(channel), *moved;
    weir_loop *before = weir_channel_loop(channel);
    weir_channel_connect(channel, &full.address, NULL, promise);
    move_it(channel, &moved);
    settle(weir_loop_executor(before));
    assert_false(weir_future_is_done(weir_promise_future(moved)));
    close(peer_accept(full.listener)); /* the kernel asks again after a second */
    int peer = peer_accept(full.listener);
    assert_int_equal(outcome(promise), 0);
    assert_int_equal(outcome(moved), 0);
    WAIT_FOR(atomic_load(&seen.actives) == 1);
    assert_ptr_not_equal(weir_channel_loop(channel), before);
    end_channel(channel);
    close(peer);
    close_full_listener(&full);
}

/* Resets --------------------------------------------------------------------------------------- */

static void reset_before_anybody_accepted_it(void **state)
{
    (void)state;
    record seen = { 0 };
    weir_address address = any_port();
    int listener = peer_listen(&address, 1);
    weir_channel *channel = open_client(&address, &seen);
    close(listener); /* which resets what nobody has accepted */
    wait_for_close(channel);
    assert_story(&seen, "registered active error:ECONNRESET inactive unregistered ");
    weir_channel_release(channel);
}

/* Making --------------------------------------------------------------------------------------- */

static void s124_no_descriptor_for_a_socket(void **state)
{
    (void)state;
    weir_socket_kind kinds[] = { WEIR_SOCKET_STREAM, WEIR_SOCKET_LISTENER, WEIR_SOCKET_DATAGRAM };
    weir_address address = any_port();
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        weir_channel *channel = NULL;
        weir_error error;
        harness_fail_nth("socket", 1, -EMFILE);
        assert_int_equal(weir_channel_new(&channel, kinds[i], &address, &error), -EMFILE);
        harness_fail_end();
        assert_null(channel);
        assert_int_equal(error.code, -EMFILE);
        assert_non_null(strstr(error.message, "Too many open files"));
    }
}

static void what_is_no_kind_of_socket_is_refused(void **state)
{
    (void)state;
    weir_channel *channel = NULL;
    weir_error error;
    weir_address address = any_port(), none = { 0 }, local = address_of("local:x");
    assert_int_equal(weir_channel_new(NULL, WEIR_SOCKET_STREAM, &address, &error), -EINVAL);
    assert_int_equal(weir_channel_new(&channel, (weir_socket_kind)3, &address, &error), -EINVAL);
    assert_int_equal(weir_channel_new(&channel, (weir_socket_kind)-1, &address, NULL), -EINVAL);
    assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_STREAM, &none, &error), -EINVAL);
    assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_STREAM, NULL, &error), -EINVAL);
    assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_DATAGRAM, &local, &error),
                     -EAFNOSUPPORT);
    assert_null(channel);
}

/* One that was never registered closes with its last reference. */
static void forgotten_before_it_was_used(void **state)
{
    (void)state;
    weir_address address = any_port();
    for (int kind = WEIR_SOCKET_STREAM; kind <= WEIR_SOCKET_LISTENER; kind++) {
        weir_channel *channel = new_channel((weir_socket_kind)kind, &address);
        assert_true(weir_channel_descriptor(channel) >= 0);
        weir_channel_release(channel);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(s103_connected_is_told_once_and_does_not_spin),
        socket_cases(the_promise_is_told_before_the_handlers),
        socket_cases(what_was_asked_for_early_happens_in_order),
        socket_cases(closed_while_it_is_told_that_it_is_connected),
        socket_cases(it_comes_from_where_it_shall),
        socket_cases(a_second_connect_fails_alone),
        socket_cases(a_closed_channel_connects_no_more),
        socket_cases(s104_refused_fails_the_promise_and_closes),
        socket_cases(refused_without_a_promise_closes_as_well),
        socket_cases(a_path_that_is_not_there_is_not_found),
        socket_cases(a_full_path_says_so_at_once),
        socket_cases(an_address_of_another_family_is_refused),
        socket_cases(an_address_that_no_kernel_knows_changes_nothing),
        socket_cases(a_local_address_that_is_not_ours_fails_it),
        socket_cases(it_gives_up_in_time),
        socket_cases(without_a_timeout_it_waits),
        socket_cases(cancelled_before_it_began),
        socket_cases(cancelled_while_it_goes_on),
        socket_cases(closed_while_it_goes_on),
        socket_cases(shut_down_while_it_goes_on),
        socket_cases(cancelled_at_any_moment),
        loop_cases(moved_while_it_goes_on_and_fails),
        loop_cases(moved_while_it_goes_on_and_succeeds),
        socket_cases(reset_before_anybody_accepted_it),
        socket_cases(s124_no_descriptor_for_a_socket),
        socket_cases(what_is_no_kind_of_socket_is_refused),
        socket_cases(forgotten_before_it_was_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
