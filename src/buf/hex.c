/* SPDX-License-Identifier: MIT */
/* The hex dump: a table for people. */
#include "buf/buf.h"

#include <stdio.h>

#define BYTES_PER_LINE 16

static const char ruler[] =
    "         +-------------------------------------------------+\n"
    "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n"
    "+--------+-------------------------------------------------+----------------+\n";
static const char foot[] =
    "+--------+-------------------------------------------------+----------------+\n";

#define LINE_LENGTH (sizeof foot - 1)

static void write_line(weir_buf *out, size_t offset, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    char line[LINE_LENGTH + 1];
    int at = snprintf(line, sizeof line, "|%08x| ", (unsigned)offset);
    for (size_t i = 0; i < BYTES_PER_LINE; i++) {
        line[at++] = i < count ? digits[bytes[i] >> 4] : ' ';
        line[at++] = i < count ? digits[bytes[i] & 15] : ' ';
        line[at++] = ' ';
    }
    line[at++] = '|';
    for (size_t i = 0; i < BYTES_PER_LINE; i++) {
        bool is_text = i < count && bytes[i] >= 0x20 && bytes[i] < 0x7f;
        line[at++] = is_text ? (char)bytes[i] : i < count ? '.' : ' ';
    }
    line[at++] = '|';
    line[at++] = '\n';
    weir_buf_write_bytes(out, line, (size_t)at);
}

int weir_buf_hex_dump(const weir_buf *buf, size_t index, size_t length, weir_buf *out)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0)
        return code;
    if (buf == out || weir__buf_is_slice_of(buf, out))
        return -EINVAL;
    /* All the room at once: what follows cannot fail half-way. */
    size_t lines = (length + BYTES_PER_LINE - 1) / BYTES_PER_LINE;
    code = weir_buf_ensure_writable(out, sizeof ruler - 1 + (lines + 1) * LINE_LENGTH);
    if (code < 0)
        return code;
    weir_buf_write_str(out, ruler);
    for (size_t done = 0; done < length; done += BYTES_PER_LINE) {
        uint8_t bytes[BYTES_PER_LINE];
        size_t count = length - done < BYTES_PER_LINE ? length - done : BYTES_PER_LINE;
        weir_buf_get_bytes(buf, index + done, bytes, count);
        write_line(out, done, bytes, count);
    }
    return weir_buf_write_str(out, foot);
}
