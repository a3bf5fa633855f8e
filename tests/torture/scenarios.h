/* SPDX-License-Identifier: MIT */
/* What is tried with every call failing once. */
#ifndef WEIR_TESTS_TORTURE_SCENARIOS_H
#define WEIR_TESTS_TORTURE_SCENARIOS_H

#include <weir/weir.h>

/*
 * A scenario does its work and undoes it: 0 when all of it went well, or the code of the first step
 * that did not. Either way every promise it has made is complete, every byte that came is one that
 * was sent, in order, and nothing is left; what does not hold ends the process with a line on
 * standard error.
 */
typedef struct scenario {
    const char *name;
    const char *what;
    int (*run)(weir_io_kind io);
    bool is_for_kernel; /* it is worth doing over each backend */
} scenario;

extern const scenario scenarios[]; /* the last one has no name */

#endif
