/* SPDX-License-Identifier: MIT */
/* The loop's turn: what it does in which order, how long it waits, and how long tasks may take. */
#include "turns.h"

#define STEPS(...)                                                                                 \
    (const weir_strategy[])                                                                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Tasks of a pass ----------------------------------------------------------------------------- */

/* Posts tasks of a length, with 10 ms for them, and returns how many run in one turn. */
static int run_in_ten_ms(int64_t takes_ns, uint64_t *clock_reads)
{
    static slow_task tasks[200];
    stage s = { 0 };
    int runs = 0, first;
    stage_open(&s, (weir_group_config){ .task_ns = WEIR_MS(10) });
    post_slow(&s, tasks, 200, takes_ns, &runs);
    uint64_t before = weir_virtual_clock_reads(&s.clock);
    assert_int_equal(turn(&s), 1);
    *clock_reads = weir_virtual_clock_reads(&s.clock) - before;
    first = runs;
    assert_int_equal(turn(&s), first < 200); /* what is left is for the next turns */
    assert_int_equal(runs, 2 * first < 200 ? 2 * first : 200);
    while (turn(&s) == 1) {
    }
    assert_int_equal(runs, 200);
    stage_close(&s);
    return first;
}

static void s066_budget_is_checked_after_every_64th_task(void **state)
{
    (void)state;
    uint64_t reads;
    /* 1 ms each: past the deadline after ten, but nobody looks before the 64th. */
    assert_int_equal(run_in_ten_ms(WEIR_MS(1), &reads), 64);
    assert_int_equal(reads, 1 + 2); /* after the 64th, and the turn's own two */
    /* 0.1 ms each: not past it after 64, but after 128. */
    assert_int_equal(run_in_ten_ms(US(100), &reads), 128);
    assert_int_equal(reads, 2 + 2);
    /* At the deadline is past it. */
    assert_int_equal(run_in_ten_ms(156250, &reads), 64);
    assert_int_equal(run_in_ten_ms(156249, &reads), 128);
    /* No time at all: all of them. */
    assert_int_equal(run_in_ten_ms(0, &reads), 200);
    assert_int_equal(reads, 3 + 2);
}

typedef struct hundred {
    stage s;
    counted_timer timers[100];
    int order[100], fired;
} hundred;

static hundred h;

static int hundred_fire(weir_timer *timer)
{
    h.order[h.fired++] = (int)(WEIR_CONTAINER(timer, counted_timer, timer) - h.timers);
    return 0;
}

static void s067_a_pass_without_limit_runs_all_due_timers(void **state)
{
    (void)state;
    h = (hundred){ 0 };
    stage_open(&h.s, (weir_group_config){ .max_pending_tasks = 16, .io_ratio = 100 });
    for (int i = 0; i < 100; i++) {
        h.timers[i].timer = (weir_timer){ .fire = hundred_fire, .name = "one of a hundred" };
        schedule(&h.s, &h.timers[i], WEIR_MS(1 + i % 2));
    }
    static probe probes[17];
    pass(&h.s, US(999));
    turn(&h.s);
    assert_int_equal(h.fired, 0);
    for (int i = 0; i < 17; i++) { /* the bound is 16 */
        probes[i] = PROBE;
        assert_int_equal(weir_executor_post(h.s.executor, &probes[i].task), i < 16 ? 0 : -EAGAIN);
    }
    pass(&h.s, WEIR_MS(5));
    assert_int_equal(turn(&h.s), 1);
    assert_int_equal(h.fired, 100); /* in one pass, though the queue was full and takes 16 */
    for (int i = 0; i < 100; i++)
        assert_int_equal(h.order[i], i < 50 ? 2 * i : 2 * (i - 50) + 1);
    for (int i = 0; i < 16; i++)
        assert_int_equal(atomic_load(&probes[i].runs), 1);
    assert_int_equal(loop_stats(&h.s).timers, 0);
    stage_close(&h.s);
}

static void s068_time_of_the_last_run_changes_only_with_a_run(void **state)
{
    (void)state;
    stage s = { 0 };
    probe p = PROBE;
    counted_timer t = COUNTED_TIMER;
    stage_open(&s, (weir_group_config){ 0 });
    pass(&s, WEIR_MS(3));
    assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
    int64_t ran_ns = WEIR_SECONDS(1000) + WEIR_MS(3);
    assert_int_equal(turn(&s), 1);
    assert_int_equal(stats_of(s.executor).last_run_ns, ran_ns);
    for (int i = 0; i < 3; i++) {
        pass(&s, WEIR_MS(3));
        assert_int_equal(turn(&s), 0);
        assert_int_equal(stats_of(s.executor).last_run_ns, ran_ns);
    }
    schedule(&s, &t, WEIR_MS(1));
    pass(&s, WEIR_MS(1));
    assert_int_equal(turn(&s), 1); /* a timer counts, too */
    assert_int_equal(stats_of(s.executor).last_run_ns, ran_ns + WEIR_MS(10));
    assert_int_equal(stats_of(s.executor).tasks_run, 2);
    stage_close(&s);
}

typedef struct counted_hook {
    weir_hook hook;
    int runs;
} counted_hook;

static void count_pass(weir_hook *hook)
{
    WEIR_CONTAINER(hook, counted_hook, hook)->runs++;
}

static void s069_a_pass_ends_in_its_hooks_though_nothing_ran(void **state)
{
    (void)state;
    stage s = { 0 };
    probe p = PROBE;
    counted_hook hook = { .hook.run = count_pass };
    stage_open(&s, (weir_group_config){ 0 });
    weir_executor *outer = weir__executor_set_current(s.executor);
    assert_int_equal(weir_executor_add_pass_hook(s.executor, &hook.hook), 0);
    weir__executor_set_current(outer);
    for (int i = 0; i < 10; i++)
        assert_int_equal(turn(&s), 0);
    assert_int_equal(hook.runs, 10);
    assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
    assert_int_equal(turn(&s), 1);
    assert_int_equal(hook.runs, 11);
    stage_close(&s);
}

/* The strategy -------------------------------------------------------------------------------- */

typedef struct strategist {
    const weir_strategy *steps; /* the last of which stays */
    int count, calls, with_tasks;
} strategist;

static weir_strategy next_step(void *arg, weir_loop *loop, bool has_tasks)
{
    strategist *self = arg;
    assert_true(weir_loop_current() == loop);
    self->with_tasks += has_tasks;
    int at = self->calls++;
    return self->steps[at < self->count ? at : self->count - 1];
}

static void s088_continue_begins_the_turn_again(void **state)
{
    (void)state;
    stage s = { 0 };
    probe p = PROBE;
    strategist all = { .steps = STEPS(WEIR_STRATEGY_SELECT, WEIR_STRATEGY_CONTINUE,
                                      WEIR_STRATEGY_CONTINUE, WEIR_STRATEGY_CONTINUE,
                                      WEIR_STRATEGY_SELECT),
                       .count = 5 };
    stage_open(&s, (weir_group_config){ .strategy = next_step, .strategy_arg = &all });
    assert_int_equal(all.calls, 1);
    assert_int_equal(all.with_tasks, 0);
    assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
    turns(&s, 3);
    assert_int_equal(all.calls, 4); /* three more calls, and no poll, and no task */
    assert_int_equal(s.polls, 0);
    assert_int_equal(atomic_load(&p.runs), 0);
    assert_int_equal(turn(&s), 1);
    assert_int_equal(all.calls, 5);
    assert_int_equal(all.with_tasks, 4);
    assert_int_equal(s.polls, 1);
    assert_int_equal(atomic_load(&p.runs), 1);
    stage_close(&s);
}

static void s088_busy_wait_only_looks(void **state)
{
    (void)state;
    stage s = { 0 };
    strategist all = { .steps = STEPS(WEIR_STRATEGY_BUSY_WAIT), .count = 1 };
    stage_open(&s,
               (weir_group_config){ .strategy = next_step, .strategy_arg = &all, .spin_limit = 3 });
    turns(&s, 8);
    assert_int_equal(s.polls, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(s.timeouts[i], 0);
    assert_int_equal(loop_stats(&s).rebuilds, 0); /* nor is that a spin */
    stage_close(&s);
}

static void s088_busy_loop_needs_no_waking(void **state)
{
    (void)state;
    weir_script *script = NULL;
    weir_group *group = NULL;
    weir_script_stats stats;
    assert_int_equal(weir_script_new(&script), 0);
    strategist all = { .steps = STEPS(WEIR_STRATEGY_BUSY_WAIT), .count = 1 };
    weir_group_config config = { .loops = 1,
                                 .io_source = weir_script_source(script),
                                 .strategy = next_step,
                                 .strategy_arg = &all };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    for (int i = 0; i < 100; i++)
        settle(weir_group_at(group, 0));
    weir_script_get_stats(script, &stats);
    assert_int_equal(stats.wakes, 0);
    end_group(group);
    weir_script_free(script);
}

static void s088_by_default_it_waits_unless_tasks_do(void **state)
{
    (void)state;
    stage s = { 0 };
    probe p = PROBE, tail = PROBE;
    stage_open(&s, (weir_group_config){ 0 });
    turn(&s);
    assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
    turn(&s);
    assert_int_equal(weir_executor_post_tail(s.executor, &tail.task), 0);
    turn(&s);
    turn(&s);
    assert_int_equal(s.polls, 4);
    assert_int_equal(s.timeouts[0], -1);
    assert_int_equal(s.timeouts[1], 0);
    assert_int_equal(s.timeouts[2], 0);
    assert_int_equal(s.timeouts[3], -1);
    assert_int_equal(atomic_load(&p.runs) + atomic_load(&tail.runs), 2);
    stage_close(&s);
}

/* How long it waits --------------------------------------------------------------------------- */

static void s090_timeout_is_the_time_to_the_next_timer(void **state)
{
    (void)state;
    static const struct {
        int64_t delay_ns, timeout_ns;
    } table[] = {
        { -WEIR_SECONDS(5), 0 },
        { 0, 0 },
        { 1, 1 }, /* to the nanosecond: nothing is rounded */
        { 499999, 499999 },
        { 1500000, 1500000 },
        { WEIR_SECONDS(3), WEIR_SECONDS(3) },
        { INT64_MAX, -1 }, /* too large for the clock: never */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        stage s = { .is_normal = true };
        counted_timer t = COUNTED_TIMER, later = COUNTED_TIMER;
        stage_open(&s, (weir_group_config){ 0 });
        schedule(&s, &t, table[i].delay_ns);
        if (table[i].timeout_ns >= 0)
            schedule(&s, &later, WEIR_SECONDS(100)); /* not the first */
        int64_t start_ns = weir_loop_now_ns(s.loop);
        int has_run = turn(&s);
        assert_int_equal(s.polls, 1);
        assert_int_equal(s.timeouts[0], table[i].timeout_ns);
        assert_int_equal(has_run, table[i].timeout_ns >= 0);
        assert_int_equal(t.fires, table[i].timeout_ns >= 0);
        if (t.fires > 0)
            assert_int_equal(t.at_ns, start_ns + table[i].timeout_ns); /* in that very turn */
        stage_close(&s);
    }
}

static void s090_what_a_turn_took_is_not_waited_for_again(void **state)
{
    (void)state;
    stage s = { 0 };
    slow_task task;
    int runs = 0;
    counted_timer t = COUNTED_TIMER;
    stage_open(&s, (weir_group_config){ 0 });
    schedule(&s, &t, WEIR_MS(10));
    post_slow(&s, &task, 1, WEIR_MS(3), &runs);
    turns(&s, 2);
    assert_int_equal(s.timeouts[1], WEIR_MS(7));
    s.poll_step_ns = WEIR_MS(2); /* returns early: the next wait is for the rest */
    turns(&s, 2);
    assert_int_equal(s.timeouts[2], WEIR_MS(7));
    assert_int_equal(s.timeouts[3], WEIR_MS(5));
    stage_close(&s);
}

static void s090_time_between_turns_by_hand_counts(void **state)
{
    (void)state;
    stage s = { 0 };
    counted_timer t = COUNTED_TIMER;
    stage_open(&s, (weir_group_config){ 0 });
    schedule(&s, &t, WEIR_MS(10));
    turn(&s);
    assert_int_equal(s.timeouts[0], WEIR_MS(10));
    pass(&s, WEIR_MS(4)); /* somebody else's loop does something else */
    turn(&s);
    assert_int_equal(s.timeouts[1], WEIR_MS(6));
    pass(&s, WEIR_MS(7));
    assert_int_equal(turn(&s), 1);
    assert_int_equal(s.timeouts[2], 0);
    assert_int_equal(t.fires, 1);
    stage_close(&s);
}

static void s091_idle_loop_waits_for_ever_unless_told_otherwise(void **state)
{
    (void)state;
    static const struct {
        int64_t max_wait_ns;
        int64_t timer_ns, by_hand_ns, timeout_ns;
    } table[] = {
        { 0, 0, -1, -1 },
        { WEIR_OFF, 0, -1, -1 },
        { WEIR_MS(1000), 0, -1, WEIR_SECONDS(1) },
        { WEIR_MS(250), 0, -1, WEIR_MS(250) },
        { WEIR_MS(250), WEIR_MS(100), -1, WEIR_MS(100) },
        { WEIR_MS(250), WEIR_MS(300), -1, WEIR_MS(250) },
        { 0, WEIR_MS(300), -1, WEIR_MS(300) },
        { WEIR_MS(250), 0, WEIR_MS(20), WEIR_MS(20) },
        { WEIR_MS(250), 0, WEIR_SECONDS(2), WEIR_MS(250) },
        { WEIR_MS(250), 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        stage s = { .is_normal = true };
        counted_timer t = COUNTED_TIMER;
        stage_open(&s, (weir_group_config){ .max_wait_ns = table[i].max_wait_ns });
        if (table[i].timer_ns > 0)
            schedule(&s, &t, table[i].timer_ns);
        weir_loop_run_once(s.loop, table[i].by_hand_ns);
        assert_int_equal(s.polls, 1);
        assert_int_equal(s.timeouts[0], table[i].timeout_ns);
        stage_close(&s);
    }
}

typedef struct timeouts {
    atomic_int blocking, others; /* polls: that wait for ever, and not */
} timeouts;

static int count_timeout(void *arg, int64_t timeout_ns)
{
    timeouts *self = arg;
    atomic_fetch_add(timeout_ns < 0 ? &self->blocking : &self->others, timeout_ns != 0);
    return WEIR_SCRIPT_WAIT;
}

static void s091_loop_on_a_thread_wakes_only_with_max_wait(void **state)
{
    (void)state;
    for (int64_t max_wait_ns = 0; max_wait_ns <= WEIR_MS(1); max_wait_ns += WEIR_MS(1)) {
        timeouts seen = { 0 };
        weir_script_stats stats;
        weir_script *script = NULL;
        weir_group *group = NULL;
        assert_int_equal(weir_script_new(&script), 0);
        weir_script_set_poll_hook(script, count_timeout, &seen);
        weir_group_config config = { .loops = 1,
                                     .io_source = weir_script_source(script),
                                     .max_wait_ns = max_wait_ns };
        assert_int_equal(weir_group_new(&group, &config, NULL), 0);
        settle(weir_group_at(group, 0));
        if (max_wait_ns > 0)
            WAIT_FOR(atomic_load(&seen.others) >= 10);
        else
            WAIT_FOR(atomic_load(&seen.blocking) == 1);
        weir_script_get_stats(script, &stats);
        assert_int_equal(stats.wakes, 0);
        assert_int_equal(atomic_load(&seen.blocking), max_wait_ns == 0);
        if (max_wait_ns == 0)
            assert_int_equal(atomic_load(&seen.others), 0);
        end_group(group);
        weir_script_free(script);
    }
}

/* What ends the wait -------------------------------------------------------------------------- */

static channel *arriving;

static void arrive(stage *self)
{
    (void)self;
    if (arriving->echoes == 0)
        deliver(arriving);
}

static void s092_an_event_ends_the_wait(void **state)
{
    (void)state;
    stage s = { .answer = WEIR_SCRIPT_WAIT };
    channel c = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    channel_open(&c, &s, 5);
    arriving = &c;
    s.in_poll = arrive;
    assert_int_equal(turn(&s), 1);
    assert_int_equal(s.polls, 1);
    assert_int_equal(s.timeouts[0], -1);
    assert_int_equal(c.echoes, 1);
    s.in_poll = NULL;
    channel_close(&c);
    stage_close(&s);
}

static void s092_a_wake_up_before_makes_it_none(void **state)
{
    (void)state;
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    weir_executor_wake(s.executor);
    assert_int_equal(turn(&s), 0);
    assert_int_equal(s.polls, 1);
    assert_int_equal(s.timeouts[0], 0);
    turn(&s); /* and only one */
    assert_int_equal(s.timeouts[1], -1);
    stage_close(&s);
}

static void wake_in_poll(stage *self)
{
    weir_executor_wake(self->executor);
}

static void s092_a_wake_up_now_ends_it(void **state)
{
    (void)state;
    stage s = { .answer = WEIR_SCRIPT_WAIT };
    weir_script_stats stats;
    stage_open(&s, (weir_group_config){ .spin_limit = 3 });
    s.in_poll = wake_in_poll;
    for (int i = 0; i < 5; i++)
        assert_int_equal(turn(&s), 0);
    assert_int_equal(s.polls, 5);
    assert_int_equal(s.timeouts[4], -1);
    weir_script_get_stats(s.script, &stats);
    assert_int_equal(stats.wakes, 5);
    assert_int_equal(loop_stats(&s).rebuilds, 0); /* not early: there was a reason */
    s.in_poll = NULL;
    stage_close(&s);
}

static void s092_a_task_makes_it_none(void **state)
{
    (void)state;
    stage s = { 0 };
    probe p = PROBE;
    stage_open(&s, (weir_group_config){ 0 });
    assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
    assert_int_equal(turn(&s), 1);
    assert_int_equal(s.polls, 1);
    assert_int_equal(s.timeouts[0], 0);
    assert_int_equal(atomic_load(&p.runs), 1);
    /* Also one that does not wake anybody. */
    assert_int_equal(weir_executor_post_lazy(s.executor, &p.task), 0);
    assert_int_equal(turn(&s), 1);
    assert_int_equal(s.timeouts[1], 0);
    assert_int_equal(atomic_load(&p.runs), 2);
    stage_close(&s);
}

static void s092_a_due_timer_makes_it_none(void **state)
{
    (void)state;
    stage s = { 0 };
    counted_timer t = COUNTED_TIMER;
    stage_open(&s, (weir_group_config){ 0 });
    schedule(&s, &t, 0);
    assert_int_equal(turn(&s), 1);
    assert_int_equal(s.polls, 1);
    assert_int_equal(s.timeouts[0], 0);
    assert_int_equal(t.fires, 1);
    stage_close(&s);
}

static int post_in_poll_runs;

static int count_run(weir_task *task)
{
    (void)task;
    post_in_poll_runs++;
    return 0;
}

static weir_task posted_in_poll = { .run = count_run, .name = "posted in a poll" };

/* As another thread would: the loop is not the current one. */
static void post_in_poll(stage *self)
{
    weir_executor *loop = weir__executor_set_current(NULL);
    assert_int_equal(weir_executor_post(self->executor, &posted_in_poll), 0);
    weir__executor_set_current(loop);
}

static void s092_a_task_that_comes_while_it_waits_ends_it(void **state)
{
    (void)state;
    stage s = { .answer = WEIR_SCRIPT_WAIT };
    stage_open(&s, (weir_group_config){ 0 });
    post_in_poll_runs = 0;
    s.in_poll = post_in_poll;
    assert_int_equal(turn(&s), 1);
    assert_int_equal(s.polls, 1);
    assert_int_equal(s.timeouts[0], -1);
    assert_int_equal(post_in_poll_runs, 1); /* in the same turn */
    s.in_poll = NULL;
    stage_close(&s);
}

/* The order ----------------------------------------------------------------------------------- */

static char trace[1024];

static void note(char step)
{
    size_t length = strlen(trace);
    assert_true(length + 1 < sizeof trace);
    trace[length] = step;
    trace[length + 1] = '\0';
}

static void note_poll(stage *self)
{
    (void)self;
    note('p');
}

static void note_deferred(weir_deferred *deferred)
{
    (void)deferred;
    note('d');
}

static weir_deferred deferred = { .run = note_deferred };

static void note_event(channel *self)
{
    note('e');
    weir__loop_defer(self->on->loop, &deferred);
}

static int note_task(weir_task *task)
{
    (void)task;
    note('t');
    return 0;
}

static int note_tail(weir_task *task)
{
    (void)task;
    note('l');
    return 0;
}

static void s093_poll_then_events_then_tasks(void **state)
{
    (void)state;
    stage s = { 0 };
    channel c = { .then = note_event };
    weir_task task = { .run = note_task }, tail = { .run = note_tail };
    char expected[1024] = "";
    stage_open(&s, (weir_group_config){ 0 });
    channel_open(&c, &s, 5);
    s.in_poll = note_poll;
    trace[0] = '\0';
    for (int i = 0; i < 100; i++) {
        /* What the order must not depend on: which of them was first. */
        if (i % 2 == 0)
            assert_int_equal(weir_executor_post_tail(s.executor, &tail), 0);
        deliver(&c);
        assert_int_equal(weir_executor_post(s.executor, &task), 0);
        if (i % 2 != 0)
            assert_int_equal(weir_executor_post_tail(s.executor, &tail), 0);
        assert_int_equal(turn(&s), 1);
        strcat(expected, "petld");
    }
    assert_string_equal(trace, expected);
    assert_int_equal(loop_stats(&s).turns, 101);
    s.in_poll = NULL;
    channel_close(&c);
    stage_close(&s);
}

static void fail_event(channel *self)
{
    note('e');
    weir_log(WEIR_LOG_WARN, "test", "a handler failed with %d", self->code);
}

static void s097_tasks_run_though_the_event_was_an_error(void **state)
{
    (void)state;
    stage s = { 0 };
    channel c = { .then = fail_event };
    weir_task task = { .run = note_task };
    stage_open(&s, (weir_group_config){ 0 });
    channel_open(&c, &s, 5);
    trace[0] = '\0';
    assert_int_equal(weir_script_fail(s.script, 5, -ECONNRESET), 0);
    assert_int_equal(weir_executor_post(s.executor, &task), 0);
    assert_int_equal(turn(&s), 1);
    assert_string_equal(trace, "et"); /* in one turn */
    assert_int_equal(c.code, -ECONNRESET);
    channel_close(&c);
    stage_close(&s);
}

static void s097_tasks_run_though_the_poll_failed(void **state)
{
    (void)state;
    static const int codes[] = { -EBADF, -EINTR, -EFAULT };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        stage s = { .in_poll = note_poll };
        weir_task task = { .run = note_task };
        counted_timer t = COUNTED_TIMER;
        stage_open(&s, (weir_group_config){ 0 });
        harness_log_begin(WEIR_LOG_ERROR);
        s.answer = codes[i];
        trace[0] = '\0';
        assert_int_equal(weir_executor_post(s.executor, &task), 0);
        schedule(&s, &t, 0);
        assert_int_equal(turn(&s), 1);
        assert_string_equal(trace, "pt");
        assert_int_equal(t.fires, 1);
        s.in_poll = NULL;
        stage_close(&s);
        harness_log_end();
    }
}

/* How long tasks may take --------------------------------------------------------------------- */

static slow_task many[10000];

/* A turn with events that take so long, and tasks that do: how many of 200 ran. */
static int tasks_in_turn(weir_group_config config, int set_ratio, int64_t io_ns, int64_t task_ns)
{
    stage s = { .poll_step_ns = WEIR_SECONDS(5) }; /* waiting is not handling */
    channel a = { .takes_ns = io_ns - io_ns / 3 }, b = { .takes_ns = io_ns / 3 };
    int runs = 0, first;
    stage_open(&s, config);
    if (set_ratio > 0)
        assert_int_equal(weir_loop_set_io_ratio(s.loop, set_ratio), 0);
    channel_open(&a, &s, 5);
    channel_open(&b, &s, 6);
    deliver(&a); /* the time of all events counts, not one's */
    deliver(&b);
    post_slow(&s, many, 200, task_ns, &runs);
    turn(&s);
    assert_int_equal(a.echoes + b.echoes, 2);
    first = runs;
    s.poll_step_ns = 0;
    while (turn(&s) == 1) {
    }
    assert_int_equal(runs, 200);
    channel_close(&a);
    channel_close(&b);
    stage_close(&s);
    return first;
}

static void s094_with_100_all_tasks_run(void **state)
{
    (void)state;
    for (int has_events = 0; has_events < 2; has_events++) {
        stage s = { 0 };
        channel c = { .takes_ns = 1 };
        int runs = 0;
        stage_open(&s, (weir_group_config){ .io_ratio = 100 });
        channel_open(&c, &s, 5);
        if (has_events)
            deliver(&c);
        post_slow(&s, many, 10000, WEIR_MS(1), &runs);
        assert_int_equal(turn(&s), 1);
        assert_int_equal(runs, 10000);
        assert_int_equal(s.polls, 1);
        /* And with anything less not. */
        assert_int_equal(weir_loop_set_io_ratio(s.loop, 99), 0);
        post_slow(&s, many, 10000, WEIR_MS(1), &runs);
        turn(&s);
        assert_int_equal(runs, 10064);
        while (turn(&s) == 1) {
        }
        channel_close(&c);
        stage_close(&s);
    }
}

static void s095_tasks_get_their_share_of_the_time(void **state)
{
    (void)state;
    /* 64 tasks of the first length take the share or more, 64 of the second less. */
    static const struct {
        int ratio;
        int64_t share_ns, enough_ns, too_short_ns;
    } table[] = {
        { 0, WEIR_MS(10), 156250, 156249 }, /* the default is 50 */
        { 50, WEIR_MS(10), 156250, 156249 },     { 70, 4285714, 66965, 66964 },
        { 1, WEIR_MS(990), 15468750, 15468749 }, { 99, 101010, 1579, 1578 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_true(table[i].enough_ns * 64 >= table[i].share_ns);
        assert_true(table[i].too_short_ns * 64 < table[i].share_ns);
        weir_group_config config = { .io_ratio = table[i].ratio };
        assert_int_equal(tasks_in_turn(config, 0, WEIR_MS(10), table[i].enough_ns), 64);
        assert_int_equal(tasks_in_turn(config, 0, WEIR_MS(10), table[i].too_short_ns), 128);
        /* The same, set later. */
        config.io_ratio = 33;
        int ratio = table[i].ratio > 0 ? table[i].ratio : 50;
        assert_int_equal(tasks_in_turn(config, ratio, WEIR_MS(10), table[i].enough_ns), 64);
        assert_int_equal(tasks_in_turn(config, ratio, WEIR_MS(10), table[i].too_short_ns), 128);
    }
    /* Half the time for events is half the time for tasks. */
    assert_int_equal(tasks_in_turn((weir_group_config){ 0 }, 0, WEIR_MS(5), 78125), 64);
    assert_int_equal(tasks_in_turn((weir_group_config){ 0 }, 0, WEIR_MS(5), 78124), 128);
}

static void s096_ratio_is_from_1_to_100(void **state)
{
    (void)state;
    static const int bad[] = { 0, 101, -1, -50, 1000 };
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weir_group *group = NULL;
        weir_error error = { 0 };
        assert_int_equal(weir_loop_set_io_ratio(s.loop, bad[i]), -EINVAL);
        if (bad[i] == 0)
            continue; /* the default, in a config */
        weir_group_config config = { .loops = 1, .io_ratio = bad[i] };
        assert_int_equal(weir_group_new(&group, &config, &error), -EINVAL);
        assert_null(group);
        assert_non_null(strstr(error.message, "io_ratio"));
    }
    assert_int_equal(weir_loop_set_io_ratio(NULL, 50), -EINVAL);
    assert_int_equal(weir_loop_set_io_ratio(s.loop, 1), 0);
    assert_int_equal(weir_loop_set_io_ratio(s.loop, 100), 0);
    stage_close(&s);
}

static void fixed_time_for_tasks_takes_the_place_of_the_ratio(void **state)
{
    (void)state;
    static const int64_t io_ns[] = { WEIR_MS(1), WEIR_MS(10), WEIR_MS(500) };
    weir_group_config config = { .task_ns = WEIR_MS(20), .io_ratio = 50 };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(tasks_in_turn(config, 0, io_ns[i], 312500), 64);
        assert_int_equal(tasks_in_turn(config, 0, io_ns[i], 312499), 128);
        assert_int_equal(tasks_in_turn(config, 100, io_ns[i], 312500), 64);
    }
    config.task_ns = -1;
    weir_group *group = NULL;
    assert_int_equal(weir_group_new(&group, &config, NULL), -EINVAL);
}

/* The clock ----------------------------------------------------------------------------------- */

/* Turns of a loop on a thread of its own, each begun by its poll with what the turn shall do. */
typedef struct driver {
    stage s;
    bool has_events, has_tasks, has_timer, has_due_timer;
    bool is_on;
    int turns, runs;
    uint64_t reads, most_reads, turns_before; /* of one turn */
    channel c;
    counted_timer far, due;
    atomic_bool is_done;
} driver;

#define DRIVEN_TURNS 50

static int drive(void *arg, int64_t timeout_ns)
{
    (void)timeout_ns;
    driver *self = arg;
    if (!self->is_on)
        return WEIR_SCRIPT_WAIT;
    uint64_t reads = weir_virtual_clock_reads(&self->s.clock);
    if (self->turns == 0)
        self->turns_before = loop_stats(&self->s).turns;
    else if (reads - self->reads > self->most_reads)
        self->most_reads = reads - self->reads;
    self->reads = reads;
    if (self->turns++ == DRIVEN_TURNS) {
        self->turns_before = loop_stats(&self->s).turns - self->turns_before;
        self->is_on = false;
        atomic_store(&self->is_done, true);
        return WEIR_SCRIPT_WAIT;
    }
    pass(&self->s, US(1));
    if (self->has_events)
        deliver(&self->c);
    if (self->has_tasks)
        post_slow(&self->s, many, 30, US(2), &self->runs);
    return 0;
}

static int begin_to_drive(void *arg)
{
    driver *self = arg;
    channel_open(&self->c, &self->s, 5);
    self->c.takes_ns = US(3);
    self->far = self->due = COUNTED_TIMER;
    if (self->has_timer)
        assert_int_equal(weir_timer_schedule(&self->far.timer, self->s.executor, WEIR_SECONDS(100)),
                         0);
    if (self->has_due_timer)
        assert_int_equal(weir_timer_schedule_at_rate(&self->due.timer, self->s.executor, 0, US(1)),
                         0);
    self->is_on = true;
    return 0;
}

static int end_to_drive(void *arg)
{
    driver *self = arg;
    weir_io *io = self->s.loop->io;
    self->c.then = NULL;
    weir_timer_cancel(&self->due.timer);
    weir__io_cancel(io, &self->c.in);
    return 0;
}

/* 0 when that was possible. */
static int close_driven(void *arg)
{
    driver *self = arg;
    if (self->c.finals == 0)
        return -EAGAIN;
    self->s.loop->io->type->close_file(self->s.loop->io, &self->c.file);
    return 0;
}

static void clock_is_read_at_most_twice_a_turn(void **state)
{
    (void)state;
    for (int what = 0; what < 16; what++) {
        driver d = { .has_events = what & 1,
                     .has_tasks = what & 2,
                     .has_timer = what & 4,
                     .has_due_timer = what & 8 };
        weir_virtual_clock_init(&d.s.clock, 0);
        assert_int_equal(weir_script_new(&d.s.script), 0);
        weir_script_set_poll_hook(d.s.script, drive, &d);
        weir_group_config config = { .loops = 1,
                                     .io_source = weir_script_source(d.s.script),
                                     .clock = &d.s.clock.clock,
                                     .spin_limit = WEIR_OFF };
        assert_int_equal(weir_group_new(&d.s.group, &config, NULL), 0);
        d.s.loop = weir_group_loop_at(d.s.group, 0);
        d.s.executor = weir_loop_executor(d.s.loop);
        assert_int_equal(call_on(d.s.executor, begin_to_drive, &d), 0);
        WAIT_FOR(atomic_load(&d.is_done));
        assert_int_equal(d.turns_before, DRIVEN_TURNS);
        if (d.most_reads > 2 || d.most_reads == 0)
            fail_msg("%d reads in a turn of kind %d", (int)d.most_reads, what);
        assert_int_equal(call_on(d.s.executor, end_to_drive, &d), 0);
        WAIT_FOR(call_on(d.s.executor, close_driven, &d) == 0);
        assert_int_equal(d.c.finals, 1);
        assert_int_equal(d.c.echoes, d.has_events ? DRIVEN_TURNS : 0);
        assert_int_equal(d.runs, d.has_tasks ? 30 * DRIVEN_TURNS : 0);
        assert_int_equal(d.due.fires >= DRIVEN_TURNS, d.has_due_timer);
        end_group(d.s.group);
        weir_script_free(d.s.script);
    }
}

static int64_t seen_ns[2];

static void see_time_in_event(channel *self)
{
    seen_ns[0] = weir_loop_now_ns(self->on->loop);
}

static int see_time_in_task(weir_task *task)
{
    (void)task;
    seen_ns[1] = weir_loop_now_ns(weir_loop_current());
    return 0;
}

static void time_of_a_turn_is_after_the_wait(void **state)
{
    (void)state;
    stage s = { .poll_step_ns = WEIR_SECONDS(7) };
    channel c = { .then = see_time_in_event, .takes_ns = WEIR_MS(1) };
    weir_task task = { .run = see_time_in_task };
    stage_open(&s, (weir_group_config){ 0 });
    int64_t start_ns = WEIR_SECONDS(1000) + 2 * WEIR_SECONDS(7); /* the first turn was one */
    channel_open(&c, &s, 5);
    deliver(&c);
    assert_int_equal(weir_executor_post(s.executor, &task), 0);
    turn(&s);
    assert_int_equal(seen_ns[0], start_ns);
    assert_int_equal(seen_ns[1], start_ns + WEIR_MS(1)); /* read between the two */
    channel_close(&c);
    stage_close(&s);
}

/* Statistics ---------------------------------------------------------------------------------- */

static void stats_say_where_the_time_went(void **state)
{
    (void)state;
    stage s = { .poll_step_ns = WEIR_SECONDS(5) }; /* never counts */
    channel c = { .takes_ns = WEIR_MS(10) };
    slow_task tasks[8];
    int runs = 0;
    stage_open(&s, (weir_group_config){ 0 });
    channel_open(&c, &s, 5);
    turn(&s); /* nothing */
    assert_int_equal(loop_stats(&s).io_ns, 0);
    assert_int_equal(loop_stats(&s).task_ns, 0);
    assert_int_equal(loop_stats(&s).longest_turn_ns, 0);
    deliver(&c); /* events alone */
    turn(&s);
    assert_int_equal(loop_stats(&s).io_ns, WEIR_MS(10));
    assert_int_equal(loop_stats(&s).task_ns, 0);
    assert_int_equal(loop_stats(&s).longest_turn_ns, WEIR_MS(10));
    post_slow(&s, tasks, 3, WEIR_MS(2), &runs); /* tasks alone */
    turn(&s);
    assert_int_equal(loop_stats(&s).io_ns, WEIR_MS(10));
    assert_int_equal(loop_stats(&s).task_ns, WEIR_MS(6));
    assert_int_equal(loop_stats(&s).longest_turn_ns, WEIR_MS(10));
    deliver(&c); /* both: the tasks' end is timed by the next turn, which does not wait */
    post_slow(&s, tasks, 4, WEIR_MS(3), &runs);
    s.poll_step_ns = 0;
    s.polls = 0;
    turn(&s);
    turn(&s);
    assert_int_equal(s.timeouts[1], 0);
    assert_int_equal(loop_stats(&s).io_ns, WEIR_MS(20));
    assert_int_equal(loop_stats(&s).task_ns, WEIR_MS(18));
    assert_int_equal(loop_stats(&s).longest_turn_ns, WEIR_MS(22));
    weir_pool_trim(); /* a pool with something in it is emptied in the middle of a wait */
    weir_pool_trim();
    turn(&s); /* and that is that */
    assert_int_equal(s.timeouts[2], -1);
    assert_int_equal(loop_stats(&s).task_ns, WEIR_MS(18));
    weir_loop_stats stats = loop_stats(&s);
    assert_int_equal(runs, 7);
    assert_int_equal(stats.tasks_run, 7);
    assert_int_equal(stats.turns, 7);
    assert_int_equal(stats.polls, 7);
    assert_int_equal(stats.completions, 2);
    assert_int_equal(stats.receives, 2);
    assert_int_equal(stats.sends, 2);
    channel_close(&c);
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s066_budget_is_checked_after_every_64th_task),
        weir_case(s067_a_pass_without_limit_runs_all_due_timers),
        weir_case(s068_time_of_the_last_run_changes_only_with_a_run),
        weir_case(s069_a_pass_ends_in_its_hooks_though_nothing_ran),
        weir_case(s088_continue_begins_the_turn_again),
        weir_case(s088_busy_wait_only_looks),
        weir_case(s088_busy_loop_needs_no_waking),
        weir_case(s088_by_default_it_waits_unless_tasks_do),
        weir_case(s090_timeout_is_the_time_to_the_next_timer),
        weir_case(s090_what_a_turn_took_is_not_waited_for_again),
        weir_case(s091_idle_loop_waits_for_ever_unless_told_otherwise),
        weir_case(s091_loop_on_a_thread_wakes_only_with_max_wait),
        weir_case(s092_an_event_ends_the_wait),
        weir_case(s092_a_wake_up_before_makes_it_none),
        weir_case(s092_a_wake_up_now_ends_it),
        weir_case(s092_a_task_makes_it_none),
        weir_case(s092_a_due_timer_makes_it_none),
        weir_case(s092_a_task_that_comes_while_it_waits_ends_it),
        weir_case(s093_poll_then_events_then_tasks),
        weir_case(s094_with_100_all_tasks_run),
        weir_case(s095_tasks_get_their_share_of_the_time),
        weir_case(s096_ratio_is_from_1_to_100),
        weir_case(s097_tasks_run_though_the_event_was_an_error),
        weir_case(s097_tasks_run_though_the_poll_failed),
        weir_case(fixed_time_for_tasks_takes_the_place_of_the_ratio),
        weir_case(clock_is_read_at_most_twice_a_turn),
        weir_case(time_of_a_turn_is_after_the_wait),
        weir_case(stats_say_where_the_time_went),
        weir_case(s090_time_between_turns_by_hand_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
