/* SPDX-License-Identifier: MIT */
/* The group's one implementation, for executors and event loops alike. */
#ifndef WEIR_EXEC_GROUP_H
#define WEIR_EXEC_GROUP_H

#include "exec/executor.h"

#include <weir/group.h>

/* Makes a child; the group takes its reference. The config has the child's own name. */
typedef int (*weir_child_fn)(void *arg, const weir_executor_config *config,
                             weir_executor **executor);

int weir__group_new(weir_group **group, const weir_executors_config *config,
                    weir_child_fn new_child, void *child_arg, weir_error *error);

/* Gives a reference to the struct back. */
void weir__group_release(weir_group *group);

/* The counter behind weir_group_next, for tests of its wrap. */
void weir__group_set_counter(weir_group *group, uint64_t n);

#endif
