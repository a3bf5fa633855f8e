/* SPDX-License-Identifier: MIT */
/* The group's one implementation, for executors and event loops alike. */
#ifndef WEIR_EXEC_GROUP_H
#define WEIR_EXEC_GROUP_H

#include "exec/executor.h"

#include <weir/group.h>

/* A child's place in its group, where it stays. */
typedef struct weir_group_child {
    weir_executor *executor;
    weir_group *group;
    weir_listener on_end;

    /* In a group that makes a child for each channel, under its lock: idle unless one of these
     * holds. */
    bool is_taken;    /* a channel is on its way to it */
    bool is_occupied; /* it has residents, or tasks that they left */
    bool is_gone;     /* it ends, or has ended */
    weir_list_node idle;
} weir_group_child;

/* Data of a higher layer that lives as long as the group: embed it, and set `free`, which the group
 * calls at its end. */
typedef struct weir_group_data {
    void (*free)(struct weir_group_data *data);
} weir_group_data;

/* Places come in blocks, each twice as large as the one before, so that who looks at the children
 * needs no lock while more are made. */
#define WEIR_GROUP_FIRST_BLOCK 16
#define WEIR_GROUP_BLOCKS 28

struct weir_group {
    _Atomic(size_t) count; /* of the places that are filled */
    weir_group_child *blocks[WEIR_GROUP_BLOCKS];
    weir_chooser_fn chooser;
    void *chooser_arg;
    const char *chooser_name;
    _Atomic(bool) is_skip_logged; /* that a child cannot run, and others serve instead */
    _Atomic(uint64_t) next;
    _Atomic(size_t)
        living;     /* children that have not terminated, and one more while some may come */
    weir_home home; /* of the next, for which the group stays */
    weir_future terminated;
    _Atomic(size_t) refs; /* the owner's, and each child's: its last thread may be on its way out */

    /* Of a manual group. */
    bool is_manual;
    pthread_t maker;
    weir_list_node link;       /* among those of its thread */
    weir_executor *background; /* stands for the global executor */

    _Atomic(weir_group_data *) names; /* of the name service, made on first use */

    struct weir_per_channel *per_channel; /* it makes a child for each channel; NULL: not */
};

/* Makes a child; the group takes its reference. The config has the child's own name. */
typedef int (*weir_child_fn)(void *arg, const weir_executor_config *config,
                             weir_executor **executor);

int weir__group_new(weir_group **group, const weir_group_config *config, weir_child_fn new_child,
                    void *child_arg, weir_error *error);

/* Takes one more reference to the struct, by who knows that there is one. */
weir_group *weir__group_retain(weir_group *group);

/* A child for a channel: weir_group_next, or if that one cannot run, the first after it that can.
 * If none can, that one all the same, whose post reports the error. */
weir_executor *weir__group_choose(weir_group *group);

/* The system calls of its children. */
weir_sys *weir__group_sys(const weir_group *group);

/* Gives a reference to the struct back. */
void weir__group_release(weir_group *group);

/* For who makes groups of another kind ------------------------------------------------------- */

/* Refuses a config with a message. */
int weir__group_check(const weir_group_config *config, weir_error *error);

/* Without children, and with one counted as living that is not there: count it down when no more
 * are to come. NULL: no memory. */
weir_group *weir__group_alloc(const weir_group_config *config);
void weir__group_count_down(weir_group *group);

/* One more child, which counts as living, and where it is. */
int weir__group_make_child(weir_group *group, const weir_group_config *config,
                           weir_child_fn new_child, void *child_arg);
weir_group_child *weir__group_place(const weir_group *group, size_t index);

/* Counts it down at its end, which may be now. */
void weir__group_await_end(weir_group_child *child);

/* The counter behind weir_group_next, for tests of its wrap. */
void weir__group_set_counter(weir_group *group, uint64_t n);

#endif
