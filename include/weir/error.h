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
    X(WEIR_ENAMESERVICE, -4107, "name service did not answer")                                     \
    /* TLS: <weir/tls.h>. */                                                                       \
    X(WEIR_ETLS, -4120, "TLS failed")                                                              \
    X(WEIR_ETLS_PLAIN, -4121, "not TLS")                                                           \
    X(WEIR_ETLS_HTTP, -4122, "plain HTTP where TLS is spoken")                                     \
    X(WEIR_ETLS_RECORD, -4123, "TLS record refused")                                               \
    X(WEIR_ETLS_TRUNCATED, -4124, "TLS cut off without close_notify")                              \
    X(WEIR_ETLS_ALERT, -4125, "the other side ended TLS with an alert")                            \
    X(WEIR_ETLS_RENEGOTIATION, -4126, "TLS renegotiation refused")                                 \
    X(WEIR_ETLS_AGREEMENT, -4127, "TLS: nothing that both sides can do")                           \
    X(WEIR_ETLS_CERTIFICATE, -4128, "certificate refused")                                         \
    X(WEIR_ETLS_NO_CERTIFICATE, -4129, "no certificate was shown")                                 \
    X(WEIR_ETLS_HOST, -4130, "certificate is for another host")                                    \
    X(WEIR_ETLS_EXPIRED, -4131, "certificate is not valid now")                                    \
    X(WEIR_ETLS_SELF_SIGNED, -4132, "certificate is signed by itself")                             \
    X(WEIR_ETLS_UNTRUSTED, -4133, "certificate is from nobody who is trusted")                     \
    X(WEIR_ETLS_PEM, -4134, "not a certificate or key")                                            \
    X(WEIR_ETLS_KEY, -4135, "key does not belong to the certificate")                              \
    X(WEIR_ETLS_PASSWORD, -4136, "key is encrypted, and the password missing or wrong")            \
    X(WEIR_ETLS_NAME, -4137, "no certificate for that host")                                       \
    X(WEIR_EHELD, -4138, "a handler holds data from before a protocol upgrade")

/** The codes of weir's own. */
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
