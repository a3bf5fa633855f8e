/* SPDX-License-Identifier: MIT */
/* The scripted backend: an event loop whose kernel is played by a test. */
#ifndef WEIR_SCRIPT_H
#define WEIR_SCRIPT_H

#include <weir/api.h>
#include <weir/error.h>
#include <weir/group.h>
#include <weir/watch.h>

WEIR_BEGIN_DECLS

/*
 * A script stands in for the kernel of one event loop. Descriptors are mere numbers, from 0 to
 * WEIR_SCRIPT_DESCRIPTORS - 1: nothing is opened, read or closed. The test says what the other side
 * of each of them does (bytes arrive, a send takes only three of ten) and looks at what the loop
 * did.
 *
 * What a descriptor is told before the loop uses it waits there. Once the loop has closed it, the
 * number stands for a new one, and what is said from then on is that one's.
 *
 * Unless a function says otherwise, any thread may call it, also from the loop's callbacks and from
 * the poll hook; a loop that waits is woken. What takes a descriptor returns 0, -EINVAL for a
 * number or another argument out of range, or -ENOMEM, and then has changed nothing.
 */
typedef struct weir_script weir_script;

/** The number of descriptors of a script. */
#define WEIR_SCRIPT_DESCRIPTORS 4096

struct sockaddr;

/** Makes a script: -ENOMEM, -EINVAL for NULL. It has to outlive the groups that use it. */
WEIR_API int weir_script_new(weir_script **script);

/** Frees it when no loop uses it any more: else that is misuse, and does nothing. NULL is fine. */
WEIR_API void weir_script_free(weir_script *script);

/**
 * What to put into weir_group_config.io_source, with `loops` at 1: borrowed. A second loop cannot
 * start with -EBUSY while the first has not been freed. The loop's descriptor is -1; a manual group
 * with a script is therefore driven by steps, or waits for futures with a virtual clock.
 */
WEIR_API weir_io_source *weir_script_source(weir_script *script);

/* Waiting ------------------------------------------------------------------------------------ */

/*
 * A poll counts, asks the hook, then takes the next of the answers that weir_script_answer_polls
 * left. If none of them ends it, it waits until there is something to tell, the loop is woken, or
 * the time is up by the monotonic clock.
 */

/** The next `count` polls do not wait: code 0 ends them at once, early, with what there is to tell
 * or nothing; a negative one makes them fail (-EINTR, -EBADF). A new call replaces what the last
 * one left. -EINVAL for a positive code. */
WEIR_API int weir_script_answer_polls(weir_script *script, unsigned count, int code);

/** What a poll hook returns to let the poll wait. */
#define WEIR_SCRIPT_WAIT 1

/** Called at the beginning of every poll, on the loop's thread, with the time that the loop wants
 * to wait: negative for ever. Returns WEIR_SCRIPT_WAIT, or what ends the poll, as above: so it can
 * move a virtual clock by that time and return 0. */
typedef int (*weir_script_poll_fn)(void *arg, int64_t timeout_ns);

/** Sets the poll hook, NULL takes it away. */
WEIR_API void weir_script_set_poll_hook(weir_script *script, weir_script_poll_fn fn, void *arg);

/** The next `count` rebuilds of the backend fail with `code`. -EINVAL unless that is negative. */
WEIR_API int weir_script_fail_rebuilds(weir_script *script, unsigned count, int code);

/** The next rebuild that succeeds loses this descriptor: all its operations fail with `code`.
 * -EINVAL unless that is negative. */
WEIR_API int weir_script_fail_move(weir_script *script, int fd, int code);

/** Which descriptor the backend names as the reason of polls that end early; -1, the default: it
 * knows none. */
WEIR_API int weir_script_blame(weir_script *script, int fd);

/** Counters of calls to the scripted kernel. */
typedef struct weir_script_stats {
    uint64_t polls;
    uint64_t wakes;          /* how often the loop was woken, as by an eventfd */
    int64_t last_timeout_ns; /* of the last poll */
    bool is_waiting;         /* a poll waits now */
} weir_script_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_script_get_stats(weir_script *script, weir_script_stats *stats);

/* The other side of a descriptor ------------------------------------------------------------- */

/** Bytes arrive: copied. A receive brings what one call delivered, in several pieces when its
 * buffer is too small, but never bytes of two calls. -EPIPE after weir_script_end. */
WEIR_API int weir_script_deliver(weir_script *script, int fd, const void *bytes, size_t length);

/** The peer sends no more: receives end with 0, now and ever after, once they have brought what was
 * delivered. A second time it has no effect. */
WEIR_API int weir_script_end(weir_script *script, int fd);

/** A receive or accept fails with `code`, once, behind what was delivered before; what comes after
 * it is for the next operation. -EINVAL unless negative, -EPIPE after weir_script_end. */
WEIR_API int weir_script_fail(weir_script *script, int fd, int code);

/** A connection to accept: `fd` is its descriptor, `address` the peer's (copied, `length` bytes of
 * it; NULL: the backend does not know it). */
WEIR_API int weir_script_offer(weir_script *script, int listener, int fd,
                               const struct sockaddr *address, size_t length);

/** The connection is gone in both ways. Receives bring what was delivered, then fail with `code`
 * (0: nothing fails) and end; sends and connects fail with it (0: -EPIPE) though answers may be
 * left; who waits for a hang-up is told, and polls are told everything. -EINVAL for a positive
 * code. */
WEIR_API int weir_script_hang_up(weir_script *script, int fd, int code);

/** What polls of the descriptor find: a set of WEIR_WATCH_READ and so on, which stays until it is
 * set again. Has nothing to do with what was delivered. */
WEIR_API int weir_script_set_ready(weir_script *script, int fd, unsigned events);

/** An answer to a send: take everything. */
#define WEIR_SCRIPT_ALL INT32_MAX

/**
 * The answer to the next send or connect that has none yet; answers wait in line. Without any a
 * send takes everything, and a connect succeeds at once.
 *
 * To a send: how many bytes it takes at most; or -EAGAIN, and it waits for the next answer; or
 * another negative code, with which it fails. -EINVAL for 0, which no kernel answers.
 *
 * To a connect: WEIR_SCRIPT_ALL for success; or -EINPROGRESS, and it waits for the next answer; or
 * another negative code.
 */
WEIR_API int weir_script_answer(weir_script *script, int fd, int code);

/** Moves what was sent and not yet taken to `to` (NULL: drops it), at most `room` bytes in the
 * order of sending, and returns how many. What was sent before the loop closed the descriptor can
 * be taken until the number is used again. 0 for a number out of range. */
WEIR_API size_t weir_script_take_sent(weir_script *script, int fd, void *to, size_t room);

/** How many bytes weir_script_take_sent could take. */
WEIR_API size_t weir_script_sent_bytes(weir_script *script, int fd);

/** The operations that a loop can have under way on a descriptor. */
typedef enum weir_script_op {
    WEIR_SCRIPT_ACCEPT,
    WEIR_SCRIPT_RECEIVE,
    WEIR_SCRIPT_CONNECT,
    WEIR_SCRIPT_SEND,
    WEIR_SCRIPT_POLL,
    WEIR_SCRIPT_HANGUP,
} weir_script_op;

/** Whether an operation waits for the descriptor: not any more once it was cancelled. */
WEIR_API bool weir_script_is_armed(weir_script *script, int fd, weir_script_op op);

/** Whether a loop has the descriptor, and whether it has closed it. */
WEIR_API bool weir_script_is_attached(weir_script *script, int fd);
WEIR_API bool weir_script_is_closed(weir_script *script, int fd);

WEIR_END_DECLS

#endif
