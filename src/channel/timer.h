/* SPDX-License-Identifier: MIT */
/* Timers of handlers, for the rest of the layer. */
#ifndef WEIR_CHANNEL_TIMER_H
#define WEIR_CHANNEL_TIMER_H

#include "channel/channel.h"

/* Cancels those of a context. On its executor. */
void weir__ctx_timers_cancel(weir_ctx *ctx);

/* The channel leaves its loop, and comes to another: its timers stop, and go on with the time that
 * was left. */
void weir__channel_stop_timers(weir_channel *channel);
void weir__channel_resume_timers(weir_channel *channel);

#endif
