/* SPDX-License-Identifier: MIT */
/* Groups of event loops: what a config says, checked, and the factory of their children. */
#include "exec/per_channel.h"
#include "io/io.h"
#include "loop/loop.h"

#include <weir/log.h>
#include <weir/timer.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What WEIR_IO_AUTO is, where there is such a thing; else epoll. */
#define AUTO_IO WEIR_IO_EPOLL

#define DEFAULT_IO_RATIO 50
#define DEFAULT_SPIN_LIMIT 512
#define DEFAULT_IDLE_LOOP_NS WEIR_SECONDS(60)
#define LEAST_SPIN_LIMIT 3
#define MOST_RING_ENTRIES 32768
#define LEAST_BUFFER_BYTES 1024
#define MOST_BUFFER_BYTES (1024 * 1024)

#define DEFAULT_WATCHDOG_NS WEIR_SECONDS(1)

static int refuse(weir_error *error, const char *what, int64_t value, const char *why)
{
    return weir_error_set(error, -EINVAL, "group", "%s is %" PRId64 ", which is %s", what, value,
                          why);
}

static int check(const weir_group_config *config, weir_error *error)
{
    if (config->io_ratio < 0 || config->io_ratio > 100)
        return refuse(error, "io_ratio", config->io_ratio, "not from 1 to 100");
    if (config->task_ns < 0)
        return refuse(error, "task_ns", config->task_ns, "negative");
    if (config->max_wait_ns < 0 && config->max_wait_ns != WEIR_OFF)
        return refuse(error, "max_wait_ns", config->max_wait_ns, "negative");
    if (config->spin_limit != WEIR_OFF &&
        (config->spin_limit < 0 ||
         (config->spin_limit > 0 && config->spin_limit < LEAST_SPIN_LIMIT)))
        return refuse(error, "spin_limit", config->spin_limit, "below 3; WEIR_OFF would be none");
    if (config->io < WEIR_IO_AUTO || config->io > WEIR_IO_BLOCKING)
        return refuse(error, "io", (int)config->io, "no kind of io");
    if (config->ring_entries < 0 || config->ring_entries > MOST_RING_ENTRIES)
        return refuse(error, "ring_entries", config->ring_entries, "not from 1 to 32768");
    if (config->ring_buffers < 0 || config->ring_buffers > MOST_RING_ENTRIES)
        return refuse(error, "ring_buffers", config->ring_buffers, "not from 1 to 32768");
    if (config->ring_buffer_bytes != 0 && (config->ring_buffer_bytes < LEAST_BUFFER_BYTES ||
                                           config->ring_buffer_bytes > MOST_BUFFER_BYTES))
        return refuse(error, "ring_buffer_bytes", config->ring_buffer_bytes,
                      "not from 1024 to 1048576");
    if (config->io != WEIR_IO_BLOCKING || config->io_source != NULL)
        return 0;
    if (config->is_manual)
        return weir_error_set(
            error, -EINVAL, "group",
            "it is manual and WEIR_IO_BLOCKING, but who steps loops cannot block");
    if (config->loops != 0)
        return refuse(error, "loops", config->loops,
                      "not 0, but with WEIR_IO_BLOCKING there is one for each channel");
    return 0;
}

int weir_io_kind_from(const char *name)
{
    static const char *const names[] = {
        [WEIR_IO_AUTO] = "auto",
        [WEIR_IO_EPOLL] = "epoll",
        [WEIR_IO_URING] = "uring",
        [WEIR_IO_BLOCKING] = "blocking",
    };
    for (int i = 0; name != NULL && i < (int)(sizeof names / sizeof *names); i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    return -EINVAL;
}

/* AUTO takes what the environment says, which has to be something that exists. */
static int choose_io(weir_group_config *config, weir_error *error)
{
    const char *wish = getenv("WEIR_IO");
    if (config->io != WEIR_IO_AUTO || wish == NULL || *wish == '\0' || strcmp(wish, "auto") == 0)
        return 0;
    int io = weir_io_kind_from(wish);
    if (io < 0)
        return weir_error_set(
            error, -EINVAL, "group",
            "WEIR_IO is '%s' in the environment, but there are only auto, epoll, uring and "
            "blocking",
            wish);
    /* Who steps loops cannot block. */
    config->io = io == WEIR_IO_BLOCKING && config->is_manual ? WEIR_IO_EPOLL : (weir_io_kind)io;
    return 0;
}

/* What there is, when nobody said what it should be; who did is told that there is none. */
static int settle_io(weir_group_config *config, weir_error *error)
{
    static _Atomic(bool) was_told;
    weir_error why;
    if (config->io_source != NULL)
        return 0;
    if (config->io == WEIR_IO_URING)
        return weir__uring_check(weir__sys_linux(), error);
    if (config->io != WEIR_IO_AUTO)
        return 0;
    config->io = AUTO_IO;
    if (config->io == WEIR_IO_URING && weir__uring_check(weir__sys_linux(), &why) < 0) {
        config->io = WEIR_IO_EPOLL;
        if (!atomic_exchange(&was_told, true))
            weir_log(WEIR_LOG_INFO, "group", "takes epoll: %s", why.message);
    }
    return 0;
}

static weir_loop_config with_defaults(const weir_group_config *config)
{
    int spin_limit = config->spin_limit != 0 ? config->spin_limit : DEFAULT_SPIN_LIMIT;
    int64_t idle_ns = config->idle_loop_ns != 0 ? config->idle_loop_ns : DEFAULT_IDLE_LOOP_NS;
    return (weir_loop_config){
        .io = config->io,
        .io_source = config->io_source,
        .uring = { .entries = (unsigned)config->ring_entries,
                   .buffers = (unsigned)config->ring_buffers,
                   .buffer_bytes = (unsigned)config->ring_buffer_bytes },
        .io_ratio = config->io_ratio != 0 ? config->io_ratio : DEFAULT_IO_RATIO,
        .task_ns = config->task_ns,
        .max_wait_ns = config->max_wait_ns > 0 ? config->max_wait_ns : 0,
        .idle_ns = idle_ns > 0 ? idle_ns : 0,
        .spin_limit = spin_limit > 0 ? (unsigned)spin_limit : 0,
        .strategy = config->strategy,
        .strategy_arg = config->strategy_arg,
    };
}

static int new_child(void *arg, const weir_executor_config *config, weir_executor **executor)
{
    weir_loop *loop = NULL;
    int code = weir__loop_new(&loop, config, arg);
    if (code == 0)
        *executor = weir_loop_executor(loop);
    return code;
}

int weir_group_new(weir_group **group, const weir_group_config *config, weir_error *error)
{
    weir_group_config own = { 0 };
    if (config != NULL)
        own = *config;
    int code = check(&own, error);
    if (code == 0)
        code = choose_io(&own, error);
    if (code == 0)
        code = settle_io(&own, error);
    if (code < 0)
        return code;
    if (own.watchdog_ns == 0)
        own.watchdog_ns = DEFAULT_WATCHDOG_NS;
    weir_loop_config loops = with_defaults(&own);
    bool is_per_channel = own.io == WEIR_IO_BLOCKING && own.io_source == NULL;
    return is_per_channel
               ? weir__per_channel_new(group, &own, new_child, &loops, sizeof loops, error)
               : weir__group_new(group, &own, new_child, &loops, error);
}

weir_loop *weir_group_next_loop(weir_group *group)
{
    return group != NULL ? weir_executor_loop(weir_group_next(group)) : NULL;
}

weir_loop *weir_group_loop_at(const weir_group *group, size_t index)
{
    return weir_executor_loop(weir_group_at(group, index));
}
