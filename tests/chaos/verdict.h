/* SPDX-License-Identifier: MIT */
/* The verdict on a seed: how a violated invariant or a seed that hangs is reported. */
#ifndef CHAOS_VERDICT_H
#define CHAOS_VERDICT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Begins a seed. `repeat` is the command line that runs it again; a seed that takes longer than
 * `limit_s` fails. `dump` prints the state of the seed, racily, when it has failed. */
void verdict_begin(uint64_t seed, const char *repeat, unsigned limit_s,
                   void (*dump)(FILE *to, void *arg), void *arg);

/* Ends the seed: it has passed. */
void verdict_end(void);

/* Reports that an invariant does not hold, with the last trace lines and the state, and aborts. */
_Noreturn void verdict_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define MUST(condition, ...) ((condition) ? (void)0 : verdict_fail(__VA_ARGS__))

/* Keeps a line for the report, and prints it when verbose. */
void verdict_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
void verdict_set_verbose(bool is_verbose);

#endif
