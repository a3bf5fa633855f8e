/* SPDX-License-Identifier: MIT */
/* The base of decoders: from bytes as they come to messages. */
#ifndef WEIR_DECODER_H
#define WEIR_DECODER_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/*
 * A decoder is a handler that is asked one question: here are bytes, what is the next message? All
 * else is done here: bytes that do not make a message yet are kept until more come, a message
 * inside one read is handed out as a part of it instead of a copy, the end of the stream, limits,
 * removal in the middle, and reads that come while a message is being handled.
 *
 *     typedef struct number_decoder {
 *         weir_decoder decoder; // first
 *     } number_decoder;
 *
 *     static weir_decoded decode_number(weir_ctx *ctx, weir_buf *in, weir_msg **out)
 *     {
 *         weir_buf *digits;
 *         if (weir_buf_readable(in) < 8)
 *             return WEIR_DECODED_NOTHING;
 *         if (weir_buf_read_slice(in, 8, &digits) < 0)
 *             return weir_decoder_refuse(ctx, -ENOMEM, "no memory for a number");
 *         *out = &digits->msg;
 *         return WEIR_DECODED_MESSAGE;
 *     }
 *
 *     static const weir_decoder_type numbers = { .decode = decode_number, .max_message = 8 };
 *
 *     static void number_added(weir_ctx *ctx)
 *     {
 *         weir_decoder_init(weir_ctx_state(ctx), &numbers);
 *     }
 *
 *     static const weir_handler_type number_handler = {
 *         .name = "numbers",
 *         .state_size = sizeof(number_decoder),
 *         .added = number_added,
 *         WEIR_DECODER_CALLBACKS,
 *     };
 */

/** What came of one call of `decode`. */
typedef enum weir_decoded {
    /* It needs more bytes than there are. It may have taken some, and remembered what they were. */
    WEIR_DECODED_NOTHING,

    /* A message, in `*out`. It took bytes for it; or it had more than one in those it took before,
     * up to 16 in a row. */
    WEIR_DECODED_MESSAGE,

    /* Bytes that belong to no message were taken; go on. */
    WEIR_DECODED_SKIPPED,

    /* What weir_decoder_refuse returns: the stream cannot be understood from here on. */
    WEIR_DECODED_REFUSED,
} weir_decoded;

/**
 * Finds the next message in the readable bytes of `in`. What it has read (by moving the reader) it
 * does not see again; what it has not, it sees again together with what comes. To look at every
 * byte once, it remembers in its state how far it got, counted from the reader.
 *
 * It must not call into the pipeline, keep `in`, or change anything of it but the reader.
 */
typedef weir_decoded (*weir_decode_fn)(weir_ctx *ctx, weir_buf *in, weir_msg **out);

/** How bytes of several reads become one buffer. */
typedef enum weir_cumulation {
    /* By copying: `in` is always one run of memory. A message within one read is not copied. */
    WEIR_CUMULATION_COPY,

    /* By chaining: `in` may be a composite. For messages much larger than a read. */
    WEIR_CUMULATION_CHAIN,
} weir_cumulation;

/** What becomes of a message above its limit, for decoders that can find the next one. */
typedef enum weir_oversize {
    WEIR_OVERSIZE_CLOSE, /* it is told, and the channel is closed */
    WEIR_OVERSIZE_SKIP,  /* it is told as soon as it is known, skipped, and the next one is decoded
                          */
    WEIR_OVERSIZE_SKIP_FIRST, /* it is skipped, and told when that is done */
} weir_oversize;

/** What kind of decoder it is: const and static, one for any number of channels. */
typedef struct weir_decoder_type {
    weir_decode_fn decode;

    /* The same when no more will come, called until it says WEIR_DECODED_NOTHING, with what is
     * left: perhaps nothing. What it leaves is an error. NULL: `decode`. */
    weir_decode_fn decode_last;

    /* The longest message, in bytes that were taken for it or wait for its rest; more is refused
     * with WEIR_ELIMIT. 0: WEIR_DECODER_MAX_MESSAGE. */
    size_t max_message;

    /* The most that is kept of what was not asked for yet: what comes while a message is being
     * handled, and behind the first message in single mode. 0: 64 KiB; never less than max_message.
     */
    size_t max_waiting;

    weir_cumulation cumulation;

    /* Passes a message on, instead of weir_ctx_fire_read, for a decoder that also makes events:
     * true when it was something that a read was asked for. NULL: all are. */
    bool (*give)(weir_ctx *ctx, weir_msg *msg);

    /* Whether what comes next belongs to something that has begun, though no byte of that is left:
     * the rest of a message that is skipped. It counts as held then. NULL: it does not. */
    bool (*is_inside)(const weir_ctx *ctx);
} weir_decoder_type;

/** The default limit of a message: 1 MiB. */
#define WEIR_DECODER_MAX_MESSAGE ((size_t)1 << 20)

/** The beginning of a decoder's state. All of it is weir's. */
typedef struct weir_decoder {
    const weir_decoder_type *type;
    weir_buf *kept;    /* what makes no message yet; NULL: nothing */
    weir_buf *later;   /* what came while a message was being handled */
    uint64_t position; /* how much of the stream was decoded */
    uint64_t begun_at; /* where the present message began */
    size_t max_message;
    uint64_t looked_at;             /* bytes, see weir_decoder_looked */
    struct weir_decoder_pass *pass; /* while it decodes */
    bool is_single;
    bool is_removed;
    bool is_ending;   /* the stream has, while it decodes */
    bool is_over;     /* the stream has ended, or was refused */
    bool has_decoded; /* in this batch of reads */
} weir_decoder;

/** The handler's callbacks, behind `.added` in its type. They expect a state that begins with a
 * weir_decoder. A handler that wants one of these events itself names its own, and calls the
 * function of the decoder from it. */
#define WEIR_DECODER_CALLBACKS                                                                     \
    .removed = weir_decoder_removed, .on_read = weir_decoder_on_read,                              \
    .on_read_complete = weir_decoder_on_read_complete, .on_event = weir_decoder_on_event,          \
    .on_inactive = weir_decoder_on_inactive, .held_reads = weir_decoder_held

/** The callbacks of WEIR_DECODER_CALLBACKS. Call them from a handler that replaces one. */
WEIR_API void weir_decoder_removed(weir_ctx *ctx);
WEIR_API void weir_decoder_on_read(weir_ctx *ctx, weir_msg *msg);
WEIR_API void weir_decoder_on_read_complete(weir_ctx *ctx);
WEIR_API void weir_decoder_on_event(weir_ctx *ctx, weir_msg *event);
WEIR_API void weir_decoder_on_inactive(weir_ctx *ctx);
WEIR_API size_t weir_decoder_held(const weir_ctx *ctx);

/** In `added`. */
WEIR_API void weir_decoder_init(weir_decoder *decoder, const weir_decoder_type *type);

/** Another limit than the type's, for what a configuration says. 0: the type's. */
WEIR_API void weir_decoder_set_max_message(weir_decoder *decoder, size_t bytes);

/** One message for each read, so that whoever gets it can change the pipeline before the next; the
 * rest waits for the next read, or goes to the next handler when the decoder is removed. */
WEIR_API void weir_decoder_set_single(weir_decoder *decoder, bool is_single);

/**
 * Inside `decode`, returned by it: the bytes at the reader are wrong. on_error tells what is, and
 * at which byte of the stream the reader was; all later bytes are dropped, and the channel is
 * closed after on_error. If on_error answers the peer, it writes the answer and calls
 * weir_channel_finish: then the channel closes in good order, and the answer is not lost in a
 * reset.
 */
WEIR_API weir_decoded weir_decoder_refuse(weir_ctx *ctx, int code, const char *format, ...)
    WEIR_PRINTF(3, 4);

/** Inside `decode`, which then returns WEIR_DECODED_SKIPPED, or NOTHING: the same, but the stream
 * goes on behind what was skipped. */
WEIR_API void weir_decoder_complain(weir_ctx *ctx, int code, const char *format, ...)
    WEIR_PRINTF(3, 4);

/** Inside `decode`: it has looked at so many bytes. For tests only: a decoder that looks at bytes
 * again and again can be slowed down by who sends them one by one, and a count shows it. */
static inline void weir_decoder_looked(weir_decoder *decoder, size_t bytes)
{
    decoder->looked_at += bytes;
}

WEIR_END_DECLS

#endif
