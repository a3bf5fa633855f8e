/* SPDX-License-Identifier: MIT */
/* Programs: groups, servers, signals and an orderly end. */
#include <weir/app.h>

#include <weir/alloc.h>
#include <weir/future.h>
#include <weir/log.h>
#include <weir/signal.h>
#include <weir/timer.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_DRAIN_NS WEIR_SECONDS(10)

typedef struct app_server {
    struct app_server *next;
    weir_app *app;
    weir_server *server;
    weir_listener on_drained;
} app_server;

/* Signals and other threads only change the fields under the lock and wake the loop; app_react acts
 * on them. */
struct weir_app {
    const weir_app_config *config;
    weir_group *main_group; /* manual: its loop runs inside of weir_app_run */
    weir_group *boss, *workers;
    app_server *servers, **last_server;
    weir_signal interrupt, terminate, hang_up;
    weir_timer deadline;
    size_t draining; /* servers */
    int stops_seen;
    int reloads;     /* that on_reload was not called for */
    bool is_running; /* on_start has returned 0 */
    bool is_late;    /* the drain has had its time */

    pthread_mutex_t lock; /* also held while the loop is woken, so that it does not end meanwhile */
    int stops, holds;
    bool has_exit_code;
    int exit_code;
};

static const char *name_of(const weir_app *self)
{
    return self->config->name != NULL ? self->config->name : "weir";
}

static weir_executor *main_executor(const weir_app *self)
{
    return weir_group_at(self->main_group, 0);
}

static int64_t drain_timeout(const weir_app *self)
{
    int64_t chosen_ns = self->config->drain_timeout_ns;
    return chosen_ns != 0 ? chosen_ns : DEFAULT_DRAIN_NS;
}

/* Stopping ------------------------------------------------------------------------------------- */

static void request_stop(weir_app *self, const int *exit_code)
{
    pthread_mutex_lock(&self->lock);
    self->stops++;
    if (exit_code != NULL && !self->has_exit_code) {
        self->has_exit_code = true;
        self->exit_code = *exit_code;
    }
    weir_executor_wake(main_executor(self));
    pthread_mutex_unlock(&self->lock);
}

void weir_app_stop(weir_app *self, int exit_code)
{
    request_stop(self, &exit_code);
}

static int count_stops(const weir_app *self)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&self->lock;
    pthread_mutex_lock(lock);
    int stops = self->stops;
    pthread_mutex_unlock(lock);
    return stops;
}

bool weir_app_is_stopping(const weir_app *self)
{
    return count_stops(self) > 0;
}

static void change_holds(weir_app *self, int by)
{
    pthread_mutex_lock(&self->lock);
    self->holds += by;
    if (self->holds <= 0)
        weir_executor_wake(main_executor(self));
    pthread_mutex_unlock(&self->lock);
}

void weir_app_hold(weir_app *self)
{
    change_holds(self, 1);
}

void weir_app_unhold(weir_app *self)
{
    change_holds(self, -1);
}

uint64_t weir_app_connections(const weir_app *self)
{
    uint64_t count = 0;
    for (const app_server *at = self->servers; at != NULL; at = at->next) {
        weir_listener_stats stats;
        weir_server_get_stats(at->server, &stats);
        count += stats.connections;
    }
    return count;
}

static void on_drained(weir_listener *listener, weir_future *future)
{
    (void)future;
    WEIR_CONTAINER(listener, app_server, on_drained)->app->draining--;
}

static int on_deadline(weir_timer *timer)
{
    WEIR_CONTAINER(timer, weir_app, deadline)->is_late = true;
    return 0;
}

/* Without memory for the promise the drain has no time. */
static void drain_server(app_server *at, int64_t timeout_ns)
{
    weir_promise *promise = weir_promise_new(main_executor(at->app));
    if (promise == NULL) {
        weir_server_drain(at->server, 0, NULL);
        return;
    }
    at->app->draining++;
    at->on_drained = (weir_listener){ .done = on_drained, .dropped = on_drained };
    weir_future_listen(weir_promise_future(promise), &at->on_drained);
    weir_server_drain(at->server, timeout_ns, promise);
    weir_promise_release(promise);
}

static void begin_drain(weir_app *self)
{
    char time[WEIR_DURATION_TEXT_MAX];
    int64_t timeout_ns = drain_timeout(self);
    weir_log(WEIR_LOG_INFO, name_of(self), "draining %llu connections%s%s",
             (unsigned long long)weir_app_connections(self), timeout_ns < 0 ? "" : " for ",
             timeout_ns < 0 ? "" : weir_duration_text(timeout_ns, time, sizeof time));
    self->deadline.fire = on_deadline;
    if (timeout_ns >= 0 &&
        weir_timer_schedule(&self->deadline, main_executor(self), timeout_ns) < 0)
        self->is_late = true;
    for (app_server *at = self->servers; at != NULL; at = at->next)
        drain_server(at, timeout_ns);
    if (self->config->on_drain != NULL)
        self->config->on_drain(self, self->config->arg);
}

static void hasten_drain(weir_app *self)
{
    self->is_late = true;
    for (app_server *at = self->servers; at != NULL; at = at->next)
        weir_server_drain(at->server, 0, NULL);
}

/* Signals -------------------------------------------------------------------------------------- */

static void on_interrupt(weir_signal *signal, int number)
{
    (void)number;
    request_stop(WEIR_CONTAINER(signal, weir_app, interrupt), NULL);
}

static void on_terminate(weir_signal *signal, int number)
{
    (void)number;
    request_stop(WEIR_CONTAINER(signal, weir_app, terminate), NULL);
}

static void on_hang_up(weir_signal *signal, int number)
{
    (void)number;
    WEIR_CONTAINER(signal, weir_app, hang_up)->reloads++;
}

static int catch_signal(weir_app *self, weir_signal *signal, int number, weir_error *error)
{
    int code = weir_loop_signal(weir_app_loop(self), signal, number);
    return code < 0 ? weir_error_set(error, code, "app", "cannot catch %s: %s", strsignal(number),
                                     weir_error_text(code))
                    : 0;
}

static int catch_signals(weir_app *self, weir_error *error)
{
    int code = 0;
    self->interrupt.raised = on_interrupt;
    self->terminate.raised = on_terminate;
    self->hang_up.raised = on_hang_up;
    if (!self->config->without_stop_signals)
        code = catch_signal(self, &self->interrupt, SIGINT, error);
    if (code == 0 && !self->config->without_stop_signals)
        code = catch_signal(self, &self->terminate, SIGTERM, error);
    if (code == 0 && self->config->on_reload != NULL)
        code = catch_signal(self, &self->hang_up, SIGHUP, error);
    return code;
}

/* Running -------------------------------------------------------------------------------------- */

static void app_react(weir_app *self)
{
    while (self->reloads > 0) {
        self->reloads = 0; /* several signals are one */
        self->config->on_reload(self, self->config->arg);
    }
    while (self->stops_seen < count_stops(self)) {
        if (self->stops_seen++ == 0)
            begin_drain(self);
        else
            hasten_drain(self);
    }
}

static bool is_held(weir_app *self)
{
    pthread_mutex_lock(&self->lock);
    bool is_held = self->holds > 0;
    pthread_mutex_unlock(&self->lock);
    return is_held;
}

static bool is_over(weir_app *self)
{
    bool is_held_up =
        is_held(self); /* always asks: a thread that is waking the loop has the lock */
    return self->stops_seen > 0 && self->draining == 0 && (self->is_late || !is_held_up);
}

/* A stop may come before the servers listen, or in on_start. Returns a negative code if the loop
 * cannot run. */
static int app_loop(weir_app *self)
{
    int code = 0;
    app_react(self);
    while (code >= 0 && !is_over(self)) {
        code = weir_loop_run_once(weir_app_loop(self), -1);
        app_react(self);
    }
    return code;
}

/* Starting and ending -------------------------------------------------------------------------- */

static int make_groups(weir_app *self, weir_error *error)
{
    weir_group_config boss = self->config->boss, workers = self->config->workers;
    if (boss.is_manual || workers.is_manual)
        return weir_error_set(error, -EINVAL, "app",
                              "is_manual is set: the app steps no loops but its own");
    if (boss.io == WEIR_IO_AUTO)
        boss.io = self->config->io;
    if (workers.io == WEIR_IO_AUTO)
        workers.io = self->config->io;
    if (boss.loops == 0 && boss.io != WEIR_IO_BLOCKING)
        boss.loops = 1;
    if (boss.name == NULL)
        boss.name = "boss";
    int code = weir_group_new(&self->boss, &boss, error);
    return code < 0 ? code : weir_group_new(&self->workers, &workers, error);
}

int weir_app_listen(weir_app *self, const weir_server_config *config, const char *address,
                    weir_error *error)
{
    if (self == NULL || config == NULL)
        return weir_error_set(error, -EINVAL, "app", "the %s is missing",
                              self == NULL ? "app" : "config of the server");
    if (weir_app_is_stopping(self) && self->is_running)
        return weir_error_set(error, WEIR_ESHUTDOWN, "app", "cannot listen on %s: the app drains",
                              address != NULL ? address : "nothing");
    weir_server_config own = *config;
    app_server *made = weir_zalloc(sizeof *made);
    if (made == NULL)
        return weir_error_set(error, -ENOMEM, "app", "no memory for a server");
    if (own.boss == NULL)
        own.boss = self->boss;
    if (own.workers == NULL)
        own.workers = self->workers;
    int code = weir_server_listen(&made->server, &own, address, error);
    if (code < 0) {
        weir_free(made);
        return code;
    }
    made->app = self;
    *self->last_server = made;
    self->last_server = &made->next;
    return 0;
}

static int call_start(weir_app *self, weir_app_start_fn callback, weir_error *error)
{
    if (callback == NULL)
        return 0;
    *error = (weir_error){ 0 };
    int code = callback(self, self->config->arg, error);
    if (code > 0)
        return weir_error_set(error, -EINVAL, "app",
                              "on_init or on_start returned %d: return 0, or "
                              "a negative code",
                              code);
    if (code < 0 && error->code != code)
        weir_error_set(error, code, "app", "cannot start: %s", weir_error_text(code));
    return code;
}

static int app_start(weir_app *self, weir_error *error)
{
    const weir_app_config *config = self->config;
    int code = weir_group_new(&self->main_group,
                              &(weir_group_config){ .loops = 1, .is_manual = true }, error);
    if (code == 0)
        code = catch_signals(self, error); /* before there are other threads */
    if (code == 0)
        code = make_groups(self, error);
    if (code == 0)
        code = call_start(self, config->on_init, error);
    if (code == 0 && config->address != NULL)
        code = weir_app_listen(self, &config->server, config->address, error);
    return code;
}

/* After a failed start the servers have yet to be closed. */
static void app_end(weir_app *self)
{
    while (self->servers != NULL) {
        app_server *first = self->servers;
        self->servers = first->next;
        weir_server_drain(first->server, 0, NULL);
        weir_future_await(weir_server_closed(first->server));
        weir_server_release(first->server);
        weir_free(first);
    }
    weir_group_free(self->workers);
    weir_group_free(self->boss);
    weir_group_free(self->main_group);
}

/* A program never fails without a word. */
static void report_failure(const weir_app *self, const weir_error *error)
{
    if (weir_log_enabled(WEIR_LOG_ERROR))
        weir_log(WEIR_LOG_ERROR, name_of(self), "%s", error->message);
    else
        fprintf(stderr, "%s: %s\n", name_of(self), error->message);
}

int weir_app_run(const weir_app_config *config)
{
    if (config == NULL)
        return -1;
    weir_error error = { 0 };
    weir_app self = { .config = config, .last_server = &self.servers };
    pthread_mutex_init(&self.lock, NULL);
    int code = app_start(&self, &error);
    if (code == 0) {
        code = call_start(&self, config->on_start, &error);
        self.is_running = code == 0;
        if (self.is_running && (code = app_loop(&self)) < 0)
            weir_error_set(&error, code, "app", "the loop cannot run: %s", weir_error_text(code));
        if (config->on_stop != NULL)
            config->on_stop(&self, config->arg);
    }
    app_end(&self);
    pthread_mutex_destroy(&self.lock);
    if (code < 0) {
        report_failure(&self, &error);
        return 1;
    }
    return self.exit_code;
}

/* Accessors ------------------------------------------------------------------------------------ */

weir_server *weir_app_server(weir_app *self, size_t index)
{
    app_server *at = self->servers;
    while (at != NULL && index-- > 0)
        at = at->next;
    return at != NULL ? at->server : NULL;
}

weir_group *weir_app_boss(weir_app *self)
{
    return self->boss;
}

weir_group *weir_app_workers(weir_app *self)
{
    return self->workers;
}

weir_loop *weir_app_loop(weir_app *self)
{
    return weir_group_loop_at(self->main_group, 0);
}
