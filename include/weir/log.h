/* SPDX-License-Identifier: MIT */
/* Logging: warnings and errors go to standard error unless the program or WEIR_LOG says otherwise.
 */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

/** How serious a log line is. */
typedef enum weir_log_level {
    WEIR_LOG_OFF = 0,
    WEIR_LOG_ERROR, /* something is lost or misused */
    WEIR_LOG_WARN,  /* an unhandled error, a limit reached */
    WEIR_LOG_INFO,  /* what was chosen, started, stopped */
    WEIR_LOG_DEBUG, /* for finding faults */
    WEIR_LOG_TRACE, /* every event */
} weir_log_level;

/**
 * Receives one line, without a line end; `origin` is the part of weir that logs. Both
 * are borrowed for the call. Lines come one at a time, from any thread, and are cut at 2,047 bytes;
 * a line that weir would log from inside the sink is dropped.
 */
typedef void (*weir_log_fn)(void *arg, weir_log_level level, const char *origin, const char *line);

/**
 * Sends lines up to `level` to `fn`; WEIR_LOG_OFF or a NULL `fn` makes weir silent. Without this
 * call weir prints to standard error, up to the level that WEIR_LOG names in the environment: off,
 * error, warn (the default), info, debug or trace. When it returns, the previous sink is no longer
 * running. Thread-safe, but not from a sink (-EDEADLK).
 */
WEIR_API int weir_log_set(weir_log_level level, weir_log_fn fn, void *arg);

/** Prints lines up to `level` to standard error, with time, level, thread and origin. Fails as
 * weir_log_set does. */
WEIR_API int weir_log_to_stderr(weir_log_level level);

/** "error", "warn", "info", "debug", "trace" or "off". */
WEIR_API const char *weir_log_level_name(weir_log_level level);

/** The level of that name, or -EINVAL. */
WEIR_API int weir_log_level_from(const char *name);

/** Whether a line of this level would reach the sink; cheap, for lines that are costly to prepare.
 */
WEIR_API bool weir_log_enabled(weir_log_level level);

/** Logs a line, for handlers that want to speak through the same sink. Any thread. */
WEIR_API void weir_log(weir_log_level level, const char *origin, const char *format, ...)
    WEIR_PRINTF(3, 4);

WEIR_END_DECLS

#endif
