/* SPDX-License-Identifier: MIT */
/* Sums of times that do not overflow. */
#ifndef WEIR_BASE_TIME_SUM_H
#define WEIR_BASE_TIME_SUM_H

#include <stdint.h>

/* A time and a duration of 0 or more; INT64_MAX, which is never, if the sum is larger. */
static inline int64_t weir__time_sum(int64_t time_ns, int64_t duration_ns)
{
    int64_t sum_ns;
    return __builtin_add_overflow(time_ns, duration_ns, &sum_ns) ? INT64_MAX : sum_ns;
}

#endif
