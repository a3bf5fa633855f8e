/* SPDX-License-Identifier: MIT */
/* Jobs: many seeds, in several processes, each of which survives the seeds that fail. */
#ifndef CHAOS_JOBS_H
#define CHAOS_JOBS_H

#include <stdint.h>

/* Runs one seed, or does not return. */
typedef void (*job_fn)(void *arg, uint64_t seed);

/* Runs `count` seeds from `first` on, in `jobs` processes, for at most `seconds` (0: any time).
 * Returns how many failed, having printed their numbers; `*done` is how many ran. */
uint64_t jobs_run(unsigned jobs, uint64_t first, uint64_t count, unsigned seconds, job_fn run,
                  void *arg, uint64_t *done);

#endif
