/* SPDX-License-Identifier: MIT */
/* A scenario with everything that loops have, once for each call that can fail, with that one
 * failing: it is told, nothing is left, and the next try works. */
#include "loops.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

/* The hook ------------------------------------------------------------------------------------- */

/* What loops ask the kernel and the memory for, what those would say, and how often it is worth
 * failing: waits come as often as they like. */
typedef struct fallible {
    const char *call;
    int code;
    unsigned most;
    bool may_be_silent; /* it is tried again, or comes again by itself */
} fallible;

static const fallible fallibles[] = {
    { "pthread_create", -EAGAIN, 100, false },
    { "eventfd", -EMFILE, 100, false },
    { "epoll_create1", -EMFILE, 100, false },
    { "epoll_ctl", -ENOMEM, 100, true }, /* when it is about to go anyway */
    { "signalfd", -EMFILE, 100, false },
    { "alloc", -ENOMEM, 200, false },
    { "pool", -ENOMEM, 200, false },
    { "epoll_wait", -ENOMEM, 12, false },
    { "read", -EINTR, 12, true },
    { "write", -EAGAIN, 12, true },
    { "poll", -EINTR, 12, true },
    { "close", -EIO, 100, true },
    { "io_uring_setup", -EMFILE, 100, false },
    { "io_uring_enter", -EBADF, 12, true },     /* the ring is made anew */
    { "io_uring_register", -ENOMEM, 12, true }, /* it does without */
    { "fstat", -EBADF, 12, false },
};

#define FALLIBLES (sizeof fallibles / sizeof *fallibles)

static struct {
    const fallible *which; /* NULL: none fails */
    unsigned nth;          /* of its calls, from 1 */
    atomic_uint seen[FALLIBLES], unknown;
    atomic_bool has_failed;
} fault;

static int fail_one(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    for (size_t i = 0; i < FALLIBLES; i++) {
        if (strcmp(fallibles[i].call, call) != 0)
            continue;
        unsigned seen = atomic_fetch_add(&fault.seen[i], 1) + 1;
        if (fault.which != &fallibles[i] || seen != fault.nth)
            return 0;
        atomic_store(&fault.has_failed, true);
        return fallibles[i].code;
    }
    atomic_fetch_add(&fault.unknown, 1);
    return 0;
}

/* A run that hangs says in which fault, and fails. */
static void tell_hang(int number)
{
    (void)number;
    static const char text[] = "hangs after a fault in ";
    const char *call = fault.which != NULL ? fault.which->call : "nothing";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0 ||
        write(STDERR_FILENO, call, strlen(call)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(1);
    abort();
}

/* The scenario --------------------------------------------------------------------------------- */

typedef struct scene {
    weir_group_config config;
    weir_group *group;
    unsigned told; /* how often something said that it failed */
} scene;

/* Waits for what the loops do, who may need somebody to step them. */
#define WAIT_IN(scene, condition)                                                                  \
    HARNESS_WAIT(condition, #condition,                                                            \
                 (scene)->config.is_manual ? weir_group_step((scene)->group) : sched_yield())

/* Tries it, and when that fails once more: the fault is over then. */
#define TRY(scene, call)                                                                           \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ < 0) {                                                                           \
            (scene)->told++;                                                                       \
            assert_int_equal(call, 0);                                                             \
        } else {                                                                                   \
            assert_int_equal(code_, 0);                                                            \
        }                                                                                          \
    } while (0)

static int add_one(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void run_something_on_each(scene *s)
{
    for (size_t i = 0; i < 2; i++) {
        atomic_int calls = 0;
        weir_future *future = NULL;
        weir_executor *executor = weir_group_at(s->group, i);
        TRY(s, weir_executor_submit(executor, add_one, &calls, &future));
        assert_int_equal(weir_future_await(future), 0);
        weir_future_release(future);
        TRY(s, weir_executor_execute(executor, add_one, &calls));
        WAIT_IN(s, atomic_load(&calls) == 2);
    }
}

static void let_a_timer_fire(scene *s)
{
    probe_timer t = PROBE_TIMER;
    weir_executor *executor = weir_group_at(s->group, 0);
    for (int i = 0; atomic_load(&t.fires) == 0; i++) {
        assert_true(i < 2);
        TRY(s, weir_timer_schedule(&t.timer, executor, WEIR_MS(1)));
        WAIT_IN(s, atomic_load(&t.fires) + atomic_load(&t.cancels) > i);
        s->told += atomic_load(&t.fires) == 0;
    }
    /* The other way to have one. */
    atomic_int calls = 0;
    weir_future *future = NULL;
    TRY(s, weir_executor_schedule(executor, add_one, &calls, WEIR_MS(1), &future));
    if (weir_future_await(future) < 0) {
        s->told++;
        weir_future_release(future);
        TRY(s, weir_executor_schedule(executor, add_one, &calls, WEIR_MS(1), &future));
        assert_int_equal(weir_future_await(future), 0);
    }
    weir_future_release(future);
}

static void watch_a_pipe(scene *s)
{
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1);
    pipe_put(&p, 1);
    for (int i = 0; atomic_load(&w.readies) == 0; i++) {
        assert_true(i < 2);
        TRY(s, weir_watch_start(&w.watch, weir_group_loop_at(s->group, 1), p.in, WEIR_WATCH_READ));
        WAIT_IN(s, atomic_load(&w.readies) > 0 || atomic_load(&w.stops) > i);
        if (atomic_load(&w.readies) == 0) {
            assert_true(atomic_load(&w.code) < 0);
            s->told++;
        }
    }
    int stops = atomic_load(&w.stops);
    if (weir_watch_stop(&w.watch) == 0)
        WAIT_IN(s, atomic_load(&w.stops) > stops);
    pipe_close(&p);
}

typedef struct probe_signal {
    weir_signal signal;
    atomic_int raises, stops, code;
} probe_signal;

static void probe_raised(weir_signal *signal, int number)
{
    (void)number;
    atomic_fetch_add(&WEIR_CONTAINER(signal, probe_signal, signal)->raises, 1);
}

static void probe_stopped(weir_signal *signal, int code)
{
    probe_signal *self = WEIR_CONTAINER(signal, probe_signal, signal);
    atomic_store(&self->code, code);
    atomic_fetch_add(&self->stops, 1);
}

static void raise_a_signal(scene *s)
{
    probe_signal p = { .signal = { .raised = probe_raised, .stopped = probe_stopped } };
    assert_int_equal(kill(getpid(), SIGUSR1), 0); /* which everybody blocks, so it waits */
    for (int i = 0; atomic_load(&p.raises) == 0; i++) {
        assert_true(i < 2);
        TRY(s, weir_loop_signal(weir_group_loop_at(s->group, 0), &p.signal, SIGUSR1));
        WAIT_IN(s, atomic_load(&p.raises) > 0 || atomic_load(&p.stops) > i);
        if (atomic_load(&p.raises) == 0) {
            assert_true(atomic_load(&p.code) < 0);
            s->told++;
        }
    }
    int stops = atomic_load(&p.stops);
    if (weir_signal_stop(&p.signal) == 0)
        WAIT_IN(s, atomic_load(&p.stops) > stops);
}

/* One watch, timer and signal more, which are there when the loops end. */
typedef struct leftovers {
    test_pipe pipe;
    probe_watch watch;
    probe_timer timer;
} leftovers;

static void leave_something(scene *s, leftovers *left)
{
    *left = (leftovers){ .pipe = pipe_open(), .watch = PROBE_WATCH(0), .timer = PROBE_TIMER };
    TRY(s, weir_watch_start(&left->watch.watch, weir_group_loop_at(s->group, 0), left->pipe.in,
                            WEIR_WATCH_READ));
    TRY(s, weir_timer_schedule(&left->timer.timer, weir_group_at(s->group, 1), WEIR_SECONDS(3600)));
    for (size_t i = 0; i < 2; i++) {
        probe p = PROBE;
        TRY(s, weir_executor_post(weir_group_at(s->group, i), &p.task));
        WAIT_IN(s, atomic_load(&p.runs) == 1);
    }
    s->told += atomic_load(&left->timer.cancels) > 0; /* before its time: no memory for it */
}

static void end_scene(scene *s, leftovers *left)
{
    assert_int_equal(weir_group_shutdown(s->group, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(s->group)), 0);
    weir_group_free(s->group);
    assert_int_equal(atomic_load(&left->watch.stops), 1);
    assert_int_equal(atomic_load(&left->timer.cancels), 1);
    assert_int_equal(atomic_load(&left->timer.fires), 0);
    s->told += atomic_load(&left->watch.code) != WEIR_ESHUTDOWN;
    pipe_close(&left->pipe);
}

static int make_group(scene *s)
{
    weir_error error = { 0 };
    int code = weir_group_new(&s->group, &s->config, &error);
    assert_int_equal(error.code, code);
    return code;
}

/* How often something said that it failed. */
static unsigned play(const weir_group_config *config, const fallible *which, unsigned nth)
{
    scene s = { .config = *config };
    leftovers left;
    fault.which = which;
    fault.nth = nth;
    atomic_store(&fault.has_failed, false);
    for (size_t i = 0; i < FALLIBLES; i++)
        atomic_store(&fault.seen[i], 0);
    harness_log_begin(WEIR_LOG_WARN);
    alarm(25);
    weir_fault_set(fail_one, NULL);
    TRY(&s, make_group(&s));
    run_something_on_each(&s);
    let_a_timer_fire(&s);
    watch_a_pipe(&s);
    raise_a_signal(&s);
    leave_something(&s, &left);
    end_scene(&s, &left);
    weir_fault_set(NULL, NULL);
    alarm(0);
    return s.told + harness_log_end();
}

/* Nothing is left, after each fault by itself. */
typedef struct what_lives {
    uint64_t allocations, blocks;
    size_t fds, threads;
} what_lives;

static what_lives count_what_lives(void)
{
    weir_allocator_stats allocator;
    weir_pool_stats pool;
    weir_allocator_get_stats(&allocator);
    weir_pool_get_stats(&pool);
    return (what_lives){ allocator.live, pool.used_blocks, count_entries("/proc/self/fd"),
                         count_threads() };
}

static void assert_same_lives(const what_lives *first)
{
    WAIT_FOR(count_threads() == first->threads);
    what_lives now = count_what_lives();
    if (now.allocations != first->allocations || now.blocks != first->blocks ||
        now.fds != first->fds)
        fail_msg("number %u of %s left something behind", fault.nth, fault.which->call);
}

/* Fails each of these calls once, and returns how many there were. */
static unsigned fail_each(const weir_group_config *config, const fallible *which)
{
    what_lives first = count_what_lives();
    unsigned nth = 1;
    for (; nth <= which->most; nth++) {
        unsigned told = play(config, which, nth);
        assert_same_lives(&first);
        if (!atomic_load(&fault.has_failed)) {
            assert_int_equal(told, 0);
            break;
        }
        if (told == 0 && !which->may_be_silent)
            fail_msg("number %u of %s failed and nobody was told", nth, which->call);
    }
    return nth - 1;
}

static void every_fault(const weir_group_config *config, unsigned counts[FALLIBLES])
{
    struct sigaction on_alarm = { .sa_handler = tell_hang }, before;
    sigset_t usr1, mask;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr1, &mask), 0);
    assert_int_equal(sigaction(SIGALRM, &on_alarm, &before), 0);
    atomic_store(&fault.unknown, 0);
    assert_int_equal(play(config, NULL, 0), 0);
    for (size_t i = 0; i < FALLIBLES; i++)
        counts[i] = fail_each(config, &fallibles[i]);
    assert_int_equal(atomic_load(&fault.unknown), 0); /* else the table lacks something */
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    while (sigtimedwait(&usr1, NULL, &(struct timespec){ 0 }) > 0) {
    }
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
}

static unsigned count_of(const unsigned counts[FALLIBLES], const char *call)
{
    for (size_t i = 0; i < FALLIBLES; i++) {
        if (strcmp(fallibles[i].call, call) == 0)
            return counts[i];
    }
    return 0;
}

/* The ring of each of the two loops is made by a thread that ends then. */
static unsigned ring_threads(void)
{
    return is_over_uring() ? 2 : 0;
}

static void every_call_of_loops_with_threads_may_fail(void **state)
{
    (void)state;
    unsigned counts[FALLIBLES];
    every_fault(&(weir_group_config){ .loops = 2, .watchdog_ns = WEIR_OFF }, counts);
    assert_int_equal(count_of(counts, "pthread_create"), 2 + ring_threads());
    assert_int_equal(count_of(counts, "eventfd"), 2);
    assert_int_equal(count_of(counts, opening_call()), 2);
    assert_int_equal(count_of(counts, "signalfd"), 1);
    assert_true(count_of(counts, watching_call()) >= (is_over_uring() ? 3 : 2 + 3));
    assert_true(count_of(counts, "alloc") >= 10);
    assert_true(count_of(counts, is_over_uring() ? "io_uring_enter" : "epoll_wait") >= 5);
    assert_true(count_of(counts, "close") >= (is_over_uring() ? 3 : 5));
}

static void every_call_of_watched_loops_may_fail(void **state)
{
    (void)state;
    unsigned counts[FALLIBLES];
    every_fault(&(weir_group_config){ .loops = 2, .watchdog_ns = WEIR_MS(20000) }, counts);
    assert_int_equal(count_of(counts, "pthread_create"), 3 + ring_threads());
}

static void every_call_of_manual_loops_may_fail(void **state)
{
    (void)state;
    unsigned counts[FALLIBLES];
    every_fault(&(weir_group_config){ .loops = 2, .is_manual = true }, counts);
    assert_int_equal(count_of(counts, "pthread_create"), ring_threads());
    assert_int_equal(count_of(counts, "eventfd"), 3); /* the background has one */
    assert_int_equal(count_of(counts, "signalfd"), 1);
    assert_true(count_of(counts, "alloc") >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_call_of_loops_with_threads_may_fail),
        weir_case(every_call_of_watched_loops_may_fail),
        weir_case(every_call_of_manual_loops_may_fail),
    };
    return cmocka_run_group_tests(tests, choose_backend, NULL);
}
