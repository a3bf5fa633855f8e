/* SPDX-License-Identifier: MIT */
/* Coming to a loop, telling of it, and closing: what these have to do with each other. */
#ifndef WEIR_CHANNEL_REGISTRATION_H
#define WEIR_CHANNEL_REGISTRATION_H

#include "channel/channel.h"

/* Tells the handlers what has become of the channel, behind the listeners of what was completed
 * until now. */
void weir__channel_queue_news(weir_channel *channel);

/* Nothing is left to be told here: if it is off its loop and shall go to another, it does now. */
void weir__channel_go_elsewhere(weir_channel *channel);

/* It closes: a move does not happen any more. */
void weir__channel_forget_move(weir_channel *channel);

/* The last step of closing: nothing is under way any more. */
void weir__channel_close_transport(weir_channel *channel);

/* What it is to a loop. */
extern const weir_resident_type weir__channel_resident_type;

/* Ends a promise of the channel's, if there is one. */
static inline void weir__channel_end_promise(weir_promise **promise, int code)
{
    weir_promise *ended = *promise;
    *promise = NULL;
    weir__promise_end(ended, code);
    weir_promise_release(ended);
}

#endif
