/* SPDX-License-Identifier: MIT */
/* A handler behind TLS that writes down what it sees. */
#ifndef WEIR_TESTS_TLS_NOTES_H
#define WEIR_TESTS_TLS_NOTES_H

#include "tls/pair.h"

/* The argument: "active session read inactive ", errors by their names. */
typedef struct notes {
    char text[1024];
    void (*on_session)(weir_ctx *ctx, const weir_tls_session *session);
    const char *says; /* when it is active; NULL: nothing */
} notes;

extern const weir_handler_type noting;

#endif
