/* SPDX-License-Identifier: MIT */
/* Base64. */
#include <weir/base64.h>

#include "channel/extras.h"

#include <weir/encoder.h>

#include <errno.h>

#define ORDINARY "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
#define URL_SAFE "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

static const weir_base64 ordinary;

static const weir_base64 *config_or_default(const weir_base64 *config)
{
    return config != NULL ? config : &ordinary;
}

/* Encoding ------------------------------------------------------------------------------------- */

/* Up to three bytes as four characters, of which the last may be padding: how many there are. */
static size_t encode_group(const weir_base64 *config, const uint8_t *bytes, size_t length, char *to)
{
    size_t count = config->has_no_padding ? length + 1 : 4;
    const char *alphabet = config->is_url_safe ? URL_SAFE : ORDINARY;
    uint32_t bits = (uint32_t)bytes[0] << 16 | (length > 1 ? (uint32_t)bytes[1] << 8 : 0) |
                    (length > 2 ? bytes[2] : 0);
    for (size_t i = 0; i < count; i++)
        to[i] = i <= length ? alphabet[bits >> (18 - 6 * i) & 63] : '=';
    return count;
}

static size_t encoded_length(const weir_base64 *config, size_t length)
{
    size_t rest = length % 3;
    return length / 3 * 4 + (rest == 0 ? 0 : config->has_no_padding ? rest + 1 : 4);
}

int weir_base64_encode(const weir_base64 *config, const void *bytes, size_t length, weir_buf *out)
{
    const uint8_t *from = bytes;
    config = config_or_default(config);
    if (out == NULL || (bytes == NULL && length > 0))
        return -EINVAL;
    if (length > (size_t)WEIR_BUF_MAX / 4 * 3)
        return WEIR_ELIMIT;
    size_t room = encoded_length(config, length);
    int code = weir_buf_ensure_writable(out, room);
    char *to = code < 0 ? NULL : (char *)weir_buf_write_ptr(out, room);
    if (to == NULL)
        return code < 0 ? code : -ENOMEM;
    for (size_t at = 0; at < length; at += 3)
        to += encode_group(config, from + at, length - at < 3 ? length - at : 3, to);
    return weir_buf_advance_writer(out, room);
}

/* Decoding ------------------------------------------------------------------------------------- */

/* The six bits of a character, -1 when it is not of the alphabet. */
static int value_of(const weir_base64 *config, uint8_t character)
{
    if (character >= 'A' && character <= 'Z')
        return character - 'A';
    if (character >= 'a' && character <= 'z')
        return character - 'a' + 26;
    if (character >= '0' && character <= '9')
        return character - '0' + 52;
    if (character == (config->is_url_safe ? '-' : '+'))
        return 62;
    return character == (config->is_url_safe ? '_' : '/') ? 63 : -1;
}

/* How long the text is without its padding; SIZE_MAX, and where, when that is not as it must be. */
static size_t unpadded_length(const weir_base64 *config, const uint8_t *text, size_t length,
                              size_t *wrong_at)
{
    size_t padding = 0;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
        padding++;
    size_t rest = (length - padding) % 4;
    bool is_padded = length % 4 == 0;
    bool may_be_missing = config->has_no_padding && padding == 0;
    if (rest != 1 && (is_padded ? padding == (4 - rest) % 4 : may_be_missing))
        return length - padding;
    *wrong_at = length;
    return SIZE_MAX;
}

/* Up to four characters: how many bytes they stand for, 0 and where when they stand for none. */
static size_t decode_group(const weir_base64 *config, const uint8_t *text, size_t length,
                           uint8_t *to, size_t *wrong_at)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; i++) {
        int value = i < length ? value_of(config, text[i]) : 0;
        if (value < 0) {
            *wrong_at = i;
            return 0;
        }
        bits = bits << 6 | (uint32_t)value;
    }
    if (length < 4 && (bits & (length == 2 ? 0xffff : 0xff)) != 0) {
        *wrong_at = length - 1;
        return 0;
    }
    for (size_t i = 0; i < length - 1; i++)
        to[i] = (uint8_t)(bits >> (16 - 8 * i));
    return length - 1;
}

/* Of a text without its padding. */
static size_t decoded_length(size_t length)
{
    return length / 4 * 3 + (length % 4 > 0 ? length % 4 - 1 : 0);
}

int weir_base64_decode(const weir_base64 *config, const void *text, size_t length, weir_buf *out,
                       size_t *at)
{
    const uint8_t *from = text;
    size_t wrong_at = 0, written = 0;
    config = config_or_default(config);
    if (out == NULL || (text == NULL && length > 0))
        return -EINVAL;
    size_t left = unpadded_length(config, from, length, &wrong_at), next = 0;
    size_t room = decoded_length(left);
    int code = left == SIZE_MAX ? -EBADMSG : weir_buf_ensure_writable(out, room);
    uint8_t *to = code < 0 ? NULL : weir_buf_write_ptr(out, room);
    if (code == 0 && to == NULL)
        code = -ENOMEM;
    for (; code == 0 && next < left; next += 4) {
        size_t count = decode_group(config, from + next, left - next < 4 ? left - next : 4,
                                    to + written, &wrong_at);
        code = count > 0 ? 0 : -EBADMSG;
        written += count;
        wrong_at += count > 0 ? 0 : next;
    }
    if (code < 0) {
        if (at != NULL)
            *at = wrong_at;
        return code;
    }
    return weir_buf_advance_writer(out, written);
}

/* The handlers --------------------------------------------------------------------------------- */

/* The bytes of a buffer as one run: its own, or those of a copy that is the caller's to release. */
static int as_one_run(const weir_buf *buf, const uint8_t **bytes, weir_buf **copy)
{
    size_t length = weir_buf_readable(buf);
    *copy = NULL;
    *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
    if (*bytes != NULL || length == 0)
        return 0;
    int code = weir_buf_copy(buf, weir_buf_reader(buf), length, copy);
    if (code == 0)
        *bytes = weir_buf_peek(*copy, 0, length);
    return code;
}

static int encode(weir_ctx *ctx, const weir_msg *msg, weir_buf *out)
{
    const weir_buf *buf = (const weir_buf *)msg;
    weir_buf *copy;
    const uint8_t *bytes;
    int code = as_one_run(buf, &bytes, &copy);
    if (code == 0)
        code = weir_base64_encode(weir_ctx_arg(ctx), bytes, weir_buf_readable(buf), out);
    if (copy != NULL)
        weir_buf_release(copy);
    return code;
}

static void encoder_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_encode(ctx, msg, promise, &weir_buf_type, 0, encode);
}

/* What follows a text that is none is not passed on. */
typedef struct base64_decoder {
    bool is_over;
} base64_decoder;

static void refuse(weir_ctx *ctx, int code, size_t at)
{
    base64_decoder *self = weir_ctx_state(ctx);
    self->is_over = true;
    if (code == -EBADMSG)
        weir_ctx_fail(ctx, code, "a text that is not Base64, at its byte %zu", at);
    else
        weir_ctx_fail(ctx, code, "no memory for what a text stands for");
    weir__ctx_close_unless_finishing(ctx);
}

static void decoder_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const weir_buf *buf = weir_buf_from_msg(msg);
    const base64_decoder *self = weir_ctx_state(ctx);
    if (buf == NULL) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    if (self->is_over) {
        weir_msg_release(msg);
        return;
    }
    weir_buf *copy = NULL, *out = weir_buf_new(decoded_length(weir_buf_readable(buf)));
    const uint8_t *text;
    size_t at = 0;
    int code = out != NULL ? as_one_run(buf, &text, &copy) : -ENOMEM;
    if (code == 0)
        code = weir_base64_decode(weir_ctx_arg(ctx), text, weir_buf_readable(buf), out, &at);
    if (copy != NULL)
        weir_buf_release(copy);
    weir_msg_release(msg);
    if (code == 0) {
        weir_ctx_fire_read(ctx, &out->msg);
        return;
    }
    if (out != NULL)
        weir_buf_release(out);
    refuse(ctx, code, at);
}

const weir_handler_type weir_base64_encoder = {
    .name = "base64 encoder",
    .arg_size = sizeof(weir_base64),
    .write = encoder_write,
};

const weir_handler_type weir_base64_decoder = {
    .name = "base64 decoder",
    .state_size = sizeof(base64_decoder),
    .arg_size = sizeof(weir_base64),
    .on_read = decoder_on_read,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
