/* SPDX-License-Identifier: MIT */
/* The timers of an executor, for the executor; on its thread. */
#ifndef WEIR_EXEC_TIMER_H
#define WEIR_EXEC_TIMER_H

#include "exec/executor.h"

#include <weir/timer.h>

/* Moves timers that are due to the task queue, in their order, at most so many. False when there
 * are more, or the queue is full. */
bool weir__timers_move_due(weir_executor *executor, unsigned most);

/* Cancels all that wait. */
void weir__timers_cancel_all(weir_executor *executor);

#endif
