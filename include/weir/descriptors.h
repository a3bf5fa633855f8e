/* SPDX-License-Identifier: MIT */
/* Descriptors as messages: passed to another process over a Unix stream. */
#ifndef WEIR_DESCRIPTORS_H
#define WEIR_DESCRIPTORS_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/msg.h>

WEIR_BEGIN_DECLS

/** The most of them in one message. */
#define WEIR_DESCRIPTORS_MAX 253

/**
 * Bytes, and descriptors that travel with the first of them. Written to a Unix stream, they are
 * closed here when the kernel has them. A channel with the option max_descriptors reads such a
 * message when descriptors come; those that are more than that are closed, and without the option
 * all of them. Bytes that were sent before may stand in front of those in the same message, for the
 * kernel does not keep them apart.
 */
typedef struct weir_descriptors {
    weir_msg msg; /* of type weir_descriptors_type */
    weir_buf *bytes;
    unsigned count;
    int *fds; /* -1: taken out */
} weir_descriptors;

/** The message type of descriptors. */
WEIR_API extern const weir_msg_type weir_descriptors_type;

/** Takes the descriptors and the buffer, which has at least one byte. NULL for bad arguments and
 * without memory, and then both are still the caller's. */
WEIR_API weir_descriptors *weir_descriptors_new(const int *fds, unsigned count, weir_buf *bytes);

/** Takes a descriptor out: the caller's from then on. -1 when there is none. */
WEIR_API int weir_descriptors_take(weir_descriptors *self, unsigned index);

WEIR_END_DECLS

#endif
