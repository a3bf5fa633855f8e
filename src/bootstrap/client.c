/* SPDX-License-Identifier: MIT */
/* Clients: what a config says, checked; and the two ways to connect. */
#include "bootstrap/connector.h"

#include <errno.h>

#define DEFAULT_TIMEOUT_MS 30000
#define DEFAULT_STAGGER_MS 250

static int refuse(weir_error *error, const char *what, int value)
{
    return weir_error_set(error, -EINVAL, "client", "%s is %d, which is negative", what, value);
}

static int check(const weir_client_config *config, const char *address, weir_error *error)
{
    if (config == NULL || config->group == NULL)
        return weir_error_set(error, -EINVAL, "client", "there is no group to connect on");
    if (address == NULL)
        return weir_error_set(error, -EINVAL, "client", "there is no address to connect to");
    if (config->connect_timeout_ms < 0 && config->connect_timeout_ms != WEIR_OFF)
        return refuse(error, "connect_timeout_ms", config->connect_timeout_ms);
    if (config->stagger_ms < 0 && config->stagger_ms != WEIR_OFF)
        return refuse(error, "stagger_ms", config->stagger_ms);
    return 0;
}

static int with_default(int value, int normal)
{
    return value != 0 ? value : normal;
}

int weir_client_start(const weir_client_config *config, const char *address, weir_promise *promise,
                      weir_error *error)
{
    weir_promise *own;
    int code = check(config, address, error);
    if (code < 0)
        return code;
    weir_client_config full = *config;
    full.connect_timeout_ms = with_default(config->connect_timeout_ms, DEFAULT_TIMEOUT_MS);
    full.stagger_ms = with_default(config->stagger_ms, DEFAULT_STAGGER_MS);
    code = weir__connector_start(&full, address, &own, error);
    if (code < 0)
        return code;
    /* Without memory nobody would hear of the channel, so there must be none. */
    code = promise != NULL ? weir_promise_follow(promise, weir_promise_future(own)) : 0;
    if (code < 0) {
        weir_future_cancel(weir_promise_future(own));
        weir_error_set(error, code, "client", "no memory to connect to %s", address);
    }
    weir_promise_release(own);
    return code;
}

/* The promise goes, the channel stays. */
static int take_result(weir_future *future, weir_channel **channel, const char *address,
                       weir_error *error)
{
    int code = weir_future_await(future);
    const weir_error *why = weir_future_error(future);
    if (code == 0)
        *channel = weir_channel_retain(weir_future_value(future));
    else if (why != NULL && error != NULL)
        *error = *why;
    else
        weir_error_set(error, code, "client", "cannot connect to %s: %s", address,
                       weir_error_text(code));
    return code;
}

int weir_client_connect(weir_channel **channel, const weir_client_config *config,
                        const char *address, weir_error *error)
{
    if (channel == NULL)
        return weir_error_set(error, -EINVAL, "client", "there is no place for the channel");
    if (weir_loop_current() != NULL)
        return weir_error_set(error, -EDEADLK, "client",
                              "connecting to %s would have to wait for this very thread; use "
                              "weir_client_start here",
                              address);
    weir_promise *promise = weir_promise_new(NULL);
    if (promise == NULL)
        return weir_error_set(error, -ENOMEM, "client", "no memory to connect to %s", address);
    int code = weir_client_start(config, address, promise, error);
    if (code < 0)
        weir_promise_set(promise, code);
    else
        code = take_result(weir_promise_future(promise), channel, address, error);
    weir_promise_release(promise);
    return code;
}
