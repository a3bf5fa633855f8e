/* SPDX-License-Identifier: MIT */
/* Frames that say how long they are. */
#include <weir/length_field.h>

#include <errno.h>
#include <inttypes.h>

#define MOST_WIDTH 8

typedef struct length_field_decoder {
    weir_decoder decoder;
    size_t header;   /* the field and what is before it */
    uint64_t length; /* of the present frame; 0: not known yet */
    uint64_t left;   /* of it to skip, because it is too long */
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

/* Too long ------------------------------------------------------------------------------------- */

static void complain(weir_ctx *ctx, const length_field_decoder *self)
{
    const weir_length_field *config = weir_ctx_arg(ctx);
    weir_decoder_complain(ctx, WEIR_ELIMIT,
                          "a frame of %" PRIu64 " bytes is above the limit of %zu", self->length,
                          config->max_frame);
}

static weir_decoded skip(weir_ctx *ctx, length_field_decoder *self, weir_buf *in)
{
    const weir_length_field *config = weir_ctx_arg(ctx);
    size_t there = weir_buf_readable(in);
    size_t length = self->left < there ? (size_t)self->left : there;
    if (length == 0)
        return WEIR_DECODED_NOTHING;
    weir_buf_skip(in, length);
    self->left -= length;
    if (self->left == 0) {
        if (config->oversize == WEIR_OVERSIZE_SKIP_FIRST)
            complain(ctx, self);
        self->length = 0;
    }
    return WEIR_DECODED_SKIPPED;
}

static weir_decoded begin_to_skip(weir_ctx *ctx, length_field_decoder *self, weir_buf *in)
{
    const weir_length_field *config = weir_ctx_arg(ctx);
    if (config->oversize != WEIR_OVERSIZE_SKIP_FIRST)
        complain(ctx, self);
    if (config->oversize == WEIR_OVERSIZE_CLOSE)
        return WEIR_DECODED_REFUSED;
    self->left = self->length;
    return skip(ctx, self, in);
}

/* Decoding ------------------------------------------------------------------------------------- */

/* The bytes of the field, in a composite perhaps copied together. */
static const uint8_t *field_in(const weir_buf *in, size_t at, unsigned width, uint8_t *copy)
{
    const uint8_t *bytes = weir_buf_peek(in, at, width);
    if (bytes == NULL)
        weir_buf_get_bytes(in, at, copy, width);
    return bytes != NULL ? bytes : copy;
}

/* The length of the frame at the reader, whose field is there. */
static weir_decoded read_length(weir_ctx *ctx, length_field_decoder *self, const weir_buf *in)
{
    const weir_length_field *config = weir_ctx_arg(ctx);
    unsigned width = (unsigned)(self->header - config->offset);
    uint8_t copy[MOST_WIDTH];
    weir_decoder_looked(&self->decoder, width);
    uint64_t value = load(field_in(in, weir_buf_reader(in) + config->offset, width, copy), width,
                          config->is_little_endian);
    int64_t length;
    if (value > INT64_MAX || __builtin_add_overflow((int64_t)value, config->adjustment, &length) ||
        length < 0 || (uint64_t)length > INT64_MAX - self->header)
        return weir_decoder_refuse(
            ctx, -EBADMSG, "%" PRId64 " in a length field, which %+" PRId64 " makes no length",
            (int64_t)value, config->adjustment);
    self->length = (uint64_t)length + self->header;
    if (self->length < config->strip)
        return weir_decoder_refuse(ctx, -EBADMSG,
                                   "a frame of %" PRIu64 " bytes, of which %zu are to be stripped",
                                   self->length, config->strip);
    return WEIR_DECODED_NOTHING; /* yet */
}

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    length_field_decoder *self = weir_ctx_state(ctx);
    const weir_length_field *config = weir_ctx_arg(ctx);
    size_t there = weir_buf_readable(in);
    if (self->left > 0)
        return skip(ctx, self, in);
    if (self->length == 0) {
        if (there < self->header)
            return WEIR_DECODED_NOTHING;
        if (read_length(ctx, self, in) == WEIR_DECODED_REFUSED)
            return WEIR_DECODED_REFUSED;
    }
    if (self->length > config->max_frame)
        return begin_to_skip(ctx, self, in);
    if (self->length > there)
        return WEIR_DECODED_NOTHING;
    weir_buf *frame;
    size_t length = (size_t)self->length;
    if (weir_buf_retained_slice(in, weir_buf_reader(in) + config->strip, length - config->strip,
                                &frame) < 0)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory for a frame");
    weir_buf_skip(in, length);
    self->length = 0;
    *out = &frame->msg;
    return WEIR_DECODED_MESSAGE;
}

static bool makes_sense(const weir_length_field *config)
{
    unsigned width = config != NULL ? width_of(config->width) : 0;
    return is_width(width) && config->max_frame >= width && config->max_frame <= WEIR_BUF_MAX &&
           config->strip <= config->max_frame && config->offset <= config->max_frame - width;
}

static void begin(length_field_decoder *self, const weir_length_field *config)
{
    self->header = config->offset + width_of(config->width);
    weir_decoder_set_max_message(&self->decoder, config->max_frame);
}

static void decoder_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode };
    length_field_decoder *self = weir_ctx_state(ctx);
    const weir_length_field *config = weir_ctx_arg(ctx);
    weir_decoder_init(&self->decoder, &type);
    if (!makes_sense(config))
        weir_ctx_fail(ctx, -EINVAL,
                      "a length field needs a limit for its frames, a width of 1, 2, 3, 4 or 8 "
                      "bytes, and a place inside the frame");
    else
        begin(self, config);
}

const weir_handler_type weir_length_field_decoder = {
    .name = "length field",
    .state_size = sizeof(length_field_decoder),
    .added = decoder_added,
    WEIR_DECODER_CALLBACKS,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};

/* Encoding ------------------------------------------------------------------------------------- */

static void prepender_added(weir_ctx *ctx)
{
    const weir_length_prepender *config = weir_ctx_arg(ctx);
    if (config == NULL || !is_width(width_of(config->width)))
        weir_ctx_fail(ctx, -EINVAL, "a length has 1, 2, 3, 4 or 8 bytes");
}

/* The length in a buffer of its own: the message is not copied. */
static int make_length(const weir_length_prepender *config, size_t length, weir_buf **out)
{
    unsigned width = width_of(config->width);
    uint8_t bytes[MOST_WIDTH];
    int64_t value = (int64_t)length + (config->counts_itself ? width : 0);
    if (__builtin_add_overflow(value, config->adjustment, &value) || value < 0 ||
        (width < 8 && value >> (width * 8) != 0))
        return -EMSGSIZE;
    store(bytes, width, config->is_little_endian, (uint64_t)value);
    *out = weir_buf_from(bytes, width);
    return *out != NULL ? 0 : -ENOMEM;
}

static void prepender_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    const weir_buf *body = weir_buf_from_msg(msg);
    weir_buf *length;
    if (body == NULL) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    /* Once its length is on its way, the message cannot be taken back. */
    int code = promise == NULL || weir_promise_set_uncancellable(promise) ? 0 : -ECANCELED;
    if (code == 0)
        code = make_length(weir_ctx_arg(ctx), weir_buf_readable(body), &length);
    if (code < 0) {
        weir_ctx_refuse_write(ctx, msg, promise, code);
        return;
    }
    weir_ctx_write(ctx, &length->msg, NULL);
    weir_ctx_write(ctx, msg, promise);
}

const weir_handler_type weir_length_prepender_handler = {
    .name = "length prepender",
    .added = prepender_added,
    .write = prepender_write,
};
