/* SPDX-License-Identifier: MIT */
/* Idle connections: an event when nothing has come or gone for a while. */
#ifndef WEIR_IDLE_H
#define WEIR_IDLE_H

#include <weir/api.h>
#include <weir/duration.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** Which direction was idle. */
typedef enum weir_idle_kind {
    WEIR_IDLE_READER, /* nothing was read */
    WEIR_IDLE_WRITER, /* nothing was sent */
    WEIR_IDLE_BOTH,   /* neither */
} weir_idle_kind;

/** The event. Constant: keep it as long as you like. */
typedef struct weir_idle_event {
    weir_msg msg;
    weir_idle_kind kind;
    bool is_first; /* since something was read or sent last */
} weir_idle_event;

/** The message type of idle events. */
extern WEIR_API const weir_msg_type weir_idle_event_type;

/** The event inside a message, NULL when it is another. */
static inline const weir_idle_event *weir_idle_event_from(const weir_msg *msg)
{
    return msg != NULL && msg->type == &weir_idle_event_type
               ? WEIR__POINTER(const weir_idle_event, msg)
               : NULL;
}

/** The times after which events are fired; 0 or WEIR_OFF: no such event. */
typedef struct weir_idle {
    int64_t reader_ns, writer_ns, both_ns;
} weir_idle;

/**
 * Passes a weir_idle_event on, by on_event, when the time is up, and again each time it is up once
 * more. Add it with a weir_idle as the argument, which is copied; one with a time
 * below 0, or without any, cannot be added. Put it before (nearer to the head than) the handlers
 * that write: the event goes to those behind it.
 *
 * There is one timer, and nothing that is read or sent touches it: when it fires early, it waits
 * for the rest. Output counts when it goes, however long it has waited for the other side. What a
 * weir_relay reads is seen when the time is up, so the event may then be up to a period late; and
 * so is progress of what waits, with an executor of its own, which only knows the flushes that pass
 * it.
 */
extern WEIR_API const weir_handler_type weir_idle_handler;

WEIR_END_DECLS

#endif
