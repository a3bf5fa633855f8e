/* SPDX-License-Identifier: MIT */
/* A handler's tenure: from an add that returned 0 to `removed`, which must run exactly once. */
#ifndef CHAOS_TENURE_H
#define CHAOS_TENURE_H

#include <weir/channel.h>

#include <stdatomic.h>

typedef enum add_state {
    ADD_UNDER_WAY,
    ADD_SUCCEEDED,
    ADD_FAILED,
} add_state;

typedef struct tenure {
    char name[16];
    weir_group *group; /* of its executor; NULL: the channel's loop */
    _Atomic add_state state;
    atomic_uint added, removed;
} tenure;

/* The add has returned. */
void tenure_set_result(tenure *self, int code);

/* `added` and `removed` run. */
void tenure_begin(tenure *self);
void tenure_end(tenure *self);

/* The channel is over, or the seed is: fails the seed if `removed` has not run as promised. */
void tenure_check(const tenure *self);

/* A door that only one thread may be inside of at a time, itself several times over. */
typedef struct door {
    atomic_int thread; /* 0: no callback runs */
    unsigned depth;
} door;

void door_enter(door *self, const tenure *who);
void door_leave(door *self);

/* Whether callbacks of a channel are promised its loop's thread. One that is off its loop, or whose
 * loop takes no more tasks, has none of its own; doors see to it that there is one at a time. */
bool channel_has_thread(const weir_channel *channel);

/* Fails the seed unless this is the thread that the handler's callbacks are promised. */
void tenure_check_thread(const tenure *self, weir_ctx *ctx, bool is_removed);

#endif
