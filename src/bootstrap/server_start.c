/* SPDX-License-Identifier: MIT */
/* Starting a server: its config becomes an object, its text addresses, and those listeners. */
#include "bootstrap/server.h"

#include "base/alloc.h"

#include <errno.h>

/* Making --------------------------------------------------------------------------------------- */

static void retain_home(weir_home *home)
{
    weir_server_retain(WEIR_CONTAINER(home, weir_server, home));
}

static void release_home(weir_home *home)
{
    weir_server_release(WEIR_CONTAINER(home, weir_server, home));
}

static const weir_home_type home_type = { .retain = retain_home, .release = release_home };

static weir_server *make(const weir_server_config *config, const char *address)
{
    weir_server *server = weir__zalloc(sizeof *server);
    if (server == NULL)
        return NULL;
    atomic_init(&server->refs, 1);
    pthread_mutex_init(&server->lock, NULL);
    server->home.type = &home_type;
    weir__future_init(&server->closed, &server->home);
    bool has_memory = weir__server_copy_config(&server->config, config);
    server->text = weir__strdup(address);
    if (has_memory && server->text != NULL)
        return server;
    weir_server_release(server);
    return NULL;
}

/* The system shares ports between sockets, but no paths and no names. */
static int check_acceptors(const weir_server *server, weir_error *error)
{
    weir_address address;
    if (server->config.acceptors <= 1 || weir_address_parse(&address, server->text, NULL) < 0)
        return 0; /* or it is a host's name, or none */
    weir_address_kind kind = weir_address_kind_of(&address);
    if (kind != WEIR_ADDRESS_UNIX && kind != WEIR_ADDRESS_LOCAL)
        return 0;
    return weir_error_set(
        error, -EINVAL, "server",
        "acceptors is %d, but only a port can have more than one listener: set it "
        "to 1 for %s",
        server->config.acceptors, server->text);
}

/* How many listeners, and from where. */
static int plan(weir_server *server, weir_error *error)
{
    int found = weir__inherited_find(server->text, &server->descriptors, error);
    int code = found == 0 ? check_acceptors(server, error) : 0;
    if (found < 0 || code < 0)
        return found < 0 ? found : code;
    server->wanted = found > 0                      ? (size_t)found
                     : server->config.acceptors > 0 ? (size_t)server->config.acceptors
                                                    : 1;
    server->listeners = weir__zalloc(server->wanted * sizeof(weir_listening *));
    return server->listeners != NULL
               ? 0
               : weir_error_set(error, -ENOMEM, "server", "no memory for %zu listeners",
                                server->wanted);
}

/* Starting ------------------------------------------------------------------------------------- */

/* Any thread. */
static void cancelled(weir_operation *start)
{
    weir_server_close(WEIR_CONTAINER(start, weir_server, start), NULL);
}

static void destroy_start(weir_operation *start)
{
    weir_server_release(WEIR_CONTAINER(start, weir_server, start));
}

static const weir_operation_type start_type = { .cancelled = cancelled, .destroy = destroy_start };

/* From here on its promise says how it went. */
static void begin(weir_server *server, weir_promise *promise)
{
    weir_server_retain(server);
    weir__operation_init(&server->start, &start_type, promise, NULL);
    weir__operation_watch(&server->start);
}

static void on_resolved(weir_awaited *awaited, weir_future *future)
{
    weir_server *server = WEIR_CONTAINER(awaited, weir_server, on_resolved);
    const weir_addresses *found = weir_future_value(future);
    int code = weir_future_code(future);
    if (code == 0) {
        server->candidates = weir_addresses_new(found->list, found->count);
        code = server->candidates != NULL ? 0 : -ENOMEM;
    }
    if (code == 0)
        weir__server_open_next(server);
    else
        weir__server_fail_start(server, code, NULL);
}

static int resolve(weir_server *server, weir_promise *promise, weir_error *error)
{
    weir_promise *lookup = weir_promise_new(NULL);
    if (lookup == NULL)
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", server->text);
    int code = weir_resolve(server->config.boss, server->config.resolver, server->text, lookup,
                            error);
    if (code < 0) {
        weir_promise_set(lookup, code);
    } else {
        begin(server, promise);
        weir__operation_await(&server->start, &server->on_resolved, weir_promise_future(lookup),
                              on_resolved);
    }
    weir_promise_release(lookup);
    return code;
}

int weir_server_start(weir_server **out, const weir_server_config *config, const char *address,
                      weir_promise *promise, weir_error *error)
{
    if (out == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no place for the server");
    int code = weir__server_check(config, address, error);
    if (code < 0)
        return code;
    weir_server *server = make(config, address);
    if (server == NULL)
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", address);
    weir_server_retain(server); /* the caller's, besides what is in flight */
    server->is_starting = true;
    code = plan(server, error);
    if (code == 0 && server->descriptors != NULL) {
        begin(server, promise);
        weir__server_open_next(server);
    } else if (code == 0) {
        code = resolve(server, promise, error);
    }
    if (code < 0) {
        server->is_starting = false;
        weir_server_close(server, NULL);
        weir_server_release(server);
        return code;
    }
    *out = server;
    return 0;
}

int weir_server_listen(weir_server **server, const weir_server_config *config, const char *address,
                       weir_error *error)
{
    if (server == NULL || address == NULL)
        return weir_server_start(server, config, address, NULL, error); /* which says why not */
    if (weir_executor_current() != NULL)
        return weir_error_set(error, -EDEADLK, "server",
                              "listening on %s would have to wait for this very thread; use "
                              "weir_server_start here",
                              address);
    weir_promise *promise = weir_promise_new(NULL);
    if (promise == NULL)
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", address);
    weir_server *made = NULL;
    int code = weir_server_start(&made, config, address, promise, error);
    if (code < 0) {
        weir_promise_set(promise, code);
    } else {
        weir_future *future = weir_promise_future(promise);
        code = weir_future_await(future);
        if (code < 0) {
            const weir_error *why = weir_future_error(future);
            if (error != NULL && why != NULL)
                *error = *why;
            else
                weir_error_set(error, code, "server", "cannot listen on %s: %s", address,
                               weir_error_text(code));
            weir_server_close(made, NULL); /* also when it is the waiting that failed */
            weir_server_release(made);
        } else {
            *server = made;
        }
    }
    weir_promise_release(promise);
    return code;
}
