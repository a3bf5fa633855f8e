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
 * Waiting messages are held (see held_reads). None is dropped: those that wait when the handler is
 * removed are passed on then, and when the channel closes before on_inactive, and
 * weir_event_input_closed follows the last. Without memory to keep a message on_error is called and
 * the channel closes: the messages before it are still passed on, none after it.
 */
extern WEIR_API const weir_handler_type weir_flow_control_handler;

WEIR_END_DECLS

#endif
