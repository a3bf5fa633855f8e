/* SPDX-License-Identifier: MIT */
/* The part of a run that is counted. */
#include "load.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

uint64_t load_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double own_cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

int64_t load_kernel_kib(void)
{
    char line[128];
    long long kib = -1;
    FILE *file = fopen("/proc/meminfo", "r");
    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL && sscanf(line, "Slab: %lld", &kib) != 1)
        ;
    fclose(file);
    return kib;
}

bool load_span_open(load_span *self, const load_settings *settings, load_result *result)
{
    *self = (load_span){
        .settings = settings,
        .result = result,
        .begin_ns = UINT64_MAX,
        .end_ns = UINT64_MAX,
    };
    result->kernel_kib_before = load_kernel_kib();
    if (settings->watched == 0)
        return true;
    self->watch = watch_begin(settings->watched);
    if (self->watch == NULL)
        return false;
    result->is_watched = true;
    result->resident_kib_before = watch_resident_kib(self->watch);
    return true;
}

static void begin(load_span *self)
{
    self->has_begun = true;
    if (self->settings->is_stepped)
        self->steps = steps_begin(self->settings->watched);
    self->own_cpu_ns = own_cpu_ns();
    if (self->watch != NULL)
        watch_start(self->watch);
    self->begin_ns = load_now_ns();
    if (self->settings->count == 0)
        self->end_ns = self->begin_ns + (uint64_t)(self->settings->duration_s * 1e9);
}

void load_span_warm_up(load_span *self)
{
    bool is_counted = self->settings->count > 0; /* then every message is */
    self->begin_ns = load_now_ns() + (is_counted ? 0 : (uint64_t)(self->settings->warmup_s * 1e9));
    if (is_counted)
        begin(self);
}

void load_span_add(load_span *self, uint64_t sent_ns, uint64_t now_ns)
{
    if (!self->has_begun || now_ns >= self->end_ns)
        return;
    self->result->messages++;
    histogram_add(&self->result->latency, now_ns - sent_ns);
}

bool load_span_is_over(load_span *self, uint64_t now_ns)
{
    if (!self->has_begun && now_ns >= self->begin_ns)
        begin(self);
    return now_ns >= self->end_ns ||
           (self->settings->count > 0 && self->result->messages >= self->settings->count);
}

void load_span_close(load_span *self)
{
    load_result *result = self->result;
    result->kernel_kib = load_kernel_kib();
    if (self->has_begun) {
        result->seconds = (double)(load_now_ns() - self->begin_ns) / 1e9;
        result->own_cpu_ns = own_cpu_ns() - self->own_cpu_ns;
        if (self->watch != NULL)
            watch_stop(self->watch, &result->server);
    }
    result->steps = steps_end(self->steps);
    watch_end(self->watch);
}
