/* SPDX-License-Identifier: MIT */
/* The file bytes handler: files as buffers, for handlers that have to see the bytes. */
#ifndef WEIR_FILE_BYTES_H
#define WEIR_FILE_BYTES_H

#include <weir/api.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/**
 * Reads a weir_file_region that is written, and passes its bytes on as buffers of at most 64 KiB: a
 * few at a time, and while the channel is writable, so that a large file takes little memory. Put
 * it between a handler that changes bytes (TLS, compression) and those that write. Its argument is
 * not used.
 *
 * What is written behind a file waits for it, at most max_outbound_bytes of it (WEIR_ELIMIT), and
 * so does a shutdown. The promise of the file's write is completed with the last of its buffers.
 * If the file cannot be read, is shorter than the region (WEIR_EOF), or one of the buffers is
 * rejected (see weir_ctx_write_piece), the write fails and the channel closes: the peer would wait
 * for the missing bytes. on_progress of the region is not called. Writes that are pending when the
 * handler is removed fail with -ECANCELED. The handler also sends chunked inputs
 * (<weir/chunked.h>), so one of the two handlers is enough.
 *
 * A slow disk does not stall the loop: bytes in the page cache are read at once, others on a thread
 * in the background (32 at most, for the process), one buffer ahead. A close does not wait for such
 * a read. Reading blocks only in a manual group, and when no thread can be started. Without this
 * handler the kernel sends the file, and that blocks the loop for bytes on the disk
 * (<weir/file.h>).
 */
extern WEIR_API const weir_handler_type weir_file_bytes_handler;

WEIR_END_DECLS

#endif
