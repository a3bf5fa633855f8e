/* SPDX-License-Identifier: MIT */
/* Output: a record written in any of the ways that weir has. */
#ifndef CHAOS_OUTPUT_H
#define CHAOS_OUTPUT_H

#include "end.h"

/* Writes the next record of a stream: from the handler when `ctx` is given, else through the
 * channel. False when the stream is at its end. Does not flush. */
bool output_record(end *self, stream *to, weir_ctx *ctx, dice *d);

/* The same through a channel that the caller holds. */
bool output_record_to(end *self, stream *to, weir_channel *channel, dice *d);

/* Broadcasts the next record of a stream to all channels of the room. */
void output_broadcast(world *where, dice *d);

#endif
