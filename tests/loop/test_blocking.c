/* SPDX-License-Identifier: MIT */
/* Loops that wait for one descriptor each, and groups that make one for each channel. */
#include "loop/loops.h"

#include "exec/per_channel.h"

#include <weir/timer.h>

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

static weir_group *new_blocking(int max_channels)
{
    weir_group_config config = { .io = WEIR_IO_BLOCKING, .max_channels = max_channels };
    config.watchdog_ns = WEIR_OFF; /* it would be one more thread */
    return new_loops(&config);
}

static size_t active_of(weir_group *group)
{
    size_t active, idle;
    weir_group_get_channels(group, &active, &idle);
    return active;
}

static size_t idle_of(weir_group *group)
{
    size_t active, idle;
    weir_group_get_channels(group, &active, &idle);
    return idle;
}

static void assert_use(weir_group *group, size_t active, size_t idle)
{
    assert_int_equal(active_of(group), active);
    assert_int_equal(idle_of(group), idle);
}

/* Tenants: what stands here for a channel. ---------------------------------------------------- */

/* Echoes what comes to its socket, and leaves when that ends. */
typedef struct tenant {
    weir_group *group;
    weir_executor *executor;
    weir_resident resident;
    weir_io_file file;
    weir_io_op in;
    char bytes[64]; /* being sent back */
    size_t length;
    int peer; /* the test's end */
    int tid;
    atomic_int received;
    atomic_bool is_there, is_gone;
    bool reads; /* else it only sits there */
} tenant;

static weir_loop *loop_of(const tenant *self)
{
    return weir_executor_loop(self->executor);
}

static void tenant_leave(tenant *self)
{
    weir_loop *loop = loop_of(self);
    loop->io->type->close_file(loop->io, &self->file);
    weir__loop_remove(loop, &self->resident);
    atomic_store(&self->is_gone, true);
}

static int tenant_gather(weir_io_file *file, weir_io_send *send)
{
    tenant *self = WEIR_CONTAINER(file, tenant, file);
    send->pieces[0] = (struct iovec){ .iov_base = self->bytes, .iov_len = self->length };
    return 1;
}

static void tenant_sent(weir_io_file *file, int code)
{
    tenant *self = WEIR_CONTAINER(file, tenant, file);
    assert_int_equal(code, (int)self->length);
    atomic_fetch_add(&self->received, code);
}

static const weir_io_sender tenant_sender = { .gather = tenant_gather, .on_sent = tenant_sent };

static void tenant_received(weir_io_op *op, const weir_io_result *result)
{
    tenant *self = WEIR_CONTAINER(op, tenant, in);
    if (result->buf != NULL) {
        self->length = (size_t)result->code;
        assert_int_equal(weir_buf_read_bytes(result->buf, self->bytes, self->length), 0);
        weir_buf_release(result->buf);
        weir__io_send(loop_of(self)->io, &self->file);
    }
    if (!result->is_armed)
        tenant_leave(self);
}

/* The loop ends. */
static void tenant_evict(weir_resident *resident)
{
    tenant *self = WEIR_CONTAINER(resident, tenant, resident);
    if (self->reads)
        weir__io_cancel(loop_of(self)->io, &self->in);
    else
        tenant_leave(self);
}

static const weir_resident_type tenant_type = { .evict = tenant_evict };

static int tenant_enter(void *arg)
{
    tenant *self = arg;
    weir_loop *loop = loop_of(self);
    int fds[2];
    self->tid = (int)gettid();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    self->peer = fds[1];
    int code = loop->io->type->attach(loop->io, &self->file, fds[0]);
    if (code < 0) {
        close(fds[0]);
        close(fds[1]);
        return code;
    }
    self->resident.type = &tenant_type;
    assert_int_equal(weir__loop_add(loop, &self->resident), 0);
    self->in = (weir_io_op){ .kind = WEIR_IO_RECEIVE, .file = &self->file };
    self->in.is_multishot = true;
    self->in.on_done = tenant_received;
    self->file.sender = &tenant_sender;
    if (self->reads)
        assert_int_equal(weir__io_submit(loop->io, &self->in), WEIR_IO_PENDING);
    atomic_store(&self->is_there, true);
    return 0;
}

/* Takes a loop of the group and moves in. */
static void move_in(tenant *self, weir_group *group, bool reads)
{
    *self = (tenant){ .group = group, .reads = reads };
    assert_int_equal(weir__group_take(group, &self->executor), 0);
    assert_int_equal(call_on(self->executor, tenant_enter, self), 0);
}

static int tenant_go(void *arg)
{
    tenant *self = arg;
    if (!self->reads)
        tenant_leave(self);
    else
        shutdown(self->peer, SHUT_WR);
    return 0;
}

/* Moves out, and waits until its loop is free. */
static void move_out(tenant *self)
{
    size_t idle = idle_of(self->group);
    assert_int_equal(call_on(self->executor, tenant_go, self), 0);
    WAIT_FOR(atomic_load(&self->is_gone));
    WAIT_FOR(idle_of(self->group) == idle + 1);
    close(self->peer);
}

static void assert_echo(const tenant *self, const char *text)
{
    char bytes[64] = "";
    size_t length = strlen(text);
    struct pollfd answer = { .fd = self->peer, .events = POLLIN };
    assert_int_equal(write(self->peer, text, length), (ssize_t)length);
    assert_int_equal(poll(&answer, 1, -1), 1);
    assert_int_equal(read(self->peer, bytes, sizeof bytes), (ssize_t)length);
    assert_string_equal(bytes, text);
}

typedef struct counted_timer {
    weir_timer timer;
    atomic_int fires;
    int tid;
} counted_timer;

static int counted_timer_fire(weir_timer *timer)
{
    counted_timer *self = WEIR_CONTAINER(timer, counted_timer, timer);
    self->tid = (int)gettid();
    atomic_fetch_add(&self->fires, 1);
    return 0;
}

/* Making one ----------------------------------------------------------------------------------- */

static void a_config_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    weir_group *group = NULL;
    weir_error error;
    const struct {
        weir_group_config config;
        const char *word;
    } bad[] = {
        { { .io = WEIR_IO_BLOCKING, .loops = 1 }, "loops is 1" },
        { { .io = WEIR_IO_BLOCKING, .is_manual = true }, "manual" },
        { { .io = WEIR_IO_BLOCKING, .max_channels = -1 }, "max_channels is -1" },
        { { .io = WEIR_IO_EPOLL, .max_channels = -2 }, "max_channels is -2" },
        { { .io = WEIR_IO_BLOCKING, .idle_loop_ns = -2 }, "idle_loop_ns is -2" },
        { { .io = (weir_io_kind)(WEIR_IO_BLOCKING + 1) }, "no kind of io" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(weir_group_new(&group, &bad[i].config, &error), -EINVAL);
        assert_non_null(strstr(error.message, bad[i].word));
        assert_null(group);
    }
    assert_int_equal(weir_group_new(NULL, &(weir_group_config){ .io = WEIR_IO_BLOCKING }, &error),
                     -EINVAL);
}

static void without_memory_there_is_none(void **state)
{
    (void)state;
    weir_group *group = NULL;
    weir_error error;
    weir_group_config config = { .io = WEIR_IO_BLOCKING };
    unsigned nth = 1;
    for (;; nth++) {
        harness_fail_nth(NULL, nth, -ENOMEM);
        int code = weir_group_new(&group, &config, &error);
        harness_fail_end();
        if (code == 0)
            break;
        assert_int_equal(code, -ENOMEM);
        assert_null(group);
    }
    assert_true(nth > 1);
    end_group(group);
}

static void the_environment_can_say_blocking(void **state)
{
    (void)state;
    weir_error error;
    weir_group *none = NULL;
    setenv("WEIR_IO", "blocking", 1);
    weir_group *group = new_loops_of(3); /* how many is for the others */
    assert_int_equal(weir_group_count(group), 0);
    assert_string_equal(weir_group_chooser_name(group), "per channel");
    end_group(group);
    group = new_loops(&(weir_group_config){ .loops = 1, .is_manual = true }); /* cannot block */
    assert_string_equal(weir_loop_io_name(weir_group_loop_at(group, 0)), "epoll");
    end_group(group);
    setenv("WEIR_IO", "nonsense", 1);
    assert_int_equal(weir_group_new(&none, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "blocking"));
    unsetenv("WEIR_IO");
}

/* The name is the caller's again when the group is made. */
static void a_group_begins_without_loops(void **state)
{
    (void)state;
    char name[] = "a name that is too long";
    weir_group_pending pending;
    weir_group_config config = { .io = WEIR_IO_BLOCKING, .name = name, .watchdog_ns = WEIR_OFF };
    weir_group *group = new_loops(&config);
    memset(name, 'x', sizeof name - 1);
    assert_int_equal(weir_group_count(group), 0);
    assert_null(weir_group_at(group, 0));
    assert_null(weir_group_next(group));
    assert_null(weir_group_next_loop(group));
    assert_null(weir_group_loop_at(group, 0));
    assert_use(group, 0, 0);
    weir_executor *executor = NULL;
    assert_int_equal(weir__group_take(group, &executor), 0);
    assert_int_equal(weir_group_count(group), 1);
    assert_ptr_equal(weir_group_at(group, 0), executor);
    assert_ptr_equal(weir_executor_group(executor), group);
    assert_string_equal(weir_executor_name(executor), "a name tha-0");
    assert_string_equal(weir_loop_io_name(weir_executor_loop(executor)), "blocking");
    assert_int_equal(weir_executor_get_state(executor), WEIR_EXECUTOR_NOT_STARTED);
    assert_null(weir_group_next(group)); /* it is for one channel */
    weir_group_get_pending(group, &pending);
    assert_int_equal(pending.children, 1);
    weir__group_give_back(group, executor);
    end_group(group);
}

/* Also for groups that have their loops: take is next, and there is nothing to give back. */
static void taking_from_another_group_is_choosing(void **state)
{
    (void)state;
    weir_group *group = new_loops_of(3);
    for (size_t i = 0; i < 7; i++) {
        weir_executor *executor = NULL;
        assert_int_equal(weir__group_take(group, &executor), 0);
        assert_ptr_equal(executor, weir_group_at(group, i % 3));
        weir__group_give_back(group, executor);
    }
    assert_use(group, 0, 0);
    end_group(group);
}

/* Loops for channels --------------------------------------------------------------------------- */

static void s134_a_loop_for_each_made_when_it_comes(void **state)
{
    (void)state;
    tenant tenants[3], another;
    size_t threads = count_threads();
    weir_group *group = new_blocking(0);
    assert_int_equal(count_threads(), threads);
    for (size_t i = 0; i < 3; i++) {
        move_in(&tenants[i], group, true);
        assert_int_equal(weir_group_count(group), i + 1);
        assert_ptr_equal(weir_group_at(group, i), tenants[i].executor);
        assert_use(group, i + 1, 0);
    }
    assert_int_equal(count_threads(), threads + 3);
    for (size_t i = 0; i < 3; i++) {
        assert_echo(&tenants[i], "hello");
        assert_int_not_equal(tenants[i].tid, tenants[(i + 1) % 3].tid);
    }
    move_out(&tenants[1]);
    assert_use(group, 2, 1);
    move_in(&another, group, true);
    assert_int_equal(another.tid, tenants[1].tid);
    assert_int_equal(weir_group_count(group), 3);
    assert_int_equal(count_threads(), threads + 3);
    assert_echo(&another, "again");
    assert_echo(&tenants[0], "still");
    move_out(&tenants[0]);
    move_out(&tenants[2]);
    move_out(&another);
    assert_use(group, 0, 3);
    end_group(group);
}

static void wait_until_not_started(weir_executor *executor)
{
    WAIT_FOR(weir_executor_get_state(executor) == WEIR_EXECUTOR_NOT_STARTED);
}

/* Its thread and its descriptor go, and come back with the next channel. */
static void idle_loop_releases_its_thread_until_the_next_channel(void **state)
{
    (void)state;
    tenant tenants[3], another;
    weir_group_config config = { .io = WEIR_IO_BLOCKING, .watchdog_ns = WEIR_OFF };
    config.idle_loop_ns = WEIR_MS(20);
    weir_group *group = new_loops(&config);
    size_t threads = count_threads(), fds = count_entries("/proc/self/fd");
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 3; i++)
            move_in(&tenants[i], group, true);
        assert_int_equal(count_threads(), threads + 3);
        for (size_t i = 0; i < 3; i++)
            move_out(&tenants[i]);
        WAIT_FOR(count_threads() == threads);
        assert_int_equal(count_entries("/proc/self/fd"), fds);
        assert_int_equal(weir_group_count(group), 3);
        assert_use(group, 0, 3);
        for (size_t i = 0; i < 3; i++)
            wait_until_not_started(weir_group_at(group, i));
    }
    move_in(&another, group, true);
    assert_echo(&another, "again");
    move_out(&another);
    end_group(group);
}

/* Before the first channel, and after the last. */
static void thread_started_for_a_task_ends_when_idle(void **state)
{
    (void)state;
    tenant it;
    weir_executor *executor = NULL;
    weir_group_config config = { .io = WEIR_IO_BLOCKING, .watchdog_ns = WEIR_OFF };
    config.idle_loop_ns = WEIR_MS(20);
    weir_group *group = new_loops(&config);
    size_t threads = count_threads();
    assert_int_equal(weir__group_take(group, &executor), 0);
    settle(executor);
    weir__group_give_back(group, executor);
    wait_until_not_started(executor);
    move_in(&it, group, true);
    assert_ptr_equal(it.executor, executor);
    move_out(&it);
    for (int round = 0; round < 3; round++) {
        wait_until_not_started(executor);
        settle(executor);
    }
    WAIT_FOR(count_threads() == threads);
    end_group(group);
}

/* A user's timer or task keeps the thread, as a channel does. */
static void idle_loop_keeps_its_thread_for_a_timer(void **state)
{
    (void)state;
    tenant it;
    weir_group_config config = { .io = WEIR_IO_BLOCKING, .watchdog_ns = WEIR_OFF };
    config.idle_loop_ns = WEIR_MS(1);
    weir_group *group = new_loops(&config);
    size_t threads = count_threads();
    counted_timer timer = { .timer.fire = counted_timer_fire };
    move_in(&it, group, true);
    assert_int_equal(weir_timer_schedule(&timer.timer, it.executor, WEIR_MS(60)), 0);
    move_out(&it);
    WAIT_FOR(atomic_load(&timer.fires) == 1);
    assert_int_equal(timer.tid, it.tid); /* no other thread has come in between */
    WAIT_FOR(count_threads() == threads);
    end_group(group);
}

static void idle_loops_stay_when_the_config_says_so(void **state)
{
    (void)state;
    tenant it;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, WEIR_SECONDS(1));
    for (int is_off = 0; is_off < 2; is_off++) {
        weir_group_config config = { .io = WEIR_IO_BLOCKING, .watchdog_ns = WEIR_OFF };
        config.clock = &clock.clock;
        config.idle_loop_ns = is_off ? WEIR_OFF : 0;
        weir_group *group = new_loops(&config);
        move_in(&it, group, true);
        move_out(&it);
        weir_virtual_clock_advance(&clock, WEIR_MS(59999));
        wait_for_passes(it.executor);
        assert_int_equal(weir_executor_get_state(it.executor), WEIR_EXECUTOR_STARTED);
        weir_virtual_clock_advance(&clock, WEIR_MS(1));
        if (is_off) {
            wait_for_passes(it.executor);
            assert_int_equal(weir_executor_get_state(it.executor), WEIR_EXECUTOR_STARTED);
        } else {
            weir_executor_wake(it.executor);
            wait_until_not_started(it.executor);
        }
        end_group(group);
    }
}

/* Posts a task and schedules a timer from a deferred call, in the turn after the loop has become
 * idle: as a handler does that is removed with the last channel. */
typedef struct late_call {
    weir_deferred deferred;
    weir_loop *loop;
    probe probe;
    probe_timer timer;
    atomic_int runs;
} late_call;

static void late_call_run(weir_deferred *deferred)
{
    late_call *self = WEIR_CONTAINER(deferred, late_call, deferred);
    if (atomic_fetch_add(&self->runs, 1) == 0) {
        assert_true(weir__loop_defer(self->loop, deferred));
        return;
    }
    assert_int_equal(weir_executor_post(&self->loop->base, &self->probe.task), 0);
    assert_int_equal(weir_timer_schedule(&self->timer.timer, &self->loop->base, WEIR_MS(1)), 0);
}

static int defer_and_become_idle(void *arg)
{
    late_call *self = arg;
    self->loop->base.may_retire = true;
    assert_true(weir__loop_defer(self->loop, &self->deferred));
    return 0;
}

static void idle_loop_keeps_its_thread_for_deferred_calls(void **state)
{
    (void)state;
    weir_executor *executor = NULL;
    weir_group *group = new_blocking(0);
    size_t threads = count_threads();
    assert_int_equal(weir__group_take(group, &executor), 0);
    late_call self = { .deferred.run = late_call_run,
                       .loop = weir_executor_loop(executor),
                       .probe = PROBE,
                       .timer = PROBE_TIMER };
    assert_int_equal(call_on(executor, defer_and_become_idle, &self), 0);
    WAIT_FOR(atomic_load(&self.runs) == 2);
    WAIT_FOR(atomic_load(&self.probe.runs) == 1);
    WAIT_FOR(atomic_load(&self.timer.fires) == 1);
    weir__group_give_back(group, executor);
    end_group(group);
    assert_int_equal(count_threads(), threads);
}

/* Channels come, tasks are posted and the group ends just when threads retire. */
static void *post_around_the_retiring(void *arg)
{
    weir_group *group = arg;
    for (int i = 0; i < 300; i++) {
        probe probes[4] = { PROBE, PROBE, PROBE, PROBE };
        for (size_t at = 0; at < 4; at++)
            assert_int_equal(weir_executor_post(weir_group_at(group, at % 2), &probes[at].task), 0);
        for (size_t at = 0; at < 4; at++)
            WAIT_FOR(atomic_load(&probes[at].runs) == 1);
        /* The pause is the subject: about as long as an idle thread stays. */
        struct timespec pause = { .tv_nsec = 900000 + i % 7 * 50000 };
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void tasks_are_not_lost_when_idle_threads_retire(void **state)
{
    (void)state;
    tenant tenants[2];
    weir_group_config config = { .io = WEIR_IO_BLOCKING, .watchdog_ns = WEIR_OFF };
    config.idle_loop_ns = WEIR_MS(1);
    weir_group *group = new_loops(&config);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        move_in(&tenants[i], group, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_around_the_retiring, group), 0);
    for (int i = 0; i < 2; i++)
        move_out(&tenants[i]);
    for (int round = 0; round < 100; round++) {
        tenant it;
        move_in(&it, group, true);
        assert_echo(&it, "hello");
        move_out(&it);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    end_group(group);
}

static void s135_no_more_than_max_channels(void **state)
{
    (void)state;
    tenant first, second, third;
    weir_group *group = new_blocking(2);
    weir_executor *executor = NULL;
    move_in(&first, group, true);
    move_in(&second, group, false);
    assert_int_equal(weir__group_take(group, &executor), WEIR_ELIMIT);
    assert_null(executor);
    assert_int_equal(weir_group_count(group), 2);
    move_out(&second);
    move_in(&third, group, true);
    assert_int_equal(weir__group_take(group, &executor), WEIR_ELIMIT);
    move_out(&first);
    move_out(&third);
    end_group(group);
}

typedef struct drain_check {
    tenant tenant;
    weir_task before, after;
    atomic_int active_before, active_after, runs;
} drain_check;

static int look_before(weir_task *task)
{
    drain_check *self = WEIR_CONTAINER(task, drain_check, before);
    assert_true(atomic_load(&self->tenant.is_gone));
    atomic_store(&self->active_before, (int)active_of(self->tenant.group));
    atomic_fetch_add(&self->runs, 1);
    return 0;
}

/* Leaves while the other task waits in the queue. */
static int leave_with_tasks(void *arg)
{
    drain_check *self = arg;
    weir_executor *executor = self->tenant.executor;
    self->before = (weir_task){ .run = look_before };
    assert_int_equal(weir_executor_post(executor, &self->before), 0);
    tenant_leave(&self->tenant);
    atomic_store(&self->active_after, (int)active_of(self->tenant.group));
    return 0;
}

static void s136_idle_when_the_tasks_are_drained(void **state)
{
    (void)state;
    drain_check check = { 0 };
    weir_group *group = new_blocking(1);
    move_in(&check.tenant, group, false);
    assert_int_equal(call_on(check.tenant.executor, leave_with_tasks, &check), 0);
    WAIT_FOR(idle_of(group) == 1);
    assert_int_equal(atomic_load(&check.active_after), 1);
    assert_int_equal(atomic_load(&check.runs), 1);
    assert_int_equal(atomic_load(&check.active_before), 1); /* when that ran, it was not yet idle */
    assert_use(group, 0, 1);
    close(check.tenant.peer);
    end_group(group);
}

/* A task that posts itself again and again does not keep the loop from being free. */
typedef struct mill {
    weir_task task;
    weir_executor *executor;
    atomic_int turns;
    atomic_bool may_end, has_ended;
} mill;

static int mill_run(weir_task *task)
{
    mill *self = WEIR_CONTAINER(task, mill, task);
    atomic_fetch_add(&self->turns, 1);
    if (!atomic_load(&self->may_end))
        return weir_executor_post(self->executor, task);
    atomic_store(&self->has_ended, true);
    return 0;
}

static void start_mill(mill *self, weir_executor *executor)
{
    *self = (mill){ .task.run = mill_run, .executor = executor };
    assert_int_equal(weir_executor_post(executor, &self->task), 0);
}

static void stop_mill(mill *self)
{
    atomic_store(&self->may_end, true);
    WAIT_FOR(atomic_load(&self->has_ended));
}

static void s136_an_endless_task_does_not_hold_the_place(void **state)
{
    (void)state;
    tenant one;
    mill turning;
    weir_group *group = new_blocking(1);
    move_in(&one, group, true);
    start_mill(&turning, one.executor);
    move_out(&one);
    assert_use(group, 0, 1);
    stop_mill(&turning);
    end_group(group);
}

static void s136_taken_and_given_back_it_is_idle(void **state)
{
    (void)state;
    weir_group *group = new_blocking(2);
    weir_executor *first = NULL, *second = NULL;
    assert_int_equal(weir__group_take(group, &first), 0);
    assert_int_equal(weir__group_take(group, &second), 0);
    assert_use(group, 2, 0);
    weir__group_give_back(group, first);
    assert_use(group, 1, 1);
    weir__group_give_back(group, first); /* once more changes nothing */
    assert_use(group, 1, 1);
    weir_executor *third = NULL;
    assert_int_equal(weir__group_take(group, &third), 0);
    assert_ptr_equal(third, first);
    weir__group_give_back(group, second);
    weir__group_give_back(group, third);
    assert_use(group, 0, 2);
    end_group(group);
}

/* Its resident came and went in one go, and the taker gives it back in between. */
static int come_and_go(void *arg)
{
    tenant *self = arg;
    int code = tenant_enter(self);
    assert_int_equal(code, 0);
    tenant_leave(self);
    weir__group_give_back(self->group, self->executor);
    assert_use(self->group, 1, 0);
    return 0;
}

static void a_place_given_back_by_who_was_there_is_free_once(void **state)
{
    (void)state;
    tenant one = { .group = new_blocking(0) }, two;
    assert_int_equal(weir__group_take(one.group, &one.executor), 0);
    assert_int_equal(call_on(one.executor, come_and_go, &one), 0);
    WAIT_FOR(idle_of(one.group) == 1);
    close(one.peer);
    move_in(&two, one.group, true);
    settle(two.executor);
    assert_use(one.group, 1, 0);
    move_out(&two);
    end_group(one.group);
}

static int come_again(void *arg)
{
    tenant *self = arg;
    tenant_leave(self);
    close(self->peer);
    return tenant_enter(self); /* before the loop has told that it is free */
}

static void a_resident_that_comes_back_at_once_keeps_its_place(void **state)
{
    (void)state;
    tenant one;
    weir_group *group = new_blocking(0);
    move_in(&one, group, false);
    assert_int_equal(call_on(one.executor, come_again, &one), 0);
    settle(one.executor);
    settle(one.executor);
    assert_use(group, 1, 0);
    atomic_store(&one.is_gone, false);
    move_out(&one);
    end_group(group);
}

static int come_and_go_thrice(void *arg)
{
    for (int i = 0; i < 3; i++) {
        tenant *self = arg;
        assert_int_equal(tenant_enter(self), 0);
        tenant_leave(self);
        close(self->peer);
    }
    return 0;
}

static void several_in_one_task_leave_one_place(void **state)
{
    (void)state;
    tenant one = { .group = new_blocking(0) }, two;
    assert_int_equal(weir__group_take(one.group, &one.executor), 0);
    assert_int_equal(call_on(one.executor, come_and_go_thrice, &one), 0);
    WAIT_FOR(idle_of(one.group) == 1);
    move_in(&two, one.group, true);
    for (int i = 0; i < 3; i++)
        settle(two.executor);
    assert_use(one.group, 1, 0); /* nobody tells for the second time that it is free */
    move_out(&two);
    end_group(one.group);
}

/* Ending --------------------------------------------------------------------------------------- */

static void s137_a_group_that_is_shutting_down_refuses(void **state)
{
    (void)state;
    tenant one;
    blocker busy;
    weir_executor *executor = NULL;
    weir_group *group = new_blocking(0);
    move_in(&one, group, true);
    block(&busy, one.executor);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0); /* counts once */
    assert_int_equal(weir__group_take(group, &executor), WEIR_ESHUTDOWN);
    assert_null(executor);
    assert_false(weir_future_is_done(weir_group_terminated(group)));
    unblock(&busy);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    assert_true(atomic_load(&one.is_gone));
    assert_int_equal(weir__group_take(group, &executor), WEIR_ESHUTDOWN);
    assert_use(group, 0, 0);
    weir_group_free(group);
    close(one.peer);
}

/* In its last moment the loop makes the resident leave, and tells nobody that it is free. */
static void s137_a_loop_that_ends_at_once_leaves_nothing_behind(void **state)
{
    (void)state;
    tenant one;
    weir_group *group = new_blocking(0);
    move_in(&one, group, false);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_group_shutdown(group, 0, 0), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    assert_int_equal(harness_log_end(), 0);
    assert_true(atomic_load(&one.is_gone));
    assert_use(group, 0, 0);
    weir_group_free(group);
    close(one.peer);
}

static void s137_also_with_idle_loops_and_with_none(void **state)
{
    (void)state;
    weir_executor *executor = NULL;
    for (int has_child = 0; has_child < 2; has_child++) {
        weir_group *group = new_blocking(0);
        if (has_child) {
            assert_int_equal(weir__group_take(group, &executor), 0);
            weir__group_give_back(group, executor);
        }
        assert_int_equal(weir_group_shutdown(group, 5, 3), -EINVAL);
        assert_int_equal(weir_group_shutdown(group, -1, 3), -EINVAL);
        assert_int_equal(weir__group_take(group, &executor), 0); /* nothing has happened */
        weir__group_give_back(group, executor);
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir__group_take(group, &executor), WEIR_ESHUTDOWN);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        weir_group_free(group);
    }
}

static void a_group_that_made_no_loop_ends_at_once(void **state)
{
    (void)state;
    weir_group *group = new_blocking(0);
    assert_false(weir_future_is_done(weir_group_terminated(group)));
    assert_int_equal(weir_group_shutdown(group, WEIR_SECONDS(1), WEIR_SECONDS(10)), 0);
    assert_true(weir_future_is_done(weir_group_terminated(group)));
    weir_group_free(group);
    weir_group_free(new_blocking(3)); /* that nobody shut down */
}

/* Somebody ends one loop alone: it counts no more, and is not given to anybody. */
static void a_loop_that_was_shut_down_alone_is_not_taken(void **state)
{
    (void)state;
    tenant one, two;
    weir_executor *third = NULL;
    weir_group *group = new_blocking(2);
    move_in(&one, group, true);
    move_in(&two, group, false);
    move_out(&one);
    assert_int_equal(weir_executor_shutdown(one.executor, 0, WEIR_SECONDS(1)), 0);
    weir_future_await(weir_executor_terminated(one.executor));
    WAIT_FOR(idle_of(group) == 0);
    assert_int_equal(weir_executor_shutdown(two.executor, 0, WEIR_SECONDS(1)), 0);
    weir_future_await(weir_executor_terminated(two.executor));
    WAIT_FOR(active_of(group) == 0);
    close(two.peer);
    assert_false(weir_future_is_done(weir_group_terminated(group)));
    assert_int_equal(weir__group_take(group, &third), 0);
    assert_int_equal(weir_group_count(group), 3);
    weir__group_give_back(group, one.executor); /* which is over */
    assert_use(group, 1, 0);
    weir__group_give_back(group, third);
    end_group(group);
}

/* It is idle, and about to end: not found when somebody looks for one. */
static void a_loop_that_is_ending_is_not_taken(void **state)
{
    (void)state;
    tenant one;
    blocker busy;
    weir_executor *other = NULL;
    weir_group *group = new_blocking(0);
    move_in(&one, group, true);
    move_out(&one);
    block(&busy, one.executor);
    assert_int_equal(weir_executor_shutdown(one.executor, 0, WEIR_SECONDS(1)), 0);
    assert_int_equal(weir__group_take(group, &other), 0);
    assert_ptr_not_equal(other, one.executor);
    assert_use(group, 1, 0);
    unblock(&busy);
    weir_future_await(weir_executor_terminated(one.executor));
    assert_use(group, 1, 0);
    weir__group_give_back(group, other);
    end_group(group);
}

/* When it cannot be made ----------------------------------------------------------------------- */

static void taking_without_memory_changes_nothing(void **state)
{
    (void)state;
    weir_group *group = new_blocking(0);
    weir_executor *executor = NULL;
    unsigned nth = 1;
    for (;; nth++) {
        harness_fail_nth(NULL, nth, -ENOMEM);
        int code = weir__group_take(group, &executor);
        harness_fail_end();
        if (code == 0)
            break;
        assert_int_equal(code, -ENOMEM);
        assert_use(group, 0, 0);
        assert_int_equal(weir_group_count(group), 0);
    }
    assert_int_equal(nth, 3); /* its place, and the loop */
    assert_use(group, 1, 0);
    weir__group_give_back(group, executor);
    end_group(group);
}

/* The eventfd, then the thread: whoever posts hears of it, and the next one has luck. */
static void a_loop_that_cannot_start_can_later(void **state)
{
    (void)state;
    const char *calls[] = { "eventfd", "pthread_create" };
    weir_group *group = new_blocking(0);
    weir_executor *executor = NULL;
    assert_int_equal(weir__group_take(group, &executor), 0);
    for (size_t i = 0; i < 2; i++) {
        probe task = PROBE;
        harness_fail_nth(calls[i], 1, -EMFILE);
        assert_int_equal(weir_executor_post(executor, &task.task), -EMFILE);
        harness_fail_end();
        assert_int_equal(atomic_load(&task.runs) + atomic_load(&task.drops), 0);
    }
    settle(executor);
    weir__group_give_back(group, executor);
    end_group(group);
}

/* The loop itself ------------------------------------------------------------------------------ */

static void s138_timers_fire_though_the_queue_is_never_empty(void **state)
{
    (void)state;
    tenant one;
    mill turning;
    probe_timer timer = PROBE_TIMER;
    weir_group *group = new_blocking(0);
    move_in(&one, group, true);
    start_mill(&turning, one.executor);
    assert_int_equal(weir_timer_schedule(&timer.timer, one.executor, WEIR_MS(1)), 0);
    WAIT_FOR(atomic_load(&timer.fires) == 1);
    assert_echo(&one, "between tasks"); /* and what comes is read */
    stop_mill(&turning);
    move_out(&one);
    end_group(group);
}

static void s138_tasks_and_timers_wake_a_loop_that_waits(void **state)
{
    (void)state;
    tenant one;
    weir_group *group = new_blocking(0);
    move_in(&one, group, true);
    for (int i = 0; i < 20; i++) {
        probe_timer timer = PROBE_TIMER;
        settle(one.executor);
        assert_int_equal(weir_timer_schedule(&timer.timer, one.executor, WEIR_MS(1)), 0);
        WAIT_FOR(atomic_load(&timer.fires) == 1);
        assert_echo(&one, "x");
    }
    move_out(&one);
    end_group(group);
}

/* The loop sleeps, so nothing is counted; but for an idle thread's pool, which is emptied once. */
static void assert_no_spin(const tenant *self)
{
    settle(self->executor);
    WAIT_FOR(weir__executor_is_asleep(self->executor));
    uint64_t polls = loop_stats_of(loop_of(self)).polls;
    usleep(30000);
    assert_true(loop_stats_of(loop_of(self)).polls <= polls + 2);
}

static void readable_or_hung_up_with_nothing_armed_does_not_spin(void **state)
{
    (void)state;
    tenant one;
    weir_group *group = new_blocking(0);
    move_in(&one, group, false);
    assert_int_equal(write(one.peer, "unread", 6), 6);
    assert_no_spin(&one);
    assert_int_equal(shutdown(one.peer, SHUT_RDWR), 0);
    assert_no_spin(&one);
    assert_int_equal(loop_stats_of(loop_of(&one)).receives, 0);
    move_out(&one);
    end_group(group);
}

/* Somebody else closes the descriptor: the receive fails, which a tenant takes for the end. */
static void a_descriptor_that_is_closed_behind_its_back_ends_the_receive(void **state)
{
    (void)state;
    tenant one;
    weir_group *group = new_blocking(0);
    move_in(&one, group, true);
    harness_log_begin(WEIR_LOG_ERROR);
    int kept = dup(one.file.fd);
    assert_true(kept >= 0);
    close(one.file.fd);
    weir_executor_wake(one.executor);
    WAIT_FOR(atomic_load(&one.is_gone));
    WAIT_FOR(idle_of(group) == 1);
    assert_true(harness_log_has("somebody else closed it"));
    harness_log_end();
    close(kept);
    close(one.peer);
    end_group(group);
}

/* A poll that fails is one that failed: the loop goes on. */
typedef struct poll_faults {
    atomic_int left;
    int code;
} poll_faults;

static int fail_polls(void *arg, const char *call, size_t *length)
{
    poll_faults *self = arg;
    (void)length;
    if (strcmp(call, "poll") != 0 || atomic_load(&self->left) <= 0)
        return 0;
    atomic_fetch_sub(&self->left, 1);
    return self->code;
}

static void a_loop_survives_polls_that_fail(void **state)
{
    (void)state;
    const int codes[] = { -EINTR, -ENOMEM };
    tenant one;
    weir_group *group = new_blocking(0);
    move_in(&one, group, true);
    harness_log_begin(WEIR_LOG_ERROR);
    for (size_t i = 0; i < 2; i++) {
        poll_faults faults = { .left = 5, .code = codes[i] };
        weir_fault_set(fail_polls, &faults);
        for (int turns = 0; atomic_load(&faults.left) > 0; turns++)
            settle(one.executor);
        weir_fault_set(NULL, NULL);
        assert_echo(&one, "still there");
    }
    harness_log_end();
    move_out(&one);
    end_group(group);
}

/* Watches and signals are the one descriptor, too -----------------------------------------------
 */

static int start_here(void *arg)
{
    probe_watch *self = arg;
    return weir_watch_start(&self->watch, weir_loop_current(), 0, WEIR_WATCH_READ);
}

static void signal_raised(weir_signal *self, int number)
{
    (void)self;
    (void)number;
}

typedef struct probe_signal {
    weir_signal signal;
    atomic_int code;
} probe_signal;

static void signal_stopped(weir_signal *self, int code)
{
    atomic_store(&WEIR_CONTAINER(self, probe_signal, signal)->code, code);
}

static void a_watch_is_the_one_descriptor(void **state)
{
    (void)state;
    test_pipe pipe = pipe_open();
    probe_watch watch = PROBE_WATCH(1), second = PROBE_WATCH(1), here = PROBE_WATCH(1);
    probe_signal signal = { .signal = { .raised = signal_raised, .stopped = signal_stopped } };
    tenant late = { .group = new_blocking(0) };
    weir_group *group = late.group;
    assert_int_equal(weir__group_take(group, &late.executor), 0);
    weir__group_give_back(group, late.executor);
    assert_use(group, 0, 1);
    weir_loop *loop = loop_of(&late);
    assert_int_equal(weir_watch_start(&watch.watch, loop, pipe.in, WEIR_WATCH_READ), 0);
    settle(late.executor);
    assert_use(group, 1, 0); /* it is no more idle than with a channel */
    pipe_put(&pipe, 1);
    WAIT_FOR(atomic_load(&watch.taken) == 1);
    assert_int_equal(weir_watch_start(&second.watch, loop, pipe.out, WEIR_WATCH_WRITE), 0);
    WAIT_FOR(atomic_load(&second.stops) == 1);
    assert_int_equal(atomic_load(&second.code), -EBUSY);
    assert_int_equal(call_on(late.executor, start_here, &here), -EBUSY);
    assert_int_equal(call_on(late.executor, tenant_enter, &late), -EBUSY);
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    atomic_store(&signal.code, 1);
    assert_int_equal(weir_loop_signal(loop, &signal.signal, SIGUSR1), 0);
    WAIT_FOR(atomic_load(&signal.code) != 1);
    assert_int_equal(atomic_load(&signal.code), -EBUSY);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pipe_put(&pipe, 1); /* the first is as it was */
    WAIT_FOR(atomic_load(&watch.taken) == 2);
    assert_int_equal(weir_watch_stop(&watch.watch), 0);
    WAIT_FOR(atomic_load(&watch.stops) == 1);
    WAIT_FOR(idle_of(group) == 1);
    move_in(&late, group, true);
    move_out(&late);
    pipe_close(&pipe);
    end_group(group);
}

/* It hangs up, and is told as long as it does; one that is stopped is told no more. */
static void stop_self(probe_watch *self)
{
    atomic_store(&self->then_code, weir_watch_stop(&self->watch));
}

static void a_watch_hears_of_a_hangup(void **state)
{
    (void)state;
    test_pipe pipe = pipe_open();
    probe_watch watch = PROBE_WATCH(0);
    weir_executor *executor = NULL;
    weir_group *group = new_blocking(0);
    watch.then = stop_self;
    assert_int_equal(weir__group_take(group, &executor), 0);
    assert_int_equal(weir_watch_start(&watch.watch, weir_executor_loop(executor), pipe.in, 0), 0);
    settle(executor);
    close(pipe.out);
    pipe.out = -1;
    WAIT_FOR(atomic_load(&watch.stops) == 1);
    assert_int_equal(atomic_load(&watch.readies), 1);
    assert_int_equal(atomic_load(&watch.events), WEIR_WATCH_HANGUP);
    assert_int_equal(atomic_load(&watch.code), 0);
    pipe_close(&pipe);
    end_group(group);
}

/* Many at once --------------------------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 60 };

typedef struct crowd {
    weir_group *group;
    atomic_int refused, ended, done;
    atomic_bool is_over;
} crowd;

/* Takes a loop; uses it, or does not; and checks that nobody else has it. */
static void *come_and_go_often(void *arg)
{
    crowd *self = arg;
    unsigned seed = (unsigned)gettid();
    for (int i = 0; i < ROUNDS; i++) {
        tenant one = { .group = self->group };
        int code = weir__group_take(self->group, &one.executor);
        if (code == WEIR_ELIMIT) {
            atomic_fetch_add(&self->refused, 1);
            sched_yield();
            continue;
        }
        if (code == WEIR_ESHUTDOWN) {
            atomic_fetch_add(&self->ended, 1);
            break;
        }
        assert_int_equal(code, 0);
        if (rand_r(&seed) % 3 == 0) {
            weir__group_give_back(self->group, one.executor);
            continue;
        }
        assert_int_equal(call_on(one.executor, tenant_enter, &one), 0);
        assert_int_equal(call_on(one.executor, tenant_go, &one), 0);
        close(one.peer);
    }
    atomic_fetch_add(&self->done, 1);
    return NULL;
}

static void *look_at_all(void *arg)
{
    crowd *self = arg;
    while (!atomic_load(&self->is_over)) {
        weir_group_pending pending;
        size_t count = weir_group_count(self->group);
        for (size_t i = 0; i < count; i++) {
            weir_executor *executor = weir_group_at(self->group, i);
            assert_non_null(executor);
            assert_ptr_equal(weir_executor_group(executor), self->group);
        }
        weir_group_get_pending(self->group, &pending);
        assert_true(active_of(self->group) <= weir_group_count(self->group));
        sched_yield();
    }
    return NULL;
}

static void no_two_get_the_same_loop(void **state)
{
    (void)state;
    for (int max_channels = 0; max_channels <= 4; max_channels += 4) {
        crowd all = { .group = new_blocking(max_channels) };
        pthread_t threads[THREADS], looker;
        assert_int_equal(pthread_create(&looker, NULL, look_at_all, &all), 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, come_and_go_often, &all), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        atomic_store(&all.is_over, true);
        pthread_join(looker, NULL);
        WAIT_FOR(active_of(all.group) == 0);
        size_t count = weir_group_count(all.group);
        assert_int_equal(idle_of(all.group), count);
        assert_true(count > 0);
        if (max_channels > 0)
            assert_true(count <= (size_t)max_channels);
        end_group(all.group);
    }
}

/* Threads that only take and give back, for loops that are ended do not call. */
static void *take_until_the_end(void *arg)
{
    crowd *self = arg;
    weir_executor *executor = NULL;
    int code;
    while ((code = weir__group_take(self->group, &executor)) == 0) {
        weir__group_give_back(self->group, executor);
        atomic_fetch_add(&self->done, 1);
    }
    assert_int_equal(code, WEIR_ESHUTDOWN);
    return NULL;
}

static void ending_while_loops_are_made_ends_them_all(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        crowd all = { .group = new_blocking(0) };
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, take_until_the_end, &all), 0);
        WAIT_FOR(atomic_load(&all.done) > round);
        assert_int_equal(weir_group_shutdown(all.group, 0, WEIR_SECONDS(1)), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(all.group)), 0);
        for (size_t i = 0; i < weir_group_count(all.group); i++)
            assert_int_equal(weir_executor_get_state(weir_group_at(all.group, i)),
                             WEIR_EXECUTOR_TERMINATED);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_use(all.group, 0, 0);
        weir_group_free(all.group);
    }
}

/* More than fit into the first blocks of places. */
static void a_hundred_loops_keep_their_places(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    weir_executor *all[COUNT];
    weir_group *group = new_blocking(COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(weir__group_take(group, &all[i]), 0);
        assert_int_equal(weir_group_count(group), i + 1);
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_ptr_equal(weir_group_at(group, i), all[i]);
    assert_null(weir_group_at(group, COUNT));
    assert_use(group, COUNT, 0);
    for (size_t i = 0; i < COUNT; i++)
        weir__group_give_back(group, all[i]);
    assert_use(group, 0, COUNT);
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_config_that_makes_no_sense_is_refused),
        weir_case(without_memory_there_is_none),
        weir_case(the_environment_can_say_blocking),
        weir_case(a_group_begins_without_loops),
        weir_case(taking_from_another_group_is_choosing),
        weir_case(s134_a_loop_for_each_made_when_it_comes),
        weir_case(idle_loop_releases_its_thread_until_the_next_channel),
        weir_case(thread_started_for_a_task_ends_when_idle),
        weir_case(idle_loop_keeps_its_thread_for_a_timer),
        weir_case(idle_loops_stay_when_the_config_says_so),
        weir_case(idle_loop_keeps_its_thread_for_deferred_calls),
        weir_case(tasks_are_not_lost_when_idle_threads_retire),
        weir_case(s135_no_more_than_max_channels),
        weir_case(s136_idle_when_the_tasks_are_drained),
        weir_case(s136_an_endless_task_does_not_hold_the_place),
        weir_case(s136_taken_and_given_back_it_is_idle),
        weir_case(a_place_given_back_by_who_was_there_is_free_once),
        weir_case(a_resident_that_comes_back_at_once_keeps_its_place),
        weir_case(several_in_one_task_leave_one_place),
        weir_case(s137_a_group_that_is_shutting_down_refuses),
        weir_case(s137_a_loop_that_ends_at_once_leaves_nothing_behind),
        weir_case(s137_also_with_idle_loops_and_with_none),
        weir_case(a_group_that_made_no_loop_ends_at_once),
        weir_case(a_loop_that_was_shut_down_alone_is_not_taken),
        weir_case(a_loop_that_is_ending_is_not_taken),
        weir_case(taking_without_memory_changes_nothing),
        weir_case(a_loop_that_cannot_start_can_later),
        weir_case(s138_timers_fire_though_the_queue_is_never_empty),
        weir_case(s138_tasks_and_timers_wake_a_loop_that_waits),
        weir_case(readable_or_hung_up_with_nothing_armed_does_not_spin),
        weir_case(a_descriptor_that_is_closed_behind_its_back_ends_the_receive),
        weir_case(a_loop_survives_polls_that_fail),
        weir_case(a_watch_is_the_one_descriptor),
        weir_case(a_watch_hears_of_a_hangup),
        weir_case(no_two_get_the_same_loop),
        weir_case(ending_while_loops_are_made_ends_them_all),
        weir_case(a_hundred_loops_keep_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
