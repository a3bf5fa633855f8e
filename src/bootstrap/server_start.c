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
    server->started = weir_promise_new(NULL);
    if (has_memory && server->text != NULL && server->started != NULL)
        return server;
    weir__promise_end(server->started, -ENOMEM);
    weir_promise_release(server->started);
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
/* Asking for addresses ------------------------------------------------------------------------- */

/* Who asks for names, while the answer is not there. */
typedef struct asking {
    weir_listener listener;
    weir_server *server;
} asking;

static void on_resolved(weir_listener *listener, weir_future *future)
{
    asking *self = WEIR_CONTAINER(listener, asking, listener);
    weir_server *server = self->server;
    const weir_addresses *found = weir_future_value(future);
    int code = weir_future_code(future);
    weir__free(self);
    if (code == 0) {
        server->candidates = weir_addresses_new(found->list, found->count);
        code = server->candidates != NULL ? 0 : -ENOMEM;
    }
    if (code == 0)
        weir__server_open_next(server);
    else
        weir__server_fail_start(server, code, NULL);
    weir_server_release(server);
}

static int ask(weir_server *server, weir_error *error)
{
    weir_promise *promise = weir_promise_new(NULL);
    asking *self = weir__zalloc(sizeof *self);
    int code = promise != NULL && self != NULL ? 0 : -ENOMEM;
    if (code == 0)
        code = weir_resolve(server->config.boss, server->config.resolver, server->text, promise,
                            error);
    else
        weir_error_set(error, code, "server", "no memory to listen on %s", server->text);
    if (code < 0) {
        weir__promise_end(promise, code);
        weir__free(self);
    } else {
        self->server = weir_server_retain(server);
        self->listener.done = on_resolved;
        weir_future_listen(weir_promise_future(promise), &self->listener);
    }
    weir_promise_release(promise);
    return code;
}
/* Starting ------------------------------------------------------------------------------------- */

/* What is wrong at once is told so, and nobody hears of the promise. */
static void abandon(weir_server *server, int code)
{
    weir_promise *started = server->started;
    server->started = NULL;
    server->is_starting = false;
    weir_promise_set(started, code);
    weir_promise_release(started);
}

/* Who was told that it is cancelled does not expect a server, however far that has got. */
static void on_told(weir_listener *listener, weir_future *future)
{
    weir_server *server = WEIR_CONTAINER(listener, weir_server, on_told);
    if (weir_future_code(future) == -ECANCELED)
        weir_server_close(server, NULL);
    weir_server_release(server);
}

/* The user's promise ends as the start does. */
static int tell(weir_server *server, weir_promise *promise, weir_future *started, weir_error *error)
{
    if (promise == NULL)
        return 0;
    if (weir_promise_follow(promise, started) < 0)
        return weir_error_set(error, -ENOMEM, "server", "no memory to listen on %s", server->text);
    weir_server_retain(server);
    server->on_told = (weir_listener){ .done = on_told, .dropped = on_told };
    weir_future_listen(weir_promise_future(promise), &server->on_told);
    return 0;
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
    weir_promise *started = weir_promise_retain(server->started);
    weir_server_retain(server); /* the caller's, besides what is under way */
    server->is_starting = true;
    code = plan(server, error);
    if (code == 0 && server->descriptors != NULL)
        weir__server_open_next(server);
    else if (code == 0)
        code = ask(server, error);
    if (code < 0)
        abandon(server, code);
    else
        code = tell(server, promise, weir_promise_future(started), error);
    weir_promise_release(started);
    if (code < 0) {
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
