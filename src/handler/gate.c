/* SPDX-License-Identifier: MIT */
/* Gates: those who are let in are left alone, of the others nothing is heard. */
#include "handler/gate.h"

#include <weir/channel.h>

static weir_gate *gate_of(const weir_ctx *ctx)
{
    return weir_ctx_state(ctx);
}

static void decide(weir_ctx *ctx)
{
    weir_gate *self = gate_of(ctx);
    self->is_refused = !self->admits(ctx);
    if (self->is_refused)
        weir_ctx_close(ctx, NULL);
}

void weir__gate_init(weir_ctx *ctx, weir_gate_fn admits)
{
    bool is_late = weir_channel_is_active(weir_ctx_channel(ctx));
    *gate_of(ctx) = (weir_gate){ .admits = admits, .is_late = is_late };
    if (is_late)
        decide(ctx);
}

/* Also of one that was late: somebody before it has found out only now who is at the other side. */
void weir__gate_on_active(weir_ctx *ctx)
{
    if (!gate_of(ctx)->is_refused)
        decide(ctx);
    if (!gate_of(ctx)->is_refused)
        weir_ctx_fire_active(ctx);
}

void weir__gate_on_read(weir_ctx *ctx, weir_msg *msg)
{
    if (gate_of(ctx)->is_refused)
        weir_msg_release(msg);
    else
        weir_ctx_fire_read(ctx, msg);
}

void weir__gate_on_read_complete(weir_ctx *ctx)
{
    if (!gate_of(ctx)->is_refused)
        weir_ctx_fire_read_complete(ctx);
}

void weir__gate_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (gate_of(ctx)->is_refused)
        weir_msg_release(event);
    else
        weir_ctx_fire_event(ctx, event);
}

void weir__gate_on_writability(weir_ctx *ctx)
{
    if (!gate_of(ctx)->is_refused)
        weir_ctx_fire_writability(ctx);
}

/* Those who did not hear that it is active do not hear that it is no more. */
void weir__gate_on_inactive(weir_ctx *ctx)
{
    if (!gate_of(ctx)->is_refused || gate_of(ctx)->is_late)
        weir_ctx_fire_inactive(ctx);
}

void weir__gate_on_error(weir_ctx *ctx, const weir_error *error)
{
    if (!gate_of(ctx)->is_refused)
        weir_ctx_fire_error(ctx, error);
}
