/* SPDX-License-Identifier: MIT */
#include "histogram.h"

/* Below 64 each number is a class; above, the leading bit says which power of two it is and the six
 * bits behind it which part of that. */
static unsigned class_of(uint64_t ns)
{
    if (ns < 1u << HISTOGRAM_STEP_BITS)
        return (unsigned)ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns), shift = power - HISTOGRAM_STEP_BITS;
    return ((shift + 1) << HISTOGRAM_STEP_BITS) +
           (unsigned)((ns >> shift) & ((1u << HISTOGRAM_STEP_BITS) - 1));
}

/* The largest time of a class. */
static uint64_t end_of(unsigned nth)
{
    unsigned power = nth >> HISTOGRAM_STEP_BITS;
    uint64_t part = nth & ((1u << HISTOGRAM_STEP_BITS) - 1);
    if (power == 0)
        return part;
    return ((part + (1u << HISTOGRAM_STEP_BITS) + 1) << (power - 1)) - 1;
}

void histogram_add(histogram *self, uint64_t ns)
{
    self->counts[class_of(ns)]++;
    self->total++;
    self->sum_ns += (double)ns;
    if (ns > self->largest_ns)
        self->largest_ns = ns;
}

uint64_t histogram_percentile(const histogram *self, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)self->total + 0.5), seen = 0;
    if (wanted == 0)
        wanted = 1;
    for (unsigned i = 0; i < HISTOGRAM_CLASSES; i++) {
        seen += self->counts[i];
        if (seen >= wanted)
            return end_of(i) < self->largest_ns ? end_of(i) : self->largest_ns;
    }
    return self->largest_ns;
}

double histogram_mean(const histogram *self)
{
    return self->total > 0 ? self->sum_ns / (double)self->total : 0;
}
