/* SPDX-License-Identifier: MIT */
/* The watchdog: reports executors whose thread has been in one callback for too long. */
#ifndef WEIR_EXEC_WATCHDOG_H
#define WEIR_EXEC_WATCHDOG_H

#include "exec/executor.h"

/* From now until the second call the calling thread, which is the executor's, is watched with its
 * limit. */
void weir__watchdog_watch(weir_executor *executor);
void weir__watchdog_unwatch(weir_executor *executor);

#endif
