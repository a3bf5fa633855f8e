/* SPDX-License-Identifier: MIT */
/* What can go wrong with each kind of call. */
#ifndef WEIR_TESTS_TORTURE_FAULTS_H
#define WEIR_TESTS_TORTURE_FAULTS_H

#include <stddef.h>

/* Instead of a code: fewer bytes are moved than were asked for, one. */
#define FAULT_SHORT 1

/* The n-th fault (from 0) of a call of that name: a negative code or FAULT_SHORT, 0 behind the
 * last. Every call has at least one. */
int fault_at(const char *call, unsigned n);

/* Its name, as ECONNRESET or short; and the other way round, 0 when a call has none of that name.
 */
const char *fault_name(int fault);
int fault_named(const char *call, const char *name);

#endif
