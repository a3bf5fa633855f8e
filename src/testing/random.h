/* SPDX-License-Identifier: MIT */
/* Chance that a seed repeats: splitmix64. */
#ifndef WEIR_TESTING_RANDOM_H
#define WEIR_TESTING_RANDOM_H

#include <stdint.h>

static inline uint64_t weir__random_next(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return mixed ^ mixed >> 31;
}

#endif
