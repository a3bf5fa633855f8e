/* SPDX-License-Identifier: MIT */
/* Random numbers from a seed: one generator per thread, each split from the seed's own. */
#ifndef CHAOS_DICE_H
#define CHAOS_DICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dice {
    uint64_t state;
} dice;

static inline uint64_t dice_next(dice *self)
{
    uint64_t mixed = self->state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* From 0 up to, and without, `count`. */
static inline uint32_t dice_below(dice *self, uint32_t count)
{
    return count == 0 ? 0 : (uint32_t)(dice_next(self) % count);
}

/* From `low` to `high`, both included. */
static inline uint32_t dice_between(dice *self, uint32_t low, uint32_t high)
{
    return low + dice_below(self, high - low + 1);
}

static inline bool dice_one_in(dice *self, uint32_t count)
{
    return dice_below(self, count) == 0;
}

static inline bool dice_percent(dice *self, uint32_t percent)
{
    return dice_below(self, 100) < percent;
}

/* A generator for another thread or object. */
static inline dice dice_split(dice *self)
{
    return (dice){ .state = dice_next(self) };
}

#endif
