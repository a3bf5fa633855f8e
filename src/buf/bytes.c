/* SPDX-License-Identifier: MIT */
/* Bytes and text: copied into buffers and out of them. */
#include "buf/buf.h"

#include "base/alloc.h"
#include "buf/composite.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* 0 when the content at [index, index + length) may be written over. */
static int check_settable(const weir_buf *buf, size_t index, size_t length)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0)
        return code;
    if (buf->flags & WEIR__BUF_READ_ONLY)
        return WEIR_EREADONLY;
    if (buf->flags & WEIR__BUF_COMPOSITE && weir__composite_is_read_only(buf, index, length))
        return WEIR_EREADONLY;
    return 0;
}

void weir__buf_put(weir_buf *buf, size_t index, const uint8_t *from, size_t length)
{
    while (length > 0) {
        weir_run run = weir__buf_run(buf, index, length);
        memmove(run.bytes, from, run.length);
        from += run.length;
        index += run.length;
        length -= run.length;
    }
}

static void fill(weir_buf *buf, size_t index, uint8_t byte, size_t length)
{
    while (length > 0) {
        weir_run run = weir__buf_run(buf, index, length);
        memset(run.bytes, byte, run.length);
        index += run.length;
        length -= run.length;
    }
}

/* Bytes ------------------------------------------------------------------------------------- */

int weir_buf_get_bytes(const weir_buf *buf, size_t index, void *to, size_t length)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0 || length == 0)
        return code;
    if (to == NULL)
        return -EINVAL;
    for (uint8_t *out = to; length > 0;) {
        weir_run run = weir__buf_run(buf, index, length);
        memmove(out, run.bytes, run.length);
        out += run.length;
        index += run.length;
        length -= run.length;
    }
    return 0;
}

int weir_buf_read_bytes(weir_buf *buf, void *to, size_t length)
{
    int code = weir_buf_get_bytes(buf, weir_buf_reader(buf), to, length);
    if (code == 0)
        buf->reader += (uint32_t)length;
    return code;
}

int weir_buf_set_bytes(weir_buf *buf, size_t index, const void *from, size_t length)
{
    int code = check_settable(buf, index, length);
    if (code == 0 && from == NULL && length > 0)
        code = -EINVAL;
    if (code == 0)
        weir__buf_put(buf, index, from, length);
    return code;
}

int weir_buf_write_bytes(weir_buf *buf, const void *from, size_t length)
{
    if (buf == NULL || (from == NULL && length > 0))
        return -EINVAL;
    /*
     * The bytes may be content of this buffer, which growing may move. What reaches further is
     * another view's, and that keeps the old storage.
     */
    const uint8_t *bytes = from;
    const uint8_t *data = buf->data;
    bool is_inside = data != NULL && bytes >= data && bytes < data + buf->writer &&
                     length <= (size_t)(data + buf->writer - bytes);
    int code = weir_buf_ensure_writable(buf, length);
    if (code < 0)
        return code;
    if (is_inside)
        bytes = buf->data + (bytes - data);
    weir__buf_put(buf, buf->writer, bytes, length);
    buf->writer += (uint32_t)length;
    return 0;
}

int weir_buf_write_buf(weir_buf *buf, weir_buf *from, size_t length)
{
    int code = weir__buf_check(from, weir_buf_reader(from), length);
    if (code == 0 && weir__buf_is_slice_of(from, buf))
        code = -EINVAL;
    if (code == 0)
        code = weir_buf_ensure_writable(buf, length);
    if (code < 0)
        return code;
    while (length > 0) {
        weir_run run = weir__buf_run(from, from->reader, length);
        weir__buf_put(buf, buf->writer, run.bytes, run.length);
        buf->writer += (uint32_t)run.length;
        from->reader += (uint32_t)run.length;
        length -= run.length;
    }
    return 0;
}

int weir_buf_fill(weir_buf *buf, size_t index, uint8_t byte, size_t length)
{
    int code = check_settable(buf, index, length);
    if (code == 0)
        fill(buf, index, byte, length);
    return code;
}

int weir_buf_write_fill(weir_buf *buf, uint8_t byte, size_t length)
{
    int code = weir_buf_ensure_writable(buf, length);
    if (code < 0)
        return code;
    fill(buf, buf->writer, byte, length);
    buf->writer += (uint32_t)length;
    return 0;
}

/* Text -------------------------------------------------------------------------------------- */

int weir_buf_write_str(weir_buf *buf, const char *string)
{
    return string != NULL ? weir_buf_write_bytes(buf, string, strlen(string)) : -EINVAL;
}

int weir_buf_write_cstr(weir_buf *buf, const char *string)
{
    return string != NULL ? weir_buf_write_bytes(buf, string, strlen(string) + 1) : -EINVAL;
}

int weir_buf_get_str(const weir_buf *buf, size_t index, size_t length, char *to, size_t size)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0)
        return code;
    if (to == NULL)
        return -EINVAL;
    if (length >= size)
        return WEIR_ELIMIT;
    weir_buf_get_bytes(buf, index, to, length);
    to[length] = '\0';
    return 0;
}

int weir_buf_read_str(weir_buf *buf, size_t length, char *to, size_t size)
{
    int code = weir_buf_get_str(buf, weir_buf_reader(buf), length, to, size);
    if (code == 0)
        buf->reader += (uint32_t)length;
    return code;
}

int weir_buf_read_cstr(weir_buf *buf, char *to, size_t size)
{
    int64_t end = weir_buf_find(buf, weir_buf_reader(buf), weir_buf_readable(buf), 0);
    if (end < 0)
        return (int)end;
    int code = weir_buf_read_str(buf, (size_t)end - buf->reader, to, size);
    if (code == 0)
        buf->reader++;
    return code;
}

/* Formatted aside: in the buffer itself the terminator would need room that the limit may
 * refuse. */
int weir_buf_vprintf(weir_buf *buf, const char *format, va_list args)
{
    char small[256];
    char *text = small;
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(small, sizeof small, format, args);
    if (length >= (int)sizeof small) {
        text = weir__alloc((size_t)length + 1);
        if (text != NULL)
            vsnprintf(text, (size_t)length + 1, format, again);
    }
    va_end(again);
    if (length < 0 || text == NULL)
        return length < 0 ? -EINVAL : -ENOMEM;
    int code = weir_buf_write_bytes(buf, text, (size_t)length);
    if (text != small)
        weir__free(text);
    return code;
}

int weir_buf_printf(weir_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int code = weir_buf_vprintf(buf, format, args);
    va_end(args);
    return code;
}

/* Numbers as text ------------------------------------------------------------------------------ */

/* -1 if it is no digit of the base. */
static int digit_of(uint8_t byte, unsigned base)
{
    int digit = byte >= '0' && byte <= '9' ? byte - '0' : -1;
    if (base == 16 && byte >= 'a' && byte <= 'f')
        digit = byte - 'a' + 10;
    if (base == 16 && byte >= 'A' && byte <= 'F')
        digit = byte - 'A' + 10;
    return digit;
}

static int get_number(const weir_buf *buf, size_t index, size_t length, unsigned base,
                      uint64_t *number)
{
    uint64_t sum = 0;
    size_t count = 0;
    if (number == NULL || buf == NULL)
        return -EINVAL;
    for (uint8_t byte; count < length && weir_buf_get_bytes(buf, index + count, &byte, 1) == 0;
         count++) {
        int digit = digit_of(byte, base);
        if (digit < 0)
            break;
        if (__builtin_mul_overflow(sum, base, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)digit, &sum))
            return -ERANGE;
    }
    if (count == 0 || count > INT_MAX)
        return count == 0 ? -EINVAL : -ERANGE;
    *number = sum;
    return (int)count;
}

int weir_buf_get_decimal(const weir_buf *buf, size_t index, size_t length, uint64_t *number)
{
    return get_number(buf, index, length, 10, number);
}

int weir_buf_get_hex(const weir_buf *buf, size_t index, size_t length, uint64_t *number)
{
    return get_number(buf, index, length, 16, number);
}

static int read_number(weir_buf *buf, unsigned base, uint64_t *number)
{
    int count = get_number(buf, weir_buf_reader(buf), weir_buf_readable(buf), base, number);
    if (count > 0)
        weir_buf_skip(buf, (size_t)count);
    return count;
}

int weir_buf_read_decimal(weir_buf *buf, uint64_t *number)
{
    return read_number(buf, 10, number);
}

int weir_buf_read_hex(weir_buf *buf, uint64_t *number)
{
    return read_number(buf, 16, number);
}
