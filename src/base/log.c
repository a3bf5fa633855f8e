/* SPDX-License-Identifier: MIT */
/* The log sink. */
#include <weir/log.h>

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The level alone decides whether a line is made at all, so it is read without the lock. */
static _Atomic(int) threshold = WEIR_LOG_OFF;

/* Held while the sink runs: lines come one at a time, and a replaced sink has ended. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_log_fn sink_fn;
static void *sink_arg;

/* A sink that uses weir would otherwise wait for itself. */
static _Thread_local bool in_sink;

static const char *const level_names[] = { "off", "error", "warn", "info", "debug", "trace" };

int weir_log_set(weir_log_level level, weir_log_fn fn, void *arg)
{
    if (in_sink)
        return -EDEADLK;
    pthread_mutex_lock(&sink_lock);
    sink_fn = fn;
    sink_arg = arg;
    atomic_store_explicit(&threshold, fn != NULL ? (int)level : WEIR_LOG_OFF, memory_order_relaxed);
    pthread_mutex_unlock(&sink_lock);
    return 0;
}

static void print_to_stderr(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)arg;
    fprintf(stderr, "weir %s %s: %s\n", weir_log_level_name(level), origin, line);
}

int weir_log_to_stderr(weir_log_level level)
{
    return weir_log_set(level, print_to_stderr, NULL);
}

const char *weir_log_level_name(weir_log_level level)
{
    return (size_t)level < sizeof level_names / sizeof *level_names ? level_names[level] : "?";
}

int weir_log_level_from(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(name, level_names[i]) == 0)
            return (int)i;
    }
    return -EINVAL;
}

bool weir_log_enabled(weir_log_level level)
{
    return (int)level > WEIR_LOG_OFF && !in_sink &&
           (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void weir_log(weir_log_level level, const char *origin, const char *format, ...)
{
    if (!weir_log_enabled(level))
        return;
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);

    pthread_mutex_lock(&sink_lock);
    if (sink_fn != NULL && weir_log_enabled(level)) {
        in_sink = true;
        sink_fn(sink_arg, level, origin != NULL ? origin : "", line);
        in_sink = false;
    }
    pthread_mutex_unlock(&sink_lock);
}
