/* SPDX-License-Identifier: MIT */
/* Files as messages: sent by the kernel, without passing through this process. */
#ifndef WEIR_FILE_H
#define WEIR_FILE_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/error.h>
#include <weir/msg.h>

WEIR_BEGIN_DECLS

/**
 * A part of a file. Write it to a TCP or Unix stream, and the kernel sends it (sendfile); where a
 * handler needs to see the bytes, it takes them out with weir_file_region_read. It counts nothing
 * for the water marks, for it holds no memory. When the file turns out to be shorter, the write
 * fails with WEIR_EOF, and the channel is closed: the other side would wait for the rest.
 *
 * sendfile blocks the loop while the kernel reads bytes that are not in the page cache. For files
 * on slow disks add a weir_file_bytes_handler, which reads them in the background.
 */
typedef struct weir_file_region weir_file_region;
struct weir_file_region {
    weir_msg msg; /* of type weir_file_region_type */
    int fd;
    uint64_t offset, length;

    /* Yours to set before it is written; NULL: nothing is told. Called on the channel's loop, now
     * and then, when more has gone: `sent` of the bytes, in all. If it is written to several
     * channels, each of them tells of its own. */
    void (*on_progress)(weir_file_region *region, uint64_t sent, void *arg);
    void *arg;
};

/** The message type of file regions. */
WEIR_API extern const weir_msg_type weir_file_region_type;

/** Opens a file; `length` 0 is all from the offset on. -EINVAL when the offset or the length is
 * behind its end or it is no regular file, -EISDIR, -ENOMEM, or why it cannot be opened; `error`
 * names the path. Any thread.
 */
WEIR_API int weir_file_region_open(weir_file_region **region, const char *path, uint64_t offset,
                                   uint64_t length, weir_error *error);

/** The same from a descriptor, which is the message's from then on. NULL without memory, and then
 * it is still the caller's. */
WEIR_API weir_file_region *weir_file_region_new(int fd, uint64_t offset, uint64_t length);

/** Reads at most `max` bytes, `at` bytes behind the region's beginning, into a new buffer. NULL and
 * 0 at the end of the region; WEIR_EOF when the file is shorter, -EINVAL, -ENOMEM, or what the
 * kernel says. May wait for the disk. */
WEIR_API int weir_file_region_read(const weir_file_region *region, uint64_t at, size_t max,
                                   weir_buf **buf);

WEIR_END_DECLS

#endif
