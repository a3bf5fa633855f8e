/* SPDX-License-Identifier: MIT */
/* Looking at content: finding, comparing, hashing. */
#include "buf/buf.h"

#include "base/hash.h"

#include <string.h>

/* Bytes ------------------------------------------------------------------------------------- */

int64_t weir_buf_find(const weir_buf *buf, size_t index, size_t length, uint8_t byte)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0)
        return code;
    while (length > 0) {
        weir_run run = weir__buf_run(buf, index, length);
        const uint8_t *found = memchr(run.bytes, byte, run.length);
        if (found != NULL)
            return (int64_t)(index + (size_t)(found - run.bytes));
        index += run.length;
        length -= run.length;
    }
    return WEIR_ENOTFOUND;
}

int64_t weir_buf_find_last(const weir_buf *buf, size_t index, size_t length, uint8_t byte)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0)
        return code;
    while (length > 0) {
        weir_run run = weir__buf_run_before(buf, index + length, length);
        length -= run.length;
        const uint8_t *found = memrchr(run.bytes, byte, run.length);
        if (found != NULL)
            return (int64_t)(index + length + (size_t)(found - run.bytes));
    }
    return WEIR_ENOTFOUND;
}

/* Predicates -------------------------------------------------------------------------------- */

int64_t weir_buf_find_if(const weir_buf *buf, size_t index, size_t length,
                         weir_buf_match_fn matches, void *arg)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0 || matches == NULL)
        return code < 0 ? code : -EINVAL;
    while (length > 0) {
        weir_run run = weir__buf_run(buf, index, length);
        for (size_t i = 0; i < run.length; i++) {
            if (matches(arg, run.bytes[i]))
                return (int64_t)(index + i);
        }
        index += run.length;
        length -= run.length;
    }
    return WEIR_ENOTFOUND;
}

int64_t weir_buf_find_last_if(const weir_buf *buf, size_t index, size_t length,
                              weir_buf_match_fn matches, void *arg)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0 || matches == NULL)
        return code < 0 ? code : -EINVAL;
    while (length > 0) {
        weir_run run = weir__buf_run_before(buf, index + length, length);
        length -= run.length;
        for (size_t i = run.length; i > 0; i--) {
            if (matches(arg, run.bytes[i - 1]))
                return (int64_t)(index + length + i - 1);
        }
    }
    return WEIR_ENOTFOUND;
}

/* Sequences --------------------------------------------------------------------------------- */

/* Whether the content at `index` begins with the sequence; there is enough of it. */
static bool begins_with(const weir_buf *buf, size_t index, const uint8_t *sequence, size_t length)
{
    while (length > 0) {
        weir_run run = weir__buf_run(buf, index, length);
        if (memcmp(run.bytes, sequence, run.length) != 0)
            return false;
        sequence += run.length;
        index += run.length;
        length -= run.length;
    }
    return true;
}

static int check_sequence(const weir_buf *buf, size_t index, size_t length, const void *sequence,
                          size_t sequence_length)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0)
        return code;
    if (sequence == NULL || sequence_length == 0)
        return -EINVAL;
    return sequence_length <= length ? 0 : WEIR_ENOTFOUND;
}

/* Short sequences are found fastest by their first byte; memmem keeps long ones linear. */
static const uint8_t *find_in_run(weir_run run, const uint8_t *sequence, size_t length)
{
    if (length > 2)
        return memmem(run.bytes, run.length, sequence, length);
    while (run.length >= length) {
        uint8_t *found = memchr(run.bytes, sequence[0], run.length - (length - 1));
        if (found == NULL || length == 1 || found[1] == sequence[1])
            return found;
        run.length -= (size_t)(found + 1 - run.bytes);
        run.bytes = found + 1;
    }
    return NULL;
}

__attribute__((noinline)) static int64_t find_across_runs(const weir_buf *buf, size_t index,
                                                          size_t end, const uint8_t *sequence,
                                                          size_t sequence_length)
{
    while (end - index >= sequence_length) {
        weir_run run = weir__buf_run(buf, index, end - index);
        const uint8_t *found = find_in_run(run, sequence, sequence_length);
        if (found != NULL)
            return (int64_t)(index + (size_t)(found - run.bytes));
        /* What begins near the end of this run may go on in the next. */
        size_t run_end = index + run.length;
        size_t at = run.length >= sequence_length ? run_end - (sequence_length - 1) : index;
        for (; at < run_end && end - at >= sequence_length; at++) {
            if (begins_with(buf, at, sequence, sequence_length))
                return (int64_t)at;
        }
        index = run_end;
    }
    return WEIR_ENOTFOUND;
}

int64_t weir_buf_find_bytes(const weir_buf *buf, size_t index, size_t length, const void *sequence,
                            size_t sequence_length)
{
    int code = check_sequence(buf, index, length, sequence, sequence_length);
    if (code < 0)
        return code;
    if (buf->flags & WEIR__BUF_COMPOSITE)
        return find_across_runs(buf, index, index + length, sequence, sequence_length);
    /* One run: looking for a line's end is what decoders do all day. */
    weir_run run = { buf->data + index, length };
    const uint8_t *found = find_in_run(run, sequence, sequence_length);
    return found != NULL ? found - buf->data : WEIR_ENOTFOUND;
}

int64_t weir_buf_find_last_bytes(const weir_buf *buf, size_t index, size_t length,
                                 const void *sequence, size_t sequence_length)
{
    int code = check_sequence(buf, index, length, sequence, sequence_length);
    if (code < 0)
        return code;
    /* From the back, wherever the first byte stands. */
    size_t starts = length - sequence_length + 1;
    while (starts > 0) {
        int64_t at = weir_buf_find_last(buf, index, starts, *(const uint8_t *)sequence);
        if (at < 0)
            break;
        if (begins_with(buf, (size_t)at, sequence, sequence_length))
            return at;
        starts = (size_t)at - index;
    }
    return WEIR_ENOTFOUND;
}

/* Comparing --------------------------------------------------------------------------------- */

int weir_buf_compare(const weir_buf *a, const weir_buf *b)
{
    size_t a_length = weir_buf_readable(a), b_length = weir_buf_readable(b);
    size_t left = a_length < b_length ? a_length : b_length;
    size_t a_index = weir_buf_reader(a), b_index = weir_buf_reader(b);
    while (left > 0) {
        weir_run a_run = weir__buf_run(a, a_index, left);
        weir_run b_run = weir__buf_run(b, b_index, a_run.length);
        int order = memcmp(a_run.bytes, b_run.bytes, b_run.length);
        if (order != 0)
            return order < 0 ? -1 : 1;
        a_index += b_run.length;
        b_index += b_run.length;
        left -= b_run.length;
    }
    return a_length < b_length ? -1 : a_length > b_length;
}

bool weir_buf_equal(const weir_buf *a, const weir_buf *b)
{
    return weir_buf_readable(a) == weir_buf_readable(b) && weir_buf_compare(a, b) == 0;
}

static const uint64_t fixed_key[2];

uint64_t weir_hash_bytes(const void *bytes, size_t length, const uint64_t key[2])
{
    weir_hash hash;
    weir__hash_init(&hash, key != NULL ? key : fixed_key);
    weir__hash_add(&hash, bytes, length);
    return weir__hash_end(&hash);
}

uint64_t weir_buf_hash(const weir_buf *buf, const uint64_t key[2])
{
    weir_hash hash;
    weir__hash_init(&hash, key != NULL ? key : fixed_key);
    size_t index = weir_buf_reader(buf), left = weir_buf_readable(buf);
    while (left > 0) {
        weir_run run = weir__buf_run(buf, index, left);
        weir__hash_add(&hash, run.bytes, run.length);
        index += run.length;
        left -= run.length;
    }
    return weir__hash_end(&hash);
}
