/* SPDX-License-Identifier: MIT */
/* Times in nanoseconds, counted in classes that are never wider than 1/64 of what they hold: what a
 * percentile says is right to 1.6%, from a nanosecond to a minute. */
#ifndef WEIR_LOAD_HISTOGRAM_H
#define WEIR_LOAD_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_STEP_BITS = 6, /* each power of two is cut into that many halves of halves */
    HISTOGRAM_CLASSES = (64 - HISTOGRAM_STEP_BITS + 1) << HISTOGRAM_STEP_BITS,
};

typedef struct histogram {
    uint64_t counts[HISTOGRAM_CLASSES];
    uint64_t total, largest_ns;
    double sum_ns;
} histogram;

void histogram_add(histogram *self, uint64_t ns);

/* The time that this share (0.99) of all took at most; 0 when there are none. */
uint64_t histogram_percentile(const histogram *self, double share);

double histogram_mean(const histogram *self);

#endif
