/* SPDX-License-Identifier: MIT */
/* The logging handler: a line in the log for everything that passes. */
#ifndef WEIR_LOGGING_H
#define WEIR_LOGGING_H

#include <weir/api.h>
#include <weir/handler.h>
#include <weir/log.h>

WEIR_BEGIN_DECLS

/** How it logs. Zero is the default of everything. */
typedef struct weir_logging {
    weir_log_level level; /* WEIR_LOG_OFF, which is 0: WEIR_LOG_DEBUG */
    const char *origin;   /* NULL: "logging" */
    bool is_hex;          /* shows the bytes of buffers, too, at most 1,024 of each */
} weir_logging;

/**
 * Logs each event with the channel's number and addresses, and passes it on:
 *
 *     [0000001f, L:127.0.0.1:8007, R:127.0.0.1:40112] READ: 5 bytes
 *
 * Add it with a weir_logging as the argument, which is copied, or with NULL. Costs
 * next to nothing while its level is not logged.
 */
extern WEIR_API const weir_handler_type weir_logging_handler;

WEIR_END_DECLS

#endif
