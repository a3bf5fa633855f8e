/* SPDX-License-Identifier: MIT */
/* The group's one implementation, for executors and event loops alike. */
#ifndef WEIR_EXEC_GROUP_H
#define WEIR_EXEC_GROUP_H

#include "exec/executor.h"

#include <weir/group.h>

struct weir_group {
    size_t count;
    weir_chooser_fn chooser;
    void *chooser_arg;
    const char *chooser_name;
    _Atomic(uint64_t) next;
    _Atomic(size_t) living; /* children that have not terminated */
    weir_future terminated;
    _Atomic(size_t) refs; /* the owner's, and each child's: its last thread may be on its way out */
    struct child_end *ends; /* one for each child's termination */

    /* Of a manual group. */
    bool is_manual;
    pthread_t maker;
    weir_list_node link;       /* among those of its thread */
    weir_executor *background; /* stands for the global executor */

    weir_executor *children[];
};

/* Makes a child; the group takes its reference. The config has the child's own name. */
typedef int (*weir_child_fn)(void *arg, const weir_executor_config *config,
                             weir_executor **executor);

int weir__group_new(weir_group **group, const weir_group_config *config, weir_child_fn new_child,
                    void *child_arg, weir_error *error);

/* Gives a reference to the struct back. */
void weir__group_release(weir_group *group);

/* The counter behind weir_group_next, for tests of its wrap. */
void weir__group_set_counter(weir_group *group, uint64_t n);

#endif
