/* SPDX-License-Identifier: MIT */
/* Actions: one random call on a channel, by its handler or by another thread. */
#ifndef CHAOS_ACTION_H
#define CHAOS_ACTION_H

#include "end.h"

/* Inside a callback of the end's handler. */
void action_by_handler(end *self, weir_ctx *ctx, dice *d);

/* On another thread, which holds the channel: of an end with a driver, or borrowed from a pool. */
void action_by_driver(end *self, weir_channel *channel, dice *d);

/* Undoes what actions have paused, so that everything written can arrive. */
void action_calm(end *self);

#endif
