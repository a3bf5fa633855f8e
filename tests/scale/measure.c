/* SPDX-License-Identifier: MIT */
/* What connections cost, and how far it has come. */
#include "scale.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENCE_S = 240,
    LEAST_FREE_SHARE = 8, /* of the machine's memory stays free */
};

void scale_fail(scale_figures *figures, const char *format, ...)
{
    va_list arguments;
    scale_progress_end();
    va_start(arguments, format);
    fputs("failure: ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    figures->failures++;
}

void scale_progress(const char *what, size_t done, size_t all)
{
    static double last_s;
    double now_s = scale_now_s();
    if (!isatty(STDERR_FILENO) || now_s < last_s + 0.1)
        return;
    last_s = now_s;
    fprintf(stderr, "\r\033[K%s: %zu of %zu", what, done, all);
}

void scale_progress_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double scale_now_s(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

bool scale_wait_for(const char *what, _Atomic(size_t) *counter, size_t value)
{
    double until_s = scale_now_s() + PATIENCE_S;
    size_t before = 0, now;
    while ((now = *counter) < value && scale_now_s() < until_s) {
        if (now != before)
            until_s = scale_now_s() + PATIENCE_S; /* as long as there is progress */
        before = now;
        scale_progress(what, now, value);
        usleep(1000);
    }
    return now >= value;
}

/* The number of KiB behind a word at the beginning of a line, in bytes; -1: it is not there. */
static double bytes_in(const char *path, const char *word)
{
    char line[256];
    double bytes = -1;
    FILE *file = fopen(path, "r");
    while (file != NULL && bytes < 0 && fgets(line, sizeof line, file) != NULL) {
        long long kib;
        if (strncmp(line, word, strlen(word)) == 0 &&
            sscanf(line + strlen(word), ": %lld", &kib) == 1)
            bytes = (double)kib * 1024;
    }
    if (file != NULL)
        fclose(file);
    return bytes;
}

double scale_own_bytes(void)
{
    return bytes_in("/proc/self/status", "RssAnon");
}

double scale_kernel_bytes(void)
{
    return bytes_in("/proc/meminfo", "Slab");
}

bool scale_is_memory_short(void)
{
    return bytes_in("/proc/meminfo", "MemAvailable") <
           bytes_in("/proc/meminfo", "MemTotal") / LEAST_FREE_SHARE;
}

void scale_watch_idle(const scale_settings *settings, scale_counts *counts, scale_figures *figures)
{
    size_t fired = counts->timers;
    double cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID), begin_s = scale_now_s();
    usleep((useconds_t)(settings->idle_s * 1e6));
    double passed_s = scale_now_s() - begin_s;
    figures->idle_cpu = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_s) / passed_s;
    figures->timers = (double)(counts->timers - fired) / passed_s;
}

scale_answers scale_answers_of(const histogram *times)
{
    return (scale_answers){
        .p50_us = (double)histogram_percentile(times, 0.5) / 1e3,
        .p99_us = (double)histogram_percentile(times, 0.99) / 1e3,
    };
}
