/* SPDX-License-Identifier: MIT */
/* The typed handler: takes messages of one type, and releases them. */
#ifndef WEIR_TYPED_H
#define WEIR_TYPED_H

#include <weir/api.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** What to do with which messages. */
typedef struct weir_typed {
    const weir_msg_type *type;

    /* The message is released when this returns; retain it to keep it. */
    void (*on_message)(weir_ctx *ctx, weir_msg *msg);
    void *arg; /* yours: see weir_typed_arg */
} weir_typed;

/** Calls `on_message` for messages of the type, and passes all others on. Add it with a weir_typed
 * as the argument, which is copied; without a type and a function it cannot be
 * added. */
extern WEIR_API const weir_handler_type weir_typed_handler;

/** The `arg` of the weir_typed that a context was added with. */
WEIR_API void *weir_typed_arg(const weir_ctx *ctx);

WEIR_END_DECLS

#endif
