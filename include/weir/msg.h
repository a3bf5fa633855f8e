/* SPDX-License-Identifier: MIT */
/* Messages: the counted header of everything that travels a pipeline. */
#ifndef WEIR_MSG_H
#define WEIR_MSG_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

typedef struct weir_msg weir_msg;

/** What a kind of message is. Const and static: one per kind, compared by address. */
typedef struct weir_msg_type {
    const char *name; /* for logs, dumps and the leak detector */

    /* Bytes this message stands for in water marks and limits; NULL: 0. */
    size_t (*size)(const weir_msg *msg);

    /* The last reference went: release what the message owns, then its memory. */
    void (*destroy)(weir_msg *msg);
} weir_msg_type;

/**
 * Embed it as the first member of a message of your own. The fields are read through
 * the functions below; only weir writes them.
 *
 * A message is born with one reference. Passing it to a function that takes a message
 * gives that reference away, whatever the function then returns; keep one by retaining
 * first. References may be taken and released on any thread by who holds one.
 */
struct weir_msg {
    const weir_msg_type *type;
    WEIR_ATOMIC(uint32_t) refs; /* 0: dead; from WEIR_MSG_IMMORTAL up: never dies */
    uint32_t track;             /* the leak detector's record, 0: none */
};

/** The reference count of a message that is never freed. */
#define WEIR_MSG_IMMORTAL 0x80000000u

/** A constant message that any thread may pass around: retain and release leave it alone. */
#define WEIR_MSG_CONSTANT(message_type)                                                            \
    {                                                                                              \
        (message_type), WEIR_MSG_IMMORTAL, 0                                                       \
    }

/** Makes the embedded header alive with one reference, the caller's. Cannot fail. */
WEIR_API void weir_msg_init(weir_msg *msg, const weir_msg_type *type);

/**
 * Takes one more reference and returns `msg`. The caller must hold one already, or the message it
 * is within. Any thread. NULL for NULL; NULL for a message that is already dead, which is reported
 * as misuse.
 */
WEIR_API weir_msg *weir_msg_retain(weir_msg *msg);

/**
 * Gives one reference back: 1 when that was the last and the message is gone, 0 while
 * others hold it, -EINVAL for NULL or for a message that is already dead. The latter is seen as
 * long as its memory was not used for something else, and reported as misuse, with the place the
 * message was made when that was recorded: debug builds assert, release builds log and go on. Any
 * thread.
 */
WEIR_API int weir_msg_release(weir_msg *msg);

/** Releases a message or a buffer: for weir_promise_succeed, as the function that frees its value.
 */
WEIR_API void weir_msg_release_value(void *msg);

/** The bytes a message stands for, as its type says; 0 for NULL. */
WEIR_API size_t weir_msg_size(const weir_msg *msg);

/** How many references there are: a snapshot, for tests and dumps. 0 for NULL. */
WEIR_API uint32_t weir_msg_refs(const weir_msg *msg);

WEIR_END_DECLS

#endif
