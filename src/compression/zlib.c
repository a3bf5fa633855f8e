/* SPDX-License-Identifier: MIT */
/* gzip, zlib and deflate, by zlib. */
#include "compression/format.h"

#include <weir/alloc.h>

#include <errno.h>
#include <limits.h>
#include <zlib.h>

#define MOST_AT_ONCE ((size_t)UINT_MAX)
#define GZIP_BITS 16 /* are added */

static void *zlib_alloc(void *arg, unsigned count, unsigned size)
{
    (void)arg;
    return weir_zalloc((size_t)count * size);
}

static void zlib_free(void *arg, void *memory)
{
    (void)arg;
    weir_free(memory);
}

static int bits_of(weir_compression_format format, unsigned window_bits)
{
    if (format == WEIR_COMPRESSION_DEFLATE)
        return -(int)window_bits;
    return (int)window_bits + (format == WEIR_COMPRESSION_GZIP ? GZIP_BITS : 0);
}

static void lend(z_stream *stream, const weir_coding *coding)
{
    stream->next_in = (uint8_t *)coding->in; /* which zlib does not write to */
    stream->avail_in = (unsigned)(coding->in_left < MOST_AT_ONCE ? coding->in_left : MOST_AT_ONCE);
    stream->next_out = coding->out;
    stream->avail_out = (unsigned)(coding->out_left < MOST_AT_ONCE ? coding->out_left
                                                                   : MOST_AT_ONCE);
}

static void take_back(const z_stream *stream, weir_coding *coding)
{
    if (coding->in != NULL) {
        coding->in_left -= (size_t)(stream->next_in - coding->in);
        coding->in = stream->next_in;
    }
    coding->out_left -= (size_t)(stream->next_out - coding->out);
    coding->out = stream->next_out;
}

/* Inflating ------------------------------------------------------------------------------------ */

static int inflater_begin(void *state, weir_compression_format format, unsigned window_bits)
{
    z_stream *stream = state;
    stream->zalloc = zlib_alloc;
    stream->zfree = zlib_free;
    return inflateInit2(stream, bits_of(format, window_bits)) == Z_OK ? 0 : -ENOMEM;
}

static int inflater_again(void *state)
{
    return inflateReset(state) == Z_OK ? 0 : -ENOMEM;
}

static weir_step inflater_step(void *state, weir_coding *coding)
{
    z_stream *stream = state;
    lend(stream, coding);
    int result = inflate(stream, Z_NO_FLUSH);
    take_back(stream, coding);
    if (result == Z_OK || result == Z_BUF_ERROR) /* the latter: no input, or no room */
        return WEIR_STEP_ON;
    if (result == Z_STREAM_END)
        return WEIR_STEP_END;
    if (result == Z_MEM_ERROR)
        return weir__step_fail(coding, -ENOMEM, "no memory");
    if (result == Z_NEED_DICT)
        return weir__step_fail(coding, -EBADMSG, "it needs a dictionary");
    return weir__step_fail(coding, -EBADMSG, stream->msg != NULL ? stream->msg : "bad data");
}

static void inflater_end(void *state)
{
    inflateEnd(state); /* one that has not begun has no state, which it sees */
}

#define INFLATER                                                                                   \
    .state_size = sizeof(z_stream), .least_bits = 8, .most_bits = 15, .normal_bits = 15,           \
    .begin = inflater_begin, .again = inflater_again, .step = inflater_step, .end = inflater_end

const weir_inflater_type weir__gzip_inflater = { INFLATER, .is_followed = true };
const weir_inflater_type weir__zlib_inflater = { INFLATER };

/* Deflating ------------------------------------------------------------------------------------ */

static int deflater_begin(void *state, weir_compression_format format, int level,
                          unsigned window_bits)
{
    enum { MEMORY_LEVEL = 8 }; /* zlib's own default */
    z_stream *stream = state;
    stream->zalloc = zlib_alloc;
    stream->zfree = zlib_free;
    return deflateInit2(stream, level, Z_DEFLATED, bits_of(format, window_bits), MEMORY_LEVEL,
                        Z_DEFAULT_STRATEGY) == Z_OK
               ? 0
               : -ENOMEM;
}

static int deflater_again(void *state)
{
    return deflateReset(state) == Z_OK ? 0 : -EINVAL;
}

static weir_step deflater_step(void *state, weir_coding *coding, weir_compress how)
{
    static const int flushes[] = { [WEIR_COMPRESS_SOME] = Z_NO_FLUSH,
                                   [WEIR_COMPRESS_FLUSH] = Z_SYNC_FLUSH,
                                   [WEIR_COMPRESS_END] = Z_FINISH };
    z_stream *stream = state;
    lend(stream, coding);
    int result = deflate(stream, flushes[how]);
    take_back(stream, coding);
    if (result == Z_STREAM_END)
        return WEIR_STEP_END;
    if (result != Z_OK && result != Z_BUF_ERROR)
        return weir__step_fail(coding, -EINVAL, stream->msg != NULL ? stream->msg : "failed");
    bool is_done = coding->in_left == 0 && coding->out_left > 0 && how != WEIR_COMPRESS_END;
    return is_done ? WEIR_STEP_END : WEIR_STEP_ON;
}

static void deflater_end(void *state)
{
    deflateEnd(state);
}

const weir_deflater_type weir__zlib_deflater = {
    .state_size = sizeof(z_stream),
    .most_level = 9,
    .normal_level = 6,
    .least_bits = 9,
    .most_bits = 15,
    .normal_bits = 15,
    .begin = deflater_begin,
    .again = deflater_again,
    .step = deflater_step,
    .end = deflater_end,
};
