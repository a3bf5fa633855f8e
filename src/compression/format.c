/* SPDX-License-Identifier: MIT */
/* The formats, and what the ways into and out of them share. */
#include "compression/format.h"

#include <errno.h>
#include <sys/uio.h>

#define LEAST_ROOM ((size_t)512)

typedef struct format {
    const char *name;
    const char *library; /* what is missing without it */
    const weir_inflater_type *inflater;
    const weir_deflater_type *deflater;
} format;

static const format formats[] = {
    [WEIR_COMPRESSION_GZIP] = { "gzip", "zlib", &weir__gzip_inflater, &weir__zlib_deflater },
    [WEIR_COMPRESSION_ZLIB] = { "zlib", "zlib", &weir__zlib_inflater, &weir__zlib_deflater },
    [WEIR_COMPRESSION_DEFLATE] = { "deflate", "zlib", &weir__zlib_inflater, &weir__zlib_deflater },
#ifdef WEIR_HAS_BROTLI
    [WEIR_COMPRESSION_BROTLI] = { "brotli", "brotli", &weir__brotli_inflater,
                                  &weir__brotli_deflater },
#else
    [WEIR_COMPRESSION_BROTLI] = { "brotli", "brotli", NULL, NULL },
#endif
#ifdef WEIR_HAS_ZSTD
    [WEIR_COMPRESSION_ZSTD] = { "zstd", "zstd", &weir__zstd_inflater, &weir__zstd_deflater },
#else
    [WEIR_COMPRESSION_ZSTD] = { "zstd", "zstd", NULL, NULL },
#endif
#ifdef WEIR_HAS_LZ4
    [WEIR_COMPRESSION_LZ4] = { "lz4", "lz4", &weir__lz4_inflater, &weir__lz4_deflater },
#else
    [WEIR_COMPRESSION_LZ4] = { "lz4", "lz4", NULL, NULL },
#endif
};

static const format *find(weir_compression_format number)
{
    size_t at = (size_t)number;
    return at >= 1 && at < sizeof formats / sizeof *formats ? &formats[at] : NULL;
}

bool weir_compression_has(weir_compression_format number)
{
    const format *found = find(number);
    return found != NULL && found->inflater != NULL;
}

const char *weir_compression_name(weir_compression_format number)
{
    const format *found = find(number);
    return found != NULL ? found->name : "?";
}

static int check(weir_compression_format number, weir_error *error)
{
    const format *found = find(number);
    if (found == NULL)
        return weir_error_set(error, -EINVAL, "compression", "%d is no format", (int)number);
    if (found->inflater == NULL)
        return weir_error_set(error, -EOPNOTSUPP, "compression",
                              "no %s: this library was built without lib%s", found->name,
                              found->library);
    return 0;
}

int weir__format_inflater(weir_compression_format number, const weir_inflater_type **type,
                          weir_error *error)
{
    int code = check(number, error);
    *type = code == 0 ? formats[number].inflater : NULL;
    return code;
}

int weir__format_deflater(weir_compression_format number, const weir_deflater_type **type,
                          weir_error *error)
{
    int code = check(number, error);
    *type = code == 0 ? formats[number].deflater : NULL;
    return code;
}

/* Steps ---------------------------------------------------------------------------------------- */

void weir__coding_take(weir_coding *coding, const weir_buf *in)
{
    struct iovec run = { .iov_len = 0 };
    coding->in_left = 0;
    if (weir_buf_readable(in) > 0 &&
        weir_buf_iovec(in, weir_buf_reader(in), weir_buf_readable(in), &run, 1, NULL) == 1) {
        coding->in = run.iov_base;
        coding->in_left = run.iov_len;
    }
}

#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#define HAS_MSAN 1
#include <sanitizer/msan_interface.h>
#endif
#endif

void weir__coding_wrote(const uint8_t *bytes, size_t length)
{
#ifdef HAS_MSAN
    __msan_unpoison(bytes, length);
#else
    (void)bytes;
    (void)length;
#endif
}

size_t weir__coding_room(size_t before, bool was_full, size_t in, size_t most)
{
    size_t room = was_full ? before * 2 : in;
    room = room > LEAST_ROOM ? room : LEAST_ROOM;
    return room < most ? room : most;
}
