/* SPDX-License-Identifier: MIT */
/* The guess of a receive's size. */
#include "io/guess.h"

/*
 * The sizes: in steps of 16 bytes up to 512, then doubling, as in Netty's adaptive allocator.
 *
 *   64 80 96 ... 496 | 512 1024 2048 ... 65536
 */
#define LEAST 64
#define STEP 16
#define FIRST_POWER 512
#define LINEAR_COUNT ((FIRST_POWER - LEAST) / STEP)
#define LARGEST_INDEX (LINEAR_COUNT + 7) /* 65536 */
#define START_INDEX (LINEAR_COUNT + 2)   /* 2048 */
#define STEPS_UP 4
#define STEPS_DOWN 1

static size_t size_at(int index)
{
    return index < LINEAR_COUNT ? LEAST + STEP * (size_t)index
                                : (size_t)FIRST_POWER << (index - LINEAR_COUNT);
}

static int clamp(int index)
{
    if (index < 0)
        return 0;
    return index < LARGEST_INDEX ? index : LARGEST_INDEX;
}

size_t weir__guess_size(const weir_guess *guess)
{
    return size_at(START_INDEX + guess->steps);
}

static void move(weir_guess *guess, int steps)
{
    guess->steps = (int8_t)(clamp(START_INDEX + guess->steps + steps) - START_INDEX);
    guess->was_small = false;
}

void weir__guess_learn(weir_guess *guess, size_t length)
{
    int index = START_INDEX + guess->steps;
    if (length >= size_at(index)) {
        move(guess, STEPS_UP);
    } else if (length >= size_at(clamp(index - STEPS_DOWN))) {
        guess->was_small = false;
    } else if (guess->was_small) {
        move(guess, -STEPS_DOWN);
    } else {
        guess->was_small = true;
    }
}
