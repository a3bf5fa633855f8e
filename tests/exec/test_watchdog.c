/* SPDX-License-Identifier: MIT */
/* The watchdog: who stays in one callback for too long is told about, and nobody else. */
#include "loop/loops.h"

#include <weir/channel.h>
#include <weir/handler.h>
#include <weir/pipeline.h>
#include <weir/socket.h>

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#define LIMIT_MS 50
#define PATIENT_MS 300 /* where a busy machine must not look like a slow task */

/* The sink: keeps the reports; the threads that log may be any. */
typedef struct reports {
    pthread_mutex_t lock;
    char text[32768];
    atomic_int count;  /* of those that are slow on purpose */
    atomic_int strays; /* a busy machine keeps an executor from running */
    atomic_int others; /* lines that are no reports */
} reports;

static reports kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep(void *arg, weir_log_level level, const char *origin, const char *line)
{
    reports *self = arg;
    (void)level;
    pthread_mutex_lock(&self->lock);
    size_t length = strlen(self->text);
    snprintf(self->text + length, sizeof self->text - length, "%s: %s\n", origin, line);
    pthread_mutex_unlock(&self->lock);
    bool is_report = strstr(line, "blocked for ") != NULL;
    bool is_meant = strstr(line, "'slow ") != NULL || strstr(line, "'an event's handler'") != NULL;
    atomic_fetch_add(!is_report ? &self->others : is_meant ? &self->count : &self->strays, 1);
}

static void reports_begin(void)
{
    kept.text[0] = '\0';
    atomic_store(&kept.count, 0);
    atomic_store(&kept.strays, 0);
    atomic_store(&kept.others, 0);
    assert_int_equal(weir_log_set(WEIR_LOG_WARN, keep, &kept), 0);
}

/* How many there were; from here on the text may be read. */
static int reports_end(void)
{
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);
    return atomic_load(&kept.count);
}

#define assert_told(part)                                                                          \
    do {                                                                                           \
        if (strstr(kept.text, part) == NULL)                                                       \
            fail_msg("no \"%s\" in: %s", part, kept.text);                                         \
    } while (0)

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* A task that takes 100 ms, and longer until it was told about `wanted` times, but not for ever. */
void function_that_blocks_its_executor(int64_t least_ms, int wanted);

__attribute__((noinline)) void function_that_blocks_its_executor(int64_t least_ms, int wanted)
{
    weir_clock *clock = weir_clock_monotonic();
    int64_t start_ns = weir_clock_now_ns(clock), spent_ns = 0;
    while (spent_ns < WEIR_MS(least_ms) ||
           (atomic_load(&kept.count) < wanted && spent_ns < WEIR_SECONDS(20))) {
        pause_ms(1);
        spent_ns = weir_clock_now_ns(clock) - start_ns;
    }
}

typedef struct slow_task {
    weir_task task;
    int wanted;
    atomic_int runs;
} slow_task;

static int slow_run(weir_task *task)
{
    slow_task *self = WEIR_CONTAINER(task, slow_task, task);
    function_that_blocks_its_executor(100, self->wanted);
    atomic_fetch_add(&self->runs, 1);
    return 0;
}

#define SLOW_TASK(how_many)                                                                        \
    (slow_task)                                                                                    \
    {                                                                                              \
        .task = { .run = slow_run, .name = "slow task" }, .wanted = (how_many)                     \
    }

static void run_slow(weir_executor *executor, int wanted)
{
    slow_task slow = SLOW_TASK(wanted);
    assert_int_equal(weir_executor_post(executor, &slow.task), 0);
    WAIT_FOR(atomic_load(&slow.runs) == 1);
}

static const weir_group_config watched = { .count = 1,
                                           .name = "guarded",
                                           .watchdog_ns = WEIR_MS(LIMIT_MS) };

static void blocks_once(weir_group *group)
{
    reports_begin();
    run_slow(weir_group_at(group, 0), 1);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    assert_int_equal(atomic_load(&kept.others), 0);
    assert_told("guarded-0: blocked for ");
    assert_told(" ms in 'slow task', and nothing else runs:\n");
    assert_told("function_that_blocks_its_executor");
}

static void s070_slow_task_of_a_loop_is_reported_with_a_back_trace(void **state)
{
    (void)state;
    blocks_once(new_loops(&watched));
}

static void s070_slow_task_of_an_executor_is_reported_with_a_back_trace(void **state)
{
    (void)state;
    blocks_once(new_group(&watched));
}

/* One that goes on blocking is told about once; the time in the report is past the limit. */
static void s070_is_reported_once_per_task(void **state)
{
    (void)state;
    weir_group *group = new_loops(&watched);
    reports_begin();
    for (int i = 1; i <= 3; i++) {
        slow_task slow = SLOW_TASK(i);
        assert_int_equal(weir_executor_post(weir_group_at(group, 0), &slow.task), 0);
        WAIT_FOR(atomic_load(&slow.runs) == 1);
        assert_int_equal(atomic_load(&kept.count), i);
    }
    end_group(group);
    assert_int_equal(reports_end(), 3);
    int ms = 0;
    assert_int_equal(sscanf(strstr(kept.text, "blocked for ") + 12, "%d ms", &ms), 1);
    assert_in_range(ms, LIMIT_MS, 20000);
}

/* Two that are posted together, and between which it never sleeps. */
static void each_of_two_in_a_row_is_reported(void **state)
{
    (void)state;
    weir_group *group = new_group(&watched);
    slow_task first = SLOW_TASK(1), second = SLOW_TASK(2);
    second.task.name = "slow second task";
    reports_begin();
    blocker b;
    block(&b, weir_group_at(group, 0));
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &first.task), 0);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &second.task), 0);
    atomic_store(&b.may_end, true);
    end_group(group);
    assert_int_equal(reports_end(), 2);
    assert_told("'slow task'");
    assert_told("'slow second task'");
}

static int slow_fire(weir_timer *timer)
{
    (void)timer;
    function_that_blocks_its_executor(100, 1);
    return 0;
}

static void timers_name_is_told(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        weir_group *group = kind == 0 ? new_group(&watched) : new_loops(&watched);
        weir_executor *executor = weir_group_at(group, 0);
        weir_timer timer = { .fire = slow_fire, .name = "slow timer" };
        reports_begin();
        assert_int_equal(weir_timer_schedule(&timer, executor, 0), 0);
        WAIT_FOR(atomic_load(&kept.count) == 1);
        end_group(group);
        assert_int_equal(reports_end(), 1);
        assert_told("'slow timer'");
        assert_told("function_that_blocks_its_executor");
    }
}

static void block_in_ready(probe_watch *self)
{
    (void)self;
    function_that_blocks_its_executor(100, 1);
}

static void handler_of_an_event_is_reported(void **state)
{
    (void)state;
    weir_group *group = new_loops(&watched);
    test_pipe p = pipe_open();
    probe_watch w = PROBE_WATCH(1);
    w.then = block_in_ready;
    reports_begin();
    assert_int_equal(
        weir_watch_start(&w.watch, weir_group_loop_at(group, 0), p.in, WEIR_WATCH_READ), 0);
    pipe_put(&p, 1);
    WAIT_FOR(atomic_load(&kept.count) == 1);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    char text[64];
    snprintf(text, sizeof text, "in 'an event's handler' of descriptor %d, and", p.in);
    assert_told(text);
    assert_told("function_that_blocks_its_executor");
    assert_int_equal(atomic_load(&w.stops), 1);
    pipe_close(&p);
}

/* Handlers ------------------------------------------------------------------------------------ */

/* Which callback of which of two handlers blocks, and when. */
typedef enum blocking_at {
    FIRST_READ_BEFORE, /* the first handler, before it passes the message on */
    FIRST_READ_AFTER,
    SECOND_READ,
    SECOND_ACTIVE,
    FIRST_WRITE, /* inside the write of the second */
    FIRST_TIMER,
    PLACES,
} blocking_at;

typedef struct slow_pipeline {
    blocking_at at;
    atomic_int blocks; /* how often it was asked to; by both handlers' executors */
    weir_ctx_timer timer;
} slow_pipeline;

/* Returns something, so that no callback can leave the stack to it. */
static int block_if(weir_ctx *ctx, blocking_at at)
{
    slow_pipeline *self = weir_ctx_arg(ctx);
    if (self->at == at)
        function_that_blocks_its_executor(100, 1);
    return atomic_fetch_add(&self->blocks, 1);
}

static void first_on_read(weir_ctx *ctx, weir_msg *msg)
{
    block_if(ctx, FIRST_READ_BEFORE);
    weir_ctx_fire_read(ctx, msg);
    block_if(ctx, FIRST_READ_AFTER);
}

static void first_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    block_if(ctx, FIRST_WRITE);
    weir_ctx_write(ctx, msg, promise);
}

static void first_fire(weir_ctx_timer *timer, weir_ctx *ctx)
{
    (void)timer;
    block_if(ctx, FIRST_TIMER);
    weir_ctx_flush(ctx);
}

static void first_on_active(weir_ctx *ctx)
{
    slow_pipeline *self = weir_ctx_arg(ctx);
    self->timer.fire = first_fire;
    if (self->at == FIRST_TIMER)
        weir_ctx_schedule(ctx, &self->timer, 0);
    weir_ctx_fire_active(ctx);
}

static void second_on_active(weir_ctx *ctx)
{
    block_if(ctx, SECOND_ACTIVE);
    weir_ctx_fire_active(ctx);
}

static void second_on_read(weir_ctx *ctx, weir_msg *msg)
{
    block_if(ctx, SECOND_READ);
    weir_ctx_write(ctx, msg, NULL);
    weir_ctx_flush(ctx);
}

static const weir_handler_type first_slow = {
    .name = "slow first",
    .on_active = first_on_active,
    .on_read = first_on_read,
    .write = first_write,
};

static const weir_handler_type second_slow = {
    .name = "slow second",
    .on_active = second_on_active,
    .on_read = second_on_read,
};

/* A channel with both handlers on the group's loop; returns its peer. */
static int open_slow_channel(weir_group *group, slow_pipeline *slow, weir_channel **channel)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(weir_channel_from_descriptor(channel, WEIR_SOCKET_STREAM, fds[0], NULL), 0);
    weir_pipeline *pipeline = weir_channel_pipeline(*channel);
    assert_int_equal(weir_pipeline_add_last(pipeline, "a", &first_slow, slow), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "b", &second_slow, slow), 0);
    weir_channel_register(*channel, weir_group_at(group, 0), NULL);
    return fds[1];
}

static void handler_callback_and_channel_are_named(void **state)
{
    (void)state;
    static const char *const expected[PLACES] = {
        [FIRST_READ_BEFORE] = "in on_read of handler 'slow first' of channel %08llx, and",
        [FIRST_READ_AFTER] = "in on_read of handler 'slow first' of channel %08llx, and",
        [SECOND_READ] = "in on_read of handler 'slow second' of channel %08llx, and",
        [SECOND_ACTIVE] = "in on_active of handler 'slow second' of channel %08llx, and",
        [FIRST_WRITE] = "in write of handler 'slow first' of channel %08llx, and",
        [FIRST_TIMER] =
            "in 'slow first' of channel %08llx (handlers: slow first, slow second), and",
    };
    for (int i = 0; i < 2 * PLACES; i++) {
        weir_group_config config = watched;
        config.io = i < PLACES || !harness_has_uring() ? WEIR_IO_EPOLL : WEIR_IO_URING;
        slow_pipeline slow = { .at = (blocking_at)(i % PLACES) };
        weir_group *group = new_loops(&config);
        weir_channel *channel = NULL;
        char text[96], byte = 'x';
        reports_begin();
        int peer = open_slow_channel(group, &slow, &channel);
        assert_int_equal(write(peer, &byte, 1), 1);
        WAIT_FOR(atomic_load(&kept.count) == 1);
        assert_int_equal(read(peer, &byte, 1), 1); /* it goes on */
        snprintf(text, sizeof text, expected[i % PLACES],
                 (unsigned long long)weir_channel_id(channel));
        weir_channel_release(channel);
        end_group(group);
        assert_int_equal(reports_end(), 1);
        assert_told(text);
        assert_told("function_that_blocks_its_executor");
        close(peer);
    }
}

/* A call from another thread comes to the handler by the channel's inbox. */
static void handler_of_a_posted_call_is_named(void **state)
{
    (void)state;
    slow_pipeline slow = { .at = FIRST_WRITE };
    weir_group *group = new_loops(&watched);
    weir_channel *channel = NULL;
    char text[96], byte = 0;
    reports_begin();
    int peer = open_slow_channel(group, &slow, &channel);
    settle(weir_group_at(group, 0));
    weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("x", 1)), NULL);
    WAIT_FOR(atomic_load(&kept.count) == 1);
    assert_int_equal(read(peer, &byte, 1), 1);
    snprintf(text, sizeof text, "in write of handler 'slow first' of channel %08llx, and",
             (unsigned long long)weir_channel_id(channel));
    weir_channel_release(channel);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    assert_told(text);
    close(peer);
}

static void offloaded_handler_callback_and_channel_are_named(void **state)
{
    (void)state;
    static const struct {
        blocking_at at;
        const char *text;
    } cases[] = {
        { FIRST_READ_BEFORE, "in on_read of handler 'slow first' of channel %08llx, and" },
        { FIRST_WRITE, "in write of handler 'slow first' of channel %08llx, and" },
        { FIRST_TIMER, "in 'slow first' of channel %08llx (handlers: slow first), and" },
    };
    for (int i = 0; i < 3; i++) {
        slow_pipeline slow = { .at = cases[i].at };
        weir_group *loops = new_loops(&(weir_group_config){ .count = 1 }), *others = NULL;
        assert_int_equal(weir_group_new_executors(&others, &watched, NULL), 0);
        weir_channel *channel = NULL;
        int fds[2];
        char text[96], byte = 'x';
        reports_begin();
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        assert_int_equal(weir_channel_from_descriptor(&channel, WEIR_SOCKET_STREAM, fds[0], NULL),
                         0);
        weir_pipeline *pipeline = weir_channel_pipeline(channel);
        weir_handler_config config = { .type = &first_slow, .name = "a", .arg = &slow };
        config.place = WEIR_PLACE_LAST;
        config.group = others;
        assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), 0);
        assert_int_equal(weir_pipeline_add_last(pipeline, "b", &second_slow, &slow), 0);
        weir_channel_register(channel, weir_group_at(loops, 0), NULL);
        assert_int_equal(write(fds[1], &byte, 1), 1);
        WAIT_FOR(atomic_load(&kept.count) == 1);
        assert_int_equal(read(fds[1], &byte, 1), 1); /* it goes on */
        snprintf(text, sizeof text, cases[i].text, (unsigned long long)weir_channel_id(channel));
        weir_channel_release(channel);
        end_group(loops);
        end_group(others);
        assert_int_equal(reports_end(), 1);
        assert_told(text);
        close(fds[1]);
    }
}

/* Who is not reported ------------------------------------------------------------------------- */

typedef struct quick_task {
    weir_task task;
    weir_executor *executor;
    int64_t until_ns;
    int64_t last_ns, longest_ns; /* between two runs: a busy machine keeps it from running */
    atomic_bool is_over;
} quick_task;

static int quick_run(weir_task *task)
{
    quick_task *self = WEIR_CONTAINER(task, quick_task, task);
    int64_t now_ns = weir_clock_now_ns(weir_clock_monotonic());
    if (self->last_ns > 0 && now_ns - self->last_ns > self->longest_ns)
        self->longest_ns = now_ns - self->last_ns;
    self->last_ns = now_ns;
    if (now_ns < self->until_ns)
        return weir_executor_post(self->executor, task);
    atomic_store(&self->is_over, true);
    return 0;
}

/* How many reports there were of an executor that was busy for three times the limit, but never
 * with the same task; negative when the machine itself kept it from running for so long. */
static int report_quick_tasks(bool is_loop)
{
    weir_group_config config = { .count = 1, .watchdog_ns = WEIR_MS(PATIENT_MS) };
    weir_group *group = is_loop ? new_loops(&config) : new_group(&config);
    quick_task quick = { .task = { .run = quick_run },
                         .executor = weir_group_at(group, 0),
                         .until_ns = weir_clock_now_ns(weir_clock_monotonic()) +
                                     WEIR_MS(3 * PATIENT_MS) };
    reports_begin();
    assert_int_equal(weir_executor_post(quick.executor, &quick.task), 0);
    WAIT_FOR(atomic_load(&quick.is_over));
    end_group(group);
    int count = reports_end() + atomic_load(&kept.strays);
    return quick.longest_ns < WEIR_MS(PATIENT_MS) ? count : -1;
}

static void quick_one_is_never_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        int count = -1;
        for (int i = 0; i < 20 && count < 0; i++)
            count = report_quick_tasks(kind == 1);
        assert_int_equal(count, 0);
    }
}

static void idle_one_is_never_reported(void **state)
{
    (void)state;
    weir_group_config config = { .count = 1, .watchdog_ns = WEIR_MS(PATIENT_MS) };
    weir_group *loops = new_loops(&config), *group = new_group(&config);
    reports_begin();
    settle(weir_group_at(loops, 0));
    settle(weir_group_at(group, 0));
    pause_ms(3 * PATIENT_MS); /* nothing happens, and that is the subject */
    end_group(loops);
    end_group(group);
    assert_int_equal(reports_end() + atomic_load(&kept.strays), 0);
}

/* A clock that takes its time on the loop's thread, between two callbacks: so does a thread that
 * waits for a processor. */
typedef struct slow_clock {
    weir_clock clock;
    atomic_int tid; /* of the thread that is held up; 0: none */
    atomic_int delays;
} slow_clock;

static int64_t slow_now(weir_clock *clock)
{
    slow_clock *self = WEIR_CONTAINER(clock, slow_clock, clock);
    if (atomic_load(&self->tid) == (int)gettid()) {
        atomic_store(&self->tid, 0);
        pause_ms(4 * LIMIT_MS);
        atomic_fetch_add(&self->delays, 1);
    }
    return weir_clock_now_ns(weir_clock_monotonic());
}

static void time_between_callbacks_is_not_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        slow_clock clock = { .clock = { .now_ns = slow_now } };
        weir_group_config config = watched;
        config.clock = &clock.clock;
        weir_group *group = kind == 0 ? new_group(&config) : new_loops(&config);
        reports_begin();
        int tid = tid_on(weir_group_at(group, 0));
        atomic_store(&clock.tid, tid);
        probe_timer timer = PROBE_TIMER; /* by which it reads the clock */
        assert_int_equal(weir_timer_schedule(&timer.timer, weir_group_at(group, 0), 0), 0);
        WAIT_FOR(atomic_load(&clock.delays) == 1);
        WAIT_FOR(atomic_load(&timer.fires) == 1);
        end_group(group);
        assert_int_equal(reports_end() + atomic_load(&kept.strays), 0);
    }
}

static void only_the_slow_one_of_two_is_reported(void **state)
{
    (void)state;
    weir_group_config config = watched;
    config.count = 2;
    config.watchdog_ns = WEIR_MS(PATIENT_MS);
    weir_group *group = new_loops(&config);
    reports_begin();
    settle(weir_group_at(group, 0));
    run_slow(weir_group_at(group, 1), 1);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    assert_told("guarded-1: ");
    assert_int_equal(atomic_load(&kept.strays), 0);
}

/* The signal ---------------------------------------------------------------------------------- */

static atomic_int own_calls;

static void own_handler(int number)
{
    (void)number;
    atomic_fetch_add(&own_calls, 1);
}

static void program_keeps_its_own_handler(void **state)
{
    (void)state;
    struct sigaction own = { .sa_handler = own_handler }, before, after;
    assert_int_equal(sigaction(SIGURG, &own, &before), 0);
    atomic_store(&own_calls, 0);
    weir_group *group = new_loops(&watched);
    reports_begin();
    run_slow(weir_group_at(group, 0), 1);
    assert_int_equal(sigaction(SIGURG, NULL, &after), 0);
    assert_ptr_equal(after.sa_handler, own_handler);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    assert_told(
        " ms in 'slow task', and nothing else runs (no back trace: the program has a SIGURG");
    assert_null(strstr(kept.text, "function_that_blocks_its_executor"));
    assert_told("no back trace");
    assert_int_equal(sigaction(SIGURG, &before, &after), 0);
    assert_ptr_equal(after.sa_handler, own_handler);
    assert_int_equal(atomic_load(&own_calls), 0);
}

/* The handler came when the watchdog ran already. */
static void handler_that_a_program_installs_later_is_not_called(void **state)
{
    (void)state;
    struct sigaction own = { .sa_handler = own_handler }, before, after;
    weir_group *group = new_loops(&watched);
    reports_begin();
    settle(weir_group_at(group, 0));
    atomic_store(&own_calls, 0);
    assert_int_equal(sigaction(SIGURG, &own, &before), 0);
    run_slow(weir_group_at(group, 0), 1);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    assert_told("(no back trace: the program has a SIGURG handler of its own)");
    assert_int_equal(sigaction(SIGURG, NULL, &after), 0);
    assert_ptr_equal(after.sa_handler, own_handler);
    assert_int_equal(atomic_load(&own_calls), 0);
    signal(SIGURG, SIG_DFL);
}

static int slow_run_without_signals(weir_task *task)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = slow_run(task);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* A late trace is not attributed to a SIGURG handler of the program, which has none. */
static void thread_that_blocks_the_signal_is_reported_as_such(void **state)
{
    (void)state;
    weir_group *group = new_loops(&watched);
    slow_task slow = SLOW_TASK(1);
    slow.task.run = slow_run_without_signals;
    reports_begin();
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &slow.task), 0);
    WAIT_FOR(atomic_load(&slow.runs) == 1);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    assert_told("in 'slow task', and nothing else runs (no back trace: its thread has not run");
}

static void what_the_signal_did_before_it_does_again(void **state)
{
    (void)state;
    struct sigaction wanted = { .sa_handler = SIG_IGN }, before, now;
    assert_int_equal(sigaction(SIGURG, &wanted, &before), 0);
    for (int i = 0; i < 2; i++) {
        weir_group *group = new_loops(&watched);
        reports_begin();
        run_slow(weir_group_at(group, 0), 1);
        assert_int_equal(sigaction(SIGURG, NULL, &now), 0);
        assert_ptr_not_equal(now.sa_handler, SIG_IGN);
        end_group(group);
        assert_int_equal(reports_end(), 1);
        assert_told("function_that_blocks_its_executor");
        assert_int_equal(sigaction(SIGURG, NULL, &now), 0);
        assert_ptr_equal(now.sa_handler, SIG_IGN);
    }
    assert_int_equal(sigaction(SIGURG, &before, NULL), 0);
}

/* The thread ---------------------------------------------------------------------------------- */

static void watchdog_that_is_off_has_no_thread(void **state)
{
    (void)state;
    weir_group_config config = { .count = 1, .watchdog_ns = WEIR_OFF };
    size_t before = count_threads();
    weir_group *loops = new_loops(&config), *group = new_group(&config);
    reports_begin();
    settle(weir_group_at(loops, 0));
    settle(weir_group_at(group, 0));
    assert_int_equal(count_threads(), before + 2);
    end_group(loops);
    end_group(group);
    assert_int_equal(reports_end(), 0);
}

static void by_default_loops_are_watched_and_executors_are_not(void **state)
{
    (void)state;
    size_t before = count_threads();
    weir_group *group = new_group_of(1);
    settle(weir_group_at(group, 0));
    assert_int_equal(count_threads(), before + 1);
    weir_group *loops = new_loops_of(1);
    settle(weir_group_at(loops, 0));
    assert_int_equal(count_threads(), before + 3);
    end_group(loops);
    end_group(group);
}

/* A joined thread may stay in the list for a moment while the kernel ends it. */
static void all_share_a_thread_that_ends_with_the_last(void **state)
{
    (void)state;
    size_t before = count_threads();
    weir_group *group = new_group(&watched), *loops = new_loops(&watched);
    assert_int_equal(count_threads(), before);
    for (int round = 0; round < 2; round++) {
        settle(weir_group_at(group, 0));
        assert_int_equal(count_threads(), before + 2);
        settle(weir_group_at(loops, 0));
        assert_int_equal(count_threads(), before + 3);
        end_group(group);
        WAIT_FOR(count_threads() == before + 2);
        settle(weir_group_at(loops, 0));
        /* It still watches. */
        reports_begin();
        run_slow(weir_group_at(loops, 0), 1);
        assert_int_equal(reports_end(), 1);
        end_group(loops);
        WAIT_FOR(count_threads() == before);
        group = new_group(&watched);
        loops = new_loops(&watched);
    }
    end_group(group);
    end_group(loops);
}

/* Executors that come and go all the time, several at once. */
static void *make_and_end(void *arg)
{
    for (int i = 0; i < 50; i++) {
        weir_group *group = NULL;
        weir_group_config config = { .count = 2, .watchdog_ns = WEIR_MS(1000) };
        if (weir_group_new_executors(&group, &config, NULL) < 0)
            continue;
        settle(weir_group_at(group, 0));
        settle(weir_group_at(group, 1));
        weir_group_shutdown(group, 0, WEIR_SECONDS(1));
        weir_group_free(group);
        atomic_fetch_add((atomic_int *)arg, 1);
    }
    return NULL;
}

static void watched_ones_come_and_go(void **state)
{
    (void)state;
    atomic_int rounds = 0;
    pthread_t threads[3];
    reports_begin();
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_end, &rounds), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&rounds), 150);
    reports_end();
}

/* Without a thread of its own it is missing, and that is told; the next executor brings it. */
static void executor_runs_though_the_watchdog_cannot(void **state)
{
    (void)state;
    struct sigaction before, after;
    assert_int_equal(sigaction(SIGURG, NULL, &before), 0);
    weir_group_config config = watched;
    config.count = 2;
    weir_group *group = new_group(&config);
    probe p = PROBE;
    reports_begin();
    harness_fail_nth("pthread_create", 2, -EAGAIN);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &p.task), 0);
    WAIT_FOR(atomic_load(&p.runs) == 1);
    assert_int_equal(harness_fail_end(), 2);
    assert_int_equal(atomic_load(&kept.others), 1);
    run_slow(weir_group_at(group, 1), 1);
    end_group(group);
    assert_int_equal(reports_end(), 1);
    assert_told("runs without a watchdog");
    assert_told("guarded-1: blocked for ");
    assert_told("'slow task'");
    assert_told("function_that_blocks_its_executor");
    assert_int_equal(sigaction(SIGURG, NULL, &after), 0);
    sigaction(SIGURG, &before, NULL);
    assert_ptr_equal(after.sa_handler, before.sa_handler);
}

static void bad_limit_is_refused_by_name(void **state)
{
    (void)state;
    weir_error error = { 0 };
    weir_group *group = NULL;
    weir_group_config config = { .count = 1, .watchdog_ns = -33 };
    assert_int_equal(weir_group_new(&group, &config, &error), -EINVAL);
    assert_non_null(strstr(error.message, "-33"));
    assert_int_equal(weir_group_new_executors(&group, &config, &error), -EINVAL);
    assert_null(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s070_slow_task_of_a_loop_is_reported_with_a_back_trace),
        weir_case(s070_slow_task_of_an_executor_is_reported_with_a_back_trace),
        weir_case(s070_is_reported_once_per_task),
        weir_case(each_of_two_in_a_row_is_reported),
        weir_case(timers_name_is_told),
        weir_case(handler_of_an_event_is_reported),
        weir_case(handler_callback_and_channel_are_named),
        weir_case(handler_of_a_posted_call_is_named),
        weir_case(offloaded_handler_callback_and_channel_are_named),
        weir_case(time_between_callbacks_is_not_reported),
        weir_case(quick_one_is_never_reported),
        weir_case(idle_one_is_never_reported),
        weir_case(only_the_slow_one_of_two_is_reported),
        weir_case(program_keeps_its_own_handler),
        weir_case(handler_that_a_program_installs_later_is_not_called),
        weir_case(thread_that_blocks_the_signal_is_reported_as_such),
        weir_case(what_the_signal_did_before_it_does_again),
        weir_case(watchdog_that_is_off_has_no_thread),
        weir_case(by_default_loops_are_watched_and_executors_are_not),
        weir_case(all_share_a_thread_that_ends_with_the_last),
        weir_case(watched_ones_come_and_go),
        weir_case(executor_runs_though_the_watchdog_cannot),
        weir_case(bad_limit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
