/* SPDX-License-Identifier: MIT */
/* Servers: listeners on an address, and how the connections they accept are set up. */
#ifndef WEIR_SERVER_H
#define WEIR_SERVER_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/channel.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/future.h>
#include <weir/group.h>
#include <weir/pipeline.h>
#include <weir/resolver.h>
#include <weir/socket.h>

WEIR_BEGIN_DECLS

/**
 * The reactor models are a matter of groups:
 *
 *     one loop for everything              boss = workers, of one loop
 *     one accepts, the others serve        boss of one loop, workers of several
 *     several accept, the others serve     boss of several, acceptors = as many
 *     each accepts and serves its own      boss = workers, acceptors = their number, keeps_loop
 *
 * Zero is the default of everything but a group and init_child. The struct and the lists in it are
 * copied.
 */
typedef struct weir_server_config {
    weir_group *boss;    /* of the listeners; NULL: the workers. Both must outlive the server */
    weir_group *workers; /* of the connections; NULL: the boss */

    weir_init_fn init;       /* adds handlers to each listener; may be NULL */
    weir_init_fn init_child; /* adds handlers to each accepted channel, on its own loop */
    void *arg;               /* of both */

    int acceptors; /* listeners on the address, each on the next loop of the boss; 0: 1. More than
                      one need a port */
    bool steers_by_cpu;  /* of several, that one accepts whose number is the CPU's it came in on */
    bool keeps_loop;     /* a connection stays on the loop that accepted it */
    int backlog;         /* how many may wait to be accepted; 0: 4096, the system may cut it */
    int max_connections; /* open at once, per listener; more wait in the backlog. 0: any number */

    const weir_option_value *options; /* of listeners */
    size_t option_count;
    const weir_option_value *child_options; /* of accepted channels */
    size_t child_option_count;
    const weir_attr_value *attrs; /* the same for all, so their keys have no `destroy` */
    size_t attr_count;
    const weir_attr_value *child_attrs;
    size_t child_attr_count;

    weir_resolver *resolver; /* for host names; NULL: the system's */
} weir_server_config;

/** Counted. The listeners go on without a reference to it, until they are closed. */
typedef struct weir_server weir_server;

/**
 * Listens on an address and waits until it does. 127.0.0.1:8007, [::1]:8007, :8007 (IPv6 and IPv4),
 * localhost:8007, unix:/path, unix:@name, local:name; port 0 is any that is free, and
 * weir_server_address says which. A socket that listens and was opened by somebody else is fd:3;
 * systemd: is what systemd has handed over (LISTEN_FDS), systemd:name those of that name. Those
 * that the server takes it closes; what is no such socket stays as it is. So each of them is there
 * for one server: a second one on systemd: or on the same number finds them closed, or, worse, what
 * else has got the number since.
 *
 * 0, and `server` is the caller's reference; or a negative code, and `error` (may be NULL) names
 * the address: -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EINVAL for a text or a number that is none,
 * WEIR_ENONAME, WEIR_ESHUTDOWN, -ENOMEM, -EMFILE. -EDEADLK on a thread of weir's.
 */
WEIR_API int weir_server_listen(weir_server **server, const weir_server_config *config,
                                const char *address, weir_error *error);

/** Begins to. The promise (may be NULL) succeeds when it listens, or fails, and then
 * weir_future_error says why and the server is closed. A negative code at once for what is wrong
 * with the config or the text; then the promise is left alone. Any thread. */
WEIR_API int weir_server_start(weir_server **server, const weir_server_config *config,
                               const char *address, weir_promise *promise, weir_error *error);

/** Take and release a reference. Thread-safe. */
WEIR_API weir_server *weir_server_retain(weir_server *server);
WEIR_API void weir_server_release(weir_server *server);

/** Where it listens, with the real port: WEIR_ENOTFOUND before it does. Any thread, as all of
 * these.
 */
WEIR_API int weir_server_address(const weir_server *server, weir_address *address);

/** Its groups: borrowed. */
WEIR_API weir_group *weir_server_boss(const weir_server *server);
WEIR_API weir_group *weir_server_workers(const weir_server *server);

/** How many listeners there are, and each of them: a reference, NULL behind the last. */
WEIR_API size_t weir_server_listener_count(const weir_server *server);
WEIR_API weir_channel *weir_server_listener(const weir_server *server, size_t index);

/** The sum over its listeners. */
WEIR_API void weir_server_get_stats(const weir_server *server, weir_listener_stats *stats);

/** Closes the listeners; connections go on, and so does a drain. The promise (may be NULL) succeeds
 * when the listeners are closed. To end a drain, drain once more, with less time. */
WEIR_API void weir_server_close(weir_server *server, weir_promise *promise);

/** Closes the listeners, waits until the connections have ended by themselves, and closes those
 * that have not within `timeout_ns` (0: at once, negative: never). The promise (may be NULL)
 * succeeds when the last connection is closed and its handlers are removed (see
 * weir_channel_closed). A connection that was moved to a loop of another group, or deregistered, is
 * waited for but not closed: a second after `timeout_ns` the promise fails with -ETIMEDOUT. It also
 * fails so if the workers terminate before all handlers on other executors are removed. */
WEIR_API void weir_server_drain(weir_server *server, int64_t timeout_ns, weir_promise *promise);

/** Complete when the listeners are closed, and what was to be drained is: borrowed. */
WEIR_API weir_future *weir_server_closed(weir_server *server);

WEIR_END_DECLS

#endif
