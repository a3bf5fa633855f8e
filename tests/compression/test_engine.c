/* SPDX-License-Identifier: MIT */
/* Compressors and decompressors: every format, however it comes, within the limits. */
#include "compression/coding.h"

/* There and back ------------------------------------------------------------------------------- */

static void check_there_and_back(weir_compression_format format, bytes from)
{
    bytes small = compressed(format, &from);
    outcome found = decompressed(format, &small);
    assert_int_equal(found.code, 0);
    assert_true(found.largest <= 64 * KIB);
    bytes_free(&small);
    assert_same_bytes(found.out, from);
}

static void every_format_gives_back_what_it_took(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        check_there_and_back(format, bytes_new(0));
        check_there_and_back(format, bytes_of_text("x"));
        check_there_and_back(format, words(100));
        check_there_and_back(format, words(MIB));
        check_there_and_back(format, random_bytes(MIB));
        check_there_and_back(format, zeroes(10 * MIB));
    }
}

static void all_formats_are_there_and_have_names(void **state)
{
    (void)state;
    static const char *const names[] = { "?",      "gzip", "zlib", "deflate",
                                         "brotli", "zstd", "lz4",  "?" };
    for (int i = 0; i < 8; i++)
        assert_string_equal(weir_compression_name((weir_compression_format)i), names[i]);
    assert_true(weir_compression_has(WEIR_COMPRESSION_GZIP));
    assert_true(weir_compression_has(WEIR_COMPRESSION_ZLIB));
    assert_true(weir_compression_has(WEIR_COMPRESSION_DEFLATE));
    assert_false(weir_compression_has((weir_compression_format)0));
    assert_false(weir_compression_has((weir_compression_format)7));
    assert_false(weir_compression_has((weir_compression_format)-1));
}

static void every_level_and_window_works(void **state)
{
    (void)state;
    static const int most[] = { 0, 9, 9, 9, 11, 19, 12 };
    static const unsigned least_bits[] = { 0, 9, 9, 9, 10, 10, 0 };
    static const unsigned most_bits[] = { 0, 15, 15, 15, 24, 23, 0 };
    bytes from = words(40 * KIB);
    FOR_EACH_FORMAT(format)
    {
        for (int level = 0; level <= most[format]; level++) {
            weir_compression config = { .format = format, .level = level };
            config.window_bits = level % 2 ? least_bits[format] : most_bits[format];
            weir_compressor *compressor = compressor_new(config);
            bytes small = bytes_new(0);
            compress_piece(compressor, from.at, from.length, WEIR_COMPRESS_END, &small);
            weir_compressor_free(compressor);
            assert_true(small.length < from.length * 3 / 4);
            outcome found = decompressed(format, &small);
            assert_int_equal(found.code, 0);
            assert_same_bytes(found.out, bytes_of(from.at, from.length));
            bytes_free(&small);
        }
    }
    bytes_free(&from);
}

/* The compressor gets it in pieces, too, some of them flushed; and composites in theirs. */
static void it_does_not_matter_how_the_bytes_come(void **state)
{
    (void)state;
    static const size_t pieces[] = { 1, 7, 1000, 70000 };
    FOR_EACH_FORMAT(format)
    {
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            bytes from = words(pieces[i] == 1 ? 3000 : 300000), small = bytes_new(0);
            weir_compressor *compressor = compressor_new((weir_compression){ .format = format });
            for (size_t at = 0, n = 0; at < from.length; at += pieces[i], n++)
                compress_piece(compressor, from.at + at,
                               from.length - at < pieces[i] ? from.length - at : pieces[i],
                               n % 3 == 2 ? WEIR_COMPRESS_FLUSH : WEIR_COMPRESS_SOME, &small);
            compress_piece(compressor, NULL, 0, WEIR_COMPRESS_END, &small);
            weir_compressor_free(compressor);
            outcome found = decompressed_by((weir_decompression){ .format = format }, &small,
                                            pieces[i]);
            assert_int_equal(found.code, 0);
            assert_same_bytes(found.out, from);
            bytes_free(&small);
        }
    }
}

static weir_buf *composite_of(const bytes *from, size_t piece)
{
    weir_buf *made = weir_buf_new_composite();
    for (size_t at = 0; at < from->length; at += piece)
        assert_int_equal(
            weir_buf_composite_add(made, weir_buf_from(from->at + at, from->length - at < piece
                                                                          ? from->length - at
                                                                          : piece)),
            0);
    return made;
}

static void composites_are_taken_as_they_are(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(200 * KIB), small = bytes_new(0), large = bytes_new(0);
        weir_buf *in = composite_of(&from, 777), *out;
        weir_compressor *compressor = compressor_new((weir_compression){ .format = format });
        while (weir_compressor_run(compressor, in, WEIR_COMPRESS_END, &out, NULL) ==
               WEIR_COMPRESSED_MORE)
            bytes_add(&small, out);
        bytes_add(&small, out);
        assert_int_equal(weir_buf_readable(in), 0);
        weir_buf_release(in);
        weir_compressor_free(compressor);

        in = composite_of(&small, 99);
        weir_decompressor *decompressor =
            decompressor_new((weir_decompression){ .format = format });
        weir_compressed result;
        do {
            result = weir_decompressor_run(decompressor, in, &out, NULL);
            assert_int_not_equal(result, WEIR_COMPRESSED_REFUSED);
            if (out != NULL)
                bytes_add(&large, out);
        } while (result == WEIR_COMPRESSED_MORE);
        assert_int_equal(weir_decompressor_finish(decompressor, NULL), 0);
        weir_decompressor_free(decompressor);
        weir_buf_release(in);
        bytes_free(&small);
        assert_same_bytes(large, from);
    }
}

/* What was flushed can be read without what follows. */
static void a_flush_makes_all_of_it_readable(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compressor *compressor = compressor_new((weir_compression){ .format = format });
        weir_decompressor *decompressor =
            decompressor_new((weir_decompression){ .format = format });
        for (size_t length = 1; length < 300000; length = length * 7 + 3) {
            bytes from = length % 2 ? words(length) : random_bytes(length), small = bytes_new(0);
            outcome found = { .out = bytes_new(0) };
            compress_piece(compressor, from.at, length, WEIR_COMPRESS_FLUSH, &small);
            assert_int_equal(decompress_piece(decompressor, small.at, small.length, &found),
                             WEIR_COMPRESSED_DONE);
            assert_same_bytes(found.out, from);
            bytes_free(&small);
        }
        assert_int_equal(weir_decompressor_finish(decompressor, NULL), WEIR_EOF);
        weir_compressor_free(compressor);
        weir_decompressor_free(decompressor);
    }
}

/* As WebSocket's permessage-deflate has it: each message flushed, without the last four bytes. */
static void messages_of_deflate_end_in_an_empty_block(void **state)
{
    (void)state;
    weir_compressor *compressor =
        compressor_new((weir_compression){ .format = WEIR_COMPRESSION_DEFLATE, .window_bits = 10 });
    weir_decompressor *decompressor = decompressor_new(
        (weir_decompression){ .format = WEIR_COMPRESSION_DEFLATE, .window_bits = 10 });
    size_t lengths[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        bytes from = words(300), small = bytes_new(0);
        outcome found = { .out = bytes_new(0) };
        if (i == 2)
            assert_int_equal(weir_compressor_reset(compressor), 0);
        if (i == 2)
            assert_int_equal(weir_decompressor_reset(decompressor, false), 0);
        else
            assert_int_equal(weir_decompressor_reset(decompressor, true), 0);
        compress_piece(compressor, from.at, from.length, WEIR_COMPRESS_FLUSH, &small);
        assert_memory_equal(small.at + small.length - 4, "\0\0\xff\xff", 4);
        decompress_piece(decompressor, small.at, small.length - 4, &found);
        decompress_piece(decompressor, "\0\0\xff\xff", 4, &found);
        assert_int_equal(found.code, 0);
        lengths[i] = small.length;
        assert_same_bytes(found.out, from);
        bytes_free(&small);
    }
    assert_true(lengths[1] < lengths[0] / 2); /* it knew the words */
    assert_int_equal(lengths[2], lengths[0]); /* it has forgotten them */
    weir_compressor_free(compressor);
    weir_decompressor_free(decompressor);
}

static void a_reset_begins_another_stream(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compressor *compressor = compressor_new((weir_compression){ .format = format });
        weir_decompressor *decompressor =
            decompressor_new((weir_decompression){ .format = format });
        bytes from = words(5000), cut = bytes_new(0);
        compress_piece(compressor, from.at, 3000, WEIR_COMPRESS_FLUSH, &cut);
        outcome found = { .out = bytes_new(0) };
        decompress_piece(decompressor, cut.at, cut.length, &found);
        decompress_piece(decompressor, "\xff\xff\xff\xff\xff\xff\xff\xff garbage garbage", 24,
                         &found);
        for (int i = 0; i < 2; i++) {
            bytes small = bytes_new(0), whole = compressed(format, &from);
            outcome again = { .out = bytes_new(0) };
            assert_int_equal(weir_compressor_reset(compressor), 0);
            assert_int_equal(weir_decompressor_reset(decompressor, false), 0);
            compress_piece(compressor, from.at, from.length, WEIR_COMPRESS_END, &small);
            decompress_piece(decompressor, small.at, small.length, &again);
            assert_int_equal(again.code, 0);
            assert_int_equal(weir_decompressor_finish(decompressor, NULL), 0);
            assert_same_bytes(again.out, bytes_of(from.at, from.length));
            assert_same_bytes(small, whole);
        }
        bytes_free(&found.out);
        bytes_free(&cut);
        bytes_free(&from);
        weir_compressor_free(compressor);
        weir_decompressor_free(decompressor);
    }
}

static void nothing_can_be_written_behind_the_end(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compressor *compressor = compressor_new((weir_compression){ .format = format });
        bytes small = bytes_new(0);
        weir_buf *in = weir_buf_from("x", 1), *out;
        weir_error error;
        compress_piece(compressor, "abc", 3, WEIR_COMPRESS_END, &small);
        assert_int_equal(weir_compressor_run(compressor, in, WEIR_COMPRESS_SOME, &out, &error),
                         WEIR_COMPRESSED_REFUSED);
        assert_int_equal(error.code, -EINVAL);
        assert_null(out);
        weir_buf_release(in);
        bytes_free(&small);
        weir_compressor_free(compressor);
    }
}

/* Limits --------------------------------------------------------------------------------------- */

/* One table for all: a limit that holds for one format and not for another is none. */
static void the_limits_hold_for_every_format(void **state)
{
    (void)state;
    static const struct {
        uint64_t max_output;
        int64_t max_ratio;
        size_t chunk_bytes;
        size_t piece;
        const char *names;
    } limits[] = {
        { 1000, WEIR_OFF, 0, SIZE_MAX / 2, "max_output, 1000 bytes" },
        { 100 * KIB, WEIR_OFF, 0, SIZE_MAX / 2, "max_output, 102400 bytes" },
        { 100 * KIB, WEIR_OFF, 512, 1, "max_output, 102400 bytes" },
        { 1, WEIR_OFF, 0, 3, "max_output, 1 bytes" },
        { 0, 0, 0, SIZE_MAX / 2, "max_ratio, 100 times" },
        { 0, 0, 4096, 1, "max_ratio, 100 times" },
        { 0, 20, 0, 100, "max_ratio, 20 times" },
        { 3 * MIB, 5, MIB, 100, "max_ratio, 5 times" },
    };
    FOR_EACH_FORMAT(format)
    {
        bytes small = bomb(format, 10 * MIB);
        assert_true(small.length < 10 * MIB / 200);
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            weir_decompression config = { .format = format,
                                          .max_output = limits[i].max_output,
                                          .max_ratio = limits[i].max_ratio,
                                          .chunk_bytes = limits[i].chunk_bytes };
            size_t chunk = config.chunk_bytes > 0 ? config.chunk_bytes : 64 * KIB;
            outcome found = decompressed_by(config, &small, limits[i].piece);
            assert_int_equal(found.code, WEIR_ELIMIT);
            assert_non_null(strstr(found.error.message, limits[i].names));
            assert_non_null(strstr(found.error.message, weir_compression_name(format)));
            assert_true(found.largest <= chunk);
            if (config.max_output > 0)
                assert_true(found.out.length <= config.max_output);
            if (config.max_ratio != WEIR_OFF)
                assert_true(found.out.length <=
                            64 * KIB + (uint64_t)(config.max_ratio + 100) * small.length);
            /* What was made, passed on or not. */
            unsigned long long in, out;
            assert_int_equal(sscanf(strstr(found.error.message, "times: ") != NULL
                                        ? strstr(found.error.message, "times: ") + 7
                                        : strstr(found.error.message, "bytes: ") + 7,
                                    "%llu bytes in, %llu out", &in, &out),
                             2);
            assert_true(in <= small.length);
            if (config.max_output > 0 && config.max_ratio == WEIR_OFF)
                assert_int_equal(out, config.max_output + 1);
            assert_true(out <= found.out.length + chunk);
            bytes_free(&found.out);
        }
        bytes_free(&small);
    }
}

/* CVE-2026-55833: once it has refused, nothing more is made of whatever comes. */
static void nothing_is_inflated_behind_a_limit(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes small = bomb(format, 10 * MIB);
        weir_decompressor *decompressor =
            decompressor_new((weir_decompression){ .format = format, .max_output = 1000 });
        outcome found = { .out = bytes_new(0) };
        assert_int_equal(decompress_piece(decompressor, small.at, small.length, &found),
                         WEIR_COMPRESSED_REFUSED);
        weir_buf *in = weir_buf_from(small.at, small.length), *out;
        for (int i = 0; i < 3; i++) {
            weir_error error;
            assert_int_equal(weir_decompressor_run(decompressor, in, &out, &error),
                             WEIR_COMPRESSED_REFUSED);
            assert_null(out);
            assert_int_equal(error.code, WEIR_ELIMIT);
            assert_string_equal(error.message, found.error.message);
            assert_int_equal(weir_buf_readable(in), small.length);
        }
        assert_int_equal(weir_decompressor_finish(decompressor, NULL), WEIR_ELIMIT);
        assert_int_equal(weir_decompressor_reset(decompressor, true), -EINVAL);
        weir_buf_release(in);
        weir_decompressor_free(decompressor);
        bytes_free(&found.out);
        bytes_free(&small);
    }
}

static void exactly_as_much_as_allowed_passes(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        for (size_t length = 1; length < 300 * KIB; length = length * 5 + 1) {
            bytes from = zeroes(length), small = compressed(format, &from);
            weir_decompression config = { .format = format, .max_ratio = WEIR_OFF };
            config.max_output = length;
            outcome found = decompressed_by(config, &small, 10);
            assert_int_equal(found.code, 0);
            assert_same_bytes(found.out, from);
            if (length > 1) {
                config.max_output = length - 1;
                found = decompressed_by(config, &small, 10);
                assert_int_equal(found.code, WEIR_ELIMIT);
                bytes_free(&found.out);
            }
            bytes_free(&small);
        }
    }
}

/* The ratio is about what expands, not about how long it goes on. */
static void what_expands_little_goes_on_forever(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(3 * MIB), small = compressed(format, &from);
        outcome found = decompressed_by((weir_decompression){ .format = format, .max_ratio = 10 },
                                        &small, 1000);
        assert_int_equal(found.code, 0);
        assert_same_bytes(found.out, from);
        bytes_free(&small);
    }
}

static void limits_are_counted_anew_for_each_part(void **state)
{
    (void)state;
    bytes from = zeroes(MIB), small = bytes_new(0);
    weir_compressor *compressor =
        compressor_new((weir_compression){ .format = WEIR_COMPRESSION_DEFLATE });
    weir_decompressor *decompressor = decompressor_new((weir_decompression){
        .format = WEIR_COMPRESSION_DEFLATE, .max_output = MIB, .max_ratio = WEIR_OFF });
    outcome found = { .out = bytes_new(0) };
    compress_piece(compressor, from.at, from.length, WEIR_COMPRESS_FLUSH, &small);
    for (int i = 0; i < 3; i++) {
        decompress_piece(decompressor, small.at, small.length, &found);
        assert_int_equal(found.code, 0);
        if (i < 2)
            assert_int_equal(weir_decompressor_reset(decompressor, true), 0);
    }
    decompress_piece(decompressor, small.at, small.length, &found);
    assert_int_equal(found.code, WEIR_ELIMIT);
    assert_int_equal(found.out.length, 3 * MIB);
    weir_compressor_free(compressor);
    weir_decompressor_free(decompressor);
    bytes_free(&from);
    bytes_free(&small);
    bytes_free(&found.out);
}

static bool is_followed(weir_compression_format format)
{
    return format == WEIR_COMPRESSION_GZIP || format == WEIR_COMPRESSION_ZSTD ||
           format == WEIR_COMPRESSION_LZ4;
}

/* Many small bombs are a large one. */
static void limits_count_streams_that_follow_each_other_as_one(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes one = bomb(format, 60000), many = bytes_new(0);
        for (int i = 0; i < 200; i++)
            bytes_join(&many, &one);
        for (size_t piece = 100; piece < 4 * many.length && is_followed(format); piece *= 10) {
            outcome found = decompressed_by((weir_decompression){ .format = format }, &many, piece);
            assert_int_equal(found.code, WEIR_ELIMIT);
            assert_non_null(strstr(found.error.message, "max_ratio, 100 times"));
            assert_true(found.out.length <= 200000);
            bytes_free(&found.out);
            found = decompressed_by((weir_decompression){ .format = format,
                                                          .max_output = 200000,
                                                          .max_ratio = WEIR_OFF },
                                    &many, piece);
            assert_int_equal(found.code, WEIR_ELIMIT);
            assert_non_null(strstr(found.error.message, "max_output, 200000 bytes"));
            assert_true(found.out.length <= 200000);
            bytes_free(&found.out);
        }
        bytes_free(&one);
        bytes_free(&many);
    }
}

/* A frame of zstd says how far it looks back, and somebody has to have that much memory. */
static void windows_have_a_limit(void **state)
{
    (void)state;
    static const uint8_t frame[] = {
        0x28,
        0xb5,
        0x2f,
        0xfd,
        0x00,           /* no size, no checksum */
        (24 - 10) << 3, /* 16 MiB */
        0x01 | 1 << 3,
        0x00,
        0x00, /* the last block: one byte as it is */
        'x',
    };
    bytes from = bytes_of(frame, sizeof frame);
    if (!weir_compression_has(WEIR_COMPRESSION_ZSTD)) {
        bytes_free(&from);
        return;
    }
    outcome found = decompressed(WEIR_COMPRESSION_ZSTD, &from);
    assert_int_equal(found.code, WEIR_ELIMIT);
    assert_non_null(strstr(found.error.message, "window_bits"));
    bytes_free(&found.out);
    found = decompressed_by(
        (weir_decompression){ .format = WEIR_COMPRESSION_ZSTD, .window_bits = 24 }, &from, 100);
    assert_int_equal(found.code, 0);
    assert_same_bytes(found.out, bytes_of_text("x"));
    bytes_free(&from);
}

/* Whatever a header claims: nobody has that much memory for a peer, and no dictionaries. */
static void what_a_header_claims_is_not_believed(void **state)
{
    (void)state;
    static const struct {
        weir_compression_format format;
        int code;
        const char *text;
        uint8_t bytes[24];
        size_t length;
    } headers[] = {
        /* zstd: a window of 2 GiB; one of 3.75 TiB; a single segment of 2 GiB; dictionary 7 */
        { WEIR_COMPRESSION_ZSTD,
          WEIR_ELIMIT,
          "window_bits",
          { 0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3 },
          9 },
        { WEIR_COMPRESSION_ZSTD,
          WEIR_ELIMIT,
          "window_bits",
          { 0x28, 0xb5, 0x2f, 0xfd, 0, 0xff },
          9 },
        { WEIR_COMPRESSION_ZSTD,
          WEIR_ELIMIT,
          "window_bits",
          { 0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x80 },
          12 },
        { WEIR_COMPRESSION_ZSTD,
          -EBADMSG,
          "Dictionary",
          { 0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 1 },
          10 },
        /* brotli: a large window, of 2^30 */
        { WEIR_COMPRESSION_BROTLI, -EBADMSG, "WINDOW_BITS", { 0x11, 30 | 0x40 }, 4 },
        /* zlib: a preset dictionary */
        { WEIR_COMPRESSION_ZLIB, -EBADMSG, "dictionary", { 0x78, 0x20, 0, 0, 0, 1 }, 8 },
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        if (!weir_compression_has(headers[i].format))
            continue;
        for (size_t piece = 1; piece < 20; piece += 9) {
            bytes from = bytes_of(headers[i].bytes, headers[i].length);
            outcome found = decompressed_by((weir_decompression){ .format = headers[i].format },
                                            &from, piece);
            assert_int_equal(found.code, headers[i].code);
            if (strstr(found.error.message, headers[i].text) == NULL)
                fail_msg("%s, not %s", found.error.message, headers[i].text);
            assert_int_equal(found.out.length, 0);
            bytes_free(&found.out);
            bytes_free(&from);
        }
    }
}

/* What one may skip is skipped; what came before the standard, and has no limit for its window, is
 * not known. */
static void zstd_is_what_the_standard_says(void **state)
{
    (void)state;
    static const uint8_t skipped[] = { 0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c' };
    if (!weir_compression_has(WEIR_COMPRESSION_ZSTD))
        return;
    bytes from = words(300), small = compressed(WEIR_COMPRESSION_ZSTD, &from);
    bytes whole = bytes_of(skipped, sizeof skipped);
    bytes_join(&whole, &small);
    bytes_add(&whole, weir_buf_from(skipped, sizeof skipped));
    for (size_t piece = 1; piece < 30; piece++) {
        outcome found = decompressed_by((weir_decompression){ .format = WEIR_COMPRESSION_ZSTD },
                                        &whole, piece);
        assert_int_equal(found.code, 0);
        assert_same_bytes(found.out, bytes_of(from.at, from.length));
    }
    for (uint8_t version = 0x22; version < 0x28; version++) {
        for (size_t piece = 1; piece < 30; piece++) {
            small.at[0] = version;
            outcome found = decompressed_by((weir_decompression){ .format = WEIR_COMPRESSION_ZSTD },
                                            &small, piece);
            assert_int_equal(found.code, -EBADMSG);
            assert_non_null(strstr(found.error.message, "Unknown frame descriptor"));
            bytes_free(&found.out);
        }
    }
    bytes_free(&from);
    bytes_free(&small);
    bytes_free(&whole);
}

/* Bad input ------------------------------------------------------------------------------------ */

static void what_is_cut_off_is_told(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(500), small = compressed(format, &from);
        for (size_t length = 1; length < small.length; length++) {
            bytes cut = bytes_of(small.at, length);
            char text[128];
            outcome found = decompressed(format, &cut);
            assert_int_equal(found.code, WEIR_EOF);
            snprintf(text, sizeof text, "the %s stream is cut off (at byte %zu of the stream)",
                     weir_compression_name(format), length);
            assert_string_equal(found.error.message, text);
            assert_true(found.out.length <= from.length);
            assert_true(memcmp(found.out.at, from.at, found.out.length) == 0);
            bytes_free(&found.out);
            bytes_free(&cut);
        }
        bytes_free(&from);
        bytes_free(&small);
    }
}

static void no_bytes_at_all_are_no_error(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes nothing = bytes_new(0);
        outcome found = decompressed(format, &nothing);
        assert_int_equal(found.code, 0);
        assert_int_equal(found.out.length, 0);
        bytes_free(&found.out);
        bytes_free(&nothing);
    }
}

static void streams_that_follow_each_other_are_one(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes first = words(5000), second = random_bytes(100), none = bytes_new(0);
        bytes small = compressed(format, &first), more = compressed(format, &second),
              empty = compressed(format, &none);
        size_t end = small.length;
        bytes_join(&small, &empty);
        bytes_join(&small, &more);
        for (size_t piece = 1; piece < 4 * small.length; piece = piece * 3 + 1) {
            outcome found = decompressed_by((weir_decompression){ .format = format }, &small,
                                            piece);
            if (is_followed(format)) {
                bytes whole = bytes_of(first.at, first.length);
                bytes_join(&whole, &second);
                assert_int_equal(found.code, 0);
                assert_same_bytes(found.out, whole);
                continue;
            }
            char text[128];
            assert_int_equal(found.code, -EBADMSG);
            snprintf(text, sizeof text, "(at byte %zu of the stream)", end);
            assert_non_null(strstr(found.error.message, text));
            assert_same_bytes(found.out, bytes_of(first.at, first.length));
        }
        bytes_free(&first);
        bytes_free(&second);
        bytes_free(&small);
        bytes_free(&more);
        bytes_free(&empty);
        bytes_free(&none);
    }
}

static void garbage_behind_the_end_is_told_with_its_place(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(5000), small = compressed(format, &from);
        size_t end = small.length;
        bytes garbage = bytes_of_text("GET / HTTP/1.1\r\n\r\n");
        bytes_join(&small, &garbage);
        for (size_t piece = 1; piece < 4 * small.length; piece = piece * 3 + 1) {
            char text[160];
            outcome found = decompressed_by((weir_decompression){ .format = format }, &small,
                                            piece);
            assert_int_equal(found.code, -EBADMSG);
            snprintf(text, sizeof text,
                     "the %s stream has ended, but bytes follow that are none (at byte %zu of the "
                     "stream)",
                     weir_compression_name(format), end);
            assert_string_equal(found.error.message, text);
            assert_same_bytes(found.out, bytes_of(from.at, from.length));
        }
        bytes_free(&garbage);
        bytes_free(&small);
        bytes_free(&from);
    }
}

/* Each byte changed in several ways: an error, or, where there is no checksum, other bytes; but
 * never more of them than the limit. */
static void no_changed_byte_goes_unnoticed(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(700), small = compressed(format, &from);
        unsigned unnoticed = 0;
        for (size_t at = 0; at < small.length; at++) {
            for (unsigned change = 1; change < 256; change = change * 2 + 1) {
                bytes bad = bytes_of(small.at, small.length);
                bad.at[at] ^= (uint8_t)change;
                outcome found = decompressed_by(
                    (weir_decompression){ .format = format, .max_output = 2000 }, &bad, 50);
                assert_true(found.out.length <= 2000);
                if (found.code == 0 && (found.out.length != from.length ||
                                        memcmp(found.out.at, from.at, from.length) != 0))
                    unnoticed++;
                bytes_free(&found.out);
                bytes_free(&bad);
            }
        }
        if (has_checksum(format))
            assert_int_equal(unnoticed, 0);
        bytes_free(&from);
        bytes_free(&small);
    }
}

static void a_wrong_checksum_is_told(void **state)
{
    (void)state;
    static const size_t from_end[] = { 0, 6, 2, 0, 0, 2, 2 };
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(300), small = compressed(format, &from);
        if (has_checksum(format)) {
            small.at[small.length - from_end[format]] ^= 1;
            outcome found = decompressed(format, &small);
            assert_int_equal(found.code, -EBADMSG);
            assert_non_null(strstr(found.error.message, "of the stream)"));
            bytes_free(&found.out);
        }
        bytes_free(&from);
        bytes_free(&small);
    }
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        FOR_EACH_FORMAT(other)
        {
            bytes from = random_bytes(1000), small = compressed(other, &from);
            outcome found = decompressed(format, &small);
            if (format != other)
                assert_true(found.code == -EBADMSG || found.code == WEIR_EOF);
            bytes_free(&found.out);
            bytes_free(&small);
            bytes_free(&from);
        }
    }
}

/* Configs -------------------------------------------------------------------------------------- */

static void bad_configs_are_refused_in_words(void **state)
{
    (void)state;
    weir_error error;
    weir_compressor *compressor;
    weir_decompressor *decompressor;
    static const weir_compression compressions[] = {
        { .format = 0 },
        { .format = 7 },
        { .format = WEIR_COMPRESSION_GZIP, .level = -1 },
        { .format = WEIR_COMPRESSION_GZIP, .level = 10 },
        { .format = WEIR_COMPRESSION_GZIP, .window_bits = 8 },
        { .format = WEIR_COMPRESSION_DEFLATE, .window_bits = 16 },
    };
    static const weir_decompression decompressions[] = {
        { .format = 0 },
        { .format = 7 },
        { .format = WEIR_COMPRESSION_GZIP, .chunk_bytes = 511 },
        { .format = WEIR_COMPRESSION_GZIP, .chunk_bytes = 16 * MIB + 1 },
        { .format = WEIR_COMPRESSION_GZIP, .max_ratio = -2 },
        { .format = WEIR_COMPRESSION_GZIP, .window_bits = 7 },
        { .format = WEIR_COMPRESSION_GZIP, .window_bits = 16 },
    };
    for (size_t i = 0; i < sizeof compressions / sizeof *compressions; i++) {
        error.message[0] = '\0';
        assert_int_equal(weir_compressor_new(&compressor, &compressions[i], &error), -EINVAL);
        assert_string_not_equal(error.message, "");
        assert_null(compressor);
    }
    for (size_t i = 0; i < sizeof decompressions / sizeof *decompressions; i++) {
        error.message[0] = '\0';
        assert_int_equal(weir_decompressor_new(&decompressor, &decompressions[i], &error), -EINVAL);
        assert_string_not_equal(error.message, "");
        assert_null(decompressor);
    }
    assert_int_equal(weir_compressor_new(&compressor, NULL, NULL), -EINVAL);
    assert_int_equal(weir_decompressor_new(&decompressor, NULL, NULL), -EINVAL);
    weir_compressor_free(NULL);
    weir_decompressor_free(NULL);
}

static void ranges_are_those_of_the_format(void **state)
{
    (void)state;
    static const int most[] = { 0, 9, 9, 9, 11, 19, 12 };
    FOR_EACH_FORMAT(format)
    {
        weir_compressor *compressor;
        weir_error error;
        weir_compression config = { .format = format, .level = most[format] + 1 };
        assert_int_equal(weir_compressor_new(&compressor, &config, &error), -EINVAL);
        assert_non_null(strstr(error.message, weir_compression_name(format)));
        config.level = 0;
        config.window_bits = 25;
        assert_int_equal(weir_compressor_new(&compressor, &config, &error), -EINVAL);
    }
}

/* The bounds themselves are allowed, and what is beyond them is not. */
static void windows_can_be_as_large_and_small_as_said(void **state)
{
    (void)state;
    static const struct {
        weir_compression_format format;
        unsigned compress_min, compress_max, decompress_min, decompress_max;
    } rows[] = {
        { WEIR_COMPRESSION_GZIP, 9, 15, 8, 15 },    { WEIR_COMPRESSION_ZLIB, 9, 15, 8, 15 },
        { WEIR_COMPRESSION_DEFLATE, 9, 15, 8, 15 }, { WEIR_COMPRESSION_BROTLI, 10, 24, 1, 0 },
        { WEIR_COMPRESSION_ZSTD, 10, 23, 10, 27 },  { WEIR_COMPRESSION_LZ4, 1, 0, 1, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (unsigned bits = 0; bits < 40 && weir_compression_has(rows[i].format); bits++) {
            weir_compressor *compressor;
            weir_decompressor *decompressor;
            weir_compression compression = { .format = rows[i].format, .window_bits = bits };
            weir_decompression decompression = { .format = rows[i].format, .window_bits = bits };
            bool can_compress = bits >= rows[i].compress_min && bits <= rows[i].compress_max;
            bool can_decompress = bits >= rows[i].decompress_min && bits <= rows[i].decompress_max;
            assert_int_equal(weir_compressor_new(&compressor, &compression, NULL),
                             bits == 0 || can_compress ? 0 : -EINVAL);
            assert_int_equal(weir_decompressor_new(&decompressor, &decompression, NULL),
                             bits == 0 || can_decompress ? 0 : -EINVAL);
            weir_compressor_free(compressor);
            weir_decompressor_free(decompressor);
        }
    }
}

static void what_is_not_built_in_says_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_formats / sizeof *all_formats; i++) {
        weir_error error;
        weir_compressor *compressor;
        weir_decompressor *decompressor;
        weir_compression compression = { .format = all_formats[i] };
        weir_decompression decompression = { .format = all_formats[i] };
        if (weir_compression_has(all_formats[i]))
            continue;
        assert_int_equal(weir_compressor_new(&compressor, &compression, &error), -EOPNOTSUPP);
        assert_non_null(strstr(error.message, weir_compression_name(all_formats[i])));
        assert_int_equal(weir_decompressor_new(&decompressor, &decompression, &error), -EOPNOTSUPP);
        assert_non_null(strstr(error.message, weir_compression_name(all_formats[i])));
    }
}

/* Faults --------------------------------------------------------------------------------------- */

/* What was made before is right, and then it says -ENOMEM for good. */
static int compress_with_faults(weir_compression_format format, const bytes *from)
{
    weir_compressor *compressor;
    weir_compression config = { .format = format };
    weir_buf *in = weir_buf_wrap(from->at, from->length, NULL, NULL), *out;
    weir_error error = { .code = 0 };
    int code = in != NULL ? weir_compressor_new(&compressor, &config, &error) : -ENOMEM;
    if (code == 0) {
        weir_compressed result;
        do {
            result = weir_compressor_run(compressor, in, WEIR_COMPRESS_END, &out, &error);
            if (out != NULL)
                weir_buf_release(out);
        } while (result == WEIR_COMPRESSED_MORE);
        if (result == WEIR_COMPRESSED_REFUSED) {
            code = error.code;
            assert_int_equal(weir_compressor_run(compressor, in, WEIR_COMPRESS_END, &out, NULL),
                             WEIR_COMPRESSED_REFUSED);
        }
        weir_compressor_free(compressor);
    }
    if (in != NULL)
        weir_buf_release(in);
    return code;
}

static int decompress_with_faults(weir_compression_format format, const bytes *from)
{
    weir_decompressor *decompressor;
    weir_decompression config = { .format = format };
    weir_buf *in = weir_buf_wrap(from->at, from->length, NULL, NULL), *out;
    weir_error error = { .code = 0 };
    int code = in != NULL ? weir_decompressor_new(&decompressor, &config, &error) : -ENOMEM;
    if (code == 0) {
        weir_compressed result;
        do {
            result = weir_decompressor_run(decompressor, in, &out, &error);
            if (out != NULL)
                weir_buf_release(out);
        } while (result == WEIR_COMPRESSED_MORE);
        code = weir_decompressor_finish(decompressor, &error);
        weir_decompressor_free(decompressor);
    }
    if (in != NULL)
        weir_buf_release(in);
    return code;
}

/* Also for the buffers, which come from the pool. */
static void without_memory_it_says_so_and_leaks_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = { "alloc", "pool" };
    for (size_t i = 0; i < 2; i++)
        FOR_EACH_FORMAT(format)
        {
            const char *call = calls[i];
            bytes from = words(200 * KIB), small = compressed(format, &from);
            unsigned failed = 0;
            for (unsigned nth = 1;; nth++) {
                harness_fail_nth(call, nth, -ENOMEM);
                int code = compress_with_faults(format, &from);
                if (harness_fail_end() < nth) {
                    assert_int_equal(code, 0);
                    break;
                }
                assert_int_equal(code, -ENOMEM);
                failed++;
            }
            for (unsigned nth = 1;; nth++) {
                harness_fail_nth(call, nth, -ENOMEM);
                int code = decompress_with_faults(format, &small);
                if (harness_fail_end() < nth) {
                    assert_int_equal(code, 0);
                    break;
                }
                assert_int_equal(code, -ENOMEM);
                failed++;
            }
            assert_true(failed > 1);
            bytes_free(&from);
            bytes_free(&small);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_format_gives_back_what_it_took),
        weir_case(all_formats_are_there_and_have_names),
        weir_case(every_level_and_window_works),
        weir_case(it_does_not_matter_how_the_bytes_come),
        weir_case(composites_are_taken_as_they_are),
        weir_case(a_flush_makes_all_of_it_readable),
        weir_case(messages_of_deflate_end_in_an_empty_block),
        weir_case(a_reset_begins_another_stream),
        weir_case(nothing_can_be_written_behind_the_end),
        weir_case(the_limits_hold_for_every_format),
        weir_case(nothing_is_inflated_behind_a_limit),
        weir_case(exactly_as_much_as_allowed_passes),
        weir_case(what_expands_little_goes_on_forever),
        weir_case(limits_are_counted_anew_for_each_part),
        weir_case(limits_count_streams_that_follow_each_other_as_one),
        weir_case(windows_have_a_limit),
        weir_case(what_a_header_claims_is_not_believed),
        weir_case(zstd_is_what_the_standard_says),
        weir_case(what_is_cut_off_is_told),
        weir_case(no_bytes_at_all_are_no_error),
        weir_case(streams_that_follow_each_other_are_one),
        weir_case(garbage_behind_the_end_is_told_with_its_place),
        weir_case(no_changed_byte_goes_unnoticed),
        weir_case(a_wrong_checksum_is_told),
        weir_case(other_formats_are_refused),
        weir_case(bad_configs_are_refused_in_words),
        weir_case(ranges_are_those_of_the_format),
        weir_case(windows_can_be_as_large_and_small_as_said),
        weir_case(what_is_not_built_in_says_so),
        weir_case(without_memory_it_says_so_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
