/* SPDX-License-Identifier: MIT */
/* Counts the instructions that a process runs in user mode, by single steps: where valgrind cannot
 * run a program, and the machine does not count instructions. */
#ifndef WEIR_LOAD_STEPS_H
#define WEIR_LOAD_STEPS_H

#include <stdint.h>
#include <sys/types.h>

typedef struct steps steps;

/* From now on the process runs step by step, some ten thousand a second. Ends the program with a
 * line on standard error if it cannot be traced. */
steps *steps_begin(pid_t pid);

/* Kills the process, since a step may be pending in it, and returns how many it has run. NULL: 0.
 */
uint64_t steps_end(steps *self);

#endif
