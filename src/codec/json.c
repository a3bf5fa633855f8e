/* SPDX-License-Identifier: MIT */
/* Where JSON objects end. */
#include <weir/json.h>

#include "channel/arg.h"

#include <errno.h>

typedef struct json_decoder {
    weir_decoder decoder;
    size_t looked_at; /* of the present value */
    size_t depth;     /* brackets of it that are open */
    bool is_begun;    /* there is a present value */
    bool is_scalar;   /* a number or a word, which ends before something else */
    bool is_in_string;
    bool is_escaped;  /* the next character of the string */
    bool is_in_array; /* whose elements are passed on */
} json_decoder;

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Inside a value ------------------------------------------------------------------------------- */

static void look_at_string(json_decoder *self, uint8_t byte)
{
    if (self->is_escaped)
        self->is_escaped = false;
    else if (byte == '\\')
        self->is_escaped = true;
    else
        self->is_in_string = byte != '"';
}

/* One byte of an object, an array or a string: whether it is the last. */
static bool ends_with(json_decoder *self, uint8_t byte)
{
    if (self->is_in_string)
        look_at_string(self, byte);
    else if (byte == '"')
        self->is_in_string = true;
    else if (byte == '{' || byte == '[')
        self->depth++;
    else if (byte == '}' || byte == ']')
        self->depth--;
    return self->depth == 0 && !self->is_in_string;
}

/* How long the value is, 0 when its end is not there. */
static size_t find_end(json_decoder *self, const uint8_t *bytes, size_t there)
{
    size_t at = self->looked_at, length = 0;
    for (; at < there && length == 0; at++) {
        if (self->is_scalar)
            length = bytes[at] == ',' || bytes[at] == ']' || is_space(bytes[at]) ? at : 0;
        else
            length = ends_with(self, bytes[at]) ? at + 1 : 0;
    }
    weir_decoder_looked(&self->decoder, at - self->looked_at);
    self->looked_at = at;
    return length;
}

static weir_decoded decode_value(weir_ctx *ctx, json_decoder *self, weir_buf *in, weir_msg **out)
{
    weir_buf *value;
    size_t there = weir_buf_readable(in);
    size_t length = find_end(self, weir_buf_peek(in, weir_buf_reader(in), there), there);
    if (length == 0)
        return WEIR_DECODED_NOTHING;
    if (weir_buf_read_slice(in, length, &value) < 0)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory for a value");
    self->looked_at = 0;
    self->is_begun = false;
    *out = &value->msg;
    return WEIR_DECODED_MESSAGE;
}

/* Between values ------------------------------------------------------------------------------- */

/* What separates values: how much of it there is. */
static size_t separation(json_decoder *self, const uint8_t *bytes, size_t there)
{
    size_t length = 0;
    while (length < there &&
           (is_space(bytes[length]) || (self->is_in_array && bytes[length] == ',')))
        length++;
    weir_decoder_looked(&self->decoder, length);
    return length;
}

/* Whether it is the begin or the end of an array whose elements are passed on. */
static bool is_edge_of_array(const weir_ctx *ctx, const json_decoder *self, uint8_t byte)
{
    const weir_json *config = weir_ctx_arg(ctx);
    return self->is_in_array ? byte == ']' : byte == '[' && config->splits_arrays;
}

/* Up to the begin of the next value. */
static weir_decoded begin_value(weir_ctx *ctx, json_decoder *self, weir_buf *in)
{
    size_t there = weir_buf_readable(in);
    const uint8_t *bytes = weir_buf_peek(in, weir_buf_reader(in), there);
    size_t length = separation(self, bytes, there);
    if (length == 0 && there > 0 && is_edge_of_array(ctx, self, *bytes)) {
        self->is_in_array = !self->is_in_array;
        length = 1;
    }
    if (length > 0) {
        weir_buf_skip(in, length);
        return WEIR_DECODED_SKIPPED;
    }
    if (there == 0)
        return WEIR_DECODED_NOTHING;
    bool has_brackets = *bytes == '{' || *bytes == '[';
    if (!has_brackets && !self->is_in_array)
        return weir_decoder_refuse(ctx, -EBADMSG, "no JSON object or array: it begins with 0x%02x",
                                   *bytes);
    self->is_begun = true;
    self->is_scalar = !has_brackets && *bytes != '"';
    return WEIR_DECODED_NOTHING;
}

/* The handler ---------------------------------------------------------------------------------- */

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    json_decoder *self = weir_ctx_state(ctx);
    if (!self->is_begun) {
        weir_decoded decoded = begin_value(ctx, self, in);
        if (!self->is_begun)
            return decoded;
    }
    return decode_value(ctx, self, in, out);
}

static weir_decoded decode_last(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    const json_decoder *self = weir_ctx_state(ctx);
    weir_decoded decoded = decode(ctx, in, out);
    if (decoded == WEIR_DECODED_NOTHING && self->is_in_array && !self->is_begun)
        return weir_decoder_refuse(ctx, WEIR_EOF, "the stream ends inside an array");
    return decoded;
}

static bool is_inside(const weir_ctx *ctx)
{
    const json_decoder *self = weir_ctx_state(ctx);
    return self->is_in_array;
}

static void json_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = {
        .decode = decode,
        .decode_last = decode_last,
        .is_inside = is_inside,
    };
    const weir_json *config = weir_ctx_arg(ctx);
    weir_decoder *decoder = weir_ctx_state(ctx);
    weir_decoder_init(decoder, &type);
    if (weir__arg_check_given(ctx, "weir_json", config) &&
        weir__arg_check_size(ctx, "max_length", config->max_length, 1, WEIR_BUF_MAX))
        weir_decoder_set_max_message(decoder, config->max_length);
}

const weir_handler_type weir_json_decoder = {
    .name = "json",
    .state_size = sizeof(json_decoder),
    .arg_size = sizeof(weir_json),
    .added = json_added,
    WEIR_DECODER_CALLBACKS,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
