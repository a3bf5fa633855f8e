/* SPDX-License-Identifier: MIT */
/* The arguments of handlers: copied or retained as their types say, and checked. */
#ifndef WEIR_CHANNEL_ARG_H
#define WEIR_CHANNEL_ARG_H

#include <weir/handler.h>

/* Calls `arg_retain` and `arg_release` of a type, if there is something to call them for. */
int weir__arg_retain(const weir_handler_type *type, void *arg);
void weir__arg_release(const weir_handler_type *type, void *arg);

/* Keeps the argument of a handler that is added later: `*arg` becomes a copy if the type has a
 * config. 0, -ENOMEM, or the code of `arg_retain`. And undoes it. Any thread. */
int weir__arg_keep(const weir_handler_type *type, void **arg);
void weir__arg_drop(const weir_handler_type *type, void *arg);

/* In `added`: whether a field of the config is within its bounds. If not, the handler fails with
 * -EINVAL and a message that names all of them. */
bool weir__arg_check(weir_ctx *ctx, const char *field, int64_t value, int64_t min, int64_t max);
bool weir__arg_check_size(weir_ctx *ctx, const char *field, size_t value, size_t min, size_t max);

/* The same for an argument that must not be NULL. `what` names it. */
bool weir__arg_check_given(weir_ctx *ctx, const char *what, const void *value);

#endif
