/* SPDX-License-Identifier: MIT */
/* Chunked writes: what is too long for memory, or still to come, written as one message. */
#ifndef WEIR_CHUNKED_H
#define WEIR_CHUNKED_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/file.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/**
 * A message that stands for bytes which are fetched piece by piece, as there is room for them: with
 * a weir_chunked_handler in the pipeline it is written like any other. It can be written once; a
 * second write of the same one fails with -EALREADY.
 */
typedef struct weir_chunked weir_chunked;

/** The message type of chunked inputs. */
WEIR_API extern const weir_msg_type weir_chunked_type;

/** What came of one call of `pull`. */
typedef enum weir_pulled {
    WEIR_PULLED_CHUNK,   /* bytes, in `*chunk`; there may be more */
    WEIR_PULLED_LAST,    /* the last bytes, or NULL: there are no more */
    WEIR_PULLED_NOT_NOW, /* none yet: somebody will call weir_chunked_resume */
    WEIR_PULLED_FAILED,  /* what weir_chunked_fail returns */
} weir_pulled;

/**
 * Gives the next bytes as a buffer, which goes with the return. An empty one is no chunk (the input
 * then fails with -EPROTO). What waits to be sent is counted by its bytes: a few of them in a large
 * buffer take more memory than it seems. Where the handler is, one call after the other; everything
 * is allowed in it, as in a handler's callbacks.
 */
typedef weir_pulled (*weir_chunked_pull_fn)(weir_chunked *input, void *arg, weir_buf **chunk);

/** Copies up to `room` bytes to `to` and returns how many; 0 at the end; a negative code, of which
 * -EAGAIN means: none yet, somebody will call weir_chunked_resume. The rest as above. */
typedef int (*weir_chunked_read_fn)(weir_chunked *input, void *arg, void *to, size_t room);

/** The source of a chunked input. */
typedef struct weir_chunked_config {
    /* Where the bytes come from, one of the three: a generator; a stream; a file, which is the
     * input's from then on (its own on_progress is not called). */
    weir_chunked_pull_fn pull;
    weir_chunked_read_fn read;
    weir_file_region *file;

    /* For the callbacks; `free` (may be NULL) is called with it, once, when the last reference to
     * the input goes: when it was sent, failed or was dropped, unless somebody holds one; on any
     * thread. */
    void *arg;
    void (*free)(void *arg);

    /* How many bytes there will be; 0: that is not known, or the file's length. When it is known,
     * an input with less fails with WEIR_EOF, and one with more with WEIR_ELIMIT. */
    uint64_t total_bytes;

    size_t chunk_bytes; /* how much of a stream or a file is read at once; 0: 64 KiB */

    /* NULL: nothing is told. Called on the channel's loop when another chunk has gone to the other
     * side: `sent` bytes in all, of `total` (0: that is not known). Without memory for that one is
     * left out. */
    void (*on_progress)(weir_chunked *input, void *arg, uint64_t sent, uint64_t total);
} weir_chunked_config;

/** Makes one, with one reference, which goes with the write. -EINVAL when there is not exactly one
 * source, -ENOMEM; then everything is still the caller's. Any thread. */
WEIR_API int weir_chunked_new(weir_chunked **input, const weir_chunked_config *config);

/** The input inside a message, NULL when it is of another type. */
static inline weir_chunked *weir_chunked_from_msg(weir_msg *msg)
{
    return msg != NULL && msg->type == &weir_chunked_type ? WEIR__POINTER(weir_chunked, msg) : NULL;
}

/** The input as a message, to write. */
WEIR_API weir_msg *weir_chunked_msg(weir_chunked *input);

/** What said "not now" may have more: it is asked again, on its own thread and not inside this
 * call. Also from inside its callback, and once too often, or when it is over: that does nothing.
 * Never allocates. Any thread, by who holds a reference. */
WEIR_API void weir_chunked_resume(weir_chunked *input);

/** Inside `pull`, returned by it: there will be no more, because of `code`. */
WEIR_API weir_pulled weir_chunked_fail(weir_chunked *input, int code);

/**
 * Fetches what a weir_chunked that is written stands for, and passes it on as buffers: a few at a
 * time, from the flush on and while the channel is writable, so no more than the high water mark
 * and a chunk is in memory. Put it behind (nearer to the tail than) the handlers that have to see
 * the bytes. Its argument is not used. Other messages pass; a weir_file_region is left to the
 * kernel, see <weir/file_bytes.h>.
 *
 * What is written behind an input waits for it, at most max_outbound_bytes of it (WEIR_ELIMIT), and
 * so does a shutdown. The promise of the input's write is completed with the last of its buffers,
 * and can be cancelled until it is asked for the first. When the input fails, the buffers before
 * are sent, the promise fails with the input's code (without a promise, on_error is raised), later
 * writes fail with WEIR_ECLOSED, and the channel closes: the peer would take later bytes for the
 * missing ones.
 * When a handler or the channel rejects one of its buffers, the channel is closed as well, promise
 * or not: the error is raised, and the promise fails (see weir_ctx_write_piece).
 * What waits when the channel is closed fails with WEIR_ECLOSED, when the handler is removed with
 * -ECANCELED; so does a shutdown that waits behind it, and the channel stays open.
 *
 * A file is read without blocking the loop (<weir/file_bytes.h>). A generator or a stream that
 * blocks does so on the loop: for such an input give the handler an executor of its own.
 */
extern WEIR_API const weir_handler_type weir_chunked_handler;

WEIR_END_DECLS

#endif
