/* SPDX-License-Identifier: MIT */
/* Error codes, and the error value that says what failed in words. */
#ifndef WEIR_ERROR_H
#define WEIR_ERROR_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

/*
 * A function that can fail returns 0 or a negative code. System errors keep their
 * number and are -errno (-ENOMEM, -ECONNRESET); what no errno says well has a code
 * of weir's own, below -4096, from this one table: name, number, text.
 */
#define WEIR_ERRORS(X)                                                                             \
    X(WEIR_EOF, -4097, "end of stream")                                                            \
    X(WEIR_ECLOSED, -4098, "already closed")                                                       \
    X(WEIR_EBOUNDS, -4099, "index or length outside the buffer")                                   \
    X(WEIR_ELIMIT, -4100, "limit exceeded")                                                        \
    X(WEIR_EREADONLY, -4101, "buffer is read-only")                                                \
    X(WEIR_ENOTFOUND, -4102, "not found")                                                          \
    X(WEIR_ESHUTDOWN, -4103, "executor has shut down")                                             \
    X(WEIR_EREGISTERED, -4104, "registered to an event loop already")                              \
    X(WEIR_ELOOPTYPE, -4105, "incompatible event loop type")                                       \
    X(WEIR_ENONAME, -4106, "host name not found")                                                  \
    X(WEIR_ENAMESERVICE, -4107, "name service did not answer")

enum weir_error_code {
#define WEIR__ERROR_ENUM(name, number, text) name = number,
    WEIR_ERRORS(WEIR__ERROR_ENUM)
#undef WEIR__ERROR_ENUM
};

/** What a code is called, "WEIR_ECLOSED" or "ECONNRESET"; "?" for an unknown one. Any thread. */
WEIR_API const char *weir_error_name(int code);

/** What a code means, in a few words of English; never NULL. Any thread. */
WEIR_API const char *weir_error_text(int code);

/**
 * An error as a value: copy it, keep it, put it on the stack. `origin` is who
 * failed (a function, a handler), `message` names the address, file or number that
 * was wrong. Both are always terminated.
 */
typedef struct weir_error {
    int code; /* 0: no error */
    char origin[28];
    char message[224];
} weir_error;

/**
 * Fills `error` and returns `code`, so that a caller can `return weir_error_set(...)`.
 * `error` may be NULL, which leaves just the return value. A text that is too long is
 * cut. Any thread; no allocation.
 */
WEIR_API int weir_error_set(weir_error *error, int code, const char *origin, const char *format,
                            ...) WEIR_PRINTF(4, 5);

WEIR_END_DECLS

#endif
