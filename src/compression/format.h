/* SPDX-License-Identifier: MIT */
/* What a format's library does, behind one interface for all of them. */
#ifndef WEIR_COMPRESSION_FORMAT_H
#define WEIR_COMPRESSION_FORMAT_H

#include <weir/compression.h>

/* One step of a library: what it may read, and the room that it may fill. It moves both. */
typedef struct weir_coding {
    const uint8_t *in;
    size_t in_left;
    uint8_t *out;
    size_t out_left;
    int code;        /* of a failure */
    const char *why; /* in words; static */
} weir_coding;

typedef enum weir_step {
    WEIR_STEP_ON,    /* it took what there was, or filled the room */
    WEIR_STEP_END,   /* the stream has ended; or what was asked of a compressor is done */
    WEIR_STEP_FAILED /* the coding says why */
} weir_step;

typedef struct weir_inflater_type {
    size_t state_size; /* zeroed at first */
    unsigned least_bits, most_bits, normal_bits;
    bool is_followed; /* by further streams, which count as one with it */
    int (*begin)(void *state, weir_compression_format format, unsigned window_bits);
    int (*again)(void *state); /* for another stream */
    weir_step (*step)(void *state, weir_coding *coding);
    void (*end)(void *state); /* also when it has not begun, or that has failed */
} weir_inflater_type;

typedef struct weir_deflater_type {
    size_t state_size;
    int most_level, normal_level;
    unsigned least_bits, most_bits, normal_bits; /* the last one 0: as the level says */
    int (*begin)(void *state, weir_compression_format format, int level, unsigned window_bits);
    int (*again)(void *state);
    weir_step (*step)(void *state, weir_coding *coding, weir_compress how);
    void (*end)(void *state);
} weir_deflater_type;

extern const weir_inflater_type weir__zlib_inflater, weir__gzip_inflater, weir__brotli_inflater,
    weir__zstd_inflater, weir__lz4_inflater;
extern const weir_deflater_type weir__zlib_deflater, weir__brotli_deflater, weir__zstd_deflater,
    weir__lz4_deflater;

/* NULL when it is not there; then `error` says so with the code that is returned. */
int weir__format_inflater(weir_compression_format format, const weir_inflater_type **type,
                          weir_error *error);
int weir__format_deflater(weir_compression_format format, const weir_deflater_type **type,
                          weir_error *error);

/* Fails a step. */
static inline weir_step weir__step_fail(weir_coding *coding, int code, const char *why)
{
    coding->code = code;
    coding->why = why;
    return WEIR_STEP_FAILED;
}

/* The bytes at the reader of `in` (may be NULL) that lie in one run. */
void weir__coding_take(weir_coding *coding, const weir_buf *in);

/* Tells the memory sanitizer of bytes that a library has written, which it did not see. */
void weir__coding_wrote(const uint8_t *bytes, size_t length);

/* A buffer's size for what may come of so many bytes: more each time one was full. */
size_t weir__coding_room(size_t before, bool was_full, size_t in, size_t most);

#endif
