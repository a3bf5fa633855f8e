/* SPDX-License-Identifier: MIT */
/* Frames that say how long they are. */
#include <weir/length_field.h>

#include "buf/buf.h"
#include "channel/arg.h"
#include "codec/frame.h"
#include "codec/prepend.h"

#include <errno.h>
#include <inttypes.h>

typedef struct length_field_decoder {
    weir_decoder decoder;
    size_t offset;
    unsigned width;
    bool is_little_endian;
    size_t header;  /* the field and what is before it */
    int64_t beyond; /* what is added to the value to get the length of the frame */
    weir_frame_rules rules;
    weir_frame frame;
} length_field_decoder;

static unsigned width_of(unsigned width)
{
    return width > 0 ? width : 4;
}

static bool is_width(unsigned width)
{
    return (width >= 1 && width <= 4) || width == 8;
}

static uint64_t load(const uint8_t *bytes, unsigned width, bool is_little_endian)
{
    switch (width) {
    case 1:
        return bytes[0];
    case 2:
        return is_little_endian ? weir__load_le16(bytes) : weir__load_be16(bytes);
    case 3:
        return is_little_endian ? weir__load_le24(bytes) : weir__load_be24(bytes);
    case 4:
        return is_little_endian ? weir__load_le32(bytes) : weir__load_be32(bytes);
    default:
        return is_little_endian ? weir__load_le64(bytes) : weir__load_be64(bytes);
    }
}

static void store(uint8_t *bytes, unsigned width, bool is_little_endian, uint64_t value)
{
    for (unsigned i = 0; i < width; i++, value >>= 8)
        bytes[is_little_endian ? i : width - 1 - i] = (uint8_t)value;
}

/* Decoding ------------------------------------------------------------------------------------- */

/* The length of the frame that a value stands for; -1 when it overflows, or is shorter than the
 * header. */
static inline int64_t to_length(const length_field_decoder *self, uint64_t value)
{
    int64_t length;
    if (value > INT64_MAX || __builtin_add_overflow((int64_t)value, self->beyond, &length) ||
        length < (int64_t)self->header)
        return -1;
    return length;
}

WEIR__BESIDE static weir_decoded refuse_length(weir_ctx *ctx, const length_field_decoder *self,
                                               uint64_t value)
{
    const weir_length_field *config = weir_ctx_arg(ctx);
    int64_t length = to_length(self, value);
    if (length < 0)
        return weir_decoder_refuse(
            ctx, -EBADMSG, "%" PRId64 " in a length field, which %+" PRId64 " makes no length",
            (int64_t)value, config->adjustment);
    return weir_decoder_refuse(ctx, -EBADMSG,
                               "a frame of %" PRId64 " bytes, of which %zu are to be stripped",
                               length, self->rules.strip);
}

/* A frame that began with an earlier read. */
__attribute__((noinline)) static weir_decoded go_on(weir_ctx *ctx, length_field_decoder *self,
                                                    weir_buf *in, weir_msg **out)
{
    return weir__frame_is_skipping(&self->frame)
               ? weir__frame_skip(ctx, &self->frame, &self->rules, in)
               : weir__frame_take(ctx, &self->frame, &self->rules, self->frame.length, in, out);
}

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    length_field_decoder *self = weir_ctx_state(ctx);
    if (self->frame.length > 0)
        return go_on(ctx, self, in, out);
    if (in->writer - in->reader < self->header)
        return WEIR_DECODED_NOTHING;
    weir_decoder_looked(&self->decoder, self->width);
    uint64_t value = load(weir__buf_bytes(in) + self->offset, self->width, self->is_little_endian);
    int64_t length = to_length(self, value);
    if (length < 0 || (size_t)length < self->rules.strip)
        return refuse_length(ctx, self, value);
    return weir__frame_take(ctx, &self->frame, &self->rules, (uint64_t)length, in, out);
}

static weir_decoded decode_last(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    length_field_decoder *self = weir_ctx_state(ctx);
    return weir__frame_is_skipping(&self->frame)
               ? weir__frame_skip_last(ctx, &self->frame, &self->rules, in)
               : decode(ctx, in, out);
}

static bool check_width(weir_ctx *ctx, unsigned width)
{
    if (!is_width(width))
        weir_ctx_fail(ctx, -EINVAL, "width is %u, but can be 1, 2, 3, 4 or 8", width);
    return is_width(width);
}

static bool makes_sense(weir_ctx *ctx, const weir_length_field *config)
{
    unsigned width = config != NULL ? width_of(config->width) : 0;
    return weir__arg_check_given(ctx, "weir_length_field", config) && check_width(ctx, width) &&
           weir__arg_check_size(ctx, "max_frame", config->max_frame, width, WEIR_BUF_MAX) &&
           weir__arg_check_size(ctx, "strip", config->strip, 0, config->max_frame) &&
           weir__arg_check_size(ctx, "offset", config->offset, 0, config->max_frame - width) &&
           weir__arg_check(ctx, "adjustment", config->adjustment, INT64_MIN, WEIR_BUF_MAX) &&
           weir__arg_check(ctx, "oversize", config->oversize, 0, WEIR_OVERSIZE_SKIP_FIRST);
}

static void begin(length_field_decoder *self, const weir_length_field *config)
{
    self->offset = config->offset;
    self->width = width_of(config->width);
    self->is_little_endian = config->is_little_endian;
    self->header = self->offset + self->width;
    self->beyond = config->adjustment + (int64_t)self->header;
    self->rules = (weir_frame_rules){ config->max_frame, config->strip, config->oversize };
    weir_decoder_set_max_message(&self->decoder, config->max_frame);
}

static bool is_inside(const weir_ctx *ctx)
{
    const length_field_decoder *self = weir_ctx_state(ctx);
    return weir__frame_is_skipping(&self->frame);
}

static void decoder_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = {
        .decode = decode,
        .decode_last = decode_last,
        .is_inside = is_inside,
    };
    length_field_decoder *self = weir_ctx_state(ctx);
    const weir_length_field *config = weir_ctx_arg(ctx);
    weir_decoder_init(&self->decoder, &type);
    if (makes_sense(ctx, config))
        begin(self, config);
}

const weir_handler_type weir_length_field_decoder = {
    .name = "length field",
    .state_size = sizeof(length_field_decoder),
    .arg_size = sizeof(weir_length_field),
    .added = decoder_added,
    WEIR_DECODER_CALLBACKS,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};

/* Encoding ------------------------------------------------------------------------------------- */

static void prepender_added(weir_ctx *ctx)
{
    const weir_length_prepender *config = weir_ctx_arg(ctx);
    if (weir__arg_check_given(ctx, "weir_length_prepender", config))
        check_width(ctx, width_of(config->width));
}

static int encode_length(weir_ctx *ctx, size_t length, uint8_t *to)
{
    const weir_length_prepender *config = weir_ctx_arg(ctx);
    unsigned width = width_of(config->width);
    int64_t value = (int64_t)length + (config->counts_itself ? width : 0);
    if (__builtin_add_overflow(value, config->adjustment, &value) || value < 0 ||
        (width < 8 && value >> (width * 8) != 0))
        return -EMSGSIZE;
    store(to, width, config->is_little_endian, (uint64_t)value);
    return (int)width;
}

static void prepender_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir__prepend(ctx, msg, promise, encode_length);
}

const weir_handler_type weir_length_prepender_handler = {
    .name = "length prepender",
    .arg_size = sizeof(weir_length_prepender),
    .added = prepender_added,
    .write = prepender_write,
};
