/* SPDX-License-Identifier: MIT */
/* What is tried with every call failing once. */
#ifndef WEIR_TESTS_TORTURE_SCENARIOS_H
#define WEIR_TESTS_TORTURE_SCENARIOS_H

#include "torture/world.h"

/* Where a scenario makes sense. */
enum {
    ON_EPOLL = 1,
    ON_URING = 2,
    ON_BLOCKING = 4, /* which always has threads: one for each channel */
    ON_ALL = 7,
};

typedef struct scenario {
    const char *name;
    const char *what;
    void (*run)(world *self);
    unsigned backends;
} scenario;

extern const scenario scenarios[]; /* the last one has no name */

/*
 * Plays a scenario, which does its work and undoes it: 0 when all of it went well, or the code of
 * the first step that did not. Either way every promise that was made is complete, every byte that
 * came is one that was sent, in order, and nothing is left; what does not hold ends the process
 * with a line on standard error.
 */
int play(const scenario *what, const setting *how);

#endif
