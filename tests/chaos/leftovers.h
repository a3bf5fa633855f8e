/* SPDX-License-Identifier: MIT */
/* Leftovers of a seed: objects that are alive after it and were not before. */
#ifndef CHAOS_LEFTOVERS_H
#define CHAOS_LEFTOVERS_H

#include "../living.h"

/* Fails the seed if more objects are alive than before it. */
void leftovers_check(const living *before);

#endif
