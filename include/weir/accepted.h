/* SPDX-License-Identifier: MIT */
/* What a listener reads: the channels it has accepted. */
#ifndef WEIR_ACCEPTED_H
#define WEIR_ACCEPTED_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/msg.h>

WEIR_BEGIN_DECLS

/** The message that a listener's on_read gets for each connection. The channel in it is connected,
 * has its options and is on no loop yet; if nobody takes it out, it is closed with the message. */
typedef struct weir_accepted {
    weir_msg msg; /* of type weir_accepted_type */
    weir_channel *channel;
} weir_accepted;

/** The message type of accepted channels. */
WEIR_API extern const weir_msg_type weir_accepted_type;

/** Takes the channel out of the message: the caller's reference from then on, NULL when it was
 * taken before, or the message is none of this kind. On the listener's loop. */
WEIR_API weir_channel *weir_accepted_take(weir_msg *msg);

WEIR_END_DECLS

#endif
