/* SPDX-License-Identifier: MIT */
/* The leak detector: which messages are alive, and where they were made. */
#ifndef WEIR_LEAK_H
#define WEIR_LEAK_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

/** Which messages the leak detector records. */
typedef enum weir_leak_mode {
    WEIR_LEAK_OFF,    /* the default of release builds: no cost */
    WEIR_LEAK_SAMPLE, /* records one message in 128 */
    WEIR_LEAK_ALL,    /* the default of debug builds: records every message */
} weir_leak_mode;

/**
 * Chooses what is recorded from now on. The environment's WEIR_LEAK=off|sample|all sets
 * the mode at start; this call wins. Any thread.
 */
WEIR_API void weir_leak_set_mode(weir_leak_mode mode);

/** The mode in force. */
WEIR_API weir_leak_mode weir_leak_get_mode(void);

/** The recorded messages of one kind made in one place that are still alive. */
typedef struct weir_leak {
    const char *type;  /* the message type's name */
    size_t count;      /* how many */
    const char *place; /* the stack at their making, a line per frame, innermost first */
} weir_leak;

/** Receives one group of live messages; everything is borrowed for the call. */
typedef void (*weir_leak_fn)(void *arg, const weir_leak *leak);

/**
 * Calls `fn` for each group of live recorded messages, the largest first, and returns how
 * many messages that were. With a NULL `fn` it logs each group as a warning instead. Any
 * thread; the messages may go on living and dying meanwhile. Frames read "program(+0x1234)"
 * where no symbol is exported: `addr2line -e program 0x1234` tells the line.
 */
WEIR_API size_t weir_leak_report(weir_leak_fn fn, void *arg);

WEIR_END_DECLS

#endif
