/* SPDX-License-Identifier: MIT */
/* Signals as events of a loop. */
#ifndef WEIR_SIGNAL_H
#define WEIR_SIGNAL_H

#include <weir/api.h>
#include <weir/loop.h>
#include <weir/watch.h>

WEIR_BEGIN_DECLS

/**
 * Embed it, zero it, set the first two fields. It is weir's from a successful weir_loop_signal
 * until `stopped` is called.
 */
typedef struct weir_signal weir_signal;
struct weir_signal {
    void (*raised)(weir_signal *signal,
                   int number);                     /* on the loop's thread, where all is allowed */
    void (*stopped)(weir_signal *signal, int code); /* as a watch's; may be NULL */
    /* weir's: */
    int number;
    weir_watch watch;
};

/**
 * Has `raised` called whenever the process gets the signal `number` (SIGINT, say), instead of what
 * would happen. For that every thread has to block it: weir's do, this call does it for the calling
 * thread, and threads that are started from it later inherit that; so call it early, from main.
 * Have one weir_signal for a number, two would take signals from each other. Several signals of one
 * kind may arrive as one. -EINVAL for what is no signal or cannot be
 * blocked, -EMFILE and its like, or as weir_watch_start.
 */
WEIR_API int weir_loop_signal(weir_loop *loop, weir_signal *signal, int number);

/** Ends it; the signal stays blocked. -EALREADY when it has ended or is ending. Any thread. */
WEIR_API int weir_signal_stop(weir_signal *signal);

WEIR_END_DECLS

#endif
