/* SPDX-License-Identifier: MIT */
/* Event loops that sleep and are woken, over real epoll. Every interleaving of the protocol itself
 * is walked by exec/test_wake_walk. */
#include "loops.h"

#include "exec/lifecycle.h"

#include <semaphore.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>

/* How much of something that takes as long as it is much. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(WEIR_DEBUG)
#define IS_SLOW 1
#else
#define IS_SLOW 0
#endif

/* A loop has no timers here and waits for ever, so a wake-up that gets lost is never made up for:
 * it shows as a wait without end, however slow the machine is. */
#define STALL_SECONDS 20

static int64_t clock_ns(void)
{
    return weir_clock_now_ns(weir_clock_monotonic());
}

static void pause_ns(int64_t ns)
{
    nanosleep(&(struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 }, NULL);
}

static void spin_ns(int64_t ns)
{
    for (int64_t end_ns = clock_ns() + ns; clock_ns() < end_ns;) {
    }
}

/* A loop of its own, whose system calls are counted by the fault hook. */
typedef struct bench {
    weir_group *group;
    weir_loop *loop;
    weir_executor *executor;
} bench;

static atomic_int write_calls, all_calls;

static int count_calls(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    if (strcmp(call, "write") == 0)
        atomic_fetch_add(&write_calls, 1);
    if (strcmp(call, "alloc") != 0 && strcmp(call, "pool") != 0)
        atomic_fetch_add(&all_calls, 1);
    return 0;
}

static bench begin(const weir_group_config *config)
{
    weir_group_config own = *config;
    own.loops = 1;
    bench b = { .group = new_loops(&own) };
    b.loop = weir_group_loop_at(b.group, 0);
    b.executor = weir_loop_executor(b.loop);
    atomic_store(&write_calls, 0);
    atomic_store(&all_calls, 0);
    weir_fault_set(count_calls, NULL);
    return b;
}

static void end(bench *b)
{
    end_group(b->group);
    weir_fault_set(NULL, NULL);
}

static uint64_t wakeups_of(const bench *b)
{
    return loop_stats_of(b->loop).wakeups;
}

/* What the kernel says about a thread. */
static void read_about(int tid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, file);
    FILE *stream = fopen(path, "re");
    assert_non_null(stream);
    text[fread(text, 1, size - 1, stream)] = '\0';
    fclose(stream);
}

/* Whether it is blocked in a system call: the state stands behind the name. */
static bool is_blocked(int tid)
{
    char text[512];
    read_about(tid, "stat", text, sizeof text);
    const char *after_name = strrchr(text, ')');
    return after_name != NULL && after_name[1] == ' ' && after_name[2] == 'S';
}

static void wait_until_blocked(const bench *b, int tid)
{
    WAIT_FOR(weir__executor_is_asleep(b->executor) && is_blocked(tid));
}

/* A backend that watches its loop: epoll, with something in between -----------------------------
 */

enum { TIMEOUTS = 8 };

typedef struct spy {
    weir_io_source source;
    const weir_io_type *inner;
    weir_io_type type;
    int64_t timeouts_ns[TIMEOUTS]; /* of the first polls */
    atomic_int polls, wakes;
    atomic_bool holds;        /* the next poll that would wait, before it does */
    atomic_bool is_held;      /* and it is there */
    struct late_caller *late; /* what happens between the loop's two looks at its queues, once */
} spy;

static spy *spied; /* a backend does not know its source */

static void expect_late_call(void);

static int spy_poll(weir_io *io, int64_t timeout_ns)
{
    int at = atomic_load(&spied->polls);
    if (at < TIMEOUTS)
        spied->timeouts_ns[at] = timeout_ns;
    atomic_fetch_add(&spied->polls, 1);
    if (timeout_ns != 0 && atomic_load(&spied->holds)) {
        atomic_store(&spied->is_held, true);
        WAIT_FOR(!atomic_load(&spied->holds));
        atomic_store(&spied->is_held, false);
    }
    return spied->inner->poll(io, timeout_ns);
}

static void spy_wake(weir_io *io)
{
    atomic_fetch_add(&spied->wakes, 1);
    spied->inner->wake(io);
}

/* The loop's first look for something to do begins with this question, and its second one follows
 * after it has asked for the time: see late_now_ns. */
static bool spy_has_results(const weir_io *io)
{
    expect_late_call();
    return spied->inner->has_results(io);
}

static int spy_open(weir_io_source *source, weir_sys *sys, weir_io_counters *counters, weir_io **io)
{
    (void)source;
    int code = weir__epoll_open(sys, counters, io);
    if (code < 0)
        return code;
    spied->inner = (*io)->type;
    spied->type = *spied->inner;
    spied->type.poll = spy_poll;
    spied->type.wake = spy_wake;
    spied->type.has_results = spy_has_results;
    (*io)->type = &spied->type;
    return 0;
}

static bench begin_spied(spy *s)
{
    *s = (spy){ .source = { .name = "spied epoll", .open = spy_open } };
    spied = s;
    return begin(&(weir_group_config){ .io_source = &s->source });
}

static void let_go(spy *s)
{
    atomic_store(&s->holds, false);
}

/* Has the loop stop between saying that it sleeps and waiting. It may get there before the wake-up
 * does, and counts as woken then: once more. */
static void hold(spy *s, const bench *b)
{
    for (;;) {
        atomic_store(&s->holds, true);
        weir_executor_wake(b->executor);
        WAIT_FOR(atomic_load(&s->is_held));
        if (weir__executor_is_asleep(b->executor))
            return;
        let_go(s);
        WAIT_FOR(!atomic_load(&s->is_held));
    }
}

/* A task that tells when it ran ---------------------------------------------------------------- */

typedef struct timed_task {
    weir_task task;
    int64_t posted_ns, ran_ns;
    int64_t busy_ns; /* what it takes */
    sem_t done;
} timed_task;

static int timed_run(weir_task *task)
{
    timed_task *self = WEIR_CONTAINER(task, timed_task, task);
    self->ran_ns = clock_ns();
    if (self->busy_ns > 0)
        spin_ns(self->busy_ns);
    sem_post(&self->done);
    return 0;
}

static void timed_init(timed_task *self)
{
    *self = (timed_task){ .task = { .run = timed_run, .name = "timed" } };
    sem_init(&self->done, 0, 0);
}

/* How long it took from the post until it ran. */
static int64_t timed_await(timed_task *self)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STALL_SECONDS;
    int result;
    while ((result = sem_timedwait(&self->done, &until)) != 0 && errno == EINTR) {
    }
    if (result != 0)
        fail_msg("a task has been waiting for %d s: a wake-up was lost", STALL_SECONDS);
    return self->ran_ns - self->posted_ns;
}

static int64_t timed_post(timed_task *self, weir_executor *executor)
{
    self->posted_ns = clock_ns();
    assert_int_equal(weir_executor_post(executor, &self->task), 0);
    return timed_await(self);
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* So many of a thousand are at most as large. */
static int64_t permille(int64_t *times, size_t count, size_t share)
{
    qsort(times, count, sizeof *times, compare_times);
    return times[(count - 1) * share / 1000];
}

/* Starting ------------------------------------------------------------------------------------- */

typedef struct poster {
    weir_executor *executor;
    pthread_barrier_t *barrier;
    probe probe;
    int code;
} poster;

static void *post_at_once(void *arg)
{
    poster *self = arg;
    pthread_barrier_wait(self->barrier);
    self->code = weir_executor_post(self->executor, &self->probe.task);
    return NULL;
}

static void s026_sixty_four_threads_start_one_loop(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    static poster posters[COUNT];
    starter hook = { .code = 0 };
    bench b = begin(&(weir_group_config){ .start = starter_start, .start_arg = &hook });
    pthread_t threads[COUNT];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, COUNT);
    for (int i = 0; i < COUNT; i++) {
        posters[i] = (poster){ b.executor, &barrier, PROBE, 1 };
        assert_int_equal(pthread_create(&threads[i], NULL, post_at_once, &posters[i]), 0);
    }
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    end(&b);
    starter_join(&hook);
    assert_int_equal(atomic_load(&hook.calls), 1);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(posters[i].code, 0);
        assert_int_equal(atomic_load(&posters[i].probe.runs), 1);
    }
}

/* Starts the thread though there is no task: one would keep the first poll from waiting, too. */
static void start_without_task(const bench *b)
{
    assert_int_equal(weir__executor_start(b->executor, &b->executor->tasks, NULL), 0);
}

static void s031_wake_up_before_the_start_is_not_forgotten(void **state)
{
    (void)state;
    for (int wakes = 0; wakes < 3; wakes++) {
        spy s;
        bench b = begin_spied(&s);
        for (int i = 0; i < wakes; i++)
            weir_executor_wake(b.executor);
        start_without_task(&b);
        WAIT_FOR(atomic_load(&s.polls) > (wakes > 0));
        WAIT_FOR(weir__executor_is_asleep(b.executor));
        assert_int_equal(s.timeouts_ns[0], wakes > 0 ? 0 : -1);
        if (wakes > 0)
            assert_int_equal(s.timeouts_ns[1], -1);
        assert_int_equal(atomic_load(&write_calls), 0);
        end(&b);
    }
}

static void s031_wake_up_before_a_step_ends_its_wait(void **state)
{
    (void)state;
    weir_group *group = new_loops(&(weir_group_config){ .loops = 1, .is_manual = true });
    weir_loop *loop = weir_group_loop_at(group, 0);
    for (int i = 0; i < 10; i++) {
        weir_executor_wake(weir_loop_executor(loop));
        assert_int_equal(weir_loop_run_once(loop, -1), 0); /* or hangs */
    }
    end_group(group);
}

/* Posting -------------------------------------------------------------------------------------- */

typedef struct inside {
    bench *b;
    probe probes[100];
    uint64_t wakeups;
    int writes;
} inside;

static int post_inside(void *arg)
{
    inside *self = arg;
    uint64_t wakeups = wakeups_of(self->b);
    int writes = atomic_load(&write_calls);
    for (int i = 0; i < 100; i++) {
        self->probes[i] = (probe)PROBE;
        if (weir_executor_post(self->b->executor, &self->probes[i].task) != 0)
            return -1;
    }
    self->wakeups = wakeups_of(self->b) - wakeups;
    self->writes = atomic_load(&write_calls) - writes;
    return 0;
}

static void s052_post_from_inside_wakes_nobody(void **state)
{
    (void)state;
    bench b = begin(&(weir_group_config){ 0 });
    int tid = tid_on(b.executor);
    inside i = { .b = &b };
    wait_until_blocked(&b, tid);
    int writes = atomic_load(&write_calls);
    assert_int_equal(call_on(b.executor, post_inside, &i), 0);
    WAIT_FOR(atomic_load(&i.probes[99].runs) == 1);
    wait_until_blocked(&b, tid);
    assert_int_equal(i.wakeups, 0);
    assert_int_equal(i.writes, 0);
    assert_int_equal(atomic_load(&write_calls), writes + 1); /* for the call itself */
    for (int j = 0; j < 100; j++)
        assert_int_equal(atomic_load(&i.probes[j].runs), 1);
    end(&b);
}

static void s053_post_to_an_idle_loop_takes_microseconds(void **state)
{
    (void)state;
    /* A machine that is busy with something else can keep any thread waiting for a while: of so
     * many rounds one has to be undisturbed. A wait for some timeout would be in all of them. */
    enum { COUNT = 2000, ROUNDS = 10 };
    static int64_t times[COUNT];
    bench b = begin(&(weir_group_config){ 0 });
    int tid = tid_on(b.executor);
    timed_task task;
    int64_t p99_ns = INT64_MAX;
    timed_init(&task);
    for (int round = 0; round < ROUNDS && p99_ns >= WEIR_MS(1); round++) {
        for (int i = 0; i < COUNT; i++) {
            wait_until_blocked(&b, tid);
            times[i] = timed_post(&task, b.executor);
        }
        p99_ns = permille(times, COUNT, 990);
        print_message("             half within %lld us, 99 of 100 within %lld us\n",
                      (long long)times[COUNT / 2] / 1000, (long long)p99_ns / 1000);
    }
    assert_true(p99_ns < WEIR_MS(1));
    end(&b);
    sem_destroy(&task.done);
}

static void s054_loop_is_woken_by_a_descriptor(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    bench b = begin(&(weir_group_config){ 0 });
    int tid = tid_on(b.executor);
    timed_task task;
    timed_init(&task);
    wait_until_blocked(&b, tid);
    int writes = atomic_load(&write_calls);
    uint64_t wakeups = wakeups_of(&b);
    for (int i = 0; i < COUNT; i++) {
        wait_until_blocked(&b, tid);
        timed_post(&task, b.executor);
    }
    assert_int_equal(atomic_load(&write_calls), writes + COUNT);
    assert_int_equal(wakeups_of(&b), wakeups + COUNT);
    end(&b);
    sem_destroy(&task.done);
}

static void s054_plain_executor_is_woken_without(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    weir_group *group = new_group_of(1);
    weir_executor *executor = weir_group_at(group, 0);
    timed_task task;
    timed_init(&task);
    weir_fault_set(count_calls, NULL);
    timed_post(&task, executor);
    uint64_t wakeups = stats_of(executor).wakeups;
    int calls = atomic_load(&all_calls);
    for (int i = 0; i < COUNT; i++) {
        WAIT_FOR(weir__executor_is_asleep(executor));
        timed_post(&task, executor);
    }
    assert_int_equal(stats_of(executor).wakeups, wakeups + COUNT);
    assert_int_equal(atomic_load(&all_calls), calls);
    end_group(group);
    weir_fault_set(NULL, NULL);
    sem_destroy(&task.done);
}

static void s055_lazy_task_waits_for_the_next_timer(void **state)
{
    (void)state;
    bench b = begin(&(weir_group_config){ 0 });
    int tid = tid_on(b.executor);
    probe_timer timer = PROBE_TIMER;
    timed_task task;
    timed_init(&task);
    int64_t due_ns = clock_ns() + WEIR_MS(300);
    assert_int_equal(weir_timer_schedule(&timer.timer, b.executor, WEIR_MS(300)), 0);
    WAIT_FOR(stats_of(b.executor).timers == 1);
    wait_until_blocked(&b, tid);
    uint64_t wakeups = wakeups_of(&b);
    task.posted_ns = clock_ns();
    assert_int_equal(weir_executor_post_lazy(b.executor, &task.task), 0);
    timed_await(&task);
    if (task.posted_ns < due_ns) /* else this thread was kept from posting in time */
        assert_true(task.ran_ns >= due_ns);
    assert_int_equal(wakeups_of(&b), wakeups);
    WAIT_FOR(atomic_load(&timer.fires) == 1);
    end(&b);
    sem_destroy(&task.done);
}

static void s055_lazy_task_runs_with_the_next_one(void **state)
{
    (void)state;
    bench b = begin(&(weir_group_config){ 0 });
    int tid = tid_on(b.executor);
    probe lazy = PROBE;
    wait_until_blocked(&b, tid);
    uint64_t wakeups = wakeups_of(&b);
    assert_int_equal(weir_executor_post_lazy(b.executor, &lazy.task), 0);
    pause_ns(WEIR_MS(50));
    assert_int_equal(atomic_load(&lazy.runs), 0);
    assert_int_equal(wakeups_of(&b), wakeups);
    settle(b.executor);
    assert_int_equal(atomic_load(&lazy.runs), 1);
    end(&b);
}

static void s064_tail_task_alone_runs_at_once(void **state)
{
    (void)state;
    spy s;
    bench b = begin_spied(&s);
    int tid = tid_on(b.executor);
    timed_task task;
    timed_init(&task);
    for (int i = 0; i < 100; i++) {
        if (i % 2 == 0)
            wait_until_blocked(&b, tid);
        else
            hold(&s, &b);
        assert_int_equal(weir_executor_post_tail(b.executor, &task.task), 0);
        let_go(&s);
        timed_await(&task);
    }
    end(&b);
    sem_destroy(&task.done);
}

/* A task that tells after how many polls it ran. */
typedef struct counted_task {
    weir_task task;
    int polls;
    sem_t done;
} counted_task;

static int counted_run(weir_task *task)
{
    counted_task *self = WEIR_CONTAINER(task, counted_task, task);
    self->polls = atomic_load(&spied->polls);
    sem_post(&self->done);
    return 0;
}

/* It runs in the turn of that very poll, which without the task would wait for ever. */
static void s059_task_that_comes_right_before_the_poll_ends_it(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    spy s;
    bench b = begin_spied(&s);
    counted_task task = { .task.run = counted_run };
    sem_init(&task.done, 0, 0);
    settle(b.executor);
    for (int i = 0; i < COUNT; i++) {
        hold(&s, &b); /* it has looked for tasks, and is about to wait */
        assert_true(weir__executor_is_asleep(b.executor));
        int wakes = atomic_load(&s.wakes), polls = atomic_load(&s.polls);
        assert_int_equal(weir_executor_post(b.executor, &task.task), 0);
        assert_int_equal(atomic_load(&s.wakes), wakes + 1);
        let_go(&s);
        while (sem_wait(&task.done) != 0) {
        }
        assert_int_equal(task.polls, polls);
    }
    end(&b);
    sem_destroy(&task.done);
}

/* Bursts --------------------------------------------------------------------------------------- */

static int count_one(void *arg)
{
    atomic_fetch_add_explicit((atomic_int *)arg, 1, memory_order_relaxed);
    return 0;
}

enum { BURST = 100000 };

static void execute_burst(const bench *b, atomic_int *calls)
{
    for (int i = 0; i < BURST; i++)
        assert_int_equal(weir_executor_execute(b->executor, count_one, calls), 0);
}

static void s057_burst_wakes_once(void **state)
{
    (void)state;
    spy s;
    bench b = begin_spied(&s);
    atomic_int calls = 0;
    settle(b.executor);
    hold(&s, &b);
    int writes = atomic_load(&write_calls);
    uint64_t wakeups = wakeups_of(&b);
    execute_burst(&b, &calls);
    assert_int_equal(atomic_load(&write_calls), writes + 1);
    assert_int_equal(wakeups_of(&b), wakeups + 1);
    let_go(&s);
    end(&b);
    assert_int_equal(atomic_load(&calls), BURST);
}

static void s057_burst_to_a_busy_loop_wakes_nobody(void **state)
{
    (void)state;
    bench b = begin(&(weir_group_config){ .watchdog_ns = WEIR_OFF });
    atomic_int calls = 0;
    blocker busy;
    block(&busy, b.executor);
    int writes = atomic_load(&write_calls);
    execute_burst(&b, &calls);
    assert_int_equal(atomic_load(&write_calls), writes);
    unblock(&busy);
    end(&b);
    assert_int_equal(atomic_load(&calls), BURST);
}

/* How often depends on who is faster; but a loop that is behind is not woken for every task. */
static void s057_burst_to_a_loop_that_runs_wakes_seldom(void **state)
{
    (void)state;
    bench b = begin(&(weir_group_config){ 0 });
    atomic_int calls = 0;
    settle(b.executor);
    execute_burst(&b, &calls);
    WAIT_FOR(atomic_load(&calls) == BURST);
    print_message("             %d writes for %d tasks\n", atomic_load(&write_calls), BURST);
    assert_int_equal(atomic_load(&write_calls), wakeups_of(&b));
    assert_true(atomic_load(&write_calls) < BURST / 4);
    end(&b);
}

/* No task is lost ------------------------------------------------------------------------------ */

typedef struct numbered {
    weir_task task;
    struct summer *summer;
    uint64_t number;
    atomic_bool is_posted;
} numbered;

enum { PRODUCERS = 8, RING = 1024 };

typedef struct summer {
    weir_executor *executor;
    uint64_t per_producer;
    uint64_t count, sum; /* the loop's */
    numbered rings[PRODUCERS][RING];
    atomic_int next_producer, failures;
} summer;

static int add_number(weir_task *task)
{
    numbered *self = WEIR_CONTAINER(task, numbered, task);
    self->summer->count++;
    self->summer->sum += self->number;
    atomic_store_explicit(&self->is_posted, false, memory_order_release);
    return 0;
}

static void *post_numbers(void *arg)
{
    summer *self = arg;
    numbered *ring = self->rings[atomic_fetch_add(&self->next_producer, 1)];
    for (uint64_t i = 0; i < self->per_producer; i++) {
        numbered *one = &ring[i % RING];
        WAIT_FOR(!atomic_load_explicit(&one->is_posted, memory_order_acquire));
        atomic_store_explicit(&one->is_posted, true, memory_order_relaxed);
        one->task = (weir_task){ .run = add_number, .name = "number" };
        one->summer = self;
        one->number = i + 1;
        if (weir_executor_post(self->executor, &one->task) != 0)
            atomic_fetch_add(&self->failures, 1);
    }
    return NULL;
}

static void s047_no_task_of_eight_producers_is_lost(void **state)
{
    (void)state;
    static summer s;
    bench b = begin(&(weir_group_config){ 0 });
    weir_fault_set(NULL, NULL);
    memset(&s, 0, sizeof s);
    s.executor = b.executor;
    s.per_producer = IS_SLOW ? 50000 : 1000000;
    pthread_t threads[PRODUCERS];
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_numbers, &s), 0);
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    end(&b);
    assert_int_equal(atomic_load(&s.failures), 0);
    assert_int_equal(s.count, PRODUCERS * s.per_producer);
    assert_int_equal(s.sum, PRODUCERS * (s.per_producer * (s.per_producer + 1) / 2));
}

/* Between the two looks ------------------------------------------------------------------------ */

enum { POST, POST_TAIL, WAKE, LATE_WAYS };

/* A thread that calls the executor while that is between its two looks: it has found nothing to do,
 * and has not said yet that it sleeps. So the caller wakes nobody. */
typedef struct late_caller {
    weir_clock clock;
    weir_executor *executor;
    probe probe;
    int way, code;
    atomic_bool is_wanted;
    bool
        is_between; /* the loop's own thread: its next question for the time is between the looks */
    int wakes, polls; /* until then */
} late_caller;

static void expect_late_call(void)
{
    late_caller *self = spied->late;
    if (self == NULL || !weir_executor_is_current(self->executor))
        return;
    self->is_between = atomic_load(&self->is_wanted);
    self->executor->is_time_stale |= self->is_between; /* so that it asks */
}

static void *call_late(void *arg)
{
    late_caller *self = arg;
    if (self->way == POST)
        self->code = weir_executor_post(self->executor, &self->probe.task);
    else if (self->way == POST_TAIL)
        self->code = weir_executor_post_tail(self->executor, &self->probe.task);
    else
        weir_executor_wake(self->executor);
    return NULL;
}

static int64_t late_now_ns(weir_clock *clock)
{
    late_caller *self = WEIR_CONTAINER(clock, late_caller, clock);
    bool is_loop = self->executor != NULL && weir_executor_is_current(self->executor);
    if (is_loop && self->is_between) {
        pthread_t thread;
        self->is_between = false;
        self->wakes = atomic_load(&spied->wakes);
        self->polls = atomic_load(&spied->polls);
        if (pthread_create(&thread, NULL, call_late, self) == 0)
            pthread_join(thread, NULL);
        atomic_store(&self->is_wanted, false);
    }
    return clock_ns();
}

/* The timer is hours away: a call that goes unnoticed is not made up for. */
static void call_between_the_looks_keeps_the_loop_awake(int way)
{
    enum { COUNT = 20 };
    spy s = { .source = { .name = "spied epoll", .open = spy_open } };
    late_caller late = { .clock.now_ns = late_now_ns, .way = way };
    probe_timer timer = PROBE_TIMER;
    spied = &s;
    bench b = begin(&(weir_group_config){ .io_source = &s.source, .clock = &late.clock });
    late.executor = b.executor;
    s.late = &late; /* before the loop has a thread */
    settle(b.executor);
    assert_int_equal(weir_timer_schedule(&timer.timer, b.executor, WEIR_SECONDS(10000)), 0);
    WAIT_FOR(stats_of(b.executor).timers == 1);
    for (int i = 0; i < COUNT; i++) {
        late.probe = (probe)PROBE;
        late.code = 0;
        WAIT_FOR(weir__executor_is_asleep(b.executor));
        atomic_store(&late.is_wanted, true);
        weir_executor_wake(b.executor);
        WAIT_FOR(!atomic_load(&late.is_wanted));
        assert_int_equal(late.code, 0);
        assert_int_equal(atomic_load(&s.wakes), late.wakes); /* no wake-up was needed */
        WAIT_FOR(way == WAKE ? atomic_load(&s.polls) >= late.polls + 2
                             : atomic_load(&late.probe.runs) == 1);
    }
    end(&b);
    assert_int_equal(atomic_load(&timer.fires), 0);
}

static void s089_task_posted_between_the_two_looks_runs(void **state)
{
    (void)state;
    call_between_the_looks_keeps_the_loop_awake(POST);
}

static void s089_tail_task_posted_between_the_two_looks_runs(void **state)
{
    (void)state;
    call_between_the_looks_keeps_the_loop_awake(POST_TAIL);
}

static void s089_wake_up_between_the_two_looks_ends_the_next_wait(void **state)
{
    (void)state;
    call_between_the_looks_keeps_the_loop_awake(WAKE);
}

/* Stress --------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/* Mostly as long as a loop takes to fall asleep, sometimes long enough that it surely has. */
static void pause_randomly(uint32_t *seed)
{
    uint32_t random = next_random(seed);
    if (random % 16 == 0)
        pause_ns(random % 200000);
    else if (random % 16 < 14)
        spin_ns(random % (IS_SLOW ? 20000 : 5000));
}

static int64_t stress_ns(void)
{
    return getenv("WEIR_LONG_TESTS") != NULL ? WEIR_SECONDS(600) : WEIR_SECONDS(2);
}

/* How long two threads had to wait for a CPU until now: the second number of schedstat. */
static int64_t queued_ns(int tid, int other)
{
    long long of_one = 0, of_other = 0;
    char text[128];
    read_about(tid, "schedstat", text, sizeof text);
    sscanf(text, "%*d %lld", &of_one);
    read_about(other, "schedstat", text, sizeof text);
    sscanf(text, "%*d %lld", &of_other);
    return of_one + of_other;
}

/*
 * One task after the other, so that each of them finds the loop about to fall asleep, or asleep. A
 * wake-up that gets lost is a wait without end, for which timed_await fails. What a task waits
 * besides is the scheduler's doing: on a busy machine a thread may not run for some milliseconds.
 * So what a task waits beyond 5 ms is held against the time that the two threads had to wait for a
 * CPU since the last look at that. Looks are rare, for they take longer than falling asleep does.
 * And one task in a thousand may be late all the same, and more where the machine itself has to
 * wait for its host: as often as a thread is that does nothing but wait to be woken.
 */
typedef struct control {
    pthread_t thread;
    int event;
    sem_t answered;
} control;

static void *answer(void *arg)
{
    control *self = arg;
    uint64_t count;
    while (read(self->event, &count, sizeof count) == sizeof count && count < UINT32_MAX)
        sem_post(&self->answered);
    return NULL;
}

static void control_begin(control *self)
{
    self->event = eventfd(0, EFD_CLOEXEC);
    assert_true(self->event >= 0);
    sem_init(&self->answered, 0, 0);
    assert_int_equal(pthread_create(&self->thread, NULL, answer, self), 0);
}

static int64_t control_wake(control *self, uint64_t count)
{
    int64_t begun_ns = clock_ns();
    assert_int_equal(write(self->event, &count, sizeof count), sizeof count);
    if (count < UINT32_MAX)
        while (sem_wait(&self->answered) < 0)
            ;
    return clock_ns() - begun_ns;
}

static void control_end(control *self)
{
    control_wake(self, UINT32_MAX);
    pthread_join(self->thread, NULL);
    sem_destroy(&self->answered);
    close(self->event);
}

static void stress(uint32_t most_busy_ns)
{
    enum { POSTS_PER_LOOK = 256, POSTS_PER_CONTROL = 4 };
    size_t count = 0, late = 0, control_late = 0;
    control other;
    uint32_t seed = 0x9E3779B9;
    int64_t longest_ns = 0, before_ns = 0;
    bench b = begin(&(weir_group_config){ 0 });
    weir_fault_set(NULL, NULL);
    int tid = tid_on(b.executor);
    timed_task task;
    timed_init(&task);
    control_begin(&other);
    for (int64_t end_ns = clock_ns() + stress_ns(); clock_ns() < end_ns; count++) {
        if (count % POSTS_PER_LOOK == 0)
            before_ns = queued_ns(tid, (int)gettid());
        task.busy_ns = most_busy_ns > 0 ? next_random(&seed) % most_busy_ns : 0;
        int64_t taken_ns = timed_post(&task, b.executor);
        if (taken_ns > WEIR_MS(5)) {
            int64_t now_ns = queued_ns(tid, (int)gettid());
            late += taken_ns - (now_ns - before_ns) > WEIR_MS(5);
            before_ns = now_ns;
        }
        if (taken_ns > longest_ns)
            longest_ns = taken_ns;
        pause_randomly(&seed);
        if (count % POSTS_PER_CONTROL == 0) /* after which the loop is surely asleep */
            control_late += control_wake(&other, 1) > WEIR_MS(5);
    }
    control_end(&other);
    print_message(
        "             %zu posts, %llu wake-ups, %zu late (%zu of the others), the last after "
        "%lld us\n",
        count, (unsigned long long)wakeups_of(&b), late, control_late,
        (long long)longest_ns / 1000);
    assert_true(late <= count / 1000 + 2 * POSTS_PER_CONTROL * control_late);
    end(&b);
    sem_destroy(&task.done);
}

static void s058_no_wake_up_is_lost(void **state)
{
    (void)state;
    stress(0);
}

static void s089_no_wake_up_is_lost_by_a_busy_loop(void **state)
{
    (void)state;
    stress(20000);
}

/* Idle ----------------------------------------------------------------------------------------- */

/* How often it has been on a CPU, as far as one can tell from how often it left it. */
static long switches_of(int tid)
{
    char text[8192];
    long voluntary = 0, other = 0;
    read_about(tid, "status", text, sizeof text);
    const char *line = strstr(text, "\nvoluntary_ctxt_switches:");
    assert_non_null(line);
    assert_int_equal(sscanf(line, " voluntary_ctxt_switches: %ld nonvoluntary_ctxt_switches: %ld",
                            &voluntary, &other),
                     2);
    return voluntary + other;
}

/* Whether it did nothing for a second. */
static bool is_still(const bench *b, int tid)
{
    wait_until_blocked(b, tid);
    weir_loop_stats before = loop_stats_of(b->loop);
    int calls = atomic_load(&all_calls);
    long switches = switches_of(tid);
    pause_ns(WEIR_MS(1100));
    weir_loop_stats after = loop_stats_of(b->loop);
    return switches_of(tid) == switches && atomic_load(&all_calls) == calls &&
           after.polls == before.polls && after.turns == before.turns;
}

static void idle_loop_does_nothing(void **state)
{
    (void)state;
    bench b = begin(&(weir_group_config){ 0 });
    int tid = tid_on(b.executor);
    int tries = 1;
    /* After the first second it may empty its pool, and wait again; that is all. */
    while (!is_still(&b, tid) && tries < 4)
        tries++;
    assert_true(tries <= 3);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s026_sixty_four_threads_start_one_loop),
        weir_case(s031_wake_up_before_the_start_is_not_forgotten),
        weir_case(s031_wake_up_before_a_step_ends_its_wait),
        weir_case(s052_post_from_inside_wakes_nobody),
        weir_case(s053_post_to_an_idle_loop_takes_microseconds),
        weir_case(s054_loop_is_woken_by_a_descriptor),
        weir_case(s054_plain_executor_is_woken_without),
        weir_case(s055_lazy_task_waits_for_the_next_timer),
        weir_case(s055_lazy_task_runs_with_the_next_one),
        weir_case(s064_tail_task_alone_runs_at_once),
        weir_case(s059_task_that_comes_right_before_the_poll_ends_it),
        weir_case(s057_burst_wakes_once),
        weir_case(s057_burst_to_a_busy_loop_wakes_nobody),
        weir_case(s057_burst_to_a_loop_that_runs_wakes_seldom),
        weir_case(s047_no_task_of_eight_producers_is_lost),
        weir_case(s058_no_wake_up_is_lost),
        weir_case(s089_task_posted_between_the_two_looks_runs),
        weir_case(s089_tail_task_posted_between_the_two_looks_runs),
        weir_case(s089_wake_up_between_the_two_looks_ends_the_next_wait),
        weir_case(s089_no_wake_up_is_lost_by_a_busy_loop),
        weir_case(idle_loop_does_nothing),
    };
    return cmocka_run_group_tests(tests, choose_backend, NULL);
}
