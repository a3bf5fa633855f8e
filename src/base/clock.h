/* SPDX-License-Identifier: MIT */
/* Times for waits. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <weir/clock.h>

#include <time.h>

/* When a wait on the monotonic clock ends that begins now; far away for a negative timeout. */
struct timespec weir__clock_until(int64_t timeout_ns);

#endif
