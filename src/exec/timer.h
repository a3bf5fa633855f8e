/* SPDX-License-Identifier: MIT */
/* The timers of an executor, for the executor; on its thread. */
#ifndef WEIR_EXEC_TIMER_H
#define WEIR_EXEC_TIMER_H

#include "exec/executor.h"

#include <weir/timer.h>

/* Moves the timers that are due to the task queue. False when that was full before all were moved.
 */
bool weir__timers_move_due(weir_executor *executor);

/* Cancels all that wait. */
void weir__timers_cancel_all(weir_executor *executor);

#endif
