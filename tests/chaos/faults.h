/* SPDX-License-Identifier: MIT */
/* Faults at a rate: allocations and system calls of weir that fail now and then. */
#ifndef CHAOS_FAULTS_H
#define CHAOS_FAULTS_H

#include <stdint.h>

/* Installs the fault hook; once, before any other thread is there. */
void faults_install(void);

/* Begins a seed: one call in `one_in` fails, chosen by `seed`; 0: none. */
void faults_begin(uint32_t one_in, uint64_t seed);

/* No call fails from now on. */
void faults_stop(void);

/* How many calls have failed since faults_begin. */
unsigned faults_count(void);

#endif
