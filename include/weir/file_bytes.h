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
 * When it cannot be read, or is shorter than it said (WEIR_EOF), the write fails and the channel is
 * closed: the other side would wait for the rest. on_progress of the region is not called. What
 * waits when the handler is removed fails with -ECANCELED. It is a weir_chunked_handler besides
 * (<weir/chunked.h>), so one of the two is enough.
 *
 * Reading may wait for the disk: with an executor of its own, the loop does not.
 */
extern WEIR_API const weir_handler_type weir_file_bytes_handler;

WEIR_END_DECLS

#endif
