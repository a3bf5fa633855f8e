/* SPDX-License-Identifier: MIT */
/* Loops driven by hand: inside a poll() that is somebody else's. */
#include "loops.h"

#include <poll.h>

static weir_group *new_manual(weir_virtual_clock *clock)
{
    return new_loops(&(weir_group_config){
        .loops = 1, .is_manual = true, .clock = clock != NULL ? &clock->clock : NULL });
}

/* The foreign event loop: waits for the descriptor as long as it may, at most so long, and lets the
 * loop have its turn. Whether the descriptor was readable. */
static bool foreign_turn(weir_loop *loop, int most_ms)
{
    int64_t next_ns = weir_loop_next_ns(loop);
    int timeout_ms = next_ns >= 0 && next_ns < WEIR_MS(most_ms)
                         ? (int)((next_ns + 999999) / 1000000)
                         : most_ms;
    struct pollfd fd = { .fd = weir_loop_descriptor(loop), .events = POLLIN };
    int count = poll(&fd, 1, timeout_ms);
    int code = weir_loop_run_once(loop, 0);
    assert_true(code == 0 || code == 1);
    return count == 1;
}

static bool is_readable(weir_loop *loop)
{
    struct pollfd fd = { .fd = weir_loop_descriptor(loop), .events = POLLIN };
    return poll(&fd, 1, 0) == 1;
}

/* Turns until there is nothing to do. */
static void calm(weir_loop *loop)
{
    while (weir_loop_run_once(loop, 0) > 0 || is_readable(loop)) {
    }
}

static void run_once_runs_what_there_is(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    assert_int_equal(weir_loop_run_once(loop, 0), 0);
    probe p[3] = { PROBE, PROBE, PROBE };
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_executor_post(weir_loop_executor(loop), &p[i].task), 0);
    assert_int_equal(weir_loop_next_ns(loop), 0);
    assert_int_equal(weir_loop_run_once(loop, 0), 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&p[i].runs), 1);
    assert_int_equal(weir_loop_run_once(loop, 0), 0);
    assert_true(weir_loop_next_ns(loop) < 0);
    assert_int_equal(loop_stats_of(loop).turns, 3);
    end_group(group);
}

static void run_once_waits_no_longer_than_it_may(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    assert_int_equal(weir_loop_run_once(loop, WEIR_MS(20)), 0);
    assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns >= WEIR_MS(20));
    /* A timer ends a wait that is without limit. */
    probe_timer t = PROBE_TIMER;
    assert_int_equal(weir_timer_schedule(&t.timer, weir_loop_executor(loop), WEIR_MS(20)), 0);
    WAIT_FOR_STEPPING(atomic_load(&t.fires) != 0, assert_true(weir_loop_run_once(loop, -1) >= 0));
    end_group(group);
}

/* From elsewhere ------------------------------------------------------------------------------ */

typedef struct poster {
    weir_loop *loop;
    int out;
    probe probe;
    int code;
} poster;

static void *post_there(void *arg)
{
    poster *self = arg;
    self->code = weir_executor_post(weir_loop_executor(self->loop), &self->probe.task);
    return NULL;
}

static void *write_there(void *arg)
{
    poster *self = arg;
    self->code = (int)write(self->out, "x", 1);
    return NULL;
}

static void post_from_another_thread_makes_it_readable(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    calm(loop);
    for (int i = 0; i < 50; i++) {
        poster by = { .loop = loop, .probe = PROBE, .code = 1 };
        assert_false(is_readable(loop));
        assert_true(weir_loop_next_ns(loop) < 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, post_there, &by), 0);
        if (i % 2 == 0) {
            pthread_join(thread, NULL);
            assert_true(is_readable(loop));
            assert_int_equal(weir_loop_next_ns(loop), 0);
        }
        WAIT_FOR_STEPPING(atomic_load(&by.probe.runs) != 0, foreign_turn(loop, 30000));
        if (i % 2 != 0)
            pthread_join(thread, NULL);
        assert_int_equal(by.code, 0);
        calm(loop);
    }
    end_group(group);
}

static void post_ends_a_wait_without_limit(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    for (int i = 0; i < 50; i++) {
        poster by = { .loop = loop, .probe = PROBE };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, post_there, &by), 0);
        WAIT_FOR_STEPPING(atomic_load(&by.probe.runs) != 0,
                          assert_true(weir_loop_run_once(loop, -1) >= 0));
        pthread_join(thread, NULL);
    }
    end_group(group);
}

static void pipe_makes_it_readable(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(10);
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, WEIR_WATCH_READ), 0);
    calm(loop);
    for (int i = 1; i <= 20; i++) {
        assert_false(is_readable(loop));
        assert_true(weir_loop_next_ns(loop) < 0);
        poster by = { .out = p.out };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_there, &by), 0);
        WAIT_FOR_STEPPING(atomic_load(&w.readies) >= i, foreign_turn(loop, 30000));
        pthread_join(thread, NULL);
        calm(loop);
        assert_int_equal(atomic_load(&w.taken), i);
    }
    assert_int_equal(atomic_load(&w.tid), gettid());
    assert_int_equal(weir_watch_stop(&w.watch), 0);
    calm(loop);
    assert_int_equal(atomic_load(&w.stops), 1);
    pipe_close(&p);
    end_group(group);
}

/* One that is not drained stays readable, and what has to be told does not wait. */
static void level_keeps_it_readable(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1);
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, WEIR_WATCH_READ), 0);
    calm(loop);
    pipe_put(&p, 3);
    for (int i = 1; i <= 3; i++) {
        assert_true(is_readable(loop));
        assert_int_equal(weir_loop_run_once(loop, 0), 1);
        assert_int_equal(atomic_load(&w.taken), i);
    }
    assert_false(is_readable(loop));
    assert_int_equal(weir_watch_stop(&w.watch), 0);
    while (atomic_load(&w.stops) == 0) {
        assert_true(weir_loop_next_ns(loop) == 0 || is_readable(loop));
        weir_loop_run_once(loop, 0);
    }
    pipe_close(&p);
    end_group(group);
}

typedef struct burst {
    weir_loop *loop;
    probe *probes;
    int count, failed;
} burst;

static void *post_burst(void *arg)
{
    burst *self = arg;
    for (int i = 0; i < self->count; i++) {
        self->probes[i] = (probe)PROBE;
        self->failed += weir_executor_post(weir_loop_executor(self->loop), &self->probes[i].task) !=
                        0;
        if (i % 50 == 0)
            sched_yield();
    }
    return NULL;
}

/* Whenever a post comes, before, in or after a turn: the next poll does not miss it. */
static void no_post_is_missed_by_the_foreign_poll(void **state)
{
    (void)state;
    enum { THREADS = 3, COUNT = 3000 };
    static probe probes[THREADS][COUNT];
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    burst bursts[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        bursts[i] = (burst){ loop, probes[i], COUNT, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, post_burst, &bursts[i]), 0);
    }
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    WAIT_FOR_STEPPING(loop_stats_of(loop).tasks_run >= THREADS * COUNT, foreign_turn(loop, 20000));
    assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns < WEIR_SECONDS(15));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(bursts[i].failed, 0);
        for (int k = 0; k < COUNT; k++)
            assert_int_equal(atomic_load(&probes[i][k].runs), 1);
    }
    end_group(group);
}

/* Timers --------------------------------------------------------------------------------------- */

static void timers_come_through_next_ns(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 99);
    weir_group *group = new_manual(&clock);
    weir_loop *loop = weir_group_loop_at(group, 0);
    probe_timer soon = PROBE_TIMER, late = PROBE_TIMER;
    assert_int_equal(weir_timer_schedule(&late.timer, weir_loop_executor(loop), WEIR_MS(50)), 0);
    assert_int_equal(weir_timer_schedule(&soon.timer, weir_loop_executor(loop), WEIR_MS(20)), 0);
    calm(loop);
    assert_int_equal(weir_loop_next_ns(loop), WEIR_MS(20));
    weir_virtual_clock_advance(&clock, WEIR_MS(19));
    assert_int_equal(weir_loop_run_once(loop, 0), 0);
    assert_int_equal(weir_loop_next_ns(loop), WEIR_MS(1));
    weir_virtual_clock_advance(&clock, WEIR_MS(1));
    assert_int_equal(weir_loop_next_ns(loop), 0);
    assert_false(is_readable(loop)); /* so it is next_ns that tells */
    assert_int_equal(weir_loop_run_once(loop, -1), 1);
    assert_int_equal(atomic_load(&soon.fires), 1);
    assert_int_equal(atomic_load(&late.fires), 0);
    assert_int_equal(weir_loop_next_ns(loop), WEIR_MS(30));
    assert_int_equal(weir_timer_cancel(&late.timer), 0);
    calm(loop);
    assert_int_equal(atomic_load(&late.cancels), 1);
    assert_true(weir_loop_next_ns(loop) < 0);
    end_group(group);
}

static void timers_come_in_the_foreign_loop(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    probe_timer t[3];
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    for (int i = 0; i < 3; i++) {
        t[i] = PROBE_TIMER;
        assert_int_equal(
            weir_timer_schedule(&t[i].timer, weir_loop_executor(loop), WEIR_MS(10 * (i + 1))), 0);
    }
    WAIT_FOR_STEPPING(atomic_load(&t[2].fires) != 0, foreign_turn(loop, 30000));
    int64_t taken_ns = weir_clock_now_ns(weir_clock_monotonic()) - start_ns;
    assert_true(taken_ns >= WEIR_MS(30) && taken_ns < WEIR_SECONDS(20));
    assert_int_equal(atomic_load(&t[0].fires), 1);
    assert_int_equal(atomic_load(&t[1].fires), 1);
    end_group(group);
}

/* Who may -------------------------------------------------------------------------------------- */

typedef struct attempt {
    weir_loop *loop;
    int run_code, descriptor;
    int64_t next_ns;
} attempt;

static void *attempt_all(void *arg)
{
    attempt *self = arg;
    self->run_code = weir_loop_run_once(self->loop, 0);
    self->descriptor = weir_loop_descriptor(self->loop);
    self->next_ns = weir_loop_next_ns(self->loop);
    return NULL;
}

static void assert_refused(const attempt *a)
{
    assert_int_equal(a->run_code, -EPERM);
    assert_int_equal(a->descriptor, -EPERM);
    assert_true(a->next_ns == INT64_MIN);
}

static void others_may_not_run_it(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL), *threaded = new_loops_of(1);
    attempt a = { .loop = weir_group_loop_at(group, 0) };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, attempt_all, &a), 0);
    pthread_join(thread, NULL);
    assert_refused(&a);
    a = (attempt){ .loop = weir_group_loop_at(threaded, 0) };
    attempt_all(&a);
    assert_refused(&a);
    settle(weir_group_at(threaded, 0));
    attempt_all(&a);
    assert_refused(&a);
    a = (attempt){ .loop = NULL };
    attempt_all(&a);
    assert_refused(&a);
    end_group(threaded);
    end_group(group);
}

static int attempt_inside(void *arg)
{
    attempt_all(arg);
    return 0;
}

static void run_inside_ready(probe_watch *self)
{
    atomic_store(&self->then_code, weir_loop_run_once(self->watch.loop, 0));
}

static void it_does_not_run_inside_itself(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_loop *loop = weir_group_loop_at(group, 0);
    attempt a = { .loop = loop };
    assert_int_equal(call_on(weir_loop_executor(loop), attempt_inside, &a), 0);
    assert_int_equal(a.run_code, -EDEADLK);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1);
    w.then = run_inside_ready;
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, WEIR_WATCH_READ), 0);
    pipe_put(&p, 1);
    WAIT_FOR_STEPPING(atomic_load(&w.readies) != 0, foreign_turn(loop, 1000));
    assert_int_equal(atomic_load(&w.then_code), -EDEADLK);
    end_group(group);
    assert_int_equal(atomic_load(&w.stops), 1);
    pipe_close(&p);
}

/* A plain executor's callback may drive the loop of the same thread. */
typedef struct driver {
    weir_loop *loop;
    probe probe;
    int code;
    weir_executor *current;
} driver;

static int drive_inside(void *arg)
{
    driver *self = arg;
    self->code = weir_loop_run_once(self->loop, 0);
    self->current = weir_executor_current();
    return 0;
}

static void it_runs_inside_another_executor(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    weir_group *plain = new_group(&(weir_group_config){ .count = 1, .is_manual = true });
    driver d = { .loop = weir_group_loop_at(group, 0), .probe = PROBE };
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(weir_group_at(plain, 0), drive_inside, &d, &future), 0);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &d.probe.task), 0);
    assert_int_equal(weir_group_step(plain), 1);
    assert_int_equal(d.code, 1);
    assert_int_equal(atomic_load(&d.probe.runs), 1);
    assert_ptr_equal(d.current, weir_group_at(plain, 0));
    assert_null(weir_executor_current());
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
    end_group(plain);
    end_group(group);
}

/* Ending --------------------------------------------------------------------------------------- */

static void it_ends_by_turns(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 0);
    weir_group *group = new_manual(&clock);
    weir_loop *loop = weir_group_loop_at(group, 0);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(0);
    probe_timer t = PROBE_TIMER;
    assert_int_equal(weir_watch_start(&w.watch, loop, p.in, WEIR_WATCH_READ), 0);
    assert_int_equal(weir_timer_schedule(&t.timer, weir_loop_executor(loop), WEIR_SECONDS(9)), 0);
    calm(loop);
    assert_int_equal(weir_group_shutdown(group, WEIR_MS(100), WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_loop_next_ns(loop), 0);
    assert_true(is_readable(loop));
    for (int i = 0; i < 5; i++)
        assert_true(weir_loop_run_once(loop, 0) >= 0);
    assert_int_equal(atomic_load(&w.code), WEIR_ESHUTDOWN);
    assert_int_equal(atomic_load(&t.cancels), 1);
    assert_int_equal(weir_executor_get_state(weir_loop_executor(loop)),
                     WEIR_EXECUTOR_SHUTTING_DOWN);
    assert_int_equal(weir_loop_next_ns(loop), WEIR_MS(100));
    weir_virtual_clock_advance(&clock, WEIR_MS(100));
    assert_int_equal(weir_loop_next_ns(loop), 0);
    int epoll = weir_loop_descriptor(loop);
    assert_int_not_equal(fcntl(epoll, F_GETFD), -1);
    assert_int_equal(weir_loop_run_once(loop, 0), 1);
    assert_int_equal(weir_executor_get_state(weir_loop_executor(loop)), WEIR_EXECUTOR_TERMINATED);
    assert_int_equal(fcntl(epoll, F_GETFD), -1);
    assert_int_equal(weir_loop_run_once(loop, 0), WEIR_ESHUTDOWN);
    assert_int_equal(weir_loop_run_once(loop, -1), WEIR_ESHUTDOWN);
    weir_group_free(group);
    assert_int_equal(atomic_load(&w.stops), 1);
    pipe_close(&p);
}

/* A member that leaves its loop as soon as that begins to end, as an idle channel does. */
typedef struct lodger {
    weir_resident resident;
    weir_loop *loop;
} lodger;

static void lodger_leave(weir_resident *resident)
{
    weir__loop_remove(WEIR_CONTAINER(resident, lodger, resident)->loop, resident);
}

static int lodger_enter(void *arg)
{
    static const weir_resident_type type = { .evict = lodger_leave };
    lodger *self = arg;
    self->resident.type = &type;
    return weir__loop_add(self->loop, &self->resident);
}

static void shutdown_ends_when_the_last_channel_has_closed(void **state)
{
    (void)state;
    for (int64_t quiet_ns = 0; quiet_ns <= WEIR_MS(70); quiet_ns += WEIR_MS(70)) {
        weir_virtual_clock clock;
        weir_virtual_clock_init(&clock, 0);
        weir_group *group = new_manual(&clock);
        lodger l = { .loop = weir_group_loop_at(group, 0) };
        weir_future *future = NULL;
        assert_int_equal(weir_executor_submit(weir_group_at(group, 0), lodger_enter, &l, &future),
                         0);
        assert_int_equal(weir_future_await(future), 0);
        weir_future_release(future);
        assert_int_equal(weir_group_shutdown(group, quiet_ns, WEIR_SECONDS(10)), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        assert_int_equal(weir_clock_now_ns(&clock.clock), quiet_ns);
        weir_group_free(group);
    }
}

/* The same for a loop that another one drives, by its descriptor and the time that it names. */
static void next_ns_is_0_once_the_last_channel_has_closed(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    lodger l = { .loop = weir_group_loop_at(group, 0) };
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(weir_group_at(group, 0), lodger_enter, &l, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_loop_run_once(l.loop, 0), 0);
    assert_int_equal(loop_stats_of(l.loop).channels, 0);
    assert_int_equal(weir_loop_next_ns(l.loop), 0);
    assert_int_equal(weir_loop_run_once(l.loop, 0), 1);
    assert_int_equal(weir_executor_get_state(&l.loop->base), WEIR_EXECUTOR_TERMINATED);
    weir_group_free(group);
}

/* What is deferred from something deferred is not left to some later event. */
typedef struct chain {
    weir_deferred first, second;
    weir_loop *loop;
    int runs;
} chain;

static void run_second(weir_deferred *deferred)
{
    WEIR_CONTAINER(deferred, chain, second)->runs++;
}

static void run_first(weir_deferred *deferred)
{
    chain *self = WEIR_CONTAINER(deferred, chain, first);
    self->runs++;
    self->second.run = run_second;
    weir__loop_defer(self->loop, &self->second);
}

static int defer_first(void *arg)
{
    chain *self = arg;
    self->first.run = run_first;
    weir__loop_defer(self->loop, &self->first);
    return 0;
}

static void what_is_deferred_in_a_deferred_call_asks_for_a_turn(void **state)
{
    (void)state;
    weir_group *group = new_manual(NULL);
    chain c = { .loop = weir_group_loop_at(group, 0) };
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(weir_group_at(group, 0), defer_first, &c, &future), 0);
    WAIT_FOR_STEPPING(c.runs != 0, weir_loop_run_once(c.loop, 0));
    bool is_waited_for = c.runs == 1 && weir_loop_next_ns(c.loop) < 0;
    weir_future_release(future);
    end_group(group);
    assert_int_equal(c.runs, 2);
    assert_false(is_waited_for);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(run_once_runs_what_there_is),
        weir_case(run_once_waits_no_longer_than_it_may),
        weir_case(post_from_another_thread_makes_it_readable),
        weir_case(post_ends_a_wait_without_limit),
        weir_case(pipe_makes_it_readable),
        weir_case(level_keeps_it_readable),
        weir_case(no_post_is_missed_by_the_foreign_poll),
        weir_case(timers_come_through_next_ns),
        weir_case(timers_come_in_the_foreign_loop),
        weir_case(others_may_not_run_it),
        weir_case(it_does_not_run_inside_itself),
        weir_case(it_runs_inside_another_executor),
        weir_case(it_ends_by_turns),
        weir_case(shutdown_ends_when_the_last_channel_has_closed),
        weir_case(next_ns_is_0_once_the_last_channel_has_closed),
        weir_case(what_is_deferred_in_a_deferred_call_asks_for_a_turn),
    };
    return cmocka_run_group_tests(tests, choose_backend, NULL);
}
