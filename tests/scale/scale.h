/* SPDX-License-Identifier: MIT */
/* weir-scale: as many connections as there can be, most of them idle, and what they cost. */
#ifndef WEIR_SCALE_H
#define WEIR_SCALE_H

#include <weir/weir.h>

#include "../../bench/load/histogram.h"

enum {
    SCALE_LIVE = 16, /* connections that are asked something */
    SCALE_ASK_BYTES = 64,
    SCALE_IDLE_S = 60, /* after which a connection counts as idle; looked at that often */
};

typedef struct scale_settings {
    size_t tcp;   /* connections; 0: as many as there are descriptors for */
    size_t local; /* channels, two for each connection */
    unsigned questions;
    double idle_s; /* how long the idle ones are watched */
    int tick_ms;   /* idle timers fire at multiples of it; 0: each at its own time */
} scale_settings;

typedef struct scale_answers {
    double p50_us, p99_us;
} scale_answers;

typedef struct scale_figures {
    size_t connections, channels;    /* held at once, in this process */
    double seconds;                  /* to make them */
    double user_bytes, kernel_bytes; /* of all; negative: not known */
    scale_answers few, full;         /* while only the live ones are there, and with all others */
    double idle_cpu;                 /* of one CPU, 0 to 1 */
    double timers;                   /* that fire a second meanwhile */
    double close_seconds;
    char note[128]; /* why there are not more */
    unsigned failures;
} scale_figures;

void scale_tcp(const scale_settings *settings, scale_figures *figures);
void scale_local(const scale_settings *settings, scale_figures *figures);

/* Pipelines ------------------------------------------------------------------------------------ */

/* What all channels of a kind share. */
typedef struct scale_counts {
    int tick_ms;
    _Atomic(size_t) active, inactive, timers;
} scale_counts;

/* Adds a handler that passes everything on, and one with an idle timer: the first two of three. */
int scale_add_handlers(weir_channel *channel, scale_counts *counts);

/* The third of an accepted channel: answers with what it reads. */
int scale_add_echo(weir_channel *channel, void *counts);

/* Measuring ------------------------------------------------------------------------------------ */

/* Tells what went wrong, and counts it. */
void scale_fail(scale_figures *figures, const char *format, ...) WEIR_PRINTF(2, 3);

void scale_progress(const char *what, size_t done, size_t all);
void scale_progress_end(void);

double scale_now_s(void);

/* Waits until a counter is there: false when that takes very long. */
bool scale_wait_for(const char *what, _Atomic(size_t) *counter, size_t value);

/* Bytes: this process's own memory; the objects of the kernel, whoever's they are (-1: not known);
 * whether another thousand connections would leave the machine too little. */
double scale_own_bytes(void);
double scale_kernel_bytes(void);
bool scale_is_memory_short(void);

/* Does nothing for as long as the settings say: what that costs. */
void scale_watch_idle(const scale_settings *settings, scale_counts *counts, scale_figures *figures);

scale_answers scale_answers_of(const histogram *times);

#endif
