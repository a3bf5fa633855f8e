/* SPDX-License-Identifier: MIT */
/* What posting and running need of an executor's way from its first task to its end. */
#ifndef WEIR_EXEC_LIFECYCLE_H
#define WEIR_EXEC_LIFECYCLE_H

#include "exec/executor.h"

/* Starts the thread for a task that was pushed (NULL: for none), unless another thread does; when
 * that fails the task is taken back from the queue. */
int weir__executor_start(weir_executor *executor, weir_task_queue *queue, weir_task *task);

/* Starts the thread if there is none: 0, or the negative code of the attempt; WEIR_ESHUTDOWN while
 * the executor ends and after it. */
int weir__executor_need_thread(weir_executor *executor);

/* For a poster that finds the executor terminated after it has pushed `task`: takes it back. 0 if
 * the terminating thread has dropped it before, else WEIR_ESHUTDOWN. A poster never drops the tasks
 * of others: `dropped` runs on the thread that terminates the executor, and nowhere else. */
int weir__executor_take_back(weir_executor *executor, weir_task_queue *queue, weir_task *task);

/* Makes the calling thread the executor's (NULL: nobody's) and returns whose it was. */
weir_executor *weir__executor_set_current(weir_executor *executor);

/* When its shutdown is over: after the quiet period, or at the timeout while it has channels. */
int64_t weir__executor_end_ns(const weir_executor *executor);

/* Outside its turns a manual executor rests: whoever posts to it wakes it. */
void weir__executor_set_resting(weir_executor *executor, bool is_resting);

#endif
