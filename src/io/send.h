/* SPDX-License-Identifier: MIT */
/* The send of a file: the states that every backend has in common. See weir__io_send. */
#ifndef WEIR_IO_SEND_H
#define WEIR_IO_SEND_H

#include "io/ops.h"

/*
 *            weir__io_send                blocked
 *     IDLE ----------------> BUSY ----------------> WAITING or POLLED
 *      ^                     | ^                       |
 *      |    nothing left     | |       writable        |
 *      '---------------------' '-----------------------'
 *
 * A backend whose kernel performs sends goes from BUSY to SUBMITTED and back. ENDED is a result
 * that was found outside of the completion phase and waits for it.
 */

/* In the completion phase: the file may send again; or the kernel has sent, with this result. */
void weir__send_continue(weir_io *io, weir_io_file *file);
void weir__send_complete(weir_io *io, weir_io_file *file, int code);

/* The result, or WEIR_SEND_NOTHING, is reported in the next completion phase. */
void weir__send_end_later(weir_io *io, weir_io_file *file, int code);

/* In the completion phase: reports those. */
void weir__send_report_ended(weir_io *io);

#endif
