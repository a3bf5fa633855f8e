/* SPDX-License-Identifier: MIT */
/* Durations: int64_t nanoseconds everywhere. */
#ifndef WEIR_DURATION_H
#define WEIR_DURATION_H

#include <weir/api.h>

#include <stddef.h>
#include <stdint.h>

WEIR_BEGIN_DECLS

/*
 * Every duration and every point in time of the API is an int64_t of nanoseconds, and its name ends
 * with _ns. In a config 0 is the default, and WEIR_OFF is no limit.
 */

/** Microseconds, milliseconds and seconds in nanoseconds. */
#define WEIR_US(count) ((int64_t)(count)*1000)
#define WEIR_MS(count) ((int64_t)(count)*1000000)
#define WEIR_SECONDS(count) ((int64_t)(count)*1000000000)

/** Room for the text of any duration. */
#define WEIR_DURATION_TEXT_MAX 24

/** Writes a duration with the unit that reads best: "80 ns", "250 ms", "1.5 s". Cuts the text if
 * it does not fit. Returns `text`. */
WEIR_API const char *weir_duration_text(int64_t ns, char *text, size_t size);

WEIR_END_DECLS

#endif
