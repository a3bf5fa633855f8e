/* SPDX-License-Identifier: MIT */
/* The plain executor: a thread that waits for tasks and timers, and for nothing else. */
#ifndef WEIR_EXEC_PLAIN_H
#define WEIR_EXEC_PLAIN_H

#include "exec/executor.h"

/* A plain executor with one reference, the caller's. -ENOMEM. */
int weir__plain_executor_new(weir_executor **executor, const weir_executor_config *config);

#endif
