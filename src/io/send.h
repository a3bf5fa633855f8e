/* SPDX-License-Identifier: MIT */
/* The send of a file: the states that every backend has in common. See weir__io_send. */
#ifndef WEIR_IO_SEND_H
#define WEIR_IO_SEND_H

#include "io/ops.h"

/*
 *            weir__io_send                blocked
 *     idle ----------------> BUSY ----------------> WAITING
 *      ^                     | ^                       |
 *      |    nothing left     | |       writable        |
 *      '---------------------' '-----------------------'
 *
 * A backend whose kernel performs sends goes from BUSY to AT_KERNEL and back instead. ENDED is a
 * result that was found outside of the completion phase and waits for it. CANCELLED stays set until
 * on_send_cancelled.
 */

/* What try_send returns besides results: gather had nothing; the file has to wait, until it is
 * writable or for its turn. */
#define WEIR_SEND_NOTHING (INT32_MIN + 1)
#define WEIR_SEND_BLOCKED (INT32_MIN + 2)

/* In the completion phase: the file may send again; or the kernel has sent, with this result. */
void weir__send_continue(weir_io *io, weir_io_file *file);
void weir__send_complete(weir_io *io, weir_io_file *file, int code);

/* The result, or WEIR_SEND_NOTHING, is reported in the next completion phase. */
void weir__send_end_later(weir_io *io, weir_io_file *file, int code);

/* In the completion phase: reports those. */
void weir__send_report_ended(weir_io *io);

#endif
