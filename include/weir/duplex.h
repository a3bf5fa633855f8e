/* SPDX-License-Identifier: MIT */
/* The duplex handler: two halves, one for each way, added and removed as one. */
#ifndef WEIR_DUPLEX_H
#define WEIR_DUPLEX_H

#include <weir/api.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** A handler for what comes in, and one for what goes out, each with its own argument and state. */
typedef struct weir_duplex {
    const weir_handler_type *in; /* has no callbacks for what goes out */
    void *in_arg;
    const weir_handler_type *out; /* has none for what comes in */
    void *out_arg;
} weir_duplex;

/** Puts both halves behind itself when it is added, and takes them out with itself. Add it with a
 * weir_duplex as the argument, which is copied together with the configs of the halves. The halves
 * have names of their own, of their types and a number. */
extern WEIR_API const weir_handler_type weir_duplex_handler;

WEIR_END_DECLS

#endif
