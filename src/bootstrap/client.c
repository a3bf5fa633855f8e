/* SPDX-License-Identifier: MIT */
/* Clients: checking and copying a config, and the waiting forms. */
#include "bootstrap/client.h"

#include "base/alloc.h"
#include "channel/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* What all ways share -------------------------------------------------------------------------- */

void weir__client_release_channel(void *channel)
{
    weir_channel_release(channel);
}

/* An empty list has no copy. */
static void *copy_list(const void *from, size_t size)
{
    void *copy = size > 0 ? weir__alloc(size) : NULL;
    if (copy != NULL)
        memcpy(copy, from, size);
    return copy;
}

bool weir__client_copy(weir_client_config *to, const weir_client_config *from)
{
    *to = *from;
    to->options = copy_list(from->options, from->option_count * sizeof *from->options);
    to->attrs = copy_list(from->attrs, from->attr_count * sizeof *from->attrs);
    return (to->options != NULL || from->option_count == 0) &&
           (to->attrs != NULL || from->attr_count == 0);
}

void weir__client_free_copy(weir_client_config *config)
{
    weir__free((void *)config->options);
    weir__free((void *)config->attrs);
}

static int init_planned(weir_channel *channel, void *arg)
{
    weir_client_plan *plan = arg;
    plan->init_code = weir__channel_init_by(channel, plan->init, plan->init_arg);
    return plan->init_code;
}

bool weir__client_plan(weir_client_plan *plan, const weir_client_config *config)
{
    plan->init = config->init;
    plan->init_arg = config->arg;
    plan->init_release = config->arg_release;
    bool has_memory = weir__client_copy(&plan->config, config);
    if (config->init != NULL)
        plan->config.init = init_planned;
    plan->config.arg = plan;
    return has_memory;
}

void weir__client_end_plan(weir_client_plan *plan)
{
    weir__client_free_copy(&plan->config);
    if (plan->init_release != NULL)
        plan->init_release(plan->init_arg);
}

/* Whether a socket that is connected has it already. */
static bool is_kernels(const weir_channel *channel, weir_option option)
{
    int64_t value;
    return (int)option >= WEIR_OPTION_RECEIVE_BUFFER_BYTES &&
           option != WEIR_OPTION_MAX_DESCRIPTORS && option != WEIR_OPTION_CLOSE_LINGER_NS &&
           weir_channel_get_option(channel, option, &value) != -ENOPROTOOPT;
}

int weir__client_set_up(const weir_client_config *config, weir_channel *channel, bool is_connected)
{
    int code = 0;
    for (size_t i = 0; i < config->option_count && code == 0; i++) {
        const weir_option_value *option = &config->options[i];
        if (!is_connected || !is_kernels(channel, option->option))
            code = weir_channel_set_option(channel, option->option, option->value, NULL);
    }
    for (size_t i = 0; i < config->attr_count && code == 0; i++)
        code = weir_channel_set_attr(channel, config->attrs[i].key, config->attrs[i].value);
    if (code == 0 && config->init != NULL)
        code = weir_pipeline_add_initializer(weir_channel_pipeline(channel), config->init,
                                             config->arg);
    return code;
}

/* Connecting ----------------------------------------------------------------------------------- */

static int refuse(weir_error *error, const char *what, int64_t value)
{
    return weir_error_set(error, -EINVAL, "client", "%s is %" PRId64 ", which is negative", what,
                          value);
}

static int check_options(const weir_option_value *options, size_t count, weir_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const weir_option_info *info = options != NULL ? weir_option_get_info(options[i].option)
                                                       : NULL;
        if (info == NULL)
            return weir_error_set(error, -EINVAL, "client", "option %zu of %zu is none", i, count);
        if (options[i].value < info->least || options[i].value > info->most)
            return weir_error_set(
                error, -EINVAL, "client", "%s is %lld, which is not from %lld to %lld", info->name,
                (long long)options[i].value, (long long)info->least, (long long)info->most);
    }
    return 0;
}

static int check_attrs(const weir_attr_value *attrs, size_t count, weir_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (attrs == NULL || attrs[i].key == NULL || attrs[i].key->destroy != NULL)
            return weir_error_set(error, -EINVAL, "client",
                                  "attribute %zu has no key, or one with a destroy, but there may "
                                  "never be a channel to do it",
                                  i);
    }
    return 0;
}

int weir__client_check(const weir_client_config *config, const char *address, weir_error *error)
{
    if (config == NULL || config->group == NULL)
        return weir_error_set(error, -EINVAL, "client", "there is no group to connect on");
    if (address == NULL)
        return weir_error_set(error, -EINVAL, "client", "there is no address to connect to");
    weir_executor *loop = config->loop != NULL ? weir_loop_executor(config->loop) : NULL;
    if (loop != NULL && weir_executor_group(loop) != config->group)
        return weir_error_set(error, -EINVAL, "client",
                              "the loop, %s, is none of the group's: set the group that it is of",
                              weir_executor_name(loop));
    if (config->connect_timeout_ns < 0 && config->connect_timeout_ns != WEIR_OFF)
        return refuse(error, "connect_timeout_ns", config->connect_timeout_ns);
    if (config->stagger_ns < 0 && config->stagger_ns != WEIR_OFF)
        return refuse(error, "stagger_ns", config->stagger_ns);
    int code = check_options(config->options, config->option_count, error);
    return code < 0 ? code : check_attrs(config->attrs, config->attr_count, error);
}

/* Waiting -------------------------------------------------------------------------------------- */

typedef int (*start_fn)(const weir_client_config *config, const char *address,
                        weir_promise *promise, weir_error *error);

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
        weir_error_set(error, code, "client", "%s: %s", address, weir_error_text(code));
    return code;
}

static int start_and_wait(start_fn start, weir_channel **channel, const weir_client_config *config,
                          const char *address, weir_error *error)
{
    if (channel == NULL || address == NULL)
        return weir_error_set(error, -EINVAL, "client",
                              "there is no address, or no place for the "
                              "channel");
    if (weir_executor_current() != NULL)
        return weir_error_set(error, -EDEADLK, "client",
                              "%s: this thread would wait for itself; start it with a promise here",
                              address);
    weir_promise *promise = weir_promise_new(NULL);
    if (promise == NULL)
        return weir_error_set(error, -ENOMEM, "client", "%s: there is no memory", address);
    int code = start(config, address, promise, error);
    if (code < 0)
        weir_promise_set(promise, code);
    else
        code = take_result(weir_promise_future(promise), channel, address, error);
    weir_future_cancel(weir_promise_future(promise)); /* it could not be waited for */
    weir_promise_release(promise);
    return code;
}

int weir_client_connect(weir_channel **channel, const weir_client_config *config,
                        const char *address, weir_error *error)
{
    return start_and_wait(weir_client_start, channel, config, address, error);
}

int weir_client_bind(weir_channel **channel, const weir_client_config *config, const char *address,
                     weir_error *error)
{
    return start_and_wait(weir_client_start_bind, channel, config, address, error);
}
