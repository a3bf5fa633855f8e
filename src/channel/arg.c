/* SPDX-License-Identifier: MIT */
/* The arguments of handlers. */
#include "channel/arg.h"

#include "base/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int weir__arg_retain(const weir_handler_type *type, void *arg)
{
    return arg != NULL && type->arg_retain != NULL ? type->arg_retain(arg) : 0;
}

void weir__arg_release(const weir_handler_type *type, void *arg)
{
    if (arg != NULL && type->arg_release != NULL)
        type->arg_release(arg);
}

int weir__arg_keep(const weir_handler_type *type, void **arg)
{
    void *copy = *arg;
    if (copy != NULL && type->arg_size > 0) {
        if ((copy = weir__alloc(type->arg_size)) == NULL)
            return -ENOMEM;
        memcpy(copy, *arg, type->arg_size);
    }
    int code = weir__arg_retain(type, copy);
    if (code == 0)
        *arg = copy;
    else if (copy != *arg)
        weir__free(copy);
    return code;
}

void weir__arg_drop(const weir_handler_type *type, void *arg)
{
    weir__arg_release(type, arg);
    if (type->arg_size > 0)
        weir__free(arg);
}

bool weir__arg_check(weir_ctx *ctx, const char *field, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return true;
    weir_ctx_fail(ctx, -EINVAL, "%s is %" PRId64 ", but can be from %" PRId64 " to %" PRId64, field,
                  value, min, max);
    return false;
}

bool weir__arg_check_size(weir_ctx *ctx, const char *field, size_t value, size_t min, size_t max)
{
    if (value >= min && value <= max)
        return true;
    weir_ctx_fail(ctx, -EINVAL, "%s is %zu, but can be from %zu to %zu", field, value, min, max);
    return false;
}

bool weir__arg_check_given(weir_ctx *ctx, const char *what, const void *value)
{
    if (value == NULL)
        weir_ctx_fail(ctx, -EINVAL, "%s is NULL", what);
    return value != NULL;
}
