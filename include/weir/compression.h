/* SPDX-License-Identifier: MIT */
/* Compression: bytes made smaller and large again, by handlers or without a pipeline. */
#ifndef WEIR_COMPRESSION_H
#define WEIR_COMPRESSION_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/error.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/*
 * A library of its own, weir-compression, beside weir: CMake's component `compression` with the
 * target weir::compression, and weir-compression for pkg-config. gzip, zlib and deflate are always
 * in it, the others when their libraries were there when it was built.
 */
typedef enum weir_compression_format {
    WEIR_COMPRESSION_GZIP = 1, /* RFC 1952: one or more members */
    WEIR_COMPRESSION_ZLIB,     /* RFC 1950: what HTTP calls deflate */
    WEIR_COMPRESSION_DEFLATE,  /* RFC 1951, with nothing around it */
    WEIR_COMPRESSION_BROTLI,   /* RFC 7932, without large windows */
    WEIR_COMPRESSION_ZSTD,     /* RFC 8878: one or more frames */
    WEIR_COMPRESSION_LZ4,      /* one or more LZ4 frames */
} weir_compression_format;

/** Whether this library was built with it. Any thread. */
WEIR_API bool weir_compression_has(weir_compression_format format);

/** "gzip", "zlib" and so on; "?" for a number that is none. Any thread. */
WEIR_API const char *weir_compression_name(weir_compression_format format);

/* Reading ------------------------------------------------------------------------------------ */

/*
 * A few bytes can stand for gigabytes. Whatever the format, what comes out goes through one place,
 * which hands a format's library no more room than a buffer's, and counts what is in it: once a
 * limit is passed nothing more is decompressed, and on_error tells which limit it was, of which
 * format, and how many bytes were made of how many.
 */
typedef struct weir_decompression {
    weir_compression_format format; /* required */

    /* The largest buffer that comes out. 0: 64 KiB; at least 512 bytes, at most 16 MiB. */
    size_t chunk_bytes;

    /* The most that may come out of a stream. 0: as much as it is, because it comes one buffer at a
     * time, as it is asked for. Who puts it together again sets a limit. */
    uint64_t max_output;

    /* How many times as much may come out as went in, behind the first 64 KiB. 0: 100. WEIR_OFF:
     * any; zeroes become a thousand times smaller. */
    int64_t max_ratio;

    /* How far it may look back, as a power of two, and so how much memory it takes: for zstd 10 to
     * 27, 0 being 23, which is 8 MiB; for gzip, zlib and deflate 8 to 15, 0 being 15. Brotli takes
     * up to 16 MiB and LZ4 up to 8 MiB, as their formats say: only 0. */
    unsigned window_bits;
} weir_decompression;

/**
 * Takes buffers, gives what they were compressed from, as buffers. Add it with a weir_decompression
 * as the argument, which is copied; one that makes no sense cannot be added
 * (-EINVAL), nor one of a format that is not there (-EOPNOTSUPP).
 *
 * It goes as fast as it is asked to: with auto_read off, each read() brings at most about twice
 * chunk_bytes; and with pause_when_unwritable it waits while the channel is not writable. The
 * compressed rest waits (2 MiB of it at most, else WEIR_ELIMIT), and the channel reads no more
 * meanwhile. When the connection is closed, the rest comes at once, because there is no later.
 *
 * What is no such stream (-EBADMSG), goes on behind its end, is cut off by the end of the
 * connection, whoever ended it (WEIR_EOF), or passes a limit (WEIR_ELIMIT) is told by on_error,
 * with the place, and the channel is closed. When it is removed, the next handler gets the
 * compressed rest. Such a rest, and a stream that has not ended, are held (see held_reads).
 */
extern WEIR_API const weir_handler_type weir_compression_decoder;

/* Writing ------------------------------------------------------------------------------------ */

/** How to compress. */
typedef struct weir_compression {
    weir_compression_format format; /* required */

    /* From fast to small: gzip, zlib, deflate 1 to 9 (0: 6); brotli 1 to 11 (0: 5); zstd 1 to 19
     * (0: 3); LZ4 1 to 12 (0: 1). */
    int level;

    /* How far it looks back, as a power of two: gzip, zlib, deflate 9 to 15 (0: 15); brotli 10 to
     * 24 (0: 22); zstd 10 to 23 (0: as the level says); LZ4: only 0. */
    unsigned window_bits;
} weir_compression;

/**
 * Compresses the buffers that are written, all into one stream. What comes of one is one buffer, a
 * composite when it is large. A flush sends everything that was written, so that the other side
 * can read it; each costs a few bytes. A shutdown, a close, and its own removal, write the end of
 * the stream first; weir_channel_finish gets it to the other side whatever waits. Add it with a
 * weir_compression as the argument, which is copied; refused as above.
 *
 * The promise of a write is completed with the flush that carries the last of its bytes; from the
 * write on it cannot be cancelled. What is written but not a buffer is refused with -EOPNOTSUPP:
 * for files there is weir_file_bytes_handler. Without memory, and when a compressed buffer is
 * rejected, the channel is closed, because the peer could not decompress later output.
 */
extern WEIR_API const weir_handler_type weir_compression_encoder;

/* Without a pipeline ------------------------------------------------------------------------- */

/*
 * What the handlers are made of, for those that compress parts of what they send: one buffer at a
 * time, at most chunk_bytes long.
 *
 *     weir_compressed result;
 *     do {
 *         result = weir_decompressor_run(decompressor, in, &out, &error);
 *         if (out != NULL)
 *             use(out); // and release it
 *     } while (result == WEIR_COMPRESSED_MORE);
 *
 * Each belongs to one thread at a time.
 */
typedef struct weir_decompressor weir_decompressor;
typedef struct weir_compressor weir_compressor;

/** What came of a run. In each case but the last there may be a buffer, the caller's to release. */
typedef enum weir_compressed {
    WEIR_COMPRESSED_DONE,    /* all of the input was taken, and all that came of it is out */
    WEIR_COMPRESSED_MORE,    /* there may be more: run it again with what is left */
    WEIR_COMPRESSED_REFUSED, /* `error` says why; it stays so until it is reset */
} weir_compressed;

/** Makes one. -EINVAL, -EOPNOTSUPP when the format is not there, -ENOMEM; `error` (may be NULL)
 * says what is wrong. The config is copied. */
WEIR_API int weir_decompressor_new(weir_decompressor **decompressor,
                                   const weir_decompression *config, weir_error *error);

/** NULL is fine. */
WEIR_API void weir_decompressor_free(weir_decompressor *decompressor);

/** Decompresses the readable bytes of `in` (NULL: none), whose reader moves, into a new buffer;
 * `*out` is NULL when nothing came of them yet. `error` may be NULL. */
WEIR_API weir_compressed weir_decompressor_run(weir_decompressor *decompressor, weir_buf *in,
                                               weir_buf **out, weir_error *error);

/** No more comes: 0 when the stream may end here (one that has not begun may), WEIR_EOF when it is
 * cut off, or why it was refused. */
WEIR_API int weir_decompressor_finish(const weir_decompressor *decompressor, weir_error *error);

/** For another stream; or, with `keeps_window`, for the next part of the same one, so that only the
 * counting of the limits begins anew: -EINVAL when that was refused. -ENOMEM, and then it refuses
 * everything. */
WEIR_API int weir_decompressor_reset(weir_decompressor *decompressor, bool keeps_window);

/** How much of the input is to be out when a run is done. */
typedef enum weir_compress {
    WEIR_COMPRESS_SOME,  /* what there is; the rest comes later */
    WEIR_COMPRESS_FLUSH, /* so much that all of it can be read. Deflate ends in 00 00 ff ff then */
    WEIR_COMPRESS_END,   /* all, and the stream ends; then reset it, or free it */
} weir_compress;

/** As weir_decompressor_new. */
WEIR_API int weir_compressor_new(weir_compressor **compressor, const weir_compression *config,
                                 weir_error *error);
WEIR_API void weir_compressor_free(weir_compressor *compressor);

/** Compresses the readable bytes of `in` (NULL: none), whose reader moves, into a new buffer of at
 * most 64 KiB. Until it is done the same `how` is to be given. -EINVAL behind the end. */
WEIR_API weir_compressed weir_compressor_run(weir_compressor *compressor, weir_buf *in,
                                             weir_compress how, weir_buf **out, weir_error *error);

/** For another stream, which knows nothing of the one before. -ENOMEM, and then it refuses
 * everything. */
WEIR_API int weir_compressor_reset(weir_compressor *compressor);

WEIR_END_DECLS

#endif
