/* SPDX-License-Identifier: MIT */
/* The log sink. */
#include "base/env.h"

#include <weir/clock.h>
#include <weir/log.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Before the first line, or weir_log_set: the environment decides. */
#define UNDECIDED INT_MAX

/* The level alone decides whether a line is made at all, so it is read without the lock. */
static _Atomic(int) threshold = UNDECIDED;

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
    int max = (int)level < WEIR_LOG_TRACE ? (int)level : WEIR_LOG_TRACE;
    pthread_mutex_lock(&sink_lock);
    sink_fn = fn;
    sink_arg = arg;
    atomic_store_explicit(&threshold, fn != NULL ? max : WEIR_LOG_OFF, memory_order_relaxed);
    pthread_mutex_unlock(&sink_lock);
    return 0;
}

/* 2026-03-01T12:00:00.250Z warn  worker-3 server: ... */
static void print_to_stderr(void *arg, weir_log_level level, const char *origin, const char *line)
{
    char time[32], thread[16] = "";
    struct tm parts;
    int64_t now_ns = weir_clock_now_ns(weir_clock_wall());
    time_t seconds = (time_t)(now_ns / WEIR_SECONDS(1));
    (void)arg;
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &parts));
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    fprintf(stderr, "%s.%03dZ %-5s %s %s: %s\n", time, (int)(now_ns % WEIR_SECONDS(1) / WEIR_MS(1)),
            weir_log_level_name(level), thread, origin, line);
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

/* An unknown word is reported once the level is decided, because that logs as well. */
__attribute__((cold)) static int decide(void)
{
    static weir_env_words words = { "WEIR_LOG",
                                    { "off", "error", "warn", "info", "debug", "trace", NULL },
                                    false };
    int undecided = UNDECIDED, found = weir__env_find(&words);
    pthread_mutex_lock(&sink_lock);
    bool is_first = atomic_compare_exchange_strong(&threshold, &undecided,
                                                   found >= 0 ? found : WEIR_LOG_WARN);
    if (is_first)
        sink_fn = print_to_stderr;
    pthread_mutex_unlock(&sink_lock);
    if (is_first)
        weir__env_word(&words, WEIR_LOG_WARN);
    return atomic_load(&threshold);
}

bool weir_log_enabled(weir_log_level level)
{
    int max = atomic_load_explicit(&threshold, memory_order_relaxed);
    if ((int)level <= WEIR_LOG_OFF || (int)level > max || in_sink)
        return false;
    return max != UNDECIDED || (int)level <= decide();
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
