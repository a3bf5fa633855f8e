/* SPDX-License-Identifier: MIT */
/* How large a buffer the next receive should get, from what the last ones brought. */
#ifndef WEIR_IO_GUESS_H
#define WEIR_IO_GUESS_H

#include <weir/api.h>

/* All zero is how it starts. */
typedef struct weir_guess {
    uint32_t size;    /* 0: what it starts with */
    uint16_t smaller; /* the next smaller size; 0: there is none */
    uint8_t index;    /* of the size in the table */
    bool was_small;   /* the last receive would not have filled the next smaller size */
} weir_guess;

#define WEIR__FIRST_GUESS 2048
#define WEIR__LARGEST_GUESS 65536

/* 2048 bytes at first, from 64 to 65536. */
static inline size_t weir__guess_size(const weir_guess *guess)
{
    return guess->size != 0 ? guess->size : WEIR__FIRST_GUESS;
}

void weir__guess_change(weir_guess *guess, size_t length);

/* Somebody knows that much comes. */
void weir__guess_most(weir_guess *guess);

/* A receive into a buffer of that size brought `length` bytes: four steps up when it was filled,
 * one step down after two in a row that would not have filled the next smaller one. */
static inline void weir__guess_learn(weir_guess *guess, size_t length)
{
    if (length < guess->size && length >= guess->smaller)
        guess->was_small = false; /* it was right */
    else
        weir__guess_change(guess, length);
}

#endif
