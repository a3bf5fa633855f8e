/* SPDX-License-Identifier: MIT */
/* Back traces as text. */
#include "base/trace.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>

void weir__trace_write(void *const *frames, int count, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    char **names = backtrace_symbols(frames, count);
    for (int i = 0; names != NULL && i < count; i++) {
        int length = snprintf(text + used, size - used, "%s    %s", i > 0 ? "\n" : "", names[i]);
        if (length < 0 || (size_t)length >= size - used) {
            text[used] = '\0';
            break;
        }
        used += (size_t)length;
    }
    free(names); /* which come from the C library's own malloc */
}
