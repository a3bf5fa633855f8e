/* SPDX-License-Identifier: MIT */
/* Unix sockets: the paths they are bound to. */
#include "transport/sockets.h"

#include <sys/stat.h>

static int bind_listener(weir_channel **channel, const weir_address *address)
{
    *channel = new_channel(WEIR_SOCKET_LISTENER, address);
    assert_int_equal(register_it(*channel), 0);
    return bind_to(*channel, address);
}

static bool exists(const weir_address *address)
{
    struct stat facts;
    return lstat(path_of(address), &facts) == 0;
}

static void a_path_goes_with_its_listener(void **state)
{
    (void)state;
    weir_channel *channel;
    weir_address address = new_path();
    assert_int_equal(bind_listener(&channel, &address), 0);
    assert_true(exists(&address));
    weir_address name = local_of(channel);
    assert_true(weir_address_equal(&name, &address));
    end_channel(channel);
    assert_false(exists(&address));
    /* And again. */
    assert_int_equal(bind_listener(&channel, &address), 0);
    end_channel(channel);
    assert_false(exists(&address));
}

static void a_path_that_was_left_behind_is_replaced(void **state)
{
    (void)state;
    server *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->is_echo = true;
    new_server(self, UNIX);
    close(peer_listen(&self->address, 1));
    assert_true(exists(&self->address));
    start_server(self);
    int peer = peer_connect(&self->address);
    peer_send(peer, "mine now", 8);
    peer_expect_text(peer, "mine now");
    close(peer);
    weir_address address = self->address;
    end_server(self);
    assert_false(exists(&address));
}

static void a_path_that_is_in_use_is_refused(void **state)
{
    (void)state;
    server *self = open_server(UNIX);
    weir_channel *second;
    assert_int_equal(bind_listener(&second, &self->address), -EADDRINUSE);
    end_channel(second);
    assert_true(exists(&self->address)); /* the refused one does not take it away */
    int peer = peer_connect(&self->address);
    WAIT_FOR(atomic_load(&self->count) >= 1);
    close(peer);
    end_server(self);
}

/* Also when it answers nobody, for want of room. */
static void a_path_that_is_full_is_in_use(void **state)
{
    (void)state;
    weir_channel *second;
    weir_address address = new_path();
    int listener = peer_listen(&address, 0), filler = peer_connect(&address);
    assert_int_equal(bind_listener(&second, &address), -EADDRINUSE);
    end_channel(second);
    assert_true(exists(&address));
    close(filler);
    close(listener);
    forget_path(&address);
}

static void what_is_no_socket_is_left_alone(void **state)
{
    (void)state;
    weir_channel *channel;
    weir_address address = new_path();
    int fd = open(path_of(&address), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bind_listener(&channel, &address), -EADDRINUSE);
    end_channel(channel);
    assert_true(exists(&address));
    unlink(path_of(&address));

    /* A link to a socket that nobody has is not followed, for who knows whose it is. */
    weir_address target = new_path();
    close(peer_listen(&target, 1));
    assert_int_equal(symlink(path_of(&target), path_of(&address)), 0);
    assert_int_equal(bind_listener(&channel, &address), -EADDRINUSE);
    end_channel(channel);
    assert_true(exists(&address));
    assert_true(exists(&target));
    unlink(path_of(&address));
    unlink(path_of(&target));
}

/* Bound, and not listening (yet): also sockets of another kind. */
static void a_path_that_somebody_has_bound_is_in_use(void **state)
{
    (void)state;
    static const int types[] = { SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM };
    static const weir_socket_kind kinds[] = { WEIR_SOCKET_LISTENER, WEIR_SOCKET_STREAM,
                                              WEIR_SOCKET_DATAGRAM };
    for (size_t i = 0; i < COUNT_OF(types) * COUNT_OF(kinds); i++) {
        size_t length;
        weir_address address = new_path();
        const struct sockaddr *name = weir_address_sockaddr(&address, &length);
        int fd = socket(AF_UNIX, types[i / COUNT_OF(kinds)] | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, name, (socklen_t)length), 0);
        weir_channel *channel = new_channel(kinds[i % COUNT_OF(kinds)], &address);
        assert_int_equal(register_it(channel), 0);
        assert_int_equal(bind_to(channel, &address), -EADDRINUSE);
        assert_true(exists(&address));
        close(fd);
        assert_int_equal(bind_to(channel, &address), 0); /* and now it is nobody's */
        end_channel(channel);
        assert_false(exists(&address));
    }
}

static void a_path_that_somebody_else_has_taken_over_stays(void **state)
{
    (void)state;
    weir_channel *channel;
    weir_address address = new_path();
    assert_int_equal(bind_listener(&channel, &address), 0);
    unlink(path_of(&address));
    int other = peer_listen(&address, 1);
    end_channel(channel);
    assert_true(exists(&address));
    int peer = peer_connect(&address);
    close(peer);
    close(other);
    forget_path(&address);
}

static void a_path_that_is_gone_already_is_no_matter(void **state)
{
    (void)state;
    weir_channel *channel;
    weir_address address = new_path();
    assert_int_equal(bind_listener(&channel, &address), 0);
    unlink(path_of(&address));
    end_channel(channel);
}

static void abstract_names_leave_nothing(void **state)
{
    (void)state;
    weir_channel *first, *second;
    weir_address address = any_address(ABSTRACT);
    assert_int_equal(bind_listener(&first, &address), 0);
    weir_address name = local_of(first);
    assert_true(weir_address_equal(&name, &address));
    assert_int_equal(bind_listener(&second, &address), -EADDRINUSE);
    end_channel(second);
    end_channel(first);
    assert_int_equal(bind_listener(&second, &address), 0);
    end_channel(second);
}

static void a_directory_that_is_not_there(void **state)
{
    (void)state;
    weir_channel *channel;
    weir_address address = address_of("unix:/tmp/weir-test-nowhere/socket");
    assert_int_equal(bind_listener(&channel, &address), -ENOENT);
    end_channel(channel);
}

static void the_longest_path(void **state)
{
    (void)state;
    char text[6 + WEIR_ADDRESS_NAME_MAX];
    weir_channel *channel;
    snprintf(text, sizeof text, "unix:/tmp/weir-test-%d-", (int)getpid());
    memset(text + strlen(text), 'x', sizeof text - 1 - strlen(text));
    text[sizeof text - 1] = '\0';
    for (size_t cut = 0; cut < 2; cut++) {
        text[sizeof text - 1 - cut] = '\0';
        weir_address address = address_of(text);
        struct stat facts;
        assert_int_equal(bind_listener(&channel, &address), 0);
        assert_int_equal(lstat(text + 5, &facts), 0);
        int peer = peer_connect(&address);
        close(peer);
        end_channel(channel);
        assert_int_not_equal(lstat(text + 5, &facts), 0);
    }
}

/* A client that has a name of its own. */
static void a_clients_path_goes_with_it(void **state)
{
    (void)state;
    server *self = open_server(UNIX);
    weir_address own = new_path(), remote;
    weir_channel *client = new_channel(WEIR_SOCKET_STREAM, &own);
    weir_promise *promise = promise_of(client);
    assert_int_equal(register_it(client), 0);
    weir_channel_connect(client, &self->address, &own, promise);
    assert_int_equal(outcome(promise), 0);
    assert_true(exists(&own));
    WAIT_FOR(atomic_load(&self->count) == 1);
    assert_int_equal(weir_channel_remote_address(self->children[0], &remote), 0);
    assert_true(weir_address_equal(&remote, &own));
    end_channel(client);
    assert_false(exists(&own));
    end_server(self);
}

/* Who has no name, as most clients, has no address either. */
static void a_client_without_a_name(void **state)
{
    (void)state;
    server *self = open_server(UNIX);
    weir_address address;
    int peer = peer_connect(&self->address);
    WAIT_FOR(atomic_load(&self->count) == 1);
    int code = weir_channel_remote_address(self->children[0], &address);
    assert_true(code == WEIR_ENOTFOUND || weir_address_kind_of(&address) == WEIR_ADDRESS_UNIX);
    address = local_of(self->children[0]);
    assert_true(weir_address_equal(&address, &self->address));
    close(peer);
    end_server(self);
}

/* The call that looks at what was bound fails: then nobody knows whose it is, and it stays. */
static void faults_while_a_path_is_claimed(void **state)
{
    (void)state;
    const struct {
        const char *call;
        int code, expected;
        bool stays;
    } cases[] = {
        { "alloc", -ENOMEM, -ENOMEM, true },       { "bind", -EACCES, -EACCES, true },
        { "lstat", -EACCES, -EADDRINUSE, true },   { "socket", -EMFILE, -EADDRINUSE, true },
        { "connect", -EACCES, -EADDRINUSE, true }, { "unlink", -EACCES, -EADDRINUSE, true },
        { "listen", -ENOBUFS, -ENOBUFS, false },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        weir_address address = new_path();
        close(peer_listen(&address, 1)); /* left behind */
        weir_channel *channel = new_channel(WEIR_SOCKET_LISTENER, &address);
        assert_int_equal(register_it(channel), 0);
        settle(executor_of(channel));
        weir_promise *promise = promise_of(channel);
        blocker hold;
        block(&hold, executor_of(channel));
        weir_channel_bind(channel, &address, promise);
        harness_fail_nth(cases[i].call, 1, cases[i].code);
        unblock(&hold);
        int code = outcome(promise);
        settle(executor_of(channel));
        harness_fail_end();
        if (code != cases[i].expected)
            fail_msg("%s: %d", cases[i].call, code);
        end_channel(channel);
        assert_int_equal(exists(&address), cases[i].stays);
        forget_path(&address);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        socket_cases(a_path_goes_with_its_listener),
        socket_cases(a_path_that_was_left_behind_is_replaced),
        socket_cases(a_path_that_is_in_use_is_refused),
        socket_cases(a_path_that_is_full_is_in_use),
        socket_cases(what_is_no_socket_is_left_alone),
        socket_cases(a_path_that_somebody_has_bound_is_in_use),
        socket_cases(a_path_that_somebody_else_has_taken_over_stays),
        socket_cases(a_path_that_is_gone_already_is_no_matter),
        socket_cases(abstract_names_leave_nothing),
        socket_cases(a_directory_that_is_not_there),
        socket_cases(the_longest_path),
        socket_cases(a_clients_path_goes_with_it),
        socket_cases(a_client_without_a_name),
        socket_cases(faults_while_a_path_is_claimed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
