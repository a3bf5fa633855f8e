/* SPDX-License-Identifier: MIT */
/* The duplex handler: adds its halves, and removes them. */
#include "channel/arg.h"
#include "channel/pipeline.h"

#include <weir/duplex.h>
#include <weir/pipeline.h>

#include <errno.h>

/* The halves, by what no other handler of the channel has; they may be removed by themselves. */
typedef struct duplex {
    uint32_t in, out;
    bool has_in, has_out;
} duplex;

static bool check_half(weir_ctx *ctx, const char *field, const weir_handler_type *type,
                       uint32_t others)
{
    if (!weir__arg_check_given(ctx, field, type))
        return false;
    if ((weir__handler_mask(type) & others) != 0)
        weir_ctx_fail(ctx, -EINVAL, "%s is '%s', which has callbacks for the other direction",
                      field, type->name);
    return (weir__handler_mask(type) & others) == 0;
}

/* Behind this handler. */
static bool add_half(weir_ctx *ctx, const weir_handler_type *type, void *arg, uint32_t *number)
{
    weir_error error;
    weir_handler_config config = { .type = type, .arg = arg, .place = WEIR_PLACE_AFTER };
    config.base = weir_ctx_name(ctx);
    if (weir__pipeline_add(weir_ctx_pipeline(ctx), &config, number, &error) == 0)
        return true;
    weir_ctx_fail(ctx, error.code, "its half '%s': %s", type->name, error.message);
    return false;
}

static void duplex_added(weir_ctx *ctx)
{
    duplex *self = weir_ctx_state(ctx);
    const weir_duplex *halves = weir_ctx_arg(ctx);
    if (!weir__arg_check_given(ctx, "weir_duplex", halves) ||
        !check_half(ctx, "in", halves->in, WEIR__OUTBOUND_MASK) ||
        !check_half(ctx, "out", halves->out, WEIR__INBOUND_MASK))
        return;
    if (ctx->is_offloaded) {
        weir_ctx_fail(ctx, -EOPNOTSUPP, "cannot have an executor of its own");
        return;
    }
    self->has_out = add_half(ctx, halves->out, halves->out_arg, &self->out);
    self->has_in = self->has_out && add_half(ctx, halves->in, halves->in_arg, &self->in);
}

static void remove_half(weir_ctx *ctx, uint32_t number)
{
    weir_ctx *half = weir__pipeline_find_number(weir_ctx_pipeline(ctx), number);
    if (half != NULL)
        weir_ctx_remove(half);
}

static void duplex_removed(weir_ctx *ctx)
{
    const duplex *self = weir_ctx_state(ctx);
    if (self->has_in)
        remove_half(ctx, self->in);
    if (self->has_out)
        remove_half(ctx, self->out);
}

/* The halves are added with it, and not before. */
static int duplex_retain(void *arg)
{
    weir_duplex *halves = arg;
    if (halves->in == NULL || halves->out == NULL)
        return 0;
    int code = weir__arg_keep(halves->in, &halves->in_arg);
    if (code == 0 && (code = weir__arg_keep(halves->out, &halves->out_arg)) < 0)
        weir__arg_drop(halves->in, halves->in_arg);
    return code;
}

static void duplex_release(void *arg)
{
    const weir_duplex *halves = arg;
    if (halves->in == NULL || halves->out == NULL)
        return;
    weir__arg_drop(halves->in, halves->in_arg);
    weir__arg_drop(halves->out, halves->out_arg);
}

const weir_handler_type weir_duplex_handler = {
    .name = "duplex",
    .state_size = sizeof(duplex),
    .arg_size = sizeof(weir_duplex),
    .arg_retain = duplex_retain,
    .arg_release = duplex_release,
    .added = duplex_added,
    .removed = duplex_removed,
};
