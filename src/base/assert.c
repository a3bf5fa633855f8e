/* SPDX-License-Identifier: MIT */
/* Reports misuse by the caller. */
#include "base/assert.h"

#include <weir/log.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void weir__misuse(const char *function, const char *format, ...)
{
    /* Long enough for a stack of frames: the place where a message was made. */
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
#ifdef WEIR_DEBUG
    fprintf(stderr, "weir: %s: %s\n", function, text);
    abort();
#else
    weir_log(WEIR_LOG_ERROR, function, "%s", text);
#endif
}
