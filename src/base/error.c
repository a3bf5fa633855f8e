/* SPDX-License-Identifier: MIT */
/* Names and texts of error codes, and the error value. */
#include <weir/error.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *weir_error_name(int code)
{
    switch (code) {
    case 0:
        return "OK";
#define NAME(name, number, text)                                                                   \
    case name:                                                                                     \
        return #name;
        WEIR_ERRORS(NAME)
#undef NAME
    default:
        break;
    }
    const char *name = code < 0 && code >= -4096 ? strerrorname_np(-code) : NULL;
    return name != NULL ? name : "?";
}

const char *weir_error_text(int code)
{
    switch (code) {
    case 0:
        return "success";
#define TEXT(name, number, text)                                                                   \
    case name:                                                                                     \
        return text;
        WEIR_ERRORS(TEXT)
#undef TEXT
    default:
        break;
    }
    /* Unlike strerror it is never translated and never shares a buffer between threads. */
    const char *text = code < 0 && code >= -4096 ? strerrordesc_np(-code) : NULL;
    return text != NULL ? text : "unknown error";
}

int weir_error_set(weir_error *error, int code, const char *origin, const char *format, ...)
{
    if (error == NULL)
        return code;
    /* Formatted aside, so that the arguments may lie in the error that is being replaced. */
    char message[sizeof error->message], from[sizeof error->origin];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(from, sizeof from, "%s", origin != NULL ? origin : "");
    error->code = code;
    memcpy(error->origin, from, sizeof from);
    memcpy(error->message, message, sizeof message);
    return code;
}
