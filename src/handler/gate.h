/* SPDX-License-Identifier: MIT */
/* A gate: a handler that decides whether a connection may go on to those behind it. */
#ifndef WEIR_HANDLER_GATE_H
#define WEIR_HANDLER_GATE_H

#include <weir/handler.h>

/* Whether it may: asked when the channel is active. */
typedef bool (*weir_gate_fn)(weir_ctx *ctx);

/* The begin of the handler's state. */
typedef struct weir_gate {
    weir_gate_fn admits;
    bool is_refused; /* nothing passes any more */
    bool is_late;    /* those behind it had heard that the channel is active */
} weir_gate;

/* In `added`, when the rest of the state is ready. */
void weir__gate_init(weir_ctx *ctx, weir_gate_fn admits);

void weir__gate_on_active(weir_ctx *ctx);
void weir__gate_on_read(weir_ctx *ctx, weir_msg *msg);
void weir__gate_on_read_complete(weir_ctx *ctx);
void weir__gate_on_event(weir_ctx *ctx, weir_msg *event);
void weir__gate_on_writability(weir_ctx *ctx);
void weir__gate_on_inactive(weir_ctx *ctx);
void weir__gate_on_error(weir_ctx *ctx, const weir_error *error);

/* Of its type; on_active and on_inactive are named by the handler. */
#define WEIR__GATE_CALLBACKS                                                                       \
    .on_read = weir__gate_on_read, .on_read_complete = weir__gate_on_read_complete,                \
    .on_event = weir__gate_on_event, .on_writability = weir__gate_on_writability,                  \
    .on_error = weir__gate_on_error

#endif
