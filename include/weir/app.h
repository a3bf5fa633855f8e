/* SPDX-License-Identifier: MIT */
/* Programs: groups, servers, signals and an orderly end in one call. */
#ifndef WEIR_APP_H
#define WEIR_APP_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/group.h>
#include <weir/loop.h>
#include <weir/server.h>

WEIR_BEGIN_DECLS

/**
 * A whole server:
 *
 *     int main(void)
 *     {
 *         return weir_app_run(&(weir_app_config){
 *             .name = "echo", .address = "127.0.0.1:8007", .server.init_child = init_child });
 *     }
 *
 * The app makes the groups, listens, and runs until SIGINT, SIGTERM or weir_app_stop. Then it
 * drains all servers (a second signal or stop closes their connections at once), and ends the
 * groups.
 */
typedef struct weir_app weir_app;

/** Returns 0, or a negative code that ends the app; `error` may say more. */
typedef int (*weir_app_start_fn)(weir_app *app, void *arg, weir_error *error);

/** Zero is the default of everything. The struct and what it points to must outlive the call of
 * weir_app_run. All callbacks run on the thread of that call, outside of the app's loop, so they
 * may wait for futures. */
typedef struct weir_app_config {
    const char *name; /* of the program, in its log lines; NULL: "weir" */

    const char *address;       /* of a server; NULL: none. weir_app_listen makes others */
    weir_server_config server; /* its groups may be NULL: those of the app */

    weir_group_config boss;    /* of the listeners; 0 loops: 1 */
    weir_group_config workers; /* of the connections, and of clients */
    weir_io_kind io;           /* of both, unless their own configs choose */

    weir_app_start_fn on_init;  /* the groups are made, and no server listens yet */
    weir_app_start_fn on_start; /* the server listens */
    void (*on_reload)(weir_app *app, void *arg); /* at SIGHUP; NULL: the app does not catch it */
    void (*on_drain)(weir_app *app, void *arg);  /* the servers begin to drain */
    void (*on_stop)(weir_app *app, void *arg); /* after the drain, or after on_start has failed; the
                                                  groups still run */
    void *arg;

    int64_t drain_timeout_ns;  /* for open connections and weir_app_hold; 0: 10 s, WEIR_OFF: none */
    bool without_stop_signals; /* the app does not catch SIGINT and SIGTERM */
} weir_app_config;

/** Runs a program and returns its exit code: 0 or that of weir_app_stop; 1 if it cannot start,
 * which it logs as an error (or prints, if errors are not logged). Call it early in main, before
 * other threads are started: they must block the signals. -1 for a NULL config. */
WEIR_API int weir_app_run(const weir_app_config *config);

/** Listens on one more address. Groups that are NULL are those of the app, which also drains and
 * releases the server. On the thread of weir_app_run; the result is that of weir_server_listen, or
 * WEIR_ESHUTDOWN once the app drains. */
WEIR_API int weir_app_listen(weir_app *app, const weir_server_config *config, const char *address,
                             weir_error *error);

/** The server with that index, in the order of listening; NULL after the last. Borrowed. On the
 * thread of weir_app_run. */
WEIR_API weir_server *weir_app_server(weir_app *app, size_t index);

/** The groups, and the loop of the thread of weir_app_run for timers, signals and watches: borrowed
 * until weir_app_run returns. Thread-safe. */
WEIR_API weir_group *weir_app_boss(weir_app *app);
WEIR_API weir_group *weir_app_workers(weir_app *app);
WEIR_API weir_loop *weir_app_loop(weir_app *app);

/** Begins to drain, as a signal does; the first exit code counts. A second call closes the
 * connections at once. Thread-safe while the app runs: a call must not come after its end. */
WEIR_API void weir_app_stop(weir_app *app, int exit_code);

/** The open connections of all servers. On the thread of weir_app_run. */
WEIR_API uint64_t weir_app_connections(const weir_app *app);

/** Whether a signal or weir_app_stop has asked the app to stop. Thread-safe. */
WEIR_API bool weir_app_is_stopping(const weir_app *app);

/** Keeps a drain from ending before its timeout, for work that is not a connection of a server;
 * call weir_app_unhold once for each. Thread-safe. */
WEIR_API void weir_app_hold(weir_app *app);
WEIR_API void weir_app_unhold(weir_app *app);

WEIR_END_DECLS

#endif
