/* SPDX-License-Identifier: MIT */
/* Watching descriptors that are not weir's: a pipe, an inotify, another library's socket. */
#ifndef WEIR_WATCH_H
#define WEIR_WATCH_H

#include <weir/api.h>
#include <weir/executor.h>
#include <weir/loop.h>
#include <weir/node.h>

WEIR_BEGIN_DECLS

/** What to wait for, and what there is. */
enum {
    WEIR_WATCH_READ = 1,
    WEIR_WATCH_WRITE = 2,
    WEIR_WATCH_HANGUP = 4, /* or an error; is told unasked */
};

/**
 * Embed it, zero it, set the first two fields. It is weir's from a successful weir_watch_start
 * until `stopped` is called, and then yours again, to start once more or to free. The descriptor
 * stays yours all the time; close it only when the watch has stopped.
 */
typedef struct weir_watch weir_watch;
struct weir_watch {
    /* Called on the loop's thread, in every turn, as long as the descriptor is ready. */
    void (*ready)(weir_watch *watch, unsigned events);
    /* Called once at the end: 0 after weir_watch_stop, WEIR_ESHUTDOWN when the loop ends, or what
     * went wrong. May be NULL. On the loop's thread, unless that has ended. */
    void (*stopped)(weir_watch *watch, int code);
    /* weir's: */
    weir_loop *loop;
    int fd;
    unsigned events;
    int code;
    WEIR_ATOMIC(int) state;
    weir_task task;
    void *room[32];
};

/** Watches a descriptor: -EINVAL for a bad argument, -EBUSY when it is started already, -ENOMEM, or
 * as weir_executor_post. What fails later is told by `stopped`: -EPERM for what cannot be waited
 * for, such as a regular file; -EEXIST when a watch or a channel on the loop has the descriptor,
 * and -EBUSY when a WEIR_IO_BLOCKING loop has another one, which on the loop's thread are returned.
 * Any thread. */
WEIR_API int weir_watch_start(weir_watch *watch, weir_loop *loop, int fd, unsigned events);

/** Waits for something else from now on. On the loop's thread: -EPERM elsewhere. -EINVAL when it is
 * not started. */
WEIR_API int weir_watch_change(weir_watch *watch, unsigned events);

/** Ends it: `stopped` is called soon, never from inside this, and `ready` not any more once this
 * has returned on the loop's thread. -EALREADY when it is not started or ending. Any thread; cannot
 * fail otherwise. */
WEIR_API int weir_watch_stop(weir_watch *watch);

WEIR_END_DECLS

#endif
