/* SPDX-License-Identifier: MIT */
/* The reactor models: which threads accept, and which serve. */
#include "bootstrap/servers.h"

#include <weir/accepted.h>

/* Rows 1 to 6 speak of numbers of loops. A blocking group has one for each channel instead: then as
 * many threads serve as there are connections at a time, and the rest of each row holds. */
static size_t serving_threads(const void *state, size_t loops, size_t connections)
{
    return ((const backend *)state)->io == WEIR_IO_BLOCKING ? connections : loops;
}

static void talk_with(weir_server *server, int clients)
{
    int fds[64];
    assert_true(clients <= (int)COUNT(fds));
    for (int i = 0; i < clients; i++)
        fds[i] = dial(server);
    for (int i = 0; i < clients; i++)
        talk(fds[i]);
    for (int i = 0; i < clients; i++)
        close(fds[i]);
}

static bool has_tid(const int *tids, size_t count, int tid)
{
    while (count > 0 && tids[count - 1] != tid)
        count--;
    return count > 0;
}

static size_t started_threads(const weir_group *group)
{
    size_t started = 0;
    for (size_t i = 0; i < weir_group_count(group); i++)
        started += weir_executor_get_state(weir_group_at(group, i)) != WEIR_EXECUTOR_NOT_STARTED;
    return started;
}

static void s001_one_loop_does_everything(void **state)
{
    setup self;
    open_server(&self, *state, 1, 0);
    talk_with(self.server, 10);
    WAIT_FOR(atomic_load(&self.seen.inactives) == 10);
    size_t serving = serving_threads(*state, 1, 10);
    assert_int_equal(self.seen.accept_tid_count, 1);
    assert_int_equal(self.seen.child_tid_count, serving);
    assert_int_equal(has_tid(self.seen.child_tids, serving, self.seen.accept_tids[0]),
                     serving == 1);
    assert_int_equal(started_threads(self.boss), serving == 1 ? 1 : 1 + serving);
    close_all(&self);
}

static void s002_one_accepts_and_the_others_serve(void **state)
{
    setup self;
    open_server(&self, *state, 1, 3);
    talk_with(self.server, 12);
    WAIT_FOR(atomic_load(&self.seen.inactives) == 12);
    assert_int_equal(self.seen.accept_tid_count, 1);
    size_t serving = serving_threads(*state, 3, 12);
    assert_int_equal(self.seen.child_tid_count, serving);
    assert_false(has_tid(self.seen.child_tids, serving, self.seen.accept_tids[0]));
    assert_int_equal(started_threads(self.boss), 1);
    assert_int_equal(started_threads(self.workers), serving);
    close_all(&self);
}

static void s003_one_listener_uses_one_boss_loop(void **state)
{
    setup self;
    open_server(&self, *state, 4, 2);
    for (int i = 0; i < 4; i++)
        talk_with(self.server, 25);
    WAIT_FOR(atomic_load(&self.seen.inactives) == 100);
    assert_int_equal(started_threads(self.boss), 1);
    assert_int_equal(self.seen.accept_tid_count, 1);
    close_all(&self);
}

static void s004_several_accept_on_one_address(void **state)
{
    setup self;
    prepare(&self, *state, 4, 2);
    self.config.acceptors = 4;
    listen_on(&self, EVERYWHERE);
    assert_int_equal(weir_server_listener_count(self.server), 4);
    for (int i = 0; i < 2000; i++)
        close(dial(self.server));
    WAIT_FOR(server_stats(self.server).accepted == 2000);
    WAIT_FOR(atomic_load(&self.seen.inactives) == atomic_load(&self.seen.actives) &&
             server_stats(self.server).connections == 0);
    assert_true(self.seen.accept_tid_count >= 2);
    uint64_t sum = 0;
    weir_loop *loops[4];
    for (size_t i = 0; i < 4; i++) {
        weir_channel *listener = weir_server_listener(self.server, i);
        weir_listener_stats stats;
        assert_int_equal(weir_channel_listener_stats(listener, &stats), 0);
        sum += stats.accepted;
        loops[i] = weir_channel_loop(listener);
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(loops[i], loops[j]);
        weir_channel_release(listener);
    }
    assert_int_equal(sum, 2000);
    close_all(&self);
}

static void s005_successive_servers_take_successive_loops(void **state)
{
    setup self;
    weir_server *second = NULL;
    open_server(&self, *state, 2, 1);
    assert_int_equal(weir_server_listen(&second, &self.config, EVERYWHERE, NULL), 0);
    weir_channel *a = weir_server_listener(self.server, 0), *b = weir_server_listener(second, 0);
    assert_ptr_not_equal(weir_channel_loop(a), weir_channel_loop(b));
    weir_channel_release(a);
    weir_channel_release(b);
    talk_with(self.server, 3);
    talk_with(second, 3);
    assert_int_equal(close_server(second), 0);
    weir_server_release(second);
    close_all(&self);
}

static void s006_one_group_has_both_roles(void **state)
{
    for (int as_workers = 0; as_workers < 2; as_workers++) {
        setup self;
        prepare(&self, *state, 2, 0);
        self.config.workers = as_workers ? self.boss : NULL;
        self.config.boss = as_workers ? NULL : self.boss;
        listen_on(&self, EVERYWHERE);
        assert_ptr_equal(weir_server_boss(self.server), self.boss);
        assert_ptr_equal(weir_server_workers(self.server), self.boss);
        talk_with(self.server, 5);
        close_all(&self);
    }
}

static void connections_can_stay_where_they_were_accepted(void **state)
{
    setup self;
    prepare(&self, *state, 3, 0);
    self.config.acceptors = 1;
    self.config.keeps_loop = true;
    listen_on(&self, EVERYWHERE);
    talk_with(self.server, 20);
    assert_int_equal(started_threads(self.boss), 1);
    assert_int_equal(self.seen.child_tid_count, 1);
    close_all(&self);
}

static void connections_can_be_steered_by_cpu(void **state)
{
    setup self;
    prepare(&self, *state, 2, 2);
    self.config.acceptors = 2;
    self.config.steers_by_cpu = true;
    listen_on(&self, EVERYWHERE);
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    uint64_t expected[2] = { 0, 0 };
    for (size_t cpu = 0; cpu < 64; cpu++) {
        if (!CPU_ISSET(cpu, &before))
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        for (int i = 0; i < 10; i++) {
            int fd = dial(self.server);
            talk(fd);
            close(fd);
        }
        expected[cpu % 2] += 10;
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    /* Over the loopback a connection comes in on the CPU of who makes it. */
    for (size_t i = 0; i < 2; i++) {
        weir_channel *listener = weir_server_listener(self.server, i);
        weir_listener_stats stats;
        assert_int_equal(weir_channel_listener_stats(listener, &stats), 0);
        assert_int_equal(stats.accepted, expected[i]);
        weir_channel_release(listener);
    }
    close_all(&self);
}

static void several_acceptors_need_ports(void **state)
{
    static const char *const addresses[] = { "unix:@weir-two", "unix:/tmp/weir-two", "local:two" };
    setup self;
    prepare(&self, *state, 2, 1);
    self.config.acceptors = 2;
    for (size_t i = 0; i < COUNT(addresses); i++) {
        weir_error error = { 0 };
        char says[128];
        snprintf(says, sizeof says,
                 "acceptors is 2, but only a port can have more than one "
                 "listener: set it to 1 for %s",
                 addresses[i]);
        assert_int_equal(weir_server_listen(&self.server, &self.config, addresses[i], &error),
                         -EINVAL);
        assert_string_equal(error.message, says);
        assert_null(self.server);
    }
    self.config.acceptors = 1;
    listen_on(&self, addresses[0]);
    close_all(&self);
}

/* Duties --------------------------------------------------------------------------------------- */

/* A client says "sleep": the handler keeps its loop until it is let go. */
static atomic_int sleepers, may_wake;

static void sleepy_on_read(weir_ctx *ctx, weir_msg *msg)
{
    char first = '\0';
    weir_buf_get_bytes((weir_buf *)msg, 0, &first, 1);
    if (first == 's') {
        atomic_fetch_add(&sleepers, 1);
        WAIT_FOR(atomic_load(&may_wake));
    }
    weir_ctx_write(ctx, msg, NULL);
    weir_ctx_flush(ctx);
}

static const weir_handler_type sleepy_type = { .name = "sleepy", .on_read = sleepy_on_read };

static int init_sleepy(weir_channel *child, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(child), "sleepy", &sleepy_type, arg);
}

/* Row 10 with a condition in place of the 300 ms: those of the same loop wait, others do not. */
static void s010_a_handler_that_blocks_stalls_its_loop_only(void **state)
{
    setup self;
    atomic_store(&sleepers, 0);
    atomic_store(&may_wake, 0);
    prepare(&self, *state, 1, 2);
    self.config.init_child = init_sleepy;
    listen_on(&self, EVERYWHERE);
    int fds[4]; /* the loops take turns */
    for (int i = 0; i < 4; i++) {
        fds[i] = dial(self.server);
        talk(fds[i]);
    }
    say(fds[0], "sleep");
    WAIT_FOR(atomic_load(&sleepers) == 1);
    say(fds[2], "hello");
    for (int i = 0; i < 100; i++) {
        talk(fds[1]);
        talk(fds[3]);
        bool is_blocking = ((const backend *)*state)->io == WEIR_IO_BLOCKING;
        assert_true(is_blocking || is_silent(fds[2]));
        assert_true(is_silent(fds[0]));
    }
    atomic_store(&may_wake, 1);
    hear(fds[0], "sleep");
    hear(fds[2], "hello");
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    close_all(&self);
}

/* Five stages, each a handler that notes its turn. */
typedef struct stages {
    setup self;
    pthread_mutex_t lock;
    char order[256];
} stages;

static void note_stage(weir_ctx *ctx)
{
    stages *self = weir_ctx_arg(ctx);
    pthread_mutex_lock(&self->lock);
    strcat(strcat(self->order, weir_ctx_name(ctx)), " ");
    pthread_mutex_unlock(&self->lock);
}

static void stage_on_read(weir_ctx *ctx, weir_msg *msg)
{
    note_stage(ctx);
    weir_ctx_fire_read(ctx, msg);
}

static void process_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_buf *buf = (weir_buf *)msg;
    note_stage(ctx);
    char text[64];
    size_t length = weir_buf_readable(buf);
    assert_true(length < sizeof text);
    assert_int_equal(weir_buf_read_bytes(buf, text, length), 0);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 'a' + 'A' : text[i]);
    weir_msg_release(msg);
    weir_ctx_write(ctx, &weir_buf_from(text, length)->msg, NULL);
    weir_ctx_flush(ctx);
}

static void stage_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    note_stage(ctx);
    weir_ctx_write(ctx, msg, promise);
}

static const weir_handler_type in_type = { .name = "in", .on_read = stage_on_read };
static const weir_handler_type out_type = { .name = "out", .write = stage_write };
static const weir_handler_type process_type = { .name = "process", .on_read = process_on_read };

static int init_stages(weir_channel *child, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(child);
    int code = weir_pipeline_add_last(pipeline, "send", &out_type, arg);
    code = code < 0 ? code : weir_pipeline_add_last(pipeline, "encode", &out_type, arg);
    code = code < 0 ? code : weir_pipeline_add_last(pipeline, "read", &in_type, arg);
    code = code < 0 ? code : weir_pipeline_add_last(pipeline, "decode", &in_type, arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "process", &process_type, arg);
}

static void s012_requests_go_through_five_stages(void **state)
{
    stages self = { 0 };
    pthread_mutex_init(&self.lock, NULL);
    prepare(&self.self, *state, 1, 1);
    self.self.config.init = NULL;
    self.self.config.init_child = init_stages;
    self.self.config.arg = &self;
    listen_on(&self.self, EVERYWHERE);
    int fd = dial(self.self.server);
    for (int i = 0; i < 3; i++) {
        say(fd, "shout");
        hear(fd, "SHOUT");
        pthread_mutex_lock(&self.lock);
        assert_string_equal(self.order, "read decode process encode send ");
        self.order[0] = '\0';
        pthread_mutex_unlock(&self.lock);
    }
    close(fd);
    close_all(&self.self);
    pthread_mutex_destroy(&self.lock);
}

/* What happened where. */
typedef struct duties {
    setup self;
    atomic_int boss_tid, worker_tid; /* 0: not known yet; -1: several */
    atomic_int timers, tasks;
    weir_timer timer;
    weir_task task;
} duties;

static void note_duty(atomic_int *tid)
{
    int expected = 0, here = (int)gettid();
    if (!atomic_compare_exchange_strong(tid, &expected, here) && expected != here)
        atomic_store(tid, -1);
}

static int duty_timer(weir_timer *timer)
{
    duties *self = WEIR_CONTAINER(timer, duties, timer);
    note_duty(&self->worker_tid);
    atomic_fetch_add(&self->timers, 1);
    return 0;
}

static int duty_task(weir_task *task)
{
    duties *self = WEIR_CONTAINER(task, duties, task);
    note_duty(&self->worker_tid);
    atomic_fetch_add(&self->tasks, 1);
    return 0;
}

static void listener_event(weir_ctx *ctx)
{
    note_duty(&((duties *)weir_ctx_arg(ctx))->boss_tid);
    weir_ctx_fire_active(ctx);
}

static void listener_on_read(weir_ctx *ctx, weir_msg *msg)
{
    note_duty(&((duties *)weir_ctx_arg(ctx))->boss_tid);
    assert_ptr_equal(msg->type, &weir_accepted_type);
    weir_ctx_fire_read(ctx, msg);
}

static void child_on_read(weir_ctx *ctx, weir_msg *msg)
{
    duties *self = weir_ctx_arg(ctx);
    note_duty(&self->worker_tid);
    weir_timer_schedule(&self->timer, weir_ctx_executor(ctx), WEIR_MS(1));
    weir_executor_post(weir_ctx_executor(ctx), &self->task);
    weir_ctx_write(ctx, msg, NULL);
    weir_ctx_flush(ctx);
}

static void child_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    note_duty(&((duties *)weir_ctx_arg(ctx))->worker_tid);
    weir_ctx_write(ctx, msg, promise);
}

static const weir_handler_type boss_duties = { .name = "boss",
                                               .on_active = listener_event,
                                               .on_read = listener_on_read };
static const weir_handler_type worker_duties = { .name = "worker",
                                                 .on_read = child_on_read,
                                                 .write = child_write };

static int init_boss(weir_channel *listener, void *arg)
{
    note_duty(&((duties *)arg)->boss_tid);
    return weir_pipeline_add_last(weir_channel_pipeline(listener), "boss", &boss_duties, arg);
}

static int init_worker(weir_channel *child, void *arg)
{
    note_duty(&((duties *)arg)->worker_tid);
    int code = weir_pipeline_add_last(weir_channel_pipeline(child), "write", &worker_duties, arg);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(child), "read", &worker_duties, arg);
}

static void s013_the_boss_accepts_and_the_worker_works(void **state)
{
    duties self = { .timer = { .fire = duty_timer }, .task = { .run = duty_task } };
    prepare(&self.self, *state, 1, 1);
    self.self.config.init = init_boss;
    self.self.config.init_child = init_worker;
    self.self.config.arg = &self;
    listen_on(&self.self, EVERYWHERE);
    int fd = dial(self.self.server);
    talk(fd);
    WAIT_FOR(atomic_load(&self.timers) == 1 && atomic_load(&self.tasks) == 1);
    assert_true(atomic_load(&self.boss_tid) > 0);
    assert_true(atomic_load(&self.worker_tid) > 0);
    assert_int_not_equal(atomic_load(&self.boss_tid), atomic_load(&self.worker_tid));
    close(fd);
    close_all(&self.self);
}

/* Hard use ------------------------------------------------------------------------------------- */

typedef struct churner {
    pthread_t thread;
    weir_address address;
    unsigned seed;
    int count, made;
} churner;

static void churn_one(churner *self)
{
    static const struct linger reset = { .l_onoff = 1 };
    char bytes[512] = { 0 };
    int fd = try_dial(&self->address);
    if (fd < 0)
        return;
    self->made++;
    int kind = rand_r(&self->seed) % 4;
    if (kind > 0)
        (void)!send(fd, bytes, (size_t)(rand_r(&self->seed) % 512), MSG_NOSIGNAL);
    if (kind == 2)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (kind == 3) {
        shutdown(fd, SHUT_WR);
        while (recv(fd, bytes, sizeof bytes, 0) > 0)
            ;
    }
    close(fd);
}

static void *churn(void *arg)
{
    churner *self = arg;
    memset((void *)&self->made, 0, sizeof self->made);
    for (int i = 0; i < self->count; i++)
        churn_one(self);
    return NULL;
}

static void thousands_come_and_go_until_the_end(void **state)
{
    setup self;
    churner churners[4];
    bool is_blocking = ((const backend *)*state)->io == WEIR_IO_BLOCKING;
    prepare(&self, *state, 2, 2);
    self.config.acceptors = 2;
    listen_on(&self, EVERYWHERE);
    for (size_t i = 0; i < COUNT(churners); i++) {
        churners[i] = (churner){ .address = address_of_server(self.server),
                                 .seed = (unsigned)i + 1,
                                 .count = is_blocking ? 250 : 1250 };
        pthread_create(&churners[i].thread, NULL, churn, &churners[i]);
    }
    WAIT_FOR(server_stats(self.server).accepted > (is_blocking ? 800 : 4000));
    weir_promise *promise = new_promise();
    weir_server_drain(self.server, WEIR_MS(50), promise);
    assert_int_equal(end_of(promise), 0);
    weir_listener_stats stats = server_stats(self.server);
    assert_int_equal(stats.connections, 0);
    for (size_t i = 0; i < COUNT(churners); i++)
        pthread_join(churners[i].thread, NULL);
    WAIT_FOR(atomic_load(&self.seen.actives) == atomic_load(&self.seen.inactives));
    close_all(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(s001_one_loop_does_everything),
        each_backend(s002_one_accepts_and_the_others_serve),
        each_backend(s003_one_listener_uses_one_boss_loop),
        each_backend(s004_several_accept_on_one_address),
        each_backend(s005_successive_servers_take_successive_loops),
        each_backend(s006_one_group_has_both_roles),
        epoll_only(connections_can_stay_where_they_were_accepted),
        each_backend(connections_can_be_steered_by_cpu),
        each_backend(several_acceptors_need_ports),
        each_backend(s010_a_handler_that_blocks_stalls_its_loop_only),
        each_backend(s012_requests_go_through_five_stages),
        each_backend(s013_the_boss_accepts_and_the_worker_works),
        each_backend(thousands_come_and_go_until_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
