/* SPDX-License-Identifier: MIT */
/* The embedded channel: a pipeline in a test's hands, without a kernel, a thread or real time. */
#ifndef WEIR_EMBEDDED_H
#define WEIR_EMBEDDED_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/error.h>

WEIR_BEGIN_DECLS

/*
 *       write_inbound -> [head] -> handlers -> [tail] -> read_inbound
 *       read_outbound <- [head] <- handlers <- [tail] <- write_outbound
 *
 * The test stands on both sides of a channel's handlers. It hands in what would have been read from
 * the other side, and takes out what came through to the tail; writes what a program would write,
 * and takes out what would have been sent. The channel is on a loop of its own, which runs on the
 * test's thread, inside these functions: each of them returns when there is nothing left to do at
 * the present time, which stands still until weir_embedded_advance.
 *
 *     weir_embedded *e;
 *     weir_embedded_new(&e, &(weir_embedded_config){ .init = init_child }, NULL);
 *     weir_embedded_write_inbound(e, &weir_buf_from("hello", 5)->msg);
 *     weir_msg *answer = weir_embedded_read_outbound(e);
 *     ...
 *     assert(weir_embedded_finish(e, NULL) == 0);
 *     weir_embedded_free(e);
 *
 * All functions on the thread that made it. The channel itself can be used from everywhere, but
 * what is asked of it happens inside these functions. Between them the test's thread is not the
 * loop's: what it asks of the channel or its pipeline directly has happened after the next
 * weir_embedded_run, and weir_ctx_ functions belong into weir_embedded_call. From inside a handler
 * these functions are refused with -EDEADLK.
 */
typedef struct weir_embedded weir_embedded;

/** How an embedded channel is made. Zero is the default of everything. */
typedef struct weir_embedded_config {
    weir_init_fn init; /* adds the handlers; NULL: none */
    void *arg;
    weir_channel *parent; /* it is a child of, and has the options that are set for children */
    bool is_unregistered; /* leave it to weir_channel_register */
    bool is_unconnected;  /* leave it to bind or connect to make it active */

    /* A group whose next loop it is put on, which must outlive it. With threads of its own it
     * works, too: then the functions below wait for what they have asked for, and no more. NULL: a
     * manual group of its own, with a virtual clock. */
    weir_group *group;
} weir_embedded_config;

/** Makes one: -ENOMEM, -EINVAL, or what `init` failed with. The config may be NULL. */
WEIR_API int weir_embedded_new(weir_embedded **embedded, const weir_embedded_config *config,
                               weir_error *error);

/** Closes the channel if it is open, and frees everything that was not taken out. NULL is fine. */
WEIR_API void weir_embedded_free(weir_embedded *embedded);

/** Borrowed. */
WEIR_API weir_channel *weir_embedded_channel(weir_embedded *embedded);
WEIR_API weir_pipeline *weir_embedded_pipeline(weir_embedded *embedded);

/** The loop it was made on. Borrowed. */
WEIR_API weir_executor *weir_embedded_executor(weir_embedded *embedded);

/* In and out --------------------------------------------------------------------------------- */

/** A message was read: on_read, then on_read_complete. The message goes with the call. 0, or the
 * code of the first error that has reached the tail and was not taken, or WEIR_ECLOSED. */
WEIR_API int weir_embedded_write_inbound(weir_embedded *embedded, weir_msg *msg);

/** The same without on_read_complete, and that alone: for batches. */
WEIR_API int weir_embedded_write_inbound_part(weir_embedded *embedded, weir_msg *msg);
WEIR_API int weir_embedded_end_batch(weir_embedded *embedded);

/** A copy of some bytes as a buffer. */
WEIR_API int weir_embedded_write_inbound_bytes(weir_embedded *embedded, const void *bytes,
                                               size_t length);

/** The other side sends no more (0), or reading failed (a negative code). */
WEIR_API int weir_embedded_end_inbound(weir_embedded *embedded, int code);

/** What came through to the tail, the oldest first: the caller's to release. NULL: nothing. */
WEIR_API weir_msg *weir_embedded_read_inbound(weir_embedded *embedded);

/** Writes and flushes from the tail's side. Codes as above. */
WEIR_API int weir_embedded_write_outbound(weir_embedded *embedded, weir_msg *msg);
WEIR_API int weir_embedded_flush(weir_embedded *embedded);

/** What would have been sent, the oldest first: the caller's to release. NULL: nothing. */
WEIR_API weir_msg *weir_embedded_read_outbound(weir_embedded *embedded);

/** Takes the bytes of all that would have been sent, at most `room`; returns how many. Messages
 * that are not buffers are released. */
WEIR_API size_t weir_embedded_read_outbound_bytes(weir_embedded *embedded, void *to, size_t room);

/** How many messages wait to be taken. */
WEIR_API size_t weir_embedded_inbound_count(const weir_embedded *embedded);
WEIR_API size_t weir_embedded_outbound_count(const weir_embedded *embedded);

/** The other side takes this many more messages, and then none: flushed ones wait. Without this
 * call it takes everything. SIZE_MAX: everything again. */
WEIR_API int weir_embedded_accept(weir_embedded *embedded, size_t messages);

/** Makes sending fail with a negative code from now on; 0: not any more. */
WEIR_API void weir_embedded_fail_sends(weir_embedded *embedded, int code);

/** Whether the channel wants to read now. */
WEIR_API bool weir_embedded_is_reading(const weir_embedded *embedded);

/** Whether the channel has told the other side that no more comes. */
WEIR_API bool weir_embedded_is_output_shut(const weir_embedded *embedded);

/* Time and tasks ----------------------------------------------------------------------------- */

/** Runs what there is to do. -ELOOP when that does not come to an end. */
WEIR_API int weir_embedded_run(weir_embedded *embedded);

/** Moves the clock, and runs every timer on the way at its time. -EPERM with a group of others. */
WEIR_API int weir_embedded_advance(weir_embedded *embedded, int64_t step_ns);

/** Calls a function on the channel's loop, where weir_ctx_ functions may be used. Returns what that
 * returns. */
WEIR_API int weir_embedded_call(weir_embedded *embedded, weir_call_fn fn, void *arg);

/* Errors and the end ------------------------------------------------------------------------- */

/** The code of the first error that reached the tail and was not taken, 0 when there is none. */
WEIR_API int weir_embedded_check(const weir_embedded *embedded);

/** Takes that error: false when there is none. `error` may be NULL. */
WEIR_API bool weir_embedded_take_error(weir_embedded *embedded, weir_error *error);

/** Closes the channel; what was flushed is out before. */
WEIR_API int weir_embedded_close(weir_embedded *embedded);

/** What a test forgot, or a handler. */
typedef struct weir_embedded_report {
    size_t inbound, outbound; /* messages that were not taken */
    size_t errors;
    size_t leaked; /* other messages that were made since and are alive; where is logged. Needs
                      WEIR_LEAK_ALL, which debug builds have; else 0 */
} weir_embedded_report;

/** Closes the channel, and returns how many things were left, which `report` (may be NULL) tells
 * apart. They stay where they are, to be looked at. */
WEIR_API size_t weir_embedded_finish(weir_embedded *embedded, weir_embedded_report *report);

WEIR_END_DECLS

#endif
