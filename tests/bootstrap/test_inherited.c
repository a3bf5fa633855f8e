/* SPDX-License-Identifier: MIT */
/* Sockets that somebody else has opened: by number, and as systemd hands them over. */
#include "bootstrap/server.h"
#include "bootstrap/servers.h"

#include <fcntl.h>
#include <sys/wait.h>

static int listening_socket(bool listens)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    if (listens)
        assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void a_descriptor_by_number_serves(void **state)
{
    setup self;
    char text[32];
    prepare(&self, *state, 1, 1);
    int listener = listening_socket(true);
    snprintf(text, sizeof text, "fd:%d", listener);
    listen_on(&self, text);
    assert_int_equal(weir_server_listener_count(self.server), 1);
    int fd = dial(self.server); /* its address is known, too */
    talk(fd);
    close(fd);
    close_all(&self);
    assert_int_equal(fcntl(listener, F_GETFD), -1); /* it was the server's to close */
}

static void what_does_not_listen_is_refused_and_left_alone(void **state)
{
    setup self;
    char text[32];
    int others[3], kinds;
    prepare(&self, *state, 1, 1);
    others[0] = listening_socket(false);
    others[1] = socket(AF_INET, SOCK_DGRAM, 0);
    others[2] = open("/dev/null", O_RDONLY);
    for (kinds = 0; kinds < 3; kinds++) {
        weir_error error = { 0 };
        snprintf(text, sizeof text, "fd:%d", others[kinds]);
        assert_true(weir_server_listen(&self.server, &self.config, text, &error) < 0);
        snprintf(text, sizeof text, "descriptor %d", others[kinds]);
        assert_non_null(strstr(error.message, text));
        assert_true(fcntl(others[kinds], F_GETFD) >= 0);
        close(others[kinds]);
    }
    weir_error error = { 0 };
    assert_int_equal(weir_server_listen(&self.server, &self.config, "fd:1000000", &error), -EBADF);
    assert_non_null(strstr(error.message, "1000000"));
    close_all(&self);
}

static void descriptor_by_number_needs_memory(void **state)
{
    setup self;
    char text[32];
    prepare(&self, *state, 1, 1);
    int listener = listening_socket(true);
    snprintf(text, sizeof text, "fd:%d", listener);
    int *descriptors = NULL;
    weir_error error = { 0 };
    fault_begin("alloc", 1, -ENOMEM);
    assert_int_equal(weir__inherited_find(text, &descriptors, &error), -ENOMEM);
    assert_true(fault_end());
    assert_null(descriptors);
    assert_int_equal(error.code, -ENOMEM);
    snprintf(text, sizeof text, "no memory for fd:%d", listener);
    assert_string_equal(error.message, text);
    assert_true(fcntl(listener, F_GETFD) >= 0);
    close(listener);
    close_all(&self);
}

/* systemd, in a process of its own ------------------------------------------------------------- */

typedef struct handing_over {
    const char *count, *pid, *names; /* NULL: not set; the pid "own" is the right one */
    const char *address;
    int code;
    size_t listeners;
    const char *text; /* of the error */
} handing_over;

/* 0, or the line that it failed at. */
static int take_over(const handing_over *test, const backend *with)
{
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 250 + 1;                                                             \
    } while (0)
    char pid[16];
    int sockets[3];
    setup self;
    for (int i = 0; i < 3; i++)
        sockets[i] = fcntl(listening_socket(true), F_DUPFD, 100);
    for (int i = 0; i < 3; i++)
        CHECK(dup2(sockets[i], 3 + i) == 3 + i);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (test->pid != NULL)
        setenv("LISTEN_PID", strcmp(test->pid, "own") == 0 ? pid : test->pid, 1);
    if (test->count != NULL)
        setenv("LISTEN_FDS", test->count, 1);
    if (test->names != NULL)
        setenv("LISTEN_FDNAMES", test->names, 1);
    weir_error error = { 0 };
    prepare(&self, with, 1, 1);
    CHECK(weir_server_listen(&self.server, &self.config, test->address, &error) == test->code);
    if (test->code < 0) {
        CHECK(strstr(error.message, test->text) != NULL);
        return 0;
    }
    CHECK(weir_server_listener_count(self.server) == test->listeners);
    for (size_t i = 0; i < test->listeners; i++) {
        weir_channel *listener = weir_server_listener(self.server, i);
        weir_address address;
        CHECK(weir_channel_local_address(listener, &address) == 0);
        weir_channel_release(listener);
        int fd = try_dial(&address);
        CHECK(fd >= 0);
        talk(fd);
        close(fd);
    }
    close_all(&self);
    return 0;
#undef CHECK
}

static void sockets_are_handed_over(void **state)
{
    static const handing_over tests[] = {
        { "1", "own", NULL, "systemd:", 0, 1, NULL },
        { "3", "own", NULL, "systemd:", 0, 3, NULL },
        { "3", "own", "a:b:a", "systemd:", 0, 3, NULL },
        { "3", "own", "a:b:a", "systemd:a", 0, 2, NULL },
        { "3", "own", "a:b:a", "systemd:b", 0, 1, NULL },
        { "3", "own", "a:bb:a", "systemd:b", -ENOENT, 0, "'b'" },
        { "3", "own", "a", "systemd:b", -ENOENT, 0, "'b'" },
        { "3", "own", NULL, "systemd:b", -ENOENT, 0, "'b'" },
        { "3", "1", NULL, "systemd:", -ENOENT, 0, "LISTEN_PID is 1" },
        { "3", NULL, NULL, "systemd:", -ENOENT, 0, "LISTEN_PID is not set" },
        { NULL, "own", NULL, "systemd:", -ENOENT, 0, "LISTEN_FDS is not set" },
        { "0", "own", NULL, "systemd:", -ENOENT, 0, "LISTEN_FDS is 0" },
        { "x", "own", NULL, "systemd:", -ENOENT, 0, "LISTEN_FDS is x" },
        { "-1", "own", NULL, "systemd:", -ENOENT, 0, "LISTEN_FDS is -1" },
        { "1025", "own", NULL, "systemd:", -ENOENT, 0, "LISTEN_FDS is 1025" },
        { "99999999999999999999", "own", NULL, "systemd:", -ENOENT, 0, "LISTEN_FDS is 9999" },
    };
    for (size_t i = 0; i < COUNT(tests); i++) {
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(take_over(&tests[i], *state));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("case %zu: status %x", i, (unsigned)status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(sockets_are_handed_over), /* first: no thread has been before the fork */
        each_backend(a_descriptor_by_number_serves),
        each_backend(what_does_not_listen_is_refused_and_left_alone),
        each_backend(descriptor_by_number_needs_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
