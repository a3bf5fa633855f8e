/* SPDX-License-Identifier: MIT */
/* The guess of a receive's size. */
#include "io/guess.h"

/* In steps of 16 bytes up to 512, then doubling, as in Netty's adaptive allocator. */
static const uint32_t sizes[] = {
    64,  80,  96,  112, 128, 144,  160,  176,  192,  208,   224,   240,
    256, 272, 288, 304, 320, 336,  352,  368,  384,  400,   416,   432,
    448, 464, 480, 496, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536,
};
#define LARGEST_INDEX ((int)(sizeof sizes / sizeof *sizes) - 1)
#define START_INDEX 30 /* 2048 */
#define STEPS_UP 4
#define STEPS_DOWN 1

static int clamp(int index)
{
    if (index < 0)
        return 0;
    return index < LARGEST_INDEX ? index : LARGEST_INDEX;
}

size_t weir__guess_size(const weir_guess *guess)
{
    return sizes[START_INDEX + guess->steps];
}

static void move(weir_guess *guess, int steps)
{
    guess->steps = (int8_t)(clamp(START_INDEX + guess->steps + steps) - START_INDEX);
    guess->was_small = false;
}

void weir__guess_learn(weir_guess *guess, size_t length)
{
    int index = START_INDEX + guess->steps;
    if (length >= sizes[index]) {
        move(guess, STEPS_UP);
    } else if (index == 0 || length >= sizes[index - STEPS_DOWN]) {
        guess->was_small = false;
    } else if (guess->was_small) {
        move(guess, -STEPS_DOWN);
    } else {
        guess->was_small = true;
    }
}
