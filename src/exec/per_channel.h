/* SPDX-License-Identifier: MIT */
/* Groups that make a child for each channel, when it comes, and keep it for another when it has
 * gone. */
#ifndef WEIR_EXEC_PER_CHANNEL_H
#define WEIR_EXEC_PER_CHANNEL_H

#include "exec/group.h"

/* Makes one, without children. The argument is copied. */
int weir__per_channel_new(weir_group **group, const weir_group_config *config,
                          weir_child_fn new_child, const void *child_arg, size_t arg_size,
                          weir_error *error);

/*
 * A child for a channel: weir_group_next, unless the group makes one for each. Then an idle one, or
 * a new one; WEIR_ELIMIT when as many are active as may be, WEIR_ESHUTDOWN when the group is
 * ending, or what it is that keeps it from making one. Such a child is the taker's until a resident
 * has come to it and gone again; when none comes, the taker gives it back. Any thread.
 */
int weir__group_take(weir_group *group, weir_executor **executor);
void weir__group_give_back(weir_group *group, weir_executor *executor);

/* By a child: its first resident has come, taken or not; and the last has gone, and what it left is
 * done. */
void weir__per_channel_enter(weir_executor *executor);
void weir__per_channel_leave(weir_executor *executor);

/* By a child whose thread retires, on that thread, while no other thread can start: the next one
 * to retire joins it, or weir__per_channel_join, which the group calls when its children ended.
 * Whether there is a previous thread, which the caller joins. */
bool weir__per_channel_retire(weir_executor *executor, pthread_t *previous);
void weir__per_channel_join(weir_group *group);

/* For the group: it makes no more from here on; a child has ended; the memory. */
void weir__per_channel_end(weir_group *group);
void weir__per_channel_forget(weir_group_child *child);
void weir__per_channel_free(struct weir_per_channel *self);

#endif
