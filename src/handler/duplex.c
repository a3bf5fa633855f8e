/* SPDX-License-Identifier: MIT */
/* The duplex handler: adds its halves, and removes them. */
#include "channel/pipeline.h"

#include <weir/duplex.h>
#include <weir/pipeline.h>

#include <errno.h>

/* The halves, by what no other handler of the channel has; they may be removed by themselves. */
typedef struct duplex {
    uint32_t in, out;
    bool has_in, has_out;
} duplex;

#define INBOUND ((2u << WEIR_EV_ERROR) - 1)

static bool is_half(const weir_handler_type *type, uint32_t others)
{
    return type != NULL && (weir__handler_mask(type) & others) == 0;
}

/* Behind this handler. */
static bool add_half(weir_ctx *ctx, const weir_handler_type *type, void *arg, uint32_t *serial)
{
    weir_error error;
    weir_handler_config config = { .type = type, .arg = arg, .place = WEIR_PLACE_AFTER };
    config.base = weir_ctx_name(ctx);
    if (weir__pipeline_add(weir_ctx_pipeline(ctx), &config, serial, &error) == 0)
        return true;
    weir_ctx_fail(ctx, error.code, "its half '%s': %s", type->name, error.message);
    return false;
}

static void duplex_added(weir_ctx *ctx)
{
    duplex *self = weir_ctx_state(ctx);
    const weir_duplex *halves = weir_ctx_arg(ctx);
    if (halves == NULL || !is_half(halves->in, ~INBOUND) || !is_half(halves->out, INBOUND)) {
        weir_ctx_fail(ctx, -EINVAL, "needs a half for each way, with no callbacks for the other");
        return;
    }
    if (ctx->is_elsewhere) {
        weir_ctx_fail(ctx, -EOPNOTSUPP, "cannot have an executor of its own");
        return;
    }
    self->has_out = add_half(ctx, halves->out, halves->out_arg, &self->out);
    self->has_in = self->has_out && add_half(ctx, halves->in, halves->in_arg, &self->in);
}

static void remove_half(weir_ctx *ctx, uint32_t serial)
{
    weir_ctx *half = weir__pipeline_find_serial(weir_ctx_pipeline(ctx), serial, false);
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

const weir_handler_type weir_duplex_handler = {
    .name = "duplex",
    .state_size = sizeof(duplex),
    .added = duplex_added,
    .removed = duplex_removed,
};
