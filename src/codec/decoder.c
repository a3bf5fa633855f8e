/* SPDX-License-Identifier: MIT */
/* The base of decoders: what is kept, what is decoded, and in which order it all happens. */
#include <weir/decoder.h>

#include "buf/pool.h"
#include "channel/event.h"
#include "channel/extras.h"
#include "codec/cumulation.h"

#include <weir/channel.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

/* Messages in a row for which no byte was read: a decoder may have several in what it has read. */
#define MOST_UNREAD 16
#define LEAST_LENT 64
#define LEAST_WAITING ((size_t)64 << 10)

/*
 * One pass over what a read has brought:
 *
 *      kept                          fresh
 *      [ begin of a message | lent ] [ lent | the rest ]
 *
 * Without anything kept, `fresh` is decoded as it is, and messages are parts of it. With something
 * kept, as much of `fresh` as the message seems to need is lent to it, twice as much each time. As
 * soon as what had been kept is used up, what is left of the loan is read from `fresh` itself.
 */
typedef struct weir_decoder_pass {
    weir_ctx *ctx;
    weir_decoder *decoder;
    weir_decode_fn decode;
    weir_buf *fresh; /* NULL: all of it is in what is kept */
    size_t lent;
    unsigned unread; /* messages for which no byte was read, in a row */
    bool is_last;    /* no more will come */

    /* The present call of `decode`: */
    const weir_buf *in; /* NULL: none */
    size_t reader;      /* of that, when it was called */
    weir_error *error;  /* what it says is wrong; its code is 0 when that is nothing */
    uint64_t error_at;
} pass;

void weir_decoder_init(weir_decoder *decoder, const weir_decoder_type *type)
{
    *decoder = (weir_decoder){ .type = type };
    weir_decoder_set_max_message(decoder, 0);
}

void weir_decoder_set_max_message(weir_decoder *decoder, size_t bytes)
{
    if (bytes == 0)
        bytes = decoder->type->max_message;
    decoder->max_message = bytes > 0 ? bytes : WEIR_DECODER_MAX_MESSAGE;
}

void weir_decoder_set_single(weir_decoder *decoder, bool is_single)
{
    decoder->is_single = is_single;
}

/* Keeping -------------------------------------------------------------------------------------- */

/* At least as much as makes one message. */
static size_t max_waiting(const weir_decoder *decoder)
{
    size_t most = decoder->type->max_waiting > 0 ? decoder->type->max_waiting : LEAST_WAITING;
    return most > decoder->max_message ? most : decoder->max_message;
}

static int make_own(const weir_decoder *decoder, weir_buf *rest, weir_buf **to)
{
    return weir__cumulation_begin(decoder->type->cumulation, rest, to);
}

static int append(weir_decoder *decoder, weir_buf **to, const weir_buf *from, size_t index,
                  size_t length)
{
    weir_decoder_looked(decoder, length);
    return weir__cumulation_append(decoder->type->cumulation, to, from, index, length);
}

/* Errors --------------------------------------------------------------------------------------- */

WEIR_PRINTF(3, 0)
static void set_error(weir_ctx *ctx, int code, const char *format, va_list args)
{
    const weir_decoder *decoder = weir_ctx_state(ctx);
    pass *self = decoder->pass;
    weir__error_set_args(self->error, code, "", format, args);
    self->error_at = decoder->position;
    if (self->in != NULL)
        self->error_at += weir_buf_reader(self->in) - self->reader;
}

weir_decoded weir_decoder_refuse(weir_ctx *ctx, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_error(ctx, code, format, args);
    va_end(args);
    return WEIR_DECODED_REFUSED;
}

void weir_decoder_complain(weir_ctx *ctx, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_error(ctx, code, format, args);
    va_end(args);
}

/* Tells what is wrong. The handler may have been removed when this returns. */
static void tell_error(weir_ctx *ctx, const weir_decoder *decoder)
{
    weir_error error = *decoder->pass->error;
    decoder->pass->error->code = 0;
    weir_ctx_fail(ctx, error.code, "%s (at byte %" PRIu64 " of the stream)", error.message,
                  decoder->pass->error_at);
}

static void tell_complaint(const pass *self)
{
    if (self->error->code < 0)
        tell_error(self->ctx, self->decoder);
}

static void refuse(weir_ctx *ctx, weir_decoder *decoder)
{
    decoder->is_over = true;
    tell_error(ctx, decoder);
    weir__ctx_close_unless_finishing(ctx);
}

/* Decoding ------------------------------------------------------------------------------------- */

/* Bytes of the present message that were taken already. */
static size_t taken_of_message(const weir_decoder *decoder)
{
    return (size_t)(decoder->position - decoder->begun_at);
}

static bool is_too_long(pass *self, size_t length)
{
    if (length <= self->decoder->max_message)
        return false;
    self->decoder->position = self->decoder->begun_at;
    weir_decoder_refuse(self->ctx, WEIR_ELIMIT, "a message is longer than %zu bytes",
                        self->decoder->max_message);
    return true;
}

/* Messages for which no byte was read, or none at all where there should be one. */
static bool is_stuck(const pass *self, const weir_msg *msg)
{
    return msg == NULL || self->unread > MOST_UNREAD;
}

WEIR__BESIDE static weir_decoded refuse_message(pass *self, weir_msg *msg)
{
    bool stuck = is_stuck(self, msg);
    weir_msg_release(msg);
    if (stuck)
        weir_decoder_refuse(self->ctx, -EPROTO,
                            "the decoder gives messages without reading any bytes");
    else
        is_too_long(self, taken_of_message(self->decoder));
    return WEIR_DECODED_REFUSED;
}

/* To a decoder that also makes events. */
static void give(const pass *self, weir_msg *msg)
{
    weir_decoder *decoder = self->decoder;
    bool had_decoded = decoder->has_decoded;
    decoder->has_decoded = true;
    if (!decoder->type->give(self->ctx, msg))
        decoder->has_decoded = had_decoded;
}

/* A message that was decoded: to the next handler. */
static inline weir_decoded pass_on(pass *self, weir_decoder *decoder, weir_msg *msg, size_t taken)
{
    self->unread = taken > 0 ? 0 : self->unread + 1;
    if (is_stuck(self, msg) || taken_of_message(decoder) > decoder->max_message)
        return refuse_message(self, msg);
    decoder->begun_at = decoder->position;
    if (decoder->type->give != NULL) {
        give(self, msg);
    } else {
        decoder->has_decoded = true;
        weir_ctx_fire_read(self->ctx, msg);
    }
    return WEIR_DECODED_MESSAGE;
}

static weir_decoded skip(pass *self, size_t taken)
{
    self->decoder->begun_at = self->decoder->position;
    if (taken == 0)
        return weir_decoder_refuse(self->ctx, -EPROTO, "the decoder goes on without reading");
    tell_complaint(self);
    return WEIR_DECODED_SKIPPED;
}

static weir_decoded wait_for_more(pass *self, size_t there)
{
    if (is_too_long(self, taken_of_message(self->decoder) + there))
        return WEIR_DECODED_REFUSED;
    tell_complaint(self);
    return WEIR_DECODED_NOTHING;
}

static inline weir_decoded decode_one(pass *self, weir_decoder *decoder, weir_buf *in)
{
    weir_msg *msg = NULL;
    size_t reader = in->reader;
    self->in = in;
    self->reader = reader;
    weir_decoded decoded = self->decode(self->ctx, in, &msg);
    size_t taken = in->reader - reader;
    decoder->position += taken;
    self->in = NULL;
    if (__builtin_expect(decoded == WEIR_DECODED_MESSAGE, 1))
        return pass_on(self, decoder, msg, taken);
    if (decoded == WEIR_DECODED_SKIPPED)
        return skip(self, taken);
    if (decoded == WEIR_DECODED_NOTHING)
        return wait_for_more(self, weir_buf_readable(in));
    return decoded;
}

/* Mostly the fresh bytes hold several messages, and no handler takes the bytes away meanwhile. */
static inline weir_decoded decode_some(pass *self, weir_decoder *decoder, weir_buf *in)
{
    weir_decoded decoded;
    do
        decoded = decode_one(self, decoder, in);
    while (decoded == WEIR_DECODED_MESSAGE && in == self->fresh && !decoder->is_over &&
           !decoder->is_single);
    return decoded;
}

/* Lends more of what is fresh to the message that has begun in what is kept: false when there is no
 * more. */
static bool lend(pass *self)
{
    weir_decoder *decoder = self->decoder;
    size_t left = weir_buf_readable(self->fresh) - self->lent;
    if (decoder->kept == NULL || left == 0)
        return false;
    size_t length = weir_buf_readable(decoder->kept);
    length = length > LEAST_LENT ? length : LEAST_LENT;
    if (decoder->type->cumulation == WEIR_CUMULATION_CHAIN || length > left)
        length = left;
    int code = append(decoder, &decoder->kept, self->fresh,
                      weir_buf_reader(self->fresh) + self->lent, length);
    if (code < 0) {
        weir_decoder_refuse(self->ctx, code, "no memory for the rest of a message");
        refuse(self->ctx, decoder);
        return false;
    }
    self->lent += length;
    return true;
}

/* When all bytes are used up that had been kept, the rest of the loan is read where it is: true
 * then. */
static bool end_loan(pass *self)
{
    weir_decoder *decoder = self->decoder;
    size_t left = weir_buf_readable(decoder->kept);
    if (decoder->kept == NULL || left > self->lent)
        return false;
    if (self->fresh != NULL)
        weir_buf_skip(self->fresh, self->lent - left);
    self->lent = 0;
    weir__cumulation_drop(&decoder->kept);
    return true;
}

/* As far as it goes. */
static void run(pass *self)
{
    weir_decoder *decoder = self->decoder;
    while (!decoder->is_removed && !decoder->is_over) {
        weir_buf *in = decoder->kept != NULL ? decoder->kept : self->fresh;
        weir_decoded decoded = in != NULL ? decode_some(self, decoder, in) : WEIR_DECODED_NOTHING;
        if (decoded == WEIR_DECODED_REFUSED) {
            refuse(self->ctx, decoder);
        } else if (decoded == WEIR_DECODED_NOTHING) {
            if (!end_loan(self) && !lend(self))
                break;
        } else {
            if (decoder->kept != NULL)
                end_loan(self);
            if (decoder->is_single && decoded == WEIR_DECODED_MESSAGE && !self->is_last)
                break;
        }
    }
}

/* Mostly messages are views of what is fresh, and use it up. */
static void run_with_loan(pass *self)
{
    weir_block *block = self->fresh != NULL ? self->fresh->block : NULL;
    if (block == NULL) {
        run(self);
        return;
    }
    weir_loan outer = weir__loan_begin(block);
    run(self);
    if (weir_buf_readable(self->fresh) == 0)
        weir__cumulation_drop(&self->fresh);
    weir__loan_end(outer);
}

/* After a pass -----------------------------------------------------------------------------------
 */

/* What is left of `fresh` is kept, behind what was kept before. */
static int keep_rest(pass *self)
{
    weir_decoder *decoder = self->decoder;
    weir_buf *rest = self->fresh;
    size_t lent = self->lent;
    self->fresh = NULL;
    self->lent = 0;
    if (rest == NULL)
        return 0;
    if (decoder->kept == NULL)
        return make_own(decoder, rest, &decoder->kept);
    size_t length = weir_buf_readable(rest) - lent;
    int code = length == 0
                   ? 0
                   : append(decoder, &decoder->kept, rest, weir_buf_reader(rest) + lent, length);
    weir_buf_release(rest);
    return code;
}

static void keep(pass *self)
{
    weir_decoder *decoder = self->decoder;
    size_t length = weir_buf_readable(decoder->kept) + weir_buf_readable(self->fresh) - self->lent;
    int code = length > max_waiting(decoder) ? WEIR_ELIMIT : keep_rest(self);
    if (code < 0) {
        weir_decoder_refuse(self->ctx, code, "no room for the %zu bytes that wait to be decoded",
                            length);
        refuse(self->ctx, decoder);
    }
}

enum { PARTS = 3 };

/* Several parts go on as one, so that nothing that is read meanwhile comes between them; without
 * memory for that one by one. */
static void join(weir_buf **parts)
{
    size_t length = 0, count = 0;
    for (int i = 0; i < PARTS; i++) {
        length += weir_buf_readable(parts[i]);
        count += weir_buf_readable(parts[i]) > 0;
    }
    weir_buf *whole = count > 1 ? weir_buf_new(length) : NULL;
    for (int i = 0; i < PARTS && whole != NULL; i++) {
        if (parts[i] != NULL)
            weir_buf_write_buf(whole, parts[i], weir_buf_readable(parts[i]));
        weir__cumulation_drop(&parts[i]);
    }
    if (whole != NULL)
        parts[0] = whole;
}

/* Removed: the next handler gets what was not decoded. */
static void hand_all_on(pass *self)
{
    weir_decoder *decoder = self->decoder;
    end_loan(self);
    weir_buf *parts[PARTS] = { decoder->kept, self->fresh, decoder->later };
    decoder->kept = self->fresh = decoder->later = NULL;
    if (self->lent > 0)
        weir_buf_set_writer(parts[0], weir_buf_writer(parts[0]) - self->lent);
    self->lent = 0;
    join(parts);
    for (int i = 0; i < PARTS; i++) {
        if (weir_buf_readable(parts[i]) > 0)
            weir_ctx_fire_read(self->ctx, &parts[i]->msg);
        else
            weir__cumulation_drop(&parts[i]);
    }
}

static void end_pass(pass *self)
{
    weir_decoder *decoder = self->decoder;
    if (!decoder->is_over && !decoder->is_removed)
        keep(self);
    if (decoder->is_over) {
        weir__cumulation_drop(&decoder->kept);
        weir__cumulation_drop(&self->fresh);
        weir__cumulation_drop(&decoder->later);
    } else if (decoder->is_removed) {
        hand_all_on(self);
    }
}

static void finish(weir_ctx *ctx);

/* Decodes what came, and what comes meanwhile. Takes the reference to `fresh`, which may be NULL.
 */
static void decode_all(weir_ctx *ctx, weir_buf *fresh, bool is_last)
{
    weir_decoder *decoder = weir_ctx_state(ctx);
    const weir_decoder_type *type = decoder->type;
    weir_error error;
    pass self = { .ctx = ctx, .decoder = decoder, .fresh = fresh, .is_last = is_last };
    self.error = &error;
    self.decode = is_last && type->decode_last != NULL ? type->decode_last : type->decode;
    error.code = 0;
    decoder->pass = &self;
    do {
        run_with_loan(&self);
        end_pass(&self);
        self.fresh = decoder->later;
        decoder->later = NULL;
    } while (self.fresh != NULL);
    decoder->pass = NULL;
    if (decoder->is_ending)
        finish(ctx);
}

/* The handler ---------------------------------------------------------------------------------- */

/* It came while a message of an earlier read is being handled. */
static void wait_its_turn(weir_ctx *ctx, weir_decoder *decoder, weir_buf *buf)
{
    size_t length = weir_buf_readable(buf), waiting = weir_buf_readable(decoder->later);
    int code = waiting + length > max_waiting(decoder) ? WEIR_ELIMIT : 0;
    if (code == 0 && decoder->later == NULL) {
        code = make_own(decoder, buf, &decoder->later);
    } else {
        if (code == 0)
            code = append(decoder, &decoder->later, buf, weir_buf_reader(buf), length);
        weir_buf_release(buf);
    }
    if (code == 0)
        return;
    weir_decoder_refuse(ctx, code, "no room for the %zu bytes that came meanwhile",
                        waiting + length);
    refuse(ctx, decoder);
}

/* What comes in pieces goes to who wants one run of memory as a copy. Takes the reference; NULL
 * when there is no memory. */
static weir_buf *as_one_run(const weir_decoder *decoder, weir_buf *buf)
{
    weir_buf *copy = NULL;
    if (!weir_buf_is_composite(buf) || decoder->type->cumulation == WEIR_CUMULATION_CHAIN)
        return buf;
    weir_buf_copy(buf, weir_buf_reader(buf), weir_buf_readable(buf), &copy);
    weir_buf_release(buf);
    return copy;
}

static void give_up(weir_ctx *ctx, weir_decoder *decoder)
{
    decoder->is_over = true;
    weir_ctx_fail(ctx, -ENOMEM, "no memory for what was read");
    weir_ctx_close(ctx, NULL);
}

void weir_decoder_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_decoder *decoder = weir_ctx_state(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    if (buf == NULL)
        weir_ctx_fire_read(ctx, msg);
    else if (decoder->is_over)
        weir_buf_release(buf);
    else if ((buf = as_one_run(decoder, buf)) == NULL)
        give_up(ctx, decoder);
    else if (decoder->pass != NULL)
        wait_its_turn(ctx, decoder, buf);
    else
        decode_all(ctx, buf, false);
}

/* A message takes as many reads as it takes, whoever asked for one of them. */
void weir_decoder_on_read_complete(weir_ctx *ctx)
{
    weir_decoder *decoder = weir_ctx_state(ctx);
    int64_t reads_by_itself = 1;
    if (!decoder->has_decoded && !decoder->is_over)
        weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, &reads_by_itself);
    if (!reads_by_itself)
        weir_ctx_read(ctx);
    decoder->has_decoded = false;
    weir_ctx_fire_read_complete(ctx);
}

/* The stream has ended. */
static void finish(weir_ctx *ctx)
{
    weir_decoder *decoder = weir_ctx_state(ctx);
    decoder->is_ending = decoder->pass != NULL; /* then the pass comes to this when it ends */
    if (decoder->is_over || decoder->is_ending || decoder->is_removed)
        return;
    /* Behind the last byte it is asked once more, with nothing. */
    weir_buf *nothing = decoder->type->decode_last != NULL ? weir_buf_new(0) : NULL;
    if (decoder->type->decode_last != NULL && nothing == NULL) {
        give_up(ctx, decoder);
        return;
    }
    decode_all(ctx, nothing, true);
    size_t left = weir_buf_readable(decoder->kept) + taken_of_message(decoder);
    if (decoder->is_removed)
        return;
    bool is_refused = decoder->is_over;
    decoder->is_over = true;
    weir__cumulation_drop(&decoder->kept);
    if (left > 0 && !is_refused)
        weir_ctx_fail(ctx, WEIR_EOF,
                      "the stream ends inside a message, %zu bytes behind its begin (at byte "
                      "%" PRIu64 " of the stream)",
                      left, decoder->begun_at);
    if (decoder->has_decoded)
        weir_ctx_fire_read_complete(ctx);
    decoder->has_decoded = false;
}

/* Bytes that were received and not decoded. */
static size_t undecoded(const weir_decoder *decoder)
{
    const pass *self = decoder->pass;
    size_t left = weir_buf_readable(decoder->kept) + weir_buf_readable(decoder->later) +
                  taken_of_message(decoder);
    return self != NULL ? left + weir_buf_readable(self->fresh) - self->lent : left;
}

/* A message of which no byte is left here may have begun all the same. */
size_t weir_decoder_held(const weir_ctx *ctx)
{
    const weir_decoder *decoder = weir_ctx_state(ctx);
    if (decoder->is_over || decoder->type == NULL)
        return 0;
    bool is_inside = decoder->type->is_inside != NULL && decoder->type->is_inside(ctx);
    size_t left = undecoded(decoder);
    return left > 0 ? left : is_inside;
}

void weir_decoder_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        finish(ctx);
    weir_ctx_fire_event(ctx, event);
}

void weir_decoder_on_inactive(weir_ctx *ctx)
{
    finish(ctx);
    weir_ctx_fire_inactive(ctx);
}

void weir_decoder_removed(weir_ctx *ctx)
{
    weir_decoder *decoder = weir_ctx_state(ctx);
    bool has_rest = weir_buf_readable(decoder->kept) > 0;
    decoder->is_removed = true;
    if (decoder->pass != NULL) { /* before anything that comes from now on */
        end_pass(decoder->pass);
        return;
    }
    decoder->is_over |= !weir_channel_is_open(weir_ctx_channel(ctx));
    end_pass(&(pass){ .ctx = ctx, .decoder = decoder });
    if (has_rest && !decoder->is_over)
        weir_ctx_fire_read_complete(ctx);
}
