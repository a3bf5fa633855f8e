/* SPDX-License-Identifier: MIT */
/* What the tests of compression share: all formats, bytes to compress, and what comes of them. */
#ifndef WEIR_TESTS_CODING_H
#define WEIR_TESTS_CODING_H

#include "codec/codecs.h"

#include <weir/compression.h>

#include <stdio.h>
#include <stdlib.h>

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)

static const weir_compression_format all_formats[] = {
    WEIR_COMPRESSION_GZIP,   WEIR_COMPRESSION_ZLIB, WEIR_COMPRESSION_DEFLATE,
    WEIR_COMPRESSION_BROTLI, WEIR_COMPRESSION_ZSTD, WEIR_COMPRESSION_LZ4,
};

/* Each format that this library has. */
#define FOR_EACH_FORMAT(format)                                                                    \
    for (size_t format##_at = 0; format##_at < sizeof all_formats / sizeof *all_formats;           \
         format##_at++)                                                                            \
        for (weir_compression_format format = all_formats[format##_at];                            \
             format != 0 && weir_compression_has(format); format = 0)

/* Whether bytes that were changed are noticed: not by formats without a checksum. */
static inline bool has_checksum(weir_compression_format format)
{
    return format != WEIR_COMPRESSION_DEFLATE && format != WEIR_COMPRESSION_BROTLI;
}

/* Bytes ---------------------------------------------------------------------------------------- */

typedef struct bytes {
    uint8_t *at;
    size_t length, room; /* it has room for one more */
} bytes;

static inline bytes bytes_new(size_t length)
{
    bytes made = { malloc(length + 1), length, length };
    assert_non_null(made.at);
    return made;
}

static inline void bytes_free(bytes *freed)
{
    free(freed->at);
    *freed = (bytes){ NULL, 0, 0 };
}

static inline bytes bytes_of(const void *from, size_t length)
{
    bytes made = bytes_new(length);
    memcpy(made.at, from, length);
    return made;
}

static inline bytes bytes_of_text(const char *text)
{
    return bytes_of(text, strlen(text));
}

static inline bytes zeroes(size_t length)
{
    bytes made = bytes_new(length);
    memset(made.at, 0, length);
    return made;
}

static inline bytes random_bytes(size_t length)
{
    bytes made = bytes_new(length);
    uint64_t chance = 88172645463325252u;
    for (size_t i = 0; i < length; i++) {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        made.at[i] = (uint8_t)chance;
    }
    return made;
}

/* Words, as text has them: about a third remains. */
static inline bytes words(size_t length)
{
    static const char *const some[] = {
        "weir ", "river ", "water ", "a ", "the ", "dam ", "flow\n"
    };
    bytes made = bytes_new(length), chance = random_bytes(length);
    for (size_t i = 0, at = 0; at < length; i++) {
        const char *word = some[chance.at[i] % (sizeof some / sizeof *some)];
        for (; *word != '\0' && at < length; word++)
            made.at[at++] = (uint8_t)*word;
    }
    bytes_free(&chance);
    return made;
}

/* Appends the readable bytes of a buffer, which is released. */
static inline void bytes_add(bytes *to, weir_buf *buf)
{
    size_t length = weir_buf_readable(buf);
    if (to->at == NULL || to->length + length > to->room) {
        to->room = 2 * (to->length + length);
        to->at = realloc(to->at, to->room + 1);
    }
    assert_non_null(to->at);
    assert_int_equal(weir_buf_read_bytes(buf, to->at + to->length, length), 0);
    to->length += length;
    weir_buf_release(buf);
}

static inline void bytes_join(bytes *to, const bytes *from)
{
    bytes_add(to, weir_buf_from(from->at, from->length));
}

/* Both are freed. */
static inline void assert_same_bytes(bytes found, bytes expected)
{
    assert_int_equal(found.length, expected.length);
    assert_true(memcmp(found.at, expected.at, found.length) == 0);
    bytes_free(&found);
    bytes_free(&expected);
}

/* By engines ----------------------------------------------------------------------------------- */

/* Runs a compressor over one piece, and adds what comes out. */
static inline void compress_piece(weir_compressor *compressor, const void *from, size_t length,
                                  weir_compress how, bytes *to)
{
    weir_buf *in = weir_buf_from(from, length), *out;
    weir_error error;
    weir_compressed result;
    do {
        result = weir_compressor_run(compressor, in, how, &out, &error);
        if (result == WEIR_COMPRESSED_REFUSED)
            fail_msg("%s", error.message);
        if (out != NULL) {
            assert_true(weir_buf_readable(out) <= 64 * KIB);
            bytes_add(to, out);
        }
    } while (result == WEIR_COMPRESSED_MORE);
    assert_int_equal(weir_buf_readable(in), 0);
    weir_buf_release(in);
}

static inline weir_compressor *compressor_new(weir_compression config)
{
    weir_compressor *made;
    weir_error error;
    if (weir_compressor_new(&made, &config, &error) < 0)
        fail_msg("%s", error.message);
    return made;
}

static inline weir_decompressor *decompressor_new(weir_decompression config)
{
    weir_decompressor *made;
    weir_error error;
    if (weir_decompressor_new(&made, &config, &error) < 0)
        fail_msg("%s", error.message);
    return made;
}

/* A whole stream of some bytes. */
static inline bytes compressed(weir_compression_format format, const bytes *from)
{
    weir_compressor *compressor = compressor_new((weir_compression){ .format = format });
    bytes made = bytes_new(0);
    compress_piece(compressor, from->at, from->length, WEIR_COMPRESS_END, &made);
    weir_compressor_free(compressor);
    return made;
}

/* The same of zeroes, as a peer with bad intentions would: a thousand times as many come out of it,
 * whatever the format makes of them by itself. */
static inline bytes bomb(weir_compression_format format, size_t length)
{
    bytes from = zeroes(length), made = compressed(format, &from);
    bytes_free(&from);
    return made;
}

/* What came of a stream that was decompressed in pieces. */
typedef struct outcome {
    bytes out;
    size_t largest; /* buffer */
    int code;       /* of a refusal, or of the end */
    weir_error error;
} outcome;

static inline weir_compressed decompress_piece(weir_decompressor *decompressor, const void *from,
                                               size_t length, outcome *to)
{
    weir_buf *in = weir_buf_from(from, length), *out;
    weir_compressed result;
    do {
        result = weir_decompressor_run(decompressor, in, &out, &to->error);
        if (out == NULL)
            continue;
        assert_true(weir_buf_readable(out) > 0);
        if (weir_buf_readable(out) > to->largest)
            to->largest = weir_buf_readable(out);
        bytes_add(&to->out, out);
    } while (result == WEIR_COMPRESSED_MORE);
    if (result == WEIR_COMPRESSED_REFUSED)
        to->code = to->error.code;
    else
        assert_int_equal(weir_buf_readable(in), 0);
    weir_buf_release(in);
    return result;
}

static inline outcome decompressed_by(weir_decompression config, const bytes *from, size_t piece)
{
    weir_decompressor *decompressor = decompressor_new(config);
    outcome found = { .out = bytes_new(0), .error.code = 0 };
    for (size_t at = 0; at < from->length && found.code == 0; at += piece)
        decompress_piece(decompressor, from->at + at,
                         from->length - at < piece ? from->length - at : piece, &found);
    if (found.code == 0)
        found.code = weir_decompressor_finish(decompressor, &found.error);
    weir_decompressor_free(decompressor);
    return found;
}

static inline outcome decompressed(weir_compression_format format, const bytes *from)
{
    return decompressed_by((weir_decompression){ .format = format, .max_ratio = WEIR_OFF }, from,
                           SIZE_MAX / 2);
}

#endif
