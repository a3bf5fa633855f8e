/* SPDX-License-Identifier: MIT */
/* Flow control: one message for each read that is asked for, however many a decoder makes of it. */
#ifndef WEIR_FLOW_CONTROL_H
#define WEIR_FLOW_CONTROL_H

#include <weir/api.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/**
 * Without auto_read, who calls read asks for one batch of bytes, and a decoder may find any number
 * of messages in it. Put this one behind the decoder: each read is answered by one message, then
 * on_read_complete, and the others wait for the next. The other side is only read from when nothing
 * waits, so what waits is bounded by what a decoder makes of one batch. A read inside on_read or
 * on_read_complete is answered when that has returned, without recursion; further reads before a
 * message has come count as the same one. Its argument is not used.
 *
 * With auto_read everything is passed on as it comes, also what waits when it is switched on; and
 * when it is switched off in the middle, the rest waits.
 *
 * What waits at weir_event_switched is refused. Nothing else is dropped: what waits when the
 * handler is removed is passed on then, and what waits when the channel is closed is passed on
 * before on_inactive. weir_event_input_closed comes behind the last message. Without memory to keep
 * a message this is told by on_error, and the channel is closed: what came before that message is
 * still passed on, nothing behind it.
 */
extern WEIR_API const weir_handler_type weir_flow_control_handler;

WEIR_END_DECLS

#endif
