/* SPDX-License-Identifier: MIT */
/* Frames that end with certain bytes. */
#include <weir/delimiter.h>

#include "base/alloc.h"
#include "buf/buf.h"
#include "channel/arg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LENGTH (WEIR_BUF_MAX / 2)
#define MAX_ENDS 4096

static const weir_delimiter line_ends[] = { WEIR_DELIMITER("\r\n"), WEIR_DELIMITER("\n") };

typedef struct delimiter_decoder {
    weir_decoder decoder;
    const weir_delimiter *ends; /* by length, the longest first */
    size_t end_count;
    size_t longest;    /* end */
    size_t looked_at;  /* of what is there, from the reader on */
    bool is_skipping;  /* a frame that is too long */
    bool has_one_last; /* all ends have the same last byte: */
    char last;
} delimiter_decoder;

/* The ends ------------------------------------------------------------------------------------- */

static bool is_last_byte(const delimiter_decoder *self, uint8_t byte)
{
    for (size_t i = 0; i < self->end_count; i++) {
        if ((uint8_t)self->ends[i].bytes[self->ends[i].length - 1] == byte)
            return true;
    }
    return false;
}

__attribute__((noinline)) static size_t find_any_last_byte(const delimiter_decoder *self,
                                                           const uint8_t *bytes, size_t from,
                                                           size_t length)
{
    while (from < length && !is_last_byte(self, bytes[from]))
        from++;
    return from;
}

/* The first of the bytes at [from, length) that an end may end with; `length` when there is none.
 */
static inline size_t find_last_byte(const delimiter_decoder *self, const uint8_t *bytes,
                                    size_t from, size_t length)
{
    if (!self->has_one_last)
        return find_any_last_byte(self, bytes, from, length);
    const uint8_t *found = memchr(bytes + from, self->last, length - from);
    return found != NULL ? (size_t)(found - bytes) : length;
}

/* Mostly over after the first byte, for the last one was looked for. */
static inline bool ends_with(const uint8_t *bytes, size_t length, const weir_delimiter *end)
{
    if (end->length > length)
        return false;
    bytes += length - end->length;
    return bytes[0] == (uint8_t)end->bytes[0] &&
           (end->length == 1 || memcmp(bytes + 1, end->bytes + 1, end->length - 1) == 0);
}

/* How long the longest end is that so many bytes end with; 0: they do not end with one. */
static inline size_t end_of(const delimiter_decoder *self, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < self->end_count; i++) {
        if (ends_with(bytes, length, &self->ends[i]))
            return self->ends[i].length;
    }
    return 0;
}

/* Looks on from where it stopped: how long the frame is with its end, 0 when that is not there. */
static inline size_t find_frame(delimiter_decoder *self, const weir_buf *in, size_t *end)
{
    size_t at = self->looked_at, there = in->writer - in->reader;
    *end = 0;
    while (*end == 0 && (at = find_last_byte(self, weir__buf_bytes(in), at, there)) < there)
        *end = end_of(self, weir__buf_bytes(in), ++at);
    weir_decoder_looked(&self->decoder, at - self->looked_at);
    self->looked_at = *end > 0 ? 0 : there;
    return *end > 0 ? at : 0;
}

/* Decoding ------------------------------------------------------------------------------------- */

static void complain(weir_ctx *ctx)
{
    const weir_delimited *config = weir_ctx_arg(ctx);
    weir_decoder_complain(ctx, WEIR_ELIMIT, "a %s is longer than %zu bytes",
                          weir_ctx_type(ctx) == &weir_line_decoder ? "line" : "frame",
                          config->max_length);
}

/* The rest of a frame that is too long. */
static void end_skip(weir_ctx *ctx, delimiter_decoder *self, weir_buf *in, size_t length)
{
    const weir_delimited *config = weir_ctx_arg(ctx);
    self->is_skipping = false;
    weir_buf_skip(in, length);
    if (config->oversize == WEIR_OVERSIZE_SKIP_FIRST)
        complain(ctx);
}

/* A frame that is too long: up to its end, whose length with it is `length`; 0: that is not there,
 * and perhaps begins with the last bytes. */
static weir_decoded skip(weir_ctx *ctx, delimiter_decoder *self, weir_buf *in, size_t length)
{
    if (length > 0) {
        end_skip(ctx, self, in, length);
        return WEIR_DECODED_SKIPPED;
    }
    self->is_skipping = true;
    size_t left = weir_buf_readable(in), kept = self->longest - 1;
    if (left <= kept)
        return WEIR_DECODED_NOTHING;
    weir_buf_skip(in, left - kept);
    self->looked_at = kept;
    return WEIR_DECODED_SKIPPED;
}

static weir_decoded too_long(weir_ctx *ctx, delimiter_decoder *self, weir_buf *in, size_t length)
{
    const weir_delimited *config = weir_ctx_arg(ctx);
    if (config->oversize != WEIR_OVERSIZE_SKIP_FIRST)
        complain(ctx);
    if (config->oversize == WEIR_OVERSIZE_CLOSE)
        return WEIR_DECODED_REFUSED;
    return skip(ctx, self, in, length);
}

/* A frame of so many bytes, `end` of which are its end. */
static weir_decoded give(weir_ctx *ctx, weir_buf *in, size_t length, size_t end, weir_msg **out)
{
    const weir_delimited *config = weir_ctx_arg(ctx);
    weir_buf *frame = weir__buf_view(in, in->reader, config->keeps_end ? length : length - end);
    if (frame == NULL)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory for a frame");
    in->reader += (uint32_t)length;
    *out = &frame->msg;
    return WEIR_DECODED_MESSAGE;
}

/* No frame was found, or one that is too long, or the end of one that is skipped. */
__attribute__((noinline)) static weir_decoded go_on(weir_ctx *ctx, delimiter_decoder *self,
                                                    weir_buf *in, size_t length)
{
    const weir_delimited *config = weir_ctx_arg(ctx);
    if (self->is_skipping)
        return skip(ctx, self, in, length);
    /* Without its end, as much of it may belong to one as makes no whole one. */
    if (length > 0 || weir_buf_readable(in) >= config->max_length + self->longest)
        return too_long(ctx, self, in, length);
    return WEIR_DECODED_NOTHING;
}

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    delimiter_decoder *self = weir_ctx_state(ctx);
    size_t end;
    size_t length = find_frame(self, in, &end);
    const weir_delimited *config = weir_ctx_arg(ctx);
    if (length == 0 || self->is_skipping || length - end > config->max_length)
        return go_on(ctx, self, in, length);
    return give(ctx, in, length, end, out);
}

/* The stream ends inside a frame that is too long, perhaps with all of it skipped. */
static weir_decoded skip_last(weir_ctx *ctx, delimiter_decoder *self, weir_buf *in)
{
    size_t left = weir_buf_readable(in);
    end_skip(ctx, self, in, left);
    return left > 0 ? WEIR_DECODED_SKIPPED : WEIR_DECODED_NOTHING;
}

static weir_decoded decode_last(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    delimiter_decoder *self = weir_ctx_state(ctx);
    const weir_delimited *config = weir_ctx_arg(ctx);
    weir_decoded decoded = decode(ctx, in, out);
    size_t length = weir_buf_readable(in);
    if (decoded != WEIR_DECODED_NOTHING)
        return decoded;
    self->looked_at = 0; /* what is left is taken now, or never */
    if (self->is_skipping)
        return skip_last(ctx, self, in);
    if (length == 0 || !config->ends_with_stream)
        return decoded;
    return length > config->max_length ? too_long(ctx, self, in, length)
                                       : give(ctx, in, length, 0, out);
}

/* The handlers --------------------------------------------------------------------------------- */

static bool is_inside(const weir_ctx *ctx)
{
    const delimiter_decoder *self = weir_ctx_state(ctx);
    return self->is_skipping;
}

static const weir_decoder_type type = {
    .decode = decode,
    .decode_last = decode_last,
    .is_inside = is_inside,
};

static bool check_ends(weir_ctx *ctx, const delimiter_decoder *self)
{
    bool is_good = weir__arg_check_given(ctx, "ends", self->ends) &&
                   weir__arg_check_size(ctx, "end_count", self->end_count, 1, MAX_ENDS);
    for (size_t i = 0; is_good && i < self->end_count; i++)
        is_good = weir__arg_check_given(ctx, "bytes of an end", self->ends[i].bytes) &&
                  weir__arg_check_size(ctx, "length of an end", self->ends[i].length, 1,
                                       MAX_LENGTH);
    return is_good;
}

static bool check_config(weir_ctx *ctx, const weir_delimited *config)
{
    return weir__arg_check_given(ctx, "weir_delimited", config) &&
           weir__arg_check_size(ctx, "max_length", config->max_length, 1, MAX_LENGTH) &&
           weir__arg_check(ctx, "oversize", config->oversize, 0, WEIR_OVERSIZE_SKIP_FIRST) &&
           check_ends(ctx, weir_ctx_state(ctx));
}

static void look_at_ends(delimiter_decoder *self)
{
    self->longest = self->ends->length;
    self->last = self->ends->bytes[self->longest - 1];
    self->has_one_last = true;
    for (size_t i = 0; i < self->end_count; i++) {
        const weir_delimiter *end = &self->ends[i];
        self->has_one_last = self->has_one_last && end->bytes[end->length - 1] == self->last;
    }
}

static void begin(weir_ctx *ctx, const weir_delimiter *ends, size_t end_count)
{
    delimiter_decoder *self = weir_ctx_state(ctx);
    const weir_delimited *config = weir_ctx_arg(ctx);
    self->ends = ends;
    self->end_count = end_count;
    weir_decoder_init(&self->decoder, &type);
    if (!check_config(ctx, config))
        return;
    look_at_ends(self);
    weir_decoder_set_max_message(&self->decoder, config->max_length + self->longest);
}

static void delimiter_added(weir_ctx *ctx)
{
    const weir_delimited *config = weir_ctx_arg(ctx);
    begin(ctx, config != NULL ? config->ends : NULL, config != NULL ? config->end_count : 0);
}

static void line_added(weir_ctx *ctx)
{
    begin(ctx, line_ends, sizeof line_ends / sizeof *line_ends);
}

static int by_length(const void *a, const void *b)
{
    const weir_delimiter *one = a, *other = b;
    return (one->length < other->length) - (one->length > other->length);
}

/* The list and the bytes of its ends become one block. A list that cannot be is left to `added`. */
static int retain_ends(void *arg)
{
    weir_delimited *config = arg;
    size_t count = config->end_count, size = count * sizeof *config->ends;
    if (config->ends == NULL || count == 0 || count > MAX_ENDS)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (config->ends[i].length > MAX_LENGTH)
            return -EINVAL;
        size += config->ends[i].bytes != NULL ? config->ends[i].length : 0;
    }
    weir_delimiter *ends = weir__alloc(size);
    if (ends == NULL)
        return -ENOMEM;
    char *bytes = (char *)(ends + count);
    for (size_t i = 0; i < count; i++) {
        ends[i] = config->ends[i];
        if (ends[i].bytes == NULL)
            continue;
        memcpy(bytes, ends[i].bytes, ends[i].length);
        ends[i].bytes = bytes;
        bytes += ends[i].length;
    }
    qsort(ends, count, sizeof *ends, by_length);
    config->ends = ends;
    return 0;
}

static void release_ends(void *arg)
{
    const weir_delimited *config = arg;
    if (config->end_count > 0 && config->end_count <= MAX_ENDS)
        weir__free((void *)config->ends);
}

const weir_handler_type weir_delimiter_decoder = {
    .name = "delimiter",
    .state_size = sizeof(delimiter_decoder),
    .arg_size = sizeof(weir_delimited),
    .arg_retain = retain_ends,
    .arg_release = release_ends,
    .added = delimiter_added,
    WEIR_DECODER_CALLBACKS,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};

const weir_handler_type weir_line_decoder = {
    .name = "line",
    .state_size = sizeof(delimiter_decoder),
    .arg_size = sizeof(weir_delimited),
    .added = line_added,
    WEIR_DECODER_CALLBACKS,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
