/* SPDX-License-Identifier: MIT */
/* Connections that take too long: an error, and their end. */
#ifndef WEIR_TIMEOUT_H
#define WEIR_TIMEOUT_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** How long a connection may take. */
typedef struct weir_timeout {
    int64_t timeout_ns; /* 1 or more */
} weir_timeout;

/** When nothing has been read for so long, on_error says -ETIMEDOUT, and the channel is closed. Add
 * it with a weir_timeout as the argument, which is copied; without a time it cannot
 * be added. It has one timer, which nothing that is read touches. */
extern WEIR_API const weir_handler_type weir_read_timeout_handler;

/** The same when output that was flushed waits, and nothing of it has gone for so long: the other
 * side takes no more. Progress is looked at when the time is up, so it may take up to twice as
 * long; and it is what the kernel takes, in steps of its buffer when the other side reads slowly:
 * leave it seconds. Neither of the two can have an executor of its own. */
extern WEIR_API const weir_handler_type weir_write_timeout_handler;

WEIR_END_DECLS

#endif
