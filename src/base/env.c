/* SPDX-License-Identifier: MIT */
/* Variables of the environment whose value is one of a few words. */
#include "base/env.h"

#include <weir/log.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void report(const weir_env_words *self, const char *value, int by_default)
{
    char words[128];
    size_t at = 0;
    for (int i = 0; self->words[i] != NULL && at < sizeof words; i++)
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%s", i > 0 ? ", " : "",
                               self->words[i]);
    weir_log(WEIR_LOG_WARN, "environment",
             "%s is '%.60s', which is none of %s; weir uses the default, %s", self->variable, value,
             words, self->words[by_default]);
}

int weir__env_find(const weir_env_words *self)
{
    const char *value = getenv(self->variable);
    for (int i = 0; value != NULL && self->words[i] != NULL; i++) {
        if (strcmp(value, self->words[i]) == 0)
            return i;
    }
    return -1;
}

int weir__env_word(weir_env_words *self, int by_default)
{
    const char *value = getenv(self->variable);
    int found = weir__env_find(self);
    if (found < 0 && value != NULL && *value != '\0' &&
        !atomic_exchange_explicit(&self->is_reported, true, memory_order_relaxed))
        report(self, value, by_default);
    return found >= 0 ? found : by_default;
}
