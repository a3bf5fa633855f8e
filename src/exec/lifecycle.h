/* SPDX-License-Identifier: MIT */
/* What posting and running need of an executor's way from its first task to its end. */
#ifndef WEIR_EXEC_LIFECYCLE_H
#define WEIR_EXEC_LIFECYCLE_H

#include "exec/executor.h"

/* Starts the thread for a task that was pushed, unless somebody else does; when that fails the task
 * is taken back from the queue. */
int weir__executor_start(weir_executor *executor, weir_task_queue *queue, weir_task *task);

/*
 * The executor has terminated, and nobody takes tasks from its queues any more but whoever finds
 * one there. Drops them and returns how many; `own` is not dropped but stays its poster's, who is
 * told by `*has_own`.
 */
unsigned weir__executor_drop_tasks(weir_executor *executor, const weir_task *own, bool *has_own);

/* Makes the calling thread the executor's (NULL: nobody's) and returns whose it was. */
weir_executor *weir__executor_set_current(weir_executor *executor);

/* Outside its turns a manual executor rests: whoever posts to it wakes it. */
void weir__executor_set_resting(weir_executor *executor, bool is_resting);

#endif
