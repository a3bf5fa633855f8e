/* SPDX-License-Identifier: MIT */
/* Programs: starting, signals, draining and exit codes. */
#include "bootstrap/servers.h"

#include <weir/app.h>

#include <signal.h>

/* A program under test, and a thread that acts as its clients and its operator. */
typedef struct program {
    weir_app_config config;
    witness seen;
    weir_app *app;
    pthread_t operator;
    void (*operate)(struct program *self);
    atomic_int starts, reloads, drains, stops;
    int code; /* of what the case tries */
} program;

static void *run_operator(void *arg)
{
    program *self = arg;
    self->operate(self);
    return NULL;
}

static int start_operator(weir_app *app, void *arg, weir_error *error)
{
    program *self = arg;
    (void)error;
    self->app = app;
    atomic_fetch_add(&self->starts, 1);
    return self->operate != NULL ? -pthread_create(&self->operator, NULL, run_operator, self) : 0;
}

static void count_drain(weir_app *app, void *arg)
{
    assert_true(weir_app_is_stopping(app));
    atomic_fetch_add(&((program *)arg)->drains, 1);
}

static void count_stop(weir_app *app, void *arg)
{
    program *self = arg;
    assert_false(weir_future_is_done(weir_group_terminated(weir_app_workers(app))));
    atomic_fetch_add(&self->stops, 1);
}

static void prepare_program(program *self, const backend *with, void (*operate)(program *self))
{
    memset(self, 0, sizeof *self);
    pthread_mutex_init(&self->seen.lock, NULL);
    self->operate = operate;
    self->config = (weir_app_config){
        .name = "test",
        .address = EVERYWHERE,
        .server = { .init_child = init_echo, .arg = &self->seen },
        .boss = { .io = with->io, .watchdog_ns = WEIR_OFF },
        .workers = { .io = with->io, .watchdog_ns = WEIR_OFF },
        .on_start = start_operator,
        .on_drain = count_drain,
        .on_stop = count_stop,
        .arg = self,
    };
}

static int run_program(program *self)
{
    int exit_code = weir_app_run(&self->config);
    if (self->operate != NULL && atomic_load(&self->starts) == 1)
        pthread_join(self->operator, NULL);
    pthread_mutex_destroy(&self->seen.lock);
    return exit_code;
}

static weir_server *first_server(const program *self)
{
    return weir_app_server(self->app, 0);
}

/* Ends by signals ------------------------------------------------------------------------------ */

static void talk_and_interrupt(program *self)
{
    int fd = dial(first_server(self));
    talk(fd);
    close(fd);
    kill(getpid(), SIGINT);
}

static void app_serves_until_a_signal(void **state)
{
    program self;
    prepare_program(&self, *state, talk_and_interrupt);
    assert_int_equal(run_program(&self), 0);
    assert_int_equal(atomic_load(&self.seen.reads), 1);
    assert_int_equal(atomic_load(&self.drains), 1);
    assert_int_equal(atomic_load(&self.stops), 1);
}

static void terminate_twice(program *self)
{
    int fd = dial(first_server(self));
    talk(fd);
    kill(getpid(), SIGTERM);
    WAIT_FOR(atomic_load(&self->drains) == 1);
    talk(fd); /* the connection goes on */
    kill(getpid(), SIGTERM);
    hear_end(fd);
    close(fd);
}

static void second_signal_closes_connections(void **state)
{
    program self;
    prepare_program(&self, *state, terminate_twice);
    self.config.drain_timeout_ns = WEIR_OFF;
    assert_int_equal(run_program(&self), 0);
}

static void leave_it_to_the_timeout(program *self)
{
    int fd = dial(first_server(self));
    talk(fd);
    weir_app_stop(self->app, 0);
    hear_end(fd);
    close(fd);
}

static void drain_ends_after_its_timeout(void **state)
{
    program self;
    prepare_program(&self, *state, leave_it_to_the_timeout);
    self.config.drain_timeout_ns = WEIR_MS(20);
    assert_int_equal(run_program(&self), 0);
}

static void drain_ends_when_connections_leave(void **state)
{
    program self;
    prepare_program(&self, *state, leave_it_to_the_timeout);
    atomic_store(&self.seen.leaves, true);
    self.config.drain_timeout_ns = WEIR_OFF;
    assert_int_equal(run_program(&self), 0);
    assert_int_equal(atomic_load(&self.seen.drains), 1);
}

/* Ends by calls -------------------------------------------------------------------------------- */

static void stop_with_7(program *self)
{
    weir_app_stop(self->app, 7);
    weir_app_stop(self->app, 9);
}

static void first_exit_code_counts(void **state)
{
    program self;
    prepare_program(&self, *state, stop_with_7);
    assert_int_equal(run_program(&self), 7);
    assert_int_equal(atomic_load(&self.drains), 1);
}

static int stop_at_start(weir_app *app, void *arg, weir_error *error)
{
    program *self = arg;
    (void)error;
    self->app = app;
    weir_app_stop(app, 3);
    assert_true(weir_app_is_stopping(app));
    return 0;
}

static void stop_in_on_start_ends_the_app(void **state)
{
    program self;
    prepare_program(&self, *state, NULL);
    self.config.on_start = stop_at_start;
    assert_int_equal(run_program(&self), 3);
    assert_int_equal(atomic_load(&self.stops), 1);
}

static int stop_with_negative_codes(weir_app *app, void *arg, weir_error *error)
{
    (void)arg;
    (void)error;
    weir_app_stop(app, -1);
    weir_app_stop(app, 4);
    return 0;
}

static void negative_exit_code_is_returned(void **state)
{
    program self;
    prepare_program(&self, *state, NULL);
    self.config.on_start = stop_with_negative_codes;
    assert_int_equal(run_program(&self), -1);
}

static void stop_and_unhold(program *self)
{
    weir_app_stop(self->app, 0);
    WAIT_FOR(atomic_load(&self->drains) == 1);
    assert_int_equal(atomic_load(&self->stops), 0);
    weir_app_unhold(self->app);
}

static int hold_at_start(weir_app *app, void *arg, weir_error *error)
{
    weir_app_hold(app);
    return start_operator(app, arg, error);
}

static void hold_delays_the_end(void **state)
{
    program self;
    prepare_program(&self, *state, stop_and_unhold);
    self.config.address = NULL;
    self.config.on_start = hold_at_start;
    self.config.drain_timeout_ns = WEIR_OFF;
    assert_int_equal(run_program(&self), 0);
}

static void stop_once(program *self)
{
    weir_app_stop(self->app, 0);
}

static void hold_ends_with_the_timeout(void **state)
{
    program self;
    prepare_program(&self, *state, stop_once);
    self.config.on_start = hold_at_start;
    self.config.drain_timeout_ns = WEIR_MS(10);
    assert_int_equal(run_program(&self), 0);
    assert_int_equal(atomic_load(&self.stops), 1);
}

/* Starting ------------------------------------------------------------------------------------- */

static void app_that_cannot_listen_logs_the_address(void **state)
{
    program self;
    prepare_program(&self, *state, stop_once);
    self.config.address = "127.0.0.1:port";
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(run_program(&self), 1);
    assert_true(harness_log_has("127.0.0.1:port"));
    harness_log_end();
    assert_int_equal(atomic_load(&self.starts), 0);
    assert_int_equal(atomic_load(&self.stops), 0);
}

static int fail_to_start(weir_app *app, void *arg, weir_error *error)
{
    const program *self = arg;
    (void)app;
    return self->code == -EIO ? weir_error_set(error, -EIO, "case", "the disk is gone")
                              : self->code;
}

static void on_start_that_fails_ends_the_app(void **state)
{
    static const struct {
        int code;
        const char *text;
    } rows[] = { { -EIO, "the disk is gone" }, { -ENOENT, "cannot start: No such file" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        program self;
        prepare_program(&self, *state, NULL);
        self.code = rows[i].code;
        self.config.on_start = fail_to_start;
        harness_log_begin(WEIR_LOG_ERROR);
        assert_int_equal(run_program(&self), 1);
        assert_true(harness_log_has(rows[i].text));
        harness_log_end();
        assert_int_equal(atomic_load(&self.stops), 1);
        assert_int_equal(atomic_load(&self.drains), 0);
    }
    assert_int_equal(weir_app_run(NULL), -1);
}

static int return_a_positive_code(weir_app *app, void *arg, weir_error *error)
{
    (void)app;
    (void)arg;
    (void)error;
    return 3;
}

static void positive_code_of_a_callback_is_an_error(void **state)
{
    for (int is_init = 0; is_init < 2; is_init++) {
        program self;
        prepare_program(&self, *state, NULL);
        self.config.on_start = is_init ? NULL : return_a_positive_code;
        self.config.on_init = is_init ? return_a_positive_code : NULL;
        harness_log_begin(WEIR_LOG_ERROR);
        assert_int_equal(run_program(&self), 1);
        assert_true(harness_log_has("returned 3"));
        harness_log_end();
    }
}

/* The error of a call that the callback has recovered from is not that of the app. */
static int fail_after_another_failure(weir_app *app, void *arg, weir_error *error)
{
    (void)arg;
    weir_app_listen(app, &(weir_server_config){ 0 }, "127.0.0.1:port", error);
    return -ENOENT;
}

static void last_code_of_a_callback_is_logged(void **state)
{
    program self;
    prepare_program(&self, *state, NULL);
    self.config.on_start = fail_after_another_failure;
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(run_program(&self), 1);
    assert_true(harness_log_has("cannot start: No such file"));
    harness_log_end();
}

static void manual_groups_are_rejected(void **state)
{
    for (int is_boss = 0; is_boss < 2; is_boss++) {
        program self;
        prepare_program(&self, *state, NULL);
        *(is_boss ? &self.config.boss.is_manual : &self.config.workers.is_manual) = true;
        harness_log_begin(WEIR_LOG_ERROR);
        assert_int_equal(run_program(&self), 1);
        assert_true(harness_log_has("is_manual"));
        harness_log_end();
    }
}

static int fail_before_listening(weir_app *app, void *arg, weir_error *error)
{
    (void)arg;
    assert_null(weir_app_server(app, 0));
    assert_non_null(weir_app_workers(app));
    assert_int_equal(weir_app_connections(app), 0);
    return weir_error_set(error, -EIO, "case", "no config file");
}

static void on_init_runs_before_the_server_listens(void **state)
{
    program self;
    prepare_program(&self, *state, NULL);
    self.config.on_init = fail_before_listening;
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(run_program(&self), 1);
    assert_true(harness_log_has("no config file"));
    harness_log_end();
    assert_int_equal(atomic_load(&self.starts), 0);
    assert_int_equal(atomic_load(&self.stops), 0);
}

static int check_io(weir_app *app, void *arg, weir_error *error)
{
    const program *self = arg;
    weir_group *expected = NULL;
    assert_int_equal(weir_group_new(&expected, &(weir_group_config){ .io = self->config.io }, NULL),
                     0);
    assert_string_equal(weir_group_chooser_name(weir_app_boss(app)),
                        weir_group_chooser_name(expected));
    if (weir_group_next_loop(expected) != NULL)
        assert_string_equal(weir_loop_io_name(weir_group_next_loop(weir_app_workers(app))),
                            weir_loop_io_name(weir_group_next_loop(expected)));
    weir_group_free(expected);
    return stop_at_start(app, arg, error);
}

static void app_chooses_the_io_of_both_groups(void **state)
{
    const backend *with = *state;
    program self;
    prepare_program(&self, with, NULL);
    self.config.io = with->io;
    self.config.boss.io = self.config.workers.io = WEIR_IO_AUTO;
    self.config.on_start = check_io;
    assert_int_equal(run_program(&self), 3);
}

static void talk_to_both(program *self)
{
    for (size_t i = 0; i < 2; i++) {
        int fd = dial(weir_app_server(self->app, i));
        talk(fd);
        close(fd);
    }
    weir_app_stop(self->app, 0);
}

static int listen_once_more(weir_app *app, void *arg, weir_error *error)
{
    program *self = arg;
    int code = weir_app_listen(app, &self->config.server, EVERYWHERE, error);
    assert_non_null(weir_app_server(app, 1));
    assert_null(weir_app_server(app, 2));
    assert_ptr_equal(weir_server_workers(weir_app_server(app, 1)), weir_app_workers(app));
    assert_ptr_equal(weir_server_boss(weir_app_server(app, 1)), weir_app_boss(app));
    return code < 0 ? code : start_operator(app, arg, error);
}

static void app_has_several_servers(void **state)
{
    program self;
    prepare_program(&self, *state, talk_to_both);
    self.config.on_start = listen_once_more;
    assert_int_equal(run_program(&self), 0);
    assert_int_equal(atomic_load(&self.seen.reads), 2);
}

static void listen_late(weir_app *app, void *arg)
{
    program *self = arg;
    self->code = weir_app_listen(app, &self->config.server, EVERYWHERE, NULL);
    assert_null(weir_app_server(app, 1));
}

static void draining_app_does_not_listen(void **state)
{
    program self;
    prepare_program(&self, *state, stop_once);
    self.config.on_drain = listen_late;
    assert_int_equal(run_program(&self), 0);
    assert_int_equal(self.code, WEIR_ESHUTDOWN);
    assert_int_equal(weir_app_listen(NULL, &self.config.server, EVERYWHERE, NULL), -EINVAL);
}

/* Reloading ------------------------------------------------------------------------------------ */

/* A callback may wait: the loop of the app is not running meanwhile. */
static void listen_on_reload(weir_app *app, void *arg)
{
    program *self = arg;
    assert_int_equal(weir_app_listen(app, &self->config.server, EVERYWHERE, NULL), 0);
    atomic_fetch_add(&self->reloads, 1);
}

static void hang_up_and_talk(program *self)
{
    kill(getpid(), SIGHUP);
    WAIT_FOR(atomic_load(&self->reloads) == 1);
    talk_to_both(self);
}

static void hang_up_calls_on_reload(void **state)
{
    program self;
    prepare_program(&self, *state, hang_up_and_talk);
    self.config.on_reload = listen_on_reload;
    assert_int_equal(run_program(&self), 0);
    assert_int_equal(atomic_load(&self.reloads), 1);
}

/* Timers of the app's loop run on the thread of weir_app_run. */
typedef struct app_timer {
    weir_timer timer;
    weir_app *app;
    int tid;
} app_timer;

static int stop_in_timer(weir_timer *timer)
{
    app_timer *self = WEIR_CONTAINER(timer, app_timer, timer);
    self->tid = (int)gettid();
    weir_app_stop(self->app, 0);
    return 0;
}

static int schedule_timer(weir_app *app, void *arg, weir_error *error)
{
    app_timer *self = arg;
    (void)error;
    self->app = app;
    self->timer.fire = stop_in_timer;
    return weir_timer_schedule(&self->timer, weir_loop_executor(weir_app_loop(app)), WEIR_MS(1));
}

static void timers_run_on_the_app_thread(void **state)
{
    (void)state;
    app_timer self = { .tid = 0 };
    weir_app_config config = { .on_start = schedule_timer, .arg = &self };
    config.boss.watchdog_ns = config.workers.watchdog_ns = WEIR_OFF;
    assert_int_equal(weir_app_run(&config), 0);
    assert_int_equal(self.tid, (int)gettid());
}

/* Faults --------------------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    unsigned nth = 0, made;
    do {
        nth++;
        program self;
        prepare_program(&self, *state, NULL);
        self.config.on_start = stop_at_start;
        harness_log_begin(WEIR_LOG_ERROR);
        harness_fail_nth("alloc", nth, -ENOMEM);
        int exit_code = run_program(&self);
        made = harness_fail_end();
        harness_log_end();
        assert_true(exit_code == 1 || exit_code == 3);
    } while (made >= nth);
    assert_true(nth > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(app_serves_until_a_signal),
        each_backend(second_signal_closes_connections),
        each_backend(drain_ends_after_its_timeout),
        each_backend(drain_ends_when_connections_leave),
        each_backend(first_exit_code_counts),
        each_backend(stop_in_on_start_ends_the_app),
        each_backend(negative_exit_code_is_returned),
        each_backend(positive_code_of_a_callback_is_an_error),
        each_backend(last_code_of_a_callback_is_logged),
        each_backend(manual_groups_are_rejected),
        each_backend(hold_delays_the_end),
        each_backend(hold_ends_with_the_timeout),
        each_backend(app_that_cannot_listen_logs_the_address),
        each_backend(on_start_that_fails_ends_the_app),
        each_backend(on_init_runs_before_the_server_listens),
        each_backend(app_chooses_the_io_of_both_groups),
        each_backend(app_has_several_servers),
        each_backend(draining_app_does_not_listen),
        each_backend(hang_up_calls_on_reload),
        each_backend(timers_run_on_the_app_thread),
        each_backend(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
