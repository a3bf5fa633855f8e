/* SPDX-License-Identifier: MIT */
/* How large a buffer the next receive should get, from what the last ones brought. */
#ifndef WEIR_IO_GUESS_H
#define WEIR_IO_GUESS_H

#include <weir/api.h>

/* All zero is how it starts. */
typedef struct weir_guess {
    int8_t steps;   /* above or below where it starts, in the table of sizes */
    bool was_small; /* the last receive would not have filled the next smaller size */
} weir_guess;

/* 2048 bytes at first, from 64 to 65536. */
size_t weir__guess_size(const weir_guess *guess);

/* A receive into a buffer of that size brought `length` bytes: four steps up when it was filled,
 * one step down after two in a row that would not have filled the next smaller one. */
void weir__guess_learn(weir_guess *guess, size_t length);

#endif
