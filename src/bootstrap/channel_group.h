/* SPDX-License-Identifier: MIT */
/* Walks over a channel group, for who does something with all its channels. */
#ifndef WEIR_BOOTSTRAP_CHANNEL_GROUP_H
#define WEIR_BOOTSTRAP_CHANNEL_GROUP_H

#include <weir/channel_group.h>
#include <weir/node.h>

/* Where a member stands in the order of coming, or a walk has got to. */
typedef struct weir_channel_place {
    weir_list_node node;
    uint64_t number; /* grows along the list; 0: a walk's */
} weir_channel_place;

/* A walk stands in the list itself, so that members before and behind it may come and go. It holds
 * the group. */
typedef struct weir_channel_walk {
    weir_channel_place place;
    weir_channel_group *group;
    uint64_t last;     /* the number of the last member to visit */
    bool sees_removed; /* also those that only stay until they are closed */
} weir_channel_walk;

void weir__channel_walk_begin(weir_channel_walk *walk, weir_channel_group *group);

/* A reference to the next channel, the caller's to release; NULL when there is none. */
weir_channel *weir__channel_walk_on(weir_channel_walk *walk);

/* At any time, once. */
void weir__channel_walk_end(weir_channel_walk *walk);

#endif
