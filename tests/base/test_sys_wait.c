/* SPDX-License-Identifier: MIT */
/* Waiting through the system call seam: which are ready, for how long, and on an old kernel. */
#include "asleep.h"
#include "sockets.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t now_ns(void)
{
    return weir_clock_now_ns(weir_clock_monotonic());
}

static void epoll_tells_which_are_ready(void **state)
{
    (void)state;
    int epoll = sys->epoll_create(sys);
    int quiet = sys->eventfd(sys, 0), ready = sys->eventfd(sys, 1), also = sys->eventfd(sys, 1);
    struct epoll_event event = { .events = EPOLLIN }, events[4];
    event.data.fd = quiet;
    assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_ADD, quiet, &event), 0);
    assert_int_equal(sys->epoll_wait(sys, epoll, events, 4, 0), 0);
    event.data.fd = ready;
    assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_ADD, ready, &event), 0);
    assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_ADD, ready, &event), -EEXIST);

    /* What is ready ends any wait at once. */
    static const int64_t timeouts[] = { 0, 1, 999999999, 1000000000, INT64_MAX, -1, INT64_MIN };
    for (size_t i = 0; i < COUNT_OF(timeouts); i++) {
        memset(events, 0, sizeof events);
        assert_int_equal(sys->epoll_wait(sys, epoll, events, 4, timeouts[i]), 1);
        assert_int_equal(events[0].data.fd, ready);
        assert_int_equal(events[0].events, EPOLLIN);
    }

    event.data.fd = also;
    assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_ADD, also, &event), 0);
    assert_int_equal(sys->epoll_wait(sys, epoll, events, 4, 0), 2);
    assert_int_equal(sys->epoll_wait(sys, epoll, events, 1, 0), 1); /* never more than asked for */
    assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_DEL, also, NULL), 0);
    assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_DEL, also, NULL), -ENOENT);
    event.events = EPOLLOUT;
    event.data.fd = ready;
    assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_MOD, ready, &event), 0);
    assert_int_equal(sys->epoll_wait(sys, epoll, events, 4, 0), 1);
    assert_int_equal(events[0].events, EPOLLOUT);
    assert_int_equal(sys->epoll_wait(sys, epoll, events, 0, 0), -EINVAL);
    const int all[] = { epoll, quiet, ready, also };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        assert_int_equal(sys->close(sys, all[i]), 0);
}

static void epoll_waits_at_least_its_nanoseconds(void **state)
{
    (void)state;
    static const int64_t timeouts[] = { 0, 1, 999, 50000, 300000, 1000000, 1500000, 12345678 };
    int epoll = sys->epoll_create(sys);
    struct epoll_event event;
    for (size_t i = 0; i < COUNT_OF(timeouts); i++) {
        int64_t before = now_ns();
        assert_int_equal(sys->epoll_wait(sys, epoll, &event, 1, timeouts[i]), 0);
        assert_true(now_ns() - before >= timeouts[i]);
    }
    assert_int_equal(sys->close(sys, epoll), 0);
}

typedef struct waker {
    int event, sleeper_tid;
} waker;

static void *wake_sleeper(void *arg)
{
    const waker *self = arg;
    const uint64_t one = 1;
    WAIT_FOR(is_asleep(self->sleeper_tid));
    if (write(self->event, &one, sizeof one) != sizeof one)
        return arg;
    return NULL;
}

/* The other thread writes only once this one sleeps; a wait that did not last would find nothing.
 */
static void epoll_waits_for_ever_when_told(void **state)
{
    (void)state;
    static const int64_t forever[] = { -1, -1000000000, INT64_MIN };
    for (size_t i = 0; i < COUNT_OF(forever); i++) {
        int epoll = sys->epoll_create(sys);
        waker other = { sys->eventfd(sys, 0), (int)gettid() };
        struct epoll_event event = { .events = EPOLLIN };
        assert_int_equal(sys->epoll_ctl(sys, epoll, EPOLL_CTL_ADD, other.event, &event), 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wake_sleeper, &other), 0);
        int count = sys->epoll_wait(sys, epoll, &event, 1, forever[i]);
        void *failed;
        pthread_join(thread, &failed);
        assert_null(failed);
        assert_int_equal(count, 1);
        assert_int_equal(sys->close(sys, epoll), 0);
        assert_int_equal(sys->close(sys, other.event), 0);
    }
}

static void ignore_signal(int number)
{
    (void)number;
}

static void an_interrupted_wait_is_the_callers_to_handle(void **state)
{
    (void)state;
    int epoll = sys->epoll_create(sys);
    struct epoll_event event;
    struct sigaction action = { .sa_handler = ignore_signal }, before;
    /* Again and again, for a signal that comes before the wait has begun interrupts nothing. */
    const struct itimerval every_5_ms = { { 0, 5000 }, { 0, 5000 } }, never = { 0 };
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &every_5_ms, NULL), 0);
    int code = sys->epoll_wait(sys, epoll, &event, 1, -1);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(code, -EINTR);
    assert_int_equal(sys->close(sys, epoll), 0);
}

/* Kernels without epoll_pwait2, played by a filter in a child process. */

#define CANNOT_FILTER 77

static int wait_without_pwait2(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { COUNT_OF(code), code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return CANNOT_FILTER;
    struct epoll_event event = { .events = EPOLLIN };
    int epoll = sys->epoll_create(sys), ready = sys->eventfd(sys, 1);
    if (syscall(SYS_epoll_pwait2, epoll, &event, 1, NULL, NULL, 8) >= 0 || errno != ENOSYS)
        return CANNOT_FILTER;

    /* Whole milliseconds are all there is, and they are rounded up. */
    static const int64_t timeouts[] = { 0, 1, 300000, 1000000, 1000001, 2500000 };
    for (size_t i = 0; i < COUNT_OF(timeouts); i++) {
        int64_t before = now_ns();
        if (sys->epoll_wait(sys, epoll, &event, 1, timeouts[i]) != 0)
            return 10 + (int)i;
        if (now_ns() - before < timeouts[i])
            return 20 + (int)i;
    }
    if (sys->epoll_ctl(sys, epoll, EPOLL_CTL_ADD, ready, &event) != 0)
        return 1;
    static const int64_t any[] = { 0, 1, INT64_MAX, -1, INT64_MIN };
    for (size_t i = 0; i < COUNT_OF(any); i++) {
        if (sys->epoll_wait(sys, epoll, &event, 1, any[i]) != 1)
            return 30 + (int)i;
    }
    return sys->epoll_wait(sys, -1, &event, 1, 0) == -EBADF ? 0 : 2;
}

static void epoll_does_without_pwait2(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(wait_without_pwait2());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_FILTER)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        sys_case(epoll_tells_which_are_ready),
        sys_case(epoll_waits_at_least_its_nanoseconds),
        sys_case(epoll_waits_for_ever_when_told),
        sys_case(an_interrupted_wait_is_the_callers_to_handle),
        sys_case(epoll_does_without_pwait2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
