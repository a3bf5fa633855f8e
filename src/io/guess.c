/* SPDX-License-Identifier: MIT */
/* The guess of a receive's size. */
#include "io/guess.h"

/* In steps of 16 bytes up to 512, then doubling, as in Netty's adaptive allocator. */
static const uint32_t sizes[] = {
    64,  80,  96,  112, 128, 144,  160,  176,  192,  208,   224,   240,
    256, 272, 288, 304, 320, 336,  352,  368,  384,  400,   416,   432,
    448, 464, 480, 496, 512, 1024, 2048, 4096, 8192, 16384, 32768, WEIR__LARGEST_GUESS,
};
#define LARGEST_INDEX ((int)(sizeof sizes / sizeof *sizes) - 1)
#define FIRST_INDEX 30
#define STEPS_UP 4
#define STEPS_DOWN 1

static void set(weir_guess *guess, int index)
{
    index = index < 0 ? 0 : index < LARGEST_INDEX ? index : LARGEST_INDEX;
    *guess = (weir_guess){
        .size = sizes[index],
        .smaller = index > 0 ? (uint16_t)sizes[index - 1] : 0,
        .index = (uint8_t)index,
    };
}

/* Also the first time. */
__attribute__((noinline)) void weir__guess_change(weir_guess *guess, size_t length)
{
    if (guess->size == 0)
        set(guess, FIRST_INDEX);
    if (length >= guess->size) {
        set(guess, guess->index + STEPS_UP);
    } else if (length >= guess->smaller) {
        guess->was_small = false;
    } else if (guess->was_small) {
        set(guess, guess->index - STEPS_DOWN);
    } else {
        guess->was_small = true;
    }
}

void weir__guess_most(weir_guess *guess)
{
    set(guess, LARGEST_INDEX);
}
