/* SPDX-License-Identifier: MIT */
/* Variables of the environment whose value is one of a few words. */
#ifndef WEIR_BASE_ENV_H
#define WEIR_BASE_ENV_H

#include <stdatomic.h>
#include <stdbool.h>

enum { WEIR__ENV_MAX_WORDS = 8 };

/* Static; `words` ends with NULL. */
typedef struct weir_env_words {
    const char *variable;
    const char *words[WEIR__ENV_MAX_WORDS];
    _Atomic(bool) is_reported;
} weir_env_words;

/* The index of the variable's word; -1 if the variable is unset, empty or another word. */
int weir__env_find(const weir_env_words *self);

/* The index of the variable's word. If the variable is unset, empty or another word, the default;
 * another word is logged as a warning, once. */
int weir__env_word(weir_env_words *self, int by_default);

#endif
