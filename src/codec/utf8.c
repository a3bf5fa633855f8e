/* SPDX-License-Identifier: MIT */
/* UTF-8. */
#include <weir/utf8.h>

#include "channel/extras.h"

#include <weir/channel.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/uio.h>

/* Looking -------------------------------------------------------------------------------------- */

#define HIGH_BITS 0x8080808080808080u

/* How many bytes there are before one that is not ASCII, looked at eight at a time. */
static size_t ascii_length(const uint8_t *bytes, size_t length)
{
    size_t at = 0;
    for (uint64_t eight; length - at >= sizeof eight; at += sizeof eight) {
        memcpy(&eight, bytes + at, sizeof eight);
        if (eight & HIGH_BITS)
            break;
    }
    while (at < length && bytes[at] < 0x80)
        at++;
    return at;
}

/* The first byte of a character says how many follow, and sometimes narrows the next one: what is
 * too small for so many bytes, a surrogate, or above U+10FFFF has no place. */
static bool begin_character(weir_utf8 *text, uint8_t byte)
{
    *text = (weir_utf8){ .least = 0x80, .most = 0xbf };
    if (byte >= 0xc2 && byte <= 0xdf) {
        text->left = 1;
    } else if (byte >= 0xe0 && byte <= 0xef) {
        text->left = 2;
        text->least = byte == 0xe0 ? 0xa0 : 0x80;
        text->most = byte == 0xed ? 0x9f : 0xbf;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
        text->left = 3;
        text->least = byte == 0xf0 ? 0x90 : 0x80;
        text->most = byte == 0xf4 ? 0x8f : 0xbf;
    }
    return text->left > 0;
}

static bool go_on_with_character(weir_utf8 *text, uint8_t byte)
{
    if (byte < text->least || byte > text->most)
        return false;
    text->left--;
    text->least = 0x80;
    text->most = 0xbf;
    return true;
}

int weir_utf8_check(weir_utf8 *text, const void *bytes, size_t length, size_t *at)
{
    const uint8_t *next = bytes;
    if (text == NULL || (bytes == NULL && length > 0))
        return -EINVAL;
    for (size_t i = 0; i < length; i++) {
        if (text->left == 0) {
            i += ascii_length(next + i, length - i);
            if (i == length)
                break;
        }
        if (text->left == 0 ? begin_character(text, next[i]) : go_on_with_character(text, next[i]))
            continue;
        if (at != NULL)
            *at = i;
        return -EILSEQ;
    }
    return 0;
}

/* The handler ---------------------------------------------------------------------------------- */

enum { MOST_PIECES = 16 };

typedef struct utf8_handler {
    weir_utf8 text;
    uint64_t position; /* of what is read next, in the stream */
    bool is_refused;
} utf8_handler;

static bool is_stream(const weir_ctx *ctx)
{
    const weir_utf8_texts *config = weir_ctx_arg(ctx);
    return config != NULL && config->is_stream;
}

static void refuse(weir_ctx *ctx, utf8_handler *self, const char *what)
{
    self->is_refused = true;
    weir_ctx_fail(ctx, -EILSEQ, "%s (at byte %" PRIu64 " of the stream)", what, self->position);
    weir__ctx_close_unless_finishing(ctx);
}

/* All pieces of a buffer: 0, or -EILSEQ with the position at the byte that does not fit. */
static int check_buf(utf8_handler *self, const weir_buf *buf)
{
    struct iovec pieces[MOST_PIECES];
    size_t index = weir_buf_reader(buf), left = weir_buf_readable(buf), covered;
    for (; left > 0; index += covered, left -= covered) {
        int count = weir_buf_iovec(buf, index, left, pieces, MOST_PIECES, &covered);
        for (int i = 0; i < count; i++) {
            size_t at = pieces[i].iov_len;
            int code = weir_utf8_check(&self->text, pieces[i].iov_base, pieces[i].iov_len, &at);
            self->position += at;
            if (code < 0)
                return code;
        }
    }
    return 0;
}

static void utf8_on_read(weir_ctx *ctx, weir_msg *msg)
{
    utf8_handler *self = weir_ctx_state(ctx);
    const weir_buf *buf = weir_buf_from_msg(msg);
    const char *wrong = NULL;
    if (buf == NULL) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    if (!self->is_refused && check_buf(self, buf) < 0)
        wrong = "a byte that UTF-8 does not have here";
    else if (!self->is_refused && !is_stream(ctx) && !weir_utf8_is_whole(&self->text))
        wrong = "a text ends inside a character";
    if (wrong == NULL && !self->is_refused) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    weir_msg_release(msg);
    if (wrong != NULL)
        refuse(ctx, self, wrong);
}

static void end_stream(weir_ctx *ctx)
{
    utf8_handler *self = weir_ctx_state(ctx);
    if (!self->is_refused && !weir_utf8_is_whole(&self->text))
        refuse(ctx, self, "the stream ends inside a character");
    self->is_refused = true;
}

/* The begin of a character. */
static size_t utf8_held(const weir_ctx *ctx)
{
    const utf8_handler *self = weir_ctx_state(ctx);
    return !self->is_refused && !weir_utf8_is_whole(&self->text);
}

static void utf8_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        end_stream(ctx);
    weir_ctx_fire_event(ctx, event);
}

static void utf8_on_inactive(weir_ctx *ctx)
{
    end_stream(ctx);
    weir_ctx_fire_inactive(ctx);
}

const weir_handler_type weir_utf8_handler = {
    .name = "utf8",
    .state_size = sizeof(utf8_handler),
    .held_reads = utf8_held,
    .arg_size = sizeof(weir_utf8_texts),
    .on_read = utf8_on_read,
    .on_event = utf8_on_event,
    .on_inactive = utf8_on_inactive,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
