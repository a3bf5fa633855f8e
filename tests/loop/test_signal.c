/* SPDX-License-Identifier: MIT */
/* Signals that are told on a loop's thread. */
#include "loops.h"

#include <signal.h>
#include <time.h>

/* A signal that counts. */
typedef struct probe_signal {
    weir_signal signal;
    atomic_int raises, number, tid;
    atomic_int stops, code;
    bool stops_itself;
} probe_signal;

static void probe_raised(weir_signal *signal, int number)
{
    probe_signal *self = WEIR_CONTAINER(signal, probe_signal, signal);
    atomic_store(&self->number, number);
    atomic_store(&self->tid, (int)gettid());
    atomic_fetch_add(&self->raises, 1);
    if (self->stops_itself)
        weir_signal_stop(signal);
}

static void probe_stopped(weir_signal *signal, int code)
{
    probe_signal *self = WEIR_CONTAINER(signal, probe_signal, signal);
    atomic_store(&self->code, code);
    atomic_fetch_add(&self->stops, 1);
}

#define PROBE_SIGNAL                                                                               \
    (probe_signal)                                                                                 \
    {                                                                                              \
        .signal = { .raised = probe_raised, .stopped = probe_stopped }, .code = 1                  \
    }

/* The mask of the test's thread is as it was, and nothing is pending when that comes back. */
static sigset_t mask_before;

static void masks_begin(void)
{
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask_before), 0);
}

static void masks_end(void)
{
    struct timespec now = { 0 };
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    sigaddset(&ours, SIGUSR2);
    sigaddset(&ours, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ours, NULL);
    while (sigtimedwait(&ours, NULL, &now) > 0) {
    }
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask_before, NULL), 0);
}

static void start(probe_signal *s, weir_group *group, int number)
{
    assert_int_equal(weir_loop_signal(weir_group_loop_at(group, 0), &s->signal, number), 0);
}

static void stop(probe_signal *s)
{
    assert_int_equal(weir_signal_stop(&s->signal), 0);
    WAIT_FOR(atomic_load(&s->stops) == 1);
    assert_int_equal(atomic_load(&s->code), 0);
}

static void signal_is_told_on_the_loops_thread(void **state)
{
    (void)state;
    static const int numbers[] = { SIGUSR1, SIGTERM };
    masks_begin();
    weir_group *group = new_loops_of(1);
    int tid = tid_on(weir_group_at(group, 0));
    for (int i = 0; i < 2; i++) {
        probe_signal s = PROBE_SIGNAL;
        start(&s, group, numbers[i]);
        for (int k = 1; k <= 5; k++) {
            assert_int_equal(kill(getpid(), numbers[i]), 0);
            WAIT_FOR(atomic_load(&s.raises) == k);
        }
        assert_int_equal(atomic_load(&s.number), numbers[i]);
        assert_int_equal(atomic_load(&s.tid), tid);
        stop(&s);
    }
    end_group(group);
    masks_end();
}

static void two_signals_do_not_mix(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops_of(1);
    probe_signal a = PROBE_SIGNAL, b = PROBE_SIGNAL;
    start(&a, group, SIGUSR1);
    start(&b, group, SIGUSR2);
    settle(weir_group_at(group, 0));
    assert_int_equal(loop_stats_of(weir_group_loop_at(group, 0)).channels, 2);
    for (int i = 1; i <= 10; i++) {
        assert_int_equal(kill(getpid(), SIGUSR2), 0);
        WAIT_FOR(atomic_load(&b.raises) == i);
    }
    assert_int_equal(atomic_load(&a.raises), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    WAIT_FOR(atomic_load(&a.raises) == 1);
    assert_int_equal(atomic_load(&b.raises), 10);
    assert_int_equal(atomic_load(&a.number), SIGUSR1);
    assert_int_equal(atomic_load(&b.number), SIGUSR2);
    stop(&a);
    stop(&b);
    end_group(group);
    masks_end();
}

/* Real-time signals queue: each is told. */
static void each_queued_signal_is_told(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops_of(1);
    probe_signal s = PROBE_SIGNAL;
    start(&s, group, SIGRTMIN + 3);
    blocker b;
    settle(weir_group_at(group, 0));
    block(&b, weir_group_at(group, 0));
    for (int i = 0; i < 40; i++)
        assert_int_equal(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){ .sival_int = i }), 0);
    unblock(&b);
    WAIT_FOR(atomic_load(&s.raises) == 40);
    stop(&s);
    assert_int_equal(atomic_load(&s.raises), 40);
    end_group(group);
    masks_end();
}

static void signal_stays_blocked_after_the_stop(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops_of(1);
    probe_signal s = PROBE_SIGNAL;
    sigset_t mask;
    start(&s, group, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGUSR1), 1);
    assert_int_equal(sigismember(&mask, SIGUSR2), 0);
    stop(&s);
    assert_int_equal(weir_signal_stop(&s.signal), -EALREADY);
    assert_int_equal(kill(getpid(), SIGUSR1), 0); /* which would else be the end */
    settle(weir_group_at(group, 0));
    assert_int_equal(atomic_load(&s.raises), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGUSR1), 1);
    /* It waits for the next one who wants it. */
    s = PROBE_SIGNAL;
    start(&s, group, SIGUSR1);
    WAIT_FOR(atomic_load(&s.raises) == 1);
    stop(&s);
    end_group(group);
    masks_end();
}

static void stops_itself_when_raised(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops_of(1);
    probe_signal s = PROBE_SIGNAL;
    s.stops_itself = true;
    start(&s, group, SIGUSR1);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    WAIT_FOR(atomic_load(&s.stops) == 1);
    assert_int_equal(atomic_load(&s.raises), 1);
    assert_int_equal(atomic_load(&s.code), 0);
    end_group(group);
    masks_end();
}

static int tell_mask(void *arg)
{
    return -pthread_sigmask(SIG_SETMASK, NULL, arg);
}

static void threads_of_weirs_own_block_signals(void **state)
{
    (void)state;
    static const int numbers[] = { SIGUSR1, SIGUSR2, SIGTERM, SIGINT,  SIGHUP,
                                   SIGALRM, SIGCHLD, SIGPIPE, SIGQUIT, SIGWINCH };
    weir_group_config config = { .count = 1, .watchdog_ns = WEIR_OFF };
    weir_group *groups[2] = { new_loops(&config), new_group(&config) };
    for (int g = 0; g < 2; g++) {
        sigset_t mask;
        sigemptyset(&mask);
        assert_int_equal(call_on(weir_group_at(groups[g], 0), tell_mask, &mask), 0);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            assert_int_equal(sigismember(&mask, numbers[i]), 1);
        assert_int_equal(sigismember(&mask, SIGURG), 1);
        end_group(groups[g]);
    }
    sigset_t own;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &own), 0);
    assert_int_equal(sigismember(&own, SIGUSR1), 0); /* theirs, and not ours */
}

/* What goes wrong ----------------------------------------------------------------------------- */

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    static const int numbers[] = { 0, -1, -SIGUSR1, NSIG, 1000, SIGKILL, SIGSTOP };
    masks_begin();
    weir_group *group = new_loops_of(1);
    weir_loop *loop = weir_group_loop_at(group, 0);
    probe_signal s = PROBE_SIGNAL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_int_equal(weir_loop_signal(loop, &s.signal, numbers[i]), -EINVAL);
    assert_int_equal(weir_loop_signal(NULL, &s.signal, SIGUSR1), -EINVAL);
    assert_int_equal(weir_loop_signal(loop, NULL, SIGUSR1), -EINVAL);
    assert_int_equal(weir_signal_stop(&s.signal), -EALREADY);
    assert_int_equal(weir_signal_stop(NULL), -EINVAL);
    s.signal.raised = NULL;
    assert_int_equal(weir_loop_signal(loop, &s.signal, SIGUSR1), -EINVAL);
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGUSR1), 0);
    assert_int_equal(weir_executor_get_state(weir_group_at(group, 0)), WEIR_EXECUTOR_NOT_STARTED);
    end_group(group);
    masks_end();
}

/* Those between the classic and the real-time ones are the C library's own, and cannot be had. */
static void signals_of_the_c_library_are_refused(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops_of(1);
    probe_signal s = PROBE_SIGNAL;
    int code = weir_loop_signal(weir_group_loop_at(group, 0), &s.signal, SIGRTMIN - 1);
    end_group(group);
    masks_end();
    assert_int_equal(code, -EINVAL);
}

static void second_start_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops_of(1);
    probe_signal s = PROBE_SIGNAL;
    start(&s, group, SIGUSR1);
    assert_int_equal(weir_loop_signal(weir_group_loop_at(group, 0), &s.signal, SIGUSR2), -EBUSY);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    WAIT_FOR(atomic_load(&s.raises) == 1);
    stop(&s);
    end_group(group);
    masks_end();
    assert_int_equal(atomic_load(&s.number), SIGUSR1);
}

static void failed_start_leaves_nothing(void **state)
{
    (void)state;
    const char *const calls[] = { "signalfd", "eventfd", opening_call(), "pthread_create" };
    for (int i = 0; i < 4; i++) {
        masks_begin();
        weir_group *group = new_loops_of(1);
        probe_signal s = PROBE_SIGNAL;
        size_t fds = count_entries("/proc/self/fd");
        harness_fail_nth(calls[i], 1, -EMFILE);
        assert_int_equal(weir_loop_signal(weir_group_loop_at(group, 0), &s.signal, SIGUSR1),
                         -EMFILE);
        assert_int_equal(harness_fail_end(), 1);
        assert_int_equal(count_entries("/proc/self/fd"), fds);
        start(&s, group, SIGUSR1);
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        WAIT_FOR(atomic_load(&s.raises) == 1);
        stop(&s);
        end_group(group);
        masks_end();
    }
}

/* The loop's end ------------------------------------------------------------------------------- */

static void shutdown_stops_it(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops_of(1);
    probe_signal s = PROBE_SIGNAL, late = PROBE_SIGNAL;
    start(&s, group, SIGUSR1);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    assert_int_equal(atomic_load(&s.stops), 1);
    assert_int_equal(atomic_load(&s.code), WEIR_ESHUTDOWN);
    assert_int_equal(weir_signal_stop(&s.signal), -EALREADY);
    assert_int_equal(weir_loop_signal(weir_group_loop_at(group, 0), &late.signal, SIGUSR1),
                     WEIR_ESHUTDOWN);
    weir_group_free(group);
    assert_int_equal(atomic_load(&s.stops), 1);
    assert_int_equal(atomic_load(&late.stops), 0);
    masks_end();
}

static void raise_during_the_shutdown(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        masks_begin();
        weir_group *group = new_loops_of(1);
        probe_signal s = PROBE_SIGNAL;
        start(&s, group, SIGUSR1);
        blocker b;
        if (round % 2 == 0)
            block(&b, weir_group_at(group, 0));
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        if (round % 2 == 0)
            unblock(&b);
        weir_group_free(group);
        assert_int_equal(atomic_load(&s.stops), 1);
        assert_int_equal(atomic_load(&s.code), WEIR_ESHUTDOWN);
        assert_in_range(atomic_load(&s.raises), 0, 2);
        masks_end();
    }
}

static void manual_loop_tells_signals_too(void **state)
{
    (void)state;
    masks_begin();
    weir_group *group = new_loops(&(weir_group_config){ .loops = 1, .is_manual = true });
    probe_signal s = PROBE_SIGNAL;
    start(&s, group, SIGUSR1);
    while (weir_group_step(group) > 0) {
    }
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    WAIT_FOR_STEPPING(atomic_load(&s.raises) != 0,
                      assert_true(weir_loop_run_once(weir_group_loop_at(group, 0), -1) >= 0));
    assert_int_equal(atomic_load(&s.tid), gettid());
    end_group(group);
    assert_int_equal(atomic_load(&s.stops), 1);
    masks_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(signal_is_told_on_the_loops_thread),
        weir_case(two_signals_do_not_mix),
        weir_case(each_queued_signal_is_told),
        weir_case(signal_stays_blocked_after_the_stop),
        weir_case(stops_itself_when_raised),
        weir_case(threads_of_weirs_own_block_signals),
        weir_case(bad_arguments_are_refused),
        weir_case(signals_of_the_c_library_are_refused),
        weir_case(second_start_is_refused_and_changes_nothing),
        weir_case(failed_start_leaves_nothing),
        weir_case(shutdown_stops_it),
        weir_case(raise_during_the_shutdown),
        weir_case(manual_loop_tells_signals_too),
    };
    return cmocka_run_group_tests(tests, choose_backend, NULL);
}
